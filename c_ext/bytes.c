/* bytes.c - how many bytes wait in a queue: headers and bodies of all messages that are not acked and no dead letters.
 *
 * Only queues with a bound of bytes, or in a store with one, are *measured*: the maps of their segments have the size of
 * each message beside its place, so that an ack knows what leaves without reading a record. Each segment has its sum,
 * exact at any time, also while its maps are not in memory.
 *
 * A queue that becomes measured needs the sum of each segment. It stands in the last summary of its file: also for queues
 * that are not measured, as long as what left a segment since its first batch need not be known (batch.c). Of the others,
 * and of those that journals changed, the records are read.
 */
#include "bytes.h"

#include "ready.h"

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
            const uint8_t *fields;
            int error = qi_segment_record(queue, segment, slot + (uint32_t)__builtin_ctzll(waiting),
                                          &fields);
            if (error)
                return error;
            *bytes += qi_payload_of(fields);
        }
    }
    return 0;
}

/* Sizes for maps that have none. A record that cannot be read counts nothing: who gets the message is told. */
static int measure_maps(struct qi_queue *queue, struct qi_segment *segment) {
    int error = qi_segment_size_room(segment);
    for (uint32_t slot = 0; !error && slot < queue->store->options.segment_entries; slot++) {
        struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        const uint8_t *fields;
        if (!(slots->pub & ~slots->ack)) {
            slot |= 63; /* nothing is alive here */
            continue;
        }
        if (!qi_bit(slots->pub & ~slots->ack, slot))
            continue;
        error = qi_segment_record(queue, segment, slot, &fields);
        if (!error || error == QI_E_CORRUPT)
            slots->size[slot & 63] = error ? 0 : qi_payload_of(fields);
        error = error == QI_E_CORRUPT ? 0 : error;
    }
    if (!error)
        segment->bytes = qi_bytes_in_maps(queue, segment);
    return error;
}

static int measure(struct qi_queue *queue, struct qi_segment *segment) {
    if (segment->unacked == 0) {
        segment->bytes = 0;
        return segment->hot ? qi_segment_size_room(segment) : 0; /* more may be published into it */
    }
    bool was_cold = !segment->hot;
    if (was_cold && segment->bytes == QI_BYTES_UNKNOWN) {
        int error = qi_segment_read_summary(queue, segment);
        if (error)
            return error;
    }
    if (!segment->hot && segment->bytes != QI_BYTES_UNKNOWN)
        return 0;
    int error = qi_segment_load(queue, segment);
    if (!error)
        error = measure_maps(queue, segment);
    if (!error && was_cold)
        qi_cool_if_unused(queue, segment);
    return error;
}

int qi_bytes_begin(struct qi_queue *queue) {
    uint64_t sum = 0;
    int error = 0;
    if (queue->measured)
        return 0;
    for (uint32_t i = 0; i < queue->segments.count && !error; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        error = measure(queue, segment);
        sum += segment->bytes;
    }
    if (error) { /* what was found is of now, not of what the files hold */
        for (uint32_t i = 0; i < queue->segments.count; i++) {
            struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
            segment->bytes = segment->length ? QI_BYTES_UNKNOWN : 0;
        }
        return error;
    }
    queue->measured = true;
    queue->bytes = sum;
    queue->store->bytes += sum;
    return 0;
}
