/* recover_segments.c - the segment files as recovery finds them: those that are missing, and those
 * that nobody names.
 *
 * Owns no state. A file that the manifest names and that is missing or too short is reported as
 * damage (H18); a file that no manifest names goes only if its header says that it is ours.
 */
#include "durable/durable_private.h"

#include <errno.h>
#include <stdlib.h>

#include "index/index.h"

struct stray {
    uint64_t number;
    bool alt;
};

struct strays {
    struct qi_queue *queue;
    struct stray *items;
    uint32_t count, room;
    bool incomplete; /* no memory */
};

static void note_stray(void *context, const char *name) {
    struct strays *strays = context;
    char *end, expected[32];
    uint64_t number = strtoull(name, &end, 10);
    bool alt = strcmp(end, ".alt") == 0;
    qi_segment_name(number, alt, expected);
    if (strcmp(name, expected) != 0)
        return;
    struct qi_segment *segment = qi_segment_find(&strays->queue->segments, number);
    if (segment && segment->length > 0 && segment->alt == alt)
        return;
    if (strays->count == strays->room) {
        uint32_t room = strays->room ? strays->room * 2 : 16;
        struct stray *items = qi_realloc(strays->items, room * sizeof *items);
        if (!items) {
            strays->incomplete = true;
            return;
        }
        strays->items = items;
        strays->room = room;
    }
    strays->items[strays->count++] = (struct stray){number, alt};
}

/* What a file without a manifest holds. */
struct found {
    uint32_t length; /* up to the end of the last valid frame; 0: nothing of ours */
    uint64_t epoch;  /* of its header: the flush that made the file */
    bool complete;   /* the last frame is a SUMMARY: no flush was cut off in it */
};

/* What the disk does not give is an error: a file that only seems to hold nothing would be named by
 * no manifest. */
static int look_into(struct qi_queue *queue, const struct stray *stray, struct found *found) {
    struct qi_disk *disk = queue->store->disk;
    struct qi_segment segment = {
        .number = stray->number, .alt = stray->alt, .length = QI_SEGMENT_START};
    *found = (struct found){0};
    uint32_t seed;
    uint64_t size = 0;
    uint8_t *bytes = NULL;
    int file = qi_segment_open(queue, &segment, &seed);
    if (file < 0)
        return file == QI_E_CORRUPT ? 0 : file;
    int64_t got = disk->ops->size(disk, file, &size);
    if (size > QI_LOC_OFFSET_MAX) /* no writer of ours does that */
        size = 0;
    if (got == 0 && size > 0)
        got = disk->ops->map(disk, -1, size, &bytes);
    if (got == 0 && size > 0)
        got = disk->ops->read(disk, file, bytes, size, 0);
    if (got == (int64_t)size && size > 0) {
        struct qi_frame frame;
        uint64_t offset = QI_SEGMENT_START, effort = QI_FRAME_EFFORT(size);
        found->epoch = qi_get64(bytes + QI_SH_EPOCH);
        while (qi_frame_find(seed, bytes, size, offset, &effort, &frame)) {
            offset = frame.offset + QI_FRAME_HEADER + frame.length;
            found->length = (uint32_t)offset;
            found->complete = frame.type == QI_FRAME_SUMMARY;
        }
    }
    if (bytes)
        disk->ops->unmap(disk, bytes, size);
    disk->ops->close(disk, file);
    return got < 0 ? qi_fail_disk_of(queue, (int)got, "cannot read", "a segment") : 0;
}

/* Of a segment that was being rewritten there may be both files. The newer one counts if it is
 * complete: then it holds all that is alive in the older one, and journals that are replayed on
 * either give the same. */
static bool is_better(const struct found *one, const struct found *other) {
    return one->epoch > other->epoch ? one->complete : !other->complete;
}

