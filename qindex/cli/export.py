"""qindex export: messages into a file.

Write the chosen messages of a store, or of a dead broker's directory,
to one of:

  --jsonl FILE      one JSON object a line, with the keys of 'qindex cat
                    --jsonl': the body as text if it is UTF-8 ("body"), else in
                    base64 ("body_base64")
  --parquet FILE    columns of these names; body is binary, headers and
                    properties are JSON texts (needs 'qindex[parquet]')
  --files FOLDER    a body per file, QUEUE/REQID.body, and messages.jsonl with
                    the other keys and "file"; the names of queues are
                    percent-encoded

Killed at any moment, it goes on where it was when the same command is run
again; OUTPUT.checkpoint, which stays beside the output, says where that is.
What is complete is not written again. (After a power cut, bodies that --files
wrote last may be missing: they are not synced one by one.)

Nothing is written in DIR. A store may be in use: then each message is exported
as it is when its turn comes.

exit codes: 0 complete; 1 complete, but what is damaged is left out; 2 refused,
or the disk is full (the text says what to do); 130 interrupted: run it again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Final

from qindex.cli.checkpoint import Checkpoint
from qindex.cli.export_outputs import Files, JsonLines, Output, Parquet
from qindex.cli.messages import Choice, add_choice, choice_of
from qindex.cli.screen import CommandError, Progress, Screen
from qindex.cli.sources import (
    Position,
    Source,
    chosen,
    open_source,
    refuse_inside,
    tell_damage,
    total_of,
)
from qindex.cli.text import count, duration, printable, rate, size

COMMIT_MESSAGES: Final = 10_000
COMMIT_BYTES: Final = 32 * 1024 * 1024
FORMATS: Final[dict[str, type[JsonLines] | type[Parquet] | type[Files]]] = {
    "jsonl": JsonLines,
    "parquet": Parquet,
    "files": Files,
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="a store, or a dead broker's directory")
    add_choice(parser)
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("--jsonl", metavar="FILE", help="write JSON Lines")
    output.add_argument("--parquet", metavar="FILE", help="write a Parquet file")
    output.add_argument("--files", metavar="FOLDER", help="write a file per body")
    parser.add_argument("--json", action="store_true", help="print JSON: the account")
    parser.add_argument("--progress", action="store_true", help="progress also without a terminal")


def run(options: argparse.Namespace, screen: Screen) -> int:
    form = next(name for name in FORMATS if getattr(options, name) is not None)
    asked = getattr(options, form)
    path = Path(asked).absolute()
    choice = choice_of(options)
    job = {
        "command": "export",
        "source": str(Path(options.dir).resolve()),
        "choice": choice.as_json(),
        "form": form,
    }
    with open_source(options.dir, screen) as source:
        refuse_inside(source, path)
        checkpoint = Checkpoint(path.with_name(f"{path.name}.checkpoint"), job)
        goes_on = checkpoint.load()
        if not goes_on:
            _refuse_existing(path)
        started = time.monotonic()
        if not checkpoint.complete:
            _export(screen, source, choice, checkpoint, FORMATS[form](path), goes_on)
        _show(screen, checkpoint, options, asked, goes_on, time.monotonic() - started)
        damaged = checkpoint.state["damaged"]
        return tell_damage(screen, source) or (1 if damaged else 0)


def _refuse_existing(path: Path) -> None:
    parts = path.with_name(f"{path.name}.parts")  # a Parquet file that is not complete
    for place in (path, parts):
        if place.exists() or place.is_symlink():
            raise CommandError(
                f"{str(place)!r} is there already, and has no checkpoint to go on from: choose"
                " another name, or delete it"
            )
    if not path.parent.is_dir():
        raise CommandError(f"{str(path.parent)!r} is no directory: make it first")


def _export(
    screen: Screen,
    source: Source,
    choice: Choice,
    checkpoint: Checkpoint,
    output: Output,
    goes_on: bool,
) -> None:
    state = checkpoint.state
    for key in ("messages", "body_bytes", "damaged"):
        state.setdefault(key, 0)
    if not goes_on:
        checkpoint.save(None)  # first of all: an output without a checkpoint is somebody else's
    try:
        output.begin(state)
        with screen.progress("exporting", "messages") as progress:
            _copy(source, choice, checkpoint, output, progress)
        output.finish()
        checkpoint.save(checkpoint.position, complete=True)
    except KeyboardInterrupt:
        raise CommandError("interrupted: run the same command again to go on", 130) from None
    except OSError as error:
        raise CommandError(
            f"{error.strerror or error} after {count(state['messages'], 'message')}: when that is"
            " mended, run the same command again to go on"
        ) from None
    finally:
        output.close()


def _copy(
    source: Source, choice: Choice, checkpoint: Checkpoint, output: Output, progress: Progress
) -> None:
    state, position = checkpoint.state, checkpoint.position
    total = total_of(source, choice)
    before = state["messages"]
    messages, body_bytes, damaged = before, state["body_bytes"], state["damaged"]
    committed = (messages, body_bytes)

    def commit() -> None:
        output.commit()
        told = max(damaged + source.damaged, source.damage())
        state.update(messages=messages, body_bytes=body_bytes, damaged=told)
        checkpoint.save(position)

    progress.at(0, max(0, total - before))
    for message in chosen(source, choice, position):
        output.write(message)
        same = position is not None and position.queue == message.queue
        number = position.count + 1 if position is not None and same else 1
        position = Position(message.queue, message.part, message.req_id, number)
        messages += 1
        body_bytes += len(message.body)
        progress.at(messages - before, max(0, total - before), size(body_bytes))
        full = body_bytes - committed[1] >= COMMIT_BYTES
        if full or messages - committed[0] >= COMMIT_MESSAGES:
            commit()
            committed = (messages, body_bytes)
    commit()


def _show(
    screen: Screen,
    checkpoint: Checkpoint,
    options: argparse.Namespace,
    asked: str,
    goes_on: bool,
    seconds: float,
) -> None:
    state = checkpoint.state
    if options.json:
        account: dict[str, Any] = {
            "source": options.dir,
            "output": asked,
            "messages": state["messages"],
            "body_bytes": state["body_bytes"],
            "damaged": state["damaged"],
            "went_on": goes_on,
            "seconds": round(seconds, 6),
        }
        screen.json(account)
        return
    told = f"{count(state['messages'], 'message')} ({size(state['body_bytes'])})"
    told += f" in {printable(asked)}"
    if goes_on:
        told += ", which an earlier run began"
    else:
        told += f", in {duration(seconds)} ({rate(state['messages'], seconds)} messages/s)"
    screen.line(told)
