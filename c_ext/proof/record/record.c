/* record.c - a library for LD_PRELOAD that writes down what a process does to the files below one
 * directory.
 *
 * qindex.testing runs a foreign queue under it and builds crash images from the record. Not part of
 * the core: it is a library of its own (setup.py), and nothing here is used by a store.
 *
 * Each function of libc below does its work first and adds a line to the record if it succeeded,
 * under one mutex, so that the record's order is the order of what happened. Syncs are recorded and
 * not done: what a power cut leaves is decided from the record. What is written otherwise
 * (mappings, stdio's own buffers, io_uring, sendfile) is not seen; the harness compares the files
 * with the record and says so.
 *
 * A line: struct line, the paths relative to the root (from, to), the bytes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct line {
    char kind; /* the letters are in qindex/testing/process.py */
    char unused[3];
    uint32_t from_size, to_size, unused2;
    uint64_t number, offset, size; /* inode; of the bytes */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_size; /* 0: nothing is recorded */
static int record = -1;

/* The real function behind a name of ours. */
#define REAL(name)                                                                                 \
    static __typeof__(name) *real;                                                                 \
    if (!real) {                                                                                   \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);                                        \
    }

EXPORT int qi_record_begin(const char *directory, const char *file);
EXPORT void qi_record_hold(void);

int qi_record_begin(const char *directory, const char *file) {
    record =
        (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (record < 0 || !realpath(directory, root)) {
        return -errno;
    }
    root_size = strlen(root);
    return 0;
}

/* No call is under way when this returns, and none can begin. */
void qi_record_hold(void) {
    pthread_mutex_lock(&mutex);
}

static void write_line(struct line line, const char *from, const char *to, const struct iovec *data,
                       int count) {
    int error = errno;
    struct iovec parts[3 + 64];
    from = from ? from : "";
    to = to ? to : "";
    line.from_size = (uint32_t)strlen(from);
    line.to_size = (uint32_t)strlen(to);
    parts[0] = (struct iovec){&line, sizeof line};
    parts[1] = (struct iovec){(void *)(uintptr_t)from, line.from_size};
    parts[2] = (struct iovec){(void *)(uintptr_t)to, line.to_size};
    uint64_t left = line.size;
    int used = 3;
    for (int i = 0; i < count && left && used < 67; i++) {
        size_t size = data[i].iov_len < left ? data[i].iov_len : left;
        parts[used++] = (struct iovec){data[i].iov_base, size};
        left -= size;
    }
    if (left || syscall(SYS_writev, record, parts, used) < 0) {
        abort(); /* A record with a hole is worse than none. */
    }
    errno = error;
}

static void note(char kind, uint64_t number, uint64_t offset, const char *from, const char *to) {
    write_line((struct line){.kind = kind, .number = number, .offset = offset}, from, to, NULL, 0);
}

/* The part of an absolute path below the root, or NULL if it is elsewhere. The root itself is
 * "". */
static const char *below(const char *path) {
    if (!root_size || strncmp(path, root, root_size) != 0) {
        return NULL;
    }
    const char *rest = path + root_size;
    return *rest == 0 ? rest : *rest == '/' ? rest + 1 : NULL;
}

/* The path of an open file, as its names are now; NULL if it is elsewhere. */
static const char *path_of(int fd, char *room) {
    char link[40];
    int error = errno;
    if (!root_size) {
        return NULL;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, room, PATH_MAX - 1);
    errno = error;
    if (size < 0) {
        return NULL;
    }
    room[size] = 0;
    return below(room);
}

/* Where a name leads: its directory without symbolic links, and the last part as it is. */
static const char *resolve(int dir, const char *name, char *room) {
    char path[PATH_MAX], real_dir[PATH_MAX];
    int error = errno;
    if (!root_size) {
        return NULL;
    }
    if (name[0] == '/') {
        snprintf(path, sizeof path, "%s", name);
    } else {
        char link[40], base[PATH_MAX / 2];
        snprintf(link, sizeof link, dir == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", dir);
        ssize_t size = readlink(link, base, sizeof base - 1);
        base[size < 0 ? 0 : size] = 0;
        snprintf(path, sizeof path, "%s/%.2000s", base, name);
    }
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        path[--length] = 0;
    }
    char *slash = strrchr(path, '/');
    *slash = 0;
    const char *found = NULL;
    if (realpath(slash == path ? "/" : path, real_dir)) {
        snprintf(room, PATH_MAX, "%.2000s/%.2000s", real_dir, slash + 1);
        found = below(room);
    }
    errno = error;
    return found;
}

/* True if the file is recorded; its inode. A directory has its path in `room`. */
static bool file_of(int fd, uint64_t *number) {
    char room[PATH_MAX];
    struct stat facts;
    if (!path_of(fd, room) || fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        return false;
    }
    *number = facts.st_ino;
    return true;
}

/* --- open
 * --------------------------------------------------------------------------------------------
 */

typedef int (*open_fn)(int, const char *, int, ...);

static int open_at(int dir, const char *name, int flags, mode_t mode) {
    static open_fn real;
    if (!real) {
        real = (open_fn)(uintptr_t)dlsym(RTLD_NEXT, "openat");
    }
    char room[PATH_MAX];
    struct stat facts;
    if (!root_size || !resolve(dir, name, room)) {
        return real(dir, name, flags, mode);
    }
    pthread_mutex_lock(&mutex);
    bool was_there = fstatat(dir, name, &facts, 0) == 0;
    bool had_bytes = was_there && facts.st_size > 0;
    int fd = real(dir, name, flags, mode);
    const char *path = fd < 0 ? NULL : path_of(fd, room);
    if (path && fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode)) {
        if (!was_there) {
            note('c', facts.st_ino, 0, path, NULL);
        } else if (had_bytes && flags & O_TRUNC) {
            note('t', facts.st_ino, 0, NULL, NULL);
        }
    }
    pthread_mutex_unlock(&mutex);
    return fd;
}

