/* lifecycle.c - a queue's life: created, opened, woken, idle, closed, deleted.
 *
 * An idle queue holds no file and no mapping: its journal ends with a CLOSE frame. Before anything is appended again a
 * SESSION frame is durable, because a CLOSE promises the exact next ReqId, and a power cut could bring that promise back
 * after ids had been handed out (H10).
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bug.h"
#include "history.h"
#include "store.h"

#define FIRST_EPOCH 2u

static int open_current(struct qi_queue *queue, enum qi_open_mode mode) {
    struct qi_store *store = queue->store;
    struct qi_journal *journal = qi_current(queue);
    uint64_t mapped = 2 * store->options.max_journal_bytes + (UINT64_C(8) << 20) + QI_JOURNAL_START;
    if (mapped > QI_LOC_OFFSET_MAX)
        mapped = QI_LOC_OFFSET_MAX;
    int file = store->disk->ops->open(store->disk, queue->dir, qi_journal_name(queue->epoch), mode);
    int error = file < 0
                    ? file
                    : qi_tape_open(&journal->tape, store->disk, file, mapped, store->use_mapping);
    if (!error)
        error = qi_tape_load(&journal->tape, 0, UINT64_MAX);
    return error ? qi_fail_disk(error, "cannot open the journal of", queue->directory) : 0;
}

/* Under a name that nobody reads, then renamed: a crash leaves a whole queue or none. */
static int create_files(struct qi_queue *queue, const char *draft) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    int error = disk->ops->make_dir(disk, store->queues_dir, draft);
    if (error && error != -EEXIST)
        return qi_fail_disk(error, "cannot create", draft);
    queue->dir = disk->ops->open_dir(disk, store->queues_dir, draft);
    if (queue->dir < 0)
        return qi_fail_disk(queue->dir, "cannot open", draft);
    disk->ops->random(disk, queue->identity, QI_IDENTITY_SIZE);
    queue->epoch = FIRST_EPOCH;
    queue->flushed_epoch = FIRST_EPOCH - 1;
    queue->session = store->session;
    queue->reserved = 2 * (uint64_t)store->options.max_journal_entries;
    error = qi_queue_meta_write(queue);
    if (!error)
        error = open_current(queue, QI_OPEN_FRESH);
    if (error)
        return error;
    struct qi_journal *journal = qi_current(queue);
    error = qi_journal_begin(journal, queue->identity, queue->epoch, qi_now_us(store));
    if (!error)
        error = qi_append_manifest(queue, journal, queue->flushed_epoch, 0);
    if (error)
        return qi_fail_disk(error, "cannot create the journal of", queue->directory);
    error = QI_BUG(first_journal_not_synced) ? 0 : disk->ops->sync(disk, journal->tape.file);
    if (!error && !QI_BUG(first_names_not_synced))
        error = disk->ops->sync_dir(disk, queue->dir);
    if (!error)
        error =
            disk->ops->rename(disk, store->queues_dir, draft, store->queues_dir, queue->directory);
    if (!error && !QI_BUG(queue_name_not_synced))
        error = disk->ops->sync_dir(disk, store->queues_dir);
    return error ? qi_store_fail(store, qi_fail_disk(error, "cannot create queue", queue->name))
                 : 0;
}

int qi_queue_create(struct qi_queue *queue) {
    char draft[40];
    snprintf(draft, sizeof draft, "%s.new", queue->directory);
    int error = create_files(queue, draft);
    if (error) {
        qi_queue_reset(queue);
        return error;
    }
    struct qi_journal *journal = qi_current(queue);
    journal->keep_free = queue->store->keep_free;
    journal->synced = journal->tail;
    queue->reserved_durable = queue->reserved;
    queue->lsn_synced = qi_lsn(queue);
    queue->recovered = true;
    queue->used = true;
    return 0;
}

/* Opens what an idle queue closed. */
static int wake(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    queue->dir = store->disk->ops->open_dir(store->disk, store->queues_dir, queue->directory);
    if (queue->dir < 0)
        return qi_fail_disk(queue->dir, "cannot open the directory of queue", queue->name);
    assert(!store->options.read_only); /* a reader's queues are never unloaded */
    int error = open_current(queue, QI_OPEN_WRITE);
    if (!error) {
        error = qi_append_session(queue);
        if (error)
            error = qi_fail_disk(error, "cannot append to the journal of", queue->directory);
    }
    if (!error && QI_BUG(wake_not_synced)) {
        queue->reserved_durable = queue->reserved;
        return 0;
    }
    if (!error)
        return qi_sync_to(queue, qi_lsn(queue));
    qi_tape_close(&qi_current(queue)->tape);
    store->disk->ops->close(store->disk, queue->dir);
    queue->dir = -1;
    return error;
}

