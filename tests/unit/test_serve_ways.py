"""Publishes whose way is remembered: they go there, until something about it changes."""

from __future__ import annotations

import asyncio
import ctypes

import pytest
from raw_client import RawClient, publish

from qindex._core import lib
from qindex.amqp import methods as m
from qindex.broker.queues import Queue
from qindex.broker.users import Permission
from qindex.serve import Broker, ways

PERSISTENT, TRANSIENT = b"\x10\0\x02", b"\x10\0\x01"
PUBLISH_BODIES = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p),
    ctypes.c_void_p,
)


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "d") as broker:
        yield broker


@pytest.fixture
def straight(monkeypatch):
    """How many publishes of each event have gone by ways that were known."""
    counts = []
    run = ways.Straight.run

    def counted(self):
        counts.append(len(self._messages))
        run(self)

    monkeypatch.setattr(ways.Straight, "run", counted)
    return counts


def in_loop(broker, function):
    """What a function returns that the event loop of the broker calls."""

    async def call():
        return function()

    return asyncio.run_coroutine_threadsafe(call(), broker._server.loop).result(60)


def many(names, bodies, exchange="", properties=PERSISTENT):
    """Each body to each of these queues."""
    return b"".join(publish(exchange, name, properties, body) for body in bodies for name in names)


def confirmed(client, count):
    """Wait until so many publishes are confirmed, in whatever order."""
    answered = vars(client).setdefault("answered", set())
    while len(answered) < count:
        ack = client.expect(m.BasicAck)
        first = 1 if ack.multiple else ack.delivery_tag
        answered.update(range(first, ack.delivery_tag + 1))


def bodies_of(client, name):
    return [body for *_, body in client.take_all(name)]


def test_what_was_published_before_goes_the_known_way(broker, straight):
    names = [f"q{number}" for number in range(300)]  # more than one event has groups for
    with RawClient(broker.url) as client:
        for name in names:
            client.declare(name)
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        for times in range(1, 4):
            client.send(many(names, [b"%d a" % times, b"%d b" % times]))
            confirmed(client, times * 600)
        assert sum(straight) >= 1200
        client.heard.clear()
        for name in names[::50]:
            assert bodies_of(client, name) == [b"1 a", b"1 b", b"2 a", b"2 b", b"3 a", b"3 b"]
            client.heard.clear()


def test_persistence_and_priority_go_the_known_way_too(broker, straight):
    with RawClient(broker.url) as client:
        client.declare("q", max_priority=5)
        client.declare("other")
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        urgent = b"\x18\0\x02\x09"
        for times in range(1, 4):
            client.send(many(["q", "other"], [b"low"]))
            confirmed(client, 4 * times - 2)
            client.send(many(["q"], [b"high"], properties=urgent))
            client.send(many(["other"], [b"gone"], properties=TRANSIENT))
            confirmed(client, 4 * times)
        assert sum(straight) >= 8
        client.heard.clear()
        assert bodies_of(client, "q") == [b"high"] * 3 + [b"low"] * 3

    def look():
        queue = broker._server.node.vhost("/").queues["other"]
        return {message.body: message.persistent for _, message in queue.backlog.browse()}

    assert in_loop(broker, look) == {b"low": True, b"gone": False}


def delete(client, broker):
    client.ask(m.QueueDelete(0, "q", False, False, False), m.QueueDeleteOk)


def limit(client, broker):
    delete(client, broker)
    client.declare("q", max_length=1)


def unbind(client, broker):
    client.ask(m.QueueUnbind(0, "q", "x", "k", {}), m.QueueUnbindOk)


def bind_other(client, broker):
    client.ask(m.QueueBind(0, "other", "x", "k", False, {}), m.QueueBindOk)


def delete_exchange(client, broker):
    client.ask(m.ExchangeDelete(0, "x", False, False), m.ExchangeDeleteOk)
    client.ask(
        m.ExchangeDeclare(0, "x", "fanout", False, False, False, False, False, {}),
        m.ExchangeDeclareOk,
    )
    client.ask(m.QueueBind(0, "other", "x", "", False, {}), m.QueueBindOk)


