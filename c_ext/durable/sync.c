/* sync.c - making things durable: the body first, then the index, then the word that it is so (H8).
 *
 * One thread syncs a queue at a time; others that wait for the same bytes wait for it and look
 * again (group commit). A caller that finds nobody syncing does it itself: a hand-over to another
 * thread costs a tenth of an fdatasync here. A failed sync is never repeated: the kernel may have
 * dropped the pages and would report success (H13).
 */
#include "durable/durable_private.h"

#include <errno.h>

#include "index/index.h"

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
        if (sync.count == 0 && !sync.dir && sync.blanks_count == 0)
            return 0;
        store->messages_syncing = true;
        uint64_t began_us = qi_sync_begins(store);
        qi_unlock(store);
        int error = qi_messages_sync_run(&store->messages, &sync);
        qi_relock(store);
        qi_count_sync(store, began_us);
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
    uint64_t old_from;
    bool unproven, old_unproven; /* closed since the last sync (durable/files.c) */
    uint64_t end; /* of its file: what is written while the sync begins is in it, too */
    const uint8_t *identity;
};

static int sync_file(struct qi_disk *disk, int file) {
    int error = disk->ops->sync(disk, file);
    if (error && QI_BUG(failed_sync_retried))
        error = disk->ops->sync(disk, file);
    return error;
}

static int sync_files(const struct sync *sync) {
    struct qi_disk *disk = sync->disk;
    int error = 0;
    if (sync->old && !QI_BUG(old_journal_not_synced)) {
        qi_tape_settle(&sync->old->tape, sync->old->settled, sync->old->tail);
        error = sync_file(disk, sync->old->tape.file);
        if (!error && sync->old_unproven)
            error = qi_files_prove(sync->old, sync->identity, sync->old_from, sync->old->tail);
    }
    if (!error && sync->dir >= 0)
        error = disk->ops->sync_dir(disk, sync->dir);
    if (sync->tail - sync->from > SETTLED_MIN)
        qi_tape_settle(&sync->journal->tape, sync->from, sync->end);
    if (!error && !QI_BUG(confirm_without_sync))
        error = sync_file(disk, sync->journal->tape.file);
    if (!error && sync->unproven)
        error = qi_files_prove(sync->journal, sync->identity, sync->from, sync->tail);
    return error;
}

/* What is read behind the sync is in memory before it, while the lock is held. */
static int warm_unproven(struct sync *sync) {
    sync->unproven = sync->journal->unproven;
    sync->old_unproven = sync->old && sync->old->unproven;
    sync->old_from = sync->old ? sync->old->settled : 0;
    int error = sync->old_unproven ? qi_journal_warm(sync->old) : 0;
    return !error && sync->unproven ? qi_journal_warm(sync->journal) : error;
}

static int sync_once(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    int error = qi_files_stay(queue);
    if (error)
        return error;
    queue->syncing = true;
    struct qi_journal *journal = qi_current(queue);
    uint64_t tail = qi_parts_sure(queue);
    uint64_t upto = queue->lsn_base + tail, epoch = queue->epoch, now = qi_wall_us(store);
    uint64_t reserved = queue->reserved, log = qi_newest_log(store);
    qi_age_note(queue);
    struct sync sync = {.disk = store->disk,
                        .journal = journal,
                        .old = queue->old_unsynced ? qi_previous(queue) : NULL,
                        .dir = queue->dir_unsynced ? queue->dir : -1,
                        .from = journal->settled,
                        .tail = tail,
                        .end = journal->tape.allocated,
                        .identity = queue->identity};
    qi_tape_unready(&journal->tape, journal->tail); /* see sync_files */
    queue->dir_unsynced = false;
    error = QI_BUG(body_not_synced) ? 0 : qi_sync_messages(store);
    if (!error && (error = warm_unproven(&sync)) != 0)
        error = qi_store_fail(store, qi_fail_disk_of(queue, error, "cannot read", "the journal"));
    if (!error) {
        uint64_t began_us = qi_sync_begins(store);
        qi_unlock(store);
        error = sync_files(&sync);
        qi_relock(store);
        qi_count_sync(store, began_us);
        if (error)
            error =
                qi_store_fail(store, qi_fail_disk_of(queue, error, "cannot sync", "the journal"));
    }
    queue->syncing = false;
    if (!error) {
        queue->lsn_synced = QI_BUG(race_sync_covers_what_came_later) ? qi_lsn(queue)
                            : upto > queue->lsn_synced               ? upto
                                                                     : queue->lsn_synced;
        if (queue->reserved_durable < reserved)
            queue->reserved_durable = reserved;
        if (queue->epoch == epoch) {
            queue->old_unsynced = false;
            if (sync.old)
                sync.old->unproven = false;
            journal->unproven = false;
            journal->settled = sync.tail > journal->settled ? sync.tail : journal->settled;
            journal->synced = sync.tail > journal->synced ? sync.tail : journal->synced;
            journal->mark_time_us = now;
            qi_note_settled(queue, upto, log);
        }
    }
    pthread_cond_broadcast(&store->changed);
    return error;
}

