/* recover.c - from files to maps: which journal is the truth, which segments it names, what happened since.
 *
 * Opening is a barrier (H12): what is shown was synced first, re-read from the medium, and its tail rewritten, so a
 * power cut right after open takes nothing back. Cost: one pass over the journals (at most two), one stat per segment;
 * segment files are read when somebody needs them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "crc32c.h"
#include "store.h"

/* H12: what the cache holds reaches the medium before it is read; then the cache is dropped, because after a failed
 * sync in an earlier life it may hold what the medium does not. */
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
    int error = 0;
    if (!reading) {
        error = disk->ops->sync(disk, file);
        if (!error)
            disk->ops->drop_cache(disk, file);
    }
    if (error) {
        disk->ops->close(disk, file);
        return qi_fail_disk(error, "cannot sync", name);
    }
    uint64_t mapped = 2 * store->options.max_journal_bytes + (UINT64_C(8) << 20) + QI_JOURNAL_START;
    if (mapped > QI_LOC_OFFSET_MAX)
        mapped = QI_LOC_OFFSET_MAX;
    error = qi_tape_open(&queue->journals[which].tape, disk, file, reading ? 0 : mapped,
                         store->use_mapping && !reading);
    return error ? qi_fail_disk(error, "cannot read", name) : 0;
}

/* A reader beside a live writer: the pair of journals must be of one moment. */
static bool pair_is_steady(struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    for (uint32_t which = 0; which < 2; which++) {
        const struct qi_tape *tape = &queue->journals[which].tape;
        int file = disk->ops->open(disk, queue->dir, qi_journal_name(which), QI_OPEN_READ);
        if ((file < 0) != (tape->file < 0)) {
            if (file >= 0)
                disk->ops->close(disk, file);
            return false;
        }
        if (file < 0)
            continue;
        uint8_t header[QI_JH_SIZE];
        int64_t got = disk->ops->read(disk, file, header, sizeof header, 0);
        disk->ops->close(disk, file);
        if (got != sizeof header || tape->allocated < sizeof header ||
            memcmp(header, tape->memory, sizeof header) != 0)
            return false;
    }
    return true;
}

static int open_journals(struct qi_queue *queue) {
    for (int attempt = 0;; attempt++) {
        int error = open_journal(queue, 0);
        if (!error)
            error = open_journal(queue, 1);
        if (error || !queue->store->options.read_only || attempt == 100 || pair_is_steady(queue))
            return error;
        qi_tape_close(&queue->journals[0].tape);
        qi_tape_close(&queue->journals[1].tape);
    }
}

/* Finds the current journal and the MANIFEST to begin with. */
static int choose(struct qi_queue *queue, struct qi_journal_scan *scan,
                  struct qi_manifest *manifest) {
    bool valid[2] = {false, false}, damaged = false;
    uint64_t epochs[2] = {0, 0};
    for (uint32_t which = 0; which < 2; which++) {
        struct qi_journal *journal = &queue->journals[which];
        valid[which] = qi_journal_read_header(journal, queue->identity, &epochs[which], &damaged) &&
                       epochs[which] % 2 == which;
        if (valid[which])
            qi_journal_use(journal, queue->identity, epochs[which]);
        if (valid[which] && damaged)
            qi_report(queue->store, true, queue->directory, qi_journal_name(which), 0,
                      "one of two header copies is damaged");
    }
    uint32_t current = epochs[1] > epochs[0];
    for (int attempt = 0; attempt < 2 && valid[current]; attempt++, current ^= 1) {
        struct qi_journal *journal = &queue->journals[current];
        qi_journal_scan(journal, scan);
        struct qi_frame frame;
        uint64_t at = scan->manifest;
        if (at &&
            qi_frame_read(journal->seed, journal->tape.memory, scan->end, at, 0, &frame) ==
                QI_FRAME_VALID &&
            qi_read_manifest(&frame, manifest)) {
            queue->epoch = epochs[current];
            return 0;
        }
        /* A rotation that did not reach the medium: the epoch before is still whole, and nothing of this one was
         * confirmed. A MARK or a flushed predecessor says otherwise: then the manifest was damaged. */
        if (scan->damaged || !valid[current ^ 1] || epochs[current ^ 1] + 1 != epochs[current])
            break;
    }
    return qi_fail(QI_E_CORRUPT,
                   "queue %s: both journals are damaged; work on a copy and salvage its segments",
                   queue->directory);
}

/* The segments as the manifest says. H18: a named file must be there, unless the journal shows that all of it is acked
 * (checked after the replay). */
