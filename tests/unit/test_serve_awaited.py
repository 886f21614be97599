"""Where a body goes that its publisher waits for: one sync is enough for it, or it takes two."""

from __future__ import annotations

import asyncio

import pytest
from raw_client import RawClient, publish

from qindex.amqp import methods as m
from qindex.serve import Broker

PERSISTENT, TRANSIENT = b"\x10\0\x02", b"\x10\0\x01"
BODY = b"x" * 2000


def stored_bodies(broker):
    """How many messages have their bodies in message files: their sync is a second one."""

    async def count():
        return broker._server.node.stores["/"].stats().live_references

    return asyncio.run_coroutine_threadsafe(count(), broker._server.loop).result(60)


class Publisher:
    """Publishes many at once, and waits until all are confirmed."""

    def __init__(self, client):
        self.client, self.sent, self.confirmed = client, 0, set()
        client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)

    def send(self, queue, count, properties=PERSISTENT):
        self.client.send(publish("", queue, properties, BODY) * count)
        self.sent += count
        while len(self.confirmed) < self.sent:
            ack = self.client.expect(m.BasicAck)
            first = 1 if ack.multiple else ack.delivery_tag
            self.confirmed.update(range(first, ack.delivery_tag + 1))


def test_what_a_publisher_waits_for_needs_one_sync_below_4_kib(tmp_path, monkeypatch):
    with Broker(tmp_path / "d") as broker, RawClient(broker.url) as client:
        client.declare("q")
        client.declare("limited", max_length=1000)  # no straight way leads there
        publisher = Publisher(client)
        for count in (1, 1, 1, 10, 10):  # alone and in batches, known and not known yet
            for name in ("q", "limited"):
                publisher.send(name, count)
        assert stored_bodies(broker) == 0
        for module in ("ways", "batches"):  # many bytes in one read: to write them twice costs more
            monkeypatch.setattr(f"qindex.serve.{module}.AWAITED_BYTES_MAX", 1999)
        publisher.send("q", 10)
        assert stored_bodies(broker) == 10
        publisher.send("limited", 10)
        assert stored_bodies(broker) >= 19  # one that came alone is embedded


@pytest.mark.parametrize("how", ["no confirms", "transient", "written"])
def test_what_nobody_waits_for_is_written_once(tmp_path, how):
    confirm = "written" if how == "written" else "durable"
    with Broker(tmp_path / "d", confirm=confirm) as broker, RawClient(broker.url) as client:
        client.declare("q")
        if how != "no confirms":
            client.ask(m.ConfirmSelect(False), m.ConfirmSelectOk)
        properties = TRANSIENT if how == "transient" else PERSISTENT
        for count in (1, 1, 1, 10):
            client.send(publish("", "q", properties, BODY) * count)
            client.ask(m.QueueDeclare(0, "q", True, *[False] * 4, {}), m.QueueDeclareOk)
        assert stored_bodies(broker) == 13
