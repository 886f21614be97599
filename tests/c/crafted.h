/* crafted.h - a store on a simulated disk whose files are taken out, changed, sealed with right
 * checksums and put back. */
#ifndef CRAFTED_H
#define CRAFTED_H

#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "durable/durable.h"
#include "proof/sim/disk_sim.h"
#include "usual.h"

struct crafted {
    qi_sim *sim;
    qi_store *store;
    qi_queue *queue;
};

static int try_open(struct crafted *crafted, bool read_only, bool index_only) {
    qi_options options = usual();
    options.max_journal_entries = 1 << 20; /* nothing is flushed before a test says so */
    options.max_journal_bytes = 8 << 20;
    options.sync_interval_us = 5000; /* by a tick */
    options.read_only = read_only;
    options.index_only = index_only;
    options.create = !read_only;
    crafted->queue = NULL;
    int error = qi_store_open_sim(crafted->sim, &options, &crafted->store);
    assert(error == 0);
    return qi_queue_open(crafted->store, "a", 1, A, true, &crafted->queue);
}

static void open_it(struct crafted *crafted) {
    int error = try_open(crafted, false, false);
    if (error)
        fprintf(stderr, "%s\n", qi_error_text());
    assert(error == 0);
}

static void let_go(struct crafted *crafted) {
    qi_store_free(crafted->store);
}

static void close_it(struct crafted *crafted) {
    assert(qi_store_close(crafted->store) == 0);
    let_go(crafted);
}

static void publish_many(struct crafted *crafted, uint32_t count) {
    uint32_t sizes[64];
    uint8_t bodies[64 * 10] = {0};
    for (uint32_t i = 0; i < count; i++)
        sizes[i] = 10;
    assert(qi_publish_many(crafted->queue, count, bodies, sizes, NULL, NULL, 0, 0, 0, NULL, NULL) >=
           0);
}

/* A store whose queue has 20 messages in segments, and 5 in its journal. */
static struct crafted crafted_new(void) {
    struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
    open_it(&crafted);
    publish_many(&crafted, 20);
    assert(qi_flush(crafted.queue) == 0);
    publish_many(&crafted, 5);
    assert(qi_queue_sync(crafted.queue) == 0);
    return crafted;
}

static uint64_t depth_of(struct crafted *crafted) {
    qi_queue_stats stats;
    assert(qi_queue_stats_of(crafted->queue, &stats) == 0);
    return stats.depth;
}

static bool has_finding(struct crafted *crafted, bool of_damage, const char *words) {
    bool damage;
    const char *where, *text;
    uint64_t offset;
    for (uint32_t i = 0; qi_store_finding(crafted->store, i, &damage, &where, &offset, &text) == 0;
         i++)
        if (damage == of_damage && strstr(text, words))
            return true;
    return false;
}

static bool was_told(struct crafted *crafted, const char *words) {
    return has_finding(crafted, true, words);
}

/* ---- the cache ---- */

typedef int drop_cache_fn(struct qi_disk *disk, int file, uint64_t from, uint64_t to);

static const struct qi_disk_ops *plain_ops; /* of the disk, for who stands in for some of them */

static void open_with_drops_by(struct crafted *crafted, drop_cache_fn *drop_cache) {
    plain_ops = crafted->sim->disk.ops;
    struct qi_disk_ops ops = *plain_ops;
    ops.drop_cache = drop_cache;
    crafted->sim->disk.ops = &ops;
    open_it(crafted);
    crafted->sim->disk.ops = plain_ops;
}

/* ---- files ---- */

static uint8_t bytes[16 << 20];
static uint64_t size;

static int open_folder(struct crafted *crafted) {
    struct qi_disk *disk = &crafted->sim->disk;
    int root = disk->ops->open_root(disk, "/", false);
    int queues = disk->ops->open_dir(disk, root, "queues");
    int dir = disk->ops->open_dir(disk, queues, A);
    disk->ops->close(disk, queues);
    disk->ops->close(disk, root);
    return dir;
}

