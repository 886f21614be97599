/* fanout.c - one message to several queues: all that can fail comes before the first record. */
#include "queue/queue_private.h"

#include <stdlib.h>
#include <string.h>

void qi_count_copies(struct qi_queue **queues, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        queues[i]->copies = 0;
    for (uint32_t i = 0; i < count; i++)
        queues[i]->copies++;
}

/* Disk space and memory for what a queue gets; nothing is waited for. */
static int reserve(struct qi_queue *queue, const struct qi_new_message *publish, uint64_t size) {
    uint8_t *at;
    int parked = qi_files_stay(queue);
    if (parked)
        return parked;
    int error = qi_publish_maps(queue, publish, queue->copies);
    if (error)
        return error;
    error =
        qi_journal_room(qi_current(queue), queue->copies * (QI_FRAME_HEADER + size), false, &at);
    return error ? qi_append_failed(queue, error) : 0;
}

/* All queues are awake and have room, at one moment. To wait for one may take that from another, so
 * it is looked at again. */
static int room_in_all(struct qi_queue **queues, uint32_t count, uint64_t size) {
    bool fits = false;
    for (int attempt = 0; !fits && attempt < 100; attempt++) {
        qi_count_copies(queues, count);
        for (uint32_t i = 0; i < count; i++) {
            int error = qi_queue_ready(queues[i], true);
            if (!error && queues[i]->bounded)
                error = qi_trim(queues[i]);
            if (!error)
                error = qi_make_room(queues[i], queues[i]->copies * (QI_FRAME_HEADER + size),
                                     queues[i]->copies);
            if (error)
                return error;
        }
        qi_count_copies(queues, count); /* another thread's fan-out may have come between */
        fits = true;
        for (uint32_t i = 0; i < count && fits && !QI_BUG(race_room_asked_once); i++)
            fits = qi_is_in_use(queues[i]) && qi_files_stay(queues[i]) == 0 &&
                   qi_has_room(queues[i], queues[i]->copies * (QI_FRAME_HEADER + size),
                               queues[i]->copies) &&
                   queues[i]->highest + queues[i]->copies <= queues[i]->reserved_durable;
    }
    if (!fits)
        return qi_fail(QI_E_FULL, "no room in %u queues at the same time: nothing was published",
                       count);
    return 0;
}

/* The queue is named no more; how many are left. */
static uint32_t leave_out(struct qi_queue **queues, uint32_t count, struct qi_queue *queue) {
    uint32_t kept = 0;
    queue->heads.count = 0; /* nothing leaves it */
    for (uint32_t i = 0; i < count; i++)
        if (queues[i] != queue)
            queues[kept++] = queues[i];
    return kept;
}

int qi_places_in_all(struct qi_queue **queues, uint32_t *count, uint32_t messages, uint64_t bytes,
                     bool skip) {
    struct qi_store *store = queues[0]->store;
    struct qi_heads leaving = {0};
    int error = 0;
    for (uint32_t i = 0; i < *count; i++)
        queues[i]->heads.count = 0;
    for (uint32_t i = 0; i < *count && !error;) {
        struct qi_queue *queue = queues[i];
        const struct qi_heads *heads = &queue->heads;
        if (!queue->bounded || heads->count) { /* a queue that is named twice counts once */
            i++;
            continue;
        }
        error = qi_files_stay(queue);
        if (!error)
            error = qi_queue_has_place(queue, queue->copies * messages, queue->copies * bytes);
        if (error == QI_E_QUEUE_FULL && skip) {
            *count = leave_out(queues, *count, queue);
            error = 0;
            continue;
        }
        leaving.count += heads->count;
        leaving.bytes += heads->bytes;
        i++;
    }
    if (error || !*count)
        return error;
    return qi_store_has_place(store, *count * (uint64_t)messages, *count * bytes, &leaving);
}

/* All that can fail, before the first record. */
static int prepare_all(struct qi_queue **queues, uint32_t *count,
                       const struct qi_new_message *publish, bool skip) {
    uint64_t size = qi_publish_size(queues[0]->store, publish);
    int error = room_in_all(queues, *count, size);
    if (!error)
        error = qi_places_in_all(queues, count, 1, qi_publish_payload(publish), skip);
    for (uint32_t i = 0; i < *count && !error; i++)
        error = reserve(queues[i], publish, size);
    return error;
}

/* Between the first record and the last the lock is kept, and only a failing disk can stop it. */
static int publish_to_all(struct qi_queue **queues, uint32_t count,
                          const struct qi_new_message *publish, uint64_t *req_ids) {
    for (uint32_t i = 0; i < count; i++) {
        int64_t req_id = qi_files_stay(queues[i]);
        if (req_id == 0)
            req_id = qi_append_publish(queues[i], publish);
        if (req_id >= 0) {
            req_ids[i] = (uint64_t)req_id;
        } else if (i > 0) { /* to say that nothing was changed would be wrong */
            return qi_fail(req_id == QI_E_FULL ? QI_E_IO : (int)req_id,
                           "only the first %u of %u queues have it: %s", i, count,
                           req_id == QI_E_FULL ? "the disk is full" : qi_error_text());
        } else {
            return qi_publishes_failed(queues, count, (int)req_id);
        }
    }
    return 0;
}

