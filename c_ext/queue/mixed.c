/* mixed.c - publishes of unlike messages to any queues in one call: each queue gets one frame, with
 * all of its messages or none (H11).
 *
 * As in a fan-out, all that can be refused is refused before the first record is written, and the
 * lock is kept from there to the end. No crash leaves a part of what one queue gets; a crash
 * between two frames leaves the queues that had theirs. (Who wants all queues or none takes a
 * transaction.)
 *
 * A batch may be for more queues than may have open files. So no queue keeps its files through the
 * call, as those of a transaction do (`pinned`), and each step asks for those that it needs: to
 * open the files of one queue may close another's.
 */
#include "queue/queue_private.h"

#include <stdlib.h>

#define ATTEMPTS 100

struct item {
    struct qi_new_message message;
    uint64_t req_id;
    uint32_t place; /* in the caller's list */
};

/* What one queue gets: items that stand side by side. */
struct share {
    struct qi_queue *queue;
    struct item *items;
    uint32_t count;
    uint64_t size, payload; /* bytes of the records; of headers and bodies */
};

struct mixed {
    struct qi_store *store;
    qi_change *given;
    uint32_t count, shares_count;
    struct item *items; /* by queue, and then in the caller's order */
    struct share *shares;
    struct qi_queue **queues; /* of the shares */
    uint32_t at; /* the message that an error is about; `count`: it is about no single one */
};

/* ---- what there is to do ---- */

static int by_queue(const void *one, const void *other) {
    const qi_change *left = *(const qi_change *const *)one,
                    *right = *(const qi_change *const *)other;
    if (left->queue != right->queue)
        return left->queue > right->queue ? 1 : -1;
    return (left > right) - (left < right);
}

struct qi_new_message qi_new_message_told(struct qi_store *store, const qi_change *told) {
    struct qi_new_message message =
        qi_new_message_of(store, told->headers, told->headers_size, told->body,
                          (uint32_t)told->body_size, told->flags, told->expiry_us, told->due_us);
    message.lease_us = told->lease_us;
    return message;
}

static int describe(struct mixed *mixed, const qi_change *given, struct item *item) {
    struct qi_store *store = mixed->store;
    mixed->at = item->place = (uint32_t)(given - mixed->given);
    if (given->body_size > UINT32_MAX - 64)
        return qi_fail(QI_E_ARGUMENT, "a message of 4 GiB or more cannot be published");
    if (given->lease_us && store->options.format < 2)
        return qi_fail_lease_format();
    item->message = qi_new_message_told(store, given);
    return 0;
}

static void add_to_share(struct mixed *mixed, struct qi_queue *queue, struct item *item) {
    struct share *last = mixed->shares_count ? &mixed->shares[mixed->shares_count - 1] : NULL;
    if (!last || last->queue != queue) {
        mixed->queues[mixed->shares_count] = queue;
        last = &mixed->shares[mixed->shares_count++];
        *last = (struct share){.queue = queue, .items = item};
    }
    last->count++;
    last->size += qi_publish_size(mixed->store, &item->message);
    last->payload += qi_publish_payload(&item->message);
}

static int plan(struct mixed *mixed) {
    const qi_change **sorted = malloc(mixed->count * sizeof *sorted);
    mixed->items = calloc(mixed->count, sizeof *mixed->items);
    mixed->shares = calloc(mixed->count, sizeof *mixed->shares);
    mixed->queues = calloc(mixed->count, sizeof(struct qi_queue *));
    int error = sorted && mixed->items && mixed->shares && mixed->queues
                    ? 0
                    : qi_fail(QI_E_MEMORY, "no memory for a batch of %u messages", mixed->count);
    for (uint32_t i = 0; i < mixed->count && !error; i++)
        sorted[i] = &mixed->given[i];
    if (!error)
        qsort(sorted, mixed->count, sizeof *sorted, by_queue);
    for (uint32_t i = 0; i < mixed->count && !error; i++) {
        error = describe(mixed, sorted[i], &mixed->items[i]);
        if (!error)
            add_to_share(mixed, sorted[i]->queue, &mixed->items[i]);
    }
    free(sorted);
    if (error)
        return error;
    mixed->at = mixed->count;
    for (uint32_t i = 0; i < mixed->shares_count; i++)
        if (mixed->shares[i].size > QI_FRAME_LENGTH_MAX)
            return qi_fail(QI_E_ARGUMENT, "a batch has at most 256 MiB of records for each queue; "
                                          "publish it in parts");
    return 0;
}

