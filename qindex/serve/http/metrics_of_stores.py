"""Figures of the stores of virtual hosts for Prometheus: syncs, files, what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric

from qindex.serve.http.shapes import plain

if TYPE_CHECKING:
    import qindex
    from qindex.serve.server import Server

_BOUNDS: Final = [2**power / 1e6 for power in range(6, 23)]  # 64 us to 4.2 s
_GAUGES: Final[tuple[tuple[str, str, Callable[[qindex.StoreStats], int | None]], ...]] = (
    (
        "qindex_message_file_bytes",
        "Bytes of the files of large bodies",
        lambda stats: stats.message_bytes,
    ),
    (
        "qindex_message_file_live_bytes",
        "Of these, bytes of messages that wait; a compaction frees the others",
        lambda stats: stats.live_bytes if stats.counted or not stats.message_bytes else None,
    ),
    (
        "qindex_findings",
        "Damage and notes that the store has found since its open",
        lambda stats: stats.findings,
    ),
)


_COUNTERS: Final[tuple[tuple[str, str, Callable[[qindex.StoreStats], int]], ...]] = (
    (
        "qindex_compactions",
        "How often files of large bodies were compacted, since the open",
        lambda stats: stats.compactions,
    ),
    (
        "qindex_compacted_bytes",
        "By how many bytes these files got shorter by that",
        lambda stats: stats.compacted_bytes,
    ),
)


def figures(server: Server) -> Iterator[Metric]:
    """Most have a line for each virtual host that somebody has used."""
    stores = [(str(plain(name)), each.stats()) for name, each in server.node.stores.items()]
    syncs = HistogramMetricFamily(
        "qindex_sync_seconds", "How long syncs of the store's files took", labels=["vhost"]
    )
    for name, stats in stores:
        syncs.add_metric([name], _buckets(stats.syncs), stats.syncs.seconds)
    yield syncs
    for metric, text, count in _COUNTERS:
        counter = CounterMetricFamily(metric, text, labels=["vhost"])
        for name, stats in stores:
            counter.add_metric([name], count(stats))
        yield counter
    for metric, text, value in _GAUGES:
        family = GaugeMetricFamily(metric, text, labels=["vhost"])
        for name, stats in stores:
            found = value(stats)
            if found is not None:
                family.add_metric([name], found)
        yield family
    yield GaugeMetricFamily(
        "qindex_vhosts_down",
        "Virtual hosts whose store could not be opened",
        len(server.node.down),
    )


def _buckets(syncs: qindex.Syncs) -> list[tuple[str, float]]:
    """Counts up to each bound."""
    found = [
        (str(bound), float(sum(n for most, n in syncs.histogram.items() if most <= bound)))
        for bound in _BOUNDS
    ]
    return [*found, ("+Inf", float(syncs.count))]
