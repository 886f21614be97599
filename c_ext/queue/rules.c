/* rules.c - what a queue does by itself: its bounds, and the store's. (ready.c: what has expired,
 * or was delivered too often.)
 *
 * Dead letters count for no bound: what becomes one makes place. A bound is about publishes only;
 * whatever else brings messages back (a nack, a redrive, an open) may pass it.
 */
#include "queue/queue_private.h"

#include <stdio.h>

#define QUEUES_NAMED 3u /* in the text of an error */

/* The oldest that leave at once for one publish: their frame fits into what is kept free behind a
 * publish. */
#define HEADS_MAX       (UINT32_C(1) << 17)
#define HEADS_DYING_MAX (UINT32_C(1) << 15) /* their records are longer */

static bool is_in_bytes(const struct qi_queue *queue) {
    return queue->rules.max_bytes || queue->store->options.max_bytes;
}

int qi_queue_set_rules(struct qi_queue *queue, const qi_rules *rules) {
    struct qi_store *store = queue->store;
    qi_lock(store);
    int error = qi_store_usable(store, false);
    if (!error && rules->max_bytes && !store->options.read_only) {
        error = qi_queue_ready(queue, false);
        if (!error)
            error = qi_bytes_begin(queue);
    }
    if (!error) {
        bool changed = rules->max_deliveries != queue->rules.max_deliveries;
        queue->rules = *rules;
        if (changed)
            qi_spent_begin(queue);
        queue->rules_known = true;
        qi_expire_rules(queue);
        if (queue->expiry_us) /* what has expired may be in a queue that was read long ago */
            qi_wake_worker(store);
        queue->bounded = rules->max_messages || rules->max_bytes || store->options.max_messages ||
                         store->options.max_bytes;
        qi_wake_for_places(store); /* it may have more now */
    }
    qi_unlock(store);
    return error;
}

/* ---- the heads that make place ---- */

static uint64_t waiting(const struct qi_queue *queue) {
    return queue->depth - queue->dead;
}

/* With so many more, and without the heads, it has more than it may have. */
static bool is_over(const struct qi_queue *queue, uint64_t count, uint64_t bytes) {
    const qi_rules *rules = &queue->rules;
    const struct qi_heads *heads = &queue->heads;
    return (rules->max_messages && waiting(queue) + count > rules->max_messages + heads->count) ||
           (rules->max_bytes && queue->bytes + bytes > rules->max_bytes + heads->bytes);
}

static uint32_t heads_max(const struct qi_queue *queue) {
    return queue->rules.overflow == QI_BURY_HEAD ? HEADS_DYING_MAX : HEADS_MAX;
}

static int add_head(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot) {
    struct qi_heads *heads = &queue->heads;
    /* When it goes, its record says of which message file that is one less. */
    if (heads->in_memory && qi_bit(qi_slots_of(segment->hot, slot)->stored, slot) &&
        !qi_segment_at_hand(queue, segment, slot))
        return QI_BUSY;
    if (!qi_req_id_add(&heads->req_ids, &heads->count, &heads->room,
                       qi_req_id(queue, segment, slot)))
        return qi_fail(QI_E_MEMORY, "no memory for a list of %u messages", heads->count + 1);
    heads->bytes += queue->measured ? qi_size_of(segment, slot) : 0;
    return 0;
}

/* The oldest that are ready in one lane, as many as have to go for so many more. */
static int add_from_lane(struct qi_queue *queue, const struct qi_lane *lane, uint64_t count,
                         uint64_t bytes) {
    enum qi_find what = queue->heads.in_memory ? QI_FIND_READY_NOW : QI_FIND_READY;
    uint64_t from = lane->cursor, end = qi_lane_start(lane->number + 1);
    int error = 0;
    while (!error && queue->heads.count < heads_max(queue) && is_over(queue, count, bytes)) {
        struct qi_segment *segment;
        uint32_t slot;
        error = qi_find_message(queue, from, end, what, &segment, &slot);
        if (!error)
            error = add_head(queue, segment, slot);
        if (!error)
            from = qi_req_id(queue, segment, slot) + 1;
    }
    return error == QI_EMPTY ? 0 : error;
}

/* The same of those that were delayed and are due, of priorities below that one, in the order of
 * their times. They leave the heap until give_heads_back(). What was taken back from the dead
 * letters stays until it is delivered. */
