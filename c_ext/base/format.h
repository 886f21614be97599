/* format.h - the bytes on disk as constants; FORMAT.rst draws the same tables.
 *
 * Between the writers and the readers: nothing else in the core knows an offset. All integers are
 * big-endian.
 */
#ifndef QI_FORMAT_H
#define QI_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A store is of format 1 or 2, as store.meta says. Journals and segments that are begun in it say
 * the same; queue.meta and message files are as they were in format 1, and say 1 in both. */
#define QI_FORMAT_VERSION 1
#define QI_FORMAT_NEWEST  2
#define QI_FORMAT_OF_NEW  1 /* of a new store, if nobody says it */

/* A ReqId has 62 bits: lane (10) and count (52). Lane 0 is the plain queue; see index.h. */
#define QI_REQ_ID_BITS         62
#define QI_REQ_ID_MASK         ((UINT64_C(1) << QI_REQ_ID_BITS) - 1)
#define QI_COUNT_BITS          52
#define QI_COUNT_MASK          ((UINT64_C(1) << QI_COUNT_BITS) - 1)
#define QI_SEGMENT_ENTRIES_MAX 16384u

#define QI_IDENTITY_SIZE 16
#define QI_MSG_ID_SIZE   16

/* Frames: word (type 4 bits, length 28 bits), crc32c, payload. Used in journals, segments. */
#define QI_FRAME_HEADER     8u
#define QI_FRAME_LENGTH_MAX ((UINT32_C(1) << 28) - 1)
enum qi_frame_type {
    QI_FRAME_RECORDS = 1,  /* journal: bit-packed publish, deliver, ack records */
    QI_FRAME_MARK = 2,     /* journal: bytes below this offset were durable; the time */
    QI_FRAME_MANIFEST = 3, /* journal: flushed epoch, lanes, segments and their durable lengths */
    QI_FRAME_SESSION = 4, /* journal: a process opened the queue: session, floor, reserved ReqIds */
    QI_FRAME_CLOSE = 5,   /* journal: clean end: the exact next ReqIds */
    QI_FRAME_PURGE = 6,   /* journal: all below a ReqId are acked, but for a list */
    QI_FRAME_ENTRIES = 7, /* segment: bit-packed entries */
    QI_FRAME_SUMMARY = 8, /* segment: closes a batch */
    QI_FRAME_LANES =
        9, /* journal: no ReqId of these lanes below the ones it names is given out again */
    QI_FRAME_EXTENDED = 15, /* its payload begins with a kind (2 bytes); format 2 */
};

/* Kinds of extended frames. Who does not know one below QI_KIND_SKIPPED must not go on. */
#define QI_KIND_SIZE 2u
enum qi_extended_kind {
    QI_KIND_COPY = 1,        /* commit log: bytes of a journal */
    QI_KIND_DELETE = 3,      /* commit log: a queue is no more */
    QI_KIND_DATA = 4,        /* commit log, catalog: keys get values, or go */
    QI_KIND_TRANSACTION = 5, /* commit log: what several journals have, all of it or nothing */
    QI_KIND_SKIPPED = 0x8000,
    QI_KIND_MOMENT = 0x8001,  /* journal: what follows was published at this time 8 */
    QI_KIND_MOMENTS = 0x8002, /* segment: when the publishes of the batch that follows were made */
};
#define QI_MOMENT_SIZE   10u /* MOMENT payload: its kind, the time */
#define QI_MOMENTS_ROW   10u /* MOMENTS payload behind its kind: from this slot 2 on, the time 8 */
/* COPY payload behind its kind: identity of the queue, epoch, offset in the journal, the bytes. */
#define QI_COPY_IDENTITY 2u
#define QI_COPY_EPOCH    18u
#define QI_COPY_OFFSET   26u
#define QI_COPY_BYTES    34u
/* TRANSACTION payload behind its kind: parts, each a size 4 and the payload of a COPY. */
#define QI_PART_SIZE     4u
#define QI_COMMITS_MAGIC "QICOMM\r\n"
#define QI_CATALOG_MAGIC "QICATA\r\n"
#define QI_LH_CATALOG    48u /* of a log's header: the number of the catalog that was there then */
#define QI_LH_BEFORE     56u /* the end of the log with the number before 4; 0: not known */
/* DELETE payload behind its kind: identity of the queue. DATA: scope, then entries: size of the
 * key 2, key, size of the value 4, value. */
#define QI_DELETE_SIZE   18u
#define QI_DATA_SCOPE    2u
#define QI_DATA_ENTRIES  18u
#define QI_DATA_FIXED    6u         /* of an entry */
#define QI_DATA_REMOVED  UINT32_MAX /* in place of the size of a value: the key goes */

/* MANIFEST payload: fixed fields, the last of them the number of segments; then a row per
 * segment. */
#define QI_MANIFEST_COUNT   44u
#define QI_MANIFEST_FIXED   48u
#define QI_MANIFEST_SEGMENT 36u
#define QI_MANIFEST_ALT     (1u << 31) /* in a segment's length: its file is N.alt */
#define QI_LANES_ROW        10u        /* LANES payload: lane 2, next ReqId's count 8 */

