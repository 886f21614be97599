"""qindex configure: show or change a queue's settings, durably.

  qindex configure data orders               shows them
  qindex configure data orders ttl=3600 max_messages=1000
  qindex configure data orders dead_letters=dead lease=none

The settings are ttl, lease and expires (seconds), max_messages, max_bytes,
max_deliveries (numbers), overflow (reject, drop-head or dead-letter) and
dead_letters (yes, no, or the name of another queue). "none" takes one back.
All of a call are changed, or none.

The store must not be open in another process: a program that has it open
calls queue.configure() itself. It must have format 2, which stores settings.

exit codes: 0 done, or there was nothing to do, or --dry-run; 1 done, and the
store has damage; 2 refused: the text says why. Nothing was changed then.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final, cast

import qindex
from qindex.cli.arguments import add_directory
from qindex.cli.change import add_change, carry_out, queues_of, refusing
from qindex.look.screen import CommandError, Screen
from qindex.look.stores import open_to_look
from qindex.look.text import printable, queue_text
from qindex.rules import Changes

_WORDS: Final = {"yes": True, "no": False}
_READ: Final[dict[str, Callable[[str], Any]]] = {
    "ttl": float,
    "max_messages": int,
    "max_bytes": int,
    "overflow": str,
    "max_deliveries": int,
    "dead_letters": lambda text: _WORDS.get(text, text),
    "lease": float,
    "expires": float,
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the store")
    parser.add_argument("queue", metavar="QUEUE", help="whose settings they are")
    parser.add_argument(
        "settings",
        metavar="SETTING=VALUE",
        nargs="*",
        type=_setting,
        help="what is changed (default: nothing; the settings are shown)",
    )
    add_change(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    changes = cast("Changes", dict(options.settings))
    if len(changes) < len(options.settings):
        raise CommandError("a setting is named twice: which value is meant?")
    if not changes:
        with open_to_look(options.dir) as store, refusing():
            _check_format(store)
            rows = _shown(queues_of(store, [options.queue])[0].settings)
        screen.table(["<setting", "<value"], [[name, value] for name, value in rows.items()])
        return 0

    def plan(store: qindex.Store) -> list[str]:
        _check_format(store)
        (queue,) = queues_of(store, [options.queue])
        try:
            # A store that is read-only checks all, and changes nothing.
            now, then = queue.settings, queue._change_settings(changes)
        except (TypeError, ValueError) as error:
            raise CommandError(str(error)) from None
        except qindex.QueueMissing as error:
            raise CommandError(
                f"{error}; dead_letters is yes, no, or the name of a queue that is there:"
                " nothing was changed"
            ) from None
        before, after = _shown(now), _shown(then)
        return [
            f"set {name} of {queue_text(queue.name)} to {after[name]} (it is {before[name]})"
            for name in after
            if after[name] != before[name]
        ]

    def act(store: qindex.Store) -> Iterator[str]:
        (queue,) = queues_of(store, [options.queue])
        settings = _shown(queue.configure(**changes))
        told = ", ".join(f"{name} {settings[name]}" for name in changes)
        yield f"{queue_text(queue.name)}: {told}"

    return carry_out(options, screen, plan, act)


def _check_format(store: qindex.Store) -> None:
    if not store._stores_settings:
        raise CommandError(
            "the store has format 1, which does not store settings: 'qindex upgrade' makes it one"
            " that does"
        )


def _shown(settings: qindex.Settings) -> dict[str, str]:
    words = {True: "yes", False: "no", None: "none"}
    return {
        name: words[value] if value is None or isinstance(value, bool) else _one(value)
        for name, value in asdict(settings).items()
    }


def _one(value: float | str) -> str:
    return printable(value) if isinstance(value, str) else f"{value:.15g}"


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or name not in _READ:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no SETTING=VALUE; the settings are {', '.join(_READ)}"
        )
    if value == "none":
        return name, None
    try:
        return name, _READ[name](value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{name} is a number, not {value!r}") from None
