"""Dead letters that move to another queue, and what m.deaths tells of them."""

import re
from pathlib import Path

import pytest

import qindex
from qindex._core import lib as core
from qindex.testing.simulated import SimulatedDisk, abandon, tick

SETTINGS = {"format": 2, "sync_interval": 3600}


@pytest.fixture
def store(disk):
    with qindex.open("/store", disk=disk, **SETTINGS) as opened:
        opened.queue("dead")
        opened.queue("a", dead_letters="dead")
        yield opened


def bodies(store, name):
    return [message.body for message in store.queue(name).browse()]


def reject(store, name):
    store.queue(name).get().nack(requeue=False)


def whys(message):
    return [(death.queue, death.why, death.times) for death in message.deaths]


def test_a_rejected_message_is_there_when_nack_returns(store):
    store.queue("a").publish(b"order", headers={"k": 1}, priority=4)
    reject(store, "a")
    assert bodies(store, "a") == []
    message = store.queue("dead").get()
    assert (message.body, message.headers, message.priority) == (b"order", {"k": 1}, 4)
    assert (message.dead, message.delivery_count) == (None, 2)
    assert whys(message) == [("a", "rejected", 1)]
    assert message.deaths[0].first == message.deaths[0].last > 1e9


def test_one_that_expires_moves_and_expires_no_more(store, disk):
    store.queue("a").publish(b"order", ttl=5)
    disk.advance(6)
    assert store.queue("a").get() is None
    message = store.queue("dead").get()
    assert (message.body, message.expires_at) == (b"order", None)
    assert whys(message) == [("a", "expired", 1)]


def test_one_that_was_delivered_too_often_moves(store):
    store.queue("a", max_deliveries=2).publish(b"order")
    for _ in range(2):
        store.queue("a").get().nack()
    assert store.queue("a").get() is None
    message = store.queue("dead").get()
    assert (whys(message), message.delivery_count) == ([("a", "deliveries", 1)], 3)


def test_where_as_many_deliveries_are_the_limit_it_is_delivered_once_more(store):
    store.queue("dead", max_deliveries=2, dead_letters=True)
    store.queue("a", max_deliveries=2).publish(b"order")
    for _ in range(2):
        store.queue("a").get().nack()
    assert store.queue("a").get() is None
    message = store.queue("dead").get()
    assert message.delivery_count == 3
    message.nack()
    store.queue("dead").get().nack()
    assert store.queue("dead").get() is None
    (dead,) = store.queue("dead").browse(state="dead")
    assert whys(dead) == [("dead", "deliveries", 1), ("a", "deliveries", 1)]


def test_the_oldest_of_a_full_queue_move(store):
    queue = store.queue("a", max_messages=2, overflow="dead-letter")
    for body in (b"1", b"2", b"3", b"4"):
        queue.publish(body)
    queue.publish_many([b"5", b"6"])
    assert (bodies(store, "a"), bodies(store, "dead")) == ([b"5", b"6"], [b"1", b"2", b"3", b"4"])
    assert whys(store.queue("dead").get()) == [("a", "full", 1)]


def test_a_stored_body_is_not_copied(store):
    store.queue("a").publish(b"x" * 10_000)
    before = store.stats().message_bytes
    reject(store, "a")
    assert store.stats().message_bytes == before
    assert store.queue("dead").get().body == b"x" * 10_000


def test_many_move_in_transactions_of_some(store):
    store.queue("a").publish_many([b"%d" % i for i in range(700)])
    messages = store.queue("a").get_many(700)
    store.queue("a").nack_many(messages, requeue=False)
    assert bodies(store, "dead") == [b"%d" % i for i in range(700)]
    assert store.check() == []


def test_what_does_not_fit_stays_and_moves_when_there_is_a_place(store, disk):
    store.queue("dead", max_messages=3)
    store.queue("a").publish_many([b"%d" % i for i in range(8)])
    store.queue("a").nack_many(store.queue("a").get_many(8), requeue=False)
    assert bodies(store, "dead") == [b"0", b"1", b"2"]
    assert store.queue("a").stats().dead == 5
    (finding,) = store.findings
    assert (finding.severity, finding.queue) == ("note", "a")
    assert "do not move to dead: queue dead has 3 messages, and may have 3" in finding.text
    for _ in range(3):
        store.queue("dead").get().ack()
    disk.advance(2)
    tick(store)
    assert bodies(store, "dead") == [b"3", b"4", b"5"]
    assert len(store.findings) == 1  # the same line a second time would say nothing


