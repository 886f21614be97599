/* store.c - open and close a store; its clock, its findings, its failure.
 *
 * Opening for write: lock (H16), read store.meta, begin a session that counts as unclean until close says otherwise.
 * Queues are recovered when somebody asks for them (and by the worker's census), so opening does not grow with them.
 */
#define _GNU_SOURCE
#include "store.h"
#include "bytes.h"
#include "messages_files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define FINDINGS_MAX  10000u
#define KEEP_FREE_MIN (UINT64_C(256) << 10)

uint64_t qi_now_us(struct qi_store *store) {
    return store->wall_base_us + store->disk->ops->monotonic_us(store->disk) -
           store->monotonic_base_us;
}

int qi_store_usable(struct qi_store *store, bool to_write) {
    if (__builtin_expect(store->fork_generation != qi_fork_generation(), 0))
        return qi_fail(QI_E_FORKED, "this store was opened before a fork: open it anew in the "
                                    "child, after the parent closed it");
    if (__builtin_expect(store->closed || store->closing, 0))
        return qi_fail(QI_E_CLOSED, "the store is closed");
    if (__builtin_expect(store->failed != 0, 0))
        return qi_fail(QI_E_FAILED,
                       "an earlier write or sync failed (%s): what was not confirmed may be lost; "
                       "close and reopen the store",
                       store->why_failed);
    if (to_write && store->options.read_only)
        return qi_fail(QI_E_READ_ONLY, "the store was opened read-only");
    return 0;
}

/* In a forked child who has the lock stayed in the parent and never gives it up. The verb is refused there (H16) before it
 * looks at anything that the lock is for. */
void qi_wait_for_lock(struct qi_store *store) {
    if (store->fork_generation != qi_fork_generation())
        return;
    if (atomic_load_explicit(&store->returning, memory_order_relaxed)) {
        pthread_mutex_lock(&store->gate);
        pthread_mutex_unlock(&store->gate);
    }
    pthread_mutex_lock(&store->lock);
}

void qi_relock(struct qi_store *store) {
    pthread_mutex_lock(&store->gate);
    atomic_store(&store->returning, true);
    pthread_mutex_lock(&store->lock);
    atomic_store(&store->returning, false);
    pthread_mutex_unlock(&store->gate);
}

int qi_store_fail(struct qi_store *store, int code) {
    if (!store->failed) {
        store->failed = code;
        snprintf(store->why_failed, sizeof store->why_failed, "%s", qi_error_text());
    }
    pthread_cond_broadcast(&store->changed);
    qi_wake_all(store);
    return code;
}

