/* flush.h - what a flush carries: a copy of the dirty part of each segment, taken when the journals change places. */
#ifndef QI_FLUSH_H
#define QI_FLUSH_H

#include "store.h"

#define QI_FLUSH_MAPS 8

struct qi_flush_segment {
    uint64_t number;
    uint32_t length;     /* durable bytes before */
    uint32_t new_length; /* and after */
    uint32_t unacked, transient;
    bool alt; /* which of its two files, before */
    uint8_t *
        old; /* its bytes: the batch is the whole segment, and goes to the other file; NULL: it is appended */
    uint64_t *
        maps; /* jpub, jdel, jack, jcount, del, ack, transient, pub: one after the other; then loc and delivered */
    uint32_t *loc;    /* in the old journal, or in old */
    uint32_t *placed; /* in the segment file, once written: a flush that failed may be run again */
    uint16_t *delivered;
    struct qi_file_use *uses;
    uint32_t uses_count;
};

struct qi_flush {
    uint64_t epoch; /* of the journal that is being emptied */
    struct qi_flush_segment *segments;
    uint32_t count;
};

#endif
