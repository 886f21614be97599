"""Store.publish_many(): messages of any kind to any queues, a frame for each queue."""

import asyncio
import struct
import time

import pytest

import qindex
import qindex.aio
from qindex import Outgoing


@pytest.fixture(params=[1, 2])
def store(request, tmp_path):
    with qindex.open(tmp_path / "store", format=request.param, embed_below=200) as store:
        yield store


def frames_of(path):
    """The types of a journal's frames."""
    data, offset, types = path.read_bytes(), 8192, []
    while data[offset : offset + 8] != bytes(8):
        (word,) = struct.unpack_from(">I", data, offset)
        types.append(word >> 28)
        offset += 8 + (word & 0xFFFFFFF)
    return types


def test_each_message_has_its_own_queue_and_options(store):
    a, b = store.queue("a"), store.queue("b")
    far = time.time() + 3600
    messages = [
        Outgoing("a", b"plain"),
        Outgoing("b", b"first of b", headers={"n": 1}),
        Outgoing("a", b"urgent", priority=9, expires_at=far),
        Outgoing("a", b"S" * 5000, headers={"stored": True}),
        Outgoing("b", b"later", due=far, priority=2),
        Outgoing("b", b"transient", persistent=False, redelivered=True),
    ]
    req_ids = store.publish_many(messages)
    assert req_ids[0] == 0
    assert len({(m.queue, r) for m, r in zip(messages, req_ids, strict=True)}) == 6
    for wanted, req_id in zip(messages, req_ids, strict=True):
        there = store.queue(wanted.queue).peek(req_id)
        assert there.body == wanted.body
        assert there.headers == (wanted.headers or {})
        assert there.priority == wanted.priority
        assert there.persistent == wanted.persistent
        assert there.redelivered == wanted.redelivered
        assert (there.due, there.expires_at) == (
            pytest.approx(wanted.due) if wanted.due else None,
            pytest.approx(wanted.expires_at) if wanted.expires_at else None,
        )
    assert [m.body for m in a.get_many(9)] == [b"urgent", b"plain", b"S" * 5000]
    assert [m.body for m in b.get_many(9)] == [b"first of b", b"transient"]
    assert store.check() == []


def test_a_queue_gets_one_frame(store, tmp_path):
    for name in "ab":
        store.queue(name).publish(b"before")
    store.publish_many([Outgoing("ab"[number % 2], b"%d" % number) for number in range(20)])
    for name in "ab":
        path = tmp_path / "store" / store.queue_directory(name) / "journal.jif"
        assert frames_of(path).count(1) == 2  # RECORDS


def test_it_is_there_after_a_restart(store, tmp_path):
    names = [f"q{number}" for number in range(20)]
    store.publish_many([Outgoing(name, name.encode() * 9) for name in names] * 3, create=True)
    store.close()
    with qindex.open(tmp_path / "store") as again:
        for name in names:
            assert [m.body for m in again.queue(name).browse()] == [name.encode() * 9] * 3


def test_what_is_refused_leaves_all_queues_as_they_were(store):
    store.queue("a")
    small = store.queue("small", max_messages=2, overflow="reject")
    with pytest.raises(qindex.QueueFull) as caught:
        store.publish_many([Outgoing("a", b"1"), *[Outgoing("small", b"2")] * 3])
    assert len(store.queue("a")) == len(small) == 0
    assert "message 2 of the 4 in publish_many()" in caught.value.__notes__
    with pytest.raises(qindex.QueueMissing) as caught:
        store.publish_many([Outgoing("a", b"1"), Outgoing("nowhere", b"2")])
    assert "message 2 of the 2 in publish_many()" in caught.value.__notes__
    with pytest.raises(TypeError, match="an Outgoing, not tuple"):
        store.publish_many([("a", b"1")])
    with pytest.raises(TypeError, match="a queue's name is a str"):
        store.publish_many([Outgoing(7, b"1")])
    with pytest.raises(ValueError, match="priority"):
        store.publish_many([Outgoing("a", b"1", priority=999)])
    assert store.publish_many([]) == []
    assert len(store.queue("a")) == 0
    assert store.queue("a").publish(b"next") == 0  # no ReqId was used up


def test_heads_of_a_full_queue_make_place(store):
    full = store.queue("full", max_messages=3, overflow="drop-head")
    full.publish_many([b"0", b"1", b"2"])
    store.queue("other")
    store.publish_many([Outgoing("full", b"3"), Outgoing("other", b"x"), Outgoing("full", b"4")])
    assert [m.body for m in full.browse()] == [b"2", b"3", b"4"]


def test_a_lease_of_its_own_needs_format_2(store):
    store.queue("a")
    message = Outgoing("a", b"leased", lease=0.05)
    if store.stats().format == 1:
        with pytest.raises(qindex.FormatError):
            store.publish_many([Outgoing("a", b"x"), message])
        assert len(store.queue("a")) == 0
        return
    store.publish_many([message])
    assert store.queue("a").get().body == b"leased"
    again = store.queue("a").get(timeout=5)
    assert (again.body, again.delivery_count) == (b"leased", 2)


def test_a_confirm_of_many_queues(store):
    names = [f"q{number}" for number in range(10)]
    store.publish_many([Outgoing(name, b"x") for name in names], create=True, confirm=True)
    assert all(store.queue(name).stats().unsynced_bytes == 0 for name in names)


def test_an_event_loop_publishes_them_too(tmp_path):
    async def main():
        async with await qindex.aio.open(tmp_path / "aio") as store:
            await store.publish_many(
                [Outgoing("a", b"1"), Outgoing("b", b"2", priority=3)], create=True, confirm=True
            )
            a, b = await store.queue("a"), await store.queue("b")
            return (await a.get()).body, (await b.get()).priority

    assert asyncio.run(main()) == (b"1", 3)


@pytest.mark.parametrize("io", ["mmap", "pwrite"])
def test_full_queues_whose_files_are_closed_make_room_for_a_batch(tmp_path, io):
    """To open the files of one closes another's, which was then searched for its oldest message."""
    path, names = tmp_path / "s", [f"q{i}" for i in range(24)]
    options = {"segment_entries": 64, "max_open_files": 24, "sync": "never", "io": io}
    with qindex.open(path, format=2, **options) as store:
        for name in names:
            queue = store.queue(name, max_messages=100, overflow="drop-head")
            queue.publish_many([b"%d" % i for i in range(100)])
            queue.flush()
    with qindex.open(path, **options) as store:
        for name in names:
            assert store.queue(name).ready == 100
        store.publish_many([Outgoing(name, b"new") for name in names for _ in range(2)])
        for name in names:
            bodies = [message.body for message in store.queue(name).browse()]
            assert bodies == [b"%d" % i for i in range(2, 100)] + [b"new"] * 2
