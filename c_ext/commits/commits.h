/* commits.h - the commit log: one sync makes the journals of many queues durable.
 *
 *     commits/3.log  header header | COPY COPY COPY | MARK | COPY COPY | ...          oldest
 *     commits/4.log  header header | COPY ... 0 0 0            newest: it is appended to
 *
 * A COPY says which bytes a journal has at an offset. So a journal whose bytes are in a log that
 * was synced is durable before its own file is synced. Recovery writes the bytes of all COPYs into
 * the journals before it reads those. A log goes when no queue needs it any more: all bytes that it
 * has are durable in the queues' own files.
 *
 * The logs are laid out as journals are, with a magic of their own; so journal.c appends, checks
 * and cuts them. All functions are called with the store's lock, but for qi_commits_sync_run.
 */
#ifndef QI_COMMITS_H
#define QI_COMMITS_H

#include "engine/engine.h"

#define QI_COMMIT_LOGS_MAX 4u /* with so many, journals are synced one by one until one goes */

/* One file. */
struct qi_commit_log {
    struct qi_commit_log *newer;
    struct qi_journal journal; /* its epoch is the number of the log */
    uint32_t
        needed; /* by so many queues first: awake ones, and those that were not recovered yet */
    uint32_t records; /* that belong into the next catalog */
};

/* ---- mappings.c ---- */

/* Small durable mappings: the store has one, and each queue. A change of one is a DATA frame of the
 * commit log; all of them are in memory. */

/* A key and its value. */
struct qi_datum {
    struct qi_datum *next;          /* of the same place in the table */
    struct qi_datum *older, *newer; /* of the same scope, in the order in which the keys came */
    struct qi_scope *scope;
    uint32_t hash, value_size; /* QI_DATA_REMOVED: of a change, the key goes */
    uint32_t key_size;
    uint8_t bytes[]; /* key, value */
};

/* One mapping: that of a queue, or with zeros as the identity that of the store. */
struct qi_scope {
    struct qi_scope *next; /* of the same place in the table */
    uint8_t identity[QI_IDENTITY_SIZE];
    struct qi_datum *oldest, *newest;
    uint32_t count;  /* keys of the user: those that do not begin with a zero */
    uint64_t bytes;  /* of these, as entries of a DATA frame */
    uint64_t hidden; /* the same of the engine's */
};

struct qi_data {
    struct qi_datum **entries; /* tables, with a power of two of places each; NULL: none yet */
    struct qi_scope **scopes;
    uint32_t entries_room, entries_count, scopes_room, scopes_count;
};

/* A change that nothing can stop any more: the memory for it is there. */
struct qi_data_change {
    struct qi_scope *scope;
    struct qi_datum *first, *last;
};

#define QI_DATA_MAX (UINT32_C(512) << 10) /* bytes of entries in one change */

/* Entries that fill their bytes exactly, with a key each. */
bool qi_data_is_sound(const uint8_t *entries, uint64_t size);
/* 0 or -ENOMEM. Nothing is to be seen of it until it is taken; a change that is not taken is
 * dropped. */
int qi_data_prepare(struct qi_data *data, const uint8_t *scope, const uint8_t *entries,
                    uint64_t size, struct qi_data_change *change);
void qi_data_take(struct qi_data *data, struct qi_data_change *change);
void qi_data_drop(struct qi_data_change *change);
/* NULL: it has no keys, and never had one since the store was opened. */
struct qi_scope *qi_data_scope(const struct qi_data *data, const uint8_t *identity);
const struct qi_datum *qi_data_find(const struct qi_data *data, const uint8_t *scope,
                                    const uint8_t *key, uint32_t key_size);
/* The queue is no more. */
void qi_data_forget(struct qi_data *data, const uint8_t *identity);
void qi_data_free(struct qi_data *data);
static inline bool qi_is_engines(const struct qi_datum *entry) {
    return entry->bytes[0] == 0;
}
static inline uint64_t qi_datum_size(const struct qi_datum *entry) {
    return QI_DATA_FIXED + (uint64_t)entry->key_size + entry->value_size;
}
/* As in a DATA frame; what is behind it. */
uint8_t *qi_datum_write(const struct qi_datum *entry, uint8_t *at);

