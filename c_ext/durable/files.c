/* files.c - parks queues and opens them again (durable.h has the whole story).
 *
 * Owns the lists of queues with open files and of parked ones, in the order of their last use. They
 * belong to their store and are protected by its lock. The pool's lock protects only which stores
 * there are: who holds it takes another store's lock only if that is free, so that two stores never
 * wait for each other.
 */
#include "durable/durable_private.h"

#include <errno.h>

#include "index/index.h"

#define SPARE_PART 4u /* of the bound, for flushes and message files */

/* ---- the bound ---- */

/* Half of the process's limit belongs to the program. A store may name another number; the smallest
 * of all counts, and never more than three quarters of the limit. */
static uint32_t most_files(struct qi_disk *disk) {
    uint32_t limit = disk->ops->files_limit(disk), most = 0;
    for (const struct qi_store *store = disk->pool.stores; store; store = store->next_open)
        if (store->options.max_open_files && (!most || store->options.max_open_files < most))
            most = store->options.max_open_files;
    if (!most)
        most = limit / 2;
    if (most > limit / 4 * 3)
        most = limit / 4 * 3;
    return most < INT32_MAX ? most : INT32_MAX;
}

/* The smallest number that a store names, or half of what the process may use. */
static uint64_t most_memory(struct qi_disk *disk) {
    uint64_t most = 0;
    for (const struct qi_store *store = disk->pool.stores; store; store = store->next_open)
        if (store->options.max_memory && (!most || store->options.max_memory < most))
            most = store->options.max_memory;
    if (!most && disk->ops->memory_limit)
        most = disk->ops->memory_limit(disk) / 2;
    return most ? most : UINT64_MAX;
}

/* With the pool's lock. */
static void set_bound(struct qi_disk *disk) {
    disk->pool.most = (int)most_files(disk);
    disk->pool.memory = most_memory(disk);
    if (disk->ops->keep_spare)
        disk->ops->keep_spare(disk, disk->pool.stores ? qi_disk_share(disk, UINT32_MAX) : 0);
}

void qi_files_join(struct qi_store *store) {
    struct qi_pool *pool = &store->disk->pool;
    pthread_mutex_lock(&pool->lock);
    store->next_open = pool->stores;
    pool->stores = store;
    set_bound(store->disk);
    pthread_mutex_unlock(&pool->lock);
}

void qi_files_leave(struct qi_store *store) {
    struct qi_pool *pool = &store->disk->pool;
    pthread_mutex_lock(&pool->lock);
    for (struct qi_store **at = &pool->stores; *at; at = &(*at)->next_open) {
        if (*at != store)
            continue;
        *at = store->next_open;
        set_bound(store->disk);
        break;
    }
    pthread_mutex_unlock(&pool->lock);
}

/* ---- the lists ---- */

static void take_out(struct qi_queue *queue) {
    struct qi_queue_list *list = queue->list;
    if (!list)
        return;
    *(queue->older ? &queue->older->newer : &list->oldest) = queue->newer;
    *(queue->newer ? &queue->newer->older : &list->newest) = queue->older;
    queue->older = queue->newer = NULL;
    queue->list = NULL;
}

static void put_last(struct qi_queue *queue, struct qi_queue_list *list) {
    take_out(queue);
    queue->older = list->newest;
    *(list->newest ? &list->newest->newer : &list->oldest) = queue;
    list->newest = queue;
    queue->list = list;
}

void qi_files_used(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    if (store->open.newest == queue)
        return;
    queue->use = atomic_fetch_add_explicit(&store->disk->pool.uses, 1, memory_order_relaxed);
    put_last(queue, &store->open);
}

void qi_files_settled(struct qi_queue *queue) {
    if (queue->list == &queue->store->unsynced && queue->lsn_synced >= qi_lsn(queue))
        put_last(queue, &queue->store->parked);
}

/* ---- parking ---- */

static int close_tape(struct qi_journal *journal, bool unproven) {
    if (journal->tape.file < 0)
        return 0;
    journal->cold = true;
    journal->unproven = journal->unproven || unproven;
    return qi_tape_close(&journal->tape);
}

static uint64_t weight_of(const struct qi_queue *queue) {
    uint64_t weight = 0;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        const struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (segment->hot)
            weight += segment->unacked + segment->hot->dirty;
    }
    return weight;
}

static void is_parked_no_more(struct qi_queue *queue) {
    if (queue->parked)
        atomic_fetch_sub_explicit(&queue->store->disk->pool.weight, queue->weight,
                                  memory_order_relaxed);
    queue->parked = false;
}

void qi_files_forget(struct qi_queue *queue) {
    take_out(queue);
    is_parked_no_more(queue);
}

static void close_directory(struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    if (queue->dir >= 0)
        disk->ops->close(disk, queue->dir);
    queue->dir = -1;
    qi_free(queue->window);
    queue->window = NULL;
    queue->window_room = queue->window_length = 0;
}

