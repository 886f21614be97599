/* durable.h - what makes a queue durable and brings it back: syncs, flushes and recovery. It also
 * limits how many queues have open files. */
#ifndef QI_DURABLE_H
#define QI_DURABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "commits/commits.h"

struct qi_journal;
struct qi_store;

/* ---- files ---- */

/* A limit on open files for all stores of a process, so that any number of queues may be in use in
 * turn.
 *
 * A queue in use has its directory open, and one or two journals open and mapped. When the limit is
 * reached, the queue whose last use is the longest ago closes them: it is *parked*. Its index stays
 * in memory and its session goes on. The next use opens the files again and appends behind the last
 * frame. Neither step writes or syncs anything.
 *
 *     asleep --wake, recover--> open <--qi_files_open-- parked
 *        ^                       | |                      ^
 *        `----- idle: CLOSE -----' `--- limit reached ----'
 *
 * A program may use up the descriptors of its process. So the disk keeps some in reserve, which an
 * open uses when there are no others (disk/spare.c). The next use of a queue then parks as many
 * queues as are needed to fill the reserve again.
 *
 * A journal may be closed with bytes that are not synced. They are in the kernel's cache: kill -9
 * loses none of them, and a later sync through a new descriptor writes them. But a write-back that
 * fails while the file is closed may go unreported. The kernel keeps the error with the inode, for
 * the next process that opens the file. It forgets the inode and the error if the file is not open
 * and memory is short. The pages leave the memory together with the inode. So if a journal was
 * closed since its last sync (`unproven`), each frame that the next sync covers is read again after
 * that sync. If the inode stayed, the sync reports the error. If the inode went, the bytes come
 * from the medium, and a frame that is not there means that the sync has failed (H13).
 */

/* The store joins those that share the limit. */
void qi_files_join(struct qi_store *store);
/* The store leaves them, and gives its share back. */
void qi_files_leave(struct qi_store *store);

/* Parks other queues of the disk until the files of one more queue fit into the limit. A queue in
 * the middle of a call keeps its files, so each thread may exceed the limit by one queue. The queue
 * `keep` is never parked (NULL: any queue may be). */
void qi_files_room(struct qi_store *store, const struct qi_queue *keep);
/* Called after a call failed. If the cause is a lack of descriptors, or of memory to map a file, it
 * parks all other queues that can be parked. True: some were parked, and the caller should try
 * again. Called with the store's lock. */
bool qi_files_gave(struct qi_store *store, const struct qi_queue *keep);

/* Notes that the queue is the last used one. Its files are open. */
void qi_files_used(struct qi_queue *queue);
/* Parks a queue, whether its files are open or not. */
void qi_files_park(struct qi_queue *queue);
/* Closes the files of a queue and keeps its index. The journal's frames are read again when they
 * are needed. Returns 0, or the -errno of a write that failed only now. */
int qi_files_rest(struct qi_queue *queue);
/* Closes the files of a queue whose index is forgotten, and takes it off the lists. */
void qi_files_drop(struct qi_queue *queue);
/* Opens the files of a parked queue. Returns 0, or the error; the queue then stays parked. */
int qi_files_open(struct qi_queue *queue);
static inline int qi_files_stay(struct qi_queue *queue) {
    return __builtin_expect(queue->parked, 0) ? qi_files_open(queue) : 0;
}

/* ---- forget ---- */

void qi_forget_index(struct qi_queue *queue);
/* Forgets the index, and closes the files as they are. */
void qi_queue_reset(struct qi_queue *queue);

/* ---- sync ---- */

/* The error of a sync, as it is told to those who wait for what it was to make durable. */
int qi_in_doubt(int error);

/* Returns when everything below `lsn` survives a power cut (H8, H13). Called with the lock, and
 * gives it up. */
int qi_sync_to(struct qi_queue *queue, uint64_t lsn);

/* Syncs the queue's own files until the queue needs no commit log below `number` (UINT64_MAX: no
 * log at all). */
int qi_settle(struct qi_queue *queue, uint64_t number);

/* The same as qi_sync_to for all queues of the store. Each queue that has something to sync costs
 * one sync. In format 2 one sync covers all of them if they are more than a few. If `give_up`
 * becomes true meanwhile, the remaining queues are left out (NULL: none are). */
int qi_sync_queues(struct qi_store *store, const bool *give_up);
/* The same for a store in which no other thread runs or may begin a call. Many queues then cost one
 * sync of their file system, if the system has such a call. The lock is kept meanwhile. A second
 * thread must not run, because the kernel reports a failed write only once: this sync could take
 * the report, and the other thread's sync of a file would succeed. */
int qi_sync_at_rest(struct qi_store *store);
/* The same, and all that queues have is durable in their own files: none needs a commit log. */
int qi_settle_at_rest(struct qi_store *store);
/* Syncs all files of the file system that the queues are on. Returns 0, -EOPNOTSUPP or an error.
 * Gives the lock up. */
int qi_sync_disk(struct qi_store *store);
int qi_sync_messages(struct qi_store *store);
/* Appends a MARK to a journal of which all is durable, unless one is there. Leaves it out if there
 * is no space for it. */
int qi_tell_durable(struct qi_queue *queue);

/* ---- commit ---- */

#define QI_FEW_QUEUES 2u

/* So many dirty queues are synced one by one; one sync of the commit log makes more than that
 * durable. Never changes while the store is open. */
static inline uint32_t qi_few_queues(const struct qi_store *store) {
    uint32_t few = store->options.few_queues;
    return store->options.format < 2 ? UINT32_MAX : few ? few : QI_FEW_QUEUES;
}

