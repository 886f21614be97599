"""Where the bytes of a directory are, and what keeps them: what `qindex du` and the page show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

REQ_IDS_MAX: Final = 4
MOSTLY_PERCENT: Final = 50
_FRAME_BYTES_MIN: Final = 25


@dataclass(slots=True)
class Holder:
    """What one queue keeps in a file; the first ReqIds of it."""

    messages: int = 0
    bytes: int = 0
    req_ids: list[int] = field(default_factory=list)

    def add(self, req_id: int, byte_count: int) -> None:
        self.messages += 1
        self.bytes += byte_count
        if len(self.req_ids) < REQ_IDS_MAX:
            self.req_ids.append(req_id)


@dataclass(slots=True)
class FileUse:
    """size = live + garbage + room.

    `kind`: messages, segment, history, commits (logs and the catalog, of format 2), shared log (of
    RabbitMQ's quorum queues), journal (the rest)
    """

    where: str
    kind: str
    size: int
    room: int = 0
    live: int = 0
    is_newest: bool = False  # of the message files: it stays, also if nothing in it is alive
    queues: dict[str, Holder] = field(default_factory=dict)

    @property
    def garbage(self) -> int:
        return max(0, self.size - self.room - self.live)

    @property
    def messages(self) -> int:
        return sum(holder.messages for holder in self.queues.values())

    @property
    def is_mostly_garbage(self) -> bool:
        return self.garbage * 100 >= MOSTLY_PERCENT * max(1, self.size - self.room)


def rest_of(*, unread: bool) -> str:
    """What to call the bytes of a file that no message was seen to keep."""
    return "garbage or not read" if unread else "garbage"


class Seen:
    """Which places of a file were counted: a bit per 25 bytes, since no frame is shorter."""

    def __init__(self) -> None:
        self._bits: dict[str | int, bytearray] = {}

    def add(self, file: str | int, offset: int) -> bool:
        """True for the first one at this place."""
        bits = self._bits.setdefault(file, bytearray())
        byte, bit = divmod(offset // _FRAME_BYTES_MIN, 8)
        if byte >= len(bits):
            bits.extend(bytes(byte + 1 - len(bits) + len(bits) // 4))
        if bits[byte] >> bit & 1:
            return False
        bits[byte] |= 1 << bit
        return True


@dataclass(slots=True)
class QueueUse:
    name: str
    messages: int = 0
    index: int = 0
    index_live: int = 0
    bodies: int = 0  # in message files, by shares
    missing: int = 0  # messages whose body is in no file


@dataclass(slots=True)
class Usage:
    """All files that the format knows, by name; all queues. `advice`: when the format frees.

    `unread`: some queue or message was not read, so what looks like garbage may be alive.
    """

    queues: list[QueueUse] = field(default_factory=list)
    files: dict[str, FileUse] = field(default_factory=dict)
    advice: str = ""
    unread: bool = False

    def garbage_of(self, file: FileUse) -> int | None:
        """None: nobody knows, since not all was read."""
        return None if self.unread else file.garbage
