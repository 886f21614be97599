/* queue_private.h - what the verbs share: room in the journal, the search for the next message,
 * event records, and the message that a publish is about to append. */
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

/* Deliveries and acks must always fit into the journal behind a publish (H14). So a publish leaves
 * this many bytes free. */
#define QI_ACK_ROOM      (UINT64_C(4) << 20)
/* A MANIFEST up to this size does not count as content of the journal. */
#define QI_MANIFEST_ROOM (UINT64_C(256) << 10)
#define QI_EVENT_ROOM    (UINT64_C(64) << 10) /* for the frames that describe the queue itself */

/* True if the journal has room now, without a wait for anything. */
static inline bool qi_has_room(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    const qi_options *options = &queue->store->options;
    const struct qi_journal *journal = qi_current(queue);
    /* While a flush runs, publishers may append a quarter more. Then they wait for the disk. So
     * recovery never has more than two such journals to read after a crash. */
    uint64_t dirty_max = options->max_journal_entries * UINT64_C(5) / 4;
    uint64_t tail_max = 2 * options->max_journal_bytes + QI_JOURNAL_START + QI_MANIFEST_ROOM;
    return journal->tail + bytes + QI_ACK_ROOM <= journal->tape.mapped &&
           queue->dirty_count <= dirty_max &&
           (journal->tail <= tail_max || queue->dirty_count == 0) &&
           queue->highest + ids <= queue->reserved;
}

/* Makes the room by a flush or a sync. It waits for one that is under way, or runs its own. */
int qi_make_room_slowly(struct qi_queue *queue, uint64_t bytes, uint64_t ids);

/* Makes sure that the current journal has room for `bytes` of records and `ids` ReqIds. Flushes if
 * it has not. The usual case costs one comparison for each condition. */
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

/* True if qi_queue_ready and qi_make_room would have nothing to do. Ends the leases that are
 * over. */
static inline bool qi_is_ready_now(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    if (qi_store_usable(queue->store, true) != 0 || !qi_is_awake(queue))
        return false;
    qi_leases_run(queue, &queue->timers);
    return !queue->short_of_space && !queue->spent.waits && qi_has_room(queue, bytes, ids) &&
           queue->highest + ids <= queue->reserved_durable &&
           (queue->flush || !qi_is_flush_due(queue));
}

/* For a verb that appends `bytes` and uses `ids` ReqIds. Takes the lock if the verb need not wait
 * for the lock, a flush or the disk. */
static inline bool qi_begin_now(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    if (!qi_try_lock(queue->store))
        return false;
    if (__builtin_expect(qi_is_ready_now(queue, bytes, ids), 1)) {
        qi_files_used(queue);
        return true;
    }
    pthread_mutex_unlock(&queue->store->lock);
    return false;
}

/* Deliveries and acks may use the room that publishes must leave free. So they do not depend on a
 * flush, which a full disk would not allow (H14). */
static inline int qi_make_event_room(struct qi_queue *queue, uint64_t bytes) {
    const struct qi_journal *journal = qi_current(queue);
    if (__builtin_expect(journal->tail + bytes + QI_EVENT_ROOM <= journal->tape.mapped, 1))
        return 0;
    return qi_make_room(queue, bytes, 0);
}

/* ---- find ---- */

/* True if the segment has a ready message, as far as its counters say. */
static inline bool qi_segment_has_ready(const struct qi_segment *segment) {
    return segment->unacked > segment->delayed + segment->dead &&
           !(segment->hot &&
             segment->hot->out_count + segment->hot->held_count >= segment->unacked);
}

/* Finds the first message of [req_id, end) that is not acked. With QI_FIND_READY the message must
 * also be neither delivered nor held. QI_FIND_READY_NOW looks for the same, but returns QI_BUSY if
 * a segment would have to be read first. QI_EMPTY: there is no such message. */
