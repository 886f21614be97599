/* state.c - the journal frames that describe the queue itself: MANIFEST, SESSION, CLOSE.
 *
 * Each ends the reign of what stood before it of its kind. The lane table in them has one row, for
 * lane 0; what the other lanes need stands in a LANES frame.
 */
#include "durable/durable.h"

#include <errno.h>

#include "index/index.h"

#define LANE_SIZE 10u

static uint8_t *put_lane(uint8_t *at, uint64_t req_id) {
    qi_put16(at, QI_LANE_ROWS);
    qi_put16(at + 2, 0);
    qi_put64(at + 4, req_id);
    return at + 2 + LANE_SIZE;
}

int qi_append_manifest(struct qi_queue *queue, struct qi_journal *journal, uint64_t flushed_epoch,
                       uint64_t previous_tail) {
    const struct qi_segments *segments = &queue->segments;
    const struct qi_segment *items =
        segments->count ? segments->items + segments->start : NULL; /* no table: no segment */
    uint32_t count = 0;
    for (uint32_t i = 0; i < segments->count; i++)
        count += items[i].length > 0;
    uint64_t size = QI_MANIFEST_FIXED + (uint64_t)count * QI_MANIFEST_SEGMENT;
    uint8_t *at;
    int error = qi_journal_room(journal, size, true, &at);
    if (error)
        return error;
    qi_put64(at, flushed_epoch);
    qi_put64(at + 8, queue->session);
    qi_put64(at + 16, queue->floor);
    qi_put64(at + 24, previous_tail);
    at = put_lane(at + 32, queue->reserved);
    qi_put32(at, count);
    at += 4;
    for (uint32_t i = 0; i < segments->count; i++) {
        if (items[i].length == 0)
            continue;
        qi_put64(at, items[i].number);
        qi_put32(at + 8, items[i].length | (items[i].alt ? QI_MANIFEST_ALT : 0));
        qi_put16(at + 12, items[i].flushed_unacked);
        qi_put16(at + 14, items[i].flushed_transient);
        qi_put64(at + 16, items[i].epoch);
        qi_put64(at + 24, items[i].flushed_due);
        qi_put16(at + 32, items[i].flushed_delayed);
        qi_put16(at + 34, items[i].flushed_dead);
        at += QI_MANIFEST_SEGMENT;
    }
    return qi_journal_append(journal, QI_FRAME_MANIFEST, (uint32_t)size);
}

int qi_append_session(struct qi_queue *queue) {
    struct qi_journal *journal = qi_current(queue);
    uint64_t end = journal->tail, marked = journal->marked;
    uint8_t *at;
    int error = qi_journal_room(journal, 28, true, &at);
    if (!error) {
        qi_put64(at, queue->session);
        qi_put64(at + 8, queue->floor);
        put_lane(at + 16, queue->reserved);
        error = qi_journal_append(journal, QI_FRAME_SESSION, 28);
        journal->moment_us = 0; /* a reader forgets it there, too */
    }
    journal->ended = journal->ended && error;
    /* A MARK alone or half a SESSION behind a CLOSE is no clean end, and what is not synced a power
     * cut may keep. (Of what a failed store refuses nothing is there.) */
    if (error && error != -QI_STORE_HAS_FAILED) {
        struct qi_tape *tape = &journal->tape;
        journal->tail = end;
        journal->marked = marked;
        int left = qi_journal_cut(journal, end);
        if (!left)
            left = tape->disk->ops->sync(tape->disk, tape->file);
        if (left)
            qi_store_fail(queue->store, qi_fail_disk_of(queue, left, "cannot cut", "the journal"));
    }
    return error;
}

int qi_append_close(struct qi_queue *queue) {
    struct qi_journal *journal = qi_current(queue);
    uint8_t *at;
    int error = qi_journal_room(journal, 28, true, &at);
    if (error)
        return error;
    qi_put64(at, journal->synced);
    qi_put64(at + 8, qi_wall_us(queue->store));
    put_lane(at + 16, queue->lanes.items[0].next);
    return qi_journal_append(journal, QI_FRAME_CLOSE, 28);
}

int qi_append_lanes(struct qi_queue *queue) {
    const struct qi_lanes *lanes = &queue->lanes;
    if (lanes->count == 1 || QI_BUG(lanes_left_out))
        return 0;
    uint32_t size = (lanes->count - 1) * QI_LANES_ROW;
    uint8_t *at;
    int error = qi_journal_room(qi_current(queue), size, true, &at);
    if (error)
        return error;
    for (uint32_t i = 1; i < lanes->count; i++, at += QI_LANES_ROW) {
        qi_put16(at, (uint16_t)lanes->items[i].number);
        qi_put64(at + 2, qi_count_of(lanes->items[i].next));
    }
    return qi_journal_append(qi_current(queue), QI_FRAME_LANES, size);
}

/* Whoever opens the queue on a disk that others have filled can take and ack so many messages one
 * by one, each with a MARK; the next close gives back what the rest needs no more. Publishes leave
 * that room alone. */
#define DRAIN_MAX UINT64_C(1024)

uint64_t qi_room_to_drain(const struct qi_queue *queue) {
    uint64_t messages = queue->depth < DRAIN_MAX ? queue->depth : DRAIN_MAX;
    return messages * 2 * (QI_FRAME_HEADER + QI_RECORD_ID + QI_MARK_SIZE);
}
