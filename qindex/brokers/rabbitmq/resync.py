"""Finding the way on behind a damaged record of RabbitMQ's version 1 index or message store.

The files have no checksums and no record lengths, so a reader that met a record that makes no sense
has two ways on, tried in this order:

1. The length is wrong. Most records end with an Erlang term, and a term knows where it ends: if the
   one before (or in) the bad record ends elsewhere than its length says, go on at its true end.
2. The record is lost. Go on at the next place that looks like a record beyond chance (an *anchor*):
   a publish or a body has dozens of bits that are always the same, of acks three in a row have.

Both cost at most a few readings of the file: an anchor is searched from where the last search
ended, and the bytes spent on decoding terms have a budget.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from qindex.brokers.rabbitmq import erlang
from qindex.brokers.tree import Severity, Source
from qindex.words import many

_TERM_BYTES_TRIED: Final = (1 << 14, 1 << 20)

# What every publish has behind its first field: an id without a run of zeros, an expiry that is
# none or from 2001 to 2286, a size below 512 MiB, no term or one that begins as terms do.
_PUBLISH: Final = (
    rb"(?!.{0,12}\0{4}).{16}(?:\0{8}|\0[\x03-\x23].{6})[\0-\x1f].{3}(?:\0{4}|\0.{3}\x83[hi])"
)


class Layout(NamedTuple):
    """What differs between the files."""

    head_bytes: int  # from a record's start to its term
    zeros: Severity  # what zeros at the end of the file are
    anchor: re.Pattern[bytes]
    anchor_bytes_max: int


JOURNAL: Final = Layout(
    40,
    "suspected",  # a power cut leaves them where records were not synced
    re.compile(rb"[\0\x40]\0\0.{5}" + _PUBLISH + rb"|(?:[\x80\xc0]\0\0.{5}){3}", re.DOTALL),
    42,
)
SEGMENT: Final = Layout(34, "damage", re.compile(rb"[\x80-\xff]." + _PUBLISH, re.DOTALL), 36)
MESSAGE_FILE: Final = Layout(24, "note", re.compile(rb"\0{4}.{4}.{16}\x83[hi]", re.DOTALL), 26)


class Publish(NamedTuple):
    """A publish whose length may be wrong."""

    term_offset: int
    term_bytes: int


class WayOn(NamedTuple):
    """Where to go on, what was found out about the two publishes, and what to report.

    `last_bytes` and `here_bytes` are the right term_bytes; None means: nothing was found out about
    the last publish, and: at the bad place there is no publish to keep.
    """

    pos: int
    kind: str
    text: str
    severity: Severity = "damage"
    last_bytes: int | None = None
    here_bytes: int | None = None


class Salvage:
    """The ways on in one file."""

    def __init__(self, source: Source, layout: Layout) -> None:
        self.source = source
        self.layout = layout
        self._budget_bytes = 4 * source.size + sum(_TERM_BYTES_TRIED)

    def term_end(self, offset: int) -> int | None:
        """Where the term at `offset` ends, if a whole one is there."""
        for tried in _TERM_BYTES_TRIED:
            data = self.source.read(offset, tried)
            self._budget_bytes -= len(data)
            if not data.startswith(b"\x83") or self._budget_bytes < 0:
                return None
            try:
                return offset + erlang.end_of(data)
            except erlang.TermCut:
                if len(data) < tried:
                    return None
            except erlang.ErlangError:
                return None
        return None

    def is_anchor(self, offset: int) -> bool:
        head = self.source.read(offset, self.layout.anchor_bytes_max)
        return self.layout.anchor.match(head) is not None

    def next_anchor(self, offset: int) -> int | None:
        """The first anchor at or behind `offset`."""
        overlap = self.layout.anchor_bytes_max - 1
        for start, block in self.source.blocks(offset, overlap=overlap):
            found = self.layout.anchor.search(block)
            if found:
                return start + found.start()
        return None

    def way_on(
        self, pos: int, last: Publish | None, here: Publish | None, here_is_bare: bool
    ) -> WayOn:
        """Behind the record at `pos`, which makes no sense.

        `last` is the publish before it, if it has a term; `here` is the one that seems to stand at
        `pos`, and `here_is_bare` tells that what follows its head looks like the next record.
        """
        search_from = pos + 1
        if last is not None:
            end = self.term_end(last.term_offset)
            if end is not None and end != last.term_offset + last.term_bytes:
                text = f"a publish says {last.term_bytes} bytes, its term ends after others"
                return WayOn(end, "length", text, last_bytes=end - last.term_offset)
            if end is None:
                search_from = last.term_offset + 1
        zeros_end = self.source.zeros_end(pos)
        if zeros_end == self.source.size:
            text = f"{zeros_end - pos:,} zero bytes at the end, where records were"
            return WayOn(zeros_end, "zero tail", text, self.layout.zeros)
        if zeros_end - pos > self.layout.head_bytes:
            here, search_from = None, max(search_from, zeros_end - 8)
        if here is not None:
            text = f"a publish says that {here.term_bytes} bytes follow, which cannot be"
            end = self.term_end(here.term_offset)
            if end is not None:
                return WayOn(end, "length", text, here_bytes=end - here.term_offset)
            if here_is_bare:
                return WayOn(here.term_offset, "length", text, here_bytes=0)
        return self._skip(pos, search_from, last, here)

    def _skip(self, pos: int, start: int, last: Publish | None, here: Publish | None) -> WayOn:
        anchor = self.next_anchor(start)
        if anchor is None:
            rest = self.source.size - pos
            if here is not None or rest < self.layout.head_bytes:
                counted = many(rest, "byte is", "bytes are")
                text = f"the last {counted} the start of a record: it was not written to"
                text += " its end when the node was killed, or the file is cut"
                return WayOn(self.source.size, "torn tail", text, "suspected")
            text = f"the last {many(rest, 'byte makes', 'bytes make')} no sense"
            return WayOn(self.source.size, "records lost", text)
        if last is not None and start == last.term_offset + 1:
            text = f"a record makes no sense and the one before is damaged; go on at {anchor}"
            inside = min(last.term_bytes, anchor - last.term_offset)
            return WayOn(anchor, "records lost", text, last_bytes=inside)
        text = f"{many(anchor - pos, 'byte makes', 'bytes make')} no sense: skipped"
        return WayOn(anchor, "records lost", text)
