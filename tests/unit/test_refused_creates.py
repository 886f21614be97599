"""A publish with create=True that is wrong in itself creates no queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex import Outgoing

WRONG: dict[str, Callable[[Any], Any]] = {
    "a priority": lambda store: store.publish(["new"], b"x", priority=-3, create=True),
    "a body": lambda store: store.publish(["new"], "x", create=True),
    "a delay": lambda store: store.publish(["new"], b"x", delay=-1, create=True),
    "headers": lambda store: store.publish(["new"], b"x", headers=5, create=True),
    "a lease": lambda store: store.publish(["new"], b"x", lease=0, create=True),
    "a name": lambda store: store.publish(["new", 5], b"x", create=True),
    "a priority of many": lambda store: store.publish_many(
        [Outgoing("new", b"x", priority=-3)], create=True
    ),
    "a later body": lambda store: store.publish_many(
        [Outgoing("new", b"x"), Outgoing("old", 5)],  # type: ignore[arg-type]
        create=True,
    ),
    "a later name": lambda store: store.publish_many(
        [Outgoing("new", b"x"), Outgoing(5, b"")],  # type: ignore[arg-type]
        create=True,
    ),
    "a later ttl": lambda store: store.publish_many(
        [Outgoing("new", b"x"), Outgoing("old", b"", ttl=-1)], create=True
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused_before_a_queue_is_created(tmp_path: Path, what: str) -> None:
    with qindex.open(tmp_path / "s", format=2) as store:
        store.queue("old")
        with pytest.raises((TypeError, ValueError)):
            WRONG[what](store)
        assert list(store.queues()) == ["old"]


def test_more_messages_than_a_queue_may_ever_have_are_told_so(tmp_path: Path) -> None:
    """It said "has 0 messages, and may have 20: take some": there was nothing to take."""
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("q", max_messages=20)
        text = "21 messages do not fit into queue q, which may have 20: publish fewer at a time"
        with pytest.raises(qindex.QueueFull, match=text):
            queue.publish_many([b"x"] * 21)
        with pytest.raises(qindex.QueueFull, match=text):
            store.publish_many([Outgoing("q", b"x")] * 21)


def test_a_queue_for_dead_letters_that_is_gone_is_missed_each_time_it_is_named(
    tmp_path: Path,
) -> None:
    """Not if the setting had that name already: the second start of a program heard nothing."""
    with qindex.open(tmp_path / "s", format=2) as store:
        store.queue("dead")
        store.queue("q", dead_letters="dead")
        store.delete_queue("dead")
        with pytest.raises(qindex.QueueMissing, match="there is no queue 'dead'"):
            store.queue("q", dead_letters="dead")
        store.queue("q", ttl=5)  # names another one
        assert store.queue("q").settings.dead_letters == "dead"
