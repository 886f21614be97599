"""Erlang's external term format: bytes to Python values.

The bytes are read in C (c_ext/foreign/erlang_terms.c), to a row of values with the places of their
bytes; here the row becomes values of Python. Neither recurses, nor allocates because a count in the
data says so; every failure is an `ErlangError` with its offset.

==============================================  ==============================================
Erlang                                          Python
==============================================  ==============================================
integer, float                                  int, float
atom                                            Atom (a str)
binary                                          bytes
bit string of a fraction of bytes               BitString
tuple, list, string                             tuple, list, list of int
[a, b | c]                                      ImproperList
map                                             dict (lists and maps within a key become tuples)
pid, port, reference, fun                       Opaque (tag and undecoded bytes)
==============================================  ==============================================

Atoms `true`, `false`, `undefined` stay atoms: Erlang has no other booleans and no null.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

from qindex._core import ffi, lib
from qindex.words import many

VERSION: Final = 131

DEPTH_MAX: Final = lib.QI_TERM_DEPTH_MAX
NODES_MAX: Final = 1_000_000
INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024
LONG_MAX: Final = (1 << 63) - 1
_BIG_BYTES_MAX: Final = 1025  # with the sign: Python writes no longer ones as text


class Atom(str):
    """An Erlang atom. Equal to the str with the same characters."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Atom({str(self)!r})"


class BitString(NamedTuple):
    """A binary whose last byte counts only with its `bits` highest bits."""

    data: bytes
    bits: int


class ImproperList(NamedTuple):
    items: list[Term]
    tail: Term


class Opaque(NamedTuple):
    """A pid, port, reference or fun: nothing outside its own node can use what is inside."""

    tag: int
    data: bytes


Term: TypeAlias = (
    "int | float | bytes | Atom | BitString | ImproperList | Opaque"
    " | tuple[Term, ...] | list[Term] | dict[Term, Term]"
)