void qi_report(struct qi_store *store, bool damage, const char *directory, const char *file,
               uint64_t offset, const char *format, ...) {
    if (store->findings_count == FINDINGS_MAX)
        return;
    if (store->findings_count == store->findings_room) {
        uint32_t room = store->findings_room ? store->findings_room * 2 : 16;
        struct qi_finding *findings = realloc(store->findings, room * sizeof *findings);
        if (!findings)
            return;
        store->findings = findings;
        store->findings_room = room;
    }
    char text[512], where[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(where, sizeof where, "%s%s%s%s", directory[0] ? "queues/" : "", directory,
             directory[0] && file[0] ? "/" : "", file);
    if (store->findings_count == FINDINGS_MAX - 1)
        snprintf(text, sizeof text, "more was found than is kept here");
    struct qi_finding finding = {damage, strdup(where), offset, strdup(text)};
    if (finding.where && finding.text)
        store->findings[store->findings_count++] = finding;
    else
        free(finding.where), free(finding.text);
}

int qi_store_finding(struct qi_store *store, uint32_t index, bool *damage, const char **where,
                     uint64_t *offset, const char **text) {
    qi_lock(store);
    int error = index < store->findings_count ? 0 : QI_EMPTY;
    if (!error) {
        *damage = store->findings[index].damage;
        *where = store->findings[index].where;
        *offset = store->findings[index].offset;
        *text = store->findings[index].text;
    }
    qi_unlock(store);
    return error;
}

/* The lock file says who holds it, so that the loser of the race can say it too. */
static int take_lock(struct qi_store *store) {
    struct qi_disk *disk = store->disk;
    store->lock_file = disk->ops->open(disk, store->root, "LOCK", QI_OPEN_CREATE);
    if (store->lock_file < 0)
        return qi_fail_disk(store->lock_file, "cannot open", "LOCK");
    int error = disk->ops->lock(disk, store->lock_file);
    char holder[160] = {0};
    if (error == -EWOULDBLOCK) {
        int64_t got = disk->ops->read(disk, store->lock_file, holder, sizeof holder - 1, 0);
        holder[got > 0 ? got : 0] = 0;
        holder[strcspn(holder, "\n")] = 0;
        return qi_fail(
            QI_E_LOCKED,
            "another writer has this store open (%s): close it, or open with read_only=True",
            holder);
    }
    if (error)
        return qi_fail_disk(error, "cannot lock", "LOCK");
    disk->ops->whoami(disk, holder, sizeof holder);
    error = disk->ops->truncate(disk, store->lock_file, 0);
    if (!error)
        error = disk->ops->write(disk, store->lock_file, holder, strlen(holder), 0);
    return error ? qi_fail_disk(error, "cannot write", "LOCK") : 0;
}

static int open_folder(struct qi_store *store, const char *name, int *handle) {
    struct qi_disk *disk = store->disk;
    int error = store->options.read_only ? 0 : disk->ops->make_dir(disk, store->root, name);
    if (error && error != -EEXIST)
        return qi_fail_disk(error, "cannot create", name);
    *handle = disk->ops->open_dir(disk, store->root, name);
    return *handle < 0 ? qi_fail_disk(*handle, "cannot open", name) : 0;
}

static void note_deleted(void *context, const char *name) {
    struct qi_store *store = context;
    size_t size = strlen(name);
    if (size == 36 && strspn(name, "0123456789abcdef") == 32 &&
        (strcmp(name + 32, ".del") == 0 || strcmp(name + 32, ".new") == 0))
        qi_remove_deleted(store, name);
}

/* What publishes leave free on the disk, so that acks and a flush of both journals always have room (H14); on a small
 * disk not more than a quarter of what is free now, unless the caller wants more. */
static uint64_t reserve_of(struct qi_store *store) {
    uint64_t want = 4 * store->options.max_journal_bytes + (UINT64_C(2) << 20), left = 0;
    if (store->disk->ops->free_bytes(store->disk, store->root, &left) == 0 && want > left / 4)
        want = left / 4;
    if (want < KEEP_FREE_MIN)
        want = KEEP_FREE_MIN;
    return want > store->options.min_free ? want : store->options.min_free;
}

bool qi_is_short_of_space(struct qi_store *store) {
    uint64_t left = 0;
    return store->disk->ops->free_bytes(store->disk, store->root, &left) == 0 &&
           left < store->keep_free;
}

static void report_aliens(struct qi_store *store) {
    for (uint32_t i = 0; i < store->messages.files_count; i++) {
        const struct qi_message_file *file = &store->messages.files[i];
        if (file->alien)
            qi_report(store, true, "", qi_message_name(file->number, false).shown, 0,
                      "not a message file of this store, or its header or birth table is damaged: "
                      "it is never removed");
    }
}

static int open_parts(struct qi_store *store) {
    qi_options *options = &store->options;
    struct qi_disk *disk = store->disk;
    bool writing = !options->read_only;
    int error = writing ? take_lock(store) : 0;
    if (!error)
        error = qi_meta_open(store, writing && options->create);
    if (error)
        return error;
    int messages_dir = -1;
    error = open_folder(store, "queues", &store->queues_dir);
    if (!error)
        error = open_folder(store, "messages", &messages_dir);
    if (!error) {
        store->keep_free = reserve_of(store);
        store->messages.keep_free = store->keep_free;
        error =
            qi_messages_open(&store->messages, disk, messages_dir, store->identity,
                             options->message_file_size, store->use_mapping, options->read_only);
        report_aliens(store);
    }
    if (error || !writing)
        return error;
    error = disk->ops->sync_dir(disk, store->queues_dir); /* names from before a crash (H7) */
    if (error)
        return qi_fail_disk(error, "cannot sync", "queues");
    disk->ops->list(disk, store->queues_dir, note_deleted, store);
    store->session++;
    return qi_meta_write(store, false); /* syncs the root too: the folders' names are durable */
}

static void release_all(struct qi_store *store) {
    struct qi_disk *disk = store->disk;
    for (uint32_t i = 0; i < store->queues_count; i++)
        qi_queue_reset(store->queues[i]);
    qi_messages_close(&store->messages);
    if (store->queues_dir >= 0)
        disk->ops->close(disk, store->queues_dir);
    if (store->lock_file >= 0) {
        disk->ops->unlock(disk, store->lock_file);
        disk->ops->close(disk, store->lock_file);
    }
    if (store->root >= 0)
        disk->ops->close(disk, store->root);
    store->queues_dir = store->lock_file = store->root = -1;
    store->closed = true;
}

static void init_threads(struct qi_store *store) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&store->gate, NULL);
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->sleep, NULL);
    pthread_mutex_init(&store->bell_lock, NULL);
    pthread_cond_init(&store->changed, &clock);
    pthread_cond_init(&store->work, &clock);
    pthread_condattr_destroy(&clock);
}

