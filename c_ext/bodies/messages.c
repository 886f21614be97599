/* messages.c - append, read and sync bodies.
 *
 * Owns the tape, which is the newest rolling file. Promises: an append that fails changes nothing
 * (H20); a read gives exactly the bytes that were appended under this id, or an error. What must be
 * synced before what: files before the directory that names them, so that a durable name never
 * leads to missing bytes.
 */
#include "bodies/bodies_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define WRITE_STRAIGHT                                                                             \
    (UINT32_C(32) << 10) /* from here on a call costs less than a mapping's page faults */
#define WINDOW_PAYLOAD (UINT32_C(64) << 10) /* below this a read looks ahead */
#define LOOK_AHEAD_MIN (UINT32_C(16) << 10)
#define RESCANS_MAX    5
#define STAMP_MAX      ((UINT32_C(1) << 24) - 1)
#define UNSYNCED_MAX   64u /* rolled files; each keeps a handle */

/* ---- append ---- */

static int fail_append(int error, uint32_t number) {
    bool full = qi_is_disk_full(error);
    return qi_fail_disk(error, full ? "ack messages, or free disk space: no room in" : "write",
                        qi_message_name(number, false).shown);
}

/* With sync="never" nothing else bounds the handles that wait for a sync. */
static int relieve(struct qi_messages *messages) {
    if (messages->files_unsynced < UNSYNCED_MAX)
        return 0;
    struct qi_message_file *file = messages->files, *end = file + messages->files_count;
    while (file < end && (!file->unsynced || file->pinned > 0))
        file++;
    if (file == end)
        return 0;
    int error = messages->disk->ops->sync(messages->disk, file->handle);
    if (error) {
        messages->failed = true;
        qi_fail_disk(error, "sync", qi_message_name(file->number, false).shown);
        return QI_E_FAILED;
    }
    qi_message_file_synced(messages, file);
    return 0;
}

/* A new file with its header and room for a first frame of `size` bytes. */
static int begin_tape(struct qi_messages *messages, uint32_t number, uint64_t size,
                      struct qi_tape *tape) {
    struct qi_disk *disk = messages->disk;
    struct qi_message_name name = qi_message_name(number, false);
    int handle = disk->ops->open(disk, messages->dir, name.file, QI_OPEN_FRESH);
    if (handle < 0)
        return handle;
    uint64_t first = QI_MESSAGES_START + size;
    uint64_t capacity = first > messages->file_size_max ? first : messages->file_size_max;
    int error = qi_tape_open(tape, disk, handle, capacity, messages->use_mapping);
    if (!error)
        error = qi_tape_reserve(tape, first, messages->keep_free);
    if (!error) {
        qi_message_header_put(tape->memory, QI_MESSAGES_ROLLING, messages->identity, number, 0, 0);
        error = qi_tape_wrote(tape, 0, QI_MESSAGES_START);
    }
    if (error) {
        qi_tape_close(tape);
        disk->ops->unlink(disk, messages->dir, name.file);
    }
    return error;
}

/* The tape joins the list of files; its handle stays open until it is synced. There is room in the
 * list. */
static void seal_tape(struct qi_messages *messages) {
    struct qi_message_file sealed = {.number = messages->tape_number,
                                     .pinned = messages->tape_pinned,
                                     .size = messages->tail,
                                     .frames_end = messages->tail,
                                     .handle = messages->tape.file,
                                     .used = ++messages->uses,
                                     .unsynced = true};
    messages->tape.file = -1;
    qi_tape_close(&messages->tape);
    int error = qi_message_file_insert(messages, &sealed);
    assert(!error);
    (void)error;
}

static int roll(struct qi_messages *messages, uint64_t size) {
    uint32_t number = messages->number_next;
    if (number > QI_MESSAGES_NUMBER_MAX)
        return qi_fail(QI_E_FULL, "message file numbers are used up");
    int error = relieve(messages);
    if (error)
        return error;
    /* Whatever needs memory first: counting its references must not fail later. */
    if (qi_message_files_room(messages, 1) != 0 || !qi_birth_file_add(messages, number))
        return fail_append(-ENOMEM, number);
    if (messages->tape.file >= 0)
        error = qi_tape_cut(&messages->tape, messages->tail);
    if (error)
        return fail_append(error, messages->tape_number);
    struct qi_tape fresh = {.file = -1};
    error = begin_tape(messages, number, size, &fresh);
    if (error)
        return fail_append(error, number);

    if (messages->tape.file >= 0)
        seal_tape(messages);
    messages->tape = fresh;
    messages->tape_number = number;
    messages->tape_seed = qi_frame_seed(messages->identity, number, 0);
    messages->tape_pinned = 0;
    messages->tail = QI_MESSAGES_START;
    messages->number_next = number + 1;
    messages->dir_unsynced = true;
    messages->dir_changes++;
    return 0;
}

