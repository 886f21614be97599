/* program.h - a short life of a store, made from a seed, as text that can be pasted into a test. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum op_kind {
    OP_PUBLISH,
    OP_BATCH,
    OP_FANOUT,
    OP_GET,
    OP_GET_MANY,
    OP_ACK,
    OP_ACK_MANY,
    OP_NACK,
    OP_PURGE,
    OP_FLUSH,
    OP_COMPACT,
    OP_SYNC,
    OP_SYNC_ALL,
    OP_TICK,
    OP_IDLE,
    OP_ADVANCE,
    OP_REOPEN,
    OP_DELETE,
    OP_CREATE,
    OP_CUT,
    OP_KILL,
    OP_FAIL,
    OP_RESCHEDULE,
    OP_DROP,
    OP_REJECT,
    OP_REDRIVE,
    OP_EXPIRE,
    OP_LATE,
    OP_STEP,
    OP_DATA,
    OP_TRANSACT,
    OP_UPGRADE, /* reopen, and the store becomes one of the newest format */
    OP_RENAME,  /* a becomes b, or b becomes a */
    OP_HAD,     /* copies get the deliveries that they had elsewhere */
    OP_DIE,     /* messages of c or d die, and move to a or b */
    OP_KINDS,
};

enum {
    FLAG_TRANSIENT = 1,
    FLAG_REDELIVERED = 2,
    FLAG_EXPIRES = 4,
    FLAG_HEADERS = 8,
    FLAG_PRIORITY = 16,
    FLAG_DELAY = 32,
    FLAG_LEASE = 64,
    FLAG_PAST = 128, /* with a delay: it is over, as due=0 */
};

struct op {
    uint8_t kind, queue, flags;
    uint16_t count;
    uint32_t
        size; /* of a body; also: which of the delivered ones, seed of a power cut, milliseconds */
};

#define LONG_BODY 16384u /* a batch of this size has bodies that are written from the caller's */

/* Sizes as small as they go, so that a run of 150 operations crosses every edge. */
struct settings {
    uint64_t seed; /* of identities and stamps */
    bool mapping;
    bool never; /* sync="never": nothing is synced that nobody asks for */
    uint32_t segment_entries, max_journal_entries, embed_below;
    uint64_t max_journal_bytes, message_file_size;
    uint32_t keep_history;
    uint32_t files;    /* that may be open; 0: any number */
    bool alone;        /* the disk has no sync of everything */
    uint32_t crowd;    /* with so many queues an open uses it; 0: never */
    uint32_t format;   /* of the new store */
    uint32_t few, log; /* of format 2: queues that are synced one by one; bytes of a commit log */
    bool next;         /* closes keep when a queue wants to be looked at (store/next.c) */
};

struct program {
    struct settings settings;
    struct op *ops;
    uint32_t count;
};

struct program program_make(uint64_t seed, uint32_t count);
struct program program_copy(const struct program *program);
void program_free(struct program *program);
/* "mapped segments=16 journal=24 ...; publish a 40; sync a; cut 17". The caller frees it. */
char *program_write(const struct program *program);
bool program_read(const char *text, struct program *program);
const char *op_name(uint8_t kind);

#endif
