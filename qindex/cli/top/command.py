"""qindex top: watch the queues of a store.

Show the queues of a store every few seconds: how many messages wait, how many
are handed out, what comes and goes in a second, how old the first message is,
what it takes on the disk. Works on a store that a process has open, which does
not notice (no lock is taken, nothing is written), and on one that nobody has.

On a terminal, Enter opens a queue and then a message, Escape goes back, s sorts,
Space pauses, q ends. Without a terminal a table is printed every few seconds.

  --once     print one table and end; the rates are those of one interval
  --json     one JSON object per look instead of tables (JSON Lines)

unacked    handed out and not acked, also if given back since: the files do not
           tell these apart. Counted up to 10,000
delayed    not ready before their time
in/s       published; out/s: acked, expired, purged or dropped
oldest     since the first message in the queue was published; with >, it is
           older than that, because nothing in the files says when it was
disk       journals and segments; bodies of 4 KiB and more are in message files,
           which all queues share

If a look takes long, looks become fewer: they take at most a fifth of the time.

exit codes: 0 ended; 1 as 0, and damage was met (check says more); 2 not a store;
130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict

from qindex.cli.arguments import add_directory, add_output
from qindex.cli.top.figures import queue_as_json, store_as_json
from qindex.cli.top.pages import COLUMNS, queue_cells, store_facts
from qindex.look.screen import Screen
from qindex.look.text import printable
from qindex.look.watch import StoreLook, Watch
from qindex.moments import utc

PAUSE_PER_LOOK = 4


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the store's directory")
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=2.0,
        metavar="SECONDS",
        help="seconds between two looks (default: 2)",
    )
    parser.add_argument("--once", action="store_true", help="print one table and end")
    add_output(parser, "JSON Lines: one object a look", progress=False)


def run(options: argparse.Namespace, screen: Screen) -> int:
    watch = Watch(options.dir)
    look = watch.look()
    if screen.is_terminal and sys.stdin.isatty() and not options.once and not options.json:
        from qindex.cli.top.terminal import show

        look = show(watch, look, options.interval)
    elif options.once:
        time.sleep(options.interval)
        look = watch.look()
        _print(screen, look, as_json=options.json)
    else:
        while True:
            _print(screen, look, as_json=options.json)
            screen.out.flush()
            time.sleep(pause(look, options.interval))
            look = watch.look()
    return 1 if look.damage or look.nameless else 0


def pause(look: StoreLook, interval: float) -> float:
    """Seconds from the end of a look to the next."""
    return max(interval, PAUSE_PER_LOOK * look.seconds)


def _print(screen: Screen, look: StoreLook, *, as_json: bool) -> None:
    if as_json:
        rows = [{**queue_as_json(each), "rates": asdict(each.rates)} for each in look.queues]
        screen.json({**store_as_json(look), "queues": rows}, indent=None)
        return
    screen.heading(f"{printable(look.path)}  {utc(int(time.time()))}")
    screen.line(f"  {store_facts(look)}")
    if look.queues:
        queues = sorted(look.queues, key=lambda queue: (-queue.messages, queue.name))
        screen.table(COLUMNS, [queue_cells(queue) for queue in queues])
    for queue in look.queues:
        if queue.damage:
            text = screen.paint("beyond reading", "red")
            screen.line(f"  {printable(queue.name)}: {text}: {queue.damage}")
    screen.line()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.1 and 3600")
    return seconds
