/* census.c - counts the references of all queues to the message files. Until all are counted,
 * nothing is freed. */
#include "store/store.h"

#include "commits/commits.h"
#include "index/index.h"
#include "queue/queue.h"

/* A queue that is deleted, perhaps while this waits for it, has no segments: that is no error. */
int qi_ready_to_look(struct qi_queue *queue) {
    int error = queue->deleted ? 0 : qi_queue_ready(queue, false);
    return queue->deleted ? 0 : error;
}

/* Adds every segment's references to the store's account; until all are in, nothing is freed. One
 * queue per call. */
static int census_queue(struct qi_store *store, struct qi_queue *queue) {
    int error = qi_ready_to_look(queue);
    for (uint32_t i = 0; !error && !queue->deleted && i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        struct qi_file_use *uses;
        uint32_t count;
        if (segment->counted)
            continue;
        error = qi_segment_uses(queue, segment, &uses, &count);
        if (error)
            break;
        for (uint32_t k = 0; k < count; k++)
            qi_messages_count(&store->messages, uses[k].file, uses[k].count,
                              (int64_t)uses[k].bytes);
        segment->counted = true;
        qi_free(uses);
    }
    return error;
}

int qi_census(struct qi_store *store, bool all) {
    while (store->counting)
        pthread_cond_wait(&store->changed, &store->lock);
    store->counting = true;
    int error = 0;
    if (all && store->census == QI_CENSUS_STOPPED && store->census_error != QI_E_CORRUPT)
        store->census = 0; /* the disk may work again; segments that are counted stay so */
    if (!store->messages.counted && store->census == 0) {
        error = qi_list_queues(store); /* also the queues that nobody has asked for */
    }
    while (!store->messages.counted && !error) {
        if (store->census == QI_CENSUS_STOPPED) {
            error = qi_fail(store->census_error,
                            "a queue cannot be read (see findings): nothing is freed or "
                            "compacted until it is repaired or deleted");
        } else if (store->census >= store->queues_count) {
            store->messages.counted = true;
            qi_commits_all_taken(store->commits);
        } else {
            error = census_queue(store, store->queues[store->census]);
            if (!error)
                store->census++;
            if (!all)
                break;
        }
    }
    store->counting = false;
    pthread_cond_broadcast(&store->changed);
    return error;
}
