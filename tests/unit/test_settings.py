"""Settings of a queue: stored in format 2, named by each process in format 1."""

import pytest
from helpers import on_a_loop

import qindex
from qindex import Settings, aio
from qindex.testing import SimulatedDisk


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with qindex.open(path, format=2) as store:
        yield store


def test_a_call_changes_what_it_names(store):
    queue = store.queue("q", max_messages=2, ttl=1.5)
    assert store.queue("q", dead_letters=True) is queue
    assert queue.settings == Settings(max_messages=2, ttl=1.5, dead_letters=True)
    assert store.queue("q").settings == queue.settings
    assert store.queue("other").settings == Settings()


def test_a_later_process_does_what_the_queue_says(store, path):
    store.queue("q", max_messages=2, dead_letters=True)
    store.close()
    with qindex.open(path) as again:
        queue = again.queue("q")
        queue.publish_many([b"1", b"2"])
        with pytest.raises(qindex.QueueFull):
            queue.publish(b"3")
        queue.nack(queue.get(), requeue=False)
        assert queue.dead == 1


def test_none_takes_one_back(store, path):
    queue = store.queue("q", max_bytes=1000, overflow="drop-head", ttl=5)
    assert queue.configure(max_bytes=None, overflow=None) == Settings(ttl=5)
    assert queue.configure(max_deliveries=3, ttl=None) == Settings(max_deliveries=3)
    store.close()
    with qindex.open(path) as again:
        assert again.queue("q").settings == Settings(max_deliveries=3)
        again.queue("q").configure(max_deliveries=None)
        assert again.queue("q").settings == Settings()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"max_messages": 0, "ttl": 5}, ValueError),
        ({"overflow": "drop-head"}, ValueError),
        ({"max_messages": 4, "overflow": "dead-letter"}, ValueError),
        ({"ttl": "5"}, TypeError),
        ({"max_length": 5}, TypeError),
    ],
)
def test_what_cannot_be_changes_nothing(store, changes, error):
    queue = store.queue("q", max_deliveries=2)
    with pytest.raises(error):
        queue.configure(**changes)
    assert queue.settings == Settings(max_deliveries=2)


def test_the_same_settings_at_each_start_write_nothing(store, path):
    queue = store.queue("q", max_messages=5)
    store.sync()
    (log,) = (path / "commits").iterdir()
    before = log.read_bytes()
    assert store.queue("q", max_messages=5) is queue
    assert queue.configure(max_messages=5, ttl=None) == Settings(max_messages=5)
    assert log.read_bytes() == before


def test_a_deleted_queue_takes_them_along(store):
    store.queue("q", max_messages=5)
    store.delete_queue("q")
    assert store.queue("q").settings == Settings()


def test_users_see_no_entry_of_them(store):
    queue = store.queue("q", max_messages=5)
    assert queue.data.copy() == {}
    queue.data.clear()
    assert queue.settings == Settings(max_messages=5)


def test_a_reader_shows_them_and_changes_nothing(store, path):
    store.queue("q", max_messages=5)
    store.close()
    with qindex.open(path, read_only=True) as reader:
        queue = reader.queue("q", ttl=3)
        assert queue.settings == Settings(max_messages=5)
        with pytest.raises(qindex.ReadOnly):
            queue.configure(ttl=3)


def test_a_tool_that_lets_nothing_expire_shows_them(store, path):
    queue = store.queue("q", ttl=0.001)
    queue.publish(b"x")
    store.close()
    with qindex.open(path, expire=False) as tool:
        queue = tool.queue("q")
        assert queue.settings == Settings(ttl=0.001)
        assert len(queue) == 1


def test_format_1_stores_none_and_says_so(path):
    with qindex.open(path, format=1) as store:
        queue = store.queue("q", ttl=3)
        assert queue.settings == Settings(ttl=3)
        store.queue("q", max_messages=3)  # sets all of them
        assert queue.settings == Settings(max_messages=3)
        with pytest.raises(qindex.FormatError, match="qindex upgrade"):
            queue.configure(ttl=3)
    with qindex.open(path, upgrade=True) as store:
        assert store.queue("q").settings == Settings()
        assert store.queue("q").configure(ttl=3) == Settings(ttl=3)


