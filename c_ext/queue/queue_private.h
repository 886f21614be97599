/* queue_private.h - what the verbs share: room in the journal, which message is next, events, a
 * message on its way in. */
#ifndef QI_QUEUE_PRIVATE_H
#define QI_QUEUE_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "durable/durable.h"
#include "index/index.h"
#include "queue/queue.h"

struct qi_heads;
struct qi_hot;
struct qi_published;

/* ---- room ---- */

/* Appends of deliveries and acks behind a publish must always fit (H14): this much is kept from
 * publishes. */
#define QI_ACK_ROOM      (UINT64_C(4) << 20)
/* A MANIFEST may be as long as this without counting as content of the journal. */
#define QI_MANIFEST_ROOM (UINT64_C(256) << 10)
#define QI_EVENT_ROOM    (UINT64_C(64) << 10) /* for the frames that describe the queue itself */

/* Room in the journal, as far as it goes without waiting for anything. */
static inline bool qi_has_room(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    const qi_options *options = &queue->store->options;
    const struct qi_journal *journal = qi_current(queue);
    /* While a flush runs, a quarter more may come; then publishers wait for the disk, so that there
     * are never more than two such journals to read after a crash. */
    uint64_t dirty_max = options->max_journal_entries * UINT64_C(5) / 4;
    uint64_t tail_max = 2 * options->max_journal_bytes + QI_JOURNAL_START + QI_MANIFEST_ROOM;
    return journal->tail + bytes + QI_ACK_ROOM <= journal->tape.mapped &&
           queue->dirty_count <= dirty_max &&
           (journal->tail <= tail_max || queue->dirty_count == 0) &&
           queue->highest + ids <= queue->reserved;
}

/* Waits for what is missing: a flush or a sync, its own or one that is under way. */
int qi_make_room_slowly(struct qi_queue *queue, uint64_t bytes, uint64_t ids);

/* Room for `bytes` of records and `ids` ReqIds in the current journal; flushes if there is none.
 * The usual case is one comparison each. */
static inline int qi_make_room(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    if (__builtin_expect(!queue->short_of_space && qi_has_room(queue, bytes, ids) &&
                             queue->highest + ids <= queue->reserved_durable,
                         1))
        return 0;
    return qi_make_room_slowly(queue, bytes, ids);
}

static inline bool qi_is_flush_due(struct qi_queue *queue) {
    const qi_options *options = &queue->store->options;
    return queue->dirty_count > options->max_journal_entries ||
           qi_current(queue)->tail > options->max_journal_bytes;
}

/* Takes the lock if a verb that appends `bytes` and uses `ids` ReqIds need not wait for a lock, a
 * flush or a disk. */
static inline bool qi_begin_now(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    struct qi_store *store = queue->store;
    if (!qi_try_lock(store))
        return false;
    if (__builtin_expect(qi_store_usable(store, true) == 0 && qi_is_awake(queue) &&
                             !queue->short_of_space && qi_has_room(queue, bytes, ids) &&
                             queue->highest + ids <= queue->reserved_durable &&
                             (queue->flush || !qi_is_flush_due(queue)),
                         1)) {
        qi_files_used(queue);
        return true;
    }
    pthread_mutex_unlock(&store->lock);
    return false;
}

/* Deliveries and acks may use what publishes must leave: they need no flush that a full disk would
 * not allow (H14). */
static inline int qi_make_event_room(struct qi_queue *queue, uint64_t bytes) {
    const struct qi_journal *journal = qi_current(queue);
    if (__builtin_expect(journal->tail + bytes + QI_EVENT_ROOM <= journal->tape.mapped, 1))
        return 0;
    return qi_make_room(queue, bytes, 0);
}

/* ---- find ---- */

/* As far as the counters know. */
static inline bool qi_segment_has_ready(const struct qi_segment *segment) {
    return segment->unacked > segment->delayed + segment->dead &&
           !(segment->hot &&
             segment->hot->out_count + segment->hot->held_count >= segment->unacked);
}

/* The first message of [req_id, end) that is not acked; READY: nor out, nor held; NOW: QI_BUSY if a
 * segment would have to be read to tell. QI_EMPTY if there is none. */
