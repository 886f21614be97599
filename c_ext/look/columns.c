/* columns.c - records, stored bodies and messages as columns, for whoever takes a million at a time
 * (qindex.spark), and for whoever shows what is in a file, damaged or not (`raw`:
 * qindex.native.records).
 *
 * The caller owns all memory; nothing is allocated here. Bytes of files are never trusted: frames
 * come from walk.c and codec.c, which check every length against what is there, and a row is
 * written only while there is room for it. What is no frame is passed over at a cost that is
 * bounded for the whole file.
 */
#include "look/look_private.h"

/* `publish`: its fields, or NULL. */
static inline void put_row(qi_columns *columns, uint32_t row, uint8_t kind, uint64_t req_id,
                           uint64_t offset, const uint8_t *publish) {
    clear_rows(columns, row);
    if (columns->kind)
        columns->kind[row] = kind;
    set64(columns->req_id, row, req_id);
    set64(columns->offset, row, offset);
    if (!publish)
        return;
    set64(columns->size, row, qi_get32(publish + QI_PUB_SIZE));
    set64(columns->embedded, row, qi_get32(publish + QI_PUB_EMBEDDED));
    set_bit(columns->has_size, row);
    set_expiry(columns, row, qi_get64(publish + QI_PUB_EXPIRY));
    set_msg_id(columns, row, publish + QI_PUB_MSG_ID);
}

/* The ReqId of a segment's slot 0; who wants raw rows gets slots. */
static inline uint64_t first_id(const struct qi_walk *walk, const qi_columns *columns) {
    return columns->raw ? 0 : walk->number * walk->entries;
}

/* For raw rows only: `size` bytes that hold no record. */
static void put_bytes(qi_columns *columns, uint32_t row, uint32_t kind, uint64_t offset,
                      uint64_t size) {
    put_row(columns, row, (uint8_t)kind, 0, offset, NULL);
    set64(columns->size, row, size);
}

static void put_time(qi_columns *columns, uint32_t row, uint64_t req_id, uint64_t offset,
                     uint64_t time) {
    put_row(columns, row, QI_ROW_TIME, req_id, offset, NULL);
    set_due(columns, row, qi_time_us(time), qi_time_priority(time));
}

/* When a publish of a journal was made: what the record of a move behind it says, or the last
 * MOMENT. */
static uint64_t published_in_journal(const qi_columns *columns, uint64_t req_id, const uint8_t *at,
                                     uint64_t left) {
    struct qi_record record;
    while (qi_read_record(at, left, &record) && record.req_id == req_id &&
           record.kind > QI_PUB_TRANSIENT) {
        if (record.kind == QI_SIDE && record.side.kind == QI_SIDE_PUBLISHED &&
            record.side.size == 8)
            return qi_get64(record.side.bytes) & QI_INSTANT_MASK;
        at += record.size;
        left -= record.size;
    }
    return columns->moment;
}

/* And of a segment's slot: `moment` is where the rows of its batch are. */
static uint64_t published_in_segment(const struct qi_walk *walk, const qi_columns *columns,
                                     uint32_t slot) {
    if (columns->moment == 0 || columns->moment + QI_FRAME_HEADER > walk->size)
        return 0;
    uint32_t length = qi_get32(walk->bytes + columns->moment) & QI_FRAME_LENGTH_MAX;
    if (length > walk->size - columns->moment - QI_FRAME_HEADER)
        return 0;
    return qi_moment_of_slot(walk->bytes + columns->moment + QI_FRAME_HEADER, length, slot);
}

static void note_moment(const struct qi_walk *walk, qi_columns *columns,
                        const struct qi_frame *frame) {
    bool is_extended = frame->type == QI_FRAME_EXTENDED;
    if (walk->journal) {
        uint64_t us = qi_read_moment(frame);
        if (us != UINT64_MAX)
            columns->moment = us & QI_INSTANT_MASK;
        else if (frame->type == QI_FRAME_SESSION)
            columns->moment = 0;
    } else if (is_extended && qi_get16(frame->payload) == QI_KIND_MOMENTS) {
        columns->moment = frame->offset;
    } else if (frame->type != QI_FRAME_ENTRIES) {
        columns->moment = 0;
    }
}

/* Publishes of a segment, most of what there is, without the way through a struct; returns the
 * bytes of those that lie one behind the other here, as far as there is room. */
