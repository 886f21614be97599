"""One bad sector costs the messages in it and nothing else: headers and names are told twice."""

from pathlib import Path

import pytest
from helpers import content, crash, damage, queue_directory

SECTOR = 4096


@pytest.fixture
def store(open_store):
    """Segments, a compacted message file, a rolling one; nothing has died in a journal."""
    store = open_store(max_journal_entries=1000, embed_below=32, message_file_size=1 << 16)
    queue = store.queue("a")
    queue.publish_many([b"%03d" % i * (20 if i % 2 else 4) for i in range(40)])
    store.queue("b").publish_many([b"b" * 100] * 20)
    queue.ack_many(m for m in queue.get_many(40) if m.req_id % 8 > 2)
    queue.nack_many(m.req_id for m in queue.browse())
    queue.flush()
    store.close()
    store = open_store(max_journal_entries=1000, embed_below=32, message_file_size=1 << 16)
    store.queue("b").publish(b"c" * 100)  # the newest file stays as it is
    assert store.compact() > 0
    return store


def headers_of(root):
    files = [path for path in Path(root).rglob("*") if path.suffix in (".meta", ".idx", ".qms")]
    return {str(path.relative_to(root)): path for path in sorted(files)}


def test_no_header_takes_more_than_itself(store, open_store):
    known = content(store)
    store.close()
    headers = headers_of(store.path)
    kinds = {Path(name).name for name in headers}
    assert {"store.meta", "queue.meta", "0.idx", "1.qms", "2.qms"} <= kinds
    for name, path in headers.items():
        whole = path.read_bytes()
        for start in range(0, len(whole) if path.suffix == ".meta" else 1, SECTOR):
            bad = bytearray(whole)
            size = SECTOR if path.suffix == ".meta" else 64  # the frames behind it are messages
            bad[start : start + size] = b"\xde" * len(bad[start : start + size])
            path.write_bytes(bad)
            for read_only in (True, False):
                again = open_store(read_only=read_only, embed_below=32)
                assert content(again) == known, (name, start)
                assert any(path.name in text for text in damage(again)), (name, start)
                if read_only:
                    again.close()
            crash(again)
            path.write_bytes(whole)


def test_a_damaged_copy_is_made_anew_by_the_next_session(store, open_store):
    store.close()
    for path in (Path(store.path) / "store.meta", queue_directory(store.path, "a") / "queue.meta"):
        for start in (0, SECTOR):
            bad = bytearray(path.read_bytes())
            bad[start] ^= 1
            path.write_bytes(bad)
            again = open_store(embed_below=32)
            again.queue("a")
            assert any(path.name in text for text in damage(again))
            again.close()
            assert path.read_bytes()[:64] == path.read_bytes()[SECTOR : SECTOR + 64]


def test_a_damaged_birth_table_is_found_again_in_the_frames(store, open_store):
    known = content(store)
    store.close()
    compacted = [p for p in Path(store.path).glob("messages/*.qms") if p.read_bytes()[15] == 1]
    (path,) = compacted
    whole = path.read_bytes()
    for back in range(1, 60, 7):  # in the pairs, and before them in the list of files
        bad = bytearray(whole)
        bad[-back] ^= 1
        path.write_bytes(bad)
        again = open_store(read_only=True)
        assert content(again) == known
        again.close()


def test_a_segment_file_of_an_older_life_is_not_taken_for_the_one_that_belongs_there(open_store):
    store = open_store(max_journal_entries=1000)
    queue = store.queue("a")
    file = queue_directory(store.path, "a") / "0.idx"
    queue.publish(b"old")
    queue.flush()
    old = file.read_bytes()
    queue.ack(queue.get())
    queue.flush()
    queue.publish(b"new")
    queue.flush()
    store.close()
    file.write_bytes(old)
    store = open_store(max_journal_entries=1000)
    assert list(store.queue("a").browse()) == []
    assert any("0.idx" in text and "belongs" in text for text in damage(store))
    assert file.read_bytes() == old
    crash(store)


@pytest.mark.parametrize("there", ["nothing", "another file"])
def test_a_queue_goes_on_where_a_segment_file_is_gone(open_store, there):
    """Flushes failed for ever: there was no file to append to."""
    store = open_store(max_journal_entries=1000)
    for name in ("a", "b"):
        store.queue(name).publish(b"lost")
        store.queue(name).flush()
    store.close()
    file, other = (queue_directory(store.path, name) / "0.idx" for name in ("a", "b"))
    file.write_bytes(other.read_bytes()) if there == "another file" else file.unlink()
    for number in range(2):
        store = open_store(max_journal_entries=1000)
        queue = store.queue("a")
        queue.publish(b"%d" % number)
        queue.flush()
        assert [m.body for m in queue.browse()] == [b"0", b"1"][: number + 1]
        assert bool(damage(store)) == (number == 0)
        store.close()
    if there == "another file":
        assert file.with_name("0.bad").read_bytes() == other.read_bytes()
