/* walk.c - from frame to frame through raw bytes (journal.h). Same bytes in, same answer out. */
#include "journal/journal.h"

/* Of the two copies the valid one, of two valid ones that with the higher epoch; NULL: neither
 * is. */
static const uint8_t *journal_header(const struct qi_walk *walk) {
    const uint8_t *best = NULL;
    for (uint32_t i = 0; i < 2 && walk->size >= QI_JOURNAL_START; i++) {
        const uint8_t *copy = walk->bytes + (uint64_t)i * QI_JOURNAL_HEADER_COPY;
        bool journal =
            memcmp(copy, QI_JOURNAL_MAGIC, 8) == 0 || memcmp(copy, QI_PAST_MAGIC, 8) == 0;
        if (journal && qi_get32(copy + QI_JH_CRC) == qi_crc32c(0, copy, QI_JH_CRC) &&
            (!best || qi_get64(copy + QI_JH_EPOCH) > qi_get64(best + QI_JH_EPOCH)))
            best = copy;
    }
    return best;
}

static bool is_known(uint32_t version) {
    return version > 0 && version <= QI_FORMAT_NEWEST;
}

bool qi_walk_begin(struct qi_walk *walk, const void *bytes, uint64_t size) {
    *walk = (struct qi_walk){.bytes = bytes, .size = size};
    const uint8_t *header = journal_header(walk);
    if (header) {
        walk->version = qi_get32(header + QI_JH_VERSION);
        walk->journal = true;
        walk->seed = qi_frame_seed(header + QI_JH_IDENTITY, 0, qi_get64(header + QI_JH_EPOCH));
        walk->start = QI_JOURNAL_START;
        return is_known(walk->version);
    }
    header = walk->bytes;
    if (size >= QI_SEGMENT_START && memcmp(header, QI_SEGMENT_MAGIC, 8) == 0 &&
        qi_get32(header + QI_SH_CRC) == qi_crc32c(0, header, QI_SH_CRC)) {
        walk->version = qi_get32(header + QI_SH_VERSION);
        walk->number = qi_get64(header + QI_SH_NUMBER);
        walk->entries = qi_get32(header + QI_SH_ENTRIES);
        walk->seed =
            qi_frame_seed(header + QI_SH_IDENTITY, walk->number, qi_get64(header + QI_SH_EPOCH));
        walk->start = QI_SEGMENT_START;
        return is_known(walk->version);
    }
    return false;
}

int qi_walk_refused(const struct qi_walk *walk) {
    if (walk->version)
        return qi_fail(QI_E_NEWER,
                       "the file has format version %u, this qindex reads versions 1 to %u: use a "
                       "matching release",
                       walk->version, QI_FORMAT_NEWEST);
    return qi_fail(QI_E_FORMAT, "neither a journal nor a segment of qindex (a journal whose epoch "
                                "is flushed has no header)");
}

/* A journal whose epoch is flushed has no header, and what it holds stands in the segments. */
static bool is_retired(const struct qi_walk *walk) {
    return walk->size >= QI_JOURNAL_START && qi_get64(walk->bytes) == 0 &&
           qi_get64(walk->bytes + QI_JOURNAL_HEADER_COPY) == 0;
}

bool qi_walk_begin_headless(struct qi_walk *walk) {
    if (walk->version)
        return false;
    uint64_t effort = QI_FRAME_EFFORT(walk->size);
    struct qi_frame frame;
    if (!qi_frame_find_seed(walk->bytes, walk->size, QI_SEGMENT_START, &effort, &walk->seed,
                            &frame))
        return false;
    walk->headless = true;
    bool is_moments = frame.type == QI_FRAME_EXTENDED && qi_get16(frame.payload) == QI_KIND_MOMENTS;
    walk->journal = frame.type != QI_FRAME_ENTRIES && frame.type != QI_FRAME_SUMMARY && !is_moments;
    walk->start = walk->journal ? QI_JOURNAL_START : QI_SEGMENT_START;
    return !walk->journal || !is_retired(walk);
}

static bool go_on(const struct qi_walk *walk, uint64_t at, uint64_t inside,
                  struct qi_frame *frame) {
    if (at >= walk->size || walk->size - at < QI_FRAME_HEADER)
        return false;
    uint32_t word = qi_get32(walk->bytes + at), length = word & QI_FRAME_LENGTH_MAX;
    *frame = (struct qi_frame){at, word >> 28, length, walk->bytes + at + QI_FRAME_HEADER};
    return length <= walk->size - at - QI_FRAME_HEADER && inside < length &&
           (frame->type == QI_FRAME_RECORDS || frame->type == QI_FRAME_ENTRIES);
}

enum qi_frame_state qi_walk_frame(const struct qi_walk *walk, uint64_t at, uint64_t inside,
                                  struct qi_frame *frame) {
    if (inside && go_on(walk, at, inside, frame))
        return QI_FRAME_VALID;
    return qi_frame_read(walk->seed, walk->bytes, walk->size, at, 0, frame);
}
