/* test_timers.c - the heaps of times when they are full, or when what stands in them is out of
 * date: a message went back, or away, or its segment left the memory or the queue. On a simulated
 * disk, whose clock stands still. Usage: test_timers <directory>
 */
#include "corner.h"
#include "index/index.h"
#include "now.h"
#include "queue/queue.h"
#include "store/store.h"

#define SECOND UINT64_C(1000000)
#define MINUTE (60 * SECOND)

static uint8_t payload[100];

static qi_reader reader_of(qi_queue *queue, uint64_t lease_us) {
    return (qi_reader){
        .queue = queue, .payload = payload, .room = sizeof payload, .lease_us = lease_us};
}

/* The ReqId of what get gives. */
static uint64_t get_one(qi_reader *reader) {
    int64_t got = qi_get(reader);
    assert(got >= 0);
    return reader->message.req_id;
}

static void give_back(qi_queue *queue, uint64_t req_id) {
    assert(qi_nack_many(queue, &req_id, NULL, 1, 0) == 0);
}

static uint64_t publish_due(qi_queue *queue, const char *body, uint64_t due_us) {
    int64_t id = qi_publish_with(queue, NULL, 0, body, (uint32_t)strlen(body), 0, 0, due_us);
    assert(id > 0);
    return (uint64_t)id;
}

/* A whole second minute from now on, in which all share a lane. */
static uint64_t next_minute(const struct corner *corner) {
    return (now_of(corner) / MINUTE + 2) * MINUTE;
}

/* As a flush does it with what nobody uses. */
static void cool(qi_queue *queue, uint64_t req_id) {
    assert(qi_flush(queue) == 0);
    qi_lock(queue->store);
    struct qi_segment *segment =
        qi_segment_find(&queue->segments, req_id / queue->store->options.segment_entries);
    if (segment->hot) {
        assert(segment->length && !segment->hot->dirty && !segment->hot->out_count);
        assert(!qi_has_due(segment));
        qi_segment_cool(segment);
    }
    qi_unlock(queue->store);
}

static void tidy(qi_queue *queue) {
    qi_lock(queue->store);
    qi_timers_tidy(queue);
    qi_unlock(queue->store);
}

static qi_options big(void) {
    qi_options options = usual();
    options.max_journal_entries = 1 << 20;
    options.max_journal_bytes = 32 << 20;
    return options;
}

/* ---- leases ---- */

/* The lease was given up, then the maps of its segment left the memory; or came back without any
 * lease. */
static void test_the_end_of_a_lease_that_was_given_up_ends_nothing(void) {
    struct corner corner = corner_new();
    qi_reader leased = reader_of(corner.a, SECOND), plain = reader_of(corner.a, 0);
    publish_many(corner.a, 8);
    give_back(corner.a, get_one(&leased));
    cool(corner.a, 0);
    qi_sim_advance(corner.sim, 2 * SECOND);
    assert(get_one(&plain) == 0 && plain.message.delivery_count == 2);
    assert(corner.a->timers.leases.count == 0);
    give_back(corner.a, 0);
    assert(get_one(&leased) == 0);
    give_back(corner.a, 0);
    cool(corner.a, 0);
    assert(get_one(&plain) == 0); /* now without a lease */
    qi_sim_advance(corner.sim, 2 * SECOND);
    assert(get_one(&plain) == 1); /* 0 is still out */
    assert(qi_ack(corner.a, 0, 0) == 0 && depth_of(corner.a) == 7);
    corner_end(&corner);
}

static void test_leases_in_a_segment_that_left_the_memory_are_tidied_away(void) {
    struct corner corner = corner_with(big());
    qi_reader leased = reader_of(corner.a, MINUTE);
    publish_many(corner.a, 2);
    for (int i = 0; i < 4096; i++)
        give_back(corner.a, get_one(&leased));
    cool(corner.a, 0);
    assert(corner.a->timers.leases.count == 4096);
    assert(qi_publish_with(corner.a, NULL, 0, "first", 5, 9u << QI_PRIORITY_SHIFT, 0, 0) > 0);
    uint64_t first = get_one(&leased);
    assert(leased.message.priority == 9);
    assert(qi_touch(corner.a, first, leased.message.delivery, 2 * MINUTE) ==
           0);                                  /* every verb looks */
    assert(corner.a->timers.leases.count == 2); /* as it was, and as it is */
    qi_sim_advance(corner.sim, MINUTE + SECOND);
    assert(qi_ack(corner.a, first, leased.message.delivery) == 0 && get_one(&leased) == 0);
    corner_end(&corner);
}

