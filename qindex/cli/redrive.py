"""qindex redrive: make dead letters ready again.

Each keeps its delivery count, and is delivered at least once more. The store
must not be open in another process: a program that has it open calls
queue.redrive() itself.

exit codes: 0 done, or there was nothing to do, or --dry-run; 1 as 0, and the
store has damage: of all queues, those that cannot be read are left as they are;
2 refused: the text says why. Nothing was changed then.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import qindex
from qindex.cli.arguments import add_directory
from qindex.cli.change import Left, add_change, carry_out, queues_of
from qindex.look.messages import positive
from qindex.look.screen import Screen
from qindex.look.text import count, queue_text


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the store")
    parser.add_argument("queues", metavar="QUEUE", nargs="*", help="default: every queue")
    parser.add_argument(
        "-n", type=positive, metavar="N", help="only the first N of each queue, by ReqId"
    )
    add_change(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    left: Left = {}

    def plan(store: qindex.Store) -> list[str]:
        return [
            f"make {count(min(queue.dead, options.n or queue.dead), 'dead letter')} of"
            f" {queue_text(queue.name)} ready again"
            for queue in queues_of(store, options.queues, left)
            if queue.dead
        ]

    def act(store: qindex.Store) -> Iterator[str]:
        for queue in queues_of(store, options.queues, left):
            if queue.dead:
                done = queue.redrive(options.n)
                yield f"{queue_text(queue.name)}: {count(done, 'message')} ready again"

    return carry_out(options, screen, plan, act, left)
