"""Stores that no writer of ours makes: an encoder of the format, and files that ask too much."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from helpers import queue_directory, twice

from qindex._core import lib

RECORDS, MARK, MANIFEST, SESSION, CLOSE, PURGE, ENTRIES, SUMMARY = range(1, 9)
STORE, QUEUE = bytes(range(16)), bytes(range(16, 32))
SIZE = 1 << 20  # of each hostile directory
START = 8192


def crc(*parts: bytes, start: int = 0) -> int:
    for part in parts:
        start = lib.qi_crc32c(start, part, len(part))
    return start


def sealed(head: bytes) -> bytes:
    return head + struct.pack(">I", crc(head))


def seed(number: int, epoch: int) -> int:
    return crc(QUEUE, struct.pack(">QQ", number, epoch))


def frame(start: int, offset: int, kind: int, payload: bytes) -> bytes:
    word = struct.pack(">I", kind << 28 | len(payload))
    check = crc(struct.pack(">Q", offset), word, payload, start=start)
    return word + struct.pack(">I", check) + payload


def manifest(segments: Iterable[tuple[int, int, int]], flushed: int = 1) -> bytes:
    """(number, length, unacked) of each segment."""
    rows = b"".join(
        struct.pack(">QIHHQQHxx", n, length, unacked, 0, 1, 0, 0) for n, length, unacked in segments
    )
    fixed = struct.pack(">QQQQHHQI", flushed, 1, 0, 0, 1, 0, 1 << 50, len(rows) // 24)
    return fixed + rows


def publish(req_id: int, msg_id: bytes = bytes(16), embedded: bytes = b"") -> bytes:
    return struct.pack(">Q16sQII", req_id, msg_id, 0, len(embedded), len(embedded)) + embedded


def deliver(req_id: int) -> bytes:
    return struct.pack(">Q", 2 << 62 | req_id)


def ack(req_id: int) -> bytes:
    return struct.pack(">Q", 3 << 62 | req_id)


def journal(frames: Iterable[tuple[int, bytes] | bytes], epoch: int = 2) -> bytes:
    """Frames, or bytes that stand between them as they are."""
    head = sealed(b"QIJRNL\r\n" + struct.pack(">II16sQQ12x", 1, 0, QUEUE, epoch, 0))
    out = bytearray(head.ljust(4096, b"\0") + head.ljust(4096, b"\0"))
    start = seed(0, epoch)
    for part in frames:
        out += part if isinstance(part, bytes) else frame(start, len(out), *part)
    return bytes(out) + bytes(8)


def segment(number: int, frames: Iterable[tuple[int, bytes] | bytes] = ()) -> bytes:
    out = bytearray(sealed(b"QISEGM\r\n" + struct.pack(">II16sQQ12x", 1, 16384, QUEUE, number, 1)))
    for part in frames:
        out += part if isinstance(part, bytes) else frame(seed(number, 1), len(out), *part)
    return bytes(out)


def write(
    root: Path,
    journal_jif: bytes,
    segments: dict[int, bytes] | None = None,
    journal_alt: bytes | None = None,
) -> Path:
    """A store with one queue; returns the queue's directory."""
    folder = queue_directory(root, "q")
    folder.mkdir(parents=True)
    (root / "messages").mkdir()
    meta = b"QISTOR\r\n" + struct.pack(">II16sQQQBBH", 1, 16384, STORE, 1, 1, 0, 0, 0, 0)
    (root / "store.meta").write_bytes(twice(sealed(meta)))
    name = struct.pack(">II16s", 1, 1, QUEUE) + b"q"
    (folder / "queue.meta").write_bytes(twice(sealed(b"QIQUEU\r\n" + name)))
    (folder / "journal.jif").write_bytes(journal_jif)
    if journal_alt:
        (folder / "journal.alt").write_bytes(journal_alt)
    for number, data in (segments or {}).items():
        (folder / f"{number}.idx").write_bytes(data)
    return folder


