"""qindex recover: the messages of a dead broker.

Show what is in a dead broker's directory, or bring its messages back. DIR is
the directory, or one around it; what it is is found out. Nothing in it is ever
changed.

  RabbitMQ   a node of 3.5 to 4.x, classic queues, index version 1 or 2
  NSQ        nsqd's data directory, or whoever's that uses go-diskqueue;
             .bad files, too
  gmq        a data directory of gmq v2; delayed messages become a queue of
             their own, TOPIC.delayed
  beanstalkd binlog files of version 7; what is delayed or buried in a tube
             become queues TUBE.delayed and TUBE.buried

Without --into: list every queue, with what its files hold, and all damage. With
--into: publish the messages into a qindex store, in order, with all that came
with them as headers, and the redelivered flag.

--report FILE writes what was found and done as an HTML page: one file, which
loads nothing, to be kept or sent.

What the broker itself would not give back is left out and counted: what was
acked, what was not meant to last, what has no body any more, and (without
--keep-expired) what has expired by now.

exit codes: 0 all is recovered, or may be; 1 there is damage, or messages are
missing; 2 nothing that qindex can read, or refused (a store that has these
queues already, a store that is in use).
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import qindex
from qindex.cli.report import page, place_of
from qindex.cli.screen import CommandError, Screen
from qindex.cli.stores import damage_count, finding_as_json
from qindex.cli.text import count, duration, printable, rate, size
from qindex.formats.foreign import UnknownFormat
from qindex.formats.reader import Account, DeadNode, DeadQueue, open_node, total
from qindex.formats.recover import QueueExists, RecoverReport, recover_into

RECOVERED_COLUMNS = ["<into", ">live", ">recovered", ">bytes", ">expired", ">unreadable"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="the dead broker's directory")
    parser.add_argument("--into", metavar="PATH", help="the qindex store to publish into")
    parser.add_argument(
        "--keep-expired",
        action="store_true",
        help="recover also what has expired meanwhile, without its expiry",
    )
    parser.add_argument("--report", metavar="FILE", help="write an HTML page about it, too")
    parser.add_argument("--json", action="store_true", help="print JSON: counts, findings, account")
    parser.add_argument("--progress", action="store_true", help="progress also without a terminal")


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.keep_expired and options.into is None:
        raise CommandError("--keep-expired is for recovering: name a store with --into")
    try:
        with screen.progress(f"reading {printable(options.dir)}") as progress:
            progress.at(0)
            node = open_node(options.dir)
    except UnknownFormat as error:
        raise CommandError(str(error)) from None
    with node:
        report, asked, page_file = None, Path(options.dir).resolve(), None
        if options.report is not None:
            _refuse_inside(node, asked, options.report)
            page_file = place_of(options.report)
        if options.into is not None:
            report = _recover(screen, node, asked, options.into, options.keep_expired)
        if page_file is not None:
            page_file.write_text(page(node, report, asked, options.into), encoding="utf-8")
        if options.json:
            recovered = None if report is None else dataclasses.asdict(report)
            done = {"into": options.into, "recovered": recovered}
            screen.json({**found_as_json(node), **done})
        elif report is None:
            show_found(screen, node)
        else:
            _show_recovered(screen, node, report, options.into)
        return 1 if is_incomplete(node) else 0


def is_incomplete(node: DeadNode) -> bool:
    return damage_count(node.findings) > 0 or any(total(node.queues).lost.values())


# --- recovering ---------------------------------------------------------------------------------


def _recover(
    screen: Screen, node: DeadNode, asked: Path, into: str, keep_expired: bool
) -> RecoverReport:
    _refuse_inside(node, asked, into)
    try:
        with (
            qindex.open(into, expire=False) as store,
            screen.progress("recovering", "messages") as progress,
        ):
            progress.at(0, total(node.queues).live)
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


def _refuse_inside(node: DeadNode, asked: Path, path: str) -> None:
    target = Path(path).resolve()
    if target.is_relative_to(node.tree.path) or target.is_relative_to(asked):
        raise CommandError(
            f"{path!r} is inside {str(asked)!r}, where nothing is changed: go elsewhere"
        )


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


def show_found(screen: Screen, node: DeadNode) -> None:
    screen.heading(f"{node.kind} {printable(node.name)}")
    groups: dict[str, list[DeadQueue]] = {}
    for queue in node.queues:
        groups.setdefault(queue.group, []).append(queue)
    for group in sorted(groups):
        screen.line()
        if node.group_kind:
            screen.line(f"{node.group_kind} {printable(group)}")
        columns = list(_other_counts(total(groups[group])))
        screen.table(
            ["<queue", ">live", ">bytes", *(f">{name}" for name in columns)],
            [_found_row(queue, columns) for queue in groups[group]],
        )
    if not groups:
        screen.line("  no queues")
    _show_findings(screen, node)
    account = total(node.queues)
    screen.line()
    parts = "".join(f"{number:,} {what} + " for what, number in _left_out(account))
    screen.line(
        f"{count(account.found, 'message')} in the files = {parts}"
        f"{screen.paint(f'{account.live:,} live', 'bold')} ({size(account.live_body_bytes)})"
    )
    for remark in node.remarks:
        screen.line(printable(remark))
    if account.live:
        screen.line("To take them: qindex recover DIR --into STORE")


def _left_out(account: Account) -> list[tuple[str, int]]:
    return [*account.gone.items(), *account.lost.items()]


def _other_counts(account: Account) -> dict[str, int]:
    return account.gone | account.lost | account.marks


def _found_row(queue: DeadQueue, other: list[str]) -> list[str]:
    account = queue.account
    counts = _other_counts(account)
    return [
        printable(queue.name) + (" (not durable)" if queue.vanishes else ""),
        f"{account.live:,}",
        size(account.live_body_bytes),
        *(f"{counts[name]:,}" if counts.get(name) else "-" for name in other),
    ]


def _show_recovered(screen: Screen, node: DeadNode, report: RecoverReport, into: str) -> None:
    screen.heading(f"{node.kind} {printable(node.name)} into {printable(into)}")
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
    told = ", ".join(f"{n:,} {what}" for what, n in _left_out(total(node.queues)) if n)
    if told:
        screen.line(f"left out: {told}")
    screen.line(
        f"{report.live:,} live = {screen.paint(f'{report.messages:,} recovered', 'bold')}"
        f" + {report.expired:,} expired + {report.unreadable:,} unreadable"
    )
    speed = rate(report.messages, report.seconds)
    screen.line(
        f"{size(report.body_bytes)} in {duration(report.seconds)} ({speed} messages/s), synced;"
        f" {report.redelivered:,} may have been delivered before"
    )


def _show_findings(screen: Screen, node: DeadNode) -> None:
    if node.findings:
        screen.line()
        screen.line("findings")
        screen.findings(node.findings)


# --- JSON ---------------------------------------------------------------------------------------


def found_as_json(node: DeadNode) -> dict[str, Any]:
    return {
        "format": node.format,
        "node": node.name,
        "complete": not is_incomplete(node),
        "account": dataclasses.asdict(total(node.queues)),
        "queues": [
            {"group": queue.group, "name": queue.name, **dataclasses.asdict(queue.account)}
            for queue in node.queues
        ],
        **node.facts(),
        "findings": [finding_as_json(finding) for finding in node.findings],
    }
