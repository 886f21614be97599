/* store.c - open and close a store; its clock, its findings, its failure.
 *
 * Opening for write: lock (H16), read store.meta, begin a session that counts as unclean until
 * close says otherwise. Queues are recovered when somebody asks for them (and by the worker's
 * census), so opening does not grow with them.
 */
#define _GNU_SOURCE
#include "store/store.h"

#include <errno.h>
#include <time.h>

#include "durable/durable.h"
#include "index/index.h"
#include "queue/queue.h"

#define KEEP_FREE_MIN (UINT64_C(256) << 10)

uint64_t qi_store_finding_lost(struct qi_store *store, uint32_t index) {
    qi_lock(store);
    uint64_t lost = index < store->findings_count ? store->findings[index].lost : 0;
    qi_unlock(store);
    return lost;
}

uint64_t qi_store_finding_orphans(struct qi_store *store, uint32_t index) {
    qi_lock(store);
    uint64_t orphans = index < store->findings_count ? store->findings[index].orphans : 0;
    qi_unlock(store);
    return orphans;
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
            "another writer has this store open (%s): close it; readers may open it meanwhile, "
            "with read_only=True",
            holder);
    }
    if (error)
        return qi_fail_disk(error, "cannot lock", "LOCK");
    disk->ops->whoami(disk, holder, sizeof holder);
    error = disk->ops->write(disk, store->lock_file, holder, strlen(holder), 0); /* needs no room */
    error = error ? error : disk->ops->truncate(disk, store->lock_file, strlen(holder));
    error = error ? qi_fail_disk(error, "cannot write", "LOCK") : 0;
    return error == QI_E_FULL ? 0 : error; /* the text is for people only */
}

/* In a store that is there it is never made: the messages are in the one that is missing. */
static int open_folder(struct qi_store *store, const char *name, int *handle) {
    struct qi_disk *disk = store->disk;
    bool is_new = store->session == 0;
    int error = is_new ? disk->ops->make_dir(disk, store->root, name) : 0;
    if (error && error != -EEXIST)
        return qi_fail_disk(error, "cannot create", name);
    *handle = disk->ops->open_dir(disk, store->root, name);
    if (*handle == -ENOENT)
        return qi_fail(QI_E_CORRUPT,
                       "the folder %s is missing: it was removed, moved, or its disk is not "
                       "mounted; put it back (nothing was changed)",
                       name);
    return *handle < 0 ? qi_fail_disk(*handle, "cannot open", name) : 0;
}

struct folders {
    struct qi_store *store;
    uint32_t queues;
};

/* Counts the queues, and removes what was being deleted or created. */
static void note_folder(void *context, const char *name) {
    struct folders *folders = context;
    size_t size = strlen(name);
    folders->queues += qi_is_queue_directory(name);
    if (size == 36 && strspn(name, "0123456789abcdef") == 32 &&
        (strcmp(name + 32, ".del") == 0 || strcmp(name + 32, ".new") == 0))
        qi_remove_deleted(folders->store, name);
}

/* What publishes leave free on the disk, so that acks and a flush of both journals always have room
 * (H14); on a small disk not more than a quarter of what is free now, unless the caller wants
 * more. */
static uint64_t reserve_of(struct qi_store *store) {
    uint64_t want = 4 * store->options.max_journal_bytes + (UINT64_C(2) << 20), left = 0;
    if (store->disk->ops->free_bytes(store->disk, store->root, &left) == 0 && want > left / 4)
        want = left / 4;
    if (want < KEEP_FREE_MIN)
        want = KEEP_FREE_MIN;
    return want > store->options.min_free ? want : store->options.min_free;
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
    /* Before the lock file, which would be left where there is no store. */
    int error = writing && !options->create ? qi_meta_look(store) : 0;
    if (!error && writing)
        error = take_lock(store);
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
    if (!error && store->options.format == 2)
        error = qi_commits_open(store);
    if (!error && store->options.format == 2 && !store->upgrading)
        qi_counts_expect(store);
    if (!error)
        qi_report_losses(store);
    if (error || !writing)
        return error;
    if (store->session == 0 && !QI_BUG(folders_not_synced)) { /* store.meta says that they are */
        error = disk->ops->sync_dir(disk, store->root);
        if (error)
            return qi_fail_disk(error, "cannot sync", "the folder of the store");
    }
    error = disk->ops->sync_dir(disk, store->queues_dir); /* names from before a crash (H7) */
    if (error)
        return qi_fail_disk(error, "cannot sync", "queues");
    struct folders folders = {.store = store};
    bool listed = disk->ops->list(disk, store->queues_dir, note_folder, &folders) == 0;
    store->crowded = disk->crowd && folders.queues >= disk->crowd;
    if (listed && !store->upgrading && qi_lacks_folders(store, folders.queues))
        store->records_lost = true; /* qi_miss_queues reports it in this session */
    store->session++;
    qi_logs_name(store, false);
    error = qi_meta_write(store, false);
    if (!error && store->commits) /* a log that shows a loss goes when store.meta says it */
        qi_logs_named(store->commits, store->logs.newest);
    return error;
}

