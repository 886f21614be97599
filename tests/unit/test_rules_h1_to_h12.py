"""The rules H1 to H12, each by what can be seen of it from outside without a simulated disk.

Damage done to files has a test file of its own (test_damage.py), so has kill -9 (tests/crash).
"""

from pathlib import Path

import pytest
from helpers import SMALL, content, crash, damage, files_of, ids, put_files, queue_directory

QUIET = {**SMALL, "max_journal_entries": 10_000, "idle": 3600}  # no flush but on demand


def fill(queue, count=40, **options):
    return queue.publish_many([b"%d" % i * (1 if i % 2 else 50) for i in range(count)], **options)


def segments_of(store, name):
    return sorted(file.name for file in queue_directory(store.path, name).glob("*.idx"))


def copy_now(store, target):
    """The store as a kill at this moment would leave it, in another place."""
    put_files(target, files_of(store.path))
    return target


# --- H1, H2: flush ------------------------------------------------------------------------------


def test_h1_a_kill_before_between_and_after_flushes_shows_the_same(open_store, tmp_path):
    store = open_store(**QUIET)
    queue = store.queue("a")
    expected = []
    for number in range(6):
        fill(queue)
        queue.ack_many(queue.get_many(15))
        expected = [(m.req_id, m.body) for m in queue.browse()]
        for moment in ("before", "after"):
            copy = copy_now(store, tmp_path / f"{moment}-{number}")
            reopened = open_store(copy)
            assert content(reopened) == {"a": expected}
            assert not damage(reopened)
            reopened.close()
            queue.flush()


def test_h1_segments_written_by_a_flush_that_was_cut_off_are_not_taken_for_the_truth(
    open_store, tmp_path
):
    """The journal of before the flush beside the segments of after it: what step 2 leaves."""
    store = open_store(**QUIET)
    queue = store.queue("a")
    fill(queue)
    queue.flush()
    fill(queue)
    queue.ack_many(queue.get_many(5))
    before = files_of(store.path)
    expected = content(store)
    queue.flush()
    after = files_of(store.path)
    mixed = {**before, **{n: data for n, data in after.items() if n.endswith(".idx")}}
    put_files(tmp_path / "mixed", mixed)
    reopened = open_store(tmp_path / "mixed")
    assert content(reopened) == expected
    fill(reopened.queue("a"))
    reopened.queue("a").flush()
    assert ids(reopened.queue("a").browse())[: len(expected["a"])] == [i for i, _ in expected["a"]]


@pytest.mark.parametrize("kind", ["plain", "transient", "purge"])
def test_h2_a_dead_segment_that_a_kill_left_behind_is_removed_and_ignored(
    open_store, tmp_path, kind
):
    """The manifest leaves it out first, then it goes: a kill in between leaves the file."""
    store = open_store(**QUIET)
    queue = store.queue("a")
    fill(queue, persistent=[i != 3 or kind != "transient" for i in range(40)])
    queue.flush()
    if kind == "purge":
        queue.purge()
    else:
        queue.ack_many(queue.get_many(20))
    before = files_of(store.path)
    queue.flush()
    dead = next(name for name in before if name.endswith("/0.idx"))
    files = files_of(store.path)
    assert dead not in files
    put_files(tmp_path / "cut", {**files, dead: before[dead]})
    reopened = open_store(tmp_path / "cut")
    assert content(reopened) == content(store)
    assert not damage(reopened)
    assert "0.idx" not in segments_of(reopened, "a")


def test_h2_a_dead_segment_is_unlinked_only_by_a_flush(open_store):
    store = open_store(**QUIET)
    queue = store.queue("a")
    fill(queue)
    queue.flush()
    queue.ack_many(queue.get_many(40))
    queue.sync()
    assert segments_of(store, "a") == ["0.idx", "1.idx", "2.idx"]
    queue.flush()
    assert segments_of(store, "a") == []


# --- H3 to H6: records, frames, headers ---------------------------------------------------------


