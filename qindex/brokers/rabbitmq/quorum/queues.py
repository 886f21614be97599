"""The quorum queues of a node's directory, or of several nodes of one cluster, each under its name.

A queue may have a member on each of several nodes. Logs of members are never mixed: the one that
has the newest entry of the newest term has all that the others have, and is taken. What another one
alone would have given is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from qindex.brokers.rabbitmq.definitions import Definition
from qindex.brokers.rabbitmq.message import MessageError, is_stranger, text
from qindex.brokers.rabbitmq.quorum.held import Held
from qindex.brokers.rabbitmq.quorum.member import replay
from qindex.brokers.rabbitmq.quorum.message import Message, read
from qindex.brokers.rabbitmq.quorum.names import Name, name_of
from qindex.brokers.rabbitmq.quorum.outcome import Outcome
from qindex.brokers.rabbitmq.quorum.presence import Member, members_in
from qindex.brokers.rabbitmq.quorum.strangers import tell_strangers
from qindex.brokers.rabbitmq.ra.system import Server
from qindex.brokers.reader import Account
from qindex.brokers.tree import Finding, Findings, Tree
from qindex.words import many


@dataclass(slots=True)
class QuorumQueue:
    name: str
    vhost_name: str
    outcome: Outcome
    findings: Findings
    node: str = ""  # whose files were taken
    members: int = 1  # of the queue in its cluster, as far as it is known
    here: int = 1  # of these, those whose files were given
    arguments: dict[str, Any] = field(default_factory=dict)
    unreadable: int = 0
    vanishes: bool = False

    @property
    def group(self) -> str:
        return self.vhost_name

    @property
    def where(self) -> str:
        return self.outcome.server.where

    @property
    def segments(self) -> int:
        return self.outcome.server.segments

    @property
    def account(self) -> Account:
        outcome = self.outcome
        marks = {
            "redelivered": outcome.redelivered,
            "expiring": outcome.expiring,
            "delayed": len(outcome.delayed),
            "not known to be committed": self.uncommitted,
            "doubtful": sum(1 for index in outcome.indexes if index in outcome.doubtful),
        }
        return Account(
            found=outcome.found - len(outcome.dead),  # those are found in a queue of their own
            live=len(outcome.indexes),
            live_body_bytes=outcome.body_bytes,
            gone={name: count for name, count in outcome.gone.items() if count},
            lost=dict(outcome.lost),
            marks={name: count for name, count in marks.items() if count},
            lost_is_known=outcome.lost_is_known,
        )

    @property
    def has_majority(self) -> bool:
        """So many members are here that nothing that was confirmed can be elsewhere only."""
        return 2 * self.here > self.members

    @property
    def uncommitted(self) -> int:
        """Messages that this member has and perhaps no other: of several members' queues only."""
        if self.members < 2:
            return 0
        applied = self.outcome.server.last_applied
        return sum(1 for index in self.outcome.indexes if index > applied)

    def suspicions(self) -> list[Finding]:
        """What is suspected of this queue, or of all logs of its node."""
        system = self.where.rpartition("/")[0]
        return [
            each
            for each in self.findings.kept
            if each.severity == "suspected"
            and (each.where.startswith(self.where) or each.where == f"{system}/meta.dets")
        ]

    def messages(self) -> Iterator[Message]:
        """The live messages in the order in which consumers would get them.

        One whose entry is damaged is left out, counted in `unreadable`, and becomes a finding.
        """
        self.unreadable = 0
        for held in self.outcome.messages():
            message = self._read(held)
            if message is not None:
                yield message

    def _read(self, held: Held, reason: str | None = None) -> Message | None:
        log = self.outcome.server.log
        try:
            message = read(log, held, reason)
        except MessageError as error:
            self.unreadable += 1
            where = self.where or log.uid
            self.findings.damage("message lost", where, 0, f"entry {held.index}: {error}")
            return None
        message.counts = self.outcome.counts.get(held.index)
        if self.vhost_name and is_stranger(message.exchange, message.routing_keys, self.name):
            why = f"a message was sent to the queue {message.routing_keys[0]}, by the default"
            self.findings.suspected("another queue's", message.file, 0, f"{why} exchange")
        return message

    def dead_letters(self) -> Iterator[Message]:
        """What the broker still has to publish to the dead letter exchange: it expires no more."""
        for reason, held in self.outcome.dead:
            message = self._read(held, reason)
            if message is not None:
                message.expiry_us = None
                yield message

    def facts(self) -> dict[str, Any]:
        """What only a quorum queue has."""
        outcome = self.outcome
        return {
            "queue": self.name,
            "vhost": self.vhost_name,
            "uid": outcome.server.uid,
            "node": self.node,
            "members": self.members,
            "machine_version": outcome.version,
            "snapshot_index": outcome.snapshot.index if outcome.snapshot else None,
            "last_index": outcome.server.last_index,
            "last_applied": outcome.server.last_applied,
            "exact": outcome.exact,
            "why_not_exact": outcome.why,
            "entries_missing": outcome.missing + outcome.missing_below,
            "lost_is_known": outcome.lost_is_known,
            "settled_behind_what_is_missing": outcome.maybe,
            "given_back_in_an_unknown_order": outcome.unordered,
            "delivery_counts_not_sure": len(outcome.counts),
            "live_that_may_be_others": outcome.others,
            "dead": len(outcome.dead),
            **{name: count for name, count in self.account.marks.items() if name != "redelivered"},
        }


