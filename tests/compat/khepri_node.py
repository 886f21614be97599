"""A RabbitMQ node whose metadata is moved from Mnesia's tables to a Khepri store, as 4.2 has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ra_files import Wal, dets, encode, put, snapshot, snapshot_folder, term

from qindex.brokers.rabbitmq.erlang import Atom, Opaque
from qindex.brokers.rabbitmq.erlang_files import log_terms
from qindex.brokers.tree import Findings, Tree

UID = "RABBITXYZ123"
WHERE = "coordination/qix@localhost"
CONFIG = b'#{uid => <<"' + UID.encode() + b'">>,cluster_name => rabbitmq_metadata}.\n'
NONE = Atom("$__NO_PAYLOAD__")


def records(node: Path) -> Iterator[Any]:
    """Every record of Mnesia's tables, in the order in which Mnesia applies them."""
    findings = Findings()
    tree = Tree(node, findings)
    names = sorted(name for name in tree.files() if name.endswith((".DCD", ".DCL")))
    for name in [*names, "PREVIOUS.LOG", "LATEST.LOG"]:
        if (node / name).exists():
            with tree.open(name) as source:
                for each in log_terms(source, findings):
                    yield from _written(each)


def _written(logged: Any) -> Iterator[Any]:
    match logged:
        case ((str(), _), record, "write"):
            yield record
        case ("commit", _, _, _, [*operations], *_):
            for each in operations:
                yield from _written(each)
        case (str(), *_):
            yield logged


def path_of(record: Any) -> list[Any] | None:
    """Where RabbitMQ 4 keeps the record; a binding's is its exchange's."""
    top = [Atom("rabbitmq"), Atom("vhosts")]
    match record:
        case ("vhost", bytes(vhost), *_):
            return [*top, vhost]
        case ("amqqueue", (_, vhost, _, name), *_):
            return [*top, vhost, Atom("queues"), name]
        case ("exchange", (_, vhost, _, name), *_):
            return [*top, vhost, Atom("exchanges"), name]
        case ("runtime_parameters", (bytes(vhost), kind, name), _):
            return [*top, vhost, Atom("runtime_params"), kind, name]
        case ("internal_user", bytes(name), *_):
            return [Atom("rabbitmq"), Atom("users"), name]
        case ("binding", (_, vhost, _, source), key, (_, _, kind, to), _):
            return [*top, vhost, Atom("exchanges"), source, Atom("bindings"), kind, to, key]
    return None


def puts(node: Path) -> list[tuple[list[Any], Any]]:
    """(path, payload) of everything; what binds the same with the same key stands in one set."""
    found: dict[str, tuple[list[Any], Any]] = {}
    for record in records(node):
        binding = record[1] if record[:1] == ("route",) else None
        path = path_of(record if binding is None else binding)
        if path is None:
            continue
        payload = record
        if binding is not None:
            known = found.get(repr(path), (path, {}))[1]
            raw = encode(binding)
            payload = {**known, Opaque(raw[0], raw[1:]): []}
        found[repr(path)] = (path, payload)
    return list(found.values())


def command(*parts: Any) -> tuple[Any, ...]:
    return (Atom("$usr"), {}, tuple(parts), Atom("noreply"))


def transaction(function: str, *resources: Any) -> tuple[Any, ...]:
    """A command whose code is of no use to anybody here: its name and the values it closed over."""
    module, _, name = function.partition(":")
    names = {(Atom("run"), 0): (Atom(module), Atom(name), 0)}
    fun = (Atom("horus_fun"), Atom("m"), b"BEAM", 0, [], names, list(resources), Atom("undefined"))
    return command(Atom("tx"), fun, [])


def move_to_khepri(node: Path, *behind: Any, in_snapshot: bool = False) -> None:
    """Writes the store, empties Mnesia, and sets the feature flag. `behind`: the last commands."""
    every = puts(node)
    for name in [*node.glob("*.DCD"), *node.glob("*.DCL"), *node.glob("*.LOG")]:
        name.unlink()
    wal, files, first = Wal(), {}, 1
    if in_snapshot:
        state = (Atom("khepri_machine"), {}, (Atom("tree"), _tree(every), {}, {}), {}, [], {}, {})
        first = len(every) + 1
        folder = f"{WHERE}/{UID}/snapshots/{snapshot_folder(len(every), 1)}"
        files[f"{folder}/snapshot.dat"] = snapshot(len(every), 1, state)
        every = []
    entries = [command(Atom("put"), path, (Atom("p_data"), data), {}) for path, data in every]
    for index, entry in enumerate([*entries, *behind], first):
        wal.add(UID, index, term(entry))
    files |= {
        f"{WHERE}/{UID}/config": CONFIG,
        f"{WHERE}/00000001.wal": wal.data,
        f"{WHERE}/names.dets": dets([(Atom("rabbitmq_metadata"), UID.encode())]),
        f"{WHERE}/meta.dets": dets([(UID.encode(), 1, Atom("undefined"), 1)]),
    }
    put(node, files)
    node.with_name(f"{node.name}-feature_flags").write_bytes(b"[khepri_db,quorum_queue].\n")


def _tree(every: list[tuple[list[Any], Any]]) -> Any:
    top: dict[Any, Any] = {}
    for path, data in every:
        below, node = top, None
        for name in path:
            node = below.setdefault(name, [None, {}])
            below = node[1]
        assert node is not None
        node[0] = data
    return _node([None, top])


def _node(node: Any) -> Any:
    data, below = node
    payload = NONE if data is None else (Atom("p_data"), data)
    props = {Atom("payload_version"): 1, Atom("child_list_version"): 1}
    return (Atom("node"), props, payload, {name: _node(each) for name, each in below.items()})