int qi_queue_settled(struct qi_queue *queue, bool to_write) {
    struct qi_store *store = queue->store;
    int error;
    while ((error = qi_store_usable(store, to_write)) == 0 &&
           __builtin_expect(queue->recovering, 0))
        pthread_cond_wait(&store->changed, &store->lock);
    return error;
}

int qi_queue_ready(struct qi_queue *queue, bool to_write) {
    struct qi_store *store = queue->store;
    int error = qi_queue_settled(queue, to_write);
    if (error)
        return error;
    if (queue->deleted)
        return qi_fail(QI_E_CLOSED, "queue %s was deleted; ask the store for it again",
                       queue->name);
    qi_leases_run(queue, &queue->timers);
    if (__builtin_expect(queue->recovered && queue->dir >= 0, 1))
        return 0;
    queue->recovering = true;
    error = queue->recovered ? wake(queue) : qi_recover_view(queue);
    queue->recovering = false;
    queue->used = true;
    qi_store_dirty(store);
    pthread_cond_broadcast(&store->changed);
    return error;
}

static void close_files(struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    qi_tape_close(&queue->journals[0].tape);
    qi_tape_close(&queue->journals[1].tape);
    if (queue->dir >= 0)
        disk->ops->close(disk, queue->dir);
    queue->dir = -1;
    free(queue->window);
    queue->window = NULL;
    queue->window_room = queue->window_length = 0;
}

void qi_forget_index(struct qi_queue *queue) {
    qi_flush_forget(queue);
    qi_segments_clear(&queue->segments);
    qi_count_nothing(queue);
    queue->moments_count = 0;
    queue->out = queue->highest = queue->reserved = queue->floor = 0;
    qi_timers_clear(&queue->timers);
    queue->leased = false;
    qi_lanes_reset(&queue->lanes);
    queue->dirty_count = 0;
}

void qi_queue_reset(struct qi_queue *queue) {
    close_files(queue);
    qi_forget_index(queue);
    queue->recovered = false;
}

/* Everything durable, then a MARK and a CLOSE, durable too. */
static int append_end(struct qi_queue *queue) {
    int error = qi_sync_to(queue, qi_lsn(queue));
    if (error)
        return error;
    error = qi_append_lanes(queue);
    if (!error)
        error = qi_append_close(queue);
    if (!error)
        error = qi_journal_cut(qi_current(queue), qi_current(queue)->tail);
    if (error)
        return qi_append_failed(queue, error);
    return qi_sync_to(queue, qi_lsn(queue));
}

static void cool_all(struct qi_queue *queue) {
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (!segment->hot || segment->hot->out_count ||
            (qi_has_due(segment) && !QI_BUG(due_segment_cooled)))
            continue;
        assert(!segment->hot->dirty && !segment->hot->in_flush);
        if (segment->length > 0) {
            qi_segment_cool(segment);
        } else {
            assert(segment->unacked == 0); /* all is flushed: no file, no messages */
            qi_segment_remove(&queue->segments, segment->number), i--;
        }
    }
}

int qi_queue_unload(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    /* The flush before this gave the lock up: who came meanwhile keeps the queue open. */
    if (queue->dir < 0 || queue->recovering || queue->flush || queue->dirty_count)
        return 0;
    queue->recovering = true; /* nobody may append behind the CLOSE */
    int error = append_end(queue);
    assert(error || !queue->syncing);
    if (!error) {
        qi_tape_close(&qi_previous(queue)->tape);
        /* Retired: whether its name comes back after a power cut does not matter. */
        disk->ops->unlink(disk, queue->dir, qi_journal_name(queue->epoch + 1));
        cool_all(queue);
        close_files(queue);
    }
    queue->recovering = false;
    pthread_cond_broadcast(&store->changed);
    return error;
}

int qi_queue_close(struct qi_queue *queue) {
    assert(!queue->flushing && !queue->syncing && !queue->recovering); /* close waited for them */
    if (queue->dir < 0)
        return 0;
    int error = queue->flush ? qi_flush_run(queue) : 0;
    return error ? error : append_end(queue);
}

static struct qi_queue *find_queue(struct qi_store *store, const char *directory) {
    for (uint32_t i = 0; i < store->queues_count; i++)
        if (!store->queues[i]->deleted && memcmp(store->queues[i]->directory, directory, 32) == 0)
            return store->queues[i];
    return NULL;
}

