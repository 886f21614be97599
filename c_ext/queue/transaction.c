/* transaction.c - changes of several queues, all of them or none: publishes, acks and moves.
 *
 * All that can fail comes first: which queues, deliveries that are current, bounds, memory, room in
 * each journal and in the commit log. Then one TRANSACTION is appended to the log, which is the
 * moment of truth: it has the records of all queues. Behind it they go to the journals
 * (durable/parts.c), and the maps change (H20). The lock is kept from the last check to the end.
 *
 * A move is a publish of the same payload in one queue and an ack in another. A stored body is not
 * copied: one reference comes where one goes.
 */
#include "queue/queue_private.h"

#include <errno.h>
#include <stdlib.h>

#define QUEUES_MAX 256u
#define ATTEMPTS   100

/* ---- which queues ---- */

static int find_part(struct qi_tx *tx, struct qi_queue *queue, uint32_t *found) {
    uint32_t i = 0;
    while (i < tx->parts_count && tx->queues[i] != queue)
        i++;
    *found = i;
    if (i < tx->parts_count)
        return 0;
    if (i == QUEUES_MAX)
        return qi_fail(QI_E_ARGUMENT, "a transaction has at most %u queues: nothing was changed",
                       QUEUES_MAX);
    tx->queues[tx->parts_count++] = queue;
    tx->parts[i].queue = queue;
    return 0;
}

static int find_parts(struct qi_tx *tx) {
    int error = 0;
    for (tx->at = 0; tx->at < tx->count && !error; tx->at++) {
        const qi_change *change = &tx->changes[tx->at];
        struct qi_tx_step *step = &tx->steps[tx->at];
        step->from = step->to = UINT32_MAX;
        if (change->kind == QI_CHANGE_DATA)
            continue;
        if (change->kind != QI_CHANGE_PUBLISH)
            error = find_part(tx, change->queue, &step->from);
        if (!error && change->kind != QI_CHANGE_ACK)
            error = find_part(tx, change->kind == QI_CHANGE_MOVE ? change->to : change->queue,
                              &step->to);
        if (!error && step->from == step->to)
            error = qi_fail(QI_E_ARGUMENT, "a message cannot move into the queue that it is in");
        if (error)
            return error;
    }
    return 0;
}

static int make(struct qi_tx *tx) {
    uint32_t most = 2 * tx->count < QUEUES_MAX ? 2 * tx->count : QUEUES_MAX;
    tx->steps = calloc(tx->count, sizeof *tx->steps);
    tx->parts = calloc(most, sizeof *tx->parts);
    tx->queues = calloc(most, sizeof *tx->queues);
    if (!tx->steps || !tx->parts || !tx->queues)
        return qi_fail(QI_E_MEMORY, "no memory for a transaction of %u changes", tx->count);
    int error = find_parts(tx);
    for (uint32_t i = 0; i < tx->parts_count && !error; i++) {
        tx->parts[i].frame = qi_malloc(sizeof *tx->parts[i].frame);
        if (!tx->parts[i].frame)
            error = qi_fail(QI_E_MEMORY, "no memory for a transaction of %u changes", tx->count);
    }
    return error;
}

static void drop(struct qi_tx *tx) {
    for (uint32_t i = 0; tx->parts && i < tx->parts_count; i++)
        qi_free(tx->parts[i].frame);
    qi_tx_data_drop(tx);
    free(tx->steps);
    free(tx->parts);
    free(tx->queues);
    free(tx->kept);
}

/* ---- room ---- */

static bool has_room(const struct qi_tx_queue *part) {
    struct qi_queue *queue = part->queue;
    const struct qi_journal *journal = qi_current(queue);
    uint64_t bytes = QI_FRAME_HEADER + part->size;
    if (!qi_is_in_use(queue) || queue->parked || queue->deleted)
        return false;
    if (!part->publishes)
        return journal->tail + bytes + QI_EVENT_ROOM <= journal->tape.mapped;
    return !queue->short_of_space && qi_has_room(queue, bytes, part->publishes) &&
           queue->highest + part->publishes <= queue->reserved_durable;
}

