/* messages_blanks.c - empty message files that are written over again.
 *
 * A new file costs the kernel more than the bytes that are written to it: each page is allocated,
 * and freed when the file goes. So a file that nothing refers to any more is kept, if it is one
 * that this process has filled, and becomes the next tape. QI_BLANKS_MAX of them are kept, and none
 * when the disk is nearly full.
 *
 * Promises:
 *   - What is written over belongs to no message: the acks that emptied the file are durable (H9),
 *     and so is the loss of its name, before a byte of it changes.
 *   - An old frame is never taken for a new one. The file gets a number that was never used (H15),
 *     which is in the MsgId of each of its frames and in the seed of their checksums.
 *   - After a power cut each name leads to a file that is understood: to what it had, to its own
 *     header, or to the first bytes of that and zeros.
 *   - A file that has another name elsewhere (a backup) is not written over: it loses its name
 * here.
 *
 *     N.qms -> N.new             now a power cut may give the old name back, with all that it had
 *     sync of the folder         now an open removes N.new, whatever is in it
 *     zeros over the header
 *     sync of the file           now it may have any name
 *     header of M, N.new -> M.qms
 *
 * The syncs are those of the commits that come anyway.
 */
#include "bodies/bodies_private.h"

#include <errno.h>

#define FREE_FILES 16u /* a disk that has room for fewer is nearly full */

static void drop(struct qi_messages *messages, struct qi_blank *blank) {
    struct qi_disk *disk = messages->disk;
    disk->ops->close(disk, blank->handle);
    disk->ops->unlink(disk, messages->dir, qi_message_name(blank->number, true).file);
    *blank = messages->blanks[--messages->blanks_count];
}

/* Now that its old name is gone for good. */
static void wipe(struct qi_messages *messages, struct qi_blank *blank) {
    static const uint8_t zeros[QI_MESSAGES_START];
    struct qi_disk *disk = messages->disk;
    int error = QI_BUG(blank_keeps_header)
                    ? 0
                    : disk->ops->write(disk, blank->handle, zeros, sizeof zeros, 0);
    if (error)
        drop(messages, blank);
    else
        blank->state = QI_BLANK_WIPED;
}

void qi_blanks_drop(struct qi_messages *messages) {
    for (uint32_t i = messages->blanks_count; i-- > 0;)
        if (!messages->blanks[i].pinned)
            drop(messages, &messages->blanks[i]);
}

static bool is_worth_it(struct qi_messages *messages, const struct qi_message_file *file) {
    uint64_t left = 0;
    return messages->blanks_count < QI_BLANKS_MAX && file->filled &&
           file->size <= messages->file_size_max && file->size >= messages->file_size_max / 2 &&
           messages->disk->ops->free_bytes(messages->disk, messages->dir, &left) == 0 &&
           left >= messages->keep_free + FREE_FILES * messages->file_size_max;
}

int qi_blank_keep(struct qi_messages *messages, struct qi_message_file *file) {
    struct qi_disk *disk = messages->disk;
    struct qi_message_name name = qi_message_name(file->number, false),
                           draft = qi_message_name(file->number, true);
    if (!is_worth_it(messages, file) ||
        disk->ops->rename(disk, messages->dir, name.file, messages->dir, draft.file) != 0)
        return qi_message_file_unlink(messages, file);
    qi_message_file_unnamed(messages, file);
    struct qi_blank blank = {.number = file->number, .size = file->size};
    blank.handle = disk->ops->open(disk, messages->dir, draft.file, QI_OPEN_ALONE);
    if (blank.handle >= 0) {
        messages->blanks[messages->blanks_count++] = blank;
        if (QI_BUG(blank_wiped_early))
            wipe(messages, &messages->blanks[messages->blanks_count - 1]);
        return 0;
    }
    int error = disk->ops->unlink(disk, messages->dir, draft.file);
    return error && error != -ENOENT ? qi_fail_disk(error, "remove", draft.shown) : 0;
}

bool qi_blank_take(struct qi_messages *messages, uint32_t number, uint64_t first,
                   struct qi_tape *tape) {
    struct qi_disk *disk = messages->disk;
    struct qi_blank *blank = messages->blanks, *end = blank + messages->blanks_count;
    while (blank < end && !(blank->state == QI_BLANK_READY || QI_BUG(blank_not_synced)))
        blank++;
    if (blank == end || first > blank->size)
        return false;
    struct qi_message_name draft = qi_message_name(blank->number, true);
    uint64_t size = blank->size;
    int error =
        qi_tape_open(tape, disk, blank->handle, messages->file_size_max, messages->use_mapping);
    *blank = messages->blanks[--messages->blanks_count];
    if (!error) {
        tape->blocks = tape->allocated;
        qi_message_header_put(tape->memory, QI_MESSAGES_ROLLING, messages->identity, number, 0, 0);
        error = tape->allocated != size ? -EIO : qi_tape_wrote(tape, 0, QI_MESSAGES_START);
    }
    if (!error)
        error = disk->ops->rename(disk, messages->dir, draft.file, messages->dir,
                                  qi_message_name(number, false).file);
    if (!error)
        return true;
    qi_tape_close(tape);
    disk->ops->unlink(disk, messages->dir, draft.file);
    return false;
}

/* A blank goes one step further with each sync that covers it. */
void qi_blanks_sync_begin(struct qi_messages *messages, struct qi_messages_sync *sync) {
    for (uint32_t i = 0; i < messages->blanks_count; i++) {
        struct qi_blank *blank = &messages->blanks[i];
        if (blank->state == QI_BLANK_WIPED)
            blank->pinned = true;
        if (blank->pinned || (blank->state == QI_BLANK_UNNAMED && sync->dir))
            sync->blanks[sync->blanks_count++] = *blank;
    }
}

int qi_blanks_sync_run(struct qi_disk *disk, const struct qi_messages_sync *sync) {
    for (uint32_t i = 0; i < sync->blanks_count; i++) {
        const struct qi_blank *blank = &sync->blanks[i];
        int error = blank->state == QI_BLANK_WIPED ? disk->ops->sync(disk, blank->handle) : 0;
        if (error) {
            qi_fail_disk(error, "sync", qi_message_name(blank->number, true).shown);
            return QI_E_IO;
        }
    }
    return 0;
}

void qi_blanks_sync_end(struct qi_messages *messages, const struct qi_messages_sync *sync,
                        int error) {
    for (uint32_t i = 0; i < sync->blanks_count; i++) {
        struct qi_blank *blank = messages->blanks, *end = blank + messages->blanks_count;
        while (blank < end && blank->number != sync->blanks[i].number)
            blank++;
        if (blank == end)
            continue;
        blank->pinned = false;
        if (error || blank->state != sync->blanks[i].state)
            continue;
        if (blank->state == QI_BLANK_WIPED)
            blank->state = QI_BLANK_READY;
        else
            wipe(messages, blank);
    }
}
