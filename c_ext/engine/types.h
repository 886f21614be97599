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

/* The location of a publish record: 30 bits of offset and 2 bits that name the file. */
#define QI_LOC_SEGMENT      0u
#define QI_LOC_JOURNAL_EVEN (1u << 30)
#define QI_LOC_JOURNAL_ODD  (2u << 30)
#define QI_LOC_FILE         (3u << 30)
#define QI_LOC_OFFSET_MAX   ((1u << 30) - 1)

#define QI_BYTES_UNKNOWN UINT64_MAX

/* A segment holds the state of 16384 ReqIds: maps in memory, and a file, N.idx or N.alt. What a
 * flush has taken from the journals is in the segments only.
 *
 * A segment in memory, three messages published, the first acked, the second delivered and flushed:
 *
 *     slot      0 1 2 3 ...
 *     pub       1 1 1 0        published
 *     del       1 1 0 0        delivered at least once
 *     ack       1 0 0 0        acked: together the three monotone bits of rule H3
 *     out       0 1 0 0        delivered by this process and not acked yet: never on disk
 *     jpub      0 0 1 0        the bits of pub, del, ack that only the journal has (dirty)
 *     unacked = 2              popcount(pub & ~ack), exact also while the maps are not in memory
 *
 * Only segments in use have their maps in memory ("hot"). A cold one costs sizeof(struct
 * qi_segment). The maps consist of pieces of 64 slots. A piece exists only if something happened in
 * its slots. So a segment costs what is in it: 1 KB with one message, 160 KB when it is full.
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
    uint32_t promised; /* bytes of room that a caller is about to use (qi_side_room) */
    uint8_t bytes[];
};

/* 64 consecutive slots: their bits, and the locations of their publish records. */
struct qi_slots {
    uint64_t pub, del, ack, out;
    uint64_t jpub, jdel, jack;
    uint64_t jcount;              /* delivered again: the count has to reach the file */
    uint64_t jtime;               /* the time was set or removed: that has to reach the file */
    uint64_t jside;               /* side records have to reach the file */
    uint64_t held;                /* waits for a time (timers.c); the cursor passes over it */
    uint64_t due;                 /* held, and its time has come */
    uint64_t told;                /* listeners were told that its time has come */
    uint64_t stored;              /* its body is in the message store */
    uint64_t transient;           /* not persistent */
    uint64_t side;                /* has side records */
    struct qi_sides *sides;       /* the side records (sides.c); NULL: there are none */
    struct qi_instants published; /* when each was published */
    uint16_t *count; /* deliveries of each message; NULL: none was delivered more than once */
    uint32_t *again; /* for a message whose count is full: the queue's `again` at its last delivery;
                      * NULL: there is no such message */
    uint64_t *time;  /* of messages that are held or were held; NULL: there are none */
    uint64_t *lease; /* when the lease of a delivered message ends; 0: never */
    uint32_t *size;  /* of headers and body; NULL: the queue is not measured (bytes.c) */
    uint32_t loc[64];
    uint32_t sum[64]; /* qi_fields_sum of the record that was valid at loc */
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
    uint8_t *old; /* the file's bytes, checked, if the next flush will rewrite the file (rewrite.c).
                   * One byte if nothing of the file is left */
    uint8_t *kept; /* the first bytes of its file, for reads anywhere in them; NULL: none */
    uint32_t kept_length;
    uint32_t dirty;      /* changes since the last flush */
    uint32_t out_count;  /* bits set in out */
    uint32_t held_count; /* bits set in held */
    bool loaded;         /* the file's entries are in the maps */
    bool in_flush;       /* a running flush will set new locations */
    bool sized;          /* new pieces get an array of sizes */
    bool sided;          /* a message in it has or had a side record */
};

