"""c_ext/FORMAT.rst's worked example, encoded anew.

The encoder below was written from FORMAT.rst alone and shares nothing with the core but the
checksum function. ``python tests/compat/format_encoder.py`` prints the example's blocks.
"""

import hashlib
import struct

from qindex._core import lib

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
# It is being renamed: version 2, and behind the checksum the next name.
NEXT = "bills"
NEXT_DIRECTORY = hashlib.blake2b(NEXT.encode(), digest_size=16).hexdigest()
QUEUE_META_2 = with_crc(
    with_crc(QUEUE_META[:8] + struct.pack(">I", 2) + QUEUE_META[12:-4])
    + NEXT_DIRECTORY.encode()
    + struct.pack(">I", len(NEXT))
    + NEXT.encode()
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

# The same store as one of format 2. A power cut took what the journal's last sync did not cover:
# the frames behind `SYNCED` stand in the commit log alone.
LOG = 1
EXTENDED, COPY = 15, 1
LAST_FRAMES = joined(JOURNAL_FRAMES)[SYNCED - 8192 :]
LOG_HEADER = with_crc(
    struct.pack(">8sI4x", b"QICOMM\r\n", 2) + STORE_ID + struct.pack(">QQ12x", LOG, NOW_US)
)
COPY_PAYLOAD = struct.pack(">H", COPY) + QUEUE_ID + struct.pack(">QQ", EPOCH, SYNCED) + LAST_FRAMES
COPY_FRAME = frame(seed(STORE_ID, 0, LOG), 8192, EXTENDED, COPY_PAYLOAD)
DATA = 4
DATA_PAYLOAD = struct.pack(">H", DATA) + bytes(16) + b"\0\x04road" + struct.pack(">I", 5) + b"north"
DATA_AT = 8192 + len(COPY_FRAME) + len(COPY_PAYLOAD)
DATA_FRAME = frame(seed(STORE_ID, 0, LOG), DATA_AT, EXTENDED, DATA_PAYLOAD)
COMMIT_LOG = (twice(LOG_HEADER) + COPY_FRAME + COPY_PAYLOAD + DATA_FRAME + DATA_PAYLOAD).ljust(
    16384, b"\0"
)

# Behind that a session began, and published by a transaction: the part has its SESSION, too.
TRANSACTION, MOMENT, MOMENTS = 5, 0x8001, 0x8002
PART_AT = 8192 + len(joined(JOURNAL_FRAMES))
PART_FRAMES = chain(
    seed(QUEUE_ID, 0, EPOCH),
    PART_AT,
    [
        ("SESSION", SESSION, struct.pack(">QQ", 2, 0) + lanes(131076)),
        ("MOMENT", EXTENDED, struct.pack(">HQ", MOMENT, NOW_US)),
        ("publish", RECORDS, record(0, 4, publish_fields(b"paid"))),
    ],
)
# A batch of a segment that begins with when its messages were published: `b` a minute later.
MOMENTS_PAYLOAD = struct.pack(">HHQHQ", MOMENTS, 0, NOW_US, 1, NOW_US + 60_000_000)
MOMENTS_FRAME = frame(seed(QUEUE_ID, 0, 2), 64, EXTENDED, MOMENTS_PAYLOAD)
PART = struct.pack(">H", COPY) + QUEUE_ID + struct.pack(">QQ", EPOCH, PART_AT) + joined(PART_FRAMES)
DATA_END = DATA_AT + len(DATA_FRAME) + len(DATA_PAYLOAD)
TRANSACTION_PAYLOAD = struct.pack(">HI", TRANSACTION, len(PART)) + PART
TRANSACTION_FRAME = frame(
    seed(STORE_ID, 0, LOG),
    DATA_END,
    EXTENDED,
    TRANSACTION_PAYLOAD,
)
COMMIT_LOG_2 = (COMMIT_LOG.rstrip(b"\0") + TRANSACTION_FRAME + TRANSACTION_PAYLOAD).ljust(
    16384, b"\0"
)
# Its close had no space for counts, which no example log has.
STORE_META_2 = with_crc(STORE_META[:8] + struct.pack(">I", 2) + STORE_META[12:59] + b"\1")
STORE_META_2 = with_crc(STORE_META_2 + struct.pack(">QQQQQI", LOG, DATA_END, 0, 0, 0, 1))
LOGS_META = STORE_META_2[64:]

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
        (STORE_META[56:], "not index only, clean, not known, zero, checksum"),
    ],
    "queue.meta": [
        (QUEUE_META[:16], "magic, version, size of the name"),
        (QUEUE_META[16:32], "identity"),
        (QUEUE_META[32:-4], "name"),
        (QUEUE_META[-4:], "checksum"),
    ],
    "queue.meta, renamed": [
        (QUEUE_META_2[:16], "magic, version, size of the name"),
        (QUEUE_META_2[16:32], "identity"),
        (QUEUE_META_2[32:38], "name"),
        (QUEUE_META_2[38:42], "checksum"),
        (QUEUE_META_2[42:74], "folder of the next name"),
        (QUEUE_META_2[74:78], "size of the next name"),
        (QUEUE_META_2[78:-4], "next name"),
        (QUEUE_META_2[-4:], "checksum"),
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
    "store.meta of the logs": [
        (LOGS_META[:16], "the newest log, its durable end"),
        (LOGS_META[16:], "no catalog, one log, checksum"),
    ],
    "commit log header": [
        (LOG_HEADER[:16], "magic, version, zero"),
        (LOG_HEADER[16:32], "identity of the store"),
        (LOG_HEADER[32:48], "number, created"),
        (LOG_HEADER[48:], "zero, checksum"),
    ],
    "COPY": [
        (COPY_FRAME[:4], "type and length"),
        (COPY_FRAME[4:], "checksum"),
        (COPY_PAYLOAD[:2], "kind"),
        (COPY_PAYLOAD[2:18], "identity of the queue"),
        (COPY_PAYLOAD[18:34], "epoch, offset in the journal"),
        (COPY_PAYLOAD[34:], "LANES and CLOSE"),
    ],
    "DATA": [
        (DATA_FRAME[:4], "type and length"),
        (DATA_FRAME[4:], "checksum"),
        (DATA_PAYLOAD[:2], "kind"),
        (DATA_PAYLOAD[2:18], "the mapping of the store"),
        (DATA_PAYLOAD[18:24], "size of the key, key"),
        (DATA_PAYLOAD[24:], "size of the value, value"),
    ],
    "TRANSACTION": [
        (TRANSACTION_FRAME[:4], "type and length"),
        (TRANSACTION_FRAME[4:], "checksum"),
        (TRANSACTION_PAYLOAD[:2], "kind"),
        (TRANSACTION_PAYLOAD[2:6], "size of the part"),
        (PART[:2], "its kind: COPY"),
        (PART[2:18], "identity of the queue"),
        (PART[18:34], "epoch, offset in the journal"),
        (b"".join(PART_FRAMES[0][1:]), "SESSION"),
        (b"".join(PART_FRAMES[1][1:]), "MOMENT: what follows was published then"),
        (b"".join(PART_FRAMES[2][1:]), "the frame of the transaction: a publish"),
    ],
    "MOMENTS": [
        (MOMENTS_FRAME[:4], "type and length"),
        (MOMENTS_FRAME[4:], "checksum"),
        (MOMENTS_PAYLOAD[:2], "kind"),
        (MOMENTS_PAYLOAD[2:12], "from slot 0 on: when that was published"),
        (MOMENTS_PAYLOAD[12:], "from slot 1 on"),
    ],
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


def print_blocks():
    for name, parts in EXAMPLES.items():
        print(f"**{name}**, {sum(len(part) for part, _ in parts)} bytes::\n")
        for part, comment in parts:
            lines = [part[at : at + 16].hex(" ") for at in range(0, len(part), 16)]
            for line in lines[:-1]:
                print(f"    {line}")
            print(f"    {lines[-1]:<47} ; {comment}")
        print()


if __name__ == "__main__":
    print_blocks()
