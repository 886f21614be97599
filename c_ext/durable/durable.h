/* durable.h - what makes a queue durable and brings it back: syncs, flushes, recovery, and whose
 * files are open. */
#ifndef QI_DURABLE_H
#define QI_DURABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "commits/commits.h"

struct qi_journal;
struct qi_store;

/* ---- files ---- */

/* A bound on open files for all stores of a process, so that any number of queues may be in use in
 * turn.
 *
 * A queue in use has a directory and one or two journals open and mapped. When the bound is
 * reached, the queue that was used the longest time ago gives them back: it is *parked*. Its index
 * stays in memory and its session goes on, so whoever uses it next opens the files again and
 * appends behind the last frame. Neither way writes or syncs anything.
 *
 *     asleep --wake, recover--> open <--qi_files_open-- parked
 *        ^                       | |                      ^
 *        `----- idle: CLOSE -----' `--- bound reached ----'
 *
 * A program may take the last descriptors of its process. For that the disk keeps some back, which
 * an open uses when there are no others (disk/spare.c); the next use of a queue then parks as many
 * as it takes to have them again.
 *
 * What was appended and not synced when a journal is closed is in the kernel's cache: kill -9 loses
 * none of it, and a later sync through a new descriptor writes it. But a write-back that fails
 * while the file is closed may go untold: the kernel keeps the error with the inode, for the next
 * who opens the file, and forgets it with the inode when nobody has it open and memory is short.
 * The pages leave the memory together with the inode. So behind the sync of a journal that was
 * closed since the one before (`unproven`), each frame that the sync covers is read again: either
 * the inode stayed, and the sync tells of the error; or it went, and what is read comes from the
 * medium. If a frame is not there, the sync has failed (H13).
 */

/* The store takes part; who leaves gives its share back. */
void qi_files_join(struct qi_store *store);
void qi_files_leave(struct qi_store *store);

/* Gives back what others of the disk's queues have, until a queue's files fit beside them. What is
 * under way keeps its files, so the bound may be passed by as many queues as there are threads.
 * Never takes those of `keep` (NULL: of any). */
void qi_files_room(struct qi_store *store, const struct qi_queue *keep);
/* A call failed. True if it was for want of a descriptor, or of memory to map a file, and other
 * queues gave theirs back, all that could: then it may go well when it is tried again. The store's
 * lock is held. */
bool qi_files_gave(struct qi_store *store, const struct qi_queue *keep);

/* The queue is the last used one, and has its files open. */
void qi_files_used(struct qi_queue *queue);
/* Parks a queue. Its files need not be open. */
void qi_files_park(struct qi_queue *queue);
/* Closes the files of a queue that stays known: the journal's frames are read again when they are
 * needed. 0, or -errno of a write that came too late. */
int qi_files_rest(struct qi_queue *queue);
/* Closes the files of a queue whose index is forgotten, and takes it off the lists. */
void qi_files_drop(struct qi_queue *queue);
/* Opens the files of a parked queue. 0 or the error: it stays parked. */
int qi_files_open(struct qi_queue *queue);
static inline int qi_files_stay(struct qi_queue *queue) {
    return __builtin_expect(queue->parked, 0) ? qi_files_open(queue) : 0;
}

/* ---- forget ---- */

void qi_forget_index(struct qi_queue *queue);
void qi_queue_reset(struct qi_queue *queue); /* forgets the index; files are closed as they are */

/* ---- sync ---- */

/* Returns when everything below lsn survives a power cut (H8, H13). Called with the lock; gives it
 * up. */
int qi_sync_to(struct qi_queue *queue, uint64_t lsn);

/* Syncs its own files until it needs no commit log with a number below that one (UINT64_MAX: none
 * at all). */
int qi_settle(struct qi_queue *queue, uint64_t number);

/* The same as qi_sync_to for all queues of the store: a sync for each that has something to sync,
 * or, in format 2, one for more than a few. When `give_up` becomes true on the way, the rest is
 * left out; NULL: it never does. */
int qi_sync_queues(struct qi_store *store, const bool *give_up);
/* The same while no other thread does anything in the store, and none begins anything: many queues
 * cost one sync of their file system, where it has that, and the lock is kept meanwhile. With a
 * second thread, its sync of one file could succeed because this one took the report of the
 * failure. */
int qi_sync_at_rest(struct qi_store *store);
/* All files of the file system that the queues are on are durable: 0, -EOPNOTSUPP or an error.
 * Gives the lock up. */
int qi_sync_disk(struct qi_store *store);
int qi_sync_messages(struct qi_store *store);
/* A MARK at the end of a journal of which all is durable, if none tells so. If it cannot be
 * appended (no space) it is left out. */
int qi_tell_durable(struct qi_queue *queue);

/* ---- commit ---- */

