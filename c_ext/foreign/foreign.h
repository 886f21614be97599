/* foreign.h - what Python sees of the readers of other brokers' files. The modules in
 * qindex/brokers describe the layouts. */
#ifndef QI_FOREIGN_H
#define QI_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
/* --- Erlang's external term format (erlang_terms.c) --- */
enum {                   /* why bytes are no term */
       QI_TERM_CUT = -1, /* they end inside it; with more of them it may be whole */
       QI_TERM_TAG = -2, /* unknown tag */
       QI_TERM_DEEP = -3,
       QI_TERM_MANY = -4, /* more values, or bytes, than allowed */
       QI_TERM_NUMBER =
           -5, /* a float that is no number; a big integer whose sign is neither 0 nor 1 */
       QI_TERM_ATOM = -6, /* not UTF-8; or something else where an atom must stand */
       QI_TERM_SIZE =
           -7, /* a fun below its head; a bit string whose last byte has no bits, or more than 8 */
};
enum {
    QI_TERM_DEPTH_MAX = 512,
    QI_TERM_BYTES_MAX = 0x40000000,
};

/* A value, before those inside it. An atom, binary or string has its characters from `start` on, a
 * number its bytes (of a big integer: the sign, then the digits), a pid, port, reference or fun all
 * behind its tag. Of a container `size` counts the values in it: of a map keys and values, of a
 * list its tail, too. */
typedef struct {
    uint32_t start;
    uint32_t size;
    uint8_t tag;
} qi_term;

/* Reads the term at *pos, which has no version byte, and sets *pos behind it; after an error to
 * where that is. Returns how many values it has, of which the first `room` are put to `terms`.
 * Linear in the term's bytes, whatever they are; no allocation. Equal keys in a map, and a list as
 * the tail of a list, are the caller's to find. */
int64_t qi_terms(const void *data, size_t size, size_t *pos, uint32_t depth_max,
                 uint64_t values_max, qi_term *terms, size_t room);

/* --- messages (rabbitmq_message.c) --- */
/* Where the parts of a message's term are. Of `key_count` routing keys, and `fragment_count`
 * fragments of the body, the first one: the others follow, each with its tag and size (5 bytes)
 * before it. The body's last fragment comes first. */
typedef struct {
    uint32_t exchange, exchange_size;
    uint32_t properties, properties_size; /* raw; of size 0 if they are decoded */
    uint32_t decoded;                     /* the P_basic record, if there are no raw ones; else 0 */
    uint32_t msg_id, msg_id_size;
    uint32_t key, key_size, key_count;
    uint32_t fragment, fragment_size, fragment_count;
    uint32_t persistent;
} qi_rabbit_message;

/* True if the term, with its version byte, is a basic_message of 3.x or an mc of 3.13 and later
 * whose protocol is AMQP 0-9-1, and nothing follows it. False says nothing about what else it
 * is. */
bool qi_rabbit_read_message(const void *data, size_t size, qi_rabbit_message *message);

/* What an entry of a quorum queue's log says that publishes a message, or settles deliveries.
 * Places are of the entry. */
typedef struct {
    uint64_t now_ms;
    uint64_t number;               /* the publisher's, or the first delivery */
    uint64_t body_size, meta_size; /* of the message */
    int64_t ttl_ms, deliveries;    /* -1: none */
    uint32_t who, who_size;        /* the publisher's pid, or the consumer's key */
    uint32_t priority;
    uint32_t count; /* of deliveries that are settled; 0: a message is published */
    uint32_t is_container;
} qi_rabbit_step;

/* True if the entry, with its version byte, is one of these in its usual shape. False says
 * nothing. */
bool qi_rabbit_read_step(const void *data, size_t size, qi_rabbit_step *step);

