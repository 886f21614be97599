"""What a command reports of a source: damage that it left out, and messages that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qindex.look.screen import Screen
from qindex.look.stores import places
from qindex.look.text import printable

if TYPE_CHECKING:
    from qindex.look.sources import Source

LINES_MAX: Final = 20


class Telling:
    """Counts damage and tells the first of it."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.damaged = 0
        self.missing: list[str] = []
        self.at_time: float | None = None

    def suspected(self) -> int:
        """How many of the damaged places are only suspected."""
        return 0

    def unlisted(self) -> list[str]:
        """What no queue tells of: see Source."""
        return []

    def tell(self, text: str) -> None:
        self.damaged += 1
        if self.damaged <= LINES_MAX:
            self._screen.error(text)
        elif self.damaged == LINES_MAX + 1:
            self._screen.error("more damage: the rest is counted, not told")


def why_missing(source: Source, name: str, req_id: int) -> str:
    """Of a single message that was asked for and is not there, in words."""
    where = f"no message {req_id} in {printable(name)!r}"
    next_req_id = source.next_req_id(name)
    if next_req_id is None or req_id < next_req_id:
        return f"{where}: it was acked, expired, or is not in the wanted state"
    return f"{where}: it is not published yet"


def tell_unlisted(screen: Screen, texts: list[str]) -> int:
    """What no queue of the source tells of (Source.unlisted()); the exit code that follows."""
    for text in texts[:LINES_MAX]:
        screen.error(text)
    return 1 if texts else 0


def tell_damage(screen: Screen, source: Source) -> int:
    """One line about what is damaged, and about each message that was asked for and is not there.

    Returns the exit code that follows from it.
    """
    for text in source.missing:
        screen.error(text)
    damage = source.damage()
    if not damage:
        return 1 if source.missing else 0
    tell_unlisted(screen, source.unlisted())
    command = "check" if source.format == "qindex" else "recover"
    screen.error(
        f"{places(damage, min(damage, source.suspected()))} in {source.path!r}, left out here:"
        f" 'qindex {command}' lists all damage"
    )
    return 1
