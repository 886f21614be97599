/* disk_memory.c - files in memory behind the disk's door, for a fuzzer that opens a thousand stores
 * a second.
 *
 * Bytes of files come from one arena that is emptied by the next input and is not counted as the
 * engine's memory. A handle is the number of its node, because every read and write says
 * where. */
#define _GNU_SOURCE
#include "disk_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NODES_MAX  (1 << 17)
#define BUCKETS    (1u << 14)
#define ARENA_SIZE (UINT64_C(512) << 20)
#define SMALL_MAP  (UINT64_C(1) << 20)

struct node {
    char name[48];
    int parent, next; /* in its bucket; -1: the last */
    bool dir, gone, locked;
    uint8_t *bytes;
    uint64_t size, room;
};

static struct node *nodes;
static int buckets[BUCKETS];
static int nodes_count;
static uint8_t *arena;
static uint64_t arena_used;
static uint64_t clock_us;

static uint32_t bucket_of(int parent, const char *name) {
    uint32_t hash = 2166136261u ^ (uint32_t)parent;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash % BUCKETS;
}

static int find(int parent, const char *name) {
    int at = buckets[bucket_of(parent, name)];
    while (at >= 0 && (nodes[at].parent != parent || strcmp(nodes[at].name, name) != 0))
        at = nodes[at].next;
    return at < 0 ? -ENOENT : at;
}

static void link_node(int at, int parent, const char *name) {
    uint32_t bucket = bucket_of(parent, name);
    snprintf(nodes[at].name, sizeof nodes[at].name, "%s", name);
    nodes[at].parent = parent;
    nodes[at].next = buckets[bucket];
    buckets[bucket] = at;
}

static void unlink_node(int at) {
    int *link = &buckets[bucket_of(nodes[at].parent, nodes[at].name)];
    while (*link != at)
        link = &nodes[*link].next;
    *link = nodes[at].next;
    nodes[at].gone = true;
}

static int make(int parent, const char *name, bool dir) {
    if (strlen(name) >= sizeof nodes->name)
        return -ENAMETOOLONG;
    if (nodes_count == NODES_MAX)
        return -ENOSPC;
    nodes[nodes_count] = (struct node){.dir = dir};
    link_node(nodes_count, parent, name);
    return nodes_count++;
}

static int resize(struct node *node, uint64_t size) {
    if (size > node->room) {
        uint64_t room = (size + size / 2 + 4095) & ~UINT64_C(4095);
        if (room > ARENA_SIZE - arena_used)
            return -ENOSPC;
        uint8_t *bytes = arena + arena_used;
        arena_used += room;
        if (node->size)
            memcpy(bytes, node->bytes, node->size);
        node->bytes = bytes;
        node->room = room;
    }
    if (size > node->size)
        memset(node->bytes + node->size, 0, size - node->size);
    node->size = size;
    return 0;
}

void memory_disk_reset(void) {
    if (!arena) {
        arena = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        nodes = mmap(NULL, NODES_MAX * sizeof *nodes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED || nodes == MAP_FAILED)
            abort();
    }
    if (arena_used > (UINT64_C(16) << 20))
        madvise(arena, ARENA_SIZE, MADV_DONTNEED);
    arena_used = 0;
    nodes_count = 0;
    clock_us = 0;
    memset(buckets, -1, sizeof buckets);
    make(-1, "/", true);
}

static int folder_of(const char *path) {
    int at = 0;
    char part[48];
    while (*path) {
        size_t length = strcspn(path, "/");
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        path += length + (path[length] == '/');
        int next = find(at, part);
        at = next >= 0 ? next : make(at, part, true);
        if (at < 0)
            return at;
    }
    return at;
}

bool memory_disk_put(const char *folder, const char *name, const void *bytes, size_t size) {
    int parent = folder_of(folder);
    if (parent < 0)
        return false;
    int at = find(parent, name);
    if (at < 0)
        at = make(parent, name, false);
    if (at < 0 || nodes[at].dir || resize(&nodes[at], size) != 0)
        return false;
    if (size)
        memcpy(nodes[at].bytes, bytes, size);
    return true;
}

