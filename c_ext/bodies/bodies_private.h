/* bodies_private.h - what the files of the message store share: names, headers, birth tables, the
 * list of files.
 *
 * A compacted file, behind its frames (all u32 unless said otherwise):
 *
 *   birth files | (birth file, births) each | crc | (old offset, offset now) each frame | crc
 *
 * The first part is read when a store opens, the second when a message in the file is read. Both
 * are sorted. The checksums cover qi_frame_seed(identity, number, 0), the part's offset in the file
 * as u64, and the part.
 *
 * Functions of the lower half return -errno; -EBADMSG means bytes that are not what they should
 * be. */
#ifndef QI_BODIES_PRIVATE_H
#define QI_BODIES_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bodies/bodies.h"

struct qi_birth_file;
struct qi_birth_home;
struct qi_compaction;
struct qi_disk;
struct qi_message_file;
struct qi_messages;
struct qi_payload;

/* ---- messages_files ---- */

#define QI_MESSAGES_NUMBER_MAX  (UINT32_MAX - 1)
#define QI_MESSAGES_HANDLES_MAX 32u
#define QI_MESSAGES_WINDOW      (UINT32_C(256) << 10)

/* Is that payload so long that its frame goes to the file by a call, and is read so? */
static inline bool qi_message_is_long(const struct qi_messages *messages, uint32_t length) {
    return length >= messages->disk->call_min;
}

/* The list of files, sorted by number. An insert or a removal moves the others. */
struct qi_message_file *qi_message_file_find(const struct qi_messages *messages, uint32_t number);
int qi_message_file_insert(struct qi_messages *messages, const struct qi_message_file *file);
void qi_message_file_remove(struct qi_messages *messages, struct qi_message_file *file);
int qi_message_files_room(struct qi_messages *messages, uint32_t more);
bool qi_message_file_is_newest(const struct qi_messages *messages, uint32_t number);

/* Makes file->handle usable; may close the handle that was not used for the longest time. */
int qi_message_file_open(struct qi_messages *messages, struct qi_message_file *file);
void qi_message_file_close(struct qi_messages *messages, struct qi_message_file *file);
/* It needs its handle no longer for a sync. */
void qi_message_file_synced(struct qi_messages *messages, struct qi_message_file *file);
/* Closes and unlinks, forgets the window; the entry stays. */
int qi_message_file_unlink(struct qi_messages *messages, struct qi_message_file *file);
/* The part of it that follows when the name is gone. */
void qi_message_file_unnamed(struct qi_messages *messages, struct qi_message_file *file);

/* ---- messages_write ---- */

/* Appends a frame, for which the tape has room: 0 or -errno. `header` has its length and its MsgId,
 * and gets its checksum. In a batch the frame may only be gathered yet. */
int qi_messages_write(struct qi_messages *messages, uint8_t *header,
                      const struct qi_payload *payload);
/* What is gathered goes to the file. After an error it was never appended. */
int qi_messages_write_out(struct qi_messages *messages);
/* The same at the end of a batch, or what is gathered was never appended. */
int qi_messages_end_batch(struct qi_messages *messages, bool keep);

/* ---- messages_blanks ---- */

/* As qi_message_file_unlink, or the file is kept to be written over. */
int qi_blank_keep(struct qi_messages *messages, struct qi_message_file *file);
/* Makes a blank the file of this number, with its header and room for `first` bytes; false: there
 * is none. */
bool qi_blank_take(struct qi_messages *messages, uint32_t number, uint64_t first,
                   struct qi_tape *tape);
void qi_blanks_sync_begin(struct qi_messages *messages, struct qi_messages_sync *sync);
int qi_blanks_sync_run(struct qi_disk *disk, const struct qi_messages_sync *sync);
void qi_blanks_sync_end(struct qi_messages *messages, const struct qi_messages_sync *sync,
                        int error);

/* Birth files: find returns NULL if there is no entry, add finds or makes one, NULL without
 * memory. */
struct qi_birth_file *qi_birth_file_find(const struct qi_messages *messages, uint32_t number);
struct qi_birth_file *qi_birth_file_add(struct qi_messages *messages, uint32_t number);
/* Drops the entries of `home` that have no references. */
void qi_birth_files_drop(struct qi_messages *messages, uint32_t home);

/* Reads the directory. Again, for a reader of a store that somebody else writes: an error if that
 * is not worth it. */
int qi_messages_scan(struct qi_messages *messages);
int qi_messages_rescan(struct qi_messages *messages);

int qi_read_exactly(struct qi_disk *disk, int file, void *bytes, size_t length, uint64_t offset);

void qi_message_header_put(uint8_t *header, enum qi_messages_kind kind, const uint8_t *identity,
                           uint32_t number, uint64_t frames, uint64_t bytes);

/* The checksum of a frame's place, length and MsgId, to be continued with the payload. `frame` has
 * its length and MsgId. */
uint32_t qi_message_crc(uint32_t seed, uint64_t offset, const uint8_t *frame);

/* A birth table, part by part. */
struct qi_birth_group {
    uint32_t file, count;
};
uint32_t qi_births_crc(uint32_t seed, uint64_t offset);
int qi_birth_groups_read(struct qi_disk *disk, uint32_t seed, const struct qi_message_file *file,
                         struct qi_birth_group **groups, uint32_t *count);
/* Reads the whole table into file->births, unless it is there. */
/* The table of births made anew from the frames, up to the first that is damaged: for a file whose
 * table or header is. 0; -EBADMSG: there is no frame, or they were born here; -ENOMEM, or an error
 * of the disk. Cost: reads the whole file. */
int qi_births_find(struct qi_disk *disk, uint32_t seed, struct qi_message_file *file);
/* From the table behind the frames, or else from the frames. */
int qi_births_read(struct qi_disk *disk, uint32_t seed, struct qi_message_file *file);
/* Where a message lies in `file`; false if it is not there. */
bool qi_births_place(const struct qi_message_file *file, struct qi_msg_id id, uint64_t *offset);

struct qi_birth_home *qi_compaction_home(const struct qi_compaction *compaction,
                                         uint32_t birth_file);

#endif
