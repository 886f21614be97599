/* usual.h - the options of a store in these tests: everything small, so that a few messages reach
 * each edge. */
#ifndef USUAL_H
#define USUAL_H

#include <stdlib.h>

#include "qindex.h"

/* Directories of queues. */
#define A "0000000000000000000000000000000a"
#define B "0000000000000000000000000000000b"
#define C "0000000000000000000000000000000c"

/* QINDEX_TEST_FORMAT=2: new stores have that format. */
static inline uint32_t usual_format(void) {
    const char *text = getenv("QINDEX_TEST_FORMAT");
    return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

static inline qi_options usual(void) {
    return (qi_options){.segment_entries = 8,
                        .max_journal_entries = 24,
                        .max_journal_bytes = 9000,
                        .embed_below = 64,
                        .message_file_size = 4096,
                        .idle_us = 1000000,
                        .new_format = usual_format(),
                        .create = true};
}

#endif
