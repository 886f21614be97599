/* queues.c - which queues a store has: those that somebody asked for, by their directories, and all
 * that are on disk.
 *
 * Handles live as long as the store, so that a pointer in Python never dangles; a deleted queue
 * keeps its handle, and a new one of the same name gets another.
 */
#include "store/store.h"

#include <errno.h>

#include "durable/durable.h"
#include "index/index.h"
#include "queue/queue.h"

#define AT_ONCE 256u /* names, before the lock is given up for a moment */

/* The directories are hashes already. */
static uint32_t place_of(const struct qi_store *store, const char *directory) {
    uint32_t sum = 0;
    for (int i = 0; i < 8; i++)
        sum = sum * 16 + (uint32_t)(directory[i] & 15) + (directory[i] > '9' ? 9 : 0);
    return sum & (store->table_room - 1);
}

static void put_into_table(struct qi_store *store, struct qi_queue *queue) {
    uint32_t at = place_of(store, queue->directory);
    while (store->table[at])
        at = (at + 1) & (store->table_room - 1);
    store->table[at] = queue;
}

void qi_tabulate(struct qi_store *store) {
    memset(store->table, 0, store->table_room * sizeof *store->table);
    for (uint32_t i = 0; i < store->queues_count; i++)
        if (!store->queues[i]->deleted)
            put_into_table(store, store->queues[i]);
}

/* Room for one more: at most half of the places are taken. Deleted queues leave it when it grows.
 * False: no memory. */
static bool has_table_room(struct qi_store *store) {
    if (2 * (store->queues_count + 1) <= store->table_room)
        return true;
    uint32_t room = store->table_room ? 2 * store->table_room : 64;
    struct qi_queue **table = qi_calloc(room, sizeof *table);
    if (!table)
        return false;
    qi_free(store->table);
    store->table = table;
    store->table_room = room;
    qi_tabulate(store);
    return true;
}

struct qi_queue *qi_find_queue(const struct qi_store *store, const char *directory) {
    if (store->table_room == 0)
        return NULL;
    for (uint32_t at = place_of(store, directory); store->table[at];
         at = (at + 1) & (store->table_room - 1))
        if (!store->table[at]->deleted && memcmp(store->table[at]->directory, directory, 32) == 0)
            return store->table[at];
    return NULL;
}

/* Adds the handle; handles live as long as the store, so that a pointer in Python never dangles. */
struct qi_queue *qi_add_queue(struct qi_store *store, const char *name, size_t size,
                              const char *directory) {
    if (store->queues_count == store->queues_room) {
        uint32_t room = store->queues_room ? store->queues_room * 2 : 16;
        struct qi_queue **queues = qi_realloc(store->queues, room * sizeof *queues);
        if (!queues)
            return NULL;
        store->queues = queues;
        store->queues_room = room;
    }
    struct qi_queue *queue = qi_calloc(1, sizeof *queue);
    char *copy = qi_malloc(size + 1);
    struct qi_lanes lanes;
    if (!qi_lanes_begin(&lanes) || !queue || !copy || !has_table_room(store)) {
        qi_free(lanes.items);
        qi_free(queue);
        qi_free(copy);
        return NULL;
    }
    memcpy(copy, name, size);
    copy[size] = 0;
    *queue = (struct qi_queue){.store = store,
                               .name = copy,
                               .name_size = (uint32_t)size,
                               .dir = -1,
                               .bounded = store->options.max_messages || store->options.max_bytes,
                               .lanes = lanes,
                               .tag = qi_next_tag(),
                               .browsed = UINT64_MAX};
    memcpy(queue->directory, directory, 32);
    queue->journals[0].tape.file = queue->journals[1].tape.file = -1;
    queue->journals[0].failed = queue->journals[1].failed = &store->failed;
    put_into_table(store, queue);
    return store->queues[store->queues_count++] = queue;
}

bool qi_is_queue_directory(const char *directory) {
    return strlen(directory) == 32 && strspn(directory, "0123456789abcdef") == 32;
}

/* The directory must be of the queue that is asked for: a copied one, or (in theory) a name with
 * the same hash, is not. */
int qi_check_name(struct qi_queue *queue, int dir, const char *name, size_t name_size) {
    int error = 0;
    enum qi_meta_state state;
    if (dir >= 0) {
        queue->dir = dir;
        error = qi_queue_meta_read(queue, &state);
        queue->dir = -1;
    }
    if (error || (queue->name_size == name_size && memcmp(queue->name, name, name_size) == 0))
        return error;
    return qi_fail(QI_E_CORRUPT,
                   "queues/%s is the directory of queue %s, not of %.*s: was it copied or renamed?",
                   queue->directory, queue->name, (int)name_size, name);
}

/* Waits until no other thread creates the queue: it is there then, or it is not. */
static int wait_for_creation(struct qi_store *store, const char *directory) {
    int error = qi_store_usable(store, false);
    struct qi_queue *queue;
    while (!error && (queue = qi_find_queue(store, directory)) && queue->recovering &&
           !queue->recovered)
        error = qi_queue_settled(queue, false);
    return error;
}

