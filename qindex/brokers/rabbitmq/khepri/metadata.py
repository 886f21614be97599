"""The metadata of a RabbitMQ node whose store is Khepri, from its Ra log and snapshot.

The paths are those of RabbitMQ 4.0 to 4.3, ``[rabbitmq, vhosts, V, queues, Q]``, and those of 3.13,
``[rabbit_db_queue, queues, V, Q]``. The records at them are the ones that Mnesia's tables hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.khepri.tree import Khepri, KhepriError, Path, Transaction
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.ra.system import Server, System
from qindex.brokers.tree import Findings
from qindex.words import many

SERVER_NAME: Final = "rabbitmq_metadata"
_FLAGS_BYTES_MAX: Final = 1 << 20

Key = tuple[bytes, bytes]  # virtual host, name


@dataclass(slots=True)
class Metadata:
    """What the tree holds. Records are Erlang terms as RabbitMQ keeps them."""

    where: str
    vhosts: dict[bytes, Any] = field(default_factory=dict)
    queues: dict[Key, Any] = field(default_factory=dict)  # amqqueue records
    exchanges: dict[Key, Any] = field(default_factory=dict)
    bindings: list[Any] = field(default_factory=list)  # {binding, Source, Key, Destination, Args}
    users: dict[bytes, Any] = field(default_factory=dict)
    permissions: list[Any] = field(default_factory=list)
    parameters: dict[Path, Any] = field(default_factory=dict)  # policies among them, by path
    transactions: list[Transaction] = field(default_factory=list)
    unread: int = 0  # entries and commands that could not be read
    doubtful: int = 0  # entries, and the snapshot, that were read against their checksum
    snapshot_index: int = 0
    last_index: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether this is what the node would have: no transaction, nothing unread or damaged."""
        return not self.transactions and not self.unread and not self.doubtful

    @property
    def is_exact_but_for_deleted_queues(self) -> bool:
        """Whether the exchanges, bindings and policies of queues that are left are exact."""
        is_sure = not self.unread and not self.doubtful
        return is_sure and all(each.deletes_queue for each in self.transactions)

    @property
    def perhaps_deleted(self) -> set[Key]:
        """Queues that are named by a transaction which may have deleted them."""
        return {
            (vhost, name)
            for transaction in self.transactions
            if transaction.may_delete
            for kind, vhost, name in transaction.resources
            if kind == "queue" and (vhost, name) in self.queues
        }

    def facts(self) -> dict[str, Any]:
        """What a report says of it; no passwords."""
        policies = [
            {"vhost": text(vhost), "kind": text(kind), "policy": text(name)}
            for vhost, kind, name in map(_policy_key, self.parameters.values())
            if kind in (b"policy", b"operator_policy")
        ]
        return {
            "directory": self.where,
            "snapshot_index": self.snapshot_index,
            "last_index": self.last_index,
            "exact": self.is_exact,
            "transactions": len(self.transactions),
            "unread": self.unread,
            "vhost_names": sorted(map(text, self.vhosts)),
            "users": sorted(map(text, self.users)),
            "permissions": len(self.permissions),
            "exchanges": len(self.exchanges),
            "bindings": len(self.bindings),
            "policies": sorted(policies, key=lambda each: (each["vhost"], each["policy"])),
            "perhaps_deleted": sorted(f"{text(n)} in {text(v)}" for v, n in self.perhaps_deleted),
        }


def _policy_key(record: Any) -> tuple[bytes, bytes, bytes]:
    """(virtual host, component, name) of a parameter's record; empty ones of a global one."""
    match record:
        case (_, (bytes(vhost), bytes(kind), bytes(name)), *_):
            return vhost, kind, name
    return b"", b"", b""


def is_in_force(feature_flags: bytes | None, has_server: bool) -> bool:
    """Whether Khepri, not Mnesia, is the node's store.

    `feature_flags` is the file NODE-feature_flags beside the node's directory: its list decides.
    Without it (None) the store is taken to be in force where its Ra server has a directory.
    """
    if feature_flags is None:
        return has_server
    return b"khepri_db" in feature_flags[:_FLAGS_BYTES_MAX]


def find_server(system: System) -> Server | None:
    """Khepri's member among the servers of the Ra system "coordination"."""
    for server in system.servers.values():
        if server.name == SERVER_NAME:
            return server
    return None


def read_metadata(server: Server, findings: Findings) -> Metadata:
    """Plays the log behind the newest snapshot that can be read. Damage becomes findings."""
    metadata = Metadata(server.where)
    tree = Khepri()
    first = 0
    for snapshot in server.snapshots:
        try:
            tree.load(erlang.decode(snapshot.state()), snapshot.machine_version)
        except (KhepriError, erlang.ErlangError) as error:
            findings.damage("snapshot", snapshot.where, 0, f"metadata: {error}")
            metadata.unread += 1
            continue
        first = snapshot.index + 1
        metadata.doubtful += not snapshot.sound
        break
    metadata.snapshot_index = metadata.last_index = max(0, first - 1)
    _play(server, tree, first, metadata, findings)
    _compare_with_notes(server, metadata, findings)
    metadata.transactions = tree.transactions
    metadata.unread += tree.unknown
    _sort(tree, metadata)
    _report(metadata, findings)
    return metadata


