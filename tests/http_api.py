"""A server with an HTTP port, and a client of it."""

from __future__ import annotations

import asyncio
import base64
import json

import aiohttp
from yarl import URL

from qindex.serve.http.door import accept
from qindex.serve.server import Server
from qindex.serve.sockets import bind


class Api:
    """A server with an HTTP port, and a client of it."""

    def __init__(self, directory=None):
        self.directory = directory

    async def __aenter__(self):
        self.server = Server(self.directory)
        self.amqp = await self.server.listen("127.0.0.1", 0)
        sockets = bind("127.0.0.1", 0)
        self.port = sockets[0].getsockname()[1]
        await accept(self.server, sockets, ["broker.example"])
        self.client = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *error):
        await self.client.close()
        await self.server.stop()

    async def raw(self, method, path, *, login=("guest", "guest"), headers=None, **options):
        basic = base64.b64encode(":".join(login).encode()).decode()
        headers = {"Authorization": f"Basic {basic}", **(headers or {})}
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with self.client.request(method, url, headers=headers, **options) as response:
            return response.status, response.headers, await response.read()

    async def ask(self, method, path, body=None, **options):
        url = f"/api/{path}"
        status, headers, raw = await self.raw(method, url, json=body, **options)
        if headers.get("Content-Type", "").startswith("application/json"):
            return status, json.loads(raw)
        return status, raw


def run(test):
    asyncio.run(asyncio.wait_for(test, 120))