struct qi_segment {
    uint64_t number;
    struct qi_hot *hot;
    uint64_t epoch;              /* of the flush that created the file; part of its frames' seed */
    uint32_t length;             /* durable bytes of the file; 0: no file */
    uint32_t unacked;            /* published and not acked */
    uint32_t transient;          /* of the unacked: not persistent */
    uint32_t delayed;            /* of the unacked: held and not due yet */
    uint32_t dead;               /* of the unacked: dead letters */
    uint64_t due_us;             /* no time in it is earlier; 0: no message waits for a time */
    uint64_t expiry_us;          /* no message that may be dropped expires earlier; 0: none does */
    uint64_t earliest_expiry_us; /* no message that is alive expires earlier. It includes dead
                                    letters and delivered messages, and is for the file */
    uint64_t bytes;       /* of the waiting messages. If the queue is not measured: those as of the
                             durable length, or unknown */
    uint64_t flushed_due; /* due_us as of the durable length, as the MANIFEST has it */
    uint16_t flushed_unacked, flushed_transient, flushed_delayed, flushed_dead; /* likewise */
    uint16_t lost;      /* could not be read; the MANIFEST still counts them as unacked */
    bool alt;           /* the file is N.alt: it was rewritten an odd number of times */
    bool counted;       /* its references to message files are in the store's account */
    bool expiry_unread; /* the file may have messages that expire before expiry_us */
    bool expired_out;   /* at the last look a delivered message had expired */
    bool due_is_exact;  /* a message is due at due_us; false: it is only a lower bound */
};

/* The segments, sorted by number. Most are removed at the front and added at the end. */
struct qi_segments {
    struct qi_segment *items;
    uint32_t start, count, room;
};

/* A publish record that was valid when it was read. The fields are a copy, because another process
 * can change the mapped files at any time. */
struct qi_published {
    struct qi_fields fields;
    const uint8_t
        *payload; /* fields.embedded bytes, in the journal or in the bytes read of the segment */
};

#define QI_LANES      1023u /* the last number says that a record is something else (base.h) */
#define QI_PRIORITIES 256u

struct qi_lane {
    uint32_t number;
    uint64_t next;   /* the next ReqId of the lane */
    uint64_t cursor; /* no ready message of the lane has a lower ReqId */
    uint64_t opened; /* `next` when the queue was read */
    uint64_t noted;  /* `next` when the last moment was noted (moments.c) */
};

/* The lanes, sorted by number. Lane 0 is always there, as the first. */
struct qi_lanes {
    struct qi_lane *items;
    uint32_t count, priorities; /* all lanes; those of priorities, which are the first ones */
};

struct qi_timers {
    struct qi_heap delayed;  /* key: the time, by the wall clock; id: a message or a cold segment */
    uint32_t tidied;         /* entries of `delayed` when it was last built anew */
    struct qi_heap due;      /* key: 255 - priority, and the time */
    struct qi_heap redriven; /* the same for messages that were dead letters and were not delivered
                                since */
    struct qi_heap heads;    /* the messages in `due`, if heads_made; key: priority and time */
    bool heads_made;
    uint64_t last_due_us;  /* no time in `due` is later */
    struct qi_heap leases; /* key: when the lease ends, by the steady clock */
};

/* The waiters: who waits for a message, and in which queue.
 *
 * Each queue has a list of its waiters. The first one in the list is woken first, and leaves the
 * list. A publish only looks whether the list is empty. There are two kinds of waiters. One is a
 * thread that sleeps in qi_wait. The other is the queue's bell, for an event loop that must not
 * sleep: it makes the store's wake-up descriptor readable. The store's lock protects all of this.
 */

struct qi_waiter {
    struct qi_waiter *next, *previous;
    struct qi_sleeper *sleeper; /* NULL: the queue's bell */
    bool listed;
};

/* By the time `us`, all ReqIds below req_id of the same lane were published. */
struct qi_moment {
    uint64_t req_id, us;
};

/* The oldest messages of a full queue. They are dropped to make place for the current publish. */
struct qi_heads {
    uint64_t *req_ids;
    uint32_t count, room;
    uint32_t gone;  /* so many were dropped for the current publish */
    uint64_t bytes; /* of these messages, if the queue is measured */
    bool in_memory; /* the search must not wait for the disk: it returns QI_BUSY instead */
};

/* Messages that were delivered as often as their queue allows, and that nobody has (spent.c). */
struct qi_spent {
    uint64_t *req_ids;
    uint32_t count, room;
    uint64_t unlooked; /* segments from this number on were not searched; UINT64_MAX: all were */
    bool waits;        /* some are noted, or segments were not searched */
    bool leaving;      /* a thread drops them */
};

/* A sync that an event loop has asked for (store/asks.c). Each queue has one, and the store. */
struct qi_ask {
    struct qi_ask *next;
    struct qi_queue *queue; /* NULL: all queues */
    bool under_way;         /* from the ask until the loop has heard of the end */
    int error;
    char *text; /* of the error; NULL: none, or no memory for it */
};

