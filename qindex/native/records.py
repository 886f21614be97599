"""What is in a journal or a segment of a store, record by record, damaged or not.

The core reads the bytes (c_ext/look/columns.c), many rows a call; no store has to be open. This is
the one door to records for whoever shows, salvages or draws them. `qindex replay --verify` reads
the same bytes by other code (frames.py), so that the two can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, NamedTuple

from qindex._core import ffi, lib
from qindex.brokers.tree import Tree
from qindex.errors import NewerFormat, raise_error
from qindex.native import frames
from qindex.native.folders import JOURNALS, PAST
from qindex.native.frames import (
    COUNT_MASK,
    FRAME_BYTES,
    JOURNAL_START,
    NAME_OF,
    CannotReplay,
    Purge,
    journal_header,
)
from qindex.native.times import REASONS

LANE: Final = COUNT_MASK + 1  # a ReqId is a lane (0: no priority, no delay) and a count
ROWS: Final = 4096  # a call
ROWS_MIN: Final = 64
_CLOCK: Final = Struct(">8xQ")  # of MARK and CLOSE
_NO_MSG_ID: Final = bytes(16)
# By the kind of a row. "bad" are bytes that are no frame, with frames behind them; "tail" are such
# bytes at the end, perhaps only what a crash cut off; "headless" is a damaged header; "newer" is a
# frame of a kind that this version does not know and must not skip ("extended": it may). The kind
# stands in the place of deliveries.
VERBS: Final = {
    lib.QI_ROW_PUBLISH: "publish",
    lib.QI_ROW_TRANSIENT: "publish",
    lib.QI_ROW_DELIVER: "deliver",
    lib.QI_ROW_ACK: "ack",
    lib.QI_ROW_TIME: "time",
    lib.QI_ROW_EVENT: "event",
    lib.QI_ROW_COUNT: "count",
    lib.QI_ROW_PURGE: "purge",
    lib.QI_ROW_BAD: "bad",
    lib.QI_ROW_TAIL: "tail",
    lib.QI_ROW_HEADLESS: "headless",
    lib.QI_ROW_NEWER: "newer",
    lib.QI_ROW_SIDE: "side",
    lib.QI_ROW_MOMENT: "moment",
    **{lib.QI_ROW_FRAME + number: name for number, name in NAME_OF.items()},
}
_DAMAGE: Final = {
    "bad": " are no frame: damage",
    "tail": " are no frame: a torn tail, stale bytes or damage",
    "headless": ": the header is damaged; the frames agree on what it said",
}
_COLUMNS: Final = {
    "req_id": "int64_t[]",
    "offset": "int64_t[]",
    "size": "int64_t[]",
    "embedded": "int64_t[]",
    "expiry_us": "int64_t[]",
    "due_us": "int64_t[]",
    "priority": "int32_t[]",
    "count": "int32_t[]",
    "published_us": "int64_t[]",
}


class Record(NamedTuple):
    """A record, or bytes at `offset` that hold none.

    `req_id` is the slot in a segment. `size` is that of a publish's body, else the number of bytes
    without the head of their frame.
    """

    verb: str
    req_id: int
    offset: int
    size: int
    embedded: int
    expiry_us: int
    due_us: int
    priority: int
    deliveries: int
    published_us: int  # of a publish; 0: not known
    msg_id: bytes  # empty: none
    transient: bool

    @property
    def damage(self) -> str:
        """What is wrong here, for people; empty if nothing is."""
        if self.verb == "newer":
            known = "only a newer version of qindex understands"
            return f"{self.size} bytes of kind {self.deliveries}, which {known}"
        text = _DAMAGE.get(self.verb)
        return f"{self.size} bytes{text}" if text else ""


@dataclass(slots=True)
class Place:
    """How far a file was read: a frame's offset, and how far inside it."""

    at: int = 0
    inside: int = 0
    moment: int = 0  # what was said last of when messages are published


