/* publish.c - a message comes into its queue: one, or a batch in one frame. (fanout.c: into several
 * queues.)
 *
 * A publish walks four rooms: python/calls.c, this file, journal.c (the record), segment.c (the
 * bits); a body that is not embedded stops at messages.c on the way. State changes after the append
 * succeeded, never before (H20), so an error leaves everything as it was.
 */
#include "queue/queue_private.h"

#include <inttypes.h>
#include <stdlib.h>

#define ANY_REQ_ID UINT64_MAX

/* Maps for `count` ReqIds of a segment from `slot` on. `segment` NULL: it is made. */
static int make_maps(struct qi_queue *queue, struct qi_segment **segment, uint64_t number,
                     uint32_t slot, uint32_t count) {
    if (!*segment && (*segment = qi_segment_make(&queue->segments, number)) != NULL)
        (*segment)->counted = true; /* nothing in it yet */
    if (!*segment)
        return qi_fail(QI_E_MEMORY, "no memory for the table of segments");
    if (!(*segment)->hot) {
        if (qi_segment_heat(*segment) != 0)
            return QI_E_MEMORY;
        (*segment)->hot->sized = queue->measured;
    }
    return qi_segment_room(*segment, slot, count);
}

/* The segment that new ReqIds go to, or NULL; true if it has maps for the one at `slot`. Lanes but
 * the last have to look for theirs. */
static inline bool tail_segment(struct qi_queue *queue, uint64_t number, uint32_t slot,
                                struct qi_segment **segment) {
    struct qi_segments *segments = &queue->segments;
    struct qi_segment *last =
        segments->count ? qi_segment_nth(segments, segments->count - 1) : NULL;
    if (!last || last->number != number)
        last = qi_segment_find(segments, number);
    *segment = last;
    return last && last->hot && qi_slots_of(last->hot, slot) != &qi_no_slots;
}

/* Memory for the maps of the next `count` ReqIds of a message's lane. */
int qi_publish_maps(struct qi_queue *queue, const struct qi_new_message *publish, uint32_t count) {
    uint32_t entries = queue->store->options.segment_entries;
    const struct qi_lane *lane = qi_lane_make(queue, publish->lane);
    if (!lane)
        return QI_E_MEMORY;
    for (uint64_t req_id = lane->next, end = req_id + count; req_id < end;) {
        uint32_t slot = qi_slot_of(queue, req_id),
                 left = (uint32_t)(end - req_id < entries - slot ? end - req_id : entries - slot);
        struct qi_segment *segment;
        uint64_t number = qi_segment_number(queue, req_id);
        bool has_maps = tail_segment(queue, number, slot, &segment) && count == 1;
        int error = has_maps ? 0 : make_maps(queue, &segment, number, slot, left);
        if (!error && publish->due_us)
            error = qi_time_room(queue, segment, slot, left, count);
        if (error)
            return error;
        req_id += left;
    }
    return 0;
}

/* What the queue says of all its messages, or the message of itself, whichever is earlier. */
static inline uint64_t expiry_of(const struct qi_queue *queue,
                                 const struct qi_new_message *publish) {
    uint64_t ttl_us = queue->rules.ttl_us, now = ttl_us ? qi_wall_us(queue->store) : 0;
    if (__builtin_expect(ttl_us == 0, 1))
        return publish->expiry_us;
    uint64_t end = (publish->due_us > now ? publish->due_us : now) + ttl_us;
    return publish->expiry_us && publish->expiry_us < end ? publish->expiry_us : end;
}

static inline bool has_sides(const struct qi_new_message *publish) {
    return publish->lease_us != 0 || publish->sides_size != 0;
}

static inline uint8_t *put_publish(const struct qi_queue *queue, uint8_t *at, uint64_t req_id,
                                   const struct qi_new_message *publish) {
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
    if (__builtin_expect(has_sides(publish), 0))
        at = qi_put_sides(at, req_id, publish);
    return at;
}

