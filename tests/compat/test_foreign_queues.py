"""What qindex.testing finds in other people's queues: the programs that its README shows."""

import pytest

from qindex.testing import Promise, QueueBroken, find, replay

queuelib = pytest.importorskip(
    "qindex.testing.adapters.queuelib", reason="queuelib is not installed", exc_type=ImportError
)
litequeue = pytest.importorskip(
    "qindex.testing.adapters.litequeue", reason="litequeue is not installed", exc_type=ImportError
)


class StrictLiteQueue(litequeue.LiteQueue):
    promise = Promise(kill="returned", power="returned")


class StrictFifoSQLite(queuelib.FifoSQLite):
    promise = Promise(kill="returned", power="returned")


class StrictFifoDisk(queuelib.FifoDisk):
    promise = Promise(kill="returned", power="nothing")


def script(steps):
    return steps.replace("; ", "\n")


FOUND = [
    ("FifoDisk", "lost", "open; publish 6; kill; open; publish 6; close; open"),
    (
        "FifoDisk",
        "unreadable: .*FileNotFoundError",
        "open; publish 6; publish 6; publish 6; publish 6; close; open; get; get; get; kill; open",
    ),
    (
        "FifoDisk",
        "unreadable: .*JSONDecodeError",
        "open; publish 6; close; open; kill during close at 1; open",
    ),
    ("LifoDisk", "unreadable: .*unpack requires", "open; kill; open"),
    (
        "LifoDisk",
        "unreadable: .*Invalid argument",
        "open; publish 6; publish 6; close; open; get; kill; open",
    ),
]
BEYOND = [
    (StrictFifoDisk, "lost", "open; publish 6; kill; open"),
    (StrictFifoSQLite, "lost", "open; publish 6; power 0; open"),
    (StrictLiteQueue, "lost", "open; publish 6; power 0; open"),
]


@pytest.mark.parametrize(("name", "text", "steps"), FOUND)
def test_what_is_found_in_queuelib_can_be_replayed(name, text, steps):
    with pytest.raises(QueueBroken, match=text):
        replay(getattr(queuelib, name), script(steps))


@pytest.mark.parametrize(("adapter", "text", "steps"), BEYOND)
def test_what_nobody_promised_is_not_kept(adapter, text, steps):
    with pytest.raises(QueueBroken, match=text):
        replay(adapter, script(steps))


@pytest.mark.parametrize("name", ["FifoDisk", "LifoDisk"])
@pytest.mark.sample(2)
def test_the_machine_finds_it_by_itself(name, capsys):
    assert find(getattr(queuelib, name), examples=30) is not None


def test_litequeue_keeps_what_sqlite_promises(capsys):
    assert find(litequeue.LiteQueue, examples=15) is None


def test_queuelib_on_sqlite_keeps_what_sqlite_promises(capsys):
    assert find(queuelib.FifoSQLite, examples=15) is None
