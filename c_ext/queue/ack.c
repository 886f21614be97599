/* ack.c - settling what was delivered: one message, several, or at once without waiting.
 *
 * Only what this process has out can be acked. All checks come first, then the record, then the
 * bits (H20).
 */
#include "queue/queue_private.h"

uint32_t qi_next_tag(void) {
    static atomic_uint tags;
    uint32_t tag = atomic_fetch_add(&tags, 1) + 1;
    return tag ? tag : qi_next_tag();
}

uint32_t qi_queue_tag(const struct qi_queue *queue) {
    return queue->tag;
}

static int settle(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint64_t req_id) {
    int error = qi_append_event(queue, QI_ACK, req_id);
    if (error)
        return error;
    qi_segment_ack(queue, segment, slot);
    queue->counts.acked++;
    qi_flush_if_due(queue);
    return 0;
}

int64_t qi_ack(struct qi_queue *queue, uint64_t req_id, uint64_t delivery) {
    qi_lock(queue->store);
    struct qi_segment *segment;
    uint32_t slot;
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_make_event_room(queue, QI_RECORD_ID);
    if (!error)
        error = qi_find_unacked(queue, req_id, delivery, &segment, &slot);
    if (!error)
        error = settle(queue, segment, slot, req_id);
    qi_unlock(queue->store);
    return error;
}

int qi_ack_now(struct qi_queue *queue, uint64_t req_id, uint64_t delivery) {
    uint32_t slot = qi_slot_of(queue, req_id);
    if (!qi_begin_now(queue, QI_RECORD_ID, 0))
        return QI_BUSY;
    struct qi_segment *segment = qi_segment_with(queue, req_id);
    int result = QI_BUSY;
    const struct qi_slots *slots = segment && segment->hot ? qi_slots_of(segment->hot, slot) : NULL;
    if (slots && qi_bit(slots->out, slot) && qi_is_delivery(queue, slots, slot, delivery))
        result = settle(queue, segment, slot, req_id);
    qi_unlock(queue->store);
    return result;
}

/* The usual case: a message in the segment of the one before it, which this caller has. */
static bool is_out_in(const struct qi_queue *queue, const struct qi_segment *segment,
                      uint64_t req_id, uint64_t delivery) {
    uint32_t slot = qi_slot_of(queue, req_id);
    if (!segment || segment->number != qi_segment_number(queue, req_id))
        return false;
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return qi_bit(slots->out, slot) && qi_is_delivery(queue, slots, slot, delivery);
}

int64_t qi_settle_many(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                       uint32_t count, uint64_t *counted) {
    struct qi_segment *segment = NULL;
    uint32_t slot;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_check_distinct(req_ids, count);
    if (!error)
        error = qi_make_event_room(queue, QI_RECORD_ID * (uint64_t)count);
    for (uint32_t i = 0; !error && i < count; i++) {
        uint64_t delivery = deliveries ? deliveries[i] : 0;
        if (!is_out_in(queue, segment, req_ids[i], delivery))
            error = qi_find_unacked(queue, req_ids[i], delivery, &segment, &slot);
    }
    if (!error && count)
        error = qi_append_events(queue, QI_ACK, req_ids, count);
    for (uint32_t i = 0; !error && i < count; i++) {
        segment =
            qi_segment_find_near(&queue->segments, segment, qi_segment_number(queue, req_ids[i]));
        qi_segment_ack(queue, segment, qi_slot_of(queue, req_ids[i]));
    }
    if (!error) {
        *counted += count;
        qi_flush_if_due(queue);
    }
    qi_unlock(queue->store);
    return error;
}

int64_t qi_ack_many(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                    uint32_t count) {
    return qi_settle_many(queue, req_ids, deliveries, count, &queue->counts.acked);
}