struct qi_ask_list {
    struct qi_ask *first, *last;
    uint32_t count;
};

/* Their lock protects all of them. The store's lock may be held when it is taken, and must not be
 * taken under it. */
struct qi_asks {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was asked, or the thread began or came to its end */
    pthread_t thread;
    bool has_thread, closed; /* closed: nothing more may be asked */
    struct qi_ask all;
    struct qi_ask_list listed, ended; /* not begun yet; and those that the loop has to hear of */
};

/* Queues in the order of their last use. */
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
    bool misplaced; /* the folder is another queue's: nobody uses it */
    bool creating;  /* `recovering`, because it is not there yet */
    bool deleted;
    bool
        parked; /* recovered, and its session goes on, but its files are closed (durable/files.c) */
    int dir;    /* -1: asleep or parked, nothing is open */
    struct qi_queue_list *list;     /* the list of open or of parked queues; NULL: asleep */
    struct qi_queue *older, *newer; /* neighbours in that list */
    uint64_t use;                   /* when it became the last used one */
    uint64_t weight;                /* messages in the maps of a parked queue */

    struct qi_published published; /* the record that qi_segment_record has read */
    struct qi_journal journals[2]; /* journals[epoch % 2] is appended to */
    uint64_t epoch;
    uint64_t flushed_epoch; /* epochs up to this one are in the segments */
    uint64_t session;       /* of the last SESSION frame */
    uint64_t opened_epoch;  /* of the journal that was there when the queue was read */
    struct qi_lanes lanes;
    uint64_t highest;          /* the greatest count of a next ReqId, of all lanes */
    uint64_t reserved;         /* the current journal reserves the counts below this */
    uint64_t reserved_durable; /* the same durably: only these counts may be used (H10) */
    uint64_t floor; /* ReqIds below it lived through an unclean end: transient messages are dropped,
                       the others are delivered again */
    struct qi_segments segments;
    uint64_t depth;   /* messages published and not acked */
    uint64_t out;     /* of these: delivered by this process */
    uint64_t delayed; /* of these: not due yet */
    uint64_t dead;    /* of these: dead letters */
    uint64_t bytes;   /* of the waiting messages without dead letters, if the queue is measured */
    qi_counts counts; /* since the store was opened */
    bool shows_loss;  /* records that were durable are missing in its journals, until a flush */
    bool counts_all;  /* the counts are complete: nothing was published before that */
    bool measured;
    uint64_t expiry_us;  /* no known message expires earlier, by the wall clock; 0: none expires */
    uint64_t expired_us; /* when the worker last looked for expired ones, by the steady clock */
    struct qi_timers timers;
    qi_rules rules;
    bool rules_known; /* the caller has given the rules; nothing is dropped before */
    bool bounded;     /* the queue or the store has limits that a publish must ask */
    bool leased;  /* a lease was given since the queue was read, so a verb may be refused because a
                     lease has ended */
    uint32_t tag; /* part of each delivery's number; no other handle of this process has the same */
    uint32_t again; /* deliveries of messages whose count is full, which no count distinguishes */
    char *dead_to;  /* the queue that dead letters move to; NULL: they stay (dead_letters.c) */
    uint32_t dead_to_size;
    char dead_to_directory[33];
    bool dying;       /* new dead letters may move: those from dead_from to dead_until */
    bool dead_moving; /* a thread is moving some */
    bool dead_told;   /* a failed move was reported, and none has succeeded since */
    bool dead_left;   /* some stay, each for its own reason: look at all again at dead_left_us */
    uint64_t dead_from, dead_until;
    uint64_t dead_left_us;  /* by the steady clock */
    uint64_t dead_again_us; /* no move before, because the other queue is full or missing */
    uint64_t dead_pause_us; /* the last pause between two attempts */
    uint32_t dirty_count;
    uint32_t copies; /* records that a fan-out is about to append */
    struct qi_heads heads;
    struct qi_spent spent;
    struct qi_moment *moments; /* moments.c; NULL: none yet */
    uint32_t moments_count;

    struct qi_mark *marks;                   /* marks of listeners (engine/listeners.c) */
    struct qi_waiter *waiters, *last_waiter; /* NULL: nobody waits for a message */
    struct qi_waiter bell;
    uint64_t armed_due_us, armed_lease_us; /* all sleepers wake up at these timers at the latest */
    struct qi_queue *next_rung;            /* the next one in the store's list, if rung */
    bool rung;

    uint64_t lsn_base;   /* journal bytes of earlier epochs: lsn = lsn_base + tail only grows */
    uint64_t lsn_synced; /* everything below is durable */
    struct qi_commit_log
        *needs;          /* the oldest log with bytes that its own files may lack, or NULL */
    uint64_t lsn_logged; /* the end of its last COPY */
    uint64_t bodies_end; /* messages.written after the last body that a record names */
    uint32_t parts;      /* frames of transactions that have no header yet (durable/parts.c) */
    uint32_t pinned;     /* calls that are about to append; meanwhile its files stay open */
    bool old_unsynced;   /* the journal of the previous epoch is not durable yet */
    bool dir_unsynced;   /* a name in the directory is not durable yet */
    bool next_is_stale;  /* the other journal may hold frames of a future epoch */
    bool syncing;
    bool short_of_space; /* publishes wait until the disk has the reserve again (H14) */
    bool on_other_disk; /* its folder is a mount of its own; a sync of the store's disk misses it */
    struct qi_flush_job *flush; /* running or due; NULL: none */
    bool flushing;              /* a thread runs it */
    uint64_t past_bytes; /* of history, counted since the directory was read for that; 0: it was not
                          */

    uint8_t *window; /* read-ahead over one segment file */
    uint32_t window_room, window_length;
    uint64_t window_number, window_offset;
    uint64_t browsed; /* the segment whose maps a browse has loaded */
    bool used;        /* used since the last look of the worker */
    bool unrelieved;  /* tried in this round of relieve(), and could not give its memory back */
    bool wanted;      /* somebody asked it for a message since qi_queue_wanted looked */
    bool written;     /* this session may have written to its files */
    uint64_t idle_since_us;
    struct qi_ask ask;
};

