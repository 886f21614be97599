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
