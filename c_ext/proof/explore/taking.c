/* taking.c - get, and what becomes of messages that were taken, or that wait: as operations.c. */
#include "proof/explore/operations.h"

static bool is_expired(const struct player *player, const struct message *message) {
    return message->expiry_us && message->expiry_us <= player->session.sim->wall_us;
}

static bool keeps_dead(const struct player *player, const struct model_queue *queue) {
    return keeps_dead_letters((int)(queue - player->model.queues));
}

/* Nobody gets it any more: why; 0: somebody does. */
static uint32_t why_dead(const struct player *player, const struct model_queue *queue,
                         const struct message *message) {
    uint32_t count = message->now.deliveries;
    if (message->now.time == MODEL_REDRIVEN)
        return 0;
    if (keeps_dead(player, queue) && count > 0 && count % MAX_DELIVERIES == 0)
        return QI_DEAD_DELIVERIES;
    return is_expired(player, message) ? QI_DEAD_EXPIRED : 0;
}

/* Those whose last allowed delivery has ended. One frame. */
static void foresee_spent(struct player *player, struct model_queue *queue) {
    struct message *last = NULL;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct message *message = &queue->messages[i];
        if (!message_waits(message) || message->now.time >= model_dead(0) ||
            why_dead(player, queue, message) != QI_DEAD_DELIVERIES)
            continue;
        if (last)
            model_time(queue, last, model_dead(QI_DEAD_DELIVERIES), false);
        last = message;
    }
    if (!last)
        return;
    model_time(queue, last, model_dead(QI_DEAD_DELIVERIES), true);
    model_returned(queue);
}

/* The next that a consumer gets; those before it that nobody gets any more leave, or are dead
 * letters. NULL: none. */
static struct message *foresee_get(struct player *player, struct model_queue *queue) {
    struct message *message;
    uint32_t why;
    while ((message = foresee_best(player, queue)) && (why = why_dead(player, queue, message))) {
        if (keeps_dead(player, queue))
            model_time(queue, message, model_dead(why), true);
        else
            model_event(queue, EVENT_ACK, message, true);
    }
    return message;
}

/* Those that come with it: what nobody gets is stepped over now. */
static uint32_t foresee_more(struct player *player, struct model_queue *queue, uint32_t room,
                             struct message **expected) {
    uint32_t count = 0;
    struct message *message = foresee_get(player, queue);
    for (; message && count < room; message = foresee_best(player, queue)) {
        message->picked = true;
        if (why_dead(player, queue, message) == 0)
            expected[count++] = message;
    }
    for (uint32_t i = 0; i < queue->count; i++)
        queue->messages[i].picked = false;
    return count;
}

static uint64_t lease_of(const struct op *op) {
    return op->flags & FLAG_LEASE ? 300000 : 0;
}

bool keeps_moments(const struct player *player) {
    qi_store_stats stats = {0};
    return qi_store_stats_of(player->session.store, &stats) == 0 && stats.format >= 2;
}

static uint64_t own_lease_of(const struct player *player, const struct op *op) {
    return keeps_moments(player) && op->flags & FLAG_LEASE ? 200000 : 0;
}

int64_t publish_message(struct player *player, const struct op *op, struct message *message,
                        const uint8_t *payload, uint32_t flags, uint64_t due_us) {
    qi_queue *queue = player->session.queues[op->queue];
    const uint8_t *body = payload + message->headers_size;
    message->own_us = own_lease_of(player, op);
    if (message->own_us)
        return qi_publish_leased(queue, payload, message->headers_size, body, message->body_size,
                                 flags, message->expiry_us, due_us, message->own_us);
    return qi_publish_with(queue, payload, message->headers_size, body, message->body_size, flags,
                           message->expiry_us, due_us);
}

