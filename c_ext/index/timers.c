/* timers.c - heaps of times: delayed messages, dead letters, and what holds a message.
 *
 * A delayed message is *held*: gets pass over it. When its time has come, it moves to the heap of
 * due messages, and get takes from that heap before it looks at the lanes. A lease is the time at
 * which a delivery ends; then the message is ready again.
 *
 *     publish(delay)                          time passes                get
 *        held ------------> delayed ----------------------> due ---------------> delivered
 *                           (heap by time, or its segment   (heap by priority,
 *                            is cold: one entry for all)     then by time)
 *
 * Only segments in which a message is due soon have their maps in memory, and only their messages
 * are in the heaps. A cold segment has one entry, with the earliest time in it. A delayed message
 * is published into the lane of the minute in which it is due, or of the half hour if that is far
 * away. So the messages of a segment are due at about the same time, and a flush writes few files.
 *
 * A dead letter is a message that is held for ever. It stays in its place, so that to bury it, and
 * to take it back, is one record each.
 *
 * An entry of a heap is only a claim: it counts if the slot still says the same. Nothing is ever
 * taken out of the middle of a heap. An entry that is out of date is dropped when it comes up, or
 * together with all others of its kind when they are too many.
 *
 * Memory for entries is allocated before the record that they follow (H20).
 */
#include "index/index_private.h"

#define LOOK_US UINT64_C(100000) /* for leases that end one after the other */

void qi_timers_clear(struct qi_timers *timers) {
    qi_free(timers->delayed.items);
    qi_free(timers->due.items);
    qi_free(timers->redriven.items);
    qi_free(timers->heads.items);
    qi_free(timers->leases.items);
    *timers = (struct qi_timers){0};
}

/* ---- delayed messages ---- */

/* An entry of `delayed` becomes one of `due`, and again one of `delayed` when the message comes
 * back from a consumer: there is always room for all of them in `delayed`. */
int qi_delayed_room(struct qi_queue *queue, uint64_t count) {
    const struct qi_timers *timers = &queue->timers;
    return qi_heap_room(&queue->timers.delayed,
                        count + timers->due.count + timers->redriven.count + queue->out);
}

int qi_time_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint32_t count,
                 uint32_t in_all) {
    int error = qi_delayed_room(queue, in_all);
    for (uint32_t at = slot; at < slot + count && !error; at = (at | 63) + 1)
        error = qi_slots_time_room(qi_slots_of(segment->hot, at));
    return error;
}

static void count_dead(struct qi_queue *queue, struct qi_segment *segment, int32_t by) {
    segment->dead += (uint32_t)by;
    qi_count_dead(queue, by);
}

void qi_held_at_most(struct qi_queue *queue, struct qi_segment *segment, uint32_t count) {
    if (segment->delayed > count)
        qi_count_delayed(queue, segment, (int32_t)count - (int32_t)segment->delayed);
    if (segment->dead > count - segment->delayed)
        count_dead(queue, segment, (int32_t)(count - segment->delayed) - (int32_t)segment->dead);
}

void qi_time_drop(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    if (qi_time_is_dead(slots->time[slot & 63])) {
        count_dead(queue, segment, -1);
        qi_bytes_return(queue, segment, slot);
    } else if (!qi_bit(slots->due, slot)) {
        qi_count_delayed(queue, segment, -1);
    }
    qi_clear_bit(&slots->held, slot);
    qi_clear_bit(&slots->due, slot);
    segment->hot->held_count--;
}

/* Held, with an entry among the delayed: also if its time is over, then it comes up at once. */
static void hold(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    uint64_t due_us = qi_time_us(slots->time[slot & 63]);
    qi_set_bit(&slots->held, slot);
    segment->hot->held_count++;
    if (qi_time_is_dead(due_us)) {
        count_dead(queue, segment, 1);
        if (!QI_BUG(dead_bytes_counted))
            qi_bytes_go(queue, segment, slot);
        return;
    }
    qi_count_delayed(queue, segment, 1);
    qi_heap_push(&queue->timers.delayed, qi_key_of(slots, slot), qi_req_id(queue, segment, slot));
    if (segment->due_us == 0 || due_us < segment->due_us)
        segment->due_us = due_us;
    segment->due_is_exact = false;
}

/* Ready by itself only in a lane of priorities: get never looks into the others. */
bool qi_is_in_priority_lane(const struct qi_queue *queue, const struct qi_segment *segment) {
    return qi_segment_lane(queue, segment) < QI_PRIORITIES;
}

