"""What the messages of a store take: every live message once, without its body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import qindex
from qindex._core import ffi, lib
from qindex.brokers.tree import Findings, Tree
from qindex.errors import raise_error
from qindex.look.screen import Screen
from qindex.look.sources import StoreSource
from qindex.look.stores import UNREADABLE, missing_queues, nameless_queue_count
from qindex.look.text import count, printable, size
from qindex.look.usage import FileUse, Holder, QueueUse, Seen, Usage
from qindex.native.folders import PAST, segment_number
from qindex.native.messages import (
    FRAME_BYTES,
    START,
    MessageFile,
    MessageFiles,
    read_msg_id,
)
from qindex.store import COMPACT_PERCENT

ENTRY_BYTES: Final = 34  # of a publish in a segment, beside what is embedded


def collect(source: StoreSource, screen: Screen) -> Usage:
    """Memory: a few numbers per file and queue, and a bit per 25 bytes of shared bodies."""
    tree = Tree(source.root, Findings())
    try:
        usage = Usage()
        files = MessageFiles(tree)
        for file in files.files.values():
            usage.files[file.where] = _message_file(file, max(files.files))
        _add_commits(tree, usage)
        collector = _Collector(source, usage, files)
        total = sum(source.depth(name) for name in source.names())
        done = 0
        with screen.progress("reading the index", "messages") as progress:
            for name in source.names():
                _add_index_files(source, tree, name, usage)
                for _ in collector.queue(name):
                    done += 1
                    progress.at(done, total)
        left_out = nameless_queue_count(source.store) or missing_queues(source.store)
        usage.unread = source.damaged > 0 or bool(left_out)
        usage.advice = _advice(usage)
        return usage
    finally:
        tree.close()


def _message_file(file: MessageFile, newest: int) -> FileUse:
    """Headers and the birth table are alive as long as the file is."""
    overhead = START
    if file.compacted:
        overhead += file.used - file.table + 8 * len(file.births) + 8
    use = FileUse(file.where, "messages", file.size, room=file.size - file.used)
    use.live = min(overhead, file.used)
    use.is_newest = file.number == newest
    return use


def _add_commits(tree: Tree, usage: Usage) -> None:
    """No message keeps them: they go when queues were synced, or when a catalog is written."""
    try:
        logs = [f"commits/{name}" for name in tree.files("commits")]
    except OSError:
        logs = []
    for where in [*sorted(logs), "catalog"]:
        file = tree.try_open(where)
        if file is not None:
            with file:
                usage.files[where] = FileUse(where, "commits", file.size, live=file.size)


def _add_index_files(source: StoreSource, tree: Tree, name: str, usage: Usage) -> None:
    folder = source.store.queue_directory(name)
    queue = QueueUse(name)
    usage.queues.append(queue)
    try:
        names = tree.files(folder)
    except OSError:
        return  # the queue was deleted meanwhile
    for file in names:
        source_file = tree.try_open(f"{folder}/{file}")
        if source_file is None:
            continue
        with source_file:
            byte_count = source_file.size
        kind = "journal" if segment_number(file) is None else "segment"
        if PAST.fullmatch(file):
            kind = "history"
        else:
            queue.index += byte_count
        usage.files[f"{folder}/{file}"] = FileUse(f"{folder}/{file}", kind, byte_count)


class _Collector:
    """Adds messages to the account of their queue, segment and message file."""

    def __init__(self, source: StoreSource, usage: Usage, files: MessageFiles) -> None:
        self._source = source
        self._usage = usage
        self._files = files
        self._seen = Seen()
        self._entries = source.store.stats().segment_entries

    def queue(self, name: str) -> Iterator[None]:
        """Yields once per message."""
        use = self._usage.queues[-1]
        folder = self._source.store.queue_directory(name)
        try:
            queue = self._source.store.queue(name, create=False)
        except qindex.QueueMissing:
            return
        except UNREADABLE as error:
            self._source.tell(f"{printable(name)}: {error} (see qindex check)")
            return
        for raw, is_there in self._browse(queue):
            use.messages += 1
            embedded = 0
            if raw.flags & lib.QI_STORED:
                if is_there:
                    use.bodies += self._add_stored(name, raw)
                else:
                    use.missing += 1
            else:
                embedded = raw.payload_size
            use.index_live += ENTRY_BYTES + embedded
            self._add_to_segment(folder, name, raw.req_id, ENTRY_BYTES + embedded)
            yield

    def _browse(self, queue: qindex.Queue) -> Iterator[tuple[Any, bool]]:
        """(message, is its body there); the payload is not read: there is no room for it."""
        raw = ffi.new("qi_message *")
        start = 0
        while True:
            size_or_code = lib.qi_browse(queue._handle, start, False, raw, ffi.NULL, 0)
            if size_or_code == lib.QI_EMPTY:
                return
            is_there = size_or_code >= 0 or size_or_code == lib.QI_E_ROOM
            if not is_there:
                try:
                    raise_error(size_or_code)
                except (qindex.StoreCorrupt, qindex.DiskError) as error:
                    self._source.tell(f"{printable(queue.name)}: {error} (see qindex check)")
                    req_id = getattr(error, "req_id", None)
                    if req_id is None:
                        return
                    if req_id != raw.req_id:  # its record is lost, too
                        start = req_id + 1
                        continue
            yield raw, is_there
            start = raw.req_id + 1

    def _add_stored(self, name: str, raw: Any) -> int:
        """The bytes that this reference counts."""
        msg_id = read_msg_id(bytes(ffi.buffer(raw.msg_id)))
        number = self._files.holder(msg_id.file)
        file = self._usage.files.get(f"messages/{number}.qms")
        if file is None:
            return 0
        frame_bytes = msg_id.length + FRAME_BYTES
        if msg_id.queues == 1 or self._seen.add(msg_id.file, msg_id.offset):
            file.live += frame_bytes
        file.queues.setdefault(name, Holder()).add(raw.req_id, msg_id.share)
        return msg_id.share

    def _add_to_segment(self, folder: str, name: str, req_id: int, byte_count: int) -> None:
        number = req_id // self._entries
        for ending in ("idx", "alt"):
            file = self._usage.files.get(f"{folder}/{number}.{ending}")
            if file is not None:
                file.live += byte_count
                file.queues.setdefault(name, Holder()).add(req_id, byte_count)
                return


def _advice(usage: Usage) -> str:
    worth = [
        file
        for file in usage.files.values()
        if file.kind == "messages"
        and not file.is_newest
        and not file.room  # else it is being written to
        and file.garbage * 100 >= COMPACT_PERCENT * max(1, file.size - file.room)
    ]
    text = "A message file goes when its last message is acked, a segment likewise."
    if usage.unread:
        return f"{text} What a compaction would free is not known: not all messages were read."
    if worth:
        freed = size(sum(file.garbage for file in worth))
        text += (
            f" Store.compact() would free about {freed}: {count(len(worth), 'message file')} with"
            f" at least {COMPACT_PERCENT} % garbage; a store that is open does it by and by."
        )
    return text
