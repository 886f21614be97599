"""What a user does by mistake ends in an error that says what to do, and changes nothing."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import qindex
import qindex.aio


@pytest.mark.parametrize("name", ["file", "LOCK"])
def test_a_store_is_made_in_no_directory_that_holds_other_files(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(qindex.NotAStore, match=f"no store.meta.*{name}.*new or empty directory"):
        qindex.open(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"
    with pytest.raises(qindex.StoreMissing):
        qindex.open(tmp_path, read_only=True)  # who only looks makes no store anywhere


def test_a_store_is_made_in_a_directory_that_is_empty_or_holds_what_was_begun(tmp_path):
    (tmp_path / "empty" / "lost+found").mkdir(parents=True)
    for folder in ("queues", "messages", "commits"):
        (tmp_path / "begun" / folder).mkdir(parents=True)
    (tmp_path / "begun" / "LOCK").write_text("pid 7 on host\n")
    for name in ("empty", "begun", "new"):
        qindex.open(tmp_path / name).close()
    (tmp_path / "new" / "notes").write_text("mine")  # a store is one whatever lies beside it
    qindex.open(tmp_path / "new").close()


@pytest.mark.parametrize("verb", ["publish", "get"])
def test_a_name_that_is_no_queue_makes_none(store, verb):
    arguments = [b"x"] if verb == "publish" else []
    with pytest.raises(qindex.QueueMissing, match="no queue 'ordres'"):
        getattr(store, verb)(["ordres"], *arguments)
    assert store.queues() == []
    getattr(store, verb)(["ordres"], *arguments, create=True)
    assert store.queues() == ["ordres"]


def two_taken(store):
    for name in ("orders", "urgent"):
        store.queue(name).publish_many([b"a", b"b", b"c", b"d"])
    return [store.queue(name).get_many(4) for name in ("orders", "urgent")]


def test_a_message_is_settled_in_the_queue_that_it_is_from(store):
    orders, urgent = two_taken(store)
    orders[0].ack()
    store.ack(urgent[0])
    store.ack_many([orders[1], urgent[1]])
    orders[2].nack(requeue=False)
    store.nack(urgent[2], delay=60)
    orders[3].touch(60)
    store.touch(urgent[3], lease=60)
    store.nack_many([orders[3], urgent[3]])
    left = [
        [m.req_id for m in store.queue(name).browse(state="ready")] for name in ("orders", "urgent")
    ]
    assert left == [[3], [3]]
    assert store.queue("urgent").stats().delayed == 1
    for message in (orders[0], urgent[0]):
        with pytest.raises(qindex.AlreadyAcked):
            message.ack()


def test_what_was_only_looked_at_is_settled_by_nobody(store):
    store.queue("orders").publish(b"a")
    for message in (store.queue("orders").peek(), next(store.queue("orders").browse())):
        with pytest.raises(qindex.UnknownMessage, match="with nobody"):
            message.ack()
        with pytest.raises(qindex.UnknownMessage, match="with nobody"):
            store.nack(message)
    with pytest.raises(TypeError, match="a ReqId alone does not say of which queue"):
        store.ack(0)


def test_a_message_of_another_store_is_refused(open_store, tmp_path):
    one, other = open_store(), open_store(tmp_path / "other")
    for store in (one, other):
        store.queue("orders").publish(b"a")
    message, untouched = one.queue("orders").get(), other.queue("orders").get()
    with pytest.raises(qindex.UnknownMessage, match="another store"):
        other.ack(message)
    untouched.ack()
    message.ack()


def test_an_event_loop_settles_by_the_store_too(tmp_path):
    async def run():
        async with qindex.aio.open(tmp_path / "s") as store:
            orders, urgent = await store.queue("orders"), await store.queue("urgent")
            for queue in (orders, urgent):
                await queue.publish_many([b"a", b"b", b"c"])
            with pytest.raises(qindex.QueueMissing):
                await store.get(["ordres"])
            for queue in (orders, urgent):
                messages = await queue.get_many(3)
                await store.touch(messages[0], 60)
                await store.ack(messages[0])
                messages[1].ack()
                await store.nack(messages[2])
                again = await store.get([queue.name], timeout=timedelta(seconds=5))
                await store.nack_many([again])
                again = await store.get([queue.name])
                await store.ack_many([again])
                assert (await queue.stats()).ready == (await queue.stats()).unacked == 0

    asyncio.run(run())


def test_times_are_numbers_or_those_of_datetime(simulated):
    """The simulated clock stands near 2020."""
    queue = simulated.queue("q")
    hour = timedelta(hours=1)
    begun = datetime(2100, 1, 1, tzinfo=UTC)
    queue.publish(b"delay", delay=hour)
    queue.publish(b"due", due=begun)
    queue.publish(b"ttl", ttl=hour)
    queue.publish(b"expires", expires_at=begun)
    found = {message.body: message for message in queue.browse()}
    assert found[b"due"].due == found[b"expires"].expires_at == begun.timestamp()
    assert found[b"delay"].due == pytest.approx(found[b"ttl"].expires_at, abs=1)
    message = queue.get(lease=hour, timeout=timedelta(0))
    queue.touch(message, hour)
    queue.nack(message, delay=hour)
    assert queue.stats().delayed == 3


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda queue: queue.ack(None), TypeError, "get() returned None"),
        (lambda queue: queue.ack("x"), ValueError, "a token has 32 letters"),
        (lambda queue: queue.get(5), TypeError, "Queue.get() takes"),
        (lambda queue: queue.publish(b"", prioritty=3), TypeError, "Queue.publish() got"),
        (lambda queue: queue.publish(b"", delay="5"), TypeError, "delay must be"),
        (lambda queue: queue.browse(-5), ValueError, "start must be"),
        (lambda queue: queue.publish(b"", headers={"a": (1,)}), TypeError, "headers['a']"),
    ],
)
def test_an_error_says_what_was_wrong(queue, call, error, text):
    with pytest.raises(error) as raised:
        call(queue)
    assert text in str(raised.value)


def test_get_with_a_number_or_a_name_says_what_to_do(tmp_path):
    with qindex.open(tmp_path) as store:
        queue = store.queue("a")
        for given in (5, "a", None):
            with pytest.raises(TypeError, match=rf"takes no {given!r}: get\(timeout=5\) waits"):
                queue.get(given)


def test_both_surfaces_say_the_same_of_it(tmp_path):
    async def said(given):
        async with qindex.aio.open(tmp_path) as store:
            with pytest.raises(TypeError) as raised:
                await (await store.queue("a")).get(given)
            return str(raised.value)

    for given in (5, "a", None):
        asynchronous = asyncio.run(said(given))
        with qindex.open(tmp_path) as store, pytest.raises(TypeError) as raised:
            store.queue("a").get(given)
        assert asynchronous == str(raised.value)


def test_a_delay_of_0_is_none(tmp_path):
    with qindex.open(tmp_path) as store:
        queue = store.queue("a")
        first, second = queue.publish(b"first"), queue.publish(b"second", delay=0)
        assert queue.peek(second).due is None
        queue.nack(queue.get(), delay=0)
        assert queue.peek(first).due is None
        assert [message.body for message in queue.get_many(2)] == [b"first", b"second"]
