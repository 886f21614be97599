"""Segments that are gone: what their index files, and the names of the others, still tell.

::

    "OSII" | version:u32 = 1 | {first_offset:u64 timestamp_ms:i64 epoch:u64 position:u32 type:u8}*

A node makes the index before the segment, and removes both. So an index without its segment, or a
place in it that the segment does not have, tells what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from qindex.brokers.tree import Tree
from qindex.words import many

_HEAD_BYTES: Final = 8
_RECORD: Final = Struct(">QqQIB")
_STEM: Final = 20  # digits of a file's name
_OFFSET_MAX: Final = 1 << 62


class Place(NamedTuple):
    """A chunk as an index has it."""

    offset: int
    timestamp_ms: int
    epoch: int
    position: int
    kind: int


class Loss(NamedTuple):
    """Offsets that no segment has. `messages`: at least, where the last chunk's size is lost."""

    file: str
    messages: int
    text: str


def last_of_index(tree: Tree, file: str) -> Place | None:
    """The last chunk that an index names; None if it is not there, or names none."""
    index = tree.try_open(file)
    if index is None:
        return None
    with index:
        count = (index.size - _HEAD_BYTES) // _RECORD.size
        raw = index.read(_HEAD_BYTES + (count - 1) * _RECORD.size, _RECORD.size)
    if count < 1 or len(raw) < _RECORD.size:
        return None
    return Place._make(_RECORD.unpack(raw))


def losses_at_the_ends(
    tree: Tree, where: str, names: Sequence[str], next_offset: int
) -> Iterator[Loss]:
    """What was in front of the first segment that is here, and behind `next_offset`."""
    stems = sorted({name[:_STEM] for name in names if name.endswith(".index")})
    here = sorted(int(name[:_STEM]) for name in names if name.endswith(".segment"))
    gone = [stem for stem in stems if int(stem) not in here and int(stem) < _OFFSET_MAX]
    before = [stem for stem in gone if here and int(stem) < here[0]]
    behind = [stem for stem in gone if not here or int(stem) > here[-1]]
    if before:
        first, count = int(before[0]), here[0] - int(before[0])
        text = f"offsets {first} to {here[0] - 1} are missing: at most {many(count, 'message')},"
        yield Loss(f"{before[0]}.segment", count, f"{text} as the index of their segment tells")
    if behind:
        last = last_of_index(tree, f"{where}/{behind[-1]}.index")
        first = next_offset if here else int(behind[0])
        end = int(behind[-1]) if last is None else max(last.offset + 1, int(behind[-1]))
        count = max(0, min(end, _OFFSET_MAX) - first)
        text = f"offsets {first} to {end - 1} are missing, and what was in the last chunk behind"
        text += " them: that is as far as the index of their segment tells"
        yield Loss(f"{behind[-1]}.segment", count, text)
