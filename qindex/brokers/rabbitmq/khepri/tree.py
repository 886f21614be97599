"""Khepri's tree of RabbitMQ's metadata, made from a snapshot and the commands behind it.

::

    snapshot  {khepri_machine, Config, {tree, Root, KeepWhile, _}, ...}
    node      {node, Properties, Payload, #{Name => node}}
    payload   {p_data, Term}, or something else for none
    command   {'$usr', Meta, Command, _}
              {put, Path, Payload, Options}  {delete, Path, Options}  {tx, Fun, Args}
              {dedup, Ref, Expiry, Command}  and others that change nothing in the tree

A transaction is compiled code. It is never run: what it did is not known. Its name and the values
that it closed over say what it was about, and are kept in `transactions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from qindex.brokers.rabbitmq.erlang import Atom

MACHINE_VERSION_MAX: Final = 3  # of Khepri 0.18; what a later one means is not known
_PAIRS_MAX: Final = 100_000
_DEDUP_DEPTH_MAX: Final = 8
_SILENT: Final = frozenset(
    ("dedup_ack", "drop_dedups", "register_projection", "unregister_projections",
     "register_trigger", "ack_triggered", "put_sproc", "bump")
)  # fmt: skip

Path = tuple[Any, ...]


class KhepriError(ValueError):
    """The state or the command has a shape that is not known."""


@dataclass(slots=True)
class Node:
    payload: Any = None  # None: it has none
    version: int = 1  # of the payload
    children: dict[Any, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One that was not run. `resources`: (kind, vhost, name) of what its values name."""

    index: int
    function: str  # module:function; empty if the code does not say
    resources: tuple[tuple[str, bytes, bytes], ...]

    @property
    def deletes_queue(self) -> bool:
        """Whether the function deletes queues, with the bindings to them, and does nothing else."""
        return self.function.startswith("rabbit_db_queue:-delete_in_khepri/")

    @property
    def may_delete(self) -> bool:
        """Whether the function deletes by its name, or is not one of RabbitMQ's own."""
        return "delete" in self.function or not self.function.startswith("rabbit_")


@dataclass(slots=True)
class Khepri:
    """The tree after the last command. `unknown` counts commands of a kind that is not known."""

    root: Node = field(default_factory=Node)
    keep_while: dict[Path, Path] = field(default_factory=dict)  # a node: whom it needs
    transactions: list[Transaction] = field(default_factory=list)
    unknown: int = 0

    def load(self, state: Any, version: int) -> None:
        """A snapshot's state, in place of everything. KhepriError: its shape is not known."""
        if version > MACHINE_VERSION_MAX:
            raise KhepriError(f"machine version {version} is not known, {MACHINE_VERSION_MAX} is")
        match state:
            case ("khepri_machine", _, ("tree", root, conditions, *_), *_):
                pass
            case _:
                raise KhepriError("a snapshot in an unknown shape")
        self.root = _loaded(root)
        self.keep_while = {}
        if isinstance(conditions, dict):
            for path, watched in conditions.items():
                if isinstance(path, tuple) and isinstance(watched, dict):
                    self._keep(path, watched)

    def apply(self, index: int, entry: Any) -> None:
        """One entry of the log; those of the cluster's own change nothing."""
        match entry:
            case ("$usr", _, command, *_):
                pass
            case (str(kind), *_) if kind.startswith("$") or kind == "noop":
                return
            case _:
                self.unknown += 1
                return
        for _ in range(_DEDUP_DEPTH_MAX):
            match command:
                case ("dedup", _, _, inner):
                    command = inner
                case _:
                    break
        match command:
            case ("put", [*path], payload, *options):
                self._put(path, payload, options[0] if options else {})
            case ("delete", [_, *_] as path, *_):
                self._delete(path)
            case ("tx", function, *_):
                self.transactions.append(_told(index, function))
            case (str(kind), *_) if kind in _SILENT:
                pass
            case _:
                self.unknown += 1

    def nodes(self, *prefix: Any) -> Iterator[tuple[Path, Any]]:
        """(path, payload) of all nodes with data at or below a path. Iterative."""
        start = self._find(prefix)
        left: list[tuple[Path, Node]] = [] if start is None else [(tuple(prefix), start)]
        while left:
            path, node = left.pop()
            if node.payload is not None:
                yield path, node.payload
            left += [((*path, name), child) for name, child in reversed(node.children.items())]

    def _find(self, path: Path | list[Any]) -> Node | None:
        node: Node | None = self.root
        for name in path:
            if node is None:
                return None
            node = node.children.get(name)
        return node

    def _put(self, pattern: list[Any], payload: Any, options: Any) -> None:
        names, wants = [], []
        for component in pattern:
            name, condition = _named(component)
            if name is None:  # a pattern that changes what is there, wherever it matches
                self._put_matching(pattern, payload)
                return
            names.append(name)
            wants.append(condition)
        node = self._find(names)
        if wants and not _holds(wants[-1], node):
            return
        node = self.root
        for name in names:
            node = node.children.setdefault(name, Node())
        self._set(node, payload)
        if isinstance(options, dict) and isinstance(options.get("keep_while"), dict):
            self._keep(tuple(names), options["keep_while"])

    def _put_matching(self, pattern: list[Any], payload: Any) -> None:
        for _, _, node in list(self._matching(pattern)):
            self._set(node, payload)

    def _set(self, node: Node, payload: Any) -> None:
        match payload:
            case ("p_data", data):
                new = data
            case _:
                new = None
        if new != node.payload:
            node.version += node.payload is not None
            node.payload = new

    def _keep(self, path: Path, watched: dict[Any, Any]) -> None:
        for watched_path, condition in watched.items():
            match condition:
                case ("if_node_exists", "true") if isinstance(watched_path, tuple):
                    self.keep_while[path] = watched_path

    def _delete(self, pattern: list[Any]) -> None:
        for path, above, _ in list(self._matching(pattern)):
            above.children.pop(path[-1], None)
            self._drop_dependants()

    def _drop_dependants(self) -> None:
        """Nodes that were to be kept only while another exists."""
        for path, watched in list(self.keep_while.items()):
            if self._find(path) is None:
                del self.keep_while[path]
            elif self._find(watched) is None and path:
                above = self._find(path[:-1])
                if above is not None:
                    above.children.pop(path[-1], None)
                del self.keep_while[path]

    def _matching(self, pattern: list[Any]) -> Iterator[tuple[Path, Node, Node]]:
        """(path, the node above, the node) of what a pattern names. A later `**` is any depth."""
        left: list[tuple[int, Path, Node]] = [(0, (), self.root)]
        while left:
            at, path, node = left.pop()
            component = pattern[at]
            name, condition = _named(component)
            is_deep = isinstance(component, tuple) and component[:1] == ("if_path_matches",)
            for child_name, child in list(node.children.items()):
                if name is not None and child_name != name:
                    continue
                if name is None and not _is_any(component):
                    continue
                if not _holds(condition, child):
                    continue
                if at + 1 == len(pattern):
                    yield (*path, child_name), node, child
                else:
                    left.append((at + 1, (*path, child_name), child))
                if is_deep:
                    left.append((at, (*path, child_name), child))


