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

/* Files of an open queue at most: its directory and two journals. The previous journal is open only
 * until it is flushed. */
#define QI_FILES_OF_QUEUE 3

/* Takes a queue off the lists: it has no open files, and is not parked. */
void qi_files_forget(struct qi_queue *queue);
/* Called after a sync. A parked queue that has nothing unsynced moves to the list of such queues.
 */
void qi_files_settled(struct qi_queue *queue);

/* ---- flush ---- */

/* Cuts the file of a journal that is about to be recycled to the size that the next epoch will
 * need. */
int qi_cut_to_use(struct qi_queue *queue, struct qi_tape *tape);
int qi_flush_snapshot(struct qi_queue *queue, uint64_t epoch);
void qi_flush_forget(struct qi_queue *queue);
int qi_rotate(struct qi_queue *queue, uint64_t room, uint64_t ids);

/* The locations of publish records: `loc` in the old journal or in the file that is rewritten, and
 * `placed` in the segment file once they are written. Both are kept, because a flush that failed
 * may be run again. */
struct qi_flush_places {
    uint32_t loc[64], placed[64], sum[64];
};

/* The copy of 64 slots of which some are dirty. */
struct qi_flush_slots {
    uint32_t first; /* number of the first slot */
    uint64_t pub, del, ack, transient, held;
    uint64_t jpub, jdel, jack, jcount, jtime, jside;
    struct qi_flush_places *places; /* NULL: no publish has to be written */
    uint64_t *time;                 /* NULL: no message is held */
    uint16_t *delivered;            /* NULL: no message was delivered more than once */
    struct qi_sides *sides;         /* NULL: no message has side records */
    struct qi_instants published;   /* if there are places */
};

struct qi_flush_segment {
    uint64_t number;
    uint64_t epoch, new_epoch; /* of the flush that created the file: before and after this flush */
    int file;                  /* written and not synced yet; -1: none */
    uint32_t length;           /* durable bytes before this flush */
    uint32_t new_length;       /* durable bytes after it */
    uint32_t unacked, transient, delayed, dead, lost;
    uint64_t due_us;    /* the earliest time of a held message; 0: none is held */
    uint64_t expiry_us; /* no message in it expires earlier; 0: none expires */
    uint64_t bytes;     /* of all waiting messages; if `adds_up`, of those in the file before */
    uint64_t new_bytes; /* of the waiting messages in the file after this flush */
    bool adds_up;       /* the queue is not measured: the batch adds its bytes to `bytes` */
    bool all_held;      /* of a lane of delayed messages, where ready messages have a time, too */
    bool alt;           /* before this flush the file was N.alt */
    uint8_t *old; /* bytes of the file, if the batch is the whole segment and goes to the other
                     file; NULL: the batch is appended */
    struct qi_flush_slots *slots; /* their places and counts follow in the same memory */
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
    bool committed; /* a durable MANIFEST names what was written. These bytes are not changed any
                       more, whatever fails later */
};

/* ---- batch ---- */

/* Appends the batch behind the segment's durable length, and leaves the file open. Fills in
 * new_length and the new location of each publish. Runs without the store's lock, because the copy
 * and the old journal do not change. */
int qi_batch_write(struct qi_queue *queue, const struct qi_flush_job *flush,
                   struct qi_flush_segment *segment);
/* Syncs and closes the file, if there is one. After an `error` only closes it. Returns `error`, or
 * the error of the sync. */
int qi_batch_end(struct qi_queue *queue, struct qi_flush_segment *segment, int error);

/* ---- commit ---- */

/* Group commits: one sync of the commit log makes the journals of many queues durable. */

/* The part of one queue in a sync of many queues. */
struct qi_covered {
    struct qi_queue *queue;
    uint64_t epoch, lsn, tail, reserved;
    bool logged; /* a COPY in the log has these bytes */
};

/* True if so many dirty queues are worth a group commit. */
bool qi_is_group(const struct qi_store *store, uint32_t count);
/* Makes as many of the queues durable as it can with one sync. The others stay as they were. Gives
 * the lock up. Returns 0 or the error. */
