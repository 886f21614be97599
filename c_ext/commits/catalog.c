/* catalog.c - the file `catalog`: what the mappings had when a commit log began (see commits.h).
 *
 *     catalog  header header | DATA DATA DATA | MARK      as of the beginning of log N
 *
 * Without it no log could ever go that a mapping has an entry in. It is laid out as a log is, so
 * that one code reads and checks both, and is replaced as a whole: draft, sync, rename, sync of the
 * directory. Until that is done the logs before N stay; with it they are not looked at for DATA any
 * more. A power cut in between leaves the catalog before, and all the logs behind that.
 */
#include "commits/commits.h"

#include <errno.h>

#include "commits/commits_private.h"

#define FRAME_MAX (UINT32_C(64) << 10) /* entries of one frame, unless a single one is longer */
#define NAME      "catalog"
#define DRAFT     "catalog.new"

/* ---- what is written ---- */

static bool is_wanted(const struct qi_commits *commits) {
    if (commits->catalog_hurt)
        return true;
    for (const struct qi_commit_log *log = commits->oldest; log; log = log->newer)
        if (log->records > 0 && log->journal.epoch >= commits->catalog)
            return true;
    return false;
}

/* How many entries go into the next frame, and how long they are. */
static uint64_t frame_size(const struct qi_datum *entry, const struct qi_datum **behind) {
    uint64_t size = 0;
    do {
        size += qi_datum_size(entry);
        entry = entry->newer;
    } while (entry && size + qi_datum_size(entry) <= FRAME_MAX);
    *behind = entry;
    return size;
}

static uint64_t end_of_frames(const struct qi_data *data) {
    uint64_t end = QI_JOURNAL_START;
    for (uint32_t i = 0; i < data->scopes_room; i++)
        for (const struct qi_scope *scope = data->scopes[i]; scope; scope = scope->next)
            for (const struct qi_datum *entry = scope->oldest, *behind; entry; entry = behind)
                end += QI_FRAME_HEADER + QI_DATA_ENTRIES + frame_size(entry, &behind);
    return end;
}

static uint64_t write_frames(const struct qi_data *data, uint32_t seed, uint8_t *bytes) {
    uint64_t at = QI_JOURNAL_START;
    for (uint32_t i = 0; i < data->scopes_room; i++)
        for (const struct qi_scope *scope = data->scopes[i]; scope; scope = scope->next)
            for (const struct qi_datum *entry = scope->oldest, *behind; entry;) {
                uint8_t *frame = bytes + at, *payload = frame + QI_FRAME_HEADER;
                uint32_t length = QI_DATA_ENTRIES + (uint32_t)frame_size(entry, &behind);
                qi_put16(payload, QI_KIND_DATA);
                memcpy(payload + QI_DATA_SCOPE, scope->identity, QI_IDENTITY_SIZE);
                for (uint8_t *to = payload + QI_DATA_ENTRIES; entry != behind; entry = entry->newer)
                    to = qi_datum_write(entry, to);
                qi_frame_seal(seed, frame, at, QI_FRAME_EXTENDED, length);
                at += QI_FRAME_HEADER + length;
            }
    return at;
}

void qi_put_log_header(const struct qi_commits *commits, const char *magic, uint64_t number,
                       uint64_t now_us, uint8_t *header) {
    memset(header, 0, QI_JH_SIZE);
    memcpy(header, magic, 8);
    qi_put32(header + QI_JH_VERSION, QI_FORMAT_NEWEST);
    memcpy(header + QI_JH_IDENTITY, commits->identity, QI_IDENTITY_SIZE);
    qi_put64(header + QI_JH_EPOCH, number);
    qi_put64(header + QI_JH_CREATED, now_us);
    qi_put32(header + QI_JH_CRC, qi_crc32c(0, header, QI_JH_CRC));
    memcpy(header + QI_JOURNAL_HEADER_COPY, header, QI_JH_SIZE);
}

