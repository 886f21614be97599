/* flush.h - what a flush carries: a copy of the dirty part of each segment, taken when the journals change places. */
#ifndef QI_FLUSH_H
#define QI_FLUSH_H

#include "store.h"

/* Where publish records stand: in the old journal, or in the file that is written anew; and, once they are written, in
 * the segment file: a flush that failed may be run again. */
struct qi_flush_places {
    uint32_t loc[64], placed[64];
};

/* The copy of 64 slots that have news. */
struct qi_flush_slots {
    uint32_t first; /* slot */
    uint64_t pub, del, ack, transient, held;
    uint64_t jpub, jdel, jack, jcount, jtime;
    struct qi_flush_places *places; /* NULL: no publish is written */
    uint64_t *time;                 /* NULL: none is held */
    uint16_t *delivered;            /* NULL: none more than once */
};

struct qi_flush_segment {
    uint64_t number;
    uint64_t epoch, new_epoch; /* of the flush that created the file, before and after */
    int file;                  /* written and not synced yet; -1: none */
    uint32_t length;           /* durable bytes before */
    uint32_t new_length;       /* and after */
    uint32_t unacked, transient, delayed, dead, lost;
    uint64_t due_us;    /* the earliest of those that are held; 0: none is */
    uint64_t expiry_us; /* nothing in it expires before; 0: nothing does */
    uint64_t bytes;     /* that wait in it: all of them, or those in the file before if `adds_up` */
    uint64_t new_bytes; /* and in the file after */
    bool adds_up;       /* the queue is not measured: the batch says what comes */
    bool all_held;      /* of a lane of delayed messages: what is ready has a time, too */
    bool alt;           /* which of its two files, before */
    uint8_t *
        old; /* its bytes: the batch is the whole segment, and goes to the other file; NULL: it is appended */
    struct qi_flush_slots *slots; /* their places and counts lie behind them */
    uint32_t slots_count;
    struct qi_file_use *uses;
    uint32_t uses_count;
};

static inline uint64_t qi_flush_news(const struct qi_flush_slots *slots) {
    return slots->jpub | slots->jdel | slots->jack | slots->jcount | slots->jtime;
}

struct qi_flush {
    uint64_t epoch; /* of the journal that is being emptied */
    struct qi_flush_segment *segments;
    uint32_t count;
    bool
        committed; /* a durable MANIFEST names what was written: it is not touched again, whatever fails behind it */
};

#endif
