"""From one to a hundred million messages: seconds of a count and of an audit, drawn.

    python tools/bench/spark_scaling.py --out tools/bench/spark_scaling.webp [--most 100]

Makes up to ten stores of a million 100-byte messages each; beyond ten million the others are links
to these, so that 1.3 GB of disk and of page cache serve: what is measured is reading from memory,
with every checksum, and all that is written. Each point is one run, after one to warm up. Wall is
what a user waits for, and is longer where other work shares the machine; CPU is that of all
processes. `--seconds` ends it before the next point that would take it beyond. The numbers go into
a .json beside the picture; --draw draws them again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spark import make_store
from spark_figures import cpu_seconds, keep_orphans

from qindex.spark import register, start_session
from qindex.spark.audit import run, run_on_spark
from qindex.spark.examine import Limits
from qindex.spark.output import Output
from qindex.spark.plan import find

MILLION: Final = 1_000_000
DISTINCT: Final = 10  # stores that are not links
POINTS: Final = (1, 3, 10, 30, 100)  # millions
CORES: Final = 2
COLOURS: Final = {"count, Spark": "C0", "audit, Spark": "C1", "audit, one process": "C2"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="an .svg, .png or .webp")
    parser.add_argument("--most", type=int, default=100, help="million messages")
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--folder", type=Path, help="where the stores are made, and removed")
    parser.add_argument("--draw", action="store_true", help="only draw what was measured before")
    options = parser.parse_args()
    numbers = options.out.with_suffix(".json")
    if not options.draw:
        keep_orphans()
        folder = Path(tempfile.mkdtemp(prefix="qindex-scaling-", dir=options.folder))
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
        try:
            rows = measure(folder, options.most, time.monotonic() + options.seconds)
        finally:
            shutil.rmtree(folder)
        numbers.write_text(json.dumps(rows, indent=1) + "\n")
    draw(json.loads(numbers.read_text()), options.out)
    return 0


def measure(folder: Path, most: int, end: float) -> list[dict[str, Any]]:
    spark = register(start_session(f"local[{CORES}]"))
    output = Output(str(folder / "out"), "2026-01-01")
    fleet = folder / "fleet"
    works: dict[str, Callable[[], object]] = {
        "count, Spark": lambda: count(spark, fleet),
        "audit, Spark": lambda: run_on_spark(
            spark, [str(fleet)], Limits(), output, tasks_min=CORES
        ),
        "audit, one process": lambda: run(find([str(fleet)]), Limits(), output),
    }
    rows: list[dict[str, Any]] = []
    before = 0.0
    for millions in (point for point in POINTS if point <= most):
        if time.monotonic() + 3.5 * before > end:
            print(f"no time for {millions} million messages")
            break
        grow(fleet, millions)
        started = time.monotonic()
        for name, work in works.items():
            if millions == POINTS[0]:
                work()
            cpu_of = time.process_time if "one process" in name else cpu_seconds
            cpu, at = cpu_of(), time.perf_counter()
            work()
            row = {"what": name, "millions": millions, "wall": time.perf_counter() - at}
            row["cpu"] = cpu_of() - cpu
            rows.append(row)
            print(f"{millions:4} M  {name:20} {row['wall']:8.2f} s {row['cpu']:8.2f} CPU s")
        before = time.monotonic() - started
    spark.stop()
    return rows


def grow(fleet: Path, millions: int) -> None:
    for number in range(millions):
        path = fleet / f"broker-{number:03}"
        if path.exists():
            continue
        if number < DISTINCT:
            make_store(path, MILLION)
        else:
            shutil.copytree(fleet / f"broker-{number % DISTINCT:03}", path, copy_function=os.link)


def count(spark: Any, fleet: Path) -> None:
    frame = spark.read.format("qindex").option("columns", "broker,size").load(str(fleet))
    frame.groupBy("broker").sum("size").collect()


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "qindex"})  # small, the same
    figure, axes = pyplot.subplots(figsize=(7.5, 4.6), layout="constrained")
    for name, colour in COLOURS.items():
        mine = [row for row in rows if row["what"] == name]
        x = [row["millions"] for row in mine]
        last = mine[-1]
        label = f"{name}: {last['millions'] / last['wall']:.1f} M/s,"
        label += f" {last['millions'] / last['cpu']:.1f} M per CPU second"
        axes.plot(x, [row["wall"] for row in mine], f"{colour}o-", label=label)
        axes.plot(x, [row["cpu"] for row in mine], f"{colour}:", alpha=0.7)
    axes.set(xscale="log", yscale="log", xlabel="million messages of 100 bytes", ylabel="seconds")
    ticks = sorted({row["millions"] for row in rows})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.grid(alpha=0.3)
    axes.set_title(f"{CORES} cores, from the page cache; dotted: CPU of all processes", fontsize=10)
    axes.legend(frameon=False)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


if __name__ == "__main__":
    sys.exit(main())
