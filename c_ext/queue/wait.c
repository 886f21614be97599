/* wait.c - get with a timeout, from one queue or several; waking those who wait; bells for event
 * loops.
 *
 * No wake-up is lost: a waiter is in the lists before it looks, and sleeps only if nobody woke it
 * since. Nor is one wasted: who leaves while something is ready that it did not take wakes the
 * next. A publish wakes as many as it has messages, so there is no stampede. A signal handler of
 * Python cannot run while the thread sleeps in here: the caller names a pause after which qi_wait
 * comes back for a moment (QI_PAUSE).
 *
 * What becomes ready by time alone is found by who waits for it: a sleeper sleeps no longer than
 * until the next timer of its queues, and is woken when an earlier one is set. A due time follows
 * the wall clock, which may be set: who waits for one looks at the clock each second. For event
 * loops the worker keeps the time.
 */
#define _GNU_SOURCE
#include "queue/queue_private.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* ---- time ---- */

static uint64_t first_of(const struct qi_heap *heap) {
    return heap->count ? heap->items[0].key : UINT64_MAX;
}

static uint64_t left_until(uint64_t us, uint64_t now) {
    return us == UINT64_MAX ? us : us > now ? us - now : 0;
}

static uint64_t delayed_left_us(const struct qi_queue *queue) {
    uint64_t first = first_of(&queue->timers.delayed);
    return first == UINT64_MAX ? first : left_until(first, qi_wall_us(queue->store));
}

static uint64_t lease_left_us(const struct qi_queue *queue) {
    uint64_t first = first_of(&queue->timers.leases);
    return first == UINT64_MAX ? first : left_until(first, qi_steady_us(queue->store));
}

uint64_t qi_timers_left_us(const struct qi_queue *queue) {
    uint64_t delayed = delayed_left_us(queue), lease = lease_left_us(queue);
    return delayed < lease ? delayed : lease;
}

/* So long to sleep for them: a second after the wall clock is set, somebody looks. */
static uint64_t sleep_us(const struct qi_queue *queue) {
    uint64_t delayed = delayed_left_us(queue), lease = lease_left_us(queue);
    if (delayed != UINT64_MAX)
        delayed = qi_wall_sleep_us(queue->store, delayed);
    return delayed < lease ? delayed : lease;
}

/* Who waits sleeps no longer than until what is first now; and: nothing is earlier than it was
 * then. */
static void arm(struct qi_queue *queue) {
    queue->armed_due_us = first_of(&queue->timers.delayed);
    queue->armed_lease_us = first_of(&queue->timers.leases);
}

static bool are_armed(const struct qi_queue *queue) {
    return first_of(&queue->timers.delayed) >= queue->armed_due_us &&
           first_of(&queue->timers.leases) >= queue->armed_lease_us;
}

/* ---- lists ---- */

static void enlist(struct qi_queue *queue, struct qi_waiter *waiter) {
    arm(queue);
    if (waiter->listed)
        return;
    waiter->listed = true;
    waiter->next = NULL;
    waiter->previous = queue->last_waiter;
    if (queue->last_waiter)
        queue->last_waiter->next = waiter;
    else
        queue->waiters = waiter;
    queue->last_waiter = waiter;
}

/* ---- waking ---- */

/* They look again, and sleep no longer than they have to. The bell stays armed. */
static void wake_sleepers(struct qi_queue *queue) {
    struct qi_waiter *waiter = queue->waiters;
    while (waiter) {
        struct qi_waiter *next = waiter->next;
        if (waiter->sleeper) {
            qi_waiter_leave(queue, waiter);
            qi_wake_sleeper(waiter->sleeper);
        }
        waiter = next;
    }
}

/* Ready, as far as the counters know: a message that has expired counts until it is met. */
static bool has_ready(const struct qi_queue *queue) {
    return queue->recovered && queue->depth > queue->out + queue->delayed + queue->dead;
}

static bool has_run_out(const struct qi_queue *queue) {
    return qi_timers_left_us(queue) == 0;
}

