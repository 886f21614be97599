"""qindex.compat passes CPython's own tests of queue.Queue, queue.LifoQueue and asyncio.Queue.

The tests are those of the interpreter that runs this, imported and pointed at the stand-ins. Left
out are those of what has no stand-in: PriorityQueue (its order is that of the items, which bytes do
not have) and SimpleQueue (it can be entered from a signal handler or a destructor, a store cannot).
"""

import asyncio
import inspect
import queue
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

import pytest

from qindex.compat import AsyncLifoQueue, AsyncQueue, LifoQueue, Queue
from qindex.compat.items import Items

test_queue = pytest.importorskip(
    "test.test_queue", reason="this Python comes without its own tests", exc_type=ImportError
)
test_queues = pytest.importorskip(
    "test.test_asyncio.test_queues",
    reason="this Python comes without its own tests",
    exc_type=ImportError,
)

LEFT_OUT = ("Priority", "SimpleQueue", "CQueue", "CLifo", "CFailing")
ASYNC_NAMES = {"Queue": AsyncQueue, "LifoQueue": AsyncLifoQueue}


def stand_in(test, durable, name):
    """The class as the tests make it: from a maxsize alone, each in a store of its own."""

    def make(self, maxsize=0):
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        durable.__init__(self, f"{folder.name}/store", maxsize, sync="never")
        test.addCleanup(self.close)

    return type(name, (durable,), {"__init__": make})


class OnThreads:
    def setUp(self):
        self.queue = SimpleNamespace(
            **{name: getattr(queue, name) for name in dir(queue) if name[0] != "_"}
        )
        self.queue.Queue = stand_in(self, Queue, "Queue")
        self.queue.LifoQueue = stand_in(self, LifoQueue, "LifoQueue")
        super().setUp()


class OnALoop:
    def setUp(self):
        names = {name: stand_in(self, durable, name) for name, durable in ASYNC_NAMES.items()}
        loop = SimpleNamespace(**{**vars(asyncio), **names})
        patch = mock.patch.object(test_queues, "asyncio", loop)
        patch.start()
        self.addCleanup(patch.stop)
        original = getattr(self, "q_class", None)
        if original is not None:
            self.q_class = names[original.__name__]
        super().setUp()


def classes_of(module):
    """The test classes that a run of the module would run, but for those left out."""
    return {
        name: found
        for name, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, unittest.TestCase)
        and found.__module__ == module.__name__
        and not any(part in name for part in LEFT_OUT)
    }


for module, way in ((test_queue, OnThreads), (test_queues, OnALoop)):
    for name, found in classes_of(module).items():
        globals()[f"Test{way.__name__}{name}"] = type(f"Test{name}", (way, found), {})


def test_the_suites_are_there():
    assert {"PyQueueTest", "PyLifoQueueTest", "PyFailingQueueTest"} <= set(classes_of(test_queue))
    basics = {"QueueBasicTests", "QueueGetTests", "QueuePutTests", "LifoQueueTests"}
    joins = {"QueueJoinTests", "LifoQueueJoinTests"}
    assert basics | joins <= set(classes_of(test_queues))


@pytest.mark.parametrize(
    ("suite", "test"),
    [("TestOnThreadsPyQueueTest", "test_basic"), ("TestOnALoopQueueBasicTests", "test_order")],
)
def test_a_suite_notices_a_stand_in_with_a_wrong_order(monkeypatch, suite, test):
    monkeypatch.setattr(Items, "popleft", Items.pop)
    result = unittest.TestResult()
    globals()[suite](test).run(result)
    assert result.testsRun == 1
    assert not result.wasSuccessful()
