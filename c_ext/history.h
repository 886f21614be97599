/* history.h - what flushes have finished with, kept for replay. See history.c. */
#ifndef QI_HISTORY_H
#define QI_HISTORY_H

#include "queue.h"

bool qi_keeps_history(const struct qi_queue *queue);
/* The epoch if it is a name in history, else 0. */
uint64_t qi_history_epoch(const char *name);
/* Renames a file of so many bytes that the flush of that epoch has finished with: 0 or -errno, then it is where it was. */
int qi_history_keep(struct qi_queue *queue, uint64_t epoch, const char *name, uint64_t bytes);
/* Behind the commit point of a flush: the previous journal becomes history, if it can; then the bound. Needs no lock: until
 * the journal is retired nobody else uses its tape. */
void qi_history_take(struct qi_queue *queue);
/* What a crash left of that. With the lock, at recovery. */
void qi_history_recover(struct qi_queue *queue);

#endif
