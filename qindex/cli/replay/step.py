"""qindex replay --step: forwards and back by hand."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

from qindex.cli.replay.show import Shown, step_line
from qindex.look.screen import Screen
from qindex.look.text import count
from qindex.native.replay import Replay

HELP: Final = """\
  Enter, n     one step forward          N        to step N
  b            one step back             +N, -N   so many steps
  f REQID      to the next record about a message
  0, $         to the start, to the end
  m            the live messages here (their ReqIds)
  q            end
"""
REQ_IDS_MAX: Final = 40
_MOVE: Final = re.compile(r"([+-]?)([0-9]{1,15})")
_FIND: Final = re.compile(r"f\s*([0-9]{1,19})")


class Steps(Protocol):
    """What is stepped through: a queue's journals, or the log of a quorum queue."""

    @property
    def number(self) -> int:
        """Of the step behind which the state is."""

    def end(self) -> str:
        """How far it goes, if the state is that behind the last step."""

    def go_to(self, number: int) -> bool:
        """False: there is none; the state is that behind the last one."""

    def go_to_end(self) -> None: ...

    def find(self, req_id: int) -> bool:
        """Forwards to the next step about this message. False: there is none, as go_to()."""

    def line(self) -> str:
        """The step, for people."""

    def live(self) -> tuple[int, Iterator[str]]:
        """How many messages are live, and their names; of those delivered before with a star."""


class JournalSteps:
    """Steps of a queue's journals: one for each record."""

    def __init__(self, shown: Shown, replay: Replay) -> None:
        self._shown = shown
        self._replay = replay
        self.go_to, self.go_to_end, self.find = replay.go_to, replay.go_to_end, replay.find

    @property
    def number(self) -> int:
        return self._replay.number

    def end(self) -> str:
        return count(self._replay.number, "record")

    def line(self) -> str:
        return step_line(self._shown, self._replay)

    def live(self) -> tuple[int, Iterator[str]]:
        state = self._replay.state
        names = (f"{m.req_id}{'*' if m.delivered else ''}" for m in state.messages())
        return state.live, names


def step(screen: Screen, steps: Steps) -> None:
    """Reads commands from stdin until q or its end."""
    _show_help(screen)
    screen.line(steps.line())
    while (command := _ask(screen)) not in (None, "q"):
        _do(screen, steps, command or "n")


def _ask(screen: Screen) -> str | None:
    if screen.is_terminal:
        screen.out.write("> ")
    screen.out.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None


def _do(screen: Screen, steps: Steps, command: str) -> None:
    move, find = _MOVE.fullmatch(command), _FIND.fullmatch(command)
    if command == "m":
        _show_ids(screen, steps)
        return
    if command == "n":
        reached = steps.go_to(steps.number + 1)
    elif command == "b":
        reached = steps.go_to(max(0, steps.number - 1))
    elif command == "$":
        steps.go_to_end()
        reached = True
    elif find:
        reached = steps.find(int(find[1]))
    elif move:
        sign = {"": 0, "+": 1, "-": -1}[move[1]]
        number = steps.number + sign * int(move[2]) if sign else int(move[2])
        reached = steps.go_to(max(0, number))
    else:
        _show_help(screen)
        return
    screen.line(steps.line())
    if not reached:
        screen.line(f"  the end: {steps.end()}")


def _show_help(screen: Screen) -> None:
    for line in HELP.rstrip().splitlines():
        screen.line(line)


def _show_ids(screen: Screen, steps: Steps) -> None:
    live, names = steps.live()
    shown = list(islice(names, REQ_IDS_MAX + 1))
    if len(shown) > REQ_IDS_MAX:
        shown[-1] = "..."
    screen.line(f"  {count(live, 'live message')} (* delivered before)")
    if shown:
        screen.line(f"  {' '.join(shown)}")
