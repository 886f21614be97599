/* batch.c - encodes a batch: ENTRIES frames of about 32 KiB (the damage radius of a bad sector),
 * then a SUMMARY.
 *
 * Entries stand in slot order; a slot's publish, deliver and ack follow each other, as in
 * RabbitMQ's segment files.
 *
 * The batch begins at the durable length that the MANIFEST names; what a cut-off flush left behind
 * it is cut first. So a batch that fails, or that no MANIFEST ever names, has changed nothing. The
 * file is synced when the flush has written several (qi_batch_end); its name, if it is new, by the
 * flush (sync_directory), and only then the MANIFEST is written. Seals with the epoch in the file's
 * header, which is that of the flush that created it.
 */
#include "durable/durable_private.h"

#include "index/index.h"

#define FRAME_SIZE  (32u << 10)
#define BUFFER_SIZE (1u << 20)

struct batch {
    struct qi_disk *disk;
    int file;
    uint32_t seed;
    uint8_t *bytes;               /* not yet written; bytes[0] belongs at `base` */
    uint32_t length, room, frame; /* frame: offset of the open frame's header in bytes */
    uint64_t base;
    uint64_t waiting; /* bytes, in the segment, as of this batch */
    uint32_t lost;    /* publishes that are not where they were */
    bool open;
    int error;
};

static void seal(struct batch *batch, uint32_t type) {
    uint32_t length = batch->length - batch->frame - QI_FRAME_HEADER;
    qi_frame_seal(batch->seed, batch->bytes + batch->frame, batch->base + batch->frame, type,
                  length);
    batch->open = false;
}

static void drain(struct batch *batch) {
    if (batch->error)
        return;
    batch->error =
        batch->disk->ops->write(batch->disk, batch->file, batch->bytes, batch->length, batch->base);
    batch->base += batch->length;
    batch->length = 0;
}

/* Room for one entry inside a frame; NULL after an error. */
static uint8_t *emit(struct batch *batch, uint32_t size) {
    if (batch->open && batch->length - batch->frame + size > FRAME_SIZE)
        seal(batch, QI_FRAME_ENTRIES);
    if (!batch->open && batch->length > BUFFER_SIZE / 2)
        drain(batch);
    if (batch->error)
        return NULL;
    if (batch->length + QI_FRAME_HEADER + size > batch->room) {
        uint32_t room = batch->length + QI_FRAME_HEADER + size + BUFFER_SIZE;
        uint8_t *bytes = qi_realloc(batch->bytes, room);
        if (!bytes) {
            batch->error = -12; /* ENOMEM */
            return NULL;
        }
        batch->bytes = bytes;
        batch->room = room;
    }
    if (!batch->open) {
        batch->frame = batch->length;
        batch->length += QI_FRAME_HEADER;
        batch->open = true;
    }
    uint8_t *at = batch->bytes + batch->length;
    batch->length += size;
    return at;
}

static void emit_event(struct batch *batch, uint32_t slot) {
    uint8_t *at = emit(batch, QI_ENTRY_ID);
    if (at)
        qi_put16(at, (uint16_t)(QI_ENTRY_EVENT | slot));
}

static void emit_publish(struct batch *batch, const struct qi_published *record, uint32_t slot,
                         bool persistent, uint32_t *loc) {
    uint32_t embedded = record->fields.embedded;
    uint8_t *at = emit(batch, QI_ENTRY_ID + QI_PUB_FIELDS + embedded);
    if (!at)
        return;
    qi_put16(at, (uint16_t)(QI_ENTRY_PUB | (persistent ? QI_ENTRY_PERSISTENT : 0) | slot));
    qi_put_fields(at + QI_ENTRY_ID, &record->fields);
    if (embedded)
        memcpy(at + QI_ENTRY_ID + QI_PUB_FIELDS, record->payload, embedded);
    *loc = QI_LOC_SEGMENT | (uint32_t)(batch->base + (uint64_t)(at - batch->bytes));
}

