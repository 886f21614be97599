/* segment_load.c - a segment's file, read into its maps, where they meet what the journals said
 * meanwhile.
 *
 * A bad frame costs its own entries and nothing else (damage is reported, the rest is served). A
 * load that fails, because the disk or the memory did not give something, leaves the maps as they
 * were.
 */
#include "index/index_private.h"

#define PIECES (QI_HOT_BLOCKS * QI_BLOCK_PIECES)

/* What a load carries from entry to entry; a word of bits for each 64 slots. */
struct loading {
    struct qi_queue *queue;
    struct qi_segment *segment;
    const uint8_t *bytes;     /* of the file, from its beginning */
    uint16_t *deliveries;     /* per slot, as the file says; NULL: it is missing */
    uint64_t again[PIECES];   /* delivered more than once, as the file says */
    uint64_t counted[PIECES]; /* a journal has the publish too, and it was counted at the replay */
    uint64_t fresh[PIECES];   /* only the file has the publish: what it says of times counts */
    uint32_t orphans;
    const uint8_t *moments; /* the MOMENTS of the batch that is read, if there is a size */
    uint32_t moments_size;
};

static void note_moments(struct loading *loading, const struct qi_frame *frame) {
    bool is_moments =
        frame->type == QI_FRAME_EXTENDED && qi_get16(frame->payload) == QI_KIND_MOMENTS;
    if (is_moments) {
        loading->moments = frame->payload;
        loading->moments_size = frame->length;
    } else if (frame->type != QI_FRAME_ENTRIES) { /* the batch ends */
        loading->moments_size = 0;
    }
}

static int load_publish(struct loading *loading, struct qi_slots *slots,
                        const struct qi_entry *entry, uint32_t offset) {
    uint32_t slot = entry->slot;
    uint64_t us = qi_moment_of_slot(loading->moments, loading->moments_size, slot);
    if (qi_instant_room(&slots->published, slots->pub, slot, us) != 0)
        return QI_E_MEMORY;
    if (qi_bit(slots->jpub, slot))
        qi_set_bit(&loading->counted[slot / 64], slot);
    else if (qi_bit(slots->pub, slot))
        return 0; /* twice: the first counts */
    else
        qi_set_bit(&loading->fresh[slot / 64], slot);
    qi_set_bit(&slots->pub, slot);
    if (us != 0 || !qi_bit(slots->jpub, slot)) /* a journal may know what a damaged file does not */
        qi_instant_set(&slots->published, slots->pub, slot, us);
    qi_clear_bit(&slots->jpub, slot); /* it need not be written again */
    struct qi_fields fields;
    qi_get_fields(entry->fields, &fields);
    slots->loc[slot & 63] = QI_LOC_SEGMENT | offset;
    slots->sum[slot & 63] = qi_fields_sum(&fields);
    if (!entry->persistent)
        qi_set_bit(&slots->transient, slot);
    if (qi_msg_id_is_set(entry->fields) && !loading->queue->store->options.index_only)
        qi_set_bit(&slots->stored, slot);
    if (slots->size)
        slots->size[slot & 63] = qi_payload_of(&fields);
    if (fields.expiry_us)
        qi_segment_expires(loading->queue, loading->segment, fields.expiry_us);
    return 0;
}

/* The last one counts; a journal that was replayed knows better. */
static int load_time(struct loading *loading, struct qi_slots *slots,
                     const struct qi_entry *entry) {
    uint32_t slot = entry->slot;
    if (!qi_bit(loading->fresh[slot / 64] & ~slots->jtime, slot))
        return 0;
    if (qi_slots_time_room(slots) != 0)
        return QI_E_MEMORY;
    slots->time[slot & 63] = entry->time;
    if (qi_time_us(entry->time))
        qi_set_bit(&slots->held, slot);
    else
        qi_clear_bit(&slots->held, slot);
    return 0;
}

static int load_side(struct loading *loading, struct qi_slots *slots,
                     const struct qi_entry *entry) {
    char name[32];
    if (qi_side_is_known(&entry->side)) {
        int error = qi_side_room(slots, entry->side.kind, entry->side.size);
        if (!error)
            qi_side_put(slots, entry->slot, &entry->side, false);
        loading->segment->hot->sided = true;
        return error;
    }
    qi_segment_name(loading->segment->number, loading->segment->alt, name);
    return qi_fail(
        QI_E_NEWER,
        "queue %s: %s has a side record of kind %u, which only a newer version of qindex "
        "understands: use a matching release",
        qi_name_of(loading->queue).text, name, entry->side.kind);
}