static void release_all(struct qi_store *store) {
    struct qi_disk *disk = store->disk;
    qi_files_leave(store);
    for (uint32_t i = 0; i < store->queues_count; i++)
        qi_queue_reset(store->queues[i]);
    qi_commits_close(store);
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
    pthread_cond_init(&store->places, &clock);
    qi_asks_init(store);
    pthread_condattr_destroy(&clock);
}

/* A store that may be full has to know what is in it. In a queue that is beyond reading there is
 * nothing that counts. */
static int read_all_queues(struct qi_store *store) {
    int count = qi_store_queues(store), error = count < 0 ? count : 0;
    qi_lock(store);
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        error = qi_queue_ready(store->queues[i], false);
        if (!error && store->options.max_bytes)
            error = qi_bytes_begin(store->queues[i]);
        if (error == QI_E_CORRUPT || error == QI_E_FORMAT || error == QI_E_NEWER)
            error = 0; /* who asks for the queue is told */
    }
    qi_unlock(store);
    return error;
}

int qi_store_open(const char *path, const qi_options *options, struct qi_store **result) {
    return qi_store_open_on(&qi_disk_posix, path, options, result);
}

int qi_store_open_capsule(const void *capsule, const qi_options *options,
                          struct qi_store **result) {
    const struct qi_disk_capsule *given = capsule;
    if (memcmp(given->magic, QI_DISK_CAPSULE, sizeof given->magic) != 0)
        return qi_fail(QI_E_ARGUMENT, "this is no disk for a store");
    if (given->layout != QI_DISK_LAYOUT || given->disk_size != sizeof(struct qi_disk) ||
        given->ops_size != sizeof(struct qi_disk_ops))
        return qi_fail(QI_E_ARGUMENT,
                       "the disk has layout %u (%u and %u bytes), this core has layout %u (%zu and "
                       "%zu): qindex.testing and the core are of different builds, install qindex "
                       "again",
                       given->layout, given->disk_size, given->ops_size, QI_DISK_LAYOUT,
                       sizeof(struct qi_disk), sizeof(struct qi_disk_ops));
    return qi_store_open_on(given->disk, "/", options, result);
}

int qi_store_open_on(struct qi_disk *disk, const char *path, const qi_options *options,
                     struct qi_store **result) {
    struct qi_store *store = qi_calloc(1, sizeof *store);
    if (!store)
        return qi_fail(QI_E_MEMORY, "no memory for a store");
    store->disk = disk;
    store->options = *options;
    store->between_files = qi_commit_if_due;
    store->find_queue = qi_find_queue;
    store->queues_dir = store->lock_file = store->bell = -1;
    store->messages.dir = -1;
    store->messages.disk = disk;
    store->messages.tape.file = -1;
    store->opened_wall_us = disk->ops->wall_us(disk);
    store->opened_steady_us = disk->ops->monotonic_us(disk);
    store->barrier_from = UINT32_MAX;
    init_threads(store);
    store->root = disk->ops->open_root(disk, path, options->create && !options->read_only);
    int error = store->root < 0 ? qi_fail_disk(store->root, "cannot open the store", path) : 0;
    if (store->root == -ENOENT)
        error = QI_E_MISSING;
    store->fork_generation = qi_fork_generation();
    qi_files_join(store);
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

/* True if there was something to wait for. */
static bool wait_for_queue(const struct qi_queue *queue) {
    bool waited = false;
    while (queue->flushing | queue->syncing | queue->recovering) {
        pthread_cond_wait(&queue->store->changed, &queue->store->lock);
        waited = true;
    }
    return waited;
}

/* Calls of other threads that work without the lock right now must come to an end first. Those
 * among them that wait go on when the lock is given up again. */
static void wait_for_others(struct qi_store *store) {
    qi_wake_all(store);
    while (store->waiting)
        pthread_cond_wait(&store->changed, &store->lock);
    for (bool waited = true; waited;) {
        waited = false;
        for (uint32_t i = 0; i < store->queues_count; i++)
            waited = wait_for_queue(store->queues[i]) || waited;
        while (store->compacting | store->counting | store->messages_syncing |
               (store->disk_syncs > 0) | (store->looking > 0) | store->naming |
               (store->commits && (store->commits->busy || store->commits->writing))) {
            pthread_cond_wait(&store->changed, &store->lock);
            waited = true;
        }
    }
}

/* What is begun is finished: flushes, bodies. The last look gives the lock up only while it waits,
 * so that nothing is under way when this returns, and nobody begins anything, because every verb is
 * refused. */
static int come_to_rest(struct qi_store *store) {
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        wait_for_queue(queue);
        if (qi_is_in_use(queue) && queue->flush)
            error = qi_flush_run(queue);
    }
    if (!error)
        error = qi_sync_messages(store);
    wait_for_others(store);
    return !error && store->failed ? qi_store_usable(store, true) : error;
}