/* Where a COPY stands that was found when the store was opened. */
struct qi_copy {
    struct qi_commit_log *log;
    uint64_t at; /* of its frame in the log */
    uint64_t epoch, offset;
    uint32_t length, bytes; /* of that frame's payload; where in it what the COPY is of begins */
    uint32_t size;
    uint32_t next; /* of the same queue: index + 1; 0: it is the last one */
};

/* The COPYs of a queue that was not recovered yet. */
struct qi_copied {
    uint8_t identity[QI_IDENTITY_SIZE];
    uint32_t first, last;         /* index + 1 */
    struct qi_commit_log *oldest; /* NULL: nothing here, or the queue was recovered */
};

/* A frame of a transaction that stands in a journal without its header. It gets that when the
 * TRANSACTION is durable (durable/parts.c). */
struct qi_part {
    struct qi_part *next;         /* in the order of their transactions */
    struct qi_queue *queue;       /* NULL: it was deleted meanwhile */
    uint64_t epoch, at;           /* of the journal; of the frame in it */
    uint64_t tail, lsn, reserved; /* behind it */
    uint64_t end;                 /* of the TRANSACTION, as commits->end */
    uint8_t header[QI_FRAME_HEADER];
};

struct qi_commits {
    struct qi_disk *disk;
    int dir;
    uint8_t identity[QI_IDENTITY_SIZE]; /* of the store */
    bool use_mapping;
    uint64_t bytes_max; /* of a log, before another one begins */
    uint64_t keep_free; /* on the disk */
    struct qi_commit_log *oldest, *newest;
    uint64_t number;    /* the highest that a log ever had */
    bool goes_on;       /* the newest can be appended to */
    bool dir_unsynced;  /* the newest's name is not durable yet */
    bool busy;          /* a thread commits */
    bool settling;      /* a log has begun; queues are synced so that the older ones can go: */
    uint32_t settle_at; /* those of the store before this one were */

    struct qi_copy *copies;
    uint32_t copies_count, copies_room;
    struct qi_copied *copied; /* a table of copied_room places */
    uint32_t copied_count, copied_room;

    struct qi_data data;
    struct qi_part *first_part, *last_part; /* that have no header yet */

    uint64_t before;  /* bytes of the logs before the newest one */
    uint64_t end;     /* of the last frame that was appended in this session, MARKs not counted */
    uint64_t catalog; /* the file has what the logs before this one say; 0: there is none */
    uint8_t *draft;   /* of a catalog that is to be written; NULL: none is */
    uint64_t draft_size, draft_number;
    bool writing; /* a thread is at it */
};

/* ---- open.c ---- */

/* Reads the logs that are there, and notes where the COPYs are. A writer goes on in the newest one.
 * Findings are reported. Cost: reads all logs. 0, or the error. */
int qi_commits_open(struct qi_store *store);
void qi_commits_close(struct qi_store *store);

/* ---- copies.c ---- */

/* What puts bytes where they belong: into a file, or into memory. 0 or -errno. */
typedef int (*qi_put_fn)(void *context, const uint8_t *bytes, uint64_t size, uint64_t offset);
/* Puts the bytes of all COPYs of a journal, in their order. 0, or the error. */
int qi_commits_lay(struct qi_commits *commits, const uint8_t *identity, uint64_t epoch,
                   qi_put_fn put, void *context);
/* Where the last COPY of a journal ends; 0: it has none. */
uint64_t qi_commits_covered(const struct qi_commits *commits, const uint8_t *identity,
                            uint64_t epoch);
/* The highest epoch of which there is a COPY; 0: none. */
uint64_t qi_commits_epoch(const struct qi_commits *commits, const uint8_t *identity);
/* The queue was recovered, and what the logs have of it is durable in its files. */
void qi_commits_taken(struct qi_commits *commits, const uint8_t *identity);
/* Queues that nobody recovered yet may be all that keeps an older log. */
static inline bool qi_commits_untaken(const struct qi_commits *commits) {
    return commits && commits->copied_count > 0 && commits->oldest != commits->newest;
}
/* All queues that are there were recovered: the other COPYs are of queues that were deleted. */
void qi_commits_all_taken(struct qi_commits *commits);

