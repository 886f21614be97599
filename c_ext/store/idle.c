/* idle.c - queues that nobody uses fall asleep: flushed, closed with a CLOSE, without files or
 * maps. */
#include "store/store.h"

#include "durable/durable.h"
#include "queue/queue.h"

#define WEIGHT_MAX                                                                                 \
    (UINT64_C(16) << 20) /* messages in the maps of parked queues of all stores: 100 to 200 MB */

#define REFUSALS_MAX 16u

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

static bool is_heavy(const struct qi_store *store) {
    return atomic_load_explicit(&store->disk->pool.weight, memory_order_relaxed) > WEIGHT_MAX;
}

static struct qi_queue *first_untried(struct qi_queue *queue) {
    while (queue && queue->unrelieved)
        queue = queue->newer;
    return queue;
}

/* Parked queues; where memory is scarce also those in use, which come back with their next verb. */
static struct qi_queue *find_heavy(const struct qi_store *store) {
    struct qi_queue *queue = first_untried(store->parked.oldest);
    if (!queue)
        queue = first_untried(store->unsynced.oldest);
    return queue || !qi_memory_is_scarce(store) ? queue : first_untried(store->open.oldest);
}

/* Queues whose maps take too much memory together fall asleep, the oldest first: a flush writes
 * what is in them. Each is tried once: what it still holds then, nobody can give back. One that
 * cannot be opened keeps no other from it; where many cannot, it is the disk. */
static void relieve(struct qi_store *store) {
    uint32_t left = store->queues_count, refused = 0;
    for (uint32_t i = 0; i < store->queues_count; i++)
        store->queues[i]->unrelieved = false;
    while (left-- > 0 && refused < REFUSALS_MAX &&
           (is_heavy(store) || qi_memory_is_scarce(store)) && !store->stopping && !store->failed) {
        struct qi_queue *queue = find_heavy(store);
        if (!queue)
            break;
        queue->unrelieved = true;
        if (qi_queue_ready(queue, true) != 0) {
            refused++;
            continue;
        }
        queue->used = false;
        unload(queue);
    }
    if (store->relief_due && store->places_wanted)
        qi_wake_for_places(store);
    store->relief_due = false;
    store->relieved_us = store->disk->ops->monotonic_us(store->disk);
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
    uint32_t open = is_heavy(store);
    for (queue = store->open.oldest; queue; queue = queue->newer)
        open++;
    return open;
}
