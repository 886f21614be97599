/* error.c - what went wrong, and with which message, told to the thread that asked. */
#define _POSIX_C_SOURCE 200809L
#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_text[512];
static _Thread_local int64_t last_req_id = -1;
static _Thread_local bool last_is_link, last_is_crowded;

/* The text before may be one of the arguments. */
int qi_fail(int code, const char *format, ...) {
    char text[sizeof last_text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(last_text, text, sizeof text);
    last_req_id = -1;
    last_is_link = last_is_crowded = false;
    return code;
}

int qi_fail_damaged(uint64_t req_id, const char *is) {
    qi_fail(QI_E_CORRUPT, "message %llu %s: %s", (unsigned long long)req_id, is, last_text);
    last_req_id = (int64_t)req_id;
    return QI_E_CORRUPT;
}

int qi_fail_changed(const char *file, const char *queue) {
    return qi_fail(
        QI_E_CORRUPT,
        "%s of queue %.200s holds other bytes than before: another process wrote into it", file,
        queue);
}

int qi_fail_disk(int negative_errno, const char *doing, const char *name) {
    int number = -negative_errno;
    char reason[128] = "unknown error";
    if (number == ELOOP) {
        qi_fail(QI_E_IO,
                "%s %s: it is a symbolic link, which is not followed, and nothing was changed; "
                "move what it points to back to this place, or mount it there",
                doing, name);
        last_is_link = true;
        return QI_E_IO;
    }
    if (number == QI_STORE_HAS_FAILED)
        return qi_fail(QI_E_FAILED,
                       "%s %.200s: an earlier write or sync of this call failed: what "
                       "was not confirmed may be lost; close and reopen the store",
                       doing, name);
    if (strerror_r(number, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", number);
    int code = qi_is_disk_full(-number) ? QI_E_FULL : number == ENOMEM ? QI_E_MEMORY : QI_E_IO;
    qi_fail(code, "%s %.200s: %s (errno %d)", doing, name, reason, number);
    last_is_crowded = number == EMFILE || number == ENFILE || number == ENOMEM;
    return code;
}

bool qi_is_disk_full(int negative_errno) {
    return negative_errno == -ENOSPC || negative_errno == -EDQUOT;
}

bool qi_is_of_the_disk(int negative_errno) {
    return negative_errno == -EIO || negative_errno == -ENOMEM || negative_errno == -EMFILE ||
           negative_errno == -ENFILE || negative_errno == -ELOOP || negative_errno == -EINTR;
}

const char *qi_error_text(void) {
    return last_text;
}

bool qi_error_is_link(void) {
    return last_is_link;
}

bool qi_error_is_crowded(void) {
    return last_is_crowded;
}

int64_t qi_error_req_id(void) {
    return last_req_id;
}
