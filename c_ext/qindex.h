/* What Python sees of the engine, in the order of a message's life: errors, the store, queues,
 * publish, get, settle, what a queue does by itself, figures. build.py gives the text between the
 * two marks to cffi, so nothing is declared twice. Times are in microseconds; those of the wall
 * clock count from 1970. */
#ifndef QI_QINDEX_H
#define QI_QINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */

/* ---- errors ---- */

/* Every call returns 0, a count or an id (>= 0), or one of these codes. After an error,
 * qi_error_text() gives its text to the thread that made the call. */
enum {
    QI_EMPTY = -1,     /* nothing to get */
    QI_E_IO = -2,      /* the disk failed a call */
    QI_E_CORRUPT = -3, /* damaged bytes */
    QI_E_LOCKED = -4,  /* another writer has the store */
    QI_E_FORMAT = -5,  /* another version or other settings */
    QI_E_FULL = -6,    /* disk full: nothing was changed */
    QI_E_FAILED = -7,  /* an earlier write or sync failed: only close is allowed */
    QI_E_CLOSED = -8,
    QI_E_READ_ONLY = -9,
    QI_E_UNKNOWN = -10, /* no such message, or not delivered */
    QI_E_ACKED = -11,   /* acked before */
    QI_E_ARGUMENT = -12,
    QI_E_MEMORY = -13,
    QI_E_FORKED = -14,     /* a handle of the parent process */
    QI_E_OUTCOME = -15,    /* a sync failed: whether the change is durable is not known */
    QI_E_ROOM = -16,       /* the caller's buffer is too small; nothing was changed */
    QI_E_MISSING = -17,    /* no such store or queue */
    QI_PAUSE = -18,        /* pause_us has passed and nothing has come; the caller may wait again */
    QI_BUSY = -19,         /* the verb must not wait and would have to; nothing was changed */
    QI_E_LEASE = -20,      /* the lease of a message has ended */
    QI_E_DELIVERED = -21,  /* a consumer has the message */
    QI_E_QUEUE_FULL = -22, /* the queue has reached one of its limits */
    QI_E_STORE_FULL = -23, /* the store has reached a limit that all its queues share */
    QI_E_ENDED = -24,      /* the delivery has ended, and another consumer has the message */
    QI_E_DEAD = -25,       /* the message is a dead letter: it cannot be delayed */
    QI_E_NEWER = -26,      /* a file of a newer format, which this version does not understand */
    QI_E_NOT_EMPTY = -27,  /* the queue has messages */
    QI_E_IN_USE = -28,     /* a consumer has messages of the queue, or waits for one */
    QI_E_EXISTS = -29,     /* there is a queue of that name already */
};
const char *qi_error_text(void);
/* After QI_E_CORRUPT: the ReqId of the damaged message, if what follows it can be read; or -1. */
int64_t qi_error_req_id(void);

/* ---- values ---- */

uint32_t qi_crc32c(uint32_t crc, const void *bytes, size_t length);
uint32_t qi_crc32c_portable(uint32_t crc, const void *bytes, size_t length);
bool qi_crc32c_by(uint32_t way, uint32_t *crc, void *to, const void *bytes, size_t length);

typedef struct qi_store qi_store;
typedef struct qi_queue qi_queue;

typedef struct {
    uint32_t format;              /* 1 or 2; 0: an existing store's own, or new_format */
    uint32_t new_format;          /* for a store that is created; 0: 1 */
    uint32_t segment_entries;     /* 2 ** 3 to 2 ** 14, fixed at creation; 0: as it is, or 16384 */
    uint32_t max_journal_entries; /* a dirty_count above this begins a flush */
    uint64_t max_journal_bytes;
    uint32_t embed_below; /* a message with fewer bytes is embedded; QI_AWAITED: four times this */
    uint64_t message_file_size;
    uint64_t sync_interval_us; /* between two group commits; 0: only explicit syncs */
    uint64_t min_free;         /* bytes of the disk that publishes leave free */
    uint64_t max_messages;     /* limit for all queues together; 0: no limit */
    uint64_t max_bytes;        /* the same for bytes of headers and bodies */
    uint64_t keep_history; /* bytes of flushed journals that each queue keeps for replay; 0: none */
    uint32_t max_open_files; /* for all stores of the process; 0: half of the process's limit */
    uint64_t max_memory; /* bytes, for all stores of the process; 0: half of the system's memory */
    uint64_t commit_log_bytes; /* format 2: size at which another log is begun; 0: 64 MiB */
    uint32_t few_queues; /* format 2: up to so many dirty queues are synced one by one; 0: 2 */
    uint64_t idle_us;    /* a queue that is unused for so long is flushed, and its files closed */
    int io;              /* 0 auto, 1 mmap, 2 pwrite */
    bool read_only, create, index_only, worker;
    bool upgrade; /* an older store is upgraded to `format`, or to the newest */
} qi_options;

