/* types.h - the store and the queue: structs only. */
#ifndef QI_TYPES_H
#define QI_TYPES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bodies/bodies.h"
#include "journal/journal.h"

struct qi_commit_log;
struct qi_commits;
struct qi_flush_job;
struct qi_listener;
struct qi_mark;
struct qi_queue;
struct qi_sleeper;
struct qi_store;

/* Where a publish record stands: 30 bits of offset and 2 bits of file. */
#define QI_LOC_SEGMENT      0u
#define QI_LOC_JOURNAL_EVEN (1u << 30)
#define QI_LOC_JOURNAL_ODD  (2u << 30)
#define QI_LOC_FILE         (3u << 30)
#define QI_LOC_OFFSET_MAX   ((1u << 30) - 1)

#define QI_BYTES_UNKNOWN UINT64_MAX

/* The truth about everything older: 16384 ReqIds, their maps in memory and their file, N.idx or
 * N.alt.
 *
 * A segment in memory, three messages published, the first acked, the second delivered and flushed:
 *
 *     slot      0 1 2 3 ...
 *     pub       1 1 1 0        published
 *     del       1 1 0 0        delivered at least once
 *     ack       1 0 0 0        acked: together the three monotone bits of rule H3
 *     out       0 1 0 0        delivered by this process and not yet acked: never on disk
 *     jpub      0 0 1 0        of pub, del, ack: what stands in the journal only (dirty)
 *     unacked = 2              popcount(pub & ~ack), exact also while the maps are not in memory
 *
 * Only segments that somebody uses have their maps in memory ("hot"); a cold one costs
 * sizeof(struct qi_segment). The maps are kept in pieces of 64 slots, and only the pieces in which
 * something happened are there, so that a segment costs what is in it: 1 KB with one message, 160
 * KB when it is full.
 *
 *     hot -> blocks[slot / 1024] -> pieces[slot / 64 % 16] -> pub del ack ..., a word each for 64
 * slots |                      `-- qi_no_slots     for all that are not there: zeros, never written
 *                  `-- sixteen times qi_no_slots
 */

/* Live references of a segment to one message file. */
struct qi_file_use {
    uint32_t file;
    uint32_t count;
    uint64_t bytes;
};

/* Side records, end to end; their layout is in sides.c. */
struct qi_sides {
    uint32_t used, room;
    uint32_t promised; /* bytes of room that somebody is about to use (qi_side_room) */
    uint8_t bytes[];
};

/* 64 slots that follow each other: their bits, and where their publish records stand. */
struct qi_slots {
    uint64_t pub, del, ack, out;
    uint64_t jpub, jdel, jack;
    uint64_t jcount;        /* delivered again: the count has to reach the file */
    uint64_t jtime;         /* delayed, or no more: the time has to reach the file */
    uint64_t jside;         /* side records have to reach the file */
    uint64_t held;          /* waits for a time (timers.c); the cursor steps over it */
    uint64_t due;           /* of these, whose time has come */
    uint64_t stored;        /* body in the message store */
    uint64_t transient;     /* not persistent */
    uint64_t side;          /* has side records */
    struct qi_sides *sides; /* these (sides.c); NULL while there are none */
    uint16_t *count; /* deliveries, for those delivered more than once; NULL while there are none */
    uint32_t *again; /* of those whose count is full: which delivery of the queue's full ones the
                      * last was; NULL while there are none */
    uint64_t *time;  /* of those that are held, or were; NULL while there are none */
    uint64_t *lease; /* until when those that are out are leased; 0: for ever */
    uint32_t *size;  /* headers and body; NULL: the queue is not measured (bytes.c) */
    uint32_t loc[64];
    uint32_t sum[64]; /* qi_fields_sum of what was valid there */
};

#define QI_BLOCK_PIECES 16u
#define QI_HOT_BLOCKS   16u /* 16384 slots */

struct qi_block {
    struct qi_slots *pieces[QI_BLOCK_PIECES];
};

struct qi_hot {
    struct qi_block *blocks[QI_HOT_BLOCKS];
    struct qi_file_use *uses;
    uint32_t uses_count, uses_room;
    uint8_t *old; /* the file's bytes, checked: the next flush writes the file anew (rewrite.c); or
                   * a byte of a file of which there is nothing */
    uint8_t
        *kept; /* the first bytes of its file, for reading anywhere in it; NULL: none are kept */
    uint32_t kept_length;
    uint32_t dirty;      /* changes since the last flush */
    uint32_t out_count;  /* bits set in out */
    uint32_t held_count; /* bits set in held */
    bool loaded;         /* the file's entries are in the maps */
    bool in_flush;       /* a running flush will report new locations */
    bool sized;          /* new pieces have sizes */
    bool sided;          /* a message in it had a side record */
};

