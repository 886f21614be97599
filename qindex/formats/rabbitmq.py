"""Opening a dead RabbitMQ node's directory: where its queues are, and what they are called.

::

    NODE/LATEST.LOG, rabbit_durable_queue.DCD   definitions (optional)
    NODE/msg_stores/vhosts/VH/                  VH = base36(md5(vhost))
       .vhost  .config  recovery.dets           name, slots per segment, terms of an orderly stop
       msg_store_persistent/N.rdq               bodies
       queues/Q/                                Q = base36(md5("queue" vhost queue))
          .queue_name  journal.jif  N.idx

Before 3.7 all virtual hosts are in NODE itself, and only the definitions tell what is whose::

    NODE/recovery.dets  msg_store_persistent/N.rdq
    NODE/queues/Q/journal.jif  N.idx            Q = base36(md5(term of the queue's name))
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from qindex.formats.foreign import Findings, Tree
from qindex.formats.rabbitmq_definitions import (
    Definitions,
    RecoveryTerms,
    old_queue_folder,
    queue_folder,
    read_definitions,
    read_recovery_terms,
    vhost_folder,
)
from qindex.formats.rabbitmq_index import SLOTS_MAX
from qindex.formats.rabbitmq_index_v2 import index_files
from qindex.formats.rabbitmq_message import text
from qindex.formats.rabbitmq_node import Message, Node, Part, Queue, Vhost
from qindex.formats.rabbitmq_queue import Counts
from qindex.formats.rabbitmq_store import read_store
from qindex.formats.reader import find_folder, is_folder

__all__ = ["Counts", "Message", "Node", "Part", "Queue", "Vhost", "is_here", "open_at", "open_node"]

_VHOSTS: Final = "msg_stores/vhosts"
_STORE: Final = "msg_store_persistent"
_NAME_BYTES_MAX: Final = 64 * 1024
_HASHED: Final = re.compile(r"[0-9A-Z]{1,25}")
_QUEUE_NAME: Final = (
    re.compile(rb"VHOST: (.*?)\nQUEUE: (.*?)\n(?:INDEX: v2\n)?", re.DOTALL),
    re.compile(rb"VHOST: (.*)\nQUEUE: (.*?)\n(?:INDEX: v2\n)?", re.DOTALL),
)
_SLOTS: Final = re.compile(rb"\{\s*segment_entry_count\s*,\s*([0-9]{1,5})\s*\}")


def open_node(path: str | os.PathLike[str]) -> Node:
    """Reads the indexes of the node at `path`, which may also be a directory around or inside it.

    UnknownFormat: there is no RabbitMQ node, or more than one. Damage never raises.
    """
    return open_at(find_folder(path, ["rabbitmq"])[0])


def is_here(folder: Path) -> bool:
    return is_folder(folder / _VHOSTS) or _is_old(folder)


def _is_old(folder: Path) -> bool:
    """Of 3.5 or 3.6. The directory of a virtual host looks alike, but says what it is."""
    stands_alone = not any((folder / name).exists() for name in (".vhost", ".config"))
    return stands_alone and all(is_folder(folder / name) for name in ("queues", _STORE))


def open_at(folder: Path) -> Node:
    """open_node() of exactly this directory."""
    log = Findings()
    node = Node(folder.name, Tree(folder, log), log)
    try:
        definitions = read_definitions(node.tree, log)
        node.has_definitions = definitions is not None
        if is_folder(folder / _VHOSTS):
            for vhost in filter(_HASHED.fullmatch, node.tree.folders(_VHOSTS)):
                node.vhosts.append(_read_vhost(node, vhost, definitions))
        if _is_old(folder):
            node.vhosts += _read_old_vhosts(node, definitions or {})
    except BaseException:
        node.close()
        raise
    node.vhosts.sort(key=lambda vhost: vhost.name)
    return node


def _read_vhost(node: Node, folder: str, definitions: Definitions | None) -> Vhost:
    tree, log = node.tree, node.log
    where = f"{_VHOSTS}/{folder}"
    raw = tree.read(f"{where}/.vhost", _NAME_BYTES_MAX)
    if raw is not None and vhost_folder(raw) != folder:
        log.damage("name", f"{where}/.vhost", 0, "the name is not the one of this directory")
        raw = None
    if raw is None:
        raw = _defined_vhost(folder, definitions)
    name = folder if raw is None else text(raw)
    vhost = Vhost(name, node, folder, where, _slots(tree, where, log))
    vhost.store = read_store(tree, f"{where}/{_STORE}", log)
    terms = read_recovery_terms(tree, f"{where}/recovery.dets", log)
    names = _names_by_folder(raw or b"", definitions or {}, queue_folder)
    _add_queues(vhost, raw, _queue_folders(node, f"{where}/queues"), names, terms, definitions)
    _count(vhost)
    vhost.orphan_bodies, vhost.orphan_bytes = vhost.store.unwanted()
    return vhost


def _read_old_vhosts(node: Node, definitions: Definitions) -> list[Vhost]:
    """They share one message store; a queue that is not defined counts to the first of them."""
    tree, log = node.tree, node.log
    store = read_store(tree, _STORE, log)
    terms = read_recovery_terms(tree, "recovery.dets", log)
    folders = _queue_folders(node, "queues")
    raw_names = sorted({b"/", *(vhost for vhost, _ in definitions)})
    names = {raw: _names_by_folder(raw, definitions, old_queue_folder) for raw in raw_names}
    owner = {folder: raw for raw in raw_names for folder in names[raw]}
    vhosts = []
    for raw in raw_names:
        vhost = Vhost(text(raw), node, "", "", SLOTS_MAX, store=store)
        own = [folder for folder in folders if owner.get(folder, raw_names[0]) == raw]
        told = {f: term for f, term in terms.items() if owner.get(f, raw_names[0]) == raw}
        _add_queues(vhost, raw, own, names[raw], told, definitions)
        _count(vhost)
        vhosts.append(vhost)
    vhosts[0].orphan_bodies, vhosts[0].orphan_bytes = store.unwanted()
    return vhosts


def _queue_folders(node: Node, where: str) -> list[str]:
    try:
        return sorted(filter(_HASHED.fullmatch, node.tree.folders(where)))
    except OSError as error:
        node.log.damage("missing", where, 0, f"cannot be listed: {error.strerror}")
        return []


def _defined_vhost(folder: str, definitions: Definitions | None) -> bytes | None:
    for vhost, _ in definitions or ():
        if vhost_folder(vhost) == folder:
            return vhost
    return None


def _slots(tree: Tree, where: str, log: Findings) -> int:
    """Entries per segment, fixed when the virtual host was made; without a file RabbitMQ's own."""
    config = tree.read(f"{where}/.config", _NAME_BYTES_MAX)
    if config is None:
        return SLOTS_MAX
    found = _SLOTS.search(config)
    slots = int(found[1]) if found else 0
    if not 0 < slots <= SLOTS_MAX:
        report = f"no segment_entry_count from 1 to {SLOTS_MAX}: {SLOTS_MAX} is taken"
        log.damage("config", f"{where}/.config", 0, report)
        return SLOTS_MAX
    return slots