struct qi_finding {
    bool damage; /* false: it is a note */
    char *where; /* the file's path below the store */
    uint64_t offset;
    uint64_t lost;    /* messages that it has cost, as far as they can be counted */
    uint64_t orphans; /* deliveries and acks without a publish */
    char *text;
};

/* What store.meta says of the commit logs (commits/expected.c). */
struct qi_logs {
    bool known;       /* false: it is of format 1, or earlier code wrote it */
    uint32_t count;   /* behind a clean end: how many logs there were; else 0 */
    uint64_t newest;  /* a log with this number was durable; 0: there was none */
    uint64_t end;     /* and bytes of that log below this offset were */
    uint64_t catalog; /* a catalog with this number was durable; 0: there was none */
    /* No COPY below this offset of this log is needed, nor any in older logs: what the queues' own
     * files have is newer. 0: that is not known. */
    uint64_t settled, settled_end;
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
    uint64_t unclean_session; /* the last session that did not end with a close */
    bool upgrading;           /* it had an older format until this open */
    bool counts_lost;         /* a close had no space to keep the counts (store/counts.c) */
    bool data_lost;           /* of settings or data; nobody has accepted it (store/accept.c) */
    bool records_lost;        /* records of queues' journals; nobody has accepted it */
    bool loss_shown;          /* the files show it still: this open has told what and where */
    struct qi_logs logs;      /* what store.meta says of them */
    bool earlier_durable;     /* all names and bytes of queues of earlier sessions are durable */
    bool crowded;             /* it has so many queues that one sync may be the barrier of all */
    uint32_t barriers;        /* queues that had a barrier of their own in this session */
    bool unsure;              /* some bytes that this session wrote may never become durable */
    uint64_t opened_wall_us, opened_steady_us; /* the disk's clocks when the store was opened */
    uint64_t latest_us; /* the latest wall clock of all sessions; used for a warning (H17) */
    bool clock_told;    /* the warning was given: the clock was ahead before */

