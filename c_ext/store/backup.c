/* backup.c - holds all files of a store as they are at one moment, while publishers go on.
 *
 * What the files of a store mean changes only under the store's lock: appends, MANIFESTs, which
 * files there are. What a flush, a compaction or a commit does without the lock adds bytes that
 * nothing names yet, or removes what nothing names any more. So what the files hold between two
 * acquisitions of the lock is what kill -9 would leave then, and a copy of that is a store which
 * opens as after kill -9.
 *
 * To copy everything under the lock would take as long as the store is big. So of most files only a
 * second name is made: segments, message files and commit logs are append-only, and the MANIFEST
 * (or the length that is handed back) says which bytes of them count. Journals are begun anew in
 * place, so their valid bytes are copied here; they are short, if the queues were flushed right
 * before. store.meta is copied, too: a full disk has it written over in place. Three things that
 * are decided without the lock are waited for: a queue's recovery, which cuts journals, a commit,
 * and a catalog that is being written.
 */
#include "store/store.h"

#include <errno.h>
#include <string.h>

#include "durable/durable.h"
#include "queue/queue.h"

#define PIECE (UINT64_C(256) << 10)

/* What is listed into `hold`, and the first error. */
struct holding {
    struct qi_store *store;
    qi_held *held;
    int from, to;
    struct qi_queue *queue; /* whose folder it is, if its journals are in use */
    uint8_t *piece;
    int error;
};

static bool ends_with(const char *name, const char *end) {
    size_t size = strlen(name), tail = strlen(end);
    return size >= tail && strcmp(name + size - tail, end) == 0;
}

