/* open.c - reads the commit logs when a store is opened (see commits.h; copies.c: what they have of
 * each queue).
 *
 * Nothing is believed that has no valid checksum; the seed comes from the file's name, so a log
 * with a damaged header is read all the same. A writer reads them from the medium: of a transaction
 * all or nothing has to be there.
 */
#include "commits/commits.h"

#include <errno.h>
#include <stdlib.h>

#include "commits/commits_private.h"

/* ---- reading a log ---- */

bool qi_log_header_is_whole(const uint8_t *header) {
    return memcmp(header, QI_COMMITS_MAGIC, 8) == 0 &&
           qi_get32(header + QI_JH_CRC) == qi_crc32c(0, header, QI_JH_CRC);
}

/* A version that is not known is refused. *whole: both copies are as they should be. */
static int check_header(const struct qi_commits *commits, const struct qi_journal *journal,
                        bool *whole) {
    const uint8_t *first = journal->tape.memory, *second = first + QI_JOURNAL_HEADER_COPY;
    *whole = false;
    if (journal->tape.allocated < QI_JOURNAL_START)
        return 0;
    bool is_first = qi_log_header_is_whole(first), is_second = qi_log_header_is_whole(second);
    const uint8_t *header = is_first ? first : second;
    if (!is_first && !is_second)
        return 0;
    if (qi_get32(header + QI_JH_VERSION) > QI_FORMAT_NEWEST)
        return qi_fail(QI_E_NEWER,
                       "commits/%s has format version %u, this qindex reads versions 1 to %u: use "
                       "a matching release",
                       qi_log_name(journal->epoch).text, qi_get32(header + QI_JH_VERSION),
                       QI_FORMAT_NEWEST);
    *whole = is_first && is_second && memcmp(first, second, QI_JH_SIZE) == 0 &&
             memcmp(header + QI_JH_IDENTITY, commits->identity, QI_IDENTITY_SIZE) == 0 &&
             qi_get64(header + QI_JH_EPOCH) == journal->epoch;
    return 0;
}

/* Without a MARK the header may never have been whole on the medium. It becomes so, durably, before
 * store.meta names the log. False: it did not, and the session does not go on in this log. */
static bool mend(struct qi_store *store, struct qi_journal *journal) {
    struct qi_tape *tape = &journal->tape;
    if (tape->allocated < QI_JOURNAL_START)
        return false;
    uint8_t *first = tape->memory, *second = first + QI_JOURNAL_HEADER_COPY;
    if (qi_log_header_is_whole(first))
        memcpy(second, first, QI_JH_SIZE);
    else if (qi_log_header_is_whole(second))
        memcpy(first, second, QI_JH_SIZE);
    else
        qi_put_log_header(store->commits, QI_COMMITS_MAGIC, journal->epoch, qi_wall_us(store),
                          first);
    return qi_tape_wrote(tape, 0, QI_JOURNAL_START) == 0 &&
           tape->disk->ops->sync(tape->disk, tape->file) == 0;
}

static void report_scan(struct qi_store *store, const struct qi_journal *journal,
                        const struct qi_scan *scan, bool whole) {
    char file[48];
    snprintf(file, sizeof file, "commits/%s", qi_log_name(journal->epoch).text);
    bool lacks = scan->end < journal->covered;
    if (!whole && scan->mark > 0)
        qi_report(store, true, "", file, 0, "a copy of its header is damaged");
    if (scan->torn_bytes)
        qi_report(store, false, "", file, scan->end, "a torn tail of %llu bytes%s" QI_TORN_TAIL,
                  (unsigned long long)scan->torn_bytes, QI_TAIL_CUT(store->options.read_only));
    if (lacks || scan->cut_short) {
        qi_report(store, true, "", file, scan->end,
                  "%s is gone: data and settings of the store and of its queues are lost, or "
                  "older, and what only this log had of messages (behind a power cut); put a copy "
                  "of it back",
                  lacks ? "its end, which was durable," : "the file was cut off here: its end");
        qi_data_is_lost(store);
    }
    if (!scan->damaged || (lacks && !scan->damaged_bytes))
        return;
    qi_report(store, true, "", file, scan->first_damage,
              "%llu damaged place%s (%llu byte%s) among durable records of queues: those are "
              "lost that are not in the queues' journals, too",
              (unsigned long long)scan->damaged, qi_plural(scan->damaged),
              (unsigned long long)scan->damaged_bytes, qi_plural(scan->damaged_bytes));
    qi_data_is_lost(store);
}