struct qi_segment {
    uint64_t number;
    struct qi_hot *hot;
    uint64_t epoch;              /* of the flush that created the file: in the seed of its frames */
    uint32_t length;             /* durable bytes of the file; 0: no file */
    uint32_t unacked;            /* published and not acked */
    uint32_t transient;          /* of these, not persistent */
    uint32_t delayed;            /* of the unacked: held, and not due yet */
    uint32_t dead;               /* and: dead letters */
    uint64_t due_us;             /* no time in it is earlier; 0: nobody waits */
    uint64_t expiry_us;          /* nothing that may leave then expires before; 0: nothing does */
    uint64_t earliest_expiry_us; /* the same of all that is alive, dead letters and what is out too:
                                    for its file */
    uint64_t bytes; /* that wait in it; if the queue is not measured, as of the durable length, or
                       unknown */
    uint64_t
        flushed_due; /* the same, and below: as of the durable length, what the MANIFEST says */
    uint16_t flushed_unacked, flushed_transient, flushed_delayed, flushed_dead;
    uint16_t lost;      /* could not be read: the MANIFEST goes on counting them as unacked */
    bool alt;           /* the file is N.alt: it was rewritten an odd number of times */
    bool counted;       /* its references to message files are in the store's account */
    bool expiry_unread; /* the file may have messages that expire before */
    bool expired_out;   /* what had expired at the last look, and was with a consumer */
    bool due_is_exact;  /* due_us is the time of a message in it, not only a bound */
};

/* Sorted by number; taken away mostly at the front, added mostly at the end. */
struct qi_segments {
    struct qi_segment *items;
    uint32_t start, count, room;
};

/* A publish record as it was when it was valid. The fields are a copy: the files are mapped, and
 * another process can change them at any time. */
struct qi_published {
    struct qi_fields fields;
    const uint8_t
        *payload; /* fields.embedded bytes in the journal or in what was read of the segment */
};

#define QI_LANES      1023u /* the last number says that a record is something else (base.h) */
#define QI_PRIORITIES 256u

struct qi_lane {
    uint32_t number;
    uint64_t next;   /* its next ReqId */
    uint64_t cursor; /* no ready message of it has a lower ReqId */
    uint64_t opened; /* what `next` was when the queue was read */
    uint64_t noted;  /* and when a moment was noted last (moments.c) */
};

/* Sorted by number; lane 0 is always there and the first. */
struct qi_lanes {
    struct qi_lane *items;
    uint32_t count, priorities; /* all of them; those below QI_PRIORITIES, which stand in front */
};

struct qi_timers {
    struct qi_heap
        delayed;        /* key: when, by the wall clock; id: a message, or a segment that is cold */
    uint32_t tidied;    /* entries of it that were left when it was made anew */
    struct qi_heap due; /* key: 255 - priority and the time */
    struct qi_heap
        redriven;         /* the same: taken back from the dead letters, and not delivered since */
    struct qi_heap heads; /* of those in `due`, if heads_made; key: the priority and the time */
    bool heads_made;
    uint64_t last_due_us;  /* no time in `due` is later */
    struct qi_heap leases; /* key: when it ends, by the steady clock */
};

/* Who waits for a message in which queue.
 *
 * A queue has a list of its waiters, first come, first woken; it is empty as long as nobody waits,
 * and that is all that a publish looks at. A waiter is taken out of the list when it is woken.
 * There are two kinds: a thread that sleeps in qi_wait, and the queue's bell, for an event loop
 * that must not sleep: it makes the store's file descriptor readable. All of it is protected by the
 * store's lock.
 */

struct qi_waiter {
    struct qi_waiter *next, *previous;
    struct qi_sleeper *sleeper; /* NULL: the queue's bell */
    bool listed;
};

/* All ReqIds of its lane below this one were published by then. */
struct qi_moment {
    uint64_t req_id, us;
};

/* The oldest of a queue that is full: they make place for a publish which is under way. */
struct qi_heads {
    uint64_t *req_ids;
    uint32_t count, room;
    uint32_t gone;  /* that have left for the publish which is under way */
    uint64_t bytes; /* that they have, if the queue is measured */
    bool in_memory; /* or else QI_BUSY: who looks for them must not wait for the disk */
};

