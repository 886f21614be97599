/* purge.c - dropping what waits, or what waits in some states.
 *
 * If nothing stays but what is out, it is one record, which names those that are out. Otherwise
 * acks are appended, a frame for up to AT_ONCE messages, so a crash may leave some of them.
 */
#include "queue/queue_private.h"

static int append_purge(struct qi_queue *queue, uint64_t *purged) {
    uint32_t entries = queue->store->options.segment_entries;
    uint8_t *at;
    int error = qi_make_room(queue, 8 + 8 * queue->out, 0);
    if (!error)
        error = qi_load_for_purge(queue);
    if (!error) {
        error =
            qi_journal_room(qi_current(queue), 8 + 8 * queue->out + QI_JOURNAL_SPARE, true, &at);
        if (error)
            error = qi_append_failed(queue, error);
    }
    if (error)
        return error;
    uint8_t *list = at + 8, *next = list;
    qi_put64(at, queue->highest);
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        for (uint32_t slot = 0; segment->hot && slot < entries; slot += 64)
            for (uint64_t bits = qi_slots_of(segment->hot, slot)->out; bits;
                 bits &= bits - 1, next += 8)
                qi_put64(next, segment->number * entries + slot + (uint32_t)__builtin_ctzll(bits));
    }
    uint32_t count = (uint32_t)((next - list) / 8);
    error = qi_journal_append(qi_current(queue), QI_FRAME_PURGE, 8 + 8 * count);
    if (error)
        return qi_append_failed(queue, error);
    uint64_t before = queue->depth;
    error = qi_apply_purge(queue, queue->highest, list, count);
    *purged = before - queue->depth;
    queue->counts.purged += *purged;
    for (uint32_t i = 0; i < queue->lanes.count; i++)
        queue->lanes.items[i].cursor = queue->lanes.items[i].next;
    return error;
}

/* As stats and browse count it; one that is out is in none of them. */
static uint32_t state_of(const struct qi_queue *queue, const struct qi_slots *slots,
                         uint32_t slot) {
    if (qi_bit(slots->out, slot))
        return 0;
    if (!qi_bit(slots->held, slot))
        return QI_PURGE_READY;
    uint64_t time = slots->time[slot & 63];
    if (qi_time_is_dead(time))
        return QI_PURGE_DEAD;
    return qi_time_us(time) > qi_wall_us(queue->store) ? QI_PURGE_DELAYED : QI_PURGE_READY;
}

/* As far as the counters know: what is due, and was not looked at since, counts as delayed. */
static bool may_have(const struct qi_segment *segment, uint32_t states) {
    if (states & QI_PURGE_DEAD && segment->dead > 0)
        return true;
    return states & QI_PURGE_READY     ? segment->unacked > segment->dead
           : states & QI_PURGE_DELAYED ? segment->delayed > 0
                                       : false;
}

#define AT_ONCE 4096u

/* One frame's worth of a segment; how many went, or an error. Fewer than AT_ONCE: that was all. */
static int64_t drop_some(struct qi_queue *queue, uint64_t number, uint32_t states) {
    uint64_t req_ids[AT_ONCE];
    uint32_t count = 0;
    int error = qi_make_event_room(queue, AT_ONCE * QI_RECORD_ID); /* may give up the lock */
    struct qi_segment *segment = qi_segment_find(&queue->segments, number);
    if (error || !segment || !may_have(segment, states))
        return error;
    bool was_cold = !segment->hot;
    error = qi_segment_load(queue, segment);
    for (uint32_t slot = 0;
         !error && count < AT_ONCE && qi_find_slot(queue, segment->hot, false, &slot); slot++)
        if (state_of(queue, qi_slots_of(segment->hot, slot), slot) & states)
            req_ids[count++] = qi_req_id(queue, segment, slot);
    if (!error && count)
        error = qi_append_events(queue, QI_ACK, req_ids, count);
    if (error)
        return error;
    for (uint32_t i = 0; i < count; i++)
        qi_segment_ack(queue, segment, qi_slot_of(queue, req_ids[i]));
    queue->counts.purged += count;
    if (was_cold && count == 0)
        qi_cool_if_unused(queue, segment);
    if (count)
        qi_flush_if_due(queue);
    return count;
}

static int64_t drop_in_parts(struct qi_queue *queue, uint32_t states) {
    uint64_t number = 0;
    int64_t gone = 0, got = 0;
    const struct qi_segment *segment;
    while (got >= 0 && (segment = qi_segment_from(&queue->segments, number))) {
        number = segment->number;
        got = may_have(segment, states) ? drop_some(queue, number, states) : 0;
        gone += got > 0 ? got : 0;
        number += got < AT_ONCE;
    }
    return got < 0 ? got : gone;
}

/* What of the queue is in other states than these, and is not out. */
static uint64_t stays(const struct qi_queue *queue, uint32_t states) {
    uint64_t ready = queue->depth - queue->out - queue->delayed - queue->dead;
    return (states & QI_PURGE_READY ? 0 : ready) +
           (states & QI_PURGE_DELAYED ? 0 : queue->delayed) +
           (states & QI_PURGE_DEAD ? 0 : queue->dead);
}

int64_t qi_purge(struct qi_queue *queue, uint32_t states) {
    uint64_t purged = 0;
    qi_lock(queue->store);
    int64_t result = qi_queue_ready(queue, true);
    if (result == 0)
        result = qi_delayed_run(queue);
    if (result == 0 && stays(queue, states) > 0) {
        result = drop_in_parts(queue, states);
    } else if (result == 0) {
        result = append_purge(queue, &purged);
        if (result == 0)
            qi_flush_if_due(queue);
    }
    qi_unlock(queue->store);
    return result ? result : (int64_t)purged;
}
