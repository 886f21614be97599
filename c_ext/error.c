/* error.c - what went wrong, and with which message, told to the thread that asked. */
#define _POSIX_C_SOURCE 200809L
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_text[512];
static _Thread_local int64_t last_req_id = -1;

/* The text before may be one of the arguments. */
int qi_fail(int code, const char *format, ...) {
    char text[sizeof last_text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(last_text, text, sizeof text);
    last_req_id = -1;
    return code;
}

int qi_fail_damaged(uint64_t req_id, const char *is) {
    qi_fail(QI_E_CORRUPT, "message %llu %s: %s", (unsigned long long)req_id, is, last_text);
    last_req_id = (int64_t)req_id;
    return QI_E_CORRUPT;
}

int qi_fail_disk(int negative_errno, const char *doing, const char *name) {
    int number = -negative_errno;
    char reason[128] = "unknown error";
    if (strerror_r(number, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", number);
    int code = number == ENOSPC || number == EDQUOT ? QI_E_FULL
               : number == ENOMEM                   ? QI_E_MEMORY
                                                    : QI_E_IO;
    return qi_fail(code, "%s %s: %s (errno %d)", doing, name, reason, number);
}

bool qi_is_of_the_disk(int negative_errno) {
    return negative_errno == -EIO || negative_errno == -ENOMEM || negative_errno == -EMFILE ||
           negative_errno == -ENFILE;
}

const char *qi_error_text(void) {
    return last_text;
}

int64_t qi_error_req_id(void) {
    return last_req_id;
}
