/* commit.c - group commits, and what makes commit logs superfluous again.
 *
 * The order is what counts (H8): where the journals end is noted, then the message files are
 * synced, then COPYs are appended up to the noted ends, then the log is synced. The kernel may
 * write a COPY back as soon as it is appended, and recovery takes the end of a COPY for a MARK; so
 * no COPY may hold a record whose body is not durable yet.
 *
 * Only journals take part that no power cut can take as files. The others are synced by themselves,
 * once after each rotation.
 */
#include "durable/durable_private.h"

#include <errno.h>

#define COPY_MAX                                                                                   \
    (UINT64_C(64) << 10) /* more than this is synced where it is: it is not written twice */
#define FOR_EVER UINT64_MAX

/* A close frees the commit log; it waits for the threads that wait here. */
static void wait_for_log(struct qi_store *store) {
    store->looking++;
    pthread_cond_wait(&store->changed, &store->lock);
    store->looking--;
    if (store->closing)
        pthread_cond_broadcast(&store->changed);
}

void qi_commit_wait(struct qi_store *store) {
    while (store->commits && store->commits->busy && !store->failed)
        wait_for_log(store);
}

bool qi_is_group(const struct qi_store *store, uint32_t count) {
    return store->commits && count > qi_few_queues(store);
}

/* Its files have their names, headers and MANIFEST for sure, and what is to be copied is still
 * where it was. */
static bool takes_part(const struct qi_covered *covered) {
    struct qi_queue *queue = covered->queue;
    bool has_files = qi_is_open(queue) || queue->parked; /* also behind its CLOSE, in a close */
    if (queue->deleted || !has_files || queue->epoch != covered->epoch ||
        queue->lsn_synced >= covered->lsn)
        return false;
    const struct qi_journal *journal = qi_current(queue);
    if (covered->tail > qi_journal_logged(journal) + COPY_MAX)
        return false;
    if (QI_BUG(copy_of_unsure_journal))
        return true;
    return qi_files_are_sure(queue) && !queue->syncing;
}

static bool is_no_room(int error) {
    return qi_is_disk_full(error) || error == -EFBIG || error == -ENOMEM || error == -EMFILE ||
           error == -ENFILE;
}

static bool is_unsynced(const struct qi_commits *commits) {
    return qi_commits_durable(commits) < commits->end;
}

/* Writes store.meta anew if it does not name the newest log or catalog: they are durable. A full
 * disk leaves it as it is, and the older logs stay. The caller has `busy`. */
static int name_logs(struct qi_store *store) {
    if (qi_logs_are_named(store))
        return 0;
    struct qi_logs before = store->logs;
    struct qi_meta meta;
    qi_logs_name(store, false);
    uint64_t newest = store->logs.newest;
    qi_meta_compose(store, false, &meta);
    qi_unlock(store);
    int error = qi_meta_put(store->disk, store->root, &meta);
    qi_relock(store);
    if (error)
        store->logs = before;
    else
        qi_logs_named(store->commits, newest);
    return !error || is_no_room(error)
               ? 0
               : qi_store_fail(store, qi_fail_disk(error, "cannot write", "store.meta"));
}

static int sync_log(struct qi_store *store, uint64_t now) {
    struct qi_commits_sync sync;
    if (QI_BUG(log_named_early) && name_logs(store) != 0)
        return store->failed;
    qi_commits_sync_begin(store->commits, &sync, now);
    uint64_t began_us = qi_sync_begins(store);
    qi_unlock(store);
    int error = qi_commits_sync_run(&sync);
    qi_relock(store);
    qi_count_sync(store, began_us);
    if (!error)
        error = qi_commits_sync_end(store->commits, &sync);
    if (error)
        return qi_store_fail(store, qi_fail_disk(error, "cannot sync the", "commit log"));
    if (store->commits->first_part && (error = qi_parts_give(store, now)) != 0)
        return qi_store_fail(store, error);
    return name_logs(store);
}

/* qi_commits_room, for who has `busy`; a log that has to be synced first is. */
static int room_behind_sync(struct qi_store *store, uint32_t frames, uint64_t bytes, bool needful) {
    uint64_t now = qi_wall_us(store);
    int error;
    while ((error = qi_commits_room(store->commits, frames, bytes, needful, now)) == -EAGAIN &&
           (error = sync_log(store, now)) == 0) {
    }
    return error;
}

/* 1: there is room in a log; 0: there is none; or an error. */
static int find_room(struct qi_store *store, const struct qi_covered *covered, uint32_t count) {
    uint64_t bytes = 0;
    uint32_t copies = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!takes_part(&covered[i]))
            continue;
        uint64_t from = qi_journal_logged(qi_current(covered[i].queue));
        bytes += covered[i].tail > from ? covered[i].tail - from : 0;
        copies++;
    }
    if (!qi_is_group(store, copies))
        return 0;
    int error = room_behind_sync(store, copies, bytes, false);
    if (error == -ENOSPC && !store->deferring) { /* no worker makes room */
        error = qi_settle_some(store, FOR_EVER);
        if (error)
            return error;
        error = room_behind_sync(store, copies, bytes, false);
    }
    if (error && store->failed)
        return qi_store_usable(store, true);
    return error == 0 ? 1 : 0; /* nothing was appended: whatever the trouble is, journals are synced
                                  one by one */
}