/* Bytes that stand for publishers and consumers, each by a number that it keeps. */
enum { QI_RABBIT_NAMES_MAX = 1024, QI_RABBIT_NAME_BYTES = 65536 };
typedef struct {
    uint32_t count;
    uint32_t used;                           /* of `bytes` */
    uint32_t ends[QI_RABBIT_NAMES_MAX];      /* where each one ends; the next one starts there */
    uint16_t slots[2 * QI_RABBIT_NAMES_MAX]; /* by their hashes: number + 1, 0: free */
    uint8_t bytes[QI_RABBIT_NAME_BYTES];
} qi_rabbit_names;

/* Entries of one log as columns, `QI_RABBIT_STEPS_MAX` at most. */
enum {
    QI_RABBIT_STEPS_MAX = 512,
    QI_RABBIT_OTHER = -1, /* in place of a count: in no usual shape; nothing else is said */
};
typedef struct {
    uint64_t base;                         /* in: where the block begins in its file */
    uint64_t offsets[QI_RABBIT_STEPS_MAX]; /* in: of the entries in the file, and their sizes */
    uint32_t sizes[QI_RABBIT_STEPS_MAX];
    int64_t counts[QI_RABBIT_STEPS_MAX]; /* out: of deliveries that are settled; 0: it publishes */
    uint32_t names[QI_RABBIT_STEPS_MAX]; /* of the publisher or consumer */
    uint64_t numbers[QI_RABBIT_STEPS_MAX];
    uint64_t bytes[QI_RABBIT_STEPS_MAX];       /* of the message, as the machine counts them */
    uint64_t expiries_ms[QI_RABBIT_STEPS_MAX]; /* 0: never */
    uint64_t times_ms[QI_RABBIT_STEPS_MAX];
    uint32_t priorities[QI_RABBIT_STEPS_MAX];
} qi_rabbit_steps;

/* What decides how messages are measured. */
typedef struct {
    int64_t ttl_ms;       /* of the queue; -1: none */
    bool counts_headers;  /* a message's size is that of body and metadata */
    bool only_containers; /* a message without a container may have what has to be looked at */
} qi_rabbit_measure;

/* Reads `count` entries, at most QI_RABBIT_STEPS_MAX, of a block. One that is not all in the block,
 * or whose name has no room any more, is QI_RABBIT_OTHER. Linear in the bytes of the entries. */
void qi_rabbit_read_steps(const void *block, size_t size, size_t count,
                          const qi_rabbit_measure *measure, qi_rabbit_names *names,
                          qi_rabbit_steps *steps);

/* --- Ra's write-ahead log and segments (ra_files.c) --- */
enum { QI_RA_RECORDS_MAX = 1024 };
typedef struct {
    uint64_t pos;       /* in and out: where in the piece; behind the last record that was read */
    bool has_checksums; /* in and out: a record with one was seen */
    uint32_t refs[QI_RA_RECORDS_MAX];
    uint64_t indexes[QI_RA_RECORDS_MAX];
    uint64_t terms[QI_RA_RECORDS_MAX];
    uint64_t offsets[QI_RA_RECORDS_MAX]; /* of the data, in the piece */
    uint32_t sizes[QI_RA_RECORDS_MAX];
    bool restarts[QI_RA_RECORDS_MAX];
} qi_ra_records;

/* The slots of a segment in columns, if each goes on behind the one before it, all are of one term,
 * and they fill the file: how many; else 0. `table` has `size` bytes of slots of 28 bytes (version
 * 1) or 32. */
typedef struct {
    uint64_t first, term;
    uint64_t offsets[65536];
    uint32_t sizes[65536];
    uint32_t crcs[65536];
} qi_ra_slots;
size_t qi_ra_read_slots(const void *table, size_t size, uint32_t version, uint64_t file_size,
                        qi_ra_slots *slots);

/* Which of `count` entries of a segment do not match their CRC-32, or are not all in the block,
 * which is the file from `base` on: how many, their numbers in `wrong`. One whose CRC is 0 has
 * none. Linear in their bytes. */
size_t qi_ra_check_entries(const void *block, size_t size, uint64_t base, size_t count,
                           const uint64_t *offsets, const uint32_t *sizes, const uint32_t *crcs,
                           uint32_t *wrong);

