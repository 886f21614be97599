/* place.c - waiting for a place in queues that are full.
 *
 * Whatever makes a count of waiting messages smaller passes qi_count_depth() or qi_count_dead(),
 * which look at one word as long as nobody waits. All who wait are woken and look again: who needs
 * little may pass who needs much. No wake-up is lost, since they look and fall asleep below the
 * store's lock. What time alone changes (a lease that ends, so that a message can be dropped)
 * wakes nobody: so they also look once in a while.
 */
#include "queue/queue_private.h"

#define LOOK_US UINT64_C(1000000)

/* What is waited for: in each of these queues a place for so many messages with so many bytes; in
 * one that is named twice, for twice as many. */
struct wanted {
    struct qi_queue **queues;
    uint32_t count, messages;
    uint64_t bytes;
};

static bool passes(uint64_t count, uint64_t bytes, uint64_t max_messages, uint64_t max_bytes) {
    return (max_messages && count > max_messages) || (max_bytes && bytes > max_bytes);
}

/* More than a queue or the store may have: no wait helps. The copies were counted. */
static bool fits_never(const struct wanted *wanted) {
    const qi_options *options = &wanted->queues[0]->store->options;
    bool never = passes(wanted->count * (uint64_t)wanted->messages, wanted->count * wanted->bytes,
                        options->max_messages, options->max_bytes);
    for (uint32_t i = 0; i < wanted->count && !never; i++) {
        const struct qi_queue *queue = wanted->queues[i];
        never = passes(queue->copies * (uint64_t)wanted->messages, queue->copies * wanted->bytes,
                       queue->rules.max_messages, queue->rules.max_bytes);
    }
    return never;
}

/* 0: there are places now; else the error of a publish, with its text. */
static int places(const struct wanted *wanted) {
    uint32_t count = wanted->count;
    qi_count_copies(wanted->queues, count);
    int error = qi_places_in_all(wanted->queues, &count, wanted->messages, wanted->bytes, false);
    for (uint32_t i = 0; i < wanted->count; i++)
        wanted->queues[i]->heads.count = 0; /* nothing leaves for a look */
    return error;
}

/* 0: there are places; QI_PAUSE: they may come; or an error, for which it is not worth waiting. */
static int look(const struct wanted *wanted) {
    int error = 0;
    for (uint32_t i = 0; i < wanted->count && !error; i++) {
        error = qi_queue_ready(wanted->queues[i], true);
        if (!error && wanted->queues[i]->bounded)
            error = qi_trim(wanted->queues[i]);
    }
    if (!error)
        error = places(wanted);
    bool full = error == QI_E_QUEUE_FULL || error == QI_E_STORE_FULL;
    return full && !fits_never(wanted) ? QI_PAUSE : error;
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

int64_t qi_place_wait(struct qi_queue **queues, uint32_t count, uint32_t messages, uint64_t bytes,
                      uint64_t until_us, uint64_t pause_us) {
    const struct wanted wanted = {queues, count, messages, bytes};
    struct qi_store *store = queues[0]->store;
    struct qi_disk *disk = store->disk;
    qi_lock(store);
    store->waiting++;
    uint64_t now = disk->ops->monotonic_us(disk);
    uint64_t back_us = now + pause_us < now ? UINT64_MAX : now + pause_us;
    uint64_t end_us = until_us < back_us ? until_us : back_us;
    int result;
    while ((result = look(&wanted)) == QI_PAUSE) {
        now = disk->ops->monotonic_us(disk);
        if (now >= until_us)
            result = places(&wanted);
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

int qi_place_arm(struct qi_queue **queues, uint32_t count, uint32_t messages, uint64_t bytes) {
    const struct wanted wanted = {queues, count, messages, bytes};
    struct qi_store *store = queues[0]->store;
    qi_lock(store);
    int result = look(&wanted);
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
