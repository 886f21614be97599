"""qindex.QueueIndex: the index alone, for brokers that keep bodies elsewhere."""

import os
import random

import pytest
from helpers import crash

import qindex

SMALL = {"segment_entries": 16, "max_journal_entries": 24}


@pytest.fixture
def open_index(tmp_path):
    opened = []

    def open_one(**options):
        index = qindex.QueueIndex(tmp_path / "index", **{**SMALL, **options})
        opened.append(index)
        return index

    yield open_one
    for index in opened:
        index.close()


def listed(index):
    return [entry.req_id for entry in index.read(0, 1 << 61)]


def test_entries_come_back_as_they_were_published(open_index):
    index = open_index()
    names = [os.urandom(16) for _ in range(40)]
    assert index.publish(names[0], 7) == 0
    assert index.publish_many(names[1:], range(1, 40)) == range(1, 40)
    entries = index.read(0, 40)
    assert [entry.msg_id for entry in entries] == names
    assert [entry.size for entry in entries] == [7, *range(1, 40)]
    assert all(entry.persistent and not entry.delivered for entry in entries)


def test_msg_ids_may_lie_in_one_bytes_object_or_be_left_out(open_index):
    index = open_index()
    assert index.publish_many(b"a" * 16 + b"b" * 16) == range(2)
    assert index.publish_many(3) == range(2, 5)
    assert index.publish_many(0) == range(5, 5)
    assert index.publish() == 5
    assert [entry.msg_id[:1] for entry in index.read(0, 6)] == [b"a", b"b", *[b"\0"] * 4]


def test_wrong_ids_counts_and_sizes_are_refused_without_a_trace(open_index):
    index = open_index()
    for wrong in (b"x" * 15, [b"x" * 16, b"y" * 17], [b"x" * 8, b"y" * 24], -1):
        with pytest.raises(ValueError):
            index.publish_many(wrong)
    with pytest.raises(ValueError, match="sizes"):
        index.publish_many(3, [1, 2])
    assert len(index) == 0
    assert index.publish() == 0


def test_deliver_and_ack_take_one_id_a_range_or_any_sequence(open_index):
    index = open_index()
    index.publish_many(60)
    index.deliver(0)
    index.deliver(range(1, 30))
    index.deliver([59, 40, 41])
    delivered = [entry.req_id for entry in index.read(0, 60) if entry.delivered]
    assert delivered == [*range(30), 40, 41, 59]
    index.ack(0)
    index.ack(range(1, 20))
    index.ack([59, 41])
    assert listed(index) == [*range(20, 41), *range(42, 59)]
    assert len(index) == 38


def test_an_ack_all_or_none(open_index):
    index = open_index()
    index.publish_many(20)
    index.deliver(range(10))
    index.ack(3)
    for wrong, error in [
        ([1, 2, 99], qindex.UnknownMessage),
        ([1, 3], qindex.AlreadyAcked),
        (range(2, 5), qindex.AlreadyAcked),
        ([1, 5, 1], ValueError),
    ]:
        before = index.dirty_count
        with pytest.raises(error):
            index.ack(wrong)
        assert index.dirty_count == before
    assert listed(index) == [0, 1, 2, *range(4, 20)]


def test_read_gives_a_half_open_range_of_what_is_not_acked(open_index):
    index = open_index()
    index.publish_many(3000)
    index.deliver(range(100))
    index.ack(range(50, 100))
    assert [e.req_id for e in index.read(48, 102)] == [48, 49, 100, 101]
    assert len(index.read(0, 3000)) == 2950
    assert index.read(5, 5) == []
    assert index.read(3000, 4000) == []


def test_bounds_are_the_lowest_live_and_the_next_id(open_index):
    index = open_index()
    assert index.bounds() == (0, 0)
    index.publish_many(40)
    assert index.bounds() == (0, 40)
    index.deliver(range(20))
    index.ack(range(20))
    assert index.bounds() == (20, 40)
    index.deliver(range(20, 40))
    index.ack(range(20, 40))
    assert index.bounds() == (40, 40)


