/* durable_private.h - what the files of durable/ share. */
#ifndef QI_DURABLE_PRIVATE_H
#define QI_DURABLE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "durable/durable.h"
#include "journal/journal.h"

struct qi_fields;
struct qi_file_use;
struct qi_journal;
struct qi_scan;
struct qi_msg_id;
struct qi_queue;
struct qi_tape;

/* ---- files ---- */

/* Journals and directory of a queue; the previous journal is opened only while it is not
 * flushed. */
#define QI_FILES_OF_QUEUE 3

/* It has none, and is not parked either. */
void qi_files_forget(struct qi_queue *queue);
/* After a sync: a parked queue that has nothing unsynced is in the other list. */
void qi_files_settled(struct qi_queue *queue);

/* ---- flush ---- */

/* The file of a journal that is about to be recycled gives back what the next epoch will not
 * need. */
int qi_cut_to_use(struct qi_queue *queue, struct qi_tape *tape);
int qi_flush_snapshot(struct qi_queue *queue, uint64_t epoch);
void qi_flush_forget(struct qi_queue *queue);
int qi_rotate(struct qi_queue *queue, uint64_t room, uint64_t ids);

/* Where publish records stand: in the old journal, or in the file that is written anew; and, once
 * they are written, in the segment file: a flush that failed may be run again. */
struct qi_flush_places {
    uint32_t loc[64], placed[64], sum[64];
};

/* The copy of 64 slots that have news. */
struct qi_flush_slots {
    uint32_t first; /* slot */
    uint64_t pub, del, ack, transient, held;
    uint64_t jpub, jdel, jack, jcount, jtime, jside;
    struct qi_flush_places *places; /* NULL: no publish is written */
    uint64_t *time;                 /* NULL: none is held */
    uint16_t *delivered;            /* NULL: none more than once */
    struct qi_sides *sides;         /* NULL: none has any */
};

struct qi_flush_segment {
    uint64_t number;
    uint64_t epoch, new_epoch; /* of the flush that created the file, before and after */
    int file;                  /* written and not synced yet; -1: none */
    uint32_t length;           /* durable bytes before */
    uint32_t new_length;       /* and after */
    uint32_t unacked, transient, delayed, dead, lost;
    uint64_t due_us;    /* the earliest of those that are held; 0: none is */
    uint64_t expiry_us; /* nothing in it expires before; 0: nothing does */
    uint64_t bytes;     /* that wait in it: all of them, or those in the file before if `adds_up` */
    uint64_t new_bytes; /* and in the file after */
    bool adds_up;       /* the queue is not measured: the batch says what comes */
    bool all_held;      /* of a lane of delayed messages: what is ready has a time, too */
    bool alt;           /* which of its two files, before */
    uint8_t *old; /* its bytes: the batch is the whole segment, and goes to the other file; NULL: it
                     is appended */
    struct qi_flush_slots *slots; /* their places and counts lie behind them */
    uint32_t slots_count;
    struct qi_file_use *uses;
    uint32_t uses_count;
};

static inline uint64_t qi_flush_news(const struct qi_flush_slots *slots) {
    return slots->jpub | slots->jdel | slots->jack | slots->jcount | slots->jtime | slots->jside;
}

struct qi_flush_job {
    uint64_t epoch; /* of the journal that is being emptied */
    struct qi_flush_segment *segments;
    uint32_t count;
    bool committed; /* a durable MANIFEST names what was written: it is not touched again, whatever
                       fails behind it */
};

/* ---- batch ---- */

/* Appends the batch behind the segment's durable length; the file stays open. Fills in new_length
 * and, for each publish written, its new location. Runs without the store's lock: the copy and the
 * old journal do not change. */
int qi_batch_write(struct qi_queue *queue, const struct qi_flush_job *flush,
                   struct qi_flush_segment *segment);
/* Syncs and closes the file, if there is one. After an error it is closed only. The error, or that
 * of the sync. */
int qi_batch_end(struct qi_queue *queue, struct qi_flush_segment *segment, int error);