/* What such a log says of data and settings is in the catalog. */
static bool is_behind_catalog(const struct qi_commits *commits, uint64_t number) {
    return number < commits->catalog;
}

/* Those of a log that is older than the catalog are in that, and are not taken again: logs go one
 * by one, and a power cut may bring back one without the newer one behind it. */
static int take_record(struct qi_store *store, struct qi_commit_log *log,
                       const struct qi_frame *frame) {
    char file[48];
    snprintf(file, sizeof file, "commits/%s", qi_log_name(log->journal.epoch).text);
    uint32_t kind = qi_get16(frame->payload);
    if (kind != QI_KIND_DATA && kind != QI_KIND_DELETE)
        return QI_EMPTY;
    log->records++;
    if (is_behind_catalog(store->commits, log->journal.epoch) && !QI_BUG(old_data_taken_again))
        return 0;
    return qi_catalog_take(store, file, frame);
}

static int refuse_kind(const struct qi_commit_log *log, const char *what, uint32_t kind) {
    return qi_fail(QI_E_NEWER,
                   "commits/%s has %s of kind %u, which this qindex does not know: use a newer "
                   "release",
                   qi_log_name(log->journal.epoch).text, what, kind);
}

/* What stood in front of a clean end the queues' own files have. */
static int take_copy(const struct qi_store *store, struct qi_commit_log *log,
                     const struct qi_frame *frame, uint32_t at, uint32_t size) {
    const struct qi_logs *logs = &store->logs;
    uint64_t number = log->journal.epoch;
    bool settled =
        number < logs->settled || (number == logs->settled && frame->offset < logs->settled_end);
    if (settled)
        return qi_is_copy(frame->payload + at, size) ? 0 : QI_EMPTY;
    return qi_copies_take(store->commits, log, frame, at, size);
}

static int take_part(struct qi_store *store, struct qi_commit_log *log,
                     const struct qi_frame *frame, uint32_t at, uint32_t size) {
    struct qi_frame part = *frame; /* still at its place in the log, for findings */
    part.payload += at;
    part.length = size;
    int error = take_copy(store, log, frame, at, size);
    if (error == QI_EMPTY && qi_get16(part.payload) == QI_KIND_DATA &&
        !QI_BUG(data_of_transaction_passed_over))
        error = take_record(store, log, &part);
    if (error == QI_EMPTY && QI_BUG(data_of_transaction_passed_over))
        error = 0;
    return error == QI_EMPTY ? refuse_kind(log, "a part of a transaction", qi_get16(part.payload))
                             : error;
}

/* All of its parts count, or none: one that cannot be read stops the open. */
static int take_transaction(struct qi_store *store, struct qi_commit_log *log,
                            const struct qi_frame *frame) {
    int error = 0;
    for (uint32_t at = QI_KIND_SIZE, size; at < frame->length && !error; at += size) {
        uint32_t left = frame->length - at;
        size = left > QI_PART_SIZE ? qi_get32(frame->payload + at) : UINT32_MAX;
        at += QI_PART_SIZE;
        if (size < QI_KIND_SIZE || size > left - QI_PART_SIZE)
            return qi_fail(QI_E_CORRUPT,
                           "commits/%s: a transaction at %llu has parts that do not "
                           "fit into it",
                           qi_log_name(log->journal.epoch).text, (unsigned long long)frame->offset);
        error = take_part(store, log, frame, at, size);
    }
    return error;
}