def test_settings_of_a_newer_version_refuse_the_queue(store):
    from qindex.data import change_values
    from qindex.field_table import encode_table

    queue = store.queue("q", max_messages=5)
    newer = {b"\0settings": encode_table({"max_messages": 5, "colour": "red"})}
    change_values(store, queue._handle, newer, confirm=False)
    with pytest.raises(qindex.NewerFormat, match="colour"):
        _ = queue.settings
    with pytest.raises(qindex.NewerFormat, match="newer release"):
        store.queue("q", ttl=3)
    change_values(store, queue._handle, {b"\0settings": b"damaged"}, confirm=False)
    with pytest.raises(qindex.StoreCorrupt, match="settings of queue 'q'"):
        _ = queue.settings


@on_a_loop
async def test_an_event_loop_has_them_too(path):
    async with aio.open(path, format=2) as store:
        queue = await store.queue("q", max_messages=5)
        assert await queue.configure(ttl=2) == Settings(max_messages=5, ttl=2)
        assert queue.settings == Settings(max_messages=5, ttl=2)
        await store.data.change({b"a": b"1"})
        await queue.data.change({b"b": b"2"})
        assert (await store.data.copy(), await queue.data.copy()) == ({b"a": b"1"}, {b"b": b"2"})


def test_a_lease_for_all_messages_of_a_queue(path):
    disk = SimulatedDisk()
    with qindex.open("/", disk=disk, format=2) as store:
        queue = store.queue("q", lease=0.5)
        assert store.queue("q").settings == Settings(lease=0.5)
        queue.publish(b"usual")
        queue.publish(b"its own", lease=20)
        queue.publish(b"the taker's")
        queue.get(), queue.get(), queue.get(lease=40)
        queue.publish_many([b"a", b"b"])
        assert len(queue.get_many(2)) == 2
        disk.advance(1)
        assert [m.body for m in queue.get_many(9)] == [b"usual", b"a", b"b"]
        disk.advance(1)
        assert queue.configure(lease=None) == Settings()
        assert [m.body for m in queue.get_many(9)] == [b"usual", b"a", b"b"]
        disk.advance(18)
        assert [m.body for m in queue.get_many(9)] == [b"its own"]
        disk.advance(1000)
        assert [m.body for m in queue.get_many(9)] == [b"its own", b"the taker's"]
        disk.advance(1000)
        assert queue.unacked == 4
        for wrong in (0, -1, "5"):
            with pytest.raises((ValueError, TypeError)):
                queue.configure(lease=wrong)


def test_the_lease_of_a_queue_is_there_for_who_opens_it_later(path):
    with qindex.open(path, format=2) as store:
        store.queue("q", lease=0.02).publish(b"one")
    with qindex.open(path) as store:
        queue = store.queue("q")
        assert queue.settings == Settings(lease=0.02)
        late = queue.get()
        assert queue.get(timeout=5).body == b"one"
        with pytest.raises(qindex.LeaseExpired):
            queue.ack(late)


REFUSED = {
    "no time": {"ttl": -1},
    "no number": {"max_messages": 0},
    "no lease": {"lease": "x"},
    "no limit beside it": {"overflow": "drop-head"},
    "no place to die": {"overflow": "dead-letter", "max_messages": 3},
    "no such queue": {"dead_letters": "nope"},
    "itself": {"dead_letters": "q"},
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("rules", REFUSED.values(), ids=REFUSED)
def test_a_refused_setting_makes_no_queue(tmp_path, version, rules):
    errors = (ValueError, TypeError, qindex.QueueMissing, qindex.FormatError)
    with qindex.open(tmp_path / "new", format=version) as store:
        with pytest.raises(errors):
            store.queue("q", **rules)
        assert store.queues() == []
