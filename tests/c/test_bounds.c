/* test_bounds.c - what a queue does by itself at its bounds: bytes are counted from what was never
 * counted before, more must go than goes at once, there is no room for what it has to write. On a
 * simulated disk, whose clock stands still. Usage: test_bounds <directory>
 */
#include "corner.h"
#include "queue/queue_private.h"

#define SECOND UINT64_C(1000000)

static uint8_t payload[100];

static int64_t get_one(qi_queue *queue, uint64_t *req_id) {
    qi_reader reader = {.queue = queue, .payload = payload, .room = sizeof payload};
    int64_t got = qi_get(&reader);
    *req_id = reader.message.req_id;
    return got;
}

/* A file of queue a, behind the engine's back. */
static void cut_file(struct corner *corner, const char *name, uint64_t size) {
    struct qi_disk *disk = &corner->sim->disk;
    int file = disk->ops->open(disk, corner->a->dir, name, QI_OPEN_WRITE);
    assert(file >= 0 && disk->ops->truncate(disk, file, size) == 0);
    disk->ops->close(disk, file);
    corner->a->window_length = 0;
}

static int64_t set_bound(struct corner *corner) {
    return qi_queue_set_rules(corner->a, &(qi_rules){.max_bytes = 1000});
}

/* ---- a call that never waits ---- */

static struct qi_disk_ops real, ours;
static int reads;

static int64_t read_and_count(struct qi_disk *disk, int file, void *data, size_t size,
                              uint64_t offset) {
    reads++;
    return real.read(disk, file, data, size, offset);
}

static void count_reads(struct corner *corner) {
    real = ours = *corner->sim->disk.ops;
    ours.read = read_and_count;
    corner->sim->disk.ops = &ours;
    reads = 0;
}

static int64_t publish_now(struct corner *corner) {
    return qi_publish_now(corner->a, &(struct qi_given){.body = "0123456789", .body_size = 10});
}

/* As after a time of rest, or an open. */
static void cool(struct corner *corner) {
    struct qi_segments *segments = &corner->a->segments;
    assert(qi_flush(corner->a) == 0);
    for (uint32_t i = 0; i < segments->count; i++)
        if (segments->items[segments->start + i].hot)
            qi_segment_cool(segments->items + segments->start + i);
}

/* It drops the head of a full queue from memory; it does not read the disk for that, nor for the
 * bytes of what is there, nor does it bring down what is far over a new bound. */
static void test_a_publish_that_may_not_wait_reads_no_segment(void) {
    for (int in_bytes = 0; in_bytes < 2; in_bytes++) {
        struct corner corner = corner_new();
        qi_rules rules = {.overflow = QI_DROP_HEAD};
        rules.max_messages = in_bytes ? 0 : 20, rules.max_bytes = in_bytes ? 200 : 0;
        publish_many(corner.a, 20);
        assert(qi_queue_set_rules(corner.a, &rules) == 0);
        cool(&corner);
        count_reads(&corner);
        assert(publish_now(&corner) == QI_BUSY && stats_of(corner.a).depth == 20);
        assert(reads == 0);
        assert(qi_publish(corner.a, "0123456789", 10) == 20 && reads > 0);
        reads = 0;
        assert(publish_now(&corner) == 21 && stats_of(corner.a).depth == 20);
        assert(reads == 0);
        rules.max_messages /= 2, rules.max_bytes /= 2;
        assert(qi_queue_set_rules(corner.a, &rules) == 0);
        assert(publish_now(&corner) == QI_BUSY && stats_of(corner.a).depth == 20);
        corner_end(&corner);
    }
}

/* After a kill: the journal says of the segment only what was delivered since its file was
 * written. */
