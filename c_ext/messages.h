/* messages.h - the rolling message store: bodies that are too big to be embedded in the index.
 *
 * A message's id is its birthplace: file number, offset and a stamp that the stored frame repeats, so no index of
 * messages is kept in memory. Files roll at file_size_max; only the newest is written (a tape), the others are
 * immutable. Compaction copies the survivors of some files into one new file, whose frames keep their MsgIds; a file's
 * survivors all move together, so one small table per birth file keeps old ids valid.
 *
 * Which messages are alive is not known here: the index is the only truth. The queues report each reference that
 * comes and goes (qi_messages_count), per birth file.
 *
 * Locking: every function is called with the store's lock held unless it says otherwise.
 */
#ifndef QI_MESSAGES_H
#define QI_MESSAGES_H

#include "format.h"
#include "tape.h"

struct qi_msg_id {
    uint32_t file;   /* birth file */
    uint32_t offset; /* of the frame in it */
    uint64_t stamp;  /* never 0 */
};

static inline void qi_put_msg_id(uint8_t *at, struct qi_msg_id id) {
    qi_put32(at, id.file);
    qi_put32(at + 4, id.offset);
    qi_put64(at + 8, id.stamp);
}

static inline struct qi_msg_id qi_get_msg_id(const uint8_t *at) {
    return (struct qi_msg_id){qi_get32(at), qi_get32(at + 4), qi_get64(at + 8)};
}

/* One file on disk. Freed when no birth file that lives in it has references. */
struct qi_message_file {
    uint32_t number;
    uint64_t size;     /* bytes of the file */
    int handle;        /* -1: closed; a few are kept open, least recently used are closed */
    uint64_t used;     /* for that */
    bool compacted;    /* its frames were born elsewhere: its birth table is read when needed */
    bool unsynced;     /* rolled, not yet synced */
    struct qi_birth *births; /* compacted: where each survivor went, sorted by (file, old offset) */
    uint32_t births_count;
};

struct qi_birth {
    uint32_t file, offset; /* born at */
    uint32_t now;          /* offset in the file that holds it now */
};

/* References per birth file, as told by the queues; `home` is the number of the file that holds the bodies now. */
struct qi_birth_file {
    uint32_t number, home;
    uint64_t references, bytes; /* a fan-out message counts once per queue */
};

struct qi_messages {
    struct qi_disk *disk;
    int dir; /* handle of messages/, -1: none */
    uint8_t identity[QI_IDENTITY_SIZE];
    uint64_t file_size_max;
    uint64_t keep_free;
    bool use_mapping;
    bool dir_unsynced;
    bool counted;     /* every queue has reported its references: only then files may be freed or picked */
    uint64_t stamp_next;
    uint32_t number_next;  /* never goes back, also not over reopen */
    struct qi_message_file *files; /* sorted by number */
    uint32_t files_count, files_room;
    struct qi_birth_file *births; /* sorted by number */
    uint32_t births_count, births_room;
    struct qi_tape tape; /* the newest file, file == -1: none yet in this session */
    uint32_t tape_number;
    uint32_t tape_seed;
    uint64_t tail;
    uint64_t written, synced; /* counters of bytes ever appended, to compare in waits */
    uint8_t *window;          /* 256 KiB read-ahead over one sealed file */
    uint32_t window_file;     /* UINT32_MAX: empty */
    uint64_t window_offset, window_length;
};

/* Reads the directory: file headers and sizes, not frames. Removes unfinished output of a compaction that was cut off
 * (a compacted file without its final header) and, of two files that hold the same births, the older. Unknown names
 * are left alone. The newest file is never appended to again: a fresh one is begun when needed (H4), with a number
 * above every number that exists; the newest existing file is never removed before a newer one exists (H15: numbers
 * are not reused). */
int qi_messages_open(struct qi_messages *messages, struct qi_disk *disk, int dir, const uint8_t *identity,
                     uint64_t file_size_max, bool use_mapping, bool read_only);
void qi_messages_close(struct qi_messages *messages);

/* Appends one payload = headers then body; gives its id. `reserve` makes sure beforehand that the append cannot fail for
 * want of room (rolls or grows). The body is on the medium when qi_messages_sync has passed it. */
int qi_messages_append(struct qi_messages *messages, const void *headers, uint32_t headers_size, const void *body,
                       uint32_t body_size, struct qi_msg_id *id);

/* Reads a payload of exactly `length` bytes; checks marker, stamp and checksum (QI_E_CORRUPT with file and offset). */
int qi_messages_read(struct qi_messages *messages, struct qi_msg_id id, void *payload, uint32_t length);
/* The payload's length, from the frame. */
int qi_messages_length(struct qi_messages *messages, struct qi_msg_id id, uint32_t *length);

/* References that come (+1) and go (-1); bytes is the payload's length. */
void qi_messages_count(struct qi_messages *messages, uint32_t birth_file, int64_t references, int64_t bytes);

/* Sync in two halves, so that the I/O runs without the lock: begin collects up to `room` handles (duplicated or
 * pinned) and what to do; run (no lock) syncs them; end notes the result. All return 0 or an error. */
struct qi_messages_sync {
    int handles[16];
    uint32_t numbers[16];
    uint32_t count;
    bool dir;
    bool more; /* there were more than fit: sync again */
    uint64_t upto;
};
void qi_messages_sync_begin(struct qi_messages *messages, struct qi_messages_sync *sync);
int qi_messages_sync_run(struct qi_messages *messages, struct qi_messages_sync *sync);
void qi_messages_sync_end(struct qi_messages *messages, struct qi_messages_sync *sync, int error);

/* Unlinks files without references, except the newest. The caller has made the acks that emptied them durable (H9):
 * `candidates` was filled by qi_messages_empty before those syncs began. Returns the bytes freed. */
uint32_t qi_messages_empty(struct qi_messages *messages, uint32_t *numbers, uint32_t room);
int64_t qi_messages_free(struct qi_messages *messages, const uint32_t *numbers, uint32_t count);

/* Compaction (compact.c): `live` are the ids of all survivors of `victims`, sorted; copy (no lock needed: victims are
 * immutable and pinned by the caller's compacting flag) writes and syncs the new file and the directory; commit
 * switches homes and unlinks the victims (H15). */
struct qi_compaction {
    uint32_t victims[16];
    uint32_t victims_count;
    struct qi_msg_id *live;
    uint64_t live_count;
    uint32_t number; /* of the output */
    uint64_t size;
    struct qi_birth *births;
};
/* Picks sealed files whose garbage share is at least `garbage_percent`, as many as fit into one output. */
uint32_t qi_compact_pick(struct qi_messages *messages, uint32_t garbage_percent, struct qi_compaction *compaction);
int qi_compact_copy(struct qi_messages *messages, struct qi_compaction *compaction);
int64_t qi_compact_commit(struct qi_messages *messages, struct qi_compaction *compaction);
void qi_compact_abandon(struct qi_messages *messages, struct qi_compaction *compaction);

#endif