/* A store that may be full has to know what is in it. In a queue that is beyond reading there is nothing that counts. */
static int read_all_queues(struct qi_store *store) {
    int count = qi_store_queues(store), error = count < 0 ? count : 0;
    qi_lock(store);
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        error = qi_queue_ready(store->queues[i], false);
        if (!error && store->options.max_bytes)
            error = qi_bytes_begin(store->queues[i]);
        if (error == QI_E_CORRUPT || error == QI_E_FORMAT)
            error = 0; /* who asks for the queue is told */
    }
    qi_unlock(store);
    return error;
}

int qi_store_open(const char *path, const qi_options *options, struct qi_store **result) {
    return qi_store_open_on(&qi_disk_posix, path, options, result);
}

int qi_store_open_on(struct qi_disk *disk, const char *path, const qi_options *options,
                     struct qi_store **result) {
    struct qi_store *store = calloc(1, sizeof *store);
    if (!store)
        return qi_fail(QI_E_MEMORY, "no memory for a store");
    store->disk = disk;
    store->options = *options;
    store->queues_dir = store->lock_file = store->bell = -1;
    store->messages.dir = -1;
    store->messages.disk = disk;
    store->messages.tape.file = -1;
    store->wall_base_us = disk->ops->wall_us(disk);
    store->monotonic_base_us = disk->ops->monotonic_us(disk);
    store->barrier_from = UINT32_MAX;
    init_threads(store);
    store->root = disk->ops->open_root(disk, path, options->create && !options->read_only);
    int error = store->root < 0 ? qi_fail_disk(store->root, "cannot open the store", path) : 0;
    if (store->root == -ENOENT)
        error = QI_E_MISSING;
    store->fork_generation = qi_fork_generation();
    if (!error) {
        bool safe =
            options->io == 1 || (options->io == 0 && disk->ops->mapping_is_safe(disk, store->root));
        store->use_mapping = safe && !options->read_only;
        error = open_parts(store);
    }
    store->deferring = options->worker && !options->read_only;
    if (!error && store->deferring && !disk->single_threaded)
        error = qi_worker_start(store);
    if (error) {
        release_all(store);
        qi_store_free(store);
        return error;
    }
    if (store->deferring && (options->max_messages || options->max_bytes))
        error = read_all_queues(store);
    if (error) {
        qi_store_close(store);
        qi_store_free(store);
        return error;
    }
    *result = store;
    return 0;
}

/* Calls of other threads that work without the lock right now must come to an end first. Whoever waits among them goes on
 * only when the lock is given up again, which closing a queue does. */
static void wait_for_others(struct qi_store *store) {
    qi_wake_all(store);
    while (store->waiting)
        pthread_cond_wait(&store->changed, &store->lock);
    for (uint32_t i = 0; i < store->queues_count;) {
        const struct qi_queue *queue = store->queues[i];
        if (queue->flushing | queue->syncing | queue->recovering | store->compacting |
            store->counting | store->messages_syncing) {
            pthread_cond_wait(&store->changed, &store->lock);
            i = 0;
        } else {
            i++;
        }
    }
}

static int close_cleanly(struct qi_store *store) {
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        wait_for_others(store);
        error = qi_queue_close(store->queues[i]);
    }
    if (!error)
        error = qi_sync_messages(store);
    return error ? error : qi_meta_write(store, true);
}

