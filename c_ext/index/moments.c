/* age.c - since when the oldest message waits, at least.
 *
 * Nobody writes down when a message was published. But with each sync the queue notes a *moment*:
 * all ReqIds of a lane below this one were published by now. Few are kept: those that are about
 * messages which are gone are dropped, and of too many the one that stands closest to its
 * neighbours, so that the error is a small part of the age of the oldest. They are in memory only.
 * Of messages from before the open the journals know more: a MARK has the clock of the sync that
 * covered what stands before it, and what is in a segment was there when the journal behind it was
 * begun. Moments go by the steady clock, so no age jumps when the wall clock is set. What a journal
 * tells is a wall clock, of a session before this one.
 *
 * Messages that were published with a delay stand elsewhere and are not looked at.
 */
#include "index/index.h"

#include <string.h>

#define MOMENTS_MAX 64u

struct head {
    uint64_t req_id;  /* the oldest of a lane, or the last that it can be */
    bool is_known;    /* else it is somewhere in a segment that is not in memory */
    bool in_file;     /* of the segment; else in a journal, if that is known */
    uint32_t journal; /* which */
    uint64_t offset;  /* of its record there */
};

/* Something in it was published in a journal that is still there. */
static bool has_journal(const struct qi_hot *hot, uint32_t entries) {
    for (uint32_t slot = 0; hot && slot < entries; slot += 64)
        if (qi_slots_of(hot, slot)->jpub)
            return true;
    return false;
}

static bool find_slot(const struct qi_hot *hot, uint32_t entries, uint32_t *slot) {
    for (uint32_t first = 0; first < entries; first += 64) {
        const struct qi_slots *slots = qi_slots_of(hot, first);
        for (uint64_t bits = slots->pub & ~slots->ack; bits; bits &= bits - 1) {
            *slot = first + (uint32_t)__builtin_ctzll(bits);
            if (!qi_bit(slots->held, *slot) || !qi_time_is_dead(slots->time[*slot & 63]))
                return true;
        }
    }
    return false;
}

/* The oldest of a lane that is no dead letter. False: there is none. */
static bool find_head(struct qi_queue *queue, const struct qi_lane *lane, struct head *head) {
    uint64_t entries = queue->store->options.segment_entries;
    struct qi_segments *segments = &queue->segments;
    struct qi_segment *segment =
        qi_segment_from(segments, qi_segment_number(queue, qi_lane_start(lane->number)));
    for (; segment && segment < segments->items + segments->start + segments->count; segment++) {
        uint32_t slot;
        if (qi_segment_lane(queue, segment) != lane->number)
            return false;
        if (segment->unacked <= segment->dead)
            continue;
        uint64_t last = qi_req_id(queue, segment, (uint32_t)entries - 1);
        *head = (struct head){.req_id = last < lane->next ? last : lane->next - 1,
                              .in_file = !has_journal(segment->hot, (uint32_t)entries)};
        if (!segment->hot || !segment->hot->loaded)
            return true;
        if (!find_slot(segment->hot, (uint32_t)entries, &slot))
            continue;
        uint32_t loc = qi_slots_of(segment->hot, slot)->loc[slot & 63];
        head->req_id = qi_req_id(queue, segment, slot);
        head->is_known = true;
        head->journal = (loc & QI_LOC_FILE) == QI_LOC_JOURNAL_ODD;
        head->in_file = (loc & QI_LOC_FILE) == QI_LOC_SEGMENT;
        head->offset = loc & QI_LOC_OFFSET_MAX;
        return true;
    }
    return false;
}

/* What is behind the heads is of no use any more. */
static void drop_behind_heads(struct qi_queue *queue) {
    uint32_t kept = 0;
    const struct qi_lane *lane = NULL;
    struct head head = {0};
    bool waits = false;
    for (uint32_t i = 0; i < queue->moments_count; i++) {
        struct qi_moment moment = queue->moments[i];
        if (!lane || lane->number != qi_lane_number(moment.req_id)) {
            lane = qi_lane_find(&queue->lanes, qi_lane_number(moment.req_id));
            waits = find_head(queue, lane, &head);
        }
        if (waits && !(head.is_known && moment.req_id <= head.req_id))
            queue->moments[kept++] = moment;
    }
    queue->moments_count = kept;
}

/* The time between the neighbours of a moment in its lane; UINT64_MAX: it is the first or the
 * last. */
static uint64_t gap_at(const struct qi_queue *queue, uint32_t at) {
    const struct qi_moment *moments = queue->moments;
    uint32_t before = at, behind = at + 1, lane = qi_lane_number(moments[at].req_id);
    while (before > 0 && qi_lane_number(moments[before - 1].req_id) != lane)
        before--;
    while (behind < queue->moments_count && qi_lane_number(moments[behind].req_id) != lane)
        behind++;
    return before > 0 && behind < queue->moments_count ? moments[behind].us - moments[before - 1].us
                                                       : UINT64_MAX;
}

/* The one goes that is missed least: so they come to stand at about the same distance in time, and
 * the first stays. */
static void drop_least(struct qi_queue *queue) {
    uint32_t least = 0;
    uint64_t least_gap = UINT64_MAX;
    for (uint32_t i = 0; i < queue->moments_count; i++) {
        uint64_t gap = gap_at(queue, i);
        if (gap < least_gap) {
            least_gap = gap;
            least = i;
        }
    }
    queue->moments_count--;
    memmove(queue->moments + least, queue->moments + least + 1,
            (queue->moments_count - least) * sizeof *queue->moments);
}