/* Makes `size` bytes behind the tail usable. */
static int make_room(struct qi_messages *messages, uint64_t size) {
    uint64_t end = messages->tail + size;
    if (messages->tape.file < 0 || end > messages->file_size_max)
        return roll(messages, size);
    if (__builtin_expect(end <= messages->tape.allocated, 1))
        return 0;
    int error = qi_tape_reserve(&messages->tape, end, messages->keep_free);
    return error ? fail_append(error, messages->tape_number) : 0;
}

/* Puts the frame whose first 24 bytes are there already. A body that is big enough goes straight to
 * the file: its pages and those of the mapping are the same. */
static int put_frame(struct qi_messages *messages, const void *headers, uint32_t headers_size,
                     const void *body, uint32_t body_size) {
    struct qi_tape *tape = &messages->tape;
    uint64_t body_offset = messages->tail + QI_MESSAGE_HEADER + headers_size;
    uint64_t size = (uint64_t)headers_size + body_size + QI_MESSAGE_OVERHEAD;
    if (headers_size > 0)
        memcpy(tape->memory + messages->tail + QI_MESSAGE_HEADER, headers, headers_size);
    if (body_size >= WRITE_STRAIGHT && !tape->told) {
        int error = tape->disk->ops->write(tape->disk, tape->file, body, body_size, body_offset);
        if (error)
            return error;
    } else if (body_size > 0) {
        memcpy(tape->memory + body_offset, body, body_size);
    }
    tape->memory[body_offset + body_size] = QI_MESSAGE_END;
    return qi_tape_wrote(tape, messages->tail, size);
}

int qi_messages_append(struct qi_messages *messages, const void *headers, uint32_t headers_size,
                       const void *body, uint32_t body_size, uint32_t queues,
                       struct qi_msg_id *id) {
    if (messages->read_only)
        return qi_fail(QI_E_READ_ONLY, "the message store is open for reading only");
    if (messages->failed)
        return qi_fail(QI_E_FAILED, "a sync of the message store failed: close and reopen");
    uint64_t length = (uint64_t)headers_size + body_size;
    if (length > UINT32_MAX)
        return qi_fail(QI_E_ARGUMENT, "a message has at most %u bytes", UINT32_MAX);
    uint64_t size = length + QI_MESSAGE_OVERHEAD;
    int error = make_room(messages, size);
    if (error)
        return error;

    uint64_t offset = messages->tail;
    assert(offset <= UINT32_MAX && offset + size <= messages->tape.allocated);
    uint64_t more = queues - 1 < QI_SHARES_MAX ? queues - 1 : QI_SHARES_MAX;
    struct qi_msg_id born = {messages->tape_number, (uint32_t)offset,
                             length << 32 | more << 24 | messages->stamp_next};
    uint8_t *frame = messages->tape.memory + offset;
    qi_put32(frame, (uint32_t)length);
    qi_put_msg_id(frame + 8, born);
    uint32_t crc = qi_message_crc(messages->tape_seed, offset, frame);
    crc = qi_crc32c(crc, headers, headers_size);
    qi_put32(frame + 4, qi_crc32c(crc, body, body_size));
    error = put_frame(messages, headers, headers_size, body, body_size);
    if (error)
        return fail_append(error, messages->tape_number);

    messages->tail += size;
    messages->written += size;
    messages->stamp_next = messages->stamp_next % STAMP_MAX + 1;
    *id = born;
    return 0;
}

/* ---- read ---- */

struct place {
    struct qi_message_file *file; /* NULL: the tape */
    uint32_t number, seed;
    uint64_t offset;
};

static int fail_frame(const struct place *place) {
    return qi_fail(QI_E_CORRUPT, "%s: damaged message at offset %llu",
                   qi_message_name(place->number, false).shown, (unsigned long long)place->offset);
}

static int locate(struct qi_messages *messages, struct qi_msg_id id, struct place *place) {
    const struct qi_birth_file *birth = qi_birth_file_find(messages, id.file);
    uint32_t number = birth ? birth->home : id.file;
    *place = (struct place){.number = number, .offset = id.offset};
    if (messages->tape.file >= 0 && number == messages->tape_number) {
        place->seed = messages->tape_seed;
        return id.offset < QI_MESSAGES_START ? fail_frame(place) : 0;
    }
    struct qi_message_name name = qi_message_name(number, false);
    struct qi_message_file *file = place->file = qi_message_file_find(messages, number);
    if (!file)
        return qi_fail(QI_E_CORRUPT, "%s is missing", name.shown);
    int error = qi_message_file_open(messages, file);
    if (error)
        return error;
    place->seed = qi_frame_seed(messages->identity, number, 0);
    if (file->compacted)
        error = qi_births_read(messages->disk, place->seed, file);
    if (error == -EBADMSG)
        return qi_fail(QI_E_CORRUPT, "%s: damaged birth table at offset %llu", name.shown,
                       (unsigned long long)file->frames_end);
    if (error)
        return qi_fail_disk(error, "read", name.shown);
    if (!qi_births_place(file, id, &place->offset))
        return qi_fail(QI_E_CORRUPT, "%s: no message that was born at offset %u of file %u",
                       name.shown, id.offset, id.file);
    return place->offset < QI_MESSAGES_START ? fail_frame(place) : 0;
}

