/* sim_faults.c - calls that fail, and files that are damaged behind the engine's back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proof/sim/disk_sim.h"

/* ---- calls ---- */

static void look(struct qi_sim *sim, const char *call, bool after) {
    if (!sim->watch || sim->watching)
        return;
    sim->watching = true;
    sim->watch(sim->watch_context, sim, call, after);
    sim->watching = false;
}

static int fault_of(const struct qi_sim *sim, const char *call) {
    bool takes_space = strcmp(call, "write") == 0 || strcmp(call, "allocate") == 0 ||
                       strcmp(call, "zero") == 0 || strcmp(call, "create") == 0 ||
                       strcmp(call, "make_dir") == 0 || strcmp(call, "rename") == 0;
    switch (sim->fault_kind) {
    case QI_SIM_ENOSPC:
        return takes_space ? -ENOSPC : 0;
    case QI_SIM_SHORT:
        return strcmp(call, "write") == 0 ? -QI_SIM_SHORT : takes_space ? -ENOSPC : 0;
    case QI_SIM_EINTR:
        return -EINTR;
    case QI_SIM_EVICTED:
        return strcmp(call, "close") == 0 ? -QI_SIM_EVICTED : 0;
    case QI_SIM_ENOMEM:
        return -ENOMEM;
    default:
        return -EIO;
    }
}

int qi_sim_trouble(struct qi_sim *sim, const char *call, bool change) {
    bool after = strcmp(call, "synced") == 0;
    if ((change || after) && sim->watch)
        qi_sim_observe(sim);
    if (after) {
        look(sim, call, true);
        return 0;
    }
    if (change) {
        sim->changes++;
        if (sim->crash_at > 0 && --sim->crash_at == 0) {
            qi_sim_free(sim->taken);
            sim->taken = qi_sim_crash(sim, sim->crash_seed, sim->crash_mode);
        }
        look(sim, call, false);
    }
    sim->calls++;
    if (sim->fail_sync && strncmp(call, "sync", 4) == 0 && --sim->fail_sync == 0)
        return -EIO;
    if (sim->fault_at == 0 || sim->calls < sim->fault_at ||
        (sim->calls > sim->fault_at && !sim->fault_sticky))
        return 0;
    int error = fault_of(sim, call);
    if (error) {
        if (sim->fault_hits++ == 0)
            sim->fault_first = call;
        sim->fault_lost = sim->fault_lost || strncmp(call, "sync", 4) == 0;
    }
    return error;
}

void qi_sim_fill(qi_sim *sim) {
    sim->knobs.capacity = qi_sim_used_bytes(sim);
}

void qi_sim_fault(qi_sim *sim, uint64_t n, int kind, bool sticky) {
    sim->fault_at = kind ? sim->calls + n : 0;
    sim->fault_kind = kind;
    sim->fault_sticky = sticky;
}

uint64_t qi_sim_calls(const qi_sim *sim) {
    return sim->calls;
}

uint64_t qi_sim_changes(const qi_sim *sim) {
    return sim->changes;
}

void qi_sim_crash_at(qi_sim *sim, uint64_t n, uint64_t seed, int mode) {
    qi_sim_free(sim->taken);
    sim->taken = NULL;
    sim->crash_at = n;
    sim->crash_seed = seed;
    sim->crash_mode = mode;
}

qi_sim *qi_sim_taken(qi_sim *sim) {
    struct qi_sim *taken = sim->taken;
    sim->taken = NULL;
    return taken;
}

void qi_sim_advance(qi_sim *sim, uint64_t us) {
    sim->wall_us += us;
    sim->monotonic_us += us;
}

void qi_sim_set_wall(qi_sim *sim, uint64_t us) {
    sim->wall_us = us;
}

/* ---- the walk over all files ---- */

struct walk {
    const char *where; /* part of the path */
    uint32_t index;    /* how many more to pass by */
    int dir, node;     /* found */
    char path[160], name[QI_SIM_NAME];
};

static bool walk_dir(struct qi_sim *sim, struct walk *walk, int dir, const char *path) {
    const struct qi_sim_names *names = &sim->nodes[dir].names;
    for (uint32_t i = 0; i < names->count; i++) {
        const struct qi_sim_name *name = &names->items[i];
        char full[sizeof walk->path];
        snprintf(full, sizeof full, "%s%s%s", path, path[0] ? "/" : "", name->name);
        if (sim->nodes[name->node].dir) {
            if (walk_dir(sim, walk, name->node, full))
                return true;
            continue;
        }
        if (!strstr(full, walk->where) || walk->index-- > 0)
            continue;
        walk->dir = dir;
        walk->node = name->node;
        memcpy(walk->path, full, sizeof full);
        memcpy(walk->name, name->name, sizeof walk->name);
        return true;
    }
    return false;
}

int qi_sim_file(qi_sim *sim, uint32_t index, char *path, size_t room, const void **bytes,
                uint64_t *size) {
    struct walk walk = {.where = "", .index = index};
    qi_sim_observe(sim);
    if (!walk_dir(sim, &walk, 0, ""))
        return QI_EMPTY;
    const struct qi_sim_bytes *cache = sim->nodes[walk.node].cache;
    snprintf(path, room, "%s", walk.path);
    *bytes = cache ? cache->at : NULL;
    *size = qi_sim_size(cache);
    return 0;
}

