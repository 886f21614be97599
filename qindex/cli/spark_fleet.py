"""What the commands for a fleet share: what is at the paths, and Spark if it pays."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple

from qindex.apart import refuse_inside
from qindex.look.screen import CommandError, Screen
from qindex.look.text import size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qindex.spark.plan import Unit

JOBS_PAY_BYTES: Final = (
    1_000_000_000  # two processes cost 0.5 s each to begin with; docs/spark/clusters.rst
)
_interrupted: Final = threading.Event()


def add_fleet(parser: argparse.ArgumentParser) -> None:
    """DIR ..., --format, --master: what is read, and where the work is done."""
    parser.add_argument("paths", metavar="DIR", nargs="+", help="directories, or what holds them")
    parser.add_argument("--format", help="only directories of this format")
    parser.add_argument(
        "--master",
        metavar="URL",
        default="auto",
        help="where to work: auto, none, or a Spark master",
    )
    parser.add_argument(
        "--jobs", metavar="N", type=int, default=0, help="processes here; default: one per core"
    )


def find_units(options: argparse.Namespace) -> list[Unit]:
    """What is at the paths, also what cannot be read. CommandError if there is nothing."""
    from qindex.spark.plan import find
    from qindex.spark.search import GONE, NOTHING

    try:
        units = find(options.paths, options.format)
    except FileNotFoundError as error:
        raise CommandError(f"{error.filename!r}: {error.strerror}") from None
    except ValueError as error:  # a URL that nobody knows
        raise CommandError(str(error)) from None
    if all(unit.problem in (GONE, NOTHING) for unit in units):
        raise CommandError(
            "no store and no dead broker's directory at " + ", ".join(map(repr, options.paths))
        )
    return units


def units_apart(options: argparse.Namespace, out: str, command: str) -> list[Unit]:
    """The same, for a command that writes into `out`: StoreNested if that is inside of one."""
    if find_spec("pyarrow") is None:
        raise CommandError(f"{command} needs pyarrow: pip install 'qindex[parquet]'")
    from qindex.spark.search import UNKNOWN

    units = find_units(options)
    for unit in units:
        if unit.format != UNKNOWN:
            refuse_inside(out, unit.source)
    return units


class Way(NamedTuple):
    """How the work is done: on Spark's master, or without one in so many processes; and why."""

    master: str | None
    jobs: int
    why: str


def choose_way(options: argparse.Namespace, sizes: Sequence[int], *, splits: bool = False) -> Way:
    """For directories of these sizes. CommandError: --jobs makes no sense.

    `splits`: several may work at one directory.

    Spark on this machine alone is never chosen: its tasks do what these processes do, at the same
    cost or more (docs/spark/clusters.rst), and it has to be started first.
    """
    if options.jobs < 0:
        raise CommandError(f"--jobs is 1 or more, not {options.jobs}")
    if options.master not in ("auto", "none"):
        if options.jobs:
            raise CommandError("--jobs is for this machine; Spark's master says how many: local[4]")
        return Way(options.master, 1, f"Spark with the master {options.master}")
    cores = len(os.sched_getaffinity(0))
    jobs = options.jobs or cores
    jobs = jobs if splits else min(jobs, len(sizes))
    if jobs <= 1:
        return Way(None, 1, "one process")
    if not options.jobs and sum(sizes) < JOBS_PAY_BYTES:
        return Way(None, 1, f"one process: more pay from about {size(JOBS_PAY_BYTES)} on")
    return Way(None, jobs, f"{jobs} processes")


@contextmanager
def session_on(screen: Screen, master: str) -> Iterator[SparkSession]:
    """A session that knows format("qindex"); it ends with the block.

    A Ctrl-C is noted, and is raised by check_interrupt(): in the middle of what Spark's Python
    side sends to Java it would become a screen of Py4J's errors. A second one is raised at once.
    """
    if find_spec("pyspark") is None:
        raise CommandError("Spark is not installed: pip install 'qindex[spark]', or --master none")
    from qindex.spark import register, start_session

    _interrupted.clear()
    before = signal.getsignal(signal.SIGINT)
    _note_interrupts()
    try:
        with screen.progress("starting Spark") as progress, ThreadPoolExecutor(1) as pool:
            progress.at(0)
            # In the first thread Spark would handle signals itself.
            spark = pool.submit(lambda: register(start_session(master))).result()
        try:
            check_interrupt()
            yield spark
        finally:
            spark.stop()
    except RuntimeError as error:
        raise CommandError(str(error)) from None
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGINT, before)


def check_interrupt() -> None:
    """KeyboardInterrupt if there was a Ctrl-C since the session began."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


def _note_interrupts() -> None:
    def note(number: int, frame: FrameType | None) -> None:
        if _interrupted.is_set():
            signal.default_int_handler(number, frame)
        _interrupted.set()

    with suppress(ValueError):  # another thread than the first gets no signals
        signal.signal(signal.SIGINT, note)


def stopping(progress: Callable[[int, int], object]) -> Callable[[int, int], None]:
    """The same, but a Ctrl-C ends it."""

    def at(done: int, total: int) -> None:
        check_interrupt()
        progress(done, total)

    return at


@contextmanager
def session_if_asked(screen: Screen, way: Way) -> Iterator[SparkSession | None]:
    """A session, or None: the work is done here. WorkerDied becomes a CommandError."""
    from qindex.spark.spread import WorkerDied

    try:
        if way.master is None:
            yield None
        else:
            with session_on(screen, way.master) as spark:
                yield spark
    except WorkerDied as error:
        raise CommandError(str(error)) from None
