/* test_clock.c - threads and an event loop that sleep while somebody sets the wall clock. The disk
 * is the real one; what its wall clock says is the test's. Usage: test_clock <directory>
 */
#undef NDEBUG
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/store.h"
#include "usual.h"

#define SECOND UINT64_C(1000000)
#define HOUR   (3600 * SECOND)
#define LATE   (5 * SECOND) /* a step is noticed within a second; the machine may be busy */

static atomic_llong step_us; /* how far the wall clock is from the machine's */
static struct qi_disk_ops ops;
static struct qi_disk disk;
static qi_store *store;
static qi_queue *queue;

static uint64_t wall_us(struct qi_disk *any) {
    (void)any;
    return qi_disk_posix.ops->wall_us(&qi_disk_posix) + (uint64_t)atomic_load(&step_us);
}

static uint64_t steady_us(void) {
    return qi_disk_posix.ops->monotonic_us(&qi_disk_posix);
}

static void begin(const char *root, const char *name) {
    char path[400];
    qi_options options = usual();
    options.worker = true;
    options.idle_us = 60 * SECOND;
    options.sync_interval_us = 5000;
    snprintf(path, sizeof path, "%s/%s", root, name);
    atomic_store(&step_us, 0);
    assert(qi_store_open_on(&disk, path, &options, &store) == 0);
    assert(qi_queue_open(store, "a", 1, A, true, &queue) == 0);
    const qi_rules rules = {0};
    assert(qi_queue_set_rules(queue, &rules) == 0);
}

static void end(void) {
    assert(qi_store_close(store) == 0);
    qi_store_free(store);
}

static void publish(uint64_t expiry_us, uint64_t due_us) {
    assert(qi_publish_with(queue, NULL, 0, "x", 1, 0, expiry_us, due_us) >= 0);
}

static void nap(void) {
    usleep(100000);
}

static void *get_within_an_hour(void *got_after_us) {
    uint8_t payload[10];
    qi_reader reader = {.queue = queue, .payload = payload, .room = sizeof payload};
    int64_t got = qi_get_wait(&reader, &queue, 1, qi_store_clock_us(store) + HOUR, UINT64_MAX);
    *(uint64_t *)got_after_us = got == 1 ? steady_us() : 0;
    return NULL;
}

static void test_a_thread_that_sleeps_until_a_due_time_follows_a_step(const char *root) {
    begin(root, "thread");
    publish(0, wall_us(NULL) + HOUR / 2);
    uint64_t got_us = 0;
    pthread_t sleeper;
    assert(pthread_create(&sleeper, NULL, get_within_an_hour, &got_us) == 0);
    nap();
    uint64_t stepped_us = steady_us();
    atomic_store(&step_us, (long long)HOUR);
    assert(pthread_join(sleeper, NULL) == 0);
    assert(got_us && got_us - stepped_us < LATE);
    end();
}

static void test_an_event_loop_follows_a_step(const char *root) {
    begin(root, "loop");
    publish(0, wall_us(NULL) + HOUR / 2);
    struct pollfd bell = {.fd = qi_store_bell(store), .events = POLLIN};
    assert(bell.fd >= 0 && qi_bell_arm(queue, true) == 0);
    assert(poll(&bell, 1, 100) == 0);
    atomic_store(&step_us, (long long)HOUR);
    assert(poll(&bell, 1, (int)(LATE / 1000)) == 1 && qi_bell_next(store) == queue);
    end();
}

/* Dropped by the worker: nobody asks for it. */
static void test_what_a_step_lets_expire_leaves_by_itself(const char *root) {
    begin(root, "expiry");
    publish(wall_us(NULL) + HOUR / 2, 0);
    nap();
    qi_queue_stats stats;
    assert(qi_queue_stats_of(queue, &stats) == 0 && stats.depth == 1);
    atomic_store(&step_us, (long long)HOUR);
    for (uint64_t until_us = steady_us() + LATE; stats.depth > 0; nap())
        assert(steady_us() < until_us && qi_queue_stats_of(queue, &stats) == 0);
    end();
}

static void test_a_lease_does_not_follow_a_step(const char *root) {
    begin(root, "lease");
    publish(0, 0);
    uint8_t payload[10];
    qi_reader reader = {
        .queue = queue, .payload = payload, .room = sizeof payload, .lease_us = HOUR / 2};
    assert(qi_get(&reader) == 1);
    atomic_store(&step_us, (long long)HOUR);
    assert(qi_touch(queue, 0, reader.message.delivery, SECOND / 10) == 0);
    atomic_store(&step_us, -(long long)HOUR);
    uint64_t got_us = 0, begun_us = steady_us();
    get_within_an_hour(&got_us);
    assert(got_us && got_us - begun_us >= SECOND / 20 && got_us - begun_us < LATE);
    end();
}

/* The worker sees it, and says so without being asked. */
static void test_a_clock_that_is_set_back_is_a_finding(const char *root) {
    begin(root, "finding");
    atomic_store(&step_us, -(long long)HOUR);
    bool is_damage = true;
    const char *where, *text = "";
    uint64_t offset, until_us = steady_us() + LATE;
    publish(wall_us(NULL) + HOUR, 0); /* the worker has something to look at */
    while (qi_store_finding(store, 0, &is_damage, &where, &offset, &text) == QI_EMPTY) {
        assert(steady_us() < until_us);
        nap();
    }
    assert(!is_damage && strstr(text, "the clock says"));
    end();
}

int main(int count, char **arguments) {
    assert(count == 2);
    alarm(120); /* not for ever */
    ops = *qi_disk_posix.ops;
    ops.wall_us = wall_us;
    disk = qi_disk_posix;
    disk.ops = &ops;
    test_a_thread_that_sleeps_until_a_due_time_follows_a_step(arguments[1]);
    test_an_event_loop_follows_a_step(arguments[1]);
    test_what_a_step_lets_expire_leaves_by_itself(arguments[1]);
    test_a_lease_does_not_follow_a_step(arguments[1]);
    test_a_clock_that_is_set_back_is_a_finding(arguments[1]);
    printf("clock: all passed\n");
    return 0;
}
