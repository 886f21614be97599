/* counts.c - what was counted: in this session, and in all before it.
 *
 * The verbs count in memory. A close of a store of format 2 adds this session's counts to those of
 * the sessions before, and keeps the sums as an entry of each queue's mapping, and of the store's
 * (FORMAT.rst, "Commit logs"): behind the sync that makes all that was counted durable, and in
 * front of the one that ends the session. So no count says more than what is there. An entry names
 * the session that it was kept in. If a session from that one on did not end with a close, what it
 * counted is lost, and the sums are lower bounds from then on.
 */
#include "store/store.h"

#include <stdlib.h>

#include "durable/durable.h"

/* An entry of DATA: the key, then the value: session 8, exact 8, the counts; of the store also the
 * syncs, and the number of the catalog 8, which earlier versions leave out. */
#define KEY      "\0counters"
#define KEY_SIZE 9u
#define HEAD     16u
#define OF_QUEUE (HEAD + 8 * QI_COUNTS)
#define OF_STORE (OF_QUEUE + 8 * (3 + QI_SYNC_TIMES))
#define SYNCS    (3 + QI_SYNC_TIMES)
#define CATALOG  OF_STORE

static const uint8_t of_the_store[QI_IDENTITY_SIZE];

static void get_all(const uint8_t *at, uint64_t *numbers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = qi_get64(at + 8 * i);
}

static void put_all(uint8_t *at, const uint64_t *numbers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        qi_put64(at + 8 * i, numbers[i]);
}

/* What a mapping has; false: nothing, and zeros. A longer value is of a later version. */
static bool kept(const struct qi_store *store, const uint8_t *scope, uint32_t size,
                 qi_counts *counts, qi_syncs *syncs, bool *exact) {
    const struct qi_datum *entry =
        qi_data_find(&store->commits->data, scope, (const uint8_t *)KEY, KEY_SIZE);
    *counts = (qi_counts){0};
    if (syncs)
        *syncs = (qi_syncs){0};
    *exact = false;
    if (!entry || entry->value_size < size)
        return false;
    const uint8_t *value = entry->bytes + entry->key_size;
    get_all(value + HEAD, (uint64_t *)counts, QI_COUNTS);
    if (syncs)
        get_all(value + OF_QUEUE, (uint64_t *)syncs, SYNCS);
    *exact = qi_get64(value + 8) == 1 && !store->counts_lost &&
             (qi_get64(value) > store->unclean_session || QI_BUG(counts_exact_for_ever));
    return true;
}

/* The catalog that was there when the counts were kept; no later one has a lower number. */
static uint64_t catalog_then(const struct qi_store *store) {
    const struct qi_datum *entry =
        qi_data_find(&store->commits->data, of_the_store, (const uint8_t *)KEY, KEY_SIZE);
    return entry && entry->value_size >= CATALOG + 8
               ? qi_get64(entry->bytes + entry->key_size + CATALOG)
               : 0;
}

static int exact_or_not(bool exact) {
    return exact ? QI_COUNTS_EXACT : QI_COUNTS_AT_LEAST;
}

/* A queue of which nothing is kept may have had messages before counts were kept. */
static int kept_of_queue(const struct qi_queue *queue, qi_counts *counts) {
    bool exact;
    *counts = (qi_counts){0};
    if (!queue->store->commits)
        return QI_COUNTS_NONE;
    if (!kept(queue->store, queue->identity, OF_QUEUE, counts, NULL, &exact))
        exact = queue->counts_all;
    return exact_or_not(exact);
}

/* The first session of a store has nothing before it. */
static int kept_of_store(const struct qi_store *store, qi_counts *counts, qi_syncs *syncs) {
    bool exact;
    *counts = (qi_counts){0};
    *syncs = (qi_syncs){0};
    if (!store->commits)
        return QI_COUNTS_NONE;
    if (!kept(store, of_the_store, OF_STORE, counts, syncs, &exact))
        exact = store->session == 1 && !store->options.read_only;
    return exact_or_not(exact);
}

int qi_queue_counts_of(struct qi_queue *queue, qi_counts *since, qi_counts *before) {
    qi_lock(queue->store);
    int result = qi_store_usable(queue->store, false);
    *since = queue->counts;
    if (!result)
        result = kept_of_queue(queue, before);
    qi_unlock(queue->store);
    return result;
}

/* Messages that were in a queue at the end of the session that kept its counts. */
static uint64_t left_in(const qi_counts *counts) {
    uint64_t gone = counts->acked + counts->dropped + counts->purged + counts->moved;
    return counts->published > gone ? counts->published - gone : 0;
}

/* A deletion takes the counts along, in the same session. So exact counts of no queue that is here
 * are those of a queue whose folder was taken away. Nothing is said while a queue is here that
 * cannot be named: it may be one of them. False: so it cannot be known. */