def _loaded(term: Any) -> Node:
    """A snapshot's nodes. Iterative: a tree may be deep."""
    root = Node()
    left = [(root, term)]
    while left:
        node, found = left.pop()
        match found:
            case ("node", properties, payload, dict(children)):
                pass
            case ("node", properties, payload, dict(children), *_):
                pass
            case _:
                raise KhepriError("a node in an unknown shape")
        match payload:
            case ("p_data", data):
                node.payload = data
        if isinstance(properties, dict) and isinstance(properties.get("payload_version"), int):
            node.version = properties["payload_version"]
        for name, child in children.items():
            node.children[name] = Node()
            left.append((node.children[name], child))
    return root


def _named(component: Any) -> tuple[Any, Any]:
    """The name in a component of a path, and the condition beside it; None: a pattern."""
    match component:
        case ("if_all", [*parts]):
            names = [part for part in parts if isinstance(part, (str, bytes))]
            conditions = [part for part in parts if isinstance(part, tuple)]
            return (names[0] if names else None), conditions
        case str() | bytes():
            return component, []
    return None, []


def _is_any(component: Any) -> bool:
    match component:
        case ("if_name_matches", "any", _) | ("if_path_matches", "any", _):
            return True
        case ("if_all", [*parts]):
            return any(_is_any(part) for part in parts if isinstance(part, tuple))
    return False


def _holds(conditions: list[Any], node: Node | None) -> bool:
    """What can be checked of a component's conditions; others are taken to hold."""
    for condition in conditions:
        match condition:
            case ("if_node_exists", "true" | "false" as wanted):
                if (node is not None) != (wanted == "true"):
                    return False
            case ("if_payload_version", int(version)):
                if node is None or node.version != version:
                    return False
            case ("if_has_data", "true" | "false" as wanted):
                if (node is not None and node.payload is not None) != (wanted == "true"):
                    return False
    return True


def _told(index: int, function: Any) -> Transaction:
    """What can be said of a transaction without running it."""
    name, values = "", None
    match function:
        case ("horus_fun", _, _, _, _, dict(names), [*captured], *_):
            values = captured
            for found in names.items():
                match found:
                    case (("run", _), (str(module), str(inner), int())):
                        name = f"{module}:{inner}"
    return Transaction(index, name, tuple(_resources(values)))


def _resources(value: Any) -> Iterator[tuple[str, bytes, bytes]]:
    """Every {resource, VHost, Kind, Name} in a value. Iterative."""
    left, seen = [value], 0
    while left and seen < _PAIRS_MAX:
        seen += 1
        match left.pop():
            case ("resource", bytes(vhost), Atom() as kind, bytes(name)):
                yield str(kind), vhost, name
            case tuple(items) | list(items):
                left += items
            case dict(pairs):
                left += pairs.values()
