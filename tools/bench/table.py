"""The figures as tables: aligned text for a terminal, reStructuredText for the docs."""

from collections.abc import Sequence
from dataclasses import dataclass

from plan import BYTES, FLOOR_NAMES, LARGE, MB, MS, NUMBER, RATE, ROWS, SMALL, TIMES, Row
from results import Results
from systems import System

NOTHING = "-"
GREEN, RED, PLAIN = "\033[32m", "\033[31m", "\033[0m"


@dataclass(frozen=True)
class Report:
    """All that a table needs, however it is printed."""

    results: Results
    labels: dict[str, str]  # by figure, with this run's counts
    systems: dict[str, type[System]]
    versions: dict[str, str]
    missing: list[str]
    facts: dict[str, str]
    command: str
    rounds: int
    quick: bool

    @property
    def rivals(self) -> list[str]:
        """Those that do the same work: what loses messages on kill -9 is listed, not compared."""
        return [
            key for key, system in self.systems.items() if key != "qindex" and system.kill9_safe
        ]

    def name(self, system: str) -> str:
        return FLOOR_NAMES.get(system) or self.systems[system].name


def number(value: float | None, unit: str) -> str:
    """Three digits and a unit: 2.51 M/s, 912 /s, 8.4 ms."""
    if value is None:
        return NOTHING
    if unit != RATE:
        text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        return text + {MS: " ms", MB: " MB", BYTES: " B", TIMES: " x", NUMBER: ""}[unit]
    for size, prefix in ((1e6, "M"), (1e3, "k")):
        # What would round up to 1000 k is 1 M.
        if value >= size * 0.9995:
            return f"{three_digits(value / size)} {prefix}/s"
    return f"{three_digits(value)} /s"


def three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"


def verdict(row: Row, value: float | None) -> str:
    passed = None if value is None else row.passes(value)
    return {None: "", True: "pass", False: "MISS"}[passed]


