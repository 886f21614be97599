/* queue.h - a queue: its index (journal and segments) and the way to its bodies. */
#ifndef QI_QUEUE_H
#define QI_QUEUE_H

#include "bug.h"
#include "journal.h"
#include "lane.h"
#include "qindex.h"
#include "segment.h"
#include "timers.h"
#include "wait.h"

struct qi_store;
struct qi_record;
struct qi_msg_id;
struct qi_flush;

/* All ReqIds of its lane below this one were published by then. */
struct qi_moment {
    uint64_t req_id, us;
};

/* The oldest of a queue that is full: they make place for a publish which is under way. */
struct qi_heads {
    uint64_t *req_ids;
    uint32_t count, room;
    uint64_t bytes; /* that they have, if the queue is measured */
    bool in_memory; /* or else QI_BUSY: who looks for them must not wait for the disk */
};

struct qi_queue {
    struct qi_store *store;
    char *name; /* UTF-8, name_size bytes and a 0 */
    uint32_t name_size;
    char directory[33]; /* 32 hex digits: a name never becomes a path */
    uint8_t identity[QI_IDENTITY_SIZE];

    bool recovered; /* the index below is in memory */
    bool recovering;
    bool deleted;
    int dir; /* -1: idle, nothing open */

    struct qi_journal journals[2]; /* journals[epoch % 2] is appended to */
    uint64_t epoch;
    uint64_t flushed_epoch; /* epochs up to this one are in the segments */
    uint64_t session;       /* of the last SESSION frame */
    struct qi_lanes lanes;
    uint64_t highest;          /* count of the next ReqId of the lane that is furthest */
    uint64_t reserved;         /* counts below this are promised in the current journal */
    uint64_t reserved_durable; /* and durably so: only these may be handed out (H10) */
    uint64_t
        floor; /* older ones lived through an unclean end: transients dead, the rest redelivered */
    struct qi_segments segments;
    uint64_t depth;   /* published and not acked */
    uint64_t out;     /* of these, delivered by this process */
    uint64_t delayed; /* and of these, not due yet */
    uint64_t dead;    /* and: dead letters */
    uint64_t bytes;   /* that wait, dead letters not counted, if it is measured */
    bool measured;
    uint64_t
        expiry_us; /* the worker looks then for what has expired; 0: nothing that is known of does */
    struct qi_timers timers;
    qi_rules rules;
    bool rules_known; /* the opener said them: nothing is dropped before */
    bool bounded;     /* by its rules or by the store's: a publish asks for its place */
    bool leased; /* since it was read: who settles a message has to be the one who has it now */
    uint32_t dirty_count;
    uint32_t copies; /* that a fan-out is about to append */
    struct qi_heads heads;
    struct qi_moment *moments; /* age.c; NULL: none yet */
    uint32_t moments_count;

    struct qi_waiter *waiters, *last_waiter; /* NULL: nobody waits for a message */
    struct qi_waiter bell;
    uint64_t armed_us;          /* no sleeper sleeps longer than until this timer */
    struct qi_queue *next_rung; /* in the store's list, if rung */
    bool rung;

    uint64_t lsn_base;   /* journal bytes of earlier epochs: lsn = lsn_base + tail grows for ever */
    uint64_t lsn_synced; /* everything below is durable */
    bool old_unsynced;   /* the journal of the epoch before is not durable yet */
    bool dir_unsynced;   /* a name in the directory is not durable yet */
    bool next_is_stale;  /* the other journal may hold frames of an epoch that is yet to come */
    bool syncing;
    bool short_of_space;    /* publishes wait until the disk has the reserve again (H14) */
    struct qi_flush *flush; /* running or due, NULL: none */
    bool flushing;          /* somebody works on it */
    uint64_t past_bytes;    /* of history, since the directory was read for it; 0: it was not */

    uint8_t *window; /* read-ahead over one segment file */
    uint32_t window_room, window_length;
    uint64_t window_number, window_offset;
    uint64_t browsed; /* segment that browsing heated */
    bool used;        /* since the worker looked last */
    uint64_t idle_since_us;
};

static inline struct qi_journal *qi_current(struct qi_queue *queue) {
    return &queue->journals[queue->epoch & 1];
}
static inline struct qi_journal *qi_previous(struct qi_queue *queue) {
    return &queue->journals[~queue->epoch & 1];
}
static inline uint64_t qi_lsn(struct qi_queue *queue) {
    return queue->lsn_base + qi_current(queue)->tail;
}

