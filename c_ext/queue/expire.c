/* expire.c - what has expired leaves, wherever it stands in its queue.
 *
 * A get drops what has expired on its way (ready.c), but what stands behind longer-lived messages
 * nobody would meet. So every segment has a bound: nothing in it expires before. In memory it comes
 * with the publishes; of a cold segment it stands in the last summary of its file. When the bound
 * has passed, the segment is read and what has expired leaves in one frame for up to AT_ONCE of
 * them; the rest says the next bound.
 */
#include "queue/queue_private.h"

#define AT_ONCE  1024u
#define PAUSE_US (UINT64_C(1) * 1000000) /* between two looks of the worker at a queue */

/* It may leave: nobody has it, it is no dead letter, and not to be delivered once more all the
 * same. */
static bool may_leave(const struct qi_slots *slots, uint32_t slot) {
    bool held = qi_bit(slots->held, slot);
    return !qi_bit(slots->out, slot) &&
           !(held && qi_time_us(slots->time[slot & 63]) == QI_REDRIVEN_US);
}

static bool is_dead_letter(const struct qi_slots *slots, uint32_t slot) {
    return qi_bit(slots->held, slot) && qi_time_is_dead(slots->time[slot & 63]);
}

/* What a look at a segment found: up to AT_ONCE messages that have expired and may leave. */
struct found {
    uint64_t req_ids[AT_ONCE];
    uint32_t count;
    uint64_t next_us; /* when the first of the others expires; 0: none does */
    uint64_t held_us; /* the same of those that have expired and must stay for now */
};

/* What the disk does not give now may have expired, too: an error, and the bound that was stays. */
static int find_expired(struct qi_queue *queue, struct qi_segment *segment, uint64_t now,
                        struct found *found) {
    found->count = 0;
    found->next_us = found->held_us = 0;
    segment->expired_out = false;
    for (uint32_t slot = 0; qi_find_slot(queue, segment->hot, false, &slot); slot++) {
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        const struct qi_published *record;
        if (is_dead_letter(slots, slot))
            continue;
        int error = qi_segment_record(queue, segment, slot, &record);
        if (error == QI_E_CORRUPT) /* get tells of the damage */
            continue;
        if (error)
            return error;
        uint64_t expiry_us = record->fields.expiry_us;
        if (expiry_us == 0)
            continue;
        if (expiry_us > now)
            qi_lower(&found->next_us, expiry_us);
        else if (!may_leave(slots, slot))
            qi_lower(&found->held_us, expiry_us);
        else if (found->count < AT_ONCE)
            found->req_ids[found->count++] = qi_req_id(queue, segment, slot);
        if (expiry_us <= now && qi_bit(slots->out, slot))
            segment->expired_out = true;
    }
    return 0;
}

/* The bound of a segment that nobody read stands in its file. */
static int find_bound(struct qi_queue *queue, struct qi_segment *segment) {
    int error = qi_segment_read_summary(queue, segment);
    segment->expiry_unread = error != 0;
    return error;
}

static bool is_due(const struct qi_segment *segment, uint64_t now) {
    return segment->unacked > 0 &&
           (segment->expiry_unread || (segment->expiry_us && segment->expiry_us <= now));
}

/* One frame's worth; how many left, or an error. Fewer than AT_ONCE: that was all. */
static int64_t sweep(struct qi_queue *queue, uint64_t number, uint64_t now) {
    struct found found;
    int error = qi_make_event_room(queue, AT_ONCE * QI_DEATH_RECORD); /* may give up the lock */
    struct qi_segment *segment = qi_segment_find(&queue->segments, number);
    if (!error && segment && segment->expiry_unread)
        error = find_bound(queue, segment);
    if (error || !segment || !is_due(segment, now))
        return error;
    bool was_cold = !segment->hot;
    error = qi_segment_load(queue, segment);
    if (!error)
        error = find_expired(queue, segment, now, &found);
    if (!error && found.count)
        error = qi_drop(queue, found.req_ids, found.count, QI_DEAD_EXPIRED);
    if (error)
        return error;
    if (found.count < AT_ONCE) {
        segment->expiry_us = found.next_us;
        if (segment->dead == 0) { /* what a dead letter says nobody has read */
            segment->earliest_expiry_us = found.held_us;
            if (found.next_us)
                qi_lower(&segment->earliest_expiry_us, found.next_us);
        }
    }
    if (was_cold && found.count == 0)
        qi_cool_if_unused(queue, segment);
    if (found.count)
        qi_flush_if_due(queue);
    return found.count;
}

