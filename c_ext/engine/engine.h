/* engine.h - what every layer above needs of a store and a queue: lock, clocks, failure, findings,
 * who waits. */
#ifndef QI_ENGINE_H
#define QI_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "engine/types.h"

struct qi_sleeper;
struct qi_waiter;

/* ---- engine ---- */

static inline struct qi_journal *qi_current(struct qi_queue *queue) {
    return &queue->journals[queue->epoch & 1];
}
static inline struct qi_journal *qi_previous(struct qi_queue *queue) {
    return &queue->journals[~queue->epoch & 1];
}
static inline uint64_t qi_lsn(struct qi_queue *queue) {
    return queue->lsn_base + qi_current(queue)->tail;
}

/* In memory, and its files are open. Not while it is sent to sleep or wakes up: its sync runs
 * without the lock then, and what others append meanwhile would stand beside the CLOSE and go with
 * the maps. Who gave the lock up looks again. */
static inline bool qi_is_open(const struct qi_queue *queue) {
    return queue->recovered && (!queue->recovering || QI_BUG(race_falling_asleep_is_awake)) &&
           queue->dir >= 0;
}
/* Its journal ends with a CLOSE, as a clean end left it, and nothing was appended since. */
static inline bool qi_is_ended(const struct qi_queue *queue) {
    return queue->journals[queue->epoch & 1].ended;
}
/* Open, and its session has begun: frames can be appended. */
static inline bool qi_is_awake(const struct qi_queue *queue) {
    return qi_is_open(queue) && !qi_is_ended(queue);
}
/* The same, or it would be if its files were open. */
static inline bool qi_is_in_use(const struct qi_queue *queue) {
    return (qi_is_open(queue) || queue->parked) && !qi_is_ended(queue);
}

int qi_append_failed(struct qi_queue *queue, int error);

/* For who must not wait. */
static inline bool qi_try_lock(struct qi_store *store) {
    return !atomic_load_explicit(&store->returning, memory_order_relaxed) &&
           pthread_mutex_trylock(&store->lock) == 0;
}

/* Verbs come by millions a second and hold the lock most of the time: who comes back from I/O, or
 * from sleep, would get it by chance only, seconds later. So it waits with the gate in hand, and
 * the verbs queue up behind the gate. */
void qi_wait_for_lock(struct qi_store *store);

static inline void qi_lock(struct qi_store *store) {
    if (__builtin_expect(!qi_try_lock(store), 0))
        qi_wait_for_lock(store);
}

/* A verb that ends, or gives the lock up, tells which marks are reached now: in its midst a count
 * of messages may be changed, and that of the dead letters among them not yet. */
void qi_tell_marks(struct qi_store *store);
static inline void qi_unlock(struct qi_store *store) {
    if (__builtin_expect(store->marked != NULL, 0))
        qi_tell_marks(store);
    pthread_mutex_unlock(&store->lock);
}

/* After I/O without the lock: before the verbs. */
void qi_relock(struct qi_store *store);

/* How much address space a journal gets: what may be appended to it, and a batch of `more`
 * bytes. */
static inline uint64_t qi_journal_mapped(const qi_options *options, uint64_t more) {
    uint64_t mapped =
        2 * options->max_journal_bytes + (UINT64_C(8) << 20) + QI_JOURNAL_START + more;
    return mapped < QI_LOC_OFFSET_MAX ? mapped : QI_LOC_OFFSET_MAX;
}

/* The two clocks (H17). Times of messages, when they are due and when they expire, are absolute and
 * follow the wall clock, also when it is set while the store is open: microseconds since 1970. */
static inline uint64_t qi_wall_us(const struct qi_store *store) {
    uint64_t now = store->disk->ops->wall_us(store->disk);
    return QI_BUG(clock_never_back) && store->latest_us > now ? store->latest_us : now;
}
/* Leases, ages and pauses go by a clock that nobody sets. It says what the wall clock said when the
 * store was opened, and what has passed since. */
static inline uint64_t qi_steady_us(const struct qi_store *store) {
    return store->opened_wall_us + store->disk->ops->monotonic_us(store->disk) -
           store->opened_steady_us;
}
/* How late a step of the wall clock may be noticed by what sleeps until a time of a message. */
#define QI_STEP_US UINT64_C(1000000)

/* So long to sleep at most, if `left` microseconds of the wall clock are what it is about. */
uint64_t qi_wall_sleep_us(const struct qi_store *store, uint64_t left);
/* The wall clock said `seen_us` in this session or an earlier one. If it is well behind that now, a
 * finding says so, once. */
void qi_note_clock(struct qi_store *store, uint64_t seen_us);

/* Closed, forked, failed, read only: 0 or the error. */
int qi_store_usable(struct qi_store *store, bool to_write);

/* Less is free on the disk than publishes must leave. */
bool qi_is_short_of_space(struct qi_store *store);

/* Poisons the store: the outcome of what was not durable is unknown, only close is allowed (H13).
 * Returns `code`. */
int qi_store_fail(struct qi_store *store, int code);

/* What an error calls a file of a queue: "journal.jif of queue orders". An empty
 * name is a pair of quotes; if none is known, it is the file's path. NULL: the queue's directory.
 */
struct qi_shown {
    char text[200];
};
struct qi_shown qi_file_of(const struct qi_queue *queue, const char *file);
/* The same for a name that is in no handle yet. */
struct qi_shown qi_file_of_name(const char *name, size_t size, const char *directory,
                                const char *file);
