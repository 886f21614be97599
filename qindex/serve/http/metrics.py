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
from qindex.serve.http import metrics_of_messages, metrics_of_stores
from qindex.serve.http.metrics_of_queues import Figures, Flushes
from qindex.serve.http.shapes import MANAGEMENT_VERSION, node_name

if TYPE_CHECKING:
    from qindex.serve.server import Server

SLICE: Final = 100  # queues that are looked at before others have their turn
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class _Collector:
    """What there is besides the queues' own figures: asked once for each scrape."""

    def __init__(self, server: Server, flushes: Flushes, endpoint: str) -> None:
        self._server = server
        self._flushes = flushes
        self._endpoint = endpoint

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
            labels=["rabbitmq_node", "rabbitmq_cluster", "rabbitmq_endpoint"],
        )
        identity.add_metric([name, name, self._endpoint], 1)
        yield identity
        vhosts = server.node.open_vhosts
        queues = [(vhost, queue) for vhost in vhosts for queue in vhost.queues.values()]
        yield from self._objects(queues)
        yield from metrics_of_messages.figures(server, vhosts)
        yield CounterMetricFamily(
            "qindex_flushes", "Journals flushed since the first scrape", self._flushes.total
        )
        yield from metrics_of_stores.figures(server)
        yield from self._limits()
        yield from _process()

    def _objects(self, queues: list[tuple[VHost, Queue]]) -> Iterator[Metric]:
        sessions = self._server.sessions
        channels = sum(session.channel_count for session in sessions)
        consumers = sum(len(queue.consumers) for _, queue in queues)
        counts = self._server.counts
        closed = counts.channels_opened - channels
        for name, text, value in (
            ("connections", "Connections", len(sessions)),
            ("channels", "Channels", channels),
            ("consumers", "Consumers", consumers),
            ("channel_consumers", "Consumers", consumers),
            ("queues", "Queues", len(queues)),
        ):
            yield GaugeMetricFamily(f"rabbitmq_{name}", text, value)
        for name, text, value in (
            ("connections_opened", "Connections that were opened", counts.opened),
            ("connections_closed", "Connections that have ended", counts.closed),
            ("channels_opened", "Channels that were opened", counts.channels_opened),
            ("channels_closed", "Channels that have ended", closed),
            *metrics_of_messages.lives(self._server.node.open_vhosts),
        ):
            yield CounterMetricFamily(f"rabbitmq_{name}", text, value)

    def _limits(self) -> Iterator[Metric]:
        """What RabbitMQ's dashboard draws as limits: here they are those of the system."""
        sessions = len(self._server.sessions)
        uptime = "Seconds since the server began, under the name that RabbitMQ has for it"
        yield GaugeMetricFamily("rabbitmq_erlang_uptime_seconds", uptime, self._server.uptime)
        memory = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
        limits = (
            ("resident_memory_limit_bytes", "Memory of this machine", memory),
            ("process_open_tcp_sockets", "Connections of AMQP", sessions),
            ("process_max_tcp_sockets", "Descriptors that may be open", _descriptors_max()),
        )
        for name, text, value in limits:
            yield GaugeMetricFamily(f"rabbitmq_{name}", text, value)
        if self._server.node.directory is not None:
            system = os.statvfs(self._server.node.directory)
            free = system.f_bavail * system.f_frsize
            for name, text, value in (
                ("", "Disk space for the directory", free),
                ("_limit", "Publishes wait for space only when there is none", 0),
            ):
                name = f"rabbitmq_disk_space_available{name}_bytes"
                yield GaugeMetricFamily(name, text, value)


def _process() -> Iterator[Metric]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield GaugeMetricFamily(
        "rabbitmq_process_resident_memory_bytes", "Memory used", pages * _PAGE_BYTES
    )
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    yield GaugeMetricFamily("rabbitmq_process_open_fds", "Open file descriptors", descriptors)
    most = _descriptors_max()
    yield GaugeMetricFamily("rabbitmq_process_max_fds", "Descriptors that may be open", most)


def _descriptors_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


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
        endpoint = "per-object" if per_object else "aggregated"
        registry.register(_Collector(server, self._flushes, endpoint))
        texts = [generate_latest(registry)]
        for text in figures.texts():
            await asyncio.sleep(0)
            texts.append(text)
        return b"".join(texts)
