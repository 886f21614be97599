/* cursor.h - a place in bytes that somebody else wrote. */
#ifndef QI_CURSOR_H
#define QI_CURSOR_H

#include <stddef.h>
#include <stdint.h>

struct cursor {
    const uint8_t *data;
    size_t size;
    size_t pos; /* never beyond size */
};

static inline size_t left(const struct cursor *at) {
    return at->size - at->pos;
}

#endif
