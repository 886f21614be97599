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
property list that qindex.brokers.amqp.decode_properties() reads; of others see their readers. Text
that is not UTF-8 is kept as bytes. A body that queues shared is written once for each of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

from qindex.brokers.columns import Columns, Expired, Wish, apart
from qindex.brokers.reader import DeadMessage, DeadNode, DeadQueue, QueueDeaths
from qindex.brokers.recovered import RecoveredQueue, RecoverReport
from qindex.brokers.storable import (
    EXPIRY_US_MAX,
    Changes,
    Row,
    fit_row,
    publish_each,
    storable_name,
)
from qindex.queue import Queue

__all__ = [
    "QueueExists",
    "RecoverReport",
    "RecoveredQueue",
    "TargetQueue",
    "TargetStore",
    "batches",
    "names_in_store",
    "recover_into",
]

BATCH_MESSAGES_MAX: Final = 1000
BATCH_BODY_BYTES_MAX: Final = 4 * 1024 * 1024
_MOMENT_MAX: Final = 1 << 62  # microseconds
DEAD_LETTER_AT: Final = "dead_letter_at"  # a header: microseconds since 1970


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


def recover_into(
    node: DeadNode,
    store: TargetStore,
    *,
    keep_expired: bool = False,
    progress: Callable[[RecoverReport], None] | None = None,
    report: RecoverReport | None = None,
    now: float | None = None,
) -> RecoverReport:
    """Publishes the node's live messages into the store and syncs it.

    What expired before `now` (seconds since 1970; by default the moment of the call) is left out,
    if the broker would drop it. Where it would pass it on when it starts, to a dead-letter
    exchange, the message is put where it would go, behind the messages that are there. What it
    would drop on that way, or what nobody knows, stays in its queue without an expiry: see `kept`
    and `reasons`. With `keep_expired` all that has expired stays so.

    Other messages keep their expiry, an absolute time, which is later by as much as `now` is
    before the moment of the call; but in a queue that passes on what dies it becomes the header
    `dead_letter_at` (microseconds), since a store would drop them then.

    Messages go in atomic batches; `progress` is called behind each with the account so far. What no
    store could take is changed, see storable.py. `report` is filled in: whoever gives one has the
    account also if an error ends the recovery. QueueExists: see the module. Cost: one reading of
    all messages, and a second one of the queues that have dead letters.
    """
    started = time.monotonic()
    plan = _plan(node)
    existing = sorted({done.into for _, done in plan}.intersection(store.queues()))
    if existing:
        raise QueueExists(
            f"the store already has {len(existing)} of the {len(plan)} queues, the first is"
            f" {existing[0]!r}: recover into a new store, or delete the queues there"
        )
    report = RecoverReport() if report is None else report
    report.queues, report.live = [done for _, done in plan], sum(done.live for _, done in plan)
    called = time.time()
    report.now = called if now is None else now
    deaths = node.deaths([queue for queue, _ in plan], int(report.now * 1_000_000))
    accounts = {id(queue): done for queue, done in plan}
    later_us = int((called - report.now) * 1_000_000)
    run = _Run(store, report, keep_expired, deaths, accounts, later_us)
    report.stopped = "it is not finished"
    try:
        for queue, done in plan:
            for _ in run.copy(queue, store.queue(done.into), done):
                report.seconds = time.monotonic() - started
                if progress is not None:
                    progress(report)
            done.unreadable = queue.unreadable
            report.unreadable += queue.unreadable
        for queue, done in plan:
            if done.dead_lettered:
                for _ in run.pass_on(queue):
                    if progress is not None:
                        progress(report)
        store.sync()
    except BaseException as error:
        report.stopped = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise
    finally:
        report.seconds = time.monotonic() - started
    report.stopped = ""
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
        into = storable_name(prefix + queue.name)
        while into in taken:
            prefix += "/"
            into = storable_name(prefix + queue.name)
        taken.add(into)
        named.append((queue, into))
    return named