/* A message as a caller gets it. Its payload (headers, then body) is in the caller's buffer. */
typedef struct {
    uint64_t req_id, expiry_us;
    uint64_t due_us;       /* the time until which the message is or was delayed; 0: no delay */
    uint64_t delivery;     /* number of this delivery, for qi_ack and the like */
    uint64_t published_us; /* 0: not known */
    uint32_t priority;     /* 0 to 255 */
    uint32_t dead;         /* QI_DEAD_EXPIRED ...: why it is a dead letter; 0: it is none */
    uint8_t msg_id[16];
    uint32_t payload_size, body_size;
    uint32_t delivery_count;
    uint32_t flags; /* QI_REDELIVERED ... */
} qi_message;

enum {
    QI_REDELIVERED = 1,
    QI_TRANSIENT = 2,
    QI_UNACKED = 4,        /* delivered by this process */
    QI_STORED = 8,         /* the body is in the message store */
    QI_DELIVERED = 16,     /* it was delivered, and that counts: delivery_count > 0 */
    QI_DELAYED = 32,       /* it is delayed: due_us has not come */
    QI_DIED = 1024,        /* it is a dead letter, or was one: qi_deaths_of */
    QI_PRIORITY_SHIFT = 8, /* the flags of a publish hold the priority, 0 to 255, in these bits */
    QI_AWAITED = 65536,    /* of a publish: its caller waits for the sync */
    QI_STEADY = 131072,    /* of a publish: nobody changes its bytes before the call returns */
    QI_NO_BODY = 64,       /* in columns only */
    QI_DEAD_LETTER = 128,  /* in columns only; elsewhere `dead` is not 0 */
};

typedef struct {
    uint64_t depth, ready, unacked, delayed, dead, next_due_us, next_req_id, dirty_count, floor;
    uint64_t bytes; /* of all messages but dead letters; UINT64_MAX: not measured */
    uint64_t epoch, journal_bytes, unsynced_bytes, segments, hot_segments, segment_bytes;
    bool loaded;
} qi_queue_stats;

typedef struct {
    uint64_t queues, message_files, message_bytes, live_bytes, live_references;
    uint64_t messages; /* in the queues that were read so far, without dead letters */
    uint64_t bytes;    /* of these messages, if the store has max_bytes */
    uint64_t memory;   /* bytes that all stores of the process use */
    uint64_t session, unclean_session, findings;
    uint64_t compactions, compacted_bytes; /* since the open; bytes by which the files shrank */
    uint32_t segment_entries, embed_below;
    uint32_t format;
    bool mapped, counted;
} qi_store_stats;

/* Counts of messages, unless a field says otherwise. The sum of what was published equals what is
 * there and what was acked, dropped, purged or moved. */
typedef struct {
    uint64_t published, published_bytes; /* of headers and bodies */
    uint64_t delivered, delivered_bytes; /* deliveries */
    uint64_t redelivered;                /* deliveries of messages that had been delivered before */
    uint64_t acked;
    uint64_t returned;     /* deliveries that ended with a nack */
    uint64_t leases_ended; /* deliveries that ended with their lease */
    uint64_t expired;      /* dropped, or dead letters */
    uint64_t dead;         /* became dead letters, for any reason */
    uint64_t dropped;      /* rejected, expired or beyond a limit, and not kept as dead letters */
    uint64_t purged;       /* by a purge or a delete */
    uint64_t moved;        /* to another queue */
} qi_counts;
enum { QI_COUNTS = 13, QI_SYNC_TIMES = 24 };
/* Durations of syncs of journals, commit logs and message files, as their callers waited for them.
 */
