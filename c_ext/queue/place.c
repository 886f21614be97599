/* place.c - waiting for a place in a queue that is full.
 *
 * Whatever makes a count of waiting messages smaller passes qi_count_depth() or qi_count_dead(),
 * which look at one word as long as nobody waits. All who wait are woken and look again: who needs
 * little may pass who needs much. No wake-up is lost, since they look and fall asleep below the
 * store's lock. What time alone changes (a lease that ends, so that a message can be dropped)
 * wakes nobody: so they also look once in a while.
 */
#include "queue/queue_private.h"

#define LOOK_US UINT64_C(1000000)

/* More than the queue may have: no wait helps. */
static bool fits_never(const struct qi_queue *queue, uint64_t count, uint64_t bytes) {
    const qi_rules *rules = &queue->rules;
    const qi_options *options = &queue->store->options;
    return (rules->max_messages && count > rules->max_messages) ||
           (rules->max_bytes && bytes > rules->max_bytes) ||
           (options->max_messages && count > options->max_messages) ||
           (options->max_bytes && bytes > options->max_bytes);
}

/* 0: there is a place; QI_PAUSE: it may come; or an error, for which it is not worth waiting. */
static int look(struct qi_queue *queue, uint32_t count, uint64_t bytes) {
    int error = qi_queue_ready(queue, true);
    if (!error && queue->bounded)
        error = qi_trim(queue);
    if (!error && queue->bounded)
        error = qi_has_place(queue, count, bytes);
    if (!error && !qi_memory_has_room(queue->store))
        error = QI_E_STORE_FULL;
    queue->heads.count = 0; /* nothing leaves for a look */
    bool full = error == QI_E_QUEUE_FULL || error == QI_E_STORE_FULL;
    return full && !fits_never(queue, count, bytes) ? QI_PAUSE : error;
}

/* The error of a queue that stays full; the text is that of the last look. */
static int full_of(struct qi_queue *queue, uint32_t count, uint64_t bytes) {
    int error = qi_has_place(queue, count, bytes);
    queue->heads.count = 0;
    return error || qi_memory_has_room(queue->store) ? error : QI_E_STORE_FULL;
}

/* Until something leaves, at most that long. Gives up the lock. */
static void sleep_for(struct qi_store *store, uint64_t us) {
    us = us < LOOK_US ? us : LOOK_US;
    if (store->disk->single_threaded) { /* nobody else is there: time passes */
        store->disk->ops->pass(store->disk, us);
        return;
    }
    struct timespec until = qi_time_after(us);
    qi_tell_marks(store); /* of what the look dropped */
    store->places_wanted++;
    pthread_cond_timedwait(&store->places, &store->lock, &until);
    store->places_wanted--;
}

int64_t qi_place_wait(struct qi_queue *queue, uint32_t count, uint64_t bytes, uint64_t until_us,
                      uint64_t pause_us) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    qi_lock(store);
    store->waiting++;
    uint64_t now = disk->ops->monotonic_us(disk);
    uint64_t back_us = now + pause_us < now ? UINT64_MAX : now + pause_us;
    uint64_t end_us = until_us < back_us ? until_us : back_us;
    int result;
    while ((result = look(queue, count, bytes)) == QI_PAUSE) {
        now = disk->ops->monotonic_us(disk);
        if (now >= until_us)
            result = full_of(queue, count, bytes);
        if (now >= end_us)
            break;
        sleep_for(store, end_us - now);
    }
    store->waiting--;
    if (store->closing)
        pthread_cond_broadcast(&store->changed);
    qi_unlock(store);
    return result;
}

int qi_place_arm(struct qi_queue *queue, uint32_t count, uint64_t bytes) {
    struct qi_store *store = queue->store;
    qi_lock(store);
    int result = look(queue, count, bytes);
    if (result == QI_PAUSE && !store->places_armed) {
        store->places_armed = true;
        store->places_wanted++;
    }
    qi_unlock(store);
    return result == QI_PAUSE ? 0 : result ? result : 1;
}

bool qi_places_came(struct qi_store *store) {
    if (store->fork_generation != qi_fork_generation())
        return false;
    pthread_mutex_lock(&store->bell_lock);
    bool came = store->places_came;
    store->places_came = false;
    pthread_mutex_unlock(&store->bell_lock);
    return came;
}
