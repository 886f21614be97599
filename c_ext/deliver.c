/* deliver.c - get, browse, nack: taking messages in order, or only looking. (wait.c: waiting for one. purge.c.)
 *
 * Ready = published, not acked, not out. The cursor is a lower bound of the first ready ReqId, so a get looks at one
 * word of a bitmap in the usual case; a nack moves it back.
 */
#include <stdlib.h>

#include "store.h"

/* The first slot at or behind `slot` whose message is wanted. */
static bool find_slot(struct qi_queue *queue, const struct qi_hot *hot, bool ready_only,
                      uint32_t *slot) {
    uint32_t entries = queue->store->options.segment_entries;
    for (uint32_t at = *slot; at < entries; at = (at | 63) + 1) {
        const struct qi_slots *slots = qi_slots_of(hot, at);
        uint64_t bits = slots->pub & ~slots->ack & ~UINT64_C(0) << (at & 63);
        if (ready_only)
            bits &= ~slots->out;
        if (!bits)
            continue;
        *slot = (at & ~63u) + (uint32_t)__builtin_ctzll(bits);
        return true;
    }
    return false;
}

/* The first message at or behind req_id; QI_EMPTY if there is none. */
static int find_message(struct qi_queue *queue, uint64_t req_id, bool ready_only,
                        struct qi_segment **found, uint32_t *slot) {
    uint64_t entries = queue->store->options.segment_entries;
    struct qi_segments *segments = &queue->segments;
    struct qi_segment *segment = qi_segment_from(segments, req_id / entries);
    for (; segment && segment < segments->items + segments->start + segments->count; segment++) {
        *slot = segment->number == req_id / entries ? (uint32_t)(req_id % entries) : 0;
        if (segment->unacked == 0)
            continue;
        if (ready_only && segment->hot && segment->hot->out_count >= segment->unacked)
            continue;
        int error = qi_segment_load(queue, segment);
        if (error)
            return error;
        if (!find_slot(queue, segment->hot, ready_only, slot))
            continue;
        *found = segment;
        return 0;
    }
    return QI_EMPTY;
}

static uint32_t delivery_count(const struct qi_slots *slots, uint32_t slot) {
    if (!qi_bit(slots->del, slot))
        return 0;
    return slots->count && slots->count[slot & 63] ? slots->count[slot & 63] : 1;
}

/* Fills in the message and copies its payload. Nothing is changed. */
static int read_message(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                        qi_message *message, uint8_t *payload, size_t room) {
    const uint8_t *record;
    int error = qi_segment_record(queue, segment, slot, &record);
    if (error)
        return error;
    struct qi_fields fields;
    qi_get_fields(record, &fields);
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    message->req_id = segment->number * queue->store->options.segment_entries + slot;
    message->expiry_us = fields.expiry_us;
    memcpy(message->msg_id, fields.msg_id, QI_MSG_ID_SIZE);
    message->body_size = fields.size;
    message->delivery_count = delivery_count(slots, slot);
    bool stored = qi_bit(slots->stored, slot);
    message->flags = (qi_bit(slots->del, slot) ? QI_DELIVERED : 0) |
                     (qi_bit(slots->transient, slot) ? QI_TRANSIENT : 0) |
                     (qi_bit(slots->out, slot) ? QI_UNACKED : 0) | (stored ? QI_STORED : 0);
    if (message->delivery_count > 0 || message->req_id < queue->floor)
        message->flags |= QI_REDELIVERED;
    struct qi_msg_id id = qi_get_msg_id(fields.msg_id);
    message->payload_size = stored ? qi_payload_length(id) : fields.embedded;
    if (queue->store->options.index_only)
        return 0;
    if (message->payload_size < fields.size)
        return qi_fail(QI_E_CORRUPT, "message %llu of %s has a damaged record",
                       (unsigned long long)message->req_id, queue->name);
    uint32_t length;
    if (message->payload_size > room && stored) { /* the caller makes room only for what is there */
        error = qi_messages_length(&queue->store->messages, id, &length);
        if (error)
            return error;
    }
    if (message->payload_size > room)
        return qi_fail(QI_E_ROOM, "the message needs %u bytes", message->payload_size);
    if (stored)
        return qi_messages_read(&queue->store->messages, id, payload, message->payload_size);
    memcpy(payload, record + QI_PUB_FIELDS, fields.embedded);
    return 0;
}