static uint64_t publish_rows(const struct qi_walk *walk, qi_columns *columns, uint32_t *row,
                             const uint8_t *start, uint64_t left) {
    const uint64_t head = QI_ENTRY_ID + QI_PUB_FIELDS, first = first_id(walk, columns);
    const uint8_t *at = start;
    uint32_t next = *row;
    while (next < columns->room && left >= head) {
        uint32_t word = qi_get16(at);
        const uint8_t *fields = at + QI_ENTRY_ID;
        uint64_t size = head + (uint64_t)qi_get32(fields + QI_PUB_EMBEDDED);
        if (!(word & QI_ENTRY_PUB) || size > left)
            break;
        put_row(columns, next, word & QI_ENTRY_PERSISTENT ? QI_ROW_PUBLISH : QI_ROW_TRANSIENT,
                first + (word & QI_ENTRY_SLOT_MASK), (uint64_t)(at - walk->bytes), fields);
        if (columns->published_us)
            set_published(columns, next,
                          published_in_segment(walk, columns, word & QI_ENTRY_SLOT_MASK));
        next++;
        at += size;
        left -= size;
    }
    *row = next;
    return (uint64_t)(at - start);
}

/* A raw row says which kind it is, and of a lease how long it is; other rows tell nothing of it. */
static void put_side(qi_columns *columns, uint32_t *row, uint64_t req_id, uint64_t offset,
                     const struct qi_side *side) {
    bool is_known = qi_side_is_known(side);
    if (!columns->raw) {
        columns->newer = columns->newer || is_known ? columns->newer : side->kind;
        return;
    }
    put_row(columns, *row, is_known ? QI_ROW_SIDE : QI_ROW_NEWER, req_id, offset, NULL);
    set64(columns->size, *row, side->size);
    set_count(columns, *row, side->kind);
    if (is_known && side->kind == QI_SIDE_LEASE)
        set64(columns->due_us, *row, qi_get64(side->bytes));
    ++*row;
}

/* One record, or an entry that is no publish, `left` bytes before the frame's end; returns its
 * size, 0: it does not fit into its frame. */
static uint64_t record_row(const struct qi_walk *walk, qi_columns *columns, uint32_t *row,
                           const uint8_t *at, uint64_t left) {
    uint64_t offset = (uint64_t)(at - walk->bytes);
    if (walk->journal) {
        struct qi_record record;
        if (!qi_read_record(at, left, &record))
            return 0;
        if (record.kind == QI_SIDE)
            put_side(columns, row, record.req_id, offset, &record.side);
        else if (record.kind == QI_TIME)
            put_time(columns, (*row)++, record.req_id, offset, record.time);
        else
            put_row(columns, *row, (uint8_t)record.kind, record.req_id, offset, record.fields);
        if (columns->published_us && record.kind <= QI_PUB_TRANSIENT)
            set_published(
                columns, *row,
                published_in_journal(columns, record.req_id, at + record.size, left - record.size));
        *row += record.kind < QI_TIME;
        return record.size;
    }
    struct qi_entry entry;
    if (!qi_read_entry(at, left, &entry))
        return 0;
    uint64_t req_id = first_id(walk, columns) + entry.slot;
    if (entry.is == QI_ENTRY_IS_SIDE) {
        put_side(columns, row, req_id, offset, &entry.side);
    } else if (entry.is == QI_ENTRY_IS_TIME) {
        put_time(columns, (*row)++, req_id, offset, entry.time);
    } else {
        uint8_t kind = entry.is == QI_ENTRY_IS_EVENT ? QI_ROW_EVENT : QI_ROW_COUNT;
        put_row(columns, *row, kind, req_id, offset, NULL);
        if (kind == QI_ROW_COUNT)
            set_count(columns, *row, entry.count);
        ++*row;
    }
    return entry.size;
}

/* Rows from one frame, from `inside` on; moves `at` and `inside`. */
static uint32_t frame_rows(const struct qi_walk *walk, qi_columns *columns, uint32_t row,
                           const struct qi_frame *frame) {
    uint64_t inside = columns->inside;
    if (frame->type == QI_FRAME_RECORDS || frame->type == QI_FRAME_ENTRIES)
        while (row < columns->room && inside < frame->length) {
            if (!walk->journal)
                inside += publish_rows(walk, columns, &row, frame->payload + inside,
                                       frame->length - inside);
            if (row == columns->room || inside == frame->length)
                break;
            uint64_t size =
                record_row(walk, columns, &row, frame->payload + inside, frame->length - inside);
            if (size == 0 && columns->raw)
                put_bytes(columns, row++, QI_ROW_FRAME + frame->type, frame->offset, frame->length);
            inside = size ? inside + size : frame->length;
        }
    else {
        if (frame->type == QI_FRAME_PURGE && frame->length >= 8) {
            put_row(columns, row, QI_ROW_PURGE, qi_get64(frame->payload), frame->offset, NULL);
            set64(columns->size, row++, frame->length);
        } else if (columns->raw)
            put_bytes(columns, row++, QI_ROW_FRAME + frame->type, frame->offset, frame->length);
        inside = frame->length;
    }
    bool done = inside >= frame->length;
    columns->at = done ? frame->offset + QI_FRAME_HEADER + frame->length : frame->offset;
    columns->inside = done ? 0 : inside;
    return row;
}

