"""A broker with something to see in each view of its page, and a browser that looks at it."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import threading
from contextlib import contextmanager

import pika

from qindex.broker.message import Message
from qindex.broker.timers import now_us
from qindex.broker.users import Permission
from qindex.serve.http.door import accept
from qindex.serve.server import Server
from qindex.serve.sockets import bind

HOSTILE_NAME = "<img src=x onerror=\"document.title='name'\">\u202egpj.exe"
HOSTILE_BODY = b"<script>document.title='body'</script><img src=x onerror=document.title='body'>"
HOSTILE_HEADERS = {"<b>bold</b>": "</dd><script>document.title='header'</script>"}
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = {"auto_delete": False, "owner": None, "user": None}


def chromium():
    """Where a browser is; None: there is none."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


@contextmanager
def browser():
    """A headless Chromium. Its sandbox needs rights that a container seldom gives."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()


class World:
    """The broker runs in a thread of its own; `call` runs a function in its event loop."""

    def __init__(self, directory, *, queues=0):
        self._directory = directory
        self._queues = queues
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(60)
        self._fill()
        return self

    def __exit__(self, *error):
        self.connection.close()
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _main(self):
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self.server = Server(self._directory)
        self.amqp = await self.server.listen("127.0.0.1", 0)
        self.vhost = self.server.node.vhost("/")
        for number in range(self._queues):
            name = f"device.{number:05}"
            self.vhost.declare_queue(name, durable=False, arguments={}, **OPTIONS)
        sockets = bind("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/"
        self.gmq = await self.server.listen_gmq("127.0.0.1", 0)
        await accept(self.server, sockets, [])
        users = self.server.node.users
        users.add("eye", "eye")
        users.set_tags("eye", ["monitoring"])
        users.add("reader", "reader")
        users.set_tags("reader", ["management"])
        users.set_permissions("/", "reader", Permission("", "", ".*"))
        self._ready.set()
        await self._over.wait()
        await self.server.stop()

    def call(self, function):
        async def run():
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def ask_gmq(self, *requests):
        async def run():
            reader, writer = await asyncio.open_connection("127.0.0.1", self.gmq)
            for number, (method, parameter) in enumerate(requests):
                asked = {"method": f"Service.{method}", "params": [parameter], "id": number}
                writer.write(json.dumps(asked).encode())
                await reader.readline()
            writer.close()
            await writer.wait_closed()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def _fill(self):
        parameters = pika.ConnectionParameters(
            "127.0.0.1",
            self.amqp,
            heartbeat=0,
            client_properties={"connection_name": "billing worker"},
        )
        self.connection = pika.BlockingConnection(parameters)
        self.channel = channel = self.connection.channel()
        channel.basic_qos(prefetch_count=20)
        channel.exchange_declare("dead", "fanout", durable=True)
        channel.queue_declare("failed", durable=True)
        channel.queue_bind("failed", "dead")
        for name in ("orders", "invoices", "mail.outgoing", "thumbnails"):
            dead = {"x-dead-letter-exchange": "dead"}
            channel.queue_declare(name, durable=True, arguments=dead)
        channel.queue_declare("reminders", durable=True)
        channel.queue_declare("presence")
        channel.queue_declare(HOSTILE_NAME, durable=True)
        headers = pika.BasicProperties(headers=HOSTILE_HEADERS, delivery_mode=2)
        channel.basic_publish("", HOSTILE_NAME, HOSTILE_BODY, headers)
        self.dice = random.Random(1)
        self.numbers = 0
        self.publish(300)
        for name, count in (("orders", 12), ("mail.outgoing", 5)):
            for _ in range(count):
                method, _, _ = channel.basic_get(name)
                channel.basic_nack(method.delivery_tag, requeue=False)
        for _ in range(7):
            channel.basic_get("orders")
        self.got = []
        for name in ("mail.outgoing", "orders"):
            channel.basic_consume(name, lambda _, method, *more: self.got.append(method))
        self.connection.process_data_events(0.2)
        self.call(self._delay)
        jobs = [
            ("Push", {"id": f"job{n}", "topic": ("resize", "report")[n % 3 == 0], "TTR": "90"}
             | {"body": f"picture {n}", "delay": str(0 if n % 2 else 45 * n)})
            for n in range(1, 41)
        ]  # fmt: skip
        self.ask_gmq(*jobs, *[("Pop", ["resize"])] * 4)

    def publish(self, count):
        """More messages of several kinds."""
        for _ in range(count):
            self.numbers += 1
            names = ["orders", "orders", "invoices", "mail.outgoing", "thumbnails", "presence"]
            name = self.dice.choice(names)
            lines = [{"sku": f"A-{self.dice.randint(1, 50)}", "count": self.dice.randint(1, 9)}]
            body = json.dumps({"id": self.numbers, "lines": lines}).encode()
            kind = "application/json"
            if name == "thumbnails":
                kind = "image/png"
                body = b"\x89PNG\r\n" + self.dice.randbytes(self.dice.randint(200, 9000))
            options = {"delivery_mode": 2, "content_type": kind, "message_id": str(self.numbers)}
            self.channel.basic_publish("", name, body, pika.BasicProperties(**options))

    def settle(self):
        """Ack what consumers have by now, but for a few."""
        while len(self.got) > 5:
            self.channel.basic_ack(self.got.pop(0).delivery_tag)

    def _delay(self):
        queue = self.vhost.queues["reminders"]
        for number in range(120):
            due_us = now_us() + int(self.dice.expovariate(1 / 7200) * 1e6) + 60_000_000
            body = json.dumps({"remind": number}).encode()
            message = Message("", ["reminders"], b"\0\0", body, persistent=True)
            queue.publish(message, now_us(), due_us)

    def ready(self, name):
        return self.call(lambda: len(self.vhost.queues[name]))
