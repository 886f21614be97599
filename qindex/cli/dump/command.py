"""qindex dump: show journals and segments, record by record.

Show the records of journals and segments, one by one. PATH is a store, a
queue's directory in it, or one file: a journal (journal.jif, journal.alt) or a
segment (0.idx, 1.idx, ...).

One line per record: its offset in the file, the verb, the ReqId, and for a
publish its kind and fields. In segments the slot stands for the ReqId, which is
segment number x entries per segment + slot. The records of a batch stand in one
checksummed frame. A line without a ReqId is a frame that holds no message: a
manifest, a session, a mark, a summary.

Needs only the bytes: works on a store that is open, damaged, or only in part
there, and on a file whose header is damaged. Message bodies are not shown:
'qindex peek' does.

exit codes: 0 shown; 1 some bytes are no valid frame (BAD), which is damage or a
torn tail: 'qindex check' knows which; 2 nothing to dump at PATH.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import qindex
from qindex.cli.arguments import add_directory
from qindex.look.screen import CommandError, Screen
from qindex.look.stores import queue_names, with_article
from qindex.look.text import count, printable, size
from qindex.moments import utc
from qindex.native.folders import JOURNALS, is_flushed, segment_number
from qindex.native.frames import DEAD_US
from qindex.native.records import Record, records, side_text
from qindex.native.times import REASONS, TAKEN_BACK

if TYPE_CHECKING:
    from qindex.brokers.reader import DeadNode


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "a store, a queue's directory, or a file")


def run(options: argparse.Namespace, screen: Screen) -> int:
    path = Path(options.dir)
    if path.is_file():
        return _dump_file(screen, path)
    if not path.is_dir():
        raise CommandError(f"{options.dir!r}: no such file or directory")
    if _index_files(path):
        return _dump_queue(screen, path)
    folders = sorted(folder for folder in path.glob("queues/*") if folder.is_dir())
    if not (path / "store.meta").is_file():
        from qindex.cli.dead import dead_node

        node = dead_node(options.dir, screen)
        if node is not None:
            with node:
                return _dump_node(screen, node, options.dir)
    if not folders and not (path / "store.meta").is_file():
        raise CommandError(f"{options.dir!r} is no store and no queue of one: nothing to dump")
    names = _names(path)
    code = 0
    for folder in sorted(folders, key=lambda folder: names.get(folder.name, "\U0010ffff")):
        name = names.get(folder.name)
        title = "a queue whose name is not known" if name is None else f"queue {printable(name)}"
        screen.heading(f"{title}  ({folder.relative_to(path)})")
        code = max(code, _dump_queue(screen, folder))
        screen.line()
    files = sorted(path.glob("messages/*.qms"))
    bodies = " with bodies: see qindex peek" if files else ""
    screen.line(f"{count(len(folders), 'queue')}; {count(len(files), 'message file')}{bodies}")
    return code


def _dump_node(screen: Screen, node: DeadNode, path: str) -> int:
    from qindex.brokers.rabbitmq.directory import Node

    if not isinstance(node, Node):
        told = with_article(node.kind)
        raise CommandError(f"{path!r} is {told}, which has no index: qindex cat reads it")
    code = 0
    for vhost in node.vhosts:
        for queue in vhost.queues:
            for part in queue.parts:
                screen.heading(f"queue {printable(queue.name)}  ({part.where})")
                if part.index_version == 2:
                    screen.line("  an index of version 2: qindex trace shows what it says")
                else:
                    code = max(code, _dump_queue(screen, node.tree.path / part.where))
                screen.line()
    screen.line(f"{count(len(node.queues), 'queue')}; bodies: see qindex peek")
    return code


def _names(path: Path) -> dict[str, str]:
    """Queue names by directory; without them if the store cannot be opened."""
    try:
        with qindex.open(path, read_only=True, create=False) as store:
            return {folder.rpartition("/")[2]: name for folder, name in queue_names(store).items()}
    except qindex.QindexError:
        return {}


def _index_files(folder: Path) -> list[Path]:
    """The journals, then the segments in their order."""
    journals = [folder / name for name in JOURNALS if (folder / name).is_file()]
    segments = [
        (number, file)
        for pattern in ("*.idx", "*.alt")
        for file in folder.glob(pattern)
        if (number := segment_number(file.name)) is not None
    ]
    return journals + [file for _, file in sorted(segments, key=lambda pair: pair[0])]


def _dump_queue(screen: Screen, folder: Path) -> int:
    files = _index_files(folder)
    if not files:
        screen.line("  no journal and no segment")
    code = 0
    for file in files:
        try:
            code = max(code, _dump_file(screen, file))
        except CommandError as error:
            screen.line(screen.paint(f"  {error}", "red"))
            code = 1
    return code


def _dump_file(screen: Screen, path: Path) -> int:
    from qindex.cli.dump.rabbitmq import is_rabbitmq, rabbitmq_lines

    # Read, not mapped: a writer may cut the file meanwhile, which would be a SIGBUS.
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        screen.line(f"  {path.name}: gone since it was listed, as its last message was acked")
        return 0
    title = f"  {path.name}  {size(len(data))}"
    if path.name in JOURNALS and not is_rabbitmq(path) and is_flushed(data):
        screen.line(f"{title}: no header, so nothing in it counts: what it held is in the segments")
        return 0
    lines = rabbitmq_lines(path) if is_rabbitmq(path) else lines_of(data)
    try:
        first = next(lines, None)
    except qindex.NewerFormat as error:
        raise CommandError(f"{path.name}: {error}") from None
    except qindex.FormatError:
        raise CommandError(f"{path.name} is neither a journal nor a segment of qindex") from None
    screen.line(f"{title}: no records" if first is None else title)
    is_bad = False
    for line in chain([] if first is None else [first], lines):
        bad = line[12:15] == "BAD"
        is_bad |= bad
        screen.line(screen.paint(line, "red") if bad else line)
    return 1 if is_bad else 0


def lines_of(data: bytes) -> Iterator[str]:
    """One line per record. FormatError if these are not the bytes of a journal or a segment."""
    return map(_line, records(data))


def _line(record: Record) -> str:
    verb, offset = record.verb, f"{record.offset:10}"
    number = f"{record.req_id:12}"
    if verb == "publish":
        kind = "transient" if record.transient else "persistent"
        sizes = f"size {record.size}  embedded {record.embedded}"
        msg_id = record.msg_id.hex() or "-"
        return (
            f"{offset}  publish  {kind:10} {number}  {sizes}"
            f"  msg_id {msg_id}  expiry_us {record.expiry_us}"
            f"{f'  published_us {record.published_us}' if record.published_us else ''}"
        )
    if record.damage:
        return f"{offset}  BAD      {record.damage}"
    if verb == "time":
        due = f"due_us {record.due_us}  priority {record.priority}"
        return f"{offset}  time     {'':10} {number}  {due}{_held(record.due_us)}"
    if verb == "event":
        return f"{offset}  event    {'':10} {number}  (first: deliver, second: ack)"
    if verb == "count":
        return f"{offset}  count    {'':10} {number}  delivered {record.deliveries} times"
    if verb == "side":
        verb, text = side_text(record)
        return f"{offset}  {verb:8} {'':10} {number}  {text}"
    if verb == "moment" and record.due_us:
        return f"{offset}  moment   what follows was published at {utc(record.due_us / 1e6)}"
    if verb in ("deliver", "ack"):
        return f"{offset}  {verb:8} {'':10} {number}"
    return f"{offset}  {verb:8} {record.size} bytes"


def _held(due_us: int) -> str:
    """What a time means, if it is no time: FORMAT.rst, section 4."""
    if due_us >= DEAD_US:
        why = REASONS.get(due_us - DEAD_US)
        return f"  (dead letter: {why})" if why else "  (dead letter)"
    return {0: "  (not held)", TAKEN_BACK: "  (taken back from the dead letters)"}.get(due_us, "")