/* Everything that was appended is durable before the first CLOSE is, because its MARK says so;
 * every CLOSE is durable before store.meta says that the session ended cleanly. A power cut in
 * front of that leaves an unclean session, whatever is there of the CLOSE frames. Many queues cost
 * two syncs of the file system, not two each. */
static int close_cleanly(struct qi_store *store) {
    if (store->failed)
        return qi_fail(QI_E_FAILED,
                       "the store is closed, but an earlier write or sync failed (%s): what was "
                       "not confirmed may be lost; reopen it to see what is there",
                       store->why_failed);
    if (store->options.read_only)
        return 0;
    int error = come_to_rest(store);
    if (!error)
        error = qi_sync_at_rest(store);
    if (!error)
        error = qi_keep_counts(store);
    for (uint32_t i = 0; i < store->queues_count && !error; i++)
        if (qi_is_in_use(store->queues[i]))
            error = qi_queue_end(store->queues[i]);
    if (!error && !QI_BUG(ends_not_synced))
        error = qi_settle_at_rest(store);
    if (!error)
        qi_logs_name(store, true);
    return error ? error : qi_meta_write(store, true);
}

static int end_store(struct qi_store *store, bool cleanly) {
    if (store->fork_generation != qi_fork_generation())
        return 0; /* the parent's: its locks and files stay its own */
    qi_worker_stop(store);
    if (cleanly) /* else the thread is told that the store is closed */
        qi_asks_close(store);
    qi_lock(store);
    while (store->closing && !store->closed) /* another thread closes it, too */
        pthread_cond_wait(&store->changed, &store->lock);
    if (store->closed) {
        qi_unlock(store);
        return 0;
    }
    store->closing = true;
    wait_for_others(store);
    int error = cleanly ? close_cleanly(store) : 0;
    wait_for_others(store);
    release_all(store);
    pthread_cond_broadcast(&store->changed);
    qi_unlock(store);
    qi_asks_close(store);
    return error;
}

int qi_store_close(struct qi_store *store) {
    return end_store(store, true);
}

void qi_store_abandon(struct qi_store *store) {
    end_store(store, false);
}

/* From here whoever looks for lost memory finds them. */
static struct qi_store *left;

void qi_store_leave(struct qi_store *store) {
    store->next_left = left;
    left = store;
}

void qi_store_free(struct qi_store *store) {
    bool own = store->fork_generation == qi_fork_generation();
    if (own) {
        qi_worker_stop(store);
        qi_asks_close(store);
    }
    if (own && !store->closed)
        release_all(store);
    qi_asks_free(store);
    while (own && store->listeners) /* who frees them comes later, or never */
        qi_listener_end(store->listeners);
    for (uint32_t i = 0; i < store->queues_count; i++) {
        qi_free(store->queues[i]->name);
        qi_free(store->queues[i]->dead_to);
        qi_free(store->queues[i]->lanes.items);
        qi_free(store->queues[i]->heads.req_ids);
        qi_free(store->queues[i]->moments);
        qi_free(store->queues[i]);
    }
    qi_old_names_free(store);
    for (uint32_t i = 0; i < store->findings_count; i++) {
        qi_free(store->findings[i].where);
        qi_free(store->findings[i].text);
    }
    qi_bell_close(store->bell);
    qi_free(store->findings);
    qi_free(store->queues);
    qi_free(store->table);
    qi_free(store);
}

/* A queue that is asleep is durable, and stays asleep. */
int qi_store_sync(struct qi_store *store) {
    qi_lock(store);
    int error = qi_store_usable(store, true);
    if (!error)
        error = qi_sync_queues(store, NULL);
    if (!error)
        error = qi_store_usable(store, true); /* it may have been closed meanwhile */
    if (!error)
        error = qi_sync_messages(store);
    qi_unlock(store);
    return qi_in_doubt(error);
}
