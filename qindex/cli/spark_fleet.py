"""What the commands for a fleet share: what is at the paths, and Spark if it pays."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from qindex.cli.screen import CommandError, Screen
from qindex.cli.text import size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qindex.spark.plan import Unit


def add_fleet(parser: argparse.ArgumentParser) -> None:
    """PATH ..., --format, --master: what is read, and where the work is done."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="directories, or what holds them")
    parser.add_argument("--format", help="only directories of this format")
    parser.add_argument("--master", metavar="URL", default="auto", help="auto, none, or Spark's")


def find_units(options: argparse.Namespace) -> list[Unit]:
    """What is at the paths. CommandError if there is nothing."""
    from qindex.spark.plan import find

    try:
        units = find(options.paths, options.format)
    except FileNotFoundError as error:
        raise CommandError(f"{error.filename!r}: {error.strerror}") from None
    except ValueError as error:  # a URL that nobody knows
        raise CommandError(str(error)) from None
    if not units:
        raise CommandError(
            "no store and no dead broker's directory at " + ", ".join(map(repr, options.paths))
        )
    return units


def units_apart(options: argparse.Namespace, out: str, command: str) -> list[Unit]:
    """The same, for a command that writes into `out`: CommandError if that is inside of one."""
    if find_spec("pyarrow") is None:
        raise CommandError(f"{command} needs pyarrow: pip install 'qindex[parquet]'")
    units = find_units(options)
    target = Path(out).resolve()
    for unit in units:
        if target.is_relative_to(unit.source):
            raise CommandError(
                f"{str(target)!r} is inside {unit.source!r}, where nothing is changed"
            )
    return units


def choose_master(
    asked: str, sizes: Sequence[int], *, splits: bool = False
) -> tuple[str | None, str]:
    """(Spark's master or None, why) for directories of these sizes.

    `splits`: several tasks may work at one directory.
    """
    from qindex.spark.audit import SPARK_PAYS_BYTES

    cores = os.cpu_count() or 1
    if asked not in ("auto", "none"):
        return asked, f"Spark with the master {asked}"
    if asked == "none" or cores == 1:
        return None, "one process"
    pays = SPARK_PAYS_BYTES * cores
    if sum(sizes) < pays:
        return None, f"one process: Spark pays from about {size(pays)} on, with {cores} cores"
    if not splits and sum(sizes) - max(sizes) < SPARK_PAYS_BYTES:
        return None, "one process: most of it is in one directory, which is one task for Spark"
    if find_spec("pyspark") is None:
        return None, "one process; all cores with pip install 'qindex[spark]'"
    return "local[*]", f"Spark on {cores} cores"


@contextmanager
def session_on(screen: Screen, master: str) -> Iterator[SparkSession]:
    """A session that knows format("qindex"); it ends with the block."""
    if find_spec("pyspark") is None:
        raise CommandError("Spark is not installed: pip install 'qindex[spark]', or --master none")
    from qindex.spark import register, start_session

    try:
        with screen.progress("starting Spark") as progress:
            progress.at(0)
            spark = register(start_session(master))
    except RuntimeError as error:
        raise CommandError(str(error)) from None
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def session_if_it_pays(
    screen: Screen, master: str, sizes: Sequence[int], *, splits: bool
) -> Iterator[tuple[SparkSession | None, str]]:
    """(a session, or None for one process; why)"""
    chosen, why = choose_master(master, sizes, splits=splits)
    if chosen is None:
        yield None, why
        return
    with session_on(screen, chosen) as spark:
        yield spark, why