/* Reads records that do not name their server, as long as they are valid and in the piece: how
 * many. Linear in their bytes. */
size_t qi_ra_read_records(const void *data, size_t size, qi_ra_records *records);

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
    uint32_t last;   /* 1 + the entry that was read last in this stretch; 0: none */
    uint32_t behind; /* the same, if its publish is the record that was read last; else 0 */
    uint32_t top;    /* 1 + the greatest slot of a publish in the file; 0: there is none */
    uint64_t records;
    int64_t orphans; /* marks without a publish */
    /* What no node writes; each count is 0 in a sound file. */
    uint32_t
        clashes; /* publishes of a slot that another message has; clash is the last such slot */
    uint32_t clash;
    uint32_t bare_acks; /* acks of messages that nobody delivered; bare_ack is the last such slot */
    uint32_t bare_ack;
    uint32_t
        twice; /* journal: delivered again; since 3.10 each publish is delivered once, at once */
    uint32_t beyond;              /* records whose slot is not below `slots` */
    uint32_t own, foreign, plain; /* publishes with a mark behind them of their own slot, of another
                                     slot, with none */
} qi_rabbit_segment;

typedef struct {
    qi_rabbit_entry *publishes;
    uint64_t *marks; /* seq << 1 | was it an ack */
    uint64_t publish_count, mark_count, records;
    uint64_t
        last; /* 1 + the publish, if the record that was read last in this stretch is one; else 0 */
    uint64_t publish_room, mark_room, publish_next, mark_next;
    uint64_t newest;      /* 1 + the greatest seq of a persistent publish so far */
    uint64_t disorder;    /* persistent publishes whose seq is not above those before */
    uint64_t disorder_at; /* the offset of the first one's term */
} qi_rabbit_journal;

/* Seqs that are neither published nor acked although a lower one is live: see
 * qi_rabbit_gaps_add(). */
enum { QI_RABBIT_GAPS_MAX = 64 };
typedef struct {
    uint64_t first, length;
    uint64_t live; /* messages below that are live */
} qi_rabbit_gap;

typedef struct {
    uint64_t next;             /* 1 + the greatest seq so far */
    uint64_t live;             /* live messages so far */
    uint64_t present, missing; /* seqs from the first live one on */
    uint32_t length_min;       /* of a gap that is kept; set by the caller */
    uint32_t count;            /* gaps that are kept in `gaps` */
    qi_rabbit_gap gaps[64];    /* QI_RABBIT_GAPS_MAX: the longest ones, in no order */
} qi_rabbit_gaps;

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
/* The number of the first segment that has records which merge() has not taken; -1: there is
 * none. */
int64_t qi_rabbit_journal_next(const qi_rabbit_journal *journal, uint32_t slots);
/* Adds the journal's records about this segment to it. Numbers must rise from call to call. Writes
 * the entries that are not acked to `live`, by seq, and returns how many; segment->count is how
 * many were published. */
uint32_t qi_rabbit_segment_merge(qi_rabbit_segment *segment, qi_rabbit_journal *journal,
                                 uint64_t number, uint32_t slots, qi_rabbit_entry *live);

/* The gaps of this segment, after merge(), and between it and those before it. Numbers must rise. A
 * node that was killed begins the next segment when it starts again: what is left of the one before
 * is no gap. */
void qi_rabbit_segment_gaps(const qi_rabbit_segment *segment, uint64_t number, uint32_t slots,
                            qi_rabbit_gaps *gaps);
/* The same of `count` messages, all of them live, in the order of their seqs. */
void qi_rabbit_live_gaps(const qi_rabbit_entry *live, uint32_t count, uint32_t slots,
                         qi_rabbit_gaps *gaps);

