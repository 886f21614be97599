"""One client does not fill the server's memory: what it does not read, and what it leaves."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref

import pytest
from raw_client import RawClient, publish

from qindex.amqp import methods as m
from qindex.amqp.wire import encode_method
from qindex.serve import Broker
from qindex.serve.outlet import WRITE_HIGH
from qindex.serve.server import Server

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
GETS = 64


def test_gets_of_a_client_that_does_not_read_wait_until_it_does():
    body = b"x" * WRITE_HIGH
    with Broker() as broker, RawClient(broker.url) as client:
        client.declare("q", durable=False)
        client.send(publish("", "q", b"\0\0", body))
        get, back = m.BasicGet(0, "q", False), m.BasicNack(0, True, True)
        client.send((encode_method(1, get) + encode_method(1, back)) * GETS)
        (transport,) = broker.server._transports.values()
        most, until = 0, time.monotonic() + 1
        while time.monotonic() < until:
            most = max(most, transport.get_write_buffer_size())
            time.sleep(0.01)
        assert 0 < most < 4 * WRITE_HIGH
        for _ in range(GETS):
            assert isinstance(client.expect(m.BasicGetOk), m.BasicGetOk)
            client.heard.clear()


def test_nothing_is_kept_of_a_connection_that_is_gone():
    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        while not server.sessions:
            await asyncio.sleep(0.01)
        gone = weakref.ref(server.sessions[0])
        writer.close()
        while server.sessions:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        gc.collect()
        assert gone() is None
        await server.stop()

    asyncio.run(asyncio.wait_for(test(), 60))
