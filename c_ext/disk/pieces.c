/* pieces.c - one call that reads into several pieces of memory, or writes them: preadv2, pwritev.
 *
 * A transfer that ends short goes on behind what is done.
 */
#define _GNU_SOURCE
#include "disk/disk_private.h"

#include <errno.h>
#include <sys/statfs.h>
#include <sys/uio.h>

bool qi_is_in_memory(struct qi_disk *disk, int dir) {
    struct statfs status;
    (void)disk;
    return fstatfs(dir, &status) == 0 && (unsigned long)status.f_type == 0x01021994; /* tmpfs */
}

/* What is in the cache only; -1 with EAGAIN where the system cannot tell. */
static ssize_t read_now(int file, const struct iovec *vectors, int count, off_t offset) {
#ifdef RWF_NOWAIT
    return preadv2(file, vectors, count, offset, RWF_NOWAIT);
#else
    (void)file, (void)vectors, (void)count, (void)offset;
    errno = EAGAIN;
    return -1;
#endif
}

static uint64_t to_vectors(const struct qi_piece *pieces, uint32_t count, struct iovec *vectors) {
    uint64_t length = 0;
    for (uint32_t i = 0; i < count; i++) {
        vectors[i] = (struct iovec){pieces[i].bytes, pieces[i].length};
        length += pieces[i].length;
    }
    return length;
}

/* What is left of them behind `done` bytes: returns how many vectors that are, at *vectors. */
static int skip(struct iovec **vectors, int count, size_t done) {
    while (count > 0 && done >= (*vectors)->iov_len) {
        done -= (*vectors)->iov_len;
        (*vectors)++;
        count--;
    }
    if (count > 0) {
        (*vectors)->iov_base = (char *)(*vectors)->iov_base + done;
        (*vectors)->iov_len -= done;
    }
    return count;
}

int64_t qi_read_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces,
                       uint32_t count, uint64_t offset, bool may_wait) {
    struct iovec room[QI_PIECES_MAX], *vectors = room;
    uint64_t length = to_vectors(pieces, count, vectors), done = 0;
    int left = (int)count;
    (void)disk;
    while (done < length) {
        ssize_t got = (may_wait ? preadv : read_now)(file, vectors, left, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && !may_wait)
            return done ? (int64_t)done : -EAGAIN;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (uint64_t)got;
        left = skip(&vectors, left, (size_t)got);
    }
    return (int64_t)done;
}

int qi_write_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces, uint32_t count,
                    uint64_t offset) {
    struct iovec room[QI_PIECES_MAX], *vectors = room;
    uint64_t length = to_vectors(pieces, count, vectors), done = 0;
    int left = (int)count;
    (void)disk;
    while (done < length) {
        ssize_t put = pwritev(file, vectors, left, (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        if (put == 0)
            return -EIO;
        done += (uint64_t)put;
        left = skip(&vectors, left, (size_t)put);
    }
    return 0;
}