static void emit_count(struct batch *batch, uint32_t slot, uint16_t count) {
    uint8_t *at = emit(batch, QI_ENTRY_ID + 2);
    if (!at)
        return;
    qi_put16(at, (uint16_t)slot);
    qi_put16(at + QI_ENTRY_ID, count);
}

static void emit_time(struct batch *batch, uint32_t slot, uint64_t time) {
    uint8_t *at = emit(batch, QI_ENTRY_ID + 2 + 8);
    if (!at)
        return;
    qi_put16(at, (uint16_t)slot);
    qi_put16(at + QI_ENTRY_ID, 0);
    qi_put64(at + QI_ENTRY_ID + 2, time);
}

/* All of them: of each kind the last one counts. */
static void emit_sides(struct batch *batch, uint32_t slot, const struct qi_sides *sides) {
    struct qi_side side;
    for (uint32_t next = 0; qi_side_next(sides, slot, &next, &side);) {
        if (QI_BUG(deaths_left_at_flush) && side.kind >= 0x8000)
            continue;
        uint8_t *at = emit(batch, QI_SIDE_ENTRY + side.size);
        if (!at)
            return;
        qi_put16(at, (uint16_t)slot);
        qi_put16(at + QI_ENTRY_ID, QI_SIDE_COUNT);
        qi_put16(at + QI_ENTRY_ID + 2, (uint16_t)side.kind);
        qi_put32(at + QI_ENTRY_ID + 4, side.size);
        memcpy(at + QI_SIDE_ENTRY, side.bytes, side.size);
    }
}

/* The publish of a slot, from the journal that is flushed, or from the file that is rewritten.
 * False: it is not there any more, because another process wrote into the file. */
static bool read_publish(const struct qi_flush_segment *segment,
                         const struct qi_flush_places *places, uint32_t at, const uint8_t *journal,
                         struct qi_published *record) {
    uint32_t loc = places->loc[at], offset = loc & QI_LOC_OFFSET_MAX;
    if ((loc & QI_LOC_FILE) == QI_LOC_SEGMENT &&
        offset + QI_ENTRY_ID + QI_PUB_FIELDS > segment->length)
        return false;
    const uint8_t *fields = (loc & QI_LOC_FILE) == QI_LOC_SEGMENT
                                ? segment->old + offset + QI_ENTRY_ID
                                : journal + offset + QI_RECORD_ID;
    qi_get_fields(fields, &record->fields);
    record->payload = fields + QI_PUB_FIELDS;
    return qi_fields_sum(&record->fields) == places->sum[at];
}

/* What a message that is written adds. How much one leaves that the file had before is not known
 * here, nor whether it was or becomes a dead letter. */
static void add_up(struct batch *batch, const struct qi_flush_slots *slots, uint32_t at,
                   const struct qi_fields *fields) {
    if (!fields && qi_bit(slots->jack | slots->jtime, at) && !QI_BUG(bytes_left_not_unknown))
        batch->waiting = QI_BYTES_UNKNOWN;
    else if (fields && batch->waiting != QI_BYTES_UNKNOWN &&
             !(qi_bit(slots->held, at) && qi_time_is_dead(slots->time[at])))
        batch->waiting += qi_payload_of(fields);
}

/* One slot's news: what happened since the last flush and is not over within it; if the file is
 * rewritten, all that is alive is news. The first '01' of a slot is read as its delivery and the
 * second as its ack, so a delivery that the file has already is never written again. */
