/* test_pieces.c - one call for several pieces of memory, where the system is interrupted, ends
 * short, or would have to wait. Usage: test_pieces <directory> */
#undef NDEBUG
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "disk/disk.h"

static struct qi_disk *const disk = &qi_disk_posix;
static const struct qi_disk_ops *ops;
static int file;

/* ---- a system that gives little ---- */

static size_t length_max = SIZE_MAX; /* of one call */
static int interruptions, calls;
static int calls_before = -1, error_then; /* so many calls pass, then each one fails; -1: none */

static ssize_t limit(const struct iovec *vectors, int count, struct iovec *less, int *few) {
    size_t left = length_max;
    calls++;
    if (interruptions > 0 && interruptions--) {
        errno = EINTR;
        return -1;
    }
    if (calls_before >= 0 && calls_before-- == 0) {
        calls_before = 0;
        errno = error_then;
        return error_then ? -1 : 0;
    }
    for (*few = 0; *few < count && left > 0; left -= less[(*few)++].iov_len) {
        less[*few] = vectors[*few];
        if (less[*few].iov_len > left)
            less[*few].iov_len = left;
    }
    return 1;
}

ssize_t __real_preadv(int handle, const struct iovec *vectors, int count, off_t offset);
ssize_t __wrap_preadv(int handle, const struct iovec *vectors, int count, off_t offset);
ssize_t __wrap_preadv(int handle, const struct iovec *vectors, int count, off_t offset) {
    struct iovec less[QI_PIECES_MAX];
    int few;
    ssize_t result = limit(vectors, count, less, &few);
    return result <= 0 ? result : __real_preadv(handle, less, few, offset);
}

ssize_t __wrap_preadv2(int handle, const struct iovec *vectors, int count, off_t offset, int flags);
ssize_t __wrap_preadv2(int handle, const struct iovec *vectors, int count, off_t offset,
                       int flags) {
    assert(flags == RWF_NOWAIT); /* tmpfs would refuse it: here all is in the cache */
    return __wrap_preadv(handle, vectors, count, offset);
}

ssize_t __real_pwritev(int handle, const struct iovec *vectors, int count, off_t offset);
ssize_t __wrap_pwritev(int handle, const struct iovec *vectors, int count, off_t offset);
ssize_t __wrap_pwritev(int handle, const struct iovec *vectors, int count, off_t offset) {
    struct iovec less[QI_PIECES_MAX];
    int few;
    ssize_t result = limit(vectors, count, less, &few);
    return result <= 0 ? result : __real_pwritev(handle, less, few, offset);
}

static void fail_after(int passed, int error) {
    calls_before = passed;
    error_then = error;
}

/* ---- tests ---- */

static void put(void) {
    assert(ops->write(disk, file, "headthe body.", 13, 10) == 0);
}

/* `got` of 13 bytes: the first so many are what was written, the others are as they were. */
static void check(int64_t got, bool may_wait) {
    char head[4], body[8], end[1], all[14] = {0};
    const struct qi_piece pieces[] = {{head, 4}, {NULL, 0}, {body, 8}, {end, 1}};
    memset(head, '?', sizeof head);
    memset(body, '?', sizeof body);
    memset(end, '?', sizeof end);
    assert(ops->read_pieces(disk, file, pieces, 4, 10, may_wait) == got);
    memcpy(all, head, 4);
    memcpy(all + 4, body, 8);
    memcpy(all + 12, end, 1);
    size_t right = got > 0 ? (size_t)got : 0;
    assert(memcmp(all, "headthe body.", right) == 0);
    assert(strspn(all + right, "?") == 13 - right);
}

/* Any number of bytes for a call: pieces end within it, at its end, or behind it. */
static void test_short_and_interrupted_transfers_are_finished_inside(void) {
    put();
    for (length_max = 1; length_max <= 14; length_max++) {
        for (int may_wait = 0; may_wait < 2; may_wait++) {
            interruptions = 2;
            calls = 0;
            check(13, may_wait);
            assert(calls == 2 + (12 + (int)length_max) / (int)length_max);
        }
    }
    length_max = SIZE_MAX;
}

static void test_the_end_of_the_file_ends_a_read(void) {
    for (int64_t size = 0; size <= 13; size++) {
        put();
        assert(ftruncate(file, 10 + size) == 0);
        check(size, false);
        check(size, true);
    }
}

static void test_a_read_that_must_not_wait_says_what_the_cache_had(void) {
    put();
    length_max = 5;
    for (int passed = 0; passed < 3; passed++) {
        fail_after(passed, EAGAIN);
        check(passed ? 5 * passed : -EAGAIN, false);
    }
    fail_after(0, EOPNOTSUPP); /* an older system, or tmpfs */
    check(-EAGAIN, false);
    fail_after(1, EIO); /* the read that may wait tells */
    check(5, false);
    fail_after(-1, 0);
    length_max = SIZE_MAX;
}

static void test_errors_are_told(void) {
    length_max = 5;
    put();
    fail_after(1, EIO);
    assert(ops->read_pieces(disk, file, &(struct qi_piece){(char[8]){0}, 8}, 1, 10, true) == -EIO);
    fail_after(-1, 0);
    length_max = SIZE_MAX;
}

static int write_all(void) {
    static char all[] = "headthe body.";
    const struct qi_piece pieces[] = {{all, 4}, {NULL, 0}, {all + 4, 8}, {all + 12, 1}};
    assert(ftruncate(file, 0) == 0);
    calls = 0;
    return ops->write_pieces(disk, file, pieces, 4, 10);
}

static void test_short_and_interrupted_writes_are_finished_inside(void) {
    for (length_max = 1; length_max <= 14; length_max++) {
        interruptions = 2;
        assert(write_all() == 0 && calls == 2 + (12 + (int)length_max) / (int)length_max);
        check(13, true);
    }
    length_max = SIZE_MAX;
}

static void test_a_write_that_ends_half_way_is_an_error(void) {
    length_max = 5;
    for (int passed = 0; passed < 3; passed++) {
        fail_after(passed, ENOSPC);
        assert(write_all() == -ENOSPC);
        fail_after(passed, 0); /* the system takes nothing, and says no error */
        assert(write_all() == -EIO);
    }
    fail_after(-1, 0);
    length_max = SIZE_MAX;
}

int main(int count, char **arguments) {
    assert(count == 2);
    ops = disk->ops;
    int root = ops->open_root(disk, arguments[1], false);
    file = ops->open(disk, root, "pieces", QI_OPEN_FRESH);
    assert(root >= 0 && file >= 0);
    test_short_and_interrupted_transfers_are_finished_inside();
    test_the_end_of_the_file_ends_a_read();
    test_a_read_that_must_not_wait_says_what_the_cache_had();
    test_errors_are_told();
    test_short_and_interrupted_writes_are_finished_inside();
    test_a_write_that_ends_half_way_is_an_error();
    printf("pieces: all passed\n");
    return 0;
}
