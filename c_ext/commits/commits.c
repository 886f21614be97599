/* commits.c - begins, appends to, syncs and gives up commit logs (see commits.h).
 *
 * Owns the files. What must be durable before a COPY is appended is decided by the caller
 * (durable/commit.c). A log's name and its header become durable with its first sync.
 */

#include "commits/commits.h"

#include <errno.h>
#include <stdio.h>

#include "commits/commits_private.h"

#define COPY_SIZE   (QI_FRAME_HEADER + QI_COPY_BYTES) /* of the frame, without the bytes */
#define SETTLED_MIN 4096u                             /* less is not worth the call */

/* ---- a new log ---- */

/* The header of a journal, with another magic. */
static int write_header(struct qi_journal *journal, const struct qi_commits *commits,
                        uint64_t number, uint64_t now_us) {
    int error = qi_journal_begin(journal, commits->identity, number, QI_FORMAT_NEWEST, now_us);
    if (error)
        return error;
    uint8_t *header = journal->tape.memory;
    memcpy(header, QI_COMMITS_MAGIC, 8);
    qi_put64(header + QI_LH_CATALOG, commits->catalog);
    if (commits->newest && commits->newest->journal.epoch + 1 == number)
        qi_put32(header + QI_LH_BEFORE, (uint32_t)commits->newest->journal.synced);
    qi_put32(header + QI_JH_CRC, qi_crc32c(0, header, QI_JH_CRC));
    memcpy(header + QI_JOURNAL_HEADER_COPY, header, QI_JH_SIZE);
    error = qi_tape_wrote(&journal->tape, QI_JOURNAL_HEADER_COPY, QI_JH_SIZE);
    return error ? error : qi_tape_wrote(&journal->tape, 0, QI_JH_SIZE);
}

static void give_up(struct qi_commits *commits, struct qi_commit_log *log, uint64_t number) {
    qi_tape_close(&log->journal.tape);
    commits->disk->ops->unlink(commits->disk, commits->dir, qi_log_name(number).text);
}

static int open_new(struct qi_commits *commits, struct qi_commit_log *log, uint64_t number,
                    uint64_t now_us) {
    struct qi_disk *disk = commits->disk;
    struct qi_log_name name = qi_log_name(number);
    int file = disk->ops->open(disk, commits->dir, name.text, QI_OPEN_FRESH);
    if (file < 0)
        return file;
    int error = qi_tape_open(&log->journal.tape, disk, file, commits->bytes_max + QI_LOG_MORE,
                             commits->use_mapping);
    log->journal.keep_free = commits->keep_free;
    log->journal.failed = commits->failed;
    if (!error)
        error = write_header(&log->journal, commits, number, now_us);
    if (error)
        give_up(commits, log, number);
    return error;
}

/* What the newest one says is durable before another one says more: they are read as one. */
int qi_commits_begin(struct qi_commits *commits, uint64_t now_us) {
    if (qi_commits_durable(commits) < commits->end && !QI_BUG(log_begun_too_early))
        return -EAGAIN;
    struct qi_commit_log *log = qi_calloc(1, sizeof *log);
    if (!log)
        return -ENOMEM;
    log->journal.tape.file = -1;
    int error = open_new(commits, log, commits->number + 1, now_us);
    if (!error && (error = qi_catalog_draft(commits, commits->number + 1, now_us)) != 0)
        give_up(commits, log, commits->number + 1);
    if (error) {
        qi_free(log);
        return error;
    }
    commits->number++;
    commits->before += commits->goes_on ? commits->newest->journal.tail : 0;
    commits->settling = commits->oldest != NULL;
    commits->settle_at = 0;
    *(commits->newest ? &commits->newest->newer : &commits->oldest) = log;
    commits->newest = log;
    commits->goes_on = true;
    commits->dir_unsynced = !QI_BUG(log_name_not_synced);
    return 0;
}

static uint32_t count_logs(const struct qi_commits *commits) {
    uint32_t count = 0;
    for (const struct qi_commit_log *log = commits->oldest; log; log = log->newer)
        count++;
    return count;
}

bool qi_commits_fit(const struct qi_commits *commits, uint32_t frames, uint64_t bytes) {
    if (!commits->goes_on)
        return false;
    const struct qi_journal *journal = &commits->newest->journal;
    uint64_t need = frames * (uint64_t)COPY_SIZE + bytes;
    return journal->tail == QI_JOURNAL_START || journal->tail + need <= commits->bytes_max;
}

int qi_commits_room(struct qi_commits *commits, uint32_t copies, uint64_t bytes, bool needful,
                    uint64_t now_us) {
    if (qi_commits_fit(commits, copies, bytes))
        return 0;
    qi_commits_release(commits);
    return needful || count_logs(commits) < QI_COMMIT_LOGS_MAX ? qi_commits_begin(commits, now_us)
                                                               : -ENOSPC;
}

/* ---- append and sync ---- */

uint8_t *qi_put_copy(uint8_t *at, const uint8_t *identity, uint64_t epoch, uint64_t offset) {
    qi_put16(at, QI_KIND_COPY);
    memcpy(at + QI_COPY_IDENTITY, identity, QI_IDENTITY_SIZE);
    qi_put64(at + QI_COPY_EPOCH, epoch);
    qi_put64(at + QI_COPY_OFFSET, offset);
    return at + QI_COPY_BYTES;
}

