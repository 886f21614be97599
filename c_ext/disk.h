/* disk.h - the only door to the operating system.
 *
 * Nothing else in the core calls it, so a simulated disk that stands behind the same door sees every byte, every
 * sync and every name (crash tests depend on that). Rules of the door:
 *   - a call returns 0 (or a count) or -errno; it never retries a sync; EINTR and short transfers are finished inside;
 *   - names are single path components, opened below a directory handle, never through a symbolic link;
 *   - files are created 0600, directories 0700; only regular files are opened.
 */
#ifndef QI_DISK_H
#define QI_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum qi_open_mode {
    QI_OPEN_READ,   /* must exist */
    QI_OPEN_WRITE,  /* must exist, read and write */
    QI_OPEN_CREATE, /* created or opened, read and write */
    QI_OPEN_FRESH,  /* created or emptied, read and write */
};

typedef void (*qi_list_fn)(void *context, const char *name);

struct qi_disk;

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
    int (*allocate)(struct qi_disk *, int file,
                    uint64_t size); /* blocks up to size, the file grows to it */
    int (*truncate)(struct qi_disk *, int file, uint64_t size);
    /* Zeros between the two offsets, below the file's size; the blocks stay. -EOPNOTSUPP where that cannot be had without writing
     * them; if it fails, zeros may be there or not. */
    int (*zero)(struct qi_disk *, int file, uint64_t from, uint64_t to);
    void (*begin_sync)(struct qi_disk *,
                       int file);            /* a help for a sync that follows; may be NULL */
    int (*sync)(struct qi_disk *, int file); /* bytes and what is needed to find them */
    int (*sync_dir)(struct qi_disk *, int dir);
    /* Clean pages that nobody maps, those of the two offsets too, and perhaps more of them. */
    int (*drop_cache)(struct qi_disk *, int file, uint64_t from, uint64_t to);
    int (*map)(struct qi_disk *, int file, uint64_t length,
               uint8_t **memory); /* NULL file: plain memory */
    void (*unmap)(struct qi_disk *, uint8_t *memory, uint64_t length);
    /* Pages of a mapping are there when this returns 0: what cannot be read is an error now, not a signal later. */
    int (*populate)(struct qi_disk *, uint8_t *memory, uint64_t length, bool to_write);
    /* Takes the page tables of a mapping's range away at once; the bytes stay in the file. A sync would write-protect
     * the pages one by one, with an interrupt to every processor for each. */
    void (*settle)(struct qi_disk *, uint8_t *memory, uint64_t length);
    int (*lock)(struct qi_disk *,
                int file); /* exclusive, for the life of the handle; -EWOULDBLOCK if held */
    void (*unlock)(struct qi_disk *, int file); /* also for what a forked child inherited */
    int (*free_bytes)(struct qi_disk *, int dir, uint64_t *bytes);
    bool (*mapping_is_safe)(struct qi_disk *,
                            int dir); /* local file system that keeps allocated blocks */
    uint64_t (*wall_us)(struct qi_disk *);
    uint64_t (*monotonic_us)(struct qi_disk *);
    /* Of a disk for one thread: nobody could end a wait, so its clocks go on instead. */
    void (*pass)(struct qi_disk *, uint64_t us);
    void (*whoami)(struct qi_disk *, char *text, size_t room); /* process and host, for people */
    void (*random)(struct qi_disk *, void *bytes, size_t length);
};

struct qi_disk {
    const struct qi_disk_ops *ops;
    uint64_t growth_min;  /* tapes grow by at least this many bytes */
    bool single_threaded; /* no worker thread: qi_store_tick does its work when it is called */
};

extern struct qi_disk qi_disk_posix;

/* disk_bell.c: what an event loop waits for: a descriptor, readable once it was rung. -errno. */
int qi_bell_open(void);
void qi_bell_ring(int bell);
void qi_bell_close(int bell);

/* A counter that a fork raises in the child: handles opened before are not the child's (H16). */
unsigned qi_fork_generation(void);

#endif
