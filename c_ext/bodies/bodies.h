/* bodies.h - the message store: bodies that are too big to be embedded in the index.
 *
 * A message's id is its birthplace: file number, offset and a stamp that the stored frame repeats,
 * so no index of messages is kept in memory. Files roll at file_size_max; only the newest is
 * written (a tape), the others are immutable. Compaction copies the survivors of some files into
 * one new file, whose frames keep their MsgIds; a file's survivors all move together, so one small
 * table per birth file keeps old ids valid.
 *
 * Which messages are alive is not known here: the index is the only truth. The queues report each
 * reference that is added or removed (qi_messages_count), by birth file.
 *
 * Locking: every function is called with the store's lock held unless it says otherwise.
 */
#ifndef QI_BODIES_H
#define QI_BODIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "disk/disk.h"

struct qi_birth;
struct qi_birth_home;
struct qi_disk;
struct qi_gathered;

/* ---- messages ---- */

/* The size of a message and of its frame, from the id alone. */
static inline uint32_t qi_payload_length(struct qi_msg_id id) {
    return (uint32_t)(id.stamp >> 32);
}
static inline uint32_t qi_frame_bytes(struct qi_msg_id id) {
    return qi_payload_length(id) + QI_MESSAGE_OVERHEAD;
}
/* The share of one reference. A fan-out message is divided among its queues, so that the sum over
 * all references never exceeds the size of the file. The sum is exact while each queue has the
 * message, and too low once some have acked it. */
#define QI_SHARES_MAX 255u
static inline uint32_t qi_stored_bytes(struct qi_msg_id id) {
    uint32_t more = (uint32_t)id.stamp >> 24;
    if (__builtin_expect(more == 0, 1))
        return qi_frame_bytes(id);
    return more < QI_SHARES_MAX ? qi_frame_bytes(id) / (more + 1) : 0;
}

/* One file on disk. Freed when no birth file that lives in it has references. */
struct qi_message_file {
    uint32_t number;
    uint32_t pinned;     /* syncs that run on its handle now: not to be closed */
    uint64_t size;       /* bytes of the file */
    uint64_t frames_end; /* of a compacted file: the birth table follows */
    int handle;          /* -1: closed; a few are kept open, least recently used are closed */
    uint64_t used;       /* for that */
    bool compacted;      /* its frames were born elsewhere: its birth table is read when needed */
    bool unsynced;       /* rolled, not yet synced */
    bool filled;         /* by this process, which has asked for all of its blocks */
    bool alien;   /* not understood (damaged header, other store): never removed, never compacted */
    bool damaged; /* a survivor could not be copied: not compacted again, so that nothing is lost */
    bool victim;  /* being compacted: not to be removed */
    struct qi_birth *births; /* compacted: where each frame went, sorted; NULL: not read */
    uint32_t births_count;
    uint64_t references,
        live; /* sums over its births, as of the last qi_messages_weigh; live: at least */
    /* What a compaction that looked at the messages themselves found alive, and the references that
     * there were then. */
    bool looked_at;
    bool spared; /* not worth its copy now */
    uint64_t live_then, references_then;
};

struct qi_birth {
    uint32_t file, offset; /* born at */
    uint32_t now;          /* offset in the file that holds it now */
};

/* References by birth file, as the queues report them. `home` is the number of the file that holds
 * the bodies now. */
struct qi_birth_file {
    uint32_t number, home;
    uint64_t references, bytes; /* qi_stored_bytes each */
};

/* An empty file that is kept to be written over (messages_blanks.c). */
#define QI_BLANKS_MAX 2u
struct qi_blank {
    uint32_t number; /* of its draft's name */
    int handle;
    bool pinned; /* a sync runs on its handle now: not to be closed */
    enum qi_blank_state {
        QI_BLANK_UNNAMED, /* a power cut may give it its old name back */
        QI_BLANK_WIPED,   /* ... may give it its old header back */
        QI_BLANK_READY,
    } state;
    uint64_t size;
};

struct qi_messages {
    struct qi_disk *disk;
    int dir; /* handle of messages/, -1: none */
    uint8_t identity[QI_IDENTITY_SIZE];
    uint64_t file_size_max;
    uint64_t keep_free;
    bool use_mapping;
    bool read_only;
    bool in_memory; /* no read waits */
    bool dir_unsynced;
    bool counted;    /* set by the store when every queue has told its references: may free files */
    bool miscounted; /* a count was lost or went below zero: nothing is freed until the next open */
    bool failed;     /* a sync failed: never again (H13) */
    uint32_t dir_changes; /* tells whether a change came while a sync ran */
    uint64_t stamp_next;
    uint32_t number_next;          /* never goes back, also not over reopen */
    struct qi_message_file *files; /* sorted by number */
    uint32_t files_count, files_room;
    uint32_t files_unsynced, files_open;
    uint64_t uses;                       /* grows with every use of a handle */
    uint64_t scanned_us, dir_changed_us; /* a reader's: of the directory, as it was listed */
    struct qi_birth_file *births;        /* sorted by number */
    uint32_t births_count, births_room;
    struct qi_tape tape; /* the newest file, file == -1: none yet in this session */
    uint32_t tape_number;
    uint32_t tape_seed;
    uint32_t tape_pinned;
    uint64_t tail;
    uint64_t written, synced; /* counters of bytes ever appended, to compare in waits */
    struct qi_blank blanks[QI_BLANKS_MAX];
    uint32_t blanks_count;
    struct qi_gathered *gathered; /* frames that are not in the file yet; NULL: none were yet */
    uint8_t *window;              /* 256 KiB read-ahead over one sealed file */
    uint32_t window_file;         /* UINT32_MAX: empty */
    uint64_t window_offset, window_length;
};

