"""The scanner in C gives what the one in Python gives, wherever the bytes are cut."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_client import play

from qindex._wire import Publishes
from qindex.amqp import methods as m
from qindex.amqp.connection import Connection
from qindex.amqp.events import Published
from qindex.amqp.wire import (
    BODY,
    HEADER,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    Scanner,
    WireError,
    encode_content,
    encode_method,
    frame,
    scanner_in_c,
)
from qindex.brokers.amqp import AmqpError, Properties, decode_properties, encode_properties
from qindex.serve.publishing import check_properties

FRAME_MAX = 4096
PLAIN = b"\x10\0\x02"
OPENING = PROTOCOL_HEADER + b"".join(
    [
        encode_method(0, m.ConnectionStartOk({}, "PLAIN", b"\0a\0b", "en_US")),
        encode_method(0, m.ConnectionTuneOk(100, FRAME_MAX, 10)),
        encode_method(0, m.ConnectionOpen("/", "", False)),
        encode_method(1, m.ChannelOpen("")),
        encode_method(2, m.ChannelOpen("")),
    ]
)


def publish(body, key="key", properties=PLAIN, channel=1, piece=FRAME_MAX):
    """The frames of a publish, each on its own."""
    method = encode_method(channel, m.BasicPublish(0, "x", key, False, False))
    header, *rest = _whole_frames(encode_content(channel, properties, body, piece))
    return [method, header, *rest]


def _whole_frames(parts):
    frames = Scanner(1 << 20).frames(b"".join(parts))
    return [frame(each.kind, each.channel, each.payload) for each in frames]


def play_buffer(connection, piece, *, early):
    """The bytes change as soon as they may: behind the first event, or behind all of them."""
    buffer = bytearray(piece)

    def change():
        if early:
            connection.keep()
            buffer[:] = b"\xee" * len(buffer)

    events = play(connection, memoryview(buffer), change)
    buffer[:] = b"\xee" * len(buffer)
    return events


def both(pieces, **options):
    """Both give the same events and answers. The end of a damaged frame may be shown or not."""
    results = []
    ways = (play, partial(play_buffer, early=False), partial(play_buffer, early=True))
    for scanner, way in ((Scanner, play), *((scanner_in_c, way) for way in ways)):
        connection = Connection({}, scanner=scanner, **options)
        events = [event for piece in pieces for event in way(connection, piece)]
        results.append((events, b"".join(connection.out), connection.has_ended))
    assert results == [results[0]] * len(results)
    return results[0][0]


def cut(raw, places):
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[start:end] for start, end in itertools.pairwise(edges)]


def opened(body_max=0):
    """A scanner whose channel 1 is open."""
    scanner = scanner_in_c(FRAME_MAX)
    scanner.open(1, True)
    scanner.body_max = body_max
    return scanner


CUTS = st.lists(st.integers(0, 1 << 16), max_size=20)
PROPERTIES = st.sampled_from(
    [
        PLAIN,
        b"\0\0",
        b"\x18\0\x02\x05",
        encode_properties(Properties(headers={"a": 1}, delivery_mode=2)),
        encode_properties(Properties(message_id="m", timestamp=1, reply_to="r")),
        encode_properties(Properties(expiration="10")),
        b"\x10\0",
        b"\xff",
    ]
)


@st.composite
def contents(draw):
    """A publish as frames: in order, or broken off, or with too much."""
    frames = publish(
        draw(st.binary(max_size=40)) * draw(st.sampled_from([0, 1, 1, 30])),
        draw(st.sampled_from(["key", "other", ""])),
        draw(PROPERTIES),
        draw(st.sampled_from([1, 2, 2, 7, 0])),
        draw(st.sampled_from([12, 100, FRAME_MAX])),
    )
    spoiled = draw(st.integers(0, 15))
    if spoiled == 0:
        frames.insert(draw(st.integers(0, len(frames))), draw(strangers()))
    elif spoiled == 1:
        del frames[draw(st.integers(0, len(frames) - 1))]
    return frames


def strangers():
    channel = st.sampled_from([0, 1, 2])
    return st.one_of(
        st.just(HEARTBEAT_FRAME),
        st.builds(encode_method, channel, st.builds(m.BasicAck, st.integers(0, 9), st.booleans())),
        st.builds(frame, st.just(METHOD), channel, st.just(b"\0\x3c\0\x50" + bytes(8) + b"\xff")),
        st.builds(encode_method, channel, st.just(m.ChannelClose(200, "", 0, 0))),
        st.builds(frame, st.sampled_from([HEADER, BODY, 9]), channel, st.binary(max_size=20)),
        st.builds(frame, st.just(METHOD), channel, st.just(b"\0\x3c\0\x28\0\0\x01x")),
    )


@st.composite
def sessions(draw):
    """Contents and other frames; those of different channels may be mixed."""
    lists = draw(st.lists(st.one_of(contents(), strangers().map(lambda one: [one])), max_size=12))
    if draw(st.booleans()):
        return b"".join(itertools.chain.from_iterable(lists))
    mixed = []
    while lists:
        at = draw(st.integers(0, len(lists) - 1)) if draw(st.booleans()) else 0
        mixed.append(lists[at].pop(0))
        if not lists[at]:
            del lists[at]
    return b"".join(mixed)


@settings(max_examples=200)
@given(sessions(), CUTS)
@pytest.mark.slow
def test_both_scanners_give_the_same_wherever_the_bytes_are_cut(raw, places):
    both([OPENING, *cut(raw, places)], body_max=1000)


@settings(max_examples=150)
@given(sessions(), CUTS, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3))
@pytest.mark.slow
def test_both_say_the_same_of_damaged_bytes(raw, places, damage):
    spoiled = bytearray(raw)
    for at, value in damage:
        if spoiled:
            spoiled[at % len(spoiled)] = value
    both([OPENING, *cut(bytes(spoiled), places)], body_max=1000)


@pytest.mark.parametrize("body", [b"he", b"x" * 100_000])
def test_empty_body_frames_are_part_of_a_body(body):
    method, header, *rest = publish(body)
    empty = frame(BODY, 1, b"")
    frames = [method, header, empty, empty, *(each + empty for each in rest[:-1]), rest[-1]]
    for pieces in (frames, [b"".join(frames)], [b"".join(frames[:3]), b"".join(frames[3:])]):
        found = [each for each in both([OPENING, *pieces]) if isinstance(each, Published)]
        assert [bytes(each.body) for each in found] == [body]


@given(CUTS)
def test_publishes_before_the_connection_is_open_are_refused_alike(places):
    both(cut(OPENING[:40] + b"".join(publish(b"early")) + OPENING[40:], places))


def test_publishes_that_come_together_come_out_together():
    scanner = opened(body_max=1 << 20)
    data = [publish(b"%d" % number, f"k{number % 2}") for number in range(10)]
    ack = encode_method(1, m.BasicAck(1, False))
    flat = [b"".join(frames) for frames in data]
    found = list(scanner.frames(b"".join(flat[:6]) + ack + b"".join(flat[6:])))
    assert [type(each) for each in found] == [Publishes, Frame, Publishes]
    assert [len(found[0]), len(found[2])] == [6, 4]
    assert [group[5:] for group in found[0].groups] == [(None, 3)] * 2
    assert found[0].order == [0, 1, 0, 1, 0, 1]


def test_a_batch_has_the_messages_of_the_groups_that_are_wanted_in_order():
    scanner = opened(body_max=1 << 20)
    keys = "abcacb"
    raw = b"".join(b"".join(publish(key.encode() * n, key)) for n, key in enumerate(keys))
    (found,) = scanner.frames(raw)
    bodies, sizes, headers, headers_sizes, flags = found.gather([(0, b"A", 0), (2, b"CC", 2)])
    assert bodies == b"ccaaacccc"
    assert struct.unpack("4I", sizes) == (0, 2, 3, 4)
    rest = b"\0\0\0\x03" + PLAIN
    assert headers == (b"\0\0\0\x08A" + rest + b"\0\0\0\x09CC" + rest) * 2
    assert struct.unpack("4I", headers_sizes) == (12, 13, 12, 13)
    assert flags == bytes([0, 2, 0, 2])
    assert found.gather([(0, b"A", 0)])[0] == b"aaa"
    assert found.gather([(1, b"A", 0)])[0] == b"b" + b"bbbbb"
    assert found.gather([(2, b"A", 0)])[0] == b"cc" + b"cccc"
    assert found.gather([]) == (b"",) * 5
    for wrong in (None, [None], [(0, b"A")], [(0, b"A", 300)], [(3, b"A", 0)], [(-1, b"A", 0)]):
        with pytest.raises((TypeError, OverflowError, IndexError)):
            found.gather(wrong)


def test_more_groups_than_one_holds_are_several():
    raw = b"".join(b"".join(publish(b"x", f"key{number}")) for number in range(5000))
    connection = Connection({})
    play(connection, OPENING)
    events = list(connection.receive(raw))
    assert [len(event.messages) for event in events] == [4096, 904]
    again = [each for event in events for each in connection.one_by_one(event)]
    assert [each.method.routing_key for each in again] == [f"key{number}" for number in range(5000)]


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**40), 2**40),
        st.floats(allow_nan=False),
        st.text(max_size=5),
        st.binary(max_size=5),
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.one_of(st.text(max_size=5), st.sampled_from(["CC", "BCC", "cc"]))


@given(
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.sampled_from([None, "1", "0", "007", "99999999999999", "-1", "1x", ""]),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=2),
)
def test_headers_are_plain_if_python_finds_nothing_in_them(headers, expiration, damage):
    raw = bytearray(
        encode_properties(Properties(headers=headers or None, expiration=expiration, type="t"))
    )
    for at, value in damage:
        raw[at % len(raw)] = value
    test_properties_are_plain_only_if_python_finds_nothing_in_them.hypothesis.inner_test(
        bytes(raw), None
    )
    if not damage:
        scanner = opened()
        (found,) = scanner.frames(b"".join(publish(b"", properties=bytes(raw))))
        is_usual = not {"CC", "BCC"} & set(headers) and expiration in (None, "1", "007")
        assert (found.groups[0][5] is None) == is_usual


def test_tables_in_tables_are_plain_up_to_a_depth():
    for depth in (1, 14, 15, 16, 60):
        inner = {"CC": 1}
        for _ in range(depth):
            inner = {"a": [inner]} if depth == 1 else {"a": inner}
        raw = encode_properties(Properties(headers=inner))
        scanner = opened()
        (found,) = scanner.frames(b"".join(publish(b"", properties=raw)))
        assert (found.groups[0][5] is None) == (depth < 16)


@given(st.binary(max_size=30), st.integers(0, 0xFFFF))
def test_properties_are_plain_only_if_python_finds_nothing_in_them(rest, flags):
    for raw in (rest, b"" if flags is None else flags.to_bytes(2, "big") + rest):
        scanner = opened(body_max=1)
        (found,) = scanner.frames(b"".join(publish(b"", properties=raw)))
        ((_, _, persistent, priority, expiration_ms, properties, _),) = found.groups
        if properties is not None:
            assert properties == raw
            continue
        decoded = decode_properties(raw)
        assert not {"CC", "BCC"} & set(decoded.headers or {})
        assert decoded.user_id is None
        assert expiration_ms == int(decoded.expiration or 0)
        check_properties(decoded, "user")
        assert decoded.reply_to != "amq.rabbitmq.reply-to"
        assert persistent == (decoded.delivery_mode == 2)
        assert priority == (decoded.priority or 0)


@pytest.mark.parametrize(
    "set_",
    [
        {"content_type": "t", "delivery_mode": 2, "message_id": "m", "timestamp": 5},
        {"correlation_id": "c", "reply_to": "q", "type": "t", "app_id": "a", "cluster_id": "c"},
        {"priority": 9, "content_encoding": "e"},
    ],
)
def test_what_most_clients_send_is_plain(set_):
    raw = encode_properties(Properties(**set_))
    (found,) = opened().frames(b"".join(publish(b"", properties=raw)))
    assert found.groups[0][5] is None


def test_a_large_body_stands_alone_and_is_in_memory_once():
    size = 8 << 20
    raw = b"".join(b"".join(publish(body, piece=100_000)) for body in (b"a", bytes(size), b"b"))
    scanner = scanner_in_c(131_072)
    scanner.open(1, True)
    scanner.body_max = size
    pieces = [raw[at : at + 65_536] for at in range(0, len(raw), 65_536)]
    tracemalloc.start()
    try:
        found = [each.contents() for piece in pieces for each in scanner.frames(piece)]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    bodies = [body for batch in found for _, _, body in batch]
    assert [len(body) for body in bodies] == [1, size, 1]
    assert [len(batch) for batch in found] == [1, 1, 1]
    assert most < 1.3 * size


def test_a_promised_body_costs_nothing():
    scanner = scanner_in_c(131_072)
    scanner.open(1, True)
    scanner.body_max = 1 << 40
    header = frame(HEADER, 1, struct.pack(">HHQ", 60, 0, 1 << 39) + PLAIN)
    tracemalloc.start()
    try:
        list(scanner.frames(publish(b"")[0] + header + frame(BODY, 1, b"x" * 100)))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_what_is_left_of_one_read_is_not_lost_when_another_comes():
    scanner = scanner_in_c(FRAME_MAX)
    ack = encode_method(1, m.BasicAck(1, False))
    first = scanner.frames(ack * 3 + ack[:5])
    next(first)
    assert len(list(scanner.frames(ack[5:]))) == 3
    assert list(scanner.frames(b"")) == []


def test_wrong_arguments_and_what_the_owner_raises_come_through():
    scanner = scanner_in_c(FRAME_MAX)
    with pytest.raises(TypeError):
        scanner.frames("text")
    with pytest.raises(WireError, match="invalid_frame_end_marker"):
        list(scanner.frames(HEARTBEAT_FRAME[:-1] + b"x"))
    assert list(scanner.frames(HEARTBEAT_FRAME)) == [Frame(8, 0, b"")]
    with pytest.raises(TypeError):
        Publishes()


def test_publishes_before_damage_are_not_lost():
    """They were, if the damage was in the same read."""
    whole = [b"".join(publish(b"%d" % number)) for number in range(3)]
    events = both([OPENING, b"".join(whole) + HEARTBEAT_FRAME[:-1] + b"x"])
    assert [event.body for event in events if hasattr(event, "body")] == [b"0", b"1", b"2"]


def test_damaged_properties_are_not_plain():
    with pytest.raises(AmqpError):
        decode_properties(b"\x10\0")
    (found,) = opened().frames(b"".join(publish(b"", properties=b"\x10\0")))
    assert found.groups[0][5] == b"\x10\0"