def damage_between_frames() -> tuple[bytes, dict[int, bytes]]:
    """A bad byte before every frame, and a MARK at the end that says that all was durable."""
    parts: list[tuple[int, bytes] | bytes] = [(MANIFEST, manifest([]))]
    for _ in range(SIZE // 17):
        parts += [b"\x11", (RECORDS, ack(1))]
    parts.append((MARK, struct.pack(">QQ", SIZE, 0)))
    return journal(parts), {}


def damage_that_looks_long() -> tuple[bytes, dict[int, bytes]]:
    """The same, but each bad place looks like a frame that is as long as the rest of the file."""
    parts: list[tuple[int, bytes] | bytes] = [(MANIFEST, manifest([]))]
    for i in range(SIZE // 64):
        left = SIZE - i * 64
        parts += [struct.pack(">II", PURGE << 28 | (left // 8 * 8), 0), (PURGE, bytes(48))]
    parts.append((MARK, struct.pack(">QQ", SIZE, 0)))
    return journal(parts), {}


def marks_that_fall() -> tuple[bytes, dict[int, bytes]]:
    """Behind a damaged place MARKs that each say less than the one before."""
    parts: list[tuple[int, bytes] | bytes] = [(MANIFEST, manifest([]))]
    for i in range(SIZE // 25):
        parts += [b"\x21", (MARK, struct.pack(">QQ", 2 * SIZE - i, 0))]
    return journal(parts), {}


def long_segments() -> tuple[bytes, dict[int, bytes]]:
    """Thousands of segment files that are a header, with a gibibyte each by the manifest."""
    numbers = range(SIZE // 128)
    return journal([(MANIFEST, manifest((n, 1 << 30 - 1, 9) for n in numbers))]), {
        n: segment(n) for n in numbers
    }


def long_bodies() -> tuple[bytes, dict[int, bytes]]:
    """Records whose bodies are 4 GiB long, by their MsgIds."""
    ids = (struct.pack(">IIII", 0, 64, 0xFFFFFF00, 1) for _ in range(SIZE // 40))
    records = b"".join(publish(i, msg_id) for i, msg_id in enumerate(ids))
    return journal([(MANIFEST, manifest([])), (RECORDS, records)]), {}


def mark_within_a_frame() -> tuple[bytes, dict[int, bytes]]:
    """A MARK that names a place within a record, whose bytes look like a frame of 256 MiB."""
    looks_long = struct.pack(">II", RECORDS << 28 | 0xFFFFFFF, 0) * (SIZE // 16)
    body = publish(0, embedded=looks_long)
    start = START + 8 + len(manifest([])) + 8 + len(body) - len(looks_long)
    parts = [(MANIFEST, manifest([])), (RECORDS, body), (MARK, struct.pack(">QQ", start, 0))]
    return journal(parts), {}


def segments_in_reverse() -> tuple[bytes, dict[int, bytes]]:
    """A manifest that names its segments in falling order."""
    count = SIZE // 24
    return journal([(MANIFEST, manifest((count - i, 100, 1) for i in range(count)))]), {}


def missing_segments() -> tuple[bytes, dict[int, bytes]]:
    """A manifest that names segments that are not there."""
    return journal([(MANIFEST, manifest((i, 100, 1) for i in range(SIZE // 36)))]), {}


def scattered_publishes() -> tuple[bytes, dict[int, bytes]]:
    """Each publish in a segment of its own."""
    records = b"".join(publish(i * 16384) for i in range(SIZE // 40))
    return journal([(MANIFEST, manifest([])), (RECORDS, records)]), {}


def scattered_acks() -> tuple[bytes, dict[int, bytes]]:
    """Each ack in a segment of its own."""
    count = SIZE // 32
    records = b"".join(ack(i * 16384) for i in range(count))
    rows = manifest((i, 100, 2) for i in range(count))
    return journal([(MANIFEST, rows), (RECORDS, records)]), {}


def old_journal(
    records: bytes, segments: dict[int, bytes] | None = None
) -> tuple[bytes, dict[int, bytes], bytes]:
    """The records are in the epoch before, and were not flushed: opening begins the flush."""
    found = segments or {}
    rows = [(number, len(data), 60000) for number, data in found.items()]
    old = journal([(MANIFEST, manifest([])), (RECORDS, records)], epoch=1)
    return journal([(MANIFEST, manifest(rows, flushed=0))]), found, old


def segments_in_the_middle() -> tuple[bytes, dict[int, bytes]]:
    """Scattered publishes, each between all that came before."""
    count = SIZE // 40
    order = (i // 2 if i % 2 == 0 else count - i // 2 for i in range(count))
    records = b"".join(publish(number * 16384) for number in order)
    return journal([(MANIFEST, manifest([])), (RECORDS, records)]), {}


def publishes_in_every_piece() -> tuple[bytes, dict[int, bytes]]:
    """One message in each 64 slots."""
    records = b"".join(publish(i * 64) for i in range(SIZE // 40))
    return journal([(MANIFEST, manifest([])), (RECORDS, records)]), {}


def acks_in_every_piece() -> tuple[bytes, dict[int, bytes]]:
    """One ack in each 64 slots of segments whose files are not read."""
    count = SIZE // 8 - SIZE // 512
    rows = manifest((i, 100, 60000) for i in range(count // 256 + 1))
    return journal([(MANIFEST, rows), (RECORDS, b"".join(ack(i * 64) for i in range(count)))]), {}


def deliveries_in_every_piece() -> tuple[bytes, dict[int, bytes]]:
    """Two deliveries in each 64 slots, so that they are counted."""
    count = SIZE // 16 - SIZE // 512
    rows = manifest((i, 100, 60000) for i in range(count // 256 + 1))
    records = b"".join(2 * deliver(i * 64) for i in range(count))
    return journal([(MANIFEST, rows), (RECORDS, records)]), {}


def scattered_publishes_to_flush() -> tuple[bytes, dict[int, bytes], bytes]:
    """Each publish in a segment of its own, in a journal that waits for its flush."""
    return old_journal(b"".join(publish(i * 16384) for i in range(SIZE // 40)))


def acks_to_flush() -> tuple[bytes, dict[int, bytes], bytes]:
    """The same with an ack in each 64 slots of segments that hold one message."""
    numbers = range(SIZE // 2300)
    entry = struct.pack(">H", 0xC000) + publish(0)[8:]
    files = {n: segment(n, [(ENTRIES, entry)]) for n in numbers}
    records = b"".join(ack(n * 16384 + piece * 64 + 1) for n in numbers for piece in range(256))
    return old_journal(records, files)


# journal.jif, N.idx, journal.alt
Maker = Callable[[], tuple[bytes, dict[int, bytes]] | tuple[bytes, dict[int, bytes], bytes]]
MAKERS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        damage_between_frames,
        damage_that_looks_long,
        marks_that_fall,
        long_segments,
        long_bodies,
        mark_within_a_frame,
        segments_in_reverse,
        missing_segments,
        scattered_publishes,
        scattered_acks,
        segments_in_the_middle,
        publishes_in_every_piece,
        acks_in_every_piece,
        deliveries_in_every_piece,
        scattered_publishes_to_flush,
        acks_to_flush,
    )
}
