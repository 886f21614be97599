"""What keeps which file: the index of a store is read for it, beside the broker and on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from qindex.broker.errors import NotAllowed
from qindex.look.sources import StoreSource, open_source
from qindex.look.usage import FileUse, Usage
from qindex.look.usage_store import collect
from qindex.look.watch import Silent
from qindex.serve.http import shapes
from qindex.serve.http.asked import SEES_ALL, Asked
from qindex.serve.http.own.messages import Looks

FILES_MAX: Final = 200
QUEUES_MAX: Final = 200
HOLDERS_MAX: Final = 5


async def disk(asked: Asked, looks: Looks) -> Any:
    """All stores that the user sees; of each the largest files and queues. O(messages)."""
    if not SEES_ALL & asked.tags:
        raise NotAllowed("files need the tag monitoring or administrator")
    stores = list(asked.server.node.stores.items())
    return {
        "stores": [
            {"name": name, **await looks.beside(lambda path=store.path: usage_of(path))}
            for name, store in stores
        ]
    }


def usage_of(path: str) -> shapes.Shape:
    """Of the store there, by a read-only open of its own."""
    with open_source(path, Silent()) as source:
        if not isinstance(source, StoreSource):
            raise TypeError(f"{path!r} is no store")
        usage = collect(source, Silent())
        folders = {source.store.queue_directory(queue.name): queue.name for queue in usage.queues}
        return as_json(usage, folders)


def as_json(usage: Usage, folders: dict[str, str]) -> shapes.Shape:
    """`folders` are the names of queues by the folder that each has."""
    kinds: dict[str, dict[str, int]] = {}
    for file in usage.files.values():
        kind = kinds.setdefault(file.kind, {"files": 0, "size": 0, "live": 0, "room": 0})
        kind["files"] += 1
        kind["size"] += file.size
        kind["live"] += file.live
        kind["room"] += file.room
    files = sorted(usage.files.values(), key=lambda file: -file.size)
    queues = sorted(usage.queues, key=lambda queue: -(queue.index + queue.bodies))
    return {
        "kinds": kinds,
        "advice": usage.advice,
        "unread": usage.unread,
        "file_count": len(files),
        "files": [_file(file, usage, folders) for file in files[:FILES_MAX]],
        "queue_count": len(queues),
        "queues": [
            {
                "name": shapes.plain(queue.name),
                "messages": queue.messages,
                "index": queue.index,
                "index_live": queue.index_live,
                "bodies": queue.bodies,
                "missing": queue.missing,
            }
            for queue in queues[:QUEUES_MAX]
        ],
    }


def _file(file: FileUse, usage: Usage, folders: dict[str, str]) -> shapes.Shape:
    holders = sorted(file.queues.items(), key=lambda each: -each[1].bytes)
    return {
        "name": Path(file.where).name,
        "where": file.where,
        "queue": shapes.plain(folders.get(file.where.rpartition("/")[0])),
        "kind": file.kind,
        "size": file.size,
        "live": file.live,
        "room": file.room,
        "garbage": usage.garbage_of(file),
        "holders": [
            {"queue": shapes.plain(name), "messages": holder.messages, "bytes": holder.bytes}
            for name, holder in holders[:HOLDERS_MAX]
        ],
        "holder_count": len(holders),
    }
