/* disk_sim.c - the door of disk.h, with a disk in memory behind it.
 *
 * Every call that can fail goes through qi_sim_trouble first: there calls are counted, faults
 * happen and a watcher takes crash images. What a call then does is what POSIX promises and not
 * more: a name is durable when its directory was synced, bytes and size when the file was.
 */
#define _GNU_SOURCE
#include "proof/sim/disk_sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int new_handle(struct qi_sim *sim, int node) {
    int handle = 0;
    while (handle < sim->handles_count && sim->handles[handle] >= 0)
        handle++;
    if (handle == sim->handles_room) {
        int room = sim->handles_room ? sim->handles_room * 2 : 32;
        int *handles = realloc(sim->handles, (size_t)room * sizeof *handles);
        if (!handles)
            return -ENOMEM;
        sim->handles = handles;
        sim->handles_room = room;
    }
    sim->handles_count += handle == sim->handles_count;
    sim->handles[handle] = node;
    sim->nodes[node].handles++;
    sim->disk.pool.open++;
    return handle;
}

struct qi_sim_node *qi_sim_node_of(struct qi_sim *sim, int handle) {
    bool open = handle >= 0 && handle < sim->handles_count && sim->handles[handle] >= 0;
    if (!open) { /* the engine used a handle after it closed it: nothing sensible can follow */
        fprintf(stderr, "simulated disk: handle %d is not open\n", handle);
        abort();
    }
    return &sim->nodes[sim->handles[handle]];
}

/* The node of a name in an open directory, or -ENOENT. */
static int look_up(struct qi_sim *sim, int dir, const char *name) {
    const struct qi_sim_names *names = &qi_sim_node_of(sim, dir)->names;
    int at = qi_sim_names_find(names, name);
    return at < 0 ? -ENOENT : names->items[at].node;
}

static bool is_full(const struct qi_sim *sim, uint64_t more) {
    return more > 0 && qi_sim_used_bytes(sim) + more > sim->knobs.capacity;
}

static int open_root(struct qi_disk *disk, const char *path, bool create) {
    struct qi_sim *sim = qi_sim_of(disk);
    (void)path;
    (void)create;
    int error = qi_sim_trouble(sim, "open_root", false);
    return error ? error : new_handle(sim, 0);
}

static int open_dir(struct qi_disk *disk, int parent, const char *name) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "open_dir", false);
    int node = error ? error : look_up(sim, parent, name);
    if (node >= 0 && !sim->nodes[node].dir)
        return -ENOTDIR;
    return node < 0 ? node : new_handle(sim, node);
}

static int add_node(struct qi_sim *sim, int dir, const char *name, bool is_dir) {
    int parent = sim->handles[dir];
    int node = qi_sim_make_node(sim, is_dir);
    if (node < 0 || !qi_sim_change_name(sim, parent, name, "", node))
        return -ENOMEM;
    return node;
}

static int make_dir(struct qi_disk *disk, int parent, const char *name) {
    struct qi_sim *sim = qi_sim_of(disk);
    bool exists = look_up(sim, parent, name) >= 0;
    int error = qi_sim_trouble(sim, "make_dir", !exists);
    if (error || exists)
        return error ? error : -EEXIST;
    int node = add_node(sim, parent, name, true);
    return node < 0 ? node : 0;
}

static int remove_name(struct qi_sim *sim, int dir, const char *name, bool is_dir,
                       const char *call) {
    int node = look_up(sim, dir, name);
    int error = qi_sim_trouble(sim, call, node >= 0);
    if (error || node < 0)
        return error ? error : node;
    if (sim->nodes[node].dir != is_dir)
        return is_dir ? -ENOTDIR : -EISDIR;
    if (is_dir && sim->nodes[node].names.count > 0)
        return -ENOTEMPTY;
    return qi_sim_change_name(sim, sim->handles[dir], name, "", -1) ? 0 : -ENOMEM;
}