static int publish_prepared(struct qi_queue **queues, uint32_t count,
                            struct qi_new_message *publish, uint64_t *req_ids) {
    struct qi_store *store = queues[0]->store;
    publish->queues = count;
    int error = qi_publish_body(store, publish);
    uint64_t size = QI_FRAME_HEADER + (error ? 0 : qi_publish_size(store, publish));
    for (uint32_t i = 0; i < count && !error; i++) {
        error = qi_files_stay(queues[i]);
        if (!error)
            error = qi_make_place(queues[i], publish, queues[i]->copies, queues[i]->copies * size);
        if (error)
            error = qi_publishes_failed(queues, count, error);
    }
    if (!error)
        error = publish_to_all(queues, count, publish, req_ids);
    for (uint32_t i = 0; i < count; i++)
        queues[i]->heads.in_memory = false; /* without a worker, a flush gives up the lock */
    for (uint32_t i = 0; i < count && !error; i++)
        if (qi_is_in_use(queues[i]))
            qi_flush_if_due(queues[i]);
    return error;
}

/* `req_ids` has those of the queues that took it, in their order: each moves to its queue's place
 * among all of them. */
static void tell_skipped(struct qi_queue *const *all, uint32_t count,
                         struct qi_queue *const *takers, uint32_t taken, uint64_t *req_ids) {
    for (uint32_t i = count; i-- > 0;)
        req_ids[i] = taken && takers[taken - 1] == all[i] ? req_ids[--taken] : UINT64_MAX;
}

static int fan_out(struct qi_queue **takers, uint32_t *taken, struct qi_new_message *publish,
                   bool skip_full, uint64_t *req_ids) {
    int error = prepare_all(takers, taken, publish, skip_full);
    if (!error && *taken)
        error = publish_prepared(takers, *taken, publish, req_ids);
    for (uint32_t i = 0; i < *taken && !error; i++)
        qi_dead_move_after(takers[i], 0);
    return error;
}

int qi_store_publish(struct qi_store *store, struct qi_queue **queues, uint32_t count,
                     const void *headers, uint32_t headers_size, const void *body,
                     uint32_t body_size, uint32_t flags, uint64_t expiry_us, uint64_t due_us,
                     uint64_t lease_us, bool skip_full, uint64_t *req_ids) {
    struct qi_new_message publish =
        qi_new_message_of(store, headers, headers_size, body, body_size, flags, expiry_us, due_us);
    publish.lease_us = lease_us;
    if (lease_us && store->options.format < 2)
        return qi_fail_lease_format();
    if (count == 0)
        return 0;
    struct qi_queue **takers = malloc(count * sizeof(struct qi_queue *));
    if (!takers)
        return qi_fail(QI_E_MEMORY, "no memory for a list of %u queues", count);
    memcpy(takers, queues, count * sizeof(struct qi_queue *));
    uint32_t taken = count;
    qi_lock(store);
    int error = fan_out(takers, &taken, &publish, skip_full, req_ids);
    qi_unlock(store);
    if (!error && skip_full)
        tell_skipped(queues, count, takers, taken, req_ids);
    free(takers);
    return error;
}

/* Nothing in the publish would wait, but for a place in a queue that is full. */
static bool are_ready_now(struct qi_queue **queues, uint32_t count,
                          const struct qi_new_message *publish) {
    struct qi_store *store = queues[0]->store;
    uint64_t payload = qi_publish_payload(publish);
    uint64_t size = QI_FRAME_HEADER + qi_publish_size(store, publish);
    if (!qi_is_embedded(store, publish) && !qi_messages_has_room(&store->messages, payload))
        return false;
    qi_count_copies(queues, count);
    for (uint32_t i = 0; i < count; i++) {
        bool may_move = queues[i]->bounded && queues[i]->dead_to;
        if (may_move || !qi_is_ready_now(queues[i], queues[i]->copies * size, queues[i]->copies))
            return false;
    }
    return true;
}

int qi_store_publish_now(struct qi_store *store, struct qi_queue **queues, uint32_t count,
                         const struct qi_given *given, bool skip_full, uint64_t *req_ids) {
    if (count == 0 || count > QI_NOW_QUEUES ||
        given->headers_size + given->body_size > QI_NOW_MAX ||
        (given->lease_us && store->options.format < 2) || !qi_try_lock(store))
        return QI_BUSY;
    struct qi_new_message publish = qi_new_message_of(
        store, given->headers, given->headers_size, given->body, (uint32_t)given->body_size,
        given->flags, given->expiry_us, given->due_us);
    publish.lease_us = given->lease_us;
    struct qi_queue *takers[QI_NOW_QUEUES];
    memcpy(takers, queues, count * sizeof *takers);
    uint32_t taken = count;
    bool ready = are_ready_now(queues, count, &publish);
    for (uint32_t i = 0; i < count; i++)
        queues[i]->heads.in_memory = ready;
    int error = ready ? fan_out(takers, &taken, &publish, skip_full, req_ids) : QI_BUSY;
    for (uint32_t i = 0; i < count; i++)
        queues[i]->heads.in_memory = false;
    qi_unlock(store);
    if (!error && skip_full)
        tell_skipped(queues, count, takers, taken, req_ids);
    return error;
}

int64_t qi_next_req_id(struct qi_queue *queue, uint32_t flags, uint64_t due_us) {
    qi_lock(queue->store);
    int64_t result = qi_queue_ready(queue, true);
    if (result == 0)
        result = (int64_t)qi_lane_next(queue, qi_publish_lane(queue->store, flags, due_us));
    qi_unlock(queue->store);
    return result;
}
