"""The first decoder of Erlang terms, in Python alone. qindex.brokers.rabbitmq.erlang is held to it.

Rules of this file: no I/O; no recursion, so a hostile term cannot exhaust the stack; nothing is
allocated because a count in the data says so; every failure is an `ErlangError` with its offset.

==============================================  ==============================================
Erlang                                          Python
==============================================  ==============================================
integer, float                                  int, float
atom                                            Atom (a str)
binary                                          bytes
bit string of a fraction of bytes               BitString
tuple, list, string                             tuple, list, list of int
[a, b | c]                                      ImproperList
map                                             dict (a key that is a list becomes a tuple)
pid, port, reference, fun                       Opaque (tag and undecoded bytes)
==============================================  ==============================================

Atoms `true`, `false`, `undefined` stay atoms: Erlang has no other booleans and no null.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from math import isfinite
from struct import Struct
from typing import Final, TypeAlias

from qindex.brokers.rabbitmq.erlang import (
    DEPTH_MAX,
    NODES_MAX,
    Atom,
    BitString,
    ErlangError,
    Opaque,
    Term,
    TermCut,
    _close,
)

_U16 = Struct(">H").unpack_from
_U32 = Struct(">I").unpack_from
_I32 = Struct(">i").unpack_from
_F64 = Struct(">d").unpack_from

# What `io_lib:format("~.20e")` prints; float() alone would also take "nan" and "1_0".
_FLOAT_TEXT = re.compile(rb" *[+-]?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?\0*")

_TUPLE, _LIST, _MAP = 0, 1, 2


def decode(data: bytes) -> Term:
    """The one term that `data` holds, from its version byte to its last."""
    if data[:1] != b"\x83":
        raise ErlangError("no version byte 131", 0)
    term, end = _decode_at(data, 1, DEPTH_MAX, NODES_MAX)
    if end != len(data):
        raise ErlangError(f"{len(data) - end} bytes follow the term", end)
    return term


def _decode_at(data: bytes, pos: int, depth_max: int, nodes_max: int) -> tuple[Term, int]:
    """One term without its version byte.

    `items`, `left` and `kind` are the container being filled: its elements so far, how many are
    still to come, and what it is. Its parents wait on `stack`.
    """
    stack: list[tuple[list[Term], int, int]] = []
    items: list[Term] = []
    left, kind, nodes, end = 1, -1, 0, len(data)
    try:
        while True:
            nodes += 1
            if nodes > nodes_max:
                raise ErlangError(f"more than {nodes_max} values in one term", pos)
            opened = _CONTAINERS.get(data[pos])
            if opened is not None:
                kind_new, head_bytes, read_count, extra = opened
                count = read_count(data, pos + 1)[0]
                pos += 1 + head_bytes
                # An element takes a byte at least, so a count beyond the end is a lie.
                if count > end - pos:
                    raise TermCut(f"container of {count} elements in {end - pos} bytes", pos)
                stack.append((items, left, kind))
                if len(stack) > depth_max:
                    raise ErlangError(f"nested deeper than {depth_max}", pos)
                items, left, kind = [], count * (2 if kind_new == _MAP else 1) + extra, kind_new
            else:
                value, pos = _SCALARS[data[pos]](data, pos + 1)
                if pos > end:
                    raise TermCut("cut inside a value", end)
                items.append(value)
                left -= 1
                if type(value) is list:
                    nodes += len(value)
            while left == 0:
                if kind < 0:
                    return items[0], pos
                done = _close(kind, items, pos)
                items, left, kind = stack.pop()
                items.append(done)
                left -= 1
    except KeyError:
        raise ErlangError(f"unknown tag {data[pos]}", pos) from None
    except (IndexError, struct.error):
        raise TermCut("cut inside a term", min(pos, end)) from None


# Containers: tag -> (kind, bytes of the count, its reader, elements beyond the count).
_CONTAINERS: Final = {
    104: (_TUPLE, 1, Struct(">B").unpack_from, 0),
    105: (_TUPLE, 4, _U32, 0),
    108: (_LIST, 4, _U32, 1),  # the tail follows the elements, nil in a proper list
    116: (_MAP, 4, _U32, 0),
}

# Scalars: tag -> function(data, offset behind the tag) -> (value, offset behind the value). A slice
# that the end of the data cuts is short; the caller notices that the offset is past the end.
_Scalar: TypeAlias = Callable[[bytes, int], tuple[Term, int]]


def _small_integer(data: bytes, pos: int) -> tuple[Term, int]:
    return data[pos], pos + 1


def _integer(data: bytes, pos: int) -> tuple[Term, int]:
    return _I32(data, pos)[0], pos + 4


def _small_big(data: bytes, pos: int) -> tuple[Term, int]:
    return _big(data, pos + 1, data[pos])


def _large_big(data: bytes, pos: int) -> tuple[Term, int]:
    return _big(data, pos + 4, _U32(data, pos)[0])


def _big(data: bytes, pos: int, size: int) -> tuple[Term, int]:
    sign, end = data[pos], pos + 1 + size
    if sign > 1:
        raise ErlangError(f"integer of sign {sign}", pos)
    value = int.from_bytes(data[pos + 1 : end], "little")
    return (-value if sign else value), end


def _float(data: bytes, pos: int) -> tuple[Term, int]:
    value: float = _F64(data, pos)[0]
    if not isfinite(value):
        raise ErlangError("float that is no number", pos)
    return value, pos + 8


def _float_text(data: bytes, pos: int) -> tuple[Term, int]:
    text = data[pos : pos + 31]
    if not _FLOAT_TEXT.fullmatch(text):
        raise ErlangError("float that is no number", pos)
    return float(text.rstrip(b"\0")), pos + 31


def _small_atom(data: bytes, pos: int) -> tuple[Term, int]:
    end = pos + 1 + data[pos]
    return _atom(data, pos + 1, end, "latin-1"), end


def _atom_latin1(data: bytes, pos: int) -> tuple[Term, int]:
    end = pos + 2 + _U16(data, pos)[0]
    return _atom(data, pos + 2, end, "latin-1"), end


def _small_atom_utf8(data: bytes, pos: int) -> tuple[Term, int]:
    end = pos + 1 + data[pos]
    return _atom(data, pos + 1, end, "utf-8"), end


def _atom_utf8(data: bytes, pos: int) -> tuple[Term, int]:
    end = pos + 2 + _U16(data, pos)[0]
    return _atom(data, pos + 2, end, "utf-8"), end


def _atom(data: bytes, pos: int, end: int, encoding: str) -> Atom:
    try:
        return Atom(data[pos:end], encoding)
    except UnicodeDecodeError:
        raise ErlangError("atom that is not UTF-8", pos) from None


def _nil(data: bytes, pos: int) -> tuple[Term, int]:
    return [], pos


def _string(data: bytes, pos: int) -> tuple[Term, int]:
    end = pos + 2 + _U16(data, pos)[0]
    return list(data[pos + 2 : end]), end


def _binary(data: bytes, pos: int) -> tuple[Term, int]:
    end = pos + 4 + _U32(data, pos)[0]
    return data[pos + 4 : end], end


def _bit_binary(data: bytes, pos: int) -> tuple[Term, int]:
    end = pos + 5 + _U32(data, pos)[0]
    bits = data[pos + 4]
    if not 1 <= bits <= 8:
        raise ErlangError(f"bit string whose last byte has {bits} bits", pos)
    return BitString(data[pos + 5 : end], bits), end


def _skip_atom(data: bytes, pos: int) -> int:
    if data[pos] not in (100, 115, 118, 119):
        raise ErlangError("an atom must stand here", pos)
    return _SCALARS[data[pos]](data, pos + 1)[1]


def _node_and(size: int) -> _Scalar:
    """A pid, port or old reference: the node's name, then `size` bytes."""

    def scalar(data: bytes, pos: int) -> tuple[Term, int]:
        end = _skip_atom(data, pos) + size
        return Opaque(data[pos - 1], data[pos:end]), end

    return scalar


