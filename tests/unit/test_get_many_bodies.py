"""get_many() of bodies in message files: neighbours are read by one call, others as they lie."""

import random
from pathlib import Path

import pytest

import qindex

STORED = 5000  # bytes: more than embed_below


def body_of(number: int, size: int = STORED) -> bytes:
    return random.Random(number).randbytes(size)


def flip_byte(directory: Path, found: bytes) -> None:
    """Damage the message that has these bytes, in whichever message file it is."""
    for path in sorted((directory / "messages").glob("*.qms")):
        at = path.read_bytes().find(found)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at + 100)
                file.write(bytes([found[100] ^ 1]))
            return
    raise AssertionError("no file has it")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("size", [4096, 5000, 16384, 40000])
@pytest.mark.parametrize("reopened", [False, True])
def test_a_batch_is_what_was_published(path: Path, size: int, reopened: bool) -> None:
    bodies = [body_of(number, size + number) for number in range(300)]
    store = qindex.open(path, message_file_size=1 << 20)
    store.queue("q").publish_many(bodies)
    if reopened:
        store.close()
        store = qindex.open(path)
    with store:
        queue, found = store.queue("q"), []
        while batch := queue.get_many(100):
            assert sum(len(message.body) for message in batch) <= 4 << 20
            found += [message.body for message in batch]
            assert queue.unacked == len(batch)
            queue.ack_many(batch)
        assert found == bodies
        assert not len(queue)


def test_what_lies_between_is_not_taken(path: Path) -> None:
    """Messages of another queue, acked ones, embedded ones, and headers of some."""
    chance = random.Random(5)
    with qindex.open(path, message_file_size=1 << 20) as store:
        queue, other = store.queue("q"), store.queue("other")
        expected = []
        for number in range(600):
            body = body_of(number, chance.choice([10, 4096, 5000, 20000]))
            headers = {"n": number} if chance.random() < 0.3 else None
            if chance.random() < 0.2:
                other.publish(body_of(-number))
            queue.publish(body, headers=headers)
            if chance.random() < 0.2:
                queue.ack(queue.get_newest())
            else:
                expected.append((body, headers or {}))
        found = []
        while batch := queue.get_many(150):
            found += [(message.body, message.headers) for message in batch]
        assert found == expected
        assert len({message.req_id for message in queue.browse(state="unacked")}) == len(expected)


def test_bodies_that_a_compaction_moved_are_read_together(path: Path) -> None:
    with qindex.open(path, message_file_size=1 << 20) as store:
        queue = store.queue("q")
        bodies = [body_of(number) for number in range(1000)]
        messages = queue.publish_many(bodies)
        taken = queue.get_many(500) + queue.get_many(500)
        taken += queue.get_many(500)
        assert len(taken) == 1000
        queue.ack_many(message for message in taken if message.req_id % 3)
        queue.nack_many(message for message in taken if message.req_id % 3 == 0)
        store.compact()
        kept = [body for req_id, body in zip(messages, bodies, strict=True) if req_id % 3 == 0]
        found = []
        while batch := queue.get_many(100):
            found += [message.body for message in batch]
        assert found == kept


@pytest.mark.parametrize("bad", [0, 1, 40, 99])
def test_a_damaged_one_ends_the_batch_and_the_next_call_says_so(path: Path, bad: int) -> None:
    bodies = [body_of(number) for number in range(100)]
    with qindex.open(path) as store:
        store.queue("q").publish_many(bodies)
    flip_byte(path, bodies[bad])
    with qindex.open(path) as store:
        queue = store.queue("q")
        if bad:
            assert [message.body for message in queue.get_many(100)] == bodies[:bad]
            assert not store.findings
        with pytest.raises(qindex.StoreCorrupt) as raised:
            queue.get_many(100)
        assert raised.value.req_id == bad
        rest = queue.get_many(100)
        assert [message.body for message in rest] == bodies[bad + 1 :]
        assert queue.unacked == 100
        assert len(store.findings) == 1


def test_a_body_longer_than_a_turn_comes_with_the_others(path: Path) -> None:
    """300 KiB is more than is read while other threads wait for the interpreter."""
    sizes = [100, 5000, 300 << 10, 5000, 100, 300 << 10, 5 << 20, 100]
    bodies = [body_of(number, size) for number, size in enumerate(sizes)]
    with qindex.open(path) as store:
        queue = store.queue("q")
        queue.publish_many(bodies)
        batches = []
        while batch := queue.get_many(100):
            batches.append([message.body for message in batch])
        assert [len(batch) for batch in batches] == [6, 1, 1]  # 5 MiB is more than one call gives
        assert [body for batch in batches for body in batch] == bodies


def test_a_lease_and_a_count_of_deliveries_hold_for_each(path: Path) -> None:
    with qindex.open(path) as store:
        queue = store.queue("q")
        queue.publish_many([body_of(number) for number in range(200)])
        first = queue.get_many(200)
        assert {message.delivery_count for message in first} == {1}
        queue.nack_many(first)
        again = queue.get_many(200, lease=60)
        assert {message.delivery_count for message in again} == {2}
        assert all(message.redelivered for message in again)
        with pytest.raises(qindex.DeliveryEnded):
            queue.ack(first[7])
        queue.ack_many(again)
        assert not len(queue)


def test_all_priorities_come_in_their_order(path: Path) -> None:
    with qindex.open(path) as store:
        queue = store.queue("q")
        for number in range(300):
            queue.publish(body_of(number), priority=number % 3)
        found = [message.body for message in queue.get_many(300)]
        assert found == [
            body_of(number) for wanted in (2, 1, 0) for number in range(wanted, 300, 3)
        ]
