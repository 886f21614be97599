"""What every test may use."""

import signal

import pytest
from helpers import SMALL, damage

import qindex

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would the processes that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