/* A commit log has begun: queues are to be synced until the older ones can go. */
static inline bool qi_settling(const struct qi_store *store) {
    return store->commits && store->commits->settling;
}
/* Does so for about that long. 0 or the error. Gives the lock up. */
int qi_settle_some(struct qi_store *store, uint64_t most_us);

/* A frame with that payload fits into the newest commit log, until the lock is given up. 0 or the
 * error. May give the lock up meanwhile. */
int qi_log_make_room(struct qi_store *store, uint64_t payload);
/* Returns when what the logs have up to that place (commits->end) survives a power cut: who waits
 * shares one sync with all others that do. Gives the lock up. */
int qi_log_sync_to(struct qi_store *store, uint64_t end);

/* Entries as in a DATA frame, which are sound: all of the change or nothing. An `urgent` change may
 * use the space that publishes leave free. 0 or the error. */
int qi_data_put(struct qi_store *store, const uint8_t *scope, const uint8_t *entries, uint32_t size,
                bool urgent);
/* The queue is no more: nor are its keys. */
int qi_data_delete(struct qi_store *store, const uint8_t *identity);
/* Writes the catalog, if a draft of one is there. 0 or the error: then the logs stay. Gives the
 * lock up. */
int qi_catalog_run(struct qi_store *store);

/* ---- parts ---- */

/* What a transaction has of one queue (parts.c). All functions keep the lock, but for
 * qi_parts_prepare. */

/* Its frame could be appended now, to each of them; they are in use. */
bool qi_parts_prepared(struct qi_queue **queues, uint32_t count);
/* Sees to it, by syncs of their own; look again. 0 or the error. Gives the lock up. */
int qi_parts_prepare(struct qi_store *store, struct qi_queue **queues, uint32_t count);
/* Bytes of a part with so many bytes of records. The journal's files are open, and what it has is
 * in memory (qi_files_warm). */
uint64_t qi_part_size(const struct qi_queue *queue, uint64_t records);
/* Writes it, but for the records: where these go. Then the frame gets its checksum. */
uint8_t *qi_part_begin(struct qi_queue *queue, uint8_t *at, uint64_t records);
void qi_part_seal(struct qi_queue *queue, uint8_t *records, uint32_t size);
/* The TRANSACTION was appended: the frame goes to its journal, without its header, and `part` joins
 * those that have none. There is room. 0 or -errno; the transaction is there in any case. */
int qi_part_put(struct qi_queue *queue, const uint8_t *records, uint32_t size,
                struct qi_part *part);
/* The queue was deleted. */
void qi_parts_forget(struct qi_queue *queue);

/* ---- state ---- */

/* Bytes of a closed journal that deliveries and acks will need. */
uint64_t qi_room_to_drain(const struct qi_queue *queue);
int qi_append_manifest(struct qi_queue *queue, struct qi_journal *journal, uint64_t flushed_epoch,
                       uint64_t previous_tail);
int qi_append_session(struct qi_queue *queue);
int qi_append_close(struct qi_queue *queue);
/* A LANES frame, in front of the CLOSE of a queue that has more than one lane. */
int qi_append_lanes(struct qi_queue *queue);

/* ---- flush ---- */

/* What a flush carries: a copy of the dirty part of each segment, taken when the journals change
 * places. */

/* Moves truth from the journal to the segments. begin needs the store's lock; run does the I/O
 * without it and takes it at the end. */
int qi_flush_begin(struct qi_queue *queue, uint64_t room, uint64_t ids);
int qi_flush_run(struct qi_queue *queue);

/* ---- history ---- */

/* What flushes have finished with, kept for replay. See history.c. */

bool qi_keeps_history(const struct qi_queue *queue);
/* The epoch if it is a name in history, else 0. */
uint64_t qi_history_epoch(const char *name);
/* Renames a file of so many bytes that the flush of that epoch has finished with: 0 or -errno, then
 * it is where it was. */
int qi_history_keep(struct qi_queue *queue, uint64_t epoch, const char *name, uint64_t bytes);

/* ---- reread ---- */

/* The same for writers; for a reader again, if the writer changed the files while they were
 * read. */
int qi_recover_view(struct qi_queue *queue);
/* The writer was faster, each time. */
int qi_fail_outrun(const struct qi_queue *queue);
/* What a reader holds is too old to be read: reads the queue again. QI_E_CORRUPT, with the error's
 * text as it was: it has not changed since (or this is the writer), so what is missing is damage.
 * All pointers into the index are gone. */
int qi_reread(struct qi_queue *queue);

/* ---- replay ---- */

int qi_apply_purge(struct qi_queue *queue, uint64_t below, const uint8_t *except, uint32_t count);
/* Reads the segments that a purge of all needs, so that nothing fails behind its record. */
int qi_load_for_purge(struct qi_queue *queue);

#endif
