/* worker.c - the one background thread: group commit, flushes, what has expired, idle queues, the census, freeing and
 * compaction.
 *
 * It sleeps until somebody makes something dirty and never polls a store at rest. Everything it does can be done by the
 * callers as well (sync, flush, compact); without a worker a store is only slower.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "bug.h"
#include "expire.h"
#include "messages_files.h"
#include "store.h"

#define GARBAGE_PERCENT 50u
#define FOR_EVER        UINT64_MAX
#define CENSUS_STOPPED  UINT32_MAX
#define LOOK_FURTHER    1 /* the files that looked worth it were not; there may be others */
#define AGAIN_US        UINT64_C(1000000)

/* Who opens a store wants its first message, and the census keeps the lock while it reads about a queue's segments. */
#define CENSUS_AFTER_US UINT64_C(100000)

/* What the worker's rounds remember. */
struct rounds {
    uint64_t compacted_us;
    uint64_t flush_again_us; /* one could not be done: it is tried again then; 0: none is left */
    uint64_t census_us;      /* not before */
};

static bool waits_for_census(const struct qi_store *store) {
    return !store->messages.counted && store->census != CENSUS_STOPPED;
}

static bool census_is_due(const struct qi_store *store, const struct rounds *rounds) {
    return waits_for_census(store) &&
           rounds->census_us <= store->disk->ops->monotonic_us(store->disk);
}

static int sync_open_queues(struct qi_store *store) {
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        if (qi_is_awake(queue))
            error = qi_sync_to(queue, qi_lsn(queue));
        if (!error && qi_is_awake(queue) && !store->closing)
            error = qi_tell_durable(queue);
    }
    return error;
}

/* Files emptied before the syncs began may go after them: the acks that emptied them are durable (H9). */
static int commit_group(struct qi_store *store) {
    uint32_t empty[64], count = qi_messages_empty(&store->messages, empty, 64);
    store->dirty = false;
    uint64_t began_us = store->disk->ops->monotonic_us(store->disk);
    if (QI_BUG(body_freed_before_its_ack))
        qi_messages_free(&store->messages, empty, count), count = 0;
    int error = sync_open_queues(store);
    if (!error)
        error = qi_sync_messages(store);
    if (!error && count) {
        int64_t freed = qi_messages_free(&store->messages, empty, count);
        if (freed < 0)
            error = (int)freed;
    }
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    store->commit_due_us = now + (now - began_us) + store->options.sync_interval_us;
    return error;
}

void qi_commit_if_due(struct qi_store *store) {
    qi_relock(store);
    if (store->has_worker && store->dirty && !store->failed && store->options.sync_interval_us &&
        store->disk->ops->monotonic_us(store->disk) >= store->commit_due_us)
        commit_group(
            store); /* a sync that fails fails the store; a file that stays is tried again */
    qi_unlock(store);
}

/* One that could not be done (no descriptor, no space) leaves the old journal as the truth, and keeps no other queue
 * from its flush. Who needs its room before the next try does it first. */
static int run_flushes(struct qi_store *store, struct rounds *rounds) {
    store->flush_due = false;
    rounds->flush_again_us = 0;
    int trouble = 0;
    for (uint32_t i = 0; i < store->queues_count && !store->failed; i++) {
        struct qi_queue *queue = store->queues[i];
        if (!qi_is_awake(queue) || !queue->flush)
            continue;
        int error = qi_flush_run(queue);
        if (queue->flush) /* or somebody else is at it, and may fail */
            rounds->flush_again_us = store->disk->ops->monotonic_us(store->disk) + AGAIN_US;
        if (error && error != QI_E_FULL)
            trouble = error;
    }
    return trouble;
}

/* Returns how many queues are still open. */
static uint32_t unload_idle(struct qi_store *store) {
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    uint32_t open = 0;
    for (uint32_t i = 0; i < store->queues_count; i++) {
        struct qi_queue *queue = store->queues[i];
        if (!qi_is_awake(queue))
            continue;
        if (queue->used) {
            queue->used = false;
            queue->idle_since_us = now;
        } else if (now - queue->idle_since_us >= store->options.idle_us) {
            int64_t freed = 0;
            int error = qi_rewrite_segments(queue, GARBAGE_PERCENT, &freed);
            if (!error && !queue->used)
                qi_queue_unload(queue);
        }
        open += queue->dir >= 0;
    }
    return open;
}

/* A queue that is deleted, perhaps while this waits for it, has no segments: that is no error. */
static int ready_to_look(struct qi_queue *queue) {
    int error = queue->deleted ? 0 : qi_queue_ready(queue, false);
    return queue->deleted ? 0 : error;
}

