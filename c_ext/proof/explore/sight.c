/* sight.c - what was seen, against what was seen before and what the model allows. */
#include <string.h>

#include "proof/explore/player.h"

/* The power cut was an unclean end: what was shown and transient is gone. */
static uint32_t without_transients(struct seen *seen, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!(seen[i].flags & QI_TRANSIENT))
            seen[kept++] = seen[i];
    return kept;
}

bool sight_is_same(struct sight *one, const struct sight *two, struct verdict *verdict) {
    for (int i = 0; i < QUEUES; i++) {
        one->count[i] = without_transients(one->seen[i], one->count[i]);
        if (one->exists[i] != two->exists[i] || one->count[i] != two->count[i])
            return verdict_complain(verdict,
                                    "%c: %u messages were shown, a power cut later there are %u",
                                    'a' + i, one->count[i], two->count[i]);
        if (two->next[i] < one->next[i])
            return verdict_complain(verdict, "%c: the next id fell from %llu to %llu", 'a' + i,
                                    (unsigned long long)one->next[i],
                                    (unsigned long long)two->next[i]);
        for (uint32_t k = 0; k < one->count[i]; k++)
            if (one->seen[i][k].id != two->seen[i][k].id ||
                one->seen[i][k].deliveries != two->seen[i][k].deliveries ||
                one->seen[i][k].due_us != two->seen[i][k].due_us ||
                !(two->seen[i][k].flags & QI_REDELIVERED))
                return verdict_complain(
                    verdict, "%c: message %llu was shown, a power cut later it is not the same",
                    'a' + i, (unsigned long long)one->seen[i][k].id);
    }
    return keys_are_same(&one->keys, &two->keys, one->exists) ||
           verdict_complain(verdict,
                            "mappings were shown, a power cut later they are not the same");
}

/* What is in both; false: nothing is. */
static bool cuts_meet(struct cuts *all, const struct cuts *own) {
    bool any = false;
    for (uint32_t i = 0; i <= TRANSACTIONS; i++)
        any |= all->may_be[i] = all->may_be[i] && own->may_be[i];
    return any;
}

static bool allowed_as(const struct sight *sight, const struct model *model, bool killed,
                       enum ended ended, struct verdict *verdict) {
    struct cuts all, own;
    for (uint32_t i = 0; i <= TRANSACTIONS; i++)
        all.may_be[i] = i >= model->sure;
    for (int i = 0; i < QUEUES; i++) {
        const struct model_queue *queue = &model->queues[i];
        if (!sight->exists[i])
            continue;
        struct verdict why;
        if (!model_allows(queue, sight->seen[i], sight->count[i], ended, killed, &own, &why))
            return verdict_complain(verdict, "%c: %s", 'a' + i, why.text);
        if (!cuts_meet(&all, &own))
            return verdict_complain(verdict,
                                    "%c: a transaction is there, but not in other queues, or the "
                                    "other way round",
                                    'a' + i);
        for (uint32_t k = 0; k < sight->count[i] && model_lane(sight->seen[i][k].id) == 0; k++)
            if (sight->next[i] <= sight->seen[i][k].id)
                return verdict_complain(verdict, "%c: the next id is not above that of a message",
                                        'a' + i);
        if (sight->next[i] < model_next_min(queue, 0))
            return verdict_complain(
                verdict, "%c: the next id is %llu, but ids below %llu were given", 'a' + i,
                (unsigned long long)sight->next[i], (unsigned long long)model_next_min(queue, 0));
    }
    if (!keys_allow(&model->keys, &sight->keys, sight->exists, killed, &own))
        return verdict_complain(verdict,
                                "the mappings are not what their first changes make of them");
    return cuts_meet(&all, &own) ||
           verdict_complain(verdict, "keys of a transaction changed, but not its queues, or the "
                                     "other way round");
}

bool sight_allowed(const struct sight *sight, const struct model *model, bool killed,
                   enum ended *ended, struct verdict *verdict) {
    *ended = model->ended == CLEAN ? CLEAN : UNCLEAN;
    if (allowed_as(sight, model, killed, *ended, verdict))
        return true;
    if (model->ended != UNCLEAN_OR_CLEAN)
        return false;
    *ended = CLEAN;
    if (!allowed_as(sight, model, killed, CLEAN, verdict))
        return false;
    verdict->text[0] = 0;
    return true;
}
