/* deliver.c - get: taking what ready.c finds. (wait.c: waiting for one. browse.c: looking.
 * settle.c: what follows.)
 *
 * Bits change after the deliver record is in the journal (H20).
 */
#include "queue/queue_private.h"

#include <assert.h>

static void mark_out(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    queue->counts.delivered++;
    queue->counts.redelivered += qi_bit(slots->del, slot);
    qi_segment_deliver(queue, segment, slot);
    if (__builtin_expect(slots->again && slots->count[slot & 63] == UINT16_MAX, 0))
        slots->again[slot & 63] = ++queue->again;
    if (__builtin_expect(qi_bit(slots->held, slot), 0))
        qi_time_drop(queue, segment, slot);
    if (__builtin_expect(slots->lease != NULL, 0))
        slots->lease[slot & 63] = 0;
    qi_set_bit(&slots->out, slot);
    segment->hot->out_count++;
    queue->out++;
}

/* As the maps count it: no further than they can. Which delivery of a full one this is they know
 * when it is out. */
static void count_delivery(qi_message *message) {
    if ((uint32_t)message->delivery < UINT16_MAX) {
        message->delivery_count++;
        message->delivery++;
    }
}

static inline void number_delivery(const struct qi_found *found, struct qi_queue *queue,
                                   qi_message *message) {
    if (__builtin_expect((uint32_t)message->delivery >= UINT16_MAX, 0))
        message->delivery =
            qi_delivery_of(queue, qi_slots_of(found->segment->hot, found->slot), found->slot);
}

/* The record, then the bits. The cursor is the caller's. */
static inline int hand_out(struct qi_queue *queue, const struct qi_found *found, uint64_t req_id) {
    int error = qi_segment_count_room(found->segment, found->slot);
    if (!error)
        error = qi_append_event(queue, QI_DELIVER, req_id);
    if (error)
        return error;
    if (found->due)
        qi_due_take(queue, found->segment, found->slot);
    mark_out(queue, found->segment, found->slot);
    return 0;
}

/* A message whose body is damaged must not block the queue: it is delivered to nobody, stays
 * unacked and is told about; the caller may ack it by its ReqId to give it up. */
static int set_aside(const struct qi_look *look, const struct qi_found *found) {
    struct qi_queue *queue = look->queue;
    uint64_t req_id = qi_req_id(queue, found->segment, found->slot);
    char text[256];
    strncpy(text, qi_error_text(), sizeof text - 1);
    text[sizeof text - 1] = 0;
    qi_report(queue->store, true, queue->directory, "", 0, "message %llu: %s",
              (unsigned long long)req_id, text);
    int error = hand_out(queue, found, req_id);
    if (error)
        return error;
    qi_look_delivered(look, found);
    qi_fail(QI_E_CORRUPT, "%s", text);
    return qi_fail_damaged(req_id, "is damaged and was set aside (ack it to drop it)");
}

/* What whoever gets the message says, else what it says itself, else what the queue says; 0:
 * none. */
static inline uint64_t lease_of(const struct qi_queue *queue, const struct qi_found *found,
                                uint64_t lease_us) {
    const struct qi_hot *hot = found->segment->hot;
    if (__builtin_expect(hot->sided, 0) && !lease_us)
        lease_us = qi_own_lease_us(qi_slots_of(hot, found->slot), found->slot);
    return lease_us ? lease_us : queue->rules.lease_us;
}

static int deliver(const struct qi_look *look, const struct qi_found *found, qi_message *message,
                   uint64_t lease_us) {
    struct qi_queue *queue = look->queue;
    lease_us = lease_of(queue, found, lease_us);
    int error = lease_us ? qi_lease_room(queue, found->segment, found->slot, 1) : 0;
    if (!error)
        error = hand_out(queue, found, message->req_id);
    if (error)
        return error;
    queue->counts.delivered_bytes += message->payload_size;
    count_delivery(message);
    number_delivery(found, queue, message);
    qi_look_delivered(look, found);
    if (lease_us) {
        qi_lease_set(queue, found->segment, found->slot, qi_steady_us(queue->store) + lease_us);
        qi_timers_armed(queue);
    }
    qi_flush_if_due(queue);
    return 0;
}

