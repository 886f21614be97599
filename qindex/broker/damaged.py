"""Queues whose files are damaged: known, and not served.

Nothing in such a queue's folder is changed, so that a salvage finds all that can be read. The other
queues of its virtual host are served. Who wants to use it is told what is damaged, with RabbitMQ's
code for a queue that has crashed, 404.
"""

from __future__ import annotations

from typing import Final, NoReturn

from qindex.broker.backlog import MemoryBacklog
from qindex.broker.errors import NotFound
from qindex.broker.message import Message
from qindex.errors import DiskError, NewerFormat, StoreCorrupt

DAMAGE: Final = (StoreCorrupt, NewerFormat, DiskError)
"""What the store raises of a queue that it cannot read."""


class DamagedBacklog(MemoryBacklog):
    """In place of messages that cannot be read: it has none, takes none and gives none away."""

    is_durable = True

    def __init__(self, damage: str) -> None:
        super().__init__()
        self.damage = damage

    def _refuse(self) -> NoReturn:
        raise NotFound(self.damage)

    def publish(self, message: Message, due_us: int = 0) -> NoReturn:
        self._refuse()

    def take(self, count: int) -> NoReturn:
        self._refuse()

    def purge(self) -> NoReturn:
        self._refuse()

    def delete(self) -> NoReturn:
        self._refuse()

    def close(self) -> None:
        """There is nothing to close."""