static uint64_t least(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

/* So long until the next timer, for somebody who is going to sleep; at most `us`. */
static uint64_t until_timer(struct qi_queue *queue, uint64_t us) {
    arm(queue);
    return least(us, sleep_us(queue));
}

void qi_timers_armed(struct qi_queue *queue) {
    bool listens = queue->store->listeners != NULL;
    if ((!queue->waiters && !listens) || are_armed(queue))
        return;
    if (queue->bell.listed || listens)
        qi_wake_worker(queue->store);
    wake_sleepers(queue);
}

/* By the worker. */
static bool is_kept_time_for(const struct qi_queue *queue) {
    return queue->bell.listed ||
           (queue->store->listeners && queue->recovered && !queue->recovering && !queue->deleted);
}

uint64_t qi_bells_timer(struct qi_store *store, uint64_t us) {
    if (store->bell < 0 && !store->listeners) /* no event loop */
        return us;
    for (uint32_t i = 0; i < store->queues_count; i++)
        if (is_kept_time_for(store->queues[i]))
            us = until_timer(store->queues[i], us);
    return us;
}

int qi_bells_run(struct qi_store *store) {
    int trouble = 0;
    bool anybody = store->bell >= 0 || store->listeners;
    for (uint32_t i = 0; i < store->queues_count && anybody; i++) {
        struct qi_queue *queue = store->queues[i];
        if (!is_kept_time_for(queue) || !has_run_out(queue))
            continue;
        int error = qi_queue_ready(queue, true);
        if (!error)
            error = qi_delayed_run(queue);
        if (error)
            trouble = error;
    }
    return trouble;
}

/* ---- sleeping ---- */

static void init_sleeper(struct qi_sleeper *sleeper) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&sleeper->mutex, NULL);
    pthread_cond_init(&sleeper->wake, &clock);
    pthread_condattr_destroy(&clock);
    sleeper->woken = false;
}

#define SLEEP_MAX_US                                                                               \
    (UINT64_C(3600) * 1000000) /* longer ones in parts: no overflow to think of                    \
                                */

/* Until it is woken, at most that long. The lock is given up; the verbs let it come back
 * (qi_relock). */
static void sleep_for(struct qi_store *store, struct qi_sleeper *sleeper, uint64_t us) {
    if (store->disk->single_threaded) { /* nobody else is there who could wake it: time passes */
        store->disk->ops->pass(store->disk, us);
        return;
    }
    struct timespec until = qi_time_after(us < SLEEP_MAX_US ? us : SLEEP_MAX_US);
    int error = 0;
    pthread_mutex_lock(&sleeper->mutex);
    qi_unlock(store);
    while (!sleeper->woken && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&sleeper->wake, &sleeper->mutex, &until);
    pthread_mutex_unlock(&sleeper->mutex);
    qi_relock(store);
}

/* ---- waiting ---- */

/* One look at a queue. An idle queue of which is known that it has nothing is not woken for it. */
static int64_t look(struct qi_queue *queue, qi_take take, void *context) {
    int64_t result = 0;
    if (queue->recovered && !queue->recovering && !has_ready(queue) && !has_run_out(queue)) {
        result = qi_store_usable(queue->store, true);
        return result ? result : QI_EMPTY;
    }
    result = qi_queue_ready(queue, true);
    return result ? result : take(queue, context);
}

static int64_t look_at_all(struct qi_queue **queues, uint32_t count, qi_take take, void *context) {
    int64_t result = QI_EMPTY;
    for (uint32_t i = 0; i < count && result == QI_EMPTY; i++)
        result = look(queues[i], take, context);
    return result;
}

static int64_t wait_locked(struct qi_queue **queues, struct qi_waiter *waiters, uint32_t count,
                           uint64_t until_us, uint64_t pause_us, qi_take take, void *context) {
    struct qi_store *store = queues[0]->store;
    struct qi_disk *disk = store->disk;
    struct qi_sleeper *sleeper = waiters[0].sleeper;
    uint64_t now = disk->ops->monotonic_us(disk);
    uint64_t back_us = now + pause_us < now ? UINT64_MAX : now + pause_us;
    for (;;) {
        sleeper->woken = false;
        for (uint32_t i = 0; i < count; i++)
            enlist(queues[i], &waiters[i]);
        int64_t result = look_at_all(queues, count, take, context);
        now = disk->ops->monotonic_us(disk);
        if (result != QI_EMPTY || now >= until_us)
            return result;
        if (now >= back_us)
            return QI_PAUSE;
        uint64_t us = UINT64_MAX;
        for (uint32_t i = 0; i < count; i++)
            us = until_timer(queues[i], us);
        if (until_us == UINT64_MAX && disk->single_threaded && us == UINT64_MAX)
            return qi_fail(QI_E_ARGUMENT, "on a disk for one thread nobody could end this wait: "
                                          "give it a time");
        if (!sleeper->woken)
            sleep_for(store, sleeper, least(us, least(until_us, back_us) - now));
    }
}

#define FEW 8u

