/* recover_journals.c - the two journals as recovery finds them: what it believes of them the medium
 * has (H12).
 *
 * Owns no state. What the commit logs have of them is written into them. Then each is synced.
 * But after a failed sync in an earlier life the cache may hold what the medium does not, and no
 * sync tells: what only the cache vouches for is dropped from it, before anything else is read.
 * Those are the headers, and of a journal that is needed the frames behind the last MARK
 * (medium.c).
 */
#include "durable/durable_private.h"

#include <errno.h>

#include "index/index.h"

/* A retired journal has none, only zeros: its megabytes need not be read. */
static bool has_header(const struct qi_tape *tape) {
    static const uint8_t none[QI_JH_SIZE];
    return tape->allocated >= QI_JOURNAL_START &&
           (memcmp(tape->memory, none, QI_JH_SIZE) != 0 ||
            memcmp(tape->memory + QI_JOURNAL_HEADER_COPY, none, QI_JH_SIZE) != 0);
}

bool qi_is_covered(const struct qi_queue *queue) {
    return queue->store->earlier_durable && !queue->on_other_disk && !queue->written;
}

static bool has_copies(const struct qi_queue *queue) {
    return qi_commits_epoch(queue->store->commits, queue->identity) > 0;
}

/* Takes over the file; its header is in memory then. */
static int read_journal(const struct qi_queue *queue, struct qi_tape *tape, int file) {
    const struct qi_store *store = queue->store;
    bool reading = store->options.read_only;
    uint64_t mapped = reading && !has_copies(queue) ? 0 : qi_journal_mapped(&store->options, 0);
    int error = qi_tape_open(tape, store->disk, file, mapped, store->use_mapping);
    if (!error && !reading && !QI_BUG(cache_not_dropped))
        error = qi_tape_forget(tape, 0, QI_JOURNAL_START);
    if (!error)
        error = qi_tape_load(tape, 0, QI_JOURNAL_START);
    if (error && tape->file >= 0 && QI_BUG(unread_header_retired))
        error = 0;
    return error;
}

void qi_count_dead_segments(struct qi_queue *queue) {
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        const struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        queue->dirty_count += segment->length > 0 && segment->unacked == 0;
    }
}

int qi_stay_ended(struct qi_queue *queue, const struct qi_scan *scan) {
    struct qi_journal *journal = qi_current(queue);
    qi_count_dead_segments(queue);
    queue->lanes.items[0].next = scan->next;
    if (queue->highest < scan->next)
        queue->highest = scan->next;
    journal->tail = journal->synced = journal->settled = scan->end;
    journal->marked = 0;
    journal->keep_free = qi_previous(queue)->keep_free = queue->store->keep_free;
    journal->ended = true;
    queue->next_is_stale =
        true; /* the session before may have met an unclean end, and not rotated since */
    queue->old_unsynced = queue->dir_unsynced = false;
    queue->lsn_base = 0;
    queue->lsn_synced = qi_lsn(queue);
    queue->reserved_durable = queue->reserved;
    return 0;
}

/* Every byte of a journal that may be an ended one; 0 or -errno. No file: an empty tape. */
static int read_as_it_is(struct qi_queue *queue, uint32_t which, bool *has) {
    struct qi_store *store = queue->store;
    struct qi_tape *tape = &queue->journals[which].tape;
    int file =
        store->disk->ops->open(store->disk, queue->dir, qi_journal_name(which), QI_OPEN_WRITE);
    *has = file >= 0;
    if (file < 0)
        return file == -ENOENT ? 0 : file;
    int error = qi_tape_open(tape, store->disk, file, qi_journal_mapped(&store->options, 0),
                             store->use_mapping);
    return error ? error : qi_tape_load(tape, 0, QI_JOURNAL_START);
}

static bool copies_are_equal(const struct qi_journal *journal) {
    return journal->tape.allocated >= QI_JOURNAL_START &&
           memcmp(journal->tape.memory, journal->tape.memory + QI_JOURNAL_HEADER_COPY,
                  QI_JH_SIZE) == 0;
}