enum qi_find { QI_FIND_ALL, QI_FIND_READY, QI_FIND_READY_NOW };
int qi_find_message(struct qi_queue *queue, uint64_t req_id, uint64_t end, enum qi_find what,
                    struct qi_segment **found, uint32_t *slot);
/* The same within the maps of one segment, at or behind *slot. */
bool qi_find_slot(struct qi_queue *queue, const struct qi_hot *hot, bool ready_only,
                  uint32_t *slot);

/* ---- events ---- */

/* The same for one that is out; `delivery` as in qi_ack. */
int qi_find_unacked(struct qi_queue *queue, uint64_t req_id, uint64_t delivery,
                    struct qi_segment **segment, uint32_t *slot);
/* The same for one that nobody has; else QI_E_DELIVERED. */
int qi_find_waiting(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                    uint32_t *slot);
/* Events of one kind for `count` ReqIds, as one frame. */
int qi_append_events(struct qi_queue *queue, enum qi_record_kind kind, const uint64_t *req_ids,
                     uint32_t count);
int qi_append_event(struct qi_queue *queue, enum qi_record_kind kind, uint64_t req_id);
/* A message that nobody has, or whose consumer gives it up, becomes a dead letter. The caller made
 * room. */
int qi_bury(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint32_t why);
/* QI_E_ARGUMENT if a ReqId stands in the list twice. O(count) if they rise, else they are
 * sorted. */
int qi_check_distinct(const uint64_t *req_ids, uint32_t count);

/* What a time record of this message says: the priority that it has, and the time at which it is
 * due. */
uint64_t qi_time_for(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot,
                     uint64_t due_us);

/* One frame with the times of all of them. */
int qi_append_times(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count,
                    uint64_t due_us);

/* How often it was handed out. */
static inline uint32_t qi_handed_out(const struct qi_slots *slots, uint32_t slot) {
    if (!qi_bit(slots->del, slot))
        return 0;
    return slots->count && slots->count[slot & 63] ? slots->count[slot & 63] : 1;
}
/* The same, but for deliveries that do not count. */
static inline uint32_t qi_delivery_count(const struct qi_slots *slots, uint32_t slot) {
    uint32_t all = qi_handed_out(slots, slot);
    if (__builtin_expect(!qi_bit(slots->side, slot), 1))
        return all;
    uint32_t less = qi_uncounted_of(slots, slot).count;
    return less < all ? all - less : 0;
}
/* So often was it delivered that it has to die: after so many times, and again so many. One that
 * came back uncounted was not tried again since. */
static inline bool qi_is_tried_out(const struct qi_slots *slots, uint32_t slot, uint32_t most) {
    uint32_t count = most ? qi_delivery_count(slots, slot) : 0;
    return count > 0 && count % most == 0 &&
           !(qi_bit(slots->side, slot) &&
             qi_uncounted_of(slots, slot).last == qi_handed_out(slots, slot));
}
/* Which delivery of a message the last one was. The count tells deliveries of one message apart,
 * the tag those of different queues and sessions. At 65535 the count stays; from there on the
 * queue counts such deliveries. So a process never sees the same number of a message twice. */
static inline uint64_t qi_delivery_of(const struct qi_queue *queue, const struct qi_slots *slots,
                                      uint32_t slot) {
    uint32_t count = qi_handed_out(slots, slot);
    if (__builtin_expect(count == UINT16_MAX && slots->again, 0))
        count += slots->again[slot & 63];
    return (uint64_t)queue->tag << 32 | count;
}
/* The message is out; is it that delivery? 0: any. */
static inline bool qi_is_delivery(const struct qi_queue *queue, const struct qi_slots *slots,
                                  uint32_t slot, uint64_t delivery) {
    return delivery == 0 || delivery == qi_delivery_of(queue, slots, slot);
}

/* ---- deaths ---- */

#define QI_DEATHS_MAX   64u /* that are told of a message: the latest */
/* A message becomes a dead letter: its time, and how often that was so. */
#define QI_DEATH_RECORD (QI_TIME_RECORD + QI_DIED_RECORD)

/* How a message became a dead letter: in which queue and why, how often, first and last. */
struct qi_death {
    const char *name;
    uint32_t name_size, why;
    uint64_t times, first_us, last_us;
};

