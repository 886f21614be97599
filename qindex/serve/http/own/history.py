"""One message's history: the records about it in its store's files, as `qindex trace` has them.

What was flushed keeps what a message is, and not each event: a journal that is used again is gone.
"""

from __future__ import annotations

from typing import Any, Final

from qindex.broker.errors import NotFound, Precondition
from qindex.look.sources import StoreSource, open_source
from qindex.look.trace_store import trace
from qindex.look.traces import Trace
from qindex.look.watch import Silent
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked
from qindex.serve.http.given import whole
from qindex.serve.http.own.messages import REQ_ID_MAX, Looks, readable

RECORDS_MAX: Final = 1000


async def history(asked: Asked, looks: Looks) -> Any:
    """Of a message that waits, and of one that has left, as far as files tell of it."""
    queue, vhost = readable(asked), asked.vhost()
    number = whole(asked.part("number"), "number", REQ_ID_MAX)
    store = asked.server.node.stores.get(vhost.name)
    if store is None or not queue.backlog.is_durable:
        what = vhost.describe("queue", queue.name)
        raise Precondition(f"{what} lives in memory: no file tells of its messages")
    path, name = store.path, queue.name

    def read() -> Trace | None:
        with open_source(path, Silent()) as source:
            if not isinstance(source, StoreSource):
                raise TypeError(f"{path!r} is no store")
            return next(trace(source, name, number), None)

    found = await looks.beside(read)
    if found is None or not found.records:
        state = "not published yet" if found is None else found.state
        raise NotFound(f"no file tells of this message: {state}")
    return {
        "number": str(number),
        "state": found.state,
        "damaged": found.damaged,
        "records": [
            {
                "file": shapes.plain(record.file),
                "offset": record.offset,
                "record": record.verb,
                "text": shapes.plain(record.text),
            }
            for record in found.records[:RECORDS_MAX]
        ],
    }