static void test_a_publish_that_may_not_wait_reads_no_segment_that_has_news(void) {
    struct corner corner = corner_new();
    qi_rules rules = {.overflow = QI_DROP_HEAD, .max_messages = 8};
    uint64_t id;
    publish_many(corner.a, 8);
    assert(qi_flush(corner.a) == 0 && get_one(corner.a, &id) == 10);
    assert(qi_queue_sync(corner.a) == 0);
    qi_store_free(corner.store);
    open_with(&corner, usual());
    const struct qi_segment *segment = qi_segment_find(&corner.a->segments, 0);
    assert(segment->hot && !segment->hot->loaded);
    assert(qi_queue_set_rules(corner.a, &rules) == 0);
    count_reads(&corner);
    assert(publish_now(&corner) == QI_BUSY && stats_of(corner.a).depth == 8 && reads == 0);
    assert(qi_publish(corner.a, "0123456789", 10) >= 8 && reads > 0);
    assert(stats_of(corner.a).depth == 8 && get_one(corner.a, &id) == 10 && id == 1);
    corner_end(&corner);
}

/* What is due goes last of all, and is read by who may wait. */
static void test_a_publish_that_may_not_wait_reads_nothing_that_is_due(void) {
    struct corner corner = corner_new();
    qi_rules rules = {.overflow = QI_DROP_HEAD, .max_messages = 2};
    uint64_t id, later = now_of(&corner) + 600 * SECOND;
    for (int i = 0; i < 2; i++)
        assert(qi_publish_with(corner.a, NULL, 0, "due", 3, 0, 0, later) > 0);
    assert(qi_queue_set_rules(corner.a, &rules) == 0);
    cool(&corner);
    qi_sim_advance(corner.sim, 601 * SECOND);
    count_reads(&corner);
    assert(publish_now(&corner) == QI_BUSY && reads == 0 && corner.a->depth == 2);
    assert(qi_publish(corner.a, "0123456789", 10) >= 0 && reads > 0);
    assert(stats_of(corner.a).depth == 2 && get_one(corner.a, &id) == 3);
    assert(get_one(corner.a, &id) == 10 && get_one(corner.a, &id) == QI_EMPTY);
    corner_end(&corner);
}

static void test_a_publish_that_may_not_wait_measures_nothing(void) {
    qi_options options = usual();
    options.max_bytes = 1000;
    struct corner corner = corner_with(options);
    publish_many(corner.b, 8);
    assert(qi_publish_now(corner.b, &(struct qi_given){.body = "0123456789", .body_size = 10}) ==
           8);
    corner.b->measured = false;
    assert(qi_publish_now(corner.b, &(struct qi_given){.body = "0123456789", .body_size = 10}) ==
           QI_BUSY);
    corner.b->measured = true;
    corner_end(&corner);
}

/* ---- bytes ---- */

/* Who gets them is told that they are gone; a bound is about what is there. */
static void test_messages_that_cannot_be_read_have_no_bytes(void) {
    struct corner corner = corner_new();
    qi_message message;
    publish_many(corner.a, 8);
    assert(qi_flush(corner.a) == 0);
    corner.a->window_length = 0;
    qi_sim_fault(corner.sim, 1, QI_SIM_EIO, true); /* they may be there */
    assert(set_bound(&corner) == QI_E_IO && stats_of(corner.a).bytes == UINT64_MAX);
    qi_sim_fault(corner.sim, 0, 0, false);
    cut_file(&corner, "0.idx", QI_SEGMENT_START + QI_FRAME_HEADER + 100);
    assert(set_bound(&corner) == 0);
    assert(stats_of(corner.a).bytes < 80 && stats_of(corner.a).bytes % 10 == 0);
    assert(qi_browse(corner.a, 7, false, &message, payload, sizeof payload) == QI_E_CORRUPT);
    assert(stats_of(corner.a).depth == 8);
    assert(qi_queue_delete(corner.a) == 0 && set_bound(&corner) == QI_E_CLOSED);
    corner_end(&corner);
}

/* Segments in files, whose summaries do not know what was acked since, and one in the journal
 * alone. */
static struct corner never_measured(qi_options options) {
    struct corner corner = corner_with(options);
    uint64_t ids[8];
    publish_many(corner.a, 20);
    assert(qi_flush(corner.a) == 0);
    assert(get_many(corner.a, 3, ids) == 3 && qi_ack_many(corner.a, ids, NULL, 3) == 0);
    assert(qi_flush(corner.a) == 0);
    publish_many(corner.a, 8);
    assert(qi_queue_sync(corner.a) == 0);
    qi_store_free(corner.store); /* a kill */
    open_with(&corner, options);
    return corner;
}