int qi_is_whole(struct qi_journal *journal, const struct qi_scan *scan) {
    if (scan->torn_bytes || scan->damaged || !copies_are_equal(journal))
        return 0;
    return qi_journal_ends_with_zeros(journal, scan->end);
}

/* 1, 0 or -errno. */
static int is_ended(struct qi_queue *queue, struct qi_journal *journal, struct qi_scan *scan) {
    struct qi_frame frame;
    struct qi_manifest manifest;
    int error = qi_tape_load(&journal->tape, 0, UINT64_MAX);
    if (error)
        return error;
    qi_journal_scan(journal, UINT64_MAX, scan);
    bool is_whole =
        scan->closed && !scan->torn_bytes && !scan->damaged && !scan->refused && !scan->skipped &&
        scan->manifest &&
        (scan->session > queue->store->unclean_session || QI_BUG(unclean_end_believed)) &&
        qi_journal_size_cut_at(scan->end) + (UINT64_C(1) << 20) >= journal->tape.allocated &&
        qi_frame_read(journal->seed, journal->tape.memory, scan->end, scan->manifest, 0, &frame) ==
            QI_FRAME_VALID &&
        qi_read_manifest(&frame, &manifest) && manifest.flushed_epoch + 1 >= journal->epoch;
    return is_whole ? qi_journal_ends_with_zeros(journal, scan->end) : 0;
}

int qi_open_ended(struct qi_queue *queue, struct qi_scan *scan) {
    const struct qi_store *store = queue->store;
    bool valid[2] = {false, false}, damaged = false, whole = true;
    uint64_t epochs[2] = {0, 0};
    if (store->options.read_only || has_copies(queue) || /* its CLOSE may be in the log alone */
        (store->unclean_session + 1 >= store->session && !QI_BUG(unclean_end_believed)))
        return 0; /* no session between these two: none that ended cleanly */
    int error = 0;
    for (uint32_t which = 0; which < 2 && !error; which++) {
        struct qi_journal *journal = &queue->journals[which];
        bool has;
        error = read_as_it_is(queue, which, &has);
        if (error || !has)
            continue;
        valid[which] = qi_journal_read_header(journal, queue->identity, &epochs[which], &damaged) &&
                       epochs[which] % 2 == which;
        whole = whole && !damaged && copies_are_equal(journal);
    }
    uint32_t current = epochs[1] > epochs[0];
    if (!error && valid[current] && whole) {
        qi_journal_use(&queue->journals[current], queue->identity, epochs[current]);
        error = is_ended(queue, &queue->journals[current], scan);
    }
    if (error > 0)
        return 1;
    qi_tape_close(&queue->journals[0].tape);
    qi_tape_close(&queue->journals[1].tape);
    return error ? qi_fail_disk_of(queue, error, "cannot read", "the journals") : 0;
}

/* A file that COPYs are written into. */
struct target {
    struct qi_disk *disk;
    int file;
};

static int put_into_file(void *context, const uint8_t *bytes, uint64_t size, uint64_t offset) {
    const struct target *target = context;
    return target->disk->ops->write(target->disk, target->file, bytes, size, offset);
}

/* The epoch in the header of a journal file, as the cache has it now; 0: there is none. */
static uint64_t epoch_of(const struct qi_queue *queue, int file) {
    struct qi_disk *disk = queue->store->disk;
    uint8_t bytes[QI_JOURNAL_START] = {0};
    struct qi_journal journal = {.tape = {.memory = bytes, .allocated = sizeof bytes}};
    uint64_t epoch = 0;
    bool damaged;
    if (disk->ops->read(disk, file, bytes, sizeof bytes, 0) < QI_JOURNAL_START ||
        !qi_journal_read_header(&journal, queue->identity, &epoch, &damaged))
        return 0;
    return epoch;
}

/* A power cut may have taken the growth of a file: it has whole pages again, so that it does not
 * look as if somebody cut it. */
static int make_long(const struct target *target, uint64_t least) {
    uint64_t size;
    int error = target->disk->ops->size(target->disk, target->file, &size);
    bool is_short = !error && size < least;
    return is_short ? target->disk->ops->allocate(target->disk, target->file, 0, least) : error;
}