def _numbered_reference(creation_bytes: int) -> _Scalar:
    def scalar(data: bytes, pos: int) -> tuple[Term, int]:
        words = _U16(data, pos)[0]
        end = _skip_atom(data, pos + 2) + creation_bytes + 4 * words
        return Opaque(data[pos - 1], data[pos:end]), end

    return scalar


def _export(data: bytes, pos: int) -> tuple[Term, int]:
    # module, function, and the arity as a small integer with its tag
    end = _skip_atom(data, _skip_atom(data, pos)) + 2
    return Opaque(data[pos - 1], data[pos:end]), end


def _fun(data: bytes, pos: int) -> tuple[Term, int]:
    size = _U32(data, pos)[0]  # counts itself
    if size < 4:
        raise ErlangError("fun of a size below its head", pos)
    return Opaque(data[pos - 1], data[pos : pos + size]), pos + size


_SCALARS: Final[dict[int, _Scalar]] = {
    70: _float,
    77: _bit_binary,
    88: _node_and(12),  # pid with a creation of 32 bits
    89: _node_and(8),  # port, the same
    90: _numbered_reference(4),
    97: _small_integer,
    98: _integer,
    99: _float_text,
    100: _atom_latin1,
    101: _node_and(5),
    102: _node_and(5),
    103: _node_and(9),
    106: _nil,
    107: _string,
    109: _binary,
    110: _small_big,
    111: _large_big,
    112: _fun,
    113: _export,
    114: _numbered_reference(1),
    115: _small_atom,
    118: _atom_utf8,
    119: _small_atom_utf8,
    120: _node_and(12),  # port with an id of 64 bits
}
