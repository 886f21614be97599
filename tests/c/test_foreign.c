/* test_foreign.c - the readers of RabbitMQ's files where there is no memory, where segments are
 * left out, and at the limits of what a file may say. Usage: test_foreign <directory>
 */
#undef NDEBUG
#define ALLOCATIONS_REAL
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "foreign/foreign.h"
#include "proof/explore/allocations.h"
#include "qindex.h"

enum { HEAD = 40, SLOTS = 16 };

/* A journal of RabbitMQ's: publish, deliver and ack of `count` messages. */
static size_t journal_of(uint8_t *bytes, uint32_t count) {
    uint8_t *at = bytes;
    memset(bytes, 0, count * (size_t)(HEAD + 16));
    for (uint64_t seq = 0; seq < count; seq++) {
        qi_put64(at, seq);
        memset(at + 8, (int)seq + 1, 16);
        at += HEAD;
    }
    for (uint64_t seq = 0; seq < count; seq++, at += 8)
        qi_put64(at, UINT64_C(2) << 62 | seq);
    return (size_t)(at - bytes);
}

static void test_a_journal_is_read_or_there_is_no_memory(void) {
    static uint8_t bytes[200 * (HEAD + 16)];
    size_t size = journal_of(bytes, 200);
    bool failed = true;
    for (uint64_t call = 1; failed; call++) {
        allocations = (struct allocations){.fail_at = call};
        qi_rabbit_journal *journal = qi_rabbit_journal_new();
        qi_rabbit_piece piece = {.data = bytes, .size = size, .left = size};
        int code = journal ? qi_rabbit_journal_scan(journal, &piece) : QI_E_MEMORY;
        failed = allocations.failed > 0;
        assert(code == (failed ? QI_E_MEMORY : 0));
        if (!failed)
            assert(piece.pos == size && !piece.bad && journal->records == 400);
        qi_rabbit_journal_free(journal);
        assert(allocations.alive == 0);
    }
    allocations = (struct allocations){.fail_at = 2};
    qi_rabbit_journal *journal = qi_rabbit_journal_new();
    qi_rabbit_entry entry = {.seq = 1};
    assert(qi_rabbit_journal_publish(journal, &entry) == QI_E_MEMORY && journal->records == 0);
    assert(qi_rabbit_journal_publish(journal, &entry) == 0 && journal->records == 1);
    qi_rabbit_journal_free(journal);
    qi_rabbit_journal_free(NULL);
}

/* Segments that nobody asks for are passed over: what the journal says of them belongs to no
 * other. */
static void test_a_journal_gives_a_segment_its_own_records(void) {
    static uint8_t bytes[40 * (HEAD + 16)];
    static qi_rabbit_segment segment;
    static qi_rabbit_entry live[SLOTS];
    size_t size = journal_of(bytes, 40);
    qi_rabbit_journal *journal = qi_rabbit_journal_new();
    qi_rabbit_piece piece = {.data = bytes, .size = size, .left = size};
    assert(qi_rabbit_journal_scan(journal, &piece) == 0);
    qi_rabbit_journal_sort(journal);
    assert(qi_rabbit_segment_merge(&segment, journal, 1, SLOTS, live) == SLOTS);
    assert(live[0].seq == 16 && live[15].seq == 31 && live[0].state == QI_RABBIT_DELIVERED);
    assert(segment.orphans == 0 && qi_rabbit_journal_next(journal, SLOTS) == 2);
    qi_rabbit_segment_publish(&segment, QI_RABBIT_SLOTS_MAX, &live[0]);
    assert(segment.count == SLOTS); /* no slot of a segment */
    qi_rabbit_journal_free(journal);
}

/* A third mark of one slot makes no sense; more slots than a segment may have are not looked
 * for. */
