/* rename.c - a queue gets another name.
 *
 * The name of a queue's folder is a hash of the queue's name, and queue.meta in it has the name
 * itself, so that a folder that somebody moved is noticed. No file system changes both in one step.
 * So queue.meta first says both names, and which folder the new one is for; whoever reads it takes
 * the name that fits the folder. Then the folder is renamed: that is the moment. At last queue.meta
 * says the new name alone; if that does not happen, the next recovery of the queue does it.
 *
 *     folder    queue.meta says       the queue is
 *     A         a                     a
 *     A         a, and b if in B      a
 *     B         a, and b if in B      b
 *     B         b                     b
 *
 * Each step is durable before the next one begins. Identity, journals and segments stay as they
 * are, and so do handles: who has a message, or waits for one, notices nothing.
 *
 * An error before the moment leaves a: queue.meta is written back, or the next recovery does that.
 * If the folder has its new name and the sync of queues/ fails, nobody knows which one a power cut
 * leaves, and the store has failed.
 */
#include "store/store.h"

#include <errno.h>
#include <stdio.h>

#include "queue/queue.h"

/* A name that a queue had. Events that nobody has taken yet point to it. */
struct qi_old_name {
    struct qi_old_name *older;
    char *name;
};

void qi_old_names_free(struct qi_store *store) {
    for (struct qi_old_name *old = store->old_names, *older; old; old = older) {
        older = old->older;
        qi_free(old->name);
        qi_free(old);
    }
    store->old_names = NULL;
}

static int fail_taken(const struct qi_next_name *next) {
    return qi_fail(QI_E_EXISTS, "there is a queue %.*s already: nothing was renamed",
                   (int)next->size, next->name);
}

/* Nothing is in its place, as far as anybody can say. */
static int check_free(struct qi_store *store, const struct qi_next_name *next) {
    if (qi_find_queue(store, next->directory))
        return fail_taken(next);
    int dir = store->disk->ops->open_dir(store->disk, store->queues_dir, next->directory);
    if (dir == -ENOENT)
        return 0;
    if (dir < 0)
        return qi_fail_disk(dir, "cannot open",
                            qi_file_of_name(next->name, next->size, next->directory, NULL).text);
    store->disk->ops->close(store->disk, dir);
    return fail_taken(next);
}

/* Awake, and nobody uses it without the lock. Nor does another thread sync queues/: the disk tells
 * a descriptor once that it has lost something, so that thread could take the error of ours. */
static int make_quiet(struct qi_queue *queue) {
    int error = qi_queue_ready(queue, true);
    while (!error && (queue->flushing || queue->syncing || queue->store->naming)) {
        pthread_cond_wait(&queue->store->changed, &queue->store->lock);
        error = qi_queue_ready(queue, true);
    }
    return error;
}

/* The queue has its old name; the error is the one that was reported. */
static int take_back(struct qi_queue *queue, int error) {
    char text[512];
    snprintf(text, sizeof text, "%s", qi_error_text());
    qi_queue_meta_write(queue, NULL, true); /* the next recovery does what could not be done */
    return qi_fail(error, "%s", text);
}

static bool is_in_its_place(const struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    int dir = disk->ops->open_dir(disk, queue->store->queues_dir, queue->directory);
    if (dir >= 0)
        disk->ops->close(disk, dir);
    return dir >= 0;
}

/* *unknown: it has one of the two names. */
static int move_folder(struct qi_queue *queue, const char *directory, bool *unknown) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    int error =
        disk->ops->rename(disk, store->queues_dir, queue->directory, store->queues_dir, directory);
    *unknown = !error || !is_in_its_place(queue); /* a server may have done it before the error */
    if (!error && !QI_BUG(rename_not_synced))
        error = disk->ops->sync_dir(disk, store->queues_dir);
    return error ? qi_fail_disk(error, "cannot rename queue", queue->name) : 0;
}

/* The caller has the lock, and `old` and `name` memory for what is kept. */
static int rename_queue(struct qi_queue *queue, const struct qi_next_name *next,
                        struct qi_old_name *old, char *name) {
    struct qi_store *store = queue->store;
    bool unknown = false;
    int error = 0;
    if (!QI_BUG(renamed_without_both_names))
        error = qi_queue_meta_write(queue, next, true);
    if (!error)
        error = move_folder(queue, next->directory, &unknown);
    if (error && unknown)
        return qi_store_fail(store,
                             qi_fail(QI_E_OUTCOME, "%s; nobody knows which of the two names it has",
                                     qi_error_text()));
    if (error)
        return take_back(queue, error);
    *old = (struct qi_old_name){store->old_names, queue->name};
    store->old_names = old;
    queue->name = name;
    queue->name_size = next->size;
    memcpy(queue->directory, next->directory, 32);
    qi_tabulate(store);
    store->deleted++; /* a list of folders that somebody has made may have the old one */
    qi_queue_meta_write(queue, NULL, true); /* the next recovery does what could not be done */
    return 0;
}

int qi_queue_rename(struct qi_queue *queue, const char *name, size_t name_size,
                    const char *directory) {
    struct qi_store *store = queue->store;
    if (!qi_is_queue_directory(directory) || name_size > 65535)
        return qi_fail(QI_E_ARGUMENT, "a queue's name has at most 65535 bytes in UTF-8");
    const struct qi_next_name next = {directory, name, (uint32_t)name_size};
    struct qi_old_name *old = qi_malloc(sizeof *old);
    char *copy = qi_malloc(name_size + 1);
    qi_lock(store);
    int error = qi_store_usable(store, true);
    if (!error && store->options.format < 2)
        error = qi_fail(QI_E_FORMAT, "queues are renamed in stores of format 2 only: upgrade the "
                                     "store (qindex upgrade)");
    if (!error && !(old && copy))
        error = qi_fail(QI_E_MEMORY, "no memory for the name of a queue");
    if (!error)
        error = make_quiet(queue);
    if (!error)
        error = check_free(store, &next);
    if (!error) {
        memcpy(copy, name, name_size);
        copy[name_size] = 0;
        error = rename_queue(queue, &next, old, copy);
    }
    if (queue->name != copy) {
        qi_free(old);
        qi_free(copy);
    }
    qi_unlock(store);
    return error;
}

void qi_queue_identity(const struct qi_queue *queue, uint8_t *identity) {
    memcpy(identity, queue->identity, QI_IDENTITY_SIZE);
}
