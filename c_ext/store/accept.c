/* accept.c - settings and data that are lost, until somebody accepts it.
 *
 * A damaged commit log goes when no queue needs it, a damaged catalog when there is a new one, and
 * the first close leaves what shows that a log is missing. Then no file tells of the loss any more.
 * So an open that finds one says it in store.meta, together with its session, before any of these
 * files changes; and every open reports it from then on.
 */
#include "store/store.h"

#include "durable/durable.h"

void qi_report_losses(struct qi_store *store) {
    if (store->data_lost && !store->loss_shown)
        qi_report(store, true, "", "commits", 0,
                  "data and settings of the store and of its queues are lost, or older, since an "
                  "earlier session, and nobody has accepted it: look at what the queues do by "
                  "themselves, set what is missing, then accept it (qindex check --accept-losses)");
}

/* The files that show it are replaced first: else the next open would find it once more. */
int qi_store_accept_losses(struct qi_store *store) {
    qi_lock(store);
    int error = qi_store_usable(store, true), lost = store->data_lost;
    if (!error && lost && store->loss_shown)
        error = qi_census(store, true); /* all queues have what the logs have of them */
    if (!error && lost && store->loss_shown)
        error = qi_log_renew(store);
    if (!error && lost) {
        store->data_lost = store->loss_shown = false;
        qi_commit_wait(store); /* a commit may be writing store.meta */
        error = qi_meta_write(store, false);
        store->data_lost = error != 0;
        if (error && error != QI_E_FULL)
            error = qi_store_fail(store, error);
    }
    qi_unlock(store);
    return error ? error : lost;
}