/* A message nobody may have any more leaves with an ack alone, as in a purge: one frame, so that a power cut cannot
 * leave half of it. */
static int drop(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                uint64_t req_id) {
    int error = qi_append_event(queue, QI_ACK, req_id);
    if (!error)
        qi_segment_ack(queue, segment, slot);
    return error;
}

/* 1, 0, or an error. Of a damaged record who reads the message is told. */
static int is_expired(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    const uint8_t *record;
    int error = qi_segment_record(queue, segment, slot, &record);
    if (error)
        return error == QI_E_CORRUPT ? 0 : error;
    uint64_t expiry_us = qi_get64(record + QI_PUB_EXPIRY);
    return expiry_us != 0 && expiry_us <= qi_now_us(queue->store);
}

/* The next ready message that has not expired. With `room` > 0, expired ones on the way are dropped, and there is room
 * in the journal for that many bytes of deliveries afterwards (the lock may have been given up in between). Without it
 * they are stepped over; `stepped` (may be NULL) falls to the first of them. */
static int next_ready(struct qi_queue *queue, uint64_t from, uint64_t room, uint64_t *stepped,
                      struct qi_segment **segment, uint32_t *slot) {
    uint32_t entries = queue->store->options.segment_entries;
    for (;;) {
        int error = room ? qi_make_event_room(queue, room + 4 * QI_RECORD_ID) : 0;
        if (!error)
            error = find_message(queue, from, true, segment, slot);
        if (error)
            return error;
        int expired = is_expired(queue, *segment, *slot);
        if (expired <= 0)
            return expired;
        from = (*segment)->number * entries + *slot;
        if (room)
            error = drop(queue, *segment, *slot, from);
        if (error)
            return error;
        if (room)
            qi_flush_if_due(queue);
        else if (stepped && from < *stepped)
            *stepped = from;
        from++;
    }
}

static void mark_out(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    qi_segment_deliver(queue, segment, slot);
    qi_set_bit(&qi_slots_of(segment->hot, slot)->out, slot);
    segment->hot->out_count++;
    queue->out++;
}

/* A message whose body is damaged must not block the queue: it is delivered to nobody, stays unacked and is told about;
 * the caller may ack it by its ReqId to give it up. */
static int set_aside(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                     uint64_t req_id) {
    char text[256];
    strncpy(text, qi_error_text(), sizeof text - 1);
    text[sizeof text - 1] = 0;
    qi_report(queue->store, true, queue->directory, "", 0, "message %llu: %s",
              (unsigned long long)req_id, text);
    int error = qi_segment_count_room(segment, slot);
    if (!error)
        error = qi_append_event(queue, QI_DELIVER, req_id);
    if (error)
        return error;
    mark_out(queue, segment, slot);
    queue->cursor = req_id + 1;
    qi_fail(QI_E_CORRUPT, "%s", text);
    return qi_fail_damaged(req_id, "is damaged and was set aside (ack it to drop it)");
}

static int deliver(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                   qi_message *message) {
    int error = qi_segment_count_room(segment, slot);
    if (!error)
        error = qi_append_event(queue, QI_DELIVER, message->req_id);
    if (error)
        return error;
    mark_out(queue, segment, slot);
    message->delivery_count++;
    queue->cursor = message->req_id + 1;
    qi_flush_if_due(queue);
    return 0;
}

