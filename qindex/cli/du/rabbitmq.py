"""What the messages of a RabbitMQ node take, in index files of both versions and in the store."""

from __future__ import annotations

from typing import Final

from qindex.brokers.rabbitmq.node import Part, Queue
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.brokers.rabbitmq.ra.runs import WalRun
from qindex.brokers.rabbitmq.ra.segments import segment_files
from qindex.brokers.rabbitmq.ra.wal import KNOWN_BYTES
from qindex.brokers.rabbitmq.streams.stream import Stream
from qindex.brokers.reader import DeadQueue
from qindex.brokers.tree import Tree
from qindex.look.screen import Screen
from qindex.look.sources import NodeSource
from qindex.look.usage import FileUse, Holder, QueueUse, Seen, Usage

STORE_BYTES: Final = 25  # of an entry of the message store, beside its term
JOURNAL_BYTES: Final = 40
SEGMENT_BYTES: Final = 34
V2_BYTES: Final = 32
V2_STORED_BYTES: Final = 8
_HEADS: Final = {"idx": SEGMENT_BYTES, "qi": V2_BYTES, "jif": JOURNAL_BYTES}
_ADVICE: Final = (
    "RabbitMQ frees a message file when its last message is acked, and combines files when more"
    " than half of all their bytes is garbage; a segment goes when its last message is acked."
)


def collect(source: NodeSource, screen: Screen) -> Usage:
    """Memory: a few numbers per file and queue, and a bit per 25 bytes of message files."""
    usage = Usage(advice=_ADVICE)
    tree = source.node.tree
    for vhost in source.node.vhosts:
        for where in vhost.store.files:
            usage.files[where] = FileUse(where, "messages", tree.size(where))
    collector = _Collector(tree, usage)
    total, done = source.node.counts.live, 0
    with screen.progress("reading the index", "messages") as progress:
        for name in source.names():
            use = QueueUse(name)
            usage.queues.append(use)
            if name in source.replicated:
                collector.add_stream(source.replicated[name], use)
                continue
            queue = source.queues[name]
            for part in queue.parts:
                collector.add_files(part, use)
                use.missing += part.counts.body_missing
                collector.add_part(queue, part, use)
                done += part.counts.live
                progress.at(done, total)
    return usage


class _Collector:
    def __init__(self, tree: Tree, usage: Usage) -> None:
        self._tree = tree
        self._usage = usage
        self._seen = Seen()

    def add_stream(self, queue: DeadQueue, use: QueueUse) -> None:
        """A stream forgets whole segments only, so all of a file is alive."""
        use.messages = queue.account.live
        if isinstance(queue, QuorumQueue):
            self._add_quorum(queue, use)
        if not isinstance(queue, Stream):
            return
        for name in self._tree.files(queue.where):
            where = f"{queue.where}/{name}"
            size = self._tree.size(where)
            self._usage.files[where] = FileUse(where, "segment", size, live=size)
            use.index += size
            use.index_live += size

    def _add_quorum(self, queue: QuorumQueue, use: QueueUse) -> None:
        """Segments of its own, and its records in the log that all queues share."""
        try:
            names = self._tree.files(queue.where) if queue.where else []
        except OSError:
            return  # the files of another node
        for name in segment_files(names):
            where = f"{queue.where}/{name}"
            size = self._tree.size(where)
            self._usage.files[where] = FileUse(where, "segment", size)
            use.index += size
        shared = queue.where.rpartition("/")[0]
        for name in self._tree.files(shared) if shared else []:
            if name.endswith(".wal"):
                where = f"{shared}/{name}"
                if where not in self._usage.files:
                    size = self._tree.size(where)
                    self._usage.files[where] = FileUse(where, "shared log", size)
        log = queue.outcome.server.log
        for run in (*log.runs, *log.spare):
            if isinstance(run, WalRun):
                use.index += sum(run.sizes) + KNOWN_BYTES * len(run)
        for index in queue.outcome.indexes:
            file, size = log.place(index) or ("", 0)
            size += 0 if file.endswith(".segment") else KNOWN_BYTES
            self._add(file, use.name, index, size)
            use.index_live += size

    def add_files(self, part: Part, use: QueueUse) -> None:
        try:
            names = self._tree.files(part.where)
        except OSError:
            return
        for name in names:
            where = f"{part.where}/{name}"
            kind = "segment" if name.endswith((".idx", ".qi", ".qs")) else "journal"
            file = FileUse(where, kind, self._tree.size(where))
            self._usage.files[where] = file
            use.index += file.size

    def add_part(self, queue: Queue, part: Part, use: QueueUse) -> None:
        for seq, _, file, entry in queue.vhost.live(part):
            msg_id, _, _, term_bytes, _, _ = entry
            use.messages += 1
            if file.endswith(".qs"):
                index_file = f"{file[:-3]}.qi"
                self._add(file, use.name, seq, V2_STORED_BYTES + term_bytes)
                self._add(index_file, use.name, seq, V2_BYTES)
                use.index_live += V2_STORED_BYTES + term_bytes + V2_BYTES
            else:
                head = _HEADS[file.rpartition(".")[2]]
                self._add(file, use.name, seq, head + term_bytes)
                use.index_live += head + term_bytes
            place = None if term_bytes else queue.vhost.store.find(msg_id)
            if place is not None:
                whole = place.size + STORE_BYTES
                use.bodies += whole
                is_first = self._seen.add(place.file, place.offset)
                self._add(place.file, use.name, seq, whole, is_alive=is_first)

    def _add(
        self, where: str, name: str, seq: int, byte_count: int, *, is_alive: bool = True
    ) -> None:
        file = self._usage.files.get(where)
        if file is not None:
            file.live += byte_count * is_alive
            file.queues.setdefault(name, Holder()).add(seq, byte_count)