static void add_moment(struct qi_queue *queue, uint64_t req_id, uint64_t us) {
    if (!queue->moments)
        queue->moments = qi_malloc(MOMENTS_MAX * sizeof *queue->moments);
    if (!queue->moments)
        return; /* ages are only less exact */
    if (queue->moments_count == MOMENTS_MAX)
        drop_behind_heads(queue);
    if (queue->moments_count == MOMENTS_MAX)
        drop_least(queue);
    queue->moments[queue->moments_count++] = (struct qi_moment){req_id, us};
}

void qi_age_note(struct qi_queue *queue) {
    uint64_t now_us = qi_steady_us(queue->store);
    for (uint32_t i = 0; i < queue->lanes.priorities; i++) {
        struct qi_lane *lane = &queue->lanes.items[i];
        if (lane->next == lane->noted)
            continue;
        add_moment(queue, lane->next, now_us);
        lane->noted = lane->next;
    }
}

/* The clock of the first sync that covered a record; UINT64_MAX: the journal does not tell. */
static uint64_t marked_us(const struct qi_journal *journal, uint64_t offset) {
    const uint8_t *bytes = journal->tape.memory;
    for (uint64_t at = QI_JOURNAL_START; bytes && at + QI_FRAME_HEADER <= journal->tail;) {
        uint32_t word = qi_get32(bytes + at), length = word & QI_FRAME_LENGTH_MAX;
        bool has_clock = word >> 28 == QI_FRAME_MARK || word >> 28 == QI_FRAME_CLOSE;
        struct qi_frame frame;
        if (has_clock && length >= 16 && /* and it is none that damage makes look like one */
            qi_frame_read(journal->seed, bytes, journal->tail, at, 0, &frame) == QI_FRAME_VALID &&
            qi_get64(frame.payload) > offset)
            return qi_get64(frame.payload + 8);
        if (length == 0)
            break; /* recovery went around damage here */
        at += QI_FRAME_HEADER + length;
    }
    return UINT64_MAX;
}

/* What is in a segment was published before this journal was begun. */
static uint64_t begun_us(const struct qi_journal *journal) {
    for (uint32_t i = 0; i < 2 && journal->tape.memory; i++) {
        const uint8_t *header = journal->tape.memory + (uint64_t)i * QI_JOURNAL_HEADER_COPY;
        if (qi_get64(header + QI_JH_EPOCH) == journal->epoch &&
            qi_get32(header + QI_JH_CRC) == qi_crc32c(0, header, QI_JH_CRC))
            return qi_get64(header + QI_JH_CREATED);
    }
    return UINT64_MAX;
}

/* The head of a lane was published before this. */
static uint64_t before_us(struct qi_queue *queue, const struct head *head, uint64_t now) {
    const struct qi_store *store = queue->store;
    uint64_t us = now, told = UINT64_MAX;
    for (uint32_t i = 0; i < queue->moments_count; i++) {
        const struct qi_moment *moment = &queue->moments[i];
        if (qi_lane_number(moment->req_id) == qi_lane_number(head->req_id) &&
            moment->req_id > head->req_id) {
            us = moment->us;
            break;
        }
    }
    const struct qi_lane *lane = qi_lane_find(&queue->lanes, qi_lane_number(head->req_id));
    if (head->req_id >= lane->opened)
        return us;     /* since then the moments know */
    if (head->in_file) /* a journal that this session has begun says nothing that the moments do not
                        */
        told = queue->epoch == queue->opened_epoch ? begun_us(qi_current(queue)) : UINT64_MAX;
    else if (head->is_known)
        told = marked_us(&queue->journals[head->journal], head->offset);
    /* It was there when the writer opened the store, whatever a clock that was ahead has told. */
    if (!store->options.read_only && store->opened_wall_us < told)
        told = store->opened_wall_us;
    return told < us ? told : us;
}

static bool has_moment(const struct qi_queue *queue, uint64_t req_id, uint64_t us) {
    for (uint32_t i = 0; i < queue->moments_count; i++)
        if (queue->moments[i].req_id == req_id && queue->moments[i].us == us)
            return true;
    return false;
}

/* A journal that goes to the segments told of the heads that were there at the open: that is
 * kept. */
void qi_age_keep(struct qi_queue *queue) {
    uint64_t now = qi_steady_us(queue->store);
    for (uint32_t i = 0; i < queue->lanes.priorities; i++) {
        const struct qi_lane *lane = &queue->lanes.items[i];
        struct head head;
        if (lane->opened == 0 || !find_head(queue, lane, &head))
            continue;
        uint64_t us = before_us(queue, &head, now),
                 end = head.req_id < lane->opened ? head.req_id + 1 : lane->opened;
        if ((head.is_known && head.req_id >= lane->opened) || us == now ||
            has_moment(queue, end, us))
            continue;
        add_moment(queue, end, us);
        if (queue->moments_count == 0)
            return; /* no memory */
        struct qi_moment moment = queue->moments[queue->moments_count - 1];
        memmove(queue->moments + 1, queue->moments,
                (queue->moments_count - 1) * sizeof *queue->moments);
        queue->moments[0] = moment;
    }
}

/* The oldest message of any lane was published before this; UINT64_MAX: there is none. */
uint64_t qi_age_oldest(struct qi_queue *queue, uint64_t now) {
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < queue->lanes.priorities; i++) {
        struct head head;
        if (!find_head(queue, &queue->lanes.items[i], &head))
            continue;
        uint64_t us = before_us(queue, &head, now);
        oldest = us < oldest ? us : oldest;
    }
    return oldest;
}