/* Writes what the commit logs have of a journal into it, whatever the cache says is there: it may
 * have what the medium lacks, and a page that is written again is synced again. */
static int lay_copies(const struct qi_queue *queue, int file, uint64_t epoch) {
    struct qi_store *store = queue->store;
    struct target target = {store->disk, file};
    uint64_t covered = qi_commits_covered(store->commits, queue->identity, epoch);
    if (covered == 0 || QI_BUG(copies_not_laid))
        return 0;
    int error = make_long(&target, qi_journal_size_cut_at(covered));
    if (error)
        return qi_fail_disk_of(queue, error, "cannot extend", qi_journal_name(epoch));
    return qi_commits_lay(store->commits, queue->identity, epoch, put_into_file, &target);
}

/* The header on the medium counts: if it says another epoch than the cache did, the COPYs of that
 * one are needed. */
static int lay_again(const struct qi_queue *queue, const struct qi_tape *tape, uint64_t laid) {
    uint64_t epoch = epoch_of(queue, tape->file);
    if (epoch == laid || qi_commits_covered(queue->store->commits, queue->identity, epoch) == 0)
        return 0;
    int error = lay_copies(queue, tape->file, epoch);
    int synced = error ? 0 : tape->disk->ops->sync(tape->disk, tape->file);
    return synced ? qi_fail_disk_of(queue, synced, "cannot sync", qi_journal_name(epoch)) : error;
}

static int put_into_memory(void *context, const uint8_t *bytes, uint64_t size, uint64_t offset) {
    struct qi_tape *tape = context;
    if (offset + size > tape->allocated)
        return -EFBIG;
    memcpy(tape->memory + offset, bytes, size);
    return 0;
}

/* A reader writes nothing: it sees the journal as a writer would recover it. */
static int lay_in_memory(const struct qi_queue *queue, struct qi_journal *journal) {
    struct qi_commits *commits = queue->store->commits;
    struct qi_tape *tape = &journal->tape;
    uint64_t epoch, covered;
    bool damaged;
    if (!commits || !qi_journal_read_header(journal, queue->identity, &epoch, &damaged))
        return 0;
    covered = qi_commits_covered(commits, queue->identity, epoch);
    if (covered == 0)
        return 0;
    covered = qi_journal_size_cut_at(covered);
    if (tape->allocated < covered)
        tape->allocated = covered < tape->mapped ? covered : tape->mapped;
    return qi_commits_lay(commits, queue->identity, epoch, put_into_memory, tape);
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
        return qi_fail_disk_of(queue, file, "cannot open", name);
    bool lays = !reading && has_copies(queue);
    uint64_t epoch = lays ? epoch_of(queue, file) : 0;
    queue->written = queue->written || lays;
    int laid = lays ? lay_copies(queue, file, epoch) : 0;
    bool syncs = !reading && !qi_is_covered(queue) && !QI_BUG(barrier_left_out);
    int error = syncs && !laid ? disk->ops->sync(disk, file) : 0;
    if (error || laid) {
        disk->ops->close(disk, file);
        return laid ? laid : qi_fail_disk_of(queue, error, "cannot sync", name);
    }
    error = read_journal(queue, &queue->journals[which].tape, file);
    if (error)
        return qi_fail_disk_of(queue, error, "cannot read", name);
    return lays ? lay_again(queue, &queue->journals[which].tape, epoch) : 0;
}

/* The rest of a journal whose header is in memory, for a reader. The header is not read again: by
 * it qi_pair_is_steady knows a file that began another epoch since. */
static int read_rest(struct qi_queue *queue, uint32_t which) {
    struct qi_tape *tape = &queue->journals[which].tape;
    if (tape->file < 0)
        return 0;
    int error = has_header(tape) ? qi_tape_load(tape, QI_JOURNAL_START, UINT64_MAX) : 0;
    if (error)
        return qi_fail_disk_of(queue, error, "cannot read", qi_journal_name(which));
    return lay_in_memory(queue, &queue->journals[which]);
}

