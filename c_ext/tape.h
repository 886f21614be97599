/* tape.h - a file whose bytes lie in memory: fill them, then tell.
 *
 * On a safe local file system the memory is a shared mapping of preallocated blocks: a store is the write, the kernel
 * has the bytes, a killed process loses nothing and no system call was made. Elsewhere (and on a simulated disk) the
 * memory is plain and qi_tape_wrote() passes the bytes on. The callers do the same in both cases.
 */
#ifndef QI_TAPE_H
#define QI_TAPE_H

#include "disk.h"

struct qi_tape {
    struct qi_disk *disk;
    int file;           /* -1: closed */
    uint8_t *memory;    /* `mapped` bytes of address space; valid below `allocated` */
    uint64_t mapped;    /* the most that this tape can hold */
    uint64_t allocated; /* bytes that the file has */
    uint64_t settled;   /* where the pages that came since the last sync begin, */
    uint64_t ready;     /* and where they end; at most `allocated` */
    bool told;          /* writes must be passed on */
};

/* Takes over `file`. Returns 0 or -errno (the file is closed then). */
int qi_tape_open(struct qi_tape *tape, struct qi_disk *disk, int file, uint64_t mapped,
                 bool use_mapping);
/* Makes what the file has between the two offsets appear in memory; until then only what is stored is there. */
int qi_tape_load(struct qi_tape *tape, uint64_t from, uint64_t to);
/* What was loaded is given up. Between the two offsets the cache gives it up, too: the next load asks the medium,
 * and the size is what that says. */
int qi_tape_forget(struct qi_tape *tape, uint64_t from, uint64_t to);
void qi_tape_close(struct qi_tape *tape);

/* Makes `size` bytes usable. With keep_free > 0 it refuses (-ENOSPC) when the disk would have less than that left:
 * publishes leave room for acks and flushes (H14). -EFBIG when the tape cannot hold it. */
int qi_tape_reserve(struct qi_tape *tape, uint64_t size, uint64_t keep_free);

/* The same for what is appended at `tail`, and if that is not long its pages are there, with a quarter as many ahead as came
 * since the last sync: a page that is written to first costs a fault of its own, more than all else about a small message.
 * Below `ready` there is no need to call this. */
int qi_tape_make_ready(struct qi_tape *tape, uint64_t tail, uint64_t size, uint64_t keep_free);
/* From that offset on they are not, as before a sync. */
static inline void qi_tape_unready(struct qi_tape *tape, uint64_t from) {
    tape->settled = from;
    tape->ready = from;
}

/* Cuts the file to `size` and gives up what lies behind: stale bytes must not come back. */
int qi_tape_cut(struct qi_tape *tape, uint64_t size);

/* Zeros from `from` on. Where the file system can it does that with the blocks, of which it then has enough for what comes:
 * sooner done than giving them back. More than some megabytes are cut: a recovery would have to read them. */
int qi_tape_clear(struct qi_tape *tape, uint64_t from);

/* Before a sync: the whole pages between two offsets leave the mapping at once. The sync would protect each that was written
 * to, with an interrupt for every processor that runs a thread of this process. */
void qi_tape_settle(struct qi_tape *tape, uint64_t from, uint64_t to);

static inline int qi_tape_wrote(struct qi_tape *tape, uint64_t offset, uint64_t length) {
    if (__builtin_expect(!tape->told, 1))
        return 0;
    return tape->disk->ops->write(tape->disk, tape->file, tape->memory + offset, length, offset);
}

#endif
