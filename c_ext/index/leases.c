/* leases.c - deliveries that end by themselves: a heap of times, by the steady clock. In memory
 * only.
 *
 * An entry is a claim, as in timers.c: it counts if the slot still says the same.
 */
#include "index/index_private.h"

#define TIDY_MIN 4096u

int qi_lease_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint32_t count) {
    int error = qi_heap_room(&queue->timers.leases, count);
    return error ? error : qi_slots_lease_room(qi_slots_of(segment->hot, slot));
}

void qi_lease_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint64_t until_us) {
    queue->leased = true;
    if (queue->rules.max_deliveries)
        qi_spent_wake(queue->store, until_us);
    qi_slots_of(segment->hot, slot)->lease[slot & 63] = until_us;
    qi_heap_push(&queue->timers.leases, until_us, qi_req_id(queue, segment, slot));
}

static bool is_leased(const struct qi_segment *segment, uint32_t slot, uint64_t until_us) {
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return qi_bit(slots->out, slot) && slots->lease && slots->lease[slot & 63] == until_us;
}

/* Drops the entries that do not count any more. */
static void tidy(struct qi_queue *queue, struct qi_heap *leases) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < leases->count; i++) {
        const struct qi_timer *timer = &leases->items[i];
        const struct qi_segment *segment = qi_segment_with(queue, timer->id);
        if (segment && segment->hot && is_leased(segment, qi_slot_of(queue, timer->id), timer->key))
            leases->items[kept++] = *timer;
    }
    leases->count = kept;
    qi_heap_order(leases);
}

static uint32_t run_lease(struct qi_queue *queue) {
    struct qi_timer timer = qi_heap_pop(&queue->timers.leases);
    struct qi_segment *segment = qi_segment_with(queue, timer.id);
    uint32_t slot = qi_slot_of(queue, timer.id);
    if (!segment || !segment->hot || !is_leased(segment, slot, timer.key))
        return 0;
    qi_release(queue, segment, slot);
    queue->counts.leases_ended++;
    qi_tell(queue, QI_EVENT_LEASE_ENDED, timer.id, 0);
    return 1;
}

void qi_leases_run_due(struct qi_queue *queue) {
    struct qi_heap *leases = &queue->timers.leases;
    uint64_t now = qi_steady_us(queue->store), ready = 0;
    while (leases->count && leases->items[0].key <= now)
        ready += run_lease(queue);
    if (leases->count > TIDY_MIN && leases->count > 2 * queue->out)
        tidy(queue, leases);
    if (ready)
        qi_announce(queue, ready);
}
