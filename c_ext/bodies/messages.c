/* messages.c - append and sync bodies. (messages_write.c: how the bytes get into the file;
 * messages_read.c: read them.)
 *
 * Owns the tape, which is the newest rolling file. Promises: an append that fails changes nothing
 * (H20). What must be synced before what: files before the directory that names them, so that a
 * durable name never leads to missing bytes.
 */
#include "bodies/bodies_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define STAMP_MAX    ((UINT32_C(1) << 24) - 1)
#define UNSYNCED_MAX 64u /* rolled files; each keeps a handle */

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
    if (qi_blank_take(messages, number, QI_MESSAGES_START + size, tape))
        return 0;
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
                                     .unsynced = true,
                                     .filled = true};
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
    int error = qi_messages_write_out(messages);
    if (error)
        return fail_append(error, messages->tape_number);
    error = relieve(messages);
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
    if (qi_is_disk_full(error) && messages->blanks_count > 0) {
        qi_blanks_drop(messages);
        error = begin_tape(messages, number, size, &fresh);
    }
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

bool qi_messages_has_room(const struct qi_messages *messages, uint64_t length) {
    uint64_t end = messages->tail + length + QI_MESSAGE_OVERHEAD;
    return messages->tape.file >= 0 && end <= messages->file_size_max;
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

int qi_messages_append(struct qi_messages *messages, const struct qi_payload *payload,
                       struct qi_msg_id *id) {
    if (messages->read_only)
        return qi_fail(QI_E_READ_ONLY, "the message store is open for reading only");
    if (messages->failed)
        return qi_fail(QI_E_FAILED, "a sync of the message store failed: close and reopen");
    uint64_t length = payload->headers_size + (uint64_t)payload->body_size;
    if (length > UINT32_MAX)
        return qi_fail(QI_E_ARGUMENT, "a message has at most %u bytes", UINT32_MAX);
    uint64_t size = length + QI_MESSAGE_OVERHEAD;
    int error = make_room(messages, size);
    if (error)
        return error;

    uint64_t offset = messages->tail;
    assert(offset <= UINT32_MAX && offset + size <= messages->tape.allocated);
    uint64_t more = payload->queues - 1 < QI_SHARES_MAX ? payload->queues - 1 : QI_SHARES_MAX;
    struct qi_msg_id born = {messages->tape_number, (uint32_t)offset,
                             length << 32 | more << 24 | messages->stamp_next};
    uint8_t header[QI_MESSAGE_HEADER];
    qi_put32(header, (uint32_t)length);
    qi_put_msg_id(header + 8, born);
    error = qi_messages_write(messages, header, payload);
    if (error)
        return fail_append(error, messages->tape_number);

    messages->stamp_next = messages->stamp_next % STAMP_MAX + 1;
    *id = born;
    return 0;
}

int qi_messages_gathered(struct qi_messages *messages, int error) {
    int failed = qi_messages_end_batch(messages, error == 0);
    return failed ? fail_append(failed, messages->tape_number) : error;
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
    if (!sync->more)
        qi_blanks_sync_begin(messages, sync);
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
    int error = qi_blanks_sync_run(disk, sync);
    if (error)
        return error;
    error = sync->dir && !QI_BUG(message_names_not_synced)
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
    qi_blanks_sync_end(messages, sync, error);
    if (error) {
        messages->failed = true;
        return;
    }
    if (sync->upto > messages->synced)
        messages->synced = sync->upto;
    if (sync->dir && sync->dir_changes == messages->dir_changes)
        messages->dir_unsynced = false;
}
