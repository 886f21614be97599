/* parts.c - a transaction in its journals: frames without a header, until the log is synced.
 *
 *     commit log:  ... | TRANSACTION: part of a, part of b |
 *     journal a:   frame frame | 0 records | frame ...          the frame's header is still zeros
 *     journal b:   frame | 0 records |
 *
 * The TRANSACTION is the moment of truth. A frame with a header in one journal would be a part of
 * it alone, if a power cut kept that and took the TRANSACTION; the kernel may write a page back at
 * any time. So each frame gets its header behind the sync of the log (qi_parts_give). Until then a
 * journal ends there for whoever reads it without the log, and recovery writes what the log has.
 *
 * A part begins where the journal was last durable or in the log, not at the frame: what stands in
 * front of it would be missing else. What these bytes name in the message store is durable before
 * the TRANSACTION is appended (H8), and only journals take part that no power cut takes as files:
 * qi_parts_prepare sees to both.
 */
#include "durable/durable_private.h"

#include <errno.h>

#define PIECE_MAX                                                                                  \
    (UINT64_C(64) << 10) /* in front of a frame; what is more is synced where it is                \
                          */

static uint64_t logged_to(const struct qi_journal *journal) {
    if (QI_BUG(part_behind_a_gap))
        return journal->tail;
    return qi_journal_logged(journal);
}

uint64_t qi_part_size(const struct qi_queue *queue, uint64_t records) {
    const struct qi_journal *journal = &queue->journals[queue->epoch & 1];
    return QI_PART_SIZE + QI_COPY_BYTES + (journal->tail - logged_to(journal)) + QI_FRAME_HEADER +
           records;
}

/* What has to be durable in front of the frame is so, or goes into the part. */
static bool is_prepared(const struct qi_queue *queue) {
    const struct qi_journal *journal = &queue->journals[queue->epoch & 1];
    bool has_bodies = queue->store->messages.synced >= queue->bodies_end;
    return (qi_files_are_sure(queue) || QI_BUG(part_of_unsure_journal)) &&
           (has_bodies || QI_BUG(body_synced_behind_its_part)) &&
           journal->tail - logged_to(journal) <= PIECE_MAX;
}

bool qi_parts_prepared(struct qi_queue **queues, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (!is_prepared(queues[i]))
            return false;
    return true;
}

/* Nobody else holds one of them: so two that want the same never wait for each other. */
static int hold_all(struct qi_store *store, struct qi_queue **queues, uint32_t count) {
    for (uint32_t i = 0; i < count;) {
        int error = qi_store_usable(store, true);
        if (error)
            return error;
        if (!queues[i]->recovering) {
            i++;
            continue;
        }
        pthread_cond_wait(&store->changed, &store->lock);
        i = 0;
    }
    for (uint32_t i = 0; i < count; i++)
        queues[i]->recovering = true;
    return 0;
}

/* Where others append all the time, what was synced would never be all: they are held meanwhile. */
int qi_parts_prepare(struct qi_store *store, struct qi_queue **queues, uint32_t count) {
    int error = hold_all(store, queues, count);
    if (error)
        return error;
    error = qi_sync_messages(store);
    for (uint32_t i = 0; i < count && !error; i++)
        if (!queues[i]->deleted && queues[i]->recovered && !is_prepared(queues[i]))
            error = qi_sync_files(queues[i]);
    for (uint32_t i = 0; i < count; i++)
        queues[i]->recovering = false;
    pthread_cond_broadcast(&store->changed);
    return error;
}

uint8_t *qi_part_begin(struct qi_queue *queue, uint8_t *at, uint64_t records) {
    const struct qi_journal *journal = qi_current(queue);
    uint64_t from = logged_to(journal);
    qi_put32(at, (uint32_t)(qi_part_size(queue, records) - QI_PART_SIZE));
    at = qi_put_copy(at + QI_PART_SIZE, queue->identity, queue->epoch, from);
    memcpy(at, journal->tape.memory + from, journal->tail - from);
    return at + (journal->tail - from) + QI_FRAME_HEADER;
}

void qi_part_seal(struct qi_queue *queue, uint8_t *records, uint32_t size) {
    const struct qi_journal *journal = qi_current(queue);
    qi_frame_seal(journal->seed, records - QI_FRAME_HEADER, journal->tail, QI_FRAME_RECORDS, size);
}

