"""The state machine of a connection: events in order, errors as RabbitMQ closes for them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_client import play

from qindex._wire import taken_of_list
from qindex.amqp import methods as m
from qindex.amqp.connection import Connection
from qindex.amqp.events import (
    Called,
    ChannelClosed,
    ChannelOpened,
    Ended,
    Login,
    Open,
    Published,
)
from qindex.amqp.wire import (
    BODY,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    Scanner,
    decode_method,
    encode_content,
    encode_method,
    frame,
)

OK = {"capabilities": {"authentication_failure_close": True}}
PUBLISH = m.BasicPublish(0, "x", "key", True, False)


def begin(**options):
    return Connection({"product": "test"}, **options)


def sent(connection):
    """The methods that the server has sent, with their channels."""
    raw = b"".join(connection.out)
    connection.out.clear()
    frames = Scanner(1 << 20).frames(raw)
    return [(each.channel, decode_method(each.payload)) for each in frames if each.kind == METHOD]


def opening(frame_max=4096):
    """What a client sends until its connection is open."""
    return PROTOCOL_HEADER + b"".join(
        encode_method(0, method)
        for method in (
            m.ConnectionStartOk(OK, "PLAIN", b"\0guest\0guest", "en_US"),
            m.ConnectionTuneOk(100, frame_max, 10),
            m.ConnectionOpen("/", "", False),
        )
    )


@pytest.fixture
def connection():
    connection = begin()
    play(connection, opening() + encode_method(1, m.ChannelOpen("")))
    connection.out.clear()
    return connection


def content(body, channel=1, method=PUBLISH):
    pieces = encode_content(channel, b"\x10\0\x02", body, 4096)
    return encode_method(channel, method) + b"".join(pieces)


def test_a_connection_opens_step_by_step():
    connection = begin()
    events = play(connection, opening())
    assert [type(event) for event in events] == [Login, Open]
    assert events[0].response == b"\0guest\0guest"
    names = [type(method).__name__ for _, method in sent(connection)]
    assert names == ["ConnectionStart", "ConnectionTune", "ConnectionOpenOk"]
    assert connection.is_running
    assert connection.heartbeat == 10


SESSION = (
    opening()
    + encode_method(1, m.ChannelOpen(""))
    + encode_method(
        1, m.QueueDeclare(0, "q", False, True, False, False, False, {"x-max-length": 3})
    )
    + HEARTBEAT_FRAME
    + content(b"")
    + content(b"b" * 9000)
    + encode_method(1, m.BasicAck(3, True))
    + encode_method(1, m.ChannelClose(200, "bye", 0, 0))
    + encode_method(0, m.ConnectionClose(200, "bye", 0, 0))
)


@given(st.lists(st.integers(0, len(SESSION)), max_size=30))
def test_any_split_of_the_bytes_gives_the_same_events_and_answers(cuts):
    whole = begin()
    expected = play(whole, SESSION)
    assert [type(event) for event in expected] == [
        *(Login, Open, ChannelOpened, Called, Published, Published, Called, ChannelClosed, Ended)
    ]
    split = begin()
    events = []
    edges = [0, *sorted(cuts), len(SESSION)]
    for start, end in itertools.pairwise(edges):
        events += play(split, SESSION[start:end])
    assert events == expected
    assert sent(split) == sent(whole)


@given(st.data())
def test_damaged_bytes_end_the_connection_and_raise_nothing(data):
    raw = bytearray(SESSION)
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    connection = begin()
    play(connection, bytes(raw))
    play(connection, bytes(raw))


def test_another_protocol_gets_the_header_of_this_one():
    connection = begin()
    (event,) = play(connection, b"GET / HTTP/1.1\r\n")
    assert isinstance(event, Ended)
    assert connection.out == [PROTOCOL_HEADER]
    assert connection.has_ended


def test_a_publish_is_one_event_with_its_content(connection):
    (event,) = play(connection, content(b"x" * 5000))
    assert event == Published(1, PUBLISH, b"\x10\0\x02", b"x" * 5000)


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        (
            encode_method(2, m.BasicGet(0, "q", False)),
            504,
            "CHANNEL_ERROR - expected 'channel.open'",
        ),
        (encode_method(1, m.ChannelOpen("")), 504, "CHANNEL_ERROR - second 'channel.open' seen"),
        (frame(BODY, 1, b"x"), 505, "UNEXPECTED_FRAME - expected method frame, got content body"),
        (
            encode_method(1, PUBLISH) + encode_method(1, m.BasicGet(0, "q", False)),
            505,
            "UNEXPECTED_FRAME - expected content header for class 60",
        ),
        (frame(METHOD, 1, b"\0\x5a\0\x0a"), 540, "NOT_IMPLEMENTED - transactions"),
        (frame(9, 1, b""), 501, "FRAME_ERROR - unknown frame type 9"),
    ],
)
def test_what_a_client_may_not_do_closes_the_connection(connection, raw, code, text):
    play(connection, raw)
    ((channel, close),) = sent(connection)
    assert (channel, close.reply_code) == (0, code)
    assert close.reply_text.startswith(text)
    assert play(connection, encode_method(1, m.BasicGet(0, "q", False))) == []
    (event,) = play(connection, encode_method(0, m.ConnectionCloseOk()))
    assert isinstance(event, Ended)


def test_as_many_channels_may_be_open_as_was_agreed_whatever_their_numbers(connection):
    numbers = [65535, *range(2, connection.channel_max)]  # 1 is open
    for number in numbers:
        play(connection, encode_method(number, m.ChannelOpen("")))
    answers = sent(connection)
    assert answers == [(number, m.ChannelOpenOk()) for number in numbers]
    play(connection, encode_method(65535, m.ChannelClose(200, "", 0, 0)))
    play(connection, encode_method(1000, m.ChannelOpen("")))
    assert sent(connection) == [(65535, m.ChannelCloseOk()), (1000, m.ChannelOpenOk())]
    play(connection, encode_method(1001, m.ChannelOpen("")))
    ((channel, close),) = sent(connection)
    most = connection.channel_max
    assert (channel, close.reply_code) == (0, 530)
    assert close.reply_text == (
        f"NOT_ALLOWED - number of channels opened ({most}) has reached the negotiated "
        f"channel_max ({most})"
    )


def test_a_closed_channel_ignores_what_comes_until_the_client_knows(connection):
    assert list(connection.fail_channel(1, 404, "no queue 'q' in vhost '/'", PUBLISH)) == [
        ChannelClosed(1)
    ]
    assert play(connection, content(b"late") + encode_method(1, m.BasicGet(0, "q", False))) == []
    ((_, close),) = sent(connection)
    assert close == m.ChannelClose(404, "NOT_FOUND - no queue 'q' in vhost '/'", 60, 40)
    again = encode_method(1, m.ChannelCloseOk()) + encode_method(1, m.ChannelOpen(""))
    assert play(connection, again) == [ChannelOpened(1)]


def test_a_message_that_is_too_large_closes_its_channel():
    connection = begin(body_max=100)
    play(connection, opening() + encode_method(1, m.ChannelOpen("")))
    connection.out.clear()
    assert play(connection, content(b"x" * 101)) == [ChannelClosed(1)]
    ((_, close),) = sent(connection)
    assert close.reply_text == (
        "PRECONDITION_FAILED - message size 101 is larger than configured max size 100"
    )


@pytest.mark.parametrize("frame_max", [100, 1 << 20])
def test_a_frame_size_that_the_server_does_not_take_is_refused(frame_max):
    connection = begin()
    play(connection, opening(frame_max))
    assert sent(connection)[-1][1].reply_code == 530


def test_a_refused_login_is_a_close_for_clients_that_know_it():
    connection = begin()
    for event in connection.receive(opening()):
        if isinstance(event, Login):
            list(connection.refuse_login("Login was refused"))
    assert sent(connection)[-1][1] == m.ConnectionClose(
        403, "ACCESS_REFUSED - Login was refused", 0, 0
    )


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 9000, 40_000])
@pytest.mark.parametrize("name", ["tag", "\udcff"])
def test_a_deliver_of_any_size_is_a_method_and_its_content(connection, size, name):
    fields = (name, 7, True, "x", "key")
    body = b"b" * size
    taken = taken_of_list([(1, 1, True, 0, b"x", b"key", b"\x10\0\x02", body)], None)
    connection.send_deliveries(1, name.encode("utf-8", "surrogateescape"), 7, taken, range(1))
    expected = encode_method(1, m.BasicDeliver(*fields))
    expected += b"".join(encode_content(1, b"\x10\0\x02", body, 4096))
    assert b"".join(connection.out) == expected