int64_t qi_wait(struct qi_queue **queues, uint32_t count, uint64_t until_us, uint64_t pause_us,
                qi_take take, void *context) {
    struct qi_store *store = queues[0]->store;
    struct qi_waiter few[FEW], *waiters = count <= FEW ? few : malloc(count * sizeof *waiters);
    if (!waiters)
        return qi_fail(QI_E_MEMORY, "no memory to wait for %u queues", count);
    struct qi_sleeper sleeper;
    init_sleeper(&sleeper);
    for (uint32_t i = 0; i < count; i++)
        waiters[i] = (struct qi_waiter){.sleeper = &sleeper};
    qi_lock(store);
    store->waiting++;
    int64_t result = wait_locked(queues, waiters, count, until_us, pause_us, take, context);
    for (uint32_t i = 0; i < count; i++)
        qi_waiter_leave(queues[i], &waiters[i]);
    for (uint32_t i = 0; i < count; i++) /* it may have been woken for what it did not take */
        if (has_ready(queues[i]))
            qi_announce(queues[i], 1);
    for (uint32_t i = 0; i < count; i++)
        qi_dead_move_after(queues[i], result);
    store->waiting--;
    if (store->closing)
        pthread_cond_broadcast(&store->changed);
    qi_unlock(store);
    pthread_cond_destroy(&sleeper.wake);
    pthread_mutex_destroy(&sleeper.mutex);
    if (waiters != few)
        free(waiters);
    return result;
}

uint64_t qi_store_clock_us(struct qi_store *store) {
    return store->disk->ops->monotonic_us(store->disk);
}

uint64_t qi_store_now_us(struct qi_store *store) {
    qi_lock(store);
    uint64_t now = qi_wall_us(store);
    qi_unlock(store);
    return now;
}

/* ---- bells ---- */

int qi_store_bell(struct qi_store *store) {
    if (store->fork_generation != qi_fork_generation())
        return qi_store_usable(store, false); /* who had the locks may have stayed in the parent */
    qi_lock(store);
    int error = qi_store_usable(store, false);
    pthread_mutex_lock(&store->asks.lock);
    if (!error && store->bell < 0)
        store->bell = qi_bell_open();
    if (!error && store->bell < 0)
        error = qi_fail_disk(store->bell, "cannot open", "a bell");
    int bell = store->bell;
    pthread_mutex_unlock(&store->asks.lock);
    qi_unlock(store);
    return error ? error : bell;
}

void qi_store_bell_close(struct qi_store *store) {
    if (store->fork_generation != qi_fork_generation())
        return;
    qi_lock(store);
    pthread_mutex_lock(&store->asks.lock); /* its thread rings without the store's */
    qi_bell_close(store->bell);
    store->bell = -1;
    pthread_mutex_unlock(&store->asks.lock);
    qi_unlock(store);
}

static bool lock_if(struct qi_store *store, bool may_wait) {
    if (!may_wait)
        return qi_try_lock(store);
    qi_lock(store);
    return true;
}

int qi_bell_arm(struct qi_queue *queue, bool may_wait) {
    struct qi_store *store = queue->store;
    if (!lock_if(store, may_wait))
        return QI_BUSY;
    int result = qi_store_usable(store, true);
    if (!result && queue->deleted)
        result = qi_fail(QI_E_CLOSED, "queue %s was deleted", queue->name);
    if (!result && (!queue->recovered || has_ready(queue) || has_run_out(queue)))
        result = 1;
    if (!result) {
        enlist(queue, &queue->bell);
        if (qi_timers_left_us(queue) != UINT64_MAX)
            qi_wake_worker(store); /* it keeps the time */
    }
    qi_unlock(store);
    return result;
}

int qi_bell_disarm(struct qi_queue *queue, bool may_wait) {
    struct qi_store *store = queue->store;
    if (!lock_if(store, may_wait))
        return QI_BUSY;
    qi_waiter_leave(queue, &queue->bell);
    if (has_ready(queue)) /* others may wait for what the loop left */
        qi_announce(queue, 1);
    qi_unlock(store);
    return 0;
}

struct qi_queue *qi_bell_next(struct qi_store *store) {
    /* In a forked child who had the list's lock stayed in the parent. */
    if (store->fork_generation != qi_fork_generation())
        return NULL;
    pthread_mutex_lock(&store->bell_lock);
    struct qi_queue *queue = store->rung;
    if (queue) {
        store->rung = queue->next_rung;
        queue->rung = false;
    }
    pthread_mutex_unlock(&store->bell_lock);
    return queue;
}
