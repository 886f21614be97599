"""qindex recover: bring back the messages of a dead broker.

Show what is in a dead broker's directory, or bring its messages back. DIR is
the directory, or one around it; its format is detected. Nothing in it is ever
changed.

  RabbitMQ   a node of 3.5 to 4.x, classic queues, index version 1 or 2;
             quorum queues and streams, too
  NSQ        nsqd's data directory, or that of another user of go-diskqueue;
             .bad files, too
  gmq        a data directory of gmq v2; delayed messages become a queue of
             their own, TOPIC.delayed
  beanstalkd binlog files of version 7; what is delayed or buried in a tube
             become queues TUBE.delayed and TUBE.buried

Without --out: list every queue, with what its files hold, and all damage of
the files. Bodies are read only with --out, and by qindex check. Only these find
a body that makes no sense.
With --out: publish the messages into a qindex store, in order, with all that came
with them as headers, and the redelivered flag.

--orphans (RabbitMQ) adds bodies that no index names, in queues NAME.orphans and
msg_store_persistent.orphans, and what the shared log has of deleted quorum
queues, in queues NAME.deleted; each with a header `orphan` that says where it
was. Most of these messages were acked. What a damaged index lost is among them.

--report FILE writes what was found and done as an HTML page: one file, which
loads nothing, to be kept or sent.

Left out and counted, since the broker itself would not give them back: acked
messages, transient messages, messages without a body, and (without
--keep-expired) messages that had expired when the command began.

RabbitMQ's dead letters: a starting node publishes expired messages, and those
beyond x-max-length, to the dead-letter exchange of their queue. So does --out,
by the definitions in DIR: exchanges, bindings, policies, arguments. The messages
get x-death in the form of RabbitMQ 3.10. What the node would drop on that way,
and what cannot be known, stays in its queue without an expiry, and the reason is printed.
What expires later in such a queue keeps its time in the header dead_letter_at
instead of an expiry, since a store would drop it then.

What no store can hold (an expiry that is no date, headers of more than 16 MB) is
changed or left out; the body stays. Each such change is counted. A recovery that
is stopped says so, in the JSON, too ("stopped"), with the account so far.

exit codes: 0 all was recovered, or (without --out) can be; 1 there is damage, messages are
missing or suspected to be, or queues are not read; 2 nothing that qindex can
read, or refused (a store that has these queues already, one that is in use).
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import qindex
from qindex.apart import refuse_inside
from qindex.brokers.reader import Account, DeadNode, DeadQueue, expired_by, open_node, total
from qindex.brokers.recover import QueueExists, RecoverReport, recover_into
from qindex.brokers.tree import UnknownFormat
from qindex.cli.arguments import add_directory, add_output, add_target
from qindex.cli.recover.deaths import DEATH_COLUMNS, account_line, death_lines
from qindex.cli.recover.page import LOST_IS_UNKNOWN, as_given, page, place_of
from qindex.cli.unread import COLUMNS as UNREAD_COLUMNS
from qindex.cli.unread import NOT_READ, unread_rows
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.screen import CommandError, Screen
from qindex.look.stores import damage_count, finding_as_json, stopped, store_at
from qindex.look.text import count, duration, printable, rate, size
from qindex.moments import utc
from qindex.private import open_private

RECOVERED_COLUMNS = ["<into", ">live", ">recovered", ">bytes", ">expired", ">unreadable"]


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the dead broker's directory")
    add_target(parser, "--into", metavar="STORE", help="the qindex store to publish into")
    parser.add_argument(
        "--keep-expired",
        action="store_true",
        help="also recover expired messages; they get no expiry again",
    )
    parser.add_argument(
        "--orphans",
        action="store_true",
        help="RabbitMQ: also recover bodies that no index names (most were acked), into queues"
        " NAME.orphans, and what deleted quorum queues had, into NAME.deleted",
    )
    add_members(parser)
    add_at_time(parser)
    parser.add_argument(
        "--report", metavar="FILE", help="write an HTML page about the recovery, too"
    )
    add_output(parser, "JSON: counts, findings, account")


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.keep_expired and options.out is None:
        raise CommandError("--keep-expired is for recovering: name a store with --out")
    try:
        with screen.progress(f"reading {printable(options.dir)}") as progress:
            progress.at(0)
            node = open_node(options.dir, members=options.member)
    except UnknownFormat as error:
        if not (ours := store_at(options.dir)):
            raise CommandError(str(error)) from None
        raise CommandError(
            f"{options.dir!r} is no dead broker's directory{ours}; a store recovers as it is"
            " opened, qindex check says what is damaged in it, and qindex salvage copies the rest"
        ) from None
    with node:
        if options.orphans:
            _add_orphans(node)
        report, asked, page_file = None, Path(options.dir).resolve(), None
        if options.report is not None:
            refuse_inside(options.report, asked, node.tree.path)
            page_file = place_of(options.report)
        stop: CommandError | None = None
        if options.out is not None:
            report = RecoverReport()
            stop = _recover(screen, node, asked, options, report)
        if page_file is not None:
            with open_private(page_file, "wb") as file:
                file.write(page(node, report, asked, options.out))
        if options.json:
            recovered = None if report is None else report_as_json(report)
            done = {"out": options.out, "recovered": recovered}
            at_time = options.at_time if report is None else None  # else `recovered` has it
            screen.json({**found_as_json(node, report, at_time), **done})
        elif report is None:
            show_found(screen, node, options.dir, options.at_time)
        else:
            _show_recovered(screen, node, report, options.out)
        if stop is not None:
            raise stop
        return 1 if is_incomplete(node) or (report is not None and report.lost) else 0


def is_incomplete(node: DeadNode) -> bool:
    return damage_count(node.findings) > 0 or any(total(node.queues).lost.values())


def _add_orphans(node: DeadNode) -> None:
    from qindex.brokers.rabbitmq.node import Node
    from qindex.brokers.rabbitmq.orphan_queues import add_orphans

    if not isinstance(node, Node):
        raise CommandError(f"--orphans is for RabbitMQ nodes; this is a {node.kind}: leave it out")
    add_orphans(node)


# --- recovering ---------------------------------------------------------------------------------


def _recover(
    screen: Screen,
    node: DeadNode,
    asked: Path,
    options: argparse.Namespace,
    report: RecoverReport,
) -> CommandError | None:
    """Fills in the report. What ended the recovery while it published: the report has the rest.

    Raises what ended it before anything was written.
    """
    into, before = options.out, list[str]()
    refuse_inside(into, asked, node.tree.path)
    try:
        with (
            qindex.open(into, expire=False) as store,
            screen.progress("recovering", "messages") as progress,
        ):
            before += store.queues()
            progress.at(0, total(node.queues).live)
            recover_into(
                node,
                store,
                keep_expired=options.keep_expired,
                now=options.at_time,
                progress=lambda so_far: progress.at(
                    so_far.messages + so_far.expired, so_far.live, size(so_far.body_bytes)
                ),
                report=report,
            )
            _verify(store, report)
    except QueueExists as error:
        raise CommandError(f"refused: {error}") from None
    except (Exception, KeyboardInterrupt) as error:
        if not report.queues:
            raise
        stop = stopped(error, into, before)
        report.stopped = report.stopped or str(stop)
        return stop
    return None


def _verify(store: qindex.Store, report: RecoverReport) -> None:
    """The account is not only what recover_into() says: the store itself must have as many."""
    for queue in report.queues:
        held = len(store.queue(queue.into, create=False))
        if held != queue.in_store or not queue.adds_up:
            raise CommandError(
                f"the account of {printable(queue.into)!r} does not add up: {queue.live} live,"
                f" {held} in the store, {queue.messages} published, {queue.expired} expired,"
                f" {queue.unreadable} unreadable, {queue.unstorable} unstorable",
                1,
            )


# --- showing ------------------------------------------------------------------------------------


def show_found(screen: Screen, node: DeadNode, asked: str, at_time: float | None = None) -> None:
    screen.heading(f"{node.kind} {printable(node.name)}")
    expired = expired_at(node, at_time)
    groups: dict[str, list[DeadQueue]] = {}
    for queue in node.queues:
        groups.setdefault(queue.group, []).append(queue)
    for group in sorted(groups):
        screen.line()
        if node.group_kind:
            screen.line(f"{node.group_kind} {printable(group)}")
        columns = list(_other_counts(total(groups[group])))
        columns += ["expired"] if expired is not None else []
        screen.table(
            ["<queue", ">live", ">bytes", *(f">{name}" for name in columns)],
            [_found_row(queue, columns, expired) for queue in groups[group]],
        )
    if not groups:
        screen.line("  no queues")
    _show_findings(screen, node)
    _show_unread(screen, node)
    account = total(node.queues)
    screen.line()
    parts = "".join(f"{number:,} {what} + " for what, number in _left_out(account))
    screen.line(
        f"{count(account.found, 'message')} in the files = {parts}"
        f"{screen.paint(f'{account.live:,} live', 'bold')} ({size(account.live_body_bytes)})"
    )
    if not account.lost_is_known:
        screen.line(screen.paint(LOST_IS_UNKNOWN, "red"))
    for remark in node.remarks:
        screen.line(printable(remark))
    if expired is not None and at_time is not None:
        screen.line(f"{sum(expired.values()):,} of them have expired by {utc(at_time)}")
    if account.live:
        screen.line(f"To take them: qindex recover {as_given(node, asked)} --out STORE")


def expired_at(node: DeadNode, at_time: float | None) -> dict[int, int] | None:
    """How many messages of each queue, by its id, have expired by then; None: nobody asked."""
    if at_time is None:
        return None
    return {id(queue): expired_by(queue, at_time * 1e6) for queue in node.queues}


def _left_out(account: Account) -> list[tuple[str, int]]:
    return [*account.gone.items(), *account.lost.items()]


def _other_counts(account: Account) -> dict[str, int]:
    return account.gone | account.lost | account.marks


def _found_row(queue: DeadQueue, other: list[str], expired: dict[int, int] | None) -> list[str]:
    account = queue.account
    counts = _other_counts(account)
    if expired is not None:
        counts["expired"] = expired[id(queue)]
    return [
        printable(queue.name) + (" (not durable)" if queue.vanishes else ""),
        f"{account.live:,}",
        size(account.live_body_bytes),
        *(f"{counts[name]:,}" if counts.get(name) else "-" for name in other),
    ]


def _show_recovered(screen: Screen, node: DeadNode, report: RecoverReport, into: str) -> None:
    screen.heading(f"{node.kind} {printable(node.name)} into {printable(into)}")
    more = [name for name in DEATH_COLUMNS if getattr(report, name)]
    rows = [
        [
            printable(queue.into),
            f"{queue.live:,}",
            f"{queue.messages:,}",
            size(queue.body_bytes),
            *(f"{n:,}" if n else "-" for n in (queue.expired, queue.unreadable)),
            *(f"{n:,}" if n else "-" for n in (getattr(queue, name) for name in more)),
        ]
        for queue in report.queues
    ]
    screen.table([*RECOVERED_COLUMNS, *(DEATH_COLUMNS[name] for name in more)], rows)
    _show_findings(screen, node)
    _show_unread(screen, node)
    screen.line()
    told = ", ".join(f"{n:,} {what}" for what, n in _left_out(total(node.queues)) if n)
    if told:
        screen.line(f"left out: {told}")
    if not total(node.queues).lost_is_known:
        screen.line(screen.paint(LOST_IS_UNKNOWN, "red"))
    recovered = screen.paint(f"{report.messages:,} recovered", "bold")
    screen.line(account_line(report, recovered))
    for line in death_lines(report):
        screen.line(printable(line))
    for kind, number in report.changes.items():
        screen.line(screen.paint(f"{count(number, 'message')}: {printable(kind)}", "red"))
    speed = rate(report.messages, report.seconds)
    state = "not finished" if report.stopped else "synced"
    screen.line(
        f"{size(report.body_bytes)} in {duration(report.seconds)} ({speed} messages/s), {state};"
        f" {report.redelivered:,} may have been delivered before"
    )


def _show_findings(screen: Screen, node: DeadNode) -> None:
    findings = [finding for finding in node.findings if finding.kind != NOT_READ]
    if findings:
        screen.line()
        screen.line("findings")
        screen.findings(findings)


def _show_unread(screen: Screen, node: DeadNode) -> None:
    rows = unread_rows(node)
    if rows:
        screen.line()
        screen.line(f"{count(len(rows), 'queue')} that qindex cannot read: nothing of them is here")
        screen.table(UNREAD_COLUMNS, rows)


# --- JSON ---------------------------------------------------------------------------------------


def found_as_json(
    node: DeadNode, report: RecoverReport | None = None, at_time: float | None = None
) -> dict[str, Any]:
    """With `expired` for each queue, if `at_time` is the moment that counts as now."""
    expired = expired_at(node, at_time)
    return {
        "format": node.format,
        "node": node.name,
        "complete": not (is_incomplete(node) or (report is not None and report.lost)),
        "account": account_as_json(total(node.queues)),
        "queues": [
            {
                "group": queue.group,
                "queue": queue.name,
                **account_as_json(queue.account),
                **({} if expired is None else {"expired": expired[id(queue)]}),
            }
            for queue in node.queues
        ],
        **({} if at_time is None else {"as_of": utc(at_time)}),
        **node.facts(),
        "findings": [finding_as_json(finding) for finding in node.findings],
    }


def account_as_json(account: Account) -> dict[str, Any]:
    """found = gone + live + lost; what went which way is in `gone_by` and `lost_by`."""
    return {
        "found": account.found,
        "live": account.live,
        "live_bytes": account.live_body_bytes,
        "gone": sum(account.gone.values()),
        "gone_by": account.gone,
        "lost": sum(account.lost.values()),
        "lost_by": account.lost,
        "lost_is_known": account.lost_is_known,
        "marks": account.marks,
    }


def report_as_json(report: RecoverReport) -> dict[str, Any]:
    told = dataclasses.asdict(report)
    told["as_of"] = utc(told.pop("now"))
    for queue in told["queues"]:
        queue["queue"], queue["target_queue"] = queue.pop("name"), queue.pop("into")
    return told