int qi_commits_append(struct qi_commits *commits, const uint8_t *identity, uint64_t epoch,
                      uint64_t offset, const uint8_t *bytes, uint32_t size) {
    struct qi_journal *journal = &commits->newest->journal;
    uint8_t *at;
    int error = qi_journal_room(journal, QI_COPY_BYTES + (uint64_t)size, false, &at);
    if (error)
        return error == -EFBIG ? -ENOSPC : error;
    memcpy(qi_put_copy(at, identity, epoch, offset), bytes, size);
    error = qi_journal_append(journal, QI_FRAME_EXTENDED, QI_COPY_BYTES + size);
    commits->end = commits->before + journal->tail;
    return error;
}

int qi_commits_record(struct qi_commits *commits, uint32_t kind, const uint8_t *identity,
                      const uint8_t *bytes, uint32_t size, bool urgent) {
    struct qi_journal *journal = &commits->newest->journal;
    uint32_t length = QI_DATA_ENTRIES + size;
    uint8_t *at;
    int error = qi_journal_room(journal, length, urgent, &at);
    if (error)
        return error;
    qi_put16(at, (uint16_t)kind);
    memcpy(at + QI_DATA_SCOPE, identity, QI_IDENTITY_SIZE);
    if (size)
        memcpy(at + QI_DATA_ENTRIES, bytes, size);
    error = qi_journal_append(journal, QI_FRAME_EXTENDED, length);
    commits->newest->records += !error;
    commits->end = commits->before + journal->tail;
    return error;
}

int qi_commits_transaction_room(struct qi_commits *commits, uint64_t payload, bool urgent,
                                uint8_t **at) {
    return qi_journal_room(&commits->newest->journal, payload, urgent, at);
}

int qi_commits_transaction(struct qi_commits *commits, uint32_t payload, bool has_data) {
    struct qi_journal *journal = &commits->newest->journal;
    int error = qi_journal_append(journal, QI_FRAME_EXTENDED, payload);
    commits->newest->records += !error && has_data;
    commits->end = commits->before + journal->tail;
    return error;
}

uint64_t qi_commits_durable(const struct qi_commits *commits) {
    return commits->goes_on ? commits->before + commits->newest->journal.synced : commits->end;
}

bool qi_commits_in_doubt(const struct qi_commits *commits) {
    return commits->newest && commits->newest->journal.in_doubt;
}

void qi_commits_sync_begin(struct qi_commits *commits, struct qi_commits_sync *sync,
                           uint64_t now_us) {
    struct qi_journal *journal = &commits->newest->journal;
    *sync = (struct qi_commits_sync){.disk = commits->disk,
                                     .log = commits->newest,
                                     .dir = commits->dir_unsynced ? commits->dir : -1,
                                     .from = journal->synced,
                                     .tail = journal->tail,
                                     .end = journal->tape.allocated,
                                     .now_us = now_us};
    qi_tape_unready(&journal->tape, journal->tail);
}

int qi_commits_sync_run(const struct qi_commits_sync *sync) {
    struct qi_tape *tape = &sync->log->journal.tape;
    if (sync->tail - sync->from > SETTLED_MIN)
        qi_tape_settle(tape, sync->from, sync->end);
    int error = QI_BUG(log_not_synced) ? 0 : sync->disk->ops->sync(sync->disk, tape->file);
    if (!error && sync->dir >= 0)
        error = sync->disk->ops->sync_dir(sync->disk, sync->dir);
    return error;
}

int qi_commits_sync_end(struct qi_commits *commits, const struct qi_commits_sync *sync) {
    struct qi_journal *journal = &sync->log->journal;
    commits->dir_unsynced = false;
    journal->synced = sync->tail;
    journal->mark_time_us = sync->now_us;
    return qi_journal_mark(journal);
}

/* ---- who needs which ---- */

void qi_commits_need(struct qi_commits *commits, struct qi_queue *queue) {
    if (queue->needs)
        return;
    queue->needs = commits->newest;
    queue->needs->needed++;
}

void qi_commits_need_from(struct qi_commits *commits, struct qi_queue *queue, uint64_t number) {
    if (!queue->needs || queue->needs->journal.epoch >= number)
        return;
    struct qi_commit_log *log = queue->needs;
    log->needed--;
    while (log && log->journal.epoch < number)
        log = log->newer;
    queue->needs = log;
    if (log)
        log->needed++;
    qi_commits_release(commits);
}

/* What it says of mappings is in the catalog, too. */
static bool is_in_catalog(const struct qi_commits *commits, const struct qi_commit_log *log) {
    return log->records == 0 || log->journal.epoch < commits->catalog ||
           QI_BUG(log_gone_before_its_catalog);
}

bool qi_commits_needed(const struct qi_commits *commits) {
    for (const struct qi_commit_log *log = commits->oldest; log; log = log->newer)
        if (log->needed)
            return true;
    return false;
}

/* store.meta names a newer one: else it would miss this one. */
static bool is_replaced(const struct qi_commits *commits, const struct qi_commit_log *log) {
    return log->journal.epoch < commits->named || QI_BUG(log_gone_before_the_next_is_named);
}

void qi_commits_release(struct qi_commits *commits) {
    struct qi_commit_log *log;
    while ((log = commits->oldest) != commits->newest && log->needed == 0 &&
           is_in_catalog(commits, log) && is_replaced(commits, log)) {
        struct qi_log_name name = qi_log_name(log->journal.epoch);
        commits->oldest = log->newer;
        qi_tape_close(&log->journal.tape);
        commits->disk->ops->unlink(commits->disk, commits->dir, name.text);
        qi_free(log);
    }
}
