"""A bell is what an event loop has in place of a thread that waits: a descriptor."""

import os

import pytest
from helpers import LONG, Getter, asleep, in_child

from qindex._core import ffi, lib


@pytest.fixture
def bell(store):
    fd = lib.qi_store_bell(store._handle)
    assert fd >= 0
    assert lib.qi_store_bell(store._handle) == fd
    return fd


def rings(fd):
    try:
        return len(os.read(fd, 8)) == 8
    except BlockingIOError:
        return False


def rung(store):
    queues = []
    while (queue := lib.qi_bell_next(store._handle)) != ffi.NULL:
        queues.append(queue)
    return queues


def test_it_rings_once_for_an_armed_queue(store, queue, bell):
    queue.publish(b"before")
    assert lib.qi_bell_arm(queue._handle, True) == 1
    queue.ack(queue.get())
    assert not rings(bell)
    assert lib.qi_bell_arm(queue._handle, True) == 0
    assert lib.qi_bell_arm(queue._handle, True) == 0
    queue.publish(b"a")
    queue.publish(b"b")
    assert rings(bell)
    assert not rings(bell)
    assert rung(store) == [queue._handle]
    assert rung(store) == []


def test_queues_that_ring_together_ring_once(store, bell):
    queues = [store.queue(name) for name in "abc"]
    for queue in queues:
        lib.qi_bell_arm(queue._handle, True)
    for queue in queues:
        queue.publish(b"a")
    assert rings(bell)
    assert set(rung(store)) == {queue._handle for queue in queues}
    assert not rings(bell)


def test_a_forked_child_hears_nothing(store, queue, bell):
    """Nor does it wait for the list's lock, which another thread may have had at the fork."""
    lib.qi_bell_arm(queue._handle, True)
    queue.publish(b"a")
    assert in_child(lambda: rung(store)) == "[]"
    assert rung(store) == [queue._handle]


def test_a_disarmed_one_is_silent_and_passes_on_what_it_left(store, queue, bell):
    assert lib.qi_bell_arm(queue._handle, True) == 0
    getter = Getter(lambda: queue.get(timeout=LONG))
    asleep(getter)
    queue.publish(b"for the bell, which came first")
    assert rings(bell)
    assert lib.qi_bell_disarm(queue._handle, True) == 0
    assert getter.result() is not None
    queue.publish(b"nobody waits")
    assert not rings(bell)


def test_close_rings(open_store):
    store = open_store()
    bell = lib.qi_store_bell(store._handle)
    queue = store.queue("a")
    lib.qi_bell_arm(queue._handle, True)
    store.close()
    assert rings(bell)
    assert lib.qi_bell_arm(queue._handle, True) == lib.QI_E_CLOSED
