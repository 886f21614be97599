/* messages_open.c - from a directory to a list of files, and the end of a session.
 *
 * Reads headers, sizes and the short first parts of birth tables, but no frames: the cost of an
 * open grows with the number of files only. A name alone proves nothing, and nothing is removed
 * because it was not understood:
 *   - N.qms with a valid header is one of ours.
 *   - N.qms without a header (zeros) is ours: a power cut came before its first sync. Its frames
 *     are checked one by one.
 *   - N.qms with a damaged header is ours. Its frames show whether they were born there. It is
 *     never removed.
 *   - N.qms with anything else is an alien. It is never removed.
 *   - N.new is the output of a compaction that was cut off. It is removed.
 *   - Other names are ignored.
 * Files are read in the order of their numbers. If two compacted files hold the same births, the
 * newer one gets them.
 */
#include "bodies/bodies_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define SCANS_MAX 100
#define CLOCK_STEP_US                                                                              \
    20000u /* a directory that changed twice within this may bear the time of the first change */

struct listing {
    struct qi_name {
        uint32_t number;
        bool unfinished;
    } *names;
    size_t count, room;
    int error;
};

/* Strict decimal: no sign, no leading zero, nothing behind the suffix. */
static bool parse_name(const char *text, struct qi_name *name) {
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && at - text < 10; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    if (at == text || (*text == '0' && at - text > 1) || number > QI_MESSAGES_NUMBER_MAX)
        return false;
    name->number = (uint32_t)number;
    name->unfinished = strcmp(at, ".new") == 0;
    return name->unfinished || strcmp(at, ".qms") == 0;
}

static void note_name(void *context, const char *text) {
    struct listing *listing = context;
    struct qi_name name;
    if (listing->error || !parse_name(text, &name))
        return;
    if (listing->count == listing->room) {
        size_t room = listing->room ? listing->room * 2 : 64;
        struct qi_name *grown = qi_realloc(listing->names, room * sizeof *grown);
        if (!grown) {
            listing->error = -ENOMEM;
            return;
        }
        listing->names = grown;
        listing->room = room;
    }
    listing->names[listing->count++] = name;
}

static int compare_names(const void *a, const void *b) {
    uint32_t left = ((const struct qi_name *)a)->number,
             right = ((const struct qi_name *)b)->number;
    return (left > right) - (left < right);
}

