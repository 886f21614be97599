"""Whoever settles a message says which delivery: one that has ended settles nothing."""

import asyncio
import contextlib

import pytest
from helpers import asked_for, crash, state

import qindex
import qindex.aio

SETTLE = {
    "ack": lambda queue, message: queue.ack(message),
    "_ack": lambda queue, message: queue._ack(message),
    "ack_many": lambda queue, message: queue.ack_many([message]),
    "nack": lambda queue, message: queue.nack(message),
    "nack later": lambda queue, message: queue.nack(message, delay=5),
    "drop": lambda queue, message: queue.nack(message, requeue=False),
    "nack_many": lambda queue, message: queue.nack_many([message]),
    "touch": lambda queue, message: queue.touch(message, 30),
}
every_way = pytest.mark.parametrize("settle", SETTLE.values(), ids=SETTLE.keys())
GET = {
    "get": lambda queue: queue.get(),
    "_get": lambda queue: queue._get(),
    "get_newest": lambda queue: queue.get_newest(),
    "get_many": lambda queue: queue.get_many(9)[-1],
    "headers": lambda queue: queue.get(timeout=0),
}
every_get = pytest.mark.parametrize("get", GET.values(), ids=GET.keys())


def refused(queue, settle, message, error=qindex.DeliveryEnded):
    before = state(queue)
    with pytest.raises(error):
        settle(queue, message)
    assert state(queue) == before


@every_get
@every_way
def test_what_was_given_back_is_not_settled_by_who_had_it(queue, get, settle):
    queue.publish(b"body")
    early = get(queue)
    queue.nack(early)
    refused(queue, settle, early, qindex.UnknownMessage)  # nobody has it
    late = get(queue)
    refused(queue, settle, early)
    assert queue.unacked == 1
    queue.ack(late)
    assert len(queue) == 0


@every_way
def test_the_same_with_leases(disk, simulated, settle):
    queue = simulated.queue("a")
    queue.publish(b"body")
    early = queue.get(lease=9)
    disk.advance(9)
    late = queue.get()
    refused(queue, settle, early, qindex.LeaseExpired)
    queue.ack(late)


@every_way
def test_in_a_batch_one_that_has_ended_keeps_all_of_it(queue, settle):
    del settle
    queue.publish_many([b"a", b"b"])
    early = queue.get_many(2)
    queue.nack(early[1])
    late = queue.get()
    for many in (queue.ack_many, queue.nack_many):
        refused(queue, lambda _, messages, many=many: many(messages), [early[0], early[1]])
    queue.ack_many([early[0], late])
    assert len(queue) == 0


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
@pytest.mark.parametrize("lease", [None, 1000])
@every_way
def test_a_message_of_another_session_settles_nothing(disk, end, lease, settle):
    """Same queue, same ReqId, and the same count again: a power cut took the delivery away."""
    store = qindex.open("/", disk=disk, sync="never")
    store.queue("a").publish(b"body", confirm=True)
    early = store.queue("a").get(lease=lease)
    if end == "close":
        store.close()
    left = {"close": lambda: disk, "kill": disk.kill}.get(end, lambda: disk.power_cut(1, "nothing"))
    with qindex.open("/", disk=left()) as again:
        queue = again.queue("a")
        refused(queue, settle, early, qindex.UnknownMessage)
        late = queue.get(lease=lease)
        assert (late.req_id, late.delivery_count == early.delivery_count) == (
            early.req_id,
            end == "power cut",
        )
        refused(queue, settle, early)
        queue.ack(late)
    with contextlib.suppress(qindex.QindexError):
        store.close()


@every_way
def test_a_message_of_another_queue_or_store_settles_nothing(open_store, tmp_path, settle):
    store, other = open_store(), qindex.open(tmp_path / "other")
    queues = [store.queue("a"), store.queue("b"), other.queue("a")]
    for queue in queues:
        queue.publish(b"body")
    messages = [queue.get() for queue in queues]
    for queue in queues:
        for message in messages:
            if message is not messages[queues.index(queue)]:
                refused(queue, settle, message)
    other.close()


@every_way
def test_a_queue_that_was_deleted_and_made_again_is_another(store, settle):
    store.queue("a").publish(b"body")
    early = store.queue("a").get()
    store.delete_queue("a")
    queue = store.queue("a")
    queue.publish(b"body")
    late = queue.get()
    assert (late.req_id, late.delivery_count) == (early.req_id, early.delivery_count)
    refused(queue, settle, early)


@every_way
def test_a_message_that_was_looked_at_stands_for_the_delivery_of_that_moment(queue, settle):
    queue.publish(b"body")
    ready = queue.peek()
    taken = queue.get()
    refused(queue, settle, ready)
    [seen] = queue.browse(state="unacked")
    queue.nack(taken)
    last = queue.get()
    refused(queue, settle, seen)
    [seen] = queue.browse(state="unacked")
    settle(queue, seen)
    queue.nack(seen.req_id) if queue.unacked else None
    assert last.delivery_count == 2