static int remove_dir(struct qi_disk *disk, int parent, const char *name) {
    return remove_name(qi_sim_of(disk), parent, name, true, "remove_dir");
}

static int unlink_file(struct qi_disk *disk, int dir, const char *name) {
    return remove_name(qi_sim_of(disk), dir, name, false, "unlink");
}

static int list(struct qi_disk *disk, int dir, qi_list_fn each, void *context) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "list", false);
    if (error)
        return error;
    struct qi_sim_names copy = {0}; /* the caller may unlink what it is told */
    if (!qi_sim_names_copy(&copy, &qi_sim_node_of(sim, dir)->names))
        return -ENOMEM;
    for (uint32_t i = 0; i < copy.count; i++)
        each(context, copy.items[i].name);
    free(copy.items);
    return 0;
}

static uint64_t changed_us(struct qi_disk *disk, int dir) {
    (void)disk;
    (void)dir;
    return UINT64_MAX; /* not known */
}

static int open_file(struct qi_disk *disk, int dir, const char *name, enum qi_open_mode mode) {
    struct qi_sim *sim = qi_sim_of(disk);
    int node = look_up(sim, dir, name);
    bool creates = node < 0 && (mode == QI_OPEN_CREATE || mode == QI_OPEN_FRESH);
    bool empties = node >= 0 && mode == QI_OPEN_FRESH && qi_sim_size(sim->nodes[node].cache) > 0;
    int error = qi_sim_trouble(sim, creates ? "create" : "open", creates || empties);
    if (error)
        return error;
    if (creates)
        node = add_node(sim, dir, name, false);
    if (node < 0)
        return node;
    if (sim->nodes[node].dir)
        return mode == QI_OPEN_READ ? -EINVAL : -EISDIR;
    if (empties)
        qi_sim_unstick(&sim->nodes[node], 0, UINT64_MAX);
    if (empties && !qi_sim_change_size(&sim->nodes[node], 0))
        return -ENOMEM;
    return new_handle(sim, node);
}

static int rename_file(struct qi_disk *disk, int from_dir, const char *from, int to_dir,
                       const char *to) {
    struct qi_sim *sim = qi_sim_of(disk);
    int node = look_up(sim, from_dir, from), target = look_up(sim, to_dir, to);
    int error = qi_sim_trouble(sim, "rename", node >= 0);
    if (error || node < 0)
        return error ? error : node;
    if (target >= 0 && sim->nodes[target].dir && sim->nodes[target].names.count > 0)
        return -ENOTEMPTY;
    int parent = sim->handles[from_dir], new_parent = sim->handles[to_dir];
    if (parent == new_parent)
        return qi_sim_change_name(sim, parent, to, from, node) ? 0 : -ENOMEM;
    bool done = qi_sim_change_name(sim, new_parent, to, "", node) &&
                qi_sim_change_name(sim, parent, from, "", -1);
    return done ? 0 : -ENOMEM;
}

static int close_file(struct qi_disk *disk, int file) {
    struct qi_sim *sim = qi_sim_of(disk);
    struct qi_sim_node *node = qi_sim_node_of(sim, file);
    int error = qi_sim_trouble(sim, "close", false); /* the handle is gone also if this fails */
    if (node->locked_by == file)
        node->locked_by = -1;
    node->handles--;
    sim->handles[file] = -1;
    sim->disk.pool.open--;
    if (error != -QI_SIM_EVICTED)
        return error;
    /* Its pages were to be written while nobody had it open. They were not, and it left the cache
     * with the error. */
    if (node->handles == 0 && node->changes_count > 0 && !node->dir) {
        qi_sim_fail_sync(node);
        sim->failed_unseen = sim->fault_lost = true;
        return qi_sim_drop(node, 0, UINT64_MAX) ? 0 : -ENOMEM;
    }
    return 0;
}

static int size_of(struct qi_disk *disk, int file, uint64_t *size) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "size", false);
    if (!error)
        *size = qi_sim_size(qi_sim_node_of(sim, file)->cache);
    return error;
}