/* ---- commit ---- */

/* Group commits: the journals of many queues are made durable by one sync of the commit log. */

/* What a sync of many queues covers of one. */
struct qi_covered {
    struct qi_queue *queue;
    uint64_t epoch, lsn, tail, reserved;
    bool logged; /* a COPY says it */
};

/* Waits until nobody commits. */
void qi_commit_wait(struct qi_store *store);
/* So many dirty queues are worth a group commit. */
bool qi_is_group(const struct qi_store *store, uint32_t count);
/* Makes durable what it can of the queues with one sync; the others are as they were. Gives the
 * lock up. 0 or the error. */
int qi_sync_group(struct qi_store *store, struct qi_covered *covered, uint32_t count);

/* The number of the newest log; 0: there is none. */
uint64_t qi_newest_log(const struct qi_store *store);
/* A sync of the queue's own files that began when that log was the newest has covered all below
 * `lsn`. */
void qi_note_settled(struct qi_queue *queue, uint64_t lsn, uint64_t log);

/* ---- sync ---- */

/* No power cut takes the journals as files: their names, headers and MANIFEST are durable. */
static inline bool qi_files_are_sure(const struct qi_queue *queue) {
    return !queue->old_unsynced && !queue->dir_unsynced &&
           queue->journals[queue->epoch & 1].settled > QI_JOURNAL_START;
}
/* Makes them so. 0 or the error. Gives the lock up. */
int qi_sync_files(struct qi_queue *queue);

/* ---- parts ---- */

/* Behind a sync of the log: what it covered gets its headers. 0 or the error. */
int qi_parts_give(struct qi_store *store, uint64_t now);
/* Where the log ends with the last of those of the queue that have none. */
uint64_t qi_parts_end(const struct qi_queue *queue);
/* The journal of the epoch before has one. */
bool qi_parts_of_old(const struct qi_queue *queue);
/* Up to there a sync of the current journal's own file may claim it. */
uint64_t qi_parts_sure(const struct qi_queue *queue);

/* ---- history ---- */

/* Behind the commit point of a flush: the previous journal becomes history, if it can; then the
 * bound. Needs no lock: until the journal is retired nobody else uses its tape. */
void qi_history_take(struct qi_queue *queue);
/* What a crash left of that. With the lock, at recovery. */
void qi_history_recover(struct qi_queue *queue);

/* ---- recover ---- */

/* Brings the index of a queue into memory (H4, H10, H12, H18, H19). */
int qi_recover(struct qi_queue *queue);

/* ---- losses ---- */

/* How many messages the damaged places of a queue's journals cost. */

#define QI_LOSS_RANGES 8u

/* ReqIds whose publishes were in a damaged place, in one lane. */
struct qi_loss_range {
    uint64_t first, count, acked; /* acked: of those, later, by records that can be read */
};

/* Of one journal. */
struct qi_loss {
    uint64_t bytes;     /* damaged ones */
    uint64_t count;     /* messages that are known to have been published there */
    uint64_t acked;     /* of those, acked later: they are not lost */
    uint64_t more_most; /* nobody knows how many more, but not more than these */
    bool acks_unsure;   /* acks of them may be in damaged places, too */
    uint32_t ranges_count;
    struct qi_loss_range ranges[QI_LOSS_RANGES]; /* the first ones of `count` */
};

/* Called behind the replay, if there is damage. `old` may be NULL; `old_gone`: bytes that are
 * missing at its end. losses[0] is of the old journal, losses[1] of the current one. Cost: the
 * journals are read once more, and of each lane a segment. 0 or QI_E_MEMORY. */
int qi_find_losses(struct qi_queue *queue, const struct qi_scan *old, uint64_t old_gone,
                   const struct qi_scan *current, struct qi_loss losses[2]);

/* "messages 17 to 19 (3) are lost", or what else can be said. */
void qi_say_loss(const struct qi_loss *loss, char *text, size_t room);