/* In the order of their last use. */
struct qi_queue_list {
    struct qi_queue *oldest, *newest;
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
    bool parked; /* the same, and it goes on where it was; but its files are closed
                    (durable/files.c) */
    int dir;     /* -1: idle or parked, nothing open */
    struct qi_queue_list
        *list; /* that it is in: of the open ones, or of the parked; NULL: asleep */
    struct qi_queue *older, *newer; /* in that list */
    uint64_t use;                   /* when it became the last used one */
    uint64_t weight;                /* of a parked one: messages in its maps */

    struct qi_published published; /* by qi_segment_record */
    struct qi_journal journals[2]; /* journals[epoch % 2] is appended to */
    uint64_t epoch;
    uint64_t flushed_epoch; /* epochs up to this one are in the segments */
    uint64_t session;       /* of the last SESSION frame */
    uint64_t opened_epoch;  /* of the journal that was there when the queue was read */
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
    qi_counts counts; /* since the store was opened */
    bool counts_all;  /* nothing was published in it before that */
    bool measured;
    uint64_t
        expiry_us; /* nothing expires before, by the wall clock; 0: nothing that is known of does */
    uint64_t expired_us; /* when the worker has looked for it, by the steady clock */
    struct qi_timers timers;
    qi_rules rules;
    bool rules_known; /* the opener said them: nothing is dropped before */
    bool bounded;     /* by its rules or by the store's: a publish asks for its place */
    bool leased; /* a lease was given since it was read: one that ended may be why a verb is refused
                  */
    uint32_t tag; /* part of each delivery's number: no other handle of this process has the same */
    uint32_t again; /* deliveries of messages whose count is full: counts tell them apart no more */
    char *dead_to;  /* the queue that dead letters move to; NULL: they stay (dead_letters.c) */
    uint32_t dead_to_size;
    char dead_to_directory[33];
    bool dying;       /* some came that may move, from the first of these ReqIds to the last */
    bool dead_moving; /* somebody is at it */
    bool dead_told;   /* that some could not, since the last one that could */
    bool dead_left;   /* some stay, each for its own reason: all are looked at again, then */
    uint64_t dead_from, dead_until;
    uint64_t dead_left_us;  /* by the steady clock */
    uint64_t dead_again_us; /* none before: the other queue is full or missing */
    uint64_t dead_pause_us; /* that was waited last */
    uint32_t dirty_count;
    uint32_t copies; /* that a fan-out is about to append */
    struct qi_heads heads;
    struct qi_moment *moments; /* moments.c; NULL: none yet */
    uint32_t moments_count;

    struct qi_mark *marks;                   /* that somebody listens for (engine/listeners.c) */
    struct qi_waiter *waiters, *last_waiter; /* NULL: nobody waits for a message */
    struct qi_waiter bell;
    uint64_t armed_due_us, armed_lease_us; /* no sleeper sleeps longer than until these timers */
    struct qi_queue *next_rung;            /* in the store's list, if rung */
    bool rung;

    uint64_t lsn_base;   /* journal bytes of earlier epochs: lsn = lsn_base + tail grows for ever */
    uint64_t lsn_synced; /* everything below is durable */
    struct qi_commit_log
        *needs;          /* the oldest log with bytes that its own files may lack; NULL: none */
    uint64_t lsn_logged; /* the end of its last COPY */
    uint64_t bodies_end; /* what messages.written was behind the last body that a record names */
    uint32_t parts;      /* frames of transactions that have no header yet (durable/parts.c) */
    uint32_t pinned;     /* calls that are about to append: its files stay open */
    bool old_unsynced;   /* the journal of the epoch before is not durable yet */
    bool dir_unsynced;   /* a name in the directory is not durable yet */
    bool next_is_stale;  /* the other journal may hold frames of an epoch that is yet to come */
    bool syncing;
    bool short_of_space; /* publishes wait until the disk has the reserve again (H14) */
    bool on_other_disk;  /* its folder is a mount of its own: no sync of all others covers it */
    struct qi_flush_job *flush; /* running or due, NULL: none */
    bool flushing;              /* somebody works on it */
    uint64_t past_bytes;        /* of history, since the directory was read for it; 0: it was not */

    uint8_t *window; /* read-ahead over one segment file */
    uint32_t window_room, window_length;
    uint64_t window_number, window_offset;
    uint64_t browsed; /* segment that browsing heated */
    bool used;        /* since the worker looked last */
    bool written;     /* this session may have written to its files */
    uint64_t idle_since_us;
};

struct qi_finding {
    bool damage; /* else a note */
    char *where; /* file, relative to the store */
    uint64_t offset;
    uint64_t lost;    /* messages that are lost by it, as far as they can be counted */
    uint64_t orphans; /* delivers and acks without a publish */
    char *text;
};