int qi_queue_created(struct qi_queue *queue) {
    int error = qi_store_usable(queue->store, false);
    while (!error && queue->creating)
        error = qi_queue_settled(queue, false);
    return error;
}

static int open_queue(struct qi_store *store, const char *name, size_t name_size,
                      const char *directory, bool create, struct qi_queue **result) {
    int error = wait_for_creation(store, directory);
    struct qi_queue *queue = error ? NULL : qi_find_queue(store, directory);
    bool exists = queue != NULL;
    if (!error && !exists) {
        qi_files_room(store, NULL);
        int dir = store->disk->ops->open_dir(store->disk, store->queues_dir, directory);
        exists = dir >= 0;
        if (qi_is_of_the_disk(dir)) /* it may be there */
            error = qi_fail_disk(dir, "cannot open",
                                 qi_file_of_name(name, name_size, directory, NULL).text);
        else if (!exists && (!create || store->options.read_only))
            error =
                qi_fail(QI_E_MISSING, "there is no queue %.*s in this store", (int)name_size, name);
        if (!error && !(queue = qi_add_queue(store, name, name_size, directory)))
            error = qi_fail(QI_E_MEMORY, "no memory for a queue");
        if (!error && exists)
            error = qi_check_name(queue, dir, name, name_size);
        if (exists)
            store->disk->ops->close(store->disk, dir);
        if (!error && !exists) {
            queue->recovering = queue->creating = true;
            error = qi_queue_create(queue);
            queue->recovering = queue->creating = false;
            pthread_cond_broadcast(&store->changed);
            if (error)
                queue->deleted = true;
            else
                qi_store_dirty(store); /* else the worker would not look whether it stays idle */
        }
    }
    if (!error && queue->name_size > 0) /* else not read yet */
        error = qi_check_name(queue, -1, name, name_size);
    if (!error)
        error = qi_queue_ready(queue, false);
    if (!error)
        error = qi_check_name(queue, -1, name, name_size);
    if (!error)
        *result = queue;
    return error;
}

int qi_queue_open(struct qi_store *store, const char *name, size_t name_size, const char *directory,
                  bool create, struct qi_queue **result) {
    int error;
    if (!qi_is_queue_directory(directory) || name_size > 65535)
        return qi_fail(QI_E_ARGUMENT, "a queue's name has at most 65535 bytes in UTF-8");
    qi_lock(store);
    do
        error = open_queue(store, name, name_size, directory, create, result);
    while (error && qi_files_gave(store, NULL));
    qi_unlock(store);
    return error;
}

/* The directories that a list of queues/ had; made without the lock. */
struct listing {
    char (*directories)[33];
    uint32_t count, room;
    bool incomplete; /* no memory: whoever frees what no queue needs must not believe the list */
};

static void collect_name(void *context, const char *name) {
    struct listing *listing = context;
    if (!qi_is_queue_directory(name) || listing->incomplete)
        return;
    if (listing->count == listing->room) {
        uint32_t room = listing->room ? 2 * listing->room : 64;
        char (*directories)[33] = qi_realloc(listing->directories, room * sizeof *directories);
        listing->incomplete = !directories;
        if (!directories)
            return;
        listing->directories = directories;
        listing->room = room;
    }
    memcpy(listing->directories[listing->count++], name, 33);
}

static bool is_still_there(const struct qi_store *store, const char *directory) {
    struct qi_disk *disk = store->disk;
    int dir = disk->ops->open_dir(disk, store->queues_dir, directory);
    if (dir >= 0)
        disk->ops->close(disk, dir);
    return dir != -ENOENT;
}

void qi_store_misplaced(struct qi_store *store, const char *directory, const char *name,
                        size_t name_size) {
    qi_lock(store);
    struct qi_queue *queue = qi_store_usable(store, false) ? NULL : qi_find_queue(store, directory);
    if (queue && queue->name_size == name_size && memcmp(queue->name, name, name_size) == 0 &&
        is_still_there(store, directory)) /* else a writer has renamed it */
        queue->misplaced = true;
    qi_unlock(store);
}

/* The handles of those that have none yet. A queue that was deleted since the list was made must
 * not come back as one that cannot be read. */
static int add_listed(struct qi_store *store, const struct listing *listing, uint64_t deleted) {
    int error = 0;
    for (uint32_t i = 0; i < listing->count && !error; i++) {
        const char *directory = listing->directories[i];
        if (i % AT_ONCE == AT_ONCE - 1) {
            qi_unlock(store);
            qi_relock(store);
            error = qi_store_usable(store, false);
        }
        if (error || qi_find_queue(store, directory) ||
            (store->deleted != deleted && !is_still_there(store, directory)))
            continue;
        if (!qi_add_queue(store, "", 0, directory))
            error = qi_fail_disk(-ENOMEM, "cannot list", "queues");
    }
    return error;
}

