/* meta.c - store.meta and queue.meta: small files, replaced as a whole (draft, sync, rename, sync
 * the directory), so that one whole file is there at any time (H6). Each holds its content twice,
 * so that a bad sector takes no queue.
 *
 * store.meta is written twice per session: at open, where it counts the session as not yet closed,
 * and at close. What it says about the last session decides whether recovery takes the store's end
 * as unclean; its clock is the greatest that any session saw, and serves to warn (H17). Writing it
 * syncs the store's directory, so the names of messages/, queues/ and LOCK are durable before
 * anything is published. queue.meta is written while the queue's directory is a draft, and when the
 * queue gets another name (store/rename.c).
 */
#include "engine/engine.h"

#include <errno.h>

/* store.meta: magic 8, version 4, segment entries 4, identity 16, session 8, unclean session 8,
 * time 8, index only 1, clean 1, durable 1, losses 1, crc 4. Behind that, of format 2: the newest
 * commit log 8, its durable end 8, the catalog 8, the log 8 and the offset 8 below which no COPY is
 * needed, how many logs 4, crc 4; earlier code leaves zeros there. */
#define STORE_MAGIC   "QISTOR\r\n"
#define STORE_SIZE    64u
#define LOGS_AT       64u
#define LOGS_SIZE     48u
#define WHOLE_SIZE    (STORE_SIZE + LOGS_SIZE)
#define COUNTS_LOST   1u /* bits of the byte at 59 */
#define DATA_LOST     2u
#define RECORDS_LOST  4u
/* queue.meta: magic 8, version 4, name size 4, identity 16, name, crc 4. While the queue is being
 * renamed, behind that: the directory that has the next name 32, its size 4, the name, crc 4 */
#define QUEUE_MAGIC   "QIQUEU\r\n"
#define QUEUE_FIXED   32u
#define QUEUE_RENAMED 2u /* the version of the longer form */
#define RENAMED_FIXED 36u

/* Each copy is filled up to whole pages with zeros: sectors are not shared. */
#define HALF(size) (((size) + 4095) & ~4095u)
#define QUEUE_MAX  (QUEUE_FIXED + 65535 + 4 + RENAMED_FIXED + 65535 + 4)
#define ROOM_MAX   (2 * HALF(QUEUE_MAX))

/* `bytes` has room for both copies. */
static int replace_file(struct qi_disk *disk, int dir, const char *name, const char *draft,
                        uint8_t *bytes, uint32_t size, bool durable) {
    int file = disk->ops->open(disk, dir, draft, QI_OPEN_FRESH);
    memcpy(bytes + HALF(size), bytes, size);
    int error = file < 0 ? file : disk->ops->write(disk, file, bytes, 2 * HALF(size), 0);
    if (!error && durable && !QI_BUG(meta_not_synced))
        error = disk->ops->sync(disk, file);
    if (file >= 0)
        disk->ops->close(disk, file);
    if (!error)
        error = disk->ops->rename(disk, dir, draft, dir, name);
    if (!error && durable && !QI_BUG(meta_name_not_synced))
        error = disk->ops->sync_dir(disk, dir);
    return error;
}

/* Reads up to `room` bytes; the size, or an error. */
static int64_t read_file(struct qi_disk *disk, int dir, const char *name, uint8_t *bytes,
                         size_t room) {
    int file = disk->ops->open(disk, dir, name, QI_OPEN_READ);
    if (file < 0)
        return file;
    int64_t got = disk->ops->read(disk, file, bytes, room, 0);
    disk->ops->close(disk, file);
    return got;
}

/* The first whole copy, one in each half of the file; NULL: neither is. *damaged: the two are not
 * equal. */