/* `size` bytes of a file through the window; NULL if that cannot be. Reads a lot only if the reads
 * go forward. */
static const uint8_t *look(struct qi_messages *messages, const struct place *place, uint64_t size) {
    uint64_t begin = messages->window_offset, end = begin + messages->window_length,
             offset = place->offset;
    bool here = messages->window_file == place->number && offset >= begin;
    if (here && offset + size <= end)
        return messages->window + (offset - begin);
    uint64_t ahead = here && offset <= end + LOOK_AHEAD_MIN ? QI_MESSAGES_WINDOW : LOOK_AHEAD_MIN;
    if (ahead < size)
        ahead = size;
    messages->window_file = UINT32_MAX;
    int64_t got = messages->disk->ops->read(messages->disk, place->file->handle, messages->window,
                                            ahead, offset);
    if (got < 0)
        return NULL;
    messages->window_file = place->number;
    messages->window_offset = offset;
    messages->window_length = (uint64_t)got;
    return (uint64_t)got < size ? NULL : messages->window;
}

/* A frame in memory; false: it is not the one. It is copied first and then checked: of a mapped
 * file another process can change the bytes in between. */
static bool take(const struct place *place, struct qi_msg_id id, const uint8_t *frame,
                 void *payload, uint32_t length) {
    uint8_t header[QI_MESSAGE_HEADER];
    memcpy(header, frame, sizeof header);
    if (qi_get32(header) != length)
        return false;
    if (length > 0)
        memcpy(payload, frame + QI_MESSAGE_HEADER, length);
    return qi_message_is_valid(place->seed, place->offset, header, payload,
                               frame + QI_MESSAGE_HEADER + length, id);
}

static int read_straight(struct qi_messages *messages, const struct place *place,
                         struct qi_msg_id id, void *payload, uint32_t length) {
    struct qi_disk *disk = messages->disk;
    int handle = place->file->handle;
    uint8_t frame[QI_MESSAGE_HEADER], end;
    uint64_t from = place->offset + QI_MESSAGE_HEADER;
    int error = qi_read_exactly(disk, handle, frame, sizeof frame, place->offset);
    if (!error && qi_get32(frame) != length)
        error = -EBADMSG;
    if (!error && length > 0)
        error = qi_read_exactly(disk, handle, payload, length, from);
    if (!error)
        error = qi_read_exactly(disk, handle, &end, 1, from + length);
    if (error && error != -EBADMSG)
        return qi_fail_disk(error, "read", qi_message_name(place->number, false).shown);
    if (error || !qi_message_is_valid(place->seed, place->offset, frame, payload, &end, id))
        return fail_frame(place);
    return 0;
}

static int read_once(struct qi_messages *messages, struct qi_msg_id id, void *payload,
                     uint32_t length) {
    struct place place;
    int error = locate(messages, id, &place);
    if (error)
        return error;
    uint64_t size = (uint64_t)length + QI_MESSAGE_OVERHEAD;
    if (!place.file) {
        if (place.offset + size > messages->tail)
            return fail_frame(&place);
        bool taken = take(&place, id, messages->tape.memory + place.offset, payload, length);
        return taken ? 0 : fail_frame(&place);
    }
    if (length < WINDOW_PAYLOAD) {
        const uint8_t *frame = look(messages, &place, size);
        if (frame && take(&place, id, frame, payload, length))
            return 0;
        /* Damaged, or the window is older than what another process wrote since: the file itself
         * decides. */
        messages->window_file = UINT32_MAX;
    }
    return read_straight(messages, &place, id, payload, length);
}

/* For a reader that misses a message: the files are listed anew, and may be others now. A message
 * that a compaction moves can be missed more than once. */
static bool has_news(struct qi_messages *messages, int again) {
    return messages->read_only && again < RESCANS_MAX && qi_messages_rescan(messages) == 0;
}