static void load_event(struct loading *loading, struct qi_slots *slots,
                       const struct qi_entry *entry) {
    uint32_t slot = entry->slot;
    if (!qi_bit(slots->pub, slot)) {
        loading->orphans++;
    } else if (entry->is == QI_ENTRY_IS_COUNT) {
        loading->deliveries[slot] = (uint16_t)entry->count;
        qi_set_bit(&loading->again[slot / 64], slot);
    } else if (!qi_bit(slots->del, slot)) {
        qi_set_bit(&slots->del, slot);
        loading->deliveries[slot] = 1;
    } else {
        qi_set_bit(&slots->ack, slot);
    }
}

static int load_entries(struct loading *loading, const struct qi_frame *frame) {
    uint32_t entries = loading->queue->store->options.segment_entries;
    struct qi_segment *segment = loading->segment;
    struct qi_entry entry;
    for (uint32_t at = 0; at < frame->length; at += (uint32_t)entry.size) {
        if (!qi_read_entry(frame->payload + at, frame->length - at, &entry))
            return 0;
        if (entry.slot >= entries)
            continue;
        struct qi_slots *slots = qi_slots_of(segment->hot, entry.slot);
        if (entry.is == QI_ENTRY_IS_TIME && qi_bit(slots->pub, entry.slot)) {
            if (load_time(loading, slots, &entry) != 0)
                return QI_E_MEMORY;
            continue;
        }
        if (entry.is == QI_ENTRY_IS_SIDE && qi_bit(slots->pub, entry.slot)) {
            int error = load_side(loading, slots, &entry);
            if (error)
                return error;
            continue;
        }
        if (entry.is != QI_ENTRY_IS_PUB) {
            load_event(loading, slots, &entry);
            continue;
        }
        if (slots == &qi_no_slots) {
            if (qi_segment_room(segment, entry.slot, 1) != 0)
                return QI_E_MEMORY;
            slots = qi_slots_of(segment->hot, entry.slot);
        }
        if (load_publish(loading, slots, &entry,
                         (uint32_t)(frame->offset + QI_FRAME_HEADER + at)) != 0)
            return QI_E_MEMORY;
    }
    return 0;
}

/* The file's counts and what the journal counted on top of them (see replay.c). Memory for all of
 * them comes before the first one changes: a load that failed is tried again. */
static int add_deliveries(struct loading *loading) {
    uint32_t entries = loading->queue->store->options.segment_entries;
    struct qi_hot *hot = loading->segment->hot;
    for (uint32_t slot = 0; slot < entries; slot += 64) {
        struct qi_slots *slots = qi_slots_of(hot, slot);
        if ((loading->again[slot / 64] | slots->jcount) && qi_slots_count_room(slots) != 0)
            return QI_E_MEMORY;
    }
    for (uint32_t first = 0; first < entries; first += 64) {
        struct qi_slots *slots = qi_slots_of(hot, first);
        for (uint64_t bits = slots->count ? slots->del : 0; bits; bits &= bits - 1) {
            uint32_t at = (uint32_t)__builtin_ctzll(bits), more = slots->count[at];
            if (more == 0)
                more = qi_bit(slots->jdel | slots->jcount, at);
            uint32_t sum = loading->deliveries[first + at] + more;
            slots->count[at] = (uint16_t)(sum > UINT16_MAX ? UINT16_MAX : sum > 1 ? sum : 0);
        }
    }
    return 0;
}

/* References of what is alive in the file, for slots below `end`: `sign` 1 adds them, -1 takes them
 * back. */
static int use_files(struct loading *loading, uint32_t end, int sign, uint32_t *stopped) {
    struct qi_hot *hot = loading->segment->hot;
    for (uint32_t first = 0; first < end; first += 64) {
        const struct qi_slots *slots = qi_slots_of(hot, first);
        for (uint64_t bits = slots->stored & slots->pub & ~slots->ack & ~slots->jpub &
                             ~loading->counted[first / 64];
             bits; bits &= bits - 1) {
            uint32_t slot = first + (uint32_t)__builtin_ctzll(bits);
            if (slot >= end)
                break;
            const uint8_t *entry = loading->bytes + (slots->loc[slot & 63] & QI_LOC_OFFSET_MAX);
            struct qi_msg_id id = qi_get_msg_id(entry + QI_ENTRY_ID + QI_PUB_MSG_ID);
            int error = qi_segment_use(hot, id.file, sign, sign * (int64_t)qi_stored_bytes(id));
            if (error) {
                *stopped = slot;
                return error;
            }
        }
    }
    return 0;
}