static void test_leases_in_a_segment_that_is_gone_are_tidied_away(void) {
    struct corner corner = corner_with(big());
    qi_reader leased = reader_of(corner.a, MINUTE);
    publish_many(corner.a, 9);
    for (int i = 0; i < 4088; i++)
        give_back(corner.a, get_one(&leased));
    for (uint64_t i = 0; i < 8; i++)
        assert(get_one(&leased) == i && qi_ack(corner.a, i, 0) == 0);
    assert(qi_flush(corner.a) == 0 && !qi_segment_find(&corner.a->segments, 0));
    uint64_t last = get_one(&leased);
    assert(last == 8 && corner.a->timers.leases.count == 4097);
    assert(qi_touch(corner.a, last, leased.message.delivery, 2 * MINUTE) ==
           0); /* every verb looks */
    assert(corner.a->timers.leases.count == 2);
    qi_sim_advance(corner.sim, MINUTE + SECOND);
    assert(qi_ack(corner.a, last, leased.message.delivery) == 0 && depth_of(corner.a) == 0);
    corner_end(&corner);
}

static void test_leases_that_all_count_are_kept(void) {
    struct corner corner = corner_with(big());
    static uint64_t ids[512];
    static qi_message messages[512];
    static uint8_t payloads[512 * 10];
    uint32_t all = 0;
    for (int i = 0; i < 10; i++)
        publish_many(corner.a, 500);
    for (int64_t got = 0; got != QI_EMPTY; all += got > 0 ? (uint32_t)got : 0)
        got = qi_get_many(corner.a, 500, messages, payloads, sizeof payloads, ids, SECOND);
    assert(all == 5000 && corner.a->timers.leases.count == 5000);
    assert(qi_touch(corner.a, ids[499], messages[499].delivery, 9 * SECOND) == 0);
    qi_sim_advance(corner.sim, 2 * SECOND);
    qi_queue_stats stats;
    assert(qi_queue_stats_of(corner.a, &stats) == 0 && stats.ready == 4999 && stats.unacked == 1);
    corner_end(&corner);
}

/* ---- delays ---- */

static void test_delays_of_messages_that_are_gone_are_tidied_away_and_others_kept(void) {
    struct corner corner = corner_with(big());
    uint64_t later = now_of(&corner) + 5 * MINUTE, gone = publish_due(corner.a, "gone", later);
    for (uint64_t i = 0; i < 5000; i++)
        assert(qi_reschedule(corner.a, gone, later + i) == 0);
    assert(qi_delete(corner.a, gone) == 0);
    assert(corner.a->timers.delayed.count > 4096);
    tidy(corner.a);
    assert(corner.a->timers.delayed.count == 0);
    for (int i = 0; i < 5000; i++)
        publish_due(corner.a, "kept", later);
    tidy(corner.a);
    assert(corner.a->timers.delayed.count == 5000 && corner.a->delayed == 5000);
    corner_end(&corner);
}

/* Each time that it came back to stands there once for each time that it did: they are walked
 * through again only when there is more. */
static void test_a_delay_that_goes_to_and_fro_counts_once(void) {
    struct corner corner = corner_with(big());
    qi_reader plain = reader_of(corner.a, 0);
    uint64_t later = now_of(&corner) + 5 * MINUTE, id = publish_due(corner.a, "x", later);
    for (uint64_t i = 1; i <= 10000; i++)
        assert(qi_reschedule(corner.a, id, later + i % 2) == 0);
    for (int i = 0; i < 2; i++) {
        tidy(corner.a);
        assert(corner.a->timers.delayed.count == 5001 && corner.a->timers.tidied == 5001);
    }
    qi_sim_advance(corner.sim, 6 * MINUTE);
    assert(get_one(&plain) == id && qi_get(&plain) == QI_EMPTY);
    assert(qi_ack(corner.a, id, 0) == 0 && depth_of(corner.a) == 0);
    corner_end(&corner);
}

