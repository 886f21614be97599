/* commits.h - the commit log: one sync makes the journals of many queues durable.
 *
 *     commits/3.log  header header | COPY COPY COPY | MARK | COPY COPY | ...          oldest
 *     commits/4.log  header header | COPY ... 0 0 0            newest: it is appended to
 *
 * A COPY says which bytes a journal has at an offset. So if a log was synced, the journal's bytes
 * in it are durable before the journal's own file is synced. Recovery writes the bytes of all COPYs
 * into the journals before it reads the journals. A log is deleted when no queue needs it any more:
 * all its bytes are then durable in the queues' own files.
 *
 * A log has the layout of a journal, with a magic of its own. So journal.c appends to it, checks it
 * and cuts it. All functions but qi_commits_sync_run are called with the store's lock.
 */
#ifndef QI_COMMITS_H
#define QI_COMMITS_H

#include "engine/engine.h"

#define QI_COMMIT_LOGS_MAX                                                                         \
    4u /* with so many logs, journals are synced one by one until one goes                         \
        */

/* One log file. */
struct qi_commit_log {
    struct qi_commit_log *newer;
    struct qi_journal journal; /* its epoch is the number of the log */
    uint32_t needed; /* number of queues for which this is the oldest log they need: awake ones, and
                        those that were not recovered yet */
    uint32_t records; /* records that belong into the next catalog */
};

/* ---- mappings.c ---- */

/* Small durable mappings. The store has one, and so has each queue. All mappings are in memory. A
 * change of a mapping is a DATA frame in the commit log. */

/* A key and its value. */
struct qi_datum {
    struct qi_datum *next;          /* in the same place of the hash table */
    struct qi_datum *older, *newer; /* in the same scope, in the order in which the keys came */
    struct qi_scope *scope;
    uint32_t hash, value_size; /* in a change, the size QI_DATA_REMOVED removes the key */
    uint32_t key_size;
    uint8_t bytes[]; /* key, value */
};

/* One mapping: that of a queue, or that of the store, whose identity here is zeros. */
struct qi_scope {
    struct qi_scope *next; /* in the same place of the hash table */
    uint8_t identity[QI_IDENTITY_SIZE];
    struct qi_datum *oldest, *newest;
    uint32_t count;  /* the user's keys: those that do not begin with a zero byte */
    uint64_t bytes;  /* size of the user's keys and values as entries of a DATA frame */
    uint64_t hidden; /* the same size for the engine's keys */
};

struct qi_data {
    struct qi_datum **entries; /* hash tables, each of a power of two places; NULL: none yet */
    struct qi_scope **scopes;
    uint32_t entries_room, entries_count, scopes_room, scopes_count;
};

/* A prepared change. Its memory is allocated, so that nothing can stop it any more. */
struct qi_data_change {
    struct qi_scope *scope;
    struct qi_datum *first, *last;
};

#define QI_DATA_MAX (UINT32_C(512) << 10) /* bytes of entries in one change */

/* True if the entries fill these bytes exactly, and each has a key. */
bool qi_data_is_sound(const uint8_t *entries, uint64_t size);
/* Prepares a change. It has no effect until qi_data_take; a change that is not taken must be
 * dropped by qi_data_drop. Returns 0 or -ENOMEM. */
int qi_data_prepare(struct qi_data *data, const uint8_t *scope, const uint8_t *entries,
                    uint64_t size, struct qi_data_change *change);
void qi_data_take(struct qi_data *data, struct qi_data_change *change);
/* A change of so many bytes is too large: QI_E_ARGUMENT. */
int qi_fail_data_size(uint64_t size);
void qi_data_drop(struct qi_data_change *change);
/* The mapping of that identity. NULL: it has had no key since the store was opened. */
struct qi_scope *qi_data_scope(const struct qi_data *data, const uint8_t *identity);
const struct qi_datum *qi_data_find(const struct qi_data *data, const uint8_t *scope,
                                    const uint8_t *key, uint32_t key_size);
/* The queue was deleted: removes its mapping. */
void qi_data_forget(struct qi_data *data, const uint8_t *identity);
void qi_data_free(struct qi_data *data);
static inline bool qi_is_engines(const struct qi_datum *entry) {
    return entry->bytes[0] == 0;
}
static inline uint64_t qi_datum_size(const struct qi_datum *entry) {
    return QI_DATA_FIXED + (uint64_t)entry->key_size + entry->value_size;
}
/* Writes an entry as a DATA frame has it. Returns its end. */
uint8_t *qi_datum_write(const struct qi_datum *entry, uint8_t *at);

/* A COPY that was found when the store was opened. */
struct qi_copy {
    struct qi_commit_log *log;
    uint64_t at;            /* where its frame stands in the log */
    uint64_t epoch, offset; /* of the journal; where its bytes belong in it */
    uint32_t length, bytes; /* size of the frame's payload; where the copied bytes begin in it */
    uint32_t size;          /* number of copied bytes */
    uint32_t next;          /* next COPY of the same queue: index + 1; 0: this is the last one */
};