class ErlangError(ValueError):
    """The bytes are not a term, or a bigger one than allowed."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(f"{text} (at byte {offset})")
        self.offset = offset


def is_long(value: Any) -> TypeGuard[int]:
    """A whole number that fits into 64 bits: a node has no other index, count, size or moment."""
    return type(value) is int and -LONG_MAX <= value <= LONG_MAX


class TermCut(ErlangError):
    """The bytes end inside the term; with more of them it may be whole."""


_U32 = Struct(">I").unpack_from
_I32 = Struct(">i").unpack_from
_F64 = Struct(">d").unpack_from
_ROW = Struct("=IIB3x")  # a qi_term

_TUPLE, _LIST, _MAP = 0, 1, 2
_KINDS: Final = {104: _TUPLE, 105: _TUPLE, 108: _LIST, 116: _MAP}


def decode(data: bytes, *, depth_max: int = DEPTH_MAX, nodes_max: int = NODES_MAX) -> Term:
    """The one term that `data` holds, from its version byte to its last. Linear in len(data)."""
    term, end = decode_prefix(data, depth_max=depth_max, nodes_max=nodes_max)
    if end != len(data):
        raise ErlangError(f"{many(len(data) - end, 'byte follows', 'bytes follow')} the term", end)
    return term


def decode_prefix(
    data: bytes, offset: int = 0, *, depth_max: int = DEPTH_MAX, nodes_max: int = NODES_MAX
) -> tuple[Term, int]:
    """The term that starts at `offset` with a version byte, and the offset behind it."""
    data = bytes(data)
    if data[offset : offset + 1] != b"\x83":
        raise ErlangError("no version byte 131", offset)
    if data[offset + 1 : offset + 2] == b"P":
        inflated, end = _inflate(data, offset + 2)
        term, used = decode_at(inflated, 0, depth_max, nodes_max)
        if used != len(inflated):
            raise ErlangError("the compressed term is longer than its content", offset + 2)
        return term, end
    return decode_at(data, offset + 1, depth_max, nodes_max)


def _inflate(data: bytes, pos: int) -> tuple[bytes, int]:
    if len(data) - pos < 4:
        raise TermCut("cut inside a compressed term", pos)
    size: int = _U32(data, pos)[0]
    if size > INFLATED_BYTES_MAX:
        raise ErlangError(f"compressed term of {size} bytes, allowed {INFLATED_BYTES_MAX}", pos)
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data[pos + 4 :], size + 1)
    except zlib.error as error:
        raise ErlangError(f"damaged compressed term: {error}", pos) from None
    if len(inflated) != size or not inflater.eof:
        raise ErlangError(f"compressed term is not the {size} bytes it says", pos)
    return inflated, len(data) - len(inflater.unused_data)


def decode_at(
    data: bytes, pos: int, depth_max: int = DEPTH_MAX, nodes_max: int = NODES_MAX
) -> tuple[Term, int]:
    """The term at `pos`, which has no version byte, and the offset behind it."""
    place = ffi.new("size_t *", pos)
    count = lib.qi_terms(data, len(data), place, depth_max, nodes_max, ffi.NULL, 0)
    end: int = place[0]
    if count < 0:
        raise _error(count, data, end, depth_max, nodes_max)
    place[0] = pos
    rows = ffi.new("qi_term[]", count)
    lib.qi_terms(data, len(data), place, depth_max, nodes_max, rows, count)
    return _build(data, ffi.buffer(rows), end), end


def end_of(data: bytes, offset: int = 0) -> int:
    """decode_prefix() without the values: the offset behind the term. One in a zip is decoded."""
    if data[offset : offset + 1] != b"\x83" or data[offset + 1 : offset + 2] == b"P":
        return decode_prefix(data, offset)[1]
    place = ffi.new("size_t *", offset + 1)
    code = lib.qi_terms(data, len(data), place, DEPTH_MAX, NODES_MAX, ffi.NULL, 0)
    if code < 0:
        raise _error(code, data, place[0], DEPTH_MAX, NODES_MAX)
    end: int = place[0]
    return end


def skip(data: bytes, pos: int) -> int:
    """decode_at() without the values and without a limit on how many: where the term ends."""
    place = ffi.new("size_t *", pos)
    code = lib.qi_terms(data, len(data), place, DEPTH_MAX, len(data) + 1, ffi.NULL, 0)
    if code < 0:
        raise _error(code, data, place[0], DEPTH_MAX, len(data) + 1)
    end: int = place[0]
    return end


def elements(data: bytes, pos: int) -> list[int]:
    """Where the elements of the tuple at `pos` begin; none of them is read. Empty: no tuple."""
    if data[pos : pos + 1] == b"h":
        count, pos = data[pos + 1] if len(data) > pos + 1 else 0, pos + 2
    elif data[pos : pos + 1] == b"i" and len(data) - pos >= 5:
        count, pos = _U32(data, pos + 1)[0], pos + 5
    else:
        return []
    if count > len(data) - pos:
        raise TermCut("cut inside a tuple", pos)
    places = []
    for _ in range(count):
        places.append(pos)
        pos = skip(data, pos)
    return places


def items(data: bytes, pos: int) -> Iterator[Term]:
    """The elements of the proper list at `pos`, each read when its turn comes."""
    tag = data[pos : pos + 1]
    if tag == b"j":
        return
    if tag == b"k":
        term, _ = decode_at(data, pos)
        yield from term  # type: ignore[misc]
        return
    if tag != b"l" or len(data) - pos < 5:
        raise ErlangError("no list", pos)
    count, pos = _U32(data, pos + 1)[0], pos + 5
    for _ in range(count):
        term, pos = decode_at(data, pos)
        yield term


def _error(code: int, data: bytes, pos: int, depth_max: int, nodes_max: int) -> ErlangError:
    if code == lib.QI_TERM_CUT:
        return TermCut("cut inside a term", pos)
    tag = data[pos] if pos < len(data) else -1
    texts = {
        lib.QI_TERM_TAG: f"unknown tag {tag}",
        lib.QI_TERM_DEEP: f"nested deeper than {depth_max}",
        lib.QI_TERM_MANY: f"more than {nodes_max} values in one term",
        lib.QI_TERM_NUMBER: f"a number that is none, of tag {tag}",
        lib.QI_TERM_ATOM: "an atom that is not UTF-8, or something else in its place",
        lib.QI_TERM_SIZE: f"a size that cannot be, of tag {tag}",
    }
    return ErlangError(texts[code], pos)


def _build(data: bytes, rows: bytes, end: int) -> Term:
    """The value of a row that qi_terms() wrote.

    `items`, `left` and `kind` are the container being filled: its elements so far, how many are
    still to come, and what it is. Its parents wait on `stack`.
    """
    stack: list[tuple[list[Term], int, int]] = []
    items: list[Term] = []
    left, kind = 1, -1
    for start, size, tag in _ROW.iter_unpack(rows):
        opened = _KINDS.get(tag)
        if opened is not None:
            stack.append((items, left, kind))
            items, left, kind = [], size, opened
        else:
            items.append(_SCALARS[tag](data, start, size))
            left -= 1
        while left == 0 and stack:
            done = _close(kind, items, end)
            items, left, kind = stack.pop()
            items.append(done)
            left -= 1
    return items[0]


def _close(kind: int, items: list[Term], pos: int) -> Term:
    if kind == _TUPLE:
        return tuple(items)
    if kind == _LIST:
        tail = items.pop()
        if tail == []:
            return items
        if type(tail) is list:
            raise ErlangError("a list whose tail is a list again", pos)
        return ImproperList(items, tail)
    keys = [_hashable(key) for key in items[0::2]]
    pairs = dict(zip(keys, items[1::2], strict=True))
    if len(pairs) != len(keys):
        raise ErlangError("a map has the same key twice", pos)
    return pairs


def _hashable(key: Term) -> Term:
    """A map's key as Python can have it: lists and maps in it, however deep, become tuples."""
    try:
        hash(key)
    except TypeError:
        pass
    else:
        return key
    # As in _build: the container being made, what is left of it, its parents on `stack`.
    stack: list[tuple[list[Any], list[Any]]] = []
    left: list[Any] = [key]
    made: list[Any] = []
    while True:
        if left:
            value = left.pop()
            if type(value) is dict:
                value = list(value.items())
            if type(value) in (tuple, list, ImproperList):
                stack.append((left, made))
                left, made = list(value)[::-1], []
            else:
                made.append(value)
        elif stack:
            done = tuple(made)
            left, made = stack.pop()
            made.append(done)
        else:
            found: Term = made[0]
            return found