/* recover.c: brings the index of a queue into memory (H4, H10, H12, H18, H19). */
int qi_recover(struct qi_queue *queue);
/* reread.c: the same for writers; for a reader again, if the writer changed the files while they were read. */
int qi_recover_view(struct qi_queue *queue);
/* The writer was faster, each time. */
int qi_fail_outrun(const struct qi_queue *queue);
/* A reader's: are the journals that were read a pair of one moment? Has the queue changed since it was read? Both read a
 * few bytes of both journals. */
bool qi_pair_is_steady(struct qi_queue *queue);
bool qi_view_is_old(struct qi_queue *queue);
/* What a reader holds is too old to be read: reads the queue again. QI_E_CORRUPT, with the error's text as it was: it
 * has not changed since (or this is the writer), so what is missing is damage. All pointers into the index are gone. */
int qi_reread(struct qi_queue *queue);
/* recover_journals.c: the headers of both in memory; then all of one, and where it ends. For a writer as the medium has them
 * (H12). */
int qi_open_journals(struct qi_queue *queue);
int qi_recover_scan(const struct qi_queue *queue, struct qi_journal *journal,
                    struct qi_journal_scan *scan);
/* After that; see qi_journal_scan_behind. */
int qi_recover_scan_behind(const struct qi_queue *queue, struct qi_journal *journal,
                           struct qi_journal_scan *scan);
/* recover_segments.c */
int qi_check_segments(struct qi_queue *queue);
void qi_remove_strays(struct qi_queue *queue);
/* The manifest is damaged: takes every segment file for what it holds. The counters follow the entries. */
int qi_salvage_segments(struct qi_queue *queue);
/* recover_bodies.c: a stored body that a publish record names (false for other records); where a journal that was replayed
 * must end, because a body behind its last MARK is missing (0: nowhere). */
bool qi_stored_body(const struct qi_queue *queue, const struct qi_record *record,
                    struct qi_msg_id *id);
int qi_find_bodiless(struct qi_queue *queue, struct qi_journal *journal,
                     struct qi_journal_scan *scan, uint64_t *end);
/* lifecycle.c: makes a new queue's directory, meta and first journal, durably. */
int qi_queue_create(struct qi_queue *queue);

/* replay.c: applies a journal's frames to the maps; idempotent (H3). `orphans` counts records without a publish. */
int qi_replay(struct qi_queue *queue, struct qi_journal *journal, struct qi_journal_scan *scan,
              uint64_t *orphans);
int qi_apply_purge(struct qi_queue *queue, uint64_t below, const uint8_t *except, uint32_t count);
/* Reads the segments that a purge of all needs, so that nothing fails behind its record. */
int qi_load_for_purge(struct qi_queue *queue);

/* state.c: MANIFEST, SESSION and CLOSE frames. */
struct qi_manifest {
    uint64_t flushed_epoch, session, floor, reserved;
    uint64_t previous_tail; /* of the epoch before: its true end; 0 if that is flushed */
    uint32_t count;
    const uint8_t *segments; /* count times QI_MANIFEST_SEGMENT bytes */
};
bool qi_read_manifest(const struct qi_frame *frame, struct qi_manifest *manifest);
int qi_append_manifest(struct qi_queue *queue, struct qi_journal *journal, uint64_t flushed_epoch,
                       uint64_t previous_tail);
int qi_append_session(struct qi_queue *queue);
int qi_append_close(struct qi_queue *queue);
bool qi_read_session(const struct qi_frame *frame, uint64_t *session, uint64_t *floor,
                     uint64_t *reserved);
/* A LANES frame, in front of the CLOSE of a queue that has more than one lane. */
int qi_append_lanes(struct qi_queue *queue);

/* flush.c: moves truth from the journal to the segments. begin needs the store's lock; run does the I/O without it and
 * takes it at the end. */
int qi_flush_begin(struct qi_queue *queue, uint64_t room, uint64_t ids);
int qi_flush_run(struct qi_queue *queue);
int qi_flush_snapshot(struct qi_queue *queue, uint64_t epoch);
void qi_flush_forget(struct qi_queue *queue);
/* A segment in which nothing is dirty or out: its maps are wanted soon all the same. */
bool qi_is_wanted_soon(struct qi_queue *queue, const struct qi_segment *segment, uint64_t now);
/* Waits until no flush is under way, running it if nobody else does; and: flushes all there is now. Both
 * give the lock up. */
int qi_flush_wait(struct qi_queue *queue);
int qi_flush_all(struct qi_queue *queue);

/* rewrite.c: segment files with at least that share of garbage are written anew; adds the bytes that it gave back. Cost:
 * reads every segment that may have so much, writes what is alive in them. Gives the lock up. */
