"""Queue.publish, publish_many and Store.publish: what goes in, and what is refused."""

import array
import datetime
import time
from decimal import Decimal

import pytest
from helpers import bodies, ids, state

import qindex

BODIES = [b"", b"x", bytes(range(256)), b"\0" * 63, b"\xff" * 64, b"y" * 65, b"z" * 5000]
HEADERS = {
    "none": None,
    "yes": True,
    "no": False,
    "int": -(2**63),
    "float": 0.1,
    "text": "grüße \U0001f407",
    "bytes": b"\0\xff",
    "when": datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.UTC),
    "price": Decimal("12.34"),
    "list": [1, "two", [None, {"three": 3}]],
    "table": {"inner": {"deep": b""}},
}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: f"{len(body)}-bytes")
def test_a_body_comes_back_as_it_was_published(queue, body):
    req_id = queue.publish(body)
    message = queue.get()
    assert (message.req_id, message.body, message.queue) == (req_id, body, "orders")
    assert type(message.body) is bytes
    assert message.headers == {}
    assert message.persistent
    assert not message.redelivered
    assert message.delivery_count == 1
    assert message.expires_at is None


def test_a_body_bigger_than_any_buffer_or_file_comes_back(queue):
    giant = bytes(range(256)) * 12_000  # 3 MB; message files have 4 KiB here
    queue.publish(b"before")
    queue.publish(giant)
    queue.publish(b"after")
    assert bodies([queue.get(), queue.get(), queue.get()]) == [b"before", giant, b"after"]


@pytest.mark.parametrize(
    "body",
    [
        bytearray(b"abcdef"),
        memoryview(b"abcdef"),
        memoryview(b"a.b.c.d.e.f.")[::2],
        array.array("B", b"abcdef"),
        array.array("H", [0x6261, 0x6463, 0x6665]),
    ],
    ids=["bytearray", "memoryview", "strided-memoryview", "array-B", "array-H"],
)
def test_any_bytes_like_body_is_taken_by_its_bytes(queue, body):
    queue.publish(body)
    queue.publish_many([body, b"plain", body])
    assert bodies(queue.get_many(9)) == [b"abcdef", b"abcdef", b"plain", b"abcdef"]


@pytest.mark.parametrize(
    "body", ["text", 7, None, [1, 2], object()], ids=lambda body: type(body).__name__
)
def test_a_body_that_is_not_bytes_like_is_refused_without_a_trace(queue, body):
    before = state(queue)
    with pytest.raises(TypeError, match="bytes-like"):
        queue.publish(body)
    with pytest.raises(TypeError):
        queue.publish_many([b"good", body])
    with pytest.raises(TypeError):
        queue._store.publish(["orders"], body, create=True)
    assert state(queue) == before


def test_a_published_body_is_a_copy(queue):
    body = bytearray(b"before")
    queue.publish(body)
    body[:] = b"after!"
    assert queue.get().body == b"before"


def test_req_ids_count_up_from_zero(queue):
    assert [queue.publish(b"") for _ in range(40)] == list(range(40))
    assert queue.publish_many([b""] * 40) == range(40, 80)
    assert queue.publish(b"") == 80


def test_each_queue_has_req_ids_of_its_own(store):
    assert store.queue("a").publish(b"1") == 0
    assert store.queue("b").publish(b"2") == 0
    assert store.publish(["a", "b"], b"3", create=True) == [1, 1]


def test_headers_of_every_type_round_trip(queue):
    queue.publish(b"body", headers=HEADERS)
    queue.publish(b"b" * 500, headers=HEADERS)
    queue.publish(b"", headers={})
    first, second, third = queue.get_many(3)
    assert first.headers == second.headers == HEADERS
    assert [type(v) for v in first.headers.values()] == [type(v) for v in HEADERS.values()]
    assert (first.body, second.body) == (b"body", b"b" * 500)
    assert third.headers == {}


@pytest.mark.parametrize(
    "headers", [{1: "key is no str"}, {"big": 2**64}, {"odd": object()}], ids=["key", "int", "type"]
)
def test_headers_that_cannot_be_stored_are_refused_without_a_trace(queue, headers):
    before = state(queue)
    with pytest.raises((TypeError, ValueError)):
        queue.publish(b"body", headers=headers)
    with pytest.raises((TypeError, ValueError)):
        queue.publish_many([b"body"], headers=headers)
    assert state(queue) == before


