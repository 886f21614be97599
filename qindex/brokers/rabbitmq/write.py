"""Writing what RabbitMQ 3.10 reads at boot: queue index version 1 and message store of one vhost.

::

    VH/.vhost  .config                       VH = base36(md5(vhost))
    VH/msg_store_persistent/N.rdq            terms of 4096 bytes and more
    VH/queues/Q/.queue_name  N.idx           Q = base36(md5("queue" vhost queue))

The bytes are those that a 3.10 node writes for messages that were published and not acked: a flush
of each segment, its slots backwards, deliver right behind publish; bodies in fragments as they came
in frames. What a node writes only when it is stopped in order (recovery.dets, clean.dot and the
tables beside it) is left out, as after a crash: it then reads every file here, makes its tables
anew, and calls every message redelivered.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Final

from qindex.brokers.rabbitmq.definitions import queue_folder, vhost_folder
from qindex.brokers.rabbitmq.message import Content
from qindex.names import as_bytes
from qindex.private import make_folder, open_private, sync_folder

SLOTS: Final = 2048  # entries of a segment, as in each vhost made by 3.8.17 and later
EMBED_BYTES_MAX: Final = 4095  # of body and properties together
FILE_BYTES_MAX: Final = 16 * 1024 * 1024  # what passes it is the last entry of its file
FRAGMENT_BYTES_MAX: Final = 131072 - 8  # a frame's payload

_PUBLISH: Final = Struct(">H16sQII").pack
_MARK: Final = Struct(">H").pack
_ENTRY: Final = Struct(">Q16s").pack
_U32: Final = Struct(">I").pack
_CONFIG: Final = (
    b"%%%% This file is auto-generated! Edit at your own risk!\n{segment_entry_count, %d}."
)


def _atom(name: bytes) -> bytes:
    return (
        b"d" + len(name).to_bytes(2, "big") + name
    )  # as Erlang/OTP 25 and older; newer ones read it


def _binary(data: bytes) -> bytes:
    return b"m" + _U32(len(data)) + data


def _binaries(items: list[bytes]) -> bytes:
    return b"l" + _U32(len(items)) + b"".join(map(_binary, items)) + b"j" if items else b"j"


_START: Final = b"\x83h\x06" + _atom(b"basic_message") + b"h\x04" + _atom(b"resource")
_EXCHANGE: Final = _atom(b"exchange")
_CONTENT: Final = b"h\x06" + _atom(b"content") + b"a\x3c" + _atom(b"none")
_PROTOCOL: Final = _atom(b"rabbit_framing_amqp_0_9_1")
_BOOLEANS: Final = {True: _atom(b"true"), False: _atom(b"false")}


def encode_message(content: Content, vhost: bytes) -> bytes:
    """The term that 3.x keeps of a message; what read_message() reads."""
    body = content.body
    starts = range(0, len(body), FRAGMENT_BYTES_MAX)
    fragments = [body[start : start + FRAGMENT_BYTES_MAX] for start in reversed(starts)]
    return b"".join(
        (
            _START + _binary(vhost) + _EXCHANGE + _binary(as_bytes(content.exchange)),
            _binaries([as_bytes(key) for key in content.routing_keys]),
            _CONTENT + _binary(content.properties) + _PROTOCOL + _binaries(fragments),
            _binary(content.msg_id) + _BOOLEANS[content.persistent],
        )
    )


class VhostWriter:
    """Writes below `root`, which must not have this virtual host yet: root/msg_stores/vhosts/VH.

    All is durable when close() returns, which also closes the queues.
    """

    def __init__(self, root: Path, vhost: bytes) -> None:
        self.vhost = vhost
        self.where = root / "msg_stores" / "vhosts" / vhost_folder(vhost)
        self.messages = _MessageFiles(self.where / "msg_store_persistent")
        self._queues: dict[bytes, QueueWriter] = {}
        make_folder(self.where / "queues")
        _write(self.where / ".vhost", [vhost])
        _write(self.where / ".config", [_CONFIG % SLOTS])

    def queue(self, name: bytes, priority: int | None = None) -> QueueWriter:
        """The queue, or of a priority queue what it has of one priority: a directory of its own."""
        if priority is not None:
            name += bytes([0, priority])
        if name not in self._queues:
            self._queues[name] = QueueWriter(self, name)
        return self._queues[name]

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()
        self.messages.close()
        for folder in (self.where / "queues", self.where, *self.where.parents[:3]):
            sync_folder(folder)


class QueueWriter:
    """One queue directory, which is made with its first message. Memory holds one segment."""

    def __init__(self, vhost: VhostWriter, name: bytes) -> None:
        self._vhost = vhost
        self._name = name
        self._folder = vhost.where / "queues" / queue_folder(vhost.vhost, name)
        self._next_seq = 0
        self._slots: list[bytes] = []

    def publish(self, content: Content, expiry_us: int | None = None) -> bool:
        """Appends a message; True if its body went to the message store.

        The index says persistent, whatever the properties say: a node drops the others at boot.
        """
        if self._next_seq == 0:
            make_folder(self._folder)
            name = b"VHOST: %b\nQUEUE: %b\n" % (self._vhost.vhost, self._name)
            _write(self._folder / ".queue_name", [name])
            _write(self._folder / "journal.jif", [])  # a node always has one
        slot = self._next_seq % SLOTS
        self._next_seq += 1
        term = encode_message(content, self._vhost.vhost)
        size = len(content.body)
        stored = size + len(content.properties) > EMBED_BYTES_MAX
        if stored:
            self._vhost.messages.append(content.msg_id, term)
            term = b""
        head = _PUBLISH(0xC000 | slot, content.msg_id, expiry_us or 0, size, len(term))
        self._slots.append(head + term + _MARK(0x4000 | slot))
        if slot == SLOTS - 1:
            self._end_segment()
        return stored

    def _end_segment(self) -> None:
        number = (self._next_seq - 1) // SLOTS
        _write(self._folder / f"{number}.idx", reversed(self._slots))
        self._slots = []

    def close(self) -> None:
        if self._slots:
            self._end_segment()
        if self._next_seq:
            sync_folder(self._folder)


class _MessageFiles:
    """The message store. Memory holds one file."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._folder = folder
        self._number = 0
        self._entries: list[bytes] = []
        self._bytes = 0

    def append(self, msg_id: bytes, term: bytes) -> None:
        entry = _ENTRY(16 + len(term), msg_id) + term + b"\xff"
        self._entries.append(entry)
        self._bytes += len(entry)
        if self._bytes >= FILE_BYTES_MAX:
            self._end_file()

    def _end_file(self) -> None:
        _write(self._folder / f"{self._number}.rdq", self._entries)
        self._number += 1
        self._entries, self._bytes = [], 0

    def close(self) -> None:
        self._end_file()  # a node always has a newest file, if only with nothing in it
        sync_folder(self._folder)


def new_msg_id(queue: bytes, part: int, req_id: int) -> bytes:
    """16 bytes that no other message has; always the same for this one."""
    place = part.to_bytes(2, "big") + req_id.to_bytes(8, "big")
    return hashlib.blake2b(place + queue, digest_size=16).digest()


def _write(path: Path, parts: Iterable[bytes]) -> None:
    with open_private(path, "xb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
