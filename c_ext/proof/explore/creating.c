/* creating.c - the rules of a queue, and the operation that creates several with one call. */
#include <string.h>

#include "proof/explore/operations.h"

int session_rules(struct session *session, int queue) {
    uint64_t any = session->measures ? UINT64_MAX / 2 : 0;
    qi_rules rules = {.max_messages = is_bounded(queue) ? MAX_MESSAGES : 0,
                      .max_bytes = is_bounded(queue) ? MAX_BYTES : any,
                      .overflow = buries_its_head(queue) ? QI_BURY_HEAD : QI_DROP_HEAD,
                      .max_deliveries = keeps_dead_letters(queue) ? MAX_DELIVERIES : 0,
                      .dead_letters = keeps_dead_letters(queue)};
    return qi_queue_set_rules(session->queues[queue], &rules);
}

/* Several queues with one call. */
bool play_create_group(struct player *player, const struct op *op) {
    struct session *session = &player->session;
    char names[QUEUES], directories[32 * QUEUES];
    uint32_t sizes[QUEUES], count = op->count < QUEUES ? op->count : QUEUES;
    bool is_new[QUEUES] = {false};
    for (uint32_t i = 0; i < count; i++) {
        int at = (op->queue + (int)i) % QUEUES;
        struct model_queue *queue = &player->model.queues[at];
        names[i] = (char)('a' + at);
        sizes[i] = 1;
        memcpy(directories + 32 * (size_t)i, queue_directory(at), 32);
        is_new[at] = queue->exists != PRESENT;
        queue->exists = is_new[at] ? EITHER_WAY : PRESENT;
    }
    int error = (int)qi_queues_create(session->store, count, names, sizes, directories);
    for (int i = 0; i < QUEUES && error >= 0; i++) {
        char name = (char)('a' + i);
        if (!is_new[i])
            continue;
        player->model.queues[i].exists = PRESENT;
        model_forget(&player->model.queues[i]);
        keys_forget(&player->model.keys, i);
        error =
            qi_queue_open(session->store, &name, 1, queue_directory(i), false, &session->queues[i]);
        if (!error)
            error = session_rules(session, i);
    }
    return error >= 0 || player_failed(player, "create", error);
}
