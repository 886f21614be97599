/* sweep.h - every call that can fail fails: the n-th of a program, for all n, once and for ever.
 *
 * Calls of the disk with EIO and ENOSPC, and allocations. A run goes on to the first operation that
 * says so; its error has to fit. What a kill and a power cut would leave there is recovered without
 * faults and compared with the model. Then, with a fault that is for ever, everything else is
 * called; with one that came once, the rest of the program is played. In the end the store is
 * closed, and looked at again. Nothing may crash, hang, or stay open or allocated.
 */
#ifndef SWEEP_H
#define SWEEP_H

#include "proof/explore/explore.h"

struct sweep {
    struct explorer *explorer;
    struct fault fault;
    const struct fault *only; /* this one alone; NULL: all */
    /* Of all programs: calls that there were, and runs in which one failed. [kind][sticky] */
    uint64_t calls[FAULT_KINDS][2], failed[FAULT_KINDS][2];
    uint64_t refused; /* runs in which an operation said so: the others had no need of the call */
    uint64_t calls_of[OP_KINDS + 2]; /* of the disk, by operation, then open and close */
    void (*found)(struct sweep *sweep, const struct program *program,
                  const struct verdict *verdict);
    void (*begin)(void); /* before each run */
};

/* "eio:12:once"; false: something else. */
bool fault_read(const char *text, struct fault *fault);
void fault_write(const struct fault *fault, char *text, size_t room);
/* All faults of a program; the number of findings. */
uint32_t sweep_program(struct sweep *sweep, const struct program *program);

#endif
