/* publish_sides.c - the side records that come with a publish: its own lease, and what a message
 * that moves takes along. Few messages have any, so publish.c calls this for those alone. */
#include "queue/queue_private.h"

static struct qi_side own_lease(const struct qi_new_message *publish, uint8_t bytes[8]) {
    qi_put64(bytes, publish->lease_us);
    return (struct qi_side){QI_SIDE_LEASE, 8, bytes};
}

bool qi_given_side(const struct qi_new_message *publish, uint32_t *at, struct qi_side *side) {
    if (*at >= publish->sides_size)
        return false;
    const uint8_t *bytes = publish->sides + *at;
    *side = (struct qi_side){qi_get16(bytes), qi_get32(bytes + 2), bytes + QI_GIVEN_SIDE};
    *at += QI_GIVEN_SIDE + side->size;
    return true;
}

uint8_t *qi_put_sides(uint8_t *at, uint64_t req_id, const struct qi_new_message *publish) {
    uint8_t lease[8];
    struct qi_side side = own_lease(publish, lease);
    uint32_t next = 0;
    for (bool more = publish->lease_us || qi_given_side(publish, &next, &side); more;
         more = qi_given_side(publish, &next, &side)) {
        qi_put_side(at, req_id, &side);
        at += QI_SIDE_RECORD + side.size;
    }
    return at;
}

void qi_mark_sides(struct qi_segment *segment, uint32_t slot,
                   const struct qi_new_message *publish) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    uint8_t lease[8];
    struct qi_side side = own_lease(publish, lease);
    uint32_t next = 0;
    for (bool more = publish->lease_us || qi_given_side(publish, &next, &side); more;
         more = qi_given_side(publish, &next, &side))
        qi_side_put(slots, slot, &side, true);
    segment->hot->sided = true;
}

int qi_fail_lease_format(void) {
    return qi_fail(QI_E_FORMAT, "a message of its own lease needs a store of format 2: this one "
                                "has format 1 (qindex upgrade, or upgrade=True)");
}

void qi_leases_unused(struct qi_queue *queue, uint64_t first, uint32_t count) {
    struct qi_segment *segment = NULL;
    for (uint64_t req_id = first; req_id < first + count; req_id++) {
        segment = qi_segment_find_near(&queue->segments, segment, qi_segment_number(queue, req_id));
        qi_side_room_unused(qi_slots_of(segment->hot, qi_slot_of(queue, req_id)));
    }
}

int qi_leases_room(struct qi_queue *queue, uint64_t first, uint32_t count) {
    struct qi_segment *segment = NULL;
    int error = 0;
    for (uint64_t req_id = first; req_id < first + count && !error; req_id++) {
        segment = qi_segment_find_near(&queue->segments, segment, qi_segment_number(queue, req_id));
        error =
            qi_side_room(qi_slots_of(segment->hot, qi_slot_of(queue, req_id)), QI_SIDE_LEASE, 8);
    }
    if (error)
        qi_leases_unused(queue, first, count);
    return error;
}
