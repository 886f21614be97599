/* tape.c - growing, cutting and closing tapes. Growth is by fallocate, so that a store never meets
 * a full disk. */
#include "disk/disk.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define PAGE        UINT64_C(4096)
#define AHEAD_MAX   (UINT64_C(64) << 10) /* a sync writes these pages, used or not */
#define AT_ONCE_MAX (UINT64_C(16) << 10) /* the faults of a longer append cost less than this */
#define GROW_MAX    (UINT64_C(1) << 20)  /* what is allocated and not used is read at recovery */
#define CLEAR_MAX   (UINT64_C(4) << 20)  /* the same */

int qi_tape_open(struct qi_tape *tape, struct qi_disk *disk, int file, uint64_t mapped,
                 bool use_mapping) {
    uint64_t size = 0;
    int error = disk->ops->size(disk, file, &size);
    if (mapped < size)
        mapped = size;
    mapped = mapped ? (mapped + 4095) & ~UINT64_C(4095) : 4096;
    *tape = (struct qi_tape){
        .disk = disk, .file = file, .mapped = mapped, .allocated = size, .told = !use_mapping};
    if (!error)
        error = disk->ops->map(disk, use_mapping ? file : -1, mapped, &tape->memory);
    if (error)
        qi_tape_close(tape);
    return error;
}

int qi_tape_load(struct qi_tape *tape, uint64_t from, uint64_t to) {
    struct qi_disk *disk = tape->disk;
    from &= ~(PAGE - 1);
    if (to > tape->allocated)
        to = tape->allocated;
    if (to <= from)
        return 0;
    if (!tape->told)
        return disk->ops->populate(disk, tape->memory + from, to - from, false);
    int64_t got = disk->ops->read(disk, tape->file, tape->memory + from, to - from, from);
    return got < 0 ? (int)got : 0;
}

int qi_tape_forget(struct qi_tape *tape, uint64_t from, uint64_t to) {
    if (!tape->told) /* pages that share a piece of the cache with what is mapped would stay */
        tape->disk->ops->settle(tape->disk, tape->memory, tape->mapped);
    uint64_t size = tape->allocated;
    int error = tape->disk->ops->drop_cache(tape->disk, tape->file, from, to);
    if (!error)
        error = tape->disk->ops->size(tape->disk, tape->file, &tape->allocated);
    if (tape->allocated > tape->mapped)
        tape->allocated = tape->mapped;
    tape->blocks = 0; /* what came back from the medium may lack some */
    if (!error && tape->told && tape->allocated < size)
        memset(tape->memory + tape->allocated, 0, size - tape->allocated);
    return error;
}

int qi_tape_close(struct qi_tape *tape) {
    struct qi_disk *disk = tape->disk;
    int error = 0;
    if (tape->memory)
        disk->ops->unmap(disk, tape->memory, tape->mapped);
    if (disk && tape->file >= 0)
        error = disk->ops->close(disk, tape->file);
    *tape = (struct qi_tape){.file = -1};
    return error;
}

int qi_tape_reserve(struct qi_tape *tape, uint64_t size, uint64_t keep_free) {
    if (size <= tape->allocated)
        return 0;
    if (size > tape->mapped)
        return -EFBIG;
    uint64_t step = tape->allocated < tape->disk->growth_min ? tape->disk->growth_min
                    : tape->allocated > GROW_MAX             ? GROW_MAX
                                                             : tape->allocated;
    uint64_t target = tape->allocated + step;
    if (target < size)
        target = size;
    if (target > tape->mapped)
        target = tape->mapped;
    target = (target + 4095) & ~UINT64_C(4095);
    if (keep_free > 0) {
        uint64_t left = 0;
        int error = tape->disk->ops->free_bytes(tape->disk, tape->file, &left);
        if (error)
            return error;
        if (left < keep_free + (target - tape->allocated))
            return -ENOSPC;
    }
    int error = tape->disk->ops->allocate(tape->disk, tape->file, tape->blocks, target);
    if (error && target > size) { /* a nearly full disk may still have what is needed now */
        target = (size + 4095) & ~UINT64_C(4095);
        error = tape->disk->ops->allocate(tape->disk, tape->file, tape->blocks, target);
    }
    if (error)
        return error;
    tape->allocated = tape->blocks = target;
    return 0;
}

int qi_tape_make_ready(struct qi_tape *tape, uint64_t tail, uint64_t size, uint64_t keep_free) {
    int error = qi_tape_reserve(tape, size, keep_free);
    if (error)
        return error;
    if (tape->ready < tail) /* recovery found it there */
        qi_tape_unready(tape, tail);
    assert(size > tape->settled);
    uint64_t quarter = (size - tape->settled) / 4, more = quarter < AHEAD_MAX ? quarter : AHEAD_MAX;
    uint64_t from = tape->ready & ~(PAGE - 1), end = (size + more + PAGE - 1) & ~(PAGE - 1);
    if (end > tape->allocated)
        end = tape->allocated;
    if (!tape->told && size - tail <= AT_ONCE_MAX)
        error = tape->disk->ops->populate(tape->disk, tape->memory + from, end - from, true);
    if (!error)
        tape->ready = end;
    return error;
}

/* In a mapping the kernel sees to it; plain memory is ours to clean. */
static void are_zeros(struct qi_tape *tape, uint64_t from) {
    if (tape->told)
        memset(tape->memory + from, 0, tape->allocated - from);
    if (tape->ready > from)
        qi_tape_unready(tape, from);
}

int qi_tape_cut(struct qi_tape *tape, uint64_t size) {
    if (size >= tape->allocated)
        return 0;
    int error = tape->disk->ops->truncate(tape->disk, tape->file, size);
    if (error)
        return error;
    are_zeros(tape, size);
    tape->allocated = size;
    if (tape->blocks > size)
        tape->blocks = size;
    return 0;
}

int qi_tape_clear(struct qi_tape *tape, uint64_t from) {
    const struct qi_disk_ops *ops = tape->disk->ops;
    if (from >= tape->allocated)
        return 0;
    /* Of a last page that is not whole ext4 zeros the bytes, but keeps the page, whose write-back
     * may have failed. */
    if (tape->allocated - from > CLEAR_MAX || tape->allocated % PAGE != 0 ||
        ops->zero(tape->disk, tape->file, from, tape->allocated) != 0)
        return qi_tape_cut(tape, from);
    are_zeros(tape, from);
    return 0;
}

void qi_tape_settle(struct qi_tape *tape, uint64_t from, uint64_t to) {
    from = (from + PAGE - 1) & ~(PAGE - 1);
    to &= ~(PAGE - 1);
    if (!tape->told && to > from)
        tape->disk->ops->settle(tape->disk, tape->memory + from, to - from);
}