static bool count_missing(const struct qi_store *store, uint32_t *queues, uint64_t *messages) {
    uint32_t missing = 0;
    qi_counts counts;
    bool exact;
    *messages = 0;
    const struct qi_data *data = &store->commits->data;
    for (uint32_t i = 0; i < data->scopes_room; i++)
        for (const struct qi_scope *scope = data->scopes[i]; scope; scope = scope->next)
            if (memcmp(scope->identity, of_the_store, QI_IDENTITY_SIZE) != 0 &&
                kept(store, scope->identity, OF_QUEUE, &counts, NULL, &exact) && exact) {
                missing++;
                *messages += left_in(&counts);
            }
    for (uint32_t i = 0; i < store->queues_count && missing; i++) {
        const struct qi_queue *queue = store->queues[i];
        if (queue->misplaced) /* a copy has the identity of another one */
            continue;
        if (!queue->deleted && memcmp(queue->identity, of_the_store, QI_IDENTITY_SIZE) == 0)
            return false;
        if (kept(store, queue->identity, OF_QUEUE, &counts, NULL, &exact) && exact) {
            missing--;
            *messages -= left_in(&counts);
        }
    }
    *queues = missing;
    return true;
}

/* What is exact is of a queue: one that was deleted took it along. */
static uint32_t count_kept(const struct qi_store *store) {
    const struct qi_data *data = &store->commits->data;
    uint32_t count = 0;
    qi_counts counts;
    bool exact;
    for (uint32_t i = 0; i < data->scopes_room; i++)
        for (const struct qi_scope *scope = data->scopes[i]; scope; scope = scope->next)
            count += memcmp(scope->identity, of_the_store, QI_IDENTITY_SIZE) != 0 &&
                     kept(store, scope->identity, OF_QUEUE, &counts, NULL, &exact) && exact;
    return count;
}

bool qi_lacks_folders(const struct qi_store *store, uint32_t folders) {
    return store->commits && count_kept(store) > folders;
}

/* The counts tell it only until a session ends without a close; store.meta until it is accepted. */
static void keep_missing(struct qi_store *store) {
    qi_commit_wait(store); /* a commit may be writing store.meta */
    if (store->records_lost || qi_store_usable(store, true) != 0)
        return;
    store->records_lost = true;
    qi_meta_write(store, false); /* else the next one does it */
}

/* A reader has the counts as they were when it opened the store. A writer that came since may have
 * deleted queues; it has begun a session then. */
void qi_miss_queues(struct qi_store *store) {
    if (store->missed || !store->commits)
        return;
    uint64_t messages;
    uint32_t missing;
    if (!count_missing(store, &missing, &messages) ||
        (missing && store->options.read_only && qi_session_now(store) != store->session))
        return;
    store->missed = true;
    if (!missing)
        return;
    qi_report(store, true, "", "queues", 0,
              "%u queue%s of which the counts are here %s no folder any more, with %llu "
              "message%s at the end of the last session: put it back, or a backup",
              missing, qi_plural(missing), missing == 1 ? "has" : "have",
              (unsigned long long)messages, qi_plural(messages));
    qi_report_lost(store, messages);
    if (!store->options.read_only)
        keep_missing(store);
}

static bool is_of_queue(const struct qi_store *store, const uint8_t *identity) {
    for (uint32_t i = 0; i < store->queues_count; i++)
        if (!store->queues[i]->deleted &&
            memcmp(store->queues[i]->identity, identity, QI_IDENTITY_SIZE) == 0)
            return true;
    return false;
}

/* Counts of a queue that is not here; NULL: there are none. */
static const uint8_t *counts_of_missing(const struct qi_store *store) {
    const struct qi_data *data = &store->commits->data;
    for (uint32_t i = 0; i < data->scopes_room; i++)
        for (const struct qi_scope *scope = data->scopes[i]; scope; scope = scope->next)
            if (memcmp(scope->identity, of_the_store, QI_IDENTITY_SIZE) != 0 &&
                qi_data_find(data, scope->identity, (const uint8_t *)KEY, KEY_SIZE) &&
                !is_of_queue(store, scope->identity))
                return scope->identity;
    return NULL;
}

int qi_accept_missing(struct qi_store *store) {
    uint64_t messages;
    uint32_t missing = 0;
    int error = 0;
    if (!store->commits || !count_missing(store, &missing, &messages))
        return 0;
    for (const uint8_t *found; missing && !error && (found = counts_of_missing(store));) {
        uint8_t identity[QI_IDENTITY_SIZE], entry[2 + KEY_SIZE + 4];
        memcpy(identity, found, QI_IDENTITY_SIZE);
        qi_put16(entry, KEY_SIZE);
        memcpy(entry + 2, KEY, KEY_SIZE);
        qi_put32(entry + 2 + KEY_SIZE, UINT32_MAX); /* the key goes */
        error = qi_data_put(store, identity, entry, sizeof entry, true);
    }
    return error;
}

