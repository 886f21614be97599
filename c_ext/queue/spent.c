/* spent.c - a message whose last allowed delivery has ended leaves, wherever it stands in its
 * queue.
 *
 * Whatever ends a delivery notes such a message (qi_spent_note). It leaves before the verb returns,
 * or before the next verb looks at the queue. So counts, browse and get never disagree about it.
 *
 * An open does not know whose last delivery ended with the process, and a queue that now allows
 * fewer deliveries does not know either. Then all that waits is looked at once: the first
 * LOOKED_AT places by the first verb, the rest by the background thread, as many at a time. What
 * could not be read or written, or was not looked at yet, a get drops on its way (ready.c).
 */
#include "queue/queue_private.h"

#define AT_ONCE   1024u  /* in one frame */
#define LOOKED_AT 65536u /* in one call, the lock being held */
#define ALL       UINT64_MAX

/* Nobody has it, it is no dead letter, and not to be delivered once more all the same. */
static bool is_spent(const struct qi_queue *queue, const struct qi_slots *slots, uint32_t slot) {
    uint64_t time = qi_bit(slots->held, slot) ? slots->time[slot & 63] : 0;
    return qi_bit(slots->pub & ~slots->ack & ~slots->out, slot) && !qi_time_is_dead(time) &&
           qi_time_us(time) != QI_REDRIVEN_US &&
           qi_is_tried_out(slots, slot, queue->rules.max_deliveries);
}

static int leave_some(struct qi_queue *queue) {
    struct qi_spent *spent = &queue->spent;
    uint64_t req_ids[AT_ONCE];
    uint32_t most = spent->count < AT_ONCE ? spent->count : AT_ONCE, count = 0;
    int error = qi_queue_ready(queue, true); /* a look in which nothing leaves writes nothing */
    if (!error)
        error = qi_make_event_room(queue, most * QI_DEATH_RECORD); /* may give up the lock */
    while (!error && spent->count && count < most) {
        uint64_t req_id = spent->req_ids[--spent->count];
        uint32_t slot = qi_slot_of(queue, req_id);
        const struct qi_segment *segment = qi_segment_with(queue, req_id);
        if (segment && segment->hot && is_spent(queue, qi_slots_of(segment->hot, slot), slot))
            req_ids[count++] = req_id;
    }
    if (!error && count)
        error = qi_drop(queue, req_ids, count, QI_DEAD_DELIVERIES);
    if (!error && count)
        qi_flush_if_due(queue);
    return error;
}

static int leave_all(struct qi_queue *queue) {
    int error = 0;
    while (!error && queue->spent.count)
        error = leave_some(queue);
    return error;
}

/* True if there is one. */
static bool look_into(struct qi_queue *queue, struct qi_segment *segment) {
    uint32_t before = queue->spent.count;
    for (uint32_t slot = 0; qi_find_slot(queue, segment->hot, false, &slot); slot++)
        if (is_spent(queue, qi_slots_of(segment->hot, slot), slot))
            qi_spent_note(queue, segment, slot);
    return queue->spent.count > before;
}

/* The next segments that may have some. */
static void look(struct qi_queue *queue) {
    struct qi_segment *segment;
    uint64_t number = queue->spent.unlooked;
    for (uint32_t looked = 0;
         (segment = qi_segment_from(&queue->segments, number)) && looked < LOOKED_AT;
         looked += queue->store->options.segment_entries) {
        bool was_cold = !segment->hot;
        number = segment->number + 1;
        if (segment->unacked > segment->dead && qi_segment_load(queue, segment) == 0 &&
            !look_into(queue, segment) && was_cold)
            qi_cool_if_unused(queue, segment);
    }
    queue->spent.unlooked = segment ? number : ALL;
}

void qi_spent_leave(struct qi_queue *queue) {
    struct qi_spent *spent = &queue->spent;
    if (spent->leaving)
        return;
    spent->leaving = true;
    int error = leave_all(queue);
    if (!error && spent->unlooked != ALL && queue->rules.max_deliveries) {
        look(queue);
        error = leave_all(queue);
    }
    if (error) { /* a full disk: each of them waits for a get */
        spent->count = 0;
        spent->unlooked = ALL;
    }
    spent->waits = spent->count > 0 || spent->unlooked != ALL;
    qi_dead_move_after(queue, error);
    spent->leaving = false;
    if (spent->waits)
        qi_spent_wake(queue->store, 0);
}

void qi_spent_begin(struct qi_queue *queue) {
    queue->spent.unlooked = queue->rules.max_deliveries ? 0 : ALL;
    queue->spent.waits = queue->rules.max_deliveries != 0;
    if (queue->spent.waits && queue->recovered)
        qi_spent_wake(queue->store, 0);
}

void qi_spent_run(struct qi_store *store) {
    uint64_t now = qi_steady_us(store);
    if (store->spent_due_us > now)
        return;
    store->spent_due_us = UINT64_MAX;
    for (uint32_t i = 0; i < store->queues_count && !store->failed; i++) {
        struct qi_queue *queue = store->queues[i];
        const struct qi_heap *leases = &queue->timers.leases;
        if (!queue->rules.max_deliveries || queue->deleted || !queue->recovered ||
            queue->recovering)
            continue;
        if (queue->spent.waits || (leases->count && leases->items[0].key <= now))
            qi_queue_ready(queue, false);
        if (leases->count)
            qi_spent_wake(store, leases->items[0].key);
    }
}
