"""A large quorum queue's log, made without a broker, and what reading it costs.

    python tools/bench/quorum_log.py make DIR --entries 2000000 --body 1024
    python tools/bench/quorum_log.py make DIR --version 7 --in-wal
    python tools/bench/quorum_log.py read DIR

The newest entries, at most 256 MB, are in the shared log, the rest is in segments; with --in-wal
all are in the shared log. --version is that of the state machine: 2 as in RabbitMQ 3.10, 7 as in
4.2, with message containers. Every second
entry publishes a message, the others settle one; a backlog of messages stays live. `read` prints
CPU time and the largest resident size of a process that reads the node once.
"""

from __future__ import annotations

import argparse
import resource
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

UID = b"2F_BENCHABCDEFGHIJ"
NODE = "quorum/bench@localhost"
SLOTS = 4096
WAL_BYTES = 256 << 20


def atom(name: str) -> bytes:
    return b"w" + bytes([len(name)]) + name.encode()


def binary(data: bytes) -> bytes:
    return b"m" + struct.pack(">I", len(data)) + data


def whole(number: int) -> bytes:
    if number < 256:
        return b"a" + bytes([number])
    if number < 1 << 31:
        return b"b" + struct.pack(">i", number)
    raw = number.to_bytes((number.bit_length() + 7) // 8, "little")
    return b"n" + bytes([len(raw), 0]) + raw


def row(*parts: bytes) -> bytes:
    return b"h" + bytes([len(parts)]) + b"".join(parts)


def several(*parts: bytes) -> bytes:
    return b"l" + struct.pack(">I", len(parts)) + b"".join(parts) + b"j"


def process(number: int) -> bytes:
    return b"X" + atom("bench@localhost") + struct.pack(">III", number, 0, 7)


PUBLISHER, READER = process(501), process(502)
CONSUMER = row(binary(b"ctag1.bench"), READER)


def user(at_ms: int, command: bytes, number: int = 1) -> bytes:
    meta = b"t\0\0\0\1" + atom("ts") + whole(at_ms)
    reply = row(atom("notify"), whole(number), PUBLISHER)
    return b"\x83" + row(atom("$usr"), meta, command, reply)


def resource_of(kind: str, name: bytes) -> bytes:
    return row(atom("resource"), binary(b"/"), atom(kind), binary(name))


def message(body: bytes) -> bytes:
    content = row(
        atom("content"), whole(60), atom("none"), binary(b"\x10\0\2"),
        atom("rabbit_framing_amqp_0_9_1"), several(binary(body)),
    )  # fmt: skip
    keys = several(binary(b"bench"))
    return row(
        atom("basic_message"), resource_of("exchange", b""), keys, content, binary(b""),
        atom("true"),
    )  # fmt: skip


def container(body: bytes) -> bytes:
    content = row(
        atom("content"), whole(60), atom("none"), binary(b"\x10\0\2"), atom("none"),
        several(binary(body)),
    )  # fmt: skip
    notes = b"t\0\0\0\2" + atom("x") + binary(b"") + atom("rk") + several(binary(b"bench"))
    return row(atom("mc"), atom("mc_amqpl"), content, notes)


def entries(count: int, body_bytes: int, live: int, version: int) -> Iterator[bytes]:
    """`live`: messages that are never settled."""
    now = 1_795_000_000_000
    yield b"\x83" + row(atom("noop"), b"t\0\0\0\1" + atom("ts") + whole(now), whole(version))
    settings = b"t\0\0\0\2" + atom("queue_resource") + resource_of("queue", b"bench")
    settings += atom("dead_letter_handler") + atom("undefined")
    yield user(now, row(atom("update_config"), settings))
    spec, key = row(atom("auto"), whole(1000), atom("simple_prefetch")), CONSUMER
    term = message(b"x" * body_bytes)
    if version >= 4:
        spec = row(atom("auto"), row(atom("simple_prefetch"), whole(1000)))
        key, term = whole(3), container(b"x" * body_bytes)
    sizes = row(whole(50), whole(body_bytes))
    yield user(now, row(atom("checkout"), CONSUMER, spec, b"t\0\0\0\0"))
    sent = settled = 0
    for number in range(count - 3):
        if sent - settled > 500 and number % 2 and settled + live < sent + 500:
            numbers = (
                b"k\0\1" + bytes([settled & 255]) if settled < 256 else several(whole(settled))
            )
            yield user(now + number, row(atom("settle"), key, numbers))
            settled += 1
        else:
            sent += 1
            told = row(atom("enqueue"), PUBLISHER, whole(sent), term)
            if version >= 4:
                told = row(atom("e"), whole(sent), term, sizes)
            yield user(now + number, told, sent)


def make(options: argparse.Namespace) -> None:
    folder, count, body_bytes = options.folder, options.entries, options.body
    where = folder / NODE
    own = where / UID.decode()
    own.mkdir(parents=True)
    config = b"#{id => {'%2F_bench','bench@localhost'},machine => {module,rabbit_fifo,"
    config += b'#{queue_resource => {resource,<<"/">>,queue,<<"bench">>}}}}.\n'
    (own / "config").write_bytes(config)
    shape = struct.Struct(">QQQII")
    in_segments = count - min(count // 5, 2 * WAL_BYTES // (body_bytes + 700))
    in_segments = 0 if options.in_wal else in_segments
    slots, data, files = b"", [], 0
    made = entries(count, body_bytes, options.live, options.version)
    start = 8 + SLOTS * shape.size
    at, index = start, 0
    for index, entry in enumerate(made, 1) if in_segments else ():
        slots += shape.pack(index, 1, at, len(entry), zlib.crc32(entry))
        data.append(entry)
        at += len(entry)
        if len(data) == SLOTS or index == in_segments:
            files += 1
            head = b"RASG" + struct.pack(">HH", 2, SLOTS) + slots.ljust(start - 8, b"\0")
            (own / f"{files:08}.segment").write_bytes(head + b"".join(data))
            slots, data, at = b"", [], start
        if index == in_segments:
            break
    with (where / "00000001.wal").open("wb") as wal:
        wal.write(b"RAWA\1")
        head = b"\0\0\0" + struct.pack(">H", len(UID)) + UID
        for number, entry in enumerate(made, index + 1):
            checked = struct.pack(">QQ", number, 1) + entry
            wal.write(head + struct.pack(">II", zlib.adler32(checked), len(entry)) + checked)
            head = b"\x40\0\0"


def read(folder: Path) -> None:
    from qindex.brokers.rabbitmq.directory import open_at
    from qindex.brokers.rabbitmq.quorum import queues  # noqa: F401  no part of the time

    before, started = resident(), time.process_time()
    with open_at(folder) as node:
        (queue,) = (each for each in node.queues if each.name == "bench")
        spent = time.process_time() - started
        taken, live = queue.outcome.entries, queue.account.live  # type: ignore[attr-defined]
        print(f"{taken:,} entries in {spent:.2f} s of CPU time: {taken / spent:,.0f} a second")
        print(f"{live:,} live; {resident() >> 10:,} MB resident at most, {before >> 10} before")
        started, count = time.process_time(), 0
        for _ in queue.messages():
            count += 1
        spent = time.process_time() - started
        print(f"{count:,} messages read out: {count / max(spent, 1e-9):,.0f} a second")
        print(f"{resident() >> 10:,} MB resident at most")


def resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["make", "read"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--live", type=int, default=10_000)
    parser.add_argument("--version", type=int, default=2)
    parser.add_argument("--in-wal", action="store_true")
    options = parser.parse_args()
    if options.what == "make":
        make(options)
    else:
        read(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
