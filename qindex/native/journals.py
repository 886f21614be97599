"""Which journals of a queue count, where each ends, and what its MANIFEST says.

FORMAT.rst, section 7, in Python: it is found out as the engine does, but by other code, so that
`qindex replay --verify` can compare the two. Before the journals that the engine reads come those
that a store with `keep_history` has kept, as far as they follow each other.

The engine's journals are read into memory at once, so that a writer may go on; of the kept ones
one is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from qindex.brokers.tree import Findings, Tree
from qindex.native.commits import logs_of
from qindex.native.folders import FILE_BYTES_MAX, JOURNALS, PAST, read_meta
from qindex.native.frames import (
    CLOSE,
    EXTENDED,
    FRAME_BYTES,
    HEADER_BYTES,
    JOURNAL_START,
    MANIFEST,
    MARK,
    MOMENT,
    SKIPPED,
    CannotReplay,
    Frame,
    Frames,
    Header,
    Manifest,
    journal_header,
    kind_of,
    manifest_of,
    mark_of,
)
from qindex.words import many

_TRIES_MAX: Final = 20


@dataclass(slots=True)
class Journal:
    """`end` is where its frames end; of a kept one it is what the next journal says."""

    where: str
    epoch: int
    is_past: bool
    end: int = 0
    frames: Frames | None = None
    manifest: Manifest | None = None  # the last one
    mark: int = 0
    covered: int = 0  # a commit log has bytes of it up to here, which says as much as a MARK


class NativeJournals:
    """The journals of a queue, the oldest first. `folder` is relative to the tree."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self.tree = tree
        self.folder = folder
        self.findings: Findings = tree.findings
        meta = read_meta(tree, folder)
        if meta is None:
            raise CannotReplay("its queue.meta is damaged: qindex salvage reads what is there")
        self.identity = meta.identity
        self.all: list[Journal] = []
        current, old = self._engines()
        self.all = [old, current] if old else [current]
        self.all = self._kept(self.all[0].epoch) + self.all

    def _engines(self) -> tuple[Journal, Journal | None]:
        """The current journal, and the one before it if that is not flushed."""
        pair = self._read_pair()
        pair.sort(key=lambda journal: journal.epoch, reverse=True)
        if not pair:
            raise CannotReplay("both journals are damaged: qindex salvage reads its segments")
        for journal in pair:
            self._scan(journal)
        current, old = pair[0], pair[1] if len(pair) == 2 else None
        if current.manifest is None and old and old.epoch + 1 == current.epoch:
            current, old = old, None  # a rotation that never reached the disk
        if current.manifest is None:
            raise CannotReplay("its MANIFEST is damaged: qindex salvage reads what is there")
        if current.manifest.flushed_epoch + 1 >= current.epoch:
            return current, None
        if old is None or old.epoch + 1 != current.epoch:
            raise CannotReplay("the journal of the epoch before is missing or damaged")
        self._trim(old, current, current.manifest.previous_tail)
        return current, old

    def _read_pair(self) -> list[Journal]:
        """Those with a valid header, both of one moment."""
        logs = logs_of(self.tree, self.folder)
        for _ in range(_TRIES_MAX):
            found, heads = [], []
            for name in JOURNALS:
                where = f"{self.folder}/{name}"
                data = self.tree.read(where, FILE_BYTES_MAX) or b""
                heads.append(data[:HEADER_BYTES])
                header = journal_header(data)
                if header is None or header.is_past or header.identity != self.identity:
                    continue
                if header.epoch % 2 == JOURNALS.index(name):
                    data, covered = logs.lay(data)
                    frames = Frames(data, header)
                    journal = Journal(where, header.epoch, False, frames=frames)
                    journal.mark = journal.covered = covered
                    found.append(journal)
            if heads == [self._head(name) for name in JOURNALS]:
                return found
        raise CannotReplay("its journals change too fast: try again, or work on a copy")

    def _head(self, name: str) -> bytes:
        source = self.tree.try_open(f"{self.folder}/{name}")
        if source is None:
            return b""
        with source:
            return source.read(0, HEADER_BYTES)

    def _scan(self, journal: Journal) -> None:
        """Where it ends, and what its last MANIFEST and its MARKs say."""
        frames = self.frames_of(journal)
        journal.end = len(frames.data)
        end = JOURNAL_START
        for frame in self.walk(journal, JOURNAL_START, tell=True):
            end = frame.end
            if frame.type == MANIFEST:
                journal.manifest = manifest_of(frames.payload(frame)) or journal.manifest
            elif frame.type in (MARK, CLOSE):
                journal.mark = max(journal.mark, mark_of(frames.payload(frame)))
        journal.end = end

    def _trim(self, old: Journal, current: Journal, tail: int) -> None:
        """If the old journal lost its tail, what stands in the current one came later."""
        if old.end >= tail:
            return
        if current.mark:
            text = f"{tail - old.end} durable bytes at its end are gone"
            self.findings.damage("cut", old.where, old.end, text)
            return
        manifests = (f for f in self.walk(current, JOURNAL_START) if f.type == MANIFEST)
        current.end = max(frame.end for frame in manifests)

    def _kept(self, below: int) -> list[Journal]:
        """The journals of history that lead up to an epoch, without gaps, the oldest first."""
        names = self.tree.files(self.folder)
        epochs = {int(m[1]) for name in names if (m := PAST.fullmatch(name)) and not m[2]}
        kept: list[Journal] = []
        while below - 1 in epochs:
            below -= 1
            kept.insert(0, Journal(f"{self.folder}/past.{below}.jif", below, True))
        return kept

    def frames_of(self, journal: Journal) -> Frames:
        """Its frames; of a kept journal only as long as it is the last that was asked for."""
        if journal.frames is not None:
            return journal.frames
        for other in self.all:
            if other.is_past:
                other.frames = None
        data = self.tree.read(journal.where, FILE_BYTES_MAX)
        header = journal_header(data or b"")
        if not data or header is None:  # the name says all that is needed
            header = Header(self.identity, 0, journal.epoch, True)
        if not data or header.epoch != journal.epoch or header.identity != self.identity:
            raise CannotReplay(f"{journal.where} is damaged or gone: try again")
        journal.frames = Frames(data, header)
        journal.end = self._end_of_kept(journal, len(data))
        return journal.frames

    def _end_of_kept(self, journal: Journal, size: int) -> int:
        """All below that was durable once; how long it was the next one's first frame says."""
        place = self.all.index(journal) + 1
        behind = self.all[place]
        data = behind.frames.data if behind.frames else self._beginning(behind.where)
        frames = Frames(data, Header(self.identity, 0, behind.epoch, behind.is_past))
        frame = frames.at(JOURNAL_START)
        manifest = manifest_of(frames.payload(frame)) if frame else None
        return manifest.previous_tail if manifest and manifest.previous_tail else size

    def _beginning(self, where: str) -> bytes:
        source = self.tree.try_open(where)
        if source is None:
            return b""
        with source:
            length = int.from_bytes(source.read(JOURNAL_START, 4), "big") & 0xFFFFFFF
            return source.read(0, JOURNAL_START + FRAME_BYTES + length)

    def _unknown(self, journal: Journal, frame: Frame, tell: bool) -> None:
        """One that is not known here. CannotReplay if it may not be skipped."""
        kind = kind_of(self.frames_of(journal).payload(frame))
        if kind == MOMENT:
            return
        text = f"a frame of kind {kind} at byte {frame.offset} of {journal.where}"
        newer = "only a newer version of qindex understands"
        if kind < SKIPPED:
            raise CannotReplay(f"{text} is one that {newer}: use a matching release")
        if tell or journal.is_past:
            told = f"a frame of kind {kind}, which {newer}, was skipped"
            self.findings.note("unknown", journal.where, frame.offset, told)

    def walk(self, journal: Journal, offset: int, *, tell: bool = False) -> Iterator[Frame]:
        """Valid frames up to the end; behind damage it goes on, with a finding if it may `tell`."""
        frames = self.frames_of(journal)
        durable = journal.end if journal.is_past else -1
        while offset < journal.end:
            frame = frames.at(offset)
            if frame is not None:
                if frame.type == EXTENDED:
                    self._unknown(journal, frame, tell)
                yield frame
                offset = frame.end
                continue
            if durable < 0:
                durable = max(journal.covered, frames.durable_below(offset))
            if durable <= offset:
                if tell and any(frames.data[offset : offset + 4096]):
                    text = "a torn tail: a power cut leaves one, and confirmed nothing of it"
                    self.findings.note("torn tail", journal.where, offset, text)
                return
            behind = frames.find(offset + 1)
            if behind is None and not any(frames.data[offset : offset + FRAME_BYTES]):
                return  # recovery cut it here, before its flush
            if tell or journal.is_past:
                size = (behind.offset if behind else journal.end) - offset
                of = "among durable records"
                text = many(size, f"byte {of} is damaged", f"bytes {of} are damaged")
                self.findings.damage("frame", journal.where, offset, text)
            if behind is None:
                return
            offset = behind.offset
