"""An embedded, crash-safe storage engine for message queues.

store = qindex.open("data")
orders = store.queue("orders")
orders.publish(b"one dozen")
message = orders.get()
orders.ack(message)
"""

from typing import TYPE_CHECKING

from qindex.errors import (
    AlreadyAcked,
    DiskError,
    DiskFull,
    FormatError,
    LeaseExpired,
    MessageDelivered,
    MessageError,
    OutcomeUnknown,
    QindexError,
    QueueFull,
    QueueMissing,
    ReadOnly,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreForked,
    StoreFull,
    StoreLocked,
    StoreMissing,
    UnknownMessage,
)
from qindex.figures import QueueStats
from qindex.index import IndexEntry, QueueIndex
from qindex.message import Finding, Message
from qindex.opening import open
from qindex.queue import Queue
from qindex.store import Store, StoreStats

if TYPE_CHECKING:
    from qindex.diskqueue import DiskQueue

__version__ = "0.1.0"

__all__ = [
    "AlreadyAcked",
    "DiskError",
    "DiskFull",
    "DiskQueue",
    "Finding",
    "FormatError",
    "IndexEntry",
    "LeaseExpired",
    "Message",
    "MessageDelivered",
    "MessageError",
    "OutcomeUnknown",
    "QindexError",
    "Queue",
    "QueueFull",
    "QueueIndex",
    "QueueMissing",
    "QueueStats",
    "ReadOnly",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreForked",
    "StoreFull",
    "StoreLocked",
    "StoreMissing",
    "StoreStats",
    "UnknownMessage",
    "open",
]


def __getattr__(name: str) -> object:
    """DiskQueue is loaded when it is asked for: importing qindex stays cheap."""
    if name == "DiskQueue":
        from qindex.diskqueue import DiskQueue

        return DiskQueue
    raise AttributeError(f"module 'qindex' has no attribute {name!r}")
