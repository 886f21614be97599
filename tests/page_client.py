"""The page as a browser sees it, without one: a client with a cookie and a token."""

from __future__ import annotations

import aiohttp
from http_api import Api, run
from yarl import URL

from qindex.broker.message import Message
from qindex.broker.timers import now_us

OPTIONS = {"auto_delete": False, "owner": None, "user": None}


class PageClient:
    """Logs in as the page does, and asks with its cookie and its token."""

    def __init__(self, api: Api) -> None:
        self._base = f"http://127.0.0.1:{api.port}"
        jar = aiohttp.CookieJar(unsafe=True)  # cookies of an address, too
        self.http = aiohttp.ClientSession(cookie_jar=jar)
        self.token = ""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self.http.close()

    async def ask(self, method, path, body=None, *, headers=None):
        url = URL(f"{self._base}{path}", encoded=True)
        headers = {"X-Qindex-Token": self.token, **(headers or {})}
        async with self.http.request(method, url, json=body, headers=headers) as response:
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else await response.read()

    async def log_in(self, user="guest", password="guest"):  # noqa: S107
        given = {"user": user, "password": password}
        status, found = await self.ask("POST", "/api/qindex/session", given)
        if status == 200:
            self.token = found["token"]
        return status, found

    async def own(self, path):
        status, found = await self.ask("GET", f"/api/qindex/{path}")
        assert status == 200, found
        return found

    async def act(self, path, body=None):
        return await self.ask("POST", f"/api/qindex/{path}", body or {})


def with_page(test, directory=None):
    """Run a coroutine function of an API and of a page that has logged in."""

    async def body():
        async with Api(directory) as api, PageClient(api) as page:
            await page.log_in()
            await test(api, page)

    run(body())


def declared(api, name, *, durable=True, **arguments):
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    vhost = api.server.node.vhost("/")
    return vhost.declare_queue(name, durable=durable, arguments=named, **OPTIONS)


def published(queue, *bodies, due_us=0):
    for body in bodies:
        message = Message("", [queue.name], b"\0\0", body, persistent=True)
        queue.publish(message, now_us(), due_us)
