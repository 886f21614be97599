"""qindex plot: draw pictures of a store, or of a dead broker's directory.

Draw what an operator wants to see, as SVG or PNG: the name behind -o says which.

  slots DIR QUEUE   a map of the queue's slots: where messages are published,
                    delivered, acked, and live. Of a store or a RabbitMQ node
  depth DIR QUEUE   how many messages the queue had, and how old the first one
                    was, over the records of its journals. Of a store, with
                    its burials and delays so far, or of a RabbitMQ node's
                    queue of version 1, with ages if its
                    messages say when they were published; or over the Raft
                    log of a quorum queue, by the index of its entries
  files DIR         live bytes against garbage, for each message file. Of a
                    store or a RabbitMQ node. Where not all messages could be
                    read: against what is garbage or was not read (--json:
                    null)
  recovery DIR ...  how long opening and reading take, against the size:
                    measured now, on this machine, by reading everything once

QUEUE may be left out if there is only one. Needs matplotlib:
pip install 'qindex[plot]'; --json prints the numbers and needs nothing. Reads
only; works on a store that a process has open.

exit codes: 0 drawn; 1 drawn, and damage was met; 2 wrong usage, or no such
directory or queue.
"""

from __future__ import annotations

import argparse
import logging
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from qindex.apart import refuse_inside
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.cli.arguments import add_directory, add_output, add_target
from qindex.look.screen import CommandError, Screen
from qindex.look.sources import (
    NodeSource,
    Source,
    StoreSource,
    open_source,
)
from qindex.look.stores import as_named
from qindex.look.telling import tell_damage
from qindex.look.text import count, printable, size

KINDS: Final = ("slots", "depth", "files", "recovery")
ENDINGS: Final = (".svg", ".png")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS, help="what to draw")
    add_directory(parser)
    parser.add_argument(
        "queues", metavar="QUEUE", nargs="*", help="the queue; of recovery: more directories"
    )
    parser.add_argument(
        "--priority", type=int, metavar="N", help="draw the depth of this priority only (RabbitMQ)"
    )
    add_target(parser, "-o", metavar="FILE", help="a name that ends in .svg or .png")
    add_output(parser, "the numbers as JSON")


def run(options: argparse.Namespace, screen: Screen) -> int:
    if (options.out is None) != options.json:
        raise CommandError("say where to: --out FILE.svg or --out FILE.png, or --json")
    if options.priority is not None and options.kind != "depth":
        raise CommandError("--priority is for depth: it chooses a part of a RabbitMQ queue")
    out = None if options.out is None else Path(options.out)
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise CommandError(f"{options.out!r} ends neither in .svg nor in .png")
    draw = None if out is None else _drawing()
    if options.kind == "recovery":
        return _recovery(options, screen, out, draw)
    with open_source(options.dir, screen) as source:
        if out is not None:
            refuse_inside(out, source.root)
        numbers = _numbers(options, screen, source)
        if draw is None or out is None:
            screen.json(numbers if isinstance(numbers, (dict, list)) else numbers.as_json())
        else:
            getattr(draw, options.kind)(numbers, out)
            _tell(screen, out)
        return tell_damage(screen, source)


def _recovery(options: argparse.Namespace, screen: Screen, out: Path | None, draw: Any) -> int:
    from qindex.cli.plot.recovery import measure

    paths = [options.dir, *options.queues]
    if out is not None:
        for path in paths:
            with open_source(path, screen) as source:
                refuse_inside(out, source.root)
    times = measure(paths, screen)
    if out is None:
        screen.json(times.as_json())
    else:
        draw.recovery(times, out)
        _tell(screen, out)
    return 1 if times.damaged else 0


def _drawing() -> Any:
    # It tells of its font cache and of where it keeps that.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        return import_module("qindex.cli.plot.draw")
    except ImportError:
        raise CommandError(
            "pictures need matplotlib: pip install 'qindex[plot]'; --json prints the numbers"
        ) from None


def _numbers(options: argparse.Namespace, screen: Screen, source: Source) -> Any:
    if options.kind == "files":
        if options.queues:
            raise CommandError("files are drawn for all queues together: leave out QUEUE")
        return _message_files(source, screen)
    name = _the_queue(source, options.queues)
    if options.kind == "slots":
        from qindex.cli.plot.slots import slot_map

        return slot_map(source, name)
    return _depth(source, name, options.priority)


def _depth(source: Source, name: str, priority: int | None) -> Any:
    if isinstance(source, StoreSource):
        from qindex.cli.plot.depth import curve_of

        return curve_of(source, name)
    if isinstance(source, NodeSource):
        queue = source.replicated.get(name)
        if isinstance(queue, QuorumQueue):
            from qindex.cli.plot.depth_quorum import curve_of_log

            return curve_of_log(name, queue)
        from qindex.cli.plot.depth_rabbitmq import curve_of_node
        from qindex.cli.replay.command import log_of_node

        return curve_of_node(source, name, log_of_node(source, name, priority))
    raise CommandError(f"depth cannot read {source.format} directories: they keep no journal")


def _the_queue(source: Source, asked: list[str]) -> str:
    names = source.names()
    if len(asked) > 1:
        raise CommandError("one QUEUE at a time")
    asked = [as_named(name, names) for name in asked]
    if asked and asked[0] not in names:
        raise CommandError(f"no queue {printable(asked[0])!r} in {source.path!r}")
    if not asked and len(names) != 1:
        told = ", ".join(printable(name) for name in names[:9])
        raise CommandError(f"{count(len(names), 'queue')} in {source.path!r}: choose one: {told}")
    return asked[0] if asked else names[0]


def _message_files(source: Source, screen: Screen) -> list[dict[str, Any]]:
    """Live, garbage (None: not known) and room, in bytes, of each file, by folder and number."""
    from qindex.cli.du.command import MODULES

    if source.format not in MODULES:
        raise CommandError(f"files cannot read {source.format} directories")
    usage = import_module(MODULES[source.format]).collect(source, screen)
    files = [file for file in usage.files.values() if file.kind == "messages"]
    files.sort(key=lambda file: (file.where.rpartition("/")[0], len(file.where), file.where))
    return [
        {
            "file": file.where,
            "live_bytes": file.live,
            "garbage_bytes": usage.garbage_of(file),
            "bytes": file.size,
            "room_bytes": file.room,
        }
        for file in files
    ]


def _tell(screen: Screen, out: Path) -> None:
    screen.line(f"{printable(str(out))}: {size(out.stat().st_size)}")
