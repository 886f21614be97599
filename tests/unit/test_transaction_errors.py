"""What a transaction says when the disk fails it; and its memory."""

import pytest

import qindex
from qindex.testing.simulated import SimulatedDisk, abandon

SETTINGS = {"format": 2, "sync_interval": 3600}


def bodies(store, name):
    return [message.body for message in store.queue(name).browse()]


def publish_all(store, *changes):
    with store.transaction() as t:
        for name, body, options in changes:
            t.publish(name, body, **options)


@pytest.mark.parametrize("kind", ["eio", "enospc", "short"])
@pytest.mark.parametrize("mapping", [True, False])
def test_the_error_of_a_disk_says_whether_the_transaction_is_there(mapping, kind):
    errors = set()
    for call in range(1, 40):
        disk = SimulatedDisk(seed=1, mapping=mapping)
        store = qindex.open("/store", disk=disk, **SETTINGS)
        store.queue("b")
        store.queue("a").publish(b"order")
        order, before, error = store.queue("a").get(), disk.calls, None
        disk.fault(call, kind)
        try:
            store.move(order, to="b", confirm=True)
        except qindex.QindexError as caught:
            error = type(caught)
            errors.add(error)
        if disk.calls - before < call:
            break
        disk.heal()
        with qindex.open("/store", disk=disk.kill(), **SETTINGS) as again:
            left = (bodies(again, "a"), bodies(again, "b"))
        moved = left == ([], [b"order"])
        assert moved or left == ([b"order"], [])
        assert moved == (error is None) or error is qindex.OutcomeUnknown
        abandon(store)
    assert errors


@pytest.mark.parametrize("kind", ["eio", "short"])
def test_an_outcome_that_nobody_knows_is_called_so(kind):
    """The write of the log failed half-way, and so did the one that takes it back."""
    told = set()
    for call in range(1, 40):
        disk = SimulatedDisk(seed=1, mapping=False)
        store = qindex.open("/store", disk=disk, **SETTINGS)
        store.queue("b")
        store.queue("a").publish(b"order")
        order, before = store.queue("a").get(), disk.calls
        disk.fault(call, kind, sticky=True)
        try:
            store.move(order, to="b")
        except qindex.QindexError as error:
            told.add((type(error), "whether the transaction is there nobody knows" in str(error)))
        if disk.calls - before < call:
            break
        abandon(store)
    assert (qindex.OutcomeUnknown, True) in told


def test_an_error_names_all_queues_that_messages_have_left():
    full = {"max_messages": 1, "overflow": "drop-head"}
    texts = set()
    for call in range(1, 40):
        disk = SimulatedDisk(seed=1, mapping=False)
        store = qindex.open("/store", disk=disk, **SETTINGS)
        for name in ("a", "b", "c"):
            store.queue(name, **full).publish(b"old")
        before = disk.calls
        disk.fault(call, "enospc", sticky=True)
        try:
            publish_all(store, *[(name, b"new", {}) for name in ("a", "b", "c")])
        except qindex.QindexError as error:
            texts.add(str(error))
        if disk.calls - before < call:
            break
        abandon(store)
    assert any("3 messages of queues a, b, c left to make place for it" in text for text in texts)


@pytest.mark.parametrize("option", [{"lease": 5}, {"delay": 60}, {"delay": 60, "lease": 5}])
def test_many_messages_with_times_and_leases_of_their_own_come_at_once(tmp_path, option):
    with qindex.open(tmp_path / "store", **SETTINGS) as store:
        store.queue("a")
        publish_all(store, *[("a", b"", {**option, "priority": i % 3}) for i in range(500)])
        assert len(bodies(store, "a")) == 500
        assert store.check() == []
