/* columns.c - records, stored bodies and messages as columns, for whoever takes a million at a time
 * (qindex.spark), and for whoever shows what is in a file, damaged or not (`raw`:
 * qindex.native.records).
 *
 * The caller owns all memory; nothing is allocated here. Bytes of files are never trusted: frames
 * come from walk.c and codec.c, which check every length against what is there, and a row is
 * written only while there is room for it. What is no frame is passed over at a cost that is
 * bounded for the whole file.
 */
#include "look/look.h"

#include "index/index.h"
#include "queue/queue.h"

/* What most rows do not have is zero, column by column, before they are filled: a row then writes
 * only what it has. */
#define CLEAR_AT_ONCE                                                                              \
    1024u /* rows; few enough to be in the cache when they are filled, and whole bytes of bits */

static void clear(void *column, uint32_t row, uint32_t rows, size_t size) {
    if (column)
        memset((uint8_t *)column + row * size, 0, rows * size);
}

/* Called with each row, in order. */
static inline void clear_rows(qi_columns *columns, uint32_t row) {
    if (__builtin_expect(row % CLEAR_AT_ONCE != 0, 1))
        return;
    uint32_t left = columns->room - row, rows = left < CLEAR_AT_ONCE ? left : CLEAR_AT_ONCE;
    int64_t *longs[] = {columns->size, columns->embedded, columns->expiry_us, columns->due_us,
                        columns->file};
    uint8_t *bits[] = {columns->has_size,   columns->has_expiry, columns->has_count,
                       columns->has_msg_id, columns->has_due,    columns->has_priority};
    for (size_t i = 0; i < sizeof longs / sizeof *longs; i++)
        clear(longs[i], row, rows, sizeof **longs);
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        clear(bits[i], row / 8, (rows + 7) / 8, 1);
    clear(columns->priority, row, rows, sizeof *columns->priority);
    clear(columns->count, row, rows, sizeof *columns->count);
    clear(columns->msg_id, row, rows, QI_MSG_ID_SIZE);
}

static inline void set_bit(uint8_t *bits, uint32_t row) {
    if (bits)
        bits[row >> 3] |= (uint8_t)(1u << (row & 7));
}

static inline void set64(int64_t *column, uint32_t row, uint64_t value) {
    if (column)
        column[row] = (int64_t)value;
}

static inline void set_msg_id(qi_columns *columns, uint32_t row, const uint8_t *msg_id) {
    if (!qi_msg_id_is_set(msg_id))
        return;
    set_bit(columns->has_msg_id, row);
    if (columns->msg_id)
        memcpy(columns->msg_id + (size_t)row * QI_MSG_ID_SIZE, msg_id, QI_MSG_ID_SIZE);
}

static inline void set_expiry(qi_columns *columns, uint32_t row, uint64_t expiry_us) {
    if (expiry_us == 0)
        return;
    set64(columns->expiry_us, row, expiry_us);
    set_bit(columns->has_expiry, row);
}

static inline void set_count(qi_columns *columns, uint32_t row, uint32_t count) {
    set_bit(columns->has_count, row);
    if (columns->count)
        columns->count[row] = (int32_t)count;
}

static inline void set_due(qi_columns *columns, uint32_t row, uint64_t due_us, uint32_t priority) {
    if (due_us) {
        set64(columns->due_us, row, due_us);
        set_bit(columns->has_due, row);
    }
    set_bit(columns->has_priority, row);
    if (columns->priority)
        columns->priority[row] = (int32_t)priority;
}

/* ---- journals and segments ---- */

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
        put_row(columns, next++, word & QI_ENTRY_PERSISTENT ? QI_ROW_PUBLISH : QI_ROW_TRANSIENT,
                first + (word & QI_ENTRY_SLOT_MASK), (uint64_t)(at - walk->bytes), fields);
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
            put_row(columns, (*row)++, (uint8_t)record.kind, record.req_id, offset, record.fields);
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
    if (columns->raw)
        put_bytes(columns, row++, found ? QI_ROW_BAD : QI_ROW_TAIL, at, columns->at - at);
    return row;
}