static void test_a_segment_ends_where_it_makes_no_sense(void) {
    static qi_rabbit_segment segment;
    uint8_t bytes[48] = {0};
    qi_put16(bytes, 0xC000 | 3);
    for (int i = 0; i < 3; i++)
        qi_put16(bytes + 34 + 2 * i, 0x4000 | 3);
    qi_rabbit_piece piece = {.data = bytes, .size = 40, .left = 40};
    qi_rabbit_segment_scan(&segment, &piece, UINT32_MAX, false);
    assert(piece.bad && piece.pos == 38 && segment.records == 3);
    for (uint64_t cut = 35; cut < 40; cut++) { /* each end of the file, and of a piece of it */
        for (uint64_t left = cut; left < 42; left++) {
            qi_rabbit_segment_clear(&segment);
            segment.records = 0;
            piece = (qi_rabbit_piece){.data = bytes, .size = cut, .left = left};
            qi_rabbit_segment_scan(&segment, &piece, SLOTS, false);
            assert(piece.pos <= cut && segment.records == 1 + (piece.pos - 34) / 2);
        }
    }
    for (uint64_t cut = 0; cut < 34; cut++) {
        qi_rabbit_segment_clear(&segment);
        piece = (qi_rabbit_piece){.data = bytes, .size = cut, .left = 40};
        qi_rabbit_segment_scan(&segment, &piece, SLOTS, false);
        assert(piece.pos == 0 && segment.count == 0);
    }
    for (uint64_t left = 34; left < 36;
         left++) { /* no term at the end of the file, or of a piece */
        qi_rabbit_segment_clear(&segment);
        piece = (qi_rabbit_piece){.data = bytes, .size = 34, .left = left};
        qi_rabbit_segment_scan(&segment, &piece, SLOTS, false);
        assert(!piece.bad && piece.pos == (left == 34 ? 34 : 0));
        assert(segment.count == (left == 34));
    }
    qi_rabbit_segment_clear(&segment);
    qi_put32(bytes + 2 + 28, 2); /* its term, which begins with something else */
    piece = (qi_rabbit_piece){.data = bytes, .size = 40, .left = 40};
    qi_rabbit_segment_scan(&segment, &piece, SLOTS, false);
    assert(piece.bad && piece.pos == 0);
}

static void test_a_slot_of_version_2_is_right_or_bad(void) {
    static const struct {
        uint32_t at, value; /* a byte of it */
        bool bad;
    } edits[] = {{0, 2, true}, {0, 1, false}, {1, 1, false}, {1, 2, true},  {2, 1, true},
                 {3, 3, true}, {3, 2, false}, {3, 1, false}, {3, 0, false}, {24, 255, true}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        uint8_t slot[32] = {1, 0, 0, 1};
        qi_rabbit_entry live[1];
        qi_rabbit_slots slots;
        slot[edits[i].at] = (uint8_t)edits[i].value;
        qi_rabbit_read_slots(slot, 1, 5, 1000, live, &slots);
        assert(slots.bad == edits[i].bad && slots.live == !edits[i].bad);
    }
    uint8_t slot[32] = {1, 1, 0, 2};
    qi_rabbit_entry live[1];
    qi_rabbit_slots slots;
    qi_rabbit_read_slots(slot, 1, UINT64_MAX - 1, 1000, live, &slots);
    assert(slots.bad); /* no such message is ever published */
    static const struct {
        uint64_t offset;
        uint32_t size, term;
    } places[] = {{10, 20, 20}, {10, 0, 0}, {990, 20, 0}, {1001, 1, 0}, {10, UINT32_MAX, 0}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        qi_put64(slot + 4, places[i].offset);
        qi_put32(slot + 12, places[i].size);
        qi_rabbit_read_slots(slot, 1, 5, 1000, live, &slots);
        assert(!slots.bad && slots.live == 1 && live[0].term_bytes == places[i].term);
    }
}