static int take_manifest(struct qi_queue *queue, const struct qi_manifest *manifest) {
    uint32_t entries = queue->store->options.segment_entries;
    queue->flushed_epoch = manifest->flushed_epoch;
    queue->session = manifest->session;
    queue->floor = manifest->floor;
    queue->reserved = manifest->reserved;
    for (uint32_t i = 0; i < manifest->count; i++) {
        const uint8_t *at = manifest->segments + (uint64_t)i * QI_MANIFEST_SEGMENT;
        struct qi_segment *segment = qi_segment_make(&queue->segments, qi_get64(at));
        if (!segment)
            return qi_fail(QI_E_MEMORY, "no memory for the table of segments");
        segment->length = qi_get32(at + 8);
        segment->flushed_unacked = qi_get16(at + 12);
        segment->flushed_transient = qi_get16(at + 14);
        bool below = segment->number * entries < queue->floor; /* its transients died */
        segment->unacked = segment->flushed_unacked - (below ? segment->flushed_transient : 0u);
        segment->transient = below ? 0 : segment->flushed_transient;
        queue->depth += segment->unacked;
        if (queue->next < (segment->number + 1) * entries)
            queue->next = (segment->number + 1) * entries;
    }
    return 0;
}

static void report_scan(struct qi_queue *queue, const struct qi_journal *journal,
                        const struct qi_journal_scan *scan) {
    const char *name = qi_journal_name(journal->epoch);
    if (scan->torn_bytes)
        qi_report(queue->store, false, queue->directory, name, scan->end,
                  "a torn tail of %llu bytes was cut: nothing in it was ever confirmed",
                  (unsigned long long)scan->torn_bytes);
    if (scan->damaged)
        qi_report(queue->store, true, queue->directory, name, scan->first_damage,
                  "%llu damaged places (%llu bytes) among durable records; the rest is kept",
                  (unsigned long long)scan->damaged, (unsigned long long)scan->damaged_bytes);
}

static int replay_both(struct qi_queue *queue, const struct qi_journal_scan *scan) {
    uint64_t orphans = 0;
    int error = 0;
    if (queue->flushed_epoch + 1 < queue->epoch) { /* the epoch before was not (wholly) flushed */
        struct qi_journal *old = qi_previous(queue);
        if (old->tape.file >= 0 && old->epoch + 1 == queue->epoch) {
            struct qi_journal_scan old_scan;
            qi_journal_scan(old, &old_scan);
            report_scan(queue, old, &old_scan);
            error = qi_replay(queue, old, &old_scan, &orphans);
            old->tail = old_scan.end;
            if (!error && !queue->store->options.read_only)
                error = qi_flush_snapshot(queue, old->epoch);
        } else {
            qi_report(queue->store, true, queue->directory, qi_journal_name(queue->epoch - 1), 0,
                      "the journal of the epoch before is missing or damaged; what it alone held "
                      "is lost");
        }
    }
    if (!error)
        error = qi_replay(queue, qi_current(queue), scan, &orphans);
    if (orphans)
        qi_report(queue->store, true, queue->directory, qi_journal_name(queue->epoch), 0,
                  "%llu deliveries or acks without a publish were ignored",
                  (unsigned long long)orphans);
    return error;
}

struct strays {
    struct qi_queue *queue;
    uint64_t *numbers;
    uint32_t count, room;
};

static void note_stray(void *context, const char *name) {
    struct strays *strays = context;
    char *end, expected[32];
    uint64_t number = strtoull(name, &end, 10);
    qi_segment_name(number, expected);
    if (strcmp(name, expected) != 0)
        return;
    struct qi_segment *segment = qi_segment_find(&strays->queue->segments, number);
    if (segment && segment->length > 0)
        return;
    if (strays->count == strays->room) {
        uint32_t room = strays->room ? strays->room * 2 : 16;
        uint64_t *numbers = realloc(strays->numbers, room * sizeof *numbers);
        if (!numbers)
            return;
        strays->numbers = numbers;
        strays->room = room;
    }
    strays->numbers[strays->count++] = number;
}

/* Segment files that no manifest names: from a flush that was cut off (the journal has it all), or dead already. Ours
 * by their header, so they may go; anything else is left alone (H18). */
