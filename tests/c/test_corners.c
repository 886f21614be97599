/* test_corners.c - what callers seldom do: every verb when it must be refused, arguments at their
 * limits, counters that a bug has broken. On a simulated disk. Usage: test_corners
 * <directory> */
#include "corner.h"
#include "durable/durable.h"
#include "index/index.h"
#include "now.h"
#include "queue/queue.h"
#include "store/store.h"

/* ---- refused ---- */

/* Every verb that writes says so and no more. */
static void writers_say(struct corner *corner, qi_queue *queue, int code) {
    uint8_t payload[100], body[10] = {0};
    uint64_t ids[2] = {0, 1};
    uint32_t sizes[2] = {5, 5};
    qi_message messages[2];
    qi_queue *queues[1] = {queue};
    qi_reader reader = {.queue = queue, .payload = payload, .room = sizeof payload};
    assert(qi_publish(queue, body, 10) == code);
    assert(qi_publish_with(queue, NULL, 0, body, 10, 0, 0, 0) == code);
    assert(qi_publish_many(queue, 2, body, sizes, NULL, NULL, 0, 0, 0, NULL, NULL) == code);
    assert(qi_store_publish(corner->store, queues, 1, NULL, 0, body, 10, 0, 0, 0, 0, false, ids) ==
           code);
    assert(qi_get(&reader) == code);
    assert(qi_get_many(queue, 2, messages, payload, sizeof payload, ids, 0) == code);
    ids[0] = 0, ids[1] = 1;
    assert(qi_ack(queue, 0, 0) == code);
    assert(qi_ack_many(queue, ids, NULL, 2) == code);
    assert(qi_nack_many(queue, ids, NULL, 2, 0) == code);
    assert(qi_purge(queue, QI_PURGE_ALL) == code);
    assert(qi_flush(queue) == code);
    assert(qi_queue_sync(queue) == code);
    assert(qi_index_publish(queue, 2, NULL, NULL, 0) == code);
    assert(qi_index_deliver(queue, ids, 2, 0) == code);
    assert(qi_index_ack(queue, NULL, 2, 0) == code);
    assert(qi_get_newest(&reader) == code);
    assert(qi_settle_all(queue, QI_SETTLE_REJECT, ids, NULL, 2, 0) == code);
    assert(qi_touch(queue, 0, 0, 1000) == code);
    assert(qi_reschedule(queue, 0, 1000) == code);
    assert(qi_delete(queue, 0) == code);
    assert(qi_redrive(queue, 10) == code);
    assert(qi_expire(queue) == code);
    assert(qi_queue_delete(queue) == code);
    assert(qi_publish_now(queue, &(struct qi_given){.body = body, .body_size = 10}) == QI_BUSY);
    assert(get_now(queue, messages, payload, sizeof payload, 0) == QI_BUSY);
    assert(qi_ack_now(queue, 0, 0) == QI_BUSY);
    assert(qi_settle_now(queue, QI_SETTLE_NACK, ids, NULL, 2, 0) == QI_BUSY);
    assert(qi_touch_now(queue, 0, 0, 1000) == QI_BUSY);
    assert(qi_store_publish_now(corner->store, queues, 1, &(struct qi_given){.body = body}, false,
                                ids) == QI_BUSY);
}

static void readers_say(struct corner *corner, qi_queue *queue, int code) {
    uint8_t payload[100];
    qi_message messages[2];
    qi_queue_stats stats;
    (void)corner;
    assert(qi_browse(queue, 0, false, messages, payload, sizeof payload) == code);
    assert(qi_index_read(queue, 0, 10, messages, 2) == code);
    assert(qi_queue_stats_of(queue, &stats) == code);
}

static void store_says(struct corner *corner, int code) {
    qi_store_stats stats;
    assert(qi_store_sync(corner->store) == code);
    assert(qi_store_compact(corner->store, 50) == code);
    assert(qi_store_tick(corner->store) == code);
    if (code == QI_E_READ_ONLY)
        return;
    assert(qi_store_stats_of(corner->store, &stats) == code);
    assert(qi_store_queues(corner->store) == code);
    assert(qi_store_check(corner->store) == code);
    qi_queue *queue;
    assert(qi_queue_open(corner->store, "a", 1, A, true, &queue) == code);
}

