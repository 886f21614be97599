"""What a body costs by its size: publish and get + ack, one call each and in batches of 100, first
all of the one and then all of the other; and both in turn, with up to 1000 messages waiting.

    python tools/bench/bodies.py --rounds 5 --dir DISK --out bodies.json --plot bodies.svg
    python tools/bench/bodies.py --draw bodies.json --plot bodies.svg --clock wall

Each round visits every system, size and place (files on the disk of --dir, files in memory), each
measurement in a fresh process and a fresh directory. SQLite, and what is no time, is measured in
the first round only. The floor copies a body with its checksum once into a file whose pages are in
memory, by one call, and reads it once. Both clocks are written down: microseconds of CPU time for
each message (all threads of the process, in the kernel too; what the kernel writes back later is
nobody's), which other programs on the machine disturb least, and messages a second of wall time.
Ratios are of speeds, within a round, so that what drifts, drifts for both: 2 is twice as fast.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import facts
import floor
from loops import Job
from run import WorkFailed, run_work
from systems import System, registry, version
from table import RATE, align, number
from warm import WarmMemory
from works import IN_MEMORY

SIZES = (100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20)
SYSTEMS = ("qindex", "lmdb", "queuelib", "sqlite", "floor")
KILL9_SAFE = ("lmdb", "sqlite")
WORKS = {
    "single": ("publish", "get_ack"),
    "batches": ("batch_publish", "batch_get_ack"),
    "cycle": ("cycle",),
    "headers": ("headers",),
    "leased": ("leased",),
}
FIGURES = {
    "publish": "publish",
    "get_ack": "get + ack",
    "batch_publish": "publish x100",
    "batch_get_ack": "get + ack x100",
    "cycle": "publish + get + ack in turn",
    "headers": "the same with 5 headers",
    "leased": "the same with a lease",
}
AMOUNTS = {  # bytes of the disk for each byte; what is not a rate
    "written": "written by the kernel for each byte published, all wait",
    "written_turns": "the same in turn",
    "disk_after_compaction": "on disk for each byte that lives, half acked, compacted",
}
FEWER = {"headers": (1 << 10, 64 << 10), "leased": (1 << 10, 64 << 10)}  # works at these sizes only
ONCE = ("sqlite",)  # never near the others, and slow to measure
CLOCKS = {"cpu": "_cpu", "wall": ""}  # what a work puts behind the name of a figure
BYTES_MAX, COUNT_MAX, SECONDS_MAX = 256 << 20, 400_000, 0.25
COLOURS = {"qindex": "C0", "lmdb": "C1", "queuelib": "C2", "sqlite": "C3", "floor": "0.5"}
Sample = dict[str, Any]


def measure(
    options: argparse.Namespace, directory: str, size: int, system: str, work: str, library: str
) -> dict[str, float]:
    count = max(min(options.count, BYTES_MAX // size) // 100 * 100, 100)
    fields = (directory, size, count, SECONDS_MAX, library)
    if system == "floor":
        return run_work(Job("bodies_floor", system, *fields)) if library else {}
    return run_work(Job(work, system, *fields))


def works_of(
    system: str, place: str, size: int, number_: int
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each with a clock, or with "amount", and the figures that it has."""
    if system in ONCE and number_ > 0:
        return
    for work, figures in WORKS.items():
        if size in FEWER.get(work, (size,)):
            yield from ((work, clock, figures) for clock in CLOCKS)
    if place == "disk" and system != "floor" and number_ == 0:
        yield "written", "amount", ("written", "written_turns")
        if registry()[system].compact is not System.compact:
            yield "compaction", "amount", ("disk_after_compaction",)


