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

/* The journal of the current epoch, all of it in memory. */
int qi_open_current(struct qi_queue *queue, enum qi_open_mode mode);
/* Waits until no flush is under way, running it if nobody else does; and: flushes all there is now.
 * Both give the lock up. */
int qi_flush_wait(struct qi_queue *queue);
int qi_flush_all(struct qi_queue *queue);

/* The store is usable, and nobody opens the queue or sends it to sleep right now: 0 or the
 * error. */
int qi_queue_settled(struct qi_queue *queue, bool to_write);
/* Usable, recovered and open, and awake if the caller is going `to_write`: 0 or the error. Called
 * first by every verb, with the lock. */
int qi_queue_ready(struct qi_queue *queue, bool to_write);
/* After an append: is it time to flush? */
void qi_flush_if_due(struct qi_queue *queue);

/* ---- events ---- */

/* The segment with its maps, for a message that was published and not acked; or why not. */
int qi_find_live(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                 uint32_t *slot);

/* ---- browse ---- */

/* qi_browse() for who has the lock and keeps it from one message to the next. */
int64_t qi_browse_locked(struct qi_queue *queue, uint64_t from_req_id, bool ready_only,
                         qi_message *message, void *payload, size_t room);

/* ---- publish ---- */

/* A message as a caller gives it. Times are in microseconds since 1970; 0: it has none. */
struct qi_given {
    const void *headers, *body;
    size_t body_size;
    uint32_t headers_size, flags;
    uint64_t expiry_us, due_us, lease_us;
};

int64_t qi_publish_given(struct qi_queue *queue, const struct qi_given *given);
/* The verbs for a caller that must not wait (it holds the GIL): a message of at most QI_NOW_MAX
 * bytes, in memory, with room in the journal and in the message file, and the lock free. Otherwise
 * QI_BUSY, nothing was changed, and the verb that may wait does it. */
#define QI_NOW_MAX (UINT32_C(256) << 10) /* some 50 us: what other threads may wait for the GIL */
int64_t qi_publish_now(struct qi_queue *queue, const struct qi_given *given);

/* ---- ack ---- */

int qi_ack_now(struct qi_queue *queue, uint64_t req_id, uint64_t delivery);

/* For the deliveries of a handle (qi_delivery_of): never 0, and not twice in the life of a
 * process. */
uint32_t qi_next_tag(void);

/* ---- deliver ---- */

/* Where the payload of a message goes whose sizes are known. make() is called with the store's
 * lock, so it may not wait for anybody. 0, or an error that ends the get: then nothing was taken.
 */
struct qi_places {
    int (*make)(void *context, const qi_message *message, struct qi_into *into);
    void *context;
};
/* Takes the next message: the size of its payload. If nothing was taken: QI_EMPTY, QI_BUSY or an
 * error. */
int64_t qi_get_now(struct qi_queue *queue, qi_message *message, const struct qi_places *places,
                   uint64_t lease_us);

/* ---- expire ---- */

/* The worker's part: drops what has expired in queues whose bound has passed, each at most once a
 * second. Called with the lock; may give it up. */
void qi_expire_due(struct qi_store *store);
/* So long, but not longer than until a queue has something to drop. */
uint64_t qi_expire_wait(struct qi_store *store, uint64_t us);

/* ---- dead_letters ---- */

/* The worker's part: moves what could not be moved before. Called with the lock; may give it up. */
void qi_dead_run(struct qi_store *store);
/* So long, but not longer than until that is due. */
uint64_t qi_dead_wait(const struct qi_store *store, uint64_t us);

/* ---- lifecycle ---- */

int qi_queue_unload(
    struct qi_queue *queue); /* idle: flushed, closed cleanly, no file or mapping left */
/* At the end of a session: the frames that a clean one ends with. They are not synced yet. */
int qi_queue_end(struct qi_queue *queue);

void qi_remove_deleted(struct qi_store *store, const char *gone);

/* ---- rewrite ---- */

/* Segment files with at least that share of garbage are written anew; adds the bytes that it gave
 * back. Cost: reads every segment that may have so much, writes what is alive in them. Gives the
 * lock up. */
int qi_rewrite_segments(struct qi_queue *queue, uint32_t garbage_percent, int64_t *freed);

/* ---- wait ---- */

/* So long until there is something to run, in microseconds; UINT64_MAX: never, as things are. */
uint64_t qi_timers_left_us(const struct qi_queue *queue);

/* For the worker: so long until a queue with an armed bell has something by time alone, at most
 * `us`; and: it rings. */
uint64_t qi_bells_timer(struct qi_store *store, uint64_t us);
int qi_bells_run(struct qi_store *store);

#endif