static void test_a_failed_store_refuses_everything(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 4);
    corner.sim->fail_sync = 1;
    assert(qi_queue_sync(corner.a) == QI_E_OUTCOME);
    assert(qi_queue_sync(corner.b) == QI_E_FAILED);
    writers_say(&corner, corner.a, QI_E_FAILED);
    readers_say(&corner, corner.a, QI_E_FAILED);
    store_says(&corner, QI_E_FAILED);
    assert(qi_store_close(corner.store) == QI_E_FAILED);
    corner_end(&corner);
}

static void test_a_closed_store_refuses_everything(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 4);
    assert(qi_store_close(corner.store) == 0);
    writers_say(&corner, corner.a, QI_E_CLOSED);
    readers_say(&corner, corner.a, QI_E_CLOSED);
    store_says(&corner, QI_E_CLOSED);
    assert(qi_store_close(corner.store) == 0);
    corner_end(&corner);
}

static void test_a_deleted_queue_refuses_everything(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 4);
    assert(qi_queue_delete(corner.a) == 0);
    writers_say(&corner, corner.a, QI_E_CLOSED);
    readers_say(&corner, corner.a, QI_E_CLOSED);
    assert(qi_store_sync(corner.store) == 0); /* the store goes on */
    assert(qi_store_queues(corner.store) == 2);
    char name[8], directory[33];
    assert(qi_store_queue_name(corner.store, 0, name, sizeof name, directory) == QI_E_MISSING);
    assert(qi_store_queue_name(corner.store, 1, name, 0, directory) == QI_E_MISSING);
    assert(qi_store_queue_name(corner.store, 1, name, sizeof name, directory) == 1);
    assert(qi_store_queue_name(corner.store, 2, name, sizeof name, directory) == QI_E_MISSING);
    assert(qi_store_compact(corner.store, 50) >= 0);
    corner_end(&corner);
}

static void test_a_reader_refuses_what_writes(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 4);
    assert(qi_store_close(corner.store) == 0);
    qi_store_free(corner.store);
    qi_options options = usual();
    options.read_only = options.worker = true; /* it gets none */
    options.create = false;
    open_with(&corner, options);
    writers_say(&corner, corner.a, QI_E_READ_ONLY);
    store_says(&corner, QI_E_READ_ONLY);
    qi_queue *queue;
    assert(qi_queue_open(corner.store, "c", 1, C, true, &queue) == QI_E_MISSING);
    corner_end(&corner);
}

/* Embedded or stored; UBSan sees what is copied to no place. */
static void test_an_empty_message_needs_no_room(void) {
    for (uint32_t embed_below = 0; embed_below <= 64; embed_below += 64) {
        qi_options options = usual();
        options.embed_below = embed_below;
        struct corner corner = corner_with(options);
        qi_message message;
        assert(qi_publish(corner.a, "", 0) == 0);
        assert(qi_browse(corner.a, 0, false, &message, NULL, 0) == 0 && message.body_size == 0);
        corner_end(&corner);
    }
}