/* Adds the handle; handles live as long as the store, so that a pointer in Python never dangles. */
static struct qi_queue *add_queue(struct qi_store *store, const char *name, size_t size,
                                  const char *directory) {
    if (store->queues_count == store->queues_room) {
        uint32_t room = store->queues_room ? store->queues_room * 2 : 16;
        struct qi_queue **queues = realloc(store->queues, room * sizeof *queues);
        if (!queues)
            return NULL;
        store->queues = queues;
        store->queues_room = room;
    }
    struct qi_queue *queue = calloc(1, sizeof *queue);
    char *copy = malloc(size + 1);
    struct qi_lanes lanes;
    if (!qi_lanes_begin(&lanes) || !queue || !copy) {
        free(lanes.items);
        free(queue);
        free(copy);
        return NULL;
    }
    memcpy(copy, name, size);
    copy[size] = 0;
    *queue = (struct qi_queue){.store = store,
                               .name = copy,
                               .name_size = (uint32_t)size,
                               .dir = -1,
                               .bounded = store->options.max_messages || store->options.max_bytes,
                               .lanes = lanes,
                               .browsed = UINT64_MAX};
    memcpy(queue->directory, directory, 32);
    queue->journals[0].tape.file = queue->journals[1].tape.file = -1;
    return store->queues[store->queues_count++] = queue;
}

static bool directory_is_hex(const char *directory) {
    return strlen(directory) == 32 && strspn(directory, "0123456789abcdef") == 32;
}

/* The directory must be of the queue that is asked for: a copied one, or (in theory) a name with the same hash, is not. */
static int check_name(struct qi_queue *queue, int dir, const char *name, size_t name_size) {
    int error = 0;
    bool damaged;
    if (dir >= 0) {
        queue->dir = dir;
        error = qi_queue_meta_read(queue, &damaged);
        queue->dir = -1;
    }
    if (error || (queue->name_size == name_size && memcmp(queue->name, name, name_size) == 0))
        return error;
    return qi_fail(QI_E_CORRUPT,
                   "queues/%s is the directory of queue %s, not of %.*s: was it copied or renamed?",
                   queue->directory, queue->name, (int)name_size, name);
}

int qi_queue_open(struct qi_store *store, const char *name, size_t name_size, const char *directory,
                  bool create, struct qi_queue **result) {
    if (!directory_is_hex(directory) || name_size > 65535)
        return qi_fail(QI_E_ARGUMENT, "a queue's name has at most 65535 bytes in UTF-8");
    qi_lock(store);
    int error = qi_store_usable(store, false);
    struct qi_queue *queue = error ? NULL : find_queue(store, directory);
    bool exists = queue != NULL;
    if (!error && !exists) {
        int dir = store->disk->ops->open_dir(store->disk, store->queues_dir, directory);
        exists = dir >= 0;
        if (qi_is_of_the_disk(dir)) /* it may be there */
            error = qi_fail_disk(dir, "cannot open the directory of queue", directory);
        else if (!exists && (!create || store->options.read_only))
            error =
                qi_fail(QI_E_MISSING, "there is no queue %.*s in this store", (int)name_size, name);
        if (!error && !(queue = add_queue(store, name, name_size, directory)))
            error = qi_fail(QI_E_MEMORY, "no memory for a queue");
        if (!error && exists)
            error = check_name(queue, dir, name, name_size);
        if (exists)
            store->disk->ops->close(store->disk, dir);
        if (!error && !exists) {
            queue->recovering = true;
            error = qi_queue_create(queue);
            queue->recovering = false;
            pthread_cond_broadcast(&store->changed);
            if (error)
                queue->deleted = true;
            else
                qi_store_dirty(store); /* else the worker would not look whether it stays idle */
        }
    }
    if (!error && queue->name_size > 0) /* else not read yet */
        error = check_name(queue, -1, name, name_size);
    if (!error)
        error = qi_queue_ready(queue, false);
    if (!error)
        error = check_name(queue, -1, name, name_size);
    if (!error)
        *result = queue;
    qi_unlock(store);
    return error;
}

struct collecting {
    struct qi_store *store;
    bool incomplete; /* no memory: whoever frees what no queue needs must not believe the list */
};

static void collect_name(void *context, const char *name) {
    struct collecting *collecting = context;
    struct qi_store *store = collecting->store;
    if (directory_is_hex(name) && !find_queue(store, name) && !add_queue(store, "", 0, name))
        collecting->incomplete = true;
}

