/* bytes.c - how many bytes wait in a queue: headers and bodies of all messages that are not acked
 * and no dead letters.
 *
 * Only queues with a bound of bytes, or in a store with one, are *measured*: the maps of their
 * segments have the size of each message beside its place, so that an ack knows what leaves without
 * reading a record. Each segment has its sum, exact at any time, also while its maps are not in
 * memory.
 *
 * A queue that becomes measured needs the sum of each segment. It stands in the last summary of its
 * file: also for queues that are not measured, as long as what left a segment since its first batch
 * need not be known (batch.c). Of the others, and of those that journals changed, the records are
 * read.
 */
#include "index/index_private.h"

/* The living that are no dead letters. */
static uint64_t waiting_of(const struct qi_slots *slots) {
    uint64_t waiting = slots->pub & ~slots->ack;
    for (uint64_t held = waiting & slots->held; held; held &= held - 1) {
        uint32_t at = (uint32_t)__builtin_ctzll(held);
        if (qi_time_is_dead(slots->time[at]))
            qi_clear_bit(&waiting, at);
    }
    return waiting;
}

uint64_t qi_bytes_in_maps(struct qi_queue *queue, const struct qi_segment *segment) {
    uint64_t bytes = 0;
    for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        for (uint64_t waiting = waiting_of(slots); waiting; waiting &= waiting - 1)
            bytes += slots->size[__builtin_ctzll(waiting)];
    }
    return bytes;
}

int qi_bytes_recount(struct qi_queue *queue, struct qi_segment *segment, uint64_t *bytes) {
    *bytes = 0;
    for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
        uint64_t waiting = waiting_of(qi_slots_of(segment->hot, slot));
        for (; waiting; waiting &= waiting - 1) {
            const struct qi_published *record;
            int error = qi_segment_record(queue, segment, slot + (uint32_t)__builtin_ctzll(waiting),
                                          &record);
            if (error)
                return error;
            *bytes += qi_payload_of(&record->fields);
        }
    }
    return 0;
}