int qi_in_doubt(int error) {
    return error == QI_E_IO
               ? qi_fail(QI_E_OUTCOME, "%s; nobody knows whether this is durable", qi_error_text())
               : error;
}

/* Until everything below lsn is durable, and the queue needs no commit log with a number below
 * `log`. */
static int sync_until(struct qi_queue *queue, uint64_t lsn, uint64_t log) {
    struct qi_store *store = queue->store;
    bool log_synced = false;
    while (queue->lsn_synced < lsn || (queue->needs && queue->needs->journal.epoch < log)) {
        if (store->failed)
            return qi_fail(
                QI_E_OUTCOME,
                "a sync failed: nobody knows whether this is durable; close and reopen the store");
        if (queue->syncing) {
            pthread_cond_wait(&store->changed, &store->lock);
            continue;
        }
        /* What has no header yet gets it: then more is durable. Where transactions come all the
         * time, what is in front of the first is synced behind that. */
        bool log_first = queue->parts && (!log_synced || qi_parts_of_old(queue)) &&
                         !QI_BUG(frame_without_header_synced);
        int error = log_first ? qi_log_sync_to(store, qi_parts_end(queue)) : sync_once(queue);
        log_synced = log_first;
        if (error)
            return qi_in_doubt(error);
    }
    return 0;
}

int qi_sync_to(struct qi_queue *queue, uint64_t lsn) {
    return sync_until(queue, lsn, 0);
}

/* Its own files, and their names, also if a commit log has all that they have. */
int qi_sync_files(struct qi_queue *queue) {
    int error = qi_sync_to(queue, qi_lsn(queue));
    while (!error && queue->syncing)
        pthread_cond_wait(&queue->store->changed, &queue->store->lock);
    if (!error)
        error = qi_store_usable(queue->store, true);
    return error || qi_files_are_sure(queue) ? error : sync_once(queue);
}

int qi_settle(struct qi_queue *queue, uint64_t number) {
    return sync_until(queue, 0, number);
}

/* ---- all queues ---- */

/* One at a time: concurrent syncs of everything would only wait for each other. A close waits for
 * those that are counted. */
int qi_sync_disk(struct qi_store *store) {
    store->disk_syncs++;
    while (store->disk_syncing)
        pthread_cond_wait(&store->changed, &store->lock);
    store->disk_syncing = true;
    uint64_t began_us = qi_sync_begins(store);
    qi_unlock(store);
    int error = store->disk->ops->sync_all(store->disk, store->queues_dir);
    qi_relock(store);
    qi_count_sync(store, began_us);
    store->disk_syncing = false;
    store->disk_syncs--;
    pthread_cond_broadcast(&store->changed);
    if (error && error != -EOPNOTSUPP)
        return qi_store_fail(store, qi_fail_disk(error, "cannot sync the disk with", "queues"));
    return store->failed ? qi_store_usable(store, true) : error;
}

/* An open of thousands of queues does not wait for it, and neither do the first few that are used.
 * So it may come when others are written already: if it fails, the store does. */
#define BARRIERS 4u

int qi_sync_earlier(struct qi_store *store) {
    uint32_t most = store->disk->crowd < BARRIERS ? store->disk->crowd : BARRIERS;
    if (!store->crowded || store->earlier_durable || store->barriers++ < most)
        return 0;
    store->crowded = false; /* once, whatever comes of it */
    int error = QI_BUG(crowd_not_synced) ? 0 : qi_sync_disk(store);
    store->earlier_durable = error == 0;
    return error == -EOPNOTSUPP ? 0 : error;
}

static bool is_unsynced(struct qi_queue *queue) {
    return !queue->deleted && queue->lsn_synced < qi_lsn(queue);
}

/* The queues that have something to sync, those that fall asleep right now too; into `covered`,
 * unless that is NULL. How many. */
static uint32_t collect(struct qi_store *store, struct qi_covered *covered) {
    const struct qi_queue_list *lists[] = {&store->open, &store->unsynced};
    uint32_t count = 0;
    for (size_t i = 0; i < 2; i++)
        for (struct qi_queue *queue = lists[i]->oldest; queue; queue = queue->newer)
            if (is_unsynced(queue)) {
                if (covered)
                    covered[count] = (struct qi_covered){queue,           queue->epoch,
                                                         qi_lsn(queue),   qi_current(queue)->tail,
                                                         queue->reserved, false};
                count++;
            }
    return count;
}

