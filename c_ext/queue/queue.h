/* queue.h - the verbs of a queue for the layers above; qindex.h declares what users call. */
#ifndef QI_QUEUE_H
#define QI_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bodies/bodies.h"
#include "engine/engine.h"

struct qi_queue;
struct qi_segment;
struct qi_store;

/* ---- room ---- */

/* Opens the journal of the current epoch and brings all of it into memory. */
int qi_open_current(struct qi_queue *queue, enum qi_open_mode mode);
/* Waits until no flush is under way. If no other thread runs the flush, this call runs it. Gives
 * the lock up. */
int qi_flush_wait(struct qi_queue *queue);
/* Flushes everything that the queue has now. Gives the lock up. */
int qi_flush_all(struct qi_queue *queue);

/* Waits until no other thread opens the queue or sends it to sleep, and checks that the store is
 * usable. Returns 0 or the error. */
int qi_queue_settled(struct qi_queue *queue, bool to_write);
/* Makes the queue recovered and open, and awake if the caller is going `to_write`. Returns 0 or the
 * error. Every verb calls this first, with the lock. */
int qi_queue_ready(struct qi_queue *queue, bool to_write);
/* Called after an append: begins a flush if the journal has reached its limits. */
void qi_flush_if_due(struct qi_queue *queue);

/* ---- events ---- */

/* Finds a message that was published and not acked: its segment, with the maps in memory, and its
 * slot. Returns 0 or the error that says why there is none. */
int qi_find_live(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                 uint32_t *slot);

/* ---- browse ---- */

/* The same as qi_browse(), for a caller that holds the lock and keeps it from one message to the
 * next. */
int64_t qi_browse_locked(struct qi_queue *queue, uint64_t from_req_id, bool ready_only,
                         qi_message *message, void *payload, size_t room);

/* ---- publish ---- */

/* A message as the caller gives it. Times are in microseconds since 1970. A time of 0 means that
 * the message has no such time. */
struct qi_given {
    const void *headers, *body;
    size_t body_size;
    uint32_t headers_size, flags;
    uint64_t expiry_us, due_us, lease_us;
};

int64_t qi_publish_given(struct qi_queue *queue, const struct qi_given *given);
/* The verbs named ..._now are for a caller that must not wait, because it holds Python's GIL. They
 * succeed only if the message has at most QI_NOW_MAX bytes and is in memory, the journal and the
 * message file have room, and the lock is free. Otherwise they return QI_BUSY and change nothing.
 * The caller then calls the verb that may wait. */
#define QI_NOW_MAX (UINT32_C(256) << 10) /* about 50 us: other threads wait so long for the GIL */
int64_t qi_publish_now(struct qi_queue *queue, const struct qi_given *given);
/* The same for a fan-out to at most QI_NOW_QUEUES queues. `skip_full` as in qi_store_publish. */
#define QI_NOW_QUEUES 64u
int qi_store_publish_now(struct qi_store *store, struct qi_queue **queues, uint32_t count,
                         const struct qi_given *given, bool skip_full, uint64_t *req_ids);

/* ---- ack ---- */

int qi_ack_now(struct qi_queue *queue, uint64_t req_id, uint64_t delivery);

/* A new tag for the delivery numbers of a handle (qi_delivery_of). It is never 0, and a process
 * never gets the same tag twice. */
uint32_t qi_next_tag(void);

/* ---- deliver ---- */

/* Says where the payload of a message goes. make() is called when the sizes of the message are
 * known. It is called with the store's lock, so it may not wait for anything. It returns 0, or an
 * error that ends the get; the message then stays ready. */
struct qi_places {
    int (*make)(void *context, const qi_message *message, struct qi_into *into);
    void *context;
};
/* Takes the next message and returns the size of its payload. Returns QI_EMPTY, QI_BUSY or an error
 * if no message was taken. */
int64_t qi_get_now(struct qi_queue *queue, qi_message *message, const struct qi_places *places,
                   uint64_t lease_us);
/* The same for at most `count` messages (no more than QI_NOW_MESSAGES), and at most `room` bytes of
 * payloads (no more than QI_NOW_MAX). Returns how many were taken. make() may have been called for
 * more: those are not taken. */
#define QI_NOW_MESSAGES 128u
int64_t qi_get_many_now(struct qi_queue *queue, uint32_t count, qi_message *messages,
                        const struct qi_places *places, uint64_t room, uint64_t lease_us);

/* ---- expire ---- */

/* For the worker: drops expired messages from the queues whose earliest expiry has passed. It
 * looks at each queue at most once a second. Called with the lock, and may give it up. */
void qi_expire_due(struct qi_store *store);
/* How long the worker may sleep, in microseconds: `us`, or less if a queue has messages to drop
 * before. */
uint64_t qi_expire_wait(struct qi_store *store, uint64_t us);

/* ---- dead_letters ---- */

/* For the worker: moves the dead letters that could not be moved before. Called with the
 * lock, and may give it up. */
void qi_dead_run(struct qi_store *store);

/* ---- spent ---- */

/* The worker's part: drops what was delivered as often as its queue allows, where nobody looks.
 * Called with the lock; may give it up. */
void qi_spent_run(struct qi_store *store);

/* ---- lifecycle ---- */

/* Sends an idle queue to sleep: flushes it, closes it cleanly, and keeps no file or mapping. */
int qi_queue_unload(struct qi_queue *queue);
/* Appends the frames with which a clean session ends. They are not synced yet. */
int qi_queue_end(struct qi_queue *queue);

void qi_remove_deleted(struct qi_store *store, const char *gone);

/* ---- rewrite ---- */

/* Rewrites each segment file of which at least `garbage_percent` is garbage. Adds the number of
 * bytes that it gave back to *freed. Cost: reads every segment that may have so much garbage, and
 * writes the live messages of these. Gives the lock up. */
int qi_rewrite_segments(struct qi_queue *queue, uint32_t garbage_percent, int64_t *freed);

/* ---- wait ---- */

/* How long until a timer of the queue is due, in microseconds. UINT64_MAX: no timer is set. */
uint64_t qi_timers_left_us(const struct qi_queue *queue);

/* For the worker: how long until time alone makes a message ready in a queue that a listener or an
 * armed wake-up descriptor watches, at most `us` microseconds. */
uint64_t qi_bells_timer(struct qi_store *store, uint64_t us);
/* For the worker: makes the messages ready whose time has come in such queues. That signals the
 * descriptor. Returns 0 or the last error. */
int qi_bells_run(struct qi_store *store);

#endif
