"""Makes the seeds of fuzz_store: small stores in all states, packed as archives (archive.h).

python tests/fuzz/make_corpus.py FOLDER
"""

import random
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from helpers import crash, files_of, queue_directory  # noqa: E402

import qindex  # noqa: E402

STORE_META, QUEUE_META, EVEN, ODD, SEGMENT, MESSAGES, RAW_EVEN, RAW_ODD, DRAFT = range(9)
KNOBS = {
    "segment_entries": 16,
    "max_journal_entries": 20,
    "embed_below": 32,
    "message_file_size": 4096,
    "idle": 3600,
    "io": "pwrite",
}


def entry(kind: int, number: int, data: bytes) -> bytes:
    return struct.pack(">BII", kind, number, len(data)) + data


def compact_journal(data: bytes) -> bytes:
    """The header once, and the frames without the zeros behind them."""
    return data[:64] + data[8192:].rstrip(b"\0") + bytes(8)


def pack(root: Path) -> bytes:
    """A store's files as one archive; the first queue's name is `orders`."""
    first = queue_directory("", "orders").name
    packed = []
    for name, data in files_of(root).items():
        path = Path(name)
        queue = 0 if path.parent.name == first else 0x10
        number = int(path.stem) if path.stem.isdecimal() else 0
        if name == "store.meta":
            packed.append(entry(STORE_META, 0, data))
        elif path.name == "queue.meta":
            packed.append(entry(QUEUE_META | queue, 0, data))
        elif path.name == "journal.jif":
            packed.append(entry(EVEN | queue, 0, compact_journal(data)))
        elif path.name == "journal.alt":
            packed.append(entry(ODD | queue, 0, compact_journal(data)))
        elif path.suffix == ".idx":
            packed.append(entry(SEGMENT | queue, number, data))
        elif path.suffix == ".qms":
            packed.append(entry(MESSAGES, number, data.rstrip(b"\0")))
    return b"".join(packed)


def play(store: qindex.Store, dice: random.Random, steps: int) -> None:
    queues = [store.queue(name) for name in ("orders", "others")[: dice.choice([1, 1, 2])]]
    for _ in range(steps):
        queue = dice.choice(queues)
        match dice.choice(["publish", "publish", "many", "get", "nack", "drop", "flush", "sync"]):
            case "publish":
                size = dice.choice([0, 3, 20, 60])
                queue.publish(
                    b"b" * size, persistent=dice.random() < 0.8, ttl=dice.choice([None, 5])
                )
            case "many":
                queue.publish_many([b"m" * dice.choice([1, 40]) for _ in range(dice.randrange(12))])
            case "get":
                queue.ack_many(queue.get_many(dice.randrange(8)))
            case "nack":
                queue.nack_many(queue.get_many(2))
            case "drop" if dice.random() < 0.2:
                queue.purge()
            case verb if verb in ("flush", "sync"):
                getattr(queue, verb)()
    store.compact()


def make_store(root: Path, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(dice.choice([1, 1, 2, 3])):
        store = qindex.open(root, **KNOBS)
        play(store, dice, dice.randrange(12))
        end: Callable[[qindex.Store], None] = dice.choice([qindex.Store.close, crash])
        end(store)


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for seed in range(24):
        with tempfile.TemporaryDirectory() as folder:
            make_store(Path(folder, "store"), seed)
            (target / f"store-{seed:02}").write_bytes(pack(Path(folder, "store")))


if __name__ == "__main__":
    main()
