/* disk_sim.h - a disk in memory that knows what is durable (the inside; sim.h is what tests see).
 *
 * A file has two sets of bytes: what a process sees (the cache) and what a power cut leaves for
 * sure (durable), and between the two the list of changes that no sync has covered. A directory has
 * the same for names. A power cut plays some of the changes on what is durable (sim_image.c).
 *
 *     write --> cache ---------------------------> read
 *          \--> changes: write 64+25, resize 4096 ...
 *                  | sync (all)     | power cut (some)
 *                  v                v
 *               durable ----------> image
 *
 * A mapped file has a third copy, the memory that was handed out: what was stored there becomes a
 * change whenever somebody looks (qi_sim_observe): at a call for this file, at a crash, and at each
 * change if the disk is watched.
 */
#ifndef QI_DISK_SIM_H
#define QI_DISK_SIM_H

#include "disk/disk.h"
#include "proof/sim/sim.h"

#define QI_SIM_NAME 48 /* 32 hex digits and a suffix fit */

/* Bytes that copies of a disk share until somebody writes. */
struct qi_sim_bytes {
    uint32_t owners;
    uint64_t size, room;
    uint8_t at[];
};

/* The file takes `size` (both ways), or `length` bytes are written at `offset`. */
struct qi_sim_change {
    bool resize;
    bool extends; /* a write behind the end: the size follows the bytes */
    uint64_t offset, length;
    uint64_t log; /* where the bytes stand in the file's log */
};

struct qi_sim_name {
    char name[QI_SIM_NAME];
    int node;
};

struct qi_sim_names {
    struct qi_sim_name *items;
    uint32_t count, room;
};

/* A name appears (node >= 0) or goes (-1); `from` goes together with it (rename), if it is not
 * empty. */
struct qi_sim_name_change {
    char name[QI_SIM_NAME], from[QI_SIM_NAME];
    int node;
};

struct qi_sim_node {
    bool dir, used;
    bool dropped; /* a failed sync: the cache has bytes that the medium will not get */
    uint64_t stuck,
        stuck_end;  /* blocks between that read as zeros, whatever is written through this cache */
    uint32_t links; /* names that a process sees */
    uint32_t handles;
    int locked_by; /* handle, -1: nobody */

    struct qi_sim_bytes *cache, *durable, *stale; /* stale: durable before the last sync */
    struct qi_sim_change *changes;
    uint32_t changes_count, changes_room;
    uint8_t *log;
    uint64_t log_size, log_room;
    uint8_t *mapping;
    uint64_t mapped;
    bool populated; /* pages of the mapping are there: the cache keeps them */

    struct qi_sim_names names, durable_names;
    struct qi_sim_name_change *name_changes;
    uint32_t name_changes_count, name_changes_room;
};

/* What somebody who watches is told: before each change, and after each sync. */
typedef void (*qi_sim_watch)(void *context, struct qi_sim *sim, const char *call, bool after);

struct qi_sim {
    struct qi_disk disk;            /* first: the engine's pointer is ours */
    struct qi_disk_capsule capsule; /* see qi_sim_capsule */
    qi_sim_knobs knobs;
    uint64_t random; /* state of the generator */
    uint64_t wall_us, monotonic_us;
    struct qi_sim_node *nodes; /* 0 is the root; never moved within a call */
    int nodes_count, nodes_room;
    int *handles; /* node, -1: closed */
    int handles_count, handles_room;

    uint64_t calls, changes;
    uint64_t fault_at; /* the call with this number fails; 0: none */
    int fault_kind;
    bool fault_sticky;
    uint64_t fault_hits;     /* calls that failed so */
    const char *fault_first; /* the first of them */
    bool fault_lost;         /* what a sync was for may be lost, or what was closed is */
    bool failed_unseen;      /* a write-back that only a sync of all still tells of */
    uint64_t fail_sync;      /* the n-th sync from now fails; 0: none */
    uint64_t crash_at, crash_seed;
    int crash_mode;
    struct qi_sim *taken;
    qi_sim_watch watch;
    void *watch_context;
    bool watching; /* inside watch: it is not called again */
};

