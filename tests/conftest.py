"""What every test may use."""

import signal

import c_tests
import pytest
from helpers import SMALL, damage
from hypothesis import settings
from rooms import Rooms

import qindex

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would the processes that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine takes as long as it needs. All else is as Hypothesis has it where this runs.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


ROOMS = pytest.StashKey[Rooms]()


def asks_for_rooms(item):
    return "rooms" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items):
    """What the tests in C have come to is asked last: they run while those in Python do."""
    items.sort(key=asks_for_rooms)


def pytest_collection_finish(session):
    names = [item.callspec.params["name"] for item in session.items if asks_for_rooms(item)]
    if names and c_tests.compiler() and not session.config.option.collectonly:
        session.config.stash[ROOMS] = Rooms(names)


def pytest_unconfigure(config):
    if ROOMS in config.stash:
        config.stash[ROOMS].close()


@pytest.fixture
def rooms(pytestconfig):
    """The tests in C, which began before the first test in Python."""
    if ROOMS not in pytestconfig.stash:
        pytest.skip("no C compiler")
    return pytestconfig.stash[ROOMS]


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
