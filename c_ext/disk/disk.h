/* disk.h - the only door to the operating system, and files whose bytes lie in memory.
 *
 * Nothing else in the core calls it, so a simulated disk that stands behind the same door sees
 * every byte, every sync and every name (crash tests depend on that). Rules of the door:
 *   - A call returns 0, a count, or -errno. It repeats itself after EINTR and short transfers, but
 *     it never retries a sync.
 *   - A name is a single path component, opened below a directory handle, never through a symbolic
 *     link.
 *   - Files are created with 0600, directories with 0700. Only regular files are opened.
 */
#ifndef QI_DISK_H
#define QI_DISK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qi_disk;
struct qi_store;

/* ---- disk ---- */

enum qi_open_mode {
    QI_OPEN_READ,   /* must exist */
    QI_OPEN_WRITE,  /* must exist, read and write */
    QI_OPEN_CREATE, /* created or opened, read and write */
    QI_OPEN_FRESH,  /* created or emptied, read and write */
    QI_OPEN_ALONE,  /* as QI_OPEN_WRITE, but -EMLINK if the file has another name somewhere */
};

typedef void (*qi_list_fn)(void *context, const char *name);

/* Memory for a part of what one call reads or writes. */
struct qi_piece {
    void *bytes;
    size_t length;
};
#define QI_PIECES_MAX 196u /* of one call */

struct qi_disk_ops {
    int (*open_root)(struct qi_disk *, const char *path, bool create);
    int (*open_dir)(struct qi_disk *, int parent, const char *name);
    int (*make_dir)(struct qi_disk *, int parent, const char *name);
    int (*remove_dir)(struct qi_disk *, int parent, const char *name);
    int (*list)(struct qi_disk *, int dir, qi_list_fn each, void *context);
    uint64_t (*changed_us)(
        struct qi_disk *,
        int dir); /* when a name came or went, in steps of some ms; UINT64_MAX: not known */
    int (*open)(struct qi_disk *, int dir, const char *name, enum qi_open_mode mode);
    int (*rename)(struct qi_disk *, int from_dir, const char *from, int to_dir, const char *to);
    int (*unlink)(struct qi_disk *, int dir, const char *name);
    int (*close)(struct qi_disk *, int file);
    int (*size)(struct qi_disk *, int file, uint64_t *size);
    int64_t (*read)(struct qi_disk *, int file, void *bytes, size_t length, uint64_t offset);
    int (*write)(struct qi_disk *, int file, const void *bytes, size_t length, uint64_t offset);
    /* A read of pieces that follow each other in the file. One that must not wait takes only what
     * is in the cache: -EAGAIN if nothing is, or if the system cannot tell (of files that are
     * always in memory Linux does not). */
    int64_t (*read_pieces)(struct qi_disk *, int file, const struct qi_piece *pieces,
                           uint32_t count, uint64_t offset, bool may_wait);
    /* A write of pieces that follow each other in the file. After an error some of the bytes may be
     * there. */
    int (*write_pieces)(struct qi_disk *, int file, const struct qi_piece *pieces, uint32_t count,
                        uint64_t offset);
    /* Blocks for the bytes between the two offsets; the file grows to `size`. */
    int (*allocate)(struct qi_disk *, int file, uint64_t from, uint64_t size);
    int (*truncate)(struct qi_disk *, int file, uint64_t size);
    /* Makes the bytes between the two offsets (below the file's size) zeros and keeps the blocks.
     * -EOPNOTSUPP if the file system cannot do that without writing them. After an error the bytes
     * are old or zeros. */
    int (*zero)(struct qi_disk *, int file, uint64_t from, uint64_t to);
    void (*begin_sync)(struct qi_disk *,
                       int file);            /* a help for a sync that follows; may be NULL */
    int (*sync)(struct qi_disk *, int file); /* bytes and what is needed to find them */
    int (*sync_dir)(struct qi_disk *, int dir);
    /* Makes everything durable that any process wrote before to the file system of this directory.
     * Returns an error if any write-back on it has failed since the handle was opened, also of a
     * file that was closed. -EOPNOTSUPP: the system cannot do that, or does not report such
     * failures. */
    int (*sync_all)(struct qi_disk *, int dir);
    bool (*is_same_disk)(struct qi_disk *, int dir, int other); /* one file system */
    bool (*is_in_memory)(struct qi_disk *,
                         int dir); /* no read of a file in it waits for a device */
    /* Drops clean, unmapped pages between the two offsets from the cache, and perhaps some around
     * them. */
    int (*drop_cache)(struct qi_disk *, int file, uint64_t from, uint64_t to);
    int (*map)(struct qi_disk *, int file, uint64_t length,
               uint8_t **memory); /* NULL file: plain memory */
    void (*unmap)(struct qi_disk *, uint8_t *memory, uint64_t length);
    /* Loads the pages of a mapping. A page that cannot be read is an error now instead of a SIGBUS
     * later. */
    int (*populate)(struct qi_disk *, uint8_t *memory, uint64_t length, bool to_write);
    /* Removes the page tables of a mapping's range at once; the bytes stay in the file. Otherwise a
     * sync would write-protect the pages one by one, each with an interrupt to every processor. */
    void (*settle)(struct qi_disk *, uint8_t *memory, uint64_t length);
    uint32_t (*files_limit)(struct qi_disk *);  /* descriptors, and mappings, of the process */
    uint64_t (*memory_limit)(struct qi_disk *); /* bytes that the process may use; may be NULL */
    /* Keeps about so many descriptors back, which open and list use when there are no others; may
     * be NULL. */
    void (*keep_spare)(struct qi_disk *, uint32_t most);
    int (*lock)(struct qi_disk *,
                int file); /* exclusive, for the life of the handle; -EWOULDBLOCK if held */
    void (*unlock)(struct qi_disk *, int file); /* also for what a forked child inherited */
    int (*free_bytes)(struct qi_disk *, int dir, uint64_t *bytes);
    bool (*mapping_is_safe)(struct qi_disk *,
                            int dir); /* local file system that keeps allocated blocks */
    uint64_t (*wall_us)(struct qi_disk *);
    uint64_t (*coarse_us)(
        struct qi_disk *); /* the same, up to 10 ms late, for a fourth of the cost */
    uint64_t (*monotonic_us)(struct qi_disk *);
    /* Only for single-threaded disks: no other thread could end a wait, so a wait moves the clocks
     * on instead. */
    void (*pass)(struct qi_disk *, uint64_t us);
    void (*whoami)(struct qi_disk *, char *text, size_t room); /* process and host, for people */
    void (*random)(struct qi_disk *, void *bytes, size_t length);
};

