/* sim_sync.c - what is durable after a sync of one file, one directory, or everything. */
#include <errno.h>

#include "proof/sim/disk_sim.h"

/* False: no memory. */
static bool bytes_are_durable(struct qi_sim_node *node) {
    if (node->changes_count == 0)
        return true;
    qi_sim_release(node->stale);
    node->stale = node->durable;
    node->durable = qi_sim_share(node->dropped ? node->stale : node->cache);
    if (node->dropped && !qi_sim_write_pages(node))
        return false;
    qi_sim_forget_changes(node);
    return true;
}

static bool names_are_durable(struct qi_sim_node *node) {
    node->name_changes_count = 0;
    return qi_sim_names_copy(&node->durable_names, &node->names);
}

int qi_sim_sync_file(struct qi_disk *disk, int file) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "sync", true);
    struct qi_sim_node *node = qi_sim_node_of(sim, file);
    qi_sim_observe_node(node);
    if (error == -EIO || error == -ENOSPC)
        qi_sim_fail_sync(node); /* they stay in the cache, and no later sync writes them */
    if (error)
        return error;
    if (!bytes_are_durable(node))
        return -ENOMEM;
    if (sim->watch && !sim->watching)
        qi_sim_trouble(sim, "synced", false);
    return 0;
}

int qi_sim_sync_dir(struct qi_disk *disk, int dir) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "sync_dir", true);
    struct qi_sim_node *node = qi_sim_node_of(sim, dir);
    if (error)
        return error;
    return names_are_durable(node) ? 0 : -ENOMEM;
}

int qi_sim_sync_all(struct qi_disk *disk, int dir) {
    struct qi_sim *sim = qi_sim_of(disk);
    (void)qi_sim_node_of(sim, dir);
    if (sim->knobs.no_sync_all)
        return -EOPNOTSUPP;
    qi_sim_observe(sim);
    int error = qi_sim_trouble(sim, "sync_all", true);
    int unseen = sim->failed_unseen ? -EIO : 0; /* what is written now is durable all the same */
    sim->failed_unseen = false;
    for (int i = 0; i < sim->nodes_count; i++) {
        struct qi_sim_node *node = &sim->nodes[i];
        if (!node->used)
            continue;
        if (error && !node->dir)
            qi_sim_fail_sync(node);
        else if (!error && !(node->dir ? names_are_durable(node) : bytes_are_durable(node)))
            return -ENOMEM;
    }
    if (!error && sim->watch && !sim->watching)
        qi_sim_trouble(sim, "synced", false);
    return error ? error : unseen;
}