/* `measure` is what needs the bytes of queue a. Each call and each allocation fails in turn: it
 * says so, nothing is counted, and the next try counts right. */
static void measure_where_something_fails(qi_options options, int64_t (*measure)(struct corner *),
                                          uint64_t bytes) {
    for (int memory = 0; memory < 2; memory++) {
        bool failed = true;
        for (uint64_t call = 1; failed; call++) {
            struct corner corner = never_measured(options);
            allocations.calls = allocations.failed = 0;
            if (memory)
                allocations.fail_at = call;
            else
                qi_sim_fault(corner.sim, call, QI_SIM_EIO, false);
            int64_t got = measure(&corner);
            failed = memory ? allocations.failed > 0 : corner.sim->fault_hits > 0;
            allocations.fail_at = 0;
            qi_sim_fault(corner.sim, 0, 0, false);
            assert(got >= 0 || failed);
            assert(got >= 0 || got == (memory ? QI_E_MEMORY : QI_E_IO) || got == QI_E_FAILED);
            if (!corner.store->failed) {
                assert(corner.a->measured || stats_of(corner.a).bytes == UINT64_MAX);
                assert(got >= 0 || measure(&corner) >= 0);
                assert(stats_of(corner.a).bytes == bytes && corner.store->bytes == bytes);
                assert(!check_says(&corner, "byte"));
            }
            corner_end(&corner);
        }
    }
}

static int64_t publish_one(struct corner *corner) {
    return qi_publish(corner->a, "12345", 5);
}

static void test_bytes_are_counted_again_when_something_failed(void) {
    measure_where_something_fails(usual(), set_bound, 250);
    qi_options options = usual();
    options.max_bytes = 10000; /* of the whole store: the first publish needs them */
    measure_where_something_fails(options, publish_one, 255);
}

static void test_check_recounts_bytes(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 8);
    assert(qi_flush(corner.a) == 0 && set_bound(&corner) == 0);
    struct qi_segment *segment = qi_segment_find(&corner.a->segments, 0);
    assert(!check_says(&corner, ""));
    segment->bytes++;
    assert(check_says(&corner, "81 bytes were counted, 80 are there"));
    segment->bytes--;
    corner.a->bytes++;
    assert(check_says(&corner, "81 bytes wait, but 80 were counted"));
    corner.a->bytes--;
    cut_file(&corner, "0.idx", QI_SEGMENT_START + QI_FRAME_HEADER + 100);
    assert(!check_says(&corner, "are there")); /* what cannot be read is not compared */
    corner_end(&corner);
}

static void test_a_reader_counts_no_bytes(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 8);
    assert(qi_store_close(corner.store) == 0);
    qi_store_free(corner.store);
    qi_options options = usual();
    options.read_only = true;
    options.create = false;
    open_with(&corner, options);
    assert(set_bound(&corner) == 0 && stats_of(corner.a).bytes == UINT64_MAX);
    assert(publish_one(&corner) == QI_E_READ_ONLY);
    corner_end(&corner);
}

/* ---- more than goes at once ---- */

#define MANY 140000u /* more than 2^17 */

static struct corner with_many(void) {
    static uint8_t bodies[MANY];
    static uint32_t sizes[MANY];
    qi_options options = usual();
    options.segment_entries = 16384;
    options.max_journal_entries = 1 << 20;
    options.max_journal_bytes = 64 << 20;
    struct corner corner = corner_with(options);
    for (uint32_t i = 0; i < MANY; i++)
        sizes[i] = 1;
    assert(qi_publish_many(corner.a, MANY, bodies, sizes, NULL, NULL, 0, 0, 0, NULL, NULL) == 0);
    qi_rules rules = {.max_messages = MANY, .overflow = QI_DROP_HEAD};
    assert(qi_queue_set_rules(corner.a, &rules) == 0);
    assert(qi_publish_many(corner.a, MANY, bodies, sizes, NULL, NULL, 0, 0, 0, NULL, NULL) ==
           QI_E_QUEUE_FULL);
    assert(strstr(qi_error_text(), "publish less at a time"));
    assert(stats_of(corner.a).depth == MANY);
    return corner;
}

