"""What one client of `qindex serve` costs the others: latency beside clients that behave badly.

    python tools/fairness.py                      all of it, in about five minutes
    python tools/fairness.py --only never-reads   one row
    python tools/fairness.py --messages 100000    a smaller backlog

A probe publishes a message and gets it back, 100 times a second, while another process does what
the row says. The table has the probe's latencies, and the processor time that the server's event
loop has used meanwhile: that is what others cost it, however busy the machine is otherwise. The
first row is that of an idle server. Beside it: how soon a server with the backlog listens, and the
memory of idle connections.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from qindex.amqp import methods as m
from qindex.amqp.wire import (
    METHOD,
    PROTOCOL_HEADER,
    Scanner,
    decode_method,
    encode_content,
    encode_method,
)

FRAME_MAX: Final = 131_072
PAUSE_SECONDS: Final = 0.01
BACKLOG: Final = "backlog"
BATCH: Final = 1000
WINDOW: Final = 50 * BATCH
IDLE_CONNECTIONS: Final = 10_000
MANY_QUEUES: Final = 1000


class Client:
    """A connection with one channel, which sends bytes and hears methods."""

    def __init__(self, port: int, password: str = "guest") -> None:  # noqa: S107 - the first user
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._scanner = Scanner(FRAME_MAX)
        self._heard: list[Any] = []
        self.send(PROTOCOL_HEADER)
        self.expect(m.ConnectionStart)
        told = {"capabilities": {"authentication_failure_close": True}}
        said = b"\0guest\0" + password.encode()
        self.call(m.ConnectionStartOk(told, "PLAIN", said, "en_US"), channel=0)
        self.expect(m.ConnectionTune)
        self.call(m.ConnectionTuneOk(100, FRAME_MAX, 0), channel=0)
        self.call(m.ConnectionOpen("/", "", False), channel=0)
        self.expect(m.ConnectionOpenOk)
        self.call(m.ChannelOpen(""))
        self.expect(m.ChannelOpenOk)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def call(self, method: Any, channel: int = 1) -> None:
        self.send(encode_method(channel, method))

    def expect(self, kind: type[Any]) -> Any:
        while True:
            for number, method in enumerate(self._heard):
                if isinstance(method, kind):
                    del self._heard[: number + 1]
                    return method
            data = self.socket.recv(1 << 18)
            if not data:
                raise EOFError(f"no {kind.__name__}, but {self._heard}")
            for frame, _, payload in self._scanner.frames(data):
                if frame == METHOD:
                    self._heard.append(decode_method(payload))

    def declare(self, name: str, *, durable: bool = False) -> None:
        self.call(m.QueueDeclare(0, name, False, durable, False, False, False, {}))
        self.expect(m.QueueDeclareOk)

    def consume(self, name: str, *, no_ack: bool = False, prefetch: int = 0) -> None:
        if prefetch:
            self.call(m.BasicQos(0, prefetch, False))
            self.expect(m.BasicQosOk)
        self.call(m.BasicConsume(0, name, "", False, no_ack, False, False, {}))
        self.expect(m.BasicConsumeOk)


def published(name: str, body: bytes, *, persistent: bool = False) -> bytes:
    properties = b"\x10\x00\x02" if persistent else b"\0\0"
    method = encode_method(1, m.BasicPublish(0, "", name, False, False))
    return method + b"".join(encode_content(1, properties, body, FRAME_MAX))


# --- what the others do -------------------------------------------------------------------------


def idle(port: int) -> None:
    time.sleep(1e6)


def slow_consumer(port: int) -> None:
    """Takes one message of the backlog, thinks for 50 ms, acks it."""
    client = Client(port)
    client.consume(BACKLOG, prefetch=1)
    while True:
        tag = client.expect(m.BasicDeliver).delivery_tag
        time.sleep(0.05)
        client.call(m.BasicAck(tag, False))


def never_reads(port: int) -> None:
    """Twenty consumers of the backlog, without a limit, that read nothing."""
    clients = [Client(port) for _ in range(20)]
    for client in clients:
        client.call(m.BasicConsume(0, BACKLOG, "", False, True, False, True, {}))
    time.sleep(1e6)


def unlimited_prefetch(port: int) -> None:
    """Takes the backlog as quickly as it comes, and acks none of it."""
    client = Client(port)
    client.consume(BACKLOG)
    while client.socket.recv(1 << 18):
        pass


def flood(port: int) -> None:
    """Publishes 100 bytes as fast as the server takes them; nobody consumes."""
    client = Client(port)
    client.declare("flood", durable=True)
    data = published("flood", b"x" * 100, persistent=True) * BATCH
    while True:
        client.send(data)


def half_open(port: int) -> None:
    """Five hundred connections in the middle of a frame, that say nothing more."""
    clients = [Client(port) for _ in range(500)]
    for client in clients:
        client.send(published(BACKLOG, b"x" * 1000)[:200])
    time.sleep(1e6)


def slow_handshake(port: int) -> None:
    """A thousand connections that send their first bytes one by one."""
    found = [socket.create_connection(("127.0.0.1", port)) for _ in range(1000)]
    for number in range(len(PROTOCOL_HEADER) - 1):
        for each in found:
            each.sendall(PROTOCOL_HEADER[number : number + 1])
        time.sleep(0.5)
    time.sleep(1e6)


def wrong_passwords(port: int) -> None:
    """Tries one password after the other."""
    number = 0
    while True:
        number += 1
        try:
            Client(port, f"wrong {number}").socket.close()
        except (EOFError, ConnectionError):
            continue


def many_queues(port: int) -> None:
    """Declares and deletes queues in memory, a thousand at a time."""
    client = Client(port)
    while True:
        for number in range(MANY_QUEUES):
            client.declare(f"many {number}")
        for number in range(MANY_QUEUES):
            client.call(m.QueueDelete(0, f"many {number}", False, False, False))
            client.expect(m.QueueDeleteOk)


ROWS: Final[dict[str, Callable[[int], None]]] = {
    "nobody else": idle,
    "slow-consumer": slow_consumer,
    "never-reads": never_reads,
    "unlimited-prefetch": unlimited_prefetch,
    "flood": flood,
    "half-open": half_open,
    "slow-handshake": slow_handshake,
    "wrong-passwords": wrong_passwords,
    "many-queues": many_queues,
}


# --- what is measured ---------------------------------------------------------------------------


class Serving:
    """`qindex serve` as a process; `seconds` until it listened."""

    def __init__(self, directory: str) -> None:
        run = [sys.executable, "-m", "qindex", "serve", directory, "--amqp", "127.0.0.1:0"]
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*run, "--log-file", f"{directory}.log"], stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline() if self.process.stdout else ""
        self.seconds, self.cpu_seconds = time.monotonic() - began, self.cpu()
        found = re.search(r"amqp://\S+?:(\d+) ", line)
        if found is None:
            raise SystemExit(f"the server does not listen: {line!r}")
        self.port = int(found[1])

    def cpu(self) -> float:
        """Seconds of processor time of the event loop's thread until now."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def fill(port: int, count: int) -> None:
    """Make the backlog, and wait until it is durable."""
    client = Client(port)
    client.declare(BACKLOG, durable=True)
    client.call(m.ConfirmSelect(False))
    client.expect(m.ConfirmSelectOk)
    data = published(BACKLOG, b"x" * 100, persistent=True) * BATCH
    confirmed = 0
    for sent in range(BATCH, count + 1, BATCH):
        client.send(data)
        while confirmed < (sent - WINDOW if sent < count else sent):
            confirmed = client.expect(m.BasicAck).delivery_tag