int qi_messages_read(struct qi_messages *messages, struct qi_msg_id id, void *payload,
                     uint32_t length) {
    int error = read_once(messages, id, payload, length);
    for (int again = 0; error == QI_E_CORRUPT && has_news(messages, again); again++)
        error = read_once(messages, id, payload, length);
    return error;
}

static int length_once(struct qi_messages *messages, struct qi_msg_id id, uint32_t *length) {
    struct place place;
    int error = locate(messages, id, &place);
    if (error)
        return error;
    uint8_t frame[QI_MESSAGE_HEADER], expected[QI_MSG_ID_SIZE];
    uint64_t end = messages->tail;
    if (!place.file) {
        if (place.offset + QI_MESSAGE_OVERHEAD > end)
            return fail_frame(&place);
        memcpy(frame, messages->tape.memory + place.offset, sizeof frame);
    } else {
        error =
            qi_read_exactly(messages->disk, place.file->handle, frame, sizeof frame, place.offset);
        if (!error)
            error = messages->disk->ops->size(messages->disk, place.file->handle, &end);
        if (error && error != -EBADMSG)
            return qi_fail_disk(error, "read", qi_message_name(place.number, false).shown);
    }
    qi_put_msg_id(expected, id);
    if (error || memcmp(frame + 8, expected, sizeof expected) != 0)
        return fail_frame(&place);
    if (place.offset + QI_MESSAGE_OVERHEAD + qi_get32(frame) > end)
        return fail_frame(&place);
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
        uint8_t *bigger = realloc(*buffer, length);
        if (!bigger)
            return qi_fail(QI_E_MEMORY, "no memory for a message of %u bytes", length);
        *buffer = bigger;
        *room = length;
    }
    return error ? error : qi_messages_read(messages, id, *buffer, length);
}

/* ---- sync ---- */

static void pin(struct qi_messages_sync *sync, int handle, uint32_t number, uint32_t *pinned) {
    sync->handles[sync->count] = handle;
    sync->numbers[sync->count++] = number;
    (*pinned)++;
}

void qi_messages_sync_begin(struct qi_messages *messages, struct qi_messages_sync *sync) {
    const uint32_t room =
        sizeof sync->handles / sizeof *sync->handles - 1; /* the last is for the tape */
    *sync = (struct qi_messages_sync){.dir = messages->dir_unsynced,
                                      .failed = messages->failed,
                                      .dir_changes = messages->dir_changes,
                                      .upto = messages->written};
    uint32_t left = messages->files_unsynced;
    for (uint32_t i = messages->files_count; i-- > 0 && left > 0 && sync->count < room;) {
        struct qi_message_file *file = &messages->files[i];
        if (!file->unsynced)
            continue;
        left--;
        pin(sync, file->handle, file->number, &file->pinned);
    }
    sync->more = left > 0;
    if (sync->more) {
        sync->upto = messages->synced;
    } else if (messages->tape.file >= 0 && messages->written != messages->synced) {
        pin(sync, messages->tape.file, messages->tape_number, &messages->tape_pinned);
        sync->tape = true;
    }
}

int qi_messages_sync_run(struct qi_messages *messages, struct qi_messages_sync *sync) {
    struct qi_disk *disk = messages->disk;
    if (sync->failed)
        return qi_fail(QI_E_FAILED, "a sync of the message store failed: close and reopen");
    for (uint32_t i = 0; i < sync->count; i++) {
        int error = disk->ops->sync(disk, sync->handles[i]);
        if (!error)
            continue;
        qi_fail_disk(error, "sync", qi_message_name(sync->numbers[i], false).shown);
        return QI_E_IO;
    }
    int error = sync->dir && !QI_BUG(message_names_not_synced)
                    ? disk->ops->sync_dir(disk, messages->dir)
                    : 0;
    if (!error)
        return 0;
    qi_fail_disk(error, "sync", "messages");
    return QI_E_IO;
}

void qi_messages_sync_end(struct qi_messages *messages, struct qi_messages_sync *sync, int error) {
    for (uint32_t i = 0; i < sync->count; i++) {
        bool was_tape = sync->tape && i == sync->count - 1;
        if (was_tape && messages->tape_number == sync->numbers[i]) {
            messages->tape_pinned--;
            continue;
        }
        struct qi_message_file *file = qi_message_file_find(messages, sync->numbers[i]);
        assert(file && file->pinned > 0);
        file->pinned--;
        /* A tape that rolled meanwhile may have got bytes after this sync. */
        if (error || was_tape || !file->unsynced)
            continue;
        qi_message_file_synced(messages, file);
    }
    if (error) {
        messages->failed = true;
        return;
    }
    if (sync->upto > messages->synced)
        messages->synced = sync->upto;
    if (sync->dir && sync->dir_changes == messages->dir_changes)
        messages->dir_unsynced = false;
}