def test_flush_empties_the_journal_and_changes_nothing_else(open_index, tmp_path):
    index = open_index(max_journal_entries=10_000)
    index.publish_many(40, range(40))
    index.deliver(range(20))
    index.ack(range(20))
    before = index.read(0, 40)
    assert index.dirty_count == 80
    index.flush()
    assert index.dirty_count == 0
    assert index.read(0, 40) == before
    assert sorted(file.name for file in tmp_path.rglob("*.idx")) == ["1.idx", "2.idx"]


@pytest.mark.parametrize("clean", [True, False], ids=["close", "crash"])
@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "journal"])
def test_entries_live_through_a_reopen(open_index, clean, flushed):
    index = open_index()
    index.publish_many([b"m" * 16] * 40, [9] * 40)
    index.publish_many(5, persistent=False)
    index.deliver(range(30))
    index.ack(range(0, 30, 3))
    if flushed:
        index.flush()
    index.close() if clean else crash(index)
    index = open_index()
    kept = [i for i in range(45) if i >= 30 or i % 3]
    if not clean:
        kept = [i for i in kept if i < 40]  # transient entries die with an unclean end
    assert listed(index) == kept
    assert {entry.size for entry in index.read(0, 40)} == {9}
    assert index.publish() >= 45


def test_an_index_and_a_store_refuse_each_others_directory(tmp_path):
    qindex.QueueIndex(tmp_path / "index").close()
    qindex.open(tmp_path / "store").close()
    with pytest.raises(qindex.FormatError):
        qindex.open(tmp_path / "index")
    with pytest.raises(qindex.FormatError):
        qindex.QueueIndex(tmp_path / "store")


def test_an_index_is_locked_closed_and_read_like_a_store(open_index, tmp_path):
    index = open_index()
    index.publish_many(3)
    index.sync()
    with pytest.raises(qindex.StoreLocked):
        qindex.QueueIndex(tmp_path / "index")
    with qindex.QueueIndex(tmp_path / "index", read_only=True) as reader:
        assert listed(reader) == [0, 1, 2]
        with pytest.raises(qindex.ReadOnly):
            reader.publish()
    index.close()
    index.close()
    for use in (index.publish, index.flush, index.sync, index.bounds, lambda: len(index)):
        with pytest.raises(qindex.StoreClosed):
            use()


@pytest.mark.parametrize("seed", range(8))
def test_ranges_do_what_the_same_ids_do_one_by_one(tmp_path, seed):
    """Ranges are changed word by word, lists id by id; nobody can tell afterwards."""
    dice = random.Random(seed)
    options = {"segment_entries": dice.choice([8, 16, 32, 64]), "max_journal_entries": 500}
    with (
        qindex.QueueIndex(tmp_path / "a", **options) as ranges,
        qindex.QueueIndex(tmp_path / "b", **options) as lists,
    ):
        end, alive = 0, set()
        for _ in range(30):
            first, count = dice.randrange(end + 1), dice.randrange(1, 100)
            span = range(first, min(first + count, end))
            verb = dice.choice(["publish", "deliver", "ack"])
            if verb == "publish":
                persistent = dice.random() < 0.8
                for index in (ranges, lists):
                    assert index.publish_many(count, persistent=persistent) == range(
                        end, end + count
                    )
                alive |= set(range(end, end + count))
                end += count
            elif alive.issuperset(span):
                getattr(ranges, verb)(span)
                getattr(lists, verb)(list(span))
                alive -= set(span) if verb == "ack" else set()
            else:
                with pytest.raises(qindex.AlreadyAcked):
                    getattr(ranges, verb)(span)
            assert ranges.read(0, end) == lists.read(0, end)
            assert {entry.req_id for entry in ranges.read(0, end)} == alive
    with qindex.QueueIndex(tmp_path / "a") as ranges, qindex.QueueIndex(tmp_path / "b") as lists:
        assert ranges.read(0, end) == lists.read(0, end)


def test_sizes_that_are_fewer_than_they_say_are_refused(open_index):
    index = open_index()

    class Shrinking(list):
        def __len__(self):
            return 100_000

    with pytest.raises(ValueError, match="sizes has 1 entries for 100000 messages"):
        index.publish_many(100_000, Shrinking([1]))
    assert len(index) == 0
