"""Makes a fleet of brokers' stores with planted faults, and says which: for tests and benchmarks.

    python tools/fleet.py /tmp/fleet --brokers 40 --queues 8 --messages 100000

Each broker is a store with queues of skewed sizes that were worked on in a random order. Some end
as a killed process leaves them, in the middle of that work. Every kind of fault is planted in some
broker, in a queue of its own; manifest.json in the fleet's folder says where. `qindex audit` has to
find all of these and nothing else (tests/spark/test_audit.py).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import qindex
from qindex._core import lib
from qindex.cli.torture.kill import let_go
from qindex.spark import columns
from qindex.spark.examine import Limits

EMBED_BELOW: Final = 512
STORED: Final = b"stored " * 150
SMALL: Final = b"embedded " * 11
_LIMITS: Final = Limits()


@dataclass(frozen=True)
class Planted:
    """One thing that an audit has to find. `count`: how many messages it is about."""

    broker: str
    queue: str | None
    kind: str
    count: int


@dataclass
class Broker:
    """One store on its way to be a part of the fleet."""

    path: Path
    store: qindex.Store
    planted: list[Planted]

    def plant(self, kind: str, count: int, queue: str | None) -> None:
        self.planted.append(Planted(self.path.name, queue, kind, count))

    def queue(self, kind: str) -> qindex.Queue:
        return self.store.queue(f"fault {kind}")


# --- faults that users make ---------------------------------------------------------------------


def expired(broker: Broker) -> None:
    queue = broker.queue("expired")
    for _ in range(3):
        queue.publish(SMALL, ttl=0.001)
    broker.plant("expired", 3, queue.name)


def stuck(broker: Broker) -> None:
    """Five are taken and kept; all that come later are acked."""
    queue = broker.queue("stuck")
    queue.publish_many([SMALL] * 5)
    queue.get_many(5)
    queue.publish_many([b""] * (_LIMITS.stuck_behind + 5))
    while later := queue.get_many(4096):
        queue.ack_many(later)
    broker.plant("stuck", 5, queue.name)


def poison(broker: Broker) -> None:
    queue = broker.queue("poison")
    queue.publish_many([SMALL] * 2)
    for _ in range(_LIMITS.poison_deliveries):
        queue.nack_many(queue.get_many(2))
    broker.plant("poison", 2, queue.name)


def duplicate(broker: Broker) -> None:
    queue = broker.queue("duplicate")
    broker.store.publish([queue.name, queue.name], STORED)
    broker.plant("duplicate", 1, queue.name)


def orphans(broker: Broker) -> None:
    queue = broker.queue("orphans")
    for _ in range(4):
        queue.publish(STORED)
    queue.publish(STORED)  # keeps the file
    queue.ack_many(queue.get_many(4))
    broker.plant("orphan bodies", 4, None)


# --- faults that disks make: bytes are changed when the store is closed ---------------------------


def damaged_body(broker: Broker) -> Callable[[], None]:
    file, offset, _ = _stored(broker, "damaged body")

    def harm() -> None:
        _change(broker.path / f"messages/{file}.qms", offset + 24 + 3, b"?")

    return harm


def lost(broker: Broker) -> Callable[[], None]:
    file, offset, size = _stored(broker, "lost")
    broker.plant("damaged file", 1, None)  # the hole

    def harm() -> None:
        _change(broker.path / f"messages/{file}.qms", offset, bytes(25 + size))

    return harm


def _stored(broker: Broker, kind: str) -> tuple[int, int, int]:
    """Where the body of the middle one of three messages is: file, offset, size."""
    queue = broker.queue(kind)
    for _ in range(3):
        queue.publish(STORED)
    broker.plant(kind, 1, queue.name)
    rows = [row for batch in columns.Messages(queue._handle) for row in batch.to_pylist()]
    return rows[1]["file"], rows[1]["offset"], rows[1]["size"]


def damaged_file(broker: Broker) -> Callable[[], None]:
    """A bit in a segment."""
    queue = broker.queue("damaged file")
    queue.publish_many([SMALL] * 50)
    queue.flush()
    folder = broker.path / broker.store.queue_directory(queue.name)
    broker.plant("damaged file", 1, queue.name)
    broker.plant("lost", 50, queue.name)
    return lambda: _change(folder / "0.idx", 2000, b"?")


def unreadable(broker: Broker) -> Callable[[], None]:
    """Both copies of a queue's name."""
    queue = broker.queue("unreadable")
    queue.publish(SMALL)
    meta = broker.path / broker.store.queue_directory(queue.name) / "queue.meta"
    broker.plant("unreadable", 1, None)
    return lambda: meta.write_bytes(bytes(meta.stat().st_size))


def ack_without_publish(broker: Broker) -> Callable[[], None]:
    """A deliver becomes an ack of a message that was never there."""
    queue = broker.queue("ack without publish")
    queue.publish(SMALL)
    queue.get()
    folder = broker.path / broker.store.queue_directory(queue.name)
    broker.plant("ack without publish", 1, queue.name)

    def harm() -> None:
        journal, offset = _record(folder, lib.QI_ROW_DELIVER)
        _change_frame(journal, offset, 0, (3 << 62 | 500).to_bytes(8, "big"))

    return harm


