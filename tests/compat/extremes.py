"""Sets every field of a dead broker's files to extreme values, and holds the commands to one rule.

Checksums and lengths are put right, so that a value passes for one that the broker wrote. Whatever
it is, each command that reads the directory and writes something else ends with an account and the
exit code 0 or 1, or with a sentence and 2.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import struct
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

import pika
from fuzz_formats import REPAIRS
from hostile_commands import Broker
from term_files import split, values

from qindex.cli.main import main

WIDTHS: Final = {1: ">B", 2: ">H", 4: ">I", 8: ">Q"}
LATE: Final = "--at-time=2020-01-01T00:00Z"


def _number(value: int) -> bytes:
    raw = abs(value).to_bytes(value.bit_length() // 8 + 1, "little")
    head = b"n" + bytes([len(raw)]) if len(raw) < 256 else b"o" + struct.pack(">I", len(raw))
    return head + bytes([value < 0]) + raw


def _binary(data: bytes) -> bytes:
    return b"m" + struct.pack(">I", len(data)) + data


EXTREMES: Final = {
    "0": b"a\0",
    "1": b"a\1",
    "-1": b"b\xff\xff\xff\xff",
    **{f"{sign}2^{bits}": _number((sign == "" or -1) * (1 << bits))
       for bits in (31, 32, 62, 63, 64, 1000, 40000) for sign in ("", "-")},
    "2^63 - 1": _number((1 << 63) - 1),
    "not a number": b"F\x7f\xf8\0\0\0\0\0\0",
    "infinite": b"F\x7f\xf0\0\0\0\0\0\0",
    "1e308": b"F" + struct.pack(">d", 1e308),
    "-0.5": b"F" + struct.pack(">d", -0.5),
    "no bytes": _binary(b""),
    "no UTF-8": _binary(b"\xff\xfe\0"),
    "a surrogate": _binary(b"\xed\xa0\x80"),
    "70,000 bytes": _binary(b"x" * 70_000),
    "bits": b"M\0\0\0\1\3\xe0",
    "undefined": b"w\x09undefined",
    "true": b"w\4true",
    "an empty atom": b"w\0",
    "no list": b"j",
    "a string": b"k\0\2\0\xff",
    "a list of a list": b"l\0\0\0\1jj",
    "an improper list": b"l\0\0\0\1a\1a\2",
    "an empty tuple": b"h\0",
    "a pair": b"h\2a\1a\2",
    "an empty map": b"t\0\0\0\0",
    "a map": b"t\0\0\0\1a\1j",
    "a pid": b"Xw\3a@b" + bytes(12),
    "a reference": b"Z\0\1w\3a@b" + bytes(8),
    "200 lists": b"l\0\0\0\1" * 200 + b"j" * 201,
    "400 tuples": b"h\1" * 400 + b"j",
}  # fmt: skip


def changed(file: Path, dice: Random) -> tuple[str, bytes] | None:
    """(what was changed, the file with it); None: nothing can be changed in it."""
    found = split(file) if dice.random() < 0.8 else None
    terms = [] if found is None else [n for n, term in enumerate(found[0]) if term[:1] == b"\x83"]
    if found is None or not terms:
        return _field(file, dice)
    pieces, join = found
    number = dice.choice(terms)
    term = pieces[number]
    start, end = dice.choice([*values(term)] or [(1, len(term))])
    name = dice.choice([*EXTREMES])
    pieces[number] = term[:start] + EXTREMES[name] + term[end:]
    return f"term {number} {start}-{end} {term[start:end][:30]!r} <- {name}", join(pieces)


def _field(file: Path, dice: Random) -> tuple[str, bytes] | None:
    """A number of a fixed place. Half of them near the file's beginning, where its head is."""
    data = bytearray(file.read_bytes())
    if not data:
        return None
    at = dice.randrange(len(data) if dice.random() < 0.5 else min(len(data), 160))
    width = dice.choice([width for width in WIDTHS if at + width <= len(data)])
    top = 1 << 8 * width
    near = int.from_bytes(data[at : at + width])
    value = dice.choice([0, 1, top - 1, top // 2, top // 2 - 1, top // 2 + near % (top // 2)])
    struct.pack_into(WIDTHS[width], data, at, value)
    kind = {".wal": "ra_wal", ".qs": "store_v2", ".dat": "ra_snapshot"}.get(file.suffix, "")
    if data[:4] == b"OSIL":
        kind = "stream"
    if kind and (kind != "ra_snapshot" or file.name == "snapshot.dat"):
        REPAIRS[kind](data)
    return f"{width} bytes at {at}: {near} <- {value}", bytes(data)


# --- judging --------------------------------------------------------------------------------------


def commands(node: Path, out: Path) -> dict[str, list[str]]:
    """By name what follows it; `recover` goes first, the others are about what it was about."""
    return {
        "recover": [f"--out={out / 'store'}", "--json", "--orphans"],
        "write-rabbitmq": [f"--out={out / 'written'}", "--json", LATE],
        "export": [f"--out={out / 'rows.jsonl'}", "--form=jsonl", LATE],
        "export to Parquet": [f"--out={out / 'rows.parquet'}", "--form=parquet", LATE],
        "republish": [f"--checkpoint={out / 'note'}", "--amqp=amqp://h", "--as-published", LATE],
        "recover without a store": [f"--report={out / 'report.html'}"],
        "check": ["--json"],
        "ls": ["--json"],
        "stats": [],
        "cat": ["--jsonl"],
        "peek": ["-n3"],
        "du": ["--explain"],
    }


def run(*arguments: str) -> tuple[int | str, str]:
    """The exit code and what was printed to stdout; in place of the code a traceback."""
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", write_through=True)
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
            code: int | str = main([*arguments])
    except SystemExit as error:
        code = error.code or 0
    except Exception:
        code = traceback.format_exc()
    shown = printed.buffer.getvalue().decode() if isinstance(printed.buffer, io.BytesIO) else ""
    if code == 2 and not told.getvalue():
        code = "exit code 2, and nothing is said"
    return code, shown


def judge(node: Path, out: Path, more: list[str]) -> Iterator[str]:
    """What breaks the rule: of recover --out, and of the commands in `more`."""
    known = commands(node, out)
    for name in ("recover", *more):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        code, shown = run(name.split()[0], str(node), *known[name])
        if code not in (0, 1, 2):
            yield f"{name}: {code}"
        elif name == "recover":
            yield from _account(code, shown, out / "store")


def _account(code: int | str, shown: str, store: Path) -> Iterator[str]:
    """No half a store without an account."""
    if code == 2:
        if store.exists():
            yield "recover: exit code 2, and a store all the same"
        return
    json.loads(shown)
    if store.exists() and run("check", str(store))[0] != 0:
        yield "recover: a store that `qindex check` does not find sound"


def sweep(node: Path, out: Path, dice: Random, count: int) -> Iterator[str]:
    """What breaks the rule, of so many changed fields of the files in `node`."""
    files = [file for file in sorted(node.rglob("*")) if file.is_file() and file.stat().st_size]
    others = [name for name in commands(node, out) if name != "recover"]
    with patch.object(pika, "BlockingConnection", Broker):
        for number in range(count):
            file = files[number % len(files)]
            change = changed(file, dice)
            if change is None:
                continue
            sound = file.read_bytes()
            file.write_bytes(change[1])
            more = [others[number % len(others)]] if number % 3 == 0 else []
            for broken in judge(node, out, more):
                yield f"{file.relative_to(node)} {change[0]}: {broken}"
            file.write_bytes(sound)