static void test_a_queue_is_asked_for_by_its_own_name(void) {
    struct corner corner = corner_new();
    qi_queue *queue;
    static const char *const wrong[] = {"", "0a", "zz00000000000000000000000000000a",
                                        "0000000000000000000000000000000a0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert(qi_queue_open(corner.store, "a", 1, wrong[i], true, &queue) == QI_E_ARGUMENT);
    static char name[65536];
    memset(name, 'n', sizeof name);
    assert(qi_queue_open(corner.store, name, 65536, A, true, &queue) == QI_E_ARGUMENT);
    assert(qi_queue_open(corner.store, "z", 1, A, true, &queue) == QI_E_CORRUPT);
    assert(qi_queue_open(corner.store, "aa", 2, A, true, &queue) == QI_E_CORRUPT);
    /* A name may be empty; when the queue is deleted nobody looks for its name. */
    assert(qi_queue_open(corner.store, "", 0, C, true, &queue) == 0);
    publish_many(queue, 1);
    assert(qi_queue_delete(queue) == 0 && qi_store_queues(corner.store) == 3);
    corner_end(&corner);
}

/* A draft that a failed call left behind is used by the next try. */
static void test_a_queue_that_could_not_be_created_can_be_later(void) {
    bool failed = true;
    for (uint64_t call = 1; failed; call++) {
        struct corner corner = corner_new();
        qi_queue *queue;
        qi_sim_fault(corner.sim, call, QI_SIM_ENOMEM, false);
        failed = qi_queue_open(corner.store, "c", 1, C, true, &queue) != 0;
        qi_sim_fault(corner.sim, 0, 0, false);
        if (!corner.store->failed) {
            queue = queue_of(corner.store, 'c', C);
            publish_many(queue, 3);
        }
        corner_end(&corner);
    }
}

/* ---- limits ---- */

static void test_what_is_too_big_is_refused_before_it_is_looked_at(void) {
    struct corner corner = corner_new();
    uint8_t body[100] = {0};
    qi_queue *queues[1] = {corner.a};
    uint64_t ids[1];
    assert(qi_publish(corner.a, body, UINT32_MAX) == QI_E_ARGUMENT);
    assert(qi_publish_with(corner.a, body, UINT32_MAX - 50, body, 100, 0, 0, 0) == QI_E_ARGUMENT);
    assert(qi_store_publish(corner.store, queues, 1, body, UINT32_MAX - 50, body, 100, 0, 0, 0, 0,
                            false, ids) == QI_E_ARGUMENT);
    assert(qi_index_publish(corner.a, 7 << 20, NULL, NULL, 0) == QI_E_ARGUMENT);
    qi_queue_stats stats;
    assert(qi_queue_stats_of(corner.a, &stats) == 0 && stats.depth == 0 && stats.next_req_id == 0);
    uint8_t *at;
    assert(qi_journal_room(qi_current(corner.a), QI_FRAME_LENGTH_MAX + 1, true, &at) == -EFBIG);
    corner_end(&corner);
}

static void test_a_batch_of_more_than_256_mib_is_refused(void) {
    qi_options options = usual();
    options.embed_below = 2 << 20;
    struct corner corner = corner_with(options);
    uint32_t sizes[300];
    uint8_t body[1] = {0};
    for (int i = 0; i < 300; i++)
        sizes[i] = 1 << 20;
    assert(qi_publish_many(corner.a, 300, body, sizes, NULL, NULL, 0, 0, 0, NULL, NULL) ==
           QI_E_ARGUMENT);
    qi_queue_stats stats;
    assert(qi_queue_stats_of(corner.a, &stats) == 0 && stats.next_req_id == 0);
    corner_end(&corner);
}

/* A journal is never longer than 1 GiB, whatever the options say. */
static void test_a_huge_journal_is_mapped_as_far_as_offsets_go(void) {
    qi_options options = usual();
    options.max_journal_bytes = UINT64_C(1) << 30;
    struct corner corner = corner_with(options);
    for (int round = 0; round < 2; round++) {
        publish_many(corner.a, 40);
        assert(qi_flush(corner.a) == 0);
        assert(qi_current(corner.a)->tape.mapped <= (UINT64_C(1) << 30));
        publish_many(corner.a, 5);
        assert(qi_store_close(corner.store) == 0);
        qi_store_free(corner.store);
        open_with(&corner, options);
    }
    qi_queue_stats stats;
    assert(qi_queue_stats_of(corner.a, &stats) == 0 && stats.depth == 90);
    corner_end(&corner);
}

static void test_message_files_and_segments_have_a_size_that_can_be(void) {
    qi_sim *sim = qi_sim_new(1, NULL);
    qi_store *store;
    qi_options options = usual();
    options.segment_entries = 20000;
    assert(qi_store_open_sim(sim, &options, &store) == QI_E_ARGUMENT);
    options = usual();
    options.message_file_size = 80;
    assert(qi_store_open_sim(sim, &options, &store) == QI_E_ARGUMENT);
    options.message_file_size = UINT64_C(1) << 33;
    assert(qi_store_open_sim(sim, &options, &store) == QI_E_ARGUMENT);
    qi_sim_free(sim);
}

static void test_findings_end_with_the_word_that_there_were_more(void) {
    struct corner corner = corner_new();
    for (int i = 0; i < 10010; i++)
        qi_report(corner.store, false, "", "file", (uint64_t)i, "finding %d", i);
    bool damage;
    const char *where, *text;
    uint64_t offset;
    assert(qi_store_finding(corner.store, 9998, &damage, &where, &offset, &text) == 0);
    assert(strcmp(text, "finding 9998") == 0 && strcmp(where, "file") == 0);
    assert(qi_store_finding(corner.store, 9999, &damage, &where, &offset, &text) == 0);
    assert(strstr(text, "more was found"));
    assert(qi_store_finding(corner.store, 10000, &damage, &where, &offset, &text) == QI_EMPTY);
    corner_end(&corner);
}

static void test_a_delivery_count_stays_at_its_highest(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 1);
    uint64_t ids[1];
    get_many(corner.a, 1, ids);
    assert(qi_nack_many(corner.a, ids, NULL, 1, 0) == 0);
    get_many(corner.a, 1, ids);
    struct qi_segment *segment = qi_segment_find(&corner.a->segments, 0);
    qi_slots_of(segment->hot, 0)->count[0] = UINT16_MAX; /* 65533 gets later */
    assert(qi_nack_many(corner.a, ids, NULL, 1, 0) == 0);
    get_many(corner.a, 1, ids);
    assert(qi_slots_of(segment->hot, 0)->count[0] == UINT16_MAX);
    corner_end(&corner);
}

