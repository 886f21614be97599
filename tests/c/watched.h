/* watched.h - a simulated disk that counts syncs and refuses files by their names. */
#ifndef QI_TEST_WATCHED_H
#define QI_TEST_WATCHED_H

#include <errno.h>
#include <string.h>

#include "proof/sim/disk_sim.h"

static qi_sim *sim;
static struct qi_disk_ops real, ours;
static uint32_t syncs;
static const char *full; /* new files with names like this cannot grow */

static int count_sync(struct qi_disk *disk, int file) {
    syncs++;
    return real.sync(disk, file);
}

static int open_unless_full(struct qi_disk *disk, int dir, const char *name,
                            enum qi_open_mode mode) {
    bool refused = full && mode == QI_OPEN_FRESH && strstr(name, full);
    return refused ? -ENOSPC : real.open(disk, dir, name, mode);
}

static void watch_calls(void) {
    real = *sim->disk.ops;
    ours = real;
    ours.sync = count_sync;
    ours.open = open_unless_full;
    sim->disk.ops = &ours;
}

#endif
