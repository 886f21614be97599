"""Small tables of figures, cut out of what the last run of the benchmark wrote.

conf.py writes the table of the page "Compared with others" before each build; `tools/docs.py
--readme` writes the README's. So no figure is typed by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "tools/bench/RESULTS.rst"
README: Final = ROOT / "README.rst"
COMPARED: Final = Path(__file__).with_name("guide") / "figures.inc"
TARGETS: Final = "qindex against its targets"
SYSTEMS: Final = "All systems, 100 B bodies"
README_ROWS: Final = {  # a row of the benchmark: what the README calls it
    "publish, one call each": "publish, one call each",
    "get + ack, one call each": "get and ack, one call each",
    "durable, one sync per message": "durable publish, one sync for each",
    "durable, one sync per 1000": "durable publish, one sync per 1,000",
    "reopen after kill -9, 1 M waiting, to first message": "open after kill -9, 1 M waiting",
    "resident memory, 10 M waiting, published": "memory, 10 M waiting",
}
BEGIN: Final = ".. The table is written by: python tools/docs.py --readme\n\n"
END: Final = ".. The table ends here.\n"


def table(title: str) -> list[dict[str, str]]:
    """The rows of the simple table below a heading of the results, by the names of the columns."""
    text = RESULTS.read_text("utf-8")
    part = text.partition(f"\n{title}\n")[2]
    lines = iter(part.splitlines())
    ruler = next(line for line in lines if line.startswith("==="))
    columns = [found.span() for found in re.finditer("=+", ruler)]

    def cells(line: str) -> list[str]:
        last = len(columns) - 1
        return [
            line[start : None if i == last else stop].strip()
            for i, (start, stop) in enumerate(columns)
        ]

    names = cells(next(lines))
    if next(lines) != ruler:
        raise ValueError(f"no simple table below {title!r}")
    rows = []
    for line in lines:
        if line.startswith("==="):
            return rows
        rows.append(dict(zip(names, cells(line), strict=True)))
    raise ValueError(f"the table {title!r} does not end")


def readme_table() -> str:
    """The six figures of the README, beside the best other queue that survives kill -9."""
    rows = {row["work"]: row for row in table(TARGETS)}
    lines = [("", "qindex", "best other that survives kill -9")]
    for name, shown in README_ROWS.items():
        row = rows[name]
        lines.append((shown, row["100 B"], row["best other, kill -9 safe"] or "\\-"))
    return _simple(lines)


def write_readme() -> None:
    """Put the figures of the last run into the README."""
    text = README.read_text("utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{README} has no place for the table")
    README.write_text(f"{head}{begin}{readme_table()}\n{end}{tail}", "utf-8")


def write_comparison() -> None:
    """Write the table of the page "Compared with others"."""
    chosen = ("publish", "get + ack", "publish x100", "sync each", "sync /1000", "disk/msg")
    rows = [row for row in table(SYSTEMS) if not row["system"].startswith("raw floor")]
    lines = [("system", *chosen)]
    lines += [(row["system"], *(row[name] or "\\-" for name in chosen)) for row in rows]
    targets = {row["work"]: row for row in table(TARGETS)}
    one = targets["reopen after kill -9, 1 M waiting, to first message"]
    ten = targets["reopen after kill -9, 10 M waiting, to first message"]
    its, _, other = one["best other, kill -9 safe"].rpartition(" ")
    long, _, before = one["best known before"].partition(" ms ")
    text = f"""{_simple(lines)}
After ``kill -9`` with a million messages waiting, the first message came {one["100 B"]} after the
open began; with ten million, {ten["100 B"]}. For a million, {other} took {its}, and {before},
measured on an earlier day, {long} ms.
"""
    if not COMPARED.exists() or COMPARED.read_text("utf-8") != text:
        COMPARED.write_text(text, "utf-8")


def _simple(lines: list[tuple[str, ...]]) -> str:
    """A simple table of reStructuredText; an empty first cell is written as a backslash."""
    cells = [(line[0] or "\\", *line[1:]) for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    ruler = "  ".join("=" * width for width in widths)
    body = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
    return "\n".join([ruler, body[0].rstrip(), ruler, *(b.rstrip() for b in body[1:]), ruler, ""])