bool qi_has_died(const struct qi_slots *slots, uint32_t slot);
/* The side record says so. */
bool qi_is_death(const struct qi_side *side);
/* The latest first; how many. */
uint32_t qi_deaths_of_slot(const struct qi_queue *queue, const struct qi_slots *slots,
                           uint32_t slot, struct qi_death deaths[QI_DEATHS_MAX]);
/* As DEATHS has them: their size, and they. */
uint32_t qi_deaths_size(const struct qi_death *deaths, uint32_t count);
void qi_deaths_put(uint8_t *at, const struct qi_death *deaths, uint32_t count);
/* One more DIED of that message: what the record says, with its head. */
void qi_died_put(uint8_t *at, uint64_t req_id, const struct qi_slots *slots, uint32_t slot,
                 uint32_t why, uint64_t now_us);

/* ---- dead_letters ---- */

/* A message has become a dead letter: it is moved, if the queue says where to. */
void qi_dead_came(struct qi_queue *queue, uint64_t req_id);
/* Moves what there is to move now; what cannot be moved stays. Called at the end of a verb, with
 * the lock, which it may give up. */
void qi_dead_move(struct qi_queue *queue);
/* Behind a verb that returns `result`: an error's text stays what it is. */
static inline void qi_dead_move_after(struct qi_queue *queue, int64_t result) {
    if (__builtin_expect(queue->dying, 0) && (result >= 0 || result == QI_EMPTY))
        qi_dead_move(queue);
}
/* The next dead letter at or behind *req_id, and before `end`: 0, QI_EMPTY or an error. */
int qi_find_dead(struct qi_queue *queue, uint64_t *req_id, uint64_t end,
                 struct qi_segment **segment, uint32_t *slot);

/* ---- ack ---- */

/* Deliveries end with an ack each, all or none; *counted has that many more then. */
int64_t qi_settle_many(struct qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                       uint32_t count, uint64_t *counted);

/* ---- ready ---- */

/* A message that was found; the pointer is valid until the lock is given up. */
struct qi_found {
    struct qi_segment *segment;
    uint32_t slot;
    bool due;                          /* it was delayed, and its time has come */
    const struct qi_published *record; /* valid until another is read; NULL: not read yet */
};

/* A look at what is ready, best first: highest priority, of the same priority first what was
 * delayed and is due, then by ReqId. */
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
/* The next message that is ready and has not expired: 0, QI_EMPTY or an error. With `room` > 0,
 * expired ones on the way are dropped, and there is room in the journal for that many bytes of
 * deliveries afterwards (the lock may have been given up in between). Without it they are stepped
 * over. */
int qi_look_next(struct qi_look *look, uint64_t room, struct qi_found *found);
/* The caller goes on looking with this one in hand; and: puts it back, if nothing came of it. */
void qi_look_take(struct qi_look *look, const struct qi_found *found);
void qi_look_put_back(struct qi_look *look, const struct qi_found *found);
/* It was delivered: the cursor of its lane may move behind it. */
void qi_look_delivered(const struct qi_look *look, const struct qi_found *found);

/* The ready message that was published last, of the highest priority. Expired ones are dropped as
 * above. */
int qi_newest_ready(struct qi_queue *queue, uint64_t room, struct qi_found *found);

/* ---- browse ---- */

static inline bool qi_is_expired(const struct qi_queue *queue, uint64_t expiry_us) {
    return expiry_us != 0 && expiry_us <= qi_wall_us(queue->store);
}

/* Fills in the message and copies its payload; nothing is changed. QI_E_ROOM: it is longer than
 * `room`. Costs a copy. */
int qi_read_message(struct qi_queue *queue, const struct qi_found *found, qi_message *message,
                    uint8_t *payload, size_t room);
/* The same without waiting, to where the caller says. QI_BUSY: that cannot be, or it has expired;
 * else what `places` says. */
int qi_read_message_now(struct qi_queue *queue, const struct qi_found *found, qi_message *message,
                        const struct qi_places *places);

/* ---- publish ---- */

