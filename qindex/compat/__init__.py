"""Stand-ins: queues that people know, made durable.

Queue, LifoQueue           queue.Queue and queue.LifoQueue of the standard library
AsyncQueue, AsyncLifoQueue asyncio.Queue and asyncio.LifoQueue
qindex.compat.queuelib     the disk queues of queuelib
qindex.compat.scrapy       a crawl of Scrapy that survives kill -9
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
