/* data.c - the durable mappings of a store and of its queues, as users see them.
 *
 * They are in memory (commits/mappings.c), so reading costs no I/O. A change is one frame of the
 * commit log: all of it or nothing, after kill -9 at once, after a power cut when it was synced.
 */
#include "store/store.h"

#include "durable/durable.h"
#include "queue/queue.h"

/* Whose mapping it is; the queue is there. 0 or the error. */
static int begin(struct qi_store *store, struct qi_queue *queue, bool to_write,
                 const uint8_t **scope) {
    static const uint8_t of_the_store[QI_IDENTITY_SIZE];
    int error = qi_store_usable(store, to_write);
    if (!error && queue && queue->deleted)
        error = qi_queue_ready(queue, false); /* it says so */
    if (!error && !store->commits)
        error =
            qi_fail(QI_E_FORMAT, "the store has format 1, which keeps no data: upgrade it first "
                                 "(qindex upgrade, or open it with upgrade=True)");
    *scope = queue ? queue->identity : of_the_store;
    return error;
}

int64_t qi_data_get(struct qi_store *store, struct qi_queue *queue, const void *key,
                    size_t key_size, void *value, size_t room) {
    const uint8_t *scope;
    qi_lock(store);
    int64_t result = begin(store, queue, false, &scope);
    if (!result) {
        const struct qi_datum *entry =
            qi_data_find(&store->commits->data, scope, key, (uint32_t)key_size);
        result = entry ? (int64_t)entry->value_size : QI_E_UNKNOWN;
        if (entry && entry->value_size <= room)
            memcpy(value, entry->bytes + entry->key_size, entry->value_size);
    }
    qi_unlock(store);
    return result;
}

int qi_data_change(struct qi_store *store, struct qi_queue *queue, const void *entries, size_t size,
                   bool confirm) {
    const uint8_t *scope;
    qi_lock(store);
    int error = begin(store, queue, true, &scope);
    if (!error && size > QI_DATA_MAX)
        error = qi_fail_data_size(size);
    if (!error && !qi_data_is_sound(entries, size))
        error = qi_fail(QI_E_ARGUMENT, "a key has 1 to 65535 bytes");
    if (!error && size > 0)
        error = qi_data_put(store, scope, entries, (uint32_t)size, false);
    if (!error && confirm)
        error = QI_BUG(data_not_synced) ? 0 : qi_log_sync_to(store, store->commits->end);
    qi_unlock(store);
    return error;
}

int64_t qi_data_count(struct qi_store *store, struct qi_queue *queue) {
    const uint8_t *identity;
    qi_lock(store);
    int64_t result = begin(store, queue, false, &identity);
    if (!result) {
        const struct qi_scope *scope = qi_data_scope(&store->commits->data, identity);
        result = scope ? scope->count : 0;
    }
    qi_unlock(store);
    return result;
}

int64_t qi_data_all(struct qi_store *store, struct qi_queue *queue, void *entries, size_t room) {
    const uint8_t *identity;
    qi_lock(store);
    int64_t result = begin(store, queue, false, &identity);
    const struct qi_scope *scope = result ? NULL : qi_data_scope(&store->commits->data, identity);
    if (scope)
        result = (int64_t)scope->bytes;
    if (scope && scope->bytes <= room) {
        uint8_t *at = entries;
        for (const struct qi_datum *entry = scope->oldest; entry; entry = entry->newer)
            at = qi_is_engines(entry) ? at : qi_datum_write(entry, at);
    }
    qi_unlock(store);
    return result;
}

int64_t qi_data_own(struct qi_store *store, const void *prefix, size_t prefix_size, void *entries,
                    size_t room) {
    const uint8_t *identity;
    int64_t size = 0;
    qi_lock(store);
    int64_t result = begin(store, NULL, false, &identity);
    const struct qi_scope *scope = result ? NULL : qi_data_scope(&store->commits->data, identity);
    for (const struct qi_datum *entry = scope ? scope->oldest : NULL; entry; entry = entry->newer) {
        if (!qi_is_engines(entry) || entry->key_size < prefix_size ||
            memcmp(entry->bytes, prefix, prefix_size) != 0)
            continue;
        uint64_t needed = qi_datum_size(entry);
        if ((uint64_t)size + needed <= room)
            qi_datum_write(entry, (uint8_t *)entries + size);
        size += (int64_t)needed;
    }
    qi_unlock(store);
    return result ? result : size;
}