int qi_list_queues(struct qi_store *store) {
    int error = qi_store_usable(store, false);
    if (error)
        return error;
    store->looking++;
    do {
        struct listing listing = {0};
        uint64_t deleted = store->deleted;
        qi_unlock(store);
        error = store->disk->ops->list(store->disk, store->queues_dir, collect_name, &listing);
        qi_relock(store);
        if (!error && listing.incomplete)
            error = -ENOMEM;
        error = error ? qi_fail_disk(error, "cannot list", "queues")
                      : add_listed(store, &listing, deleted);
        qi_free(listing.directories);
    } while (error && qi_files_gave(store, NULL));
    store->looking--;
    pthread_cond_broadcast(&store->changed);
    return error;
}

/* Takes it from queue.meta; there is none if there is no directory. *of_dir: the error is one of
 * the directory, which it calls `shown`. `looked` is nobody else's. */
static int read_name(struct qi_queue *looked, struct qi_shown shown, bool *of_dir) {
    struct qi_disk *disk = looked->store->disk;
    enum qi_meta_state state;
    int dir = disk->ops->open_dir(disk, looked->store->queues_dir, looked->directory);
    *of_dir = dir < 0;
    if (dir < 0)
        return qi_is_of_the_disk(dir) /* it may be there */
                   ? qi_fail_disk(dir, "cannot open", shown.text)
                   : 0;
    looked->dir = dir;
    int error = qi_queue_meta_read(looked, &state);
    disk->ops->close(disk, dir);
    return error;
}

static bool lacks_name(const struct qi_queue *queue) {
    return !queue->name_size && !queue->deleted && !queue->recovered && !queue->recovering;
}

/* Gives the lock up: thousands of small files that are not in the cache take seconds. */
static int look_up_name(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    struct qi_queue looked = {.store = store};
    bool of_dir;
    memcpy(looked.directory, queue->directory, 33);
    qi_unlock(store);
    int error = read_name(&looked, qi_file_of(&looked, NULL), &of_dir);
    qi_relock(store);
    if (!error && looked.name && lacks_name(queue)) {
        memcpy(queue->identity, looked.identity, QI_IDENTITY_SIZE);
        qi_free(queue->name);
        queue->name = looked.name;
        queue->name_size = looked.name_size;
        looked.name = NULL;
    }
    qi_free(looked.name);
    return error;
}

int qi_store_queues(struct qi_store *store) {
    qi_lock(store);
    int error = qi_list_queues(store);
    store->looking++;
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        if (!lacks_name(queue))
            continue;
        do
            error = look_up_name(queue);
        while (error && qi_files_gave(store, queue));
        if (error && !qi_error_is_crowded())
            error = 0; /* the name stays empty; opening says why */
        if (!error)
            error = qi_store_usable(store, false);
    }
    store->looking--;
    pthread_cond_broadcast(&store->changed);
    if (!error)
        qi_miss_queues(store);
    int count = (int)store->queues_count;
    qi_unlock(store);
    return error ? error : count;
}

/* 1: it is there, 0: it is not, or an error. */
static int look_for(struct qi_store *store, const char *name, size_t name_size,
                    const char *directory) {
    struct qi_queue looked = {.store = store};
    memcpy(looked.directory, directory, 33);
    bool of_dir;
    int error = read_name(&looked, qi_file_of_name(name, name_size, directory, NULL), &of_dir);
    bool exists = !error && looked.name && looked.name_size == name_size &&
                  memcmp(looked.name, name, name_size) == 0;
    qi_free(looked.name);
    bool unknown = of_dir || error == QI_E_MEMORY || qi_error_is_crowded();
    return error && unknown ? error : exists;
}

int qi_queue_exists(struct qi_store *store, const char *name, size_t name_size,
                    const char *directory) {
    if (!qi_is_queue_directory(directory))
        return qi_fail(QI_E_ARGUMENT, "a queue's directory has 32 hex digits");
    qi_lock(store);
    int exists = qi_store_usable(store, false);
    struct qi_queue *queue = exists < 0 ? NULL : qi_find_queue(store, directory);
    while (queue && queue->creating && exists == 0) {
        exists = qi_queue_created(queue);
        queue = exists < 0 ? NULL : qi_find_queue(store, directory);
    }
    if (queue && queue->name_size > 0) {
        exists = 1;
    } else if (exists == 0) {
        qi_files_room(store, NULL);
        do
            exists = look_for(store, name, name_size, directory);
        while (exists < 0 && qi_files_gave(store, NULL));
    }
    qi_unlock(store);
    return exists;
}

int qi_store_queue_name(struct qi_store *store, uint32_t index, char *name, size_t room,
                        char *directory) {
    qi_lock(store);
    struct qi_queue *queue = index < store->queues_count ? store->queues[index] : NULL;
    int result = QI_E_MISSING;
    if (queue && !queue->deleted && queue->name_size <= room) {
        memcpy(name, queue->name, queue->name_size);
        memcpy(directory, queue->directory, 33);
        result = (int)queue->name_size;
    }
    qi_unlock(store);
    return result;
}
