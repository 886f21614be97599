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

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from qindex.brokers.amqp import AmqpError, called, decode_properties
from qindex.brokers.columns import Columns, Wish
from qindex.brokers.rabbitmq.columns import Reader
from qindex.brokers.rabbitmq.dead_letters import deaths_of
from qindex.brokers.rabbitmq.definitions import RecoveryTerms
from qindex.brokers.rabbitmq.index import SEQ_MAX
from qindex.brokers.rabbitmq.khepri.metadata import Metadata
from qindex.brokers.rabbitmq.message import Content, MessageError, read_message, storable
from qindex.brokers.rabbitmq.queue import Counts, Live
from qindex.brokers.rabbitmq.quorum.presence import Member
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.brokers.rabbitmq.streams.stream import Stream
from qindex.brokers.rabbitmq.unread import Unread
from qindex.brokers.rabbitmq.vhost import Part, Vhost, has_lost_sector, read_term
from qindex.brokers.reader import FORMATS, Account, DeadQueue, QueueDeaths
from qindex.brokers.tree import Finding, Findings, Tree
from qindex.field_table import FieldValue
from qindex.moments import utc

_STORE: Final = "msg_store_persistent"

__all__ = ["Message", "Node", "Part", "Queue", "Vhost"]


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
    properties: bytes  # a raw property list: qindex.brokers.amqp.decode_properties()
    body: bytes
    priority: int | None
    stored: bool  # in the message store; else in the index
    file: str
    offset: int

    @property
    def headers(self) -> dict[str, Any]:
        return self.own_headers()

    def own_headers(self) -> dict[str, Any]:
        """What the node has with it."""
        return {
            "exchange": storable(self.exchange),
            "routing_keys": [storable(key) for key in self.routing_keys],
            "properties": self.properties,
        }


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
        for live in self.vhost.live(part):
            if first <= live[0] <= last:
                message = self.message_of(part, live)
                if message is not None:
                    yield message

    def columns(self, wish: Wish) -> Iterator[Columns | Message]:
        """messages(), in columns where that can be: see qindex.brokers.columns."""
        return Reader(self, wish).read()

    def columns_of(
        self, part: Part, wish: Wish, first: int = 0, last: int = SEQ_MAX
    ) -> Iterator[Columns | Message]:
        """messages_of(), likewise."""
        return Reader(self, wish).read_part(part, first, last)

    def message_of(self, part: Part, live: Live) -> Message | None:
        """A message that vhost.live() gives; None if it is unreadable."""
        seq, delivered, file, entry = live
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
        log = self.vhost.node.log
        if content.index_bytes != body_bytes or content.msg_id != msg_id:
            report = (
                f"{_called(seq, content)}: the body or its id is not the one that the index names"
            )
            log.damage("mismatch", file, offset, report)
        if expiry_us and part.has_ttl is False and not _has_expiration(content):
            at = utc(expiry_us // 1_000_000)
            report = f"{_called(seq, content)}: the index says that it expires at {at}, but neither"
            log.suspected(
                "expiry", file, offset, f"{report} message nor queue has a TTL: it is kept"
            )
            expiry_us = 0
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
            if file.endswith(".qs"):  # it has checksums
                return read_term(source, offset, term_bytes)
            data = source.read(offset, term_bytes)
            content = read_message(data)
            if has_lost_sector(data, offset):
                report = f"{_called(seq, content)}: its body has zeros from sector to sector"
                node.log.suspected("lost sector", file, offset, report)
            return content
        except MessageError as error:
            self.unreadable += 1
            node.log.damage("message lost", file, offset, f"seq {seq}: {error}")
            return None


def _called(seq: int, content: Content) -> str:
    return called(f"seq {seq}", content.properties)


def _has_expiration(content: Content) -> bool:
    with contextlib.suppress(AmqpError):
        return decode_properties(content.properties).expiration is not None
    return True  # not known


def _facts_of(counts: Counts) -> dict[str, Any]:
    told = asdict(counts)
    told["live_bytes"] = told.pop("live_body_bytes")
    return told


def is_redelivered(terms: RecoveryTerms | None, seq: int, delivered: bool) -> bool:
    """After a crash nobody knows, so every message may have been seen."""
    if terms is None:
        return True
    return delivered if terms.next_deliver_seq is None else seq < terms.next_deliver_seq


def _about(finding: Finding, names: dict[str, str]) -> Finding:
    folder = finding.where
    while folder and not finding.about:
        finding = replace(finding, about=names.get(folder, ""))
        folder = folder.rpartition("/")[0]
    return finding


@dataclass(slots=True)
class Node:
    """Close it, or use it in `with`, to give its files back."""

    name: str
    tree: Tree
    log: Findings
    vhosts: list[Vhost] = field(default_factory=list)
    has_definitions: bool = False
    metadata: Metadata | None = None  # what Khepri holds, if the definitions are there
    replicated: list[DeadQueue] = field(default_factory=list)  # streams, quorum queues
    orphans: list[DeadQueue] = field(default_factory=list)  # if they were asked for
    deleted: list[Member] = field(default_factory=list)  # quorum queues without a directory
    others: list[Tree] = field(default_factory=list)  # of other nodes of the cluster
    unread: list[Unread] = field(default_factory=list)  # queues that qindex cannot read
    format: str = "rabbitmq"
    kind: str = FORMATS["rabbitmq"]
    group_kind: str = "virtual host"

    @property
    def queues(self) -> list[DeadQueue]:
        """Those of the virtual host "/" first."""
        every: list[DeadQueue] = [queue for vhost in self.vhosts for queue in vhost.queues]
        every += self.replicated + self.orphans
        return sorted(every, key=lambda queue: (queue.group != "/", queue.group, queue.name))

    @property
    def remarks(self) -> list[str]:
        remarks = [
            f"Virtual host {vhost.name} has {vhost.orphan_bodies:,} stored bodies"
            f" ({vhost.orphan_bytes:,} bytes) that no queue refers to any more:"
            " acked ones wait there until their file is freed. --orphans takes them, too."
            for vhost in self.vhosts
            if vhost.orphan_bodies
        ]
        if self.metadata is not None and not self.metadata.is_exact:
            remarks.append(
                "Changes of the node's definitions, which are in Khepri, could not be read, or not"
                " for sure: the findings say how many."
            )
        if not self.has_definitions:
            remarks.append(
                "The node's definitions are not there: no queue arguments, no empty queues."
            )
        return remarks

    def facts(self) -> dict[str, Any]:
        """Virtual hosts and queues with all counts; the total of these."""
        vhosts = [
            {
                "vhost": vhost.name,
                "orphan_bodies": vhost.orphan_bodies,
                "orphan_bytes": vhost.orphan_bytes,
                "queues": [
                    {
                        "queue": queue.name,
                        "durable": queue.durable,
                        "arguments": queue.arguments,
                        **_facts_of(queue.counts),
                    }
                    for queue in vhost.queues
                ],
            }
            for vhost in self.vhosts
        ]
        return {
            "has_definitions": self.has_definitions,
            "khepri": None if self.metadata is None else self.metadata.facts(),
            "vhosts": vhosts,
            "quorum_queues": [
                queue.facts() for queue in self.replicated if isinstance(queue, QuorumQueue)
            ],
            "streams": [queue.facts() for queue in self.replicated if isinstance(queue, Stream)],
            "not_read": [unread.facts() for unread in self.unread],
            "total": self._total(),
        }

    def _total(self) -> dict[str, Any]:
        """Counts of all queues: of quorum queues and streams what their accounts have of these."""
        total = self.counts
        for queue in (*self.replicated, *self.orphans):
            account = queue.account
            total.published += account.found
            total.live += account.live
            total.live_body_bytes += account.live_body_bytes
            total.acked += account.gone.get("acked", 0)
            total.body_missing += account.lost.get("without a body", 0)
            total.expiring += account.marks.get("expiring", 0)
            total.redelivered += account.marks.get("redelivered", 0)
        return _facts_of(total)

    def deaths(
        self, queues: Sequence[DeadQueue], now_us: int
    ) -> Callable[[DeadQueue], QueueDeaths]:
        """See reader.DeadNode."""
        return deaths_of(self.tree, self.log, queues, now_us)

    @property
    def findings(self) -> list[Finding]:
        """Each with the queue or the virtual host whose files it is about."""
        names = {vhost.path(_STORE): f"messages of {vhost.name}" for vhost in self.vhosts}
        names |= {vhost.where: f"virtual host {vhost.name}" for vhost in self.vhosts if vhost.where}
        for each in self.replicated:
            if isinstance(each, (QuorumQueue, Stream)):
                of_vhost = "" if each.group == "/" else f" in {each.group}"
                kind = "stream" if isinstance(each, Stream) else "quorum queue"
                names[each.where] = f"{kind} {each.name}{of_vhost}"
        for vhost in self.vhosts:
            of_vhost = "" if vhost.name == "/" else f" in {vhost.name}"
            for queue in vhost.queues:
                for part in queue.parts:
                    level = "" if part.priority is None else f", priority {part.priority}"
                    names[part.where] = f"queue {queue.name}{level}{of_vhost}"
        return [_about(finding, names) for finding in self.log.kept]

    @property
    def counts(self) -> Counts:
        total = Counts()
        for vhost in self.vhosts:
            for queue in vhost.queues:
                total.add(queue.counts)
        return total

    def close(self) -> None:
        for tree in (self.tree, *self.others):
            tree.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
