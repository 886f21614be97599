/* columns_messages.c - stored bodies and the messages of a queue as columns; the rules are those of
 * columns.c. */
#include "look/look_private.h"

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
    set_published(columns, row, message->published_us);
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