void end_leases(struct player *player) {
    for (int i = 0; i < QUEUES; i++) {
        for (uint32_t k = 0; k < player->model.queues[i].count; k++) {
            struct message *message = &player->model.queues[i].messages[k];
            if (message->out && message->lease_us && message->lease_us <= player_steady_us(player))
                message->out = false;
        }
        foresee_spent(player, &player->model.queues[i]);
    }
}

static void give(struct player *player, const struct op *op, struct message *message,
                 uint64_t delivery) {
    message->out = true;
    message->late = message->delivery;
    message->delivery = delivery;
    uint64_t lease_us = lease_of(op) ? lease_of(op) : message->own_us;
    message->lease_us = lease_us ? player_steady_us(player) + lease_us : 0;
}

static bool check_got(struct player *player, const struct message *expected,
                      const qi_message *message, const uint8_t *payload) {
    bool redelivered = expected->old || expected->now.deliveries > 1; /* this one is counted */
    uint32_t size = expected->headers_size + expected->body_size;
    if (message->req_id != expected->id)
        return player_complain(player, "get gave %llu, not %llu",
                               (unsigned long long)message->req_id,
                               (unsigned long long)expected->id);
    if (message->payload_size != size || !payload_is(expected->serial, payload, size))
        return player_complain(player, "get gave wrong bytes for %llu",
                               (unsigned long long)expected->id);
    if (!model_moment_is(expected, message->published_us))
        return player_complain(player, "get gave %llu as published at %llu, not at %llu",
                               (unsigned long long)expected->id,
                               (unsigned long long)message->published_us,
                               (unsigned long long)expected->published_us);
    if (redelivered != ((message->flags & QI_REDELIVERED) != 0) ||
        message->delivery_count != expected->now.deliveries)
        return player_complain(player, "get gave %llu as delivered %u times, not %u",
                               (unsigned long long)expected->id, message->delivery_count,
                               expected->now.deliveries);
    return true;
}

bool play_get(struct player *player, const struct op *op) {
    struct model_queue *queue = player_queue(player, op);
    uint8_t payload[PAYLOAD_MAX];
    struct message *expected = foresee_get(player, queue);
    if (expected)
        model_event(queue, EVENT_DELIVER, expected, true);
    foresee_dead_moves(player, queue);
    qi_reader reader = {.queue = player->session.queues[op->queue],
                        .payload = payload,
                        .room = sizeof payload,
                        .lease_us = lease_of(op)};
    int64_t got = qi_get(&reader);
    if (got < 0 && !(got == QI_EMPTY && !expected))
        return got == QI_EMPTY ? player_complain(player, "get found nothing, %llu is there",
                                                 (unsigned long long)expected->id)
                               : player_failed(player, "get", got);
    if (!expected && got >= 0)
        return player_complain(player, "get gave %llu, nothing should be ready",
                               (unsigned long long)reader.message.req_id);
    model_returned(queue);
    if (!expected)
        return true;
    give(player, op, expected, reader.message.delivery);
    return check_got(player, expected, &reader.message, payload);
}

/* Is there a reason for fewer messages than are ready? A call failed on purpose, and the next one
 * was not read. A store that has failed gives none: it has no word for them any more. */
static bool may_stop_short(const struct player *player, uint64_t hits) {
    return player->fault && fault_hits(player->session.sim) > hits;
}

bool play_get_many(struct player *player, const struct op *op) {
    struct model_queue *queue = player_queue(player, op);
    struct message *expected[MANY];
    uint32_t room = op->count > MANY ? MANY : op->count;
    uint32_t count = foresee_more(player, queue, room, expected);
    for (uint32_t i = 0; i < count; i++)
        model_event(queue, EVENT_DELIVER, expected[i], i + 1 == count);
    uint8_t payloads[MANY * PAYLOAD_MAX], *payload = payloads;
    qi_message messages[MANY];
    uint64_t req_ids[MANY];
    uint64_t hits = player->fault ? fault_hits(player->session.sim) : 0;
    int64_t got = qi_get_many(player->session.queues[op->queue], room, messages, payloads,
                              sizeof payloads, req_ids, lease_of(op));
    if (got < 0 && got != QI_EMPTY)
        return player_failed(player, "get_many", got);
    got = got == QI_EMPTY ? 0 : got;
    if (got > 0 && got < count && may_stop_short(player, hits))
        count = model_deliver_fewer(queue, count, (uint32_t)got); /* the rest was not read */
    model_returned(queue); /* what the log holds now, not what was foreseen */
    if (got != count)
        return player_complain(player, "get_many gave %lld messages, not %u", (long long)got,
                               count);
    for (uint32_t i = 0; i < count; payload += messages[i++].payload_size) {
        give(player, op, expected[i], messages[i].delivery);
        if (!check_got(player, expected[i], &messages[i], payload))
            return false;
    }
    return true;
}