static int64_t get_locked(qi_reader *reader) {
    struct qi_look look;
    struct qi_found found;
    qi_look_begin(&look, reader->queue);
    int error = qi_look_next(&look, QI_RECORD_ID, &found);
    if (!error)
        error =
            qi_read_message(reader->queue, &found, &reader->message, reader->payload, reader->room);
    if (error == QI_E_CORRUPT)
        return set_aside(&look, &found);
    return error ? error : deliver(&look, &found, &reader->message, reader->lease_us);
}

/* As get_locked, from the other end. What is before the message is as ready as it was: so no cursor
 * follows. */
static int64_t get_newest_locked(qi_reader *reader) {
    struct qi_queue *queue = reader->queue;
    struct qi_look look;
    struct qi_found found;
    qi_look_begin(&look, queue);
    int error = qi_newest_ready(queue, QI_RECORD_ID, &found);
    if (error)
        return error;
    uint32_t number = qi_segment_lane(queue, found.segment);
    uint64_t before = qi_lane_find(&queue->lanes, number)->cursor;
    error = qi_read_message(queue, &found, &reader->message, reader->payload, reader->room);
    if (error == QI_E_CORRUPT)
        error = set_aside(&look, &found);
    else if (!error)
        error = deliver(&look, &found, &reader->message, reader->lease_us);
    struct qi_lane *lane = qi_lane_find(&queue->lanes, number);
    if (before < lane->cursor)
        lane->cursor = before;
    return error;
}

static int64_t take(struct qi_queue *queue, void *context) {
    qi_reader *reader = context;
    reader->queue = queue;
    queue->wanted = true;
    int64_t result = get_locked(reader);
    return result ? result : reader->message.payload_size;
}

static int64_t take_newest(struct qi_queue *queue, void *context) {
    qi_reader *reader = context;
    queue->wanted = true;
    int64_t result = get_newest_locked(reader);
    return result ? result : reader->message.payload_size;
}

static int64_t take_now(struct qi_queue *queue, qi_take take_one, void *context) {
    qi_lock(queue->store);
    int64_t result = qi_queue_ready(queue, true);
    if (result == 0)
        result = take_one(queue, context);
    qi_dead_move_after(queue, result);
    qi_unlock(queue->store);
    return result;
}

int64_t qi_get(qi_reader *reader) {
    return take_now(reader->queue, take, reader);
}

int64_t qi_get_newest(qi_reader *reader) {
    return take_now(reader->queue, take_newest, reader);
}

int64_t qi_get_wait(qi_reader *reader, struct qi_queue **queues, uint32_t count, uint64_t until_us,
                    uint64_t pause_us) {
    return qi_wait(queues, count, until_us, pause_us, take, reader);
}

/* The best that is ready, as far as the memory tells: 0, QI_EMPTY or QI_BUSY. */
static int find_now(struct qi_queue *queue, struct qi_found *found) {
    struct qi_found due = {.due = true};
    uint32_t priority = 0;
    if (queue->rules.max_deliveries || !qi_delayed_run_now(queue))
        return QI_BUSY;
    bool has_due = qi_due_first(queue, &due.segment, &due.slot, &priority);
    for (uint32_t i = queue->lanes.priorities; i-- > 0;) {
        const struct qi_lane *lane = &queue->lanes.items[i];
        if (has_due && priority >= lane->number)
            break;
        if (lane->cursor >= lane->next)
            continue;
        found->segment = qi_segment_with(queue, lane->cursor);
        found->slot = qi_slot_of(queue, lane->cursor);
        bool is_there = found->segment && found->segment->hot && found->segment->hot->loaded &&
                        qi_find_slot(queue, found->segment->hot, true, &found->slot);
        return is_there ? 0 : QI_BUSY;
    }
    if (has_due)
        *found = due;
    return has_due ? 0 : QI_EMPTY;
}

int64_t qi_get_now(struct qi_queue *queue, qi_message *message, const struct qi_places *places,
                   uint64_t lease_us) {
    if (!qi_begin_now(queue, 4 * QI_RECORD_ID, 0))
        return QI_BUSY;
    struct qi_found found = {0};
    const struct qi_look look = {.queue = queue};
    queue->wanted = true;
    int64_t result = find_now(queue, &found);
    struct qi_into into;
    if (result == 0)
        result = qi_place_message_now(queue, &found, message, QI_NOW_MAX, places, &into);
    if (result == 0 && message->flags & QI_STORED)
        result = qi_messages_read_into(&queue->store->messages, qi_get_msg_id(message->msg_id),
                                       &into, false);
    if (result == 0)
        result = deliver(&look, &found, message, lease_us);
    if (result == 0)
        result = message->payload_size;
    qi_unlock(queue->store);
    return result;
}

