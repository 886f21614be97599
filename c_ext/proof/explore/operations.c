/* operations.c - each operation, first in the model (a power cut in the middle may find any part of
 * it), then in the engine, whose answer must be what the model says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proof/explore/operations.h"

struct model_queue *player_queue(struct player *player, const struct op *op) {
    return &player->model.queues[op->queue];
}

/* Nobody has it: it is ready, or delayed. */
bool message_waits(const struct message *message) {
    return message->now.published && !message->now.acked && !message->out;
}

uint64_t player_now_us(const struct player *player) {
    return qi_store_now_us(player->session.store);
}

uint64_t player_steady_us(const struct player *player) {
    return player->session.sim->monotonic_us;
}

static bool is_ready(const struct player *player, const struct message *message) {
    return message_waits(message) && message->now.time <= player_now_us(player);
}

/* Up to a second, and now and then more than the minute of a lane. */
static uint64_t delay_us(const struct op *op) {
    return op->size % 7 == 0 ? 70000000 : 1000 * (1 + op->size % 900);
}

/* An error is a finding, unless calls fail on purpose. */
bool player_failed(struct player *player, const char *what, int64_t code) {
    player->broken = true;
    if (player->fault && fault_explains(player->fault, player->session.sim, code))
        return true;
    if (!player->fault && (player->armed && player_lossy(player)))
        return true;
    return player_complain(player, "%s failed: %s (%lld)", what, qi_error_text(), (long long)code);
}

static uint32_t priority_of(const struct op *op) {
    static const uint8_t priorities[3] = {1, 9, 255};
    return op->flags & FLAG_PRIORITY ? priorities[op->size % 3] : 0;
}

uint64_t op_due_us(const struct player *player, const struct op *op) {
    if (!(op->flags & FLAG_DELAY))
        return 0;
    return op->flags & FLAG_PAST ? 1 + op->size % 4 : player_now_us(player) + delay_us(op);
}

uint64_t model_due_us(uint64_t due_us) {
    return due_us && due_us < MODEL_FIRST ? MODEL_FIRST : due_us;
}

/* As the engine chooses it: the priority, or the minute (nothing here is delayed for an hour). */
uint32_t lane_of(const struct player *player, const struct op *op) {
    uint64_t due_us = op_due_us(player, op);
    return due_us ? 512 + (uint32_t)(due_us / 60000000 % 256) : priority_of(op);
}

/* UINT64_MAX: an error, and whether it is a finding was said. */
uint64_t next_id(struct player *player, const struct op *op, uint8_t queue) {
    qi_queue_stats stats;
    int error = qi_queue_stats_of(player->session.queues[queue], &stats);
    if (error) {
        player_failed(player, "stats", error);
        return UINT64_MAX;
    }
    return qi_sim_next_id(player->session.queues[queue], lane_of(player, op));
}

/* What was taken back stays in its place, delivered or not. */
static uint64_t place_in_time(const struct message *message) {
    return message->now.time == MODEL_REDRIVEN ? MODEL_REDRIVEN + 1 : message->now.time;
}

/* Does a consumer get the one before the other? The higher priority; then what was delayed, by its
 * time; then by id. A full queue is left by the lower priority first; then by id; then by what was
 * delayed. */
static bool is_before(const struct message *one, const struct message *other, bool to_leave) {
    uint64_t time = place_in_time(one), other_time = place_in_time(other);
    if (one->priority != other->priority)
        return (one->priority > other->priority) != to_leave;
    if (!time != !other_time)
        return (time != 0) != to_leave;
    return time != other_time ? time < other_time : one->id < other->id;
}

struct message *foresee_best(struct player *player, struct model_queue *queue) {
    struct message *found = NULL;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct message *message = &queue->messages[i];
        if (is_ready(player, message) && !message->picked &&
            (!found || is_before(message, found, false)))
            found = message;
    }
    return found;
}

/* It may leave a full queue: it is ready, and was not taken back from the dead letters. */
static bool may_make_place(const struct player *player, const struct message *message) {
    return is_ready(player, message) && message->now.time != MODEL_REDRIVEN;
}

static struct message *oldest(struct player *player, struct model_queue *queue) {
    struct message *found = NULL;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct message *message = &queue->messages[i];
        if (may_make_place(player, message) && (!found || is_before(message, found, true)))
            found = message;
    }
    return found;
}

/* ---- publish ---- */