/* Three segments of one minute, all of it deleted: those that their lane is done with leave the
 * queue. */
static void test_delays_of_segments_that_are_gone_are_dropped(void) {
    for (int due = 0; due < 2; due++) {
        struct corner corner = corner_with(big());
        qi_reader plain = reader_of(corner.a, 0);
        qi_message message;
        uint64_t minute = next_minute(&corner), ids[24];
        for (int i = 0; i < 24; i++)
            ids[i] = publish_due(corner.a, "gone", minute + (uint64_t)i);
        if (due) { /* they are moved to the other heap */
            qi_sim_advance(corner.sim, 4 * MINUTE);
            assert(qi_browse(corner.a, 0, true, &message, payload, sizeof payload) == 4);
            assert(message.req_id == ids[0] && corner.a->timers.due.count == 24);
        }
        for (int i = 0; i < 24; i++)
            assert(qi_delete(corner.a, ids[i]) == 0);
        assert(qi_flush(corner.a) == 0);
        assert(!qi_segment_find(&corner.a->segments, ids[12] / 8));
        qi_sim_advance(corner.sim, 4 * MINUTE);
        assert(get_now(corner.a, &message, payload, sizeof payload, 0) == QI_EMPTY);
        assert(qi_get(&plain) == QI_EMPTY && depth_of(corner.a) == 0);
        assert(corner.a->timers.delayed.count + corner.a->timers.due.count == 0);
        corner_end(&corner);
    }
}

/* What was read, and left the memory again, and then was purged without being read: the segment is
 * still there. */
static void test_delays_that_were_purged_unread_are_dropped(void) {
    struct corner corner = corner_with(big());
    uint64_t minute = next_minute(&corner), ids[24];
    for (int i = 0; i < 24; i++)
        ids[i] = publish_due(corner.a, "gone", minute + (uint64_t)i);
    assert(qi_flush(corner.a) == 0 && qi_store_close(corner.store) == 0);
    qi_store_free(corner.store);
    open_with(&corner, big());
    qi_reader plain = reader_of(corner.a, 0);
    qi_message message;
    assert(qi_browse(corner.a, ids[8], false, &message, payload, sizeof payload) == 4);
    cool(corner.a, ids[8]);
    assert(corner.a->timers.delayed.count > 8); /* eight of messages */
    assert(qi_purge(corner.a, QI_PURGE_ALL) == 24);
    struct qi_segment *segment = qi_segment_find(&corner.a->segments, ids[8] / 8);
    assert(segment && !segment->hot);
    qi_sim_advance(corner.sim, 4 * MINUTE);
    assert(qi_get(&plain) == QI_EMPTY && corner.a->timers.delayed.count == 0);
    publish_due(corner.a, "next", now_of(&corner) + SECOND);
    qi_sim_advance(corner.sim, 2 * SECOND);
    assert(qi_get(&plain) == 4 && memcmp(payload, "next", 4) == 0);
    corner_end(&corner);
}

/* Only the first of them is in its file, and nobody read that again. */
static void test_delays_published_into_a_segment_that_left_the_memory_become_one_entry(void) {
    qi_options options = big();
    options.segment_entries = 8192;
    struct corner corner = corner_with(options);
    qi_reader plain = reader_of(corner.a, 0);
    uint64_t minute = next_minute(&corner), first = publish_due(corner.a, "first", minute);
    cool(corner.a, first);
    for (uint64_t i = 1; i <= 4200; i++)
        assert(publish_due(corner.a, "more", minute + i) == first + i);
    const struct qi_segment *segment = qi_segment_find(&corner.a->segments, first / 8192);
    assert(segment->hot && !segment->hot->loaded && corner.a->timers.delayed.count == 4202);
    tidy(corner.a);
    assert(corner.a->timers.delayed.count == 1 && corner.a->delayed == 4201);
    uint64_t next_us;
    assert(qi_next_due_us(corner.a, &next_us) == 0 && next_us == minute);
    qi_sim_advance(corner.sim, 4 * MINUTE);
    for (uint64_t i = 0; i <= 4200; i++)
        assert(get_one(&plain) == first + i);
    assert(qi_get(&plain) == QI_EMPTY);
    corner_end(&corner);
}

