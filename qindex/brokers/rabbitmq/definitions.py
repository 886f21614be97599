"""What a RabbitMQ node knew about its queues, beside the messages: mnesia's tables and dets.

From RabbitMQ 4.2 on the same records are in Khepri: see khepri/node.py.

All of it is optional: queue directories name their queue themselves. The definitions add the queues
that hold nothing, and the arguments; the recovery terms tell which messages had been delivered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from qindex.brokers.rabbitmq.erlang import Atom
from qindex.brokers.rabbitmq.erlang_files import dets_objects, log_terms
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.properties import encode_typed_table
from qindex.brokers.tree import Findings, Tree
from qindex.field_table import AmqpError, FieldValue, decode_table

# In the order in which mnesia applies them: snapshot, changes since, the latest changes.
_TABLE_FILES = (
    "rabbit_durable_queue.DCD",
    "rabbit_durable_queue.DCL",
    "PREVIOUS.LOG",
    "LATEST.LOG",
)


@dataclass(slots=True)
class Definition:
    """A durable queue. `type` is rabbit_classic_queue, or one that keeps its messages elsewhere."""

    vhost: bytes
    name: bytes
    arguments: dict[str, FieldValue] = field(default_factory=dict)
    type: str = "rabbit_classic_queue"
    folder: str = ""  # of a stream: the name of its directory
    nodes: frozenset[str] = frozenset()  # of a replicated queue: the nodes that have it
    policies: list[Any] = field(default_factory=list)  # those that were in force, as terms
    auto_delete: bool = False
    why_not: str = ""  # why its arguments cannot be read; they are empty then

    @property
    def has_ttl(self) -> bool:
        """Each message gets an expiry, by an argument or a policy."""
        return "x-message-ttl" in self.arguments or _mentions(self.policies, b"message-ttl")

    @property
    def keeps_all(self) -> bool:
        """Of a stream: nothing, neither argument nor policy, makes a node remove old segments."""
        names = (b"max-length-bytes", b"max-age")
        told = any(f"x-{name.decode()}" in self.arguments for name in names)
        return not (told or self.why_not or any(_mentions(self.policies, n) for n in names))


Definitions = dict[tuple[bytes, bytes], Definition]


def read_definitions(tree: Tree, findings: Findings) -> Definitions | None:
    """The durable queues by (vhost, name); None if the node's tables are not there."""
    definitions: Definitions = {}
    found = False
    for name in _TABLE_FILES:
        source = tree.try_open(name)
        if source is None:
            continue
        found = True
        with source:
            for term in log_terms(source, findings):
                _apply(term, definitions)
    tell_unread(definitions, findings, _TABLE_FILES[0])
    return definitions if found else None


def tell_unread(definitions: Definitions, findings: Findings, where: str) -> None:
    """Without its arguments nobody knows what the queue's limits and dead letters are."""
    for each in definitions.values():
        if each.why_not:
            called = f"queue {text(each.name)} in {text(each.vhost)}"
            findings.damage("metadata", where, 0, f"the arguments of {called}: {each.why_not}")


def definitions_of(records: Iterable[Any]) -> Definitions:
    """The durable ones of these amqqueue records."""
    definitions: Definitions = {}
    for record in records:
        match record:
            case ("amqqueue", _, "true", *_):
                _write(record, definitions)
    return definitions


def _apply(term: Any, definitions: Definitions) -> None:
    """One item of a log: a record, an operation on one, or a transaction of many operations."""
    match term:
        case ("amqqueue", *_):
            _write(term, definitions)
        case (("rabbit_durable_queue", _), record, str(verb)):
            _operate(record, verb, definitions)
        case ("commit", _, _, _, [*operations], *_):
            for operation in operations:
                match operation:
                    case (("rabbit_durable_queue", _), record, str(verb)):
                        _operate(record, verb, definitions)