/* The bits of a publish whose record stands at journal offset `offset`. */
static inline void mark_published(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                                  uint64_t offset, const struct qi_new_message *publish) {
    uint32_t tag = queue->epoch % 2 ? QI_LOC_JOURNAL_ODD : QI_LOC_JOURNAL_EVEN;
    const uint8_t *record = qi_current(queue)->tape.memory + offset;
    uint64_t expiry_us = qi_get64(record + QI_RECORD_ID + QI_PUB_EXPIRY);
    struct qi_fields fields = {.expiry_us = expiry_us, .size = publish->body_size};
    fields.embedded = publish->id.stamp ? 0 : publish->headers_size + publish->body_size;
    qi_put_msg_id(fields.msg_id, publish->id);
    if (publish->id.stamp) {
        queue->bodies_end = queue->store->messages.written;
        qi_set_bit(&qi_slots_of(segment->hot, slot)->stored, slot);
        int error = qi_segment_use(segment->hot, publish->id.file, 1, qi_stored_bytes(publish->id));
        if (error) /* it is published; but nothing may be freed by what the memory says */
            qi_store_fail(queue->store, error);
        if (segment->counted)
            qi_messages_count(&queue->store->messages, publish->id.file, 1,
                              qi_stored_bytes(publish->id));
    }
    qi_segment_publish(queue, segment, slot, tag | (uint32_t)offset, qi_fields_sum(&fields),
                       (publish->flags & QI_TRANSIENT) != 0);
    qi_bytes_come(queue, segment, slot, publish->headers_size + publish->body_size);
    queue->counts.published++;
    queue->counts.published_bytes += publish->headers_size + publish->body_size;
    if (__builtin_expect(expiry_us != 0, 0))
        qi_segment_expires(queue, segment, expiry_us);
    if (publish->flags & QI_REDELIVERED) {
        qi_segment_deliver(queue, segment, slot);
        qi_spent_note(queue, segment, slot);
    }
    if (publish->due_us)
        qi_time_set(queue, segment, slot, qi_publish_time(publish));
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_instant_set(&slots->published, slots->pub, slot, qi_current(queue)->moment_us);
    if (__builtin_expect(has_sides(publish), 0))
        qi_mark_sides(segment, slot, publish);
}

/* Behind qi_publish_moment. */
static inline int instant_room(struct qi_queue *queue, const struct qi_segment *segment,
                               uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return qi_instant_room(&slots->published, slots->pub, slot, qi_current(queue)->moment_us);
}

/* Somebody waits: for a message, or for the time at which it is due. */
static inline void announce(struct qi_queue *queue, const struct qi_new_message *publish,
                            uint32_t count) {
    if (__builtin_expect(publish->due_us == 0, 1))
        qi_announce(queue, count);
    else
        qi_timers_armed(queue);
}

/* Called when there is room in the journal: from here to the reference in the index the lock is
 * never given up, so that nobody sees a body without references and frees it. */
int qi_publish_body(struct qi_store *store, struct qi_new_message *publish) {
    if (qi_is_embedded(store, publish))
        return 0;
    if (publish->headers_size + (uint64_t)publish->body_size > UINT32_MAX - 64)
        return qi_fail(QI_E_ARGUMENT, "a message of 4 GiB or more cannot be published");
    if (!qi_memory_has_room(store)) /* else the bytes would be written for nothing */
        return QI_E_STORE_FULL;
    const struct qi_payload payload = {.headers = publish->headers,
                                       .body = publish->body,
                                       .headers_size = publish->headers_size,
                                       .body_size = publish->body_size,
                                       .queues = publish->queues ? publish->queues : 1,
                                       .steady = (publish->flags & QI_STEADY) != 0};
    return qi_messages_append(&store->messages, &payload, &publish->id);
}

static inline void advance(struct qi_queue *queue, struct qi_lane *lane, uint32_t count) {
    lane->next += count;
    if (qi_count_of(lane->next) > queue->highest)
        queue->highest = qi_count_of(lane->next);
}

uint8_t *qi_put_publish(const struct qi_queue *queue, uint8_t *at, uint64_t req_id,
                        const struct qi_new_message *publish) {
    return put_publish(queue, at, req_id, publish);
}

