/* settle.c - what ends deliveries, or extends them: ack, nack, touch.
 *
 * Only what this process has out can be settled. All checks come first, then one frame, then the
 * bits (H20): all deliveries that a call names are ended, or none. A plain nack leaves no record:
 * what was delivered and not acked is ready again after any end. With a delay, the time is one.
 *
 * Where nobody may wait (..._now), the checks only look: whatever is out of the ordinary, or wrong,
 * is left to the verb that may wait, which says so.
 */
#include "queue/queue_private.h"

#define NOW_MAX 512u /* about 50 us, as QI_NOW_MAX */

#define UNCOUNTED_RECORD (QI_SIDE_RECORD + QI_UNCOUNTED_SIZE)

/* Deliveries that a verb ends. `deliveries` may be NULL: whichever are current. */
struct settling {
    const uint64_t *req_ids, *deliveries;
    uint32_t count;
    int how; /* QI_SETTLE_... */
    uint64_t due_us;
};

/* The message is in this segment, which may be NULL, in memory, and this delivery of it is
 * current. */
static bool is_out_in(const struct qi_queue *queue, const struct qi_segment *segment,
                      uint64_t req_id, uint64_t delivery) {
    uint32_t slot = qi_slot_of(queue, req_id);
    if (!segment || !segment->hot || segment->number != qi_segment_number(queue, req_id))
        return false;
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return qi_bit(slots->out, slot) && qi_is_delivery(queue, slots, slot, delivery);
}

uint32_t qi_next_tag(void) {
    static atomic_uint tags;
    uint32_t tag = atomic_fetch_add(&tags, 1) + 1;
    return tag ? tag : qi_next_tag();
}

uint32_t qi_queue_tag(const struct qi_queue *queue) {
    return queue->tag;
}

/* ---- one ack ---- */

static int ack_one(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
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
        error = ack_one(queue, segment, slot, req_id);
    qi_unlock(queue->store);
    return error;
}

int qi_ack_now(struct qi_queue *queue, uint64_t req_id, uint64_t delivery) {
    uint32_t slot = qi_slot_of(queue, req_id);
    if (!qi_begin_now(queue, QI_RECORD_ID, 0))
        return QI_BUSY;
    struct qi_segment *segment = qi_segment_with(queue, req_id);
    int result = QI_BUSY;
    if (is_out_in(queue, segment, req_id, delivery))
        result = ack_one(queue, segment, slot, req_id);
    qi_unlock(queue->store);
    return result;
}

/* ---- several, or none: the checks ---- */

static uint64_t delivery_at(const struct settling *settling, uint32_t i) {
    return settling->deliveries ? settling->deliveries[i] : 0;
}

/* A reject is a nack to the dead letters if the queue keeps those; else it is as an ack. */
static void decide(const struct qi_queue *queue, struct settling *settling) {
    if (settling->how != QI_SETTLE_REJECT || !queue->rules.dead_letters)
        return;
    settling->how = QI_SETTLE_NACK;
    settling->due_us = QI_DEAD + QI_DEAD_REJECTED;
}

static uint64_t frame_size(const struct settling *settling) {
    uint64_t each = QI_RECORD_ID;
    if (settling->how == QI_SETTLE_RETURN)
        each = UNCOUNTED_RECORD;
    else if (settling->how == QI_SETTLE_NACK)
        each = settling->due_us ? QI_DEATH_RECORD : 0;
    return each * settling->count;
}

/* All that can be wrong. Waits for room, and reads what is not in memory. */
static int check(struct qi_queue *queue, struct settling *settling) {
    struct qi_segment *segment = NULL;
    uint32_t slot;
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_check_distinct(settling->req_ids, settling->count);
    decide(queue, settling);
    if (!error && frame_size(settling)) /* a plain nack leaves no record: it needs no room */
        error = qi_make_event_room(queue, frame_size(settling));
    for (uint32_t i = 0; !error && i < settling->count; i++) {
        uint64_t req_id = settling->req_ids[i], delivery = delivery_at(settling, i);
        if (!is_out_in(queue, segment, req_id, delivery))
            error = qi_find_unacked(queue, req_id, delivery, &segment, &slot);
    }
    return error;
}

