"""Reading dead directories: how fast, and with how much memory.

    python tools/bench/dead.py [--messages 1000000] [--only NAME] [--folder /tmp]

Makes a store of qindex and directories of a RabbitMQ node, all with bodies of 1 KiB, and reads them
from the page cache, each time in a process of its own: seconds are that process's CPU, the best of
three; memory is the most that it had. The last row is about memory: as many stored messages as
10 GB of 4 KiB bodies are, the least that RabbitMQ puts into its message store as it is delivered.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

BODY_BYTES = 1024
STORED_BODY_BYTES = 256  # the reader does not look at it
STORED_PER_MESSAGE = 2.5  # 10 GB / 4 KiB, for a million messages
REPEATS = 3
WARM_BYTES = 1 << 20


@dataclass(frozen=True)
class Reading:
    messages: int
    file_bytes: int
    seconds: float
    memory_bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--only", choices=WORKS, help="one row")
    parser.add_argument("--folder", type=Path, help="where directories are made, and removed")
    options = parser.parse_args()
    print(f"{'':26} {'messages':>10} {'MB':>7} {'CPU s':>6} {'M/s':>6} {'MB/s':>6} {'memory':>7}")
    for name in [options.only] if options.only else WORKS:
        found = measure(name, options.messages, options.folder)
        print(
            f"{name:26} {found.messages:10,} {found.file_bytes / 1e6:7,.0f} {found.seconds:6.2f}"
            f" {found.messages / found.seconds / 1e6:6.2f}"
            f" {found.file_bytes / found.seconds / 1e6:6,.0f}"
            f" {found.memory_bytes / 1e6:4,.0f} MB",
            flush=True,
        )
    return 0


def measure(
    name: str, messages: int, folder: Path | None = None, repeats: int = REPEATS
) -> Reading:
    """One row of WORKS: its directory is made, read, and removed."""
    make, read, imports = WORKS[name]
    root = Path(tempfile.mkdtemp(prefix="qindex-bench-", dir=folder))
    try:
        # What made the directory is another process, whose memory is not counted.
        told = apart(make, root / "dead", messages)
        file_bytes = warm(root / "dead")
        readings = [apart(timed, read, imports, root / "dead") for _ in range(repeats)]
    finally:
        shutil.rmtree(root)
    seconds, _, _ = min(readings)
    for _, _, count in readings:
        assert count == told, f"{count} of {told} messages were read"
    return Reading(told, file_bytes, seconds, max(memory for _, memory, _ in readings))


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def timed(read: Callable[[Path], int], imports: str, path: Path) -> tuple[float, int, int]:
    """(seconds of CPU, most memory in bytes, messages)"""
    for module in imports.split():
        import_module(module)
    start = time.process_time()
    count = read(path)
    seconds = time.process_time() - start
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return seconds, int(peak) * 1024, count


def files_below(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file())


def warm(path: Path) -> int:
    """Reads all files into the page cache; how many bytes they have."""
    total = 0
    for file in files_below(path):
        with file.open("rb") as source:
            while data := source.read(WARM_BYTES):
                total += len(data)
    return total


# --- qindex ---------------------------------------------------------------------------------------


def make_native(path: Path, messages: int, embed_below: int) -> int:
    """A third is acked, so that there is something to tell apart."""
    import qindex

    body = random.Random(1).randbytes(BODY_BYTES)
    with qindex.open(path, sync="never", embed_below=embed_below) as store:
        queue = store.queue("orders")
        for start in range(0, messages, 10_000):
            queue.publish_many([body] * min(10_000, messages - start))
        queue.flush()  # so that the index has them before it has their acks
        for message in queue.get_many(messages // 3):
            queue.ack(message)
        queue.flush()
    return messages


def make_embedded(path: Path, messages: int) -> int:
    return make_native(path, messages, BODY_BYTES + 1)


def make_stored(path: Path, messages: int) -> int:
    return make_native(path, messages, 0)


def scan_native(path: Path) -> int:
    """Every record of the index, and every stored body with its checksum, as columns."""
    import pyarrow.compute as pc

    from qindex._core import lib
    from qindex.brokers.tree import Findings, Tree
    from qindex.native.messages import MessageFiles
    from qindex.spark import columns

    publishes = 0
    for file in sorted(path.glob("queues/*/*.idx")):
        for batch in columns.records(file.read_bytes()):
            kinds = pc.value_counts(batch["kind"]).to_pylist()
            publishes += sum(k["counts"] for k in kinds if k["values"] == lib.QI_ROW_PUBLISH)
    tree = Tree(path, Findings())
    found = MessageFiles(tree)
    for number, file in found.files.items():
        data = (path / file.where).read_bytes()
        for batch in columns.bodies(found.identity, number, data):
            assert pc.all(pc.equal(batch["kind"], lib.QI_ROW_SOUND)).as_py()
    tree.close()
    return publishes


def check_native(path: Path) -> int:
    """`qindex check`: the same by the engine, and every counter once more."""
    import qindex

    with qindex.open(path, read_only=True) as store:
        assert not [f for f in store.check() if f.severity == "damage"]
        return store.queue("orders").stats().next_req_id


# --- RabbitMQ -------------------------------------------------------------------------------------


def make_rabbitmq(path: Path, messages: int, body_bytes: int, embed_below: int = 4096) -> int:
    from qindex.brokers.amqp import Properties, encode_properties
    from qindex.brokers.rabbitmq import write as rabbitmq_write
    from qindex.brokers.rabbitmq.message import Content
    from qindex.brokers.rabbitmq.write import VhostWriter, new_msg_id

    rabbitmq_write.EMBED_BYTES_MAX = embed_below - 1  # type: ignore[misc]
    body = random.Random(1).randbytes(body_bytes)
    properties = encode_properties(Properties(content_type="text/plain", delivery_mode=2))
    writer = VhostWriter(path, b"/")
    queue = writer.queue(b"orders")
    for number in range(messages):
        msg_id = new_msg_id(b"orders", 0, number)
        queue.publish(Content("", ["orders"], properties, body, msg_id, True))
    writer.close()
    return messages


def make_rabbitmq_embedded(path: Path, messages: int) -> int:
    return make_rabbitmq(path, messages, BODY_BYTES)


def make_rabbitmq_stored(path: Path, messages: int) -> int:
    return make_rabbitmq(path, messages, BODY_BYTES, embed_below=0)


def make_rabbitmq_many(path: Path, messages: int) -> int:
    return make_rabbitmq(path, int(STORED_PER_MESSAGE * messages), STORED_BODY_BYTES, embed_below=0)


def scan_rabbitmq(path: Path) -> int:
    """Opening reads the indexes and the heads of stored bodies: what is live, and what is not."""
    from qindex.brokers.reader import open_node, total

    with open_node(path) as node:
        assert not node.findings
        return total(node.queues).live


def read_rabbitmq(path: Path) -> int:
    """Every live message with its body, headers and properties, as Python objects."""
    from qindex.brokers.reader import open_node

    with open_node(path) as node:
        return sum(1 for queue in node.queues for _ in queue.messages())


COLUMNS = "qindex.spark.columns qindex.native.messages pyarrow.compute"
READER = "qindex.brokers.rabbitmq.directory"
# Name: what makes the directory, what reads it, and the modules that are imported before.
WORKS: dict[str, tuple[Callable[[Path, int], int], Callable[[Path], int], str]] = {
    "qindex, embedded: scan": (make_embedded, scan_native, COLUMNS),
    "qindex, stored: scan": (make_stored, scan_native, COLUMNS),
    "qindex, embedded: check": (make_embedded, check_native, "qindex"),
    "qindex, stored: check": (make_stored, check_native, "qindex"),
    "RabbitMQ, embedded: scan": (make_rabbitmq_embedded, scan_rabbitmq, READER),
    "RabbitMQ, stored: scan": (make_rabbitmq_stored, scan_rabbitmq, READER),
    "RabbitMQ, embedded: read": (make_rabbitmq_embedded, read_rabbitmq, READER),
    "RabbitMQ, 10 GB: scan": (make_rabbitmq_many, scan_rabbitmq, READER),
}

if __name__ == "__main__":
    sys.exit(main())