@dataclass(slots=True)
class DeadLetterQueue:
    """What a node passes on to the dead letter exchange when it starts: in no count, and not lost.

    These are at-least-once dead letters that wait for that, and messages that have been delivered
    too often when those that had them are gone. The same goes for an at-most-once dead letter if
    the node had not noted its entry as applied: it may have published that one before.
    """

    queue: QuorumQueue
    unreadable: int = 0
    vanishes: bool = False

    @property
    def name(self) -> str:
        return f"{self.queue.name} (dead letters)"

    @property
    def group(self) -> str:
        return self.queue.group

    @property
    def account(self) -> Account:
        dead = self.queue.outcome.dead
        size = sum(message.size for _, message in dead)
        return Account(found=len(dead), live=len(dead), live_body_bytes=size)

    def messages(self) -> Iterator[Message]:
        """In the order in which the broker would publish them."""
        before = self.queue.unreadable
        yield from self.queue.dead_letters()
        self.unreadable = self.queue.unreadable - before


def read_quorum_queues(
    tree: Tree,
    defined: Iterable[Definition],
    findings: Findings,
    others: Iterable[Tree] = (),
    deleted: list[Member] | None = None,
) -> list[QuorumQueue | DeadLetterQueue]:
    """Every quorum queue with files here, read once.

    `others` are the directories of other nodes of the cluster. What is left of deleted queues goes
    into `deleted`. Cost: each log is read once.
    """
    definitions = {(each.vhost, each.name): each for each in defined}
    by_name: dict[Name, list[Member]] = {}
    names_in: list[tuple[Tree, set[Name]]] = []
    for each in (tree, *others):
        names_in.append((each, set()))
        own = findings if each is tree else each.findings
        gone = [] if deleted is None or each is not tree else deleted
        for member in members_in(each, definitions, own, gone):
            name = name_of(member.server, definitions)
            if name is None:
                name = (b"", member.server.uid.encode())
                text_ = "nothing here says which queue this is: the directory's name is taken"
                own.damage("name", member.server.where, 0, text_)
            by_name.setdefault(name, []).append(member)
            names_in[-1][1].add(name)
    _tell_strangers(names_in)
    found: list[QuorumQueue | DeadLetterQueue] = []
    for name in sorted(by_name):
        queue = _read(name, by_name[name])
        if queue is not None:
            if name in definitions:
                queue.arguments = definitions[name].arguments
            found.append(queue)
            if queue.outcome.dead:
                found.append(DeadLetterQueue(queue))
    return found


