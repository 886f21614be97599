/* check.c - every counter recounted, every body read: what store.check() does.
 *
 * Adds findings and changes nothing on disk. In memory a segment that was cold is read, which
 * corrects its counters if they differ from what the file holds (that is a finding too, see
 * segment_load.c), and cooled again. The store's lock is held for as long as the check takes.
 */
#include "store/store.h"

#include "durable/durable.h"
#include "index/index.h"
#include "queue/queue.h"

#define ATTEMPTS 20u /* to read what a busy writer moves */

/* The check of one queue. */
struct checking {
    struct qi_queue *queue;
    uint64_t depth, out, bytes;
    uint8_t *buffer;
    uint32_t room;
    uint64_t *missed; /* ReqIds whose bodies cannot be read */
    uint32_t missed_count, missed_room;
};

static int read_body(struct checking *checking, struct qi_segment *segment, uint32_t slot) {
    const struct qi_published *record;
    int error = qi_segment_record(checking->queue, segment, slot, &record);
    if (error)
        return error;
    struct qi_msg_id id = qi_get_msg_id(record->fields.msg_id);
    return qi_messages_verify(&checking->queue->store->messages, id, &checking->buffer,
                              &checking->room);
}

static void check_bodies(struct checking *checking, struct qi_segment *segment) {
    uint32_t entries = checking->queue->store->options.segment_entries;
    const struct qi_hot *hot = segment->hot;
    for (uint32_t first = 0; first < entries; first += 64) {
        const struct qi_slots *slots = qi_slots_of(hot, first);
        for (uint64_t bits = slots->pub & ~slots->ack & slots->stored; bits; bits &= bits - 1) {
            uint32_t slot = first + (uint32_t)__builtin_ctzll(bits);
            if (read_body(checking, segment, slot) != 0)
                qi_req_id_add(&checking->missed, &checking->missed_count, &checking->missed_room,
                              segment->number * entries + slot);
        }
    }
}

/* Is a message that was missed still alive, and still not to be read? 0, or why. */
static int miss_again(struct checking *checking, uint64_t req_id) {
    struct qi_queue *queue = checking->queue;
    struct qi_segment *segment;
    uint32_t slot;
    int error = queue->recovered ? qi_find_live(queue, req_id, &segment, &slot) : QI_E_ACKED;
    if (!error)
        error = read_body(checking, segment, slot);
    return error == QI_E_ACKED ? 0 : error;
}

/* A reader beside a writer: what was acked meanwhile is not missed, and what stands elsewhere now
 * is looked for there, as often as the writer moves it. The rest is damage. */
static void report_missed(struct checking *checking) {
    struct qi_queue *queue = checking->queue;
    for (uint32_t attempt = 0; checking->missed_count && attempt < ATTEMPTS; attempt++) {
        uint32_t count = 0;
        if (qi_reread(queue) != 0)
            break;
        for (uint32_t i = 0; i < checking->missed_count; i++)
            if (miss_again(checking, checking->missed[i]) != 0)
                checking->missed[count++] = checking->missed[i];
        checking->missed_count = count;
    }
    for (uint32_t i = 0; i < checking->missed_count; i++)
        if (miss_again(checking, checking->missed[i]) != 0)
            qi_report(queue->store, true, queue->directory, "", 0, "message %llu: %s",
                      (unsigned long long)checking->missed[i], qi_error_text());
}

