/* What Python sees of the engine. build.py gives the text between the two marks to cffi, so that
 * nothing is declared twice. */
#ifndef QI_QINDEX_H
#define QI_QINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
/* Every call returns 0, a count or an id (>= 0), or one of these codes. qi_error_text() then says
 * more, to the same thread. */
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
    QI_E_FORKED = -14,  /* a handle of the parent process */
    QI_E_OUTCOME = -15, /* the sync failed: durable or not, nobody knows */
    QI_E_ROOM = -16,    /* the caller's buffer is too small; nothing was changed */
    QI_E_MISSING = -17, /* no such store or queue */
    QI_PAUSE = -18,     /* nothing yet; the caller wanted to come up for air */
    QI_BUSY = -19,      /* the verb would have to wait, and was asked not to; nothing was changed */
    QI_E_LEASE = -20,   /* the lease of a message has ended */
    QI_E_DELIVERED = -21,  /* a consumer has the message */
    QI_E_QUEUE_FULL = -22, /* the queue has as many messages as it may have */
    QI_E_STORE_FULL = -23, /* the same of all its queues together */
    QI_E_ENDED = -24,      /* a delivery has ended, and somebody else has the message */
    QI_E_DEAD = -25,       /* a dead letter, which has no other time */
    QI_E_NEWER = -26,      /* a file of a newer format, which this version does not understand */
    QI_E_NOT_EMPTY = -27,  /* the queue has messages */
    QI_E_IN_USE = -28,     /* somebody has messages of the queue, or waits for one */
};
const char *qi_error_text(void);
/* The message of a QI_E_CORRUPT, if it is about one and what is behind can be read; else -1. */
int64_t qi_error_req_id(void);

uint32_t qi_crc32c(uint32_t crc, const void *bytes, size_t length);
uint32_t qi_crc32c_portable(uint32_t crc, const void *bytes, size_t length);

typedef struct qi_store qi_store;
typedef struct qi_queue qi_queue;

typedef struct {
    uint32_t format;              /* the store's, 1 or 2; 0: as it is, or new_format */
    uint32_t new_format;          /* of a store that is made; 0: 1 */
    uint32_t segment_entries;     /* fixed at creation, 2 ** 3 to 2 ** 14; 0: as it is, or 16384 */
    uint32_t max_journal_entries; /* dirty_count above this: flush */
    uint64_t max_journal_bytes;
    uint32_t embed_below; /* headers and body together, bytes; of QI_AWAITED four times as many */
    uint64_t message_file_size;
    uint64_t sync_interval_us; /* group commit; 0: only explicit syncs */
    uint64_t min_free;         /* bytes that publishes leave free on the disk, at least */
    uint64_t max_messages;     /* that wait in all queues together; 0: any number */
    uint64_t max_bytes;        /* of headers and bodies that do; 0: any number */
    uint64_t keep_history;   /* bytes per queue of journals that are flushed, for replay; 0: none */
    uint32_t max_open_files; /* of all stores of the process together; 0: half of the limit */
    uint64_t max_memory; /* bytes, of all stores of the process together; 0: half of the system's */
    uint64_t commit_log_bytes; /* format 2: of this size, another log is begun; 0: 64 MiB */
    uint32_t few_queues;       /* format 2: so many dirty queues are synced one by one; 0: 2 */
    uint64_t idle_us;          /* unused for so long: flush, then close files and mappings */
    int io;                    /* 0 auto, 1 mmap, 2 pwrite */
    bool read_only, create, index_only, worker;
    bool upgrade; /* an older store becomes one of `format`, or of the newest */
} qi_options;