static const uint8_t *whole_copy(const uint8_t *bytes, uint64_t size,
                                 uint32_t (*size_of)(const uint8_t *, uint64_t), bool *damaged) {
    const uint8_t *second = bytes + size / 2;
    uint32_t sizes[2] = {size_of(bytes, size), size_of(second, size - size / 2)};
    *damaged = sizes[0] == 0 || sizes[1] != sizes[0] || memcmp(bytes, second, sizes[0]) != 0;
    return sizes[0] ? bytes : sizes[1] ? second : NULL;
}

/* The size of the content that begins here; 0: damaged, or of something else. Without a whole part
 * about the logs it is damaged, too, unless earlier code left that out. */
static uint32_t store_size(const uint8_t *bytes, uint64_t left) {
    static const uint8_t none[LOGS_SIZE];
    if (left < STORE_SIZE || memcmp(bytes, STORE_MAGIC, 8) != 0 ||
        qi_get32(bytes + 60) != qi_crc32c(0, bytes, 60))
        return 0;
    if (left < WHOLE_SIZE || memcmp(bytes + LOGS_AT, none, LOGS_SIZE) == 0)
        return STORE_SIZE;
    bool whole = qi_get32(bytes + WHOLE_SIZE - 4) == qi_crc32c(0, bytes, WHOLE_SIZE - 4);
    return whole ? WHOLE_SIZE : 0;
}

/* For a disk without room for a draft: each copy in turn over its old self, durably, and the only
 * whole one last (H6). A power cut in between leaves two that differ: the first one counts, and its
 * session was unclean. */
static int overwrite_store(struct qi_disk *disk, int dir, const uint8_t *bytes) {
    uint8_t old[QI_META_SIZE] = {0};
    int file = disk->ops->open(disk, dir, "store.meta", QI_OPEN_WRITE);
    if (file < 0)
        return -ENOSPC;
    int64_t got = disk->ops->read(disk, file, old, sizeof old, 0);
    int error = got < 0 ? (int)got : got < (int64_t)sizeof old ? -ENOSPC : 0;
    uint32_t second = store_size(old, HALF(STORE_SIZE)) > 0; /* else the first one goes first */
    for (uint32_t turn = 0; turn < 2 && !error; turn++) {
        error = disk->ops->write(disk, file, bytes, HALF(STORE_SIZE),
                                 (uint64_t)(second ^ turn) * HALF(STORE_SIZE));
        if (!error)
            error = disk->ops->sync(disk, file);
    }
    disk->ops->close(disk, file);
    return error ? error : disk->ops->sync_dir(disk, dir);
}

/* A CRC of everything before it stands at `size`. */
static bool is_sealed(const uint8_t *bytes, uint64_t left, uint64_t size) {
    return size + 4 <= left && qi_get32(bytes + size) == qi_crc32c(0, bytes, size);
}

static uint32_t queue_size(const uint8_t *bytes, uint64_t left) {
    if (left < QUEUE_FIXED || memcmp(bytes, QUEUE_MAGIC, 8) != 0)
        return 0;
    uint64_t size = QUEUE_FIXED + (uint64_t)qi_get32(bytes + 12);
    if (!is_sealed(bytes, left, size))
        return 0;
    size += 4;
    if (qi_get32(bytes + 8) != QUEUE_RENAMED)
        return (uint32_t)size;
    if (left < size + RENAMED_FIXED)
        return 0;
    size += RENAMED_FIXED + (uint64_t)qi_get32(bytes + size + 32);
    return is_sealed(bytes, left, size) ? (uint32_t)size + 4 : 0;
}

static void put_logs(const struct qi_logs *logs, uint8_t *bytes) {
    qi_put64(bytes + LOGS_AT, logs->newest);
    qi_put64(bytes + LOGS_AT + 8, logs->end);
    qi_put64(bytes + LOGS_AT + 16, logs->catalog);
    qi_put64(bytes + LOGS_AT + 24, logs->settled);
    qi_put64(bytes + LOGS_AT + 32, logs->settled_end);
    qi_put32(bytes + LOGS_AT + 40, logs->count);
    qi_put32(bytes + WHOLE_SIZE - 4, qi_crc32c(0, bytes, WHOLE_SIZE - 4));
}

