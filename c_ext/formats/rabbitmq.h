/* rabbitmq.h - what Python sees of the readers of RabbitMQ's files. The layouts are told in qindex/formats/rabbitmq_*.py. */
#ifndef QI_RABBITMQ_H
#define QI_RABBITMQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
/* --- messages (rabbitmq_message.c) --- */
/* Where the parts of a message's term are. Of `key_count` routing keys, and `fragment_count` fragments of the body, the
 * first one: the others follow, each with its tag and size (5 bytes) before it. The body's last fragment comes first. */
typedef struct {
    uint32_t exchange, exchange_size;
    uint32_t properties, properties_size; /* raw; of size 0 if they are decoded */
    uint32_t decoded;                     /* the P_basic record, if there are no raw ones; else 0 */
    uint32_t msg_id, msg_id_size;
    uint32_t key, key_size, key_count;
    uint32_t fragment, fragment_size, fragment_count;
    uint32_t persistent;
} qi_rabbit_message;

/* True if the term, with its version byte, is a basic_message of 3.x or an mc of 3.13 and later whose protocol is AMQP
 * 0-9-1, and nothing follows it. False says nothing about what else it is. */
bool qi_rabbit_read_message(const void *data, size_t size, qi_rabbit_message *message);

/* --- stretches of a file --- */
/* A piece of a file that is being scanned. */
typedef struct {
    const uint8_t *data;
    uint64_t size;
    uint64_t offset; /* in the file */
    uint64_t left;   /* from here to the end of the file: `size`, or more */
    uint64_t
        pos; /* out: how far it made sense, beyond `size` where a record goes on behind the piece */
    bool bad; /* out: what is at `pos` makes no sense, or is cut */
} qi_rabbit_piece;

/* --- the queue index, version 1 (rabbitmq_index.c) --- */
enum {
    QI_RABBIT_SLOTS_MAX = 16384,
    QI_RABBIT_PUBLISHED = 1, /* states of an entry */
    QI_RABBIT_DELIVERED = 2,
    QI_RABBIT_ACKED = 3,
    QI_RABBIT_PERSISTENT = 1, /* flags of an entry */
    QI_RABBIT_BESIDE = 2,  /* its term is in the file beside: the journal, or in version 2 N.qs */
    QI_RABBIT_NOWHERE = 4, /* version 2: neither stored nor in a file of the queue */
    QI_RABBIT_MISSING = 8, /* its body is in no file; qi_rabbit_count() says so */
};
typedef struct {
    uint8_t msg_id[16];
    uint64_t seq; /* in a segment: the slot, until the segment is merged */
    uint64_t expiry_us;
    uint64_t term_offset;
    uint32_t body_bytes;
    uint32_t term_bytes; /* 0: the body is in the message store */
    uint16_t state;
    uint16_t flags;
    uint32_t zero;
} qi_rabbit_entry;

typedef struct {
    uint16_t at[16384]; /* by slot: 1 + where its entry is; 0: none */
    qi_rabbit_entry entries[16384];
    uint32_t count;
    uint32_t last; /* 1 + the entry that was read last in this stretch; 0: none */
    uint64_t records;
    int64_t orphans; /* marks without a publish */
} qi_rabbit_segment;

typedef struct {
    qi_rabbit_entry *publishes;
    uint64_t *marks; /* seq << 1 | was it an ack */
    uint64_t publish_count, mark_count, records;
    uint64_t
        last; /* 1 + the publish, if the record that was read last in this stretch is one; else 0 */
    uint64_t publish_room, mark_room, publish_next, mark_next;
} qi_rabbit_journal;

void qi_rabbit_segment_clear(qi_rabbit_segment *segment);
/* Reads records into the segment. In a `damaged` file a mark may have lost its publish. */
void qi_rabbit_segment_scan(qi_rabbit_segment *segment, qi_rabbit_piece *piece, uint32_t slots,
                            bool damaged);
/* One more publish, whose slot must be below QI_RABBIT_SLOTS_MAX. */
void qi_rabbit_segment_publish(qi_rabbit_segment *segment, uint32_t slot,
                               const qi_rabbit_entry *entry);