/* Up to `room` of the delivered ones, from the `from`-th on. */
static uint32_t pick_out(struct model_queue *queue, uint32_t from, uint32_t room,
                         struct message **picked) {
    uint32_t out = 0, count = 0;
    for (uint32_t i = 0; i < queue->count; i++)
        out += queue->messages[i].out;
    if (out == 0)
        return 0;
    from %= out;
    for (uint32_t i = 0; i < queue->count && count < room; i++)
        if (queue->messages[i].out && from-- == 0) {
            picked[count++] = &queue->messages[i];
            from = 0;
        }
    return count;
}

bool play_ack(struct player *player, const struct op *op) {
    struct model_queue *queue = player_queue(player, op);
    struct message *picked[MANY];
    uint32_t most = op->kind == OP_ACK ? 1 : op->count > MANY ? MANY : op->count;
    uint32_t count = pick_out(queue, op->size, most, picked);
    uint64_t req_ids[MANY], deliveries[MANY];
    if (count == 0)
        return true;
    bool bury = op->kind == OP_REJECT && keeps_dead(player, queue);
    uint64_t due_us = bury ? model_dead(QI_DEAD_REJECTED) : op_due_us(player, op);
    for (uint32_t i = 0; i < count; i++) {
        req_ids[i] = picked[i]->id;
        deliveries[i] = picked[i]->delivery;
        picked[i]->out = false;
        if (op->kind != OP_NACK && !bury)
            model_event(queue, EVENT_ACK, picked[i], i + 1 == count);
        else if (due_us)
            model_time(queue, picked[i], model_due_us(due_us), i + 1 == count);
    }
    foresee_dead_moves(player, queue);
    qi_queue *handle = player->session.queues[op->queue];
    int64_t got = op->kind == OP_ACK    ? qi_ack(handle, req_ids[0], deliveries[0])
                  : op->kind == OP_NACK ? qi_nack_many(handle, req_ids, deliveries, count, due_us)
                  : op->kind == OP_REJECT
                      ? qi_settle_all(handle, QI_SETTLE_REJECT, req_ids, deliveries, count, 0)
                      : qi_ack_many(handle, req_ids, deliveries, count);
    if (got != 0)
        return player_failed(player, op_name(op->kind), got);
    model_returned(queue);
    foresee_spent(player, queue);
    return true;
}

static int64_t settle_late(qi_queue *handle, uint32_t how, uint64_t id, uint64_t late) {
    switch (how % 5) {
    case 0:
        return qi_ack(handle, id, late);
    case 1:
        return qi_ack_many(handle, &id, &late, 1);
    case 2:
        return qi_nack_many(handle, &id, &late, 1, 0);
    case 3:
        return qi_settle_all(handle, QI_SETTLE_REJECT, &id, &late, 1, 0);
    default:
        return qi_touch(handle, id, late, 1000);
    }
}

