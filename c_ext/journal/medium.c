/* medium.c - a journal as the medium has it, although only the cache was read.
 *
 * After a failed sync in an earlier life the cache may hold what the medium does not, and no sync
 * tells. What only the cache vouches for is dropped from it: the frames behind the last MARK, since
 * one says what was durable, behind a sync that came back well. Behind the end there are zeros,
 * which are dropped, too, or other bytes, which become zeros or are cut off before anything is
 * appended (qi_journal_cut_tail).
 */
#include "journal/journal.h"

/* Of a journal in the cache: where its frames end, and how much of the file may hold some. */
struct extent {
    uint64_t end, size;
};

/* What only the cache vouches for leaves it. The pages behind the end, too: what the next session
 * appends to them must not meet one whose write-back failed (ext4 goes on reading its blocks as
 * zeros). But if there are other bytes than zeros (of a recycled file megabytes, of an older
 * epoch), those go with the cut, and nobody has to look: by the last MARK none of it was
 * durable. */
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

/* Is what came back from the medium what was in the cache, so that nobody has to look behind it? 1,
 * 0 or -errno. */
static int is_as_expected(struct qi_journal *journal, const struct extent *extent,
                          const struct qi_scan *scan) {
    if (scan->damaged)
        return 0;
    if (extent->size >= journal->tape.allocated)
        return 1;
    if (scan->end != extent->end || scan->torn_bytes)
        return 0;
    int zeros = qi_journal_ends_with_zeros(journal, scan->end);
    return zeros < 0 ? zeros : !zeros;
}

static int load_and_scan(struct qi_journal *journal, uint64_t size, struct qi_scan *scan) {
    int error = qi_tape_load(&journal->tape, 0, size);
    if (!error)
        qi_journal_scan(journal, size, scan);
    return error;
}

/* Damage may be the cache's alone: then the medium knows better. */
int qi_journal_scan_medium(struct qi_journal *journal, struct qi_scan *scan) {
    struct extent extent = {.size = UINT64_MAX};
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
    return error;
}
