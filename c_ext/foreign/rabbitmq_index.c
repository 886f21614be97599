/* rabbitmq_index.c - RabbitMQ's queue index: the records of journal.jif and N.idx, and what they
 * say together; the slots of version 2's N.qi.
 *
 * Rules of this file: no I/O; a length is compared with what is left of the file before it is used;
 * memory is what the records in a journal take, and one segment. What a record looks like is told
 * in qindex/formats/rabbitmq_index*.py, which read the files piece by piece and find the way on
 * where a piece makes no sense.
 */
#include "foreign/foreign.h"

#include "base/base.h"
#include "qindex.h"

#include <stdlib.h>
#include <string.h>

#define SEQ          ((UINT64_C(1) << 62) - 1)
#define SEQ_MAX      ((UINT64_C(1) << 48) - 1)
#define EXPIRY_MAX   (UINT64_C(1) << 54)
#define JOURNAL_HEAD 40u
#define SEGMENT_HEAD 34u
#define TERM         131

/* What becomes of a record that ends behind the piece: it is read again with more, or it is cut. */
static bool stop_short(qi_rabbit_piece *piece, uint64_t pos) {
    piece->pos = pos;
    piece->bad = piece->size == piece->left;
    return false;
}

static bool stop_bad(qi_rabbit_piece *piece, uint64_t pos) {
    piece->pos = pos;
    piece->bad = true;
    return false;
}

/* The fields of a publish whose record begins at `pos` and has `head` bytes before its term. False:
 * stop there. */
static bool get_publish(qi_rabbit_piece *piece, uint64_t pos, uint32_t head,
                        qi_rabbit_entry *entry) {
    uint64_t rest = piece->size - pos;
    if (rest < head + 1 && (rest < head || piece->size != piece->left))
        return stop_short(piece, pos);
    const uint8_t *p = piece->data + pos + head - 32;
    memcpy(entry->msg_id, p, 16);
    entry->expiry_us = qi_get64(p + 16);
    entry->body_bytes = qi_get32(p + 24);
    entry->term_bytes = qi_get32(p + 28);
    entry->term_offset = piece->offset + pos + head;
    if (entry->expiry_us > EXPIRY_MAX || entry->term_bytes > piece->left - pos - head ||
        (entry->term_bytes > 0 && p[32] != TERM))
        return stop_bad(piece, pos);
    return true;
}

/* --- segments --- */

void qi_rabbit_segment_clear(qi_rabbit_segment *segment) {
    for (uint32_t i = 0; i < segment->count; i++)
        segment->at[segment->entries[i].seq] = 0;
    segment->count = segment->last = segment->behind = 0;
    segment->records = 0;
    segment->orphans = 0;
    segment->clashes = segment->bare_acks = segment->twice = segment->top = 0;
    segment->own = segment->foreign = segment->plain = segment->beyond = 0;
}

/* Each slot has one entry at most, so there is room for all. */
static qi_rabbit_entry *entry_of(qi_rabbit_segment *segment, uint32_t slot) {
    if (!segment->at[slot]) {
        segment->at[slot] = (uint16_t)++segment->count;
        segment->entries[segment->count - 1].state = 0;
    }
    return &segment->entries[segment->at[slot] - 1];
}

static void keep_publish(qi_rabbit_segment *segment, uint32_t slot, const qi_rabbit_entry *entry) {
    qi_rabbit_entry *kept = entry_of(segment, slot);
    if (kept->state && memcmp(kept->msg_id, entry->msg_id, sizeof kept->msg_id) != 0) {
        segment->clashes++;
        segment->clash = slot;
    }
    uint16_t state = kept->state ? kept->state : QI_RABBIT_PUBLISHED;
    *kept = *entry;
    kept->seq = slot;
    kept->state = state;
}

void qi_rabbit_segment_publish(qi_rabbit_segment *segment, uint32_t slot,
                               const qi_rabbit_entry *entry) {
    if (slot < QI_RABBIT_SLOTS_MAX) {
        keep_publish(segment, slot, entry);
        segment->records++;
    }
}

/* The first mark of a slot is its deliver, the second its ack. False: it makes no sense. */
static bool keep_mark(qi_rabbit_segment *segment, uint32_t slot, bool damaged) {
    if (!segment->at[slot]) {
        segment->orphans += damaged;
        return damaged;
    }
    qi_rabbit_entry *entry = &segment->entries[segment->at[slot] - 1];
    if (entry->state == QI_RABBIT_ACKED)
        return false;
    entry->state++;
    return true;
}

/* Counts what stands behind a publish: a mark of `slot`, or something else. */
static void count_follower(qi_rabbit_segment *segment, uint32_t slot, bool is_mark) {
    if (segment->behind) {
        bool is_own = segment->entries[segment->behind - 1].seq == slot;
        segment->plain += !is_mark;
        segment->own += is_mark && is_own;
        segment->foreign += is_mark && !is_own;
        segment->behind = 0;
    }
}

