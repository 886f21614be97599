/* age.h - since when the oldest message waits, at least. */
#ifndef QI_AGE_H
#define QI_AGE_H

#include "store.h"

/* What is published in the queue was published before now: noted with each sync, and when the journals change places. */
void qi_age_note(struct qi_queue *queue, uint64_t now_us);
/* The journals are about to change places: what they tell of the heads is noted. */
void qi_age_keep(struct qi_queue *queue);

#endif