/* Of a kind that is not known here; there is no other so far. */
static uint32_t extended_row(qi_columns *columns, uint32_t row, const struct qi_frame *frame) {
    uint32_t kind = qi_get16(frame->payload);
    if (columns->raw) {
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

/* ---- message files ---- */

struct bodies {
    const uint8_t *bytes;
    uint64_t end; /* of the frames */
    uint64_t number;
    bool rolling; /* what is in it was born in it */
    uint32_t seed;
};

/* Could a frame stand here? Cheap, and hardly ever wrong: the MsgId says what the length is, and in
 * a rolling file where it stands. */
static bool may_be_body(const struct bodies *bodies, uint64_t at) {
    uint64_t left = bodies->end - at;
    if (left < QI_MESSAGE_OVERHEAD)
        return false;
    const uint8_t *frame = bodies->bytes + at;
    uint32_t length = qi_get32(frame);
    struct qi_msg_id id = qi_get_msg_id(frame + 8);
    return length <= left - QI_MESSAGE_OVERHEAD && length == qi_payload_length(id) &&
           (id.stamp & 0xFFFFFF) != 0 &&
           (!bodies->rolling || (id.file == bodies->number && id.offset == at));
}

static bool is_sound(const struct bodies *bodies, uint64_t at) {
    const uint8_t *frame = bodies->bytes + at, *payload = frame + QI_MESSAGE_HEADER;
    return qi_message_is_valid(bodies->seed, at, frame, payload, payload + qi_get32(frame),
                               qi_get_msg_id(frame + 8));
}

/* The next sound frame behind a place where none is; false: there is none, or the search costs too
 * much. */
static bool find_body(const struct bodies *bodies, uint64_t *effort, uint64_t *at) {
    for (uint64_t place = *at; bodies->end - place >= QI_MESSAGE_OVERHEAD; place++) {
        if (qi_get64(bodies->bytes + place + 8 + 8) == 0)
            continue; /* no stamp is 0: most of what is passed over was never written */
        if (!may_be_body(bodies, place))
            continue;
        uint32_t length = qi_get32(bodies->bytes + place);
        if (*effort < length)
            return false;
        *effort -= length;
        if (is_sound(bodies, place)) {
            *at = place;
            return true;
        }
    }
    return false;
}

static void body_row(const struct bodies *bodies, qi_columns *columns, uint32_t row, bool sound) {
    const uint8_t *frame = bodies->bytes + columns->at;
    clear_rows(columns, row);
    if (columns->kind)
        columns->kind[row] = sound ? QI_ROW_SOUND : QI_ROW_DAMAGED;
    set64(columns->offset, row, columns->at);
    set64(columns->size, row, qi_get32(frame));
    set_msg_id(columns, row, frame + 8);
    set_count(columns, row, ((uint32_t)qi_get_msg_id(frame + 8).stamp >> 24) + 1);
}

int64_t qi_columns_bodies(const void *identity, uint64_t number, const void *bytes, size_t size,
                          qi_columns *columns) {
    const uint8_t *header = bytes;
    if (size < QI_MESSAGES_START)
        return 0;
    struct bodies bodies = {bytes, size, number, true, qi_frame_seed(identity, number, 0)};
    uint64_t frames_bytes = qi_get64(header + QI_MH_BYTES);
    if (qi_get32(header + QI_MH_CRC) == qi_crc32c(0, header, QI_MH_CRC) &&
        qi_get32(header + QI_MH_KIND) == QI_MESSAGES_COMPACTED) {
        bodies.rolling = false;
        if (frames_bytes <= size - QI_MESSAGES_START)
            bodies.end = QI_MESSAGES_START + frames_bytes;
    }
    if (columns->at == 0) {
        columns->at = QI_MESSAGES_START;
        columns->effort = QI_FRAME_EFFORT(size);
    }
    uint32_t row = 0;
    while (row < columns->room && columns->at < bodies.end) {
        uint64_t place = columns->at;
        if (!may_be_body(&bodies, place)) {
            if (!find_body(&bodies, &columns->effort, &place)) {
                columns->at = bodies.end;
                break;
            }
            columns->damaged += place - columns->at;
            columns->at = place;
        }
        body_row(&bodies, columns, row++, is_sound(&bodies, place));
        columns->at += QI_MESSAGE_OVERHEAD + qi_get32(bodies.bytes + place);
    }
    return row;
}

/* ---- messages ---- */

static void message_row(qi_columns *columns, uint32_t row, const qi_message *message) {
    struct qi_msg_id id = qi_get_msg_id(message->msg_id);
    clear_rows(columns, row);
    if (columns->kind)
        columns->kind[row] = (uint8_t)(message->flags | (message->dead ? QI_DEAD_LETTER : 0));
    set64(columns->req_id, row, message->req_id);
    set64(columns->file, row, id.file);
    set64(columns->offset, row, id.offset);
    set64(columns->size, row, message->body_size);
    set64(columns->embedded, row, message->flags & QI_STORED ? 0 : message->payload_size);
    set_bit(columns->has_size, row);
    set_expiry(columns, row, message->expiry_us);
    set_count(columns, row, message->delivery_count);
    set_due(columns, row, message->due_us, message->priority);
    set_msg_id(columns, row, message->msg_id);
}

/* The payload lies at the end of the bodies so far: its headers go to their own column, the body
 * moves over them. False: there is no room for the headers. */
static bool part_payload(qi_columns *columns, uint32_t row, const qi_message *message) {
    uint8_t *payload = columns->bodies + columns->body_starts[row];
    uint32_t body = message->flags & QI_NO_BODY ? 0 : message->body_size;
    uint32_t headers = message->flags & QI_NO_BODY ? 0 : message->payload_size - body;
    uint64_t start = (uint64_t)columns->header_starts[row];
    if (headers > columns->headers_room - start)
        return false;
    memcpy(columns->headers + start, payload, headers);
    memmove(payload, payload + headers, body);
    columns->header_starts[row + 1] = (int32_t)(start + headers);
    columns->body_starts[row + 1] = columns->body_starts[row] + (int32_t)body;
    return true;
}

/* Who publishes meanwhile waits for no more messages than these; a lock for each would cost a tenth
 * of the whole. */
#define MESSAGES_A_LOCK 16u

static int64_t message_rows(qi_queue *queue, uint64_t stop, qi_columns *columns) {
    uint8_t scratch[4096]; /* with room the core need not say that there is none */
    uint32_t first = columns->first, row = first;
    if (columns->bodies && first == 0)
        columns->body_starts[0] = columns->header_starts[0] = 0;
    while (row < columns->room && columns->at < stop) {
        qi_message message = {.flags = 0}; /* stays so if its record cannot be read */
        uint8_t *payload = scratch;
        uint64_t room = sizeof scratch;
        if (columns->bodies) {
            payload = columns->bodies + columns->body_starts[row];
            room = columns->bodies_room - (uint64_t)columns->body_starts[row];
        }
        if (row % MESSAGES_A_LOCK == MESSAGES_A_LOCK - 1 || columns->bodies) {
            qi_unlock(queue->store);
            qi_lock(queue->store);
        }
        int64_t got = qi_browse_locked(queue, columns->at, false, &message, payload, room);
        if (got == QI_EMPTY || (message.req_id != UINT64_MAX && message.req_id >= stop))
            break;
        bool known = message.req_id != UINT64_MAX;
        if (got == QI_E_CORRUPT && known && message.flags & QI_STORED)
            message.flags |= QI_NO_BODY;
        else if (got < 0 && (got != QI_E_ROOM || columns->bodies))
            return row > first ? (int64_t)row : got;
        /* First: a row that is not finished leaves no bits to the one that stands there next. */
        if (columns->bodies && !part_payload(columns, row, &message))
            return row > first ? (int64_t)row : qi_fail(QI_E_ROOM, "the headers need more room");
        message_row(columns, row, &message);
        columns->at = message.req_id + 1;
        row++;
    }
    return row;
}

int64_t qi_columns_messages(qi_queue *queue, uint64_t stop, qi_columns *columns) {
    qi_lock(queue->store);
    int64_t rows = message_rows(queue, stop, columns);
    qi_unlock(queue->store);
    return rows;
}
