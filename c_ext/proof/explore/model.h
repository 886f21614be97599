/* model.h - a queue that is stupid and right, and says what a power cut may leave of it.
 *
 * A queue is a row of messages and a log of what happened to them since the last confirmed sync.
 * The log is in frames, as the engine's journal is: a publish, a whole batch, a delivery, an ack.
 * The rule that every check comes down to:
 *
 *     After a power cut a queue is what its first k frames make of it, for some k: never fewer than
 * were confirmed, never half a frame, never one without those before it. After a kill: all frames
 * that returned.
 *
 * Transactions go by a log of all queues: for some number c, all queues have the first c of them
 * whole, and of the others nothing.
 *
 * Confirmed publishes, acks that stay, whole batches, order, prefixes, phantoms and counts of
 * deliveries all follow.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct state { /* of one message */
    bool published, acked;
    uint16_t deliveries;
    uint64_t time; /* until when it is delayed; 0: it stands in the order of ids */
};

struct message {
    uint64_t id, expiry_us;
    uint64_t lease_us;       /* until when it is out; 0: for ever */
    uint64_t published_us;   /* when it was published; 0: the store does not keep that */
    uint64_t own_us;         /* how long its own lease is; 0: it has none */
    uint64_t delivery, late; /* the engine's number of the last delivery, and of the one before */
    uint32_t priority;
    uint32_t serial; /* says what the bytes are */
    uint32_t died;   /* why it was a dead letter where it moved away; 0: it was none */
    uint32_t headers_size, body_size;
    bool transient, out;
    bool picked;               /* for a batch that is being foreseen */
    bool old;                  /* lived through an unclean end */
    struct state durable, now; /* at the last confirmed sync, and with the whole log */
};

enum event_kind { EVENT_PUBLISH, EVENT_DELIVER, EVENT_ACK, EVENT_TIME };

struct event {
    enum event_kind kind;
    uint32_t message; /* index */
    bool ends_frame;
    uint64_t time;
    uint32_t transaction; /* its number; 0: it is of none */
};

struct given { /* of a lane, ids below it may have been given */
    uint32_t lane;
    uint64_t next;
};

enum presence { ABSENT, PRESENT, EITHER_WAY };

struct model_queue {
    enum presence exists;
    uint32_t max_deliveries;  /* 0: any number; others become dead letters */
    struct message *messages; /* by id */
    uint32_t count, room;
    struct event *log;
    uint32_t log_count, log_room;
    uint32_t transaction; /* events are logged as of this one; 0: of none */
    uint32_t confirmed;   /* the last transaction before the log */
    uint32_t returned;    /* events of calls that have returned: a kill loses none of them */
    struct given *given;
    uint32_t given_count, given_room;
    struct message *past; /* published, and not there behind a crash: acked before, or lost */
    uint32_t past_count, past_room;
};

#define TRANSACTIONS 128u /* between two opens */
/* How many transactions may have happened, so that what was seen is explained. */
struct cuts {
    bool may_be[TRANSACTIONS + 1];
};
struct log_shape { /* where the entries of a log have the number of their transaction */
    const void *entries;
    size_t size, transaction;
    uint32_t count;
};
/* The first `applied` entries of a log explain it: any number of transactions from the last one
 * among them on, up to the next one of that log; `confirmed` is the last one before the log. True
 * if there is a next one. */
bool cuts_note(struct cuts *cuts, uint32_t confirmed, const struct log_shape *log,
               uint32_t applied);

#define QUEUES 4
#define KEYS   3 /* of each mapping */

/* Which value each key has, by its serial; 0: none. The last mapping is the store's. */
struct keys {
    uint32_t values[QUEUES + 1][KEYS];
};

struct key_change {
    uint32_t scope, values[KEYS];
    bool is_set[KEYS];
    uint32_t transaction; /* that it is a part of; 0: of none */
};

struct model_keys {
    struct keys durable; /* at the last confirmed sync */
    struct key_change *log;
    uint32_t count, room, returned;
    uint32_t confirmed; /* the last transaction before the log */
};

