/* journal.h - the truth about recent changes: one of a queue's two journal files.
 *
 * A queue owns two files, journal.jif (even epochs) and journal.alt (odd ones), and writes them in turn. The one with
 * the highest epoch is appended to; the other holds the epoch before while that is flushed into the segments, and is
 * free afterwards, to be recycled (its pages are in memory already). Because no file is ever renamed or replaced, there
 * is no moment without a valid journal and no directory sync on the way; stale bytes of an older epoch can never pass
 * as valid, because the epoch is in every frame's checksum.
 *
 * Layout: two copies of the header (a bad sector takes one), a MANIFEST frame, then frames as they come. Eight zero
 * bytes follow the last frame, so that a clean end is told apart from a torn one. Behind a sync comes a MARK, with the next
 * append or the end of a group commit: "below this offset everything was durable". A bad frame with a MARK behind it that covers it is damage;
 * one without is a torn tail.
 */
#ifndef QI_JOURNAL_H
#define QI_JOURNAL_H

#include "frame.h"
#include "tape.h"

struct qi_journal {
    struct qi_tape tape; /* file == -1: closed */
    uint64_t epoch;
    uint32_t seed;
    uint64_t tail;         /* offset of the next frame */
    uint64_t synced;       /* bytes below this are durable */
    uint64_t marked;       /* what the last MARK said */
    uint64_t mark_time_us; /* wall clock of the sync that `synced` comes from */
    uint64_t keep_free;    /* disk space that publishes leave to acks and flushes */
};

const char *qi_journal_name(uint64_t epoch);

/* Begins an epoch in an open tape that holds nothing of value: header copies, then the caller appends the MANIFEST. */
int qi_journal_begin(struct qi_journal *journal, const uint8_t *identity, uint64_t epoch,
                     uint64_t now_us);

/* Reads the header of an open tape: true and the epoch if one copy is valid. `damaged` tells that the other
 * holds neither a header nor zeros. */
bool qi_journal_read_header(const struct qi_journal *journal, const uint8_t *identity,
                            uint64_t *epoch, bool *damaged);
/* The highest offset that a MARK or CLOSE says was durable, 0: none does; or -errno. Loads what it looks at, from the end of the
 * file down to the last one, to *from. */
int qi_journal_last_mark(struct qi_journal *journal, uint64_t *mark, uint64_t *from);
/* Where the valid frames end that begin there; what they are in is loaded. */
uint64_t qi_journal_walk_from(const struct qi_journal *journal, uint64_t offset);
/* 1: there are only zeros from `end` on; 0; or -errno. Loads what it looks at: up to the first piece with something else. */
int qi_journal_ends_with_zeros(struct qi_journal *journal, uint64_t end);
/* Wipes the headers of a journal whose epoch is flushed: if both copies of the current one were damaged later, this one
 * must not pass for the truth. */
int qi_journal_retire(struct qi_journal *journal);
/* The same for one that is kept as history: another magic instead of zeros. */
int qi_journal_put_away(struct qi_journal *journal);
/* Recovery found the header in one copy only (a power cut came between them): writes the other anew (H6). */
int qi_journal_mend(struct qi_journal *journal, const uint8_t *identity);
void qi_journal_use(struct qi_journal *journal, const uint8_t *identity, uint64_t epoch);

/* Makes room for a frame with that payload and says where the payload goes. If a sync came since the last MARK, appends
 * one first; but for that nothing is changed before _append. An `urgent` frame (ack, flush) may use the space that publishes must leave free. Returns 0 or -errno. */
int qi_journal_room(struct qi_journal *journal, uint64_t payload, bool urgent, uint8_t **at);
/* A MARK, if something is durable of which none has told. 0 or -errno; a MARK is a help, and may be left out. */
int qi_journal_mark(struct qi_journal *journal);

/* Seals the frame whose payload was written at `at`. On an error the journal is as it was before. */
int qi_journal_append(struct qi_journal *journal, uint32_t type, uint32_t length);

/* How much of the file a cut there keeps: whole pages, and in them the zeros behind the end. */
static inline uint64_t qi_journal_size_cut_at(uint64_t end) {
    return (end + QI_FRAME_HEADER + 4095) & ~UINT64_C(4095);
}

/* Zeros behind `end`, and what lies further behind is given up. The file keeps whole pages, so that a size that is none
 * says that somebody else cut it: no power cut leaves that. */
int qi_journal_cut(struct qi_journal *journal, uint64_t end);

/* Zeros behind `end`, durably, before anything is appended: frames behind a hole must not come back (H4), and a power cut could
 * keep the append without them. The file keeps its size if that is not much more; next time it does not, if they are all there. */
int qi_journal_cut_tail(struct qi_journal *journal, uint64_t end);

#define QI_MARK_SIZE (QI_FRAME_HEADER + 16u)

/* What a walk over the journal found. */
struct qi_journal_scan {
    uint64_t end;        /* offset behind the last frame to keep */
    uint64_t torn_bytes; /* 0, or bytes behind `end` that were cut as a torn tail */
    uint64_t damaged;    /* frames or gaps below a MARK that are bad: isolated, the rest is kept */
    uint64_t damaged_bytes;
    uint64_t first_damage; /* offset */
    uint64_t mark;         /* bytes below it were durable, by the last MARK */
    uint64_t time_us;      /* latest MARK's or CLOSE's clock */
    uint64_t manifest;     /* offset of the last MANIFEST frame, 0: none */
    bool closed;           /* the last frame is a CLOSE */
    uint64_t next;         /* ReqId, by that */
    bool cut_short;  /* the file ends where zeros should follow, within a page: somebody cut it */
    uint64_t effort; /* what may still be spent on searching behind damage */
    uint32_t lowest_body; /* message file that its records name, by the replay; UINT32_MAX: none */
};

/* state.c: the next ReqId, if this is a CLOSE that can be read. */
bool qi_read_close(const struct qi_frame *frame, uint64_t *next);

/* Checks every frame once and finds the end, as if the file had at most `size` bytes. Cost: one checksum over its bytes. */
void qi_journal_scan(const struct qi_journal *journal, uint64_t size, struct qi_journal_scan *scan);
/* The same for a journal whose first frame is not valid although it was durable: that is damage, not a torn tail. */
void qi_journal_scan_behind(const struct qi_journal *journal, struct qi_journal_scan *scan);

/* The next valid frame at or behind *offset and below end, stepping over damage that the scan isolated; moves *offset
 * behind it. Frames were checked by the scan, but are checked again only where damage was found. */
bool qi_journal_next(const struct qi_journal *journal, struct qi_journal_scan *scan,
                     uint64_t *offset, struct qi_frame *frame);

#endif