/* --- the queue index, version 2 --- */
typedef struct {
    uint32_t used; /* slots that were read: all, or those before a bad one */
    uint32_t published;
    uint32_t live;
    uint32_t
        half_acked; /* persistent ones that only their status calls acked: an ack writes zeros */
    uint64_t named; /* bytes of N.qs that live slots name */
    uint64_t end;   /* where the last term ends that a slot names, live or not */
    bool bad;
} qi_rabbit_slots;
/* Reads `count` slots of 32 bytes, the first of which is that of `seq`; writes the live ones to
 * `live`. A term beyond `stored_bytes`, the size of N.qs, is nowhere. */
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
/* Adds the entries of a piece of a file; 0 or QI_E_MEMORY. An entry that goes on behind the piece
 * is not added and not looked at: then `pos` is where it starts and `bad` is false. */
int qi_rabbit_store_scan(qi_rabbit_places *places, qi_rabbit_piece *piece, uint32_t file);
int qi_rabbit_places_add(qi_rabbit_places *places, const void *msg_id,
                         const qi_rabbit_place *place);
uint64_t qi_rabbit_places_entries(const qi_rabbit_places *places); /* how many were added */
/* Makes find() possible; of copies only the first is kept. 0 or QI_E_MEMORY. */
int qi_rabbit_places_sort(qi_rabbit_places *places);
/* Before sort(): the first copy of the message behind the first `from` rows, and how many rows end
 * with it; 0: none. */
uint64_t qi_rabbit_places_next(const qi_rabbit_places *places, const void *msg_id, uint64_t from,
                               qi_rabbit_place *place);
uint64_t qi_rabbit_places_count(const qi_rabbit_places *places);
bool qi_rabbit_places_find(const qi_rabbit_places *places, const void *msg_id,
                           qi_rabbit_place *place);
/* The first place behind the first `from` rows that no count() has marked as wanted, and how many
 * rows end with it; 0: there is none. After sort(). */
uint64_t qi_rabbit_places_next_unwanted(const qi_rabbit_places *places, uint64_t from,
                                        qi_rabbit_place *place);
/* Takes the marks of all count()s away. */
void qi_rabbit_places_unmark(qi_rabbit_places *places);
/* How many places, and bytes of terms, no count() has marked as wanted. */
uint64_t qi_rabbit_places_unwanted(const qi_rabbit_places *places, uint64_t *bytes);

/* --- what became of the messages --- */
typedef struct {
    uint64_t expiry_min; /* set by the caller: an expiry before is none, and counted as early */
    uint64_t early, first_early; /* how many, and the seq of the first one */
    uint64_t relabelled; /* the index calls them transient, but their bodies are persistent ones */
    uint64_t transient, body_missing, live, live_body_bytes, stored, expiring, delivered;
    uint64_t first_missing; /* the seq, if body_missing > 0 */
    uint64_t below;         /* live ones whose seq is below next_deliver */
} qi_rabbit_counts;

/* The first entry from `from` on that is transient and has a term of its own; `count`: there is
 * none. */
uint32_t qi_rabbit_next_transient(const qi_rabbit_entry *entries, uint32_t count, uint32_t from);
/* Adds the entries to the counts. With `durable`, one that is called transient and whose body is in
 * the persistent store is made persistent. Those whose body is missing are flagged; with `mark` the
 * places of the others are marked as wanted. */
void qi_rabbit_count(qi_rabbit_entry *entries, uint32_t count, qi_rabbit_places *places, bool mark,
                     bool durable, uint64_t next_deliver, qi_rabbit_counts *counts);
/* --- messages as they are published (rabbitmq_rows.c) --- */
enum {
    QI_RABBIT_ROWS_MAX = 1000,
    QI_RABBIT_FILE_INDEX = 1 << 20, /* of the entries; below are the files of the message store */
    QI_RABBIT_FILE_BESIDE,
    QI_RABBIT_DROP_EXPIRED = 0, /* what becomes of what has expired: it is counted and left out */
    QI_RABBIT_KEEP_EXPIRED = 1, /* it stays, and never expires again */
    QI_RABBIT_TELL_EXPIRED = 2, /* it is for the caller */
    QI_RABBIT_EXPIRES = 0,      /* where an expiry goes: the message expires */
    QI_RABBIT_DIES = 1,         /* the header dead_letter_at */
    QI_RABBIT_IS_TOLD = 2,      /* the header expires_us */
};

