"""qindex.compat passes CPython's own tests of queue.Queue, queue.LifoQueue and asyncio.Queue.

The tests are those of the interpreter that runs this; tools/foreign_suites.py gives them the
stand-ins, and SUITES.rst says which are left out.
"""

import unittest

import foreign_suites
import pytest

from qindex.compat.items import Items

REASON = "this Python comes without its own tests"
pytest.importorskip("test.test_queue", reason=REASON, exc_type=ImportError)
pytest.importorskip("test.test_asyncio.test_queues", reason=REASON, exc_type=ImportError)

SUITES = {"OnThreads": foreign_suites.threads(), "OnALoop": foreign_suites.loop()}
for way, suite in SUITES.items():
    globals().update({f"Test{way}{name}": bound for name, bound in suite.bound().items()})


@pytest.mark.parametrize("way", SUITES)
def test_the_table_has_what_is_run(way):
    try:
        foreign_suites.compare(SUITES[way])
    except LookupError as error:  # a Python newer than the table
        pytest.skip(str(error))


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