uint64_t qi_sim_random(uint64_t *state);
static inline uint64_t qi_sim_below(uint64_t *state, uint64_t limit) {
    return limit ? qi_sim_random(state) % limit : 0;
}

static inline struct qi_sim *qi_sim_of(struct qi_disk *disk) {
    return (struct qi_sim *)disk;
}
struct qi_sim_node *qi_sim_node_of(struct qi_sim *sim, int handle); /* of an open one */

/* sim_sync.c */
int qi_sim_sync_file(struct qi_disk *disk, int file);
int qi_sim_sync_dir(struct qi_disk *disk, int dir);
int qi_sim_sync_all(struct qi_disk *disk, int dir);

/* sim_file.c: bytes, changes and names. */
struct qi_sim_bytes *qi_sim_share(struct qi_sim_bytes *bytes);
void qi_sim_release(struct qi_sim_bytes *bytes);
/* `*bytes` owned alone and at least as big; grown bytes are zero. False: no memory. */
bool qi_sim_resize(struct qi_sim_bytes **bytes, uint64_t size);
bool qi_sim_put(struct qi_sim_bytes **bytes, const void *from, uint64_t length, uint64_t offset);
uint64_t qi_sim_used_bytes(const struct qi_sim *sim); /* by all files */
static inline uint64_t qi_sim_size(const struct qi_sim_bytes *bytes) {
    return bytes ? bytes->size : 0;
}

bool qi_sim_change_bytes(struct qi_sim_node *node, const void *from, uint64_t length,
                         uint64_t offset);
bool qi_sim_change_size(struct qi_sim_node *node, uint64_t size);
void qi_sim_forget_changes(struct qi_sim_node *node);
/* What the mapping shows of the cache, for memory that was not stored to. */
void qi_sim_show_in_mapping(struct qi_sim_node *node);
/* Between the two the cache has what the medium has; at the end of the file its size, too. False:
 * no memory. */
bool qi_sim_drop(struct qi_sim_node *node, uint64_t from, uint64_t to);
void qi_sim_unstick(struct qi_sim_node *node, uint64_t from, uint64_t to);
void qi_sim_fail_sync(
    struct qi_sim_node *node); /* its changes stay in the cache, and are forgotten */
bool qi_sim_write_pages(
    struct qi_sim_node *node);           /* a later sync that succeeds. False: no memory */
void qi_sim_observe(struct qi_sim *sim); /* what was stored into mappings becomes changes */
void qi_sim_observe_node(struct qi_sim_node *node);

int qi_sim_names_find(const struct qi_sim_names *names, const char *name); /* index, or -1 */
bool qi_sim_names_set(struct qi_sim_names *names, const char *name, int node);
void qi_sim_names_clear(struct qi_sim_names *names, const char *name);
bool qi_sim_names_copy(struct qi_sim_names *to, const struct qi_sim_names *from);
bool qi_sim_change_name(struct qi_sim *sim, int dir, const char *name, const char *from, int node);
void qi_sim_apply_name(struct qi_sim_names *names, const struct qi_sim_name_change *change);

int qi_sim_make_node(struct qi_sim *sim, bool dir); /* its number, or -1 */
void qi_sim_clear_node(struct qi_sim_node *node);

/* sim_faults.c: counts the call, tells the watcher, and says whether and how it fails (0: not). */
int qi_sim_trouble(struct qi_sim *sim, const char *call, bool change);

/* sim_pieces.c */
bool qi_sim_is_in_memory(struct qi_disk *disk, int dir);
int64_t qi_sim_read_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces,
                           uint32_t count, uint64_t offset, bool may_wait);
int qi_sim_write_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces,
                        uint32_t count, uint64_t offset);

/* A disk with the same knobs and clocks, and no handles. sim_image.c */
struct qi_sim *qi_sim_copy(const struct qi_sim *sim);

#endif