/* True if a new commit log has begun, and queues must be synced until the older logs can go. */
static inline bool qi_settling(const struct qi_store *store) {
    return store->commits && store->commits->settling;
}
/* Syncs such queues for about `most_us`. Returns 0 or the error. Gives the lock up. */
int qi_settle_some(struct qi_store *store, uint64_t most_us);

/* Makes room in the newest commit log for a frame with that payload. The room is there until the
 * caller gives the lock up. Returns 0 or the error. May give the lock up meanwhile. */
int qi_log_make_room(struct qi_store *store, uint64_t payload);
/* Returns when the logs up to `end` (a value of commits->end) survive a power cut. All threads that
 * wait share one sync. Gives the lock up. */
int qi_log_sync_to(struct qi_store *store, uint64_t end);

/* Changes a mapping: the whole change is made, or nothing. The entries have the form of a DATA
 * frame, and must be sound. An `urgent` change may use the space that publishes leave free. Returns
 * 0 or the error. */
int qi_data_put(struct qi_store *store, const uint8_t *scope, const uint8_t *entries, uint32_t size,
                bool urgent);
/* The queue was deleted: removes its keys. */
int qi_data_delete(struct qi_store *store, const uint8_t *identity);
/* Begins a new log and a new catalog, and makes those before superfluous, which go then: for
 * damaged ones. All queues must have been recovered. Returns 0 or the error. Gives the lock up. */
int qi_log_renew(struct qi_store *store);
/* Waits until no thread commits. */
void qi_commit_wait(struct qi_store *store);
/* Writes the catalog if there is a draft of one. Returns 0, or the error; the logs then stay. Gives
 * the lock up. */
int qi_catalog_run(struct qi_store *store);

/* ---- parts ---- */

/* The part of a transaction in one queue (parts.c). All functions but qi_parts_prepare keep the
 * lock. */

/* True if a frame of a transaction could be appended to each of these queues now. The queues must
 * be in use. */
bool qi_parts_prepared(struct qi_queue **queues, uint32_t count);
/* Makes that so, by syncs of the queues' own files. The caller must ask qi_parts_prepared again.
 * Returns 0 or the error. Gives the lock up. */
int qi_parts_prepare(struct qi_store *store, struct qi_queue **queues, uint32_t count);
/* Size of a part with so many bytes of records. The journal's files must be open, and its bytes in
 * memory (qi_files_warm). */
uint64_t qi_part_size(const struct qi_queue *queue, uint64_t records);
/* Writes the part without its records, and returns where the records go. qi_part_seal then gives
 * the frame its checksum. */
uint8_t *qi_part_begin(struct qi_queue *queue, uint8_t *at, uint64_t records);
void qi_part_seal(struct qi_queue *queue, uint8_t *records, uint32_t size);
/* Called after the TRANSACTION was appended. Writes the frame to its journal without the header,
 * and adds `part` to the frames that have no header yet. The journal must have room. Returns 0 or
 * -errno; the transaction is made in any case. */
int qi_part_put(struct qi_queue *queue, const uint8_t *records, uint32_t size,
                struct qi_part *part);
/* The queue was deleted: forgets its parts. */
void qi_parts_forget(struct qi_queue *queue);

/* ---- state ---- */

/* Bytes that a journal keeps at its close, so that the messages in the queue can be delivered and
 * acked. */
uint64_t qi_room_to_drain(const struct qi_queue *queue);
int qi_append_manifest(struct qi_queue *queue, struct qi_journal *journal, uint64_t flushed_epoch,
                       uint64_t previous_tail);
int qi_append_session(struct qi_queue *queue);
int qi_append_close(struct qi_queue *queue);
/* Appends a LANES frame. It stands before the CLOSE of a queue that has more than one lane. */
int qi_append_lanes(struct qi_queue *queue);

/* ---- flush ---- */

/* A flush moves the state of messages from the journal to the segments. It carries a copy of the
 * dirty part of each segment, taken when the journals change places. qi_flush_begin needs the
 * store's lock. qi_flush_run does the I/O without the lock, and takes it at the end. */
int qi_flush_begin(struct qi_queue *queue, uint64_t room, uint64_t ids);
int qi_flush_run(struct qi_queue *queue);

/* ---- history ---- */

/* History: files that flushes no longer need, kept for replay. See history.c. */

bool qi_keeps_history(const struct qi_queue *queue);
/* The epoch of a file name in history; 0: it is no such name. */
uint64_t qi_history_epoch(const char *name);
/* Moves a file of so many bytes to history by a rename. The flush of that epoch no longer needs it.
 * Returns 0, or -errno; the file then stays where it was. */
int qi_history_keep(struct qi_queue *queue, uint64_t epoch, const char *name, uint64_t bytes);

/* ---- reread ---- */

/* Recovers the queue. A reader starts again if the writer changed the files during the read. */
int qi_recover_view(struct qi_queue *queue);
/* The error of a reader that had to start again too often. */
int qi_fail_outrun(const struct qi_queue *queue);
/* Called by a reader whose view of the files is out of date: reads the queue again. All pointers
 * into the index become invalid. QI_E_CORRUPT: the files have not changed since (or this is the
 * writer), so the missing bytes are damage; the text of the error stays as it was. */
int qi_reread(struct qi_queue *queue);

/* ---- replay ---- */

int qi_apply_purge(struct qi_queue *queue, uint64_t below, const uint8_t *except, uint32_t count);
/* Reads the segments that a purge of all messages needs. So nothing can fail after its record was
 * appended. */
int qi_load_for_purge(struct qi_queue *queue);

#endif