static uint64_t log_payload(const struct qi_tx *tx) {
    uint64_t size = QI_KIND_SIZE + qi_tx_data_size(tx);
    for (uint32_t i = 0; i < tx->parts_count; i++)
        size += qi_part_size(tx->queues[i], tx->parts[i].size);
    return size;
}

/* Without waiting for anything. */
static bool fits(const struct qi_tx *tx) {
    for (uint32_t i = 0; i < tx->parts_count; i++)
        if (!has_room(&tx->parts[i]))
            return false;
    return qi_parts_prepared(tx->queues, tx->parts_count) &&
           qi_commits_fit(tx->store->commits, 1, log_payload(tx));
}

/* The same by waiting; to wait for one may take it from another, so it is looked at again. */
static int make_room(struct qi_tx *tx) {
    int error = 0;
    for (uint32_t i = 0; i < tx->parts_count && !error; i++) {
        const struct qi_tx_queue *part = &tx->parts[i];
        uint64_t bytes = QI_FRAME_HEADER + part->size;
        error = qi_queue_ready(part->queue, true);
        if (!error)
            error = part->publishes ? qi_make_room(part->queue, bytes, part->publishes)
                                    : qi_make_event_room(part->queue, bytes);
    }
    if (!error)
        error = qi_log_make_room(tx->store, log_payload(tx));
    if (!error && !qi_parts_prepared(tx->queues, tx->parts_count))
        error = qi_parts_prepare(tx->store, tx->queues, tx->parts_count);
    return error;
}

/* To wait for one may have let another fall asleep. */
static bool are_awake(const struct qi_tx *tx) {
    for (uint32_t i = 0; i < tx->parts_count; i++)
        if (!qi_is_awake(tx->queues[i]))
            return false;
    return true;
}

/* All at one moment: the queues are awake and open, the messages are there, and there is room. */
static int get_ready(struct qi_tx *tx) {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int error = 0;
        for (uint32_t i = 0; i < tx->parts_count && !error; i++) {
            error = qi_queue_ready(tx->queues[i], true);
            if (!error && tx->queues[i]->bounded)
                error = qi_trim(tx->queues[i]);
        }
        if (!error && !are_awake(tx))
            continue;
        if (!error)
            error = qi_tx_measure(tx);
        tx->at = error ? tx->at : tx->count;
        for (uint32_t i = 0; i < tx->parts_count && !error; i++)
            if (tx->parts[i].publishes)
                error = qi_publish_moment(tx->queues[i]);
        if (!error && fits(tx))
            return 0;
        if (!error)
            error = make_room(tx);
        if (error)
            return error;
    }
    return qi_fail(QI_E_FULL, "no room in %u queues at the same time: nothing was changed",
                   tx->parts_count);
}

/* What leaves a full queue for this transaction cannot be moved by it. */
static int check_heads(struct qi_tx *tx) {
    for (uint32_t i = 0; i < tx->count; i++) {
        const qi_change *change = &tx->changes[i];
        if (change->kind != QI_CHANGE_MOVE || change->delivery)
            continue;
        const struct qi_heads *heads = &change->queue->heads;
        for (uint32_t k = 0; k < heads->count; k++)
            if (heads->req_ids[k] == change->req_id)
                return qi_fail(QI_E_ARGUMENT,
                               "message %llu of queue %s moves, and is also the one that would "
                               "leave to make place for what this transaction publishes there: "
                               "nothing was changed; move it by itself, before this transaction",
                               (unsigned long long)change->req_id, change->queue->name);
    }
    return 0;
}

static int find_places(struct qi_tx *tx) {
    struct qi_heads leaving = {0};
    uint64_t count = 0, bytes = 0;
    int error = 0;
    for (uint32_t i = 0; i < tx->parts_count && !error; i++) {
        const struct qi_tx_queue *part = &tx->parts[i];
        part->queue->heads.count = part->queue->heads.gone = 0;
        part->queue->heads.bytes = 0;
        count += part->publishes;
        bytes += part->payload;
        if (!part->publishes || !part->queue->bounded)
            continue;
        error = qi_queue_has_place(part->queue, part->publishes, part->payload);
        leaving.count += part->queue->heads.count;
        leaving.bytes += part->queue->heads.bytes;
    }
    bool has_heads = leaving.count > 0;
    qi_tx_settled(tx, &leaving);
    if (!error && count)
        error = qi_store_has_place(tx->store, count, bytes, &leaving);
    return error || !has_heads ? error : check_heads(tx);
}

