"""The terminal of `qindex top`: draws pages, moves the cursor, looks again when it is time."""

from __future__ import annotations

import curses
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import qindex
from qindex.cli.top.command import pause
from qindex.cli.top.pages import Page, QueuesPage
from qindex.look.screen import CommandError
from qindex.look.text import printable, shorten
from qindex.look.watch import StoreLook, Watch
from qindex.moments import utc

KEY_MS: Final = 100  # how late a look may come
ESCAPE_MS: Final = "25"
MOVES: Final = {
    curses.KEY_UP: -1,
    ord("k"): -1,
    curses.KEY_DOWN: 1,
    ord("j"): 1,
}
OPEN: Final = (curses.KEY_ENTER, curses.KEY_RIGHT, 10, 13)
BACK: Final = (27, curses.KEY_LEFT, curses.KEY_BACKSPACE, 8, 127)


@dataclass(slots=True)
class _Place:
    """A page, its first row on the screen, and the row under the cursor."""

    page: Page
    top: int = 0
    row: int = 0


def show(watch: Watch, look: StoreLook, interval: float) -> StoreLook:
    """Until the user ends it; the last look."""
    os.environ.setdefault("ESCDELAY", ESCAPE_MS)
    viewer = _Viewer(watch, look, interval)
    try:
        curses.wrapper(viewer.run)
    except curses.error as error:
        raise CommandError(f"this terminal cannot be used ({error}): try --once") from None
    return viewer.look


class _Viewer:
    def __init__(self, watch: Watch, look: StoreLook, interval: float) -> None:
        self.look = look
        self._watch = watch
        self._interval = interval
        self._places = [_Place(QueuesPage())]
        self._paused = False
        self._columns = 80
        self._trouble = ""
        self._read()

    def run(self, window: Any) -> None:
        with suppress(curses.error):  # a terminal that cannot hide its cursor
            curses.curs_set(0)
        window.timeout(KEY_MS)
        due = time.monotonic() + pause(self.look, self._interval)
        self._draw(window)
        while True:
            key = window.getch()
            if key in (ord("q"), ord("Q")):
                return
            if key == -1 and (self._paused or time.monotonic() < due):
                continue
            if key == -1:
                self._look_again()
                due = time.monotonic() + pause(self.look, self._interval)
            else:
                self._press(key, window.getmaxyx()[0])
            self._draw(window)

    def _look_again(self) -> None:
        """A store that cannot be read just now may be there again at the next look."""
        try:
            self.look = self._watch.look()
            self._trouble = ""
        except (CommandError, qindex.QindexError, OSError) as error:
            self._trouble = str(error)
            return
        self._read()

    def _read(self) -> None:
        """The cursor stays with what it was on."""
        place = self._places[-1]
        rows = len(place.page.rows(self._columns))
        on = place.page.key(place.row) if place.row < rows else None
        try:
            place.page.read(self._watch, self.look)
        except (CommandError, qindex.QindexError, OSError) as error:
            self._trouble = str(error)
        rows = len(place.page.rows(self._columns))
        if place.page.opens and on is not None:
            place.row = next((r for r in range(rows) if place.page.key(r) == on), place.row)
        place.row = max(0, min(place.row, rows - 1))

    def _press(self, key: int, height: int) -> None:
        place = self._places[-1]
        rows = len(place.page.rows(self._columns))
        page_rows = max(1, height - 5)
        if key in MOVES or key in (curses.KEY_NPAGE, curses.KEY_PPAGE):
            step = MOVES.get(key, page_rows if key == curses.KEY_NPAGE else -page_rows)
            place.row = max(0, min(place.row + step, rows - 1))
        elif key in (curses.KEY_HOME, curses.KEY_END):
            place.row = 0 if key == curses.KEY_HOME else max(0, rows - 1)
        elif key in OPEN:
            page = place.page.open(place.row)
            if page is not None:
                self._places.append(_Place(page))
                self._read()
        elif key in BACK:
            if len(self._places) > 1:
                self._places.pop()
                self._read()
        elif key == ord(" "):
            self._paused = not self._paused
        elif 0 < key < 128:
            place.page.press(chr(key))
            self._read()

    def _draw(self, window: Any) -> None:
        height, columns = window.getmaxyx()
        self._columns = columns - 1
        place = self._places[-1]
        window.erase()
        moment = "paused" if self._paused else utc(int(time.time()))
        title = shorten(f"qindex top  {printable(self.look.path)}", max(8, columns - 10))
        self._put(window, 0, f"{title}  {moment}", columns, curses.A_BOLD)
        head = place.page.head(self._columns)
        for number, line in enumerate(head):
            self._put(window, 1 + number, line, columns, curses.A_DIM if number else 0)
        first = 1 + len(head)
        room = max(0, height - first - 1)
        rows = place.page.rows(self._columns)
        self._scroll(place, room, len(rows))
        for number, line in enumerate(rows[place.top : place.top + room]):
            chosen = place.page.opens and place.top + number == place.row
            self._put(window, first + number, line, columns, curses.A_REVERSE if chosen else 0)
        foot = self._trouble or place.page.help
        style = curses.A_BOLD if self._trouble else curses.A_DIM
        self._put(window, height - 1, foot, columns, style)
        window.refresh()

    def _scroll(self, place: _Place, room: int, rows: int) -> None:
        """A page of lines moves with the cursor; a page of rows only when it must."""
        if place.page.opens:
            place.top = min(place.top, place.row)
            place.top = max(place.top, place.row - room + 1)
        else:
            place.row = min(place.row, max(0, rows - room))
            place.top = place.row

    def _put(self, window: Any, line: int, text: str, columns: int, style: int) -> None:
        with suppress(curses.error):  # no room: the terminal is smaller than it was
            window.addstr(line, 0, shorten(printable(text), columns - 1), style)
