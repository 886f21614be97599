/* transacting.c - the operation that publishes, acks and moves in several queues: all of it or
 * nothing. */
#include <string.h>

#include "proof/explore/operations.h"

#define CHANGES 5u

enum { WITH_TWO = 1, WITH_ACK = 2, WITH_MOVE = 4, WITH_WAITING = 8 }; /* bits of the count */

struct plan {
    struct planned items[CHANGES];
    qi_change changes[CHANGES + 1]; /* the last one changes keys */
    uint32_t count;
    struct load loads[QUEUES];
    bool is_in[QUEUES];
};

static bool is_there(const struct player *player, int queue) {
    return player->model.queues[queue].exists == PRESENT;
}

static uint32_t lane_of_item(const struct player *player, const struct op *op,
                             const struct planned *item) {
    return item->kind == QI_CHANGE_MOVE ? item->moved.priority : lane_of(player, op);
}

/* Behind those of the same lane that come before it in this transaction. */
static uint64_t id_of(const struct player *player, const struct op *op, const struct plan *plan,
                      const struct planned *item) {
    uint32_t lane = lane_of_item(player, op, item);
    uint64_t id = qi_sim_next_id(player->session.queues[item->to], lane);
    for (const struct planned *other = plan->items; other < item; other++)
        id += other->to == item->to && lane_of_item(player, op, other) == lane;
    return id;
}

static void add(const struct player *player, const struct op *op, struct plan *plan,
                struct planned item, uint32_t bytes) {
    struct planned *added = &plan->items[plan->count++];
    *added = item;
    if (item.from >= 0)
        plan->is_in[item.from] = true;
    if (item.to < 0)
        return;
    added->to_id = id_of(player, op, plan, added);
    plan->is_in[item.to] = true;
    plan->loads[item.to].messages++;
    plan->loads[item.to].bytes += bytes;
}

static bool is_taken(const struct plan *plan, int queue, uint64_t id) {
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->items[i].from == queue && plan->items[i].from_id == id)
            return true;
    return false;
}

/* One that is out, or waits in a queue without bounds, if `size` is odd a dead letter of any queue
 * first; NULL: none is. */
static const struct message *pick(const struct player *player, const struct op *op,
                                  const struct plan *plan, bool waits, int *queue) {
    for (int i = 0; i < QUEUES; i++) {
        *queue = (int)((op->size + (uint32_t)i) % QUEUES);
        const struct model_queue *model = &player->model.queues[*queue];
        bool only_dead = waits && is_bounded(*queue);
        if (!is_there(player, *queue) || (only_dead && op->size % 2 == 0))
            continue;
        const struct message *first = NULL;
        for (uint32_t k = 0; k < model->count; k++) {
            const struct message *message = &model->messages[k];
            if (!(waits ? message_waits(message) : message->out) ||
                is_taken(plan, *queue, message->id))
                continue;
            if (!waits || op->size % 2 == 0 || message->now.time >= model_dead(0))
                return message;
            first = first || only_dead ? first : message;
        }
        if (first)
            return first;
    }
    return NULL;
}

static void plan_settled(const struct player *player, const struct op *op, struct plan *plan,
                         bool moves, bool waits) {
    int from, to;
    const struct message *message = pick(player, op, plan, waits, &from);
    if (!message)
        return;
    struct planned item = {
        moves ? QI_CHANGE_MOVE : QI_CHANGE_ACK, from, -1, message->id, 0, *message};
    for (to = (from + 1) % QUEUES; moves && to != from && !is_there(player, to);)
        to = (to + 1) % QUEUES;
    if (moves && to == from)
        return;
    item.to = moves ? to : -1;
    add(player, op, plan, item, message->headers_size + message->body_size);
}

static void make_plan(const struct player *player, const struct op *op, struct plan *plan) {
    for (int i = 0; i < (op->count & WITH_TWO ? 2 : 1); i++) {
        int to = (op->queue + i) % QUEUES;
        if (is_there(player, to))
            add(player, op, plan, (struct planned){QI_CHANGE_PUBLISH, -1, to, 0, 0, {0}}, op->size);
    }
    if (op->count & WITH_ACK)
        plan_settled(player, op, plan, false, false);
    if (op->count & WITH_MOVE)
        plan_settled(player, op, plan, true, false);
    if (op->count & WITH_WAITING)
        plan_settled(player, op, plan, true, true);
}

struct message *foresee_moved(struct player *player, const struct planned *item) {
    struct model_queue *to = &player->model.queues[item->to];
    const struct message *was = &item->moved;
    struct message *message = model_publish(&player->model, to, item->to_id, false);
    message->serial = was->serial;
    message->headers_size = was->headers_size;
    message->body_size = was->body_size;
    message->transient = was->transient;
    message->priority = was->priority;
    bool was_dead = was->now.time >= model_dead(0) || was->now.time == MODEL_REDRIVEN;
    bool is_over = was->expiry_us <= player->session.sim->wall_us;
    message->expiry_us = was_dead && is_over ? 0 : was->expiry_us; /* alive where it goes */
    message->own_us = was->own_us;
    message->published_us = was->published_us;
    message->old = was->old;
    message->died =
        was->now.time >= model_dead(0) ? (uint32_t)(was->now.time - model_dead(0)) : was->died;
    for (uint32_t i = 0; i < was->now.deliveries; i++)
        model_event(to, EVENT_DELIVER, message, false);
    if (keeps_dead_letters(item->to) && was->now.deliveries &&
        was->now.deliveries % MAX_DELIVERIES == 0) /* it is delivered once more */
        model_time(to, message, MODEL_REDRIVEN, false);
    return message;
}

