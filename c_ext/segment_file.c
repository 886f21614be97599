/* segment_file.c - reading N.idx: the whole file into maps, one record, the last summary.
 *
 * Only the bytes below the durable length of the manifest count; what a flush that was cut off left behind them is
 * never looked at. A bad frame costs its own entries and nothing else (damage is reported, the rest is served).
 */
#include <errno.h>
#include <stdlib.h>

#include "bug.h"
#include "crc32c.h"
#include "store.h"

#define WINDOW (256u << 10)
#define WINDOW_MAX                                                                                 \
    (4u << 20) /* a segment file up to this size stays in the window after it was loaded */

static bool header_is_whole(const uint8_t *header) {
    return memcmp(header, QI_SEGMENT_MAGIC, 8) == 0 &&
           qi_get32(header + QI_SH_CRC) == qi_crc32c(0, header, QI_SH_CRC);
}

static bool header_is_of(const struct qi_queue *queue, const struct qi_segment *segment,
                         const uint8_t *header) {
    uint64_t epoch = qi_get64(header + QI_SH_EPOCH);
    return qi_get32(header + QI_SH_VERSION) == QI_FORMAT_VERSION &&
           qi_get64(header + QI_SH_NUMBER) == segment->number &&
           memcmp(header + QI_SH_IDENTITY, queue->identity, QI_IDENTITY_SIZE) == 0 &&
           (segment->epoch == 0 || epoch == segment->epoch);
}

/* A damaged header is done without: it tells what the MANIFEST tells, for when that is lost. A whole one has to be of this
 * segment and of the flush that the MANIFEST knows: not of another file, nor of an older or newer one with this name. */
int qi_segment_open(struct qi_queue *queue, const struct qi_segment *segment, uint32_t *seed) {
    struct qi_disk *disk = queue->store->disk;
    char name[32];
    qi_segment_name(segment->number, segment->alt, name);
    int file = disk->ops->open(disk, queue->dir, name, QI_OPEN_READ);
    if (file == -ENOENT)
        return qi_fail(QI_E_CORRUPT, "%s: the file is missing", name);
    if (file < 0)
        return qi_fail_disk(file, "cannot open segment", name);
    uint8_t header[QI_SH_SIZE] = {0};
    int64_t got = disk->ops->read(disk, file, header, sizeof header, 0);
    bool whole = header_is_whole(header);
    if (got >= 0 && (whole ? header_is_of(queue, segment, header) : segment->epoch > 0)) {
        uint64_t epoch = whole ? qi_get64(header + QI_SH_EPOCH) : segment->epoch;
        *seed = qi_frame_seed(queue->identity, segment->number, epoch);
        return file;
    }
    disk->ops->close(disk, file);
    if (got < 0)
        return qi_fail_disk((int)got, "cannot read segment", name);
    return qi_fail(QI_E_CORRUPT,
                   whole ? "%s: the file is not the one that belongs here"
                         : "%s: the header is damaged; its messages cannot be read",
                   name);
}

/* What a load carries from entry to entry: which file a stored body is in, until its ack has been seen. */
struct loading {
    struct qi_queue *queue;
    struct qi_segment *segment;
    uint32_t (*stored)[2]; /* file, bytes in it; NULL until the first stored body */
    uint16_t *deliveries;  /* per slot, as the file says */
    uint32_t orphans;
};

static bool load_publish(struct loading *loading, const struct qi_entry *entry, uint32_t offset) {
    struct qi_hot *hot = loading->segment->hot;
    uint32_t slot = entry->slot;
    if (qi_bit(hot->pub, slot) && !qi_bit(hot->jpub, slot))
        return true; /* twice: the first counts */
    bool counted =
        qi_bit(hot->jpub, slot); /* a journal has it too, and it was counted at the replay */
    qi_set_bit(hot->pub, slot);
    qi_clear_bit(hot->jpub, slot); /* it need not be written again */
    hot->loc[slot] = QI_LOC_SEGMENT | offset;
    if (!entry->persistent)
        qi_set_bit(hot->transient, slot);
    if (!qi_msg_id_is_set(entry->fields) || loading->queue->store->options.index_only)
        return true;
    if (!loading->stored)
        loading->stored =
            calloc(loading->queue->store->segment_words * 64, sizeof *loading->stored);
    if (!loading->stored)
        return false;
    qi_set_bit(hot->stored, slot);
    struct qi_msg_id id = qi_get_msg_id(entry->fields + QI_PUB_MSG_ID);
    loading->stored[slot][0] = id.file;
    loading->stored[slot][1] = counted ? 0 : qi_stored_bytes(id);
    return true;
}