static void test_places_are_kept_or_there_is_no_memory(void) {
    bool failed = true;
    for (uint64_t call = 1; failed; call++) {
        allocations = (struct allocations){.fail_at = call};
        qi_rabbit_places *places = qi_rabbit_places_new();
        uint8_t id[16] = {0};
        int code = places ? 0 : QI_E_MEMORY;
        for (uint32_t i = 0; i < 100 && code == 0; i++) {
            qi_put32(id, i);
            code = qi_rabbit_places_add(places, id, &(qi_rabbit_place){i, 1, i});
        }
        qi_rabbit_place place;
        assert(!places || !qi_rabbit_places_find(places, id, &place)); /* not before it is sorted */
        if (code == 0)
            code = qi_rabbit_places_sort(places);
        failed = allocations.failed > 0;
        assert(code == (failed ? QI_E_MEMORY : 0));
        if (!failed) {
            assert(qi_rabbit_places_find(places, id, &place) && place.offset == 99);
            allocations.fail_at = 0;
            assert(qi_rabbit_places_sort(places) == 0 && qi_rabbit_places_count(places) == 100);
            assert(qi_rabbit_places_add(places, id, &place) == QI_E_ARGUMENT); /* too late */
        }
        qi_rabbit_places_free(places);
        assert(allocations.alive == 0);
    }
    allocations = (struct allocations){0};
    qi_rabbit_places *places = qi_rabbit_places_new();
    static const qi_rabbit_place wrong[] = {{0, QI_RABBIT_FILES_MAX, 0}, {UINT64_MAX, 0, 0}};
    for (int i = 0; i < 2; i++)
        assert(qi_rabbit_places_add(places, "0123456789abcdef", &wrong[i]) == QI_E_ARGUMENT);
    uint8_t entry[9 + 18] = {0};
    qi_put64(entry, 18);
    entry[26] = 255;
    qi_rabbit_piece piece = {.data = entry, .size = sizeof entry, .left = sizeof entry};
    allocations.calls = 0;
    allocations.fail_at = 1;
    assert(qi_rabbit_store_scan(places, &piece, 3) == QI_E_MEMORY);
    allocations.fail_at = 0;
    assert(qi_rabbit_store_scan(places, &piece, 3) == 0 && piece.pos == sizeof entry);
    qi_rabbit_places_free(places);
    qi_rabbit_places_free(NULL);
}

static void test_terms_beyond_their_limits_are_refused(void) {
    size_t pos = 0;
    assert(qi_terms("j", 1, &pos, QI_TERM_DEPTH_MAX + 1, 10, NULL, 0) < 0);
    assert(qi_terms("j", (size_t)QI_TERM_BYTES_MAX + 1, &pos, 10, 10, NULL, 0) < 0);
    pos = 2;
    assert(qi_terms("j", 1, &pos, 10, 10, NULL, 0) < 0);
    pos = 0; /* a float that is printed takes 31 bytes */
    assert(qi_terms("c1.5", 4, &pos, 10, 10, NULL, 0) < 0);
    qi_rabbit_message message;
    assert(!qi_rabbit_read_message("\x83", (size_t)QI_TERM_BYTES_MAX + 1, &message));
}

/* A map has each key once: of a container whose exchange stands twice nobody knows which it is. */
static void test_a_note_that_stands_twice_is_no_message(void) {
    static const char hex[] =
        "83680477026d6377086d635f616d71706c68067707636f6e74656e74613c77046e6f6e656d000000"
        "36bdc80a746578742f706c61696e00000008016b530000000176020304636f727205363030303003"
        "6d6964000000006553f1000361707077197261626269745f6672616d696e675f616d71705f305f39"
        "5f316c000000026d0000000570617274326d0000000670617274312d6a7400000007770269646d00"
        "0000100000000000000000000000000000000177017061037702726b6c000000016d00000004726b"
        "2e316a77037274736e0600086385fca101770274736e06000068e5cf8b01770374746c620000ea60"
        "7701786d0000000465782e61"; /* amqpl_plain in compat/data/rabbitmq_containers.tsv */
    uint8_t term[400], twice[400];
    size_t size = sizeof hex / 2, map = 0, note = 0;
    assert(size + 12 <= sizeof term);
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        assert(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        term[i] = (uint8_t)byte;
    }
    for (size_t i = 0; i + 5 < size; i++) {
        if (memcmp(term + i, "t\0\0\0", 4) == 0)
            map = i + 4;
        if (memcmp(term + i, "w\1xm", 4) == 0)
            note = i;
    }
    assert(map && note);
    qi_rabbit_message message;
    assert(qi_rabbit_read_message(term, size, &message));
    memcpy(twice, term, note);
    memcpy(twice + note, term + note, 12); /* an exchange of four letters */
    memcpy(twice + note + 12, term + note, size - note);
    twice[map]++;
    assert(!qi_rabbit_read_message(twice, size + 12, &message));
    twice[note + 2] = 'y'; /* a note that nobody knows is passed over */
    assert(qi_rabbit_read_message(twice, size + 12, &message));
}

static qi_rabbit_entry entry_at(uint64_t offset, uint32_t size, uint16_t flags) {
    return (qi_rabbit_entry){
        .term_offset = offset, .term_bytes = size, .flags = flags | QI_RABBIT_PERSISTENT};
}

