/* segment.h - the truth about everything older: 16384 ReqIds, their maps in memory and their file, N.idx or N.alt.
 *
 * A segment in memory, three messages published, the first acked, the second delivered and flushed:
 *
 *     slot      0 1 2 3 ...
 *     pub       1 1 1 0        published
 *     del       1 1 0 0        delivered at least once
 *     ack       1 0 0 0        acked: together the three monotone bits of rule H3
 *     out       0 1 0 0        delivered by this process and not yet acked: never on disk
 *     jpub      0 0 1 0        of pub, del, ack: what stands in the journal only (dirty)
 *     unacked = 2              popcount(pub & ~ack), exact at any time, also while the maps are not in memory
 *
 * Only segments that somebody uses have their maps in memory ("hot"); a cold one costs sizeof(struct qi_segment). The maps
 * are kept in pieces of 64 slots, and only the pieces in which something happened are there, so that a segment costs what
 * is in it: 0.7 KB with one message, 90 KB when it is full.
 *
 *     hot -> blocks[slot / 1024] -> pieces[slot / 64 % 16] -> pub del ack ... of 64 slots, one word each
 *                  |                      `-- qi_no_slots     the same for all that are not there: zeros, never written
 *                  `-- sixteen times qi_no_slots
 */
#ifndef QI_SEGMENT_H
#define QI_SEGMENT_H

#include "codec.h"

struct qi_queue;

/* Where a publish record stands: 30 bits of offset and 2 bits of file. */
#define QI_LOC_SEGMENT      0u
#define QI_LOC_JOURNAL_EVEN (1u << 30)
#define QI_LOC_JOURNAL_ODD  (2u << 30)
#define QI_LOC_FILE         (3u << 30)
#define QI_LOC_OFFSET_MAX   ((1u << 30) - 1)

#define QI_BYTES_UNKNOWN UINT64_MAX

/* Live references of a segment to one message file. */
struct qi_file_use {
    uint32_t file;
    uint32_t count;
    uint64_t bytes;
};

/* 64 slots that follow each other: their bits, and where their publish records stand. */
struct qi_slots {
    uint64_t pub, del, ack, out;
    uint64_t jpub, jdel, jack;
    uint64_t jcount;    /* delivered again: the count has to reach the file */
    uint64_t jtime;     /* delayed, or no more: the time has to reach the file */
    uint64_t held;      /* waits for a time (timers.h); the cursor steps over it */
    uint64_t due;       /* of these, whose time has come */
    uint64_t stored;    /* body in the message store */
    uint64_t transient; /* not persistent */
    uint16_t *count; /* deliveries, for those delivered more than once; NULL while there are none */
    uint64_t *time;  /* of those that are held, or were; NULL while there are none */
    uint64_t *lease; /* until when those that are out are leased; 0: for ever */
    uint32_t *size;  /* headers and body; NULL: the queue is not measured (bytes.c) */
    uint32_t loc[64];
};

#define QI_BLOCK_PIECES 16u
#define QI_HOT_BLOCKS   16u /* 16384 slots */

struct qi_block {
    struct qi_slots *pieces[QI_BLOCK_PIECES];
};

struct qi_hot {
    struct qi_block *blocks[QI_HOT_BLOCKS];
    struct qi_file_use *uses;
    uint32_t uses_count, uses_room;
    uint8_t *
        old; /* the file's bytes, checked: the next flush writes the file anew (rewrite.c); or a byte
                     * of a file of which there is nothing */
    uint8_t
        *kept; /* the first bytes of its file, for reading anywhere in it; NULL: none are kept */
    uint32_t kept_length;
    uint32_t dirty;      /* changes since the last flush */
    uint32_t out_count;  /* bits set in out */
    uint32_t held_count; /* bits set in held */
    bool loaded;         /* the file's entries are in the maps */
    bool in_flush;       /* a running flush will report new locations */
    bool sized;          /* new pieces have sizes */
};

