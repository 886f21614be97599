"""The timeout of a get, as the core takes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from qindex._core import lib
from qindex.arguments import Seconds, seconds, shown

_FOR_EVER: Final = 2**64 - 1
# Python runs signal handlers in the main thread only, and never while that is inside the core. So
# the main thread leaves the core this often while it waits.
_PAUSE_US: Final = 50_000


def check_timeout(timeout: Seconds | None) -> float | None:
    """The timeout, if it is 0 or more seconds, or None for ever; else raise ValueError."""
    if timeout is None:
        return None
    timeout = seconds("timeout", timeout)
    if not timeout >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, or None, not {shown(timeout)}")
    return timeout


class Wait:
    """A timeout that begins now. All calls into the core that use it end at the same moment."""

    __slots__ = ("_until_us",)

    def __init__(self, store: Any, timeout: Seconds | None) -> None:
        left = check_timeout(timeout)
        if left is None or left > 1e9:
            self._until_us = _FOR_EVER
        else:
            self._until_us = lib.qi_store_clock_us(store) + int(left * 1e6)

    def __call__(self, take: Callable[..., int], *arguments: Any) -> int:
        """Call a verb of the core that waits; return its result."""
        is_main = threading.current_thread() is threading.main_thread()
        pause_us = _PAUSE_US if is_main else _FOR_EVER
        while (result := take(*arguments, self._until_us, pause_us)) == lib.QI_PAUSE:
            pass
        return result
