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

/* Fails with QI_E_NEWER: the log has a frame of a kind that must not be passed over. */
int qi_refuse_kind(const struct qi_commit_log *log, const char *what, uint32_t kind);
/* Notes which bytes of queues a COPY or TRANSACTION has. Returns 0, QI_EMPTY if the frame is of
 * another kind, or the error. */
int qi_copies_take(struct qi_commits *commits, struct qi_commit_log *log,
                   const struct qi_frame *frame);

#endif