static void emit_slot(struct batch *batch, const struct qi_flush_segment *segment,
                      struct qi_flush_slots *slots, uint32_t at, const uint8_t *journal) {
    uint32_t slot = slots->first + at;
    bool published = segment->old || qi_bit(slots->jpub, at);
    if (published && qi_bit(slots->ack, at))
        return;
    struct qi_published record;
    if (published && !read_publish(segment, slots->places, at, journal, &record)) {
        slots->places->placed[at] = QI_LOC_SEGMENT; /* where no entry can be */
        batch->lost++;
        return;
    }
    if (published)
        emit_publish(batch, &record, slot, !qi_bit(slots->transient, at),
                     &slots->places->placed[at]);
    if (segment->adds_up)
        add_up(batch, slots, at, published ? &record.fields : NULL);
    bool first_delivery = qi_bit(published ? slots->del : slots->jdel, at);
    if (qi_bit(slots->jack, at)) {
        if (first_delivery || !qi_bit(slots->del, at))
            emit_event(batch, slot); /* a purge acks without delivery */
        emit_event(batch, slot);
        return;
    }
    if (first_delivery)
        emit_event(batch, slot);
    if (slots->delivered && slots->delivered[at] > 1)
        emit_count(batch, slot, slots->delivered[at]);
    bool held = segment->all_held || qi_bit(slots->held, at);
    if ((qi_bit(slots->jtime, at) && !QI_BUG(time_not_written)) || (segment->old && held))
        emit_time(batch, slot, held ? slots->time[at] : 0);
    bool kept = segment->old != NULL && !QI_BUG(side_lost_by_rewrite);
    if (slots->sides && !QI_BUG(side_not_written) && (kept || qi_bit(slots->jside, at)))
        emit_sides(batch, slot, slots->sides);
}

/* The messages of a slot's piece that are written, or written anew. */
static uint64_t written(const struct qi_flush_segment *segment,
                        const struct qi_flush_slots *slots) {
    return slots->places ? (segment->old ? slots->pub : slots->jpub) & ~slots->ack : 0;
}

/* Calls with `at` NULL only count. Rows for the messages whose time differs from that of the one
 * before them. */
static uint32_t put_moments(const struct qi_flush_segment *segment, uint8_t *at) {
    uint64_t before = 0;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < segment->slots_count; i++) {
        const struct qi_flush_slots *slots = &segment->slots[i];
        for (uint64_t bits = written(segment, slots); bits; bits &= bits - 1) {
            uint32_t slot = (uint32_t)__builtin_ctzll(bits);
            uint64_t us = qi_instant_of(&slots->published, slot);
            if (us == before)
                continue;
            if (at) {
                qi_put16(at + rows * QI_MOMENTS_ROW, (uint16_t)(slots->first + slot));
                qi_put64(at + rows * QI_MOMENTS_ROW + 2, us);
            }
            before = us;
            rows++;
        }
    }
    return rows;
}

/* When the messages of the batch were published, before the first of them. */
static void emit_moments(struct batch *batch, const struct qi_flush_segment *segment) {
    bool left_out =
        QI_BUG(moments_not_written) || (segment->old && QI_BUG(moments_lost_by_rewrite));
    uint32_t rows = left_out ? 0 : put_moments(segment, NULL);
    uint8_t *at = rows ? emit(batch, QI_KIND_SIZE + rows * QI_MOMENTS_ROW) : NULL;
    if (!at)
        return;
    qi_put16(at, QI_KIND_MOMENTS);
    put_moments(segment, at + QI_KIND_SIZE);
    seal(batch, QI_FRAME_EXTENDED);
}

static void emit_summary(struct batch *batch, const struct qi_flush_segment *segment) {
    if (batch->open)
        seal(batch, QI_FRAME_ENTRIES);
    uint32_t size = QI_SUMMARY_FIXED + segment->uses_count * QI_SUMMARY_FILE;
    uint8_t *at = emit(batch, size);
    if (!at)
        return;
    qi_put32(at + QI_SUMMARY_UNACKED, segment->unacked);
    qi_put32(at + QI_SUMMARY_TRANSIENT, segment->transient);
    qi_put64(at + QI_SUMMARY_EXPIRY, segment->expiry_us);
    qi_put64(at + QI_SUMMARY_BYTES, batch->waiting);
    qi_put32(at + QI_SUMMARY_FILES, segment->uses_count);
    uint8_t *file = at + QI_SUMMARY_FILES + 4;
    for (uint32_t i = 0; i < segment->uses_count; i++, file += QI_SUMMARY_FILE) {
        qi_put32(file, segment->uses[i].file);
        qi_put32(file + 4, segment->uses[i].count);
        qi_put64(file + 8, segment->uses[i].bytes);
    }
    qi_put32(file, QI_FRAME_HEADER + size);
    seal(batch, QI_FRAME_SUMMARY);
}