int qi_store_queues(struct qi_store *store) {
    qi_lock(store);
    int error = qi_store_usable(store, false);
    if (!error) {
        struct collecting collecting = {.store = store};
        error = store->disk->ops->list(store->disk, store->queues_dir, collect_name, &collecting);
        if (!error && collecting.incomplete)
            error = -ENOMEM;
        if (error)
            error = qi_fail_disk(error, "cannot list", "queues");
    }
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        if (queue->name_size || queue->deleted || queue->recovered || queue->recovering)
            continue;
        int dir = store->disk->ops->open_dir(store->disk, store->queues_dir, queue->directory);
        if (dir < 0)
            continue;
        queue->dir = dir;
        bool damaged;
        qi_queue_meta_read(queue, &damaged); /* without it the name stays empty; opening says why */
        store->disk->ops->close(store->disk, dir);
        queue->dir = -1;
    }
    int count = (int)store->queues_count;
    qi_unlock(store);
    return error ? error : count;
}

int qi_store_queue_name(struct qi_store *store, uint32_t index, char *name, size_t room,
                        char *directory) {
    qi_lock(store);
    struct qi_queue *queue = index < store->queues_count ? store->queues[index] : NULL;
    int result = QI_E_MISSING;
    if (queue && !queue->deleted && queue->name_size <= room) {
        memcpy(name, queue->name, queue->name_size);
        memcpy(directory, queue->directory, 33);
        result = (int)queue->name_size;
    }
    qi_unlock(store);
    return result;
}

/* What cannot be taken back stays counted: then no file is freed or compacted until the store is opened again. */
static void forget_references(struct qi_queue *queue) {
    struct qi_messages *messages = &queue->store->messages;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        struct qi_file_use *uses;
        uint32_t count;
        if (!segment->counted)
            continue;
        if (qi_segment_uses(queue, segment, &uses, &count) != 0) {
            messages->miscounted = true;
            continue;
        }
        for (uint32_t k = 0; k < count; k++)
            qi_messages_count(messages, uses[k].file, -(int64_t)uses[k].count,
                              -(int64_t)uses[k].bytes);
        free(uses);
    }
}

struct removal {
    struct qi_disk *disk;
    int dir;
};

/* Only names that this engine gives; anything else stays, and with it the folder (H18). */
static bool is_our_file(const char *name) {
    size_t digits = strspn(name, "0123456789");
    return strcmp(name, "queue.meta") == 0 || strcmp(name, "queue.meta.new") == 0 ||
           strcmp(name, qi_journal_name(0)) == 0 || strcmp(name, qi_journal_name(1)) == 0 ||
           (digits > 0 &&
            (strcmp(name + digits, ".idx") == 0 || strcmp(name + digits, ".alt") == 0 ||
             strcmp(name + digits, ".bad") == 0)) ||
           qi_history_epoch(name) > 0;
}

static void remove_one(void *context, const char *name) {
    struct removal *removal = context;
    if (is_our_file(name))
        removal->disk->ops->unlink(removal->disk, removal->dir, name);
}

/* Removes `<directory>.del`, also what a crash left of it. Only files: a foreign folder in it stops the removal. */
void qi_remove_deleted(struct qi_store *store, const char *gone) {
    struct removal removal = {store->disk,
                              store->disk->ops->open_dir(store->disk, store->queues_dir, gone)};
    if (removal.dir < 0)
        return;
    store->disk->ops->list(store->disk, removal.dir, remove_one, &removal);
    store->disk->ops->close(store->disk, removal.dir);
    store->disk->ops->remove_dir(store->disk, store->queues_dir, gone);
}

int qi_queue_delete(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    char gone[40];
    snprintf(gone, sizeof gone, "%s.del", queue->directory);
    qi_lock(store);
    int error = qi_queue_ready(queue, true);
    while (!error && (queue->flushing || queue->syncing)) {
        pthread_cond_wait(&store->changed, &store->lock);
        error = qi_queue_ready(queue, true);
    }
    if (!error) {
        forget_references(queue);
        queue->deleted = true;
        error =
            disk->ops->rename(disk, store->queues_dir, queue->directory, store->queues_dir, gone);
        if (!error && !QI_BUG(delete_not_synced))
            error = disk->ops->sync_dir(disk, store->queues_dir);
        if (error)
            error = qi_store_fail(store, qi_fail_disk(error, "cannot delete queue", queue->name));
        qi_queue_reset(queue);
        queue->lsn_synced = qi_lsn(queue); /* who waits for a sync of it waits for nothing more */
        qi_wake_waiters(queue, UINT64_MAX);
        if (!error)
            qi_remove_deleted(store, gone);
        pthread_cond_broadcast(&store->changed);
    }
    qi_unlock(store);
    return error;
}

int qi_queue_sync(struct qi_queue *queue) {
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_sync_to(queue, qi_lsn(queue));
    qi_unlock(queue->store);
    return error;
}

int qi_flush(struct qi_queue *queue) {
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_flush_all(queue);
    qi_unlock(queue->store);
    return error;
}
