"""What `qindex top` sees: one look at a store after the other, each by a read-only open of its own.

A reader takes no lock and writes nothing, so the process that has the store open does not notice.
What a look does not show itself (rates, ages) follows from the journals, of which each look reads
what is new: they have every publish, deliver and ack, and now and then the clock.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import qindex
from qindex._core import ffi, lib
from qindex.brokers.tree import Findings, Tree
from qindex.buffers import PAYLOAD_ROOM
from qindex.look.messages import REQ_ID_MAX, Choice, Found, properties_of
from qindex.look.screen import Screen
from qindex.look.sources import StoreSource
from qindex.look.stores import (
    UNREADABLE,
    QueueGone,
    damage_count,
    nameless_queue_count,
    open_queue,
    open_to_look,
)
from qindex.native.records import LANE, JournalFile, Place, clock_of, journals_in

UNACKED_MAX: Final = 10_000  # counted, with dead letters among them, not more: "10,000+"
READY_MAX: Final = 256  # so many in a row that nobody had: nobody had those behind them
SECOND_US: Final = 1_000_000
BIRTHS_MAX: Final = 10_000
LOCKS: Final = Path("/proc/locks")
Made = TypeVar("Made")


@dataclass(slots=True)
class Rates:
    """Per second, since the look before. None: not known (yet)."""

    published: float | None = None
    delivered: float | None = None
    acked: float | None = None  # expired and purged ones, too


@dataclass(slots=True)
class QueueLook:
    """One queue. `unacked` are those handed out and not acked, also if they were given back since.

    oldest_seconds: the age of the message with the lowest ReqId that is no dead letter, which is
    the oldest if the queue has no priorities; at least that if oldest_is_older: nothing that is
    left says when.
    """

    name: str
    messages: int = 0
    unacked: int = 0
    delayed: int = 0
    dead: int = 0  # dead letters
    next_due: float | None = None  # of the delayed ones: seconds since 1970
    rates: Rates = field(default_factory=Rates)
    oldest_req_id: int | None = None
    oldest_seconds: float | None = None
    oldest_is_older: bool = False
    segments: int = 0
    disk_bytes: int = 0  # journals and segments; bodies of 4 KiB and more are the store's
    damage: str = ""
    stats: qindex.QueueStats | None = None  # None: it is beyond reading

    @property
    def ready(self) -> int:
        return self.messages - self.unacked - self.delayed - self.dead


@dataclass(slots=True)
class StoreLook:
    path: str
    seconds: float  # what this look took
    queues: list[QueueLook]
    message_files: int
    message_bytes: int
    disk_bytes: int
    free_bytes: int
    writer: int | None  # the process that has it open, if the system tells
    damage: int
    stats: qindex.StoreStats
    findings: list[qindex.Finding]
    nameless: int  # queues whose names are damaged

    @property
    def unclean(self) -> bool:
        """The last session is open now, or did not end with close()."""
        return self.stats.unclean_session == self.stats.session


class Birth(NamedTuple):
    """All before this ReqId were published by then; if not `told`, perhaps long before."""

    next_req_id: int
    clock_us: int
    told: bool


@dataclass(slots=True)
class _Track:
    """What is kept of a queue between two looks."""

    epoch: int = -1
    place: Place = field(default_factory=Place)
    at: float = 0.0
    messages: int = 0
    next_req_id: int | None = None  # of what was seen published
    births: list[Birth] = field(default_factory=list)


class Watch:
    """Looks at a store again and again. CommandError if there is none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tracks: dict[str, _Track] = {}

    def look(self) -> StoreLook:
        """Cost: as opening all queues, which reads their journals, and 2 µs per new record."""
        started = time.monotonic()
        with open_to_look(self._path) as store, closing(Tree(self._path, Findings())) as tree:
            queues = []
            for name in store.queues():
                with suppress(QueueGone):
                    queues.append(self._look_at(store, tree, name))
            stats = store.stats()
            findings = store.findings
            nameless = nameless_queue_count(store)
        self._tracks = {queue.name: self._tracks[queue.name] for queue in queues}
        file_system = os.statvfs(self._path)
        return StoreLook(
            path=self._path,
            seconds=time.monotonic() - started,
            queues=queues,
            message_files=stats.message_files,
            message_bytes=stats.message_bytes,
            disk_bytes=_bytes_in(Path(self._path, "messages")) + sum(q.disk_bytes for q in queues),
            free_bytes=file_system.f_bavail * file_system.f_frsize,
            writer=_writer_of(Path(self._path, "LOCK")),
            damage=max(damage_count(findings), sum(bool(queue.damage) for queue in queues)),
            stats=stats,
            findings=findings,
            nameless=nameless,
        )

    def messages(
        self, name: str, first: int, limit: int, make: Callable[[Found], Made]
    ) -> list[Made]:
        """What `make` makes of each message from a ReqId on: bodies are not kept. QueueGone."""
        with open_to_look(self._path) as store:
            found = StoreSource(store, Silent()).messages(name, Choice(first=first))
            return [make(message) for message in islice(found, limit)]

    def _look_at(self, store: qindex.Store, tree: Tree, name: str) -> QueueLook:
        folder = Path(store.path, store.queue_directory(name))
        look = QueueLook(name, disk_bytes=_bytes_in(folder))
        track = self._tracks.setdefault(name, _Track())
        try:
            queue = open_queue(store, name)
            look.stats = stats = queue.stats()
            look.messages = stats.ready + stats.unacked + stats.delayed + stats.dead
            look.dead = stats.dead
            look.delayed = stats.delayed
            look.next_due = stats.next_due
            look.segments = stats.segments
            if stats.epoch < track.epoch:  # deleted, and made anew
                track = self._tracks[name] = _Track()
            news = _Journals(track)
            news.read(tree, store.queue_directory(name), stats)
            look.rates = news.rates(look.messages)
            _look_at_first(store, queue, look, track, folder)
        except UNREADABLE as error:
            look.damage = str(error)
        return look


