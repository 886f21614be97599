/* recover_session.c - the end of a recovery: the tail is cut (H4), and a session of the queue
 * begins (H10, H12).
 */
#include "durable/durable_private.h"

#include "index/index.h"

/* So many ReqIds at most are given out by a session whose SESSION frame is not durable: that long
 * is the promise that its number in store.meta is (FORMAT.rst, 7). */
#define PROMISED_REQ_IDS (UINT64_C(1) << 18)

/* H4 for the journal of the epoch before, which is still needed. If less of it is left than the
 * MANIFEST says, a new one says so: the MARKs to come would turn the difference into damage. */
static int cut_old(struct qi_queue *queue, const struct qi_recovery *recovery) {
    int error = qi_journal_cut_tail(qi_previous(queue), recovery->old.end);
    if (!error)
        error = qi_journal_mend(qi_previous(queue), queue->identity);
    if (error || recovery->old.end >= recovery->manifest.previous_tail)
        return error;
    return qi_append_manifest(queue, qi_current(queue), queue->flushed_epoch, recovery->old.end);
}

/* Counts below this may have been given out by sessions that ended uncleanly, the last one among
 * them. One that left a frame in the journal promised them there. Each later one may have promised
 * some by its number alone. */
static uint64_t promised(const struct qi_queue *queue) {
    uint64_t unclean = queue->store->unclean_session;
    uint64_t silent = unclean > queue->session ? unclean - queue->session : 0;
    return queue->reserved + (QI_BUG(silent_sessions_forgotten) ? 0 : silent * PROMISED_REQ_IDS);
}

/* Where everything is durable and in order, no sync is waited for: a SESSION that a power cut takes
 * away takes what was appended behind it, too, and the next recovery knows by the session's number
 * which ReqIds it may have given out. 1, 0 or -errno. */
static int is_at_rest(struct qi_queue *queue, const struct qi_recovery *recovery) {
    bool rests = qi_is_covered(queue) && !recovery->has_old && !recovery->lacks_old;
    int whole = rests ? qi_is_whole(qi_current(queue), &recovery->scan) : 0;
    return QI_BUG(torn_tail_at_rest) && rests ? 1 : whole;
}

/* The tail is rewritten and synced; ids continue above everything that was ever promised (H10). */
int qi_begin_recovered(struct qi_queue *queue, const struct qi_recovery *recovery) {
    const struct qi_scan *scan = &recovery->scan;
    struct qi_store *store = queue->store;
    struct qi_journal *journal = qi_current(queue);
    uint32_t entries = store->options.segment_entries;
    uint64_t promise = promised(queue);
    bool closed = scan->closed && scan->torn_bytes == 0 && scan->damaged == 0;
    /* In an unclean session ReqIds may have been handed out behind the CLOSE, without a trace. */
    bool unclean = !closed || queue->session <= store->unclean_session;
    if (closed && (!unclean || store->options.read_only || QI_BUG(close_believed))) {
        queue->lanes.items[0].next = scan->next;
        if (queue->highest < scan->next)
            queue->highest = scan->next;
    } else if (!QI_BUG(reserve_ignored)) {
        qi_lanes_raise(queue, promise);
    }
    int error = 0;
    if (unclean &&
        !store->options.read_only) { /* a segment is wholly below the floor or wholly above */
        qi_lanes_raise(queue, (queue->highest + entries - 1) / entries * entries);
        if (!QI_BUG(floor_not_raised))
            error = qi_raise_floor(queue, queue->highest);
    }
    journal->tail = scan->end + (QI_BUG(append_behind_torn_tail) ? scan->torn_bytes : 0);
    journal->keep_free = store->keep_free;
    journal->drain_room = qi_room_to_drain(queue);
    qi_previous(queue)->keep_free = store->keep_free;
    if (store->options.read_only || error)
        return error;
    qi_count_dead_segments(queue);
    int rests = is_at_rest(queue, recovery);
    queue->written = true;
    error = rests < 0 ? rests : rests ? 0 : qi_journal_cut_tail(journal, scan->end);
    if (!error && !rests) /* before a MARK says that the header was durable */
        error = qi_journal_mend(journal, queue->identity);
    if (!error && recovery->has_old)
        error = cut_old(queue, recovery);
    queue->session = store->session;
    queue->reserved = queue->highest + 2 * (uint64_t)store->options.max_journal_entries;
    journal->synced = journal->settled = scan->end; /* by the barrier */
    journal->marked = 0;
    if (!error)
        error = qi_append_session(queue);
    if (error)
        return qi_fail_disk_of(queue, error, "cannot write", "the journal");
    queue->lsn_base = 0;
    if (rests) {
        promise += PROMISED_REQ_IDS;
        queue->reserved_durable = promise < queue->reserved ? promise : queue->reserved;
        queue->next_is_stale = true;
        queue->old_unsynced = queue->dir_unsynced = false;
        queue->lsn_synced = scan->end;
        return 0;
    }
    /* After a clean end too: the session before may have met an unclean one, and not rotated
     * since. */
    queue->next_is_stale = !recovery->has_old;
    queue->old_unsynced = recovery->has_old; /* its header may have been mended */
    queue->dir_unsynced = true;              /* an earlier life's names (H7) */
    queue->lsn_synced = 0;
    if (QI_BUG(session_not_synced)) {
        queue->reserved_durable = queue->reserved;
        return 0;
    }
    return qi_sync_to(queue, qi_lsn(queue));
}