def installed(systems: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """Those that can be measured here, and a line about each of the others."""
    known = registry()
    missing = [name for name in systems if name != "floor" and version(known[name]) is None]
    lines = [f"not installed, not measured: {name} (package {known[name].package})"
             for name in missing]  # fmt: skip
    return tuple(name for name in systems if name not in missing), lines


def rounds(options: argparse.Namespace, library: str, failed: list[str]) -> Iterator[Sample]:
    places = {"disk": options.dir, "memory": Path(IN_MEMORY)}
    with WarmMemory(BYTES_MAX * 5 // 4 >> 20) as memory:
        begun = time.monotonic()
        for number_, size in ((n, size) for n in range(options.rounds) for size in options.sizes):
            spent = (time.monotonic() - begun) / 60
            if number_ and size == options.sizes[0] and spent + spent / number_ > options.minutes:
                return
            for place, parent in ((place, places[place]) for place in options.places):
                plan = {s: list(works_of(s, place, size, number_)) for s in options.systems}
                works = dict.fromkeys(each[0] for every in plan.values() for each in every)
                for work, system in ((w, s) for w in works for s in options.systems):
                    wanted = [each for each in plan[system] if each[0] == work]
                    if not wanted:
                        continue
                    with tempfile.TemporaryDirectory(prefix="qindex-bodies-", dir=parent) as made:
                        os.sync()
                        memory.release()
                        try:
                            figures = measure(options, made, size, system, work, library)
                        except WorkFailed as failure:
                            failed.append(f"FAILED {system} {work} {size} {place}: {failure}")
                            print(failed[-1], file=sys.stderr)
                            figures = {}
                        memory.hold()
                    about = {"round": number_, "size": size, "place": place, "system": system}
                    print(f"{about} {work}", file=sys.stderr)
                    for _, clock, names in wanted:
                        for name in names:
                            rate = figures.get(name + CLOCKS.get(clock, ""))
                            if rate:
                                yield {**about, "figure": name, "clock": clock, "rate": rate}


def size_text(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


class Samples:
    """The rates by one clock, by what was measured; one for each round."""

    def __init__(self, samples: list[Sample], clock: str) -> None:
        self.clock = clock
        self._rates: dict[tuple[str, str, int, str], dict[int, float]] = {}
        samples = [sample for sample in samples if sample["clock"] == clock]
        for sample in samples:
            key = (sample["place"], sample["figure"], sample["size"], sample["system"])
            self._rates.setdefault(key, {})[sample["round"]] = sample["rate"]
        self.sizes = sorted({sample["size"] for sample in samples})
        self.places = sorted({sample["place"] for sample in samples})

    def sizes_of(self, place: str, figure: str) -> list[int]:
        return sorted({key[2] for key in self._rates if key[:2] == (place, figure)})

    def rate(self, place: str, figure: str, size: int, system: str) -> float | None:
        rates = self._rates.get((place, figure, size, system))
        return median(rates.values()) if rates else None

    def cell(self, place: str, figure: str, size: int, system: str) -> str:
        rate = self.rate(place, figure, size, system)
        return number(rate, RATE) if self.clock == "wall" or not rate else f"{1e6 / rate:.3g} us"

    def ratio(self, place: str, figure: str, size: int, others: tuple[str, ...]) -> str:
        """qindex against the best of them in each round: the median, and from where to where."""
        ours = self._rates.get((place, figure, size, "qindex"), {})
        found = []
        for round_number, rate in ours.items():
            theirs = [self._rates.get((place, figure, size, other), {}) for other in others]
            best = max((each.get(round_number, 0.0) for each in theirs), default=0.0)
            if best:
                found.append(rate / best)
        if not found:
            return "-"
        return f"{median(found):.2f} ({min(found):.2f}-{max(found):.2f})"


def table(samples: Samples) -> list[list[str]]:
    others = ("lmdb", "queuelib", "sqlite")
    lines = [["body", *SYSTEMS, "/ kill -9 safe", "/ any", "/ floor"]]
    for place in samples.places:
        for figure, label in FIGURES.items():
            if not samples.sizes_of(place, figure):
                continue
            lines.append([f"{label}, files {'on disk' if place == 'disk' else 'in memory'}"])
            for size in samples.sizes_of(place, figure):
                ratios = [
                    samples.ratio(place, figure, size, against)
                    for against in (KILL9_SAFE, others, ("floor",))
                ]
                cells = [samples.cell(place, figure, size, system) for system in SYSTEMS]
                lines.append([f"  {size_text(size)}", *cells, *ratios])
    width = len(lines[0])
    return [[*line, *[""] * (width - len(line))] for line in lines]


def amounts_table(samples: Samples) -> list[list[str]]:
    systems = [system for system in SYSTEMS if system != "floor"]
    lines = [["body", *systems]]
    for figure, label in AMOUNTS.items():
        lines.append([label, *[""] * len(systems)])
        for size in samples.sizes:
            amounts = [samples.rate("disk", figure, size, system) for system in systems]
            cells = ["-" if amount is None else f"{amount:.3g}" for amount in amounts]
            lines.append([f"  {size_text(size)}", *cells])
    return lines


def draw(samples: Samples, out: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "qindex"})
    figure, grid = pyplot.subplots(
        len(samples.places),
        len(FIGURES),
        figsize=(15, 3.2 * len(samples.places)),
        layout="constrained",
        squeeze=False,
        sharex=True,
    )
    for place, row in zip(samples.places, grid, strict=True):
        for (name, label), axes in zip(FIGURES.items(), row, strict=True):
            for system in SYSTEMS:
                rates = [(size, samples.rate(place, name, size, system)) for size in samples.sizes]
                drawn = [(size, rate * size / 1e6) for size, rate in rates if rate is not None]
                if drawn:
                    style = "--" if system == "floor" else "o-"
                    axes.plot(*zip(*drawn, strict=True), style, color=COLOURS[system], label=system)
            axes.set(xscale="log", yscale="log", title=f"{label}, {place}")
            axes.set_xticks(samples.sizes, [size_text(size) for size in samples.sizes], fontsize=6)
            axes.grid(alpha=0.3)
        of = " of CPU time" if samples.clock == "cpu" else ""
        row[0].set_ylabel(f"MB of bodies a second{of}")
    grid[0][0].legend(frameon=False, fontsize=8)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def parse_sizes(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def parse_systems(text: str) -> tuple[str, ...]:
    return tuple(name for name in SYSTEMS if name in text.split(","))


def parse_places(text: str) -> tuple[str, ...]:
    return tuple(word for word in ("disk", "memory") if word in text.split(","))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        metavar="N",
        help="begin no round that would end later",
    )
    parser.add_argument("--sizes", type=parse_sizes, default=SIZES, metavar="N,N")
    parser.add_argument("--dir", type=Path, help="where the data go, on a real disk (temp folder)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all samples, as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an .svg or .png")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="measure nothing, read this JSON")
    parser.add_argument("--count", type=int, default=COUNT_MAX, help="of messages, at most")
    parser.add_argument("--systems", type=parse_systems, default=SYSTEMS, metavar="NAME,NAME")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="cpu", help="what is shown")
    parser.add_argument("--places", type=parse_places, default=("disk", "memory"), metavar="WORDS")
    options = parser.parse_args(arguments)
    remarks: list[str] = []  # what the dashes of the table are for
    failed: list[str] = []
    if options.draw:
        drawn = json.loads(options.draw.read_text())
        samples, remarks = drawn["samples"], drawn.get("remarks", [])
    else:
        options.systems, remarks = installed(options.systems)
        with tempfile.TemporaryDirectory() as folder:
            library = str(floor.build(Path(folder)))
            machine = facts.machine_facts(options.dir or Path(tempfile.gettempdir()))
            samples = list(rounds(options, library, failed))
        remarks += failed
        if options.out:
            told = {"machine": machine, "remarks": remarks, "samples": samples}
            text = json.dumps(told, indent=1)
            options.out.write_text(text + "\n")
    collected = Samples(samples, options.clock)
    print("\n".join(align(table(collected))))
    amounts = Samples(samples, "amount")
    if amounts.sizes:
        print("\n" + "\n".join(align(amounts_table(amounts))))
    for remark in remarks:
        print(remark)
    if options.plot:
        draw(collected, options.plot)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
