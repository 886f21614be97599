"""The pictures of `qindex plot`, drawn with matplotlib. The same numbers give the same bytes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from qindex.cli.plot.depth import Curve
from qindex.cli.plot.recovery import Times
from qindex.cli.plot.slots import COLUMNS, KINDS, SlotMap
from qindex.look.text import count, duration, rate, size
from qindex.look.usage import rest_of
from qindex.moments import utc
from qindex.private import open_private

# Colours that people who see no red or no green can tell apart (Okabe and Ito).
BLUE: Final = "#0072B2"
ORANGE: Final = "#E69F00"
GREEN: Final = "#009E73"
RED: Final = "#D55E00"
GREY: Final = "#BBBBBB"
_MAPS: Final = {"published": "Blues", "delivered": "Oranges", "acked": "Greens", "live": "Reds"}
_STYLE: Final[Any] = {
    "svg.fonttype": "none",  # text stays text: small, and it can be searched
    "svg.hashsalt": "qindex",
    "text.parse_math": False,  # names are text
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_SEGMENT_LINES_MAX: Final = 40
_FILE_NAMES_MAX: Final = 24
_ROOM_FOR_LEGEND: Final = 1.3
_NAME_LETTERS_MAX: Final = 80  # beside each other


def _save(figure: Figure, out: Path) -> None:
    metadata = {"Date": None} if out.suffix.lower() == ".svg" else {"Software": "qindex"}
    with warnings.catch_warnings():  # a name may have characters that no font here has
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        with open_private(out) as file:
            figure.savefig(file, dpi=110, metadata=metadata, format=out.suffix.lower()[1:])


def slots(found: SlotMap, out: Path) -> None:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.5, 4.6), layout="constrained")
        figure.suptitle(f"slots of {found.queue}, {count(found.cell_slots, 'ReqId')} a cell")
        panels = figure.subplots(1, len(KINDS), sharey=True)
        row_slots = COLUMNS * found.cell_slots
        rows = len(found.cells["live"])
        end = found.first + rows * row_slots
        for panel, kind in zip(panels, KINDS, strict=True):
            panel.set_title(f"{found.totals[kind]:,} {kind}", fontsize=9)
            panel.set_facecolor("#EEEEEE")
            panel.set_xticks([0, row_slots // 2, row_slots])
            panel.set_xlabel("+ ReqId")
            if not rows:
                continue
            colours = matplotlib.colormaps[_MAPS[kind]].with_extremes(under="#EEEEEE")
            shares = [[cell / found.cell_slots for cell in row] for row in found.cells[kind]]
            panel.imshow(
                shares,
                cmap=colours,
                vmin=0,
                vmax=1,
                aspect="auto",
                interpolation="nearest",
                extent=(0, row_slots, end, found.first),
            )
            _segment_lines(panel, found, end)
        panels[0].set_ylabel("ReqId of the row")
        panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        note = "full colour: every slot of the cell; grey: no file, all of it was acked"
        if (end - found.first) // found.segment_slots < _SEGMENT_LINES_MAX:
            note += "; lines: segments"
        figure.supxlabel(note, fontsize=8, color="#555555")
        _save(figure, out)


def _segment_lines(panel: Any, found: SlotMap, end: int) -> None:
    starts = range(found.first, end, found.segment_slots)
    if len(starts) <= _SEGMENT_LINES_MAX:
        for start in starts:
            panel.axhline(start, color="#888888", linewidth=0.5)


def depth(curve: Curve, out: Path) -> None:
    with matplotlib.rc_context(_STYLE):
        has_age = bool(curve.age_seconds)
        figure = Figure(figsize=(8, 4.6 if has_age else 2.6), layout="constrained")
        span = ""
        if curve.began is not None and curve.ended is not None:
            moments = [utc(int(t)) for t in (curve.began, curve.ended)]
            span = f", clocks from {moments[0]} to {moments[1]}"
        told = f"{count(curve.records, 'record')} in its journals{span}"
        if not curve.records:
            told = f"{count(curve.depth[-1], 'message')}; nothing happened since the last flush"
        figure.suptitle(f"{curve.queue}: {told}")
        panels = figure.subplots(2 if has_age else 1, 1, sharex=True, squeeze=False)[:, 0]
        numbers, depths = curve.numbers, curve.depth
        if not curve.records:
            numbers, depths = [0, 1], 2 * curve.depth[-1:]
        panels[0].fill_between(numbers, depths, facecolor=BLUE + "59", edgecolor=BLUE, linewidth=1)
        panels[0].set_ylabel("messages")
        panels[0].set_ylim(0, 1.05 * max(1, *depths))
        panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        _times(panels[0], curve)
        if has_age:
            _ages(panels[1], curve)
        panels[-1].set_xlabel("record")
        panels[-1].set_xlim(0, max(1, curve.records))
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        _save(figure, out)


def _times(panel: Any, curve: Curve) -> None:
    """Burials and delays so far, where there are any."""
    most: float = max([1, *curve.depth])
    for counts, colour, one in ((curve.buried, RED, "burial"), (curve.held, ORANGE, "delay")):
        if counts and counts[-1]:
            label = f"{count(counts[-1], one)}, so far"
            panel.plot(curve.numbers, counts, color=colour, linewidth=1.2, label=label)
            panel.legend(loc="upper left", frameon=False)
            most = max(most, _ROOM_FOR_LEGEND * counts[-1])
            panel.set_ylim(0, 1.05 * most)


def _ages(panel: Any, curve: Curve) -> None:
    nan = float("nan")
    for is_older, style, label in (
        (False, "solid", "age of the oldest message"),
        (True, "dotted", "it is older than that"),
    ):
        ages = [
            nan if age is None or older != is_older else age
            for age, older in zip(curve.age_seconds, curve.older, strict=True)
        ]
        if any(age == age for age in ages):
            panel.plot(curve.numbers, ages, color=RED, linestyle=style, linewidth=1.2, label=label)
            panel.legend(loc="upper left", frameon=False)
    panel.set_ylabel("age")
    panel.set_ylim(0, _ROOM_FOR_LEGEND * max([age for age in curve.age_seconds if age] or [1.0]))
    panel.yaxis.set_major_formatter(lambda value, _: duration(value) if value else "0")


def files(found: list[dict[str, Any]], out: Path) -> None:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        panel = figure.subplots()
        is_known = all(file["garbage_bytes"] is not None for file in found)
        live, room = ([file[f"{kind}_bytes"] for file in found] for kind in ("live", "room"))
        sizes = zip(found, live, room, strict=True)
        parts = {
            "live": (live, GREEN),
            rest_of(unread=not is_known): (
                [max(0, file["bytes"] - used - free) for file, used, free in sizes],
                RED if is_known else ORANGE,
            ),
            "room": (room, GREY),
        }
        told = " + ".join(f"{size(sum(heights))} {kind}" for kind, (heights, _) in parts.items())
        figure.suptitle(f"{count(len(found), 'message file')}: {told}")
        bottom = [0] * len(found)
        for kind, (heights, colour) in parts.items():
            panel.bar(range(len(found)), heights, bottom=bottom, color=colour, label=kind)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        panel.yaxis.set_major_formatter(lambda value, _: size(value))
        panel.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        if len(found) <= _FILE_NAMES_MAX:
            names = [file["file"].rpartition("/")[2] for file in found]
            if sum(map(len, names)) <= _NAME_LETTERS_MAX:
                panel.set_xticks(range(len(found)), names)
            else:
                panel.set_xticks(range(len(found)), names, rotation=45, ha="right")
        else:
            panel.set_xlabel("message file, by number")
        _save(figure, out)


def recovery(times: Times, out: Path) -> None:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7, 4), layout="constrained")
        panel = figure.subplots()
        messages = sum(reading.messages for reading in times.readings)
        seconds = sum(reading.seconds for reading in times.readings)
        speed = rate(messages, seconds)
        figure.suptitle(
            f"{count(messages, 'message')} read in {duration(seconds)} ({speed}/s);"
            f" opened in {duration(sum(opening.seconds for opening in times.openings))}"
        )
        shown = [reading for reading in times.readings if reading.messages]
        panel.scatter(
            [reading.bytes or 1 for reading in shown],
            [reading.seconds for reading in shown],
            s=[12 + 60 * reading.messages / max(1, messages) for reading in shown],
            color=BLUE,
            alpha=0.7,
            label="reading a queue, by its bodies",
        )
        panel.scatter(
            [opening.bytes or 1 for opening in times.openings],
            [opening.seconds for opening in times.openings],
            marker="D",
            color=ORANGE,
            label="opening a directory, by its files",
        )
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("size")
        panel.set_ylabel("time")
        panel.xaxis.set_major_formatter(lambda value, _: size(value))
        panel.yaxis.set_major_formatter(lambda value, _: duration(value))
        panel.grid(alpha=0.3)
        panel.legend(loc="upper left", frameon=False)
        _save(figure, out)