/* What works on a file of the queue's folder. */
static void with_file(struct crafted *crafted, const char *name, bool write) {
    struct qi_disk *disk = &crafted->sim->disk;
    int dir = open_folder(crafted);
    int file = disk->ops->open(disk, dir, name, write ? QI_OPEN_FRESH : QI_OPEN_READ);
    assert(file >= 0);
    if (write) {
        assert(disk->ops->write(disk, file, bytes, size, 0) == 0);
        assert(disk->ops->sync(disk, file) == 0 && disk->ops->sync_dir(disk, dir) == 0);
    } else {
        assert(disk->ops->size(disk, file, &size) == 0 && size <= sizeof bytes);
        assert(disk->ops->read(disk, file, bytes, size, 0) == (int64_t)size);
    }
    disk->ops->close(disk, file);
    disk->ops->close(disk, dir);
}

static uint32_t journal_seed(void) {
    return qi_frame_seed(bytes + QI_JH_IDENTITY, 0, qi_get64(bytes + QI_JH_EPOCH));
}

static uint32_t segment_seed(void) {
    return qi_frame_seed(bytes + QI_SH_IDENTITY, qi_get64(bytes + QI_SH_NUMBER),
                         qi_get64(bytes + QI_SH_EPOCH));
}

static uint32_t type_at(uint64_t offset) {
    return qi_get32(bytes + offset) >> 28;
}

static uint32_t length_at(uint64_t offset) {
    return qi_get32(bytes + offset) & QI_FRAME_LENGTH_MAX;
}

/* The last frame of that type from `offset` on; 0: there is none. */
static uint64_t last_frame(uint64_t offset, uint32_t type) {
    uint64_t found = 0;
    while (offset + QI_FRAME_HEADER <= size && type_at(offset) != 0) {
        if (type_at(offset) == type)
            found = offset;
        offset += QI_FRAME_HEADER + length_at(offset);
    }
    return found;
}

static uint64_t end_of_frames(uint64_t offset) {
    while (offset + QI_FRAME_HEADER <= size && type_at(offset) != 0)
        offset += QI_FRAME_HEADER + length_at(offset);
    return offset;
}

/* Puts a frame where the frames end, with zeros behind it. */
static void add_frame(uint64_t offset, uint32_t type, const void *payload, uint32_t length) {
    memcpy(bytes + offset + QI_FRAME_HEADER, payload, length);
    memset(bytes + offset + QI_FRAME_HEADER + length, 0, QI_FRAME_HEADER);
    qi_frame_seal(journal_seed(), bytes + offset, offset, type, length);
    if (size < offset + 2 * QI_FRAME_HEADER + length)
        size = offset + 2 * QI_FRAME_HEADER + length;
}

static void reseal(uint32_t seed, uint64_t offset) {
    qi_frame_seal(seed, bytes + offset, offset, type_at(offset), length_at(offset));
}

/* The journal that is appended to, in `bytes`; its name. */
static const char *load_journal(struct crafted *crafted) {
    static const char *const names[] = {"journal.jif", "journal.alt"};
    uint64_t epochs[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        with_file(crafted, names[i], false);
        epochs[i] = size >= QI_JOURNAL_START ? qi_get64(bytes + QI_JH_EPOCH) : 0;
    }
    const char *name = names[epochs[1] > epochs[0]];
    with_file(crafted, name, false);
    return name;
}

static inline bool is_there(struct crafted *crafted, const char *path) {
    char found[200];
    const void *data;
    uint64_t length;
    for (uint32_t i = 0; qi_sim_file(crafted->sim, i, found, sizeof found, &data, &length) == 0;
         i++)
        if (strcmp(found, path) == 0)
            return true;
    return false;
}

/* A rotation, and nobody flushed: both journals are needed. */
static inline struct crafted crafted_pair(void) {
    struct crafted crafted = crafted_new();
    qi_lock(crafted.store);
    assert(qi_flush_begin(crafted.queue, 0, 0) == 0);
    qi_unlock(crafted.store);
    publish_many(&crafted, 3);
    assert(qi_queue_sync(crafted.queue) == 0);
    publish_many(&crafted, 1); /* with a MARK before it */
    let_go(&crafted);
    return crafted;
}

#endif