struct batch {
    uint32_t count;
    bool more; /* the caller has some already */
    qi_message *messages;
    uint8_t *payloads;
    size_t room;
    uint64_t *req_ids;
    uint64_t lease_us;
};

/* What was found is read into the next place of the batch. Memory for all that follows its delivery
 * is there then. */
static int read_next(struct qi_queue *queue, struct batch *batch, uint32_t got,
                     const struct qi_found *found) {
    qi_message *message = &batch->messages[got];
    int error = qi_read_message(queue, found, message, batch->payloads, batch->room);
    if (!error)
        error = qi_segment_count_room(found->segment, found->slot);
    if (!error && lease_of(queue, found, batch->lease_us))
        error = qi_lease_room(queue, found->segment, found->slot, batch->count);
    if (error)
        return error;
    batch->payloads += message->payload_size;
    batch->room -= message->payload_size;
    batch->req_ids[got] = message->req_id;
    count_delivery(message);
    return 0;
}

/* Where a message stands; `found` has the place of the one before it, which is mostly in the same
 * segment. */
static void find_again(struct qi_queue *queue, uint64_t req_id, struct qi_found *found) {
    uint32_t slot = qi_slot_of(queue, req_id);
    found->segment =
        qi_segment_find_near(&queue->segments, found->segment, qi_segment_number(queue, req_id));
    found->slot = slot;
    found->due = qi_bit(qi_slots_of(found->segment->hot, slot)->held, slot);
}

/* One deliver frame for those that are in the batch. */
static int deliver_batch(struct qi_look *look, struct batch *batch, uint32_t got) {
    struct qi_queue *queue = look->queue;
    struct qi_found found = {0};
    int error = qi_append_events(queue, QI_DELIVER, batch->req_ids, got);
    uint64_t now_us = 0; /* if one of them is leased */
    for (uint32_t i = 0; i < got; i++) {
        find_again(queue, batch->req_ids[i], &found);
        if (error) {
            qi_look_put_back(look, &found);
            continue;
        }
        mark_out(queue, found.segment, found.slot);
        queue->counts.delivered_bytes += batch->messages[i].payload_size;
        number_delivery(&found, queue, &batch->messages[i]);
        qi_look_delivered(look, &found);
        uint64_t lease_us = lease_of(queue, &found, batch->lease_us);
        if (lease_us) {
            now_us = now_us ? now_us : qi_steady_us(queue->store);
            qi_lease_set(queue, found.segment, found.slot, now_us + lease_us);
        }
    }
    if (error)
        return error;
    if (now_us)
        qi_timers_armed(queue);
    qi_flush_if_due(queue);
    return 0;
}

static int64_t get_many_locked(struct qi_queue *queue, struct batch *batch) {
    struct qi_look look;
    struct qi_found found;
    uint32_t got = 0;
    qi_look_begin(&look, queue);
    /* With the first in hand the lock is not given up any more: later expired ones are stepped
     * over. */
    int error = qi_look_next(&look, QI_RECORD_ID * (uint64_t)batch->count, &found);
    while (!error) {
        error = read_next(queue, batch, got, &found);
        if (error)
            break;
        qi_look_take(&look, &found);
        if (++got == batch->count)
            break;
        error = qi_look_next(&look, 0, &found);
    }
    if (got == 0) {
        batch->messages[0].delivery = 0; /* what was read of the next one is no delivery */
        return error == QI_E_CORRUPT && !batch->more ? set_aside(&look, &found) : error;
    }
    error = deliver_batch(&look, batch, got); /* what stopped the loop comes up next time */
    if (error || got < batch->count) /* no delivery: the list of those that were taken ends here */
        batch->messages[error ? 0 : got].delivery = 0;
    return error ? error : (int64_t)got;
}

static int64_t take_many(struct qi_queue *queue, void *context) {
    struct batch batch = *(const struct batch *)context; /* it may be tried more than once */
    queue->wanted = true;
    return get_many_locked(queue, &batch);
}

int64_t qi_get_many(struct qi_queue *queue, uint32_t count, qi_message *messages, void *payloads,
                    size_t room, uint64_t *req_ids, uint64_t lease_us) {
    struct batch batch = {count, false, messages, payloads, room, req_ids, lease_us};
    return take_now(queue, take_many, &batch);
}

