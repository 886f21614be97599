"""Values that cannot be: a ValueError or TypeError that names what is meant; nothing changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qindex
import qindex.aio
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
        with pytest.raises(
            TypeError, match=f"{name} must be a number of seconds.* or a (timedelta|datetime), not"
        ):
            call(queue, value)
    assert counts(queue) == before
    call(queue, math.nextafter(limit, 0))


@pytest.mark.parametrize(
    "name", ["max_messages", "max_bytes", "max_open_files", "max_memory", "keep_history"]
)
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


LISTS: dict[str, tuple[str, Callable[[Queue, Any], object]]] = {
    "publish_many": (
        r"bodies must be a list of bodies, .* publish\(\)",
        lambda q, v: q.publish_many(v),
    ),
    "ack_many": (r"messages must be a list of messages, .* ack\(\)", lambda q, v: q.ack_many(v)),
    "nack_many": (r"messages must be a list of messages, .* nack\(\)", lambda q, v: q.nack_many(v)),
    "Store.ack_many": ("messages must be a list of messages", lambda q, v: q._store.ack_many(v)),
    "Store.nack_many": ("messages must be a list of messages", lambda q, v: q._store.nack_many(v)),
    "Store.publish": ("queues must be a list of names", lambda q, v: q._store.publish(v, b"x")),
    "Store.get": ("queues must be a list of names", lambda q, v: q._store.get(v)),
    "create_queues": ("names must be a list of names", lambda q, v: q._store.create_queues(v)),
    "headers": ("headers must be a list", lambda q, v: q.publish_many([b"x"], headers=v)),
}


@pytest.mark.parametrize(("text", "call"), LISTS.values(), ids=LISTS.keys())
def test_one_thing_where_several_are_meant_is_refused(
    queue: Queue, text: str, call: Callable[[Queue, Any], object]
) -> None:
    """Each byte of b"x" would be taken for a ReqId, each letter for a queue."""
    before = counts(queue)
    for value in ("text", b"\0\1", 5, object(), queue.peek(1)):
        with pytest.raises(TypeError, match=text):
            call(queue, value)
    assert counts(queue) == before
    assert queue._store.queues() == ["a"]


def test_no_error_is_as_long_as_what_was_wrong(queue: Any) -> None:
    long = "x" * 100_000
    calls: list[Callable[[], object]] = [
        lambda: queue.ack(long),
        lambda: queue.publish(b"x", ttl=long),
        lambda: queue.publish(b"x", priority=long),
        lambda: queue.publish(b"x", confirm=long),
        lambda: queue.peek(1 << 100_000),
        lambda: queue.get(timeout=long),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        assert len(str(error.value)) < 300


def test_a_number_of_another_kind_is_taken_or_refused_as_a_number(queue: Any) -> None:
    from decimal import Decimal

    for name in ("ttl", "delay", "due", "expires_at"):
        with pytest.raises(ValueError, match=f"{name} must be seconds"):
            queue.publish(b"x", **{name: Decimal("NaN")})
    message = queue.peek(queue.publish(b"x", due=Decimal("5.5")))
    assert message is not None
    assert message.due == 5.5


def test_none_and_a_tuple_say_what_to_do(queue: Any) -> None:
    for verb in (queue.ack, queue._store.ack, queue._store.nack):
        with pytest.raises(TypeError, match=r"get\(\) returned None, because nothing was ready"):
            verb(None)
    with pytest.raises(TypeError, match=r"headers\['a'\]: a value of type tuple .* make it a list"):
        queue.publish(b"x", headers={"a": (1, 2)})
    with pytest.raises(TypeError, match="where must be a function of a message"):
        queue.purge("ready")


def public_verbs(public: type) -> Iterator[tuple[str, Any]]:
    for name in dir(public):
        verb = getattr(public, name)
        if not name.startswith("_") and hasattr(verb, "__qualname__"):
            yield name, verb


@pytest.mark.parametrize("public", [Queue, Store, qindex.aio.Queue, qindex.aio.Store])
def test_an_unknown_option_is_told_with_the_name_of_the_class_that_users_know(public: type) -> None:
    """Not with that of the part of it in which the method is written."""
    named = {name: verb.__qualname__.partition(".")[0] for name, verb in public_verbs(public)}
    in_c = ("publish", "get", "get_many", "ack", "nack", "touch")
    inherited = dict.fromkeys(in_c, "QueueCalls")
    for name, part in named.items():
        assert part in {public.__name__, inherited.get(name)}, name
    nack_many: Any = Queue.nack_many
    with pytest.raises(TypeError, match=r"Queue\.nack_many\(\) got an unexpected .* 'dealy'"):
        nack_many(None, [0], dealy=5)


def test_so_is_one_of_a_verb_that_is_written_in_c(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store") as store:
        queue: Any = store.queue("a")
        queue.publish(b"x")
        queue.get()
        with pytest.raises(TypeError, match=r"Queue\.nack\(\) got an unexpected .* 'dealy'"):
            queue.nack(0, dealy=5)
        with pytest.raises(TypeError, match=r"Queue\.touch\(\) got an unexpected .* 'leese'"):
            queue.touch(0, leese=5)
        assert queue.unacked == 1


def test_an_unknown_setting_says_which_there_are(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store", format=2) as store:
        queue: Any = store.queue("a")
        with pytest.raises(TypeError, match=r"no setting 'overflw'; there are ttl, .*overflow"):
            queue.configure(overflw="reject")
