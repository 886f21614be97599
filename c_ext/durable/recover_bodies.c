/* recover_bodies.c - the bodies that a journal's records name: which message files they are in, and
 * whether they are there.
 *
 * Owns no state. After an unclean end recovery makes these files durable (H12), then looks for what
 * a power cut took (H8).
 */
#include "durable/durable_private.h"

#include "index/index.h"

bool qi_stored_body(const struct qi_queue *queue, const struct qi_fields *fields,
                    struct qi_msg_id *id) {
    if (queue->store->options.index_only || !qi_msg_id_is_set(fields->msg_id))
        return false;
    *id = qi_get_msg_id(fields->msg_id);
    return true;
}

/* Does every message of the frame that is alive after the replay have its body? 0: yes;
 * QI_E_CORRUPT: no. QI_E_IO and QI_E_MEMORY: nobody knows, and a journal is not cut for that. */
static int look_for_bodies(struct qi_queue *queue, const struct qi_frame *frame) {
    struct qi_record record;
    struct qi_fields fields;
    struct qi_msg_id id;
    uint8_t *buffer = NULL;
    uint32_t room = 0;
    int error = 0;
    for (uint64_t at = 0; !error && at < frame->length; at += record.size) {
        if (!qi_read_record(frame->payload + at, frame->length - at, &record))
            break;
        if (record.kind > QI_PUB_TRANSIENT)
            continue;
        qi_get_fields(record.fields, &fields);
        if (!qi_stored_body(queue, &fields, &id))
            continue;
        struct qi_segment *segment = qi_segment_with(queue, record.req_id);
        uint32_t slot = qi_slot_of(queue, record.req_id);
        if (!segment || !segment->hot) { /* the replay of this frame made it */
            error = qi_fail_changed("a journal", qi_name_of(queue).text);
            break;
        }
        if (qi_bit(qi_slots_of(segment->hot, slot)->ack, slot))
            continue;
        error = qi_messages_verify(&queue->store->messages, id, &buffer, &room);
    }
    qi_free(buffer);
    return error;
}

/* A power cut may keep a record whose body it took. Records that no MARK covers were never
 * confirmed: the journal ends before the first one that lacks its body, so that what survives is a
 * prefix of what was published (H8). *end: where, or 0 if nothing is to be cut. */
int qi_find_bodiless(struct qi_queue *queue, struct qi_journal *journal, struct qi_scan *scan,
                     uint64_t *end) {
    *end = 0;
    uint64_t offset = QI_JOURNAL_START;
    struct qi_frame frame;
    while (scan->damaged == 0 && scan->lowest_body < UINT32_MAX && !QI_BUG(bodies_not_looked_for) &&
           qi_journal_next(journal, scan, &offset, &frame)) {
        /* Not from the MARK's offset on: nothing says that a frame of somebody else's file begins
         * there. */
        if (frame.type != QI_FRAME_RECORDS || frame.offset < scan->mark)
            continue;
        int error = look_for_bodies(queue, &frame);
        if ((error == QI_E_MEMORY || error == QI_E_IO) && !QI_BUG(unread_body_cut))
            return error;
        if (error) {
            /* Confirmed last, not marked yet and damaged since: that looks the same, and somebody
             * may know better. */
            qi_report(queue->store, false, queue->directory, qi_journal_name(journal->epoch),
                      frame.offset,
                      "cut from here on (%s): a power cut took that body before it was durable, or "
                      "it was "
                      "confirmed a moment before the end and is damaged",
                      qi_error_text());
            *end = frame.offset;
            return 0;
        }
    }
    return scan->changed ? qi_fail_changed(qi_journal_name(journal->epoch), qi_name_of(queue).text)
                         : 0;
}