/* What a flush left behind the durable length goes first, from the cache too: where its write-back
 * failed, ext4 writes the same pages again to blocks that it goes on reading as zeros, and the sync
 * says yes. */
static int cut_tail(const struct qi_queue *queue, int file, uint64_t length, const char *name) {
    struct qi_disk *disk = queue->store->disk;
    uint64_t size = 0;
    int error = disk->ops->size(disk, file, &size);
    if (!error && size > length && !QI_BUG(batch_over_failed_pages))
        error = disk->ops->truncate(disk, file, length);
    return error ? qi_fail_disk_of(queue, error, "cannot cut segment", name) : 0;
}

/* A new file begins with its header; an old one is opened and its header checked for the seed
 * (H4). */
static int open_file(struct qi_queue *queue, const struct qi_flush_job *flush,
                     struct qi_flush_segment *segment, struct batch *batch) {
    struct qi_disk *disk = queue->store->disk;
    char name[32];
    qi_segment_name(segment->number, segment->alt != (segment->old != NULL), name);
    if (segment->length > 0 && !segment->old) {
        struct qi_segment is = {.number = segment->number,
                                .epoch = segment->epoch,
                                .length = segment->length,
                                .alt = segment->alt};
        int file = qi_segment_open(queue, &is, &batch->seed);
        if (file < 0)
            return file;
        disk->ops->close(disk, file);
        batch->file = disk->ops->open(disk, queue->dir, name, QI_OPEN_WRITE);
        if (batch->file < 0)
            return qi_fail_disk_of(queue, batch->file, "cannot open segment", name);
        batch->base = segment->length;
        return cut_tail(queue, batch->file, segment->length, name);
    }
    batch->file = disk->ops->open(disk, queue->dir, name, QI_OPEN_FRESH);
    if (batch->file < 0)
        return qi_fail_disk_of(queue, batch->file, "cannot create segment", name);
    uint8_t header[QI_SH_SIZE] = {0};
    memcpy(header, QI_SEGMENT_MAGIC, 8);
    qi_put32(header + QI_SH_VERSION, queue->store->options.format);
    qi_put32(header + QI_SH_ENTRIES, queue->store->options.segment_entries);
    memcpy(header + QI_SH_IDENTITY, queue->identity, QI_IDENTITY_SIZE);
    qi_put64(header + QI_SH_NUMBER, segment->number);
    qi_put64(header + QI_SH_EPOCH, flush->epoch);
    qi_put32(header + QI_SH_CRC, qi_crc32c(0, header, QI_SH_CRC));
    segment->new_epoch = flush->epoch;
    batch->seed = qi_frame_seed(queue->identity, segment->number, flush->epoch);
    batch->base = QI_SEGMENT_START;
    int error = disk->ops->write(disk, batch->file, header, sizeof header, 0);
    return error ? qi_fail_disk_of(queue, error, "cannot write segment", name) : 0;
}

/* The segment goes on counting them as unacked: whoever reads it next finds them missing, too. */
static void report_lost(struct qi_queue *queue, const struct qi_flush_job *flush,
                        const struct qi_flush_segment *segment, uint32_t lost) {
    qi_relock(queue->store);
    qi_report(queue->store, true, queue->directory, qi_journal_name(flush->epoch), 0,
              "another process wrote into it: %u of the messages for segment %llu cannot be read",
              lost, (unsigned long long)segment->number);
    qi_unlock(queue->store);
}

