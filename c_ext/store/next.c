/* next.c - when each queue wants to be looked at, kept at a close.
 *
 * A queue whose dead letters move to another queue has work to do although nobody asks for it: a
 * message in it expires, and somebody waits for it there. So it has an entry in the store's mapping
 * (qindex/wakes.py makes it with the setting), and each close that knows better writes the time
 * into it. An open then reads the queues whose time has come, and no other. A time counts if no
 * session from the one that kept it on ended without a close; else its queue is read at once.
 */
#include "store/store.h"

#include <stdlib.h>

#include "durable/durable.h"
#include "index/index.h"

/* An entry of DATA: the key, then the value: session 8, time 8 (0: none), the queue's name. */
#define KEY      "\0next:"
#define KEY_SIZE 38u
#define HEAD     16u
#define AT_ONCE  UINT64_C(1)

/* No message in it wants anything earlier; 0: none does. `kept`: the same of the last close that
 * knew; AT_ONCE: none that counts. What this session has not read is as it was then. */
static uint64_t next_us(const struct qi_queue *queue, uint64_t kept) {
    uint64_t next = 0;
    if (!queue->recovered)
        return queue->rules_known ? AT_ONCE : kept;
    if (queue->dead > 0 || (queue->rules.max_deliveries && queue->out > 0))
        return AT_ONCE;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        const struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (segment->unacked == 0)
            continue;
        if (segment->expiry_unread && kept)
            qi_lower(&next, kept);
        if (segment->expiry_us)
            qi_lower(&next, segment->expiry_us);
        if (segment->earliest_expiry_us && queue->out > 0) /* of one that comes back */
            qi_lower(&next, segment->earliest_expiry_us);
    }
    return next;
}

static int keep(struct qi_queue *queue, const uint8_t *key, uint64_t next) {
    static const uint8_t of_the_store[QI_IDENTITY_SIZE];
    uint32_t value_size = HEAD + queue->name_size, size = 2 + KEY_SIZE + 4 + value_size;
    uint8_t *entry = malloc(size);
    if (!entry)
        return qi_fail(QI_E_MEMORY, "no memory for an entry of a queue");
    qi_put16(entry, KEY_SIZE);
    memcpy(entry + 2, key, KEY_SIZE);
    qi_put32(entry + 2 + KEY_SIZE, value_size);
    uint8_t *value = entry + 2 + KEY_SIZE + 4;
    qi_put64(value, queue->store->session);
    qi_put64(value + 8, next);
    memcpy(value + HEAD, queue->name, queue->name_size);
    int error = qi_data_put(queue->store, of_the_store, entry, size, true);
    free(entry);
    return error;
}

uint64_t qi_store_kept_after(struct qi_store *store) {
    qi_lock(store);
    uint64_t session = store->counts_lost ? store->session : store->unclean_session;
    qi_unlock(store);
    return session;
}

int qi_keep_next(struct qi_store *store) {
    static const uint8_t of_the_store[QI_IDENTITY_SIZE];
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        uint8_t key[KEY_SIZE + 1] = KEY;
        memcpy(key + sizeof KEY - 1, queue->directory, 32);
        const struct qi_datum *entry =
            queue->deleted || !queue->written
                ? NULL
                : qi_data_find(&store->commits->data, of_the_store, key, KEY_SIZE);
        if (!entry || entry->value_size < HEAD)
            continue;
        const uint8_t *value = entry->bytes + entry->key_size;
        bool counts = qi_get64(value) > store->unclean_session && !store->counts_lost;
        uint64_t kept = qi_get64(value + 8), next = next_us(queue, counts ? kept : AT_ONCE);
        if ((kept != next && !QI_BUG(next_left_as_it_was)) || !counts)
            error = keep(queue, key, next);
    }
    return error;
}