enum qi_find { QI_FIND_ALL, QI_FIND_READY, QI_FIND_READY_NOW };
int qi_find_message(struct qi_queue *queue, uint64_t req_id, uint64_t end, enum qi_find what,
                    struct qi_segment **found, uint32_t *slot);
/* The same search in the maps of one segment. It begins at *slot. */
bool qi_find_slot(struct qi_queue *queue, const struct qi_hot *hot, bool ready_only,
                  uint32_t *slot);

/* ---- events ---- */

/* The same as qi_find_live for a message that is delivered. `delivery` is as in qi_ack. */
int qi_find_unacked(struct qi_queue *queue, uint64_t req_id, uint64_t delivery,
                    struct qi_segment **segment, uint32_t *slot);
/* The same as qi_find_live for a message that no consumer has. QI_E_DELIVERED: a consumer has it.
 */
int qi_find_waiting(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                    uint32_t *slot);
/* Appends events of one kind for `count` ReqIds, as one frame. */
int qi_append_events(struct qi_queue *queue, enum qi_record_kind kind, const uint64_t *req_ids,
                     uint32_t count);
int qi_append_event(struct qi_queue *queue, enum qi_record_kind kind, uint64_t req_id);
/* Makes dead letters of messages that no consumer has or whose consumer gives them up. The caller
 * has made the room. */
int qi_bury(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint32_t why);
/* Messages that nobody may have any more, QI_DEAD_EXPIRED or QI_DEAD_DELIVERIES, leave: they become
 * dead letters if the queue keeps them, else they are acked. One frame, for which the caller made
 * room, QI_DEATH_RECORD for each. */
int qi_drop(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint32_t why);
/* QI_E_ARGUMENT: a ReqId is in the list twice. Cost: O(count) if the ReqIds are in rising order;
 * otherwise they are sorted first. */
int qi_check_distinct(const uint64_t *req_ids, uint32_t count);

/* The value of a time record for this message: its priority, and the time at which it is due. */
uint64_t qi_time_for(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot,
                     uint64_t due_us);

/* Appends one frame with a time record for each of these messages. */
int qi_append_times(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count,
                    uint64_t due_us);

/* The number of a message's last delivery. Its count distinguishes the deliveries of one message.
 * Its tag distinguishes different queues and sessions. The count stops at 65535. From there on the
 * queue itself counts such deliveries. So a process never sees the same number of a message twice.
 */
static inline uint64_t qi_delivery_of(const struct qi_queue *queue, const struct qi_slots *slots,
                                      uint32_t slot) {
    uint32_t count = qi_handed_out(slots, slot);
    if (__builtin_expect(count == UINT16_MAX && slots->again, 0))
        count += slots->again[slot & 63];
    return (uint64_t)queue->tag << 32 | count;
}
/* For a message that is delivered: true if `delivery` is its current delivery, or 0 for any. */
static inline bool qi_is_delivery(const struct qi_queue *queue, const struct qi_slots *slots,
                                  uint32_t slot, uint64_t delivery) {
    return delivery == 0 || delivery == qi_delivery_of(queue, slots, slot);
}

/* ---- deaths ---- */

#define QI_DEATHS_MAX   64u /* at most so many are reported of a message: the latest */
/* The records that make a message a dead letter: its time, and the side record DIED. */
#define QI_DEATH_RECORD (QI_TIME_RECORD + QI_DIED_RECORD)

/* How a message became a dead letter: in which queue, why, how often, and the times of the first
 * and of the last death. */
struct qi_death {
    const char *name;
    uint32_t name_size, why;
    uint64_t times, first_us, last_us;
};

bool qi_has_died(const struct qi_slots *slots, uint32_t slot);
/* True if the side record describes a death. */
bool qi_is_death(const struct qi_side *side);
/* Fills in the deaths of the message, the latest first. Returns how many they are. */
uint32_t qi_deaths_of_slot(const struct qi_queue *queue, const struct qi_slots *slots,
                           uint32_t slot, struct qi_death deaths[QI_DEATHS_MAX]);