/* Reads the directory: file headers and sizes, not frames. Takes over `dir`, also if it fails; -1
 * (only with read_only): there is none. Sets all fields but keep_free, which the caller sets before
 * or after. Removes unfinished output of a compaction that was cut off (N.new). Of two files that
 * hold the same births the newer one has them; the older then has no references, so it is freed
 * like any other. Names that are not ours are left alone; our names with bytes that are not
 * understood are listed with `alien` set. The newest file is never appended to again: a fresh one
 * is begun when needed (H4), with a number above every number that exists; the newest existing file
 * is never removed before a newer one exists (H15: numbers are not reused). */
int qi_messages_open(struct qi_messages *messages, struct qi_disk *disk, int dir,
                     const uint8_t *identity, uint64_t file_size_max, bool use_mapping,
                     bool read_only);
void qi_messages_close(struct qi_messages *messages);

/* For a reader: lists the files again. 0 or an error. */
int qi_messages_reread(struct qi_messages *messages);

/* After an unclean end, before anything is shown (H12): syncs the files from this number on and
 * drops them from the cache. Bodies named by segments were durable before those were written, so
 * the lowest file that a journal names is enough. */
int qi_messages_barrier(struct qi_messages *messages, uint32_t from);

/* A message that comes: its headers, then its body, for so many queues. */
struct qi_payload {
    const void *headers, *body;
    uint32_t headers_size, body_size;
    uint32_t queues;
    bool steady; /* nobody changes these bytes before they are written */
};
/* Appends one and gives its id. After any error nothing is changed. QI_E_FULL: the disk has no
 * room; QI_E_FAILED: a sync has failed. The body is on the medium when qi_messages_sync has passed
 * it. */
int qi_messages_append(struct qi_messages *messages, const struct qi_payload *payload,
                       struct qi_msg_id *id);
/* A batch: from the first call on, appends are gathered in memory, and the second one writes what
 * is not in the file yet. No id is good before that, and the lock is kept, and what was given stays
 * where it is. With an error of the caller's, or its own, the batch was not appended: returns that
 * error. (What was written of it belongs to nobody.) */
void qi_messages_gather(struct qi_messages *messages);
int qi_messages_gathered(struct qi_messages *messages, int error);

/* Reads a payload of exactly `length` bytes and checks marker, stamp and checksum. QI_E_CORRUPT
 * names file and offset. Unless 0 is returned, `payload` holds unchecked bytes. */
int qi_messages_read(struct qi_messages *messages, struct qi_msg_id id, void *payload,
                     uint32_t length);
/* Where a payload is to go: its headers, then its body. */
struct qi_into {
    void *headers, *body;
    uint32_t headers_size, body_size;
};
/* The same with two places. For a caller that must not wait for the disk, any error is QI_BUSY: the
 * read that may wait says what is wrong. */
int qi_messages_read_into(struct qi_messages *messages, struct qi_msg_id id,
                          const struct qi_into *into, bool may_wait);
/* The same for many, none of which may wait: returns how many of them, from the first on, were
 * read. Those that lie one behind the other in a file are read by one call. */
struct qi_message_read {
    struct qi_msg_id id;
    struct qi_into into;
};
uint32_t qi_messages_read_many(struct qi_messages *messages, const struct qi_message_read *reads,
                               uint32_t count);
/* Whether a message of that length can lie where its id says; no byte of it is read, except by a
 * reader, for whom files grow. 0 or an error: nobody makes room for what is not there. QI_BUSY: a
 * caller that must not wait cannot tell. */
int qi_messages_bound(struct qi_messages *messages, struct qi_msg_id id, bool may_wait);
/* Whether an append of so many bytes of headers and body makes no file and syncs none. */
bool qi_messages_has_room(const struct qi_messages *messages, uint64_t length);
/* The length that the frame states. It is no more than the file has, but no checksum was verified
 * yet. */
int qi_messages_length(struct qi_messages *messages, struct qi_msg_id id, uint32_t *length);
/* Checks that the whole message is there and undamaged. The buffer grows as needed, but never
 * beyond the size of the file. The caller frees it. */
int qi_messages_verify(struct qi_messages *messages, struct qi_msg_id id, uint8_t **buffer,
                       uint32_t *room);

/* Adds (+1) or removes (-1) references. `bytes` is their share (qi_stored_bytes), with the same
 * sign. */
void qi_messages_count(struct qi_messages *messages, uint32_t birth_file, int64_t references,
                       int64_t bytes);

