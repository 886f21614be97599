/* losses.c - how many messages the damaged places of a queue's journals cost.
 *
 * A lane gives its ReqIds one after the other, and its publishes stand in the journal in that
 * order. So the ReqIds between the last publish in front of a damaged place and the first one
 * behind it were published in it. A CLOSE (with LANES) behind it says the same, and so does a
 * SESSION in front of it. Where one of the two is missing only a bound is known: what the bytes can
 * hold. Of a lane that nothing but the damaged place tells of nothing is known.
 */
#include "durable/durable_private.h"

#include <stdio.h>

#include "index/index.h"

struct lane_state {
    bool known; /* then `next` is its next ReqId */
    uint64_t next;
    struct qi_loss *gap; /* a damaged place that came behind what tells of `next`; NULL: none */
};

struct looking {
    struct qi_queue *queue;
    struct qi_loss *losses;   /* two */
    struct lane_state *lanes; /* by their number */
    bool from_start;          /* the first journal of the queue is read: nothing came before */
    bool lanes_told;          /* by a LANES frame, and nothing was published since */
    uint64_t floor;
};

/* How many messages the damaged places can have held, but for those that are known. */
static uint64_t room_left(const struct looking *looking) {
    const struct qi_loss *losses = looking->losses;
    uint64_t most = qi_messages_in(losses[0].bytes + losses[1].bytes);
    uint64_t known = losses[0].count + losses[1].count;
    return most > known ? most - known : 0;
}

static void note_range(struct looking *looking, struct qi_loss *loss, uint64_t first,
                       uint64_t count, bool exact) {
    uint64_t most = room_left(looking);
    if (!exact || count > most) { /* ReqIds are skipped when a session begins */
        loss->more_most += count < most ? count : most;
        return;
    }
    loss->count += count;
    if (loss->ranges_count < QI_LOSS_RANGES)
        loss->ranges[loss->ranges_count++] = (struct qi_loss_range){first, count, 0};
}

static void note_gap(struct looking *looking, struct qi_loss *loss, uint64_t bytes) {
    loss->bytes += bytes;
    looking->lanes_told = false;
    for (uint32_t number = 0; number < QI_LANES; number++)
        if (!looking->lanes[number].gap)
            looking->lanes[number].gap = loss;
}

/* The ReqId behind the highest one below `below` that a segment of this lane tells of. Messages
 * that were acked before they were flushed are in no segment: this is a bound. */
static uint64_t known_in_segments(struct qi_queue *queue, uint64_t below) {
    uint32_t lane = qi_lane_number(below);
    for (uint32_t i = queue->segments.count; i-- > 0;) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        uint64_t first = qi_req_id(queue, segment, 0);
        if (qi_segment_lane(queue, segment) != lane || first >= below)
            continue;
        if (qi_segment_load(queue, segment) != 0)
            return first;
        uint64_t slots = queue->store->options.segment_entries;
        for (uint64_t slot = below - first < slots ? below - first : slots; slot-- > 0;)
            if (qi_bit(qi_slots_of(segment->hot, (uint32_t)slot)->pub, (uint32_t)slot))
                return first + slot + 1;
        if (segment->length > 0) /* what was in it is acked: it was not looked at */
            return first;
    }
    return qi_lane_start(lane);
}

/* Something tells that the next ReqId of a lane was `next` here. */
static void resolve(struct looking *looking, uint64_t next) {
    struct lane_state *lane = &looking->lanes[qi_lane_number(next)];
    bool exact = lane->known || looking->from_start;
    if (lane->gap) {
        uint64_t from = lane->known           ? lane->next
                        : looking->from_start ? qi_lane_start(qi_lane_number(next)) | looking->floor
                                              : known_in_segments(looking->queue, next);
        if (from < next)
            note_range(looking, lane->gap, from, next - from, exact);
    }
    *lane = (struct lane_state){.known = true, .next = next};
}

static void note_records(struct looking *looking, const struct qi_frame *frame) {
    struct qi_record record;
    for (uint64_t at = 0; at < frame->length; at += record.size) {
        if (!qi_read_record(frame->payload + at, frame->length - at, &record))
            return;
        if (record.kind > QI_PUB_TRANSIENT)
            continue;
        resolve(looking, record.req_id);
        looking->lanes[qi_lane_number(record.req_id)].next = record.req_id + 1;
        looking->lanes_told = false;
    }
}

