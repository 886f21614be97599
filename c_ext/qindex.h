/* What Python sees of the engine. build.py gives the text between the two marks to cffi, so that
 * nothing is declared twice. */
#ifndef QI_QINDEX_H
#define QI_QINDEX_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
/* Every call returns 0, a count or an id (>= 0), or one of these codes. qi_error_text() then says
 * more, to the same thread. */
enum {
    QI_EMPTY = -1,      /* nothing to get */
    QI_E_IO = -2,       /* the disk failed a call */
    QI_E_CORRUPT = -3,  /* damaged bytes */
    QI_E_LOCKED = -4,   /* another writer has the store */
    QI_E_FORMAT = -5,   /* another version or other settings */
    QI_E_FULL = -6,     /* disk full: nothing was changed */
    QI_E_FAILED = -7,   /* an earlier write or sync failed: only close is allowed */
    QI_E_CLOSED = -8,
    QI_E_READ_ONLY = -9,
    QI_E_UNKNOWN = -10, /* no such message, or not delivered */
    QI_E_ACKED = -11,   /* acked before */
    QI_E_ARGUMENT = -12,
    QI_E_MEMORY = -13,
    QI_E_FORKED = -14,  /* a handle of the parent process */
    QI_E_OUTCOME = -15, /* the sync failed: durable or not, nobody knows */
    QI_E_ROOM = -16,    /* the caller's buffer is too small; nothing was changed */
    QI_E_MISSING = -17, /* no such store or queue */
};
const char *qi_error_text(void);

uint32_t qi_crc32c(uint32_t crc, const void *bytes, size_t length);
uint32_t qi_crc32c_portable(uint32_t crc, const void *bytes, size_t length);
/* cffi: end */

#endif