static void test_a_journal_grows_as_far_as_it_is_mapped(void) {
    struct corner corner = corner_new();
    struct qi_journal *journal = qi_current(corner.a);
    uint64_t tail = journal->tail;
    uint8_t *at;
    assert(qi_journal_room(journal, 100 << 20, true, &at) == -EFBIG);
    qi_sim_fault(corner.sim, 1, QI_SIM_ENOSPC, true);
    uint64_t need = (UINT64_C(1) << 20) - tail - QI_MARK_SIZE - 2 * QI_FRAME_HEADER;
    assert(qi_journal_room(journal, need, true, &at) == -ENOSPC); /* nothing smaller would do */
    assert(qi_journal_room(journal, need - 100, true, &at) == -ENOSPC);
    qi_sim_fault(corner.sim, 0, 0, false);
    assert(journal->tail == tail);
    assert(qi_journal_room(journal, need, true, &at) == 0);
    corner_end(&corner);
}

/* A segment file of more than 4 MiB is mapped when it is read. */
static void test_a_segment_of_big_messages_is_read_whole(void) {
    qi_options options = usual();
    options.embed_below = 2 << 20;
    options.max_journal_bytes = 32 << 20;
    struct corner corner = corner_with(options);
    static uint8_t body[700000], payload[700000];
    for (int i = 0; i < 8; i++) {
        memset(body, 'a' + i, sizeof body);
        assert(qi_publish(corner.a, body, sizeof body) == i);
    }
    assert(qi_flush(corner.a) == 0 && qi_store_close(corner.store) == 0);
    for (uint64_t fail = 0; fail < 3; fail++) {
        qi_message message;
        qi_store_free(corner.store);
        open_with(&corner, options);
        allocations.fail_at = 0;
        qi_sim_fault(corner.sim, fail * 3, fail ? QI_SIM_ENOMEM : 0, false);
        for (int i = 0; i < 8; i++) {
            int64_t got =
                qi_browse(corner.a, (uint64_t)i, false, &message, payload, sizeof payload);
            assert(got == sizeof payload || (fail && got == QI_E_MEMORY));
            assert(got < 0 || (payload[0] == 'a' + i && payload[699999] == 'a' + i));
        }
        qi_sim_fault(corner.sim, 0, 0, false);
    }
    corner_end(&corner);
}

