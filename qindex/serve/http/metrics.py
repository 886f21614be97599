"""The page for Prometheus: RabbitMQ's names where it has them, our own (qindex_) where not.

What is asked of each queue is asked in slices, so that a page about many queues holds up nobody.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

import qindex
from qindex.broker.queues import Queue
from qindex.broker.vhost import VHost
from qindex.serve.http import metrics_of_stores
from qindex.serve.http.metrics_of_queues import Figures, Flushes
from qindex.serve.http.shapes import MANAGEMENT_VERSION, node_name

if TYPE_CHECKING:
    from qindex.serve.server import Server

SLICE: Final = 100  # queues that are looked at before others have their turn
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PROTOCOL: Final = ["protocol"]
_WHY: Final = ("expired", "rejected", "maxlen", "delivery_limit")  # messages become dead letters


class _Collector:
    """What there is besides the queues' own figures: asked once for each scrape."""

    def __init__(self, server: Server, flushes: Flushes) -> None:
        self._server = server
        self._flushes = flushes

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
        yield from self._global(vhosts)
        yield from metrics_of_stores.figures(server)
        yield from _process()

    def _objects(self, queues: list[tuple[VHost, Queue]]) -> Iterator[Metric]:
        sessions = self._server.sessions
        channels = sum(session.channel_count for session in sessions)
        consumers = sum(len(queue.consumers) for _, queue in queues)
        yield GaugeMetricFamily("rabbitmq_connections", "Connections", len(sessions))
        yield GaugeMetricFamily("rabbitmq_channels", "Channels", channels)
        yield GaugeMetricFamily("rabbitmq_consumers", "Consumers", consumers)
        yield GaugeMetricFamily("rabbitmq_queues", "Queues", len(queues))

    def _global(self, vhosts: list[VHost]) -> Iterator[Metric]:
        totals = [vhost.totals() for vhost in vhosts]
        stored = [store.stats().counters.since_open for store in self._server.node.stores.values()]
        counts = self._server.counts
        redelivered = sum(total.redelivered for total in totals)
        redelivered += sum(store.redelivered for store in stored)
        for name, text, value in (
            ("received", "Messages published by clients", counts.received),
            ("confirmed", "Publishes that were confirmed", counts.confirmed),
            (
                "unroutable_returned",
                "No queue took them, and their publisher heard",
                counts.returned,
            ),
            ("unroutable_dropped", "No queue took them", counts.dropped),
            (
                "routed",
                "Messages put into queues, once for each queue",
                sum(total.published for total in totals),
            ),
            (
                "delivered",
                "Messages delivered to consumers, or got",
                sum(total.delivered for total in totals),
            ),
            ("redelivered", "Messages taken that had been delivered before", redelivered),
            ("acknowledged", "Messages acknowledged", sum(total.acked for total in totals)),
        ):
            metric = CounterMetricFamily(f"rabbitmq_global_messages_{name}", text, labels=_PROTOCOL)
            metric.add_metric(["amqp091"], value)
            yield metric
        for why in _WHY:
            name = f"rabbitmq_global_messages_dead_lettered_{why}"
            dead = sum(vhost.dead.get(why, 0) for vhost in vhosts)
            yield CounterMetricFamily(name, f"Dead letters: {why}", dead)
        dropped = sum(vhost.dead_dropped for vhost in vhosts)
        yield CounterMetricFamily(
            "qindex_dead_letters_dropped", "Dead letters that no queue took", dropped
        )
        yield CounterMetricFamily(
            "qindex_flushes", "Journals flushed since the first scrape", self._flushes.total
        )
        yield GaugeMetricFamily(
            "qindex_stores_failed",
            "Virtual hosts whose disk has failed a sync",
            sum(vhost.commit is not None and vhost.commit.failed is not None for vhost in vhosts),
        )
        if self._server.node.directory is not None:
            system = os.statvfs(self._server.node.directory)
            yield GaugeMetricFamily(
                "rabbitmq_disk_space_available_bytes",
                "Disk space for the directory",
                system.f_bavail * system.f_frsize,
            )


def _process() -> Iterator[Metric]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield GaugeMetricFamily(
        "rabbitmq_process_resident_memory_bytes", "Memory used", pages * _PAGE_BYTES
    )
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    yield GaugeMetricFamily("rabbitmq_process_open_fds", "Open file descriptors", descriptors)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield GaugeMetricFamily("rabbitmq_process_max_fds", "Descriptors that may be open", most)


class Metrics:
    """The pages of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._flushes = Flushes()

    async def page(self, *, per_object: bool) -> bytes:
        """All metrics in Prometheus' text format. Microseconds for each queue, in slices."""
        server = self._server
        figures = Figures(self._flushes, per_object=per_object)
        queues = [
            (vhost, queue) for vhost in server.node.open_vhosts for queue in vhost.queues.values()
        ]
        for at in range(0, len(queues), SLICE):
            for vhost, queue in queues[at : at + SLICE]:
                if not queue.deleted:
                    figures.add(vhost, queue)
            await asyncio.sleep(0)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(server, self._flushes))
        texts = [generate_latest(registry)]
        for text in figures.texts():
            await asyncio.sleep(0)
            texts.append(text)
        return b"".join(texts)
