/* flush.c - moves truth from the journal to the segments: write, sync, then clear (rules H1, H2,
 * H7, H9).
 *
 * begin (short, under the lock): the other journal file becomes current, and what the old one
 * changed is copied: a few bitmaps and locations per dirty segment. run (the I/O, without the
 * lock): publishes go on in the new journal meanwhile. Until the MANIFEST in the new journal says
 * that the old epoch is flushed and is durable, recovery replays the old journal on the segments as
 * they were; so an error at any step leaves the truth untouched.
 *
 * A publish, deliver and ack that all stand in the old journal leave no trace in a segment
 * file. */
#include "durable/durable_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "index/index.h"

#define FILES_AT_ONCE 64u

static void free_flush(struct qi_flush_job *flush) {
    for (uint32_t i = 0; i < flush->count; i++) {
        qi_free(flush->segments[i].slots);
        qi_free(flush->segments[i].old);
        qi_free(flush->segments[i].uses);
    }
    qi_free(flush->segments);
    qi_free(flush);
}

void qi_flush_forget(struct qi_queue *queue) {
    if (queue->flush)
        free_flush(queue->flush);
    queue->flush = NULL;
}

/* The next epoch may have begun before, in a life that lost it in a power cut: its frames would be
 * valid again. They are off the medium before the new ones come. If that sync fails nobody knows
 * whether they are (H13). */
static int empty_stale(struct qi_queue *queue, struct qi_journal *next) {
    if (QI_BUG(stale_epoch_kept) || !queue->next_is_stale)
        return 0;
    int error = qi_tape_cut(&next->tape, 0);
    if (!error && (error = next->tape.disk->ops->sync(next->tape.disk, next->tape.file)) != 0)
        qi_store_fail(queue->store, qi_fail_disk_of(queue, error, "cannot empty", "a journal"));
    queue->next_is_stale = error != 0;
    return error;
}

/* Opens the journal file of the next epoch (or recycles it) and makes it current. */
int qi_rotate(struct qi_queue *queue, uint64_t room, uint64_t ids) {
    struct qi_store *store = queue->store;
    struct qi_journal *next = qi_previous(queue);
    if (next->tape.file >= 0 && next->tape.mapped < room + store->options.max_journal_bytes)
        qi_tape_close(&next->tape);
    /* Nobody appends to this journal again: what is durable of it is said now, or damage there
     * looks like a torn tail. */
    int error = qi_journal_mark(qi_current(queue));
    if (error)
        return qi_append_failed(queue, error);
    if (next->tape.file < 0) {
        const char *name = qi_journal_name(queue->epoch + 1);
        qi_files_room(store, queue);
        uint64_t want = qi_journal_mapped(&store->options, room);
        error = store->disk->ops->open(store->disk, queue->dir, name, QI_OPEN_CREATE);
        if (error >= 0)
            error = qi_tape_open(&next->tape, store->disk, error, want, store->use_mapping);
        queue->dir_unsynced = !QI_BUG(journal_name_not_synced);
    }
    if (!error)
        error = empty_stale(queue, next);
    if (!error)
        error = qi_cut_to_use(queue, &next->tape);
    if (error)
        return qi_fail_disk_of(queue, error, "cannot open", "the next journal");
    qi_age_keep(queue);
    uint64_t reserved = queue->highest + 2 * (uint64_t)store->options.max_journal_entries + ids;
    uint64_t before = queue->reserved;
    if (reserved > before)
        queue->reserved = reserved;
    error = qi_journal_begin(next, queue->identity, queue->epoch + 1, store->options.format,
                             qi_wall_us(store));
    if (!error)
        error = qi_append_manifest(queue, next, queue->flushed_epoch, qi_current(queue)->tail);
    if (error) {
        queue->reserved = before;
        return qi_fail_disk_of(queue, error, "cannot begin", "the next journal");
    }
    next->keep_free = store->keep_free;
    queue->lsn_base += qi_current(queue)->tail;
    queue->old_unsynced = true;
    queue->epoch++;
    qi_age_note(queue);
    queue->short_of_space = qi_is_short_of_space(store);
    return 0;
}

/* What a flush has to look at: the news, or all of it if the file is written anew. */
static bool is_wanted(const struct qi_hot *hot, const struct qi_slots *slots) {
    return qi_news(slots) != 0 || (hot->old && slots->pub);
}

