/* player.h - plays a program on a store on a simulated disk, with the model beside it. */
#ifndef PLAYER_H
#define PLAYER_H

#include "proof/explore/model.h"
#include "proof/explore/program.h"
#include "proof/sim/disk_sim.h"

#define PAYLOAD_MAX 20480u
#define IDLE_US     1000000u

struct session { /* an open store and its queues */
    struct qi_sim *sim;
    qi_store *store;
    qi_queue *queues[QUEUES];
    bool tells_deaths; /* it had format 2 from the beginning */
    bool measures;     /* its queues count their bytes, whether they are bounded in them or not */
};

/* What is there, as a consumer sees it. */
struct sight {
    bool exists[QUEUES];
    struct keys keys;
    uint64_t next[QUEUES];
    struct seen *seen[QUEUES];
    uint32_t count[QUEUES], room[QUEUES];
};

struct player {
    const struct program *program;
    struct session session;
    struct model model;
    uint32_t op;
    struct verdict verdict; /* what went wrong; text[0] == 0: nothing */
    struct dying *dying;    /* an operation lets messages die and move; NULL: none does */
    struct fault *fault;    /* of a sweep: a call fails on purpose; NULL: none does */
    bool armed;             /* a sync is going to fail, or has */
    bool after_cut;         /* a power cut is being recovered from: something may be missing */
    bool broken;            /* a call failed so that only a reopen helps */
    bool evicted;           /* the last open closed what it had written, and the disk lost that */
    struct sight sight;
    /* Told before each change of the disk, after each sync, and after each operation. */
    void (*point)(struct player *player, const char *call);
    void *context;
};

/* sweep.c: what fails on purpose, and whether an error may be its consequence. */
enum fault_kind { FAULT_EIO, FAULT_ENOSPC, FAULT_MEMORY, FAULT_EVICTED, FAULT_KINDS };
struct fault {
    enum fault_kind kind;
    bool sticky; /* once, or for ever */
    uint64_t at; /* the number of the call; 0: none fails, they are counted */
};
void fault_arm(const struct fault *fault, struct qi_sim *sim);
void fault_end(struct qi_sim *sim);
/* The disk after a crash: calls are counted on, and a fault for ever goes on. */
void fault_hand_over(const struct qi_sim *from, struct qi_sim *to);
uint64_t fault_hits(const struct qi_sim *sim);
bool fault_explains(const struct fault *fault, const struct qi_sim *sim, int64_t code);

qi_options options_of(const struct settings *settings);
const char *queue_directory(int queue);

/* The rules of a queue: c and d are full with few messages or bytes. What they would drop is a dead
 * letter, but for the heads of d when it is full. */
enum { MAX_DELIVERIES = 3, MAX_MESSAGES = 12, MAX_BYTES = 6000 };
static inline bool keeps_dead_letters(int queue) {
    return queue >= 2;
}
static inline bool is_bounded(int queue) {
    return queue >= 2;
}
static inline bool buries_its_head(int queue) {
    return queue == 2;
}
int session_rules(struct session *session, int queue);
/* 0 or the error. */
int settle_renaming(struct session *session, struct model *model);

bool session_open(struct session *session, struct qi_sim *sim, const struct settings *settings,
                  struct verdict *verdict);
/* Expects a change of some keys; its new values are serials of their own. */
struct key_change *foresee_keys(struct model *model, uint32_t scope, const struct op *op);
#define KEY_VALUE_MAX 80u
#define KEYS_SIZE     (KEYS * (KEY_VALUE_MAX + 7))
/* As the engine takes it; into KEYS_SIZE bytes. Returns the size. */
size_t write_keys(const struct key_change *change, uint8_t *entries);
/* What the mappings have. 0 or the error. */
int64_t keys_look(const struct session *session, struct keys *seen);
/* From here on closes keep when the queue wants to be looked at; in format 2. 0 or the error. */
int64_t next_note(const struct session *session, int queue);
/* Does an open learn from what a close kept that it has to look at that queue? */
bool next_is_known(const struct session *session, int queue, const struct sight *sight,
                   struct model_queue *model, struct verdict *verdict);
/* Opens the queues that the model has (or may have). A rename that a crash came into is done in the
 * model then, or not, as it is in the store. */
bool session_queues(struct session *session, struct model *model, struct verdict *verdict);
void session_end(struct session *session); /* without close: as a crash leaves it */

/* Looks at all queues; checks bytes and fields of each message against the model. */
bool sight_take(struct sight *sight, const struct session *session, struct model *model,
                struct verdict *verdict);
/* After another power cut. Transients leave `one`. */
bool sight_is_same(struct sight *one, const struct sight *two, struct verdict *verdict);
void sight_free(struct sight *sight);
/* Is the sight what the model allows? Says how the end was taken, CLEAN or UNCLEAN. */
bool sight_allowed(const struct sight *sight, const struct model *model, bool killed,
                   enum ended *ended, struct verdict *verdict);

/* It is of format 2: it has leases of messages, and when they were published. */
bool keeps_moments(const struct player *player);

/* What is wrong; false. */
bool verdict_complain(struct verdict *verdict, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Puts where it was in front of what is wrong. */
void verdict_inside(struct verdict *verdict, const char *where);

/* Tells the explorer, unless something is wrong already. */
void player_point(struct player *player, const char *call);
/* Has a sync failed? What it was for may be lost, also if the process is only killed. */
bool player_lossy(const struct player *player);
void player_begin(struct player *player, const struct program *program);
void player_run(struct player *player); /* to the end, or to the first finding */
void player_end(struct player *player);
bool player_complain(struct player *player, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* operations.c: one operation; false: a finding. */
bool operation_play(struct player *player, const struct op *op);
/* Another disk (or the same): opens it, compares, and takes what is there as the new truth. */
bool player_reopen(struct player *player, struct qi_sim *sim, bool killed);

#endif