@every_way
def test_a_req_id_settles_whatever_delivery_is_current(queue, settle):
    req_id = queue.publish(b"body")
    queue.nack(queue.get())
    queue.get()
    settle(queue, req_id)
    assert queue.unacked == (1 if settle is SETTLE["touch"] else 0)


def test_the_same_from_an_event_loop(tmp_path):
    async def main():
        async with qindex.aio.open(tmp_path / "store") as store:
            queue = await store.queue("a")
            await queue.publish(b"body")
            early = await queue.get()
            await queue.nack(early)
            late = await queue.get()
            for settle in (
                lambda: queue.ack(early),
                lambda: queue.ack_many([early]),
                lambda: queue.nack(early),
                lambda: queue.touch(early, 5),
            ):
                with pytest.raises(qindex.DeliveryEnded):
                    await settle()
            await queue.ack(late)
            return (await queue.stats()).unacked

    assert asyncio.run(main()) == 0


@pytest.mark.parametrize("headers", [None, {"k": 1}])
@pytest.mark.parametrize("priority", [0, 7])
def test_a_message_with_details_is_compared_as_well(queue, headers, priority):
    queue.publish(b"body", headers=headers, priority=priority, expires_at=4e9)
    early = queue.get()
    queue.nack(early)
    late = queue.get()
    refused(queue, SETTLE["ack"], early)
    queue.ack(late)


@pytest.mark.parametrize("way", ["get", "peek", "browse"])
@pytest.mark.parametrize("verb", ["delete", "reschedule"])
def test_a_message_of_another_queue_is_neither_deleted_nor_moved(open_store, verb, way):
    """Each queue counts from 0, so the ReqId alone would hit somebody else's message."""
    store = open_store()
    one, other = store.queue("one"), store.queue("other")
    one.publish(b"of one")
    other.publish(b"of the other")
    message = next(iter(one.browse())) if way == "browse" else getattr(one, way)()
    before = asked_for(other.stats())
    with pytest.raises(qindex.UnknownMessage, match="is one of queue 'one', not of 'other'"):
        getattr(other, verb)(message)
    assert asked_for(other.stats()) == before
    assert [each.body for each in other.browse()] == [b"of the other"]


VERBS_OF_DELIVERIES = {
    "ack": lambda queue, message: queue.ack(message),
    "ack_many": lambda queue, message: queue.ack_many([message]),
    "nack": lambda queue, message: queue.nack(message),
    "reject": lambda queue, message: queue.nack(message, requeue=False),
    "nack_many": lambda queue, message: queue.nack_many([message], delay=5),
    "touch": lambda queue, message: queue.touch(message, 5),
}


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("here", ["nothing", "ready", "out", "gone"])
@pytest.mark.parametrize("verb", VERBS_OF_DELIVERIES)
def test_the_error_names_the_queue_that_a_message_is_of(open_store, verb, here, written):
    store = open_store(format=2)
    one, other = store.queue("one"), store.queue("other")
    one.publish(b"of one")
    message = one.get()
    if here != "nothing":
        other.publish(b"of the other")
    if here in ("out", "gone"):
        other.get()
    if here == "gone":
        other.ack(0)
    with pytest.raises(qindex.MessageError, match="is one of queue 'one', not of 'other'"):
        VERBS_OF_DELIVERIES[verb](other, message.token if written else message)
    assert (one.unacked, other.unacked) == (1, here == "out")


@pytest.mark.parametrize("way", ["get", "peek", "browse"])
@pytest.mark.parametrize("verb", ["delete", "reschedule"])
@pytest.mark.parametrize("other", ["store", "session", "made again"])
def test_nor_one_of_a_queue_of_the_same_name_elsewhere(open_store, tmp_path, verb, way, other):
    store = open_store()
    store.queue("a").publish(b"of the first")
    queue = store.queue("a")
    message = next(iter(queue.browse())) if way == "browse" else getattr(queue, way)()
    if other == "store":
        here = qindex.open(tmp_path / "elsewhere")
    elif other == "session":
        store.close()
        here = qindex.open(store.path)
    else:
        store.delete_queue("a")
        here = store
    queue = here.queue("a")
    queue.publish(b"of the second")
    before = (queue.ready, queue.delayed)
    with pytest.raises(qindex.UnknownMessage, match="of another store, or of an earlier session"):
        getattr(queue, verb)(message)
    assert (queue.ready, queue.delayed) == before
    getattr(queue, verb)(message.req_id)
    here.close()


@every_way
def test_a_delivery_of_a_message_that_the_queue_no_longer_knows(open_store, settle):
    """Two sessions later nothing is left of an empty lane. Nobody says "never published"."""
    store = open_store()
    queue = store.queue("a")
    req_id = queue.publish(b"x", priority=7)
    message = queue.get()
    queue.ack(message)
    queue.flush()
    for _ in range(2):
        crash(store)
        store = qindex.open(store.path)
        queue = store.queue("a")
    refused(queue, settle, message)
    with pytest.raises(qindex.UnknownMessage, match="or has left before the store was opened"):
        queue.ack(req_id)
    store.close()
