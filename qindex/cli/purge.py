"""qindex purge: drop the messages of queues that are ready, or in other states.

The store must not be open in another process: a program that has it open
calls queue.purge() itself. What was with a consumer when the store was closed
is ready.

exit codes: 0 done, or there was nothing to do, or --dry-run; 1 done, and the
store has damage; 2 refused: the text says why. Nothing was changed then.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias, get_args

import qindex
from qindex.cli.arguments import add_directory
from qindex.cli.change import add_change, carry_out, queues_of
from qindex.look.screen import Screen
from qindex.look.text import count, queue_text

Dropped: TypeAlias = Literal["ready", "delayed", "dead"]
STATES: Final[tuple[Dropped, ...]] = get_args(Dropped)


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the store")
    parser.add_argument("queues", metavar="QUEUE", nargs="+", help="whose messages are dropped")
    parser.add_argument(
        "--state",
        type=_states,
        default=("ready",),
        metavar="STATES",
        help=f"of {', '.join(STATES)}: one or more, with commas (default: ready)",
    )
    add_change(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    chosen: tuple[Dropped, ...] = options.state

    def plan(store: qindex.Store) -> list[str]:
        return [
            f"drop {count(number, f'{state} message')} of {queue_text(queue.name)}"
            for queue in queues_of(store, options.queues)
            for state in chosen
            if (number := _count(queue, state))
        ]

    def act(store: qindex.Store) -> Iterator[str]:
        for queue in queues_of(store, options.queues):
            if any(_count(queue, state) for state in chosen):
                yield f"{queue_text(queue.name)}: {count(_drop(queue, chosen), 'message')} dropped"

    return carry_out(options, screen, plan, act)


def _count(queue: qindex.Queue, state: Dropped) -> int:
    return {"ready": queue.ready, "delayed": queue.delayed, "dead": queue.dead}[state]


def _drop(queue: qindex.Queue, chosen: tuple[Dropped, ...]) -> int:
    """At once, if that is everything. (No other process can publish meanwhile.)"""
    if not any(_count(queue, state) for state in STATES if state not in chosen):
        return queue.purge(state="all")
    return sum(queue.purge(state=state) for state in chosen)


def _states(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in STATES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(STATES)}")
    return names
