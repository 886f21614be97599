/* keys.c - the durable mappings: what a power cut may leave of them, and the operation that changes
 * one.
 *
 * All changes of all mappings stand in one log. So after a power cut they are what the first k
 * changes make of them, for some k; never a part of a change.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "proof/explore/operations.h"

static void apply(struct keys *keys, const struct key_change *change) {
    for (uint32_t i = 0; i < KEYS; i++)
        if (change->is_set[i])
            keys->values[change->scope][i] = change->values[i];
}

static bool is_equal(const struct keys *one, const struct keys *other, const bool *exists) {
    for (uint32_t scope = 0; scope <= QUEUES; scope++)
        if ((scope == QUEUES || exists[scope]) &&
            memcmp(one->values[scope], other->values[scope], sizeof one->values[scope]) != 0)
            return false;
    return true;
}

bool keys_allow(const struct model_keys *model, const struct keys *seen, const bool *exists,
                bool killed, struct cuts *cuts) {
    struct keys keys = model->durable;
    const struct log_shape log = {model->log, sizeof *model->log,
                                  offsetof(struct key_change, transaction), model->count};
    bool allowed = false;
    *cuts = (struct cuts){0};
    for (uint32_t i = 0; i <= model->count; i++) {
        if ((!killed || i >= model->returned) && is_equal(&keys, seen, exists)) {
            cuts_note(cuts, model->confirmed, &log, i);
            allowed = true;
        }
        if (i < model->count)
            apply(&keys, &model->log[i]);
    }
    return allowed;
}

bool keys_are_same(const struct keys *one, const struct keys *other, const bool *exists) {
    return is_equal(one, other, exists);
}

void keys_synced(struct model_keys *model) {
    for (uint32_t i = 0; i < model->returned; i++) {
        apply(&model->durable, &model->log[i]);
        if (model->log[i].transaction)
            model->confirmed = model->log[i].transaction;
    }
    model->count -= model->returned;
    memmove(model->log, model->log + model->returned, model->count * sizeof *model->log);
    model->returned = 0;
}

void keys_rebase(struct model_keys *model, const struct keys *seen) {
    model->durable = *seen;
    model->count = model->returned = model->confirmed = 0;
}

void keys_forget(struct model_keys *model, int queue) {
    memset(model->durable.values[queue], 0, sizeof model->durable.values[queue]);
    for (uint32_t i = 0; i < model->count; i++)
        if (model->log[i].scope == (uint32_t)queue)
            memset(model->log[i].is_set, 0, sizeof model->log[i].is_set);
}

void keys_exchange(struct model_keys *model, uint32_t one, uint32_t other) {
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t value = model->durable.values[one][i];
        model->durable.values[one][i] = model->durable.values[other][i];
        model->durable.values[other][i] = value;
    }
    for (uint32_t i = 0; i < model->count; i++) {
        uint32_t *scope = &model->log[i].scope;
        *scope = *scope == one ? other : *scope == other ? one : *scope;
    }
}

/* ---- the engine's ---- */

static uint32_t value_of(uint32_t serial, uint8_t *bytes) {
    uint32_t size = 4 + serial % (KEY_VALUE_MAX - 4);
    payload_fill(serial, bytes, size);
    qi_put32(bytes, serial);
    return size;
}

/* 0: these bytes are no value of ours. */
static uint32_t serial_of(const uint8_t *bytes, uint32_t size) {
    uint8_t expected[KEY_VALUE_MAX];
    uint32_t serial = size >= 4 ? qi_get32(bytes) : 0;
    return serial && value_of(serial, expected) == size && memcmp(bytes, expected, size) == 0
               ? serial
               : 0;
}

static bool look_at(struct keys *seen, uint32_t scope, const uint8_t *entries, int64_t size) {
    for (const uint8_t *at = entries; at < entries + size;) {
        uint32_t key_size = qi_get16(at), value_size = qi_get32(at + 2 + key_size);
        const uint8_t *value = at + 6 + key_size;
        uint32_t key = (uint32_t)(at[2] - 'a');
        if (key_size != 1 || key >= KEYS || seen->values[scope][key])
            return false;
        if ((seen->values[scope][key] = serial_of(value, value_size)) == 0)
            return false;
        at = value + value_size;
    }
    return true;
}

int64_t keys_look(const struct session *session, struct keys *seen) {
    uint8_t entries[KEYS_SIZE];
    qi_store_stats stats;
    *seen = (struct keys){0};
    if (qi_store_stats_of(session->store, &stats) != 0 || stats.format < 2)
        return 0;
    for (uint32_t scope = 0; scope <= QUEUES; scope++) {
        qi_queue *queue = scope < QUEUES ? session->queues[scope] : NULL;
        if (scope < QUEUES && !queue)
            continue;
        int64_t size = qi_data_all(session->store, queue, entries, sizeof entries);
        if (size == QI_E_CLOSED) /* it was deleted */
            continue;
        if (size < 0)
            return size;
        if (size > (int64_t)sizeof entries || !look_at(seen, scope, entries, size))
            return QI_E_CORRUPT;
    }
    return 0;
}

/* ---- when a queue wants to be looked at ---- */

