/* store.h - a store is one directory with one writing process. Here: open and close, the list of
 * its queues, and the worker thread. */
#ifndef QI_STORE_H
#define QI_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

struct qi_disk;
struct qi_queue;
struct qi_store;

/* ---- store ---- */

/* The same as qi_store_open on any disk. The disk must live longer than the store. */
int qi_store_open_on(struct qi_disk *disk, const char *path, const qi_options *options,
                     struct qi_store **store);

/* ---- queues ---- */

/* Returns the queue of that directory that is not deleted, or NULL. */
struct qi_queue *qi_find_queue(const struct qi_store *store, const char *directory);
/* Adds a handle for a queue. NULL: no memory. */
struct qi_queue *qi_add_queue(struct qi_store *store, const char *name, size_t size,
                              const char *directory);
bool qi_is_queue_directory(const char *directory);
/* Finds queues by the directories that they have now. O(number of queues). */
void qi_tabulate(struct qi_store *store);
/* Adds handles for all queues on disk. Their names are not read. Called with the lock, and gives it
 * up. Returns 0 or the error. */
int qi_list_queues(struct qi_store *store);
/* Checks that the queue has this name. Returns 0, or QI_E_CORRUPT: it has another one. `dir` is the
 * queue's directory if its queue.meta must be read first, or -1 if that was done. */
int qi_check_name(struct qi_queue *queue, int dir, const char *name, size_t name_size);

/* Waits until no thread is creating the queue any more: it is there then, or it is deleted. Gives
 * the lock up. Returns 0, or why the store cannot be used any more. */
int qi_queue_created(struct qi_queue *queue);

/* ---- create ---- */

/* Makes a new queue's directory, meta and first journal, durably. */
int qi_queue_create(struct qi_queue *queue);

/* ---- rename ---- */

/* When nobody has events any more. */
void qi_old_names_free(struct qi_store *store);

/* ---- census ---- */

int qi_census(struct qi_store *store, bool all);

/* Makes a queue ready for a caller that looks at all queues. It is no error if the queue is
 * deleted, even while this call waits for it: the queue has no segments then. */
int qi_ready_to_look(struct qi_queue *queue);

#define QI_CENSUS_STOPPED UINT32_MAX

/* ---- compaction ---- */

int qi_compact(struct qi_store *store, uint32_t garbage_percent, int64_t *freed);

/* ---- worker ---- */

/* Runs the group commit if it is due. Long work that has given the lock up takes it and calls this
 * on the way, because the worker itself may do that work. After a commit the next one is due when
 * the interval has passed and, in addition, as much time as the commit took. So the work goes on
 * even on a slow disk. */
void qi_commit_if_due(struct qi_store *store);

int qi_worker_start(struct qi_store *store);
void qi_worker_stop(struct qi_store *store);

/* Syncs all queues. In the open ones it also notes in the journal what is durable (a MARK). */
int qi_sync_open_queues(struct qi_store *store, const bool *give_up);

/* The same, and syncs the message files. Then it frees the message files that were empty before. */
int qi_commit_group(struct qi_store *store);

/* ---- asks ---- */

void qi_asks_init(struct qi_store *store);
/* Nothing more may be asked. What was asked has ended when this returns, and the thread, too. */
void qi_asks_close(struct qi_store *store);
void qi_asks_free(struct qi_store *store);

/* ---- idle ---- */

/* Sends the queues to sleep that were not used for idle_us, and parked queues if their maps take
 * too much memory. Returns the number of queues that are still open, plus one if there is work
 * left. */
uint32_t qi_unload_idle(struct qi_store *store);
#define GARBAGE_PERCENT 50u /* a file with so much garbage is worth a rewrite */

/* ---- stats ---- */

/* Sets *due_us to the time at which the first delayed message is due; 0: no message is delayed. May
 * read segments, each once after an open, and give the lock up. Returns 0 or an error. */
int qi_next_due_us(struct qi_queue *queue, uint64_t *due_us);

/* ---- counts ---- */

/* Adds the counts of this session to those that earlier sessions kept. Called at the end of a
 * session, when all its changes are durable. The caller then syncs the commit log. Returns 0 or the
 * error. */
int qi_keep_counts(struct qi_store *store);
/* The same for the times at which queues want to be looked at. */
int qi_keep_next(struct qi_store *store);
/* Reports damage if the last session ended cleanly and its counts are not there. */
void qi_counts_expect(struct qi_store *store);
/* Reports the queues of which counts are kept and whose folders are gone, behind a clean end: once,
 * when the names of all queues are known. */
void qi_miss_queues(struct qi_store *store);
/* True if counts of more queues are kept, behind a clean end, than there are folders. */
bool qi_lacks_folders(const struct qi_store *store, uint32_t folders);
/* Forgets the counts of queues that are missing. All queues were read. Returns 0 or the error. */
int qi_accept_missing(struct qi_store *store);

/* ---- accept ---- */

/* Reports losses of settings and data that earlier sessions found, and that nobody has accepted. */
void qi_report_losses(struct qi_store *store);

#endif
