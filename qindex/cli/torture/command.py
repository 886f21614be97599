"""qindex torture: try your own disk, and write a report for a ticket.

Works in a new folder inside DIR, as the user that you are, and removes it
again: kills a busy process with SIGKILL, some times a second, and holds each
recovery to what that process had reported; opens a store twice; forks; runs
into a limit of file sizes; looks read-only; measures how long a sync takes.

The report names the kernel, the file system and its mount options, each trial
with its outcome, and what cannot be tried here and why. No name of a queue or
content of a store of yours is in it: only stores made here are touched.

exit codes: 0 all trials passed; 1 a trial failed (its store is kept, the
report says where); 2 DIR cannot be used; 130 interrupted (report written).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import qindex
from qindex.cli.arguments import add_directory, add_output
from qindex.cli.torture import machine
from qindex.cli.torture.kill import KillLoop
from qindex.cli.torture.trials import NOT_HERE, TRIALS, NotPossible
from qindex.look.screen import CommandError, Screen
from qindex.look.text import count, duration, printable
from qindex.moments import utc
from qindex.private import make_folder, open_private

REPORT: Final = "qindex-torture.txt"
PASSED, FAILED, SKIPPED = "passed", "FAILED", "not possible"


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "a directory on the disk to try")
    parser.add_argument(
        "--minutes", type=float, default=1.0, metavar="N", help="how long to kill (default: 1)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the random choices"
    )
    parser.add_argument(
        "--report", metavar="FILE", help=f"where the report goes (default: DIR/{REPORT})"
    )
    add_output(parser, "JSON: facts and outcomes")


def run(options: argparse.Namespace, screen: Screen) -> int:
    base = Path(options.dir)
    if not base.is_dir():
        raise CommandError(f"{options.dir!r} is not a directory")
    if options.minutes <= 0:
        raise CommandError("--minutes must be more than 0")
    report = Path(options.report) if options.report else base / REPORT
    folder = Path(tempfile.mkdtemp(prefix="qindex-torture-", dir=base))
    torture = Torture(screen, folder, quiet=options.json)
    interrupted = False
    try:
        torture.run(options.minutes * 60, options.seed)
    except KeyboardInterrupt:
        interrupted = True
    if not torture.failed:
        shutil.rmtree(folder, ignore_errors=True)
    with open_private(report, "w", encoding="utf-8") as file:
        file.write(torture.as_text(interrupted))
    if options.json:
        screen.json({**torture.as_json(), "interrupted": interrupted, "report": str(report)})
    else:
        torture.conclude(report, interrupted)
    return 130 if interrupted else 1 if torture.failed else 0


class Torture:
    """Facts, then trials in their order; keeps what the report will say."""

    def __init__(self, screen: Screen, folder: Path, *, quiet: bool) -> None:
        self.screen = screen
        self.folder = folder
        self.quiet = quiet
        self.started = time.time()
        self.facts: list[tuple[str, str]] = []
        self.outcomes: list[tuple[str, str, str]] = []  # trial, outcome, text

    @property
    def failed(self) -> bool:
        return any(outcome == FAILED for _, outcome, _ in self.outcomes)

    def run(self, seconds: float, seed: int) -> None:
        self.section(f"The machine, and {printable(str(self.folder.parent))}")
        for name, text in machine.facts(self.folder):
            self.fact(name, text)
        for name, latency in (
            ("sync", machine.sync_latency(self.folder)),
            ("confirm", machine.confirm_latency(self.folder)),
        ):
            middle = f"{duration(latency.median)} median, {duration(latency.p99)} of 99 %"
            self.fact(name, f"{middle}, {duration(latency.most)} at most")
        self.section("Trials")
        for name, trial in TRIALS.items():
            place = self.folder / name.replace(" ", "-")
            make_folder(place)
            self.attempt(name, partial(trial, place))
        self.attempt("kill -9", partial(self.kill, seconds, seed))
        for name, why in NOT_HERE.items():
            self.note(name, SKIPPED, why)

    def kill(self, seconds: float, seed: int) -> str:
        """The loop until the time is over; at least one round."""
        loop = KillLoop(self.folder, seed)
        begin = time.monotonic()
        with self.screen.progress("killing", "kills") as progress:
            while loop.rounds == 0 or time.monotonic() - begin < seconds:
                loop.round()
                progress.at(loop.rounds, 0, f"{count(loop.operations, 'operation')} checked")
        took = time.monotonic() - begin
        loop.finish()
        per_second = f"{loop.rounds / took:.1f} a second"
        what = f"{count(loop.rounds, 'kill')} survived, {per_second}"
        return (
            f"{what}; {count(loop.operations, 'operation')} checked, none lost, doubled or altered"
        )

    def attempt(self, name: str, trial: Callable[[], str]) -> None:
        try:
            self.note(name, PASSED, trial())
        except NotPossible as why:
            self.note(name, SKIPPED, str(why))
        except Exception as error:  # whatever it is, it belongs into the report
            notes = "".join(f"; {note}" for note in getattr(error, "__notes__", []))
            text = f"{type(error).__name__}: {error}{notes}"
            if not isinstance(error, (AssertionError, qindex.QindexError, OSError)):
                text += f"\n{traceback.format_exc()}"
            self.note(name, FAILED, text)

    # --- what is shown ----------------------------------------------------------------------

    def section(self, title: str) -> None:
        if not self.quiet:
            self.screen.line()
            self.screen.heading(title)

    def fact(self, name: str, text: str) -> None:
        self.facts.append((name, text))
        if not self.quiet:
            self.screen.pair(name, printable(text), columns=19)

    def note(self, name: str, outcome: str, text: str) -> None:
        self.outcomes.append((name, outcome, text))
        if self.quiet:
            return
        mark = self.screen.paint("-", "yellow")
        if outcome != SKIPPED:
            mark = self.screen.mark(outcome == PASSED)
        self.screen.pair(name, f"{mark} {printable(text)}", columns=19)

    def conclude(self, report: Path, interrupted: bool) -> None:
        self.screen.line()
        if self.failed:
            kept = f"a trial failed; what it left is in {printable(str(self.folder))}"
            self.screen.line(self.screen.paint(kept, "red"))
        elif interrupted:
            self.screen.line("Interrupted; what was tried until then passed.")
        else:
            self.screen.line(self.screen.paint("All trials passed.", "green"))
        self.screen.line(f"The report is {printable(str(report))}.")

    def as_text(self, interrupted: bool) -> str:
        """Plain ASCII where the texts are, to be attached to a ticket."""
        when = utc(int(self.started))
        lines = [f"qindex torture, {when}, {duration(time.time() - self.started)}", ""]
        lines += [f"{name + ':':<20} {text}" for name, text in self.facts]
        lines.append("")
        lines += [f"{name + ':':<20} {outcome}: {text}" for name, outcome, text in self.outcomes]
        if interrupted:
            lines.append("interrupted before the end")
        if self.failed:
            lines.append(f"kept: {self.folder}")
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        return {
            "facts": {name.replace(" ", "_"): text for name, text in self.facts},
            "trials": [
                {"trial": name, "outcome": outcome, "text": text}
                for name, outcome, text in self.outcomes
            ],
            "passed": not self.failed,
            "kept_in": str(self.folder) if self.failed else None,
        }
