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
    if (!qi_bit(slots->held, slot) || !qi_is_expired(queue, expiry_us) ||
        QI_BUG(dead_moved_with_its_expiry))
        return false;
    uint64_t time = slots->time[slot & 63];
    return qi_time_is_dead(time) || qi_time_us(time) == QI_REDRIVEN_US;
}

static int keep_side(struct qi_tx *tx, struct qi_tx_step *step, const struct qi_side *side) {
    uint8_t head[QI_GIVEN_SIDE];
    size_t at;
    qi_put16(head, (uint16_t)side->kind);
    qi_put32(head + 2, side->size);
    int error = keep(tx, head, sizeof head, &at);
    if (!error && step->message.sides_size == 0)
        step->sides = at;
    if (!error)
        error = keep(tx, side->bytes, side->size, &at);
    step->message.sides_size += QI_GIVEN_SIDE + side->size;
    step->sides_records += QI_SIDE_RECORD + side->size;
    return error;
}

static int keep_deaths(struct qi_tx *tx, struct qi_tx_step *step, const struct qi_death *deaths,
                       uint32_t count) {
    uint32_t size = qi_deaths_size(deaths, count);
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return qi_fail(QI_E_MEMORY, "no memory to move a message");
    qi_deaths_put(bytes, deaths, count);
    const struct qi_side side = {QI_SIDE_DEATHS, size, bytes};
    int error = keep_side(tx, step, &side);
    free(bytes);
    return error;
}

/* What belongs to the message goes along; how it became a dead letter with the name of the queue
 * that it leaves. (Its lease is a field of what is published.) When it was published it says
 * itself, also if that is not known. */
static int keep_sides(struct qi_tx *tx, struct qi_tx_step *step, const struct qi_queue *queue,
                      const struct qi_slots *slots, uint32_t slot) {
    struct qi_death deaths[QI_DEATHS_MAX];
    struct qi_side side;
    int error = 0;
    uint8_t published[8];
    qi_put64(published, qi_instant_of(&slots->published, slot));
    const struct qi_side instant = {QI_SIDE_PUBLISHED, sizeof published, published};
    if (!QI_BUG(moment_left_at_move))
        error = keep_side(tx, step, &instant);
    if (error || !qi_bit(slots->side, slot))
        return error;
    for (uint32_t at = 0; !error && qi_side_next(slots->sides, slot, &at, &side);)
        if (side.kind != QI_SIDE_LEASE && !qi_is_death(&side))
            error = keep_side(tx, step, &side);
    uint32_t count = qi_deaths_of_slot(queue, slots, slot, deaths);
    if (QI_BUG(deaths_left_at_move))
        return error;
    return error || count == 0 ? error : keep_deaths(tx, step, deaths, count);
}

/* A consumer may have had it in a session that did not end cleanly, whose records are lost. Where
 * it goes only a delivery can say so, which does not count. */
static int keep_doubt(struct qi_tx *tx, struct qi_tx_step *step) {
    uint8_t bytes[QI_UNCOUNTED_SIZE];
    qi_put32(bytes, 1);
    qi_put32(bytes + 4, 1);
    const struct qi_side side = {QI_SIDE_UNCOUNTED, QI_UNCOUNTED_SIZE, bytes};
    step->deliveries = 1;
    return keep_side(tx, step, &side);
}

/* It would be taken for delivered too often at once, and never be seen there. */
static bool is_used_up(const struct qi_queue *to, uint32_t deliveries) {
    uint32_t most = to->rules.max_deliveries;
    return most && deliveries > 0 && deliveries % most == 0;
}

uint64_t qi_tx_redriven(const struct qi_tx_step *step) {
    return (uint64_t)qi_publish_priority(step->message.flags) << QI_TIME_US_BITS | QI_REDRIVEN_US;
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
    step->deliveries = qi_handed_out(slots, slot); /* those that do not count go along, too */
    step->redriven = is_used_up(change->to, qi_delivery_count(slots, slot));
    step->sides_records = 0;
    error = keep_sides(tx, step, queue, slots, slot);
    if (!error && step->deliveries == 0 && qi_count_of(change->req_id) < queue->floor)
        error = keep_doubt(tx, step);
    if (error)
        return error;
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
    step->message = qi_new_message_told(tx->store, change);
    return 0;
}

