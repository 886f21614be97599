"""qindex export: write messages into a file.

Write the chosen messages of a store, or of a dead broker's directory, to PLACE.
What is written follows from its name, or from --form:

  --out NAME.jsonl    one JSON object a line, with the keys of 'qindex cat
                      --jsonl': the body as text if it is UTF-8 ("body"), else
                      in base64 ("body_base64")
  --out NAME.parquet  columns of these names; body is binary, headers and
                      properties are JSON texts (needs 'qindex[parquet]')
  --form files        PLACE is a folder: a body per file, QUEUE/REQID.body, and
                      messages.jsonl with the other keys and "file". A queue's
                      folder has its name, percent-encoded; the empty name
                      becomes %empty. Names that are longer than 150 characters
                      then are cut, and end with a hash. Two queues never share
                      a folder

Killed at any moment, it goes on where it was when the same command is run
again; PLACE.checkpoint, which stays beside it, says where that is.
What is complete is not written again. (After a power cut, bodies that --form
files wrote last may be missing: they are not synced one by one.)

Nothing is written in DIR. A store may be in use: then each message is exported
as it is when its turn comes.

exit codes: 0 complete; 1 complete, but what is damaged is left out, or the one
message of --req-id N is not there; 2 refused, or the disk is full (the text
says what to do); 130 interrupted: run it again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Final

from qindex.apart import refuse_inside
from qindex.cli.arguments import add_directory, add_output, add_target
from qindex.cli.checkpoint import Checkpoint
from qindex.cli.export.outputs import LIST, Files, JsonLines, Output, Parquet
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.messages import Choice, add_choice, choice_of
from qindex.look.screen import CommandError, Progress, Screen
from qindex.look.sources import (
    Position,
    Source,
    chosen,
    chosen_names,
    open_source,
    total_of,
)
from qindex.look.telling import tell_damage
from qindex.look.text import count, duration, printable, rate, size

COMMIT_MESSAGES: Final = 10_000
COMMIT_BYTES: Final = 32 * 1024 * 1024
FORMATS: Final[dict[str, type[JsonLines] | type[Parquet] | type[Files]]] = {
    "jsonl": JsonLines,
    "parquet": Parquet,
    "files": Files,
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    add_choice(parser)
    add_target(
        parser,
        *(f"--{form}" for form in FORMATS),
        metavar="PLACE",
        required=True,
        help="the file to write, or with --form files the folder",
    )
    parser.add_argument(
        "--form",
        choices=tuple(FORMATS),
        help="what to write (default: jsonl or parquet, if the name ends so)",
    )
    add_output(parser, "JSON: the account")


def run(options: argparse.Namespace, screen: Screen) -> int:
    asked, form = options.out, _form_of(options)
    path = Path(asked).absolute()
    choice = choice_of(options)
    job = {
        "command": "export",
        "source": str(Path(options.dir).resolve()),
        "choice": choice.as_json(),
        "form": form,
        **({} if options.at_time is None else {"at_time": options.at_time}),
    }
    with open_source(options.dir, screen, options.member, options.at_time) as source:
        refuse_inside(path, source.root)
        chosen_names(source, choice)  # a QUEUE that is not there: before anything is written
        checkpoint = Checkpoint(path.with_name(f"{path.name}.checkpoint"), job)
        goes_on = checkpoint.load()
        if not goes_on:
            _refuse_existing(path)
        elif checkpoint.complete:
            _refuse_missing(path, checkpoint)
        started = time.monotonic()
        if not checkpoint.complete:
            _export(screen, source, choice, checkpoint, FORMATS[form](path), goes_on)
        source.missing = checkpoint.state.get("missing", [])
        _show(screen, checkpoint, options, asked, goes_on, time.monotonic() - started)
        damaged = checkpoint.state["damaged"]
        return tell_damage(screen, source) or (1 if damaged else 0)


def _form_of(options: argparse.Namespace) -> str:
    form = options.form or Path(options.out).suffix.lower().removeprefix(".")
    if form not in FORMATS or (form == "files" and not options.form):
        raise CommandError(
            f"what is {printable(options.out)!r} to be? End it in .jsonl or .parquet, or give"
            " --form files"
        )
    return str(form)


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


def _refuse_missing(path: Path, checkpoint: Checkpoint) -> None:
    """An output that is complete by its checkpoint must still be there, as long as it was."""
    file = path / LIST if checkpoint.job["form"] == "files" else path
    length = checkpoint.state.get("bytes")
    if not file.exists() or (length is not None and file.stat().st_size != length):
        raise CommandError(
            f"{str(file)!r} is not what the checkpoint says: it is gone, or was changed; delete"
            f" {str(checkpoint.path)!r} and what is left of the output to export again"
        )


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
        state["missing"] = source.missing
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
            "path": options.dir,
            "out": asked,
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