/* Bytes that are no frame, up to the next one that is. A raw row says so, and what stands behind
 * each damaged place is looked for with an effort of its own. */
static uint32_t bad_row(const struct qi_walk *walk, qi_columns *columns, uint32_t row) {
    uint64_t effort = QI_FRAME_EFFORT(walk->size), at = columns->at;
    struct qi_frame frame;
    bool found = qi_frame_find(walk->seed, walk->bytes, walk->size, at + 1,
                               columns->raw ? &effort : &columns->effort, &frame);
    columns->damaged += found ? frame.offset - at : 0;
    columns->at = found ? frame.offset : walk->size;
    columns->inside = 0;
    columns->moment = 0; /* what is damaged may have said another */
    if (columns->raw)
        put_bytes(columns, row++, found ? QI_ROW_BAD : QI_ROW_TAIL, at, columns->at - at);
    return row;
}

/* Of a kind that is not known here, or says when messages were published. */
static uint32_t extended_row(qi_columns *columns, uint32_t row, const struct qi_frame *frame) {
    uint32_t kind = qi_get16(frame->payload);
    bool is_moment = kind == QI_KIND_MOMENT || kind == QI_KIND_MOMENTS;
    if (columns->raw && is_moment) {
        put_bytes(columns, row, QI_ROW_MOMENT, frame->offset, frame->length);
        if (qi_read_moment(frame) != UINT64_MAX)
            set64(columns->due_us, row, qi_read_moment(frame));
        row++;
    } else if (columns->raw) {
        put_bytes(columns, row, kind < QI_KIND_SKIPPED ? QI_ROW_NEWER : QI_ROW_FRAME + frame->type,
                  frame->offset, frame->length);
        set_count(columns, row++, kind);
    }
    columns->at = frame->offset + QI_FRAME_HEADER + frame->length;
    columns->inside = 0;
    return row;
}

int64_t qi_columns_records(const void *bytes, size_t size, qi_columns *columns) {
    struct qi_walk walk;
    if (!qi_walk_begin(&walk, bytes, size) && !(columns->raw && qi_walk_begin_headless(&walk)))
        return qi_walk_refused(&walk);
    uint32_t row = columns->first;
    if (columns->at == 0) {
        columns->at = walk.start;
        columns->moment = 0;
        columns->effort = QI_FRAME_EFFORT(size);
        if (walk.headless && row < columns->room)
            put_bytes(columns, row++, QI_ROW_HEADLESS, 0, walk.start);
    }
    while (row < columns->room) {
        struct qi_frame frame;
        enum qi_frame_state state = qi_walk_frame(&walk, columns->at, columns->inside, &frame);
        if (state == QI_FRAME_END && columns->raw && !walk.journal &&
            columns->at + QI_FRAME_HEADER <= size)
            state = QI_FRAME_BAD; /* a segment has no zeros at its end */
        if (state == QI_FRAME_END)
            break;
        bool is_extended = state == QI_FRAME_VALID && frame.type == QI_FRAME_EXTENDED;
        if (is_extended && !columns->raw && qi_get16(frame.payload) < QI_KIND_SKIPPED)
            return qi_fail(QI_E_NEWER,
                           "a frame of kind %u at byte %llu is one that only a newer version of "
                           "qindex understands: use a matching release",
                           qi_get16(frame.payload), (unsigned long long)frame.offset);
        if (state == QI_FRAME_VALID && columns->inside == 0)
            note_moment(&walk, columns, &frame);
        row = state == QI_FRAME_BAD ? bad_row(&walk, columns, row)
              : is_extended         ? extended_row(columns, row, &frame)
                                    : frame_rows(&walk, columns, row, &frame);
        if (columns->newer)
            return qi_fail(QI_E_NEWER,
                           "a side record of kind %u in the frame at byte %llu is one that only a "
                           "newer version of qindex understands: use a matching release",
                           columns->newer, (unsigned long long)frame.offset);
    }
    return row;
}