    pthread_mutex_t gate;   /* held by the thread that waits for the lock after its I/O */
    atomic_bool returning;  /* there is such a thread */
    pthread_mutex_t lock;   /* protects everything below and all queues */
    pthread_cond_t changed; /* a sync or a flush ended */
    pthread_mutex_t sleep;  /* held by the worker from its last look at the state to its wait */
    pthread_cond_t work;    /* the worker has something to do */
    pthread_t worker;
    bool has_worker, stopping, closed;
    bool deferring;         /* flushes wait for the worker, or for qi_store_tick */
    int failed;             /* H13: set once, never cleared */
    char why_failed[256];   /* the text of the first failure */
    bool dirty;             /* something is not synced yet */
    uint64_t commit_due_us; /* see qi_commit_if_due */
    bool flush_due;
    bool relief_due;      /* memory is scarce: the worker puts queues to sleep (store/idle.c) */
    uint64_t relieved_us; /* when it did so last */
    /* Set by the layer above. Long work without the lock calls it between two files, so that the
     * group commit goes on (qi_commit_if_due). */
    void (*between_files)(struct qi_store *store);
    /* Also set by the layer above. Returns the live queue of that directory if it has a handle, or
     * NULL. */
    struct qi_queue *(*find_queue)(const struct qi_store *store, const char *directory);
    uint64_t dead_due_us;  /* no queue has dead letters to move earlier, by the steady clock */
    uint64_t spent_due_us; /* no last delivery ends earlier, by the steady clock (spent.c) */
    bool compacting;
    uint64_t compactions, compacted_bytes; /* files were copied and given back so often, in all */
    bool counting; /* a census runs: a scan that counts the messages of the queues */
    bool closing;  /* no new call may begin */
    bool messages_syncing;
    uint32_t waiting; /* threads in qi_wait */
    uint32_t looking; /* threads that read names without the lock, or wait for the commit log: a
                         close waits for them */
    uint64_t deleted; /* queues that were deleted in this session */
    uint64_t named, named_durably; /* queues that were created in it, in all: their folders have
                                      their names; these are durable (store/create.c) */
    bool naming;                   /* a thread makes them durable */
    qi_counts gone;                /* counts of the queues that were deleted */
    qi_syncs syncs;                /* of this session */
    void (*tell_slow)(
        struct qi_store *); /* called by the worker behind a slow sync; NULL: nobody */
    bool slow_due;          /* there was one since */
    uint64_t slow_told_us;  /* when it was called last; 0: it was not */
    uint64_t moved;         /* stored bodies that moved from one queue to another in this session */
    uint64_t depth, dead, bytes;   /* sums over all queues that were recovered */
    struct qi_listener *listeners; /* NULL: there are none */
    struct qi_queue *marked;       /* a queue whose marks must be checked; NULL: none */
    uint32_t places_wanted; /* number of threads that wait for a place in a queue, plus 1 if armed,
                               plus marks. A verb that changes a count looks at this word alone */
    bool places_armed;      /* an event loop waits for a place */
    pthread_cond_t places;

    int bell;                  /* the wake-up descriptor; -1: no event loop has asked for one */
    pthread_mutex_t bell_lock; /* for the list of queues that rang; taken last, and only briefly */
    struct qi_queue *rung;
    bool places_came; /* the descriptor was signalled for tasks that wait for a place */
    bool events_came; /* the descriptor was signalled for listeners */
    struct qi_asks asks;

    struct qi_messages messages;
    struct qi_commits *commits; /* the commit log (commits.h); NULL: format 1 */
    struct qi_store *next_open; /* of the same disk (durable/files.c) */
    struct qi_queue_list open, parked,
        unsynced;       /* queues: with files; parked and durable, or not */
    uint64_t expiry_us; /* no queue with known rules has an earlier expiry_us; 0: none has one */
    uint64_t expire_again_us; /* no look for expired messages before, by the steady clock */
    uint32_t disk_syncs; /* threads that sync the whole file system, or wait for their turn to do
                            so: a close waits for them */
    bool disk_syncing;   /* one of them syncs now */

    struct qi_queue **queues;
    uint32_t queues_count, queues_room;
    struct qi_old_name *old_names; /* of queues that were renamed (store/rename.c) */
    struct qi_queue **table;       /* hash table of the queues that are not deleted, by directory */
    uint32_t table_room;
    uint32_t census;  /* the census has counted the queues before this one */
    int census_error; /* why the census stopped */

    struct qi_finding *findings;
    uint32_t findings_count, findings_room;
    bool missed; /* queues without a folder were looked for (store/counts.c) */
};

#endif