static int take_frame(struct qi_store *store, struct qi_commit_log *log,
                      const struct qi_frame *frame) {
    uint32_t kind = qi_get16(frame->payload);
    if (kind == QI_KIND_TRANSACTION)
        return take_transaction(store, log, frame);
    int error = take_copy(store, log, frame, 0, frame->length);
    if (error == QI_EMPTY)
        error = take_record(store, log, frame);
    if (error == QI_EMPTY)
        error = kind >= QI_KIND_SKIPPED ? 0 : refuse_kind(log, "a frame", kind);
    return error;
}

static int read_frames(struct qi_store *store, struct qi_commit_log *log, struct qi_scan *scan) {
    uint64_t offset = QI_JOURNAL_START;
    struct qi_frame frame;
    int error = 0;
    while (!error && qi_journal_next(&log->journal, scan, &offset, &frame))
        if (frame.type == QI_FRAME_EXTENDED && frame.length >= QI_KIND_SIZE)
            error = take_frame(store, log, &frame);
    return error;
}

/* What is behind the end becomes zeros (H4), and the session goes on there. A log that has any
 * damage is left as it is, and one behind the catalog too: the next open would pass over the data
 * and settings that this session writes. (A power cut can take the name of the newest log and leave
 * the catalog that was written for it.) */
static void go_on_in(struct qi_commits *commits, struct qi_commit_log *log,
                     const struct qi_scan *scan, bool whole) {
    struct qi_journal *journal = &log->journal;
    commits->goes_on = false;
    journal->tail = scan->end;
    journal->synced = whole || scan->mark ? scan->end : 0; /* all of it came from the medium */
    if (!whole || scan->damaged || scan->cut_short || scan->end < journal->covered)
        return;
    if (is_behind_catalog(commits, journal->epoch) && !QI_BUG(log_goes_on_behind_catalog))
        return;
    if (qi_journal_cut_tail(journal, scan->end) != 0)
        return;
    journal->marked = scan->mark;
    journal->keep_free = commits->keep_free;
    commits->goes_on = true;
}

static int load_all(struct qi_journal *journal, struct qi_scan *scan) {
    int error = qi_tape_load(&journal->tape, 0, UINT64_MAX);
    if (!error)
        qi_journal_scan(journal, UINT64_MAX, scan);
    return error;
}

/* The session goes on behind it, so it has to be what the medium has (H12): the cache may have a
 * header or frames that a failed sync of an earlier session left there. */
static int load_durable(struct qi_journal *journal, struct qi_scan *scan) {
    struct qi_tape *tape = &journal->tape;
    int error = QI_BUG(log_barrier_left_out) ? 0 : tape->disk->ops->sync(tape->disk, tape->file);
    if (!error && !QI_BUG(log_barrier_left_out))
        error = qi_tape_forget(tape, 0, QI_JOURNAL_START);
    if (!error)
        error = qi_tape_load(tape, 0, QI_JOURNAL_START);
    if (!error && QI_BUG(log_barrier_left_out))
        return load_all(journal, scan);
    return error ? error : qi_journal_scan_medium(journal, scan);
}