static int append_copy(struct qi_covered *covered) {
    struct qi_queue *queue = covered->queue;
    struct qi_commits *commits = queue->store->commits;
    int error = qi_files_stay(queue);
    if (!error)
        error = qi_files_warm(queue, qi_current(queue));
    if (error)
        return error;
    struct qi_journal *journal = qi_current(queue);
    uint64_t from = qi_journal_logged(journal);
    if (covered->tail > from) /* else a transaction has all of it */
        error = qi_commits_append(commits, queue->identity, queue->epoch, from,
                                  journal->tape.memory + from, (uint32_t)(covered->tail - from));
    if (is_no_room(error))
        return 0;
    if (error)
        return qi_store_fail(queue->store,
                             qi_fail_disk(error, "cannot append to the", "commit log"));
    qi_commits_need(commits, queue);
    if (covered->tail > journal->copied)
        journal->copied = covered->tail;
    if (queue->lsn_logged < covered->lsn)
        queue->lsn_logged = covered->lsn;
    covered->logged = true;
    return 0;
}

static int append_copies(struct qi_covered *covered, uint32_t count, uint32_t *appended) {
    int error = 0;
    for (uint32_t i = 0; i < count && !error; i++) {
        if (!takes_part(&covered[i]))
            continue;
        error = append_copy(&covered[i]);
        *appended += covered[i].logged;
    }
    return error;
}

/* A single sync of the queue may have come between, or more: nothing goes back. */
static void note_logged(const struct qi_covered *covered, uint64_t now) {
    struct qi_queue *queue = covered->queue;
    if (queue->deleted)
        return;
    if (queue->lsn_synced < covered->lsn)
        queue->lsn_synced = covered->lsn;
    if (queue->reserved_durable < covered->reserved)
        queue->reserved_durable = covered->reserved;
    struct qi_journal *journal = qi_current(queue);
    if (queue->epoch == covered->epoch && journal->synced < covered->tail) {
        journal->synced = covered->tail;
        journal->mark_time_us = now;
    }
    qi_files_settled(queue);
}

int qi_sync_group(struct qi_store *store, struct qi_covered *covered, uint32_t count) {
    uint64_t now = qi_wall_us(store);
    uint32_t appended = 0;
    store->commits->busy = true;
    int error = QI_BUG(body_synced_behind_its_copy) ? 0 : qi_sync_messages(store);
    int room = error ? error : find_room(store, covered, count);
    if (room > 0)
        error = append_copies(covered, count, &appended);
    else if (room < 0)
        error = room;
    if (!error && QI_BUG(body_synced_behind_its_copy))
        error = qi_sync_messages(store);
    if (!error && (appended > 0 || is_unsynced(store->commits)))
        error = sync_log(store, now);
    for (uint32_t i = 0; i < count && appended > 0 && !error; i++)
        if (covered[i].logged)
            note_logged(&covered[i], now);
    store->commits->busy = false;
    pthread_cond_broadcast(&store->changed);
    return error;
}

/* ---- frames that are no COPY ---- */

int qi_log_make_room(struct qi_store *store, uint64_t payload) {
    struct qi_commits *commits = store->commits;
    int error = 0;
    while (!error && !qi_commits_fit(commits, 1, payload)) {
        if (commits->busy) {
            qi_commit_wait(store);
            error = store->failed ? qi_store_usable(store, true) : 0;
            continue;
        }
        commits->busy = true;
        error = room_behind_sync(store, 1, payload, true);
        commits->busy = false;
        pthread_cond_broadcast(&store->changed);
        if (error && store->failed)
            return qi_store_usable(store, true);
        if (error)
            error = qi_fail_disk(error, "cannot begin a", "commit log");
    }
    return error;
}

int qi_log_sync_to(struct qi_store *store, uint64_t end) {
    struct qi_commits *commits = store->commits;
    while (qi_commits_durable(commits) < end) {
        if (store->failed)
            return qi_fail(
                QI_E_OUTCOME,
                "a sync failed: nobody knows whether this is durable; close and reopen the store");
        if (commits->busy) {
            wait_for_log(store);
            continue;
        }
        commits->busy = true;
        int error = sync_log(store, qi_wall_us(store));
        commits->busy = false;
        pthread_cond_broadcast(&store->changed);
        if (error)
            return qi_fail(QI_E_OUTCOME, "%s; nobody knows whether this is durable",
                           qi_error_text());
    }
    return 0;
}

static int append_record(struct qi_store *store, uint32_t kind, const uint8_t *identity,
                         const uint8_t *bytes, uint32_t size, bool urgent) {
    int error = qi_commits_record(store->commits, kind, identity, bytes, size, urgent);
    if (!error)
        qi_store_dirty(store);
    if (!error || is_no_room(error))
        return error ? qi_fail_disk(error, "cannot append to the", "commit log") : 0;
    return qi_store_fail(store, qi_fail_disk(error, "cannot append to the", "commit log"));
}

