/* test_times.c - what has a time, when the disk or the memory does not give something, or what was
 * written down is out of date. On a simulated disk, whose clock stands still. Usage: test_times
 * <directory>
 */
#include "corner.h"
#include "index/index.h"
#include "queue/queue.h"

#define SECOND UINT64_C(1000000)

/* Messages that expire in a second. */
static void publish_mortal(struct corner *corner, qi_queue *queue, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        assert(qi_publish_with(queue, NULL, 0, "mortal", 6, 0, now_of(corner) + SECOND, 0) >= 0);
}

/* ---- expiry ---- */

/* The last message of each of two segments is out, so their maps stay; the records are in the
 * files. */
static struct corner two_segments_in_files(void) {
    struct corner corner = corner_new();
    uint64_t ids[16];
    for (int i = 0; i < 2; i++) {
        publish_mortal(&corner, corner.a, 7);
        publish_many(corner.a, 1);
    }
    assert(get_many(corner.a, 16, ids) == 16);
    assert(qi_nack_many(corner.a, ids, NULL, 7, 0) == 0);
    assert(qi_nack_many(corner.a, ids + 8, NULL, 7, 0) == 0);
    assert(qi_flush(corner.a) == 0);
    corner.a->window_length = 0;
    qi_sim_advance(corner.sim, 2 * SECOND);
    return corner;
}

/* A record that could not be read now is no message that never expires. */
static void test_what_the_disk_did_not_give_expires_later(void) {
    bool failed = true;
    for (uint64_t call = 1; failed; call++) {
        struct corner corner = two_segments_in_files();
        qi_sim_fault(corner.sim, call, QI_SIM_EIO, false);
        int64_t first = qi_expire(corner.a);
        failed = corner.sim->fault_hits > 0;
        qi_sim_fault(corner.sim, 0, 0, false);
        assert(first == 14 || (failed && first == QI_E_IO));
        if (!corner.store->failed) {         /* by a write */
            assert(qi_flush(corner.a) == 0); /* a bound that was lost would be lost for ever */
            assert(qi_expire(corner.a) >= 0);
            assert(depth_of(corner.a) == 2);
        }
        corner_end(&corner);
    }
}

/* A get drops what has expired one by one. After the journal had been rotated there was no memory
 * for the flush; the next drop began another rotation, in the file of the journal that was not
 * flushed. */
static void test_a_flush_that_could_not_begin_is_not_begun_again(void) {
    bool failed = true;
    for (uint64_t call = 1; failed; call++) {
        struct corner corner = corner_new();
        uint8_t payload[100];
        qi_reader reader = {.queue = corner.a, .payload = payload, .room = sizeof payload};
        publish_mortal(&corner, corner.a, 17);
        publish_many(corner.a, 5);
        assert(qi_queue_sync(corner.a) == 0);
        qi_sim_advance(corner.sim, 2 * SECOND);
        allocations.calls = allocations.failed = 0;
        allocations.fail_at = call;
        int64_t got = qi_get(&reader); /* after 17 acks */
        failed = allocations.failed > 0;
        allocations.fail_at = 0;
        assert(got == 10 || (failed && (got == QI_E_MEMORY || got == QI_E_FAILED)));
        struct corner after = {.sim = qi_sim_kill(corner.sim)};
        open_with(&after, usual());
        assert(depth_of(after.a) >= 5);
        assert(qi_browse(after.a, 17, false, &reader.message, payload, sizeof payload) == 10);
        corner_end(&after);
        corner_end(&corner);
    }
}

/* ---- who may settle what ---- */

static void test_who_lost_a_lease_is_told_so_and_changes_nothing(void) {
    struct corner corner = corner_new();
    static uint8_t payload[100];
    qi_reader reader = {
        .queue = corner.a, .payload = payload, .room = sizeof payload, .lease_us = SECOND};
    publish_many(corner.a, 70);
    assert(qi_get(&reader) == 10 && reader.message.req_id == 0);
    const uint64_t first = reader.message.delivery, second = first + 1;
    assert(qi_touch(corner.a, 0, first, 2 * SECOND) == 0);
    assert(qi_ack(corner.a, 0, second) == QI_E_LEASE); /* of another delivery */
    assert(qi_ack_now(corner.a, 0, second) != 0);
    qi_sim_advance(corner.sim, 3 * SECOND);
    assert(qi_ack(corner.a, 0, first) == QI_E_LEASE);    /* nobody has it now */
    assert(qi_ack(corner.a, 1, first) == QI_E_UNKNOWN);  /* beside it, never delivered */
    assert(qi_ack(corner.a, 66, first) == QI_E_UNKNOWN); /* nothing near it ever was */
    assert(qi_touch(corner.a, 0, first, SECOND) == QI_E_LEASE);
    assert(depth_of(corner.a) == 70);
    assert(qi_get(&reader) == 10 && reader.message.req_id == 0);
    assert(qi_ack(corner.a, 0, second) == 0 && depth_of(corner.a) == 69);
    corner_end(&corner);
}