int qi_sync_group(struct qi_store *store, struct qi_covered *covered, uint32_t count);

/* The number of the newest log; 0: there is none. */
uint64_t qi_newest_log(const struct qi_store *store);
/* Notes that a sync of the queue's own files has covered all below `lsn`. `log` was the newest log
 * when the sync began. */
void qi_note_settled(struct qi_queue *queue, uint64_t lsn, uint64_t log);

/* ---- sync ---- */

/* True if the journals survive a power cut as files: their names, headers and MANIFEST are
 * durable. */
static inline bool qi_files_are_sure(const struct qi_queue *queue) {
    return !queue->old_unsynced && !queue->dir_unsynced &&
           queue->journals[queue->epoch & 1].settled > QI_JOURNAL_START;
}
/* Makes that so. Returns 0 or the error. Gives the lock up. */
int qi_sync_files(struct qi_queue *queue);

/* ---- parts ---- */

/* Called after a sync of the log up to `now`: writes the headers of the frames that it covered.
 * Returns 0 or the error. */
int qi_parts_give(struct qi_store *store, uint64_t now);
/* The end in the log of the last transaction of which the queue's frame has no header yet. */
uint64_t qi_parts_end(const struct qi_queue *queue);
/* True if the journal of the previous epoch has a frame without a header. */
bool qi_parts_of_old(const struct qi_queue *queue);
/* A sync of the current journal's own file makes it durable only up to here. */
uint64_t qi_parts_sure(const struct qi_queue *queue);

/* ---- history ---- */

/* Called after the commit point of a flush. Moves the previous journal to history if it can, and
 * then removes history above its limit. Needs no lock: no other thread uses the journal's tape
 * until the journal is retired. */
void qi_history_take(struct qi_queue *queue);
/* Finishes what a crash left of that. Called at recovery, with the lock. */
void qi_history_recover(struct qi_queue *queue);

/* ---- recover ---- */

/* Recovers a queue: brings its index into memory (H4, H10, H12, H18, H19). */
int qi_recover(struct qi_queue *queue);
/* Before a queue is read: if some were made durable one by one already, and the store has many, one
 * sync is the barrier of all others. Returns 0 or the error. Gives the lock up. */
int qi_sync_earlier(struct qi_store *store);

/* ---- losses ---- */

/* Losses: how many messages the damaged places of a queue's journals have cost. */

#define QI_LOSS_RANGES 8u

/* ReqIds whose publishes were in a damaged place, in one lane. */
struct qi_loss_range {
    uint64_t first, count, acked; /* acked: how many of them readable records acked later */
};

/* The losses of one journal. */
struct qi_loss {
    uint64_t bytes;     /* damaged bytes */
    uint64_t count;     /* messages that are known to have been published there */
    uint64_t acked;     /* of these: acked later, so they are not lost */
    uint64_t more_most; /* at most so many more may have been published there */
    bool acks_unsure;   /* acks of these messages may be in damaged places, too */
    uint32_t ranges_count;
    struct qi_loss_range ranges[QI_LOSS_RANGES]; /* the first ones of `count` */
};

/* Called after the replay if there is damage. `old` may be NULL. `old_gone` is the number of bytes
 * that are missing at its end. Fills in losses[0] for the old journal and losses[1] for the current
 * one. Cost: reads the journals once more, and a segment of each lane. Returns 0 or QI_E_MEMORY. */
int qi_find_losses(struct qi_queue *queue, const struct qi_scan *old, uint64_t old_gone,
                   const struct qi_scan *current, struct qi_loss losses[2]);

/* Writes the loss as words: "messages 17 to 19 (3) are lost", or what else is known. */
void qi_say_loss(const struct qi_loss *loss, char *text, size_t room);

/* The greatest number of messages that so many bytes of a journal can hold. */
static inline uint64_t qi_messages_in(uint64_t bytes) {
    uint64_t each = QI_RECORD_ID + QI_PUB_FIELDS;
    return bytes > QI_FRAME_HEADER ? (bytes - QI_FRAME_HEADER) / each : 0;
}

