"""Transactions over any queues of a store: all of it or nothing. And moves."""

import asyncio

import pytest

import qindex
import qindex.aio
from qindex.testing.simulated import SimulatedDisk

SETTINGS = {"format": 2, "sync_interval": 3600}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store")


@pytest.fixture
def store(path):
    with qindex.open(path, **SETTINGS) as opened:
        for name in ("a", "b", "c"):
            opened.queue(name)
        yield opened


def bodies(store, name):
    return [message.body for message in store.queue(name).browse()]


def commit(store, *changes):
    """Each is the name of a method, and what it is given."""
    with store.transaction() as t:
        for name, *given in changes:
            options = given.pop() if isinstance(given[-1], dict) else {}
            getattr(t, name)(*given, **options)


def test_all_changes_come_with_the_end_of_the_block(store):
    store.queue("a").publish(b"order")
    order = store.queue("a").get()
    with store.transaction() as t:
        t.publish("b", b"invoice", headers={"to": "x"}, priority=3)
        t.publish("c", b"later", delay=60)
        t.ack(order)
        assert (bodies(store, "a"), bodies(store, "b")) == ([b"order"], [])
    invoice = store.queue("b").get()
    assert (invoice.body, invoice.headers, invoice.priority) == (b"invoice", {"to": "x"}, 3)
    assert t.req_ids == [invoice.req_id, store.queue("c").peek(t.req_ids[1]).req_id]
    assert (bodies(store, "a"), store.queue("c").stats().delayed) == ([], 1)


