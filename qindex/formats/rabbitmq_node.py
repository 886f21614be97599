"""A dead RabbitMQ node's directory as virtual hosts, queues and messages.

    node = open_node("/var/lib/rabbitmq/mnesia/rabbit@host")
    for vhost in node.vhosts:
        for queue in vhost.queues:
            for message in queue.messages():
                ...

It shows what the node itself would give back if it were booted: live messages in the order in which
consumers would get them, transient ones left out, `redelivered` as the node would set it. Beyond
that it goes on behind damage that stops a node, and says in `node.findings` what it met.

Opening reads the indexes and the heads of the stored messages; bodies are read while iterating.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from qindex._core import ffi, lib
from qindex.formats.field_table import FieldValue
from qindex.formats.foreign import Finding, Findings, Tree
from qindex.formats.rabbitmq_definitions import RecoveryTerms
from qindex.formats.rabbitmq_index import SEQ_MAX, Entry
from qindex.formats.rabbitmq_index_v2 import read_stored_term
from qindex.formats.rabbitmq_message import Content, MessageError, read_message
from qindex.formats.rabbitmq_queue import Batch, Counts, Live, scan_queue
from qindex.formats.rabbitmq_store import MessageStore
from qindex.formats.reader import FORMATS, Account


@dataclass(slots=True)
class Message:
    """A live message. `file` and `offset` tell where its term is."""

    seq: int
    msg_id: bytes
    persistent: bool
    expiry_us: int | None  # microseconds since 1970
    redelivered: bool
    exchange: str
    routing_keys: list[str]
    properties: bytes  # a raw property list: qindex.formats.amqp.decode_properties()
    body: bytes
    priority: int | None
    stored: bool  # in the message store; else in the index
    file: str
    offset: int

    @property
    def headers(self) -> dict[str, Any]:
        return {
            "exchange": _storable(self.exchange),
            "routing_keys": [_storable(key) for key in self.routing_keys],
            "properties": self.properties,
        }


def _storable(text: str) -> str | bytes:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


@dataclass(slots=True)
class Part:
    """One directory of a queue: all of it, or what it holds of one priority."""

    folder: str
    where: str
    priority: int | None
    index_version: int
    terms: RecoveryTerms | None  # None: not stopped in order
    counts: Counts = field(default_factory=Counts)


@dataclass(slots=True)
class Queue:
    name: str
    vhost: Vhost
    parts: list[Part] = field(default_factory=list)  # the highest priority first
    arguments: dict[str, FieldValue] = field(default_factory=dict)
    durable: bool | None = None  # None: the node's definitions are not there
    unreadable: int = 0  # messages that the last iteration could not read

    @property
    def counts(self) -> Counts:
        total = Counts()
        for part in self.parts:
            total.add(part.counts)
        return total

    @property
    def account(self) -> Account:
        counts = self.counts
        return Account(
            found=counts.published,
            live=counts.live,
            live_body_bytes=counts.live_body_bytes,
            gone={"acked": counts.acked, "transient": counts.transient},
            lost={"without a body": counts.body_missing},
            marks={"redelivered": counts.redelivered, "expiring": counts.expiring},
        )

    @property
    def group(self) -> str:
        return self.vhost.name

    @property
    def vanishes(self) -> bool:
        """RabbitMQ forgets such a queue when it stops."""
        return self.durable is False

    def messages(self) -> Iterator[Message]:
        """The live messages in the order in which consumers would get them.

        One whose term is damaged is left out, counted in `unreadable`, and becomes a finding.
        """
        self.unreadable = 0
        for part in self.parts:
            yield from self.messages_of(part)

    def messages_of(self, part: Part, first: int = 0, last: int = SEQ_MAX) -> Iterator[Message]:
        """messages() of one directory, from seq `first` to `last`; other bodies are not read."""
        for seq, delivered, file, entry in self.vhost.live(part):
            if first <= seq <= last:
                message = self._message(part, seq, delivered, file, entry)
                if message is not None:
                    yield message

    def _message(
        self, part: Part, seq: int, delivered: bool, file: str, entry: Entry
    ) -> Message | None:
        msg_id, expiry_us, body_bytes, term_bytes, offset, _ = entry
        stored = not term_bytes
        if stored:
            place = self.vhost.store.find(msg_id)
            if place is None:  # live() left it out
                return None
            file, offset, term_bytes = place
        content = self._content(seq, file, offset, term_bytes)
        if content is None:
            return None
        msg_id = msg_id or content.msg_id  # version 2 has no id beside a message's place
        if content.index_bytes != body_bytes or content.msg_id != msg_id:
            report = f"seq {seq}: the body or its id is not the one that the index names"
            self.vhost.node.log.damage("mismatch", file, offset, report)
        return Message(
            seq=seq,
            msg_id=msg_id,
            persistent=True,
            expiry_us=expiry_us or None,
            redelivered=is_redelivered(part.terms, seq, delivered),
            exchange=content.exchange,
            routing_keys=content.routing_keys,
            properties=content.properties,
            body=content.body,
            priority=part.priority,
            stored=stored,
            file=file,
            offset=offset,
        )

    def _content(self, seq: int, file: str, offset: int, term_bytes: int) -> Content | None:
        node = self.vhost.node
        source = node.tree.kept_open(file)
        try:
            if source is None:
                raise MessageError("the file is not there")
            if file.endswith(".qs"):
                return read_message(read_stored_term(source, offset, term_bytes))
            return read_message(source.read(offset, term_bytes))
        except MessageError as error:
            self.unreadable += 1
            node.log.damage("message lost", file, offset, f"seq {seq}: {error}")
            return None


def is_redelivered(terms: RecoveryTerms | None, seq: int, delivered: bool) -> bool:
    """After a crash nobody knows, so every message may have been seen."""
    if terms is None:
        return True
    return delivered if terms.next_deliver_seq is None else seq < terms.next_deliver_seq


@dataclass(slots=True)
class Vhost:
    name: str
    node: Node
    folder: str
    where: str  # empty before RabbitMQ 3.7: its queues stand in the node's own directory
    segment_entry_count: int
    queues: list[Queue] = field(default_factory=list)
    store: MessageStore = field(default_factory=MessageStore)
    orphan_bodies: int = 0  # stored, but no queue wants them
    orphan_bytes: int = 0

    def path(self, name: str) -> str:
        """Of what is in its directory."""
        return f"{self.where}/{name}" if self.where else name

    def live(self, part: Part) -> Iterator[Live]:
        """The messages of one directory that the node would give back."""
        for batch in self._batches(part, Counts(), mark=False):
            for live in batch.rows():
                if live[3][5]:
                    yield live

    def count(self, part: Part) -> None:
        """Reads the index of one directory for its counts, and marks the bodies that it wants."""
        for _ in self._batches(part, part.counts, mark=True):
            pass

    def _batches(self, part: Part, counts: Counts, *, mark: bool) -> Iterator[Batch]:
        """The index joined with the message store. The counts are complete at the end."""
        log, places = self.node.log, self.store.places
        next_deliver = part.terms.next_deliver_seq if part.terms else None
        below = min(max(0, next_deliver or 0), SEQ_MAX + 1)  # a damaged one may be any number
        found = ffi.new("qi_rabbit_counts *")
        for batch in scan_queue(self.node.tree, part.where, self.segment_entry_count, log, counts):
            entries, count = batch.entries, batch.count
            lib.qi_rabbit_count(entries, count, places, mark, below, found)
            yield batch
        for name in _COUNTED:
            setattr(counts, name, getattr(counts, name) + getattr(found, name))
        if part.terms is None:
            counts.redelivered += found.live
        else:
            counts.redelivered += found.delivered if next_deliver is None else found.below
        if found.body_missing:
            report = f"{found.body_missing} messages whose body is in no file"
            log.damage("body missing", part.where, 0, f"{report}, seq {found.first_missing} first")
        told = part.terms.persistent_count if part.terms else None
        here = found.live + found.body_missing
        if told is not None and told != here:
            report = f"the queue was stopped with {told} persistent messages, {here} are here"
            log.damage("count", part.where, 0, report)


_COUNTED: Final = (
    "transient", "body_missing", "live", "live_body_bytes", "stored", "expiring",
)  # fmt: skip


@dataclass(slots=True)
class Node:
    """Close it, or use it in `with`, to give its files back."""

    name: str
    tree: Tree
    log: Findings
    vhosts: list[Vhost] = field(default_factory=list)
    has_definitions: bool = False
    format: str = "rabbitmq"
    kind: str = FORMATS["rabbitmq"]
    group_kind: str = "virtual host"

    @property
    def queues(self) -> list[Queue]:
        """Those of the virtual host "/" first."""
        vhosts = sorted(self.vhosts, key=lambda vhost: (vhost.name != "/", vhost.name))
        return [queue for vhost in vhosts for queue in vhost.queues]

    @property
    def remarks(self) -> list[str]:
        remarks = [
            f"Virtual host {vhost.name} has {vhost.orphan_bodies:,} stored bodies"
            f" ({vhost.orphan_bytes:,} bytes) that no queue refers to any more."
            for vhost in self.vhosts
            if vhost.orphan_bodies
        ]
        if not self.has_definitions:
            remarks.append(
                "The node's definitions are not there: no queue arguments, no empty queues."
            )
        return remarks

    def facts(self) -> dict[str, Any]:
        """Virtual hosts and queues with all counts; the total of these."""
        vhosts = [
            {
                "name": vhost.name,
                "orphan_bodies": vhost.orphan_bodies,
                "orphan_bytes": vhost.orphan_bytes,
                "queues": [
                    {
                        "name": queue.name,
                        "durable": queue.durable,
                        "arguments": queue.arguments,
                        **asdict(queue.counts),
                    }
                    for queue in vhost.queues
                ],
            }
            for vhost in self.vhosts
        ]
        return {
            "has_definitions": self.has_definitions,
            "vhosts": vhosts,
            "total": asdict(self.counts),
        }

    @property
    def findings(self) -> list[Finding]:
        return self.log.kept

    @property
    def counts(self) -> Counts:
        total = Counts()
        for vhost in self.vhosts:
            for queue in vhost.queues:
                total.add(queue.counts)
        return total

    def close(self) -> None:
        self.tree.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
