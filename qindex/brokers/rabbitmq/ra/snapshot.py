"""Ra's snapshots and checkpoints: the state of a machine after the entry of some index.

::

    snapshots/TERM_INDEX/snapshot.dat      16 hexadecimal digits each; the log below may be gone
    checkpoints/TERM_INDEX/snapshot.dat    the same; the log below is still there

    "RASN" | version:8 = 1 | crc:32 | meta_bytes:32 | meta | state

meta is the term #{index, term, cluster, machine_version}, state the machine's. The checksum is the
CRC-32 of all that follows it.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final

from qindex.brokers.rabbitmq import erlang
from qindex.brokers.tree import Findings, Source, Tree

_NAME: Final = re.compile(r"([0-9A-F]{16})_([0-9A-F]{16})")
_FOLDERS: Final = ("snapshots", "checkpoints", "recovery_checkpoint")
_HEAD_BYTES: Final = 13
_META_BYTES_MAX: Final = 1 << 20
_BLOCK: Final = 1 << 20
STATE_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One that can be read. The state is not read yet: `state()`."""

    tree: Tree
    where: str
    index: int
    term: int
    machine_version: int
    offset: int  # of the state
    size: int
    sound: bool  # False: the checksum does not match
    members: int  # of the cluster; 0: it does not tell
    truncates: bool  # a snapshot: the log below it may be gone; False: a checkpoint

    def state(self) -> bytes:
        """The machine's state as an Erlang term: all of it at once. Empty if it is too long."""
        source = self.tree.kept_open(self.where)
        if source is None or self.size > STATE_BYTES_MAX:
            return b""
        return source.read(self.offset, self.size)


def read_snapshots(tree: Tree, where: str, findings: Findings) -> list[Snapshot]:
    """Those of the server in this folder, the one to start from first.

    That is the newest sound one; those with a wrong checksum stand behind all that are sound.
    """
    found: list[Snapshot] = []
    for folder in _FOLDERS:
        try:
            names = tree.folders(f"{where}/{folder}")
        except OSError:
            continue
        for name in filter(_NAME.fullmatch, names):
            file = f"{where}/{folder}/{name}/snapshot.dat"
            source = tree.try_open(file)
            if source is None:
                findings.damage("snapshot", file, 0, "the snapshot is not in its folder")
                continue
            with source:
                snapshot = _read(tree, source, folder == "snapshots", findings)
            if snapshot is not None:
                found.append(snapshot)
    return sorted(found, key=lambda each: (each.sound, each.index, each.term), reverse=True)


def _read(tree: Tree, source: Source, truncates: bool, findings: Findings) -> Snapshot | None:
    head = source.read(0, _HEAD_BYTES)
    where = source.where
    if len(head) < _HEAD_BYTES or head[:5] != b"RASN\1":
        findings.damage("snapshot", where, 0, "this is no snapshot of version 1")
        return None
    crc, meta_bytes = int.from_bytes(head[5:9], "big"), int.from_bytes(head[9:13], "big")
    sound = _crc(source) == crc
    if not sound:
        findings.damage("snapshot", where, 5, "the checksum does not match")
    meta = source.read(_HEAD_BYTES, min(meta_bytes, _META_BYTES_MAX))
    try:
        term = erlang.decode(meta)
    except erlang.ErlangError as error:
        findings.damage("snapshot", where, _HEAD_BYTES, f"what it is of cannot be read: {error}")
        return None
    match term:
        case {"index": int(index), "term": int(number), **rest} if _are_places(index, number):
            version = rest.get("machine_version", 0)
        case _:
            findings.damage("snapshot", where, _HEAD_BYTES, "it does not say what it is of")
            return None
    start = _HEAD_BYTES + meta_bytes
    size = source.size - start
    if size > STATE_BYTES_MAX:
        text = f"a state of {size} bytes, more than {STATE_BYTES_MAX}: it is not read"
        findings.damage("snapshot", where, start, text)
        return None
    version = version if isinstance(version, int) else 0
    cluster = rest.get("cluster")
    members = len(cluster) if isinstance(cluster, (list, dict)) else 0
    return Snapshot(tree, where, index, number, version, start, size, sound, members, truncates)


def _are_places(*numbers: int) -> bool:
    return all(erlang.is_long(number) and number >= 0 for number in numbers)


def _crc(source: Source) -> int:
    value, pos = 0, 9
    while pos < source.size:
        data = source.read(pos, _BLOCK)
        if not data:
            break
        value = zlib.crc32(data, value)
        pos += len(data)
    return value