/* Record kinds, the two high bits of a journal record's first byte. */
enum qi_record_kind {
    QI_PUB_PERSISTENT = 0,
    QI_PUB_TRANSIENT = 1,
    QI_DELIVER = 2,
    QI_ACK = 3,
    QI_TIME = 4, /* not in these bits: QI_DELIVER in the lane below, then ReqId 8, time 8 */
    QI_SIDE = 5, /* the same, but the count is not 0: kind 16 bits, size 36 bits; ReqId 8, bytes */
};
#define QI_SIDE_SIZE_BITS 36
#define QI_SIDE_RECORD    16u /* and the bytes */
#define QI_SIDE_ENTRY     10u /* slot 2, 1 as the count 2, kind 2, size 4; and the bytes */
#define QI_SIDE_COUNT     1u
/* Kinds of side records; QI_KIND_SKIPPED holds for them, too. */
#define QI_SIDE_LEASE     1u /* microseconds 8: how long a consumer may keep the message */
#define QI_SIDE_PUBLISHED                                                                          \
    0x8001u                       /* when it was published 8, of one that was moved; 0: not known  \
                                   */
#define QI_SIDE_DEATHS    0x8002u /* in queues that it has moved out of: entries, latest first */
#define QI_SIDE_DIED      0x8010u /* plus why, where it is: how often 8, first 8, last 8 */
#define QI_DIED_SIZE      24u
#define QI_DIED_RECORD    (QI_SIDE_RECORD + QI_DIED_SIZE)
/* An entry of DEATHS: size of the queue's name 2, name, why 1, and as DIED. */
#define QI_DEATH_FIXED    27u
/* How many deliveries do not count 4, of the first so many 4. */
#define QI_SIDE_UNCOUNTED 0x8000u
#define QI_TIME_LANE      UINT64_C(1023)
#define QI_TIME_RECORD    24u

/* MsgId 16, Expiry 8, Size 4, EmbeddedSize 4: the same bytes in the journal and in a segment. */
#define QI_RECORD_ID    8u
#define QI_ENTRY_ID     2u
#define QI_PUB_FIELDS   32u
#define QI_PUB_MSG_ID   0u
#define QI_PUB_EXPIRY   16u
#define QI_PUB_SIZE     24u
#define QI_PUB_EMBEDDED 28u

/* Journal file: two copies of the header, in pages of their own, then frames. */
#define QI_JOURNAL_HEADER_COPY 4096u
#define QI_JOURNAL_START       8192u
#define QI_JOURNAL_MAGIC       "QIJRNL\r\n"
#define QI_PAST_MAGIC          "QIPAST\r\n" /* flushed, kept as history */
#define QI_JH_VERSION          8u
#define QI_JH_IDENTITY         16u
#define QI_JH_EPOCH            32u
#define QI_JH_CREATED          40u
#define QI_JH_CRC              60u
#define QI_JH_SIZE             64u

/* Segment file: a header of 64 bytes, then batches: ENTRIES frames closed by one SUMMARY frame. */
#define QI_SEGMENT_START 64u
#define QI_SEGMENT_MAGIC "QISEGM\r\n"
#define QI_SH_VERSION    8u
#define QI_SH_ENTRIES    12u
#define QI_SH_IDENTITY   16u
#define QI_SH_NUMBER     32u
#define QI_SH_EPOCH      40u
#define QI_SH_CRC        60u
#define QI_SH_SIZE       64u

/* SUMMARY payload: unacked 4, transient 4, earliest expiry 8, bytes that wait 8, files 4, then per
 * message file: number 4, count 4, bytes 8; at the very end the size of the whole frame 4, so that
 * the summary is found from the file's durable end. */
#define QI_SUMMARY_UNACKED   0u
#define QI_SUMMARY_TRANSIENT 4u
#define QI_SUMMARY_EXPIRY    8u
#define QI_SUMMARY_BYTES     16u
#define QI_SUMMARY_FILES     24u
#define QI_SUMMARY_FIXED     32u /* the fields and the closing size */
#define QI_SUMMARY_FILE      16u

/* Message file: a header of 64 bytes, then frames: length, crc, MsgId, payload, 0xFF. */
#define QI_MESSAGES_START   64u
#define QI_MESSAGES_MAGIC   "QIMSGS\r\n"
#define QI_MH_VERSION       8u
#define QI_MH_KIND          12u
#define QI_MH_IDENTITY      16u
#define QI_MH_NUMBER        32u
#define QI_MH_FRAMES        40u /* compacted files: frames, bytes; birth files follow the frames */
#define QI_MH_BYTES         48u
#define QI_MH_CRC           60u
#define QI_MH_SIZE          64u
#define QI_MESSAGE_HEADER   24u
#define QI_MESSAGE_END      0xFFu
#define QI_MESSAGE_OVERHEAD 25u

static inline uint16_t qi_get16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}

static inline uint32_t qi_get32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

static inline uint64_t qi_get64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

static inline void qi_put16(uint8_t *p, uint16_t v) {
    v = __builtin_bswap16(v);
    memcpy(p, &v, 2);
}

static inline void qi_put32(uint8_t *p, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(p, &v, 4);
}

static inline void qi_put64(uint8_t *p, uint64_t v) {
    v = __builtin_bswap64(v);
    memcpy(p, &v, 8);
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "qindex is built for little-endian machines; format.h needs its swaps removed for others"
#endif

#endif