/* The size of the deaths in a DEATHS record. */
uint32_t qi_deaths_size(const struct qi_death *deaths, uint32_t count);
/* Writes the deaths as a DEATHS record has them. */
void qi_deaths_put(uint8_t *at, const struct qi_death *deaths, uint32_t count);
/* Writes one more DIED record of that message, with its head. */
void qi_died_put(uint8_t *at, uint64_t req_id, const struct qi_slots *slots, uint32_t slot,
                 uint32_t why, uint64_t now_us);

/* ---- dead_letters ---- */

/* Notes that a message has become a dead letter. It will move if the queue has a queue for its dead
 * letters. */
void qi_dead_came(struct qi_queue *queue, uint64_t req_id);
/* Moves the dead letters that have to move now. A dead letter that cannot be moved stays. Called at
 * the end of a verb, with the lock, and may give it up. */
void qi_dead_move(struct qi_queue *queue);
/* Called at the end of a verb that returns `result`. After an error nothing is moved, so that the
 * text of the error stays. */
static inline void qi_dead_move_after(struct qi_queue *queue, int64_t result) {
    if (__builtin_expect(queue->dying, 0) && (result >= 0 || result == QI_EMPTY))
        qi_dead_move(queue);
}
/* Finds the next dead letter at or behind *req_id and before `end`. Returns 0, QI_EMPTY or an
 * error. */
int qi_find_dead(struct qi_queue *queue, uint64_t *req_id, uint64_t end,
                 struct qi_segment **segment, uint32_t *slot);

/* ---- spent ---- */

/* Messages whose last allowed delivery has ended leave, as far as they are known. What cannot be
 * done now, a get does. Called with the lock, which it may give up. */
void qi_spent_leave(struct qi_queue *queue);
/* The queue allows fewer deliveries than before: all that waits is looked at once. */
void qi_spent_begin(struct qi_queue *queue);

/* ---- ready ---- */

/* A message that was found. The pointer to its segment is valid until the lock is given up. */
struct qi_found {
    struct qi_segment *segment;
    uint32_t slot;
    bool due;                          /* the message was delayed, and its time has come */
    const struct qi_published *record; /* valid until another one is read; NULL: not read yet */
};

/* A search for ready messages, the best first. A higher priority comes first. Among messages of one
 * priority those that were delayed and are due come first, then the others by ReqId. */
struct qi_look {
    struct qi_queue *queue;
    uint32_t lanes_left; /* the search has not reached the end of the lanes below this index */
    uint64_t from;       /* where it is in the last of these lanes */
    bool taken;          /* a message that was found is still ready, and must not be found again */
    uint64_t stepped[QI_PRIORITIES / 64]; /* lanes in which an expired message was passed over */
};

void qi_look_begin(struct qi_look *look, struct qi_queue *queue);
/* Finds the next message that is ready and has not expired. Returns 0, QI_EMPTY or an error. If
 * `room` > 0, the search drops the expired messages on its way. The journal then has room for
 * `room` bytes of deliveries, and the lock may have been given up in between. If `room` is 0, the
 * search passes over expired messages. */
int qi_look_next(struct qi_look *look, uint64_t room, struct qi_found *found);
/* The caller keeps this message and goes on with the search. */
void qi_look_take(struct qi_look *look, const struct qi_found *found);
/* The caller could not deliver the message that it kept: the message goes back. */
void qi_look_put_back(struct qi_look *look, const struct qi_found *found);
/* The message was delivered: the cursor of its lane may move behind it. */
void qi_look_delivered(const struct qi_look *look, const struct qi_found *found);

/* Finds the ready message of the highest priority that was published last. Drops expired messages
 * as qi_look_next does. */
int qi_newest_ready(struct qi_queue *queue, uint64_t room, struct qi_found *found);

/* ---- browse ---- */