class Silent(Screen):
    """What is damaged is counted, and told by a check: the screen has no room for it."""

    def error(self, text: str) -> None:
        pass


# --- journals -----------------------------------------------------------------------------------


class _Journals:
    """Reads on in a queue's journals where the look before ended; the first reads what there is.

    A MARK says within some ms when what is before it was published; a journal's header, that what
    is in segments was there before it; and so does a look, of what it sees.
    """

    def __init__(self, track: _Track) -> None:
        self._track = track
        self._is_whole = True  # nothing was missed since the look before
        self._published = 0
        self._delivered = 0
        self._next_before = track.next_req_id

    def read(self, tree: Tree, folder: str, stats: qindex.QueueStats) -> None:
        track = self._track
        before, seen_us = track.epoch, time.time() * 1e6
        for journal in journals_in(tree, folder):
            if not track.epoch <= journal.epoch <= stats.epoch:
                continue  # read before; or newer than what this look shows
            if journal.epoch == track.epoch:
                journal.place = track.place
            self._is_whole &= before in (-1, journal.epoch)
            end = stats.journal_bytes if journal.epoch == stats.epoch else None
            self._read(journal, end, is_new=journal.epoch != track.epoch)
            if track.next_req_id is None:
                track.births = [Birth(REQ_ID_MAX, journal.created_us, False)]
            if not track.at:  # of a dead store, the last write
                seen_us = min(seen_us, _written_us(tree.path / journal.where))
            track.epoch, track.place = journal.epoch, journal.place
            before = journal.epoch + 1
        self._is_whole &= track.epoch == stats.epoch
        if track.next_req_id is not None:
            self._add_birth(track.next_req_id, int(seen_us), told=False)

    def _read(self, journal: JournalFile, end: int | None, *, is_new: bool) -> None:
        track = self._track
        data, found = journal.read(end)
        for record in found:
            if record.verb == "publish":
                self._published += 1
                if record.req_id >= LANE:
                    continue  # lane 0 has most messages, and its ReqIds follow the time
                if is_new:
                    self._add_birth(record.req_id, journal.created_us, told=False)
                    is_new = False
                track.next_req_id = record.req_id + 1
            elif record.verb == "deliver":
                self._delivered += 1
            elif record.verb in ("mark", "close") and track.next_req_id is not None:
                clock_us = clock_of(data, record)
                if clock_us:  # else no sync yet in its session
                    self._add_birth(track.next_req_id, clock_us, told=True)

    def _add_birth(self, next_req_id: int, clock_us: int, *, told: bool) -> None:
        """Of what a MARK says, one for each second at most."""
        births = self._track.births
        if births and births[-1].next_req_id == REQ_ID_MAX:
            births.clear()  # what was not known then is now
        if births and next_req_id <= births[-1].next_req_id:
            return
        last = births[-1] if births else None
        if last and last.told and clock_us // SECOND_US == last.clock_us // SECOND_US:
            births.pop()
            told = True
        births.append(Birth(next_req_id, clock_us, told))
        if len(births) > BIRTHS_MAX:
            del births[1::2]  # not the first: it says what is in segments

    def rates(self, messages: int) -> Rates:
        """What is left in the queue says what was acked; so do ReqIds, if records were missed."""
        track, now = self._track, time.monotonic()
        seconds, more = now - track.at, messages - track.messages
        is_first, track.at, track.messages = not track.at, now, messages
        if is_first:
            return Rates()
        published = self._published
        if not self._is_whole and self._next_before is not None:
            published = (track.next_req_id or 0) - self._next_before
        published = max(published, more)
        return Rates(
            published / seconds,
            self._delivered / seconds if self._is_whole else None,
            (published - more) / seconds,
        )


