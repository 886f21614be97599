/* sim_file.c - bytes, changes and names of the simulated disk.
 *
 * Bytes are shared between copies of a disk (the cache and the medium of a synced file are the same
 * object), so that a crash image costs what changed. Whoever writes first gets a copy of its
 * own. */
#include <stdlib.h>
#include <string.h>

#include "proof/sim/disk_sim.h"

#define SECTOR 512u

uint64_t qi_sim_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15); /* splitmix64 */
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* ---- bytes ---- */

struct qi_sim_bytes *qi_sim_share(struct qi_sim_bytes *bytes) {
    if (bytes)
        bytes->owners++;
    return bytes;
}

void qi_sim_release(struct qi_sim_bytes *bytes) {
    if (bytes && --bytes->owners == 0)
        free(bytes);
}

bool qi_sim_resize(struct qi_sim_bytes **bytes, uint64_t size) {
    struct qi_sim_bytes *old = *bytes;
    uint64_t before = qi_sim_size(old);
    if (!old || old->owners > 1 || old->room < size) {
        uint64_t room = size < 4096 ? 4096 : size + size / 2;
        struct qi_sim_bytes *own = malloc(sizeof *own + room);
        if (!own)
            return false;
        *own =
            (struct qi_sim_bytes){.owners = 1, .size = before < size ? before : size, .room = room};
        if (own->size)
            memcpy(own->at, old->at, own->size);
        qi_sim_release(old);
        *bytes = old = own;
    }
    if (size > old->size)
        memset(old->at + old->size, 0, size - old->size);
    old->size = size;
    return true;
}

bool qi_sim_put(struct qi_sim_bytes **bytes, const void *from, uint64_t length, uint64_t offset) {
    uint64_t size = qi_sim_size(*bytes);
    if (!qi_sim_resize(bytes, offset + length > size ? offset + length : size))
        return false;
    memcpy((*bytes)->at + offset, from, length);
    return true;
}

uint64_t qi_sim_used_bytes(const struct qi_sim *sim) {
    uint64_t used = 0;
    for (int i = 0; i < sim->nodes_count; i++)
        if (sim->nodes[i].links || sim->nodes[i].handles)
            used += qi_sim_size(sim->nodes[i].cache);
    return used;
}

/* ---- changes of a file ---- */

static struct qi_sim_change *add_change(struct qi_sim_node *node) {
    if (node->changes_count == node->changes_room) {
        uint32_t room = node->changes_room ? node->changes_room * 2 : 16;
        struct qi_sim_change *changes = realloc(node->changes, room * sizeof *changes);
        if (!changes)
            return NULL;
        node->changes = changes;
        node->changes_room = room;
    }
    return &node->changes[node->changes_count++];
}

bool qi_sim_change_bytes(struct qi_sim_node *node, const void *from, uint64_t length,
                         uint64_t offset) {
    if (length == 0)
        return true;
    if (node->log_size + length > node->log_room) {
        uint64_t room = (node->log_size + length) * 2;
        uint8_t *log = realloc(node->log, room);
        if (!log)
            return false;
        node->log = log;
        node->log_room = room;
    }
    struct qi_sim_change *change = add_change(node);
    if (!change)
        return false;
    *change = (struct qi_sim_change){.extends = offset + length > qi_sim_size(node->cache),
                                     .offset = offset,
                                     .length = length,
                                     .log = node->log_size};
    memcpy(node->log + node->log_size, from, length);
    node->log_size += length;
    return qi_sim_put(&node->cache, from, length, offset);
}

bool qi_sim_change_size(struct qi_sim_node *node, uint64_t size) {
    if (size == qi_sim_size(node->cache))
        return true;
    struct qi_sim_change *change = add_change(node);
    if (!change)
        return false;
    *change = (struct qi_sim_change){.resize = true, .length = size};
    if (node->mapping && size < qi_sim_size(node->cache)) /* as the kernel does */
        memset(node->mapping + size, 0, qi_sim_size(node->cache) - size);
    return qi_sim_resize(&node->cache, size);
}

void qi_sim_forget_changes(struct qi_sim_node *node) {
    node->changes_count = 0;
    node->log_size = 0;
}

/* Sector by sector; neighbours that changed are one write, as a loop of stores is for who looks
 * later. */