def _add_queues(
    vhost: Vhost,
    raw_vhost: bytes | None,
    folders: list[str],
    names: dict[str, bytes],
    terms: dict[str, RecoveryTerms],
    definitions: Definitions | None,
) -> None:
    """One queue for each name, made of its directories; and those that are only defined."""
    defined = {name: d for (vh, name), d in (definitions or {}).items() if vh == raw_vhost}
    queues: dict[bytes, Queue] = {}

    def queue(name: bytes) -> Queue:
        if name not in queues:
            queues[name] = Queue(text(name), vhost)
            queues[name].durable = None if definitions is None else name in defined
        return queues[name]

    for name, definition in defined.items():
        if definition.type == "rabbit_classic_queue":
            queue(name).arguments = definition.arguments
    for folder in sorted(terms.keys() - set(folders)):
        if count := terms[folder].persistent_count:
            report = f"the directory is not there; the queue was stopped with {count} messages"
            vhost.node.log.damage("missing", vhost.path(f"queues/{folder}"), 0, report)
    for folder in folders:
        name, priority = _queue_name(vhost, folder, raw_vhost, names.get(folder))
        where = vhost.path(f"queues/{folder}")
        part = Part(folder, where, priority, _index_version(vhost, folder), terms.get(folder))
        queue(name).parts.append(part)
    for each in queues.values():
        each.parts.sort(key=lambda part: 1 if part.priority is None else -part.priority)
    vhost.queues = sorted(queues.values(), key=lambda each: each.name)


def _names_by_folder(
    vhost: bytes, definitions: Definitions, folder_of: Callable[[bytes, bytes], str]
) -> dict[str, bytes]:
    """What directories would be called if each queue of a virtual host had all it can have."""
    names = {}
    for definition in definitions.values():
        if definition.vhost != vhost:
            continue
        priorities = definition.arguments.get("x-max-priority")
        levels = range(min(priorities, 255) + 1) if isinstance(priorities, int) else ()
        for name in (definition.name, *(definition.name + bytes([0, p]) for p in levels)):
            names[folder_of(vhost, name)] = name
    return names


def _queue_name(
    vhost: Vhost, folder: str, raw_vhost: bytes | None, name: bytes | None
) -> tuple[bytes, int | None]:
    """The queue's name, and the priority if the directory holds only the messages of one.

    `name` is what the definitions say. That in the file is right if it leads to this directory; a
    name or a virtual host may have any bytes in it, so that it may be understood in two ways.
    """
    file = vhost.path(f"queues/{folder}/.queue_name")
    raw = vhost.node.tree.read(file, _NAME_BYTES_MAX)
    for pattern in _QUEUE_NAME:
        found = pattern.fullmatch(raw or b"")
        if found and queue_folder(found[1], found[2]) == folder:
            name = found[2]
            if raw_vhost is not None and found[1] != raw_vhost:
                report = "the virtual host is not the one of this directory"
                vhost.node.log.damage("name", file, 0, report)
    if name is None or (raw is None and vhost.where):  # before 3.7 there is no such file
        report = "missing" if raw is None else "the name is not the one of this directory"
        vhost.node.log.damage(
            "name", file, 0, f"{report}: {text(name or folder.encode())} is taken"
        )
    if name is None:
        return folder.encode(), None
    if len(name) >= 2 and name[-2] == 0:
        return name[:-2], name[-1]
    return name, None


def _index_version(vhost: Vhost, folder: str) -> int:
    try:
        names = vhost.node.tree.files(vhost.path(f"queues/{folder}"))
    except OSError:
        return 1  # reading the queue reports it
    return 2 if index_files(names) else 1


def _count(vhost: Vhost) -> None:
    """Reads every index once, for the counts, the findings, and to know which bodies are wanted."""
    for queue in vhost.queues:
        for part in queue.parts:
            vhost.count(part)