static bool is_zero(const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static int take_birth(struct qi_messages *messages, const struct qi_message_file *file,
                      uint32_t born) {
    struct qi_birth_file *birth = qi_birth_file_add(messages, born);
    if (!birth)
        return -ENOMEM;
    birth->home = file->number;
    return 0;
}

/* The births of a compacted file live here now. */
static int take_births(struct qi_messages *messages, struct qi_message_file *file,
                       const uint8_t *header) {
    uint64_t frames = qi_get64(header + QI_MH_FRAMES), bytes = qi_get64(header + QI_MH_BYTES);
    if (bytes > file->size - QI_MESSAGES_START || frames == 0 ||
        frames > bytes / QI_MESSAGE_OVERHEAD)
        return -EBADMSG;
    file->compacted = true;
    file->frames_end = QI_MESSAGES_START + bytes;
    file->births_count = (uint32_t)frames;
    struct qi_birth_group *groups = NULL;
    uint32_t count = 0;
    uint32_t seed = qi_frame_seed(messages->identity, file->number, 0);
    int error = frames > UINT32_MAX
                    ? -EBADMSG
                    : qi_birth_groups_read(messages->disk, seed, file, &groups, &count);
    for (uint32_t i = 0; !error && i < count; i++)
        error = take_birth(messages, file, groups[i].file);
    qi_free(groups);
    return error;
}

/* The header or the table of a compacted file is damaged: its frames say the same. */
static int find_births(struct qi_messages *messages, struct qi_message_file *file) {
    file->alien = true;
    int error =
        qi_births_find(messages->disk, qi_frame_seed(messages->identity, file->number, 0), file);
    for (uint32_t i = 0; !error && i < file->births_count; i++)
        error = take_birth(messages, file, file->births[i].file);
    return error == -EBADMSG ? 0 : error;
}

/* The first bytes of a rolling file's header, perhaps none, and zeros: a power cut came before its
 * first sync. */
static bool is_torn(const struct qi_messages *messages, const struct qi_message_file *file,
                    const uint8_t *header) {
    uint8_t whole[QI_MH_SIZE];
    qi_message_header_put(whole, QI_MESSAGES_ROLLING, messages->identity, file->number, 0, 0);
    size_t same = 0;
    while (same < sizeof whole && header[same] == whole[same])
        same++;
    return same < sizeof whole && is_zero(header + same, sizeof whole - same);
}

/* Looks at an open file: 0 or an error of ours. */
static int understand(struct qi_messages *messages, struct qi_message_file *file) {
    struct qi_message_name name = qi_message_name(file->number, false);
    uint8_t header[QI_MH_SIZE] = {0};
    int error = messages->disk->ops->size(messages->disk, file->handle, &file->size);
    int64_t got =
        error ? 0
              : messages->disk->ops->read(messages->disk, file->handle, header, sizeof header, 0);
    if (error || got < 0)
        return qi_fail_disk(error ? error : (int)got, "read", name.shown);
    file->frames_end = file->size;
    if (is_torn(messages, file, header))
        return 0;
    bool whole = (size_t)got == sizeof header && memcmp(header, QI_MESSAGES_MAGIC, 8) == 0 &&
                 qi_get32(header + QI_MH_CRC) == qi_crc32c(0, header, QI_MH_CRC);
    uint32_t version = qi_get32(header + QI_MH_VERSION), kind = qi_get32(header + QI_MH_KIND);
    if (whole && (version != QI_FORMAT_VERSION || kind > QI_MESSAGES_COMPACTED))
        return qi_fail(QI_E_FORMAT, "%s has format version %u, kind %u: written by a newer qindex?",
                       name.shown, version, kind);
    file->alien =
        whole && (memcmp(header + QI_MH_IDENTITY, messages->identity, QI_IDENTITY_SIZE) != 0 ||
                  qi_get64(header + QI_MH_NUMBER) != file->number);
    if (file->alien || (whole && kind == QI_MESSAGES_ROLLING))
        return 0;
    error = whole ? take_births(messages, file, header) : -EBADMSG;
    if (error == -EBADMSG)
        error = find_births(messages, file);
    return error ? qi_fail_disk(error, "read", name.shown) : 0;
}

static int scan_file(struct qi_messages *messages, uint32_t number, bool *gone) {
    struct qi_message_name name = qi_message_name(number, false);
    struct qi_message_file file = {.number = number, .handle = -1};
    int handle = messages->disk->ops->open(messages->disk, messages->dir, name.file, QI_OPEN_READ);
    if (handle == -ENOENT) {
        *gone = true; /* the writer of a live store removed it just now */
        return 0;
    }
    if (handle == -EINVAL || handle == -EISDIR || handle == -ENXIO) {
        file.alien = true; /* a folder, a device: nothing to read here */
    } else if (handle < 0) {
        return qi_fail_disk(handle, "open", name.shown);
    } else {
        file.handle = handle;
        int error = understand(messages, &file);
        messages->disk->ops->close(messages->disk, handle);
        file.handle = -1;
        if (error)
            return error;
    }
    int error = qi_message_file_insert(messages, &file);
    return error ? qi_fail_disk(error, "list", name.shown) : 0;
}

/* *gone: a file went while the list was read. What was alive in it is in a file that may have come
 * behind the list. */
static int scan_once(struct qi_messages *messages, bool *gone) {
    *gone = false;
    messages->scanned_us = messages->disk->ops->wall_us(messages->disk);
    messages->dir_changed_us = messages->disk->ops->changed_us(messages->disk, messages->dir);
    struct listing listing = {0};
    int error = messages->disk->ops->list(messages->disk, messages->dir, note_name, &listing);
    if (!error)
        error = listing.error;
    if (error) {
        qi_free(listing.names);
        return qi_fail_disk(error, "list", "messages");
    }
    if (listing.count > 0)
        qsort(listing.names, listing.count, sizeof *listing.names, compare_names);
    for (size_t i = 0; !error && i < listing.count; i++) {
        uint32_t number = listing.names[i].number;
        if (number >= messages->number_next)
            messages->number_next = number + 1;
        if (!listing.names[i].unfinished)
            error = scan_file(messages, number, gone);
        else if (!messages->read_only)
            messages->disk->ops->unlink(messages->disk, messages->dir,
                                        qi_message_name(number, true).file);
    }
    qi_free(listing.names);
    return error;
}

static void forget_files(struct qi_messages *messages) {
    for (uint32_t i = 0; i < messages->files_count; i++)
        qi_message_file_close(messages, &messages->files[i]);
    messages->files_count = 0;
    messages->window_file = UINT32_MAX;
    for (uint32_t i = 0; i < messages->births_count; i++)
        messages->births[i].home = messages->births[i].number;
}

/* A reader beside a live writer lists again until the list is of one moment. */
int qi_messages_scan(struct qi_messages *messages) {
    bool gone;
    int error = scan_once(messages, &gone);
    for (int again = 0; !error && gone && messages->read_only && again < SCANS_MAX; again++) {
        forget_files(messages);
        error = scan_once(messages, &gone);
    }
    return error;
}

int qi_messages_reread(struct qi_messages *messages) {
    forget_files(messages);
    return qi_messages_scan(messages);
}

int qi_messages_rescan(struct qi_messages *messages) {
    assert(messages->read_only);
    bool settled = messages->scanned_us > messages->dir_changed_us &&
                   messages->scanned_us - messages->dir_changed_us > CLOCK_STEP_US;
    if (settled &&
        messages->disk->ops->changed_us(messages->disk, messages->dir) == messages->dir_changed_us)
        return QI_E_CORRUPT; /* the same names as when it was listed */
    return qi_messages_reread(messages);
}

int qi_messages_open(struct qi_messages *messages, struct qi_disk *disk, int dir,
                     const uint8_t *identity, uint64_t file_size_max, bool use_mapping,
                     bool read_only) {
    *messages = (struct qi_messages){.disk = disk,
                                     .dir = dir,
                                     .file_size_max = file_size_max,
                                     .keep_free = messages->keep_free,
                                     .use_mapping = use_mapping,
                                     .read_only = read_only,
                                     .in_memory = dir >= 0 && disk->ops->is_in_memory(disk, dir),
                                     .tape = {.file = -1},
                                     .window_file = UINT32_MAX};
    memcpy(messages->identity, identity, QI_IDENTITY_SIZE);
    const uint32_t size_min = QI_MESSAGES_START + QI_MESSAGE_OVERHEAD;
    if (file_size_max < size_min || file_size_max > UINT32_MAX) {
        qi_messages_close(messages);
        return qi_fail(QI_E_ARGUMENT, "message_file_size must be from %u to %u", size_min,
                       UINT32_MAX);
    }
    disk->ops->random(disk, &messages->stamp_next, sizeof messages->stamp_next);
    messages->stamp_next = messages->stamp_next >> 40 | 1; /* 24 bits, not 0 */
    messages->window = qi_malloc(QI_MESSAGES_WINDOW);
    int error =
        messages->window ? qi_messages_scan(messages) : qi_fail_disk(-ENOMEM, "open", "messages");
    if (error)
        qi_messages_close(messages);
    return error;
}

void qi_messages_close(struct qi_messages *messages) {
    if (!messages->disk)
        return;
    /* Give back what was preallocated. If that fails, zeros stay behind the last frame, which is
     * legal. */
    if (messages->tape.file >= 0)
        qi_tape_cut(&messages->tape, messages->tail);
    qi_tape_close(&messages->tape);
    qi_blanks_drop(messages);
    forget_files(messages);
    if (messages->dir >= 0)
        messages->disk->ops->close(messages->disk, messages->dir);
    qi_free(messages->files);
    qi_free(messages->births);
    qi_free(messages->window);
    qi_free(messages->gathered);
    *messages = (struct qi_messages){.dir = -1, .tape = {.file = -1}, .window_file = UINT32_MAX};
}

static int sync_and_drop(struct qi_messages *messages, struct qi_message_file *file) {
    struct qi_message_name name = qi_message_name(file->number, false);
    int error = qi_message_file_open(messages, file);
    if (error)
        return error;
    error = messages->disk->ops->sync(messages->disk, file->handle);
    if (error)
        return qi_fail_disk(error, "sync", name.shown);
    error = messages->disk->ops->drop_cache(messages->disk, file->handle, 0, UINT64_MAX);
    return error ? qi_fail_disk(error, "drop the cache of", name.shown) : 0;
}

int qi_messages_barrier(struct qi_messages *messages, uint32_t from) {
    assert(!messages->read_only);
    for (uint32_t i = 0; i < messages->files_count; i++) {
        if (messages->files[i].number < from || messages->files[i].alien)
            continue;
        int error = sync_and_drop(messages, &messages->files[i]);
        if (error)
            return error;
    }
    int error = messages->disk->ops->sync_dir(messages->disk, messages->dir);
    return error ? qi_fail_disk(error, "sync", "messages") : 0;
}
