/* index.c - the index alone, for brokers that keep bodies elsewhere (QueueIndex): bulk publish,
 * deliver, ack, read.
 *
 * The same journal, segments and rules as a queue; the caller's 16-byte MsgIds are kept as they
 * are, and a message may be acked whether or not it was delivered.
 */
#include "queue/queue_private.h"

/* The part of [req_id, req_id + left) that lies in one segment. */
struct span {
    struct qi_segment *segment; /* NULL: there is none */
    uint32_t slot, count;
};

static struct span span_at(struct qi_queue *queue, uint64_t req_id, uint32_t left) {
    uint32_t entries = queue->store->options.segment_entries, slot = qi_slot_of(queue, req_id);
    return (struct span){qi_segment_with(queue, req_id), slot,
                         left < entries - slot ? left : entries - slot};
}

#define STRIDE (QI_RECORD_ID + QI_PUB_FIELDS)

/* The bits of a span whose records stand at `loc`, and in memory at `records`. */
static void mark_span(struct qi_queue *queue, const struct span *span, uint32_t flags, uint32_t loc,
                      const uint8_t *records) {
    if (!(flags & QI_TRANSIENT)) {
        qi_segment_publish_range(queue, span->segment, span->slot, span->count, loc, records,
                                 STRIDE);
        return;
    }
    for (uint32_t i = 0; i < span->count; i++) {
        struct qi_fields fields;
        qi_get_fields(records + (size_t)i * STRIDE + QI_RECORD_ID, &fields);
        qi_segment_publish(queue, span->segment, span->slot + i, loc + i * STRIDE,
                           qi_fields_sum(&fields), true);
    }
}

int64_t qi_index_publish(struct qi_queue *queue, uint32_t count, const void *msg_ids,
                         const uint32_t *sizes, uint32_t flags) {
    const uint64_t size = (QI_RECORD_ID + QI_PUB_FIELDS) * (uint64_t)count;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error && size > QI_FRAME_LENGTH_MAX)
        error =
            qi_fail(QI_E_ARGUMENT, "a batch has at most 256 MiB of records; publish it in parts");
    if (!error)
        error = qi_make_room(queue, size, count);
    struct qi_lane *lane = queue->lanes.items;
    uint64_t first = lane->next;
    struct qi_segment *segment = NULL;
    for (uint64_t n = qi_segment_number(queue, first);
         !error && count && n <= qi_segment_number(queue, first + count - 1); n++) {
        segment = qi_segment_make(&queue->segments, n);
        error = segment ? qi_segment_heat(segment)
                        : qi_fail(QI_E_MEMORY, "no memory for the table of segments");
        if (!error)
            segment->counted = true;
    }
    for (uint32_t done = 0; !error && done < count;) {
        struct span span = span_at(queue, first + done, count - done);
        error = qi_segment_room(span.segment, span.slot, span.count);
        done += span.count;
    }
    struct qi_journal *journal = qi_current(queue);
    uint8_t *at = NULL;
    if (!error && count && (error = qi_journal_room(journal, size, false, &at)))
        error = qi_append_failed(queue, error);
    if (!error && count) {
        const struct qi_msg_id none = {0, 0, 0};
        uint8_t *next = at;
        enum qi_record_kind kind = flags & QI_TRANSIENT ? QI_PUB_TRANSIENT : QI_PUB_PERSISTENT;
        for (uint32_t i = 0; i < count; i++, next += QI_PUB_FIELDS) {
            qi_put_record_id(next, kind, first + i);
            next += QI_RECORD_ID;
            qi_put_msg_id(next, none);
            if (msg_ids)
                memcpy(next, (const uint8_t *)msg_ids + (size_t)i * QI_MSG_ID_SIZE, QI_MSG_ID_SIZE);
            qi_put64(next + QI_PUB_EXPIRY, 0);
            qi_put32(next + QI_PUB_SIZE, sizes ? sizes[i] : 0);
            qi_put32(next + QI_PUB_EMBEDDED, 0);
        }
        error = qi_journal_append(journal, QI_FRAME_RECORDS, (uint32_t)size);
        if (error)
            error = qi_append_failed(queue, error);
    }
    if (!error && count) {
        uint32_t tag = queue->epoch % 2 ? QI_LOC_JOURNAL_ODD : QI_LOC_JOURNAL_EVEN;
        uint32_t offset = (uint32_t)(at - journal->tape.memory);
        for (uint32_t done = 0; done < count;) {
            struct span span = span_at(queue, first + done, count - done);
            mark_span(queue, &span, flags, tag | (offset + done * STRIDE),
                      at + (size_t)done * STRIDE);
            done += span.count;
        }
        lane->next = first + count;
        queue->highest = lane->next;
        qi_flush_if_due(queue);
    }
    qi_unlock(queue->store);
    return error ? error : (int64_t)first;
}