@pytest.mark.parametrize(
    ("change", "in_q", "in_other"),
    [
        (delete, None, []),
        (limit, [], []),
        (unbind, [b"1", b"2"], []),
        (bind_other, [b"1", b"2", b"3", b"4"], [b"3", b"4"]),
        (delete_exchange, [b"1", b"2"], [b"3", b"4"]),
    ],
)
def test_a_change_counts_for_the_next_publish(broker, straight, change, in_q, in_other):
    with RawClient(broker.url) as client:
        client.declare("q")
        client.declare("other")
        declare = m.ExchangeDeclare(0, "x", "direct", False, False, False, False, False, {})
        client.ask(declare, m.ExchangeDeclareOk)
        client.ask(m.QueueBind(0, "q", "x", "k", False, {}), m.QueueBindOk)
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        for number, body in enumerate((b"1", b"2"), 1):
            client.send(publish("x", "k", PERSISTENT, body))
            confirmed(client, number)
        assert straight == [1]
        change(client, broker)
        for number, body in enumerate((b"3", b"4"), 3):
            client.send(publish("x", "k", PERSISTENT, body))
            confirmed(client, number)
        client.heard.clear()
        if in_q is not None:
            assert bodies_of(client, "q") == in_q
            client.heard.clear()
        assert bodies_of(client, "other") == in_other


def test_a_queue_that_was_made_anew_with_a_limit_keeps_to_it(broker, straight):
    with RawClient(broker.url) as client:
        client.declare("q")
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        for number in range(1, 4):
            client.send(publish("", "q", PERSISTENT, b"%d" % number))
            confirmed(client, number)
        assert straight == [1, 1]
        limit(client, broker)
        for number in range(4, 7):
            client.send(publish("", "q", PERSISTENT, b"%d" % number))
            confirmed(client, number)
        client.heard.clear()
        assert bodies_of(client, "q") == [b"6"]


def test_a_permission_that_is_taken_away_counts_for_the_next_publish(broker, straight):
    with RawClient(broker.url) as client:
        client.declare("q")
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        for number in (1, 2):
            client.send(publish("", "q", PERSISTENT, b"x"))
            confirmed(client, number)
        assert straight == [1]
        users, permission = broker._server.node.users, Permission(".*", "^no$", ".*")
        in_loop(broker, lambda: users.set_permissions("/", "guest", permission))
        client.send(publish("", "q", PERSISTENT, b"x"))
        assert client.expect(m.ChannelClose).reply_code == 403


def test_a_way_is_known_to_all_connections_of_its_user_and_to_no_other_user(broker, straight):
    def send_one(url, channel):
        with RawClient(url, channels=(1, channel)) as client:
            client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk, channel)
            client.send(publish("", "q", PERSISTENT, b"x", channel=channel))
            return client.expect((m.BasicAck, m.ChannelClose))

    def add_reader():
        users = broker._server.node.users
        users.add("reader", "guest")
        users.set_permissions("/", "reader", Permission("", "", ".*"))

    in_loop(broker, add_reader)
    with RawClient(broker.url) as client:
        client.declare("q")
        for channel, known in ((2, []), (3, [1]), (4, [1, 1])):
            assert isinstance(send_one(broker.url, channel), m.BasicAck)
            assert straight == known
        refused = send_one(broker.url.replace("guest:", "reader:"), 2)
        assert (refused.reply_code, straight) == (403, [1, 1])
        assert bodies_of(client, "q") == [b"x"] * 3


def test_queues_of_connections_come_and_go_without_a_word_to_those_who_publish(broker, straight):
    with RawClient(broker.url) as client, RawClient(broker.url) as other:
        client.declare("q")
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        for number in range(1, 5):
            other.declare("r", durable=False)
            client.send(publish("", "q", PERSISTENT, b"x"))
            confirmed(client, number)
            other.ask(m.QueueDelete(0, "r", False, False, False), m.QueueDeleteOk)
        assert straight == [1, 1, 1]
        other.declare("r", durable=False)
        other.ask(m.QueueBind(0, "r", "amq.fanout", "", False, {}), m.QueueBindOk)
        client.send(publish("", "q", PERSISTENT, b"x"))
        confirmed(client, 5)
        assert straight == [1, 1, 1]  # a binding may lead anywhere
        other.ask(m.QueueDelete(0, "r", False, False, False), m.QueueDeleteOk)
        client.send(publish("amq.fanout", "", PERSISTENT, b"x"))
        confirmed(client, 6)
        assert len(bodies_of(client, "q")) == 5


def test_ways_of_what_is_deleted_are_forgotten(broker):
    server = broker._server

    def play():
        node = server.node
        node.users.add("ann", "secret")
        node.add_vhost("work")
        slash, work = node.vhost("/"), node.vhost("work")
        kept = server.ways_of(slash, "guest")
        for vhost, user in ((work, "guest"), (slash, "ann")):
            server.ways_of(vhost, user)
        node.users.delete("ann")
        node.delete_vhost("work")
        node.users.add("ben", "secret")
        server.ways_of(slash, "ben")
        assert set(server._ways) == {(slash, "guest"), (slash, "ben")}
        assert server.ways_of(slash, "guest") is kept

    in_loop(broker, play)


