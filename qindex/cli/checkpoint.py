"""A checkpoint: how a command that was killed knows, when it is run again, where to go on.

A small JSON file, replaced as a whole (draft, sync, rename): there is the old one
or the new one, whenever the process dies. It names the job, so that no other job goes on with it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from qindex.look.screen import CommandError
from qindex.look.sources import Position
from qindex.private import replace_file

_BYTES_MAX: Final = 1 << 20
_VERSION: Final = 1


class Checkpoint:
    """`state` is what the job keeps, plain values; `position` the last message that is done."""

    def __init__(self, path: Path, job: dict[str, Any]) -> None:
        self.path = path
        self.job = job
        self.state: dict[str, Any] = {}
        self.position: Position | None = None
        self.complete = False

    def load(self) -> bool:
        """False if there is none. CommandError if it is another job's, or none of ours."""
        try:
            with self.path.open("rb") as file:
                raw = file.read(_BYTES_MAX)
        except FileNotFoundError:
            return False
        try:
            told = json.loads(raw)
            version, job, complete = told["version"], told["job"], told["complete"]
            position = None if told["position"] is None else Position(**told["position"])
            state = dict(told["state"])
        except (ValueError, TypeError, KeyError):
            raise CommandError(
                f"{str(self.path)!r} is no checkpoint: move it away to start anew"
            ) from None
        if version != _VERSION or job != self.job:
            raise CommandError(
                f"{str(self.path)!r} is of another job (another source, choice or version):"
                " give the same arguments to go on, or delete it and the output to start anew"
            )
        self.state, self.position, self.complete = state, position, complete
        return True

    def save(self, position: Position | None, *, complete: bool = False) -> None:
        """Durable when it returns."""
        told = {
            "version": _VERSION,
            "job": self.job,
            "position": None if position is None else asdict(position),
            "state": self.state,
            "complete": complete,
        }
        replace_file(self.path, json.dumps(told).encode("ascii"))
        self.position, self.complete = position, complete
