"""Messages for Prometheus, from publish to ack, under RabbitMQ's names: all virtual hosts together.

RabbitMQ gives most of them by protocol; here that is AMQP's, and what gmq and HTTP do is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from qindex.broker.vhost import VHost
from qindex.serve.http.shapes import has_failed

if TYPE_CHECKING:
    from qindex.serve.server import Server

_PROTOCOL: Final = ["protocol"]
_WHY: Final = ("expired", "rejected", "maxlen", "delivery_limit")  # messages become dead letters
Row = tuple[str, str, int]


def figures(server: Server, vhosts: list[VHost]) -> Iterator[Metric]:
    """Publishes, deliveries, acks, dead letters. O(queues)."""
    for name, text, value in (*_published(server), *_delivered(server, vhosts)):
        metric = CounterMetricFamily(f"rabbitmq_global_messages_{name}", text, labels=_PROTOCOL)
        metric.add_metric(["amqp091"], value)
        yield metric
    yield from _who(server, vhosts)
    yield from _dead(vhosts)


def lives(vhosts: list[VHost]) -> list[Row]:
    """How often queues were declared, made and deleted."""
    found = [vhost.lives for vhost in vhosts]
    return [
        ("queues_declared", "Declares of queues", sum(each.declared for each in found)),
        ("queues_created", "Queues that were made", sum(each.created for each in found)),
        ("queues_deleted", "Queues that were deleted", sum(each.deleted for each in found)),
    ]


def _published(server: Server) -> list[Row]:
    counts = server.counts
    confirmed = "Messages published on channels that want confirms"
    returned = "No queue took them, and their publisher heard"
    return [
        ("received", "Messages published by clients", counts.received),
        ("received_confirm", confirmed, counts.received_confirm),
        ("confirmed", "Publishes that were confirmed", counts.confirmed),
        ("unroutable_returned", returned, counts.returned),
        ("unroutable_dropped", "No queue took them", counts.dropped),
    ]


def _delivered(server: Server, vhosts: list[VHost]) -> list[Row]:
    totals = [vhost.totals() for vhost in vhosts]
    stored = [store.stats().counters.since_open for store in server.node.stores.values()]
    redelivered = sum(total.redelivered for total in totals)
    redelivered += sum(store.redelivered for store in stored)
    routed = "Messages put into queues, once for each queue"
    counts = server.counts
    return [
        ("routed", routed, sum(total.published for total in totals)),
        (
            "delivered",
            "Messages delivered to consumers, or got",
            sum(total.delivered for total in totals),
        ),
        ("delivered_consume_auto_ack", "To consumers that do not ack", counts.consumed[True]),
        ("delivered_consume_manual_ack", "To consumers that ack", counts.consumed[False]),
        ("delivered_get_auto_ack", "Got by polling, without an ack", counts.got[True]),
        ("delivered_get_manual_ack", "Got by polling, to be acked", counts.got[False]),
        ("get_empty", "Polled, and there was none", counts.got_empty),
        ("redelivered", "Messages taken that had been delivered before", redelivered),
        ("acknowledged", "Messages acknowledged", sum(total.acked for total in totals)),
    ]


def _who(server: Server, vhosts: list[VHost]) -> Iterator[Metric]:
    channels = {channel for session in server.sessions for channel in session.channels}
    publishers = sum(channel in channels for channel in server.counts.publishers)
    consumers = sum(len(queue.consumers) for vhost in vhosts for queue in vhost.queues.values())
    for name, text, value in (
        ("publishers", "Channels that have published", publishers),
        ("consumers", "Consumers", consumers),
    ):
        metric = GaugeMetricFamily(f"rabbitmq_global_{name}", text, labels=_PROTOCOL)
        metric.add_metric(["amqp091"], value)
        yield metric


def _dead(vhosts: list[VHost]) -> Iterator[Metric]:
    for why in _WHY:
        name = f"rabbitmq_global_messages_dead_lettered_{why}"
        dead = sum(vhost.dead.get(why, 0) for vhost in vhosts)
        yield CounterMetricFamily(name, f"Dead letters: {why}", dead)
    dropped = sum(vhost.dead_dropped for vhost in vhosts)
    yield CounterMetricFamily(
        "qindex_dead_letters_dropped", "Dead letters that no queue took", dropped
    )
    yield GaugeMetricFamily(
        "qindex_queues_damaged",
        "Queues that are damaged, and not served",
        sum(len(vhost.damaged) for vhost in vhosts),
    )
    yield CounterMetricFamily(
        "qindex_messages_refused_by_damaged_queues",
        "Messages that damaged queues did not take, once for each queue",
        sum(vhost.refused_by_damaged for vhost in vhosts),
    )
    failed = sum(map(has_failed, vhosts))
    yield GaugeMetricFamily(
        "qindex_stores_failed", "Virtual hosts whose disk has failed a sync", failed
    )
