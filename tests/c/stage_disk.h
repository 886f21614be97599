/* stage_disk.h - a simulated disk during whose calls another actor may come in, if the caller has
 * given up the store's lock. */
#ifndef STAGE_DISK_H
#define STAGE_DISK_H

#include "disk/disk.h"
#include "proof/sim/disk_sim.h"
#include "stage.h"

static struct qi_disk_ops real, ours;

static qi_store **store_on_stage;

static void between(void) {
    qi_store *store = *store_on_stage;
    if (is_played() && store && owner_of(&store->lock) != me)
        give_turn();
}

#define BETWEEN(result, name, parameters, arguments)                                               \
    static result do_##name parameters {                                                           \
        between();                                                                                 \
        return real.name arguments;                                                                \
    }

BETWEEN(int, open, (struct qi_disk * d, int dir, const char *name, enum qi_open_mode mode),
        (d, dir, name, mode))
BETWEEN(int, rename, (struct qi_disk * d, int dir, const char *from, int to_dir, const char *to),
        (d, dir, from, to_dir, to))
BETWEEN(int, unlink, (struct qi_disk * d, int dir, const char *name), (d, dir, name))
BETWEEN(int64_t, read, (struct qi_disk * d, int file, void *bytes, size_t length, uint64_t offset),
        (d, file, bytes, length, offset))
BETWEEN(int, write,
        (struct qi_disk * d, int file, const void *bytes, size_t length, uint64_t offset),
        (d, file, bytes, length, offset))
BETWEEN(int, truncate, (struct qi_disk * d, int file, uint64_t size), (d, file, size))
BETWEEN(int, zero, (struct qi_disk * d, int file, uint64_t from, uint64_t to), (d, file, from, to))
BETWEEN(int, sync, (struct qi_disk * d, int file), (d, file))
BETWEEN(int, sync_dir, (struct qi_disk * d, int dir), (d, dir))

/* `store`: that which is opened on it, later. */
static void stage_disk(qi_sim *sim, qi_store **store) {
    store_on_stage = store;
    real = *sim->disk.ops;
    ours = real;
    ours.open = do_open;
    ours.rename = do_rename;
    ours.unlink = do_unlink;
    ours.read = do_read;
    ours.write = do_write;
    ours.truncate = do_truncate;
    ours.zero = do_zero;
    ours.sync = do_sync;
    ours.sync_dir = do_sync_dir;
    sim->disk.ops = &ours;
}

#endif