/* The message dies with this, and moves to another queue, which may take a wait. */
static bool may_move(const struct qi_queue *queue, const struct settling *settling,
                     const struct qi_segment *segment, uint64_t req_id) {
    uint32_t slot = qi_slot_of(queue, req_id);
    bool comes_back = settling->how == QI_SETTLE_NACK || settling->how == QI_SETTLE_RETURN;
    return queue->dead_to && comes_back &&
           (qi_time_is_dead(settling->due_us) ||
            qi_is_tried_out(qi_slots_of(segment->hot, slot), slot, queue->rules.max_deliveries));
}

/* The same without a wait. False: one of them is not at hand, or something is wrong. */
static bool is_at_hand(struct qi_queue *queue, const struct settling *settling) {
    struct qi_segment *segment = NULL;
    for (uint32_t i = 0; i < settling->count; i++) {
        uint64_t req_id = settling->req_ids[i];
        segment = qi_segment_find_near(&queue->segments, segment, qi_segment_number(queue, req_id));
        if (!is_out_in(queue, segment, req_id, delivery_at(settling, i)) ||
            may_move(queue, settling, segment, req_id))
            return false;
    }
    return qi_check_distinct(settling->req_ids, settling->count) == 0;
}

/* ---- what is done ---- */

static int ack_all(struct qi_queue *queue, const struct settling *settling) {
    struct qi_segment *segment = NULL;
    int error =
        settling->count ? qi_append_events(queue, QI_ACK, settling->req_ids, settling->count) : 0;
    for (uint32_t i = 0; !error && i < settling->count; i++) {
        uint64_t req_id = settling->req_ids[i];
        segment = qi_segment_find_near(&queue->segments, segment, qi_segment_number(queue, req_id));
        qi_segment_ack(queue, segment, qi_slot_of(queue, req_id));
    }
    if (error)
        return error;
    bool acks = settling->how == QI_SETTLE_ACK;
    *(acks ? &queue->counts.acked : &queue->counts.dropped) += settling->count;
    qi_flush_if_due(queue);
    return 0;
}

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

static int nack(struct qi_queue *queue, const struct settling *settling) {
    const uint64_t *req_ids = settling->req_ids, due_us = settling->due_us;
    uint32_t count = settling->count;
    struct qi_segment *segment;
    uint32_t slot;
    int error = 0;
    for (uint32_t i = 0; !error && due_us && i < count; i++) {
        error = qi_find_live(queue, req_ids[i], &segment, &slot);
        if (!error)
            error = qi_time_room(queue, segment, slot, 1, count);
    }
    if (!error && due_us && count)
        error = qi_append_times(queue, req_ids, count, due_us);
    if (error)
        return error;
    for (uint32_t i = 0; i < count; i++)
        give_back(queue, req_ids[i], due_us);
    *(qi_time_is_dead(due_us) ? &queue->counts.dead : &queue->counts.returned) += count;
    if (due_us)
        qi_flush_if_due(queue);
    else
        qi_announce(queue, count);
    if (due_us)
        qi_timers_armed(queue);
    if (__builtin_expect(queue->spent.waits, 0))
        qi_spent_leave(queue);
    qi_dead_move_after(queue, 0);
    return 0;
}

