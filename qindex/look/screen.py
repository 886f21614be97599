"""Where commands write: tables and colour for people, plain text for pipes, progress on the side.

Colour only on a terminal, and never with NO_COLOR or TERM=dumb. Progress goes to stderr, and only
if that is a terminal or was asked for; there one line, drawn again and again, elsewhere one line
a second.

This is the only door to the terminal. Names of queues, files and paths, headers, and errors that
quote them are foreign text. So every line is made printable here (text.printable), and JSON has the
written form of every name (names.written).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import isfinite
from typing import Any, Final, TextIO

from qindex.look.text import duration, printable, rate, shorten, width
from qindex.moments import utc_of
from qindex.names import written

SEVERITIES: Final = ("damage", "suspected", "note")  # of a finding, the worst first
_STYLES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_REDRAW_SECONDS: Final = 0.1
_LINE_SECONDS: Final = 1.0
_NARROW_COLUMNS_MIN: Final = 12
_TEXT_COLUMNS_MIN: Final = 24
_GAP: Final = "  "


class CommandError(Exception):
    """What ends a command: one line that says what is wrong and what to do, and an exit code."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


class Screen:
    """stdout and stderr as they are when it is made; `asked` is --progress."""

    def __init__(self, asked: bool = False) -> None:
        self.out: TextIO = sys.stdout
        self.err: TextIO = sys.stderr
        self.is_terminal = self.out.isatty()
        self.colour = self.is_terminal and _wants_colour()
        self.shows_progress = asked or self.err.isatty()
        # paint() marks its own escapes with a random key, which no foreign text can know.
        self._key = secrets.token_hex(4)
        self._painted = re.compile(rf"\033{self._key}\[([0-9]+m)")

    def line(self, text: str = "") -> None:
        """One line. What could steer the terminal is escaped, except the colours of paint()."""
        pieces = self._painted.split(text)  # text, colour, text, colour, text
        pieces[::2] = map(printable, pieces[::2])
        pieces[1::2] = [f"\033[{colour}" for colour in pieces[1::2]]
        self.out.write("".join(pieces) + "\n")

    def error(self, text: str) -> None:
        """One line on stderr, behind what stdout has got so far."""
        self.out.flush()
        self.err.write(error_line(text))

    def paint(self, text: str, style: str) -> str:
        """For line() only: the text, which line() shows in this style."""
        if not self.colour:
            return text
        return f"\033{self._key}[{_STYLES[style]}m{text}\033{self._key}[0m"

    def heading(self, text: str) -> None:
        self.line(self.paint(text, "bold"))

    def json(self, value: Any, *, indent: int | None = 2) -> None:
        """Pure ASCII without control characters, whatever the names are."""
        text = json.dumps(plain(value), indent=indent, allow_nan=False)
        self.out.write(text.replace("\x7f", "\\u007f") + "\n")

    def cells(self, values: Sequence[str]) -> None:
        """One line with tabs in between, for programs; the values are escaped as in line()."""
        self.out.write("\t".join(map(printable, values)) + "\n")

    def raw(self, body: bytes) -> None:
        """Bytes as they are, behind the text so far; a terminal gets them as printable lines."""
        if self.is_terminal:
            for line in body.decode(errors="backslashreplace").removesuffix("\n").split("\n"):
                self.line(line)
            return
        self.out.flush()
        self.out.buffer.write(body)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, last_is_total: bool = False
    ) -> None:
        """Columns under headings: `<name` stands left, `>name` right.

        The first column gives way where a terminal is too narrow; a last one of text goes on in the
        next line.
        """
        cells = [[column[1:] for column in columns], *rows]
        widths = [max(width(row[i]) for row in cells) for i in range(len(columns))]
        if self.is_terminal:
            room = shutil.get_terminal_size().columns - sum(widths[1:]) - 2 * len(widths)
            if columns[-1].startswith("<"):
                room += max(0, widths[-1] - _TEXT_COLUMNS_MIN)
            widths[0] = min(widths[0], max(room, _NARROW_COLUMNS_MIN))
        for number, row in enumerate(cells):
            line = _GAP.join(
                aligned(shorten(cell, most) if i == 0 else cell, most, column[0])
                for i, (cell, most, column) in enumerate(zip(row, widths, columns, strict=True))
            ).rstrip()
            if number == 0:
                line = self.paint(line, "dim")
            elif last_is_total and number == len(cells) - 1:
                line = self.paint(line, "bold")
            self.line(_GAP + line)

    def mark(self, ok: bool) -> str:
        """A tick or a cross; words where the encoding has neither."""
        utf = (self.out.encoding or "").lower().replace("-", "").startswith("utf")
        good, bad = ("✓", "✗") if utf else ("ok:", "FAILED:")
        return self.paint(good, "green") if ok else self.paint(bad, "red")

    def pair(self, name: str, value: str, *, columns: int) -> None:
        """What it is, and the value; seen at once, for what comes step by step."""
        self.line(f"{_GAP}{self.paint(aligned(name, columns, '<'), 'dim')}{_GAP}{value}")
        self.out.flush()

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        """What it is, and the value, in two columns."""
        most = max(width(name) for name, _ in pairs)
        for name, value in pairs:
            self.pair(name, value, columns=most)

    def findings(self, findings: Sequence[Any], lines_max: int = 20) -> None:
        """Damage first; each with its place. Works for the engine's findings and the readers'."""
        ranked = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
        columns = max((len(finding.severity) for finding in ranked), default=0)
        for finding in ranked[:lines_max]:
            style = "yellow" if finding.severity == "note" else "red"
            place = getattr(finding, "place", None)  # of the readers' findings
            if place is None:
                place = f"{finding.where or 'store'} at byte {finding.offset}"
            mark = self.paint(aligned(finding.severity, columns, "<"), style)
            self.line(f"{_GAP}{mark}  {printable(place)}: {printable(finding.text)}")
        if len(ranked) > lines_max:
            self.line(f"{_GAP}… and {len(ranked) - lines_max:,} more: --json lists all of them")

    @contextmanager
    def progress(self, what: str, unit: str = "") -> Iterator[Progress]:
        """Progress for one step; its line is wiped when the step ends, however it ends."""
        progress = Progress(self.err, what, unit, self.shows_progress)
        try:
            yield progress
        finally:
            progress.wipe()


