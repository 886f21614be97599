"""The report of one recovery as a page to send to a colleague: one file that loads nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import qindex
from qindex.brokers.reader import Account, DeadNode, total
from qindex.brokers.recover import RecoverReport
from qindex.cli.recover.deaths import account_line, death_lines
from qindex.cli.unread import COLUMNS, NOT_READ, unread_rows
from qindex.look import html
from qindex.look.html import text
from qindex.look.screen import SEVERITIES, CommandError
from qindex.look.stores import damage_count, places, suspected_count
from qindex.look.text import count, duration, printable, quoted, rate, size
from qindex.moments import utc

FINDINGS_MAX: Final = 500
LOST_IS_UNKNOWN: Final = (
    "How many messages are lost is not known exactly: the findings say what is missing."
)
_FOOT: Final = (
    "<footer>qindex {version}. Nothing in the directory was changed. This page loads nothing."
    "</footer>"
)


def place_of(path: str) -> Path:
    """Before the work is done: CommandError if no report could be written there."""
    file = Path(path).resolve()
    if not file.parent.is_dir() or file.is_dir():
        raise CommandError(f"no file can be written at {path!r}: name one in a directory")
    return file


def page(node: DeadNode, report: RecoverReport | None, asked: Path, into: str | None) -> bytes:
    """`report` and `into`: None if the directory was only read."""
    done = f"into the store <code>{text(into)}</code>" if into else "only read"
    when = utc(int(time.time()))
    parts = [
        f"<p>{when}; directory <code>{text(asked)}</code>, {done}</p>",
        _verdict(node, report),
        _account(total(node.queues), report),
        _queues(node),
        _unread(node),
        "" if report is None else _recovered(report),
        _findings(node),
        *(f"<p>{text(remark)}</p>" for remark in node.remarks),
        _next_steps(node, asked, into),
        _FOOT.format(version=text(qindex.__version__)),
    ]
    return html.page(f"Recovery of {node.kind} {printable(node.name)}", parts)


def _verdict(node: DeadNode, report: RecoverReport | None) -> str:
    account = total(node.queues)
    damage = damage_count([f for f in node.findings if f.kind != NOT_READ])
    unread = unread_rows(node)
    lost = sum(account.lost.values())
    lost += report.unreadable + report.unstorable if report else 0
    live = f"{count(account.live, 'live message')} ({size(account.live_body_bytes)})"
    if report is None:
        told = f"{live} can be recovered."
    else:
        speed = rate(report.messages, report.seconds)
        told = (
            f"{count(report.messages, 'message')} of {live} recovered"
            f"{'' if report.stopped else ' and synced'}, in {duration(report.seconds)} ({speed}/s)."
        )
        if report.stopped:
            told += f" The recovery was stopped, the store is not complete: {report.stopped}."
        if report.changed:
            told += f" {count(report.changed, 'message')} had to be changed."
        if report.expired:
            told += f" {report.expired:,} had expired and were left out."
    if lost or damage:
        wrong = places(damage, suspected_count(node.findings)) if damage else "nothing damaged"
        told += f" {count(lost, 'message')} lost; {wrong}."
    else:
        told += " No damage was found."
    if unread:
        told += f" {count(len(unread), 'queue')} could not be read: see below."
    return html.verdict(told, good=not (lost or damage or unread or (report and report.lost)))


# --- accounts -----------------------------------------------------------------------------------


def _account(account: Account, report: RecoverReport | None) -> str:
    gone = [(number, "gone", what) for what, number in account.gone.items()]
    lost = [(number, "lost", what) for what, number in account.lost.items()]
    parts = [(account.live, "live", "live"), *gone, *lost]
    told = " + ".join(f"{number:,} {text(what)}" for number, _, what in parts)
    told_all = f"<p>{count(account.found, 'message')} in the files = {told}</p>"
    if not account.lost_is_known:
        told_all += f"<p>{LOST_IS_UNKNOWN}</p>"
    if report is not None:
        told_all += (
            f"<p>{account_line(report)}; {report.redelivered:,} may have been delivered before</p>"
        )
        told_all += "".join(f"<p>{text(line)}</p>" for line in death_lines(report))
        told_all += "".join(
            f"<p>{count(number, 'message')}: {text(kind)}</p>"
            for kind, number in report.changes.items()
        )
    return f"<h2>Account</h2>{html.share(parts, account.found)}{told_all}"


def _queues(node: DeadNode) -> str:
    account = total(node.queues)
    counts = account.gone | account.lost | account.marks
    others = [name for name, number in counts.items() if number]
    has_groups = len({queue.group for queue in node.queues}) > 1
    group = [node.group_kind] if has_groups else []
    rows = [
        [
            *([text(queue.group)] if group else []),
            text(queue.name) + (" (not durable)" if queue.vanishes else ""),
            *_numbers(queue.account, others),
            _share(queue.account),
        ]
        for queue in node.queues
    ]
    rows.append([*([""] if group else []), "all queues", *_numbers(account, others), ""])
    names = [*group, "queue", ">live", ">bytes", *(f">{name}" for name in others), ""]
    key = html.key(("live", "gone", "lost"))
    return f"<h2>Queues</h2>{key}{html.table(names, rows, last_is_total=True)}"


def _unread(node: DeadNode) -> str:
    rows = [[text(cell) for cell in row] for row in unread_rows(node)]
    if not rows:
        return ""
    columns = [*COLUMNS[:-1], f"@{COLUMNS[-1][1:]}"]
    table = html.table(columns, rows)
    return f"<h2>Not read</h2><p>Nothing of these queues is in the account.</p>{table}"


def _numbers(account: Account, others: Sequence[str]) -> list[str]:
    counts = account.gone | account.lost | account.marks
    told = [f"{counts[name]:,}" if counts.get(name) else "-" for name in others]
    return [f"{account.live:,}", size(account.live_body_bytes), *told]


def _share(account: Account) -> str:
    if not account.found:
        return ""
    gone, lost = sum(account.gone.values()), sum(account.lost.values())
    parts = [(account.live, "live", "live"), (gone, "gone", "gone"), (lost, "lost", "lost")]
    return html.share(parts, account.found)


def _recovered(report: RecoverReport) -> str:
    names = ["into", ">live", ">recovered", ">bytes", ">redelivered", ">expired", ">unreadable", ""]
    rows = []
    for queue in report.queues:
        counts = (queue.redelivered, queue.expired, queue.unreadable)
        parts = [
            (queue.messages, "live", "recovered"),
            (queue.expired, "expired", "expired"),
            (queue.unreadable, "lost", "unreadable"),
        ]
        rows.append(
            [
                text(queue.into),
                f"{queue.live:,}",
                f"{queue.messages:,}",
                size(queue.body_bytes),
                *(f"{number:,}" if number else "-" for number in counts),
                html.share(parts, queue.live) if queue.live else "",
            ]
        )
    return f"<h2>Recovered</h2>{html.table(names, rows)}"


def _findings(node: DeadNode) -> str:
    told = [finding for finding in node.findings if finding.kind != NOT_READ]
    found = sorted(told, key=lambda finding: SEVERITIES.index(finding.severity))
    if not found:
        return "<h2>Findings</h2><p>None in what was read.</p>"
    rows = [
        [
            html.severity(finding.severity),
            text(f"{finding.about}: {finding.where}" if finding.about else finding.where),
            f"{finding.offset:,}",
            text(f"{finding.kind}: {finding.text}"),
        ]
        for finding in found[:FINDINGS_MAX]
    ]
    table = html.table(["", "@file", ">offset", "what"], rows)
    if len(found) > FINDINGS_MAX:
        table += f"<p>… and {len(found) - FINDINGS_MAX:,} more: qindex recover --json has all.</p>"
    return f"<h2>Findings</h2>{table}"


def as_given(node: DeadNode, asked: str) -> str:
    """The directory, and those of other members, as a command line has them."""
    members = [str(tree.path) for tree in getattr(node, "others", ())]
    if node.tree.path in Path(asked).resolve().parents:
        asked = str(node.tree.path)  # a folder of the node was named
    return " ".join([quoted(asked), *(f"--member {quoted(each)}" for each in members)])


def _next_steps(node: DeadNode, asked: Path, into: str | None) -> str:
    given = as_given(node, str(asked))
    if into is None:
        steps = [("take the messages", f"qindex recover {given} --out STORE")]
    else:
        steps = [
            ("verify every checksum of the store", f"qindex check {quoted(into)}"),
            (
                "compare it with the directory, message by message",
                f"qindex diff {given} {quoted(into)}",
            ),
            (
                "publish to a new broker",
                f"qindex republish {quoted(into)} --amqp URL --checkpoint FILE",
            ),
        ]
    items = "".join(f"<li>{text(what)}: <code>{text(how)}</code></li>" for what, how in steps)
    return f"<h2>Next</h2><ul>{items}</ul>"
