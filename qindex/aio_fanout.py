"""The publish of a store of qindex.aio: one body to several queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from qindex.aio_line import BREATH, RECORD, unusual
from qindex.aio_places import publish_in_turn
from qindex.arguments import (
    Buffer,
    Moment,
    Seconds,
    as_bytes,
    boolean,
    encode_headers,
    parts_of,
    several,
)
from qindex.calls import fan_out
from qindex.errors import QindexError, QueueFull, StoreClosed, StoreFull, in_doubt
from qindex.fanout import OnFull, check_on_full
from qindex.mixed import Outgoing
from qindex.waiting import check_timeout

if TYPE_CHECKING:
    import qindex.store
    from qindex.aio_queue import Queue
    from qindex.aio_store import Store

T = TypeVar("T")


@parts_of("Store")
class AioFanOut:
    """For the class of a store of qindex.aio."""

    _store: qindex.store.Store
    _calls = 0
    _ending: asyncio.Future[None] | None

    if TYPE_CHECKING:

        def _opened(self, names: list[str]) -> list[Queue] | None: ...

        def _refuse_elsewhere(self) -> None: ...

        async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T: ...

    @overload
    async def publish(
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
    async def publish(
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
    async def publish(
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
        """Publish one body to several queues; return its ReqId in each. See Store.publish().

        It is done at once if that needs no wait, as Queue.publish(). With `timeout` it stands in
        line for places, in each of the queues.
        """
        names = several("queues", queues, "names", "store.queue(name).publish()")
        if confirm is not True:
            boolean("confirm", confirm)
        if create is not True:
            boolean("create", create)
        check_on_full(on_full)
        is_awaited = confirm or self._store.sync_policy == "always"
        if is_awaited:
            self._refuse_elsewhere()  # before anything is published
        left = 0 if timeout == 0 else check_timeout(timeout)
        data = body if type(body) is bytes else as_bytes(body)
        self._calls += 1
        if self._calls % BREATH == 0:
            await asyncio.sleep(0)
        options = unusual(headers, persistent, ttl, expires_at, False, priority, delay, due, lease)
        skip = on_full == "skip"
        try:
            req_ids = await self._spread(names, data, options, create, skip and left == 0)
        except (QueueFull, StoreFull):
            if left == 0:
                raise
            req_ids = await self._spread_in_turn(names, data, options, create, skip, left)
        if is_awaited:
            await self._confirmed(names, req_ids)
        return req_ids

    async def _spread(
        self, names: list[str], data: bytes, options: dict[str, Any], create: bool, skip: bool
    ) -> list[int | None]:
        """At once, or by a thread, which also opens queues, and says what is wrong."""
        targets = self._opened(names)
        if targets is not None:
            size = len(data) + RECORD
            for target in targets:
                if target._unconfirmed + size > target._bound:
                    await target._make_room(size)
                target._unconfirmed += size
            req_ids = fan_out(tuple([each._now for each in targets]), skip, data, **options)
            if req_ids is not None:
                return req_ids
        how: Any = {"create": create, "on_full": "skip" if skip else "raise", **options}
        return await self._run(self._store.publish, names, data, **how)

    async def _spread_in_turn(
        self,
        names: list[str],
        data: bytes,
        options: dict[str, Any],
        create: bool,
        skip: bool,
        left: float | None,
    ) -> list[int | None]:
        """When there are places, or with what `skip` says when the time is over."""
        spread = partial(self._spread, names, data, options, create)
        turns = [target._turn for target in self._opened(names) or []]
        if not turns:  # a queue is not there any more
            return await spread(skip)
        size = len(data) + len(encode_headers(options.get("headers")))
        strict = partial(spread, False)
        try:
            return await publish_in_turn(cast("Store", self), turns, strict, left, 1, size)
        except QueueFull:
            if not skip:
                raise
            return await spread(True)

    async def _confirmed(self, names: list[str], req_ids: list[int | None]) -> None:
        """Wait for the syncs of those queues that have the message."""
        takers: dict[Queue, None] = {}
        is_sure = True
        for name, req_id in zip(names, req_ids, strict=True):
            found = self._opened([name])
            if found is not None and req_id is not None:
                takers[found[0]] = None
            is_sure = is_sure and found is not None
        waits = [self._durable_in(target) for target in takers]
        if not is_sure:  # one was deleted meanwhile, with the message; or it has another name
            waits.append(self._synced())
        await asyncio.gather(*waits)

    async def _durable_in(self, target: Queue) -> None:
        try:
            await target._group.join()
        except StoreClosed:  # the queue alone: it was deleted, with the message
            self._store._open_handle()

    async def _synced(self) -> None:
        """Everything is durable: by a sync, or by the close that came before it."""
        try:
            await self._run(self._store.sync)
        except StoreClosed:
            if self._ending is None:
                raise
            try:
                await asyncio.shield(self._ending)
            except QindexError as error:
                raise in_doubt(error) from error

    async def publish_many(
        self, messages: Iterable[Outgoing], *, confirm: bool = False, create: bool = False
    ) -> list[int]:
        """Publish messages of any kind to any queues; see Store.publish_many() of qindex."""
        return await self._run(self._store.publish_many, messages, confirm=confirm, create=create)
