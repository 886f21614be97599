/* create.c - new queues: one by one, or many with a few syncs for all of them.
 *
 * The files are made in a directory under a name that nobody reads, are durable, and then get the
 * queue's name: a crash leaves a whole queue or none, and what it leaves of a draft the next open
 * removes.
 *
 * No thread keeps the store's lock while it syncs a draft: the queue is `recovering`, so nobody
 * else uses it, and all others go on. Threads that create queues at once sync their drafts side by
 * side, which a file system does with a few commits of its own, and share the sync of the names.
 */
#include "store/store.h"

#include <errno.h>
#include <stdio.h>

#include "durable/durable.h"
#include "queue/queue.h"

#define AT_ONCE 4096u /* drafts, before the lock is given up for the sync */

struct draft_name {
    char text[40];
};

static struct draft_name draft_of(const struct qi_queue *queue) {
    struct draft_name name;
    snprintf(name.text, sizeof name.text, "%s.new", queue->directory);
    return name;
}

/* The directory with a journal, and queue.meta if that is wanted; nothing of it is durable. A
 * queue.meta that was closed before it is synced is for a sync of the whole disk alone: no other
 * tells that the disk has lost it. */
static int make_draft(struct qi_queue *queue, bool with_meta) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    struct draft_name draft = draft_of(queue);
    int error = disk->ops->make_dir(disk, store->queues_dir, draft.text);
    if (error && error != -EEXIST)
        return qi_fail_disk_of(queue, error, "cannot create", NULL);
    queue->dir = disk->ops->open_dir(disk, store->queues_dir, draft.text);
    if (queue->dir < 0)
        return qi_fail_disk_of(queue, queue->dir, "cannot open", NULL);
    disk->ops->random(disk, queue->identity, QI_IDENTITY_SIZE);
    queue->epoch = QI_FIRST_EPOCH;
    queue->written = true;
    queue->flushed_epoch = QI_FIRST_EPOCH - 1;
    queue->session = store->session;
    queue->reserved = 2 * (uint64_t)store->options.max_journal_entries;
    error = with_meta ? qi_queue_meta_write(queue, NULL, false) : 0;
    if (!error)
        error = qi_open_current(queue, QI_OPEN_FRESH);
    if (error)
        return error;
    struct qi_journal *journal = qi_current(queue);
    error = qi_journal_begin(journal, queue->identity, queue->epoch, store->options.format,
                             qi_wall_us(store));
    if (!error)
        error = qi_append_manifest(queue, journal, queue->flushed_epoch, 0);
    return error ? qi_fail_disk_of(queue, error, "cannot create", "the journal") : 0;
}

static int sync_journal(const struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    return QI_BUG(first_journal_not_synced)
               ? 0
               : disk->ops->sync(disk, queue->journals[QI_FIRST_EPOCH & 1].tape.file);
}

static int give_name(const struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    return store->disk->ops->rename(store->disk, store->queues_dir, draft_of(queue).text,
                                    store->queues_dir, queue->directory);
}

/* So many queues have got their names. One sync is for all that have theirs when it begins. Called
 * with the lock, and gives it up. */
static int sync_names(struct qi_store *store, uint32_t count) {
    uint64_t named = store->named += count;
    int error = 0;
    while (store->named_durably < named && !error) {
        if (store->naming) {
            pthread_cond_wait(&store->changed, &store->lock);
            error = store->failed;
            continue;
        }
        named = store->named;
        store->naming = true;
        qi_unlock(store);
        error = QI_BUG(queue_name_not_synced)
                    ? 0
                    : store->disk->ops->sync_dir(store->disk, store->queues_dir);
        qi_relock(store);
        store->naming = false;
        if (!error)
            store->named_durably = named;
        pthread_cond_broadcast(&store->changed);
    }
    return error;
}

static void is_there(struct qi_queue *queue) {
    struct qi_journal *journal = qi_current(queue);
    journal->keep_free = queue->store->keep_free;
    journal->synced = journal->settled = journal->tail;
    journal->unproven = false;
    queue->reserved_durable = queue->reserved;
    queue->lsn_synced = qi_lsn(queue);
    queue->recovered = true;
    queue->creating = false;
    queue->counts_all = queue->highest == 0;
    queue->used = true;
}

/* Gives the lock up. Nobody else uses the queue meanwhile: it is `recovering`. *failed: nobody
 * knows what is there of it. With queue.meta both names in the folder become durable. */
static int name_draft(struct qi_queue *queue, int *failed) {
    qi_unlock(queue->store);
    int error = qi_queue_meta_write(queue, NULL, true);
    if (!error)
        *failed = sync_journal(queue);
    if (!error && !*failed)
        *failed = give_name(queue);
    qi_relock(queue->store);
    if (!error && !*failed)
        *failed = sync_names(queue->store, 1);
    return error;
}

int qi_queue_create(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    int failed = 0, error = make_draft(queue, false);
    if (!error)
        error = name_draft(queue, &failed);
    if (!error && store->failed) /* perhaps by the sync of another thread */
        error = qi_store_usable(store, true);
    else if (failed)
        error = qi_store_fail(store,
                              qi_fail_disk(failed, "cannot create queue", qi_name_of(queue).text));
    if (error) {
        qi_queue_reset(queue);
        return error;
    }
    is_there(queue);
    qi_files_used(queue);
    return 0;
}

/* ---- many ---- */

struct names {
    uint32_t count;
    const char *names, *directories;
    const uint32_t *sizes;
    uint64_t *others; /* handles of queues that other threads are creating */
    uint32_t others_count, others_room;
};