/* ---- ReqIds and memory ---- */

static void take_ids_back(struct qi_tx *tx, uint32_t count) {
    while (count-- > 0)
        if (tx->steps[count].to != UINT32_MAX) {
            struct qi_queue *queue = tx->queues[tx->steps[count].to];
            struct qi_lane *lane = qi_lane_find(&queue->lanes, tx->steps[count].message.lane);
            const struct qi_segment *segment = qi_segment_with(queue, --lane->next);
            qi_side_room_unused(qi_slots_of(segment->hot, qi_slot_of(queue, lane->next)));
        }
}

/* All memory that the maps need, counted together: nothing is put before all is there. */
static int reserve_maps(const struct qi_tx *tx, const struct qi_tx_step *step) {
    struct qi_queue *queue = tx->queues[step->to];
    int error = qi_publish_maps(queue, &step->message, 1);
    if (error)
        return error;
    uint32_t slot = qi_slot_of(queue, step->req_id);
    struct qi_segment *segment = qi_segment_with(queue, step->req_id);
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    struct qi_side side;
    if (step->message.lease_us)
        error = qi_side_room(slots, QI_SIDE_LEASE, 8);
    for (uint32_t at = 0; !error && qi_given_side(&step->message, &at, &side);)
        error = qi_side_room(slots, side.kind, side.size);
    if (!error)
        error = qi_instant_room_for_all(&slots->published);
    if (!error && (step->redriven || step->message.due_us))
        error = qi_time_room(queue, segment, slot, 1, tx->parts[step->to].publishes);
    return !error && step->deliveries > 1 ? qi_slots_count_room(slots) : error;
}

/* Each message gets the ReqId after that of the one before it. */
static int give_ids(struct qi_tx *tx) {
    for (uint32_t i = 0; i < tx->count; i++) {
        struct qi_tx_step *step = &tx->steps[i];
        if (step->to == UINT32_MAX)
            continue;
        struct qi_queue *queue = tx->queues[step->to];
        struct qi_lane *lane = qi_lane_make(queue, step->message.lane);
        step->req_id = lane ? lane->next : 0;
        int error = lane ? reserve_maps(tx, step) : QI_E_MEMORY;
        if (error) {
            take_ids_back(tx, i);
            return error;
        }
        lane->next++;
    }
    return 0;
}

/* The heads of full queues go, and each journal has its space on the disk. */
static int reserve(struct qi_tx *tx) {
    uint8_t *at;
    int error = 0;
    for (uint32_t i = 0; i < tx->parts_count && !error; i++) {
        const struct qi_tx_queue *part = &tx->parts[i];
        if (part->publishes && part->queue->bounded)
            error = qi_make_place(part->queue, part->one, 1, QI_FRAME_HEADER + part->size);
    }
    for (uint32_t i = 0; i < tx->parts_count && !error; i++) {
        struct qi_queue *queue = tx->queues[i];
        error = qi_files_warm(queue, qi_current(queue));
        if (error)
            return error;
        error = qi_journal_room(qi_current(queue), tx->parts[i].size + QI_JOURNAL_SPARE,
                                tx->parts[i].publishes == 0, &at);
        if (error)
            error = qi_append_failed(queue, error);
    }
    return error;
}

/* ---- the moment of truth ---- */

static void put_events(struct qi_tx_queue *part, enum qi_record_kind kind, uint64_t req_id,
                       uint32_t count) {
    for (; count > 0; count--, part->next += QI_RECORD_ID)
        qi_put_record_id(part->next, kind, req_id);
}