struct qi_segment {
    uint64_t number;
    struct qi_hot *hot;
    uint64_t epoch;     /* of the flush that created the file: in the seed of its frames */
    uint32_t length;    /* durable bytes of the file; 0: no file */
    uint32_t unacked;   /* published and not acked */
    uint32_t transient; /* of these, not persistent */
    uint32_t delayed;   /* of the unacked: held, and not due yet */
    uint32_t dead;      /* and: dead letters */
    uint64_t due_us;    /* no time in it is earlier; 0: nobody waits */
    uint64_t expiry_us; /* nothing in it expires before; 0: nothing does */
    uint64_t
        bytes; /* that wait in it; if the queue is not measured, as of the durable length, or unknown */
    uint64_t
        flushed_due; /* the same, and below: as of the durable length, what the MANIFEST says */
    uint16_t flushed_unacked, flushed_transient, flushed_delayed, flushed_dead;
    uint16_t lost;      /* could not be read: the MANIFEST goes on counting them as unacked */
    bool alt;           /* the file is N.alt: it was rewritten an odd number of times */
    bool counted;       /* its references to message files are in the store's account */
    bool expiry_unread; /* the file may have messages that expire before */
    bool expired_out;   /* what had expired at the last look, and was with a consumer */
};

/* Sorted by number; taken away mostly at the front, added mostly at the end. */
struct qi_segments {
    struct qi_segment *items;
    uint32_t start, count, room;
};

extern const struct qi_slots qi_no_slots;

/* Messages in it wait in the heap of those that are due (timers.h): its maps have to stay. */
static inline bool qi_has_due(const struct qi_segment *segment) {
    return segment->hot->held_count > segment->delayed + segment->dead;
}

/* The piece with that slot. It is qi_no_slots, which must not be written, unless qi_segment_room made it; for a slot
 * that was published it was made. */
static inline struct qi_slots *qi_slots_of(const struct qi_hot *hot, uint32_t slot) {
    return hot->blocks[slot / (64 * QI_BLOCK_PIECES)]->pieces[slot / 64 % QI_BLOCK_PIECES];
}

/* A slot's bit in a word of its piece. */
static inline bool qi_bit(uint64_t word, uint32_t slot) {
    return word >> (slot & 63) & 1;
}
static inline void qi_set_bit(uint64_t *word, uint32_t slot) {
    *word |= UINT64_C(1) << (slot & 63);
}
static inline void qi_clear_bit(uint64_t *word, uint32_t slot) {
    *word &= ~(UINT64_C(1) << (slot & 63));
}

/* What stands in the journal only. */
static inline uint64_t qi_news(const struct qi_slots *slots) {
    return slots->jpub | slots->jdel | slots->jack | slots->jcount | slots->jtime;
}

/* index < count. */
static inline struct qi_segment *qi_segment_nth(const struct qi_segments *segments,
                                                uint32_t index) {
    return segments->items + segments->start + index;
}
/* NULL if there is none with that number. */
struct qi_segment *qi_segment_find(struct qi_segments *segments, uint64_t number);
/* The same for one message after the other: mostly in the segment of the one before (NULL: there was none). */
static inline struct qi_segment *qi_segment_find_near(struct qi_segments *segments,
                                                      struct qi_segment *before, uint64_t number) {
    return before && before->number == number ? before : qi_segment_find(segments, number);
}
/* The first with that number or a higher one; NULL: none. */
struct qi_segment *qi_segment_from(struct qi_segments *segments, uint64_t number);
/* Found or made; NULL: no memory. Pointers into the table are valid until the next make or remove. */
struct qi_segment *qi_segment_make(struct qi_segments *segments, uint64_t number);
void qi_segment_remove(struct qi_segments *segments, uint64_t number);
void qi_segments_clear(struct qi_segments *segments);

/* Gives the segment maps (empty ones: of a file only qi_segment_load fills them in). 0 or QI_E_MEMORY. */
int qi_segment_heat(struct qi_segment *segment);
/* Memory for what is to happen in `count` slots from `slot` on of a hot segment: asked for before a record is appended
 * (H20). 0 or QI_E_MEMORY. */
int qi_segment_room(struct qi_segment *segment, uint32_t slot, uint32_t count);
void qi_segment_cool(struct qi_segment *segment);
/* Sizes for all pieces that a hot segment has and will have. 0 or QI_E_MEMORY. */
int qi_segment_size_room(struct qi_segment *segment);