static void describe(struct player *player, const struct op *op, uint32_t size,
                     struct message *message) {
    message->headers_size = op->flags & FLAG_HEADERS && size > 8 ? 8 : 0;
    message->body_size = size - message->headers_size;
    message->transient = op->flags & FLAG_TRANSIENT;
    message->priority = priority_of(op);
    message->published_us = keeps_moments(player) ? player->session.sim->wall_us : 0;
    message->expiry_us = op->flags & FLAG_EXPIRES ? player->session.sim->wall_us + 400000 : 0;
}

uint32_t engine_flags(const struct op *op) {
    return (op->flags & FLAG_TRANSIENT ? QI_TRANSIENT : 0u) |
           (op->flags & FLAG_REDELIVERED ? QI_REDELIVERED : 0u) |
           priority_of(op) << QI_PRIORITY_SHIFT;
}

struct message *foresee(struct player *player, const struct op *op, uint8_t queue, uint64_t id,
                        uint32_t size, bool last) {
    struct model_queue *model = &player->model.queues[queue];
    bool redelivered = op->flags & FLAG_REDELIVERED, delayed = op->flags & FLAG_DELAY;
    struct message *message =
        model_publish(&player->model, model, id, last && !redelivered && !delayed);
    describe(player, op, size, message);
    if (redelivered)
        model_event(model, EVENT_DELIVER, message, last && !delayed);
    if (delayed)
        model_time(model, message, model_due_us(op_due_us(player, op)), last);
    return message;
}

static int number_of(const struct player *player, const struct model_queue *queue) {
    return (int)(queue - player->model.queues);
}

static struct load load_of(const struct message *message) {
    return (struct load){1, message->headers_size + message->body_size};
}

/* Dead letters do not count. */
static struct load load_here(const struct model_queue *queue) {
    struct load here = {0};
    for (uint32_t i = 0; i < queue->count; i++) {
        const struct state *now = &queue->messages[i].now;
        if (!now->published || now->acked || now->time >= model_dead(0))
            continue;
        here.messages++;
        here.bytes += load_of(&queue->messages[i]).bytes;
    }
    return here;
}

static bool is_over(const struct player *player, const struct model_queue *queue, struct load here,
                    struct load more) {
    return is_bounded(number_of(player, queue)) &&
           (here.messages + more.messages > MAX_MESSAGES || here.bytes + more.bytes > MAX_BYTES);
}

static void take_off(struct load *here, const struct message *message) {
    here->messages--;
    here->bytes -= load_of(message).bytes;
}

/* No place for so much, even if all that is ready went. */
bool is_full(const struct player *player, const struct model_queue *queue, struct load more) {
    struct load here = load_here(queue);
    for (uint32_t i = 0; i < queue->count; i++)
        if (may_make_place(player, &queue->messages[i]))
            take_off(&here, &queue->messages[i]);
    return is_over(player, queue, here, more);
}

/* The heads of a full queue go, in one frame. */
void foresee_place(struct player *player, struct model_queue *queue, struct load more) {
    struct load here = load_here(queue);
    while (is_over(player, queue, here, more)) {
        struct message *head = oldest(player, queue);
        take_off(&here, head);
        bool last = !is_over(player, queue, here, more);
        if (buries_its_head(number_of(player, queue)))
            model_time(queue, head, model_dead(QI_DEAD_FULL), last);
        else
            model_event(queue, EVENT_ACK, head, last);
    }
}

bool is_refused(struct player *player, const char *what, int64_t code) {
    if (code == QI_E_QUEUE_FULL)
        return true;
    return code < 0 ? player_failed(player, what, code)
                    : player_complain(player, "%s went into a queue that is full", what);
}

bool check_id(struct player *player, const char *what, int64_t got, uint64_t expected) {
    if (got < 0)
        return player_failed(player, what, got);
    if ((uint64_t)got != expected)
        return player_complain(player, "%s gave id %lld, not %llu", what, (long long)got,
                               (unsigned long long)expected);
    return true;
}

static bool id_is_new(struct player *player, const struct op *op, uint64_t id) {
    uint64_t least = model_next_min(player_queue(player, op), model_lane(id));
    return id >= least ||
           player_complain(player, "id %llu is given again: ids below %llu were given",
                           (unsigned long long)id, (unsigned long long)least);
}

