/* room.c - the room in the journal that every verb needs, and queues that are ready for a verb:
 * awake, recovered, open. */
#include "queue/queue_private.h"

#include <assert.h>
#include <errno.h>

int qi_flush_wait(struct qi_queue *queue) {
    int error = 0;
    while (!error && queue->flush) {
        if (queue->flushing)
            pthread_cond_wait(&queue->store->changed, &queue->store->lock);
        else
            error = qi_flush_run(queue);
        if (!error)
            error = qi_queue_ready(queue, true); /* the wait may have been long */
    }
    return error;
}

int qi_flush_all(struct qi_queue *queue) {
    int error = qi_flush_wait(queue); /* one that began earlier does not cover what came since */
    if (!error && queue->dirty_count > 0) {
        error = qi_flush_begin(queue, 0, 0);
        if (!error)
            error = qi_flush_wait(queue);
    }
    return error;
}

int qi_open_current(struct qi_queue *queue, enum qi_open_mode mode) {
    struct qi_store *store = queue->store;
    struct qi_journal *journal = qi_current(queue);
    int file = store->disk->ops->open(store->disk, queue->dir, qi_journal_name(queue->epoch), mode);
    int error = file < 0 ? file
                         : qi_tape_open(&journal->tape, store->disk, file,
                                        qi_journal_mapped(&store->options, 0), store->use_mapping);
    if (!error)
        error = qi_tape_load(&journal->tape, 0, UINT64_MAX);
    journal->cold = false;
    return error ? qi_fail_disk_of(queue, error, "cannot open", "the journal") : 0;
}

/* Opens what an idle queue closed. */
static int wake(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    queue->dir = store->disk->ops->open_dir(store->disk, store->queues_dir, queue->directory);
    if (queue->dir < 0)
        return qi_fail_disk_of(queue, queue->dir, "cannot open", "the directory");
    assert(!store->options.read_only); /* a reader's queues are never unloaded */
    int error = qi_open_current(queue, QI_OPEN_WRITE);
    if (!error)
        return 0;
    qi_tape_close(&qi_current(queue)->tape);
    store->disk->ops->close(store->disk, queue->dir);
    queue->dir = -1;
    return error;
}

/* Behind the CLOSE of an earlier session, or of this one. */
static int begin_session(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    uint64_t session = queue->session, reserved = queue->reserved;
    queue->session = store->session;
    queue->reserved = queue->highest + 2 * (uint64_t)store->options.max_journal_entries;
    qi_current(queue)->drain_room = qi_room_to_drain(queue);
    int error = qi_append_session(queue);
    if (!error)
        return 0;
    queue->session = session;
    queue->reserved = reserved;
    return qi_fail_disk_of(queue, error, "cannot append", "to the journal");
}

int qi_queue_settled(struct qi_queue *queue, bool to_write) {
    struct qi_store *store = queue->store;
    int error;
    while ((error = qi_store_usable(store, to_write)) == 0 &&
           __builtin_expect(queue->recovering, 0))
        pthread_cond_wait(&store->changed, &store->lock);
    return error;
}

/* A queue that is asleep, or was not read yet. */
static int open_closed(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    int error;
    qi_files_room(store, queue);
    queue->recovering = true;
    do
        error = queue->recovered ? wake(queue) : qi_recover_view(queue);
    while (error && queue->dir < 0 && qi_files_gave(store, queue));
    queue->recovering = false;
    pthread_cond_broadcast(&store->changed);
    return error;
}

static int refuse(const struct qi_queue *queue) {
    if (queue->deleted)
        return qi_fail(QI_E_CLOSED, "queue %s was deleted; ask the store for it again",
                       queue->name);
    return qi_fail(QI_E_CORRUPT,
                   "queues/%s is the folder of another queue: it says that it is queue %s; it was "
                   "copied or moved there: put back the folder that was here, or a backup",
                   queue->directory, qi_name_of(queue).text);
}