/* ---- what is due ---- */

static void reopen(struct corner *corner, qi_options options) {
    assert(qi_flush(corner->a) == 0 && qi_store_close(corner->store) == 0);
    qi_store_free(corner->store);
    open_with(corner, options);
}

/* As many as are read ahead are due and gone: what comes behind them has to be read, by get and by
 * who must not wait. */
static void test_what_is_due_and_gone_does_not_hide_what_has_to_be_read(void) {
    qi_options options = big();
    options.segment_entries = 8192;
    for (int now = 0; now < 2; now++) {
        struct corner corner = corner_with(options);
        uint64_t minute = next_minute(&corner), first = publish_due(corner.a, "due", minute);
        for (uint64_t i = 1; i < 3 * 8192; i++)
            publish_due(corner.a, "due", minute + i);
        reopen(&corner, options);
        qi_reader plain = reader_of(corner.a, 0);
        qi_message message;
        qi_sim_advance(corner.sim, 4 * MINUTE);
        assert(qi_browse(corner.a, 0, true, &message, payload, sizeof payload) == 3);
        assert(message.req_id == first && corner.a->timers.due.count == 2 * 8192);
        for (uint64_t i = 0; i < 2 * 8192; i++)
            assert(qi_delete(corner.a, first + i) == 0);
        if (now)
            assert(get_now(corner.a, &message, payload, sizeof payload, 0) == QI_BUSY);
        else
            assert(qi_browse(corner.a, 0, true, &message, payload, sizeof payload) == 3);
        assert(get_one(&plain) == first + 2 * 8192);
        corner_end(&corner);
    }
}

static int64_t take(qi_queue *queue, bool newest, uint64_t *req_id) {
    qi_reader plain = reader_of(queue, 0);
    int64_t got = newest ? qi_get_newest(&plain) : qi_get(&plain);
    *req_id = plain.message.req_id;
    return got;
}

/* As many as are read ahead are due and have expired: they leave, and what comes behind them is
 * read. */
static void test_what_is_due_and_expired_does_not_hide_what_has_to_be_read(void) {
    qi_options options = big();
    options.segment_entries = 8192;
    for (int newest = 0; newest < 2; newest++) {
        struct corner corner = corner_with(options);
        uint64_t minute = next_minute(&corner), id;
        for (uint64_t i = 0; i < 2 * 8192; i++)
            assert(qi_publish_with(corner.a, NULL, 0, "late", 4, 0, minute + MINUTE, minute) > 0);
        uint64_t kept = publish_due(corner.a, "kept", minute);
        reopen(&corner, options);
        qi_sim_advance(corner.sim, 4 * MINUTE);
        assert(take(corner.a, newest, &id) == 4 && id == kept);
        assert(memcmp(payload, "kept", 4) == 0 && depth_of(corner.a) == 1);
        assert(take(corner.a, newest, &id) == QI_EMPTY);
        corner_end(&corner);
    }
}

/* The one behind it was due as well, was deleted, and its segment left the memory. */
static void test_the_first_that_is_due_is_given_whatever_became_of_the_next(void) {
    struct corner corner = corner_with(big());
    qi_reader plain = reader_of(corner.a, 0);
    qi_message message;
    uint64_t minute = next_minute(&corner), ids[10];
    for (uint64_t i = 0; i < 10; i++)
        ids[i] = publish_due(corner.a, "due", minute + (i % 8 == 0 ? i : 30 * SECOND));
    assert(ids[7] / 8 == ids[0] / 8 && ids[8] / 8 == ids[9] / 8 && ids[8] / 8 == ids[0] / 8 + 1);
    qi_sim_advance(corner.sim, minute - now_of(&corner) + SECOND);
    assert(qi_browse(corner.a, 0, true, &message, payload, sizeof payload) == 3);
    assert(corner.a->timers.due.count == 2 && qi_delete(corner.a, ids[8]) == 0);
    cool(corner.a, ids[8]);
    assert(corner.a->timers.due.count == 2 && get_one(&plain) == ids[0]);
    assert(qi_get(&plain) == QI_EMPTY);
    qi_sim_advance(corner.sim, 30 * SECOND);
    for (int i = 1; i < 10; i++)
        assert(i == 8 || get_one(&plain) == ids[i]);
    corner_end(&corner);
}