static bool has_places(const struct qi_hot *hot, const struct qi_slots *slots) {
    return slots->jpub || hot->old; /* of those that are wanted */
}

/* What lies behind them stays aligned. */
static size_t sides_bytes(const struct qi_slots *slots) {
    return slots->side ? (sizeof *slots->sides + slots->sides->used + 7) & ~(size_t)7 : 0;
}

/* One piece of memory: the bits, and behind them places and counts where there are any. */
static int copy_slots(const struct qi_hot *hot, uint32_t entries, struct qi_flush_segment *copy) {
    size_t bytes = 0;
    uint32_t count = 0;
    for (uint32_t first = 0; first < entries; first += 64) {
        const struct qi_slots *slots = qi_slots_of(hot, first);
        if (!is_wanted(hot, slots))
            continue;
        count++;
        bytes += sizeof *copy->slots;
        if (has_places(hot, slots))
            bytes += sizeof *copy->slots->places + qi_instants_size(&slots->published);
        bytes += slots->time ? 64 * sizeof *slots->time : 0;
        bytes += slots->count ? 64 * sizeof *slots->count : 0;
        bytes += sides_bytes(slots);
    }
    copy->slots = qi_malloc(bytes + 1);
    if (!copy->slots)
        return QI_E_MEMORY;
    uint8_t *next = (uint8_t *)(copy->slots + count);
    for (uint32_t first = 0; first < entries; first += 64) {
        const struct qi_slots *slots = qi_slots_of(hot, first);
        if (!is_wanted(hot, slots))
            continue;
        struct qi_flush_slots *to = &copy->slots[copy->slots_count++];
        *to = (struct qi_flush_slots){.first = first,
                                      .pub = slots->pub,
                                      .del = slots->del,
                                      .ack = slots->ack,
                                      .transient = slots->transient,
                                      .held = slots->held,
                                      .jtime = slots->jtime,
                                      .jside = slots->jside,
                                      .jpub = slots->jpub,
                                      .jdel = slots->jdel,
                                      .jack = slots->jack,
                                      .jcount = slots->jcount};
        if (has_places(hot, slots)) {
            to->places = (struct qi_flush_places *)next;
            memcpy(to->places->loc, slots->loc, sizeof slots->loc);
            memcpy(to->places->sum, slots->sum, sizeof slots->sum);
            next += sizeof *to->places;
            next = qi_instants_copy(&slots->published, &to->published, next);
        }
        if (slots->time) {
            to->time = memcpy(next, slots->time, 64 * sizeof *slots->time);
            next += 64 * sizeof *slots->time;
        }
        if (slots->count) {
            to->delivered = memcpy(next, slots->count, 64 * sizeof *slots->count);
            next += 64 * sizeof *slots->count;
        }
        if (slots->side) {
            to->sides = memcpy(next, slots->sides, sizeof *slots->sides + slots->sides->used);
            next += sides_bytes(slots);
        }
    }
    return 0;
}

/* Copies what the flush needs of one segment. */
static int snapshot_segment(struct qi_queue *queue, struct qi_segment *segment,
                            struct qi_flush_segment *copy) {
    struct qi_hot *hot = segment->hot;
    uint32_t entries = queue->store->options.segment_entries;
    *copy =
        (struct qi_flush_segment){.number = segment->number,
                                  .file = -1,
                                  .length = segment->length,
                                  .epoch = segment->epoch,
                                  .alt = segment->alt,
                                  .unacked = segment->unacked,
                                  .transient = segment->transient,
                                  .expiry_us = segment->earliest_expiry_us,
                                  .bytes = segment->bytes,
                                  .adds_up = !queue->measured && !queue->store->options.index_only,
                                  .lost = segment->lost};
    if (segment->unacked > 0) {
        copy->all_held = qi_segment_lane(queue, segment) >= QI_PRIORITIES;
        copy->dead = segment->dead;
        bool all = copy->all_held && !QI_BUG(delivered_not_held);
        copy->delayed = (all ? segment->unacked : hot->held_count) - segment->dead;
        copy->due_us = copy->delayed ? qi_segment_due_us(queue, segment) : 0;
        if (QI_BUG(due_bound_too_late))
            copy->due_us += QI_SOON_US;
        copy->uses = qi_malloc((hot->uses_count + 1) * sizeof *copy->uses);
        if (!copy->uses || copy_slots(hot, entries, copy) != 0)
            return qi_fail(QI_E_MEMORY, "no memory to flush");
        if (hot->uses_count)
            memcpy(copy->uses, hot->uses, hot->uses_count * sizeof *copy->uses);
        copy->uses_count = hot->uses_count;
        copy->old = hot->old;
        hot->old = NULL;
    } else if (hot) { /* its file goes, there is nothing to write anew */
        qi_free(hot->old);
        hot->old = NULL;
    }
    return 0;
}

