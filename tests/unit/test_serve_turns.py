"""Whose a message is: consumers of one queue that come and go, and what each of them settles."""

from __future__ import annotations

import time

import pytest
from raw_client import RawClient, publish

from qindex.amqp import methods as m
from qindex.broker.backlog import MemoryBacklog
from qindex.brokers.amqp import decode_properties
from qindex.errors import DiskFull
from qindex.serve import Broker

PERSISTENT = b"\x10\0\x02"


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with RawClient(broker.url) as client:
        client.socket.settimeout(20)
        yield client


def send(client, queue, *bodies):
    client.send(b"".join(publish("", queue, PERSISTENT, body) for body in bodies))


def consume(client, queue, tag, *, prefetch=0, no_ack=False, channel=1):
    client.ask(m.BasicQos(0, prefetch, False), m.BasicQosOk, channel)
    consume = m.BasicConsume(0, queue, tag, False, no_ack, False, False, {})
    client.ask(consume, m.BasicConsumeOk, channel)


def test_a_cancelled_consumer_whose_tag_is_used_again_gets_nothing_more(client):
    client.declare("one")
    client.declare("two")
    send(client, "one", b"a", b"b", b"c")
    consume(client, "one", "tag", prefetch=1)
    first = client.expect(m.BasicDeliver)
    client.ask(m.BasicCancel("tag", False), m.BasicCancelOk)
    consume(client, "two", "tag", prefetch=1)
    client.call(m.BasicAck(first.delivery_tag, False))
    client.ask(m.BasicQos(0, 0, False), m.BasicQosOk)
    client.heard.clear()
    assert [body for *_, body in client.take_all("one")] == [b"b", b"c"]
    send(client, "two", b"d")
    assert client.expect(m.BasicDeliver).routing_key == "two"


def test_a_single_active_consumer_goes_on_behind_its_prefetch(client):
    client.declare("q", single_active_consumer=True)
    send(client, "q", *(b"%d" % number for number in range(7)))
    consume(client, "q", "first", prefetch=2)
    consume(client, "q", "second", prefetch=2)
    for last in (2, 4, 6):
        tags = [client.expect(m.BasicDeliver) for _ in range(2)]
        assert [each.consumer_tag for each in tags] == ["first"] * 2
        assert tags[-1].delivery_tag == last
        client.call(m.BasicAck(last, True))
    client.expect(m.BasicDeliver)
    client.ask(m.BasicCancel("first", False), m.BasicCancelOk)
    send(client, "q", b"7")
    assert client.expect(m.BasicDeliver).consumer_tag == "second"


def test_a_time_to_live_of_0_in_one_read_reaches_the_consumer_that_is_ready(client):
    client.declare("q", message_ttl=0)
    consume(client, "q", "c", no_ack=True)
    send(client, "q", *(b"%d" % number for number in range(200)))
    tags = [client.expect(m.BasicDeliver).delivery_tag for _ in range(200)]
    assert tags == list(range(1, 201))


def test_a_quorum_queue_in_memory_says_how_often_a_message_was_delivered(client):
    client.declare("q", queue_type="quorum")
    consume(client, "q", "c")
    send(client, "q", b"x")
    counts = []
    for _ in range(3):
        tag = client.expect(m.BasicDeliver).delivery_tag
        while len(client.heard) < 2:
            client.hear()
        (_, header), _ = client.heard
        counts.append((decode_properties(header[12:]).headers or {}).get("x-delivery-count"))
        client.heard.clear()
        client.call(m.BasicNack(tag, False, True))
    assert counts == [None, 1, 2]


def test_dead_letters_of_several_consumers_leave_in_the_order_of_their_messages(client):
    client.declare("dead")
    client.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    consume(client, "q", "a")
    consume(client, "q", "b")
    bodies = [b"%d" % number for number in range(6)]
    send(client, "q", *bodies)
    tags = [client.expect(m.BasicDeliver).consumer_tag for _ in bodies]
    assert set(tags) == {"a", "b"}
    client.call(m.BasicNack(0, True, False))
    client.ask(m.BasicQos(0, 0, False), m.BasicQosOk)
    client.heard.clear()
    assert [body for *_, body in client.take_all("dead")] == bodies


@pytest.mark.parametrize("error", [DiskFull("no room"), RuntimeError("a bug")])
def test_an_error_of_one_channel_that_ends_keeps_nothing_else_of_its_connection(
    broker, client, monkeypatch, error
):
    client.declare("dead")
    client.declare("other")
    client.declare("q", max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    real = MemoryBacklog.publish

    def publish_one(self, message, due_us=0):
        if message.routing_keys == ["dead"]:
            raise error
        return real(self, message, due_us)

    gone = RawClient(broker.url, channels=(1, 2))
    consume(gone, "q", "a")
    consume(gone, "other", "b", channel=2)
    gone.ask(m.QueueDeclare(0, "mine", False, False, True, False, False, {}), m.QueueDeclareOk)
    send(client, "q", b"1", b"2")
    send(client, "other", b"3")
    for _ in range(3):
        gone.expect(m.BasicDeliver)
    monkeypatch.setattr(MemoryBacklog, "publish", publish_one)
    gone.socket.close()
    until = time.monotonic() + 20
    while len(broker.server.sessions) > 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert len(broker.server.sessions) == 1
    monkeypatch.setattr(MemoryBacklog, "publish", real)
    assert [body for *_, body in client.take_all("other")] == [b"3"]
    client.ask(m.QueueDeclare(0, "mine", False, False, True, False, False, {}), m.QueueDeclareOk)
    send(client, "other", b"4")
    client.ask(m.BasicQos(0, 0, False), m.BasicQosOk)
    client.heard.clear()
    assert [body for *_, body in client.take_all("other")] == [b"4"]
    both = client.take_all("q") + client.take_all("dead")
    assert sorted(body for *_, body in both) == [b"1", b"2"]


@pytest.mark.parametrize("prefetch", [1, 10])
@pytest.mark.parametrize("is_busy", [False, True])
def test_queues_whose_consumers_share_a_prefetch_take_turns(client, prefetch, is_busy):
    """A busy queue is woken before each ack, too: it waits for its turn all the same."""
    queues = ["f0", "f1", "f2", "f3"]
    for queue in queues:
        client.declare(queue)
        send(client, queue, *[b"x"] * (200 if queue == "f0" else 40))
    client.ask(m.BasicQos(0, prefetch, True), m.BasicQosOk)
    for queue in queues:
        consume = m.BasicConsume(0, queue, queue, False, False, False, False, {})
        client.ask(consume, m.BasicConsumeOk)
    got = []
    for _ in range(1 + 160 // prefetch):
        delivers = [client.expect(m.BasicDeliver) for _ in range(prefetch)]
        got += [each.routing_key for each in delivers]
        if is_busy:
            send(client, "f0", b"y")
        client.call(m.BasicAck(delivers[-1].delivery_tag, True))
    del got[:prefetch]  # when the others had not come yet
    assert got == [queue for queue in queues for _ in range(prefetch)] * (40 // prefetch)