def references(broker: Broker) -> Callable[[], None]:
    """A second message names the body of the first, and its own is an orphan."""
    first, second = broker.queue("references"), broker.queue("references too")
    first.publish(STORED)
    second.publish(STORED)
    broker.plant("references", 1, None)
    broker.plant("orphan bodies", 1, None)
    (row,) = (row for batch in columns.Messages(first._handle) for row in batch.to_pylist())
    folder = broker.path / broker.store.queue_directory(second.name)

    def harm() -> None:
        journal, offset = _record(folder, lib.QI_ROW_PUBLISH)
        _change_frame(journal, offset, 8, row["msg_id"])

    return harm


def _record(folder: Path, kind: int) -> tuple[Path, int]:
    """The journal of a queue and where the first record of this kind is in it."""
    for journal in folder.glob("journal.*"):
        for batch in columns.records(journal.read_bytes()):
            for row in batch.to_pylist():
                if row["kind"] == kind:
                    return journal, row["offset"]
    raise LookupError(f"{folder}: no journal has a record of kind {kind}")


def _change(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        opened.write(data)


def _change_frame(journal: Path, record: int, inside: int, data: bytes) -> None:
    """Changes a record that is alone in its frame, and makes the frame's checksum right."""
    whole = journal.read_bytes()
    frame = record - 8
    length = int.from_bytes(whole[frame : frame + 4], "big") & 0xFFFFFFF
    payload = bytearray(whole[record : record + length])
    payload[inside : inside + len(data)] = data
    epoch = whole[32:40]
    crc = lib.qi_crc32c(0, whole[16:32] + bytes(8) + epoch, 32)
    covered = frame.to_bytes(8, "big") + whole[frame : frame + 4] + bytes(payload)
    crc = lib.qi_crc32c(crc, covered, len(covered))
    _change(journal, frame + 4, crc.to_bytes(4, "big") + bytes(payload))


USERS: Final = (expired, stuck, poison, duplicate, orphans)
DISKS: Final = (damaged_body, lost, damaged_file, unreadable, ack_without_publish, references)


# --- the fleet ----------------------------------------------------------------------------------


def make_fleet(
    path: Path, *, brokers: int = 6, queues: int = 4, messages: int = 3000, seed: int = 1
) -> list[Planted]:
    """A new folder `path` with broker-0000 ...; at least one fault of each kind."""
    dice = random.Random(seed)
    path.mkdir(parents=True)
    planted: list[Planted] = []
    sizes = _skewed(dice, brokers * queues, messages)
    faults = [*USERS, *DISKS]
    for number in range(brokers):
        folder = path / f"broker-{number:04}"
        mine = [next(sizes) for _ in range(queues)]
        planted += _make_broker(folder, dice, mine, faults[number::brokers])
    manifest = [asdict(each) for each in planted]
    (path / "manifest.json").write_text(json.dumps(manifest, indent=1))
    time.sleep(0.01)  # until all that expires has
    return planted


def _skewed(dice: random.Random, count: int, total: int) -> Iterator[int]:
    """Sizes as they are in real fleets: a few queues have most of it."""
    weights = [dice.paretovariate(1.0) for _ in range(count)]
    return iter([int(total * weight / sum(weights)) for weight in weights])


def _make_broker(
    folder: Path,
    dice: random.Random,
    sizes: list[int],
    faults: list[Callable[[Broker], Callable[[], None] | None]],
) -> list[Planted]:
    crashes = dice.random() < 0.5 and not any(fault in DISKS for fault in faults)
    # What expires stays, as where a broker died before.
    store = qindex.open(folder, sync="never", embed_below=EMBED_BELOW, expire=False)
    broker = Broker(folder, store, [])
    harms = [harm for fault in faults if (harm := fault(broker)) is not None]
    work = [(f"queue {number}", part) for number, size in enumerate(sizes) for part in _parts(size)]
    dice.shuffle(work)
    for name, part in work[: dice.randrange(len(work) + 1)] if crashes else work:
        _work(store.queue(name), dice, part)
    if crashes:
        let_go(store)
    else:
        store.close()
    for harm in harms:
        harm()
    return broker.planted


def _parts(size: int) -> list[int]:
    return [min(1000, size - start) for start in range(0, size, 1000)]


def _work(queue: qindex.Queue, dice: random.Random, count: int) -> None:
    """Some messages: most of them small, some of these acked at once, one in twenty stored."""
    acked = dice.randrange(count + 1)
    queue.publish_many([SMALL] * acked)
    queue.ack_many(message for message in queue.get_many(acked) if message.body == SMALL)
    queue.publish_many([STORED if dice.random() < 0.05 else SMALL for _ in range(count - acked)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--brokers", type=int, default=40)
    parser.add_argument("--queues", type=int, default=8, help="of a broker")
    parser.add_argument("--messages", type=int, default=100_000, help="of the whole fleet, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replace", action="store_true", help="remove what is there first")
    options = parser.parse_args()
    if options.replace:
        shutil.rmtree(options.path, ignore_errors=True)
    started = time.perf_counter()
    planted = make_fleet(
        options.path,
        brokers=options.brokers,
        queues=options.queues,
        messages=options.messages,
        seed=options.seed,
    )
    sys.stdout.write(
        f"{options.brokers} brokers, {len(planted)} planted faults,"
        f" {time.perf_counter() - started:.1f} s: {options.path / 'manifest.json'}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
