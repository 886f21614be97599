/* warm.c - which maps stay in memory. */
#include "index/index.h"

/* Is something in it wanted soon? Of a lane of delayed messages the tail may go, too. */
bool qi_is_wanted_soon(struct qi_queue *queue, const struct qi_segment *segment, uint64_t now) {
    if (segment->hot->held_count == 0)
        return qi_lane_uses(queue, segment);
    bool may_go = qi_segment_lane(queue, segment) >= QI_PRIORITIES || !qi_lane_uses(queue, segment);
    return !may_go || qi_has_due(segment) || qi_segment_due_us(queue, segment) < now + QI_SOON_US;
}

bool qi_cool_if_unused(struct qi_queue *queue, struct qi_segment *segment) {
    struct qi_hot *hot = segment->hot;
    if (!hot || segment->length == 0 || hot->dirty || hot->out_count || hot->in_flush ||
        qi_is_wanted_soon(queue, segment, qi_wall_us(queue->store)))
        return false;
    qi_cool(queue, segment);
    return true;
}
