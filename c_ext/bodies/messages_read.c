/* messages_read.c - read bodies.
 *
 * Promises: a read gives exactly the bytes that were appended under this id, or an error. Short
 * bodies of a sealed file are copied out of a window, which one call fills for many; long ones go
 * by one call straight to where the caller wants them, and so do those that follow each other, if
 * they are wanted together.
 */
#include "bodies/bodies_private.h"

#include <errno.h>

#define LOOK_AHEAD_MIN (UINT32_C(16) << 10)
#define WINDOW_PAYLOAD (UINT32_C(16) << 10) /* below this a read looks ahead */
#define RESCANS_MAX    5

/* A read of one message: where it lies, and where it is to go. */
struct reading {
    struct qi_message_file *file; /* NULL: the tape */
    uint32_t number, seed;
    uint64_t offset;
    struct qi_msg_id id;
    struct qi_into into;
    uint32_t length; /* of both together */
    bool may_wait;
};

static int fail_frame(const struct reading *reading) {
    return qi_fail(QI_E_CORRUPT, "%s: damaged message at offset %llu",
                   qi_message_name(reading->number, false).shown,
                   (unsigned long long)reading->offset);
}

static int read_births(struct qi_messages *messages, const struct reading *reading) {
    int error = qi_births_read(messages->disk, reading->seed, reading->file);
    struct qi_message_name name = qi_message_name(reading->number, false);
    if (error == -EBADMSG)
        return qi_fail(QI_E_CORRUPT, "%s: damaged birth table at offset %llu", name.shown,
                       (unsigned long long)reading->file->frames_end);
    return error ? qi_fail_disk(error, "read", name.shown) : 0;
}

/* Fills in the place of the message `id`. */
static int locate(struct qi_messages *messages, struct reading *reading) {
    struct qi_msg_id id = reading->id;
    const struct qi_birth_file *birth = qi_birth_file_find(messages, id.file);
    reading->number = birth ? birth->home : id.file;
    reading->offset = id.offset;
    reading->file = NULL;
    if (messages->tape.file >= 0 && reading->number == messages->tape_number) {
        reading->seed = messages->tape_seed;
        return id.offset < QI_MESSAGES_START ? fail_frame(reading) : 0;
    }
    reading->file = qi_message_file_find(messages, reading->number);
    if (!reading->file)
        return qi_fail(QI_E_CORRUPT, "%s is missing",
                       qi_message_name(reading->number, false).shown);
    if (!reading->may_wait &&
        (reading->file->handle < 0 || (reading->file->compacted && !reading->file->births)))
        return QI_BUSY;
    int error = qi_message_file_open(messages, reading->file);
    if (error)
        return error;
    reading->seed = qi_frame_seed(messages->identity, reading->number, 0);
    if (reading->file->compacted && (error = read_births(messages, reading)) != 0)
        return error;
    if (!qi_births_place(reading->file, id, &reading->offset))
        return qi_fail(QI_E_CORRUPT, "%s: no message that was born at offset %u of file %u",
                       qi_message_name(reading->number, false).shown, id.offset, id.file);
    return reading->offset < QI_MESSAGES_START ? fail_frame(reading) : 0;
}

/* The frame, which is `size` bytes of a file, through the window; NULL if that cannot be. Reads a
 * lot only if the reads go forward. */
static const uint8_t *look(struct qi_messages *messages, const struct reading *reading,
                           uint64_t size) {
    uint64_t begin = messages->window_offset, end = begin + messages->window_length,
             offset = reading->offset;
    bool here = messages->window_file == reading->number && offset >= begin;
    if (here && offset + size <= end)
        return messages->window + (offset - begin);
    uint64_t ahead = here && offset <= end + LOOK_AHEAD_MIN ? QI_MESSAGES_WINDOW : LOOK_AHEAD_MIN;
    if (ahead < size)
        ahead = size;
    const struct qi_piece piece = {messages->window, ahead};
    messages->window_file = UINT32_MAX;
    int64_t got = messages->disk->ops->read_pieces(messages->disk, reading->file->handle, &piece, 1,
                                                   offset, reading->may_wait);
    if (got < 0)
        return NULL;
    messages->window_file = reading->number;
    messages->window_offset = offset;
    messages->window_length = (uint64_t)got;
    return (uint64_t)got < size ? NULL : messages->window;
}

/* Is what was read the message? Its payload is in its places. */
static bool is_valid(const struct reading *reading, const uint8_t *header, uint8_t end) {
    const struct qi_into *into = &reading->into;
    uint8_t expected[QI_MSG_ID_SIZE];
    qi_put_msg_id(expected, reading->id);
    if (reading->id.stamp == 0 || memcmp(header + 8, expected, sizeof expected) != 0 ||
        end != QI_MESSAGE_END || qi_get32(header) != reading->length)
        return false;
    uint32_t crc = qi_message_crc(reading->seed, reading->offset, header);
    crc = qi_crc32c(crc, into->headers, into->headers_size);
    return qi_crc32c(crc, into->body, into->body_size) == qi_get32(header + 4);
}