void qi_sim_observe_node(struct qi_sim_node *node) {
    uint64_t size = qi_sim_size(node->cache);
    if (size > node->mapped)
        size = node->mapped;
    if (!node->mapping || size == 0 || memcmp(node->mapping, node->cache->at, size) == 0)
        return;
    for (uint64_t at = 0; at < size;) {
        uint64_t end = at;
        while (end < size) {
            uint64_t step = size - end < SECTOR ? size - end : SECTOR;
            if (memcmp(node->mapping + end, node->cache->at + end, step) == 0)
                break;
            end += step;
        }
        qi_sim_change_bytes(node, node->mapping + at, end - at, at);
        at = end == at ? at + SECTOR : end;
    }
}

void qi_sim_observe(struct qi_sim *sim) {
    for (int i = 0; i < sim->nodes_count; i++)
        if (sim->nodes[i].mapping)
            qi_sim_observe_node(&sim->nodes[i]);
}

void qi_sim_show_in_mapping(struct qi_sim_node *node) {
    uint64_t size = qi_sim_size(node->cache);
    if (size > node->mapped)
        size = node->mapped;
    if (size > 0)
        memcpy(node->mapping, node->cache->at, size);
}

/* ---- names ---- */

int qi_sim_names_find(const struct qi_sim_names *names, const char *name) {
    for (uint32_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i].name, name) == 0)
            return (int)i;
    return -1;
}

bool qi_sim_names_set(struct qi_sim_names *names, const char *name, int node) {
    int at = qi_sim_names_find(names, name);
    if (at < 0 && names->count == names->room) {
        uint32_t room = names->room ? names->room * 2 : 8;
        struct qi_sim_name *items = realloc(names->items, room * sizeof *items);
        if (!items)
            return false;
        names->items = items;
        names->room = room;
    }
    if (at < 0) {
        at = (int)names->count++;
        strncpy(names->items[at].name, name, QI_SIM_NAME - 1);
        names->items[at].name[QI_SIM_NAME - 1] = 0;
    }
    names->items[at].node = node;
    return true;
}

void qi_sim_names_clear(struct qi_sim_names *names, const char *name) {
    int at = qi_sim_names_find(names, name);
    if (at >= 0)
        names->items[at] = names->items[--names->count];
}

bool qi_sim_names_copy(struct qi_sim_names *to, const struct qi_sim_names *from) {
    if (to->room < from->count) {
        struct qi_sim_name *items = realloc(to->items, from->count * sizeof *items);
        if (!items)
            return false;
        to->items = items;
        to->room = from->count;
    }
    if (from->count)
        memcpy(to->items, from->items, from->count * sizeof *from->items);
    to->count = from->count;
    return true;
}

void qi_sim_apply_name(struct qi_sim_names *names, const struct qi_sim_name_change *change) {
    if (change->from[0])
        qi_sim_names_clear(names, change->from);
    if (change->node >= 0)
        qi_sim_names_set(names, change->name, change->node);
    else
        qi_sim_names_clear(names, change->name);
}

bool qi_sim_change_name(struct qi_sim *sim, int dir, const char *name, const char *from, int node) {
    struct qi_sim_node *parent = &sim->nodes[dir];
    if (parent->name_changes_count == parent->name_changes_room) {
        uint32_t room = parent->name_changes_room ? parent->name_changes_room * 2 : 8;
        struct qi_sim_name_change *changes = realloc(parent->name_changes, room * sizeof *changes);
        if (!changes)
            return false;
        parent->name_changes = changes;
        parent->name_changes_room = room;
    }
    struct qi_sim_name_change *change = &parent->name_changes[parent->name_changes_count];
    *change = (struct qi_sim_name_change){.node = node};
    strncpy(change->name, name, QI_SIM_NAME - 1);
    strncpy(change->from, from, QI_SIM_NAME - 1);
    int replaced = qi_sim_names_find(&parent->names, name);
    if (replaced >= 0)
        sim->nodes[parent->names.items[replaced].node].links--;
    qi_sim_apply_name(&parent->names, change);
    if (node >= 0 && !from[0])
        sim->nodes[node].links++;
    parent->name_changes_count++;
    return true;
}

/* ---- nodes ---- */