class _Run:
    """One recovery."""

    def __init__(
        self,
        store: TargetStore,
        report: RecoverReport,
        keep_expired: bool,
        deaths: Callable[[DeadQueue], QueueDeaths] | None,
        accounts: dict[int, RecoveredQueue],
        later_us: int,
    ) -> None:
        self._store = store
        self._report = report
        self._keep_expired = keep_expired
        self._deaths = deaths
        self._accounts = accounts  # by the id of the queue
        self._now_us = int(report.now * 1_000_000)
        self._later_us = later_us  # added to each expiry
        self._changes = Changes()

    def copy(self, queue: DeadQueue, target: TargetQueue, done: RecoveredQueue) -> Iterator[None]:
        """Publishes what of a queue goes into the queue of its name, a batch at a time."""
        deaths = self._deaths(queue) if self._deaths is not None else None
        found = self._columns(queue, target, deaths) or queue.messages()
        for each in apart(found):
            if isinstance(each, Columns):
                self._take(each, cast(Queue, target), done)
                yield
                continue
            for batch in batches(self._wanted(each, deaths, done), _size_of):
                self._publish(target, batch, done)
                yield

    def _columns(
        self, queue: DeadQueue, target: TargetQueue, deaths: QueueDeaths | None
    ) -> Iterator[Columns | DeadMessage] | None:
        """The queue's messages in columns; None if it, or the target, takes them one by one."""
        columns = getattr(queue, "columns", None)
        is_far = not (0 <= self._now_us < _MOMENT_MAX and abs(self._later_us) < _MOMENT_MAX)
        if columns is None or not isinstance(target, Queue) or is_far:
            return None
        if deaths is not None and deaths.is_too_long:
            return None
        may_die = deaths is not None and deaths.may_die
        expired: Expired = "keep" if self._keep_expired else "tell" if may_die else "drop"
        found: Iterator[Columns | DeadMessage] = columns(
            Wish(self._now_us, expired, self._later_us, "dies" if may_die else "expires")
        )
        return found

    def _take(self, columns: Columns, target: Queue, done: RecoveredQueue) -> None:
        columns.publish(target)
        for account in (done, self._report):
            account.messages += columns.count
            account.body_bytes += columns.body_bytes
            account.redelivered += columns.redelivered
            account.dying += columns.dying
            account.expired += columns.expired

    def _wanted(
        self, messages: Iterable[DeadMessage], deaths: QueueDeaths | None, done: RecoveredQueue
    ) -> Iterator[Row]:
        """What of the messages is published into the queue of their queue's name."""
        report = self._report
        for message, reason in self._dead_or_alive(messages, deaths):
            expiry_us = message.expiry_us
            if reason is not None:
                if reason == "expired":
                    if deaths is None or not deaths.may_die:
                        done.expired += 1
                        report.expired += 1
                        continue
                    expiry_us = None
                sent = deaths.send(message, reason) if deaths is not None else ""
                if not isinstance(sent, str):
                    done.dead_lettered += 1
                    report.dead_lettered += 1
                    continue
                self._keep(done, sent)
            elif expiry_us is not None and expiry_us <= self._now_us:
                expiry_us = None  # --keep-expired
            may_die = deaths is not None and deaths.may_die
            row = Row(message.body, message.headers, message.redelivered, self._later(expiry_us))
            yield self._without_expiry(row, done) if may_die else row

    def _dead_or_alive(
        self, messages: Iterable[DeadMessage], deaths: QueueDeaths | None
    ) -> Iterator[tuple[DeadMessage, str | None]]:
        """(message, what it died of), the same each time it is asked."""
        for message in messages:
            reason = None
            if not self._keep_expired:
                if deaths is not None and deaths.is_over(message):
                    reason = "maxlen"
                elif message.expiry_us is not None and message.expiry_us <= self._now_us:
                    reason = "expired"
            yield message, reason

    def _keep(self, done: RecoveredQueue, reason: str) -> None:
        done.kept += 1
        self._report.kept += 1
        self._report.reasons[reason] = self._report.reasons.get(reason, 0) + 1

    def _later(self, expiry_us: int | None) -> int | None:
        return None if expiry_us is None else max(expiry_us + self._later_us, 1)

    def _without_expiry(self, row: Row, done: RecoveredQueue) -> Row:
        """A store drops what has expired; the broker would pass it on then."""
        if row.expiry_us is not None and row.expiry_us <= EXPIRY_US_MAX:
            row.headers = {**row.headers, DEAD_LETTER_AT: row.expiry_us}
            row.expiry_us = None
            done.dying += 1
            self._report.dying += 1
        return row

    def pass_on(self, queue: DeadQueue) -> Iterator[None]:
        """Publishes the dead letters of a queue where they end. Its messages are read once more."""
        waiting: dict[int, list[Row]] = {}
        bytes_waiting = 0
        deaths = self._deaths(queue) if self._deaths is not None else None
        for message, reason in self._dead_or_alive(queue.messages(), deaths):
            if reason is None or deaths is None or not deaths.may_die:
                continue
            sent = deaths.send(message, reason)
            for arrival in () if isinstance(sent, str) else sent:
                done = self._accounts[id(arrival.queue)]
                row = Row(message.body, arrival.headers, False, self._later(arrival.expiry_us))
                if arrival.kept:
                    self._keep(done, arrival.kept)
                if arrival.may_die:
                    row = self._without_expiry(row, done)
                waiting.setdefault(id(arrival.queue), []).append(row)
                bytes_waiting += _size_of(row)
            if bytes_waiting > BATCH_BODY_BYTES_MAX:
                yield from self._deliver(waiting)
                bytes_waiting = 0
        yield from self._deliver(waiting)

    def _deliver(self, waiting: dict[int, list[Row]]) -> Iterator[None]:
        for key, rows in waiting.items():
            done = self._accounts[key]
            for batch in batches(rows, _size_of):
                target = self._store.queue(done.into)
                stored = publish_each(partial(_publish, target), batch, fit_row, self._changes)
                for account in (done, self._report):
                    account.arrived += len(stored)
                    account.body_bytes += sum(len(row.body) for row in stored)
                self._note_changes()
                yield
        waiting.clear()

    def _publish(self, target: TargetQueue, batch: list[Row], done: RecoveredQueue) -> None:
        stored = publish_each(partial(_publish, target), batch, fit_row, self._changes)
        lost = len(batch) - len(stored)
        body_bytes = sum(len(row.body) for row in stored)
        redelivered = sum(row.redelivered for row in stored)
        for account in (done, self._report):
            account.messages += len(stored)
            account.body_bytes += body_bytes
            account.redelivered += redelivered
            account.unstorable += lost
        self._note_changes()

    def _note_changes(self) -> None:
        self._report.changed = self._changes.changed
        self._report.changes = dict(self._changes.kinds)


Messages = TypeVar("Messages")


def batches(
    messages: Iterable[Messages], size_of: Callable[[Messages], int]
) -> Iterator[list[Messages]]:
    """Rows of messages whose bodies and headers fit into memory."""
    batch: list[Messages] = []
    body_bytes = 0
    for message in messages:
        size = size_of(message)
        full = len(batch) == BATCH_MESSAGES_MAX
        if full or (batch and body_bytes + size > BATCH_BODY_BYTES_MAX):
            yield batch
            batch, body_bytes = [], 0
        batch.append(message)
        body_bytes += size
    if batch:
        yield batch


_SIZED: Final = frozenset((str, bytes, list, dict))


def _size_of(row: Row) -> int:
    """About: what is long in headers is a text, bytes, or a list."""
    return len(row.body) + sum(len(v) for v in row.headers.values() if type(v) in _SIZED)


def _publish(target: TargetQueue, batch: list[Row]) -> None:
    target.publish_many(
        [row.body for row in batch],
        headers=[row.headers for row in batch],
        redelivered=[row.redelivered for row in batch],
        expires_at=[None if row.expiry_us is None else row.expiry_us / 1_000_000 for row in batch],
    )
