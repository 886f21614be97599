"""The arguments that commands share: DIR, --out, --json and --progress, and former spellings."""

from __future__ import annotations

import argparse
from typing import Any, Final

from qindex.look.screen import tell_former

STORE_OR_BROKER: Final = "a store, or a dead broker's directory"


def add_directory(parser: argparse.ArgumentParser, what: str = STORE_OR_BROKER) -> None:
    """DIR: what the command reads. It is always called that, and is `options.dir`."""
    parser.add_argument("dir", metavar="DIR", help=what)


def add_output(parser: argparse.ArgumentParser, what: str, *, progress: bool = True) -> None:
    """--json, which prints `what`; and --progress, if the command can take long."""
    parser.add_argument("--json", action="store_true", help=f"print {what}")
    if progress:
        add_progress(parser)


def add_progress(parser: argparse.ArgumentParser) -> None:
    text = "show progress on stderr even if it is no terminal"
    parser.add_argument("--progress", action="store_true", help=text)


def add_target(parser: argparse.ArgumentParser, *former: str, **options: Any) -> None:
    """--out: the one name for what a command writes; `former`: what it was called before."""
    required = options.pop("required", False)
    group = parser.add_mutually_exclusive_group(required=required)
    group.add_argument("--out", **options)
    for name in former:
        group.add_argument(name, action=Renamed, dest="out")


class Renamed(argparse.Action):
    """A former name of --out: it works for one more version, and says so.

    Where it named the form of what is written (export --jsonl FILE), it still does.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, help=argparse.SUPPRESS)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        tell_former(str(option_string), "--out")
        setattr(namespace, self.dest, values)
        if hasattr(namespace, "form"):
            namespace.form = str(option_string).removeprefix("--")
