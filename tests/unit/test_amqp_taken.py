"""Messages on their way out, and what settles them (qindex._wire: Taken, Unacked)."""

from __future__ import annotations

import struct
from array import array
from collections import deque

import pytest
from broker_rooms import Consumer
from hypothesis import given, settings
from hypothesis import strategies as st

from qindex._core import ffi, lib
from qindex._wire import Taken, Unacked, taken_of_list, taken_of_store
from qindex.amqp import methods as m
from qindex.amqp.wire import encode_content, encode_method
from qindex.broker.consumers import shares
from qindex.broker.message import Message
from qindex.broker.taken import Entry, taken_of
from qindex.field_table import encode_table

NAME = st.text(max_size=40)
U64 = st.integers(0, 2**64 - 1)
TAKEN = (U64, U64, st.booleans(), NAME, NAME, st.binary(max_size=30), st.binary(max_size=300))


def of_store(messages):
    """Taken of (number, delivery, redelivered, deliveries, table, body), as the core gives them."""
    structs = ffi.new("qi_message[]", max(1, len(messages)))
    payload = b""
    for at, (number, delivery, again, times, table, body) in enumerate(messages):
        structs[at].req_id, structs[at].delivery, structs[at].delivery_count = (
            number,
            delivery,
            times,
        )
        structs[at].flags = lib.QI_REDELIVERED if again else 0
        structs[at].payload_size, structs[at].body_size = len(table + body), len(body)
        payload += table + body
    buffer = ffi.new("char[]", payload or b"\0")
    addresses = [int(ffi.cast("uintptr_t", each)) for each in (structs, buffer)]
    return taken_of_store(*addresses, len(messages), (structs, buffer))


def shown(channel, tag, first, frame_max, messages):
    """The same frames, each made in Python."""
    raw = b""
    for at, (_, _, again, exchange, key, properties, body) in enumerate(messages):
        raw += encode_method(channel, m.BasicDeliver(tag, first + at, again, exchange, key))
        raw += b"".join(encode_content(channel, properties, body, frame_max))
    return raw


@given(
    st.lists(st.tuples(*TAKEN), max_size=8),
    st.tuples(st.integers(0, 65535), NAME, st.integers(1, 2**40), st.sampled_from([9, 20, 4096])),
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(1, 4)),
)
def test_frames_are_those_of_the_methods_and_contents(messages, how, share):
    channel, tag, first, frame_max = how
    start, stop, step = share[0], min(share[1], len(messages)), share[2]
    expected = shown(channel, tag, first, frame_max, messages[start:stop:step])
    in_memory = [
        (number, delivery, again, 0, exchange.encode(), key.encode(), properties, body)
        for number, delivery, again, exchange, key, properties, body in messages
    ]
    stored = [
        (number, delivery, again, 1, Message(exchange, [key], properties, body).to_table(), body)
        for number, delivery, again, exchange, key, properties, body in messages
    ]
    for taken in (taken_of_list(in_memory, None), of_store(stored)):
        assert len(taken) == taken.usual(0, 1, True) == len(messages)
        assert taken.body_bytes == sum(len(message[6]) for message in messages)
        found = taken.frames(channel, tag.encode(), first, frame_max, start, stop, step)
        assert found == expected
        numbers, deliveries = taken.places(start, stop, step)
        places = [message[:2] for message in messages[start:stop:step]]
        count = len(places)
        assert struct.unpack(f"{count}Q", numbers) == tuple(place[0] for place in places)
        assert struct.unpack(f"{count}Q", deliveries) == tuple(place[1] for place in places)


@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=2))
def test_headers_of_other_programs_and_damaged_ones_are_left_to_python(raw, damage):
    table = bytearray(Message("x", ["key", "other"], b"\0\0", b"", expires_us=5).to_table())
    for at, value in damage:
        table[at % len(table)] = value
    for odd in (raw, encode_table({"a": 1}), bytes(table), bytes(table[:-1])):
        usual = of_store([(1, 1, False, 1, odd, b"body")]).usual(0, 5, False)
        assert usual in ((0, 1) if odd == table else (0,))


def test_what_has_expired_or_comes_again_is_unusual():
    def one(number, expires_us, times):
        table = Message("", ["q"], b"\0\0", b"", expires_us=expires_us).to_table()
        return number, 1, False, times, table, b""

    taken = of_store([one(1, 0, 1), one(2, 100, 1), one(3, 99, 1), one(4, 0, 2), one(5, 0, 1)])
    assert taken.usual(0, 100, False) == 2
    assert taken.usual(3, 100, False) == 5
    assert taken.usual(3, 100, True) == 3
    assert taken.usual(4, 100, True) == 5