def test_a_batch_keeps_order_and_exact_bodies(queue):
    assert queue.publish_many(BODIES * 3) == range(21)
    messages = [queue.get() for _ in range(21)]
    assert bodies(messages) == BODIES * 3
    assert ids(messages) == list(range(21))


def test_a_batch_may_come_from_a_generator(queue):
    assert queue.publish_many(b"%d" % i for i in range(5)) == range(5)
    assert bodies(queue.get_many(5)) == [b"0", b"1", b"2", b"3", b"4"]


class MyBytes(bytes):
    """As good as bytes, but its len() is not believed."""

    def __len__(self):
        return 1


@pytest.mark.parametrize(
    "odd",
    [bytearray(b"12345678"), memoryview(b"12345678"), MyBytes(b"12345678"),
     array.array("I", b"12345678"), memoryview(b"1x2x3x4x5x6x7x8x")[::2]],
    ids=["bytearray", "memoryview", "subclass", "array", "strided"],
)  # fmt: skip
def test_a_batch_takes_anything_bytes_like(queue, odd):
    queue.publish_many([odd])
    queue.publish_many([b"first", odd, b"", b"last"])
    assert bodies(queue.get_many(5)) == [b"12345678", b"first", b"12345678", b"", b"last"]


class Shrinking(list):
    """As if another thread took from it after it was asked how many it has."""

    def __len__(self):
        return 100_000


def test_a_batch_has_the_bodies_that_its_list_gives(queue):
    assert queue.publish_many(Shrinking([b"a", b"b"])) == range(2)
    assert bodies(queue.get_many(5)) == [b"a", b"b"]