/* One record at *pos; false: stop there. */
static bool segment_record(qi_rabbit_segment *segment, qi_rabbit_piece *piece, uint64_t *pos,
                           uint32_t slots, bool damaged) {
    if (piece->size - *pos < 2)
        return stop_short(piece, *pos);
    uint32_t head = qi_get16(piece->data + *pos), slot = head & 0x3FFF;
    if (head < 0x4000 || slot >= slots) {
        segment->beyond += head >= 0x4000;
        return stop_bad(piece, *pos);
    }
    if (head < 0x8000) {
        if (!keep_mark(segment, slot, damaged))
            return stop_bad(piece, *pos);
        count_follower(segment, slot, true);
        *pos += 2;
        return true;
    }
    qi_rabbit_entry entry = {0};
    if (!get_publish(piece, *pos, SEGMENT_HEAD, &entry))
        return false;
    entry.flags = head >= 0xC000 ? QI_RABBIT_PERSISTENT : 0;
    count_follower(segment, slot, false);
    keep_publish(segment, slot, &entry);
    segment->last = segment->behind = segment->at[slot];
    segment->top = slot >= segment->top ? slot + 1 : segment->top;
    *pos += SEGMENT_HEAD + (uint64_t)entry.term_bytes;
    return true;
}

void qi_rabbit_segment_scan(qi_rabbit_segment *segment, qi_rabbit_piece *piece, uint32_t slots,
                            bool damaged) {
    uint64_t pos = 0;
    if (slots > QI_RABBIT_SLOTS_MAX)
        slots = QI_RABBIT_SLOTS_MAX;
    while (pos < piece->size) {
        if (!segment_record(segment, piece, &pos, slots, damaged))
            return;
        segment->records++;
    }
    piece->pos = pos;
    piece->bad = false;
}

/* --- journals --- */

qi_rabbit_journal *qi_rabbit_journal_new(void) {
    return calloc(1, sizeof(qi_rabbit_journal));
}

void qi_rabbit_journal_free(qi_rabbit_journal *journal) {
    if (journal) {
        free(journal->publishes);
        free(journal->marks);
        free(journal);
    }
}

/* Room for one more; false: no memory. */
static bool grow(void **rows, uint64_t count, uint64_t *room, size_t row_bytes) {
    if (count < *room)
        return true;
    uint64_t wanted = *room ? *room + *room / 2 : 64;
    void *grown = realloc(*rows, wanted * row_bytes);
    if (!grown)
        return false;
    *rows = grown;
    *room = wanted;
    return true;
}

int qi_rabbit_journal_publish(qi_rabbit_journal *journal, const qi_rabbit_entry *entry) {
    void *rows = journal->publishes;
    bool grown = grow(&rows, journal->publish_count, &journal->publish_room, sizeof *entry);
    journal->publishes = rows;
    if (!grown)
        return QI_E_MEMORY;
    journal->publishes[journal->publish_count++] = *entry;
    journal->records++;
    return 0;
}

static int keep_journal_mark(qi_rabbit_journal *journal, uint64_t seq, bool is_ack) {
    void *rows = journal->marks;
    bool grown = grow(&rows, journal->mark_count, &journal->mark_room, sizeof *journal->marks);
    journal->marks = rows;
    if (!grown)
        return QI_E_MEMORY;
    journal->marks[journal->mark_count++] = seq << 1 | is_ack;
    journal->records++;
    journal->last = 0;
    return 0;
}

static bool is_zero(const uint8_t *p, size_t size) {
    while (size && *p == 0)
        p++, size--;
    return size == 0;
}

/* One record at *pos; false: stop there, or *code says why not. */
static bool journal_record(qi_rabbit_journal *journal, qi_rabbit_piece *piece, uint64_t *pos,
                           int *code) {
    if (piece->size - *pos < 8)
        return stop_short(piece, *pos);
    uint64_t head = qi_get64(piece->data + *pos), seq = head & SEQ;
    if (seq > SEQ_MAX)
        return stop_bad(piece, *pos);
    if (head >> 63) {
        *code = keep_journal_mark(journal, seq, head >> 62 == 3);
        *pos += 8;
        return *code == 0;
    }
    qi_rabbit_entry entry = {.seq = seq, .state = QI_RABBIT_PUBLISHED};
    if (!get_publish(piece, *pos, JOURNAL_HEAD, &entry))
        return false;
    if (is_zero(entry.msg_id, sizeof entry.msg_id))
        return stop_bad(piece, *pos);
    entry.flags = QI_RABBIT_BESIDE | (head >> 62 ? 0 : QI_RABBIT_PERSISTENT);
    if (entry.flags & QI_RABBIT_PERSISTENT) {
        if (seq < journal->newest && journal->disorder++ == 0)
            journal->disorder_at = entry.term_offset;
        journal->newest = seq + 1 > journal->newest ? seq + 1 : journal->newest;
    }
    *code = qi_rabbit_journal_publish(journal, &entry);
    journal->last = journal->publish_count;
    *pos += JOURNAL_HEAD + (uint64_t)entry.term_bytes;
    return *code == 0;
}

