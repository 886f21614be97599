"""Arbitrary bytes as files of dead brokers, as Erlang terms, messages and field tables.

    python tests/fuzz/fuzz_formats.py SEED_FOLDER --seconds 20 [--seed N] [--crashes FOLDER]
    python tests/fuzz/fuzz_formats.py --replay FILE ...

An input is one byte that chooses what it is (KINDS), and the bytes. Whatever they are, reading them
ends in a result, in findings or in the reader's own exception, within LIMIT_SECONDS and LIMIT_BYTES
above what the process had before. With atheris installed the search is guided by coverage; without
it, mutations of the seeds are tried at random (a seed for the dice repeats a run).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LIMIT_SECONDS = 1.0
LIMIT_BYTES = 64 << 20
INPUT_BYTES_MAX = 1 << 20
INTERESTING = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]

_guided = importlib.util.find_spec("atheris") is not None and "--replay" not in sys.argv
if _guided:
    import atheris

    _importing = atheris.instrument_imports(include=["qindex.brokers", "qindex.native"])
else:
    _importing = contextlib.nullcontext()

with _importing:
    from qindex import field_table
    from qindex.brokers import amqp
    from qindex.brokers.beanstalkd import directory as beanstalkd
    from qindex.brokers.gmq import directory as gmq
    from qindex.brokers.nsq import directory as nsq
    from qindex.brokers.rabbitmq import directory as rabbitmq
    from qindex.brokers.rabbitmq import erlang
    from qindex.brokers.rabbitmq import message as rabbitmq_message

VHOST = "rabbitmq/msg_stores/vhosts/628WB79CIFDYO9LJI6DKMI09L"
FIRST, SECOND = (
    f"{VHOST}/queues/AAAAAAAAAAAAAAAAAAAAAAAAA",
    f"{VHOST}/queues/BBBBBBBBBBBBBBBBBBBBBBBBB",
)
NSQ = "nsq/orders.diskqueue"
RA = "rabbitmq/quorum/a@b/2F_QUEUE0000"
KHEPRI, KHEPRI_UID = "khepri/coordination/a@b", "RABBITXYZ123"
FILES = {  # kind: where the bytes go
    "journal": f"{FIRST}/journal.jif",
    "segment": f"{FIRST}/0.idx",
    "index_v2": f"{SECOND}/0.qi",
    "store_v2": f"{SECOND}/0.qs",
    "messages": f"{VHOST}/msg_store_persistent/0.rdq",
    "dets": f"{VHOST}/recovery.dets",
    "log": "rabbitmq/rabbit_durable_queue.DCD",
    "name": f"{FIRST}/.queue_name",
    "config": f"{VHOST}/.config",
    "nsq_data": f"{NSQ}.000003.dat",
    "nsq_meta": f"{NSQ}.meta.dat",
    "gmq_queue": "gmq/t_default.queue",
    "gmq_meta": "gmq/t.meta",
    "gmq_delayed": "gmq/gmq.db",
    "binlog": "beanstalkd/binlog.1",
    # Kinds are told by their places in this table: new ones stand at its end.
    "ra_wal": "rabbitmq/quorum/a@b/00000002.wal",
    "ra_segment": f"{RA}/00000001.segment",
    "ra_snapshot": f"{RA}/snapshots/0000000000000001_0000000000000008/snapshot.dat",
    "ra_config": f"{RA}/config",
    "ra_names": "rabbitmq/quorum/a@b/names.dets",
    "ra_meta": "rabbitmq/quorum/a@b/meta.dets",
    "stream": "streams/stream/__orders_1700000000000000000/00000000000000000000.segment",
    "khepri_wal": f"{KHEPRI}/00000001.wal",
    "khepri_snapshot": f"{KHEPRI}/{KHEPRI_UID}/snapshots/{'0' * 15}1_{'0' * 15}4/snapshot.dat",
    "khepri_names": f"{KHEPRI}/names.dets",
    "coordinator_wal": "streams/coordination/a@b/00000001.wal",
    "stream_index": "streams/stream/__orders_1700000000000000000/00000000000000000000.index",
}
READERS = {
    "beanstalkd": beanstalkd.open_at,
    "gmq": gmq.open_at,
    "nsq": nsq.open_at,
    "rabbitmq": rabbitmq.open_at,
    "streams": rabbitmq.open_at,
    "khepri": rabbitmq.open_at,
}
KINDS = ["term", "message", "table", "properties", *FILES]


def _term(data: bytes) -> None:
    with contextlib.suppress(erlang.ErlangError):
        erlang.decode(data)


def _message(data: bytes) -> None:
    with contextlib.suppress(rabbitmq_message.MessageError):
        rabbitmq_message.read_message(data)


def _table(data: bytes) -> None:
    with contextlib.suppress(field_table.AmqpError):
        field_table.decode_table(data)


def _properties(data: bytes) -> None:
    with contextlib.suppress(field_table.AmqpError):
        amqp.decode_properties(data)


VALUES: dict[str, Callable[[bytes], None]] = {
    "term": _term,
    "message": _message,
    "table": _table,
    "properties": _properties,
}


class Slow(AssertionError):
    """Reading took more than its time."""


class Target:
    """Directories of all brokers, in which one file at a time is replaced by the input."""

    def __init__(self, seeds: Path, folder: Path) -> None:
        self.folder = folder
        self.usual: dict[str, bytes] = {}
        for kind, where in FILES.items():
            seed = seeds / f"{kind}-0"
            self.usual[kind] = seed.read_bytes()[1:] if seed.exists() else b""
            (folder / where).parent.mkdir(parents=True, exist_ok=True)
            (folder / where).write_bytes(self.usual[kind])
        (folder / SECOND / ".queue_name").write_bytes(b"VHOST: /\nQUEUE: second\nINDEX: v2\n")

    def one(self, data: bytes) -> None:
        """One input; raises whatever should not happen."""
        if not data:
            return
        kind, data = KINDS[data[0] % len(KINDS)], data[1 : INPUT_BYTES_MAX + 1]
        begin = time.process_time()
        if kind in VALUES:
            VALUES[kind](data)
        else:
            self.read_node(kind, data)
        took = time.process_time() - begin
        # Coverage and sanitizers cost a multiple; the limit is held to by the replay and by
        # test_limits.
        is_slowed = _guided or "QINDEX_SANITIZER" in os.environ
        if took > LIMIT_SECONDS * (10 if is_slowed else 1):
            raise Slow(f"{kind}: {len(data)} bytes took {took:.1f} s")

    def read_node(self, kind: str, data: bytes) -> None:
        file = self.folder / FILES[kind]
        broker = FILES[kind].partition("/")[0]
        file.write_bytes(data)
        try:
            with READERS[broker](self.folder / broker) as node:
                for queue in node.queues:
                    for message in queue.messages():
                        assert message.headers is not None
                    assert queue.account.adds_up
        finally:
            file.write_bytes(self.usual[kind])


# ---- mutations without atheris ----


def _repair(data: bytearray) -> None:
    """The checksums of a v2 store's messages: size 4, flags 1, crc 2, 0, then the term."""
    pos = 64
    while pos + 8 <= len(data):
        size = int.from_bytes(data[pos : pos + 4], "big")
        if size == 0 or pos + 8 + size > len(data):
            return
        crc = zlib.crc32(data[pos + 8 : pos + 8 + size]) & 0xFFFF
        data[pos + 5 : pos + 7] = crc.to_bytes(2, "big")
        pos += 8 + size


