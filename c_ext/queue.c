/* queue.c - publish, and the room in the journal that every verb needs. (deliver.c: get, browse, nack, purge. ack.c: ack.)
 *
 * A publish walks four rooms: python/calls.c, this file, journal.c (the record), segment.c (the bits); a body
 * that is not embedded stops at messages.c on the way. State changes after the append succeeded, never before (H20), so
 * an error leaves everything as it was.
 */
#include "queue.h"

#include <stdlib.h>

#include "bug.h"
#include "bytes.h"
#include "publish.h"

/* Appends of deliveries and acks behind a publish must always fit (H14): this much is kept from publishes. */
#define ACK_ROOM      (UINT64_C(4) << 20)
/* A MANIFEST may be as long as this without counting as content of the journal. */
#define MANIFEST_ROOM (UINT64_C(256) << 10)
#define EVENT_ROOM    (UINT64_C(64) << 10) /* for the frames that describe the queue itself */

int qi_append_failed(struct qi_queue *queue, int error) {
    if (error == -28 /* ENOSPC */)
        return qi_fail(
            QI_E_FULL,
            "the disk is full: nothing was changed; ack messages or free space, then try again");
    if (error == -27 /* EFBIG */)
        return qi_fail(QI_E_FULL, "the journal of %s is full: nothing was changed",
                       queue->directory);
    return qi_store_fail(queue->store,
                         qi_fail_disk(error, "cannot append to the journal of", queue->directory));
}

/* Room in the journal, and ReqIds that are promised in it. What both journals hold must fit into the reserve that is
 * left for their flushes (H14). */
bool qi_has_room(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    const qi_options *options = &queue->store->options;
    const struct qi_journal *journal = qi_current(queue);
    /* While a flush runs, a quarter more may come; then publishers wait for the disk, so that there are never more than
     * two such journals to read after a crash. */
    uint64_t dirty_max = options->max_journal_entries * UINT64_C(5) / 4;
    uint64_t tail_max = 2 * options->max_journal_bytes + QI_JOURNAL_START + MANIFEST_ROOM;
    return journal->tail + bytes + ACK_ROOM <= journal->tape.mapped &&
           queue->dirty_count <= dirty_max &&
           (journal->tail <= tail_max || queue->dirty_count == 0) &&
           queue->highest + ids <= queue->reserved;
}

static inline bool is_flush_due(struct qi_queue *queue) {
    const qi_options *options = &queue->store->options;
    return queue->dirty_count > options->max_journal_entries ||
           qi_current(queue)->tail > options->max_journal_bytes;
}

bool qi_begin_now(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    struct qi_store *store = queue->store;
    if (!qi_try_lock(store))
        return false;
    if (__builtin_expect(qi_store_usable(store, true) == 0 && qi_is_awake(queue) &&
                             !queue->short_of_space && qi_has_room(queue, bytes, ids) &&
                             queue->highest + ids <= queue->reserved_durable &&
                             (queue->flush || !is_flush_due(queue)),
                         1))
        return true;
    pthread_mutex_unlock(&store->lock);
    return false;
}

/* The worker runs it; or who needs the room first. */
static int begin_flush(struct qi_queue *queue, uint64_t room, uint64_t ids) {
    struct qi_store *store = queue->store;
    int error = qi_flush_begin(queue, room, ids);
    if (!error && store->deferring) {
        store->flush_due = true;
        qi_wake_worker(store);
    }
    return error;
}

/* The usual case is one comparison each; the rest waits for a flush or a sync, its own or one that is under way. */
int qi_make_room(struct qi_queue *queue, uint64_t bytes, uint64_t ids) {
    struct qi_store *store = queue->store;
    if (__builtin_expect(queue->short_of_space, 0) && ids > 0) {
        queue->short_of_space = qi_is_short_of_space(store);
        if (queue->short_of_space)
            return qi_append_failed(queue, -28); /* ENOSPC */
    }
    for (int attempt = 0;; attempt++) {
        bool fits = qi_has_room(queue, bytes, ids);
        if (__builtin_expect(fits && (queue->highest + ids <= queue->reserved_durable ||
                                      QI_BUG(reserve_not_durable)),
                             1))
            return 0;
        int error = 0;
        if (fits)
            error = qi_sync_to(queue, qi_lsn(queue)); /* the promise of these ReqIds */
        else if (queue->flush && queue->flushing)
            pthread_cond_wait(&store->changed, &store->lock);
        else if (queue->flush)
            error = qi_flush_run(queue);
        else if (attempt > 100)
            error = qi_fail(QI_E_ARGUMENT,
                            "a batch of %llu bytes is too big for one frame; publish it in parts",
                            (unsigned long long)bytes);
        else
            error = begin_flush(queue, bytes + ACK_ROOM, ids);
        if (!error)
            error = qi_queue_ready(queue, true); /* the wait may have been long */
        if (error)
            return error;
    }
}

