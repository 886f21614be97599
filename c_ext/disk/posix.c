/* posix.c - the door to a POSIX system (Linux first).
 *
 * open() below directory handles with O_NOFOLLOW; fdatasync for files, fsync for directories; flock
 * for the store's lock, because POSIX record locks are per process: a second open in the same
 * process would succeed, and its close would drop the lock of the first.
 */
#define _GNU_SOURCE
#include "disk/disk_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

static unsigned fork_count;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* The parent's stores are not the child's, and a thread that is not there any more may have held
 * the lock. Their descriptors were inherited, so they count. */
static void count_fork(void) {
    fork_count++;
    qi_disk_posix.pool.stores = NULL;
    pthread_mutex_init(&qi_disk_posix.pool.lock, NULL);
    qi_spare_forked();
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, count_fork);
}

unsigned qi_fork_generation(void) {
    return fork_count;
}

/* All descriptors that are handed out go through here, and come back through close_file. */
static int handed_out(struct qi_disk *disk, int fd) {
    atomic_fetch_add_explicit(&disk->pool.open, 1, memory_order_relaxed);
    return fd;
}

static int open_root(struct qi_disk *disk, const char *path, bool create) {
    pthread_once(&fork_once, watch_forks);
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST)
        return -errno;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (create) { /* the store's own name */
        int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent >= 0) {
            fsync(parent);
            close(parent);
        }
    }
    return handed_out(disk, fd);
}

static int open_dir(struct qi_disk *disk, int parent, const char *name) {
    int fd = qi_open_at(disk, parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (fd >= 0)
        return handed_out(disk, fd);
    int error = errno;
    struct stat status;
    if (error == ENOTDIR && fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(status.st_mode))
        error = ELOOP; /* O_DIRECTORY hides that it is a link */
    return -error;
}

static int make_dir(struct qi_disk *disk, int parent, const char *name) {
    (void)disk;
    return mkdirat(parent, name, 0700) != 0 ? -errno : 0;
}

static int remove_dir(struct qi_disk *disk, int parent, const char *name) {
    (void)disk;
    return unlinkat(parent, name, AT_REMOVEDIR) != 0 ? -errno : 0;
}

static int list(struct qi_disk *disk, int dir, qi_list_fn each, void *context) {
    int copy = qi_open_at(disk, dir, ".", O_RDONLY | O_DIRECTORY);
    if (copy < 0)
        return -errno;
    DIR *stream = fdopendir(copy);
    if (!stream) {
        int error = errno;
        close(copy);
        return -error;
    }
    int result = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(stream);
        if (!entry) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            each(context, entry->d_name);
    }
    closedir(stream);
    qi_spare_refill(disk);
    return result;
}