/* A frame in memory; false: it is not the one. It is copied first and then checked: of a mapped
 * file another process can change the bytes in between. */
static bool take(const struct reading *reading, const uint8_t *frame) {
    const struct qi_into *into = &reading->into;
    const uint8_t *payload = frame + QI_MESSAGE_HEADER;
    uint8_t header[QI_MESSAGE_HEADER];
    memcpy(header, frame, sizeof header);
    if (into->headers_size > 0)
        memcpy(into->headers, payload, into->headers_size);
    if (into->body_size > 0)
        memcpy(into->body, payload + into->headers_size, into->body_size);
    return is_valid(reading, header, payload[reading->length]);
}

/* One call, straight to where the payload is to go. */
static int read_straight(struct qi_messages *messages, const struct reading *reading) {
    uint8_t header[QI_MESSAGE_HEADER] = {0}, end = 0;
    const struct qi_into *into = &reading->into;
    const struct qi_piece pieces[] = {{header, sizeof header},
                                      {into->headers, into->headers_size},
                                      {into->body, into->body_size},
                                      {&end, 1}};
    int handle = reading->file ? reading->file->handle : messages->tape.file;
    int64_t size = (int64_t)reading->length + QI_MESSAGE_OVERHEAD,
            got = messages->disk->ops->read_pieces(messages->disk, handle, pieces, 4,
                                                   reading->offset, reading->may_wait);
    if (got < size && !reading->may_wait)
        return QI_BUSY;
    if (got < 0)
        return qi_fail_disk((int)got, "read", qi_message_name(reading->number, false).shown);
    return got < size || !is_valid(reading, header, end) ? fail_frame(reading) : 0;
}

static int read_tape(struct qi_messages *messages, const struct reading *reading) {
    if (reading->offset + QI_MESSAGE_OVERHEAD + reading->length > messages->tail)
        return fail_frame(reading);
    if (qi_message_is_long(messages, reading->length))
        return read_straight(messages, reading);
    return take(reading, messages->tape.memory + reading->offset) ? 0 : fail_frame(reading);
}

static int read_once(struct qi_messages *messages, struct reading *reading) {
    int error = locate(messages, reading);
    if (error)
        return error;
    if (!reading->file)
        return read_tape(messages, reading);
    if (reading->length < WINDOW_PAYLOAD) {
        const uint8_t *frame =
            look(messages, reading, (uint64_t)reading->length + QI_MESSAGE_OVERHEAD);
        if (frame && take(reading, frame))
            return 0;
        /* Damaged, or the window is older than what another process wrote since: the file itself
         * decides. */
        messages->window_file = UINT32_MAX;
    }
    return read_straight(messages, reading);
}

/* For a reader that misses a message: the files are listed anew, and may be others now. A message
 * that a compaction moves can be missed more than once. */
static bool has_news(struct qi_messages *messages, int again) {
    return messages->read_only && again < RESCANS_MAX && qi_messages_rescan(messages) == 0;
}

int qi_messages_read_into(struct qi_messages *messages, struct qi_msg_id id,
                          const struct qi_into *into, bool may_wait) {
    struct reading reading = {.id = id,
                              .into = *into,
                              .length = into->headers_size + into->body_size,
                              .may_wait = may_wait || messages->in_memory};
    int error = read_once(messages, &reading);
    if (!may_wait)
        return error ? QI_BUSY : 0;
    for (int again = 0; error == QI_E_CORRUPT && has_news(messages, again); again++)
        error = read_once(messages, &reading);
    return error;
}

/* ---- many ---- */

#define RUN_MAX 64u /* messages of one call: headers, body, and what is between two payloads */

/* What is not payload: the end of a frame and the header of the next one are neighbours here, too.
 */
struct frame_edges {
    uint8_t header[QI_MESSAGE_HEADER], end;
};

/* How many of these follow each other in one file, and are not in the tape's memory only. Each is
 * located then. */
static uint32_t find_run(struct qi_messages *messages, const struct qi_message_read *reads,
                         uint32_t count, struct reading *run) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct reading *reading = &run[i];
        *reading = (struct reading){.id = reads[i].id,
                                    .into = reads[i].into,
                                    .length = reads[i].into.headers_size + reads[i].into.body_size,
                                    .may_wait = messages->in_memory};
        if (locate(messages, reading) != 0)
            return i;
        if (!reading->file && !qi_message_is_long(messages, reading->length))
            return i;
        if (i > 0 && (reading->number != run->number || reading->offset != end))
            return i;
        end = reading->offset + reading->length + QI_MESSAGE_OVERHEAD;
        if (!reading->file && end > messages->tail)
            return i;
    }
    return count;
}

