/* forget.c - a queue leaves the memory: its files are closed, its index is forgotten. */
#include "durable/durable_private.h"

#include "index/index.h"

void qi_forget_index(struct qi_queue *queue) {
    qi_flush_forget(queue);
    qi_segments_clear(&queue->segments);
    qi_count_nothing(queue);
    queue->moments_count = 0;
    queue->out = queue->highest = queue->reserved = queue->floor = 0;
    qi_timers_clear(&queue->timers);
    queue->leased = false;
    qi_free(queue->spent.req_ids);
    queue->spent = (struct qi_spent){.waits = queue->rules.max_deliveries != 0};
    qi_lanes_reset(&queue->lanes);
    queue->dirty_count = 0;
}

void qi_queue_reset(struct qi_queue *queue) {
    qi_files_drop(queue);
    qi_forget_index(queue);
    queue->recovered = false;
}