static int add_from_due(struct qi_queue *queue, uint32_t below, uint64_t count, uint64_t bytes) {
    struct qi_timer head = {.id = UINT64_MAX};
    int error = 0;
    while (!error && queue->heads.count < heads_max(queue) && is_over(queue, count, bytes) &&
           qi_due_heads_take(queue, below, &head))
        error = add_head(queue, qi_segment_with(queue, head.id), qi_slot_of(queue, head.id));
    if (error && head.id != UINT64_MAX)
        queue->timers.heads_made = false; /* it lacks this one */
    return error;
}

/* The publish may fail yet. What does leave has an entry that counts no more. */
static void give_heads_back(struct qi_queue *queue) {
    for (uint32_t i = 0; i < queue->heads.count; i++) {
        uint64_t req_id = queue->heads.req_ids[i];
        const struct qi_segment *segment = qi_segment_with(queue, req_id);
        uint32_t slot = qi_slot_of(queue, req_id);
        if (qi_bit(qi_slots_of(segment->hot, slot)->held, slot))
            qi_due_heads_add(queue, segment, slot);
    }
}

/* One rule: the lowest priority first; of a priority the oldest that have a place in the order of
 * publishing; then those that were delayed, in the order of their times. */
static int find_heads(struct qi_queue *queue, uint64_t count, uint64_t bytes) {
    const struct qi_lanes *lanes = &queue->lanes;
    queue->heads.count = queue->heads.gone = 0;
    queue->heads.bytes = 0;
    if (queue->rules.overflow == QI_REJECT || !is_over(queue, count, bytes))
        return 0;
    int error = 0;
    if (!queue->heads.in_memory)
        error = qi_delayed_run(queue);
    else if (!qi_delayed_run_now(queue))
        error = QI_BUSY;
    if (!error)
        error = qi_due_heads_make(queue);
    for (uint32_t i = 0; i < lanes->priorities && !error; i++) {
        error = add_from_due(queue, lanes->items[i].number, count, bytes);
        if (!error)
            error = add_from_lane(queue, &lanes->items[i], count, bytes);
    }
    if (!error)
        error = add_from_due(queue, QI_PRIORITIES, count, bytes);
    give_heads_back(queue);
    return error;
}

/* One frame, for which there is room. */
static int let_heads_go(struct qi_queue *queue) {
    const struct qi_heads *heads = &queue->heads;
    if (queue->rules.overflow == QI_BURY_HEAD)
        return qi_bury(queue, heads->req_ids, heads->count, QI_DEAD_FULL);
    int error = qi_append_events(queue, QI_ACK, heads->req_ids, heads->count);
    for (uint32_t i = 0; i < heads->count && !error; i++) {
        qi_segment_ack(queue, qi_segment_with(queue, heads->req_ids[i]),
                       qi_slot_of(queue, heads->req_ids[i]));
        qi_tell(queue, QI_EVENT_DROPPED, heads->req_ids[i], QI_DEAD_FULL);
    }
    queue->counts.dropped += error ? 0 : heads->count;
    return error;
}

int qi_trim(struct qi_queue *queue) {
    int error = 0;
    do {
        queue->heads.count = 0;
        queue->heads.bytes = 0;
        if (!is_over(queue, 0, 0))
            return 0;
        if (queue->heads.in_memory)
            return QI_BUSY;
        error =
            qi_make_event_room(queue, HEADS_DYING_MAX * QI_DEATH_RECORD); /* may give up the lock */
        if (!error)
            error = find_heads(queue, 0, 0);
        if (error || queue->heads.count < heads_max(queue))
            return error; /* few: the next publish that has a place takes them along */
        error = let_heads_go(queue);
    } while (!error);
    return error;
}

/* ---- is there a place ---- */

static int fail_full(const struct qi_queue *queue, uint32_t count, uint64_t bytes) {
    const qi_rules *rules = &queue->rules;
    if (queue->heads.count >= heads_max(queue))
        return qi_fail(QI_E_QUEUE_FULL,
                       "queue %s is full, and more than %u messages would have to go at once: "
                       "publish less at a time",
                       queue->name, heads_max(queue));
    if (rules->max_messages && count > rules->max_messages)
        return qi_fail(QI_E_QUEUE_FULL,
                       "%u messages do not fit into queue %s, which may have %llu: publish fewer "
                       "at a time, or raise max_messages",
                       count, queue->name, (unsigned long long)rules->max_messages);
    if (rules->max_bytes && bytes > rules->max_bytes)
        return qi_fail(QI_E_QUEUE_FULL,
                       "%llu byte%s into queue %s, which may have %llu: raise max_bytes",
                       (unsigned long long)bytes, bytes == 1 ? " does not fit" : "s do not fit",
                       queue->name, (unsigned long long)rules->max_bytes);
    if (rules->max_bytes && queue->bytes + bytes > rules->max_bytes)
        return qi_fail(QI_E_QUEUE_FULL,
                       "queue %s has %llu byte%s, and may have %llu: %llu more do%s not fit; take "
                       "some messages, or raise max_bytes",
                       queue->name, (unsigned long long)queue->bytes, qi_plural(queue->bytes),
                       (unsigned long long)rules->max_bytes, (unsigned long long)bytes,
                       bytes == 1 ? "es" : "");
    return qi_fail(
        QI_E_QUEUE_FULL,
        "queue %s has %llu message%s, and may have %llu: take some, or raise max_messages",
        queue->name, (unsigned long long)waiting(queue), qi_plural(waiting(queue)),
        (unsigned long long)rules->max_messages);
}

