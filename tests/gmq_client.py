"""A client of gmq's two versions on asyncio's streams, and a server for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct

from qindex.serve.server import Server


class Client:
    """One connection. `call` is version 1, `command` version 2."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self._next = 0

    @classmethod
    async def connect(cls, port):
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))

    def send(self, method, parameter):
        self._next += 1
        request = {"method": f"Service.{method}", "params": [parameter], "id": self._next}
        self.writer.write(json.dumps(request).encode())

    async def line(self):
        return (await self.reader.readline()).decode()

    async def call(self, method, parameter):
        """(result, error)"""
        self.send(method, parameter)
        found = json.loads(await self.line())
        assert found["id"] == self._next
        return found["result"], found["error"]

    async def push(self, name, topic="t", body="body", delay="0", ttr="0"):
        job = {"id": name, "topic": topic, "body": body, "delay": delay, "TTR": ttr}
        return (await self.call("Push", job))[0]

    async def answer(self):
        kind, size = struct.unpack(">HI", await self.reader.readexactly(6))
        return kind, await self.reader.readexactly(size)

    async def command(self, line, *bodies):
        for part in (line.encode() + b"\n", *(struct.pack(">I", len(b)) + b for b in bodies)):
            self.writer.write(part)
        return await self.answer()

    async def close(self):
        self.writer.close()
        await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def served(directory=None, **options):
    """A server with both doors; its ports are .amqp and .gmq."""
    server = Server(directory, **options)
    try:
        server.amqp = await server.listen("127.0.0.1", 0)
        server.gmq = await server.listen_gmq("127.0.0.1", 0)
        yield server
    finally:
        await server.stop()


def door(server):
    return server.doors[0]


def run(test):
    asyncio.run(asyncio.wait_for(test, 120))
