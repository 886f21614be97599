"""The queue of qindex.aio: a call is made at once if the core need not wait, else in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Never, TypeVar

from qindex._core import ffi, lib
from qindex.aio_configuring import AioConfigured
from qindex.aio_figures import AioFigures
from qindex.aio_getting import BUSY, AioGetting, Busy
from qindex.aio_group import GroupSync
from qindex.aio_line import BREATH, RECORD, unusual
from qindex.aio_places import Turn, publish_in_turn
from qindex.aio_settling import AioSettling
from qindex.arguments import (
    Buffer,
    Moment,
    Seconds,
    as_bytes,
    batch_headers,
    boolean,
    encode_headers,
    several,
)
from qindex.calls import QueueCalls
from qindex.errors import QueueFull, StoreClosed, StoreFull, raise_error
from qindex.figures import QueueStats
from qindex.message import Message
from qindex.waiting import check_timeout

if TYPE_CHECKING:
    import qindex.queue
    from qindex.aio_store import Store

F = TypeVar("F", bound=Callable[..., object])


def _shown_without_wrong(function: F) -> F:
    """Leave `*wrong`, which is there to be refused with a better text, out of the signature.

    A type checker knows its type, Never, and refuses whatever is given for it.
    """
    signature = inspect.signature(function)
    kept = [each for each in signature.parameters.values() if each.kind != each.VAR_POSITIONAL]
    function.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return function


class _CallsNow(QueueCalls):
    """The verbs of each message. They return BUSY where a Queue's would wait or work longer."""

    def __init__(self, whole: qindex.queue.Queue) -> None:
        self._whole = whole  # the qindex.Queue: Message.ack() and its like use that one

    def _busy(self, *arguments: object, **options: object) -> Busy:
        return BUSY

    _publish = _get = _ack = _nack = _touch = _busy
    _raise = staticmethod(raise_error)


