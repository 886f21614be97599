"""qindex replay --step: forwards and back by hand."""

from __future__ import annotations

import re
import sys
from typing import Final

from qindex.cli.replay_show import Shown, step_line
from qindex.cli.screen import Screen
from qindex.cli.text import count
from qindex.formats.replay import Replay

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


def step(screen: Screen, shown: Shown, replay: Replay) -> None:
    """Reads commands from stdin until q or its end."""
    screen.line(HELP.rstrip())
    screen.line(step_line(shown, replay))
    while (command := _ask(screen)) not in (None, "q"):
        _do(screen, shown, replay, command or "n")


def _ask(screen: Screen) -> str | None:
    if screen.is_terminal:
        screen.out.write("> ")
    screen.out.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None


def _do(screen: Screen, shown: Shown, replay: Replay, command: str) -> None:
    move, find = _MOVE.fullmatch(command), _FIND.fullmatch(command)
    if command == "m":
        _show_ids(screen, replay)
        return
    if command == "n":
        reached = replay.go_to(replay.number + 1)
    elif command == "b":
        reached = replay.go_to(max(0, replay.number - 1))
    elif command == "$":
        replay.go_to_end()
        reached = True
    elif find:
        reached = replay.find(int(find[1]))
    elif move:
        sign = {"": 0, "+": 1, "-": -1}[move[1]]
        number = replay.number + sign * int(move[2]) if sign else int(move[2])
        reached = replay.go_to(max(0, number))
    else:
        screen.line(HELP.rstrip())
        return
    screen.line(step_line(shown, replay))
    if not reached:
        screen.line(f"  the end: {count(replay.number, 'record')}")


def _show_ids(screen: Screen, replay: Replay) -> None:
    ids: list[str] = []
    for message in replay.state.messages():
        if len(ids) == REQ_IDS_MAX:
            ids.append("...")
            break
        ids.append(f"{message.req_id}{'*' if message.redelivered else ''}")
    screen.line(f"  {count(replay.state.live, 'live message')} (* delivered before)")
    if ids:
        screen.line(f"  {' '.join(ids)}")