/* A message as it is handed out; its payload (headers, then body) lies in the caller's buffer. */
typedef struct {
    uint64_t req_id;
    uint64_t expiry_us;
    uint64_t due_us;       /* until when it is, or was, delayed; 0: it is not */
    uint64_t delivery;     /* which one of it this is: what settles it says so (qi_ack) */
    uint64_t published_us; /* when it was published; 0: that is not known */
    uint32_t priority;     /* 0 to 255 */
    uint32_t dead;         /* a dead letter: why (QI_DEAD_EXPIRED ...); 0: it is none */
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
    QI_DELIVERED = 16,     /* a consumer had it, and that counts: delivery_count > 0 */
    QI_DELAYED = 32,       /* its time has not come */
    QI_DIED = 1024,        /* it is a dead letter, or was one: qi_deaths_of */
    QI_PRIORITY_SHIFT = 8, /* what a publish is given has the priority, 0 to 255, in these bits */
    QI_AWAITED = 65536,    /* of a publish: the publisher waits for the sync */
    QI_NO_BODY = 64,       /* in columns only */
    QI_DEAD_LETTER = 128,  /* in columns only: `dead` says it elsewhere */
};

typedef struct {
    uint64_t depth, ready, unacked, delayed, dead, next_due_us, next_req_id, dirty_count, floor;
    uint64_t bytes; /* that wait, dead letters not counted; UINT64_MAX: the queue is not measured */
    uint64_t epoch, journal_bytes, unsynced_bytes, segments, hot_segments, segment_bytes;
    bool loaded;
} qi_queue_stats;

typedef struct {
    uint64_t queues, message_files, message_bytes, live_bytes, live_references;
    uint64_t messages; /* that wait in the queues that were read so far */
    uint64_t bytes;    /* of these, if the store is bounded in bytes */
    uint64_t memory;   /* bytes of memory of all stores of the process */
    uint64_t session, unclean_session, findings;
    uint64_t compactions, compacted_bytes; /* since the open; bytes that the files got shorter by */
    uint32_t segment_entries, embed_below;
    uint32_t format;
    bool mapped, counted;
} qi_store_stats;

/* What happened, counted: messages, unless it says something else. What came is what is there, was
 * acked, dropped, purged or moved. */
typedef struct {
    uint64_t published, published_bytes; /* of headers and bodies */
    uint64_t delivered, delivered_bytes; /* deliveries */
    uint64_t redelivered;                /* of these, of messages that were delivered before */
    uint64_t acked;
    uint64_t returned;     /* deliveries that ended with a nack */
    uint64_t leases_ended; /* deliveries that ended with their lease */
    uint64_t expired;      /* dropped, or dead letters */
    uint64_t dead;         /* that became dead letters, whatever the reason */
    uint64_t dropped; /* that left by themselves, or rejected, where dead letters are not kept */
    uint64_t purged;  /* by a purge or a delete */
    uint64_t moved;   /* to another queue */
} qi_counts;
enum { QI_COUNTS = 13, QI_SYNC_TIMES = 24 };
/* Syncs of journals, commit logs and message files, as whoever waits for them sees them. */
typedef struct {
    uint64_t count, total_us, longest_us;
    uint64_t times[24]; /* less than 2^i microseconds, not less than half; the last: or longer */
} qi_syncs;
/* Counts of this session, and of all before it. A store of format 1 keeps none. */
enum { QI_COUNTS_NONE = 0, QI_COUNTS_AT_LEAST = 1, QI_COUNTS_EXACT = 2 };

int qi_store_open(const char *path, const qi_options *options, qi_store **store);
/* The same on a disk of another extension module (struct qi_disk_capsule); the disk outlives the
 * store. QI_E_ARGUMENT: it was compiled from another version of the core's structs. */
int qi_store_open_capsule(const void *capsule, const qi_options *options, qi_store **store);
/* One round of the background thread's duties, for a disk without threads: group commit, flushes,
 * the scan of stored counts, freeing, compaction, idle queues. 0 or an error. */
int qi_store_tick(qi_store *store);
int qi_store_close(qi_store *store); /* syncs and marks the end as clean */
/* Closes as a crash would: nothing is written. Whoever still has a handle is told "closed". */
void qi_store_abandon(qi_store *store);
void qi_store_free(qi_store *store); /* abandons it if it is open; nobody may have a handle */
/* Never freed: the program ends, and somebody may still call. */
void qi_store_leave(qi_store *store);
int qi_store_sync(qi_store *store);
int64_t qi_store_compact(qi_store *store, uint32_t garbage_percent);
int qi_store_stats_of(qi_store *store, qi_store_stats *stats);
int qi_store_queues(qi_store *store); /* finds all queues on disk; their number */
int qi_store_queue_name(qi_store *store, uint32_t index, char *name, size_t room, char *directory);
int qi_store_finding(qi_store *store, uint32_t index, bool *damage, const char **where,
                     uint64_t *offset, const char **text);
