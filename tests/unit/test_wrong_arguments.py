"""Values that cannot be: a ValueError or TypeError that names what is meant; nothing changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex import Queue, Store
from qindex.arguments import DELAY_MAX, DUE_MAX, EXPIRES_MAX, REQ_ID_MAX

TOO_BIG = [-1, 1 << 64, 1 << 200]
NO_NUMBERS = ["1", b"1", object(), [], {}]
NO_WHOLE_NUMBERS = [*NO_NUMBERS, 1.5, math.nan]

ON_ONE: dict[str, Callable[[Queue, Any], object]] = {
    "ack": lambda queue, which: queue.ack(which),
    "ack_many": lambda queue, which: queue.ack_many([0, which]),
    "nack": lambda queue, which: queue.nack(which),
    "nack_many": lambda queue, which: queue.nack_many([0, which]),
    "reject": lambda queue, which: queue.nack(which, requeue=False),
    "touch": lambda queue, which: queue.touch(which, 5),
    "delete": lambda queue, which: queue.delete(which),
    "reschedule": lambda queue, which: queue.reschedule(which),
}


def counts(queue: Queue) -> tuple[int, ...]:
    return len(queue), queue.ready, queue.unacked, queue.delayed, queue.dead


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("a")
        queue.publish_many([b"taken", b"ready"])
        queue.get()
        yield queue


@pytest.mark.parametrize("verb", ON_ONE.values(), ids=ON_ONE.keys())
@pytest.mark.parametrize("which", TOO_BIG)
def test_a_number_that_is_no_req_id_is_refused(
    queue: Queue, verb: Callable[[Queue, Any], object], which: int
) -> None:
    before = counts(queue)
    with pytest.raises(ValueError, match="a ReqId must be a whole number from 0 to"):
        verb(queue, which)
    assert counts(queue) == before


@pytest.mark.parametrize("verb", ON_ONE.values(), ids=ON_ONE.keys())
@pytest.mark.parametrize("which", [*NO_WHOLE_NUMBERS, None, True])
def test_what_is_neither_a_message_nor_a_req_id_is_refused(
    queue: Queue, verb: Callable[[Queue, Any], object], which: object
) -> None:
    before = counts(queue)
    error: type[Exception]
    error, text = TypeError, "a Message, its ReqId or its token is needed, not"
    if isinstance(which, str):
        error, text = ValueError, "a token has 32 letters"
    with pytest.raises(error, match=text):
        verb(queue, which)
    assert counts(queue) == before


COUNTS: dict[str, tuple[str, Callable[[Queue, Any], object]]] = {
    "peek": ("req_id", lambda queue, value: queue.peek(value)),
    "browse": ("start", lambda queue, value: list(queue.browse(value))),
    "redrive": ("count", lambda queue, value: queue.redrive(value)),
    "get_many": ("count", lambda queue, value: queue.get_many(value)),
    "priority": ("priority", lambda queue, value: queue.publish(b"x", priority=value)),
    "max_messages": ("max_messages", lambda q, v: q._store.queue("b", max_messages=v)),
    "max_bytes": ("max_bytes", lambda q, v: q._store.queue("b", max_bytes=v)),
    "max_deliveries": ("max_deliveries", lambda q, v: q._store.queue("b", max_deliveries=v)),
}


@pytest.mark.parametrize(("name", "call"), COUNTS.values(), ids=COUNTS.keys())
def test_a_count_says_its_name_and_its_range(
    queue: Queue, name: str, call: Callable[[Queue, Any], object]
) -> None:
    before = counts(queue)
    for value in TOO_BIG:
        with pytest.raises(ValueError, match=f"{name} must be a whole number from .* to "):
            call(queue, value)
    for value in NO_WHOLE_NUMBERS:
        with pytest.raises(TypeError, match=f"{name} must be a whole number, not"):
            call(queue, value)
    assert counts(queue) == before


def test_the_largest_numbers_that_can_be_are_taken(queue: Queue) -> None:
    assert queue.peek(REQ_ID_MAX) is None
    assert list(queue.browse(REQ_ID_MAX)) == []
    assert [message.req_id for message in queue.browse(0, 1 << 70)] == [0, 1]
    assert queue.redrive(REQ_ID_MAX) == 0
    assert len(queue.get_many(REQ_ID_MAX)) == 1
    with pytest.raises(qindex.UnknownMessage):
        queue.delete(REQ_ID_MAX)


TIMES: dict[str, tuple[float, Callable[[Queue, Any], object]]] = {
    "delay": (DELAY_MAX, lambda queue, value: queue.publish(b"x", delay=value)),
    "due": (DUE_MAX, lambda queue, value: queue.publish(b"x", due=value)),
    "ttl": (EXPIRES_MAX // 2, lambda queue, value: queue.publish(b"x", ttl=value)),
    "expires_at": (EXPIRES_MAX, lambda queue, value: queue.publish(b"x", expires_at=value)),
    "lease": (DELAY_MAX, lambda queue, value: queue.get(lease=value)),
}


@pytest.mark.parametrize("name", TIMES)
def test_a_time_says_its_name_and_its_limit(queue: Queue, name: str) -> None:
    limit, call = TIMES[name]
    before = counts(queue)
    for value in (-1, math.nan, math.inf, limit, 1 << 200, 10**400):
        with pytest.raises(ValueError, match=rf"{name} must be seconds.* below {limit:.0f}, not"):
            call(queue, value)
    for value in NO_NUMBERS:
        with pytest.raises(TypeError, match=f"{name} must be a number, not"):
            call(queue, value)
    assert counts(queue) == before
    call(queue, math.nextafter(limit, 0))


@pytest.mark.parametrize("name", ["max_messages", "max_bytes", "max_open_files", "keep_history"])
def test_an_option_of_open_says_its_range_and_makes_no_store(tmp_path: Path, name: str) -> None:
    for value in TOO_BIG:
        with pytest.raises(ValueError, match=f"{name} must be a whole number from"):
            qindex.open(tmp_path / "store", **{name: value})
    for value in NO_WHOLE_NUMBERS:
        with pytest.raises(TypeError, match=f"{name} must be a whole number, not"):
            qindex.open(tmp_path / "store", **{name: value})
    for text in ("x", None):
        with pytest.raises(TypeError, match="idle must be a number, not"):
            qindex.open(tmp_path / "store", idle=text)  # type: ignore[arg-type]
    assert not (tmp_path / "store").exists()


def test_an_index_says_what_it_takes(tmp_path: Path) -> None:
    from array import array

    with qindex.QueueIndex(tmp_path / "index") as index:
        index.publish_many(3)
        for verb in (index.deliver, index.ack):
            for value in (*TOO_BIG, [0, -1], [1 << 64], range(-1, 1)):
                with pytest.raises(ValueError, match=r"ReqIds? must be"):
                    verb(value)
            for wrong in (1.5, "x", None, ["x"], [None]):
                with pytest.raises(TypeError, match="ReqIds must be whole numbers"):
                    verb(wrong)  # type: ignore[arg-type]
        index.deliver(array("I", [0, 2]))  # not eight bytes each
        index.ack(array("B", [2]))
        assert [(e.req_id, e.delivered) for e in index.read(0, 99)] == [(0, True), (1, False)]
        with pytest.raises(ValueError, match="sizes must be whole numbers from 0 to"):
            index.publish_many(1, [1 << 32])
        for wrong in (1.5, None, ["x"]):
            with pytest.raises(TypeError, match="msg_ids must be a number, or 16 bytes each"):
                index.publish_many(wrong)  # type: ignore[arg-type]
        assert index.bounds() == (0, 3)


def test_a_queue_has_a_name(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store") as store:
        for wrong in (1, b"a", None, ["a"]):
            for verb in (store.queue, store.queue_directory, store.delete_queue):
                with pytest.raises(TypeError, match="a queue's name is a str, not"):
                    verb(wrong)  # type: ignore[arg-type]
        assert store.queues() == []


# --- a store in a store ---------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["inner", "queues/inner", "messages", "a/b"])
def test_no_store_is_made_inside_another(tmp_path: Path, below: str) -> None:
    outer = tmp_path / "outer"
    qindex.open(outer).close()
    path = outer / below
    path.parent.mkdir(parents=True, exist_ok=True)
    files = sorted(outer.rglob("*"))
    made: list[Callable[[], object]] = [
        lambda: qindex.open(path),
        lambda: qindex.QueueIndex(path),
        lambda: qindex.DiskQueue("a", path),
    ]
    for make in made:
        with pytest.raises(qindex.StoreNested, match="lies inside the store"):
            make()
    assert sorted(outer.rglob("*")) == files


def test_nor_by_way_of_a_link(tmp_path: Path) -> None:
    qindex.open(tmp_path / "outer").close()
    (tmp_path / "link").symlink_to(tmp_path / "outer" / "queues")
    with pytest.raises(qindex.StoreNested):
        qindex.open(tmp_path / "link" / "inner")


def test_one_that_is_inside_another_already_is_opened(tmp_path: Path) -> None:
    qindex.open(tmp_path / "inner").close()
    qindex.open(tmp_path / "outer").close()
    (tmp_path / "inner").rename(tmp_path / "outer" / "inner")
    with qindex.open(tmp_path / "outer" / "inner") as store:
        assert store.queues() == []


def test_a_store_beside_others_is_made(tmp_path: Path) -> None:
    stores: list[Store] = [qindex.open(tmp_path / name) for name in ("a", "b")]
    for store in stores:
        store.close()
