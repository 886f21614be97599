"""Opening a dead RabbitMQ node's directory: where its queues are, and what they are called.

::

    NODE/LATEST.LOG, rabbit_durable_queue.DCD   definitions (optional), before RabbitMQ 4.2
    NODE/coordination/NODE                      the same from 4.2 on, in Khepri: see khepri/
    NODE/msg_stores/vhosts/VH/                  VH = base36(md5(vhost))
       .vhost  .config  recovery.dets           name, slots per segment, terms of an orderly stop
       msg_store_persistent/N.rdq               bodies
       queues/Q/                                Q = base36(md5("queue" vhost queue))
          .queue_name  journal.jif  N.idx
    NODE/quorum  NODE/stream                    what unread.py tells of

Before 3.7 all virtual hosts are in NODE itself, and only the definitions tell what is whose::

    NODE/recovery.dets  msg_store_persistent/N.rdq
    NODE/queues/Q/journal.jif  N.idx            Q = base36(md5(term of the queue's name))
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from qindex.brokers.rabbitmq.definitions import (
    Definition,
    Definitions,
    RecoveryTerms,
    old_queue_folder,
    queue_folder,
    read_definitions,
    read_recovery_terms,
    vhost_folder,
)
from qindex.brokers.rabbitmq.index import SLOTS_MAX
from qindex.brokers.rabbitmq.index_v2 import index_files
from qindex.brokers.rabbitmq.khepri.node import queues_of, read_khepri
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.node import Message, Node, Part, Queue, Vhost
from qindex.brokers.rabbitmq.queue import Counts
from qindex.brokers.rabbitmq.quorum.queues import read_quorum_queues
from qindex.brokers.rabbitmq.slots import count_queues, count_with_best_slots
from qindex.brokers.rabbitmq.store import MessageStore, read_store
from qindex.brokers.rabbitmq.streams.node import read_streams
from qindex.brokers.rabbitmq.unread import is_here as has_unread
from qindex.brokers.rabbitmq.unread import unread_queues
from qindex.brokers.reader import find_folder, is_folder
from qindex.brokers.tree import Finding, Findings, Tree
from qindex.words import many

__all__ = ["Counts", "Message", "Node", "Part", "Queue", "Vhost", "is_here", "open_at", "open_node"]

_VHOSTS: Final = "msg_stores/vhosts"
_STORE: Final = "msg_store_persistent"
_FILES_TOLD: Final = 8
_NAME_BYTES_MAX: Final = 64 * 1024
_HASHED: Final = re.compile(r"[0-9A-Z]{1,25}")
_QUEUE_NAME: Final = (
    re.compile(rb"VHOST: (.*?)\nQUEUE: (.*?)\n(?:INDEX: v2\n)?", re.DOTALL),
    re.compile(rb"VHOST: (.*)\nQUEUE: (.*?)\n(?:INDEX: v2\n)?", re.DOTALL),
)
_SLOTS: Final = re.compile(rb"\{\s*segment_entry_count\s*,\s*([0-9]{1,5})\s*\}")


def open_node(path: str | os.PathLike[str], members: Sequence[str | os.PathLike[str]] = ()) -> Node:
    """Reads the indexes of the node at `path`, which may also be a directory around or inside it.

    UnknownFormat: there is no RabbitMQ node, or more than one. Damage never raises.
    """
    others = [find_folder(each, ["rabbitmq"])[0] for each in members]
    return open_at(find_folder(path, ["rabbitmq"])[0], others)


def is_here(folder: Path) -> bool:
    return is_folder(folder / _VHOSTS) or _is_old(folder) or has_unread(folder)


def _is_old(folder: Path) -> bool:
    """Of 3.5 or 3.6. The directory of a virtual host looks alike, but says what it is."""
    stands_alone = not any((folder / name).exists() for name in (".vhost", ".config"))
    return stands_alone and all(is_folder(folder / name) for name in ("queues", _STORE))


def open_at(folder: Path, members: Sequence[Path] = ()) -> Node:
    """open_node() of exactly this directory; `members` are those of other nodes of its cluster."""
    log = Findings()
    node = Node(folder.name, Tree(folder, log), log)
    try:
        node.metadata = read_khepri(node.tree, log)
        if node.metadata is None:
            definitions = read_definitions(node.tree, log)
        else:
            definitions = queues_of(node.metadata, node.tree, log)
        node.has_definitions = definitions is not None
        if is_folder(folder / _VHOSTS):
            folders = [name for name in node.tree.folders(_VHOSTS) if _HASHED.fullmatch(name)]
            for vhost in folders:
                node.vhosts.append(_read_vhost(node, vhost, definitions))
            _tell_missing_vhosts(log, folders, definitions or {})
        if _is_old(folder):
            node.vhosts += _read_old_vhosts(node, definitions or {})
        node.replicated += read_streams(node.tree, _of_type(definitions, "stream"), log)
        defined = _of_type(definitions, "quorum")
        node.others = [Tree(path, Findings()) for path in members]
        node.replicated += read_quorum_queues(node.tree, defined, log, node.others, node.deleted)
        for other in node.others:
            _tell_left_out(other)
            log.take_over(other.findings, other.path.name)
        read = {(queue.group, queue.name) for queue in node.replicated}
        node.unread = unread_queues(node.tree, definitions, log, read)
    except BaseException:
        node.close()
        raise
    node.vhosts.sort(key=lambda vhost: vhost.name)
    return node


def _tell_left_out(member: Tree) -> None:
    """A member is given for its quorum queues: what else it has is not read."""
    classic = sum(len(member.folders_if_any(f"{each}/queues")) for each in _vhost_folders(member))
    streams = len(member.folders_if_any("stream"))
    if classic or streams:
        text_ = f"of this member only quorum queues are taken, not {many(classic, 'classic queue')}"
        text_ += f" and {many(streams, 'stream')} of its own: recover it as a node, too"
        member.findings.note("member", "", 0, text_)


def _vhost_folders(tree: Tree) -> list[str]:
    return [f"{_VHOSTS}/{name}" for name in tree.folders_if_any(_VHOSTS) if _HASHED.fullmatch(name)]


def _of_type(definitions: Definitions | None, name: str) -> list[Definition]:
    defined = (definitions or {}).values()
    return [each for each in defined if each.type == f"rabbit_{name}_queue"]


def _tell_missing_vhosts(log: Findings, folders: list[str], definitions: Definitions) -> None:
    """A virtual host has its directory from its creation on, so one without it was lost."""
    for raw in sorted({vhost for vhost, _ in definitions}):
        if vhost_folder(raw) in folders:
            continue
        queues = [each for each in _of_type(definitions, "classic") if each.vhost == raw]
        report = (
            f"the directory of virtual host {text(raw)} is not there, nor what its"
            f" {many(len(queues), 'durable classic queue')} held"
        )
        log.damage("missing", f"{_VHOSTS}/{vhost_folder(raw)}", 0, report)


def _read_vhost(node: Node, folder: str, definitions: Definitions | None) -> Vhost:
    tree, log = node.tree, node.log
    where = f"{_VHOSTS}/{folder}"
    raw = tree.read(f"{where}/.vhost", _NAME_BYTES_MAX)
    if raw is not None and vhost_folder(raw) != folder:
        log.damage("name", f"{where}/.vhost", 0, "the name is not the one of this directory")
        raw = None
    if raw is None:
        raw = _defined_vhost(node, folder, definitions)
    name = folder if raw is None else text(raw)
    told = _slots(tree, where, log)
    vhost = Vhost(name, node, folder, where, told or SLOTS_MAX)
    vhost.store = read_store(tree, f"{where}/{_STORE}", log)
    behind_store = len(log.kept)
    terms = read_recovery_terms(tree, f"{where}/recovery.dets", log)
    names = _names_by_folder(raw or b"", definitions or {}, queue_folder)
    _add_queues(vhost, raw, _queue_folders(node, f"{where}/queues"), names, terms, definitions)
    count_with_best_slots(vhost, told)
    _blame_store(log, f"{where}/{_STORE}", [vhost], vhost.store, behind_store)
    vhost.orphan_bodies, vhost.orphan_bytes = vhost.store.unwanted()
    return vhost


def _read_old_vhosts(node: Node, definitions: Definitions) -> list[Vhost]:
    """They share one message store; a queue that is not defined counts to the first of them."""
    tree, log = node.tree, node.log
    store = read_store(tree, _STORE, log)
    behind_store = len(log.kept)
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
        count_queues(vhost)
        vhosts.append(vhost)
    _blame_store(log, _STORE, vhosts, store, behind_store)
    vhosts[0].orphan_bodies, vhosts[0].orphan_bytes = store.unwanted()
    return vhosts


def _blame_store(
    log: Findings, where: str, vhosts: list[Vhost], store: MessageStore, at: int
) -> None:
    """If queues miss bodies: what is wrong in the store is damage, and comes before their cost."""
    missing = sum(q.counts.body_missing for vhost in vhosts for q in vhost.queues)
    if not missing:
        return
    log.worsen(where)
    names = [file.rpartition("/")[2] for file in store.files]
    told = ", ".join(names[:_FILES_TOLD]) + (" ..." if len(names) > _FILES_TOLD else "")
    text = f"{missing:,} {'body' if missing == 1 else 'bodies'} that queues name"
    text += f" {'is' if missing == 1 else 'are'} in no message file; there is {told or 'none'}"
    log.first(at, Finding("bodies missing", where, 0, text))


def _queue_folders(node: Node, where: str) -> list[str]:
    try:
        return sorted(filter(_HASHED.fullmatch, node.tree.folders(where)))
    except FileNotFoundError:
        return []  # a node makes it with the first directory of a queue
    except OSError as error:
        node.log.damage("missing", where, 0, f"cannot be listed: {error.strerror}")
        return []


def _defined_vhost(node: Node, folder: str, definitions: Definitions | None) -> bytes | None:
    names = {vhost for vhost, _ in definitions or ()}
    for vhost in names.union(node.metadata.vhosts if node.metadata else ()):
        if vhost_folder(vhost) == folder:
            return vhost
    return None


def _slots(tree: Tree, where: str, log: Findings) -> int | None:
    """Entries per segment, fixed when the virtual host was made; None: the file does not say."""
    config = tree.read(f"{where}/.config", _NAME_BYTES_MAX)
    if config is None:
        return None
    found = _SLOTS.search(config)
    slots = int(found[1]) if found else 0
    if not 0 < slots <= SLOTS_MAX:
        report = f"no segment_entry_count from 1 to {SLOTS_MAX}"
        log.damage("config", f"{where}/.config", 0, report)
        return None
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
            report = (
                f"the directory is not there; the queue was stopped with {many(count, 'message')}"
            )
            vhost.node.log.damage("missing", vhost.path(f"queues/{folder}"), 0, report)
    for folder in folders:
        name, priority = _queue_name(vhost, folder, raw_vhost, names.get(folder))
        where = vhost.path(f"queues/{folder}")
        part = Part(folder, where, priority, _index_version(vhost, folder), terms.get(folder))
        part.durable = name in defined
        part.has_ttl = defined[name].has_ttl if name in defined else None
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
    where = vhost.path(f"queues/{folder}")
    try:
        names = vhost.node.tree.files(where)
    except OSError:
        return 1  # reading the queue reports it
    if index_files(names):
        return 2
    name = vhost.node.tree.read(f"{where}/.queue_name", _NAME_BYTES_MAX) or b""
    return 2 if name.endswith(b"\nINDEX: v2\n") else 1
