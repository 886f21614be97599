/* test_rewrites.c - segments: their table, files that are written anew where something fails, and
 * big ones. On a simulated disk. Usage: test_rewrites <directory>
 */
#undef NDEBUG
#define ALLOCATIONS_REAL
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "index/index.h"
#include "proof/explore/allocations.h"
#include "proof/sim/disk_sim.h"
#include "queue/queue.h"
#include "usual.h"

struct written {
    qi_sim *sim;
    qi_store *store;
    qi_queue *queue;
};

static uint8_t body[2 << 20];

static void open_it(struct written *written, qi_options options) {
    assert(qi_store_open_sim(written->sim, &options, &written->store) == 0);
    assert(qi_queue_open(written->store, "a", 1, A, true, &written->queue) == 0);
}

static void end(struct written *written) {
    qi_store_free(written->store);
    qi_sim_free(written->sim);
}

static uint64_t depth_of(struct written *written) {
    qi_queue_stats stats;
    assert(qi_queue_stats_of(written->queue, &stats) == 0);
    return stats.depth;
}

/* Publishes, flushes, and acks all of each segment but for one message; flushes again. */
static struct written mostly_acked(qi_options options, uint32_t count, uint32_t size) {
    struct written written = {.sim = qi_sim_new(1, NULL)};
    static uint8_t payload[2 << 20];
    open_it(&written, options);
    for (uint32_t i = 0; i < count; i++)
        assert(qi_publish(written.queue, body, size) == i);
    assert(qi_flush(written.queue) == 0);
    qi_reader reader = {.queue = written.queue, .payload = payload, .room = sizeof payload};
    for (uint32_t i = 0; i < count; i++) {
        assert(qi_get(&reader) == size);
        if (i % options.segment_entries)
            assert(qi_ack(written.queue, reader.message.req_id, 0) == 0);
    }
    assert(qi_flush(written.queue) == 0 && qi_store_close(written.store) == 0);
    qi_store_free(written.store);
    open_it(&written, options);
    return written;
}

static int rewrite(struct written *written, int64_t *freed) {
    *freed = 0;
    qi_lock(written->store);
    int error = qi_rewrite_segments(written->queue, 50, freed);
    qi_unlock(written->store);
    return error;
}

/* ---- the table ---- */

static void test_the_table_of_segments_is_sorted_however_they_come(void) {
    static const uint64_t numbers[] = {10, 20, 30, 40, 50, 60, 70, 80, 15, 5, 55, 90, 85, 1, 33};
    struct qi_segments segments = {0};
    for (size_t i = 0; i < 8; i++)
        assert(qi_segment_make(&segments, numbers[i])->number == numbers[i]);
    qi_segment_remove(&segments, 10);
    qi_segment_remove(&segments, 20); /* the front is free now */
    for (size_t i = 8; i < sizeof numbers / sizeof *numbers; i++)
        assert(qi_segment_make(&segments, numbers[i])->number == numbers[i]);
    static const uint64_t sorted[] = {1, 5, 15, 30, 33, 40, 50, 55, 60, 70, 80, 85, 90};
    assert(segments.count == sizeof sorted / sizeof *sorted);
    for (uint32_t i = 0; i < segments.count; i++)
        assert(segments.items[segments.start + i].number == sorted[i]);
    qi_segments_clear(&segments);
}

/* What a flaky medium loses and finds again is counted up to what a MANIFEST can say. */
static void test_counts_stay_at_their_highest(void) {
    struct qi_store store = {0};
    struct qi_queue queue = {.store = &store};
    struct qi_segment segment = {.unacked = 5, .flushed_unacked = UINT16_MAX - 1};
    qi_segment_found(&queue, &segment, 8, 0);
    assert(segment.flushed_unacked == UINT16_MAX && segment.unacked == 8);
}

/* ---- files that are written anew ---- */

/* Every call and every allocation of a rewrite fails in turn, also with a full disk: the messages
 * stay, and when nothing fails any more, so does the garbage not. */
static void test_a_rewrite_that_fails_takes_nothing_away(void) {
    static const int kinds[] = {QI_SIM_EIO, QI_SIM_ENOSPC, 0};
    for (size_t kind = 0; kind < 3; kind++) {
        bool failed = true;
        for (uint64_t at = 1; failed; at++) {
            struct written written = mostly_acked(usual(), 24, 30);
            int64_t freed;
            allocations = (struct allocations){.fail_at = kinds[kind] ? 0 : at};
            uint64_t last = written.sim->calls + at;
            if (kinds[kind])
                qi_sim_fault(written.sim, at, kinds[kind], false);
            int error = rewrite(&written, &freed);
            failed = kinds[kind] ? written.sim->calls >= last : allocations.failed > 0;
            qi_sim_fault(written.sim, 0, 0, false);
            allocations.fail_at = 0;
            assert(failed || (error == 0 && freed > 0));
            if (!written.store->failed) {
                assert(depth_of(&written) == 3);
                assert(qi_publish(written.queue, body, 10) >= 24);
            }
            qi_store_free(written.store);
            open_it(&written, usual());
            assert(depth_of(&written) >= 3 && rewrite(&written, &freed) == 0);
            assert(qi_store_check(written.store) == 0);
            end(&written);
        }
    }
}

