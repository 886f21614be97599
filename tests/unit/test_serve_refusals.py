"""What RabbitMQ 3.10.8 says when it refuses something, word by word; each line was seen there."""

from __future__ import annotations

import pika
import pytest
from broker_process import connect
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker
from raw_client import RawClient, publish

from qindex.amqp import methods as m
from qindex.serve.fixture import qindex_broker  # noqa: F401 - the fixture

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left_to_other_tests"),
]
QUEUE = "queue 'q' in vhost '/'"


@pytest.fixture
def channel(qindex_broker):  # noqa: F811
    with connect(qindex_broker.url) as connection:
        yield connection.channel()


def refusal(channel, call):
    def ask():
        call(channel)
        channel.queue_declare("behind")  # a publish is not answered

    with pytest.raises((ChannelClosedByBroker, ConnectionClosedByBroker)) as caught:
        ask()
    return caught.value.reply_code, caught.value.reply_text


def declare(arguments, **options):
    return lambda channel: channel.queue_declare("q", arguments=arguments, **options)


NO_INTEGER = '"expected integer, got longstr"'


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("x-message-ttl", "5", NO_INTEGER),
        ("x-max-length", "5", NO_INTEGER),
        ("x-max-priority", "5", NO_INTEGER),
        ("x-expires", "5", NO_INTEGER),
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", 2**50, f"{{value_too_large,{2**50}}}"),
        ("x-overflow", 5, "{unacceptable_type,signedint}"),
        ("x-overflow", "zz", "invalid_overflow"),
        ("x-queue-type", 5, "{unacceptable_type,signedint}"),
        ("x-queue-type", "zz", "\"unsupported queue type 'zz'\""),
    ],
)
def test_an_argument_that_cannot_be(channel, name, value, why):
    wanted = f"PRECONDITION_FAILED - invalid arg '{name}' for {QUEUE}: {why}"
    assert refusal(channel, declare({name: value})) == (406, wanted)


def twice(first, second):
    def call(channel):
        channel.queue_declare("q", arguments=first)
        channel.queue_declare("q", arguments=second)

    return call


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({"x-message-ttl": 5}, {"x-message-ttl": 6}, "received '6' but current is '5'"),
        ({"x-max-length": 5}, {"x-max-length": "5"}, None),
        (
            {"x-single-active-consumer": True},
            {},
            "received none but current is the value 'true' of type 'bool'",
        ),
        (
            {"x-single-active-consumer": True},
            {"x-single-active-consumer": False},
            "received 'false' but current is 'true'",
        ),
    ],
)
def test_a_second_declaration_that_differs(channel, first, second, text):
    name = next(iter(first))
    if text is None:
        text = "received '5' but current is '5'"
    wanted = f"PRECONDITION_FAILED - inequivalent arg '{name}' for {QUEUE}: {text}"
    assert refusal(channel, twice(first, second)) == (406, wanted)


def test_a_classic_queue_may_say_so_or_not(channel):
    channel.queue_declare("q")
    channel.queue_declare("q", arguments={"x-queue-type": "classic"})
    channel.queue_declare("q")


OF_QUORUM = "of queue type rabbit_quorum_queue"
X = "exchange 'x' in vhost '/'"
FIVE = "signedint (value 5)"
MATCHES = "all, any, all-with-x, or any-with-x"
QUORUM = {"x-queue-type": "quorum"}


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (
            declare(QUORUM, durable=True, exclusive=True),
            406,
            f"PRECONDITION_FAILED - invalid property 'exclusive-owner' for {QUEUE}",
        ),
        (
            declare(QUORUM, durable=True, auto_delete=True),
            406,
            f"PRECONDITION_FAILED - invalid property 'auto-delete' for {QUEUE}",
        ),
        (
            declare({**QUORUM, "x-max-priority": 3}, durable=True),
            406,
            f"PRECONDITION_FAILED - invalid arg 'x-max-priority' for {QUEUE} {OF_QUORUM}",
        ),
        (
            declare({"x-dead-letter-exchange": 5}),
            406,
            "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in "
            + QUEUE,
        ),
        (
            lambda c: c.exchange_declare("x", arguments={"alternate-exchange": 5}),
            406,
            f"PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in {X}",
        ),
        (
            lambda c: c.exchange_declare("x", "nope"),
            503,
            "COMMAND_INVALID - unknown exchange type 'nope'",
        ),
        (
            lambda c: c.basic_publish("", "k", b"", pika.BasicProperties(headers={"CC": "b"})),
            406,
            'PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC",longstr}',
        ),
        (
            lambda c: c.basic_publish("", "k", b"", pika.BasicProperties(expiration=str(2**50))),
            406,
            f"PRECONDITION_FAILED - invalid expiration '{2**50}': {{value_too_large,{2**50}}}",
        ),
        (
            lambda c: bind_headers(c, {"x-match": "zz"}),
            406,
            f'PRECONDITION_FAILED - Invalid x-match field value <<"zz">>; expected {MATCHES}',
        ),
        (
            lambda c: bind_headers(c, {"x-match": 5}),
            406,
            f"PRECONDITION_FAILED - Invalid x-match field type {FIVE}; expected longstr",
        ),
        (
            lambda c: consume_with(c, {"x-priority": "x"}),
            406,
            f"PRECONDITION_FAILED - invalid arg 'x-priority' for {QUEUE}: {NO_INTEGER}",
        ),
    ],
)
def test_a_method_that_is_refused(channel, call, code, text):
    assert refusal(channel, call) == (code, text)