bool memory_disk_file(uint32_t index, const char **name, const uint8_t **bytes, uint64_t *size) {
    if (index >= (uint32_t)nodes_count)
        return false;
    const struct node *node = &nodes[index];
    *name = node->name;
    *bytes = node->bytes;
    *size = node->dir || node->gone ? 0 : node->size;
    return true;
}

/* ---- the door ---- */

#define DISK struct qi_disk *disk __attribute__((unused))

static int open_root(DISK, const char *path, bool create) {
    (void)path, (void)create;
    return 0;
}
static int open_dir(DISK, int parent, const char *name) {
    int at = find(parent, name);
    return at >= 0 && !nodes[at].dir ? -ENOTDIR : at;
}
static int make_dir(DISK, int parent, const char *name) {
    int at = find(parent, name) >= 0 ? -EEXIST : make(parent, name, true);
    return at < 0 ? at : 0;
}
static int unlink_file(DISK, int dir, const char *name) {
    int at = find(dir, name);
    if (at >= 0)
        unlink_node(at);
    return at < 0 ? at : 0;
}
static int list(DISK, int dir, qi_list_fn each, void *context) {
    int count = nodes_count; /* new ones need not be seen */
    for (int at = 1; at < count; at++)
        if (nodes[at].parent == dir && !nodes[at].gone)
            each(context, nodes[at].name);
    return 0;
}
static int open_file(DISK, int dir, const char *name, enum qi_open_mode mode) {
    int at = find(dir, name);
    if (at == -ENOENT && mode >= QI_OPEN_CREATE)
        at = make(dir, name, false);
    if (at >= 0 && nodes[at].dir)
        return -EISDIR;
    if (at >= 0 && mode == QI_OPEN_FRESH)
        nodes[at].size = 0;
    return at;
}
static int rename_file(DISK, int from_dir, const char *from, int to_dir, const char *to) {
    int at = find(from_dir, from), old = find(to_dir, to);
    if (at < 0)
        return at;
    if (old >= 0)
        unlink_node(old);
    unlink_node(at);
    nodes[at].gone = false;
    link_node(at, to_dir, to);
    return 0;
}
static int close_file(DISK, int file) {
    (void)file;
    return 0;
}
static int size_of(DISK, int file, uint64_t *size) {
    *size = nodes[file].size;
    return 0;
}
static int64_t read_at(DISK, int file, void *bytes, size_t length, uint64_t offset) {
    const struct node *node = &nodes[file];
    if (offset >= node->size)
        return 0;
    size_t got = length < node->size - offset ? length : node->size - offset;
    memcpy(bytes, node->bytes + offset, got);
    return (int64_t)got;
}
static int write_at(DISK, int file, const void *bytes, size_t length, uint64_t offset) {
    struct node *node = &nodes[file];
    int error = offset + length > node->size ? resize(node, offset + length) : 0;
    if (!error && length)
        memcpy(node->bytes + offset, bytes, length);
    return error;
}
static int64_t read_pieces(DISK, int file, const struct qi_piece *pieces, uint32_t count,
                           uint64_t offset, bool may_wait) {
    int64_t done = 0;
    (void)may_wait;
    for (uint32_t i = 0; i < count; i++)
        if (pieces[i].length)
            done += read_at(disk, file, pieces[i].bytes, pieces[i].length, offset + (uint64_t)done);
    return done;
}
static int write_pieces(DISK, int file, const struct qi_piece *pieces, uint32_t count,
                        uint64_t offset) {
    int error = 0;
    for (uint32_t i = 0; i < count && !error; offset += pieces[i++].length)
        error = write_at(disk, file, pieces[i].bytes, pieces[i].length, offset);
    return error;
}
static bool is_in_memory(DISK, int dir) {
    (void)dir;
    return true;
}
static int allocate(DISK, int file, uint64_t from, uint64_t size) {
    (void)from;
    return size > nodes[file].size ? resize(&nodes[file], size) : 0;
}
static int truncate_file(DISK, int file, uint64_t size) {
    return resize(&nodes[file], size);
}
static int zero(DISK, int file, uint64_t from, uint64_t to) {
    memset(nodes[file].bytes + from, 0, to - from);
    return 0;
}
static int nothing(DISK, int file) {
    (void)file;
    return 0;
}
static int drop_cache(DISK, int file, uint64_t from, uint64_t to) {
    (void)file, (void)from, (void)to;
    return 0;
}
/* Small memory comes from malloc, so that a read behind its end is seen. */
static int map(DISK, int file, uint64_t length, uint8_t **memory) {
    if (file >= 0)
        return -ENOSYS;
    if (length <= SMALL_MAP)
        return (*memory = calloc(1, length + !length)) ? 0 : -ENOMEM;
    void *address = mmap(NULL, length, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        return -ENOMEM;
    *memory = address;
    return 0;
}
static void unmap(DISK, uint8_t *memory, uint64_t length) {
    if (length <= SMALL_MAP)
        free(memory);
    else
        munmap(memory, length);
}
static int populate(DISK, uint8_t *memory, uint64_t length, bool to_write) {
    (void)memory, (void)length, (void)to_write;
    return 0;
}
static void settle(DISK, uint8_t *memory, uint64_t length) {
    (void)memory, (void)length;
}
static int lock(DISK, int file) {
    if (nodes[file].locked)
        return -EWOULDBLOCK;
    nodes[file].locked = true;
    return 0;
}
static void unlock(DISK, int file) {
    nodes[file].locked = false;
}
static int free_bytes(DISK, int dir, uint64_t *bytes) {
    (void)dir;
    *bytes = ARENA_SIZE - arena_used;
    return 0;
}
static bool is_same_disk(DISK, int dir, int other) {
    (void)dir, (void)other;
    return true;
}
static uint32_t files_limit(DISK) {
    return 1u << 20;
}
static bool mapping_is_safe(DISK, int dir) {
    (void)dir;
    return false;
}
static uint64_t changed_us(DISK, int dir) {
    (void)dir;
    return UINT64_MAX;
}
static uint64_t now_us(DISK) {
    return UINT64_C(1800000000000000) + clock_us++;
}
static void whoami(DISK, char *text, size_t room) {
    snprintf(text, room, "the fuzzer\n");
}
static void fill_random(DISK, void *bytes, size_t length) {
    memset(bytes, 0x5a, length);
}

static const struct qi_disk_ops memory_ops = {
    .open_root = open_root,
    .open_dir = open_dir,
    .make_dir = make_dir,
    .remove_dir = unlink_file,
    .list = list,
    .open = open_file,
    .rename = rename_file,
    .unlink = unlink_file,
    .close = close_file,
    .size = size_of,
    .read = read_at,
    .write = write_at,
    .read_pieces = read_pieces,
    .write_pieces = write_pieces,
    .is_in_memory = is_in_memory,
    .allocate = allocate,
    .truncate = truncate_file,
    .zero = zero,
    .sync = nothing,
    .sync_dir = nothing,
    .sync_all = nothing,
    .is_same_disk = is_same_disk,
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
    .changed_us = changed_us,
    .wall_us = now_us,
    .coarse_us = now_us,
    .monotonic_us = now_us,
    .whoami = whoami,
    .random = fill_random,
};

/* The engine is compiled for the fuzzer with this name in the place of qi_disk_posix (see
 * fuzz.py). */
struct qi_disk qi_disk_memory = {.ops = &memory_ops,
                                 .many = 16,
                                 .growth_min = UINT64_C(64) << 10,
                                 .call_min = 200,
                                 .pool = {.lock = PTHREAD_MUTEX_INITIALIZER}};

unsigned qi_fork_generation(void) {
    return 0;
}
