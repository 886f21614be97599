"""The streams of a node's directory, each under its name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from qindex.brokers.rabbitmq.definitions import Definition
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.ra.system import is_system, open_system
from qindex.brokers.rabbitmq.streams.names import Names, coordinator_names, find_coordinator
from qindex.brokers.rabbitmq.streams.stream import Stream
from qindex.brokers.tree import Findings, Tree

FOLDER: Final = "stream"
_COORDINATION: Final = "coordination"


def read_streams(
    tree: Tree, defined: Iterable[Definition] | None, findings: Findings
) -> list[Stream]:
    """Every stream that has a directory, read once for its account and findings.

    `defined` are the streams of the node's tables; None: these are not there. What a table names
    decides; the coordinator's log names the rest, as far as it knows them.
    """
    folders = _folders(tree, FOLDER, findings)
    definitions = {each.folder: each for each in defined or () if each.folder}
    names: Names = {folder: (each.vhost, each.name) for folder, each in definitions.items()}
    if any(folder not in names for folder in folders):
        names = _told_by_coordinators(tree, findings) | names
    streams = []
    for folder in folders:
        where = f"{FOLDER}/{folder}"
        if folder not in names and not any(
            name.endswith((".segment", ".index")) for name in tree.files(where)
        ):
            continue  # an empty directory that nobody calls a stream
        vhost, name = names.get(folder, (b"", folder.encode("utf-8", "surrogateescape")))
        stream = Stream(text(name), text(vhost), where, tree, findings)
        stream.is_named = folder in names
        stream.keeps_all = folder in definitions and definitions[folder].keeps_all
        if folder not in names:
            report = "nothing here says which stream this is: the directory's name is taken"
            findings.damage("name", where, 0, report)
        stream.read()
        streams.append(stream)
    return streams


def _told_by_coordinators(tree: Tree, findings: Findings) -> Names:
    names: Names = {}
    for folder in _folders(tree, _COORDINATION, findings):
        where = f"{_COORDINATION}/{folder}"
        if is_system(tree, where):
            server = find_coordinator(open_system(tree, where, findings))
            if server is not None:
                names |= coordinator_names(server, findings)
    return names


def _folders(tree: Tree, where: str, findings: Findings) -> list[str]:
    try:
        return tree.folders(where)
    except FileNotFoundError:
        return []
    except OSError as error:
        findings.damage("missing", where, 0, f"cannot be listed: {error.strerror}")
        return []
