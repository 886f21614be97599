/* rabbitmq_store.c - where each stored message is: RabbitMQ's N.rdq files, and the join with the
 * index.
 *
 *     a row   key:64 (the id, mixed) | wanted:1 | size:31 | file:20 | offset:44    20 bytes a
 * message
 *
 * The rows are put into buckets by the first bits of their keys, in place; a bucket has eight on
 * the average. Two of ten million ids have the same key once in 300,000 directories; who reads the
 * message sees that its id is another.
 *
 * Rules of this file: no I/O; a length is compared with what is left of the file before it is
 * used. */
#include "foreign/foreign.h"

#include "base/base.h"
#include "qindex.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRY_MIN = 18, ENTRY_HEAD = 24, ENTRY_END = 0xFF, OFFSET_BITS = 44, FEW = 32 };

#define WANTED        UINT32_C(0x80000000)
#define SIZE_MAX_KEPT UINT32_C(0x7FFFFFFF)

typedef struct { /* halves, so that a row has no padding */
    uint32_t key[2];
    uint32_t place[2];
    uint32_t size;
} row;

struct qi_rabbit_places {
    row *rows;
    uint32_t *starts; /* of each bucket, and where the last one ends; NULL until sort() */
    uint64_t count, room, entries;
    uint32_t bits; /* how many choose the bucket */
};

static uint64_t both(const uint32_t halves[2]) {
    return (uint64_t)halves[0] << 32 | halves[1];
}

static void split(uint32_t halves[2], uint64_t value) {
    halves[0] = (uint32_t)(value >> 32);
    halves[1] = (uint32_t)value;
}

