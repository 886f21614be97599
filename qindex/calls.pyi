"""The types of qindex._calls, with the texts of c_ext/python/calls.c for editors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from qindex.arguments import Buffer, Moment, Seconds
from qindex.message import DeadReason, Message

def to_deliveries(messages: Iterable[object]) -> tuple[bytes, bytes]: ...
def place_bodies(
    bodies: Iterable[Buffer],
) -> tuple[tuple[bytes, ...], bytes, bytes, int, int]: ...
def join_headers(
    headers: Sequence[Mapping[str, Any] | None], encode: Callable[[Any], bytes], /
) -> tuple[bytes, bytes]: ...
def fan_out(
    calls: tuple[QueueCalls, ...],
    skip: bool,
    body: bytes,
    *,
    headers: Mapping[str, Any] | None = None,
    persistent: bool = True,
    ttl: Seconds | None = None,
    expires_at: Moment | None = None,
    priority: int = 0,
    delay: Seconds | None = None,
    due: Moment | None = None,
    lease: Seconds | None = None,
) -> list[int | None] | None: ...
def decode_headers(table: bytes, /) -> dict[str, Any] | None: ...
def new_message_type() -> Any: ...

class MessageDetails:
    """What a message has besides its ReqId, body and times."""

    def __new__(
        cls,
        queue: str,
        redelivered: bool = False,
        delivery_count: int = 1,
        persistent: bool = True,
        expires_at: float | None = None,
        headers: bytes = b"",
        priority: int = 0,
        dead: DeadReason | None = None,
        deaths: bytes = b"",
    ) -> Self: ...
    def _rename(self, name: str, /) -> None: ...
    @property
    def queue(self) -> str: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def delivery_count(self) -> int: ...
    @property
    def persistent(self) -> bool: ...
    @property
    def expires_at(self) -> float | None: ...
    @property
    def headers(self) -> bytes: ...
    @property
    def priority(self) -> int: ...
    @property
    def dead(self) -> DeadReason | None: ...
    @property
    def deaths(self) -> bytes: ...

class MessageFields:
    """The fields of a message that the core fills in."""

    def __new__(
        cls,
        req_id: int,
        body: bytes,
        details: MessageDetails,
        due_us: int = 0,
        delivery: int = 0,
        owner: object = None,
    ) -> Self: ...
    @property
    def req_id(self) -> int:
        """The ReqId: the message's number in its queue. It is never used again."""
    @property
    def body(self) -> bytes:
        """The body, as bytes: exactly what was published. Reading it copies nothing."""
    @property
    def _details(self) -> MessageDetails: ...
    @property
    def _due_us(self) -> int: ...
    @property
    def _published_us(self) -> int: ...
    @property
    def _delivery(self) -> int: ...
    @property
    def _acked(self) -> None: ...  # acks it; no signal handler runs behind it
    @property
    def _returned(self) -> None: ...  # back to its place, if nobody has settled it
    @property
    def _taken_from(self) -> Any: ...  # the QueueCalls that it was taken through, or None