/* segment_load.c: reads the file's entries into the maps, once. Damage is isolated frame by frame, reported in the store's findings and
 * the counters follow what was found. Cost: reads the file once, O(its size). */
int qi_segment_load(struct qi_queue *queue, struct qi_segment *segment);

/* So many living messages are in it, whatever was said before. */
void qi_segment_found(struct qi_queue *queue, struct qi_segment *segment, uint32_t unacked,
                      uint32_t transient);

/* expire.c: a message in it expires then (not 0). */
void qi_segment_expires(struct qi_queue *queue, struct qi_segment *segment, uint64_t expiry_us);

/* The three changes of state, after the journal has the record (H20). */
void qi_segment_publish(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                        uint32_t loc, bool transient);
void qi_segment_deliver(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
void qi_segment_ack(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

/* The same for `count` slots that follow each other and have nothing special, word by word: published for the first time;
 * or published and not acked before, with no body in the message store, not transient, not out. */
void qi_segment_publish_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count, uint32_t loc, uint32_t stride);
bool qi_segment_is_plain_range(const struct qi_segment *segment, uint32_t slot, uint32_t count);
void qi_segment_deliver_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count);
void qi_segment_ack_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                          uint32_t count);

/* Memory for the times, and for the leases, of 64 slots. 0 or QI_E_MEMORY. */
int qi_slots_time_room(struct qi_slots *slots);
int qi_slots_lease_room(struct qi_slots *slots);
/* Memory for the delivery counts of 64 slots; and: one more delivery of a slot that had one before. 0 or QI_E_MEMORY. */
int qi_slots_count_room(struct qi_slots *slots);
int qi_slots_count_again(struct qi_slots *slots, uint32_t slot);

/* Memory for the delivery count that qi_segment_deliver is going to need, if it is: asked for before a record is
 * appended (H20). */
static inline int qi_segment_count_room(const struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return __builtin_expect(!qi_bit(slots->del, slot), 1) ? 0 : qi_slots_count_room(slots);
}

/* References to message files. */
int qi_segment_use(struct qi_hot *hot, uint32_t file, int32_t count, int64_t bytes);

/* The publish record of a slot: its fields and the embedded bytes behind them. The pointer is valid until the next call
 * for this queue. */
int qi_segment_record(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                      const uint8_t **fields);

/* Whether qi_segment_record would find that record in memory, without reading a file. */
bool qi_segment_at_hand(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot);

/* The references of a cold segment, its bytes and its bound of expiry, from its last summary; reads one frame. 0 or an error; `uses`
 * is malloc'd. */
int qi_segment_summary(struct qi_queue *queue, struct qi_segment *segment,
                       struct qi_file_use **uses, uint32_t *count, uint32_t *transient);

/* The references of any segment, hot or cold; exact. Its bound of expiry is known then. `uses` is malloc'd. */
int qi_segment_uses(struct qi_queue *queue, struct qi_segment *segment, struct qi_file_use **uses,
                    uint32_t *count);
/* The same for who wants only what the summary says of the segment itself: its bytes, its bound of expiry. */
int qi_segment_read_summary(struct qi_queue *queue, struct qi_segment *segment);

/* What an open file has of the segment: in the queue's window, where its records will be wanted next, or mapped if it is
 * too big for that (then *bytes is not queue->window, and the caller unmaps *length bytes). */
int qi_segment_read(struct qi_queue *queue, const struct qi_segment *segment, int file,
                    uint8_t **bytes, uint32_t *length);

/* What was read of its file is not the file any more. */
void qi_segment_forget_file(struct qi_queue *queue, struct qi_segment *segment);

bool qi_segment_header_is_whole(const uint8_t *header);
/* Opens the file for reading and checks its header: a handle (>= 0) and the seed of its frames, or an error. */
int qi_segment_open(struct qi_queue *queue, const struct qi_segment *segment, uint32_t *seed);
void qi_segment_name(uint64_t number, bool alt, char name[32]);

#endif