def _play(server: Server, tree: Khepri, first: int, metadata: Metadata, findings: Findings) -> None:
    for low, high in server.log.holes(max(first, 1)):
        text = f"entries {low} to {high} of the metadata are missing"
        findings.damage("entries missing", server.where, 0, text)
        metadata.unread += high - low + 1
    for entry in server.log.entries(first):
        metadata.last_index = entry.index
        metadata.doubtful += not entry.sound
        try:
            tree.apply(entry.index, erlang.decode(entry.data))
        except erlang.ErlangError as error:
            text = f"entry {entry.index} of the metadata: {error}"
            findings.damage("entry", entry.where, entry.offset, text)
            metadata.unread += 1


def _compare_with_notes(server: Server, metadata: Metadata, findings: Findings) -> None:
    """The node notes now and then up to which entry it had come: so far the log has to go."""
    missing = server.last_applied - server.last_index
    if missing > 0:
        counted = many(missing, "change is", "changes are")
        text = f"{counted} missing at the end of the metadata: the node had applied entry"
        text += f" {server.last_applied}, the last one here is {server.last_index}"
        findings.damage("missing", server.where, 0, text)
        metadata.unread += missing
    elif not server.is_noted and server.last_index > 0:
        text = "meta.dets does not tell up to which entry the metadata went: there may have been"
        findings.suspected("no notes", server.where, 0, f"{text} more changes")
        metadata.doubtful += 1


def _report(metadata: Metadata, findings: Findings) -> None:
    if metadata.transactions:
        names = sorted({each.function or "(unnamed)" for each in metadata.transactions})
        text = (
            f"{len(metadata.transactions)} changes behind the snapshot of entry"
            f" {metadata.snapshot_index} are compiled code, which is not run: deleted queues may be"
            f" listed, and bindings may differ ({', '.join(names[:5])})"
        )
        findings.note("metadata", metadata.where, 0, text)
    if metadata.unread:
        text = f"{metadata.unread} changes of the metadata could not be read"
        findings.damage("metadata", metadata.where, 0, text)


def _sort(tree: Khepri, metadata: Metadata) -> None:
    for path, payload in _normal(tree):
        match path:
            case ("vhosts", bytes(vhost)):
                metadata.vhosts[vhost] = payload
            case ("vhosts", bytes(vhost), "queues", bytes(name)):
                metadata.queues[vhost, name] = payload
            case ("vhosts", bytes(vhost), "exchanges", bytes(name)):
                metadata.exchanges[vhost, name] = payload
            case ("vhosts", _, "exchanges", _, "bindings", *_):
                metadata.bindings += _bindings(payload)
            case ("vhosts", _, "user_permissions", _) | (
                "vhosts", _, "exchanges", _, "user_permissions", _
            ):  # fmt: skip
                metadata.permissions.append(payload)
            case ("vhosts", _, "runtime_params", *_) | ("runtime_params", *_):
                metadata.parameters[path] = payload
            case ("users", bytes(name)):
                metadata.users[name] = payload


def _bindings(payload: Any) -> list[Any]:
    """Of a set of bindings: a map in OTP 24 and later, whose keys are the records."""
    records = payload if isinstance(payload, (dict, list)) else []
    return [
        record for record in records if isinstance(record, tuple) and record[:1] == ("binding",)
    ]


def _normal(tree: Khepri) -> Iterator[tuple[Path, Any]]:
    """(path, payload) of every node, the path as RabbitMQ 4 has it, without its first name."""
    for path, payload in tree.nodes():
        match path:
            case ("rabbitmq", *rest):
                yield tuple(rest), payload
            case ("rabbit_db_vhost", bytes(vhost)):
                yield ("vhosts", vhost), payload
            case ("rabbit_db_queue", "queues", bytes(vhost), bytes(name)):
                yield ("vhosts", vhost, "queues", name), payload
            case ("rabbit_db_exchange", "exchanges", bytes(vhost), bytes(name)):
                yield ("vhosts", vhost, "exchanges", name), payload
            case ("rabbit_db_binding", "routes", vhost, source, *rest):
                yield ("vhosts", vhost, "exchanges", source, "bindings", *rest), payload
            case ("rabbit_db_user", "users", bytes(name)):
                yield ("users", name), payload
            case ("rabbit_db_rtparams", "global", *rest):
                yield ("runtime_params", *rest), payload
            case ("rabbit_db_rtparams", "per_vhost", vhost, *rest):
                yield ("vhosts", vhost, "runtime_params", *rest), payload
