/* asks.c - syncs for event loops: a thread of the store makes them, and rings.
 *
 * An event loop must not wait for the disk. A thread of Python that syncs for it has to take the
 * GIL twice for each sync, and the loop's thread has to give it up. So the store has a thread of
 * its own that never takes the GIL. It begins with the first sync that a loop asks for, and ends
 * with the store. It makes the calls that a caller makes who waits (qi_queue_sync, qi_store_sync):
 * they decide what is durable, and what a failed sync means. On a disk for one thread qi_sync_ask
 * makes the sync itself.
 *
 *     at rest --qi_sync_ask--> listed --the thread--> syncing --> ended --qi_sync_came--> at rest
 *
 * The thread has no lock of the asks while it syncs, so who asks does not wait. It rings when it
 * has given up the store's lock, which the loop's next call needs.
 */
#include "store/store.h"

#include "durable/durable.h"
#include "queue/queue.h"

void qi_asks_init(struct qi_store *store) {
    pthread_mutex_init(&store->asks.lock, NULL);
    pthread_cond_init(&store->asks.changed, NULL);
}

static void append(struct qi_ask_list *list, struct qi_ask *ask) {
    ask->next = NULL;
    if (list->last)
        list->last->next = ask;
    else
        list->first = ask;
    list->last = ask;
    list->count++;
}

static struct qi_ask *take(struct qi_ask_list *list) {
    struct qi_ask *ask = list->first;
    if (!ask)
        return NULL;
    list->count--;
    if (!(list->first = ask->next))
        list->last = NULL;
    return ask;
}

/* ---- the thread ---- */

/* The first one that is listed; or all of them, where a group commit makes one sync of many. */
static struct qi_ask_list take_some(struct qi_store *store) {
    struct qi_ask_list *listed = &store->asks.listed, some = {0};
    if (listed->count > qi_few_queues(store)) {
        some = *listed;
        *listed = (struct qi_ask_list){0};
    } else {
        append(&some, take(listed));
    }
    return some;
}

/* Called with the lock of the asks, and gives it up for the sync. The loop takes all that have
 * ended when it hears the bell, so only the first of them rings. */
static void sync_for(struct qi_store *store, struct qi_ask_list some) {
    struct qi_asks *asks = &store->asks;
    struct qi_queue *alone = some.first == some.last ? some.first->queue : NULL;
    pthread_mutex_unlock(&asks->lock);
    int error = QI_BUG(race_asked_is_not_synced) ? 0
                : alone                          ? qi_queue_sync(alone)
                                                 : qi_store_sync(store);
    pthread_mutex_lock(&asks->lock);
    bool silent = asks->ended.first == NULL;
    for (struct qi_ask *ask; (ask = take(&some)) != NULL;) {
        ask->error = error;
        ask->text = error ? qi_strdup(qi_error_text()) : NULL;
        append(&asks->ended, ask);
    }
    if (silent)
        qi_bell_ring(store->bell);
}

static void *serve(void *argument) {
    struct qi_store *store = argument;
    struct qi_asks *asks = &store->asks;
    pthread_mutex_lock(&asks->lock);
    while (asks->listed.first || !asks->closed)
        if (asks->listed.first)
            sync_for(store, take_some(store));
        else
            pthread_cond_wait(&asks->changed, &asks->lock);
    pthread_mutex_unlock(&asks->lock);
    return NULL;
}

static int begin(struct qi_store *store) {
    int error = pthread_create(&store->asks.thread, NULL, serve, store);
    store->asks.has_thread = error == 0;
    return error ? qi_fail(QI_E_MEMORY, "cannot start the thread for syncs (errno %d)", error) : 0;
}

void qi_asks_close(struct qi_store *store) {
    struct qi_asks *asks = &store->asks;
    pthread_mutex_lock(&asks->lock);
    bool joins = asks->has_thread && !asks->closed;
    asks->closed = true;
    pthread_cond_broadcast(&asks->changed);
    while (!joins && asks->has_thread) /* another thread closes it, too */
        pthread_cond_wait(&asks->changed, &asks->lock);
    pthread_mutex_unlock(&asks->lock);
    if (!joins)
        return;
    pthread_join(asks->thread, NULL);
    pthread_mutex_lock(&asks->lock);
    asks->has_thread = false;
    pthread_cond_broadcast(&asks->changed);
    pthread_mutex_unlock(&asks->lock);
}

void qi_asks_free(struct qi_store *store) {
    struct qi_ask *ask;
    while ((ask = take(&store->asks.ended)) != NULL)
        qi_free(ask->text);
}

/* ---- the loop ---- */

int qi_sync_ask(struct qi_store *store, struct qi_queue *queue) {
    struct qi_asks *asks = &store->asks;
    struct qi_ask *ask = queue ? &queue->ask : &asks->all;
    bool at_once = store->disk->single_threaded;
    if (store->fork_generation != qi_fork_generation())
        return qi_store_usable(store, true); /* who had the lock may have stayed in the parent */
    pthread_mutex_lock(&asks->lock);
    int error = 0;
    if (asks->closed)
        error = qi_fail(QI_E_CLOSED, "the store is closed");
    else if (ask->under_way)
        error = QI_BUSY;
    else if (!asks->has_thread && !at_once)
        error = begin(store);
    if (!error) {
        ask->queue = queue;
        ask->under_way = true;
        append(&asks->listed, ask);
    }
    if (!error && at_once)
        sync_for(store, take_some(store));
    pthread_mutex_unlock(&asks->lock);
    if (!error && !at_once)
        pthread_cond_signal(&asks->changed);
    return error;
}

bool qi_sync_came(struct qi_store *store, struct qi_queue **queue, int *error) {
    if (store->fork_generation != qi_fork_generation())
        return false;
    pthread_mutex_lock(&store->asks.lock);
    struct qi_ask *ask = take(&store->asks.ended);
    if (ask) {
        *queue = ask->queue;
        *error = ask->error;
        if (ask->error)
            qi_fail(ask->error, "%s", ask->text ? ask->text : "no memory for the text of an error");
        qi_free(ask->text);
        ask->text = NULL;
        ask->under_way = false;
    }
    pthread_mutex_unlock(&store->asks.lock);
    return ask != NULL;
}
