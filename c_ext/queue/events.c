/* events.c - deliveries, acks and times as records, and the messages that they are about. */
#include "queue/queue_private.h"

#include <stdlib.h>

int qi_find_live(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                 uint32_t *slot) {
    const struct qi_lane *lane = qi_lane_find(&queue->lanes, qi_lane_number(req_id));
    if (!lane || req_id >= lane->next)
        return qi_fail(QI_E_UNKNOWN,
                       "there is no message %llu: it was never published, or has left before the "
                       "store was opened",
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
    int error = qi_journal_room(journal, QI_RECORD_ID + QI_JOURNAL_SPARE, true, &at);
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
    int error =
        qi_journal_room(journal, QI_RECORD_ID * (uint64_t)count + QI_JOURNAL_SPARE, true, &at);
    if (error)
        return qi_append_failed(queue, error);
    for (uint32_t i = 0; i < count; i++)
        qi_put_record_id(at + (size_t)i * QI_RECORD_ID, kind, req_ids[i]);
    error = qi_journal_append(journal, QI_FRAME_RECORDS, QI_RECORD_ID * count);
    return error ? qi_append_failed(queue, error) : 0;
}

/* Delivered by this process and not acked: that is what may be acked or nacked. A delivery ends
 * with a nack, its lease, or its session; `delivery` tells the consumer that had the message from
 * the one that has it now (0: whoever has it). */
int qi_find_unacked(struct qi_queue *queue, uint64_t req_id, uint64_t delivery,
                    struct qi_segment **segment, uint32_t *slot) {
    int error = qi_find_live(queue, req_id, segment, slot);
    bool is_gone = error == QI_E_ACKED || error == QI_E_UNKNOWN;
    if (is_gone && delivery && delivery >> 32 != queue->tag)
        return qi_fail(QI_E_ENDED,
                       "this delivery of message %llu is of another session or queue: it has ended",
                       (unsigned long long)req_id);
    if (error)
        return error;
    const struct qi_slots *slots = qi_slots_of((*segment)->hot, *slot);
    bool is_out = qi_bit(slots->out, *slot);
    if (is_out && (qi_is_delivery(queue, slots, *slot, delivery) || QI_BUG(delivery_not_compared)))
        return 0;
    bool had_lease = slots->lease && slots->lease[*slot & 63] != 0;
    if (is_out ? queue->leased : had_lease)
        return qi_fail(QI_E_LEASE,
                       "the lease of message %llu has ended: it is ready again, or somebody else "
                       "has it",
                       (unsigned long long)req_id);
    return is_out ? qi_fail(QI_E_ENDED,
                            "this delivery of message %llu has ended: the message was given back, "
                            "or is of another session or queue, and somebody else has it now",
                            (unsigned long long)req_id)
                  : qi_fail(QI_E_UNKNOWN,
                            "message %llu was not delivered, or was given back: get it first",
                            (unsigned long long)req_id);
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

/* Of a message that is delayed again the priority stays what it was. */
uint64_t qi_time_for(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot,
                     uint64_t due_us) {
    uint64_t priority = qi_priority_of(queue, segment, slot);
    if (!due_us && qi_segment_lane(queue, segment) >= QI_PRIORITIES)
        due_us = qi_wall_us(queue->store); /* ready by its time only */
    return due_us ? priority << QI_TIME_US_BITS | qi_time_us(due_us) : 0;
}

/* Memory for a DIED of each. */
static int died_room(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count) {
    struct qi_segment *segment;
    uint32_t slot;
    int error = 0;
    for (uint32_t i = 0; i < count && !error; i++) {
        error = qi_find_live(queue, req_ids[i], &segment, &slot);
        if (!error)
            error = qi_side_room(qi_slots_of(segment->hot, slot), QI_SIDE_DIED, QI_DIED_SIZE);
    }
    return error;
}

static void died_unused(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count) {
    struct qi_segment *segment;
    uint32_t slot;
    for (uint32_t i = 0; i < count; i++)
        if (qi_find_live(queue, req_ids[i], &segment, &slot) == 0)
            qi_side_room_unused(qi_slots_of(segment->hot, slot));
}

/* The side records behind the times of a frame that was appended. */
static void mark_died(struct qi_queue *queue, const uint8_t *at, const uint64_t *req_ids,
                      uint32_t count, uint32_t why) {
    struct qi_segment *segment;
    uint32_t slot;
    for (uint32_t i = 0; i < count; i++, at += QI_DEATH_RECORD) {
        qi_find_live(queue, req_ids[i], &segment, &slot);
        const struct qi_side side = {QI_SIDE_DIED + why, QI_DIED_SIZE,
                                     at + QI_TIME_RECORD + QI_SIDE_RECORD};
        qi_side_put(qi_slots_of(segment->hot, slot), slot, &side, true);
        segment->hot->sided = true;
        segment->hot->dirty++;
        queue->dirty_count++;
        qi_dead_came(queue, req_ids[i]);
    }
}

static uint8_t *put_times(struct qi_queue *queue, uint8_t *at, const uint64_t *req_ids,
                          uint32_t count, uint64_t due_us, bool notes) {
    struct qi_segment *segment;
    uint32_t slot;
    uint64_t now_us = notes ? qi_wall_us(queue->store) : 0;
    for (uint32_t i = 0; i < count; i++) {
        qi_find_live(queue, req_ids[i], &segment, &slot);
        qi_put_time(at, req_ids[i], qi_time_for(queue, segment, slot, due_us));
        at += QI_TIME_RECORD;
        if (!notes)
            continue;
        qi_died_put(at, req_ids[i], qi_slots_of(segment->hot, slot), slot,
                    (uint32_t)(due_us - QI_DEAD), now_us);
        at += QI_DIED_RECORD;
    }
    return at;
}

/* One frame for the times of all of them; with what makes them dead letters, if it is that. */
int qi_append_times(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count,
                    uint64_t due_us) {
    struct qi_journal *journal = qi_current(queue);
    bool notes =
        qi_time_is_dead(due_us) && queue->store->options.format >= 2 && !QI_BUG(death_not_noted);
    uint64_t size = (notes ? QI_DEATH_RECORD : QI_TIME_RECORD) * (uint64_t)count;
    uint8_t *at;
    int error = notes ? died_room(queue, req_ids, count) : 0;
    if (!error) {
        error = qi_journal_room(journal, size + QI_JOURNAL_SPARE, true, &at);
        if (!error) {
            put_times(queue, at, req_ids, count, due_us, notes);
            error = qi_journal_append(journal, QI_FRAME_RECORDS, (uint32_t)size);
        }
        error = error ? qi_append_failed(queue, error) : 0;
    }
    if (error && notes)
        died_unused(queue, req_ids, count);
    else if (notes)
        mark_died(queue, at, req_ids, count, (uint32_t)(due_us - QI_DEAD));
    return error;
}

int qi_bury(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint32_t why) {
    struct qi_segment *segment;
    uint32_t slot;
    int error = 0;
    for (uint32_t i = 0; i < count && !error; i++) {
        error = qi_find_live(queue, req_ids[i], &segment, &slot);
        if (!error)
            error = qi_time_room(queue, segment, slot, 1, count);
    }
    if (!error)
        error = qi_append_times(queue, req_ids, count, QI_DEAD + why);
    for (uint32_t i = 0; i < count && !error; i++) {
        qi_find_live(queue, req_ids[i], &segment, &slot);
        qi_time_set(queue, segment, slot, qi_time_for(queue, segment, slot, QI_DEAD + why));
        qi_tell(queue, QI_EVENT_DIED, req_ids[i], why);
    }
    queue->counts.dead += error ? 0 : count;
    queue->counts.expired += error || why != QI_DEAD_EXPIRED ? 0 : count;
    return error;
}

/* One frame, so that a power cut cannot leave half of it. */
int qi_drop(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint32_t why) {
    if (queue->rules.dead_letters)
        return qi_bury(queue, req_ids, count, why);
    int error = qi_append_events(queue, QI_ACK, req_ids, count);
    for (uint32_t i = 0; i < count && !error; i++) {
        qi_segment_ack(queue, qi_segment_with(queue, req_ids[i]), qi_slot_of(queue, req_ids[i]));
        qi_tell(queue, why == QI_DEAD_EXPIRED ? QI_EVENT_EXPIRED : QI_EVENT_DROPPED, req_ids[i],
                why);
    }
    queue->counts.dropped += error ? 0 : count;
    queue->counts.expired += error || why != QI_DEAD_EXPIRED ? 0 : count;
    return error;
}
