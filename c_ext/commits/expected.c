/* expected.c - which logs there have to be: what store.meta says of them.
 *
 * Nothing in a log tells that its end was cut off, and nothing in `commits` that a log is gone. So
 * store.meta names the newest log, an offset below which that log is durable, and the catalog:
 * whenever it is written, and once behind the first sync of each new log and behind each new
 * catalog (durable/commit.c). It says so only when the log and the catalog are durable. A log goes
 * only when store.meta names a newer one. So a power cut leaves at least what store.meta says,
 * whatever it takes; what is not there was cut or removed by something else. The header of a log
 * says where the one before ends, which is durable up to there when another begins.
 *
 *     session begins    a log of this number or a higher one; this one up to `end`
 *     clean end         this log, up to `end`; and so many logs
 *
 * It also says below which place no COPY is needed: behind a clean end that is the end of the
 * newest log. It stays so when later sessions append to that log and are killed: what their queues
 * have in their own files must not become older again.
 *
 * What a session appended behind `end` and did not end with a close is known by the log alone.
 */
#include "commits/commits.h"
#include "commits/commits_private.h"

static uint32_t count_to(const struct qi_commits *commits, uint64_t number) {
    uint32_t count = 0;
    for (const struct qi_commit_log *log = commits->oldest; log; log = log->newer)
        count += log->journal.epoch <= number;
    return count;
}

/* The newest log whose name is durable; NULL: there is none. */
static const struct qi_commit_log *newest_durable(const struct qi_commits *commits) {
    const struct qi_commit_log *log = commits->oldest;
    while (log && commits->dir_unsynced && log->newer != commits->newest)
        log = log->newer;
    return commits->dir_unsynced && !QI_BUG(log_named_early) ? log : commits->newest;
}

bool qi_logs_are_named(const struct qi_store *store) {
    const struct qi_commits *commits = store->commits;
    const struct qi_commit_log *log = newest_durable(commits);
    return !log || (store->logs.known && store->logs.newest == log->journal.epoch &&
                    store->logs.catalog == commits->catalog);
}

void qi_logs_name(struct qi_store *store, bool clean) {
    const struct qi_commits *commits = store->commits;
    if (!commits)
        return;
    const struct qi_commit_log *log = newest_durable(commits);
    store->logs = (struct qi_logs){.known = true,
                                   .catalog = commits->catalog,
                                   .settled = store->logs.settled,
                                   .settled_end = store->logs.settled_end};
    if (!log)
        return;
    const struct qi_journal *journal = &log->journal;
    store->logs.newest = journal->epoch;
    store->logs.end = QI_BUG(log_end_named_early) ? journal->tail : journal->synced;
    store->logs.count = clean ? count_to(commits, journal->epoch) : 0;
    if (clean && (!qi_commits_needed(commits) || QI_BUG(logs_not_settled))) {
        store->logs.settled = journal->epoch;
        store->logs.settled_end = store->logs.end; /* no COPY stands behind it */
    }
}

void qi_logs_named(struct qi_commits *commits, uint64_t number) {
    commits->named = number;
    qi_commits_release(commits);
}

/* The first whole copy of the header of the next log. */
static uint64_t end_in_next(const struct qi_commits *commits, uint64_t number) {
    struct qi_disk *disk = commits->disk;
    struct qi_log_name name = qi_log_name(number + 1);
    uint8_t header[QI_JH_SIZE];
    uint64_t end = 0;
    int file = disk->ops->open(disk, commits->dir, name.text, QI_OPEN_READ);
    for (uint32_t copy = 0; file >= 0 && copy < 2 && end == 0; copy++)
        if (disk->ops->read(disk, file, header, sizeof header, copy * QI_JOURNAL_HEADER_COPY) ==
                sizeof header &&
            qi_log_header_is_whole(header))
            end = qi_get32(header + QI_LH_BEFORE);
    if (file >= 0)
        disk->ops->close(disk, file);
    return end;
}

uint64_t qi_log_end(const struct qi_store *store, uint64_t number) {
    const struct qi_logs *logs = &store->logs;
    uint64_t end = QI_BUG(log_before_not_asked) ? 0 : end_in_next(store->commits, number);
    return logs->known && logs->newest == number && logs->end > end ? logs->end : end;
}

static void report_gone(struct qi_store *store, uint64_t number) {
    char file[48];
    snprintf(file, sizeof file, "commits/%s", qi_log_name(number).text);
    qi_report(store, true, "", file, 0,
              "it is missing, although it was durable: data and settings of the store and of its "
              "queues are lost, or older, and what only this log had of messages (behind a power "
              "cut); put a copy of it back");
    qi_data_is_lost(store);
}

void qi_logs_expect(struct qi_store *store) {
    const struct qi_logs *logs = &store->logs;
    const struct qi_commits *commits = store->commits;
    uint64_t newest = commits->newest ? commits->newest->journal.epoch : 0;
    uint32_t there = count_to(commits, logs->newest);
    if (!logs->known)
        return;
    if (newest < logs->newest) {
        report_gone(store, logs->newest);
    } else if (there < logs->count && !QI_BUG(logs_not_counted)) {
        qi_report(store, true, "", "commits", 0,
                  "there are %u of the %u logs that the last session left: data and settings of "
                  "the store and of its queues may be lost, or older; put copies of the others "
                  "back",
                  there, logs->count);
        qi_data_is_lost(store);
    }
    if (commits->catalog < logs->catalog)
        qi_catalog_is_gone(store, "store.meta");
}