#define WITH_MODE                                                                                  \
    mode_t mode = 0;                                                                               \
    if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {                                          \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode = va_arg(rest, mode_t);                                                               \
        va_end(rest);                                                                              \
    }

EXPORT int open(const char *name, int flags, ...) {
    WITH_MODE
    return open_at(AT_FDCWD, name, flags, mode);
}
EXPORT int open64(const char *name, int flags, ...) {
    WITH_MODE
    return open_at(AT_FDCWD, name, flags | O_LARGEFILE, mode);
}
EXPORT int openat(int dir, const char *name, int flags, ...) {
    WITH_MODE
    return open_at(dir, name, flags, mode);
}
EXPORT int openat64(int dir, const char *name, int flags, ...) {
    WITH_MODE
    return open_at(dir, name, flags | O_LARGEFILE, mode);
}
EXPORT int creat(const char *name, mode_t mode) {
    return open_at(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
EXPORT int creat64(const char *name, mode_t mode) {
    return open_at(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* --- write
 * --------------------------------------------------------------------------------------------
 */

/* Notes what a write did; `offset` is -1 if it went to the file's position. */
static void wrote(int fd, uint64_t number, const struct iovec *data, int count, ssize_t done,
                  off_t offset) {
    if (done <= 0) {
        return;
    }
    if (offset < 0) {
        offset = lseek(fd, 0, SEEK_CUR) - done;
    } else if (fcntl(fd, F_GETFL) & O_APPEND) { /* Linux: pwrite appends then */
        offset = lseek(fd, 0, SEEK_END) - done;
    }
    struct line line = {
        .kind = 'w', .number = number, .offset = (uint64_t)offset, .size = (uint64_t)done};
    write_line(line, NULL, NULL, data, count);
    if (fcntl(fd, F_GETFL) & O_DSYNC) {
        note('s', number, 0, NULL, NULL);
    }
}

/* Calls `call`, and notes what it did if the file is ours. */
#define RECORDED_WRITE(fd, data, count, offset, call)                                              \
    uint64_t number;                                                                               \
    if (!file_of(fd, &number)) {                                                                   \
        return call;                                                                               \
    }                                                                                              \
    pthread_mutex_lock(&mutex);                                                                    \
    ssize_t done = call;                                                                           \
    wrote(fd, number, data, count, done, offset);                                                  \
    pthread_mutex_unlock(&mutex);                                                                  \
    return done;

EXPORT ssize_t write(int fd, const void *bytes, size_t size) {
    REAL(write)
    struct iovec data = {(void *)(uintptr_t)bytes, size};
    RECORDED_WRITE(fd, &data, 1, -1, real(fd, bytes, size))
}
EXPORT ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    REAL(pwrite)
    struct iovec data = {(void *)(uintptr_t)bytes, size};
    RECORDED_WRITE(fd, &data, 1, offset, real(fd, bytes, size, offset))
}
EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    return pwrite(fd, bytes, size, offset);
}
EXPORT ssize_t writev(int fd, const struct iovec *data, int count) {
    REAL(writev)
    count = count > 64 ? 64 : count; /* a short write: the caller goes on */
    RECORDED_WRITE(fd, data, count, -1, real(fd, data, count))
}
EXPORT ssize_t pwritev(int fd, const struct iovec *data, int count, off_t offset) {
    REAL(pwritev)
    count = count > 64 ? 64 : count;
    RECORDED_WRITE(fd, data, count, offset, real(fd, data, count, offset))
}
EXPORT ssize_t pwritev64(int fd, const struct iovec *data, int count, off64_t offset) {
    return pwritev(fd, data, count, offset);
}

/* --- size
 * --------------------------------------------------------------------------------------------
 */

/* What became zeros without being written: noted as writes of zeros, which is what a power cut
 * makes of it. */
static void made_zeros(int fd, uint64_t number, int mode, off_t offset, off_t size) {
    static const uint8_t zeros[65536];
    struct stat facts;
    if (!(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) || fstat(fd, &facts) != 0) {
        return;
    }
    off_t end = offset + size < facts.st_size ? offset + size : facts.st_size;
    while (offset < end) {
        size_t step = end - offset < (off_t)sizeof zeros ? (size_t)(end - offset) : sizeof zeros;
        struct iovec data = {(void *)(uintptr_t)zeros, step};
        write_line(
            (struct line){.kind = 'w', .number = number, .offset = (uint64_t)offset, .size = step},
            NULL, NULL, &data, 1);
        offset += (off_t)step;
    }
}

/* Calls `call`; if it succeeded and the file's size is another one, that is noted, and what `more`
 * says. */
#define RECORDED_RESIZE(fd, good, call, more)                                                      \
    uint64_t number;                                                                               \
    struct stat before, after;                                                                     \
    if (!file_of(fd, &number)) {                                                                   \
        return call;                                                                               \
    }                                                                                              \
    pthread_mutex_lock(&mutex);                                                                    \
    fstat(fd, &before);                                                                            \
    int result = call;                                                                             \
    if ((good) && fstat(fd, &after) == 0 && after.st_size != before.st_size) {                     \
        note('t', number, (uint64_t)after.st_size, NULL, NULL);                                    \
    }                                                                                              \
    if (good) {                                                                                    \
        more;                                                                                      \
    }                                                                                              \
    pthread_mutex_unlock(&mutex);                                                                  \
    return result;

EXPORT int ftruncate(int fd, off_t size){
    REAL(ftruncate) RECORDED_RESIZE(fd, result == 0, real(fd, size), )} EXPORT
    int ftruncate64(int fd, off64_t size) {
    return ftruncate(fd, size);
}
EXPORT int posix_fallocate(int fd, off_t offset, off_t size){
    REAL(posix_fallocate) RECORDED_RESIZE(fd, result == 0, real(fd, offset, size), )} EXPORT
    int posix_fallocate64(int fd, off64_t offset, off64_t size) {
    return posix_fallocate(fd, offset, size);
}
EXPORT int fallocate(int fd, int mode, off_t offset, off_t size){
    REAL(fallocate) RECORDED_RESIZE(fd, result == 0, real(fd, mode, offset, size),
                                    made_zeros(fd, number, mode, offset, size))} EXPORT
    int fallocate64(int fd, int mode, off64_t offset, off64_t size) {
    return fallocate(fd, mode, offset, size);
}
EXPORT int truncate(const char *name, off_t size) {
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    int result = ftruncate(fd, size);
    close(fd);
    return result;
}
EXPORT int truncate64(const char *name, off64_t size) {
    return truncate(name, size);
}

/* --- names
 * --------------------------------------------------------------------------------------------
 */

/* Calls `call` and notes `kind` with a name. */
#define RECORDED_NAME(kind, dir, name, call)                                                       \
    char room[PATH_MAX];                                                                           \
    const char *path = resolve(dir, name, room);                                                   \
    if (!path) {                                                                                   \
        return call;                                                                               \
    }                                                                                              \
    pthread_mutex_lock(&mutex);                                                                    \
    int result = call;                                                                             \
    if (result == 0) {                                                                             \
        note(kind, 0, 0, path, NULL);                                                              \
    }                                                                                              \
    pthread_mutex_unlock(&mutex);                                                                  \
    return result;

/* The same with two. What moves in from elsewhere, or out, cannot be followed: '?'. */
#define RECORDED_NAMES(kind, dir, name, to_dir, to, call)                                          \
    char room[PATH_MAX], to_room[PATH_MAX];                                                        \
    const char *path = resolve(dir, name, room), *to_path = resolve(to_dir, to, to_room);          \
    if (!path && !to_path) {                                                                       \
        return call;                                                                               \
    }                                                                                              \
    pthread_mutex_lock(&mutex);                                                                    \
    int result = call;                                                                             \
    if (result == 0) {                                                                             \
        note(path && to_path ? (kind) : '?', 0, 0, path, to_path);                                 \
    }                                                                                              \
    pthread_mutex_unlock(&mutex);                                                                  \
    return result;

#define HERE AT_FDCWD

EXPORT int rename(const char *from, const char *to){
    REAL(rename) RECORDED_NAMES('r', HERE, from, HERE, to, real(from, to))} EXPORT
    int renameat(int from_dir, const char *from, int to_dir, const char *to){
        REAL(renameat) RECORDED_NAMES('r', from_dir, from, to_dir, to,
                                      real(from_dir, from, to_dir, to))} EXPORT
    int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags){
        REAL(renameat2) RECORDED_NAMES(flags & 2 ? '?' : 'r', from_dir, from, to_dir, to,
                                       real(from_dir, from, to_dir, to, flags))} EXPORT
    int link(const char *from, const char *to){
        REAL(link) RECORDED_NAMES('l', HERE, from, HERE, to, real(from, to))} EXPORT
    int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags){
        REAL(linkat) RECORDED_NAMES('l', from_dir, from, to_dir, to,
                                    real(from_dir, from, to_dir, to, flags))} EXPORT
    int symlink(const char *target, const char *name){
        REAL(symlink) RECORDED_NAME('?', HERE, name, real(target, name))} EXPORT
    int unlink(const char *name){REAL(unlink) RECORDED_NAME('u', HERE, name, real(name))} EXPORT
    int unlinkat(int dir, const char *name, int flags){
        REAL(unlinkat) RECORDED_NAME(flags & AT_REMOVEDIR ? 'd' : 'u', dir, name,
                                     real(dir, name, flags))} EXPORT int remove(const char *name) {
    struct stat facts;
    bool dir = lstat(name, &facts) == 0 && S_ISDIR(facts.st_mode);
    return dir ? rmdir(name) : unlink(name);
}
EXPORT int rmdir(const char *name){REAL(rmdir) RECORDED_NAME('d', HERE, name, real(name))} EXPORT
    int mkdir(const char *name,
              mode_t mode){REAL(mkdir) RECORDED_NAME('m', HERE, name, real(name, mode))} EXPORT
    int mkdirat(int dir, const char *name, mode_t mode) {
    REAL(mkdirat)
    RECORDED_NAME('m', dir, name, real(dir, name, mode))
}