static int open_file(struct qi_disk *disk, int dir, const char *name, enum qi_open_mode mode) {
    static const int flags[] = {
        [QI_OPEN_READ] = O_RDONLY,
        [QI_OPEN_WRITE] = O_RDWR,
        [QI_OPEN_CREATE] = O_RDWR | O_CREAT,
        [QI_OPEN_FRESH] = O_RDWR | O_CREAT,
        [QI_OPEN_ALONE] = O_RDWR,
    };
    /* O_NONBLOCK: a FIFO planted under our name must not hang the open; regular files ignore it. */
    int fd = qi_open_at(disk, dir, name, flags[mode] | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    struct stat status;
    int error = 0;
    if (fstat(fd, &status) != 0)
        error = errno;
    else if (!S_ISREG(status.st_mode))
        error = EINVAL;
    else if (mode == QI_OPEN_ALONE && status.st_nlink > 1)
        error = EMLINK;
    else if (mode == QI_OPEN_FRESH && status.st_size != 0 && ftruncate(fd, 0) != 0)
        error = errno;
    if (error) {
        close(fd);
        return -error;
    }
    return handed_out(disk, fd);
}

static int rename_file(struct qi_disk *disk, int from_dir, const char *from, int to_dir,
                       const char *to) {
    (void)disk;
    return renameat(from_dir, from, to_dir, to) != 0 ? -errno : 0;
}

static int unlink_file(struct qi_disk *disk, int dir, const char *name) {
    (void)disk;
    return unlinkat(dir, name, 0) != 0 ? -errno : 0;
}

static int close_file(struct qi_disk *disk, int file) {
    atomic_fetch_sub_explicit(&disk->pool.open, 1, memory_order_relaxed);
    int error = close(file) != 0 && errno != EINTR ? -errno : 0;
    qi_spare_refill(disk);
    return error;
}

static int size_of(struct qi_disk *disk, int file, uint64_t *size) {
    (void)disk;
    struct stat status;
    if (fstat(file, &status) != 0)
        return -errno;
    *size = (uint64_t)status.st_size;
    return 0;
}

static uint64_t changed_us(struct qi_disk *disk, int dir) {
    (void)disk;
    struct stat status;
    if (fstat(dir, &status) != 0)
        return UINT64_MAX;
    return (uint64_t)status.st_mtim.tv_sec * 1000000 + (uint64_t)status.st_mtim.tv_nsec / 1000;
}

static int64_t read_at(struct qi_disk *disk, int file, void *bytes, size_t length,
                       uint64_t offset) {
    (void)disk;
    size_t done = 0;
    while (done < length) {
        ssize_t got = pread(file, (char *)bytes + done, length - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

static int write_at(struct qi_disk *disk, int file, const void *bytes, size_t length,
                    uint64_t offset) {
    (void)disk;
    size_t done = 0;
    while (done < length) {
        ssize_t put =
            pwrite(file, (const char *)bytes + done, length - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        if (put == 0)
            return -EIO;
        done += (size_t)put;
    }
    return 0;
}

static int allocate(struct qi_disk *disk, int file, uint64_t from, uint64_t size) {
    (void)disk;
    int error;
    do {
        error = posix_fallocate(file, (off_t)from, (off_t)(size - from));
    } while (error == EINTR);
    return -error;
}

static int truncate_file(struct qi_disk *disk, int file, uint64_t size) {
    (void)disk;
    int result;
    do {
        result = ftruncate(file, (off_t)size);
    } while (result != 0 && errno == EINTR);
    return result != 0 ? -errno : 0;
}

static int zero(struct qi_disk *disk, int file, uint64_t from, uint64_t to) {
    (void)disk;
#ifdef FALLOC_FL_ZERO_RANGE
    int result;
    do {
        result = fallocate(file, FALLOC_FL_ZERO_RANGE, (off_t)from, (off_t)(to - from));
    } while (result != 0 && errno == EINTR);
    return result != 0 ? -errno : 0;
#else
    (void)file, (void)from, (void)to;
    return -EOPNOTSUPP;
#endif
}

static void begin_sync(struct qi_disk *disk, int file) {
    (void)disk;
#ifdef SYNC_FILE_RANGE_WRITE
    sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE);
#else
    (void)file;
#endif
}

static int sync_file(struct qi_disk *disk, int file) {
    (void)disk;
    return fdatasync(file) != 0 ? -errno : 0;
}

static int sync_dir(struct qi_disk *disk, int dir) {
    (void)disk;
    return fsync(dir) != 0 ? -errno : 0;
}

/* syncfs() tells of write-backs that failed since Linux 5.8. */
static bool system_tells_all(void) {
    struct utsname system;
    int major = 0, minor = 0;
    return uname(&system) == 0 && strcmp(system.sysname, "Linux") == 0 &&
           sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 8));
}

static int sync_all(struct qi_disk *disk, int dir) {
    (void)disk;
    struct statfs status;
    if (!system_tells_all() || fstatfs(dir, &status) != 0)
        return -EOPNOTSUPP;
    switch ((unsigned long)status.f_type) {
    case 0xEF53:     /* ext2, ext3, ext4 */
    case 0x58465342: /* xfs */
    case 0x9123683E: /* btrfs */
    case 0x01021994: /* tmpfs */
        return syscall(SYS_syncfs, dir) != 0 ? -errno : 0;
    default:
        return -EOPNOTSUPP;
    }
}

static bool is_same_disk(struct qi_disk *disk, int dir, int other) {
    (void)disk;
    struct stat one, two;
    return fstat(dir, &one) == 0 && fstat(other, &two) == 0 && one.st_dev == two.st_dev;
}

static bool is_cached(int file, uint64_t offset) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char state = 1;
    void *memory = mmap(NULL, page, PROT_READ, MAP_SHARED, file, (off_t)(offset - offset % page));
    if (memory == MAP_FAILED)
        return true;
    bool known = mincore(memory, page, &state) == 0;
    munmap(memory, page);
    return !known || (state & 1);
}

/* The cache has big pieces beside pages, at multiples of their size, and one that is not wholly
 * meant stays. Up to 64 KiB they are common, 2 MiB are the biggest on most machines; if not even
 * those let the pages at the ends go, the whole file goes. */
static int drop_cache(struct qi_disk *disk, int file, uint64_t from, uint64_t to) {
    (void)disk;
    for (uint64_t piece = UINT64_C(64) << 10; piece <= UINT64_C(2) << 20; piece *= 32) {
        uint64_t start = from - from % piece, end = to <= INT64_MAX - piece ? to + piece - 1 : 0;
        uint64_t length = end ? end - end % piece - start : 0; /* 0: up to the end of the file */
        int error = posix_fadvise(file, (off_t)start, (off_t)length, POSIX_FADV_DONTNEED);
        if (error || (!(start && is_cached(file, from)) && !(length && is_cached(file, to - 1))))
            return -error;
    }
    return -posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
}

static int map(struct qi_disk *disk, int file, uint64_t length, uint8_t **memory) {
    (void)disk;
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void *address = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, file, 0);
    if (address == MAP_FAILED)
        return -errno;
    *memory = address;
    return 0;
}

