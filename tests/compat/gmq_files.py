"""The files of a gmq data directory, small, and a writer of bbolt's file format."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from qindex.brokers.gmq.bbolt import fnv1a

FIRST_ID = 1125899906842624
Pairs = Sequence[tuple[bytes, bytes]]


def bodies(count: int) -> list[bytes]:
    return [b"%06d " % n + bytes(range(n % 90)) * (n % 3) for n in range(count)]


def record(body: bytes, number: int, status: int = 0, retry: int = 0) -> bytes:
    expire = 1_700_000_000 if status == 2 else 0
    head = struct.pack(">cHIQQH", b"v", status, 18 + len(body), expire, FIRST_ID + number, retry)
    return head + body


def queue_file(records: Sequence[bytes]) -> bytes:
    """As gmq's mapping leaves it: one page with a '0' at its end, grown once."""
    data = bytearray(4096 + (64 << 10))
    data[4095] = ord("0")
    used = b"".join(records)
    data[: len(used)] = used
    return bytes(data)


def meta_file(name: str, bind_key: str, written: int) -> str:
    queue = {"queue_num": 1, "queue_name": name, "bind_key": bind_key, "write_offset": written}
    queue |= {"read_offset": 0, "scan_offset": 0}
    counts = {"mode": 2, "pop_num": 0, "push_num": 0, "dead_num": 0, "is_auto_ack": False}
    return json.dumps(counts | {"queues": [queue], "dead_queues": None})


def delayed(body: bytes, number: int, due: int) -> tuple[bytes, bytes]:
    msg = {"id": FIRST_ID + number, "retry": 0, "delay": 60, "expire": due}
    msg["body"] = base64.b64encode(body).decode()
    value = json.dumps({"msg": msg, "bind_key": ["default"]}).encode()
    return struct.pack(">QQ", due, FIRST_ID + number), value


# --- bbolt --------------------------------------------------------------------------------------


def page(number: int, flags: int, elements: Sequence[tuple[int, bytes, bytes]], size: int) -> bytes:
    """One page, with as many behind it as it needs; of (flags or page, key, value)."""
    data = b""
    table = b""
    for index, (word, key, value) in enumerate(elements):
        pos = 16 * (len(elements) - index) + len(data)
        if flags == 1:
            table += struct.pack("<IIQ", pos, len(key), word)
        else:
            table += struct.pack("<IIII", word, pos, len(key), len(value))
        data += key + value
    whole = 16 + len(table) + len(data)
    pages = -(-whole // size) if size else 1
    head = struct.pack("<QHHI", number, flags, len(elements), pages - 1)
    return (head + table + data).ljust(pages * size, b"\0")


def bolt_file(buckets: Mapping[bytes, Pairs], page_size: int = 4096, txid: int = 7) -> bytes:
    """Buckets of at most one pair are inline; others have leaves below branches of four."""
    pages: list[bytes] = []

    def add(flags: int, elements: Sequence[tuple[int, bytes, bytes]]) -> int:
        number = 3 + sum(map(len, pages)) // page_size
        pages.append(page(number, flags, elements, page_size))
        return number

    roots = []
    for name, pairs in sorted(buckets.items()):
        if len(pairs) <= 1:
            inline = page(0, 2, [(0, *pair) for pair in pairs], 0)
            roots.append((1, name, struct.pack("<QQ", 0, 0) + inline))
            continue
        level = [
            (pairs[i][0], add(2, [(0, *p) for p in pairs[i : i + 5]]))
            for i in range(0, len(pairs), 5)
        ]
        while len(level) > 1:
            groups = [level[i : i + 4] for i in range(0, len(level), 4)]
            level = [(g[0][0], add(1, [(n, key, b"") for key, n in g])) for g in groups]
        roots.append((1, name, struct.pack("<QQ", level[0][1], 0)))
    root = add(2, roots)
    end = 3 + sum(map(len, pages)) // page_size
    metas = [meta_page(n, page_size, root, end, txid - 1 + n) for n in range(2)]
    freelist = page(2, 0x10, [], page_size)
    return b"".join([*metas, freelist, *pages])


def meta_page(number: int, page_size: int, root: int, end: int, txid: int) -> bytes:
    fields = struct.pack("<IIIIQQQQQ", 0xED0CDAED, 2, page_size, 0, root, 0, 2, end, txid)
    fields += struct.pack("<Q", fnv1a(fields))
    return (struct.pack("<QHHI", number, 4, 0, 0) + fields).ljust(page_size, b"\0")


def write_files(folder: Path, count: int = 300, read: int = 100, later: int = 60) -> None:
    """`count` messages of which `read` are acked and the next one delivered; `later` delayed."""
    folder.mkdir(exist_ok=True)
    states = [3] * read + [2] + [0] * (count - read - 1)
    records = [record(body, n, states[n]) for n, body in enumerate(bodies(count))]
    (folder / "t_default.queue").write_bytes(queue_file(records))
    meta = meta_file("t_default", "default", sum(map(len, records)))
    (folder / "t.meta").write_text(meta)
    due = [1_800_000_000 + n * 7919 % 1000 for n in range(later)]
    pairs = sorted(delayed(body, n, due[n]) for n, body in enumerate(bodies(later)))
    (folder / "gmq.db").write_bytes(
        bolt_file({b"t": pairs, b"u": [delayed(b"inline", 1, 5)], b"v": []})
    )