class Latencies(NamedTuple):
    """Milliseconds from a publish to its delivery, sorted: of the clock, and of the event loop."""

    wall: list[float]
    cpu: list[float]

    def __str__(self) -> str:
        found = (each[int(len(each) * q)] for each in self for q in (0.5, 0.99, 0.999))
        return " ".join(f"{each:8.2f}" for each in found)


def probe(serving: Serving, count: int) -> Latencies:
    client = Client(serving.port)
    client.declare("probe")
    client.consume("probe", no_ack=True)
    data, found = published("probe", b"x" * 100), Latencies([], [])
    for _ in range(count):
        cpu, began = serving.cpu(), time.perf_counter()
        client.send(data)
        client.expect(m.BasicDeliver)
        found.wall.append((time.perf_counter() - began) * 1e3)
        found.cpu.append((serving.cpu() - cpu) * 1e3)
        time.sleep(PAUSE_SECONDS)
    client.socket.close()
    return Latencies(*map(sorted, found))


@contextmanager
def disturbed(row: str, port: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, __file__, "--disturb", row, "--port", str(port)])
    time.sleep(2)
    if process.poll() is not None:
        raise SystemExit(f"{row}: what disturbs has ended")
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure(serving: Serving, rows: list[str], probes: int) -> None:
    heads = " ".join(f"{q:>8}" for q in ("p50", "p99", "most") * 2)
    print(f"{'beside (ms: clock, loop)':24} {heads} {'CPU %':>6} {'MiB':>6}")
    for row in rows:
        with disturbed(row, serving.port):
            cpu, began = serving.cpu(), time.monotonic()
            found = probe(serving, probes)
            busy = (serving.cpu() - cpu) / (time.monotonic() - began)
            memory = serving.memory() >> 20
        print(f"{row:24} {found} {busy * 100:6.0f} {memory:6}", flush=True)
        time.sleep(1)


def measure_idle(serving: Serving, count: int, probes: int) -> None:
    before = serving.memory()
    clients = [Client(serving.port) for _ in range(count)]
    used = serving.memory() - before
    print(f"{count} idle connections: {used >> 20} MiB, {used / count / 1024:.1f} KiB each")
    print(f"{'beside them':24} {probe(serving, probes)}")
    for client in clients:
        client.socket.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=ROWS, action="append")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=IDLE_CONNECTIONS)
    parser.add_argument("--probes", type=int, default=500, help="for each row")
    parser.add_argument("--disturb", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.disturb:
        ROWS[options.disturb](options.port)
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        directory = f"{folder}/data"
        with Serving(directory) as serving:
            fill(serving.port, options.messages)
        with Serving(directory) as serving:
            print(
                f"{options.messages} messages: listening after {serving.seconds:.2f} s, "
                f"{serving.cpu_seconds:.2f} s of them of processor time"
            )
            began = time.monotonic()
            client = Client(serving.port)
            client.call(m.BasicGet(0, BACKLOG, False))
            client.expect(m.BasicGetOk)
            print(f"the first message after {time.monotonic() - began:.2f} s more")
            client.socket.close()
            measure(serving, options.only or list(ROWS), options.probes)
        if not options.only:
            with Serving(f"{folder}/idle") as serving:
                measure_idle(serving, options.connections, options.probes)


if __name__ == "__main__":
    main()
