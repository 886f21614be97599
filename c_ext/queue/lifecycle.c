/* lifecycle.c - a queue's life: opened, woken, idle, closed, deleted. (create.c: created.)
 *
 * An idle queue holds no file and no mapping: its journal ends with a CLOSE frame, as after a clean
 * end of its session. Reading it changes nothing; a SESSION frame comes before anything else is
 * appended. Neither needs a sync: ReqIds are handed out below the mark that was reserved durably
 * before the CLOSE, and if a power cut takes the SESSION away, the session is an unclean one, in
 * which recovery does not believe the ReqId of a CLOSE but goes on at that mark (H10).
 */
#include "queue/queue.h"

#include <assert.h>
#include <stdio.h>

#include "durable/durable.h"
#include "index/index.h"

int qi_queue_end(struct qi_queue *queue) {
    assert(queue->lsn_synced >= qi_lsn(queue)); /* the CLOSE says so */
    int error = qi_files_stay(queue);
    if (error)
        return error;
    error = qi_append_lanes(queue);
    if (!error)
        error = qi_append_close(queue);
    if (!error)
        error = qi_journal_end_file(qi_current(queue), qi_room_to_drain(queue));
    qi_current(queue)->ended = error == 0;
    return error ? qi_append_failed(queue, error) : 0;
}

/* Everything durable, then a MARK and a CLOSE, durable too. */
static int append_end(struct qi_queue *queue) {
    int error = qi_sync_to(queue, qi_lsn(queue));
    if (!error)
        error = qi_queue_end(queue);
    if (!error)
        error = qi_sync_to(queue, qi_lsn(queue));
    return error ? error : qi_settle(queue, UINT64_MAX);
}

static void cool_all(struct qi_queue *queue) {
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (!segment->hot || segment->hot->out_count ||
            (qi_has_due(segment) && !QI_BUG(due_segment_cooled)))
            continue;
        assert(!segment->hot->dirty && !segment->hot->in_flush);
        if (segment->length > 0) {
            qi_cool(queue, segment);
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
    if (!qi_is_open(queue) || queue->flush || queue->dirty_count)
        return 0;
    queue->recovering = true; /* nobody may append behind the CLOSE */
    int error = qi_is_ended(queue) ? 0 : append_end(queue);
    assert(error || !queue->syncing);
    if (!error) {
        qi_tape_close(&qi_previous(queue)->tape);
        /* Retired: whether its name comes back after a power cut does not matter. */
        disk->ops->unlink(disk, queue->dir, qi_journal_name(queue->epoch + 1));
        cool_all(queue);
        qi_files_drop(queue);
    }
    queue->recovering = false;
    pthread_cond_broadcast(&store->changed);
    return error;
}

/* What cannot be taken back stays counted: then no file is freed or compacted until the store is
 * opened again. */
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
        qi_free(uses);
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

/* Removes `<directory>.del`, also what a crash left of it. Only files: a foreign folder in it stops
 * the removal. */
void qi_remove_deleted(struct qi_store *store, const char *gone) {
    struct removal removal = {store->disk,
                              store->disk->ops->open_dir(store->disk, store->queues_dir, gone)};
    if (removal.dir < 0)
        return;
    store->disk->ops->list(store->disk, removal.dir, remove_one, &removal);
    store->disk->ops->close(store->disk, removal.dir);
    store->disk->ops->remove_dir(store->disk, store->queues_dir, gone);
}

/* May it go? Dead letters are messages, too. */
static int check_conditions(const struct qi_queue *queue, uint32_t conditions) {
    if (conditions & QI_IF_EMPTY && queue->depth > 0)
        return qi_fail(QI_E_NOT_EMPTY, "queue %s has %llu message%s: it was not deleted",
                       queue->name, (unsigned long long)queue->depth, qi_plural(queue->depth));
    if (conditions & QI_IF_UNUSED && queue->out > 0)
        return qi_fail(QI_E_IN_USE, "consumers have %llu message%s of queue %s: it was not deleted",
                       (unsigned long long)queue->out, qi_plural(queue->out), queue->name);
    if (conditions & QI_IF_UNUSED && queue->waiters)
        return qi_fail(QI_E_IN_USE, "consumers wait for messages of queue %s: it was not deleted",
                       queue->name);
    if (conditions & QI_IF_UNWANTED && queue->wanted)
        return qi_fail(QI_E_IN_USE, "somebody asked queue %s for a message: it was not deleted",
                       queue->name);
    return 0;
}

int qi_queue_wanted(struct qi_queue *queue) {
    qi_lock(queue->store);
    int error = qi_store_usable(queue->store, false);
    if (!error && queue->deleted)
        error = qi_fail(QI_E_CLOSED, "queue %s was deleted", queue->name);
    bool wanted = queue->wanted || queue->out > 0 || queue->waiters;
    queue->wanted = false;
    qi_unlock(queue->store);
    return error ? error : wanted;
}

/* Nobody syncs or flushes it any more. */
static int remove_queue(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    char gone[40];
    snprintf(gone, sizeof gone, "%s.del", queue->directory);
    forget_references(queue);
    qi_counts_add(&store->gone, &queue->counts);
    qi_parts_forget(queue);
    queue->deleted = true;
    store->deleted++;
    int error =
        disk->ops->rename(disk, store->queues_dir, queue->directory, store->queues_dir, gone);
    if (!error && !QI_BUG(delete_not_synced))
        error = disk->ops->sync_dir(disk, store->queues_dir);
    if (error)
        error = qi_store_fail(store, qi_fail_disk(error, "cannot delete queue", queue->name));
    qi_queue_reset(queue);
    if (store->commits)
        qi_commits_need_from(store->commits, queue, UINT64_MAX);
    queue->expiry_us = 0;              /* the worker does not look for it any more */
    queue->lsn_synced = qi_lsn(queue); /* who waits for a sync of it waits for nothing more */
    qi_wake_waiters(queue, UINT64_MAX);
    qi_wake_for_places(store);
    if (!error)
        qi_remove_deleted(store, gone);
    int keys = !error && store->commits ? qi_data_delete(store, queue->identity) : 0;
    if (keys != QI_E_FULL) /* else they stay, and nobody sees them: the queue is gone */
        error = error ? error : keys;
    pthread_cond_broadcast(&store->changed);
    return error;
}

/* A transaction in it is not durable yet. What it has moved would be in no queue if a power cut
 * took the transaction and not the deletion. */
static bool is_in_doubt(const struct qi_queue *queue) {
    return queue->parts > 0 && !QI_BUG(deleted_before_its_moves);
}

int qi_queue_delete_if(struct qi_queue *queue, uint32_t conditions) {
    struct qi_store *store = queue->store;
    qi_lock(store);
    int error = qi_queue_ready(queue, true);
    while (!error && (queue->flushing || queue->syncing || is_in_doubt(queue))) {
        if (is_in_doubt(queue))
            error = qi_log_sync_to(store, store->commits->end);
        else
            pthread_cond_wait(&store->changed, &store->lock);
        if (!error)
            error = qi_queue_ready(queue, true);
    }
    if (!error)
        error = check_conditions(queue, conditions);
    if (!error)
        error = remove_queue(queue);
    qi_unlock(store);
    return error;
}

int qi_queue_delete(struct qi_queue *queue) {
    return qi_queue_delete_if(queue, 0);
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
