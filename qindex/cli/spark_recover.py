"""qindex spark-recover: bring back the messages of many dead brokers.

Bring back every dead broker's directory at these paths, or not far below them,
into a store of its own: DIR/NAME. What recover does for one, this does for a
fleet, several at a time; the same is left out and counted. Nothing is changed in
what is read. Stores of qindex are passed over: salvage is for them.

Killed at any moment, it goes on when the same command is run again: a store that
has its name is complete, DIR/accounts has the account of each. One broker that
cannot be recovered does not stop the others.

  --jobs    so many processes of this machine; default: one per core, if there is
            enough to read for them. No Java is started
  --master  Spark's, instead: spark://host:7077, yarn; all its machines have to
            see the paths and DIR. local[4] works, too, but costs more than --jobs

exit codes: 0 all are recovered; 1 there is damage, messages are missing, or a
broker could not be recovered; 2 nothing to recover, or refused (DIR has a store
of that name from elsewhere); 130 interrupted: run it again.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from qindex.cli.arguments import add_output, add_target
from qindex.cli.spark_fleet import add_fleet, choose_way, session_if_asked, stopping, units_apart
from qindex.look.at_time import add_at_time
from qindex.look.screen import CommandError, Screen
from qindex.look.text import count, duration, printable, rate, size

COLUMNS = [
    "<broker", "<format", ">queues", ">live", ">recovered", ">bytes", ">expired", ">unreadable",
    ">damage",
]  # fmt: skip

WRONG = ("error", "damage", "unreadable", "unstorable", "changed")  # each makes the exit code 1


def configure(parser: argparse.ArgumentParser) -> None:
    add_fleet(parser)
    add_target(parser, "--into", metavar="DIR", required=True, help="where the stores go")
    parser.add_argument(
        "--keep-expired",
        action="store_true",
        help="recover also what has expired meanwhile, without its expiry",
    )
    add_at_time(parser)
    add_output(parser, "JSON: all accounts")


def run(options: argparse.Namespace, screen: Screen) -> int:
    units = units_apart(options, options.out, "spark-recover")
    from qindex.spark.recover import RecoverRefused, recover
    from qindex.spark.search import UNKNOWN

    dead = [unit for unit in units if unit.format != "qindex"]
    stores = len(units) - len(dead)
    if not any(unit.format != UNKNOWN for unit in dead) and stores:
        raise CommandError("only stores of qindex are there: qindex salvage is for them")
    if stores:
        screen.error(f"{count(stores, 'store')} of qindex passed over: qindex salvage is for them")
    started = time.monotonic()
    way = choose_way(options, [unit.bytes for unit in dead])
    with session_if_asked(screen, way) as spark:
        try:
            with screen.progress("recovering", "brokers") as progress:
                accounts = recover(
                    spark,
                    dead,
                    options.out,
                    keep_expired=options.keep_expired,
                    at_time=options.at_time,
                    progress=stopping(progress.at),
                    jobs=way.jobs,
                )
        except RecoverRefused as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted: run the same command again to go on", 130) from None
    seconds = time.monotonic() - started
    if options.json:
        screen.json({"how": way.why, "seconds": seconds, "brokers": list(map(_as_json, accounts))})
    else:
        _show(screen, accounts, options.out, way.why, seconds)
    wrong = any(any(each.get(name) for name in WRONG) for each in accounts)
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
        name: sum(each.get(name, 0) for each in accounts)
        for name in (
            "live",
            "messages",
            "expired",
            "unreadable",
            "unstorable",
            "dead_lettered",
            "body_bytes",
        )
    }
    screen.line()
    recovered = screen.paint(f"{sums['messages']:,} recovered", "bold")
    screen.line(
        f"{sums['live']:,} live = {recovered} + {sums['expired']:,} expired"
        f" + {sums['dead_lettered']:,} dead-lettered + {sums['unreadable']:,} unreadable"
        f" + {sums['unstorable']:,} unstorable"
    )
    speed = rate(sum(each["messages"] for each in now), seconds)
    told = f"{size(sums['body_bytes'])} in {duration(seconds)} ({speed} messages/s; {why})"
    screen.line(f"{told}; {before} by an earlier run" if before else told)


def _as_json(account: dict[str, Any]) -> dict[str, Any]:
    """`out` is the store's name in DIR."""
    renamed = {"source": "path", "into": "out", "queues": "queue_count"}
    return {renamed.get(key, key): value for key, value in account.items()}


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
