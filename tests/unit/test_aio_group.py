"""qindex.aio: tasks that wait for a sync share it, and publishers wait for the disk."""

import asyncio

import pytest
from helpers import in_child, on_a_loop, settle, without_worker

import qindex
from qindex import aio
from qindex._core import lib
from qindex.asks import Asks
from qindex.testing import SimulatedDisk


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


class Syncs:
    """Counts the syncs that a store begins, and can hold them up."""

    def __init__(self, store, monkeypatch):
        self.count = 0
        self._held, self._sync = None, store._asks.sync
        monkeypatch.setattr(store._asks, "sync", self._watched)

    def _watched(self, queue, ended):
        self.count += 1
        if self._held is None:
            self._sync(queue, ended)
        else:
            self._held.append((queue, ended))

    def hold(self):
        self._held = []

    def go_on(self):
        held, self._held = self._held, None
        for queue, ended in held:
            self._sync(queue, ended)


@on_a_loop
async def test_confirms_share_syncs(monkeypatch):
    async with aio.open("/", disk=without_worker()) as store:
        queue = await store.queue("a")
        syncs = Syncs(store, monkeypatch)
        syncs.hold()  # a quick disk would be done with the first one before all have published
        publishes = [asyncio.create_task(queue.publish(b"a", confirm=True)) for _ in range(500)]
        await settle(200)
        syncs.go_on()
        req_ids = await asyncio.gather(*publishes)
        assert sorted(req_ids) == list(range(500))
        assert (await queue.stats()).unsynced_bytes == 0
        assert syncs.count == 2  # the first one, alone; then all the others


@on_a_loop
async def test_a_sync_that_many_share_waits_for_the_others_of_its_turn(monkeypatch):
    async with aio.open("/", disk=without_worker()) as store:
        queue = await store.queue("a")
        await asyncio.gather(*(queue.publish(b"a", confirm=True) for _ in range(10)))
        syncs = Syncs(store, monkeypatch)
        await asyncio.gather(*(queue.publish(b"a", confirm=True) for _ in range(10)))
        assert syncs.count == 1
        await queue.publish(b"alone", confirm=True)
        assert syncs.count == 2


@on_a_loop
async def test_a_confirm_covers_what_came_during_a_sync_by_another_one(path, monkeypatch):
    async with aio.open(path, sync="never") as store:
        queue = await store.queue("a")
        syncs = Syncs(store, monkeypatch)
        syncs.hold()
        one = asyncio.create_task(queue.publish(b"a", confirm=True))
        other = asyncio.create_task(queue.publish(b"b", confirm=True))
        await settle()
        assert (syncs.count, one.done(), other.done()) == (1, False, False)
        syncs.go_on()
        await asyncio.gather(one, other)
        assert syncs.count == 2


@on_a_loop
async def test_a_waiter_that_is_cancelled_leaves_the_others_their_sync(path, monkeypatch):
    async with aio.open(path, sync="never") as store:
        queue = await store.queue("a")
        syncs = Syncs(store, monkeypatch)
        syncs.hold()
        tasks = [asyncio.create_task(queue.publish(b"a", confirm=True)) for _ in range(4)]
        await settle()
        for cancelled in (tasks[0], tasks[2]):  # of the sync that runs, and of the next one
            cancelled.cancel()
        await settle()
        syncs.go_on()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError, int] * 2
        assert syncs.count == 2
        assert (await queue.stats()).unsynced_bytes == 0


@on_a_loop
async def test_too_much_unconfirmed_holds_publishers_up(path, monkeypatch):
    async with aio.open(path, max_unconfirmed=10_000) as store:
        queue = await store.queue("a")
        syncs = Syncs(store, monkeypatch)
        syncs.hold()
        published = []

        async def publish():
            while len(published) < 150:
                published.append(await queue.publish(b"x" * 1000))

        publishers = [asyncio.create_task(publish()) for _ in range(3)]
        while not syncs.count:
            await asyncio.sleep(0.001)
        await settle(200)
        assert 0 < len(published) <= 10
        syncs.go_on()
        await asyncio.gather(*publishers)
        assert len(published) >= 150
        assert 10 <= syncs.count <= 100
        await queue.publish(b"x" * 100_000)  # alone it may pass


