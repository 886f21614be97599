"""A store's messages from its records alone: for what the engine refuses to open.

Per queue the journals' records are merged with each segment's, by OR, as recovery does; a message
is taken if it was published and no ack of it is left. Frames are checked by their checksums, so
that nothing is made up. Memory: the journals of one queue, and one segment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.buffers import REASONS
from qindex.handle import directory_of
from qindex.look.messages import Found
from qindex.look.screen import Screen
from qindex.look.stores import FOLDER
from qindex.look.telling import Telling
from qindex.look.text import count, printable, queue_text
from qindex.native.commits import read_index_file
from qindex.native.folders import (
    JOURNALS,
    is_flushed,
    read_meta,
    segment_number,
)
from qindex.native.frames import (
    COUNT_MASK,
    DEAD_US,
    LEASE,
    CannotReplay,
    Purge,
    journal_header,
    priority_of,
    segment_header,
)
from qindex.native.messages import FRAME_BYTES, MessageFiles, read_msg_id
from qindex.native.records import Record, is_of_a_death, purge_of, records

SEGMENT_ENTRIES: Final = 16384
_FIELDS_BYTES: Final = 32
_PUBLISH_BYTES: Final = 8 + _FIELDS_BYTES  # of a record, at least
_META: Final = Struct(">8sII16s")


class _Publish(NamedTuple):
    where: str
    offset: int  # of the payload, if it is embedded
    record: Record


@dataclass(slots=True)
class _Records:
    published: dict[int, _Publish] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    purges: list[Purge] = field(default_factory=list)
    times: dict[int, tuple[int, int]] = field(default_factory=dict)  # due, priority: the last one
    leases: dict[int, int] = field(default_factory=dict)
    died: set[int] = field(default_factory=set)

    def take(self, req_id: int, record: Record) -> None:
        """An ack, a time or a side record."""
        if record.verb == "ack":
            self.acked.add(req_id)
        elif record.verb == "time":
            self.times[req_id] = record.due_us, record.priority
        elif record.deliveries == LEASE:
            self.leases[req_id] = record.due_us
        elif is_of_a_death(record):
            self.died.add(req_id)

    def is_acked(self, req_id: int) -> bool:
        return req_id in self.acked or any(purge.takes(req_id) for purge in self.purges)


class _Lost:
    """ReqIds that a journal does not tell of: a lane gives them without gaps."""

    def __init__(self) -> None:
        self.ranges: list[range] = []
        self._next: dict[int, int] = {}  # lane -> ReqId
        self._broken: set[int] = set()  # lanes in which damage came since
        self._bytes = 0

    def damage(self, size: int) -> None:
        self._broken |= self._next.keys()
        self._bytes += size

    def publish(self, req_id: int) -> None:
        lane = req_id // (COUNT_MASK + 1)
        if lane in self._broken:
            lost = range(self._next[lane], req_id)
            if 0 < len(lost) <= self._bytes // _PUBLISH_BYTES:  # else a session has skipped some
                self.ranges.append(lost)
            self._broken.discard(lane)
        self._next[lane] = req_id + 1


class RawStore(Telling):
    """The directories of queues below a store's directory."""

    def __init__(self, root: Path, screen: Screen) -> None:
        super().__init__(screen)
        self.root = root
        self._tree = Tree(root, Findings())
        self._files = MessageFiles(self._tree)
        self._entries = 0
        self.beside = 0  # of `damaged`: what is no message that is left out
        self.is_unknown = False  # of the queue last read: how many messages are lost

    def close(self) -> None:
        self._tree.close()

    def folders(self) -> list[str]:
        """Each as findings name it: "queues/" and a hash."""
        try:
            names = self._tree.folders("queues")
        except OSError:
            return []
        return [f"queues/{name}" for name in names if FOLDER.fullmatch(name)]

    def known_name(self, folder: str) -> str | None:
        """From either copy in queue.meta, by its checksum; None: it does not say whose this is."""
        name = self._written_name(folder)
        return name if name is not None and _belongs_to(folder, name) else None

    def name(self, folder: str) -> str:
        """The same, or one that is made from the folder's."""
        name = self._written_name(folder)
        if name is not None and _belongs_to(folder, name):
            return name
        lost = f"lost-{folder.rpartition('/')[2]}"
        why = "the name is lost"
        if name is not None:
            why = f"it is that of queue {queue_text(name)}, which has another folder"
        self._say(f"{folder}/queue.meta: {why}; {lost!r} is taken")
        return lost

    def _say(self, text: str) -> None:
        """What is no message, or nobody knows how many."""
        self.tell(text)
        self.beside += 1

    def _written_name(self, folder: str) -> str | None:
        meta = read_meta(self._tree, folder)
        return None if meta is None else meta.name

    def messages(self, folder: str, name: str) -> Iterator[Found]:
        """By ReqId; what is damaged is told."""
        self.is_unknown = False
        segments: dict[int, list[str]] = {}
        try:
            names = self._tree.files(folder)
        except OSError as error:
            self._lose(f"{folder}: cannot be listed: {error.strerror}")
            return
        for file in names:
            number = segment_number(file)
            if number is not None:
                segments.setdefault(number, []).append(f"{folder}/{file}")
        owner = self._owner(folder)
        data: dict[str, bytes] = {}
        journal = self._journals(folder, names, owner, data)
        entries = self._entries_of(segments)
        in_journal: dict[int, list[int]] = {}
        for req_id in sorted(journal.published):
            in_journal.setdefault(req_id // entries, []).append(req_id)
        for number in sorted(segments.keys() | in_journal.keys()):
            segment = _Records()
            for where in segments.get(number, ()):
                data[where] = self._bytes(where)
                if not self._is_foreign(where, data[where], owner):
                    self._read(data, where, number * entries, segment)
            for req_id in sorted({*segment.published, *in_journal.get(number, ())}):
                if not journal.is_acked(req_id) and req_id not in segment.acked:
                    publish = segment.published.get(req_id) or journal.published[req_id]
                    found = self._found(name, req_id, publish, data)
                    if found is not None:
                        times = journal.times.get(req_id) or segment.times.get(req_id)
                        found.lease_us = journal.leases.get(req_id) or segment.leases.get(req_id, 0)
                        found.died = req_id in journal.died or req_id in segment.died
                        yield _with_time(found, times)
            for where in segments.get(number, ()):
                del data[where]

    def _journals(
        self, folder: str, names: list[str], owner: bytes | None, data: dict[str, bytes]
    ) -> _Records:
        """What both have; one of them at least is there, and has a header, while all is well."""
        journal = _Records()
        for file in (file for file in JOURNALS if file in names):
            where = f"{folder}/{file}"
            raw = self._bytes(where)
            if not is_flushed(raw):
                data[where] = raw
                if not self._is_foreign(where, raw, owner):
                    self._read(data, where, 0, journal)
        if not data:
            empty = [file for file in JOURNALS if file in names]
            what = f"{empty[0]} is empty" if empty else "its journal is missing"
            self._lose(f"{folder}: {what}, and with it all that was in no segment")
        return journal

    def _owner(self, folder: str) -> bytes | None:
        """The identity that the queue's files have; None: queue.meta does not say."""
        meta = read_meta(self._tree, folder)
        return meta.identity if meta is not None and _belongs_to(folder, meta.name) else None

    def _is_foreign(self, where: str, raw: bytes, owner: bytes | None) -> bool:
        """It is the file of another queue, and was put here: it is left out, and told."""
        try:
            header = journal_header(raw) if where.endswith(JOURNALS) else segment_header(raw)
        except CannotReplay:
            return False  # it is told where it is read
        if owner is None or header is None or header.identity == owner:
            return False
        self._lose(f"{where}: it is the file of another queue, and left out; this queue's is lost")
        return True

    def _lose(self, text: str) -> None:
        """With messages, nobody knows how many."""
        self._say(f"{text}: how many messages were in it is not known")
        self.is_unknown = True

    def _bytes(self, where: str) -> bytes:
        return read_index_file(self._tree, where)

    def _entries_of(self, segments: dict[int, list[str]]) -> int:
        """As the segments' headers say; store.meta may be what is lost."""
        for where in (where for files in segments.values() for where in files):
            source = self._tree.try_open(where)
            if source is not None:
                with source:
                    head = source.read(0, _META.size)
                if len(head) == _META.size and head.startswith(b"QISEGM\r\n"):
                    entries: int = _META.unpack(head)[2]
                    if 8 <= entries <= SEGMENT_ENTRIES:
                        self._entries = entries
                        return entries
        return self._entries or SEGMENT_ENTRIES

    def _read(self, data: dict[str, bytes], where: str, base: int, known: _Records) -> None:
        """All records of one file. `base`: the ReqId of slot 0; 0 for a journal."""
        is_journal = where.endswith(JOURNALS)
        head_bytes = (8 if is_journal else 2) + _FIELDS_BYTES
        events: dict[int, int] = {}
        lost = _Lost()
        raw = data[where]
        if is_journal and is_flushed(raw):
            return
        try:
            for record in records(raw):
                verb, req_id = record.verb, base + record.req_id
                if verb == "publish":
                    lost.publish(req_id)
                    place = record.offset + head_bytes
                    known.published[req_id] = _Publish(where, place, record)
                elif verb in ("ack", "time", "side"):
                    known.take(req_id, record)
                elif verb == "event":
                    events[req_id] = events.get(req_id, 0) + 1
                    if events[req_id] == 2:
                        known.acked.add(req_id)
                elif verb == "purge":
                    known.purges.append(purge_of(raw, record))
                elif record.damage and verb != "tail":  # what a crash cut off is no damage
                    self.tell(f"{where} at byte {record.offset}: {record.damage}")
                    lost.damage(record.size)
        except qindex.FormatError as error:
            lost_header = "its header is lost, and with it all of its records"
            newer = isinstance(error, qindex.NewerFormat)
            self._lose(f"{where}: {error if newer else lost_header}")
        if is_journal:
            self._tell_lost(where, lost.ranges, known)

    def _tell_lost(self, where: str, ranges: list[range], known: _Records) -> None:
        for each in ranges:
            gone = [req_id for req_id in each if not known.is_acked(req_id)]
            if gone:
                told = f"{each[0]} to {each[-1]}" if len(each) > 1 else f"{each[0]}"
                of = f"{count(len(gone), 'message')} of {told}"
                self.tell(f"{where}: {of} {'is' if len(gone) == 1 else 'are'} lost")
                self.damaged += len(gone) - 1

    def _found(
        self, name: str, req_id: int, publish: _Publish, data: dict[str, bytes]
    ) -> Found | None:
        record = publish.record
        if record.msg_id:
            payload = self._stored(name, req_id, record.msg_id)
            if payload is None:
                return None
        else:
            raw = data[publish.where]
            payload = raw[publish.offset : publish.offset + record.embedded]
        if len(payload) < record.size:
            self.tell(f"{printable(name)}: message {req_id} has a damaged record")
            return None
        split = len(payload) - record.size
        expired = 0 < record.expiry_us <= time.time() * 1e6
        return Found(
            name,
            req_id,
            "expired" if expired else "unacked",
            True,
            0,
            not record.transient,
            record.expiry_us,
            payload[:split],
            payload[split:],
            published_us=record.published_us,
        )

    def _stored(self, name: str, req_id: int, msg_id: bytes) -> bytes | None:
        place = self._files.locate(msg_id)
        state = "it is in no file" if place is None else self._files.state(msg_id, *place)
        source = None if place is None else self._tree.kept_open(place[0])
        if place is None or source is None or state != "sound":
            self.tell(f"{printable(name)}: the body of message {req_id} is lost: {state}")
            return None
        length = read_msg_id(msg_id).length
        return source.read(place[1] + FRAME_BYTES - 1, length)


def _belongs_to(folder: str, name: str) -> bool:
    """Else somebody has moved the folder or its queue.meta: the messages are not this queue's."""
    return folder == f"queues/{directory_of(name).decode()}"


def _with_time(found: Found, times: tuple[int, int] | None) -> Found:
    """With its priority, and what it is held for."""
    found.priority = priority_of(found.req_id)
    if times is not None:
        due_us, priority = times
        found.priority = priority or found.priority
        if due_us >= DEAD_US:
            found.state = "dead"
            found.dead = REASONS[due_us - DEAD_US] if due_us - DEAD_US < len(REASONS) else None
        elif due_us > time.time() * 1e6:
            found.state, found.due_us = "delayed", due_us
    return found
