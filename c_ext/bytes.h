/* bytes.h - how many bytes of headers and bodies wait: for queues that are measured (bytes.c), and at no cost for others. */
#ifndef QI_BYTES_H
#define QI_BYTES_H

#include "store.h"

/* Headers and body of a publish record, wherever they stand. */
static inline uint32_t qi_payload_of(const uint8_t *fields) {
    return qi_msg_id_is_set(fields) ? qi_payload_length(qi_get_msg_id(fields + QI_PUB_MSG_ID))
                                    : qi_get32(fields + QI_PUB_EMBEDDED);
}

/* The size of a message, as long as its segment has maps. */
static inline uint32_t qi_size_of(const struct qi_segment *segment, uint32_t slot) {
    return qi_slots_of(segment->hot, slot)->size[slot & 63];
}

static inline void qi_count_bytes(struct qi_queue *queue, struct qi_segment *segment, int64_t by) {
    segment->bytes += (uint64_t)by;
    queue->bytes += (uint64_t)by;
    queue->store->bytes += (uint64_t)by;
}

/* So many wait in the segment, whatever was said before. */
static inline void qi_bytes_found(struct qi_queue *queue, struct qi_segment *segment,
                                  uint64_t bytes) {
    if (queue->measured)
        qi_count_bytes(queue, segment, (int64_t)(bytes - segment->bytes));
}

/* A message comes, its maps being there; it leaves; it becomes a dead letter; it is none any more. */
static inline void qi_bytes_come(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                                 uint32_t bytes) {
    if (__builtin_expect(!queue->measured, 1))
        return;
    qi_slots_of(segment->hot, slot)->size[slot & 63] = bytes;
    qi_count_bytes(queue, segment, bytes);
}
static inline void qi_bytes_go(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    if (__builtin_expect(queue->measured, 0))
        qi_count_bytes(queue, segment, -(int64_t)qi_size_of(segment, slot));
}
static inline void qi_bytes_return(struct qi_queue *queue, struct qi_segment *segment,
                                   uint32_t slot) {
    if (__builtin_expect(queue->measured, 0))
        qi_count_bytes(queue, segment, qi_size_of(segment, slot));
}

/* From now on the queue is measured. 0 or an error, and then it is not. Cost: the last summary of each segment; those that
 * are in memory, and those of which the summary does not know it, are read. */
int qi_bytes_begin(struct qi_queue *queue);
/* What waits in a segment with its maps, of a queue that is measured. */
uint64_t qi_bytes_in_maps(struct qi_queue *queue, const struct qi_segment *segment);
/* The same, each message asked anew. 0 or an error: a record cannot be read. */
int qi_bytes_recount(struct qi_queue *queue, struct qi_segment *segment, uint64_t *bytes);

#endif