def _repair_log(data: bytearray) -> None:
    """The checksums of the records of a write-ahead log of Ra, as far as their lengths lead."""
    pos = 5
    while pos + 27 <= len(data):
        start = pos + 3 if data[pos] & 0x40 else pos + 5 + int.from_bytes(data[pos + 3 : pos + 5])
        size = int.from_bytes(data[start + 4 : start + 8])
        end = start + 24 + size
        if end > len(data):
            return
        data[start : start + 4] = zlib.adler32(data[start + 8 : end]).to_bytes(4)
        pos = end


def _repair_snapshot(data: bytearray) -> None:
    data[5:9] = zlib.crc32(data[9:]).to_bytes(4)


def _repair_stream(data: bytearray) -> None:
    """The checksums of a stream's chunks, as far as their lengths lead."""
    pos = 8
    while pos + 48 <= len(data):
        size, trailer = struct.unpack_from(">II", data, pos + 36)
        start = pos + 48 + data[pos + 44]
        end = start + size
        if end > len(data):
            return
        data[pos + 32 : pos + 36] = zlib.crc32(data[start:end]).to_bytes(4)
        pos = end + trailer


REPAIRS = {
    "store_v2": _repair,
    "ra_wal": _repair_log,
    "khepri_wal": _repair_log,
    "coordinator_wal": _repair_log,
    "ra_snapshot": _repair_snapshot,
    "khepri_snapshot": _repair_snapshot,
    "stream": _repair_stream,
}


