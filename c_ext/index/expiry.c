/* expiry.c - bounds of expiry: before which time nothing in a segment, a queue or a store expires.
 *
 * A bound that is too low costs a look; one that is too high is never written.
 */
#include "index/index_private.h"

/* The store's bound is never above that of a queue: as long as it has not passed, nobody looks at
 * all queues. */
void qi_queue_expires(struct qi_queue *queue, uint64_t expiry_us) {
    qi_lower(&queue->expiry_us, expiry_us);
    if (queue->rules_known)
        qi_expire_rules(queue);
}

void qi_segment_expires(struct qi_queue *queue, struct qi_segment *segment, uint64_t expiry_us) {
    qi_lower(&segment->earliest_expiry_us, expiry_us);
    qi_lower(&segment->expiry_us, expiry_us);
    qi_queue_expires(queue, expiry_us);
}

void qi_expire_came_back(struct qi_queue *queue, struct qi_segment *segment) {
    segment->expired_out = false;
    segment->expiry_us = 1; /* long ago */
    qi_queue_expires(queue, 1);
}

void qi_expire_rules(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    if (queue->expiry_us == 0 || (store->expiry_us && store->expiry_us <= queue->expiry_us))
        return;
    store->expiry_us = queue->expiry_us;
    store->expire_again_us = 0;
}
