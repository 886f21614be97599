"""SIGTERM and SIGINT: the first one asks the server to stop, a second one ends the process at once.

A signal without a handler ends a Python process as the signal says. So there is one before the
event loop has begun, and while it is busy: opening a store with a backlog can take seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from types import FrameType
from typing import Final

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)
_ENDED_BY_SIGNAL: Final = 130


class Stopping:
    """Made in the main thread, as soon as the process knows that it is to be a server.

    Its handlers are Python's own, not the event loop's: a loop that has a handler for another
    signal already would be told once more, later, of the one that came before it had ours.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_asked = False
        for number in _NUMBERS:
            signal.signal(number, self._heard)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on a signal wakes the event loop."""
        self._loop = loop
        if self._is_asked:
            self.asked.set()

    @staticmethod
    def ignore(loop: asyncio.AbstractEventLoop, *numbers: signal.Signals) -> None:
        """Do so from now on, also in the program that this process becomes."""
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked:
            os._exit(_ENDED_BY_SIGNAL)  # kill -9 is a supported way to stop
        self._is_asked = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and so does the process
                self._loop.call_soon_threadsafe(self.asked.set)
