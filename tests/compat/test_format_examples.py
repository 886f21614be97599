"""c_ext/FORMAT.rst's worked example: encoded anew here, compared byte by byte, read by the engine.

The encoder below was written from FORMAT.rst alone and shares nothing with the core but the
checksum function. ``python tests/compat/test_format_examples.py`` prints the example's blocks.
"""

import hashlib
import re
import struct
from pathlib import Path

import pytest

import qindex
from qindex._core import lib

FORMAT = Path(__file__).parents[2] / "c_ext/FORMAT.rst"

STORE_ID = bytes(range(0x10, 0x20))
QUEUE_ID = bytes(range(0xA0, 0xB0))
NOW_US = 1_700_000_000_000_000
ENTRIES = 16384
EPOCH = 3  # so the file is journal.alt
FLUSHED_EPOCH = 2
QUEUE = "orders"
DIRECTORY = hashlib.blake2b(QUEUE.encode(), digest_size=16).hexdigest()
RECORDS, MARK, MANIFEST, SESSION, CLOSE, PURGE, BATCH, SUMMARY, LANES = range(1, 10)


def crc(*parts, start=0):
    joined = b"".join(parts)
    return lib.qi_crc32c(start, joined, len(joined))


def with_crc(head):
    return head + struct.pack(">I", crc(head))


def seed(identity, number, epoch):
    return crc(identity, struct.pack(">QQ", number, epoch))


def frame(start, offset, kind, payload):
    word = struct.pack(">I", kind << 28 | len(payload))
    return word + struct.pack(">I", crc(struct.pack(">Q", offset), word, payload, start=start))


def publish_fields(body, msg_id=bytes(16), expiry_us=0, embedded=None):
    payload = body if embedded is None else embedded
    return msg_id + struct.pack(">QII", expiry_us, len(body), len(payload)) + payload


def record(kind, req_id, fields=b""):
    return struct.pack(">Q", kind << 62 | req_id) + fields


def lanes(req_id):
    return struct.pack(">HHQ", 1, 0, req_id)


def chain(start, offset, frames):
    """Frames one behind the other; a list of (comment, header, payload)."""
    result = []
    for comment, kind, payload in frames:
        result.append((comment, frame(start, offset, kind, payload), payload))
        offset += 8 + len(payload)
    return result


def joined(frames):
    return b"".join(header + payload for _, header, payload in frames)


def twice(content):
    """Two copies, each in pages of its own."""
    return content.ljust(4096, b"\0") * 2


# ---- the files of the example ----

STORE_META = with_crc(
    struct.pack(">8sII", b"QISTOR\r\n", 1, ENTRIES)
    + STORE_ID
    + struct.pack(">QQQBBxx", 1, 0, NOW_US, 0, 1)
)
QUEUE_META = with_crc(
    struct.pack(">8sII", b"QIQUEU\r\n", 1, len(QUEUE)) + QUEUE_ID + QUEUE.encode()
)

MESSAGES_HEADER = with_crc(
    struct.pack(">8sII", b"QIMSGS\r\n", 1, 0) + STORE_ID + struct.pack(">QQQ4x", 0, 0, 0)
)
STORED = b"a body in the store"
MSG_ID = struct.pack(">IIII", 0, 64, len(STORED), 0x00020304)


def message_frame(offset, msg_id, payload):
    length = struct.pack(">I", len(payload))
    place = struct.pack(">Q", offset) + length + msg_id
    checksum = crc(place, payload, start=seed(STORE_ID, 0, 0))
    return length + struct.pack(">I", checksum), msg_id, payload + b"\xff"


MESSAGE = message_frame(64, MSG_ID, STORED)

SEGMENT_HEADER = with_crc(
    struct.pack(">8sII", b"QISEGM\r\n", 1, ENTRIES)
    + QUEUE_ID
    + struct.pack(">QQ12x", 0, FLUSHED_EPOCH)
)
ENTRY_LIST = [
    ("1 1 slot 0: publish, persistent", struct.pack(">H", 0xC000) + publish_fields(b"a")),
    ("1 1 slot 1", struct.pack(">H", 0xC001) + publish_fields(b"b")),
    ("01 slot 1: the first, so a deliver", struct.pack(">H", 0x4001)),
    ("00 slot 1, delivered 2 times", struct.pack(">HH", 0x0001, 2)),
]
SUMMARY_PAYLOAD = struct.pack(">IIQQI", 2, 0, 0, 2, 0) + struct.pack(">I", 8 + 32)
BATCH_FRAMES = chain(
    seed(QUEUE_ID, 0, FLUSHED_EPOCH),
    64,
    [
        ("ENTRIES", BATCH, b"".join(entry for _, entry in ENTRY_LIST)),
        ("SUMMARY", SUMMARY, SUMMARY_PAYLOAD),
    ],
)
SEGMENT = SEGMENT_HEADER + joined(BATCH_FRAMES)

