"""What the commands that change a store have in common: they say what they will do, and ask."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import qindex
from qindex.look.screen import CommandError, Screen
from qindex.look.stores import (
    UNREADABLE,
    as_named,
    damage_count,
    nameless_queue_count,
    open_queue,
    open_to_look,
    open_to_write,
)
from qindex.look.text import count, queue_text

KEPT: Final = 1 << 62  # bytes of history that a store keeps, if it has any

Left = dict[object, str]
Plan = Callable[[qindex.Store], list[str]]
Act = Callable[[qindex.Store], Iterator[str]]


def add_change(parser: argparse.ArgumentParser) -> None:
    """--yes and --dry-run."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--yes", action="store_true", help="do not ask")
    how.add_argument("--dry-run", action="store_true", help="say what would be done, no more")


def carry_out(
    options: argparse.Namespace, screen: Screen, plan: Plan, act: Act, left: Left | None = None
) -> int:
    """Say what `plan` finds, ask, and do it; `act` tells what it has done.

    What they could not read, and went on behind, they put into `left`: key and text of each.
    Whatever `plan` cannot go on behind is a refusal, and the exit code 2: nothing was changed then.

    `plan` sees the store read-only, so that a store which another process has open can be asked
    about with --dry-run. `act` has it open for writing: nobody else does then.
    """
    with open_to_look(options.dir) as store:
        with refusing():
            lines = plan(store)
        nameless = nameless_queue_count(store)
        damage = damage_count(store.findings) + nameless
    for line in lines:
        screen.line(f"{'would' if options.dry_run else 'will'} {line}")
    if not lines:
        screen.line("there is nothing to do" + (" in what can be read" if damage or left else ""))
    if options.dry_run or not lines:
        return _told(screen, damage, left)
    if not options.yes:
        _ask()
    has_history = any(Path(options.dir).glob("queues/*/past.*"))
    keep = KEPT if has_history else 0
    with open_to_write(options.dir, keep_history=keep) as store:
        for line in act(store):
            screen.line(line)
        damage = damage_count(store.findings) + nameless
    return _told(screen, damage, left)


@contextmanager
def refusing() -> Iterator[None]:
    """What cannot be read is a refusal here: nothing was changed."""
    try:
        yield
    except qindex.StoreCorrupt as error:
        raise CommandError(
            f"{error}; nothing was changed: 'qindex check' lists all damage"
        ) from None


def _told(screen: Screen, damage: int, left: Left | None) -> int:
    """Says that there is damage, and what was left as it is; the exit code."""
    for text in (left or {}).values():
        screen.error(text)
    damage = max(damage, len(left or {}))
    if damage:
        screen.error(f"{count(damage, 'damaged place')}: 'qindex check' lists them")
    return 1 if damage else 0


def _ask() -> None:
    if not sys.stdin.isatty():
        raise CommandError(
            "nothing was changed: there is no terminal to ask on. --yes does it without a question,"
            " --dry-run only says what would be done"
        )
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed")


def queues_of(
    store: qindex.Store, asked: list[str], left: Left | None = None
) -> list[qindex.Queue]:
    """The queues of these names, each once, or all of them. QueueGone if one is not there.

    Of all of them those that cannot be read are put into `left`, if it is given.
    """
    names = store.queues()
    if asked or left is None:
        chosen = dict.fromkeys(as_named(name, names) for name in asked) if asked else names
        return [open_queue(store, name) for name in chosen]
    found = []
    for name in names:
        try:
            found.append(open_queue(store, name))
        except UNREADABLE as error:
            left[name] = f"{queue_text(name)} is left as it is: {error}"
    return found
