"""A server's file `config`: one Erlang term as text, as io_lib's ~p writes it, and a full stop.

The file is bytes: inside <<"...">> stand the bytes themselves, so that text is read as Latin-1 and
each binary is then what it was. The same values come out as from qindex.brokers.rabbitmq.erlang.

    >>> read_term(b"#{name => 'a b', size => 10, key => <<\\"x\\">>}.")
    {Atom('name'): Atom('a b'), Atom('size'): 10, Atom('key'): b'x'}
"""

from __future__ import annotations

import re
from typing import Any, Final

from qindex.brokers.rabbitmq.erlang import Atom, Opaque, Term

TEXT_BYTES_MAX: Final = 4 << 20
DEPTH_MAX: Final = 100
_TOKEN: Final = re.compile(
    r"\s*(?:%[^\n]*\n\s*)*"
    r"(?:(?P<number>-?\d+(?:\.\d+(?:[eE][-+]?\d+)?)?)"
    r"|(?P<atom>[a-z\xdf-\xf6\xf8-\xff][0-9A-Za-z_@\xc0-\xd6\xd8-\xf6\xf8-\xff]*)"
    r"|'(?P<quoted>(?:[^'\\]|\\.)*)'"
    r'|"(?P<string>(?:[^"\\]|\\.)*)"'
    r"|(?P<pid><\d+\.\d+\.\d+>)"
    r"|#(?:Fun|Ref|Port)<(?P<opaque>[^>]*)>"
    r"|(?P<mark>=>|#\{|<<|>>|[][{},|.]))",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(x\{[0-9A-Fa-f]{1,6}\}|x[0-9A-Fa-f]{2}|\^.|[0-7]{1,3}|.)", re.DOTALL
)
_ESCAPES: Final = dict(zip("bdefnrstv0", "\b\x7f\x1b\f\n\r \t\v\0", strict=True))
_CLOSES: Final = {"{": "}", "#{": "}", "[": "]", "<<": ">>"}


class TextError(ValueError):
    """The text is no term."""


def read_term(data: bytes) -> Term:
    """The one term of the text. TextError if there is none. Linear, without recursion."""
    if len(data) > TEXT_BYTES_MAX:
        raise TextError(f"{len(data)} bytes, more than {TEXT_BYTES_MAX}")
    text = data.decode("latin-1")
    stack: list[tuple[str, list[Any]]] = []
    items: list[Any] = []
    opened, pos = "", 0
    while True:
        found = _TOKEN.match(text, pos)
        if found is None:
            raise TextError(f"no term (at byte {pos})")
        pos = found.end()
        mark = found["mark"]
        if mark in _CLOSES:
            if len(stack) >= DEPTH_MAX:
                raise TextError(f"nested deeper than {DEPTH_MAX} (at byte {pos})")
            stack.append((opened, items))
            opened, items = mark, []
        elif mark == ".":
            break
        elif mark in (",", "=>", "|"):
            if mark == "|":
                items.append(_TAIL)
        elif mark is not None:
            if _CLOSES.get(opened) != mark:
                raise TextError(f"{mark} in the wrong place (at byte {pos})")
            done = _close(opened, items, pos)
            opened, items = stack.pop()
            items.append(done)
        else:
            _add(items, found, opened)
    if opened or len(items) != 1:
        raise TextError(f"no term (at byte {pos})")
    term: Term = items[0]
    return term


_TAIL: Final = object()


def _add(items: list[Any], found: re.Match[str], opened: str) -> None:
    kind, raw = found.lastgroup, found[found.lastgroup or 0]
    if kind == "number":
        items.append(float(raw) if "." in raw else int(raw))
    elif kind == "atom":
        items.append(Atom(raw))
    elif kind == "quoted":
        items.append(Atom(_unescape(raw)))
    elif kind == "string":
        characters = [ord(each) for each in _unescape(raw)]
        if opened == "<<":
            items.extend(characters)
        elif items and isinstance(items[-1], _Text):
            items[-1].extend(characters)  # "abc" "def" is one string
        else:
            items.append(_Text(characters))
    else:
        items.append(Opaque(0, raw.encode("latin-1")))


class _Text(list[int]):
    """A string: a list that may go on."""


def _unescape(raw: str) -> str:
    return _ESCAPE.sub(_character, raw) if "\\" in raw else raw


def _character(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "x" and len(code) > 1:
        number = int(code[1:].strip("{}"), 16)
        return chr(number) if number < 0x110000 else "?"
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code[0] == "^" and len(code) > 1:
        return chr(ord(code[1]) & 31)
    return _ESCAPES.get(code, code)


def _close(opened: str, items: list[Any], pos: int) -> Any:
    if opened == "{":
        return tuple(items)
    if opened == "<<":
        if not all(isinstance(each, int) and 0 <= each < 256 for each in items):
            raise TextError(f"a binary of something else than bytes (at byte {pos})")
        return bytes(items)
    if opened == "[":
        return [
            list(each) if isinstance(each, _Text) else each for each in items if each is not _TAIL
        ]
    if len(items) % 2:
        raise TextError(f"a map with a key too much (at byte {pos})")
    try:
        return dict(zip(map(_key, items[0::2]), items[1::2], strict=True))
    except TypeError:
        raise TextError(f"a map with a list as a key (at byte {pos})") from None


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
