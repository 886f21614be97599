"""The way on behind a record of a write-ahead log that is not valid.

Three things are tried, in this order:

1. The record's length is right, since what follows its end is a valid record, zeros, or the end of
   the file. Then only its data, its checksum, its index or its term is wrong. The last two can be
   told by its server's record before, and the checksum proves it.
2. Behind it, at any byte, is a record whose checksum matches.
3. There is none: the log ends here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qindex.words import many

if TYPE_CHECKING:
    from qindex.brokers.rabbitmq.ra.wal import Head, Record, WalFile

# Of a record that does not name its server, and of one that does: what they have in common.
_RECORD: Final = re.compile(
    rb"(?=[\x40\xc0].{10}\0\0.{6}\0\0.{6}\x83|[\0\x80]..\0[\x01-\xff][!-~])", re.DOTALL
)
_UID: Final = re.compile(rb"[0-9A-Za-z_=-]{1,255}")
_HEAD_BYTES_MAX: Final = 512
_ZEROS: Final = 13  # as many as Ra looks at
_NOT_ZERO: Final = re.compile(rb"[^\0]")


class Resync:
    """Finds valid records in one file. The bytes that it reads in all are limited."""

    def __init__(self, wal: WalFile) -> None:
        self.wal = wal
        self._budget = 4 * wal.source.size + (64 << 20)

    def way_on(self, pos: int) -> tuple[Record | None, int]:
        """What the record at `pos` may be all the same, and where to go on."""
        wal, source = self.wal, self.wal.source
        if not any(wal.load(pos, _ZEROS)):
            return None, self._behind_zeros(pos)
        head = wal.head_at(pos)
        if head is not None and head.end <= source.size and self._leads_on(head):
            return self._damaged(pos, head), head.end
        found = self._find(pos + 1)
        if found is None:
            self._torn(pos, head)
            return None, source.size
        counted = many(found - pos, "byte is", "bytes are")
        text = f"{counted} no record; the next valid one is at byte {found}"
        wal.findings.damage("wal", source.where, pos, text)
        return None, found

    def _behind_zeros(self, pos: int) -> int:
        """A file that was made in advance ends in zeros. Zeros in the middle are damage."""
        source = self.wal.source
        for start, block in source.blocks(pos):
            other = _NOT_ZERO.search(block)
            if other:
                end = start + other.start()
                break
        else:
            return source.size
        found = self._find(max(pos, end - _HEAD_BYTES_MAX))
        text = f"zeros to byte {end}, where RabbitMQ takes the log to end"
        if found is None:
            text += "; no valid record is behind them"
        else:
            text += f"; the next valid record is at byte {found}"
        self.wal.findings.damage("wal", source.where, pos, text)
        return source.size if found is None else found

    def _leads_on(self, head: Head) -> bool:
        """Whether the file goes on sensibly where the record ends."""
        wal = self.wal
        self._budget -= head.size
        after = wal.load(head.end, _ZEROS)
        if not any(after):  # the end of the file, too
            return self._is_known(head)
        following = wal.head_at(head.end)
        if following is None or following.end > wal.source.size:
            return False
        self._budget -= following.size
        return self._budget > 0 and self._looks_right(following) and wal.is_valid(following)

    def _is_known(self, head: Head) -> bool:
        if head.uid is not None:
            return _UID.fullmatch(head.uid) is not None
        return head.ref in self.wal.ids

    def _looks_right(self, head: Head) -> bool:
        named = head.uid is None or _UID.fullmatch(head.uid) is not None
        return named and head.index < 1 << 48 and head.term < 1 << 48 and head.checksum != 0

    def _damaged(self, pos: int, head: Head) -> Record:
        """A record whose length is right, with the index and the term that fit best."""
        from qindex.brokers.rabbitmq.ra.wal import Record

        wal = self.wal
        index, term, sound = head.index, head.term, False
        before = wal.last(head.ref) if head.uid is None else None
        if before is not None:
            expected = before[0] + 1
            for guess in ((expected, term), (index, before[1]), (expected, before[1])):
                if wal.adler(head, *guess) == head.checksum:
                    index, term, sound = *guess, True
                    break
            else:
                if index != expected or term < before[1]:
                    index, term = expected, before[1]
        text = "the checksum does not match"
        name = (head.uid or wal.uid(head.ref)).decode("latin-1")
        if sound:
            text += f", but does with index {index} and term {term} of {name}"
        else:
            text += f": entry {index} of {name} is doubtful"
        wal.findings.damage("wal", wal.source.where, pos, text)
        wal.note_last(head._replace(index=index, term=term))
        uid = wal.uid(head.ref)
        return Record(uid, index, term, head.offset, head.size, sound, head.restarts)

    def _torn(self, pos: int, head: Head | None) -> None:
        wal = self.wal
        if head is not None and self._is_known(head) and head.index < 1 << 48:
            name = (head.uid or wal.uid(head.ref)).decode("latin-1")
            text = f"the log is cut inside entry {head.index} of {name}, which is lost"
        else:
            text = f"the last {many(wal.source.size - pos, 'byte is', 'bytes are')} no whole record"
        wal.findings.damage("torn tail", wal.source.where, pos, text)

    def _find(self, start: int) -> int | None:
        """Where the first valid record at or behind `start` begins."""
        wal = self.wal
        done = start
        for base, block in wal.source.blocks(start, overlap=_HEAD_BYTES_MAX):
            for match in _RECORD.finditer(block):
                pos = base + match.start()
                if pos < done:
                    continue  # it was looked at in the block before
                if self._budget <= 0:
                    text = "too much damage: the rest of the file is not searched"
                    wal.findings.damage("wal", wal.source.where, pos, text)
                    return None
                head = wal.head_at(pos)
                if head is None or head.end > wal.source.size or not self._looks_right(head):
                    continue
                self._budget -= head.size + 64
                if wal.is_valid(head):
                    return pos
            done = max(done, base + len(block) - _HEAD_BYTES_MAX)
        return None
