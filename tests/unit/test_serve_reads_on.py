"""Clients that read late, or little at a time: they have what is theirs, and are not closed."""

from __future__ import annotations

import time

import pytest
from raw_client import RawClient, publish

from qindex.amqp import methods as m
from qindex.amqp.wire import HEARTBEAT_FRAME, encode_method
from qindex.serve import Broker, outlet
from qindex.serve.outlet import WRITE_HIGH

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def waiting(broker):
    """Bytes that wait for the client that has most of them."""
    transports = list(broker.server._transports.values())
    return max((each.get_write_buffer_size() for each in transports), default=0)


def fill(client, name, size, count):
    client.declare(name, durable=False)
    client.send(publish("", name, b"\0\0", b"x" * size) * count)


def consuming(name):
    """Without acks, and without an answer."""
    return encode_method(1, m.BasicConsume(0, name, "", False, True, False, True, {}))


def consume(client, name):
    client.send(consuming(name))


def test_a_client_that_publishes_more_than_it_consumes_needs_no_second_thread():
    """It sends and reads in turn; what it is sent meanwhile does not stop what it sends."""
    with Broker() as broker, RawClient(broker.url) as client:
        client.declare("out", durable=False)
        fill(client, "in", 20_000, 500)
        client.declare("in", durable=False)
        client.socket.settimeout(20)
        consume(client, "in")
        for _ in range(500):
            client.expect(m.BasicDeliver)
            client.heard = [each for each in client.heard if isinstance(each[1], m.BasicDeliver)]
            client.send(publish("", "out", b"\0\0", b"y" * 200_000))


def test_a_client_that_reads_one_very_large_message_slowly_is_not_closed(monkeypatch):
    """Deliveries do not count for the cap, nor does a heartbeat that is written behind them."""
    monkeypatch.setattr(outlet, "WRITE_MAX", 4 * WRITE_HIGH)
    with Broker() as broker, RawClient(broker.url, heartbeat=1) as client:
        fill(client, "q", 32 << 20, 1)
        client.declare("q", durable=False)
        consume(client, "q")
        for _ in range(4):  # a heartbeat comes each second
            time.sleep(0.5)
            client.send(HEARTBEAT_FRAME)
            assert waiting(broker) > 4 * WRITE_HIGH
        client.socket.settimeout(20)
        client.expect(m.BasicDeliver)
        while sum(len(part) for _, part in client.heard if isinstance(part, bytes)) < 32 << 20:
            client.hear()
        client.declare("it-goes-on", durable=False)


def test_many_queues_of_one_client_do_not_fill_the_memory_in_one_turn_and_all_have_theirs():
    with Broker() as broker, RawClient(broker.url) as client:
        names = [f"q{number}" for number in range(10)]
        for name in names:
            fill(client, name, 1 << 16, 200)
        client.declare("q0", durable=False)
        client.send(b"".join(consuming(name) for name in names))  # they begin in one turn
        until, most = time.monotonic() + 1, 0
        while time.monotonic() < until:
            most = max(most, waiting(broker))
            time.sleep(0.01)
        assert WRITE_HIGH < most < 8 * WRITE_HIGH  # a queue takes 4 MiB at once
        client.socket.settimeout(20)
        seen = []
        for _ in range(10 * 200):
            seen.append(client.expect(m.BasicDeliver).routing_key)
            client.heard = [each for each in client.heard if isinstance(each[1], m.BasicDeliver)]
        assert {name: seen.count(name) for name in names} == dict.fromkeys(names, 200)
        assert set(seen[:1300]) == set(names)  # none waits until the others are empty