/* Delayed messages, or such with a body of `size`, in a segment that nobody has read since. */
static struct written cold_and_delayed(uint32_t size) {
    struct written written = {.sim = qi_sim_new(1, NULL)};
    open_it(&written, usual());
    uint64_t due_us = written.sim->wall_us + UINT64_C(3600000000);
    for (int i = 0; i < 3; i++)
        assert(qi_publish_with(written.queue, NULL, 0, body, size, 0, 0, due_us) >= 0);
    if (size > usual().embed_below) {
        int64_t other = 0;
        for (int i = 0; i < 9; i++)
            assert((other = qi_publish(written.queue, body, size)) >= 0 &&
                   qi_delete(written.queue, (uint64_t)other) == 0);
    }
    assert(qi_flush(written.queue) == 0 && qi_store_close(written.store) == 0);
    qi_store_free(written.store);
    open_it(&written, usual());
    assert(qi_segment_nth(&written.queue->segments, 0)->delayed > 0);
    return written;
}

static int compact_or_rewrite(struct written *written, bool compact) {
    int64_t freed;
    return compact ? (int)qi_store_compact(written->store, 20) : rewrite(written, &freed);
}

/* There is no memory for the maps of such a segment, so that there are none to be given up: not by
 * a rewrite, nor by a compaction, which looks for the bodies' messages. */
static void test_a_segment_that_memory_did_not_suffice_for_stays_cold(void) {
    for (int compact = 0; compact < 2; compact++) {
        bool failed = true;
        for (uint64_t at = 1; failed; at++) {
            struct written written = cold_and_delayed(compact ? 1000 : 20);
            allocations = (struct allocations){.fail_at = at};
            int error = compact_or_rewrite(&written, compact);
            failed = allocations.failed > 0;
            allocations.fail_at = 0;
            assert(failed || error >= 0);
            if (written.store->failed) { /* later: in a flush */
                end(&written);
                continue;
            }
            assert(depth_of(&written) == 3 && compact_or_rewrite(&written, compact) >= 0);
            qi_sim_advance(written.sim, UINT64_C(7200000000));
            qi_reader reader = {.queue = written.queue, .payload = body, .room = sizeof body};
            for (int i = 0; i < 3; i++)
                assert(qi_get(&reader) > 0);
            end(&written);
        }
    }
}

static void test_a_rewrite_waits_until_there_is_space(void) {
    struct written written = mostly_acked(usual(), 24, 30);
    int64_t freed;
    written.sim->knobs.capacity = 1 << 20; /* less than publishes must leave */
    assert(rewrite(&written, &freed) == 0 && freed == 0 && depth_of(&written) == 3);
    written.sim->knobs.capacity = UINT64_C(1) << 30;
    assert(rewrite(&written, &freed) == 0 && freed > 0 && depth_of(&written) == 3);
    end(&written);
}

/* Since the queue was opened: the others are written anew, this one is told and kept for a
 * salvage. */
static void test_a_file_in_which_nothing_is_left_is_not_written_anew(void) {
    struct written written = mostly_acked(usual(), 24, 30);
    struct qi_disk *disk = &written.sim->disk;
    int64_t freed;
    int file = disk->ops->open(disk, written.queue->dir, "0.idx", QI_OPEN_WRITE);
    assert(file >= 0 && disk->ops->truncate(disk, file, 100) == 0);
    disk->ops->close(disk, file);
    assert(rewrite(&written, &freed) == 0 && freed > 0 && depth_of(&written) == 2);
    bool damage;
    const char *where, *text;
    uint64_t offset;
    assert(qi_store_finding(written.store, 0, &damage, &where, &offset, &text) == 0 && damage);
    file = disk->ops->open(disk, written.queue->dir, "0.bad", QI_OPEN_READ);
    assert(file >= 0);
    disk->ops->close(disk, file);
    end(&written);
}

/* ---- big ones ---- */

static qi_options big(void) {
    qi_options options = usual();
    options.embed_below = 2 << 20;
    options.max_journal_entries = 1000;
    options.max_journal_bytes = 64 << 20;
    return options;
}

/* More than one flush may hold in memory: they are written anew in groups. */
static void test_many_big_segments_are_written_anew_in_groups(void) {
    struct written written = mostly_acked(big(), 48, 1 << 20);
    int64_t freed;
    assert(rewrite(&written, &freed) == 0 && freed > 40 << 20 && depth_of(&written) == 6);
    end(&written);
}

