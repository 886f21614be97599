"""The page for Prometheus: RabbitMQ's names where it has them, our own (qindex_) where not.

What is asked of each queue is asked in slices, so that a page about many queues holds up nobody.
"""

from __future__ import annotations

import asyncio
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

SLICE: Final = 100  # queues that are looked at before others have their turn
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
    """What there is besides the queues' own figures: asked once for each scrape."""

    def __init__(self, server: Server) -> None:
        self._server = server

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


class _Figures:
    """Figures of queues, added up, or as a line of Prometheus' text for each queue."""

    def __init__(self, per_object: bool) -> None:
        self._totals = dict.fromkeys(_OF_QUEUE, 0)
        self._lines: dict[str, list[str]] = {name: [] for name in _OF_QUEUE}
        self._per_object = per_object

    def add(self, vhost: VHost, queue: Queue) -> None:
        if not self._per_object:
            for name, (_, value) in _OF_QUEUE.items():
                self._totals[name] += value(queue)
            return
        labels = f'queue="{_escaped(queue.name)}",vhost="{_escaped(vhost.name)}"'
        for name, (_, value) in _OF_QUEUE.items():
            self._lines[name].append(f"{name}{{{labels}}} {value(queue)}.0")

    def texts(self) -> Iterator[bytes]:
        """The page's text, one figure after the other."""
        for name, (text, _) in _OF_QUEUE.items():
            head = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
            lines = self._lines[name] if self._per_object else [f"{name} {self._totals[name]}.0"]
            yield "\n".join([*head, *lines, ""]).encode()


def _escaped(label: str) -> str:
    text = str(plain(label))
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


async def page(server: Server, *, per_object: bool) -> bytes:
    """All metrics in Prometheus' text format. Cost: microseconds for each queue, in slices."""
    figures = _Figures(per_object)
    queues = [
        (vhost, queue) for vhost in server.node.open_vhosts for queue in vhost.queues.values()
    ]
    for at in range(0, len(queues), SLICE):
        for vhost, queue in queues[at : at + SLICE]:
            if not queue.deleted:
                figures.add(vhost, queue)
        await asyncio.sleep(0)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(server))
    texts = [generate_latest(registry)]
    for text in figures.texts():
        await asyncio.sleep(0)
        texts.append(text)
    return b"".join(texts)