qi_rabbit_journal *qi_rabbit_journal_new(void); /* NULL: no memory */
void qi_rabbit_journal_free(qi_rabbit_journal *journal);
/* Reads records into the journal; 0 or QI_E_MEMORY. */
int qi_rabbit_journal_scan(qi_rabbit_journal *journal, qi_rabbit_piece *piece);
/* One more publish; 0 or QI_E_MEMORY. */
int qi_rabbit_journal_publish(qi_rabbit_journal *journal, const qi_rabbit_entry *entry);
/* Sorts it by seq, once; then merge() takes its records segment by segment. */
void qi_rabbit_journal_sort(qi_rabbit_journal *journal);
/* The number of the first segment that has records which merge() has not taken; -1: there is none. */
int64_t qi_rabbit_journal_next(const qi_rabbit_journal *journal, uint32_t slots);
/* Adds the journal's records about this segment to it. Numbers must rise from call to call. Writes the entries that are
 * not acked to `live`, by seq, and returns how many; segment->count is how many were published. */
uint32_t qi_rabbit_segment_merge(qi_rabbit_segment *segment, qi_rabbit_journal *journal,
                                 uint64_t number, uint32_t slots, qi_rabbit_entry *live);

/* --- the queue index, version 2 --- */
typedef struct {
    uint32_t used; /* slots that were read: all, or those before a bad one */
    uint32_t published;
    uint32_t live;
    bool bad;
} qi_rabbit_slots;
/* Reads `count` slots of 32 bytes, the first of which is that of `seq`; writes the live ones to `live`. A term beyond
 * `stored_bytes`, the size of N.qs, is nowhere. */
void qi_rabbit_read_slots(const void *data, uint32_t count, uint64_t seq, uint64_t stored_bytes,
                          qi_rabbit_entry *live, qi_rabbit_slots *slots);

/* --- the message store (rabbitmq_store.c) --- */
typedef struct qi_rabbit_places qi_rabbit_places;
typedef struct {
    uint64_t offset;
    uint32_t file;
    uint32_t size; /* of the term */
} qi_rabbit_place;

enum { QI_RABBIT_FILES_MAX = 1 << 20 };

qi_rabbit_places *qi_rabbit_places_new(void); /* NULL: no memory */
void qi_rabbit_places_free(qi_rabbit_places *places);
/* Adds the entries of a piece of a file; 0 or QI_E_MEMORY. An entry that goes on behind the piece is not added and not
 * looked at: then `pos` is where it starts and `bad` is false. */
int qi_rabbit_store_scan(qi_rabbit_places *places, qi_rabbit_piece *piece, uint32_t file);
int qi_rabbit_places_add(qi_rabbit_places *places, const void *msg_id,
                         const qi_rabbit_place *place);
uint64_t qi_rabbit_places_entries(const qi_rabbit_places *places); /* how many were added */
/* Makes find() possible; of copies only the first is kept. 0 or QI_E_MEMORY. */
int qi_rabbit_places_sort(qi_rabbit_places *places);
/* Before sort(): the first copy of the message behind the first `from` rows, and how many rows end with it; 0: none. */
uint64_t qi_rabbit_places_next(const qi_rabbit_places *places, const void *msg_id, uint64_t from,
                               qi_rabbit_place *place);
uint64_t qi_rabbit_places_count(const qi_rabbit_places *places);
bool qi_rabbit_places_find(const qi_rabbit_places *places, const void *msg_id,
                           qi_rabbit_place *place);
/* How many places, and bytes of terms, no count() has marked as wanted. */
uint64_t qi_rabbit_places_unwanted(const qi_rabbit_places *places, uint64_t *bytes);

/* --- what became of the messages --- */
typedef struct {
    uint64_t transient, body_missing, live, live_body_bytes, stored, expiring, delivered;
    uint64_t first_missing; /* the seq, if body_missing > 0 */
    uint64_t below;         /* live ones whose seq is below next_deliver */
} qi_rabbit_counts;
/* Adds the entries to the counts. Those whose body is missing are flagged; with `mark` the places of the others are
 * marked as wanted. */
void qi_rabbit_count(qi_rabbit_entry *entries, uint32_t count, qi_rabbit_places *places, bool mark,
                     uint64_t next_deliver, qi_rabbit_counts *counts);
/* cffi: end */

#endif
