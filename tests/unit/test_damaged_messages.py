"""A message whose body is damaged: the others are still to be had, in order."""

from pathlib import Path

import pytest
from helpers import damage, ids, queue_directory

import qindex

BODIES = [b"%d" % number * 300 for number in range(9)]


@pytest.fixture
def path(tmp_path):
    """A closed store whose messages 3 and 4 of 9 are damaged; all are in one message file."""
    with qindex.open(tmp_path / "data", embed_below=64, idle=3600) as store:
        store.queue("a").publish_many(BODIES)
    file = tmp_path / "data" / "messages" / "0.qms"
    data = bytearray(file.read_bytes())
    for number in (3, 4):
        data[data.index(BODIES[number]) + 5] ^= 1
    file.write_bytes(data)
    return Path(tmp_path / "data")


def browse_all(queue):
    """What can be read, and the ReqIds of what cannot."""
    found, damaged, start = [], [], 0
    while True:
        try:
            found.extend(queue.browse(start))  # keeps what came before an error
            return found, damaged
        except qindex.StoreCorrupt as error:
            damaged.append(error.req_id)
            start = error.req_id + 1


@pytest.mark.parametrize("read_only", [False, True])
def test_browse_goes_on_behind_a_damaged_message(path, read_only):
    with qindex.open(path, read_only=read_only) as store:
        found, damaged = browse_all(store.queue("a"))
    assert damaged == [3, 4]
    assert ids(found) == [0, 1, 2, 5, 6, 7, 8]
    assert all(message.body == BODIES[message.req_id] for message in found)


def test_get_and_peek_name_the_damaged_message(path):
    with qindex.open(path) as store:
        queue = store.queue("a")
        queue.get_many(3)
        for verb in (queue.peek, queue.get):
            with pytest.raises(qindex.StoreCorrupt) as caught:
                verb()
            assert caught.value.req_id == 3


def test_an_error_that_is_not_about_one_message_names_none(path):
    (queue_directory(path, "a") / "queue.meta").write_bytes(b"junk")
    with qindex.open(path, read_only=True) as store:
        with pytest.raises(qindex.StoreCorrupt) as caught:
            store.queue("a")
        assert caught.value.req_id is None


def test_peek_shows_the_messages_around_a_damaged_one(run, path):
    code, out, err = run("peek", path, "-n", 6, "--bodies", "raw")
    assert code == 1
    assert out.encode() == b"".join(BODIES[number] for number in (0, 1, 2, 5))
    assert err.count("see qindex check") == 2


def test_a_file_that_compaction_must_leave_is_told(path):
    with qindex.open(path, embed_below=64, idle=3600) as store:
        queue = store.queue("a")
        queue.publish(b"in a newer file" * 10)
        queue.ack_many(m for m in queue.get_many(3) if m.req_id != 0)
        for _ in range(2):
            with pytest.raises(qindex.StoreCorrupt):
                queue.get()
        queue.ack_many(queue.get_many(4))
        for _ in range(3):
            store.compact()
        told = [str(finding) for finding in store.findings if "messages/0.qms" in finding.where]
        assert len(told) == 1
        assert "a message in it is damaged" in told[0]
        queue.nack(0)
        assert queue.get().body == BODIES[0]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_not_understood_is_told(path, read_only, run):
    file = path / "messages" / "0.qms"
    file.write_bytes(b"X" + file.read_bytes()[1:])
    with qindex.open(path, read_only=read_only) as store:
        assert any("messages/0.qms" in finding.where for finding in store.findings)
        assert store.queue("a").peek().body == BODIES[0]
    code, out, _ = run("check", path)
    assert code == 1
    assert "messages/0.qms" in out


def test_a_segment_of_which_something_was_lost_is_set_aside_and_not_removed(open_store):
    store = open_store(max_journal_entries=1000)
    for i in range(20):  # segments 0 and 1, in four batches
        store.queue("a").publish(b"message %d" % i)
        if i % 5 == 4:
            store.queue("a").flush()
    store.close()
    file = queue_directory(store.path, "a") / "0.idx"
    data = bytearray(file.read_bytes())
    data[data.index(b"message 4") + 5] ^= 1  # its frame holds 0 to 4
    file.write_bytes(data)
    for _ in range(2):  # the loss is told again by the session after a flush
        store = open_store(max_journal_entries=1000)
        queue = store.queue("a")
        assert ids(queue.browse())[:15] == list(range(5, 20))
        assert any("0.idx" in text for text in damage(store))
        queue.publish(b"more")
        queue.flush()
        store.close()
    store = open_store(max_journal_entries=1000)
    queue = store.queue("a")
    queue.ack_many(queue.get_many(100))
    queue.flush()
    store.close()
    assert not file.exists()
    assert file.with_name("0.bad").read_bytes() == data  # nothing was written to it
    assert not file.with_name("1.idx").exists()
