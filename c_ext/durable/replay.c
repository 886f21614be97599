/* replay.c - a journal's frames, applied to the maps in their order.
 *
 * Bits only ever go from 0 to 1 (H3): a record seen twice changes nothing. A segment whose file was
 * not read yet takes the news in jdel, jack and count alone; qi_segment_load merges them with what
 * the file says.
 */
#include "durable/durable_private.h"

#include <assert.h>

#include "index/index.h"

/* What a replay carries from record to record. */
struct replaying {
    struct qi_queue *queue;
    const struct qi_journal *journal;
    struct qi_scan *scan;
    struct qi_segment *segment; /* of the last publish; nothing else makes one */
    uint64_t first;             /* ReqId in it */
    uint64_t frame;             /* where the record's frame begins */
    uint64_t *orphans;
    uint64_t moment_us; /* of the last MOMENT of the session; 0: there is none */
};

/* The bodies that a MARK covers were durable before it was written. */
static void note_body(struct replaying *replaying, uint32_t file) {
    struct qi_scan *scan = replaying->scan;
    bool is_marked = replaying->frame < scan->mark || QI_BUG(unmarked_bodies_believed);
    if (!is_marked && file < scan->lowest_body)
        scan->lowest_body = file;
}

static int replay_publish(struct replaying *replaying, const struct qi_record *record) {
    struct qi_queue *queue = replaying->queue;
    uint32_t entries = queue->store->options.segment_entries;
    struct qi_segment *segment = replaying->segment;
    struct qi_msg_id id;
    struct qi_fields fields;
    qi_get_fields(record->fields, &fields);
    if (QI_RECORD_ID + QI_PUB_FIELDS + (uint64_t)fields.embedded != record->size)
        return qi_fail_changed(qi_journal_name(replaying->journal->epoch), qi_name_of(queue).text);
    bool stored = qi_stored_body(queue, &fields, &id); /* the record is a publish */
    if (stored)
        note_body(replaying, id.file);
    if (!segment || record->req_id - replaying->first >= entries) {
        segment = qi_segment_make(&queue->segments, qi_segment_number(queue, record->req_id));
        if (!segment)
            return qi_fail(QI_E_MEMORY, "no memory for the table of segments");
        replaying->segment = segment;
        replaying->first = segment->number * entries;
    }
    uint32_t slot = (uint32_t)(record->req_id - replaying->first);
    int error = segment->hot ? 0 : qi_segment_heat(segment);
    if (!error && qi_slots_of(segment->hot, slot) == &qi_no_slots)
        error = qi_segment_room(segment, slot, 1);
    if (error)
        return error;
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    if (qi_bit(slots->pub, slot))
        return 0;
    error = qi_lane_raise(queue, record->req_id + 1);
    if (error)
        return error;
    if (record->kind == QI_PUB_TRANSIENT && qi_count_of(record->req_id) < queue->floor) {
        /* Dead already: the floor comes from a later frame. The bits are for the events that
         * follow. */
        qi_set_bit(&slots->pub, slot);
        qi_set_bit(&slots->ack, slot);
        return 0;
    }
    if (stored) {
        qi_set_bit(&slots->stored, slot);
        error = qi_segment_use(segment->hot, id.file, 1, qi_stored_bytes(id));
        if (error)
            return error;
    }
    if (fields.expiry_us)
        qi_segment_expires(queue, segment, fields.expiry_us);
    const struct qi_journal *journal = replaying->journal;
    uint64_t offset = (uint64_t)(record->fields - QI_RECORD_ID - journal->tape.memory);
    uint32_t tag = journal->epoch % 2 ? QI_LOC_JOURNAL_ODD : QI_LOC_JOURNAL_EVEN;
    if (qi_instant_room(&slots->published, slots->pub, slot, replaying->moment_us) != 0)
        return QI_E_MEMORY;
    qi_segment_publish(queue, segment, slot, tag | (uint32_t)offset, qi_fields_sum(&fields),
                       record->kind == QI_PUB_TRANSIENT);
    qi_instant_set(&slots->published, slots->pub, slot, replaying->moment_us);
    return 0;
}