def test_an_exception_in_the_block_drops_it(store):
    t = store.transaction()

    def fail():
        with t:
            t.publish("a", b"never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert bodies(store, "a") == []
    with pytest.raises(ValueError, match="not committed"):
        _ = t.req_ids


def test_a_delivery_that_has_ended_aborts_all_of_it(store):
    store.queue("a").publish(b"order")
    order = store.queue("a").get()
    order.nack()
    again = store.queue("a").get()
    with pytest.raises(qindex.DeliveryEnded) as caught:
        commit(store, ("publish", "b", b"invoice"), ("ack", order))
    assert caught.value.__notes__ == ["change 2 of the 2 in the transaction"]
    assert (bodies(store, "a"), bodies(store, "b")) == ([b"order"], [])
    again.ack()


def test_a_lease_that_has_ended_aborts_all_of_it():
    disk = SimulatedDisk(seed=1)
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.queue("b")
        store.queue("a").publish(b"order")
        order = store.queue("a").get(lease=5)
        disk.advance(6)
        with pytest.raises(qindex.LeaseExpired):
            commit(store, ("publish", "b", b"invoice"), ("ack", order))
        assert (bodies(store, "a"), bodies(store, "b")) == ([b"order"], [])


def test_a_message_is_settled_once(store):
    store.queue("a").publish(b"order")
    order = store.queue("a").get()
    with pytest.raises(ValueError, match="twice"):
        commit(store, ("ack", order), ("move", order, "b"))
    assert store.queue("a").stats().unacked == 1


def test_a_full_queue_keeps_all_of_it_out(store):
    store.queue("b", max_messages=1).publish(b"first")
    with pytest.raises(qindex.QueueFull):
        commit(store, ("publish", "a", b"one"), ("publish", "b", b"two"))
    assert (bodies(store, "a"), bodies(store, "b")) == ([], [b"first"])


def test_a_queue_that_is_not_there_keeps_all_of_it_out(store):
    with pytest.raises(qindex.QueueMissing):
        commit(store, ("publish", "a", b"one"), ("publish", "nowhere", b"two"))
    assert bodies(store, "a") == []
    with store.transaction() as t:
        t.publish("new", b"three", create=True)
    assert bodies(store, "new") == [b"three"]


def test_four_mebibytes_are_the_limit(store):
    with store.transaction() as t:
        for _ in range(3):
            t.publish("a", bytes(1 << 20))
    with pytest.raises(ValueError, match="at most 4194304 bytes of records"):
        commit(store, *[("publish", "a", bytes(1 << 20))] * 4)
    with pytest.raises(ValueError, match="does not fit into a transaction"):
        commit(store, ("publish", "a", bytes((4 << 20) + 1)))
    assert len(bodies(store, "a")) == 3


def test_long_bodies_in_the_index_are_flushed_as_short_ones(path):
    with qindex.open(path, max_journal_entries=100, **SETTINGS) as store:
        store.queue("a")
        commit(store, ("publish", "a", b"x" * 3_000_000), ("publish", "a", b"y"))
        for _ in range(400):
            store.queue("a").publish(b"")
    with qindex.open(path, **SETTINGS) as store:
        assert store.queue("a").stats().segment_bytes > 3_000_000
        assert [m.body[:1] for m in store.queue("a").browse(0, 2)] == [b"x", b"y"]
        assert len(store.queue("a").get().body) == 3_000_000
        assert store.check() == []


def test_256_queues_are_the_limit(store):
    store.create_queues(f"q{i}" for i in range(257))
    with pytest.raises(ValueError, match="at most 256 queues"):
        commit(store, *[("publish", f"q{i}", b"") for i in range(257)])
    with store.transaction() as t:
        for i in range(256):
            t.publish(f"q{i}", b"")
    assert all(len(bodies(store, f"q{i}")) == (i < 256) for i in range(257))


def test_a_transaction_is_over_when_it_is_over(store):
    with store.transaction() as t:
        pass
    assert t.req_ids == []
    with pytest.raises(ValueError, match="over"):
        t.publish("a", b"")


def test_format_1_names_the_upgrade(path):
    with qindex.open(path, format=1) as store:
        store.queue("b")
        store.queue("a").publish(b"body")
        message = store.queue("a").get()
        with pytest.raises(qindex.FormatError, match="qindex upgrade"), store.transaction() as t:
            t.publish("a", b"")
        with pytest.raises(qindex.FormatError, match="upgrade=True"):
            store.move(message, to="b")
        assert store.queue("a").stats().unacked == 1


def test_it_survives_a_reopen_and_a_flush(path):
    with qindex.open(path, **SETTINGS) as store:
        store.queue("b")
        with store.transaction(confirm=True) as t:
            t.publish("a", b"x" * 70_000, create=True)
            t.publish("b", b"y")
        store.queue("b").publish(b"plain")
    with qindex.open(path, **SETTINGS) as store:
        assert (bodies(store, "a"), bodies(store, "b")) == ([b"x" * 70_000], [b"y", b"plain"])
        assert store.check() == []


def test_a_reader_of_a_live_store_sees_all_or_nothing(path, store):
    store.queue("a").publish(b"order")
    store.sync()
    order = store.queue("a").get()
    with store.transaction() as t:
        t.publish("b", b"invoice")
        t.ack(order)
    store.queue("b").publish(b"plain")
    with qindex.open(path, read_only=True) as reader:
        assert (bodies(reader, "a"), bodies(reader, "b")) == ([], [b"invoice", b"plain"])
        assert reader.findings == []


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_power_cut_leaves_all_or_nothing(confirmed):
    for seed in range(30):
        disk = SimulatedDisk(seed=seed)
        store = qindex.open("/store", disk=disk, **SETTINGS)
        store.queue("b")
        store.queue("a").publish(b"order")
        store.sync()
        with store.transaction(confirm=confirmed) as t:
            t.publish("b", b"invoice")
            t.ack(store.queue("a").get())
        with qindex.open("/store", disk=disk.power_cut(seed), **SETTINGS) as again:
            left = (bodies(again, "a"), bodies(again, "b"))
        assert left == ([], [b"invoice"]) or (not confirmed and left == ([b"order"], []))
        store.close()


@pytest.mark.parametrize("deleted", ["a", "b"])
def test_what_has_moved_is_in_one_queue_when_the_other_is_deleted(deleted):
    for seed in range(20):
        disk = SimulatedDisk(seed=seed)
        store = qindex.open("/store", disk=disk, **SETTINGS)
        store.queue("b")
        store.queue("a").publish(b"order")
        store.sync()
        store.move(store.queue("a").get(), to="b")
        store.delete_queue(deleted)
        with qindex.open("/store", disk=disk.power_cut(seed), **SETTINGS) as again:
            left = bodies(again, "a") + bodies(again, "b")
        assert left == ([b"order"] if deleted == "a" else [])
        store.close()


# --- moves -----------------------------------------------------------------------------------


def test_a_move_takes_along_what_belongs_to_the_message(store):
    store.queue("a").publish(b"small", headers={"k": 1}, priority=7, lease=20, ttl=1000)
    message = store.queue("a").get()
    message.nack()
    message = store.queue("a").get()
    (req_id,) = store.move(message, to="b")
    moved = store.queue("b").peek(req_id)
    assert (moved.body, moved.headers, moved.priority) == (b"small", {"k": 1}, 7)
    assert moved.delivery_count == 2
    assert moved.expires_at == pytest.approx(message.expires_at)
    assert bodies(store, "a") == []


def test_a_stored_body_is_not_copied(store):
    store.queue("a").publish(b"B" * 50_000, headers={"k": 1})
    before = store.stats()
    store.move(store.queue("a").get(), to="b")
    after = store.stats()
    assert after.message_bytes == before.message_bytes
    store.move(store.queue("b").get(), to="c")
    store.sync()
    store.compact()
    (moved,) = store.queue("c").browse()
    assert (moved.body, moved.headers, moved.delivery_count) == (b"B" * 50_000, {"k": 1}, 2)
    assert store.check() == []


@pytest.mark.parametrize("size", [5, 50_000])
def test_headers_can_change_on_the_way(store, size):
    store.queue("a").publish(b"x" * size, headers={"old": 1})
    store.move(store.queue("a").get(), to="b", headers={"why": "rejected"})
    (moved,) = store.queue("b").browse()
    assert (moved.body, moved.headers) == (b"x" * size, {"why": "rejected"})


def test_a_waiting_message_moves_by_its_req_id(store):
    ids = [store.queue("a").publish(bytes([i])) for i in range(4)]
    taken = store.queue("a").get()
    assert store.move(ids[2:], to="b", queue="a") == [0, 1]
    with pytest.raises(qindex.MessageDelivered):
        store.move(taken.req_id, to="b", queue="a")
    with pytest.raises(TypeError, match="ReqId alone"):
        store.move(1, to="b")
    assert (bodies(store, "a"), bodies(store, "b")) == ([b"\0", b"\1"], [b"\2", b"\3"])


def test_a_dead_letter_is_alive_where_it_moves(store):
    store.queue("a", dead_letters=True).publish(b"poison")
    store.queue("a").get().nack(requeue=False)
    (dead,) = store.queue("a").browse(state="dead")
    store.move(dead.req_id, to="b", queue="a")
    assert store.queue("b").get().body == b"poison"
    assert store.queue("a").stats().dead == 0


def test_a_dead_letter_that_had_expired_expires_no_more_where_it_moves():
    disk = SimulatedDisk(wall=1e9)
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.queue("b")
        req_id = store.queue("a", dead_letters=True).publish(b"late", ttl=1)
        disk.advance(2)
        assert store.queue("a").get() is None
        store.move(req_id, to="b", queue="a")
        assert store.queue("b").get().body == b"late"


@pytest.mark.parametrize("to", ["nowhere", "full"])
def test_a_move_that_is_refused_leaves_the_message_where_it_was(store, to):
    store.queue("full", max_messages=1).publish(b"")
    store.queue("a").publish(b"here")
    message = store.queue("a").get()
    with pytest.raises((qindex.QueueMissing, qindex.QueueFull)):
        store.move(message, to=to)
    assert store.queue("a").stats().unacked == 1
    message.ack()


def test_what_was_delivered_as_often_as_allowed_where_it_moves_is_delivered_once_more(store):
    store.queue("b", max_deliveries=2)
    store.queue("a").publish(b"order")
    for _ in range(2):
        store.queue("a").get().nack()
    store.move(0, to="b", queue="a")
    message = store.queue("b").get()
    assert message.delivery_count == 3
    message.nack()
    store.queue("b").get().nack()
    assert store.queue("b").get() is None


def test_a_message_does_not_move_into_its_own_queue(store):
    store.queue("a").publish(b"")
    with pytest.raises(ValueError, match="the queue that it is in"):
        store.move(store.queue("a").get(), to="a")


def test_what_leaves_a_full_queue_does_not_move_as_well(store):
    queue = store.queue("a", max_messages=1, overflow="drop-head")
    first = queue.publish(b"first")
    with pytest.raises(ValueError, match=r"would leave to make place.*move it by itself"):
        commit(store, ("publish", "a", b"second"), ("move", first, "b", {"queue": "a"}))
    assert (bodies(store, "a"), bodies(store, "b")) == ([b"first"], [])


def test_a_loop_commits_without_waiting(path):
    async def main():
        async with await qindex.aio.open(path, **SETTINGS) as store:
            a = await store.queue("a")
            await store.queue("b")
            await a.publish(b"order")
            order = await a.get()
            async with store.transaction(confirm=True) as t:
                t.publish("b", b"invoice")
                t.ack(order)
            assert t.req_ids == [0]
            with pytest.raises(TypeError, match="async with"), store.transaction():
                pass
            assert await store.move(0, to="a", queue="b") == [1]
            assert (await a.get()).body == b"invoice"

    asyncio.run(main())


def test_a_commit_that_fails_leaves_no_queue_that_it_made(store):
    store.queue("a").configure(max_messages=1)
    store.queue("a").publish(b"x")
    new = ("publish", "new", b"1", {"create": True})
    old = ("publish", "b", b"", {"create": True})
    for last in (("publish", "a", b"full"), ("publish", "missing", b"")):
        with pytest.raises((qindex.QueueFull, qindex.QueueMissing)):
            commit(store, new, new, old, last)
        assert store.queues() == ["a", "b", "c"]
    commit(store, new)
    assert bodies(store, "new") == [b"1"]


def test_what_somebody_else_asked_for_meanwhile_stays(store, monkeypatch):
    store.queue("a").configure(max_messages=1)
    store.queue("a").publish(b"x")
    rule, asked = store._ruled_queue, []

    def slow(name, create=False, named=None):
        if name == "a":  # "new" was made just now
            asked.append(store.queue("new"))
        return rule(name, create, named)

    monkeypatch.setattr(store, "_ruled_queue", slow)
    with pytest.raises(qindex.QueueFull):
        commit(store, ("publish", "new", b"1", {"create": True}), ("publish", "a", b"full"))
    monkeypatch.undo()
    (queue,) = asked
    queue.publish(b"mine")
    assert bodies(store, "new") == [b"mine"]
