/* worker.c - the one background thread: group commit, flushes, what has expired, idle queues, the
 * census, freeing and compaction.
 *
 * It sleeps until somebody makes something dirty and never polls a store at rest. Everything it
 * does can be done by the callers as well (sync, flush, compact); without a worker a store is only
 * slower.
 */
#define _GNU_SOURCE
#include "store/store.h"

#include <time.h>

#include "durable/durable.h"
#include "queue/queue.h"

#define FOR_EVER  UINT64_MAX
#define AGAIN_US  UINT64_C(1000000)
#define TOLD_US   UINT64_C(60000000) /* between two calls of tell_slow */
#define SETTLE_US UINT64_C(5000)     /* in a round: the next group commit waits so long */

/* Who opens a store wants its first message, and the census keeps the lock while it reads about a
 * queue's segments. */
#define CENSUS_AFTER_US UINT64_C(100000)

/* What the worker's rounds remember. */
struct rounds {
    uint64_t compacted_us;
    uint64_t flush_again_us; /* one could not be done: it is tried again then; 0: none is left */
    uint64_t census_us;      /* not before */
};

/* Without message files there is nothing to count, and without old COPYs nothing that a queue has
 * to take: then queues that nobody uses are not read. */
static bool waits_for_census(const struct qi_store *store) {
    bool has_use = store->messages.files_count > 0 || qi_commits_untaken(store->commits);
    return has_use && !store->messages.counted && store->census != QI_CENSUS_STOPPED;
}

static bool census_is_due(const struct qi_store *store, const struct rounds *rounds) {
    return waits_for_census(store) &&
           rounds->census_us <= store->disk->ops->monotonic_us(store->disk);
}

int qi_sync_open_queues(struct qi_store *store, const bool *give_up) {
    int error = qi_sync_queues(store, give_up);
    for (struct qi_queue *queue = store->open.oldest; queue && !error && !store->closing;
         queue = queue->newer)
        if (qi_is_awake(queue))
            error = qi_tell_durable(queue);
    return error;
}

/* Files emptied before the syncs began may go after them: the acks that emptied them are durable
 * (H9). */
int qi_commit_group(struct qi_store *store) {
    uint32_t empty[64], count = qi_messages_empty(&store->messages, empty, 64);
    store->dirty = false;
    uint64_t began_us = store->disk->ops->monotonic_us(store->disk);
    if (QI_BUG(body_freed_before_its_ack))
        qi_messages_free(&store->messages, empty, count), count = 0;
    int error = qi_sync_open_queues(store, &store->stopping);
    if (!error)
        error = qi_sync_messages(store);
    if (store->stopping) /* then not every queue was synced, and close does that at once */
        count = 0;
    if (!error && count) {
        int64_t freed = qi_messages_free(&store->messages, empty, count);
        if (freed < 0)
            error = (int)freed;
    }
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    store->commit_due_us = now + (now - began_us) + store->options.sync_interval_us;
    return error;
}

void qi_commit_if_due(struct qi_store *store) {
    qi_relock(store);
    if (store->has_worker && store->dirty && !store->failed && store->options.sync_interval_us &&
        store->disk->ops->monotonic_us(store->disk) >= store->commit_due_us)
        qi_commit_group(
            store); /* a sync that fails fails the store; a file that stays is tried again */
    qi_unlock(store);
}

/* One that could not be done (no descriptor, no space) leaves the old journal as the truth, and
 * keeps no other queue from its flush. Who needs its room before the next try does it first. */
static int run_flushes(struct qi_store *store, struct rounds *rounds) {
    store->flush_due = false;
    rounds->flush_again_us = 0;
    int trouble = 0;
    for (uint32_t i = 0; i < store->queues_count && !store->failed; i++) {
        struct qi_queue *queue = store->queues[i];
        if (!qi_is_in_use(queue) || !queue->flush)
            continue;
        int error = qi_flush_run(queue);
        if (queue->flush) /* or somebody else is at it, and may fail */
            rounds->flush_again_us = store->disk->ops->monotonic_us(store->disk) + AGAIN_US;
        if (error && error != QI_E_FULL)
            trouble = error;
    }
    return trouble;
}

/* Waits for work, at most until the time is over. Whoever wants to wake the worker changes
 * something first, with the lock, which is given up only when the worker would hear it. */
static void wait_for_work(struct qi_store *store, uint64_t us) {
    pthread_mutex_lock(&store->sleep);
    qi_unlock(store);
    if (us == FOR_EVER) {
        pthread_cond_wait(&store->work, &store->sleep);
    } else {
        struct timespec until = qi_time_after(us + 1);
        pthread_cond_timedwait(&store->work, &store->sleep, &until);
    }
    pthread_mutex_unlock(&store->sleep);
    qi_relock(store);
}