/* A stretch of a file, and where it goes in the block that is read. */
typedef struct {
    uint64_t offset;
    uint32_t size;
    uint32_t file;
    uint32_t at;
    uint32_t zero;
} qi_rabbit_extent;

/* An entry, and where its term is. */
typedef struct {
    uint64_t offset;
    uint32_t size; /* 0: its term is no part of the block */
    uint32_t file;
    uint32_t extent;
    uint32_t entry;
} qi_rabbit_wanted;

typedef struct {
    uint32_t count, extent_count;
    qi_rabbit_extent extents[1000]; /* QI_RABBIT_ROWS_MAX */
    qi_rabbit_wanted wanted[1000];
} qi_rabbit_plan;

/* What is to be read for the live entries from number `from` on whose seqs are from `first` to
 * `last`, in order, as long as it fits into `room` bytes: the number of the first entry that is not
 * looked at. With `has_heads`, terms in the file beside have a head, as in version 2. */
uint32_t qi_rabbit_make_plan(const qi_rabbit_entry *entries, uint32_t count, uint32_t from,
                             uint64_t first, uint64_t last, const qi_rabbit_places *places,
                             bool has_heads, uint32_t room, qi_rabbit_plan *plan);

/* How messages become rows. */
typedef struct {
    uint64_t now_us;            /* what expires until then has expired */
    int64_t later_us;           /* added to each expiry */
    uint64_t expiry_max_us;     /* one beyond is for the caller */
    uint64_t redelivered_below; /* the seq from which on messages are not redelivered */
    uint32_t expired;           /* QI_RABBIT_DROP_EXPIRED ... */
    uint32_t expiry;            /* QI_RABBIT_EXPIRES ... */
    uint32_t priority_max; /* rows have the priority of their property lists, this one at most */
    bool redelivered_if_delivered;
    bool has_no_ttl; /* of the queue: what expires has the property expiration */
    bool has_heads;  /* as in make_plan() */
} qi_rabbit_wish;

typedef struct {
    uint32_t count;
    uint32_t priority;                    /* of all of them */
    uint32_t expired, redelivered, dying; /* `expired` ones are in no row */
    bool is_strange; /* the rows end before a message with which something is the matter */
    uint64_t body_bytes;
    uint64_t seqs[1000];
    uintptr_t bodies[1000]; /* QI_RABBIT_ROWS_MAX; in the block */
    uint64_t expiries_us[1000];
    uint32_t body_sizes[1000];
    uint32_t table_sizes[1000];
    uint8_t flags[1000];
} qi_rabbit_rows;

/* Makes rows of what was planned, from number `from` on: the first number that is in no row. It has
 * another priority, or it is for the caller: see is_strange. The headers of the rows stand in
 * `tables`, one behind the other. Linear in the bytes of the terms. */
uint32_t qi_rabbit_read_rows(const qi_rabbit_plan *plan, uint32_t from,
                             const qi_rabbit_entry *entries, const void *block, size_t size,
                             const qi_rabbit_wish *wish, uint8_t *tables, size_t tables_room,
                             qi_rabbit_rows *rows);
/* cffi: end */

/* What the files of this folder share. */

/* The bytes are UTF-8, as Python reads it. (erlang_terms.c) */
bool qi_is_utf8(const uint8_t *p, size_t size);

/* CRC-32 of zlib, eight bytes at a time. The tables are made for many at once: they cost as much as
 * one of some kilobytes. (crc32.c) */
struct qi_crc32_tables {
    uint32_t rows[8][256];
};
void qi_crc32_make(struct qi_crc32_tables *tables);
uint32_t qi_crc32(const struct qi_crc32_tables *tables, const uint8_t *p, size_t size);

#endif
