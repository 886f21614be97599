/* test_worker.c - the worker where the system refuses something: it goes on after what may pass,
 * and ends with a store that has failed. The linker puts the functions below in front of the
 * system's (--wrap). Usage: test_worker <directory>
 */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "usual.h"

static atomic_bool no_sync;
static atomic_int segments_to_refuse;
/* A busy machine: the refusal comes when all is published, and a sleep after it takes two
 * seconds. */
static atomic_bool is_busy, is_early;
static pthread_mutex_t stage = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static int refused, opened, published; /* calls; segment files; all of a test's messages */
/* A flush of two segments is watched: before the first it says `flushing` and waits for
 * `published`; before the second it looks whether what was published up to there is durable. */
static atomic_bool is_watched;
static int flushing, second_seen_durable;
static uint64_t published_upto;
static qi_store *store;
static qi_queue *queue;

static void say(int *what) {
    pthread_mutex_lock(&stage);
    (*what)++;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&stage);
}

static int refuse(int error) {
    say(&refused);
    errno = error;
    return -1;
}

static void until(const int *count, int times) {
    pthread_mutex_lock(&stage);
    while (*count < times)
        pthread_cond_wait(&moved, &stage);
    pthread_mutex_unlock(&stage);
}

static void watch_flush(void) {
    if (opened == 0) {
        say(&flushing);
        until(&published, 1);
        return;
    }
    qi_lock(store);
    second_seen_durable = queue->lsn_synced >= published_upto;
    qi_unlock(store);
    is_watched = false;
}

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...) {
    bool is_segment = strstr(name, ".idx");
    if (is_segment && segments_to_refuse > 0) {
        segments_to_refuse--;
        if (is_busy)
            until(&published, 1);
        is_early = is_busy;
        return refuse(EMFILE);
    }
    if (is_segment && is_watched)
        watch_flush();
    int file = __real_openat(dir, name, flags, 0600);
    if (is_segment && file >= 0)
        say(&opened);
    return file;
}

int __real_fdatasync(int file);
int __wrap_fdatasync(int file);
int __wrap_fdatasync(int file) {
    return no_sync ? refuse(EIO) : __real_fdatasync(file);
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    int result = __real_clock_gettime(clock, now);
    now->tv_sec -= is_early ? 2 : 0;
    return result;
}

int __real_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until_then);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until_then);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until_then) {
    is_early = false;
    return __real_pthread_cond_timedwait(condition, mutex, until_then);
}

static void begin(const char *root, const char *name) {
    char path[300];
    refused = opened = published = flushing = 0;
    qi_options options = usual();
    options.worker = true;
    options.sync_interval_us = 1000;
    options.idle_us = UINT64_C(3600) * 1000000;
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert(qi_store_open(path, &options, &store) == 0);
    assert(qi_queue_open(store, "a", 1, A, true, &queue) == 0);
}

static void publish_until_a_flush_is_due(qi_queue *to) {
    for (int i = 0; i < 26; i++)
        assert(qi_publish(to, "x", 1) == i);
}

/* It has no descriptor for a segment of the first queue, twice: that is no failure of the store,
 * keeps no other queue from its flush, and is tried again though nobody asks. */
static void test_a_flush_that_found_no_descriptor_is_done_later(const char *root) {
    begin(root, "descriptors");
    qi_queue *behind, *queues[2];
    assert(qi_queue_open(store, "b", 1, B, true, &behind) == 0);
    segments_to_refuse = 2;
    publish_until_a_flush_is_due(queue);
    until(&refused, 1);
    publish_until_a_flush_is_due(behind);
    until(&refused, 2);
    until(&opened, 4); /* two of each; nobody else has flushed */
    queues[0] = queue, queues[1] = behind;
    for (int i = 0; i < 2; i++) {
        qi_queue_stats stats;
        assert(qi_flush(queues[i]) == 0); /* waits until that one is over */
        assert(qi_queue_stats_of(queues[i], &stats) == 0 && stats.dirty_count == 0);
        assert(stats.depth == 26 && stats.segments == 4);
    }
    assert(qi_store_close(store) == 0);
    qi_store_free(store);
}

/* When the worker wakes, its time has come already. */
static void test_a_flush_is_done_later_also_if_the_worker_sleeps_too_long(const char *root) {
    begin(root, "busy");
    is_busy = true;
    segments_to_refuse = 1;
    publish_until_a_flush_is_due(queue);
    say(&published);
    until(&opened, 2); /* nobody else has flushed */
    is_busy = false;
    assert(qi_flush(queue) == 0 && qi_store_close(store) == 0);
    qi_store_free(store);
}

/* What comes while the worker writes one segment is durable before it writes the next. */
static void test_the_group_commit_goes_on_during_a_flush(const char *root) {
    begin(root, "commit");
    is_watched = true;
    publish_until_a_flush_is_due(queue);
    until(&flushing, 1);
    assert(qi_publish(queue, "y", 1) == 26);
    qi_lock(store);
    published_upto = qi_lsn(queue);
    qi_unlock(store);
    usleep(2000); /* the interval */
    say(&published);
    until(&opened, 2);
    assert(second_seen_durable);
    assert(qi_flush(queue) == 0 && qi_store_close(store) == 0);
    qi_store_free(store);
}

static bool is_counted(void) {
    qi_lock(store);
    bool counted = store->messages.counted;
    qi_unlock(store);
    return counted;
}

/* Who opens a store gets his first messages before it. It begins when there is a message file that
 * could be freed: one behind which there is another. */
static void test_the_census_waits_a_moment(const char *root) {
    static const char large[5000];
    begin(root, "census");
    publish_until_a_flush_is_due(queue);
    usleep(200000);
    assert(!is_counted());
    assert(qi_publish(queue, large, sizeof large) == 26 && !is_counted());
    assert(qi_publish(queue, large, sizeof large) == 27);
    while (!is_counted())
        sched_yield();
    assert(qi_store_close(store) == 0);
    qi_store_free(store);
    uint64_t before_us = qi_disk_posix.ops->monotonic_us(&qi_disk_posix), now_us = 0;
    begin(root, "census");
    assert(qi_publish(queue, "x", 1) > 26); /* the worker has other things to do at once */
    while (now_us = qi_disk_posix.ops->monotonic_us(&qi_disk_posix), !is_counted())
        sched_yield();
    assert(now_us - before_us >= 100000);
    assert(qi_store_close(store) == 0);
    qi_store_free(store);
}

/* Nobody asked for the sync that failed: the next verb says so. */
static void test_a_sync_that_fails_in_the_worker_ends_the_store(const char *root) {
    begin(root, "sync");
    no_sync = true;
    assert(qi_publish(queue, "x", 1) == 0);
    until(&refused, 1);
    int64_t got;
    while ((got = qi_publish(queue, "x", 1)) >= 0) /* it is about to say so */
        sched_yield();
    assert(got == QI_E_FAILED);
    no_sync = false;
    assert(qi_queue_sync(queue) == QI_E_FAILED && qi_store_close(store) == QI_E_FAILED);
    qi_store_free(store);
}

int main(int count, char **arguments) {
    assert(count == 2);
    alarm(60); /* not for ever */
    test_a_flush_that_found_no_descriptor_is_done_later(arguments[1]);
    test_a_flush_is_done_later_also_if_the_worker_sleeps_too_long(arguments[1]);
    test_the_group_commit_goes_on_during_a_flush(arguments[1]);
    test_the_census_waits_a_moment(arguments[1]);
    test_a_sync_that_fails_in_the_worker_ends_the_store(arguments[1]);
    printf("worker: all passed\n");
    return 0;
}