int64_t qi_get_more(struct qi_queue *queue, uint32_t count, qi_message *messages, void *payloads,
                    size_t room, uint64_t *req_ids, uint64_t lease_us) {
    struct batch batch = {count, true, messages, payloads, room, req_ids, lease_us};
    int64_t result = take_now(queue, take_many, &batch);
    return result < 0 ? 0 : result;
}

int64_t qi_get_many_wait(struct qi_queue *queue, uint32_t count, qi_message *messages,
                         void *payloads, size_t room, uint64_t *req_ids, uint64_t lease_us,
                         uint64_t until_us, uint64_t pause_us) {
    struct batch batch = {count, false, messages, payloads, room, req_ids, lease_us};
    return qi_wait(&queue, 1, until_us, pause_us, take_many, &batch);
}

/* ---- many, now ---- */

/* The next one behind those that the look has, as far as the memory tells: 0, QI_EMPTY or QI_BUSY.
 */
static int find_next_now(struct qi_look *look, struct qi_found *found) {
    struct qi_queue *queue = look->queue;
    for (; look->lanes_left > 0; look->lanes_left--) {
        const struct qi_lane *lane = &queue->lanes.items[look->lanes_left - 1];
        if (look->from < lane->next) {
            *found = (struct qi_found){.segment = qi_segment_with(queue, look->from),
                                       .slot = qi_slot_of(queue, look->from)};
            bool is_there = found->segment && found->segment->hot && found->segment->hot->loaded &&
                            qi_find_slot(queue, found->segment->hot, true, &found->slot);
            return is_there ? 0 : QI_BUSY;
        }
        if (look->lanes_left > 1)
            look->from = lane[-1].cursor;
    }
    return QI_EMPTY;
}

/* Finds the messages of a batch, copies what is embedded, and reads what is stored. Returns how
 * many there are, from the first on, or why there is none. */
static int64_t fill_now(struct qi_look *look, struct batch *batch, const struct qi_places *places) {
    struct qi_queue *queue = look->queue;
    struct qi_message_read reads[QI_NOW_MESSAGES];
    uint32_t places_of[QI_NOW_MESSAGES], stored = 0, got = 0;
    struct qi_found found;
    int error = 0;
    while (got < batch->count && !(error = find_next_now(look, &found))) {
        qi_message *message = &batch->messages[got];
        error =
            qi_place_message_now(queue, &found, message, batch->room, places, &reads[stored].into);
        if (!error)
            error = qi_segment_count_room(found.segment, found.slot);
        if (!error && lease_of(queue, &found, batch->lease_us))
            error = qi_lease_room(queue, found.segment, found.slot, batch->count);
        if (error)
            break;
        if (message->flags & QI_STORED) {
            reads[stored].id = qi_get_msg_id(message->msg_id);
            places_of[stored++] = got;
        }
        batch->room -= message->payload_size;
        batch->req_ids[got++] = message->req_id;
        qi_look_take(look, &found);
    }
    uint32_t read = stored ? qi_messages_read_many(&queue->store->messages, reads, stored) : 0;
    if (read < stored) {
        got = places_of[read];
        error = QI_BUSY; /* who may wait says what is wrong */
    }
    return got ? (int64_t)got : error;
}

int64_t qi_get_many_now(struct qi_queue *queue, uint32_t count, qi_message *messages,
                        const struct qi_places *places, uint64_t room, uint64_t lease_us) {
    uint64_t req_ids[QI_NOW_MESSAGES];
    struct batch batch = {count, false, messages, NULL, room, req_ids, lease_us};
    struct qi_look look;
    struct qi_found due;
    uint32_t priority;
    assert(count > 0 && count <= QI_NOW_MESSAGES && room <= QI_NOW_MAX);
    if (!qi_begin_now(queue, QI_RECORD_ID * ((uint64_t)count + 3), 0))
        return QI_BUSY;
    queue->wanted = true;
    int64_t result = QI_BUSY;
    if (!queue->rules.max_deliveries && qi_delayed_run_now(queue) &&
        !qi_due_first(queue, &due.segment, &due.slot, &priority)) {
        qi_look_begin(&look, queue);
        result = fill_now(&look, &batch, places);
    }
    for (int64_t i = 0; i < result; i++)
        count_delivery(&messages[i]);
    if (result > 0) {
        int error = deliver_batch(&look, &batch, (uint32_t)result);
        result = error ? error : result;
    }
    qi_unlock(queue->store);
    return result;
}
