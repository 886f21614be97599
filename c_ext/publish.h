/* publish.h - a message on its way in: what queue.c, fanout.c and rules.c share. */
#ifndef QI_PUBLISH_H
#define QI_PUBLISH_H

#include "store.h"

struct qi_publish {
    const void *headers, *body;
    uint32_t headers_size, body_size;
    uint32_t flags; /* QI_TRANSIENT, QI_REDELIVERED */
    uint64_t expiry_us;
    struct qi_msg_id id; /* in the message store; stamp 0: embedded */
    uint32_t queues;     /* that it goes to; 0: one */
    uint64_t due_us;     /* 0: it is ready at once */
    uint32_t lane;
};

static inline uint32_t qi_publish_priority(uint32_t flags) {
    return flags >> QI_PRIORITY_SHIFT & (QI_PRIORITIES - 1);
}

/* The lane, which is chosen once: when it is reserved and when it is used must not differ. */
static inline uint32_t qi_publish_lane(struct qi_store *store, uint32_t flags, uint64_t due_us) {
    return due_us ? qi_delay_lane(due_us, qi_now_us(store)) : qi_publish_priority(flags);
}

static inline uint64_t qi_publish_time(const struct qi_publish *publish) {
    return (uint64_t)qi_publish_priority(publish->flags) << QI_TIME_US_BITS |
           qi_time_us(publish->due_us);
}

/* Embedded in the index, or in the message store? */
static inline bool qi_is_embedded(const struct qi_store *store, const struct qi_publish *publish) {
    return publish->headers_size + (uint64_t)publish->body_size < store->options.embed_below;
}

static inline uint64_t qi_publish_size(const struct qi_store *store,
                                       const struct qi_publish *publish) {
    uint64_t payload = publish->headers_size + (uint64_t)publish->body_size;
    return QI_RECORD_ID + QI_PUB_FIELDS + (qi_is_embedded(store, publish) ? payload : 0) +
           (publish->flags & QI_REDELIVERED ? QI_RECORD_ID : 0) +
           (publish->due_us ? QI_TIME_RECORD : 0);
}

static inline uint64_t qi_publish_payload(const struct qi_publish *publish) {
    return publish->headers_size + (uint64_t)publish->body_size;
}

/* queue.c: room in the journal, as far as it goes without waiting for anything. */
bool qi_has_room(struct qi_queue *queue, uint64_t bytes, uint64_t ids);
/* Memory for the maps of the next `count` ReqIds of the message's lane. */
int qi_publish_maps(struct qi_queue *queue, const struct qi_publish *publish, uint32_t count);
/* The body, if it is not embedded. Called when there is room in the journal: from here to the reference in the index the lock
 * is never given up, so that nobody sees a body without references and frees it. */
int qi_publish_body(struct qi_store *store, struct qi_publish *publish);
/* The record, where there is room for it already: the ReqId, or an error. */
int64_t qi_append_publish(struct qi_queue *queue, const struct qi_publish *publish);

/* rules.c: is there a place for `count` more with so many bytes of headers and bodies, in the queue and in the store, if they may not have any number?
 * QI_E_QUEUE_FULL, QI_E_STORE_FULL: no. For several queues: in each, then in the store for all of them. */
int qi_has_place(struct qi_queue *queue, uint32_t count, uint64_t bytes);
int qi_queue_has_place(struct qi_queue *queue, uint32_t count, uint64_t bytes);
int qi_store_has_place(struct qi_store *store, uint64_t count, uint64_t bytes,
                       const struct qi_heads *leaving);
/* A bound may have been lowered by far: what is too many goes, but for what one publish can take along. Gives the lock up. */
int qi_trim(struct qi_queue *queue);
/* Makes it: the head goes, when there is memory and room for that and for the `bytes` that follow. Called last before the
 * record, so that no head goes for a publish that fails. */
int qi_make_place(struct qi_queue *queue, const struct qi_publish *publish, uint32_t count,
                  uint64_t bytes);

#endif
