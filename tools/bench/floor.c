/* The raw floor: the least that any queue must do which survives kill -9.
 *
 * A frame is a length, a CRC32C and the body, copied into a mapped file; there is no index, no
 * queue, no Python. Whatever an engine needs beyond these figures is the price of being a queue.
 * Every function returns 0, or an errno. Nothing here is linked into qindex: floor.py compiles it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#if defined(__SSE4_2__)
#include <nmmintrin.h>
#define CRC_8_BYTES(crc, value) ((uint32_t)_mm_crc32_u64((crc), (value)))
#define CRC_1_BYTE(crc, value)  _mm_crc32_u8((crc), (value))
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC_8_BYTES(crc, value) __crc32cd((crc), (value))
#define CRC_1_BYTE(crc, value)  __crc32cb((crc), (value))
#else
#error "the floor needs a CPU with CRC32C instructions"
#endif

enum { FRAME_HEAD_BYTES = 8, BLOCK_BYTES = 4096, SYNC_FILE_BYTES = 16 << 20 };

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double now_seconds(void) {
    return seconds_of(CLOCK_MONOTONIC);
}

static double cpu_seconds(void) {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

static uint32_t crc32c(const uint8_t *bytes, size_t size) {
    uint32_t crc = ~0u;
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        crc = CRC_8_BYTES(crc, word);
    }
    for (; size > 0; bytes++, size--)
        crc = CRC_1_BYTE(crc, *bytes);
    return ~crc;
}

static size_t append_frame(uint8_t *to, const uint8_t *body, uint32_t body_bytes) {
    uint32_t crc = crc32c(body, body_bytes);
    memcpy(to, &body_bytes, 4);
    memcpy(to + 4, &crc, 4);
    memcpy(to + FRAME_HEAD_BYTES, body, body_bytes);
    return FRAME_HEAD_BYTES + body_bytes;
}

/* Copies the body out and checks it, as get() must. Returns 0 for a bad frame. */
static size_t read_frame(const uint8_t *from, uint8_t *body) {
    uint32_t body_bytes, crc;
    memcpy(&body_bytes, from, 4);
    memcpy(&crc, from + 4, 4);
    memcpy(body, from + FRAME_HEAD_BYTES, body_bytes);
    return crc32c(body, body_bytes) == crc ? FRAME_HEAD_BYTES + body_bytes : 0;
}

static int map_new_file(const char *path, size_t size, int *fd, uint8_t **map) {
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (*fd < 0)
        return errno;
    int failed = posix_fallocate(*fd, 0, (off_t)size);
    if (failed == 0) {
        *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
        failed = *map == MAP_FAILED ? errno : 0;
    }
    if (failed != 0)
        close(*fd);
    return failed;
}

static double time_appends(uint8_t *map, uint64_t count, const uint8_t *body, uint32_t body_bytes) {
    double start = now_seconds();
    for (uint64_t i = 0; i < count; i++)
        map += append_frame(map, body, body_bytes);
    return now_seconds() - start;
}

/* seconds[0]: appends into pages never written; [1]: into pages written before; [2]: reading back.
 */
int floor_append_and_read(const char *path, uint64_t count, const uint8_t *body,
                          uint32_t body_bytes, double seconds[3]) {
    size_t size = count * (FRAME_HEAD_BYTES + body_bytes);
    uint8_t *map, scratch[1 << 16];
    int fd;
    if (body_bytes > sizeof scratch)
        return EINVAL;
    int failed = map_new_file(path, size, &fd, &map);
    if (failed != 0)
        return failed;
    seconds[0] = time_appends(map, count, body, body_bytes);
    seconds[1] = time_appends(map, count, body, body_bytes);
    double start = now_seconds();
    size_t frame_bytes = 1;
    for (const uint8_t *from = map; from < map + size && frame_bytes > 0; from += frame_bytes)
        frame_bytes = read_frame(from, scratch);
    seconds[2] = now_seconds() - start;
    munmap(map, size);
    close(fd);
    return frame_bytes > 0 ? 0 : EIO;
}

