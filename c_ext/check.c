/* check.c - every counter recounted, every body read: what store.check() does.
 *
 * Adds findings and changes nothing on disk. In memory a segment that was cold is read, which corrects its counters if
 * they differ from what the file holds (that is a finding too, see segment_file.c), and cooled again. The store's lock
 * is held for as long as the check takes.
 */
#include <stdlib.h>

#include "store.h"

static void check_bodies(struct qi_queue *queue, struct qi_segment *segment, uint8_t **buffer,
                         uint32_t *room) {
    struct qi_store *store = queue->store;
    uint64_t first = segment->number * store->options.segment_entries;
    for (uint32_t slot = 0; slot < store->options.segment_entries; slot++) {
        struct qi_hot *hot = segment->hot;
        if (!qi_bit(hot->pub, slot) || qi_bit(hot->ack, slot) || !qi_bit(hot->stored, slot))
            continue;
        const uint8_t *record;
        int error = qi_segment_record(queue, segment, slot, &record);
        struct qi_msg_id id = error ? (struct qi_msg_id){0} : qi_get_msg_id(record + QI_PUB_MSG_ID);
        uint32_t length = qi_payload_length(id);
        if (!error && length > *room) {
            uint8_t *bigger = realloc(*buffer, length);
            if (!bigger)
                return;
            *buffer = bigger;
            *room = length;
        }
        if (!error)
            error = qi_messages_read(&store->messages, id, *buffer, length);
        if (error)
            qi_report(store, true, queue->directory, "", 0, "message %llu: %s",
                      (unsigned long long)(first + slot), qi_error_text());
    }
}

static void check_segment(struct qi_queue *queue, uint32_t index, uint64_t *depth, uint64_t *out,
                          uint8_t **buffer, uint32_t *room) {
    struct qi_segment *segment = queue->segments.items + queue->segments.start + index;
    uint32_t words = queue->store->segment_words, unacked = 0;
    bool was_cold = !segment->hot;
    if (qi_segment_load(queue, segment) != 0) {
        qi_report(queue->store, true, queue->directory, "", 0, "%s", qi_error_text());
        return;
    }
    struct qi_hot *hot = segment->hot;
    for (uint32_t i = 0; i < words; i++) {
        unacked += (uint32_t)__builtin_popcountll(hot->pub[i] & ~hot->ack[i]);
        if (hot->out[i] & ~(hot->pub[i] & ~hot->ack[i]))
            qi_report(queue->store, true, queue->directory, "", 0,
                      "segment %llu: an acked message is out", (unsigned long long)segment->number);
    }
    if (unacked != segment->unacked || qi_count_bits(hot->out, words) != hot->out_count)
        qi_report(queue->store, true, queue->directory, "", 0,
                  "segment %llu: counters and maps differ", (unsigned long long)segment->number);
    *depth += unacked;
    *out += hot->out_count;
    check_bodies(queue, segment, buffer, room);
    if (was_cold && !hot->dirty && !hot->out_count && segment->length)
        qi_segment_cool(segment);
}

static int check_queue(struct qi_queue *queue) {
    int error = qi_queue_ready(queue, false);
    if (error) {
        qi_report(queue->store, true, queue->directory, "", 0, "%s", qi_error_text());
        return error == QI_E_CORRUPT || error == QI_E_FORMAT ? 0 : error;
    }
    uint64_t depth = 0, out = 0;
    uint8_t *buffer = NULL;
    uint32_t room = 0;
    for (uint32_t i = 0; i < queue->segments.count; i++)
        check_segment(queue, i, &depth, &out, &buffer, &room);
    free(buffer);
    if (depth != queue->depth || out != queue->out)
        qi_report(queue->store, true, queue->directory, "", 0,
                  "depth is %llu and out %llu, but %llu and %llu were counted",
                  (unsigned long long)queue->depth, (unsigned long long)queue->out,
                  (unsigned long long)depth, (unsigned long long)out);
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
    int count = (int)store->findings_count;
    qi_unlock(store);
    return error ? error : count;
}