/* Acks that recovery replayed on a segment that was not read yet: what to write is known when it
 * was. */
static int load_dirty(struct qi_queue *queue) {
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (!segment->hot || segment->hot->dirty == 0 || segment->unacked == 0)
            continue;
        int error = qi_segment_load(queue, segment);
        if (error)
            return error;
    }
    return 0;
}

int qi_flush_snapshot(struct qi_queue *queue, uint64_t epoch) {
    struct qi_segments *segments = &queue->segments;
    int error = load_dirty(queue);
    if (error)
        return error;
    struct qi_flush_job *flush = qi_calloc(1, sizeof *flush);
    if (flush)
        flush->segments = qi_calloc(segments->count + 1, sizeof *flush->segments);
    if (!flush || !flush->segments) {
        qi_free(flush);
        return qi_fail(QI_E_MEMORY, "no memory to flush");
    }
    flush->epoch = epoch;
    for (uint32_t i = 0; i < segments->count; i++) {
        struct qi_segment *segment = qi_segment_nth(segments, i);
        bool dirty = segment->hot && (segment->hot->dirty > 0 || segment->hot->old);
        bool dead = segment->unacked == 0 && segment->length > 0; /* also by the floor alone */
        if (!dirty && !dead)
            continue;
        error = snapshot_segment(queue, segment, &flush->segments[flush->count++]);
        if (error) {
            free_flush(flush);
            return error;
        }
    }
    for (uint32_t i = 0; i < flush->count; i++) {
        struct qi_hot *hot = qi_segment_find(segments, flush->segments[i].number)->hot;
        if (!hot)
            continue;
        for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
            struct qi_slots *slots = qi_slots_of(hot, slot);
            if (qi_news(slots))
                slots->jpub = slots->jdel = slots->jack = slots->jcount = slots->jtime =
                    slots->jside = 0;
        }
        hot->dirty = 0;
        hot->in_flush = true;
        if (flush->segments[i].unacked == 0) /* whatever its file says is over */
            hot->loaded = true;
    }
    queue->dirty_count = 0;
    queue->flush = flush;
    return 0;
}

int qi_flush_begin(struct qi_queue *queue, uint64_t room, uint64_t ids) {
    if (queue->flush)
        return 0;
    /* The journal before this one may be the only truth about what a snapshot that failed did not
     * copy; the verb that met the failure may still be at work, and another rotation would write
     * over it (H13). */
    if (queue->store->failed)
        return qi_store_usable(queue->store, true);
    int error = qi_files_stay(queue);
    if (!error)
        error = load_dirty(queue);
    if (!error)
        error = qi_rotate(queue, room, ids);
    if (error)
        return error;
    error = qi_flush_snapshot(queue, queue->epoch - 1);
    /* The old journal is no longer current but its changes were not copied: nothing may be appended
     * any more. */
    return error ? qi_store_fail(queue->store, error) : 0;
}

/* The disk has many files to write at a time: one after the other would cost it several times as
 * long. */
static int write_live_segments(struct qi_queue *queue, struct qi_flush_job *flush) {
    int error = 0;
    uint32_t at_once = qi_disk_share(queue->store->disk, FILES_AT_ONCE);
    for (uint32_t from = 0; from < flush->count && !error; from += at_once) {
        uint32_t left = flush->count - from, count = left < at_once ? left : at_once, i = 0;
        struct qi_flush_segment *segments = flush->segments + from;
        for (; i < count && !error; i++)
            error = segments[i].unacked ? qi_batch_write(queue, flush, &segments[i]) : 0;
        if (error && i > 1 && qi_error_is_crowded()) /* those before it give theirs back */
            at_once = count = i - 1, error = 0;
        for (i = 0; i < count; i++)
            error = qi_batch_end(queue, &segments[i], error);
    }
    return error;
}

