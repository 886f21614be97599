/* browse.c - looking at messages without taking them: what is known of one, peek, browse. */
#include "queue/queue_private.h"

/* What the maps say of it. */
static void read_state(struct qi_queue *queue, const struct qi_found *found, qi_message *message) {
    const struct qi_slots *slots = qi_slots_of(found->segment->hot, found->slot);
    uint32_t slot = found->slot;
    message->req_id = qi_req_id(queue, found->segment, slot);
    message->delivery_count = qi_delivery_count(slots, slot);
    message->delivery = qi_delivery_of(queue, slots, slot);
    message->flags = (message->delivery_count ? QI_DELIVERED : 0) |
                     (qi_bit(slots->transient, slot) ? QI_TRANSIENT : 0) |
                     (qi_bit(slots->out, slot) ? QI_UNACKED : 0) |
                     (qi_bit(slots->stored, slot) ? QI_STORED : 0);
    if (__builtin_expect(found->segment->hot->sided, 0) && qi_has_died(slots, slot))
        message->flags |= QI_DIED;
    if (qi_bit(slots->del, slot) || qi_count_of(message->req_id) < queue->floor)
        message->flags |= QI_REDELIVERED;
    message->published_us = qi_instant_of(&slots->published, slot);
    uint64_t time = slots->time ? slots->time[slot & 63] : 0;
    message->priority = qi_priority_of(queue, found->segment, slot);
    bool held = qi_bit(slots->held, slot), dead = held && qi_time_is_dead(time);
    message->due_us = held && !dead ? qi_time_us(time) : 0;
    message->dead = dead ? (uint32_t)(qi_time_us(time) - QI_DEAD) : 0;
    if (message->due_us && message->due_us > qi_wall_us(queue->store))
        message->flags |= QI_DELAYED;
}

/* Fills in all of the message but its payload, for which there is a record then. */
static inline int describe(struct qi_queue *queue, const struct qi_found *found,
                           qi_message *message, const struct qi_published **record) {
    *record = found->record;
    int error = *record ? 0 : qi_segment_record(queue, found->segment, found->slot, record);
    if (error)
        return error;
    const struct qi_fields *fields = &(*record)->fields;
    read_state(queue, found, message);
    message->expiry_us = fields->expiry_us;
    memcpy(message->msg_id, fields->msg_id, QI_MSG_ID_SIZE);
    message->body_size = fields->size;
    message->payload_size = message->flags & QI_STORED
                                ? qi_payload_length(qi_get_msg_id(fields->msg_id))
                                : fields->embedded;
    if (!queue->store->options.index_only && message->payload_size < fields->size)
        return qi_fail(QI_E_CORRUPT, "message %llu of %s has a damaged record",
                       (unsigned long long)message->req_id, queue->name);
    return 0;
}

int qi_read_message(struct qi_queue *queue, const struct qi_found *found, qi_message *message,
                    uint8_t *payload, size_t room) {
    const struct qi_published *record;
    int error = describe(queue, found, message, &record);
    if (error || queue->store->options.index_only)
        return error;
    if (message->payload_size > room) {
        if (message->flags & QI_STORED) /* the caller makes room only for what is there */
            error =
                qi_messages_bound(&queue->store->messages, qi_get_msg_id(message->msg_id), true);
        return error ? error
                     : qi_fail(QI_E_ROOM, "the message needs %u bytes", message->payload_size);
    }
    if (message->flags & QI_STORED)
        return qi_messages_read(&queue->store->messages, qi_get_msg_id(message->msg_id), payload,
                                message->payload_size);
    if (message->payload_size > 0) /* else there may be no room at all */
        memcpy(payload, record->payload, message->payload_size);
    return 0;
}