static void get_logs(const uint8_t *bytes, uint32_t size, struct qi_logs *logs) {
    *logs = (struct qi_logs){0};
    if (size < WHOLE_SIZE)
        return;
    *logs = (struct qi_logs){.known = true,
                             .newest = qi_get64(bytes + LOGS_AT),
                             .end = qi_get64(bytes + LOGS_AT + 8),
                             .catalog = qi_get64(bytes + LOGS_AT + 16),
                             .settled = qi_get64(bytes + LOGS_AT + 24),
                             .settled_end = qi_get64(bytes + LOGS_AT + 32),
                             .count = qi_get32(bytes + LOGS_AT + 40)};
}

void qi_meta_compose(struct qi_store *store, bool clean, struct qi_meta *meta) {
    uint8_t *bytes = meta->bytes;
    memset(bytes, 0, sizeof meta->bytes);
    memcpy(bytes, STORE_MAGIC, 8);
    bool late = QI_BUG(upgrade_written_late) && store->options.upgrade && !clean;
    qi_put32(bytes + 8, late ? 1 : store->options.format);
    qi_put32(bytes + 12, store->options.segment_entries);
    memcpy(bytes + 16, store->identity, QI_IDENTITY_SIZE);
    qi_put64(bytes + 32, store->session);
    qi_put64(bytes + 40, store->unclean_session);
    qi_note_clock(store, 0);
    qi_put64(bytes + 48, store->latest_us);
    bytes[56] = store->options.index_only;
    bytes[57] = clean;
    bytes[58] = clean && store->earlier_durable && !store->unsure;
    bytes[59] = (store->counts_lost ? COUNTS_LOST : 0) | (store->data_lost ? DATA_LOST : 0) |
                (store->records_lost ? RECORDS_LOST : 0);
    qi_put32(bytes + 60, qi_crc32c(0, bytes, 60));
    if (store->logs.known && !QI_BUG(logs_not_named))
        put_logs(&store->logs, bytes);
}

int qi_meta_put(struct qi_disk *disk, int root, struct qi_meta *meta) {
    int error =
        replace_file(disk, root, "store.meta", "store.meta.new", meta->bytes, WHOLE_SIZE, true);
    if (!qi_is_disk_full(error))
        return error;
    disk->ops->unlink(disk, root, "store.meta.new");
    return overwrite_store(disk, root, meta->bytes);
}

int qi_meta_write(struct qi_store *store, bool clean) {
    struct qi_meta meta;
    qi_meta_compose(store, clean, &meta);
    int error = qi_meta_put(store->disk, store->root, &meta);
    return error ? qi_fail_disk(error, "cannot write", "store.meta") : 0;
}

static bool entries_are_valid(uint32_t entries) {
    return entries >= 8 && entries <= QI_SEGMENT_ENTRIES_MAX && (entries & (entries - 1)) == 0;
}

/* The store's format is the one that was asked for, or becomes it. */
static int check_format(struct qi_store *store, uint32_t format) {
    uint32_t wanted = store->options.format;
    if (store->options.upgrade && !wanted)
        wanted = QI_FORMAT_NEWEST;
    if (wanted && wanted < format)
        return qi_fail(QI_E_FORMAT,
                       "the store has format %u, not %u, and no way leads back: open it without "
                       "naming a format",
                       format, wanted);
    if (wanted > format && !store->options.upgrade)
        return qi_fail(QI_E_FORMAT,
                       "the store has format %u, not %u: open it without naming a format, or "
                       "upgrade it (qindex upgrade, or upgrade=True)",
                       format, wanted);
    store->upgrading = wanted > format;
    store->options.format = wanted > format ? wanted : format;
    return 0;
}

/* `bytes`: a whole copy, or NULL; `start`: of the file. A later version need not have its checksum
 * where ours is. */