def test_wrong_arguments_are_refused():
    taken = taken_of([Entry(Message("x", ["k"], b"\0\0", b"body"), (1, 2), False, 1)])
    for share in ((-1, 1, 1), (0, 2, 1), (0, 1, 0)):
        with pytest.raises(IndexError):
            taken.frames(1, b"tag", 1, 4096, *share)
        with pytest.raises(IndexError):
            taken.places(*share)
    for at in (0, 1):
        with pytest.raises(IndexError):
            taken.addresses(at)
    with pytest.raises(ValueError, match="255"):
        taken.frames(1, b"t" * 256, 1, 4096, 0, 1, 1)
    with pytest.raises(ValueError, match="fits"):
        taken.frames(1, b"t", 1, 8, 0, 1, 1)
    with pytest.raises(ValueError, match="255"):
        taken_of_list([(1, 1, False, 0, b"x" * 256, b"", b"", b"")], None)
    with pytest.raises(TypeError):
        taken_of_list([(1, 1, False, 0, "x", b"", b"", b"")], None)
    with pytest.raises(TypeError):
        Taken()


def test_a_name_that_amqp_cannot_have_is_cut():
    """Other programs can put such a message into a store."""
    taken = taken_of([Entry(Message("x" * 300, ["k\udcff"], b"\0\0", b""), (1, 2), False, 1)])
    expected = shown(1, "t", 1, 4096, [(1, 2, False, "x" * 255, "k\udcff", b"\0\0", b"")])
    assert taken.frames(1, b"t", 1, 4096, 0, 1, 1) == expected


# ---- Unacked ----


class Model:
    """What is unacked, as a dictionary."""

    def __init__(self):
        self.left = {}

    def settle(self, tag, multiple):
        """The deliveries that it settles; None: it is unknown."""
        if multiple and not tag:
            gone = list(self.left)
        elif tag not in self.left:
            return None
        else:
            gone = [each for each in self.left if each <= tag] if multiple else [tag]
        return [self.left.pop(each) for each in gone]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(
            st.just("settle"), st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=4)
        ),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(STEPS)
def test_unacked_is_what_a_dictionary_says(steps):
    unacked, model = Unacked(), Model()
    owners = [object() for _ in range(3)]
    tag = 1
    for step in steps:
        if step[0] == "add":
            _, count, owner, gap = step
            tag += gap
            places = [(tag + at, 1000 + tag + at) for at in range(count)]
            numbers, deliveries = (
                struct.pack(f"{count}Q", *each) for each in zip(*places, strict=True)
            )
            unacked.add(tag, owners[owner], numbers, deliveries)
            model.left |= {tag + at: (owner, *place) for at, place in enumerate(places)}
            tag += count
        else:
            expected, unknown = [], None
            for which, multiple in step[1]:
                found = model.settle(which, multiple)
                if found is None:
                    unknown = which
                    break
                expected += found
            parts, told = unacked.settle(b"".join(struct.pack(">QB", *ack) for ack in step[1]))
            found = []
            for owner, numbers, deliveries in parts:
                values = (array("Q", each) for each in (numbers, deliveries))
                found += [(owners.index(owner), *pair) for pair in zip(*values, strict=True)]
            assert told == unknown
            assert sorted(found) == sorted(expected)
            assert len({id(part[0]) for part in parts}) == len(parts)
        assert len(unacked) == len(model.left)
        assert unacked.oldest() == min(model.left, default=None)


def test_tags_that_go_back_are_refused():
    unacked = Unacked()
    one = struct.pack("Q", 1)
    unacked.add(5, None, one, one)
    for tag, numbers in ((5, one), (0, one), (6, one * 2)):
        with pytest.raises(ValueError, match="behind"):
            unacked.add(tag, None, numbers, one)


def test_many_single_acks_in_any_order_are_quick_and_leave_nothing():
    """A run for each delivery, acked from the back: no pass over all of them for each."""
    unacked = Unacked()
    place = struct.pack("Q", 1)
    for tag in range(1, 50_001):
        unacked.add(tag, None, place, place)
    acks = b"".join(struct.pack(">QB", tag, False) for tag in range(50_000, 0, -1))
    parts, unknown = unacked.settle(acks)
    assert (len(unacked), unknown, len(parts[0][1])) == (0, None, 8 * 50_000)


# ---- whose turn it is ----


def one_by_one(consumers, count):
    """What each gets if each message looks for a consumer."""
    waiting, got = deque(consumers), {consumer: [] for consumer in consumers}
    for at in range(count):
        while waiting and waiting[0].most <= len(got[waiting[0]]):
            waiting.popleft()
        if not waiting:
            break
        got[waiting[0]].append(at)
        waiting.rotate(-1)
    return list(got.values())


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 40))
def test_shares_are_what_one_message_after_the_other_gives(limits, count):
    consumers = [Consumer(most) for most in limits]
    for consumer, share in shares(deque(consumers), 0, count):
        consumer.entries += share
    assert [consumer.entries for consumer in consumers] == one_by_one(consumers, count)
