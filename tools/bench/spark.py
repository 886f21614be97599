"""Queues as tables: how fast, beside the same work done otherwise, in one run.

    python tools/bench/spark.py [--messages 10000000] [--small 10000] [--folder /tmp]
                                [--rst tools/bench/SPARK.rst]

Makes stores of 100-byte messages, then reads them: in this process through the core's columns, with
Spark, with Spark's binaryFile and a parser in Python, and as an audit and an export in one process
and on Spark; then many small stores beside ten that hold as much. Wall is the best of three; CPU is
that of this process and all below it, Java and workers, in the same repetition: where other work
shares the machine it says more. The floor of a count or a sum is what Spark itself takes for as
many rows from a source in Python that yields one finished batch again and again. The floor of a
decoding is to read the same files, and to write zeros into as many bytes of columns.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any

from facts import machine_facts
from spark_figures import Aim, Cost, Figures, as_rst, keep_orphans
from spark_floor import Floor

import qindex
from qindex.spark import columns, register, start_session
from qindex.spark.audit import run, run_on_spark
from qindex.spark.examine import Limits
from qindex.spark.export import Job, export
from qindex.spark.output import Output
from qindex.spark.plan import Unit, find
from qindex.spark.tables import Choice, batches, default_names

BODY = b"x" * 100
STORES = 10
SMALL = 800  # messages of a small store
CORES = 2
DAY = "2026-01-01"
RECORD_BYTES = {"big": 34 + len(BODY), "bare": 34}
DECODINGS = 500
DELIVERED = 50_000  # messages whose deliveries stand in a journal
AIMS = "aims"
ALONE = 0.5  # load below it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--small", type=int, default=1000, help="small stores")
    parser.add_argument("--folder", type=Path, help="where the stores are made, and removed")
    parser.add_argument("--rst", type=Path, metavar="FILE", help="write the tables for the docs")
    parser.add_argument("--memory", nargs=2, metavar=("TASK", "STORE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        return print_memory(*options.memory)
    keep_orphans()
    folder = Path(tempfile.mkdtemp(prefix="qindex-bench-", dir=options.folder))
    here = Path(__file__).parent
    os.environ["PYTHONPATH"] = f"{here.parents[1]}{os.pathsep}{here}"
    figures, facts = Figures(), {**machine_facts(folder), **circumstances()}
    try:
        aims = measure(figures, folder, options.messages, options.small)
        figures.tell(
            AIMS, [["aim", "aimed at", "measured", "", "beside"], *(aim.cells for aim in aims)]
        )
        if options.rst:
            made = f"tools/bench/spark.py --messages {options.messages} --small {options.small}"
            about = (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2]
            text = as_rst("Queues as tables", about, facts, figures.sections)
            options.rst.write_text(f"{text}\nMade by ``{made}``.\n", encoding="utf-8")
    finally:
        shutil.rmtree(folder)
    return 0


def circumstances() -> dict[str, str]:
    """Of the run, as it begins: before it makes load of its own."""
    alone = os.getloadavg()[0] < ALONE
    return {
        "measured": f"{datetime.now(UTC):%Y-%m-%d}, "
        + ("with nothing else running" if alone else "beside other work: wall is what that left")
    }


def measure(figures: Figures, folder: Path, messages: int, small: int) -> list[Aim]:
    for number in range(STORES):
        make_store(folder / f"big/{number}", messages // STORES)
        make_store(folder / f"few/{number}", small * SMALL // STORES)
    make_small(folder / "small", small)
    make_store(folder / "bare", messages, b"")
    figures.tell("peak memory of a task, MB", memory_rows(folder, messages))
    figures.begin("In this process")
    acks = figures.add(
        "deliveries to three columns, 8 B", DECODINGS * DELIVERED, deliveries(folder)
    )
    big = figures.add("records to ten columns, 134 B", messages, lambda: decode(folder / "big"))
    big_floor = figures.add("floor: its bytes", messages, lambda: only_bytes(folder / "big"))
    bare = figures.add("records to ten columns, 34 B", messages, lambda: decode(folder / "bare"))
    bare_floor = figures.add("floor: its bytes", messages, lambda: only_bytes(folder / "bare"))
    figures.add("messages to columns", messages, lambda: rows_of(folder / "big", "messages"))
    plain = figures.add("audit", messages, lambda: audit(None, folder, "big"))
    written = figures.add("export to Parquet", messages, lambda: to_parquet(None, folder))
    spark = register(start_session(f"local[{CORES}]"))
    spark.dataSource.register(Floor)
    figures.begin(f"On Spark, {CORES} cores")
    aims = [
        Aim(f"decode in C, {what}", 150, cost.rate(cost.cpu), "M/CPU s", True, beside)
        for what, cost, beside in (
            ("8 B each, three columns", acks, ""),
            ("34 B, ten columns", bare, floor_of_cpu(bare_floor)),
            ("134 B, ten columns", big, floor_of_cpu(big_floor)),
        )
    ]
    aims += through_spark(figures, spark, folder, messages)
    done = figures.add("audit", messages, lambda: audit(spark, folder, "big"))
    exported = figures.add("export to Parquet", messages, lambda: to_parquet(spark, folder))
    aims += [
        Aim(f"audit of {messages / 1e6:g} M messages", 60, done.wall, "s"),
        Aim("audit on Spark / in one process, CPU", 2, done.cpu / plain.cpu, "x"),
        Aim("export on Spark / in one process, CPU", 2, exported.cpu / written.cpu, "x"),
    ]
    aims += small_stores(figures, spark, folder, small)
    spark.stop()
    return aims


def through_spark(figures: Figures, spark: Any, folder: Path, messages: int) -> list[Aim]:
    """Counts and sums, each beside the floor, and the same work done by hand."""
    big = f"{folder}/big"

    def read(table: str, names: str) -> Any:
        reader = spark.read.format("qindex").option("table", table).option("columns", names)
        return reader.load(big)

    def floor(names: str) -> Any:
        reader = spark.read.format("floor").option("table", "records").option("columns", names)
        return reader.option("rows", messages // CORES).option("tasks", CORES).load()

    def by_broker(frame: Any) -> object:
        return frame.groupBy("broker").sum("size").collect()

    grouped = "broker,size"
    floor("size").count(), read("records", "size").count()  # Java's compiler warms up
    least = figures.add("floor: count", messages, lambda: floor("size").count())
    count = figures.add("count records", messages, lambda: read("records", "size").count())
    figures.add("count messages", messages, lambda: read("messages", "size").count())
    least_sum = figures.add("floor: group by", messages, lambda: by_broker(floor(grouped)))
    sums = figures.add("records, group by", messages, lambda: by_broker(read("records", grouped)))
    figures.add("messages, group by", messages, lambda: by_broker(read("messages", grouped)))
    by_hand = figures.add("binaryFile, Python", messages, lambda: parse_by_hand(spark, big), 1)

    def beside(floor: Cost, cost: Cost) -> str:
        both = CORES * cost.rate(cost.cpu)
        return f"floor {floor.rate(floor.wall):.3g} M/s; {both:.3g} by CPU, on {CORES} cores"

    return [
        Aim("count records", 8, count.rate(count.wall), "M/s", True, beside(least, count)),
        Aim("records, group by", 8, sums.rate(sums.wall), "M/s", True, beside(least_sum, sums)),
        # Wall: the CPU of workers that Spark lets go, as after rows from Python, is not seen here.
        Aim("binaryFile, Python / count records, wall", 5, by_hand.wall / count.wall, "x", True),
    ]


def small_stores(figures: Figures, spark: Any, folder: Path, small: int) -> list[Aim]:
    """Many beside ten that hold as much; and what their tables cost as files, with nothing read."""
    rows = small * SMALL
    figures.begin(f"{small:,} small stores beside ten")
    found: dict[str, Cost] = {}
    for place, name in (("small", f"{small:,} stores"), ("few", "ten stores")):

        def count(table: str, path: str = f"{folder}/{place}") -> object:
            reader = spark.read.format("qindex").option("table", table).option("columns", "size")
            return reader.load(path).count()

        found[f"records {place}"] = figures.add(
            f"count records, Spark, {name}", rows, partial(count, "records")
        )
        figures.add(f"count messages, Spark, {name}", rows, partial(count, "messages"))
        found[f"audit {place}"] = figures.add(
            f"audit, Spark, {name}", rows, partial(audit, spark, folder, place), 1
        )
    units = find([f"{folder}/small"])
    files = figures.add(
        f"floor: two Parquet files for each of {small:,}",
        rows,
        lambda: only_files(folder, units),
        1,
    )
    many, few = found["records small"], found["records few"]
    by_cpu, cpu = f"{many.cpu / few.cpu:.2g} x by CPU", f"{many.cpu:.2g} CPU s, {CORES} cores"
    beside = f"floor {files.cpu / found['audit few'].cpu:.2g} x: the files that it writes"
    return [
        Aim("small stores / ten, records, wall", 2, many.wall / few.wall, "x", beside=by_cpu),
        Aim(f"records of {small:,} small stores, wall", 1, many.wall, "s", beside=cpu),
        Aim(
            "small stores / ten, audit, CPU",
            2,
            found["audit small"].cpu / found["audit few"].cpu,
            "x",
            beside=beside,
        ),
    ]


def make_store(path: Path, messages: int, body: bytes = BODY) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with qindex.open(path, sync="never") as store:
        queue = store.queue("orders")
        for start in range(0, messages, 50_000):
            queue.publish_many([body] * min(50_000, messages - start))
        queue.flush()


def make_small(path: Path, count: int) -> None:
    """One store and its copies, as links: reading them is what is measured."""
    make_store(path / "0", SMALL)
    for number in range(1, count):
        shutil.copytree(path / "0", path / str(number), copy_function=os.link)


MEMORY_TASKS: dict[str, Callable[[Path], object]] = {
    "nothing (imports)": lambda path: None,
    "count messages": lambda path: rows_of(path, "messages", ["size"]),
    "messages with bodies": lambda path: rows_of(path, "messages", ["queue", "body"]),
    "records": lambda path: rows_of(path, "records", ["kind", "size"]),
    "audit": lambda path: run(
        find([str(path)]), Limits(), Output(f"{path.parent}.out", "2026-01-01")
    ),
}


def memory_rows(folder: Path, messages: int) -> list[list[str]]:
    """The most that a task's process had in memory at once, a process for each."""
    stored = folder / "stored/0"
    stored.parent.mkdir()
    with qindex.open(stored, sync="never") as store:
        for _ in range(messages // 100):
            store.queue("orders").publish(b"x" * 10_000)
    rows = [["task", "store of 100 B messages", "store of 10 kB messages"]]
    for task in MEMORY_TASKS:
        peaks = []
        for store_path in (folder / "big/0", stored):
            command = [sys.executable, __file__, "--memory", task, str(store_path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks.append(done.stdout.strip())
        rows.append([task, *peaks])
    return rows


def print_memory(task: str, path: str) -> int:
    MEMORY_TASKS[task](Path(path))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    return 0


def rows_of(path: Path, table: str, names: list[str] | None = None) -> None:
    """What a task of Spark's does, whose rows go on at once. All columns but those of bodies."""
    for _ in batches(find([str(path)]), table, names or default_names(table), Choice()):
        pass


def decode(folder: Path) -> None:
    """Segments read and decoded one after the other, into all columns."""
    for _ in columns.records_of(segments(folder), columns.RECORDS):
        pass


def only_bytes(folder: Path) -> None:
    """What decode() reads, and as much as it writes."""
    width = sum(columns._TYPES[name].bit_width // 8 for name in columns.RECORDS)
    made, size = (ctypes.c_char * (columns.ROWS * width))(), 0
    for _, data in segments(folder):
        size += len(data)
    for _ in range(size // (columns.ROWS * RECORD_BYTES[folder.name])):
        ctypes.memset(made, 0, len(made))


def segments(folder: Path) -> Iterator[tuple[None, memoryview]]:
    """The bytes of one after the other, in the same memory."""
    paths = list(folder.rglob("*.idx"))
    room = memoryview(bytearray(max(path.stat().st_size for path in paths)))
    for path in paths:
        with path.open("rb", buffering=0) as file:
            yield None, room[: file.readinto(room)]


def floor_of_cpu(cost: Cost) -> str:
    return f"floor {cost.rate(cost.cpu):.3g} M/CPU s"


def deliveries(folder: Path) -> Callable[[], None]:
    """A journal with nothing but deliveries, decoded again and again."""
    with qindex.open(folder / "delivered", sync="never") as store:
        queue = store.queue("orders")
        queue.publish_many([b""] * DELIVERED)
        queue.flush()
        queue.get_many(DELIVERED)
        queue.sync()
        place = folder / "delivered" / store.queue_directory("orders")
        journals = [path.read_bytes() for path in place.glob("journal.*")]
        data = next(each for each in journals if columns.is_index(each[: columns.INDEX_HEAD]))

    def work() -> None:
        files = ((None, data) for _ in range(DECODINGS))
        for _ in columns.records_of(files, ("kind", "req_id", "offset")):
            pass

    return work


def to_parquet(spark: Any, folder: Path) -> None:
    names = ["broker", "queue", "req_id", "size", "body"]
    units, out = find([f"{folder}/big"]), tempfile.mkdtemp(prefix="parquet-", dir=folder)
    export(spark, units, str(out), Job([str(folder)], names, {}), Choice())


def audit(spark: Any, folder: Path, name: str) -> None:
    """Into an empty folder: to replace a file costs a file system more than to make one."""
    paths, output = [f"{folder}/{name}"], Output(tempfile.mkdtemp(prefix="out-", dir=folder), DAY)
    if spark is None:
        run(find(paths), Limits(), output)
    else:
        run_on_spark(spark, paths, Limits(), output, tasks_min=CORES)


def only_files(folder: Path, units: list[Unit]) -> None:
    """What an audit of these writes at least, and nothing of what it reads."""
    output = Output(f"{folder}/files", DAY)
    for unit in units:
        output.write(unit, "queues", [{"queue": "orders", "found": SMALL, "live": SMALL}])
        output.write(unit, "files", [{"file": "0.idx", "kind": "segment", "bytes": 1}])


def parse_by_hand(spark: Any, path: str) -> int:
    """What one would write without this source; the same publishes, counted."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*.idx")
    frame = files.option("recursiveFileLookup", "true").load(path).select("content")
    return int(frame.rdd.flatMap(lambda row: publishes(row.content)).count())


def publishes(data: bytes) -> Iterator[tuple[int, int]]:
    """Slot and size of each publish of a segment: FORMAT.rst, section 5."""
    word, entry = Struct(">I"), Struct(">H24xII")
    at = 64
    while at + 8 <= len(data):
        (head,) = word.unpack_from(data, at)
        if head == 0:
            return
        at, end = at + 8, at + 8 + (head & 0xFFFFFFF)
        while head >> 28 == 7 and at < end:
            slot, size, embedded = entry.unpack_from(data, at)
            if slot < 0x8000:
                at += 2 if slot >= 0x4000 else 4
                continue
            yield slot & 0x3FFF, size
            at += 34 + embedded
        at = end


if __name__ == "__main__":
    sys.exit(main())
