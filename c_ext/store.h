/* store.h - one directory, one writer: settings, lock, clock, queues, message store, worker. */
#ifndef QI_STORE_H
#define QI_STORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "error.h"
#include "messages.h"
#include "queue.h"

struct qi_finding {
    bool damage; /* else a note */
    char *where; /* file, relative to the store */
    uint64_t offset;
    char *text;
};

struct qi_store {
    struct qi_store *next_left; /* see qi_store_leave */
    struct qi_disk *disk;
    int root, queues_dir, lock_file;
    qi_options options;
    bool use_mapping;
    uint64_t keep_free;
    unsigned fork_generation;

    uint8_t identity[QI_IDENTITY_SIZE];
    uint64_t session;
    uint32_t barrier_from;    /* message files from this number on are known to be durable */
    uint64_t unclean_session; /* the last session that did not end with close */
    uint64_t wall_base_us, monotonic_base_us;

    pthread_mutex_t gate;   /* held by the one that waits for the lock after its I/O */
    atomic_bool returning;  /* somebody does */
    pthread_mutex_t lock;   /* protects everything below and all queues */
    pthread_cond_t changed; /* a sync or a flush ended */
    pthread_mutex_t
        sleep; /* held by the worker from its last look at the state to its wait for work */
    pthread_cond_t work; /* the worker has something to do */
    pthread_t worker;
    bool has_worker, stopping, closed;
    bool deferring;         /* flushes wait for the worker, or for qi_store_tick */
    int failed;             /* H13: set once, never cleared */
    char why_failed[256];   /* what was told of it first */
    bool dirty;             /* something is not synced yet */
    uint64_t commit_due_us; /* see qi_commit_if_due */
    bool flush_due;
    bool compacting;
    bool counting; /* a census runs */
    bool closing;  /* no new calls */
    bool messages_syncing;
    uint32_t waiting;            /* threads in qi_wait */
    uint64_t depth, dead, bytes; /* of all queues that were recovered: the sums of theirs */

    int bell; /* -1: no event loop asked for it */
    pthread_mutex_t
        bell_lock; /* for the list of queues that rang; taken last, never held for long */
    struct qi_queue *rung;

    struct qi_messages messages;
    struct qi_queue **queues;
    uint32_t queues_count, queues_room;
    uint32_t census;  /* queues before this one are counted */
    int census_error; /* why it stopped */

    struct qi_finding *findings;
    uint32_t findings_count, findings_room;
};

/* For who must not wait. */
static inline bool qi_try_lock(struct qi_store *store) {
    return !atomic_load_explicit(&store->returning, memory_order_relaxed) &&
           pthread_mutex_trylock(&store->lock) == 0;
}

/* Verbs come by millions a second and hold the lock most of the time: who comes back from I/O, or from sleep, would get
 * it by chance only, seconds later. So it waits with the gate in hand, and the verbs queue up behind the gate. */
void qi_wait_for_lock(struct qi_store *store);

static inline void qi_lock(struct qi_store *store) {
    if (__builtin_expect(!qi_try_lock(store), 0))
        qi_wait_for_lock(store);
}

static inline void qi_unlock(struct qi_store *store) {
    pthread_mutex_unlock(&store->lock);
}

/* After I/O without the lock: before the verbs. */
void qi_relock(struct qi_store *store);

static inline uint64_t qi_req_id(const struct qi_queue *queue, const struct qi_segment *segment,
                                 uint32_t slot) {
    return segment->number * queue->store->options.segment_entries + slot;
}
/* The way back; a segment has a power of two of them. */
static inline uint64_t qi_segment_number(const struct qi_queue *queue, uint64_t req_id) {
    return req_id >> __builtin_ctz(queue->store->options.segment_entries);
}
static inline uint32_t qi_slot_of(const struct qi_queue *queue, uint64_t req_id) {
    return (uint32_t)req_id & (queue->store->options.segment_entries - 1);
}
static inline struct qi_segment *qi_segment_with(struct qi_queue *queue, uint64_t req_id) {
    return qi_segment_find(&queue->segments, qi_segment_number(queue, req_id));
}
static inline uint32_t qi_segment_lane(const struct qi_queue *queue,
                                       const struct qi_segment *segment) {
    return qi_lane_number(qi_req_id(queue, segment, 0));
}

/* The only ways in which a queue's counts change: what it has, and what of that are dead letters. */
static inline void qi_count_depth(struct qi_queue *queue, int64_t by) {
    queue->depth += (uint64_t)by;
    queue->store->depth += (uint64_t)by;
}
static inline void qi_count_dead(struct qi_queue *queue, int64_t by) {
    queue->dead += (uint64_t)by;
    queue->store->dead += (uint64_t)by;
}
static inline void qi_count_nothing(struct qi_queue *queue) {
    qi_count_depth(queue, -(int64_t)queue->depth);
    qi_count_dead(queue, -(int64_t)queue->dead);
    queue->store->bytes -= queue->bytes;
    queue->bytes = queue->delayed = 0;
    queue->measured = false;
}

/* Microseconds since 1970 that never run backwards, also not over a reopen (H17). */
uint64_t qi_now_us(struct qi_store *store);

/* Closed, forked, failed, read only: 0 or the error. */
int qi_store_usable(struct qi_store *store, bool to_write);

/* Less is free on the disk than publishes must leave. */
bool qi_is_short_of_space(struct qi_store *store);

/* Poisons the store: the outcome of what was not durable is unknown, only close is allowed (H13). Returns `code`. */
int qi_store_fail(struct qi_store *store, int code);

/* Adds to the findings; at most 10,000 are kept, the last says so. */
void qi_report(struct qi_store *store, bool damage, const char *directory, const char *file,
               uint64_t offset, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Takes back all findings from this number on. */
void qi_forget_findings(struct qi_store *store, uint32_t since);

/* For pthread_cond_timedwait: so far from now. */
struct timespec qi_time_after(uint64_t us);

/* Wakes the worker if it sleeps. Called with the lock, after the change that it is to see. */
void qi_wake_worker(struct qi_store *store);
/* Long work without the lock calls this on the way (the lock is taken for it): the worker may be who does that work, and
 * the group commit goes on. It is due after the interval, and after as long again as the last one took: on a slow disk the
 * work has to get on, too. */
void qi_commit_if_due(struct qi_store *store);

static inline void qi_store_dirty(struct qi_store *store) {
    if (__builtin_expect(!store->dirty, 0)) {
        store->dirty = true;
        qi_wake_worker(store);
    }
}

/* The same as qi_store_open, on any disk; the disk outlives the store. */
int qi_store_open_on(struct qi_disk *disk, const char *path, const qi_options *options,
                     struct qi_store **store);

/* meta.c */
int qi_meta_open(struct qi_store *store, bool create);
int qi_meta_write(struct qi_store *store, bool clean);
int qi_queue_meta_write(struct qi_queue *queue);
int qi_queue_meta_read(struct qi_queue *queue, bool *damaged);

/* worker.c */
int qi_worker_start(struct qi_store *store);
/* One round of the worker's duties, for a disk without threads: group commit, flushes, census, freeing, compaction, idle
 * queues. */
int qi_store_tick(struct qi_store *store);
void qi_worker_stop(struct qi_store *store);
void qi_remove_deleted(struct qi_store *store, const char *gone);
int qi_census(struct qi_store *store, bool all);
int qi_compact(struct qi_store *store, uint32_t garbage_percent, int64_t *freed);

#endif