int qi_sim_make_node(struct qi_sim *sim, bool dir) {
    if (sim->nodes_count == sim->nodes_room) {
        int room = sim->nodes_room ? sim->nodes_room * 2 : 64;
        struct qi_sim_node *nodes = realloc(sim->nodes, (size_t)room * sizeof *nodes);
        if (!nodes)
            return -1;
        sim->nodes = nodes;
        sim->nodes_room = room;
    }
    sim->nodes[sim->nodes_count] = (struct qi_sim_node){.dir = dir, .used = true, .locked_by = -1};
    return sim->nodes_count++;
}

void qi_sim_clear_node(struct qi_sim_node *node) {
    qi_sim_release(node->cache);
    qi_sim_release(node->durable);
    qi_sim_release(node->stale);
    free(node->changes);
    free(node->log);
    free(node->names.items);
    free(node->durable_names.items);
    free(node->name_changes);
    *node = (struct qi_sim_node){.locked_by = -1};
}

/* ---- syncs that fail ---- */

/* After a failed sync its pages count as written. Only a page that was changed since is written
 * again, whole; but not to blocks that were new: as ext4 has it, they stay zeros until the cache
 * forgets them. */
bool qi_sim_write_pages(struct qi_sim_node *node) {
    for (uint32_t i = 0; i < node->changes_count; i++) {
        const struct qi_sim_change *change = &node->changes[i];
        uint64_t size = qi_sim_size(node->cache), from = change->offset / 4096 * 4096,
                 end = (change->offset + change->length + 4095) / 4096 * 4096;
        if (change->resize && !qi_sim_resize(&node->durable, size))
            return false;
        if (change->resize || from >= size)
            continue;
        end = end < size ? end : size;
        if (end > qi_sim_size(node->durable) && !qi_sim_resize(&node->durable, end))
            return false;
        const uint64_t parts[2][2] = {{from, end < node->stuck ? end : node->stuck},
                                      {from > node->stuck_end ? from : node->stuck_end, end}};
        for (int k = 0; k < 2; k++)
            if (parts[k][0] < parts[k][1] &&
                !qi_sim_put(&node->durable, node->cache->at + parts[k][0],
                            parts[k][1] - parts[k][0], parts[k][0]))
                return false;
    }
    return true;
}

/* The cache forgets these bytes: what is written there comes to blocks again. */
void qi_sim_unstick(struct qi_sim_node *node, uint64_t from, uint64_t to) {
    if (from <= node->stuck && node->stuck < to)
        node->stuck = to;
    else if (from < node->stuck_end && node->stuck_end <= to)
        node->stuck_end = from;
}

void qi_sim_fail_sync(struct qi_sim_node *node) {
    if (node->changes_count == 0)
        return;
    uint64_t block = (qi_sim_size(node->durable) + 511) / 512 * 512;
    if (!node->dropped || block < node->stuck || node->stuck >= node->stuck_end)
        node->stuck = block;
    node->stuck_end = UINT64_MAX;
    node->dropped = true;
    qi_sim_forget_changes(node);
}

bool qi_sim_drop(struct qi_sim_node *node, uint64_t from, uint64_t to) {
    struct qi_sim_bytes *bytes = qi_sim_share(node->durable);
    uint64_t size = qi_sim_size(node->cache);
    const uint64_t stays[2][2] = {{0, from < size ? from : size}, {to < size ? to : size, size}};
    bool same = true;
    for (int i = 0; i < 2; i++) {
        uint64_t begin = stays[i][0], end = stays[i][1];
        if (begin == end || (end <= qi_sim_size(bytes) &&
                             memcmp(bytes->at + begin, node->cache->at + begin, end - begin) == 0))
            continue;
        same = false;
        if (!qi_sim_put(&bytes, node->cache->at + begin, end - begin, begin)) {
            qi_sim_release(bytes);
            return false;
        }
    }
    qi_sim_release(node->cache);
    node->cache = bytes;
    node->dropped = node->dropped && !same;
    qi_sim_unstick(node, from, to);
    if (node->mapping && qi_sim_size(bytes) < size)
        memset(node->mapping + qi_sim_size(bytes), 0, size - qi_sim_size(bytes));
    qi_sim_show_in_mapping(node);
    return true;
}
