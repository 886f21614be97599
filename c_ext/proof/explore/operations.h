/* operations.h - what operations.c and taking.c share. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include "proof/explore/player.h"

#define MANY 32u

struct model_queue *player_queue(struct player *player, const struct op *op);
/* The wall clock, which is set now and then: times of messages go by it. And: what leases go by. */
uint64_t player_now_us(const struct player *player);
uint64_t player_steady_us(const struct player *player);
/* An error of the engine is a finding, unless calls fail on purpose. */
bool player_failed(struct player *player, const char *what, int64_t code);
/* When the operation's messages are due; 0: at once. */
uint64_t op_due_us(const struct player *player, const struct op *op);
/* As the engine takes it. */
uint64_t model_due_us(uint64_t due_us);
/* Nobody has it: it is ready, or delayed, or a dead letter. */
bool message_waits(const struct message *message);
/* The one that a consumer gets next, expired or not; NULL: none. */
struct message *foresee_best(struct player *player, struct model_queue *queue);

/* What counts for a bound, or shall come; no place for so much, even if all that is ready went;
 * and: the heads of a full queue go, in one frame. */
struct load {
    uint32_t messages, bytes;
};
bool is_full(const struct player *player, const struct model_queue *queue, struct load more);
void foresee_place(struct player *player, struct model_queue *queue, struct load more);
/* A message that is published with that id, in the model. */
struct message *foresee(struct player *player, const struct op *op, uint8_t queue, uint64_t id,
                        uint32_t size, bool last);
uint32_t engine_flags(const struct op *op);
uint32_t lane_of(const struct player *player, const struct op *op);
/* The queue is full, and the engine says so. */
bool is_refused(struct player *player, const char *what, int64_t code);

/* The id that the engine says comes next there; UINT64_MAX: a finding. And: is it that one? */
uint64_t next_id(struct player *player, const struct op *op, uint8_t queue);
bool check_id(struct player *player, const char *what, int64_t got, uint64_t expected);

/* spreading.c: one message to several queues, or several of each. */
bool play_fanout(struct player *player, const struct op *op);
/* A message that a transaction moves from one queue to another. */
struct planned {
    int kind, from, to; /* queues; -1: none */
    uint64_t from_id, to_id;
    struct message moved;
};
/* In the other queue; as yet in the first one, too. */
struct message *foresee_moved(struct player *player, const struct planned *item);
/* dying.c: messages of a queue die, and move to another one. */
bool play_die(struct player *player, const struct op *op);
/* What the verb does at its end, if the queue's dead letters move: called before the verb is. */
void foresee_dead_moves(struct player *player, const struct model_queue *queue);
/* transacting.c: several queues, all of it or nothing. */
bool play_transact(struct player *player, const struct op *op);
/* The queue was deleted. What it had by transactions, or has given by them to others, stays as it
 * is: they are durable before it goes. */
void foresee_deleted(struct model *model, const struct model_queue *queue);
/* Several queues with one call. */
bool play_create_group(struct player *player, const struct op *op);
/* a gets the name b, or b the name a, whichever is there alone. */
bool play_rename(struct player *player);
/* keys.c: a change of a mapping. */
bool play_data(struct player *player, const struct op *op);
/* taking.c: what is leased and over is ready again. */
void end_leases(struct player *player);
/* The call of the engine; the message may get a lease of its own. */
int64_t publish_message(struct player *player, const struct op *op, struct message *message,
                        const uint8_t *payload, uint32_t flags, uint64_t due_us);
bool play_get(struct player *player, const struct op *op);
bool play_get_many(struct player *player, const struct op *op);
bool play_ack(struct player *player, const struct op *op);
bool play_late(struct player *player, const struct op *op);
bool play_purge(struct player *player, const struct op *op);
bool play_redrive(struct player *player, const struct op *op);
bool play_expire(struct player *player, const struct op *op);
bool play_had(struct player *player, const struct op *op);
bool play_waiting(struct player *player, const struct op *op);

#endif