JOURNAL_HEADER = with_crc(
    struct.pack(">8sI4x", b"QIJRNL\r\n", 1) + QUEUE_ID + struct.pack(">QQ12x", EPOCH, NOW_US)
)
MANIFEST_PAYLOAD = (
    struct.pack(">QQQQ", FLUSHED_EPOCH, 1, 0, 0)
    + lanes(131072)
    + struct.pack(">I", 1)
    + struct.pack(">QIHHQQH2x", 0, len(SEGMENT), 2, 0, FLUSHED_EPOCH, 0, 0)
)
PUBLISH = record(0, 2, publish_fields(b"hello"))
DELIVER = record(2, 2)
ACK = record(3, 2)
STORED_PUBLISH = record(0, 3, publish_fields(STORED, MSG_ID, embedded=b""))
DUE_US = NOW_US + 90_000_000
LANE = 512 + DUE_US // 60_000_000 % 256  # due within an hour: by the minute
DELAYED = LANE << 52  # the first of its lane
TIME = 3 << 56 | DUE_US
DELAYED_PUBLISH = record(0, DELAYED, publish_fields(b"later"))
TIME_RECORD = record(2, 1023 << 52) + struct.pack(">QQ", DELAYED, TIME)
BEFORE_CLOSE = [
    ("MANIFEST", MANIFEST, MANIFEST_PAYLOAD),
    ("publish", RECORDS, PUBLISH),
    ("deliver", RECORDS, DELIVER),
    ("ack", RECORDS, ACK),
    ("publish of a stored body", RECORDS, STORED_PUBLISH),
    ("delayed publish", RECORDS, DELAYED_PUBLISH + TIME_RECORD),
]
SYNCED = 8192 + sum(8 + len(payload) for _, _, payload in BEFORE_CLOSE)
JOURNAL_FRAMES = chain(
    seed(QUEUE_ID, 0, EPOCH),
    8192,
    [
        *BEFORE_CLOSE,
        ("LANES", LANES, struct.pack(">HQ", LANE, 1)),
        ("CLOSE", CLOSE, struct.pack(">QQ", SYNCED, NOW_US) + lanes(4)),
    ],
)
JOURNAL = (
    JOURNAL_HEADER.ljust(4096, b"\0") + JOURNAL_HEADER.ljust(4096, b"\0") + joined(JOURNAL_FRAMES)
)

FILES = {
    "store.meta": twice(STORE_META),
    "messages/0.qms": MESSAGES_HEADER + b"".join(MESSAGE),
    f"queues/{DIRECTORY}/queue.meta": twice(QUEUE_META),
    f"queues/{DIRECTORY}/0.idx": SEGMENT,
    f"queues/{DIRECTORY}/journal.alt": JOURNAL,
}


def of_journal(name):
    ((header, payload),) = [(h, p) for n, h, p in JOURNAL_FRAMES if n == name]
    return header, payload


def fields_of(payload, head):
    """A publish, cut where FORMAT.rst cuts it."""
    return [
        (payload[:head], "kind and id"),
        (payload[head : head + 16], "MsgId"),
        (payload[head + 16 : head + 24], "Expiry: never"),
        (payload[head + 24 : head + 28], "Size"),
        (payload[head + 28 : head + 32], "EmbeddedSize"),
        (payload[head + 32 :], "the embedded bytes"),
    ]


def framed(name, parts):
    header, payload = of_journal(name)
    assert b"".join(part for part, _ in parts) == payload
    return [(header[:4], "type and length"), (header[4:], "checksum"), *parts]


