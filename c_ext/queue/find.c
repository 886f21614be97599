/* find.c - finds the next message in the maps. */
#include "queue/queue_private.h"

bool qi_find_slot(struct qi_queue *queue, const struct qi_hot *hot, bool ready_only,
                  uint32_t *slot) {
    uint32_t entries = queue->store->options.segment_entries;
    for (uint32_t at = *slot; at < entries; at = (at | 63) + 1) {
        const struct qi_slots *slots = qi_slots_of(hot, at);
        uint64_t bits = slots->pub & ~slots->ack & ~UINT64_C(0) << (at & 63);
        if (ready_only)
            bits &= ~(slots->out | slots->held);
        if (!bits)
            continue;
        *slot = (at & ~63u) + (uint32_t)__builtin_ctzll(bits);
        return true;
    }
    return false;
}

int qi_find_message(struct qi_queue *queue, uint64_t req_id, uint64_t end, enum qi_find what,
                    struct qi_segment **found, uint32_t *slot) {
    bool ready_only = what != QI_FIND_ALL;
    uint64_t entries = queue->store->options.segment_entries;
    struct qi_segments *segments = &queue->segments;
    struct qi_segment *segment = qi_segment_from(segments, qi_segment_number(queue, req_id));
    for (; segment && segment < segments->items + segments->start + segments->count; segment++) {
        if (segment->number * entries >= end)
            break;
        *slot = segment->number == qi_segment_number(queue, req_id) ? qi_slot_of(queue, req_id) : 0;
        if (segment->unacked == 0 || (ready_only && !qi_segment_has_ready(segment)))
            continue;
        if (what == QI_FIND_READY_NOW && !(segment->hot && segment->hot->loaded))
            return QI_BUSY;
        int error = qi_segment_load(queue, segment);
        if (error)
            return error;
        if (!qi_find_slot(queue, segment->hot, ready_only, slot))
            continue;
        *found = segment;
        return 0;
    }
    return QI_EMPTY;
}
