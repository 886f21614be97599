"""qindex delete: delete queues with all their messages, durably.

The store must not be open in another process: a program that has it open
calls store.delete_queue() itself. A name that is not there is an error, and
nothing is deleted then.

exit codes: 0 done, or --dry-run; 1 done, and the store has damage; 2 refused:
the text says why. Nothing was changed then.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import qindex
from qindex.cli.arguments import add_directory
from qindex.cli.change import add_change, carry_out, queues_of
from qindex.look.screen import CommandError, Screen
from qindex.look.text import count, queue_text


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the store")
    parser.add_argument("queues", metavar="QUEUE", nargs="+", help="what is deleted")
    parser.add_argument(
        "--if-empty",
        action="store_true",
        help="delete nothing if one of them has a message, in whatever state",
    )
    add_change(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    def chosen(store: qindex.Store) -> list[qindex.Queue]:
        queues = queues_of(store, options.queues)
        for queue in queues:
            if options.if_empty and len(queue):
                messages = count(len(queue), "message")
                raise CommandError(
                    f"nothing was deleted: queue {queue_text(queue.name)} has {messages}"
                )
        return queues

    def plan(store: qindex.Store) -> list[str]:
        return [
            f"delete queue {queue_text(queue.name)} with {count(len(queue), 'message')}"
            for queue in chosen(store)
        ]

    def act(store: qindex.Store) -> Iterator[str]:
        for queue in chosen(store):
            messages = count(len(queue), "message")
            store.delete_queue(queue.name)
            yield f"{queue_text(queue.name)}: deleted, with {messages}"

    return carry_out(options, screen, plan, act)