/* One frame that says of each that one delivery more does not count. */
static int append_uncounted(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count) {
    const uint32_t size = UNCOUNTED_RECORD;
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

static int nack_uncounted(struct qi_queue *queue, const struct settling *settling) {
    const uint64_t *req_ids = settling->req_ids;
    uint32_t count = settling->count;
    struct qi_segment *segment;
    uint32_t slot;
    int error = 0;
    for (uint32_t i = 0; !error && i < count; i++) {
        error = qi_find_live(queue, req_ids[i], &segment, &slot);
        if (!error)
            error =
                qi_side_room(qi_slots_of(segment->hot, slot), QI_SIDE_UNCOUNTED, QI_UNCOUNTED_SIZE);
    }
    if (!error && count)
        error = append_uncounted(queue, req_ids, count);
    for (uint32_t i = 0; error && i < count; i++)
        if (qi_find_live(queue, req_ids[i], &segment, &slot) == 0)
            qi_side_room_unused(qi_slots_of(segment->hot, slot));
    if (error)
        return error;
    for (uint32_t i = 0; i < count; i++) {
        note_uncounted(queue, req_ids[i]);
        give_back(queue, req_ids[i], 0);
    }
    queue->counts.returned += count;
    qi_announce(queue, count);
    qi_flush_if_due(queue);
    return 0;
}

static int carry_out(struct qi_queue *queue, const struct settling *settling) {
    switch (settling->how) {
    case QI_SETTLE_NACK:
        return nack(queue, settling);
    case QI_SETTLE_RETURN:
        return nack_uncounted(queue, settling);
    default:
        return ack_all(queue, settling);
    }
}

int64_t qi_settle_all(struct qi_queue *queue, int how, const uint64_t *req_ids,
                      const uint64_t *deliveries, uint32_t count, uint64_t due_us) {
    struct settling settling = {req_ids, deliveries, count, how, qi_time_given(due_us)};
    if (how == QI_SETTLE_RETURN && queue->store->options.format < 2)
        return qi_fail(QI_E_FORMAT,
                       "a delivery that does not count needs a store of format 2: this one has "
                       "format 1 (qindex upgrade, or upgrade=True)");
    qi_lock(queue->store);
    int error = check(queue, &settling);
    if (!error)
        error = carry_out(queue, &settling);
    qi_unlock(queue->store);
    return error;
}

int64_t qi_settle_now(struct qi_queue *queue, int how, const uint64_t *req_ids,
                      const uint64_t *deliveries, uint32_t count, uint64_t due_us) {
    struct settling settling = {req_ids, deliveries, count, how, qi_time_given(due_us)};
    if (count > NOW_MAX || (how == QI_SETTLE_RETURN && queue->store->options.format < 2) ||
        !qi_begin_now(queue, count * (uint64_t)QI_DEATH_RECORD, 0))
        return QI_BUSY;
    decide(queue, &settling);
    int64_t result = is_at_hand(queue, &settling) ? carry_out(queue, &settling) : QI_BUSY;
    qi_unlock(queue->store);
    return result;
}

int64_t qi_ack_many(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                    uint32_t count) {
    return qi_settle_all(queue, QI_SETTLE_ACK, req_ids, deliveries, count, 0);
}

int64_t qi_nack_many(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                     uint32_t count, uint64_t due_us) {
    return qi_settle_all(queue, QI_SETTLE_NACK, req_ids, deliveries, count, due_us);
}

/* ---- touch ---- */

static int touch(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                 uint64_t lease_us) {
    int error = qi_lease_room(queue, segment, slot, 1);
    if (error)
        return error;
    qi_lease_set(queue, segment, slot, qi_steady_us(queue->store) + lease_us);
    qi_timers_armed(queue);
    return 0;
}

int64_t qi_touch(struct qi_queue *queue, uint64_t req_id, uint64_t delivery, uint64_t lease_us) {
    struct qi_segment *segment;
    uint32_t slot;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_find_unacked(queue, req_id, delivery, &segment, &slot);
    if (!error)
        error = touch(queue, segment, slot, lease_us);
    qi_unlock(queue->store);
    return error;
}

int64_t qi_touch_now(struct qi_queue *queue, uint64_t req_id, uint64_t delivery,
                     uint64_t lease_us) {
    if (!qi_begin_now(queue, 0, 0))
        return QI_BUSY;
    struct qi_segment *segment = qi_segment_with(queue, req_id);
    bool is_out = is_out_in(queue, segment, req_id, delivery);
    int64_t result = is_out ? touch(queue, segment, qi_slot_of(queue, req_id), lease_us) : QI_BUSY;
    qi_unlock(queue->store);
    return result;
}
