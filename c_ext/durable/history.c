/* history.c - journals that are flushed, and the segment files that a replay of them begins with,
 * kept for a while.
 *
 * With the option keep_history a flush of epoch E renames what it has finished with, instead of
 * recycling and unlinking it: the journal to past.E.jif, a segment file N.idx that died or was
 * rewritten to past.E.N.idx. Recovery opens only journal.jif and journal.alt, so these names are
 * never taken for the truth; the journal's header gets another magic, too, once the name is
 * durable, so that not even a file that is copied back passes for a journal.
 *
 * Nothing relies on history: it comes behind the commit point of a flush (H1), no sync waits for it
 * but that of the directory that follows anyway, no failure in it fails a flush, and a power cut
 * may take any of its names: a replay begins behind the gap then. What a crash left between commit
 * and rename the next recovery renames. A journal's tape is closed in any case, so that nothing is
 * ever appended to a file that may have got another name. The bytes of all past.* of a queue have a
 * bound: beyond it the files of the oldest epochs go, and all of them when the disk is short of
 * space (H14).
 */
#include "durable/durable_private.h"

#include <stdio.h>
#include <stdlib.h>

#define PAST_NAME 64

bool qi_keeps_history(const struct qi_queue *queue) {
    return queue->store->options.keep_history > 0;
}

/* Of either journal, past.E.jif: the epoch says which it was. */
static void past_name(uint64_t epoch, const char *name, char past[PAST_NAME]) {
    bool journal = strncmp(name, "journal.", 8) == 0;
    snprintf(past, PAST_NAME, "past.%llu.%s", (unsigned long long)epoch, journal ? "jif" : name);
}

uint64_t qi_history_epoch(const char *name) {
    if (strncmp(name, "past.", 5) != 0 || name[5] < '1' || name[5] > '9')
        return 0;
    char *end;
    uint64_t epoch = strtoull(name + 5, &end, 10);
    if (strcmp(end, ".jif") == 0)
        return epoch;
    size_t digits = *end == '.' ? strspn(end + 1, "0123456789") : 0;
    const char *ending = end + 1 + digits;
    return digits && (strcmp(ending, ".idx") == 0 || strcmp(ending, ".alt") == 0) ? epoch : 0;
}

int qi_history_keep(struct qi_queue *queue, uint64_t epoch, const char *name, uint64_t bytes) {
    struct qi_disk *disk = queue->store->disk;
    char past[PAST_NAME];
    past_name(epoch, name, past);
    int error = disk->ops->rename(disk, queue->dir, name, queue->dir, past);
    if (!error && queue->past_bytes > 0)
        queue->past_bytes += bytes;
    return error;
}

struct kept {
    uint64_t epoch, bytes;
};

struct past {
    struct qi_queue *queue;
    struct kept *items;
    size_t count, room;
    bool incomplete; /* no memory */
    uint64_t remove; /* epochs up to this one go */
};

static void note_kept(void *context, const char *name) {
    struct past *past = context;
    struct qi_disk *disk = past->queue->store->disk;
    struct kept kept = {.epoch = qi_history_epoch(name)};
    int file = kept.epoch ? disk->ops->open(disk, past->queue->dir, name, QI_OPEN_READ) : -1;
    if (file < 0)
        return;
    int error = disk->ops->size(disk, file, &kept.bytes);
    disk->ops->close(disk, file);
    if (!error && past->count == past->room) {
        size_t room = past->room ? past->room * 2 : 64;
        struct kept *items = qi_realloc(past->items, room * sizeof *items);
        past->incomplete = past->incomplete || !items;
        if (!items)
            return;
        past->items = items;
        past->room = room;
    }
    if (!error)
        past->items[past->count++] = kept;
}

static void remove_kept(void *context, const char *name) {
    struct past *past = context;
    struct qi_disk *disk = past->queue->store->disk;
    uint64_t epoch = qi_history_epoch(name);
    if (epoch > 0 && epoch <= past->remove)
        disk->ops->unlink(disk, past->queue->dir, name);
}

static int by_epoch(const void *left, const void *right) {
    uint64_t one = ((const struct kept *)left)->epoch, other = ((const struct kept *)right)->epoch;
    return (one > other) - (one < other);
}

/* Publishes are refused when less than the reserve is free (H14): not because of history, so it
 * gives way earlier, by as much as the journals may grow until the next flush. */
static bool gives_way(const struct qi_store *store) {
    uint64_t left = 0;
    return store->disk->ops->free_bytes(store->disk, store->root, &left) == 0 &&
           left < 2 * store->keep_free;
}

/* The oldest epochs go, and an eighth more than must, so that the directory is not read at each
 * flush. Trouble on the way is none of the flush's: what stays goes with the next one. */
static void trim_history(struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    uint64_t most = gives_way(queue->store) ? 0 : queue->store->options.keep_history, bytes = 0;
    if (queue->past_bytes > 0 && queue->past_bytes <= most)
        return;
    struct past past = {.queue = queue};
    int error = disk->ops->list(disk, queue->dir, note_kept, &past);
    for (size_t i = 0; i < past.count; i++)
        bytes += past.items[i].bytes;
    if (!error && !past.incomplete && bytes > most) {
        qsort(past.items, past.count, sizeof *past.items, by_epoch);
        for (size_t i = 0;
             i < past.count && (bytes > most - most / 8 || past.items[i].epoch == past.remove);
             i++) {
            past.remove = past.items[i].epoch;
            bytes -= past.items[i].bytes;
        }
        disk->ops->list(disk, queue->dir, remove_kept, &past);
    }
    queue->past_bytes = error || past.incomplete ? 0 : bytes;
    qi_free(past.items);
}

void qi_history_take(struct qi_queue *queue) {
    struct qi_journal *journal = qi_previous(queue);
    if (qi_journal_cut(journal, journal->tail) == 0)
        qi_history_keep(queue, journal->epoch, qi_journal_name(journal->epoch),
                        journal->tape.allocated);
    trim_history(queue);
}

/* The flush was committed, and the power went before its journal got its name. */
void qi_history_recover(struct qi_queue *queue) {
    struct qi_journal *journal = qi_previous(queue);
    struct qi_scan scan;
    if (journal->tape.file < 0 || journal->epoch == 0 || journal->epoch + 1 != queue->epoch ||
        journal->epoch > queue->flushed_epoch || qi_recover_scan(queue, journal, &scan) != 0)
        return;
    journal->tail = scan.end;
    qi_history_take(queue);
    qi_tape_close(&journal->tape); /* the next rotation opens what has the name then */
    queue->dir_unsynced = true;
}
