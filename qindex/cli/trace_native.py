"""The records of a store about one message. The core reads the bytes (dump.c), this chooses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

import qindex
from qindex.cli.dump import JOURNALS, dump_lines
from qindex.cli.messages import Choice
from qindex.cli.sources import StoreSource
from qindex.cli.text import count, size
from qindex.cli.trace import Record, Trace
from qindex.formats.foreign import Findings, Tree
from qindex.formats.native_messages import MessageFiles, read_msg_id

FILE_BYTES_MAX: Final = 1 << 30
_U64: Final = Struct(">Q")
_MAGICS: Final = (b"QIJRNL\r\n", b"QISEGM\r\n")


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
            for req_id in sorted(_req_ids(source, tree, name, msg_id.hex())):
                known = True
                yield _trace(source, tree, files, name, req_id)
        if not known and (body := _body(files, msg_id)) and body.text.endswith("sound"):
            yield Trace("", None, [body], "an orphan: all queues have acked it")
    finally:
        tree.close()


def _trace(source: StoreSource, tree: Tree, files: MessageFiles, name: str, req_id: int) -> Trace:
    history = _history(source, tree, name, req_id)
    if history.msg_id:
        body = _body(files, history.msg_id)
        if body is not None:
            history.records.append(body)
    state, damaged = _state(source, name, req_id, history)
    return Trace(name, req_id, history.records, state, damaged)


# --- the index ----------------------------------------------------------------------------------


def _history(source: StoreSource, tree: Tree, name: str, req_id: int) -> _History:
    history = _History()
    entries = source.store.stats().segment_entries
    number = req_id // entries
    folder = source.store.queue_directory(name)
    for file in (f"{number}.idx", f"{number}.alt", *_journals(tree, folder)):
        data = _bytes(tree, f"{folder}/{file}")
        wanted = str(req_id if file in JOURNALS else req_id % entries)
        if data:
            _read(data, f"{folder}/{file}", wanted, req_id, history)
    return history


def _journals(tree: Tree, folder: str) -> list[str]:
    """Those that count, the older one first."""
    epochs: dict[str, int] = {}
    for file in JOURNALS:
        source = tree.try_open(f"{folder}/{file}")
        if source is not None:
            with source:
                for offset in (0, 4096):
                    head = source.read(offset, 40)
                    if head.startswith(_MAGICS[0]) and len(head) == 40:
                        epochs[file] = max(epochs.get(file, 0), _U64.unpack_from(head, 32)[0])
    return sorted(epochs, key=epochs.__getitem__)


def _bytes(tree: Tree, where: str) -> bytes:
    """A journal or a segment is bounded by the store's settings: at most 1 GiB, usually 2 MB."""
    return tree.read(where, FILE_BYTES_MAX) or b""


def _read(data: bytes, where: str, wanted: str, req_id: int, history: _History) -> None:
    is_journal = where.endswith(JOURNALS)
    history.events = 0
    try:
        for line in dump_lines(data):
            words = line.split()
            offset, verb = int(words[0]), words[1]
            if verb == "BAD":
                history.lost.append(where)
                text = line.partition("BAD")[2].strip()
                history.records.append(Record(where, offset, "damage", text))
            elif verb == "publish" and words[3] == wanted:
                _publish(words, where, offset, history)
            elif verb == "purge":
                _purge(data, where, offset, req_id, history)
            elif verb in ("deliver", "ack") and words[2] == wanted:
                history.acked |= verb == "ack"
                history.records.append(Record(where, offset, verb, ""))
            elif verb == "event" and words[2] == wanted:
                history.events += 1
                verb = "deliver" if history.events == 1 else "ack"
                history.acked |= verb == "ack"
                history.records.append(Record(where, offset, verb, ""))
            elif verb == "count" and words[2] == wanted:
                text = f"delivered {words[4]} times"
                history.records.append(Record(where, offset, verb, text))
    except qindex.FormatError:
        history.lost.append(where)
        name = "journal" if is_journal else "segment"
        history.records.append(Record(where, 0, "damage", f"no header of a {name}"))


def _publish(words: list[str], where: str, offset: int, history: _History) -> None:
    kind, body_size, embedded, msg_id, expiry_us = (words[i] for i in (2, 5, 7, 9, 11))
    history.published = True
    history.transient = kind == "transient"
    history.msg_id = b"" if msg_id == "-" else bytes.fromhex(msg_id)
    place = f"MsgId {msg_id}" if history.msg_id else f"embedded, {embedded} bytes with headers"
    expiry = f", expires at {int(expiry_us) / 1e6:.6f}" if int(expiry_us) else ""
    text = f"{kind}, body of {size(int(body_size))}: {place}{expiry}"
    history.records.append(Record(where, offset, "publish", text))


def _purge(data: bytes, where: str, offset: int, req_id: int, history: _History) -> None:
    """A ReqId, then those below it that stay; all others below it are acked."""
    length = int.from_bytes(data[offset : offset + 4], "big") & 0xFFFFFFF
    payload = data[offset + 8 : offset + 8 + length]
    (limit,) = _U64.unpack_from(payload)
    if req_id >= limit or _U64.pack(req_id) in {payload[i : i + 8] for i in range(8, length, 8)}:
        return
    history.acked = True
    history.records.append(Record(where, offset, "purge", f"acks what is below {limit:,}"))


def _req_ids(source: StoreSource, tree: Tree, name: str, msg_id: str) -> set[int]:
    """Where a queue's index names this MsgId."""
    found: set[int] = set()
    folder = source.store.queue_directory(name)
    entries = source.store.stats().segment_entries
    try:
        files = tree.files(folder)
    except OSError:
        return found
    for file in files:
        stem, _, ending = file.rpartition(".")
        is_segment = ending in ("idx", "alt") and stem.isdecimal()
        base = int(stem) * entries if is_segment else 0
        data = _bytes(tree, f"{folder}/{file}") if is_segment or file in JOURNALS else b""
        if bytes.fromhex(msg_id) not in data:
            continue
        try:
            for line in dump_lines(data):
                if msg_id in line:
                    found.add(base + int(line.split()[3]))
        except qindex.FormatError:
            continue  # a journal that was flushed: the segments have it
    return found


# --- the body and the state ---------------------------------------------------------------------


def _body(files: MessageFiles, msg_id: bytes) -> Record | None:
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