static void put_records(struct qi_tx *tx, uint8_t *at) {
    qi_put16(at, QI_KIND_TRANSACTION);
    at += QI_KIND_SIZE;
    for (uint32_t i = 0; i < tx->parts_count; i++) {
        struct qi_tx_queue *part = &tx->parts[i];
        part->records = part->next = qi_part_begin(part->queue, at, part->size);
        at = part->records + part->size;
    }
    qi_tx_data_put(tx, at);
    for (uint32_t i = 0; i < tx->count; i++) {
        struct qi_tx_step *step = &tx->steps[i];
        if (step->to != UINT32_MAX) {
            struct qi_tx_queue *to = &tx->parts[step->to];
            to->next = qi_put_publish(to->queue, to->next, step->req_id, &step->message);
            put_events(to, QI_DELIVER, step->req_id, step->deliveries);
            if (step->redriven) { /* behind the deliveries, which would end it */
                qi_put_time(to->next, step->req_id, qi_tx_redriven(step));
                to->next += QI_TIME_RECORD;
            }
        }
        if (step->from != UINT32_MAX)
            put_events(&tx->parts[step->from], QI_ACK, tx->changes[i].req_id, 1);
    }
    for (uint32_t i = 0; i < tx->parts_count; i++)
        qi_part_seal(tx->queues[i], tx->parts[i].records, (uint32_t)tx->parts[i].size);
}

/* Moved payloads and side records are where they stay now. */
static void find_payloads(struct qi_tx *tx) {
    for (uint32_t i = 0; i < tx->count; i++) {
        struct qi_new_message *message = &tx->steps[i].message;
        const qi_change *change = &tx->changes[i];
        if (message->sides_size)
            message->sides = tx->kept + tx->steps[i].sides;
        if (change->kind != QI_CHANGE_MOVE || message->id.stamp)
            continue;
        const uint8_t *kept = tx->kept + tx->steps[i].copied;
        message->headers = change->headers ? change->headers : kept;
        message->body = change->headers ? kept : kept + message->headers_size;
    }
}

static int append(struct qi_tx *tx) {
    struct qi_commits *commits = tx->store->commits;
    bool urgent = !qi_tx_has_data(tx);
    for (uint32_t i = 0; i < tx->parts_count; i++)
        urgent = urgent && tx->parts[i].publishes == 0;
    uint64_t size = log_payload(tx);
    uint8_t *at;
    int error = size > QI_FRAME_LENGTH_MAX
                    ? -EFBIG
                    : qi_commits_transaction_room(commits, size, urgent, &at);
    if (!error) {
        put_records(tx, at);
        error = qi_commits_transaction(commits, (uint32_t)size, qi_tx_has_data(tx));
    }
    if (!error)
        return 0;
    if (size > QI_FRAME_LENGTH_MAX)
        return qi_tx_fail_big(tx, size);
    if (error == -EFBIG)
        return qi_fail(QI_E_FULL,
                       "the commit log has no room for a transaction of %llu bytes: nothing was "
                       "changed; try again, or do less at a time",
                       (unsigned long long)size);
    error = qi_fail_disk(error, "cannot append to the", "commit log");
    if (error == QI_E_FULL || error == QI_E_MEMORY)
        return error;
    return qi_tx_fail_append(tx, error);
}

static void mark_publish(struct qi_tx *tx, const struct qi_tx_step *step) {
    struct qi_tx_queue *part = &tx->parts[step->to];
    struct qi_queue *queue = part->queue;
    uint32_t slot = qi_slot_of(queue, step->req_id);
    qi_mark_published(queue, step->req_id, part->offset + (uint64_t)(part->next - part->records),
                      &step->message);
    struct qi_segment *segment = qi_segment_with(queue, step->req_id);
    for (uint32_t i = 0; i < step->deliveries; i++)
        qi_segment_deliver(queue, segment, slot);
    if (step->redriven) {
        qi_time_set(queue, segment, slot, qi_tx_redriven(step));
        qi_timers_armed(queue);
    }
    part->next += qi_tx_record_size(step);
}

