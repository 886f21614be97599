r"""The written form of names that are not valid Unicode. Does no I/O.

Names come from files, paths and other programs as bytes. Python keeps bytes that are not UTF-8 in
a str, as lone surrogates. Parquet, SQLite and strict readers of JSON refuse such a str, so every
output has the written form of a name instead:

    >>> written("orders"), written("caf\udce9"), written("\ud800")
    ('orders', 'caf\\x{e9}', '\\u{d800}')

A name that is valid Unicode is its own written form, so writing twice changes nothing. Two names
that are not valid never have the same written form, and `unwritten` gives such a name back. A
valid name may look like the written form of another one. A caller that must tell these apart looks
for the exact name first.

    >>> written(r"caf\x{e9}")
    'caf\\x{e9}'
    >>> unwritten(written("caf\udce9")) == "caf\udce9"
    True
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = r"(?:x\{[89a-f][0-9a-f]\}|u\{d[89a-f][0-9a-f]{2}\})"
_LOOKS_WRITTEN: Final = re.compile(rf"\\+(?={_ESCAPE})")
_SURROGATE: Final = re.compile("\\\\*[\ud800-\udfff]")
_WRITTEN: Final = re.compile(rf"(\\+)({_ESCAPE})")


def written(name: str) -> str:
    r"""The name as valid Unicode: a byte that is not UTF-8 as `\x{e9}`, a surrogate as `\u{d800}`.

    A valid name stays as it is, at the cost of encoding it once.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        name = _LOOKS_WRITTEN.sub(lambda found: found[0] * 2, name)
        return _SURROGATE.sub(_write, name)
    return name


def unwritten(text: str) -> str:
    """The name that is not valid and has this written form; any other text as it is."""
    return _WRITTEN.sub(_unwrite, text) if "\\" in text else text


def as_bytes(name: str) -> bytes:
    """The bytes that the name stands for; its written form if a surrogate stands for no byte."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return written(name).encode()


def _write(found: re.Match[str]) -> str:
    """The escape of a surrogate. Backslashes before it are doubled: an odd one begins an escape."""
    code = ord(found[0][-1])
    escape = f"\\x{{{code - 0xDC00:02x}}}" if 0xDC80 <= code <= 0xDCFF else f"\\u{{{code:04x}}}"
    return found[0][:-1] * 2 + escape


def _unwrite(found: re.Match[str]) -> str:
    slashes, escape = found[1], found[2]
    literal = "\\" * (len(slashes) // 2)
    if len(slashes) % 2 == 0:
        return literal + escape
    code = int(escape[2:-1], 16)
    return literal + chr(code + 0xDC00 if escape[0] == "x" else code)
