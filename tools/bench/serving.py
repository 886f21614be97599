"""What a message costs an AMQP server: CPU time of its process, and messages per second.

    python tools/bench/serving.py                         qindex serve, on a directory of its own
    python tools/bench/serving.py --peer PORT PID ...     also a server that listens there, by its
                                                          process and those below it
    python tools/bench/serving.py --alone                 only messages that come one at a time, and
                                                          what a read and a write cost at least

The client sends bytes that were made before, in pieces of 64 KiB, with 10,000 unconfirmed at most,
and takes the sizes of deliveries as known: it costs less than the server. CPU time is what to
compare: it changes little with what else the machine does; messages per second do. Two users of the
peer are guest. The load of the machine is printed, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qindex.amqp import methods as m
from qindex.amqp.wire import (
    PROTOCOL_HEADER,
    Scanner,
    decode_method,
    encode_content,
    encode_method,
)
from qindex.brokers.amqp import Properties, encode_properties

PIECE = 64 * 1024
WINDOW = 10_000
PREFETCH, ACK_EACH = 1000, 100
BLOCK = 20  # of what is measured in turns
TICKS = os.sysconf("SC_CLK_TCK")
PLAIN = encode_properties(Properties(delivery_mode=2))
TASK = encode_properties(
    Properties(
        headers={"lang": "py", "task": "add", "id": "0" * 36, "retries": 0, "eta": None},
        content_type="application/json",
        content_encoding="utf-8",
        delivery_mode=2,
        correlation_id="0" * 36,
        reply_to="1" * 36,
    )
)


def cpu_seconds(pid: int) -> float:
    """Of this process and of those below it."""
    total, pids = 0.0, [pid]
    while pids:
        each = pids.pop()
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
        for task in Path(f"/proc/{each}/task").iterdir():
            pids += map(int, (task / "children").read_text().split())
    return total


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._scanner = Scanner(1 << 20)
        self.socket.sendall(PROTOCOL_HEADER)
        self.expect(m.ConnectionStart)
        self.call(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
        self.expect(m.ConnectionTune)
        self.call(0, m.ConnectionTuneOk(100, 131_072, 0))
        self.ask(0, m.ConnectionOpen("/", "", False), m.ConnectionOpenOk)
        self.ask(1, m.ChannelOpen(""), m.ChannelOpenOk)

    def call(self, channel: int, method: object) -> None:
        self.socket.sendall(encode_method(channel, method))

    def expect(self, kind: type) -> None:
        while True:
            for frame in self._scanner.frames(self.socket.recv(1 << 16)):
                if type(decode_method(frame.payload)) is kind:
                    return

    def ask(self, channel: int, method: object, answer: type) -> None:
        self.call(channel, method)
        self.expect(answer)

    def declare(self, names: list[str]) -> None:
        for name in names:
            declare = m.QueueDeclare(0, name, False, True, False, False, False, {})
            self.ask(1, declare, m.QueueDeclareOk)
            self.ask(1, m.QueuePurge(0, name, False), m.QueuePurgeOk)

    def publish(self, names: list[str], count: int, properties: bytes, size: int) -> None:
        """Publish in turn to these queues; return when all is confirmed."""
        self.ask(1, m.ConfirmSelect(False), m.ConfirmSelectOk)
        content = b"".join(encode_content(1, properties, b"x" * size, 131_072))
        each = [
            encode_method(1, m.BasicPublish(0, "", name, False, False)) + content for name in names
        ]
        per = max(1, PIECE // len(each[0]))
        sent = confirmed = 0
        while confirmed < count:
            if sent < count and sent - confirmed < WINDOW:
                some = min(per, count - sent)
                self.socket.sendall(
                    b"".join(each[number % len(each)] for number in range(sent, sent + some))
                )
                sent += some
                continue
            for frame in self._scanner.frames(self.socket.recv(1 << 20)):
                ack = decode_method(frame.payload)
                if type(ack) is not m.BasicAck:
                    raise SystemExit(f"not confirmed: {ack}")
                confirmed = ack.delivery_tag if ack.multiple else confirmed + 1

    def consume(self, name: str, count: int, properties: bytes, size: int) -> None:
        """Take so many messages of this size, and ack each 100 at once."""
        deliver = encode_method(1, m.BasicDeliver("t", 1, False, "", name))
        content = b"".join(encode_content(1, properties, b"x" * size, 131_072))
        each = len(deliver) + len(content)
        self.ask(1, m.BasicQos(0, PREFETCH, False), m.BasicQosOk)
        consume = m.BasicConsume(0, name, "t", False, False, False, False, {})
        self.call(1, consume)
        answer = len(encode_method(1, m.BasicConsumeOk("t")))
        got = acked = 0
        while got - answer < count * each:
            got += len(self.socket.recv(1 << 20))
            done = (got - answer) // each
            while done - acked >= ACK_EACH or (done == count and acked < count):
                acked = min(acked + ACK_EACH, count)
                self.call(1, m.BasicAck(acked, True))
        self.ask(1, m.BasicCancel("t", False), m.BasicCancelOk)

    def consume_singly(self, name: str, count: int, size: int) -> None:
        """Take so many messages, each after the ack of the one before."""
        each = len(encode_method(1, m.BasicDeliver("t", 1, False, "", name)))
        each += sum(map(len, encode_content(1, PLAIN, b"x" * size, 131_072)))
        self.ask(1, m.BasicQos(0, 1, False), m.BasicQosOk)
        self.call(1, m.BasicConsume(0, name, "t", False, False, False, False, {}))
        got = -len(encode_method(1, m.BasicConsumeOk("t")))
        for number in range(1, count + 1):
            while got < number * each:
                got += len(self.socket.recv(1 << 16))
            self.call(1, m.BasicAck(number, False))

    def select_confirms(self) -> None:
        self.ask(1, m.ConfirmSelect(False), m.ConfirmSelectOk)

    def publish_singly(self, name: str, count: int, size: int) -> None:
        """Publish so many messages, each after the confirm of the one before (select_confirms)."""
        content = b"".join(encode_content(1, PLAIN, b"x" * size, 131_072))
        publish = encode_method(1, m.BasicPublish(0, "", name, False, False)) + content
        for _ in range(count):
            self.socket.sendall(publish)
            self.expect(m.BasicAck)


@contextmanager
def measured(what: str, pid: int, count: int) -> Iterator[None]:
    before, begin = cpu_seconds(pid), time.monotonic()
    yield
    took, cpu = time.monotonic() - begin, cpu_seconds(pid) - before
    print(f"  {what:44} {count / took:12,.0f}/s {cpu / count * 1e6:8.2f} us", flush=True)


class Echo(asyncio.Protocol):
    """What any server does for one message that comes alone: a read and a write."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        self.write(data)