static bool is_zero(const uint8_t *bytes, uint64_t size) {
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* The first `length` bytes, or all there are; behind them zeros up to the size of the file, since a
 * journal that ends at its tail was cut off. Zeros stay holes. */
static int copy_bytes(struct holding *holding, int from, int to, uint64_t length) {
    struct qi_disk *disk = holding->store->disk;
    uint64_t whole = 0, at = 0;
    int error = disk->ops->size(disk, from, &whole);
    uint64_t size = whole < length ? whole : length;
    while (!error && at < size) {
        uint64_t want = size - at < PIECE ? size - at : PIECE;
        int64_t got = disk->ops->read(disk, from, holding->piece, (size_t)want, at);
        if (got <= 0)
            return got < 0 ? (int)got : -EIO;
        if (!is_zero(holding->piece, (uint64_t)got))
            error = disk->ops->write(disk, to, holding->piece, (size_t)got, at);
        at += (uint64_t)got;
    }
    holding->held->copied += at;
    return error ? error : disk->ops->truncate(disk, to, whole);
}

static int copy(struct holding *holding, const char *name, uint64_t length) {
    struct qi_disk *disk = holding->store->disk;
    int from = disk->ops->open(disk, holding->from, name, QI_OPEN_READ);
    if (from < 0)
        return from;
    int to = disk->ops->open(disk, holding->to, name, QI_OPEN_FRESH);
    int error = to < 0 ? to : copy_bytes(holding, from, to, length);
    disk->ops->close(disk, from);
    if (to >= 0)
        disk->ops->close(disk, to);
    return error;
}

/* A second name; a copy where the file system has none, or no more. */
static int hold(struct holding *holding, const char *name) {
    int error = qi_hold_file(holding->from, holding->to, name);
    if (error == -EPERM || error == -EOPNOTSUPP || error == -EMLINK || error == -EXDEV)
        error = copy(holding, name, UINT64_MAX);
    return error;
}

static bool is_journal(const char *name) {
    return strcmp(name, qi_journal_name(0)) == 0 || strcmp(name, qi_journal_name(1)) == 0;
}

/* Of a queue in use: up to the tail, and nothing of a journal that the segments have already. Of
 * one that nobody has read since the open, all. */
static int hold_journal(struct holding *holding, const char *name) {
    struct qi_queue *queue = holding->queue;
    if (!queue)
        return copy(holding, name, UINT64_MAX);
    bool is_current = strcmp(name, qi_journal_name(queue->epoch)) == 0;
    if (is_current)
        return copy(holding, name, qi_current(queue)->tail);
    return queue->flushed_epoch + 1 < queue->epoch ? copy(holding, name, qi_previous(queue)->tail)
                                                   : 0;
}

static void hold_name(void *context, const char *name) {
    struct holding *holding = context;
    if (holding->error || ends_with(name, ".new") || ends_with(name, ".del"))
        return;
    int error = is_journal(name)                  ? hold_journal(holding, name)
                : strcmp(name, "store.meta") == 0 ? copy(holding, name, UINT64_MAX)
                                                  : hold(holding, name);
    if (!error)
        holding->held->files++;
    else if (error != -ENOENT) /* somebody has just removed what nothing names any more */
        holding->error = qi_fail_disk(error, "cannot hold for a backup", name);
}

/* All files of a folder, which has no folders. */
static int hold_folder(struct holding *holding, int from, int above, const char *name) {
    struct qi_disk *disk = holding->store->disk;
    int error = disk->ops->make_dir(disk, above, name);
    int to = error ? error : disk->ops->open_dir(disk, above, name);
    if (to < 0)
        return qi_fail_disk(to, "cannot make, for a backup,", name);
    holding->from = from;
    holding->to = to;
    error = disk->ops->list(disk, from, hold_name, holding);
    disk->ops->close(disk, to);
    return holding->error ? holding->error : error ? qi_fail_disk(error, "cannot list", name) : 0;
}

/* ---- queues ---- */

struct names {
    char (*items)[33];
    uint32_t count, room;
    bool no_memory;
};

static void note_queue(void *context, const char *name) {
    struct names *names = context;
    if (!qi_is_queue_directory(name) || names->no_memory)
        return;
    if (names->count == names->room) {
        uint32_t room = names->room ? 2 * names->room : 64;
        void *items = qi_realloc(names->items, room * sizeof *names->items);
        names->no_memory = !items;
        if (!items)
            return;
        names->items = items;
        names->room = room;
    }
    memcpy(names->items[names->count++], name, 33);
}

static int hold_queue(struct holding *holding, int above, const char *name) {
    struct qi_store *store = holding->store;
    int from = store->disk->ops->open_dir(store->disk, store->queues_dir, name);
    if (from < 0)
        return from == -ENOENT ? 0 : qi_fail_disk(from, "cannot open", name);
    struct qi_queue *queue = qi_find_queue(store, name);
    holding->queue = queue && queue->recovered ? queue : NULL;
    int error = hold_folder(holding, from, above, name);
    store->disk->ops->close(store->disk, from);
    return error;
}

static int hold_queues(struct holding *holding, int root) {
    struct qi_store *store = holding->store;
    struct names names = {0};
    int error = store->disk->ops->make_dir(store->disk, root, "queues");
    int above = error ? error : store->disk->ops->open_dir(store->disk, root, "queues");
    if (above < 0)
        return qi_fail_disk(above, "cannot make, for a backup,", "queues");
    error = store->disk->ops->list(store->disk, store->queues_dir, note_queue, &names);
    if (error)
        error = qi_fail_disk(error, "cannot list", "queues");
    else if (names.no_memory)
        error = qi_fail(QI_E_MEMORY, "no memory for the names of the queues");
    for (uint32_t i = 0; i < names.count && !error; i++)
        error = hold_queue(holding, above, names.items[i]);
    store->disk->ops->close(store->disk, above);
    qi_free(names.items);
    return error;
}

/* ---- the store ---- */

static int hold_all(struct holding *holding, int root) {
    struct qi_store *store = holding->store;
    qi_held *held = holding->held;
    int error = hold_folder(holding, store->messages.dir, root, "messages");
    if (store->messages.tape.file >= 0)
        held->messages_number = store->messages.tape_number;
    held->messages_length = store->messages.tail;
    if (!error && store->commits) {
        error = hold_folder(holding, store->commits->dir, root, "commits");
        const struct qi_commit_log *newest = store->commits->newest;
        if (newest) {
            held->log_number = (int64_t)newest->journal.epoch;
            held->log_length = newest->journal.tail;
        }
    }
    if (!error)
        error = hold_queues(holding, root);
    holding->from = store->root;
    holding->to = root;
    static const char *const files[] = {"store.meta", "catalog"};
    for (size_t i = 0; i < 2 && !error; i++) {
        hold_name(holding, files[i]);
        error = holding->error;
    }
    return error;
}

static bool is_deciding(const struct qi_store *store) {
    bool busy = store->commits && (store->commits->busy || store->commits->writing);
    for (uint32_t i = 0; i < store->queues_count && !busy; i++)
        busy = store->queues[i]->recovering;
    return busy;
}

int qi_store_hold(struct qi_store *store, const char *path, qi_held *held) {
    struct holding holding = {.store = store, .held = held, .piece = qi_malloc(PIECE)};
    if (!holding.piece)
        return qi_fail(QI_E_MEMORY, "no memory for a backup");
    qi_lock(store);
    *held = (qi_held){.messages_number = -1, .log_number = -1};
    memcpy(held->identity, store->identity, sizeof held->identity);
    held->session = store->session;
    int error = qi_store_usable(store, true);
    if (!error && store->disk != &qi_disk_posix)
        error = qi_fail(QI_E_ARGUMENT, "only a store on a real disk can be backed up");
    while (!error && is_deciding(store)) {
        pthread_cond_wait(&store->changed, &store->lock);
        error = qi_store_usable(store, true);
    }
    uint64_t began = store->disk->ops->monotonic_us(store->disk);
    int root = error ? -1 : store->disk->ops->open_root(store->disk, path, false);
    if (!error && root < 0)
        error = qi_fail_disk(root, "cannot open", path);
    if (!error)
        error = hold_all(&holding, root);
    if (root >= 0)
        store->disk->ops->close(store->disk, root);
    held->us = store->disk->ops->monotonic_us(store->disk) - began;
    qi_unlock(store);
    qi_free(holding.piece);
    return error;
}
