"""What `qindex serve` keeps in memory for a connection, a channel, a queue, a message.

    python tools/capacity.py              all of it, in about two minutes
    python tools/capacity.py --write      also write docs/figures/capacity.rst

Each row makes many of one kind and divides what the process has more then: its own memory
(RssAnon), and pages of files that it has mapped (RssFile), which the kernel takes back when others
need them. These figures do not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from fairness import Client, Serving, published

from qindex.amqp import methods as m
from qindex.amqp.wire import encode_method

TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "figures" / "capacity.rst"
BODY: Final = b"x" * 100
BATCH: Final = 500


class Memory(NamedTuple):
    """Bytes."""

    own: int
    mapped: int


def memory_of(pid: int) -> Memory:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    return Memory(*(int(found[name][0]) * 1024 for name in ("RssAnon", "RssFile")))


def confirm(client: Client) -> None:
    client.call(m.ConfirmSelect(False))
    client.expect(m.ConfirmSelectOk)


def fill(client: Client, name: str, count: int, *, persistent: bool) -> None:
    """Publish so many messages, and wait until they are confirmed."""
    confirm(client)
    data = published(name, BODY, persistent=persistent) * BATCH
    for sent in range(BATCH, count + 1, BATCH):
        client.send(data)
        if sent % (20 * BATCH) == 0 or sent == count:
            while client.expect(m.BasicAck).delivery_tag < sent:
                pass


# --- what there is many of ----------------------------------------------------------------------
# Each function makes `count` of them, and returns what keeps them there.


def connections(port: int, count: int) -> object:
    return [Client(port) for _ in range(count)]


def channels(port: int, count: int) -> object:
    clients = []
    for begin in range(0, count, 90):
        clients.append(client := Client(port))
        for number in range(2, 2 + min(90, count - begin)):
            client.call(m.ChannelOpen(""), number)
            client.expect(m.ChannelOpenOk)
    return clients


def durable_queues(port: int, count: int) -> object:
    client = Client(port)
    for number in range(count):
        client.declare(f"durable {number}", durable=True)
    return client


def used_queues(port: int, count: int) -> object:
    """One message in each of the durable queues."""
    client = Client(port)
    confirm(client)
    names = [f"durable {number}" for number in range(count)]
    client.send(b"".join(published(name, BODY, persistent=True) for name in names))
    while client.expect(m.BasicAck).delivery_tag < count:
        pass
    return client


def queues_in_memory(port: int, count: int) -> object:
    client = Client(port)
    for number in range(count):
        client.declare(f"memory {number}")
    return client


def bindings(port: int, count: int) -> object:
    client = Client(port)
    client.declare("bound")
    for number in range(count):
        client.call(m.QueueBind(0, "bound", "amq.topic", f"a.{number}.#", False, {}))
        client.expect(m.QueueBindOk)
    return client


def consumers(port: int, count: int) -> object:
    client = Client(port)
    client.declare("empty")
    for number in range(count):
        client.call(m.BasicConsume(0, "empty", f"c{number}", False, False, False, False, {}))
        client.expect(m.BasicConsumeOk)
    return client


def waiting(port: int, count: int) -> object:
    client = Client(port)
    client.declare("backlog", durable=True)
    fill(client, "backlog", count, persistent=True)
    return client


def unacked(port: int, count: int) -> object:
    """All that waits is delivered to one consumer, which acks nothing."""
    client = Client(port)
    client.call(m.BasicConsume(0, "backlog", "t", False, False, False, False, {}))
    begin = len(encode_method(1, m.BasicConsumeOk("t")))
    each = len(encode_method(1, m.BasicDeliver("t", 1, False, "", "backlog")))
    each += len(published("backlog", BODY, persistent=True)) - len(
        encode_method(1, m.BasicPublish(0, "", "backlog", False, False))
    )
    got = 0
    while got < begin + count * each:
        got += len(client.socket.recv(1 << 20))
    return client


def waiting_in_memory(port: int, count: int) -> object:
    client = Client(port)
    client.declare("transient")
    fill(client, "transient", count, persistent=False)
    return client


Row = tuple[str, Callable[[int, int], object], int]
ROWS: Final[list[Row]] = [
    ("a connection, with one channel", connections, 2000),
    ("a channel more", channels, 1800),
    ("a durable queue, not used", durable_queues, 1000),
    ("a durable queue, with a message, beside that", used_queues, 1000),
    ("a queue in memory", queues_in_memory, 2000),
    ("a binding", bindings, 2000),
    ("a consumer", consumers, 2000),
    ("a message of 100 bytes that waits in a durable queue", waiting, 500_000),
    ("a message of a durable queue that is delivered and not acked", unacked, 500_000),
    ("a message of 100 bytes that waits in a queue in memory", waiting_in_memory, 100_000),
]


def measure() -> tuple[Memory, list[tuple[str, int, float, float]]]:
    """The memory of an idle server; what, how many, own and mapped bytes for each."""
    found = []
    with tempfile.TemporaryDirectory() as folder, Serving(f"{folder}/data") as serving:
        first = Client(serving.port)  # opens the virtual host
        idle = memory_of(serving.process.pid)
        kept: list[object] = [first]
        for what, make, count in ROWS:
            before = memory_of(serving.process.pid)
            kept.append(make(serving.port, count))
            after = memory_of(serving.process.pid)
            own, mapped = ((b - a) / count for a, b in zip(before, after, strict=True))
            found.append((what, count, own, mapped))
            print(f"{what:62} {count:8} {own:10.0f} {mapped:10.0f}", flush=True)
    return idle, found


def shown(idle: Memory, rows: list[tuple[str, int, float, float]]) -> str:
    lines = [
        "Memory of ``qindex serve``, measured by ``tools/capacity.py`` with uvloop: what one more",
        "costs, in bytes. Mapped pages belong to files; the kernel takes them back if others",
        f"need them. An idle server has {idle.own >> 20} MiB of its own.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 52 16 16 16",
        "",
        *_cells(["one more", "measured with", "own", "mapped"]),
    ]
    for what, count, own, mapped in rows:
        lines += _cells([what, f"{count:,}", f"{max(own, 0):,.0f}", f"{max(mapped, 0):,.0f}"])
    return "\n".join(lines) + "\n"


def _cells(values: list[str]) -> list[str]:
    return [f"   {'* ' if at == 0 else '  '}- {value}" for at, value in enumerate(values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"{'one more':62} {'count':>8} {'own':>10} {'mapped':>10}")
    text = shown(*measure())
    if options.write:
        TARGET.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