static void test_a_queue_far_over_its_bound_comes_down_in_parts(void) {
    struct corner corner = with_many();
    qi_rules rules = {.max_messages = 10, .overflow = QI_DROP_HEAD};
    assert(qi_queue_set_rules(corner.a, &rules) == 0);
    qi_sim_fault(corner.sim, 1, QI_SIM_ENOSPC, true); /* their acks need room */
    assert(qi_publish(corner.a, "new", 3) == QI_E_FULL);
    qi_sim_fault(corner.sim, 0, 0, false);
    assert(stats_of(corner.a).depth == MANY);
    assert(qi_publish(corner.a, "new", 3) == MANY);
    assert(stats_of(corner.a).depth == 10);
    corner_end(&corner);
}

/* ---- no room ---- */

static int64_t publish_over_the_bound(struct corner *corner) {
    return qi_publish(corner->a, "x", 1);
}
static int64_t get(struct corner *corner) {
    uint64_t id;
    return get_one(corner->a, &id);
}
static int64_t get_newest(struct corner *corner) {
    qi_reader reader = {.queue = corner->a, .payload = payload, .room = sizeof payload};
    return qi_get_newest(&reader);
}
static int64_t redrive(struct corner *corner) {
    return qi_redrive(corner->a, 10);
}
static int64_t purge(struct corner *corner) {
    return qi_purge(corner->a, QI_PURGE_ALL);
}
static int64_t expire(struct corner *corner) {
    return qi_expire(corner->a);
}

/* The journal has so little room that every event has to make some, and the disk gives none. */
static void test_verbs_without_room_change_nothing(void) {
    static int64_t (*const verbs[])(struct corner *) = {
        publish_over_the_bound, get, get_newest, redrive, purge, expire};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        struct corner corner = corner_new();
        uint64_t id, soon = qi_store_now_us(corner.store) + SECOND;
        publish_many(corner.a, 6);
        assert(qi_publish_with(corner.a, NULL, 0, "mortal", 6, 0, soon, 0) == 6);
        qi_rules rules = {.max_messages = 2, .overflow = QI_DROP_HEAD, .dead_letters = true};
        assert(qi_queue_set_rules(corner.a, &rules) == 0);
        assert(get_one(corner.a, &id) == 10 &&
               qi_settle_all(corner.a, QI_SETTLE_REJECT, &id, NULL, 1, 0) == 0);
        qi_sim_advance(corner.sim, 2 * SECOND);
        struct qi_tape *tape = &qi_current(corner.a)->tape;
        uint64_t mapped = tape->mapped;
        tape->mapped = tape->allocated;
        qi_sim_fault(corner.sim, 1, QI_SIM_ENOMEM, true);
        assert(verbs[i](&corner) == QI_E_MEMORY);
        qi_sim_fault(corner.sim, 0, 0, false);
        assert(!corner.store->failed);
        tape->mapped = mapped;
        qi_queue_stats stats = stats_of(corner.a);
        assert(stats.depth == 7 && stats.dead == 1 && stats.unacked == 0);
        assert(verbs[i](&corner) >= 0);
        corner_end(&corner);
    }
}

/* Both journals together must fit into what is kept free for their flushes; one without news may be
 * as long as it is. */
static void test_a_long_journal_has_no_room_if_there_is_news_in_it(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 1);
    struct qi_journal *journal = qi_current(corner.a);
    uint64_t tail = journal->tail;
    assert(qi_has_room(corner.a, 100, 1));
    journal->tail = 1 << 20;
    assert(!qi_has_room(corner.a, 100, 1));
    corner.a->dirty_count = 0;
    assert(qi_has_room(corner.a, 100, 1));
    corner.a->dirty_count = 1;
    journal->tail = tail;
    assert(qi_publish(corner.a, "x", 1) == 1);
    corner_end(&corner);
}

/* Not even the MARK fits that a rotation puts at the end: it is only less sure what was durable. */
static void test_a_journal_that_is_full_to_the_end_is_flushed(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 4);
    assert(qi_queue_sync(corner.a) == 0);
    struct qi_journal *journal = qi_current(corner.a);
    journal->tape.mapped = journal->tape.allocated = journal->tape.ready =
        journal->tail + QI_FRAME_HEADER;
    assert(qi_flush(corner.a) == 0 && qi_current(corner.a) != journal);
    qi_store_free(corner.store);
    open_with(&corner, usual());
    assert(stats_of(corner.a).depth == 4 && !check_says(&corner, ""));
    corner_end(&corner);
}