/* A queue is getting another one's name: a crash finds it done, or not. */
struct renaming {
    bool is_open;
    bool is_done; /* as the queues stand in the model now */
    int from, to;
};

enum ended { UNCLEAN, CLEAN, UNCLEAN_OR_CLEAN }; /* what the next open finds */

struct model {
    struct model_queue queues[QUEUES];
    struct model_keys keys;
    struct renaming renaming;
    uint32_t transactions; /* since the open */
    uint32_t sure;         /* so many of them are durable: a queue with the last one was deleted */
    uint32_t serial;       /* of the next message, or value */
    enum ended ended;
};

/* A message as the engine showed it. */
struct seen {
    uint64_t id;
    uint32_t deliveries, flags; /* QI_REDELIVERED ... */
    uint64_t due_us;
};

/* What is wrong with what was seen; "" if nothing is. */
struct verdict {
    char text[400];   /* cut off if it is longer */
    const char *kind; /* the text's format: two findings are alike if it is the same */
    int64_t code;     /* the engine's, if it is about an error; else 0 */
};

/* Payload of a message: headers, then body. */
void payload_fill(uint32_t serial, uint8_t *bytes, uint32_t size);
bool payload_is(uint32_t serial, const uint8_t *bytes, uint32_t size);

/* Is that when it was published? As exactly as the engine says. */
bool model_moment_is(const struct message *message, uint64_t published_us);

struct message *model_find(struct model_queue *queue, uint64_t id);
/* It was published with these bytes, and was not there any more behind a crash. */
bool model_had(const struct model_queue *queue, uint64_t id, const uint8_t *payload, uint32_t size);
/* Events are added as a call begins and count as returned when it has. */
struct message *model_publish(struct model *model, struct model_queue *queue, uint64_t id,
                              bool ends_frame);
/* Its next id is not below this one. */
uint64_t model_next_min(const struct model_queue *queue, uint32_t lane);
uint32_t model_lane(uint64_t id);
/* The time of a dead letter, and of one that was taken back. */
uint64_t model_dead(uint32_t why);
#define MODEL_REDRIVEN 1u
/* What a caller's 1 becomes: no time of a message is less. */
#define MODEL_FIRST    3u
/* A message in a lane of delayed messages is never anything else. */
bool model_is_delay_lane(uint64_t id);
void model_time(struct model_queue *queue, struct message *message, uint64_t time, bool ends_frame);
void model_event(struct model_queue *queue, enum event_kind kind, struct message *message,
                 bool ends_frame);
/* Of the last `count` deliveries only the first `left` happened. Returns `left`. */
uint32_t model_deliver_fewer(struct model_queue *queue, uint32_t count, uint32_t left);
void model_returned(struct model_queue *queue);
void model_synced(struct model_queue *queue); /* all that returned is confirmed */
void model_forget(struct model_queue *queue); /* deleted, or not yet created */
void model_free(struct model *model);

/* keys.c. Is this what may be left? And: what was seen is durable; a queue is new, or gone. */
bool keys_allow(const struct model_keys *model, const struct keys *seen, const bool *exists,
                bool killed, struct cuts *cuts);
bool keys_are_same(const struct keys *one, const struct keys *other, const bool *exists);
void keys_synced(struct model_keys *model);
void keys_rebase(struct model_keys *model, const struct keys *seen);
void keys_forget(struct model_keys *model, int queue);
void keys_exchange(struct model_keys *model, uint32_t one, uint32_t other);

/* Is this what `ended` (not UNCLEAN_OR_CLEAN) may leave? `killed`: nothing that returned may be
 * missing. Into `cuts`: with how many transactions. */
bool model_allows(const struct model_queue *queue, const struct seen *seen, uint32_t count,
                  enum ended ended, bool killed, struct cuts *cuts, struct verdict *verdict);
/* What was seen after an open is durable now (the barrier). */
void model_rebase(struct model_queue *queue, const struct seen *seen, uint32_t count,
                  enum ended ended);

#endif
