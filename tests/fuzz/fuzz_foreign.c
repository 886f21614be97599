/* fuzz_foreign.c - arbitrary bytes for what reads foreign formats in C: Erlang terms and RabbitMQ's
 * files.
 *
 * An input is one byte that chooses what it is, as in fuzz_formats.py, whose corpus this uses, and
 * the bytes. Each piece that is scanned is in memory of its very size, so that the sanitizer sees a
 * byte read beyond it. Beyond that: every place that is handed out is within the bytes, and a file
 * that is read in small pieces says what it says in one.
 *
 * With -DSTANDALONE: reads the files that it is given, once.
 */
#include "foreign/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TERM = 0, MESSAGE = 1, JOURNAL = 4, SEGMENT = 5, SLOTS_V2 = 6, MESSAGES = 8, KINDS = 24 };
enum { SLOTS = 2048, SMALL = 64, SEGMENTS_MAX = 64, VALUES_MAX = 4096, V2_HEADER = 64 };

static void expect(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "fuzz_foreign: %s\n", what);
    abort();
}

static void *copy_of(const void *data, size_t size) {
    void *copy = malloc(size ? size : 1);
    expect(copy != NULL, "no memory");
    if (size)
        memcpy(copy, data, size);
    return copy;
}

static void is_within(uint64_t start, uint64_t bytes, size_t size) {
    expect(start <= size && bytes <= size - start, "a place beyond the bytes");
}

/* --- terms and messages --- */

static void read_term(const uint8_t *data, size_t size) {
    static qi_term terms[VALUES_MAX];
    size_t end = 0, again = 0;
    int64_t count = qi_terms(data, size, &end, QI_TERM_DEPTH_MAX, 1000000, NULL, 0);
    int64_t second = qi_terms(data, size, &again, QI_TERM_DEPTH_MAX, 1000000, terms, VALUES_MAX);
    expect(count == second && end == again && end <= size, "two readings of a term differ");
    for (int64_t i = 0; i < count && i < VALUES_MAX; i++) {
        bool holds_others = terms[i].tag == 104 || terms[i].tag == 105 || terms[i].tag == 108 ||
                            terms[i].tag == 116;
        is_within(terms[i].start, holds_others ? 0 : terms[i].size, end);
        expect(!holds_others || terms[i].size < count,
               "a container with more values than there are");
    }
}

/* Binaries that follow each other: none of them may go beyond the bytes. */
static void walk(const uint8_t *data, size_t size, uint32_t pos, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        is_within(pos, 5, size);
        uint32_t length = (uint32_t)data[pos + 1] << 24 | data[pos + 2] << 16 | data[pos + 3] << 8 |
                          data[pos + 4];
        expect(data[pos] == 'm', "something else than a binary");
        is_within(pos + 5, length, size);
        pos += 5 + length;
    }
}

static void read_message(const uint8_t *data, size_t size) {
    qi_rabbit_message message;
    if (!qi_rabbit_read_message(data, size, &message))
        return;
    is_within(message.exchange, message.exchange_size, size);
    is_within(message.properties, message.properties_size, size);
    is_within(message.msg_id, message.msg_id_size, size);
    is_within(message.decoded, 0, size);
    is_within(message.key, message.key_size, size);
    is_within(message.fragment, message.fragment_size, size);
    walk(data, size, message.key - 5, message.key_count);
    walk(data, size, message.fragment - 5, message.fragment_count);
}

/* --- messages as they are published --- */

enum { ENTRIES = 12, ROOM = 1 << 20, HEAD = 8 };

/* A file in which the bytes stand once, behind a head as in N.qs; entries that name them whole,
 * cut, and elsewhere. */
static uint32_t make_entries(const uint8_t *data, size_t size, qi_rabbit_entry *entries) {
    qi_rabbit_message message;
    bool is_usual = qi_rabbit_read_message(data, size, &message);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        qi_rabbit_entry *entry = &entries[i];
        *entry = (qi_rabbit_entry){.seq = i, .expiry_us = i % 3 * 5, .term_offset = HEAD};
        entry->term_bytes = (uint32_t)size - (i == 5 && size > 1);
        entry->term_offset += i == 6 ? size : i == 7 ? UINT64_MAX - 20 : 0;
        entry->flags = QI_RABBIT_PERSISTENT | (i % 2 ? QI_RABBIT_BESIDE : 0);
        if (is_usual) {
            entry->body_bytes = message.fragment_size;
            memcpy(entry->msg_id, data + message.msg_id, message.msg_id_size < 16 ? 0 : 16);
        }
    }
    return ENTRIES;
}