/* Shared by all stores of a disk: limits for the descriptors and the memory that they hold
 * (durable/files.c). */
struct qi_pool {
    pthread_mutex_t lock;    /* for `stores`; taken while a store's lock is held */
    struct qi_store *stores; /* open ones */
    atomic_int open;         /* descriptors that the engine holds, counted at the door */
    atomic_int most;         /* how many that may be */
    atomic_int lacks;        /* of the spare ones: so many had to be used */
    atomic_ullong memory;    /* bytes of qi_memory_used() that may be */
    atomic_ullong weight;    /* messages in the maps of parked queues */
    atomic_ullong uses;      /* grows whenever a queue becomes the last used one of its store */
};

struct qi_disk {
    const struct qi_disk_ops *ops;
    uint32_t many;  /* so many files are synced sooner all at once than one by one */
    uint32_t crowd; /* of so many queues, what earlier sessions wrote is made durable at once; 0:
                       each queue does it by itself */
    uint64_t growth_min;  /* tapes grow by at least this many bytes */
    uint32_t call_min;    /* so many bytes cost less as a call than through a mapping */
    bool single_threaded; /* no worker thread: qi_store_tick does its work when it is called */
    struct qi_pool pool;
};

/* How many descriptors one flush, or the message files, may use at a time: an eighth of the limit,
 * at most `most`. */
static inline uint32_t qi_disk_share(const struct qi_disk *disk, uint32_t most) {
    uint32_t all = (uint32_t)atomic_load_explicit(&disk->pool.most, memory_order_relaxed);
    return all == 0 || all / 8 > most ? most : all >= 8 ? all / 8 : 1;
}

/* ---- bell ---- */

/* A descriptor for an event loop; it is readable once the bell was rung. Or -errno. */
int qi_bell_open(void);
void qi_bell_ring(int bell);
void qi_bell_close(int bell);

/* ---- hold ---- */

/* The file has the same name in another folder of its file system, too. -errno. */
int qi_hold_file(int from_dir, int to_dir, const char *name);