int qi_queue_has_place(struct qi_queue *queue, uint32_t count, uint64_t bytes) {
    if (is_in_bytes(queue) && !queue->measured && queue->heads.in_memory)
        return QI_BUSY;
    int error = is_in_bytes(queue) ? qi_bytes_begin(queue) : 0;
    if (!error)
        error = find_heads(queue, count, bytes);
    if (error || !is_over(queue, count, bytes))
        return error;
    return fail_full(queue, count, bytes);
}

int qi_store_has_place(struct qi_store *store, uint64_t count, uint64_t bytes,
                       const struct qi_heads *leaving) {
    const qi_options *options = &store->options;
    uint64_t here = store->depth - store->dead;
    if (options->max_messages && here + count > options->max_messages + leaving->count)
        return qi_fail(QI_E_STORE_FULL,
                       "the queues of this store have %llu message%s, and may have %llu together: "
                       "take some, or open it with a higher max_messages",
                       (unsigned long long)here, qi_plural(here),
                       (unsigned long long)options->max_messages);
    if (options->max_bytes && store->bytes + bytes > options->max_bytes + leaving->bytes)
        return qi_fail(QI_E_STORE_FULL,
                       "the queues of this store have %llu byte%s, and may have %llu together: "
                       "take some messages, or open it with a higher max_bytes",
                       (unsigned long long)store->bytes, qi_plural(store->bytes),
                       (unsigned long long)options->max_bytes);
    return qi_memory_has_room(store) ? 0 : QI_E_STORE_FULL;
}

int qi_has_place(struct qi_queue *queue, uint32_t count, uint64_t bytes) {
    int error = qi_queue_has_place(queue, count, bytes);
    return error ? error : qi_store_has_place(queue->store, count, bytes, &queue->heads);
}

int qi_make_place(struct qi_queue *queue, const struct qi_new_message *publish, uint32_t count,
                  uint64_t bytes) {
    uint64_t each = queue->rules.overflow == QI_BURY_HEAD ? QI_DEATH_RECORD : QI_RECORD_ID;
    uint8_t *at;
    if (queue->heads.count == 0)
        return 0;
    int error = qi_publish_maps(queue, publish, count);
    if (error)
        return error;
    bytes += QI_FRAME_HEADER + queue->heads.count * each;
    error = qi_journal_room(qi_current(queue), bytes, false, &at);
    if (error)
        return qi_append_failed(queue, error);
    error = let_heads_go(queue);
    queue->heads.gone += error ? 0 : queue->heads.count;
    queue->heads.count = 0; /* a queue may be named twice in a fan-out */
    return error;
}

int qi_publishes_failed(struct qi_queue **queues, uint32_t count, int error) {
    char names[160] = "", why[320];
    uint64_t gone = 0;
    uint32_t left = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct qi_heads *heads = &queues[i]->heads;
        if (!queues[i]->bounded || !heads->gone)
            continue;
        gone += heads->gone;
        heads->gone = 0; /* a queue may be named twice */
        if (++left <= QUEUES_NAMED && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.40s",
                                     left == 1 ? "" : ", ", queues[i]->name);
    }
    if (gone == 0)
        return error;
    bool full = error == QI_E_FULL, unsure = error == QI_E_OUTCOME;
    snprintf(why, sizeof why, "%s", full ? "the disk is full" : qi_error_text());
    return qi_fail(full ? QI_E_IO : error,
                   "%s published, but %llu message%s of queue%s %s%s left to make place for it: %s",
                   unsure ? "perhaps it was" : "nothing was", (unsigned long long)gone,
                   qi_plural(gone), left == 1 ? "" : "s", names,
                   left > QUEUES_NAMED ? " and others" : "", why);
}

int qi_publish_failed(struct qi_queue *queue, int error) {
    return qi_publishes_failed(&queue, 1, error);
}