/* A load that failed leaves the maps as they were: what the journals said alone. The next try
 * begins anew. */
static void unload(const struct loading *loading) {
    uint32_t entries = loading->queue->store->options.segment_entries;
    for (uint32_t slot = 0; slot < entries; slot += 64) {
        struct qi_slots *slots = qi_slots_of(loading->segment->hot, slot);
        if (slots == &qi_no_slots)
            continue;
        uint64_t *const maps[] = {&slots->pub, &slots->del, &slots->ack, &slots->stored,
                                  &slots->transient};
        for (size_t map = 0; map < sizeof maps / sizeof *maps; map++)
            *maps[map] &= slots->jpub;
        slots->held &= slots->jpub;
        qi_sides_unload(slots);
    }
}

static uint32_t live_in_maps(const struct qi_hot *hot, uint32_t entries) {
    uint32_t live = 0;
    for (uint32_t slot = 0; slot < entries; slot += 64) {
        const struct qi_slots *slots = qi_slots_of(hot, slot);
        live += (uint32_t)__builtin_popcountll(slots->pub & ~slots->ack);
    }
    return live;
}

/* What the journal said of messages that the file holds. */
static void merge_journal(const struct loading *loading) {
    uint32_t entries = loading->queue->store->options.segment_entries;
    for (uint32_t slot = 0; slot < entries; slot += 64) {
        struct qi_slots *slots = qi_slots_of(loading->segment->hot, slot);
        if (!slots->pub)
            continue;
        uint64_t again = slots->jdel & slots->del & ~slots->jpub;
        slots->jcount |= again; /* a second '01' would be an ack: what is new is the count */
        slots->jdel &= ~again;
        slots->ack |= slots->jack & slots->pub;
        slots->del |= slots->jdel & slots->pub;
    }
}

/* Transients from before an unclean end are dead. */
static uint32_t live_transients(struct loading *loading) {
    uint32_t entries = loading->queue->store->options.segment_entries, count = 0;
    uint64_t first = qi_count_of(loading->segment->number * entries), floor = loading->queue->floor;
    for (uint32_t slot = 0; slot < entries; slot += 64) {
        struct qi_slots *slots = qi_slots_of(loading->segment->hot, slot);
        if (!slots->transient)
            continue;
        uint64_t below = floor > first + slot ? floor - first - slot : 0;
        slots->ack |= slots->transient & (below < 64 ? ~(~UINT64_C(0) << below) : ~UINT64_C(0));
        count += (uint32_t)__builtin_popcountll(slots->pub & ~slots->ack & slots->transient);
    }
    return count;
}

static uint16_t moved(uint16_t count, int64_t by) {
    int64_t sum = count + by;
    return (uint16_t)(sum > UINT16_MAX ? UINT16_MAX : sum);
}

void qi_segment_found(struct qi_queue *queue, struct qi_segment *segment, uint32_t unacked,
                      uint32_t transient) {
    int64_t more = (int64_t)unacked - segment->unacked;
    int64_t more_transient = (int64_t)transient - segment->transient;
    /* More than the MANIFEST says: the next one has to say so, since a segment that it gives no
     * messages is dead to the session that reads it. Fewer: it goes on counting them, so that every
     * session looks for them and tells of it. */
    if (more > 0)
        segment->flushed_unacked = moved(segment->flushed_unacked, more);
    else
        segment->lost = moved(segment->lost, -more);
    if (more_transient > 0)
        segment->flushed_transient = moved(segment->flushed_transient, more_transient);
    qi_count_depth(queue, more);
    segment->unacked = unacked;
    qi_held_at_most(queue, segment, unacked);
    segment->transient = transient;
}

