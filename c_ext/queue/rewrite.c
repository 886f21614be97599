/* rewrite.c - segment files that are mostly acked are written anew, with what is alive only, under
 * their other name.
 *
 * N.idx and N.alt take turns, as the journals do. The new file is written by a flush like any other
 * batch: its bytes and its name are durable before the MANIFEST that names it, and the old file
 * goes behind that MANIFEST (H15). Whatever a power cut leaves, one of the two is named and whole;
 * the other one is a stray, which recovery removes.
 *
 * What is copied was read and checked frame by frame here: bytes that went bad never get a new
 * checksum. A file with damage is left alone, for a salvage.
 */
#include "queue/queue.h"

#include "durable/durable.h"
#include "index/index.h"

#define GROUP_BYTES (32u << 20) /* files rewritten by one flush: they are in memory meanwhile */

static bool is_whole(const uint8_t *bytes, uint32_t length, uint32_t seed) {
    struct qi_frame frame;
    for (uint64_t offset = QI_SEGMENT_START; offset < length;
         offset = frame.offset + QI_FRAME_HEADER + frame.length)
        if (qi_frame_read(seed, bytes, length, offset, 0, &frame) != QI_FRAME_VALID)
            return false;
    return true;
}

/* The file's bytes, checked; NULL if there is anything wrong with them. */
static uint8_t *read_checked(struct qi_queue *queue, const struct qi_segment *segment) {
    struct qi_disk *disk = queue->store->disk;
    uint32_t seed;
    int file = qi_segment_open(queue, segment, &seed);
    if (file < 0)
        return NULL;
    uint8_t *bytes = qi_malloc(segment->length);
    bool good = bytes &&
                disk->ops->read(disk, file, bytes, segment->length, 0) == segment->length &&
                is_whole(bytes, segment->length, seed);
    disk->ops->close(disk, file);
    if (!good) {
        qi_free(bytes);
        return NULL;
    }
    return bytes;
}

/* Bytes of the file that a new one would hold too. */
static uint64_t live_bytes(struct qi_queue *queue, const struct qi_segment *segment,
                           const uint8_t *bytes) {
    const struct qi_hot *hot = segment->hot;
    uint64_t live = QI_SEGMENT_START;
    for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
        const struct qi_slots *slots = qi_slots_of(hot, slot);
        for (uint64_t bits = slots->pub & ~slots->ack & ~slots->jpub; bits; bits &= bits - 1) {
            uint32_t loc = slots->loc[__builtin_ctzll(bits)];
            const uint8_t *fields = bytes + (loc & QI_LOC_OFFSET_MAX) + QI_ENTRY_ID;
            live += QI_ENTRY_ID + QI_PUB_FIELDS + qi_get32(fields + QI_PUB_EMBEDDED);
        }
    }
    return live;
}

/* Reads the segment if it may hold that much garbage; true if it does, and then the next flush
 * rewrites it. */
static bool choose(struct qi_queue *queue, struct qi_segment *segment, uint32_t garbage_percent) {
    uint64_t entries = queue->store->options.segment_entries;
    if (segment->length == 0 ||
        (uint64_t)segment->unacked * 100 > entries * (100 - garbage_percent))
        return false;
    bool was_cold = !segment->hot;
    uint8_t *bytes = qi_segment_load(queue, segment) == 0 && segment->unacked > 0
                         ? read_checked(queue, segment)
                         : NULL;
    if (bytes && live_bytes(queue, segment, bytes) * 100 <
                     (uint64_t)segment->length * (100 - garbage_percent)) {
        qi_free(segment->hot->old); /* of a flush that did not come about */
        segment->hot->old = bytes;
        return true;
    }
    qi_free(bytes);
    if (was_cold)
        qi_cool(queue, segment);
    return false;
}

/* The segments from *number on, as many as one flush takes; their bytes, and where the next group
 * begins. */
static uint64_t choose_group(struct qi_queue *queue, uint32_t garbage_percent, uint64_t *number) {
    uint64_t group = 0;
    uint32_t i = 0;
    while (i < queue->segments.count && group < GROUP_BYTES) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i++);
        if (segment->number < *number)
            continue;
        *number = segment->number + 1;
        if (choose(queue, segment, garbage_percent))
            group += segment->length;
    }
    return group;
}

static uint64_t segment_bytes(const struct qi_queue *queue) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < queue->segments.count; i++)
        bytes += qi_segment_nth(&queue->segments, i)->length;
    return bytes;
}

int qi_rewrite_segments(struct qi_queue *queue, uint32_t garbage_percent, int64_t *freed) {
    uint64_t number = 0;
    int error = qi_flush_all(queue);
    while (!error && !qi_is_short_of_space(queue->store)) {
        uint64_t before = segment_bytes(queue);
        if (choose_group(queue, garbage_percent, &number) == 0)
            return 0;
        error = qi_flush_begin(queue, 0, 0);
        if (!error)
            error = qi_flush_wait(queue);
        uint64_t after = segment_bytes(queue);
        if (!error && before > after)
            *freed += (int64_t)(before - after);
    }
    return error;
}
