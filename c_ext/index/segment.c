/* segment.c - the table of segments, their maps and the changes of state.
 *
 * The counters (unacked, transient, depth) change with the bits and never otherwise; check.c
 * recounts them.
 */
#include "index/index_private.h"

void qi_segment_publish(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                        uint32_t loc, uint32_t sum, bool transient) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_set_bit(&slots->pub, slot);
    qi_set_bit(&slots->jpub, slot);
    slots->loc[slot & 63] = loc;
    slots->sum[slot & 63] = sum;
    segment->hot->dirty++;
    segment->unacked++;
    if (transient) {
        qi_set_bit(&slots->transient, slot);
        segment->transient++;
    }
    qi_count_depth(queue, 1);
    queue->dirty_count++;
}

void qi_segment_deliver(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    queue->dirty_count++;
    segment->hot->dirty++;
    if (__builtin_expect(qi_bit(slots->held, slot), 0))
        qi_time_delivered(queue, segment, slot);
    if (qi_bit(slots->del, slot)) {
        qi_slots_count_again(slots, slot); /* without memory a count is lost, not a message */
        qi_set_bit(&slots->jcount, slot);
        return;
    }
    qi_set_bit(&slots->del, slot);
    qi_set_bit(&slots->jdel, slot);
}

static void release(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    const struct qi_published *record;
    if (qi_segment_record(queue, segment, slot, &record) != 0) {
        queue->store->messages.miscounted = true; /* which file has one less is not known */
        return;
    }
    struct qi_msg_id id = qi_get_msg_id(record->fields.msg_id);
    qi_segment_use(segment->hot, id.file, -1, -(int64_t)qi_stored_bytes(id));
    if (segment->counted)
        qi_messages_count(&queue->store->messages, id.file, -1, -(int64_t)qi_stored_bytes(id));
}

void qi_segment_ack(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_hot *hot = segment->hot;
    struct qi_slots *slots = qi_slots_of(hot, slot);
    if (qi_bit(slots->stored, slot))
        release(queue, segment, slot);
    if (__builtin_expect(qi_bit(slots->held, slot), 0))
        qi_time_drop(queue, segment, slot);
    qi_bytes_go(queue, segment, slot);
    qi_set_bit(&slots->ack, slot);
    qi_set_bit(&slots->jack, slot);
    hot->dirty++;
    if (qi_bit(slots->out, slot)) {
        qi_clear_bit(&slots->out, slot);
        hot->out_count--;
        queue->out--;
    }
    if (qi_bit(slots->transient, slot))
        segment->transient--;
    segment->unacked--;
    qi_count_depth(queue, -1);
    queue->dirty_count++;
}

/* The bits of [slot, end) that are in the piece of `slot`. */
static uint64_t range_mask(uint32_t slot, uint32_t end) {
    uint64_t mask = ~UINT64_C(0) << (slot & 63);
    return end > (slot | 63) ? mask : mask & ~(~UINT64_C(0) << (end & 63));
}

static void count_changes(struct qi_queue *queue, struct qi_segment *segment, uint32_t count) {
    segment->hot->dirty += count;
    queue->dirty_count += count;
}

void qi_segment_publish_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count, uint32_t loc, const uint8_t *records,
                              uint32_t stride) {
    uint32_t end = slot + count;
    for (uint32_t at = slot; at < end; at = (at | 63) + 1) {
        struct qi_slots *slots = qi_slots_of(segment->hot, at);
        uint64_t mask = range_mask(at, end);
        slots->pub |= mask;
        slots->jpub |= mask;
        uint32_t in_piece = end > (at | 63) ? 64 - (at & 63) : end - at;
        for (uint32_t i = 0; i < in_piece; i++) {
            struct qi_fields fields;
            uint32_t offset = (at - slot + i) * stride;
            qi_get_fields(records + offset + QI_RECORD_ID, &fields);
            slots->loc[(at & 63) + i] = loc + offset;
            slots->sum[(at & 63) + i] = qi_fields_sum(&fields);
        }
    }
    segment->unacked += count;
    qi_count_depth(queue, count);
    count_changes(queue, segment, count);
}

bool qi_segment_is_plain_range(const struct qi_segment *segment, uint32_t slot, uint32_t count) {
    for (uint32_t at = slot; at < slot + count; at = (at | 63) + 1) {
        const struct qi_slots *slots = qi_slots_of(segment->hot, at);
        uint64_t mask = range_mask(at, slot + count);
        if ((slots->pub & ~slots->ack & ~slots->stored & ~slots->transient & ~slots->out &
             ~slots->held & mask) != mask)
            return false;
    }
    return true;
}

void qi_segment_deliver_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count) {
    uint32_t again_count = 0;
    for (uint32_t at = slot; at < slot + count; at = (at | 63) + 1) {
        struct qi_slots *slots = qi_slots_of(segment->hot, at);
        uint64_t mask = range_mask(at, slot + count);
        for (uint64_t again = slots->del & mask; again; again &= again - 1, again_count++)
            qi_segment_deliver(queue, segment, (at & ~63u) + (uint32_t)__builtin_ctzll(again));
        slots->jdel |= mask & ~slots->del;
        slots->del |= mask;
    }
    count_changes(queue, segment, count - again_count);
}

void qi_segment_ack_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                          uint32_t count) {
    for (uint32_t at = slot; at < slot + count; at = (at | 63) + 1) {
        struct qi_slots *slots = qi_slots_of(segment->hot, at);
        uint64_t mask = range_mask(at, slot + count);
        slots->ack |= mask;
        slots->jack |= mask;
    }
    segment->unacked -= count;
    qi_count_depth(queue, -(int64_t)count);
    count_changes(queue, segment, count);
}
