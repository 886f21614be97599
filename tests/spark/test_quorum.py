"""A real session reads quorum queues and streams of dead RabbitMQ nodes as their reader does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

from qindex.brokers.reader import open_node

DATA = Path(__file__).parents[1] / "compat/data"
ARCHIVES = ["quorum_q1", "quorum_n43", "quorum_s1", "stream_osiris_1_10"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("quorum")
    for name in ARCHIVES:
        (root / name).mkdir()
        unpack(DATA / f"{name}.tar.xz", root / name)
    return root


def truth(fleet: Path) -> Counter[tuple[str | None, str, bytes]]:
    rows: Counter[tuple[str | None, str, bytes]] = Counter()
    for name in ARCHIVES:
        (path,) = [fleet / name / "quo@localhost"] if name == "quorum_q1" else [fleet / name]
        with open_node(path) as node:
            for queue in node.queues:
                for message in queue.messages():
                    rows[(queue.group or None, queue.name, message.body)] += 1
    return rows


def test_messages_are_those_of_the_reader(spark: Any, fleet: Path) -> None:
    expected = truth(fleet)
    assert expected.total() > 100
    frame = (
        spark.read.format("qindex")
        .option("table", "messages")
        .option("columns", "vhost,queue,body")
        .load(str(fleet))
    )
    rows = frame.select("vhost", "queue", "body").collect()
    assert Counter((row.vhost, row.queue, bytes(row.body)) for row in rows) == expected


def test_counts_by_queue_are_those_of_the_messages(spark: Any, fleet: Path) -> None:
    queues = spark.read.format("qindex").option("table", "queues").load(str(fleet))
    live = {(r.vhost, r.queue): r.live for r in queues.collect() if r.live}
    expected: Counter[tuple[str | None, str]] = Counter()
    for (vhost, queue, _), count in truth(fleet).items():
        expected[(vhost, queue)] += count
    assert live == dict(expected)
