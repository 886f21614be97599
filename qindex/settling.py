"""What ends a delivery or changes a waiting message: ack, nack, touch, reschedule, purge ..."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

from qindex._core import ffi, lib
from qindex.arguments import (
    REQ_ID_MAX,
    Moment,
    Seconds,
    boolean,
    parts_of,
    several,
    shown,
    to_due_us,
    to_lease_us,
    whole,
)
from qindex.calls import MessageFields, to_deliveries
from qindex.errors import (
    AlreadyAcked,
    DeliveryEnded,
    DiskError,
    DiskFull,
    MessageDelivered,
    MessageError,
    UnknownMessage,
    in_doubt,
    raise_error,
)
from qindex.message import Message, State
from qindex.tokens import read_token

if TYPE_CHECKING:
    from qindex.store import Store

PurgeState: TypeAlias = Literal["ready", "delayed", "dead", "all"]
_PURGED: Final = {
    "ready": lib.QI_PURGE_READY,
    "delayed": lib.QI_PURGE_DELAYED,
    "dead": lib.QI_PURGE_DEAD,
    "all": lib.QI_PURGE_ALL,
}


def _settle(
    messages: list[Message | int | str],
    settle: Callable[[list[Message | int | str]], None],
    which: Callable[[Message | int | str], tuple[int, int]],
    missing_ok: bool,
) -> list[Message | int | str]:
    """Settle them all at once. With `missing_ok`, those that are too late are found by halving.

    So are two deliveries of one message, which the core refuses in one call: at most one of them is
    not too late. Cost: for k late ones of n, about k * log2(n) calls.
    """
    boolean("missing_ok", missing_ok)
    late: list[Message | int | str] = []
    parts = [messages]
    while parts:
        part = parts.pop()
        try:
            settle(part)
        except (UnknownMessage, AlreadyAcked, DeliveryEnded):
            if not missing_ok:
                raise
            if len(part) == 1:
                late += part
                continue
        except ValueError:
            if not missing_ok or not _only_messages_repeat(map(which, part)):
                raise
        else:
            continue
        middle = len(part) // 2
        parts += [part[middle:], part[:middle]]
    return late


def _only_messages_repeat(which: Iterable[tuple[int, int]]) -> bool:
    """Messages stand there twice, each time with another delivery."""
    seen: dict[int, set[int]] = {}
    repeats = False
    for req_id, delivery in which:
        deliveries = seen.setdefault(req_id, set())
        if deliveries and (delivery in deliveries or 0 in {delivery, *deliveries}):
            return False  # 0 is whatever delivery is current: also the other one
        repeats = repeats or bool(deliveries)
        deliveries.add(delivery)
    return repeats


@parts_of("Queue")
class Settling:
    """The methods of a queue that end a delivery or change a waiting message."""

    name: str
    _store: Store
    _handle: Any
    _confirm_all: bool

    def _which(self, message: MessageFields | int | str) -> tuple[int, int]:
        """ReqId and delivery (0: whatever delivery is current), as the core takes them."""
        if isinstance(message, MessageFields):
            return message.req_id, message._delivery
        if isinstance(message, str):
            return self._which(read_token(self._store._key, message)[1])
        if not isinstance(message, int) or isinstance(message, bool):
            why = ": get() returned None, because nothing was ready" if message is None else ""
            raise TypeError(
                f"a Message, its ReqId or its token is needed, not {shown(message)}{why}"
            )
        return whole("a ReqId", message, 0, REQ_ID_MAX), 0

    def _which_of(self, messages: Iterable[Message | int | str]) -> tuple[Any, Any, int]:
        """The same for several messages: their ReqIds, their deliveries, and how many they are."""
        messages = messages if isinstance(messages, list) else list(messages)
        try:
            req_ids, deliveries = to_deliveries(messages)
        except TypeError:  # there are tokens among them, or what is nothing
            key = self._store._key
            which = [read_token(key, m)[1] if isinstance(m, str) else m for m in messages]
            for each in which:
                self._which(each)  # it says what is wrong with one
            req_ids, deliveries = to_deliveries(which)
        of_64 = partial(ffi.from_buffer, "uint64_t[]")
        return of_64(req_ids), of_64(deliveries), len(req_ids) // 8

    def _settled(self, result: int, messages: Sequence[Message | int | str] = ()) -> int:
        """The core's answer. Raises its error; with sync="always", waits for the sync."""
        if result < 0:
            self._refuse(result, messages)
        if self._confirm_all:
            self._confirm()
        return result

    def _refuse(self, code: int, messages: Sequence[Message | int | str]) -> NoReturn:
        """Raise the core's error. What is wrong may be that a message is one of another queue.

        The core knows only that its delivery is none of this queue.
        """
        try:
            raise_error(code)
        except MessageError as error:
            for message in messages:
                if (whose := self._whose(message)) is not None:
                    req_id = self._which(message)[0]
                    text = f"message {req_id} is {whose}: nothing was changed"
                    raise type(error)(text) from None
            raise

    def _whose(self, message: Message | int | str) -> str | None:
        """None: it is of this queue, as far as it says of which it is."""
        if isinstance(message, int):
            return None
        tag = self._which(message)[1] >> 32
        if tag == lib.qi_queue_tag(self._handle):
            return None
        queue = self._store._by_tag.get(tag)
        name = message.queue if isinstance(message, Message) else queue and queue.name
        if name is None:
            return "of a queue that was deleted"
        if name != self.name:
            return f"one of queue {name!r}, not of {self.name!r}"
        return "of another store, or of an earlier session; its ReqId names the one here"

    def _confirm(self) -> None:
        """sync() behind a verb: an error that says "nothing was changed" would be wrong then."""
        try:
            self.sync()
        except (DiskFull, DiskError) as error:
            raise in_doubt(error) from error

    def _ack(self, message: Message | int | str) -> None:
        self._settled(lib.qi_ack(self._handle, *self._which(message)), [message])

    def ack_many(
        self, messages: Iterable[Message | int | str], *, missing_ok: bool = False
    ) -> list[Message | int | str]:
        """Settle several messages at once, all or none; return those that were too late: none.

        With `missing_ok`, those whose delivery has ended, or that are gone, are no error: they are
        returned, and all others are settled. (Then a crash may leave only some of these settled.)

        Errors as ack(); also ValueError if a message stands in the list twice: with `missing_ok`,
        if one delivery of it does.
        """

        def settle(some: list[Message | int | str]) -> None:
            self._settled(lib.qi_ack_many(self._handle, *self._which_of(some)), some)

        own = several("messages", messages, "messages", "ack()")
        return _settle(own, settle, self._which, missing_ok)

    def _nack(
        self,
        message: Message | int | str,
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
    ) -> None:
        """nack() of what is not at hand, or with options that are seldom or wrong."""
        self.nack_many([message], requeue, delay=delay, due=due, count=count)

    def nack_many(
        self,
        messages: Iterable[Message | int | str],
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
        missing_ok: bool = False,
    ) -> list[Message | int | str]:
        """nack() for several messages, all or none; return those that were too late: none.

        Errors as nack(). `missing_ok`, and a message that stands in the list twice: as ack_many().
        """
        how, due_us = self._how(requeue, delay, due, count)

        def settle(some: list[Message | int | str]) -> None:
            code = lib.qi_settle_all(self._handle, how, *self._which_of(some), due_us)
            if code < 0:
                self._refuse(code, some)
            if self._confirm_all and (due_us or how != lib.QI_SETTLE_NACK):
                self._confirm()

        own = several("messages", messages, "messages", "nack()")
        return _settle(own, settle, self._which, missing_ok)

    def _how(
        self, requeue: bool, delay: Seconds | None, due: Moment | None, count: bool
    ) -> tuple[int, int]:
        """What a nack with these options is to the core, and the time at which it is due."""
        due_us = to_due_us(self._store._now_us, delay, due)
        if not boolean("requeue", requeue) and due_us:
            raise ValueError("requeue=False drops the message: it cannot have a delay, too")
        if not boolean("count", count) and (due_us or not requeue):
            raise ValueError(
                "count=False gives a message back that nobody has looked at, and it is ready at "
                "once: leave out delay, due and requeue=False, or leave out count=False"
            )
        if not requeue:
            return lib.QI_SETTLE_REJECT, 0
        return lib.QI_SETTLE_NACK if count else lib.QI_SETTLE_RETURN, due_us

    def _touch(self, message: Message | int | str, lease: Seconds) -> None:
        """touch() of what is not at hand, or is wrong."""
        if lease is None:  # which get() takes for "no lease": here it would end at once
            raise TypeError(
                "lease must be a number of seconds or a timedelta, not None: with 30 it ends in "
                "30 seconds"
            )
        code = lib.qi_touch(self._handle, *self._which(message), to_lease_us(lease))
        if code < 0:
            self._refuse(code, [message])

    def reschedule(
        self,
        message: Message | int | str,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
    ) -> None:
        """Change when a message that is not delivered is ready; without a time, it is ready now.

        - `delay` (seconds from now) or `due` (seconds since 1970): the new time.

        Without a time, a dead letter is taken back, as redrive() does. With a time, a dead letter
        raises DeadLetter, and so does one that was taken back and not delivered since.

        Raises MessageDelivered if a consumer has the message; UnknownMessage and AlreadyAcked as
        ack(). The change is as durable as a publish.

        Cost: O(log of the delayed); the segment of a message that is not in memory is read.
        """
        req_id, due_us = self._own(message), to_due_us(self._store._now_us, delay, due)
        self._settled(lib.qi_reschedule(self._handle, req_id, due_us))

    def delete(self, message: Message | int | str) -> None:
        """Drop a message that is not delivered: a ready one, a delayed one, or a dead letter.

        Errors and cost as reschedule(). A Message of another queue, store or session raises
        UnknownMessage; a ReqId is taken as one of this queue.
        """
        self._settled(lib.qi_delete(self._handle, self._own(message)))

    def _own(self, message: Message | int | str) -> int:
        """The ReqId of a message of this queue.

        Each queue counts from 0, so the ReqId of another queue's message would name a message here
        that has nothing to do with it. Raises UnknownMessage then.
        """
        req_id = self._which(message)[0]
        if (whose := self._whose(message)) is not None:
            raise UnknownMessage(f"message {req_id} is {whose}")
        return req_id

    def redrive(self, count: int | None = None) -> int:
        """Make dead letters ready again, all or the first `count` by ReqId; return how many.

        Each keeps its delivery count, and is delivered at least once more, whatever had made it a
        dead letter. If the queue has `max_deliveries`, its tries end at the next multiple of that.
        After any crash a message is a dead letter or ready, never both.

        Cost: a record of 24 bytes for each; O(number of messages in segments with dead letters).
        """
        most = REQ_ID_MAX if count is None else whole("count", count, 0, REQ_ID_MAX)
        return self._settled(lib.qi_redrive(self._handle, most))

    def expire(self) -> int:
        """Drop every message that has expired, wherever it stands; return how many this call did.

        They become dead letters if the queue keeps those. Unacked messages stay. The store does the
        same by itself within about a second; call this to have it done now.

        Raises DiskError if a segment cannot be read, and DiskFull. Cost: reads the segments in
        which something may have expired.
        """
        return self._settled(lib.qi_expire(self._handle))

    def purge(
        self, where: Callable[[Message], bool] | None = None, *, state: PurgeState = "ready"
    ) -> int:
        """Drop the messages that are ready, or in another state; return how many.

        - `state`: "ready", "delayed" or "dead"; "all" for these together. Unacked messages stay:
          their consumer settles them.
        - `where`: of these, only messages for which it returns True, one by one.

        They go at once if nothing but unacked messages stays, else in parts of up to 4,096: then a
        crash, or an error, may leave some of them.

        Raises DiskError if a segment cannot be read. Cost: O(number of messages); of dead letters
        alone, O(number of messages in segments that have some).
        """
        if state not in _PURGED:
            raise ValueError(f"state must be one of {', '.join(_PURGED)}, not {state!r}")
        if where is not None:
            if not callable(where):
                raise TypeError(
                    f"where must be a function of a message that returns True or False, "
                    f"not {shown(where)}"
                )
            return self._purge_some(where, state)
        return self._settled(lib.qi_purge(self._handle, _PURGED[state]))

    def _purge_some(self, where: Callable[[Message], bool], state: PurgeState) -> int:
        count = 0
        for message in self.browse(state=None if state == "all" else state):
            if where(message):
                # Since browse() showed it, a consumer may have taken or acked it.
                with contextlib.suppress(MessageDelivered, AlreadyAcked):
                    self.delete(message)
                    count += 1
        return count

    if TYPE_CHECKING:

        def browse(self, *, state: State | None) -> Iterator[Message]: ...

    def sync(self) -> None:
        """Return when everything before this call survives a power cut.

        Raises OutcomeUnknown if the disk failed the sync: what waited for it may be durable or not.

        Cost: one or two fdatasync, shared with all who wait at the same time.
        """
        code = lib.qi_queue_sync(self._handle)
        if code < 0:
            raise_error(code)

    def flush(self) -> None:
        """Move the journal's entries into segments now; dirty_count is 0 afterwards.

        The store does this by itself when the journal is long enough, or the queue is idle.
        """
        code = lib.qi_flush(self._handle)
        if code < 0:
            raise_error(code)