static bool is_used(const struct looking *looking, uint32_t number) {
    return qi_lane_search(&looking->queue->lanes, number) != NULL;
}

/* Nothing will tell any more of what was published in front of here. */
static void give_up(struct looking *looking) {
    for (uint32_t number = 0; number < QI_LANES; number++) {
        struct lane_state *lane = &looking->lanes[number];
        if (lane->gap && is_used(looking, number))
            lane->gap->more_most = room_left(looking);
        lane->gap = NULL;
    }
}

/* After an unclean end all lanes go on from the same count: the floor. */
static void note_session(struct looking *looking, uint64_t floor) {
    if (floor <= looking->floor)
        return;
    give_up(looking);
    looking->floor = floor;
    for (uint32_t number = 0; number < QI_LANES; number++)
        looking->lanes[number] = (struct lane_state){
            .known = true, .next = qi_lane_start(number) | (floor & QI_COUNT_MASK)};
}

static void note_lanes(struct looking *looking, const struct qi_frame *frame) {
    for (uint32_t at = 0; at + QI_LANES_ROW <= frame->length; at += QI_LANES_ROW) {
        uint32_t number = qi_get16(frame->payload + at);
        uint64_t count = qi_get64(frame->payload + at + 2);
        if (number < QI_LANES && count <= QI_COUNT_MASK)
            resolve(looking, qi_lane_start(number) | count);
    }
    looking->lanes_told = true;
}

static void note_close(struct looking *looking, uint64_t next) {
    resolve(looking, next);
    if (looking->lanes_told || looking->queue->lanes.count == 1)
        for (uint32_t number = 0; number < QI_LANES; number++)
            looking->lanes[number].gap = NULL;
}

/* What was acked of the messages that are known to be lost. */
static void note_ack(struct looking *looking, uint64_t first, uint64_t count) {
    for (uint32_t which = 0; which < 2; which++) {
        struct qi_loss *loss = &looking->losses[which];
        for (uint32_t i = 0; i < loss->ranges_count; i++) {
            struct qi_loss_range *range = &loss->ranges[i];
            uint64_t from = first > range->first ? first : range->first;
            uint64_t end = first + count, range_end = range->first + range->count;
            end = end < range_end ? end : range_end;
            if (from < end && range->acked + (end - from) <= range->count) {
                range->acked += end - from;
                loss->acked += end - from;
            }
        }
    }
}

static void note_acks(struct looking *looking, const struct qi_frame *frame) {
    struct qi_record record;
    for (uint64_t at = 0; at < frame->length; at += record.size) {
        if (!qi_read_record(frame->payload + at, frame->length - at, &record))
            return;
        if (record.kind == QI_ACK)
            note_ack(looking, record.req_id, 1);
    }
}

/* All below a count are acked, in every lane, but for those of a list. */
static void note_purge(struct looking *looking, const struct qi_frame *frame) {
    uint64_t below = qi_get64(frame->payload);
    for (uint32_t which = 0; which < 2; which++) {
        struct qi_loss *loss = &looking->losses[which];
        for (uint32_t i = 0; i < loss->ranges_count; i++) {
            struct qi_loss_range *range = &loss->ranges[i];
            uint64_t left =
                below > qi_count_of(range->first) ? below - qi_count_of(range->first) : 0;
            uint64_t acked = left < range->count ? left : range->count;
            for (uint32_t at = 8; at + 8 <= frame->length && acked > 0; at += 8)
                acked -= qi_get64(frame->payload + at) - range->first < range->count;
            if (acked > range->acked) {
                loss->acked += acked - range->acked;
                range->acked = acked;
            }
        }
    }
}

/* A frame that only has other bytes in it: no call publishes a message and acks it. */
static bool is_one_frame(const struct qi_journal *journal, uint64_t offset, uint64_t end) {
    uint32_t word = qi_get32(journal->tape.memory + offset);
    return offset + QI_FRAME_HEADER + (word & QI_FRAME_LENGTH_MAX) == end;
}