typedef struct {
    uint64_t count, total_us, longest_us;
    uint64_t times[24]; /* [i]: of less than 2^i microseconds, and not less than half of that */
} qi_syncs;
/* How much the counts of earlier sessions are worth. A store of format 1 keeps none. */
enum { QI_COUNTS_NONE = 0, QI_COUNTS_AT_LEAST = 1, QI_COUNTS_EXACT = 2 };

/* ---- the store ---- */

int qi_store_open(const char *path, const qi_options *options, qi_store **store);
/* Opens a store on a disk that another extension module made (struct qi_disk_capsule). The disk
 * must outlive the store. QI_E_ARGUMENT: the module was compiled from another version of the core's
 * structs. */
int qi_store_open_capsule(const void *capsule, const qi_options *options, qi_store **store);
/* For a disk without threads: does one round of the background thread's work, which is group
 * commit, flushes, the scan of stored counts, freeing, compaction and idle queues. 0 or an error.
 */
int qi_store_tick(qi_store *store);
int qi_store_close(qi_store *store); /* syncs and marks the end as clean */
/* Closes as a crash would: writes nothing. Calls with a handle that is still there return
 * QI_E_CLOSED. */
void qi_store_abandon(qi_store *store);
void qi_store_free(qi_store *store); /* abandons the store if it is open; no handle may be left */
/* For the program's end, when threads may still call: the store is never freed. */
void qi_store_leave(qi_store *store);
int qi_store_sync(qi_store *store);
int64_t qi_store_compact(qi_store *store, uint32_t garbage_percent);
int qi_store_stats_of(qi_store *store, qi_store_stats *stats);
int qi_store_queues(qi_store *store); /* finds all queues on the disk; returns their number */
int qi_store_queue_name(qi_store *store, uint32_t index, char *name, size_t room, char *directory);
int qi_store_finding(qi_store *store, uint32_t index, bool *damage, const char **where,
                     uint64_t *offset, const char **text);
/* How many messages are lost by what the finding reports, as far as that can be counted. */
uint64_t qi_store_finding_lost(qi_store *store, uint32_t index);
/* How many deliver and ack records without a publish the finding is about; 0: another kind of
 * finding. */
uint64_t qi_store_finding_orphans(qi_store *store, uint32_t index);
int qi_store_check(qi_store *store); /* adds findings; returns their number */
/* Publishes to all of the queues or to none. With `skip_full`, full queues are left out: their
 * ReqId is UINT64_MAX. */
int qi_store_publish(qi_store *store, qi_queue **queues, uint32_t count, const void *headers,
                     uint32_t headers_size, const void *body, uint32_t body_size, uint32_t flags,
                     uint64_t expiry_us, uint64_t due_us, uint64_t lease_us, bool skip_full,
                     uint64_t *req_ids);

/* ---- several queues at once ---- */

/* One change of a transaction. A publish takes the fields of the message. A move may name headers:
 * they replace the message's own. `delivery` as in qi_ack; a move with 0 takes a message that is
 * not delivered. */
typedef struct {
    int kind;
    qi_queue *queue; /* where the message is published, or is now */
    qi_queue *to;    /* of a move: where the message goes */
    const void *headers, *body;
    uint64_t body_size;
    uint32_t headers_size, flags;
    uint64_t expiry_us, due_us, lease_us;
    uint64_t req_id; /* ack, move: the message; after a publish or move: the new ReqId */
    uint64_t delivery;
} qi_change;
enum {
    QI_CHANGE_PUBLISH = 0,
    QI_CHANGE_ACK = 1,
    QI_CHANGE_MOVE = 2,
    QI_CHANGE_DATA = 3, /* changes the data of `queue` (NULL: of the store): entries as the body */
    QI_MOVE_FOR_EVER = 1, /* flag of a move: the message loses its expiry */
    QI_MOVE_DEAD = 2,     /* flag of a move: only a dead letter moves, otherwise QI_E_DELIVERED */
};
/* For stores of format 2. Makes all of the changes; after an error or any crash, none. With
 * `confirm` they survive a power cut when this returns. QI_E_OUTCOME: all changes were made, and
 * whether they are durable is not known. *failed: the change that caused the error, or `count`. */