/* ---- recover ---- */

/* The state of a recovery. */
struct qi_recovery {
    bool ended; /* the queue had a clean end: nothing is synced or written (qi_open_ended) */
    struct qi_manifest manifest;
    struct qi_scan scan, old;
    bool lacks_manifest;     /* the current journal's MANIFEST was damaged */
    bool has_old, lacks_old; /* the previous epoch's journal is needed, and is there or missing */
    uint64_t old_gone;       /* durable bytes that are missing at the end of the old journal */
};

/* ---- recover_bodies ---- */

/* Gets the id of the stored body that a publish record names. False: it names none. */
bool qi_stored_body(const struct qi_queue *queue, const struct qi_fields *fields,
                    struct qi_msg_id *id);
/* Looks in a replayed journal, behind its last MARK, for a publish whose body is missing. Sets *end
 * to the place where the journal must end because of it (0: no body is missing). */
int qi_find_bodiless(struct qi_queue *queue, struct qi_journal *journal, struct qi_scan *scan,
                     uint64_t *end);

/* ---- recover_journals ---- */

/* Opens the journals as they are. Returns 1 if they end with the CLOSE of a clean session. All of
 * that session was durable before store.meta said so. So nothing is synced, and `scan` is complete.
 * Returns 0 if not: then nothing is open. Or returns an error. */
int qi_open_ended(struct qi_queue *queue, struct qi_scan *scan);
/* True if no file of the queue needs a sync before it is read. A sync of the disk has covered what
 * earlier sessions left in them, and this session has written nothing since. */
bool qi_is_covered(const struct qi_queue *queue);
/* Returns 1 if a session can go on in a scanned journal as it is: the journal has whole frames,
 * then zeros, and two equal copies of its header. Otherwise returns 0, or -errno. */
int qi_is_whole(struct qi_journal *journal, const struct qi_scan *scan);
/* Ends the recovery of such a queue. Appends nothing: a SESSION is written before the first frame
 * that follows (qi_queue_ready). */
int qi_stay_ended(struct qi_queue *queue, const struct qi_scan *scan);
/* Counts the segments that are dead by the floor alone. They are worth a flush. */
void qi_count_dead_segments(struct qi_queue *queue);
/* Opens both journals, with their headers in memory. A writer gets them as the medium has them
 * (H12). */
int qi_open_journals(struct qi_queue *queue);
/* Reads all of one journal, and finds where it ends. */
int qi_recover_scan(const struct qi_queue *queue, struct qi_journal *journal, struct qi_scan *scan);
/* QI_E_NEWER: the scan found a frame of an unknown kind that must not be passed over. */
int qi_refuse_unknown(const struct qi_queue *queue, const struct qi_journal *journal,
                      const struct qi_scan *scan);
/* Called after that: goes on behind the end, as qi_journal_scan_behind does. */
int qi_recover_scan_behind(const struct qi_queue *queue, struct qi_journal *journal,
                           struct qi_scan *scan);

/* ---- recover_session ---- */

/* Called after the replay: rewrites the tail and appends a SESSION. Syncs them if nothing else
 * makes them durable. Returns 0 or the error. */
int qi_begin_recovered(struct qi_queue *queue, const struct qi_recovery *recovery);

/* ---- recover_segments ---- */

int qi_check_segments(struct qi_queue *queue);
void qi_remove_strays(struct qi_queue *queue);
/* Called if the MANIFEST is damaged: takes every segment file as it is, and counts its entries. */
int qi_salvage_segments(struct qi_queue *queue);

/* ---- replay ---- */

/* Applies a journal's frames to the maps. A second call changes nothing (H3). Counts the records
 * without a publish in *orphans. */
int qi_replay(struct qi_queue *queue, struct qi_journal *journal, struct qi_scan *scan,
              uint64_t *orphans);

/* Raises the floor after an unclean end: transient messages below it are dropped. */
int qi_raise_floor(struct qi_queue *queue, uint64_t floor);

#endif
