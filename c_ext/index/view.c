/* view.c - is what a reader has read still so? Both journals tell by a few bytes
 * (durable/reread.c). */
#include "index/index.h"

static int64_t read_at(struct qi_queue *queue, uint32_t which, uint8_t *bytes, size_t size,
                       uint64_t offset) {
    struct qi_disk *disk = queue->store->disk;
    int file = disk->ops->open(disk, queue->dir, qi_journal_name(which), QI_OPEN_READ);
    if (file < 0)
        return file;
    int64_t got = disk->ops->read(disk, file, bytes, size, offset);
    disk->ops->close(disk, file);
    return got;
}

/* The same bytes in the file as in memory; what is behind the end counts as zeros. */
static bool is_same(struct qi_queue *queue, uint32_t which, uint64_t offset, uint32_t size) {
    const struct qi_tape *tape = &queue->journals[which].tape;
    uint8_t now[QI_JH_SIZE] = {0}, before[QI_JH_SIZE] = {0};
    int64_t got = read_at(queue, which, now, size, offset);
    if (tape->file < 0 || got < 0)
        return tape->file < 0 && got < 0;
    if (offset < tape->allocated) {
        uint64_t left = tape->allocated - offset;
        memcpy(before, tape->memory + offset, left < size ? left : size);
    }
    return memcmp(now, before, size) == 0;
}

bool qi_pair_is_steady(struct qi_queue *queue) {
    return is_same(queue, 0, 0, QI_JH_SIZE) && is_same(queue, 1, 0, QI_JH_SIZE);
}

bool qi_view_is_old(struct qi_queue *queue) {
    if (!queue->store->options.read_only)
        return false;
    return !qi_pair_is_steady(queue) ||
           !is_same(queue, queue->epoch & 1, qi_current(queue)->tail, QI_FRAME_HEADER);
}