static int make_ready(struct qi_queue *queue, bool to_write) {
    struct qi_store *store = queue->store;
    int error = qi_queue_settled(queue, to_write);
    if (error)
        return error;
    if (__builtin_expect(queue->deleted | queue->misplaced, 0))
        return refuse(queue);
    qi_leases_run(queue, &queue->timers);
    bool open = queue->recovered && queue->dir >= 0;
    if (__builtin_expect(open && !(to_write && qi_is_ended(queue)), 1)) {
        qi_files_used(queue);
        return 0;
    }
    error = open ? 0 : queue->parked ? qi_files_open(queue) : open_closed(queue);
    if (!error)
        qi_files_used(queue);
    if (!error && to_write && qi_is_ended(queue))
        error = begin_session(queue);
    queue->used = true;
    qi_store_dirty(store);
    return error;
}

int qi_queue_ready(struct qi_queue *queue, bool to_write) {
    int error = make_ready(queue, to_write);
    if (__builtin_expect(!queue->spent.waits, 1) || error || queue->spent.leaving ||
        queue->store->options.read_only)
        return error;
    qi_spent_leave(queue);
    return make_ready(queue, to_write); /* the lock may have been given up */
}

/* The worker runs it; or who needs the room first. */
static int begin_flush(struct qi_queue *queue, uint64_t room, uint64_t ids) {
    struct qi_store *store = queue->store;
    int error = qi_flush_begin(queue, room, ids);
    if (!error && store->deferring) {
        store->flush_due = true;
        qi_wake_worker(store);
    }
    return error;
}

/* What failed stands in front of the verb, which has changed nothing. So its outcome is known. */
static int not_begun(int error) {
    return error == QI_E_OUTCOME
               ? qi_fail(QI_E_IO, "nothing was changed; of what came before: %s", qi_error_text())
               : error;
}

/* The usual case is one comparison each; the rest waits for a flush or a sync, its own or one that
 * is under way. */
int qi_make_room_slowly(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    struct qi_store *store = queue->store;
    if (__builtin_expect(queue->short_of_space, 0) && ids > 0) {
        queue->short_of_space = qi_is_short_of_space(store);
        if (queue->short_of_space)
            return qi_append_failed(queue, -ENOSPC);
    }
    for (int attempt = 0;; attempt++) {
        bool fits = qi_has_room(queue, bytes, ids);
        if (__builtin_expect(fits && (queue->highest + ids <= queue->reserved_durable ||
                                      QI_BUG(reserve_not_durable)),
                             1))
            return 0;
        int error = 0;
        if (fits)
            error = qi_sync_to(queue, qi_lsn(queue)); /* the promise of these ReqIds */
        else if (queue->flush && queue->flushing)
            pthread_cond_wait(&store->changed, &store->lock);
        else if (queue->flush)
            error = qi_flush_run(queue);
        else if (attempt > 100)
            error = qi_fail(QI_E_ARGUMENT,
                            "a batch of %llu bytes is too big for one frame; publish it in parts",
                            (unsigned long long)bytes);
        else
            error = begin_flush(queue, bytes + QI_ACK_ROOM, ids);
        if (!error)
            error = qi_queue_ready(queue, true); /* the wait may have been long */
        if (error)
            return not_begun(error);
    }
}

void qi_flush_if_due(struct qi_queue *queue) {
    queue->used = true;
    qi_store_dirty(queue->store);
    if (__builtin_expect(!qi_is_flush_due(queue) || queue->flush, 1))
        return;
    if (begin_flush(queue, 0, 0) == 0 && !queue->store->deferring)
        qi_flush_run(queue); /* if it cannot be begun or fails: the next append asks again */
}

/* Behind this, what is appended to the journal is published at the time that it says. In stores of
 * format 1 no message says when it was published. */
int qi_publish_moment(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    if (store->options.format < 2)
        return 0;
    int error = qi_journal_moment(qi_current(queue), store->disk->ops->coarse_us(store->disk));
    return __builtin_expect(error, 0) ? qi_append_failed(queue, error) : 0;
}
