/* sync.c - making things durable: the body first, then the index, then the word that it is so (H8).
 *
 * One thread syncs a queue at a time; others that wait for the same bytes wait for it and look again (group commit). A
 * caller that finds nobody syncing does it itself: a hand-over to another thread costs a tenth of an fdatasync here.
 * A failed sync is never repeated: the kernel may have dropped the pages and would report success (H13).
 */
#include <errno.h>

#include "age.h"
#include "bug.h"

int qi_sync_messages(struct qi_store *store) {
    struct qi_messages_sync sync;
    do {
        while (store->messages_syncing && !store->failed)
            pthread_cond_wait(&store->changed, &store->lock);
        if (store->failed)
            return qi_fail(
                QI_E_OUTCOME,
                "a sync failed: nobody knows what is durable; close and reopen the store");
        qi_messages_sync_begin(&store->messages, &sync);
        if (sync.count == 0 && !sync.dir)
            return 0;
        store->messages_syncing = true;
        qi_unlock(store);
        int error = qi_messages_sync_run(&store->messages, &sync);
        qi_relock(store);
        store->messages_syncing = false;
        qi_messages_sync_end(&store->messages, &sync, error);
        pthread_cond_broadcast(&store->changed);
        if (error)
            return qi_store_fail(store, error);
    } while (sync.more);
    return 0;
}

#define SETTLED_MIN 4096u /* less is not worth the call */

/* One sync: what it covers, and the I/O of it without the lock. */
struct sync {
    struct qi_disk *disk;
    struct qi_journal *journal, *old; /* old: NULL if durable */
    int dir;                          /* -1: durable */
    uint64_t from, tail;              /* of the journal */
    uint64_t end; /* of its file: what is written while the sync begins is in it, too */
};

static int sync_files(const struct sync *sync) {
    struct qi_disk *disk = sync->disk;
    int error = 0;
    if (sync->old && !QI_BUG(old_journal_not_synced)) {
        qi_tape_settle(&sync->old->tape, sync->old->synced, sync->old->tail);
        error = disk->ops->sync(disk, sync->old->tape.file);
    }
    if (!error && sync->dir >= 0)
        error = disk->ops->sync_dir(disk, sync->dir);
    if (sync->tail - sync->from > SETTLED_MIN)
        qi_tape_settle(&sync->journal->tape, sync->from, sync->end);
    if (!error && !QI_BUG(confirm_without_sync))
        error = disk->ops->sync(disk, sync->journal->tape.file);
    if (error && QI_BUG(failed_sync_retried))
        error = disk->ops->sync(disk, sync->journal->tape.file);
    return error;
}

static int sync_once(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    queue->syncing = true;
    struct qi_journal *journal = qi_current(queue);
    uint64_t upto = qi_lsn(queue), epoch = queue->epoch, now = qi_now_us(store);
    uint64_t reserved = queue->reserved;
    qi_age_note(queue, now);
    struct sync sync = {.disk = store->disk,
                        .journal = journal,
                        .old = queue->old_unsynced ? qi_previous(queue) : NULL,
                        .dir = queue->dir_unsynced ? queue->dir : -1,
                        .from = journal->synced,
                        .tail = journal->tail,
                        .end = journal->tape.allocated};
    qi_tape_unready(&journal->tape, journal->tail); /* see sync_files */
    queue->dir_unsynced = false;
    int error = QI_BUG(body_not_synced) ? 0 : qi_sync_messages(store);
    if (!error) {
        qi_unlock(store);
        error = sync_files(&sync);
        qi_relock(store);
        if (error)
            error = qi_store_fail(
                store, qi_fail_disk(error, "cannot sync the journal of", queue->directory));
    }
    queue->syncing = false;
    if (!error) {
        queue->lsn_synced = QI_BUG(race_sync_covers_what_came_later) ? qi_lsn(queue) : upto;
        queue->reserved_durable = reserved;
        if (queue->epoch == epoch) {
            queue->old_unsynced = false;
            journal->synced = sync.tail;
            journal->mark_time_us = now;
        }
    }
    pthread_cond_broadcast(&store->changed);
    return error;
}

int qi_sync_to(struct qi_queue *queue, uint64_t lsn) {
    struct qi_store *store = queue->store;
    while (queue->lsn_synced < lsn) {
        if (store->failed)
            return qi_fail(
                QI_E_OUTCOME,
                "a sync failed: nobody knows whether this is durable; close and reopen the store");
        if (queue->syncing) {
            pthread_cond_wait(&store->changed, &store->lock);
            continue;
        }
        int error = sync_once(queue);
        if (error)
            return error == QI_E_IO
                       ? qi_fail(QI_E_OUTCOME, "%s; nobody knows whether this is durable",
                                 qi_error_text())
                       : error;
    }
    return 0;
}

int qi_tell_durable(struct qi_queue *queue) {
    if (queue->lsn_synced < qi_lsn(queue))
        return 0; /* who appends next does it */
    int error = qi_journal_mark(qi_current(queue));
    if (error && error != -ENOSPC && error != -EDQUOT && error != -EFBIG)
        return qi_append_failed(queue, error);
    queue->lsn_synced = qi_lsn(queue); /* a MARK needs no sync: nobody waits for it */
    return 0;
}