/* One journal, to its end; `acks`: what its acks say, for the ranges that were found. */
static void look(struct looking *looking, const struct qi_journal *journal, struct qi_scan scan,
                 struct qi_loss *loss, bool acks) {
    uint64_t offset = QI_JOURNAL_START, end = offset, next, session, floor, reserved, gaps = 0;
    struct qi_frame frame;
    scan.effort = QI_FRAME_EFFORT(journal->tape.allocated);
    for (; qi_journal_next(journal, &scan, &offset, &frame); end = offset) {
        if (acks) {
            if (frame.type == QI_FRAME_RECORDS)
                note_acks(looking, &frame);
            else if (frame.type == QI_FRAME_PURGE && frame.length >= 8)
                note_purge(looking, &frame);
            continue;
        }
        if (frame.offset > end) {
            if (gaps > 0 || !is_one_frame(journal, end, frame.offset))
                loss->acks_unsure = true;
            note_gap(looking, loss, frame.offset - end);
            gaps += frame.offset - end;
        }
        if (frame.type == QI_FRAME_RECORDS)
            note_records(looking, &frame);
        else if (qi_read_session(&frame, &session, &floor, &reserved))
            note_session(looking, floor);
        else if (frame.type == QI_FRAME_LANES)
            note_lanes(looking, &frame);
        else if (qi_read_close(&frame, &next))
            note_close(looking, next);
    }
    if (!acks && scan.damaged_bytes > gaps)
        note_gap(looking, loss, scan.damaged_bytes - gaps);
}

int qi_find_losses(struct qi_queue *queue, const struct qi_scan *old, uint64_t old_gone,
                   const struct qi_scan *current, struct qi_loss losses[2]) {
    const struct qi_journal *journals[2] = {qi_previous(queue), qi_current(queue)};
    struct looking looking = {.queue = queue, .losses = losses};
    looking.from_start = journals[old ? 0 : 1]->epoch == QI_FIRST_EPOCH;
    looking.lanes = qi_calloc(QI_LANES, sizeof *looking.lanes);
    if (!looking.lanes)
        return qi_fail(QI_E_MEMORY, "no memory to count what is lost");
    memset(losses, 0, 2 * sizeof *losses);
    if (old)
        look(&looking, journals[0], *old, &losses[0], false);
    if (old_gone)
        note_gap(&looking, &losses[0], old_gone);
    look(&looking, journals[1], *current, &losses[1], false);
    give_up(&looking);
    if (old && losses[0].ranges_count > 0)
        look(&looking, journals[0], *old, &losses[0], true);
    if (losses[0].ranges_count + losses[1].ranges_count > 0)
        look(&looking, journals[1], *current, &losses[1], true);
    if (losses[0].bytes && losses[1].bytes)
        losses[0].acks_unsure = losses[1].acks_unsure = true;
    for (uint32_t which = 0; which < 2; which++)
        if (losses[which].more_most > room_left(&looking))
            losses[which].more_most = room_left(&looking);
    qi_free(looking.lanes);
    return 0;
}

void qi_say_loss(const struct qi_loss *loss, char *text, size_t room) {
    unsigned long long lost = loss->count - loss->acked, most = loss->more_most;
    if (loss->count == 0) {
        if (most)
            snprintf(text, room, "at most %llu message%s %s lost", most, qi_plural(most),
                     most == 1 ? "is" : "are");
        else
            snprintf(text, room, "no message is known to be lost");
        return;
    }
    size_t used = (size_t)snprintf(text, room, "message%s ", qi_plural(loss->count));
    for (uint32_t i = 0; i < loss->ranges_count && used < room; i++) {
        unsigned long long first = loss->ranges[i].first, count = loss->ranges[i].count;
        const char *comma = i ? ", " : "";
        used += (size_t)(count == 1 ? snprintf(text + used, room - used, "%s%llu", comma, first)
                                    : snprintf(text + used, room - used, "%s%llu to %llu (%llu)",
                                               comma, first, first + count - 1, count));
    }
    if (used < room && loss->ranges_count == QI_LOSS_RANGES)
        used += (size_t)snprintf(text + used, room - used, " and others, %llu in all,",
                                 (unsigned long long)loss->count);
    if (used < room && loss->acked)
        used += (size_t)snprintf(text + used, room - used,
                                 " cannot be read: %llu %s acked later, %llu %s lost",
                                 (unsigned long long)loss->acked, loss->acked == 1 ? "was" : "were",
                                 lost, lost == 1 ? "is" : "are");
    else if (used < room)
        used += (size_t)snprintf(text + used, room - used, " %s lost", lost == 1 ? "is" : "are");
    if (used < room && lost && loss->acks_unsure)
        used += (size_t)snprintf(text + used, room - used, " (or acked there, too)");
    if (used < room && most)
        snprintf(text + used, room - used, ", and at most %llu more", most);
}
