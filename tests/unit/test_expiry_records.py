"""What an expired message leaves in the journal."""

import struct

import qindex
from qindex.testing import SimulatedDisk, abandon


def frames(disk):
    (raw,) = (raw for name, raw in disk.files().items() if name.endswith("journal.jif"))
    offset = 8192
    while raw[offset : offset + 8].strip(b"\0"):
        (word,) = struct.unpack_from(">I", raw, offset)
        length = word & 0xFFFFFFF
        yield word >> 28, raw[offset + 8 : offset + 8 + length]
        offset += 8 + length


def records_of(disk, verb):
    before = len(list(frames(disk)))
    verb()
    return [data for kind, data in list(frames(disk))[before:] if kind == 1]


def test_an_expired_message_leaves_with_one_frame():
    """A deliver in a frame of its own could survive a power cut without its ack."""
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk, sync="never")
    queue = store.queue("a")
    queue.publish(b"old", expires_at=1)
    queue.publish(b"kept")
    assert records_of(disk, queue.get) == [
        struct.pack(">Q", 3 << 62 | 0),  # ack of 0
        struct.pack(">Q", 2 << 62 | 1),  # deliver of 1
    ]
    queue.flush()
    abandon(store)
    store = qindex.open("/", disk=disk.kill())
    assert [m.req_id for m in store.queue("a").browse()] == [1]
    abandon(store)


def test_many_that_expired_leave_with_one_frame():
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk, sync="never")
    queue = store.queue("a")
    queue.publish_many([b"old"] * 3, expires_at=1)
    acks = b"".join(struct.pack(">Q", 3 << 62 | req_id) for req_id in range(3))
    assert records_of(disk, queue.expire) == [acks]
    abandon(store)
