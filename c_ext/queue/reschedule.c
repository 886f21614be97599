/* reschedule.c - messages that nobody has change: reschedule, delete, redrive. */
#include "queue/queue_private.h"

int qi_find_waiting(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                    uint32_t *slot) {
    int error = qi_find_live(queue, req_id, segment, slot);
    if (!error && qi_bit(qi_slots_of((*segment)->hot, *slot)->out, *slot))
        error = qi_fail(QI_E_DELIVERED, "message %llu is delivered: who has it may ack or nack it",
                        (unsigned long long)req_id);
    return error;
}

static int find_waiting(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                        uint32_t *slot) {
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_make_event_room(queue, QI_TIME_RECORD);
    return error ? error : qi_find_waiting(queue, req_id, segment, slot);
}

/* A dead letter, or one that was taken back from them and nobody has had since. */
static bool is_of_the_dead(const struct qi_segment *segment, uint32_t slot) {
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    if (!qi_bit(slots->held, slot))
        return false;
    uint64_t time = slots->time[slot & 63];
    return qi_time_is_dead(time) || qi_time_us(time) == QI_REDRIVEN_US;
}

/* At another time it would die of the same again, undelivered. */
static int fail_dead(uint64_t req_id) {
    return qi_fail(QI_E_DEAD,
                   "message %llu is a dead letter, or was taken back from them: it is delivered at "
                   "once or not at all; reschedule it without a time, or get it and nack it with a "
                   "delay",
                   (unsigned long long)req_id);
}

int64_t qi_reschedule(struct qi_queue *queue, uint64_t req_id, uint64_t due_us) {
    struct qi_segment *segment;
    uint32_t slot;
    due_us = qi_time_given(due_us);
    qi_lock(queue->store);
    int error = find_waiting(queue, req_id, &segment, &slot);
    if (!error && is_of_the_dead(segment, slot)) {
        error = due_us ? fail_dead(req_id) : 0;
        due_us = QI_REDRIVEN_US;
    }
    if (!error)
        error = qi_time_room(queue, segment, slot, 1, 1);
    if (!error)
        error = qi_append_times(queue, &req_id, 1, due_us);
    if (!error) {
        qi_time_set(queue, segment, slot, qi_time_for(queue, segment, slot, due_us));
        if (!qi_bit(qi_slots_of(segment->hot, slot)->held, slot))
            qi_announce(queue, 1);
        qi_timers_armed(queue);
        qi_flush_if_due(queue);
    }
    qi_unlock(queue->store);
    return error;
}

int64_t qi_delete(struct qi_queue *queue, uint64_t req_id) {
    struct qi_segment *segment;
    uint32_t slot;
    qi_lock(queue->store);
    int error = find_waiting(queue, req_id, &segment, &slot);
    if (!error)
        error = qi_append_event(queue, QI_ACK, req_id);
    if (!error) {
        qi_segment_ack(queue, segment, slot);
        queue->counts.purged++;
        qi_flush_if_due(queue);
    }
    qi_unlock(queue->store);
    return error;
}

int qi_find_dead(struct qi_queue *queue, uint64_t *req_id, uint64_t end,
                 struct qi_segment **segment, uint32_t *slot) {
    for (;; ++*req_id) {
        struct qi_segment *at =
            qi_segment_from(&queue->segments, qi_segment_number(queue, *req_id));
        while (at && at->dead == 0)
            at = qi_segment_from(&queue->segments, at->number + 1);
        if (!at)
            return QI_EMPTY;
        if (*req_id < qi_req_id(queue, at, 0))
            *req_id = qi_req_id(queue, at, 0);
        if (*req_id >= end)
            return QI_EMPTY;
        int error = qi_find_message(queue, *req_id, end, QI_FIND_ALL, segment, slot);
        if (error)
            return error;
        *req_id = qi_req_id(queue, *segment, *slot);
        const struct qi_slots *slots = qi_slots_of((*segment)->hot, *slot);
        if (qi_bit(slots->held, *slot) && qi_time_is_dead(slots->time[*slot & 63]))
            return 0;
    }
}

int64_t qi_redrive(struct qi_queue *queue, uint64_t most) {
    struct qi_segment *segment;
    uint32_t slot;
    uint64_t req_id = 0, count = 0;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    while (!error && count < most) {
        error = qi_make_event_room(queue, QI_TIME_RECORD);
        if (!error)
            error = qi_find_dead(queue, &req_id, UINT64_MAX, &segment, &slot);
        if (!error)
            error = qi_time_room(queue, segment, slot, 1, 1);
        if (!error)
            error = qi_append_times(queue, &req_id, 1, QI_REDRIVEN_US);
        if (error)
            break;
        qi_time_set(queue, segment, slot, qi_time_for(queue, segment, slot, QI_REDRIVEN_US));
        count++;
        qi_flush_if_due(queue);
    }
    if (count)
        qi_timers_armed(queue);
    qi_unlock(queue->store);
    return error && error != QI_EMPTY ? error : (int64_t)count;
}
