/* copied.c - the deliveries that messages had elsewhere: of copies that salvage or a replay has
 * published here.
 *
 * The records are those that the deliveries themselves would have left, so no reader knows the
 * difference. One frame for all of them (H11); without it the copies are messages that nobody had.
 */
#include "queue/queue_private.h"

struct copies {
    struct qi_queue *queue;
    const uint64_t *req_ids;
    const uint16_t *counts;
    uint32_t count;
};

/* One that does not count says `redelivered` alone. */
static uint32_t records_of(const struct copies *copies, uint32_t i) {
    return copies->counts[i] ? copies->counts[i] : 1;
}

static uint64_t size_of(const struct copies *copies) {
    uint64_t size = 0;
    for (uint32_t i = 0; i < copies->count; i++)
        size += records_of(copies, i) * (uint64_t)QI_RECORD_ID +
                (copies->counts[i] ? 0 : QI_SIDE_RECORD + QI_UNCOUNTED_SIZE);
    return size;
}

/* It is a copy that nobody had here. Memory for what is to be noted. */
static int prepare(const struct copies *copies, uint32_t i) {
    struct qi_segment *segment;
    uint32_t slot;
    int error = qi_find_waiting(copies->queue, copies->req_ids[i], &segment, &slot);
    if (error)
        return error;
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    if (qi_bit(slots->del, slot))
        return qi_fail(QI_E_ARGUMENT, "message %llu was delivered here already",
                       (unsigned long long)copies->req_ids[i]);
    return copies->counts[i] ? qi_slots_count_room(slots)
                             : qi_side_room(slots, QI_SIDE_UNCOUNTED, QI_UNCOUNTED_SIZE);
}

static void give_up(const struct copies *copies) {
    struct qi_segment *segment;
    uint32_t slot;
    for (uint32_t i = 0; i < copies->count; i++)
        if (qi_find_live(copies->queue, copies->req_ids[i], &segment, &slot) == 0)
            qi_side_room_unused(qi_slots_of(segment->hot, slot));
}

/* The first delivery, of one, does not count. */
static struct qi_side uncounted(uint8_t bytes[QI_UNCOUNTED_SIZE]) {
    qi_put32(bytes, 1);
    qi_put32(bytes + 4, 1);
    return (struct qi_side){QI_SIDE_UNCOUNTED, QI_UNCOUNTED_SIZE, bytes};
}

static int append(const struct copies *copies, uint64_t size) {
    struct qi_journal *journal = qi_current(copies->queue);
    uint8_t *at, bytes[QI_UNCOUNTED_SIZE];
    const struct qi_side side = uncounted(bytes);
    int error = qi_journal_room(journal, size + QI_JOURNAL_SPARE, false, &at);
    for (uint32_t i = 0; i < copies->count && !error; i++) {
        for (uint32_t n = records_of(copies, i); n > 0; n--, at += QI_RECORD_ID)
            qi_put_record_id(at, QI_DELIVER, copies->req_ids[i]);
        if (copies->counts[i])
            continue;
        qi_put_side(at, copies->req_ids[i], &side);
        at += QI_SIDE_RECORD + QI_UNCOUNTED_SIZE;
    }
    if (!error && !QI_BUG(had_not_written))
        error = qi_journal_append(journal, QI_FRAME_RECORDS, (uint32_t)size);
    return error ? qi_append_failed(copies->queue, error) : 0;
}

static void mark(const struct copies *copies, uint32_t i) {
    struct qi_queue *queue = copies->queue;
    uint32_t slot = qi_slot_of(queue, copies->req_ids[i]);
    struct qi_segment *segment = qi_segment_with(queue, copies->req_ids[i]);
    uint8_t bytes[QI_UNCOUNTED_SIZE];
    const struct qi_side side = uncounted(bytes);
    for (uint32_t n = records_of(copies, i); n > 0; n--)
        qi_segment_deliver(queue, segment, slot);
    if (copies->counts[i] == 0) {
        qi_side_put(qi_slots_of(segment->hot, slot), slot, &side, true);
        segment->hot->sided = true;
        segment->hot->dirty++;
        queue->dirty_count++;
    }
    qi_spent_note(queue, segment, slot);
}

static bool any_without_count(const struct copies *copies) {
    for (uint32_t i = 0; i < copies->count; i++)
        if (copies->counts[i] == 0)
            return true;
    return false;
}

int64_t qi_had(struct qi_queue *queue, const uint64_t *req_ids, const uint16_t *counts,
               uint32_t count) {
    const struct copies copies = {queue, req_ids, counts, count};
    uint64_t size = size_of(&copies);
    if (queue->store->options.format < 2 && any_without_count(&copies))
        return qi_fail(QI_E_FORMAT, "a delivery that does not count needs a store of format 2");
    if (size > QI_FRAME_LENGTH_MAX)
        return qi_fail(QI_E_ARGUMENT, "these deliveries do not fit into one frame: note fewer");
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_check_distinct(req_ids, count);
    if (!error)
        error = qi_make_room(queue, size, 0);
    for (uint32_t i = 0; i < count && !error; i++)
        error = prepare(&copies, i);
    if (!error && count)
        error = append(&copies, size);
    if (error)
        give_up(&copies);
    for (uint32_t i = 0; i < count && !error; i++)
        mark(&copies, i);
    if (!error)
        qi_flush_if_due(queue);
    qi_unlock(queue->store);
    return error;
}
