/* recover.c - from files to maps: the true journal, the segments that it names, what came since.
 *
 * Opening is a barrier (H12): what the journals say is durable before it is read
 * (recover_journals.c), after an unclean end the bodies that they name too. Then the tail is cut
 * (H4), a SESSION frame appended and synced: a power cut right after open takes nothing back.
 * Segments need no sync: a MANIFEST names only what was durable. They are read when needed. Cost:
 * the journals' bytes, one open per segment, after an unclean end the bodies behind the last MARK.
 */
#include "durable/durable_private.h"

#include <assert.h>
#include <errno.h>

#include "index/index.h"

/* So many ReqIds may have been given out that nothing tells of: more than days of them (H10). */
#define LOST_REQ_IDS (UINT64_C(1) << 40)
/* The last MANIFEST of the journal that becomes the current one: 1, 0 (none), or an error. */
static int take_journal(struct qi_queue *queue, uint32_t which, struct qi_recovery *recovery) {
    struct qi_journal *journal = &queue->journals[which];
    struct qi_frame frame;
    int error = recovery->ended ? 0 : qi_recover_scan(queue, journal, &recovery->scan);
    queue->epoch = journal->epoch;
    if (error || recovery->scan.manifest == 0)
        return error;
    if (qi_frame_read(journal->seed, journal->tape.memory, recovery->scan.end,
                      recovery->scan.manifest, 0, &frame) != QI_FRAME_VALID) /* the scan saw it */
        return qi_fail_changed(qi_journal_name(which), qi_name_of(queue).text);
    return qi_read_manifest(&frame, &recovery->manifest);
}

/* It was durable, and is damaged. What it said is found out as far as can be: the old journal is
 * replayed if it is there, every segment file counts. */
static int do_without_manifest(struct qi_queue *queue, struct qi_recovery *recovery) {
    const struct qi_journal *old = qi_previous(queue);
    bool has_old = old->tape.file >= 0 && old->epoch + 1 == queue->epoch;
    if (recovery->scan.damaged == 0) {
        int error = qi_recover_scan_behind(queue, qi_current(queue), &recovery->scan);
        if (error)
            return error;
    }
    recovery->lacks_manifest = true;
    recovery->manifest =
        (struct qi_manifest){.flushed_epoch = has_old ? queue->epoch - 2 : queue->epoch - 1};
    qi_report(queue->store, true, queue->directory, qi_journal_name(queue->epoch), QI_JOURNAL_START,
              "the MANIFEST is damaged: every segment file is taken for all that it holds");
    return 0;
}

/* Without a MARK the header may never have been whole on the medium: a power cut may tear it. */
static void report_headers(struct qi_queue *queue, const struct qi_recovery *recovery,
                           const bool damaged[2]) {
    bool needs_old = recovery->manifest.flushed_epoch + 1 < queue->epoch;
    for (uint32_t which = 0; which < 2; which++)
        if (damaged[which] && recovery->scan.mark > 0 && (which == queue->epoch % 2 || needs_old))
            qi_report(queue->store, true, queue->directory, qi_journal_name(which), 0,
                      "one of two header copies is damaged");
}

/* A later epoch in the commit log was durable, and its journal is gone. To begin that epoch again
 * would lay old COPYs over new frames one day. */
static int check_epoch(const struct qi_queue *queue) {
    uint64_t epoch = qi_commits_epoch(queue->store->commits, queue->identity);
    if (epoch <= queue->epoch)
        return 0;
    return qi_fail(QI_E_CORRUPT,
                   "queue %s: %s of epoch %llu is damaged or missing, the commit log has bytes of "
                   "it; work on a copy and salvage what is left",
                   qi_name_of(queue).text, qi_journal_name(epoch), (unsigned long long)epoch);
}

