"""One channel of a connection: AMQP's methods as calls of the broker.

`call()` carries out one method. What is refused is raised; session.py closes for it what it has to.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from qindex._wire import Taken, Unacked
from qindex.amqp import methods as m
from qindex.amqp.wire import encode_ack
from qindex.broker.errors import NotAllowed, NotThere, Precondition
from qindex.broker.exchanges import EXCHANGE, QUEUE
from qindex.broker.posting import Outcome
from qindex.broker.queues import Queue
from qindex.broker.taken import Places, in_order, joined, places_of
from qindex.errors import QindexError
from qindex.serve.confirms import Confirms
from qindex.serve.consumers import Consumer
from qindex.serve.credit import SharedCredit
from qindex.serve.permissions import stripped
from qindex.serve.publishing import REPLY_TO, publish

if TYPE_CHECKING:
    from qindex.serve.session import Session


_TAG: Final = Struct(">QB")
_ALL: Final = _TAG.pack(0, True)  # of what is unacked


class Channel:
    """The state of one channel."""

    def __init__(self, session: Session, number: int) -> None:
        self.session = session
        self.number = number
        self.vhost = session.vhost
        self.prefetch = 0  # of consumers that begin from now on
        self.shared = SharedCredit(session.server.loop)  # of its consumers together
        self.confirms: Confirms | None = None
        self.reply_consumer: tuple[str, str] | None = None  # its tag, and the name of its queue
        self.last_queue = ""
        self.begun: Outcome | None = None  # of the publish that the disk had no room for
        self._consumers: dict[str, Consumer] = {}
        # Its owners are (queue, consumer); without a consumer, basic.get has asked.
        self._unacked = Unacked()
        self._next_tag = 1
        session.server.counts.channels_opened += 1

    @property
    def consumer_count(self) -> int:
        return len(self._consumers)

    @property
    def unacked(self) -> int:
        return len(self._unacked)

    def call(self, method: Any) -> None:
        handler = _HANDLERS.get(type(method))
        if handler is None:
            raise NotThere(f"{type(method).__name__} is not implemented")
        handler(self, method)

    def send(self, method: Any) -> None:
        self.session.send(self.number, method)

    def publish(self, method: m.BasicPublish, properties: bytes, body: bytes) -> None:
        publish(self, method, properties, body)

    # --- exchanges, queues, bindings -----------------------------------------------------------

    def _exchange_declare(self, method: m.ExchangeDeclare) -> None:
        name = stripped(method.exchange)
        if method.passive:
            self.vhost.check_not_default(name)
            self.vhost.exchange(name)
        else:
            self.vhost.declare_exchange(
                name,
                method.type,
                durable=method.durable,
                auto_delete=method.auto_delete,
                internal=method.internal,
                arguments=method.arguments,
            )
        if not method.nowait:
            self.send(m.ExchangeDeclareOk())

    def _exchange_delete(self, method: m.ExchangeDelete) -> None:
        self.vhost.delete_exchange(stripped(method.exchange), if_unused=method.if_unused)
        if not method.nowait:
            self.send(m.ExchangeDeleteOk())

    def _exchange_bind(self, method: m.ExchangeBind) -> None:
        key, arguments = method.routing_key, method.arguments
        self.vhost.bind(method.source, EXCHANGE, method.destination, key, arguments, self.session)
        if not method.nowait:
            self.send(m.ExchangeBindOk())

    def _exchange_unbind(self, method: m.ExchangeUnbind) -> None:
        key, arguments = method.routing_key, method.arguments
        self.vhost.unbind(method.source, EXCHANGE, method.destination, key, arguments, self.session)
        if not method.nowait:
            self.send(m.ExchangeUnbindOk())

    def _queue_declare(self, method: m.QueueDeclare) -> None:
        name = stripped(method.queue)
        if name == REPLY_TO or name.startswith(REPLY_TO + "."):
            self.session.server.reply_channel(name, self)
            self.send(m.QueueDeclareOk(name, 0, 1))
            return
        if method.passive:
            queue = self.vhost.queue(name, self.session)
            queue.used()
        else:
            queue = self.vhost.declare_queue(
                name,
                durable=method.durable,
                auto_delete=method.auto_delete,
                owner=self.session if method.exclusive else None,
                user=self.session,
                arguments=method.arguments,
            )
        self.last_queue = queue.name
        if not method.nowait:
            self.send(m.QueueDeclareOk(queue.name, len(queue), len(queue.consumers)))

    def _queue_name(self, name: str) -> str:
        """The name, or that of the queue that this channel has declared last."""
        if name:
            return stripped(name)
        if not self.last_queue:
            raise self.session.not_found("no previously declared queue")
        return self.last_queue

    def _queue_bind(self, method: m.QueueBind) -> None:
        name = self._queue_name(method.queue)
        key = method.routing_key or ("" if method.queue else self.last_queue)
        self.vhost.bind(method.exchange, QUEUE, name, key, method.arguments, self.session)
        if not method.nowait:
            self.send(m.QueueBindOk())

    def _queue_unbind(self, method: m.QueueUnbind) -> None:
        name = self._queue_name(method.queue)
        key = method.routing_key or ("" if method.queue else self.last_queue)
        self.vhost.unbind(method.exchange, QUEUE, name, key, method.arguments, self.session)
        self.send(m.QueueUnbindOk())

    def _queue_purge(self, method: m.QueuePurge) -> None:
        count = self.vhost.queue(self._queue_name(method.queue), self.session).purge()
        if not method.nowait:
            self.send(m.QueuePurgeOk(count))

    def _queue_delete(self, method: m.QueueDelete) -> None:
        name = self._queue_name(method.queue)
        count = self.vhost.delete_queue(
            name, self.session, if_unused=method.if_unused, if_empty=method.if_empty
        )
        if not method.nowait:
            self.send(m.QueueDeleteOk(count))

    # --- consumers -----------------------------------------------------------------------------

    def _consume(self, method: m.BasicConsume) -> None:
        tag = method.consumer_tag or "amq.ctag-" + _token()
        if tag in self._consumers or (self.reply_consumer and tag == self.reply_consumer[0]):
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
        if method.queue == REPLY_TO:
            self._consume_replies(tag, method)
            return
        name = self._queue_name(method.queue)
        queue = self.vhost.queue(name, self.session)
        consumer = Consumer(self, tag, queue, method)
        queue.add_consumer(consumer, self.vhost.describe("queue", name))
        self._consumers[tag] = consumer
        if not method.nowait:
            self.send(m.BasicConsumeOk(tag))

    def _consume_replies(self, tag: str, method: m.BasicConsume) -> None:
        if not method.no_ack:
            raise Precondition("reply consumer cannot acknowledge")
        if self.reply_consumer is not None:
            raise Precondition("reply consumer already set")
        queue = f"{REPLY_TO}.{_token()}"
        self.reply_consumer = (tag, queue)
        self.session.server.replies[queue] = self
        if not method.nowait:
            self.send(m.BasicConsumeOk(tag))

    def _cancel(self, method: m.BasicCancel) -> None:
        tag = method.consumer_tag
        if self.reply_consumer is not None and tag == self.reply_consumer[0]:
            self._end_replies()
        consumer = self._consumers.pop(tag, None)
        if consumer is not None:
            self.shared.leave(consumer)
            consumer.queue.remove_consumer(consumer)
        if not method.nowait:
            self.send(m.BasicCancelOk(tag))

    def _cancel_ok(self, method: m.BasicCancelOk) -> None:
        """The client has heard that its consumer is gone."""

    def _end_replies(self) -> None:
        if self.reply_consumer is not None:
            self.session.server.replies.pop(self.reply_consumer[1], None)
            self.reply_consumer = None

    def cancelled(self, consumer: Consumer) -> None:
        """The queue of a consumer is gone."""
        self.shared.leave(consumer)
        known = self._consumers.pop(consumer.tag, None) is not None
        if known and self.session.connection.client_can("consumer_cancel_notify"):
            self.send(m.BasicCancel(consumer.tag, True))

    def deliver(self, consumer: Consumer, taken: Taken, share: range) -> None:
        """Send these messages to a consumer."""
        first, count = self._next_tag, len(share)
        self._next_tag += count
        if not consumer.no_ack:
            places = taken.places(share.start, share.stop, share.step)
            self._unacked.add(first, consumer.owner, *places)
            consumer.unacked += count
            self.shared.used += count
        session = self.session
        connection, tag = session.connection, consumer.tag_bytes
        size = connection.send_deliveries(self.number, tag, first, taken, share)
        session.deliveries.add(consumer, size)
        session.flush_later()

    def deliver_reply(self, method: m.BasicPublish, properties: bytes, body: bytes) -> None:
        """A message for the consumer of direct replies."""
        if self.reply_consumer is None:
            return
        tag = self._next_tag
        self._next_tag += 1
        where = method.exchange, method.routing_key
        deliver = m.BasicDeliver(self.reply_consumer[0], tag, False, *where)
        self.session.send_content(self.number, deliver, properties, body)
        self.session.of_others += len(body)

    def _get(self, method: m.BasicGet) -> None:
        queue = self.vhost.queue(self._queue_name(method.queue), self.session)
        entry = queue.get()
        self.session.server.counts.get(method.no_ack, is_empty=entry is None)
        if entry is None:
            self.send(m.BasicGetEmpty())
            return
        tag = self._next_tag
        self._next_tag += 1
        if method.no_ack:
            queue.ack([entry])
        else:
            self._unacked.add(tag, (queue, None), *places_of([entry]))
        message = entry.message
        found = m.BasicGetOk(
            tag, entry.redelivered, message.exchange, message.routing_keys[0], len(queue)
        )
        properties = entry.properties(counts=queue.limits.is_quorum)
        self.session.send_content(self.number, found, properties, message.body)

    def _qos(self, method: m.BasicQos) -> None:
        if method.prefetch_size:
            raise NotThere(f"prefetch_size!=0 ({method.prefetch_size})")
        if method.global_:
            self.shared.change(method.prefetch_count)
            for consumer in self._consumers.values():
                consumer.queue.may_take(consumer)
        else:
            self.prefetch = method.prefetch_count
        self.send(m.BasicQosOk())

    # --- settling ------------------------------------------------------------------------------

    def ack(self, acks: bytes) -> None:
        """Several basic.acks, as the event Acked has them."""
        self._settle(acks, Queue.ack_places)

    def _ack(self, method: m.BasicAck) -> None:
        self.ack(_TAG.pack(method.delivery_tag, method.multiple))

    def _nack(self, method: m.BasicNack) -> None:
        verb = Queue.requeue_places if method.requeue else Queue.reject_places
        self._settle(_TAG.pack(method.delivery_tag, method.multiple), verb)

    def _reject(self, method: m.BasicReject) -> None:
        verb = Queue.requeue_places if method.requeue else Queue.reject_places
        self._settle(_TAG.pack(method.delivery_tag, False), verb)

    def _recover(self, method: m.BasicRecover | m.BasicRecoverAsync) -> None:
        if not method.requeue:
            raise NotThere("requeue=false")
        self._settle(_ALL, Queue.requeue_places)
        if isinstance(method, m.BasicRecover):
            self.send(m.BasicRecoverOk())

    def _settle(self, tags: bytes, verb: Callable[[Queue, Places], None]) -> None:
        """Settle deliveries, each by its tag, or all up to it; see Unacked.settle().

        An unknown tag ends it: what was named before it is settled.
        """
        parts, unknown = self._unacked.settle(tags)
        by_queue: dict[Queue, list[Places]] = {}
        for (queue, consumer), numbers, deliveries in parts:
            places = Places(numbers, deliveries)
            by_queue.setdefault(queue, []).append(places)
            if consumer is not None:
                self._settled(consumer, places.size)
        failed: QindexError | None = None
        for queue, found in by_queue.items():
            try:
                verb(queue, found[0] if len(found) == 1 else in_order(joined(found)))
            except QindexError as error:  # of one queue: the others get theirs all the same
                failed = error
        if failed:
            raise failed
        if unknown is not None:
            raise Precondition(f"unknown delivery tag {unknown}")

    def _settled(self, consumer: Consumer, count: int) -> None:
        consumer.unacked -= count
        self.shared.settled(count)
        is_there = self._consumers.get(consumer.tag) is consumer
        if is_there and not consumer.waiting and consumer not in self.shared:
            consumer.queue.may_take(consumer)

    # --- the rest ------------------------------------------------------------------------------

    def _confirm_select(self, method: m.ConfirmSelect) -> None:
        if self.confirms is None:
            self.confirms = Confirms(self.session.server.counts.confirm)
        if not method.nowait:
            self.send(m.ConfirmSelectOk())

    def _flow(self, method: m.ChannelFlow) -> None:
        if not method.active:
            raise NotThere("active=false")
        self.send(m.ChannelFlowOk(True))

    def _access(self, method: m.AccessRequest) -> None:
        self.send(m.AccessRequestOk(1))

    def send_confirms(self) -> None:
        """Send what is confirmed by now, with the session's next flush."""
        if self.confirms is None:
            return
        refused, acks = self.confirms.take()
        for number in refused:
            self.send(m.BasicNack(number, False, False))
        self.session.connection.out += [encode_ack(self.number, *each) for each in acks]

    def close(self) -> None:
        """The channel is gone: its consumers leave, what it has not settled goes back.

        An error of one step is logged, and keeps no other one from being done.
        """
        consumers, self._consumers = self._consumers, {}
        self._end_replies()
        for consumer in consumers.values():
            self.session.attempt(consumer.queue.remove_consumer, consumer)
        self.session.attempt(self._settle, _ALL, Queue.requeue_places)


def _token() -> str:
    return urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")


_HANDLERS: Final[dict[type[Any], Callable[[Channel, Any], None]]] = {
    m.ExchangeDeclare: Channel._exchange_declare,
    m.ExchangeDelete: Channel._exchange_delete,
    m.ExchangeBind: Channel._exchange_bind,
    m.ExchangeUnbind: Channel._exchange_unbind,
    m.QueueDeclare: Channel._queue_declare,
    m.QueueBind: Channel._queue_bind,
    m.QueueUnbind: Channel._queue_unbind,
    m.QueuePurge: Channel._queue_purge,
    m.QueueDelete: Channel._queue_delete,
    m.BasicConsume: Channel._consume,
    m.BasicCancel: Channel._cancel,
    m.BasicCancelOk: Channel._cancel_ok,
    m.BasicGet: Channel._get,
    m.BasicQos: Channel._qos,
    m.BasicAck: Channel._ack,
    m.BasicNack: Channel._nack,
    m.BasicReject: Channel._reject,
    m.BasicRecover: Channel._recover,
    m.BasicRecoverAsync: Channel._recover,
    m.ConfirmSelect: Channel._confirm_select,
    m.ChannelFlow: Channel._flow,
    m.AccessRequest: Channel._access,
}
