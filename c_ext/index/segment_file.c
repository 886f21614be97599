/* segment_file.c - reading N.idx: the whole file, one record. (segment_load.c: the file into maps.)
 *
 * Only the bytes below the durable length of the manifest count; what a flush that was cut off left
 * behind them is never looked at.
 */
#include "index/index_private.h"

#include <errno.h>

#define WINDOW         (256u << 10)
#define WINDOW_BEHIND  (WINDOW / 8)
#define WINDOW_AT_ONCE 4096u       /* what is read anywhere in a file that is not kept */
#define WINDOW_MAX     (4u << 20)  /* a file up to this size stays in it after it was loaded */
#define KEPT_MAX       (48u << 20) /* of all files that are kept for messages that were delayed */

bool qi_segment_header_is_whole(const uint8_t *header) {
    return memcmp(header, QI_SEGMENT_MAGIC, 8) == 0 &&
           qi_get32(header + QI_SH_CRC) == qi_crc32c(0, header, QI_SH_CRC);
}

static bool header_is_of(const struct qi_queue *queue, const struct qi_segment *segment,
                         const uint8_t *header) {
    uint64_t epoch = qi_get64(header + QI_SH_EPOCH);
    return qi_get64(header + QI_SH_NUMBER) == segment->number &&
           memcmp(header + QI_SH_IDENTITY, queue->identity, QI_IDENTITY_SIZE) == 0 &&
           (segment->epoch == 0 || epoch == segment->epoch);
}

/* A damaged header is done without: it tells what the MANIFEST tells, for when that is lost. A
 * whole one has to be of this segment and of the flush that the MANIFEST knows: not of another
 * file, nor of an older or newer one with this name. */
int qi_segment_open(struct qi_queue *queue, const struct qi_segment *segment, uint32_t *seed) {
    struct qi_disk *disk = queue->store->disk;
    char name[32];
    qi_segment_name(segment->number, segment->alt, name);
    int file = disk->ops->open(disk, queue->dir, name, QI_OPEN_READ);
    if (file == -ENOENT)
        return qi_fail(QI_E_CORRUPT, "%s: the file is missing", qi_file_of(queue, name).text);
    if (file < 0)
        return qi_fail_disk_of(queue, file, "cannot open segment", name);
    uint8_t header[QI_SH_SIZE] = {0};
    int64_t got = disk->ops->read(disk, file, header, sizeof header, 0);
    bool whole = qi_segment_header_is_whole(header);
    int error = whole ? qi_check_version(queue, name, qi_get32(header + QI_SH_VERSION)) : 0;
    if (error) {
        disk->ops->close(disk, file);
        return error;
    }
    if (got >= 0 && (whole ? header_is_of(queue, segment, header) : segment->epoch > 0)) {
        uint64_t epoch = whole ? qi_get64(header + QI_SH_EPOCH) : segment->epoch;
        *seed = qi_frame_seed(queue->identity, segment->number, epoch);
        return file;
    }
    disk->ops->close(disk, file);
    if (got < 0)
        return qi_fail_disk_of(queue, (int)got, "cannot read segment", name);
    return qi_fail(QI_E_CORRUPT,
                   whole ? "%s: the file is not the one that belongs here"
                         : "%s: the header is damaged; its messages cannot be read",
                   qi_file_of(queue, name).text);
}

static int window_room(struct qi_queue *queue, uint32_t want) {
    queue->window_length = 0;
    if (want <= queue->window_room)
        return 0;
    uint8_t *room = qi_realloc(queue->window, want);
    if (!room)
        return qi_fail(QI_E_MEMORY, "no memory to read a segment");
    queue->window = room;
    queue->window_room = want;
    return 0;
}

int qi_segment_read(struct qi_queue *queue, const struct qi_segment *segment, int file,
                    uint8_t **bytes, uint32_t *length) {
    struct qi_disk *disk = queue->store->disk;
    uint64_t size = 0;
    int error = disk->ops->size(disk, file, &size);
    if (error)
        return qi_fail_disk_of(queue, error, "cannot read", "a segment");
    *length = size < segment->length ? (uint32_t)size : segment->length;
    bool fits = *length <= WINDOW_MAX;
    if (fits)
        error = window_room(queue, *length);
    else if (disk->ops->map(disk, -1, *length, bytes) != 0)
        error = qi_fail(QI_E_MEMORY, "no memory to load a segment");
    if (error)
        return error;
    if (fits)
        *bytes = queue->window;
    int64_t got = disk->ops->read(disk, file, *bytes, *length, 0);
    if (got < 0)
        return qi_fail_disk_of(queue, (int)got, "cannot read", "a segment");
    *length = (uint32_t)got; /* what is missing is damage */
    if (fits) {
        queue->window_number = segment->number;
        queue->window_offset = 0;
        queue->window_length = (uint32_t)got;
    }
    return 0;
}

