/* ack.c - settling what was delivered: one message, several, or at once without waiting.
 *
 * Only what this process has out can be acked. All checks come first, then the record, then the bits (H20).
 */
#include <stdlib.h>

#include "ready.h"
#include "store.h"

int qi_find_live(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                 uint32_t *slot) {
    const struct qi_lane *lane = qi_lane_find(&queue->lanes, qi_lane_number(req_id));
    if (!lane || req_id >= lane->next)
        return qi_fail(QI_E_UNKNOWN, "message %llu was never published",
                       (unsigned long long)req_id);
    *slot = qi_slot_of(queue, req_id);
    *segment = qi_segment_with(queue, req_id);
    if (!*segment || (*segment)->unacked == 0)
        return qi_fail(QI_E_ACKED,
                       "message %llu is not in the queue any more: acked, expired or purged",
                       (unsigned long long)req_id);
    int error = qi_segment_load(queue, *segment);
    if (error)
        return error;
    const struct qi_slots *slots = qi_slots_of((*segment)->hot, *slot);
    if (!qi_bit(slots->pub, *slot) || qi_bit(slots->ack, *slot))
        return qi_fail(QI_E_ACKED,
                       "message %llu is not in the queue any more: acked, expired or purged",
                       (unsigned long long)req_id);
    return 0;
}

int qi_append_event(struct qi_queue *queue, enum qi_record_kind kind, uint64_t req_id) {
    struct qi_journal *journal = qi_current(queue);
    uint8_t *at;
    int error = qi_journal_room(journal, QI_RECORD_ID, true, &at);
    if (error)
        return qi_append_failed(queue, error);
    qi_put_record_id(at, kind, req_id);
    error = qi_journal_append(journal, QI_FRAME_RECORDS, QI_RECORD_ID);
    return error ? qi_append_failed(queue, error) : 0;
}

int qi_append_events(struct qi_queue *queue, enum qi_record_kind kind, const uint64_t *req_ids,
                     uint32_t count) {
    struct qi_journal *journal = qi_current(queue);
    uint8_t *at;
    int error = qi_journal_room(journal, QI_RECORD_ID * (uint64_t)count, true, &at);
    if (error)
        return qi_append_failed(queue, error);
    for (uint32_t i = 0; i < count; i++)
        qi_put_record_id(at + (size_t)i * QI_RECORD_ID, kind, req_ids[i]);
    error = qi_journal_append(journal, QI_FRAME_RECORDS, QI_RECORD_ID * count);
    return error ? qi_append_failed(queue, error) : 0;
}

/* Delivered by this process and not acked: that is what may be acked or nacked. Of a lease that ended, `deliveries` tells
 * the message of the consumer that had it from the same message of the one that has it now (0: whoever had it). */
int qi_find_unacked(struct qi_queue *queue, uint64_t req_id, uint32_t deliveries,
                    struct qi_segment **segment, uint32_t *slot) {
    int error = qi_find_live(queue, req_id, segment, slot);
    if (error)
        return error;
    const struct qi_slots *slots = qi_slots_of((*segment)->hot, *slot);
    bool is_out = qi_bit(slots->out, *slot);
    if (queue->leased && (is_out ? deliveries && deliveries != qi_delivery_count(slots, *slot)
                                 : slots->lease && slots->lease[*slot & 63] != 0))
        return qi_fail(QI_E_LEASE,
                       "the lease of message %llu has ended: it is ready again, or somebody else "
                       "has it",
                       (unsigned long long)req_id);
    return is_out ? 0
                  : qi_fail(QI_E_UNKNOWN,
                            "message %llu was not delivered, or was given back: get it first",
                            (unsigned long long)req_id);
}

static int settle(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint64_t req_id) {
    int error = qi_append_event(queue, QI_ACK, req_id);
    if (error)
        return error;
    qi_segment_ack(queue, segment, slot);
    qi_flush_if_due(queue);
    return 0;
}

int64_t qi_ack(struct qi_queue *queue, uint64_t req_id, uint32_t deliveries) {
    qi_lock(queue->store);
    struct qi_segment *segment;
    uint32_t slot;
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_make_event_room(queue, QI_RECORD_ID);
    if (!error)
        error = qi_find_unacked(queue, req_id, deliveries, &segment, &slot);
    if (!error)
        error = settle(queue, segment, slot, req_id);
    qi_unlock(queue->store);
    return error;
}

int qi_ack_now(struct qi_queue *queue, uint64_t req_id, uint32_t deliveries) {
    uint32_t slot = qi_slot_of(queue, req_id);
    if (!qi_begin_now(queue, QI_RECORD_ID, 0))
        return QI_BUSY;
    qi_leases_run(queue, &queue->timers);
    struct qi_segment *segment = qi_segment_with(queue, req_id);
    int result = QI_BUSY;
    const struct qi_slots *slots = segment && segment->hot ? qi_slots_of(segment->hot, slot) : NULL;
    if (slots && qi_bit(slots->out, slot) &&
        (!queue->leased || deliveries == qi_delivery_count(slots, slot)))
        result = settle(queue, segment, slot, req_id);
    qi_unlock(queue->store);
    return result;
}

static int compare_req_ids(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int fail_twice(uint64_t req_id) {
    return qi_fail(QI_E_ARGUMENT, "message %llu stands in the list twice: nothing was changed",
                   (unsigned long long)req_id);
}

int qi_check_distinct(const uint64_t *req_ids, uint32_t count) {
    uint32_t rising = 1;
    while (rising < count && req_ids[rising] > req_ids[rising - 1])
        rising++;
    if (rising >= count)
        return 0; /* as get_many gives them */
    uint64_t *sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return qi_fail(QI_E_MEMORY, "no memory for a list of %u messages", count);
    memcpy(sorted, req_ids, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_req_ids);
    int error = 0;
    for (uint32_t i = 1; i < count && !error; i++)
        if (sorted[i] == sorted[i - 1])
            error = fail_twice(sorted[i]);
    free(sorted);
    return error;
}

/* The usual case: a message in the segment of the one before it, without leases. What is out may be acked. */
static bool is_out_in(const struct qi_queue *queue, const struct qi_segment *segment,
                      uint64_t req_id) {
    uint32_t slot = qi_slot_of(queue, req_id);
    return segment && !queue->leased && segment->number == qi_segment_number(queue, req_id) &&
           qi_bit(qi_slots_of(segment->hot, slot)->out, slot);
}

int64_t qi_ack_many(struct qi_queue *queue, const uint64_t *req_ids, const uint32_t *deliveries,
                    uint32_t count) {
    struct qi_segment *segment = NULL;
    uint32_t slot;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_check_distinct(req_ids, count);
    if (!error)
        error = qi_make_event_room(queue, QI_RECORD_ID * (uint64_t)count);
    for (uint32_t i = 0; !error && i < count; i++)
        if (!is_out_in(queue, segment, req_ids[i]))
            error =
                qi_find_unacked(queue, req_ids[i], deliveries ? deliveries[i] : 0, &segment, &slot);
    if (!error && count)
        error = qi_append_events(queue, QI_ACK, req_ids, count);
    for (uint32_t i = 0; !error && i < count; i++) {
        segment =
            qi_segment_find_near(&queue->segments, segment, qi_segment_number(queue, req_ids[i]));
        qi_segment_ack(queue, segment, qi_slot_of(queue, req_ids[i]));
    }
    if (!error)
        qi_flush_if_due(queue);
    qi_unlock(queue->store);
    return error;
}