ECHO = """
import asyncio, sys, uvloop
sys.path.insert(0, sys.argv[1])
import serving
async def main():
    server = await asyncio.get_running_loop().create_server(serving.Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
uvloop.run(main())
"""


def run_floor(count: int) -> None:
    """The same bytes as of a delivery and its ack, one at a time, under uvloop."""
    command = [sys.executable, "-c", ECHO, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline())
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with measured("echo of 150 bytes under uvloop", server.pid, count):
                    for _ in range(count):
                        client.sendall(b"x" * 150)
                        client.recv(1 << 16)
        finally:
            server.terminate()


def run_alone(port: int, pid: int, count: int) -> None:
    client = Client(port)
    client.declare(["alone"])
    client.publish(["alone"], count, PLAIN, 100)
    client = Client(port)
    with measured("consume, prefetch 1, an ack for each: 100 B", pid, count):
        client.consume_singly("alone", count, 100)
    client = Client(port)
    client.select_confirms()
    with measured("publish, one unconfirmed: 100 B", pid, count // 10):
        client.publish_singly("alone", count // 10, 100)
    for size in (100, 2048):
        run_beside_syncs(client, count // 20, size)


def run_beside_syncs(client: Client, count: int, size: int) -> None:
    """Publish one by one, in blocks beside raw fdatasyncs; medians of the blocks."""
    raw_seconds, seconds, page = [], [], os.urandom(4096)
    with tempfile.NamedTemporaryFile() as raw:
        raw.write(bytes(BLOCK * len(page)))
        raw.flush()
        os.fsync(raw.fileno())
        for _ in range(count // BLOCK):
            start = time.monotonic()
            for number in range(BLOCK):
                os.pwrite(raw.fileno(), page, number * len(page))
                os.fdatasync(raw.fileno())
            raw_seconds.append(time.monotonic() - start)
            start = time.monotonic()
            client.publish_singly("alone", BLOCK, size)
            seconds.append(time.monotonic() - start)
    share = statistics.median(raw_seconds) / statistics.median(seconds)
    print(f"  the same, {size:,} bytes: {share:.2f} of the raw fdatasync rate")


def run(port: int, pid: int, count: int) -> None:
    for what, size, properties in (
        ("100 B", 100, PLAIN),
        ("1 KiB", 1024, PLAIN),
        ("100 B with Celery's properties", 100, TASK),
    ):
        client = Client(port)
        client.declare(["bench"])
        with measured(f"publish, confirmed: {what}", pid, count):
            client.publish(["bench"], count, properties, size)
        with measured(f"consume, acked: {what}", pid, count):
            client.consume("bench", count, properties, size)
    for queues in (100, 1000):
        client = Client(port)
        names = [f"bench-{number}" for number in range(queues)]
        client.declare(names)
        with measured(f"publish, confirmed: 100 B, {queues} queues", pid, count):
            client.publish(names, count, PLAIN, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--port", type=int, default=15679)
    parser.add_argument("--confirm", default="durable", choices=["durable", "written"])
    parser.add_argument("--peer", nargs=2, type=int, metavar=("PORT", "PID"))
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    print("load:", *os.getloadavg())
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "qindex", "serve", f"{folder}/d"]
        command += ["--amqp", f"127.0.0.1:{options.port}", "--confirm", options.confirm]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            server.stdout.readline()
            print(f"qindex serve, --confirm {options.confirm}")
            (run_alone if options.alone else run)(options.port, server.pid, options.count)
        finally:
            server.terminate()
            server.wait()
    if options.peer:
        print(f"the peer at port {options.peer[0]}")
        (run_alone if options.alone else run)(*options.peer, options.count // 10)
    if options.alone:
        run_floor(options.count)


if __name__ == "__main__":
    main()
