/* test_waits.c - waits and bells where memory, descriptors or the lock are not to be had, or the
 * queue is gone. On a simulated disk, whose clock goes on while somebody waits. Usage: test_waits
 * <directory>
 */
#undef NDEBUG
#define ALLOCATIONS_REAL
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proof/explore/allocations.h"
#include "proof/sim/disk_sim.h"
#include "queue/queue.h"
#include "store/store.h"
#include "usual.h"

static bool no_descriptor;
int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags) {
    if (!no_descriptor)
        return __real_eventfd(count, flags);
    errno = EMFILE;
    return -1;
}

struct waits {
    qi_sim *sim;
    qi_store *store;
    qi_queue *queue;
};

static struct waits begin(void) {
    struct waits waits = {.sim = qi_sim_new(1, NULL)};
    qi_options options = usual();
    assert(qi_store_open_sim(waits.sim, &options, &waits.store) == 0);
    assert(qi_queue_open(waits.store, "a", 1, A, true, &waits.queue) == 0);
    return waits;
}

static void end(struct waits *waits) {
    qi_store_free(waits->store);
    qi_sim_free(waits->sim);
}

static int64_t wait_a_second(struct waits *waits, qi_queue **queues, uint32_t count) {
    uint8_t payload[100];
    qi_reader reader = {.queue = waits->queue, .payload = payload, .room = sizeof payload};
    uint64_t until_us = qi_store_clock_us(waits->store) + 1000000;
    return qi_get_wait(&reader, queues, count, until_us, UINT64_MAX);
}

static void test_a_wait_for_many_queues_needs_memory(void) {
    struct waits waits = begin();
    qi_queue *queues[9];
    for (int i = 0; i < 9; i++)
        queues[i] = waits.queue;
    allocations.calls = 0;
    allocations.fail_at = 1;
    assert(wait_a_second(&waits, queues, 9) == QI_E_MEMORY);
    allocations.fail_at = 0;
    uint64_t before_us = qi_store_clock_us(waits.store);
    assert(wait_a_second(&waits, queues, 9) == QI_EMPTY);
    assert(qi_store_clock_us(waits.store) >= before_us + 1000000);
    assert(qi_publish(waits.queue, "x", 1) == 0 && wait_a_second(&waits, queues, 9) == 1);
    end(&waits);
}

static void test_a_wait_for_a_deleted_queue_ends_at_once(void) {
    struct waits waits = begin();
    assert(qi_queue_delete(waits.queue) == 0);
    uint64_t before_us = qi_store_clock_us(waits.store);
    assert(wait_a_second(&waits, &waits.queue, 1) == QI_E_CLOSED);
    assert(qi_store_clock_us(waits.store) == before_us);
    assert(qi_bell_arm(waits.queue, true) == QI_E_CLOSED);
    end(&waits);
}

static void test_a_bell_without_a_descriptor_is_an_error_and_may_be_had_later(void) {
    struct waits waits = begin();
    no_descriptor = true;
    assert(qi_store_bell(waits.store) == QI_E_IO);
    no_descriptor = false;
    int bell = qi_store_bell(waits.store);
    assert(bell >= 0 && qi_store_bell(waits.store) == bell); /* one per store */
    assert(qi_store_close(waits.store) == 0 && qi_store_bell(waits.store) == QI_E_CLOSED);
    end(&waits);
}

/* An event loop must not wait for the lock. */
static void test_a_bell_is_not_armed_while_somebody_has_the_lock(void) {
    struct waits waits = begin();
    qi_lock(waits.store);
    assert(qi_bell_arm(waits.queue, false) == QI_BUSY);
    assert(qi_bell_disarm(waits.queue, false) == QI_BUSY);
    qi_unlock(waits.store);
    assert(qi_bell_arm(waits.queue, false) == 0 && !qi_bell_next(waits.store));
    assert(qi_publish(waits.queue, "x", 1) == 0);
    assert(qi_bell_next(waits.store) == waits.queue && !qi_bell_next(waits.store));
    assert(qi_bell_arm(waits.queue, false) == 1); /* something is ready */
    assert(qi_bell_disarm(waits.queue, false) == 0);
    end(&waits);
}

/* What is ready by time alone. */
static void test_a_bell_of_a_queue_whose_time_has_come_is_not_armed(void) {
    struct waits waits = begin();
    uint64_t soon = qi_store_now_us(waits.store) + 1000;
    assert(qi_publish_with(waits.queue, NULL, 0, "x", 1, 0, 0, soon) > 0);
    assert(qi_bell_arm(waits.queue, true) == 0 && qi_bell_disarm(waits.queue, true) == 0);
    qi_sim_advance(waits.sim, 2000);
    assert(qi_bell_arm(waits.queue, true) == 1);
    end(&waits);
}

/* The worker sleeps until the first of the times, however they come. */
static void test_a_bell_is_rung_for_the_first_of_the_times(void) {
    static const uint64_t delays_us[] = {5000, 9000, 3000}, first_us[] = {5000, 5000, 3000};
    struct waits waits = begin();
    assert(qi_store_bell(waits.store) >= 0 && qi_bell_arm(waits.queue, true) == 0);
    for (int i = 0; i < 3; i++) {
        uint64_t due_us = qi_store_now_us(waits.store) + delays_us[i];
        assert(qi_publish_with(waits.queue, NULL, 0, "x", 1, 0, 0, due_us) > 0);
        qi_lock(waits.store);
        assert(qi_bells_timer(waits.store, 1000000) == first_us[i]);
        qi_unlock(waits.store);
    }
    end(&waits);
}