void qi_mark_published(struct qi_queue *queue, uint64_t req_id, uint64_t offset,
                       const struct qi_new_message *publish) {
    struct qi_segment *segment = qi_segment_with(queue, req_id);
    mark_published(queue, segment, qi_slot_of(queue, req_id), offset, publish);
    if (qi_count_of(req_id) >= queue->highest)
        queue->highest = qi_count_of(req_id) + 1;
    announce(queue, publish, 1);
}

/* The record, where there is room for it already. */
int64_t qi_append_publish(struct qi_queue *queue, const struct qi_new_message *publish) {
    struct qi_lane *lane = __builtin_expect(publish->lane == 0, 1)
                               ? queue->lanes.items
                               : qi_lane_make(queue, publish->lane);
    if (!lane)
        return QI_E_MEMORY;
    uint64_t size = qi_publish_size(queue->store, publish), req_id = lane->next;
    uint32_t slot = qi_slot_of(queue, req_id);
    struct qi_segment *segment;
    uint64_t number = qi_segment_number(queue, req_id);
    int error = 0;
    if (__builtin_expect(!tail_segment(queue, number, slot, &segment), 0))
        error = qi_memory_has_room(queue->store) ? make_maps(queue, &segment, number, slot, 1)
                                                 : QI_E_STORE_FULL;
    if (error)
        return error;
    if (publish->due_us && qi_time_room(queue, segment, slot, 1, 1) != 0)
        return QI_E_MEMORY;
    if (__builtin_expect(publish->lease_us != 0, 0) &&
        qi_side_room(qi_slots_of(segment->hot, slot), QI_SIDE_LEASE, 8) != 0)
        return QI_E_MEMORY;
    struct qi_journal *journal = qi_current(queue);
    uint8_t *at;
    error = qi_publish_moment(queue);
    if (!error)
        error = instant_room(queue, segment, slot);
    if (error) {
        qi_side_room_unused(qi_slots_of(segment->hot, slot));
        return error;
    }
    error = qi_journal_room(journal, size, false, &at);
    if (!error) {
        put_publish(queue, at, req_id, publish);
        error = qi_journal_append(journal, QI_FRAME_RECORDS, (uint32_t)size);
    }
    if (error) {
        qi_side_room_unused(qi_slots_of(segment->hot, slot));
        return qi_append_failed(queue, error);
    }
    mark_published(queue, segment, slot, (uint64_t)(at - journal->tape.memory), publish);
    advance(queue, lane, 1);
    announce(queue, publish, 1);
    return (int64_t)req_id;
}

static int64_t publish_one(struct qi_queue *queue, struct qi_new_message *publish) {
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
    if (req_id < 0)
        return qi_publish_failed(queue, (int)req_id);
    qi_flush_if_due(queue);
    return req_id;
}

static struct qi_new_message new_message_of(const struct qi_queue *queue,
                                            const struct qi_given *given) {
    struct qi_new_message publish = qi_new_message_of(
        queue->store, given->headers, given->headers_size, given->body, (uint32_t)given->body_size,
        given->flags, given->expiry_us, given->due_us);
    publish.lease_us = given->lease_us;
    return publish;
}

int64_t qi_publish_given(struct qi_queue *queue, const struct qi_given *given) {
    if (given->body_size > UINT32_MAX - 64)
        return qi_fail(QI_E_ARGUMENT, "a message of 4 GiB or more cannot be published");
    if (given->lease_us && queue->store->options.format < 2)
        return qi_fail_lease_format();
    struct qi_new_message publish = new_message_of(queue, given);
    struct qi_store *store = queue->store;
    qi_lock(store);
    int64_t result = qi_queue_ready(queue, true);
    if (result == 0)
        result = publish_one(queue, &publish);
    qi_dead_move_after(queue, result);
    qi_unlock(store);
    return result;
}

int64_t qi_publish(struct qi_queue *queue, const void *body, size_t body_size) {
    return qi_publish_given(queue, &(struct qi_given){.body = body, .body_size = body_size});
}