static inline bool qi_is_expired(const struct qi_queue *queue, uint64_t expiry_us) {
    return expiry_us != 0 && expiry_us <= qi_wall_us(queue->store);
}

/* Fills in the message and copies its payload. Changes nothing. QI_E_ROOM: the payload is longer
 * than `room`. Cost: one copy. */
int qi_read_message(struct qi_queue *queue, const struct qi_found *found, qi_message *message,
                    uint8_t *payload, size_t room);
/* The same without a wait, to the place that `places` names, but for a stored payload: the caller
 * reads that into *into. QI_BUSY: it would have to wait, the payload is longer than `room`, or the
 * message has expired. Other errors come from `places`. */
int qi_place_message_now(struct qi_queue *queue, const struct qi_found *found, qi_message *message,
                         uint64_t room, const struct qi_places *places, struct qi_into *into);

/* ---- publish ---- */

struct qi_new_message {
    const void *headers, *body;
    uint32_t headers_size, body_size;
    uint32_t flags; /* QI_TRANSIENT, QI_REDELIVERED, QI_AWAITED, QI_STEADY */
    uint64_t expiry_us;
    struct qi_msg_id id; /* of its body in the message store; stamp 0: the body is embedded */
    uint32_t queues;     /* number of queues that it goes to; 0 means one */
    uint32_t lane;
    uint64_t due_us;      /* 0: the message is ready at once */
    uint64_t lease_us;    /* how long a consumer may keep it; 0: the consumer's get says that */
    const uint8_t *sides; /* other side records, end to end: kind (2 bytes), size (4), bytes */
    uint32_t sides_size;
};

#define QI_GIVEN_SIDE 6u /* kind and size of such a side record; its bytes follow */

/* Reads the next side record of `sides`. *at must be 0 for the first. False: there are no more. */
bool qi_given_side(const struct qi_new_message *publish, uint32_t *at, struct qi_side *side);
/* The records of all of them, the lease included, at `at`: where they end. And in the maps, which
 * have room. */
uint8_t *qi_put_sides(uint8_t *at, uint64_t req_id, const struct qi_new_message *publish);
void qi_mark_sides(struct qi_segment *segment, uint32_t slot, const struct qi_new_message *publish);
/* Memory for the own leases of so many new messages, whose maps are there: 0 or QI_E_MEMORY. If
 * they are not put after all, qi_leases_unused must say so. */
int qi_leases_room(struct qi_queue *queue, uint64_t first, uint32_t count);
void qi_leases_unused(struct qi_queue *queue, uint64_t first, uint32_t count);
int qi_fail_lease_format(void); /* the store's format has no place for them: QI_E_FORMAT */

static inline uint32_t qi_publish_priority(uint32_t flags) {
    return flags >> QI_PRIORITY_SHIFT & (QI_PRIORITIES - 1);
}

/* The lane of a message. It is chosen once, because the lane in which ReqIds are reserved must be
 * the lane in which they are used. */
static inline uint32_t qi_publish_lane(struct qi_store *store, uint32_t flags, uint64_t due_us) {
    return due_us ? qi_delay_lane(due_us, qi_wall_us(store)) : qi_publish_priority(flags);
}

/* The message that the arguments of a publish describe. It goes to one queue. */
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

/* The same of a publish that stands in a list, with its lease. */
struct qi_new_message qi_new_message_told(struct qi_store *store, const qi_change *told);

static inline uint64_t qi_publish_time(const struct qi_new_message *publish) {
    return (uint64_t)qi_publish_priority(publish->flags) << QI_TIME_US_BITS |
           qi_time_us(publish->due_us);
}

/* Embedded: written twice (journal, segment), one sync. Stored: written once, two syncs. So what
 * somebody waits for is embedded up to a greater length. */
