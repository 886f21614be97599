/* segment_uses.c - which message files a segment refers to, how much, and when something in it
 * expires: from its last summary, or from its maps.
 *
 * Reads one frame of a cold segment. Owns nothing; what it gives is malloc'd.
 */
#include "index/index_private.h"

int qi_segment_summary(struct qi_queue *queue, struct qi_segment *segment,
                       struct qi_file_use **uses, uint32_t *count, uint32_t *transient) {
    *uses = NULL;
    *count = 0;
    struct qi_disk *disk = queue->store->disk;
    uint32_t seed;
    int file = qi_segment_open(queue, segment, &seed);
    if (file < 0)
        return file;
    uint8_t tail[4], *bytes = NULL;
    int64_t got = disk->ops->read(disk, file, tail, 4, segment->length - 4);
    uint32_t size = got == 4 ? qi_get32(tail) : 0;
    int error =
        size < QI_FRAME_HEADER + QI_SUMMARY_FIXED || size > segment->length - QI_SEGMENT_START
            ? QI_E_CORRUPT
            : 0;
    if (!error && !(bytes = qi_malloc(size)))
        error = QI_E_MEMORY;
    if (!error && disk->ops->read(disk, file, bytes, size, segment->length - size) != size)
        error = QI_E_CORRUPT;
    disk->ops->close(disk, file);
    struct qi_frame frame;
    if (!error &&
        (qi_frame_read(seed, bytes, size, 0, segment->length - size, &frame) != QI_FRAME_VALID ||
         frame.type != QI_FRAME_SUMMARY))
        error = QI_E_CORRUPT;
    if (!error) {
        uint32_t files = qi_get32(frame.payload + QI_SUMMARY_FILES);
        if (files > (frame.length - QI_SUMMARY_FIXED) / QI_SUMMARY_FILE)
            error = QI_E_CORRUPT;
        if (!error && files && !(*uses = qi_malloc(files * sizeof **uses)))
            error = QI_E_MEMORY;
        for (uint32_t i = 0; i < files && !error; i++) {
            const uint8_t *at = frame.payload + QI_SUMMARY_FIXED - 4 + i * QI_SUMMARY_FILE;
            (*uses)[i] = (struct qi_file_use){qi_get32(at), qi_get32(at + 4), qi_get64(at + 8)};
        }
        *count = error ? 0 : files;
        *transient = qi_get32(frame.payload + QI_SUMMARY_TRANSIENT);
        if (!error && !queue->measured)
            segment->bytes = qi_get64(frame.payload + QI_SUMMARY_BYTES);
        uint64_t expiry_us = qi_get64(frame.payload + QI_SUMMARY_EXPIRY);
        if (!error && expiry_us)
            qi_segment_expires(queue, segment, expiry_us);
        segment->expiry_unread = segment->expiry_unread && error;
    }
    qi_free(bytes);
    return error ? qi_fail(error, "segment %llu: the summary is damaged",
                           (unsigned long long)segment->number)
                 : 0;
}

static int copy_uses(const struct qi_hot *hot, struct qi_file_use **uses, uint32_t *count) {
    if (hot->uses_count == 0)
        return 0;
    *uses = qi_malloc(hot->uses_count * sizeof **uses);
    if (!*uses)
        return qi_fail(QI_E_MEMORY, "no memory for a segment's list of message files");
    memcpy(*uses, hot->uses, hot->uses_count * sizeof **uses);
    *count = hot->uses_count;
    return 0;
}

int qi_segment_uses(struct qi_queue *queue, struct qi_segment *segment, struct qi_file_use **uses,
                    uint32_t *count) {
    *uses = NULL;
    *count = 0;
    if (segment->unacked == 0)
        return 0;
    if (!segment->hot || !segment->hot->loaded) {
        uint32_t transient = 0;
        int error = qi_segment_summary(queue, segment, uses, count, &transient);
        /* Transients may have died since (the floor): then, or if the summary is damaged, the
         * entries are read. Also if the journal has acks of what is in the file: which of its
         * references are gone is not known before. */
        bool all_live =
            transient == 0 ||
            qi_count_of(segment->number * queue->store->options.segment_entries) >= queue->floor;
        if (!error && all_live && !segment->hot)
            return 0;
        if (!error && all_live && *count == 0)
            return copy_uses(segment->hot, uses, count);
        if (error && error != QI_E_CORRUPT)
            return error;
        if (!queue->measured)
            segment->bytes = QI_BYTES_UNKNOWN;
        qi_free(*uses);
        *uses = NULL;
        *count = 0;
    }
    int error = qi_segment_load(queue, segment);
    return error ? error : copy_uses(segment->hot, uses, count);
}

int qi_segment_read_summary(struct qi_queue *queue, struct qi_segment *segment) {
    struct qi_file_use *uses;
    uint32_t count;
    int error = qi_segment_uses(queue, segment, &uses, &count);
    if (!error)
        qi_free(uses);
    return error;
}
