"""How much one client may have at a time, at any door: what waits for it, and what is read of it.

A client that does not read costs memory. So beyond WRITE_HIGH bytes that wait for it nothing more
is delivered to it. It is still read: one that publishes before it reads on would otherwise wait for
the server, and the server for it. Only when answers (confirms, returns) have added ANSWERS_HIGH
since then, it is not read either, so that it cannot ask for more. What others send to it (direct
replies, gmq's channels) is still taken, up to WRITE_MAX: then the connection is closed.

A client that sends without a pause costs others their turns: uvloop would read it 32 times before
it looks at anybody else. So after a read that was full it rests for one turn of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

WRITE_HIGH: Final = 1024 * 1024
ANSWERS_HIGH: Final = 4 * 1024 * 1024
WRITE_MAX: Final = 64 * 1024 * 1024
NOT_READ: Final = f"the client does not read: more than {WRITE_MAX >> 20} MiB wait for it"
READ_FULL: Final = 128 * 1024  # bytes of one read, behind which more waits
_LOOK_SECONDS: Final = 0.02
OnOut = Callable[[bool], None]
"""Hears whether the kernel has got some bytes: True, or False, they will not leave any more."""


class Outlet:
    """One for a connection. `on_full` is called once, in a turn of its own."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        on_full: Callable[[], None],
    ) -> None:
        transport.set_write_buffer_limits(high=WRITE_HIGH)
        self.is_slow = False
        self._transport = transport
        self._loop = loop
        self._on_full = on_full
        self._is_full = False
        self._is_wanted = True
        self._rests = False
        self._written = 0
        self._added = self._of_others = 0  # bytes, since it is slow
        self._marks: deque[tuple[int, Sequence[OnOut]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def write(self, data: bytes, on_out: Sequence[OnOut] = (), of_others: int = 0) -> None:
        """Write this. Others have caused `of_others` of its bytes: if too many of those wait
        already, the client loses it. Its own answers, deliveries and heartbeats have other bounds.
        """
        if of_others and not self._is_full and self._wait_of(self._of_others) > WRITE_MAX:
            self._is_full = True
            self._loop.call_soon(self._on_full)
            _tell(on_out, False)
            return
        was_slow = self.is_slow
        self._transport.write(data)
        self._written += len(data)
        if was_slow and self.is_slow:
            self._added += len(data)
            self._of_others += of_others
            self._read_or_not()
        if on_out:
            self._marks.append((self._written, on_out))
            self.look()

    def _wait_of(self, added: int) -> int:
        """How many of the bytes that were added since it is slow still wait, at most."""
        return min(added, self._transport.get_write_buffer_size())

    def read(self, wanted: bool) -> None:
        """Read from the client, if that is wanted, and as soon as it reads its answers, too."""
        self._is_wanted = wanted
        self._read_or_not()

    def pause(self) -> None:
        """It does not read."""
        self.is_slow = True
        self._added = self._of_others = 0
        self._read_or_not()

    def resume(self) -> None:
        """It has read most of what waited for it."""
        self.is_slow = False
        self._read_or_not()

    def received(self, size: int) -> None:
        """A read has brought so many bytes, and they were carried out."""
        if size >= READ_FULL and not self._rests:
            self._rests = True
            self._loop.call_soon(self._has_rested)
        if self._rests or self.is_slow:
            self._read_or_not()

    def _has_rested(self) -> None:
        self._rests = False
        self._read_or_not()

    def read_once(self) -> None:
        """Read one piece of what a client has sent that does not read: a sign of life."""
        if self._is_wanted and not self._transport.is_closing():
            self._transport.resume_reading()

    def read_to_the_end(self) -> None:
        """What the client sends is not looked at any more: it is read however much waits for it."""
        self._added = 0
        self.is_slow = False
        self.read(True)

    def _read_or_not(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed
            is_over = self.is_slow and self._wait_of(self._added) > ANSWERS_HIGH
            if self._is_wanted and not is_over and not self._rests:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def look(self) -> None:
        """Tell those whose bytes the kernel has. A transport that closes says it in lost()."""
        if not self._marks or self._transport.is_closing():
            return
        out = self._written - self._transport.get_write_buffer_size()
        while self._marks and self._marks[0][0] <= out:
            _tell(self._marks.popleft()[1], True)
        if self._marks and self._timer is None:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.look()

    def lost(self, *, all_left: bool) -> None:
        """The connection is gone; what waited has left, or never will."""
        if self._timer is not None:
            self._timer.cancel()
        while self._marks:
            _tell(self._marks.popleft()[1], all_left)


def _tell(on_out: Sequence[OnOut], has_left: bool) -> None:
    for each in on_out:
        each(has_left)