/* How many messages are lost by what that finding says, as far as they can be counted. */
uint64_t qi_store_finding_lost(qi_store *store, uint32_t index);
/* How many delivers and acks without a publish that finding is about; 0: about something else. */
uint64_t qi_store_finding_orphans(qi_store *store, uint32_t index);
int qi_store_check(qi_store *store); /* adds findings; their number */
/* To all of them or none. With `skip_full`, queues that are full are left out: their ReqId is
 * UINT64_MAX. */
int qi_store_publish(qi_store *store, qi_queue **queues, uint32_t count, const void *headers,
                     uint32_t headers_size, const void *body, uint32_t body_size, uint32_t flags,
                     uint64_t expiry_us, uint64_t due_us, uint64_t lease_us, bool skip_full,
                     uint64_t *req_ids);

/* One change of a transaction. A publish takes the fields of the message; a move takes headers only
 * if it has some: then they are in the place of the message's own. `delivery` as in qi_ack; a move
 * with 0 takes a message that nobody has. */
typedef struct {
    int kind;
    qi_queue *queue; /* that it goes to, or is in */
    qi_queue *to;    /* of a move */
    const void *headers, *body;
    uint64_t body_size;
    uint32_t headers_size, flags;
    uint64_t expiry_us, due_us, lease_us;
    uint64_t req_id; /* ack, move: of the message; behind a publish or move the new one */
    uint64_t delivery;
} qi_change;
enum {
    QI_CHANGE_PUBLISH = 0,
    QI_CHANGE_ACK = 1,
    QI_CHANGE_MOVE = 2,
    QI_CHANGE_DATA = 3,   /* of the mapping of `queue` (NULL: of the store); entries as the body */
    QI_MOVE_FOR_EVER = 1, /* flags of a move: the message expires no more; */
    QI_MOVE_DEAD = 2,     /* it moves only if it is a dead letter, else QI_E_DELIVERED */
};
/* All of the changes or, after an error, none; after any crash, too. In stores of format 2. With
 * `confirm` it survives a power cut when this returns. QI_E_OUTCOME: all of it is there, and nobody
 * knows whether it is durable. *failed: the change that an error is about; else `count`. */
int qi_transaction(qi_store *store, qi_change *changes, uint32_t count, bool confirm,
                   uint32_t *failed);

/* Publishes alone, of any kind and to any queues: a frame for each queue, with all of its messages
 * or none; what can be refused is refused before. In any format. */
int qi_publish_mixed(qi_store *store, qi_change *messages, uint32_t count, uint32_t *failed);

/* `directory` is 32 hex digits that stand for the name */
int qi_queue_open(qi_store *store, const char *name, size_t name_size, const char *directory,
                  bool create, qi_queue **queue);
/* Makes those of the queues that are not there, all durable with a few syncs; how many it made.
 * Names lie end to end, and directories too, 32 bytes each. After an error those that were made
 * before it are there, the others are not. */
int64_t qi_queues_create(qi_store *store, uint32_t count, const char *names,
                         const uint32_t *name_sizes, const char *directories);
/* 1: the store has this queue; 0, or an error. */
int qi_queue_exists(qi_store *store, const char *name, size_t name_size, const char *directory);
int qi_queue_delete(qi_queue *queue);
/* The same, if it has no message (QI_IF_EMPTY), nobody has one or waits for one (QI_IF_UNUSED), and
 * nobody asked for one since qi_queue_wanted looked (QI_IF_UNWANTED): QI_E_NOT_EMPTY, QI_E_IN_USE.
 * Between the look and the end nothing can change that. */
enum { QI_IF_EMPTY = 1, QI_IF_UNUSED = 2, QI_IF_UNWANTED = 4 };
int qi_queue_delete_if(qi_queue *queue, uint32_t conditions);
/* 1: somebody has a message of it, waits for one, or has asked for one since the last look; 0. */
int qi_queue_wanted(qi_queue *queue);
/* What a backup holds (store/backup.c). The newest message file and the newest commit log go on
 * growing: of them so many bytes belong to the moment. -1: there is none. */
