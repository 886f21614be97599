/* journal.h - journals: frames at the tail, what they say of the queue, and files without a store.
 *
 * The truth about recent changes: one of a queue's two journal files.
 *
 * A queue owns two files, journal.jif (even epochs) and journal.alt (odd ones), and writes them in
 * turn. The one with the highest epoch is appended to; the other holds the epoch before while that
 * is flushed into the segments, and is free afterwards, to be recycled (its pages are in memory
 * already). Because no file is ever renamed or replaced, there is no moment without a valid journal
 * and no directory sync on the way; stale bytes of an older epoch can never pass as valid, because
 * the epoch is in every frame's checksum.
 *
 * Layout: two copies of the header (a bad sector takes one), a MANIFEST frame, then frames as they
 * come. Eight zero bytes follow the last frame, so that a clean end is told apart from a torn one.
 * Behind a sync comes a MARK, with the next append or the end of a group commit: "below this offset
 * everything was durable". A bad frame with a MARK behind it that covers it is damage; one without
 * is a torn tail.
 */
#ifndef QI_JOURNAL_H
#define QI_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "disk/disk.h"

struct qi_disk;
struct qi_frame;

/* ---- journal ---- */

#define QI_FIRST_EPOCH 2u /* of a new queue */

struct qi_journal {
    struct qi_tape tape; /* file == -1: closed */
    uint64_t epoch;
    uint32_t seed;
    uint32_t version; /* of the format that it was begun in, as its header says */
    uint64_t tail;    /* offset of the next frame */
    uint64_t synced;  /* bytes below this are durable, in this file or in a commit log */
    uint64_t settled; /* bytes below this are durable in this file */
    uint64_t
        copied; /* bytes below this a commit log has, too; with its next sync they are durable */
    uint64_t covered;      /* a commit log has bytes up to here, as of the recovery; 0: none */
    uint64_t marked;       /* what the last MARK said */
    uint64_t mark_time_us; /* wall clock of the sync that `synced` comes from */
    uint64_t moment_us;    /* of the last MOMENT of this session; 0: there is none */
    uint64_t drain_room;   /* of the file: publishes leave it to deliveries and acks */
    uint64_t keep_free;    /* disk space that publishes leave to acks and flushes */
    bool ended;            /* its last frame is a CLOSE: a SESSION comes before any other frame */
    bool in_doubt;         /* a frame that was refused could not be taken back: it may be there */
    bool cold;             /* its file was opened again: what is in it was not loaded since */
    bool unproven;     /* its file was closed, with bytes that were not synced (durable/files.c) */
    const int *failed; /* the store's: once it is set, nothing is appended (H13); NULL: no store */
};

/* Bytes below that are durable, or will be with the next sync of the commit log. */
static inline uint64_t qi_journal_logged(const struct qi_journal *journal) {
    return journal->copied > journal->synced ? journal->copied : journal->synced;
}

const char *qi_journal_name(uint64_t epoch);

/* Begins an epoch in an open tape that holds nothing of value: writes both copies of the header.
 * The caller then appends the MANIFEST. */
int qi_journal_begin(struct qi_journal *journal, const uint8_t *identity, uint64_t epoch,
                     uint32_t version, uint64_t now_us);

/* Reads the header of an open tape. True if one copy is valid; sets the epoch and journal->version.
 * `damaged`: the other copy holds neither a header nor zeros. The caller decides whether it knows
 * that version. */
bool qi_journal_read_header(struct qi_journal *journal, const uint8_t *identity, uint64_t *epoch,
                            bool *damaged);
/* Finds the highest offset that a MARK or CLOSE states as durable (0: there is none). Searches back
 * from the end of the file and loads what it searches, down to *from. 0 or -errno. */
int qi_journal_last_mark(struct qi_journal *journal, uint64_t *mark, uint64_t *from);
/* The end of the run of valid frames that begins at `offset`. Those bytes must be loaded. */
uint64_t qi_journal_walk_from(const struct qi_journal *journal, uint64_t offset);
/* 1 if there are only zeros from `end` on, 0 if not, or -errno. Loads what it reads, up to the
 * first piece with other bytes. */
int qi_journal_ends_with_zeros(struct qi_journal *journal, uint64_t end);
/* Wipes the headers of a journal whose epoch is flushed. Otherwise this journal would pass for the
 * current one if both headers of that were damaged later. */
