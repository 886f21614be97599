/* lane.h - ranges of ReqIds with an order of their own: the priorities of a queue.
 *
 * The ten high bits of a ReqId are its lane, the others count. Each lane counts for itself, in segments of its own, so
 * that a lane is read and flushed as a queue is. What is promised of counts (reserved, floor, a purge's bound) holds for
 * all lanes alike, and queue->highest is the bound of all: so nothing of it is kept per lane.
 *
 *     lane     0 ... 255     256 ... 511               512 ... 767            768 ... 1022
 *              priority      delayed, by half hour     delayed, by minute     free
 */
#ifndef QI_LANE_H
#define QI_LANE_H

#include "format.h"

#define QI_LANES      1023u /* the last number says that a record is something else (codec.h) */
#define QI_PRIORITIES 256u

struct qi_queue;
struct qi_segment;

struct qi_lane {
    uint32_t number;
    uint64_t next;   /* its next ReqId */
    uint64_t cursor; /* no ready message of it has a lower ReqId */
    uint64_t opened; /* what `next` was when the queue was read */
    uint64_t noted;  /* and when a moment was noted last (age.c) */
};

/* Sorted by number; lane 0 is always there and the first. */
struct qi_lanes {
    struct qi_lane *items;
    uint32_t count, priorities; /* all of them; those below QI_PRIORITIES, which stand in front */
};

static inline uint64_t qi_count_of(uint64_t req_id) {
    return req_id & QI_COUNT_MASK;
}
static inline uint32_t qi_lane_number(uint64_t req_id) {
    return (uint32_t)(req_id >> QI_COUNT_BITS);
}
static inline uint64_t qi_lane_start(uint32_t number) {
    return (uint64_t)number << QI_COUNT_BITS;
}

/* False: no memory. */
bool qi_lanes_begin(struct qi_lanes *lanes);
/* Only lane 0 is left, and nothing was published in it. */
void qi_lanes_reset(struct qi_lanes *lanes);

/* NULL: nothing was ever published in it, as far as is known. */
struct qi_lane *qi_lane_search(const struct qi_lanes *lanes, uint32_t number);
static inline struct qi_lane *qi_lane_find(const struct qi_lanes *lanes, uint32_t number) {
    return __builtin_expect(number == 0, 1) ? lanes->items : qi_lane_search(lanes, number);
}
/* Found or made; NULL: no memory. A new one begins at the queue's floor: all that may have been given out before an unclean
 * end is below. Pointers to lanes are valid until then. */
struct qi_lane *qi_lane_make(struct qi_queue *queue, uint32_t number);

/* Its next ReqId is not below this one. 0 or QI_E_MEMORY. */
int qi_lane_raise(struct qi_queue *queue, uint64_t next);
/* That of every lane. */
void qi_lanes_raise(struct qi_queue *queue, uint64_t count);

/* A lane is read or written here: its maps stay in memory. */
bool qi_lane_uses(const struct qi_queue *queue, const struct qi_segment *segment);

#endif
