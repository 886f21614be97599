/* index_private.h - what the files of index/ share. */
#ifndef QI_INDEX_PRIVATE_H
#define QI_INDEX_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "index/index.h"

/* ---- slots ---- */

/* Allocates the sizes of messages for all pieces that the segment has and will have. 0 or
 * QI_E_MEMORY. */
int qi_segment_size_room(struct qi_segment *segment);
/* Allocates the times, or the leases, of 64 slots. 0 or QI_E_MEMORY. */
int qi_slots_time_room(struct qi_slots *slots);
int qi_slots_lease_room(struct qi_slots *slots);
void qi_sides_unload(struct qi_slots *slots); /* forgets side records of the segment's file */

/* ---- segment_uses ---- */

/* The references of an unread segment, its bytes and its earliest expiry, from its last summary.
 * Reads one frame. 0 or an error; the caller frees `uses`. */
int qi_segment_summary(struct qi_queue *queue, struct qi_segment *segment,
                       struct qi_file_use **uses, uint32_t *count, uint32_t *transient);

/* ---- bytes ---- */

/* A message leaves or becomes a dead letter; a dead letter is taken back. */
static inline void qi_bytes_go(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    if (__builtin_expect(queue->measured, 0))
        qi_count_bytes(queue, segment, -(int64_t)qi_size_of(segment, slot));
}
static inline void qi_bytes_return(struct qi_queue *queue, struct qi_segment *segment,
                                   uint32_t slot) {
    if (__builtin_expect(queue->measured, 0))
        qi_count_bytes(queue, segment, qi_size_of(segment, slot));
}

/* The bytes that wait in a segment. The segment must have maps, and the queue must be measured. */
uint64_t qi_bytes_in_maps(struct qi_queue *queue, const struct qi_segment *segment);

/* ---- expiry ---- */

/* A message was given back in a segment with `expired_out`: the segment is looked at again. */
void qi_expire_came_back(struct qi_queue *queue, struct qi_segment *segment);

/* ---- timers ---- */

/* The same for what a segment's file says: all its messages that are held, when it has been read.
 * Memory for it first. */
int qi_time_load_room(struct qi_queue *queue, struct qi_segment *segment);
void qi_time_load(struct qi_queue *queue, struct qi_segment *segment);
/* Memory for so many more entries of delayed messages: 0 or QI_E_MEMORY. */
int qi_delayed_room(struct qi_queue *queue, uint64_t count);
/* Ready by itself only in a lane of priorities: get never looks into the others. */
bool qi_is_in_priority_lane(const struct qi_queue *queue, const struct qi_segment *segment);

static inline void qi_count_delayed(struct qi_queue *queue, struct qi_segment *segment,
                                    int32_t by) {
    segment->delayed += (uint32_t)by;
    queue->delayed += (uint64_t)(int64_t)by;
}

/* The key of its entry: of what was redriven the same before and after it is delivered. */
static inline uint64_t qi_key_of(const struct qi_slots *slots, uint32_t slot) {
    uint64_t due_us = qi_time_us(slots->time[slot & 63]);
    return due_us == QI_REDRIVEN_US ? QI_REDRIVEN_US + 1 : due_us;
}

static inline bool qi_is_redriven(const struct qi_slots *slots, uint32_t slot) {
    return qi_time_us(slots->time[slot & 63]) == QI_REDRIVEN_US;
}

static inline struct qi_segment *qi_segment_of_timer(struct qi_queue *queue, uint64_t id) {
    return qi_segment_with(queue, id & ~QI_SEGMENT_ENTRY);
}

/* The claim of an entry: a message that is held, and its time. */
static inline bool qi_is_delayed(const struct qi_segment *segment, uint32_t slot, uint64_t due_us) {
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return qi_bit(slots->held & ~slots->due, slot) && qi_key_of(slots, slot) == due_us;
}

/* ---- timers_cold ---- */

/* An entry for all delayed messages of a segment whose maps are not in memory. There is room for
 * it. */
void qi_push_cold(struct qi_queue *queue, const struct qi_segment *segment);

/* ---- segment_file ---- */

/* What an open file has of the segment: in the queue's window, where its records will be wanted
 * next, or mapped if it is too big for that (then *bytes is not queue->window, and the caller
 * unmaps *length bytes). */
int qi_segment_read(struct qi_queue *queue, const struct qi_segment *segment, int file,
                    uint8_t **bytes, uint32_t *length);

bool qi_segment_header_is_whole(const uint8_t *header);

/* A held (delayed or dead) message was delivered. In a lane of priorities it loses its time for
 * good. In a lane of delayed messages it keeps its time for when it is given back; a redriven
 * message is then like any other. */
void qi_time_delivered(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

#endif
