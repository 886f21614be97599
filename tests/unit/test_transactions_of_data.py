"""Keys of mappings change with the rest of a transaction, or not at all."""

import time

import pytest

import qindex
from qindex.testing import abandon
from qindex.testing.simulated import SimulatedDisk

SETTINGS = {"format": 2, "sync_interval": 3600}


@pytest.fixture
def disk():
    return SimulatedDisk()


@pytest.fixture
def store(disk):
    store = qindex.open("/", disk=disk, **SETTINGS)
    for name in ("a", "b"):
        store.queue(name)
    store.sync()
    yield store
    abandon(store)


def state(store):
    return (
        dict(store.data),
        dict(store.queue("a").data),
        [m.body for m in store.queue("b").browse()],
    )


def change(store, confirm=False):
    with store.transaction(confirm=confirm) as t:
        t.change({b"x": b"1", b"y": None})
        t.publish("b", b"invoice")
        t.change({b"bound": b"b"}, queue="a")
        t.change({b"x": b"2"})


CHANGED = ({b"x": b"2"}, {b"bound": b"b"}, [b"invoice"])


@pytest.mark.parametrize("end", ["open", "close", "kill", "power"])
def test_all_of_it_is_there(disk, store, end):
    store.data[b"y"] = b"old"
    change(store, confirm=end == "power")
    if end == "open":
        assert state(store) == CHANGED
        return
    if end == "close":
        store.close()
    left = disk.power_cut(1, "nothing") if end == "power" else disk.kill()
    with qindex.open("/", disk=left) as reopened:
        assert state(reopened) == CHANGED


@pytest.mark.parametrize("mode", ["nothing", "all", "mixed", "sectors512"])
def test_a_power_cut_leaves_all_or_nothing(disk, store, mode):
    store.data[b"y"] = b"old"
    store.sync()
    found = set()
    for seed in range(30):
        change(store)
        with qindex.open("/", disk=disk.power_cut(seed, mode)) as reopened:
            found.add(repr(state(reopened)))
        store.data.change({b"x": None, b"y": b"old"})
        store.queue("a").data.clear()
        store.queue("b").purge()
        store.sync()
    assert found <= {repr(CHANGED), repr(({b"y": b"old"}, {}, []))}


def test_a_queue_that_it_creates_can_have_data(store):
    with store.transaction() as t:
        t.publish("new", b"x", create=True)
        t.change({b"k": b"1"}, queue="new")
    assert dict(store.queue("new", create=False).data) == {b"k": b"1"}


def test_it_has_one_block(store):
    t = store.transaction()
    with t:
        t.publish("b", b"once")
        with pytest.raises(ValueError, match="has one block"):
            t.__enter__()
    with pytest.raises(ValueError, match="has one block"):
        t.__enter__()
    dropped = store.transaction()
    with pytest.raises(ZeroDivisionError):
        fail(dropped)
    with pytest.raises(ValueError, match="has one block"):
        dropped.__enter__()
    assert state(store)[2] == [b"once"]


def fail(transaction):
    with transaction:
        transaction.publish("b", b"never")
        raise ZeroDivisionError


def test_only_data_is_a_transaction_too(disk, store):
    with store.transaction() as t:
        t.change({b"k": b"v"})
        t.change({b"k": b"w"}, queue="b")
    assert t.req_ids == []
    with qindex.open("/", disk=disk.kill()) as reopened:
        assert (reopened.data[b"k"], reopened.queue("b").data[b"k"]) == (b"v", b"w")


def test_it_outlives_the_log_that_it_is_in(tmp_path):
    """What a log has is in the catalog before the log goes."""
    with qindex.open(tmp_path / "data", format=2) as store:
        store.queue("a")
        give_up = time.monotonic() + 60
        for i in range(300):
            with store.transaction() as t:
                t.change({b"number": b"%d" % i, b"filling": bytes(500_000)})
                t.publish("a", b"%d" % i)
        while (tmp_path / "data/commits/1.log").exists():
            assert time.monotonic() < give_up
            time.sleep(0.01)
    with qindex.open(tmp_path / "data") as store:
        assert store.data[b"number"] == b"299"
        assert len(store.queue("a")) == 300


def commit(store, *changes):
    with store.transaction() as t:
        for name, *given in changes:
            getattr(t, name)(*given)


def test_what_is_refused_changes_nothing(store):
    message = taken(store)
    store.queue("a").ack(message)
    with pytest.raises(qindex.AlreadyAcked):
        commit(store, ("change", {b"k": b"v"}), ("ack", message))
    with pytest.raises(ValueError, match="at most 524288 bytes"):
        commit(store, ("publish", "b", b"x"), ("change", {b"k": bytes(1 << 20)}))
    with pytest.raises(ValueError, match="at most 4194304 bytes"):
        commit(store, *(("change", {b"%d" % i: bytes(500_000)}) for i in range(9)))
    with store.transaction() as t:
        t.change({b"k": b"v"}, queue="a")
        store.queue("a").data[b"before"] = b"1"
    assert dict(store.queue("a").data) == {b"before": b"1", b"k": b"v"}
    late = store.transaction()
    late.change({b"k": b"v"})
    late.change({b"k": b"v"}, queue="a")
    store.delete_queue("a")
    with pytest.raises(qindex.QueueMissing):
        late.__exit__(None, None, None)
    assert (dict(store.data), len(store.queue("b"))) == ({}, 0)


def taken(store):
    store.queue("a").publish(b"x")
    return store.queue("a").get()


def test_wrong_changes_say_so_at_once(store):
    t = store.transaction()
    with pytest.raises(TypeError, match="a key is bytes, not str"):
        t.change({"k": b"v"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="begin with a zero byte"):
        t.change({b"\0settings": b"v"})
    with pytest.raises(TypeError, match="a queue's name is a str, not int"):
        t.change({b"k": b"v"}, queue=3)  # type: ignore[arg-type]
    with t:
        pass
    with pytest.raises(qindex.QueueMissing):
        with_missing(store)
    with pytest.raises(ValueError, match="is over"):
        t.change({b"k": b"v"})


def with_missing(store):
    with store.transaction() as t:
        t.change({b"k": b"v"}, queue="nowhere")
