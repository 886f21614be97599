"""Segment files that are mostly acked are written anew, under their other name (H15)."""

import random
import time
from pathlib import Path

import pytest
from helpers import SMALL, content, crash, damage, files_of, put_files, queue_directory

import qindex

QUIET = {**SMALL, "max_journal_entries": 10_000}  # no flush but on demand


def segments_of(root, name="a"):
    found = [f for f in queue_directory(root, name).iterdir() if f.stem.isdecimal()]
    return sorted(file.name for file in found)


def half_acked(store, rounds=40, seed=1):
    """Segments of 16 messages, of which a third is left here and there; returns what is left."""
    queue = store.queue("a")
    queue.publish_many([b"body %d" % i * 3 for i in range(rounds)], persistent=True)
    queue.publish(b"stored" * 100)
    queue.flush()
    dice = random.Random(seed)
    messages = queue.get_many(rounds + 1)
    gone = [m for m in messages if dice.random() < 0.66]
    queue.ack_many(gone)
    queue.nack_many([m for m in messages if m not in gone])
    queue.flush()
    return {m.req_id: m.body for m in messages if m not in gone}


def left_in(store):
    return {m.req_id: m.body for m in store.queue("a").browse()}


def test_compact_rewrites_what_is_mostly_acked(tmp_path):
    with qindex.open(tmp_path / "a", **QUIET) as store:
        left = half_acked(store)
        before = store.queue("a").stats().segment_bytes
        freed = store.compact()
        after = store.queue("a").stats().segment_bytes
        assert freed >= before - after > 0
        assert any(name.endswith(".alt") for name in segments_of(store.path))
        assert len({Path(name).stem for name in segments_of(store.path)}) == len(
            segments_of(store.path)
        )
        assert left_in(store) == left
        assert store.compact() == 0  # nothing more to gain
    with qindex.open(tmp_path / "a") as store:
        assert left_in(store) == left
        assert damage(store) == []


def test_the_names_take_turns(tmp_path):
    with qindex.open(tmp_path / "a", **QUIET) as store:
        queue = store.queue("a")
        queue.publish_many([b"body %d" % i for i in range(16)])
        queue.flush()
        for name in ("0.alt", "0.idx", "0.alt"):
            messages = queue.get_many(100)
            queue.ack_many(messages[::2])
            queue.nack_many(messages[1::2])
            store.compact()
            assert segments_of(store.path) == [name]
            assert left_in(store) == {m.req_id: m.body for m in messages[1::2]}
        queue.purge()
        queue.flush()
        assert segments_of(store.path) == []


def test_states_and_counts_go_with_the_message(tmp_path):
    with qindex.open(tmp_path / "a", **QUIET) as store:
        queue = store.queue("a")
        queue.publish_many([b"%d" % i for i in range(12)])
        queue.publish(b"transient", persistent=False)
        queue.publish(b"late", ttl=3600)
        queue.flush()
        messages = queue.get_many(14)
        queue.nack_many([messages[10], messages[12]])
        again = queue.get_many(2)
        assert [m.delivery_count for m in again] == [2, 2]
        queue.ack_many(messages[:10])
        store.compact()
        assert segments_of(store.path) == ["0.alt"]
        assert queue.unacked == 4  # they are still out
        queue.ack(messages[11])
        queue.nack(again[0])
    with qindex.open(tmp_path / "a") as store:
        left = list(store.queue("a").browse())
        assert [m.body for m in left] == [b"10", b"transient", b"late"]
        assert [m.delivery_count for m in left] == [2, 2, 1]
        assert [m.persistent for m in left] == [True, False, True]
        assert left[2].expires_at is not None


def test_what_comes_meanwhile_and_later_is_kept(tmp_path):
    with qindex.open(tmp_path / "a", **QUIET) as store:
        queue = store.queue("a")
        queue.publish_many([b"%d" % i for i in range(8)])
        queue.flush()
        queue.ack_many(queue.get_many(7))
        store.compact()
        queue.publish_many([b"new %d" % i for i in range(4)])  # into the same segment
        queue.flush()
        assert [m.body for m in queue.browse()] == [b"7", *(b"new %d" % i for i in range(4))]
        crash(store)
    with qindex.open(tmp_path / "a") as store:
        assert store.queue("a").peek().body == b"7"
        assert len(store.queue("a")) == 5