/* ---- damage ---- */

/* The file has these bytes now, on the medium and in the cache. */
static void set_bytes(struct qi_sim_node *node, struct qi_sim_bytes *bytes) {
    qi_sim_release(node->cache);
    qi_sim_release(node->durable);
    qi_sim_forget_changes(node);
    node->cache = bytes;
    node->durable = qi_sim_share(bytes);
}

static bool choose(qi_sim *sim, const char *where, uint64_t *random, struct walk *walk) {
    uint32_t count = 0;
    do {
        *walk = (struct walk){.where = where, .index = count};
    } while (walk_dir(sim, walk, 0, "") && ++count);
    if (count == 0)
        return false;
    *walk = (struct walk){.where = where, .index = (uint32_t)qi_sim_below(random, count)};
    return walk_dir(sim, walk, 0, "");
}

static int damage_sector(qi_sim *sim, int kind, uint64_t *random, struct walk *walk, char *text,
                         size_t room) {
    struct qi_sim_node *node = &sim->nodes[walk->node];
    uint64_t size = qi_sim_size(node->durable);
    uint64_t at = qi_sim_below(random, (size + 511) / 512) * 512,
             length = size - at < 512 ? size - at : 512;
    uint8_t sector[512] = {0};
    struct walk other;
    const struct qi_sim_bytes *from = node->stale;
    uint64_t from_at = at;
    if (kind == QI_SIM_MISDIRECTED) {
        if (!choose(sim, "", random, &other))
            return QI_E_MISSING;
        from = sim->nodes[other.node].durable;
        from_at = qi_sim_below(random, (qi_sim_size(from) + 511) / 512) * 512;
    }
    if (kind != QI_SIM_ZERO_SECTOR && qi_sim_size(from) > from_at) {
        uint64_t have = from->size - from_at;
        memcpy(sector, from->at + from_at, have < length ? have : length);
    }
    if (memcmp(node->durable->at + at, sector, length) == 0)
        return QI_E_MISSING;
    struct qi_sim_bytes *bytes = qi_sim_share(node->durable);
    if (!qi_sim_put(&bytes, sector, length, at))
        return QI_E_MEMORY;
    set_bytes(node, bytes);
    static const char *const names[] = {[QI_SIM_ZERO_SECTOR] = "zeros",
                                        [QI_SIM_STALE_SECTOR] = "older bytes",
                                        [QI_SIM_MISDIRECTED] = "bytes of another place"};
    snprintf(text, room, "%s: %s at %llu", walk->path, names[kind], (unsigned long long)at);
    return 0;
}

static int flip_bit(struct qi_sim_node *node, uint64_t *random, const char *path, char *text,
                    size_t room) {
    uint64_t at = qi_sim_below(random, node->durable->size);
    uint8_t bit = (uint8_t)(1u << qi_sim_below(random, 8));
    uint8_t byte = node->durable->at[at] ^ bit;
    struct qi_sim_bytes *bytes = qi_sim_share(node->durable);
    if (!qi_sim_put(&bytes, &byte, 1, at))
        return QI_E_MEMORY;
    set_bytes(node, bytes);
    snprintf(text, room, "%s: bit %#x of byte %llu flipped", path, bit, (unsigned long long)at);
    return 0;
}

static int swap_files(qi_sim *sim, uint64_t *random, const struct walk *walk, char *text,
                      size_t room) {
    struct walk other;
    if (!choose(sim, walk->where, random, &other) || other.node == walk->node)
        return QI_E_MISSING;
    struct qi_sim_node *one = &sim->nodes[walk->node], *two = &sim->nodes[other.node];
    struct qi_sim_bytes *bytes = qi_sim_share(one->durable);
    set_bytes(one, qi_sim_share(two->durable));
    set_bytes(two, bytes);
    snprintf(text, room, "%s and %s have changed places", walk->path, other.path);
    return 0;
}

int qi_sim_damage(qi_sim *sim, int kind, uint64_t seed, const char *where, char *text,
                  size_t room) {
    uint64_t random = seed;
    struct walk walk;
    if (!choose(sim, where, &random, &walk))
        return QI_E_MISSING;
    struct qi_sim_node *node = &sim->nodes[walk.node];
    if (node->handles > 0)
        return QI_E_MISSING;
    if (kind == QI_SIM_MISSING_FILE) {
        qi_sim_names_clear(&sim->nodes[walk.dir].names, walk.name);
        qi_sim_names_clear(&sim->nodes[walk.dir].durable_names, walk.name);
        node->links = 0;
        snprintf(text, room, "%s: removed", walk.path);
        return 0;
    }
    if (qi_sim_size(node->durable) == 0)
        return QI_E_MISSING;
    if (kind == QI_SIM_SWAPPED_FILES)
        return swap_files(sim, &random, &walk, text, room);
    if (kind == QI_SIM_BIT_FLIP)
        return flip_bit(node, &random, walk.path, text, room);
    if (kind != QI_SIM_LOST_WRITE)
        return damage_sector(sim, kind, &random, &walk, text, room);
    if (!node->stale)
        return QI_E_MISSING;
    set_bytes(node, qi_sim_share(node->stale));
    snprintf(text, room, "%s: as it was before the last sync", walk.path);
    return 0;
}