def bind_headers(channel, arguments):
    channel.queue_declare("q")
    channel.queue_bind("q", "amq.headers", "", arguments)


def consume_with(channel, arguments):
    channel.queue_declare("q")
    channel.basic_consume("q", print, arguments=arguments)


def test_what_is_not_bound_can_be_unbound(channel):
    channel.queue_declare("q")
    channel.queue_unbind("q", "amq.direct", "k")
    channel.queue_unbind("q", "nowhere", "k")
    channel.queue_unbind("nothing", "amq.direct", "k")


def test_an_empty_routing_key_has_no_words(channel):
    for pattern in ("#", "*", ""):
        channel.queue_declare(f"q{pattern}")
        channel.queue_bind(f"q{pattern}", "amq.topic", pattern)
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "", b"1")
    counts = {
        pattern: channel.queue_declare(f"q{pattern}", passive=True).method.message_count
        for pattern in ("#", "*", "")
    }
    assert counts == {"#": 1, "*": 0, "": 1}
    channel.queue_unbind("q", "amq.topic", "")


def test_a_single_active_consumer_stays_it_until_it_leaves(channel):
    channel.queue_declare("q", arguments={"x-single-active-consumer": True})
    got = []
    for tag, priority in (("first", 0), ("second", 1), ("third", 5)):
        channel.basic_consume(
            "q",
            lambda c, method, *_: got.append(method.consumer_tag),
            auto_ack=True,
            consumer_tag=tag,
            arguments={"x-priority": priority},
        )
    channel.basic_publish("", "q", b"1")
    while len(got) < 1:
        channel.connection.process_data_events(time_limit=1)
    channel.basic_cancel("first")
    channel.basic_publish("", "q", b"2")
    while len(got) < 2:
        channel.connection.process_data_events(time_limit=1)
    assert got == ["first", "third"]


OF_A_STREAM = f"invalid arg 'x-stream-offset' for {QUEUE} of queue type rabbit"


@pytest.mark.parametrize(
    ("kind", "name", "value", "why"),
    [
        ("classic", "x-stream-offset", "first", f"{OF_A_STREAM}_classic_queue"),
        ("classic", "x-stream-offset", 5, f"{OF_A_STREAM}_classic_queue"),
        ("quorum", "x-stream-offset", "first", f"{OF_A_STREAM}_quorum_queue"),
        (
            "classic",
            "x-cancel-on-ha-failover",
            "x",
            f"invalid arg 'x-cancel-on-ha-failover' for {QUEUE}: {{unacceptable_type,longstr}}",
        ),
        ("classic", "x-priority", "a", f"invalid arg 'x-priority' for {QUEUE}: {NO_INTEGER}"),
    ],
)
def test_an_argument_of_a_consumer_that_cannot_be(channel, kind, name, value, why):
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": kind})

    def consume(channel):
        channel.basic_consume("q", lambda *found: None, arguments={name: value})

    assert refusal(channel, consume) == (406, f"PRECONDITION_FAILED - {why}")
    again = channel.connection.channel()
    assert again.queue_declare("q", passive=True).method.consumer_count == 0


NO_HEADER = "expected content header for class 60, got non content header frame instead"


@pytest.mark.parametrize("weight", [1, 65535])
@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
@pytest.mark.parametrize("pieces", [1, 5])
def test_a_content_header_has_no_weight(qindex_broker, weight, size, pieces):  # noqa: F811
    with RawClient(qindex_broker.url) as client:
        client.ask(m.QueueDeclare(0, "q", False, False, False, False, False, {}), m.QueueDeclareOk)
        frames = bytearray(publish("", "q", b"\0\0", b"x" * size))
        at = frames.index(b"\xce") + 1 + 7 + 2  # behind the method: a frame's head, and the class
        frames[at : at + 2] = weight.to_bytes(2)
        head = bytes(frames[:60])
        for start in range(0, len(head), max(1, len(head) // pieces)):
            client.send(head[start : start + max(1, len(head) // pieces)])
        closed = client.expect(m.ConnectionClose)
        assert (closed.reply_code, closed.reply_text) == (505, f"UNEXPECTED_FRAME - {NO_HEADER}")
