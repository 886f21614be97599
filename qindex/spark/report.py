"""The report of an audit: one page of HTML without anything from elsewhere.

Names of queues and brokers come from files that nobody trusts: all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from qindex.cli.text import count, duration, printable, size
from qindex.spark.audit import TOP, Report, Summary
from qindex.spark.examine import KINDS

BROKERS_MAX: Final = 500
FINDINGS_MAX: Final = 500
_STYLE: Final = """
:root { --page:#fcfcfb; --ink:#0b0b0b; --soft:#52514e; --line:#e1e0d9; --bar:#2a78d6;
  --good:#0ca30c; --gone:#c3c2b7; --bad:#d03b3b; --warning:#b97a00; }
@media (prefers-color-scheme: dark) { :root { --page:#1a1a19; --ink:#fff; --soft:#c3c2b7;
  --line:#2c2c2a; --bar:#3987e5; --gone:#52514e; --bad:#e66767; --warning:#fab219; } }
body { font:15px/1.5 system-ui,sans-serif; background:var(--page); color:var(--ink);
  max-width:70rem; margin:2rem auto; padding:0 1.5rem; }
h1 { font-size:1.5rem; margin-bottom:0; } h2 { font-size:1.1rem; margin:2.2rem 0 .6rem; }
p, .soft { color:var(--soft); } p { margin:.2rem 0; }
table { border-collapse:collapse; width:100%; font-size:.9rem; }
th { text-align:left; color:var(--soft); font-weight:500; }
th, td { padding:.25rem .8rem .25rem 0; border-bottom:1px solid var(--line); vertical-align:top; }
td { overflow-wrap:anywhere; } .n { text-align:right; white-space:nowrap;
  font-variant-numeric:tabular-nums; }
.tiles { display:flex; flex-wrap:wrap; gap:1rem 2.5rem; margin:1.2rem 0; }
.tiles b { display:block; font-size:1.6rem; font-weight:600; }
.damage { color:var(--bad); font-weight:600; } .warning { color:var(--warning); }
td.damage, td.warning, td.note { white-space:nowrap; }
.note { color:var(--soft); } .ok { color:var(--good); font-weight:600; }
.plots { display:grid; grid-template-columns:repeat(auto-fit,minmax(28rem,1fr)); gap:0 2.5rem; }
.row { display:flex; font-size:.85rem; line-height:1.5rem; }
.row span { width:42%; text-align:right; padding-right:.6rem; white-space:nowrap; overflow:hidden; }
.row div { width:58%; white-space:nowrap; } small { color:var(--soft); padding-left:.4rem; }
i { display:inline-block; height:.9rem; min-width:2px; vertical-align:middle; }
p i { width:.9rem; } .bar { background:var(--bar); border-radius:0 3px 3px 0; }
.live { background:var(--good); } .gone { background:var(--gone); } .lost { background:var(--bad); }
""".strip()


def write_report(folder: Path, report: Report) -> Path:
    """Writes report.html into `folder`, as a whole; returns its path."""
    file = folder / "report.html"
    draft = folder / ".report.html.draft"
    draft.write_text(_page(report), encoding="utf-8", errors="backslashreplace")
    draft.replace(file)
    return file


def _page(report: Report) -> str:
    title = f"Audit of {count(len(report.summaries), 'directory', 'directories')}, {report.day}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{size(report.bytes)} in {duration(report.seconds)}, {_text(report.how)}.</p>",
        _verdict(report),
        _tiles(report),
        _kinds(report),
        f'<div class="plots">{"".join(_plots(report))}</div>',
        _findings(report),
        _brokers(report),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _text(value: object) -> str:
    return escape(printable(str(value)))


def _verdict(report: Report) -> str:
    bad = sum(summary.severity == "damage" for summary in report.summaries)
    if bad:
        told = count(bad, "directory is", "directories are")
        return f'<p class="damage">{told} damaged.</p>'
    return '<p class="ok">Nothing is damaged.</p>'


def _tiles(report: Report) -> str:
    tiles = [
        (f"{report.queues:,}", "queues"),
        (f"{report.sum('found'):,}", "messages in the files"),
        (f"{report.sum('live'):,}", f"live, {size(report.sum('live_bytes'))}"),
        (f"{report.sum('lost'):,}", "lost"),
        (size(report.file_bytes("garbage_bytes")), "garbage in message files"),
        (duration(report.sum("recovery_us") / 1e6), "to read all indexes"),
    ]
    cells = "".join(f'<div><b>{_text(n)}</b><span class="soft">{t}</span></div>' for n, t in tiles)
    return f'<div class="tiles">{cells}</div>'


def _kinds(report: Report) -> str:
    rows = []
    for kind, number in report.kinds.items():
        severity, meaning = KINDS[kind]
        places = sum(kind in summary.kinds for summary in report.summaries)
        cells = [_text(kind), severity, f"{number:,}", f"{places:,}", _text(meaning)]
        rows.append((severity, cells))
    if not rows:
        return ""
    return "<h2>Findings</h2>" + _table(
        ["finding", "severity", "#count", "#directories", "meaning"], rows
    )


def _table(columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Rows are (class, cells); a column with # stands right. Cells are escaped already."""
    head = "".join(
        f"<th{' class=n' if name[0] == '#' else ''}>{name.lstrip('#')}</th>" for name in columns
    )
    body = []
    for style, cells in rows:
        tds = [
            f"<td class=n>{cell}</td>"
            if name[0] == "#"
            else f"<td{f' class={style}' if style and name in ('severity', 'worst') else ''}>"
            f"{cell}</td>"
            for name, cell in zip(columns, cells, strict=True)
        ]
        body.append(f"<tr>{''.join(tds)}</tr>")
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _findings(report: Report) -> str:
    rows = []
    for summary, row in report.findings(FINDINGS_MAX):
        place = f"{row['file']} at {row.get('offset') or 0:,}" if row.get("file") else ""
        req_id = "" if row.get("req_id") is None else f"{row['req_id']:,}"
        cells = [summary.broker, row.get("queue") or "", row["kind"], row["severity"], req_id]
        cells += [f"{row['count']:,}", place, row["text"]]
        rows.append((row["severity"], [_text(cell) for cell in cells]))
    if not rows:
        return ""
    columns = ["broker", "queue", "finding", "severity", "#message", "#count", "file", "text"]
    return "<h2>The worst of them</h2>" + _table(columns, rows)


def _brokers(report: Report) -> str:
    ranked = sorted(report.summaries, key=lambda each: (-each.sums["lost"], -each.sums["live"]))
    rows = [(each.severity or "", _broker(each)) for each in ranked[:BROKERS_MAX]]
    columns = ["broker", "format", "#queues", "#live", "#gone", "#lost", "#bytes", "#garbage"]
    more = ""
    if len(ranked) > BROKERS_MAX:
        more = f"<p>… and {len(ranked) - BROKERS_MAX:,} more: the table queues has them.</p>"
    return "<h2>Brokers</h2>" + _table([*columns, "#recovery", "worst"], rows) + more


def garbage_of(summary: Summary) -> str:
    """A dash if the format does not tell."""
    told = summary.file_bytes.get("garbage_bytes")
    return "-" if told is None else size(told)


def _broker(summary: Summary) -> list[str]:
    sums = [f"{summary.sums[name]:,}" for name in ("live", "gone", "lost")]
    sizes = [size(summary.bytes), garbage_of(summary)]
    cost = duration(summary.sums["recovery_us"] / 1e6)
    cells = [summary.broker, summary.format, f"{summary.queues:,}", *sums, *sizes, cost]
    return [_text(cell) for cell in [*cells, summary.severity or ""]]


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
    return _plot(title, [(name, [("bar", value / most)], shown(value)) for name, value in rows])


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
    legend = "".join(f'<i class="{name}"></i> {name} &emsp;' for name in ("live", "gone", "lost"))
    return _plot(title, rows, f"<p>{legend}</p>")


def _plot(
    title: str, rows: Sequence[tuple[str, Sequence[tuple[str, float]], str]], note: str = ""
) -> str:
    """Rows are (name, (class, share of the whole length) of each part, value). None: no plot."""
    lines = []
    for name, parts, value in rows:
        bars = "".join(
            f'<i class="{style}" style="width:{75 * share:.2f}%"></i>'
            for style, share in parts
            if share
        )
        lines.append(
            f'<div class="row"><span title="{_text(name)}">{_short(name)}</span>'
            f"<div>{bars}<small>{_text(value)}</small></div></div>"
        )
    return f"<section><h2>{title}</h2>{note}{''.join(lines)}</section>" if lines else ""


def _short(name: str) -> str:
    """The end of a name says more than its beginning."""
    shown = printable(name)
    return escape(shown if len(shown) <= 34 else "…" + shown[-33:])
