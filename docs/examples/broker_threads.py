"""A small broker on qindex and threads: JSON lines over TCP. python broker_threads.py DIR [PORT]

{"do": "push", "queue": "orders", "body": "one dozen"}      or "exchange": "news"
{"do": "watch", "queues": ["orders"]}, {"do": "pop"}        -> {"token": ..., "body": ...}
{"do": "ack", "token": ...}                                 or nack, touch
"""

import json
import socketserver
import sys

import qindex

TTR = 30.0  # seconds that a client may keep a message, unless it says otherwise
TRIES = 5  # a message that was delivered so often and came back becomes a dead letter
UNACKED = 100  # of one connection
LINE = 1 << 20  # bytes of a request


class Connection:
    """The verbs: each request names one, and its other fields are the arguments."""

    def __init__(self, store, consumer):
        self.store = store
        self.consumer = consumer  # gives back what this client has not settled when it goes away

    def declare(self, queue, tries=TRIES):
        self.store.queue(queue, max_deliveries=tries, dead_letters=True)

    def bind(self, exchange, queue):
        self.declare(queue)
        bound = {*bindings(self.store, exchange), queue}
        self.store.data[exchange.encode()] = json.dumps(sorted(bound)).encode()
        self.store.sync()

    def push(self, body, queue=None, exchange=None, delay=None, priority=0, ttl=None):
        queues = bindings(self.store, exchange) if queue is None else [queue]
        if queues:
            # With confirm, a power cut behind the answer loses nothing.
            how = {"delay": delay, "priority": priority, "ttl": ttl, "confirm": True}
            self.store.publish(queues, body.encode(), **how)
        return {"queues": queues}

    def watch(self, queues):
        self.consumer.add(queues)

    def ignore(self, queues):
        self.consumer.remove(queues)

    def pop(self, timeout=0, ttr=TTR):
        message = self.consumer.get(timeout=timeout)
        if message is None:
            return {"token": None}
        self.consumer.touch(message, ttr)
        return {
            "token": message.token,
            "queue": message.queue,
            "body": message.body.decode(),
            "tries": message.delivery_count,
        }

    def ack(self, token):
        self.consumer.ack(token)
        self.store.sync()

    def nack(self, token, delay=None, dead=False):
        self.consumer.nack(token, not dead, delay=delay)

    def touch(self, token, ttr=TTR):
        self.consumer.touch(token, ttr)

    def stats(self, queue):
        figures = self.store.queue(queue, create=False).stats()
        return {key: getattr(figures, key) for key in ("ready", "unacked", "delayed", "dead")}

    def redrive(self, queue, count=None):
        return {"count": self.store.queue(queue, create=False).redrive(count)}


VERBS = {name for name in vars(Connection) if name[0] != "_"}


def bindings(store, exchange):
    """The queues that an exchange copies to: they are kept in the store's own data."""
    return json.loads(store.data.get(exchange.encode(), b"[]"))


def answer(connection, line):
    """One request, one answer; what is wrong with a request is told to the client that made it."""
    try:
        request = json.loads(line)
        verb = request.pop("do")
        if verb not in VERBS:
            raise ValueError(f"there is no verb {verb!r}")
        result = getattr(connection, verb)(**request)
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


class Client(socketserver.StreamRequestHandler):
    """One connection, in a thread of its own."""

    def handle(self):
        try:
            with self.server.store.consumer([], prefetch=UNACKED, lease=TTR) as consumer:
                connection = Connection(self.server.store, consumer)
                while (line := self.rfile.readline(LINE)).endswith(b"\n"):
                    self.wfile.write(json.dumps(answer(connection, line)).encode() + b"\n")
        except (ConnectionError, qindex.StoreClosed):
            pass  # it went away, or the broker stops


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


def main(directory, port=0):
    with (
        qindex.open(directory) as store,
        Server(("127.0.0.1", int(port)), Client) as server,
    ):
        for name in store.queues():  # so that what a queue does by itself goes on
            store.queue(name)
        server.store = store
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