#define NEXT      "\0next:"
#define NEXT_SIZE 38u
#define NEXT_HEAD 16u /* session 8, time 8; behind it the queue's name */

static int64_t next_of(const struct session *session, int queue, uint8_t *key, uint8_t *value) {
    memcpy(key, NEXT, sizeof NEXT - 1);
    memcpy(key + sizeof NEXT - 1, queue_directory(queue), 32);
    qi_store_stats stats;
    if (qi_store_stats_of(session->store, &stats) != 0 || stats.format < 2)
        return QI_E_FORMAT;
    return qi_data_get(session->store, NULL, key, NEXT_SIZE, value, NEXT_HEAD + 1);
}

int64_t next_note(const struct session *session, int queue) {
    uint8_t entry[2 + NEXT_SIZE + 4 + NEXT_HEAD + 1] = {0}, value[NEXT_HEAD + 1];
    int64_t there = next_of(session, queue, entry + 2, value);
    if (there != QI_E_UNKNOWN)
        return there == QI_E_FORMAT || there > 0 ? 0 : there;
    qi_put16(entry, NEXT_SIZE);
    qi_put32(entry + 2 + NEXT_SIZE, NEXT_HEAD + 1);
    entry[sizeof entry - 2] = 1; /* look at once */
    entry[sizeof entry - 1] = (uint8_t)('a' + queue);
    return qi_data_change(session->store, NULL, entry, sizeof entry, false);
}

bool next_is_known(const struct session *session, int queue, const struct sight *sight,
                   struct model_queue *model, struct verdict *verdict) {
    uint8_t key[NEXT_SIZE], value[NEXT_HEAD + 1];
    if (next_of(session, queue, key, value) <= 0 ||
        qi_get64(value) <= qi_store_kept_after(session->store))
        return true; /* it has none, or is looked at in any case */
    uint64_t next_us = qi_get64(value + 8);
    for (uint32_t i = 0; i < sight->count[queue]; i++) {
        const struct seen *seen = &sight->seen[queue][i];
        uint64_t expiry_us = model_find(model, seen->id)->expiry_us;
        bool is_dead = seen->due_us >= model_dead(0), stays = seen->due_us == MODEL_REDRIVEN;
        uint64_t wants_us = is_dead ? 1 : stays ? 0 : expiry_us;
        if (wants_us && (next_us == 0 || next_us > wants_us))
            return verdict_complain(
                verdict,
                "%c: a close kept that it wants nothing before %llu, but %llu does at %llu",
                'a' + queue, (unsigned long long)next_us, (unsigned long long)seen->id,
                (unsigned long long)wants_us);
    }
    return true;
}

/* ---- the operation ---- */

struct key_change *foresee_keys(struct model *model, uint32_t scope, const struct op *op) {
    struct model_keys *keys = &model->keys;
    if (keys->count == keys->room) {
        keys->room = keys->room ? 2 * keys->room : 16;
        keys->log = realloc(keys->log, keys->room * sizeof *keys->log);
        if (!keys->log)
            abort();
    }
    struct key_change *change = &keys->log[keys->count++];
    *change = (struct key_change){.scope = scope};
    for (uint32_t i = 0; i < KEYS; i++) {
        change->is_set[i] = (op->count + i) % 3 != 0;
        change->values[i] = (op->size + i) % 5 == 0 ? 0 : ++model->serial;
    }
    return change;
}

size_t write_keys(const struct key_change *change, uint8_t *entries) {
    uint8_t *at = entries;
    for (uint32_t i = 0; i < KEYS; i++) {
        if (!change->is_set[i])
            continue;
        qi_put16(at, 1);
        at[2] = (uint8_t)('a' + i);
        uint32_t size = change->values[i] ? value_of(change->values[i], at + 7) : 0;
        qi_put32(at + 3, change->values[i] ? size : QI_DATA_REMOVED);
        at += 7 + size;
    }
    return (size_t)(at - entries);
}

bool play_data(struct player *player, const struct op *op) {
    struct model *model = &player->model;
    qi_store_stats stats;
    if (qi_store_stats_of(player->session.store, &stats) != 0 || stats.format < 2)
        return true;
    bool of_queue = op->size % 3 != 0 && model->queues[op->queue].exists == PRESENT;
    uint32_t scope = of_queue ? op->queue : QUEUES;
    bool confirm = op->size % 4 == 0;
    uint8_t entries[KEYS_SIZE];
    size_t size = write_keys(foresee_keys(model, scope, op), entries);
    int error =
        qi_data_change(player->session.store, of_queue ? player->session.queues[op->queue] : NULL,
                       entries, size, confirm);
    if (error)
        return player_failed(player, "data", error);
    model->keys.returned = model->keys.count;
    if (confirm)
        keys_synced(&model->keys);
    struct keys seen;
    struct cuts cuts;
    bool exists[QUEUES];
    for (int i = 0; i < QUEUES; i++)
        exists[i] = model->queues[i].exists == PRESENT;
    int64_t looked = keys_look(&player->session, &seen);
    if (looked || !keys_allow(&model->keys, &seen, exists, true, &cuts))
        return player_complain(player, "the mappings are not what was put into them (%lld)",
                               (long long)looked);
    return true;
}