static void set_side(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                     const struct qi_side *side) {
    qi_side_put(qi_slots_of(segment->hot, slot), slot, side, true);
    segment->hot->sided = true;
    segment->hot->dirty++;
    queue->dirty_count++;
}

static int replay_event(struct qi_queue *queue, const struct qi_record *record, uint64_t *orphans) {
    uint32_t slot = qi_slot_of(queue, record->req_id);
    struct qi_segment *segment = qi_segment_with(queue, record->req_id);
    if (!segment) {
        ++*orphans;
        return 0;
    }
    int error = qi_segment_heat(segment);
    if (error)
        return error;
    struct qi_hot *hot = segment->hot;
    /* An ack of a transient that is dead already must not be counted again: only the file knows
     * which those are. It knows too which are delayed. */
    if (!hot->loaded &&
        (segment->flushed_transient > 0 || segment->delayed + segment->dead > 0 ||
         record->kind >= QI_TIME) &&
        !qi_bit(qi_slots_of(hot, slot)->pub, slot)) {
        error = qi_segment_load(queue, segment);
        if (error)
            return error;
    }
    struct qi_slots *slots = qi_slots_of(hot, slot);
    if (qi_bit(slots->ack, slot))
        return 0;
    if (qi_bit(slots->pub, slot)) {
        if (record->kind == QI_DELIVER)
            error = qi_segment_count_room(segment, slot);
        else if (record->kind == QI_TIME)
            error = qi_time_room(queue, segment, slot, 1, 1);
        else if (record->kind == QI_SIDE)
            error = qi_side_room(slots, record->side.kind, record->side.size);
        if (error)
            return error;
        if (record->kind == QI_DELIVER)
            qi_segment_deliver(queue, segment, slot);
        else if (record->kind == QI_TIME)
            qi_time_set(queue, segment, slot, record->time);
        else if (record->kind == QI_SIDE)
            set_side(queue, segment, slot, &record->side);
        else
            qi_segment_ack(queue, segment, slot);
        return 0;
    }
    if (hot->loaded || segment->unacked == 0) {
        *orphans += segment->flushed_transient == 0; /* else it may be about a dead transient */
        return 0;
    }
    assert(record->kind < QI_TIME); /* for that the segment was loaded */
    error = qi_segment_room(segment, slot, 1);
    if (error)
        return error;
    slots = qi_slots_of(hot, slot);
    queue->dirty_count++;
    hot->dirty++;
    if (record->kind == QI_DELIVER && !qi_bit(slots->jdel, slot)) {
        qi_set_bit(&slots->jdel, slot);
    } else if (record->kind == QI_DELIVER) {
        error = qi_slots_count_again(slots, slot);
        if (error)
            return error;
    } else if (!qi_bit(slots->jack, slot)) {
        qi_set_bit(&slots->jack, slot);
        segment->unacked--;
        qi_count_depth(queue, -1);
    }
    return 0;
}

static int replay_records(struct replaying *replaying, const struct qi_frame *frame) {
    struct qi_queue *queue = replaying->queue;
    struct qi_record record;
    replaying->frame = frame->offset;
    for (uint64_t at = 0; at < frame->length; at += record.size) {
        if (!qi_read_record(frame->payload + at, frame->length - at, &record)) {
            qi_report(queue->store, true, queue->directory,
                      qi_journal_name(replaying->journal->epoch), frame->offset + at,
                      "a record does not fit into its frame; the rest of the frame is ignored");
            return 0;
        }
        if (record.kind == QI_SIDE && !qi_side_is_known(&record.side))
            return qi_fail(QI_E_NEWER,
                           "queue %s: %s has a side record of kind %u, which only a newer version "
                           "of qindex understands: use a matching release",
                           qi_name_of(queue).text, qi_journal_name(replaying->journal->epoch),
                           record.side.kind);
        int error = record.kind <= QI_PUB_TRANSIENT
                        ? replay_publish(replaying, &record)
                        : replay_event(queue, &record, replaying->orphans);
        if (error)
            return error;
    }
    return 0;
}