int qi_transaction(qi_store *store, qi_change *changes, uint32_t count, bool confirm,
                   uint32_t *failed);

/* Publishes messages of any kind to any queues, in any format. Each queue gets a frame that holds
 * all of its messages. What can be refused is refused before the first frame. */
int qi_publish_mixed(qi_store *store, qi_change *messages, uint32_t count, uint32_t *failed);

/* ---- queues ---- */

/* `directory`: 32 hex digits, made from the name. */
int qi_queue_open(qi_store *store, const char *name, size_t name_size, const char *directory,
                  bool create, qi_queue **queue);
/* Creates the queues that do not exist, durably, with a few syncs for all. Returns how many it
 * created. Names lie end to end; so do directories, 32 bytes each. After an error, the queues that
 * were created before it exist. */
int64_t qi_queues_create(qi_store *store, uint32_t count, const char *names,
                         const uint32_t *name_sizes, const char *directories);
/* 1: the store has this queue; 0: it has not; or an error. */
int qi_queue_exists(qi_store *store, const char *name, size_t name_size, const char *directory);
int qi_queue_delete(qi_queue *queue);
/* Deletes the queue if it has no message (QI_IF_EMPTY), no consumer has one of its messages or
 * waits for one (QI_IF_UNUSED), and no one has asked for a message since the last qi_queue_wanted
 * (QI_IF_UNWANTED). Otherwise QI_E_NOT_EMPTY or QI_E_IN_USE. Nothing can happen between the look
 * and the deletion. */
enum { QI_IF_EMPTY = 1, QI_IF_UNUSED = 2, QI_IF_UNWANTED = 4 };
int qi_queue_delete_if(qi_queue *queue, uint32_t conditions);
/* 1: a consumer has a message of it, waits for one, or has asked since the last call. 0: none. */
int qi_queue_wanted(qi_queue *queue);
/* Gives it another name, durably, in format 2. Its handles stay. QI_E_OUTCOME: it has either. */
int qi_queue_rename(qi_queue *queue, const char *name, size_t name_size, const char *directory);
void qi_queue_identity(const qi_queue *queue, uint8_t *identity); /* 16 bytes; no name is in it */

/* ---- backup ---- */

/* What a backup holds (store/backup.c). The newest message file and the newest commit log go on
 * growing; only so many of their bytes belong to the backup. A number of -1: there is no such file.
 */
typedef struct {
    uint8_t identity[16]; /* the store's */
    uint64_t session;     /* the store's, counted at each open */
    int64_t messages_number, log_number;
    uint64_t messages_length, log_length;
    uint64_t files;
    uint64_t copied; /* bytes that were copied while the lock was held */
    uint64_t us;     /* how long the lock was held */
} qi_held;
/* Puts all files of the store, as they are at one moment, into an empty folder on the same file
 * system: journals as copies, the others as hard links. */
int qi_store_hold(qi_store *store, const char *path, qi_held *held);
/* Two folders or files change places, atomically. -errno: one of them does not exist, or the file
 * system cannot do that. */
int qi_exchange(const char *one, const char *other);

/* ---- publish ---- */

int64_t qi_publish(qi_queue *queue, const void *body, size_t body_size);
int64_t qi_publish_with(qi_queue *queue, const void *headers, uint32_t headers_size,
                        const void *body, uint32_t body_size, uint32_t flags, uint64_t expiry_us,
                        uint64_t due_us);
/* Format 2: publishes a message with its own lease, which counts for each get that names none. */
int64_t qi_publish_leased(qi_queue *queue, const void *headers, uint32_t headers_size,
                          const void *body, uint32_t body_size, uint32_t flags, uint64_t expiry_us,
                          uint64_t due_us, uint64_t lease_us);
/* The own lease of a message that is not acked; 0: it has none. Or an error. */
int64_t qi_lease_of(qi_queue *queue, uint64_t req_id);
/* Publishes a batch. Bodies lie end to end; so do headers (headers_sizes may be NULL). flags,
 * expiry_us and due_us are for all messages; per_flags and per_expiry_us, if not NULL, are for
 * each. */
int64_t qi_publish_many(qi_queue *queue, uint32_t count, const void *bodies,
                        const uint32_t *body_sizes, const void *headers,
                        const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                        uint64_t due_us, const uint8_t *per_flags, const uint64_t *per_expiry_us);
