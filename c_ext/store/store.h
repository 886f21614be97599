/* store.h - one directory, one writer: open and close, which queues there are, the background
 * thread. */
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

/* The same as qi_store_open, on any disk; the disk outlives the store. */
int qi_store_open_on(struct qi_disk *disk, const char *path, const qi_options *options,
                     struct qi_store **store);

/* ---- queues ---- */

/* The live queue of that directory, or NULL. */
struct qi_queue *qi_find_queue(const struct qi_store *store, const char *directory);
/* Adds a handle; NULL: no memory. */
struct qi_queue *qi_add_queue(struct qi_store *store, const char *name, size_t size,
                              const char *directory);
bool qi_is_queue_directory(const char *directory);
/* Handles for all queues on disk; names are not read. With the lock, and gives it up. 0 or the
 * error. */
int qi_list_queues(struct qi_store *store);
/* 0, or QI_E_CORRUPT: the queue has another name. `dir`: its directory, if its queue.meta is to be
 * read first; -1: it was. */
int qi_check_name(struct qi_queue *queue, int dir, const char *name, size_t name_size);

/* ---- create ---- */

/* Makes a new queue's directory, meta and first journal, durably. */
int qi_queue_create(struct qi_queue *queue);

/* ---- census ---- */

int qi_census(struct qi_store *store, bool all);

/* For a look at all queues. A queue that is deleted, perhaps while this waits for it, has no
 * segments: that is no error. */
int qi_ready_to_look(struct qi_queue *queue);

#define QI_CENSUS_STOPPED UINT32_MAX

/* ---- compaction ---- */

int qi_compact(struct qi_store *store, uint32_t garbage_percent, int64_t *freed);

/* ---- worker ---- */

/* Long work without the lock calls this on the way (the lock is taken for it): the worker may be
 * who does that work, and the group commit goes on. It is due after the interval, and after as long
 * again as the last one took: on a slow disk the work has to get on, too. */
void qi_commit_if_due(struct qi_store *store);

int qi_worker_start(struct qi_store *store);
void qi_worker_stop(struct qi_store *store);

/* Syncs all queues, and tells in those that are open what is durable. */
int qi_sync_open_queues(struct qi_store *store, const bool *give_up);

/* The same with the message files, and frees those that were empty before. */
int qi_commit_group(struct qi_store *store);

/* ---- idle ---- */

/* Queues fall asleep that nobody has used for idle_us, and parked ones if their maps take too much
 * memory. How many are open then, and one more if there is work left. */
uint32_t qi_unload_idle(struct qi_store *store);
#define GARBAGE_PERCENT 50u /* so much of a file is worth writing the rest anew */

/* ---- stats ---- */

/* When the first of the delayed messages is due; 0: none is delayed. May read segments, each once
 * after an open, and give up the lock. 0 or an error. */
int qi_next_due_us(struct qi_queue *queue, uint64_t *due_us);

/* ---- counts ---- */

/* What this session counted joins what was kept before it. At the end of a session, when all of it
 * is durable; whoever calls syncs the commit log. 0 or the error. */
int qi_keep_counts(struct qi_store *store);

#endif
