"""What an expired message leaves in the journal."""

import struct
import time

from helpers import crash, queue_directory


def frames(root, name):
    raw, offset = (queue_directory(root, name) / "journal.jif").read_bytes(), 8192
    while raw[offset : offset + 8].strip(b"\0"):
        (word,) = struct.unpack_from(">I", raw, offset)
        length = word & 0xFFFFFFF
        yield word >> 28, raw[offset + 8 : offset + 8 + length]
        offset += 8 + length


def test_an_expired_message_leaves_with_one_frame(open_store):
    """A deliver in a frame of its own could survive a power cut without its ack."""
    store = open_store(sync="never")
    queue = store.queue("a")
    queue.publish(b"old", expires_at=time.time() - 1)
    queue.publish(b"kept")
    before = len(list(frames(store.path, "a")))
    assert queue.get().body == b"kept"
    added = list(frames(store.path, "a"))[before:]
    assert [data for kind, data in added if kind == 1] == [
        struct.pack(">Q", 3 << 62 | 0),  # ack of 0
        struct.pack(">Q", 2 << 62 | 1),  # deliver of 1
    ]
    queue.flush()
    crash(store)
    assert [m.req_id for m in open_store().queue("a").browse()] == [1]