static void test_a_count_without_memory_stops_freeing(void) {
    struct corner corner = corner_new();
    allocations.calls = 0;
    allocations.fail_at = 1;
    qi_messages_count(&corner.store->messages, 4711, 1, 100);
    allocations.fail_at = 0;
    assert(corner.store->messages.miscounted);
    corner_end(&corner);
}

static void test_a_batch_without_memory_is_refused(void) {
    struct corner corner = corner_new();
    static uint32_t sizes[200];
    allocations.calls = 0;
    allocations.fail_at = 1;
    assert(qi_publish_many(corner.a, 200, "", sizes, NULL, NULL, 0, 0, 0, NULL, NULL) ==
           QI_E_MEMORY);
    allocations.fail_at = 0;
    assert(qi_publish_many(corner.a, 200, "", sizes, NULL, NULL, 0, 0, 0, NULL, NULL) == 0);
    corner_end(&corner);
}

/* ---- without waiting ---- */

static void test_verbs_that_may_not_wait_leave_what_is_not_at_hand(void) {
    struct corner corner = corner_new();
    uint8_t payload[100];
    uint64_t ids[64];
    qi_message message;
    publish_many(corner.a, 40);
    assert(get_many(corner.a, 20, ids) == 20);
    assert(qi_flush(corner.a) == 0);
    assert(qi_ack_now(corner.a, 1000, 0) == QI_BUSY); /* no such segment */
    assert(qi_ack_now(corner.a, 30, 0) == QI_BUSY);   /* cold, or not out */
    assert(qi_ack_now(corner.a, 3, 0) == 0);
    assert(qi_ack_many(corner.a, ids + 4, NULL, 16) == 0);
    struct qi_segment *segment = qi_segment_find(&corner.a->segments, 20 / 8);
    assert(segment->hot);
    segment->hot->loaded = false; /* as after recovery: only the journal's news is there */
    assert(get_now(corner.a, &message, payload, sizeof payload, 0) == QI_BUSY);
    segment->hot->loaded = true;
    assert(qi_browse(corner.a, 20, false, &message, payload, sizeof payload) == 10);
    assert(get_now(corner.a, &message, payload, 5, 0) == QI_E_ROOM);
    assert(get_now(corner.a, &message, payload, sizeof payload, 0) == 10);
    corner.a->window_length = 0; /* the record is in the file */
    assert(get_now(corner.a, &message, payload, sizeof payload, 0) == QI_BUSY);
    corner.a->short_of_space = true;
    assert(qi_publish_now(corner.a, &(struct qi_given){.body = payload, .body_size = 10}) ==
           QI_BUSY);
    corner_end(&corner);
}

