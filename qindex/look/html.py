"""Pages of HTML for reports: one file each, which loads nothing and runs nothing.

All that comes from files is foreign text and goes through text(). Everything else here takes and
returns HTML. No library is needed, so that a report can be written on a bare machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from qindex.look.text import printable, shorten

LABEL_COLUMNS_MAX: Final = 100
_PLOT_PERCENT: Final = 75  # of a row's width, the longest bar; its value stands behind it
_STYLE: Final = """
:root { --page:#fcfcfb; --ink:#0b0b0b; --soft:#52514e; --line:#e1e0d9; --bar:#2a78d6;
  --good:#0ca30c; --gone:#c3c2b7; --bad:#d03b3b; --warning:#b97a00; --plate:#f3f3ef; }
@media (prefers-color-scheme: dark) { :root { --page:#1a1a19; --ink:#fff; --soft:#c3c2b7;
  --line:#2c2c2a; --bar:#3987e5; --gone:#52514e; --bad:#e66767; --warning:#fab219;
  --plate:#2c2c2a; } }
body { font:15px/1.5 system-ui,sans-serif; background:var(--page); color:var(--ink);
  max-width:70rem; margin:2rem auto; padding:0 1.5rem; }
h1 { font-size:1.5rem; margin-bottom:0; } h2 { font-size:1.1rem; margin:2.2rem 0 .6rem; }
p, .soft, footer { color:var(--soft); } p { margin:.2rem 0; } code { background:var(--plate); }
footer { margin-top:3rem; font-size:.85rem; }
p.verdict { font-size:1.1rem; color:var(--ink); padding:.5rem .8rem; margin:1rem 0;
  border-left:6px solid; background:var(--plate); }
p.good { border-color:var(--good); } p.bad { border-color:var(--bad); }
.table { overflow-x:auto; } table { border-collapse:collapse; width:100%; font-size:.9rem; }
th { text-align:left; color:var(--soft); font-weight:500; }
th, td { padding:.25rem .8rem .25rem 0; border-bottom:1px solid var(--line); vertical-align:top; }
td { overflow-wrap:anywhere; } tr.total td { font-weight:600; }
.n { text-align:right; white-space:nowrap; font-variant-numeric:tabular-nums; }
td.where { font-family:ui-monospace,monospace; font-size:.85em; word-break:break-all; }
.damage, .suspected { color:var(--bad); font-weight:600; } .warning { color:var(--warning); }
.damage, .suspected, .warning, .note { white-space:nowrap; } .note { color:var(--soft); }
.tiles { display:flex; flex-wrap:wrap; gap:1rem 2.5rem; margin:1.2rem 0; }
.tiles b { display:block; font-size:1.6rem; font-weight:600; }
.plots { display:grid; gap:0 2.5rem;
  grid-template-columns:repeat(auto-fit,minmax(min(28rem,100%),1fr)); }
.row { display:flex; align-items:center; font-size:.85rem; min-height:1.5rem; padding:.15rem 0; }
.row span { width:42%; text-align:right; padding-right:.6rem; overflow-wrap:anywhere;
  line-height:1.2; box-sizing:border-box; }
.row div { width:58%; white-space:nowrap; } small { color:var(--soft); padding-left:.4rem; }
i { display:inline-block; height:.9rem; min-width:2px; vertical-align:middle; }
.share { min-width:6rem; white-space:nowrap; background:var(--plate); line-height:1; }
.key i { width:.9rem; margin:0 .3rem 0 1rem; }
.bar { background:var(--bar); border-radius:0 3px 3px 0; } .live { background:var(--good); }
.gone { background:var(--gone); } .lost { background:var(--bad); }
.expired { background:var(--warning); }
@media print { body { font-size:10px; max-width:none; margin:0; padding:0 }
  i { print-color-adjust:exact } }
"""
_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def page(title: str, parts: Iterable[str]) -> bytes:
    """The whole file. Empty parts are left out."""
    body = "\n".join(part for part in parts if part)
    return _PAGE.format(title=text(title), style=_STYLE, body=body).encode()


def text(value: object) -> str:
    """Foreign text: no markup, nothing that steers, no half characters."""
    return escape(printable(str(value)).encode("utf-8", "backslashreplace").decode())


def verdict(told: str, *, good: bool) -> str:
    return f'<p class="verdict {"good" if good else "bad"}">{text(told)}</p>'


def severity(name: str) -> str:
    """The severity of a finding, in its colour."""
    return f'<span class="{text(name)}">{text(name)}</span>' if name else ""


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, last_is_total: bool = False
) -> str:
    """Columns under headings: `>name` stands right, `@name` holds places. Cells are HTML."""
    kinds = [{">": ' class="n"', "@": ' class="where"'}.get(name[:1], "") for name in columns]
    head = "".join(
        f"<th{kind}>{text(name.lstrip('<>@'))}</th>"
        for kind, name in zip(kinds, columns, strict=True)
    )
    lines = [
        "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True))
        for row in rows
    ]
    body = [f"<tr>{line}</tr>" for line in lines]
    if last_is_total and lines:
        body[-1] = f'<tr class="total">{lines[-1]}</tr>'
    return '<div class="table"><table>\n' + "\n".join([f"<tr>{head}</tr>", *body, "</table></div>"])


def share(parts: Iterable[tuple[int, str, str]], whole: int) -> str:
    """A bar of (number, class, what it is), which together are `whole`."""
    bars = "".join(
        f'<i class="{kind}" style="width:{number * 100 / whole:.2f}%"'
        f' title="{number:,} {text(what)}"></i>'
        for number, kind, what in parts
        if number
    )
    return f'<div class="share">{bars}</div>'


def key(classes: Iterable[str]) -> str:
    """What the colours of bars mean."""
    return '<p class="key">' + "".join(f'<i class="{name}"></i>{name}' for name in classes) + "</p>"


def plot(
    title: str, rows: Sequence[tuple[str, Sequence[tuple[str, float]], str]], note: str = ""
) -> str:
    """Names left, bars, values at their ends. Without rows there is no plot.

    Rows are (name, (class, share of the longest bar) of each part, value).
    """
    lines = []
    for name, parts, value in rows:
        bars = "".join(
            f'<i class="{kind}" style="width:{_PLOT_PERCENT * part:.2f}%"></i>'
            for kind, part in parts
            if part
        )
        label = text(shorten(printable(name), LABEL_COLUMNS_MAX))
        lines.append(
            f'<div class="row"><span title="{text(name)}">{label}</span>'
            f"<div>{bars}<small>{text(value)}</small></div></div>"
        )
    return f"<section><h2>{text(title)}</h2>{note}{''.join(lines)}</section>" if lines else ""
