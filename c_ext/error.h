/* error.h - codes and the text of this thread's last error (as errno: one per thread, no other state). */
#ifndef QI_ERROR_H
#define QI_ERROR_H

#include "qindex.h"

/* Sets the text and returns the code, so that `return qi_fail(...)` reads well. */
int qi_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says of which message the damage is that the last text tells: `is` stands between its ReqId and that text. Returns
 * QI_E_CORRUPT; qi_error_req_id() then gives the ReqId. */
int qi_fail_damaged(uint64_t req_id, const char *is);

/* The same for a failed call of the disk: ENOSPC and EDQUOT become QI_E_FULL, the rest QI_E_IO. */
int qi_fail_disk(int negative_errno, const char *doing, const char *name);

/* The disk or the system could not say what is there: no sign that anything is missing or damaged. (A link or a directory
 * in place of a file is another matter.) */
bool qi_is_of_the_disk(int negative_errno);

#endif