int qi_catalog_draft(struct qi_commits *commits, uint64_t number, uint64_t now_us) {
    if (!is_wanted(commits))
        return 0;
    uint64_t end = end_of_frames(&commits->data), size = qi_journal_size_cut_at(end + QI_MARK_SIZE);
    uint32_t seed = qi_frame_seed(commits->identity, 0, number);
    uint8_t *bytes = qi_calloc(1, size);
    if (!bytes)
        return -ENOMEM;
    qi_put_log_header(commits, QI_CATALOG_MAGIC, number, now_us, bytes);
    write_frames(&commits->data, seed, bytes);
    qi_put64(bytes + end + QI_FRAME_HEADER, end);
    qi_put64(bytes + end + QI_FRAME_HEADER + 8, now_us);
    qi_frame_seal(seed, bytes + end, end, QI_FRAME_MARK, QI_MARK_SIZE - QI_FRAME_HEADER);
    qi_free(commits->draft);
    commits->draft = bytes;
    commits->draft_size = size;
    commits->draft_number = number;
    return 0;
}

int qi_catalog_write(struct qi_disk *disk, int root, const uint8_t *bytes, uint64_t size,
                     bool *unsure) {
    int file = disk->ops->open(disk, root, DRAFT, QI_OPEN_FRESH);
    int error = file < 0 ? file : disk->ops->write(disk, file, bytes, size, 0);
    *unsure = false;
    if (!error && !QI_BUG(catalog_not_synced))
        *unsure = (error = disk->ops->sync(disk, file)) != 0;
    if (file >= 0)
        disk->ops->close(disk, file);
    if (!error)
        error = disk->ops->rename(disk, root, DRAFT, root, NAME);
    if (!error && !QI_BUG(catalog_name_not_synced))
        *unsure = (error = disk->ops->sync_dir(disk, root)) != 0;
    if (error && !*unsure && file >= 0)
        disk->ops->unlink(disk, root, DRAFT);
    return error;
}

/* ---- what is read ---- */

/* Each of its two copies may be the one that is whole. 0: neither is. */
static uint64_t number_of(const struct qi_commits *commits, const uint8_t *bytes, uint64_t size,
                          uint32_t *version, bool *whole) {
    const uint8_t *copies[] = {bytes, bytes + QI_JOURNAL_HEADER_COPY};
    uint64_t number = 0;
    *whole = true;
    for (size_t i = 0; i < 2; i++) {
        const uint8_t *header = copies[i];
        bool valid = size >= QI_JOURNAL_START && memcmp(header, QI_CATALOG_MAGIC, 8) == 0 &&
                     qi_get32(header + QI_JH_CRC) == qi_crc32c(0, header, QI_JH_CRC) &&
                     memcmp(header + QI_JH_IDENTITY, commits->identity, QI_IDENTITY_SIZE) == 0;
        *whole = *whole && valid;
        if (!valid || number)
            continue;
        number = qi_get64(header + QI_JH_EPOCH);
        *version = qi_get32(header + QI_JH_VERSION);
    }
    return number;
}

static int load(struct qi_store *store, struct qi_journal *journal) {
    struct qi_disk *disk = store->disk;
    int file = disk->ops->open(disk, store->root, NAME, QI_OPEN_READ);
    if (file < 0)
        return file;
    int error = qi_tape_open(&journal->tape, disk, file, 0, false);
    return error ? error : qi_tape_load(&journal->tape, 0, UINT64_MAX);
}

uint64_t qi_catalog_number(struct qi_store *store) {
    uint8_t header[QI_JOURNAL_START] = {0};
    struct qi_disk *disk = store->disk;
    int file = disk->ops->open(disk, store->root, NAME, QI_OPEN_READ);
    if (file < 0)
        return 0;
    int64_t got = disk->ops->read(disk, file, header, sizeof header, 0);
    disk->ops->close(disk, file);
    uint32_t version;
    bool whole;
    return number_of(store->commits, header, got > 0 ? (uint64_t)got : 0, &version, &whole);
}