int64_t qi_publish_now(struct qi_queue *queue, const struct qi_given *given) {
    uint64_t payload = given->headers_size + given->body_size;
    if (payload > QI_NOW_MAX || (given->lease_us && queue->store->options.format < 2))
        return QI_BUSY;
    struct qi_new_message publish = new_message_of(queue, given);
    if (!qi_begin_now(queue, qi_publish_size(queue->store, &publish), 1))
        return QI_BUSY;
    int64_t result = QI_BUSY;
    bool may_move = queue->bounded && queue->dead_to; /* what it buries moves, and that may wait */
    if (!may_move && (qi_is_embedded(queue->store, &publish) ||
                      qi_messages_has_room(&queue->store->messages, payload))) {
        queue->heads.in_memory = true;
        result = publish_one(queue, &publish);
        queue->heads.in_memory = false;
    }
    qi_unlock(queue->store);
    return result;
}

int64_t qi_publish_with(struct qi_queue *queue, const void *headers, uint32_t headers_size,
                        const void *body, uint32_t body_size, uint32_t flags, uint64_t expiry_us,
                        uint64_t due_us) {
    return qi_publish_leased(queue, headers, headers_size, body, body_size, flags, expiry_us,
                             due_us, 0);
}

int64_t qi_publish_leased(struct qi_queue *queue, const void *headers, uint32_t headers_size,
                          const void *body, uint32_t body_size, uint32_t flags, uint64_t expiry_us,
                          uint64_t due_us, uint64_t lease_us) {
    const struct qi_given given = {headers, body,      body_size, headers_size,
                                   flags,   expiry_us, due_us,    lease_us};
    return qi_publish_given(queue, &given);
}

/* One message of a batch, as the arrays say. */
struct batch_input {
    const uintptr_t *addresses; /* of the bodies; NULL: they lie end to end */
    const uint8_t *bodies, *headers;
    const uint32_t *body_sizes, *headers_sizes;
    uint32_t flags;
    uint64_t expiry_us, due_us;
    uint32_t lane;
    const uint8_t *per_flags;
    const uint64_t *per_expiry_us;
    uint64_t lease_us;
};

static void batch_item(struct batch_input *input, uint32_t i, struct qi_new_message *publish) {
    *publish = (struct qi_new_message){
        .headers = input->headers,
        .body = input->addresses ? (const void *)input->addresses[i] : input->bodies,
        .headers_size = input->headers_sizes ? input->headers_sizes[i] : 0,
        .body_size = input->body_sizes[i],
        .flags = input->flags | (input->per_flags ? input->per_flags[i] : 0u),
        .due_us = input->due_us,
        .lane = input->lane,
        .lease_us = input->lease_us,
        .expiry_us = input->per_expiry_us ? input->per_expiry_us[i] : input->expiry_us};
    input->headers += publish->headers_size;
    if (!input->addresses)
        input->bodies += publish->body_size;
}

