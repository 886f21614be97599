/* faults_times.h - more verbs of a story (faults.h): of what has a time, a lease, a priority or a
 * bound. */
#ifndef FAULTS_TIMES_H
#define FAULTS_TIMES_H

#include "queue/queue.h"

/* With a priority and until when it is delayed (0: it is not). */
static void publish_later(struct run *run, uint32_t queue, uint32_t size, uint32_t priority,
                          uint64_t delay_us) {
    uint8_t bytes[PAYLOAD_MAX];
    if (!run->queues[queue])
        return;
    run->serial++;
    struct item *item = add_item(run, queue, size, false);
    fill(item->serial, bytes, size);
    uint64_t due_us = delay_us ? run->sim->wall_us + delay_us : 0;
    if (went(run, "publish later",
             qi_publish_with(run->queues[queue], NULL, 0, bytes, size,
                             priority << QI_PRIORITY_SHIFT, 0, due_us)))
        item->published = RETURNED;
}

/* Gets up to `count` with a lease; the first is touched, the rest goes back: dropped, later or at
 * once. */
static void borrow(struct run *run, uint32_t queue, uint32_t count, bool drop, uint64_t delay_us) {
    static uint8_t payloads[32 * PAYLOAD_MAX];
    qi_message messages[32];
    uint64_t ids[32];
    uint64_t deliveries[32];
    if (!run->queues[queue])
        return;
    int64_t got =
        qi_get_many(run->queues[queue], count, messages, payloads, sizeof payloads, ids, 1000000);
    if (!went(run, "get_many", got) || got == QI_EMPTY)
        return;
    uint32_t taken = (uint32_t)got;
    for (uint32_t i = 0, at = 0; i < taken; at += messages[i++].payload_size) {
        deliveries[i] = messages[i].delivery;
        struct item *item = find_item(run, queue, payloads + at);
        if (drop && i > 0 && !run->dead_letters && item->acked == NOT)
            item->acked = TRIED;
    }
    went(run, "touch", qi_touch(run->queues[queue], ids[0], deliveries[0], 2000000));
    if (drop)
        went(run, "reject_many",
             qi_settle_all(run->queues[queue], QI_SETTLE_REJECT, ids + 1, deliveries + 1, taken - 1,
                           0));
    else
        went(run, "nack_many",
             qi_nack_many(run->queues[queue], ids + 1, deliveries + 1, taken - 1,
                          delay_us ? run->sim->wall_us + delay_us : 0));
}

/* Up to `count` messages that nobody has are drawn near (delay_us 0: they are ready), put off or
 * deleted. */
static void change(struct run *run, uint32_t queue, uint32_t count, bool delete,
                   uint64_t delay_us) {
    static uint8_t payload[PAYLOAD_MAX];
    qi_message message;
    uint64_t from = 0;
    for (uint32_t i = 0; i < count && run->queues[queue]; from = message.req_id + 1) {
        int64_t got = qi_browse(run->queues[queue], from, false, &message, payload, sizeof payload);
        if (!went(run, "browse", got) || got == QI_EMPTY)
            return;
        if (message.flags & QI_UNACKED)
            continue;
        i++;
        struct item *item = find_item(run, queue, payload);
        if (!delete) {
            went(run, "reschedule",
                 qi_reschedule(run->queues[queue], message.req_id,
                               delay_us ? run->sim->wall_us + delay_us : 0));
            continue;
        }
        item->acked = TRIED;
        if (went(run, "delete a message", qi_delete(run->queues[queue], message.req_id)))
            item->acked = RETURNED;
    }
}

static void expire(struct run *run, uint32_t queue) {
    if (run->queues[queue])
        went(run, "expire", qi_expire(run->queues[queue]));
}

/* As the worker does it; what fails it tries again. */
static void expire_due(struct run *run) {
    if (!run->store)
        return;
    qi_lock(run->store);
    qi_expire_due(run->store);
    qi_unlock(run->store);
}

static void redrive(struct run *run, uint32_t queue) {
    if (run->queues[queue])
        went(run, "redrive", qi_redrive(run->queues[queue], UINT64_MAX));
}

/* Rules of all queues. Of a queue with a bound any message may be gone. */
static void set_rules(struct run *run, uint64_t max_messages, uint32_t max_deliveries,
                      bool dead_letters) {
    run->dead_letters = dead_letters;
    qi_rules rules = {.max_messages = max_messages,
                      .max_bytes = max_messages * 100,
                      .overflow = dead_letters ? QI_BURY_HEAD : QI_DROP_HEAD,
                      .max_deliveries = max_deliveries,
                      .dead_letters = dead_letters};
    for (uint32_t i = 0; i < QUEUES; i++)
        if (run->queues[i])
            went(run, "rules", qi_queue_set_rules(run->queues[i], &rules));
}

static void drop_the_oldest(struct run *run, uint32_t queue) {
    for (uint32_t i = 0; i < run->count; i++)
        if (run->items[i].queue == queue && run->items[i].acked == NOT)
            run->items[i].acked = TRIED;
}

#endif
