/* compaction.c - gives back the space of messages that are gone: which of a file are alive, then
 * copy and commit (bodies/compact.c). */
#include "store/store.h"

#include <stdlib.h>

#include "index/index.h"
#include "queue/queue.h"

#define LOOK_FURTHER 1 /* the files that looked worth it were not, or bodies moved: look again */

/* Collects the ids of all living messages that were born in (or moved to) the victims. */
struct marking {
    struct qi_store *store;
    struct qi_compaction *compaction;
    uint64_t room;
};

static int mark(struct marking *marking, struct qi_msg_id id) {
    struct qi_compaction *compaction = marking->compaction;
    if (!qi_compaction_holds(compaction, id.file))
        return 0;
    if (compaction->live_count == marking->room) {
        uint64_t room = marking->room ? marking->room * 2 : 256;
        struct qi_msg_id *live = qi_realloc(compaction->live, room * sizeof *live);
        if (!live)
            return qi_fail(QI_E_MEMORY, "no memory to compact");
        compaction->live = live;
        marking->room = room;
    }
    compaction->live[compaction->live_count++] = id;
    return 0;
}

static int mark_segment(struct marking *marking, struct qi_queue *queue,
                        struct qi_segment *segment) {
    struct qi_file_use *uses;
    uint32_t count, entries = marking->store->options.segment_entries;
    int error = qi_segment_uses(queue, segment, &uses, &count);
    bool concerned = false;
    for (uint32_t i = 0; !error && i < count; i++)
        concerned = concerned || qi_compaction_holds(marking->compaction, uses[i].file);
    if (!error)
        qi_free(uses);
    if (error || !concerned)
        return error;
    bool was_cold = !segment->hot;
    error = qi_segment_load(queue, segment);
    for (uint32_t slot = 0; !error && slot < entries; slot += 64) {
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        for (uint64_t bits = slots->pub & ~slots->ack & slots->stored; bits && !error;
             bits &= bits - 1) {
            const struct qi_published *record;
            error =
                qi_segment_record(queue, segment, slot + (uint32_t)__builtin_ctzll(bits), &record);
            if (!error)
                error = mark(marking, qi_get_msg_id(record->fields.msg_id));
        }
    }
    if (was_cold)
        qi_cool(queue, segment);
    return error;
}

static int compare_ids(const void *a, const void *b) {
    const struct qi_msg_id *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int mark_all(struct qi_store *store, struct qi_compaction *compaction) {
    struct marking marking = {store, compaction, 0};
    uint64_t moved = store->moved;
    int error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        error = qi_ready_to_look(queue);
        for (uint32_t k = 0; !error && k < queue->segments.count; k++)
            error = mark_segment(&marking, queue, qi_segment_nth(&queue->segments, k));
    }
    /* While this waited for a queue, a body may have gone from one that was not looked at yet to
     * one that was. */
    if (!error && store->moved != moved)
        error = LOOK_FURTHER;
    if (compaction->live_count)
        qsort(compaction->live, compaction->live_count, sizeof *compaction->live, compare_ids);
    uint64_t kept = 0; /* a fan-out message is marked once per queue */
    for (uint64_t i = 0; i < compaction->live_count; i++)
        if (kept == 0 || compare_ids(&compaction->live[kept - 1], &compaction->live[i]) != 0)
            compaction->live[kept++] = compaction->live[i];
    compaction->live_count = kept;
    return error;
}

/* Files that stay because a message in them could not be copied; once per file, it is not picked
 * again. */
static void report_left_out(struct qi_store *store, const struct qi_compaction *compaction) {
    struct qi_msg_id first = compaction->damaged_id;
    for (uint32_t i = 0; i < compaction->victims_count && compaction->damaged > 0; i++) {
        const struct qi_message_file *file = &compaction->files[i];
        if (!file->victim && !file->spared)
            qi_report(
                store, true, "", qi_message_name(file->number, false).shown, 0,
                "it stays as it is, because a message in it is damaged (the first that was met "
                "was born in file %u at offset %u); see check",
                first.file, first.offset);
    }
}

/* One compaction: 0, an error, or LOOK_FURTHER. H15: copy, sync, record, then unlink. The acks of
 * what is not copied are made durable before the copy gets its name, which says where the victims'
 * messages live now: otherwise a power cut would bring back messages without bodies. */
static int compact_once(struct qi_store *store, uint32_t garbage_percent, int64_t *freed) {
    struct qi_compaction compaction = {0};
    *freed = 0;
    if (qi_compact_pick(&store->messages, garbage_percent, &compaction) == 0)
        return QI_EMPTY;
    int error = mark_all(store, &compaction);
    if (!error && qi_compact_look(&store->messages, garbage_percent, &compaction) == 0)
        error = LOOK_FURTHER;
    if (!error && !QI_BUG(copied_before_its_acks))
        error = qi_sync_open_queues(store, NULL);
    if (!error) {
        qi_unlock(store);
        error = qi_compact_copy(&store->messages, &compaction);
        qi_relock(store);
        report_left_out(store, &compaction);
    }
    if (!error && QI_BUG(copied_before_its_acks))
        error = qi_sync_open_queues(store, NULL);
    if (!error)
        *freed = qi_compact_commit(&store->messages, &compaction);
    if (*freed < 0)
        error = (int)*freed;
    if (error)
        qi_compact_abandon(&store->messages, &compaction);
    return error;
}

int qi_compact(struct qi_store *store, uint32_t garbage_percent, int64_t *freed) {
    while (store->compacting)
        pthread_cond_wait(&store->changed, &store->lock);
    store->compacting = true;
    int error = 0;
    *freed = 0;
    while (!error && !store->stopping) {
        int64_t bytes;
        error = compact_once(store, garbage_percent, &bytes);
        if (!error && bytes > 0) {
            *freed += bytes;
            store->compactions++;
            store->compacted_bytes += (uint64_t)bytes;
        }
        if (!error && bytes <= 0)
            break;
        if (error == LOOK_FURTHER)
            error = 0;
    }
    store->compacting = false;
    pthread_cond_broadcast(&store->changed);
    return error == QI_EMPTY ? 0 : error;
}

int64_t qi_store_compact(struct qi_store *store, uint32_t garbage_percent) {
    qi_lock(store);
    int64_t freed = 0, before = 0;
    int error = qi_store_usable(store, true);
    if (!error)
        error = qi_census(store, true);
    if (!error) {
        for (uint32_t i = 0; i < store->messages.files_count; i++)
            before += (int64_t)store->messages.files[i].size;
        error = qi_commit_group(store); /* frees what is empty */
        for (uint32_t i = 0; i < store->messages.files_count; i++)
            before -= (int64_t)store->messages.files[i].size;
    }
    if (!error)
        error = qi_compact(store, garbage_percent, &freed);
    for (uint32_t i = 0; i < store->queues_count && !error; i++) {
        struct qi_queue *queue = store->queues[i];
        if (queue->deleted)
            continue;
        error = qi_queue_ready(queue, true);
        if (!error)
            error = qi_rewrite_segments(queue, garbage_percent, &freed);
        if (queue->deleted) /* meanwhile */
            error = 0;
    }
    if (!error)
        qi_blanks_drop(&store->messages);
    qi_unlock(store);
    return error ? error : freed + (before > 0 ? before : 0);
}
