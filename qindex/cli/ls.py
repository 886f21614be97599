"""qindex ls: the names of the queues.

List the queues of a store with the number of messages in each (waiting and
unacked). Reads only, also beside a process that writes. Of a dead broker's
directory those that qindex recover would bring back, with their live messages.

exit codes: 0 listed; 1 a queue, or its name, is damaged beyond reading; in a
dead broker's directory is damage; 2 neither.
"""

from __future__ import annotations

import argparse

import qindex
from qindex.cli.dead import dead_node, ls
from qindex.cli.screen import Screen
from qindex.cli.stores import QueueGone, nameless_queue_count, open_queue, open_to_look
from qindex.cli.text import count, printable


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", help="its directory, or a dead broker's")
    parser.add_argument("--json", action="store_true", help="print JSON: a list of objects")


def run(options: argparse.Namespace, screen: Screen) -> int:
    node = dead_node(options.store, screen)
    if node is not None:
        with node:
            return ls(node, screen, as_json=options.json)
    rows: list[tuple[str, int | None]] = []
    with open_to_look(options.store) as store:
        for name in store.queues():
            try:
                rows.append((name, len(open_queue(store, name))))
            except QueueGone:
                continue
            except qindex.StoreCorrupt:
                rows.append((name, None))
        nameless = nameless_queue_count(store)
    if options.json:
        screen.json([{"queue": name, "messages": depth} for name, depth in rows])
    elif rows:
        cells = [(printable(n), "damaged" if depth is None else f"{depth:,}") for n, depth in rows]
        screen.table(["<queue", ">messages"], cells)
    elif screen.is_terminal:
        screen.line("  no queues yet")
    if nameless and not options.json:
        screen.line(f"  {count(nameless, 'queue')} whose name is damaged: see qindex check")
    return 1 if nameless or any(depth is None for _, depth in rows) else 0