/* A sync in three steps, so that the I/O runs without the lock: begin collects and pins handles,
 * run syncs them without the lock, end notes the result. */
struct qi_messages_sync {
    int handles[16];
    uint32_t numbers[16];
    uint32_t count;
    struct qi_blank blanks[QI_BLANKS_MAX];
    uint32_t blanks_count;
    bool dir;
    bool more; /* there were more than fit: sync again, `upto` has not moved */
    bool tape; /* the last handle is the current tape's: it may roll while the sync runs */
    bool failed;
    uint32_t dir_changes;
    uint64_t upto; /* messages->synced after this */
};
void qi_messages_sync_begin(struct qi_messages *messages, struct qi_messages_sync *sync);
int qi_messages_sync_run(struct qi_messages *messages, struct qi_messages_sync *sync);
void qi_messages_sync_end(struct qi_messages *messages, struct qi_messages_sync *sync, int error);

/* Unlinks files without references, except the newest, or keeps them to be written over. The caller
 * has made the acks that emptied them durable (H9): `numbers` was filled by qi_messages_empty
 * before those syncs began. Returns the bytes freed or an error. */
uint32_t qi_messages_empty(struct qi_messages *messages, uint32_t *numbers, uint32_t room);
int64_t qi_messages_free(struct qi_messages *messages, const uint32_t *numbers, uint32_t count);

/* Removes the files that are kept to be written over. */
void qi_blanks_drop(struct qi_messages *messages);

/* Sums references and live bytes by file, from the birth files. At least that much is alive. */
void qi_messages_weigh(struct qi_messages *messages);

/* Compaction (compact.c):
 *   pick     chooses victims and marks them, so that nobody else removes them;
 *   (caller) fills `live`: the ids of all messages of the victims (qi_compaction_holds) that any
 *            queue still refers to, sorted by (file, offset), duplicates allowed;
 *   look     knows from that what each victim really holds, and spares those that are not
 *            worth it, or too many;
 *   (caller) makes the acks that it counted on durable (H9): the copy's name moves all births;
 *   copy     without the lock: writes and syncs the output, renames it into place, syncs the
 *            directory. Victims with a damaged survivor are left out (`damaged`);
 *   commit   switches homes and unlinks the victims (H15); returns the bytes freed or an
 *            error; or abandon.
 * `live` comes from malloc; commit and abandon free it. After either, abandon does nothing. */
#define QI_VICTIMS_MAX 16
struct qi_compaction {
    uint32_t victims[QI_VICTIMS_MAX];
    uint32_t victims_count;
    struct qi_msg_id *live;
    uint64_t live_count;
    uint32_t number; /* of the output; 0: none, because nothing survives */
    uint64_t size;   /* of the output */
    struct qi_birth *births;
    uint64_t damaged;            /* survivors that cannot be read, */
    struct qi_msg_id damaged_id; /* the first of them */

    /* What copy needs and may not look up without the lock. */
    struct qi_disk *disk;
    int dir;
    uint8_t identity[QI_IDENTITY_SIZE];
    uint64_t keep_free;
    struct qi_message_file files[QI_VICTIMS_MAX]; /* `victim` cleared: left out, it stays */
    struct qi_birth_home {
        uint32_t birth; /* number of a birth file */
        uint32_t file;  /* index in files */
        bool survives;  /* it has frames in the output */
    } *homes;           /* sorted by birth */
    uint32_t homes_count;
    uint64_t births_count;
    uint64_t frames_end; /* of the output */
};
/* Picks sealed files whose garbage share may be at least `garbage_percent`: of a fan-out message
 * only a share counts as alive, so they are looked at first, but only once until that many of their
 * references are gone. Returns their count; with 0 there is nothing to do or to abandon. */
uint32_t qi_compact_pick(struct qi_messages *messages, uint32_t garbage_percent,
                         struct qi_compaction *compaction);
/* Returns how many victims are left; with 0 there is only to abandon. */
uint32_t qi_compact_look(struct qi_messages *messages, uint32_t garbage_percent,
                         struct qi_compaction *compaction);
bool qi_compaction_holds(const struct qi_compaction *compaction, uint32_t birth_file);
int qi_compact_copy(struct qi_messages *messages, struct qi_compaction *compaction);
int64_t qi_compact_commit(struct qi_messages *messages, struct qi_compaction *compaction);
void qi_compact_abandon(struct qi_messages *messages, struct qi_compaction *compaction);

/* ---- messages_files ---- */

enum qi_messages_kind { QI_MESSAGES_ROLLING = 0, QI_MESSAGES_COMPACTED = 1 };

/* The name of a file in messages/, and the same with the folder, for people. */
struct qi_message_name {
    char file[16];
    char shown[32];
};
struct qi_message_name qi_message_name(uint32_t number, bool unfinished);

/* Is this the whole frame of this message? `end` points at its last byte. */
bool qi_message_is_valid(uint32_t seed, uint64_t offset, const uint8_t *frame,
                         const uint8_t *payload, const uint8_t *end, struct qi_msg_id id);

#endif