/* A delivery that has ended, also one from before a crash, settles nothing. */
bool play_late(struct player *player, const struct op *op) {
    struct model_queue *queue = player_queue(player, op);
    for (uint32_t i = 0; i < queue->count; i++) {
        const struct message *message = &queue->messages[(i + op->size) % queue->count];
        uint64_t late = message->out ? message->late : message->delivery;
        if (!message->now.published || message->now.acked || !late)
            continue;
        int64_t got = settle_late(player->session.queues[op->queue], op->count, message->id, late);
        if (got == 0)
            return player_complain(player, "a delivery of %llu that had ended was settled",
                                   (unsigned long long)message->id);
        return got == QI_E_LEASE || got == (message->out ? QI_E_ENDED : QI_E_UNKNOWN) ||
               player_failed(player, "late", got);
    }
    return true;
}

/* Copies are what this session got and nobody had: each was delivered elsewhere some times. One
 * frame. */
bool play_had(struct player *player, const struct op *op) {
    struct model_queue *queue = player_queue(player, op);
    struct message *copies[MANY];
    uint64_t req_ids[MANY];
    uint16_t times[MANY];
    uint32_t count = 0;
    for (uint32_t i = 0; i < queue->count && count < op->count && count < MANY; i++) {
        struct message *message = &queue->messages[i];
        if (!message_waits(message) || message->old || message->now.deliveries ||
            message->now.time || model_is_delay_lane(message->id))
            continue;
        copies[count] = message;
        req_ids[count] = message->id;
        times[count] = (uint16_t)(1 + (op->size + count) % 3);
        count++;
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t n = 1; n <= times[i]; n++)
            model_event(queue, EVENT_DELIVER, copies[i], i + 1 == count && n == times[i]);
    int64_t got = qi_had(player->session.queues[op->queue], req_ids, times, count);
    if (got != 0)
        return player_failed(player, "had", got);
    model_returned(queue);
    foresee_spent(player, queue);
    return true;
}

bool play_redrive(struct player *player, const struct op *op) {
    struct model_queue *queue = player_queue(player, op);
    uint32_t count = 0;
    for (uint32_t i = 0; i < queue->count && count < op->count; i++) {
        struct message *message = &queue->messages[i];
        if (!message_waits(message) || message->now.time < model_dead(0))
            continue;
        model_time(queue, message, MODEL_REDRIVEN, true);
        count++;
    }
    int64_t got = qi_redrive(player->session.queues[op->queue], op->count);
    if (got < 0)
        return player_failed(player, "redrive", got);
    model_returned(queue);
    return got == count ||
           player_complain(player, "redrive gave %lld, not %u", (long long)got, count);
}

static bool may_expire(const struct player *player, const struct message *message) {
    return message_waits(message) && is_expired(player, message) &&
           message->now.time < model_dead(0) && message->now.time != MODEL_REDRIVEN;
}

/* A frame for each segment. */
bool play_expire(struct player *player, const struct op *op) {
    struct model_queue *queue = player_queue(player, op);
    uint32_t entries = player->program->settings.segment_entries, count = 0;
    struct message *last = NULL;
    for (uint32_t i = queue->count; i-- > 0;) { /* the last of each segment is known first */
        struct message *message = &queue->messages[i];
        message->picked =
            may_expire(player, message) && (!last || last->id / entries != message->id / entries);
        if (message->picked)
            last = message;
    }
    for (uint32_t i = 0; i < queue->count; i++) {
        struct message *message = &queue->messages[i];
        bool ends = message->picked;
        message->picked = false;
        if (!may_expire(player, message))
            continue;
        count++;
        if (keeps_dead(player, queue))
            model_time(queue, message, model_dead(QI_DEAD_EXPIRED), ends);
        else
            model_event(queue, EVENT_ACK, message, ends);
    }
    foresee_dead_moves(player, queue);
    int64_t got = qi_expire(player->session.queues[op->queue]);
    if (got < 0)
        return player_failed(player, "expire", got);
    model_returned(queue);
    return got == count ||
           player_complain(player, "expire gave %lld, not %u", (long long)got, count);
}

