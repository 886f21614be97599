/* cursor.h - a place in bytes that somebody else wrote, and passing over Erlang terms there whose
 * shape is known.
 *
 * Each function that passes what it names returns true, or returns false; the cursor may have moved
 * then. A length is compared with what is left before it is used.
 */
#ifndef QI_CURSOR_H
#define QI_CURSOR_H

#include "base/base.h"
#include "foreign/foreign.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cursor {
    const uint8_t *data;
    size_t size;
    size_t pos; /* never beyond size */
};

static inline size_t left(const struct cursor *at) {
    return at->size - at->pos;
}

enum { VALUES_MAX = 1000000 };

static inline bool byte_is(struct cursor *at, uint8_t wanted) {
    if (!left(at) || at->data[at->pos] != wanted)
        return false;
    at->pos++;
    return true;
}

static inline bool tuple(struct cursor *at, uint8_t arity) {
    if (byte_is(at, 'h'))
        return byte_is(at, arity);
    if (!byte_is(at, 'i') || left(at) < 4 || qi_get32(at->data + at->pos) != arity)
        return false;
    at->pos += 4;
    return true;
}

/* Passes an atom if it is this one. */
static inline bool atom(struct cursor *at, const char *name) {
    if (!left(at))
        return false;
    size_t length = strlen(name);
    uint8_t tag = at->data[at->pos];
    size_t head = tag == 'd' || tag == 'v' ? 3 : tag == 's' || tag == 'w' ? 2 : 0;
    if (!head || left(at) < head + length)
        return false;
    const uint8_t *p = at->data + at->pos;
    size_t told = head == 3 ? qi_get16(p + 1) : p[1];
    if (told != length || memcmp(p + head, name, length) != 0)
        return false;
    at->pos += head + length;
    return true;
}

static inline bool binary(struct cursor *at, uint32_t *start, uint32_t *size) {
    if (!byte_is(at, 'm') || left(at) < 4)
        return false;
    uint32_t told = qi_get32(at->data + at->pos);
    at->pos += 4;
    if (left(at) < told)
        return false;
    *start = (uint32_t)at->pos;
    *size = told;
    at->pos += told;
    return true;
}

/* A proper list of binaries: where the first one is, and how many. */
static inline bool binaries(struct cursor *at, uint32_t *start, uint32_t *size, uint32_t *count) {
    *start = *size = *count = 0;
    if (byte_is(at, 'j'))
        return true;
    if (!byte_is(at, 'l') || left(at) < 4)
        return false;
    *count = qi_get32(at->data + at->pos);
    at->pos += 4;
    for (uint32_t i = 0; i < *count; i++) {
        uint32_t ignored, also_ignored;
        if (!(i == 0 ? binary(at, start, size) : binary(at, &ignored, &also_ignored)))
            return false;
    }
    return byte_is(at, 'j');
}

/* Passes any value. */
static inline bool value(struct cursor *at) {
    return qi_terms(at->data, at->size, &at->pos, QI_TERM_DEPTH_MAX, VALUES_MAX, NULL, 0) > 0;
}

#endif
