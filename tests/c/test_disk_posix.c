/* test_disk_posix.c - the door to the operating system when the system says no. Usage:
 * test_disk_posix <directory>
 *
 * The linker puts the functions below in front of the system's (--wrap): each fails on demand, or
 * is cut short.
 */
#undef NDEBUG
#define _GNU_SOURCE
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "disk/disk.h"

static struct qi_disk *const disk = &qi_disk_posix;
static const struct qi_disk_ops *ops;

/* ---- system calls that fail ---- */

static const char *failing = "";
static int error_now;
static size_t length_max = SIZE_MAX; /* of one pread or pwrite */
static unsigned long file_system;    /* 0: what it is */

/* The next call of that function fails, once. */
static void fail(const char *function, int error) {
    failing = function;
    error_now = error;
}

static bool fails(const char *function) {
    if (strcmp(failing, function) != 0)
        return false;
    failing = "";
    errno = error_now;
    return true;
}

#define WRAP(type, name, declared, given, failure)                                                 \
    type __real_##name declared;                                                                   \
    type __wrap_##name declared;                                                                   \
    type __wrap_##name declared {                                                                  \
        return fails(#name) ? failure : __real_##name given;                                       \
    }

WRAP(int, openat, (int dir, const char *name, int flags, mode_t mode), (dir, name, flags, mode), -1)
WRAP(DIR *, fdopendir, (int file), (file), NULL)
WRAP(struct dirent *, readdir, (DIR * stream), (stream), NULL)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1)
WRAP(int, mkdirat, (int dir, const char *name, mode_t mode), (dir, name, mode), -1)
WRAP(int, unlinkat, (int dir, const char *name, int flags), (dir, name, flags), -1)
WRAP(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), -1)
WRAP(int, fstat, (int file, struct stat *status), (file, status), -1)
WRAP(int, close, (int file), (file), -1)
WRAP(int, ftruncate, (int file, off_t size), (file, size), -1)
WRAP(int, fallocate, (int file, int mode, off_t from, off_t size), (file, mode, from, size), -1)
WRAP(int, posix_fallocate, (int file, off_t from, off_t size), (file, from, size), error_now)
WRAP(int, fdatasync, (int file), (file), -1)
WRAP(int, fsync, (int file), (file), -1)
WRAP(int, madvise, (void *memory, size_t length, int advice), (memory, length, advice), -1)
WRAP(int, flock, (int file, int what), (file, what), -1)
WRAP(int, fstatvfs, (int file, struct statvfs *status), (file, status), -1)
WRAP(ssize_t, getrandom, (void *bytes, size_t length, unsigned flags), (bytes, length, flags), -1)
WRAP(void *, mmap, (void *at, size_t n, int may, int flags, int file, off_t offset),
     (at, n, may, flags, file, offset), MAP_FAILED)

ssize_t __real_pread(int file, void *bytes, size_t length, off_t offset);
ssize_t __wrap_pread(int file, void *bytes, size_t length, off_t offset);
ssize_t __wrap_pread(int file, void *bytes, size_t length, off_t offset) {
    return fails("pread")
               ? -1
               : __real_pread(file, bytes, length < length_max ? length : length_max, offset);
}

