"""A client of gmq that asks for more than it reads."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from gmq_client import Client, door, run, served

from qindex.serve import outlet
from qindex.serve.outlet import ANSWERS_HIGH, WRITE_HIGH

BODY = b"x" * (1 << 18)
PIECES = 256  # 64 MiB in all: much more than the kernel keeps
POPS = b"".join(b'{"method":"Service.Pop","params":[["t"]],"id":%d}' % n for n in range(PIECES))


async def slow_client(port):
    """A client that does not read yet."""
    client = await Client.connect(port)
    raw = client.writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.reader._transport.pause_reading()
    return client


async def most_waiting(server):
    """The bytes that wait for a client, at most, in some time."""
    most = 0
    for _ in range(40):
        await asyncio.sleep(0.01)
        for each in door(server).connections:
            most = max(most, each._transport.get_write_buffer_size())
    return most


@pytest.mark.sample(2)
@pytest.mark.parametrize("version", [1, 2])
def test_a_client_that_pops_faster_than_it_reads_waits_and_is_not_closed(monkeypatch, version):
    monkeypatch.setattr(outlet, "WRITE_MAX", WRITE_HIGH)

    async def test():
        async with served() as server:
            client = await Client.connect(server.gmq)
            await client.command("queue t k")
            await client.command("set t 1")
            vhost = server.node.vhost("/")
            name = "t" if version == 1 else "t_k"
            queue = door(server).shop.make(name)
            for number in range(PIECES):
                door(server).shop.publish(queue, str(number), BODY, headers={"x-gmq-ttr": 60})
            slow = await slow_client(server.gmq)
            slow.writer.write(POPS if version == 1 else b"pop t k\n" * PIECES)
            most = await most_waiting(server)
            assert WRITE_HIGH < most < ANSWERS_HIGH + WRITE_HIGH
            assert len(vhost.queues[name]) > PIECES // 2  # they are not taken for it, either
            slow.reader._transport.resume_reading()
            ids = set()
            for _ in range(PIECES):
                if version == 1:
                    ids.add(json.loads(await slow.line())["result"]["id"])
                else:
                    kind, raw = await slow.answer()
                    assert kind == 101
                    ids.add(raw[:40])
            assert len(ids) == PIECES
            await slow.close()
            await client.close()

    run(test())


@pytest.mark.slow
def test_pops_that_wait_are_given_no_more_than_their_client_reads(monkeypatch):
    monkeypatch.setattr(outlet, "WRITE_MAX", WRITE_HIGH)

    async def test():
        async with served() as server:
            jobs = door(server).jobs
            monkeypatch.setattr(jobs, "_pop_seconds", 60.0)
            slow = await slow_client(server.gmq)
            slow.writer.write(POPS)
            while len(jobs._waiting.get("t", ())) < PIECES:
                await asyncio.sleep(0.01)
            shop = door(server).shop
            client = await Client.connect(server.gmq)
            for number in range(PIECES):
                job = {"id": str(number), "topic": "t", "body": BODY.decode(), "TTR": "60"}
                assert (await client.call("Push", job))[0] == "success"
            assert WRITE_HIGH < await most_waiting(server) < ANSWERS_HIGH + WRITE_HIGH
            assert len(shop.vhost.queues["t"]) > PIECES // 2
            slow.reader._transport.resume_reading()
            found = [json.loads(await slow.line())["result"]["id"] for _ in range(PIECES)]
            assert len(set(found)) == PIECES
            await slow.close()
            await client.close()

    run(test())