struct qi_new_message {
    const void *headers, *body;
    uint32_t headers_size, body_size;
    uint32_t flags; /* QI_TRANSIENT, QI_REDELIVERED */
    uint64_t expiry_us;
    struct qi_msg_id id; /* in the message store; stamp 0: embedded */
    uint32_t queues;     /* that it goes to; 0: one */
    uint32_t lane;
    uint64_t due_us;      /* 0: it is ready at once */
    uint64_t lease_us;    /* how long a consumer may keep it; 0: as whoever gets it says */
    const uint8_t *sides; /* other side records, end to end: kind 2, size 4, bytes */
    uint32_t sides_size;
};

#define QI_GIVEN_SIDE 6u /* and the bytes */

/* Steps through `sides`: begin with *at = 0; false when there are no more. */
bool qi_given_side(const struct qi_new_message *publish, uint32_t *at, struct qi_side *side);

static inline uint32_t qi_publish_priority(uint32_t flags) {
    return flags >> QI_PRIORITY_SHIFT & (QI_PRIORITIES - 1);
}

/* The lane, which is chosen once: when it is reserved and when it is used must not differ. */
static inline uint32_t qi_publish_lane(struct qi_store *store, uint32_t flags, uint64_t due_us) {
    return due_us ? qi_delay_lane(due_us, qi_wall_us(store)) : qi_publish_priority(flags);
}

/* What the arguments of a publish say; it goes to one queue. */
static inline struct qi_new_message qi_new_message_of(struct qi_store *store, const void *headers,
                                                      uint32_t headers_size, const void *body,
                                                      uint32_t body_size, uint32_t flags,
                                                      uint64_t expiry_us, uint64_t due_us) {
    return (struct qi_new_message){.headers = headers,
                                   .body = body,
                                   .headers_size = headers_size,
                                   .body_size = body_size,
                                   .flags = flags,
                                   .expiry_us = expiry_us,
                                   .queues = 1,
                                   .lane = qi_publish_lane(store, flags, due_us),
                                   .due_us = qi_time_given(due_us)};
}

static inline uint64_t qi_publish_time(const struct qi_new_message *publish) {
    return (uint64_t)qi_publish_priority(publish->flags) << QI_TIME_US_BITS |
           qi_time_us(publish->due_us);
}

/* Embedded in the index, or in the message store? */
static inline bool qi_is_embedded(const struct qi_store *store,
                                  const struct qi_new_message *publish) {
    return publish->headers_size + (uint64_t)publish->body_size < store->options.embed_below;
}

static inline uint64_t qi_publish_size(const struct qi_store *store,
                                       const struct qi_new_message *publish) {
    uint64_t payload = publish->headers_size + (uint64_t)publish->body_size;
    return QI_RECORD_ID + QI_PUB_FIELDS + (qi_is_embedded(store, publish) ? payload : 0) +
           (publish->flags & QI_REDELIVERED ? QI_RECORD_ID : 0) +
           (publish->due_us ? QI_TIME_RECORD : 0) + (publish->lease_us ? QI_SIDE_RECORD + 8 : 0);
}

static inline uint64_t qi_publish_payload(const struct qi_new_message *publish) {
    return publish->headers_size + (uint64_t)publish->body_size;
}

/* Memory for the maps of the next `count` ReqIds of the message's lane. */
int qi_publish_maps(struct qi_queue *queue, const struct qi_new_message *publish, uint32_t count);
/* The body, if it is not embedded. Called when there is room in the journal: from here to the
 * reference in the index the lock is never given up, so that nobody sees a body without references
 * and frees it. */
int qi_publish_body(struct qi_store *store, struct qi_new_message *publish);
/* For who appends the record itself: writes it, up to the end that it returns; and its bits, when
 * it stands at that offset of the journal. The maps are there. */
uint8_t *qi_put_publish(const struct qi_queue *queue, uint8_t *at, uint64_t req_id,
                        const struct qi_new_message *publish);
void qi_mark_published(struct qi_queue *queue, uint64_t req_id, uint64_t offset,
                       const struct qi_new_message *publish);
/* The record, where there is room for it already: the ReqId, or an error. */
int64_t qi_append_publish(struct qi_queue *queue, const struct qi_new_message *publish);

/* ---- transaction ---- */