/* ---- posix ---- */

/* How another extension module (qindex.testing._sim) hands a disk over to the core. The version and
 * the sizes show the core whether both were compiled from the same structs. */
#define QI_DISK_CAPSULE "QIDISK\r\n"
#define QI_DISK_LAYOUT  5u /* raised with each change of struct qi_disk or struct qi_disk_ops */
struct qi_disk_capsule {
    char magic[8]; /* QI_DISK_CAPSULE */
    uint32_t layout, disk_size, ops_size;
    struct qi_disk *disk;
};

extern struct qi_disk qi_disk_posix;

/* A counter that each fork raises in the child. Handles from before a fork do not belong to the
 * child (H16). */
unsigned qi_fork_generation(void);

/* ---- tape ---- */

/* A file whose bytes lie in memory: fill them, then call qi_tape_wrote().
 *
 * On a safe local file system the memory is a shared mapping of preallocated blocks: a store is the
 * write, the kernel has the bytes, a killed process loses nothing and no system call was made.
 * Elsewhere (and on a simulated disk) the memory is plain and qi_tape_wrote() passes the bytes on.
 * The callers do the same in both cases.
 */

struct qi_tape {
    struct qi_disk *disk;
    int file;           /* -1: closed */
    uint8_t *memory;    /* `mapped` bytes of address space; valid below `allocated` */
    uint64_t mapped;    /* the most that this tape can hold */
    uint64_t allocated; /* bytes that the file has */
    uint64_t blocks;    /* below this the file has blocks: this tape has asked for them */
    uint64_t settled;   /* where the pages that came since the last sync begin, */
    uint64_t ready;     /* and where they end; at most `allocated` */
    bool told;          /* writes must be passed on */
};

/* Takes over `file`. Returns 0 or -errno (the file is closed then). */
int qi_tape_open(struct qi_tape *tape, struct qi_disk *disk, int file, uint64_t mapped,
                 bool use_mapping);
/* Loads the bytes of the file between the two offsets into memory. Before that, memory has only
 * what was stored into it. */
int qi_tape_load(struct qi_tape *tape, uint64_t from, uint64_t to);
/* Forgets what was loaded, and drops the bytes between the two offsets from the cache. The next
 * load reads the medium, and the size becomes what the medium has. */
int qi_tape_forget(struct qi_tape *tape, uint64_t from, uint64_t to);
/* Closes the tape in any case. -errno: what was written may not have reached the disk. */
int qi_tape_close(struct qi_tape *tape);

/* Makes `size` bytes usable. With keep_free > 0, -ENOSPC if the disk would have less than that
 * left: publishes leave room for acks and flushes (H14). -EFBIG if the tape cannot hold that much.
 */
int qi_tape_reserve(struct qi_tape *tape, uint64_t size, uint64_t keep_free);

/* The same for an append at `tail`. For a short append it also maps the pages, and a quarter as
 * many ahead as were written since the last sync: the first write to a page costs a fault, which is
 * more than everything else about a small message. Not needed for an append that ends below
 * `ready`. */
int qi_tape_make_ready(struct qi_tape *tape, uint64_t tail, uint64_t size, uint64_t keep_free);
/* Pages from that offset on have to be made ready again, because a sync comes. */
static inline void qi_tape_unready(struct qi_tape *tape, uint64_t from) {
    tape->settled = from;
    tape->ready = from;
}

/* Cuts the file to `size`. Stale bytes behind it must not come back. */
int qi_tape_cut(struct qi_tape *tape, uint64_t size);

/* Makes the bytes from `from` on zeros. Where the file system can, the file keeps its blocks for
 * the next appends, which is faster than freeing them. More than some megabytes are cut off,
 * because a recovery would have to read them. */
int qi_tape_clear(struct qi_tape *tape, uint64_t from);

/* Called before a sync: unmaps the whole pages between two offsets at once. Otherwise the sync
 * would write-protect each dirty page, with an interrupt to every processor that runs a thread of
 * this process. */
void qi_tape_settle(struct qi_tape *tape, uint64_t from, uint64_t to);

static inline int qi_tape_wrote(struct qi_tape *tape, uint64_t offset, uint64_t length) {
    if (__builtin_expect(!tape->told, 1))
        return 0;
    return tape->disk->ops->write(tape->disk, tape->file, tape->memory + offset, length, offset);
}

#endif
