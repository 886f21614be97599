"""What became of the messages of a recovery, for people."""

from __future__ import annotations

from qindex.brokers.recover import DEAD_LETTER_AT, RecoverReport
from qindex.look.text import count
from qindex.moments import utc

DEATH_COLUMNS = {  # shown if there are any
    "dead_lettered": ">dead-lettered",
    "arrived": ">arrived",
    "kept": ">kept",
    "dying": ">dying",
}


def death_lines(report: RecoverReport) -> list[str]:
    """What became of messages that died while the broker was down, as sentences."""
    lines = []
    if report.expired or report.dead_lettered or report.kept:
        lines.append(f"What had expired by {utc(int(report.now))} counts as expired.")
    if report.dead_lettered:
        lines.append(
            f"{count(report.dead_lettered, 'message')} had died in queues with a dead-letter"
            f" exchange: put where the broker would, {count(report.arrived, 'copy', 'copies')}."
        )
    for reason, number in report.reasons.items():
        lines.append(f"{count(number, 'message')} kept in the queue: {reason}")
    if report.dying:
        lines.append(
            f"{count(report.dying, 'message')} will expire in queues with a dead-letter exchange:"
            f" kept, with the time in the header {DEAD_LETTER_AT}."
        )
    return lines


def account_line(report: RecoverReport, recovered: str = "") -> str:
    """What became of the live messages. `recovered`: how their number is shown."""
    more = [
        f" + {number:,} {what}"
        for number, what in (
            (report.dead_lettered, "dead-lettered"),
            (report.unstorable, "unstorable"),
        )
        if number
    ]
    stopped = " + what is missing: it was stopped" if report.stopped else ""
    return (
        f"{report.live:,} live = {recovered or f'{report.messages:,} recovered'}"
        f" + {report.expired:,} expired + {report.unreadable:,} unreadable"
        f"{''.join(more)}{stopped}"
    )