/* Finds the current journal and the MANIFEST to begin with. */
static int choose(struct qi_queue *queue, struct qi_recovery *recovery) {
    bool valid[2] = {false, false}, damaged[2] = {false, false};
    uint64_t epochs[2] = {0, 0};
    for (uint32_t which = 0; which < 2; which++) {
        struct qi_journal *journal = &queue->journals[which];
        valid[which] =
            qi_journal_read_header(journal, queue->identity, &epochs[which], &damaged[which]) &&
            epochs[which] % 2 == which;
        journal->epoch = 0;
        int error =
            valid[which] ? qi_check_version(queue, qi_journal_name(which), journal->version) : 0;
        if (error)
            return error;
        if (valid[which])
            qi_journal_use(journal, queue->identity, epochs[which]);
        if (valid[which] && !QI_BUG(copies_are_no_marks))
            journal->covered =
                qi_commits_covered(queue->store->commits, queue->identity, epochs[which]);
    }
    uint32_t current = epochs[1] > epochs[0], other = current ^ 1;
    if (!valid[current])
        return qi_fail(
            QI_E_CORRUPT,
            "queue %s: both journals are damaged; work on a copy and salvage its segments",
            qi_name_of(queue).text);
    int taken = take_journal(queue, current, recovery);
    if (taken == 0) {
        /* A rotation that did not reach the medium: the epoch before is still whole, and nothing of
         * this one was confirmed. A MARK or a flushed predecessor says otherwise: then the manifest
         * was damaged. */
        bool never_there =
            recovery->scan.damaged == 0 && valid[other] && epochs[other] + 1 == epochs[current];
        uint64_t torn_bytes = recovery->scan.torn_bytes;
        taken = never_there ? take_journal(queue, other, recovery) : 0;
        if (taken == 0)
            taken = do_without_manifest(queue, recovery);
        else if (taken > 0 && torn_bytes) /* as any torn tail: somebody may miss what was in it */
            qi_report(queue->store, false, queue->directory, qi_journal_name(epochs[current]),
                      QI_JOURNAL_START,
                      "a journal of %llu bytes, torn at its start, was cut: " QI_TORN_TAIL,
                      (unsigned long long)torn_bytes);
    }
    report_headers(queue, recovery, damaged);
    return taken < 0 ? taken : check_epoch(queue);
}

/* The segments of the manifest. H18: each has to be there (checked after the replay). */
static int take_manifest(struct qi_queue *queue, const struct qi_manifest *manifest) {
    uint32_t entries = queue->store->options.segment_entries;
    queue->flushed_epoch = manifest->flushed_epoch;
    queue->session = manifest->session;
    queue->floor = manifest->floor;
    queue->reserved = manifest->reserved;
    uint64_t lowest = 0;
    for (uint32_t i = 0; i < manifest->count; i++) {
        const uint8_t *at = manifest->segments + (uint64_t)i * QI_MANIFEST_SEGMENT;
        uint64_t number = qi_get64(at);
        uint16_t unacked = qi_get16(at + 12), transient = qi_get16(at + 14);
        if (number < lowest || number > qi_segment_number(queue, QI_REQ_ID_MASK) ||
            (qi_get32(at + 8) & ~QI_MANIFEST_ALT) >
                QI_LOC_OFFSET_MAX) /* no writer of ours does that */
            return qi_fail(QI_E_CORRUPT, "queue %s: its manifest names segments that cannot be",
                           qi_name_of(queue).text);
        lowest = number + 1;
        struct qi_segment *segment = qi_segment_make(&queue->segments, number);
        if (!segment)
            return qi_fail(QI_E_MEMORY, "no memory for the table of segments");
        segment->length = qi_get32(at + 8) & ~QI_MANIFEST_ALT;
        segment->alt = (qi_get32(at + 8) & QI_MANIFEST_ALT) != 0;
        segment->flushed_unacked = unacked;
        segment->flushed_transient = transient < unacked ? transient : unacked;
        segment->epoch = qi_get64(at + 16);
        segment->due_us = segment->flushed_due = qi_get64(at + 24);
        segment->expiry_unread = true;
        segment->bytes = QI_BYTES_UNKNOWN;
        segment->flushed_delayed = qi_get16(at + 32);
        segment->flushed_dead = qi_get16(at + 34);
        bool below = qi_count_of(number * entries) < queue->floor; /* its transients died */
        segment->unacked = segment->flushed_unacked - (below ? segment->flushed_transient : 0u);
        segment->transient = below ? 0 : segment->flushed_transient;
        segment->delayed = segment->flushed_delayed;
        segment->dead = segment->flushed_dead;
        qi_count_depth(queue, segment->unacked);
        queue->delayed += segment->delayed;
        qi_count_dead(queue, segment->dead);
        qi_held_at_most(queue, segment, segment->unacked);
        if (qi_lane_raise(queue, (number + 1) * entries) != 0)
            return QI_E_MEMORY;
    }
    return 0;
}

