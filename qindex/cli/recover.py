"""qindex recover: the messages of a dead RabbitMQ node.

Show what is in a dead RabbitMQ node's directory, or bring its messages back.
DIR is the node's directory (3.7 to 3.13, classic queues, index version 1 or 2),
or one around or inside it. Nothing in it is ever changed.

Without --into: list every virtual host and queue, with what its files hold, and
all damage. With --into: publish the messages into a qindex store, in order, with
exchange, routing keys, properties, headers and redelivered flag.

What RabbitMQ itself would not give back is left out and counted: acked and
transient messages, those whose body is nowhere, and (without --keep-expired)
those that have expired by now.

exit codes: 0 all is recovered, or may be; 1 there is damage, or messages are
missing; 2 not a RabbitMQ directory, or refused (a store that has these queues
already, a store that is in use).
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import qindex
from qindex.cli.screen import CommandError, Screen
from qindex.cli.stores import damage_count, finding_as_json
from qindex.cli.text import count, duration, printable, rate, size
from qindex.formats.foreign import UnknownFormat
from qindex.formats.rabbitmq import Node, open_node
from qindex.formats.recover import QueueExists, RecoverReport, recover_into

if TYPE_CHECKING:
    from qindex.formats.rabbitmq import Counts, Queue

FOUND_COLUMNS = [
    "<queue", ">live", ">bytes", ">acked", ">transient", ">no body", ">redelivered", ">expiring",
]  # fmt: skip
RECOVERED_COLUMNS = ["<into", ">live", ">recovered", ">bytes", ">expired", ">unreadable"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="the RabbitMQ node's directory")
    parser.add_argument("--into", metavar="PATH", help="the qindex store to publish into")
    parser.add_argument(
        "--keep-expired",
        action="store_true",
        help="recover also what has expired meanwhile, without its expiry",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: counts, findings, account")
    parser.add_argument("--progress", action="store_true", help="progress also without a terminal")


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.keep_expired and options.into is None:
        raise CommandError("--keep-expired is for recovering: name a store with --into")
    try:
        with screen.progress(f"reading the indexes of {printable(options.dir)}") as progress:
            progress.at(0)
            node = open_node(options.dir)
    except UnknownFormat as error:
        raise CommandError(str(error)) from None
    with node:
        report = None
        if options.into is not None:
            report = _recover(
                screen, node, Path(options.dir).resolve(), options.into, options.keep_expired
            )
        if options.json:
            screen.json(_as_json(node, report, options.into))
        elif report is None:
            _show_found(screen, node)
        else:
            _show_recovered(screen, node, report, options.into)
        return 1 if _is_incomplete(node) else 0


def _is_incomplete(node: Node) -> bool:
    return damage_count(node.findings) > 0 or node.counts.body_missing > 0


# --- recovering ---------------------------------------------------------------------------------


def _recover(
    screen: Screen, node: Node, asked: Path, into: str, keep_expired: bool
) -> RecoverReport:
    target = Path(into).resolve()
    if target.is_relative_to(node.tree.path) or target.is_relative_to(asked):
        raise CommandError(
            f"{into!r} is inside {str(asked)!r}, where nothing is changed: recover elsewhere"
        )
    try:
        with qindex.open(into) as store, screen.progress("recovering", "messages") as progress:
            progress.at(0, node.counts.live)
            report = recover_into(
                node,
                store,
                keep_expired=keep_expired,
                progress=lambda so_far: progress.at(
                    so_far.messages + so_far.expired, so_far.live, size(so_far.body_bytes)
                ),
            )
            _verify(store, report)
    except QueueExists as error:
        raise CommandError(f"refused: {error}") from None
    except KeyboardInterrupt:
        raise CommandError(
            f"interrupted: {into!r} holds a part of the messages; delete it and start again", 130
        ) from None
    except qindex.DiskFull as error:
        raise CommandError(
            f"{error}: {into!r} holds a part of the messages; delete it, make room, start again"
        ) from None
    return report


def _verify(store: qindex.Store, report: RecoverReport) -> None:
    """The account is not only what recover_into() says: the store itself must have as many."""
    for queue in report.queues:
        held = len(store.queue(queue.into, create=False))
        if held != queue.messages or queue.live != held + queue.expired + queue.unreadable:
            raise CommandError(
                f"the account of {printable(queue.into)!r} does not add up: {queue.live} live,"
                f" {held} in the store, {queue.expired} expired, {queue.unreadable} unreadable",
                1,
            )


# --- showing ------------------------------------------------------------------------------------


def _show_found(screen: Screen, node: Node) -> None:
    screen.heading(f"RabbitMQ node {printable(node.name)}")
    for vhost in node.vhosts:
        screen.line()
        screen.line(f"virtual host {printable(vhost.name)}")
        if vhost.queues:
            screen.table(FOUND_COLUMNS, [_found_row(queue) for queue in vhost.queues])
        else:
            screen.line("  no queues")
        if vhost.orphan_bodies:
            bodies = count(vhost.orphan_bodies, "stored body", "stored bodies")
            screen.line(f"  {bodies} ({size(vhost.orphan_bytes)}) that no queue refers to any more")
    counts = node.counts
    _show_findings(screen, node)
    screen.line()
    screen.line(
        f"{count(counts.published, 'message')} in the indexes = {counts.acked:,} acked"
        f" + {counts.transient:,} transient + {counts.body_missing:,} without a body"
        f" + {screen.paint(f'{counts.live:,} live', 'bold')} ({size(counts.live_body_bytes)})"
    )
    if not node.has_definitions:
        screen.line("The node's definitions are not there: no queue arguments, no empty queues.")
    if counts.live:
        screen.line("To take them: qindex recover DIR --into STORE")


def _found_row(queue: Queue) -> list[str]:
    counts = queue.counts
    numbers = (counts.acked, counts.transient, counts.body_missing, counts.redelivered)
    return [
        printable(queue.name) + (" (not durable)" if queue.durable is False else ""),
        f"{counts.live:,}",
        size(counts.live_body_bytes),
        *(f"{number:,}" if number else "-" for number in (*numbers, counts.expiring)),
    ]


def _show_recovered(screen: Screen, node: Node, report: RecoverReport, into: str) -> None:
    screen.heading(f"RabbitMQ node {printable(node.name)} into {printable(into)}")
    rows = [
        [
            printable(queue.into),
            f"{queue.live:,}",
            f"{queue.messages:,}",
            size(queue.body_bytes),
            f"{queue.expired:,}" if queue.expired else "-",
            f"{queue.unreadable:,}" if queue.unreadable else "-",
        ]
        for queue in report.queues
    ]
    screen.table(RECOVERED_COLUMNS, rows)
    _show_findings(screen, node)
    screen.line()
    counts = node.counts
    left_out = [
        (counts.acked, "acked"),
        (counts.transient, "transient"),
        (counts.body_missing, "without a body"),
    ]
    told = ", ".join(f"{number:,} {what}" for number, what in left_out if number)
    if told:
        screen.line(f"left out as RabbitMQ does: {told}")
    screen.line(
        f"{report.live:,} live = {screen.paint(f'{report.messages:,} recovered', 'bold')}"
        f" + {report.expired:,} expired + {report.unreadable:,} unreadable"
    )
    speed = rate(report.messages, report.seconds)
    screen.line(
        f"{size(report.body_bytes)} in {duration(report.seconds)} ({speed} messages/s), synced;"
        f" {report.redelivered:,} may have been delivered before"
    )


def _show_findings(screen: Screen, node: Node) -> None:
    if node.findings:
        screen.line()
        screen.line("findings")
        screen.findings(node.findings)


# --- JSON ---------------------------------------------------------------------------------------


def _as_json(node: Node, report: RecoverReport | None, into: str | None) -> dict[str, Any]:
    vhosts = [
        {
            "name": vhost.name,
            "orphan_bodies": vhost.orphan_bodies,
            "orphan_bytes": vhost.orphan_bytes,
            "queues": [
                {
                    "name": queue.name,
                    "durable": queue.durable,
                    "arguments": queue.arguments,
                    **_counts_as_json(queue.counts),
                }
                for queue in vhost.queues
            ],
        }
        for vhost in node.vhosts
    ]
    return {
        "node": node.name,
        "complete": not _is_incomplete(node),
        "has_definitions": node.has_definitions,
        "vhosts": vhosts,
        "total": _counts_as_json(node.counts),
        "findings": [finding_as_json(finding) for finding in node.findings],
        "into": into,
        "recovered": None if report is None else dataclasses.asdict(report),
    }


def _counts_as_json(counts: Counts) -> dict[str, int]:
    return dataclasses.asdict(counts)