/* Of a message that nobody has: another time, or an end. */
bool play_waiting(struct player *player, const struct op *op) {
    struct model_queue *queue = player_queue(player, op);
    struct message *message = NULL;
    uint32_t waiting = 0, at = 0;
    for (uint32_t i = 0; i < queue->count; i++)
        waiting += message_waits(&queue->messages[i]);
    for (uint32_t i = 0; i < queue->count && !message; i++)
        if (message_waits(&queue->messages[i]) && at++ == op->size % waiting)
            message = &queue->messages[i];
    if (!message)
        return true;
    uint64_t id = message->id, due_us = op_due_us(player, op), time = model_due_us(due_us);
    bool of_the_dead = message->now.time >= model_dead(0) || message->now.time == MODEL_REDRIVEN;
    bool refused = op->kind == OP_RESCHEDULE && of_the_dead && due_us;
    if (!due_us)
        time = of_the_dead ? MODEL_REDRIVEN : model_is_delay_lane(id) ? player_now_us(player) : 0;
    qi_queue *handle = player->session.queues[op->queue];
    if (op->kind == OP_DROP)
        model_event(queue, EVENT_ACK, message, true);
    else if (!refused)
        model_time(queue, message, time, true);
    int64_t got = op->kind == OP_DROP ? qi_delete(handle, id) : qi_reschedule(handle, id, due_us);
    if (refused && got == QI_E_DEAD)
        return true;
    if (refused && got == 0)
        return player_complain(player, "a dead letter got another time: %llu",
                               (unsigned long long)id);
    if (got != 0)
        return player_failed(player, op_name(op->kind), got);
    model_returned(queue);
    return true;
}

static uint32_t state_of(const struct player *player, const struct message *message) {
    if (message->now.time >= model_dead(0))
        return QI_PURGE_DEAD;
    return message->now.time > player_now_us(player) ? QI_PURGE_DELAYED : QI_PURGE_READY;
}

/* What waits in some states goes by a frame for each segment, or by one frame if nothing else is
 * there: any of these prefixes may be left. */
static bool purge_states(struct player *player, const struct op *op, uint32_t states) {
    struct model_queue *queue = player_queue(player, op);
    uint32_t entries = player->program->settings.segment_entries, count = 0;
    const struct message *behind = NULL;
    for (uint32_t i = queue->count; i-- > 0;) {
        struct message *message = &queue->messages[i];
        bool goes = message_waits(message) && (state_of(player, message) & states);
        message->picked = goes && (!behind || behind->id / entries != message->id / entries);
        behind = goes ? message : behind;
    }
    for (uint32_t i = 0; i < queue->count; i++) {
        struct message *message = &queue->messages[i];
        bool ends = message->picked;
        message->picked = false;
        if (!message_waits(message) || !(state_of(player, message) & states))
            continue;
        count++;
        model_event(queue, EVENT_ACK, message, ends);
    }
    int64_t got = qi_purge(player->session.queues[op->queue], states);
    if (got < 0)
        return player_failed(player, "purge", got);
    model_returned(queue);
    return got == count || player_complain(player, "purge of states %u gave %lld, not %u", states,
                                           (long long)got, count);
}

bool play_purge(struct player *player, const struct op *op) {
    struct model_queue *queue = player_queue(player, op);
    if (op->count > 1 && (op->count - 1) % 8 != QI_PURGE_ALL && (op->count - 1) % 8)
        return purge_states(player, op, (op->count - 1) % 8u);
    struct message *last = NULL;
    for (uint32_t i = 0; i < queue->count; i++)
        if (message_waits(&queue->messages[i]))
            last = &queue->messages[i];
    uint32_t count = 0;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct message *message = &queue->messages[i];
        if (!message_waits(message))
            continue;
        count++;
        model_event(queue, EVENT_ACK, message, message == last);
    }
    int64_t got = qi_purge(player->session.queues[op->queue], QI_PURGE_ALL);
    if (got < 0)
        return player_failed(player, "purge", got);
    model_returned(queue);
    return got == count ||
           player_complain(player, "purge gave %lld, not %u", (long long)got, count);
}
