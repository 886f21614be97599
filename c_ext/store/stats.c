/* stats.c - figures of a store and of a queue. */
#include "store/store.h"

#include "index/index.h"
#include "queue/queue.h"

int qi_store_stats_of(struct qi_store *store, qi_store_stats *stats) {
    qi_lock(store);
    int error = qi_store_usable(store, false);
    const struct qi_messages *messages = &store->messages;
    bool has_newest = messages->tape.file >= 0; /* it is appended to, and not among `files` */
    *stats = (qi_store_stats){.queues = store->queues_count,
                              .session = store->session,
                              .unclean_session = store->unclean_session,
                              .messages = store->depth - store->dead,
                              .bytes = store->bytes,
                              .memory = qi_memory_used(),
                              .findings = store->findings_count,
                              .compactions = store->compactions,
                              .compacted_bytes = store->compacted_bytes,
                              .segment_entries = store->options.segment_entries,
                              .embed_below = store->options.embed_below,
                              .format = store->options.format,
                              .mapped = store->use_mapping,
                              /* Without files of earlier sessions all references are new. */
                              .counted = messages->counted || messages->files_count == 0,
                              .message_files = messages->files_count + has_newest,
                              .message_bytes = has_newest ? messages->tail : 0};
    for (uint32_t i = 0; i < messages->files_count; i++)
        stats->message_bytes += messages->files[i].size;
    for (uint32_t i = 0; i < messages->births_count; i++) {
        stats->live_bytes += messages->births[i].bytes;
        stats->live_references += messages->births[i].references;
    }
    qi_unlock(store);
    return error;
}

int qi_queue_stats_of(struct qi_queue *queue, qi_queue_stats *stats) {
    qi_lock(queue->store);
    int error = qi_store_usable(queue->store, false);
    if (!error && (!queue->recovered || queue->spent.waits || qi_timers_left_us(queue) == 0))
        error = qi_queue_ready(queue, false);
    if (!error && qi_is_open(queue))
        error = qi_delayed_run(queue);
    uint64_t next_due_us = 0;
    if (!error)
        error = qi_next_due_us(queue, &next_due_us);
    bool read_only = queue->store->options.read_only; /* a reader syncs nothing */
    *stats = (qi_queue_stats){.depth = queue->depth,
                              .ready = queue->depth - queue->out - queue->delayed - queue->dead,
                              .unacked = queue->out,
                              .delayed = queue->delayed,
                              .dead = queue->dead,
                              .bytes = queue->measured ? queue->bytes : UINT64_MAX,
                              .next_due_us = next_due_us,
                              .next_req_id = queue->lanes.items[0].next,
                              .dirty_count = queue->dirty_count,
                              .floor = queue->floor,
                              .epoch = queue->epoch,
                              .unsynced_bytes = read_only ? 0 : qi_lsn(queue) - queue->lsn_synced,
                              .journal_bytes = qi_current(queue)->tail,
                              .segments = queue->segments.count,
                              .loaded = queue->dir >= 0 || queue->parked};
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        const struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        stats->hot_segments += segment->hot != NULL;
        stats->segment_bytes += segment->length;
    }
    qi_unlock(queue->store);
    return error;
}

/* The segment's own entry, with a time that is known to be that of a message in it. */
static bool is_exact(const struct qi_segment *segment, const struct qi_timer *timer) {
    return segment->due_is_exact && timer->id & QI_SEGMENT_ENTRY && timer->key == segment->due_us;
}

int qi_next_due_us(struct qi_queue *queue, uint64_t *due_us) {
    const struct qi_heap *delayed = &queue->timers.delayed;
    int error = 0;
    *due_us = 0;
    while (delayed->count && !error) {
        const struct qi_timer timer = delayed->items[0];
        struct qi_segment *segment = qi_segment_with(queue, timer.id & ~QI_SEGMENT_ENTRY);
        bool is_whole = segment && qi_waits_as_whole(segment);
        if (is_whole ? is_exact(segment, &timer) : qi_is_claimed(queue, &timer)) {
            *due_us = timer.key;
            return 0;
        }
        /* What a MANIFEST says of a segment may be out of date: it is read, once. */
        if (is_whole && queue->dir < 0)
            error = qi_queue_ready(queue, false); /* gives up the lock */
        else if (is_whole)
            error = qi_segment_load(queue, segment);
        else
            qi_heap_pop(&queue->timers.delayed);
    }
    return error;
}