static uint8_t *fill_block(const qi_rabbit_plan *plan, const uint8_t *data, size_t size,
                           size_t *total) {
    *total = 0;
    for (uint32_t i = 0; i < plan->extent_count; i++) {
        expect(plan->extents[i].at == *total, "extents with a gap in the block");
        *total += plan->extents[i].size;
    }
    expect(*total <= ROOM, "a block without room for what is planned");
    uint8_t *block = malloc(*total ? *total : 1);
    expect(block != NULL, "no memory");
    for (uint32_t i = 0; i < plan->extent_count; i++)
        for (uint64_t k = 0; k < plan->extents[i].size; k++) {
            uint64_t place = plan->extents[i].offset + k;
            uint8_t head[HEAD] = {(uint8_t)(size >> 24), (uint8_t)(size >> 16),
                                  (uint8_t)(size >> 8), (uint8_t)size};
            block[plan->extents[i].at + k] = place < HEAD          ? head[place]
                                             : place - HEAD < size ? data[place - HEAD]
                                                                   : 0;
        }
    return block;
}

static void check_rows(const qi_rabbit_rows *rows, const uint8_t *block, size_t size,
                       size_t tables_room) {
    uint64_t tables = 0, bodies = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        is_within(rows->bodies[i] - (uintptr_t)block, rows->body_sizes[i], size);
        tables += rows->table_sizes[i];
        bodies += rows->body_sizes[i];
    }
    expect(tables <= tables_room && bodies == rows->body_bytes, "rows that do not add up");
}

static void read_rows(const uint8_t *data, size_t size) {
    static qi_rabbit_plan plan;
    static qi_rabbit_rows rows;
    qi_rabbit_entry entries[ENTRIES];
    qi_rabbit_places *places = qi_rabbit_places_new();
    if (size == 0 || size > ROOM / 4) {
        qi_rabbit_places_free(places);
        return;
    }
    uint32_t count = make_entries(data, size, entries);
    for (uint32_t from = 0, turn = 0; from < count; turn++) {
        qi_rabbit_wish wish = {.now_us = 7,
                               .expiry_max_us = 100,
                               .expired = turn % 3,
                               .expiry = data[0] % 3u,
                               .priority_max = size % 2 ? 9 : 0,
                               .has_heads = size % 4 < 2};
        uint32_t next = qi_rabbit_make_plan(entries, count, from, 0, UINT64_MAX, places,
                                            wish.has_heads, ROOM, &plan);
        expect(next > from && plan.count <= next - from, "a plan of nothing");
        from = next;
        size_t total;
        uint8_t *block = fill_block(&plan, data, size, &total);
        size_t tables_room = size % 5 ? total + 128 * ENTRIES : size;
        uint8_t *tables = malloc(tables_room);
        expect(tables != NULL, "no memory");
        for (uint32_t row = 0; row < plan.count;) {
            uint32_t end = qi_rabbit_read_rows(&plan, row, entries, block, total, &wish, tables,
                                               tables_room, &rows);
            expect(end <= plan.count && (end > row || rows.is_strange), "rows of nothing");
            expect(rows.count + rows.expired == end - row, "rows that were left out");
            check_rows(&rows, block, total, tables_room);
            row = end + rows.is_strange;
        }
        free(tables);
        free(block);
    }
    qi_rabbit_places_free(places);
}

/* --- entries and files of Ra --- */

/* The bytes as one entry, and as entries at places that may be anywhere. */
static void read_steps(const uint8_t *data, size_t size) {
    static qi_rabbit_names names;
    static qi_rabbit_steps steps;
    qi_rabbit_measure measure = {.ttl_ms = size % 3 ? -1 : 5, .counts_headers = size % 2};
    qi_rabbit_step step;
    memset(&names, 0, sizeof names);
    steps.base = 7;
    size_t count = 0;
    for (; count < 9; count++) {
        steps.offsets[count] = 7 + (count < 5 ? 0 : size / (count - 4)) - (count == 3);
        steps.sizes[count] = (uint32_t)(count % 2 ? size : size / 2);
    }
    steps.offsets[0] = 7;
    steps.sizes[0] = (uint32_t)size;
    qi_rabbit_read_steps(data, size, count, &measure, &names, &steps);
    bool is_usual = qi_rabbit_read_step(data, size, &step);
    expect(is_usual || steps.counts[0] == QI_RABBIT_OTHER, "another answer for many at once");
    if (is_usual)
        is_within(step.who, step.who_size, size);
    for (size_t i = 0; i < count; i++)
        expect(steps.counts[i] < 0 || steps.names[i] < names.count, "a name without a number");
}