def test_a_channel_that_is_opened_anew_has_no_confirms_of_the_one_before(broker, straight):
    with RawClient(broker.url) as client:
        client.declare("q")
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        for number in (1, 2):
            client.send(publish("", "q", PERSISTENT, b"x"))
            confirmed(client, number)
        client.ask(m.ChannelClose(200, "", 0, 0), m.ChannelCloseOk)
        client.ask(m.ChannelOpen(""), m.ChannelOpenOk)
        client.send(publish("", "q", PERSISTENT, b"x") * 2)
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        client.send(publish("", "q", PERSISTENT, b"x"))
        assert client.expect(m.BasicAck).delivery_tag == 1
        client.heard.clear()
        assert len(bodies_of(client, "q")) == 5


def test_consumers_hear_of_messages_that_came_the_known_way(broker, straight):
    with RawClient(broker.url) as client:
        client.declare("q")
        client.ask(m.BasicConsume(0, "q", "c", False, True, False, False, {}), m.BasicConsumeOk)
        for _ in range(3):
            client.send(publish("", "q", PERSISTENT, b"x") * 3)
            for _ in range(3):
                client.expect(m.BasicDeliver)
        assert straight == [3, 3]


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("without", ["a", "c"])
def test_a_full_disk_loses_nothing_and_doubles_nothing(
    broker, straight, monkeypatch, without, is_deleted
):
    names, full = ["a", "b", "c", "d"], []
    real = PUBLISH_BODIES(ways.PUBLISH_BODIES)

    def without_room(queue, *rest):
        if queue in full:
            full.remove(queue)
            return lib.QI_E_FULL
        return real(queue, *rest)

    function = PUBLISH_BODIES(without_room)
    address = ctypes.cast(function, ctypes.c_void_p).value
    with RawClient(broker.url) as client, RawClient(broker.url) as other:
        for name in names:
            client.declare(name)
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        client.send(many(names, [b"1", b"2"]))
        confirmed(client, 8)
        monkeypatch.setattr(ways, "PUBLISH_BODIES", address)

        def is_full():
            backlog = broker._server.node.vhost("/").queues[without].backlog
            full.extend([backlog.way("", without, persistent=True, priority=0)[0]] * 3)

        in_loop(broker, is_full)
        client.send(many(names, [b"3", b"4"]))
        client.expect(m.ConnectionBlocked)
        other.declare("other")  # what it sends is read into the bytes of the one that waits
        other.send(many(["other"], [b"y" * 90] * 20))
        if is_deleted:
            other.ask(m.QueueDelete(0, without, False, False, False), m.QueueDeleteOk)
        client.expect(m.ConnectionUnblocked)
        confirmed(client, 16)
        client.heard.clear()
        for name in names:
            if name == without and is_deleted:
                continue
            assert bodies_of(client, name) == [b"1", b"2", b"3", b"4"]
            client.heard.clear()


def test_only_queues_with_consumers_cost_python_a_call(broker, straight, monkeypatch):
    names, woken = [f"q{number}" for number in range(20)], []
    wake = Queue.wake
    with RawClient(broker.url) as client, RawClient(broker.url) as consumer:
        for name in names:
            client.declare(name)
        consume = m.BasicConsume(0, "q7", "c", False, True, False, False, {})
        consumer.ask(consume, m.BasicConsumeOk)
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        client.send(many(names, [b"1"]))
        confirmed(client, 20)
        monkeypatch.setattr(Queue, "wake", lambda self: woken.append(self.name) or wake(self))
        client.send(many(names, [b"2", b"3"]))
        confirmed(client, 60)
        assert sum(straight) == 40
        assert set(woken) == {"q7"}
        consumer.ask(m.BasicCancel("c", False), m.BasicCancelOk)
        woken.clear()
        client.send(many(names, [b"4"]))
        confirmed(client, 80)
        assert woken == []

    def look():
        queues = broker._server.node.vhost("/").queues
        return [(len(queues[name]), queues[name].published) for name in names]

    assert in_loop(broker, look) == [(1 if name == "q7" else 4, 4) for name in names]


def test_two_groups_for_one_queue_keep_their_order(broker):
    turns = [(b"%d" % at, PERSISTENT if at % 2 else TRANSIENT) for at in range(6)]
    sent = b"".join(publish("", "q", properties, body) for body, properties in turns)
    with RawClient(broker.url) as client:
        client.declare("q")
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        for times in (1, 2):
            client.send(sent)
            confirmed(client, 6 * times)
        client.heard.clear()
        assert bodies_of(client, "q") == [body for body, _ in turns] * 2
