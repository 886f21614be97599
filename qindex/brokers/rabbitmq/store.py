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
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq import resync
from qindex.brokers.rabbitmq.pieces import Pieces, check
from qindex.brokers.rabbitmq.resync import Salvage
from qindex.brokers.tree import Findings, Source, Tree
from qindex.words import many

_ENTRY: Final = Struct(">Q16s").unpack_from
_HEAD_BYTES: Final = 24
_FILES_MAX: Final = lib.QI_RABBIT_FILES_MAX
_FILE_BYTES_MAX: Final = 1 << 44
_FILE_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.(rdq|rdt)")


class Place(NamedTuple):
    """Where the term of a stored message is."""

    file: str
    offset: int
    size: int


class MessageStore:
    """Where each stored message is: a row of 20 bytes for each, in C, sorted by its id.

    find() works once all files are read.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self.places = ffi.gc(lib.qi_rabbit_places_new(), lib.qi_rabbit_places_free)
        if not self.places:
            raise MemoryError

    def __len__(self) -> int:
        """How many messages; a copy is none."""
        return lib.qi_rabbit_places_count(self.places)

    @property
    def copies(self) -> int:
        """Entries whose message was met before."""
        return lib.qi_rabbit_places_entries(self.places) - len(self)

    def find(self, msg_id: bytes) -> Place | None:
        place = ffi.new("qi_rabbit_place *")
        if len(msg_id) != 16 or not lib.qi_rabbit_places_find(self.places, msg_id, place):
            return None
        return Place(self.files[place.file], place.offset, place.size)

    def copies_of(self, msg_id: bytes) -> Iterator[Place]:
        """Every place of the message, before finish()."""
        row, place = 0, ffi.new("qi_rabbit_place *")
        while row := lib.qi_rabbit_places_next(self.places, msg_id, row, place):
            yield Place(self.files[place.file], place.offset, place.size)

    def unwanted(self) -> tuple[int, int]:
        """Messages that no queue refers to, and the bytes of their terms; see qi_rabbit_count()."""
        size = ffi.new("uint64_t *")
        return lib.qi_rabbit_places_unwanted(self.places, size), size[0]

    def unmark(self) -> None:
        """No queue refers to any message, until they are counted again."""
        lib.qi_rabbit_places_unmark(self.places)

    def places_unwanted(self) -> Iterator[Place]:
        """Each message that no queue refers to, in no order."""
        row, place = 0, ffi.new("qi_rabbit_place *")
        while row := lib.qi_rabbit_places_next_unwanted(self.places, row, place):
            yield Place(self.files[place.file], place.offset, place.size)

    def scan(self, piece: Any) -> None:
        """The entries in a piece of the newest file."""
        check(lib.qi_rabbit_store_scan(self.places, piece, len(self.files) - 1))

    def add(self, msg_id: bytes, offset: int, size: int) -> None:
        """One more entry of the newest file."""
        place = ffi.new("qi_rabbit_place *", [offset, len(self.files) - 1, min(size, 0xFFFFFFFF)])
        check(lib.qi_rabbit_places_add(self.places, msg_id, place))

    def finish(self) -> None:
        check(lib.qi_rabbit_places_sort(self.places))


def read_store(tree: Tree, folder: str, findings: Findings) -> MessageStore:
    """Finds every message in the folder. Linear in the number of messages, not in their size."""
    store = _read_files(tree, folder, findings)
    store.finish()
    return store


def read_copies(tree: Tree, folder: str, msg_id: bytes, findings: Findings) -> list[Place]:
    """Every place of one message, at the cost of read_store()."""
    store = _read_files(tree, folder, findings)
    return list(store.copies_of(msg_id))


def _read_files(tree: Tree, folder: str, findings: Findings) -> MessageStore:
    store = MessageStore()
    try:
        names = [name for name in tree.files(folder) if _FILE_NAME.fullmatch(name)]
    except OSError as error:
        findings.damage(
            "missing", folder, 0, f"the message store cannot be listed: {error.strerror}"
        )
        return store
    if len(names) > _FILES_MAX:
        report = f"{len(names)} message files, more than {_FILES_MAX}: the rest is not read"
        findings.damage("too many", folder, 0, report)
    # A leftover of a compaction comes last: what it has twice is whole in the other file.
    for name in sorted(names, key=lambda n: (n[-3:], int(n[:-4])))[:_FILES_MAX]:
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
    return store


def _read_file(source: Source, store: MessageStore, findings: Findings) -> None:
    if source.size > _FILE_BYTES_MAX:
        report = f"{source.size} bytes, more than {_FILE_BYTES_MAX}: the rest is not read"
        findings.damage("too long", source.where, _FILE_BYTES_MAX, report)
        source.size = _FILE_BYTES_MAX
    salvage = Salvage(source, resync.MESSAGE_FILE)
    pieces = Pieces(source)
    pos = _read_entries(pieces, 0, store)
    while pos < source.size:
        pos = _read_entries(pieces, _way_on(salvage, pos, store, findings), store)


def _read_entries(pieces: Pieces, base: int, store: MessageStore) -> int:
    """Reads until an entry makes no sense, or to the end of the file: where."""
    for piece in pieces.walk(base):
        store.scan(piece)
        if piece.pos or piece.bad:
            continue
        # The entry goes beyond the piece: take a bigger one, or look at its last byte only.
        head = bytes(pieces.head(_HEAD_BYTES))
        size, msg_id = _ENTRY(head)
        start, end = piece.offset + _HEAD_BYTES, piece.offset + 9 + size
        if pieces.grow(9 + size):
            continue
        if pieces.source.read(end - 1, 1) != b"\xff":
            return int(piece.offset)
        store.add(msg_id, start, size - 16)
        piece.pos = 9 + size
    return pieces.offset


def _way_on(salvage: Salvage, pos: int, store: MessageStore, findings: Findings) -> int:
    """Where to go on, behind the bytes at `pos`, which are no valid entry."""
    source = salvage.source
    zeros_end = source.zeros_end(pos)
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
            store.add(msg_id, start, end - start)
            return end + 1
    return _next_entry(salvage, pos + 1, pos, findings)


def _next_entry(salvage: Salvage, start: int, bad: int, findings: Findings) -> int:
    """The next place from `start` on that looks like an entry; `bad` is where sense ended."""
    source = salvage.source
    found = salvage.next_anchor(start)
    if found is not None:
        if found > bad:
            text = f"{many(found - bad, 'byte makes', 'bytes make')} no sense: skipped"
            findings.damage("entries lost", source.where, bad, text)
        return found
    rest = source.size - bad
    if rest < salvage.layout.anchor_bytes_max or salvage.is_anchor(bad):
        findings.note(
            "torn tail", source.where, bad, f"the last {many(rest, 'byte is', 'bytes are')} cut"
        )
    else:
        findings.damage(
            "entries lost",
            source.where,
            bad,
            f"the last {many(rest, 'byte makes', 'bytes make')} no sense",
        )
    return source.size
