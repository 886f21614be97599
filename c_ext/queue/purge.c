/* purge.c - dropping all ready messages at once: one record, which names those that are out and
 * stay. */
#include "queue/queue_private.h"

static int append_purge(struct qi_queue *queue, uint64_t *purged) {
    uint32_t entries = queue->store->options.segment_entries;
    uint8_t *at;
    int error = qi_make_room(queue, 8 + 8 * queue->out, 0);
    if (!error)
        error = qi_load_for_purge(queue);
    if (!error) {
        error =
            qi_journal_room(qi_current(queue), 8 + 8 * queue->out + QI_JOURNAL_SPARE, true, &at);
        if (error)
            error = qi_append_failed(queue, error);
    }
    if (error)
        return error;
    uint8_t *list = at + 8, *next = list;
    qi_put64(at, queue->highest);
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        for (uint32_t slot = 0; segment->hot && slot < entries; slot += 64)
            for (uint64_t bits = qi_slots_of(segment->hot, slot)->out; bits;
                 bits &= bits - 1, next += 8)
                qi_put64(next, segment->number * entries + slot + (uint32_t)__builtin_ctzll(bits));
    }
    uint32_t count = (uint32_t)((next - list) / 8);
    error = qi_journal_append(qi_current(queue), QI_FRAME_PURGE, 8 + 8 * count);
    if (error)
        return qi_append_failed(queue, error);
    uint64_t before = queue->depth;
    error = qi_apply_purge(queue, queue->highest, list, count);
    *purged = before - queue->depth;
    for (uint32_t i = 0; i < queue->lanes.count; i++)
        queue->lanes.items[i].cursor = queue->lanes.items[i].next;
    return error;
}

int64_t qi_purge(struct qi_queue *queue) {
    uint64_t purged = 0;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = append_purge(queue, &purged);
    if (!error)
        qi_flush_if_due(queue);
    qi_unlock(queue->store);
    return error ? error : (int64_t)purged;
}