def test_while_the_other_queue_is_missing_they_stay(store, disk):
    store.delete_queue("dead")
    store.queue("a").publish(b"order")
    reject(store, "a")
    assert store.queue("a").stats().dead == 1
    assert "there is no queue dead" in store.findings[0].text
    store.queue("dead")
    disk.advance(2)
    tick(store)
    assert (bodies(store, "a"), bodies(store, "dead")) == ([], [b"order"])


def test_a_queue_that_is_not_there_is_refused_and_nothing_is_changed(store):
    before = store.queue("a").settings
    with pytest.raises(qindex.QueueMissing, match="nowhere"):
        store.queue("a", dead_letters="nowhere", max_messages=5)
    with pytest.raises(ValueError, match="to itself"):
        store.queue("a").configure(dead_letters="a")
    for wrong in (5, b"dead"):
        with pytest.raises(TypeError, match="the name of a queue"):
            store.queue("a").configure(dead_letters=wrong)
    with pytest.raises(ValueError, match="1 to 65535 bytes"):
        store.queue("a").configure(dead_letters="")
    assert store.queue("a").settings == before


def test_format_1_refuses_it():
    with qindex.open("/store", disk=SimulatedDisk(seed=1), format=1) as store:
        store.queue("dead")
        with pytest.raises(qindex.FormatError, match="format 2"):
            store.queue("a", dead_letters="dead")
        store.queue("a", dead_letters=True).publish(b"")
        reject(store, "a")
        assert next(store.queue("a").browse()).deaths == []


def test_it_is_stored_and_an_open_moves_what_was_left(disk):
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.queue("a", dead_letters=True).publish(b"order")
        reject(store, "a")
        store.queue("dead")
        assert store.queue("a").configure(dead_letters="dead").dead_letters == "dead"
        store.delete_queue("dead")
        store.queue("dead", max_messages=1).publish(b"first")
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        assert store.queue("a").settings == qindex.Settings(dead_letters="dead")
        store.queue("dead").get().ack()
        disk.advance(2)
        tick(store)
        assert (bodies(store, "a"), bodies(store, "dead")) == ([], [b"order"])
        store.queue("a").configure(dead_letters=None)
        store.queue("a").publish(b"gone")
        reject(store, "a")
        assert (bodies(store, "a"), len(bodies(store, "dead"))) == ([], 1)


def test_a_message_that_would_go_round_for_ever_stays(disk):
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.queue("a")
        store.queue("b", ttl=5, dead_letters="a")
        store.queue("a", ttl=5, dead_letters="b").publish(b"order")
        for name in ("a", "b"):
            disk.advance(6)
            assert store.queue(name).get() is None
        (left,) = store.queue("b").browse(state="dead")
        assert whys(left) == [("b", "expired", 1), ("a", "expired", 1)]
        assert any("go round for ever" in finding.text for finding in store.findings)


def test_a_message_that_a_consumer_rejects_may_come_back_as_a_retry(disk):
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.queue("work")
        store.queue("wait", ttl=5, dead_letters="work")
        store.queue("work", dead_letters="wait").publish(b"order")
        for times in range(1, 4):
            message = store.queue("work").get()
            assert sum(d.times for d in message.deaths if d.queue == "work") == times - 1
            message.nack(requeue=False)
            disk.advance(6)
            assert store.queue("wait").get() is None
        assert whys(store.queue("work").get()) == [("wait", "expired", 3), ("work", "rejected", 3)]
        assert store.findings == []