static bool play_publish(struct player *player, const struct op *op) {
    uint64_t id = next_id(player, op, op->queue);
    if (id == UINT64_MAX)
        return !player->verdict.text[0];
    if (!id_is_new(player, op, id))
        return false;
    uint8_t payload[PAYLOAD_MAX] = {0};
    player->model.serial++;
    struct load more = {1, op->size};
    if (is_full(player, player_queue(player, op), more))
        return is_refused(player, "publish",
                          qi_publish_with(player->session.queues[op->queue], NULL, 0, payload,
                                          op->size, engine_flags(op), 0, op_due_us(player, op)));
    foresee_place(player, player_queue(player, op), more);
    struct message *message = foresee(player, op, op->queue, id, op->size, true);
    payload_fill(message->serial, payload, op->size);
    int64_t got =
        publish_message(player, op, message, payload, engine_flags(op), op_due_us(player, op));
    if (got >= 0)
        model_returned(player_queue(player, op));
    return check_id(player, "publish", got, id);
}

static bool play_batch(struct player *player, const struct op *op) {
    uint8_t bodies[2 * PAYLOAD_MAX + MANY * 400] = {0}, *next = bodies;
    uint32_t sizes[MANY], count = op->count > MANY ? MANY : op->count;
    struct op plain = *op;
    plain.flags &= (uint8_t)~FLAG_HEADERS;
    uint64_t id = next_id(player, op, op->queue), expiry_us = 0;
    uint32_t engine = engine_flags(op) | QI_STEADY; /* as of bytes in Python */
    if (id == UINT64_MAX)
        return !player->verdict.text[0];
    if (!id_is_new(player, op, id))
        return false;
    struct load more = {count, 0};
    for (uint32_t i = 0; i < count; i++)
        more.bytes += sizes[i] = op->size >= LONG_BODY && (i == 0 || i == 2)
                                     ? op->size
                                     : (op->size + 37 * i) % (count > 16 ? 80 : 400);
    if (is_full(player, player_queue(player, op), more))
        return is_refused(player, "publish_many",
                          qi_publish_many(player->session.queues[op->queue], count, bodies, sizes,
                                          NULL, NULL, engine, 0, op_due_us(player, op), NULL,
                                          NULL));
    foresee_place(player, player_queue(player, op), more);
    for (uint32_t i = 0; i < count; i++) {
        player->model.serial++;
        expiry_us = foresee(player, &plain, op->queue, id + i, sizes[i], i + 1 == count)->expiry_us;
        payload_fill(player->model.serial, next, sizes[i]);
        next += sizes[i];
    }
    int64_t got = qi_publish_many(player->session.queues[op->queue], count, bodies, sizes, NULL,
                                  NULL, engine, expiry_us, op_due_us(player, op), NULL, NULL);
    if (got >= 0)
        model_returned(player_queue(player, op));
    return check_id(player, "publish_many", got, id);
}

/* ---- the store as a whole ---- */

static bool play_sync(struct player *player, const struct op *op) {
    int error = op->kind == OP_SYNC ? qi_queue_sync(player->session.queues[op->queue])
                                    : qi_store_sync(player->session.store);
    if (error)
        return player_failed(player, "sync", error);
    for (int i = 0; i < QUEUES; i++)
        if (op->kind == OP_SYNC_ALL || i == op->queue)
            model_synced(&player->model.queues[i]);
    if (op->kind == OP_SYNC_ALL)
        keys_synced(&player->model.keys);
    return true;
}

static bool play_create(struct player *player, const struct op *op, bool create) {
    struct model_queue *queue = player_queue(player, op);
    struct session *session = &player->session;
    queue->exists = EITHER_WAY;
    int error;
    if (create) {
        char name = (char)('a' + op->queue);
        error = qi_queue_open(session->store, &name, 1, queue_directory(op->queue), true,
                              &session->queues[op->queue]);
        if (!error)
            error = session_rules(session, op->queue);
        if (!error && player->program->settings.next)
            error = (int)next_note(session, op->queue);
    } else {
        error = qi_queue_delete(session->queues[op->queue]);
    }
    if (error)
        return player_failed(player, create ? "create" : "delete", error);
    queue->exists = create ? PRESENT : ABSENT;
    if (!create)
        foresee_deleted(&player->model, queue);
    model_forget(queue);
    keys_forget(&player->model.keys, op->queue);
    return true;
}

static bool play_tick(struct player *player, bool idle) {
    int error = qi_store_tick(player->session.store);
    if (!error && idle) {
        qi_sim_advance(player->session.sim, 2 * IDLE_US);
        error = qi_store_tick(player->session.store);
    }
    return !error || player_failed(player, "tick", error);
}