/* QI_E_CORRUPT: a reader has to read the queue again. */
static int check_segment(struct checking *checking, uint32_t index) {
    struct qi_queue *queue = checking->queue;
    struct qi_segment *segment = qi_segment_nth(&queue->segments, index);
    uint32_t entries = queue->store->options.segment_entries, unacked = 0, out = 0;
    bool was_cold = !segment->hot;
    int error = qi_segment_load(queue, segment);
    if (error == QI_E_CORRUPT)
        return error;
    if (error) {
        qi_report(queue->store, true, queue->directory, "", 0, "%s", qi_error_text());
        return 0;
    }
    struct qi_hot *hot = segment->hot;
    for (uint32_t slot = 0; slot < entries; slot += 64) {
        const struct qi_slots *slots = qi_slots_of(hot, slot);
        unacked += (uint32_t)__builtin_popcountll(slots->pub & ~slots->ack);
        out += (uint32_t)__builtin_popcountll(slots->out);
        if (slots->out & ~(slots->pub & ~slots->ack))
            qi_report(queue->store, true, queue->directory, "", 0,
                      "segment %llu: an acked message is out", (unsigned long long)segment->number);
    }
    if (unacked != segment->unacked || out != hot->out_count)
        qi_report(queue->store, true, queue->directory, "", 0,
                  "segment %llu: counters and maps differ", (unsigned long long)segment->number);
    uint64_t bytes;
    if (queue->measured && qi_bytes_recount(queue, segment, &bytes) == 0 && bytes != segment->bytes)
        qi_report(queue->store, true, queue->directory, "", 0,
                  "segment %llu: %llu bytes were counted, %llu are there",
                  (unsigned long long)segment->number, (unsigned long long)segment->bytes,
                  (unsigned long long)bytes);
    checking->bytes += segment->bytes;
    checking->depth += unacked;
    checking->out += hot->out_count;
    check_bodies(checking, segment);
    if (was_cold)
        qi_cool(checking->queue, segment);
    return 0;
}

static int check_segments(struct checking *checking) {
    struct qi_queue *queue = checking->queue;
    int error = 0;
    for (uint32_t i = 0; i < queue->segments.count && !error; i++)
        error = check_segment(checking, i);
    if (!error && (checking->depth != queue->depth || checking->out != queue->out))
        qi_report(queue->store, true, queue->directory, "", 0,
                  "depth is %llu and out %llu, but %llu and %llu were counted",
                  (unsigned long long)queue->depth, (unsigned long long)queue->out,
                  (unsigned long long)checking->depth, (unsigned long long)checking->out);
    if (!error && queue->measured && checking->bytes != queue->bytes)
        qi_report(queue->store, true, queue->directory, "", 0,
                  "%llu bytes wait, but %llu were counted", (unsigned long long)queue->bytes,
                  (unsigned long long)checking->bytes);
    if (!error)
        report_missed(checking);
    qi_free(checking->buffer);
    qi_free(checking->missed);
    return error;
}

static int check_queue(struct qi_queue *queue) {
    int error = qi_queue_ready(queue, false);
    if (error == QI_E_MISSING) /* its writer has deleted it */
        return 0;
    if (error) {
        qi_report(queue->store, true, queue->directory, "", 0, "%s", qi_error_text());
        bool of_queue = error == QI_E_CORRUPT || error == QI_E_FORMAT || error == QI_E_NEWER;
        bool of_disk = qi_error_is_link() || (error == QI_E_IO && !queue->store->failed);
        return of_queue || of_disk ? 0 : error; /* else the others cannot be read, either */
    }
    uint32_t attempt = 0;
    do {
        struct checking checking = {.queue = queue};
        error = check_segments(&checking);
    } while (error == QI_E_CORRUPT && ++attempt < ATTEMPTS && (error = qi_reread(queue)) == 0);
    if (attempt == ATTEMPTS)
        qi_report(queue->store, true, queue->directory, "", 0,
                  "it changes faster than it can be checked: try again, or check a copy");
    else if (error && error != QI_E_MISSING)
        qi_report(queue->store, true, queue->directory, "", 0, "%s", qi_error_text());
    return 0;
}

int qi_store_check(struct qi_store *store) {
    int error = qi_store_queues(store);
    if (error < 0)
        return error;
    qi_lock(store);
    error = 0;
    for (uint32_t i = 0; i < store->queues_count && !error; i++)
        if (!store->queues[i]->deleted)
            error = check_queue(store->queues[i]);
    if (!error)
        qi_miss_queues(store); /* a queue that had no name then may be known now */
    int count = (int)store->findings_count;
    qi_unlock(store);
    return error ? error : count;
}