int qi_catalog_take(struct qi_store *store, const char *file, const struct qi_frame *frame) {
    uint32_t kind = qi_get16(frame->payload);
    struct qi_data *data = &store->commits->data;
    const uint8_t *scope = frame->payload + QI_DATA_SCOPE;
    if (kind != QI_KIND_DATA && kind != QI_KIND_DELETE)
        return QI_EMPTY;
    bool sound = kind == QI_KIND_DELETE ? frame->length >= QI_DELETE_SIZE
                                        : frame->length >= QI_DATA_ENTRIES &&
                                              qi_data_is_sound(frame->payload + QI_DATA_ENTRIES,
                                                               frame->length - QI_DATA_ENTRIES);
    if (!sound) {
        qi_report(store, true, "", file, frame->offset,
                  "a frame of kind %u whose entries do not add up: it is left out", kind);
        qi_data_is_lost(store);
        return 0;
    }
    if (kind == QI_KIND_DELETE) {
        qi_data_forget(data, scope);
        return 0;
    }
    struct qi_data_change change;
    if (qi_data_prepare(data, scope, frame->payload + QI_DATA_ENTRIES,
                        frame->length - QI_DATA_ENTRIES, &change) != 0)
        return qi_fail(QI_E_MEMORY, "no memory for the data of the store");
    qi_data_take(data, &change);
    return 0;
}

void qi_catalog_is_gone(struct qi_store *store, const char *knows) {
    if (!store->commits->catalog_gone)
        qi_report(
            store, true, "", NAME, 0,
            "it is missing, or older than %s: what it had of data and settings is lost; put a "
            "copy of it back",
            knows);
    store->commits->catalog_gone = store->commits->catalog_hurt = true;
    qi_data_is_lost(store);
}

static int read_frames(struct qi_store *store, const struct qi_journal *journal,
                       struct qi_scan *scan) {
    uint64_t offset = QI_JOURNAL_START;
    struct qi_frame frame;
    int error = 0;
    while (!error && qi_journal_next(journal, scan, &offset, &frame)) {
        if (frame.type != QI_FRAME_EXTENDED)
            continue;
        error = qi_catalog_take(store, NAME, &frame);
        uint32_t kind = qi_get16(frame.payload);
        if (error == QI_EMPTY)
            error = kind >= QI_KIND_SKIPPED
                        ? 0
                        : qi_fail(QI_E_NEWER,
                                  "catalog has a frame of kind %u, which this qindex does not "
                                  "know: use a newer release",
                                  kind);
    }
    return error;
}

static int take_all(struct qi_store *store, struct qi_journal *journal) {
    struct qi_commits *commits = store->commits;
    uint32_t version = 0;
    bool whole;
    uint64_t number =
        number_of(commits, journal->tape.memory, journal->tape.allocated, &version, &whole);
    if (number == 0)
        return qi_fail(QI_E_CORRUPT, "catalog is damaged, both copies of its header, or of another "
                                     "store: put a copy of it back, or move it away to open the "
                                     "store without what it has of data and settings");
    if (version > QI_FORMAT_NEWEST)
        return qi_fail(QI_E_NEWER,
                       "catalog has format version %u, this qindex reads versions 1 to %u: use a "
                       "matching release",
                       version, QI_FORMAT_NEWEST);
    struct qi_scan scan;
    qi_journal_use(journal, commits->identity, number);
    qi_journal_scan(journal, UINT64_MAX, &scan);
    commits->catalog_hurt = !whole || scan.damaged || scan.cut_short || scan.mark == 0;
    if (!whole)
        qi_report(store, true, "", NAME, 0, "a copy of its header is damaged");
    if (scan.damaged || scan.cut_short || scan.mark == 0) {
        qi_report(store, true, "", NAME, scan.damaged ? scan.first_damage : scan.end,
                  "data and settings of the store or of queues are lost: the file is damaged here, "
                  "or ends too early");
        qi_data_is_lost(store);
    }
    commits->catalog = number;
    return read_frames(store, journal, &scan);
}

int qi_catalog_read(struct qi_store *store) {
    struct qi_journal journal = {.tape = {.file = -1}};
    int error = load(store, &journal);
    if (error == -ENOENT)
        return 0;
    if (error)
        error = qi_fail_disk(error, "cannot read", NAME);
    else
        error = take_all(store, &journal);
    qi_tape_close(&journal.tape);
    /* Its name is durable before a log goes that only the catalog before it needed. */
    if (!error && !store->options.read_only) {
        int synced = store->disk->ops->sync_dir(store->disk, store->root);
        error = synced ? qi_fail_disk(synced, "cannot sync", "the directory of the store") : 0;
    }
    return error;
}