@on_a_loop
async def test_a_sync_that_fails_says_so_to_all_who_wait_for_it():
    disk = SimulatedDisk(seed=1)
    store = await aio.open("/", disk=disk)
    queue = await store.queue("a")
    await queue.publish(b"a")
    disk.fault(1, "eio", sticky=True)
    results = await asyncio.gather(queue.sync(), queue.sync(), return_exceptions=True)
    assert [type(result) for result in results] == [qindex.OutcomeUnknown] * 2
    with pytest.raises(qindex.StoreFailed):
        await queue.get(timeout=None)
    with pytest.raises(qindex.StoreFailed):
        await store.close()


class FailingCore:
    """The core, whose syncs cannot begin, or end with an error."""

    def __init__(self, begins=0, ends=0):
        self._begins, self._ends = begins, ends

    def qi_sync_ask(self, *arguments):
        return self._begins or lib.qi_sync_ask(*arguments)

    def qi_sync_came(self, store, queue, error):
        came = lib.qi_sync_came(store, queue, error)
        error[0] = self._ends
        return came


@pytest.mark.parametrize(
    ("core", "error"),
    [
        (FailingCore(begins=lib.QI_E_MEMORY), MemoryError),
        (FailingCore(ends=lib.QI_E_MEMORY), MemoryError),
        (FailingCore(ends=lib.QI_E_FULL), qindex.OutcomeUnknown),
        (FailingCore(ends=lib.QI_E_IO), qindex.OutcomeUnknown),
    ],
)
@on_a_loop
async def test_a_sync_that_fails_is_told_and_does_not_hang_the_next(path, core, error):
    """A message is there, so its confirm does not say that nothing was changed."""
    async with aio.open(path, sync="never") as store:
        queues = [await store.queue(name) for name in "ab"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("qindex.asks.lib", core)
            for queue in queues:
                with pytest.raises(error):
                    await queue.publish(b"told", confirm=True)
        for queue in queues:
            assert await queue.publish(b"next", confirm=True) == 1


def test_every_sync_that_ended_is_heard_of_whatever_one_of_the_callbacks_raises():
    with qindex.open("/", disk=SimulatedDisk(seed=1), sync="never") as store:
        asks, heard = Asks(store._handle), []

        def interrupted(error):
            heard.append(error)
            raise KeyboardInterrupt

        for name in "ab":
            asks.sync(store.queue(name)._handle, interrupted)
        with pytest.raises(KeyboardInterrupt):
            asks.heard()
        assert heard == [None, None]


@on_a_loop
async def test_a_forked_child_waits_for_no_sync_and_no_thread_of_its_parent(path):
    async with aio.open(path, max_unconfirmed=100) as store:
        queue = await store.queue("a")
        confirmed = [asyncio.create_task(queue.publish(b"x", confirm=True)) for _ in range(3)]
        await asyncio.sleep(0)
        uses = [
            lambda: queue.publish(b"child", confirm=True),
            lambda: queue.publish(b"child" * 100),  # more than may be unconfirmed
            lambda: queue.publish_many([b"child"]),
            lambda: store.publish(["a"], b"child", confirm=True),
            lambda: queue.get(timeout=None),
            queue.sync,
            queue.stats,
            store.sync,
        ]
        for use in uses:
            answer = in_child(lambda use=use: asyncio.run(asyncio.wait_for(use(), 5)))
            assert answer.startswith("StoreForked"), answer
        assert in_child(lambda: asyncio.run(asyncio.wait_for(store.close(), 5))) == "None"
        assert sorted(await asyncio.gather(*confirmed)) == [0, 1, 2]
        assert len(queue) == 3
