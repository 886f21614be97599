/* transaction_steps.c - what the changes of a transaction are, as of now: the records of messages
 * that move, and how much all of it is. Nothing is changed and nothing is waited for. */
#include "queue/queue_private.h"

#include <stdlib.h>

#define RECORDS_MAX (UINT64_C(4) << 20)

/* Where it is kept is an offset: all of it moves when more comes. */
static int keep(struct qi_tx *tx, const void *bytes, size_t size, size_t *at) {
    *at = tx->kept_size;
    if (*at + size > tx->kept_room) {
        size_t room = 2 * (*at + size);
        uint8_t *kept = realloc(tx->kept, room);
        if (!kept)
            return qi_fail(QI_E_MEMORY, "no memory to move a message");
        tx->kept = kept;
        tx->kept_room = room;
    }
    if (size)
        memcpy(tx->kept + *at, bytes, size);
    tx->kept_size += size;
    return 0;
}

/* Headers and stored body stand in one place, so a body that gets other headers is embedded. */
static int keep_stored(struct qi_tx *tx, const struct qi_fields *fields, size_t *at) {
    struct qi_msg_id id = qi_get_msg_id(fields->msg_id);
    uint32_t length = qi_payload_length(id);
    if (length > RECORDS_MAX)
        return qi_fail(QI_E_ARGUMENT,
                       "a message of %u bytes cannot get other headers on its way: move it as it "
                       "is, or publish it anew",
                       length);
    uint8_t *bytes = malloc(length + 1);
    int error = bytes ? qi_messages_read(&tx->store->messages, id, bytes, length)
                      : qi_fail(QI_E_MEMORY, "no memory to move a message");
    if (!error)
        error = keep(tx, bytes + (length - fields->size), fields->size, at);
    free(bytes);
    return error;
}

/* It is alive again where it goes; with a time that is over it would be dropped there. */
static bool has_died_of_time(const struct qi_queue *queue, const struct qi_slots *slots,
                             uint32_t slot, uint64_t expiry_us) {
    if (!qi_bit(slots->held, slot) || !qi_is_expired(queue, expiry_us))
        return false;
    uint64_t time = slots->time[slot & 63];
    return qi_time_is_dead(time) || qi_time_us(time) == QI_REDRIVEN_US;
}

/* The message as it is published in the other queue. */
static int describe_moved(struct qi_tx *tx, const qi_change *change, struct qi_tx_step *step,
                          struct qi_segment *segment, uint32_t slot) {
    struct qi_queue *queue = change->queue;
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    const struct qi_published *record;
    struct qi_new_message *message = &step->message;
    int error = qi_segment_record(queue, segment, slot, &record);
    if (error)
        return error;
    const struct qi_fields *fields = &record->fields;
    bool stored = qi_bit(slots->stored, slot);
    uint32_t payload = stored ? qi_payload_length(qi_get_msg_id(fields->msg_id)) : fields->embedded;
    if (payload < fields->size)
        return qi_fail(QI_E_CORRUPT, "message %llu of %s has a damaged record",
                       (unsigned long long)change->req_id, queue->name);
    uint32_t priority = qi_priority_of(queue, segment, slot);
    bool for_ever =
        change->flags & QI_MOVE_FOR_EVER || has_died_of_time(queue, slots, slot, fields->expiry_us);
    *message =
        (struct qi_new_message){.headers_size = payload - fields->size,
                                .body_size = fields->size,
                                .flags = priority << QI_PRIORITY_SHIFT |
                                         (qi_bit(slots->transient, slot) ? QI_TRANSIENT : 0u),
                                .expiry_us = for_ever ? 0 : fields->expiry_us,
                                .lane = priority,
                                .lease_us = qi_own_lease_us(slots, slot)};
    step->deliveries = qi_delivery_count(slots, slot);
    if (change->headers)
        message->headers_size = change->headers_size;
    if (stored && change->headers)
        return keep_stored(tx, fields, &step->copied);
    if (stored) {
        message->id = qi_get_msg_id(fields->msg_id);
        return 0;
    }
    uint32_t from = change->headers ? payload - fields->size : 0;
    return keep(tx, record->payload + from, payload - from, &step->copied);
}

static int describe_publish(struct qi_tx *tx, const qi_change *change, struct qi_tx_step *step) {
    if (change->body_size > RECORDS_MAX)
        return qi_fail(QI_E_ARGUMENT,
                       "a body of %llu bytes does not fit into a transaction, which has at most "
                       "%llu: publish it by itself",
                       (unsigned long long)change->body_size, (unsigned long long)RECORDS_MAX);
    step->message = qi_new_message_of(tx->store, change->headers, change->headers_size,
                                      change->body, (uint32_t)change->body_size, change->flags,
                                      change->expiry_us, change->due_us);
    step->message.lease_us = change->lease_us;
    return 0;
}

/* Embedded whatever its size is, but for a body that moves. */
uint64_t qi_tx_record_size(const struct qi_tx_step *step) {
    const struct qi_new_message *message = &step->message;
    return QI_RECORD_ID + QI_PUB_FIELDS +
           (message->id.stamp ? 0 : message->headers_size + (uint64_t)message->body_size) +
           (message->flags & QI_REDELIVERED ? QI_RECORD_ID : 0) +
           (message->due_us ? QI_TIME_RECORD : 0) + (message->lease_us ? QI_SIDE_RECORD + 8 : 0) +
           step->deliveries * QI_RECORD_ID;
}

static int describe(struct qi_tx *tx, const qi_change *change, struct qi_tx_step *step) {
    struct qi_segment *segment;
    uint32_t slot;
    int error = 0;
    if (change->kind == QI_CHANGE_PUBLISH)
        return describe_publish(tx, change, step);
    if (change->kind == QI_CHANGE_MOVE && change->delivery == 0)
        error = qi_find_waiting(change->queue, change->req_id, &segment, &slot);
    else
        error = qi_find_unacked(change->queue, change->req_id, change->delivery, &segment, &slot);
    return error || change->kind == QI_CHANGE_ACK ? error
                                                  : describe_moved(tx, change, step, segment, slot);
}

int qi_tx_fail_big(const struct qi_tx *tx, uint64_t size) {
    return qi_fail(QI_E_ARGUMENT,
                   "a transaction has at most %llu bytes of records, this one has %llu or more in "
                   "%u changes: do less at a time",
                   (unsigned long long)RECORDS_MAX, (unsigned long long)size, tx->count);
}

/* Nothing is waited for. */
int qi_tx_measure(struct qi_tx *tx) {
    uint64_t size = 0;
    int error = 0;
    tx->kept_size = 0;
    for (uint32_t i = 0; i < tx->parts_count; i++)
        tx->parts[i].size = tx->parts[i].payload = tx->parts[i].publishes = 0;
    for (tx->at = 0; tx->at < tx->count; tx->at++) {
        struct qi_tx_step *step = &tx->steps[tx->at];
        error = describe(tx, &tx->changes[tx->at], step);
        if (error)
            return error;
        struct qi_tx_queue *to = step->to == UINT32_MAX ? NULL : &tx->parts[step->to];
        if (to) {
            to->one = &step->message;
            to->publishes++;
            to->payload += qi_publish_payload(&step->message);
            to->size += qi_tx_record_size(step);
            size += qi_tx_record_size(step);
        }
        if (step->from != UINT32_MAX) {
            tx->parts[step->from].size += QI_RECORD_ID;
            size += QI_RECORD_ID;
        }
        if (size > RECORDS_MAX)
            return qi_tx_fail_big(tx, size);
    }
    return 0;
}