/* Deliveries and acks may use what publishes must leave: they need no flush that a full disk would not allow (H14). */
int qi_make_event_room(struct qi_queue *queue, uint64_t bytes) {
    const struct qi_journal *journal = qi_current(queue);
    if (__builtin_expect(journal->tail + bytes + EVENT_ROOM <= journal->tape.mapped, 1))
        return 0;
    return qi_make_room(queue, bytes, 0);
}

void qi_flush_if_due(struct qi_queue *queue) {
    queue->used = true;
    qi_store_dirty(queue->store);
    if (__builtin_expect(!is_flush_due(queue) || queue->flush, 1))
        return;
    if (begin_flush(queue, 0, 0) == 0 && !queue->store->deferring)
        qi_flush_run(queue); /* if it cannot be begun or fails: the next append asks again */
}

/* The segment that new ReqIds go to, with maps for `count` of them from `slot` on. Lanes but the last have to look for
 * theirs. */
static struct qi_segment *tail_segment(struct qi_queue *queue, uint64_t number, uint32_t slot,
                                       uint32_t count) {
    struct qi_segments *segments = &queue->segments;
    struct qi_segment *last =
        segments->count ? qi_segment_nth(segments, segments->count - 1) : NULL;
    if (!last || last->number != number)
        last = qi_segment_find(segments, number);
    if (!last && (last = qi_segment_make(segments, number)) != NULL)
        last->counted = true; /* nothing in it yet */
    if (!last) {
        qi_fail(QI_E_MEMORY, "no memory for the table of segments");
        return NULL;
    }
    if (!last->hot) {
        if (qi_segment_heat(last) != 0)
            return NULL;
        last->hot->sized = queue->measured;
    }
    if (count == 1 && qi_slots_of(last->hot, slot) != &qi_no_slots)
        return last; /* the usual one */
    return qi_segment_room(last, slot, count) ? NULL : last;
}

/* Memory for the maps of the next `count` ReqIds of a message's lane. */
int qi_publish_maps(struct qi_queue *queue, const struct qi_publish *publish, uint32_t count) {
    uint32_t entries = queue->store->options.segment_entries;
    const struct qi_lane *lane = qi_lane_make(queue, publish->lane);
    if (!lane)
        return QI_E_MEMORY;
    for (uint64_t req_id = lane->next, end = req_id + count; req_id < end;) {
        uint32_t slot = qi_slot_of(queue, req_id),
                 left = (uint32_t)(end - req_id < entries - slot ? end - req_id : entries - slot);
        struct qi_segment *segment =
            tail_segment(queue, qi_segment_number(queue, req_id), slot, left);
        if (!segment || (publish->due_us && qi_time_room(queue, segment, slot, left, count) != 0))
            return QI_E_MEMORY;
        req_id += left;
    }
    return 0;
}

/* What the queue says of all its messages, or the message of itself, whichever is earlier. */
static inline uint64_t expiry_of(const struct qi_queue *queue, const struct qi_publish *publish) {
    uint64_t ttl_us = queue->rules.ttl_us, now = ttl_us ? qi_now_us(queue->store) : 0;
    if (__builtin_expect(ttl_us == 0, 1))
        return publish->expiry_us;
    uint64_t end = (publish->due_us > now ? publish->due_us : now) + ttl_us;
    return publish->expiry_us && publish->expiry_us < end ? publish->expiry_us : end;
}

