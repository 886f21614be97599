"""A directory of Ra: who its servers are, and what is stored for each.

::

    DIR/NNNNNNNN.wal                the log that all servers share; 16 digits from Ra 2.16 on
    DIR/names.dets  meta.dets       {Name, Uid}; {Uid, Term, VotedFor, LastApplied}
    DIR/UID/config                  what the server was started with
    DIR/UID/NNNNNNNN.segment        its older entries
    DIR/UID/snapshots/, checkpoints/

The place that `config` names is not looked at: a directory may be a copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from qindex.brokers.rabbitmq.erlang_files import dets_objects, is_dets
from qindex.brokers.rabbitmq.ra.config import TEXT_BYTES_MAX, TextError, read_term
from qindex.brokers.rabbitmq.ra.log import Log
from qindex.brokers.rabbitmq.ra.runs import WalRun
from qindex.brokers.rabbitmq.ra.segments import SegmentCache, SegmentFile, SegmentRun, segment_files
from qindex.brokers.rabbitmq.ra.snapshot import Snapshot, read_snapshots
from qindex.brokers.rabbitmq.ra.strays import joined, settle
from qindex.brokers.rabbitmq.ra.wal import Record, Stretch, WalFile
from qindex.brokers.tree import Findings, Tree

_WAL: Final = re.compile(r"([0-9]{8}|[0-9]{16})\.wal")
_UID: Final = re.compile(r"[0-9A-Za-z_=-]{1,255}")


@dataclass(slots=True)
class Server:
    """One server: a quorum queue's member on this node, for example."""

    uid: str
    where: str  # its folder; "" if it has none, because it was deleted
    log: Log
    name: str | None = None  # an atom's text
    config: dict[Any, Any] | None = None
    current_term: int = 0
    last_applied: int = 0  # a lower bound: it is written now and then
    is_noted: bool = False  # meta.dets has the server: last_applied is what a node would find
    segments: int = 0  # files
    snapshots: list[Snapshot] = field(default_factory=list)

    @property
    def last_index(self) -> int:
        """Of the log, or of a snapshot if that is newer."""
        return max([self.log.last, *(each.index for each in self.snapshots)])


@dataclass(slots=True)
class System:
    """A directory of Ra. `servers` by uid: those with a folder, and those only in the log."""

    tree: Tree
    where: str
    findings: Findings
    servers: dict[str, Server] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # uid by name, as names.dets has them
    wal_files: list[str] = field(default_factory=list)
    wal_records: int = 0
    has_names: bool = False  # names.dets is a table, also if it is an empty one
    has_meta: bool = False  # meta.dets

    def path(self, name: str) -> str:
        return f"{self.where}/{name}" if self.where else name


def is_system(tree: Tree, where: str) -> bool:
    """Whether the folder has files of Ra, by their names."""
    try:
        names = tree.files(where)
    except OSError:
        return False
    return any(_WAL.fullmatch(name) for name in names) or {"names.dets", "meta.dets"} <= {*names}


def open_system(tree: Tree, where: str, findings: Findings) -> System:
    """Reads everything but the data of entries. Linear in the size of the shared log."""
    system = System(tree, where, findings)
    cache = SegmentCache(tree)
    for uid in filter(_UID.fullmatch, tree.folders(where)):
        server = Server(uid, system.path(uid), Log(uid, tree, findings))
        system.servers[uid] = server
        server.config = _config(tree, server.where, findings)
        server.snapshots = read_snapshots(tree, server.where, findings)
        _read_segments(server, tree, cache, findings)
    _read_wal(system)
    _read_names(system)
    return system


def _config(tree: Tree, where: str, findings: Findings) -> dict[Any, Any] | None:
    file = f"{where}/config"
    data = tree.read(file, TEXT_BYTES_MAX)
    if data is None:
        return None
    try:
        term = read_term(data)
    except TextError as error:
        findings.damage("config", file, 0, f"it cannot be read: {error}")
        return None
    if not isinstance(term, dict):
        findings.damage("config", file, 0, "it is not a server's configuration")
        return None
    match term:
        case {"uid": bytes(uid)} if uid.decode("latin-1") != where.rpartition("/")[2]:
            text = f"it is that of another server, {uid.decode('latin-1')}: it is not used"
            findings.damage("config", file, 0, text)
            return None
    return term