def records(data: bytes | bytearray, place: Place | None = None) -> Iterator[Record]:
    """The records from `place` on. When all were taken, `place` is where they ended.

    Raises FormatError if the bytes are neither a journal nor a segment. A journal that was flushed
    has no header and is none: what it held is in the segments.
    """
    place = Place() if place is None else place
    rows = min(ROWS, max(ROWS_MIN, (len(data) - place.at) // FRAME_BYTES))
    columns = ffi.new("qi_columns *", {"room": rows, "raw": 1, "at": place.at})
    columns.inside, columns.moment = place.inside, place.moment
    arrays: dict[str, Any] = {name: ffi.new(kind, rows) for name, kind in _COLUMNS.items()}
    kinds, msg_ids = ffi.new("uint8_t[]", rows), ffi.new("uint8_t[]", 16 * rows)
    columns.kind, columns.msg_id = kinds, msg_ids
    for name, array in arrays.items():
        setattr(columns, name, array)
    source = ffi.from_buffer(data)
    while count := lib.qi_columns_records(source, len(data), columns):
        if count < 0:
            raise_error(count)
        found = ffi.unpack(kinds, count)
        raw = ffi.buffer(msg_ids)[: 16 * count]
        ids = (raw[at : at + 16] for at in range(0, 16 * count, 16))
        yield from map(
            Record,
            map(VERBS.__getitem__, found),
            *(ffi.unpack(array, count) for array in arrays.values()),
            (b"" if msg_id == _NO_MSG_ID else msg_id for msg_id in ids),
            map(lib.QI_ROW_TRANSIENT.__eq__, found),
        )
    place.at, place.inside, place.moment = columns.at, columns.inside, columns.moment


def purge_of(data: bytes | bytearray, purge: Record) -> Purge:
    """What a "purge" acks."""
    start = purge.offset + FRAME_BYTES
    return frames.purge_of(bytes(data[start : start + purge.size]))


def is_of_a_death(side: Record) -> bool:
    """Of a "side" record: it tells how its message became a dead letter."""
    return side.deliveries == frames.DEATHS or side.deliveries - frames.DIED in REASONS


def side_text(side: Record) -> tuple[str, str]:
    """(verb, what it says) of a "side" record, for people."""
    if side.deliveries == frames.LEASE:
        return "lease", f"{side.due_us} us"
    if side.deliveries == frames.PUBLISHED:
        return "moment", "when it was published, before it moved here"
    if why := REASONS.get(side.deliveries - frames.DIED):
        return "died", f"how often and when: {why}"
    if side.deliveries == frames.DEATHS:
        return "deaths", f"{side.size} bytes of history from queues that it has moved out of"
    return "side", f"{side.size} bytes of kind {side.deliveries}"


def clock_of(data: bytes | bytearray, mark: Record) -> int:
    """Of a "mark" or "close": the time in microseconds; 0: no sync yet in its session."""
    clock_us: int = _CLOCK.unpack_from(data, mark.offset + FRAME_BYTES)[0]
    return clock_us


@dataclass(slots=True)
class JournalFile:
    """A journal that counts: it has a header. What a flush has moved is not in it any more."""

    tree: Tree
    where: str
    epoch: int
    created_us: int
    place: Place = field(default_factory=Place)  # how far it was read

    @classmethod
    def at(cls, tree: Tree, where: str) -> JournalFile | None:
        source = tree.try_open(where)
        if source is None:
            return None
        with source:
            head = source.read(0, JOURNAL_START)
        try:
            header = journal_header(head)
        except CannotReplay as error:
            raise NewerFormat(f"{where}: {error}") from None
        if header is None or header.is_past:
            return None
        return cls(tree, where, header.epoch, header.created_us)

    def read(self, end: int | None = None) -> tuple[bytearray, Iterator[Record]]:
        """The bytes, and the records not read yet, up to `end`; none if it was flushed meanwhile.

        Headers and what is new are at their places, with zeros between: the checksums want the
        places. Read, not mapped: a writer may cut the file meanwhile, which would be a SIGBUS.
        """
        source = self.tree.try_open(self.where)
        if source is None:
            return bytearray(), iter(())
        start = max(JOURNAL_START, self.place.at)
        with source:
            data = bytearray(source.size if end is None else min(source.size, end))
            head, news = source.read(0, JOURNAL_START), source.read(start, len(data) - start)
        data[: len(head)] = head
        data[start : start + len(news)] = news
        header = journal_header(head)
        same = header is not None and header.epoch == self.epoch and len(data) >= JOURNAL_START
        return data, records(data, self.place) if same else iter(())


def journals_in(tree: Tree, folder: str) -> list[JournalFile]:
    """Those that count, the older one first: two while a flush is under way, or was cut off."""
    found = (JournalFile.at(tree, f"{folder}/{name}") for name in JOURNALS)
    return sorted(filter(None, found), key=lambda journal: journal.epoch)


def past_journals_in(tree: Tree, folder: str) -> list[str]:
    """What keep_history kept of journals that were flushed, the oldest first: where they are."""
    found = [match for name in tree.files(folder) if (match := PAST.fullmatch(name))]
    return [
        f"{folder}/{match[0]}"
        for match in sorted(found, key=lambda match: int(match[1]))
        if match[2] is None
    ]