def _tell_strangers(names_in: list[tuple[Tree, set[Name]]]) -> None:
    """A directory that was given as a member's and has no queue in common with the others."""
    for at, (tree, names) in enumerate(names_in[1:], 1):
        elsewhere = set().union(*(each for n, (_, each) in enumerate(names_in) if n != at))
        if not names & elsewhere:
            text_ = "no quorum queue that it has is on another node that was given: perhaps it is"
            text_ += " no member of this cluster"
            tree.findings.suspected("member", "", 0, text_)


def _compare_with_notes(queue: QuorumQueue, rest: list[Member]) -> None:
    """What another member had applied was committed: the best log has to go so far.

    One whose own log does not is damaged: it may have had more than all others.
    """
    best = queue.outcome.server
    for member in rest:
        server = member.server
        if not server.is_noted or _are_strangers(best, server):
            continue
        missing = server.last_applied - best.last_index
        had = f"{member.node} had applied entry {server.last_applied}"
        if missing > 0:
            counted = many(missing, "entry is", "entries are")
            text_ = f"{counted} missing at the end of the log of {queue.name}: {had}, the best log"
            text_ += f" here has {best.last_index}"
            queue.outcome.doubt(text_)
            queue.outcome.add_missing_end(missing)
            member.findings.damage("missing", server.where, 0, text_)
        elif server.last_applied > server.last_index:
            text_ = f"{had} of {queue.name}, and its own log ends with {server.last_index}: what it"
            text_ += f" had behind {best.last_index}, if anything, is lost"
            member.findings.suspected("missing", server.where, 0, text_)


def _are_strangers(one: Server, other: Server) -> bool:
    """Whether each was started without the other one, as far as their configurations tell."""
    match one.config, other.config:
        case ({"id": mine, "initial_members": [*known]}, {"id": its, "initial_members": [*others]}):
            return its not in known and mine not in others
    return False


def _read(name: Name, members: list[Member]) -> QuorumQueue | None:
    """The queue by its best member."""
    members = sorted(members, key=lambda member: member.newest, reverse=True)
    best, *rest = members
    outcome = replay(best.server, best.findings)
    while outcome.deleted:
        best.findings.note(
            "deleted", best.server.where, 0, "the log ends with the queue's deletion"
        )
        if all(member.node != best.node for member in rest):
            return None
        members = rest
        best, *rest = members  # another queue of this name, declared before or after that one
        outcome = replay(best.server, best.findings)
    if name[0]:  # else nothing says which queue it is
        tell_strangers(name, outcome, best.findings)
    queue = QuorumQueue(text(name[1]), text(name[0]), outcome, best.findings, best.node)
    queue.here = here = len({member.node for member in members})
    queue.members = max(outcome.members, here)
    if not queue.has_majority:
        text_ = (
            f"{here} of the {queue.members} members of {queue.name} are here: others may have newer"
        )
        text_ += f" messages; {queue.uncommitted} of these are not known to be committed"
        best.findings.suspected("sole member", best.server.where, 0, text_)
    _compare_with_notes(queue, rest)
    live = set(outcome.indexes) if rest else set()
    for member in rest:
        where = member.server.where
        if member.node == best.node and not member.server.log.runs:
            text_ = f"a second, empty directory of {queue.name}: {best.server.uid} is taken"
            member.findings.note("second directory", where, 0, text_)
            continue
        own = set(replay(member.server, Findings()).indexes)
        if member.node != best.node and _are_strangers(best.server, member.server):
            text_ = f"{queue.name} of {best.node} does not know this member, nor this one that:"
            text_ += f" perhaps it is a queue of another cluster; its {many(len(own), 'message')}"
            text_ += " that would be live are left out"
            member.findings.suspected("member", where, 0, text_)
            continue
        if member.node == best.node:
            text_ = (
                f"a second directory of {queue.name}: {best.server.uid} has the newer log and is"
            )
            text_ += f" taken; {many(len(own), 'message')} that would be live in this one, not"
            member.findings.suspected("second directory", where, 0, text_)
            continue
        text_ = f"{queue.name} is taken from {best.node}: with this member alone"
        text_ += f" {len(live - own)} of its {len(live)} messages would be missing"
        text_ += f" and {len(own - live)} that are settled would come back"
        member.findings.note("lagging member", where, 0, text_)
    return queue
