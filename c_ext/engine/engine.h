/* engine.h - what every layer above needs of a store and a queue: the lock, the clocks, failure,
 * findings, waiters and listeners. */
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

/* True if the index is in memory and the files are open. False while the queue falls asleep or
 * wakes up. Its sync then runs without the lock. A frame that another thread appended meanwhile
 * would stand beside the CLOSE, and be lost with the maps. A caller that gave the lock up must ask
 * again. */
static inline bool qi_is_open(const struct qi_queue *queue) {
    return queue->recovered && (!queue->recovering || QI_BUG(race_falling_asleep_is_awake)) &&
           queue->dir >= 0;
}
/* True if the journal ends with the CLOSE of a clean end, and nothing was appended since. */
static inline bool qi_is_ended(const struct qi_queue *queue) {
    return queue->journals[queue->epoch & 1].ended;
}
/* True if the queue is open and its session has begun, so that frames can be appended. */
static inline bool qi_is_awake(const struct qi_queue *queue) {
    return qi_is_open(queue) && !qi_is_ended(queue);
}
/* The same, also for a queue whose files are closed for now (parked). */
static inline bool qi_is_in_use(const struct qi_queue *queue) {
    return (qi_is_open(queue) || queue->parked) && !qi_is_ended(queue);
}

int qi_append_failed(struct qi_queue *queue, int error);

/* For a caller that must not wait: takes the lock if it is free. */
static inline bool qi_try_lock(struct qi_store *store) {
    return !atomic_load_explicit(&store->returning, memory_order_relaxed) &&
           pthread_mutex_trylock(&store->lock) == 0;
}

/* Verbs come by millions a second and hold the lock most of the time. A thread that returns from
 * I/O or from sleep would get the lock only by chance, seconds later. So this thread holds the gate
 * while it waits for the lock, and the verbs wait behind the gate. */
void qi_wait_for_lock(struct qi_store *store);

static inline void qi_lock(struct qi_store *store) {
    if (__builtin_expect(!qi_try_lock(store), 0))
        qi_wait_for_lock(store);
}

/* Reports the marks that are reached now. Called only when a verb ends or gives the lock up. In the
 * middle of a verb the count of messages may be changed already, and the count of dead letters not
 * yet. */
void qi_tell_marks(struct qi_store *store);
static inline void qi_unlock(struct qi_store *store) {
    if (__builtin_expect(store->marked != NULL, 0))
        qi_tell_marks(store);
    pthread_mutex_unlock(&store->lock);
}

/* Takes the lock again after I/O without it. This thread gets it before the verbs. */
void qi_relock(struct qi_store *store);

/* The address space that a journal gets. It is enough for all that may be appended, and for a batch
 * of `more` bytes. */
static inline uint64_t qi_journal_mapped(const qi_options *options, uint64_t more) {
    uint64_t mapped =
        2 * options->max_journal_bytes + (UINT64_C(8) << 20) + QI_JOURNAL_START + more;
    return mapped < QI_LOC_OFFSET_MAX ? mapped : QI_LOC_OFFSET_MAX;
}

/* The two clocks (H17). A message is due and expires at an absolute time of the wall clock, in
 * microseconds since 1970. Such times follow the wall clock even if it is set while the store is
 * open. */
static inline uint64_t qi_wall_us(const struct qi_store *store) {
    uint64_t now = store->disk->ops->wall_us(store->disk);
    return QI_BUG(clock_never_back) && store->latest_us > now ? store->latest_us : now;
}
/* Appends to a list of ReqIds. False: no memory, and the list is as it was. */
bool qi_req_id_add(uint64_t **req_ids, uint32_t *count, uint32_t *room, uint64_t req_id);

/* Leases, ages and pauses follow a clock that nobody sets. It says the time of the wall clock when
 * the store was opened, plus the time that has passed since. */
static inline uint64_t qi_steady_us(const struct qi_store *store) {
    return store->opened_wall_us + store->disk->ops->monotonic_us(store->disk) -
           store->opened_steady_us;
}
/* A thread that sleeps until a time of a message notices within this time that the wall clock was
 * set. */
#define QI_STEP_US UINT64_C(1000000)

/* How long a thread may sleep at most that waits for `left` microseconds of the wall clock. */
uint64_t qi_wall_sleep_us(const struct qi_store *store, uint64_t left);
/* The wall clock said `seen_us` in this session or an earlier one. If the clock is well behind that
 * now, reports a finding, once. */
