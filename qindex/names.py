r"""The written form of names that are not valid Unicode. Does no I/O.

Names come from files, paths and other programs as bytes. Python keeps bytes that are not UTF-8 in
a str, as lone surrogates. Parquet, SQLite and strict readers of JSON refuse such a str, so every
output has the written form of a name instead:

    >>> written("orders"), written("caf\udce9"), written("\ud800")
    ('orders', 'caf\\x{e9}', '\\u{d800}')

A name that is valid Unicode is its own written form, unless an escape like these stands in it:
then the backslashes before that are doubled. So two names never have the same written form, and
`unwritten` gives each name back. A form that was written already must not be written again.

    >>> written(r"caf\x{e9}"), written(r"C:\x")
    ('caf\\\\x{e9}', 'C:\\x')
    >>> unwritten(written("caf\udce9")) == "caf\udce9"
    True
    >>> unwritten(written(r"caf\x{e9}")) == r"caf\x{e9}"
    True
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = r"(?:x\{[89a-f][0-9a-f]\}|u\{d[89a-f][0-9a-f]{2}\})"
_LOOKS_WRITTEN: Final = re.compile(rf"\\+(?={_ESCAPE})")
_SURROGATE: Final = re.compile("\\\\*[\ud800-\udfff]")
_WRITTEN: Final = re.compile(rf"(\\+)({_ESCAPE})")


def is_unicode(name: str) -> bool:
    """True if it is valid Unicode: only then other programs can have the name as it is."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def written(name: str) -> str:
    r"""The name as valid Unicode: a byte that is not UTF-8 as `\x{e9}`, a surrogate as `\u{d800}`.

    A name without an escape in it stays as it is, at the cost of looking at it once or twice.
    """
    if "\\" not in name:
        if name.isascii():
            return name
    else:
        name = _LOOKS_WRITTEN.sub(lambda found: found[0] * 2, name)
    return name if is_unicode(name) else _SURROGATE.sub(_write, name)


def unwritten(text: str) -> str:
    """The name that has this written form."""
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
