"""Damages each file of a dead RabbitMQ node in every way, and holds the reader to one rule.

If what is recovered differs from what the sound directory gives, a finding that is no note says so.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from qindex.brokers.rabbitmq.directory import open_node
from qindex.brokers.rabbitmq.doubts import GAP_MIN, UNACKED_USUAL
from qindex.brokers.reader import total

from .rabbitmq_files import SLOTS

# By virtual host and queue: body, exchange, routing keys, properties, expiry, seq
Recovered = dict[tuple[str, str], list[tuple[Any, ...]]]
SECTOR = 512
PAGE = 4096


@dataclass(frozen=True)
class Damage:
    what: str  # removed, cut, zeroed, flipped
    start: int
    end: int  # of what was changed
    data: bytes | None  # None: there is no file any more

    def __str__(self) -> str:
        return f"{self.what} {self.start}-{self.end}"


def damages(data: bytes, boundaries: list[int], dice: Random, few: int) -> Iterator[Damage]:
    """`few`: how many of a kind; of what is not more, all. `boundaries`: where records begin."""
    size = len(data)
    yield Damage("removed", 0, size, None)
    yield Damage("zeroed", 0, size, bytes(size))
    at_records = _some([b for b in boundaries if b < size], few, dice)
    for end in sorted({0, *at_records, *_some(range(1, size), few, dice)}):
        yield Damage("cut", end, size, data[:end])
    for length in (SECTOR, PAGE):
        for start in _some(range(0, size, length), few, dice):
            zeros = bytes(min(length, size - start))
            zeroed = data[:start] + zeros + data[start + length :]
            if zeroed != data:
                yield Damage("zeroed", start, start + len(zeros), zeroed)
    heads = [8 * (b + o) + bit for b in boundaries for o in range(34) for bit in range(8)]
    bits = {*_some([bit for bit in heads if bit < 8 * size], 4 * few, dice)}
    for bit in sorted(bits | {*_some(range(8 * size), 2 * few, dice)}):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield Damage("flipped", bit // 8, bit // 8 + 1, bytes(flipped))


def _some(choices: Any, count: int, dice: Random) -> list[Any]:
    choices = list(choices)
    return choices if len(choices) <= count else dice.sample(choices, count)


def boundaries_of(file: Path, data: bytes) -> list[int]:
    """Where the records of a sound file begin."""
    found, pos = [], 0
    match file.suffix:
        case ".idx":
            while pos < len(data):
                found.append(pos)
                pos += 34 + struct.unpack_from(">I", data, pos + 30)[0] if data[pos] >> 7 else 2
        case ".jif":
            while pos < len(data):
                found.append(pos)
                pos += 8 if data[pos] >> 7 else 40 + struct.unpack_from(">I", data, pos + 36)[0]
        case ".rdq":
            while pos < len(data):
                found.append(pos)
                pos += 9 + struct.unpack_from(">Q", data, pos)[0]
        case ".qi":
            found = list(range(64, len(data), 32))
        case ".qs":
            pos = 64
            while pos < len(data):
                found.append(pos)
                pos += 8 + struct.unpack_from(">I", data, pos)[0]
    return found


# --- judging ------------------------------------------------------------------------------------


@dataclass
class Told:
    recovered: Recovered
    is_bad: bool  # the command would end with 1
    text: list[str]


def read(path: Path) -> Told:
    recovered: Recovered = {}
    with open_node(path) as node:
        for queue in node.queues:
            recovered[queue.vhost.name, queue.name] = [
                (m.body, m.exchange, tuple(m.routing_keys), m.properties, m.expiry_us, m.seq)
                for m in queue.messages()
            ]
        unreadable = sum(queue.unreadable for queue in node.queues)
        findings = [str(finding) for finding in node.findings if finding.severity != "note"]
        lost = sum(total(node.queues).lost.values())
    recovered = {key: rows for key, rows in recovered.items() if rows}
    return Told(recovered, bool(findings or lost or unreadable), findings)


@dataclass(frozen=True)
class Silent:
    """Something differs and nothing was said. `why`: no reader could know it; else a fault."""

    file: str
    damage: str
    why: str
    differs: str


def sweep(path: Path, files: list[Path], dice: Random, few: int) -> Iterator[tuple[int, Silent]]:
    """(how many damages so far, what was not told) and, last, (how many, None)."""
    truth = read(path)
    assert not truth.is_bad, truth.text
    count = 0
    for file in files:
        data = file.read_bytes()
        boundaries = boundaries_of(file, data)
        for damage in damages(data, boundaries, dice, few):
            count += 1
            if damage.data is None:
                file.unlink()
            else:
                file.write_bytes(damage.data)
            told = read(path)
            if _seen(told.recovered) != _seen(truth.recovered) and not told.is_bad:
                differs = _difference(truth.recovered, told.recovered)
                why = _why(file, damage, boundaries, truth.recovered, told.recovered)
                yield count, Silent(str(file.relative_to(path)), str(damage), why, differs)
        file.write_bytes(data)
    yield count, Silent("", "", "", "")


def _seen(recovered: Recovered) -> Recovered:
    """What the user gets: all but the seqs."""
    return {key: [row[:-1] for row in rows] for key, rows in recovered.items()}


def _difference(truth: Recovered, told: Recovered) -> str:
    parts = []
    for key in sorted(truth.keys() | told.keys()):
        here, there = _seen(truth).get(key, []), _seen(told).get(key, [])
        if here != there:
            lost = len([row for row in here if row not in there])
            new = len([row for row in there if row not in here])
            parts.append(f"{key[1]}: {lost} not there, {new} new, {len(here)} -> {len(there)}")
    return "; ".join(parts)


def _why(
    file: Path, damage: Damage, boundaries: list[int], truth: Recovered, told: Recovered
) -> str:
    """What a healthy node could have done to leave these very bytes; empty: nothing."""
    kind = file.suffix
    seqs = {key: [row[-1] for row in rows] for key, rows in truth.items()}
    found = {key: [row[-1] for row in rows] for key, rows in told.items()}
    if damage.what == "flipped":
        if seqs == found:
            bodies = [[row[:-2] for row in rows] for rows in truth.values()]
            if bodies == [[row[:-2] for row in rows] for rows in told.values()]:
                return "a message expires at another time, which is possible, too"
            if kind in (".jif", ".idx", ".rdq"):
                return "a byte of a message: these files have no checksums"
        elif kind in (".jif", ".idx") and _one_for_another(seqs, found):
            return "an ack is that of another message"
        return ""
    if kind == ".jif":
        between = damage.what == "cut" and damage.start in {0, *boundaries}
        return "a journal that ends with a record: as if killed earlier" if between else ""
    if kind in (".idx", ".qi") and _could_be_acks(file, seqs, found):
        return "seqs without a record, too few or with few live before them: as acks leave it"
    if kind == ".idx" and damage.what == "cut" and not _lost(seqs, found):
        return "acks at the end of a segment are cut off: their messages come back"
    return ""


Seqs = dict[tuple[str, str], list[int]]


def _lost(seqs: Seqs, found: Seqs) -> dict[tuple[str, str], list[int]]:
    lost = {key: sorted(set(rows) - set(found.get(key, []))) for key, rows in seqs.items()}
    return {key: rows for key, rows in lost.items() if rows}


def _one_for_another(seqs: Seqs, found: Seqs) -> bool:
    (lost,) = _lost(seqs, found).values() or [[]]
    new = _lost(found, seqs)
    return len(lost) <= 1 and sum(map(len, new.values())) <= 1


def _could_be_acks(file: Path, seqs: Seqs, found: Seqs) -> bool:
    """Each row of lost seqs is short, ends its segment, or has few live messages before it."""
    for key, lost in _lost(seqs, found).items():
        live = found.get(key, [])
        start = lost[0]
        for seq, after in zip(lost, [*lost[1:], -1], strict=True):
            if after == seq + 1:
                continue
            older = [s for s in live if s < start]
            newer = [s for s in live if s > seq]
            gap = (newer[0] if newer else seq + 1) - (older[-1] + 1 if older else start)
            at_end = newer and newer[0] % SLOTS == 0 and gap < SLOTS
            is_usual = len(older) < min(gap, UNACKED_USUAL)
            if newer and gap >= GAP_MIN and not at_end and not is_usual:
                return False
            start = after
    return bool(_lost(seqs, found))


def files_of(path: Path) -> list[Path]:
    """Those in which messages are, and .config."""
    wanted = re.compile(r"journal\.jif|[0-9]+\.(idx|qi|qs|rdq)|\.config")
    found = [file for file in sorted(path.glob("**/*")) if wanted.fullmatch(file.name)]
    return [file for file in found if "transient" not in str(file)]
