/* codec.h - the bit-packed records, values to bytes and back. Pure: no I/O, no allocation.
 *
 * The layout is RabbitMQ's queue index, version 1 (rabbit_queue_index.erl): a journal record is 2 bits of kind and 62
 * bits of ReqId, a segment entry 2 or 1 + 1 bits and 14 bits of slot; a publish goes on with 32 bytes of fields and
 * the embedded bytes, which are the same in both.
 */
#ifndef QI_CODEC_H
#define QI_CODEC_H

#include "format.h"

struct qi_record {
    enum qi_record_kind kind;
    uint64_t req_id;       /* slot number in a segment entry */
    const uint8_t *fields; /* publish: QI_PUB_FIELDS bytes, then the embedded ones */
    uint64_t time;         /* time: until when it is delayed (timers.h) */
    uint64_t size;         /* of the whole record */
};

/* What stands in a publish's fields. */
struct qi_fields {
    uint8_t msg_id[QI_MSG_ID_SIZE];
    uint64_t expiry_us; /* since 1970; 0 = never */
    uint32_t size;      /* of the body */
    uint32_t
        embedded; /* bytes that follow: headers and body; 0 and a MsgId: they are in the message store */
};

static inline void qi_put_fields(uint8_t *at, const struct qi_fields *fields) {
    memcpy(at + QI_PUB_MSG_ID, fields->msg_id, QI_MSG_ID_SIZE);
    qi_put64(at + QI_PUB_EXPIRY, fields->expiry_us);
    qi_put32(at + QI_PUB_SIZE, fields->size);
    qi_put32(at + QI_PUB_EMBEDDED, fields->embedded);
}

static inline void qi_get_fields(const uint8_t *at, struct qi_fields *fields) {
    memcpy(fields->msg_id, at + QI_PUB_MSG_ID, QI_MSG_ID_SIZE);
    fields->expiry_us = qi_get64(at + QI_PUB_EXPIRY);
    fields->size = qi_get32(at + QI_PUB_SIZE);
    fields->embedded = qi_get32(at + QI_PUB_EMBEDDED);
}

static inline bool qi_msg_id_is_set(const uint8_t *msg_id) {
    uint64_t halves[2];
    memcpy(halves, msg_id, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

static inline void qi_put_record_id(uint8_t *at, enum qi_record_kind kind, uint64_t req_id) {
    qi_put64(at, (uint64_t)kind << QI_REQ_ID_BITS | req_id);
}

/* A time has no kind of its own: it looks like a delivery in a lane that no message can be in. */
static inline void qi_put_time(uint8_t *at, uint64_t req_id, uint64_t time) {
    qi_put_record_id(at, QI_DELIVER, QI_TIME_LANE << QI_COUNT_BITS);
    qi_put64(at + QI_RECORD_ID, req_id);
    qi_put64(at + QI_RECORD_ID + 8, time);
}

/* Reads the journal record at `at`; false if it does not lie inside `left` bytes. */
bool qi_read_record(const uint8_t *at, uint64_t left, struct qi_record *record);

/* Segment entries: publish '1' persistent:1 slot:14; deliver or ack '01' slot:14 (first, second); '00' slot:14 and a
 * 16-bit delivery count; the same with a count of 0 and a time. */
enum qi_entry_prefix {
    QI_ENTRY_PUB = 0x8000,
    QI_ENTRY_PERSISTENT = 0x4000,
    QI_ENTRY_EVENT = 0x4000
};
#define QI_ENTRY_SLOT_MASK 0x3FFFu

struct qi_entry {
    enum { QI_ENTRY_IS_PUB, QI_ENTRY_IS_EVENT, QI_ENTRY_IS_COUNT, QI_ENTRY_IS_TIME } is;
    bool persistent;
    uint32_t slot;
    uint32_t count;
    uint64_t time;
    const uint8_t *fields;
    uint64_t size;
};

bool qi_read_entry(const uint8_t *at, uint64_t left, struct qi_entry *entry);

#endif