static void test_settling_without_a_wait_leaves_what_is_wrong_and_what_moves(void) {
    static const int ways[] = {QI_SETTLE_ACK, QI_SETTLE_NACK, QI_SETTLE_REJECT, QI_SETTLE_RETURN};
    struct corner corner = corner_new();
    uint64_t ids[64], twice[2] = {1, 1}, wrong[2] = {0, 30}, late = 1, many[513] = {0};
    publish_many(corner.a, 40);
    assert(get_many(corner.a, 20, ids) == 20);
    for (int i = 0; i < 4; i++) {
        assert(qi_settle_now(corner.a, ways[i], twice, NULL, 2, 0) == QI_BUSY);
        assert(qi_settle_now(corner.a, ways[i], wrong, NULL, 2, 0) == QI_BUSY); /* is not out */
        assert(qi_settle_now(corner.a, ways[i], ids, &late, 1, 0) == QI_BUSY);
        assert(qi_settle_now(corner.a, ways[i], many, NULL, 513, 0) == QI_BUSY); /* too long */
    }
    assert(qi_settle_now(corner.a, QI_SETTLE_RETURN, ids, NULL, 1, 0) == QI_BUSY); /* format 1 */
    assert(qi_touch_now(corner.a, 30, 0, 1000) == QI_BUSY);
    assert(qi_touch_now(corner.a, 0, late, 1000) == QI_BUSY);
    assert(stats_of(corner.a).unacked == 20 && qi_touch_now(corner.a, 0, 0, 1000) == 0);
    for (int i = 0; i < 3; i++)
        assert(qi_settle_now(corner.a, ways[i], ids + i, NULL, 1, 0) == 0);
    assert(depth_of(corner.a) == 38 && stats_of(corner.a).unacked == 17);
    qi_rules rules = {.dead_letters = true, .max_deliveries = 1};
    assert(qi_queue_set_rules(corner.a, &rules) == 0);
    assert(qi_settle_now(corner.a, QI_SETTLE_REJECT, ids + 3, NULL, 1, 0) == QI_BUSY);
    assert(qi_touch(corner.a, 3, 0, 1000) == 0); /* which has looked for what is spent: message 1 */
    assert(qi_settle_now(corner.a, QI_SETTLE_REJECT, ids + 3, NULL, 1, 0) == 0);
    assert(qi_settle_now(corner.a, QI_SETTLE_NACK, ids + 4, NULL, 1, 0) == 0); /* its last time */
    assert(stats_of(corner.a).dead == 3);
    corner.a->dead_to = (char *)"b"; /* what dies moves, and that may take a wait */
    assert(qi_settle_now(corner.a, QI_SETTLE_REJECT, ids + 5, NULL, 1, 0) == QI_BUSY);
    assert(qi_settle_now(corner.a, QI_SETTLE_NACK, ids + 5, NULL, 1, 0) == QI_BUSY);
    assert(qi_settle_now(corner.a, QI_SETTLE_ACK, ids + 5, NULL, 1, 0) == 0);
    corner.a->dead_to = NULL;
    corner_end(&corner);
}

static void test_a_fan_out_without_a_wait_reaches_all_queues_or_none(void) {
    struct corner corner = corner_new();
    uint64_t ids[65];
    qi_queue *queues[65] = {corner.a, corner.b, corner.a};
    const struct qi_given given = {.body = "0123456789", .body_size = 10};
    struct qi_given big = given;
    publish_many(corner.a, 1);
    publish_many(corner.b, 1);
    assert(qi_store_publish_now(corner.store, queues, 3, &given, false, ids) == 0);
    assert(ids[0] == 1 && ids[1] == 1 && ids[2] == 2);
    assert(qi_store_publish_now(corner.store, queues, 65, &given, false, ids) == QI_BUSY);
    big.body_size = QI_NOW_MAX + 1;
    assert(qi_store_publish_now(corner.store, queues, 3, &big, false, ids) == QI_BUSY);
    qi_rules rules = {.max_messages = 2};
    assert(qi_queue_set_rules(corner.b, &rules) == 0);
    assert(qi_store_publish_now(corner.store, queues, 3, &given, false, ids) == QI_E_QUEUE_FULL);
    assert(qi_store_publish_now(corner.store, queues, 3, &given, true, ids) == 0);
    assert(ids[0] == 3 && ids[1] == UINT64_MAX && ids[2] == 4);
    corner.b->short_of_space = true;
    assert(qi_store_publish_now(corner.store, queues, 3, &given, true, ids) == QI_BUSY);
    corner.b->short_of_space = false;
    assert(depth_of(corner.a) == 5 && depth_of(corner.b) == 2);
    corner_end(&corner);
}

static void test_a_queue_that_is_not_idle_stays_open(void) {
    struct corner corner = corner_new();
    qi_lock(corner.store);
    uint8_t body[10] = {0};
    assert(qi_queue_unload(corner.a) == 0 && corner.a->dir < 0);
    assert(qi_queue_unload(corner.a) == 0); /* is idle already */
    qi_unlock(corner.store);
    publish_many(corner.a, 1);
    qi_lock(corner.store);
    assert(qi_queue_unload(corner.a) == 0 && corner.a->dir >= 0); /* dirty */
    assert(qi_flush_begin(corner.a, 0, 0) == 0);
    assert(qi_flush_begin(corner.a, 0, 0) == 0); /* is one already */
    assert(qi_queue_unload(corner.a) == 0 && corner.a->dir >= 0);
    corner.a->recovering = true;
    assert(qi_queue_unload(corner.a) == 0 && corner.a->dir >= 0);
    corner.a->recovering = false;
    corner.a->flushing = true; /* somebody else's */
    assert(qi_flush_run(corner.a) == 0);
    corner.a->flushing = false;
    assert(qi_flush_run(corner.a) == 0 && !corner.a->flush);
    assert(qi_flush_run(corner.a) == 0); /* nothing to do */
    assert(qi_queue_unload(corner.a) == 0 && corner.a->dir < 0);
    qi_unlock(corner.store);
    assert(qi_publish(corner.a, body, 10) == 1);
    corner_end(&corner);
}

