"""A node's exchanges, bindings and policies, out of Mnesia's tables or out of Khepri."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from qindex.brokers.rabbitmq.definitions import read_definitions
from qindex.brokers.rabbitmq.erlang_files import log_terms
from qindex.brokers.rabbitmq.khepri.node import queues_of, read_khepri
from qindex.brokers.rabbitmq.properties import encode_typed_table
from qindex.brokers.rabbitmq.topology import Binding, Exchange, Place, Policy, Topology, binary
from qindex.brokers.tree import Findings, Tree
from qindex.field_table import AmqpError, FieldValue, decode_table

_TABLES: Final = {  # table: the tag of its records
    "rabbit_durable_exchange": "exchange",
    "rabbit_durable_route": "route",
    "rabbit_runtime_parameters": "runtime_parameters",
}
_LOGS: Final = ("PREVIOUS.LOG", "LATEST.LOG")


def read_topology(tree: Tree, log: Findings) -> Topology:
    """From Khepri, or mnesia's tables. What is not there is missing; check_known() says so."""
    metadata = read_khepri(tree, log)
    if metadata is None:
        return _of_mnesia(tree, log)
    topology = Topology(queues=queues_of(metadata, tree, log), has_policies=True)
    if not metadata.is_exact_but_for_deleted_queues:
        topology.doubt = "the newest changes of the node's metadata are not known"
    durable = [each for each in metadata.exchanges.values() if _is_durable(each)]
    _add_exchanges(topology, durable)
    _add_bindings(topology, metadata.bindings)
    for place, bindings in topology.bindings.items():
        bindings[:] = [each for each in bindings if _leads_on(topology, place, each)]
    _add_policies(topology, metadata.parameters.values())
    return topology


def _is_durable(exchange: Any) -> bool:
    return isinstance(exchange, tuple) and exchange[3:4] == ("true",)


def _leads_on(topology: Topology, place: Place, binding: Binding) -> bool:
    """From a durable exchange to something durable: other bindings end with the node."""
    target = (place[0], binding.destination)
    there = topology.exchanges if binding.to_exchange else topology.queues
    return place in topology.exchanges and target in there


def mnesia_rows(
    tree: Tree, log: Findings, tables: Mapping[str, str]
) -> dict[str, dict[str, Any]] | None:
    """The records of these tables, {table: tag of its records}, each under its key's text.

    None: no file of any of these tables is there.
    """
    rows: dict[str, dict[str, Any]] = {table: {} for table in tables}
    names = set(_names(tree))
    files = [f"{table}.{ending}" for table in tables for ending in ("DCD", "DCL")]
    if not names.intersection((*files, *_LOGS)):
        return None
    for file in (*files, *_LOGS):
        source = tree.try_open(file) if file in names else None
        if source is None:
            continue
        with source:
            for term in log_terms(source, log):
                for record, verb in _operations(term):
                    _apply(rows, tables, record, verb)
    return rows


def _of_mnesia(tree: Tree, log: Findings) -> Topology:
    topology = Topology(queues=read_definitions(tree, log) or {})
    rows = mnesia_rows(tree, log, _TABLES) or {table: {} for table in _TABLES}
    parameters = rows["rabbit_runtime_parameters"]
    topology.has_policies = bool(parameters) or "rabbit_runtime_parameters.DCD" in _names(tree)
    _add_exchanges(topology, rows["rabbit_durable_exchange"].values())
    routes = rows["rabbit_durable_route"].values()
    _add_bindings(topology, (each[1] for each in routes if isinstance(each, tuple) and each[1:]))
    _add_policies(topology, parameters.values())
    return topology


def _add_exchanges(topology: Topology, records: Iterable[Any]) -> None:
    for record in records:
        match record:
            case (_, ("resource", bytes(vhost), "exchange", bytes(name)), str(kind), _,
                  str(auto_delete), str(internal), [*arguments], *_):  # fmt: skip
                topology.exchanges[vhost, name] = Exchange(
                    str(kind), _decoded(arguments), auto_delete == "true", internal == "true"
                )


def _add_bindings(topology: Topology, records: Iterable[Any]) -> None:
    for record in records:
        match record:
            case ("binding", ("resource", bytes(vhost), "exchange", bytes(name)), bytes(key),
                  ("resource", _, str(kind), bytes(to)), [*arguments]):  # fmt: skip
                binding = Binding(key, kind == "exchange", to, _decoded(arguments))
                topology.bindings.setdefault((vhost, name), []).append(binding)


def _add_policies(topology: Topology, records: Iterable[Any]) -> None:
    for record in records:
        match record:
            case (_, (bytes(vhost), b"policy", bytes(name)), value, *_):
                topology.policies.setdefault(vhost, []).append(_policy(name, value))
            case (_, (bytes(vhost), b"operator_policy", bytes(name)), value, *_):
                topology.operator_policies.setdefault(vhost, []).append(_policy(name, value))


def _names(tree: Tree) -> list[str]:
    try:
        return tree.files()
    except OSError:
        return []


def _operations(term: Any) -> Iterator[tuple[Any, str]]:
    """Records, each with what became of it: (table, key) and record in a log, or a plain record."""
    match term:
        case ((str(), _), _, str(verb)):
            yield term, verb
        case ("commit", _, _, _, [*operations], *_):
            for operation in operations:
                match operation:
                    case ((str(), _), _, str(verb)):
                        yield operation, verb
        case (str(), *_):
            yield term, "write"


def _apply(
    rows: dict[str, dict[str, Any]], tables: Mapping[str, str], operation: Any, verb: str
) -> None:
    match operation:
        case ((str(table), key), record, _):
            if table not in rows:
                return
        case (str(tag), key, *_):
            table = next((table for table, its in tables.items() if its == tag), "")
            record = operation
        case _:
            return
    if table not in rows:
        return
    if verb == "clear_table":
        rows[table].clear()
    elif verb == "write":
        rows[table][repr(key)] = record
    elif verb in ("delete", "delete_object"):
        rows[table].pop(repr(key), None)


def _decoded(arguments: list[Any]) -> dict[str, FieldValue]:
    try:
        return decode_table(encode_typed_table(arguments))
    except (AmqpError, TypeError, ValueError):
        return {}


def _policy(name: bytes, value: Any) -> Policy:
    told = _mapping(value)
    priority = told.get(b"priority")
    return Policy(
        name,
        binary(told.get(b"pattern")) or b"",
        binary(told.get(b"apply-to")) or b"all",
        priority if isinstance(priority, int) else 0,
        _mapping(told.get(b"definition")),
    )


def _mapping(value: Any) -> dict[bytes, Any]:
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if isinstance(key, bytes)}
    pairs = value if isinstance(value, list) else []
    return {p[0]: p[1] for p in pairs if isinstance(p, tuple) and len(p) == 2}