static inline uint8_t *put_publish(const struct qi_queue *queue, uint8_t *at, uint64_t req_id,
                                   const struct qi_publish *publish) {
    uint32_t payload = publish->headers_size + publish->body_size;
    bool stored = publish->id.stamp != 0;
    qi_put_record_id(at, publish->flags & QI_TRANSIENT ? QI_PUB_TRANSIENT : QI_PUB_PERSISTENT,
                     req_id);
    at += QI_RECORD_ID;
    qi_put_msg_id(at + QI_PUB_MSG_ID, publish->id);
    qi_put64(at + QI_PUB_EXPIRY, expiry_of(queue, publish));
    qi_put32(at + QI_PUB_SIZE, publish->body_size);
    qi_put32(at + QI_PUB_EMBEDDED, stored ? 0 : payload);
    at += QI_PUB_FIELDS;
    if (!stored) {
        if (publish->headers_size)
            memcpy(at, publish->headers, publish->headers_size);
        memcpy(at + publish->headers_size, publish->body, publish->body_size);
        at += payload;
    }
    if (publish->flags & QI_REDELIVERED) {
        qi_put_record_id(at, QI_DELIVER, req_id);
        at += QI_RECORD_ID;
    }
    if (publish->due_us) {
        qi_put_time(at, req_id, qi_publish_time(publish));
        at += QI_TIME_RECORD;
    }
    return at;
}

/* The bits of a publish whose record stands at journal offset `offset`. */
static inline void mark_published(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                                  uint64_t offset, const struct qi_publish *publish) {
    uint32_t tag = queue->epoch % 2 ? QI_LOC_JOURNAL_ODD : QI_LOC_JOURNAL_EVEN;
    const uint8_t *record = qi_current(queue)->tape.memory + offset;
    uint64_t expiry_us = qi_get64(record + QI_RECORD_ID + QI_PUB_EXPIRY);
    if (publish->id.stamp) {
        qi_set_bit(&qi_slots_of(segment->hot, slot)->stored, slot);
        int error = qi_segment_use(segment->hot, publish->id.file, 1, qi_stored_bytes(publish->id));
        if (error) /* it is published; but nothing may be freed by what the memory says */
            qi_store_fail(queue->store, error);
        if (segment->counted)
            qi_messages_count(&queue->store->messages, publish->id.file, 1,
                              qi_stored_bytes(publish->id));
    }
    qi_segment_publish(queue, segment, slot, tag | (uint32_t)offset,
                       (publish->flags & QI_TRANSIENT) != 0);
    qi_bytes_come(queue, segment, slot, publish->headers_size + publish->body_size);
    if (__builtin_expect(expiry_us != 0, 0))
        qi_segment_expires(queue, segment, expiry_us);
    if (publish->flags & QI_REDELIVERED)
        qi_segment_deliver(queue, segment, slot);
    if (publish->due_us)
        qi_time_set(queue, segment, slot, qi_publish_time(publish));
}

/* Somebody waits: for a message, or for the time at which it is due. */
static inline void announce(struct qi_queue *queue, const struct qi_publish *publish,
                            uint32_t count) {
    if (__builtin_expect(publish->due_us == 0, 1))
        qi_announce(queue, count);
    else
        qi_timers_armed(queue);
}

/* Called when there is room in the journal: from here to the reference in the index the lock is never given up, so
 * that nobody sees a body without references and frees it. */
int qi_publish_body(struct qi_store *store, struct qi_publish *publish) {
    if (qi_is_embedded(store, publish))
        return 0;
    if (publish->headers_size + (uint64_t)publish->body_size > UINT32_MAX - 64)
        return qi_fail(QI_E_ARGUMENT, "a message of 4 GiB or more cannot be published");
    return qi_messages_append(&store->messages, publish->headers, publish->headers_size,
                              publish->body, publish->body_size,
                              publish->queues ? publish->queues : 1, &publish->id);
}

static inline void advance(struct qi_queue *queue, struct qi_lane *lane, uint32_t count) {
    lane->next += count;
    if (qi_count_of(lane->next) > queue->highest)
        queue->highest = qi_count_of(lane->next);
}

