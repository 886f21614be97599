/* listeners.c - whoever wants to know what the engine does by itself: rings of events, and marks.
 *
 * A verb that ends a lease, drops a message, or makes one a dead letter tells it behind the change,
 * with the store's lock. While nobody listens that costs one comparison, and only there. A ring has
 * a fixed size: of more events than that the oldest go, and are counted. Who changes a count of
 * waiting messages notes that the queue has marks, by the word that is looked at anyway for those
 * who wait for a place; they are looked at when the verb ends.
 */
#include "engine/engine.h"

static void wake(struct qi_listener *listener) {
    pthread_cond_broadcast(&listener->came);
    if (!listener->armed)
        return;
    struct qi_store *store = listener->store;
    listener->armed = false;
    pthread_mutex_lock(&store->bell_lock);
    store->events_came = true;
    pthread_mutex_unlock(&store->bell_lock);
    qi_bell_ring(store->bell);
}

void qi_wake_listeners(struct qi_store *store) {
    for (struct qi_listener *listener = store->listeners; listener; listener = listener->next)
        wake(listener);
}

static void remove_mark(struct qi_mark *mark) {
    struct qi_mark **at = &mark->queue->marks;
    while (*at != mark)
        at = &(*at)->next;
    *at = mark->next;
    mark->queue->store->places_wanted--;
    qi_free(mark);
}

void qi_listener_end(struct qi_listener *listener) {
    struct qi_listener **at = &listener->store->listeners;
    for (struct qi_mark *mark = listener->marks, *next; mark; mark = next) {
        next = mark->own;
        remove_mark(mark);
    }
    listener->marks = NULL;
    while (*at != listener)
        at = &(*at)->next;
    *at = listener->next;
    qi_free(listener->ring);
    listener->ring = NULL;
    listener->count = 0;
    wake(listener);
}

static void keep(struct qi_listener *listener, const qi_event *event) {
    if (!(listener->kinds >> event->kind & 1))
        return;
    if (listener->count == listener->room) {
        listener->first = (listener->first + 1) % listener->room;
        listener->count--;
        listener->missed++;
    }
    listener->ring[(listener->first + listener->count) % listener->room] = *event;
    if (listener->count++ == 0)
        wake(listener);
}

static qi_event event_of(const struct qi_queue *queue, uint32_t kind) {
    return (qi_event){.us = qi_wall_us(queue->store),
                      .name = queue->name,
                      .name_size = queue->name_size,
                      .kind = kind,
                      .count = 1};
}

void qi_tell_listeners(struct qi_queue *queue, uint32_t kind, uint64_t req_id, uint32_t why) {
    qi_event event = event_of(queue, kind);
    event.req_id = req_id;
    event.why = why;
    for (struct qi_listener *l = queue->store->listeners; l; l = l->next)
        keep(l, &event);
}

static void look_at_marks(struct qi_queue *queue) {
    uint64_t waiting = queue->depth > queue->dead ? queue->depth - queue->dead : 0;
    for (struct qi_mark *mark = queue->marks; mark; mark = mark->next) {
        bool above = mark->above ? waiting >= mark->low : waiting >= mark->high;
        if (above == mark->above)
            continue;
        mark->above = above;
        qi_event event = event_of(queue, above ? QI_EVENT_ABOVE : QI_EVENT_BELOW);
        event.count = waiting;
        keep(mark->listener, &event);
    }
}

void qi_tell_marks(struct qi_store *store) {
    struct qi_queue *queue = store->marked;
    store->marked = NULL;
    /* A store that closes forgets its queues: their messages did not leave. In a forked child the
     * parent's lock may be held. */
    if (queue && !store->closing && store->fork_generation == qi_fork_generation())
        look_at_marks(queue);
}