static bool load_entries(struct loading *loading, const struct qi_frame *frame) {
    struct qi_hot *hot = loading->segment->hot;
    uint32_t slots = loading->queue->store->segment_words * 64;
    struct qi_entry entry;
    for (uint32_t at = 0; at < frame->length; at += (uint32_t)entry.size) {
        if (!qi_read_entry(frame->payload + at, frame->length - at, &entry))
            return true;
        if (entry.slot >= slots)
            continue;
        uint64_t offset = frame->offset + QI_FRAME_HEADER + at;
        if (entry.is == QI_ENTRY_IS_PUB) {
            if (!load_publish(loading, &entry, (uint32_t)offset))
                return false;
        } else if (!qi_bit(hot->pub, entry.slot)) {
            loading->orphans++;
        } else if (entry.is == QI_ENTRY_IS_COUNT) {
            loading->deliveries[entry.slot] = (uint16_t)entry.count;
        } else if (!qi_bit(hot->del, entry.slot)) {
            qi_set_bit(hot->del, entry.slot);
            loading->deliveries[entry.slot] = 1;
        } else {
            qi_set_bit(hot->ack, entry.slot);
        }
    }
    return true;
}

/* The file's counts and what the journal counted on top of them (see replay.c). */
static int add_deliveries(struct loading *loading) {
    struct qi_hot *hot = loading->segment->hot;
    uint32_t slots = loading->queue->store->segment_words * 64;
    bool many = false;
    for (uint32_t slot = 0; slot < slots && !many; slot++)
        many = loading->deliveries[slot] > 1;
    if (many && !hot->count)
        hot->count = calloc(slots, sizeof *hot->count);
    if (many && !hot->count)
        return qi_fail(QI_E_MEMORY, "no memory for delivery counts");
    for (uint32_t slot = 0; slot < slots && hot->count; slot++) {
        uint32_t sum = loading->deliveries[slot] + (uint32_t)hot->count[slot];
        hot->count[slot] = (uint16_t)(sum > UINT16_MAX ? UINT16_MAX : sum > 1 ? sum : 0);
    }
    return 0;
}

/* References of what is alive in the file, for slots below `end`: `sign` 1 adds them, -1 takes them back. */
static int use_files(struct loading *loading, uint32_t end, int sign, uint32_t *stopped) {
    struct qi_hot *hot = loading->segment->hot;
    for (uint32_t slot = 0; slot < end && loading->stored; slot++) {
        bool alive = qi_bit(hot->pub, slot) && !qi_bit(hot->ack, slot);
        const uint32_t *stored = loading->stored[slot];
        if (!alive || !stored[1] || qi_bit(hot->jpub, slot))
            continue;
        int error = qi_segment_use(hot, stored[0], sign, sign * (int64_t)stored[1]);
        if (error) {
            *stopped = slot;
            return error;
        }
    }
    return 0;
}

/* A load that failed leaves the maps as they were: what the journals said alone. The next try begins anew. */
static void unload(const struct loading *loading) {
    struct qi_hot *hot = loading->segment->hot;
    for (uint32_t i = 0; i < loading->queue->store->segment_words; i++) {
        uint64_t *const maps[] = {&hot->pub[i], &hot->del[i], &hot->ack[i], &hot->stored[i],
                                  &hot->transient[i]};
        for (size_t map = 0; map < sizeof maps / sizeof *maps; map++)
            *maps[map] &= hot->jpub[i];
    }
}

static uint32_t live_in_maps(const struct qi_hot *hot, uint32_t words) {
    uint32_t live = 0;
    for (uint32_t i = 0; i < words; i++)
        live += (uint32_t)__builtin_popcountll(hot->pub[i] & ~hot->ack[i]);
    return live;
}

