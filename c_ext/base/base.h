/* base.h - bytes and values: checksums, frames, records, errors, heaps. Pure: no I/O, no locks. */
#ifndef QI_BASE_H
#define QI_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/format.h"
#include "qindex.h"

/* ---- bug ---- */

/* Protocol bugs on purpose, so that the crash explorer can show that it would see them.
 *
 * `if (!QI_BUG(sync_directory_left_out))` stands at the place that a rule of
 * docs/internals/rules.rst protects. In every normal build it is the constant 0 and leaves no code;
 * with -DQI_BUGS one bug at a time is chosen by name (tools/explore.py
 * --mutants), and the explorer must find it.
 */

#ifdef QI_BUGS
#include <string.h>
extern const char *qi_bug; /* the name of the one that is alive, or "" */
#define QI_BUG(name) (strcmp(qi_bug, #name) == 0)
#else
#define QI_BUG(name) 0
#endif

/* ---- error ---- */

/* Codes and the text of this thread's last error (as errno: one per thread, no other state). */

/* The ending of a word that counts. */
static inline const char *qi_plural(uint64_t count) {
    return count == 1 ? "" : "s";
}

/* What is known of a torn tail, for the text of a finding. */
#define QI_TORN_TAIL                                                                               \
    "a power cut leaves one, and nothing in it was confirmed then; if anything else damaged the "  \
    "file, what was in it is lost"

/* A reader cuts nothing, and a writer may be at it. */
#define QI_TAIL_CUT(reading)                                                                       \
    ((reading) ? " is not whole: a writer is appending it, or " : " was cut: ")

/* Sets the text and returns the code, so that `return qi_fail(...)` reads well. */
int qi_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says of which message the damage is that the last text tells: `is` stands between its ReqId and
 * that text. Returns QI_E_CORRUPT; qi_error_req_id() then gives the ReqId. */
int qi_fail_damaged(uint64_t req_id, const char *is);

/* A file holds other bytes than those that were checked before: another process wrote into it.
 * QI_E_CORRUPT. */
int qi_fail_changed(const char *file, const char *queue);

/* The last error of this thread was a symbolic link in place of a file or a directory. */
bool qi_error_is_link(void);
/* It was for want of a descriptor, or of memory to map a file: others may have some to give
 * back. */
bool qi_error_is_crowded(void);

/* In place of an errno, and no system's: the store has failed, and nothing was tried. */
#define QI_STORE_HAS_FAILED 10000

/* The same for a failed call of the disk: ENOSPC and EDQUOT become QI_E_FULL, QI_STORE_HAS_FAILED
 * becomes QI_E_FAILED, the rest QI_E_IO. */
int qi_fail_disk(int negative_errno, const char *doing, const char *name);

/* The disk or the system could not say what is there: no sign that anything is missing or damaged.
 * A symbolic link is such a case: what somebody moved to another disk is not lost. (A directory in
 * place of a file is another matter.) */
bool qi_is_of_the_disk(int negative_errno);

/* The disk, or the user's quota of it, is full. */
bool qi_is_disk_full(int negative_errno);

/* ---- memory ---- */

/* malloc and its like, counted for max_memory. The engine asks them for all that it keeps between
 * two calls; what one call needs for itself comes from malloc. */
void *qi_malloc(size_t size) __attribute__((malloc, alloc_size(1)));
void *qi_calloc(size_t items, size_t size) __attribute__((malloc, alloc_size(1, 2)));
void *qi_realloc(void *memory, size_t size) __attribute__((alloc_size(2)));
char *qi_strdup(const char *text) __attribute__((malloc));
void qi_free(void *memory); /* NULL: nothing happens */

/* Bytes that all stores of this process hold. Not among them: mapped files and their copies. */
uint64_t qi_memory_used(void);

/* ---- crc32c ---- */

/* CRC32C (Castagnoli), the checksum of every frame that qindex writes. */

/* The CRC of what `crc` covers followed by these bytes. Begin with 0; qi_crc32c(0, "123456789", 9)
 * is 0xe3069283. Uses the processor's instruction where there is one. */
