/* rules.c - what a queue does by itself: its bounds. (ready.c: what has expired, or was delivered too often.) */
#include "publish.h"
#include "ready.h"

int qi_queue_rules(struct qi_queue *queue, uint64_t ttl_us, uint64_t max_messages, bool drop_head,
                   uint32_t max_deliveries, bool dead_letters) {
    qi_lock(queue->store);
    int error = qi_store_usable(queue->store, false);
    if (!error)
        queue->rules = (struct qi_rules){.ttl_us = ttl_us,
                                         .max_messages = max_messages,
                                         .max_deliveries = max_deliveries,
                                         .drop_head = drop_head,
                                         .are_known = true,
                                         .dead_letters = dead_letters};
    qi_unlock(queue->store);
    return error;
}

int qi_has_place(struct qi_queue *queue, uint64_t count) {
    const struct qi_rules *rules = &queue->rules;
    uint64_t here = queue->depth - queue->dead;
    if (rules->max_messages == 0)
        return 0;
    int error = rules->drop_head ? qi_delayed_run(queue) : 0;
    uint64_t may_go = rules->drop_head ? here - queue->out - queue->delayed : 0;
    if (error || (here - may_go + count <= rules->max_messages))
        return error;
    return qi_fail(
        QI_E_QUEUE_FULL,
        "queue %s has %llu messages, and may have %llu: take some, or raise max_messages",
        queue->name, (unsigned long long)here, (unsigned long long)rules->max_messages);
}

/* The oldest of the lowest priority goes; then what was delayed and is due. */
static int drop_head(struct qi_queue *queue) {
    struct qi_segment *segment;
    uint32_t slot, priority;
    int error = qi_find_message(queue, 0, qi_lane_start(QI_PRIORITIES), true, &segment, &slot);
    if (error == QI_EMPTY && qi_due_first(queue, &segment, &slot, &priority))
        error = 0;
    if (!error)
        error = qi_append_event(queue, QI_ACK, qi_req_id(queue, segment, slot));
    if (!error)
        qi_segment_ack(queue, segment, slot);
    return error;
}

int qi_make_place(struct qi_queue *queue, const struct qi_publish *publish, uint32_t count,
                  uint64_t bytes) {
    uint64_t here = queue->depth - queue->dead, most = queue->rules.max_messages;
    if (most == 0 || here + count <= most)
        return 0;
    uint8_t *at;
    int error = qi_publish_maps(queue, publish, count);
    if (error)
        return error;
    bytes += (here + count - most) * (QI_FRAME_HEADER + QI_RECORD_ID);
    error = qi_journal_room(qi_current(queue), bytes, false, &at);
    if (error)
        return qi_append_failed(queue, error);
    for (uint64_t left = here + count - most; left > 0 && !error; left--)
        error = drop_head(queue);
    return error;
}