@pytest.mark.parametrize(
    "options",
    [
        {"headers": Shrinking([{"a": 1}])},
        {"persistent": Shrinking([True]), "redelivered": Shrinking([True])},
        {"expires_at": Shrinking([None])},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_sequence_that_gives_less_than_it_says_is_refused(queue, options):
    before = state(queue)
    with pytest.raises(ValueError, match="has 1 entries for 100000 bodies"):
        queue.publish_many([b""] * 100_000, **options)
    assert state(queue) == before


@pytest.mark.parametrize("bad", ["text", 5, None, ["body"]], ids=["text", "int", "none", "list"])
def test_a_batch_with_something_else_is_refused_as_a_whole(queue, bad):
    before = state(queue)
    with pytest.raises(TypeError, match="a body is bytes-like"):
        queue.publish_many([b"first", bad])
    assert state(queue) == before


def test_an_empty_batch_changes_nothing(queue):
    queue.publish(b"one")
    before = state(queue)
    assert queue.publish_many([]) == range(1, 1)
    assert state(queue) == before


def test_a_batch_takes_one_header_for_all_or_one_each(queue):
    queue.publish_many([b"a", b"b" * 100], headers={"all": 1})
    queue.publish_many([b"c", b"d" * 100, b"e"], headers=[{"own": 1}, None, {"own": 3}])
    messages = queue.get_many(5)
    assert [m.headers for m in messages] == [{"all": 1}, {"all": 1}, {"own": 1}, {}, {"own": 3}]
    assert bodies(messages) == [b"a", b"b" * 100, b"c", b"d" * 100, b"e"]


def test_a_batch_takes_flags_and_expiry_per_body(queue):
    later = time.time() + 1000
    queue.publish_many(
        [b"a", b"b", b"c"],
        persistent=[True, False, True],
        redelivered=[False, False, True],
        expires_at=[None, later, None],
    )
    messages = queue.get_many(3)
    assert [m.persistent for m in messages] == [True, False, True]
    assert [m.redelivered for m in messages] == [False, False, True]
    assert [m.expires_at for m in messages] == [None, pytest.approx(later, abs=1e-5), None]


@pytest.mark.parametrize(
    "options",
    [{"headers": [{}, {}]}, {"persistent": [True]}, {"redelivered": []}, {"expires_at": [None]}],
    ids=lambda options: next(iter(options)),
)
def test_a_sequence_of_another_length_than_the_batch_is_refused(queue, options):
    before = state(queue)
    with pytest.raises(ValueError, match="entries for 3 bodies"):
        queue.publish_many([b"1", b"2", b"3"], **options)
    assert state(queue) == before


def test_ttl_becomes_a_moment_of_expiry(queue):
    earliest = time.time()
    queue.publish(b"soon", ttl=60)
    assert earliest + 59.9 < queue.peek().expires_at < time.time() + 60.1


def test_an_expired_message_is_not_delivered_and_leaves(queue):
    queue.publish(b"late", expires_at=time.time() - 1)
    queue.publish(b"x" * 100, ttl=0)
    queue.publish(b"good", ttl=1000)
    assert queue.peek().body == b"good"
    assert queue.get().body == b"good"
    assert queue.get() is None
    assert queue.ready == 0
    assert len(queue) == 1


def test_get_many_skips_the_expired(queue):
    moment = time.time()
    queue.publish_many(
        [b"%d" % i for i in range(40)],
        expires_at=[moment - 5 if i % 2 else None for i in range(40)],
    )
    assert bodies(queue.get_many(40)) == [b"%d" % i for i in range(0, 40, 2)]
    assert queue.get_many(40) == []


@pytest.mark.parametrize(
    "options",
    [{"ttl": -1}, {"ttl": float("nan")}, {"expires_at": -1}, {"ttl": 1, "expires_at": 2}],
    ids=["negative", "nan", "before-1970", "both"],
)
def test_a_lifetime_that_makes_no_sense_is_refused(queue, options):
    before = state(queue)
    with pytest.raises(ValueError, match=r"ttl|expires_at"):
        queue.publish(b"body", **options)
    with pytest.raises(ValueError, match=r"ttl|expires_at"):
        queue.publish_many([b"body"], **options)
    assert state(queue) == before


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("redelivered", [True, False])
def test_a_publisher_may_set_flags(queue, persistent, redelivered):
    queue.publish(b"body", persistent=persistent, redelivered=redelivered)
    message = queue.get()
    assert message.persistent is persistent
    assert message.redelivered is redelivered


@pytest.mark.parametrize("sync", ["group", "always", "never"])
def test_every_sync_policy_publishes_and_confirms(open_store, sync):
    store = open_store(sync=sync)
    queue = store.queue("a")
    assert queue.publish(b"one", confirm=True) == 0
    assert queue.publish_many([b"two"], confirm=True) == range(1, 2)
    assert store.publish(["a", "b"], b"three", confirm=True, create=True) == [2, 0]
    queue.ack_many(queue.get_many(2))
    queue.ack(queue.get())
    assert queue.purge() == 0
    store.sync()
    assert len(queue) == 0


def test_fan_out_returns_ids_in_the_order_of_the_names(store):
    store.queue("b").publish_many([b""] * 7)
    assert store.publish(["b", "a", "c"], b"news", headers={"k": 1}, create=True) == [7, 0, 0]
    assert [store.queue(name).peek().body for name in "ac"] == [b"news", b"news"]
    assert store.queue("a").get().headers == {"k": 1}


def test_fan_out_to_nobody_is_refused(store, queue):
    before = state(queue)
    with pytest.raises(ValueError, match="at least one queue"):
        store.publish([], b"nobody")
    assert state(queue) == before
    assert store.queues() == ["orders"]


def test_fan_out_refuses_a_single_name(store):
    with pytest.raises(TypeError, match="list of names"):
        store.publish("orders", b"body")
    assert store.queues() == []


def test_a_fan_out_body_is_stored_once_and_freed_after_the_last_ack(store, tmp_path):
    names = [f"q{i}" for i in range(5)]
    store.publish(names, b"F" * 3000, create=True)
    after_one = store.stats().message_bytes
    assert after_one < 2 * 3000
    assert store.stats().live_references == 5
    for count, name in enumerate(names, 1):
        queue = store.queue(name)
        message = queue.get()
        assert message.body == b"F" * 3000
        queue.ack(message)
        assert store.stats().live_references == 5 - count
    store.queue("q0").publish(b"G" * 3000)  # rolls: the first file is not the newest any more
    for name in names:
        store.queue(name).flush()
    store.compact()
    kept = sum(file.read_bytes().count(b"F" * 100) for file in tmp_path.rglob("*.qms"))
    assert kept == 0


def test_a_queue_is_true_even_when_it_is_empty(queue):
    assert queue
    assert len(queue) == 0


def test_repr_says_what_it_is(store, queue):
    queue.publish(b"hello")
    assert "orders" in repr(queue)
    assert "hello" in repr(queue.get())
    assert "open" in repr(store)
    store.close()
    assert "closed" in repr(store)


def test_every_error_is_a_qindex_error():
    errors = [getattr(qindex, name) for name in qindex.__all__]
    raised = [e for e in errors if isinstance(e, type) and issubclass(e, Exception)]
    assert len(raised) > 10
    assert all(issubclass(error, qindex.QindexError) for error in raised)