static int check_meta(struct qi_store *store, const uint8_t *bytes, const uint8_t *start) {
    const uint8_t *head = bytes ? bytes : start;
    uint32_t format = qi_get32(head + 8);
    if (memcmp(head, STORE_MAGIC, 8) == 0 && (format == 0 || format > QI_FORMAT_NEWEST))
        return qi_fail(QI_E_FORMAT,
                       "the store has format version %u, this qindex reads versions 1 to %u: use a "
                       "matching release",
                       format, QI_FORMAT_NEWEST);
    if (!bytes)
        return qi_fail(QI_E_CORRUPT,
                       "store.meta is damaged, both copies in it, or not qindex's: restore it, or "
                       "salvage the queues from a copy");
    if (!entries_are_valid(qi_get32(bytes + 12)))
        return qi_fail(QI_E_CORRUPT, "store.meta says segment_entries=%u, which cannot be",
                       qi_get32(bytes + 12));
    if (store->options.segment_entries == 0)
        store->options.segment_entries = qi_get32(bytes + 12);
    if (qi_get32(bytes + 12) != store->options.segment_entries)
        return qi_fail(
            QI_E_FORMAT,
            "the store was created with segment_entries=%u, not %u: open it without that option",
            qi_get32(bytes + 12), store->options.segment_entries);
    if (bytes[56] != store->options.index_only)
        return qi_fail(
            QI_E_FORMAT,
            bytes[56]
                ? "this is a directory of QueueIndex, not a store: open it with qindex.QueueIndex"
                : "this is a store, not an index alone: open it with qindex.open");
    return check_format(store, format);
}

static void note_content(void *context, const char *name) {
    bool *found = context;
    const char *dot = strrchr(name, '.');
    *found = *found || strspn(name, "0123456789abcdef") == 32 || (dot && strcmp(dot, ".qms") == 0);
}

/* Queues or message files without a store.meta: that was lost, for it is durable before the first
 * of them. */
static bool has_content(struct qi_store *store) {
    static const char *const folders[] = {"queues", "messages"};
    bool found = false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        int dir = store->disk->ops->open_dir(store->disk, store->root, folders[i]);
        if (dir < 0)
            continue;
        store->disk->ops->list(store->disk, dir, note_content, &found);
        store->disk->ops->close(store->disk, dir);
    }
    return found;
}

static int fail_missing(void) {
    return qi_fail(QI_E_MISSING, "there is no store here (no store.meta)");
}

int qi_meta_look(struct qi_store *store) {
    uint8_t byte;
    int64_t size = read_file(store->disk, store->root, "store.meta", &byte, sizeof byte);
    return size == -ENOENT && !has_content(store) ? fail_missing() : 0;
}