/* The COPYs of a queue that was not recovered yet. */
struct qi_copied {
    uint8_t identity[QI_IDENTITY_SIZE];
    uint32_t first, last;         /* in `copies`: index + 1 */
    struct qi_commit_log *oldest; /* NULL: the place is empty, or the queue was recovered */
};

/* A frame of a transaction that stands in a journal without its header. It gets the header when the
 * TRANSACTION is durable (durable/parts.c). */
struct qi_part {
    struct qi_part *next;         /* in the order of their transactions */
    struct qi_queue *queue;       /* NULL: the queue was deleted meanwhile */
    uint64_t epoch, at;           /* of the journal; offset of the frame in it */
    uint64_t tail, lsn, reserved; /* of the queue behind this frame */
    uint64_t end;                 /* where the TRANSACTION ends, as a value of commits->end */
    uint8_t header[QI_FRAME_HEADER];
};

struct qi_commits {
    struct qi_disk *disk;
    int dir;
    uint8_t identity[QI_IDENTITY_SIZE]; /* of the store */
    bool use_mapping;
    const int *failed;  /* the store's, as its journals have it */
    uint64_t bytes_max; /* a log of this size is full, and another one begins */
    uint64_t keep_free; /* bytes that must stay free on the disk */
    struct qi_commit_log *oldest, *newest;
    uint64_t number;    /* the highest number that a log ever had */
    uint64_t named;     /* store.meta names this log, or a newer one, durably */
    bool goes_on;       /* the newest log can be appended to */
    bool dir_unsynced;  /* the name of the newest log is not durable yet */
    bool busy;          /* a thread commits */
    bool settling;      /* a new log has begun: queues are synced so that the older logs can go */
    uint32_t settle_at; /* the store's queues before this one have been synced for that */

    struct qi_copy *copies;
    uint32_t copies_count, copies_room;
    struct qi_copied *copied; /* a table of copied_room places */
    uint32_t copied_count, copied_room;

    struct qi_data data;
    struct qi_part *first_part, *last_part; /* frames that have no header yet */

    uint64_t before;   /* bytes of the logs before the newest one */
    uint64_t end;      /* end of the last frame of this session, MARKs not counted */
    uint64_t catalog;  /* the catalog has what the logs before this number say; 0: there is none */
    bool catalog_hurt; /* it is damaged or missing: a new one is written soon */
    bool catalog_gone; /* that it is missing was reported */
    uint8_t *draft;    /* the catalog that has to be written next; NULL: there is none */
    uint64_t draft_size, draft_number;
    bool writing; /* a thread writes it */
};

/* Something of the mappings is lost, as the damage says that was just reported. store.meta keeps
 * that in mind until somebody accepts it (store/accept.c). */
static inline void qi_data_is_lost(struct qi_store *store) {
    store->data_lost = store->loss_shown = true;
}

/* ---- open.c ---- */

/* Reads the logs that are there, and notes where the COPYs are. A writer will append to the newest
 * log. Reports findings. Cost: reads all logs. Returns 0 or the error. */
int qi_commits_open(struct qi_store *store);
void qi_commits_close(struct qi_store *store);

/* ---- expected.c ---- */

/* Writes into store->logs what is durable now, for the store.meta that is written next. `clean`:
 * the session ends with it. */
void qi_logs_name(struct qi_store *store, bool clean);
/* True if store->logs names the newest log and catalog that there are. */
bool qi_logs_are_named(const struct qi_store *store);
/* store.meta names this log durably: older ones may go. */
void qi_logs_named(struct qi_commits *commits, uint64_t number);

/* ---- copies.c ---- */

/* A function that puts bytes where they belong, in a file or in memory. Returns 0 or -errno. */
typedef int (*qi_put_fn)(void *context, const uint8_t *bytes, uint64_t size, uint64_t offset);
/* Calls `put` for the bytes of all COPYs of a journal, in their order. Returns 0 or the error. */
int qi_commits_lay(struct qi_commits *commits, const uint8_t *identity, uint64_t epoch,
                   qi_put_fn put, void *context);
/* Where the last COPY of a journal ends; 0: it has none. */
uint64_t qi_commits_covered(const struct qi_commits *commits, const uint8_t *identity,
                            uint64_t epoch);
/* The highest epoch of the queue that has a COPY; 0: there is none. */
uint64_t qi_commits_epoch(const struct qi_commits *commits, const uint8_t *identity);
/* Called when the queue was recovered, and its bytes in the logs are durable in its own files. */
void qi_commits_taken(struct qi_commits *commits, const uint8_t *identity);
/* True if queues that were not recovered yet may be the only ones that need an older log. */
static inline bool qi_commits_untaken(const struct qi_commits *commits) {
    return commits && commits->copied_count > 0 && commits->oldest != commits->newest;
}
/* Called when all queues were recovered. The remaining COPYs belong to queues that were deleted. */
void qi_commits_all_taken(struct qi_commits *commits);