static uint16_t moved(uint16_t count, int64_t by) {
    int64_t sum = count + by;
    return (uint16_t)(sum < 0 ? 0 : sum > UINT16_MAX ? UINT16_MAX : sum);
}

void qi_segment_found(struct qi_queue *queue, struct qi_segment *segment, uint32_t unacked,
                      uint32_t transient) {
    int64_t more = (int64_t)unacked - segment->unacked;
    int64_t more_transient = (int64_t)transient - segment->transient;
    /* More than the MANIFEST says: the next one has to say so, since a segment that it gives no messages is dead to the
     * session that reads it. Fewer: it goes on counting them, so that every session looks for them and tells of it. */
    if (more > 0)
        segment->flushed_unacked = moved(segment->flushed_unacked, more);
    else
        segment->lost = moved(segment->lost, -more);
    if (more_transient > 0)
        segment->flushed_transient = moved(segment->flushed_transient, more_transient);
    queue->depth += (uint64_t)more;
    segment->unacked = unacked;
    segment->transient = transient;
}

/* Transients from before an unclean end are dead; the references of the living are added up. */
static int finish_load(struct loading *loading) {
    struct qi_queue *queue = loading->queue;
    struct qi_segment *segment = loading->segment;
    struct qi_hot *hot = segment->hot;
    uint32_t entries = queue->store->options.segment_entries, words = queue->store->segment_words,
             transient = 0;
    uint64_t first = segment->number * entries;
    for (uint32_t slot = 0; slot < entries; slot++) {
        if (slot % 64 == 0 && hot->pub[slot / 64] == 0) {
            slot += 63; /* nothing was published here */
            continue;
        }
        if (qi_bit(hot->transient, slot) && first + slot < queue->floor)
            qi_set_bit(hot->ack, slot);
        bool alive = qi_bit(hot->pub, slot) && !qi_bit(hot->ack, slot);
        transient += alive && qi_bit(hot->transient, slot);
    }
    uint32_t stopped = 0;
    int error = use_files(loading, entries, 1, &stopped);
    if (error)
        use_files(loading, stopped, -1, &stopped);
    else if ((error = add_deliveries(loading)) != 0)
        use_files(loading, entries, -1, &stopped);
    if (error)
        return error;
    uint32_t unacked = live_in_maps(hot, words);
    if (unacked != segment->unacked) {
        char name[32];
        qi_segment_name(segment->number, segment->alt, name);
        qi_report(queue->store, true, queue->directory, name, 0,
                  "%u messages should be here, %u were found", segment->unacked, unacked);
    }
    qi_segment_found(queue, segment, unacked, transient);
    return 0;
}

/* `length` bytes are there; the manifest may name more, but memory and time go by what there is. */
static int walk_frames(struct loading *loading, const uint8_t *bytes, uint32_t length,
                       uint32_t seed) {
    struct qi_segment *segment = loading->segment;
    struct qi_frame frame;
    char name[32];
    qi_segment_name(segment->number, segment->alt, name);
    uint64_t offset = QI_SEGMENT_START, effort = QI_FRAME_EFFORT(length);
    if (length < QI_SH_SIZE || !header_is_whole(bytes))
        qi_report(loading->queue->store, true, loading->queue->directory, name, 0,
                  "the header is damaged; the MANIFEST says what it said");
    while (offset < length) {
        if (qi_frame_read(seed, bytes, length, offset, 0, &frame) != QI_FRAME_VALID) {
            uint64_t bad = offset;
            bool found = qi_frame_find(seed, bytes, length, offset + 1, &effort, &frame);
            offset = found ? frame.offset : length;
            qi_report(loading->queue->store, true, loading->queue->directory, name, bad,
                      "%llu damaged bytes; the frames behind them are read",
                      (unsigned long long)(offset - bad));
            if (!found)
                break;
        }
        if (frame.type == QI_FRAME_ENTRIES && !load_entries(loading, &frame))
            return qi_fail(QI_E_MEMORY, "no memory to load a segment");
        offset = frame.offset + QI_FRAME_HEADER + frame.length;
    }
    if (length < segment->length)
        qi_report(loading->queue->store, true, loading->queue->directory, name, length,
                  "%u durable bytes at its end are gone", segment->length - length);
    if (loading->orphans)
        qi_report(loading->queue->store, true, loading->queue->directory, name, 0,
                  "%u deliveries or acks without a publish were ignored", loading->orphans);
    return 0;
}

