"""Stand-ins: queues that people know, made durable.

Queue, LifoQueue, PriorityQueue                  those of the standard library's queue
AsyncQueue, AsyncLifoQueue, AsyncPriorityQueue   those of asyncio
qindex.compat.queuelib                           the disk queues of queuelib
qindex.compat.scrapy                             a crawl of Scrapy that survives kill -9
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qindex.compat.items import PLAIN, Plain, Serializer
    from qindex.compat.standard import (
        AsyncLifoQueue,
        AsyncPriorityQueue,
        AsyncQueue,
        LifoQueue,
        PriorityQueue,
        Queue,
    )

__all__ = [
    "PLAIN",
    "AsyncLifoQueue",
    "AsyncPriorityQueue",
    "AsyncQueue",
    "LifoQueue",
    "Plain",
    "PriorityQueue",
    "Queue",
    "Serializer",
]


def __getattr__(name: str) -> Any:
    """Names come when they are asked for: qindex.DiskQueue, in this package, needs no asyncio."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from qindex.compat import items, standard

    return getattr(items if name in ("PLAIN", "Plain", "Serializer") else standard, name)
