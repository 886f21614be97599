"""A store's publish: one body to several queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args, overload

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
    queue_name,
    several,
    to_due_us,
    to_expiry_us,
    to_lease_us,
)
from qindex.errors import StoreClosed, raise_error
from qindex.options import SyncPolicy
from qindex.waiting import Wait

if TYPE_CHECKING:
    from qindex.queue import Queue

OnFull: TypeAlias = Literal["raise", "skip"]
_ON_FULL: Final = get_args(OnFull)
_SKIPPED: Final = (1 << 64) - 1


def check_on_full(on_full: OnFull) -> None:
    if on_full not in _ON_FULL:
        raise ValueError(f"on_full must be one of {', '.join(_ON_FULL)}, not {on_full!r}")


@parts_of("Store")
class FanOut:
    """For the class of a store."""

    sync_policy: SyncPolicy

    if TYPE_CHECKING:

        def _ruled_queue(self, name: str, create: bool) -> Queue: ...
        def _now_us(self) -> int: ...
        def _open_handle(self) -> Any: ...

    @overload
    def publish(
        self,
        queues: Iterable[str],
        body: Buffer,
        *,
        headers: Mapping[str, Any] | None = ...,
        persistent: bool = ...,
        ttl: Seconds | None = ...,
        expires_at: Moment | None = ...,
        priority: int = ...,
        delay: Seconds | None = ...,
        due: Moment | None = ...,
        lease: Seconds | None = ...,
        confirm: bool = ...,
        create: bool = ...,
        on_full: Literal["raise"] = ...,
        timeout: Seconds | None = ...,
    ) -> list[int]: ...
    @overload
    def publish(
        self,
        queues: Iterable[str],
        body: Buffer,
        *,
        headers: Mapping[str, Any] | None = ...,
        persistent: bool = ...,
        ttl: Seconds | None = ...,
        expires_at: Moment | None = ...,
        priority: int = ...,
        delay: Seconds | None = ...,
        due: Moment | None = ...,
        lease: Seconds | None = ...,
        confirm: bool = ...,
        create: bool = ...,
        on_full: Literal["skip"],
        timeout: Seconds | None = ...,
    ) -> list[int | None]: ...
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
        lease: Seconds | None = None,
        confirm: bool = False,
        create: bool = False,
        on_full: OnFull = "raise",
        timeout: Seconds | None = 0,
    ) -> list[int] | list[int | None]:
        """Publish one body to several queues; return its ReqId in each, in the same order.

        - `create`: True to create a queue that is not there; else it is an error, QueueMissing. It
          stays, empty, if the message is refused because a queue, the store or the disk is full.
        - `on_full`: "skip" leaves out the queues that are full: their place in the result is None,
          and the others get the message. "raise": QueueFull, and no queue gets it. A store that is
          full raises StoreFull either way.
        - `timeout`: seconds to wait until each of these queues, and the store, has a place; None
          for ever. What could never have one is not waited for. Then `on_full` says what is done
          about queues that are still full. A time that is given counts from the call.

        All queues get the message, or none: what can be refused is refused before the first record
        is written. Only a crash, or a disk that fails between the records, may leave it in the
        first queues; DiskError then says how many have it. Options and other errors as
        Queue.publish().

        Cost: a record for each queue. A body of `embed_below` bytes or more is stored once, and
        freed after the last queue has acked it.
        """
        queues = several("queues", queues, "names", "store.queue(name).publish()")
        for name in queues:
            queue_name(name)
        boolean("confirm", confirm)
        check_on_full(on_full)
        boolean("create", create)
        if not queues:
            raise ValueError("name at least one queue: a message for none would be lost")
        wait = Wait(self._open_handle(), timeout) if timeout != 0 else None
        data = as_bytes(body)
        table = encode_headers(headers)
        flags = 0 if boolean("persistent", persistent) else lib.QI_TRANSIENT
        flags |= priority_flags(priority) | lib.QI_STEADY
        expiry_us = to_expiry_us(self._now_us, ttl, expires_at)
        due_us = to_due_us(self._now_us, delay, due)
        lease_us = to_lease_us(lease)
        targets = [self._ruled_queue(name, create) for name in queues]  # all else is right
        handles = ffi.new("qi_queue *[]", [queue._handle for queue in targets])
        req_ids = ffi.new("uint64_t[]", len(targets))

        def publish(skip: bool) -> int:
            code: int = lib.qi_store_publish(
                self._open_handle(),
                handles,
                len(targets),
                table,
                len(table),
                data,
                len(data),
                flags,
                expiry_us,
                due_us,
                lease_us,
                skip,
                req_ids,
            )
            return code

        code = publish(on_full == "skip" and wait is None)
        while wait is not None and code in (lib.QI_E_QUEUE_FULL, lib.QI_E_STORE_FULL):
            code = wait(lib.qi_place_wait, handles, len(targets), 1, len(table) + len(data))
            if code == lib.QI_E_QUEUE_FULL and on_full == "skip":
                code = publish(True)
                break
            if code < 0:
                break
            code = publish(False)
        if code < 0:
            raise_error(code)
        result: list[int] = ffi.unpack(req_ids, len(targets))
        if confirm or self.sync_policy == "always":
            for queue, req_id in zip(targets, result, strict=True):
                if req_id != _SKIPPED:
                    self._confirm_in(queue)
        if on_full == "skip":
            return [None if req_id == _SKIPPED else req_id for req_id in result]
        return result

    def _confirm_in(self, queue: Queue) -> None:
        try:
            queue._confirm()
        except StoreClosed:  # the queue alone: it was deleted, with the message
            self._open_handle()