typedef struct {
    uint8_t identity[16]; /* the store's */
    uint64_t session;     /* the store's, counted at each open */
    int64_t messages_number, log_number;
    uint64_t messages_length, log_length;
    uint64_t files;
    uint64_t copied; /* bytes, with the lock held */
    uint64_t us;     /* how long it was held */
} qi_held;
/* All files of the store as they are at one moment, in an empty folder on the same file system: as
 * second names, journals as copies. */
int qi_store_hold(qi_store *store, const char *path, qi_held *held);
/* Two folders or files change places, atomically. -errno: that cannot be, or one is not there. */
int qi_exchange(const char *one, const char *other);
int64_t qi_publish(qi_queue *queue, const void *body, size_t body_size);
int64_t qi_publish_with(qi_queue *queue, const void *headers, uint32_t headers_size,
                        const void *body, uint32_t body_size, uint32_t flags, uint64_t expiry_us,
                        uint64_t due_us);
/* Format 2: a message with a lease; whoever gets it without naming another has it for so long. */
int64_t qi_publish_leased(qi_queue *queue, const void *headers, uint32_t headers_size,
                          const void *body, uint32_t body_size, uint32_t flags, uint64_t expiry_us,
                          uint64_t due_us, uint64_t lease_us);
/* Of a message that is not acked: its own lease; 0: it has none. Or an error. */
int64_t qi_lease_of(qi_queue *queue, uint64_t req_id);
/* Bodies lie end to end; headers too, headers_sizes may be NULL; flags, expiry and due one for all
 * (NULL: per_flags none). */
int64_t qi_publish_many(qi_queue *queue, uint32_t count, const void *bodies,
                        const uint32_t *body_sizes, const void *headers,
                        const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                        uint64_t due_us, const uint8_t *per_flags, const uint64_t *per_expiry_us);
/* The same with bodies that lie anywhere: their addresses. */
int64_t qi_publish_bodies(qi_queue *queue, uint32_t count, const uintptr_t *bodies,
                          const uint32_t *body_sizes, const void *headers,
                          const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                          uint64_t due_us, const uint8_t *per_flags, const uint64_t *per_expiry_us);
/* The same with a lease of their own. */
int64_t qi_publish_bodies_leased(qi_queue *queue, uint32_t count, const uintptr_t *bodies,
                                 const uint32_t *body_sizes, const void *headers,
                                 const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                                 uint64_t due_us, const uint8_t *per_flags,
                                 const uint64_t *per_expiry_us, uint64_t lease_us);
/* The same as qi_publish_many, if the first one gets this ReqId; else QI_E_ARGUMENT, and nothing is
 * published. */
int64_t qi_publish_many_at(qi_queue *queue, uint64_t first, uint32_t count, const void *bodies,
                           const uint32_t *body_sizes, const void *headers,
                           const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                           uint64_t due_us, const uint8_t *per_flags,
                           const uint64_t *per_expiry_us);
/* Waits until so many messages with so many bytes have a place in each of these queues of a store
 * (in one that is named twice, twice as many): 0, QI_PAUSE as qi_get_wait, or QI_E_QUEUE_FULL or
 * QI_E_STORE_FULL: the time is over, or they never will. Somebody else may take the places. */
int64_t qi_place_wait(qi_queue **queues, uint32_t count, uint32_t messages, uint64_t bytes,
                      uint64_t until_us, uint64_t pause_us);
/* For an event loop. 1: there are places; 0: the store's descriptor tells of them (qi_places_came),
 * or of the store's end; or an error, as above. May wait for the lock. */
int qi_place_arm(qi_queue **queues, uint32_t count, uint32_t messages, uint64_t bytes);
/* True once for each time that it did; never waits. */
bool qi_places_came(qi_store *store);
/* The ReqId that the next message with these flags and this time would get, as of now. */
int64_t qi_next_req_id(qi_queue *queue, uint32_t flags, uint64_t due_us);
/* Where qi_get puts a message: one per caller at a time. */
typedef struct {
    qi_message message;
    qi_queue *queue;
    void *payload;
    size_t room;
    uint64_t lease_us; /* 0: it is delivered with its own lease, if it has one */
} qi_reader;

