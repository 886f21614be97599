/* commits_private.h - what the files of commits/ share. */
#ifndef QI_COMMITS_PRIVATE_H
#define QI_COMMITS_PRIVATE_H

#include <stdint.h>
#include <stdio.h>

#include "commits/commits.h"

#define QI_LOG_MORE (UINT64_C(1) << 20) /* address space behind the size at which a log is full */

struct qi_log_name {
    char text[32];
};

static inline struct qi_log_name qi_log_name(uint64_t number) {
    struct qi_log_name name;
    snprintf(name.text, sizeof name.text, "%llu.log", (unsigned long long)number);
    return name;
}

/* Notes which bytes of a queue a COPY has: `size` bytes at `at` in the frame's payload, which are
 * all of it or a part of a TRANSACTION. Returns 0, QI_EMPTY if they are of another kind, or the
 * error. */
bool qi_is_copy(const uint8_t *payload, uint32_t size);
int qi_copies_take(struct qi_commits *commits, struct qi_commit_log *log,
                   const struct qi_frame *frame, uint32_t at, uint32_t size);

#endif
