"""qindex replay --verify: the state of a queue in two independent ways, compared.

Of a store: what the engine serves (recovery in C), and a replay of the journals on the segments by
the document (native/log.py). On the way each MANIFEST that ends a flush is a third
witness: it says how many messages each segment had when its epoch ended. Of RabbitMQ: the sets that
recovery reads, and a replay record by record.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from qindex.brokers.rabbitmq.log import RabbitMQLog
from qindex.brokers.rabbitmq.queue import Counts, scan_queue
from qindex.brokers.rabbitmq.quorum.member import replay
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.brokers.tree import Findings, Tree
from qindex.cli.replay.command import open_log
from qindex.look.messages import Choice
from qindex.look.screen import CommandError, Screen
from qindex.look.sources import NodeSource, Source, StoreSource, chosen_names, open_source
from qindex.look.stores import UNREADABLE
from qindex.look.telling import tell_unlisted
from qindex.look.text import count, printable
from qindex.native.commits import places_of
from qindex.native.frames import COUNT_MASK, CannotReplay, Fields, Manifest, manifest_of
from qindex.native.log import NativeLog
from qindex.native.replay import Record, Replay, Segment, State, publishes

TRIES_MAX: Final = 5
COLUMNS: Final = ["<queue", ">records", ">flushes", ">messages", "<result"]


@dataclass(slots=True)
class Verdict:
    """`difference` is the first one, or empty; `damage` is what could not be read."""

    queue: str
    records: int = 0
    flushes: int = 0  # MANIFESTs that were compared
    messages: int = 0  # live ones that were compared
    difference: str = ""
    damage: str = ""
    skipped: str = ""

    @property
    def is_good(self) -> bool:
        return not self.difference and not self.damage


class Seen(NamedTuple):
    """A live message, as both sides tell of it."""

    req_id: int
    persistent: bool
    redelivered: bool
    deliveries: int
    expiry_us: int
    published_us: int
    size: int
    payload: bytes | None  # None: it stands in the message store


def verify(options: argparse.Namespace, screen: Screen) -> int:
    verdicts = []
    with open_source(options.dir, screen, options.member) as source:
        if not isinstance(source, (StoreSource, NodeSource)):
            raise CommandError(f"{source.format} directories keep no journal")
        with ExitStack() as stack:
            progress = stack.enter_context(screen.progress("verifying", "queues"))
            tree = None
            if isinstance(source, StoreSource):
                tree = stack.enter_context(closing(Tree(source.root, Findings())))
            names = chosen_names(source, Choice(tuple(options.queues)))
            for done, name in enumerate(names):
                progress.at(done, len(names), printable(name))
                verdicts += _verify_queue(screen, source, name, tree)
        missing = tell_unlisted(screen, source.unlisted())
    if options.json:
        screen.json([as_json(verdict) for verdict in verdicts])
    else:
        screen.table(COLUMNS, [_row(screen, verdict) for verdict in verdicts])
    return missing if all(verdict.is_good for verdict in verdicts) else 1


def _row(screen: Screen, verdict: Verdict) -> list[str]:
    told = verdict.difference or verdict.damage or verdict.skipped or "the same"
    return [
        printable(verdict.queue),
        f"{verdict.records:,}",
        f"{verdict.flushes:,}",
        f"{verdict.messages:,}",
        f"{screen.mark(verdict.is_good)} {printable(told)}",
    ]


def _verify_queue(
    screen: Screen, source: StoreSource | NodeSource, name: str, tree: Tree | None
) -> list[Verdict]:
    if isinstance(source, StoreSource):
        return [_verify_native(screen, source.path, name, tree)]
    if isinstance(queue := source.replicated.get(name), QuorumQueue):
        return [_verify_quorum(name, queue)]
    if name in source.replicated:
        return [Verdict(name, skipped="not compared: it keeps no journal")]
    verdicts = []
    for part in source.queues[name].parts:
        title = name if part.priority is None else f"{name}, priority {part.priority}"
        verdict = Verdict(title)
        verdicts.append(verdict)
        if part.index_version != 1:
            verdict.skipped = "not compared: an index of version 2 keeps no journal"
            continue
        with open_log(source, name, part.priority) as log:
            _replay_all(log, verdict)
    return verdicts


def _verify_quorum(name: str, queue: QuorumQueue) -> Verdict:
    """Entries in their usual shapes, scanned in C, against the same entries decoded in Python."""
    server = queue.outcome.server
    scanned = replay(server, Findings())
    decoded = replay(server, Findings(), scans=False)
    verdict = Verdict(name, scanned.entries, 0, len(scanned.indexes))
    if not scanned.exact:
        verdict.damage = scanned.why[0]
    for title, one, other in (
        ("messages that are live", scanned.indexes, decoded.indexes),
        ("counts and expiries", scanned.odd, decoded.odd),
        ("dead letters", scanned.dead, decoded.dead),
        ("what became of messages", scanned.gone, decoded.gone),
    ):
        if one != other and not verdict.difference:
            verdict.difference = f"{title} differ between both ways to read the entries"
    return verdict


# --- a store ------------------------------------------------------------------------------------


def _verify_native(screen: Screen, path: str, name: str, tree: Tree | None) -> Verdict:
    """The store may be in use: both sides have to be of one moment.

    `tree` has the commit logs as they were when the first queue was read, which is enough for a
    queue that nobody changes. For one that has changed they are read again.
    """
    verdict = Verdict(name)
    try:
        for number in range(TRIES_MAX):
            known = tree if number == 0 else None
            with (
                open_source(path, screen) as source,
                open_log(source, name, tree=known) as log,
            ):
                if not isinstance(log, NativeLog) or not isinstance(source, StoreSource):
                    break
                if _are_of_one_moment(source, name, log):
                    _compare_native(source, name, log, verdict)
                    return verdict
        verdict.damage = "it changes too fast: try again when nobody writes, or on a copy"
    except (CannotReplay, *UNREADABLE) as error:
        verdict.damage = str(error)
    return verdict


def _are_of_one_moment(source: StoreSource, name: str, log: NativeLog) -> bool:
    stats = source.store.queue(name, create=False).stats()
    current = log.journals.all[-1]
    return (stats.epoch, stats.journal_bytes) == (current.epoch, current.end)


def _compare_native(source: StoreSource, name: str, log: NativeLog, verdict: Verdict) -> None:
    replay = _replay_all(log, verdict)
    if verdict.difference:
        return
    served = (
        Seen(
            found.req_id,
            found.persistent,
            found.redelivered,
            found.delivery_count,
            found.expiry_us,
            found.published_us,
            len(found.body),
            found.table + found.body if isinstance(found.table, bytes) else None,
        )
        for found in source.messages(name, Choice())
    )
    lost = _compare_messages(source, served, _replayed(replay), verdict)
    if lost:
        verdict.damage = f"{count(lost, 'message')} cannot be read: told above"
    depth, live = source.depth(name), replay.state.live
    if not verdict.difference and depth != live:
        verdict.difference = f"the engine counts {count(depth, 'message')}, the records {live}"


def _compare_messages(
    source: Source, served: Iterator[Seen], replayed: Iterator[Seen], verdict: Verdict
) -> int:
    """Up to the first difference. How many the engine could not read, and told so."""
    lost, damaged = 0, source.damaged
    engine = next(served, None)
    for record in replayed:
        if engine is not None and engine.req_id == record.req_id:
            verdict.difference = _difference(engine, record)
            engine = next(served, None)
            verdict.messages += not verdict.difference
        elif engine is not None and engine.req_id < record.req_id:
            break
        elif lost < source.damaged - damaged:
            lost += 1
        else:
            verdict.difference = f"ReqId {record.req_id}: live by its records, but not served"
        if verdict.difference:
            return lost
    if engine is not None:
        verdict.difference = f"ReqId {engine.req_id}: served, but not live by its records"
    return lost


def _difference(engine: Seen, record: Seen) -> str:
    for field, one, other in zip(Seen._fields[1:7], engine[1:7], record[1:7], strict=True):
        if one != other:
            told = f"{field} is {one!r} for the engine, {other!r} by its records"
            return f"ReqId {engine.req_id}: {told}"
    if record.payload is not None and engine.payload != record.payload:
        return f"ReqId {engine.req_id}: the payload is not that of its record"
    return ""


def _replayed(replay: Replay) -> Iterator[Seen]:
    """The live messages with what their records say."""
    for message, publish in publishes(replay):
        fields = publish.fields if publish else Fields(b"", 0, -1, 0)
        yield Seen(
            message.req_id,
            not message.transient,
            message.redelivered,
            message.deliveries,
            fields.expiry_us,
            publish.published_us if publish else 0,
            fields.size,
            publish.embedded if publish and not any(fields.msg_id) else None,
        )


# --- both ---------------------------------------------------------------------------------------


class _Flushes:
    """Compares what a MANIFEST says of an epoch with the state at the end of that epoch."""

    def __init__(self, log: NativeLog, verdict: Verdict) -> None:
        self._log = log
        self._verdict = verdict
        self._file = 0
        self._counts: dict[int, Segment] = {}

    def look(self, record: Record, state: State) -> None:
        """Behind each record; the first one of a journal, a MANIFEST, changes nothing."""
        if record.place[0] != self._file:
            self._file = record.place[0]
            self._counts = {number: state.count_of(number) for number in state.numbers()}
        if record.verb != "manifest" or self._file == 0 or self._verdict.difference:
            return
        manifest = manifest_of(record.data)
        epoch = self._log.journals.all[self._file].epoch
        if manifest is not None and manifest.flushed_epoch == epoch - 1:
            self._verdict.flushes += 1
            self._compare(manifest, epoch)

    def _compare(self, manifest: Manifest, epoch: int) -> None:
        """Transient messages below the floor that the MANIFEST names are dead on both sides."""
        told = {s.number: Segment(s.unacked, s.transient) for s in manifest.segments}
        nothing = Segment(0, 0)
        for number in sorted(told.keys() | self._counts.keys()):
            says, found = told.get(number, nothing), self._counts.get(number, nothing)
            below = number * self._log.slots & COUNT_MASK < manifest.floor
            one, other = (s.live - (s.transient if below else 0) for s in (says, found))
            if one != other:
                self._verdict.difference = (
                    f"segment {number} had {other} messages at the end of epoch {epoch - 1}, the"
                    f" MANIFEST of its flush says {one}"
                )
                return


def _replay_all(log: NativeLog | RabbitMQLog, verdict: Verdict) -> Replay:
    replay = Replay(log)
    flushes = _Flushes(log, verdict) if isinstance(log, NativeLog) else None
    while (record := replay.forward()) is not None:
        if flushes is not None:
            flushes.look(record, replay.state)
    verdict.records = replay.number
    if isinstance(log, RabbitMQLog):
        _compare_rabbitmq(log, replay, verdict)
    found = [f for f in log.findings.kept if f.where.startswith(places_of(log.folder))]
    damage = [str(finding) for finding in found if finding.severity != "note"]
    if damage:
        verdict.damage = damage[0]
    return replay


def _compare_rabbitmq(log: RabbitMQLog, replay: Replay, verdict: Verdict) -> None:
    """Transient messages too: what a restart makes of them is no matter of the records."""
    batches = scan_queue(log.tree, log.folder, log.slots, Findings(), Counts())
    read = (message for batch in batches for message in batch.rows())
    for one, message in zip_longest(read, replay.state.messages()):
        told = None if one is None else (one[0], not one[3][5], one[1])
        says = None if message is None else (message.req_id, message.transient, message.delivered)
        if told != says:
            names = "(seq, transient, delivered)"
            verdict.difference = f"recovery reads {told}, its records say {says}: {names}"
            return
        verdict.messages += 1


def as_json(verdict: Verdict) -> dict[str, Any]:
    told = asdict(verdict)
    told["record_count"], told["error"] = told.pop("records"), told.pop("damage")
    return {**told, "same": verdict.is_good and not verdict.skipped}