/* The record, where there is room for it already. */
int64_t qi_append_publish(struct qi_queue *queue, const struct qi_publish *publish) {
    struct qi_lane *lane = __builtin_expect(publish->lane == 0, 1)
                               ? queue->lanes.items
                               : qi_lane_make(queue, publish->lane);
    if (!lane)
        return QI_E_MEMORY;
    uint64_t size = qi_publish_size(queue->store, publish), req_id = lane->next;
    uint32_t slot = qi_slot_of(queue, req_id);
    struct qi_segment *segment = tail_segment(queue, qi_segment_number(queue, req_id), slot, 1);
    if (!segment || (publish->due_us && qi_time_room(queue, segment, slot, 1, 1) != 0))
        return QI_E_MEMORY;
    struct qi_journal *journal = qi_current(queue);
    uint8_t *at;
    int error = qi_journal_room(journal, size, false, &at);
    if (error)
        return qi_append_failed(queue, error);
    put_publish(queue, at, req_id, publish);
    error = qi_journal_append(journal, QI_FRAME_RECORDS, (uint32_t)size);
    if (error)
        return qi_append_failed(queue, error);
    mark_published(queue, segment, slot, (uint64_t)(at - journal->tape.memory), publish);
    advance(queue, lane, 1);
    announce(queue, publish, 1);
    return (int64_t)req_id;
}

static int64_t publish_one(struct qi_queue *queue, struct qi_publish *publish) {
    int error = __builtin_expect(queue->bounded, 0) ? qi_trim(queue) : 0;
    if (!error)
        error = qi_make_room(queue, qi_publish_size(queue->store, publish), 1);
    if (__builtin_expect(!error && queue->bounded, 0))
        error = qi_has_place(queue, 1, qi_publish_payload(publish));
    if (!error)
        error = qi_publish_body(queue->store, publish);
    if (__builtin_expect(!error && queue->bounded, 0))
        error = qi_make_place(queue, publish, 1, qi_publish_size(queue->store, publish));
    if (error)
        return error;
    int64_t req_id = qi_append_publish(queue, publish);
    queue->heads.in_memory = false; /* without a worker, what follows gives up the lock */
    if (req_id >= 0)
        qi_flush_if_due(queue);
    return req_id;
}

static int64_t publish_locked(struct qi_queue *queue, struct qi_publish *publish) {
    struct qi_store *store = queue->store;
    qi_lock(store);
    int64_t result = qi_queue_ready(queue, true);
    if (result == 0)
        result = publish_one(queue, publish);
    qi_unlock(store);
    return result;
}

int64_t qi_publish(struct qi_queue *queue, const void *body, size_t body_size) {
    if (body_size > UINT32_MAX - 64)
        return qi_fail(QI_E_ARGUMENT, "a message of 4 GiB or more cannot be published");
    struct qi_publish publish = {.body = body, .body_size = (uint32_t)body_size};
    return publish_locked(queue, &publish);
}

int64_t qi_publish_now(struct qi_queue *queue, const void *body, size_t body_size, uint32_t flags,
                       uint64_t due_us) {
    if (body_size >= queue->store->options.embed_below)
        return QI_BUSY;
    struct qi_publish publish = {.body = body,
                                 .body_size = (uint32_t)body_size,
                                 .flags = flags,
                                 .due_us = due_us,
                                 .lane = qi_publish_lane(queue->store, flags, due_us)};
    if (!qi_begin_now(queue, qi_publish_size(queue->store, &publish), 1))
        return QI_BUSY;
    queue->heads.in_memory = true;
    int64_t result = publish_one(queue, &publish);
    queue->heads.in_memory = false;
    qi_unlock(queue->store);
    return result;
}

int64_t qi_publish_with(struct qi_queue *queue, const void *headers, uint32_t headers_size,
                        const void *body, uint32_t body_size, uint32_t flags, uint64_t expiry_us,
                        uint64_t due_us) {
    struct qi_publish publish = {headers,      body,
                                 headers_size, body_size,
                                 flags,        expiry_us,
                                 {0, 0, 0},    1,
                                 due_us,       qi_publish_lane(queue->store, flags, due_us)};
    return publish_locked(queue, &publish);
}

/* One message of a batch, as the arrays say. */
struct batch_input {
    const uint8_t *bodies, *headers;
    const uint32_t *body_sizes, *headers_sizes;
    uint32_t flags;
    uint64_t expiry_us, due_us;
    uint32_t lane;
    const uint8_t *per_flags;
    const uint64_t *per_expiry_us;
};