static int64_t get_locked(struct qi_queue *queue, qi_message *message, void *payload, size_t room) {
    struct qi_segment *segment;
    uint32_t slot;
    int error = next_ready(queue, queue->cursor, QI_RECORD_ID, NULL, &segment, &slot);
    if (error == QI_EMPTY)
        queue->cursor = queue->next;
    if (error)
        return error;
    uint64_t req_id = segment->number * queue->store->options.segment_entries + slot;
    error = read_message(queue, segment, slot, message, payload, room);
    if (error == QI_E_CORRUPT)
        return set_aside(queue, segment, slot, req_id);
    return error ? error : deliver(queue, segment, slot, message);
}

/* The last ready message; QI_EMPTY if there is none. */
static int find_newest(struct qi_queue *queue, struct qi_segment **found, uint32_t *slot) {
    uint32_t entries = queue->store->options.segment_entries;
    struct qi_segments *segments = &queue->segments;
    for (uint32_t i = segments->count; i-- > 0;) {
        struct qi_segment *segment = segments->items + segments->start + i;
        if (segment->unacked == 0 || (segment->hot && segment->hot->out_count >= segment->unacked))
            continue;
        int error = qi_segment_load(queue, segment);
        if (error)
            return error;
        for (uint32_t group = (entries + 63) / 64; group-- > 0;) {
            const struct qi_slots *slots = qi_slots_of(segment->hot, group * 64);
            uint64_t bits = slots->pub & ~slots->ack & ~slots->out;
            if (!bits)
                continue;
            *found = segment;
            *slot = group * 64 + 63 - (uint32_t)__builtin_clzll(bits);
            return 0;
        }
    }
    return QI_EMPTY;
}

/* As get_locked, from the other end. What is before the message is as ready as it was: so the cursor must not follow. */
static int64_t get_newest_locked(struct qi_queue *queue, qi_message *message, void *payload,
                                 size_t room) {
    struct qi_segment *segment;
    uint32_t slot;
    uint64_t req_id, cursor = queue->cursor;
    for (int expired = 1; expired;) {
        int error = qi_make_event_room(queue, 5 * QI_RECORD_ID);
        if (!error)
            error = find_newest(queue, &segment, &slot);
        if (error)
            return error;
        req_id = segment->number * queue->store->options.segment_entries + slot;
        expired = is_expired(queue, segment, slot);
        if (expired < 0)
            return expired;
        if (expired)
            error = drop(queue, segment, slot, req_id);
        if (error)
            return error;
        if (expired)
            qi_flush_if_due(queue);
    }
    int error = read_message(queue, segment, slot, message, payload, room);
    if (error == QI_E_CORRUPT)
        error = set_aside(queue, segment, slot, req_id);
    else if (!error)
        error = deliver(queue, segment, slot, message);
    if (cursor < queue->cursor)
        queue->cursor = cursor;
    return error;
}

/* Something is out of the ordinary: else ReqId and body say all about the message. */
static bool is_special(const qi_message *message) {
    return (message->flags & (QI_REDELIVERED | QI_TRANSIENT)) || message->expiry_us ||
           message->payload_size != message->body_size;
}

static int64_t take(struct qi_queue *queue, void *context) {
    qi_reader *reader = context;
    reader->queue = queue;
    int64_t result = get_locked(queue, &reader->message, reader->payload, reader->room);
    return result ? result : reader->message.payload_size;
}

static int64_t take_newest(struct qi_queue *queue, void *context) {
    qi_reader *reader = context;
    int64_t result = get_newest_locked(queue, &reader->message, reader->payload, reader->room);
    return result ? result : reader->message.payload_size;
}

