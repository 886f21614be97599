/* ack.c - settling what was delivered: one message, several, or at once without waiting.
 *
 * Only what this process has out can be acked. All checks come first, then the record, then the bits (H20).
 */
#include "store.h"

int qi_find_live(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                 uint32_t *slot) {
    uint32_t entries = queue->store->options.segment_entries;
    if (req_id >= queue->next)
        return qi_fail(QI_E_UNKNOWN, "message %llu was never published",
                       (unsigned long long)req_id);
    *slot = (uint32_t)(req_id % entries);
    *segment = qi_segment_find(&queue->segments, req_id / entries);
    if (!*segment || (*segment)->unacked == 0)
        return qi_fail(QI_E_ACKED,
                       "message %llu is not in the queue any more: acked, expired or purged",
                       (unsigned long long)req_id);
    int error = qi_segment_load(queue, *segment);
    if (error)
        return error;
    if (!qi_bit((*segment)->hot->pub, *slot) || qi_bit((*segment)->hot->ack, *slot))
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

/* Delivered by this process and not acked: that is what may be acked or nacked. */
static int find_unacked(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                        uint32_t *slot) {
    int error = qi_find_live(queue, req_id, segment, slot);
    if (error || qi_bit((*segment)->hot->out, *slot))
        return error;
    return qi_fail(QI_E_UNKNOWN, "message %llu is ready, not delivered: get it before you ack it",
                   (unsigned long long)req_id);
}

int64_t qi_ack(struct qi_queue *queue, uint64_t req_id) {
    qi_lock(queue->store);
    struct qi_segment *segment;
    uint32_t slot;
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_make_event_room(queue, QI_RECORD_ID);
    if (!error)
        error = find_unacked(queue, req_id, &segment, &slot);
    if (!error)
        error = qi_append_event(queue, QI_ACK, req_id);
    if (!error) {
        qi_segment_ack(queue, segment, slot);
        qi_flush_if_due(queue);
    }
    qi_unlock(queue->store);
    return error;
}

int qi_ack_now(struct qi_queue *queue, uint64_t req_id) {
    uint32_t entries = queue->store->options.segment_entries, slot = (uint32_t)(req_id % entries);
    if (!qi_begin_now(queue, QI_RECORD_ID, 0))
        return QI_BUSY;
    struct qi_segment *segment = qi_segment_find(&queue->segments, req_id / entries);
    int result = QI_BUSY;
    if (segment && segment->hot && qi_bit(segment->hot->out, slot)) {
        result = qi_append_event(queue, QI_ACK, req_id);
        if (!result) {
            qi_segment_ack(queue, segment, slot);
            qi_flush_if_due(queue);
        }
    }
    qi_unlock(queue->store);
    return result;
}

int64_t qi_ack_many(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count) {
    struct qi_segment *segment;
    uint32_t slot, checked = 0;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    for (; !error && checked < count;
         checked++) { /* a cleared bit finds the second of two equal ids */
        error = find_unacked(queue, req_ids[checked], &segment, &slot);
        if (error)
            break;
        qi_clear_bit(segment->hot->out, slot);
    }
    for (uint32_t i = 0; i < checked; i++)
        if (qi_find_live(queue, req_ids[i], &segment, &slot) == 0)
            qi_set_bit(segment->hot->out, slot);
    if (!error && count)
        error = qi_append_events(queue, QI_ACK, req_ids, count);
    for (uint32_t i = 0; !error && i < count; i++) {
        error = qi_find_live(queue, req_ids[i], &segment, &slot);
        if (!error)
            qi_segment_ack(queue, segment, slot);
    }
    if (!error)
        qi_flush_if_due(queue);
    qi_unlock(queue->store);
    return error;
}
