/* recover_journals.c - the two journals as recovery finds them: what it believes of them the medium has (H12).
 *
 * Owns no state. Each is synced first. But after a failed sync in an earlier life the cache may hold what the medium does not,
 * and no sync tells: what only the cache vouches for is dropped from it, before anything else is read. Those are the headers,
 * and of a journal that is needed the frames behind the last MARK: one says what was durable, behind a sync that came back
 * well. Behind the end there are zeros, which are dropped, too, or other bytes, which become zeros or are cut off before anything
 * is appended (qi_journal_cut_tail).
 */
#include <errno.h>

#include "bug.h"
#include "store.h"

/* A retired journal has none, only zeros: its megabytes need not be read. */
static bool has_header(const struct qi_tape *tape) {
    static const uint8_t none[QI_JH_SIZE];
    return tape->allocated >= QI_JOURNAL_START &&
           (memcmp(tape->memory, none, QI_JH_SIZE) != 0 ||
            memcmp(tape->memory + QI_JOURNAL_HEADER_COPY, none, QI_JH_SIZE) != 0);
}

/* Takes over the file; its header is in memory then, and for a reader, who takes both of one moment, all of it. */
static int read_journal(const struct qi_store *store, struct qi_tape *tape, int file) {
    uint64_t room = 2 * store->options.max_journal_bytes + (UINT64_C(8) << 20) + QI_JOURNAL_START;
    bool reading = store->options.read_only;
    uint64_t mapped = reading ? 0 : room < QI_LOC_OFFSET_MAX ? room : QI_LOC_OFFSET_MAX;
    int error = qi_tape_open(tape, store->disk, file, mapped, store->use_mapping);
    if (!error && !reading && !QI_BUG(cache_not_dropped))
        error = qi_tape_forget(tape, 0, QI_JOURNAL_START);
    if (!error)
        error = qi_tape_load(tape, 0, QI_JOURNAL_START);
    if (error && QI_BUG(unread_header_retired))
        error = 0;
    if (!error && reading && has_header(tape))
        error = qi_tape_load(tape, 0, UINT64_MAX);
    return error;
}

static int open_journal(struct qi_queue *queue, uint32_t which) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    bool reading = store->options.read_only;
    const char *name = qi_journal_name(which);
    int file = disk->ops->open(disk, queue->dir, name, reading ? QI_OPEN_READ : QI_OPEN_WRITE);
    if (file == -ENOENT)
        return 0;
    if (file < 0)
        return qi_fail_disk(file, "cannot open", name);
    int error = reading || QI_BUG(barrier_left_out) ? 0 : disk->ops->sync(disk, file);
    if (error) {
        disk->ops->close(disk, file);
        return qi_fail_disk(error, "cannot sync", name);
    }
    error = read_journal(store, &queue->journals[which].tape, file);
    return error ? qi_fail_disk(error, "cannot read", name) : 0;
}

/* A reader beside a live writer reads again until the pair of journals is of one moment. */
int qi_open_journals(struct qi_queue *queue) {
    for (int attempt = 0;; attempt++) {
        int error = open_journal(queue, 0);
        if (!error)
            error = open_journal(queue, 1);
        if (error || !queue->store->options.read_only || attempt == 100 || qi_pair_is_steady(queue))
            return error;
        qi_tape_close(&queue->journals[0].tape);
        qi_tape_close(&queue->journals[1].tape);
    }
}

/* Of a journal in the cache: where its frames end, and how much of the file may hold some. */
struct extent {
    uint64_t end, size;
};

/* What only the cache vouches for leaves it. The pages behind the end, too: what the next session appends to them must not meet
 * one whose write-back failed (ext4 goes on reading its blocks as zeros). But if there are other bytes than zeros (of a recycled file
 * megabytes, of an older epoch), those go with the cut, and nobody has to look: by the last MARK none of it was durable. */
static int drop_unvouched(struct qi_journal *journal, struct extent *extent) {
    struct qi_tape *tape = &journal->tape;
    uint64_t mark, loaded, to = UINT64_MAX;
    int error = qi_journal_last_mark(journal, &mark, &loaded);
    if (error)
        return error;
    if (mark > tape->allocated)
        mark = 0; /* no MARK of ours says that */
    error = qi_tape_load(tape, mark, loaded);
    if (error)
        return error;
    extent->end = qi_journal_walk_from(journal, mark ? mark : QI_JOURNAL_START);
    if (mark > 0 && extent->end > mark) {
        int zeros = qi_journal_ends_with_zeros(journal, extent->end);
        if (zeros < 0)
            return zeros;
        if (!zeros)
            to = extent->size = qi_journal_size_cut_at(extent->end);
    }
    return qi_tape_forget(tape, mark & ~UINT64_C(4095), to);
}

/* Is what came back from the medium what was in the cache, so that nobody has to look behind it? 1, 0 or -errno. */
static int is_as_expected(struct qi_journal *journal, const struct extent *extent,
                          const struct qi_journal_scan *scan) {
    if (scan->damaged)
        return 0;
    if (extent->size >= journal->tape.allocated)
        return 1;
    if (scan->end != extent->end || scan->torn_bytes)
        return 0;
    int zeros = qi_journal_ends_with_zeros(journal, scan->end);
    return zeros < 0 ? zeros : !zeros;
}

static int load_and_scan(struct qi_journal *journal, uint64_t size, struct qi_journal_scan *scan) {
    int error = qi_tape_load(&journal->tape, 0, size);
    if (!error)
        qi_journal_scan(journal, size, scan);
    return error;
}

/* Damage may be the cache's alone: then the medium knows better. */
int qi_recover_scan(const struct qi_queue *queue, struct qi_journal *journal,
                    struct qi_journal_scan *scan) {
    struct extent extent = {.size = UINT64_MAX};
    if (queue->store->options.read_only) { /* all of it is in memory, of one moment */
        qi_journal_scan(journal, extent.size, scan);
        return 0;
    }
    bool dropping = !QI_BUG(cache_not_dropped);
    int error = dropping ? drop_unvouched(journal, &extent) : 0;
    if (!error)
        error = load_and_scan(journal, extent.size, scan);
    int expected = error || !dropping ? 1 : is_as_expected(journal, &extent, scan);
    if (expected < 0)
        error = expected;
    if (!expected) {
        error = qi_tape_forget(&journal->tape, 0, UINT64_MAX);
        if (!error)
            error = load_and_scan(journal, UINT64_MAX, scan);
    }
    return error ? qi_fail_disk(error, "cannot read", qi_journal_name(journal->epoch)) : 0;
}

int qi_recover_scan_behind(const struct qi_queue *queue, struct qi_journal *journal,
                           struct qi_journal_scan *scan) {
    bool reading = queue->store->options.read_only;
    int error = reading ? 0 : qi_tape_load(&journal->tape, 0, UINT64_MAX);
    if (error)
        return qi_fail_disk(error, "cannot read", qi_journal_name(journal->epoch));
    qi_journal_scan_behind(journal, scan);
    return 0;
}