static int64_t read_at(struct qi_disk *disk, int file, void *bytes, size_t length,
                       uint64_t offset) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "read", false);
    qi_sim_observe_node(qi_sim_node_of(sim, file));
    const struct qi_sim_bytes *cache = qi_sim_node_of(sim, file)->cache;
    uint64_t size = qi_sim_size(cache);
    if (error || offset >= size)
        return error;
    if (length > size - offset)
        length = size - offset;
    memcpy(bytes, cache->at + offset, length);
    return (int64_t)length;
}

/* A mapping shows what is written beside it. */
static int put(struct qi_sim_node *node, const void *bytes, uint64_t length, uint64_t offset) {
    if (!qi_sim_change_bytes(node, bytes, length, offset))
        return -ENOMEM;
    if (node->mapping && offset + length <= node->mapped && length > 0)
        memcpy(node->mapping + offset, bytes, length);
    return 0;
}

static int write_at(struct qi_disk *disk, int file, const void *bytes, size_t length,
                    uint64_t offset) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "write", true);
    struct qi_sim_node *node = qi_sim_node_of(sim, file);
    qi_sim_observe_node(node);
    if (error == -QI_SIM_SHORT) { /* half of it, or all but the 8 bytes behind a frame */
        put(node, bytes, sim->calls % 2 || length < 8 ? length / 2 : length - 8, offset);
        return -ENOSPC;
    }
    if (error)
        return error;
    uint64_t size = qi_sim_size(node->cache);
    if (is_full(sim, offset + length > size ? offset + length - size : 0))
        return -ENOSPC;
    return put(node, bytes, length, offset);
}

static int allocate(struct qi_disk *disk, int file, uint64_t from, uint64_t size) {
    (void)from;
    struct qi_sim *sim = qi_sim_of(disk);
    struct qi_sim_node *node = qi_sim_node_of(sim, file);
    uint64_t before = qi_sim_size(node->cache);
    int error = qi_sim_trouble(sim, "allocate", size > before);
    if (error || size <= before)
        return error;
    if (is_full(sim, size - before))
        return -ENOSPC;
    return qi_sim_change_size(qi_sim_node_of(sim, file), size) ? 0 : -ENOMEM;
}

static int truncate_file(struct qi_disk *disk, int file, uint64_t size) {
    struct qi_sim *sim = qi_sim_of(disk);
    qi_sim_observe_node(qi_sim_node_of(sim, file));
    bool changes = qi_sim_size(qi_sim_node_of(sim, file)->cache) != size;
    int error = qi_sim_trouble(sim, "truncate", changes);
    if (error)
        return error;
    struct qi_sim_node *node = qi_sim_node_of(sim, file);
    qi_sim_unstick(node, size, UINT64_MAX); /* the blocks are given back */
    return qi_sim_change_size(node, size) ? 0 : -ENOMEM;
}

/* As a write of zeros, of which a power cut keeps what it likes. */
static int zero(struct qi_disk *disk, int file, uint64_t from, uint64_t to) {
    struct qi_sim *sim = qi_sim_of(disk);
    struct qi_sim_node *node = qi_sim_node_of(sim, file);
    if (sim->knobs.no_zeros)
        return -EOPNOTSUPP;
    qi_sim_observe_node(node);
    int error = qi_sim_trouble(sim, "zero", true);
    if (error)
        return error;
    uint8_t *zeros = calloc(1, to - from);
    if (!zeros)
        return -ENOMEM;
    qi_sim_unstick(node, (from + 4095) / 4096 * 4096,
                   to / 4096 * 4096); /* whole pages go, and come to other extents */
    error = put(node, zeros, to - from, from);
    free(zeros);
    return error;
}

static bool is_same_disk(struct qi_disk *disk, int dir, int other) {
    (void)qi_sim_node_of(qi_sim_of(disk), dir);
    (void)qi_sim_node_of(qi_sim_of(disk), other);
    return true;
}