static void batch_item(struct batch_input *input, uint32_t i, struct qi_publish *publish) {
    *publish = (struct qi_publish){
        .headers = input->headers,
        .body = input->bodies,
        .headers_size = input->headers_sizes ? input->headers_sizes[i] : 0,
        .body_size = input->body_sizes[i],
        .flags = input->flags | (input->per_flags ? input->per_flags[i] : 0u),
        .due_us = input->due_us,
        .lane = input->lane,
        .expiry_us = input->per_expiry_us ? input->per_expiry_us[i] : input->expiry_us};
    input->headers += publish->headers_size;
    input->bodies += publish->body_size;
}

/* All records in one frame: all of it or nothing (H11). */
static int64_t publish_batch(struct qi_queue *queue, struct qi_publish *items, uint32_t count) {
    uint64_t size = 0, payload = 0;
    if (QI_BUG(batch_split) && count > 1) {
        int64_t id = publish_batch(queue, items, 1);
        return publish_batch(queue, items + 1, count - 1) < 0 ? QI_E_FAILED : id;
    }
    for (uint32_t i = 0; i < count; i++) {
        size += qi_publish_size(queue->store, &items[i]);
        payload += qi_publish_payload(&items[i]);
    }
    if (size > QI_FRAME_LENGTH_MAX)
        return qi_fail(QI_E_ARGUMENT,
                       "a batch has at most 256 MiB of records; publish it in parts");
    int error = queue->bounded ? qi_trim(queue) : 0;
    if (!error)
        error = qi_make_room(queue, size, count);
    if (!error && queue->bounded)
        error = qi_has_place(queue, count, payload);
    for (uint32_t i = 0; i < count && !error; i++)
        error = qi_publish_body(queue->store, &items[i]);
    if (!error && queue->bounded)
        error = qi_make_place(queue, items, count, size);
    if (!error)
        error = qi_publish_maps(queue, items, count);
    if (error)
        return error;
    struct qi_lane *lane = qi_lane_find(&queue->lanes, items->lane); /* its maps are made */
    uint64_t first = lane->next;
    struct qi_journal *journal = qi_current(queue);
    uint8_t *at, *next;
    error = qi_journal_room(journal, size, false, &at);
    if (error)
        return qi_append_failed(queue, error);
    next = at;
    for (uint32_t i = 0; i < count; i++)
        next = put_publish(queue, next, first + i, &items[i]);
    error = qi_journal_append(journal, QI_FRAME_RECORDS, (uint32_t)size);
    if (error)
        return qi_append_failed(queue, error);
    uint64_t offset = (uint64_t)(at - journal->tape.memory);
    struct qi_segment *segment = NULL;
    for (uint32_t i = 0; i < count; i++) {
        segment =
            qi_segment_find_near(&queue->segments, segment, qi_segment_number(queue, first + i));
        mark_published(queue, segment, qi_slot_of(queue, first + i), offset, &items[i]);
        offset += qi_publish_size(queue->store, &items[i]);
    }
    advance(queue, lane, count);
    announce(queue, items, count);
    qi_flush_if_due(queue);
    return (int64_t)first;
}

int64_t qi_publish_many(struct qi_queue *queue, uint32_t count, const void *bodies,
                        const uint32_t *body_sizes, const void *headers,
                        const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                        uint64_t due_us, const uint8_t *per_flags, const uint64_t *per_expiry_us) {
    struct qi_publish few[128], *items = count <= 128 ? few : malloc(count * sizeof *items);
    if (!items)
        return qi_fail(QI_E_MEMORY, "no memory for a batch of %u messages", count);
    struct batch_input input = {
        bodies,    headers,      body_sizes, headers_sizes,
        flags,     expiry_us,    due_us,     qi_publish_lane(queue->store, flags, due_us),
        per_flags, per_expiry_us};
    for (uint32_t i = 0; i < count; i++)
        batch_item(&input, i, &items[i]);
    qi_lock(queue->store);
    int64_t result = qi_queue_ready(queue, true);
    if (result == 0)
        result = count ? publish_batch(queue, items, count) : (int64_t)queue->lanes.items[0].next;
    qi_unlock(queue->store);
    if (items != few)
        free(items);
    return result;
}