static void test_what_is_not_there_cannot_be_changed(void) {
    struct corner corner = corner_new();
    uint64_t ids[1];
    publish_many(corner.a, 2);
    assert(get_many(corner.a, 1, ids) == 1);
    assert(qi_delete(corner.a, 99) == QI_E_UNKNOWN && qi_delete(corner.a, 0) == QI_E_DELIVERED);
    assert(qi_reschedule(corner.a, 99, 0) == QI_E_UNKNOWN);
    assert(qi_reschedule(corner.a, 0, 0) == QI_E_DELIVERED);
    assert(qi_reschedule(corner.a, UINT64_C(300) << 52, 0) == QI_E_UNKNOWN); /* no such lane */
    assert(qi_ack(corner.a, 0, 0) == 0 && qi_delete(corner.a, 0) == QI_E_ACKED);
    assert(qi_redrive(corner.a, 10) == 0 && qi_expire(corner.a) == 0);
    assert(depth_of(corner.a) == 1);
    corner_end(&corner);
}

/* A journal with so little room that every event has to make some, on a disk that gives none. */
static void test_an_event_without_room_is_refused(void) {
    struct corner corner = corner_new();
    uint64_t ids[2];
    publish_many(corner.a, 4);
    assert(get_many(corner.a, 2, ids) == 2);
    struct qi_tape *tape = &qi_current(corner.a)->tape;
    uint64_t mapped = tape->mapped;
    tape->mapped = tape->allocated;
    allocations.sticky = true;
    allocations.calls = 0;
    allocations.fail_at = 1;
    assert(qi_delete(corner.a, 2) == QI_E_MEMORY);
    allocations = (struct allocations){.alive = allocations.alive};
    if (!corner.store->failed)
        tape->mapped = mapped;
    assert(corner.store->failed || qi_delete(corner.a, 2) == 0);
    corner_end(&corner);
}

/* ---- what is out of date ---- */

/* Leases that were given back, and delays that were drawn near, leave entries behind; when there
 * are too many of them the heaps are made anew, and what still counts comes up in its time. */
static void test_heaps_that_are_mostly_out_of_date_are_made_anew(void) {
    qi_options options = usual();
    options.max_journal_entries = 1 << 20;
    options.max_journal_bytes = 32 << 20;
    struct corner corner = corner_with(options);
    static uint8_t payload[100];
    qi_reader reader = {
        .queue = corner.a, .payload = payload, .room = sizeof payload, .lease_us = 9 * SECOND};
    publish_many(corner.a, 3);
    for (int i = 0; i < 4200; i++) {
        assert(qi_get(&reader) == 10);
        uint64_t id = reader.message.req_id;
        assert(qi_nack_many(corner.a, &id, NULL, 1, 0) == 0);
    }
    reader.lease_us = SECOND;
    assert(qi_get(&reader) == 10 && corner.a->timers.leases.count < 200); /* every verb looks */
    qi_sim_advance(corner.sim, 2 * SECOND); /* the short one is over, the long ones are not */
    assert(qi_get(&reader) == 10 && reader.message.req_id == 0);
    uint64_t later = now_of(&corner) + 5 * SECOND;
    int64_t far = qi_publish_with(corner.b, NULL, 0, "far", 3, 0, 0, later + 90 * 60 * SECOND);
    int64_t near = qi_publish_with(corner.b, NULL, 0, "near", 4, 0, 0, later);
    assert(far > 0 && near > 0);
    for (uint64_t i = 0; i < 5000; i++)
        assert(qi_reschedule(corner.b, (uint64_t)near, later + i + 1) == 0);
    assert(corner.b->timers.delayed.count > 4096);
    qi_lock(corner.store);
    qi_timers_tidy(corner.b);
    qi_unlock(corner.store);
    assert(corner.b->timers.delayed.count == 2 && corner.b->delayed == 2);
    reader = (qi_reader){.queue = corner.b, .payload = payload, .room = sizeof payload};
    assert(qi_get(&reader) == QI_EMPTY);
    qi_sim_advance(corner.sim, 6 * SECOND);
    assert(qi_get(&reader) == 4 && memcmp(payload, "near", 4) == 0);
    corner_end(&corner);
}