/* The name alone, which was read, in the same form. */
struct qi_shown qi_name_of(const struct qi_queue *queue);
/* qi_fail_disk for such a file. */
int qi_fail_disk_of(const struct qi_queue *queue, int negative_errno, const char *doing,
                    const char *file);

/* Adds to the findings; at most 10,000 are kept, the last says so. */
void qi_report(struct qi_store *store, bool damage, const char *directory, const char *file,
               uint64_t offset, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* So many messages are lost by what was reported last. */
void qi_report_lost(struct qi_store *store, uint64_t lost);
/* So many delivers and acks in a file are of no publish. */
void qi_report_orphans(struct qi_store *store, const char *directory, const char *file,
                       uint64_t orphans);
/* Takes back all findings from this number on. */
void qi_forget_findings(struct qi_store *store, uint32_t since);

/* For pthread_cond_timedwait: so far from now. */
struct timespec qi_time_after(uint64_t us);

/* Wakes the worker if it sleeps. Called with the lock, after the change that it is to see. */
void qi_wake_worker(struct qi_store *store);

static inline void qi_store_dirty(struct qi_store *store) {
    if (__builtin_expect(!store->dirty, 0)) {
        store->dirty = true;
        qi_wake_worker(store);
    }
}

/* The journal of a queue can be read: what it has up to its tail is in memory, and is what was
 * written. */
int qi_files_warm(struct qi_queue *queue, struct qi_journal *journal);

/* Adds what was counted elsewhere. */
void qi_counts_add(qi_counts *sum, const qi_counts *counts);
/* A sync that began then, by the disk's steady clock, has ended. With the lock. */
void qi_count_sync(struct qi_store *store, uint64_t began_us);
static inline uint64_t qi_sync_begins(const struct qi_store *store) {
    return store->disk->ops->monotonic_us(store->disk);
}

/* ---- waiters ---- */

/* Wakes as many waiters as messages became ready; qi_announce is its quick part. With the lock. */
void qi_wake_waiters(struct qi_queue *queue, uint64_t messages);

/* Something that concerns all: the store is closing, or failed. With the lock. */
void qi_wake_all(struct qi_store *store);

/* `messages` became ready. Costs a comparison as long as nobody waits. */
static inline void qi_announce(struct qi_queue *queue, uint64_t messages) {
    if (__builtin_expect(queue->waiters != NULL, 0))
        qi_wake_waiters(queue, messages);
}

/* Something left, or may stay: who waits for a place in a queue looks again. With the lock. */
void qi_wake_for_places(struct qi_store *store);

/* The waiter leaves the queue's list, if it is in it. With the lock. */
void qi_waiter_leave(struct qi_queue *queue, struct qi_waiter *waiter);

/* False: somebody woke it before, so it does not count. */
bool qi_wake_sleeper(struct qi_sleeper *sleeper);

struct qi_sleeper {
    pthread_mutex_t mutex; /* taken with the store's lock, or after it was given up */
    pthread_cond_t wake;
    bool woken;
};

/* ---- listeners ---- */

/* Somebody who wants to know what the engine does by itself: a ring of events. It is in the store's
 * list until it is closed, or the store is freed; from then on it does not look at the store. */
struct qi_listener {
    struct qi_listener *next; /* of the same store */
    struct qi_store *store;
    unsigned fork_generation;
    struct qi_mark *marks; /* its own, in `own` */
    qi_event *ring;        /* NULL: closed */
    uint32_t room, first, count, kinds;
    uint64_t missed; /* since the last look */
    bool armed;      /* an event loop waits */
    pthread_cond_t came;
};

struct qi_mark {
    struct qi_mark *next, *own; /* of the queue; of the listener */
    struct qi_listener *listener;
    struct qi_queue *queue;
    uint64_t high, low;
    bool above;
};

void qi_tell_listeners(struct qi_queue *queue, uint32_t kind, uint64_t req_id, uint32_t why);
/* With the lock, behind the change. */
static inline void qi_tell(struct qi_queue *queue, uint32_t kind, uint64_t req_id, uint32_t why) {
    if (__builtin_expect(queue->store->listeners != NULL, 0))
        qi_tell_listeners(queue, kind, req_id, why);
}
/* Its marks are looked at when the verb ends. A verb that changes one queue after another is done
 * with the one before. */
static inline void qi_marks_changed(struct qi_queue *queue) {
    if (queue->store->marked != queue)
        qi_tell_marks(queue->store);
    queue->store->marked = queue;
}
/* The number of messages that wait in the queue has changed; fewer of them: there may be a place.
 */
static inline void qi_waiting_changed(struct qi_queue *queue, bool fewer) {
    if (fewer)
        qi_wake_for_places(queue->store);
    if (queue->marks)
        qi_marks_changed(queue);
}
/* The store is closing, or failed. */
void qi_wake_listeners(struct qi_store *store);
/* Nothing more is told to it; who waits for its events is woken. With the lock, or when the store
 * is freed. */
void qi_listener_end(struct qi_listener *listener);

/* ---- meta ---- */

/* QI_E_MISSING if the directory has nothing of a store. Reads no more than a byte. */
int qi_meta_look(struct qi_store *store);
int qi_meta_open(struct qi_store *store, bool create);
int qi_meta_write(struct qi_store *store, bool clean);
/* Not `durable`: whoever calls syncs the file and its name before they count. */
int qi_queue_meta_write(struct qi_queue *queue, bool durable);
int qi_queue_meta_read(struct qi_queue *queue, bool *damaged);
/* May a journal or segment with that version in its whole header be in this store? 0 or
 * QI_E_FORMAT. */
int qi_check_version(struct qi_queue *queue, const char *name, uint32_t version);

#endif
