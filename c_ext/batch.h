/* batch.h - one flush's entries for one segment file, closed by a summary. */
#ifndef QI_BATCH_H
#define QI_BATCH_H

#include "flush.h"

/* Appends the batch behind the segment's durable length; the file stays open. Fills in new_length and, for each publish
 * written, its new location. Runs without the store's lock: the copy and the old journal do not change. */
int qi_batch_write(struct qi_queue *queue, const struct qi_flush *flush,
                   struct qi_flush_segment *segment);
/* Syncs and closes the file, if there is one. After an error it is closed only. The error, or that of the sync. */
int qi_batch_end(struct qi_queue *queue, struct qi_flush_segment *segment, int error);

#endif