/* Adds every segment's references to the store's account; until all are in, nothing is freed. One queue per call. */
static int census_queue(struct qi_store *store, struct qi_queue *queue) {
    int error = ready_to_look(queue);
    for (uint32_t i = 0; !error && !queue->deleted && i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        struct qi_file_use *uses;
        uint32_t count;
        if (segment->counted)
            continue;
        error = qi_segment_uses(queue, segment, &uses, &count);
        if (error)
            break;
        for (uint32_t k = 0; k < count; k++)
            qi_messages_count(&store->messages, uses[k].file, uses[k].count,
                              (int64_t)uses[k].bytes);
        segment->counted = true;
        free(uses);
    }
    return error;
}

int qi_census(struct qi_store *store, bool all) {
    while (store->counting)
        pthread_cond_wait(&store->changed, &store->lock);
    store->counting = true;
    int error = 0;
    if (all && store->census == CENSUS_STOPPED && store->census_error != QI_E_CORRUPT)
        store->census = 0; /* the disk may work again; segments that are counted stay so */
    if (!store->messages.counted && store->census == 0) {
        qi_unlock(store);
        error = qi_store_queues(store); /* also the queues that nobody has asked for */
        qi_relock(store);
        if (error > 0)
            error = 0;
    }
    while (!store->messages.counted && !error) {
        if (store->census == CENSUS_STOPPED) {
            error = qi_fail(store->census_error,
                            "a queue cannot be read (see findings): nothing is freed or "
                            "compacted until it is repaired or deleted");
        } else if (store->census >= store->queues_count) {
            store->messages.counted = true;
        } else {
            error = census_queue(store, store->queues[store->census]);
            if (!error)
                store->census++;
            if (!all)
                break;
        }
    }
    store->counting = false;
    pthread_cond_broadcast(&store->changed);
    return error;
}

/* Collects the ids of all living messages that were born in (or moved to) the victims. */
struct marking {
    struct qi_store *store;
    struct qi_compaction *compaction;
    uint64_t room;
};

static int mark(struct marking *marking, struct qi_msg_id id) {
    struct qi_compaction *compaction = marking->compaction;
    if (!qi_compaction_holds(compaction, id.file))
        return 0;
    if (compaction->live_count == marking->room) {
        uint64_t room = marking->room ? marking->room * 2 : 256;
        struct qi_msg_id *live = realloc(compaction->live, room * sizeof *live);
        if (!live)
            return qi_fail(QI_E_MEMORY, "no memory to compact");
        compaction->live = live;
        marking->room = room;
    }
    compaction->live[compaction->live_count++] = id;
    return 0;
}

static int mark_segment(struct marking *marking, struct qi_queue *queue,
                        struct qi_segment *segment) {
    struct qi_file_use *uses;
    uint32_t count, entries = marking->store->options.segment_entries;
    int error = qi_segment_uses(queue, segment, &uses, &count);
    bool concerned = false;
    for (uint32_t i = 0; !error && i < count; i++)
        concerned = concerned || qi_compaction_holds(marking->compaction, uses[i].file);
    if (!error)
        free(uses);
    if (error || !concerned)
        return error;
    bool was_cold = !segment->hot;
    error = qi_segment_load(queue, segment);
    for (uint32_t slot = 0; !error && slot < entries; slot += 64) {
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        for (uint64_t bits = slots->pub & ~slots->ack & slots->stored; bits && !error;
             bits &= bits - 1) {
            const uint8_t *record;
            error =
                qi_segment_record(queue, segment, slot + (uint32_t)__builtin_ctzll(bits), &record);
            if (!error)
                error = mark(marking, qi_get_msg_id(record + QI_PUB_MSG_ID));
        }
    }
    if (was_cold)
        qi_segment_cool(segment);
    return error;
}

static int compare_ids(const void *a, const void *b) {
    const struct qi_msg_id *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int mark_all(struct qi_store *store, struct qi_compaction *compaction) {
    struct marking marking = {store, compaction, 0};
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        error = ready_to_look(queue);
        for (uint32_t k = 0; !error && k < queue->segments.count; k++)
            error = mark_segment(&marking, queue, qi_segment_nth(&queue->segments, k));
    }
    if (compaction->live_count)
        qsort(compaction->live, compaction->live_count, sizeof *compaction->live, compare_ids);
    uint64_t kept = 0; /* a fan-out message is marked once per queue */
    for (uint64_t i = 0; i < compaction->live_count; i++)
        if (kept == 0 || compare_ids(&compaction->live[kept - 1], &compaction->live[i]) != 0)
            compaction->live[kept++] = compaction->live[i];
    compaction->live_count = kept;
    return error;
}

