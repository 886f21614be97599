/* age.c - since when the oldest message waits, at least.
 *
 * Nobody writes down when a message was published. But with each sync the queue notes a *moment*:
 * all ReqIds of a lane below this one were published by now. Few are kept: those that are about
 * messages which are gone are dropped, and of too many the one that stands closest to its
 * neighbours, so that the error is a small part of the age of the oldest. They are in memory only.
 * Of messages from before the open the journals know more: a MARK has the clock of the sync that
 * covered what stands before it, and what is in a segment was there when the journal behind it was
 * begun. Moments go by the steady clock, so no age jumps when the wall clock is set. What a journal
 * tells is a wall clock, of a session before this one.
 *
 * Messages that were published with a delay stand elsewhere and are not looked at.
 */
#include "queue/queue.h"

#include <string.h>

#include "index/index.h"

int64_t qi_oldest_us(struct qi_queue *queue) {
    qi_lock(queue->store);
    int64_t error = qi_store_usable(queue->store, false);
    if (!error && (!queue->recovered || queue->parked)) /* one that is idle is not woken for this */
        error = qi_queue_ready(queue, false);
    for (uint32_t i = 0; !error && i < 2; i++)
        if (queue->journals[i].tape.memory)
            error = qi_files_warm(queue, &queue->journals[i]);
    uint64_t now = qi_steady_us(queue->store),
             oldest = error ? UINT64_MAX : qi_age_oldest(queue, now);
    if (!error)
        qi_age_note(queue); /* who asks often knows it well, also without syncs */
    qi_unlock(queue->store);
    if (error)
        return error;
    return oldest == UINT64_MAX ? QI_EMPTY : (int64_t)(now - oldest);
}