struct qi_store {
    struct qi_store *next_left; /* see qi_store_leave */
    struct qi_disk *disk;
    int root, queues_dir, lock_file;
    qi_options options;
    bool use_mapping;
    uint64_t keep_free;
    unsigned fork_generation;

    uint8_t identity[QI_IDENTITY_SIZE];
    uint64_t session;
    uint32_t barrier_from;    /* message files from this number on are known to be durable */
    uint64_t unclean_session; /* the last session that did not end with close */
    bool counts_lost;         /* a close had no place for what was counted (store/counts.c) */
    bool earlier_durable;     /* what earlier sessions wrote to queues is, names and bytes */
    bool unsure;              /* what this one wrote to some may never be */
    uint64_t opened_wall_us, opened_steady_us; /* the disk's clocks when the store was opened */
    uint64_t latest_us; /* the greatest wall clock that any session saw: serves to warn (H17) */
    bool clock_told;    /* that it was ahead */

    pthread_mutex_t gate;   /* held by the one that waits for the lock after its I/O */
    atomic_bool returning;  /* somebody does */
    pthread_mutex_t lock;   /* protects everything below and all queues */
    pthread_cond_t changed; /* a sync or a flush ended */
    pthread_mutex_t
        sleep; /* held by the worker from its last look at the state to its wait for work */
    pthread_cond_t work; /* the worker has something to do */
    pthread_t worker;
    bool has_worker, stopping, closed;
    bool deferring;         /* flushes wait for the worker, or for qi_store_tick */
    int failed;             /* H13: set once, never cleared */
    char why_failed[256];   /* what was told of it first */
    bool dirty;             /* something is not synced yet */
    uint64_t commit_due_us; /* see qi_commit_if_due */
    bool flush_due;
    /* Set by the layer above: long work without the lock calls this between two files, so that the
     * group commit goes on (qi_commit_if_due). */
    void (*between_files)(struct qi_store *store);
    /* Also of the layer above: the live queue of that directory that somebody has opened, or
     * NULL. */
    struct qi_queue *(*find_queue)(const struct qi_store *store, const char *directory);
    uint64_t dead_due_us; /* no queue has dead letters to move before, by the steady clock */
    bool compacting;
    bool counting; /* a census runs */
    bool closing;  /* no new calls */
    bool messages_syncing;
    uint32_t waiting; /* threads in qi_wait */
    uint32_t looking; /* threads that read names without the lock, or wait for the commit log: a
                         close waits for them */
    uint64_t deleted; /* queues in this session */
    qi_counts gone;   /* what was counted in queues that were deleted */
    qi_syncs syncs;   /* in this session */
    uint64_t moved;   /* stored bodies that went from one queue to another, in this session */
    uint64_t depth, dead, bytes;   /* of all queues that were recovered: the sums of theirs */
    struct qi_listener *listeners; /* NULL: nobody wants to know what happens */
    struct qi_queue *marked;       /* a queue whose marks have to be looked at; NULL: none */
    uint32_t places_wanted; /* threads that wait for a place in a queue, 1 if armed, and marks:
                               whoever changes a count looks at this word alone */
    bool places_armed;      /* an event loop does */
    pthread_cond_t places;

    int bell; /* -1: no event loop asked for it */
    pthread_mutex_t
        bell_lock; /* for the list of queues that rang; taken last, never held for long */
    struct qi_queue *rung;
    bool places_came; /* this, too, is of those that wait for a place */
    bool events_came; /* and this of those that listen */

    struct qi_messages messages;
    struct qi_commits *commits; /* the commit log (commits.h); NULL: format 1 */
    struct qi_store *next_open; /* of the same disk (durable/files.c) */
    struct qi_queue_list open, parked,
        unsynced;       /* queues: with files; parked and durable, or not */
    uint64_t expiry_us; /* no queue's is earlier, of those whose rules are known; 0: none has one */
    uint64_t expire_again_us; /* and no look at them before, by the clock that does not step */
    uint64_t weight;          /* sum of `weight` of the parked queues */
    uint32_t disk_syncs; /* threads that sync the whole file system, or wait for their turn: a close
                            waits for them */
    bool disk_syncing;   /* one of them is at it */

    struct qi_queue **queues;
    uint32_t queues_count, queues_room;
    struct qi_queue *
        *table; /* of those that are not deleted, by their directories; table_room places */
    uint32_t table_room;
    uint32_t census;  /* queues before this one are counted */
    int census_error; /* why it stopped */

    struct qi_finding *findings;
    uint32_t findings_count, findings_room;
};

#endif