/* The references of the living are added up, and the counters follow what was found. */
static int finish_load(struct loading *loading) {
    struct qi_queue *queue = loading->queue;
    struct qi_segment *segment = loading->segment;
    uint32_t entries = queue->store->options.segment_entries, stopped = 0;
    merge_journal(loading);
    uint32_t transient = live_transients(loading);
    int error = use_files(loading, entries, 1, &stopped);
    if (error)
        use_files(loading, stopped, -1, &stopped);
    else if ((error = qi_time_load_room(queue, segment)) != 0 ||
             (loading->deliveries && (error = add_deliveries(loading)) != 0))
        use_files(loading, entries, -1, &stopped);
    if (error)
        return error;
    qi_time_load(queue, segment);
    uint32_t unacked = live_in_maps(segment->hot, entries);
    if (unacked != segment->unacked) {
        char name[32];
        qi_segment_name(segment->number, segment->alt, name);
        qi_report(queue->store, true, queue->directory, name, 0,
                  "%u message%s should be here, %u %s found", segment->unacked,
                  segment->unacked == 1 ? "" : "s", unacked, unacked == 1 ? "was" : "were");
        if (unacked < segment->unacked)
            qi_report_lost(queue->store, segment->unacked - unacked);
    }
    qi_segment_found(queue, segment, unacked, transient);
    if (queue->measured)
        qi_bytes_found(queue, segment, qi_bytes_in_maps(queue, segment));
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
    if (length < QI_SH_SIZE || !qi_segment_header_is_whole(bytes))
        qi_report(loading->queue->store, true, loading->queue->directory, name, 0,
                  "the header is damaged; the MANIFEST says what it said");
    while (offset < length) {
        if (qi_frame_read(seed, bytes, length, offset, 0, &frame) != QI_FRAME_VALID) {
            uint64_t bad = offset;
            bool found = qi_frame_find(seed, bytes, length, offset + 1, &effort, &frame);
            offset = found ? frame.offset : length;
            loading->moments_size = 0; /* those of another batch may be what is lost */
            qi_report(loading->queue->store, true, loading->queue->directory, name, bad,
                      "%llu damaged byte%s; the frames behind are read",
                      (unsigned long long)(offset - bad), offset - bad == 1 ? "" : "s");
            if (!found)
                break;
        }
        note_moments(loading, &frame);
        int error = frame.type == QI_FRAME_ENTRIES ? load_entries(loading, &frame) : 0;
        if (error)
            return error;
        offset = frame.offset + QI_FRAME_HEADER + frame.length;
    }
    if (length < segment->length)
        qi_report(loading->queue->store, true, loading->queue->directory, name, length,
                  "%u durable bytes at its end are gone", segment->length - length);
    if (loading->orphans)
        qi_report_orphans(loading->queue->store, loading->queue->directory, name, loading->orphans);
    return 0;
}

static int load_file(struct qi_queue *queue, struct qi_segment *segment) {
    int error = 0;
    struct qi_hot *hot = segment->hot;
    struct qi_disk *disk = queue->store->disk;
    uint32_t seed = 0;
    int file = qi_segment_open(queue, segment, &seed);
    if (file < 0 && file != QI_E_CORRUPT)
        return file;
    if (file == QI_E_CORRUPT && qi_view_is_old(queue))
        return file; /* the writer may have removed it: a reader has to read the queue again */
    uint32_t entries = queue->store->options.segment_entries;
    struct loading loading = {.queue = queue, .segment = segment};
    uint8_t *bytes = NULL;
    uint32_t length = 0;
    if (file >= 0) {
        loading.deliveries = qi_calloc(entries, sizeof *loading.deliveries);
        error = loading.deliveries ? qi_segment_read(queue, segment, file, &bytes, &length)
                                   : qi_fail(QI_E_MEMORY, "no memory to load a segment");
        disk->ops->close(disk, file);
        loading.bytes = bytes;
        if (!error)
            error = walk_frames(&loading, bytes, length, seed);
    } else {
        if (live_in_maps(hot, entries) < segment->unacked)
            qi_report(queue->store, true, queue->directory, "", 0, "%s", qi_error_text());
        if (!hot->old && !(hot->old = qi_calloc(1, 1))) /* the next flush begins a file */
            error = qi_fail(QI_E_MEMORY, "no memory to load a segment");
    }
    if (!error)
        error = finish_load(&loading);
    hot->loaded = !error;
    segment->expiry_unread = segment->expiry_unread && error;
    if (error && !QI_BUG(half_loaded_kept))
        unload(&loading);
    if (bytes && bytes != queue->window)
        disk->ops->unmap(disk, bytes, length);
    qi_free(loading.deliveries);
    return error;
}

int qi_segment_load(struct qi_queue *queue, struct qi_segment *segment) {
    struct qi_store *store = queue->store;
    int error = qi_segment_heat(segment);
    if (error || segment->hot->loaded)
        return error;
    segment->hot->sized = segment->hot->sized || queue->measured;
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