static void report_scan(struct qi_queue *queue, const struct qi_journal *journal,
                        const struct qi_scan *scan, const struct qi_loss *loss) {
    const char *name = qi_journal_name(journal->epoch);
    if (scan->skipped)
        qi_report(queue->store, false, queue->directory, name, 0,
                  "%u frame%s that only a newer version of qindex understands, and that others may "
                  "skip, %s skipped",
                  scan->skipped, scan->skipped == 1 ? "" : "s",
                  scan->skipped == 1 ? "was" : "were");
    if (scan->torn_bytes)
        qi_report(queue->store, false, queue->directory, name, scan->end,
                  "a torn tail of %llu bytes (at most %llu message%s)%s" QI_TORN_TAIL,
                  (unsigned long long)scan->torn_bytes,
                  (unsigned long long)qi_messages_in(scan->torn_bytes),
                  qi_messages_in(scan->torn_bytes) == 1 ? "" : "s",
                  QI_TAIL_CUT(queue->store->options.read_only));
    if (scan->cut_short)
        qi_report(queue->store, true, queue->directory, name, scan->end,
                  "a torn end: the file was cut off here, what came behind is lost; nothing tells "
                  "how many messages that were");
    if (!scan->damaged)
        return;
    char text[400] = "what was in them is not known";
    if (loss)
        qi_say_loss(loss, text, sizeof text);
    qi_report(queue->store, true, queue->directory, name, scan->first_damage,
              "%llu damaged place%s (%llu byte%s) among durable records: %s; the rest is kept",
              (unsigned long long)scan->damaged, scan->damaged == 1 ? "" : "s",
              (unsigned long long)scan->damaged_bytes, scan->damaged_bytes == 1 ? "" : "s", text);
    qi_report_lost(queue->store, loss ? loss->count - loss->acked : 0);
}

/* What lacks behind the end of the old journal, although it was durable. */
static void report_old_gone(struct qi_queue *queue, const struct qi_recovery *recovery,
                            const struct qi_loss *loss) {
    char text[400];
    qi_say_loss(loss, text, sizeof text);
    qi_report(queue->store, true, queue->directory, qi_journal_name(queue->epoch - 1),
              recovery->old.end, "%llu durable bytes at its end are gone: %s",
              (unsigned long long)recovery->old_gone,
              recovery->old.damaged ? "see what is said of its damaged places" : text);
    if (!recovery->old.damaged)
        qi_report_lost(queue->store, loss->count - loss->acked);
}

/* What the journals are like, and how many messages that costs, unless recovery has failed. */
static int report_scans(struct qi_queue *queue, const struct qi_recovery *recovery, int error) {
    const struct qi_scan *old = recovery->has_old ? &recovery->old : NULL;
    struct qi_loss losses[2] = {0};
    if (!error && (recovery->scan.damaged || recovery->old_gone || (old && old->damaged)))
        error = qi_find_losses(queue, old, recovery->old_gone, &recovery->scan, losses);
    report_scan(queue, qi_current(queue), &recovery->scan, error ? NULL : &losses[1]);
    if (old)
        report_scan(queue, qi_previous(queue), old, error ? NULL : &losses[0]);
    if (recovery->old_gone)
        report_old_gone(queue, recovery, &losses[0]);
    return error;
}

static void cut_scan(struct qi_scan *scan, uint64_t end) {
    if (scan->end <= end)
        return;
    scan->torn_bytes += scan->end - end;
    scan->end = end;
    scan->closed = false;
}

/* H12 for bodies: once per store and file, not once per queue. */
static int make_bodies_durable(struct qi_queue *queue, uint32_t from) {
    struct qi_store *store = queue->store;
    if (from >= store->barrier_from || QI_BUG(body_barrier_left_out))
        return 0;
    int error = qi_messages_barrier(&store->messages, from);
    if (!error)
        store->barrier_from = from;
    return error;
}

/* The journal of the epoch before, if it is needed; its scan, or an empty one. 1, 0 or an error. */
static int old_is_there(struct qi_queue *queue, struct qi_scan *scan) {
    struct qi_journal *old = qi_previous(queue);
    *scan = (struct qi_scan){.end = QI_JOURNAL_START};
    if (old->tape.file < 0 || old->epoch + 1 != queue->epoch) {
        qi_report(
            queue->store, true, queue->directory, qi_journal_name(queue->epoch - 1), 0,
            "the journal of the epoch before is missing or damaged; what it alone held is lost");
        return 0;
    }
    int error = qi_recover_scan(queue, old, scan);
    return error ? error : 1;
}

