"""A client of AMQP 0-9-1 that sends the bytes that it is told to, and keeps the frames it hears."""

from __future__ import annotations

import socket
import struct
from urllib.parse import urlsplit

from qindex.amqp import methods as m
from qindex.amqp.events import Acked, Called, Login, Open, PublishedMany
from qindex.amqp.wire import (
    BODY,
    HEADER,
    METHOD,
    PROTOCOL_HEADER,
    Scanner,
    decode_method,
    encode_content,
    encode_method,
)

CAPABILITIES = {"capabilities": {"connection.blocked": True, "consumer_cancel_notify": True}}


def published(method, properties, body, channel=1, frame_max=131_072):
    """The frames of a publish."""
    content = encode_content(channel, properties, body, frame_max)
    return encode_method(channel, method) + b"".join(content)


def publish(exchange, key, properties, body, *, channel=1, mandatory=False):
    method = m.BasicPublish(0, exchange, key, mandatory, False)
    return published(method, properties, body, channel)


def one_by_one(event):
    """The single calls that an Acked stands for."""
    acks = struct.iter_unpack(">QB", event.acks)
    return [Called(event.channel, m.BasicAck(tag, bool(bits & 1))) for tag, bits in acks]


def play(connection, data, changed=None):
    """Receive bytes and answer as an owner that lets everybody in; return the events.

    `changed`: called as soon as the first event has come.
    """
    events = []
    for event in connection.receive(data):
        changed = changed and changed()
        if isinstance(event, PublishedMany):
            assert sum(group.size for group in event.groups) == len(event.messages)
            events += connection.one_by_one(event)
            continue
        if isinstance(event, Acked):
            events += one_by_one(event)
            continue
        events.append(event)
        if isinstance(event, Login):
            connection.accept_login()
        elif isinstance(event, Open):
            connection.accept_open()
    return events


class RawClient:
    def __init__(self, url, channels=(1,), heartbeat=0):
        at = urlsplit(url)
        self.socket = socket.create_connection((at.hostname, at.port), timeout=60)
        self.heard = []  # (channel, method), or (channel, properties or body) behind one
        self._scanner = Scanner(131_072)
        self.send(PROTOCOL_HEADER)
        self.expect(m.ConnectionStart)
        login = f"\0{at.username}\0{at.password}".encode()
        self.call(m.ConnectionStartOk(CAPABILITIES, "PLAIN", login, "en_US"), channel=0)
        self.expect(m.ConnectionTune)
        self.call(m.ConnectionTuneOk(100, 131_072, heartbeat), channel=0)
        self.ask(m.ConnectionOpen("/", "", False), m.ConnectionOpenOk, channel=0)
        for channel in channels:
            self.ask(m.ChannelOpen(""), m.ChannelOpenOk, channel=channel)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def call(self, method, channel=1):
        self.send(encode_method(channel, method))

    def ask(self, method, answer, channel=1):
        self.call(method, channel)
        return self.expect(answer)

    def expect(self, kind):
        """Read until a method of this kind comes, which is returned."""
        while True:
            for number, (_, found) in enumerate(self.heard):
                if isinstance(found, kind):
                    del self.heard[number]
                    return found
            self.hear()

    def hear(self):
        """Read once."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError(f"the server has closed, after {self.heard[-20:]}")
        for kind, channel, payload in self._scanner.frames(data):
            if kind == METHOD:
                self.heard.append((channel, decode_method(payload)))
            elif kind in (HEADER, BODY):
                self.heard.append((channel, payload))

    def declare(self, name, durable=True, **arguments):
        named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        declare = m.QueueDeclare(0, name, False, durable, False, False, False, named)
        self.ask(declare, m.QueueDeclareOk)

    def take_all(self, name):
        """What the queue has: method, properties and body of each message, all acked."""
        found = []
        while True:
            self.call(m.BasicGet(0, name, True))
            got = self.expect((m.BasicGetOk, m.BasicGetEmpty))
            if isinstance(got, m.BasicGetEmpty):
                return found
            while len(self.heard) < 2 or not (self.heard[-1][1] == b"" or self._is_whole()):
                self.hear()
            header, body = self.heard[0][1], b"".join(piece for _, piece in self.heard[1:])
            self.heard.clear()
            found.append((got.exchange, got.routing_key, header[12:], body))

    def _is_whole(self):
        size = int.from_bytes(self.heard[0][1][4:12], "big")
        return sum(len(piece) for _, piece in self.heard[1:]) >= size
