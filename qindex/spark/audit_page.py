"""The report of an audit: one page of HTML without anything from elsewhere.

Names of queues and brokers come from files that nobody trusts: all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from qindex.look import html
from qindex.look.html import text
from qindex.look.text import count, duration, size, written_id
from qindex.private import replace_file
from qindex.spark.audit import TOP, Report, Summary
from qindex.spark.examine import KINDS

BROKERS_MAX: Final = 500
FINDINGS_MAX: Final = 500


def write_report(folder: Path, report: Report) -> Path:
    """Writes report.html into `folder`, as a whole; returns its path."""
    file = folder / "report.html"
    replace_file(file, _page(report))
    return file


def _page(report: Report) -> bytes:
    title = f"Audit of {count(len(report.summaries), 'directory', 'directories')}, {report.day}"
    parts = [
        f"<p>{size(report.bytes)} in {duration(report.seconds)}, {text(report.how)}.</p>",
        _verdict(report),
        _tiles(report),
        _kinds(report),
        f'<div class="plots">{"".join(_plots(report))}</div>',
        _findings(report),
        _brokers(report),
    ]
    return html.page(title, parts)


def _verdict(report: Report) -> str:
    bad = sum(summary.severity == "damage" for summary in report.summaries)
    damaged = count(bad, "directory is", "directories are")
    return html.verdict(f"{damaged} damaged." if bad else "Nothing is damaged.", good=not bad)


def _tiles(report: Report) -> str:
    tiles = [
        (f"{report.queues:,}", "queues"),
        (f"{report.sum('found'):,}", "messages in the files"),
        (f"{report.sum('live'):,}", f"live, {size(report.sum('live_bytes'))}"),
        (f"{report.sum('lost'):,}", "lost"),
        (size(report.file_bytes("garbage_bytes")), "garbage in message files"),
        (duration(report.sum("recovery_us") / 1e6), "to read all indexes"),
    ]
    cells = "".join(f'<div><b>{text(n)}</b><span class="soft">{t}</span></div>' for n, t in tiles)
    return f'<div class="tiles">{cells}</div>'


def _kinds(report: Report) -> str:
    rows = []
    for kind, number in report.kinds.items():
        severity, meaning = KINDS[kind]
        places = sum(kind in summary.kinds for summary in report.summaries)
        numbers = [f"{number:,}", f"{places:,}"]
        rows.append([text(kind), html.severity(severity), *numbers, text(meaning)])
    if not rows:
        return ""
    columns = ["finding", "severity", ">count", ">directories", "meaning"]
    return f"<h2>Findings</h2>{html.table(columns, rows)}"


def _findings(report: Report) -> str:
    rows = []
    for summary, row in report.findings(FINDINGS_MAX):
        place = f"{row['file']} at {row.get('offset') or 0:,}" if row.get("file") else ""
        req_id = written_id(row.get("req_id")) or ""
        names = [summary.broker, row.get("queue") or "", row["kind"]]
        others = [req_id, f"{row['count']:,}", place, row["text"]]
        severity = html.severity(row["severity"])
        rows.append([*map(text, names), severity, *map(text, others)])
    if not rows:
        return ""
    columns = ["broker", "queue", "finding", "severity", ">message", ">count", "@file", "text"]
    return f"<h2>The worst of them</h2>{html.table(columns, rows)}"


def _brokers(report: Report) -> str:
    ranked = sorted(report.summaries, key=lambda each: (-each.sums["lost"], -each.sums["live"]))
    rows = [_broker(each) for each in ranked[:BROKERS_MAX]]
    columns = ["broker", "format", ">queues", ">live", ">gone", ">lost", ">bytes", ">garbage"]
    more = ""
    if len(ranked) > BROKERS_MAX:
        more = f"<p>… and {len(ranked) - BROKERS_MAX:,} more: the table queues has them.</p>"
    return f"<h2>Brokers</h2>{html.table([*columns, '>recovery', 'worst'], rows)}{more}"


def garbage_of(summary: Summary) -> str:
    """A dash if the format does not tell."""
    told = summary.file_bytes.get("garbage_bytes")
    return "-" if told is None else size(told)


def _broker(summary: Summary) -> list[str]:
    sums = [f"{summary.sums[name]:,}" for name in ("live", "gone", "lost")]
    sizes = [size(summary.bytes), garbage_of(summary)]
    cost = duration(summary.sums["recovery_us"] / 1e6)
    cells = [summary.broker, summary.format, f"{summary.queues:,}", *sums, *sizes, cost]
    return [*map(text, cells), html.severity(summary.severity or "")]


# --- plots --------------------------------------------------------------------------------------


def _plots(report: Report) -> Iterable[str]:
    depths = [(_depth(digits), n) for digits, n in enumerate(report.depths)]
    yield _bars("Queues by live messages", depths, "{:,}".format)
    shares = sorted(report.summaries, key=lambda each: -each.sums["found"])[:TOP]
    yield _stacks("Messages in the files, by broker", shares)
    for rank, title, shown in (
        ("live", "Longest queues", "{:,}".format),
        ("recovery_us", "Recovery cost by queue", lambda us: duration(us / 1e6)),
        ("garbage_bytes", "Garbage by message file", size),
    ):
        rows = [
            (f"{each.broker}: {row.get('queue') or row.get('file')}", row[rank])
            for each, row in report.top(rank)
        ]
        yield _bars(title, rows, shown)


def _depth(digits: int) -> str:
    if digits < 2:
        return "0" if digits == 0 else "1 to 9"
    return f"{10 ** (digits - 1):,} to {10**digits - 1:,}"


def _bars(title: str, rows: Sequence[tuple[str, int]], shown: Any) -> str:
    """Names left, bars, values at their ends."""
    most = max((value for _, value in rows), default=0) or 1
    bars = [(name, [("bar", value / most)], shown(value)) for name, value in rows]
    return html.plot(title, bars)


def _stacks(title: str, summaries: Sequence[Summary]) -> str:
    """found = live + gone + lost."""
    most = max((each.sums["found"] for each in summaries), default=0) or 1
    rows = [
        (
            each.broker,
            [(name, each.sums[name] / most) for name in ("live", "gone", "lost")],
            f"{each.sums['found']:,}",
        )
        for each in summaries
    ]
    return html.plot(title, rows, html.key(("live", "gone", "lost")))
