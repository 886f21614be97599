"""Bodies in RabbitMQ's files that no index names, as queues of their own: NAME.orphans.

A body stays in N.rdq or N.qs for some time after its message was acked. So most orphans are of
messages that are done; but where an index is damaged, its messages are among them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from qindex.brokers.rabbitmq.log import Window
from qindex.brokers.tree import Source

_STORED_HEAD_BYTES: Final = 8
# An entry of N.qs with its first bytes: size below 128 MiB, flags, checksum, 0, a term of a tuple.
_STORED: Final = re.compile(rb"[\0-\x07].{3}[\0\1].{2}\0\x83[hi]", re.DOTALL)
_STORED_BYTES: Final = 10


def stored_bodies(source: Source, named: dict[int, int], start: int) -> Iterator[tuple[int, int]]:
    """(offset, size) of the terms in N.qs, from `start` on, that are not in `named` (the same).

    A file of 3.12 and later has holes where messages were acked early. Cost: a read per block.
    """
    window = Window(source)
    offsets = sorted(named)
    pos = start
    while pos + _STORED_BYTES <= source.size:
        term = pos + _STORED_HEAD_BYTES
        if term in named:
            pos = term + named[term]
            continue
        head = window.read(pos, _STORED_BYTES)
        size = int.from_bytes(head[:4], "big")
        if _STORED.fullmatch(head) and 2 <= size <= source.size - term:
            yield term, size
            pos = term + size
            continue
        after = bisect_right(offsets, term)
        limit = offsets[after] - _STORED_HEAD_BYTES if after < len(offsets) else source.size
        pos = _next_head(source, pos + 1, limit)


def _next_head(source: Source, pos: int, limit: int) -> int:
    """The next place up to `limit` that looks like an entry; `limit` if there is none."""
    for start, block in source.blocks(pos, overlap=_STORED_BYTES - 1):
        if start >= limit:
            break
        found = _STORED.search(block)
        if found:
            return min(limit, start + found.start())
    return limit