/* ---- commits.c ---- */

/* So many more frames with so many bytes in all fit into the newest log. */
bool qi_commits_fit(const struct qi_commits *commits, uint32_t frames, uint64_t bytes);
/* There is a log with room for so many COPYs with so many bytes; begins one if that is needed. 0,
 * or -errno: -ENOSPC also if the newest is full and there are too many (any number may be there if
 * the frame is `needful`); -EAGAIN: the newest has to be synced first, for what it says must not be
 * lost when a later one is read. */
int qi_commits_room(struct qi_commits *commits, uint32_t copies, uint64_t bytes, bool needful,
                    uint64_t now_us);
/* Appends a COPY. There is room. 0 or -errno. */
int qi_commits_append(struct qi_commits *commits, const uint8_t *identity, uint64_t epoch,
                      uint64_t offset, const uint8_t *bytes, uint32_t size);
/* Appends a frame that belongs into the next catalog: its kind, a scope or identity, and bytes.
 * There is room. An `urgent` one may use the space that publishes leave free. 0 or -errno. */
int qi_commits_record(struct qi_commits *commits, uint32_t kind, const uint8_t *identity,
                      const uint8_t *bytes, uint32_t size, bool urgent);
/* Room for a TRANSACTION with that payload in the newest log, which fits; where it goes. Nothing is
 * there before it is appended. 0 or -errno. */
int qi_commits_transaction_room(struct qi_commits *commits, uint64_t payload, bool urgent,
                                uint8_t **at);
int qi_commits_transaction(struct qi_commits *commits, uint32_t payload);
/* Writes the head of a COPY, behind which its bytes go: where. */
uint8_t *qi_put_copy(uint8_t *at, const uint8_t *identity, uint64_t epoch, uint64_t offset);
/* How much of what was appended to all logs in this session is durable, to be compared with
 * commits->end. */
uint64_t qi_commits_durable(const struct qi_commits *commits);
/* A frame whose append failed may be in the log all the same. */
bool qi_commits_in_doubt(const struct qi_commits *commits);

/* A sync of the newest log: begin and end with the lock, run without it. */
struct qi_commits_sync {
    struct qi_disk *disk;
    struct qi_commit_log *log;
    int dir; /* -1: its name is durable */
    uint64_t from, tail, end;
    uint64_t now_us;
};
void qi_commits_sync_begin(struct qi_commits *commits, struct qi_commits_sync *sync,
                           uint64_t now_us);
int qi_commits_sync_run(const struct qi_commits_sync *sync); /* 0 or -errno */
int qi_commits_sync_end(struct qi_commits *commits, const struct qi_commits_sync *sync);

/* The queue needs the newest log, if it does not need an older one. */
void qi_commits_need(struct qi_commits *commits, struct qi_queue *queue);
/* Its files have all that the logs older than this number have of it (UINT64_MAX: than any
 * number). */
void qi_commits_need_from(struct qi_commits *commits, struct qi_queue *queue, uint64_t number);
/* Logs that nobody needs go; the newest one stays. */
void qi_commits_release(struct qi_commits *commits);

/* ---- catalog.c ---- */

/* What the mappings have becomes the draft of a catalog, as of the beginning of that log, if an
 * older log says something that the catalog has not. 0 or -ENOMEM. */
int qi_catalog_draft(struct qi_commits *commits, uint64_t number, uint64_t now_us);
/* Writes a draft durably, without the lock. 0 or -errno; *unsure: a sync failed. */
int qi_catalog_write(struct qi_disk *disk, int root, const uint8_t *bytes, uint64_t size,
                     bool *unsure);
/* Reads the file; to commits->catalog, 0 if there is none. Findings are reported. 0, or the
 * error. */
int qi_catalog_read(struct qi_store *store);
/* The number of the catalog that is there now; 0: there is none, or its header cannot be read. */
uint64_t qi_catalog_number(struct qi_store *store);
/* Takes over what DATA and DELETE frames say. 0, QI_EMPTY: the frame is another one; or the
 * error. */
int qi_catalog_take(struct qi_store *store, const char *file, const struct qi_frame *frame);

#endif