# --- the first messages -------------------------------------------------------------------------


def _look_at_first(
    store: qindex.Store, queue: qindex.Queue, look: QueueLook, track: _Track, folder: Path
) -> None:
    """How many are unacked, and how old the first one is. No body is read, nor what is behind."""
    raw = ffi.new("qi_message *")
    start = ready = dead = 0
    while look.unacked + dead < UNACKED_MAX:
        code = lib.qi_browse(queue._handle, start, False, raw, ffi.NULL, 0)
        if code < 0 and code != lib.QI_E_ROOM:
            break
        if look.oldest_req_id is None and not raw.dead:
            look.oldest_req_id = raw.req_id
            has_headers = raw.payload_size > raw.body_size and raw.payload_size <= PAYLOAD_ROOM
            _tell_age(store, look, track, folder, has_headers=has_headers)
        start = raw.req_id + 1
        if raw.dead:  # this says nothing about those behind it
            dead += 1
            continue
        handed_out = raw.flags & lib.QI_DELIVERED and not raw.flags & lib.QI_DELAYED
        look.unacked += bool(handed_out)
        ready = 0 if handed_out else ready + 1
        if ready == READY_MAX:  # the next lane
            start, ready = (raw.req_id // LANE + 1) * LANE, 0


def _tell_age(
    store: qindex.Store, look: QueueLook, track: _Track, folder: Path, *, has_headers: bool
) -> None:
    now_us = time.time() * 1e6
    req_id = look.oldest_req_id or 0
    place = bisect_right(track.births, req_id, key=lambda birth: birth.next_req_id)
    born_us, told = now_us, False
    if place < len(track.births):
        born_us, told = track.births[place].clock_us, track.births[place].told
    if place == 0 or req_id >= LANE:  # it is in a segment, which was not written since
        segment = folder / f"{req_id // store.stats().segment_entries}.idx"
        born_us = min(born_us, _written_us(segment))
    del track.births[: max(0, place - 1)]  # the queue will not need them again
    if has_headers:
        source = StoreSource(store, Silent())
        for message in source.messages(look.name, Choice(first=req_id, last=req_id)):
            published_us = _published_us(message)
            if published_us is not None:
                born_us, told = published_us, True
    look.oldest_seconds = max(0.0, (now_us - born_us) / 1e6)
    look.oldest_is_older = not told


def _published_us(message: Found) -> float | None:
    """When a broker or a publisher says that it was published: of what came from elsewhere."""
    headers = message.headers
    moment = properties_of(headers).get("timestamp")
    if isinstance(moment, datetime):
        return moment.timestamp() * 1e6
    nanoseconds = headers.get("timestamp_ns")
    return nanoseconds / 1e3 if isinstance(nanoseconds, int) else None


def _written_us(file: Path) -> float:
    """When it was last written, microseconds since 1970; without it: now."""
    try:
        return file.stat().st_mtime_ns / 1e3
    except OSError:
        return time.time() * 1e6


# --- the system ---------------------------------------------------------------------------------


def _bytes_in(folder: Path) -> int:
    """What the files of a directory take on the disk."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # gone since it was listed
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _writer_of(lock: Path) -> int | None:
    """The process that holds the store's lock; asking for the lock itself could disturb it."""
    try:
        file = lock.stat()
        place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
        for line in LOCKS.read_text().splitlines():
            words = line.split()
            if words[1:2] == ["FLOCK"] and words[5:6] == [place]:
                return int(words[4]) if int(words[4]) > 0 else None
    except (OSError, ValueError, IndexError):
        return None
    return None
