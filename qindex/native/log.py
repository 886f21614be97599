"""A queue of a store as a log to replay: its journals on the segments that were there before them.

The journals are those of journals.py, kept ones too as long as the segment files are there
that the oldest one begins with. Segments are read when a record touches them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from qindex.brokers.tree import Tree
from qindex.native.folders import FILE_BYTES_MAX, PAST
from qindex.native.frames import (
    COUNT_MASK,
    ENTRIES,
    EXTENDED,
    FIELDS_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    JOURNAL_START,
    MANIFEST,
    NAME_OF,
    RECORDS,
    SEGMENT_START,
    SESSION,
    SIDE,
    TIME,
    CannotReplay,
    Fields,
    Frames,
    Header,
    Manifest,
    ManifestSegment,
    Purge,
    entries_of,
    fields_of,
    manifest_of,
    purge_of,
    records_of,
    segment_header,
    session_of,
    side_data,
)
from qindex.native.journals import (
    Journal,
    NativeJournals,
)
from qindex.native.moments import moment_of, moments_of, published_by
from qindex.native.replay import (
    ACKED,
    DELIVERED,
    DELIVERY,
    PUBLISHED,
    TRANSIENT,
    Place,
    Record,
    Segment,
    Slots,
    live_in,
)
from qindex.words import many

_VERBS: Final = ("publish", "publish", "deliver", "ack", "time", "side")


class NativeLog:
    """As replay.Log. `folder` is the queue's, relative to the tree."""

    def __init__(self, tree: Tree, folder: str, entries_per_segment: int) -> None:
        self.tree = tree
        self.folder = folder
        self.slots = entries_per_segment
        self.findings = tree.findings
        self.journals = NativeJournals(tree, folder)
        self.uncounted: dict[int, int] = {}
        self._moments: list[tuple[int, int, int]] = []  # journal, place, time from there
        self._past = [(int(m[1]), int(m[2]), name) for name in tree.files(folder)
                      if (m := PAST.fullmatch(name)) and m[2]]  # fmt: skip
        manifest = self._begin()
        self.floor = manifest.floor
        self._named = {segment.number: segment for segment in manifest.segments}
        self.segments = {s.number: self._told(s) for s in manifest.segments}

    # --- where it begins -----------------------------------------------------------------------

    def _begin(self) -> Manifest:
        """The MANIFEST that says which segments were there before the first record.

        Kept journals that no longer can be a beginning are left out.
        """
        journals = self.journals.all
        while journals[0].is_past:
            manifest = self._first_flushed(journals[0])
            if manifest is not None and all(map(self._has_file, manifest.segments)):
                return manifest
            journal = journals.pop(0)
            text = "history begins behind this journal: segment files that it needs are gone"
            self.findings.note("history", journal.where, 0, text)
        manifest = journals[-1].manifest
        if manifest is None:
            raise CannotReplay("its MANIFEST is damaged: qindex salvage reads what is there")
        return manifest

    def _first_flushed(self, journal: Journal) -> Manifest | None:
        """In a journal: the segments when the one before it was flushed."""
        try:
            frames = self.journals.frames_of(journal)
        except CannotReplay:
            return None
        for frame in self.journals.walk(journal, JOURNAL_START):
            if frame.type == MANIFEST:
                manifest = manifest_of(frames.payload(frame))
                if manifest and manifest.flushed_epoch == journal.epoch - 1:
                    return manifest
        return None

    def _told(self, segment: ManifestSegment) -> Segment:
        if segment.number * self.slots & COUNT_MASK < self.floor:
            return Segment(segment.unacked - segment.transient, 0)
        return Segment(segment.unacked, segment.transient)

    # --- records ------------------------------------------------------------------------------

    def records(self, place: Place) -> Iterator[Record]:
        for index in range(place[0], len(self.journals.all)):
            journal = self.journals.all[index]
            frames = self.journals.frames_of(journal)
            first, inside = place[1:] if index == place[0] else (0, 0)
            moment, end = self._moment_at(index, first), first or JOURNAL_START
            for frame in self.journals.walk(journal, end):
                if frame.offset != end:  # what is damaged may have said another
                    moment = 0
                    self._note_moment(index, frame.offset, moment)
                payload, end = frames.payload(frame), frame.end
                if frame.type in (EXTENDED, SESSION):
                    told = moment_of(payload) if frame.type == EXTENDED else 0
                    moment = moment if told is None else told
                    self._note_moment(index, frame.offset, moment)
                if frame.type != RECORDS:
                    where = (index, frame.offset, 0)
                    yield Record(where, frame.offset, NAME_OF[frame.type], -1, payload)
                    continue
                start, moved = frame.offset + FRAME_BYTES, published_by(payload)
                for at, kind, req_id in records_of(payload, inside):
                    data = b""
                    if kind < 2:
                        data = payload[at + 8 : at + 8 + FIELDS_BYTES]
                    elif kind == TIME:
                        data = payload[at + 16 : at + 24]
                    elif kind == SIDE:  # with its kind and size in front
                        data = side_data(payload, at)
                    where = (index, frame.offset, at)
                    when = moved.get(req_id, moment) if kind < 2 else 0
                    yield Record(where, start + at, _VERBS[kind], req_id, data, kind == 1, when)
                inside = 0

    def _note_moment(self, index: int, offset: int, moment: int) -> None:
        """Records are read from places again that were passed: from the start they come first."""
        if not self._moments or (index, offset) > self._moments[-1][:2]:
            self._moments.append((index, offset, moment))

    def _moment_at(self, index: int, offset: int) -> int:
        """What the last frame before `offset` says of when messages are published."""
        at = bisect_right(self._moments, (index, offset, -1)) - 1
        return self._moments[at][2] if at >= 0 and self._moments[at][0] == index else 0

    def file_of(self, record: Record) -> str:
        return self.journals.all[record.place[0]].where

    def purge_of(self, record: Record) -> Purge:
        return purge_of(record.data)

    def floor_of(self, record: Record) -> int:
        session = session_of(record.data)
        return session[1] if session else 0

    def embedded_of(self, record: Record) -> bytes:
        """The payload that stands in a publish."""
        frames = self.journals.frames_of(self.journals.all[record.place[0]])
        start = record.offset + 8 + FIELDS_BYTES
        return frames.data[start : start + fields_of(record.data).embedded]

    # --- segments ------------------------------------------------------------------------------

    def _candidates(self, segment: ManifestSegment) -> list[str]:
        """Where the file may be that a MANIFEST named: in its place, or in history."""
        name = f"{segment.number}.{'alt' if segment.alt else 'idx'}"
        return [name] + [past for epoch, number, past in self._past
                         if epoch >= self.journals.all[0].epoch and number == segment.number
                         and past.endswith(name[-4:])]  # fmt: skip

    def _is_file(self, name: str, segment: ManifestSegment) -> bool:
        source = self.tree.try_open(f"{self.folder}/{name}")
        if source is None:
            return False
        with source:
            header = segment_header(source.read(0, HEADER_BYTES))
            wanted = (self.journals.identity, segment.number, segment.epoch)
            return bool(header and header[:3] == wanted and source.size >= segment.length)

    def _has_file(self, segment: ManifestSegment) -> bool:
        return segment.unacked == 0 or self._file(segment) is not None

    def _file(self, segment: ManifestSegment) -> str | None:
        names = self._candidates(segment)
        return next((name for name in names if self._is_file(name, segment)), None)

    def _entries(self, number: int) -> Iterator[tuple[bytes, int, int, bool, int, int]]:
        """(payload, slot, offset of a publish's fields in it or -1, persistent, count, when)"""
        segment = self._named.get(number)
        if segment is None or segment.unacked == 0:
            return
        name = self._file(segment) or self._candidates(segment)[0]
        where = f"{self.folder}/{name}"
        data = (self.tree.read(where, FILE_BYTES_MAX) or b"")[: segment.length]
        if len(data) < segment.length:
            text = f"{len(data)} of {segment.length} bytes are there; if a process has the store"
            self.findings.damage("short", where, len(data), f"{text} open, try again")
        frames = Frames(data, Header(self.journals.identity, number, segment.epoch, False))
        offset = SEGMENT_START
        moments: list[tuple[int, int]] = []  # of the batch
        while offset < len(data):
            frame = frames.at(offset)
            if frame is None:
                moments = []
                frame = frames.find(offset + 1)
                size = (frame.offset if frame else len(data)) - offset
                self.findings.damage(
                    "frame", where, offset, f"{many(size, 'byte is', 'bytes are')} damaged"
                )
                if frame is None:
                    return
            if frame.type == ENTRIES:
                payload = frames.payload(frame)
                for entry in entries_of(payload):
                    if entry.slot < self.slots:
                        yield payload, *entry, _when(moments, entry.slot)
            else:
                is_extended = frame.type == EXTENDED
                moments = moments_of(frames.payload(frame)) if is_extended else []
            offset = frame.end

    def read_segment(self, number: int) -> Slots:
        slots = array("I", bytes(4 * self.slots))
        below_floor = number * self.slots & COUNT_MASK < self.floor
        for _, slot, fields_at, persistent, count, _ in self._entries(number):
            bits = slots[slot]
            if fields_at >= 0:
                bits |= PUBLISHED if persistent else PUBLISHED | TRANSIENT
                if not persistent and below_floor:
                    bits |= ACKED
            elif count < -1:
                self.uncounted[number * self.slots + slot] = -2 - count
            elif count >= 0:
                bits = bits % DELIVERY | count * DELIVERY
            elif bits & DELIVERED:
                bits |= ACKED
            else:
                bits = (bits | DELIVERED) + DELIVERY
            slots[slot] = bits
        named = self._named.get(number)
        if named is not None:
            live, told = live_in(slots), self._told(named).live
            if live != told and named.unacked:
                counted = many(told, "message")
                there = many(live, "was", "were")
                text = f"segment {number}: {counted} should be here, {there} found"
                self.findings.damage("count", self.folder, 0, text)
        return slots

    def publishes_of(self, number: int) -> Iterator[tuple[int, Fields, bytes, int]]:
        """(ReqId, fields, embedded payload, when) of what a segment held at step 0."""
        for payload, slot, at, _, _, when in self._entries(number):
            if at >= 0:
                fields = fields_of(payload[at : at + FIELDS_BYTES])
                start = at + FIELDS_BYTES
                embedded = payload[start : start + fields.embedded]
                yield number * self.slots + slot, fields, embedded, when


def _when(moments: list[tuple[int, int]], slot: int) -> int:
    """The time of the last row that begins at this slot or before; 0: there is none."""
    at = bisect_right(moments, slot, key=lambda row: row[0]) - 1
    return moments[at][1] if at >= 0 else 0
