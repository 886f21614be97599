"""The records of a store about one message. native/records.py reads them, this chooses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.look.messages import Choice
from qindex.look.sources import StoreSource
from qindex.look.text import count, size
from qindex.look.traces import Record, Trace
from qindex.moments import utc
from qindex.native.commits import read_index_file
from qindex.native.folders import JOURNALS, segment_number
from qindex.native.frames import DEAD_US
from qindex.native.messages import MessageFiles, read_msg_id
from qindex.native.records import Record as Entry
from qindex.native.records import journals_in, past_journals_in, purge_of, records, side_text
from qindex.native.times import time_text


@dataclass(slots=True)
class _History:
    """What the records said, taken together."""

    records: list[Record] = field(default_factory=list)
    msg_id: bytes = b""
    published: bool = False
    transient: bool = False
    events: int = 0  # of a segment: deliver, then ack
    acked: bool = False
    lost: list[str] = field(default_factory=list)  # files in which bytes are no frame

    def tell(self, where: str, record: Entry, verb: str, text: str) -> None:
        self.records.append(Record(where, record.offset, verb, text))


def trace(source: StoreSource, name: str, req_id: int) -> Iterator[Trace]:
    """One trace; none if the queue never came to this ReqId."""
    tree = Tree(source.root, Findings())
    try:
        yield _trace(source, tree, MessageFiles(tree), name, req_id)
    finally:
        tree.close()


def trace_msg_id(source: StoreSource, msg_id: bytes) -> Iterator[Trace]:
    """A trace per queue that the message was published to; or its body alone."""
    tree = Tree(source.root, Findings())
    try:
        files = MessageFiles(tree)
        known = False
        for name in source.names():
            for req_id in sorted(_req_ids(source, tree, name, msg_id)):
                known = True
                yield _trace(source, tree, files, name, req_id)
        place = None if known else files.locate(msg_id)
        if place and files.state(msg_id, *place) == "sound":
            body = _body(files, msg_id)
            yield Trace("", None, [body], "an orphan: all queues have acked it")
    finally:
        tree.close()


def _trace(source: StoreSource, tree: Tree, files: MessageFiles, name: str, req_id: int) -> Trace:
    history = _history(source, tree, name, req_id)
    if history.msg_id:
        history.records.append(_body(files, history.msg_id))
    state, damaged = _state(source, name, req_id, history)
    return Trace(name, req_id, history.records, state, damaged)


# --- the index ----------------------------------------------------------------------------------


def _history(source: StoreSource, tree: Tree, name: str, req_id: int) -> _History:
    history = _History()
    entries = source.store.stats().segment_entries
    number = req_id // entries
    folder = source.store.queue_directory(name)
    past = past_journals_in(tree, folder)
    journals = [*past, *(journal.where for journal in journals_in(tree, folder))]
    for where in (
        *past,
        f"{folder}/{number}.idx",
        f"{folder}/{number}.alt",
        *journals[len(past) :],
    ):
        wanted = req_id if where in journals else req_id % entries
        if data := _bytes(tree, where):
            _read(data, where, wanted, req_id, history)
    return history


def _bytes(tree: Tree, where: str) -> bytes:
    """A journal or a segment is bounded by the store's settings: at most 1 GiB, usually 2 MB."""
    return read_index_file(tree, where)


def _read(data: bytes, where: str, wanted: int, req_id: int, history: _History) -> None:
    """`wanted`: the ReqId as this file has it."""
    history.events = 0
    try:
        for record in records(data):
            if record.damage:
                history.lost.append(where)
                history.tell(where, record, "damage", record.damage)
            elif record.verb == "purge":
                purge = purge_of(data, record)
                if purge.takes(req_id):
                    history.acked = True
                    history.tell(where, record, "purge", f"acks what is below {purge.below:,}")
            elif record.req_id == wanted:
                _tell(record, where, history)
    except qindex.NewerFormat as error:
        history.lost.append(where)
        history.records.append(Record(where, 0, "damage", str(error)))
    except qindex.FormatError:
        history.lost.append(where)
        kind = "journal" if where.endswith(JOURNALS) else "segment"
        history.records.append(Record(where, 0, "damage", f"no header of a {kind}"))


