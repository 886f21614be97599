"""Queues of a RabbitMQ node that qindex cannot read: each is named, so that none is forgotten.

::

    NODE/quorum/NAME/UID/N.segment  N.wal      quorum queues: brokers.rabbitmq.quorum reads them
    NODE/stream/NAME/N.segment  N.index        streams: brokers.rabbitmq.streams reads them

What is left are queues that are defined and have no files here, and types that nobody reads. LOOKS
has one function per type of queue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from qindex.brokers.rabbitmq.definitions import Definition, Definitions
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.reader import is_folder, names_in
from qindex.brokers.tree import Findings, Tree

_WAL: Final = re.compile(r"[0-9]{8,16}\.wal")
_SEGMENT: Final = re.compile(r"[0-9]{8,20}\.segment")


@dataclass(slots=True)
class Unread:
    """A queue whose messages are not among those that are given back.

    None has a directory that is known: what has one is read, or is damage of its own.
    """

    type: str  # "quorum queue", "stream"
    vhost: str
    name: str
    elsewhere: bool = False  # the cluster keeps it on other nodes
    unknown: bool = False  # only the plugin of its type knows where it keeps what

    def facts(self) -> dict[str, Any]:
        """As plain values, with the keys that all commands have."""
        told = asdict(self)
        for name, key in (("name", "queue"), ("type", "kind")):
            told[key] = told.pop(name)
        return told

    def text(self) -> str:
        title = f"{self.type} {self.name} in {self.vhost}"
        if self.elsewhere:
            return f"{title} has no files here: its members are on other nodes"
        why = "its directory is not here"
        if self.unknown:
            why = "qindex does not know where a queue of this type keeps its messages"
        return f"{title} is not read: {why}; its messages are not in this account"


Names: TypeAlias = "set[tuple[str, str]]"  # virtual host, queue
Look: TypeAlias = Callable[[Tree, list[Definition], Names], Iterator[Unread]]


def unread_queues(
    tree: Tree, definitions: Definitions | None, findings: Findings, read: Names
) -> list[Unread]:
    """All that are not among `read`, each with a finding. Cost: a few directories."""
    by_type: dict[str, list[Definition]] = {name: [] for name in LOOKS}
    for definition in (definitions or {}).values():
        if definition.type not in (*NO_FILES, "rabbit_classic_queue"):
            by_type.setdefault(definition.type, []).append(definition)
    found: list[Unread] = []
    for type_name, defined in by_type.items():
        look = LOOKS.get(type_name)
        found += _unknown(type_name, defined) if look is None else look(tree, defined, read)
    for each in found:
        report = findings.note if each.elsewhere else findings.damage
        report("not read", "", 0, each.text())
    return found


def is_here(folder: Path) -> bool:
    """Files of such queues are in this directory, whatever else is missing."""
    if any(
        (folder / "stream" / name / "00000000000000000000.segment").is_file()
        or any(map(_SEGMENT.fullmatch, names_in(folder / "stream" / name)))
        for name in _folders(folder / "stream")
    ):
        return True
    return any(
        _is_system(folder / above / name)
        for above in ("quorum", "coordination")  # a node of 4.x without queues has the second only
        for name in _folders(folder / above)
    )


def _is_system(path: Path) -> bool:
    """A directory of Ra, also one whose log or whose tables are lost."""
    return any(map(_WAL.fullmatch, names_in(path))) or any(
        is_folder(path / name / "snapshots") or "config" in names_in(path / name)
        for name in _folders(path)
    )


def _folders(path: Path) -> list[str]:
    if not is_folder(path):
        return []
    try:
        return [entry.name for entry in path.iterdir() if is_folder(entry)]
    except OSError:
        return []


# --- quorum queues ------------------------------------------------------------------------------


def _quorum_queues(tree: Tree, defined: list[Definition], read: Names) -> Iterator[Unread]:
    """Those that are defined and have no files here: quorum.queues reads the others."""
    systems = _folders_in(tree, "quorum")
    for definition in defined:
        vhost, name = text(definition.vhost), text(definition.name)
        if (vhost, name) not in read:
            here = not definition.nodes or not systems or definition.nodes.intersection(systems)
            yield Unread("quorum queue", vhost, name, elsewhere=not here)


# --- streams ------------------------------------------------------------------------------------


def _streams(tree: Tree, defined: list[Definition], read: Names) -> Iterator[Unread]:
    """Those that are defined and have no directory here: streams.node reads the others."""
    folders = _folders_in(tree, "stream")
    systems = set(_folders_in(tree, "quorum"))
    for definition in defined:
        if definition.folder not in folders:
            here = not definition.nodes or not systems or definition.nodes & systems
            yield Unread(
                "stream", text(definition.vhost), text(definition.name), elsewhere=not here
            )


# --- all ----------------------------------------------------------------------------------------


def _unknown(type_name: str, defined: list[Definition]) -> Iterator[Unread]:
    for each in defined:
        kind = f"queue of the type {type_name}"
        yield Unread(kind, text(each.vhost), text(each.name), unknown=True)


def _folders_in(tree: Tree, where: str) -> list[str]:
    try:
        return tree.folders(where)
    except FileNotFoundError:
        return []
    except OSError as error:
        tree.findings.damage("missing", where, 0, f"cannot be listed: {error.strerror}")
        return []


LOOKS: Final[dict[str, Look]] = {
    "rabbit_quorum_queue": _quorum_queues,
    "rabbit_stream_queue": _streams,
}
NO_FILES: Final = ("rabbit_mqtt_qos0_queue",)  # types that keep no message on disk
