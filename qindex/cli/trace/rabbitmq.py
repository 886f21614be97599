"""The records of a RabbitMQ node about one message, in indexes of both versions."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from qindex.brokers.rabbitmq.index import (
    Entry,
    Journal,
    Segment,
    journal_stretches,
    read_journal,
    read_segment,
    segment_stretches,
)
from qindex.brokers.rabbitmq.index_v2 import entry_offset, index_files, read_slot
from qindex.brokers.rabbitmq.log import journal_records, segment_records
from qindex.brokers.rabbitmq.node import Part, Queue, Vhost, is_redelivered
from qindex.brokers.rabbitmq.queue import Counts, Live, scan_v2
from qindex.brokers.rabbitmq.quorum.queues import DeadLetterQueue, QuorumQueue
from qindex.brokers.rabbitmq.store import read_copies
from qindex.brokers.tree import Findings, Source, Tree
from qindex.cli.trace import other_brokers, quorum
from qindex.look.at_time import now_us
from qindex.look.sources import NodeSource
from qindex.look.text import size
from qindex.look.traces import Record, Trace

_PUBLISH: Final = Struct(">16sQII").unpack_from


def trace(source: NodeSource, name: str, req_id: int) -> Iterator[Trace]:
    """A trace per directory of the queue: a priority queue counts in each anew."""
    if isinstance(source.replicated.get(name), (QuorumQueue, DeadLetterQueue)):
        yield from quorum.trace(source, name, req_id)
        return
    if name in source.replicated:
        yield from other_brokers.trace(source, name, req_id)
        return
    queue = source.queues[name]
    for part in queue.parts:
        found = _trace(source, queue, part, name, req_id)
        if found.records:
            yield found


def trace_msg_id(source: NodeSource, msg_id: bytes) -> Iterator[Trace]:
    """A trace per queue whose index names it; or its stored copies alone."""
    known = False
    for name, queue in source.queues.items():
        for part in queue.parts:
            for seq in sorted(_seqs(queue.vhost, part, msg_id)):
                known = True
                yield _trace(source, queue, part, name, seq)
    if not known:
        for vhost in source.node.vhosts:
            if records := _copies(vhost, msg_id):
                yield Trace("", None, records, "an orphan: no index names it any more")


def _trace(source: NodeSource, queue: Queue, part: Part, name: str, seq: int) -> Trace:
    findings = Findings()
    trace = Trace(name, seq, priority=part.priority)
    if part.index_version == 1:
        entry, delivered, acked = _trace_v1(queue.vhost, part, seq, trace, findings)
    else:
        entry, delivered, acked = _trace_v2(queue.vhost, part, seq, trace, findings)
    for finding in findings.kept:
        if trace.records and finding.severity != "note":
            where, text = finding.where, f"{finding.kind}: {finding.text}"
            trace.records.append(Record(where, finding.offset, "damage", text))
    stored = entry is not None and not entry[3]
    bodies = _copies(queue.vhost, entry[0]) if entry is not None and stored and entry[0] else []
    trace.records += bodies
    if acked:
        trace.state = "acked"
    elif entry is None:
        trace.state, trace.damaged = "deliver or ack without a publish: ignored", True
    elif not entry[5]:
        trace.state = "gone: it was transient, and a restart drops those"
    elif stored and not bodies:
        trace.state, trace.damaged = "its body is missing: RabbitMQ would drop it", True
    else:
        redelivered = is_redelivered(part.terms, seq, delivered)
        expired = 0 < entry[1] <= now_us(source.at_time)
        trace.state = f"live, {'expired' if expired else 'unacked' if redelivered else 'ready'}"
        trace.damaged = not _is_readable(queue, part, seq)
        if trace.damaged:
            trace.state += ", but its body cannot be read"
    return trace


def _is_readable(queue: Queue, part: Part, seq: int) -> bool:
    return next(queue.messages_of(part, seq, seq), None) is not None


# --- version 1 ----------------------------------------------------------------------------------


def _trace_v1(
    vhost: Vhost, part: Part, seq: int, trace: Trace, findings: Findings
) -> tuple[Entry | None, bool, bool]:
    """(the publish, was it delivered, was it acked)"""
    slots = vhost.segment_entry_count
    number, slot = divmod(seq, slots)
    tree = vhost.node.tree
    entry: Entry | None = None
    events = 0
    segment_file = tree.try_open(f"{part.where}/{number}.idx")
    if segment_file is not None:
        with segment_file:
            segment = Segment()
            stretches = list(segment_stretches(segment_file, slots, segment, findings))
            entry = dict(segment.publishes()).get(slot)
            for start, end in stretches:
                events = _segment_records(segment_file, start, end, slot, events, trace)
    delivered, acked = events > 0, events > 1
    journal_file = tree.try_open(f"{part.where}/journal.jif")
    if journal_file is not None:
        with journal_file:
            journal = Journal()
            stretches = list(journal_stretches(journal_file, journal, findings))
            publish = next((e for n, e in journal.publishes() if n == seq), None)
            entry = entry or publish
            marks = {is_ack for n, is_ack in journal.marks() if n == seq}
            delivered |= False in marks
            acked |= True in marks
            if publish or marks:
                for start, end in stretches:
                    _journal_records(journal_file, start, end, seq, trace)
    return entry, delivered, acked


def _journal_records(source: Source, pos: int, end: int, seq: int, trace: Trace) -> None:
    for start, kind, found, fields in journal_records(source, pos, end):
        if found == seq:
            verb = ("publish", "publish", "deliver", "ack")[kind]
            text = _publish_text(fields, persistent=kind == 0) if fields else ""
            trace.records.append(Record(source.where, start, verb, text))


def _segment_records(
    source: Source, pos: int, end: int, slot: int, events: int, trace: Trace
) -> int:
    for start, prefix, found, fields in segment_records(source, pos, end):
        if found != slot:
            continue
        if fields:
            verb, text = "publish", _publish_text(fields, persistent=prefix == 3)
        else:
            verb, text = "deliver" if events == 0 else "ack", ""
            events += 1
        trace.records.append(Record(source.where, start, verb, text))
    return events


def _publish_text(fields: bytes, *, persistent: bool) -> str:
    msg_id, expiry_us, body_bytes, term_bytes = _PUBLISH(fields)
    kind = "persistent" if persistent else "transient"
    place = f", embedded, term of {term_bytes} bytes" if term_bytes else ", stored"
    expiry = f", expires at {expiry_us / 1e6:.6f}" if expiry_us else ""
    return f"{kind}, body of {size(body_bytes)}{place}, MsgId {msg_id.hex()}{expiry}"


# --- version 2 ----------------------------------------------------------------------------------


def _trace_v2(
    vhost: Vhost, part: Part, seq: int, trace: Trace, findings: Findings
) -> tuple[Entry | None, bool, bool]:
    tree = vhost.node.tree
    for number in index_files(tree.files(part.where)):
        offset = entry_offset(tree, part.where, number, seq, findings)
        if offset is None:
            continue
        where = f"{part.where}/{number}.qi"
        for found, _, file, entry in _live_v2(tree, part, number, findings):
            if found != seq:
                continue
            msg_id, expiry_us, body_bytes, term_bytes, term_at, persistent = entry
            kind = "persistent" if persistent else "transient"
            expiry = f", expires at {expiry_us / 1e6:.6f}" if expiry_us else ""
            place = f"MsgId {msg_id.hex()}" if msg_id else "in the queue's store"
            text = f"{kind}, body of {size(body_bytes)}, {place}{expiry}"
            trace.records.append(Record(where, offset, "live", text))
            if term_bytes:
                text = f"term of {term_bytes} bytes"
                trace.records.append(Record(file, term_at, "body", text))
            return entry, False, False
        slot = read_slot(tree, where, offset)
        if any(slot) and slot[0] == 0:
            trace.records.append(Record(where, offset, "acked", ""))
            return None, False, True
    return None, False, False


def _live_v2(tree: Tree, part: Part, number: int, findings: Findings) -> Iterator[Live]:
    for batch in scan_v2(tree, part.where, [number], findings, Counts()):
        yield from batch.rows()


# --- bodies, and the way from a MsgId -----------------------------------------------------------


def _copies(vhost: Vhost, msg_id: bytes) -> list[Record]:
    """Every copy of a stored message; its entry begins 24 bytes before the term."""
    folder = vhost.path("msg_store_persistent")
    return [
        Record(place.file, place.offset - 24, "body", f"term of {place.size} bytes")
        for place in read_copies(vhost.node.tree, folder, msg_id, Findings())
    ]


def _seqs(vhost: Vhost, part: Part, msg_id: bytes) -> set[int]:
    """Where the index names this id, acked or not."""
    tree, findings = vhost.node.tree, Findings()
    found: set[int] = set()
    try:
        names = tree.files(part.where)
    except OSError:
        return found
    if part.index_version == 2:
        for number in index_files(names):
            for seq, _, file, entry in _live_v2(tree, part, number, findings):
                if _has_id(vhost, file, entry, msg_id):
                    found.add(seq)
    for name in names:
        source = tree.try_open(f"{part.where}/{name}")
        if source is None:
            continue
        with source:
            if name == "journal.jif":
                journal = read_journal(source, findings)
                found |= {seq for seq, e in journal.publishes() if e[0] == msg_id}
            elif name.endswith(".idx") and name[:-4].isdecimal():
                slots, segment = vhost.segment_entry_count, Segment()
                read_segment(source, slots, segment, findings)
                base = int(name[:-4]) * slots
                found |= {base + s for s, e in segment.publishes() if e[0] == msg_id}
    return found


def _has_id(vhost: Vhost, file: str, entry: Entry, msg_id: bytes) -> bool:
    """In version 2 a message in the queue's own store has its id in its term only."""
    if entry[0]:
        return entry[0] == msg_id
    source = vhost.node.tree.kept_open(file)
    return source is not None and msg_id in source.read(entry[4], entry[3])