/* The payload's length, or an error. QI_E_ROOM: message.payload_size says how much is needed. */
int64_t qi_get(qi_reader *reader);
int64_t qi_get_newest(qi_reader *reader); /* the one that was published last */
/* How many messages were taken; their payloads lie end to end. */
int64_t qi_get_many(qi_queue *queue, uint32_t count, qi_message *messages, void *payloads,
                    size_t room, uint64_t *req_ids, uint64_t lease_us);
/* The same for a caller that has some already, and would not see what is wrong with the next one:
 * any error is 0 messages. A damaged one is not set aside yet. */
int64_t qi_get_more(qi_queue *queue, uint32_t count, qi_message *messages, void *payloads,
                    size_t room, uint64_t *req_ids, uint64_t lease_us);
/* The same as qi_get and qi_get_many, but they wait for a message until the store's clock says
 * until_us (UINT64_MAX: for ever), and come back with QI_PAUSE after pause_us. The first takes from
 * the first of `count` queues that has one: reader->queue says from which. They end with
 * QI_E_CLOSED or QI_E_FAILED when the store is closed or fails. */
int64_t qi_get_wait(qi_reader *reader, qi_queue **queues, uint32_t count, uint64_t until_us,
                    uint64_t pause_us);
int64_t qi_get_many_wait(qi_queue *queue, uint32_t count, qi_message *messages, void *payloads,
                         size_t room, uint64_t *req_ids, uint64_t lease_us, uint64_t until_us,
                         uint64_t pause_us);
uint64_t qi_store_clock_us(qi_store *store); /* never set, never back: what leases go by */
uint64_t
qi_store_now_us(qi_store *store); /* the wall clock, since 1970: what delays and expiry go by */
/* What the engine does by itself, for whoever listens. Nothing is noted while nobody does. */
enum {
    QI_EVENT_LEASE_ENDED = 1, /* a delivery ended with its lease */
    QI_EVENT_EXPIRED = 2,     /* a message expired and was dropped */
    QI_EVENT_DIED = 3,        /* became a dead letter: why, QI_DEAD_EXPIRED ... */
    QI_EVENT_DROPPED = 4,     /* was dropped: why, QI_DEAD_DELIVERIES or QI_DEAD_FULL */
    QI_EVENT_READY = 5,       /* its time has come */
    QI_EVENT_ABOVE = 6,       /* so many wait that the mark is reached: `count` */
    QI_EVENT_BELOW = 7,       /* and, after that, so few that the lower one is not */
};
typedef struct {
    uint64_t us; /* when, by the wall clock */
    uint64_t req_id, count;
    const char *name; /* of the queue; valid as long as the store */
    uint32_t name_size, kind, why;
} qi_event;
typedef struct qi_listener qi_listener;
/* Keeps up to `room` events of these kinds (bits 1 << QI_EVENT_...); of more, the newest. The
 * worker keeps the time from now on. */
int qi_listener_new(qi_store *store, uint32_t room, uint32_t kinds, qi_listener **listener);
/* Tells ABOVE when `high` or more messages wait in the queue, dead letters not counted, and BELOW
 * when then fewer than `low` do. */
int qi_listener_mark(qi_listener *listener, qi_queue *queue, uint64_t high, uint64_t low);
/* Nothing more is told to it. Who waits for its events, then or later, gets QI_E_CLOSED. */
void qi_listener_close(qi_listener *listener);
void qi_listener_free(qi_listener *listener); /* also behind its store's; nobody may use it */
/* The oldest events, up to `room`: how many. *missed: so many before these were not kept. 0: the
 * time is over, or as qi_get_wait QI_PAUSE; or an error. */
int64_t qi_listener_wait(qi_listener *listener, qi_event *events, uint32_t room, uint64_t *missed,
                         uint64_t until_us, uint64_t pause_us);
/* For an event loop. 1: there are events; 0: the store's descriptor becomes readable when there are
 * (qi_events_came), or the store is closed; or an error. May wait for the lock. */
