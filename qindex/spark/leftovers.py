"""What a directory looks like that no reader recognises: what is left of a store or of a broker.

A fleet's commands pass over directories that have nothing to do with queues. A store without its
store.meta, half of a RabbitMQ node or a folder that may not be listed must not be among them: there
may be messages in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

# Names that only one program gives to files; those that two programs give are in both.
_FILES: Final = {
    "qindex": re.compile(
        r"store\.meta(\.new)?|queue\.meta(\.new)?|[0-9]+\.qms|journal\.(jif|alt)"
        r"|[0-9]+\.(idx|alt)|past\.[0-9]+\.(jif|[0-9]+\.(idx|alt))"
    ),
    "rabbitmq": re.compile(
        r"[0-9]+\.(rdq|rdt|idx|qi|qs)|journal\.jif|\.queue_name|\.vhost|recovery\.dets"
        r"|rabbit_[a-z_]+\.(DCD|DCL|DAT)|schema\.DAT|rabbit_serial|cluster_nodes\.config"
        r"|nodes_running_at_shutdown"
    ),
}
_QUEUE_FOLDER: Final = re.compile(r"[0-9a-f]{32}|[0-9A-Z]{20,25}")
_QUORUM_FOLDERS: Final = ("quorum", "coordination", "stream")
# Folders within a store or a node. Where these are recognised nobody looks into them once more.
LAYOUT: Final = frozenset(
    (
        *("queues", "messages", "spark", "msg_stores", "vhosts"),
        *("msg_store_persistent", "msg_store_transient", *_QUORUM_FOLDERS),
    )
)
_ADVICE: Final = {
    "qindex": "'qindex salvage' takes the messages out that can be read",
    "rabbitmq": "name the node's directory itself, or see 'qindex recover'",
}


class Listing(NamedTuple):
    """The names in a directory."""

    files: list[str]
    folders: list[str]
    links: list[str]


def list_folder(path: str) -> Listing:
    """OSError if it cannot be listed."""
    listing = Listing([], [], [])
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_symlink():
                listing.links.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                listing.folders.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                listing.files.append(entry.name)
    for names in listing:
        names.sort()
    return listing


def looks_like(path: str, listing: Listing) -> tuple[str, str] | None:
    """(format, what there is) if this unrecognised directory has something of it; else None.

    Cost: up to six small listings, and only where folders have the names of a layout.
    """
    names = [*listing.files, *listing.links]
    for kind, pattern in _FILES.items():
        if found := [name for name in names if pattern.fullmatch(name)]:
            return kind, _told(found)
    inside = {name: _names_in(f"{path}/{name}") for name in LAYOUT.intersection(listing.folders)}
    if any(_FILES["qindex"].fullmatch(name) for name in inside.get("messages", ())):
        return "qindex", "messages/"
    queues = [name for name in inside.get("queues", ()) if _QUEUE_FOLDER.fullmatch(name)]
    if queues:
        return ("qindex" if queues[0].islower() or queues[0].isdigit() else "rabbitmq"), "queues/"
    for name in ("msg_stores", "msg_store_persistent", "msg_store_transient"):
        if name in inside:
            return "rabbitmq", f"{name}/"
    for name in _QUORUM_FOLDERS:
        if any("@" in below for below in inside.get(name, ())):
            return "rabbitmq", f"{name}/"
    return None


def problem_of(kind: str, found: str) -> str:
    """What is said of a directory that looks like this."""
    whole = "a store of qindex" if kind == "qindex" else "a RabbitMQ node"
    return f"parts of {whole} ({found}), but not a whole one: it was not read; {_ADVICE[kind]}"


def _names_in(path: str) -> Sequence[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 - names, of many folders
    except OSError:
        return ()


def _told(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