/* The file that a writer beside a reader appends to: that with the higher epoch. */
static uint32_t find_newer(struct qi_queue *queue) {
    uint64_t epochs[2] = {0, 0};
    bool damaged;
    for (uint32_t which = 0; which < 2; which++)
        if (!qi_journal_read_header(&queue->journals[which], queue->identity, &epochs[which],
                                    &damaged))
            epochs[which] = 0;
    return epochs[1] > epochs[0];
}

/* A reader beside a live writer reads again until the pair of journals is of one moment. The older
 * one is read last: nothing is appended to it any more. */
int qi_open_journals(struct qi_queue *queue) {
    for (int attempt = 0;; attempt++) {
        int error = open_journal(queue, 0);
        if (!error)
            error = open_journal(queue, 1);
        if (error || !queue->store->options.read_only)
            return error;
        uint32_t newer = find_newer(queue);
        error = read_rest(queue, newer);
        if (!error)
            error = read_rest(queue, 1 - newer);
        if (error || attempt == 100 || qi_pair_is_steady(queue))
            return error;
        qi_tape_close(&queue->journals[0].tape);
        qi_tape_close(&queue->journals[1].tape);
    }
}

static bool lacks_copies(const struct qi_journal *journal, const struct qi_scan *scan) {
    return journal->covered > 0 && (scan->damaged || scan->end < journal->covered) &&
           !QI_BUG(copies_laid_once);
}

/* After a failed sync ext4 goes on reading the new blocks of a page as zeros, whatever is written
 * to it, until the cache forgets the page. So it forgets all of them, and the COPYs are written
 * again. */
static int lay_once_more(const struct qi_queue *queue, struct qi_journal *journal) {
    struct qi_tape *tape = &journal->tape;
    int error = qi_tape_forget(tape, 0, UINT64_MAX);
    int laid = error ? 0 : lay_copies(queue, tape->file, journal->epoch);
    if (!error && !laid)
        error = tape->disk->ops->sync(tape->disk, tape->file);
    return error ? qi_fail_disk_of(queue, error, "cannot sync", qi_journal_name(journal->epoch))
                 : laid;
}

int qi_recover_scan(const struct qi_queue *queue, struct qi_journal *journal,
                    struct qi_scan *scan) {
    int error = 0;
    if (queue->store->options.read_only) /* all of it is in memory, of one moment */
        qi_journal_scan(journal, UINT64_MAX, scan);
    else
        error = qi_journal_scan_medium(journal, scan);
    if (!error && !queue->store->options.read_only && lacks_copies(journal, scan)) {
        int laid = lay_once_more(queue, journal);
        if (laid)
            return laid;
        error = qi_journal_scan_medium(journal, scan);
    }
    /* The sync that would have cut what an older epoch left behind the CLOSE never came. */
    if (scan->closed && scan->end == journal->covered && !error)
        scan->torn_bytes = 0;
    return error ? qi_fail_disk_of(queue, error, "cannot read", qi_journal_name(journal->epoch))
                 : 0;
}

int qi_recover_scan_behind(const struct qi_queue *queue, struct qi_journal *journal,
                           struct qi_scan *scan) {
    bool reading = queue->store->options.read_only;
    int error = reading ? 0 : qi_tape_load(&journal->tape, 0, UINT64_MAX);
    if (error)
        return qi_fail_disk_of(queue, error, "cannot read", qi_journal_name(journal->epoch));
    qi_journal_scan_behind(journal, scan);
    return 0;
}

/* What a frame of an unknown kind means nobody knows here: nothing behind it may be believed, and
 * nothing is changed. */
int qi_refuse_unknown(const struct qi_queue *queue, const struct qi_journal *journal,
                      const struct qi_scan *scan) {
    if (!scan->refused)
        return 0;
    return qi_fail(
        QI_E_NEWER,
        "queue %s: %s has a frame of kind %u at byte %llu, which only a newer version of "
        "qindex understands: use a matching release",
        qi_name_of(queue).text, qi_journal_name(journal->epoch), scan->refused_kind,
        (unsigned long long)scan->refused);
}
