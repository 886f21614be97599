/* expire.h - dropping what has expired, wherever it stands in its queue. */
#ifndef QI_EXPIRE_H
#define QI_EXPIRE_H

#include "queue.h"

/* The worker's part: drops what has expired in queues whose bound has passed, each at most once a second. Called with the
 * lock; may give it up. */
void qi_expire_due(struct qi_store *store);
/* So long, but not longer than until a queue has something to drop. */
uint64_t qi_expire_wait(struct qi_store *store, uint64_t us);

/* A message came back to a segment with `expired_out`: it is looked at again. */
void qi_expire_came_back(struct qi_queue *queue, struct qi_segment *segment);

#endif