static int window_room(struct qi_queue *queue, uint32_t want) {
    queue->window_length = 0;
    if (want <= queue->window_room)
        return 0;
    uint8_t *room = realloc(queue->window, want);
    if (!room)
        return qi_fail(QI_E_MEMORY, "no memory to read a segment");
    queue->window = room;
    queue->window_room = want;
    return 0;
}

/* What the file has of the segment, in memory: in the queue's window, where its records will be wanted next, or mapped if
 * it is too big for that. */
static int read_whole(struct qi_queue *queue, const struct qi_segment *segment, int file,
                      uint8_t **bytes, uint32_t *length) {
    struct qi_disk *disk = queue->store->disk;
    uint64_t size = 0;
    int error = disk->ops->size(disk, file, &size);
    if (error)
        return qi_fail_disk(error, "cannot read a segment of", queue->directory);
    *length = size < segment->length ? (uint32_t)size : segment->length;
    bool fits = *length <= WINDOW_MAX;
    error = fits ? window_room(queue, *length) : disk->ops->map(disk, -1, *length, bytes);
    if (error)
        return fits ? error : qi_fail(QI_E_MEMORY, "no memory to load a segment");
    if (fits)
        *bytes = queue->window;
    int64_t got = disk->ops->read(disk, file, *bytes, *length, 0);
    if (got < 0)
        return qi_fail_disk((int)got, "cannot read a segment of", queue->directory);
    *length = (uint32_t)got; /* what is missing is damage */
    if (fits) {
        queue->window_number = segment->number;
        queue->window_offset = 0;
        queue->window_length = (uint32_t)got;
    }
    return 0;
}

static int load_file(struct qi_queue *queue, struct qi_segment *segment) {
    int error = 0;
    struct qi_hot *hot = segment->hot;
    struct qi_disk *disk = queue->store->disk;
    uint32_t seed = 0;
    int file = qi_segment_open(queue, segment, &seed);
    if (file == QI_E_IO || file == QI_E_MEMORY)
        return file;
    if (file == QI_E_CORRUPT && qi_view_is_old(queue))
        return file; /* the writer may have removed it: a reader has to read the queue again */
    uint32_t words = queue->store->segment_words;
    struct loading loading = {.queue = queue, .segment = segment};
    loading.deliveries = calloc(words * 64, sizeof *loading.deliveries);
    if (!loading.deliveries)
        error = qi_fail(QI_E_MEMORY, "no memory to load a segment");
    uint8_t *bytes = NULL;
    uint32_t length = 0;
    if (file >= 0) {
        if (!error)
            error = read_whole(queue, segment, file, &bytes, &length);
        disk->ops->close(disk, file);
        if (!error)
            error = walk_frames(&loading, bytes, length, seed);
    } else {
        if (live_in_maps(hot, words) < segment->unacked)
            qi_report(queue->store, true, queue->directory, "", 0, "%s", qi_error_text());
        if (!error && !hot->old && !(hot->old = calloc(1, 1))) /* the next flush begins a file */
            error = qi_fail(QI_E_MEMORY, "no memory to load a segment");
    }
    for (uint32_t i = 0; i < words && !error; i++) { /* the journal's acks of what the file holds */
        uint64_t again = hot->jdel[i] & hot->del[i] & ~hot->jpub[i];
        hot->jcount[i] |= again; /* a second '01' would be an ack: what is new is the count */
        hot->jdel[i] &= ~again;
        hot->ack[i] |= hot->jack[i] & hot->pub[i];
        hot->del[i] |= hot->jdel[i] & hot->pub[i];
    }
    if (!error)
        error = finish_load(&loading);
    hot->loaded = !error;
    if (error && !QI_BUG(half_loaded_kept))
        unload(&loading);
    if (bytes && bytes != queue->window)
        disk->ops->unmap(disk, bytes, length);
    free(loading.stored);
    free(loading.deliveries);
    return error;
}