/* One append and one read per turn, the read `depth` frames behind, round and round in one file. */
int floor_cycle(const char *path, uint64_t count, uint32_t depth, const uint8_t *body,
                uint32_t body_bytes, double *seconds) {
    size_t frame_bytes = FRAME_HEAD_BYTES + body_bytes, slots = 2 * (size_t)depth;
    uint8_t *map, scratch[1 << 16];
    int fd, bad = 0;
    if (body_bytes > sizeof scratch)
        return EINVAL;
    int failed = map_new_file(path, slots * frame_bytes, &fd, &map);
    if (failed != 0)
        return failed;
    time_appends(map, slots, body, body_bytes);
    double start = now_seconds();
    for (uint64_t i = 0; i < count; i++) {
        append_frame(map + (i + depth) % slots * frame_bytes, body, body_bytes);
        bad |= read_frame(map + i % slots * frame_bytes, scratch) == 0;
    }
    *seconds = now_seconds() - start;
    munmap(map, slots * frame_bytes);
    close(fd);
    return bad ? EIO : 0;
}

/* A file whose blocks are all written and durable, so that a later sync moves data and no metadata.
 */
static int open_written_file(const char *path, int *fd) {
    static const uint8_t block[BLOCK_BYTES];
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (*fd < 0)
        return errno;
    for (off_t at = 0; at < SYNC_FILE_BYTES; at += BLOCK_BYTES)
        if (pwrite(*fd, block, BLOCK_BYTES, at) != BLOCK_BYTES)
            return errno != 0 ? errno : EIO;
    return fsync(*fd) != 0 ? errno : 0;
}

/* One 4 KiB block and one fdatasync per turn, the blocks in a row, until time or count is used up.
 */
int floor_sync_each(const char *path, uint64_t count_max, double seconds_max, uint64_t *count,
                    double *seconds) {
    uint8_t block[BLOCK_BYTES];
    int fd, failed = open_written_file(path, &fd);
    double start = now_seconds();
    *count = 0;
    *seconds = 0;
    while (failed == 0 && *count < count_max && *seconds < seconds_max) {
        off_t at = (off_t)(*count * BLOCK_BYTES % SYNC_FILE_BYTES);
        memset(block, (int)(*count % 255 + 1), sizeof block);
        if (pwrite(fd, block, BLOCK_BYTES, at) != BLOCK_BYTES || fdatasync(fd) != 0)
            failed = errno != 0 ? errno : EIO;
        *count += 1;
        *seconds = now_seconds() - start;
    }
    if (fd >= 0)
        close(fd);
    return failed;
}

/* `batch` mapped appends, then one fdatasync: group commit and nothing else. */
int floor_sync_batches(const char *path, uint32_t batch, uint64_t count_max, double seconds_max,
                       const uint8_t *body, uint32_t body_bytes, uint64_t *count, double *seconds) {
    size_t batch_bytes = batch * (size_t)(FRAME_HEAD_BYTES + body_bytes), at = 0;
    int fd, failed = open_written_file(path, &fd);
    if (failed != 0)
        return failed;
    uint8_t *map = mmap(NULL, SYNC_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || batch_bytes > SYNC_FILE_BYTES)
        failed = EINVAL;
    double start = now_seconds();
    *count = 0;
    *seconds = 0;
    while (failed == 0 && *count < count_max && *seconds < seconds_max) {
        if (at + batch_bytes > SYNC_FILE_BYTES)
            at = 0;
        time_appends(map + at, batch, body, body_bytes);
        failed = fdatasync(fd) != 0 ? errno : 0;
        at += batch_bytes;
        *count += batch;
        *seconds = now_seconds() - start;
    }
    if (map != MAP_FAILED)
        munmap(map, SYNC_FILE_BYTES);
    close(fd);
    return failed;
}

/* Bodies in blocks that were never written, one fdatasync per `batch`: what a flush cannot do
 * without, once. */
int floor_flush(const char *path, uint32_t batch, uint64_t count_max, double seconds_max,
                const uint8_t *body, uint32_t body_bytes, uint64_t *count, double *seconds) {
    size_t batch_bytes = batch * (size_t)(FRAME_HEAD_BYTES + body_bytes);
    uint8_t *bytes =
        mmap(NULL, batch_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), failed = fd < 0 ? errno : 0;
    if (bytes == MAP_FAILED)
        failed = ENOMEM;
    double start = now_seconds();
    *count = 0;
    *seconds = 0;
    while (failed == 0 && *count < count_max && *seconds < seconds_max) {
        time_appends(bytes, batch, body, body_bytes);
        off_t at = (off_t)(*count / batch * batch_bytes);
        if (pwrite(fd, bytes, batch_bytes, at) != (ssize_t)batch_bytes || fdatasync(fd) != 0)
            failed = errno != 0 ? errno : EIO;
        *count += batch;
        *seconds = now_seconds() - start;
    }
    if (bytes != MAP_FAILED)
        munmap(bytes, batch_bytes);
    if (fd >= 0)
        close(fd);
    return failed;
}

