/* flush.h - what a flush carries: a copy of the dirty part of each segment, taken when the journals change places. */
#ifndef QI_FLUSH_H
#define QI_FLUSH_H

#include "store.h"

/* The maps of a copy, one after the other; the first four are news. */
enum qi_flush_map {
    QI_FLUSH_JPUB,
    QI_FLUSH_JDEL,
    QI_FLUSH_JACK,
    QI_FLUSH_JCOUNT,
    QI_FLUSH_NEWS, /* so many */
    QI_FLUSH_DEL = QI_FLUSH_NEWS,
    QI_FLUSH_ACK,
    QI_FLUSH_TRANSIENT,
    QI_FLUSH_PUB,
    QI_FLUSH_MAPS
};

struct qi_flush_segment {
    uint64_t number;
    uint64_t epoch;      /* of the flush that created the file */
    uint32_t length;     /* durable bytes before */
    uint32_t new_length; /* and after */
    uint32_t unacked, transient, lost;
    bool alt; /* which of its two files, before */
    uint8_t *
        old; /* its bytes: the batch is the whole segment, and goes to the other file; NULL: it is appended */
    uint64_t *maps;   /* QI_FLUSH_MAPS bitmaps; loc, placed and delivered lie behind them */
    uint32_t *loc;    /* in the old journal, or in old */
    uint32_t *placed; /* in the segment file, once written: a flush that failed may be run again */
    uint16_t *delivered;
    struct qi_file_use *uses;
    uint32_t uses_count;
};

static inline const uint64_t *qi_flush_map(const struct qi_flush_segment *segment,
                                           enum qi_flush_map map, uint32_t words) {
    return segment->maps + (size_t)map * words;
}

struct qi_flush {
    uint64_t epoch; /* of the journal that is being emptied */
    struct qi_flush_segment *segments;
    uint32_t count;
};

#endif
