/* listen.c - the listeners of a store: made, waited for, given up. (engine/listeners.c: what is
 * told to them.)
 *
 * As long as somebody listens, the worker ends leases and makes messages due when their time comes,
 * whether or not anybody uses their queue.
 */
#define _GNU_SOURCE
#include "queue/queue_private.h"

int qi_listener_new(struct qi_store *store, uint32_t room, uint32_t kinds,
                    struct qi_listener **result) {
    struct qi_listener *listener = qi_calloc(1, sizeof *listener);
    qi_event *ring = qi_calloc(room, sizeof *ring);
    if (!listener || !ring) {
        qi_free(listener);
        qi_free(ring);
        return qi_fail(QI_E_MEMORY, "no memory for %u events", room);
    }
    *listener = (struct qi_listener){.store = store,
                                     .fork_generation = store->fork_generation,
                                     .ring = ring,
                                     .room = room,
                                     .kinds = kinds};
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&listener->came, &clock);
    pthread_condattr_destroy(&clock);
    qi_lock(store);
    int error = qi_store_usable(store, false);
    if (!error) {
        listener->next = store->listeners;
        store->listeners = listener;
        qi_wake_worker(store); /* it keeps the time */
    }
    qi_unlock(store);
    *result = error ? NULL : listener;
    if (error) {
        pthread_cond_destroy(&listener->came);
        qi_free(ring);
        qi_free(listener);
    }
    return error;
}

int qi_listener_mark(struct qi_listener *listener, struct qi_queue *queue, uint64_t high,
                     uint64_t low) {
    struct qi_mark *mark = qi_calloc(1, sizeof *mark);
    if (!mark)
        return qi_fail(QI_E_MEMORY, "no memory for a mark");
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, false);
    if (error) {
        qi_free(mark);
    } else {
        *mark = (struct qi_mark){queue->marks, listener->marks, listener, queue, high, low, false};
        queue->marks = listener->marks = mark;
        queue->store->places_wanted++;
        qi_marks_changed(queue);
    }
    qi_unlock(queue->store);
    return error;
}

void qi_listener_close(struct qi_listener *listener) {
    struct qi_store *store = listener->store;
    if (listener->fork_generation != qi_fork_generation())
        return; /* the parent's */
    qi_lock(store);
    if (listener->ring)
        qi_listener_end(listener);
    qi_unlock(store);
}

/* The store may have been freed before it, when both are garbage. */
void qi_listener_free(struct qi_listener *listener) {
    if (listener->fork_generation != qi_fork_generation())
        return;
    if (listener->ring)
        qi_listener_close(listener);
    pthread_cond_destroy(&listener->came);
    qi_free(listener);
}

/* Is there more to come? 0 or the error. */
static int check(const struct qi_listener *listener) {
    if (!listener->ring)
        return qi_fail(QI_E_CLOSED, "these events were closed");
    return qi_store_usable(listener->store, false);
}

/* What was told before the end of the store is handed out all the same. */
static int64_t look(struct qi_listener *listener, qi_event *events, uint32_t room,
                    uint64_t *missed) {
    struct qi_store *store = listener->store;
    if (store->disk->single_threaded && !store->closed) { /* no worker keeps the time */
        qi_bells_run(store);
        qi_expire_due(store);
        qi_tell_marks(store);
    }
    uint32_t count = listener->count < room ? listener->count : room;
    for (uint32_t i = 0; i < count; i++)
        events[i] = listener->ring[(listener->first + i) % listener->room];
    listener->first = (listener->first + count) % listener->room;
    listener->count -= count;
    *missed = listener->missed;
    listener->missed = 0;
    return count ? (int64_t)count : check(listener);
}

static void sleep_for(struct qi_listener *listener, uint64_t us) {
    struct qi_store *store = listener->store;
    if (store->disk->single_threaded) {
        uint64_t left = qi_expire_wait(store, qi_bells_timer(store, us));
        store->disk->ops->pass(store->disk, left < us ? left : us);
        return;
    }
    struct timespec until = qi_time_after(us < UINT64_C(3600000000) ? us : UINT64_C(3600000000));
    pthread_cond_timedwait(&listener->came, &store->lock, &until);
}

int64_t qi_listener_wait(struct qi_listener *listener, qi_event *events, uint32_t room,
                         uint64_t *missed, uint64_t until_us, uint64_t pause_us) {
    struct qi_store *store = listener->store;
    if (listener->fork_generation != qi_fork_generation())
        return qi_store_usable(store, false);
    qi_lock(store);
    store->waiting++;
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    uint64_t back_us = now + pause_us < now ? UINT64_MAX : now + pause_us;
    int64_t result;
    while ((result = look(listener, events, room, missed)) == 0) {
        now = store->disk->ops->monotonic_us(store->disk);
        if (now >= until_us)
            break;
        if (now >= back_us) {
            result = QI_PAUSE;
            break;
        }
        sleep_for(listener, (until_us < back_us ? until_us : back_us) - now);
    }
    store->waiting--;
    if (store->closing)
        pthread_cond_broadcast(&store->changed);
    qi_unlock(store);
    return result;
}

int qi_listener_arm(struct qi_listener *listener) {
    struct qi_store *store = listener->store;
    if (listener->fork_generation != qi_fork_generation())
        return qi_store_usable(store, false);
    qi_lock(store);
    int result = listener->count ? 1 : check(listener);
    listener->armed = result == 0;
    qi_unlock(store);
    return result;
}

bool qi_events_came(struct qi_store *store) {
    if (store->fork_generation != qi_fork_generation())
        return false;
    pthread_mutex_lock(&store->bell_lock);
    bool came = store->events_came;
    store->events_came = false;
    pthread_mutex_unlock(&store->bell_lock);
    return came;
}
