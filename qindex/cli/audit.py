"""qindex audit: what is wrong in a fleet of brokers.

Examine every store and every dead broker's directory at these paths, or not far
below them, and write tables (Parquet) and a report (report.html) into DIR. Paths
may have wildcards, and may be URLs (s3://bucket/brokers/*). Nothing is changed in
what is examined; a store that is in use may be examined, too.

Each index is read, joined with the stored bodies, and all checksums are checked.
What is found, the worst first:

  damage    lost, damaged body, unreadable, not recognised, damaged file, ack
            without publish, references, duplicate, account
  warning   expired (but still kept), stuck (delivered, not acked, and others that
            came much later were delivered), poison (delivered again and again)
  note      orphan bodies (garbage), and what explains itself

DIR/queues, files and findings have a folder for each broker and day. The same
audit on the same day replaces its own files.

  --jobs    so many processes of this machine; default: one per core, if there is
            enough to read for them. No Java is started
  --master  Spark's, instead: spark://host:7077, yarn; all its machines have to
            see the paths and DIR. local[4] works, too, but costs more than --jobs

exit codes: 0 nothing is damaged; 1 something is (with --strict also: there are
warnings); 2 nothing to examine, or refused.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qindex.brokers.reader import open_node
from qindex.brokers.tree import UnknownFormat
from qindex.cli.arguments import add_output
from qindex.cli.spark_fleet import add_fleet, choose_way, session_if_asked, stopping, units_apart
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.screen import CommandError, Screen
from qindex.look.text import count, duration, printable, rate, size, written_id
from qindex.private import make_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qindex.spark.audit import Report, Summary
    from qindex.spark.examine import Limits
    from qindex.spark.output import Output
    from qindex.spark.plan import Unit

BROKERS_MAX: Final = 40
FINDINGS_MAX: Final = 20
_STYLES: Final = {"damage": "red", "warning": "yellow", "note": "dim"}


def configure(parser: argparse.ArgumentParser) -> None:
    add_fleet(parser)
    parser.add_argument("--out", metavar="DIR", required=True, help="where tables and report go")
    parser.add_argument(
        "--stuck-behind",
        metavar="N",
        type=int,
        default=10_000,
        help="a message is stuck if N later ones were delivered (default: 10,000)",
    )
    parser.add_argument(
        "--poison",
        metavar="N",
        type=int,
        default=5,
        help="a message is poison from N deliveries on (default: 5)",
    )
    add_members(parser)
    add_at_time(parser)
    parser.add_argument("--no-bodies", action="store_true", help="do not read stored bodies")
    parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings, too")
    add_output(parser, "JSON: account, all summaries")


def run(options: argparse.Namespace, screen: Screen) -> int:
    units = _with_members(options, units_apart(options, options.out, "audit"))
    from qindex.spark.audit_page import write_report
    from qindex.spark.examine import Limits
    from qindex.spark.output import Output

    now_us = None if options.at_time is None else int(options.at_time * 1e6)
    limits = Limits(options.stuck_behind, options.poison, not options.no_bodies, now_us)
    out = Path(options.out).resolve()
    make_folder(out)
    output = Output(str(out), f"{datetime.now(UTC):%Y-%m-%d}")
    way = choose_way(options, [unit.bytes for unit in units])
    with session_if_asked(screen, way) as spark:
        if spark is None:
            report = _here(screen, units, limits, output, way.jobs)
        else:
            report = _on_spark(screen, options, spark, limits, output)
    page = write_report(out, report)
    if options.json:
        screen.json(_as_json(report, page))
    else:
        _show(screen, report, way.why, page)
    wrong = report.has("damage") or (options.strict and report.has("warning"))
    return 1 if wrong else 0


def _with_members(options: argparse.Namespace, units: list[Unit]) -> list[Unit]:
    """CommandError: --member says nothing about what is at the paths."""
    if not options.member:
        return units
    if options.master not in ("auto", "none"):
        raise CommandError("--member is for an audit on this machine: leave --master out")
    if len(units) != 1 or units[0].format != "rabbitmq":
        raise CommandError("--member is for one RabbitMQ node: name its directory, and no other")
    try:
        with open_node(units[0].folder, members=options.member):
            pass  # each of them is a node, and none is given twice
    except UnknownFormat as error:
        raise CommandError(str(error)) from None
    members = tuple(str(Path(each).resolve()) for each in options.member)
    return [units[0]._replace(members=members)]


def _here(screen: Screen, units: list[Unit], limits: Limits, output: Output, jobs: int) -> Report:
    from qindex.spark.audit import run as run_audit

    with screen.progress("examining", "bytes") as progress:
        return run_audit(units, limits, output, progress.at, jobs)


def _on_spark(
    screen: Screen,
    options: argparse.Namespace,
    spark: SparkSession,
    limits: Limits,
    output: Output,
) -> Report:
    from qindex.spark.audit import run_on_spark
    from qindex.spark.remote import absolute

    with screen.progress("examining", "tasks") as progress:
        return run_on_spark(
            spark,
            [absolute(path) for path in options.paths],
            limits,
            output,
            format_name=options.format,
            progress=stopping(progress.at),
        )


# --- showing ------------------------------------------------------------------------------------


def _show(screen: Screen, report: Report, why: str, page: Path) -> None:
    brokers = count(len(report.summaries), "directory", "directories")
    screen.heading(
        f"{brokers}, {count(report.queues, 'queue')}, {size(report.bytes)}"
        f" in {duration(report.seconds)} ({why})"
    )
    screen.line()
    _show_brokers(screen, report)
    if report.kinds:
        screen.line()
        _show_kinds(screen, report)
        _show_findings(screen, report)
    screen.line()
    live = screen.paint(f"{report.sum('live'):,} live", "bold")
    screen.line(
        f"{count(report.sum('found'), 'message')} in the files = {report.sum('gone'):,} gone"
        f" + {live} ({size(report.sum('live_bytes'))}) + {report.sum('lost'):,} lost;"
        f" {rate(report.sum('found'), report.seconds)} messages/s"
    )
    screen.line(f"Report and tables: {printable(str(page))}")


def _show_brokers(screen: Screen, report: Report) -> None:
    from qindex.spark.audit_page import garbage_of

    ranked = sorted(report.summaries, key=_rank)
    columns = ["<broker", "<format", ">queues", ">live", ">lost", ">garbage", ">recovery", "<worst"]
    rows = [
        [
            printable(each.broker),
            each.format,
            f"{each.queues:,}",
            f"{each.sums['live']:,}",
            f"{each.sums['lost']:,}" if each.sums["lost"] else "-",
            garbage_of(each),
            duration(each.sums["recovery_us"] / 1e6),
            each.severity or "-",
        ]
        for each in ranked[:BROKERS_MAX]
    ]
    screen.table(columns, rows)
    if len(ranked) > BROKERS_MAX:
        screen.line(f"  … and {len(ranked) - BROKERS_MAX:,} more, no worse: the report has them")


def _rank(summary: Summary) -> tuple[int, str]:
    order = ["damage", "warning", "note", None]
    return order.index(summary.severity), summary.broker


def _show_kinds(screen: Screen, report: Report) -> None:
    from qindex.spark.examine import KINDS

    rows = []
    for kind, number in report.kinds.items():
        severity, meaning = KINDS[kind]
        places = sum(kind in summary.kinds for summary in report.summaries)
        rows.append([kind, severity, f"{number:,}", f"{places:,}", meaning])
    screen.table(["<finding", "<severity", ">count", ">directories", "<meaning"], rows)


def _show_findings(screen: Screen, report: Report) -> None:
    found = [
        (summary, row)
        for summary, row in report.findings(FINDINGS_MAX + 1)
        if row["severity"] != "note"
    ]
    if found:
        screen.line()
    for summary, row in found[:FINDINGS_MAX]:
        severity = screen.paint(f"{row['severity']:<7}", _STYLES[row["severity"]])
        screen.line(f"  {severity}  {printable(summary.broker)}: {_told(row)}")
    if len(found) > FINDINGS_MAX:
        screen.line("  … and more: the report and the table findings have them")


def _told(row: dict[str, Any]) -> str:
    """Where, which message, what."""
    place = [printable(row["queue"])] if row.get("queue") else []
    if row.get("req_id") is not None:
        place.append(f"message {written_id(row['req_id'])}")
    if file := row.get("file"):  # of a queue: its folder's name says nothing to people
        file = file.rpartition("/")[2] if row.get("queue") and "." in file else file
        if "." in file or not row.get("queue"):
            place.append(f"{printable(file)} at byte {row.get('offset', 0):,}")
    times = f" ({row['count']:,})" if row["count"] > 1 else ""
    parts = [f"{row['kind']}{times}", ", ".join(place), printable(row["text"])]
    return ": ".join(filter(None, parts))


def _as_json(report: Report, page: Path) -> dict[str, Any]:
    from qindex.spark.audit import SUMS

    return {
        "how": report.how,
        "day": report.day,
        "seconds": report.seconds,
        "bytes": report.bytes,
        "queue_count": report.queues,
        "account": _as_told({name: report.sum(name) for name in SUMS}),
        "kinds": report.kinds,
        "report": str(page),
        "directories": [_summary_as_json(summary) for summary in report.summaries],
    }


def _summary_as_json(summary: Summary) -> dict[str, Any]:
    renamed = {"source": "path", "queues": "queue_count"}
    return {renamed.get(key, key): _as_told(value) for key, value in asdict(summary).items()}


def _as_told(value: Any) -> Any:
    """The tables have microseconds, and ReqIds as numbers; JSON has seconds, and their digits."""
    if isinstance(value, list):
        return [_as_told(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    told = {key: _as_told(inner) for key, inner in value.items()}
    if "req_id" in told:
        told["req_id"] = written_id(told["req_id"])
    if "recovery_us" in told:
        spent = told.pop("recovery_us")
        told["recovery_seconds"] = spent / 1e6 if isinstance(spent, (int, float)) else spent
    return told
