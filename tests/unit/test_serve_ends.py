"""The end of a connection: the client hears it, and what it had goes back."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from raw_client import RawClient, publish

from qindex.amqp import methods as m
from qindex.amqp.wire import PROTOCOL_HEADER, encode_method
from qindex.serve import Broker, server

PERSISTENT = b"\x10\0\x02"
CLOSE = encode_method(0, m.ConnectionClose(200, "bye", 0, 0))


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


def is_at_its_end(client):
    """True if the server sends no more."""
    while data := client.socket.recv(1 << 20):
        assert data
    return True


def test_what_a_client_sends_behind_its_close_is_dropped_and_it_hears_the_answer(broker):
    with RawClient(broker.url) as client, RawClient(broker.url) as other:
        client.declare("q")
        behind = publish("", "q", PERSISTENT, b"x" * 1000) * 5000
        for data in (CLOSE, behind, behind, b"no frame at all" * 100_000):
            client.send(data)
        client.expect(m.ConnectionCloseOk)
        assert is_at_its_end(client)
        assert other.take_all("q") == []


def test_what_a_client_had_goes_back_at_its_close_even_if_it_keeps_the_socket(broker):
    with RawClient(broker.url) as client, RawClient(broker.url) as other:
        client.declare("q")
        client.ask(m.QueueDeclare(0, "own", False, False, True, False, False, {}), m.QueueDeclareOk)
        client.send(publish("", "q", PERSISTENT, b"x"))
        client.ask(m.BasicConsume(0, "q", "c", False, False, False, False, {}), m.BasicConsumeOk)
        client.expect(m.BasicDeliver)
        client.send(CLOSE)
        client.expect(m.ConnectionCloseOk)
        other.call(m.BasicGet(0, "q", True))
        assert other.expect(m.BasicGetOk).redelivered
        other.ask(m.QueueDeclare(0, "own", False, False, True, False, False, {}), m.QueueDeclareOk)


def test_a_socket_that_the_client_does_not_close_is_closed_after_a_while(broker, monkeypatch):
    monkeypatch.setattr(server, "LINGER_SECONDS", 0.3)
    with RawClient(broker.url) as client:
        client.send(CLOSE)
        client.expect(m.ConnectionCloseOk)
        assert is_at_its_end(client)
        assert len(broker._server.sessions) == 1
        until = time.monotonic() + 30
        while broker._server.sessions and time.monotonic() < until:
            time.sleep(0.05)
        assert broker._server.sessions == []


@pytest.mark.parametrize("begun", [b"", b"AMQP", PROTOCOL_HEADER + b"\x01\0\0"])
def test_a_handshake_that_does_not_end_is_ended_and_nobody_waits_for_it(monkeypatch, begun):
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.3)
    with Broker() as broker, RawClient(broker.url) as other:
        slow = socket.create_connection(other.socket.getpeername(), timeout=60)
        with slow:
            slow.sendall(begun)
            other.declare("q")
            other.send(publish("", "q", PERSISTENT, b"x"))
            assert other.take_all("q")
            with contextlib.suppress(ConnectionResetError):
                while slow.recv(1 << 16):
                    pass
        time.sleep(0.3)  # one that has ended its handshake stays
        other.declare("it-goes-on")