static int one_round(struct qi_store *store, struct rounds *rounds) {
    bool flush_again = rounds->flush_again_us &&
                       rounds->flush_again_us <= store->disk->ops->monotonic_us(store->disk);
    int trouble = store->flush_due || flush_again ? run_flushes(store, rounds) : 0;
    qi_note_clock(store, 0);
    int error = qi_bells_run(store);
    if (error)
        trouble = error; /* of one queue; the others get their commit all the same */
    error = store->failed;
    if (!error && store->dirty && store->options.sync_interval_us)
        error = qi_commit_group(store);
    else if (!store->options.sync_interval_us)
        store->dirty = false;
    if (!error && qi_settling(store))
        error = qi_settle_some(store, SETTLE_US);
    if (!error && qi_catalog_run(store) != 0) /* the logs stay until it can be written */
        error = store->failed;
    if (!error && census_is_due(store, rounds)) {
        error = qi_census(store, false);
        if (error) { /* a queue that cannot be read: nothing is freed until somebody compacts */
            qi_report(store, error == QI_E_CORRUPT, "", "", 0, "the census stopped: %s",
                      qi_error_text());
            store->messages.counted = false;
            store->census = QI_CENSUS_STOPPED;
            store->census_error = error;
            error = 0;
        }
    }
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    if (!error && store->messages.counted && now - rounds->compacted_us > 1000000) {
        int64_t freed;
        rounds->compacted_us = now;
        error = qi_compact(store, GARBAGE_PERCENT, &freed);
        if (error == QI_E_FULL || error == QI_E_CORRUPT)
            error = 0;
    }
    return error ? error : trouble;
}

static uint64_t sooner(uint64_t us, uint64_t due_us, uint64_t now_us) {
    uint64_t left = due_us > now_us ? due_us - now_us : 0;
    return left < us ? left : us;
}

/* How long the worker may sleep if nobody wakes it. */
static uint64_t until_something_is_due(struct qi_store *store, const struct rounds *rounds,
                                       bool open) {
    uint64_t us = qi_expire_wait(store, open ? store->options.idle_us / 2 + 1 : FOR_EVER);
    us = qi_bells_timer(store, us); /* of an event loop */
    us = sooner(us, store->dead_due_us, qi_steady_us(store));
    us = sooner(us, store->spent_due_us, qi_steady_us(store));
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    if (rounds->flush_again_us)
        us = sooner(us, rounds->flush_again_us, now);
    return waits_for_census(store) ? sooner(us, rounds->census_us, now) : us;
}

void qi_store_on_slow_sync(struct qi_store *store, void (*tell)(struct qi_store *)) {
    qi_lock(store);
    store->tell_slow = tell;
    qi_unlock(store);
}

/* What is slow for long is told once a minute: whoever is told can ask for all counts. */
static void tell_slow(struct qi_store *store) {
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    store->slow_due = false;
    if (store->slow_told_us && now - store->slow_told_us < TOLD_US)
        return;
    store->slow_told_us = now;
    qi_unlock(store);
    store->tell_slow(store);
    qi_relock(store);
}

static void *work(void *argument) {
    struct qi_store *store = argument;
    struct rounds rounds = {.census_us =
                                store->disk->ops->monotonic_us(store->disk) + CENSUS_AFTER_US};
    uint64_t looked_us = 0;
    uint32_t open = 1;
    qi_lock(store);
    while (!store->stopping && !store->failed) {
        if (!store->dirty && !store->flush_due && !store->relief_due && !store->slow_due &&
            !census_is_due(store, &rounds) && !qi_settling(store))
            wait_for_work(store, until_something_is_due(store, &rounds, open > 0));
        /* Group commit: what comes within the interval is synced together. */
        if (!store->stopping && store->dirty && !store->flush_due &&
            store->options.sync_interval_us)
            wait_for_work(store, qi_bells_timer(store, store->options.sync_interval_us));
        if (store->stopping)
            break;
        if (one_round(store, &rounds) != 0 && !store->failed)
            wait_for_work(store, 100000); /* a passing trouble */
        if (store->slow_due)
            tell_slow(store);
        qi_expire_due(store);
        qi_spent_run(store);
        qi_dead_run(store);
        uint64_t now = store->disk->ops->monotonic_us(store->disk);
        if (store->relief_due || now - looked_us >= store->options.idle_us / 2) {
            open = qi_unload_idle(store);
            looked_us = now;
        } else {
            open = 1;
        }
    }
    qi_unlock(store);
    return NULL;
}

int qi_store_tick(struct qi_store *store) {
    struct rounds rounds = {0};
    qi_lock(store);
    int error = qi_store_usable(store, true);
    if (!error)
        store->flush_due = true; /* also what the tick before could not do */
    if (!error)
        error = one_round(store, &rounds);
    if (!error)
        qi_spent_run(store);
    if (!error)
        qi_dead_run(store);
    if (!error)
        qi_unload_idle(store);
    qi_unlock(store);
    return error;
}

int qi_worker_start(struct qi_store *store) {
    int error = pthread_create(&store->worker, NULL, work, store);
    store->has_worker = error == 0;
    return error ? qi_fail(QI_E_MEMORY, "cannot start the worker thread (errno %d)", error) : 0;
}

void qi_worker_stop(struct qi_store *store) {
    qi_lock(store);
    while (store->stopping) /* another thread closes it, too */
        pthread_cond_wait(&store->changed, &store->lock);
    bool stops = store->has_worker;
    store->stopping = stops;
    if (stops)
        qi_wake_worker(store);
    qi_unlock(store);
    if (!stops)
        return;
    pthread_join(store->worker, NULL);
    qi_lock(store);
    store->has_worker = store->stopping = false;
    pthread_cond_broadcast(&store->changed);
    qi_unlock(store);
}