static void read_ra(const uint8_t *data, size_t size) {
    static qi_ra_records records;
    static qi_ra_slots slots;
    records.pos = 0;
    records.has_checksums = size % 2;
    for (size_t count = 1; count;) {
        uint64_t start = records.pos;
        count = qi_ra_read_records(data, size, &records);
        expect(records.pos <= size && (count == 0) == (records.pos == start), "records of nothing");
        for (size_t i = 0; i < count; i++)
            is_within(records.offsets[i], records.sizes[i], size);
    }
    for (uint32_t version = 1; version <= 2; version++) {
        size_t count = qi_ra_read_slots(data, size, version, size + 4096, &slots);
        for (size_t i = 0; i < count; i++)
            expect(slots.offsets[i] + slots.sizes[i] <= size + 4096, "data beyond the file");
        static uint32_t wrong[65536];
        size_t found = qi_ra_check_entries(data, size, size / 2, count, slots.offsets, slots.sizes,
                                           slots.crcs, wrong);
        expect(found <= count && (!found || wrong[found - 1] < count), "more wrong than there are");
    }
}

/* --- files, piece by piece --- */

typedef bool scan(void *into, qi_rabbit_piece *piece); /* false: stop */

/* Reads from the start to what makes no sense; returns where. As brokers/rabbitmq/pieces.py does
 * it. */
static uint64_t feed(const uint8_t *data, size_t size, size_t room, scan *scan_piece, void *into) {
    uint64_t offset = 0;
    while (offset < size) {
        size_t count = size - offset < room ? size - offset : room;
        uint8_t *copy = copy_of(data + offset, count);
        qi_rabbit_piece piece = {
            .data = copy, .size = count, .offset = offset, .left = size - offset};
        bool goes_on = scan_piece(into, &piece);
        free(copy);
        expect(piece.pos <= size - offset, "a scan beyond the file");
        if (!goes_on || piece.bad)
            return offset + piece.pos;
        expect(piece.pos > 0 || room < size, "a whole file that is neither read nor bad");
        room = piece.pos == 0 ? 2 * room : room;
        offset += piece.pos;
    }
    return offset;
}

static bool scan_segment(void *into, qi_rabbit_piece *piece) {
    qi_rabbit_segment_scan(into, piece, SLOTS, false);
    return true;
}

static bool scan_journal(void *into, qi_rabbit_piece *piece) {
    return qi_rabbit_journal_scan(into, piece) == 0;
}

static bool scan_messages(void *into, qi_rabbit_piece *piece) {
    return qi_rabbit_store_scan(into, piece, 7) == 0;
}

static void *zeroed(size_t size) {
    void *memory = calloc(1, size);
    expect(memory != NULL, "no memory");
    return memory;
}

static void count_live(qi_rabbit_entry *live, uint32_t count) {
    qi_rabbit_places *places = qi_rabbit_places_new();
    qi_rabbit_counts counts = {0};
    for (uint32_t i = 0; i < count; i += 2) {
        qi_rabbit_place place = {i, i % 3, i};
        expect(qi_rabbit_places_add(places, live[i].msg_id, &place) == 0, "a place is refused");
    }
    expect(qi_rabbit_places_sort(places) == 0, "no memory to sort");
    qi_rabbit_count(live, count, places, true, true, 9, &counts);
    expect(counts.transient + counts.body_missing + counts.live == count,
           "counts that do not add up");
    uint64_t bytes;
    expect(qi_rabbit_places_unwanted(places, &bytes) <= qi_rabbit_places_count(places),
           "too many are unwanted");
    qi_rabbit_places_free(places);
}

/* The journal over this segment and over those behind it. */
static uint64_t merge(qi_rabbit_segment *segment, qi_rabbit_journal *journal) {
    qi_rabbit_entry *live = zeroed(QI_RABBIT_SLOTS_MAX * sizeof *live);
    uint64_t sum = 0;
    int64_t number = 0;
    qi_rabbit_gaps gaps = {.length_min = 2};
    qi_rabbit_journal_sort(journal);
    for (int segments = 0; number >= 0 && segments < SEGMENTS_MAX; segments++) {
        uint32_t count = qi_rabbit_segment_merge(segment, journal, (uint64_t)number, SLOTS, live);
        expect(count <= segment->count && segment->count <= SLOTS, "more messages than slots");
        for (uint32_t i = 0; i < count; i++) {
            expect(live[i].seq / SLOTS == (uint64_t)number, "a message of another segment");
            expect(i == 0 || live[i - 1].seq < live[i].seq, "messages out of order");
        }
        count_live(live, count);
        qi_rabbit_segment_gaps(segment, (uint64_t)number, SLOTS, &gaps);
        expect(gaps.count <= QI_RABBIT_GAPS_MAX, "too many gaps");
        sum = sum * 31 + count + (uint64_t)segment->orphans;
        qi_rabbit_segment_clear(segment);
        int64_t next = qi_rabbit_journal_next(journal, SLOTS);
        expect(next < 0 || next > number, "a segment comes twice");
        number = next;
    }
    for (uint32_t slot = 0; slot < QI_RABBIT_SLOTS_MAX; slot++)
        expect(segment->at[slot] == 0, "a slot is left behind");
    free(live);
    return sum;
}