static uint32_t files_limit(struct qi_disk *disk) {
    (void)disk;
    return UINT32_MAX;
}

/* Clean pages go; what was written and not yet synced stays, and what is mapped. */
static int drop_cache(struct qi_disk *disk, int file, uint64_t from, uint64_t to) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "drop_cache", false);
    struct qi_sim_node *node = qi_sim_node_of(sim, file);
    qi_sim_observe_node(node);
    if (error || node->populated || node->changes_count > 0 || node->cache == node->durable)
        return error;
    return qi_sim_drop(node, from, to) ? 0 : -ENOMEM;
}

static int map(struct qi_disk *disk, int file, uint64_t length, uint8_t **memory) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "map", false);
    if (error)
        return error;
    void *address = mmap(NULL, length, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        return -errno;
    *memory = address;
    if (file < 0)
        return 0;
    struct qi_sim_node *node = qi_sim_node_of(sim, file);
    node->mapping = address;
    node->mapped = length;
    node->populated = false;
    qi_sim_show_in_mapping(node);
    return 0;
}

static void unmap(struct qi_disk *disk, uint8_t *memory, uint64_t length) {
    struct qi_sim *sim = qi_sim_of(disk);
    for (int i = 0; i < sim->nodes_count; i++) {
        if (sim->nodes[i].mapping != memory)
            continue;
        qi_sim_observe_node(&sim->nodes[i]);
        sim->nodes[i].mapping = NULL;
        sim->nodes[i].mapped = 0;
    }
    munmap(memory, length);
}

static int populate(struct qi_disk *disk, uint8_t *memory, uint64_t length, bool to_write) {
    struct qi_sim *sim = qi_sim_of(disk);
    (void)length;
    (void)to_write;
    int error = qi_sim_trouble(sim, "populate", false);
    for (int i = 0; i < sim->nodes_count; i++) {
        struct qi_sim_node *node = &sim->nodes[i];
        if (node->mapping && memory >= node->mapping && memory < node->mapping + node->mapped)
            node->populated = true;
    }
    return error;
}

static void settle(struct qi_disk *disk, uint8_t *memory, uint64_t length) {
    struct qi_sim *sim = qi_sim_of(disk);
    for (int i = 0; i < sim->nodes_count; i++) /* a part of it makes no difference here */
        if (sim->nodes[i].mapping == memory && sim->nodes[i].mapped == length)
            sim->nodes[i].populated = false;
}

static int lock(struct qi_disk *disk, int file) {
    struct qi_sim *sim = qi_sim_of(disk);
    int error = qi_sim_trouble(sim, "lock", false);
    struct qi_sim_node *node = qi_sim_node_of(sim, file);
    if (error || (node->locked_by >= 0 && node->locked_by != file))
        return error ? error : -EWOULDBLOCK;
    node->locked_by = file;
    return 0;
}

static void unlock(struct qi_disk *disk, int file) {
    struct qi_sim_node *node = qi_sim_node_of(qi_sim_of(disk), file);
    if (node->locked_by == file)
        node->locked_by = -1;
}

static int free_bytes(struct qi_disk *disk, int dir, uint64_t *bytes) {
    struct qi_sim *sim = qi_sim_of(disk);
    (void)dir;
    int error = qi_sim_trouble(sim, "free_bytes", false);
    uint64_t used = qi_sim_used_bytes(sim);
    *bytes = used < sim->knobs.capacity ? sim->knobs.capacity - used : 0;
    return error;
}

static bool mapping_is_safe(struct qi_disk *disk, int dir) {
    (void)dir;
    return qi_sim_of(disk)->knobs.mapping;
}

static uint64_t wall_us(struct qi_disk *disk) {
    return qi_sim_of(disk)->wall_us;
}

static uint64_t monotonic_us(struct qi_disk *disk) {
    return qi_sim_of(disk)->monotonic_us;
}