static bool in_window(const struct qi_queue *queue, const struct qi_segment *segment,
                      uint32_t offset, uint64_t length) {
    return queue->window_length && queue->window_number == segment->number &&
           offset >= queue->window_offset &&
           offset + length <= queue->window_offset + queue->window_length;
}

static int fail_early(const struct qi_queue *queue) {
    return qi_fail(QI_E_CORRUPT, "a segment of queue %s ends too early", qi_name_of(queue).text);
}

/* Where a window begins: at what is wanted; for a reader that walks backwards most of it lies
 * before that. (What is asked for from before a window are fields alone; the record, which may be
 * long, is asked for when those are in it.) */
static uint32_t window_start(const struct qi_queue *queue, const struct qi_segment *segment,
                             uint32_t offset) {
    if (queue->window_length == 0 || queue->window_number != segment->number ||
        offset >= queue->window_offset)
        return offset;
    return offset > WINDOW - WINDOW_BEHIND ? offset - (WINDOW - WINDOW_BEHIND) : 0;
}

/* The file, if it has these bytes: what is not there is not asked memory for. A handle, or an
 * error. */
static int open_for(struct qi_queue *queue, const struct qi_segment *segment, uint32_t offset,
                    uint32_t length) {
    struct qi_disk *disk = queue->store->disk;
    uint64_t size = 0;
    uint32_t seed;
    int file = qi_segment_open(queue, segment, &seed);
    if (file < 0)
        return file;
    int error = disk->ops->size(disk, file, &size);
    if (!error && offset <= size && length <= size - offset)
        return file;
    disk->ops->close(disk, file);
    return error ? qi_fail_disk_of(queue, error, "cannot read", "a segment") : fail_early(queue);
}

static int move_window(struct qi_queue *queue, const struct qi_segment *segment, uint32_t offset,
                       uint32_t length) {
    struct qi_disk *disk = queue->store->disk;
    bool in_order = qi_segment_lane(queue, segment) < QI_PRIORITIES;
    uint32_t want = in_order ? WINDOW : WINDOW_AT_ONCE,
             start = in_order ? window_start(queue, segment, offset) : offset;
    want = length > want ? length : want;
    int file = open_for(queue, segment, offset, length);
    if (file < 0)
        return file;
    int error = window_room(queue, want);
    int64_t got = error ? 0 : disk->ops->read(disk, file, queue->window, want, start);
    disk->ops->close(disk, file);
    if (error)
        return error;
    if (got < 0)
        return qi_fail_disk_of(queue, (int)got, "cannot read", "a segment");
    queue->window_number = segment->number;
    queue->window_offset = start;
    queue->window_length = (uint32_t)got;
    return got < offset - start + length ? fail_early(queue) : 0;
}

static bool is_kept(const struct qi_hot *hot, uint32_t offset, uint64_t length) {
    return hot->kept && offset + length <= hot->kept_length;
}

/* Messages that were delayed are read in the order of their times: anywhere in their segment, and
 * of several segments in turn. So their files are kept as a whole, as long as all that are have
 * room. */
static bool may_keep(const struct qi_queue *queue, const struct qi_segment *segment) {
    uint64_t bytes = segment->length;
    if (qi_segment_lane(queue, segment) < QI_PRIORITIES)
        return false;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        const struct qi_segment *other = qi_segment_nth(&queue->segments, i);
        bytes += other->hot && other != segment ? other->hot->kept_length : 0;
    }
    return bytes <= KEPT_MAX;
}

static int keep(struct qi_queue *queue, struct qi_segment *segment, uint32_t offset,
                uint32_t length) {
    struct qi_disk *disk = queue->store->disk;
    struct qi_hot *hot = segment->hot;
    qi_segment_forget_file(queue, segment);
    int file = open_for(queue, segment, offset, length);
    if (file < 0)
        return file;
    hot->kept = qi_malloc(segment->length);
    int64_t got = hot->kept ? disk->ops->read(disk, file, hot->kept, segment->length, 0) : 0;
    disk->ops->close(disk, file);
    if (!hot->kept)
        return qi_fail(QI_E_MEMORY, "no memory to read a segment");
    if (got < 0)
        qi_segment_forget_file(queue, segment);
    else
        hot->kept_length = (uint32_t)got;
    return got < 0 ? qi_fail_disk_of(queue, (int)got, "cannot read", "a segment")
           : is_kept(hot, offset, length) ? 0
                                          : fail_early(queue);
}