EXAMPLES = {
    "store.meta": [
        (STORE_META[:16], "magic, version, segment entries"),
        (STORE_META[16:32], "identity"),
        (STORE_META[32:48], "session, unclean session"),
        (STORE_META[48:56], "time"),
        (STORE_META[56:], "not index only, clean, 2 zero, checksum"),
    ],
    "queue.meta": [
        (QUEUE_META[:16], "magic, version, size of the name"),
        (QUEUE_META[16:32], "identity"),
        (QUEUE_META[32:-4], "name"),
        (QUEUE_META[-4:], "checksum"),
    ],
    "journal header": [
        (JOURNAL_HEADER[:16], "magic, version, zero"),
        (JOURNAL_HEADER[16:32], "identity"),
        (JOURNAL_HEADER[32:48], "epoch, created"),
        (JOURNAL_HEADER[48:], "zero, checksum"),
    ],
    "MANIFEST": framed(
        "MANIFEST",
        [
            (MANIFEST_PAYLOAD[:16], "flushed epoch, session"),
            (MANIFEST_PAYLOAD[16:32], "floor, tail of the epoch before"),
            (MANIFEST_PAYLOAD[32:44], "1 lane: lane 0, reserved"),
            (MANIFEST_PAYLOAD[44:48], "1 segment:"),
            (MANIFEST_PAYLOAD[48:72], "number, length, unacked, transient, epoch"),
            (MANIFEST_PAYLOAD[72:], "earliest time: none, delayed, zero"),
        ],
    ),
    "publish": framed("publish", fields_of(PUBLISH, 8)),
    "deliver": framed("deliver", [(DELIVER, "10, ReqId 2")]),
    "ack": framed("ack", [(ACK, "11, ReqId 2")]),
    "publish of a stored body": framed(
        "publish of a stored body", fields_of(STORED_PUBLISH, 8)[:-1]
    ),
    "delayed publish": framed(
        "delayed publish",
        [
            *fields_of(DELAYED_PUBLISH, 8),
            (TIME_RECORD[:8], "10, lane 1023: a time"),
            (TIME_RECORD[8:16], "of this ReqId"),
            (TIME_RECORD[16:], "priority 3; due"),
        ],
    ),
    "LANES": framed("LANES", [(struct.pack(">HQ", LANE, 1), "lane, its next ReqId's count")]),
    "CLOSE": framed(
        "CLOSE",
        [
            (of_journal("CLOSE")[1][:16], "durable below, time"),
            (of_journal("CLOSE")[1][16:], "1 lane: lane 0, the next ReqId"),
        ],
    ),
    "segment": [
        (SEGMENT_HEADER[:16], "magic, version, entries"),
        (SEGMENT_HEADER[16:32], "identity"),
        (SEGMENT_HEADER[32:48], "number, epoch"),
        (SEGMENT_HEADER[48:], "zero, checksum"),
        (BATCH_FRAMES[0][1], "ENTRIES, length; checksum"),
        *((entry, comment) for comment, entry in ENTRY_LIST),
        (BATCH_FRAMES[1][1], "SUMMARY, length; checksum"),
        (SUMMARY_PAYLOAD[:8], "unacked, transient"),
        (SUMMARY_PAYLOAD[8:16], "earliest expiry: none"),
        (SUMMARY_PAYLOAD[16:28], "bytes that wait; message files: 0"),
        (SUMMARY_PAYLOAD[28:], "size of this frame"),
    ],
    "message file": [
        (MESSAGES_HEADER[:16], "magic, version, kind: rolling"),
        (MESSAGES_HEADER[16:32], "identity of the store"),
        (MESSAGES_HEADER[32:40], "number"),
        (MESSAGES_HEADER[40:56], "frames, bytes: of a compacted file only"),
        (MESSAGES_HEADER[56:], "zero, checksum"),
        (MESSAGE[0], "length; checksum"),
        (MESSAGE[1], "MsgId: file 0, offset 64, stamp"),
        (MESSAGE[2], "payload, 0xFF"),
    ],
}


def blocks_of(text):
    """The document's blocks: name -> bytes. A line is hex bytes, then perhaps `;` and a comment."""
    found = {}
    for match in re.finditer(r"^\*\*(.+?)\*\*, (\d+) bytes::\n\n((?:    .+\n)+)", text, re.M):
        hexes = [line.partition(";")[0] for line in match[3].splitlines()]
        found[match[1]] = bytes.fromhex("".join(hexes))
        assert len(found[match[1]]) == int(match[2])
    return found


