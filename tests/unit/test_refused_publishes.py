"""A publish that a full disk refuses is not there afterwards, and nothing has left for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

import qindex
from qindex import Queue, Store
from qindex.testing import SimulatedDisk, abandon, tick

Publish = Callable[[Store, Queue, bytes, bool], object]
PUBLISH: dict[str, Publish] = {
    "publish": lambda store, queue, body, confirm: queue.publish(body, confirm=confirm),
    "delayed": lambda store, queue, body, confirm: queue.publish(
        body, delay=5, priority=3, confirm=confirm
    ),
    "batch": lambda store, queue, body, confirm: queue.publish_many([body] * 3, confirm=confirm),
    "fan-out": lambda store, queue, body, confirm: store.publish(["a", "b"], body, confirm=confirm),
}
# Before the publish: the queue is in use, or flushed, or at rest with its files closed.
STATES = ["in use", "flushed", "at rest"]


def prepare(disk: SimulatedDisk, state: str, overflow: bool) -> tuple[Store, Queue]:
    store = qindex.open("/", disk=disk, idle=1.0, max_journal_entries=30, segment_entries=16)
    store.queue("b")
    queue = store.queue("a", max_messages=3, overflow="drop-head") if overflow else store.queue("a")
    queue.publish_many([b"old"] * 3)
    store.sync()
    if state == "flushed":
        queue.flush()
    for _ in range(3 if state == "at rest" else 0):
        disk.advance(2)
        tick(store)
    return store, queue


def each_failing_call(
    mapping: bool, kind: str, publish: Publish, state: str, overflow: bool
) -> list[str]:
    """Each call of the disk fails in turn, once and for ever; what a kill leaves after that."""
    wrong = []
    for body, confirm, sticky in itertools.product(
        [b"new", b"new" + bytes(6000)], [False, True], [False, True]
    ):
        for call in itertools.count(1):
            disk = SimulatedDisk(seed=call, mapping=mapping, wall=1.7e9)
            store, queue = prepare(disk, state, overflow)
            disk.fault(call, kind, sticky=sticky)  # type: ignore[arg-type]
            before, error = disk.calls, None
            try:
                publish(store, queue, body, confirm)
            except qindex.QindexError as caught:
                error = caught
            used, left = disk.calls - before, disk.kill()
            abandon(store)
            if isinstance(error, qindex.DiskFull):  # "nothing was changed"
                left.heal()
                with qindex.open("/", disk=left) as store:
                    found = [m.body[:3] for name in ("a", "b") for m in store.queue(name).browse()]
                if found != [b"old"] * 3:
                    wrong.append(f"call {call}, {len(body)} bytes: {found} after {error}")
            if used < call:
                break
        assert call > 1 or mapping, "something was tried"
    return wrong


@pytest.mark.parametrize("mapping", [True, False])
@pytest.mark.parametrize("kind", ["enospc", "short"])
@pytest.mark.parametrize("publish", PUBLISH.values(), ids=PUBLISH.keys())
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("overflow", [False, True])
@pytest.mark.sample(4)
def test_what_a_full_disk_refused_does_not_come_back(
    mapping: bool, kind: str, publish: Publish, state: str, overflow: bool
) -> None:
    assert each_failing_call(mapping, kind, publish, state, overflow) == []


def test_a_fan_out_that_reached_some_queues_does_not_say_that_nothing_was_changed() -> None:
    disk = SimulatedDisk(seed=1, mapping=False)
    store, _ = prepare(disk, "in use", overflow=False)
    errors = []
    for call in itertools.count(1):
        left = disk.kill()
        with qindex.open("/", disk=left) as copy:
            queue, _ = copy.queue("a"), copy.queue("b")
            left.fault(call, "enospc")
            try:
                copy.publish(["a", "b"], b"new")
                break
            except qindex.QindexError as error:
                errors.append(error)
            left.heal()
            here = [message.body for message in queue.browse()].count(b"new")
            assert isinstance(errors[-1], qindex.DiskFull) == (here == 0)
    abandon(store)
    partial = [str(error) for error in errors if isinstance(error, qindex.DiskError)]
    assert partial
    assert all("only the first 1 of 2 queues have it" in text for text in partial)


@pytest.mark.parametrize("error", [qindex.DiskFull("no room"), qindex.DiskError("no file")])
@pytest.mark.parametrize("policy", ["group", "always"])
def test_a_confirm_that_fails_does_not_say_that_nothing_was_changed(
    monkeypatch: pytest.MonkeyPatch, error: qindex.QindexError, policy: str
) -> None:
    """The sync behind a publish may have to open the queue's files again."""

    def fail(_queue: Queue) -> None:
        raise error

    with qindex.open("/", disk=SimulatedDisk(), sync=policy) as store:  # type: ignore[arg-type]
        queue, _ = store.queue("a"), store.queue("b")
        monkeypatch.setattr(Queue, "sync", fail)
        for publish in PUBLISH.values():
            before = len(queue)
            with pytest.raises(qindex.OutcomeUnknown, match="not synced"):
                publish(store, queue, b"new", True)
            assert len(queue) > before
        if policy == "always":
            message = queue.get()
            with pytest.raises(qindex.OutcomeUnknown):
                queue.ack(message)
            assert queue.unacked == 0
        monkeypatch.undo()


