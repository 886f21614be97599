"""What the commands for a fleet share: what is at the paths, and Spark if it pays."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from qindex.cli.audit import _choose, _units
from qindex.cli.screen import CommandError, Screen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qindex.spark.plan import Unit


def add_fleet(parser: argparse.ArgumentParser) -> None:
    """PATH ..., --format, --master: what is read, and where the work is done."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="directories, or what holds them")
    parser.add_argument("--format", help="only directories of this format")
    parser.add_argument("--master", metavar="URL", default="auto", help="auto, none, or Spark's")


def units_of(options: argparse.Namespace, out: str, needs: str) -> list[Unit]:
    """What is at the paths. CommandError: nothing, or `out` is inside."""
    if find_spec("pyarrow") is None:
        raise CommandError(f"{needs} needs pyarrow: pip install 'qindex[parquet]'")
    units = _units(options)
    target = Path(out).resolve()
    for unit in units:
        if target.is_relative_to(unit.source):
            raise CommandError(
                f"{str(target)!r} is inside {unit.source!r}, where nothing is changed"
            )
    return units


@contextmanager
def spark_if_it_pays(
    screen: Screen, master: str, units: Sequence[Unit]
) -> Iterator[tuple[SparkSession | None, str]]:
    """(a session, or None for one process; why)"""
    chosen, why = _choose(master, sum(unit.bytes for unit in units))
    if chosen is None:
        yield None, why
        return
    if find_spec("pyspark") is None:
        raise CommandError("Spark is not installed: pip install 'qindex[spark]', or --master none")
    from qindex.spark import register, start_session

    try:
        with screen.progress("starting Spark") as progress:
            progress.at(0)
            spark = register(start_session(chosen))
    except RuntimeError as error:
        raise CommandError(str(error)) from None
    try:
        yield spark, why
    finally:
        spark.stop()
