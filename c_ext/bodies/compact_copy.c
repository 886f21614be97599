/* compact_copy.c - copies the survivors of some message files into a new one.
 *
 * Runs without the store's lock: it touches the compaction, its own buffers and files that it opens
 * itself; the victims are immutable and marked, so nobody removes them. The output is written as
 * N.new: frames, birth table, header; then synced, renamed to N.qms, and the directory synced. A
 * frame keeps its MsgId; its checksum is made anew, because it covers the place, and only after the
 * old one was verified.
 *
 * A survivor that cannot be read keeps its file: that victim is left out, and the copy begins again
 * without it.
 */
#include "bodies/bodies_private.h"

#include <assert.h>
#include <errno.h>

#define BUFFER (UINT32_C(256) << 10)
#define AGAIN  1 /* a victim was left out */

struct copy {
    struct qi_compaction *compaction;
    struct qi_disk *disk;

    int output;
    uint32_t seed;
    uint8_t *out;    /* BUFFER bytes that are not written yet */
    size_t out_used; /* of them */
    uint64_t end;    /* of the output, with them */
    uint32_t crc;    /* of the table's part that is being written */
    int table_error;

    uint8_t *in; /* read-ahead over one victim */
    size_t in_room;
    struct qi_message_file *in_file; /* NULL: empty */
    uint64_t in_offset, in_length;
};

/* ---- the output ---- */

static int flush(struct copy *copy) {
    if (copy->out_used == 0)
        return 0;
    int error = copy->disk->ops->write(copy->disk, copy->output, copy->out, copy->out_used,
                                       copy->end - copy->out_used);
    copy->out_used = 0;
    return error;
}

static int put(struct copy *copy, const void *bytes, size_t length) {
    int error = copy->out_used + length > BUFFER ? flush(copy) : 0;
    if (error)
        return error;
    if (length > BUFFER) {
        error = copy->disk->ops->write(copy->disk, copy->output, bytes, length, copy->end);
    } else {
        memcpy(copy->out + copy->out_used, bytes, length);
        copy->out_used += length;
    }
    copy->end += length;
    return error;
}

/* Of the table: who writes it looks for an error at its end. */
static void put_word(struct copy *copy, uint32_t value) {
    uint8_t word[4];
    qi_put32(word, value);
    copy->crc = qi_crc32c(copy->crc, word, sizeof word);
    if (!copy->table_error)
        copy->table_error = put(copy, word, sizeof word);
}

/* How many births from `first` on are of the same file. */
static uint64_t group_size(const struct qi_compaction *compaction, uint64_t first) {
    uint64_t next = first;
    while (next < compaction->births_count &&
           compaction->births[next].file == compaction->births[first].file)
        next++;
    return next - first;
}

static int put_table(struct copy *copy) {
    struct qi_compaction *compaction = copy->compaction;
    uint32_t groups = 0;
    for (uint64_t at = 0; at < compaction->births_count; at += group_size(compaction, at))
        groups++;
    copy->table_error = 0;
    copy->crc = qi_births_crc(copy->seed, copy->end);
    put_word(copy, groups);
    for (uint64_t at = 0; at < compaction->births_count; at += group_size(compaction, at)) {
        put_word(copy, compaction->births[at].file);
        put_word(copy, (uint32_t)group_size(compaction, at));
    }
    put_word(copy, copy->crc);
    copy->crc = qi_births_crc(copy->seed, copy->end);
    for (uint64_t at = 0; at < compaction->births_count; at++) {
        put_word(copy, compaction->births[at].offset);
        put_word(copy, compaction->births[at].now);
    }
    put_word(copy, copy->crc);
    return copy->table_error ? copy->table_error : flush(copy);
}

/* ---- the victims ---- */

/* `length` bytes of a victim, valid until the next call. */
static int view(struct copy *copy, struct qi_message_file *file, uint64_t offset, uint64_t length,
                uint8_t **bytes) {
    if (offset > file->frames_end || file->frames_end - offset < length)
        return -EBADMSG;
    bool here = copy->in_file == file && offset >= copy->in_offset &&
                offset + length <= copy->in_offset + copy->in_length;
    if (!here) {
        copy->in_file = NULL;
        uint64_t want = length > BUFFER ? length : BUFFER;
        if (want > file->frames_end - offset)
            want = file->frames_end - offset;
        if (want > copy->in_room) {
            uint8_t *grown = qi_realloc(copy->in, want);
            if (!grown)
                return -ENOMEM;
            copy->in = grown;
            copy->in_room = want;
        }
        int error = qi_read_exactly(copy->disk, file->handle, copy->in, want, offset);
        if (error)
            return error;
        copy->in_file = file;
        copy->in_offset = offset;
        copy->in_length = want;
    }
    *bytes = copy->in + (offset - copy->in_offset);
    return 0;
}

