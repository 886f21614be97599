"""Which files a power cut leaves, as qindex.testing sees it."""

from collections import Counter

import pytest

from qindex.testing import Disk, DiskRules, MemoryDisk, Op

SEEDS = range(400)


def disk_of(files, rules=None):
    """A disk on which these operations of a MemoryDisk were done."""
    disk = Disk(rules)
    for op in files.log:
        disk.apply(op)
    return disk


def cuts(files, rules=None):
    """Each outcome of a power cut, and how often it came."""
    outcomes = Counter()
    for seed in SEEDS:
        disk = disk_of(files, rules)
        disk.power_cut(seed)
        outcomes[tuple(sorted(disk.files().items()))] += 1
    return outcomes


def named(*outcomes):
    return {tuple(sorted(outcome.items())) for outcome in outcomes}


def test_a_kill_loses_nothing():
    files = MemoryDisk()
    files.append("a", b"one")
    files.append("a", b"two")
    files.write("a", 1, b"N")
    files.resize("a", 5)
    assert disk_of(files).files() == {"a": b"oNetw"} == {"a": files.read("a")}


def test_what_is_synced_stays_and_the_rest_may_go():
    files = MemoryDisk()
    files.append("a", b"safe")
    files.sync("a")
    files.sync_names()
    files.append("a", b" more")
    outcomes = set(cuts(files))
    assert outcomes >= named({"a": b"safe"}, {"a": b"safe more"})
    assert all(dict(outcome)["a"].startswith(b"safe") for outcome in outcomes)


def test_a_synced_file_without_a_synced_name_may_be_gone():
    files = MemoryDisk()
    files.append("a", b"safe")
    files.sync("a")
    assert set(cuts(files)) == named({}, {"a": b"safe"})
    assert set(cuts(files, DiskRules(file_sync_keeps_name=True))) == named({"a": b"safe"})


def test_a_synced_name_of_an_unsynced_file_may_be_empty_or_zeros():
    files = MemoryDisk()
    files.append("a", b"data")
    files.sync_names()
    assert set(cuts(files)) == named({"a": b""}, {"a": b"data"}, {"a": bytes(4)})


def test_a_rename_is_whole_and_old_bytes_never_mix_with_new_ones():
    files = MemoryDisk()
    files.append("a", b"old")
    files.sync("a")
    files.sync_names()
    files.append("b", b"new")
    files.sync("b")
    files.rename("b", "a")
    assert set(cuts(files)) == named({"a": b"old"}, {"a": b"old", "b": b"new"}, {"a": b"new"})


def test_a_rename_without_a_sync_before_it_may_leave_nothing():
    files = MemoryDisk()
    files.append("a", b"old")
    files.sync("a")
    files.sync_names()
    files.append("b", b"new")
    files.rename("b", "a")
    assert named({"a": b""}) <= set(cuts(files))


def test_names_go_one_by_one_and_a_sync_of_the_directory_keeps_them():
    files = MemoryDisk()
    for name in "ab":
        files.append(name, b"")
    assert set(cuts(files)) == named({}, {"a": b""}, {"b": b""}, {"a": b"", "b": b""})
    files.sync_names()
    files.remove("a")
    assert set(cuts(files)) == named({"a": b"", "b": b""}, {"b": b""})


def test_a_sector_is_as_it_was_at_one_moment_and_sectors_are_alone():
    files = MemoryDisk()
    files.append("a", b"0" * 1024)
    files.sync("a")
    files.sync_names()
    files.write("a", 0, b"1" * 1024)
    seen = {(body[:512], body[512:]) for ((_, body),) in cuts(files)}
    old, new = b"0" * 512, b"1" * 512
    assert seen == {(old, old), (old, new), (new, old), (new, new)}


def test_directories_need_their_own_sync():
    disk = Disk()
    for op in (
        Op("mkdir", path="d"),
        Op("create", 1, "d/a"),
        Op("write", 1, data=b"x"),
        Op("sync", 1),
        Op("syncdir", path="d"),
    ):
        disk.apply(op)
    disk.power_cut(0)
    assert disk.files() == {}  # "d" itself was never safe


def test_after_a_cut_what_is_left_is_safe():
    files = MemoryDisk()
    files.append("a", b"data")
    for seed in SEEDS:
        disk = disk_of(files)
        disk.power_cut(seed)
        left = disk.files()
        disk.power_cut(seed + 1)
        assert disk.files() == left


def test_after_a_kill_what_was_not_synced_may_still_be_lost():
    disk = disk_of(files := MemoryDisk())
    files.append("a", b"data")
    for op in files.log:
        disk.apply(op)
    disk.bind({"a": 7})  # the next life
    disk.apply(Op("sync", 7))
    disk.power_cut(0)
    assert disk.files() == {}
    disk = disk_of(files)
    disk.bind({"a": 7})
    disk.apply(Op("syncdir"))
    disk.power_cut(0)
    assert disk.files() == {"a": b""}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_first_seeds_are_the_plain_cases(seed):
    files = MemoryDisk()
    files.append("a", b"safe")
    files.sync("a")
    files.sync_names()
    files.append("a", b" more")
    files.append("b", b"new")
    disk = disk_of(files)
    disk.power_cut(seed)
    assert disk.files() == [{"a": b"safe"}, {"a": b"safe", "b": b""}, {"a": b"safe more"}][seed]
