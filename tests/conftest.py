"""What every test may use."""

import collections
import fcntl
import gc
import os
import signal

import c_tests
import pytest
from helpers import SMALL, damage
from hypothesis import settings
from rooms import Rooms

import qindex
import qindex.options
from qindex.look.keys import strange_keys
from qindex.look.screen import Screen, plain

# QINDEX_TEST_FORMAT=1: every store that a test makes without naming a format has format 1.
qindex.options.FORMAT = int(os.environ.get("QINDEX_TEST_FORMAT", qindex.options.FORMAT))

print_json = Screen.json


def print_known_json(screen, value, **options):
    """Whatever a command prints as JSON in a test has keys of the one table, with its types."""
    strange = strange_keys(plain(value))
    assert not strange, strange
    print_json(screen, value, **options)


Screen.json = print_known_json

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would the processes that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine takes as long as it needs. tools/test.sh sets fewer examples than Hypothesis has.
EXAMPLES = int(os.environ.get("QINDEX_TEST_EXAMPLES", "100"))
settings.register_profile("patient", deadline=None, max_examples=EXAMPLES)
settings.load_profile("patient")


ROOMS = pytest.StashKey[Rooms]()


def asks_for_rooms(item):
    return "rooms" in getattr(item, "fixturenames", ())


def is_one_of_several(config):
    """Whether other processes run a part of the tests (pytest -n)."""
    return hasattr(config, "workerinput")


def shared_folder(config):
    """One for all processes of this run; pytest removes it with those of its tests."""
    base = config._tmp_path_factory.getbasetemp()
    return base.parent if is_one_of_several(config) else base


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session):
    """The first of several processes compiles what all import; the others find it in the caches."""
    if not is_one_of_several(session.config):
        return (yield)
    with (shared_folder(session.config) / "collected").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_size:
            fcntl.flock(file, fcntl.LOCK_UN)
        collected = yield
        file.write(b"1")
    return collected


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What the tests in C have come to is asked last: they run while those in Python do."""
    items.sort(key=asks_for_rooms)
    counts = collections.Counter()
    for item in items:
        if marker := item.get_closest_marker("sample"):
            (every,), test = marker.args, item.nodeid.partition("[")[0]
            row, column = divmod(counts[test], every)
            counts[test] += 1
            if column != row % every:  # a diagonal: each value of each parameter has its turn
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session):
    # All that was collected stays to the end: gc.collect() in a test need not look at it.
    gc.collect()
    gc.freeze()
    config = session.config
    names = [item.callspec.params["name"] for item in session.items if asks_for_rooms(item)]
    if names and c_tests.compiler() and not config.option.collectonly:
        config.stash[ROOMS] = Rooms(names, shared_folder(config) / "rooms")


def pytest_sessionfinish(session, exitstatus):
    if ROOMS in session.config.stash:
        is_over = exitstatus != pytest.ExitCode.INTERRUPTED
        session.config.stash[ROOMS].close(is_one_of_several(session.config) and is_over)


@pytest.fixture
def rooms(pytestconfig):
    """The tests in C, which began before the first test in Python."""
    if ROOMS not in pytestconfig.stash:
        pytest.skip("no C compiler")
    return pytestconfig.stash[ROOMS]


@pytest.fixture
def no_socket_is_left_to_other_tests():
    """pika leaves the sockets of a connection that has failed to the garbage collector."""
    yield
    gc.collect()
    gc.freeze()  # what lives on, thousands of tests of it, need not be looked at the next time


@pytest.fixture
def open_store(tmp_path):
    """Open stores with small knobs; after the test each one that is still open is checked.

    ``open_store()`` opens the store at ``tmp_path / "data"``; options override the small ones.
    """
    opened = []

    def open_one(path=None, **options):
        store = qindex.open(path or tmp_path / "data", **{**SMALL, **options})
        opened.append(store)
        return store

    yield open_one
    for store in reversed(opened):
        if not store._closed:
            store.check()
            found = damage(store)
            store.close()
            assert not found


@pytest.fixture(params=["mmap", "pwrite"])
def store(request, open_store):
    """A fresh store, once with mapped files and once with pwrite: the same answers."""
    return open_store(io=request.param)


@pytest.fixture
def queue(store):
    """A fresh queue in `store`."""
    return store.queue("orders")
