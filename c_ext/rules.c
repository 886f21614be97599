/* rules.c - what a queue does by itself: its bounds, and the store's. (ready.c: what has expired, or was delivered too
 * often.)
 *
 * Dead letters count for no bound: what becomes one makes place. A bound is about publishes only; whatever else brings
 * messages back (a nack, a redrive, an open) may pass it.
 */
#include "publish.h"
#include "ready.h"

int qi_queue_set_rules(struct qi_queue *queue, const qi_rules *rules) {
    qi_lock(queue->store);
    int error = qi_store_usable(queue->store, false);
    if (!error) {
        queue->rules = *rules;
        queue->rules_known = true;
        queue->bounded = rules->max_messages || queue->store->options.max_messages;
    }
    qi_unlock(queue->store);
    return error;
}

static uint64_t waiting(const struct qi_queue *queue) {
    return queue->depth - queue->dead;
}

/* So many have to go for `count` more. */
static uint64_t excess(const struct qi_queue *queue, uint64_t count) {
    uint64_t most = queue->rules.max_messages, sum = waiting(queue) + count;
    return most && sum > most ? sum - most : 0;
}

int qi_queue_has_place(struct qi_queue *queue, uint32_t count) {
    queue->leaving = excess(queue, count);
    if (queue->leaving == 0)
        return 0;
    bool may_go = queue->rules.overflow != QI_REJECT;
    int error = may_go ? qi_delayed_run(queue) : 0;
    uint64_t ready = waiting(queue) - queue->out - queue->delayed;
    if (error || (may_go && queue->leaving <= ready))
        return error;
    return qi_fail(
        QI_E_QUEUE_FULL,
        "queue %s has %llu messages, and may have %llu: take some, or raise max_messages",
        queue->name, (unsigned long long)waiting(queue),
        (unsigned long long)queue->rules.max_messages);
}

int qi_store_has_place(struct qi_store *store, uint64_t count, uint64_t leaving) {
    uint64_t most = store->options.max_messages, here = store->depth - store->dead;
    if (most == 0 || here + count <= most + leaving)
        return 0;
    return qi_fail(QI_E_STORE_FULL,
                   "the queues of this store have %llu messages, and may have %llu together: take "
                   "some, or open it with a higher max_messages",
                   (unsigned long long)here, (unsigned long long)most);
}

int qi_has_place(struct qi_queue *queue, uint32_t count) {
    int error = qi_queue_has_place(queue, count);
    return error ? error : qi_store_has_place(queue->store, count, queue->leaving);
}

/* The oldest of the lowest priority goes; then what was delayed and is due. */
static int let_head_go(struct qi_queue *queue) {
    struct qi_segment *segment;
    uint32_t slot, priority;
    int error = qi_find_message(queue, 0, qi_lane_start(QI_PRIORITIES), true, &segment, &slot);
    if (error == QI_EMPTY && qi_due_first(queue, &segment, &slot, &priority))
        error = 0;
    if (error)
        return error;
    uint64_t req_id = qi_req_id(queue, segment, slot);
    if (queue->rules.overflow == QI_BURY_HEAD)
        return qi_bury(queue, &req_id, 1, QI_DEAD_FULL);
    error = qi_append_event(queue, QI_ACK, req_id);
    if (!error)
        qi_segment_ack(queue, segment, slot);
    return error;
}

int qi_make_place(struct qi_queue *queue, const struct qi_publish *publish, uint32_t count,
                  uint64_t bytes) {
    uint64_t each = queue->rules.overflow == QI_BURY_HEAD ? QI_TIME_RECORD : QI_RECORD_ID;
    uint8_t *at;
    if (queue->leaving == 0)
        return 0;
    int error = qi_publish_maps(queue, publish, count);
    if (error)
        return error;
    bytes += queue->leaving * (QI_FRAME_HEADER + each);
    error = qi_journal_room(qi_current(queue), bytes, false, &at);
    if (error)
        return qi_append_failed(queue, error);
    while (!error && excess(queue, count) > 0)
        error = let_head_go(queue);
    return error;
}