def _read_segments(server: Server, tree: Tree, cache: SegmentCache, findings: Findings) -> None:
    names = segment_files(tree.files(server.where))
    server.segments = len(names)
    for name in names:
        file = f"{server.where}/{name}"
        source = tree.kept_open(file)
        if source is None or source.size <= 8:
            continue
        run: SegmentRun | None = None
        segment = SegmentFile(source, findings)
        regular = segment.regular()
        if regular is not None:
            term, columns = regular
            cache.keep(file, term, columns)
            run = SegmentRun(cache, file, term, columns.indexes[0])
            run.add_all(columns)
            server.log.append(run)
            continue
        for slot in segment.rows():
            if run is None or slot.term != run.term or slot.index <= run.last:
                if run is not None:
                    server.log.append(run)
                run = SegmentRun(cache, file, slot.term, slot.index)
            run.add(slot.index)
        if run is not None:
            server.log.append(run)


def _read_names(system: System) -> None:
    """names.dets and meta.dets: of every server, also one that only the shared log tells of."""
    for term in _dets(system, "names.dets"):
        match term:
            case (str(name), bytes(uid)):
                system.names[name] = uid.decode("latin-1")
    for term in _dets(system, "meta.dets"):
        match term:
            case (bytes(uid), current, _, applied):  # each may still be undefined
                server = system.servers.get(uid.decode("latin-1"))
                if server is not None:
                    server.is_noted = True
                    server.current_term = current if isinstance(current, int) else 0
                    server.last_applied = applied if isinstance(applied, int) else 0
    names = {uid: name for name, uid in system.names.items()}
    for server in system.servers.values():
        server.name = names.get(server.uid)
        match server.config:
            case {"id": (str(name), _)} | {"cluster_name": str(name)}:
                server.name = name


def _dets(system: System, name: str) -> Iterable[Any]:
    source = system.tree.try_open(system.path(name))
    if source is None:
        text = "the file is not there"
        system.findings.note("missing", system.path(name), 0, text)
        return
    with source:
        if is_dets(source):
            system.has_names |= name == "names.dets"
            system.has_meta |= name == "meta.dets"
        yield from dets_objects(source, system.findings)


def _read_wal(system: System) -> None:
    tree = system.tree
    names = sorted(filter(_WAL.fullmatch, tree.files(system.where)), key=lambda n: int(n[:-4]))
    system.wal_files = [system.path(name) for name in names]
    if not names and system.servers:
        text = "there is no write-ahead log: what it had of each queue is lost"
        system.findings.damage("missing", system.path("*.wal"), 0, text)
    for file in system.wal_files:
        source = tree.try_open(file)
        if source is None:
            continue
        with source:
            wal = WalFile(source, system.findings)
            _append(system, file, wal.pieces(), wal.breaks)


def _append(
    system: System, file: str, pieces: Iterator[Record | Stretch], breaks: list[int]
) -> None:
    """Sorts the records of one file by their servers. `breaks` are those of its WalFile."""
    runs: dict[bytes, WalRun] = {}
    logs: dict[bytes, list[WalRun]] = {}
    count = 0
    for piece in pieces:
        if isinstance(piece, Stretch):
            run = runs.get(piece.uid)
            if run is None or not run.goes_on(piece.first, piece.term):
                run = runs[piece.uid] = WalRun(file, piece.term, piece.first)
                logs.setdefault(piece.uid, []).append(run)
            run.extend(piece.offsets, piece.sizes)
            count += len(piece.offsets)
            continue
        uid, index, term, offset, size, sound, _restarts = piece
        count += 1
        run = runs.get(uid)
        if run is None or index != run.last + 1 or term != run.term or not (sound and run.sound):
            run = runs[uid] = WalRun(file, term, index, sound)
            logs.setdefault(uid, []).append(run)
        run.last = index
        run.offsets.append(offset)
        run.sizes.append(size)
    system.wal_records += count
    settle(system, file, logs, breaks)
    for uid, found in logs.items():
        server = _server(system, uid)
        for each in joined(found):
            server.log.append(each)


def _server(system: System, uid: bytes) -> Server:
    name = uid.decode("latin-1")
    if name not in system.servers:
        system.servers[name] = Server(name, "", Log(name, system.tree, system.findings))
    return system.servers[name]