/* The frame as it is in the journal now: header, records, and the zeros behind them. */
static int put_frame(struct qi_journal *journal, const uint8_t *records, uint32_t size) {
    uint8_t *frame = journal->tape.memory + journal->tail;
    memcpy(frame + QI_FRAME_HEADER, records, size);
    memset(frame + QI_FRAME_HEADER + size, 0, QI_FRAME_HEADER);
    if (QI_BUG(header_before_its_log))
        memcpy(frame, records - QI_FRAME_HEADER, QI_FRAME_HEADER);
    else
        memset(frame, 0, QI_FRAME_HEADER);
    return qi_tape_wrote(&journal->tape, journal->tail, 2 * QI_FRAME_HEADER + size);
}

int qi_part_put(struct qi_queue *queue, const uint8_t *records, uint32_t size,
                struct qi_part *part) {
    struct qi_commits *commits = queue->store->commits;
    struct qi_journal *journal = qi_current(queue);
    *part = (struct qi_part){.queue = queue,
                             .epoch = queue->epoch,
                             .at = journal->tail,
                             .reserved = queue->reserved,
                             .end = commits->end};
    memcpy(part->header, records - QI_FRAME_HEADER, QI_FRAME_HEADER);
    int error = put_frame(journal, records, size);
    journal->tail += QI_FRAME_HEADER + size;
    journal->copied = part->tail = journal->tail;
    part->lsn = qi_lsn(queue);
    *(commits->last_part ? &commits->last_part->next : &commits->first_part) = part;
    commits->last_part = part;
    queue->parts++;
    qi_commits_need(commits, queue);
    queue->lsn_logged = part->lsn;
    return error; /* the transaction is there all the same */
}

/* ---- behind the sync of the log ---- */

static int give_header(const struct qi_part *part) {
    struct qi_tape *tape = &part->queue->journals[part->epoch & 1].tape;
    memcpy(tape->memory + part->at, part->header, QI_FRAME_HEADER);
    return qi_tape_wrote(tape, part->at, QI_FRAME_HEADER);
}

/* Nothing goes back: the queue's own sync may have come between. */
static void note_durable(const struct qi_part *part, uint64_t now) {
    struct qi_queue *queue = part->queue;
    struct qi_journal *journal = &queue->journals[part->epoch & 1];
    if (queue->lsn_synced < part->lsn)
        queue->lsn_synced = part->lsn;
    if (queue->reserved_durable < part->reserved)
        queue->reserved_durable = part->reserved;
    if (journal->synced < part->tail) {
        journal->synced = part->tail;
        journal->mark_time_us = now;
    }
    queue->parts--;
}

int qi_parts_give(struct qi_store *store, uint64_t now) {
    struct qi_commits *commits = store->commits;
    uint64_t durable = qi_commits_durable(commits);
    int error = 0;
    while (commits->first_part && commits->first_part->end <= durable && !error) {
        struct qi_part *part = commits->first_part;
        if (part->queue)
            error = QI_BUG(header_never_given) ? 0 : give_header(part);
        if (error)
            return qi_fail_disk_of(part->queue, error, "cannot write", "the journal");
        if (part->queue)
            note_durable(part, now);
        commits->first_part = part->next;
        commits->last_part = part->next ? commits->last_part : NULL;
        qi_free(part);
    }
    return 0;
}

uint64_t qi_parts_end(const struct qi_queue *queue) {
    uint64_t end = 0;
    for (const struct qi_part *part = queue->store->commits->first_part; part; part = part->next)
        if (part->queue == queue)
            end = part->end;
    return end;
}

bool qi_parts_of_old(const struct qi_queue *queue) {
    const struct qi_part *part = queue->parts ? queue->store->commits->first_part : NULL;
    for (; part; part = part->next)
        if (part->queue == queue)
            return part->epoch != queue->epoch; /* the first is the oldest */
    return false;
}

uint64_t qi_parts_sure(const struct qi_queue *queue) {
    const struct qi_journal *journal = &queue->journals[queue->epoch & 1];
    const struct qi_part *part = queue->parts ? queue->store->commits->first_part : NULL;
    for (; part && !QI_BUG(frame_without_header_synced); part = part->next)
        if (part->queue == queue)
            return part->at;
    return journal->tail;
}

void qi_parts_forget(struct qi_queue *queue) {
    struct qi_part *part = queue->parts ? queue->store->commits->first_part : NULL;
    for (; part; part = part->next)
        if (part->queue == queue)
            part->queue = NULL;
    queue->parts = 0;
}