/* What lies near is read by one call, in whatever order; what is far, or elsewhere, by another. */
static void test_a_plan_reads_what_lies_together_at_once(void) {
    static qi_rabbit_plan plan;
    enum { BESIDE = QI_RABBIT_BESIDE, NOWHERE = QI_RABBIT_NOWHERE, ROOM = 100000 };
    qi_rabbit_entry entries[] = {
        entry_at(1000, 100, 0),  entry_at(800, 100, 0),      entry_at(850, 20, 0),
        entry_at(9000, 50, 0),   entry_at(80000, 50, 0),     entry_at(80050, 9, BESIDE),
        entry_at(1, 0, NOWHERE), entry_at(5, ROOM + 1, 0),   entry_at(UINT64_MAX - 5, 50, 0),
        entry_at(80059, 1, 0),   entry_at(0, ROOM - 400, 0), entry_at(7, 1, 0),
    };
    uint32_t count = sizeof entries / sizeof *entries;
    entries[9].flags = 0; /* transient */
    qi_rabbit_places *places = qi_rabbit_places_new();
    assert(qi_rabbit_places_sort(places) == 0);
    assert(qi_rabbit_make_plan(entries, count, 0, 0, UINT64_MAX, places, true, ROOM, &plan) == 10);
    assert(plan.count == 8 && plan.extent_count == 3);
    assert(plan.extents[0].offset == 800 && plan.extents[0].size == 8250);
    assert(plan.extents[1].offset == 80000 && plan.extents[1].at == 8250);
    assert(plan.extents[2].offset == 80042 && plan.extents[2].size == 17); /* with its head */
    assert(plan.extents[2].file == QI_RABBIT_FILE_BESIDE && plan.extents[2].at == 8300);
    assert(plan.wanted[2].extent == 0 && plan.wanted[5].extent == 2);
    assert(plan.wanted[6].entry == 7 && plan.wanted[6].size == 0); /* larger than a block */
    assert(plan.wanted[7].entry == 8 && plan.wanted[7].size == 0); /* in no file */
    assert(qi_rabbit_make_plan(entries, count, 10, 0, UINT64_MAX, places, true, ROOM, &plan) ==
           count);
    assert(plan.count == 2 && plan.extent_count == 1 && plan.extents[0].size == ROOM - 400);
    for (uint32_t i = 0; i < count; i++)
        entries[i].seq = i + 70;
    assert(qi_rabbit_make_plan(entries, count, 0, 72, 73, places, true, ROOM, &plan) == count);
    assert(plan.count == 2 && plan.wanted[0].entry == 2 && plan.wanted[1].entry == 3);
    qi_rabbit_places_free(places);
}

/* What is not in the block is for the caller; so is all that a hostile plan says. */
static void test_rows_are_within_their_block(void) {
    static qi_rabbit_plan plan;
    static qi_rabbit_rows rows;
    static const uint8_t block[64];
    uint8_t tables[16];
    qi_rabbit_entry entry = entry_at(0, 20, 0);
    qi_rabbit_wish wish = {0};
    static const struct {
        qi_rabbit_extent extent;
        qi_rabbit_wanted wanted;
    } hostile[] = {
        {{.offset = 10, .size = 40, .at = 40}, {.offset = 10, .size = 20}},
        {{.offset = 10, .size = 40}, {.offset = 9, .size = 20}},
        {{.offset = 10, .size = 40}, {.offset = 31, .size = 20}},
        {{.offset = 10, .size = 40}, {.offset = 10, .size = 0}},
        {{.offset = 10, .size = 40, .at = UINT32_MAX}, {.offset = 10, .size = 20}},
    };
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        plan.count = plan.extent_count = 1;
        plan.extents[0] = hostile[i].extent;
        plan.wanted[0] = hostile[i].wanted;
        assert(qi_rabbit_read_rows(&plan, 0, &entry, block, sizeof block, &wish, tables,
                                   sizeof tables, &rows) == 0);
        assert(rows.is_strange && rows.count == 0);
    }
}

int main(void) {
    test_a_plan_reads_what_lies_together_at_once();
    test_rows_are_within_their_block();
    test_a_note_that_stands_twice_is_no_message();
    test_a_journal_is_read_or_there_is_no_memory();
    test_a_journal_gives_a_segment_its_own_records();
    test_a_segment_ends_where_it_makes_no_sense();
    test_a_slot_of_version_2_is_right_or_bad();
    test_places_are_kept_or_there_is_no_memory();
    test_terms_beyond_their_limits_are_refused();
    printf("foreign: all passed\n");
    return 0;
}