void qi_time_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint64_t time) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    if (qi_bit(slots->held, slot))
        qi_time_drop(queue, segment, slot);
    slots->time[slot & 63] = time;
    qi_clear_bit(&slots->told, slot);
    qi_set_bit(&slots->jtime, slot);
    segment->hot->dirty++;
    queue->dirty_count++;
    if (qi_time_us(time) != 0 || !qi_is_in_priority_lane(queue, segment)) {
        hold(queue, segment, slot);
    } else {
        struct qi_lane *lane = qi_lane_find(&queue->lanes, qi_segment_lane(queue, segment));
        if (lane && qi_req_id(queue, segment, slot) < lane->cursor)
            lane->cursor = qi_req_id(queue, segment, slot);
    }
}

void qi_time_delivered(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    uint64_t *time = &slots->time[slot & 63];
    if (qi_is_redriven(slots, slot))
        segment->expired_out = true; /* perhaps: nobody looked while it was a dead letter */
    if (QI_BUG(time_kept_by_delivery)) {
        return;
    } else if (qi_is_in_priority_lane(queue, segment)) {
        qi_time_drop(queue, segment, slot);
        *time = 0;
    } else if (qi_time_us(*time) == QI_REDRIVEN_US) {
        ++*time; /* once more is over */
    } else {
        return;
    }
    qi_set_bit(&slots->jtime, slot);
}

/* Of 64 slots those whose messages are held: in a lane that get does not look into, all. */
static uint64_t held_of(const struct qi_slots *slots, bool in_order) {
    uint64_t here = slots->pub & ~slots->ack & ~slots->out;
    return in_order ? slots->held & here : here;
}

int qi_time_load_room(struct qi_queue *queue, struct qi_segment *segment) {
    bool in_order = qi_is_in_priority_lane(queue, segment);
    uint32_t found = 0;
    for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
        struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        uint64_t held = held_of(slots, in_order);
        if (held && qi_slots_time_room(slots) != 0)
            return QI_E_MEMORY;
        found += (uint32_t)__builtin_popcountll(held);
    }
    return found ? qi_delayed_room(queue, found) : 0;
}

void qi_time_load(struct qi_queue *queue, struct qi_segment *segment) {
    bool in_order = qi_is_in_priority_lane(queue, segment);
    qi_count_delayed(queue, segment, -(int32_t)segment->delayed);
    count_dead(queue, segment, -(int32_t)segment->dead);
    segment->hot->held_count = 0;
    segment->due_us = 0;
    for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
        struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        uint64_t held = held_of(slots, in_order);
        if (!held && !slots->held)
            continue;
        slots->held = slots->due = 0;
        for (; held; held &= held - 1)
            hold(queue, segment, slot + (uint32_t)__builtin_ctzll(held));
    }
}

void qi_spent_wake(struct qi_store *store, uint64_t at_us) {
    at_us = at_us ? (at_us / LOOK_US + 1) * LOOK_US : 0;
    if (at_us >= store->spent_due_us)
        return;
    store->spent_due_us = at_us;
    qi_wake_worker(store);
}

/* Without memory for the note a get drops it. */
void qi_spent_note(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot) {
    struct qi_spent *spent = &queue->spent;
    if (!qi_is_tried_out(qi_slots_of(segment->hot, slot), slot, queue->rules.max_deliveries))
        return;
    if (qi_req_id_add(&spent->req_ids, &spent->count, &spent->room,
                      qi_req_id(queue, segment, slot)))
        spent->waits = true;
}

void qi_release(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    uint64_t req_id = qi_req_id(queue, segment, slot);
    qi_clear_bit(&slots->out, slot);
    segment->hot->out_count--;
    queue->out--;
    if (segment->expired_out)
        qi_expire_came_back(queue, segment);
    if (__builtin_expect(queue->rules.max_deliveries != 0, 0))
        qi_spent_note(queue, segment, slot);
    if (qi_bit(slots->held, slot))
        return; /* it was delayed meanwhile */
    struct qi_lane *lane = qi_lane_find(&queue->lanes, qi_lane_number(req_id));
    if (!qi_is_in_priority_lane(queue, segment))
        hold(queue, segment, slot);
    else if (req_id < lane->cursor)
        lane->cursor = req_id;
}

/* ---- what an entry claims ---- */

uint32_t qi_priority_of(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot) {
    uint32_t lane = qi_segment_lane(queue, segment);
    const uint64_t *time = qi_slots_of(segment->hot, slot)->time;
    return lane < QI_PRIORITIES ? lane : time ? qi_time_priority(time[slot & 63]) : 0;
}

/* ---- what is out of date ---- */

bool qi_is_claimed(struct qi_queue *queue, const struct qi_timer *timer) {
    const struct qi_segment *segment = qi_segment_of_timer(queue, timer->id);
    uint32_t slot = qi_slot_of(queue, timer->id);
    return segment && segment->hot && segment->hot->loaded && !(timer->id & QI_SEGMENT_ENTRY) &&
           qi_is_delayed(segment, slot, timer->key);
}