ssize_t __real_pwrite(int file, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite(int file, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite(int file, const void *bytes, size_t length, off_t offset) {
    if (fails("pwrite"))
        return -1;
    if (fails("pwrite of nothing"))
        return 0;
    return __real_pwrite(file, bytes, length < length_max ? length : length_max, offset);
}

static int resident = -1; /* what the cache is said to hold of a page; -1: what it does */

int __real_mincore(void *memory, size_t length, unsigned char *states);
int __wrap_mincore(void *memory, size_t length, unsigned char *states);
int __wrap_mincore(void *memory, size_t length, unsigned char *states) {
    int result = fails("mincore") ? -1 : __real_mincore(memory, length, states);
    if (resident >= 0)
        *states = (unsigned char)resident;
    return result;
}

static int drops, whole_drops; /* of a file from the cache; from its beginning on */

int __real_posix_fadvise(int file, off_t from, off_t length, int advice);
int __wrap_posix_fadvise(int file, off_t from, off_t length, int advice);
int __wrap_posix_fadvise(int file, off_t from, off_t length, int advice) {
    drops++;
    whole_drops += from == 0 && length == 0;
    return fails("posix_fadvise") ? error_now : __real_posix_fadvise(file, from, length, advice);
}

int __real_fstatfs(int file, struct statfs *status);
int __wrap_fstatfs(int file, struct statfs *status);
int __wrap_fstatfs(int file, struct statfs *status) {
    int result = fails("fstatfs") ? -1 : __real_fstatfs(file, status);
    if (file_system)
        status->f_type = (__typeof__(status->f_type))file_system;
    return result;
}

/* ---- what the door says ---- */

static int root;

static int new_file(const char *name, const char *text) {
    int file = ops->open(disk, root, name, QI_OPEN_FRESH);
    assert(file >= 0 && ops->write(disk, file, text, strlen(text), 0) == 0);
    return file;
}

static void test_each_call_says_why_it_failed(void) {
    uint64_t size;
    uint8_t *memory = NULL, bytes[8];
    int file = new_file("a", "text");
    fail("fstat", EIO);
    assert(ops->size(disk, file, &size) == -EIO);
    fail("pread", EIO);
    assert(ops->read(disk, file, bytes, 4, 0) == -EIO);
    fail("pwrite", ENOSPC);
    assert(ops->write(disk, file, "x", 1, 0) == -ENOSPC);
    fail("pwrite of nothing", 0);
    assert(ops->write(disk, file, "x", 1, 0) == -EIO);
    fail("posix_fallocate", ENOSPC);
    assert(ops->allocate(disk, file, 0, 4096) == -ENOSPC);
    fail("ftruncate", EIO);
    assert(ops->truncate(disk, file, 0) == -EIO);
    fail("fallocate", EOPNOTSUPP);
    assert(ops->zero(disk, file, 0, 4) == -EOPNOTSUPP);
    fail("fdatasync", EIO);
    assert(ops->sync(disk, file) == -EIO);
    fail("fsync", EIO);
    assert(ops->sync_dir(disk, root) == -EIO);
    fail("mmap", ENOMEM);
    assert(ops->map(disk, -1, 4096, &memory) == -ENOMEM && !memory);
    fail("flock", EWOULDBLOCK);
    assert(ops->lock(disk, file) == -EWOULDBLOCK);
    fail("fstatvfs", EIO);
    assert(ops->free_bytes(disk, root, &size) == -EIO);
    fail("mkdirat", ENOSPC);
    assert(ops->make_dir(disk, root, "d") == -ENOSPC);
    fail("unlinkat", EIO);
    assert(ops->remove_dir(disk, root, "d") == -EIO);
    fail("unlinkat", EIO);
    assert(ops->unlink(disk, root, "a") == -EIO);
    fail("renameat", EIO);
    assert(ops->rename(disk, root, "a", root, "b") == -EIO);
    fail("openat", EMFILE);
    assert(ops->open_dir(disk, root, "d") == -EMFILE);
    fail("close", EIO);
    assert(ops->close(disk, file) == -EIO);
    assert(ops->close(disk, file) == 0); /* the wrapper did not */
}

static void test_an_open_that_fails_half_way_leaves_no_handle(void) {
    ops->close(disk, new_file("a", "text"));
    int before = dup(root);
    close(before);
    fail("openat", EMFILE);
    assert(ops->open(disk, root, "a", QI_OPEN_READ) == -EMFILE);
    fail("fstat", EIO);
    assert(ops->open(disk, root, "a", QI_OPEN_READ) == -EIO);
    fail("ftruncate", EIO);
    assert(ops->open(disk, root, "a", QI_OPEN_FRESH) == -EIO);
    int after = dup(root);
    close(after);
    assert(before == after);
}

static void count_name(void *context, const char *name) {
    assert(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
    ++*(int *)context;
}

static void test_a_list_is_whole_or_an_error(void) {
    int names = 0, before = dup(root);
    close(before);
    fail("openat", EMFILE);
    assert(ops->list(disk, root, count_name, &names) == -EMFILE);
    fail("fdopendir", ENOMEM);
    assert(ops->list(disk, root, count_name, &names) == -ENOMEM);
    fail("readdir", EIO);
    assert(ops->list(disk, root, count_name, &names) == -EIO);
    assert(names == 0);
    assert(ops->list(disk, root, count_name, &names) == 0 && names > 0);
    int after = dup(root);
    close(after);
    assert(before == after);
}

static void test_signals_and_short_transfers_are_finished_inside(void) {
    char bytes[16] = {0};
    int file = new_file("a", "");
    length_max = 3;
    fail("pwrite", EINTR);
    assert(ops->write(disk, file, "0123456789", 10, 0) == 0);
    fail("pread", EINTR);
    assert(ops->read(disk, file, bytes, 16, 0) == 10 && strcmp(bytes, "0123456789") == 0);
    length_max = SIZE_MAX;
    fail("posix_fallocate", EINTR);
    assert(ops->allocate(disk, file, 0, 8192) == 0);
    if (ops->zero(disk, file, 4096, 8192) == 0) { /* else: not on this file system */
        fail("fallocate", EINTR);
        assert(ops->zero(disk, file, 1, 8192) == 0);
        assert(ops->read(disk, file, bytes, 3, 0) == 3 && memcmp(bytes, "0\0\0", 3) == 0);
    }
    fail("ftruncate", EINTR);
    assert(ops->truncate(disk, file, 2) == 0);
    uint64_t size;
    assert(ops->size(disk, file, &size) == 0 && size == 2);
    uint8_t random[64] = {0}, zeros[64] = {0};
    fail("getrandom", EINTR);
    ops->random(disk, random, sizeof random);
    assert(memcmp(random, zeros, sizeof random) != 0);
    fail("close", EINTR); /* Linux has closed it: a second close could hit another file */
    assert(ops->close(disk, file) == 0);
    close(file);
}

/* A sync that failed is told, and never made up for by a second one (H13). */
static void test_a_sync_is_not_repeated(void) {
    int file = new_file("a", "text");
    fail("fdatasync", EINTR);
    assert(ops->sync(disk, file) == -EINTR);
    ops->close(disk, file);
}

static bool is_resident(int file, uint64_t from, uint64_t to) {
    unsigned char states[4096];
    uint64_t pages = (to - from) / 4096;
    assert(pages <= sizeof states);
    void *memory = mmap(NULL, to - from, PROT_READ, MAP_SHARED, file, (off_t)from);
    assert(memory != MAP_FAILED && mincore(memory, to - from, states) == 0);
    bool any = false;
    for (uint64_t i = 0; i < pages; i++)
        any = any || (states[i] & 1);
    munmap(memory, to - from);
    return any;
}

/* Also where the cache has pieces of many pages, which stay as a whole if they begin before that:
 * one big write makes them. */
static void test_nothing_behind_the_place_stays_in_the_cache(void) {
    enum { SIZE = 5 << 20 };
    uint8_t *bytes = calloc(1, SIZE);
    int file = new_file("cached", "");
    assert(bytes && ops->write(disk, file, bytes, SIZE, 0) == 0 && ops->sync(disk, file) == 0);
    assert(ops->drop_cache(disk, file, 0, UINT64_MAX) == 0);
    if (!is_resident(file, 0, SIZE)) { /* else there is no medium behind the cache */
        for (uint64_t from = 4096 * 37; from < SIZE; from += 4096 * 101) {
            uint64_t to = from / 4096 % 2 ? SIZE : from + 4096 * (1 + from / 4096 % 7);
            to = to < SIZE ? to : SIZE;
            assert(ops->write(disk, file, bytes, SIZE, 0) == 0 && ops->sync(disk, file) == 0);
            assert(ops->drop_cache(disk, file, from, to) == 0);
            assert(!is_resident(file, from, to) && ops->drop_cache(disk, file, 0, UINT64_MAX) == 0);
        }
        static const char *const unknown[] = {"mincore", "mmap"}; /* then more of it goes */
        for (int i = 0; i < 2; i++) {
            assert(ops->write(disk, file, bytes, SIZE, 0) == 0 && ops->sync(disk, file) == 0);
            fail(unknown[i], ENOMEM);
            assert(ops->drop_cache(disk, file, 3 << 20, UINT64_MAX) == 0);
            failing = "";
            assert(!is_resident(file, 2 << 20, SIZE));
        }
    }
    ops->close(disk, file);
    free(bytes);
}

/* What the cache did not let go, or what cannot be told: then the file leaves it as a whole. */
static void test_a_file_of_which_something_stays_in_the_cache_leaves_it_as_a_whole(void) {
    static const struct {
        const char *fails;
        int resident, drops, whole;
    } cases[] = {{"", 0, 1, 0}, {"", 1, 3, 1}, {"mincore", 0, 2, 0}, {"mmap", 0, 2, 0}};
    int file = new_file("cached", "text");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        drops = whole_drops = 0;
        resident = cases[i].resident;
        fail(cases[i].fails, ENOMEM);
        assert(ops->drop_cache(disk, file, 5 << 20, UINT64_MAX) == 0);
        assert(drops == cases[i].drops && whole_drops == cases[i].whole);
    }
    drops = whole_drops = 0; /* nothing begins before the file does */
    assert(ops->drop_cache(disk, file, 100, UINT64_MAX) == 0 && drops == 1 && whole_drops == 1);
    resident = 1;
    assert(ops->drop_cache(disk, file, 100, 200) == 0 && drops == 4 && whole_drops == 2);
    fail("posix_fadvise", EIO);
    assert(ops->drop_cache(disk, file, 5 << 20, UINT64_MAX) == -EIO && drops == 5);
    resident = -1;
    ops->close(disk, file);
}

/* As with mlockall: what is locked stays mapped, and what is mapped stays in the cache, unless it
 * is said twice. */
static void test_a_locked_page_leaves_the_mapping_too(void) {
    uint8_t *memory;
    int file = new_file("locked", "text");
    assert(ops->sync(disk, file) == 0 && ops->drop_cache(disk, file, 0, UINT64_MAX) == 0);
    bool has_medium = !is_resident(file, 0, 4096);
    assert(ops->map(disk, file, 4096, &memory) == 0);
    assert(ops->populate(disk, memory, 4096, false) == 0 && is_resident(file, 0, 4096));
    /* A sanitizer's mlock does nothing. It may be refused, and there may be no medium. */
    bool is_locked = syscall(SYS_mlock, memory, 4096) == 0;
    bool may_go = madvise(memory, 4096, 24 /* MADV_DONTNEED_LOCKED: since Linux 5.18 */) == 0;
    assert(ops->populate(disk, memory, 4096, false) == 0);
    if (has_medium && is_locked && may_go) {
        ops->settle(disk, memory, 4096);
        assert(ops->drop_cache(disk, file, 0, UINT64_MAX) == 0 && !is_resident(file, 0, 4096));
    }
    ops->unmap(disk, memory, 4096);
    ops->close(disk, file);
}

static void test_a_page_that_cannot_be_read_is_an_error(void) {
    uint8_t *memory;
    int file = new_file("a", "text");
    assert(ops->allocate(disk, file, 0, 4096) == 0);
    assert(ops->map(disk, file, 4096, &memory) == 0);
    assert(ops->populate(disk, memory, 4096, false) == 0 && memcmp(memory, "text", 4) == 0);
    fail("madvise", EFAULT); /* what the kernel says where a touch would be a SIGBUS */
    assert(ops->populate(disk, memory, 4096, false) == -EIO);
    fail("madvise", ENOMEM);
    assert(ops->populate(disk, memory, 4096, false) == -ENOMEM);
    fail("madvise", ENOMEM);
    assert(ops->populate(disk, memory, 4096, true) == 0);
    fail("madvise", EFAULT);
    assert(ops->populate(disk, memory, 4096, true) == -EIO);
    fail("madvise", EINVAL); /* a kernel before 5.14: pages come when they are touched */
    assert(ops->populate(disk, memory, 4096, true) == 0);
    ops->unmap(disk, memory, 4096);
    ops->close(disk, file);
}

/* Copy-on-write and network file systems may fail a store into blocks that were allocated: that is
 * a SIGBUS. */
static void test_files_are_mapped_where_blocks_stay(void) {
    static const unsigned long safe[] = {0xEF53, 0x58465342, 0x01021994};
    for (size_t i = 0; i < sizeof safe / sizeof *safe; i++) {
        file_system = safe[i];
        assert(ops->mapping_is_safe(disk, root));
    }
    file_system = 0x9123683E; /* btrfs */
    assert(!ops->mapping_is_safe(disk, root));
    file_system = 0;
    fail("fstatfs", EIO);
    assert(!ops->mapping_is_safe(disk, root));
}

static void test_a_folder_tells_when_it_changed_if_it_can(void) {
    assert(ops->changed_us(disk, root) != UINT64_MAX);
    fail("fstat", EIO);
    assert(ops->changed_us(disk, root) == UINT64_MAX);
}

static void test_the_stores_own_name_is_synced_if_its_parent_may_be_opened(const char *path) {
    char name[4200];
    snprintf(name, sizeof name, "%s/store", path);
    fail("openat", EACCES);
    int opened = ops->open_root(disk, name, true);
    assert(opened >= 0 && ops->close(disk, opened) == 0);
    fail("mkdir", ENOSPC);
    assert(ops->open_root(disk, name, true) == -ENOSPC);
    snprintf(name, sizeof name, "%s/nowhere", path);
    assert(ops->open_root(disk, name, false) == -ENOENT);
}

int main(int count, char **arguments) {
    assert(count == 2);
    ops = disk->ops;
    root = ops->open_root(disk, arguments[1], false);
    assert(root >= 0);
    test_each_call_says_why_it_failed();
    test_an_open_that_fails_half_way_leaves_no_handle();
    test_a_list_is_whole_or_an_error();
    test_signals_and_short_transfers_are_finished_inside();
    test_a_sync_is_not_repeated();
    test_nothing_behind_the_place_stays_in_the_cache();
    test_a_file_of_which_something_stays_in_the_cache_leaves_it_as_a_whole();
    test_a_locked_page_leaves_the_mapping_too();
    test_a_page_that_cannot_be_read_is_an_error();
    test_files_are_mapped_where_blocks_stay();
    test_a_folder_tells_when_it_changed_if_it_can();
    test_the_stores_own_name_is_synced_if_its_parent_may_be_opened(arguments[1]);
    printf("disk_posix: all passed\n");
    return 0;
}