/* The same, with the addresses of the bodies. */
int64_t qi_publish_bodies(qi_queue *queue, uint32_t count, const uintptr_t *bodies,
                          const uint32_t *body_sizes, const void *headers,
                          const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                          uint64_t due_us, const uint8_t *per_flags, const uint64_t *per_expiry_us);
/* The same, and each message has this lease as its own. */
int64_t qi_publish_bodies_leased(qi_queue *queue, uint32_t count, const uintptr_t *bodies,
                                 const uint32_t *body_sizes, const void *headers,
                                 const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                                 uint64_t due_us, const uint8_t *per_flags,
                                 const uint64_t *per_expiry_us, uint64_t lease_us);
/* The same as qi_publish_many, if the first message would get the ReqId `first`. Otherwise
 * QI_E_ARGUMENT, and nothing is published. */
int64_t qi_publish_many_at(qi_queue *queue, uint64_t first, uint32_t count, const void *bodies,
                           const uint32_t *body_sizes, const void *headers,
                           const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                           uint64_t due_us, const uint8_t *per_flags,
                           const uint64_t *per_expiry_us);
/* Waits until each of these queues of one store has room for so many messages with so many bytes (a
 * queue that is named twice: for twice as many). 0, QI_PAUSE as qi_get_wait, or QI_E_QUEUE_FULL or
 * QI_E_STORE_FULL: until_us has passed, or there can never be so much room. The room is not
 * reserved. */
int64_t qi_place_wait(qi_queue **queues, uint32_t count, uint32_t messages, uint64_t bytes,
                      uint64_t until_us, uint64_t pause_us);
/* For an event loop. 1: there is room now. 0: the store's descriptor will become readable when
 * there is (qi_places_came), or when the store is closed. Or an error, as above. May wait for the
 * lock. */
int qi_place_arm(qi_queue **queues, uint32_t count, uint32_t messages, uint64_t bytes);
/* Room has come since the last call: true once. Never waits. */
bool qi_places_came(qi_store *store);
/* The ReqId that a message with these flags and this time would get if it were published now. */
int64_t qi_next_req_id(qi_queue *queue, uint32_t flags, uint64_t due_us);

/* ---- get ---- */

/* Where qi_get puts a message. Each caller has its own. */
typedef struct {
    qi_message message;
    qi_queue *queue;
    void *payload;
    size_t room;
    uint64_t lease_us; /* of the delivery; 0: the message's own, if it has one */
} qi_reader;

/* Takes the next message. Returns the length of its payload, or an error. QI_E_ROOM:
 * message.payload_size says how much room it needs. */
int64_t qi_get(qi_reader *reader);
int64_t qi_get_newest(qi_reader *reader); /* the message that was published last */
/* Takes up to `count` messages; their payloads lie end to end. Returns how many it took. */
int64_t qi_get_many(qi_queue *queue, uint32_t count, qi_message *messages, void *payloads,
                    size_t room, uint64_t *req_ids, uint64_t lease_us);
/* The same for a caller that has taken messages in this batch already and could not report an error
 * of the next one: returns 0 instead of an error, and leaves a damaged message for the next call.
 */
int64_t qi_get_more(qi_queue *queue, uint32_t count, qi_message *messages, void *payloads,
                    size_t room, uint64_t *req_ids, uint64_t lease_us);
/* The same as qi_get and qi_get_many, but they wait for a message until the store's clock says
 * until_us (UINT64_MAX: for ever). After pause_us they return QI_PAUSE. qi_get_wait takes from the
 * first of `count` queues that has a message; reader->queue says which one that was. Both end with
 * QI_E_CLOSED or QI_E_FAILED when the store is closed or fails. */
int64_t qi_get_wait(qi_reader *reader, qi_queue **queues, uint32_t count, uint64_t until_us,
                    uint64_t pause_us);
int64_t qi_get_many_wait(qi_queue *queue, uint32_t count, qi_message *messages, void *payloads,
                         size_t room, uint64_t *req_ids, uint64_t lease_us, uint64_t until_us,
                         uint64_t pause_us);