int qi_journal_retire(struct qi_journal *journal);
/* The same for a journal that is kept as history: it gets another magic instead of zeros. */
int qi_journal_put_away(struct qi_journal *journal);
/* Writes the second copy of the header if recovery found only one, because a power cut came between
 * them (H6). */
int qi_journal_mend(struct qi_journal *journal, const uint8_t *identity);
void qi_journal_use(struct qi_journal *journal, const uint8_t *identity, uint64_t epoch);

/* Makes room for a frame with that payload and sets *at to where the payload goes. If there was a
 * sync since the last MARK, appends a MARK first; nothing else changes before qi_journal_append. An
 * `urgent` frame (ack, flush) may use the space that publishes must leave free. 0 or -errno. */
int qi_journal_room(struct qi_journal *journal, uint64_t payload, bool urgent, uint8_t **at);
/* Appends a MARK if more is durable than the last MARK states. Without room it is left out, since a
 * MARK only helps. 0 or -errno. */
int qi_journal_mark(struct qi_journal *journal);

/* What is published from now on was published at this time, up to QI_MOMENT_US before it really
 * was: appends a MOMENT if the last one says something else. 0 or -errno. */
#define QI_MOMENT_US 1000u
int qi_journal_moment_new(struct qi_journal *journal, uint64_t now_us);
static inline int qi_journal_moment(struct qi_journal *journal, uint64_t now_us) {
    return __builtin_expect(now_us - journal->moment_us < QI_MOMENT_US, 1)
               ? 0
               : qi_journal_moment_new(journal, now_us); /* also if the clock was set back */
}
/* The time of a MOMENT; UINT64_MAX: the frame is none. */
uint64_t qi_read_moment(const struct qi_frame *frame);

/* Loads a journal that was opened again, up to its tail. Called before any of it is read. 0 or
 * -errno. */
int qi_journal_load_cold(struct qi_journal *journal);
static inline int qi_journal_warm(struct qi_journal *journal) {
    return __builtin_expect(journal->cold, 0) ? qi_journal_load_cold(journal) : 0;
}

/* Seals the frame whose payload was written at qi_journal_room's *at. On an error the journal is
 * unchanged. -QI_STORE_HAS_FAILED: the store has failed, perhaps since the caller asked whether it
 * has. */
int qi_journal_append(struct qi_journal *journal, uint32_t type, uint32_t length);

/* Room that only the frames of an open and a close may use, so that a queue can be opened on a disk
 * that others have filled. */
#define QI_JOURNAL_SPARE 1024u

/* The size of the file after a cut at `end`: whole pages, with room for the zeros behind the end.
 */
static inline uint64_t qi_journal_size_cut_at(uint64_t end) {
    return (end + QI_JOURNAL_SPARE + QI_FRAME_HEADER + 4095) & ~UINT64_C(4095);
}

/* Writes zeros behind `end` and gives up the rest of the file. The file keeps whole pages. So a
 * size that is not whole pages shows that something else cut the file: no power cut leaves that. */
int qi_journal_cut(struct qi_journal *journal, uint64_t end);
/* The same, and keeps `room` bytes for acks if the disk has them. */
int qi_journal_cut_with_room(struct qi_journal *journal, uint64_t end, uint64_t room);

/* The same at the journal's own end, when nothing more will be appended. A file that is only a
 * little longer, with zeros there, stays as it is. */
int qi_journal_end_file(struct qi_journal *journal, uint64_t room);

/* Writes zeros behind `end`, durably, before anything is appended (H4): otherwise a power cut could
 * keep the append and lose the zeros, and frames behind a hole would come back. The file keeps its
 * size unless it is much longer, or has only zeros there already. */
int qi_journal_cut_tail(struct qi_journal *journal, uint64_t end);

#define QI_MARK_SIZE    (QI_FRAME_HEADER + 16u)
#define QI_MOMENT_FRAME (QI_FRAME_HEADER + QI_MOMENT_SIZE)

/* What a walk over the journal found. */
struct qi_scan {
    uint64_t end;        /* offset behind the last frame to keep */
    uint64_t torn_bytes; /* 0, or bytes behind `end` that were cut as a torn tail */
    uint64_t damaged;    /* frames or gaps below a MARK that are bad: isolated, the rest is kept */
    uint64_t damaged_bytes;
    uint64_t first_damage; /* offset */
    uint64_t mark;         /* bytes below it were durable, by the last MARK */
    uint64_t time_us;      /* latest MARK's or CLOSE's clock */
    uint64_t manifest;     /* offset of the last MANIFEST frame, 0: none */
    uint64_t session;      /* of the last MANIFEST or SESSION frame */
    bool closed;           /* the last frame is a CLOSE */
    uint64_t next;         /* ReqId, by that */
    bool changed;     /* a frame that was checked is not there any more: another process wrote */
    bool cut_short;   /* the file ends where zeros should follow, within a page: somebody cut it */
    uint64_t effort;  /* what may still be spent on searching behind damage */
    uint32_t skipped; /* extended frames of kinds that are not known here, and may be skipped */
    uint64_t refused; /* offset of the first one of a kind that must not be; 0: there is none */
    uint32_t refused_kind;
    uint32_t lowest_body; /* message file that records name which no MARK covers, by the replay */
};