/* A file in which something could not be read is kept under another name: there may be a way to get
 * at it (H18). */
static int remove_file(struct qi_queue *queue, const struct qi_flush_segment *segment,
                       const char *name) {
    struct qi_disk *disk = queue->store->disk;
    if (segment->lost == 0 && qi_keeps_history(queue) &&
        qi_history_keep(queue, queue->flush->epoch, name, segment->length) == 0)
        return 0;
    if (segment->lost == 0)
        return disk->ops->unlink(disk, queue->dir, name);
    char aside[32];
    snprintf(aside, sizeof aside, "%llu.bad", (unsigned long long)segment->number);
    return disk->ops->rename(disk, queue->dir, name, queue->dir, aside);
}

/* What no manifest names any more: dead segments, and the old files of those that were
 * rewritten. */
static int unlink_dead_segments(struct qi_queue *queue, struct qi_flush_job *flush) {
    for (uint32_t i = 0; i < flush->count; i++) {
        const struct qi_flush_segment *segment = &flush->segments[i];
        if (segment->length == 0 || (segment->unacked != 0 && !segment->old))
            continue;
        char name[32];
        qi_segment_name(segment->number, segment->alt, name);
        int error = remove_file(queue, segment, name);
        if (error && error != -ENOENT /* an earlier try unlinked it */)
            return qi_fail_disk_of(queue, error, "cannot remove segment", name);
    }
    return 0;
}

static int sync_directory(struct qi_queue *queue) {
    int error = queue->store->disk->ops->sync_dir(queue->store->disk, queue->dir);
    if (!error)
        return 0;
    error = qi_fail_disk_of(queue, error, "cannot sync", "the directory");
    qi_relock(queue->store);
    qi_store_fail(queue->store, error);
    qi_unlock(queue->store);
    return error;
}

/* The maps learn where their records stand now (what stood in the file before stays where it is);
 * segments that died leave the table. */
static void adopt(struct qi_queue *queue, struct qi_flush_segment *flushed) {
    struct qi_segment *segment = qi_segment_find(&queue->segments, flushed->number);
    assert(segment); /* only this takes away what a flush has */
    if (flushed->unacked == 0 || flushed->old)
        qi_segment_forget_file(queue, segment); /* it goes */
    segment->alt = flushed->unacked ? flushed->alt != (flushed->old != NULL) : false;
    segment->length = flushed->unacked ? flushed->new_length : 0;
    segment->epoch = flushed->new_epoch;
    if (flushed->old || flushed->unacked == 0)
        segment->lost = 0; /* the file in which they were is aside */
    segment->flushed_unacked = (uint16_t)(flushed->unacked + segment->lost);
    segment->flushed_transient = (uint16_t)flushed->transient;
    segment->flushed_delayed = (uint16_t)flushed->delayed;
    segment->flushed_dead = (uint16_t)flushed->dead;
    segment->flushed_due = flushed->due_us;
    if (!queue->measured)
        segment->bytes = flushed->new_bytes;
    struct qi_hot *hot = segment->hot;
    if (!hot) {
        assert(segment->unacked == 0 && segment->length == 0); /* it died unread */
        qi_segment_remove(&queue->segments, flushed->number);
        return;
    }
    hot->in_flush = false;
    for (uint32_t i = 0; i < flushed->slots_count; i++) {
        const struct qi_flush_slots *slots = &flushed->slots[i];
        uint64_t written = flushed->old ? slots->pub : slots->jpub;
        for (uint64_t bits = written & ~slots->ack; bits; bits &= bits - 1) {
            uint32_t at = (uint32_t)__builtin_ctzll(bits);
            qi_slots_of(hot, slots->first)->loc[at] = slots->places->placed[at];
        }
    }
    if (segment->unacked == 0 && segment->length == 0 && hot->dirty == 0 &&
        !qi_lane_uses(queue, segment))
        qi_segment_remove(&queue->segments, flushed->number);
}

/* Maps that nobody uses leave the memory; the tail and the head stay. */
static void cool_unused(struct qi_queue *queue) {
    uint64_t now = qi_wall_us(queue->store);
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        struct qi_hot *hot = segment->hot;
        if (!hot || hot->dirty || hot->out_count || segment->length == 0)
            continue;
        if (!qi_is_wanted_soon(queue, segment, now))
            qi_cool(queue, segment);
    }
    qi_timers_tidy(queue);
}

