/* ready.c - which message is next: lanes by priority, what is due, and what has expired on the way.
 *
 * Ready = published, not acked, not out, not held. The cursor of a lane is a lower bound of its
 * first ready ReqId, so a get looks at one word of a bitmap in the usual case; a nack moves it
 * back.
 */
#include "queue/queue_private.h"

/* Why nobody may have it any more: QI_DEAD_EXPIRED ..., 0, or an error. Of a damaged record who
 * reads the message is told. */
static int why_dead(struct qi_queue *queue, struct qi_found *found) {
    found->record = NULL;
    const struct qi_slots *slots = qi_slots_of(found->segment->hot, found->slot);
    if (found->due && qi_time_us(slots->time[found->slot & 63]) == QI_REDRIVEN_US)
        return 0;
    if (qi_is_tried_out(slots, found->slot, queue->rules.max_deliveries))
        return QI_DEAD_DELIVERIES;
    int error = qi_segment_record(queue, found->segment, found->slot, &found->record);
    if (error) {
        found->record = NULL;
        return error == QI_E_CORRUPT ? 0 : error;
    }
    return qi_is_expired(queue, found->record->fields.expiry_us) ? QI_DEAD_EXPIRED : 0;
}

static uint64_t req_id_of(const struct qi_queue *queue, const struct qi_found *found) {
    return qi_req_id(queue, found->segment, found->slot);
}

static int drop(struct qi_queue *queue, const struct qi_found *found, int why) {
    uint64_t req_id = req_id_of(queue, found);
    int error = qi_drop(queue, &req_id, 1, (uint32_t)why);
    if (!error)
        qi_flush_if_due(queue);
    return error;
}

void qi_look_begin(struct qi_look *look, struct qi_queue *queue) {
    const struct qi_lanes *lanes = &queue->lanes;
    *look = (struct qi_look){.queue = queue,
                             .lanes_left = lanes->priorities,
                             .from = lanes->items[lanes->priorities - 1].cursor};
}

static bool has_stepped(const struct qi_look *look, uint32_t lane) {
    return look->stepped[lane / 64] >> (lane % 64) & 1;
}

/* The best that is ready, expired or not. A lane that has nothing is left behind. */
static int find_best(struct qi_look *look, struct qi_found *found) {
    struct qi_queue *queue = look->queue;
    struct qi_found due = {.due = true};
    uint32_t priority = 0;
    bool has_due = qi_due_first(queue, &due.segment, &due.slot, &priority);
    for (; look->lanes_left > 0; look->lanes_left--) {
        struct qi_lane *lane = &queue->lanes.items[look->lanes_left - 1];
        if (has_due && priority >= lane->number)
            break;
        int error = qi_find_message(queue, look->from, qi_lane_start(lane->number + 1),
                                    QI_FIND_READY, &found->segment, &found->slot);
        found->due = false;
        if (error != QI_EMPTY)
            return error;
        if (!look->taken && !has_stepped(look, lane->number))
            lane->cursor = lane->next;
        if (look->lanes_left > 1)
            look->from = lane[-1].cursor;
    }
    if (has_due)
        *found = due;
    return has_due ? 0 : QI_EMPTY;
}

static void step_over(struct qi_look *look, const struct qi_found *found) {
    uint64_t req_id = req_id_of(look->queue, found);
    if (!found->due) {
        look->from = req_id + 1;
        look->stepped[qi_lane_number(req_id) / 64] |= UINT64_C(1) << qi_lane_number(req_id) % 64;
    } else {
        qi_due_put_off(look->queue, found->segment, found->slot);
    }
}

/* Nothing is ready, for what was due has expired: perhaps more is due by now. */
static bool look_again(struct qi_queue *queue, int *error) {
    if (*error != QI_EMPTY || !qi_delayed_waits(queue))
        return false;
    *error = qi_delayed_run(queue);
    return true;
}

int qi_look_next(struct qi_look *look, uint64_t room, struct qi_found *found) {
    struct qi_queue *queue = look->queue;
    int error = look->taken ? 0 : qi_delayed_run(queue);
    while (!error) {
        if (room) {
            error = qi_make_event_room(queue, room + 2 * QI_DEATH_RECORD);
            qi_look_begin(look, queue);
        }
        if (!error)
            error = find_best(look, found);
        if (room && look_again(queue, &error))
            continue;
        int dead = error ? error : why_dead(queue, found);
        if (dead <= 0)
            return dead;
        if (room)
            error = drop(queue, found, dead);
        else
            step_over(look, found);
    }
    return error;
}

void qi_look_take(struct qi_look *look, const struct qi_found *found) {
    look->taken = true;
    if (found->due)
        qi_due_take(look->queue, found->segment, found->slot);
    else
        look->from = req_id_of(look->queue, found) + 1;
}

void qi_look_put_back(struct qi_look *look, const struct qi_found *found) {
    if (found->due)
        qi_due_put_back(look->queue, found->segment, found->slot);
}

void qi_look_delivered(const struct qi_look *look, const struct qi_found *found) {
    uint64_t req_id = req_id_of(look->queue, found);
    struct qi_lane *lane = qi_lane_find(&look->queue->lanes, qi_lane_number(req_id));
    if (!found->due && !has_stepped(look, lane->number))
        lane->cursor = req_id + 1;
}

/* The last that is ready of one lane. */
static int find_last(struct qi_queue *queue, uint32_t lane, struct qi_found *found) {
    uint32_t entries = queue->store->options.segment_entries;
    struct qi_segments *segments = &queue->segments;
    for (uint32_t i = segments->count; i-- > 0;) {
        struct qi_segment *segment = qi_segment_nth(segments, i);
        if (qi_segment_lane(queue, segment) != lane || !qi_segment_has_ready(segment))
            continue;
        int error = qi_segment_load(queue, segment);
        if (error)
            return error;
        for (uint32_t group = (entries + 63) / 64; group-- > 0;) {
            const struct qi_slots *slots = qi_slots_of(segment->hot, group * 64);
            uint64_t bits = slots->pub & ~slots->ack & ~(slots->out | slots->held);
            if (!bits)
                continue;
            found->segment = segment;
            found->slot = group * 64 + 63 - (uint32_t)__builtin_clzll(bits);
            found->due = false;
            return 0;
        }
    }
    return QI_EMPTY;
}

static int find_newest(struct qi_queue *queue, struct qi_found *found) {
    uint32_t priority = 0;
    found->due = true;
    bool has_due = qi_due_first(queue, &found->segment, &found->slot, &priority);
    struct qi_found due = *found;
    int error = QI_EMPTY;
    for (uint32_t i = queue->lanes.priorities; i-- > 0 && error == QI_EMPTY;) {
        if (has_due && priority > queue->lanes.items[i].number)
            break;
        error = find_last(queue, queue->lanes.items[i].number, found);
    }
    if (error != QI_EMPTY || !has_due)
        return error;
    *found = due;
    return 0;
}

int qi_newest_ready(struct qi_queue *queue, uint64_t room, struct qi_found *found) {
    int error = qi_delayed_run(queue);
    while (!error) {
        error = qi_make_event_room(queue, room + 2 * QI_DEATH_RECORD);
        if (!error)
            error = find_newest(queue, found);
        if (look_again(queue, &error))
            continue;
        int dead = error ? error : why_dead(queue, found);
        if (dead <= 0)
            return dead;
        error = drop(queue, found, dead);
    }
    return error;
}