uint64_t qi_store_clock_us(qi_store *store); /* for leases: it is never set and never goes back */
uint64_t qi_store_now_us(qi_store *store);   /* the wall clock: for delays and expiry */
/* Reads the first message at or behind from_req_id, in any state but acked. Changes nothing. */
int64_t qi_browse(qi_queue *queue, uint64_t from_req_id, bool ready_only, qi_message *message,
                  void *payload, size_t room);

/* ---- settle ---- */

/* `delivery`: as in the message that was taken. If that delivery has ended, the verb is refused:
 * QI_E_LEASE, or QI_E_ENDED if another consumer has the message now. 0, or NULL: the current
 * delivery, whichever that is. due_us: when the message is to be ready again; 0: now. */
int64_t qi_ack(qi_queue *queue, uint64_t req_id, uint64_t delivery);
/* The upper half of the number of each delivery by this handle. No other handle has the same. */
uint32_t qi_queue_tag(const qi_queue *queue);
/* Sets held[i] to 1 if the delivery is still current, and to 0 if it has ended. */
int qi_deliveries_held(qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                       uint32_t count, uint8_t *held);
int64_t qi_ack_many(qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                    uint32_t count);
int64_t qi_nack_many(qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                     uint32_t count, uint64_t due_us);
/* Notes how often copied messages were delivered where they came from. None of them may be
 * delivered here. A count of 0 (format 2): the message may have been delivered, and that does not
 * count. */
int64_t qi_had(qi_queue *queue, const uint64_t *req_ids, const uint16_t *counts, uint32_t count);
int64_t qi_touch(qi_queue *queue, uint64_t req_id, uint64_t delivery, uint64_t lease_us);
/* Settles all of these deliveries in one way, or none. A reject drops the messages, or makes dead
 * letters of them if the queue keeps those. A return is a nack that does not count as a delivery
 * (format 2). */
enum { QI_SETTLE_ACK = 0, QI_SETTLE_NACK = 1, QI_SETTLE_REJECT = 2, QI_SETTLE_RETURN = 3 };
int64_t qi_settle_all(qi_queue *queue, int how, const uint64_t *req_ids, const uint64_t *deliveries,
                      uint32_t count, uint64_t due_us);
/* The same, but never waits. QI_BUSY: the call may have to wait, or is wrong; nothing was changed.
 */
int64_t qi_settle_now(qi_queue *queue, int how, const uint64_t *req_ids, const uint64_t *deliveries,
                      uint32_t count, uint64_t due_us);
int64_t qi_touch_now(qi_queue *queue, uint64_t req_id, uint64_t delivery, uint64_t lease_us);
/* For a message that is not delivered. qi_reschedule sets when it is ready; 0: now, and a dead
 * letter is taken back. A dead letter can have no other time: QI_E_DEAD. qi_delete removes it. */
int64_t qi_reschedule(qi_queue *queue, uint64_t req_id, uint64_t due_us);
int64_t qi_delete(qi_queue *queue, uint64_t req_id);
/* Why a message is a dead letter. */
enum { QI_DEAD_EXPIRED = 1, QI_DEAD_REJECTED = 2, QI_DEAD_DELIVERIES = 3, QI_DEAD_FULL = 4 };

/* ---- what a queue does by itself ---- */

/* What a publish to a full queue does: it is refused, the oldest message is dropped, or that
 * becomes a dead letter. */
enum { QI_REJECT = 0, QI_DROP_HEAD = 1, QI_BURY_HEAD = 2 };
/* What a queue does by itself, as its opener wants it. Not on the disk. 0 or false: it does not. */
typedef struct {
    uint64_t ttl_us;         /* time to live of messages that have no shorter one of their own */
    uint64_t max_messages;   /* dead letters do not count */
    uint64_t max_bytes;      /* headers and bodies; dead letters do not count */
    int overflow;            /* QI_REJECT ... */
    uint32_t max_deliveries; /* at each multiple of this number of deliveries a message is dropped
                                or becomes a dead letter */
    bool dead_letters;       /* messages that would be dropped are kept as dead letters */
    uint64_t lease_us;       /* of a delivery, if neither the get nor the message names one */
} qi_rules;
int qi_queue_set_rules(qi_queue *queue, const qi_rules *rules);
/* Format 2: the queue that dead letters move to, by name and directory. An empty name: they stay
 * here. */
int qi_queue_set_dead_letters(qi_queue *queue, const char *name, size_t name_size,
                              const char *directory);
