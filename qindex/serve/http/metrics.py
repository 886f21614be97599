"""The page for Prometheus: RabbitMQ's names where it has them, our own (qindex_) where not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

import qindex
from qindex.broker.queues import Queue
from qindex.broker.vhost import VHost
from qindex.serve.http.shapes import MANAGEMENT_VERSION, node_name, plain

if TYPE_CHECKING:
    from qindex.serve.server import Server

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_OF_QUEUE: Final = {
    "rabbitmq_queue_messages_ready": ("Messages ready to be delivered", len),
    "rabbitmq_queue_messages_unacked": (
        "Messages delivered and not yet acknowledged",
        lambda queue: queue.unacked,
    ),
    "rabbitmq_queue_messages": (
        "Messages ready and unacknowledged",
        lambda queue: len(queue) + queue.unacked,
    ),
    "rabbitmq_queue_consumers": ("Consumers on a queue", lambda queue: len(queue.consumers)),
    "qindex_queue_messages_delayed": (
        "Messages whose time has not come",
        lambda queue: queue.backlog.delayed(),
    ),
}


class _Collector:
    """Asked once for each scrape. O(number of queues), in the event loop."""

    def __init__(self, server: Server, per_object: bool) -> None:
        self._server = server
        self._per_object = per_object

    def collect(self) -> Iterator[Metric]:
        server = self._server
        name = node_name(server)
        build = GaugeMetricFamily(
            "rabbitmq_build_info",
            "The broker's version, and that of RabbitMQ whose shapes it has",
            labels=["rabbitmq_version", "product_name", "product_version"],
        )
        build.add_metric([MANAGEMENT_VERSION, "qindex", qindex.__version__], 1)
        yield build
        identity = GaugeMetricFamily(
            "rabbitmq_identity_info",
            "Names of node and cluster",
            labels=["rabbitmq_node", "rabbitmq_cluster"],
        )
        identity.add_metric([name, name], 1)
        yield identity
        vhosts = server.node.open_vhosts
        queues = [(vhost, queue) for vhost in vhosts for queue in vhost.queues.values()]
        yield from self._objects(queues)
        yield from self._queues(queues)
        yield from self._global(vhosts)
        yield from _process()

    def _objects(self, queues: list[tuple[VHost, Queue]]) -> Iterator[Metric]:
        sessions = self._server.sessions
        channels = sum(session.channel_count for session in sessions)
        consumers = sum(len(queue.consumers) for _, queue in queues)
        yield GaugeMetricFamily("rabbitmq_connections", "Connections", len(sessions))
        yield GaugeMetricFamily("rabbitmq_channels", "Channels", channels)
        yield GaugeMetricFamily("rabbitmq_consumers", "Consumers", consumers)
        yield GaugeMetricFamily("rabbitmq_queues", "Queues", len(queues))

    def _queues(self, queues: list[tuple[VHost, Queue]]) -> Iterator[Metric]:
        for name, (text, value) in _OF_QUEUE.items():
            if not self._per_object:
                yield GaugeMetricFamily(name, text, sum(value(queue) for _, queue in queues))
                continue
            metric = GaugeMetricFamily(name, text, labels=["vhost", "queue"])
            for vhost, queue in queues:
                metric.add_metric([vhost.name, plain(queue.name)], value(queue))
            yield metric

    def _global(self, vhosts: list[VHost]) -> Iterator[Metric]:
        totals = [vhost.totals() for vhost in vhosts]
        for name, text, value in (
            (
                "rabbitmq_global_messages_routed",
                "Messages put into queues, once for each queue",
                sum(total.published for total in totals),
            ),
            (
                "rabbitmq_global_messages_delivered",
                "Messages delivered to consumers, or got",
                sum(total.delivered for total in totals),
            ),
            (
                "rabbitmq_global_messages_acknowledged",
                "Messages acknowledged",
                sum(total.acked for total in totals),
            ),
        ):
            metric = CounterMetricFamily(name, text, labels=["protocol"])
            metric.add_metric(["amqp091"], value)
            yield metric
        dropped = sum(vhost.dead_dropped for vhost in vhosts)
        yield CounterMetricFamily(
            "qindex_dead_letters_dropped", "Dead letters that no queue took", dropped
        )
        yield GaugeMetricFamily(
            "qindex_stores_failed",
            "Virtual hosts whose disk has failed a sync",
            sum(vhost.commit is not None and vhost.commit.failed is not None for vhost in vhosts),
        )


def _process() -> Iterator[Metric]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield GaugeMetricFamily(
        "rabbitmq_process_resident_memory_bytes", "Memory used", pages * _PAGE_BYTES
    )
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    yield GaugeMetricFamily("rabbitmq_process_open_fds", "Open file descriptors", descriptors)


def page(server: Server, *, per_object: bool) -> bytes:
    """All metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(server, per_object))
    return generate_latest(registry)