/* One call for `count` messages that follow each other; how many of them, from the first on, are
 * there and right. */
static uint32_t read_run(struct qi_messages *messages, const struct reading *run, uint32_t count) {
    struct qi_piece pieces[3 * RUN_MAX + 1];
    struct frame_edges edges[RUN_MAX];
    uint32_t used = 0, right = 0;
    pieces[used++] = (struct qi_piece){edges[0].header, sizeof edges[0].header};
    for (uint32_t i = 0; i < count; i++) {
        const struct qi_into *into = &run[i].into;
        if (into->headers_size > 0)
            pieces[used++] = (struct qi_piece){into->headers, into->headers_size};
        if (into->body_size > 0)
            pieces[used++] = (struct qi_piece){into->body, into->body_size};
        pieces[used++] =
            (struct qi_piece){&edges[i].end, i + 1 < count ? sizeof edges[i] : sizeof edges[i].end};
    }
    int handle = run->file ? run->file->handle : messages->tape.file;
    int64_t got = messages->disk->ops->read_pieces(messages->disk, handle, pieces, used,
                                                   run->offset, run->may_wait);
    while (right < count) {
        const struct reading *reading = &run[right];
        got -= (int64_t)reading->length + QI_MESSAGE_OVERHEAD;
        if (got < 0 || !is_valid(reading, edges[right].header, edges[right].end))
            break;
        right++;
    }
    return right;
}

uint32_t qi_messages_read_many(struct qi_messages *messages, const struct qi_message_read *reads,
                               uint32_t count) {
    struct reading run[RUN_MAX];
    uint32_t done = 0;
    while (done < count) {
        uint32_t left = count - done < RUN_MAX ? count - done : RUN_MAX;
        uint32_t length = find_run(messages, reads + done, left, run);
        if (length > 1) {
            uint32_t right = read_run(messages, run, length);
            done += right;
            if (right < length)
                return done;
            continue;
        }
        if (qi_messages_read_into(messages, reads[done].id, &reads[done].into, false) != 0)
            return done;
        done++;
    }
    return done;
}

int qi_messages_read(struct qi_messages *messages, struct qi_msg_id id, void *payload,
                     uint32_t length) {
    const struct qi_into into = {.body = payload, .body_size = length};
    return qi_messages_read_into(messages, id, &into, true);
}

int qi_messages_bound(struct qi_messages *messages, struct qi_msg_id id, bool may_wait) {
    struct reading reading = {.id = id, .may_wait = may_wait || messages->in_memory};
    uint32_t length;
    if (messages->read_only)
        return qi_messages_length(messages, id, &length);
    int error = locate(messages, &reading);
    uint64_t end = reading.offset + qi_payload_length(id) + QI_MESSAGE_OVERHEAD;
    if (!error && end > (reading.file ? reading.file->size : messages->tail))
        error = fail_frame(&reading);
    return error;
}

static int length_once(struct qi_messages *messages, struct qi_msg_id id, uint32_t *length) {
    struct reading reading = {.id = id, .may_wait = true};
    int error = locate(messages, &reading);
    if (error)
        return error;
    uint8_t frame[QI_MESSAGE_HEADER], expected[QI_MSG_ID_SIZE];
    uint64_t end = messages->tail;
    int handle = reading.file ? reading.file->handle : messages->tape.file;
    error = qi_read_exactly(messages->disk, handle, frame, sizeof frame, reading.offset);
    if (!error && reading.file)
        error = messages->disk->ops->size(messages->disk, handle, &end);
    if (error && error != -EBADMSG)
        return qi_fail_disk(error, "read", qi_message_name(reading.number, false).shown);
    qi_put_msg_id(expected, id);
    if (error || memcmp(frame + 8, expected, sizeof expected) != 0)
        return fail_frame(&reading);
    if (reading.offset + QI_MESSAGE_OVERHEAD + qi_get32(frame) > end)
        return fail_frame(&reading);
    *length = qi_get32(frame);
    return 0;
}

int qi_messages_length(struct qi_messages *messages, struct qi_msg_id id, uint32_t *length) {
    int error = length_once(messages, id, length);
    for (int again = 0; error == QI_E_CORRUPT && has_news(messages, again); again++)
        error = length_once(messages, id, length);
    return error;
}

int qi_messages_verify(struct qi_messages *messages, struct qi_msg_id id, uint8_t **buffer,
                       uint32_t *room) {
    uint32_t length = 0;
    int error = qi_messages_length(messages, id, &length);
    if (!error && length > *room) {
        uint8_t *bigger = qi_realloc(*buffer, length);
        if (!bigger)
            return qi_fail(QI_E_MEMORY, "no memory for a message of %u bytes", length);
        *buffer = bigger;
        *room = length;
    }
    return error ? error : qi_messages_read(messages, id, *buffer, length);
}