/* If the old journal lost its tail, nothing behind it in the current one counts, unless a MARK
 * there says that the old one had been durable: then it is damage. */
static void trim(struct qi_recovery *recovery) {
    const struct qi_manifest *manifest = &recovery->manifest;
    struct qi_scan *scan = &recovery->scan;
    recovery->old_gone = 0;
    if (recovery->old.end >= manifest->previous_tail || QI_BUG(old_tail_not_compared))
        return;
    if (scan->mark > 0)
        recovery->old_gone = manifest->previous_tail - recovery->old.end;
    else
        cut_scan(scan, scan->manifest + QI_FRAME_HEADER + QI_MANIFEST_FIXED +
                           (uint64_t)manifest->count * QI_MANIFEST_SEGMENT);
}

static int replay_both(struct qi_queue *queue, struct qi_recovery *recovery) {
    uint64_t orphans = 0;
    int error = qi_refuse_unknown(queue, qi_current(queue), &recovery->scan);
    if (!error && recovery->has_old)
        error = qi_refuse_unknown(queue, qi_previous(queue), &recovery->old);
    if (!error)
        error = take_manifest(queue, &recovery->manifest);
    if (!error && recovery->lacks_old)
        error = qi_salvage_segments(queue);
    if (!error && recovery->has_old) {
        error = qi_replay(queue, qi_previous(queue), &recovery->old, &orphans);
        qi_previous(queue)->tail = recovery->old.end;
        if (!error && !queue->store->options.read_only)
            error = qi_flush_snapshot(queue, queue->epoch - 1);
    }
    if (!error)
        error = qi_replay(queue, qi_current(queue), &recovery->scan, &orphans);
    if (orphans)
        qi_report_orphans(queue->store, queue->directory, qi_journal_name(queue->epoch), orphans);
    return error;
}

/* After an unclean end: bodies are made durable (H12) and looked for. True if a journal was cut. */
static int settle_bodies(struct qi_queue *queue, struct qi_recovery *recovery, bool *cut) {
    struct qi_journal *current = qi_current(queue), *previous = qi_previous(queue);
    *cut = false;
    bool clean = recovery->scan.closed && queue->session > queue->store->unclean_session;
    if (clean || queue->store->options.read_only)
        return 0;
    uint32_t from = recovery->scan.lowest_body;
    bool old_is_durable = !recovery->has_old || recovery->scan.mark > 0;
    uint32_t from_old = old_is_durable ? UINT32_MAX : recovery->old.lowest_body;
    int error = make_bodies_durable(queue, from < from_old ? from : from_old);
    if (error)
        return error;
    uint64_t end = 0;
    if (!old_is_durable)
        error = qi_find_bodiless(queue, previous, &recovery->old, &end);
    if (end)
        cut_scan(&recovery->old, end);
    else if (!error && (error = qi_find_bodiless(queue, current, &recovery->scan, &end)) == 0 &&
             end)
        cut_scan(&recovery->scan, end);
    *cut = end != 0;
    return error;
}

static int look_for_old(struct qi_queue *queue, struct qi_recovery *recovery) {
    bool needs_old = recovery->manifest.flushed_epoch + 1 < queue->epoch;
    int there = needs_old ? old_is_there(queue, &recovery->old) : 0;
    recovery->has_old = there == 1;
    recovery->lacks_old = (needs_old && !recovery->has_old) || recovery->lacks_manifest;
    return there < 0 ? there : 0;
}

/* The journal was cut below the MANIFEST with which recovery began. So the one before it counts. */
static int fall_back(struct qi_queue *queue, struct qi_recovery *recovery) {
    struct qi_scan *scan = &recovery->scan;
    if (scan->manifest < scan->end || QI_BUG(cut_manifest_believed))
        return 0;
    uint64_t offset = QI_JOURNAL_START;
    struct qi_frame frame;
    while (qi_journal_next(qi_current(queue), scan, &offset, &frame))
        if (qi_read_manifest(&frame, &recovery->manifest))
            scan->manifest = frame.offset;
    if (scan->changed)
        return qi_fail_changed(qi_journal_name(queue->epoch), qi_name_of(queue).text);
    return look_for_old(queue, recovery);
}

