/* idle.c - queues that nobody uses fall asleep: flushed, closed with a CLOSE, without files or
 * maps. */
#include "store/store.h"

#include "durable/durable.h"
#include "queue/queue.h"

#define WEIGHT_MAX (UINT64_C(16) << 20) /* messages in the maps of parked queues: 100 to 200 MB */

/* A queue that was only read has its CLOSE. What only its journal has stays in its maps, as in
 * those of a parked one. */
static void unload(struct qi_queue *queue) {
    int64_t freed = 0;
    bool is_ended = qi_is_ended(queue);
    if (is_ended && queue->dirty_count > 0) {
        qi_files_park(queue);
        return;
    }
    int error = is_ended ? 0 : qi_rewrite_segments(queue, GARBAGE_PERCENT, &freed);
    if (!error && !queue->used)
        qi_queue_unload(queue);
}

/* Used since the last look, or tried in this one, is not idle, however short the time is that makes
 * a queue idle. */
static bool is_idle(const struct qi_queue *queue, uint64_t now) {
    uint64_t idle_us = now - queue->idle_since_us;
    return !queue->used && idle_us > 0 && idle_us >= queue->store->options.idle_us;
}

/* It was used before each that stands behind it. */
static struct qi_queue *find_idle(const struct qi_store *store, uint64_t now) {
    struct qi_queue *queue = store->open.oldest;
    while (queue && !(qi_is_open(queue) && is_idle(queue, now)))
        queue = queue->newer;
    return queue;
}

/* Parked queues whose maps take too much memory together fall asleep, the oldest first: a flush
 * writes what is in them. */
static void relieve(struct qi_store *store) {
    while (store->weight > WEIGHT_MAX && !store->stopping && !store->failed) {
        struct qi_queue *queue =
            store->parked.oldest ? store->parked.oldest : store->unsynced.oldest;
        if (!queue || qi_queue_ready(queue, true) != 0)
            return;
        queue->used = false;
        unload(queue);
    }
}

/* Returns how many queues are still open. */
uint32_t qi_unload_idle(struct qi_store *store) {
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    for (struct qi_queue *queue = store->open.oldest; queue; queue = queue->newer) {
        if (queue->used)
            queue->idle_since_us = now;
        queue->used = false;
    }
    struct qi_queue *queue;
    while (!store->stopping && !store->failed && (queue = find_idle(store, now)) != NULL) {
        queue->idle_since_us = now; /* if it fails, the next try is not at once */
        unload(queue);
    }
    relieve(store);
    uint32_t open = store->weight > WEIGHT_MAX;
    for (queue = store->open.oldest; queue; queue = queue->newer)
        open++;
    return open;
}
