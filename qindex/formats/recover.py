"""From a dead broker's directory into a qindex store: every live message of every queue, in order.

    with open_node(path) as node, qindex.open(target) as store:
        report = recover_into(node, store)

Names. A queue keeps its name; one of a RabbitMQ virtual host other than "/" becomes "vhost/queue".
Should two queues get the same name that way ("a/b" in "/" and "b" in "a"), the one that comes later
in `node.queues` gets one more "/" in between, until it has a name of its own. Bytes that are not
UTF-8 become backslash escapes. `RecoveredQueue.into` has the outcome.

Again. A second run would double every message, so a store that already has one of the queues is
refused before anything is written, whether it holds messages or not. After an interrupted run,
delete the store, or those queues, and start again: the node's directory is never changed.

Each message carries headers. Of RabbitMQ: exchange, routing_keys (a list), and properties, the raw
property list that qindex.formats.amqp.decode_properties() reads; of others see their readers. Text
that is not UTF-8 is kept as bytes. A body that queues shared is written once for each of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from qindex.formats.reader import DeadMessage, DeadNode, DeadQueue

BATCH_MESSAGES_MAX: Final = 1000
BATCH_BODY_BYTES_MAX: Final = 4 * 1024 * 1024


class TargetQueue(Protocol):
    """What recover_into() needs of a qindex queue."""

    def publish_many(
        self,
        bodies: Sequence[bytes],
        *,
        headers: Sequence[dict[str, Any]],
        redelivered: Sequence[bool],
        expires_at: Sequence[float | None],
    ) -> object: ...


class TargetStore(Protocol):
    """What recover_into() needs of a qindex store."""

    def queues(self) -> list[str]: ...

    def queue(self, name: str) -> TargetQueue: ...

    def sync(self) -> object: ...


class QueueExists(ValueError):
    """The store already has a queue that would be recovered; nothing was written."""


@dataclass(slots=True)
class RecoveredQueue:
    """live = messages + expired + unreadable"""

    group: str
    name: str
    into: str
    live: int
    messages: int = 0
    body_bytes: int = 0
    redelivered: int = 0
    expired: int = 0
    unreadable: int = 0


@dataclass(slots=True)
class RecoverReport:
    """The account of a recovery, also while it runs. What was damaged is in `node.findings`."""

    queues: list[RecoveredQueue] = field(default_factory=list)
    live: int = 0  # what the node has
    messages: int = 0  # what the store has got
    body_bytes: int = 0
    redelivered: int = 0
    expired: int = 0
    unreadable: int = 0
    seconds: float = 0.0


def recover_into(
    node: DeadNode,
    store: TargetStore,
    *,
    keep_expired: bool = False,
    progress: Callable[[RecoverReport], None] | None = None,
) -> RecoverReport:
    """Publishes the node's live messages into the store and syncs it.

    What expired before now is left out, as the broker would do; with `keep_expired` it is published
    without an expiry. Other messages keep theirs, an absolute time. Messages go in atomic batches;
    `progress` is called behind each with the account so far. QueueExists: see the module.
    """
    started = time.monotonic()
    plan = _plan(node)
    existing = sorted({done.into for _, done in plan}.intersection(store.queues()))
    if existing:
        raise QueueExists(
            f"the store already has {len(existing)} of the {len(plan)} queues, the first is"
            f" {existing[0]!r}: recover into a new store, or delete the queues there"
        )
    report = RecoverReport([done for _, done in plan], sum(done.live for _, done in plan))
    for queue, done in plan:
        target = store.queue(done.into)
        for batch in batches(_wanted(queue, done, report, keep_expired)):
            _publish(target, batch)
            _count(batch, done, report)
            report.seconds = time.monotonic() - started
            if progress is not None:
                progress(report)
        done.unreadable = queue.unreadable
        report.unreadable += queue.unreadable
    store.sync()
    report.seconds = time.monotonic() - started
    return report


def _plan(node: DeadNode) -> list[tuple[DeadQueue, RecoveredQueue]]:
    """The queues to recover, each with its account."""
    return [
        (queue, RecoveredQueue(queue.group, queue.name, into, queue.account.live))
        for queue, into in names_in_store(node)
    ]


def names_in_store(node: DeadNode) -> list[tuple[DeadQueue, str]]:
    """The queues that a recovery brings back, each with its name in the store."""
    named = []
    taken: set[str] = set()
    for queue in node.queues:
        if queue.vanishes and not queue.account.live:
            continue
        prefix = "" if queue.group in ("", "/") else f"{queue.group}/"
        into = _printable(prefix + queue.name)
        while into in taken:
            prefix += "/"
            into = _printable(prefix + queue.name)
        taken.add(into)
        named.append((queue, into))
    return named


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _wanted(
    queue: DeadQueue, done: RecoveredQueue, report: RecoverReport, keep_expired: bool
) -> Iterator[DeadMessage]:
    for message in queue.messages():
        if message.expiry_us is not None and message.expiry_us <= time.time() * 1_000_000:
            if not keep_expired:
                done.expired += 1
                report.expired += 1
                continue
            message.expiry_us = None
        yield message


class HasBody(Protocol):
    @property
    def body(self) -> Sized: ...


Messages = TypeVar("Messages", bound=HasBody)


def batches(messages: Iterable[Messages]) -> Iterator[list[Messages]]:
    """Rows of messages whose bodies fit into memory."""
    batch: list[Messages] = []
    body_bytes = 0
    for message in messages:
        full = len(batch) == BATCH_MESSAGES_MAX
        if full or (batch and body_bytes + len(message.body) > BATCH_BODY_BYTES_MAX):
            yield batch
            batch, body_bytes = [], 0
        batch.append(message)
        body_bytes += len(message.body)
    if batch:
        yield batch


def _publish(target: TargetQueue, batch: list[DeadMessage]) -> None:
    target.publish_many(
        [message.body for message in batch],
        headers=[headers_of(message) for message in batch],
        redelivered=[message.redelivered for message in batch],
        expires_at=[
            None if message.expiry_us is None else message.expiry_us / 1_000_000
            for message in batch
        ],
    )


def headers_of(message: DeadMessage) -> dict[str, Any]:
    """The headers that a recovered message carries."""
    return message.headers


def _count(batch: list[DeadMessage], done: RecoveredQueue, report: RecoverReport) -> None:
    body_bytes = sum(len(message.body) for message in batch)
    redelivered = sum(message.redelivered for message in batch)
    for account in (done, report):
        account.messages += len(batch)
        account.body_bytes += body_bytes
        account.redelivered += redelivered
