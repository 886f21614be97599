/* batch.h - one flush's entries for one segment file, closed by a summary. */
#ifndef QI_BATCH_H
#define QI_BATCH_H

#include "flush.h"

/* Appends the batch behind the segment's durable length and syncs the file. Fills in new_length and, for each publish
 * written, its new location. Runs without the store's lock: the copy and the old journal do not change. */
int qi_batch_write(struct qi_queue *queue, const struct qi_flush *flush,
                   struct qi_flush_segment *segment);

#endif
