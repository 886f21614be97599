"""RabbitMQ's message store: the N.rdq files that all queues of a virtual host share.

::

    entry   size:64 | msg_id:16 B | term: size - 16 B | 0xFF

An entry is valid if and only if: 1. its size is at least 18; 2. it ends within the file; 3. its
last byte is 0xFF. Nothing says whether a message is still wanted: only the indexes do. The same
message may stand in several places; all copies are equal. A compaction that was cut short leaves
N.rdt beside N.rdq, with messages that may be in no other file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from qindex.formats import rabbitmq_salvage
from qindex.formats.foreign import BLOCK_BYTES_MAX, Findings, Source, Tree
from qindex.formats.rabbitmq_salvage import Salvage

_ENTRY: Final = Struct(">Q16s").unpack_from
_HEAD_BYTES: Final = 24
_ENTRY_BYTES_MIN: Final = 18
_BLOCK_FIRST: Final = 1 << 12
_MARKER: Final = 0xFF
_FILE_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.(rdq|rdt)")


class Place(NamedTuple):
    """Where the term of a stored message is."""

    file: str
    offset: int
    size: int


@dataclass(slots=True)
class MessageStore:
    files: list[str] = field(default_factory=list)
    places: dict[bytes, Place] = field(default_factory=dict)
    entries: int = 0
    term_bytes: int = 0
    """Of the entries in `places`."""

    @property
    def copies(self) -> int:
        """Entries whose message was met before."""
        return self.entries - len(self.places)

    def remember(self, msg_id: bytes, place: Place) -> None:
        self.entries += 1
        if msg_id not in self.places:
            self.places[msg_id] = place
            self.term_bytes += place.size


class Copies(MessageStore):
    """Every place of one message, instead of one place of every message."""

    def __init__(self, msg_id: bytes) -> None:
        super().__init__()
        self.msg_id = msg_id
        self.found: list[Place] = []

    def remember(self, msg_id: bytes, place: Place) -> None:
        if msg_id == self.msg_id:
            self.found.append(place)


def read_store(tree: Tree, folder: str, findings: Findings) -> MessageStore:
    """Finds every message in the folder. Linear in the number of messages, not in their size."""
    store = MessageStore()
    read_store_into(store, tree, folder, findings)
    return store


def read_store_into(store: MessageStore, tree: Tree, folder: str, findings: Findings) -> None:
    """Every entry of every file, one remember() each."""
    try:
        names = [name for name in tree.files(folder) if _FILE_NAME.fullmatch(name)]
    except OSError as error:
        findings.damage(
            "missing", folder, 0, f"the message store cannot be listed: {error.strerror}"
        )
        return
    # A leftover of a compaction comes last: what it has twice is whole in the other file.
    for name in sorted(names, key=lambda n: (n[-3:], int(n[:-4]))):
        where = f"{folder}/{name}"
        source = tree.try_open(where)
        if source is None:
            continue
        store.files.append(where)
        if name.endswith(".rdt"):
            findings.note(
                "compaction", where, 0, "a compaction was cut short; its file is read too"
            )
        with source:
            _read_file(source, store, findings)


def _read_file(source: Source, store: MessageStore, findings: Findings) -> None:
    salvage = Salvage(source, rabbitmq_salvage.MESSAGE_FILE)
    pos = _read_entries(source, 0, store)
    while pos < source.size:
        pos = _read_entries(source, _way_on(salvage, pos, store, findings), store)


def _read_entries(source: Source, base: int, store: MessageStore) -> int:
    """Reads until an entry makes no sense, or to the end of the file: where."""
    block_bytes = _BLOCK_FIRST
    bad = False
    while base < source.size and not bad:
        block = source.read(base, block_bytes)
        block_bytes = min(block_bytes * 2, BLOCK_BYTES_MAX)
        left = source.size - base
        pos = 0
        while pos + _HEAD_BYTES <= len(block):
            size, msg_id = _ENTRY(block, pos)
            end = pos + 9 + size
            bad = size < _ENTRY_BYTES_MIN or end > left
            if bad:
                break
            if end <= len(block):
                bad = block[end - 1] != _MARKER
            else:
                # The body goes beyond the block: look at its last byte, and read on behind it.
                bad = source.read(base + end - 1, 1) != b"\xff"
                block_bytes = _BLOCK_FIRST
            if bad:
                break
            store.remember(msg_id, Place(source.where, base + pos + _HEAD_BYTES, size - 16))
            pos = end
        base += pos
        bad = bad or len(block) == left  # a head that the end of the file cuts
    return base


def _way_on(salvage: Salvage, pos: int, store: MessageStore, findings: Findings) -> int:
    """Where to go on, behind the bytes at `pos`, which are no valid entry."""
    source = salvage.source
    zeros_end = salvage.zeros_end(pos)
    if zeros_end - pos >= 8 or zeros_end == source.size:
        findings.note("hole", source.where, pos, f"{zeros_end - pos} zero bytes")
        if zeros_end == source.size:
            return zeros_end
        # The first bytes of the next entry's size are zeros too.
        return _next_entry(salvage, max(pos + 1, zeros_end - 7), zeros_end, findings)
    head = source.read(pos, _HEAD_BYTES)
    if len(head) == _HEAD_BYTES:
        size, msg_id = _ENTRY(head)
        end = salvage.term_end(pos + _HEAD_BYTES)
        mark = source.read(end, 1) if end is not None else b""
        if end is not None and mark and (end == pos + 8 + size or mark == b"\xff"):
            text = f"an entry of {size} bytes ends elsewhere, or not with 0xFF; its term is whole"
            findings.damage("entry", source.where, pos, text)
            start = pos + _HEAD_BYTES
            store.remember(msg_id, Place(source.where, start, end - start))
            return end + 1
    return _next_entry(salvage, pos + 1, pos, findings)


def _next_entry(salvage: Salvage, start: int, bad: int, findings: Findings) -> int:
    """The next place from `start` on that looks like an entry; `bad` is where sense ended."""
    source = salvage.source
    found = salvage.next_anchor(start)
    if found is not None:
        if found > bad:
            text = f"{found - bad} bytes make no sense and are skipped"
            findings.damage("entries lost", source.where, bad, text)
        return found
    rest = source.size - bad
    if rest < salvage.layout.anchor_bytes_max or salvage.is_anchor(bad):
        findings.note("torn tail", source.where, bad, f"the last {rest} bytes are cut")
    else:
        findings.damage("entries lost", source.where, bad, f"the last {rest} bytes make no sense")
    return source.size
