/* erlang_terms.c - Erlang's external term format, bytes to a flat row of values.
 *
 * Rules of this file: no I/O; no allocation; no recursion, so that a hostile term cannot exhaust
 * the stack; a length is compared with what is left before it is used; every failure has a code and
 * a place. Atoms are checked to be UTF-8 and floats to be numbers, so that whoever builds values
 * from the row need not look again.
 */
#include "foreign/foreign.h"

#include "base/base.h"
#include "foreign/cursor.h"

#include <stdbool.h>
#include <string.h>

enum tag {
    FLOAT = 70,
    BIT_BINARY = 77,
    PID_NEW = 88,
    PORT_NEW = 89,
    REFERENCE_NEWER = 90,
    SMALL_INTEGER = 97,
    INTEGER = 98,
    FLOAT_TEXT = 99,
    ATOM_LATIN1 = 100,
    REFERENCE = 101,
    PORT = 102,
    PID = 103,
    SMALL_TUPLE = 104,
    LARGE_TUPLE = 105,
    NIL = 106,
    STRING = 107,
    LIST = 108,
    BINARY = 109,
    SMALL_BIG = 110,
    LARGE_BIG = 111,
    FUN = 112,
    EXPORT = 113,
    REFERENCE_NEW = 114,
    SMALL_ATOM_LATIN1 = 115,
    MAP = 116,
    ATOM_UTF8 = 118,
    SMALL_ATOM_UTF8 = 119,
    PORT_V4 = 120,
};

enum { FLOAT_TEXT_BYTES = 31 };

/* A count of `bytes` bytes; false if they are not there. */
static bool get_count(struct cursor *at, size_t bytes, uint32_t *count) {
    if (left(at) < bytes)
        return false;
    const uint8_t *p = at->data + at->pos;
    *count = bytes == 1 ? p[0] : bytes == 2 ? qi_get16(p) : qi_get32(p);
    at->pos += bytes;
    return true;
}

static int64_t take(struct cursor *at, qi_term *term, uint64_t size) {
    if (left(at) < size)
        return QI_TERM_CUT;
    term->start = (uint32_t)at->pos;
    term->size = (uint32_t)size;
    at->pos += size;
    return 0;
}

static int64_t take_counted(struct cursor *at, qi_term *term, size_t count_bytes) {
    uint32_t size;
    return get_count(at, count_bytes, &size) ? take(at, term, size) : QI_TERM_CUT;
}

/* How many bytes the character at p has, of `size`; 0 if it is none: too long, a surrogate, beyond
 * Unicode, cut. */
static size_t character(const uint8_t *p, size_t size) {
    if (p[0] < 0x80)
        return 1;
    size_t bytes = p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    if (!bytes || bytes > size)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    bool wrong = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
                 (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F);
    return wrong ? 0 : bytes;
}

bool qi_is_utf8(const uint8_t *p, size_t size) {
    while (size) {
        size_t bytes = character(p, size);
        if (!bytes)
            return false;
        p += bytes;
        size -= bytes;
    }
    return true;
}

static int64_t take_atom(struct cursor *at, qi_term *term) {
    uint8_t tag = term->tag;
    bool is_small = tag == SMALL_ATOM_LATIN1 || tag == SMALL_ATOM_UTF8;
    int64_t code = take_counted(at, term, is_small ? 1 : 2);
    if (code < 0 || tag == ATOM_LATIN1 || tag == SMALL_ATOM_LATIN1)
        return code;
    return qi_is_utf8(at->data + term->start, term->size) ? 0 : QI_TERM_ATOM;
}

static bool is_atom(uint8_t tag) {
    return tag == ATOM_LATIN1 || tag == SMALL_ATOM_LATIN1 || tag == ATOM_UTF8 ||
           tag == SMALL_ATOM_UTF8;
}

/* The atom that belongs to a pid or the like: its tag and characters. */
static int64_t pass_atom(struct cursor *at) {
    if (!left(at))
        return QI_TERM_CUT;
    qi_term atom = {.tag = at->data[at->pos]};
    if (!is_atom(atom.tag))
        return QI_TERM_ATOM;
    at->pos++;
    return take_atom(at, &atom);
}

/* `atoms` atoms and then `size` bytes: what a pid, port, reference or export is made of. */
static int64_t take_opaque(struct cursor *at, qi_term *term, int atoms, uint64_t size) {
    size_t start = at->pos;
    if (term->tag == REFERENCE_NEW || term->tag == REFERENCE_NEWER) {
        uint32_t words;
        if (!get_count(at, 2, &words))
            return QI_TERM_CUT;
        size += 4 * (uint64_t)words;
    }
    int64_t code = 0;
    for (int i = 0; i < atoms && code == 0; i++)
        code = pass_atom(at);
    if (code == 0)
        code = take(at, term, size);
    term->start = (uint32_t)start;
    term->size = (uint32_t)(at->pos - start);
    return code;
}

static int64_t take_big(struct cursor *at, qi_term *term, size_t count_bytes) {
    uint32_t digits;
    if (!get_count(at, count_bytes, &digits))
        return QI_TERM_CUT;
    int64_t code = take(at, term, 1 + (uint64_t)digits);
    return code == 0 && at->data[term->start] > 1 ? QI_TERM_NUMBER : code;
}

static int64_t take_float(struct cursor *at, qi_term *term) {
    int64_t code = take(at, term, 8);
    if (code < 0)
        return code;
    uint64_t bits = qi_get64(at->data + term->start);
    return (bits >> 52 & 0x7FF) == 0x7FF ? QI_TERM_NUMBER : 0; /* infinite, or no number */
}