def test_two_full_queues_that_name_each_other_do_not_play_ping_pong(disk):
    full = {"max_messages": 1, "overflow": "dead-letter"}
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.queue("a")
        store.queue("b", dead_letters="a", **full)
        store.queue("a", dead_letters="b", **full)
        for body in (b"1", b"2", b"3", b"4"):
            store.queue("a").publish(body)
        for _ in range(5):
            tick(store)
        left = sorted(bodies(store, "a") + bodies(store, "b"))
        assert left == [b"1", b"2", b"3", b"4"]
        assert store.check() == [f for f in store.findings if f.severity == "note"]


def test_a_dead_letter_that_stays_says_when_and_how_often(disk):
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        queue = store.queue("a", dead_letters=True)
        queue.publish(b"order")
        reject(store, "a")
        first = queue.peek(0).deaths[0].first
        disk.advance(10)
        queue.redrive()
        reject(store, "a")
        (death,) = queue.peek(0).deaths
        assert (death.times, death.first, death.last >= first + 10) == (2, first, True)
        queue.redrive()
        assert queue.get().deaths == [death]


@pytest.mark.parametrize("flushed", [False, True])
def test_deaths_survive_a_flush_a_kill_and_a_move(disk, flushed):
    store = qindex.open("/store", disk=disk, **SETTINGS)
    store.queue("b")
    store.queue("a", dead_letters=True).publish(b"order")
    reject(store, "a")
    if flushed:
        assert core.qi_flush(store.queue("a")._handle) == 0
    deaths = store.queue("a").peek(0).deaths
    store.sync()
    killed = disk.kill()
    abandon(store)
    with qindex.open("/store", disk=killed, **SETTINGS) as again:
        assert again.queue("a").peek(0).deaths == deaths != []
        again.move(0, to="b", queue="a")
        assert again.queue("b").peek().deaths == deaths
    with qindex.open("/store", disk=killed, read_only=True) as reader:
        assert next(reader.queue("b").browse()).deaths == deaths


def test_a_power_cut_leaves_it_in_one_queue():
    places = set()
    for seed in range(40):
        disk = SimulatedDisk(seed=seed)
        store = qindex.open("/store", disk=disk, **SETTINGS)
        store.queue("dead")
        store.queue("a", dead_letters="dead").publish(b"order")
        store.sync()
        reject(store, "a")
        if seed % 4 == 0:
            store.sync()
        disk = disk.power_cut(seed)
        abandon(store)
        with qindex.open("/store", disk=disk, expire=False) as again:
            found = [(name, m.dead) for name in ("a", "dead") for m in again.queue(name).browse()]
        assert len(found) == 1
        assert found == [("dead", None)] or seed % 4
        places.add(found[0])
    assert ("dead", None) in places
    assert len(places) > 1


def test_the_bytes_are_those_of_the_example(disk):
    """FORMAT.rst, section 4: rejected twice, and moved to another queue."""
    text = (Path(__file__).parents[2] / "c_ext/FORMAT.rst").read_text()
    died, deaths = (
        bytes.fromhex("".join(line.split(";")[0] for line in block.splitlines()))
        for block in re.search(
            r"the second time a minute later::\n\n(.*?)\n\nand .*?::\n\n(.*?)\n\n", text, re.DOTALL
        ).groups()
    )
    start = int.from_bytes(died[24:32], "big") / 1e6
    disk.set_wall(start)
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.queue("dead")
        queue = store.queue("orders", dead_letters=True)
        queue.publish_many([b""] * 6)
        queue.ack_many(queue.get_many(5))
        reject(store, "orders")
        queue.redrive()
        disk.set_wall(start + 60)
        reject(store, "orders")
        store.sync()
        assert any(died in data for data in disk.files().values())
        store.move(5, to="dead", queue="orders", confirm=True)
        assert any(deaths in data for data in disk.files().values())
        assert whys(store.queue("dead").peek()) == [("orders", "rejected", 2)]


def test_what_a_full_queue_buries_is_there_when_publish_returns(tmp_path):
    with qindex.open(tmp_path / "data", format=2, sync="never", idle=3600) as store:
        dead = store.queue("dead")
        queue = store.queue("a", max_messages=2, overflow="dead-letter", dead_letters="dead")
        for number in range(5):
            queue.publish(b"%d" % number)
            assert len(dead) == max(0, number - 1)
        assert bodies(store, "dead") == [b"0", b"1", b"2"]