/* ---- commits.c ---- */

/* True if so many more frames, with so many bytes in all, fit into the newest log. */
bool qi_commits_fit(const struct qi_commits *commits, uint32_t frames, uint64_t bytes);
/* Makes room in the newest log for so many COPYs with so many bytes. Begins a new log if needed.
 * Returns 0 or -errno. -ENOSPC: the disk is full; or the newest log is full, and there are too many
 * logs to begin another one (a `needful` frame may exceed that number). -EAGAIN: the newest log
 * must be synced first, because its content must not be lost if a later log is read. */
int qi_commits_room(struct qi_commits *commits, uint32_t copies, uint64_t bytes, bool needful,
                    uint64_t now_us);
/* Begins a new log, also if the newest one has room. As qi_commits_room. */
int qi_commits_begin(struct qi_commits *commits, uint64_t now_us);
/* Appends a COPY. The log must have room for it. Returns 0 or -errno. */
int qi_commits_append(struct qi_commits *commits, const uint8_t *identity, uint64_t epoch,
                      uint64_t offset, const uint8_t *bytes, uint32_t size);
/* Appends a frame that belongs into the next catalog: its kind, a scope or identity, and bytes. The
 * log must have room for it. An `urgent` frame may use the space that publishes leave free. Returns
 * 0 or -errno. */
int qi_commits_record(struct qi_commits *commits, uint32_t kind, const uint8_t *identity,
                      const uint8_t *bytes, uint32_t size, bool urgent);
/* Prepares a TRANSACTION with that payload in the newest log, which must have room for it. Sets *at
 * to the place of the payload. Until qi_commits_transaction appends it, the log has nothing of it.
 * `has_data`: some of it belongs into the next catalog. Returns 0 or -errno. */
int qi_commits_transaction_room(struct qi_commits *commits, uint64_t payload, bool urgent,
                                uint8_t **at);
int qi_commits_transaction(struct qi_commits *commits, uint32_t payload, bool has_data);
/* Writes the head of a COPY, and returns the place for its bytes. */
uint8_t *qi_put_copy(uint8_t *at, const uint8_t *identity, uint64_t epoch, uint64_t offset);
/* Everything that was appended in this session below this value of commits->end is durable. */
uint64_t qi_commits_durable(const struct qi_commits *commits);
/* True if a frame whose append failed may be in the log all the same. */
bool qi_commits_in_doubt(const struct qi_commits *commits);

/* A sync of the newest log. Its begin and end need the lock. Its run is called without the lock. */
struct qi_commits_sync {
    struct qi_disk *disk;
    struct qi_commit_log *log;
    int dir; /* -1: the name of the log is durable */
    uint64_t from, tail, end;
    uint64_t now_us;
};
void qi_commits_sync_begin(struct qi_commits *commits, struct qi_commits_sync *sync,
                           uint64_t now_us);
int qi_commits_sync_run(const struct qi_commits_sync *sync); /* 0 or -errno */
int qi_commits_sync_end(struct qi_commits *commits, const struct qi_commits_sync *sync);

/* Notes that the queue needs the newest log, unless it needs an older one already. */
void qi_commits_need(struct qi_commits *commits, struct qi_queue *queue);
/* Notes that the queue's own files have all that the logs below this number have of it (UINT64_MAX:
 * that all logs have). */
void qi_commits_need_from(struct qi_commits *commits, struct qi_queue *queue, uint64_t number);
/* Deletes the logs that no queue needs. The newest one stays. */
void qi_commits_release(struct qi_commits *commits);
/* True if a queue lacks something in its own files that a log has. */
bool qi_commits_needed(const struct qi_commits *commits);

/* ---- catalog.c ---- */

/* Makes the draft of a catalog from the mappings, as of the beginning of that log. Makes none if
 * the catalog has all that older logs say. Returns 0 or -ENOMEM. */
int qi_catalog_draft(struct qi_commits *commits, uint64_t number, uint64_t now_us);
/* Writes a draft durably. Called without the lock. Returns 0 or -errno. Sets *unsure if a sync
 * failed. */
int qi_catalog_write(struct qi_disk *disk, int root, const uint8_t *bytes, uint64_t size,
                     bool *unsure);
/* Reads the catalog and sets commits->catalog (0: there is none). Reports findings. Returns 0 or
 * the error. */
int qi_catalog_read(struct qi_store *store);
/* The number of the catalog on disk now. 0: there is none, or its header cannot be read. */
uint64_t qi_catalog_number(struct qi_store *store);
/* There was a newer catalog than there is, as the log or session `knows`: reports it, once. */
void qi_catalog_is_gone(struct qi_store *store, const char *knows);
/* Applies a DATA or DELETE frame to the mappings. Returns 0, QI_EMPTY if the frame is of another
 * kind, or the error. */
int qi_catalog_take(struct qi_store *store, const char *file, const struct qi_frame *frame);

#endif
