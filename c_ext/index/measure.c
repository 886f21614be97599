/* measure.c - from now on a queue is measured: the bytes of all that it has are counted once. */
#include "index/index_private.h"

/* Sizes for maps that have none. A record that cannot be read counts nothing: who gets the message
 * is told. */
static int measure_maps(struct qi_queue *queue, struct qi_segment *segment) {
    int error = qi_segment_size_room(segment);
    for (uint32_t slot = 0; !error && slot < queue->store->options.segment_entries; slot++) {
        struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        const struct qi_published *record;
        if (!(slots->pub & ~slots->ack)) {
            slot |= 63; /* nothing is alive here */
            continue;
        }
        if (!qi_bit(slots->pub & ~slots->ack, slot))
            continue;
        error = qi_segment_record(queue, segment, slot, &record);
        if (!error || error == QI_E_CORRUPT)
            slots->size[slot & 63] = error ? 0 : qi_payload_of(&record->fields);
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
