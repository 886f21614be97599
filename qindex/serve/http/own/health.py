"""Is it well: what stores have found, how the last start went, how long syncs take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import qindex
from qindex.broker.durable import GroupCommit
from qindex.serve.http import shapes
from qindex.serve.http.asked import SEES_ALL, Asked

if TYPE_CHECKING:
    from qindex.serve.http.own.series import Series

FINDINGS_MAX: Final = 200


async def health(asked: Asked, series: Series) -> Any:
    node = asked.server.node
    seen = {vhost.name for vhost in asked.vhosts()}
    stores = [
        store_of(name, store, node.vhost(name).commit, node.open_seconds.get(name))
        for name, store in node.stores.items()
        if name in seen
    ]
    found: shapes.Shape = {
        "stores": stores,
        "dead_dropped": sum(node.vhost(name).dead_dropped for name in seen & set(node.stores)),
        "late_seconds": series.late_seconds,
        "sample_seconds": series.sample_seconds,
        "arriving": [
            {"vhost": vhost.name, "queue": shapes.plain(name), "why": arrival.failed}
            for vhost in asked.vhosts()
            for name, arrival in vhost.arriving.items()
        ],
        "damaged": [
            {"vhost": vhost.name, "queue": shapes.plain(name), "why": shapes.plain(damage)}
            for vhost in asked.vhosts()
            for name, damage in vhost.damaged.items()
        ],
    }
    found["down"] = [
        {"vhost": name, "why": shapes.plain(why)} for name, why in asked.down().items()
    ]
    if SEES_ALL & asked.tags:
        found |= _process(node.directory)
    return found


def store_of(
    name: str, store: qindex.Store, commit: GroupCommit | None, open_seconds: float | None
) -> shapes.Shape:
    """One store; `commit` knows its syncs; what it took to open it, recovery included."""
    stats = store.stats()
    return {
        "name": name,
        "session": stats.session,
        "was_clean": stats.unclean_session != stats.session - 1 or stats.session <= 1,
        "open_seconds": open_seconds,
        "failed": None if commit is None or commit.failed is None else str(commit.failed),
        "sync_seconds": _quantiles([] if commit is None else list(commit.seconds)),
        "syncs": 0 if commit is None else commit.count,
        "findings": [finding(each) for each in store.findings[:FINDINGS_MAX]],
        "finding_count": stats.findings,
    }


def finding(found: qindex.Finding) -> shapes.Shape:
    return {
        "severity": found.severity,
        "place": shapes.plain(found.place),
        "text": shapes.plain(found.text),
        "lost": found.lost,
    }


def _quantiles(seconds: list[float]) -> dict[str, float] | None:
    """Of the last syncs; None: there was none."""
    if not seconds:
        return None
    found = sorted(seconds)
    last = len(found) - 1
    return {
        "median": found[last // 2],
        "p90": found[int(last * 0.9)],
        "p99": found[int(last * 0.99)],
        "max": found[-1],
    }


def _process(directory: Path | None) -> shapes.Shape:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    found: shapes.Shape = {
        "pid": os.getpid(),
        "memory_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }
    if directory is not None:
        system = os.statvfs(directory)
        found["free_bytes"] = system.f_bavail * system.f_frsize
        found["disk_size_bytes"] = system.f_blocks * system.f_frsize
    return found