int qi_store_close(struct qi_store *store) {
    if (store->fork_generation != qi_fork_generation())
        return 0; /* the parent's: its locks and files stay its own */
    qi_worker_stop(store);
    qi_lock(store);
    while (store->closing && !store->closed) /* another thread closes it, too */
        pthread_cond_wait(&store->changed, &store->lock);
    if (store->closed) {
        qi_unlock(store);
        return 0;
    }
    store->closing = true;
    wait_for_others(store);
    int error = 0;
    if (store->failed)
        error =
            qi_fail(QI_E_FAILED,
                    "the store is closed, but an earlier write or sync failed (%s): what was not "
                    "confirmed may be lost; reopen it to see what is there",
                    store->why_failed);
    else if (!store->options.read_only)
        error = close_cleanly(store);
    wait_for_others(store);
    release_all(store);
    pthread_cond_broadcast(&store->changed);
    qi_unlock(store);
    return error;
}

/* From here whoever looks for lost memory finds them. */
static struct qi_store *left;

void qi_store_leave(struct qi_store *store) {
    store->next_left = left;
    left = store;
}

void qi_store_free(struct qi_store *store) {
    bool own = store->fork_generation == qi_fork_generation();
    if (own)
        qi_worker_stop(store);
    if (own && !store->closed)
        release_all(store);
    for (uint32_t i = 0; i < store->queues_count; i++) {
        free(store->queues[i]->name);
        free(store->queues[i]->lanes.items);
        free(store->queues[i]->heads.req_ids);
        free(store->queues[i]->moments);
        free(store->queues[i]);
    }
    for (uint32_t i = 0; i < store->findings_count; i++) {
        free(store->findings[i].where);
        free(store->findings[i].text);
    }
    qi_bell_close(store->bell);
    free(store->findings);
    free(store->queues);
    free(store);
}

/* One that is asleep is durable, and stays asleep. */
static int sync_if_awake(struct qi_queue *queue) {
    int error = qi_queue_settled(queue, true);
    return !error && qi_is_awake(queue) ? qi_sync_to(queue, qi_lsn(queue)) : error;
}

int qi_store_sync(struct qi_store *store) {
    qi_lock(store);
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++)
        error = sync_if_awake(store->queues[i]);
    if (!error)
        error = qi_store_usable(store, true); /* it may have been closed meanwhile */
    if (!error)
        error = qi_sync_messages(store);
    qi_unlock(store);
    return error;
}

int qi_store_stats_of(struct qi_store *store, qi_store_stats *stats) {
    qi_lock(store);
    int error = qi_store_usable(store, false);
    *stats = (qi_store_stats){.queues = store->queues_count,
                              .session = store->session,
                              .unclean_session = store->unclean_session,
                              .messages = store->depth - store->dead,
                              .bytes = store->bytes,
                              .findings = store->findings_count,
                              .segment_entries = store->options.segment_entries,
                              .embed_below = store->options.embed_below,
                              .mapped = store->use_mapping,
                              .counted = store->messages.counted,
                              .message_files = store->messages.files_count};
    for (uint32_t i = 0; i < store->messages.files_count; i++)
        stats->message_bytes += store->messages.files[i].size;
    for (uint32_t i = 0; i < store->messages.births_count; i++) {
        stats->live_bytes += store->messages.births[i].bytes;
        stats->live_references += store->messages.births[i].references;
    }
    qi_unlock(store);
    return error;
}

int qi_queue_stats_of(struct qi_queue *queue, qi_queue_stats *stats) {
    qi_lock(queue->store);
    int error = qi_store_usable(queue->store, false);
    if (!error && (!queue->recovered || qi_timers_next_us(queue) <= qi_now_us(queue->store)))
        error = qi_queue_ready(queue, false);
    if (!error && qi_is_awake(queue))
        error = qi_delayed_run(queue);
    bool read_only = queue->store->options.read_only; /* a reader syncs nothing */
    *stats = (qi_queue_stats){.depth = queue->depth,
                              .ready = queue->depth - queue->out - queue->delayed - queue->dead,
                              .unacked = queue->out,
                              .delayed = queue->delayed,
                              .dead = queue->dead,
                              .bytes = queue->measured ? queue->bytes : UINT64_MAX,
                              .next_due_us = qi_next_due_us(queue),
                              .next_req_id = queue->lanes.items[0].next,
                              .dirty_count = queue->dirty_count,
                              .floor = queue->floor,
                              .epoch = queue->epoch,
                              .unsynced_bytes = read_only ? 0 : qi_lsn(queue) - queue->lsn_synced,
                              .journal_bytes = qi_current(queue)->tail,
                              .segments = queue->segments.count,
                              .loaded = queue->dir >= 0};
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        const struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        stats->hot_segments += segment->hot != NULL;
        stats->segment_bytes += segment->length;
    }
    qi_unlock(queue->store);
    return error;
}