/* So many bytes of a journal hold not more messages than this. */
static inline uint64_t qi_messages_in(uint64_t bytes) {
    uint64_t each = QI_RECORD_ID + QI_PUB_FIELDS;
    return bytes > QI_FRAME_HEADER ? (bytes - QI_FRAME_HEADER) / each : 0;
}

/* ---- recover ---- */

/* What recovery works on. */
struct qi_recovery {
    bool ended; /* as a clean end left it: nothing is synced or written (qi_open_ended) */
    struct qi_manifest manifest;
    struct qi_scan scan, old;
    bool lacks_manifest;     /* the current journal's was damaged */
    bool has_old, lacks_old; /* the epoch before is needed and there, or needed and not */
    uint64_t old_gone;       /* durable bytes that are missing at its end */
};

/* ---- recover_bodies ---- */

/* The stored body that a publish record names, if it names one; where a journal that was replayed
 * must end, because a body behind its last MARK is missing (0: nowhere). */
bool qi_stored_body(const struct qi_queue *queue, const struct qi_fields *fields,
                    struct qi_msg_id *id);
int qi_find_bodiless(struct qi_queue *queue, struct qi_journal *journal, struct qi_scan *scan,
                     uint64_t *end);

/* ---- recover_journals ---- */

/* Opens the journals as they are. True if they end with the CLOSE of a session that ended cleanly:
 * all of it was durable before store.meta said so, so nothing is synced, and `scan` is complete.
 * Else nothing is open. Or an error. */
int qi_open_ended(struct qi_queue *queue, struct qi_scan *scan);
/* No file of the queue has to be synced before it is read: a sync of the disk covered what earlier
 * sessions left there, and this one wrote nothing since. */
bool qi_is_covered(const struct qi_queue *queue);
/* A journal that was scanned has whole frames, then zeros, and two equal copies of its header, so
 * that a session goes on in it as it is. 1, 0 or -errno. */
int qi_is_whole(struct qi_journal *journal, const struct qi_scan *scan);
/* The end of its recovery. Nothing is appended: a SESSION comes with the first frame that follows
 * (qi_queue_ready). */
int qi_stay_ended(struct qi_queue *queue, const struct qi_scan *scan);
/* Segments that are dead by the floor alone are worth a flush. */
void qi_count_dead_segments(struct qi_queue *queue);
/* The headers of both in memory; then all of one, and where it ends. For a writer as the medium has
 * them (H12). */
int qi_open_journals(struct qi_queue *queue);
int qi_recover_scan(const struct qi_queue *queue, struct qi_journal *journal, struct qi_scan *scan);
/* QI_E_NEWER if the scan found a frame of a kind that is not known here and must not be skipped. */
int qi_refuse_unknown(const struct qi_queue *queue, const struct qi_journal *journal,
                      const struct qi_scan *scan);
/* After that; see qi_journal_scan_behind. */
int qi_recover_scan_behind(const struct qi_queue *queue, struct qi_journal *journal,
                           struct qi_scan *scan);

/* ---- recover_session ---- */

/* Behind the replay: the tail is rewritten and a SESSION appended, and synced where nothing else
 * makes sure of it. 0 or the error. */
int qi_begin_recovered(struct qi_queue *queue, const struct qi_recovery *recovery);

/* ---- recover_segments ---- */

int qi_check_segments(struct qi_queue *queue);
void qi_remove_strays(struct qi_queue *queue);
/* The manifest is damaged: takes every segment file for what it holds. The counters follow the
 * entries. */
int qi_salvage_segments(struct qi_queue *queue);

/* ---- replay ---- */

/* Applies a journal's frames to the maps; idempotent (H3). `orphans` counts records without a
 * publish. */
int qi_replay(struct qi_queue *queue, struct qi_journal *journal, struct qi_scan *scan,
              uint64_t *orphans);

/* Raises the floor: transients below it are dead (an unclean end came between). */
int qi_raise_floor(struct qi_queue *queue, uint64_t floor);

#endif