/* ---- room ---- */

static uint64_t frame_size(const struct share *share) {
    return QI_FRAME_HEADER + share->size;
}

static bool has_room(const struct share *share) {
    struct qi_queue *queue = share->queue;
    return qi_is_in_use(queue) && qi_files_stay(queue) == 0 &&
           qi_has_room(queue, frame_size(share), share->count) &&
           queue->highest + share->count <= queue->reserved_durable;
}

/* All queues are awake and have room, at one moment. To wait for one may take that from another, so
 * it is looked at again. */
static int make_room(struct mixed *mixed) {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        bool fits = true;
        for (uint32_t i = 0; i < mixed->shares_count; i++) {
            const struct share *share = &mixed->shares[i];
            mixed->at = share->items->place;
            int error = qi_queue_ready(share->queue, true);
            if (!error && share->queue->bounded)
                error = qi_trim(share->queue);
            if (!error)
                error = qi_make_room(share->queue, frame_size(share), share->count);
            if (error)
                return error;
        }
        for (uint32_t i = 0; i < mixed->shares_count && fits; i++)
            fits = has_room(&mixed->shares[i]);
        mixed->at = mixed->count;
        if (fits)
            return 0;
    }
    return qi_fail(QI_E_FULL, "no room in %u queues at the same time: nothing was published",
                   mixed->shares_count);
}

static int find_places(struct mixed *mixed) {
    struct qi_heads leaving = {0};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < mixed->shares_count; i++) {
        const struct share *share = &mixed->shares[i];
        share->queue->heads.count = share->queue->heads.gone = 0;
        bytes += share->payload;
        if (!share->queue->bounded)
            continue;
        mixed->at = share->items->place;
        int error = qi_files_stay(share->queue);
        if (!error)
            error = qi_queue_has_place(share->queue, share->count, share->payload);
        if (error)
            return error;
        leaving.count += share->queue->heads.count;
        leaving.bytes += share->queue->heads.bytes;
    }
    mixed->at = mixed->count;
    int error = qi_memory_has_room(mixed->store) ? 0 : QI_E_STORE_FULL;
    return error ? error : qi_store_has_place(mixed->store, mixed->count, bytes, &leaving);
}

/* ---- ReqIds and memory ---- */

static struct qi_slots *slots_of(const struct share *share, const struct item *item) {
    const struct qi_segment *segment = qi_segment_with(share->queue, item->req_id);
    return qi_slots_of(segment->hot, qi_slot_of(share->queue, item->req_id));
}

static void take_ids_back(const struct share *share, uint32_t count) {
    while (count-- > 0) {
        const struct item *item = &share->items[count];
        qi_lane_find(&share->queue->lanes, item->message.lane)->next--;
        qi_side_room_unused(slots_of(share, item));
    }
}

/* All memory that the maps need: nothing is put before all is there. */
static int reserve_maps(const struct share *share, struct item *item) {
    struct qi_queue *queue = share->queue;
    int error = qi_publish_maps(queue, &item->message, 1);
    if (error)
        return error;
    struct qi_slots *slots = slots_of(share, item);
    uint32_t slot = qi_slot_of(queue, item->req_id);
    error = qi_instant_room(&slots->published, slots->pub, slot, qi_current(queue)->moment_us);
    if (!error && item->message.due_us)
        error = qi_time_room(queue, qi_segment_with(queue, item->req_id), slot, 1, share->count);
    if (!error && item->message.lease_us)
        error = qi_side_room(slots, QI_SIDE_LEASE, 8);
    return error;
}

static int give_ids(const struct share *share) {
    for (uint32_t i = 0; i < share->count; i++) {
        struct item *item = &share->items[i];
        struct qi_lane *lane = qi_lane_make(share->queue, item->message.lane);
        item->req_id = lane ? lane->next : 0;
        int error = lane ? reserve_maps(share, item) : QI_E_MEMORY;
        if (error) {
            take_ids_back(share, i);
            return error;
        }
        lane->next++;
    }
    return 0;
}

