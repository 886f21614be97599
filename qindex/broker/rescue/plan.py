"""What of a dead node is taken over, and what cannot be: each problem has a word that names it.

A problem that `--without` does not name stops the rescue before anything is written. So nobody
serves half a node without knowing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from qindex.broker.errors import Refused
from qindex.broker.exchanges import TYPES
from qindex.broker.limits import limits_of
from qindex.brokers.rabbitmq.accounts import Accounts, read_accounts
from qindex.brokers.rabbitmq.node import Node
from qindex.brokers.rabbitmq.streams.stream import Stream
from qindex.brokers.rabbitmq.topology import Policy, Topology
from qindex.brokers.rabbitmq.topology_files import read_topology
from qindex.brokers.reader import DeadQueue
from qindex.names import as_bytes, is_unicode, written
from qindex.words import many

DAMAGE: Final = "damage"
DEFINITIONS: Final = "definitions"
POLICIES: Final = "policies"
_SHOWN_MAX: Final = 5
_ABOUT_REPLICAS: Final = (b"ha-", b"queue-mode", b"queue-master-locator", b"queue-version",
                          b"queue-leader-locator", b"initial-cluster-size")  # fmt: skip


class RescueRefused(ValueError):
    """Something of the node cannot be taken over, and nobody said that it may be left out.

    `problems` has a line for each: the option that leaves it out, and why.
    """

    def __init__(self, text: str, problems: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.problems = list(problems)


@dataclass(slots=True)
class Problem:
    """`word` is what --without has to name."""

    word: str
    text: str


@dataclass(slots=True)
class Taken:
    """A queue that is taken over."""

    queue: DeadQueue
    word: str
    arguments: dict[str, Any]
    auto_delete: bool


@dataclass(slots=True)
class Plan:
    node: Node
    accounts: Accounts
    topology: Topology
    queues: dict[str, dict[str, Taken]] = field(default_factory=dict)  # by virtual host, by name
    without: frozenset[str] = frozenset()
    remarks: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(each.queue.account.live for own in self.queues.values() for each in own.values())


def make_plan(node: Node, without: Iterable[str]) -> Plan:
    """What is taken over of an open node. RescueRefused: see the module. Cost: the definitions."""
    words = frozenset(without)
    accounts = read_accounts(node.tree, node.metadata, node.log)
    topology = read_topology(node.tree, node.log)
    plan = Plan(node, accounts or Accounts(), topology, without=words)
    problems = [*_of_definitions(plan, accounts), *_of_queues(plan), *_of_files(node)]
    left = [problem for problem in problems if problem.word not in words]
    if left:
        raise RescueRefused(
            f"not all of {node.tree.path} can be served, and nothing was written: name what may be "
            "left out",
            [f"--without {_quoted(problem.word)}: {problem.text}" for problem in left],
        )
    _check_words(plan, problems)
    return plan


def _quoted(word: str) -> str:
    return word if word.replace("/", "").replace(".", "").isalnum() else f"'{word}'"


def _check_words(plan: Plan, problems: list[Problem]) -> None:
    """Each word has to mean something: a typing error must not leave something in or out."""
    known = {problem.word for problem in problems} | {DAMAGE, DEFINITIONS, POLICIES}
    known |= {word_of(queue.group, queue.name) for queue in plan.node.queues}
    for word in sorted(plan.without - known):
        near = get_close_matches(word, known, 1)
        hint = f"; is it {near[0]!r}?" if near else ""
        raise RescueRefused(f"--without {_quoted(word)}: nothing of the node is called that{hint}")


def word_of(vhost: str, name: str) -> str:
    """What names a queue or an exchange: as `qindex ls` does."""
    return written(name if vhost == "/" else f"{vhost}/{name}")


# --- definitions ------------------------------------------------------------------------------


def _of_definitions(plan: Plan, accounts: Accounts | None) -> Iterator[Problem]:
    topology = plan.topology
    if accounts is None or not plan.node.has_definitions:
        yield Problem(
            DEFINITIONS,
            "users, exchanges, bindings and arguments of queues are not in the directory; there "
            "would be queues and their messages, and the user of a new directory",
        )
    elif topology.doubt:
        yield Problem(DEFINITIONS, topology.doubt)
    policies = [*_that_matter(topology.policies), *_that_matter(topology.operator_policies)]
    if policies:
        shown = ", ".join(islice(policies, _SHOWN_MAX)) + (" ..." if policies[_SHOWN_MAX:] else "")
        yield Problem(POLICIES, f"{many(len(policies), 'policy')} would not be in force: {shown}")
    for (vhost, name), exchange in sorted(topology.exchanges.items()):
        word = word_of(_text(vhost), _text(name))
        if exchange.type not in TYPES:
            yield Problem(word, f"an exchange of the type {exchange.type}, which is not known here")


def _that_matter(policies: dict[bytes, list[Policy]]) -> list[str]:
    return [
        written(_text(policy.name))
        for own in policies.values()
        for policy in own
        if any(not key.startswith(_ABOUT_REPLICAS) for key in policy.definition)
    ]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


# --- queues -----------------------------------------------------------------------------------


def _of_queues(plan: Plan) -> Iterator[Problem]:
    for queue in plan.node.queues:
        word = word_of(queue.group, queue.name)
        if queue.vanishes:
            if live := queue.account.live:
                text = f"queue {word} is not durable: RabbitMQ would forget it, and its"
                plan.remarks.append(f"{text} {many(live, 'message')} in its files are left out")
            continue
        place = as_bytes(queue.group), as_bytes(queue.name)
        defined = plan.topology.queues.get(place)
        arguments = defined.arguments if defined else getattr(queue, "arguments", {})
        if isinstance(queue, Stream):
            arguments = {}  # what a stream may keep is no limit of a queue: it would drop messages
        wrong = _wrong(queue, arguments)
        if wrong is not None:
            yield Problem(word, wrong)
        if word not in plan.without:
            own = plan.queues.setdefault(queue.group, {})
            own[queue.name] = Taken(queue, word, arguments, bool(defined and defined.auto_delete))
            if isinstance(queue, Stream):
                plan.remarks.append(_as_queue(queue, word))


def _as_queue(stream: Stream, word: str) -> str:
    """What is not as in a stream. Its clients need to know, so that it is said at each start."""
    counted = many(stream.account.live, "message")
    text = f"stream {word} is served as a queue: its {counted} come once each, in the order of"
    text += " their offsets (header x-stream-offset), and leave when they are acked"
    readers = sorted(stream.tracking.offsets.items())
    if readers:
        told = ", ".join(f"{written(name)} {offset}" for name, offset in readers[:_SHOWN_MAX])
        more = f", and {len(readers) - _SHOWN_MAX} more" if len(readers) > _SHOWN_MAX else ""
        text += f"; offsets that its consumers had stored: {told}{more}"
    return text


def _wrong(queue: DeadQueue, arguments: dict[str, Any]) -> str | None:
    if not (is_unicode(queue.name) and is_unicode(queue.group)):
        return "its name is not UTF-8"
    try:
        limits_of(arguments, f"queue '{queue.name}'")
    except Refused as error:
        return str(error)
    return None


def _of_files(node: Node) -> Iterator[Problem]:
    for unread in node.unread:
        yield Problem(word_of(unread.vhost or "/", unread.name), unread.text())
    damage = [
        each
        for each in node.findings
        if each.severity in ("damage", "suspected") and each.kind != "not read"
    ]
    if damage:
        shown = "; ".join(str(each) for each in damage[:_SHOWN_MAX])
        more = f"; and {len(damage) - _SHOWN_MAX} more" if len(damage) > _SHOWN_MAX else ""
        yield Problem(DAMAGE, f"what can be read would be served: {shown}{more}")
