"""SimulatedDisk: a store on a disk that loses power, fails and rots when it is told to."""

import gc

import pytest
from helpers import SMALL, damage

import qindex
from qindex.testing import SimulatedDisk, _sim, abandon, tick


def open_on(disk, **options):
    return qindex.open("/", disk=disk, **{**SMALL, **options})


def bodies_on(disk):
    with open_on(disk) as store:
        return [message.body for message in store.queue("a").browse()]


@pytest.fixture(params=[True, False], ids=["mapped", "written"])
def disk(request):
    return SimulatedDisk(seed=1, mapping=request.param)


def test_a_power_cut_leaves_what_was_synced_and_a_kill_everything(disk):
    store = open_on(disk, sync="never")
    queue = store.queue("a")
    queue.publish(b"safe", confirm=True)
    queue.publish(b"not yet")
    nothing, all_, killed = disk.power_cut(3, "nothing"), disk.power_cut(3, "all"), disk.kill()
    abandon(store)
    assert bodies_on(nothing) == [b"safe"]
    assert bodies_on(all_) == bodies_on(killed) == [b"safe", b"not yet"]


def test_the_same_seed_leaves_the_same_bytes(disk):
    store = open_on(disk)
    store.queue("a").publish_many([b"x" * 100] * 30)
    assert disk.power_cut(5).files() == disk.power_cut(5).files()
    assert len({str(disk.power_cut(seed).files()) for seed in range(20)}) > 1
    store.close()


def test_a_disk_outlives_its_store_and_goes_with_it():
    disk = SimulatedDisk()
    store = open_on(disk)
    del disk
    gc.collect()
    store.queue("a").publish(b"x", confirm=True)
    store.close()


def test_a_store_is_open_once(disk):
    store = open_on(disk)
    with pytest.raises(qindex.StoreLocked):
        open_on(disk)
    store.close()
    open_on(disk).close()


def test_the_power_goes_in_the_middle_of_a_call(disk):
    store = open_on(disk, sync="never")
    queue = store.queue("a")
    queue.publish(b"safe", confirm=True)
    queue.publish(b"late")
    assert disk.taken() is None
    before = disk.changes
    disk.power_cut_at(1, seed=0, mode="nothing")
    queue.sync()
    assert disk.changes > before
    left = disk.taken()
    assert left is not None
    assert disk.taken() is None
    store.close()
    assert bodies_on(left) == [b"safe"]
    assert bodies_on(disk) == [b"safe", b"late"]


def test_a_failed_sync_is_told_and_a_healed_disk_opens_again(disk):
    store = open_on(disk, sync="never")
    queue = store.queue("a")
    queue.publish(b"safe", confirm=True)
    disk.fault(1, "eio", sticky=True)
    with pytest.raises((qindex.OutcomeUnknown, qindex.DiskError)):  # in the sync, or in the write
        queue.publish(b"late", confirm=True)
    with pytest.raises(qindex.StoreFailed):
        queue.publish(b"later")
    disk.heal()
    left = disk.kill()
    abandon(store)
    assert bodies_on(left)[:1] == [b"safe"]


def test_a_full_disk_is_told():
    disk = SimulatedDisk(capacity=3_000_000)
    store = open_on(disk)
    bodies = [b"x" * 3000] * 50
    with pytest.raises(qindex.DiskFull):
        list(map(store.queue("a").publish_many, [bodies] * 40))
    store.close()


@pytest.mark.parametrize(
    "kind",
    [
        "bit_flip",
        "zero_sector",
        "stale_sector",
        "misdirected",
        "lost_write",
        "missing_file",
        "swapped_files",
    ],
)
def test_damage_says_what_it_did(kind):
    disk = SimulatedDisk(seed=1)
    store = open_on(disk)
    for number in range(40):
        store.queue("a").publish(b"%d" % number * 50, confirm=True)
    store.queue("a").flush()
    store.close()
    before = disk.files()
    told = [disk.damage(kind, seed) for seed in range(20)]  # not every file can be damaged so
    assert any(told)
    assert disk.files() != before
    assert SimulatedDisk().damage(kind, seed=3) is None  # nothing is there


def test_damage_is_found_by_the_store():
    disk = SimulatedDisk(seed=1)
    with open_on(disk) as store:
        store.queue("a").publish_many([b"x" * 50] * 40)
        store.queue("a").flush()
    assert disk.damage("bit_flip", seed=3, where=".idx") is not None
    store = open_on(disk)
    store.check()
    assert damage(store)
    abandon(store)


def test_hours_go_by_when_they_are_told_to():
    disk = SimulatedDisk(wall=1_800_000_000)
    store = open_on(disk)
    queue = store.queue("a")
    queue.publish(b"short", ttl=3600)
    queue.publish(b"long", expires_at=1_800_000_000 + 7200)
    disk.advance(3601)
    assert queue.get().body == b"long"
    store.close()
    disk.set_wall(1_900_000_000)
    with open_on(disk) as store:
        assert store.queue("a").get() is None


def test_the_background_work_happens_in_tick():
    disk = SimulatedDisk()
    store = open_on(disk, sync="group")
    queue = store.queue("a")
    queue.publish_many([b"x"] * 20)
    disk.advance(1)
    tick(store)
    left = disk.power_cut(0, "nothing")
    abandon(store)
    assert len(bodies_on(left)) == 20


def test_two_disks_with_one_seed_hold_the_same_files():
    def files():
        disk = SimulatedDisk(seed=9)
        with open_on(disk) as store:
            store.queue("a").publish_many([b"x" * 80] * 20)
        return disk.files()

    assert files() == files()


# ---- handles of a store that was let go of ----


def test_what_is_left_of_an_abandoned_store_says_that_it_is_closed(disk):
    """Its memory stays for as long as somebody may ask it; a tester keeps messages over a cut."""
    store = open_on(disk)
    queue = store.queue("a")
    queue.publish_many([b"1", b"2"], confirm=True)
    message, walk = queue.get(), queue.browse()
    with open_on(disk.kill()) as other:
        abandon(store)
        abandon(store)
        calls = [message.ack, queue.get, queue.sync, lambda: queue.ready, lambda: next(walk)]
        for call in [*calls, store.stats, lambda: queue.publish(b"3"), message.nack]:
            with pytest.raises(qindex.StoreClosed):
                call()
        store.close()
        assert other.queue("a").ready == 2


# ---- the disk as the core takes it ----


def test_the_core_has_no_simulated_disk():
    assert [name for name in dir(qindex._core.lib) if "sim" in name.lower()] == []


@pytest.mark.parametrize(
    ("place", "why"),
    [(0, "no disk for a store"), (8, "layout"), (12, "layout"), (16, "layout")],
    ids=["magic", "version", "size of the disk", "size of its calls"],
)
def test_a_disk_of_another_layout_is_refused(disk, place, why):
    capsule = _sim.ffi.buffer(_sim.ffi.cast("char *", disk.capsule), 20)

    class Changed:
        @property
        def capsule(self):
            address = disk.capsule
            capsule[place] = bytes([capsule[place][0] ^ 1])
            return address

    with pytest.raises(ValueError, match=why):
        qindex.open("/", disk=Changed())
    qindex.open("/", disk=disk).close()