int qi_place_message_now(struct qi_queue *queue, const struct qi_found *found, qi_message *message,
                         uint64_t room, const struct qi_places *places, struct qi_into *into) {
    const struct qi_published *record;
    if (!qi_segment_at_hand(queue, found->segment, found->slot) ||
        describe(queue, found, message, &record) != 0 || message->payload_size > room ||
        qi_is_expired(queue, message->expiry_us))
        return QI_BUSY;
    int error = places->make(places->context, message, into);
    if (error || message->flags & QI_STORED)
        return error;
    if (into->headers_size > 0)
        memcpy(into->headers, record->payload, into->headers_size);
    if (into->body_size > 0)
        memcpy(into->body, record->payload + into->headers_size, into->body_size);
    return 0;
}

/* A browser that walks through a backlog leaves no trail of maps in memory. */
static void cool_behind(struct qi_queue *queue, uint64_t number) {
    if (queue->browsed != number && queue->browsed != UINT64_MAX) {
        struct qi_segment *behind = qi_segment_find(&queue->segments, queue->browsed);
        if (behind && qi_cool_if_unused(queue, behind))
            qi_timers_tidy(queue);
        queue->browsed = UINT64_MAX;
    }
    queue->browsed = number;
}

/* The one that get would take; what has expired is stepped over, since a reader may not drop it. */
static int find_ready(struct qi_queue *queue, struct qi_found *found) {
    struct qi_look look;
    qi_look_begin(&look, queue);
    return qi_look_next(&look, 0, found);
}

static int64_t browse_once(struct qi_queue *queue, uint64_t from_req_id, bool ready_only,
                           qi_message *message, void *payload, size_t room) {
    struct qi_found found = {0};
    int64_t result = qi_queue_ready(queue, false);
    if (result == 0 && ready_only)
        result = find_ready(queue, &found);
    if (result == 0 && !ready_only)
        result = qi_find_message(queue, from_req_id, UINT64_MAX, QI_FIND_ALL, &found.segment,
                                 &found.slot);
    if (result == 0) {
        cool_behind(queue, found.segment->number);
        message->req_id = qi_req_id(queue, found.segment, found.slot);
        result = qi_read_message(queue, &found, message, payload, room);
        if (result == QI_E_CORRUPT)
            result = qi_fail_damaged(message->req_id, "is damaged");
    }
    return result ? result : message->payload_size;
}

#define LOOKS_MAX         3u
#define SEGMENT_LOOKS_MAX 20u /* its file had gone each time: a fast writer, not damage */

/* What a reader cannot read may be gone since it read the queue: it looks at the journals again. */
int64_t qi_browse_locked(struct qi_queue *queue, uint64_t from_req_id, bool ready_only,
                         qi_message *message, void *payload, size_t room) {
    uint64_t missed = 0;
    uint32_t looks = 0;
    int64_t result;
    do {
        message->req_id = UINT64_MAX;
        result = browse_once(queue, from_req_id, ready_only, message, payload, room);
        if (result != QI_E_CORRUPT)
            break;
        looks = looks && message->req_id == missed ? looks + 1 : 1;
        missed = message->req_id;
        if (looks < (missed == UINT64_MAX ? SEGMENT_LOOKS_MAX : LOOKS_MAX))
            result = qi_reread(queue);
        else if (missed == UINT64_MAX)
            result = qi_fail_outrun(queue);
    } while (result == 0);
    return result;
}

int64_t qi_browse(struct qi_queue *queue, uint64_t from_req_id, bool ready_only,
                  qi_message *message, void *payload, size_t room) {
    qi_lock(queue->store);
    int64_t result = qi_browse_locked(queue, from_req_id, ready_only, message, payload, room);
    qi_unlock(queue->store);
    return result;
}

int64_t qi_lease_of(qi_queue *queue, uint64_t req_id) {
    struct qi_segment *segment;
    uint32_t slot;
    qi_lock(queue->store);
    int64_t result = qi_queue_ready(queue, false);
    if (result == 0)
        result = qi_find_live(queue, req_id, &segment, &slot);
    if (result == 0)
        result = (int64_t)qi_own_lease_us(qi_slots_of(segment->hot, slot), slot);
    qi_unlock(queue->store);
    return result;
}