class QueueCalls:
    """The verbs of a queue that are called once for each message."""

    @property
    def _weak(self) -> object: ...  # a weak reference to it: the owner of its messages
    def _give_back(self, reader: int, /) -> None: ...
    def _give_back_many(self, messages: int, count: int, /) -> None: ...
    def _attach(
        self,
        address: int,
        message_type: type[Message],
        plain: MessageDetails,
        confirm_all: bool,
        may_wait: bool,
    ) -> None: ...
    def _message(self, message: int, payload: int, is_taken: bool) -> Message: ...
    def _get_rest(
        self, messages: list[Message], count: int, room: int, lease_us: int, /
    ) -> list[Message]: ...
    def _messages(self, count: int, messages: int, payloads: int) -> list[Message]: ...
    def publish(
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
        """Append a message; return its ReqId. The message survives kill -9 when this returns.

        - `body`: bytes, or another buffer (bytearray, memoryview, mmap, an array of numpy). If
          it is changed meanwhile, the message is what was read of it.
        - `headers`: names and values, as AMQP 0-9-1 tables can hold them.
        - `persistent`: False for a message that need not survive a crash.
        - `ttl` (seconds from now) or `expires_at` (seconds since 1970): not delivered after
          that moment.
        - `delay` (seconds from now) or `due` (seconds since 1970): not delivered before that
          moment. `delay` is below 1,000,000,000 (0: there is none), `due` before the year 3058.
        - `priority`: 0 to 255; the highest is delivered first.
        - `redelivered`: True for a message that a consumer may have had before. It counts as one
          delivery.
        - `lease`: who gets the message without a lease has it for so many seconds. Only stores
          of format 2 can keep it: FormatError in others.
        - `confirm`: True to wait until the message survives a power cut, too.
        - `timeout`: seconds to wait for a place if the queue or the store is full, None for ever.
          What could never have one is refused at once. A time that is given counts from the call.

        Raises QueueFull, StoreFull or DiskFull if there is no room: then nothing was published.
        Raises OutcomeUnknown if the sync for `confirm` failed: then the message is published,
        and nobody knows whether it is durable. Also StoreFailed, StoreClosed and ReadOnly;
        TypeError and ValueError for bad arguments.

        Cost: one copy of the body, and no system call below 4 KiB; with `confirm`, a sync that is
        shared with all who wait for one.
        """
    def get(self, *, timeout: Seconds | None = 0, lease: Seconds | None = None) -> Message | None:
        """Take the next ready message; return None if there is none.

        The highest priority comes first. Of one priority, messages that were delayed come
        first, by their times; then the others, in the order of publishing. The message stays in
        the queue as unacked until it is settled; see ack() and nack().

        - `timeout`: seconds to wait for a message; 0 does not wait, None waits for ever. A
          waiting thread sleeps. Closing the store or deleting the queue ends the wait with
          StoreClosed. A signal handler, also that of Ctrl-C, runs within 50 ms.
        - `lease`: seconds after which the message is ready again if it is not settled; see
          touch(). None: no such end.

        Raises StoreCorrupt if the bytes of the message are damaged. That message is set aside:
        it stays unacked, `Store.findings` names it, and the next get() goes on behind it. Also
        StoreFailed, StoreClosed and ReadOnly.

        Cost: O(1) and one copy of the body.
        """

    def get_many(
        self, count: int, *, timeout: Seconds | None = 0, lease: Seconds | None = None
    ) -> list[Message]:
        """Take up to `count` ready messages, in order; return those that there are.

        One call returns at most 65,536 messages, and stops after 4 MiB. `timeout` is for the first
        of them, as in get(); `lease` is for each. Errors as get().

        Cost: one copy of each body. Stored bodies that were written one behind the other are read
        by one system call for up to 64 of them.
        """

    def ack(self, message: Message | int | str, /) -> None:
        """Settle a delivered message: it is done and will not come back.

        A Message, or its token, settles the delivery that gave it, and no other. A ReqId (an
        int) settles whichever delivery is current.

        Raises UnknownMessage if the message was never published or is not delivered,
        AlreadyAcked if it is gone, DeliveryEnded (LeaseExpired in a queue with leases) if
        another consumer has it now. Then nothing is changed. Also StoreFailed, StoreClosed and
        ReadOnly.

        Cost: O(1), no system call. An ack survives kill -9 when this returns, and a power cut
        once it is synced, as a publish does.
        """

    def nack(
        self,
        message: Message | int | str,
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
    ) -> None:
        """Give a delivered message back to its own place in the order, or drop it.

        - `requeue`: False to drop it. It becomes a dead letter if the queue keeps those.
        - `delay` (seconds from now) or `due` (seconds since 1970): it is ready again at that
          time. `delay=0` is no delay.
        - `count`: False if nobody has looked at the message, for one that was only prefetched:
          then this delivery is left out of `delivery_count`, and of `max_deliveries`. The message
          still says `redelivered`. In stores of format 2.

        Errors as ack(), and ValueError if it is to be dropped and delayed, or if `count=False`
        stands beside a delay, a due time or `requeue=False`. Cost: O(1) and no record for a plain
        nack; a record of 24 bytes if it is delayed, becomes a dead letter, or does not count.
        """
    def touch(self, message: Message | int | str, lease: Seconds) -> None:
        """Extend the lease of a delivered message: it ends `lease` seconds from now.

        If the message was taken without a lease, one begins. Raises LeaseExpired if the lease has
        ended: then the message is ready, or another consumer has it. Other errors as ack().

        Cost: O(log of the leases); nothing is written.
        """
