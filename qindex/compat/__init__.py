"""Stand-ins: queues that people know, made durable.

Queue, LifoQueue           queue.Queue and queue.LifoQueue of the standard library
AsyncQueue, AsyncLifoQueue asyncio.Queue and asyncio.LifoQueue
qindex.compat.queuelib     the disk queues of queuelib, which Scrapy uses
"""

from qindex.compat.items import PLAIN, Plain, Serializer
from qindex.compat.standard import AsyncLifoQueue, AsyncQueue, LifoQueue, Queue

__all__ = [
    "PLAIN",
    "AsyncLifoQueue",
    "AsyncQueue",
    "LifoQueue",
    "Plain",
    "Queue",
    "Serializer",
]
