/* operations.h - what operations.c and taking.c share. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include "player.h"

#define MANY 32u

struct model_queue *player_queue(struct player *player, const struct op *op);
uint64_t player_now_us(const struct player *player);
/* An error of the engine is a finding, unless calls fail on purpose. */
bool player_failed(struct player *player, const char *what, int64_t code);
/* When the operation's messages are due; 0: at once. */
uint64_t op_due_us(const struct player *player, const struct op *op);
/* Nobody has it: it is ready, or delayed, or a dead letter. */
bool message_waits(const struct message *message);
/* The one that a consumer gets next, expired or not; NULL: none. */
struct message *foresee_best(struct player *player, struct model_queue *queue);

bool play_get(struct player *player, const struct op *op);
bool play_get_many(struct player *player, const struct op *op);
bool play_ack(struct player *player, const struct op *op);
bool play_purge(struct player *player, const struct op *op);
bool play_redrive(struct player *player, const struct op *op);
bool play_expire(struct player *player, const struct op *op);
bool play_waiting(struct player *player, const struct op *op);

#endif
