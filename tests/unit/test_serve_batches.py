"""Publishes that come in one read: what they do is what they do one by one."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_client import RawClient, publish

from qindex.amqp import methods as m
from qindex.amqp.wire import encode_method
from qindex.broker.durable import DurableBacklog
from qindex.brokers.amqp import Properties, decode_properties, encode_properties
from qindex.errors import DiskFull
from qindex.serve import Broker, ways
from qindex.serve.batches import Contents, Part
from qindex.serve.confirms import Confirms

PERSISTENT = b"\x10\0\x02"
QUEUES = {
    "plain": {},
    "other": {},
    "priorities": {"max_priority": 3},
    "ttl": {"message_ttl": 600_000},
    "heard": {"message_ttl": 0},  # it has a consumer
    "short": {"max_length": 2},
    "refusing": {"max_length": 2, "overflow": "reject-publish"},
    "small": {"max_length_bytes": 5},
    "both": {
        "max_length": 3,
        "max_length_bytes": 4,
        "overflow": "reject-publish",
        "max_priority": 3,
    },
}


def set_up(client):
    for name, arguments in QUEUES.items():
        client.declare(name, **arguments)
    client.declare("transient", durable=False)
    for queue, exchange, key in (
        ("plain", "amq.topic", "a.*"),
        ("other", "amq.topic", "#.b"),
        ("transient", "amq.topic", "t.#"),
        ("plain", "amq.fanout", ""),
        ("priorities", "amq.fanout", ""),
        ("ttl", "amq.direct", "ttl"),
    ):
        client.ask(m.QueueBind(0, queue, exchange, key, False, {}), m.QueueBindOk)
    client.ask(m.QueueBind(0, "other", "amq.headers", "", False, {"h": 1}), m.QueueBindOk)
    client.ask(m.BasicConsume(0, "heard", "c", False, True, False, False, {}), m.BasicConsumeOk)
    client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)


def tear_down(client):
    for name in [*QUEUES, "transient"]:
        client.ask(m.QueueDelete(0, name, False, False, False), m.QueueDeleteOk)


def confirmed(client, count, answers=None):
    """Each number's answer, once all are there; and what came back, in order. `answers` are those
    that have come before.
    """
    answers, back = {} if answers is None else answers, []
    while len(answers) < count:
        got = client.expect((m.BasicAck, m.BasicNack, m.BasicReturn))
        if isinstance(got, m.BasicReturn):
            back.append((got.exchange, got.routing_key))
            continue
        first = 1 if got.multiple else got.delivery_tag
        for number in range(first, got.delivery_tag + 1):
            answers.setdefault(number, isinstance(got, m.BasicAck))
    return answers, back


PLACES = st.sampled_from(
    [
        *(("", name) for name in [*QUEUES, "transient", "nowhere"]),
        *(("amq.topic", key) for key in ("a.b", "a.c", "x.b", "t.b", "none")),
        *(("amq.fanout", "k"), ("amq.direct", "ttl"), ("amq.headers", "")),
    ]
)
PROPERTIES = st.builds(
    lambda **set_: encode_properties(Properties(**set_)),
    delivery_mode=st.sampled_from([None, 1, 2, 2]),
    priority=st.sampled_from([None, None, 2, 9]),
    headers=st.sampled_from([None, None, None, {"h": 1}, {"CC": ["other"]}]),
    message_id=st.sampled_from([None, "m"]),
    expiration=st.sampled_from([None, None, None, "600000"]),
)
MESSAGES = st.lists(st.tuples(PLACES, PROPERTIES, st.booleans()), min_size=2, max_size=30)


def bytes_of(messages):
    return b"".join(
        publish(*place, properties, b"%d" % number, mandatory=mandatory)
        for number, (place, properties, mandatory) in enumerate(messages)
    )


@pytest.fixture(scope="module", params=["memory", "directory"])
def broker(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("served") / "d" if request.param == "directory" else None
    with Broker(directory) as broker:
        yield broker


def outcome(broker, messages):
    with RawClient(broker.url) as client:
        set_up(client)
        try:
            answers, back = {}, []
            for times in (1, 2):  # the second time, the ways are known
                client.send(bytes_of(messages))
                back += confirmed(client, times * len(messages), answers)[1]
            count = 2 * sum(place == ("", "heard") for place, *_ in messages)
            heard = [client.expect(m.BasicDeliver).delivery_tag for _ in range(count)]
            assert heard == list(range(1, count + 1))
            client.heard.clear()
            return answers, back, {name: client.take_all(name) for name in [*QUEUES, "transient"]}
        finally:
            tear_down(client)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=MESSAGES)
def test_many_at_once_do_what_they_do_one_by_one(broker, messages):
    many = outcome(broker, messages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "batch_of", lambda *_: None)
        assert outcome(broker, messages) == many


def sent_by_celery(number):
    """Properties as kombu writes them for a task; each task has its own."""
    name = f"0b9c7ab0-{number:04}"
    headers = {"lang": "py", "task": "add", "id": name, "eta": None, "retries": 0, "ignore": False}
    headers |= {"timelimit": [None, None], "origin": "gen1@host", "stamps": {}, "group": None}
    kind, code = "application/json", "utf-8"
    named = {"content_type": kind, "content_encoding": code, "priority": 0, "delivery_mode": 2}
    return encode_properties(
        Properties(headers=headers, correlation_id=name, reply_to="r", **named)
    )


def test_usual_publishes_are_batches(broker, monkeypatch):
    made = []
    real = ways.batch_of
    monkeypatch.setattr(ways, "batch_of", lambda *a: made.append(real(*a)) or made[-1])
    places = [("", "plain"), ("amq.topic", "a.b"), ("amq.fanout", "k"), ("amq.direct", "ttl")]
    messages = [(places[number % 4], sent_by_celery(number), True) for number in range(40)]
    answers, back, found = outcome(broker, messages)
    assert made
    assert None not in made
    assert (back, set(answers.values())) == ([], {True})
    bodies = {name: [int(body) for *_, body in found[name]] for name in found}
    assert bodies["plain"] == [number for number in range(40) if number % 4 != 3] * 2
    assert bodies["other"] == list(range(1, 40, 4)) * 2
    assert bodies["ttl"] == list(range(3, 40, 4)) * 2
    assert decode_properties(found["ttl"][0][2]).delivery_mode == 2


def test_a_publish_to_no_exchange_closes_its_channel_where_it_stands(broker):
    with RawClient(broker.url, channels=(1, 2)) as client:
        client.declare("q")
        good, bad = publish("", "q", PERSISTENT, b"1"), publish("no", "q", PERSISTENT, b"2")
        other = publish("", "q", PERSISTENT, b"4", channel=2)
        client.send(good + bad + publish("", "q", PERSISTENT, b"3") + other)
        assert client.expect(m.ChannelClose).reply_code == 404
        client.call(m.ChannelCloseOk())
        client.ask(m.ChannelOpen(""), m.ChannelOpenOk)
        assert [body for *_, body in client.take_all("q")] == [b"1", b"4"]
        client.ask(m.QueueDelete(0, "q", False, False, False), m.QueueDeleteOk)


def test_a_full_disk_in_the_middle_loses_nothing_and_doubles_nothing(tmp_path, monkeypatch):
    full = [3]
    real = DurableBacklog.publish_many

    def publish_many(self, publishes, shares, awaited):
        if self._name == "other" and full[0]:
            full[0] -= 1
            raise DiskFull("no room")
        return real(self, publishes, shares, awaited)

    monkeypatch.setattr(DurableBacklog, "publish_many", publish_many)
    with Broker(tmp_path / "d") as broker, RawClient(broker.url) as client:
        set_up(client)
        places = [("", "plain"), ("", "other"), ("", "priorities")]
        client.send(
            bytes_of([(places[number % 3], PERSISTENT, True) for number in range(30)])
            + encode_method(1, m.BasicQos(0, 1, False))
            + bytes_of([(("", "short"), PERSISTENT, True)] * 4)
        )
        client.expect(m.ConnectionBlocked)
        client.expect(m.ConnectionUnblocked)
        client.expect(m.BasicQosOk)
        answers, _ = confirmed(client, 34)
        assert set(answers.values()) == {True}
        for first, name in enumerate(("plain", "other", "priorities")):
            found = [int(body) for *_, body in client.take_all(name)]
            assert found == list(range(first, 30, 3))
        assert [body for *_, body in client.take_all("short")] == [b"2", b"3"]


@pytest.mark.parametrize("stopped", ["plain", "other"])
def test_a_publish_that_the_disk_stops_is_in_no_queue_twice(tmp_path, monkeypatch, stopped):
    full = [3]
    real = DurableBacklog.publish

    def publish_one(self, message, due_us=0):
        if self._name == stopped and full[0]:
            full[0] -= 1
            raise DiskFull("no room")
        return real(self, message, due_us)

    monkeypatch.setattr(DurableBacklog, "publish", publish_one)
    with Broker(tmp_path / "d") as broker, RawClient(broker.url) as client:
        set_up(client)
        for body in (b"1", b"2"):
            client.send(publish("amq.topic", "a.b", PERSISTENT, body))
            client.expect(m.BasicAck)
        client.heard.clear()
        assert full == [0]
        for name in ("plain", "other"):
            assert [body for *_, body in client.take_all(name)] == [b"1", b"2"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 4), st.booleans(), st.booleans()),
        st.tuples(st.sampled_from(["sync", "take"])),
    )
)


@given(STEPS)
def test_confirms_name_each_number_once_and_none_too_early(steps):
    confirms = Confirms(lambda count: None)
    waiting, open_, refused_ones = {}, set(), set()
    answered = {}

    def take():
        refused, acks = confirms.take()
        for number in refused:
            answered[number] = False
        for number, multiple in acks:
            for each in range(1 if multiple else number, number + 1):
                assert each not in waiting
                assert multiple or each not in answered
                answered.setdefault(each, True)
        assert not confirms.has_news

    for kind, *rest in steps:
        if kind == "publish":
            count, refused, waits = rest
            for number in range(confirms.next, confirms.next + count):
                open_.add(number)
                if refused:
                    refused_ones.add(number)
                elif waits:
                    waiting[number] = None
            confirms.published(count, refused=refused, waits=waits)
            assert confirms.last_waiting == max(waiting, default=0)
        elif kind == "sync":
            confirms.synced(confirms.last_waiting)
            waiting.clear()
        else:
            take()
    confirms.synced(confirms.last_waiting)
    waiting.clear()
    take()
    assert answered == {number: number not in refused_ones for number in open_}


def acks(*tags):
    return b"".join(encode_method(1, m.BasicAck(tag, multiple)) for tag, multiple in tags)


def test_an_unknown_tag_among_many_acks_ends_the_channel_and_those_before_it_count(broker):
    with RawClient(broker.url, channels=(1, 2)) as client:
        client.declare("acked")
        try:
            client.send(b"".join(publish("", "acked", PERSISTENT, b"%d" % n) for n in range(8)))
            client.ask(m.BasicConsume(0, "acked", "t", *[False] * 4, {}), m.BasicConsumeOk)
            for _ in range(8):
                client.expect(m.BasicDeliver)
            client.send(acks((6, False), (3, True), (9, False), (8, True)))
            closed = client.expect(m.ChannelClose)
            text = "PRECONDITION_FAILED - unknown delivery tag 9"
            assert (closed.reply_code, closed.reply_text) == (406, text)
            assert (closed.class_id, closed.method_id) == (60, 80)
            client.call(m.ChannelCloseOk())
            client.ask(m.ChannelOpen(""), m.ChannelOpenOk)
            client.heard.clear()
            assert [body for *_, body in client.take_all("acked")] == [b"3", b"4", b"6", b"7"]
        finally:
            client.ask(m.QueueDelete(0, "acked", False, False, False), m.QueueDeleteOk)


def test_consumers_in_turn_get_what_each_has_credit_for_and_what_expired_is_left_out(broker):
    with RawClient(broker.url) as client:
        client.declare("turns", dead_letter_exchange="", dead_letter_routing_key="dead")
        client.declare("dead")
        expiring = encode_properties(Properties(delivery_mode=2, expiration="1"))
        try:
            client.send(
                b"".join(
                    publish("", "turns", expiring if n % 5 == 4 else PERSISTENT, b"%d" % n)
                    for n in range(40)
                )
            )
            time.sleep(0.1)
            for tag, prefetch in (("few", 3), ("many", 0)):
                client.ask(m.BasicQos(0, prefetch, False), m.BasicQosOk)
                client.ask(m.BasicConsume(0, "turns", tag, *[False] * 4, {}), m.BasicConsumeOk)
            told = [client.expect(m.BasicDeliver) for _ in range(32)]
            assert [each.delivery_tag for each in told] == list(range(1, 33))
            assert sum(each.consumer_tag == "few" for each in told) == 3
            client.send(acks((0, True)))
            client.heard.clear()
            dead = [body for *_, body in client.take_all("dead")]
            assert dead == [b"%d" % n for n in range(4, 40, 5)]
        finally:
            for name in ("turns", "dead"):
                client.ask(m.QueueDelete(0, name, False, False, False), m.QueueDeleteOk)


def test_a_full_disk_at_a_queue_that_may_refuse_loses_nothing_and_doubles_nothing(
    tmp_path, monkeypatch
):
    full = [3]
    real = DurableBacklog.publish

    def publish_one(self, message, due_us=0):
        if message.body == b"5" and full[0]:
            full[0] -= 1
            raise DiskFull("no room")
        return real(self, message, due_us)

    monkeypatch.setattr(DurableBacklog, "publish", publish_one)
    with Broker(tmp_path / "d") as broker, RawClient(broker.url) as client:
        set_up(client)
        client.declare("eight", max_length=8, overflow="reject-publish")
        places = [("", "plain"), ("", "eight")]
        client.send(bytes_of([(places[number % 2], PERSISTENT, True) for number in range(30)]))
        client.expect(m.ConnectionBlocked)
        client.expect(m.ConnectionUnblocked)
        answers, back = confirmed(client, 30)
        assert full == [0]
        assert back == []
        assert [number for number, is_in in answers.items() if not is_in] == list(range(18, 31, 2))
        found = [int(body) for *_, body in client.take_all("eight")]
        assert found == list(range(1, 16, 2))
        found = [int(body) for *_, body in client.take_all("plain")]
        assert found == list(range(0, 30, 2))


def test_a_batch_over_many_queues_in_memory_looks_at_each_message_once():
    class Counting:
        """As the scanner's Publishes are, which make all of their messages at each call."""

        calls = 0

        def contents(self):
            self.calls += 1
            return [(number % 50, b"", b"%d" % number) for number in range(500)]

    messages = Counting()
    contents = Contents(messages)
    parts = [Part(messages, contents, [number]) for number in range(50)]
    assert [len(part.contents()) for part in parts] == [10] * 50
    assert [body for *_, body in parts[7].contents()] == [b"%d" % n for n in range(7, 500, 50)]
    assert messages.calls == 1
    both = Part(messages, contents, [9, 4]).contents()  # a queue that is bound twice
    assert [body for *_, body in both[:4]] == [b"4", b"9", b"54", b"59"]
    assert messages.calls == 1
