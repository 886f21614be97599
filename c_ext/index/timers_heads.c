/* timers_heads.c - what was delayed and is due, in the order in which it leaves a full queue: the
 * lowest priority first, then by time.
 *
 * Gets take the highest priority first, so this is a second heap over the messages of the heap
 * `due`. It is made when a full queue needs it for the first time. From then on each message that
 * becomes due is added. An entry counts as long as the message is due at that time. When more than
 * half of the entries do not count the heap is given up, and made anew when it is needed.
 */
#include "index/index.h"

#define HEADS_SPARE 64u

static uint64_t key_of(const struct qi_queue *queue, const struct qi_segment *segment,
                       uint32_t slot) {
    return (uint64_t)qi_priority_of(queue, segment, slot) << QI_TIME_US_BITS |
           qi_time_us(qi_slots_of(segment->hot, slot)->time[slot & 63]);
}

/* What was taken back from the dead letters stays until it is delivered. */
static bool counts(struct qi_queue *queue, const struct qi_timer *head) {
    const struct qi_segment *segment = qi_segment_with(queue, head->id);
    uint32_t slot = qi_slot_of(queue, head->id);
    if (!segment || !segment->hot)
        return false;
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return qi_bit(slots->held & slots->due, slot) &&
           qi_time_us(slots->time[slot & 63]) != QI_REDRIVEN_US &&
           key_of(queue, segment, slot) == head->key;
}

int qi_due_heads_make(struct qi_queue *queue) {
    struct qi_timers *timers = &queue->timers;
    if (timers->heads_made)
        return 0;
    timers->heads.count = 0;
    int error = qi_heap_room(&timers->heads, timers->due.count);
    if (error)
        return error;
    for (uint32_t i = 0; i < timers->due.count; i++) {
        struct qi_timer head = {.id = timers->due.items[i].id};
        const struct qi_segment *segment = qi_segment_with(queue, head.id);
        if (!segment || !segment->hot ||
            !qi_slots_of(segment->hot, qi_slot_of(queue, head.id))->time)
            continue;
        head.key = key_of(queue, segment, qi_slot_of(queue, head.id));
        if (counts(queue, &head))
            timers->heads.items[timers->heads.count++] = head;
    }
    qi_heap_order(&timers->heads);
    timers->heads_made = true;
    return 0;
}

void qi_due_heads_add(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot) {
    struct qi_timers *timers = &queue->timers;
    if (!timers->heads_made)
        return;
    timers->heads_made = timers->heads.count <= 2 * timers->due.count + HEADS_SPARE &&
                         qi_heap_room(&timers->heads, 1) == 0;
    if (timers->heads_made)
        qi_heap_push(&timers->heads, key_of(queue, segment, slot), qi_req_id(queue, segment, slot));
}

bool qi_due_heads_take(struct qi_queue *queue, uint32_t below, struct qi_timer *head) {
    struct qi_heap *heads = &queue->timers.heads;
    struct qi_timer last = *head;
    while (heads->count && heads->items[0].key >> QI_TIME_US_BITS < below) {
        *head = qi_heap_pop(heads);
        /* A message that was due twice at the same time has two equal entries. */
        bool is_same = head->key == last.key && head->id == last.id;
        if (!is_same && counts(queue, head))
            return true;
    }
    *head = last;
    return false;
}
