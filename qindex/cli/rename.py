"""qindex rename: give a queue another name, durably.

All that it has stays as it is: messages, ReqIds, settings, data, counters.
Queues whose dead letters move to it do so under its new name. After any crash
it has one of the two names. The store must have format 2 (qindex upgrade), and
must not be open in another process: a program that has it open calls
store.rename_queue() itself.

exit codes: 0 done, or --dry-run; 1 done, and the store has damage; 2 refused:
the text says why. Nothing was changed then.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import qindex
from qindex.cli.arguments import add_directory
from qindex.cli.change import add_change, carry_out, queues_of
from qindex.look.screen import CommandError, Screen
from qindex.look.text import count, printable, queue_text
from qindex.names import unwritten
from qindex.renaming import check_new_name, check_not_its_own


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the store")
    parser.add_argument("queue", metavar="QUEUE", help="what is renamed")
    parser.add_argument("--to", metavar="NAME", required=True, help="its new name")
    add_change(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    new = unwritten(options.to)
    with _refused():
        check_new_name(new)
    _refuse_served(options.dir)

    def chosen(store: qindex.Store) -> qindex.Queue:
        (queue,) = queues_of(store, [options.queue])
        if new in store:
            raise CommandError(f"there is a queue {queue_text(new)} already: nothing was changed")
        with _refused():
            check_not_its_own(queue, new)
        return queue

    def plan(store: qindex.Store) -> list[str]:
        queue = chosen(store)
        if store.stats().format < 2:
            raise CommandError(
                "the store has format 1, where queues keep their names: nothing was changed. "
                "'qindex upgrade' makes it one of format 2"
            )
        messages = count(len(queue), "message")
        return [f"rename queue {queue_text(queue.name)}, with {messages}, to {queue_text(new)}"]

    def act(store: qindex.Store) -> Iterator[str]:
        queue = chosen(store)
        name = queue.name
        store.rename_queue(name, new)
        yield f"{queue_text(name)} is now {queue_text(new)}"

    return carry_out(options, screen, plan, act)


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise CommandError(printable(str(error))) from None


def _refuse_served(path: str) -> None:
    """CommandError if it is a virtual host of qindex serve: definitions name its queues."""
    place = Path(path).resolve()
    if place.parent.name == "vhosts" and (place.parents[1] / "node" / "store.meta").exists():
        raise CommandError(
            f"{path!r} is a virtual host of qindex serve, whose definitions and bindings name its "
            "queues: nothing was changed. Declare a queue of the new name, and move the messages: "
            "qindex move"
        )
