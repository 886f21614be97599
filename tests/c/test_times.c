/* test_times.c - what has a time, when the disk or the memory does not give something, or what was written down is out of
 * date. On a simulated disk, whose clock stands still. Usage: test_times <directory>
 */
#include "corner.h"
#include "expire.h"
#include "ready.h"

#define SECOND UINT64_C(1000000)

static uint64_t now_of(const struct corner *corner) {
    return qi_store_now_us(corner->store);
}

static uint64_t depth_of(qi_queue *queue) {
    qi_queue_stats stats;
    assert(qi_queue_stats_of(queue, &stats) == 0);
    return stats.depth;
}

/* Messages that expire in a second. */
static void publish_mortal(struct corner *corner, qi_queue *queue, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        assert(qi_publish_with(queue, NULL, 0, "mortal", 6, 0, now_of(corner) + SECOND, 0) >= 0);
}

/* ---- expiry ---- */

/* The last message of each of two segments is out, so their maps stay; the records are in the files. */
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

/* A get drops what has expired one by one. After the journal had been rotated there was no memory for the flush; the next
 * drop began another rotation, in the file of the journal that was not flushed. */
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

int main(void) {
    test_what_the_disk_did_not_give_expires_later();
    test_a_flush_that_could_not_begin_is_not_begun_again();
    printf("times: all passed\n");
    return 0;
}
