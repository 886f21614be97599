/* held.c - which deliveries are still current: for a consumer that keeps a list of what it took.
 * Changes nothing but what is due anyway (leases that have ended). */
#include "queue/queue_private.h"

/* An error of qi_find_unacked that says: this delivery has ended. */
static bool says_ended(int error) {
    return error == QI_E_ACKED || error == QI_E_UNKNOWN || error == QI_E_ENDED ||
           error == QI_E_LEASE;
}

int qi_deliveries_held(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                       uint32_t count, uint8_t *held) {
    struct qi_segment *segment;
    uint32_t slot;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    for (uint32_t i = 0; !error && i < count; i++) {
        int found = qi_find_unacked(queue, req_ids[i], deliveries[i], &segment, &slot);
        held[i] = found == 0;
        if (found && !says_ended(found))
            error = found;
    }
    qi_unlock(queue->store);
    return error;
}