int qi_rewrite_segments(struct qi_queue *queue, uint32_t garbage_percent, int64_t *freed);

/* Raises the floor: transients below it are dead (an unclean end came between). */
int qi_raise_floor(struct qi_queue *queue, uint64_t floor);
int qi_rotate(struct qi_queue *queue, uint64_t room, uint64_t ids);

/* sync.c: returns when everything below lsn survives a power cut (H8, H13). Called with the lock; gives it up. */
int qi_sync_to(struct qi_queue *queue, uint64_t lsn);

int qi_sync_messages(struct qi_store *store);
/* A MARK at the end of a journal of which all is durable, if none tells so. If it cannot be appended (no space) it is left out. */
int qi_tell_durable(struct qi_queue *queue);

/* lifecycle.c: the store is usable, and nobody opens the queue or sends it to sleep right now: 0 or the error. */
int qi_queue_settled(struct qi_queue *queue, bool to_write);
/* Usable, recovered and awake: 0 or the error. Called first by every verb, with the lock. */
int qi_queue_ready(struct qi_queue *queue, bool to_write);
/* In memory and open. Not while it is sent to sleep or wakes up: its sync runs without the lock then, and what others append
 * meanwhile would stand beside the CLOSE and go with the maps. Who gave the lock up looks again. */
static inline bool qi_is_awake(const struct qi_queue *queue) {
    return queue->recovered && (!queue->recovering || QI_BUG(race_falling_asleep_is_awake)) &&
           queue->dir >= 0;
}
int qi_queue_unload(
    struct qi_queue *queue); /* idle: flushed, closed cleanly, no file or mapping left */
int qi_queue_close(struct qi_queue *queue); /* at the end of a session */
void qi_forget_index(struct qi_queue *queue);
void qi_queue_reset(struct qi_queue *queue); /* forgets the index; files are closed as they are */

/* The verbs for a caller that must not wait (it holds the GIL): a plain message, embedded, in memory, with room in the
 * journal and the lock free. Otherwise QI_BUSY, nothing was changed, and the verb that may wait does it. */
int64_t qi_publish_now(struct qi_queue *queue, const void *body, size_t body_size, uint32_t flags,
                       uint64_t due_us);
int64_t qi_get_now(struct qi_queue *queue, qi_message *message, void *payload, size_t room,
                   uint64_t lease_us);
int qi_ack_now(struct qi_queue *queue, uint64_t req_id, uint32_t deliveries);

/* queue.c */
/* Takes the lock if a verb that appends `bytes` and uses `ids` ReqIds need not wait for a lock, a flush or a disk. */
bool qi_begin_now(struct qi_queue *queue, uint64_t bytes, uint64_t ids);
/* Room for `bytes` of records and `ids` ReqIds in the current journal; flushes if there is none. */
int qi_make_room(struct qi_queue *queue, uint64_t bytes, uint64_t ids);
int qi_make_event_room(struct qi_queue *queue, uint64_t bytes);
/* After an append: is it time to flush? */
void qi_flush_if_due(struct qi_queue *queue);
int qi_append_failed(struct qi_queue *queue, int error);
/* `messages` became ready. Costs a comparison as long as nobody waits. */
static inline void qi_announce(struct qi_queue *queue, uint64_t messages) {
    if (__builtin_expect(queue->waiters != NULL, 0))
        qi_wake_waiters(queue, messages);
}

/* ack.c */
/* The segment with its maps, for a message that was published and not acked; or why not. */
int qi_find_live(struct qi_queue *queue, uint64_t req_id, struct qi_segment **segment,
                 uint32_t *slot);
/* The same for one that is out; `deliveries` as in qi_ack. */
int qi_find_unacked(struct qi_queue *queue, uint64_t req_id, uint32_t deliveries,
                    struct qi_segment **segment, uint32_t *slot);
/* Events of one kind for `count` ReqIds, as one frame. */
int qi_append_events(struct qi_queue *queue, enum qi_record_kind kind, const uint64_t *req_ids,
                     uint32_t count);
int qi_append_event(struct qi_queue *queue, enum qi_record_kind kind, uint64_t req_id);
/* nack.c: a message that nobody has, or whose consumer gives it up, becomes a dead letter. The caller made room. */
int qi_bury(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint32_t why);
/* QI_E_ARGUMENT if a ReqId stands in the list twice. O(count) if they rise, else they are sorted. */
int qi_check_distinct(const uint64_t *req_ids, uint32_t count);

#endif