static int64_t take_now(struct qi_queue *queue, qi_take take_one, void *context) {
    qi_lock(queue->store);
    int64_t result = qi_queue_ready(queue, true);
    if (result == 0)
        result = take_one(queue, context);
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

int64_t qi_get_now(struct qi_queue *queue, qi_message *message, void *payload, size_t room) {
    uint32_t entries = queue->store->options.segment_entries;
    if (!qi_begin_now(queue, 4 * QI_RECORD_ID, 0))
        return QI_BUSY;
    uint32_t slot = (uint32_t)(queue->cursor % entries);
    struct qi_segment *segment = qi_segment_find(&queue->segments, queue->cursor / entries);
    int64_t result = QI_BUSY;
    if (queue->cursor >= queue->next)
        result = QI_EMPTY;
    else if (segment && segment->hot && segment->hot->loaded &&
             find_slot(queue, segment->hot, true, &slot) &&
             !qi_bit(qi_slots_of(segment->hot, slot)->stored, slot) &&
             qi_segment_at_hand(queue, segment, slot) &&
             read_message(queue, segment, slot, message, payload, room) == 0 &&
             !is_special(message)) {
        result = deliver(queue, segment, slot, message);
        if (!result)
            result = message->payload_size;
    }
    qi_unlock(queue->store);
    return result;
}

/* One deliver frame for all of them. */
static int64_t get_many_locked(struct qi_queue *queue, uint32_t count, qi_message *messages,
                               uint8_t *payloads, size_t room, uint64_t *req_ids, uint32_t *sizes) {
    uint32_t entries = queue->store->options.segment_entries, got = 0, slot;
    bool plain = true;
    struct qi_segment *segment;
    int error = 0;
    uint64_t from = queue->cursor, stepped = UINT64_MAX;
    while (!error && got < count) {
        /* With the first in hand the lock is not given up any more: later expired ones are stepped over. */
        error = next_ready(queue, from, got ? 0 : QI_RECORD_ID * (uint64_t)count, &stepped,
                           &segment, &slot);
        if (error)
            break;
        error = read_message(queue, segment, slot, &messages[got], payloads, room);
        if (!error)
            error = qi_segment_count_room(segment, slot);
        if (error)
            break;
        payloads += messages[got].payload_size;
        room -= messages[got].payload_size;
        req_ids[got] = messages[got].req_id;
        sizes[got] = messages[got].payload_size;
        plain = plain && !is_special(&messages[got]);
        messages[got].delivery_count++;
        from = req_ids[got++] + 1;
    }
    if (got == 0 && error == QI_E_CORRUPT)
        return set_aside(queue, segment, slot, segment->number * entries + slot);
    if (got == 0 && error == QI_EMPTY)
        queue->cursor = queue->next;
    if (got == 0)
        return error;
    error = qi_append_events(queue, QI_DELIVER, req_ids,
                             got); /* what stopped the loop comes up next time */
    if (error)
        return error;
    for (uint32_t i = 0; i < got; i++) {
        if (i == 0 || segment->number != req_ids[i] / entries)
            segment = qi_segment_find(&queue->segments, req_ids[i] / entries);
        mark_out(queue, segment, (uint32_t)(req_ids[i] % entries));
    }
    queue->cursor = from < stepped ? from : stepped; /* the next call drops what was stepped over */
    qi_flush_if_due(queue);
    return 2 * (int64_t)got + plain;
}

struct batch {
    uint32_t count;
    qi_message *messages;
    void *payloads;
    size_t room;
    uint64_t *req_ids;
    uint32_t *sizes;
};

static int64_t take_many(struct qi_queue *queue, void *context) {
    const struct batch *batch = context;
    return get_many_locked(queue, batch->count, batch->messages, batch->payloads, batch->room,
                           batch->req_ids, batch->sizes);
}

int64_t qi_get_many(struct qi_queue *queue, uint32_t count, qi_message *messages, void *payloads,
                    size_t room, uint64_t *req_ids, uint32_t *sizes) {
    struct batch batch = {count, messages, payloads, room, req_ids, sizes};
    return take_now(queue, take_many, &batch);
}

int64_t qi_get_many_wait(struct qi_queue *queue, uint32_t count, qi_message *messages,
                         void *payloads, size_t room, uint64_t *req_ids, uint32_t *sizes,
                         uint64_t until_us, uint64_t pause_us) {
    struct batch batch = {count, messages, payloads, room, req_ids, sizes};
    return qi_wait(&queue, 1, until_us, pause_us, take_many, &batch);
}

/* A browser that walks through a backlog leaves no trail of maps in memory. */
static void cool_behind(struct qi_queue *queue, uint64_t number, bool was_cold) {
    uint64_t entries = queue->store->options.segment_entries;
    if (queue->browsed != number && queue->browsed != UINT64_MAX) {
        struct qi_segment *behind = qi_segment_find(&queue->segments, queue->browsed);
        struct qi_hot *hot = behind ? behind->hot : NULL;
        if (hot && behind->length && !hot->dirty && !hot->out_count && !hot->in_flush &&
            behind->number != queue->next / entries && behind->number != queue->cursor / entries)
            qi_segment_cool(behind);
        queue->browsed = UINT64_MAX;
    }
    if (was_cold)
        queue->browsed = number;
}

static int64_t browse_locked(struct qi_queue *queue, uint64_t from_req_id, bool ready_only,
                             qi_message *message, void *payload, size_t room) {
    struct qi_segment *segment = NULL;
    uint32_t slot = 0;
    int64_t result = qi_queue_ready(queue, false);
    if (result == 0 && ready_only)
        result = next_ready(queue, from_req_id > queue->cursor ? from_req_id : queue->cursor, 0,
                            NULL, &segment, &slot);
    if (result == 0 && !ready_only)
        result = find_message(queue, from_req_id, false, &segment, &slot);
    if (result == 0) {
        cool_behind(queue, segment->number, true);
        message->req_id = segment->number * queue->store->options.segment_entries + slot;
        result = read_message(queue, segment, slot, message, payload, room);
        if (result == QI_E_CORRUPT)
            result = qi_fail_damaged(message->req_id, "is damaged");
    }
    return result ? result : message->payload_size;
}

#define LOOKS_MAX 3u

/* What a reader cannot read may be gone since it read the queue: it looks at the journals again. */
int64_t qi_browse(struct qi_queue *queue, uint64_t from_req_id, bool ready_only,
                  qi_message *message, void *payload, size_t room) {
    uint64_t missed = 0;
    uint32_t looks = 0;
    int64_t result;
    qi_lock(queue->store);
    do {
        message->req_id = UINT64_MAX;
        result = browse_locked(queue, from_req_id, ready_only, message, payload, room);
        if (result != QI_E_CORRUPT)
            break;
        looks = looks && message->req_id == missed ? looks + 1 : 1;
        missed = message->req_id;
        if (looks < LOOKS_MAX)
            result = qi_reread(queue);
    } while (result == 0);
    qi_unlock(queue->store);
    return result;
}

int64_t qi_nack_many(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count) {
    struct qi_segment *segment;
    uint32_t slot, i;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_check_distinct(req_ids, count);
    for (i = 0; !error && i < count; i++) {
        error = qi_find_live(queue, req_ids[i], &segment, &slot);
        if (!error && !qi_bit(qi_slots_of(segment->hot, slot)->out, slot))
            error = qi_fail(
                QI_E_UNKNOWN,
                "message %llu is ready, not delivered: only a delivered message can be nacked",
                (unsigned long long)req_ids[i]);
    }
    for (i = 0; !error && i < count; i++) { /* back to its own place: the record never moved */
        qi_find_live(queue, req_ids[i], &segment, &slot);
        qi_clear_bit(&qi_slots_of(segment->hot, slot)->out, slot);
        segment->hot->out_count--;
        queue->out--;
        if (req_ids[i] < queue->cursor)
            queue->cursor = req_ids[i];
    }
    if (!error)
        qi_announce(queue, count);
    qi_unlock(queue->store);
    return error;
}