static uint64_t id_at(const uint64_t *req_ids, uint64_t first, uint32_t i) {
    return req_ids ? req_ids[i] : first + i;
}

/* All of [first, first + count) is alive and has nothing special: then it can be changed word by
 * word. */
static bool is_plain(struct qi_queue *queue, uint64_t first, uint32_t count) {
    for (uint32_t done = 0; done < count;) {
        struct span span = span_at(queue, first + done, count - done);
        if (!span.segment || span.segment->unacked == 0 ||
            qi_segment_load(queue, span.segment) != 0 ||
            !qi_segment_is_plain_range(span.segment, span.slot, span.count))
            return false;
        done += span.count;
    }
    return true;
}

static void change_range(struct qi_queue *queue, uint64_t first, uint32_t count,
                         enum qi_record_kind kind) {
    for (uint32_t done = 0; done < count;) {
        struct span span = span_at(queue, first + done, count - done);
        if (kind == QI_DELIVER)
            qi_segment_deliver_range(queue, span.segment, span.slot, span.count);
        else
            qi_segment_ack_range(queue, span.segment, span.slot, span.count);
        done += span.count;
    }
}

/* A change of all or none: checked first, then one frame, then the bits. */
static int64_t change(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count,
                      uint64_t first, enum qi_record_kind kind) {
    struct qi_segment *segment = NULL;
    uint32_t slot;
    qi_lock(queue->store);
    int error = qi_queue_ready(queue, true);
    if (!error && req_ids)
        error = qi_check_distinct(req_ids, count);
    if (!error)
        error = qi_make_event_room(queue, QI_RECORD_ID * (uint64_t)count);
    bool plain = !error && !req_ids && is_plain(queue, first, count);
    for (uint32_t i = 0; i < count && !error && !plain; i++)
        error = qi_find_live(queue, id_at(req_ids, first, i), &segment, &slot);
    struct qi_journal *journal = qi_current(queue);
    uint8_t *at = NULL;
    if (!error && count &&
        (error = qi_journal_room(journal, QI_RECORD_ID * (uint64_t)count + QI_JOURNAL_SPARE, true,
                                 &at)))
        error = qi_append_failed(queue, error);
    if (!error && count) {
        for (uint32_t i = 0; i < count; i++)
            qi_put_record_id(at + (size_t)i * QI_RECORD_ID, kind, id_at(req_ids, first, i));
        error = qi_journal_append(journal, QI_FRAME_RECORDS, QI_RECORD_ID * count);
        if (error)
            error = qi_append_failed(queue, error);
    }
    if (!error && plain)
        change_range(queue, first, count, kind);
    for (uint32_t i = 0; i < count && !error && !plain; i++) {
        uint64_t req_id = id_at(req_ids, first, i);
        segment = qi_segment_find_near(&queue->segments, segment, qi_segment_number(queue, req_id));
        slot = qi_slot_of(queue, req_id);
        if (kind == QI_DELIVER)
            qi_segment_deliver(queue, segment, slot);
        else
            qi_segment_ack(queue, segment, slot);
    }
    if (!error && count)
        qi_flush_if_due(queue);
    qi_unlock(queue->store);
    return error;
}

int64_t qi_index_deliver(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count,
                         uint64_t first) {
    return change(queue, req_ids, count, first, QI_DELIVER);
}

int64_t qi_index_ack(struct qi_queue *queue, const uint64_t *req_ids, uint32_t count,
                     uint64_t first) {
    return change(queue, req_ids, count, first, QI_ACK);
}

int64_t qi_index_read(struct qi_queue *queue, uint64_t start, uint64_t stop, qi_message *messages,
                      uint32_t room) {
    uint32_t got = 0;
    uint64_t from = start;
    while (got < room && from < stop) {
        int64_t result = qi_browse(queue, from, false, &messages[got], NULL, 0);
        if (result == QI_EMPTY)
            break;
        if (result < 0)
            return result;
        if (messages[got].req_id >= stop)
            break;
        from = messages[got++].req_id + 1;
    }
    return got;
}