/* Embedded whatever its size is, but for a body that moves. */
uint64_t qi_tx_record_size(const struct qi_tx_step *step) {
    const struct qi_new_message *message = &step->message;
    return QI_RECORD_ID + QI_PUB_FIELDS +
           (message->id.stamp ? 0 : message->headers_size + (uint64_t)message->body_size) +
           (message->flags & QI_REDELIVERED ? QI_RECORD_ID : 0) +
           (message->due_us ? QI_TIME_RECORD : 0) + (message->lease_us ? QI_SIDE_RECORD + 8 : 0) +
           step->sides_records + step->deliveries * QI_RECORD_ID +
           (step->redriven ? QI_TIME_RECORD : 0);
}

static int describe(struct qi_tx *tx, const qi_change *change, struct qi_tx_step *step) {
    struct qi_segment *segment;
    uint32_t slot;
    int error = 0;
    if (change->kind == QI_CHANGE_DATA)
        return 0;
    if (change->kind == QI_CHANGE_PUBLISH)
        return describe_publish(tx, change, step);
    if (change->kind == QI_CHANGE_MOVE && change->delivery == 0)
        error = qi_find_waiting(change->queue, change->req_id, &segment, &slot);
    else
        error = qi_find_unacked(change->queue, change->req_id, change->delivery, &segment, &slot);
    if (error || change->kind == QI_CHANGE_ACK)
        return error;
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    if (change->flags & QI_MOVE_DEAD &&
        !(qi_bit(slots->held, slot) && qi_time_is_dead(slots->time[slot & 63])))
        return qi_fail(QI_E_DELIVERED, "message %llu of queue %s is no dead letter any more",
                       (unsigned long long)change->req_id, change->queue->name);
    return describe_moved(tx, change, step, segment, slot);
}

static int compare_settled(const void *one, const void *other) {
    const qi_change *left = *(const qi_change *const *)one,
                    *right = *(const qi_change *const *)other;
    if (left->queue != right->queue)
        return left->queue > right->queue ? 1 : -1;
    return (left->req_id > right->req_id) - (left->req_id < right->req_id);
}

int qi_tx_check_distinct(struct qi_tx *tx) {
    const qi_change **settled = malloc(tx->count * sizeof *settled);
    uint32_t count = 0;
    if (!settled)
        return qi_fail(QI_E_MEMORY, "no memory for a transaction of %u changes", tx->count);
    for (uint32_t i = 0; i < tx->count; i++)
        if (tx->changes[i].kind == QI_CHANGE_ACK || tx->changes[i].kind == QI_CHANGE_MOVE)
            settled[count++] = &tx->changes[i];
    if (count)
        qsort(settled, count, sizeof *settled, compare_settled);
    int error = 0;
    for (uint32_t i = 1; i < count && !error; i++)
        if (compare_settled(&settled[i - 1], &settled[i]) == 0) {
            tx->at = (uint32_t)(settled[i] - tx->changes);
            error =
                qi_fail(QI_E_ARGUMENT, "message %llu is acked or moved twice: nothing was changed",
                        (unsigned long long)settled[i]->req_id);
        }
    free(settled);
    return error;
}

int qi_tx_fail_big(const struct qi_tx *tx, uint64_t size) {
    return qi_fail(QI_E_ARGUMENT,
                   "a transaction has at most %llu bytes of records, this one has %llu or more in "
                   "%u changes: do less at a time",
                   (unsigned long long)RECORDS_MAX, (unsigned long long)size, tx->count);
}

/* What the disk has of a write that it failed was taken back, or nobody knows (H13). */
int qi_tx_fail_append(const struct qi_tx *tx, int error) {
    error = qi_store_fail(tx->store, error);
    if (!qi_commits_in_doubt(tx->store->commits))
        return error;
    return qi_fail(QI_E_OUTCOME,
                   "%s; whether the transaction is there nobody knows: close and reopen the store",
                   qi_error_text());
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
        size += tx->changes[tx->at].kind == QI_CHANGE_DATA ? tx->changes[tx->at].body_size : 0;
        if (size > RECORDS_MAX)
            return qi_tx_fail_big(tx, size);
    }
    return 0;
}

/* Dead letters have no place in the store. */
void qi_tx_settled(const struct qi_tx *tx, struct qi_heads *leaving) {
    for (uint32_t i = 0; i < tx->count; i++) {
        if (tx->steps[i].from == UINT32_MAX)
            continue;
        struct qi_queue *queue = tx->queues[tx->steps[i].from];
        const struct qi_segment *segment = qi_segment_with(queue, tx->changes[i].req_id);
        uint32_t slot = qi_slot_of(queue, tx->changes[i].req_id);
        if (!segment || !segment->hot)
            continue;
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        if (qi_bit(slots->held, slot) && qi_time_is_dead(slots->time[slot & 63]))
            continue;
        leaving->count++;
        leaving->bytes += queue->measured ? qi_size_of(segment, slot) : 0;
    }
}
