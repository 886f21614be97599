"""qindex stats: show figures of a store and of its queues.

For the store and for each of its queues: how many messages there are, how many
of them are unacked, delayed or dead letters, and how old the oldest one is, as
qindex top shows them; what is in journals and segments; how full the message
files are; when the next delayed message is due. The command only reads, also
beside a process that writes. For a dead broker's directory it shows what qindex
recover shows before it recovers.

exit codes: 0 shown; 1 damage was met on the way (check reads everything and
says more); 2 neither a store nor a dead broker's directory.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import qindex
from qindex.cli.arguments import add_directory, add_output
from qindex.cli.dead import dead_node, stats
from qindex.cli.top.figures import queue_as_json, store_as_json
from qindex.cli.top.pages import oldest_text, unacked_text
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.screen import Screen
from qindex.look.stores import finding_as_json
from qindex.look.text import count, due_in, printable, queue_text, size, written_id
from qindex.look.watch import QueueLook, StoreLook, Watch

COLUMNS = [
    "<queue", ">messages", ">unacked", ">delayed", ">dead", ">oldest", ">next ReqId", ">dirty",
    ">segments", ">index size",
]  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    add_output(parser, "JSON: all figures there are", progress=False)


def run(options: argparse.Namespace, screen: Screen) -> int:
    node = dead_node(options.dir, screen, options.member, options.at_time)
    if node is not None:
        with node:
            return stats(node, screen, options.dir, options.at_time, as_json=options.json)
    look = Watch(options.dir).look()
    if options.json:
        screen.json(_as_json(look))
    else:
        _show(screen, look)
    return 1 if look.damage or look.nameless else 0


def _as_json(look: StoreLook) -> dict[str, Any]:
    """What `qindex top` says, and the figures that change little from look to look."""
    figures = dataclasses.asdict(look.stats)
    # queue_count, and the list; what the session of the process counts that has the store open,
    # nobody else sees
    for name in ("queues", "findings", "counters", "syncs", "lifetime_syncs"):
        del figures[name]
    return {
        **figures,
        **store_as_json(look),
        "queues": [_queue_as_json(queue) for queue in look.queues],
        "findings": [finding_as_json(finding) for finding in look.findings],
    }


def _queue_as_json(queue: QueueLook) -> dict[str, Any]:
    figures = {} if queue.stats is None else dataclasses.asdict(queue.stats)
    # queue, next_due_at, oldest_seconds; and as above
    for name in ("name", "next_due", "oldest_age_min", "counters"):
        figures.pop(name, None)
    if queue.stats is not None:
        figures["next_req_id"] = written_id(queue.stats.next_req_id)
    return {**figures, **queue_as_json(queue)}


def _show(screen: Screen, look: StoreLook) -> None:
    figures = look.stats
    screen.heading(f"{printable(look.path)}")
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
            ("messages", f"{sum(queue.messages for queue in look.queues):,}"),
            ("message files", stored),
            ("sessions", sessions),
            ("findings", f"{figures.findings:,}"),
        ]
    )
    if look.queues:
        screen.line()
        delays = any(queue.next_due is not None for queue in look.queues)
        columns = [*COLUMNS, ">next due"] if delays else COLUMNS
        rows = [_row(queue, queue.stats, delays=delays) for queue in look.queues if queue.stats]
        screen.table(columns, rows)
    for queue in look.queues:
        if queue.damage:
            text = screen.paint("beyond reading", "red")
            screen.line(f"  {queue_text(queue.name)}: {text}: {queue.damage}")
    if look.findings:
        screen.line()
        screen.findings(look.findings)
    if look.nameless:
        screen.line(f"  {count(look.nameless, 'queue')} whose name is damaged: see qindex check")


def _row(queue: QueueLook, stats: qindex.QueueStats, *, delays: bool) -> list[str]:
    due = "-" if queue.next_due is None else due_in(queue.next_due)
    return [
        queue_text(queue.name),
        f"{queue.messages:,}",
        unacked_text(queue),
        f"{queue.delayed:,}",
        f"{queue.dead:,}",
        oldest_text(queue),
        written_id(stats.next_req_id),
        f"{stats.dirty_count:,}",
        f"{stats.segments:,}",
        size(stats.journal_bytes + stats.segment_bytes),
        *([due] if delays else []),
    ]