/* Backwards, as a reader of the newest goes; and every call and allocation fails on the way. */
static void test_big_messages_are_read_backwards(void) {
    static uint8_t payload[1 << 20];
    struct written written = {.sim = qi_sim_new(1, NULL)};
    qi_message message;
    open_it(&written, big());
    for (int i = 0; i < 8; i++) {
        memset(body, 'a' + i, 700000);
        assert(qi_publish(written.queue, body, 700000) == i);
    }
    assert(qi_flush(written.queue) == 0 && qi_store_close(written.store) == 0);
    qi_store_free(written.store);
    bool failed = true;
    for (uint64_t at = 0; failed; at++) {
        open_it(&written, big());
        uint64_t last = written.sim->calls + at;
        qi_sim_fault(written.sim, at, at ? QI_SIM_ENOMEM : 0, false);
        for (uint64_t i = 8; i-- > 0;) {
            int64_t got = qi_browse(written.queue, i, false, &message, payload, sizeof payload);
            assert(got == 700000 || (at && got == QI_E_MEMORY));
            assert(got < 0 || (payload[0] == 'a' + i && payload[699999] == 'a' + i));
        }
        failed = at == 0 || written.sim->calls >= last;
        qi_sim_fault(written.sim, 0, 0, false);
        qi_store_free(written.store);
    }
    qi_sim_free(written.sim);
}

/* A batch that the next journal's mapping has no room for. */
static void test_a_batch_bigger_than_a_mapping_gets_a_bigger_one(void) {
    struct written written = {.sim = qi_sim_new(1, NULL)};
    uint32_t sizes[12];
    static uint8_t bodies[12 << 20];
    qi_options options = big();
    options.max_journal_bytes = 9000;
    open_it(&written, options);
    for (int round = 0; round < 3; round++) /* both journals are there */
        assert(qi_publish(written.queue, body, 100) == round && qi_flush(written.queue) == 0);
    for (int i = 0; i < 12; i++)
        sizes[i] = 1 << 20;
    assert(qi_publish_many(written.queue, 12, bodies, sizes, NULL, NULL, 0, 0, 0, NULL, NULL) == 3);
    assert(depth_of(&written) == 15);
    end(&written);
}

/* ---- a flush that fails behind its MANIFEST ---- */

static struct qi_disk_ops real, failing;
static bool unlink_fails;

static int unlink_or_not(struct qi_disk *disk, int dir, const char *name) {
    return unlink_fails ? -EIO : real.unlink(disk, dir, name);
}

/* Two dead segments whose files cannot be removed, and one with 8 messages that a MANIFEST names:
 * the flush failed. */
static struct written half_flushed(void) {
    struct written written = {.sim = qi_sim_new(1, NULL)};
    qi_options options = usual();
    uint64_t ids[16];
    options.max_journal_entries = 1000; /* nothing is flushed before it is asked for */
    options.max_journal_bytes = 1 << 20;
    open_it(&written, options);
    for (uint64_t i = 0; i < 16; i++)
        assert(qi_publish(written.queue, body, 10) == (int64_t)i);
    assert(qi_flush(written.queue) == 0);
    for (uint64_t i = 0; i < 16; i++) {
        qi_reader reader = {.queue = written.queue, .payload = body, .room = sizeof body};
        ids[i] = i;
        assert(qi_get(&reader) == 10);
    }
    assert(qi_ack_many(written.queue, ids, NULL, 16) == 0);
    for (uint64_t i = 16; i < 24; i++)
        assert(qi_publish(written.queue, body, 10) == (int64_t)i);
    real = *written.sim->disk.ops;
    failing = real;
    failing.unlink = unlink_or_not;
    written.sim->disk.ops = &failing;
    unlink_fails = true;
    assert(qi_flush(written.queue) == QI_E_IO);
    unlink_fails = false;
    return written;
}

/* Found in schedules of threads in which a call failed: the next try cut and wrote the segments
 * again that a durable MANIFEST named, so that a power cut in it took messages that had been
 * durable. */
static void test_what_a_manifest_names_is_not_written_again(void) {
    bool more = true;
    for (uint64_t n = 1; more; n++) {
        struct written written = half_flushed();
        qi_sim_crash_at(written.sim, n, 1, QI_SIM_MIXED);
        assert(qi_flush(written.queue) == 0 && depth_of(&written) == 8);
        struct written cut = {.sim = qi_sim_taken(written.sim)};
        written.sim->disk.ops = &real;
        more = cut.sim != NULL;
        end(&written);
        if (!more)
            break;
        open_it(&cut, usual());
        assert(depth_of(&cut) == 8 && qi_store_check(cut.store) == 0);
        end(&cut);
    }
}

int main(void) {
    test_the_table_of_segments_is_sorted_however_they_come();
    test_counts_stay_at_their_highest();
    test_a_rewrite_that_fails_takes_nothing_away();
    test_a_segment_that_memory_did_not_suffice_for_stays_cold();
    test_a_rewrite_waits_until_there_is_space();
    test_a_file_in_which_nothing_is_left_is_not_written_anew();
    test_many_big_segments_are_written_anew_in_groups();
    test_big_messages_are_read_backwards();
    test_a_batch_bigger_than_a_mapping_gets_a_bigger_one();
    test_what_a_manifest_names_is_not_written_again();
    printf("rewrites: all passed\n");
    return 0;
}
