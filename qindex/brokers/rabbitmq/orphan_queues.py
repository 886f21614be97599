"""Bodies of a dead RabbitMQ node that no index names, as queues beside the others.

    NAME.orphans                    bodies in the N.qs files of the queue NAME, in their order
    msg_store_persistent.orphans    bodies in a virtual host's N.rdq files, in their order
    NAME.deleted                    what a deleted quorum queue had: see quorum/deleted.py

Most are of messages that are done: a body stays for some time after its message was acked. Where
an index is damaged, the bodies that it has lost are among them. Each carries the header `orphan`,
the file and the place where it was found, and counts as redelivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from qindex.brokers.rabbitmq.message import MessageError
from qindex.brokers.rabbitmq.node import Message, Node
from qindex.brokers.rabbitmq.orphans import stored_bodies
from qindex.brokers.rabbitmq.quorum.deleted import deleted_queues
from qindex.brokers.rabbitmq.vhost import Part, Vhost, read_term
from qindex.brokers.reader import Account
from qindex.brokers.tree import Source

_QS_HEAD_BYTES = 64


@dataclass(slots=True)
class Orphan(Message):
    """A message that is in no index. Its seq only counts."""

    @property
    def headers(self) -> dict[str, Any]:
        return {**self.own_headers(), "orphan": f"{self.file} at byte {self.offset}"}


@dataclass(slots=True)
class Orphans:
    """As reader.DeadQueue. `places`: the file, and offset and size of each term there."""

    name: str
    vhost: Vhost
    places: list[tuple[str, int, int]] = field(default_factory=list)
    unreadable: int = 0

    @property
    def group(self) -> str:
        return self.vhost.name

    @property
    def vanishes(self) -> bool:
        return False

    @property
    def account(self) -> Account:
        count = len(self.places)
        size = sum(size for _, _, size in self.places)
        return Account(found=count, live=count, live_body_bytes=size, marks={"orphans": count})

    def messages(self) -> Iterator[Orphan]:
        self.unreadable = 0
        for seq, (file, offset, term_bytes) in enumerate(self.places):
            source = self.vhost.node.tree.kept_open(file)
            try:
                if source is None:
                    raise MessageError("the file is not there")
                content = read_term(source, offset, term_bytes)
            except MessageError as error:
                self.unreadable += 1
                self.vhost.node.log.damage("message lost", file, offset, f"an orphan: {error}")
                continue
            yield Orphan(
                seq=seq,
                msg_id=content.msg_id,
                persistent=content.persistent,
                expiry_us=None,
                redelivered=True,
                exchange=content.exchange,
                routing_keys=content.routing_keys,
                properties=content.properties,
                body=content.body,
                priority=None,
                stored=not file.endswith(".qs"),
                file=file,
                offset=offset,
            )


def add_orphans(node: Node) -> None:
    """Puts them among the node's queues. Cost: the heads of all bodies are read once more."""
    stores = set()
    node.orphans += deleted_queues(node.deleted)
    for vhost in node.vhosts:
        for queue in vhost.queues:
            orphans = Orphans(f"{queue.name}.orphans", vhost)
            for part in queue.parts:
                orphans.places += _of_queue(vhost, part)
            if orphans.places:
                node.orphans.append(orphans)
        if id(vhost.store) not in stores:  # before 3.7 virtual hosts share it
            stores.add(id(vhost.store))
            orphans = Orphans("msg_store_persistent.orphans", vhost)
            order = {file: number for number, file in enumerate(vhost.store.files)}
            unwanted = vhost.store.places_unwanted()
            orphans.places = sorted(unwanted, key=lambda place: (order[place[0]], place[1]))
            if orphans.places:
                node.orphans.append(orphans)


def _of_queue(vhost: Vhost, part: Part) -> Iterator[tuple[str, int, int]]:
    """The bodies in N.qs that no live entry names, file by file."""
    tree = vhost.node.tree
    try:
        names = [name for name in tree.files(part.where) if name.endswith(".qs")]
    except OSError:
        return
    if not names:
        return
    named: dict[str, dict[int, int]] = {}
    for _, _, file, (_, _, _, term_bytes, offset, _) in vhost.live(part):
        if file.endswith(".qs") and term_bytes:
            named.setdefault(file, {})[offset] = term_bytes
    for name in sorted(names, key=lambda name: (len(name), name)):
        where = f"{part.where}/{name}"
        source: Source | None = tree.try_open(where)
        if source is not None:
            with source:
                found = list(stored_bodies(source, named.get(where, {}), _QS_HEAD_BYTES))
            for offset, size in found:
                yield where, offset, size
