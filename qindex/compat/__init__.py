"""Stand-ins: queues that people know, made durable.

Queue, LifoQueue, PriorityQueue                  those of the standard library's queue
AsyncQueue, AsyncLifoQueue, AsyncPriorityQueue   those of asyncio
qindex.compat.queuelib                           the disk queues of queuelib
qindex.compat.scrapy                             a crawl of Scrapy that survives kill -9
"""

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