/* The worker rings when a time has come; what it cannot read for that it says, and the next round
 * tries again. */
static void test_a_bell_rings_when_its_time_comes_and_the_disk_gives_it(void) {
    bool failed = true;
    for (uint64_t call = 1; failed; call++) {
        struct waits waits = begin();
        uint64_t later = qi_store_now_us(waits.store) + 3600 * UINT64_C(1000000);
        assert(qi_publish_with(waits.queue, NULL, 0, "x", 1, 0, 0, later) > 0);
        assert(qi_flush(waits.queue) == 0 && qi_store_close(waits.store) == 0);
        qi_store_free(waits.store);
        qi_options options = usual();
        assert(qi_store_open_sim(waits.sim, &options, &waits.store) == 0);
        assert(qi_queue_open(waits.store, "a", 1, A, false, &waits.queue) == 0);
        waits.queue->recovered = false; /* as if nobody had read it yet: who waits has to look */
        assert(qi_bell_arm(waits.queue, true) == 1);
        waits.queue->recovered = true;
        qi_queue_stats stats;
        assert(qi_queue_stats_of(waits.queue, &stats) == 0 && stats.depth == 1);
        qi_queue *other; /* is not looked at behind an error */
        assert(qi_queue_open(waits.store, "b", 1, B, true, &other) == 0);
        assert(qi_store_bell(waits.store) >= 0 && qi_bell_arm(waits.queue, true) == 0);
        qi_lock(waits.store);
        assert(qi_queue_unload(waits.queue) == 0 && waits.queue->dir < 0); /* it is woken */
        assert(qi_bells_run(waits.store) == 0 && qi_bells_timer(waits.store, 7) == 7);
        qi_sim_advance(waits.sim, 3601 * UINT64_C(1000000));
        assert(qi_bells_timer(waits.store, 7) == 0);
        qi_sim_fault(waits.sim, call, QI_SIM_EIO, false);
        int error = qi_bells_run(waits.store);
        failed = waits.sim->fault_hits > 0;
        qi_sim_fault(waits.sim, 0, 0, false);
        if (waits.store->failed) { /* it was a sync */
            assert(failed && error < 0);
        } else {
            assert(error == 0 || (failed && error == QI_E_IO));
            assert(qi_bells_run(waits.store) == 0);
        }
        qi_unlock(waits.store);
        assert(waits.store->failed || qi_bell_next(waits.store) == waits.queue);
        end(&waits);
    }
}

static struct qi_disk_ops real, ours;

static int open_no_segment(struct qi_disk *disk, int dir, const char *name,
                           enum qi_open_mode mode) {
    return strstr(name, ".idx") ? -EIO : real.open(disk, dir, name, mode);
}

/* What one queue has due cannot be read: the round says so, and the others get their commit. */
static void test_a_bell_that_cannot_ring_keeps_nobody_from_a_commit(void) {
    struct waits waits = begin();
    qi_queue *other;
    uint64_t later = qi_store_now_us(waits.store) + 3600 * UINT64_C(1000000);
    assert(qi_publish_with(waits.queue, NULL, 0, "x", 1, 0, 0, later) > 0);
    assert(qi_flush(waits.queue) == 0 && qi_store_close(waits.store) == 0);
    qi_store_free(waits.store);
    qi_options options = usual();
    options.sync_interval_us = 1000;
    assert(qi_store_open_sim(waits.sim, &options, &waits.store) == 0);
    assert(qi_queue_open(waits.store, "a", 1, A, false, &waits.queue) == 0);
    assert(qi_queue_open(waits.store, "b", 1, B, true, &other) == 0);
    assert(qi_store_bell(waits.store) >= 0 && qi_bell_arm(waits.queue, true) == 0);
    qi_sim_advance(waits.sim, 3601 * UINT64_C(1000000));
    assert(qi_publish(other, "y", 1) == 0);
    real = ours = *waits.sim->disk.ops;
    ours.open = open_no_segment;
    waits.sim->disk.ops = &ours;
    assert(other->lsn_synced < qi_lsn(other) && qi_store_tick(waits.store) == QI_E_IO);
    assert(other->lsn_synced == qi_lsn(other) && !qi_bell_next(waits.store));
    waits.sim->disk.ops = &real;
    assert(qi_store_tick(waits.store) == 0 && qi_bell_next(waits.store) == waits.queue);
    end(&waits);
}

int main(void) {
    test_a_bell_is_rung_for_the_first_of_the_times();
    test_a_bell_of_a_queue_whose_time_has_come_is_not_armed();
    test_a_bell_rings_when_its_time_comes_and_the_disk_gives_it();
    test_a_bell_that_cannot_ring_keeps_nobody_from_a_commit();
    test_a_wait_for_many_queues_needs_memory();
    test_a_wait_for_a_deleted_queue_ends_at_once();
    test_a_bell_without_a_descriptor_is_an_error_and_may_be_had_later();
    test_a_bell_is_not_armed_while_somebody_has_the_lock();
    printf("waits: all passed\n");
    return 0;
}
