"""Queues that a rescue is still bringing: who waits, and what comes when they are in."""

from __future__ import annotations

import pytest
from broker_rooms import Consumer, declare, drain, publish, turns

import qindex
from qindex.broker import definitions
from qindex.broker.arriving import NotIn
from qindex.broker.catalog import StoreCatalog
from qindex.broker.errors import Precondition
from qindex.broker.message import Message
from qindex.broker.vhost import VHost
from qindex.brokers.amqp import Properties, encode_properties


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "s", format=2, expire=False) as found:
        entries = definitions.queue_entry("q", auto_delete=False, arguments={})
        StoreCatalog(found).apply({**entries, **definitions.arriving_entry("q", 2)})
        yield found


@pytest.fixture
def vhost(store, turns):
    return VHost("/", turns, store)


def bring(store, vhost, *bodies):
    properties = encode_properties(Properties(delivery_mode=2))
    queue = store.queue("q")
    for body in bodies:
        headers = {"exchange": "", "routing_keys": ["q"], "properties": properties}
        queue.publish(body, headers=headers)
    store.sync()
    vhost.arrived("q")


def test_it_is_there_with_its_count_and_takes_nothing(vhost):
    wanted = []
    vhost.on_wanted = wanted.append
    assert len(vhost.queue("q", None)) == 2
    with pytest.raises(NotIn):
        publish(vhost, b"new")
    with pytest.raises(NotIn):
        vhost.check_arrived("q")
    assert wanted == ["q", "q"]


def test_a_publish_that_has_to_wait_for_one_queue_is_in_none(vhost):
    other = declare(vhost, "other")
    for name in ("q", "other"):
        vhost.bind("amq.fanout", "queue", name, "", {}, None)
    with pytest.raises(NotIn):
        publish(vhost, b"new", exchange="amq.fanout")
    assert len(other) == 0


def test_a_consumer_gets_all_in_order_when_it_is_in(store, vhost, turns):
    consumer = Consumer()
    vhost.queues["q"].add_consumer(consumer, "q")
    turns.run()
    assert consumer.bodies == []
    bring(store, vhost, b"1", b"2")
    publish(vhost, b"3")
    turns.run()
    assert consumer.bodies == [b"1", b"2", b"3"]


def test_it_stays_in_after_a_restart(store, vhost, turns):
    bring(store, vhost, b"1")
    again = VHost("/", turns, store)
    assert not again.arriving
    assert drain(again.queues["q"]) == [b"1"]


def test_a_restart_before_that_knows_that_it_is_not_in(store, vhost, turns):
    again = VHost("/", turns, store)
    assert list(again.arriving) == ["q"]
    assert again.queues["q"].paused


def test_one_that_will_not_come_says_so(vhost):
    vhost.arriving["q"].failed = "2 of its messages cannot be read"
    with pytest.raises(Precondition, match="queue 'q' in vhost '/' is not served: 2 of its"):
        publish(vhost, b"new")


def test_a_dead_letter_waits_for_it_and_its_queue_stands_still(store, vhost, turns):
    source = declare(
        vhost, "source", dead_letter_exchange="", dead_letter_routing_key="q", message_ttl=0
    )
    publish(vhost, b"dead", key="source")
    turns.run()
    assert source.paused
    bring(store, vhost, b"1")
    turns.run()
    assert not source.paused
    assert drain(vhost.queues["q"]) == [b"1", b"dead"]
    assert len(source) == 0


def test_a_crash_loses_no_dead_letter_that_waits(store, vhost, turns):
    arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": "q"}
    source = declare(vhost, "source", **arguments)
    publish(vhost, b"dead", key="source")
    source.reject([source.get()])
    assert source.paused
    assert [m.body for m in store.queue("source").browse()] == [b"dead"]


def test_it_can_be_left_out_after_all(store, vhost, turns):
    vhost.leave_out("q")
    assert "q" not in vhost.queues
    assert not VHost("/", turns, store).queues


def test_a_message_as_a_rescue_writes_it_is_read_as_the_broker_s_own():
    from qindex.field_table import encode_table

    properties = encode_properties(Properties(delivery_mode=2, headers={"a": 1}))
    message = Message("x", ["k", "l"], properties, b"", persistent=True, expires_us=10**15)
    table = {
        "exchange": "x",
        "routing_keys": ["k", "l"],
        "expires_us": 10**15,
        "properties": properties,
    }
    assert encode_table(table) == message.to_table()