int qi_meta_open(struct qi_store *store, bool create) {
    uint8_t file[QI_META_SIZE] = {0};
    bool damaged;
    struct qi_disk *disk = store->disk;
    int64_t size = read_file(disk, store->root, "store.meta", file, sizeof file);
    bool lost = size == -ENOENT && has_content(store);
    if (lost) /* or a writer made the store just now, between the two looks */
        size = read_file(disk, store->root, "store.meta", file, sizeof file);
    if (lost && size == -ENOENT)
        return qi_fail(QI_E_CORRUPT, "store.meta is missing, but there are queues: restore it, or "
                                     "salvage the queues from a copy");
    if (size == -ENOENT && create) {
        if (store->options.segment_entries == 0)
            store->options.segment_entries = QI_SEGMENT_ENTRIES_MAX;
        if (!entries_are_valid(store->options.segment_entries))
            return qi_fail(QI_E_ARGUMENT, "segment_entries must be a power of two from 8 to 16384");
        if (store->options.format == 0)
            store->options.format = store->options.new_format;
        if (store->options.format == 0)
            store->options.format = store->options.upgrade ? QI_FORMAT_NEWEST : QI_FORMAT_OF_NEW;
        disk->ops->random(disk, store->identity, QI_IDENTITY_SIZE);
        return 0;
    }
    if (size == -ENOENT)
        return fail_missing();
    if (size < 0)
        return qi_fail_disk((int)size, "cannot read", "store.meta");
    const uint8_t *bytes = whole_copy(file, (uint64_t)size, store_size, &damaged);
    int error = check_meta(store, bytes, file);
    if (error)
        return error;
    if (damaged && store_size(file, (uint64_t)size / 2) &&
        store_size(file + size / 2, (uint64_t)size / 2))
        qi_report(store, false, "", "store.meta", 0,
                  "its two copies differ: it was being written in place, on a full disk");
    else if (damaged)
        qi_report(store, true, "", "store.meta", 0, "one of the two copies in it is damaged");
    memcpy(store->identity, bytes + 16, QI_IDENTITY_SIZE);
    store->session = qi_get64(bytes + 32);
    store->unclean_session = qi_get64(bytes + 40);
    if (!bytes[57] || damaged) /* what the other copy said is not known */
        store->unclean_session = store->session;
    store->earlier_durable = bytes[57] && bytes[58] && !damaged;
    store->counts_lost = /* else all are */
        (bytes[59] & COUNTS_LOST) && store->unclean_session < store->session;
    store->data_lost = (bytes[59] & DATA_LOST) && !QI_BUG(loss_forgotten);
    store->records_lost = (bytes[59] & RECORDS_LOST) && !QI_BUG(lost_records_forgotten);
    get_logs(bytes, store_size(bytes, HALF(STORE_SIZE)), &store->logs);
    qi_note_clock(store, qi_get64(bytes + 48));
    return 0;
}

/* What store.meta says now, in `file`; NULL: it cannot be read. */
static const uint8_t *meta_now(struct qi_store *store, uint8_t file[QI_META_SIZE]) {
    bool damaged;
    int64_t size = read_file(store->disk, store->root, "store.meta", file, QI_META_SIZE);
    return size > 0 ? whole_copy(file, (uint64_t)size, store_size, &damaged) : NULL;
}

/* A writer may have upgraded the store since this reader opened it. */
static uint32_t format_now(struct qi_store *store) {
    uint8_t file[QI_META_SIZE] = {0};
    const uint8_t *bytes = meta_now(store, file);
    return bytes ? qi_get32(bytes + 8) : 0;
}

uint64_t qi_session_now(struct qi_store *store) {
    uint8_t file[QI_META_SIZE] = {0};
    const uint8_t *bytes = meta_now(store, file);
    return bytes ? qi_get64(bytes + 32) : 0;
}

struct qi_logs qi_logs_now(struct qi_store *store) {
    uint8_t file[QI_META_SIZE] = {0};
    const uint8_t *bytes = meta_now(store, file);
    struct qi_logs logs = {0};
    if (bytes)
        get_logs(bytes, store_size(bytes, HALF(STORE_SIZE)), &logs);
    return logs;
}

int qi_check_version(struct qi_queue *queue, const char *name, uint32_t version) {
    struct qi_store *store = queue->store;
    if (version > 0 && version <= store->options.format)
        return 0;
    if (version == 0 || version > QI_FORMAT_NEWEST)
        return qi_fail(QI_E_FORMAT,
                       "%s has format version %u, this qindex reads versions 1 to %u: use "
                       "a matching release",
                       qi_file_of(queue, name).text, version, QI_FORMAT_NEWEST);
    if (store->options.read_only && format_now(store) >= version) {
        store->options.format = version;
        return 0;
    }
    return qi_fail(QI_E_FORMAT,
                   "%s has format version %u, but the store has format %u: the file or "
                   "store.meta comes from another copy; put back the ones that belong together",
                   qi_file_of(queue, name).text, version, store->options.format);
}

/* The CRC of what is in front of `at`; what is behind that. */
static uint8_t *seal(uint8_t *bytes, uint8_t *at) {
    qi_put32(at, qi_crc32c(0, bytes, (size_t)(at - bytes)));
    return at + 4;
}