/* All records in one frame: all of it or nothing (H11). */
static int64_t publish_batch(struct qi_queue *queue, struct qi_new_message *items, uint32_t count) {
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
    if (!error && !qi_memory_has_room(queue->store))
        error = QI_E_STORE_FULL;
    if (!error && queue->bounded)
        error = qi_has_place(queue, count, payload);
    qi_messages_gather(&queue->store->messages);
    for (uint32_t i = 0; i < count && !error; i++)
        error = qi_publish_body(queue->store, &items[i]);
    error = qi_messages_gathered(&queue->store->messages, error);
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
    error = qi_publish_moment(queue);
    struct qi_segment *segment = qi_segment_with(queue, first);
    if (!error) /* the pieces behind are new */
        error = instant_room(queue, segment, qi_slot_of(queue, first));
    if (!error && items->lease_us)
        error = qi_leases_room(queue, first, count);
    if (error)
        return qi_publish_failed(queue, error);
    error = qi_journal_room(journal, size, false, &at);
    next = at;
    for (uint32_t i = 0; i < count && !error; i++)
        next = put_publish(queue, next, first + i, &items[i]);
    if (!error)
        error = qi_journal_append(journal, QI_FRAME_RECORDS, (uint32_t)size);
    if (error && items->lease_us)
        qi_leases_unused(queue, first, count);
    if (error)
        return qi_publish_failed(queue, qi_append_failed(queue, error));
    uint64_t offset = (uint64_t)(at - journal->tape.memory);
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

static int64_t publish_many(struct qi_queue *queue, uint64_t first, uint32_t count,
                            const void *bodies, const uintptr_t *addresses,
                            const uint32_t *body_sizes, const void *headers,
                            const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                            uint64_t due_us, const uint8_t *per_flags,
                            const uint64_t *per_expiry_us, uint64_t lease_us) {
    struct qi_new_message few[128], *items = count <= 128 ? few : malloc(count * sizeof *items);
    if (!items)
        return qi_fail(QI_E_MEMORY, "no memory for a batch of %u messages", count);
    struct batch_input input = {addresses,
                                bodies,
                                headers,
                                body_sizes,
                                headers_sizes,
                                flags,
                                expiry_us,
                                qi_time_given(due_us),
                                qi_publish_lane(queue->store, flags, due_us),
                                per_flags,
                                per_expiry_us,
                                lease_us};
    for (uint32_t i = 0; i < count; i++)
        batch_item(&input, i, &items[i]);
    qi_lock(queue->store);
    int64_t result = qi_queue_ready(queue, true);
    if (result == 0 && first != ANY_REQ_ID && first != qi_lane_next(queue, input.lane))
        result = qi_fail(QI_E_ARGUMENT, "the next message would not get ReqId %" PRIu64, first);
    if (result == 0)
        result = count ? publish_batch(queue, items, count) : (int64_t)queue->lanes.items[0].next;
    qi_dead_move_after(queue, result);
    qi_unlock(queue->store);
    if (items != few)
        free(items);
    return result;
}

int64_t qi_publish_many(struct qi_queue *queue, uint32_t count, const void *bodies,
                        const uint32_t *body_sizes, const void *headers,
                        const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                        uint64_t due_us, const uint8_t *per_flags, const uint64_t *per_expiry_us) {
    return publish_many(queue, ANY_REQ_ID, count, bodies, NULL, body_sizes, headers, headers_sizes,
                        flags, expiry_us, due_us, per_flags, per_expiry_us, 0);
}

int64_t qi_publish_bodies(struct qi_queue *queue, uint32_t count, const uintptr_t *bodies,
                          const uint32_t *body_sizes, const void *headers,
                          const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                          uint64_t due_us, const uint8_t *per_flags,
                          const uint64_t *per_expiry_us) {
    return publish_many(queue, ANY_REQ_ID, count, NULL, bodies, body_sizes, headers, headers_sizes,
                        flags, expiry_us, due_us, per_flags, per_expiry_us, 0);
}

int64_t qi_publish_bodies_leased(struct qi_queue *queue, uint32_t count, const uintptr_t *bodies,
                                 const uint32_t *body_sizes, const void *headers,
                                 const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                                 uint64_t due_us, const uint8_t *per_flags,
                                 const uint64_t *per_expiry_us, uint64_t lease_us) {
    if (lease_us && queue->store->options.format < 2)
        return qi_fail_lease_format();
    return publish_many(queue, ANY_REQ_ID, count, NULL, bodies, body_sizes, headers, headers_sizes,
                        flags, expiry_us, due_us, per_flags, per_expiry_us, lease_us);
}

int64_t qi_publish_many_at(struct qi_queue *queue, uint64_t first, uint32_t count,
                           const void *bodies, const uint32_t *body_sizes, const void *headers,
                           const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                           uint64_t due_us, const uint8_t *per_flags,
                           const uint64_t *per_expiry_us) {
    return publish_many(queue, first, count, bodies, NULL, body_sizes, headers, headers_sizes,
                        flags, expiry_us, due_us, per_flags, per_expiry_us, 0);
}
