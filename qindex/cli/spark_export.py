"""qindex spark-export: the messages of a fleet, as Parquet.

Write the live messages of every store and every dead broker's directory at these
paths, or not far below them, into DIR: Parquet files with the columns of the
table messages (qindex/spark/schema.py), some dozen MB each. Paths may have
wildcards. Nothing is changed in what is read; a store may be in use.

Each task reads its part and writes one file. Killed at any moment, it goes on
when the same command is run again: DIR/_export.json has the plan, and files that
are complete stay. Of a store in use each part is as it was when it was read.

  --master  auto (default): one process, or all cores with Spark if there is so
            much to read that it pays and pyspark is there. none: one process.
            Anything else is a master's URL: local[4], spark://host:7077, yarn;
            all its machines have to see the paths and DIR

For one store and a single file see qindex export --parquet.

exit codes: 0 complete; 1 complete, but what is damaged is left out; 2 nothing to
export, or refused (DIR holds something else); 130 interrupted: run it again.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from qindex.cli.messages import STATES
from qindex.cli.screen import CommandError, Screen
from qindex.cli.spark_fleet import add_fleet, session_if_it_pays, units_apart
from qindex.cli.text import count, duration, printable, rate, size


def configure(parser: argparse.ArgumentParser) -> None:
    add_fleet(parser)
    parser.add_argument("--out", metavar="DIR", required=True, help="new, empty, or to go on with")
    parser.add_argument("--queues", metavar="NAMES", default="", help="names or patterns, commas")
    parser.add_argument(
        "--states", metavar="STATES", default=",".join(STATES), help="some of these"
    )
    parser.add_argument(
        "--columns", metavar="NAMES", default="*", help="with commas; default: all of them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: the account")
    parser.add_argument("--progress", action="store_true", help="progress also without a terminal")


def run(options: argparse.Namespace, screen: Screen) -> int:
    units = units_apart(options, options.out, "spark-export")
    from qindex.spark.export import ExportRefused, Job, export
    from qindex.spark.options import choice_of, column_names
    from qindex.spark.remote import absolute
    from qindex.spark.schema import ddl

    try:
        columns = column_names({"columns": options.columns})
        ddl("messages", columns)
        choice = choice_of({"queues": options.queues, "states": options.states})
    except ValueError as error:
        raise CommandError(str(error)) from None
    choices = {"queues": options.queues, "states": sorted(choice.states), "format": options.format}
    job = Job([absolute(path) for path in options.paths], columns, choices)
    started = time.monotonic()
    sizes = [unit.bytes for unit in units]
    with session_if_it_pays(screen, options.master, sizes, splits=True) as (spark, why):
        try:
            with screen.progress("exporting", "tasks") as progress:
                account = export(spark, units, options.out, job, choice, progress=progress.at)
        except ExportRefused as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted: run the same command again to go on", 130) from None
    _show(screen, options, account, why, time.monotonic() - started)
    return 1 if account["damaged"] else 0


def _show(
    screen: Screen, options: argparse.Namespace, account: dict[str, Any], why: str, seconds: float
) -> None:
    for text in account["told"]:
        screen.error(text)
    if account["damaged"]:
        places = count(account["damaged"], "damaged place")
        screen.error(f"{places}, left out here: 'qindex audit' lists all damage")
    if options.json:
        screen.json({**account, "how": why, "seconds": seconds, "out": options.out})
        return
    told = f"{count(account['messages'], 'message')} in {count(account['files'], 'file')}"
    told += f" ({size(account['bytes'])}) in {printable(options.out)}"
    if account["went_on"]:
        told += ", which an earlier run began"
    else:
        told += f", in {duration(seconds)} ({rate(account['messages'], seconds)} messages/s; {why})"
    screen.line(told)