int qi_salvage_segments(struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    uint32_t entries = queue->store->options.segment_entries;
    struct strays strays = {.queue = queue};
    /* Every file, also those that the older manifest names with a shorter length. */
    qi_segments_clear(&queue->segments);
    qi_count_nothing(queue);
    int error = disk->ops->list(disk, queue->dir, note_stray, &strays);
    if (!error && strays.incomplete)
        error = -ENOMEM;
    if (error)
        error = qi_fail_disk_of(queue, error, "cannot list", "the directory");
    for (uint32_t i = 0; i < strays.count && !error; i++) {
        const struct stray *stray = &strays.items[i], twin = {stray->number, !stray->alt};
        struct found found, other;
        error = look_into(queue, stray, &found);
        if (!error)
            error = look_into(queue, &twin, &other);
        if (error)
            break;
        if (found.length == 0 && other.length == 0) {
            char name[32];
            qi_segment_name(stray->number, stray->alt, name);
            qi_report(queue->store, true, queue->directory, name, 0, "nothing in it can be read");
        }
        if (found.length == 0 || (other.length > 0 && !is_better(&found, &other)))
            continue;
        struct qi_segment *segment = qi_segment_make(&queue->segments, stray->number);
        if (!segment) {
            error = qi_fail(QI_E_MEMORY, "no memory for the table of segments");
            break;
        }
        segment->length = found.length;
        segment->epoch = found.epoch;
        segment->alt = stray->alt;
        segment->bytes = QI_BYTES_UNKNOWN;
        /* Unknown: the load counts, and tells what it found. */
        segment->unacked = segment->flushed_unacked = 1;
        qi_count_depth(queue, 1);
        error = qi_lane_raise(queue, (segment->number + 1) * entries);
        if (!error)
            error = qi_segment_load(queue, segment);
    }
    qi_free(strays.items);
    return error;
}

/* Segment files that no manifest names: from a flush that was cut off (the journal has it all), or
 * dead already. Ours by their header, so they may go; anything else is left alone (H18). */
void qi_remove_strays(struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    struct strays strays = {.queue = queue};
    disk->ops->list(disk, queue->dir, note_stray, &strays);
    for (uint32_t i = 0; i < strays.count; i++) {
        char name[32];
        qi_segment_name(strays.items[i].number, strays.items[i].alt, name);
        struct qi_segment stray = {.number = strays.items[i].number,
                                   .alt = strays.items[i].alt,
                                   .length = QI_SEGMENT_START};
        uint32_t seed;
        uint8_t epoch[8] = {0};
        int file = qi_segment_open(queue, &stray, &seed);
        if (file < 0)
            continue;
        bool flushed =
            disk->ops->read(disk, file, epoch, sizeof epoch, QI_SH_EPOCH) == sizeof epoch &&
            qi_get64(epoch) <= queue->flushed_epoch;
        disk->ops->close(disk, file);
        /* The last flush finished with it, but it did not get its name in history. */
        bool kept = flushed && qi_keeps_history(queue) &&
                    qi_history_keep(queue, queue->flushed_epoch, name, 0) == 0;
        if (!kept)
            disk->ops->unlink(disk, queue->dir, name);
        queue->dir_unsynced = true;
    }
    qi_free(strays.items);
    if (qi_keeps_history(queue))
        qi_history_recover(queue);
}

/* The counters of a damaged segment become what its file holds. Not more memory is kept than
 * before: a hostile manifest may name a hundred thousand of them. */
static int follow_what_is_there(struct qi_queue *queue, struct qi_segment *segment,
                                const char *name, uint64_t size) {
    bool was_cold = !segment->hot;
    if (!was_cold || size > QI_SEGMENT_START) {
        int error = qi_segment_load(queue, segment);
        if (was_cold)
            qi_segment_cool(segment);
        return error;
    }
    qi_report(queue->store, true, queue->directory, name, 0,
              "%u message%s should be here, 0 were found", segment->unacked,
              segment->unacked == 1 ? "" : "s");
    qi_segment_found(queue, segment, 0, 0);
    return 0;
}

/* A file that the disk does not give now may be whole: that is an error and no damage. */
int qi_check_segments(struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (segment->length == 0 || segment->unacked == 0)
            continue;
        char name[32];
        qi_segment_name(segment->number, segment->alt, name);
        uint64_t size = 0;
        int file = disk->ops->open(disk, queue->dir, name, QI_OPEN_READ);
        int error = file == -ENOENT ? 0 : file < 0 ? file : disk->ops->size(disk, file, &size);
        if (file >= 0)
            disk->ops->close(disk, file);
        if (qi_is_of_the_disk(error))
            return qi_fail_disk_of(queue, error, "cannot read segment", name);
        if (size >= segment->length)
            continue;
        qi_report(queue->store, true, queue->directory, name, size,
                  "%llu of %u durable bytes are there; messages are lost", (unsigned long long)size,
                  segment->length);
        error = follow_what_is_there(queue, segment, name, size);
        if (error)
            return error;
    }
    return 0;
}
