"""Damages each file of dead nodes with quorum queues and streams in every way: what is then told.

The rules: no exception; if anything differs from what the sound directory gives, it is reported;
and one flipped bit costs no more than what it is in: an entry, or a batch packed as a whole.
What nobody can see is left out: a shared log that ends between two records, as if the node had
been killed earlier, and single numbers in meta.dets, which have no checksum and decide an order.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.ra.wal import WalFile
from qindex.brokers.reader import total
from qindex.brokers.tree import Findings, Tree

from .rabbitmq_sweep import Damage, damages

Rows = dict[tuple[str, str], list[tuple[Any, ...]]]
FOLDERS = ("quorum", "coordination", "stream")
BATCH = 8  # messages that a client of the fixtures packed together, and more


@dataclass(frozen=True)
class Told:
    rows: Rows
    findings: list[str]  # what is no note
    uncounted: int  # messages that are lost or unreadable

    def says_more_than(self, other: Told) -> bool:
        return self.findings != other.findings or self.uncounted != other.uncounted


def nodes_of(path: Path) -> list[Path]:
    """The node itself, or those of a cluster beneath it."""
    if any((path / folder).is_dir() for folder in FOLDERS):
        return [path]
    found = {above.parent for folder in FOLDERS for above in path.glob(f"*/*/{folder}")}
    return sorted(found)


def read(path: Path) -> Told:
    """What is given, and what is reported."""
    rows: Rows = {}
    first, *members = nodes_of(path)
    with open_at(first, members) as node:
        for queue in node.queues:
            rows[queue.group, queue.name] = [
                (
                    hashlib.sha256(message.body).digest(),
                    message.exchange,
                    tuple(message.routing_keys),
                    message.redelivered,
                    message.expiry_us,
                    getattr(message, "delivery_count", None),
                )
                for message in queue.messages()
            ]
            assert queue.account.adds_up
        unreadable = sum(queue.unreadable for queue in node.queues)
        told = [str(finding) for finding in node.findings if finding.severity != "note"]
        lost = sum(total(node.queues).lost.values())
    return Told(rows, told, unreadable + lost)


def boundaries(data: bytes) -> list[int]:
    """Where terms and chunks begin, and what may be one: behind a checksum or a length."""
    return [at for at in range(1, len(data)) if data[at] == 131 or data[at : at + 4] == b"\x50\0"]


def files_of(path: Path) -> list[Path]:
    found = sorted({file for folder in FOLDERS for file in path.glob(f"**/{folder}/**/*")})
    return [file for file in found if file.is_file() and file.stat().st_size]


def sweep(path: Path, files: list[Path], dice: Random, few: int) -> Iterator[str]:
    """What breaks a rule. Files are named beneath `path`, which is one node or all of a cluster."""
    truth = read(path)
    for file in files:
        data = file.read_bytes()
        ends = ends_of(path, file)
        starts = dice.sample(every, min(few, len(every))) if (every := boundaries(data)) else []
        for damage in (*damages(data, starts, dice, few), *shuffles(data, dice, few)):
            if damage.data is None:
                file.unlink()
            else:
                file.write_bytes(damage.data)
            place = f"{file.relative_to(path)} {damage}"
            is_whole = damage.what in ("removed", "cut") or damage.end - damage.start == len(data)
            is_number = file.name == "meta.dets" and not is_whole
            is_seen = not is_number and not _is_end(damage, data, ends)
            yield from (f"{place}: {broken}" for broken in _broken(truth, path, damage, is_seen))
        file.write_bytes(data)


def shuffles(data: bytes, dice: Random, few: int) -> Iterator[Damage]:
    """Bytes that are gone, that stand twice, that stand elsewhere, or that are others."""
    size = len(data)
    yield Damage("doubled", 0, size, data + data)
    yield Damage("lengthened", size, size, data + dice.randbytes(900))
    for _ in range(few):
        start, other = dice.randrange(size), dice.randrange(size)
        end = min(size, start + dice.randrange(1, 5000))
        rest, length = data[end:], end - start
        yield Damage("dropped", start, end, data[:start] + rest)
        yield Damage("repeated", start, end, data[:end] + data[start:])
        yield Damage(
            "moved", start, end, (data[:start] + data[other : other + length] + rest)[:size]
        )
        yield Damage("diced", start, end, data[:start] + dice.randbytes(length) + rest)


def ends_of(path: Path, file: Path) -> set[int]:
    """Where the records of a sound shared log end."""
    if file.suffix != ".wal":
        return set()
    findings = Findings()
    tree = Tree(path, findings)
    with tree.open(str(file.relative_to(path))) as source:
        found = {record.offset + record.size for record in WalFile(source, findings).records()}
    tree.close()
    return found


def _is_end(damage: Damage, data: bytes, ends: set[int]) -> bool:
    """Whether the log ends here between two records, or in zeros behind one."""
    return (
        damage.start in ends
        and damage.what in ("cut", "zeroed", "dropped")
        and damage.end == len(data)
    )


def _broken(truth: Told, path: Path, damage: Damage, is_seen: bool) -> Iterator[str]:
    told = read(path)
    why = "; ".join(told.findings[:3])
    if is_seen and not told.says_more_than(truth) and told.rows != truth.rows:
        yield f"nothing is said: {[k for k in truth.rows if told.rows.get(k) != truth.rows[k]]}"
    for key, rows in truth.rows.items() if damage.what == "flipped" else ():
        if key not in told.rows:
            yield f"{key} is gone: {why}"
            continue
        bodies = Counter(row[0] for row in rows) - Counter(row[0] for row in told.rows[key])
        if bodies.total() > BATCH:
            yield f"{bodies.total()} of {len(rows)} messages of {key} are lost: {why}"