/* Files that stay because a message in them could not be copied; once per file, it is not picked again. */
static void report_left_out(struct qi_store *store, const struct qi_compaction *compaction) {
    struct qi_msg_id first = compaction->damaged_id;
    for (uint32_t i = 0; i < compaction->victims_count && compaction->damaged > 0; i++) {
        const struct qi_message_file *file = &compaction->files[i];
        if (!file->victim && !file->spared)
            qi_report(
                store, true, "", qi_message_name(file->number, false).shown, 0,
                "it stays as it is, because a message in it is damaged (the first that was met "
                "was born in file %u at offset %u); see check",
                first.file, first.offset);
    }
}

/* One compaction: 0, an error, or LOOK_FURTHER. H15: copy, sync, record, then unlink. The acks of what is not copied are
 * made durable before the copy gets its name, which says where the victims' messages live now: otherwise a power cut
 * would bring back messages without bodies. */
static int compact_once(struct qi_store *store, uint32_t garbage_percent, int64_t *freed) {
    struct qi_compaction compaction = {0};
    *freed = 0;
    if (qi_compact_pick(&store->messages, garbage_percent, &compaction) == 0)
        return QI_EMPTY;
    int error = mark_all(store, &compaction);
    if (!error && qi_compact_look(&store->messages, garbage_percent, &compaction) == 0)
        error = LOOK_FURTHER;
    if (!error && !QI_BUG(copied_before_its_acks))
        error = sync_open_queues(store);
    if (!error) {
        qi_unlock(store);
        error = qi_compact_copy(&store->messages, &compaction);
        qi_relock(store);
        report_left_out(store, &compaction);
    }
    if (!error && QI_BUG(copied_before_its_acks))
        error = sync_open_queues(store);
    if (!error)
        *freed = qi_compact_commit(&store->messages, &compaction);
    if (*freed < 0)
        error = (int)*freed;
    if (error)
        qi_compact_abandon(&store->messages, &compaction);
    return error;
}

int qi_compact(struct qi_store *store, uint32_t garbage_percent, int64_t *freed) {
    while (store->compacting)
        pthread_cond_wait(&store->changed, &store->lock);
    store->compacting = true;
    int error = 0;
    *freed = 0;
    while (!error && !store->stopping) {
        int64_t bytes;
        error = compact_once(store, garbage_percent, &bytes);
        *freed += error ? 0 : bytes;
        if (!error && bytes <= 0)
            break;
        if (error == LOOK_FURTHER)
            error = 0;
    }
    store->compacting = false;
    pthread_cond_broadcast(&store->changed);
    return error == QI_EMPTY ? 0 : error;
}

int64_t qi_store_compact(struct qi_store *store, uint32_t garbage_percent) {
    qi_lock(store);
    int64_t freed = 0, before = 0;
    int error = qi_store_usable(store, true);
    if (!error)
        error = qi_census(store, true);
    if (!error) {
        for (uint32_t i = 0; i < store->messages.files_count; i++)
            before += (int64_t)store->messages.files[i].size;
        error = commit_group(store); /* frees what is empty */
        for (uint32_t i = 0; i < store->messages.files_count; i++)
            before -= (int64_t)store->messages.files[i].size;
    }
    if (!error)
        error = qi_compact(store, garbage_percent, &freed);
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        if (queue->deleted)
            continue;
        error = qi_queue_ready(queue, true);
        if (!error)
            error = qi_rewrite_segments(queue, garbage_percent, &freed);
        if (queue->deleted) /* meanwhile */
            error = 0;
    }
    qi_unlock(store);
    return error ? error : freed + (before > 0 ? before : 0);
}

void qi_wake_worker(struct qi_store *store) {
    pthread_mutex_lock(&store->sleep);
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->sleep);
}

/* Waits for work, at most until the time is over. Whoever wants to wake the worker changes something first, with the lock,
 * which is given up only when the worker would hear it. */
static void wait_for_work(struct qi_store *store, uint64_t us) {
    pthread_mutex_lock(&store->sleep);
    qi_unlock(store);
    if (us == FOR_EVER) {
        pthread_cond_wait(&store->work, &store->sleep);
    } else {
        struct timespec until = qi_time_after(us + 1);
        pthread_cond_timedwait(&store->work, &store->sleep, &until);
    }
    pthread_mutex_unlock(&store->sleep);
    qi_relock(store);
}

