"""The audit finds every planted fault and nothing else, with Spark and without."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from fleet import Planted, make_fleet

from qindex.spark.audit import run
from qindex.spark.examine import Limits, examine
from qindex.spark.output import Output
from qindex.spark.plan import find


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Planted]]:
    path = tmp_path_factory.mktemp("audit") / "fleet"
    return path, make_fleet(path, brokers=16, queues=3, messages=4000)


def expected(planted: list[Planted]) -> Counter[tuple[str, str | None, str]]:
    counts: Counter[tuple[str, str | None, str]] = Counter()
    for each in planted:
        counts[each.broker, each.queue, each.kind] += each.count
    return counts


def found(findings: list[tuple[str, dict[str, Any]]]) -> Counter[tuple[str, str | None, str]]:
    """What torn tails and the like say of themselves is no fault."""
    counts: Counter[tuple[str, str | None, str]] = Counter()
    for broker, row in findings:
        if row["kind"] != "note":
            counts[broker, row.get("queue"), row["kind"]] += row["count"]
    return counts


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_planted_fault_is_found_and_nothing_else(tmp_path: Path, seed: int) -> None:
    planted = make_fleet(tmp_path / "fleet", brokers=5 + 4 * seed, messages=1000 * seed, seed=seed)
    findings = [
        (unit.broker, row)
        for unit in find([str(tmp_path / "fleet")])
        for row in examine(unit, Limits()).findings
    ]
    assert found(findings) == expected(planted)