int qi_data_put(struct qi_store *store, const uint8_t *scope, const uint8_t *entries, uint32_t size,
                bool urgent) {
    struct qi_data_change change;
    int error = qi_log_make_room(store, size);
    if (error)
        return error;
    if (qi_data_prepare(&store->commits->data, scope, entries, size, &change) != 0)
        return qi_fail(QI_E_MEMORY, "no memory for this change of data");
    error = append_record(store, QI_KIND_DATA, scope, entries, size, urgent);
    if (error)
        qi_data_drop(&change);
    else
        qi_data_take(&store->commits->data, &change);
    return error;
}

int qi_data_delete(struct qi_store *store, const uint8_t *identity) {
    if (!qi_data_scope(&store->commits->data, identity))
        return 0;
    int error = qi_log_make_room(store, 0);
    if (!error)
        error = append_record(store, QI_KIND_DELETE, identity, NULL, 0, true);
    if (!error)
        qi_data_forget(&store->commits->data, identity);
    return error;
}

static int name_catalog(struct qi_store *store) {
    struct qi_commits *commits = store->commits;
    qi_commit_wait(store);
    if (store->failed)
        return store->failed;
    commits->busy = true;
    int error = name_logs(store);
    commits->busy = false;
    pthread_cond_broadcast(&store->changed);
    return error;
}

int qi_catalog_run(struct qi_store *store) {
    struct qi_commits *commits = store->commits;
    if (!commits || !commits->draft || commits->writing)
        return 0;
    uint8_t *draft = commits->draft;
    uint64_t size = commits->draft_size, number = commits->draft_number;
    bool unsure;
    commits->draft = NULL;
    commits->writing = true;
    qi_unlock(store);
    int error = qi_catalog_write(store->disk, store->root, draft, size, &unsure);
    qi_relock(store);
    commits->writing = false;
    if (error && !unsure && !commits->draft) { /* it is tried again later */
        commits->draft = draft;
        commits->draft_size = size;
        commits->draft_number = number;
    } else {
        qi_free(draft);
    }
    if (!error) {
        commits->catalog = number;
        commits->catalog_hurt = false;
        qi_commits_release(commits);
    }
    pthread_cond_broadcast(&store->changed);
    if (unsure)
        return qi_store_fail(store, qi_fail_disk(error, "cannot sync", "catalog"));
    return error ? qi_fail_disk(error, "cannot write", "catalog") : name_catalog(store);
}

/* ---- giving logs up ---- */

uint64_t qi_newest_log(const struct qi_store *store) {
    return store->commits && store->commits->newest ? store->commits->newest->journal.epoch : 0;
}

/* COPYs behind `lsn` were appended after the sync began: to that log or to a newer one. */
void qi_note_settled(struct qi_queue *queue, uint64_t lsn, uint64_t log) {
    if (queue->needs)
        qi_commits_need_from(queue->store->commits, queue,
                             queue->lsn_logged <= lsn ? FOR_EVER : log);
}

int qi_settle_some(struct qi_store *store, uint64_t most_us) {
    struct qi_commits *commits = store->commits;
    uint64_t began_us = store->disk->ops->monotonic_us(store->disk), number = qi_newest_log(store);
    int error = 0;
    while (commits->settling && !error) {
        if (commits->settle_at >= store->queues_count) {
            commits->settling = false;
            break;
        }
        struct qi_queue *queue = store->queues[commits->settle_at++];
        if (!queue->needs || queue->needs->journal.epoch >= number || !qi_is_in_use(queue))
            continue; /* a queue that is falling asleep syncs its own files */
        if (QI_BUG(log_given_up_early))
            qi_commits_need_from(commits, queue, number);
        error = qi_settle(queue, number);
        if (store->disk->ops->monotonic_us(store->disk) - began_us >= most_us)
            break;
    }
    return error;
}

/* The same at once, for all of them. */
static int settle_all(struct qi_store *store) {
    uint64_t number = qi_newest_log(store);
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        if (queue->needs && qi_is_in_use(queue))
            error = qi_settle(queue, number);
    }
    return error;
}

int qi_log_renew(struct qi_store *store) {
    struct qi_commits *commits = store->commits;
    uint64_t now = qi_wall_us(store);
    int error;
    qi_commit_wait(store);
    commits->busy = true;
    while ((error = qi_commits_begin(commits, now)) == -EAGAIN &&
           (error = sync_log(store, now)) == 0) {
    }
    if (!error)
        error = sync_log(store, now); /* store.meta names it: the others may go */
    commits->busy = false;
    pthread_cond_broadcast(&store->changed);
    if (error)
        return store->failed ? qi_store_usable(store, true)
                             : qi_fail_disk(error, "cannot begin a", "commit log");
    error = settle_all(store);
    while (!error && commits->writing)
        wait_for_log(store);
    if (!error)
        error = qi_catalog_run(store);
    if (!error && commits->oldest != commits->newest)
        error = qi_fail(QI_E_IO, "the damaged commit log is needed still: close the store, and try "
                                 "again");
    return error;
}
