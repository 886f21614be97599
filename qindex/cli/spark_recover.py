"""qindex spark-recover: the messages of many dead brokers.

Bring back every dead broker's directory at these paths, or not far below them,
into a store of its own: DIR/NAME. What recover does for one, this does for a
fleet, several at a time; the same is left out and counted. Nothing is changed in
what is read. Stores of qindex are passed over: salvage is for them.

Killed at any moment, it goes on when the same command is run again: a store that
has its name is complete, DIR/accounts has the account of each. One broker that
cannot be recovered does not stop the others.

  --master  auto (default): one process, or all cores with Spark if there is so
            much to read that it pays and pyspark is there. none: one process.
            Anything else is a master's URL: local[4], spark://host:7077, yarn;
            all its machines have to see the paths and DIR

exit codes: 0 all are recovered; 1 there is damage, messages are missing, or a
broker could not be recovered; 2 nothing to recover, or refused (DIR has a store
of that name from elsewhere); 130 interrupted: run it again.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from qindex.cli.screen import CommandError, Screen
from qindex.cli.spark_fleet import add_fleet, session_if_it_pays, units_apart
from qindex.cli.text import count, duration, printable, rate, size

COLUMNS = [
    "<broker", "<format", ">queues", ">live", ">recovered", ">bytes", ">expired", ">unreadable",
    ">damage",
]  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    add_fleet(parser)
    parser.add_argument("--into", metavar="DIR", required=True, help="where the stores go")
    parser.add_argument(
        "--keep-expired",
        action="store_true",
        help="recover also what has expired meanwhile, without its expiry",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: all accounts")
    parser.add_argument("--progress", action="store_true", help="progress also without a terminal")


def run(options: argparse.Namespace, screen: Screen) -> int:
    units = units_apart(options, options.into, "spark-recover")
    from qindex.spark.recover import RecoverRefused, recover

    dead = [unit for unit in units if unit.format != "qindex"]
    if not dead:
        raise CommandError("only stores of qindex are there: qindex salvage is for them")
    started = time.monotonic()
    sizes = [unit.bytes for unit in dead]
    with session_if_it_pays(screen, options.master, sizes, splits=False) as (spark, why):
        try:
            with screen.progress("recovering", "brokers") as progress:
                accounts = recover(
                    spark,
                    dead,
                    options.into,
                    keep_expired=options.keep_expired,
                    progress=progress.at,
                )
        except RecoverRefused as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted: run the same command again to go on", 130) from None
    seconds = time.monotonic() - started
    if options.json:
        screen.json({"how": why, "seconds": seconds, "brokers": accounts})
    else:
        _show(screen, accounts, options.into, why, seconds)
    wrong = any(each["error"] or each["damage"] or each["unreadable"] for each in accounts)
    return 1 if wrong else 0


def _show(
    screen: Screen, accounts: list[dict[str, Any]], into: str, why: str, seconds: float
) -> None:
    screen.heading(f"{count(len(accounts), 'dead broker')} into {printable(into)}")
    screen.table(COLUMNS, [_row(each) for each in accounts])
    failed = [each for each in accounts if each["error"]]
    if failed:
        screen.line()
    for each in failed:
        told = printable(f"{each['broker']}: {each['error']}")
        screen.line(f"  {screen.paint('not recovered', 'red')}  {told}")
    before = sum(bool(each.get("before")) for each in accounts)
    now = [each for each in accounts if not each.get("before")]
    sums = {
        name: sum(each[name] for each in accounts)
        for name in ("live", "messages", "expired", "unreadable", "body_bytes")
    }
    screen.line()
    recovered = screen.paint(f"{sums['messages']:,} recovered", "bold")
    screen.line(
        f"{sums['live']:,} live = {recovered} + {sums['expired']:,} expired"
        f" + {sums['unreadable']:,} unreadable"
    )
    speed = rate(sum(each["messages"] for each in now), seconds)
    told = f"{size(sums['body_bytes'])} in {duration(seconds)} ({speed} messages/s; {why})"
    screen.line(f"{told}; {before} by an earlier run" if before else told)


def _row(account: dict[str, Any]) -> list[str]:
    counts = [f"{account[name]:,}" for name in ("queues", "live", "messages")]
    others = [account[name] for name in ("expired", "unreadable", "damage")]
    return [
        printable(account["broker"]),
        account["format"],
        *counts,
        size(account["body_bytes"]),
        *(f"{number:,}" if number else "-" for number in others),
    ]