# Scalars: tag -> function(data, start, size) -> value.
_Scalar: TypeAlias = Callable[[bytes, int, int], Term]


def _small_integer(data: bytes, start: int, size: int) -> Term:
    return data[start]


def _integer(data: bytes, start: int, size: int) -> Term:
    value: int = _I32(data, start)[0]
    return value


def _big(data: bytes, start: int, size: int) -> Term:
    if size > _BIG_BYTES_MAX:
        raise ErlangError(f"a number of {size - 1} bytes, allowed {_BIG_BYTES_MAX - 1}", start)
    value = int.from_bytes(data[start + 1 : start + size], "little")
    return -value if data[start] else value


def _float(data: bytes, start: int, size: int) -> Term:
    value: float = _F64(data, start)[0]
    return value


def _float_text(data: bytes, start: int, size: int) -> Term:
    return float(data[start : start + size].rstrip(b"\0"))


def _atom_latin1(data: bytes, start: int, size: int) -> Term:
    return Atom(data[start : start + size], "latin-1")


def _atom_utf8(data: bytes, start: int, size: int) -> Term:
    return Atom(data[start : start + size], "utf-8")


def _nil(data: bytes, start: int, size: int) -> Term:
    return []


def _string(data: bytes, start: int, size: int) -> Term:
    return list(data[start : start + size])


def _binary(data: bytes, start: int, size: int) -> Term:
    return data[start : start + size]


def _bit_binary(data: bytes, start: int, size: int) -> Term:
    return BitString(data[start : start + size], data[start - 1])


def _opaque(data: bytes, start: int, size: int) -> Term:
    return Opaque(data[start - 1], data[start : start + size])


_SCALARS: Final[dict[int, _Scalar]] = {
    70: _float,
    77: _bit_binary,
    97: _small_integer,
    98: _integer,
    99: _float_text,
    100: _atom_latin1,
    106: _nil,
    107: _string,
    109: _binary,
    110: _big,
    111: _big,
    115: _atom_latin1,
    118: _atom_utf8,
    119: _atom_utf8,
    # pids, ports, references, funs
    **dict.fromkeys((88, 89, 90, 101, 102, 103, 112, 113, 114, 120), _opaque),
}
