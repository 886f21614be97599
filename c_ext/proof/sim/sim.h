/* sim.h - what tests see of the simulated disk: build.py gives the text between the marks to
 * cffi. */
#ifndef QI_SIM_H
#define QI_SIM_H

#include "qindex.h"

/* cffi: begin */
/* A disk in memory that can lose power. Everything is decided by seeds: the same calls give the
 * same bytes. One disk and the stores on it belong to one thread. A store is freed before its
 * disk. */
typedef struct qi_sim qi_sim;

typedef struct {
    uint64_t capacity;   /* bytes; 0: 1 GiB */
    uint64_t wall_us;    /* the wall clock at the start; 0: some day in 2026 */
    uint64_t growth_min; /* tapes grow by so many bytes; 0: 4096 (a real disk: 65536) */
    bool mapping;     /* mapping files is safe here: appends are stores into memory, not writes */
    bool no_zeros;    /* the file system has no call that makes zeros of bytes */
    bool no_sync_all; /* nor one that makes all of it durable */
    uint32_t crowd;   /* an open syncs all at once if there are so many queues; 0: never */
} qi_sim_knobs;

enum {                    /* what a power cut makes of each file's unsynced writes */
       QI_SIM_MIXED = 0,  /* one of these for each file, by the seed */
       QI_SIM_NOTHING,    /* only what was synced, bytes and names */
       QI_SIM_ALL,        /* everything, as after kill -9 */
       QI_SIM_PREFIX,     /* the first few in their order, the last one torn at a byte */
       QI_SIM_SECTORS512, /* any subset of 512-byte sectors */
       QI_SIM_SECTORS4K,
       QI_SIM_ZEROS, /* any subset of sectors; the file has its last size, zeros where bytes are
                        missing */
};
enum { /* how a call fails */
       QI_SIM_EIO =
           1, /* a sync: the writes that it was for never reach the medium, the cache keeps them */
       QI_SIM_ENOSPC,
       QI_SIM_SHORT, /* a part of a write is done, then the disk is full */
       QI_SIM_EINTR,
       QI_SIM_ENOMEM,
       QI_SIM_EVICTED, /* a close: the disk then loses what was not synced of the file, and no later
                          sync of it tells */
};
enum { /* what happens to a file that was durable */
       QI_SIM_BIT_FLIP = 1,
       QI_SIM_ZERO_SECTOR,
       QI_SIM_STALE_SECTOR, /* a sector as it was before the last sync */
       QI_SIM_MISDIRECTED,  /* a sector of another file, or of another place of the same one */
       QI_SIM_LOST_WRITE,   /* the whole file as it was before the last sync */
       QI_SIM_MISSING_FILE,
       QI_SIM_SWAPPED_FILES,
};

qi_sim *qi_sim_new(uint64_t seed, const qi_sim_knobs *knobs); /* knobs may be NULL */
void qi_sim_free(qi_sim *sim);

/* The disk as qi_store_open_capsule() takes it: valid as long as the disk is. The path is "/". With
 * options.worker no thread is started: qi_store_tick does its work. */
const void *qi_sim_capsule(qi_sim *sim);

/* Copies that nobody has open, to be freed like any other. After a power cut: what the medium kept,
 * decided by the seed. After a kill: everything; what was not synced may still be lost in a power
 * cut. NULL: no memory. */
qi_sim *qi_sim_crash(qi_sim *sim, uint64_t seed, int mode);
qi_sim *qi_sim_kill(qi_sim *sim);
/* The same in the middle of a call: before the n-th change (1: the next write, sync, rename ...) a
 * copy is put aside, and the run goes on. qi_sim_taken gives it out, once; NULL: it has not come to
 * that. n == 0: not any more. */
void qi_sim_crash_at(qi_sim *sim, uint64_t n, uint64_t seed, int mode);
qi_sim *qi_sim_taken(qi_sim *sim);

/* The n-th call from now on (1: the next) fails, and with `sticky` all that follow. kind 0: none
 * fails any more. */
void qi_sim_fault(qi_sim *sim, uint64_t n, int kind, bool sticky);
uint64_t qi_sim_calls(const qi_sim *sim); /* that could have failed, ever */
uint64_t qi_sim_changes(
    const qi_sim *sim); /* writes, syncs, renames ..., ever: what qi_sim_crash_at counts */

/* Damages one file that nobody has open, chosen by the seed among those whose path contains `where`
 * ("": all), and says in `text` what it did. Returns 0, or QI_E_MISSING if there is nothing to
 * damage in that way. */
int qi_sim_damage(qi_sim *sim, int kind, uint64_t seed, const char *where, char *text, size_t room);

/* Others take all the space that is left: from now on nothing may grow. */
void qi_sim_fill(qi_sim *sim);
void qi_sim_advance(qi_sim *sim, uint64_t us); /* both clocks */
void qi_sim_set_wall(qi_sim *sim, uint64_t us);

/* The index-th file of a walk over the whole disk: its path and bytes as a process sees them now
 * (valid until the next call). Returns QI_EMPTY behind the last. */
int qi_sim_file(qi_sim *sim, uint32_t index, char *path, size_t room, const void **bytes,
                uint64_t *size);
/* cffi: end */

/* sim_store.c, for programs in C that have the engine and the disk in one. The engine on the disk;
 * and the ReqId that the next message of that lane gets, if nothing comes between. */
int qi_store_open_sim(qi_sim *sim, const qi_options *options, qi_store **store);
uint64_t qi_sim_next_id(qi_queue *queue, uint32_t lane);

#endif
