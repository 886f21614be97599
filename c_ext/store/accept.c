/* accept.c - messages, settings and data that are lost, until somebody accepts it.
 *
 * A damaged commit log goes when no queue needs it, a damaged catalog when there is a new one, a
 * damaged journal when it is flushed, and the first close leaves what shows that a log is missing.
 * Then no file tells of the loss any more. So whoever finds one says it in store.meta before any of
 * these files changes; and every open reports it from then on.
 */
#include "store/store.h"

#include "durable/durable.h"
#include "queue/queue.h"

void qi_report_losses(struct qi_store *store) {
    if (store->data_lost && !store->loss_shown)
        qi_report(store, true, "", "commits", 0,
                  "data and settings of the store and of its queues are lost, or older, since an "
                  "earlier session, and nobody has accepted it: look at what the queues do by "
                  "themselves, set what is missing, then accept it (qindex check --accept-losses)");
    if (store->records_lost)
        qi_report(store, true, "", "queues", 0,
                  "records of queues were lost with damaged journals, or queues with their "
                  "folders, since an earlier session, and nobody has accepted it: messages may be "
                  "missing, or back; when you know which, accept it (qindex check "
                  "--accept-losses)");
}

/* What is in the journals goes to the segments. */
static int replace_journals(struct qi_queue *queue) {
    int error = qi_queue_ready(queue, true);
    if (!error)
        error = qi_flush_wait(queue);
    if (!error)
        error = qi_flush_begin(queue, 0, 0);
    if (!error)
        error = qi_flush_wait(queue);
    queue->shows_loss = error != 0;
    return error;
}

/* All queues were read, but for those that are refused. */
static int replace_all_journals(struct qi_store *store) {
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++)
        if (store->queues[i]->shows_loss && !store->queues[i]->deleted)
            error = replace_journals(store->queues[i]);
    return error;
}

/* A queue that is refused tells so itself, at every open: it keeps nobody from accepting what was
 * lost elsewhere. */
static int read_all_queues(struct qi_store *store) {
    int error = qi_list_queues(store);
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        error = qi_ready_to_look(store->queues[i]);
        if (error == QI_E_CORRUPT || error == QI_E_FORMAT || error == QI_E_NEWER)
            error = 0;
    }
    return error;
}

/* The files that show it are replaced first: else the next open would find it once more. A damaged
 * commit log may have what a queue needs, so it stays until all queues can be read. */
static int replace_files(struct qi_store *store) {
    bool in_logs = store->data_lost && store->loss_shown;
    int error = in_logs ? qi_census(store, true) : store->records_lost ? read_all_queues(store) : 0;
    if (!error)
        error = replace_all_journals(store);
    if (!error && store->records_lost)
        error = qi_accept_missing(store);
    return error || !in_logs ? error : qi_log_renew(store);
}

int qi_store_accept_losses(struct qi_store *store) {
    qi_lock(store);
    int error = qi_store_usable(store, true), lost = 0;
    if (!error)
        error = replace_files(store);
    qi_commit_wait(store); /* a commit may be writing store.meta */
    if (!error)
        error = qi_store_usable(store, true);
    bool data = store->data_lost, records = store->records_lost;
    if (!error && (data || records)) {
        lost = 1;
        store->data_lost = store->records_lost = store->loss_shown = false;
        error = qi_meta_write(store, false);
        store->data_lost = data && error;
        store->records_lost = records && error;
        if (error && error != QI_E_FULL)
            error = qi_store_fail(store, error);
    }
    qi_unlock(store);
    return error ? error : lost;
}