static void sum_of(const struct qi_store *store, qi_counts *sum) {
    *sum = store->gone;
    for (uint32_t i = 0; i < store->queues_count; i++)
        if (!store->queues[i]->deleted)
            qi_counts_add(sum, &store->queues[i]->counts);
}

int qi_store_counts_of(struct qi_store *store, qi_counts *since, qi_counts *before, qi_syncs *syncs,
                       qi_syncs *syncs_before) {
    qi_lock(store);
    int result = qi_store_usable(store, false);
    sum_of(store, since);
    *syncs = store->syncs;
    if (!result)
        result = kept_of_store(store, before, syncs_before);
    qi_unlock(store);
    return result;
}

/* Every clean end leaves counts of the store. Without them the commit log and the catalog are not
 * those of that end, if store.meta says nothing of these (earlier code wrote it). */
void qi_counts_expect(struct qi_store *store) {
    qi_counts counts;
    bool exact, clean = store->session > store->unclean_session && !store->counts_lost;
    if (catalog_then(store) > store->commits->catalog)
        qi_catalog_is_gone(store, "the last session");
    if (!clean || store->loss_shown || kept(store, of_the_store, OF_STORE, &counts, NULL, &exact))
        return;
    qi_report(store, true, "", "commits", 0,
              "what the last session left there is missing: data and settings of the store and of "
              "its queues are lost, or older; put back copies of commits/ and catalog, and check "
              "what the queues do by themselves");
    qi_data_is_lost(store);
}

/* ---- at a close ---- */

static int keep(struct qi_store *store, const uint8_t *scope, bool exact, const qi_counts *counts,
                const qi_syncs *syncs) {
    uint8_t entry[2 + KEY_SIZE + 4 + OF_STORE + 8];
    uint32_t size = syncs ? OF_STORE + 8 : OF_QUEUE;
    qi_put16(entry, KEY_SIZE);
    memcpy(entry + 2, KEY, KEY_SIZE);
    uint8_t *value = entry + 2 + KEY_SIZE + 4;
    qi_put32(value - 4, size);
    qi_put64(value, store->session);
    qi_put64(value + 8, exact);
    put_all(value + HEAD, (const uint64_t *)counts, QI_COUNTS);
    if (syncs) {
        put_all(value + OF_QUEUE, (const uint64_t *)syncs, SYNCS);
        qi_put64(value + CATALOG, store->commits->catalog);
    }
    return qi_data_put(store, scope, entry, 2 + KEY_SIZE + 4 + size, true);
}

static bool has_counted(const qi_counts *counts) {
    static const qi_counts nothing;
    return memcmp(counts, &nothing, sizeof nothing) != 0;
}

static int keep_of_queue(struct qi_queue *queue) {
    qi_counts sum;
    int before = kept_of_queue(queue, &sum);
    qi_counts_add(&sum, &queue->counts);
    return keep(queue->store, queue->identity, before == QI_COUNTS_EXACT, &sum, NULL);
}

static int keep_of_store(struct qi_store *store, const qi_counts *since) {
    qi_counts sum;
    qi_syncs syncs;
    int before = kept_of_store(store, &sum, &syncs);
    qi_counts_add(&sum, since);
    uint64_t longest_us =
        syncs.longest_us > store->syncs.longest_us ? syncs.longest_us : store->syncs.longest_us;
    uint64_t *to = (uint64_t *)&syncs;
    const uint64_t *from = (const uint64_t *)&store->syncs;
    for (uint32_t i = 0; i < SYNCS; i++)
        to[i] += from[i];
    syncs.longest_us = longest_us;
    return keep(store, of_the_store, before == QI_COUNTS_EXACT, &sum, &syncs);
}

static int keep_all(struct qi_store *store) {
    qi_counts since;
    sum_of(store, &since);
    qi_counts before;
    bool exact;
    if (!has_counted(&since) && catalog_then(store) == store->commits->catalog &&
        kept(store, of_the_store, OF_STORE, &before, NULL, &exact))
        return 0;
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++)
        if (!store->queues[i]->deleted && has_counted(&store->queues[i]->counts))
            error = keep_of_queue(store->queues[i]);
    return error ? error : keep_of_store(store, &since);
}

/* Of a new store, and behind a new catalog, something is kept even if nothing was counted: so a
 * later session knows that. What a full disk has no place for is let go, and all of them are lower
 * bounds from then on: a close does not fail for it. */
int qi_keep_counts(struct qi_store *store) {
    int error = store->commits ? keep_all(store) : 0;
    if (!error && store->commits)
        error = qi_keep_next(store);
    if ((error != QI_E_FULL && error != QI_E_MEMORY) || store->failed)
        return error;
    store->counts_lost = true;
    return 0;
}