/* ---- counters that a bug has broken ---- */

static void test_check_recounts_everything(void) {
    struct corner corner = corner_new();
    uint64_t ids[8];
    publish_many(corner.a, 8);
    get_many(corner.a, 4, ids);
    struct qi_segment *segment = qi_segment_find(&corner.a->segments, 0);
    assert(!check_says(&corner, ""));
    segment->unacked++;
    assert(check_says(&corner, "counters and maps differ"));
    segment->unacked--;
    segment->hot->out_count++;
    assert(check_says(&corner, "counters and maps differ"));
    segment->hot->out_count--;
    corner.a->depth++;
    assert(check_says(&corner, "were counted"));
    corner.a->depth--;
    corner.a->out++;
    assert(check_says(&corner, "were counted"));
    corner.a->out--;
    qi_set_bit(&qi_slots_of(segment->hot, 0)->ack, 0);
    assert(check_says(&corner, "an acked message is out"));
    qi_clear_bit(&qi_slots_of(segment->hot, 0)->ack, 0);
    assert(!check_says(&corner, ""));
    corner_end(&corner);
}

/* Where the file system has no sync of everything, queues are created one by one: each gives its
 * files back for those of the next. */
static void test_queues_that_are_created_one_by_one_keep_the_limit_of_open_files(void) {
    enum { MANY = 60, FILES = 24 };
    const qi_sim_knobs knobs = {.no_sync_all = true};
    struct corner corner = {.sim = qi_sim_new(1, &knobs)};
    qi_options options = usual();
    options.max_open_files = FILES;
    open_with(&corner, options);
    char names[MANY], directories[32 * MANY + 1];
    uint32_t sizes[MANY];
    for (int i = 0; i < MANY; i++) {
        names[i] = (char)i;
        sizes[i] = 1;
        snprintf(directories + 32 * (size_t)i, 33, "%032x", 256 + i);
    }
    assert(qi_queues_create(corner.store, MANY, names, sizes, directories) == MANY);
    assert(corner.sim->disk.pool.open <= FILES);
    corner_end(&corner);
}

int main(void) {
    test_a_failed_store_refuses_everything();
    test_a_closed_store_refuses_everything();
    test_a_deleted_queue_refuses_everything();
    test_a_reader_refuses_what_writes();
    test_an_empty_message_needs_no_room();
    test_a_queue_is_asked_for_by_its_own_name();
    test_a_queue_that_could_not_be_created_can_be_later();
    test_what_is_too_big_is_refused_before_it_is_looked_at();
    test_a_batch_of_more_than_256_mib_is_refused();
    test_a_huge_journal_is_mapped_as_far_as_offsets_go();
    test_message_files_and_segments_have_a_size_that_can_be();
    test_findings_end_with_the_word_that_there_were_more();
    test_a_delivery_count_stays_at_its_highest();
    test_a_journal_grows_as_far_as_it_is_mapped();
    test_a_segment_of_big_messages_is_read_whole();
    test_a_count_without_memory_stops_freeing();
    test_a_batch_without_memory_is_refused();
    test_settling_without_a_wait_leaves_what_is_wrong_and_what_moves();
    test_a_fan_out_without_a_wait_reaches_all_queues_or_none();
    test_verbs_that_may_not_wait_leave_what_is_not_at_hand();
    test_a_queue_that_is_not_idle_stays_open();
    test_check_recounts_everything();
    test_queues_that_are_created_one_by_one_keep_the_limit_of_open_files();
    printf("corners: all passed\n");
    return 0;
}
