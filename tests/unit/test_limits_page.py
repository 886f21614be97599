"""docs/reference/limits.rst says what the limits are: each is tried at its end and beyond it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex import Store

PAGE = " ".join((Path(__file__).parents[2] / "docs/reference/limits.rst").read_text().split())
SPAN = 1_000_000_000
OF_2026 = datetime(3058, 1, 1, tzinfo=UTC).timestamp()


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# What the page says; a call with a value; the last value that is taken, and the first that is not.
LIMITS: list[tuple[str, Callable[[Store, Any], object], Any, Any]] = [
    ("a key has at most 255 bytes", lambda s, v: s.queue("a").publish(b"", headers={v: 1}),
     "é" * 127 + "x", "é" * 128),
    ("16 MiB when encoded", lambda s, v: s.queue("a").publish(b"", headers={"k": bytes(v)}),
     (16 << 20) - 11, 16 << 20),
    ("64 levels deep", lambda s, v: s.queue("a").publish(b"", headers={"k": nested(v)}), 63, 64),
    ("``int`` of 64 bits", lambda s, v: s.queue("a").publish(b"", headers={"k": v}),
     (1 << 63) - 1, 1 << 64),
    ("0 to 255", lambda s, v: s.queue("a").publish(b"", priority=v), 255, 256),
    ("less than 1,000,000,000 seconds", lambda s, v: s.queue("a").publish(b"", delay=v),
     math.nextafter(SPAN, 0), SPAN),
    ("less than 1,000,000,000 seconds", lambda s, v: s.queue("a").get(lease=v),
     math.nextafter(SPAN, 0), SPAN),
    ("less than 1,000,000,000 seconds", lambda s, v: s.queue("r", ttl=v), SPAN - 1, SPAN),
    ("a queue's ``ttl`` and ``expires``", lambda s, v: s.queue("r", expires=v), SPAN - 1, SPAN),
    ("before the year 3058", lambda s, v: s.queue("a").publish(b"", due=v), OF_2026, OF_2026 * 1.1),
    ("65,535 bytes of UTF-8; any characters, also none", lambda s, v: s.queue(v),
     "é" * 32_767 + "x", "é" * 32_768),
    ("any characters, also none", lambda s, v: s.create_queues([v]), "", "x" * 65_536),
    ("1 to 4,611,686,018,427,387,904", lambda s, v: s.queue("r", max_messages=v), 1 << 62,
     (1 << 62) + 1),
    ("1 to 4,611,686,018,427,387,904", lambda s, v: s.queue("r", max_bytes=v), 1, 0),
    ("1 to 65,535", lambda s, v: s.queue("r", max_deliveries=v), 65_535, 65_536),
]  # fmt: skip


@pytest.mark.parametrize(("text", "call", "last", "beyond"), LIMITS, ids=range(len(LIMITS)))
def test_a_limit_is_where_the_page_says(
    tmp_path: Path, text: str, call: Callable[[Store, Any], object], last: Any, beyond: Any
) -> None:
    assert text in PAGE
    with qindex.open(tmp_path / "store", format=2) as store:
        store.queue("a")
        with pytest.raises(ValueError):
            call(store, beyond)
        assert (store.queues(), len(store.queue("a"))) == (["a"], 0)
        call(store, last)


def test_one_get_many_gives_as_many_as_the_page_says(tmp_path: Path) -> None:
    assert "65,536 messages, or 4 MiB" in PAGE
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("a")
        queue.publish_many([b""] * 65_537)
        assert len(queue.get_many(1 << 20)) == 65_536
        assert len(queue.get_many(1 << 20)) == 1
        queue.publish_many([b"x" * 4000] * 1100)
        assert sum(len(m.body) for m in queue.get_many(1 << 20)) <= 4 << 20


def test_each_number_of_a_range_in_rules_is_on_the_page() -> None:
    from qindex import rules

    numbers = set(re.findall(r"\d[\d,]*", PAGE))
    assert {
        f"{rules._COUNT_MAX:,}",
        f"{rules._NAME_MAX:,}",
        f"{rules._DELIVERIES_MAX:,}",
    } <= numbers
