/* sim_image.c - what a power cut or a kill leaves.
 *
 * Per file one of: nothing of what was not synced, all of it, a prefix torn at a byte, any subset
 * of its sectors, the same with the size already grown. Per directory: none, all, a prefix or any
 * subset of its changes of names, and the directories do not wait for each other or for files.
 * Bytes that did not change are shared with the original.
 */
#include <stdlib.h>
#include <string.h>

#include "proof/sim/disk_sim.h"

#define PAGE   UINT64_C(4096)
#define SECTOR UINT64_C(512)

/* One power cut. */
struct cut {
    struct qi_sim *from, *to;
    uint64_t random;
    int mode;
};

static bool chance(struct cut *cut, uint32_t of16) {
    return qi_sim_below(&cut->random, 16) < of16;
}

static int pick_mode(struct cut *cut) {
    static const int modes[16] = {
        QI_SIM_NOTHING,    QI_SIM_NOTHING,   QI_SIM_NOTHING,    QI_SIM_ALL,
        QI_SIM_ALL,        QI_SIM_ALL,       QI_SIM_PREFIX,     QI_SIM_PREFIX,
        QI_SIM_PREFIX,     QI_SIM_PREFIX,    QI_SIM_SECTORS512, QI_SIM_SECTORS512,
        QI_SIM_SECTORS512, QI_SIM_SECTORS4K, QI_SIM_ZEROS,      QI_SIM_ZEROS};
    return cut->mode != QI_SIM_MIXED ? cut->mode : modes[qi_sim_below(&cut->random, 16)];
}

/* ---- bytes of one file ---- */

static bool play(struct qi_sim_bytes **bytes, const struct qi_sim_node *node,
                 const struct qi_sim_change *change) {
    if (change->resize)
        return qi_sim_resize(bytes, change->length);
    return qi_sim_put(bytes, node->log + change->log, change->length, change->offset);
}

/* A write that begins with whole sectors is torn between two of them: no disk tears one. A smaller
 * write may be torn anywhere, since the kernel may write a page back in the middle of it. */
static bool play_prefix(struct cut *cut, struct qi_sim_bytes **bytes,
                        const struct qi_sim_node *node) {
    uint32_t whole = (uint32_t)qi_sim_below(&cut->random, node->changes_count);
    for (uint32_t i = 0; i < whole; i++)
        if (!play(bytes, node, &node->changes[i]))
            return false;
    struct qi_sim_change torn = node->changes[whole];
    if (!torn.resize)
        torn.length = qi_sim_below(&cut->random, torn.length + 1);
    uint64_t length = node->changes[whole].length;
    if (!torn.resize && torn.offset % SECTOR == 0 && length >= SECTOR && torn.length < length)
        torn.length -= torn.length % SECTOR;
    return (torn.length == 0 && !torn.resize) || play(bytes, node, &torn);
}

/* Which sectors of a write reach the medium; returns how far the file reaches then. */
static bool play_write(struct cut *cut, struct qi_sim_bytes **bytes, const struct qi_sim_node *node,
                       const struct qi_sim_change *change, uint64_t sector, uint32_t likely,
                       uint64_t *size) {
    uint64_t at = change->offset, end = change->offset + change->length;
    while (at < end) {
        uint64_t stop = (at / sector + 1) * sector;
        stop = stop < end ? stop : end;
        if (chance(cut, likely)) {
            if (!qi_sim_put(bytes, node->log + change->log + (at - change->offset), stop - at, at))
                return false;
            if (change->extends && stop > *size)
                *size = stop;
        }
        at = stop;
    }
    return true;
}

/* Each sector of each write reaches the medium or not, and so does each new size. A write into
 * allocated space does not make the file longer if the allocation is lost. */
static bool play_sectors(struct cut *cut, struct qi_sim_bytes **bytes,
                         const struct qi_sim_node *node, uint64_t sector) {
    static const uint32_t odds[4] = {2, 8, 14, 15};
    uint32_t likely = odds[qi_sim_below(&cut->random, 4)];
    uint64_t size = qi_sim_size(*bytes);
    for (uint32_t i = 0; i < node->changes_count; i++) {
        const struct qi_sim_change *change = &node->changes[i];
        if (!change->resize) {
            if (!play_write(cut, bytes, node, change, sector, likely, &size))
                return false;
        } else if (chance(cut, likely)) {
            size = change->length;
            if (size < qi_sim_size(*bytes) && !qi_sim_resize(bytes, size))
                return false;
        }
    }
    return qi_sim_resize(bytes, size);
}

/* The bytes that the medium has; the caller owns them. */
static bool cut_file(struct cut *cut, const struct qi_sim_node *node, struct qi_sim_bytes **bytes) {
    *bytes = qi_sim_share(node->durable);
    int mode = pick_mode(cut);
    if (node->changes_count == 0 || mode == QI_SIM_NOTHING)
        return true;
    if (mode == QI_SIM_PREFIX)
        return play_prefix(cut, bytes, node);
    if (mode != QI_SIM_ALL) {
        uint64_t sector =
            mode == QI_SIM_SECTORS4K || (mode == QI_SIM_ZEROS && chance(cut, 8)) ? PAGE : SECTOR;
        if (!play_sectors(cut, bytes, node, sector))
            return false;
        uint64_t size = qi_sim_size(node->cache);
        return mode != QI_SIM_ZEROS || qi_sim_size(*bytes) >= size || qi_sim_resize(bytes, size);
    }
    for (uint32_t i = 0; i < node->changes_count; i++)
        if (!play(bytes, node, &node->changes[i]))
            return false;
    return true;
}