class Queue(AioGetting, AioSettling, AioConfigured, AioFigures):
    """A durable queue of a qindex.aio.Store, for the tasks of one event loop.

    Methods and errors are those of qindex.Queue. `async for message in queue` takes messages as
    they come. len() and the figures that are properties are not awaited: they take the store's lock
    for a moment, and read the queue's journals if nothing has used the queue since the open;
    `await queue.stats()` has them without that.
    """

    def __init__(self, store: Store, queue: qindex.queue.Queue) -> None:
        super().__init__()
        self._store = store
        self._queue = queue
        self.name = queue.name
        self._confirm_all = queue._confirm_all
        calls = _CallsNow(queue)
        address = int(ffi.cast("uintptr_t", queue._handle))
        calls._attach(address, Message, queue._plain, False, False)
        self._now = calls
        self._publish_now: Callable[..., int | Busy] = calls.publish
        self._get_now: Callable[..., Message | Busy | None] = calls.get
        self._ack_now: Callable[[Message | int | str], Busy | None] = calls.ack
        self._unconfirmed = 0  # bytes that may not be durable
        self._bound = store.max_unconfirmed
        self._group = GroupSync(store, queue, self._covered)
        self._turn = Turn(queue)

    def __repr__(self) -> str:
        return f"<qindex.aio.Queue {self.name!r}>"

    # --- waking --------------------------------------------------------------------------------

    async def _arm(self, woken: asyncio.Future[None]) -> None:
        """From here on, a message wakes `woken`; at once, if there is one already."""
        code = lib.qi_bell_arm(self._queue._handle, False)
        if code == lib.QI_BUSY:
            code = await self._store._run(lib.qi_bell_arm, self._queue._handle, True)
        if code != 0 and not woken.done():  # a message, or an error: the next get raises that
            woken.set_result(None)

    def _pass_on(self) -> None:
        """A task stops waiting, and may have been woken for a message that it did not take.

        So the next waiting task is woken, or the wake-up is armed anew for it.
        """
        if self._store._closed:
            self._wake_next()
        elif self._waiters:
            code = lib.qi_bell_arm(self._queue._handle, False)
            if code == lib.QI_BUSY:
                self._store._loop.call_later(0.001, self._pass_on)
            elif code != 0:
                self._wake_next()
        elif lib.qi_bell_disarm(self._queue._handle, False) == lib.QI_BUSY:
            self._store._loop.call_later(0.001, self._pass_on)

    # --- publishing ----------------------------------------------------------------------------

    async def publish(
        self,
        body: Buffer,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        ttl: Seconds | None = None,
        expires_at: Moment | None = None,
        redelivered: bool = False,
        priority: int = 0,
        delay: Seconds | None = None,
        due: Moment | None = None,
        lease: Seconds | None = None,
        confirm: bool = False,
        timeout: Seconds | None = 0,
    ) -> int:
        """Append a message; return its ReqId. It survives kill -9 when this returns.

        With `confirm` it survives a power cut, too; all tasks that wait for that share one sync.
        With `timeout`, tasks that find the queue full stand in line for a place.
        Options and errors as qindex.Queue.publish().

        Cost: that of Queue.publish() and a coroutine. With a body of more than 256 KiB, or with
        headers that are nested or have more than 1,000 bytes, a turn of a thread (about 150 µs).
        """
        if self._confirm_all or (confirm is not False and boolean("confirm", confirm)):
            self._store._refuse_elsewhere()  # before anything is published
        left = 0 if timeout == 0 else check_timeout(timeout)
        data = body if type(body) is bytes else as_bytes(body)
        self._calls = calls = self._calls + 1
        if calls % BREATH == 0:
            await asyncio.sleep(0)
        size = len(data) + RECORD
        if self._unconfirmed + size > self._bound:
            await self._make_room(size)
        self._unconfirmed += size
        options = unusual(
            headers, persistent, ttl, expires_at, redelivered, priority, delay, due, lease
        )
        try:
            if confirm or self._confirm_all:  # the sync is waited for below
                req_id = self._publish_now(data, confirm=True, **options)
            else:  # an empty mapping of options would make the call dearer
                req_id = self._publish_now(data, **options) if options else self._publish_now(data)
            if req_id is BUSY:
                req_id = await self._store._run(self._queue._publish, data, **options)
        except (QueueFull, StoreFull):
            if left == 0:
                raise

            async def publish() -> int:
                return await self._store._run(self._queue._publish, data, **options)

            size = len(data) + len(encode_headers(headers))
            req_id = await publish_in_turn(self._store, [self._turn], publish, left, 1, size)
        if confirm or self._confirm_all:
            await self._group.join()
        return req_id

    async def publish_many(
        self,
        bodies: Iterable[Buffer],
        *,
        headers: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
        persistent: bool | Sequence[bool] = True,
        ttl: Seconds | None = None,
        expires_at: Moment | Sequence[Moment | None] | None = None,
        redelivered: bool | Sequence[bool] = False,
        priority: int = 0,
        delay: Seconds | None = None,
        due: Moment | None = None,
        lease: Seconds | None = None,
        confirm: bool = False,
        timeout: Seconds | None = 0,
    ) -> range:
        """Append a batch, all of it or nothing. See Queue.publish_many(). A turn of a thread."""
        boolean("confirm", confirm)
        left = check_timeout(timeout)
        items = [as_bytes(each) for each in several("bodies", bodies, "bodies", "publish()")]
        size = sum(map(len, items)) + RECORD * len(items)
        await self._make_room(size)
        self._unconfirmed += size
        publish = partial(
            self._store._run,
            self._queue.publish_many,
            items,
            headers=headers,
            persistent=persistent,
            ttl=ttl,
            expires_at=expires_at,
            redelivered=redelivered,
            priority=priority,
            delay=delay,
            due=due,
            lease=lease,
        )
        try:
            req_ids = await publish()
        except (QueueFull, StoreFull):
            if left == 0:
                raise
            size += len(batch_headers(headers, len(items))[0]) - RECORD * len(items)
            turns = [self._turn]
            req_ids = await publish_in_turn(self._store, turns, publish, left, len(items), size)
        if confirm or self._confirm_all:
            await self._group.join()
        return req_ids

    async def _make_room(self, size: int) -> None:
        """Wait until `size` more bytes fit into `max_unconfirmed`, or nothing is unconfirmed."""
        while self._unconfirmed and self._unconfirmed + size > self._bound:
            await self._group.join()

    def _covered(self) -> Callable[[], None]:
        """A sync begins: what to do when it has made durable what is there now."""
        covered = self._unconfirmed

        def settle() -> None:
            self._unconfirmed -= covered

        return settle

    # --- getting -------------------------------------------------------------------------------

    @_shown_without_wrong
    async def get(
        self, *wrong: Never, timeout: Seconds | None = 0, lease: Seconds | None = None
    ) -> Message | None:
        """Take the next ready message; return None if none came in `timeout` seconds.

        0 (the default) does not wait, None waits for ever. `lease` and errors as Queue.get().

        Cost: that of Queue.get() and a coroutine. A turn of a thread (about 150 µs) for a message
        of more than 256 KiB, for one that has to come from the disk, and in a queue with
        `max_deliveries`. Waiting costs nothing.
        """
        if wrong:
            raise TypeError(
                f"Queue.get() takes no {wrong[0]!r}: get(timeout=5) waits 5 seconds, get_many(5) "
                "takes 5 messages, store.get([name, ...]) takes from several queues"
            )
        left = 0 if timeout == 0 else check_timeout(timeout)
        self._calls = calls = self._calls + 1
        if self._in_line or calls % BREATH == 0:
            await self._stand_in_line()  # before it takes anything: a cancellation loses nothing
        message = self._get_now() if lease is None else self._get_now(lease=lease)
        # No call from here to `return`: a signal handler could raise behind it, and the message
        # would be lost to its consumer.
        if message is None or message is BUSY:
            return await self._store._wait([self], left, partial(self._take, lease))
        return message

    def __aiter__(self) -> AsyncIterator[Message]:
        """Take messages as they come; ends when the store is closed. Settle each of them."""
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        while True:
            try:
                message = await self.get(timeout=None)
            except StoreClosed:
                return
            if message is not None:
                yield message

    async def _take(self, lease: Seconds | None = None) -> Message | None:
        message = self._get_now(lease=lease)
        if message is BUSY:
            return await self._take_in_thread(partial(self._queue._get, lease=lease))
        return message

    # --- settling ------------------------------------------------------------------------------

    async def ack(self, message: Message | int | str, /) -> None:
        """Settle a delivered message: it is done and will not come back. See Queue.ack()."""
        if self._confirm_all:
            self._store._refuse_elsewhere()  # before anything is settled
        if self._ack_now(message) is BUSY:
            await self._store._run(self._queue._ack, message)
        elif self._confirm_all:
            await self._group.join()

    # --- durability and figures ----------------------------------------------------------------

    async def sync(self) -> None:
        """Return when everything before this call survives a power cut. Raises OutcomeUnknown."""
        self._store._refuse_closed()
        await self._group.join()

    async def flush(self) -> None:
        """Move the journal's entries into segments now. See Queue.flush()."""
        await self._store._run(self._queue.flush)

    async def stats(self) -> QueueStats:
        """All figures at one moment."""
        return await self._store._run(self._queue.stats)
