"""Small directories as RabbitMQ nodes write them, of index version 1 and 2, with all there can be.

Segments have 64 entries, so that damage meets their ends. A node of 3.10 writes a delivery behind
each publish; flushes write slots backwards; acks in version 2 are zeros.
"""

from __future__ import annotations

import struct
import time
import zlib
from pathlib import Path

from qindex.brokers.amqp import Properties, encode_properties
from qindex.brokers.rabbitmq.definitions import queue_folder, vhost_folder
from qindex.brokers.rabbitmq.message import Content
from qindex.brokers.rabbitmq.write import encode_message

SLOTS = 64
VHOST = b"/"
STORED = 3000  # a body of so many bytes goes to the message store
TTL_S = 40 * 86_400


def content(queue: str, seq: int, *, persistent: bool = True) -> Content:
    size = STORED + seq if seq % 5 == 3 else 20 + seq % 7
    body = (f"{queue} {seq} ".encode() * size)[:size]
    expiration = str(TTL_S * 1000) if seq % 11 == 4 else None
    mode = 2 if persistent else 1
    properties = encode_properties(
        Properties(message_id=f"{queue}-{seq}", delivery_mode=mode, expiration=expiration)
    )
    msg_id = zlib.crc32(body).to_bytes(4, "big") + f"{queue:>4.4}{seq:08}".encode()
    return Content("", [queue], properties, body, msg_id, persistent)


class Node:
    """A directory that is written as the test says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = path / "msg_stores" / "vhosts" / vhost_folder(VHOST)
        self.store = self.where / "msg_store_persistent"
        self.store.mkdir(parents=True)
        (self.where / "queues").mkdir()
        (self.where / ".vhost").write_bytes(VHOST)
        (self.where / ".config").write_text(f"%% generated\n{{segment_entry_count, {SLOTS}}}.")
        self._rdq: list[bytes] = []
        self._definitions: list[bytes] = []

    def queue(self, name: str, version: int) -> Path:
        folder = self.where / "queues" / queue_folder(VHOST, name.encode())
        folder.mkdir()
        index = "INDEX: v2\n" if version == 2 else ""
        (folder / ".queue_name").write_text(f"VHOST: /\nQUEUE: {name}\n{index}")
        self._definitions.append(definition(name.encode()))
        return folder

    def keep(self, message: Content) -> bytes | None:
        """The term, if it is small; else None: it is in the message store."""
        term = encode_message(message, VHOST)
        if len(message.body) < STORED:
            return term
        self._rdq.append(struct.pack(">Q16s", 16 + len(term), message.msg_id) + term + b"\xff")
        return None

    def close(self) -> Path:
        half = len(self._rdq) // 2
        (self.store / "0.rdq").write_bytes(b"".join(self._rdq[:half]))
        (self.store / "1.rdq").write_bytes(b"".join(self._rdq[half:]))
        log = b"".join(struct.pack(">I", len(term)) + b"bWLA" + term for term in self._definitions)
        (self.path / "LATEST.LOG").write_bytes(bytes.fromhex("0102030406070809") + log)
        return self.path


def definition(name: bytes) -> bytes:
    """{amqqueue, {resource, VHost, queue, Name}, true, false, none, [], none}"""

    def atom(text: bytes) -> bytes:
        return b"d" + struct.pack(">H", len(text)) + text

    def binary(data: bytes) -> bytes:
        return b"m" + struct.pack(">I", len(data)) + data

    resource = b"h\4" + atom(b"resource") + binary(VHOST) + atom(b"queue") + binary(name)
    rest = atom(b"true") + atom(b"false") + atom(b"none") + b"j" + atom(b"none")
    return b"\x83h\7" + atom(b"amqqueue") + resource + rest


# --- version 1 ----------------------------------------------------------------------------------


def publish(node: Node, message: Content, head: bytes) -> bytes:
    term = node.keep(message) or b""
    expiry_us = int((time.time() + TTL_S) * 1e6) if b"3456000000" in message.properties else 0
    sizes = struct.pack(">QII", expiry_us, len(message.body), len(term))
    return head + message.msg_id + sizes + term


def write_v1(
    node: Node, name: str, count: int, acked: int, journal: int, slots: int = SLOTS
) -> None:
    """Seqs 0 to `count`, the last `journal` of them in the journal; the first ones are acked."""
    folder = node.queue(name, 1)
    segments: dict[int, list[bytes]] = {}
    records = []
    done = range(acked // 2 // slots)  # segments that were deleted
    for seq in range(count):
        message = content(name, seq)
        if seq < count - journal:
            slot = seq % slots
            mark = struct.pack(">H", 0x4000 | slot)
            record = publish(node, message, struct.pack(">H", 0xC000 | slot)) + mark
            segments.setdefault(seq // slots, []).append(record)
        else:
            head = struct.pack(">Q", seq)
            records.append(publish(node, message, head) + struct.pack(">Q", 2 << 62 | seq))
    early = [seq for seq in range(acked // 2) if seq // slots not in done]
    for number, rows in segments.items():
        if number in done:
            continue
        half = len(rows) // 2  # two flushes
        data = b"".join([*reversed(rows[:half]), *reversed(rows[half:])])
        marks = [struct.pack(">H", 0x4000 | s % slots) for s in early if s // slots == number]
        (folder / f"{number}.idx").write_bytes(data + b"".join(reversed(marks)))
    records += [struct.pack(">Q", 3 << 62 | seq) for seq in range(acked // 2, acked)]
    (folder / "journal.jif").write_bytes(b"".join(records))


# --- version 2 ----------------------------------------------------------------------------------


def write_v2(node: Node, name: str, count: int, acked: int) -> None:
    folder = node.queue(name, 2)
    for number in range(acked // SLOTS, (count + SLOTS - 1) // SLOTS):
        first, last = number * SLOTS, (number + 1) * SLOTS
        entries, stored = [], bytearray(struct.pack(">4sBQQ43x", b"RCQS", 2, first, last))
        for seq in range(first, min(last, count)):
            message = content(name, seq)
            term = node.keep(message)
            if term is None:
                place = b"\1" + message.msg_id
            else:
                place = b"\2" + struct.pack(">QII", len(stored), len(term), 0)
                stored += struct.pack(">IBHB", len(term), 1, zlib.crc32(term) & 0xFFFF, 0) + term
            expiry_us = (
                int((time.time() + TTL_S) * 1e6) if b"3456000000" in message.properties else 0
            )
            entry = b"\1\1\0" + place + struct.pack(">IQ", len(message.body), expiry_us)
            entries.append(entry if seq >= acked else bytes(32))
        header = struct.pack(">4sBQQ43x", b"RCQI", 2, first, last)
        (folder / f"{number}.qi").write_bytes(header + b"".join(entries))
        (folder / f"{number}.qs").write_bytes(stored)


def write_node(path: Path) -> Path:
    """A node that was killed, with queues of both versions."""
    node = Node(path)
    write_v1(node, "old", 230, 80, 20)
    write_v1(node, "jif", 40, 8, 40)
    write_v2(node, "new", 170, 75)
    return node.close()