static int commit(struct qi_queue *queue, struct qi_flush_job *flush) {
    for (uint32_t i = 0; i < flush->count; i++)
        adopt(queue, &flush->segments[i]);
    queue->dirty_count = QI_BUG(race_flush_forgets_what_came) ? 0 : queue->dirty_count;
    int error = qi_append_manifest(queue, qi_current(queue), flush->epoch, 0);
    if (error)
        return qi_store_fail(queue->store,
                             qi_fail_disk_of(queue, error, "cannot append", "the manifest"));
    error = QI_BUG(manifest_not_synced) ? 0 : qi_sync_to(queue, qi_lsn(queue));
    flush->committed = !error;
    return error;
}

/* Called with the lock, which is given up meanwhile. */
static int write_and_commit(struct qi_queue *queue, struct qi_flush_job *flush) {
    struct qi_store *store = queue->store;
    int error = qi_sync_to(queue, queue->lsn_base); /* message files, the old journal, names */
    qi_unlock(store);
    if (QI_BUG(journal_cleared_early) && qi_journal_retire(qi_previous(queue)) == 0)
        store->disk->ops->sync(store->disk, qi_previous(queue)->tape.file);
    if (QI_BUG(journal_kept_early) && qi_keeps_history(queue))
        qi_history_take(queue);
    if (!error)
        error = write_live_segments(queue, flush); /* all are synced */
    if (!error && !QI_BUG(segment_names_not_synced))
        error = sync_directory(queue); /* new segments' names */
    if (QI_BUG(segment_unlinked_first))
        unlink_dead_segments(queue, flush);
    qi_relock(store);
    if (!error && store->failed)
        error = qi_store_usable(store, true);
    return error ? error : commit(queue, flush); /* the new journal says so, synced */
}

/* From here on the old journal's file is free for the next epoch, or history. */
static int retire_old(struct qi_queue *queue) {
    queue->flushed_epoch = queue->flush->epoch;
    qi_flush_forget(queue);
    cool_unused(queue);
    bool kept = qi_keeps_history(queue);
    int error =
        kept ? qi_journal_put_away(qi_previous(queue)) : qi_journal_retire(qi_previous(queue));
    if (kept)
        qi_tape_close(&qi_previous(queue)->tape);
    return error ? qi_store_fail(queue->store,
                                 qi_fail_disk_of(queue, error, "cannot retire", "a journal"))
                 : 0;
}

/* H1, H2, line by line. The journal that follows lies beside the old one since begin; its MANIFEST
 * is the commit point. Dead segments are unlinked behind it and before the old journal is retired,
 * so that a manifest never names a file that is gone on purpose: a missing file is damage, always
 * (H18). What a crash leaves of them recovery removes. */
int qi_flush_run(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    struct qi_flush_job *flush = queue->flush;
    if (!flush || queue->flushing)
        return 0;
    if (store->failed)
        return qi_store_usable(store, true);
    int error = qi_files_stay(queue);
    if (!error)
        error = qi_files_warm(queue, qi_previous(queue));
    if (error)
        return error;
    queue->flushing = true;
    if (!flush->committed)
        error = write_and_commit(queue, flush);
    qi_unlock(store);
    if (!error)
        error = unlink_dead_segments(queue, flush);
    if (!error && qi_keeps_history(queue))
        qi_history_take(queue);
    if (!error)
        error = sync_directory(queue);
    qi_relock(store);
    if (!error)
        error = retire_old(queue);
    queue->flushing = false;
    pthread_cond_broadcast(&store->changed);
    return error;
}

/* A file that a burst made big is cut to what so many entries as make a flush due need, by the
 * epoch before, and a quarter more: recovery reads all of it. Not before it is twice that: by
 * doubling it would be there again. */
int qi_cut_to_use(struct qi_queue *queue, struct qi_tape *tape) {
    uint64_t used = qi_current(queue)->tail, most = queue->store->options.max_journal_entries;
    if (queue->dirty_count > most)
        used = used * most / queue->dirty_count;
    uint64_t usual = (used + used / 4 + 4095) & ~UINT64_C(4095);
    return tape->allocated > 2 * usual ? qi_tape_cut(tape, usual) : 0;
}
