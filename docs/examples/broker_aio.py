"""A small broker on qindex.aio: JSON lines over TCP. python broker_aio.py DIR [PORT]

{"do": "push", "queue": "orders", "body": "one dozen"}      or "exchange": "news"
{"do": "watch", "queues": ["orders"]}, {"do": "pop"}        -> {"token": ..., "body": ...}
{"do": "ack", "token": ...}                                 or nack, touch
"""

import asyncio
import json
import sys

import qindex
import qindex.aio

TTR = 30.0  # seconds that a client may keep a message, unless it says otherwise
TRIES = 5  # a message that was delivered so often and came back becomes a dead letter
UNACKED = 100  # of one connection
LINE = 1 << 20  # bytes of a request


class Connection:
    """The verbs: each request names one, and its other fields are the arguments."""

    def __init__(self, store, consumer):
        self.store = store
        self.consumer = consumer  # gives back what this client has not settled when it goes away

    async def declare(self, queue, tries=TRIES):
        await self.store.queue(queue, max_deliveries=tries, dead_letters=True)

    async def bind(self, exchange, queue):
        await self.declare(queue)
        bound = {*await bindings(self.store, exchange), queue}
        value = json.dumps(sorted(bound)).encode()
        await self.store.data.change({exchange.encode(): value}, confirm=True)

    async def push(self, body, queue=None, exchange=None, delay=None, priority=0, ttl=None):
        queues = await bindings(self.store, exchange) if queue is None else [queue]
        if queues:
            # With confirm, a power cut behind the answer loses nothing.
            how = {"delay": delay, "priority": priority, "ttl": ttl, "confirm": True}
            await self.store.publish(queues, body.encode(), **how)
        return {"queues": queues}

    async def watch(self, queues):
        await self.consumer.add(queues)

    async def ignore(self, queues):
        await self.consumer.remove(queues)

    async def pop(self, timeout=0, ttr=TTR):
        message = await self.consumer.get(timeout=timeout)
        if message is None:
            return {"token": None}
        await self.consumer.touch(message, ttr)
        return {
            "token": message.token,
            "queue": message.queue,
            "body": message.body.decode(),
            "tries": message.delivery_count,
        }

    async def ack(self, token):
        await self.consumer.ack(token)
        await self.store.sync()

    async def nack(self, token, delay=None, dead=False):
        await self.consumer.nack(token, not dead, delay=delay)

    async def touch(self, token, ttr=TTR):
        await self.consumer.touch(token, ttr)

    async def stats(self, queue):
        figures = await (await self.store.queue(queue, create=False)).stats()
        return {key: getattr(figures, key) for key in ("ready", "unacked", "delayed", "dead")}

    async def redrive(self, queue, count=None):
        return {"count": await (await self.store.queue(queue, create=False)).redrive(count)}


VERBS = {name for name in vars(Connection) if name[0] != "_"}


async def bindings(store, exchange):
    """The queues that an exchange copies to: they are kept in the store's own data."""
    return json.loads(await store.data.get(exchange.encode(), b"[]"))


async def answer(connection, line):
    """One request, one answer; what is wrong with a request is told to the client that made it."""
    try:
        request = json.loads(line)
        verb = request.pop("do")
        if verb not in VERBS:
            raise ValueError(f"there is no verb {verb!r}")
        result = await getattr(connection, verb)(**request)
        return {"ok": True} | (result or {})
    except qindex.StoreClosed:
        raise  # the broker stops
    except (
        qindex.QindexError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        return {"ok": False, "error": type(error).__name__, "text": str(error)}


async def serve(store, reader, writer):
    try:
        async with await store.consumer([], prefetch=UNACKED, lease=TTR) as consumer:
            connection = Connection(store, consumer)
            while line := await reader.readline():
                writer.write(json.dumps(await answer(connection, line)).encode() + b"\n")
                await writer.drain()
    except (ConnectionError, qindex.StoreClosed, ValueError):
        pass  # it went away, the broker stops, or a line is too long
    finally:
        writer.close()


async def main(directory, port=0):
    async with qindex.aio.open(directory) as store:
        for name in await store.queues():  # so that what a queue does by itself goes on
            await store.queue(name)

        async def client(reader, writer):
            await serve(store, reader, writer)

        server = await asyncio.start_server(client, "127.0.0.1", int(port), limit=LINE)
        print(server.sockets[0].getsockname()[1], flush=True)
        async with server:
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