/* Checks each frame once and finds the end, as if the file had at most `size` bytes. Cost: one
 * checksum over these bytes. */
void qi_journal_scan(const struct qi_journal *journal, uint64_t size, struct qi_scan *scan);
/* medium.c: the same for the whole of a file that was synced, and of which only the header was read
 * so far. Bytes behind the last MARK are read from the medium. 0 or -errno. */
int qi_journal_scan_medium(struct qi_journal *journal, struct qi_scan *scan);
/* The same for a journal whose first frame was durable and is not valid: that is damage, not a torn
 * tail. */
void qi_journal_scan_behind(const struct qi_journal *journal, struct qi_scan *scan);

/* The next valid frame at or behind *offset and below end, stepping over damage that the scan
 * isolated; moves *offset behind it. False at the end, or if the file was changed since the scan
 * (scan->changed). Frames were checked by the scan, but are checked again only where damage was
 * found. */
bool qi_journal_next(const struct qi_journal *journal, struct qi_scan *scan, uint64_t *offset,
                     struct qi_frame *frame);

/* Checks that the file has the valid frames between two offsets, for a journal that was opened
 * again. 0 or -errno. */
int qi_files_prove(struct qi_journal *journal, const uint8_t *identity, uint64_t from, uint64_t to);

/* ---- control ---- */

/* True for a readable CLOSE; sets the next ReqId. */
bool qi_read_close(const struct qi_frame *frame, uint64_t *next);

/* MANIFEST, SESSION and CLOSE frames. */
struct qi_manifest {
    uint64_t flushed_epoch, session, floor, reserved;
    uint64_t previous_tail; /* of the epoch before: its true end; 0 if that is flushed */
    uint32_t count;
    const uint8_t *segments; /* count times QI_MANIFEST_SEGMENT bytes */
};
bool qi_read_manifest(const struct qi_frame *frame, struct qi_manifest *manifest);
bool qi_read_session(const struct qi_frame *frame, uint64_t *session, uint64_t *floor,
                     uint64_t *reserved);

#define QI_LANE_ROWS 1u

/* ---- walk ---- */

/* From frame to frame through the raw bytes of a journal or a segment file. No I/O, no allocation.
 *
 * For whoever looks at files without a store: columns.c. Checksums are checked where the file
 * itself says with what: both headers carry identity and epoch.
 */

struct qi_walk {
    const uint8_t *bytes;
    uint64_t size;
    bool journal;     /* else a segment */
    bool headless;    /* its header is damaged: number and entries are not known */
    uint32_t version; /* of the format, as its whole header says; 0: it has none */
    uint64_t number;  /* of a segment */
    uint32_t entries; /* of a segment, as its header says */
    uint32_t seed;
    uint64_t start; /* of the first frame */
};

/* False: the bytes are neither a journal nor a segment, the header is damaged, or the format is
 * newer (walk->version says which). */
bool qi_walk_begin(struct qi_walk *walk, const void *bytes, uint64_t size);
/* The error that says why qi_walk_begin refused. */
int qi_walk_refused(const struct qi_walk *walk);
/* Begins without a valid header: looks for a seed with which two frames in a row are valid.
 * O(size). */
bool qi_walk_begin_headless(struct qi_walk *walk);

/* Reads the frame at `at`. `inside` is how much of the frame was read before. If it is not 0, the
 * checksum was verified then, and is not verified again: a frame may hold a million records. */
enum qi_frame_state qi_walk_frame(const struct qi_walk *walk, uint64_t at, uint64_t inside,
                                  struct qi_frame *frame);

/* ---- index_files ---- */

/* Reads journals and segments as bytes without opening the store, for callers that read thousands
 * of stores. */

/* qi_index_files_new on any disk. The disk must outlive the result. */
qi_index_files *qi_index_files_new_on(struct qi_disk *disk);

#endif
