/* now.h - qi_get_now() into memory of the test. */
#ifndef NOW_H
#define NOW_H

#include "queue/queue.h"

struct now_room {
    void *payload;
    size_t room;
};

static int now_place(void *context, const qi_message *message, struct qi_into *into) {
    const struct now_room *room = context;
    *into = (struct qi_into){.body = room->payload, .body_size = message->payload_size};
    return message->payload_size > room->room ? QI_E_ROOM : 0;
}

/* The payload's size. QI_E_ROOM, and nothing was taken: it needs more. */
static int64_t get_now(qi_queue *queue, qi_message *message, void *payload, size_t room,
                       uint64_t lease_us) {
    struct now_room now_room = {payload, room};
    const struct qi_places places = {now_place, &now_room};
    return qi_get_now(queue, message, &places, lease_us);
}

#endif