def _tell(record: Entry, where: str, history: _History) -> None:
    """A record about the message."""
    verb, text = record.verb, ""
    if verb == "publish":
        history.published, history.transient = True, record.transient
        history.msg_id = record.msg_id
        text = _publish_text(record)
    elif verb == "event":
        history.events += 1
        verb = "deliver" if history.events == 1 else "ack"
    elif verb == "count":
        text = f"delivered {count(record.deliveries, 'time')}"
    elif verb == "time":
        verb = "bury" if record.due_us >= DEAD_US else "time"
        text = time_text(record.due_us, record.priority)
    elif verb == "side":
        verb, text = side_text(record)
    elif verb not in ("deliver", "ack"):
        return  # a frame without records
    history.acked |= verb == "ack"
    history.tell(where, record, verb, text)


def _publish_text(record: Entry) -> str:
    place = f"embedded, {record.embedded} bytes with headers"
    if record.msg_id:
        place = f"MsgId {record.msg_id.hex()}"
    expiry = f", expires at {record.expiry_us / 1e6:.6f}" if record.expiry_us else ""
    kind = "transient" if record.transient else "persistent"
    when = f", published at {utc(record.published_us / 1e6)}" if record.published_us else ""
    return f"{kind}, body of {size(record.size)}: {place}{expiry}{when}"


def _req_ids(source: StoreSource, tree: Tree, name: str, msg_id: bytes) -> set[int]:
    """Where a queue's index names this MsgId."""
    found: set[int] = set()
    folder = source.store.queue_directory(name)
    entries = source.store.stats().segment_entries
    try:
        files = tree.files(folder)
    except OSError:
        return found
    for file in files:
        number = segment_number(file)
        base = (number or 0) * entries
        is_index = number is not None or file in JOURNALS
        data = _bytes(tree, f"{folder}/{file}") if is_index else b""
        if msg_id not in data:
            continue
        try:
            found.update(base + each.req_id for each in records(data) if each.msg_id == msg_id)
        except qindex.FormatError:
            continue  # a journal that was flushed: the segments have it
    return found


# --- the body and the state ---------------------------------------------------------------------


def _body(files: MessageFiles, msg_id: bytes) -> Record:
    told = read_msg_id(msg_id)
    place = files.locate(msg_id)
    if place is None:
        return Record(f"messages/{told.file}.qms", told.offset, "body", "missing: no such file")
    where, offset = place
    text = f"{size(told.length)} with headers, {files.state(msg_id, where, offset)}"
    if told.queues > 1:
        text = f"for {count(told.queues, 'queue')}, {text}"
    if (where, offset) != (f"messages/{told.file}.qms", told.offset):
        text = f"moved here from {told.file}.qms, offset {told.offset}; {text}"
    return Record(where, offset, "body", text)


def _state(source: StoreSource, name: str, req_id: int, history: _History) -> tuple[str, bool]:
    """(the state, is there damage): what the engine serves, and else what the records say."""
    before = source.damaged
    found = next(source.messages(name, Choice(first=req_id, last=req_id)), None)
    if found is not None:
        times = f", {count(found.delivery_count, 'delivery', 'deliveries')}"
        state = f"live, {found.state}{times if found.delivery_count else ''}"
        return state, False
    if source.damaged > before:
        return "live, but damaged: its record or its body cannot be read", True
    if history.acked:
        return "acked", False
    if history.published and history.transient:
        return "gone: it was transient, and the store's end was unclean", False
    if history.lost:
        return "not known: records are lost in the files where it would be", True
    if req_id >= (source.next_req_id(name) or 0):
        return "not published yet", False
    return "acked, and its records are gone; or never used (an unclean end skips ReqIds)", False