int qi_rabbit_journal_scan(qi_rabbit_journal *journal, qi_rabbit_piece *piece) {
    uint64_t pos = 0;
    int code = 0;
    while (pos < piece->size)
        if (!journal_record(journal, piece, &pos, &code))
            return code;
    piece->pos = pos;
    piece->bad = false;
    return 0;
}

/* Of publishes with one seq the one that was written last comes last. */
static int by_seq(const void *a, const void *b) {
    const qi_rabbit_entry *x = a, *y = b;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return (x->term_offset > y->term_offset) - (x->term_offset < y->term_offset);
}

static int by_value(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

void qi_rabbit_journal_sort(qi_rabbit_journal *journal) {
    if (journal->publish_count)
        qsort(journal->publishes, journal->publish_count, sizeof *journal->publishes, by_seq);
    if (journal->mark_count)
        qsort(journal->marks, journal->mark_count, sizeof *journal->marks, by_value);
    journal->publish_next = journal->mark_next = 0;
}

int64_t qi_rabbit_journal_next(const qi_rabbit_journal *journal, uint32_t slots) {
    uint64_t seq = UINT64_MAX;
    if (journal->publish_next < journal->publish_count)
        seq = journal->publishes[journal->publish_next].seq;
    if (journal->mark_next < journal->mark_count && journal->marks[journal->mark_next] >> 1 < seq)
        seq = journal->marks[journal->mark_next] >> 1;
    return seq == UINT64_MAX ? -1 : (int64_t)(seq / slots);
}

/* --- both --- */

static void merge_publishes(qi_rabbit_segment *segment, qi_rabbit_journal *journal, uint64_t base,
                            uint32_t slots) {
    for (; journal->publish_next < journal->publish_count; journal->publish_next++) {
        qi_rabbit_entry entry = journal->publishes[journal->publish_next];
        if (entry.seq >= base + slots)
            return;
        if (entry.seq < base)
            continue;
        uint32_t slot = (uint32_t)(entry.seq - base);
        bool is_new = !segment->at[slot];
        if (is_new || segment->entries[segment->at[slot] - 1].flags & QI_RABBIT_BESIDE)
            keep_publish(segment, slot, &entry);
        else if (memcmp(segment->entries[segment->at[slot] - 1].msg_id, entry.msg_id, 16) != 0)
            segment->clashes++, segment->clash = slot;
    }
}

static void merge_marks(qi_rabbit_segment *segment, qi_rabbit_journal *journal, uint64_t base,
                        uint32_t slots) {
    uint64_t orphan = UINT64_MAX, before = UINT64_MAX;
    for (; journal->mark_next < journal->mark_count;
         before = journal->marks[journal->mark_next++]) {
        uint64_t mark = journal->marks[journal->mark_next], seq = mark >> 1;
        if (seq >= base + slots)
            return;
        if (seq < base)
            continue;
        if (!segment->at[seq - base]) {
            segment->orphans += seq != orphan; /* a deliver and an ack of one message are one */
            orphan = seq;
            continue;
        }
        qi_rabbit_entry *entry = &segment->entries[segment->at[seq - base] - 1];
        uint16_t state = mark & 1 ? QI_RABBIT_ACKED : QI_RABBIT_DELIVERED;
        segment->twice += mark == before && state == QI_RABBIT_DELIVERED;
        if (state == QI_RABBIT_ACKED && entry->state == QI_RABBIT_PUBLISHED) {
            segment->bare_acks++;
            segment->bare_ack = (uint32_t)(seq - base);
        }
        entry->state = entry->state > state ? entry->state : state;
    }
}

uint32_t qi_rabbit_segment_merge(qi_rabbit_segment *segment, qi_rabbit_journal *journal,
                                 uint64_t number, uint32_t slots, qi_rabbit_entry *live) {
    uint64_t base = number * slots;
    uint32_t first = QI_RABBIT_SLOTS_MAX, end = 0, count = 0;
    merge_publishes(segment, journal, base, slots);
    merge_marks(segment, journal, base, slots);
    for (uint32_t i = 0; i < segment->count; i++) {
        uint32_t slot = (uint32_t)segment->entries[i].seq;
        first = slot < first ? slot : first;
        end = slot >= end ? slot + 1 : end;
    }
    for (uint32_t slot = first; slot < end; slot++) {
        if (!segment->at[slot] || segment->entries[segment->at[slot] - 1].state == QI_RABBIT_ACKED)
            continue;
        live[count] = segment->entries[segment->at[slot] - 1];
        live[count++].seq = base + slot;
    }
    return count;
}

/* --- gaps --- */

/* Keeps the longest gaps. */
static void keep_gap(qi_rabbit_gaps *gaps, uint64_t first, uint64_t length) {
    uint32_t place = gaps->count;
    if (gaps->count < QI_RABBIT_GAPS_MAX) {
        gaps->count++;
    } else {
        place = 0;
        for (uint32_t i = 1; i < gaps->count; i++)
            if (gaps->gaps[i].length < gaps->gaps[place].length)
                place = i;
        if (gaps->gaps[place].length >= length)
            return;
    }
    gaps->gaps[place] = (qi_rabbit_gap){first, length, gaps->live};
}

static void note_seq(qi_rabbit_gaps *gaps, uint64_t seq, uint32_t slots, bool is_live) {
    if (gaps->live && seq > gaps->next) {
        uint64_t length = seq - gaps->next;
        bool restarted = seq % slots == 0 && length < slots;
        gaps->missing += length;
        if (length >= gaps->length_min && !restarted)
            keep_gap(gaps, gaps->next, length);
    }
    gaps->live += is_live;
    gaps->present += gaps->live > 0;
    gaps->next = seq + 1;
}

void qi_rabbit_segment_gaps(const qi_rabbit_segment *segment, uint64_t number, uint32_t slots,
                            qi_rabbit_gaps *gaps) {
    for (uint32_t slot = 0, left = segment->count; left; slot++) {
        if (!segment->at[slot])
            continue;
        const qi_rabbit_entry *entry = &segment->entries[segment->at[slot] - 1];
        note_seq(gaps, number * slots + slot, slots, entry->state != QI_RABBIT_ACKED);
        left--;
    }
}

void qi_rabbit_live_gaps(const qi_rabbit_entry *live, uint32_t count, uint32_t slots,
                         qi_rabbit_gaps *gaps) {
    for (uint32_t i = 0; i < count; i++)
        note_seq(gaps, live[i].seq, slots, true);
}

/* --- version 2 --- */

enum { SLOT_BYTES = 32, IN_STORE = 1, IN_QUEUE = 2, STORED_HEAD = 8 };

/* True if the slot is live; or it makes no sense: then *bad is set. */
static bool get_slot(const uint8_t *p, uint64_t seq, uint64_t stored_bytes, qi_rabbit_entry *entry,
                     bool *bad) {
    uint8_t status = p[0], flags = p[1], place = p[3];
    *entry = (qi_rabbit_entry){.seq = seq, .state = QI_RABBIT_PUBLISHED, .flags = flags};
    entry->body_bytes = qi_get32(p + 20);
    entry->expiry_us = qi_get64(p + 24);
    bool is_live = status != 0;
    *bad = is_live && (status != 1 || flags > 1 || p[2] || place > IN_QUEUE ||
                       entry->expiry_us > EXPIRY_MAX || seq > SEQ_MAX);
    if (place == IN_STORE) {
        memcpy(entry->msg_id, p + 4, sizeof entry->msg_id);
        return is_live;
    }
    entry->flags |= QI_RABBIT_BESIDE;
    if (place == IN_QUEUE) {
        uint64_t offset = qi_get64(p + 4);
        uint32_t size = qi_get32(p + 12);
        if (offset <= stored_bytes && (uint64_t)size + STORED_HEAD <= stored_bytes - offset &&
            size) {
            entry->term_offset = offset + STORED_HEAD;
            entry->term_bytes = size;
        }
    }
    if (!entry->term_bytes)
        entry->flags |= QI_RABBIT_NOWHERE;
    return is_live;
}

void qi_rabbit_read_slots(const void *data, uint32_t count, uint64_t seq, uint64_t stored_bytes,
                          qi_rabbit_entry *live, qi_rabbit_slots *slots) {
    *slots = (qi_rabbit_slots){0};
    for (const uint8_t *p = data; slots->used < count; slots->used++, p += SLOT_BYTES) {
        if (is_zero(p, SLOT_BYTES))
            continue; /* never written, or acked */
        bool bad = false,
             is_live = get_slot(p, seq + slots->used, stored_bytes, &live[slots->live], &bad);
        if (bad) {
            slots->bad = true;
            return;
        }
        const qi_rabbit_entry *entry = &live[slots->live];
        if (p[3] == IN_QUEUE && entry->term_bytes) {
            uint64_t end = entry->term_offset + entry->term_bytes;
            slots->end = end > slots->end ? end : slots->end;
            slots->named += is_live ? STORED_HEAD + (uint64_t)entry->term_bytes : 0;
        }
        slots->published++;
        slots->live += is_live;
        slots->half_acked += !is_live && p[1] == QI_RABBIT_PERSISTENT;
    }
}
