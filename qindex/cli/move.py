"""qindex move: move the messages of a queue to another one of the same store.

Body, headers, priority, expiry and delivery count go along. In the new queue
each message stands behind the others of its priority. After any crash each is
in exactly one of the two queues; the same command moves the rest then. The
store must have format 2 (qindex upgrade), and must not be open in another
process: a program that has it open calls store.move() itself. What was with a
consumer when the store was closed is ready.

A message that is damaged stays in QUEUE; the others are moved.

exit codes: 0 done, or there was nothing to do, or --dry-run; 1 done, and the
store has damage, or messages that are damaged stay; 2 refused: the text says
why. Messages that were moved before that stay in the new queue, and the text
says how many.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import Final, Literal, TypeAlias, get_args

import qindex
from qindex.cli.arguments import add_directory
from qindex.cli.change import Left, add_change, carry_out, queues_of
from qindex.look.messages import positive
from qindex.look.screen import CommandError, Screen
from qindex.look.text import count, queue_text

Moved: TypeAlias = Literal["ready", "dead"]
STATES: Final[tuple[Moved, ...]] = get_args(Moved)
BATCH_MESSAGES_MAX: Final = 500
BATCH_BYTES_MAX: Final = 1024 * 1024  # a transaction has at most 4 MiB of records


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the store")
    parser.add_argument("queue", metavar="QUEUE", help="whose messages are moved")
    parser.add_argument(
        "--to", metavar="TARGET", required=True, help="the queue that gets them; it must be there"
    )
    parser.add_argument(
        "--state",
        choices=STATES,
        default="ready",
        help="move the messages in this state (default: ready)",
    )
    parser.add_argument("-n", type=positive, metavar="N", help="only the first N, by ReqId")
    add_change(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    state: Moved = options.state
    left: Left = {}

    def plan(store: qindex.Store) -> list[str]:
        source, target = _queues(store, options)
        number = {"ready": source.ready, "dead": source.dead}[state]
        if not number:
            return []
        number = min(number, options.n or number)
        _check_room(target, number)
        return [f"move {count(number, f'{state} message')} of {_way(source, target)}"]

    def act(store: qindex.Store) -> Iterator[str]:
        source, target = _queues(store, options)
        chosen = islice(_readable(source, state, left), options.n)
        done = 0
        for batch in _batches(chosen):
            try:
                store.move(batch, to=target.name, queue=source.name)
            except qindex.QindexError as error:
                raise CommandError(f"{count(done, 'message')} moved, then: {error}") from error
            done += len(batch)
        store.sync()
        yield f"{_way(source, target)}: {count(done, 'message')} moved"

    return carry_out(options, screen, plan, act, left)


def _queues(store: qindex.Store, options: argparse.Namespace) -> list[qindex.Queue]:
    """From which queue to which one."""
    queues = queues_of(store, [options.queue, options.to])
    if len(queues) == 1:
        raise CommandError("QUEUE and TARGET are the same queue: nothing was changed")
    return queues


def _check_room(target: qindex.Queue, number: int) -> None:
    """CommandError if the target may not hold so many more. A tool's store holds no limits."""
    limits = target.settings
    if limits.max_bytes is not None:
        raise CommandError(
            f"{queue_text(target.name)} has a limit of bytes (max_bytes), which this command cannot"
            " hold: nothing was changed. Move the messages with store.move() in a program"
        )
    if limits.max_messages is not None and len(target) + number > limits.max_messages:
        raise CommandError(
            f"{queue_text(target.name)} has {count(len(target), 'message')} and may have"
            f" {limits.max_messages:,}: nothing was changed. -n moves fewer"
        )


def _way(source: qindex.Queue, target: qindex.Queue) -> str:
    return f"{queue_text(source.name)} to {queue_text(target.name)}"


def _readable(queue: qindex.Queue, state: Moved, left: Left) -> Iterator[qindex.Message]:
    """Goes on behind a damaged message, which stays where it is, whatever its state was."""
    start = 0
    while True:
        try:
            yield from queue.browse(start, state=state)
            return
        except qindex.StoreCorrupt as error:
            if error.req_id is None:
                raise
            left[error.req_id] = f"{queue_text(queue.name)}: {error}; it stays there"
            start = error.req_id + 1


def _batches(messages: Iterator[qindex.Message]) -> Iterator[list[int]]:
    """ReqIds that fit into one transaction, whether their bodies are embedded or not."""
    batch: list[int] = []
    size = 0
    for message in messages:
        if batch and (
            len(batch) == BATCH_MESSAGES_MAX or size + len(message.body) > BATCH_BYTES_MAX
        ):
            yield batch
            batch, size = [], 0
        batch.append(message.req_id)
        size += len(message.body)
    if batch:
        yield batch
