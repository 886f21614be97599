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

/* Writes both copies of the header of a log or catalog. `header` has room for two pages. */
void qi_put_log_header(const struct qi_commits *commits, const char *magic, uint64_t number,
                       uint64_t now_us, uint8_t *header);
/* True for one copy of a log's header that is valid in itself. */
bool qi_log_header_is_whole(const uint8_t *header);
/* Reports the logs and the catalog that store.meta names and that are not there. */
void qi_logs_expect(struct qi_store *store);
/* The log was durable up to here, as store.meta or the next log says; 0: neither does. It says as
 * much as a MARK. */
uint64_t qi_log_end(const struct qi_store *store, uint64_t number);

#endif
