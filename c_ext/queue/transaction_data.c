/* transaction_data.c - changes of the durable mappings as a part of a transaction.
 *
 * They are parts of the TRANSACTION in the commit log, and have no journal. The memory for what
 * they put is there before the log is appended to; behind that nothing can fail (H20).
 */
#include "queue/queue_private.h"

static const uint8_t of_the_store[QI_IDENTITY_SIZE];

static uint64_t size_of(const qi_change *change) {
    return QI_PART_SIZE + QI_DATA_ENTRIES + change->body_size;
}

bool qi_tx_has_data(const struct qi_tx *tx) {
    return qi_tx_data_size(tx) > 0;
}

uint64_t qi_tx_data_size(const struct qi_tx *tx) {
    uint64_t size = 0;
    if (QI_BUG(data_beside_transaction))
        return 0;
    for (uint32_t i = 0; i < tx->count; i++)
        if (tx->changes[i].kind == QI_CHANGE_DATA)
            size += size_of(&tx->changes[i]);
    return size;
}

int qi_tx_data_check(struct qi_tx *tx) {
    int error = 0;
    for (tx->at = 0; tx->at < tx->count && !error; tx->at++) {
        const qi_change *change = &tx->changes[tx->at];
        if (change->kind != QI_CHANGE_DATA)
            continue;
        if (change->queue && change->queue->deleted)
            error = qi_queue_ready(change->queue, true); /* it says so */
        if (!error && change->body_size > QI_DATA_MAX)
            error = qi_fail_data_size(change->body_size);
        if (!error && !qi_data_is_sound(change->body, change->body_size))
            error = qi_fail(QI_E_ARGUMENT, "a key has 1 to 65535 bytes");
        if (error)
            return error;
    }
    tx->at = tx->count;
    return 0;
}

int qi_tx_data_prepare(struct qi_tx *tx) {
    for (uint32_t i = 0; i < tx->count; i++) {
        const qi_change *change = &tx->changes[i];
        const uint8_t *scope = change->queue ? change->queue->identity : of_the_store;
        if (change->kind == QI_CHANGE_DATA && change->queue && change->queue->deleted)
            return qi_queue_ready(change->queue, true); /* it says so */
        if (change->kind == QI_CHANGE_DATA &&
            qi_data_prepare(&tx->store->commits->data, scope, change->body, change->body_size,
                            &tx->steps[i].data) != 0)
            return qi_fail(QI_E_MEMORY, "no memory for a change of data");
    }
    return 0;
}

void qi_tx_data_put(const struct qi_tx *tx, uint8_t *at) {
    if (QI_BUG(data_beside_transaction))
        return;
    for (uint32_t i = 0; i < tx->count; i++) {
        const qi_change *change = &tx->changes[i];
        if (change->kind != QI_CHANGE_DATA)
            continue;
        qi_put32(at, (uint32_t)(size_of(change) - QI_PART_SIZE));
        qi_put16(at + QI_PART_SIZE, QI_KIND_DATA);
        memcpy(at + QI_PART_SIZE + QI_DATA_SCOPE,
               change->queue ? change->queue->identity : of_the_store, QI_IDENTITY_SIZE);
        if (change->body_size)
            memcpy(at + QI_PART_SIZE + QI_DATA_ENTRIES, change->body, change->body_size);
        at += size_of(change);
    }
}

void qi_tx_data_take(struct qi_tx *tx) {
    struct qi_commits *commits = tx->store->commits;
    for (uint32_t i = 0; i < tx->count; i++) {
        const qi_change *change = &tx->changes[i];
        if (QI_BUG(data_beside_transaction) && change->kind == QI_CHANGE_DATA)
            qi_commits_record(commits, QI_KIND_DATA,
                              change->queue ? change->queue->identity : of_the_store, change->body,
                              (uint32_t)change->body_size, true);
        qi_data_take(&commits->data, &tx->steps[i].data);
    }
}

void qi_tx_data_drop(struct qi_tx *tx) {
    for (uint32_t i = 0; tx->steps && i < tx->count; i++)
        qi_data_drop(&tx->steps[i].data);
}