int qi_listener_arm(qi_listener *listener);
/* True once for each time that it did; never waits. */
bool qi_events_came(qi_store *store);
/* The first message at or behind from_req_id, in any state but acked; changes nothing. */
int64_t qi_browse(qi_queue *queue, uint64_t from_req_id, bool ready_only, qi_message *message,
                  void *payload, size_t room);
/* `delivery`: as the message said when it was handed out. If that delivery has ended, the verb is
 * refused: QI_E_LEASE or QI_E_ENDED if somebody else has the message now. 0, or NULL: whatever
 * delivery is current. due_us: when the message shall be ready again; 0: now. */
int64_t qi_ack(qi_queue *queue, uint64_t req_id, uint64_t delivery);
/* The upper half of all deliveries of this handle, also of those of messages that were only looked
 * at. No other has it. */
uint32_t qi_queue_tag(const qi_queue *queue);
/* Of each of these deliveries: held[i] is 1 if it has not ended, else 0. */
int qi_deliveries_held(qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                       uint32_t count, uint8_t *held);
int64_t qi_ack_many(qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                    uint32_t count);
int64_t qi_nack_many(qi_queue *queue, const uint64_t *req_ids, const uint64_t *deliveries,
                     uint32_t count, uint64_t due_us);
/* How often copies, which nobody had here, were delivered elsewhere; 0: perhaps (format 2). */
int64_t qi_had(qi_queue *queue, const uint64_t *req_ids, const uint16_t *counts, uint32_t count);
int64_t qi_touch(qi_queue *queue, uint64_t req_id, uint64_t delivery, uint64_t lease_us);
/* Any of these ways, of all deliveries or none. A reject drops them without an ack, or makes dead
 * letters of them if the queue keeps those. A return is a nack that does not count (format 2). */
enum { QI_SETTLE_ACK = 0, QI_SETTLE_NACK = 1, QI_SETTLE_REJECT = 2, QI_SETTLE_RETURN = 3 };
int64_t qi_settle_all(qi_queue *queue, int how, const uint64_t *req_ids, const uint64_t *deliveries,
                      uint32_t count, uint64_t due_us);
/* The same without a wait. QI_BUSY: it may need one, or is wrong; nothing was changed. */
int64_t qi_settle_now(qi_queue *queue, int how, const uint64_t *req_ids, const uint64_t *deliveries,
                      uint32_t count, uint64_t due_us);
int64_t qi_touch_now(qi_queue *queue, uint64_t req_id, uint64_t delivery, uint64_t lease_us);
/* Of a message that is not delivered: when it shall be ready (0: now; a dead letter is taken back,
 * and can have no time: QI_E_DEAD); away with it. */
int64_t qi_reschedule(qi_queue *queue, uint64_t req_id, uint64_t due_us);
int64_t qi_delete(qi_queue *queue, uint64_t req_id);
/* Why a message is a dead letter. */
enum { QI_DEAD_EXPIRED = 1, QI_DEAD_REJECTED = 2, QI_DEAD_DELIVERIES = 3, QI_DEAD_FULL = 4 };
/* What becomes of a publish to a queue that is full: it is refused, or the oldest leaves, or
 * becomes a dead letter. */
enum { QI_REJECT = 0, QI_DROP_HEAD = 1, QI_BURY_HEAD = 2 };
/* What a queue does by itself, as its opener says; not on disk. 0 or false: it does not. */
typedef struct {
    uint64_t ttl_us;         /* of messages that have no shorter one */
    uint64_t max_messages;   /* dead letters do not count */
    uint64_t max_bytes;      /* headers and bodies; dead letters do not count */
    int overflow;            /* QI_REJECT ... */
    uint32_t max_deliveries; /* after so many, and again so many, it is not delivered any more */
    bool dead_letters;       /* what would be dropped is kept aside */
    uint64_t lease_us;       /* of a delivery, if neither its taker nor the message names one */
} qi_rules;
int qi_queue_set_rules(qi_queue *queue, const qi_rules *rules);
/* The queue that dead letters move to, by name and directory; a name without bytes: they stay.
 * Format 2. */
int qi_queue_set_dead_letters(qi_queue *queue, const char *name, size_t name_size,
                              const char *directory);