static inline bool qi_is_embedded(const struct qi_store *store,
                                  const struct qi_new_message *publish) {
    uint64_t below = store->options.embed_below * (publish->flags & QI_AWAITED ? UINT64_C(4) : 1);
    return publish->headers_size + (uint64_t)publish->body_size < below;
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

/* Allocates the maps for the next `count` ReqIds of the message's lane. */
int qi_publish_maps(struct qi_queue *queue, const struct qi_new_message *publish, uint32_t count);
/* Appends a MOMENT if the last one says another time. 0, or an error: nothing was changed. */
int qi_publish_moment(struct qi_queue *queue);
/* Stores the body if it is not embedded. The journal must have room already. From here to the
 * reference in the index the caller must not give the lock up. Otherwise another thread could see a
 * body without references, and free it. */
int qi_publish_body(struct qi_store *store, struct qi_new_message *publish);
/* For a caller that appends the record itself: writes the record at `at` and returns its end. */
uint8_t *qi_put_publish(const struct qi_queue *queue, uint8_t *at, uint64_t req_id,
                        const struct qi_new_message *publish);
/* For the same caller: sets the bits of the message, whose record is at `offset` in the journal.
 * The maps must be allocated. */
void qi_mark_published(struct qi_queue *queue, uint64_t req_id, uint64_t offset,
                       const struct qi_new_message *publish);
/* Appends the record to a journal that has room for it. Returns the ReqId, or an error. */
int64_t qi_append_publish(struct qi_queue *queue, const struct qi_new_message *publish);

/* ---- fanout ---- */

/* How often each queue is named in the list, as `copies`. */
void qi_count_copies(struct qi_queue **queues, uint32_t count);
/* Each queue has a place for its copies of so many messages with so many bytes, and the store for
 * all. The copies were counted. With `skip`, queues that are full are left out of the list
 * instead. */
int qi_places_in_all(struct qi_queue **queues, uint32_t *count, uint32_t messages, uint64_t bytes,
                     bool skip);

/* ---- transaction ---- */

/* The part of a transaction in one queue. */
struct qi_tx_queue {
    struct qi_queue *queue;
    struct qi_part *frame;  /* the frame that the journal gets */
    uint64_t size, payload; /* bytes of its records; bytes of the messages that it publishes */
    uint32_t publishes;     /* number of messages that it publishes */
    const struct qi_new_message *one; /* one of these */
    uint8_t *records, *next;          /* its records in the log, and where the next one goes */
    uint64_t offset;                  /* of the records in the journal */
};

/* One change while the transaction carries it out. */
struct qi_tx_step {
    uint32_t from, to; /* parts: an ack or a move takes from `from`, a publish or a move adds to
                        * `to` */
    struct qi_new_message message; /* of a publish or a move */
    uint32_t deliveries;           /* how often a moved message was delivered */
    bool redriven;          /* that is too often for its new queue, which delivers it once more */
    uint64_t req_id;        /* its new ReqId */
    size_t copied;          /* offset of its payload in `kept` */
    size_t sides;           /* offset in `kept` of the side records that go along */
    uint32_t sides_records; /* size of these as records */
    struct qi_data_change data; /* of a mapping */
};

struct qi_tx {
    struct qi_store *store;
    qi_change *changes;
    struct qi_tx_step *steps;
    uint32_t count;
    struct qi_tx_queue *parts;
    struct qi_queue **queues; /* the queues of the parts */
    uint32_t parts_count;
    uint32_t at; /* index of the current change: an error is about this one */
    uint32_t pins;
    uint8_t *kept; /* payloads and side records of moved messages */
    size_t kept_size, kept_room;
};

/* ---- transaction_data ---- */

/* Bytes that the changes of mappings take in the commit log; 0: there are none. */
uint64_t qi_tx_data_size(const struct qi_tx *tx);
bool qi_tx_has_data(const struct qi_tx *tx);
/* Returns 0, or an error that is about the change tx->at. */
int qi_tx_data_check(struct qi_tx *tx);
/* Memory for all of it: QI_E_MEMORY. */
int qi_tx_data_prepare(struct qi_tx *tx);
/* Writes them as parts of the TRANSACTION. */
void qi_tx_data_put(const struct qi_tx *tx, uint8_t *at);
/* The transaction is in the log: what was prepared counts. */
void qi_tx_data_take(struct qi_tx *tx);
/* What was prepared and not taken. */
void qi_tx_data_drop(struct qi_tx *tx);

/* ---- transaction_steps ---- */

/* Fills in what each change does, and how many bytes each queue needs for it. Reads the messages
 * that move. Returns 0, or an error that is about the change tx->at. */
int qi_tx_measure(struct qi_tx *tx);
/* A message is settled once: QI_E_ARGUMENT, about the change tx->at. */
int qi_tx_check_distinct(struct qi_tx *tx);
/* Adds to *leaving what is acked or moves: it makes place in the store. */
void qi_tx_settled(const struct qi_tx *tx, struct qi_heads *leaving);
/* Size of the records of a publish or a move, in the queue that it goes to. */
uint64_t qi_tx_record_size(const struct qi_tx_step *step);
/* The value of the time record of a message that will be delivered once more, however often it was
 * delivered before. */
uint64_t qi_tx_redriven(const struct qi_tx_step *step);
/* The same as qi_transaction(), for a caller that has the lock. Gives it up meanwhile. */
int qi_transaction_locked(struct qi_store *store, qi_change *changes, uint32_t count, bool confirm,
                          uint32_t *failed);
int qi_tx_fail_big(const struct qi_tx *tx, uint64_t size);
/* The log could not be written: the store fails. Returns QI_E_OUTCOME if the transaction may be in
 * the log all the same. */
int qi_tx_fail_append(const struct qi_tx *tx, int error);

/* ---- rules ---- */

/* Checks the limits of the queue and of the store for `count` more messages with `bytes` of headers
 * and bodies. QI_E_QUEUE_FULL, QI_E_STORE_FULL: there is no place for them. A publish to several
 * queues asks in two steps: first each queue, then the store for all of them. */
int qi_has_place(struct qi_queue *queue, uint32_t count, uint64_t bytes);
int qi_queue_has_place(struct qi_queue *queue, uint32_t count, uint64_t bytes);
int qi_store_has_place(struct qi_store *store, uint64_t count, uint64_t bytes,
                       const struct qi_heads *leaving);
/* Called after a limit was lowered: drops the messages above the limit. A rest that is small enough
 * stays: the next publish drops it. Gives the lock up. */
int qi_trim(struct qi_queue *queue);
/* Makes the place for a publish: drops the oldest messages, if there is memory and room for that
 * and for the `bytes` that follow. Called as the last step before the record is appended, so that
 * no message is dropped for a publish that fails. */
int qi_make_place(struct qi_queue *queue, const struct qi_new_message *publish, uint32_t count,
                  uint64_t bytes);
/* Called if the record could not be appended after all. Returns the error. Its text says if
 * messages were dropped for the publish. */
int qi_publish_failed(struct qi_queue *queue, int error);
/* The same for a publish to several queues. The text names the queues. */
int qi_publishes_failed(struct qi_queue **queues, uint32_t count, int error);

/* ---- wait ---- */

/* Called when a timer was set: threads that wait for a timer of the queue look again. */
void qi_timers_armed(struct qi_queue *queue);

/* A function that takes something from a queue. Returns what it got, QI_EMPTY, or an error. Called
 * with the lock. */
typedef int64_t (*qi_take)(struct qi_queue *queue, void *context);

/* Calls `take` for the first of the queues that has something, and waits for that until the store's
 * clock says until_us. Takes the lock itself, and gives it up while it waits. QI_EMPTY: the time is
 * over. QI_PAUSE: pause_us is over, and the caller may call again. Returns an error at once if the
 * store or a queue is closed or fails. */
int64_t qi_wait(struct qi_queue **queues, uint32_t count, uint64_t until_us, uint64_t pause_us,
                qi_take take, void *context);

#endif
