/* lane.c - the lanes of a queue: few, in an array, found by their number.
 *
 * Ranges of ReqIds with an order of their own: the priorities of a queue.
 *
 * The ten high bits of a ReqId are its lane, the others count. Each lane counts for itself, in
 * segments of its own, so that a lane is read and flushed as a queue is. What is promised of counts
 * (reserved, floor, a purge's bound) holds for all lanes alike, and queue->highest is the bound of
 * all: so nothing of it is kept per lane.
 *
 *     lane     0 ... 255     256 ... 511               512 ... 767            768 ... 1022
 *              priority      delayed, by half hour     delayed, by minute     free
 */
#include "index/index.h"

bool qi_lanes_begin(struct qi_lanes *lanes) {
    lanes->items = qi_calloc(1, sizeof *lanes->items);
    lanes->count = lanes->priorities = 1;
    return lanes->items != NULL;
}

void qi_lanes_reset(struct qi_lanes *lanes) {
    lanes->items[0] = (struct qi_lane){0};
    lanes->count = lanes->priorities = 1;
}

/* Where it stands, or would. */
static uint32_t place_of(const struct qi_lanes *lanes, uint32_t number) {
    uint32_t low = 0, high = lanes->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (lanes->items[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct qi_lane *qi_lane_search(const struct qi_lanes *lanes, uint32_t number) {
    uint32_t at = place_of(lanes, number);
    return at < lanes->count && lanes->items[at].number == number ? &lanes->items[at] : NULL;
}

struct qi_lane *qi_lane_make(struct qi_queue *queue, uint32_t number) {
    struct qi_lanes *lanes = &queue->lanes;
    struct qi_lane *found = qi_lane_find(lanes, number);
    if (found)
        return found;
    struct qi_lane *items = qi_realloc(lanes->items, (lanes->count + 1) * sizeof *items);
    if (!items) {
        qi_fail(QI_E_MEMORY, "no memory for another lane");
        return NULL;
    }
    lanes->items = items;
    uint32_t at = place_of(lanes, number);
    memmove(items + at + 1, items + at, (lanes->count - at) * sizeof *items);
    lanes->count++;
    lanes->priorities += number < QI_PRIORITIES;
    items[at] = (struct qi_lane){.number = number,
                                 .next = qi_lane_start(number) |
                                         (QI_BUG(lane_below_the_floor) ? 0 : queue->floor),
                                 .cursor = qi_lane_start(number)};
    return &items[at];
}

uint64_t qi_lane_next(const struct qi_queue *queue, uint32_t number) {
    const struct qi_lane *lane = qi_lane_find(&queue->lanes, number);
    return lane ? lane->next : qi_lane_start(number) | queue->floor;
}

int qi_lane_raise(struct qi_queue *queue, uint64_t next) {
    struct qi_lane *lane = qi_lane_make(queue, qi_lane_number(next));
    if (!lane)
        return QI_E_MEMORY;
    if (next > lane->next)
        lane->next = next;
    if (qi_count_of(next) > queue->highest)
        queue->highest = qi_count_of(next);
    return 0;
}

void qi_lanes_raise(struct qi_queue *queue, uint64_t count) {
    for (uint32_t i = 0; i < queue->lanes.count; i++) {
        struct qi_lane *lane = &queue->lanes.items[i];
        if (qi_count_of(lane->next) < count)
            lane->next = qi_lane_start(lane->number) | count;
    }
    if (queue->highest < count)
        queue->highest = count;
}

bool qi_lane_uses(const struct qi_queue *queue, const struct qi_segment *segment) {
    const struct qi_lane *lane = qi_lane_find(&queue->lanes, qi_segment_lane(queue, segment));
    return lane && (segment->number == qi_segment_number(queue, lane->next) ||
                    segment->number == qi_segment_number(queue, lane->cursor));
}