/* A disk that was full: publishes wait until it has the reserve again, events do not. */
static void test_who_was_short_of_space_goes_on_when_there_is_some(void) {
    struct corner corner = corner_new();
    uint64_t id;
    publish_many(corner.a, 4);
    corner.sim->knobs.capacity = 1 << 20; /* less than publishes must leave */
    assert(qi_flush(corner.a) == 0 && corner.a->short_of_space);
    assert(qi_publish(corner.a, "x", 1) == QI_E_FULL);
    struct qi_tape *tape = &qi_current(corner.a)->tape;
    tape->mapped = tape->allocated; /* the next event needs another journal */
    assert(get_one(corner.a, &id) == 10 && qi_ack(corner.a, id, 0) == 0);
    assert(qi_publish(corner.a, "x", 1) == QI_E_FULL && stats_of(corner.a).depth == 3);
    corner.sim->knobs.capacity = UINT64_C(1) << 30;
    assert(qi_publish(corner.a, "x", 1) == 4 && !corner.a->short_of_space);
    corner_end(&corner);
}

/* ---- what expires ---- */

static void test_the_shorter_of_two_times_counts(void) {
    struct corner corner = corner_new();
    uint64_t now = qi_store_now_us(corner.store), ttl[3] = {9 * SECOND, SECOND, 0};
    qi_message message;
    assert(qi_queue_set_rules(corner.a, &(qi_rules){.ttl_us = 5 * SECOND}) == 0);
    for (int i = 0; i < 3; i++) {
        uint64_t expiry = ttl[i] ? now + ttl[i] : 0;
        assert(qi_publish_with(corner.a, NULL, 0, "x", 1, 0, expiry, 0) == i);
        assert(qi_browse(corner.a, (uint64_t)i, false, &message, payload, sizeof payload) == 1);
        assert(message.expiry_us == now + (i == 1 ? SECOND : 5 * SECOND));
    }
    corner_end(&corner);
}

/* A dead letter that is taken back is delivered once more, though it has expired. */
static void test_what_was_redriven_stays_when_others_expire(void) {
    struct corner corner = corner_new();
    uint64_t id, now = qi_store_now_us(corner.store);
    assert(qi_queue_set_rules(corner.a, &(qi_rules){.dead_letters = true}) == 0);
    for (int i = 0; i < 2; i++)
        assert(qi_publish_with(corner.a, NULL, 0, "x", 1, 0, now + (i ? 5 : 1) * SECOND, 0) == i);
    qi_sim_advance(corner.sim, 2 * SECOND);
    assert(qi_expire(corner.a) == 1 && qi_redrive(corner.a, 10) == 1);
    qi_sim_advance(corner.sim, 5 * SECOND);
    assert(qi_expire(corner.a) == 1);
    assert(stats_of(corner.a).dead == 1 && get_one(corner.a, &id) == 1 && id == 0);
    corner_end(&corner);
}

static void test_a_record_that_is_gone_does_not_expire(void) {
    struct corner corner = corner_new();
    uint64_t ids[1];
    uint64_t soon = qi_store_now_us(corner.store) + SECOND;
    for (int i = 0; i < 8; i++)
        assert(qi_publish_with(corner.a, NULL, 0, "mortal", 6, 0, soon, 0) == i);
    assert(get_many(corner.a, 1, ids) == 1); /* its maps stay in memory */
    assert(qi_flush(corner.a) == 0);
    cut_file(&corner, "0.idx", QI_SEGMENT_START + QI_FRAME_HEADER + 100);
    qi_sim_advance(corner.sim, 2 * SECOND);
    int64_t left = qi_expire(corner.a);
    uint64_t depth = stats_of(corner.a).depth;
    assert(left >= 0 && left < 7 && depth == 8 - (uint64_t)left);
    assert(get(&corner) == QI_E_CORRUPT && qi_error_req_id() >= 0);
    corner_end(&corner);
}

/* ---- and no such message ---- */