static int one_round(struct qi_store *store, struct rounds *rounds) {
    bool flush_again = rounds->flush_again_us &&
                       rounds->flush_again_us <= store->disk->ops->monotonic_us(store->disk);
    int trouble = store->flush_due || flush_again ? run_flushes(store, rounds) : 0;
    int error = qi_bells_run(store);
    if (error)
        trouble = error; /* of one queue; the others get their commit all the same */
    error = store->failed;
    if (!error && store->dirty && store->options.sync_interval_us)
        error = commit_group(store);
    else if (!store->options.sync_interval_us)
        store->dirty = false;
    if (!error && census_is_due(store, rounds)) {
        error = qi_census(store, false);
        if (error) { /* a queue that cannot be read: nothing is freed until somebody compacts */
            qi_report(store, error == QI_E_CORRUPT, "", "", 0, "the census stopped: %s",
                      qi_error_text());
            store->messages.counted = false;
            store->census = CENSUS_STOPPED;
            store->census_error = error;
            error = 0;
        }
    }
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    if (!error && store->messages.counted && now - rounds->compacted_us > 1000000) {
        int64_t freed;
        rounds->compacted_us = now;
        error = qi_compact(store, GARBAGE_PERCENT, &freed);
        if (error == QI_E_FULL || error == QI_E_CORRUPT)
            error = 0;
    }
    return error ? error : trouble;
}

static uint64_t sooner(uint64_t us, uint64_t due_us, uint64_t now_us) {
    uint64_t left = due_us > now_us ? due_us - now_us : 0;
    return left < us ? left : us;
}

/* How long the worker may sleep if nobody wakes it. */
static uint64_t until_something_is_due(struct qi_store *store, const struct rounds *rounds,
                                       bool open) {
    uint64_t us = qi_expire_wait(store, open ? store->options.idle_us / 2 + 1 : FOR_EVER);
    us = qi_bells_timer(store, us); /* of an event loop */
    uint64_t now = store->disk->ops->monotonic_us(store->disk);
    if (rounds->flush_again_us)
        us = sooner(us, rounds->flush_again_us, now);
    return waits_for_census(store) ? sooner(us, rounds->census_us, now) : us;
}

static void *work(void *argument) {
    struct qi_store *store = argument;
    struct rounds rounds = {.census_us =
                                store->disk->ops->monotonic_us(store->disk) + CENSUS_AFTER_US};
    uint64_t looked_us = 0;
    uint32_t open = 1;
    qi_lock(store);
    while (!store->stopping && !store->failed) {
        if (!store->dirty && !store->flush_due && !census_is_due(store, &rounds))
            wait_for_work(store, until_something_is_due(store, &rounds, open > 0));
        /* Group commit: what comes within the interval is synced together. */
        if (!store->stopping && store->dirty && !store->flush_due &&
            store->options.sync_interval_us)
            wait_for_work(store, qi_bells_timer(store, store->options.sync_interval_us));
        if (store->stopping)
            break;
        if (one_round(store, &rounds) != 0 && !store->failed)
            wait_for_work(store, 100000); /* a passing trouble */
        qi_expire_due(store);
        uint64_t now = store->disk->ops->monotonic_us(store->disk);
        if (now - looked_us >= store->options.idle_us / 2) {
            open = unload_idle(store);
            looked_us = now;
        } else {
            open = 1;
        }
    }
    qi_unlock(store);
    return NULL;
}

int qi_store_tick(struct qi_store *store) {
    struct rounds rounds = {0};
    qi_lock(store);
    int error = qi_store_usable(store, true);
    if (!error)
        store->flush_due = true; /* also what the tick before could not do */
    if (!error)
        error = one_round(store, &rounds);
    if (!error)
        unload_idle(store);
    qi_unlock(store);
    return error;
}

int qi_worker_start(struct qi_store *store) {
    int error = pthread_create(&store->worker, NULL, work, store);
    store->has_worker = error == 0;
    return error ? qi_fail(QI_E_MEMORY, "cannot start the worker thread (errno %d)", error) : 0;
}

void qi_worker_stop(struct qi_store *store) {
    qi_lock(store);
    while (store->stopping) /* another thread closes it, too */
        pthread_cond_wait(&store->changed, &store->lock);
    bool stops = store->has_worker;
    store->stopping = stops;
    if (stops)
        qi_wake_worker(store);
    qi_unlock(store);
    if (!stops)
        return;
    pthread_join(store->worker, NULL);
    qi_lock(store);
    store->has_worker = store->stopping = false;
    pthread_cond_broadcast(&store->changed);
    qi_unlock(store);
}
