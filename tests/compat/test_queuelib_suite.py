"""qindex.compat.queuelib passes queuelib's own tests, which come inside its package.

tools/foreign_suites.py puts the stand-ins where the tests have queuelib's disk, SQLite and memory
queues, alone and in PriorityQueue and RoundRobinQueue; SUITES.rst says which tests are left out.
"""

import unittest

import foreign_suites
import pytest

import qindex
import qindex.compat.queuelib as stand_in
from qindex.compat.queuelib import FifoDiskQueue, LifoDiskQueue, _Shared
from qindex.testing import abandon

pytest.importorskip(
    "queuelib.tests", reason="queuelib, with its tests, is not installed", exc_type=ImportError
)

SUITE = foreign_suites.queuelib()
globals().update({f"Test{name}": bound for name, bound in SUITE.bound().items()})


def test_the_table_has_what_is_run():
    foreign_suites.compare(SUITE)


def failures(name, test):
    """Of one test of the suite."""
    result = unittest.TestResult()
    globals()[f"Test{name}"](test).run(result)
    assert result.testsRun == 1
    return result.failures + result.errors


@pytest.mark.parametrize("kind", ["Memory", "Disk", "SQLite"])
def test_the_suite_notices_a_wrong_order(monkeypatch, kind):
    monkeypatch.setattr(FifoDiskQueue, "_take", LifoDiskQueue._take)
    assert failures(f"Fifo{kind}QueueTest", "test_push_pop1")
    assert failures(f"Fifo{kind}PriorityQueueTest", "test_push_pop_peek_prio")
    assert failures(f"Fifo{kind}RRQueueTest", "test_push_pop_peek_key")


def test_a_test_that_queuelib_expects_to_fail_must_pass_here(monkeypatch):
    test = "test_non_bytes_raises_typeerror"
    assert not failures("FifoDiskQueueTest", test)
    monkeypatch.setattr(FifoDiskQueue, "push", lambda self, data: None)
    assert failures("FifoDiskQueueTest", test)
    assert not hasattr(getattr(SUITE.bound()["FifoDiskQueueTest"], test), "pytestmark")


@pytest.mark.parametrize(("kind", "order"), [(FifoDiskQueue, b"abc"), (LifoDiskQueue, b"cba")])
def test_a_push_survives_a_kill_and_a_peek_takes_nothing(tmp_path, kind, order):
    items = kind(tmp_path / "jobs" / "0")
    for item in (b"a", b"b", b"c"):
        items.push(item)
    assert items.peek() == order[:1]
    assert len(items) == 3
    abandon(_Shared.opened.pop(items._folder).store)
    again = kind(tmp_path / "jobs" / "0")
    assert [again.pop() for _ in range(4)] == [*(order[i : i + 1] for i in range(3)), None]
    again.close()
    again.close()
    assert not (tmp_path / "jobs" / "0").exists()


def test_a_push_behind_a_peek_comes_first_in_a_stack(tmp_path):
    items = LifoDiskQueue(tmp_path / "0")
    items.push(b"a")
    assert items.peek() == b"a"
    items.push(b"b")
    assert [items.pop(), items.pop(), items.pop()] == [b"b", b"a", None]
    items.close()


def test_queues_of_one_folder_share_a_store(tmp_path):
    queues = [FifoDiskQueue(tmp_path / str(i)) for i in range(20)]
    assert len({id(queue._shared) for queue in queues}) == 1
    for queue in queues:
        queue.push(b"a")
    for queue in queues:
        queue.close()
    assert not _Shared.opened
    again = FifoDiskQueue(tmp_path / "7")
    assert again.pop() == b"a"
    again.close()


def test_queues_that_ran_empty_are_kept_for_their_next_use_and_go_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_in, "EMPTY_MAX", 3)
    kept = FifoDiskQueue(tmp_path / "kept")
    kept.push(b"a")
    for name in "0123401":
        queue = FifoDiskQueue(tmp_path / name)
        queue.push(b"b")
        assert queue.pop() == b"b"
        queue.close()
        assert not (tmp_path / name).exists()
    store = kept._shared.store
    assert sorted(store.queues()) == ["0", "1", "4", "kept"]  # the latest three
    again = FifoDiskQueue(tmp_path / "4")
    again.push(b"c")
    again.close()
    abandon(_Shared.opened.pop(tmp_path).store)  # a kill; nobody comes back for 0 and 1
    kept = FifoDiskQueue(tmp_path / "kept")
    kept.close()
    with qindex.open(tmp_path / ".qindex") as store:
        assert sorted(store.queues()) == ["4", "kept"]
        assert [len(store.queue(name)) for name in ("4", "kept")] == [1, 1]