static int open_victim(struct copy *copy, struct qi_message_file *file) {
    if (file->handle < 0) {
        struct qi_message_name name = qi_message_name(file->number, false);
        int handle =
            copy->disk->ops->open(copy->disk, copy->compaction->dir, name.file, QI_OPEN_READ);
        if (handle < 0)
            return handle;
        file->handle = handle;
    }
    uint32_t seed = qi_frame_seed(copy->compaction->identity, file->number, 0);
    return file->compacted ? qi_births_read(copy->disk, seed, file) : 0;
}

/* Finds a survivor's frame and verifies it; errors are the victim's. */
static int find_frame(struct copy *copy, struct qi_message_file *file, struct qi_msg_id id,
                      uint8_t **frame) {
    uint64_t offset = 0;
    int error = open_victim(copy, file);
    if (error)
        return error;
    if (!qi_births_place(file, id, &offset) || offset < QI_MESSAGES_START)
        return -EBADMSG;
    error = view(copy, file, offset, QI_MESSAGE_OVERHEAD, frame);
    if (error)
        return error;
    uint32_t length = qi_get32(*frame);
    error = view(copy, file, offset, (uint64_t)length + QI_MESSAGE_OVERHEAD, frame);
    if (error)
        return error;
    uint32_t seed = qi_frame_seed(copy->compaction->identity, file->number, 0);
    const uint8_t *payload = *frame + QI_MESSAGE_HEADER;
    return qi_message_is_valid(seed, offset, *frame, payload, payload + length, id) ? 0 : -EBADMSG;
}

/* Writes a verified frame to its new place; errors are the output's. */
static int put_frame(struct copy *copy, struct qi_msg_id id, const uint8_t *frame) {
    struct qi_compaction *compaction = copy->compaction;
    if (copy->end > UINT32_MAX)
        return -EFBIG;
    uint32_t length = qi_get32(frame);
    const uint8_t *payload = frame + QI_MESSAGE_HEADER;
    uint8_t header[QI_MESSAGE_HEADER];
    memcpy(header, frame, sizeof header);
    qi_put32(header + 4, qi_crc32c(qi_message_crc(copy->seed, copy->end, header), payload, length));
    compaction->births[compaction->births_count++] =
        (struct qi_birth){id.file, id.offset, (uint32_t)copy->end};
    int error = put(copy, header, sizeof header);
    return error ? error : put(copy, payload, (size_t)length + 1);
}

/* ---- the whole ---- */

