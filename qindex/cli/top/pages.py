"""The pages of `qindex top` as text: all queues, one queue, one message. No terminal is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from qindex.cli.peek import body_lines, flags_of, value_as_text
from qindex.look.messages import Found, properties_of
from qindex.look.screen import aligned
from qindex.look.stores import QueueGone
from qindex.look.text import count, due_in, duration, printable, rate, shorten, size, width
from qindex.look.watch import UNACKED_MAX, QueueLook, StoreLook, Watch

COLUMNS: Final = [
    "<queue", ">messages", ">unacked", ">delayed", ">dead", ">in/s", ">out/s", ">oldest", ">disk",
]  # fmt: skip
MESSAGE_COLUMNS: Final = [">ReqId", ">size", "<what", "<body"]
MESSAGES_MAX: Final = 200
PREVIEW_BYTES: Final = 100
BODY_BYTES_MAX: Final = 64 * 1024
_GAP: Final = "  "
_NAME_COLUMNS_MIN: Final = 8

SORTS: Final[dict[str, Callable[[QueueLook], Any]]] = {
    "messages": lambda queue: -queue.messages,
    "in/s": lambda queue: -(queue.rates.published or 0),
    "out/s": lambda queue: -(queue.rates.acked or 0),
    "oldest": lambda queue: -(queue.oldest_seconds or 0),
    "disk": lambda queue: -queue.disk_bytes,
    "name": lambda queue: queue.name,
}


class Page(Protocol):
    """`rows` can be chosen among with the cursor, if `opens` is true."""

    help: str
    opens: bool

    def read(self, watch: Watch, look: StoreLook) -> None:
        """After each look."""
        ...

    def head(self, columns: int) -> list[str]: ...
    def rows(self, columns: int) -> list[str]: ...
    def key(self, row: int) -> object:
        """What row it is, whatever its place: the cursor stays with it."""
        ...

    def open(self, row: int) -> Page | None: ...
    def press(self, key: str) -> None: ...


@dataclass(slots=True)
class QueuesPage:
    help: str = "Enter open   s sort   Space pause   q end"
    opens: bool = True
    sort: str = "messages"
    look: StoreLook | None = None
    queues: list[QueueLook] = field(default_factory=list)

    def read(self, watch: Watch, look: StoreLook) -> None:
        self.look = look
        self.queues = sorted(look.queues, key=lambda q: (SORTS[self.sort](q), q.name))

    def head(self, columns: int) -> list[str]:
        facts = store_facts(self.look) if self.look else ""
        return [facts, f"sorted by {self.sort}", self._lines(columns)[0]]

    def rows(self, columns: int) -> list[str]:
        return self._lines(columns)[1:]

    def _lines(self, columns: int) -> list[str]:
        return table(COLUMNS, [queue_cells(queue) for queue in self.queues], columns, gives=0)

    def key(self, row: int) -> object:
        return self.queues[row].name

    def open(self, row: int) -> Page | None:
        return QueuePage(self.queues[row].name) if row < len(self.queues) else None

    def press(self, key: str) -> None:
        if key == "s" and self.look:
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
            self.queues.sort(key=lambda q: (SORTS[self.sort](q), q.name))


@dataclass(slots=True)
class _Line:
    """What a list needs of a message: not the whole body."""

    req_id: int
    cells: list[str]

    @classmethod
    def of(cls, message: Found) -> _Line:
        preview = message.body[:PREVIEW_BYTES].decode("utf-8", "backslashreplace")
        flags = ", ".join(flags_of(message))
        cells = [f"{message.req_id}", size(len(message.body)), flags, printable(preview)]
        return cls(message.req_id, cells)


@dataclass(slots=True)
class QueuePage:
    name: str
    help: str = "Enter open   n next messages   f first ones   Escape back   q end"
    opens: bool = True
    first: int = 0
    lines: list[_Line] = field(default_factory=list)
    queue: QueueLook | None = None

    def read(self, watch: Watch, look: StoreLook) -> None:
        self.queue = next((queue for queue in look.queues if queue.name == self.name), None)
        self.lines = []
        if self.queue:
            try:
                self.lines = watch.messages(self.name, self.first, MESSAGES_MAX, _Line.of)
            except QueueGone:
                self.queue = None

    def head(self, columns: int) -> list[str]:
        if self.queue is None:
            return [f"{printable(self.name)}: no such queue any more"]
        facts = [f"{printable(self.name)}: {count(self.queue.messages, 'message')}"]
        cells = queue_cells(self.queue)
        facts += [f"{c[1:]} {v}" for c, v in zip(COLUMNS[2:], cells[2:], strict=True)]
        facts.append(count(self.queue.segments, "segment"))
        if self.queue.next_due is not None:
            facts.append(f"next delayed one is due {due_in(self.queue.next_due)}")
        if self.queue.damage:
            return [facts[0], shorten(self.queue.damage, columns)]
        return [shorten(_GAP.join(facts), columns), self._table(columns)[0]]

    def rows(self, columns: int) -> list[str]:
        return self._table(columns)[1:]

    def _table(self, columns: int) -> list[str]:
        return table(MESSAGE_COLUMNS, [line.cells for line in self.lines], columns, gives=3)

    def key(self, row: int) -> object:
        return self.lines[row].req_id

    def open(self, row: int) -> Page | None:
        return MessagePage(self.name, self.lines[row].req_id) if row < len(self.lines) else None

    def press(self, key: str) -> None:
        if key == "n" and self.lines:
            self.first = self.lines[-1].req_id + 1
        elif key == "f":
            self.first = 0


@dataclass(slots=True)
class MessagePage:
    """A message as it was when the page was opened; whether it is still there, at each look."""

    name: str
    req_id: int
    help: str = "up and down scroll   Escape back   q end"
    opens: bool = False
    shown: list[str] = field(default_factory=list)
    is_there: bool = True

    def read(self, watch: Watch, look: StoreLook) -> None:
        try:
            found = watch.messages(self.name, self.req_id, 1, _message_lines)
        except QueueGone:
            found = []
        self.is_there = bool(found) and found[0][0] == self.req_id
        if self.is_there:
            self.shown = found[0][1]

    def head(self, columns: int) -> list[str]:
        gone = "" if self.is_there else ": not in the queue any more"
        return [shorten(f"message {self.req_id} of {printable(self.name)}{gone}", columns)]

    def rows(self, columns: int) -> list[str]:
        return [piece for line in self.shown for piece in _wrapped(line, columns)]

    def key(self, row: int) -> object:
        return row

    def open(self, row: int) -> Page | None:
        return None

    def press(self, key: str) -> None:
        pass


def _message_lines(message: Found) -> tuple[int, list[str]]:
    lines = [", ".join([size(len(message.body)), *flags_of(message)])]
    headers = message.headers
    properties = properties_of(headers)
    if properties:
        del headers["properties"]
    for title, values in (("headers", headers), ("properties", properties)):
        if values:
            lines += ["", title]
            lines += [f"  {printable(n)} = {value_as_text(v)}" for n, v in values.items()]
    body = message.body[:BODY_BYTES_MAX]
    lines += ["", "body"]
    try:
        lines += [f"  {printable(line)}" for line in body.decode().splitlines()]
    except UnicodeDecodeError:
        lines += [f"  {line}" for line in body_lines(body, "hex")]
    if len(message.body) > len(body):
        lines.append(
            f"  … {count(len(message.body) - len(body), 'more byte')}: qindex peek --bodies raw"
        )
    return message.req_id, lines


def _wrapped(line: str, columns: int) -> list[str]:
    """In pieces that fit; of a script with wide characters half as many fit."""
    most = max(1, columns if width(line) == len(line) else columns // 2)
    return [line[start : start + most] for start in range(0, max(1, len(line)), most)]


# --- text ---------------------------------------------------------------------------------------


def store_facts(look: StoreLook) -> str:
    """One line about the whole store."""
    messages = sum(queue.messages for queue in look.queues)
    files = count(look.message_files, "message file")
    facts = [
        f"{count(len(look.queues), 'queue')}, {count(messages, 'message')}",
        f"disk {size(look.disk_bytes)} ({files}), {size(look.free_bytes)} free",
    ]
    if look.writer is not None:
        facts.append(f"open in process {look.writer}")
    elif not look.unclean:
        facts.append("closed")
    if places := look.damage + look.nameless:
        facts.append(f"DAMAGE in {count(places, 'place')}: see qindex check")
    return "; ".join(facts)


def queue_cells(queue: QueueLook) -> list[str]:
    """A row under COLUMNS."""
    return [
        printable(queue.name),
        "damaged" if queue.damage else f"{queue.messages:,}",
        unacked_text(queue) if queue.unacked else "-",
        f"{queue.delayed:,}" if queue.delayed else "-",
        f"{queue.dead:,}" if queue.dead else "-",
        _per_second(queue.rates.published),
        _per_second(queue.rates.acked),
        oldest_text(queue),
        size(queue.disk_bytes),
    ]


def unacked_text(queue: QueueLook) -> str:
    return f"{queue.unacked:,}" + ("+" if queue.unacked >= UNACKED_MAX else "")


def oldest_text(queue: QueueLook) -> str:
    if queue.oldest_seconds is None:
        return "-"
    return f"{'> ' if queue.oldest_is_older else ''}{duration(queue.oldest_seconds)}"


def _per_second(number: float | None) -> str:
    return "-" if number is None else rate(number, 1)


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], columns: int, *, gives: int
) -> list[str]:
    """As Screen.table(); the column `gives` gives way where `columns` are too few."""
    cells = [[title[1:] for title in titles], *rows]
    widths = [max(width(row[i]) for row in cells) for i in range(len(titles))]
    others = sum(widths) - widths[gives] + len(_GAP) * (len(widths) - 1)
    widths[gives] = min(widths[gives], max(columns - others, _NAME_COLUMNS_MIN))
    lines = []
    for row in cells:
        parts = [
            aligned(shorten(cell, most), most, title[0])
            for cell, most, title in zip(row, widths, titles, strict=True)
        ]
        lines.append(shorten(_GAP.join(parts).rstrip(), columns))
    return lines