static const uint8_t *digits(const uint8_t *p, const uint8_t *end) {
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* Spaces, sign, digits, point, digits, perhaps an exponent; then zeros up to 31 bytes: what "~.20e"
 * prints. */
static int64_t take_float_text(struct cursor *at, qi_term *term) {
    int64_t code = take(at, term, FLOAT_TEXT_BYTES);
    if (code < 0)
        return code;
    const uint8_t *p = at->data + term->start, *end = p + FLOAT_TEXT_BYTES, *from;
    while (p < end && *p == ' ')
        p++;
    p += p < end && (*p == '+' || *p == '-');
    p = digits(from = p, end);
    bool is_number = p > from && p < end && *p == '.';
    p = is_number ? digits(from = p + 1, end) : p;
    is_number = is_number && p > from;
    if (is_number && p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        p = digits(from = p, end);
        is_number = p > from;
    }
    while (p < end && *p == 0)
        p++;
    return is_number && p == end ? 0 : QI_TERM_NUMBER;
}

static int64_t take_bit_binary(struct cursor *at, qi_term *term) {
    uint32_t size;
    if (!get_count(at, 4, &size) || !left(at))
        return QI_TERM_CUT;
    uint8_t bits = at->data[at->pos++];
    return bits < 1 || bits > 8 ? QI_TERM_SIZE : take(at, term, size);
}

static int64_t take_fun(struct cursor *at, qi_term *term) {
    if (left(at) < 4)
        return QI_TERM_CUT;
    uint32_t size = qi_get32(at->data + at->pos); /* counts itself */
    return size < 4 ? QI_TERM_SIZE : take(at, term, size);
}

/* What is behind the tag of a value that holds no others. */
static int64_t take_scalar(struct cursor *at, qi_term *term) {
    switch (term->tag) {
    case SMALL_INTEGER:
        return take(at, term, 1);
    case INTEGER:
        return take(at, term, 4);
    case SMALL_BIG:
        return take_big(at, term, 1);
    case LARGE_BIG:
        return take_big(at, term, 4);
    case FLOAT:
        return take_float(at, term);
    case FLOAT_TEXT:
        return take_float_text(at, term);
    case NIL:
        return take(at, term, 0);
    case STRING:
        return take_counted(at, term, 2);
    case BINARY:
        return take_counted(at, term, 4);
    case BIT_BINARY:
        return take_bit_binary(at, term);
    case FUN:
        return take_fun(at, term);
    case EXPORT: /* module, function, and the arity as a small integer with its tag */
        return take_opaque(at, term, 2, 2);
    case PID_NEW:
    case PORT_V4:
        return take_opaque(at, term, 1, 12);
    case PORT_NEW:
        return take_opaque(at, term, 1, 8);
    case PID:
        return take_opaque(at, term, 1, 9);
    case PORT:
    case REFERENCE:
        return take_opaque(at, term, 1, 5);
    case REFERENCE_NEW:
        return take_opaque(at, term, 1, 1);
    case REFERENCE_NEWER:
        return take_opaque(at, term, 1, 4);
    default:
        return is_atom(term->tag) ? take_atom(at, term) : QI_TERM_TAG;
    }
}

static bool is_container(uint8_t tag) {
    return tag == SMALL_TUPLE || tag == LARGE_TUPLE || tag == LIST || tag == MAP;
}

static int64_t take_container(struct cursor *at, qi_term *term) {
    uint32_t count;
    if (!get_count(at, term->tag == SMALL_TUPLE ? 1 : 4, &count) || count > left(at))
        return QI_TERM_CUT; /* a value takes a byte at least, so a count beyond the end is a lie */
    term->start = (uint32_t)at->pos;
    term->size = term->tag == MAP ? 2 * count : term->tag == LIST ? count + 1 : count;
    return 0;
}

static int64_t fail(const struct cursor *at, size_t *pos, int64_t code) {
    *pos = at->pos;
    return code;
}

int64_t qi_terms(const void *data, size_t size, size_t *pos, uint32_t depth_max,
                 uint64_t values_max, qi_term *terms, size_t room) {
    uint32_t missing[QI_TERM_DEPTH_MAX + 1] = {
        1}; /* values that each container around still waits for */
    uint32_t depth = 0;
    uint64_t values = 0, characters = 0;
    struct cursor at = {data, size, *pos};
    if (size > QI_TERM_BYTES_MAX || depth_max > QI_TERM_DEPTH_MAX)
        return QI_TERM_MANY;
    if (at.pos > size)
        return QI_TERM_CUT;
    for (;;) {
        if (values + characters >= values_max)
            return fail(&at, pos, QI_TERM_MANY);
        if (!left(&at))
            return fail(&at, pos, QI_TERM_CUT);
        qi_term term = {.tag = at.data[at.pos]};
        size_t start = at.pos++;
        missing[depth]--;
        bool opens = is_container(term.tag);
        int64_t code = opens ? take_container(&at, &term) : take_scalar(&at, &term);
        if (code == 0 && opens) {
            if (depth == depth_max)
                code = QI_TERM_DEEP;
            else
                missing[++depth] = term.size;
        }
        if (code < 0) {
            at.pos = start;
            return fail(&at, pos, code);
        }
        if (values < room)
            terms[values] = term;
        values++;
        characters +=
            term.tag == STRING ? term.size : 0; /* each is a value of its own to the caller */
        while (missing[depth] == 0) {
            if (depth == 0) {
                *pos = at.pos;
                return (int64_t)values;
            }
            depth--;
        }
    }
}