/* A whole segment is acked and nobody has to know what was in it. */
static void purge_unread(struct qi_queue *queue, struct qi_segment *segment) {
    struct qi_hot *hot = segment->hot;
    qi_count_depth(queue, -(int64_t)segment->unacked);
    queue->dirty_count++;
    segment->unacked = segment->transient = 0;
    qi_bytes_found(queue, segment, 0);
    qi_held_at_most(queue, segment, 0);
    for (uint32_t slot = 0; hot && slot < queue->store->options.segment_entries; slot += 64) {
        struct qi_slots *slots = qi_slots_of(hot, slot);
        if (slots->pub) {
            slots->ack |= slots->pub;
            slots->held = slots->due = 0;
        }
    }
    if (hot) {
        hot->uses_count = hot->held_count = 0;
        hot->loaded = true;
    }
}

/* The ids of the list from `first` on; sorted. */
static uint32_t listed_from(const uint8_t *list, uint32_t count, uint64_t first) {
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (qi_get64(list + 8 * (size_t)middle) < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* More may still be published into the last one of a lane: which of its messages a purge took has
 * to be known. */
static bool is_last(const struct qi_queue *queue, uint32_t index) {
    const struct qi_segment *segment = qi_segment_nth(&queue->segments, index);
    return index + 1 == queue->segments.count ||
           (qi_segment_lane(queue, segment) != qi_segment_lane(queue, segment + 1) &&
            !QI_BUG(lane_tail_purged_unread));
}

/* Nobody needs the maps: all of the segment is purged, and its references to message files are in
 * no account yet. */
static bool goes_unread(const struct qi_queue *queue, uint32_t index, uint64_t below) {
    uint64_t entries = queue->store->options.segment_entries;
    const struct qi_segment *segment = qi_segment_nth(&queue->segments, index);
    bool read = segment->hot && segment->hot->loaded;
    return !read && !segment->counted && !is_last(queue, index) &&
           qi_count_of(segment->number * entries) + entries <= below;
}

int qi_load_for_purge(struct qi_queue *queue) {
    int error = 0;
    for (uint32_t i = 0; i < queue->segments.count && !error; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (segment->unacked > 0 && !goes_unread(queue, i, queue->highest))
            error = qi_segment_load(queue, segment);
    }
    return error;
}

/* All published below a count are acked, but for a sorted list (those that were with consumers). */
int qi_apply_purge(struct qi_queue *queue, uint64_t below, const uint8_t *except, uint32_t count) {
    uint32_t entries = queue->store->options.segment_entries;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        uint64_t first = segment->number * entries, left = below - qi_count_of(first);
        if (qi_count_of(first) >= below || segment->unacked == 0)
            continue;
        uint32_t at = listed_from(except, count, first),
                 end = listed_from(except, count, first + entries);
        if (at == end && goes_unread(queue, i, below)) {
            purge_unread(queue, segment);
            continue;
        }
        int error =
            qi_segment_load(queue, segment); /* without the maps nobody knows which slots to ack */
        if (error)
            return error;
        struct qi_hot *hot = segment->hot;
        for (uint32_t slot = 0; slot < entries && slot < left; slot++) {
            const struct qi_slots *slots = qi_slots_of(hot, slot);
            if (!(slots->pub & ~slots->ack)) {
                slot |= 63; /* nothing is alive here */
                continue;
            }
            while (at < end && qi_get64(except + 8 * (size_t)at) < first + slot)
                at++;
            bool excepted = at < end && qi_get64(except + 8 * (size_t)at) == first + slot;
            if (qi_bit(slots->pub & ~slots->ack, slot) && !excepted)
                qi_segment_ack(queue, segment, slot);
        }
    }
    return 0;
}

/* In front of a CLOSE: exactly where each lane was; what the MANIFEST's segments say is only a
 * bound. */
static int replay_lanes(struct qi_queue *queue, const struct qi_frame *frame) {
    for (uint32_t at = 0; at + QI_LANES_ROW <= frame->length; at += QI_LANES_ROW) {
        uint32_t number = qi_get16(frame->payload + at);
        uint64_t count = qi_get64(frame->payload + at + 2);
        if (number >= QI_LANES || count > QI_COUNT_MASK) /* no writer of ours does that */
            continue;
        if (qi_lane_raise(queue, qi_lane_start(number) | count) != 0)
            return QI_E_MEMORY;
        qi_lane_find(&queue->lanes, number)->next = qi_lane_start(number) | count;
    }
    return 0;
}

int qi_replay(struct qi_queue *queue, struct qi_journal *journal, struct qi_scan *scan,
              uint64_t *orphans) {
    uint64_t offset = QI_JOURNAL_START, session, floor, reserved;
    struct qi_frame frame;
    struct replaying replaying = {
        .queue = queue, .journal = journal, .scan = scan, .orphans = orphans};
    scan->lowest_body = UINT32_MAX;
    for (uint64_t end = offset; qi_journal_next(journal, scan, &offset, &frame); end = offset) {
        struct qi_manifest manifest;
        int error = 0;
        if (frame.offset != end && !QI_BUG(moment_before_damage_believed))
            replaying.moment_us = 0; /* what is damaged may have said another */
        if (frame.type == QI_FRAME_RECORDS) {
            error = replay_records(&replaying, &frame);
        } else if (qi_read_session(&frame, &session, &floor, &reserved)) {
            queue->session = session;
            replaying.moment_us = 0;
            if (reserved > queue->reserved)
                queue->reserved = reserved;
            error = qi_raise_floor(queue, floor);
        } else if (qi_read_moment(&frame) != UINT64_MAX) {
            replaying.moment_us = qi_read_moment(&frame) & QI_INSTANT_MASK;
        } else if (frame.type == QI_FRAME_LANES) {
            error = replay_lanes(queue, &frame);
        } else if (qi_read_manifest(&frame, &manifest)) {
            if (manifest.reserved > queue->reserved)
                queue->reserved = manifest.reserved;
        } else if (frame.type == QI_FRAME_PURGE && frame.length >= 8) {
            error = qi_apply_purge(queue, qi_get64(frame.payload), frame.payload + 8,
                                   (frame.length - 8) / 8);
        }
        if (error)
            return error;
    }
    return scan->changed ? qi_fail_changed(qi_journal_name(journal->epoch), qi_name_of(queue).text)
                         : 0;
}

/* Transients below the floor died with the process that held them (an unclean end). */
int qi_raise_floor(struct qi_queue *queue, uint64_t floor) {
    uint32_t entries = queue->store->options.segment_entries;
    if (floor <= queue->floor)
        return 0;
    uint64_t before = queue->floor;
    queue->floor = floor;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        uint64_t first = qi_count_of(segment->number * entries);
        if (first >= floor || first + entries <= before)
            continue;
        if (segment->transient == 0)
            continue;
        struct qi_hot *hot = segment->hot;
        if (hot && hot->loaded) {
            for (uint32_t slot = 0; slot < entries; slot += 64) {
                const struct qi_slots *slots = qi_slots_of(hot, slot);
                for (uint64_t bits = slots->transient & slots->pub & ~slots->ack; bits;
                     bits &= bits - 1)
                    qi_segment_ack(queue, segment, slot + (uint32_t)__builtin_ctzll(bits));
            }
        } else if (hot || segment->delayed + segment->dead > 0) {
            /* Which of the acked, or of the held, were transient? Only the file knows. */
            queue->floor = before;
            int error = qi_segment_load(queue, segment);
            queue->floor = floor;
            if (error)
                return error;
            i--; /* once more, with its maps */
        } else {
            segment->unacked -= segment->transient;
            qi_count_depth(queue, -(int64_t)segment->transient);
            segment->transient = 0;
            qi_held_at_most(queue, segment, segment->unacked);
        }
    }
    return 0;
}