uint32_t qi_crc32c(uint32_t crc, const void *bytes, size_t length);

/* The same over a copy, which is made at `to`: whoever changes the bytes meanwhile changes the copy
 * and its checksum alike. */
uint32_t qi_crc32c_copy(uint32_t crc, void *to, const void *bytes, size_t length);

/* The same answer without special instructions: for other processors, and for tests. */
uint32_t qi_crc32c_portable(uint32_t crc, const void *bytes, size_t length);

/* For tests: continues *crc by one way of them all, with a copy unless `to` is NULL. 0: the table;
 * 1: the crc instruction; 2: 256 bytes a turn. False: this processor does not have it, or there
 * are too few bytes. */
bool qi_crc32c_by(uint32_t way, uint32_t *crc, void *to, const void *bytes, size_t length);

/* What `crc` covered before these bytes: the inverse of qi_crc32c. O(length), and no slower. */
uint32_t qi_crc32c_before(uint32_t crc, const void *bytes, size_t length);

/* ---- codec ---- */

/* The bit-packed records, values to bytes and back. Pure: no I/O, no allocation.
 *
 * The layout is RabbitMQ's queue index, version 1 (rabbit_queue_index.erl): a journal record is 2
 * bits of kind and 62 bits of ReqId, a segment entry 2 or 1 + 1 bits and 14 bits of slot; a publish
 * goes on with 32 bytes of fields and the embedded bytes, which are the same in both.
 */

/* What belongs to a message beside its body and headers. */
struct qi_side {
    uint32_t kind, size;
    const uint8_t *bytes;
};

struct qi_record {
    enum qi_record_kind kind;
    uint64_t req_id;       /* slot number in a segment entry */
    const uint8_t *fields; /* publish: QI_PUB_FIELDS bytes, then the embedded ones */
    uint64_t time;         /* time: until when it is delayed (timers.c) */
    struct qi_side side;   /* side record */
    uint64_t size;         /* of the whole record */
};

