/* flips.h - what one flipped bit, one bad sector or one missing log of a synced image costs.
 *
 * A program is played, everything is synced (or the store is closed), and the files are damaged at
 * one place, anywhere. What is read then has the right bytes or is told; what is missing, back or
 * changed is told; and the rest is served.
 */
#ifndef FLIPS_H
#define FLIPS_H

#include "proof/explore/explore.h"

/* How far the damage of one place reached. */
enum reach {
    REACH_NOTHING,
    REACH_MESSAGE,
    REACH_FRAME,
    REACH_MORE,
    REACH_QUEUE,
    REACH_STORE,
    REACHES
};

#define FLIPS_GONE 0

struct flips {
    struct explorer *explorer;
    uint64_t each; /* damaged copies of one program's image */
    /* By kind: QI_SIM_BIT_FLIP, QI_SIM_ZERO_SECTOR, QI_SIM_STALE_SECTOR; and FLIPS_GONE: a commit
     * log or the catalog was removed. */
    uint64_t tried[4], silent[4], wrong[4], reach[4][REACHES];
    uint64_t most_lost[4]; /* messages, by one place; of queues that opened */
    char what[200];        /* the last damage */
};

/* False: a finding. Bits that flip are never silent; a sector of a journal that is gone or old can
 * be (ARCHITECTURE). */
bool flips_program(struct flips *flips, const struct program *program, struct verdict *verdict);

#endif
