/* timers_cold.c - what stands in the heap of delayed messages for segments whose maps are not in
 * memory: one entry for all of a segment's messages, with the earliest of their times. When its
 * time has come, the segment is read (timers.c).
 */
#include "index/index_private.h"

#define TIDY_MIN 4096u

uint64_t qi_segment_due_us(const struct qi_queue *queue, const struct qi_segment *segment) {
    bool in_order = qi_is_in_priority_lane(queue, segment);
    uint64_t earliest = UINT64_MAX;
    for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        uint64_t out = in_order ? 0 : slots->out; /* without who has them they are held */
        for (uint64_t held = slots->held | out; held; held &= held - 1) {
            uint64_t due_us = qi_time_us(slots->time[__builtin_ctzll(held)]);
            if (!qi_time_is_dead(due_us) && due_us < earliest)
                earliest = due_us;
        }
    }
    return earliest;
}

void qi_push_cold(struct qi_queue *queue, const struct qi_segment *segment) {
    qi_heap_push(&queue->timers.delayed, segment->due_us,
                 qi_req_id(queue, segment, 0) | QI_SEGMENT_ENTRY);
}

void qi_cool(struct qi_queue *queue, struct qi_segment *segment) {
    if (!segment->hot)
        return; /* there was no memory to load it */
    if (segment->delayed && segment->hot->loaded) {
        if (qi_delayed_room(queue, 1) != 0)
            return; /* no memory: the maps stay */
        segment->due_us = qi_segment_due_us(queue, segment);
        segment->due_is_exact = true;
        qi_push_cold(queue, segment);
    }
    qi_segment_cool(segment);
}

void qi_timers_tidy(struct qi_queue *queue) {
    struct qi_heap *delayed = &queue->timers.delayed;
    uint64_t live = 0;
    if (delayed->count <= TIDY_MIN)
        return;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        const struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        live += qi_waits_as_whole(segment) ? 1 : segment->delayed;
    }
    if (live < queue->timers.tidied) /* of some messages there are two */
        live = queue->timers.tidied;
    if (delayed->count <= live + live / 2)
        return;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < delayed->count; i++)
        if (qi_is_claimed(queue, &delayed->items[i]))
            delayed->items[kept++] = delayed->items[i];
    delayed->count = kept;
    qi_heap_order(delayed);
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (qi_waits_as_whole(segment))
            qi_push_cold(queue, segment); /* it had an entry before: there is room */
    }
    queue->timers.tidied = delayed->count;
}
