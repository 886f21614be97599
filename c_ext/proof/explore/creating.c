/* creating.c - the rules of a queue, and the operations that create several with one call, and that
 * give one another name. */
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

/* ---- another name ---- */

/* Its own inverse. */
static void exchange(struct model *model) {
    struct renaming *renaming = &model->renaming;
    struct model_queue from = model->queues[renaming->from];
    model->queues[renaming->from] = model->queues[renaming->to];
    model->queues[renaming->to] = from;
    keys_exchange(&model->keys, (uint32_t)renaming->from, (uint32_t)renaming->to);
    renaming->is_done = !renaming->is_done;
}

int settle_renaming(struct session *session, struct model *model) {
    const struct renaming *renaming = &model->renaming;
    if (!renaming->is_open)
        return 0;
    char name = (char)('a' + renaming->to);
    int there = qi_queue_exists(session->store, &name, 1, queue_directory(renaming->to));
    if (there >= 0 && (there == 1) != renaming->is_done)
        exchange(model);
    return there < 0 ? there : 0;
}

/* c and d have rules that the others do not have. */
bool play_rename(struct player *player) {
    struct model *model = &player->model;
    struct session *session = &player->session;
    int from = model->queues[0].exists == PRESENT ? 0 : 1, to = 1 - from;
    qi_store_stats stats;
    if (model->queues[from].exists != PRESENT || model->queues[to].exists != ABSENT)
        return true;
    int error = qi_store_stats_of(session->store, &stats);
    if (!error && stats.format < 2)
        return true;
    char name = (char)('a' + to);
    model->renaming = (struct renaming){.is_open = true, .from = from, .to = to};
    if (!error)
        error = qi_queue_rename(session->queues[from], &name, 1, queue_directory(to));
    if (error)
        return player_failed(player, "rename", error);
    if (!model->renaming.is_done)
        exchange(model);
    model->renaming.is_open = false;
    session->queues[to] = session->queues[from];
    session->queues[from] = NULL;
    return true;
}