def test_an_idle_queue_is_rewritten_in_the_background(tmp_path):
    with qindex.open(tmp_path / "a", **{**QUIET, "idle": 0.05}) as store:
        left = half_acked(store)
        end = time.perf_counter() + 20
        while not any(n.endswith(".alt") for n in segments_of(store.path)):
            assert time.perf_counter() < end
            time.sleep(0.01)
        assert left_in(store) == left


@pytest.mark.parametrize("cut", ["before the manifest", "behind the manifest"])
def test_h15_a_power_cut_leaves_one_whole_file_and_a_stray(tmp_path, cut):
    with qindex.open(tmp_path / "a", **QUIET) as store:
        left = half_acked(store)
        before = files_of(store.path)
        store.compact()
        after = files_of(store.path)
    files = before if cut == "before the manifest" else after
    others = after if files is before else before
    strays = {n: d for n, d in others.items() if n not in files and n.endswith((".idx", ".alt"))}
    assert strays
    put_files(tmp_path / "b", {**files, **strays})
    with qindex.open(tmp_path / "b", **QUIET) as store:
        assert left_in(store) == left
        assert damage(store) == []
        names = {name for name in files_of(store.path) if name.endswith((".idx", ".alt"))}
        assert not names & strays.keys() - {n for n in strays if n.endswith("journal.alt")}


def test_a_damaged_file_is_left_alone(tmp_path):
    with qindex.open(tmp_path / "a", **QUIET) as store:
        queue = store.queue("a")
        for _ in range(2):  # two frames
            queue.publish_many([b"%d" % i * 20 for i in range(8)])
            queue.flush()
        queue.ack_many(queue.get_many(14))
        queue.flush()
    file = queue_directory(tmp_path / "a", "a") / "0.idx"
    data = bytearray(file.read_bytes())
    data[150] ^= 4  # in the first frame
    file.write_bytes(data)
    with qindex.open(tmp_path / "a", **QUIET) as store:
        assert list(left_in(store)) == [14, 15]
        store.compact()
        assert segments_of(store.path) == ["0.idx"]
        assert file.read_bytes()[: len(data)] == data
        assert list(left_in(store)) == [14, 15]


def test_a_reader_beside_a_compaction_sees_no_damage(tmp_path):
    with qindex.open(tmp_path / "a", **QUIET) as store:
        left = half_acked(store)
        with qindex.open(tmp_path / "a", read_only=True) as reader:
            assert len(reader.queue("a")) == len(left)
            store.compact()
            assert content(reader)["a"] == sorted(left.items())
            assert damage(reader) == []


def test_both_files_and_no_manifest_are_salvaged(tmp_path):
    """A flush was cut off while it rewrote, and then the manifest went bad."""
    with qindex.open(tmp_path / "a", **QUIET) as store:
        left = half_acked(store)
        before = files_of(store.path)
        store.compact()
        after = files_of(store.path)
    news = {n: d for n, d in after.items() if n not in before and n.endswith(".alt")}
    for cut in (0, 20):  # whole, or without its end
        torn = {n: d[: len(d) - cut] if n.endswith("0.alt") else d for n, d in news.items()}
        target = tmp_path / f"cut {cut}"
        put_files(target, {**before, **torn})
        for name in ("journal.jif", "journal.alt"):
            wipe_manifests(queue_directory(target, "a") / name)
        with qindex.open(target, **QUIET) as store:
            assert left_in(store) == left
            assert damage(store)


def wipe_manifests(file):
    """A flipped bit in every MANIFEST but the first one."""
    if not file.exists():
        return
    data = bytearray(file.read_bytes())
    offset, seen = 8192, 0
    while offset + 8 <= len(data):
        word = int.from_bytes(data[offset : offset + 4], "big")
        if word == 0:
            break
        if word >> 28 == 3:
            seen += 1
            if seen > 1:
                data[offset + 30] ^= 1
        offset += 8 + (word & 0xFFFFFFF)
    file.write_bytes(data)