static void close_tapes(struct qi_queue *queue) {
    qi_tape_close(&queue->journals[0].tape);
    qi_tape_close(&queue->journals[1].tape);
}

void qi_files_drop(struct qi_queue *queue) {
    qi_files_forget(queue);
    close_tapes(queue);
    close_directory(queue);
}

int qi_files_rest(struct qi_queue *queue) {
    struct qi_journal *current = qi_current(queue);
    int error = close_tape(current, current->settled < current->tail);
    int old = close_tape(qi_previous(queue), queue->old_unsynced);
    close_directory(queue);
    return error ? error : old;
}

/* A reader forgets the queue, and reads it again. */
void qi_files_park(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    if (store->options.read_only) {
        qi_queue_reset(queue);
        return;
    }
    int error = qi_files_rest(queue);
    queue->parked = true;
    queue->weight = weight_of(queue);
    atomic_fetch_add_explicit(&store->disk->pool.weight, queue->weight, memory_order_relaxed);
    put_last(queue, queue->lsn_synced < qi_lsn(queue) ? &store->unsynced : &store->parked);
    if (error) /* some file systems write when a file is closed */
        qi_store_fail(store, qi_fail_disk_of(queue, error, "cannot close", "the journal"));
}

/* Nobody uses the files without the lock. */
static bool may_park(const struct qi_queue *queue, const struct qi_queue *keep) {
    return queue != keep && !queue->flushing && !queue->syncing && !queue->recovering &&
           !queue->pinned && !queue->parts;
}

static struct qi_queue *oldest_of(const struct qi_store *store, const struct qi_queue *keep) {
    struct qi_queue *queue = store->open.oldest;
    while (queue && !may_park(queue, keep))
        queue = queue->newer;
    return queue;
}

/* Parks the queue of any store that was used the longest time ago. A store that is busy keeps what
 * it has. */
static bool give_one(struct qi_store *own, const struct qi_queue *keep) {
    struct qi_store *chosen = NULL;
    struct qi_pool *pool = &own->disk->pool;
    struct qi_queue *oldest = NULL;
    pthread_mutex_lock(&pool->lock);
    for (struct qi_store *store = pool->stores; store; store = store->next_open) {
        if (store != own && !qi_try_lock(store))
            continue;
        struct qi_queue *queue = oldest_of(store, keep);
        struct qi_store *other = store;
        if (queue && (!oldest || queue->use < oldest->use)) {
            other = chosen;
            oldest = queue;
            chosen = store;
        }
        if (other && other != own)
            qi_unlock(other);
    }
    if (oldest)
        qi_files_park(oldest);
    if (chosen && chosen != own)
        qi_unlock(chosen);
    pthread_mutex_unlock(&pool->lock);
    return oldest != NULL;
}

void qi_files_room(struct qi_store *store, const struct qi_queue *keep) {
    struct qi_pool *pool = &store->disk->pool;
    int most = atomic_load_explicit(&pool->most, memory_order_relaxed);
    most -= most / (int)SPARE_PART + QI_FILES_OF_QUEUE;
    while ((atomic_load_explicit(&pool->open, memory_order_relaxed) > most ||
            atomic_load_explicit(&pool->lacks, memory_order_relaxed) > 0) &&
           give_one(store, keep)) {
    }
}

bool qi_files_gave(struct qi_store *store, const struct qi_queue *keep) {
    bool any = false;
    while (qi_error_is_crowded() && !store->failed && give_one(store, keep))
        any = true;
    return any;
}

/* ---- and back ---- */

static int open_tape(struct qi_queue *queue, uint64_t epoch) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    struct qi_journal *journal = &queue->journals[epoch & 1];
    int file = disk->ops->open(disk, queue->dir, qi_journal_name(epoch), QI_OPEN_WRITE);
    if (file < 0)
        return file;
    int error = qi_tape_open(&journal->tape, disk, file, qi_journal_mapped(&store->options, 0),
                             store->use_mapping);
    if (!error && journal->tape.allocated < journal->tail + QI_FRAME_HEADER)
        error = -EIO; /* somebody cut it */
    return error;
}

static int open_files(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    queue->dir = store->disk->ops->open_dir(store->disk, store->queues_dir, queue->directory);
    if (queue->dir < 0)
        return queue->dir;
    int error = open_tape(queue, queue->epoch);
    if (error || queue->flushed_epoch + 1 >= queue->epoch)
        return error;
    return open_tape(queue, queue->epoch - 1); /* it is not flushed yet */
}

int qi_files_open(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    qi_files_room(store, queue);
    for (int error; (error = open_files(queue)) != 0;) {
        close_tapes(queue);
        close_directory(queue);
        error = qi_fail_disk_of(queue, error, "cannot open", "the files");
        if (!qi_files_gave(store, queue))
            return error;
    }
    is_parked_no_more(queue);
    queue->used = true; /* the worker does not take it for an idle one */
    qi_files_used(queue);
    return 0;
}