static int replay(struct qi_queue *queue, struct qi_recovery *recovery) {
    bool cut = false;
    int error = look_for_old(queue, recovery);
    while (!error) {
        if (recovery->has_old)
            trim(recovery);
        error = replay_both(queue, recovery);
        if (!error)
            error = settle_bodies(queue, recovery, &cut);
        if (error || !cut)
            break;
        qi_forget_index(queue);
        error = fall_back(queue, recovery);
    }
    return report_scans(queue, recovery, error);
}

/* A flush replaces the journals that show a loss, and some of it the end of this recovery. So
 * store.meta says it first, until somebody accepts it (store/accept.c). */
static int keep_loss(struct qi_queue *queue, const struct qi_recovery *recovery) {
    struct qi_store *store = queue->store;
    const struct qi_scan *scan = &recovery->scan, *old = &recovery->old;
    bool is_lost = scan->damaged || scan->cut_short || recovery->lacks_old ||
                   recovery->lacks_manifest || recovery->old_gone ||
                   (recovery->has_old && (old->damaged || old->cut_short));
    if (!is_lost || store->options.read_only)
        return 0;
    queue->shows_loss = true;
    qi_commit_wait(store); /* a commit may be writing store.meta */
    int error = qi_store_usable(store, true);
    if (error || store->records_lost)
        return error;
    store->records_lost = true;
    return qi_meta_write(store, false);
}

/* A damaged copy is made anew from the other one; the old name of a queue that was renamed goes. */
static int read_meta(struct qi_queue *queue) {
    enum qi_meta_state state;
    int error = qi_queue_meta_read(queue, &state);
    if (error || state == QI_META_WHOLE)
        return error;
    if (state == QI_META_DAMAGED)
        qi_report(queue->store, true, queue->directory, "queue.meta", 0,
                  "one of the two copies in it is damaged");
    error = queue->store->options.read_only ? 0 : qi_queue_meta_write(queue, NULL, true);
    return error == QI_E_FULL ? 0 : error; /* what is there is enough: it is made anew next time */
}

int qi_recover(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    assert(queue->dir < 0);
    int error = store->options.read_only || queue->written ? 0 : qi_sync_earlier(store);
    if (error)
        return error;
    queue->dir = disk->ops->open_dir(disk, store->queues_dir, queue->directory);
    if (queue->dir == -ENOENT && store->options.read_only)
        return qi_fail(QI_E_MISSING, "queue %s is not in this store any more", queue->name);
    if (queue->dir < 0)
        return qi_fail_disk_of(queue, queue->dir, "cannot open", NULL);
    struct qi_recovery recovery = {0};
    queue->on_other_disk = !disk->ops->is_same_disk(disk, queue->dir, store->queues_dir);
    error = read_meta(queue);
    int ended = error ? error : qi_open_ended(queue, &recovery.scan);
    recovery.ended = ended > 0;
    error = ended ? (ended < 0 ? ended : 0) : qi_open_journals(queue);
    if (!error)
        error = choose(queue, &recovery);
    if (!error)
        error = replay(queue, &recovery);
    if (!error)
        error = keep_loss(queue, &recovery);
    if (!error)
        error = qi_check_segments(queue);
    if (!error)
        error = qi_timers_begin(queue);
    if (!error) {
        if (recovery.lacks_manifest && queue->session == 0) /* nothing tells the reserved ReqIds */
            queue->reserved = queue->highest + LOST_REQ_IDS;
        qi_note_clock(store, recovery.scan.time_us);
        if (QI_BUG(strays_removed_early))
            qi_remove_strays(queue);
        error = recovery.ended ? qi_stay_ended(queue, &recovery.scan)
                               : qi_begin_recovered(queue, &recovery);
        /* Not before the tail is cut: a MANIFEST in it may name one. Without the old journal nobody
         * knows which are. */
        if (!error && !store->options.read_only && !recovery.lacks_old)
            qi_remove_strays(queue);
    }
    if (error) {
        store->unsure = store->unsure || queue->written;
        qi_queue_reset(queue);
        return error;
    }
    queue->written = true; /* from now on by any verb */
    for (uint32_t i = 0; i < queue->lanes.count; i++) {
        struct qi_lane *lane = &queue->lanes.items[i];
        lane->cursor = qi_lane_start(lane->number);
        lane->opened = lane->next;
    }
    queue->opened_epoch = queue->epoch;
    queue->recovered = true;
    queue->counts_all = queue->highest == 0;
    if (!store->options.read_only && store->commits)
        qi_commits_taken(store->commits, queue->identity);
    if (queue->flush)
        store->flush_due = true;
    qi_store_dirty(store);
    return 0;
}
