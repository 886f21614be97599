"""The process that the demo kills. It publishes, gets and acks, and reports to its parent.

    python -m qindex.cli.demo.writer STORE QUEUE

A report is a line on stdout, written only after the calls that it speaks of have returned, and
before the next ones begin. So whatever is reported has to survive the kill, and at most one round
of calls is in doubt:

    r                           the store is open
    h  REQ_ID ...               delivered, and never acked
    p  NS  REQ_ID:DIGEST ...    published in so many nanoseconds
    a  NS  REQ_ID ...           got and acked in so many nanoseconds
"""

from __future__ import annotations

import hashlib
import os
import sys
from time import perf_counter_ns

import qindex

HELD = 3
PUBLISHES_PER_ROUND = 256
ACKS_PER_ROUND = 128
DIGEST_CHARACTERS = 32


def body_of(number: int) -> bytes:
    """Message `number`: its number in words, then bytes that only it has; about 100 in all.

    Every 1000th is 20 kB, too big for the index, so that message files get their share.
    """
    size = 20_000 if number % 1000 == 999 else 40 + number * 7919 % 100
    text = b"message %d " % number
    return text + hashlib.shake_128(text).digest(size)


def digest_of(body: bytes) -> str:
    """The same as in demo_node.json."""
    return hashlib.sha256(body).hexdigest()[:DIGEST_CHARACTERS]


def write_until_killed(path: str, name: str) -> None:
    """Rounds of calls, each followed by its report."""
    with qindex.open(path, create=False) as store:
        queue = store.queue(name)
        _report("r")
        number = 0
        while True:
            bodies = [body_of(n) for n in range(number, number + PUBLISHES_PER_ROUND)]
            number += PUBLISHES_PER_ROUND
            started = perf_counter_ns()
            req_ids = [queue.publish(body) for body in bodies]
            taken_ns = perf_counter_ns() - started
            told = (f"{r}:{digest_of(b)}" for r, b in zip(req_ids, bodies, strict=True))
            _report("p", str(taken_ns), *told)
            if number == PUBLISHES_PER_ROUND:
                _report("h", *(str(message.req_id) for message in queue.get_many(HELD)))
            req_ids = []
            started = perf_counter_ns()
            while len(req_ids) < ACKS_PER_ROUND and (message := queue.get()) is not None:
                queue.ack(message)
                req_ids.append(message.req_id)
            taken_ns = perf_counter_ns() - started
            _report("a", str(taken_ns), *map(str, req_ids))


def _report(*words: str) -> None:
    line = memoryview(f"{' '.join(words)}\n".encode())
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    try:
        write_until_killed(sys.argv[1], sys.argv[2])
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit("the demo is gone")