/* An entry of a heap is a claim: that its message, or its whole segment, is gone takes nobody by
 * surprise. */
static void test_entries_whose_messages_are_gone_are_dropped(void) {
    struct corner corner = corner_new();
    uint64_t soon = now_of(&corner) + SECOND, id;
    static uint8_t payload[100];
    qi_reader reader = {
        .queue = corner.a, .payload = payload, .room = sizeof payload, .lease_us = SECOND};
    for (int i = 0; i < 3; i++) {
        int64_t got = qi_publish_with(corner.a, NULL, 0, "soon", 4, 0, 0, soon);
        assert(got > 0 && qi_delete(corner.a, id = (uint64_t)got) == 0);
        publish_many(corner.a, 8);
        assert(qi_get(&reader) == 10 && qi_ack(corner.a, reader.message.req_id, 0) == 0);
        assert(qi_purge(corner.a, QI_PURGE_ALL) == 7 && qi_flush(corner.a) == 0);
    }
    qi_sim_advance(corner.sim, 2 * SECOND);
    assert(qi_get(&reader) == QI_EMPTY);
    assert(corner.a->timers.delayed.count == 0 && corner.a->timers.leases.count == 0);
    /* Due, and gone before somebody came for it. */
    int64_t due = qi_publish_with(corner.a, NULL, 0, "due", 3, 0, 0, now_of(&corner) + SECOND);
    qi_sim_advance(corner.sim, 2 * SECOND);
    qi_message message;
    assert(qi_browse(corner.a, 0, true, &message, payload, sizeof payload) == 3);
    assert(corner.a->timers.due.count == 1 && qi_delete(corner.a, (uint64_t)due) == 0);
    assert(qi_flush(corner.a) == 0 && qi_get(&reader) == QI_EMPTY);
    assert(corner.a->timers.due.count == 0);
    corner_end(&corner);
}

/* ---- what the worker does ---- */

static void expire_due(struct corner *corner) {
    qi_lock(corner->store);
    qi_expire_due(corner->store);
    qi_unlock(corner->store);
}

static void test_the_worker_waits_for_the_first_bound_and_leaves_queues_that_are_not_there(void) {
    struct corner corner = corner_new();
    publish_mortal(&corner, corner.a, 3);
    publish_mortal(&corner, corner.b, 3);
    qi_sim_advance(corner.sim, 2 * SECOND);
    expire_due(&corner);
    assert(depth_of(corner.a) == 3); /* its opener has not said what the rules are */
    assert(qi_expire_wait(corner.store, 77) == 77);
    assert(qi_queue_set_rules(corner.a, &(qi_rules){.ttl_us = 0}) == 0);
    assert(qi_queue_set_rules(corner.b, &(qi_rules){.dead_letters = true}) == 0);
    assert(qi_expire_wait(corner.store, 77) == 0);
    corner.b->recovering = true;
    expire_due(&corner);
    corner.b->recovering = false;
    assert(depth_of(corner.a) == 0 && corner.b->dead == 0);
    qi_sim_advance(corner.sim, SECOND); /* the pause before it is looked at again */
    expire_due(&corner);
    assert(depth_of(corner.b) == 3 && corner.b->dead == 3);
    publish_mortal(&corner, corner.a, 1);
    assert(qi_expire_wait(corner.store, 10 * SECOND) == SECOND);
    assert(qi_expire_wait(corner.store, 77) == 77);
    assert(qi_queue_delete(corner.a) == 0);
    assert(qi_expire_wait(corner.store, 10 * SECOND) == SECOND); /* one look for nothing */
    qi_sim_advance(corner.sim, 2 * SECOND);
    expire_due(&corner);
    assert(qi_expire_wait(corner.store, 10 * SECOND) == 10 * SECOND);
    corner_end(&corner);
}

int main(void) {
    test_who_lost_a_lease_is_told_so_and_changes_nothing();
    test_what_is_not_there_cannot_be_changed();
    test_an_event_without_room_is_refused();
    test_heaps_that_are_mostly_out_of_date_are_made_anew();
    test_entries_whose_messages_are_gone_are_dropped();
    test_the_worker_waits_for_the_first_bound_and_leaves_queues_that_are_not_there();
    test_what_the_disk_did_not_give_expires_later();
    test_a_flush_that_could_not_begin_is_not_begun_again();
    printf("times: all passed\n");
    return 0;
}