/* ---- names ---- */

static bool cut_names(struct cut *cut, const struct qi_sim_node *node, struct qi_sim_names *names) {
    if (!qi_sim_names_copy(names, &node->durable_names))
        return false;
    uint32_t count = node->name_changes_count, whole = count;
    uint64_t way = qi_sim_below(&cut->random, 4);
    if (count == 0 || cut->mode == QI_SIM_NOTHING || (cut->mode != QI_SIM_ALL && way == 0))
        return true;
    bool subset = cut->mode != QI_SIM_ALL && way == 3;
    if (cut->mode != QI_SIM_ALL && way == 1)
        whole = (uint32_t)qi_sim_below(&cut->random, count + 1);
    for (uint32_t i = 0; i < whole; i++)
        if (!subset || chance(cut, 8))
            qi_sim_apply_name(names, &node->name_changes[i]);
    return true;
}

static int cut_node(struct cut *cut, int number);

static bool cut_dir(struct cut *cut, int number, int made) {
    struct qi_sim_names names = {0};
    bool done = cut_names(cut, &cut->from->nodes[number], &names);
    for (uint32_t i = 0; done && i < names.count; i++) {
        int child = cut_node(cut, names.items[i].node);
        done = child >= 0;
        names.items[i].node = child;
        if (done)
            cut->to->nodes[child].links = 1;
    }
    cut->to->nodes[made].names = names;
    return done && qi_sim_names_copy(&cut->to->nodes[made].durable_names, &names);
}

static int cut_node(struct cut *cut, int number) {
    const struct qi_sim_node *node = &cut->from->nodes[number];
    int made = number == 0 ? 0 : qi_sim_make_node(cut->to, node->dir);
    if (made < 0)
        return -1;
    if (node->dir)
        return cut_dir(cut, number, made) ? made : -1;
    struct qi_sim_bytes *bytes = NULL;
    bool done = cut_file(cut, node, &bytes);
    struct qi_sim_node *copy = &cut->to->nodes[made];
    copy->durable = bytes;
    copy->cache = qi_sim_share(bytes);
    copy->stale = qi_sim_share(node->stale);
    return done ? made : -1;
}

struct qi_sim *qi_sim_copy(const struct qi_sim *sim) {
    struct qi_sim *copy = qi_sim_new(sim->random, &sim->knobs);
    if (copy) {
        copy->wall_us = sim->wall_us;
        copy->monotonic_us = sim->monotonic_us;
    }
    return copy;
}

qi_sim *qi_sim_crash(qi_sim *sim, uint64_t seed, int mode) {
    qi_sim_observe(sim);
    struct cut cut = {.from = sim, .to = qi_sim_copy(sim), .random = seed, .mode = mode};
    if (cut.to && cut_node(&cut, 0) < 0) {
        qi_sim_free(cut.to);
        return NULL;
    }
    if (cut.to)
        cut.to->random = cut.random;
    return cut.to;
}

/* ---- kill ---- */

static void *duplicate(const void *from, size_t size) {
    void *copy = malloc(size ? size : 1);
    if (copy && size)
        memcpy(copy, from, size);
    return copy;
}

/* A file that nobody can reach any more is not copied. */
static bool copy_node(const struct qi_sim_node *node, struct qi_sim_node *copy) {
    *copy = (struct qi_sim_node){.dir = node->dir,
                                 .used = node->used,
                                 .links = node->links,
                                 .locked_by = -1,
                                 .dropped = node->dropped,
                                 .stuck = node->stuck,
                                 .stuck_end = node->stuck_end,
                                 .cache = qi_sim_share(node->cache),
                                 .durable = qi_sim_share(node->durable),
                                 .stale = qi_sim_share(node->stale)};
    copy->changes = duplicate(node->changes, node->changes_count * sizeof *node->changes);
    copy->changes_count = copy->changes_room = node->changes_count;
    copy->log = duplicate(node->log, node->log_size);
    copy->log_size = copy->log_room = node->log_size;
    copy->name_changes =
        duplicate(node->name_changes, node->name_changes_count * sizeof *node->name_changes);
    copy->name_changes_count = copy->name_changes_room = node->name_changes_count;
    return copy->changes && copy->log && copy->name_changes &&
           qi_sim_names_copy(&copy->names, &node->names) &&
           qi_sim_names_copy(&copy->durable_names, &node->durable_names);
}

qi_sim *qi_sim_kill(qi_sim *sim) {
    qi_sim_observe(sim);
    struct qi_sim *copy = qi_sim_copy(sim);
    bool done = copy != NULL;
    for (int i = 0; done && i < sim->nodes_count; i++) {
        int made = i == 0 ? 0 : qi_sim_make_node(copy, sim->nodes[i].dir);
        done = made == i && copy_node(&sim->nodes[i], &copy->nodes[i]);
    }
    if (copy && !done) {
        qi_sim_free(copy);
        return NULL;
    }
    return copy;
}