/* One frame in each queue. */
static void foresee_all(struct player *player, const struct op *op, struct plan *plan,
                        uint8_t payloads[][PAYLOAD_MAX]) {
    struct model *model = &player->model;
    for (int i = 0; i < QUEUES; i++)
        if (plan->loads[i].messages)
            foresee_place(player, &model->queues[i], plan->loads[i]);
    model->transactions++;
    for (int i = 0; i < QUEUES; i++)
        model->queues[i].transaction = plan->is_in[i] ? model->transactions : 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct planned *item = &plan->items[i];
        qi_change *change = &plan->changes[i];
        if (item->kind == QI_CHANGE_PUBLISH) {
            model->serial++;
            const struct message *message =
                foresee(player, op, (uint8_t)item->to, item->to_id, op->size, false);
            payload_fill(message->serial, payloads[i], op->size);
            change->headers_size = message->headers_size;
            change->body = payloads[i] + message->headers_size;
            change->body_size = message->body_size;
            change->expiry_us = message->expiry_us;
        } else if (item->kind == QI_CHANGE_MOVE) {
            foresee_moved(player, item);
        }
        if (item->from >= 0) {
            struct model_queue *from = &model->queues[item->from];
            model_event(from, EVENT_ACK, model_find(from, item->from_id), false);
        }
    }
    for (int i = 0; i < QUEUES; i++) {
        struct model_queue *queue = &model->queues[i];
        if (plan->is_in[i])
            queue->log[queue->log_count - 1].ends_frame = true;
        queue->transaction = 0;
    }
}

static void write_changes(const struct player *player, const struct op *op, struct plan *plan,
                          uint8_t payloads[][PAYLOAD_MAX]) {
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct planned *item = &plan->items[i];
        bool publishes = item->kind == QI_CHANGE_PUBLISH;
        plan->changes[i] =
            (qi_change){.kind = item->kind,
                        .queue = player->session.queues[publishes ? item->to : item->from],
                        .to = item->to < 0 ? NULL : player->session.queues[item->to],
                        .headers = publishes ? payloads[i] : NULL,
                        .body = payloads[i],
                        .body_size = publishes ? op->size : 0,
                        .flags = publishes ? engine_flags(op) : 0,
                        .due_us = publishes ? op_due_us(player, op) : 0,
                        .req_id = item->from_id,
                        .delivery = item->moved.out ? item->moved.delivery : 0};
    }
}

static bool check_ids(struct player *player, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->items[i].to >= 0 && plan->changes[i].req_id != plan->items[i].to_id)
            return player_complain(player, "a transaction gave id %llu, not %llu",
                                   (unsigned long long)plan->changes[i].req_id,
                                   (unsigned long long)plan->items[i].to_id);
    return true;
}

/* Keys of a mapping change, too. */
static void add_keys(struct player *player, const struct op *op, struct plan *plan,
                     uint8_t *entries) {
    struct model *model = &player->model;
    bool of_queue = op->size % 2 && is_there(player, op->queue);
    struct key_change *change = foresee_keys(model, of_queue ? op->queue : QUEUES, op);
    change->transaction = model->transactions;
    plan->changes[plan->count++] =
        (qi_change){.kind = QI_CHANGE_DATA,
                    .queue = of_queue ? player->session.queues[op->queue] : NULL,
                    .body = entries,
                    .body_size = write_keys(change, entries)};
}

bool play_transact(struct player *player, const struct op *op) {
    struct model *model = &player->model;
    qi_store_stats stats;
    struct plan plan = {0};
    uint8_t payloads[CHANGES][PAYLOAD_MAX], entries[KEYS_SIZE];
    if (qi_store_stats_of(player->session.store, &stats) != 0 || stats.format < 2 ||
        model->transactions == TRANSACTIONS)
        return true;
    for (int i = 0; i < QUEUES; i++) { /* read: else nobody knows its next id */
        qi_queue_stats queue;
        int error = is_there(player, i) ? qi_queue_stats_of(player->session.queues[i], &queue) : 0;
        if (error)
            return player_failed(player, "stats", error);
    }
    make_plan(player, op, &plan);
    if (plan.count == 0)
        return true;
    bool full = false, confirm = op->size % 4 == 0;
    for (int i = 0; i < QUEUES; i++)
        full =
            full || (plan.loads[i].messages && is_full(player, &model->queues[i], plan.loads[i]));
    memset(payloads, 0, sizeof payloads);
    write_changes(player, op, &plan, payloads);
    if (!full)
        foresee_all(player, op, &plan, payloads);
    uint32_t failed, messages = plan.count;
    if (!full && op->size % 3 == 1)
        add_keys(player, op, &plan, entries);
    int error = qi_transaction(player->session.store, plan.changes, plan.count, confirm, &failed);
    plan.count = messages;
    if (full)
        return is_refused(player, "transact", error);
    if (error)
        return player_failed(player, "transact", error);
    for (int i = 0; i < QUEUES; i++) {
        if (!plan.is_in[i])
            continue;
        model_returned(&model->queues[i]);
        if (confirm)
            model_synced(&model->queues[i]);
    }
    model->keys.returned = model->keys.count;
    if (confirm)
        keys_synced(&model->keys);
    return check_ids(player, &plan);
}

void foresee_deleted(struct model *model, const struct model_queue *queue) {
    uint32_t last = queue->confirmed;
    for (uint32_t i = 0; i < queue->log_count; i++)
        if (queue->log[i].transaction)
            last = queue->log[i].transaction;
    if (model->sure < last)
        model->sure = last;
}