/* It is there, unless another thread is just creating it: then it is waited for at the end. */
static int note_other(struct names *names, struct qi_queue *queue) {
    bool noted = !queue->creating || qi_req_id_add(&names->others, &names->others_count,
                                                   &names->others_room, (uint64_t)(uintptr_t)queue);
    return noted ? 0 : qi_fail(QI_E_MEMORY, "no memory to create queues");
}

/* The handle of a queue that is not there yet; NULL: it is, or an error. */
static struct qi_queue *begin_one(struct qi_store *store, struct names *next, int *error) {
    char directory[33] = {0};
    memcpy(directory, next->directories, 32);
    *error = 0;
    if (!qi_is_queue_directory(directory) || *next->sizes > 65535)
        *error = qi_fail(QI_E_ARGUMENT, "a queue's name has at most 65535 bytes in UTF-8");
    struct qi_queue *other = *error ? NULL : qi_find_queue(store, directory);
    if (other)
        *error = note_other(next, other);
    if (*error || other)
        return NULL;
    int dir = store->disk->ops->open_dir(store->disk, store->queues_dir, directory);
    if (dir >= 0)
        store->disk->ops->close(store->disk, dir);
    else if (qi_is_of_the_disk(dir)) /* it may be there */
        *error = qi_fail_disk(dir, "cannot open",
                              qi_file_of_name(next->names, *next->sizes, directory, NULL).text);
    if (dir >= 0 || *error)
        return NULL;
    struct qi_queue *queue = qi_add_queue(store, next->names, *next->sizes, directory);
    if (!queue)
        *error = qi_fail(QI_E_MEMORY, "no memory for a queue");
    return queue;
}

/* Takes names off the list until there are enough drafts. How many, each closed and `recovering`:
 * nobody else uses them. */
static uint32_t make_drafts(struct qi_store *store, struct names *names, struct qi_queue **queues,
                            int *error) {
    uint32_t count = 0;
    while (names->count > 0 && count < AT_ONCE && !*error) {
        qi_files_room(store, NULL);
        struct qi_queue *queue;
        do
            queue = begin_one(store, names, error);
        while (*error && qi_files_gave(store, NULL));
        if (queue) {
            queue->recovering = queue->creating = true;
            queues[count++] = queue;
            do {
                *error = make_draft(queue, true);
                qi_files_rest(queue);
            } while (*error && qi_files_gave(store, queue));
        }
        names->names += *names->sizes++;
        names->directories += 32;
        names->count--;
    }
    return count;
}

/* As one queue after the other: where the file system has no sync of everything. */
static int create_each(struct qi_store *store, struct qi_queue **queues, uint32_t count) {
    int error = 0;
    for (uint32_t i = 0; i < count && !error; i++) {
        qi_files_room(store, NULL);
        do
            error = qi_queue_create(queues[i]);
        while (error && qi_files_gave(store, queues[i]));
        queues[i]->recovering = error != 0; /* its files may be given back for those of the next */
    }
    return error;
}

/* All drafts are durable before the first gets its name. */
static int name_all(struct qi_store *store, struct qi_queue **queues, uint32_t count) {
    int error = QI_BUG(drafts_not_synced) ? 0 : qi_sync_disk(store);
    if (error == -EOPNOTSUPP)
        return create_each(store, queues, count);
    if (error)
        return error;
    for (uint32_t i = 0; i < count && !error; i++)
        error = give_name(queues[i]);
    if (!error)
        error = sync_names(store, count);
    if (store->failed)
        return qi_store_usable(store, true);
    if (error)
        return qi_store_fail(store, qi_fail_disk(error, "cannot create", "queues"));
    for (uint32_t i = 0; i < count; i++) {
        is_there(queues[i]);
        qi_files_park(queues[i]);
    }
    return 0;
}

static int64_t create_some(struct qi_store *store, struct names *names, struct qi_queue **queues) {
    int error = qi_store_usable(store, true);
    uint32_t count = error ? 0 : make_drafts(store, names, queues, &error);
    if (!error && count > 0)
        error = name_all(store, queues, count);
    for (uint32_t i = 0; i < count; i++) {
        struct qi_queue *queue = queues[i];
        queue->recovering = queue->creating = false;
        queue->deleted = !queue->recovered;
        if (error && !store->failed && queue->deleted) /* the disk may be full */
            qi_remove_deleted(store, draft_of(queue).text);
    }
    pthread_cond_broadcast(&store->changed);
    qi_store_dirty(store);
    return error ? error : (int64_t)count;
}

/* Nobody waits for others before its own are there: so nobody waits for ever. *again: a creation
 * failed, or its queue is deleted by now. */
static int wait_for_others(struct names *names, bool *again) {
    int error = 0;
    for (uint32_t i = 0; i < names->others_count && !error; i++) {
        struct qi_queue *queue = (struct qi_queue *)(uintptr_t)names->others[i];
        error = qi_queue_created(queue);
        *again = *again || queue->deleted;
    }
    qi_free(names->others);
    return error;
}

int64_t qi_queues_create(struct qi_store *store, uint32_t count, const char *names,
                         const uint32_t *name_sizes, const char *directories) {
    struct qi_queue **queues = qi_malloc((count < AT_ONCE ? count + 1 : AT_ONCE) * sizeof *queues);
    if (!queues)
        return qi_fail(QI_E_MEMORY, "no memory to create %u queues", count);
    int64_t made = 0, some = 0;
    bool again;
    qi_lock(store);
    do {
        struct names left = {count, names, directories, name_sizes, NULL, 0, 0};
        do {
            some = create_some(store, &left, queues);
            made += some > 0 ? some : 0;
        } while (some >= 0 && left.count > 0);
        again = false;
        int error = wait_for_others(&left, &again);
        some = some < 0 ? some : error;
    } while (some >= 0 && again);
    qi_unlock(store);
    qi_free(queues);
    return some < 0 ? some : made;
}