def _operate(record: Any, verb: str, definitions: Definitions) -> None:
    if verb == "write":
        _write(record, definitions)
    elif verb == "clear_table":
        definitions.clear()
    elif verb in ("delete", "delete_object"):
        match record:
            case (_, ("resource", bytes(vhost), "queue", bytes(name))) | (
                "amqqueue", ("resource", bytes(vhost), "queue", bytes(name)), *_
            ):  # fmt: skip
                definitions.pop((vhost, name), None)


def _write(record: Any, definitions: Definitions) -> None:
    match record:
        case ("amqqueue", ("resource", bytes(vhost), "queue", bytes(name)), _, auto_delete, _,
              [*arguments], *rest):  # fmt: skip
            definition = Definition(vhost, name, auto_delete=auto_delete == "true")
            definition.type = next((str(r) for r in rest if _is_type(r)), definition.type)
            definition.policies = [r for r in rest if isinstance(r, list)]
            for state in rest:
                if isinstance(state, dict):
                    _keep_state(definition, state)
            try:
                definition.arguments = decode_table(encode_typed_table(arguments))
            except (AmqpError, TypeError, ValueError) as error:
                definition.arguments, definition.why_not = {}, str(error)
            definitions[vhost, name] = definition


def _mentions(term: Any, name: bytes) -> bool:
    """The name is somewhere in a policy, whose form differs between versions."""
    if isinstance(term, dict):
        return any(_mentions(each, name) for each in term.items())
    if isinstance(term, (list, tuple)):
        return any(_mentions(each, name) for each in term)
    return bool(term == name)


def _is_type(value: Any) -> bool:
    return isinstance(value, Atom) and value.startswith("rabbit_") and value.endswith("_queue")


def _keep_state(definition: Definition, state: dict[Any, Any]) -> None:
    """What a replicated queue knows about itself."""
    match state.get("name"):
        case [*characters] if all(isinstance(c, int) and 0 < c < 0x110000 for c in characters):
            definition.folder = "".join(map(chr, characters))
        case bytes(name):
            definition.folder = name.decode("utf-8", "replace")
    nodes = state.get("nodes")
    if isinstance(nodes, (list, dict)):
        definition.nodes = frozenset(node for node in nodes if isinstance(node, str))


@dataclass(slots=True)
class RecoveryTerms:
    """What a queue wrote when it was stopped in order. After a crash there is nothing."""

    next_deliver_seq: int | None
    """Messages below had been delivered. None before RabbitMQ 3.10, which kept a bit for each."""
    persistent_count: int | None
    """How many persistent messages the queue had."""


def read_recovery_terms(tree: Tree, where: str, findings: Findings) -> dict[str, RecoveryTerms]:
    """By the name of the queue's directory."""
    terms: dict[str, RecoveryTerms] = {}
    source = tree.try_open(where)
    if source is None:
        return terms
    with source:
        for item in dets_objects(source, findings):
            match item:
                case ([*key], [*pairs]):
                    folder = "".join(chr(byte) for byte in key if isinstance(byte, int))
                    terms[folder] = RecoveryTerms(
                        _number(pairs, "next_deliver_seq_id"), _number(pairs, "persistent_count")
                    )
    return terms


def _number(pairs: list[Any], key: str) -> int | None:
    for pair in pairs:
        match pair:
            case (str(name), int(number)) if name == key:
                return number
    return None


def queue_folder(vhost: bytes, name: bytes) -> str:
    """The name of a queue's directory."""
    return _base36(b"queue" + vhost + name)


def old_queue_folder(vhost: bytes, name: bytes) -> str:
    """The same before RabbitMQ 3.7: of the queue's Erlang term."""
    resource, kind = b"d\0\x08resource", b"d\0\x05queue"
    sizes = [len(part).to_bytes(4, "big") for part in (vhost, name)]
    return _base36(b"\x83h\4" + resource + b"m" + sizes[0] + vhost + kind + b"m" + sizes[1] + name)


def vhost_folder(vhost: bytes) -> str:
    return _base36(vhost)


def _base36(data: bytes) -> str:
    number = int.from_bytes(hashlib.md5(data, usedforsecurity=False).digest(), "big")
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
    return digits
