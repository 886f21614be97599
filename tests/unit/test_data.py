"""store.data and queue.data: small durable mappings."""

import threading

import pytest

import qindex


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with qindex.open(path, format=2) as store:
        yield store


def test_it_is_a_mapping_that_outlives_the_store(store, path):
    store.data[b"b"] = b"2"
    store.data[b"a"] = b""
    store.data[b"c"] = b"3"
    del store.data[b"c"]
    store.data[b"b"] = b"4"
    assert list(store.data.items()) == [(b"b", b"4"), (b"a", b"")]
    store.close()
    with qindex.open(path) as again:
        assert again.data.copy() == {b"b": b"4", b"a": b""}
        assert (b"a" in again.data, b"c" in again.data, len(again.data)) == (True, False, 2)
        assert again.data.get(b"c") is None
        assert again.data.pop(b"a") == b""
        assert again.data.setdefault(b"d", b"5") == b"5"
        again.data.clear()
        assert not again.data


def test_a_queue_has_its_own_and_takes_it_along(store):
    queue = store.queue("orders")
    queue.data[b"owner"] = b"billing"
    store.data[b"owner"] = b"all"
    assert store.queue("other").data.copy() == {}
    assert queue.data[b"owner"] == b"billing"
    store.delete_queue("orders")
    with pytest.raises(qindex.StoreClosed):
        queue.data.copy()
    assert store.queue("orders").data.copy() == {}
    assert store.data[b"owner"] == b"all"


def test_a_change_is_all_or_nothing(store):
    store.data[b"a"] = b"1"
    with pytest.raises(TypeError, match="a value is bytes"):
        store.data.change({b"a": b"2", b"b": "text"})
    with pytest.raises(ValueError, match="at most 524288 bytes"):
        store.data.change({b"a": b"2", b"b": bytes(600_000)})
    assert store.data.copy() == {b"a": b"1"}
    store.data.change({b"a": None, b"b": b"2", b"nobody": None}, confirm=True)
    assert store.data.copy() == {b"b": b"2"}
    store.data.update([(b"c", b"3"), (b"d", b"4")])
    assert list(store.data) == [b"b", b"c", b"d"]


def test_long_values_come_back(store):
    value = bytes(range(256)) * 1000
    store.data[b"long"] = value
    assert store.data[b"long"] == value
    assert store.data.copy() == {b"long": value}


def test_clear_of_more_than_one_change_can_take(store):
    for piece in range(4):
        store.data.update({bytes([65 + piece]) * 50_000 + bytes([i]): b"" for i in range(3)})
    store.data.clear()
    assert len(store.data) == 0


@pytest.mark.parametrize("key", [b"", b"\0settings", bytes(65536)])
def test_a_key_that_cannot_be_is_refused(store, key):
    with pytest.raises(ValueError, match="key"):
        store.data[key] = b""


def test_text_is_refused_with_what_to_do(store):
    with pytest.raises(TypeError, match="encode text"):
        store.data["key"]
    with pytest.raises(KeyError):
        store.data[b"key"]
    with pytest.raises(KeyError):
        del store.data[b"key"]
    assert "key" not in store.data


def test_format_1_says_what_to_do(path):
    with qindex.open(path, format=1) as store:
        with pytest.raises(qindex.FormatError, match="qindex upgrade"):
            store.data[b"a"] = b"1"
        with pytest.raises(qindex.FormatError, match="qindex upgrade"):
            len(store.queue("q").data)
    with qindex.open(path, upgrade=True) as store:
        store.data[b"a"] = b"1"
        assert store.queue("q").data.copy() == {}


def test_a_reader_sees_it_and_changes_nothing(store, path):
    store.data[b"a"] = b"1"
    store.sync()
    with qindex.open(path, read_only=True) as reader:
        assert reader.data.copy() == {b"a": b"1"}
        with pytest.raises(qindex.ReadOnly):
            reader.data[b"a"] = b"2"


def test_confirmed_changes_of_many_threads_are_all_there(store, path):
    def change(number):
        for i in range(20):
            store.data.change({b"%d/%d" % (number, i): b"x"}, confirm=True)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.data) == 160
    store.close()
    with qindex.open(path) as again:
        assert len(again.data) == 160


def test_100_000_entries_come_back(store, path):
    for some in range(100):
        store.data.change({b"binding/%d/%d" % (some, i): b"%d" % i for i in range(1000)})
    store.close()
    with qindex.open(path) as again:
        found = again.data.copy()
    assert len(found) == 100_000
    assert found[b"binding/99/999"] == b"999"
    assert next(iter(found)) == b"binding/0/0"


def test_a_replay_does_not_mind_it(store, path, run):
    store.data[b"a"] = b"1"
    store.queue("q").publish(b"x")
    store.delete_queue("q")
    store.queue("r").publish(b"y")
    store.close()
    assert run("replay", path, "r", "--verify").code == 0