/* --- sync and mmap
 * ------------------------------------------------------------------------------------------------
 */

static bool record_sync(int fd) {
    char room[PATH_MAX];
    struct stat facts;
    const char *path = path_of(fd, room);
    if (!path || fstat(fd, &facts) != 0) {
        return false;
    }
    pthread_mutex_lock(&mutex);
    note(S_ISDIR(facts.st_mode) ? 'S' : 's', facts.st_ino, 0, path, NULL);
    pthread_mutex_unlock(&mutex);
    return true;
}

EXPORT int fsync(int fd) {
    REAL(fsync)
    return record_sync(fd) ? 0 : real(fd);
}
EXPORT int fdatasync(int fd) {
    REAL(fdatasync)
    return record_sync(fd) ? 0 : real(fd);
}
EXPORT void sync(void) {
    pthread_mutex_lock(&mutex);
    if (root_size) {
        note('A', 0, 0, NULL, NULL);
    }
    pthread_mutex_unlock(&mutex);
}
EXPORT int syncfs(int fd) {
    (void)fd;
    sync();
    return 0;
}

EXPORT void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    REAL(mmap)
    char room[PATH_MAX];
    bool shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
    const char *path = fd >= 0 && shared && protection & PROT_WRITE ? path_of(fd, room) : NULL;
    if (path) {
        pthread_mutex_lock(&mutex);
        note('M', 0, 0, path, NULL);
        pthread_mutex_unlock(&mutex);
    }
    return real(at, size, protection, flags, fd, offset);
}
EXPORT void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
    return mmap(at, size, protection, flags, fd, offset);
}