static void test_only_what_is_there_becomes_a_dead_letter(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 2);
    const uint64_t ids[2] = {1, 99};
    qi_lock(corner.store);
    assert(qi_bury(corner.a, ids, 2, QI_DEAD_FULL) == QI_E_UNKNOWN && corner.a->dead == 0);
    assert(qi_bury(corner.a, ids, 1, QI_DEAD_FULL) == 0 && corner.a->dead == 1);
    qi_unlock(corner.store);
    corner_end(&corner);
}

static void test_a_range_with_gaps_is_refused_or_passed_over(void) {
    qi_options options = usual();
    options.index_only = true;
    struct corner corner = corner_with(options);
    qi_message messages[4];
    assert(qi_index_publish(corner.a, 4, NULL, NULL, 0) == 0);
    assert(qi_index_deliver(corner.a, NULL, 4, 100) == QI_E_UNKNOWN);
    assert(qi_index_ack(corner.a, NULL, 6, 2) == QI_E_UNKNOWN);
    assert(stats_of(corner.a).depth == 4);
    assert(qi_index_ack(corner.a, NULL, 1, 2) == 0);
    assert(qi_index_read(corner.a, 2, 3, messages, 4) == 0); /* the next one is behind */
    assert(qi_index_read(corner.a, 2, 4, messages, 4) == 1 && messages[0].req_id == 3);
    corner_end(&corner);
}

static void test_a_queue_that_is_gone_has_no_age(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 1);
    assert(qi_oldest_us(corner.a) >= 0);
    assert(qi_queue_delete(corner.a) == 0 && qi_oldest_us(corner.a) == QI_E_CLOSED);
    assert(qi_oldest_us(corner.b) == QI_EMPTY);
    assert(qi_store_close(corner.store) == 0 && qi_oldest_us(corner.b) == QI_E_CLOSED);
    corner_end(&corner);
}

/* ---- many files ---- */

/* The first of them cannot be written: the others are not begun, and the next flush writes all. */
static void test_a_flush_of_many_segments_stops_at_an_error(void) {
    qi_options options = usual();
    options.max_journal_entries = 1 << 20;
    options.max_journal_bytes = 8 << 20;
    struct corner corner = corner_with(options);
    publish_many(corner.a, 512);
    publish_many(corner.a, 500);
    qi_lock(corner.store);
    assert(qi_flush_begin(corner.a, 0, 0) == 0);
    qi_unlock(corner.store);
    qi_sim_fault(corner.sim, 2, QI_SIM_ENOSPC, true);
    assert(qi_flush(corner.a) == QI_E_FULL);
    qi_sim_fault(corner.sim, 0, 0, false);
    assert(!corner.store->failed && qi_flush(corner.a) == 0);
    qi_store_free(corner.store);
    open_with(&corner, options);
    assert(stats_of(corner.a).depth == 1012 && !check_says(&corner, ""));
    corner_end(&corner);
}

int main(void) {
    test_a_publish_that_may_not_wait_reads_no_segment();
    test_a_publish_that_may_not_wait_reads_no_segment_that_has_news();
    test_a_publish_that_may_not_wait_reads_nothing_that_is_due();
    test_a_publish_that_may_not_wait_measures_nothing();
    test_messages_that_cannot_be_read_have_no_bytes();
    test_bytes_are_counted_again_when_something_failed();
    test_check_recounts_bytes();
    test_a_reader_counts_no_bytes();
    test_a_queue_far_over_its_bound_comes_down_in_parts();
    test_verbs_without_room_change_nothing();
    test_a_long_journal_has_no_room_if_there_is_news_in_it();
    test_a_journal_that_is_full_to_the_end_is_flushed();
    test_who_was_short_of_space_goes_on_when_there_is_some();
    test_the_shorter_of_two_times_counts();
    test_what_was_redriven_stays_when_others_expire();
    test_a_record_that_is_gone_does_not_expire();
    test_only_what_is_there_becomes_a_dead_letter();
    test_a_range_with_gaps_is_refused_or_passed_over();
    test_a_queue_that_is_gone_has_no_age();
    test_a_flush_of_many_segments_stops_at_an_error();
    printf("bounds: all passed\n");
    return 0;
}