void qi_note_clock(struct qi_store *store, uint64_t seen_us);

/* Returns 0, or the error if the store is closed, forked, failed or (`to_write`) read only. */
int qi_store_usable(struct qi_store *store, bool to_write);

/* True if the stores of this process use more than three quarters of the memory that they may. */
bool qi_memory_is_scarce(const struct qi_store *store);
/* True if there is memory for the maps of more messages. QI_E_STORE_FULL is set if not. From three
 * quarters of the limit on, the worker is woken to free some. */
bool qi_memory_has_room(struct qi_store *store);

/* True if the disk has less free space than publishes must leave. */
bool qi_is_short_of_space(struct qi_store *store);

/* The store fails: the outcome of all that was not durable is unknown, and only close is allowed
 * (H13). Returns `code`. */
int qi_store_fail(struct qi_store *store, int code);

/* The words of an error for a file of a queue: "journal.jif of queue orders". An empty name of a
 * queue is shown as a pair of quotes. If the name is not known, the words are the file's path.
 * `file` NULL: the words for the queue's directory. */
struct qi_shown {
    char text[200];
};
struct qi_shown qi_file_of(const struct qi_queue *queue, const char *file);
/* The same for a queue that has no handle yet. */
struct qi_shown qi_file_of_name(const char *name, size_t size, const char *directory,
                                const char *file);
/* The name of the queue alone, in the same form. It must have been read. */
struct qi_shown qi_name_of(const struct qi_queue *queue);
/* The same as qi_fail_disk for such a file. */
int qi_fail_disk_of(const struct qi_queue *queue, int negative_errno, const char *doing,
                    const char *file);