/* What a transaction does in one queue. */
struct qi_tx_queue {
    struct qi_queue *queue;
    struct qi_part *frame;  /* what the journal gets */
    uint64_t size, payload; /* of its records; of what is published, for its bounds */
    uint32_t publishes;
    const struct qi_new_message *one; /* of these */
    uint8_t *records, *next;          /* in the log */
    uint64_t offset;                  /* of the records in the journal */
};

/* A change as it is carried out. */
struct qi_tx_step {
    uint32_t from, to;             /* parts; `from` of an ack or move, `to` of a publish or move */
    struct qi_new_message message; /* of a publish or move */
    uint32_t deliveries;           /* that a moved message had */
    bool redriven;          /* it had too many for where it goes: it is delivered once more */
    uint64_t req_id;        /* that it gets */
    size_t copied;          /* where its payload is kept */
    size_t sides;           /* and the side records that go along */
    uint32_t sides_records; /* bytes of these as records */
};

struct qi_tx {
    struct qi_store *store;
    qi_change *changes;
    struct qi_tx_step *steps;
    uint32_t count;
    struct qi_tx_queue *parts;
    struct qi_queue **queues; /* the same queues */
    uint32_t parts_count;
    uint32_t at; /* the change that is looked at */
    uint32_t pins;
    uint8_t *kept; /* payloads of moved messages */
    size_t kept_size, kept_room;
};

/* ---- transaction_steps ---- */

/* What each change does, and how much that is for each queue: 0 or the error, which is about the
 * change tx->at. What moves is read. */
int qi_tx_measure(struct qi_tx *tx);
/* Bytes of the records of a publish or move, in the queue that it goes to. */
uint64_t qi_tx_record_size(const struct qi_tx_step *step);
/* The time of a message that is delivered once more, however often it was. */
uint64_t qi_tx_redriven(const struct qi_tx_step *step);
/* qi_transaction() for who has the lock; gives it up. */
int qi_transaction_locked(struct qi_store *store, qi_change *changes, uint32_t count, bool confirm,
                          uint32_t *failed);
int qi_tx_fail_big(const struct qi_tx *tx, uint64_t size);
/* The log could not be written: the store fails, and QI_E_OUTCOME if the write may have come. */
int qi_tx_fail_append(const struct qi_tx *tx, int error);

/* ---- rules ---- */

/* Is there a place for `count` more with so many bytes of headers and bodies, in the queue and in
 * the store, if they may not have any number? QI_E_QUEUE_FULL, QI_E_STORE_FULL: no. For several
 * queues: in each, then in the store for all of them. */
int qi_has_place(struct qi_queue *queue, uint32_t count, uint64_t bytes);
int qi_queue_has_place(struct qi_queue *queue, uint32_t count, uint64_t bytes);
int qi_store_has_place(struct qi_store *store, uint64_t count, uint64_t bytes,
                       const struct qi_heads *leaving);
/* A bound may have been lowered by far: what is too many goes, but for what one publish can take
 * along. Gives the lock up. */
int qi_trim(struct qi_queue *queue);
/* Makes it: the head goes, when there is memory and room for that and for the `bytes` that follow.
 * Called last before the record, so that no head goes for a publish that fails. */
int qi_make_place(struct qi_queue *queue, const struct qi_new_message *publish, uint32_t count,
                  uint64_t bytes);
/* The record could not be appended after all: the error, which says so if messages have left for
 * it. */
int qi_publish_failed(struct qi_queue *queue, int error);
/* The same of several; names the queues. */
int qi_publishes_failed(struct qi_queue **queues, uint32_t count, int error);

/* ---- wait ---- */

/* A time was set: who waits for one looks again. */
void qi_timers_armed(struct qi_queue *queue);

/* A verb that takes something from a queue: what it got, QI_EMPTY, or an error. Called with the
 * lock. */
typedef int64_t (*qi_take)(struct qi_queue *queue, void *context);

/* Takes from the first of the queues that has something; waits for it until the store's clock says
 * until_us. Gives the lock up, which it takes itself. QI_EMPTY: the time is over; QI_PAUSE: so is
 * pause_us, and it may be called again. Returns an error at once when the store or a queue is
 * closed or fails. */
int64_t qi_wait(struct qi_queue **queues, uint32_t count, uint64_t until_us, uint64_t pause_us,
                qi_take take, void *context);

#endif
