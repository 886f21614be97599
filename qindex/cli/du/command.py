"""qindex du: where the bytes are, and what keeps them.

Show for each queue how many bytes its index and its bodies take, and for all
files how much of them is alive: of a store, or of a dead broker's directory. A
body that several queues of a store share counts in each by its share (of a
RabbitMQ node, in full).

  --explain   for each message file, and each segment that is mostly garbage:
              which messages keep it, in which queues, and what would free it

Alive is what a message that is not acked needs. Room is what was allocated in
advance at the end of a file. The rest is garbage: bodies and records of acked
messages, which go when the file goes, or in a compaction.

Reads the index of all queues, and of message files only headers; changes
nothing.

exit codes: 0 shown; 1 something is damaged: what is not read may be alive, so
nothing is called garbage ("garbage or not read"; --json: null); 2 no such
directory.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from importlib import import_module
from typing import Any, Final

from qindex.cli.arguments import add_directory, add_output
from qindex.look.members import add_members
from qindex.look.screen import Screen
from qindex.look.sources import Source, open_source
from qindex.look.telling import tell_damage
from qindex.look.text import count, printable, size, written_id
from qindex.look.usage import FileUse, Holder, QueueUse, Usage, rest_of

MODULES: Final = {"qindex": "qindex.look.usage_store", "rabbitmq": "qindex.cli.du.rabbitmq"}
OTHERS: Final = "qindex.cli.du.other_brokers"
QUEUE_COLUMNS: Final = ["<queue", ">messages", ">index", ">of it live", ">bodies"]
FILE_COLUMNS: Final = ["<file", ">size", ">live", ">garbage", ">room", "<kept by"]
FILES_MAX: Final = 40
QUEUES_MAX: Final = 3


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    parser.add_argument("--explain", action="store_true", help="show which messages keep each file")
    add_output(parser, "JSON: all files and queues")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_source(options.dir, screen, options.member) as source:
        module = MODULES.get(source.format, OTHERS)
        usage: Usage = import_module(module).collect(source, screen)
        usage.unread |= source.format != "qindex" and source.damage() > 0
        if options.json:
            screen.json(_as_json(source, usage))
        else:
            _show_queues(screen, usage)
            if options.explain:
                _show_files(screen, usage)
                _show_advice(screen, usage)
        return tell_damage(screen, source)


def _show_queues(screen: Screen, usage: Usage) -> None:
    total = QueueUse("all queues")
    for queue in usage.queues:
        total.messages += queue.messages
        total.index += queue.index
        total.index_live += queue.index_live
        total.bodies += queue.bodies
    shown = [*usage.queues, total]
    screen.table(QUEUE_COLUMNS, [_queue_row(queue) for queue in shown], last_is_total=True)
    files = [file for file in usage.files.values() if file.kind == "messages"]
    live, garbage, room = (
        sum(getattr(file, what) for file in files) for what in ("live", "garbage", "room")
    )
    rest = rest_of(unread=usage.unread)
    screen.line()
    screen.line(
        f"{count(len(files), 'message file')}, {size(live + garbage + room)} ="
        f" {size(live)} live + {size(garbage)} {rest} + {size(room)} room"
    )
    if shared := [file for file in usage.files.values() if file.kind == "shared log"]:
        live, garbage = (sum(getattr(f, what) for f in shared) for what in ("live", "garbage"))
        screen.line(
            f"{count(len(shared), 'shared log')}, {size(live + garbage)} ="
            f" {size(live)} live + {size(garbage)} {rest}"
        )
    if logs := [file.size for file in usage.files.values() if file.kind == "commits"]:
        screen.line(f"{size(sum(logs))} of commit logs, with settings and data")
    if past := [file.size for file in usage.files.values() if file.kind == "history"]:
        screen.line(f"{size(sum(past))} of history, for qindex replay: keep_history bounds it")
    if missing := sum(queue.missing for queue in usage.queues):
        screen.line(screen.paint(f"{count(missing, 'message')} whose body is in no file", "red"))


def _queue_row(queue: QueueUse) -> list[str]:
    sizes = (queue.index, queue.index_live, queue.bodies)
    return [printable(queue.name), f"{queue.messages:,}", *map(size, sizes)]


def _show_files(screen: Screen, usage: Usage) -> None:
    """Those with the most garbage first."""
    shown = [
        file
        for file in usage.files.values()
        if file.kind in ("messages", "shared log")
        or (file.kind == "segment" and file.is_mostly_garbage)
    ]
    shown.sort(key=lambda file: (-file.garbage, file.where))
    if not shown:
        return
    screen.line()
    columns = [">not read" if usage.unread and c == ">garbage" else c for c in FILE_COLUMNS]
    screen.table(columns, [_file_row(file, usage) for file in shown[:FILES_MAX]])
    if len(shown) > FILES_MAX:
        screen.line(f"  … and {len(shown) - FILES_MAX:,} more with less garbage: --json has all")


def _file_row(file: FileUse, usage: Usage) -> list[str]:
    sizes = (file.size, file.live, file.garbage, file.room)
    kept_by = "not known" if usage.unread and not file.queues else _kept_by(file)
    return [file.where, *map(size, sizes), kept_by]


def _kept_by(file: FileUse) -> str:
    if not file.queues:
        return "nothing: it is the newest one" if file.is_newest else "nothing"
    most = sorted(file.queues.items(), key=lambda item: (-item[1].bytes, item[0]))
    told = [f"{printable(name)}: {_messages_of(holder)}" for name, holder in most[:QUEUES_MAX]]
    if len(most) > QUEUES_MAX:
        told.append(count(len(most) - QUEUES_MAX, "more queue"))
    return "; ".join(told)


def _messages_of(holder: Holder) -> str:
    ids = ", ".join(map(str, holder.req_ids))
    more = ", …" if holder.messages > len(holder.req_ids) else ""
    return f"{count(holder.messages, 'message')} ({ids}{more})"


def _show_advice(screen: Screen, usage: Usage) -> None:
    """The acks that free the most for the fewest messages, then what the format does itself."""
    held = [file for file in usage.files.values() if file.kind != "journal" and file.queues]
    held.sort(key=lambda file: file.messages / max(1, file.size))
    screen.line()
    for file in [] if usage.unread else held[:3]:  # else: nobody knows what else keeps it
        if not file.is_newest:
            screen.line(
                f"To free {file.where} ({size(file.size)}), ack {count(file.messages, 'message')}:"
                f" {_kept_by(file)}."
            )
    screen.line(usage.advice)


def _holder_as_json(queue: str, kept: Holder) -> dict[str, Any]:
    return {"queue": queue, **asdict(kept), "req_ids": list(map(written_id, kept.req_ids))}


def _as_json(source: Source, usage: Usage) -> dict[str, Any]:
    files = [
        {
            "file": file.where,
            "kind": file.kind,
            "bytes": file.size,
            "live_bytes": file.live,
            "garbage_bytes": usage.garbage_of(file),
            "room_bytes": file.room,
            "is_newest": file.is_newest,
            "messages": file.messages,
            "queues": [_holder_as_json(*each) for each in file.queues.items()],
        }
        for file in usage.files.values()
    ]
    queues = [
        {
            "queue": queue.name,
            "messages": queue.messages,
            "index_bytes": queue.index,
            "live_index_bytes": queue.index_live,
            "body_bytes": queue.bodies,
            "missing": queue.missing,
        }
        for queue in usage.queues
    ]
    return {"path": source.path, "queues": queues, "files": files, "advice": usage.advice}