static void test_what_is_due_and_gone_does_not_keep_its_segment_in_memory(void) {
    struct corner corner = corner_with(big());
    qi_reader plain = reader_of(corner.a, 0);
    qi_message message;
    uint64_t minute = next_minute(&corner), first = publish_due(corner.a, "first", minute);
    publish_due(corner.a, "other", minute + 30 * SECOND);
    qi_sim_advance(corner.sim, minute - now_of(&corner) + SECOND);
    assert(qi_browse(corner.a, 0, true, &message, payload, sizeof payload) == 5);
    assert(message.req_id == first && qi_delete(corner.a, first) == 0);
    cool(corner.a, first);
    assert(corner.a->timers.due.count == 1);
    assert(qi_get(&plain) == QI_EMPTY && corner.a->timers.due.count == 0);
    qi_sim_advance(corner.sim, 30 * SECOND);
    assert(qi_get(&plain) == 5 && memcmp(payload, "other", 5) == 0);
    corner_end(&corner);
}

/* It was due, was put off, and is due again: two entries, one message. */
static void test_what_is_due_twice_is_given_once(void) {
    struct corner corner = corner_with(big());
    qi_reader plain = reader_of(corner.a, 0);
    qi_message message;
    uint64_t id = publish_due(corner.a, "again", now_of(&corner) + SECOND);
    for (int i = 0; i < 2; i++) {
        qi_sim_advance(corner.sim, 2 * SECOND);
        assert(qi_browse(corner.a, 0, true, &message, payload, sizeof payload) == 5);
        if (i == 0)
            assert(qi_reschedule(corner.a, id, now_of(&corner) + SECOND) == 0);
    }
    assert(corner.a->timers.due.count == 1); /* the older one was met, and dropped */
    assert(get_one(&plain) == id && qi_get(&plain) == QI_EMPTY);
    assert(qi_ack(corner.a, id, 0) == 0 && depth_of(corner.a) == 0);
    corner_end(&corner);
}

/* Its file is kept in memory, and is longer now. */
static void test_what_a_flush_wrote_behind_what_was_read_is_read(void) {
    struct corner corner = corner_with(big());
    qi_message message;
    uint64_t soon = now_of(&corner) + 30 * SECOND, ids[6];
    for (int i = 0; i < 6; i++) {
        ids[i] = publish_due(corner.a, i < 3 ? "early" : "late", soon);
        assert(i % 3 < 2 || qi_flush(corner.a) == 0);
        assert(i != 2 ||
               qi_browse(corner.a, ids[0], false, &message, payload, sizeof payload) == 5);
    }
    const struct qi_segment *segment = qi_segment_find(&corner.a->segments, ids[5] / 8);
    assert(segment->hot->kept && segment->hot->kept_length < segment->length);
    assert(qi_browse(corner.a, ids[5], false, &message, payload, sizeof payload) == 4);
    assert(memcmp(payload, "late", 4) == 0 && segment->hot->kept_length == segment->length);
    corner_end(&corner);
}