def print_blocks():
    for name, parts in EXAMPLES.items():
        print(f"**{name}**, {sum(len(part) for part, _ in parts)} bytes::\n")
        for part, comment in parts:
            lines = [part[at : at + 16].hex(" ") for at in range(0, len(part), 16)]
            for line in lines[:-1]:
                print(f"    {line}")
            print(f"    {lines[-1]:<47} ; {comment}")
        print()


@pytest.fixture
def store_path(tmp_path):
    for name, content in FILES.items():
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "store"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_document_shows_the_bytes_that_the_encoder_makes(name):
    shown = blocks_of(FORMAT.read_text(encoding="utf-8"))
    assert shown[name] == b"".join(part for part, _ in EXAMPLES[name])


def test_the_document_shows_nothing_else():
    assert sorted(blocks_of(FORMAT.read_text(encoding="utf-8"))) == sorted(EXAMPLES)


@pytest.mark.parametrize("read_only", [True, False])
def test_the_engine_reads_the_example(store_path, read_only):
    with qindex.open(store_path, read_only=read_only) as store:
        queue = store.queue(QUEUE, create=False)
        *seen, later = [(m.req_id, m.body, m.redelivered, m.delivery_count) for m in queue.browse()]
        assert seen == [(0, b"a", False, 0), (1, b"b", True, 2), (3, STORED, False, 0)]
        assert later == (DELAYED, b"later", False, 0)
        assert queue.peek().body == b"later"
        assert (queue.peek().priority, queue.peek().due) == (3, DUE_US / 1e6)
        assert queue.stats().next_req_id == 4
        assert store.check() == []


def test_the_engine_goes_on_where_the_example_ends(store_path):
    with qindex.open(store_path) as store:
        queue = store.queue(QUEUE)
        assert queue.publish(b"more") == 4
        assert [m.body for m in queue.get_many(9)] == [b"later", b"a", b"b", STORED, b"more"]


def test_one_flipped_bit_anywhere_in_the_journal_is_not_accepted(store_path):
    path = store_path / f"queues/{DIRECTORY}/journal.alt"
    offset = 8192
    for _, header, payload in JOURNAL_FRAMES:
        damaged = bytearray(JOURNAL)
        damaged[offset + 8 + len(payload) // 2] ^= 1
        offset += len(header) + len(payload)
        path.write_bytes(damaged)
        with qindex.open(store_path, read_only=True) as store:
            try:
                store.queue(QUEUE)
            except qindex.StoreCorrupt:
                continue
            assert store.findings != []


def test_what_the_engine_writes_is_what_the_encoder_makes(tmp_path):
    with qindex.open(tmp_path / "store", embed_below=16) as store:
        queue = store.queue(QUEUE)
        queue.publish(b"hello")
        queue.ack(queue.get())
        queue.publish(STORED)
        path = tmp_path / f"store/queues/{DIRECTORY}/journal.jif"
        live = path.read_bytes()
        stored = (tmp_path / "store/messages/0.qms").read_bytes()
    identity, (epoch, created) = live[16:32], struct.unpack(">QQ", live[32:48])
    assert live[:64] == live[4096:4160]
    assert live[:64] == with_crc(
        struct.pack(">8sI4x", b"QIJRNL\r\n", 1) + identity + struct.pack(">QQ12x", epoch, created)
    )
    msg_id = stored[72:88]
    records = [
        record(0, 0, publish_fields(b"hello")),
        record(2, 0),
        record(3, 0),
        record(0, 1, publish_fields(STORED, msg_id, embedded=b"")),
    ]
    offset, found = 8192, []
    while live[offset : offset + 8] != bytes(8):
        (word,) = struct.unpack_from(">I", live, offset)
        payload = live[offset + 8 : offset + 8 + (word & 0xFFFFFFF)]
        expected = frame(seed(identity, 0, epoch), offset, word >> 28, payload)
        assert live[offset : offset + 8] == expected
        if word >> 28 == RECORDS:
            found.append(payload)
        offset += 8 + len(payload)
    assert found == records
    assert msg_id[:12] == struct.pack(">III", 0, 64, len(STORED))


if __name__ == "__main__":
    print_blocks()