static void remove_strays(struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    struct strays strays = {.queue = queue};
    disk->ops->list(disk, queue->dir, note_stray, &strays);
    for (uint32_t i = 0; i < strays.count; i++) {
        char name[32];
        qi_segment_name(strays.numbers[i], name);
        struct qi_segment stray = {.number = strays.numbers[i], .length = QI_SEGMENT_START};
        uint32_t seed;
        int file = qi_segment_open(queue, &stray, &seed);
        if (file >= 0) {
            disk->ops->close(disk, file);
            disk->ops->unlink(disk, queue->dir, name);
            queue->dir_unsynced = true;
        }
    }
    free(strays.numbers);
}

static void check_segments(struct qi_queue *queue) {
    struct qi_disk *disk = queue->store->disk;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = queue->segments.items + queue->segments.start + i;
        if (segment->length == 0 || segment->unacked == 0)
            continue;
        char name[32];
        qi_segment_name(segment->number, name);
        uint64_t size = 0;
        int file = disk->ops->open(disk, queue->dir, name, QI_OPEN_READ);
        if (file >= 0) {
            disk->ops->size(disk, file, &size);
            disk->ops->close(disk, file);
        }
        if (size >= segment->length)
            continue;
        qi_report(queue->store, true, queue->directory, name, size,
                  "%llu of %u durable bytes are there; messages are lost", (unsigned long long)size,
                  segment->length);
        qi_segment_load(queue, segment); /* the counters follow what is really there */
    }
}

/* The tail is rewritten and synced; ids continue above everything that was ever promised (H10). */
static int begin_session(struct qi_queue *queue, const struct qi_journal_scan *scan) {
    struct qi_store *store = queue->store;
    struct qi_journal *journal = qi_current(queue);
    uint32_t entries = store->options.segment_entries;
    uint64_t next = 0;
    struct qi_frame frame;
    bool closed = scan->closed && scan->torn_bytes == 0 && scan->damaged == 0;
    if (closed) /* CLOSE is 36 bytes long */
        closed = qi_frame_read(journal->seed, journal->tape.memory, scan->end, scan->end - 36, 0,
                               &frame) == QI_FRAME_VALID &&
                 qi_read_close(&frame, &next);
    if (closed) {
        queue->next = next;
    } else if (queue->next < queue->reserved) {
        queue->next = queue->reserved;
    }
    bool unclean = !closed || queue->session <= store->unclean_session;
    if (unclean) { /* a segment is wholly below the floor or wholly above */
        queue->next = (queue->next + entries - 1) / entries * entries;
        qi_raise_floor(queue, queue->next);
    }
    journal->tail = scan->end;
    journal->keep_free = store->keep_free;
    qi_previous(queue)->keep_free = store->keep_free;
    if (store->options.read_only)
        return 0;
    int error = 0;
    if (!closed)
        error = qi_tape_cut(&journal->tape,
                            scan->end); /* H4: frames behind a hole must not come back */
    queue->session = store->session;
    queue->reserved = queue->next + 2 * (uint64_t)store->options.max_journal_entries;
    journal->synced = journal->marked = 0;
    if (!error)
        error = qi_append_session(queue);
    if (error)
        return qi_fail_disk(error, "cannot write the journal of", queue->directory);
    queue->lsn_base = 0;
    queue->lsn_synced = 0;
    return qi_sync_to(queue, qi_lsn(queue));
}

int qi_recover(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    struct qi_disk *disk = store->disk;
    if (queue->dir < 0)
        queue->dir = disk->ops->open_dir(disk, store->queues_dir, queue->directory);
    if (queue->dir < 0)
        return qi_fail_disk(queue->dir, "cannot open the directory of queue", queue->name);
    struct qi_journal_scan scan;
    struct qi_manifest manifest;
    int error = qi_queue_meta_read(queue);
    if (!error)
        error = open_journals(queue);
    if (!error)
        error = choose(queue, &scan, &manifest);
    if (!error)
        error = take_manifest(queue, &manifest);
    if (!error) {
        report_scan(queue, qi_current(queue), &scan);
        error = replay_both(queue, &scan);
    }
    if (!error) {
        check_segments(queue);
        if (!store->options.read_only)
            remove_strays(queue);
        if (scan.time_us > qi_now_us(store))
            store->wall_base_us += scan.time_us - qi_now_us(store);
        error = begin_session(queue, &scan);
    }
    if (error) {
        qi_queue_reset(queue);
        return error;
    }
    uint32_t entries = store->options.segment_entries;
    queue->cursor =
        queue->segments.count ? queue->segments.items[queue->segments.start].number * entries : 0;
    queue->recovered = true;
    if (queue->flush)
        store->flush_due = true;
    qi_store_dirty(store);
    return 0;
}
