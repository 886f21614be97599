/* ready.h - which message get takes next. */
#ifndef QI_READY_H
#define QI_READY_H

#include "queue.h"

/* A message that was found; the pointer is valid until the lock is given up. */
struct qi_found {
    struct qi_segment *segment;
    uint32_t slot;
    bool due;              /* it was delayed, and its time has come */
    const uint8_t *record; /* its fields, valid until another is read; NULL: not read yet */
};

/* browse.c: fills in the message and copies its payload; nothing is changed. Costs a copy. */
int qi_read_message(struct qi_queue *queue, const struct qi_found *found, qi_message *message,
                    uint8_t *payload, size_t room);
/* browse.c: qi_browse() for who has the lock and keeps it from one message to the next. */
int64_t qi_browse_locked(struct qi_queue *queue, uint64_t from_req_id, bool ready_only,
                         qi_message *message, void *payload, size_t room);
/* How often it was delivered. */
uint32_t qi_delivery_count(const struct qi_slots *slots, uint32_t slot);

/* A look at what is ready, best first: highest priority, of the same priority first what was delayed and is due, then by
 * ReqId. */
struct qi_look {
    struct qi_queue *queue;
    uint32_t
        lanes_left; /* lanes of priorities below this index have not been looked at to their end */
    uint64_t from;  /* in the last of them */
    bool taken;     /* something that was found is still ready: it must not be found again */
    uint64_t stepped[QI_PRIORITIES /
                     64]; /* lanes in which something that has expired was stepped over */
};

void qi_look_begin(struct qi_look *look, struct qi_queue *queue);
/* The next message that is ready and has not expired: 0, QI_EMPTY or an error. With `room` > 0, expired ones on the way
 * are dropped, and there is room in the journal for that many bytes of deliveries afterwards (the lock may have been given
 * up in between). Without it they are stepped over. */
int qi_look_next(struct qi_look *look, uint64_t room, struct qi_found *found);
/* The caller goes on looking with this one in hand; and: puts it back, if nothing came of it. */
void qi_look_take(struct qi_look *look, const struct qi_found *found);
void qi_look_put_back(struct qi_look *look, const struct qi_found *found);
/* It was delivered: the cursor of its lane may move behind it. */
void qi_look_delivered(const struct qi_look *look, const struct qi_found *found);

/* The ready message that was published last, of the highest priority. Expired ones are dropped as above. */
int qi_newest_ready(struct qi_queue *queue, uint64_t room, struct qi_found *found);

/* browse.c: its maps leave the memory, if nobody uses them. */
bool qi_cool_if_unused(struct qi_queue *queue, struct qi_segment *segment);

/* The first message of [req_id, end) that is not acked; READY: nor out, nor held; NOW: QI_BUSY if a segment would have to be
 * read to tell. QI_EMPTY if there is none. */
enum qi_find { QI_FIND_ALL, QI_FIND_READY, QI_FIND_READY_NOW };
int qi_find_message(struct qi_queue *queue, uint64_t req_id, uint64_t end, enum qi_find what,
                    struct qi_segment **found, uint32_t *slot);
/* The same within the maps of one segment, at or behind *slot. */
bool qi_find_slot(struct qi_queue *queue, const struct qi_hot *hot, bool ready_only,
                  uint32_t *slot);

#endif