/* What stands in a publish's fields. */
struct qi_fields {
    uint8_t msg_id[QI_MSG_ID_SIZE];
    uint64_t expiry_us; /* since 1970; 0 = never */
    uint32_t size;      /* of the body */
    uint32_t embedded;  /* bytes that follow: headers and body; 0 and a MsgId: they are in the
                           message store */
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

/* A sum over them. The maps keep it from the moment at which the fields were valid, so that fields
 * which somebody changed in the file since then are not believed: their lengths would lead into
 * other messages. */
static inline uint32_t qi_fields_sum(const struct qi_fields *fields) {
    uint64_t id[2], sizes = (uint64_t)fields->size << 32 | fields->embedded;
    memcpy(id, fields->msg_id, sizeof id);
    uint64_t sum = id[0] * UINT64_C(0x9E3779B97F4A7C15) + id[1] * UINT64_C(0xC2B2AE3D27D4EB4F) +
                   fields->expiry_us * UINT64_C(0xD6E8FEB86659FD93) +
                   sizes * UINT64_C(0xA0761D6478BD642F);
    return (uint32_t)(sum >> 32);
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

/* Nor has a side record: what would be the count of a time says its kind and size. */
static inline void qi_put_side(uint8_t *at, uint64_t req_id, const struct qi_side *side) {
    uint64_t what = (uint64_t)side->kind << QI_SIDE_SIZE_BITS | side->size;
    qi_put_record_id(at, QI_DELIVER, QI_TIME_LANE << QI_COUNT_BITS | what);
    qi_put64(at + QI_RECORD_ID, req_id);
    memcpy(at + QI_SIDE_RECORD, side->bytes, side->size);
}

/* Its meaning is known here, or it may be kept without. */
static inline bool qi_side_is_known(const struct qi_side *side) {
    return side->kind >= QI_KIND_SKIPPED || (side->kind == QI_SIDE_LEASE && side->size == 8);
}

/* What the payload of a MOMENTS frame says of a slot: when its message was published, in
 * microseconds; 0: nothing. */
uint64_t qi_moment_of_slot(const uint8_t *payload, uint32_t length, uint32_t slot);

/* Reads the journal record at `at`; false if it does not lie inside `left` bytes. */
bool qi_read_record(const uint8_t *at, uint64_t left, struct qi_record *record);

/* Segment entries: publish '1' persistent:1 slot:14; deliver or ack '01' slot:14 (first, second);
 * '00' slot:14 and a 16-bit delivery count; the same with a count of 0 and a time. */
enum qi_entry_prefix {
    QI_ENTRY_PUB = 0x8000,
    QI_ENTRY_PERSISTENT = 0x4000,
    QI_ENTRY_EVENT = 0x4000
};
#define QI_ENTRY_SLOT_MASK 0x3FFFu

struct qi_entry {
    enum {
        QI_ENTRY_IS_PUB,
        QI_ENTRY_IS_EVENT,
        QI_ENTRY_IS_COUNT,
        QI_ENTRY_IS_TIME,
        QI_ENTRY_IS_SIDE
    } is;
    bool persistent;
    uint32_t slot;
    uint32_t count;
    uint64_t time;
    struct qi_side side;
    const uint8_t *fields;
    uint64_t size;
};

bool qi_read_entry(const uint8_t *at, uint64_t left, struct qi_entry *entry);

struct qi_msg_id {
    uint32_t file;   /* birth file */
    uint32_t offset; /* of the frame in it */
    /* Payload length (32 bits); queues that it went to, less one (8 bits: a fan-out); a number that
     * the frame repeats, never 0 (24 bits). */
    uint64_t stamp;
};

static inline void qi_put_msg_id(uint8_t *at, struct qi_msg_id id) {
    qi_put32(at, id.file);
    qi_put32(at + 4, id.offset);
    qi_put64(at + 8, id.stamp);
}

static inline struct qi_msg_id qi_get_msg_id(const uint8_t *at) {
    return (struct qi_msg_id){qi_get32(at), qi_get32(at + 4), qi_get64(at + 8)};
}

/* ---- frame ---- */

/* Checksummed frames, the unit of truth in journals and segments.
 *
 * A frame at offset F is valid if and only if:
 *   1. its 8 header bytes and its payload lie inside the file;
 *   2. its type is known and its length is not zero;
 *   3. its checksum equals CRC32C(seed, F as 64 bits, type and length word, payload),
 * where the seed is the CRC32C of the file's identity and epoch (journal) or identity, number and
 * epoch (segment). So bytes from another file, another life of a recycled file, or another place
 * are never valid, nor are zeros.
 */

struct qi_frame {
    uint64_t offset; /* of its header */
    uint32_t type;
    uint32_t length; /* of its payload */
    const uint8_t *payload;
};

enum qi_frame_state {
    QI_FRAME_VALID,
    QI_FRAME_END, /* zeros or nothing: a clean end */
    QI_FRAME_BAD, /* bytes that are no frame: a torn tail or damage */
};

uint32_t qi_frame_seed(const uint8_t identity[QI_IDENTITY_SIZE], uint64_t number, uint64_t epoch);

/* Writes the header of a frame whose payload already lies behind it. */
void qi_frame_seal(uint32_t seed, uint8_t *header, uint64_t offset, uint32_t type, uint32_t length);

/* Looks at the frame at bytes + offset; `base` is the file offset of bytes[0]. */
enum qi_frame_state qi_frame_read(uint32_t seed, const uint8_t *bytes, uint64_t size,
                                  uint64_t offset, uint64_t base, struct qi_frame *frame);

/* Searches the next valid frame at or behind `offset` of a file that begins with bytes[0]. What
 * does not parse as one is not checked, and checks draw on `effort`, which a walk over the file
 * gets once: so hostile bytes cost linear time, how many damaged places they ever have. Returns
 * false if there is none. */
#define QI_FRAME_EFFORT(size) (16 * (uint64_t)(size) + 4096)
bool qi_frame_find(uint32_t seed, const uint8_t *bytes, uint64_t size, uint64_t offset,
                   uint64_t *effort, struct qi_frame *frame);

/* The same without the seed, for a file whose header is lost: the first two frames in a row that
 * one seed makes valid. */
bool qi_frame_find_seed(const uint8_t *bytes, uint64_t size, uint64_t offset, uint64_t *effort,
                        uint32_t *seed, struct qi_frame *frame);

/* ---- instants ---- */

/* When the messages of 64 slots were published, in microseconds. A word is a slot (8 bits) and a
 * time (56 bits): that of the messages from this slot on, up to the next word. Most messages that
 * stand side by side were published at the same time, so that one word is enough. Time 0: it is not
 * known. */
#define QI_INSTANT_BITS 56
#define QI_INSTANT_MASK ((UINT64_C(1) << QI_INSTANT_BITS) - 1)
struct qi_instant_words {
    uint32_t count, room;
    uint64_t items[]; /* by slot */
};
struct qi_instants {
    uint64_t last;                 /* the last word; 0: there is none */
    struct qi_instant_words *more; /* all words; NULL: there is no other */
};

uint64_t qi_instant_among(const struct qi_instants *instants, uint32_t slot);
static inline uint64_t qi_instant_of(const struct qi_instants *instants, uint32_t slot) {
    if (__builtin_expect((slot & 63) >= instants->last >> QI_INSTANT_BITS, 1))
        return instants->last & QI_INSTANT_MASK;
    return qi_instant_among(instants, slot);
}
static inline bool qi_instant_is_last(const struct qi_instants *instants, uint32_t slot,
                                      uint64_t us) {
    return (instants->last & QI_INSTANT_MASK) == us &&
           (slot & 63) >= instants->last >> QI_INSTANT_BITS;
}
/* A time is set behind qi_instant_room, or behind qi_instant_room_for_all for any number of them
 * (0, or QI_E_MEMORY). `pub`: which slots have messages, this one or not. */
int qi_instant_room_slowly(struct qi_instants *instants, uint64_t pub, uint32_t slot, uint64_t us);
int qi_instant_room_for_all(struct qi_instants *instants);
void qi_instant_put(struct qi_instants *instants, uint64_t pub, uint32_t slot, uint64_t us);
static inline int qi_instant_room(struct qi_instants *instants, uint64_t pub, uint32_t slot,
                                  uint64_t us) {
    return __builtin_expect(qi_instant_is_last(instants, slot, us), 1)
               ? 0
               : qi_instant_room_slowly(instants, pub, slot, us);
}
static inline void qi_instant_set(struct qi_instants *instants, uint64_t pub, uint32_t slot,
                                  uint64_t us) {
    if (__builtin_expect(!qi_instant_is_last(instants, slot, us), 0))
        qi_instant_put(instants, pub, slot, us);
}

/* A copy to read from: it needs so many bytes, a multiple of 8, at `at`. Returns where they end. */
size_t qi_instants_size(const struct qi_instants *instants);
uint8_t *qi_instants_copy(const struct qi_instants *from, struct qi_instants *to, uint8_t *at);

/* ---- heap ---- */

/* Times, the least first: a heap in an array. */

struct qi_timer {
    uint64_t key, id;
};

/* The least key first. */
struct qi_heap {
    struct qi_timer *items;
    uint32_t count, room;
};

/* Room for so many more: 0 or QI_E_MEMORY. */
int qi_heap_room(struct qi_heap *heap, uint64_t count);
/* There is room. O(log n), O(1) for a time that is later than all. */
void qi_heap_push(struct qi_heap *heap, uint64_t key, uint64_t id);
/* The first, which is there. O(log n). */
struct qi_timer qi_heap_pop(struct qi_heap *heap);
/* Makes items in any order a heap. O(n). */
void qi_heap_order(struct qi_heap *heap);
/* Of the same time in the order of their ReqIds. */
bool qi_timer_is_before(const struct qi_timer *one, const struct qi_timer *other);

#endif