static int open_log(struct qi_store *store, uint64_t number) {
    struct qi_commits *commits = store->commits;
    struct qi_disk *disk = commits->disk;
    bool reading = store->options.read_only;
    struct qi_log_name name = qi_log_name(number);
    int file =
        disk->ops->open(disk, commits->dir, name.text, reading ? QI_OPEN_READ : QI_OPEN_WRITE);
    if (file == -ENOENT && reading)
        return 0; /* the writer gave it up just now */
    struct qi_commit_log *log = file < 0 ? NULL : qi_calloc(1, sizeof *log);
    if (!log) {
        if (file >= 0)
            disk->ops->close(disk, file);
        return qi_fail_disk(file < 0 ? file : -ENOMEM, "cannot open commits", name.text);
    }
    uint64_t mapped = reading ? 0 : commits->bytes_max + QI_LOG_MORE;
    struct qi_tape *tape = &log->journal.tape;
    struct qi_scan scan;
    int error = qi_tape_open(tape, disk, file, mapped, commits->use_mapping);
    qi_journal_use(&log->journal, commits->identity, number);
    log->journal.covered = qi_log_end(store, number);
    if (!error)
        error = reading ? load_all(&log->journal, &scan) : load_durable(&log->journal, &scan);
    if (error) {
        qi_tape_close(tape);
        qi_free(log);
        return qi_fail_disk(error, "cannot read commits", name.text);
    }
    *(commits->newest ? &commits->newest->newer : &commits->oldest) = log;
    commits->newest = log;
    commits->number = number;
    bool whole;
    error = check_header(commits, &log->journal, &whole);
    if (error)
        return error;
    if (!reading && !whole && scan.mark == 0)
        whole = mend(store, &log->journal);
    report_scan(store, &log->journal, &scan, whole);
    if (whole && qi_get64(tape->memory + QI_LH_CATALOG) > commits->catalog) {
        char log[48];
        snprintf(log, sizeof log, "commits/%s", name.text);
        qi_catalog_is_gone(store, log);
    }
    error = read_frames(store, log, &scan);
    if (!error && !reading)
        go_on_in(commits, log, &scan, whole);
    return error;
}

/* ---- which logs there are ---- */

struct numbers {
    uint64_t *items;
    size_t count, room;
    bool incomplete;
};

static void note_number(void *context, const char *name) {
    struct numbers *numbers = context;
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > 18 || name[0] == '0' || strcmp(name + digits, ".log") != 0)
        return;
    if (numbers->count == numbers->room) {
        size_t room = numbers->room ? 2 * numbers->room : 8;
        uint64_t *items = qi_realloc(numbers->items, room * sizeof *items);
        numbers->incomplete = numbers->incomplete || !items;
        if (!items)
            return;
        numbers->items = items;
        numbers->room = room;
    }
    numbers->items[numbers->count++] = strtoull(name, NULL, 10);
}

static int by_number(const void *left, const void *right) {
    uint64_t one = *(const uint64_t *)left, other = *(const uint64_t *)right;
    return (one > other) - (one < other);
}

static int open_all(struct qi_store *store) {
    struct qi_commits *commits = store->commits;
    struct numbers numbers = {0};
    int error = commits->dir < 0
                    ? 0
                    : commits->disk->ops->list(commits->disk, commits->dir, note_number, &numbers);
    if (!error && numbers.incomplete)
        error = -ENOMEM;
    if (error)
        error = qi_fail_disk(error, "cannot list", "commits");
    if (!error && numbers.count)
        qsort(numbers.items, numbers.count, sizeof *numbers.items, by_number);
    for (size_t i = 0; i < numbers.count && !error; i++) {
        bool last = i + 1 == numbers.count && !store->options.read_only;
        if (last && qi_catalog_draft(commits, numbers.items[i], qi_wall_us(store)) != 0)
            error = qi_fail(QI_E_MEMORY, "no memory for the catalog");
        if (!error)
            error = open_log(store, numbers.items[i]);
    }
    qi_free(numbers.items);
    if (!error)
        qi_logs_expect(store);
    /* The next log is not behind the catalog, and has no number of one that is gone. */
    if (commits->number + 1 < commits->catalog)
        commits->number = commits->catalog - 1;
    if (commits->number < store->logs.newest)
        commits->number = store->logs.newest;
    return error;
}

