"""Message.published_at: what survives, and where nobody knows it."""

import json
import time

import pytest

import qindex
from qindex.moments import utc

TICK = 0.011  # the engine's clock may be so late: docs of Message.published_at


def times_of(queue):
    return {message.body: message.published_at for message in queue.browse()}


def publish_slowly(queue, count):
    """Publish `count` messages, each at another time; what the clock said around each of them."""
    said = {}
    for number in range(count):
        before = time.time()
        queue.publish(b"%d" % number)
        said[b"%d" % number] = (before - TICK, time.time())
        time.sleep(0.012)
    return said


def assert_are(told, said):
    assert told.keys() == said.keys()
    for body, moment in told.items():
        low, high = said[body]
        assert low <= moment <= high, body


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "store", format=2, segment_entries=64) as store:
        yield store


def test_it_is_the_time_of_the_publish_and_each_reader_says_so(store):
    queue = store.queue("q")
    said = publish_slowly(queue, 5)
    told = times_of(queue)
    assert_are(told, said)
    assert queue.peek().published_at == told[b"0"]
    taken = queue.get()
    assert taken.published_at == told[b"0"]
    queue.nack(taken)
    assert [message.published_at for message in queue.get_many(5)] == list(told.values())


def test_it_survives_flushes_rewrites_and_a_clean_end(store, tmp_path):
    queue = store.queue("q")
    said = publish_slowly(queue, 70)  # more than a segment, some with words of their own
    told = times_of(queue)
    queue.flush()
    assert times_of(queue) == told
    acked = [message for message in queue.get_many(70) if int(message.body) % 5]
    queue.ack_many(acked)
    store.compact()  # most of the segment is acked: it is written anew
    assert list((tmp_path / "store").glob("queues/*/0.alt"))
    queue.publish(b"70")
    store.close()
    with qindex.open(tmp_path / "store") as again:
        left = times_of(again.queue("q"))
        assert left.pop(b"70") is not None
        assert left == {body: us for body, us in told.items() if int(body) % 5 == 0}
        assert_are(left, {body: said[body] for body in left})


def test_a_move_keeps_it_and_a_death_changes_nothing(store):
    queue, other = store.queue("q", dead_letters=True), store.queue("other")
    queue.publish_many([b"a", b"b", b"c"])
    told = times_of(queue)
    time.sleep(0.03)
    taken = queue.get_many(2)
    store.move([taken[0]], to="other")
    other.publish(b"d")
    queue.nack(taken[1], requeue=False)
    assert times_of(queue) == {b"b": told[b"b"], b"c": told[b"c"]}
    moved = times_of(other)
    assert moved[b"a"] == told[b"a"]
    assert moved[b"d"] > told[b"a"] + 0.015
    other.flush()
    assert times_of(other) == moved


def test_what_was_published_before_the_upgrade_has_none_also_when_it_moves(tmp_path):
    with qindex.open(tmp_path / "store", format=1) as store:
        store.queue("q").publish_many([b"a", b"b"])
    with qindex.open(tmp_path / "store", upgrade=True) as store:
        queue = store.queue("q")
        queue.publish(b"c")
        store.queue("other")
        store.move([queue.get()], to="other")
        told = times_of(queue)
        assert told[b"b"] is None
        assert told[b"c"] is not None
        assert times_of(store.queue("other")) == {b"a": None}
        queue.flush()
        store.queue("other").flush()
    with qindex.open(tmp_path / "store", read_only=True) as store:
        assert times_of(store.queue("q")) == told
        assert times_of(store.queue("other")) == {b"a": None}


def test_the_commands_show_it(store, tmp_path, run):
    queue = store.queue("q")
    queue.publish(b"moved")
    time.sleep(0.03)
    other = store.queue("other")
    store.move([queue.get()], to="other")
    other.flush()
    queue.publish(b"stays")
    published = {b"moved": other.peek().published_at, b"stays": queue.peek().published_at}
    store.close()
    path = tmp_path / "store"
    assert run("replay", path, "--verify").code == 0
    for line in run("cat", path, "--jsonl").out.splitlines():
        told = json.loads(line)
        moment = published[told["body"].encode()]
        assert told["published_at"].startswith(time.strftime("%Y-%m-%dT%H:", time.gmtime(moment)))
    for name, req_id, body in (("other", 0, b"moved"), ("q", 1, b"stays")):
        out = run("trace", path, f"{name}:{req_id}").out
        assert f"published at {utc(published[body])}" in out