int qi_queue_meta_write(struct qi_queue *queue, const struct qi_next_name *next, bool durable) {
    uint32_t size = QUEUE_FIXED + queue->name_size + 4;
    size += next ? RENAMED_FIXED + next->size + 4 : 0;
    uint8_t *bytes = qi_calloc(1, 2 * HALF(size));
    if (!bytes)
        return qi_fail(QI_E_MEMORY, "no memory for the name of a queue");
    uint8_t *at = bytes + QUEUE_FIXED;
    memcpy(bytes, QUEUE_MAGIC, 8);
    qi_put32(bytes + 8, next ? QUEUE_RENAMED : QI_FORMAT_VERSION);
    qi_put32(bytes + 12, queue->name_size);
    memcpy(bytes + 16, queue->identity, QI_IDENTITY_SIZE);
    memcpy(at, queue->name, queue->name_size);
    at = seal(bytes, at + queue->name_size);
    if (next) {
        memcpy(at, next->directory, 32);
        qi_put32(at + 32, next->size);
        memcpy(at + RENAMED_FIXED, next->name, next->size);
        seal(bytes, at + RENAMED_FIXED + next->size);
    }
    int error = replace_file(queue->store->disk, queue->dir, "queue.meta", "queue.meta.new", bytes,
                             size, durable);
    qi_free(bytes);
    return error ? qi_fail_disk_of(queue, error, "cannot write", "queue.meta") : 0;
}

/* Gives the queue its name and identity. *state: whether the file says a second name. */
static int take_queue_meta(struct qi_queue *queue, const uint8_t *bytes,
                           enum qi_meta_state *state) {
    if (!bytes)
        return qi_fail(QI_E_CORRUPT, "%s is damaged, both copies in it",
                       qi_file_of(queue, "queue.meta").text);
    uint32_t version = qi_get32(bytes + 8), size = qi_get32(bytes + 12);
    if (version != QI_FORMAT_VERSION && version != QUEUE_RENAMED)
        return qi_fail(
            QI_E_FORMAT,
            "%s has format version %u, this qindex reads versions 1 and 2: use a matching release",
            qi_file_of(queue, "queue.meta").text, version);
    const uint8_t *text = bytes + QUEUE_FIXED, *next = text + size + 4;
    *state = version == QUEUE_RENAMED ? QI_META_RENAMED : QI_META_WHOLE;
    if (*state == QI_META_RENAMED && memcmp(next, queue->directory, 32) == 0) {
        text = next + RENAMED_FIXED;
        size = qi_get32(next + 32);
    }
    char *name = qi_malloc(size + 1);
    if (!name)
        return qi_fail(QI_E_MEMORY, "no memory for a queue's name");
    memcpy(queue->identity, bytes + 16, QI_IDENTITY_SIZE);
    memcpy(name, text, size);
    name[size] = 0;
    qi_free(queue->name);
    queue->name = name;
    queue->name_size = size;
    return 0;
}

int qi_queue_meta_read(struct qi_queue *queue, enum qi_meta_state *state) {
    uint8_t *file = qi_malloc(ROOM_MAX);
    bool damaged = false;
    if (!file)
        return qi_fail(QI_E_MEMORY, "no memory to open a queue");
    int64_t size = read_file(queue->store->disk, queue->dir, "queue.meta", file, ROOM_MAX);
    int error;
    if (size == -ENOENT) /* a queue is born with it */
        error = qi_fail(QI_E_CORRUPT, "%s is missing, and with it the name",
                        qi_file_of(queue, "queue.meta").text);
    else if (size < 0)
        error = qi_fail_disk_of(queue, (int)size, "cannot read", "queue.meta");
    else
        error =
            take_queue_meta(queue, whole_copy(file, (uint64_t)size, queue_size, &damaged), state);
    if (damaged)
        *state = QI_META_DAMAGED;
    qi_free(file);
    return error;
}