static void read_segment(const uint8_t *data, size_t size) {
    uint64_t ends[2], sums[2];
    for (int turn = 0; turn < 2; turn++) {
        qi_rabbit_segment *segment = zeroed(sizeof *segment);
        qi_rabbit_journal *journal = qi_rabbit_journal_new();
        ends[turn] = feed(data, size, turn == 0 ? size : SMALL, scan_segment, segment);
        sums[turn] = segment->records << 16;
        sums[turn] += merge(segment, journal);
        qi_rabbit_journal_free(journal);
        free(segment);
    }
    expect(ends[0] == ends[1] && sums[0] == sums[1], "a segment says something else in pieces");
}

static void read_journal(const uint8_t *data, size_t size) {
    uint64_t ends[2], sums[2];
    for (int turn = 0; turn < 2; turn++) {
        qi_rabbit_segment *segment = zeroed(sizeof *segment);
        qi_rabbit_journal *journal = qi_rabbit_journal_new();
        ends[turn] = feed(data, size, turn == 0 ? size : SMALL, scan_journal, journal);
        sums[turn] = journal->records << 16;
        sums[turn] += merge(segment, journal);
        qi_rabbit_journal_free(journal);
        free(segment);
    }
    expect(ends[0] == ends[1] && sums[0] == sums[1], "a journal says something else in pieces");
}

static void read_messages(const uint8_t *data, size_t size) {
    uint64_t ends[2], counts[2];
    for (int turn = 0; turn < 2; turn++) {
        qi_rabbit_places *places = qi_rabbit_places_new();
        ends[turn] = feed(data, size, turn == 0 ? size : SMALL, scan_messages, places);
        uint64_t entries = qi_rabbit_places_entries(places);
        expect(qi_rabbit_places_sort(places) == 0, "no memory to sort");
        counts[turn] = qi_rabbit_places_count(places);
        expect(counts[turn] <= entries, "more messages than entries");
        qi_rabbit_place place;
        if (size >= 24 && ends[turn] > 0) {
            expect(qi_rabbit_places_find(places, data + 8, &place), "the first entry is not found");
            expect(place.file == 7 && place.offset == 24, "the first entry is somewhere else");
            is_within(place.offset, place.size, size);
        }
        qi_rabbit_places_free(places);
    }
    expect(ends[0] == ends[1] && counts[0] == counts[1],
           "a message file says something else in pieces");
}

static void read_slots(const uint8_t *data, size_t size) {
    uint32_t count = size / 32 < QI_RABBIT_SLOTS_MAX ? (uint32_t)(size / 32) : QI_RABBIT_SLOTS_MAX;
    qi_rabbit_entry *live = zeroed(QI_RABBIT_SLOTS_MAX * sizeof *live);
    qi_rabbit_slots slots;
    qi_rabbit_read_slots(data, count, 5, 1000, live, &slots);
    expect(slots.used <= count && slots.live <= slots.published && slots.published <= count,
           "too many slots");
    expect(slots.bad || slots.used == count, "slots are left out");
    for (uint32_t i = 0; i < slots.live; i++)
        is_within(live[i].term_offset, live[i].term_bytes, 1000);
    count_live(live, slots.live);
    free(live);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_size) {
    if (input_size == 0)
        return 0;
    size_t size = input_size - 1;
    uint8_t *data = copy_of(input + 1, size);
    switch (input[0] % KINDS) {
    case TERM:
        read_term(data, size);
        break;
    case MESSAGE:
        read_message(data, size);
        read_rows(data, size);
        read_steps(data, size);
        break;
    case JOURNAL:
        read_journal(data, size);
        break;
    case SEGMENT:
        read_segment(data, size);
        break;
    case SLOTS_V2:
        if (size > V2_HEADER)
            read_slots(data + V2_HEADER, size - V2_HEADER);
        break;
    case MESSAGES:
        read_messages(data, size);
        break;
    default: /* a format that is read in Python, or in C where nothing is wrong */
        read_steps(data, size);
        read_ra(data, size);
        break;
    }
    free(data);
    return 0;
}

#ifdef STANDALONE
int main(int count, char **names) {
    static uint8_t input[16 << 20];
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(names[i], "rb");
        expect(file != NULL, "cannot open an input");
        size_t size = fread(input, 1, sizeof input, file);
        fclose(file);
        LLVMFuzzerTestOneInput(input, size);
    }
    printf("foreign: %d inputs\n", count - 1);
    return 0;
}
#endif
