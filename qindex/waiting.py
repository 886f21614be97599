"""How long a get waits: the caller's timeout as the core takes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from qindex._core import lib

_FOR_EVER: Final = 2**64 - 1
_PAUSE_US: Final = 50_000  # a signal handler of Python runs in the main thread, outside of the core


def check_timeout(timeout: float | None) -> float | None:
    """Seconds, 0 or more; None: for ever."""
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, or None, not {timeout!r}")
    return timeout


class Wait:
    """A timeout that begins now. Its calls into the core share one absolute end."""

    __slots__ = ("_until_us",)

    def __init__(self, store: Any, timeout: float | None) -> None:
        seconds = check_timeout(timeout)
        if seconds is None or seconds > 1e9:
            self._until_us = _FOR_EVER
        else:
            self._until_us = lib.qi_store_clock_us(store) + int(seconds * 1e6)

    def __call__(self, take: Callable[..., int], *arguments: Any) -> int:
        """The answer of a verb of the core that waits."""
        is_main = threading.current_thread() is threading.main_thread()
        pause_us = _PAUSE_US if is_main else _FOR_EVER
        while (result := take(*arguments, self._until_us, pause_us)) == lib.QI_PAUSE:
            pass
        return result
