/* erlang_terms.h - what Python sees of the reader of Erlang's external term format. */
#ifndef QI_ERLANG_TERMS_H
#define QI_ERLANG_TERMS_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
enum {                   /* why bytes are no term */
       QI_TERM_CUT = -1, /* they end inside it; with more of them it may be whole */
       QI_TERM_TAG = -2, /* unknown tag */
       QI_TERM_DEEP = -3,
       QI_TERM_MANY = -4, /* more values, or bytes, than allowed */
       QI_TERM_NUMBER =
           -5, /* a float that is no number; a big integer whose sign is neither 0 nor 1 */
       QI_TERM_ATOM = -6, /* not UTF-8; or something else where an atom must stand */
       QI_TERM_SIZE =
           -7, /* a fun below its head; a bit string whose last byte has no bits, or more than 8 */
};
enum {
    QI_TERM_DEPTH_MAX = 512,
    QI_TERM_BYTES_MAX = 0x40000000,
};

/* A value, before those inside it. An atom, binary or string has its characters from `start` on, a number its bytes (of a
 * big integer: the sign, then the digits), a pid, port, reference or fun all behind its tag. Of a container `size` counts
 * the values in it: of a map keys and values, of a list its tail, too. */
typedef struct {
    uint32_t start;
    uint32_t size;
    uint8_t tag;
} qi_term;

/* Reads the term at *pos, which has no version byte, and sets *pos behind it; after an error to where that is. Returns how
 * many values it has, of which the first `room` are put to `terms`. Linear in the term's bytes, whatever they are; no
 * allocation. Equal keys in a map, and a list as the tail of a list, are the caller's to find. */
int64_t qi_terms(const void *data, size_t size, size_t *pos, uint32_t depth_max,
                 uint64_t values_max, qi_term *terms, size_t room);
/* cffi: end */

#endif