static int sync_dirty(struct qi_store *store, const bool *give_up) {
    const struct qi_part *part = store->commits ? store->commits->last_part : NULL;
    int synced = part ? qi_log_sync_to(store, part->end) : 0; /* fewer are dirty then */
    if (synced)
        return synced;
    qi_commit_wait(store);
    uint32_t count = collect(store, NULL);
    if (count == 0)
        return 0;
    struct qi_covered *covered = qi_malloc(count * sizeof *covered);
    if (!covered)
        return qi_fail(QI_E_MEMORY, "no memory to sync %u queues", count);
    collect(store, covered);
    int error = qi_is_group(store, count) ? qi_sync_group(store, covered, count) : 0;
    for (uint32_t i = 0; i < count && !error && !(give_up && *give_up); i++)
        if (is_unsynced(covered[i].queue)) /* not deleted, or synced by somebody else, meanwhile */
            error = qi_sync_to(covered[i].queue, covered[i].lsn);
    qi_free(covered);
    return error;
}

int qi_sync_queues(struct qi_store *store, const bool *give_up) {
    uint64_t end = store->commits ? store->commits->end : 0;
    int error = sync_dirty(store, give_up);
    if (!error && store->commits)
        error = qi_log_sync_to(store, end); /* unless the queues' sync covered it */
    if (!error && !store->deferring && qi_catalog_run(store) != 0)
        error = store->failed; /* else the logs stay until it can be written */
    return error;
}

/* A sync of everything covered it. */
static void note_covered(struct qi_queue *queue, uint64_t now) {
    struct qi_journal *journal = qi_current(queue);
    queue->lsn_synced = qi_lsn(queue);
    queue->reserved_durable = queue->reserved;
    queue->old_unsynced = queue->dir_unsynced = qi_previous(queue)->unproven = false;
    journal->synced = journal->settled = journal->tail;
    journal->mark_time_us = now;
    journal->unproven = false;
    qi_note_settled(queue, qi_lsn(queue), UINT64_MAX);
    qi_files_settled(queue);
}

/* Nobody knows that its own files have all of it. */
static bool is_unsettled(struct qi_queue *queue) {
    return (qi_is_open(queue) || queue->parked) && !queue->deleted &&
           (queue->lsn_synced < qi_lsn(queue) || queue->needs);
}

/* The CLOSE frames are there: it is the second sync of a close. */
static bool has_ended(const struct qi_store *store) {
    for (const struct qi_queue *queue = store->open.oldest; queue; queue = queue->newer)
        if (qi_is_ended(queue))
            return true;
    return false;
}

/* One sync of the file system reports each write-back that failed since the store was opened, also
 * in files that were closed then: no frame has to be read again. */
static int sync_at_once(struct qi_store *store) {
    uint64_t now = qi_wall_us(store);
    int error = QI_BUG(rest_not_synced) && !has_ended(store)
                    ? 0
                    : store->disk->ops->sync_all(store->disk, store->queues_dir);
    if (error == -EOPNOTSUPP)
        return 0;
    if (error)
        return qi_store_fail(store, qi_fail_disk(error, "cannot sync the disk with", "queues"));
    for (uint32_t i = 0; i < store->queues_count; i++) {
        struct qi_queue *queue = store->queues[i];
        if (is_unsettled(queue) && !queue->on_other_disk)
            note_covered(queue, now);
    }
    return 0;
}

int qi_settle_at_rest(struct qi_store *store) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < store->queues_count; i++)
        count += is_unsettled(store->queues[i]);
    int error = count >= store->disk->many && !QI_BUG(logs_not_settled) ? sync_at_once(store) : 0;
    for (uint32_t i = 0; i < store->queues_count && !error && !QI_BUG(logs_not_settled); i++) {
        struct qi_queue *queue = store->queues[i]; /* which that did not cover */
        if (!is_unsettled(queue))
            continue;
        error = qi_sync_to(queue, qi_lsn(queue));
        if (!error)
            error = qi_settle(queue, UINT64_MAX);
    }
    return error ? error : qi_sync_queues(store, NULL); /* the commit log has more than queues */
}

int qi_sync_at_rest(struct qi_store *store) {
    return store->commits ? qi_sync_queues(store, NULL) : qi_settle_at_rest(store);
}

int qi_tell_durable(struct qi_queue *queue) {
    if (queue->lsn_synced < qi_lsn(queue))
        return 0; /* who appends next does it */
    int error = qi_journal_mark(qi_current(queue));
    if (error)
        return qi_append_failed(queue, error);
    queue->lsn_synced = qi_lsn(queue); /* a MARK needs no sync: nobody waits for it */
    return 0;
}