/* splitmix64: each bit of the answer depends on each bit of x. */
static uint64_t mixed(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static uint64_t key_of(const uint8_t *msg_id) {
    return mixed(qi_get64(msg_id) ^ mixed(qi_get64(msg_id + 8)));
}

qi_rabbit_places *qi_rabbit_places_new(void) {
    return calloc(1, sizeof(qi_rabbit_places));
}

void qi_rabbit_places_free(qi_rabbit_places *places) {
    if (places) {
        free(places->rows);
        free(places->starts);
        free(places);
    }
}

int qi_rabbit_places_add(qi_rabbit_places *places, const void *msg_id,
                         const qi_rabbit_place *place) {
    if (places->starts || place->file >= QI_RABBIT_FILES_MAX || place->offset >> OFFSET_BITS)
        return QI_E_ARGUMENT;
    if (places->count == UINT32_MAX)
        return QI_E_MEMORY; /* buckets count in 32 bits */
    if (places->count == places->room) {
        uint64_t room = places->room ? places->room + places->room / 4 + 64 : 64;
        row *rows = realloc(places->rows, room * sizeof *rows);
        if (!rows)
            return QI_E_MEMORY;
        places->rows = rows;
        places->room = room;
    }
    row *new = &places->rows[places->count++];
    split(new->key, key_of(msg_id));
    split(new->place, (uint64_t)place->file << OFFSET_BITS | place->offset);
    new->size = place->size < SIZE_MAX_KEPT ? place->size : SIZE_MAX_KEPT;
    places->entries++;
    return 0;
}

int qi_rabbit_store_scan(qi_rabbit_places *places, qi_rabbit_piece *piece, uint32_t file) {
    uint64_t pos = 0;
    piece->bad = false;
    while (piece->size - pos >= ENTRY_HEAD) {
        const uint8_t *p = piece->data + pos;
        uint64_t size = qi_get64(p);
        if (size < ENTRY_MIN || size > piece->left - pos - 9) {
            piece->bad = true;
            break;
        }
        uint64_t whole = 9 + size;
        if (whole > piece->size - pos)
            break;
        if (p[whole - 1] != ENTRY_END) {
            piece->bad = true;
            break;
        }
        uint64_t term = size - 16 < UINT32_MAX ? size - 16 : UINT32_MAX;
        qi_rabbit_place place = {piece->offset + pos + ENTRY_HEAD, file, (uint32_t)term};
        int code = qi_rabbit_places_add(places, p + 8, &place);
        if (code < 0)
            return code;
        pos += whole;
    }
    piece->pos = pos;
    piece->bad |=
        piece->size == piece->left && pos < piece->size; /* a head that the end of the file cuts */
    return 0;
}

uint64_t qi_rabbit_places_entries(const qi_rabbit_places *places) {
    return places->entries;
}

uint64_t qi_rabbit_places_count(const qi_rabbit_places *places) {
    return places->count;
}

/* --- sorting --- */

static uint64_t bucket_of(uint64_t key, uint32_t bits) {
    return bits ? key >> (64 - bits) : 0;
}

static int by_key(const void *a, const void *b) {
    const row *x = a, *y = b;
    uint64_t p = both(x->key), q = both(y->key);
    if (p == q) {
        p = both(x->place);
        q = both(y->place);
    }
    return (p > q) - (p < q);
}

static void sort_bucket(row *rows, uint32_t count) {
    if (count > FEW) { /* many copies of one message, or somebody chose the ids */
        qsort(rows, count, sizeof *rows, by_key);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        row moved = rows[i];
        uint32_t j = i;
        for (; j > 0 && by_key(&moved, &rows[j - 1]) < 0; j--)
            rows[j] = rows[j - 1];
        rows[j] = moved;
    }
}

/* Swaps each row into its bucket; `ends` counts up to the end of each. */
static void distribute(qi_rabbit_places *places, uint32_t *ends) {
    const uint32_t *starts = places->starts;
    for (uint64_t bucket = 0; bucket < UINT64_C(1) << places->bits; bucket++)
        while (ends[bucket] < starts[bucket + 1]) {
            row *here = &places->rows[ends[bucket]];
            uint64_t home = bucket_of(both(here->key), places->bits);
            row *there = &places->rows[ends[home]++];
            row moved = *there;
            *there = *here;
            *here = moved;
        }
}

/* Sorts the buckets, and moves them up over the copies that are left out. */
static void finish(qi_rabbit_places *places) {
    uint32_t kept = 0;
    for (uint64_t bucket = 0; bucket < UINT64_C(1) << places->bits; bucket++) {
        uint32_t start = places->starts[bucket], end = places->starts[bucket + 1];
        if (end > start)
            sort_bucket(places->rows + start, end - start);
        places->starts[bucket] = kept;
        for (uint32_t i = start; i < end; i++) {
            const row *new = &places->rows[i];
            if (kept > places->starts[bucket] && both(places->rows[kept - 1].key) == both(new->key))
                continue;
            places->rows[kept++] = *new;
        }
    }
    places->starts[UINT64_C(1) << places->bits] = kept;
    places->count = kept;
}

int qi_rabbit_places_sort(qi_rabbit_places *places) {
    uint32_t bits = 0;
    while (bits < 29 && places->count >> bits > 8)
        bits++;
    uint64_t buckets = UINT64_C(1) << bits;
    uint32_t *starts = calloc(buckets + 1, sizeof *starts), *ends = calloc(buckets, sizeof *ends);
    if (!starts || !ends || places->starts) {
        free(starts);
        free(ends);
        return places->starts ? 0 : QI_E_MEMORY;
    }
    places->starts = starts;
    places->bits = bits;
    for (uint64_t i = 0; i < places->count; i++)
        starts[bucket_of(both(places->rows[i].key), bits) + 1]++;
    for (uint64_t bucket = 0; bucket < buckets; bucket++) {
        starts[bucket + 1] += starts[bucket];
        ends[bucket] = starts[bucket];
    }
    distribute(places, ends);
    free(ends);
    finish(places);
    return 0;
}

static row *find(const qi_rabbit_places *places, const uint8_t *msg_id) {
    uint64_t key = key_of(msg_id);
    if (!places->starts)
        return NULL;
    uint64_t bucket = bucket_of(key, places->bits);
    uint32_t low = places->starts[bucket], high = places->starts[bucket + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t found = both(places->rows[middle].key);
        if (found == key)
            return &places->rows[middle];
        if (found < key)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void get_place(const row *from, qi_rabbit_place *place) {
    uint64_t where = both(from->place);
    place->file = (uint32_t)(where >> OFFSET_BITS);
    place->offset = where & ((UINT64_C(1) << OFFSET_BITS) - 1);
    place->size = from->size & SIZE_MAX_KEPT;
}

bool qi_rabbit_places_find(const qi_rabbit_places *places, const void *msg_id,
                           qi_rabbit_place *place) {
    const row *found = find(places, msg_id);
    if (found)
        get_place(found, place);
    return found;
}

uint64_t qi_rabbit_places_next(const qi_rabbit_places *places, const void *msg_id, uint64_t from,
                               qi_rabbit_place *place) {
    uint64_t key = key_of(msg_id);
    for (uint64_t i = from; i < places->count; i++) {
        if (both(places->rows[i].key) == key) {
            get_place(&places->rows[i], place);
            return i + 1;
        }
    }
    return 0;
}

uint64_t qi_rabbit_places_next_unwanted(const qi_rabbit_places *places, uint64_t from,
                                        qi_rabbit_place *place) {
    for (uint64_t i = from; i < places->count; i++) {
        if (!(places->rows[i].size & WANTED)) {
            get_place(&places->rows[i], place);
            return i + 1;
        }
    }
    return 0;
}

void qi_rabbit_places_unmark(qi_rabbit_places *places) {
    for (uint64_t i = 0; i < places->count; i++)
        places->rows[i].size &= SIZE_MAX_KEPT;
}

uint64_t qi_rabbit_places_unwanted(const qi_rabbit_places *places, uint64_t *bytes) {
    uint64_t count = 0;
    *bytes = 0;
    for (uint64_t i = 0; i < places->count; i++) {
        if (places->rows[i].size & WANTED)
            continue;
        count++;
        *bytes += places->rows[i].size;
    }
    return count;
}

/* --- the join --- */

/* False: its body is in no file. */
static bool has_body(const qi_rabbit_entry *entry, qi_rabbit_places *places, bool mark) {
    if (entry->term_bytes)
        return true;
    if (entry->flags & QI_RABBIT_NOWHERE)
        return false;
    row *found = find(places, entry->msg_id);
    if (found && mark)
        found->size |= WANTED;
    return found;
}

uint32_t qi_rabbit_next_transient(const qi_rabbit_entry *entries, uint32_t count, uint32_t from) {
    while (from < count &&
           (entries[from].flags & QI_RABBIT_PERSISTENT || entries[from].term_bytes == 0))
        from++;
    return from;
}

/* False: it is transient, as the index says. */
static bool is_persistent(qi_rabbit_entry *entry, const qi_rabbit_places *places, bool durable,
                          qi_rabbit_counts *counts) {
    if (entry->flags & QI_RABBIT_PERSISTENT)
        return true;
    if (!durable || entry->term_bytes || entry->flags & QI_RABBIT_NOWHERE ||
        !find(places, entry->msg_id))
        return false;
    entry->flags |= QI_RABBIT_PERSISTENT;
    counts->relabelled++;
    return true;
}

static void count_expiry(qi_rabbit_entry *entry, qi_rabbit_counts *counts) {
    uint64_t at = entry->expiry_us;
    if (at && at < counts->expiry_min) {
        if (counts->early++ == 0)
            counts->first_early = entry->seq;
        entry->expiry_us = 0;
    }
    counts->expiring += entry->expiry_us > 0;
}

void qi_rabbit_count(qi_rabbit_entry *entries, uint32_t count, qi_rabbit_places *places, bool mark,
                     bool durable, uint64_t next_deliver, qi_rabbit_counts *counts) {
    for (uint32_t i = 0; i < count; i++) {
        qi_rabbit_entry *entry = &entries[i];
        if (!is_persistent(entry, places, durable, counts)) {
            counts->transient++;
            continue;
        }
        if (!has_body(entry, places, mark)) {
            entry->flags |= QI_RABBIT_MISSING;
            if (counts->body_missing++ == 0)
                counts->first_missing = entry->seq;
            continue;
        }
        counts->live++;
        counts->live_body_bytes += entry->body_bytes;
        counts->stored += entry->term_bytes == 0;
        count_expiry(entry, counts);
        counts->delivered += entry->state == QI_RABBIT_DELIVERED;
        counts->below += entry->seq < next_deliver;
    }
}
