"""qindex bisect: find the message that kills a consumer.

Run a command with fewer and fewer of a queue's messages, until it is known
which one it dies of: about a dozen runs for a thousand messages. It gets a copy;
nothing is taken, acked or changed in DIR, which may be in use, or a dead
broker's directory.

  qindex bisect DIR QUEUE --cmd 'python3 consumer.py'

--cmd is run by /bin/sh. Exit status 0 means that it is fine; any other, or a
signal, that it died (as for git bisect run). 125 ends the search: it cannot
judge. What it gets with each run is up to --feed:

  jsonl     on stdin, one JSON object a line: as qindex cat --jsonl (the default)
  bodies    on stdin, each body followed by a newline
  lengths   on stdin, 4 bytes before each body: its length, big-endian
  store     a store of its own with the messages, in the same queue: its path is
            in $QINDEX_STORE, the queue's name in $QINDEX_QUEUE

If no single message does it, it finds a smallest set that does it together: none
of them can be left out. A run that takes longer than --seconds is stopped and
counts as dead; with --alive-ok as fine, for a consumer that never ends by itself.

exit codes: 0 it survives all messages; 1 found: a message, or several
together, kill it; 2 wrong usage, or nothing can be found (it dies without any
message, its end differs from run to run, too many runs).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from qindex.cli.arguments import add_directory, add_output
from qindex.cli.bisect.search import TooManyRuns, Trials, find_killers
from qindex.cli.bisect.trial import Consumer, Outcome, Spool
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.messages import FOR_CONSUMERS, Found, add_choice, choice_of, positive
from qindex.look.screen import CommandError, Screen
from qindex.look.sources import chosen, chosen_names, open_source, total_of
from qindex.look.text import count, duration, printable, size

FEEDS: Final = ("jsonl", "bodies", "lengths", "store")
RUNS_MAX: Final = 200
SECONDS: Final = 60.0
SHOWN_MAX: Final = 20
HEAD_CHARACTERS: Final = 60
COLUMNS: Final = ["<queue", ">ReqId", "<state", ">deliveries", ">size", "<body"]


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    add_choice(parser, states=FOR_CONSUMERS)
    parser.add_argument(
        "--cmd", required=True, metavar="COMMAND", help="shell command that consumes the messages"
    )
    parser.add_argument(
        "--feed",
        choices=FEEDS,
        default="jsonl",
        help="how the consumer gets the messages (default: jsonl)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=SECONDS,
        metavar="S",
        help=f"end a run after S seconds (default: {SECONDS:g})",
    )
    parser.add_argument(
        "--alive-ok", action="store_true", help="a consumer that still runs after --seconds is fine"
    )
    parser.add_argument(
        "--runs",
        type=positive,
        default=RUNS_MAX,
        metavar="N",
        help=f"start the consumer at most N times (default: {RUNS_MAX})",
    )
    add_output(parser, "JSON")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with tempfile.TemporaryDirectory(prefix="qindex-bisect-") as folder:
        spool = _spool(options, screen, Path(folder))
        try:
            return _Search(options, screen, spool).run()
        finally:
            spool.close()


def _spool(options: argparse.Namespace, screen: Screen, folder: Path) -> Spool:
    """A copy of the chosen messages: the queue may go on."""
    with open_source(options.dir, screen, options.member, options.at_time) as source:
        names = options.queues or source.names()
        if len(names) != 1:
            queues = count(len(source.names()), "queue")
            raise CommandError(f"name one QUEUE; {source.path!r} has {queues}: see qindex ls")
        options.queues = names
        choice = choice_of(options)
        names = chosen_names(source, choice)
        spool = Spool(folder, names[0])
        with screen.progress("copying", "messages") as progress:
            total = total_of(source, choice)
            for found in chosen(source, choice):
                spool.add(found)
                progress.at(len(spool), total)
        if source.damaged:
            screen.error(f"{count(source.damaged, 'damaged message')} left out")
        return spool


class _Search:
    """Runs, tells of each, and of what was found."""

    def __init__(self, options: argparse.Namespace, screen: Screen, spool: Spool) -> None:
        self._screen = screen
        self._spool = spool
        self._quiet = options.json
        self._consumer = Consumer(
            spool, options.cmd, options.feed, options.seconds, options.alive_ok
        )
        self._trials = Trials(self._kills, options.runs)
        self._last = Outcome(False, "", "")

    def run(self) -> int:
        everything = len(self._spool)
        if everything == 0:
            raise CommandError("no message is chosen: there is nothing to find")
        if self._trials(range(0)):
            raise CommandError(
                f"the command dies without any message ({self._last.how}): mend that first."
                f" {_tail(self._last.output)}"
            )
        if not self._trials(range(everything)):
            return self._tell([], others=False)
        try:
            killers = find_killers(self._trials, everything)
            rest = [n for n in range(everything) if n not in set(killers)]
            again = self._trials.again(killers)
            last = self._last
            others = bool(rest) and self._trials(rest)
            self._last = last
        except TooManyRuns as error:
            raise CommandError(
                f"not found in {count(self._trials.runs, 'run')}: the smallest set so far has"
                f" {count(len(error.best), 'message')}, from {self._name(error.best[0])} to"
                f" {self._name(error.best[-1])}; --runs allows more"
            ) from None
        if not again:
            raise CommandError(
                "the same messages once kill it and once do not: its end depends on something else"
            )
        return self._tell(killers, others)

    def _kills(self, positions: Sequence[int]) -> bool:
        started = time.monotonic()
        with self._screen.progress(f"run {self._trials.runs}") as progress:
            progress.at(0)
            outcome = self._consumer.run(positions)
        if outcome.died:
            self._last = outcome
        if not self._quiet:
            what = "died" if outcome.died else "fine"
            style = "red" if outcome.died else "green"
            self._screen.line(
                f"  run {self._trials.runs:>3}  {self._stretch(positions):<32}"
                f" {self._screen.paint(what, style)}  {outcome.how},"
                f" {duration(time.monotonic() - started)}"
            )
            self._screen.out.flush()
        return outcome.died

    def _stretch(self, positions: Sequence[int]) -> str:
        if not positions:
            return "no message"
        if len(positions) == 1:
            return f"{self._name(positions[0])} alone"
        ends = f"{self._name(positions[0])} to {self._name(positions[-1])}"
        is_whole = positions[-1] - positions[0] == len(positions) - 1
        return f"{count(len(positions), 'message')}{',' if is_whole else ' of'} {ends}"

    def _name(self, position: int) -> str:
        (found,) = self._spool.read([position])
        return str(found.req_id)

    def _tell(self, killers: list[int], others: bool) -> int:
        found = list(self._spool.read(killers[:SHOWN_MAX]))
        if self._quiet:
            self._screen.json(
                {
                    "messages": len(self._spool),
                    "runs": self._trials.runs,
                    "survives": not killers,
                    "together": len(killers),
                    "others_kill_too": others,
                    "how": self._last.how,
                    "output": self._last.output,
                    "killers": [message.as_json() for message in self._spool.read(killers)],
                }
            )
        elif not killers:
            self._screen.line(f"it survives all {count(len(self._spool), 'message')}")
        else:
            self._tell_killers(killers, found, others)
        return 1 if killers else 0

    def _tell_killers(self, killers: list[int], found: list[Found], others: bool) -> None:
        screen = self._screen
        screen.line()
        if len(killers) == 1:
            screen.heading(f"it dies of this message: {self._last.how}")
        else:
            screen.heading(
                f"no single message does it: it dies of these {len(killers)} together, in this"
                f" order: {self._last.how}"
            )
        screen.table(COLUMNS, [_row(message) for message in found])
        if len(killers) > len(found):
            more = count(len(killers) - len(found), "more message")
            screen.line(f"  and {more}: perhaps it is their number that it dies of")
        if output := _tail(self._last.output):
            screen.line("  it said:")
            for line in output.split("\n"):
                screen.line(f"    {printable(line)}")
        rest = "it dies of others, too" if others else "it survives the rest"
        screen.line(f"  without {'it' if len(killers) == 1 else 'them'}: {rest}")
        if others:
            screen.line("  to find the next one, choose --req-id from behind this one on")


def _row(found: Found) -> list[str]:
    text = found.body[: 4 * HEAD_CHARACTERS].decode(errors="backslashreplace")
    return [
        printable(found.queue),
        str(found.req_id),
        found.state,
        str(found.delivery_count),
        size(len(found.body)),
        printable(text)[:HEAD_CHARACTERS],
    ]


def _tail(output: str, lines_max: int = 6) -> str:
    return "\n".join(output.strip().split("\n")[-lines_max:])


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is no time from 0 to 86400 seconds")
    return number
