"""A message as it is handed out, and a finding of recovery or check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from qindex.native import MessageFields, new_message_type

_T = TypeVar("_T")
DeadReason: TypeAlias = Literal["expired", "rejected", "deliveries", "full"]


@dataclass(slots=True, eq=False)
class Details:
    """What most messages of a queue share. Never changed; a frozen class would be slow to make."""

    queue: str
    redelivered: bool = False
    delivery_count: int = 1
    persistent: bool = True
    expires_at: float | None = None
    headers: bytes = b""
    priority: int = 0
    dead: DeadReason | None = None


def _made_in_c(cls: type[_T]) -> type[_T]:
    """Return a type made in C that has what this class says, and takes its place.

    Objects of a class of Python's are tracked by the garbage collector: 50 ns for each message,
    and none holds anything that could lead back to it.
    """
    made = new_message_type()
    for name, value in vars(cls).items():
        if name not in ("__module__", "__slots__"):
            setattr(made, name, value)
    return made  # type: ignore[no-any-return]


@_made_in_c
class Message(MessageFields):
    """One message. `body` is bytes, `req_id` its place in the queue's order, for ever."""

    __slots__ = ()

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self._details.queue

    @property
    def redelivered(self) -> bool:
        """True if somebody may have had it before (also: it lived through a crash)."""
        return self._details.redelivered

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included; 0 if it was only looked at."""
        return self._details.delivery_count

    @property
    def persistent(self) -> bool:
        """False: it does not come back after an unclean end."""
        return self._details.persistent

    @property
    def expires_at(self) -> float | None:
        """Seconds since 1970 at which it stops being delivered, or None."""
        return self._details.expires_at

    @property
    def priority(self) -> int:
        """0 to 255; the highest is delivered first."""
        return self._details.priority

    @property
    def due(self) -> float | None:
        """Seconds since 1970 until which it is, or was, delayed; None: it was not."""
        return self._due_us / 1e6 if self._due_us else None

    @property
    def dead(self) -> DeadReason | None:
        """Why it is a dead letter: it expired, was rejected, or delivered too often; or None."""
        return self._details.dead

    @property
    def headers(self) -> dict[str, Any]:
        """The headers it was published with; decoded anew at each call, O(their size)."""
        if not self._details.headers:
            return {}
        from qindex.formats.field_table import decode_table

        return decode_table(self._details.headers)

    def __repr__(self) -> str:
        body = self.body if len(self.body) <= 40 else self.body[:37] + b"..."
        again = f", delivery_count={self.delivery_count}" if self.redelivered else ""
        return f"<Message {self.req_id} of {self.queue!r}: {len(self.body)} bytes {body!r}{again}>"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that recovery or check found: damage, or a note that explains itself."""

    severity: str  # "damage" or "note"
    where: str  # file, relative to the store's directory
    offset: int
    text: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where or 'store'} at {self.offset}: {self.text}"
