"""The report of one recovery as a page to send to a colleague: one file that loads nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

import qindex
from qindex.cli.screen import CommandError
from qindex.cli.stores import damage_count
from qindex.cli.text import count, duration, printable, rate, size
from qindex.formats.reader import Account, DeadNode, total
from qindex.formats.recover import RecoverReport

FINDINGS_MAX: Final = 500
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em;
       color: #222; background: #fff }
h1 { font-size: 1.5em; margin-bottom: 0.2em } h2 { font-size: 1.15em; margin-top: 2em }
p.verdict { font-size: 1.1em; padding: 0.6em 0.8em; border-left: 6px solid }
p.good { border-color: #009e73; background: #eefaf5 }
p.bad { border-color: #d55e00; background: #fdf1e8 }
table { border-collapse: collapse; width: 100% }
th, td { padding: 0.25em 0.6em; border-bottom: 1px solid #ddd; text-align: left;
         vertical-align: top }
th { font-weight: 600; border-bottom: 2px solid #888 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
td.n { white-space: nowrap } .table { overflow-x: auto }
td.where { font-family: ui-monospace, monospace; font-size: 0.85em; word-break: break-all }
tr.total td { font-weight: 600 } .damage { color: #b24a00; font-weight: 600 }
.bar { display: flex; height: 1.1em; min-width: 6em; background: #eee }
.bar span { display: block; height: 100% }
.live { background: #009e73 } .gone { background: #bbb } .lost { background: #d55e00 }
.expired { background: #e69f00 }
.key span { display: inline-block; width: 0.9em; height: 0.9em; margin: 0 0.3em 0 1em }
@media print { body { font-size: 10px; max-width: none; margin: 0; padding: 0 }
               .bar, .key span { print-color-adjust: exact } }
footer { margin-top: 3em; color: #666; font-size: 0.85em } code { background: #f3f3f3 }
"""
_HEAD: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
"""
_FOOT: Final = """\
<footer>qindex {version}. Nothing in the directory was changed. This page loads nothing.</footer>
</body>
</html>
"""


def place_of(path: str) -> Path:
    """Before the work is done: CommandError if no report could be written there."""
    file = Path(path).resolve()
    if not file.parent.is_dir() or file.is_dir():
        raise CommandError(f"no file can be written at {path!r}: name one in a directory")
    return file


def page(node: DeadNode, report: RecoverReport | None, asked: Path, into: str | None) -> str:
    """`report` and `into`: None if the directory was only read."""
    title = f"{node.kind} {printable(node.name)}"
    parts = [
        _HEAD.format(title=_text(f"Recovery of {title}"), style=_STYLE),
        f"<h1>Recovery of {_text(title)}</h1>",
        f"<p>{time.strftime('%Y-%m-%d %H:%M:%S %z')}; directory <code>{_text(str(asked))}</code>",
        f", into the store <code>{_text(into)}</code></p>" if into else ", only read</p>",
        _verdict(node, report),
        _account(total(node.queues), report),
        _queues(node),
        "" if report is None else _recovered(report),
        _findings(node),
        *(f"<p>{_text(remark)}</p>" for remark in node.remarks),
        _next_steps(asked, into),
        _FOOT.format(version=_text(qindex.__version__)),
    ]
    return "\n".join(part for part in parts if part)


def _text(text: str) -> str:
    """Names are foreign: no markup, nothing that steers, no half characters."""
    return escape(printable(text).encode("utf-8", "backslashreplace").decode())


def _verdict(node: DeadNode, report: RecoverReport | None) -> str:
    account, damage = total(node.queues), damage_count(node.findings)
    lost = sum(account.lost.values()) + (report.unreadable if report else 0)
    live = f"{count(account.live, 'live message')} ({size(account.live_body_bytes)})"
    if report is None:
        told = f"{live} can be recovered."
    else:
        speed = rate(report.messages, report.seconds)
        told = (
            f"{count(report.messages, 'message')} of {live} recovered and synced, in"
            f" {duration(report.seconds)} ({speed}/s)."
        )
        if report.expired:
            told += f" {report.expired:,} had expired and were left out."
    if lost or damage:
        told += f" {count(lost, 'message')} lost; {count(damage, 'damaged place')}."
    else:
        told += " No damage was found."
    return f'<p class="verdict {"bad" if lost or damage else "good"}">{_text(told)}</p>'


# --- accounts -----------------------------------------------------------------------------------


def _account(account: Account, report: RecoverReport | None) -> str:
    gone = [(number, "gone", what) for what, number in account.gone.items()]
    lost = [(number, "lost", what) for what, number in account.lost.items()]
    parts = [(account.live, "live", "live"), *gone, *lost]
    told = " + ".join(f"{number:,} {_text(what)}" for number, _, what in parts)
    text = f"<p>{count(account.found, 'message')} in the files = {told}</p>"
    if report is not None:
        text += (
            f"<p>{report.live:,} live = {report.messages:,} recovered + {report.expired:,} expired"
            f" + {report.unreadable:,} unreadable; {report.redelivered:,} may have been delivered"
            " before</p>"
        )
    return f"<h2>Account</h2>{_bar(parts, account.found)}{text}"


def _bar(parts: Iterable[tuple[int, str, str]], whole: int) -> str:
    spans = "".join(
        f'<span class="{kind}" style="width:{number * 100 / whole:.2f}%"'
        f' title="{number:,} {_text(what)}"></span>'
        for number, kind, what in parts
        if number
    )
    return f'<div class="bar">{spans}</div>'


def _queues(node: DeadNode) -> str:
    account = total(node.queues)
    counts = account.gone | account.lost | account.marks
    others = [name for name, number in counts.items() if number]
    has_groups = len({queue.group for queue in node.queues}) > 1
    group = [node.group_kind] if has_groups else []
    rows = [
        [
            *([_text(queue.group)] if group else []),
            _text(queue.name) + (" (not durable)" if queue.vanishes else ""),
            *_numbers(queue.account, others),
            _share(queue.account),
        ]
        for queue in node.queues
    ]
    rows.append([*([""] if group else []), "all queues", *_numbers(account, others), ""])
    names = [*group, "queue", ">live", ">bytes", *(f">{name}" for name in others), ""]
    key = "".join(f'<span class="{kind}"></span>{kind}' for kind in ("live", "gone", "lost"))
    return f'<h2>Queues</h2><p class="key">{key}</p>{_table(names, rows, last_is_total=True)}'


def _numbers(account: Account, others: Sequence[str]) -> list[str]:
    counts = account.gone | account.lost | account.marks
    told = [f"{counts[name]:,}" if counts.get(name) else "-" for name in others]
    return [f"{account.live:,}", size(account.live_body_bytes), *told]


def _share(account: Account) -> str:
    if not account.found:
        return ""
    gone, lost = sum(account.gone.values()), sum(account.lost.values())
    parts = [(account.live, "live", "live"), (gone, "gone", "gone"), (lost, "lost", "lost")]
    return _bar(parts, account.found)


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
                _text(queue.into),
                f"{queue.live:,}",
                f"{queue.messages:,}",
                size(queue.body_bytes),
                *(f"{number:,}" if number else "-" for number in counts),
                _bar(parts, queue.live) if queue.live else "",
            ]
        )
    return f"<h2>Recovered</h2>{_table(names, rows)}"


def _findings(node: DeadNode) -> str:
    found = sorted(node.findings, key=lambda finding: finding.severity != "damage")
    if not found:
        return "<h2>Findings</h2><p>None: every record could be read.</p>"
    rows = [
        [
            f'<span class="{finding.severity}">{finding.severity}</span>',
            _text(finding.where),
            f"{finding.offset:,}",
            _text(f"{finding.kind}: {finding.text}"),
        ]
        for finding in found[:FINDINGS_MAX]
    ]
    text = _table(["", "file", ">offset", "what"], rows, where=1)
    if len(found) > FINDINGS_MAX:
        text += f"<p>… and {len(found) - FINDINGS_MAX:,} more: qindex recover --json has all.</p>"
    return f"<h2>Findings</h2>{text}"


def _table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    where: int = -1,
    last_is_total: bool = False,
) -> str:
    """Columns whose name begins with > stand right; cells are HTML."""
    kinds = ["n" if name.startswith(">") else "" for name in names]
    if where >= 0:
        kinds[where] = "where"
    heads = zip(kinds, names, strict=True)
    lines = [
        "<tr>" + "".join(f'<th class="{k}">{_text(n.lstrip(">"))}</th>' for k, n in heads) + "</tr>"
    ]
    for number, row in enumerate(rows):
        is_total = last_is_total and number == len(rows) - 1
        cells = "".join(f'<td class="{k}">{c}</td>' for k, c in zip(kinds, row, strict=True))
        lines.append(f'<tr class="total">{cells}</tr>' if is_total else f"<tr>{cells}</tr>")
    return '<div class="table"><table>\n' + "\n".join(lines) + "\n</table></div>"


def _next_steps(asked: Path, into: str | None) -> str:
    if into is None:
        steps = [("take the messages", f"qindex recover {asked} --into STORE")]
    else:
        steps = [
            ("verify every checksum of the store", f"qindex check {into}"),
            ("compare it with the directory, message by message", f"qindex diff {asked} {into}"),
            (
                "publish to a new broker",
                f"qindex republish {into} --amqp URL --checkpoint FILE",
            ),
        ]
    items = "".join(f"<li>{_text(what)}: <code>{_text(how)}</code></li>" for what, how in steps)
    return f"<h2>Next</h2><ul>{items}</ul>"
