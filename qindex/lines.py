"""Lines in the standard `logging`, by the logger "qindex.store".

logging is loaded when there is something to say, so that importing qindex stays cheap. Without a
handler of the program's own nothing is printed.
"""

from __future__ import annotations

import time
from typing import Final

LOGGER: Final = "qindex.store"
FULL_AGAIN_SECONDS: Final = 60.0

_full_told: float | None = None  # when a full disk was told last


def say(level: str, text: str, *arguments: object) -> None:
    """One line of this level: "INFO", "WARNING" or "ERROR"."""
    import logging

    log = logging.getLogger(LOGGER)
    if not log.handlers:  # else logging would print it on stderr if nobody has set it up
        log.addHandler(logging.NullHandler())
    log.log(getattr(logging, level), text, *arguments)


def disk_full(why: str) -> None:
    """ERROR: a verb was refused because a disk is full. Told once a minute, not for each verb."""
    global _full_told
    now = time.monotonic()
    if _full_told is None or now - _full_told >= FULL_AGAIN_SECONDS:
        _full_told = now
        say("ERROR", "%s", why)
