"""The order in which a map of Erlang with more than 32 whole numbers as its keys is walked.

Such a map is a tree: the four lowest bits of a key's hash choose the branch at the root, the next
four the branch below it, and so on. The hash belongs to the Erlang machine, not to the log. This
one was compared with Erlang 25.2 on x86-64. Erlang may use another hash if it was built for
processors with instructions for checksums, which the usual packages are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SMALL_MAP: Final = 32  # a map up to this size is walked in the order of its keys

_BITS: Final = 0xFFFFFFFF
_SALT: Final = 3432918353
_CONSTANT: Final = 0x9E3779B9
_SMALL_INTEGER: Final = 0xF  # the tag in a word's low four bits
_BRANCH_BITS: Final = 4
_LEVELS: Final = 8


def map_order(keys: Iterable[int]) -> list[int]:
    """The keys, none of them twice, as a map of all of them is walked. Cost: n log n."""
    found = sorted(set(keys))
    return found if len(found) <= SMALL_MAP else sorted(found, key=_path)


def _path(key: int) -> int:
    """The branches from the root to the key, as one number that sorts as the walk does."""
    path, rest = 0, _hash(key)
    for _ in range(_LEVELS):
        path = path << _BRANCH_BITS | rest & (1 << _BRANCH_BITS) - 1
        rest >>= _BRANCH_BITS
    return path


def _hash(key: int) -> int:
    """Bob Jenkins' mix of both halves of the key's word."""
    word = key << 4 | _SMALL_INTEGER
    a, b, c = (_CONSTANT + word) & _BITS, (_CONSTANT + (word >> 32)) & _BITS, _SALT
    for first, second, third in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = (a - b - c & _BITS) ^ c >> first
        b = (b - c - a ^ a << second) & _BITS
        c = (c - a - b & _BITS) ^ b >> third
    return c
