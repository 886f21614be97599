/* nack.c - a message goes back, later, or away: nack, touch, reschedule, delete.
 *
 * A nack leaves no record: what was delivered and not acked is ready again after any end. With a
 * delay, the time is one.
 */
#include "queue/queue_private.h"

static void give_back(struct qi_queue *queue, uint64_t req_id, uint64_t due_us) {
    struct qi_segment *segment;
    uint32_t slot;
    qi_find_live(queue, req_id, &segment, &slot);
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    if (slots->lease)
        slots->lease[slot & 63] = 0;
    if (due_us)
        qi_time_set(queue, segment, slot, qi_time_for(queue, segment, slot, due_us));
    qi_release(queue, segment, slot);
    if (qi_time_is_dead(due_us))
        qi_tell(queue, QI_EVENT_DIED, req_id, (uint32_t)(due_us - QI_DEAD));
}

static int64_t nack(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                    uint32_t count, uint64_t due_us) {
    struct qi_segment *segment;
    uint32_t slot;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_check_distinct(req_ids, count);
    if (!error && due_us)
        error = qi_make_event_room(queue, QI_DEATH_RECORD * (uint64_t)count);
    for (uint32_t i = 0; !error && i < count; i++) {
        error = qi_find_unacked(queue, req_ids[i], deliveries ? deliveries[i] : 0, &segment, &slot);
        if (!error && due_us)
            error = qi_time_room(queue, segment, slot, 1, count);
    }
    if (!error && due_us && count)
        error = qi_append_times(queue, req_ids, count, due_us);
    for (uint32_t i = 0; !error && i < count; i++)
        give_back(queue, req_ids[i], due_us);
    if (!error)
        *(qi_time_is_dead(due_us) ? &queue->counts.dead : &queue->counts.returned) += count;
    if (!error && due_us)
        qi_flush_if_due(queue);
    else if (!error)
        qi_announce(queue, count);
    if (!error && due_us)
        qi_timers_armed(queue);
    if (__builtin_expect(!error && queue->spent.waits, 0))
        qi_spent_leave(queue);
    qi_dead_move_after(queue, error);
    qi_unlock(queue->store);
    return error;
}

/* One frame that says of each that one delivery more does not count. */
static int append_uncounted(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count) {
    const uint32_t size = QI_SIDE_RECORD + QI_UNCOUNTED_SIZE;
    struct qi_journal *journal = qi_current(queue);
    struct qi_segment *segment;
    uint32_t slot;
    uint8_t *at;
    int error = qi_journal_room(journal, size * (uint64_t)count + QI_JOURNAL_SPARE, true, &at);
    if (error)
        return qi_append_failed(queue, error);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t bytes[QI_UNCOUNTED_SIZE];
        qi_find_live(queue, req_ids[i], &segment, &slot);
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        qi_put32(bytes, qi_uncounted_of(slots, slot).count + 1);
        qi_put32(bytes + 4, qi_handed_out(slots, slot));
        const struct qi_side side = {QI_SIDE_UNCOUNTED, QI_UNCOUNTED_SIZE, bytes};
        qi_put_side(at + (size_t)i * size, req_ids[i], &side);
    }
    error = qi_journal_append(journal, QI_FRAME_RECORDS, size * count);
    return error ? qi_append_failed(queue, error) : 0;
}

static void note_uncounted(struct qi_queue *queue, uint64_t req_id) {
    struct qi_segment *segment;
    uint32_t slot;
    uint8_t bytes[QI_UNCOUNTED_SIZE];
    qi_find_live(queue, req_id, &segment, &slot);
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_put32(bytes, qi_uncounted_of(slots, slot).count + 1);
    qi_put32(bytes + 4, qi_handed_out(slots, slot));
    const struct qi_side side = {QI_SIDE_UNCOUNTED, QI_UNCOUNTED_SIZE, bytes};
    qi_side_put(slots, slot, &side, true);
    segment->hot->sided = true;
    segment->hot->dirty++;
    queue->dirty_count++;
}

int64_t qi_return_many(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                       uint32_t count) {
    struct qi_segment *segment;
    uint32_t slot;
    if (queue->store->options.format < 2)
        return qi_fail(QI_E_FORMAT,
                       "a delivery that does not count needs a store of format 2: this one has "
                       "format 1 (qindex upgrade, or upgrade=True)");
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_check_distinct(req_ids, count);
    if (!error)
        error = qi_make_event_room(queue, (QI_SIDE_RECORD + QI_UNCOUNTED_SIZE) * (uint64_t)count);
    for (uint32_t i = 0; !error && i < count; i++) {
        error = qi_find_unacked(queue, req_ids[i], deliveries ? deliveries[i] : 0, &segment, &slot);
        if (!error)
            error =
                qi_side_room(qi_slots_of(segment->hot, slot), QI_SIDE_UNCOUNTED, QI_UNCOUNTED_SIZE);
    }
    if (!error && count)
        error = append_uncounted(queue, req_ids, count);
    for (uint32_t i = 0; error && i < count; i++)
        if (qi_find_live(queue, req_ids[i], &segment, &slot) == 0)
            qi_side_room_unused(qi_slots_of(segment->hot, slot));
    for (uint32_t i = 0; !error && i < count; i++) {
        note_uncounted(queue, req_ids[i]);
        give_back(queue, req_ids[i], 0);
    }
    if (!error) {
        queue->counts.returned += count;
        qi_announce(queue, count);
        qi_flush_if_due(queue);
    }
    qi_unlock(queue->store);
    return error;
}

int64_t qi_nack_many(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                     uint32_t count, uint64_t due_us) {
    return nack(queue, req_ids, deliveries, count, qi_time_given(due_us));
}

int64_t qi_reject_many(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                       uint32_t count) {
    qi_lock(queue->store);
    bool buries = queue->rules.dead_letters;
    qi_unlock(queue->store);
    return buries ? nack(queue, req_ids, deliveries, count, QI_DEAD + QI_DEAD_REJECTED)
                  : qi_settle_many(queue, req_ids, deliveries, count, &queue->counts.dropped);
}

int64_t qi_touch(struct qi_queue *queue, uint64_t req_id, uint64_t delivery, uint64_t lease_us) {
    struct qi_segment *segment;
    uint32_t slot;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_find_unacked(queue, req_id, delivery, &segment, &slot);
    if (!error)
        error = qi_lease_room(queue, segment, slot, 1);
    if (!error) {
        qi_lease_set(queue, segment, slot, qi_steady_us(queue->store) + lease_us);
        qi_timers_armed(queue);
    }
    qi_unlock(queue->store);
    return error;
}

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