static int write_batch(struct qi_queue *queue, const struct qi_flush_job *flush,
                       struct qi_flush_segment *segment) {
    struct qi_disk *disk = queue->store->disk;
    struct batch batch = {.disk = disk, .file = -1, .waiting = segment->bytes};
    if (segment->adds_up && segment->old)
        batch.waiting = 0; /* all of them come */
    segment->new_epoch = segment->epoch;
    int error = open_file(queue, flush, segment, &batch);
    const uint8_t *journal = queue->journals[flush->epoch & 1].tape.memory;
    if (!error)
        emit_moments(&batch, segment);
    for (uint32_t i = 0; i < segment->slots_count && !error; i++) {
        struct qi_flush_slots *slots = &segment->slots[i];
        uint64_t news = segment->old ? slots->pub : qi_flush_news(slots);
        for (; news; news &= news - 1)
            emit_slot(&batch, segment, slots, (uint32_t)__builtin_ctzll(news), journal);
    }
    if (!error)
        emit_summary(&batch, segment);
    if (!error)
        drain(&batch);
    if (!error && batch.error)
        error = qi_fail_disk_of(queue, batch.error, "cannot write", "a segment");
    if (!error && batch.base > QI_LOC_OFFSET_MAX)
        error =
            qi_fail(QI_E_FULL, "a segment of queue %s would pass 1 GiB", qi_name_of(queue).text);
    segment->new_length = (uint32_t)batch.base;
    segment->file = batch.file;
    segment->new_bytes = batch.waiting;
    qi_free(batch.bytes);
    if (error)
        return qi_batch_end(queue, segment, error);
    if (batch.lost)
        report_lost(queue, flush, segment, batch.lost);
    if (disk->ops->begin_sync)
        disk->ops->begin_sync(disk, batch.file);
    queue->store->between_files(queue->store);
    return 0;
}

int qi_batch_end(struct qi_queue *queue, struct qi_flush_segment *segment, int error) {
    struct qi_disk *disk = queue->store->disk;
    if (segment->file < 0)
        return error;
    int synced = error || QI_BUG(segment_not_synced) ? 0 : disk->ops->sync(disk, segment->file);
    disk->ops->close(disk, segment->file);
    segment->file = -1;
    if (!synced) {
        if (!error)
            queue->store->between_files(queue->store);
        return error;
    }
    error = qi_fail_disk_of(queue, synced, "cannot sync", "a segment");
    qi_relock(queue->store);
    qi_store_fail(queue->store, error);
    qi_unlock(queue->store);
    return error;
}

/* A rewrite that does not fit on the disk is given up: what the journal has is appended instead
 * (H14). */
static int give_up_rewrite(struct qi_queue *queue, const struct qi_flush_job *flush,
                           struct qi_flush_segment *segment) {
    struct qi_disk *disk = queue->store->disk;
    uint64_t news = 0;
    char name[32];
    qi_segment_name(segment->number, !segment->alt, name);
    disk->ops->unlink(disk, queue->dir, name);
    qi_free(segment->old);
    segment->old = NULL;
    segment->new_length = segment->length;
    segment->new_epoch = segment->epoch;
    segment->new_bytes = QI_BYTES_UNKNOWN;
    for (uint32_t i = 0; i < segment->slots_count; i++)
        news |= qi_flush_news(&segment->slots[i]);
    return news ? write_batch(queue, flush, segment) : 0;
}

int qi_batch_write(struct qi_queue *queue, const struct qi_flush_job *flush,
                   struct qi_flush_segment *segment) {
    int error = write_batch(queue, flush, segment);
    bool optional = segment->old && segment->lost == 0; /* else there is no file to append to */
    return error == QI_E_FULL && optional ? give_up_rewrite(queue, flush, segment) : error;
}