def test_h3_replaying_a_journal_twice_is_replaying_it_once(open_store, tmp_path):
    """Segments that already hold what the journal says: every bit is merged by OR."""
    store = open_store(**QUIET)
    queue = store.queue("a")
    fill(queue)
    queue.ack_many(queue.get_many(20)[::2])
    expected = content(store)
    crash(store)
    for _ in range(4):
        store = open_store(**QUIET)
        assert content(store) == expected
        assert not damage(store)
        crash(store)


def test_h4_after_a_torn_tail_new_messages_stand_behind_the_last_valid_frame(open_store):
    store = open_store(**QUIET, sync="never")
    queue = store.queue("a")
    queue.publish_many([b"kept"] * 3)
    end = queue.stats().journal_bytes
    queue.publish_many([b"torn" * 10] * 3)
    crash(store)
    journal = queue_directory(store.path, "a") / "journal.jif"
    data = bytearray(journal.read_bytes())
    data[end + 50] ^= 1
    journal.write_bytes(data)
    for number in range(3):
        store = open_store(**QUIET)
        queue = store.queue("a")
        assert [m.body for m in queue.browse()] == [b"kept"] * 3 + [b"new"] * number
        queue.publish(b"new")
        crash(store)


def test_h5_a_journal_frame_from_another_place_epoch_or_queue_is_not_valid(open_store, tmp_path):
    store = open_store(**QUIET, sync="never")
    for name in ("a", "b"):
        store.queue(name).publish_many([name.encode() * 20] * 3)
    crash(store)
    ours = queue_directory(store.path, "a") / "journal.jif"
    theirs = queue_directory(store.path, "b") / "journal.jif"
    frames = theirs.read_bytes()[8192:]
    ours.write_bytes(ours.read_bytes()[:8192] + frames)
    store = open_store(**QUIET)
    assert list(store.queue("a").browse()) == []
    assert damage(store)
    assert [m.body for m in store.queue("b").browse()] == [b"b" * 20] * 3
    crash(store)


@pytest.mark.parametrize("length", [0x0FFFFFFF, 0x00100000, 1])
def test_h5_a_length_that_does_not_fit_is_refused(open_store, length):
    store = open_store(**QUIET, sync="never")
    queue = store.queue("a")
    queue.publish(b"kept")
    end = queue.stats().journal_bytes
    queue.publish(b"x" * 50)
    crash(store)
    journal = queue_directory(store.path, "a") / "journal.jif"
    data = bytearray(journal.read_bytes())
    data[end : end + 4] = (1 << 28 | length).to_bytes(4)
    journal.write_bytes(data)
    store = open_store(**QUIET)
    assert [m.body for m in store.queue("a").browse()] == [b"kept"]


@pytest.mark.parametrize("copy", [0, 4096])
def test_h6_one_header_copy_of_a_journal_may_be_lost(open_store, copy):
    store = open_store(**QUIET)
    fill(store.queue("a"))
    expected = content(store)
    store.close()
    journal = queue_directory(store.path, "a") / "journal.jif"
    data = bytearray(journal.read_bytes())
    data[copy : copy + 64] = bytes(64)
    journal.write_bytes(data)
    store = open_store(**QUIET)
    assert content(store) == expected
    crash(store)


@pytest.mark.parametrize("copy", [0, 4096])
def test_h6_a_kill_while_a_flushed_journal_is_retired_is_not_damage(open_store, tmp_path, copy):
    store = open_store(**QUIET)
    queue = store.queue("a")
    fill(queue)
    before = files_of(store.path)
    queue.flush()
    mixed = files_of(store.path)
    old = next(name for name in before if name.endswith("journal.jif"))
    header = bytearray(before[old])
    header[copy : copy + 64] = bytes(64)
    mixed[old] = bytes(header)
    put_files(tmp_path / "cut", mixed)
    reopened = open_store(tmp_path / "cut")
    assert content(reopened) == content(store)
    assert not damage(reopened)


