"""The publish of a store of qindex.aio: one body to several queues, in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from qindex.arguments import Buffer, Moment, Seconds, parts_of
from qindex.fanout import OnFull
from qindex.mixed import Outgoing

if TYPE_CHECKING:
    import qindex.store

T = TypeVar("T")


@parts_of("Store")
class AioFanOut:
    """For the class of a store of qindex.aio."""

    _store: qindex.store.Store

    if TYPE_CHECKING:

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
    ) -> list[int] | list[int | None]:
        """Publish one body to several queues; return its ReqId in each. See Store.publish()."""
        return await self._run(
            self._store.publish,
            queues,
            body,
            headers=headers,
            persistent=persistent,
            ttl=ttl,
            expires_at=expires_at,
            priority=priority,
            delay=delay,
            due=due,
            lease=lease,
            confirm=confirm,
            create=create,
            on_full=on_full,
        )

    async def publish_many(
        self, messages: Iterable[Outgoing], *, confirm: bool = False, create: bool = False
    ) -> list[int]:
        """Publish messages of any kind to any queues; see Store.publish_many() of qindex."""
        return await self._run(self._store.publish_many, messages, confirm=confirm, create=create)
