"""Whether two directories of one format number their messages alike: looked up in a few of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import dropwhile, islice
from typing import Final, TypeAlias

from qindex.look.messages import Choice, Found
from qindex.look.sources import Source
from qindex.look.stores import QueueGone

QUEUES_MAX: Final = 16  # that both have, looked into
MESSAGES_MAX: Final = 32  # of each of them

_Key: TypeAlias = tuple[int, int]


def numbers_agree(a: Source, b: Source) -> bool:
    """Most messages of the sample that have one number in A and B have one body, too.

    False, too, if no number is in both. Cost: reads the sample.
    """
    agree = disagree = queues = 0
    for name in sorted({*a.names()}.intersection(b.names())):
        bodies = _bodies(a, b, name)
        numbers = bodies[0].keys() & bodies[1].keys()
        same = sum(bodies[0][number] == bodies[1][number] for number in numbers)
        agree, disagree = agree + same, disagree + len(numbers) - same
        queues += bool(numbers)
        if queues == QUEUES_MAX:
            break
    return agree > disagree


def _bodies(a: Source, b: Source, name: str) -> list[dict[_Key, bytes]]:
    """By number, from the first one on that both may have."""
    firsts = [next(_messages(side, name), None) for side in (a, b)]
    if None in firsts:
        return [{}, {}]
    start = max(_key(first) for first in firsts if first is not None)
    sample = []
    for side in (a, b):
        found = dropwhile(lambda message: _key(message) < start, _messages(side, name))
        sample.append({_key(message): message.body for message in islice(found, MESSAGES_MAX)})
    return sample


def _messages(side: Source, name: str) -> Iterator[Found]:
    with suppress(QueueGone):
        yield from side.messages(name, Choice())


def _key(message: Found) -> _Key:
    return message.part, message.req_id if message.entry is None else message.entry
