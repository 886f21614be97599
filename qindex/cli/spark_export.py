"""qindex spark-export: write the messages of a fleet as Parquet.

Write the live messages of every store and every dead broker's directory at these
paths, or not far below them, into DIR: Parquet files with the columns of the
table messages (qindex/spark/schema.py), some dozen MB each. Paths may have
wildcards. Nothing is changed in what is read; a store may be in use.

Each task reads its part and writes one file. Killed at any moment, it goes on
when the same command is run again: DIR/_export.json has the plan, and files that
are complete stay. Of a store in use each part is as it was when it was read.

  --jobs    so many processes of this machine; default: one per core, if there is
            enough to read for them. No Java is started
  --master  Spark's, instead: spark://host:7077, yarn; all its machines have to
            see the paths and DIR. local[4] works, too, but costs more than --jobs

For one store and a single file see qindex export.

exit codes: 0 complete; 1 complete, but what is damaged is left out; 2 nothing to
export, or refused (DIR holds something else); 130 interrupted: run it again.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from qindex.cli.arguments import add_output
from qindex.cli.spark_fleet import add_fleet, choose_way, session_if_asked, stopping, units_apart
from qindex.look.messages import STATES
from qindex.look.screen import CommandError, Screen
from qindex.look.text import count, duration, printable, rate, size


def configure(parser: argparse.ArgumentParser) -> None:
    add_fleet(parser)
    parser.add_argument(
        "--out",
        metavar="DIR",
        required=True,
        help="folder for the Parquet files; an export in it goes on",
    )
    parser.add_argument(
        "--queues",
        metavar="NAMES",
        default="",
        help="only these queues: names or patterns, with commas",
    )
    parser.add_argument(
        "--states",
        metavar="STATES",
        default=",".join(STATES),
        help="only messages in these states, with commas",
    )
    parser.add_argument(
        "--columns",
        metavar="NAMES",
        default="*",
        help="only these columns, with commas (default: all)",
    )
    add_output(parser, "JSON: the account")


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
    if not choice.states:
        raise CommandError(f"--states names none of {', '.join(STATES)}")
    choices = {"queues": options.queues, "states": sorted(choice.states), "format": options.format}
    job = Job([absolute(path) for path in options.paths], columns, choices)
    started = time.monotonic()
    way = choose_way(options, [unit.bytes for unit in units], splits=True)
    with session_if_asked(screen, way) as spark:
        try:
            with screen.progress("exporting", "tasks") as progress:
                account = export(
                    spark,
                    units,
                    options.out,
                    job,
                    choice,
                    progress=stopping(progress.at),
                    jobs=way.jobs,
                )
        except ExportRefused as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted: run the same command again to go on", 130) from None
    _show(screen, options, account, way.why, time.monotonic() - started)
    return 1 if account["damaged"] else 0


def _show(
    screen: Screen, options: argparse.Namespace, account: dict[str, Any], why: str, seconds: float
) -> None:
    for text in account["told"]:
        screen.error(printable(text))
    if account["damaged"]:
        places = count(account["damaged"], "damaged place")
        screen.error(f"{places}, left out here: 'qindex audit' lists all damage")
    if options.json:
        renamed = {"files": "file_count", "told": "warnings"}
        figures = {renamed.get(key, key): value for key, value in account.items()}
        screen.json({**figures, "how": why, "seconds": seconds, "out": options.out})
        return
    told = f"{count(account['messages'], 'message')} in {count(account['files'], 'file')}"
    told += f" ({size(account['bytes'])}) in {printable(options.out)}"
    if account["went_on"]:
        told += ", which an earlier run began"
    else:
        told += f", in {duration(seconds)} ({rate(account['messages'], seconds)} messages/s; {why})"
    screen.line(told)