int qi_segment_load(struct qi_queue *queue, struct qi_segment *segment) {
    struct qi_store *store = queue->store;
    int error = qi_segment_heat(queue, segment);
    if (error || segment->hot->loaded)
        return error;
    if (segment->unacked == 0) { /* nothing in the file is alive: no need to know what it was */
        segment->hot->loaded = true;
        return 0;
    }
    uint32_t before = store->findings_count;
    error = load_file(queue, segment);
    if (error || store->findings_count == before || !qi_view_is_old(queue))
        return error;
    /* A reader: what looks like damage may be the file of a later flush. */
    qi_forget_findings(store, before);
    return qi_fail(QI_E_CORRUPT, "segment %llu changed since the queue was read",
                   (unsigned long long)segment->number);
}

static bool in_window(const struct qi_queue *queue, const struct qi_segment *segment,
                      uint32_t offset, uint64_t length) {
    return queue->window_length && queue->window_number == segment->number &&
           offset >= queue->window_offset &&
           offset + length <= queue->window_offset + queue->window_length;
}

static int fail_early(const struct qi_queue *queue) {
    return qi_fail(QI_E_CORRUPT, "a segment of %s ends too early", queue->directory);
}

/* Bytes of a segment file through the queue's read-ahead window. */
static int window(struct qi_queue *queue, struct qi_segment *segment, uint32_t offset,
                  uint32_t length, const uint8_t **bytes) {
    if (!in_window(queue, segment, offset, length)) {
        struct qi_disk *disk = queue->store->disk;
        uint32_t want = length > WINDOW ? length : WINDOW, seed;
        uint64_t size = 0;
        int file = qi_segment_open(queue, segment, &seed);
        if (file < 0)
            return file;
        int64_t got = disk->ops->size(disk, file, &size);
        if (got == 0) { /* a length that is not there is not asked memory for */
            bool inside = offset <= size && length <= size - offset;
            int error = inside ? window_room(queue, want) : QI_E_CORRUPT;
            if (error) {
                disk->ops->close(disk, file);
                return inside ? error : fail_early(queue);
            }
            got = disk->ops->read(disk, file, queue->window, want, offset);
        }
        disk->ops->close(disk, file);
        if (got < 0)
            return qi_fail_disk((int)got, "cannot read a segment of", queue->directory);
        queue->window_number = segment->number;
        queue->window_offset = offset;
        queue->window_length = (uint32_t)got;
        if (got < length)
            return fail_early(queue);
    }
    *bytes = queue->window + (offset - queue->window_offset);
    return 0;
}

int qi_segment_record(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                      const uint8_t **fields) {
    uint32_t loc = segment->hot->loc[slot], offset = loc & QI_LOC_OFFSET_MAX;
    if ((loc & QI_LOC_FILE) != QI_LOC_SEGMENT) {
        const struct qi_journal *journal =
            &queue->journals[(loc & QI_LOC_FILE) == QI_LOC_JOURNAL_ODD];
        *fields = journal->tape.memory + offset + QI_RECORD_ID;
        return 0;
    }
    int error = window(queue, segment, offset + QI_ENTRY_ID, QI_PUB_FIELDS, fields);
    if (error)
        return error;
    uint32_t embedded = qi_get32(*fields + QI_PUB_EMBEDDED);
    if (embedded > segment->length)
        return qi_fail(QI_E_CORRUPT, "a segment of %s holds an impossible length",
                       queue->directory);
    return embedded ? window(queue, segment, offset + QI_ENTRY_ID, QI_PUB_FIELDS + embedded, fields)
                    : 0;
}

bool qi_segment_at_hand(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot) {
    uint32_t loc = segment->hot->loc[slot], offset = (loc & QI_LOC_OFFSET_MAX) + QI_ENTRY_ID;
    if ((loc & QI_LOC_FILE) != QI_LOC_SEGMENT)
        return true;
    if (!in_window(queue, segment, offset, QI_PUB_FIELDS))
        return false;
    const uint8_t *fields = queue->window + (offset - queue->window_offset);
    uint32_t embedded = qi_get32(fields + QI_PUB_EMBEDDED);
    return in_window(queue, segment, offset, QI_PUB_FIELDS + (uint64_t)embedded);
}