static int64_t expire_locked(struct qi_queue *queue) {
    uint64_t now = qi_wall_us(queue->store), number = 0;
    int64_t left = 0, got = 0;
    struct qi_segment *segment;
    while (got >= 0 && (segment = qi_segment_from(&queue->segments, number))) {
        number = segment->number;
        got = is_due(segment, now) ? sweep(queue, number, now) : 0;
        left += got > 0 ? got : 0;
        number += got < AT_ONCE;
    }
    return got < 0 ? got : left;
}

int64_t qi_expire(struct qi_queue *queue) {
    qi_lock(queue->store);
    int64_t result = qi_queue_ready(queue, true);
    if (result == 0)
        result = expire_locked(queue);
    qi_dead_move_after(queue, result);
    qi_unlock(queue->store);
    return result;
}

/* When the worker looks next. */
static void note_next(struct qi_queue *queue) {
    queue->expired_us = qi_steady_us(queue->store);
    queue->expiry_us = 0;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        const struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (segment->unacked > 0 && segment->expiry_us)
            qi_queue_expires(queue, segment->expiry_us);
    }
}

/* So long, as the clocks are now: not at once for each of many that expire one after the other. */
static uint64_t until_look(const struct qi_queue *queue) {
    uint64_t now = qi_wall_us(queue->store), steady = qi_steady_us(queue->store);
    uint64_t again = queue->expired_us ? queue->expired_us + PAUSE_US : 0;
    uint64_t left = queue->expiry_us > now ? queue->expiry_us - now : 0;
    uint64_t pause = again > steady ? again - steady : 0;
    return left > pause ? left : pause;
}

void qi_expire_due(struct qi_store *store) {
    uint64_t now = qi_wall_us(store), steady = qi_steady_us(store), again = 0;
    if (store->expiry_us == 0 || store->expiry_us > now || store->expire_again_us > steady)
        return;
    store->expiry_us = 0; /* what comes while the lock is given up lowers it again */
    for (uint32_t i = 0; i < store->queues_count; i++) {
        struct qi_queue *queue = store->queues[i];
        if (!queue->rules_known || queue->expiry_us == 0)
            continue;
        bool settled = queue->recovered && !queue->recovering;
        if (settled && until_look(queue) == 0) {
            if (qi_queue_ready(queue, true) == 0)
                expire_locked(
                    queue); /* what fails is tried again; who gets a message is told why */
            note_next(queue);
        }
        if (queue->expiry_us)
            qi_lower(&store->expiry_us, queue->expiry_us);
        if (queue->expiry_us && queue->expiry_us <= now)
            qi_lower(&again, steady + (settled ? until_look(queue) : PAUSE_US));
    }
    store->expire_again_us = again;
}

uint64_t qi_expire_wait(struct qi_store *store, uint64_t us) {
    if (store->expiry_us == 0)
        return us;
    uint64_t now = qi_wall_us(store), steady = qi_steady_us(store);
    uint64_t left = store->expiry_us > now ? store->expiry_us - now : 0;
    uint64_t pause = store->expire_again_us > steady ? store->expire_again_us - steady : 0;
    left = qi_wall_sleep_us(store, left > pause ? left : pause);
    return left < us ? left : us;
}
