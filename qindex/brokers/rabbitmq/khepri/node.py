"""Whether a node's metadata is in Khepri, and what it says about queues then.

::

    DIR-feature_flags            beside the node's directory DIR: the flags that are on
    DIR/coordination/NODE/       a directory of Ra; one of its servers is Khepri's
"""

from __future__ import annotations

from typing import Final

from qindex.brokers.rabbitmq.definitions import (
    Definition,
    Definitions,
    definitions_of,
    queue_folder,
    read_definitions,
    tell_unread,
    vhost_folder,
)
from qindex.brokers.rabbitmq.khepri.metadata import (
    Key,
    Metadata,
    find_server,
    is_in_force,
    read_metadata,
)
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.ra.system import Server, is_system, open_system
from qindex.brokers.tree import Findings, Tree

_FOLDER: Final = "coordination"
_FLAGS_BYTES_MAX: Final = 1 << 20


def read_khepri(tree: Tree, findings: Findings) -> Metadata | None:
    """What Khepri holds; None if the node's metadata is in Mnesia, or if there is no Khepri here.

    Cost: reads Khepri's snapshot and its part of a log that RabbitMQ keeps below 64 MB.
    """
    flags = _flags(tree)
    own = Findings()
    server = _server(tree, own)
    if server is None:
        if flags is not None and is_in_force(flags, has_server=False):
            report = "the node's metadata is in Khepri, whose files are not here"
            findings.damage("missing", _FOLDER, 0, report)
        return None
    if flags is not None and not is_in_force(flags, has_server=True):
        return None
    metadata = read_metadata(server, own)
    if flags is None and read_definitions(tree, Findings()):
        return None  # Mnesia has queues: a migration that did not end
    if flags is None and not metadata.vhosts and not metadata.unread:
        return None  # a migration that was only prepared
    findings.take_all(own)
    if flags is None and not metadata.vhosts:
        return None  # all of it is lost, and nothing says that it was in force
    return metadata


def _flags(tree: Tree) -> bytes | None:
    """The file beside the directory; None if it is not there."""
    path = tree.path.absolute()
    try:
        beside = Tree(path.parent, Findings())
    except OSError:
        return None
    try:
        return beside.read(f"{path.name}-feature_flags", _FLAGS_BYTES_MAX)
    finally:
        beside.close()


def _server(tree: Tree, findings: Findings) -> Server | None:
    try:
        folders = tree.folders(_FOLDER)
    except OSError:
        return None
    for folder in folders:
        where = f"{_FOLDER}/{folder}"
        if is_system(tree, where):
            server = find_server(open_system(tree, where, findings))
            if server is not None:
                return server
    return None


def queues_of(metadata: Metadata, tree: Tree, findings: Findings) -> Definitions:
    """The durable queues, without those that a transaction seems to have deleted.

    A transaction is compiled code and is not run. A queue that one names and that has no files any
    more is taken for deleted, since RabbitMQ deletes a queue's files with it.
    """
    definitions = definitions_of(metadata.queues.values())
    tell_unread(definitions, findings, metadata.where)
    for key in sorted(metadata.perhaps_deleted & definitions.keys()):
        called = f"queue {text(key[1])} in {text(key[0])}"
        if _has_files(tree, definitions[key], key):
            report = f"{called} may have been deleted; its files are here, so it is kept"
        else:
            report = f"{called} was deleted, it seems: it has no files"
            del definitions[key]
        findings.note("metadata", metadata.where, 0, report)
    return definitions


def _has_files(tree: Tree, definition: Definition, key: Key) -> bool:
    if definition.type == "rabbit_stream_queue":
        return bool(definition.folder) and definition.folder in tree.folders_if_any("stream")
    if definition.type == "rabbit_quorum_queue":
        folders = [f"quorum/{name}" for name in tree.folders_if_any("quorum")]
        return any(_names_it(tree, f"{each}/{uid}", key) for each in folders
                   for uid in tree.folders_if_any(each))  # fmt: skip
    where = f"msg_stores/vhosts/{vhost_folder(key[0])}/queues"
    return queue_folder(*key) in tree.folders_if_any(where)


def _names_it(tree: Tree, where: str, key: Key) -> bool:
    """Whether a quorum queue's `config` has its name; without one it might be that queue."""
    config = tree.read(f"{where}/config", _FLAGS_BYTES_MAX)
    return config is None or all(part in config for part in key)