/* Adds a finding. At most 10,000 are kept; the last one says that there were more. */
void qi_report(struct qi_store *store, bool damage, const char *directory, const char *file,
               uint64_t offset, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* The last finding has cost so many messages. */
void qi_report_lost(struct qi_store *store, uint64_t lost);
/* Reports the number of deliveries and acks in a file that have no publish. */
void qi_report_orphans(struct qi_store *store, const char *directory, const char *file,
                       uint64_t orphans);
/* Removes the findings from number `since` on. */
void qi_forget_findings(struct qi_store *store, uint32_t since);

/* The time in `us` microseconds from now, for pthread_cond_timedwait. */
struct timespec qi_time_after(uint64_t us);

/* Wakes the worker if it sleeps. Called with the lock, after the change that the worker has to
 * see. */
void qi_wake_worker(struct qi_store *store);

static inline void qi_store_dirty(struct qi_store *store) {
    if (__builtin_expect(!store->dirty, 0)) {
        store->dirty = true;
        qi_wake_worker(store);
    }
}

/* Makes a journal of a queue readable: brings it into memory up to its tail, and checks that this
 * is what was written. */
int qi_files_warm(struct qi_queue *queue, struct qi_journal *journal);

/* Adds `counts` to `sum`. */
void qi_counts_add(qi_counts *sum, const qi_counts *counts);
/* Counts a sync that has ended now and began at began_us of the disk's steady clock. With the
 * lock. */
void qi_count_sync(struct qi_store *store, uint64_t began_us);
static inline uint64_t qi_sync_begins(const struct qi_store *store) {
    return store->disk->ops->monotonic_us(store->disk);
}

/* ---- waiters ---- */

/* Wakes as many waiters as messages became ready. Callers use qi_announce, which is quick if nobody
 * waits. With the lock. */
void qi_wake_waiters(struct qi_queue *queue, uint64_t messages);

/* Wakes all waiters, because the store is closing or failed. With the lock. */
void qi_wake_all(struct qi_store *store);

/* So many messages became ready. Costs one comparison if nobody waits. */
static inline void qi_announce(struct qi_queue *queue, uint64_t messages) {
    if (__builtin_expect(queue->waiters != NULL, 0))
        qi_wake_waiters(queue, messages);
}

/* Wakes the threads that wait for a place in a queue: a message left, or a limit was raised. With
 * the lock. */
void qi_wake_for_places(struct qi_store *store);

/* Takes the waiter out of the queue's list, if it is in it. With the lock. */
void qi_waiter_leave(struct qi_queue *queue, struct qi_waiter *waiter);

/* Wakes a sleeping thread. False: it had been woken before, so this call does not count. */
bool qi_wake_sleeper(struct qi_sleeper *sleeper);

struct qi_sleeper {
    pthread_mutex_t mutex; /* taken with the store's lock, or after it was given up */
    pthread_cond_t wake;
    bool woken;
};

/* ---- listeners ---- */

/* A listener gets events about what the engine does by itself, in a ring. It is in the store's list
 * until it is closed or the store is freed. After that it does not use the store any more. */
struct qi_listener {
    struct qi_listener *next; /* of the same store */
    struct qi_store *store;
    unsigned fork_generation;
    struct qi_mark *marks; /* its own marks, linked by `own` */
    qi_event *ring;        /* NULL: closed */
    uint32_t room, first, count, kinds;
    uint64_t missed; /* events that the full ring lost since the last look */
    bool armed;      /* an event loop waits */
    pthread_cond_t came;
};

struct qi_mark {
    struct qi_mark *next, *own; /* the next mark of the queue; the next mark of the listener */
    struct qi_listener *listener;
    struct qi_queue *queue;
    uint64_t high, low;
    bool above;
};

void qi_tell_listeners(struct qi_queue *queue, uint32_t kind, uint64_t req_id, uint32_t why);
/* Tells the listeners about a change. Called with the lock, after the change. */
static inline void qi_tell(struct qi_queue *queue, uint32_t kind, uint64_t req_id, uint32_t why) {
    if (__builtin_expect(queue->store->listeners != NULL, 0))
        qi_tell_listeners(queue, kind, req_id, why);
}
/* The queue's marks will be checked when the verb ends. If the verb changed another queue before,
 * it is done with that one, whose marks are checked now. */
static inline void qi_marks_changed(struct qi_queue *queue) {
    if (queue->store->marked != queue)
        qi_tell_marks(queue->store);
    queue->store->marked = queue;
}
/* The number of messages that wait in the queue has changed. If there are fewer, a publish may have
 * its place. */
static inline void qi_waiting_changed(struct qi_queue *queue, bool fewer) {
    if (fewer)
        qi_wake_for_places(queue->store);
    if (queue->marks)
        qi_marks_changed(queue);
}
/* Wakes the listeners, because the store is closing or failed. */
void qi_wake_listeners(struct qi_store *store);
/* Ends a listener: it gets no more events, and threads that wait for its events are woken. Called
 * with the lock, or when the store is freed. */
void qi_listener_end(struct qi_listener *listener);

/* ---- meta ---- */

/* QI_E_MISSING: the directory has no files of a store. Reads one byte at most. */
int qi_meta_look(struct qi_store *store);
int qi_meta_open(struct qi_store *store, bool create);
int qi_meta_write(struct qi_store *store, bool clean);
/* The same in two steps: the first with the lock, the second without it. Returns 0 or -errno. No
 * other thread may write store.meta meanwhile. */
#define QI_META_SIZE 8192u
struct qi_meta {
    uint8_t bytes[QI_META_SIZE];
};
void qi_meta_compose(struct qi_store *store, bool clean, struct qi_meta *meta);
int qi_meta_put(struct qi_disk *disk, int root, struct qi_meta *meta);
/* What store.meta says of the logs now. */
struct qi_logs qi_logs_now(struct qi_store *store);
/* The number of the session that store.meta says now; 0: it cannot be read. */
uint64_t qi_session_now(struct qi_store *store);
/* The name that a queue has in that directory: it is about to be renamed. */
struct qi_next_name {
    const char *directory, *name;
    uint32_t size;
};
/* If not `durable`, the caller must sync the file and its name before they count. `next` may be
 * NULL. */
int qi_queue_meta_write(struct qi_queue *queue, const struct qi_next_name *next, bool durable);
/* Two equal copies with one name; or with two, of which the queue got the one that its directory is
 * for; or one copy is damaged. The last two are to be written anew. */
enum qi_meta_state { QI_META_WHOLE, QI_META_RENAMED, QI_META_DAMAGED };
int qi_queue_meta_read(struct qi_queue *queue, enum qi_meta_state *state);
/* Checks that a journal or segment of that version may be in this store. Its header must be whole.
 * Returns 0 or QI_E_FORMAT. */
int qi_check_version(struct qi_queue *queue, const char *name, uint32_t version);

#endif