/* The directory; a reader may find none. */
static int open_dir(struct qi_store *store) {
    struct qi_commits *commits = store->commits;
    struct qi_disk *disk = commits->disk;
    int error = 0;
    if (!store->options.read_only)
        error = disk->ops->make_dir(disk, store->root, "commits");
    if (error && error != -EEXIST)
        return qi_fail_disk(error, "cannot create", "commits");
    commits->dir = disk->ops->open_dir(disk, store->root, "commits");
    if (commits->dir == -ENOENT && store->options.read_only)
        return 0;
    if (commits->dir < 0)
        return qi_fail_disk(commits->dir, "cannot open", "commits");
    /* A log that is not there now must not come back in a power cut (H7). */
    error = store->options.read_only ? 0 : disk->ops->sync_dir(disk, commits->dir);
    return error ? qi_fail_disk(error, "cannot sync", "commits") : 0;
}

static void forget_all(struct qi_commits *commits) {
    while (commits->first_part) {
        struct qi_part *part = commits->first_part;
        commits->first_part = part->next;
        qi_free(part);
    }
    commits->last_part = NULL;
    while (commits->oldest) {
        struct qi_commit_log *log = commits->oldest;
        commits->oldest = log->newer;
        qi_tape_close(&log->journal.tape);
        qi_free(log);
    }
    qi_free(commits->copies);
    qi_free(commits->copied);
    qi_free(commits->draft);
    qi_data_free(&commits->data);
    commits->newest = NULL;
    commits->copies = NULL;
    commits->copied = NULL;
    commits->draft = NULL;
    commits->copies_count = commits->copies_room = commits->copied_count = commits->copied_room = 0;
    commits->number = commits->named = commits->catalog = 0;
    commits->catalog_hurt = commits->catalog_gone = false;
}

/* True if a writer came, or went on, since store.meta was read. It says then what to expect now. */
static bool is_overtaken(struct qi_store *store) {
    struct qi_logs now = qi_logs_now(store), then = store->logs;
    store->logs = now;
    return now.known != then.known || now.newest != then.newest || now.catalog != then.catalog ||
           now.count != then.count;
}

/* A reader beside a writer reads again until the catalog and the logs are of one moment. */
static int read_all(struct qi_store *store) {
    struct qi_commits *commits = store->commits;
    uint32_t findings = store->findings_count;
    bool lost = store->data_lost;
    for (int attempt = 0;; attempt++) {
        int error = qi_catalog_read(store);
        if (!error)
            error = open_all(store);
        if (!store->options.read_only || attempt == 100 || (error && error != QI_E_CORRUPT) ||
            (qi_catalog_number(store) == commits->catalog && !is_overtaken(store)))
            return error;
        forget_all(commits);
        qi_forget_findings(store, findings);
        store->data_lost = lost;
        store->loss_shown = false;
    }
}

int qi_commits_open(struct qi_store *store) {
    struct qi_commits *commits = store->commits = qi_calloc(1, sizeof *commits);
    if (!commits)
        return qi_fail(QI_E_MEMORY, "no memory for the commit log");
    *commits = (struct qi_commits){.disk = store->disk,
                                   .dir = -1,
                                   .use_mapping = store->use_mapping,
                                   .failed = &store->failed,
                                   .bytes_max = store->options.commit_log_bytes
                                                    ? store->options.commit_log_bytes
                                                    : UINT64_C(64) << 20,
                                   .keep_free = store->keep_free};
    memcpy(commits->identity, store->identity, QI_IDENTITY_SIZE);
    int error = open_dir(store);
    if (!error)
        error = read_all(store);
    if (!error && QI_BUG(log_of_unread_queue_given_up))
        qi_commits_all_taken(commits);
    return error;
}

void qi_commits_close(struct qi_store *store) {
    struct qi_commits *commits = store->commits;
    if (!commits)
        return;
    /* Who waited for another thread's sync of a queue looks at it once more. */
    for (uint32_t i = 0; i < store->queues_count; i++)
        store->queues[i]->needs = NULL;
    forget_all(commits);
    if (commits->dir >= 0)
        commits->disk->ops->close(commits->disk, commits->dir);
    qi_free(commits);
    store->commits = NULL;
}