/* Nothing here can be refused: what fails now fails the store, and the transaction is there. */
static int carry_out(struct qi_tx *tx) {
    int failed = 0;
    qi_tx_data_take(tx);
    for (uint32_t i = 0; i < tx->parts_count; i++) {
        struct qi_tx_queue *part = &tx->parts[i];
        part->offset = qi_current(part->queue)->tail + QI_FRAME_HEADER;
        int error = qi_part_put(part->queue, part->records, (uint32_t)part->size, part->frame);
        part->frame = NULL;
        part->next = part->records;
        if (error && !failed)
            failed = qi_store_fail(
                tx->store, qi_fail_disk(error, "cannot write the journal of", part->queue->name));
    }
    for (uint32_t i = 0; i < tx->count; i++) {
        struct qi_tx_step *step = &tx->steps[i];
        qi_change *change = &tx->changes[i];
        if (step->to != UINT32_MAX)
            mark_publish(tx, step);
        tx->store->moved += step->message.id.stamp != 0;
        if (step->from != UINT32_MAX) {
            struct qi_queue *queue = tx->queues[step->from];
            qi_segment_ack(queue, qi_segment_with(queue, change->req_id),
                           qi_slot_of(queue, change->req_id));
            *(step->to == UINT32_MAX ? &queue->counts.acked : &queue->counts.moved) += 1;
            tx->parts[step->from].next += QI_RECORD_ID;
        }
        if (step->to != UINT32_MAX)
            change->req_id = step->req_id;
    }
    return failed
               ? qi_fail(QI_E_OUTCOME, "%s; the transaction is there: close and reopen the store",
                         qi_error_text())
               : 0;
}

/* With the lock. */
static int run(struct qi_tx *tx) {
    int error = get_ready(tx);
    if (error == QI_E_OUTCOME) /* of what stands in front of it */
        error = qi_fail(QI_E_IO, "nothing of the transaction was done: %s", qi_error_text());
    if (!error)
        error = find_places(tx);
    if (error)
        return error;
    find_payloads(tx);
    error = give_ids(tx);
    if (error)
        return error;
    error = reserve(tx);
    if (!error)
        error = qi_tx_data_prepare(tx);
    if (!error)
        error = append(tx);
    if (error) {
        take_ids_back(tx, tx->count);
        return qi_publishes_failed(tx->queues, tx->parts_count, error);
    }
    return carry_out(tx);
}

static int begin(struct qi_tx *tx) {
    int error = qi_store_usable(tx->store, true);
    if (!error && !tx->store->commits)
        error = qi_fail(QI_E_FORMAT,
                        "transactions and moves need a store of format 2, this one has format 1: "
                        "upgrade it first (qindex upgrade, or open it with upgrade=True)");
    if (!error)
        error = qi_tx_check_distinct(tx);
    if (!error)
        error = qi_tx_data_check(tx);
    for (uint32_t i = 0; i < tx->parts_count && !error; i++, tx->pins++)
        tx->queues[i]->pinned++;
    return error;
}

int qi_transaction_locked(struct qi_store *store, qi_change *changes, uint32_t count, bool confirm,
                          uint32_t *failed) {
    struct qi_tx tx = {.store = store, .changes = changes, .count = count, .at = count};
    *failed = count;
    int error = count ? make(&tx) : qi_store_usable(store, true);
    if (!error && count)
        error = begin(&tx);
    if (!error && count)
        error = run(&tx);
    for (uint32_t i = 0; i < tx.pins; i++)
        tx.queues[i]->pinned--;
    uint64_t end = store->commits ? store->commits->end : 0;
    for (uint32_t i = 0; i < tx.parts_count && !error; i++)
        if (qi_is_in_use(tx.queues[i])) /* without a worker, the flush of one gives up the lock */
            qi_flush_if_due(tx.queues[i]);
    if (!error && count && confirm)
        error = qi_log_sync_to(store, end);
    *failed = error && tx.at < count ? tx.at : count;
    drop(&tx);
    return error;
}

int qi_transaction(struct qi_store *store, qi_change *changes, uint32_t count, bool confirm,
                   uint32_t *failed) {
    qi_lock(store);
    int error = qi_transaction_locked(store, changes, count, confirm, failed);
    for (uint32_t i = 0; i < count && !error; i++) /* heads that made place */
        if (changes[i].kind != QI_CHANGE_DATA)
            qi_dead_move_after(changes[i].kind == QI_CHANGE_MOVE ? changes[i].to : changes[i].queue,
                               0);
    qi_unlock(store);
    return error;
}