def mutate(data: bytes, other: bytes, dice: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 4, 8])):
        at = dice.randrange(1, len(out) + 1)
        span = min(dice.choice([1, 2, 4, 8, 32, 200]), len(out) - at)
        match dice.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << dice.randrange(8)
            case 1 if at < len(out):
                out[at] = dice.randrange(256)
            case 2:
                width = dice.choice([1, 2, 4, 8])
                value = dice.choice([*INTERESTING, len(out), dice.randrange(1 << 16)])
                raw = struct.pack(">Q", value)[8 - width :]
                out[at : at + width] = raw
            case 3:
                del out[at : at + span]
            case 4:
                out[at:at] = out[at : at + span] * dice.choice([1, 2, 50])
            case 5:
                start = dice.randrange(len(other))
                out[at:at] = other[start : start + 64]
            case _ if dice.random() < 0.2:
                del out[at:]
    repair = REPAIRS.get(KINDS[out[0] % len(KINDS)])
    if repair is not None and dice.random() < 0.5:
        body = out[1:]
        repair(body)
        out[1:] = body
    return bytes(out[: INPUT_BYTES_MAX + 1])


def _limit_memory() -> None:
    """From here on more than LIMIT_BYTES (and some for the heap's holes) is a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def search(target: Target, seeds: list[bytes], seconds: float, seed: int, crashes: Path) -> int:
    dice = random.Random(seed)
    end, tried = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = mutate(dice.choice(seeds), dice.choice(seeds), dice)
        try:
            target.one(data)
        except Exception:
            crashes.mkdir(parents=True, exist_ok=True)
            file = crashes / f"crash-{zlib.crc32(data):08x}"
            file.write_bytes(data)
            print(f"formats: seed {seed}, input {tried}, written to {file}", flush=True)
            raise
        tried += 1
    print(f"formats: {tried} inputs in {seconds:.0f} s, seed {seed}: nothing found", flush=True)
    return 0


def search_guided(target: Target, folder: Path, seconds: float, crashes: Path) -> int:
    crashes.mkdir(parents=True, exist_ok=True)
    found = tempfile.mkdtemp()
    options = [f"-max_total_time={seconds:.0f}", f"-artifact_prefix={crashes}/", "-max_len=8192"]
    options += ["-timeout=30", "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, found, str(folder)], target.one)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(found, ignore_errors=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", nargs="?", type=Path, default=ROOT / "tests/fuzz/corpus/formats")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--crashes", type=Path, default=Path(tempfile.gettempdir(), "qindex-fuzz"))
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qindex-fuzz-") as folder:
        target = Target(options.seeds, Path(folder))
        if options.replay:
            _limit_memory()
            for file in options.replay:
                target.one(file.read_bytes())
            print(f"formats: {len(options.replay)} inputs, all within the limits")
            return 0
        if _guided:
            return search_guided(target, options.seeds, options.seconds, options.crashes)
        seeds = [file.read_bytes() for file in sorted(options.seeds.iterdir())]
        _limit_memory()
        return search(target, seeds, options.seconds, options.seed, options.crashes)


if __name__ == "__main__":
    sys.exit(main())
