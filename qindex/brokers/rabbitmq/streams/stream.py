"""One stream's directory: its messages in the order of their places, and an account of them.

A stream is given as a queue whose order is that of the offsets. Retention removes whole segments
from the front, so a stream that begins at an offset above 0 has lost nothing.

What cannot be known is said, not guessed: records behind damage whose number the offsets tell are
counted as lost; a message in a chunk whose checksum does not match is given and marked
``uncertain``, since one flipped bit would else cost every message of its chunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from qindex.brokers.amqp import called
from qindex.brokers.rabbitmq.message import is_stranger, storable
from qindex.brokers.rabbitmq.streams.chunks import USER, Chunk, scan_segment
from qindex.brokers.rabbitmq.streams.entries import EntryError, entries_of
from qindex.brokers.rabbitmq.streams.message import body_bytes, read_entry
from qindex.brokers.rabbitmq.streams.missing import last_of_index, losses_at_the_ends
from qindex.brokers.rabbitmq.streams.tracking import Tracking, is_tracking
from qindex.brokers.reader import Account
from qindex.brokers.tree import Findings, Source, Tree
from qindex.field_table import FieldValue
from qindex.words import many

_NAME: Final = re.compile(r"[0-9]{20}\.(?:segment|index)")
UNCERTAIN: Final = "checksum of its chunk"
_DECLARED: Final = re.compile(r"_([0-9]{19})\Z")  # nanoseconds since 1970
_CLOCKS_APART_MS: Final = 10_000  # of the node that made the name and of the one that wrote
_OFFSET_MAX: Final = 1 << 62  # a file whose name says more is no part of a stream


@dataclass(slots=True)
class StreamMessage:
    """A message of a stream. `file` and `position` tell where its entry begins."""

    stream_offset: int
    timestamp_ms: int  # of its chunk: when the broker wrote it
    exchange: str
    routing_keys: list[str]
    properties: bytes  # a raw property list: qindex.brokers.amqp.decode_properties()
    body: bytes
    file: str
    offset: int  # in the file, bytes
    is_uncertain: bool = False
    redelivered: bool = False  # a stream does not know who has read what
    expiry_us: int | None = None  # no message of a stream expires by itself

    @property
    def seq(self) -> int:
        return self.stream_offset

    @property
    def headers(self) -> dict[str, Any]:
        headers: dict[str, Any] = {
            "exchange": storable(self.exchange),
            "routing_keys": [storable(key) for key in self.routing_keys],
            "properties": self.properties,
            "stream_offset": self.stream_offset,
            "timestamp_ms": self.timestamp_ms,
        }
        if self.is_uncertain:
            headers["uncertain"] = UNCERTAIN
        return headers


@dataclass(slots=True)
class Stream:
    """A stream as a queue. read() fills the account, the tracking and the findings."""

    name: str
    group: str  # the virtual host
    where: str  # its directory
    tree: Tree
    log: Findings
    arguments: dict[str, FieldValue] = field(default_factory=dict)
    account: Account = field(default_factory=Account)
    tracking: Tracking = field(default_factory=Tracking)
    segments: int = 0
    file_bytes: int = 0
    first_offset: int | None = None
    next_offset: int = 0
    unindexed: int = 0  # messages at the end that no index names: a node cuts them off
    unreadable: int = 0
    durable: bool | None = True
    vanishes: bool = False
    is_named: bool = False  # a table says that this is its name
    keeps_all: bool = False  # nothing is defined that lets a node remove its old segments
    _looked_at: str = ""  # the file whose messages were last compared with the name

    def read(self) -> None:
        """Reads every chunk once, for the counts and the findings. Memory: one chunk."""
        account = self.account = Account(
            gone={},
            lost={"in damaged chunks": 0, "in missing chunks": 0},
            marks={"uncertain": 0},
        )
        self.tracking, self.segments, self.file_bytes = Tracking(), 0, 0
        self.first_offset, self.next_offset, self.unindexed = None, 0, 0
        for chunk, data in self._chunks(counts=True):
            if chunk.kind == USER:
                self._count(chunk, data)
        self._count_missing_segments()
        account.lost = {cause: count for cause, count in account.lost.items() if count}
        account.found = account.live + sum(account.lost.values())
        if not account.marks["uncertain"]:
            del account.marks["uncertain"]

    def _count(self, chunk: Chunk, data: bytes) -> None:
        given, size = 0, 0
        first = ""
        for entry in entries_of(data):
            if isinstance(entry, EntryError):
                self._report(chunk, entry)
            elif given < chunk.records:
                if not chunk.is_whole and not given:
                    first = self._called(chunk, entry.data)
                if chunk.is_whole and not given:
                    self._look_whose(chunk, entry.data)
                given += 1
                size += body_bytes(entry.data)
        self.account.live += given
        self.account.live_body_bytes += size
        self.account.lost["in damaged chunks"] += chunk.records - given
        if chunk.is_whole and given < chunk.records:
            text = f"{many(given, 'message')} in a chunk of {chunk.records}"
            self.log.damage("message lost", chunk.file, chunk.position, text)
        if not chunk.is_whole:
            self.account.marks["uncertain"] += given
            self._report_chunk(chunk, given, first)

    def _look_whose(self, chunk: Chunk, data: bytes) -> None:
        """What says that a file is another stream's: no file of a stream holds its name."""
        if chunk.file == self._looked_at:
            return
        self._looked_at, why = chunk.file, ""
        content = read_entry(data, chunk.first_offset)
        if self.is_named and is_stranger(content.exchange, content.routing_keys, self.name):
            why = f"was sent to the queue {content.routing_keys[0]}, by the default exchange"
        made = _DECLARED.search(self.where)
        if made and chunk.timestamp_ms < int(made[1]) // 1_000_000 - _CLOCKS_APART_MS:
            why = "is older than the stream, by the time in the name of its directory"
        if why:
            text = f"the message of offset {chunk.first_offset} {why}: it may be another stream's"
            self.log.suspected("another queue's", chunk.file, chunk.position, text)

    def _called(self, chunk: Chunk, data: bytes) -> str:
        return called("", read_entry(data, chunk.first_offset).properties)

    def _report_chunk(self, chunk: Chunk, given: int, first: str) -> None:
        what = "the file ends within this chunk" if chunk.is_cut else "wrong checksum"
        text = (
            f"{what}: of its {chunk.records} messages (offsets {chunk.first_offset}{first} to"
            f" {chunk.end_offset - 1}) {given} are given, marked as uncertain"
        )
        self.log.damage("chunk damaged", chunk.file, chunk.position, text)

    def _report(self, chunk: Chunk, error: EntryError) -> None:
        text = f"in the chunk of offset {chunk.first_offset}: {error}"
        self.log.damage("message lost", chunk.file, chunk.data_at + error.position, text)

    def messages(self) -> Iterator[StreamMessage]:
        """All messages that can be read, in the order of their places."""
        return self.messages_between(0, (1 << 63) - 1)

    def messages_between(self, first: int, last: int) -> Iterator[StreamMessage]:
        """Those with an offset from `first` to `last`. Cost: reads all chunks, decodes these."""
        self.unreadable = 0
        for chunk, data in self._chunks(counts=False):
            if chunk.kind != USER or chunk.end_offset <= first or chunk.first_offset > last:
                continue
            offset = chunk.first_offset
            for entry in entries_of(data):
                if isinstance(entry, EntryError):
                    self._report(chunk, entry)
                    lost = entry.records
                    lost = chunk.end_offset - offset if lost is None else lost
                    self.unreadable += lost
                    offset += lost
                    continue
                if offset >= chunk.end_offset:
                    break
                if first <= offset <= last:
                    yield self._message(chunk, offset, entry.data, entry.position)
                offset += 1

    def _message(self, chunk: Chunk, offset: int, data: bytes, position: int) -> StreamMessage:
        content = read_entry(data, offset)
        return StreamMessage(
            stream_offset=offset,
            timestamp_ms=chunk.timestamp_ms,
            exchange=content.exchange,
            # Publishers of the stream protocol name no key. The broker gives the stream's name.
            routing_keys=content.routing_keys or [self.name],
            properties=content.properties,
            body=content.body,
            file=chunk.file,
            offset=chunk.data_at + position,
            is_uncertain=not chunk.is_whole,
        )

    def _chunks(self, *, counts: bool) -> Iterator[tuple[Chunk, bytes]]:
        expected: int | None = None
        files = self._segment_files()
        starts = [min(int(file.rpartition("/")[2][:20]), _OFFSET_MAX) for file in files]
        for file, start, ends_at in zip(files, starts, [*starts, None][1:], strict=True):
            source = self.tree.try_open(file)
            if source is None:
                continue
            with source:
                self.segments += counts
                self.file_bytes += source.size * counts
                last: Chunk | None = None
                named = self._last_in_index(file) if counts else None
                is_there = named is None
                for found in scan_segment(source, start, self.log, ends_at):
                    chunk = self._with_kind(source, found)
                    if counts:
                        self._follow(chunk, expected)
                        self.tracking.read(source, chunk)
                    expected, last = chunk.end_offset, chunk
                    if named is not None and chunk.position == named[1]:
                        is_there = (chunk.first_offset, chunk.timestamp_ms) == (named[0], named[2])
                    is_read = chunk.kind == USER
                    if named is not None and ends_at is None and chunk.position > named[1]:
                        self.unindexed += chunk.records * is_read
                    yield chunk, source.read(chunk.data_at, chunk.data_bytes) if is_read else b""
                if named is not None:
                    self._compare_with_index(file, last, *named[:2], is_there=is_there)

    def _with_kind(self, source: Source, chunk: Chunk) -> Chunk:
        """The type in a header has no checksum: messages must not pass for tracking."""
        if chunk.kind == USER or not chunk.is_whole or is_tracking(source, chunk):
            return chunk
        text = "the header says tracking, but the data hold none: they are read as messages"
        self.log.damage("chunk header", chunk.file, chunk.position, text)
        return replace(chunk, kind=USER)

    def _segment_files(self) -> list[str]:
        """By their first offset. An index without its segment tells that one is missing."""
        names = [name for name in self.tree.files(self.where) if _NAME.fullmatch(name)]
        segments = {name[:20] for name in names if name.endswith(".segment")}
        for stem in sorted({name[:20] for name in names} - segments):
            text = f"the segment that begins at offset {int(stem)} is missing, its index is there"
            self.log.damage("segment missing", f"{self.where}/{stem}.segment", 0, text)
        return [f"{self.where}/{stem}.segment" for stem in sorted(segments)]

    def _last_in_index(self, file: str) -> tuple[int, int, int] | None:
        """Offset, position and time in ms of the last chunk that the segment's index names."""
        last = last_of_index(self.tree, file.replace(".segment", ".index"))
        return None if last is None else (last.offset, last.position, last.timestamp_ms)

    def _count_missing_segments(self) -> None:
        """Of segments at either end. Those in the middle are counted where offsets go on."""
        names = self.tree.files(self.where)
        for loss in losses_at_the_ends(self.tree, self.where, names, self.next_offset):
            self.account.lost["in missing chunks"] += loss.messages
            self.account.lost_is_known = False
            self.log.damage("offsets missing", f"{self.where}/{loss.file}", 0, loss.text)
        lost = self.account.lost["in missing chunks"]
        if self.keeps_all and (self.first_offset or 0) > 0 and not lost:
            text = f"the stream begins at offset {self.first_offset}, but nothing that is defined"
            text += " lets a node remove its older segments: they may be missing"
            self.log.suspected("offsets missing", self.where, 0, text)

    def _compare_with_index(
        self, file: str, last: Chunk | None, offset: int, position: int, *, is_there: bool
    ) -> None:
        """An index that names a chunk behind the last one: the segment was cut between chunks.

        The other way round, a node that starts cuts off what its newest index does not name.
        """
        ends = 0 if last is None else last.position
        if position > ends and (last is None or offset >= last.end_offset):
            text = (
                f"the index names a chunk of offset {offset} at byte {position}, which is not"
                " here: the file was cut, or the node died while it wrote that chunk"
            )
            self.log.suspected("segment cut", file, ends, text)
            behind = 0 if last is None else last.end_offset
            self.account.lost["in missing chunks"] += max(0, offset - behind)
            self.account.lost_is_known = False
        elif not is_there:
            text = f"the index names a chunk of offset {offset} at byte {position}, where another"
            text += " stands, or none: perhaps one of both files is another stream's"
            self.log.suspected("another queue's", file, position, text)
        if self.unindexed:
            text = f"{many(self.unindexed, 'message')} behind offset {offset}: the index does not"
            text += " name them, and perhaps no publisher got a confirm: a node that starts cuts"
            self.log.note("not in the index", file, position, f"{text} them off; they are given")

    def _follow(self, chunk: Chunk, expected: int | None) -> None:
        """Compares a chunk's offset with the end of the one before it."""
        if self.first_offset is None:
            self.first_offset = chunk.first_offset
            expected = int(chunk.file.rpartition("/")[2][:20])
        if expected is not None and chunk.first_offset > expected:
            missing = chunk.first_offset - expected
            self.account.lost["in missing chunks"] += missing
            text = (
                f"offsets {expected} to {chunk.first_offset - 1} are missing: at most {missing}"
                " messages, fewer if the stream's own records were among them"
            )
            self.account.lost_is_known = False
            self.log.damage("offsets missing", chunk.file, chunk.position, text)
        elif expected is not None and chunk.first_offset < expected:
            text = (
                f"offsets begin again at {chunk.first_offset}, {expected} was next: the node went"
                " on in this file after it had lost its index files; both generations are given,"
                " in the order of their places"
            )
            self.log.damage("offsets again", chunk.file, chunk.position, text)
        self.next_offset = max(self.next_offset, chunk.end_offset)

    def facts(self) -> dict[str, Any]:
        """What only a stream has, as plain values."""
        return {
            "queue": self.name,
            "vhost": self.group,
            "directory": self.where,
            "segments": self.segments,
            "bytes": self.file_bytes,
            "first_offset": self.first_offset,
            "next_offset": self.next_offset,
            "unindexed": self.unindexed,
            "consumer_offsets": dict(sorted(self.tracking.offsets.items())),
            "publisher_sequences": dict(sorted(self.tracking.sequences.items())),
        }
