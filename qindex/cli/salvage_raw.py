"""A store's messages from its records alone: for what the engine refuses to open.

Per queue the journals' records are merged with each segment's, by OR, as recovery does; a message
is taken if it was published and no ack of it is left. Frames are checked by their checksums, so
that nothing is made up. Memory: the journals of one queue, and one segment.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import qindex
from qindex._core import lib
from qindex.cli.dump import JOURNALS, dump_lines
from qindex.cli.messages import Found
from qindex.cli.screen import Screen
from qindex.cli.sources import Telling
from qindex.cli.text import printable
from qindex.formats.foreign import Findings, Tree
from qindex.formats.native_frames import COUNT_MASK, DEAD_US, priority_of
from qindex.formats.native_messages import FRAME_BYTES, MessageFiles, read_msg_id
from qindex.reader import REASONS

FILE_BYTES_MAX: Final = 1 << 30
SEGMENT_ENTRIES: Final = 16384
_FIELDS_BYTES: Final = 32
_FOLDER: Final = re.compile(r"[0-9a-f]{32}")
_META: Final = Struct(">8sII16s")
_U64: Final = Struct(">Q")


class _Publish(NamedTuple):
    where: str
    offset: int  # of the payload, if it is embedded
    persistent: bool
    size: int
    embedded: int
    msg_id: bytes
    expiry_us: int


@dataclass(slots=True)
class _Records:
    published: dict[int, _Publish] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    purges: list[tuple[int, set[int]]] = field(default_factory=list)
    times: dict[int, tuple[int, int]] = field(default_factory=dict)  # due, priority: the last one

    def is_acked(self, req_id: int) -> bool:
        count = req_id & COUNT_MASK
        below = any(count < limit and req_id not in kept for limit, kept in self.purges)
        return below or req_id in self.acked


class RawStore(Telling):
    """The directories of queues below a store's directory."""

    def __init__(self, root: Path, screen: Screen) -> None:
        super().__init__(screen)
        self.root = root
        self._tree = Tree(root, Findings())
        self._files = MessageFiles(self._tree)
        self._entries = 0

    def close(self) -> None:
        self._tree.close()

    def folders(self) -> list[str]:
        """Each as findings name it: "queues/" and a hash."""
        try:
            names = self._tree.folders("queues")
        except OSError:
            return []
        return [f"queues/{name}" for name in names if _FOLDER.fullmatch(name)]

    def name(self, folder: str) -> str:
        """From either copy in queue.meta, by its checksum."""
        data = self._tree.read(f"{folder}/queue.meta", 1 << 20) or b""
        for offset in (0, len(data) // 2):
            if data[offset : offset + 8] != b"QIQUEU\r\n" or len(data) - offset < _META.size:
                continue
            _, _, size, _ = _META.unpack_from(data, offset)
            whole = data[offset : offset + _META.size + size]
            crc = data[offset + len(whole) : offset + len(whole) + 4]
            if int.from_bytes(crc, "big") == lib.qi_crc32c(0, whole, len(whole)):
                return whole[_META.size :].decode("utf-8", "surrogatepass")
        lost = f"lost-{folder.rpartition('/')[2]}"
        self.tell(f"{folder}/queue.meta: the name is lost, {lost!r} is taken")
        return lost

    def messages(self, folder: str, name: str) -> Iterator[Found]:
        """By ReqId; what is damaged is told."""
        journal = _Records()
        segments: dict[int, list[str]] = {}
        try:
            names = self._tree.files(folder)
        except OSError as error:
            self.tell(f"{folder}: cannot be listed: {error.strerror}")
            return
        data: dict[str, bytes] = {}
        for file in names:
            stem, _, ending = file.rpartition(".")
            if file in JOURNALS:
                data[f"{folder}/{file}"] = self._bytes(f"{folder}/{file}")
                self._read(data, f"{folder}/{file}", 0, journal)
            elif ending in ("idx", "alt") and stem.isdecimal():
                segments.setdefault(int(stem), []).append(f"{folder}/{file}")
        entries = self._entries_of(segments)
        in_journal: dict[int, list[int]] = {}
        for req_id in sorted(journal.published):
            in_journal.setdefault(req_id // entries, []).append(req_id)
        for number in sorted(segments.keys() | in_journal.keys()):
            segment = _Records()
            for where in segments.get(number, ()):
                data[where] = self._bytes(where)
                self._read(data, where, number * entries, segment)
            for req_id in sorted({*segment.published, *in_journal.get(number, ())}):
                if not journal.is_acked(req_id) and req_id not in segment.acked:
                    publish = segment.published.get(req_id) or journal.published[req_id]
                    found = self._found(name, req_id, publish, data)
                    if found is not None:
                        times = journal.times.get(req_id) or segment.times.get(req_id)
                        yield _with_time(found, times)
            for where in segments.get(number, ()):
                del data[where]

    def _bytes(self, where: str) -> bytes:
        return self._tree.read(where, FILE_BYTES_MAX) or b""

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

    def _read(self, data: dict[str, bytes], where: str, base: int, records: _Records) -> None:
        """All records of one file. `base`: the ReqId of slot 0."""
        is_journal = where.endswith(JOURNALS)
        head_bytes = (8 if is_journal else 2) + _FIELDS_BYTES
        events: dict[int, int] = {}
        raw = data[where]
        if is_journal and not any(raw[:64]) and not any(raw[4096 : 4096 + 64]):
            return  # flushed: the segments have what it held
        try:
            for line in dump_lines(raw):
                words = line.split()
                offset, verb = int(words[0]), words[1]
                if verb == "publish":
                    msg_id = b"" if words[9] == "-" else bytes.fromhex(words[9])
                    records.published[base + int(words[3])] = _Publish(
                        where,
                        offset + head_bytes,
                        words[2] == "persistent",
                        int(words[5]),
                        int(words[7]),
                        msg_id,
                        int(words[11]),
                    )
                elif verb == "ack":
                    records.acked.add(int(words[2]))
                elif verb == "time":
                    times = int(words[4]), int(words[6])
                    records.times[base + int(words[2])] = times
                elif verb == "event":
                    slot = int(words[2])
                    events[slot] = events.get(slot, 0) + 1
                    if events[slot] == 2:
                        records.acked.add(base + slot)
                elif verb == "purge":
                    records.purges.append(_purge(raw, offset))
                elif verb == "BAD" and not _is_tail(line):
                    self.tell(f"{where} at byte {offset}:{line.partition('BAD')[2]}")
        except qindex.FormatError:
            self.tell(f"{where}: its header is lost, and with it all of its records")

    def _found(
        self, name: str, req_id: int, publish: _Publish, data: dict[str, bytes]
    ) -> Found | None:
        if publish.msg_id:
            payload = self._stored(name, req_id, publish.msg_id)
            if payload is None:
                return None
        else:
            raw = data[publish.where]
            payload = raw[publish.offset : publish.offset + publish.embedded]
        if len(payload) < publish.size:
            self.tell(f"{printable(name)}: message {req_id} has a damaged record")
            return None
        split = len(payload) - publish.size
        expired = 0 < publish.expiry_us <= time.time() * 1e6
        return Found(
            name,
            req_id,
            "expired" if expired else "delivered",
            True,
            0,
            publish.persistent,
            publish.expiry_us,
            payload[:split],
            payload[split:],
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


def _is_tail(line: str) -> bool:
    """What a cut-off write leaves behind the last frame is no damage."""
    return "torn tail" in line


def _purge(raw: bytes, offset: int) -> tuple[int, set[int]]:
    """(all below are acked, but for these)"""
    length = int.from_bytes(raw[offset : offset + 4], "big") & 0xFFFFFFF
    numbers = [n for (n,) in _U64.iter_unpack(raw[offset + 8 : offset + 8 + length])]
    return numbers[0], set(numbers[1:])