static void unmap(struct qi_disk *disk, uint8_t *memory, uint64_t length) {
    (void)disk;
    munmap(memory, length);
}

static int populate(struct qi_disk *disk, uint8_t *memory, uint64_t length, bool to_write) {
    (void)disk;
    /* An unreadable page is an error here; without this it would be a SIGBUS at the first touch. */
    if (madvise(memory, length, to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
        return 0;
    if (errno == EFAULT || errno == EHWPOISON)
        return -EIO;
    /* A kernel before 5.14, or what may pass: pages that did not come ahead come when they are
     * touched. */
    return errno == EINVAL || to_write ? 0 : -errno;
}

static void settle(struct qi_disk *disk, uint8_t *memory, uint64_t length) {
    (void)disk;
    if (madvise(memory, length, MADV_DONTNEED) != 0 && errno == EINVAL) /* locked: mlockall */
        madvise(memory, length, MADV_DONTNEED_LOCKED);
}

static int lock(struct qi_disk *disk, int file) {
    (void)disk;
    return flock(file, LOCK_EX | LOCK_NB) != 0 ? -errno : 0;
}

static void unlock(struct qi_disk *disk, int file) {
    (void)disk;
    flock(file, LOCK_UN);
}

static int free_bytes(struct qi_disk *disk, int dir, uint64_t *bytes) {
    (void)disk;
    struct statvfs status;
    if (fstatvfs(dir, &status) != 0)
        return -errno;
    *bytes = (uint64_t)status.f_bavail * status.f_frsize;
    return 0;
}

static bool mapping_is_safe(struct qi_disk *disk, int dir) {
    (void)disk;
    struct statfs status;
    if (fstatfs(dir, &status) != 0)
        return false;
    switch ((unsigned long)status.f_type) {
    case 0xEF53:     /* ext2, ext3, ext4 */
    case 0x58465342: /* xfs */
    case 0x01021994: /* tmpfs */
        return true;
    default:
        return false; /* copy-on-write, network and FUSE file systems may fail a store into
                         allocated blocks */
    }
}

static uint64_t microseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static uint64_t wall_us(struct qi_disk *disk) {
    (void)disk;
    return microseconds(CLOCK_REALTIME);
}

static uint64_t coarse_us(struct qi_disk *disk) {
    (void)disk;
#ifdef CLOCK_REALTIME_COARSE
    return microseconds(CLOCK_REALTIME_COARSE);
#else
    return microseconds(CLOCK_REALTIME);
#endif
}

static uint64_t monotonic_us(struct qi_disk *disk) {
    (void)disk;
    return microseconds(CLOCK_BOOTTIME);
}

static void whoami(struct qi_disk *disk, char *text, size_t room) {
    (void)disk;
    char host[64] = "?";
    gethostname(host, sizeof host - 1);
    snprintf(text, room, "pid %ld on %s\n", (long)getpid(), host);
}

static void fill_random(struct qi_disk *disk, void *bytes, size_t length) {
    (void)disk;
    uint8_t *at = bytes;
    while (length > 0) {
        ssize_t got = getrandom(at, length, 0);
        if (got <= 0)
            continue;
        at += got;
        length -= (size_t)got;
    }
}

static const struct qi_disk_ops posix_ops = {
    .open_root = open_root,
    .open_dir = open_dir,
    .make_dir = make_dir,
    .remove_dir = remove_dir,
    .list = list,
    .open = open_file,
    .rename = rename_file,
    .unlink = unlink_file,
    .close = close_file,
    .size = size_of,
    .changed_us = changed_us,
    .read = read_at,
    .write = write_at,
    .read_pieces = qi_read_pieces,
    .write_pieces = qi_write_pieces,
    .allocate = allocate,
    .truncate = truncate_file,
    .zero = zero,
    .begin_sync = begin_sync,
    .sync = sync_file,
    .sync_dir = sync_dir,
    .sync_all = sync_all,
    .is_same_disk = is_same_disk,
    .is_in_memory = qi_is_in_memory,
    .files_limit = qi_files_limit,
    .memory_limit = qi_memory_limit,
    .keep_spare = qi_spare_keep,
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
    .coarse_us = coarse_us,
    .monotonic_us = monotonic_us,
    .whoami = whoami,
    .random = fill_random,
};

struct qi_disk qi_disk_posix = {.ops = &posix_ops,
                                .many = 16,
                                .crowd = 64,
                                .growth_min = UINT64_C(16) << 10,
                                .call_min = UINT32_C(4) << 10,
                                .pool = {.lock = PTHREAD_MUTEX_INITIALIZER}};