/* How the message became a dead letter, here and in queues before, the latest first: the size of it
 * as side record DEATHS has it (FORMAT.rst, section 4), or an error. It is copied if there is
 * room. */
int64_t qi_deaths_of(qi_queue *queue, uint64_t req_id, void *bytes, size_t room);
/* Dead letters are ready again, at most so many, in the order of ReqIds; how many. */
int64_t qi_redrive(qi_queue *queue, uint64_t most);
/* Messages in these states are dropped; how many. What is out stays. If nothing else stays, they go
 * in one record; else in parts. */
enum { QI_PURGE_READY = 1, QI_PURGE_DELAYED = 2, QI_PURGE_DEAD = 4, QI_PURGE_ALL = 7 };
int64_t qi_purge(qi_queue *queue, uint32_t states);
/* What has expired leaves, wherever it stands, or is a dead letter if the queue keeps those; how
 * many. */
int64_t qi_expire(qi_queue *queue);
int qi_queue_sync(qi_queue *queue);
int qi_flush(qi_queue *queue);
int qi_queue_stats_of(qi_queue *queue, qi_queue_stats *stats);
/* From now on the background thread calls `tell` behind a sync that took longer than
 * QI_SLOW_SYNC_US: without any lock, at most once a minute. The store is open until it returns. */
#define QI_SLOW_SYNC_US 1048576
void qi_store_on_slow_sync(qi_store *store, void (*tell)(qi_store *store));

/* `since` the open; *before: what was kept of the sessions before. QI_COUNTS_NONE ..., or an error.
 * The store's are of all its queues, those that were deleted too. Neither reads a file. */
int qi_queue_counts_of(qi_queue *queue, qi_counts *since, qi_counts *before);
int qi_store_counts_of(qi_store *store, qi_counts *since, qi_counts *before, qi_syncs *syncs,
                       qi_syncs *syncs_before);
/* The age of the oldest message that is no dead letter and was published without a delay: it is so
 * old at least, in microseconds. QI_EMPTY: there is none. */
int64_t qi_oldest_us(qi_queue *queue);

/* The index alone: bodies are elsewhere, the caller's 16-byte MsgIds are kept. */
int64_t qi_index_publish(qi_queue *queue, uint32_t count, const void *msg_ids,
                         const uint32_t *sizes, uint32_t flags);
int64_t qi_index_deliver(qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint64_t first);
int64_t qi_index_ack(qi_queue *queue, const uint64_t *req_ids, uint32_t count, uint64_t first);
int64_t qi_index_read(qi_queue *queue, uint64_t start, uint64_t stop, qi_message *messages,
                      uint32_t room);

/* index_files.c: the journals and segments of a store one after the other, as bytes, in the order
 * of their names; the store is not opened. `wanted`: only these, "queues/FOLDER" or
 * "queues/FOLDER/FILE", one behind the other, each with a zero at its end; NULL: all. A file is
 * valid until the next call. */
typedef struct qi_index_files qi_index_files;
typedef struct {
    const uint8_t *bytes;
    uint64_t size;
    const char *where; /* "queues/FOLDER/FILE" */
} qi_index_file;
qi_index_files *qi_index_files_new(void); /* NULL: no memory */
void qi_index_files_free(qi_index_files *files);
/* The next store; may be called as often as there are stores. An error: it cannot be read, and
 * has no files. */
int qi_index_files_begin(qi_index_files *files, const char *path, const char *wanted, size_t count);
/* 1: a file; 0: that was the last. An error: one file or folder cannot be read; the next call goes
 * on behind it. A journal that was flushed, and what has gone since it was listed, are passed
 * over. */
int qi_index_files_next(qi_index_files *files, qi_index_file *found);

/* disk/weigh.c: how many bytes lie in the files of each directory and below it, without links.
 * `paths`: one behind the other, each with a zero at its end. `with`: -1 for a directory without a
 * file of this name; NULL: all are weighed. An error: a lack of descriptors or memory. */
int qi_weigh(const char *paths, size_t count, const char *with, int64_t *bytes);
/* cffi: end */

#include "data.h"
#include "loop.h"

#endif
