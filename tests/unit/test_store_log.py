"""What a store says to the standard logging."""

import logging
import subprocess
import sys

import pytest
from helpers import crash, on_a_loop

import qindex
import qindex.lines
from qindex import aio
from qindex.counters import Syncs
from qindex.testing import SimulatedDisk

LOGGER = "qindex.store"


def lines(caplog):
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.fixture
def caplog(caplog):
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


def test_a_clean_life_says_nothing(tmp_path, caplog):
    for _ in range(2):
        with qindex.open(tmp_path / "data") as store:
            store.queue("a").publish(b"x")
            store.check()
    assert lines(caplog) == []


def test_a_session_that_was_cut_off_is_told_once(tmp_path, caplog):
    path = str(tmp_path / "data")
    store = qindex.open(path)
    store.queue("a").publish(b"x", confirm=True)
    crash(store)
    with qindex.open(path) as store:
        session = store.stats().unclean_session
        store.queue("a")
    (first, *more) = lines(caplog)
    assert first[0] == "INFO"
    assert first[1].startswith(f"{path}: session {session} did not end with close()")
    assert [level for level, _ in more if level != "INFO"] == []
    caplog.clear()
    qindex.open(path).close()
    assert lines(caplog) == []


def damage(path):
    with qindex.open(path, embed_below=64, message_file_size=4096) as store:
        store.queue("a").publish_many([b"x" * 1000] * 9)
    flip(path / "messages" / "0.qms")


def test_damage_is_a_warning_told_once(tmp_path, caplog):
    damage(tmp_path)
    with qindex.open(tmp_path) as store:
        store.check()
        store.queue("a")
        found = store.check()  # once more what it found before
        assert len(found) > 0
    told = lines(caplog)
    assert len(told) == len(found)
    assert {level for level, _ in told} == {"WARNING"}
    assert told[0][1].startswith(f"{tmp_path}: damage: ")


@on_a_loop
async def test_an_event_loop_s_store_says_the_same(tmp_path, caplog):
    damage(tmp_path)
    async with aio.open(tmp_path) as store:
        await store.check()
    assert "WARNING" in {level for level, _ in lines(caplog)}


def test_a_close_that_failed_is_an_error(caplog):
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk)
    store.queue("a").publish(b"x")
    disk.fault(1, "eio", sticky=True)
    with pytest.raises(qindex.QindexError):
        store.sync()
    with pytest.raises(qindex.StoreFailed) as failed:
        store.close()
    assert ("ERROR", str(failed.value)) in [
        (level, text.partition(": ")[2]) for level, text in lines(caplog)
    ]


def test_without_a_handler_nothing_is_printed_and_logging_is_not_loaded(tmp_path):
    damage(tmp_path)
    script = (
        "import sys, qindex\n"
        "assert 'logging' not in sys.modules\n"
        f"with qindex.open({str(tmp_path)!r}) as store: assert store.check()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_full_disk_is_an_error_that_is_told_once_a_minute(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(qindex.lines, "_full_told", None)
    disk = SimulatedDisk(seed=1, capacity=3_000_000)
    with qindex.open("/", disk=disk) as store:
        queue = store.queue("a")
        disk.fill()
        with pytest.raises(qindex.DiskFull) as full:
            queue.publish(b"x" * 100_000)
        with pytest.raises(qindex.DiskFull):
            queue.publish(b"x" * 100_000)
        assert lines(caplog).count(("ERROR", str(full.value))) == 1
        monkeypatch.setattr(qindex.lines, "FULL_AGAIN_SECONDS", 0)
        with pytest.raises(qindex.DiskFull):
            queue.publish(b"x" * 100_000)
        assert len([level for level, _ in lines(caplog) if level == "ERROR"]) == 2


def test_slow_syncs_are_told_once_with_how_long_they_took(tmp_path, caplog):
    with qindex.open(tmp_path) as store:
        fast = Syncs(3, 0.4, 0.3, {0.262144: 2, 0.524288: 1})
        slow = Syncs(5, 6.4, 4.1, {0.524288: 3, 2.097152: 1, float("inf"): 1})
        for syncs in (fast, slow, slow):
            store._log.syncs(syncs)
    told = [(level, text.partition(": ")[2]) for level, text in lines(caplog)]
    assert [level for level, text in told if "syncs took more than a second" in text] == ["WARNING"]
    assert "2 of 5 syncs took more than a second, the longest one 4.1 s" in told[-1][1]
