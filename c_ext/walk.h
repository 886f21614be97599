/* walk.h - from frame to frame through the raw bytes of a journal or a segment file. No I/O, no allocation.
 *
 * For whoever looks at files without a store: dump.c and columns.c. Checksums are checked where the file itself says
 * with what: both headers carry identity and epoch.
 */
#ifndef QI_WALK_H
#define QI_WALK_H

#include "frame.h"

struct qi_walk {
    const uint8_t *bytes;
    uint64_t size;
    bool journal;     /* else a segment */
    bool headless;    /* its header is damaged: number and entries are not known */
    uint64_t number;  /* of a segment */
    uint32_t entries; /* of a segment, as its header says */
    uint32_t seed;
    uint64_t start; /* of the first frame */
};

/* False: neither a journal nor a segment, or its header is damaged. */
bool qi_walk_begin(struct qi_walk *walk, const void *bytes, uint64_t size);
/* Then the frames may tell: with what checksum two of them in a row agree. O(size). */
bool qi_walk_begin_headless(struct qi_walk *walk);

/* The frame at `at`. `inside`: how much of it was read before; if that is not 0 its checksum was checked then, and is not
 * again: it may hold a million records. */
enum qi_frame_state qi_walk_frame(const struct qi_walk *walk, uint64_t at, uint64_t inside,
                                  struct qi_frame *frame);

#endif