class Quiet(Screen):
    """For a second reading of what was told already."""

    def error(self, text: str) -> None:
        pass


class Progress:
    """A line about one step: how many of how many, how fast, how long it will take."""

    def __init__(self, stream: TextIO, what: str, unit: str, shown: bool) -> None:
        self._stream = stream
        self._what = what
        self._unit = unit
        self._shown = shown
        self._redraws = stream.isatty()
        self._started = time.monotonic()
        self._next = self._started + (0 if self._redraws else _LINE_SECONDS)
        self._drawn = False

    def at(self, done: int, total: int = 0, note: str = "") -> None:
        """Cheap to call often: most calls draw nothing."""
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + (_REDRAW_SECONDS if self._redraws else _LINE_SECONDS)
        self._draw(self._text(done, total, now - self._started, note))

    def _text(self, done: int, total: int, seconds: float, note: str) -> str:
        if not done and not total:
            return f"{self._what} …"
        unit = self._unit.removesuffix("s") if (total or done) == 1 else self._unit
        of_total = f" of {total:,} {unit} ({done * 100 // total} %)" if total else f" {unit}"
        parts = [f"{self._what}  {done:,}{of_total}", f"{rate(done, seconds)}/s"]
        if 0 < done < total and seconds > 0.5:
            parts.append(f"{duration((total - done) * seconds / done)} left")
        return "  ".join([*parts, note]).rstrip()

    def _draw(self, text: str) -> None:
        text = printable(text)
        if self._redraws:
            text = shorten(text, shutil.get_terminal_size().columns - 1)
            self._stream.write(f"\r\033[K{text}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()
        self._drawn = True

    def wipe(self) -> None:
        if self._drawn and self._redraws:
            self._stream.write("\r\033[K")
            self._stream.flush()
        self._drawn = False


def error_line(text: str) -> str:
    """An error as stderr gets it: one line, whatever names it quotes."""
    return f"qindex: {printable(' '.join(text.split()))}\n"


_AS_THEY_ARE: Final = frozenset((int, bool, type(None)))


def plain(value: Any) -> Any:
    """Figures, names and headers as JSON has them; bytes that are no text as {"hex": ...}.

    Text that is not valid Unicode has its written form (names.written).
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if type(value) is str:
        return written(value)
    if isinstance(value, dict):
        return {
            written(str(key)): inner if type(inner) in _AS_THEY_ARE else plain(inner)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, str):
        return written(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, datetime):
        return utc_of(value)
    return value if isinstance(value, float) and isfinite(value) else written(str(value))


def tell_former(former: str, now: str) -> None:
    """A spelling that works for one more version."""
    sys.stderr.write(f"note: {former} is called {now} now; the next version takes only that\n")


def aligned(cell: str, columns: int, side: str) -> str:
    """The cell on the left (`<`) or on the right (`>`) of so many columns."""
    space = " " * (columns - width(cell))
    return space + cell if side == ">" else cell + space


def _wants_colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
