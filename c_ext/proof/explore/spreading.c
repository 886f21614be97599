/* spreading.c - publishes to several queues: one message to all (a fan-out), or two to each in one
 * frame, which are told apart by their leases (qi_publish_mixed). */
#include "proof/explore/operations.h"

#include "qindex.h"

struct spreading {
    uint8_t payload[PAYLOAD_MAX];
    qi_queue *queues[QUEUES];
    uint8_t numbers[QUEUES];
    uint64_t expected[QUEUES]; /* ids: of the first one there */
    uint32_t count, each;
};

static bool choose(struct player *player, const struct op *op, struct spreading *spreading) {
    for (uint8_t i = 0; i < QUEUES && spreading->count < op->count; i++) {
        uint8_t queue = (uint8_t)((op->queue + i) % QUEUES);
        if (player->model.queues[queue].exists != PRESENT)
            continue;
        uint32_t at = spreading->count++;
        spreading->expected[at] = next_id(player, op, queue);
        if (spreading->expected[at] == UINT64_MAX)
            return false;
        spreading->numbers[at] = queue;
        spreading->queues[at] = player->session.queues[queue];
    }
    return true;
}

/* The second of each queue has a lease of its own, where stores keep one. */
static uint64_t lease_of(const struct player *player, uint32_t nth) {
    return nth && keeps_moments(player) ? 200000 : 0;
}

/* As many messages as `each` says to each queue, those of one queue not side by side. */
static int publish_mixed(struct player *player, const struct op *op, const struct message *message,
                         const struct spreading *spreading, uint64_t *got) {
    qi_change changes[2 * QUEUES] = {0};
    uint32_t count = spreading->count * spreading->each, failed;
    for (uint32_t i = 0; i < count; i++)
        changes[i] = (qi_change){.kind = QI_CHANGE_PUBLISH,
                                 .queue = spreading->queues[i % spreading->count],
                                 .headers = spreading->payload,
                                 .headers_size = message->headers_size,
                                 .body = spreading->payload + message->headers_size,
                                 .body_size = message->body_size,
                                 .flags = engine_flags(op),
                                 .expiry_us = message->expiry_us,
                                 .due_us = op_due_us(player, op),
                                 .lease_us = lease_of(player, i / spreading->count)};
    int error = qi_publish_mixed(player->session.store, changes, count, &failed);
    for (uint32_t i = 0; i < count; i++)
        got[i] = changes[i].req_id;
    return error;
}

static int publish(struct player *player, const struct op *op, const struct message *message,
                   const struct spreading *spreading, uint64_t *got) {
    if (spreading->each > 1)
        return publish_mixed(player, op, message, spreading, got);
    return qi_store_publish(
        player->session.store, (qi_queue **)spreading->queues, spreading->count, spreading->payload,
        message->headers_size, spreading->payload + message->headers_size, message->body_size,
        engine_flags(op), message->expiry_us, op_due_us(player, op), 0, false, got);
}

bool play_fanout(struct player *player, const struct op *op) {
    struct spreading spreading = {.each = op->size % 3 == 0 ? 2 : 1};
    struct message message = {.body_size = op->size};
    uint64_t got[2 * QUEUES] = {0};
    player->model.serial++;
    if (!choose(player, op, &spreading))
        return !player->verdict.text[0];
    bool full = false;
    const struct load more = {spreading.each, spreading.each * op->size};
    for (uint32_t i = 0; i < spreading.count; i++)
        full = full || is_full(player, &player->model.queues[spreading.numbers[i]], more);
    if (full)
        return is_refused(player, "fanout", publish(player, op, &message, &spreading, got));
    for (uint32_t i = 0; i < spreading.count; i++)
        foresee_place(player, &player->model.queues[spreading.numbers[i]], more);
    for (uint32_t i = 0; i < spreading.count; i++)
        for (uint32_t nth = 0; nth < spreading.each; nth++) {
            struct message *known =
                foresee(player, op, spreading.numbers[i], spreading.expected[i] + nth, op->size,
                        nth + 1 == spreading.each);
            known->own_us = lease_of(player, nth);
            message = *known;
        }
    payload_fill(message.serial, spreading.payload, op->size);
    int error = publish(player, op, &message, &spreading, got);
    if (error)
        return player_failed(player, "fanout", error);
    for (uint32_t i = 0; i < spreading.count * spreading.each; i++) {
        uint32_t at = i % spreading.count;
        uint64_t expected = spreading.expected[at] + i / spreading.count;
        if (got[i] != expected)
            return check_id(player, "fanout", (int64_t)got[i], expected);
    }
    for (uint32_t i = 0; i < spreading.count; i++)
        model_returned(&player->model.queues[spreading.numbers[i]]);
    return true;
}
