"""qindex.compat.queuelib passes queuelib's own tests, which come inside its package.

The classes for its SQLite queues are run with the stand-ins in their place: those hold a disk queue
to everything but the names of its files. Left out: the tests of the originals' own files and of
their memory queues, and DummyQueue.
"""

import inspect
import sys
import unittest
from unittest import mock

import pytest

from qindex.compat.queuelib import FifoDiskQueue, LifoDiskQueue, _Shared
from qindex.testing import abandon

REASON = "queuelib, with its tests, is not installed"
MODULES = [
    pytest.importorskip(f"queuelib.tests.test_{name}", reason=REASON, exc_type=ImportError)
    for name in ("queue", "pqueue", "rrqueue")
]
STAND_INS = {"FifoSQLiteQueue": FifoDiskQueue, "LifoSQLiteQueue": LifoDiskQueue}


class OnQindex:
    def setUp(self):
        module = sys.modules[type(self).__bases__[1].__module__]
        for name, stand_in in STAND_INS.items():
            patch = mock.patch.object(module, name, stand_in)
            patch.start()
            self.addCleanup(patch.stop)
        super().setUp()


for module in MODULES:
    for name, found in inspect.getmembers(module, inspect.isclass):
        if "SQLite" in name and issubclass(found, unittest.TestCase):
            globals()[f"Test{name}"] = type(f"Test{name}", (OnQindex, found), {})


@pytest.fixture(autouse=True)
def nothing_stays_open():
    """Tests that close no queue leave its store to the collector, in a folder that is gone."""
    yield
    for store, _users in _Shared.stores.values():
        abandon(store)
    _Shared.stores.clear()


def test_the_suite_is_there():
    suites = [name for name in globals() if name.startswith("Test") and "SQLite" in name]
    assert len(suites) >= 8
    tests = sum(len(unittest.TestLoader().getTestCaseNames(globals()[name])) for name in suites)
    assert tests >= 70


def test_the_suite_notices_a_wrong_order(monkeypatch):
    monkeypatch.setattr(FifoDiskQueue, "_take", LifoDiskQueue._take)
    result = unittest.TestResult()
    globals()["TestFifoSQLiteQueueTest"]("test_push_pop1").run(result)
    assert result.testsRun == 1
    assert not result.wasSuccessful()


@pytest.mark.parametrize(("kind", "order"), [(FifoDiskQueue, b"abc"), (LifoDiskQueue, b"cba")])
def test_a_push_survives_a_kill_and_a_peek_takes_nothing(tmp_path, kind, order):
    items = kind(tmp_path / "jobs" / "0")
    for item in (b"a", b"b", b"c"):
        items.push(item)
    assert items.peek() == order[:1]
    assert len(items) == 3
    store, _ = _Shared.stores.pop(items._folder)
    abandon(store)
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
    assert len({id(queue._store) for queue in queues}) == 1
    for queue in queues:
        queue.push(b"a")
    for queue in queues:
        queue.close()
    assert not _Shared.stores
    again = FifoDiskQueue(tmp_path / "7")
    assert again.pop() == b"a"
    again.close()