static bool play_reopen(struct player *player) {
    struct qi_sim *sim = player->session.sim;
    player->model.ended = UNCLEAN_OR_CLEAN;
    int error = qi_store_close(player->session.store);
    if (error)
        return player_failed(player, "close", error);
    for (int i = 0; i < QUEUES; i++)
        model_synced(&player->model.queues[i]);
    keys_synced(&player->model.keys);
    player->model.ended = CLEAN;
    player_point(player, "closed");
    if (player->verdict.text[0])
        return false;
    return player_reopen(player, sim, true);
}

static bool play_crash(struct player *player, const struct op *op) {
    struct qi_sim *old = player->session.sim;
    bool killed = op->kind == OP_KILL, lossy = player_lossy(player);
    struct qi_sim *sim = killed ? qi_sim_kill(old) : qi_sim_crash(old, op->size, QI_SIM_MIXED);
    old->watch = NULL;
    if (player->fault)
        fault_hand_over(old, sim);
    return player_reopen(player, sim, killed && !lossy);
}

/* Somebody sets the wall clock: by half a second or half a minute and more, ahead or back. */
static void play_step(struct player *player, const struct op *op) {
    int64_t by_us = ((int64_t)op->size - 500) * (op->size % 2 ? 1000 : 150000);
    qi_sim_set_wall(player->session.sim, player->session.sim->wall_us + (uint64_t)by_us);
}

static bool play_other(struct player *player, const struct op *op) {
    switch (op->kind) {
    case OP_COMPACT: {
        int64_t freed = qi_store_compact(player->session.store, 20);
        return freed >= 0 || player_failed(player, "compact", freed);
    }
    case OP_TICK:
    case OP_IDLE:
        return play_tick(player, op->kind == OP_IDLE);
    case OP_ADVANCE:
        qi_sim_advance(player->session.sim, op->size * UINT64_C(1000));
        return true;
    case OP_STEP:
        play_step(player, op);
        return true;
    case OP_REOPEN:
    case OP_UPGRADE:
        return play_reopen(player);
    case OP_FAIL:
        if (!player->fault && !player->armed) /* one fault at a time */
            player->session.sim->fail_sync = 1 + op->size % 4;
        player->armed = player->armed || !player->fault;
        return true;
    case OP_CUT:
    case OP_KILL:
        return play_crash(player, op);
    case OP_DATA:
        return play_data(player, op);
    case OP_TRANSACT:
        return play_transact(player, op);
    case OP_RENAME:
        return play_rename(player);
    default:
        return play_sync(player, op);
    }
}

bool operation_play(struct player *player, const struct op *op) {
    bool of_queue = op->kind < OP_COMPACT || op->kind == OP_SYNC || op->kind == OP_DELETE ||
                    (op->kind >= OP_RESCHEDULE && op->kind <= OP_LATE) || op->kind >= OP_HAD;
    bool exists = player_queue(player, op)->exists == PRESENT;
    if (op->kind == OP_CREATE || (op->kind == OP_PUBLISH && !exists))
        return op->kind == OP_CREATE && op->count > 1 ? play_create_group(player, op)
                                                      : exists || play_create(player, op, true);
    if (of_queue && !exists)
        return true;
    end_leases(player);
    switch (op->kind) {
    case OP_PUBLISH:
        return play_publish(player, op);
    case OP_BATCH:
        return play_batch(player, op);
    case OP_FANOUT:
        return play_fanout(player, op);
    case OP_GET:
        return play_get(player, op);
    case OP_GET_MANY:
        return play_get_many(player, op);
    case OP_ACK:
    case OP_ACK_MANY:
    case OP_NACK:
    case OP_REJECT:
        return play_ack(player, op);
    case OP_LATE:
        return play_late(player, op);
    case OP_REDRIVE:
        return play_redrive(player, op);
    case OP_EXPIRE:
        return play_expire(player, op);
    case OP_HAD:
        return play_had(player, op);
    case OP_DIE:
        return play_die(player, op);
    case OP_RESCHEDULE:
    case OP_DROP:
        return play_waiting(player, op);
    case OP_PURGE:
        return play_purge(player, op);
    case OP_FLUSH: {
        int error = qi_flush(player->session.queues[op->queue]);
        return !error || player_failed(player, "flush", error);
    }
    case OP_DELETE:
        return play_create(player, op, false);
    default:
        return play_other(player, op);
    }
}
