"""qindex stats: figures of a store.

Show the figures of a store and of each of its queues: messages waiting, and of
them unacked and delayed ones and dead letters; how long the oldest has waited,
at least, as far as the files tell; what is in journals and segments, how full
the message files are; of delayed messages when the next one is due. Reads only,
also beside a process that writes. Of a dead broker's directory what qindex
recover shows before it recovers.

exit codes: 0 shown; 1 damage was met on the way (check reads everything and
says more); 2 neither a store nor a dead broker's directory.
"""

from __future__ import annotations

import argparse
import dataclasses

import qindex
from qindex.cli.dead import dead_node, stats
from qindex.cli.screen import Screen
from qindex.cli.stores import (
    QueueGone,
    damage_count,
    finding_as_json,
    nameless_queue_count,
    open_queue,
    open_to_look,
    queue_names,
    show_findings,
)
from qindex.cli.text import count, due_in, duration, printable, size

COLUMNS = [
    "<queue", ">messages", ">unacked", ">delayed", ">dead", ">oldest", ">next ReqId", ">dirty",
    ">segments", ">index size",
]  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", help="its directory, or a dead broker's")
    parser.add_argument("--json", action="store_true", help="print JSON: all figures there are")


def run(options: argparse.Namespace, screen: Screen) -> int:
    node = dead_node(options.store, screen)
    if node is not None:
        with node:
            return stats(node, screen, as_json=options.json)
    queues: list[qindex.QueueStats] = []
    damaged: dict[str, str] = {}
    with open_to_look(options.store) as store:
        for name in store.queues():
            try:
                queues.append(open_queue(store, name).stats())
            except QueueGone:
                continue
            except qindex.StoreCorrupt as error:
                damaged[name] = str(error)
        figures = store.stats()
        findings = store.findings
        nameless = nameless_queue_count(store)
        names = queue_names(store)
    if options.json:
        screen.json(
            {
                "path": store.path,
                **dataclasses.asdict(figures),
                "queue_stats": [dataclasses.asdict(queue) for queue in queues],
                "damaged": damaged,
                "nameless_queues": nameless,
                "finding_list": [finding_as_json(finding) for finding in findings],
            }
        )
    else:
        _show(screen, store.path, figures, queues, damaged)
        if findings:
            screen.line()
            show_findings(screen, findings, names)
        if nameless:
            screen.line(f"  {count(nameless, 'queue')} whose name is damaged: see qindex check")
    return 1 if damaged or nameless or damage_count(findings) else 0


def _show(
    screen: Screen,
    path: str,
    figures: qindex.StoreStats,
    queues: list[qindex.QueueStats],
    damaged: dict[str, str],
) -> None:
    screen.heading(f"{printable(path)}")
    share = figures.live_bytes * 100 / figures.message_bytes if figures.message_bytes else 100
    stored = f"{count(figures.message_files, 'file')}, {size(figures.message_bytes)}"
    if figures.counted and figures.message_files:
        bodies = count(figures.live_references, "live body", "live bodies")
        stored += f"; {bodies}, {size(figures.live_bytes)} ({share:.0f} %)"
    sessions = f"{figures.session:,}"
    if figures.unclean_session == figures.session:
        sessions += "; the last one is open now, or did not end with close()"
    elif figures.unclean_session:
        sessions += f"; number {figures.unclean_session:,} did not end with close()"
    screen.pairs(
        [
            ("queues", f"{figures.queues:,}"),
            ("messages", f"{sum(map(_messages, queues)):,}"),
            ("message files", stored),
            ("sessions", sessions),
            ("findings", f"{figures.findings:,}"),
        ]
    )
    if queues or damaged:
        screen.line()
        delays = any(queue.next_due is not None for queue in queues)
        columns = [*COLUMNS, ">next due"] if delays else COLUMNS
        screen.table(columns, [_row(queue, delays=delays) for queue in queues])
    for name, text in damaged.items():
        screen.line(f"  {printable(name)}: {screen.paint('beyond reading', 'red')}: {text}")


def _messages(queue: qindex.QueueStats) -> int:
    return queue.ready + queue.unacked + queue.delayed + queue.dead


def _row(queue: qindex.QueueStats, *, delays: bool) -> list[str]:
    due = "-" if queue.next_due is None else due_in(queue.next_due)
    return [
        printable(queue.name),
        f"{_messages(queue):,}",
        f"{queue.unacked:,}",
        f"{queue.delayed:,}",
        f"{queue.dead:,}",
        "-" if queue.oldest_age_min is None else f"> {duration(queue.oldest_age_min)}",
        f"{queue.next_req_id:,}",
        f"{queue.dirty_count:,}",
        f"{queue.segments:,}",
        size(queue.journal_bytes + queue.segment_bytes),
        *([due] if delays else []),
    ]
