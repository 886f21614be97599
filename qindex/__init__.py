"""A message queue inside your process: an embedded, crash-safe store with acks.

::

    store = qindex.open("data")
    orders = store.queue("orders")
    orders.publish(b"one dozen")
    message = orders.get()
    orders.ack(message)
"""

from typing import TYPE_CHECKING

from qindex.consumer import Consumer
from qindex.counters import Counters, Counts, Syncs
from qindex.data import Data
from qindex.errors import (
    AlreadyAcked,
    DeadLetter,
    DeliveryEnded,
    DiskError,
    DiskFull,
    FormatError,
    LeaseExpired,
    MessageDelivered,
    MessageError,
    NewerFormat,
    NotAStore,
    OutcomeUnknown,
    QindexError,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueMissing,
    QueueNotEmpty,
    ReadOnly,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreForked,
    StoreFull,
    StoreLocked,
    StoreMissing,
    StoreNested,
    UnknownMessage,
)
from qindex.events import Event, Events
from qindex.figures import QueueStats, StoreStats
from qindex.index import IndexEntry, QueueIndex
from qindex.message import Death, Finding, Message
from qindex.mixed import Outgoing
from qindex.opening import open
from qindex.queue import Queue
from qindex.rules import Settings
from qindex.store import Store
from qindex.transaction import Transaction

if TYPE_CHECKING:
    from qindex.compat.diskqueue import DiskQueue

__version__ = "0.1.0"

__all__ = [
    "AlreadyAcked",
    "Consumer",
    "Counters",
    "Counts",
    "Data",
    "DeadLetter",
    "Death",
    "DeliveryEnded",
    "DiskError",
    "DiskFull",
    "DiskQueue",
    "Event",
    "Events",
    "Finding",
    "FormatError",
    "IndexEntry",
    "LeaseExpired",
    "Message",
    "MessageDelivered",
    "MessageError",
    "NewerFormat",
    "NotAStore",
    "OutcomeUnknown",
    "Outgoing",
    "QindexError",
    "Queue",
    "QueueExists",
    "QueueFull",
    "QueueInUse",
    "QueueIndex",
    "QueueMissing",
    "QueueNotEmpty",
    "QueueStats",
    "ReadOnly",
    "Settings",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreForked",
    "StoreFull",
    "StoreLocked",
    "StoreMissing",
    "StoreNested",
    "StoreStats",
    "Syncs",
    "Transaction",
    "UnknownMessage",
    "open",
]


def __getattr__(name: str) -> object:
    """Load DiskQueue only when it is asked for, so that importing qindex stays cheap."""
    if name == "DiskQueue":
        from qindex.compat.diskqueue import DiskQueue

        return DiskQueue
    raise AttributeError(f"module 'qindex' has no attribute {name!r}")