def test_h6_store_meta_is_replaced_as_a_whole(open_store):
    open_store().close()
    store = open_store()
    meta = Path(store.path) / "store.meta"
    (Path(store.path) / "store.meta.new").write_bytes(b"half a dra")
    assert len(meta.read_bytes()) == 2 * 4096
    store.close()
    open_store().close()
    assert not (Path(store.path) / "store.meta.new").exists()


# --- H8 to H12: confirms, message files, ids, batches, opening ----------------------------------


def test_h8_confirmed_messages_survive_with_their_bodies(open_store):
    for io in ("mmap", "pwrite"):
        store = open_store(io=io)
        req_id = store.queue("a").publish(b"C" * 3000, confirm=True)
        store.publish(["a", "b"], b"D" * 3000, confirm=True, create=True)
        crash(store)
        store = open_store()
        assert [m.body[:1] for m in store.queue("a").browse(req_id)] == [b"C", b"D"]
        store.queue("a").purge()
        store.close()


def test_h9_a_message_file_is_not_freed_while_a_kill_could_bring_its_messages_back(open_store):
    store = open_store(**QUIET, sync="never")
    queue = store.queue("a")
    queue.publish_many([b"%d" % i * 700 for i in range(20)])
    store.sync()
    queue.ack_many(queue.get_many(20))
    store.compact()
    crash(store)
    store = open_store()
    queue = store.queue("a")
    assert all(m.body == b"%d" % m.req_id * 700 for m in queue.browse())
    assert not damage(store)


@pytest.mark.parametrize("ending", ["close", "crash", "purge", "delete-all", "flush"])
def test_h10_req_ids_are_never_reused(open_store, ending):
    highest = -1
    for _ in range(5):
        store = open_store()
        queue = store.queue("a")
        given = [queue.publish(b""), *fill(queue), queue.publish(b"", persistent=False)]
        assert min(given) > highest
        assert given == sorted(set(given))
        highest = max(given)
        if ending == "purge":
            queue.purge()
        if ending == "delete-all":
            queue.ack_many(queue.get_many(100))
        if ending in ("flush", "delete-all"):
            queue.flush()
        store.close() if ending == "close" else crash(store)


def test_h10_after_a_clean_close_no_id_is_skipped(open_store):
    for first in range(0, 50, 10):
        store = open_store()
        assert store.queue("a").publish_many([b""] * 10) == range(first, first + 10)
        store.close()


def test_h10_ids_stay_new_when_the_journals_unsynced_tail_is_lost(open_store):
    """A power cut may take the records of ids that a consumer has already seen."""
    store = open_store(**QUIET, sync="never")
    queue = store.queue("a")
    fill(queue)
    highest = queue.publish(b"seen by somebody")
    crash(store)
    journal = queue_directory(store.path, "a") / "journal.jif"
    data = journal.read_bytes()
    journal.write_bytes(data[: 8192 + 200] + bytes(len(data) - 8192 - 200))
    store = open_store(**QUIET)
    assert store.queue("a").publish(b"new") > highest


@pytest.mark.parametrize("cut", [1, 30, 100, 500, -1])
def test_h11_a_torn_batch_is_gone_as_a_whole(open_store, cut):
    store = open_store(**QUIET, sync="never")
    queue = store.queue("a")
    queue.publish(b"kept")
    start = queue.stats().journal_bytes
    queue.publish_many([b"batch"] * 20)
    end = queue.stats().journal_bytes
    crash(store)
    journal = queue_directory(store.path, "a") / "journal.jif"
    at = start + cut if cut > 0 else end - 1
    data = journal.read_bytes()
    journal.write_bytes(data[:at] + bytes(len(data) - at))
    store = open_store(**QUIET)
    assert [m.body for m in store.queue("a").browse()] == [b"kept"]


def test_h12_what_open_showed_is_still_there_after_a_crash_right_behind_it(open_store):
    store = open_store(sync="never")
    fill(store.queue("a"))
    crash(store)
    store = open_store(sync="never")
    expected = content(store)
    crash(store)
    store = open_store()
    assert content(store) == expected
    assert len(expected["a"]) == 40