static void pass(struct qi_disk *disk, uint64_t us) {
    qi_sim_advance(qi_sim_of(disk), us);
}

static void whoami(struct qi_disk *disk, char *text, size_t room) {
    (void)disk;
    snprintf(text, room, "a simulated process\n");
}

static void fill_random(struct qi_disk *disk, void *bytes, size_t length) {
    uint8_t *at = bytes;
    while (length-- > 0)
        *at++ = (uint8_t)qi_sim_random(&qi_sim_of(disk)->random);
}

static const struct qi_disk_ops sim_ops = {
    .open_root = open_root,
    .open_dir = open_dir,
    .make_dir = make_dir,
    .remove_dir = remove_dir,
    .list = list,
    .changed_us = changed_us,
    .open = open_file,
    .rename = rename_file,
    .unlink = unlink_file,
    .close = close_file,
    .size = size_of,
    .read = read_at,
    .write = write_at,
    .read_pieces = qi_sim_read_pieces,
    .write_pieces = qi_sim_write_pieces,
    .allocate = allocate,
    .truncate = truncate_file,
    .zero = zero,
    .sync = qi_sim_sync_file,
    .sync_dir = qi_sim_sync_dir,
    .sync_all = qi_sim_sync_all,
    .is_same_disk = is_same_disk,
    .is_in_memory = qi_sim_is_in_memory,
    .files_limit = files_limit,
    .drop_cache = drop_cache,
    .map = map,
    .unmap = unmap,
    .populate = populate,
    .settle = settle,
    .lock = lock,
    .unlock = unlock,
    .free_bytes = free_bytes,
    .mapping_is_safe = mapping_is_safe,
    .wall_us = wall_us,
    .coarse_us = wall_us,
    .monotonic_us = monotonic_us,
    .pass = pass,
    .whoami = whoami,
    .random = fill_random,
};

qi_sim *qi_sim_new(uint64_t seed, const qi_sim_knobs *knobs) {
    struct qi_sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        return NULL;
    sim->knobs = knobs ? *knobs : (qi_sim_knobs){0};
    sim->knobs.capacity = sim->knobs.capacity ? sim->knobs.capacity : UINT64_C(1) << 30;
    sim->knobs.wall_us = sim->knobs.wall_us ? sim->knobs.wall_us : UINT64_C(1780000000000000);
    sim->disk = (struct qi_disk){.ops = &sim_ops,
                                 .many = 2,
                                 .crowd = sim->knobs.crowd,
                                 .growth_min = sim->knobs.growth_min ? sim->knobs.growth_min : 4096,
                                 .call_min = 200, /* some bodies in one way, some in the other */
                                 .single_threaded = true,
                                 .pool = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    sim->random = seed;
    sim->wall_us = sim->knobs.wall_us;
    sim->monotonic_us = UINT64_C(1000000000);
    if (qi_sim_make_node(sim, true) != 0) {
        qi_sim_free(sim);
        return NULL;
    }
    sim->nodes[0].links = 1;
    return sim;
}

const void *qi_sim_capsule(qi_sim *sim) {
    sim->capsule = (struct qi_disk_capsule){.magic = QI_DISK_CAPSULE,
                                            .layout = QI_DISK_LAYOUT,
                                            .disk_size = sizeof(struct qi_disk),
                                            .ops_size = sizeof(struct qi_disk_ops),
                                            .disk = &sim->disk};
    return &sim->capsule;
}

void qi_sim_free(qi_sim *sim) {
    if (!sim)
        return;
    for (int i = 0; i < sim->nodes_count; i++) {
        if (sim->nodes[i].mapping)
            munmap(sim->nodes[i].mapping, sim->nodes[i].mapped);
        qi_sim_clear_node(&sim->nodes[i]);
    }
    qi_sim_free(sim->taken);
    free(sim->nodes);
    free(sim->handles);
    free(sim);
}