# --- a disk without a free byte -------------------------------------------------------------------

MESSAGES = 300


def fill_and_end(mapping: bool, flushed: bool, end: str) -> tuple[SimulatedDisk, list[bytes]]:
    disk = SimulatedDisk(seed=3, mapping=mapping, growth_min=4096)
    store = qindex.open("/", disk=disk)
    bodies = [b"%d" % number + bytes(100 if number % 9 else 5000) for number in range(MESSAGES)]
    for name in ("a", "b"):
        store.queue(name).publish_many(bodies)
        if flushed:
            store.queue(name).flush()
    store.sync()
    if end == "close":
        store.close()
    left = disk.power_cut(seed=5) if end == "power cut" else disk.kill()
    abandon(store)
    left.fill()
    for _ in range(2):  # only looked at
        with qindex.open("/", disk=left) as store:
            assert [len(store.queue(name)) for name in ("a", "b")] == [MESSAGES] * 2
    return left, bodies


every_disk = pytest.mark.parametrize("mapping", [True, False])
every_store = pytest.mark.parametrize("flushed", [True, False])


@every_disk
@every_store
def test_a_store_on_a_disk_without_a_free_byte_is_opened_and_drained(
    mapping: bool, flushed: bool
) -> None:
    left, bodies = fill_and_end(mapping, flushed, "close")
    with qindex.open("/", disk=left) as store:
        with pytest.raises(qindex.DiskFull):
            store.queue("a").publish_many([bytes(4000)] * 40)
        for name in ("a", "b"):
            queue = store.queue(name)
            for body in bodies:
                message = queue.get()
                assert message is not None
                assert message.body == body
                queue.ack(message)
    with qindex.open("/", disk=left) as store:
        assert [len(store.queue(name)) for name in ("a", "b")] == [0, 0]
        assert [finding for finding in store.findings if finding.severity == "damage"] == []


@every_disk
@every_store
@pytest.mark.parametrize("end", ["kill", "power cut"])
def test_after_an_unclean_end_it_is_drained_as_far_as_its_journal_has_room(
    mapping: bool, flushed: bool, end: str
) -> None:
    left, bodies = fill_and_end(mapping, flushed, end)
    acked = 0
    with qindex.open("/", disk=left) as store:
        queue = store.queue("a")
        try:
            while (message := queue.get()) is not None:
                queue.ack(message)
                acked += 1
        except qindex.DiskFull:
            pass
    assert acked >= 10
    with qindex.open("/", disk=left) as store:
        assert [message.body for message in store.queue("a").browse()] == bodies[acked:]
        assert [message.body for message in store.queue("b").browse()] == bodies
        assert [finding for finding in store.findings if finding.severity == "damage"] == []


@pytest.mark.parametrize("sticky", [False, True])
def test_a_publish_that_was_not_begun_is_not_of_unknown_outcome(sticky: bool) -> None:
    """A publish can wait for a sync of what came before it. If that fails, nothing was published,
    and the error says so: only who waits for the own sync (confirm) can be told "unknown"."""
    refused = 0
    for call in itertools.count(1):
        disk = SimulatedDisk(seed=call)
        store = qindex.open("/", disk=disk, max_journal_entries=20)
        queue = store.queue("orders")
        disk.fault(call, "eio", sticky=sticky)
        before, published, text = disk.calls, 0, ""
        try:
            for published in range(100):
                queue.publish(b"%d" % published)
        except qindex.DiskError as error:
            text = str(error)
        used, left = disk.calls - before, disk.kill()
        abandon(store)
        if text:
            left.heal()
            with qindex.open("/", disk=left) as store:
                bodies = [message.body for message in store.queue("orders").browse()]
            assert b"%d" % published not in bodies, text
            refused += text.startswith("nothing was changed; of what came before: cannot sync")
        if used < call:
            break
    assert refused > 2, "a sync of what came before failed"
