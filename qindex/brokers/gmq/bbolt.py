"""bbolt's file: a B+tree of pages, of which gmq keeps one tree ("bucket") for each topic.

::

    page      id:64 flags:16 count:16 overflow:32 | elements | keys and values     little-endian
    meta      magic:32 version:32 page_size:32 flags:32 root:64 sequence:64 freelist:64 end:64
              txid:64 checksum:64                       pages 0 and 1; FNV-1a of the 56 bytes before
    branch    pos:32 key_size:32 page:64                pos counts from the element's own start
    leaf      flags:32 pos:32 key_size:32 value_size:32
    bucket    root:64 sequence:64 [page]                a leaf's value if flags = 1; in root's place
                                                        0 and the page itself if it is small

The valid meta page with the higher txid is taken. Only the meta pages have a checksum; a page is
believed if and only if: 1. it has its own number and is a branch or a leaf; 2. nothing that was
read before refers to it; 3. one of its keys, at least, is what the page above says. Of its elements
those count that lie within it. What is not believed costs what is below it, and is told.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from qindex.brokers.tree import Findings, Source

_PAGE: Final = Struct("<QHHI")
_META: Final = Struct("<IIIIQQQQQQ")
_BRANCH: Final = Struct("<IIQ")
_LEAF: Final = Struct("<IIII")
_BUCKET: Final = Struct("<QQ")
_ELEMENT_BYTES: Final = 16
_MAGIC: Final = 0xED0CDAED
_VERSION: Final = 2
_IS_BRANCH, _IS_LEAF = 1, 2
_IS_BUCKET: Final = 1
_PAGE_SIZES: Final = tuple(1024 << n for n in range(7))
_DEPTH_MAX: Final = 32


class Bucket(NamedTuple):
    name: bytes
    root: int
    inline: bytes  # the page itself if root is 0
    offset: int


class Pair(NamedTuple):
    """A key and its value, which stands at `offset` in the file."""

    key: bytes
    value: bytes
    offset: int
    is_bucket: bool


class _Child(NamedTuple):
    """A page, from which key on, and up to below which; None: no bound."""

    key: bytes
    page: int
    end: bytes | None


class _Place(NamedTuple):
    """Of an element: from the start of its page."""

    key: int
    value: int
    end: int
    page: int = 0
    is_bucket: bool = False


class Bolt:
    """`txid` is 0 if there is no valid meta page; then there are no buckets.

    Pages that lie over each other could be read without end, so `bytes_left` says how much may be
    read before the reader gives up: at first four times the file.
    """

    def __init__(self, source: Source, findings: Findings) -> None:
        self.source = source
        self.findings = findings
        self.txid = 0
        self.page_size = _PAGE_SIZES[2]
        self._root = self._page_count = 0
        self.bytes_left = 4 * source.size
        self._owners = array("I")  # of each page: the root from which it was reached first
        self._choose_meta()

    # --- meta pages -----------------------------------------------------------------------------

    def _choose_meta(self) -> None:
        first = self._read_meta(0)
        sizes = _PAGE_SIZES if first is None else (first[2],)
        second = None
        for size in sizes:
            second = second or self._read_meta(size)
        metas = [meta for meta in (first, second) if meta is not None]
        for number, meta in enumerate((first, second)):
            if meta is None:
                text = f"meta page {number} is not valid"
                text += ": the other one is taken" if metas else ", nor is the other"
                self._say(number * self.page_size, text)
        if metas:
            newest = max(metas, key=lambda meta: meta[8])
            self.page_size, self._root, self.txid = newest[2], newest[4], newest[8]
            self._page_count = min(newest[7], self.source.size // self.page_size)
            self._owners = array("I", bytes(4 * self._page_count))
            if newest[7] > self._page_count:
                text = f"the file ends here, {newest[7]} pages were written"
                self._say(self.source.size, text)

    def _read_meta(self, page_offset: int) -> tuple[int, ...] | None:
        raw = self.source.read(page_offset + _PAGE.size, _META.size)
        if len(raw) < _META.size:
            return None
        meta: tuple[int, ...] = _META.unpack(raw)
        if meta[:2] != (_MAGIC, _VERSION) or meta[2] not in _PAGE_SIZES:
            return None
        if page_offset not in (0, meta[2]):
            return None
        return meta if meta[9] == fnv1a(raw[:-8]) else None

    # --- the tree -------------------------------------------------------------------------------

    def buckets(self) -> Iterator[Bucket]:
        """The named trees, sorted by name."""
        roots = {self._root}
        for key, value, offset, is_bucket in self._pairs(self._root):
            root = _BUCKET.unpack_from(value)[0] if len(value) >= _BUCKET.size else -1
            if not is_bucket or root in roots:
                self._say(offset, "no bucket, where only buckets are")
                continue
            roots.add(root or -1)
            yield Bucket(key, root, b"" if root else value[_BUCKET.size :], offset)

    def pairs(self, bucket: Bucket) -> Iterator[Pair]:
        """What is in a bucket, sorted by key. Memory holds one page of each level."""
        if bucket.root:
            yield from self._pairs(bucket.root)
            return
        page, offset = bucket.inline, bucket.offset + _BUCKET.size
        for element in _elements(self._places(page, len(page), offset), page, offset, _IS_LEAF):
            if isinstance(element, Pair):
                yield element

    def _pairs(self, root: int) -> Iterator[Pair]:
        if not self.txid:
            return
        seen = bytearray(self._page_count // 8 + 1)  # one bit for each page
        levels = [iter([_Child(b"", root, None)])]
        while levels:
            child = next(levels[-1], None)
            if child is None:
                levels.pop()
                continue
            below: list[_Child] = []
            for element in self._page(child, root, seen):
                if isinstance(element, Pair):
                    yield element
                else:
                    below.append(element)
            if len(levels) < _DEPTH_MAX:
                levels.append(iter(_bounded(below, child)))
            elif below:
                self._say(child.page * self.page_size, f"more than {_DEPTH_MAX} levels of pages")

    def _page(self, child: _Child, root: int, seen: bytearray) -> list[Pair | _Child]:
        offset = child.page * self.page_size
        if not 2 <= child.page < self._page_count:
            self._say(offset, f"page {child.page} is not in the file: what is below it is lost")
            return []
        number, flags, count, overflow = _PAGE.unpack(self.source.read(offset, _PAGE.size))
        if number != child.page or flags not in (_IS_BRANCH, _IS_LEAF):
            self._say(offset, f"page {child.page} is none of a tree: what is below it is lost")
            return []
        if seen[number // 8] & 1 << number % 8 or self._owners[number] not in (0, root):
            self._say(offset, f"page {child.page} is used twice: it counts where it was met first")
            return []
        seen[number // 8] |= 1 << number % 8
        self._owners[number] = root
        size = min(overflow + 1, self._page_count - number) * self.page_size
        places = self._places(
            self.source.read(offset, min(size, _PAGE.size + count * _ELEMENT_BYTES)), size, offset
        )
        used = max((place.end for place in places), default=0)
        self.bytes_left -= used
        if self.bytes_left < 0:
            self._say(offset, "the pages overlap, again and again: what is below is lost")
            return []
        elements = _elements(places, self.source.read(offset, used), offset, flags)
        return elements if self._are_meant(elements, child) else []

    def _are_meant(self, elements: list[Pair | _Child], child: _Child) -> bool:
        """Are these, to judge by their keys, what the page above says?"""
        offset = child.page * self.page_size
        keys = [element.key for element in elements]
        fit = sum(child.key <= key and (child.end is None or key < child.end) for key in keys)
        if keys and not fit:
            self._say(offset, f"page {child.page} is not the one meant: what is below it is lost")
            return False
        if fit < len(keys) or any(one >= other for one, other in pairwise(keys)):
            self._say(offset, f"keys of page {child.page} are not in their order")
        return True

    def _places(self, head: bytes, size: int, offset: int) -> list[_Place]:
        """Where the elements are, of a page of `size` bytes that begins with `head`.

        They do not overlap in a page that is well; here they may not be more than it has bytes.
        """
        if len(head) < _PAGE.size:
            self._say(offset, "a page is cut: what is in it is lost")
            return []
        _, flags, count, _ = _PAGE.unpack_from(head)
        places = []
        begin = _PAGE.size + count * _ELEMENT_BYTES
        room = size - _PAGE.size
        for at in range(_PAGE.size, min(begin, len(head) - _ELEMENT_BYTES + 1), _ELEMENT_BYTES):
            page = kind = value_size = 0
            if flags == _IS_BRANCH:
                pos, key_size, page = _BRANCH.unpack_from(head, at)
            else:
                kind, pos, key_size, value_size = _LEAF.unpack_from(head, at)
            place = _Place(at + pos, at + pos + key_size, at + pos + key_size + value_size)
            if begin <= place.key and place.end <= size and place.end - place.key <= room:
                room -= place.end - place.key
                places.append(place._replace(page=page, is_bucket=kind == _IS_BUCKET))
        if len(places) < count:
            text = f"{count - len(places)} of {count} elements are not within their page: lost"
            self._say(offset, text)
        return places

    def _say(self, offset: int, text: str) -> None:
        self.findings.damage("page", self.source.where, offset, text)


def _elements(places: list[_Place], data: bytes, offset: int, flags: int) -> list[Pair | _Child]:
    """The elements of the page that begins at `offset` with `data`."""
    if flags == _IS_BRANCH:
        return [_Child(data[place.key : place.value], place.page, None) for place in places]
    return [
        Pair(
            data[place.key : place.value],
            data[place.value : place.end],
            offset + place.value,
            place.is_bucket,
        )
        for place in places
    ]


def _bounded(children: list[_Child], parent: _Child) -> list[_Child]:
    """A child ends where the next one begins; the first may begin where its parent does."""
    begins = [parent.key, *(child.key for child in children[1:])]
    ends = [*begins[1:], parent.end]
    pages = [child.page for child in children]
    return [_Child(*found) for found in zip(begins, pages, ends, strict=False)]


def fnv1a(data: bytes) -> int:
    """The 64 bit FNV-1a hash, for a few bytes."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value
