"""Which servers of a node's Ra directory are members of queues that are still there.

A deleted queue leaves no directory, but its entries stay in the shared log until that is flushed.
A lost directory looks the same. What tells both apart, the best first: the log's own end, which
says that the queue was deleted; `names.dets`; the node's definitions. Where none of them can be
read, nothing is called deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from qindex.brokers.rabbitmq.erlang import ErlangError
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.quorum.entries import read_step
from qindex.brokers.rabbitmq.quorum.names import Name, name_of
from qindex.brokers.rabbitmq.ra.system import Server, System, is_system, open_system
from qindex.brokers.tree import Findings, Tree
from qindex.words import many

FOLDER: Final = "quorum"


@dataclass(slots=True)
class Member:
    """One node's files of a queue."""

    node: str
    server: Server
    findings: Findings

    @property
    def newest(self) -> tuple[int, int]:
        """Term and index of the last entry, by which the best member is told."""
        snapshots = [(each.term, each.index) for each in self.server.snapshots if each.sound]
        return max([(self.server.log.last_term, self.server.log.last), *snapshots])


def members_in(
    tree: Tree, defined: Collection[Name], findings: Findings, deleted: list[Member]
) -> Iterator[Member]:
    """The members of a node's queues. What is left of deleted ones goes into `deleted`.

    `defined` are the quorum queues of the node's tables; empty: these are not there, or have none.
    """
    try:
        nodes = tree.folders(FOLDER)
    except OSError:
        return
    for node in nodes:
        where = f"{FOLDER}/{node}"
        if not is_system(tree, where):
            continue
        system = open_system(tree, where, findings)
        here = {name_of(each, defined) for each in system.servers.values() if each.where}
        found = []
        for server in system.servers.values():
            member = Member(node, server, findings)
            if _belongs(system, server, here, defined, findings):
                found.append(member)
            elif server.log.runs:
                deleted.append(member)
        _tell_without_notes(system, found, findings)
        yield from found


def _belongs(
    system: System,
    server: Server,
    here: Collection[Name | None],
    defined: Collection[Name],
    findings: Findings,
) -> bool:
    """Whether the server is one of a queue that is still there. `here`: names with a directory."""
    told = server.log.runs or server.snapshots or server.config or server.segments
    if server.where:
        return bool(told)
    if server.uid in system.names.values():
        text_ = f"the directory of {server.uid} is not there: only the shared log tells of it"
        findings.damage("missing", system.path(server.uid), 0, text_)
        return True
    if server.uid.startswith("?"):
        return False
    name = name_of(server, ())
    whose = f"the queue {text(name[1])}" if name else "a queue"
    counted = many(len(server.log), "entry", "entries")
    is_defined = name in defined and name not in here
    is_told = system.has_names or bool(defined)
    if _ends_with_deletion(server) or (is_told and not is_defined):
        text_ = f"{counted} of {whose}, which was deleted ({server.uid}): --orphans takes them"
        findings.note("deleted", server.log.runs[0].where, 0, text_)
        return False
    why = "the queue may have been deleted, but no table here says so"
    if is_defined:
        why = "the queue is defined"
    text_ = f"the directory of {whose} ({server.uid}) is not there: {why}; {counted} of the shared"
    text_ += " log are all that is read of it"
    findings.damage("missing", system.path(server.uid), 0, text_)
    return True


def _ends_with_deletion(server: Server) -> bool:
    entry = server.log.entry(server.log.last)
    with contextlib.suppress(ErlangError):
        return entry is not None and entry.sound and read_step(entry).deletes
    return False


def _tell_without_notes(system: System, members: list[Member], findings: Findings) -> None:
    """A server's term stands in meta.dets, synced, before its log has an entry of that term.

    Without it nobody knows whether the log was longer: a cut between two entries leaves no trace.
    """
    silent = [member.server for member in members if member.server.last_index > 0]
    unnoted = [server for server in silent if not server.is_noted]
    table = system.path("meta.dets")
    unknown = "up to which entry the node had come is not known, and {} may have been longer"
    if unnoted and len(unnoted) == len(silent):
        why = "it names none of the queues" if system.has_meta else "it is not there, or no table"
        logs = many(len(unnoted), "log")
        findings.suspected("no notes", table, 0, f"{why}: {unknown.format(logs)}")
        return
    for server in unnoted:
        text_ = f"meta.dets does not name it: {unknown.format('its log')}"
        findings.suspected("no notes", server.where, 0, text_)