/* As many files as may be kept are kept of other segments. */
static void test_what_is_delayed_is_read_also_if_its_file_is_not_kept(void) {
    struct corner corner = corner_with(big());
    qi_message message;
    uint64_t minute = next_minute(&corner), ids[16];
    for (uint64_t i = 0; i < 16; i++)
        ids[i] = publish_due(corner.a, i < 8 ? "one" : "other", minute);
    reopen(&corner, big());
    assert(qi_browse(corner.a, ids[15], false, &message, payload, sizeof payload) == 5);
    struct qi_segment *other = qi_segment_find(&corner.a->segments, ids[15] / 8);
    struct qi_segment *one = qi_segment_find(&corner.a->segments, ids[0] / 8);
    qi_segment_forget_file(corner.a, other);
    other->hot->kept_length = 48 << 20;
    assert(qi_segment_load(corner.a, one) == 0);
    for (int i = 0; i < 8; i++) {
        corner.a->window_length = 0;
        qi_lock(corner.store);
        const struct qi_published *record;
        assert(qi_segment_record(corner.a, one, (uint32_t)(ids[i] % 8), &record) == 0);
        assert(memcmp(record->payload, "one", 3) == 0 && !one->hot->kept);
        qi_unlock(corner.store);
    }
    other->hot->kept_length = 0;
    corner_end(&corner);
}

/* After a long rest more is due than is read at once; a get that may not wait gives what was
 * read. */
static void test_many_that_are_due_are_read_as_they_are_taken(void) {
    qi_options options = big();
    options.segment_entries = 16384;
    struct corner corner = corner_with(options);
    static uint8_t bodies[512 * 4], payloads[512 * 4];
    static uint64_t ids[512];
    static qi_message messages[512];
    uint32_t sizes[512], all = 0;
    uint64_t minute = next_minute(&corner);
    for (int i = 0; i < 512; i++)
        sizes[i] = 4;
    for (uint32_t i = 0; i < 200; i++)
        assert(qi_publish_many(corner.a, 512, bodies, sizes, NULL, NULL, 0, 0, minute + i, NULL,
                               NULL) > 0);
    assert(qi_flush(corner.a) == 0 && qi_store_close(corner.store) == 0);
    qi_store_free(corner.store);
    open_with(&corner, options);
    qi_message message;
    qi_lock(corner.store); /* whoever may not wait begins no session */
    assert(qi_queue_ready(corner.a, true) == 0);
    qi_unlock(corner.store);
    qi_sim_advance(corner.sim, 4 * MINUTE);
    assert(get_now(corner.a, &message, payload, sizeof payload, 0) == QI_BUSY); /* none is read */
    assert(qi_browse(corner.a, 0, true, &message, payload, sizeof payload) == 4);
    assert(corner.a->timers.due.count > 512 && corner.a->timers.due.count < 200 * 512);
    uint64_t first = message.req_id;
    assert(get_now(corner.a, &message, payload, sizeof payload, 0) == 4);
    assert(message.req_id == first && qi_ack(corner.a, first, 0) == 0);
    for (int64_t got = 0; got != QI_EMPTY;) {
        got = qi_get_many(corner.a, 512, messages, payloads, sizeof payloads, ids, 0);
        assert(got == QI_EMPTY || qi_ack_many(corner.a, ids, NULL, (uint32_t)got) == 0);
        all += got > 0 ? (uint32_t)got : 0;
    }
    assert(all == 200 * 512 - 1 && depth_of(corner.a) == 0);
    corner_end(&corner);
}

int main(void) {
    test_the_end_of_a_lease_that_was_given_up_ends_nothing();
    test_leases_in_a_segment_that_left_the_memory_are_tidied_away();
    test_leases_in_a_segment_that_is_gone_are_tidied_away();
    test_leases_that_all_count_are_kept();
    test_delays_of_messages_that_are_gone_are_tidied_away_and_others_kept();
    test_a_delay_that_goes_to_and_fro_counts_once();
    test_delays_of_segments_that_are_gone_are_dropped();
    test_delays_that_were_purged_unread_are_dropped();
    test_delays_published_into_a_segment_that_left_the_memory_become_one_entry();
    test_what_is_due_and_gone_does_not_hide_what_has_to_be_read();
    test_what_is_due_and_expired_does_not_hide_what_has_to_be_read();
    test_the_first_that_is_due_is_given_whatever_became_of_the_next();
    test_what_is_due_and_gone_does_not_keep_its_segment_in_memory();
    test_what_is_due_twice_is_given_once();
    test_what_a_flush_wrote_behind_what_was_read_is_read();
    test_what_is_delayed_is_read_also_if_its_file_is_not_kept();
    test_many_that_are_due_are_read_as_they_are_taken();
    printf("timers: all passed\n");
    return 0;
}