/* Says nothing about the victim's bytes. */
static bool is_passing(int error) {
    return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

static int leave_out(struct qi_compaction *compaction, struct qi_message_file *file,
                     struct qi_msg_id id) {
    file->victim = false;
    if (compaction->damaged++ == 0)
        compaction->damaged_id = id;
    return AGAIN;
}

static int copy_survivors(struct copy *copy) {
    struct qi_compaction *compaction = copy->compaction;
    compaction->births_count = 0;
    for (uint32_t i = 0; i < compaction->homes_count; i++)
        compaction->homes[i].survives = false;
    copy->in_file = NULL;
    copy->out_used = 0;
    copy->end = QI_MESSAGES_START;
    struct qi_birth_home *home = NULL;
    for (uint64_t i = 0; i < compaction->live_count; i++) {
        struct qi_msg_id id = compaction->live[i];
        const struct qi_msg_id *last = i > 0 ? &compaction->live[i - 1] : NULL;
        if (last && memcmp(last, &id, sizeof id) == 0)
            continue; /* a fan-out message */
        if (last && (last->file > id.file || (last->file == id.file && last->offset > id.offset)))
            return -EINVAL;
        if (!home || home->birth != id.file)
            home = qi_compaction_home(compaction, id.file);
        assert(home); /* or nobody would have marked it */
        struct qi_message_file *file = &compaction->files[home->file];
        if (!file->victim)
            continue;
        bool twice =
            last && last->file == id.file && last->offset == id.offset; /* but for another stamp */
        uint8_t *frame = NULL;
        int error = twice ? -EBADMSG : find_frame(copy, file, id, &frame);
        if (error)
            return is_passing(error) ? error : leave_out(compaction, file, id);
        error = put_frame(copy, id, frame);
        if (error)
            return error;
        home->survives = true;
    }
    return 0;
}

static int write_output(struct copy *copy) {
    struct qi_compaction *compaction = copy->compaction;
    int error;
    while ((error = copy_survivors(copy)) == AGAIN) {
        error = copy->disk->ops->truncate(copy->disk, copy->output, 0);
        if (error)
            return error;
    }
    if (!error)
        error = flush(copy);
    if (error || compaction->births_count == 0)
        return error;
    compaction->frames_end = copy->end;
    error = put_table(copy);
    if (error)
        return error;
    compaction->size = copy->end;
    uint8_t header[QI_MH_SIZE];
    qi_message_header_put(header, QI_MESSAGES_COMPACTED, compaction->identity, compaction->number,
                          compaction->births_count, compaction->frames_end - QI_MESSAGES_START);
    error = copy->disk->ops->write(copy->disk, copy->output, header, sizeof header, 0);
    if (error || QI_BUG(relocation_not_synced))
        return error;
    return copy->disk->ops->sync(copy->disk, copy->output);
}

/* Half of what publishes leave free may be used to make more of it. */
static int check_room(const struct qi_compaction *compaction) {
    uint64_t left = 0, need = compaction->keep_free / 2;
    for (uint32_t i = 0; i < compaction->victims_count; i++)
        need += compaction->files[i].victim ? compaction->files[i].live : 0;
    int error = compaction->disk->ops->free_bytes(compaction->disk, compaction->dir, &left);
    return error ? error : left < need ? -ENOSPC : 0;
}

/* Writes N.new and puts it into place, or leaves nothing behind. */
static int make_output(struct copy *copy) {
    struct qi_compaction *compaction = copy->compaction;
    struct qi_disk *disk = copy->disk;
    struct qi_message_name unfinished = qi_message_name(compaction->number, true);
    struct qi_message_name finished = qi_message_name(compaction->number, false);
    int error = check_room(compaction);
    if (error)
        return error;
    copy->output = disk->ops->open(disk, compaction->dir, unfinished.file, QI_OPEN_FRESH);
    if (copy->output < 0)
        return copy->output;
    error = write_output(copy);
    disk->ops->close(disk, copy->output);
    if (error || compaction->births_count == 0) {
        disk->ops->unlink(disk, compaction->dir, unfinished.file);
        return error;
    }
    for (uint32_t i = 0; QI_BUG(compaction_unlinks_first) && i < compaction->victims_count; i++)
        disk->ops->unlink(disk, compaction->dir,
                          qi_message_name(compaction->victims[i], false).file);
    error =
        disk->ops->rename(disk, compaction->dir, unfinished.file, compaction->dir, finished.file);
    if (error || QI_BUG(relocation_name_not_synced))
        return error;
    return disk->ops->sync_dir(disk, compaction->dir);
}

int qi_compact_copy(struct qi_messages *messages, struct qi_compaction *compaction) {
    (void)messages; /* belongs to those who hold the lock */
    struct copy copy = {.compaction = compaction, .disk = compaction->disk};
    copy.seed = qi_frame_seed(compaction->identity, compaction->number, 0);
    int error = 0;
    if (compaction->live_count > 0) {
        compaction->births = qi_malloc(compaction->live_count * sizeof *compaction->births);
        copy.out = qi_malloc(BUFFER);
        error = compaction->births && copy.out ? make_output(&copy) : -ENOMEM;
    }
    qi_free(copy.out);
    qi_free(copy.in);
    for (uint32_t i = 0; i < compaction->victims_count; i++) {
        struct qi_message_file *file = &compaction->files[i];
        if (file->handle >= 0)
            copy.disk->ops->close(copy.disk, file->handle);
        qi_free(file->births);
        file->handle = -1;
        file->births = NULL;
    }
    if (error == -EINVAL)
        return qi_fail(QI_E_ARGUMENT, "the survivors of a compaction are not sorted");
    if (error)
        return qi_fail_disk(error, "compact into",
                            qi_message_name(compaction->number, false).shown);
    if (compaction->births_count == 0)
        compaction->number = 0;
    return 0;
}