/* Three streams, which is as fast as the instruction goes. Not the CRC of the whole, but its work.
 */
static uint32_t checksum(const uint8_t *bytes, size_t size) {
    uint64_t a = ~0u, b = ~0u, c = ~0u, word[3];
    size_t third = size / 24 * 8;
    for (size_t at = 0; at < third; at += 8) {
        memcpy(&word[0], bytes + at, 8);
        memcpy(&word[1], bytes + third + at, 8);
        memcpy(&word[2], bytes + 2 * third + at, 8);
        a = CRC_8_BYTES((uint32_t)a, word[0]);
        b = CRC_8_BYTES((uint32_t)b, word[1]);
        c = CRC_8_BYTES((uint32_t)c, word[2]);
    }
    return (uint32_t)(a ^ b ^ c) ^ crc32c(bytes + 3 * third, size - 3 * third);
}

/* Bodies of any size, once into a file whose pages are in memory and once out of it, each by one
 * call with its checksum: what a body cannot do without. The file is gone round and round. */
int floor_bodies(const char *path, uint64_t count, const uint8_t *body, uint32_t body_bytes,
                 double seconds[4]) {
    uint64_t frame_bytes = FRAME_HEAD_BYTES + (uint64_t)body_bytes;
    uint64_t room = SYNC_FILE_BYTES / frame_bytes;
    uint8_t *scratch = malloc(body_bytes);
    uint32_t head[2];
    int fd, failed = scratch ? open_written_file(path, &fd) : ENOMEM;
    if (failed != 0) {
        free(scratch);
        return failed;
    }
    double start = now_seconds(), cpu_start = cpu_seconds();
    for (uint64_t i = 0; failed == 0 && i < count; i++) {
        head[0] = body_bytes;
        head[1] = checksum(body, body_bytes);
        struct iovec parts[2] = {{head, sizeof head}, {(void *)(uintptr_t)body, body_bytes}};
        if (pwritev(fd, parts, 2, (off_t)(i % room * frame_bytes)) != (ssize_t)frame_bytes)
            failed = errno != 0 ? errno : EIO;
    }
    seconds[0] = now_seconds() - start;
    seconds[2] = cpu_seconds() - cpu_start;
    start = now_seconds();
    cpu_start = cpu_seconds();
    for (uint64_t i = 0; failed == 0 && i < count; i++) {
        struct iovec parts[2] = {{head, sizeof head}, {scratch, body_bytes}};
        if (preadv(fd, parts, 2, (off_t)(i % (count < room ? count : room) * frame_bytes)) !=
                (ssize_t)frame_bytes ||
            checksum(scratch, body_bytes) != head[1])
            failed = errno != 0 ? errno : EIO;
    }
    seconds[1] = now_seconds() - start;
    seconds[3] = cpu_seconds() - cpu_start;
    free(scratch);
    close(fd);
    return failed;
}

/* A journal's bytes, synced as they came, as a kill -9 leaves them: made durable once more and
 * read. */
int floor_reopen(const char *path, uint32_t count, const uint8_t *body, uint32_t body_bytes,
                 double *seconds) {
    size_t size = count * (size_t)(FRAME_HEAD_BYTES + body_bytes);
    uint8_t *map, *bytes = malloc(size);
    int fd, failed = bytes ? map_new_file(path, size, &fd, &map) : ENOMEM;
    if (failed != 0) {
        free(bytes);
        return failed;
    }
    time_appends(map, count, body, body_bytes);
    failed = fsync(fd) != 0 ? errno : 0;
    munmap(map, size);
    double start = now_seconds();
    if (fdatasync(fd) != 0)
        failed = errno;
    if (pread(fd, bytes, size, 0) != (ssize_t)size)
        failed = errno != 0 ? errno : EIO;
    *seconds = now_seconds() - start;
    free(bytes);
    close(fd);
    return failed;
}
