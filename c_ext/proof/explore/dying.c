/* dying.c - the operation that lets messages die in a queue whose dead letters go to another one:
 * they move before the verb returns, as one transaction. After any crash each is in one of the two.
 *
 * The queue has its other queue for this operation only: no other operation moves anything, and
 * what a model of all of them would have to foresee is this one pass.
 */
#include "proof/explore/operations.h"

#define DEAD_MAX       32u
#define SEGMENTS_MAX   8u    /* as many as one pass of the engine looks into */
#define BYTES_MAX      5000u /* what the smallest journals have a place for at once */
#define BYTES_OF_OTHER 100u  /* of a record, besides the payload */

struct dying {
    int from, to;
    bool foreseen;      /* something moves */
    uint32_t last_lane; /* where the last one goes, */
    uint64_t last_id;   /* and its id there */
};

static bool is_dead(const struct message *message) {
    return message_waits(message) && message->now.time >= model_dead(0);
}

/* The ReqId that the engine gives next there, and how many of this move are in front. */
static uint64_t id_there(const struct player *player, const struct message *const *dead,
                         uint32_t at) {
    uint64_t id = qi_sim_next_id(player->session.queues[player->dying->to], dead[at]->priority);
    for (uint32_t i = 0; i < at; i++)
        id += dead[i]->priority == dead[at]->priority;
    return id;
}

/* By id, out of the segments that one pass looks into. */
static uint32_t find_dead(const struct player *player, const struct message **dead) {
    const struct model_queue *queue = &player->model.queues[player->dying->from];
    uint32_t entries = player->program->settings.segment_entries, count = 0, segments = 0;
    for (uint32_t i = 0; i < queue->count && count < DEAD_MAX; i++) {
        const struct message *message = &queue->messages[i];
        if (!is_dead(message))
            continue;
        if (count == 0 || dead[count - 1]->id / entries != message->id / entries)
            segments++;
        if (segments > SEGMENTS_MAX)
            break;
        dead[count++] = message;
    }
    return count;
}

void foresee_dead_moves(struct player *player, const struct model_queue *queue) {
    struct dying *dying = player->dying;
    const struct message *dead[DEAD_MAX];
    if (!dying || queue != &player->model.queues[dying->from])
        return;
    struct model_queue *from = &player->model.queues[dying->from];
    struct model_queue *to = &player->model.queues[dying->to];
    uint32_t count = find_dead(player, dead);
    if (count == 0)
        return;
    dying->foreseen = true;
    from->transaction = to->transaction = ++player->model.transactions;
    for (uint32_t i = 0; i < count; i++) {
        struct planned item = {.from = dying->from,
                               .to = dying->to,
                               .from_id = dead[i]->id,
                               .to_id = id_there(player, dead, i),
                               .moved = *dead[i]};
        foresee_moved(player, &item)->expiry_us = 0; /* dead letters move for ever */
        model_event(from, EVENT_ACK, model_find(from, item.from_id), i + 1 == count);
        dying->last_lane = dead[i]->priority;
        dying->last_id = item.to_id;
    }
    to->log[to->log_count - 1].ends_frame = true;
    from->transaction = to->transaction = 0;
}

static bool play_tick(struct player *player, const struct op *op) {
    foresee_dead_moves(player, player_queue(player, op));
    int error = qi_store_tick(player->session.store);
    if (error)
        return player_failed(player, "tick", error);
    model_returned(player_queue(player, op));
    return true;
}

static bool any_out(const struct model_queue *queue) {
    for (uint32_t i = 0; i < queue->count; i++)
        if (queue->messages[i].out)
            return true;
    return false;
}

static bool play_death(struct player *player, struct op op) {
    static const uint8_t kinds[3] = {OP_EXPIRE, OP_GET, OP_TICK};
    op.kind = any_out(player_queue(player, &op)) && op.size % 4 ? OP_REJECT : kinds[op.size % 3];
    switch (op.kind) {
    case OP_REJECT:
        return play_ack(player, &op);
    case OP_EXPIRE:
        return play_expire(player, &op);
    case OP_GET:
        return play_get(player, &op);
    default:
        return play_tick(player, &op);
    }
}

/* All of them moved, or a fault kept them where they were: then whether the log has them is not
 * known, and the store is opened anew. */
static bool check_moved(struct player *player, const struct dying *dying) {
    if (!dying->foreseen || player->broken)
        return true;
    if (qi_sim_next_id(player->session.queues[dying->to], dying->last_lane) == dying->last_id + 1) {
        model_returned(&player->model.queues[dying->to]);
        return true;
    }
    player->broken = true;
    if (player_lossy(player) || (player->fault && fault_hits(player->session.sim) > 0))
        return true;
    return player_complain(player, "dead letters of %c did not move to %c", 'a' + dying->from,
                           'a' + dying->to);
}

static bool is_small(const struct model_queue *queue) {
    uint32_t bytes = 0, count = 0;
    for (uint32_t i = 0; i < queue->count; i++) {
        const struct message *message = &queue->messages[i];
        if (!message->now.published || message->now.acked)
            continue;
        bytes += message->headers_size + message->body_size + BYTES_OF_OTHER;
        count++;
    }
    return bytes <= BYTES_MAX && count <= DEAD_MAX;
}

bool play_die(struct player *player, const struct op *op) {
    struct model *model = &player->model;
    struct dying dying = {.from = op->queue, .to = model->queues[0].exists == PRESENT ? 0 : 1};
    struct session *session = &player->session;
    const char name = (char)('a' + dying.to);
    qi_queue_stats stats;
    if (!keeps_moments(player) || !keeps_dead_letters(dying.from) ||
        model->queues[dying.to].exists != PRESENT || model->transactions == TRANSACTIONS ||
        !is_small(&model->queues[dying.from]))
        return true;
    qi_queue *from = session->queues[dying.from];
    int error = qi_queue_stats_of(from, &stats); /* read: else nobody knows its dead letters, */
    if (!error)
        error = qi_queue_stats_of(session->queues[dying.to], &stats); /* and the next id there */
    if (!error)
        error = qi_queue_set_dead_letters(from, &name, 1, queue_directory(dying.to));
    if (error)
        return player_failed(player, "die", error);
    player->dying = &dying;
    bool right = play_death(player, *op) && check_moved(player, &dying);
    player->dying = NULL;
    qi_queue_set_dead_letters(from, NULL, 0, NULL); /* a store that has failed says so later */
    return right;
}