/* Memory, and space on the disk. */
static int reserve(const struct share *share) {
    uint8_t *at;
    int error = qi_files_stay(share->queue);
    if (!error)
        error = qi_publish_moment(share->queue);
    if (!error)
        error = give_ids(share);
    if (error)
        return error;
    error = qi_journal_room(qi_current(share->queue), share->size, false, &at);
    if (!error)
        return 0;
    take_ids_back(share, share->count);
    return qi_append_failed(share->queue, error);
}

static void take_back(const struct mixed *mixed, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++)
        take_ids_back(&mixed->shares[i], mixed->shares[i].count);
}

/* The last of what can be refused, and the bodies. From here to the references in the index the
 * lock is not given up. */
static int prepare(struct mixed *mixed) {
    int error = 0;
    uint32_t reserved = 0;
    for (; reserved < mixed->shares_count && !error; reserved += !error)
        error = reserve(&mixed->shares[reserved]);
    qi_messages_gather(&mixed->store->messages);
    for (uint32_t i = 0; i < mixed->count && !error; i++)
        error = qi_publish_body(mixed->store, &mixed->items[i].message);
    error = qi_messages_gathered(&mixed->store->messages, error);
    for (uint32_t i = 0; i < mixed->shares_count && !error; i++) {
        const struct share *share = &mixed->shares[i];
        if (!share->queue->bounded)
            continue;
        error = qi_files_stay(share->queue);
        if (!error)
            error = qi_make_place(share->queue, &share->items->message, 1, frame_size(share));
    }
    if (!error)
        return 0;
    take_back(mixed, 0, reserved);
    return qi_publishes_failed(mixed->queues, mixed->shares_count, error);
}

/* ---- the records ---- */

static int append(const struct share *share) {
    struct qi_queue *queue = share->queue;
    struct qi_journal *journal = qi_current(queue);
    uint8_t *at;
    int error = qi_files_stay(queue);
    if (error)
        return error;
    error = qi_journal_room(journal, share->size, false, &at);
    uint8_t *next = at;
    for (uint32_t i = 0; i < share->count && !error; i++)
        next = qi_put_publish(queue, next, share->items[i].req_id, &share->items[i].message);
    if (!error)
        error = qi_journal_append(journal, QI_FRAME_RECORDS, (uint32_t)share->size);
    if (error)
        return qi_append_failed(queue, error);
    uint64_t offset = (uint64_t)(at - journal->tape.memory);
    for (uint32_t i = 0; i < share->count; i++) {
        const struct item *item = &share->items[i];
        qi_mark_published(queue, item->req_id, offset, &item->message);
        offset += qi_publish_size(queue->store, &item->message);
    }
    return 0;
}

static int publish(struct mixed *mixed) {
    int error = make_room(mixed);
    if (!error)
        error = find_places(mixed);
    if (!error)
        error = prepare(mixed);
    if (error)
        return error;
    for (uint32_t i = 0; i < mixed->shares_count; i++) {
        error = append(&mixed->shares[i]);
        if (!error)
            continue;
        take_back(mixed, i, mixed->shares_count);
        if (i == 0) /* later it would be wrong to say that nothing was published */
            return qi_publishes_failed(mixed->queues, mixed->shares_count, error);
        return qi_fail(error == QI_E_FULL ? QI_E_IO : error,
                       "only the first %u of %u queues have their messages: %s", i,
                       mixed->shares_count,
                       error == QI_E_FULL ? "the disk is full" : qi_error_text());
    }
    for (uint32_t i = 0; i < mixed->count; i++)
        mixed->given[mixed->items[i].place].req_id = mixed->items[i].req_id;
    for (uint32_t i = 0; i < mixed->shares_count; i++)
        if (qi_is_in_use(mixed->shares[i].queue)) /* the flush of one may give up the lock */
            qi_flush_if_due(mixed->shares[i].queue);
    return 0;
}

int qi_publish_mixed(struct qi_store *store, qi_change *messages, uint32_t count,
                     uint32_t *failed) {
    struct mixed mixed = {.store = store, .given = messages, .count = count, .at = count};
    if (count == 0)
        return 0;
    int error = plan(&mixed);
    if (!error) {
        qi_lock(store);
        error = publish(&mixed);
        for (uint32_t i = 0; i < mixed.shares_count && !error; i++)
            qi_dead_move_after(mixed.shares[i].queue, 0);
        qi_unlock(store);
    }
    *failed = mixed.at;
    free(mixed.items);
    free(mixed.queues);
    free(mixed.shares);
    return error;
}