def target_text(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{'>=' if row.more_is_better else '<='} {number(row.target, row.unit)}"


def target_table(report: Report) -> list[list[str]]:
    """qindex against the issue's targets, with the floor and the best other system beside it."""
    header = [
        "work",
        "target",
        "100 B",
        "spread",
        "",
        "raw floor",
        "best other, kill -9 safe",
        "1 KiB",
        "",
    ]
    lines = [header]
    results = report.results
    for row in ROWS:
        small = results.median(row.figure, SMALL, "qindex")
        large = results.median(row.figure, LARGE, "qindex")
        spread = results.spread(row.figure, SMALL, "qindex")
        floor = results.median(row.figure, SMALL, "floor")
        best = results.best_of(row.figure, SMALL, report.rivals)
        lines.append(
            [
                report.labels[row.figure],
                target_text(row),
                number(small, row.unit),
                NOTHING if spread is None else f"+-{spread:.0%}",
                "" if report.quick else verdict(row, small),
                number(floor, row.unit),
                f"{number(best[1], row.unit)} {report.name(best[0])}" if best else NOTHING,
                number(large, row.unit),
                verdict(row, large) if row.any_size and not report.quick else "",
            ]
        )
    return lines


SYSTEM_COLUMNS = {
    "publish": "publish",
    "get_ack": "get + ack",
    "cycle": "cycle",
    "batch_publish": "publish x100",
    "batch_get_ack": "get+ack x100",
    "sync_each": "sync each",
    "sync_batch": "sync /1000",
    "reopen_ms_1m": "reopen",
    "disk_per_message_1m": "disk/msg",
}


def systems_table(report: Report, body_bytes: int) -> list[list[str]]:
    """Every system's figures for one body size."""
    rows = {row.figure: row for row in ROWS}
    lines = [["system", *SYSTEM_COLUMNS.values()]]
    for system in (*FLOOR_NAMES, *report.systems):
        cells = [
            number(report.results.median(figure, body_bytes, system), rows[figure].unit)
            for figure in SYSTEM_COLUMNS
        ]
        if any(cell != NOTHING for cell in cells):
            lines.append([report.name(system), *cells])
    return lines


def promises(report: Report) -> list[tuple[str, list[str]]]:
    """What each system promises with the settings used, and what a kill -9 showed."""
    found = []
    for key, system in report.systems.items():
        lines = [f"settings: {system.settings}", f"kill -9: {system.on_kill9}"]
        seen = report.results.after_kill9(SMALL, key)
        if seen is not None:
            lines.append(f"kill -9, seen here: {seen}")
        lines.append(f"power cut: {system.on_power_cut}")
        found.append((f"{system.name} {report.versions.get(key, '')}".strip(), lines))
    return found


def align(lines: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned first column, right-aligned others, two blanks between."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def as_text(report: Report, *, colour: bool = False) -> str:
    parts = [heading(report), ""]
    parts += [f"{name}: {value}" for name, value in report.facts.items()]
    parts += [f"not installed, skipped: {name}" for name in report.missing]
    targets = align(target_table(report))
    parts += ["", *(map(paint, targets) if colour else targets)]
    for body_bytes, size in ((SMALL, "100 B"), (LARGE, "1 KiB")):
        lines = systems_table(report, body_bytes)
        if len(lines) > 1:
            parts += ["", f"All systems, {size} bodies", *align(lines)]
    parts.append("")
    for name, promised in promises(report):
        parts += [name, *(f"   {line}" for line in promised)]
    parts += [f"FAILED: {failure}" for failure in report.results.failures]
    return "\n".join(parts) + "\n"


def heading(report: Report) -> str:
    kind = "smoke run, figures mean little" if report.quick else "interleaved, medians"
    return f"{report.command}  ({rounds_text(report)}, {kind})"


def rounds_text(report: Report) -> str:
    return f"{report.rounds} round{'s' if report.rounds > 1 else ''}"


def paint(line: str) -> str:
    return line.replace(" pass", f" {GREEN}pass{PLAIN}").replace(" MISS", f" {RED}MISS{PLAIN}")


RST_INTRODUCTION = """\
Benchmark results
=================

Made by one command on one machine, which rewrites this file::

    {command}

{rounds}, interleaved, medians; every measurement runs in a fresh process and a fresh
directory, as plain Python loops in one thread. A slow system handles fewer messages: rates are per
second of what it did. The spread is half the distance of the extremes. *Raw floor* is C that copies
a body and its CRC32C into a mapped, preallocated file and reads it back; for sync rows it writes
one 4 KiB block and calls fdatasync; for published batches it writes the bodies once to new blocks,
65,536 of them per fdatasync, as a flush must; for reopening it reads 65,536 bodies that were
synced as they came, after one more sync, as recovery must with a full journal. 2 GiB of touched
memory are freed just before each measurement, as a virtual machine may have to fetch what it uses
first from its host. *Best known before* was measured earlier, with other programs.
"""


def as_rst(report: Report) -> str:
    parts = [RST_INTRODUCTION.format(command=report.command, rounds=rounds_text(report))]
    parts += [f":{name}: {value}" for name, value in report.facts.items()]
    parts += [f":not installed, skipped: {name}" for name in report.missing]
    lines = target_table(report)
    lines[0][4], lines[0][-1] = "met", "met (1 KiB)"
    known = ["best known before", *(row.best_known for row in ROWS)]
    parts += ["", *rst_section("qindex against its targets")]
    parts += rst_table([[*line, best] for line, best in zip(lines, known, strict=True)])
    for body_bytes, size in ((SMALL, "100 B"), (LARGE, "1 KiB")):
        lines = systems_table(report, body_bytes)
        if len(lines) > 1:
            parts += ["", *rst_section(f"All systems, {size} bodies"), *rst_table(lines)]
    parts += ["", *rst_section("What each promises")]
    for name, promised in promises(report):
        parts += [name, *(f"   | {line}" for line in promised), ""]
    return "\n".join(parts).rstrip() + "\n"


def rst_section(title: str) -> list[str]:
    return [title, "-" * len(title), ""]


def rst_table(lines: Sequence[Sequence[str]]) -> list[str]:
    """A simple table. A lone dash would print as a list of one empty item; only the first column
    must not be empty."""
    cells = [["" if cell == NOTHING else cell for cell in line] for line in lines]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    rule = "  ".join("=" * width for width in widths)
    header, *body = align(cells)
    return [rule, header, rule, *body, rule]
