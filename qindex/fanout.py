"""A store's publish: one body to several queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from qindex._core import ffi, lib
from qindex.arguments import (
    Buffer,
    Moment,
    Seconds,
    as_bytes,
    boolean,
    encode_headers,
    parts_of,
    priority_flags,
    several,
    to_due_us,
    to_expiry_us,
)
from qindex.errors import raise_error
from qindex.options import SyncPolicy

if TYPE_CHECKING:
    from qindex.queue import Queue


@parts_of("Store")
class FanOut:
    """For the class of a store."""

    sync_policy: SyncPolicy

    if TYPE_CHECKING:

        def queue(self, name: str, *, create: bool = True) -> Queue: ...
        def _now_us(self) -> int: ...
        def _open_handle(self) -> Any: ...

    def publish(
        self,
        queues: Iterable[str],
        body: Buffer,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        ttl: Seconds | None = None,
        expires_at: Moment | None = None,
        priority: int = 0,
        delay: Seconds | None = None,
        due: Moment | None = None,
        confirm: bool = False,
        create: bool = False,
    ) -> list[int]:
        """Publish one body to several queues; return its ReqId in each, in the same order.

        A queue that is not there is an error, QueueMissing; with `create` it is created.

        All queues get the message, or none: what can be refused is refused before the first record
        is written. Only a crash, or a disk that fails between the records, may leave it in the
        first queues; DiskError then says how many have it. Options and other errors as
        Queue.publish().

        Cost: a record for each queue. A body of `embed_below` bytes or more is stored once, and
        freed after the last queue has acked it.
        """
        queues = several("queues", queues, "names", "store.queue(name).publish()")
        boolean("confirm", confirm)
        targets = [self.queue(name, create=create) for name in queues]
        if not targets:
            raise ValueError("name at least one queue: a message for none would be lost")
        data = as_bytes(body)
        table = encode_headers(headers)
        handles = ffi.new("qi_queue *[]", [queue._handle for queue in targets])
        req_ids = ffi.new("uint64_t[]", len(targets))
        code = lib.qi_store_publish(
            self._open_handle(),
            handles,
            len(targets),
            table,
            len(table),
            data,
            len(data),
            (0 if boolean("persistent", persistent) else lib.QI_TRANSIENT)
            | priority_flags(priority),
            to_expiry_us(self._now_us, ttl, expires_at),
            to_due_us(self._now_us, delay, due),
            req_ids,
        )
        if code < 0:
            raise_error(code)
        if confirm or self.sync_policy == "always":
            for queue in targets:
                queue._confirm()
        result: list[int] = ffi.unpack(req_ids, len(targets))
        return result
