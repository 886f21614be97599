/* waiters.c - wakes who waits for a message (queue/wait.c).
 *
 * A waiter is taken out of the list when it is woken, so a publish wakes as many as it has
 * messages, and there is no stampede.
 */
#include "engine/engine.h"

void qi_waiter_leave(struct qi_queue *queue, struct qi_waiter *waiter) {
    if (!waiter->listed)
        return;
    waiter->listed = false;
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        queue->waiters = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    else
        queue->last_waiter = waiter->previous;
}

/* False: somebody woke it before, so it does not count. */
bool qi_wake_sleeper(struct qi_sleeper *sleeper) {
    pthread_mutex_lock(&sleeper->mutex);
    bool was_woken = sleeper->woken;
    sleeper->woken = true;
    pthread_cond_signal(&sleeper->wake);
    pthread_mutex_unlock(&sleeper->mutex);
    return !was_woken;
}

/* The event loop must never wait for the store's lock, so the list of the queues that rang has its
 * own. The loop empties the list after it has made the descriptor silent: only the first entry has
 * to be heard. */
static void ring(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    pthread_mutex_lock(&store->bell_lock);
    bool silent = store->rung == NULL;
    if (!queue->rung) {
        queue->rung = true;
        queue->next_rung = store->rung;
        store->rung = queue;
    }
    pthread_mutex_unlock(&store->bell_lock);
    if (silent)
        qi_bell_ring(store->bell);
}

void qi_wake_for_places(struct qi_store *store) {
    pthread_cond_broadcast(&store->places);
    if (!store->places_armed)
        return;
    store->places_armed = false;
    store->places_wanted--;
    pthread_mutex_lock(&store->bell_lock);
    store->places_came = true;
    pthread_mutex_unlock(&store->bell_lock);
    qi_bell_ring(store->bell);
}

void qi_wake_waiters(struct qi_queue *queue, uint64_t messages) {
    while (queue->waiters && messages > 0) {
        struct qi_waiter *waiter = queue->waiters;
        qi_waiter_leave(queue, waiter);
        if (!waiter->sleeper)
            ring(queue);
        else if (!qi_wake_sleeper(waiter->sleeper))
            continue;
        messages--;
    }
}

void qi_wake_all(struct qi_store *store) {
    qi_wake_listeners(store);
    qi_wake_for_places(store);
    for (uint32_t i = 0; i < store->queues_count; i++)
        qi_wake_waiters(store->queues[i], UINT64_MAX);
}