/* How the message became a dead letter, here and in earlier queues, the latest death first, in the
 * form of side record DEATHS (FORMAT.rst, section 4). Returns its size or an error; copies it if
 * there is room. */
int64_t qi_deaths_of(qi_queue *queue, uint64_t req_id, void *bytes, size_t room);
/* Makes up to `most` dead letters ready again, in the order of ReqIds. Returns how many. */
int64_t qi_redrive(qi_queue *queue, uint64_t most);
/* Drops the messages in these states and returns how many. Delivered messages stay. It takes one
 * record if no other messages stay, otherwise several. */
enum { QI_PURGE_READY = 1, QI_PURGE_DELAYED = 2, QI_PURGE_DEAD = 4, QI_PURGE_ALL = 7 };
int64_t qi_purge(qi_queue *queue, uint32_t states);
/* Drops all expired messages, or makes dead letters of them if the queue keeps those. Returns how
 * many. */
int64_t qi_expire(qi_queue *queue);

/* ---- sync and figures ---- */

int qi_queue_sync(qi_queue *queue);
int qi_flush(qi_queue *queue);
int qi_queue_stats_of(qi_queue *queue, qi_queue_stats *stats);
/* The background thread will call `tell` after each sync that took longer than QI_SLOW_SYNC_US, at
 * most once a minute, and holds no lock then. The store stays open until `tell` returns. */
#define QI_SLOW_SYNC_US 1048576
void qi_store_on_slow_sync(qi_store *store, void (*tell)(qi_store *store));

/* Counts since the open, and *before: the kept counts of earlier sessions. Returns QI_COUNTS_NONE
 * ..., or an error. A store's counts are those of all its queues, also of deleted ones. Neither
 * call reads a file. */
int qi_queue_counts_of(qi_queue *queue, qi_counts *since, qi_counts *before);
int qi_store_counts_of(qi_store *store, qi_counts *since, qi_counts *before, qi_syncs *syncs,
                       qi_syncs *syncs_before);
/* The age of the oldest message that is no dead letter and was published without a delay. The
 * message may be older than this. QI_EMPTY: there is none. */
int64_t qi_oldest_us(qi_queue *queue);

/* ---- the index alone, and files without a store ---- */

/* For a store that is only an index: bodies are elsewhere, and the caller's 16-byte MsgIds are
 * kept. */
int64_t qi_index_publish(qi_queue *queue, uint32_t count, const void *msg_ids,
                         const uint32_t *sizes, uint32_t flags);
int64_t qi_index_deliver(qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint64_t first);
int64_t qi_index_ack(qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint64_t first);
int64_t qi_index_read(qi_queue *queue, uint64_t start, uint64_t stop, qi_message *messages,
                      uint32_t room);

/* index_files.c reads the journals and segments of a store as bytes, in the order of their names,
 * without opening it. `wanted`: only these, "queues/FOLDER" or "queues/FOLDER/FILE", each with a
 * zero at its end; NULL: all. A file is valid until the next call. */
typedef struct qi_index_files qi_index_files;
typedef struct {
    const uint8_t *bytes;
    uint64_t size;
    const char *where; /* "queues/FOLDER/FILE" */
} qi_index_file;
qi_index_files *qi_index_files_new(void); /* NULL: no memory */
void qi_index_files_free(qi_index_files *files);
/* Begins the next store; it may be called for any number of stores. An error: this store cannot be
 * read, and it has no files. */
int qi_index_files_begin(qi_index_files *files, const char *path, const char *wanted, size_t count);
/* 1: a file; 0: there are no more. An error: one file or folder cannot be read; the next call goes
 * on with the next one. Leaves out a flushed journal, and files that were removed since they were
 * listed. */
int qi_index_files_next(qi_index_files *files, qi_index_file *found);

/* disk/weigh.c: counts the bytes of the files in each directory and below it; links are not
 * followed. `paths`: one after the other, each with a zero at its end. `with`: bytes is -1 for a
 * directory that has no file of this name; NULL: count all. An error: too few descriptors or too
 * little memory. */
int qi_weigh(const char *paths, size_t count, const char *with, int64_t *bytes);
/* cffi: end */

#include "data.h"
#include "events.h"
#include "loop.h"

#endif