void qi_segment_forget_file(struct qi_queue *queue, struct qi_segment *segment) {
    if (queue->window_number == segment->number)
        queue->window_length = 0;
    if (!segment->hot)
        return;
    qi_free(segment->hot->kept);
    segment->hot->kept = NULL;
    segment->hot->kept_length = 0;
}

/* Bytes of the segment file of hot maps that are in memory: kept, or in the queue's read-ahead
 * window; else NULL. */
static const uint8_t *at_hand(const struct qi_queue *queue, const struct qi_segment *segment,
                              uint32_t offset, uint64_t length) {
    if (is_kept(segment->hot, offset, length))
        return segment->hot->kept + offset;
    return in_window(queue, segment, offset, length)
               ? queue->window + (offset - queue->window_offset)
               : NULL;
}

static int read_bytes(struct qi_queue *queue, struct qi_segment *segment, uint32_t offset,
                      uint32_t length, const uint8_t **bytes) {
    *bytes = at_hand(queue, segment, offset, length);
    if (*bytes)
        return 0;
    int error = may_keep(queue, segment) ? keep(queue, segment, offset, length)
                                         : move_window(queue, segment, offset, length);
    *bytes = error ? NULL : at_hand(queue, segment, offset, length);
    return error;
}

/* No length is used before the sum says that it is the one which was valid: the bytes that it
 * covers were there then. */
int qi_segment_record(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                      const struct qi_published **record) {
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    uint32_t loc = slots->loc[slot & 63], offset = loc & QI_LOC_OFFSET_MAX;
    struct qi_published *published = &queue->published;
    *record = published;
    if ((loc & QI_LOC_FILE) != QI_LOC_SEGMENT) {
        struct qi_journal *journal = &queue->journals[(loc & QI_LOC_FILE) == QI_LOC_JOURNAL_ODD];
        int cold = qi_files_warm(queue, journal);
        if (cold)
            return cold;
        const uint8_t *at = journal->tape.memory + offset;
        uint64_t req_id = qi_get64(at) & QI_REQ_ID_MASK;
        qi_get_fields(at + QI_RECORD_ID, &published->fields);
        published->payload = at + QI_RECORD_ID + QI_PUB_FIELDS;
        bool same = req_id == qi_req_id(queue, segment, slot) &&
                    qi_fields_sum(&published->fields) == slots->sum[slot & 63];
        if (__builtin_expect(!same, 0))
            return qi_fail_changed(qi_journal_name(journal->epoch), qi_name_of(queue).text);
        return 0;
    }
    const uint8_t *bytes;
    int error = read_bytes(queue, segment, offset + QI_ENTRY_ID, QI_PUB_FIELDS, &bytes);
    if (error)
        return error;
    qi_get_fields(bytes, &published->fields);
    if (qi_fields_sum(&published->fields) != slots->sum[slot & 63]) {
        char name[32];
        qi_segment_name(segment->number, segment->alt, name);
        return qi_fail_changed(name, qi_name_of(queue).text);
    }
    uint32_t embedded = published->fields.embedded;
    if (embedded)
        error = read_bytes(queue, segment, offset + QI_ENTRY_ID, QI_PUB_FIELDS + embedded, &bytes);
    published->payload = bytes + QI_PUB_FIELDS;
    return error;
}

bool qi_segment_at_hand(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot) {
    uint32_t loc = qi_slots_of(segment->hot, slot)->loc[slot & 63],
             offset = (loc & QI_LOC_OFFSET_MAX) + QI_ENTRY_ID;
    if ((loc & QI_LOC_FILE) != QI_LOC_SEGMENT)
        return !queue->journals[(loc & QI_LOC_FILE) == QI_LOC_JOURNAL_ODD].cold;
    const uint8_t *fields = at_hand(queue, segment, offset, QI_PUB_FIELDS);
    return fields && at_hand(queue, segment, offset,
                             QI_PUB_FIELDS + (uint64_t)qi_get32(fields + QI_PUB_EMBEDDED)) != NULL;
}
