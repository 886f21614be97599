/* segment.c - the table of segments, their maps and the changes of state.
 *
 * The counters (unacked, transient, depth) change with the bits and never otherwise; check.c recounts them.
 */
#include "segment.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "bytes.h"

#define NONE ((struct qi_slots *)&qi_no_slots)

const struct qi_slots qi_no_slots;
static const struct qi_block no_block = {{NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
                                          NONE, NONE, NONE, NONE, NONE, NONE, NONE}};

static uint32_t lower_bound(const struct qi_segments *segments, uint64_t number) {
    uint32_t low = 0, high = segments->count;
    if (high == 0)
        return 0;
    const struct qi_segment *items = segments->items + segments->start;
    if (items[high - 1].number < number)
        return high; /* the usual new segment */
    if (number >= items[0].number && number - items[0].number < high &&
        items[number - items[0].number].number == number)
        return (uint32_t)(number - items[0].number); /* no gaps: the usual case */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (items[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct qi_segment *qi_segment_from(struct qi_segments *segments, uint64_t number) {
    uint32_t at = lower_bound(segments, number);
    return at < segments->count ? qi_segment_nth(segments, at) : NULL;
}

struct qi_segment *qi_segment_find(struct qi_segments *segments, uint64_t number) {
    struct qi_segment *segment = qi_segment_from(segments, number);
    return segment && segment->number == number ? segment : NULL;
}

static bool make_room(struct qi_segments *segments) {
    if (segments->start + segments->count < segments->room)
        return true;
    if (segments->start >
        segments->room / 2) { /* the front was taken away: move down instead of growing */
        memmove(segments->items, segments->items + segments->start,
                segments->count * sizeof *segments->items);
        segments->start = 0;
        return true;
    }
    uint32_t room = segments->room ? segments->room * 2 : 8;
    struct qi_segment *items = realloc(segments->items, room * sizeof *items);
    if (!items)
        return false;
    segments->items = items;
    segments->room = room;
    return true;
}

struct qi_segment *qi_segment_make(struct qi_segments *segments, uint64_t number) {
    struct qi_segment *found = qi_segment_find(segments, number);
    if (found)
        return found;
    if (!make_room(segments))
        return NULL;
    uint32_t at = lower_bound(segments, number);
    struct qi_segment *place = segments->items + segments->start + at;
    if (segments->start > 0 && at < segments->count / 2) { /* the shorter way */
        memmove(place - at - 1, place - at, at * sizeof *place);
        segments->start--;
        place--;
    } else {
        memmove(place + 1, place, (segments->count - at) * sizeof *place);
    }
    segments->count++;
    *place = (struct qi_segment){.number = number};
    return place;
}

void qi_segment_remove(struct qi_segments *segments, uint64_t number) {
    struct qi_segment *segment = qi_segment_find(segments, number);
    assert(segment);
    qi_segment_cool(segment);
    struct qi_segment *first = segments->items + segments->start;
    uint32_t at = (uint32_t)(segment - first);
    if (at < segments->count / 2) { /* the shorter way */
        memmove(first + 1, first, at * sizeof *first);
        segments->start++;
    } else {
        memmove(segment, segment + 1, (segments->count - at - 1) * sizeof *segment);
    }
    segments->count--;
}

void qi_segments_clear(struct qi_segments *segments) {
    for (uint32_t i = 0; i < segments->count; i++)
        qi_segment_cool(qi_segment_nth(segments, i));
    free(segments->items);
    *segments = (struct qi_segments){0};
}

int qi_segment_heat(struct qi_segment *segment) {
    if (segment->hot)
        return 0;
    struct qi_hot *hot = calloc(1, sizeof *hot);
    if (!hot)
        return qi_fail(QI_E_MEMORY, "no memory for the maps of a segment");
    for (uint32_t i = 0; i < QI_HOT_BLOCKS; i++)
        hot->blocks[i] = (struct qi_block *)&no_block;
    hot->loaded = segment->length == 0;
    segment->hot = hot;
    return 0;
}

static bool make_sizes(struct qi_slots *slots) {
    if (!slots->size)
        slots->size = calloc(64, sizeof *slots->size);
    return slots->size != NULL;
}

static bool make_slots(struct qi_hot *hot, uint32_t slot) {
    struct qi_block **block = &hot->blocks[slot / (64 * QI_BLOCK_PIECES)];
    if (*block == &no_block) {
        struct qi_block *made = malloc(sizeof *made);
        if (!made)
            return false;
        *made = no_block;
        *block = made;
    }
    struct qi_slots *slots = calloc(1, sizeof *slots);
    if (slots && hot->sized && !make_sizes(slots)) {
        free(slots);
        return false;
    }
    if (slots)
        (*block)->pieces[slot / 64 % QI_BLOCK_PIECES] = slots;
    return slots != NULL;
}

int qi_segment_room(struct qi_segment *segment, uint32_t slot, uint32_t count) {
    for (uint32_t at = slot; at < slot + count; at = (at | 63) + 1)
        if (qi_slots_of(segment->hot, at) == &qi_no_slots && !make_slots(segment->hot, at))
            return qi_fail(QI_E_MEMORY, "no memory for the maps of a segment");
    return 0;
}

int qi_segment_size_room(struct qi_segment *segment) {
    segment->hot->sized = true;
    for (uint32_t i = 0; i < QI_HOT_BLOCKS * QI_BLOCK_PIECES; i++) {
        struct qi_slots *slots = qi_slots_of(segment->hot, i * 64);
        if (slots != &qi_no_slots && !make_sizes(slots))
            return qi_fail(QI_E_MEMORY, "no memory for the sizes of messages");
    }
    return 0;
}

static void free_block(struct qi_block *block) {
    if (block == &no_block)
        return;
    for (uint32_t i = 0; i < QI_BLOCK_PIECES; i++) {
        if (block->pieces[i] == &qi_no_slots)
            continue;
        free(block->pieces[i]->count);
        free(block->pieces[i]->time);
        free(block->pieces[i]->lease);
        free(block->pieces[i]->size);
        free(block->pieces[i]);
    }
    free(block);
}

void qi_segment_cool(struct qi_segment *segment) {
    if (!segment->hot)
        return;
    for (uint32_t i = 0; i < QI_HOT_BLOCKS; i++)
        free_block(segment->hot->blocks[i]);
    free(segment->hot->old);
    free(segment->hot->kept);
    free(segment->hot->uses);
    free(segment->hot);
    segment->hot = NULL;
}

void qi_segment_publish(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                        uint32_t loc, bool transient) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_set_bit(&slots->pub, slot);
    qi_set_bit(&slots->jpub, slot);
    slots->loc[slot & 63] = loc;
    segment->hot->dirty++;
    segment->unacked++;
    if (transient) {
        qi_set_bit(&slots->transient, slot);
        segment->transient++;
    }
    qi_count_depth(queue, 1);
    queue->dirty_count++;
}

int qi_slots_time_room(struct qi_slots *slots) {
    if (!slots->time)
        slots->time = calloc(64, sizeof *slots->time);
    return slots->time ? 0 : qi_fail(QI_E_MEMORY, "no memory for times");
}

int qi_slots_lease_room(struct qi_slots *slots) {
    if (!slots->lease)
        slots->lease = calloc(64, sizeof *slots->lease);
    return slots->lease ? 0 : qi_fail(QI_E_MEMORY, "no memory for leases");
}

int qi_slots_count_room(struct qi_slots *slots) {
    if (!slots->count)
        slots->count = calloc(64, sizeof *slots->count);
    return slots->count ? 0 : qi_fail(QI_E_MEMORY, "no memory for delivery counts");
}

int qi_slots_count_again(struct qi_slots *slots, uint32_t slot) {
    if (qi_slots_count_room(slots) != 0)
        return QI_E_MEMORY;
    uint16_t *count = &slots->count[slot & 63];
    uint16_t before = *count ? *count : 1;
    *count = before < UINT16_MAX ? before + 1 : before;
    return 0;
}

void qi_segment_deliver(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    queue->dirty_count++;
    segment->hot->dirty++;
    if (__builtin_expect(qi_bit(slots->held, slot), 0))
        qi_time_delivered(queue, segment, slot);
    if (qi_bit(slots->del, slot)) {
        qi_slots_count_again(slots, slot); /* without memory a count is lost, not a message */
        qi_set_bit(&slots->jcount, slot);
        return;
    }
    qi_set_bit(&slots->del, slot);
    qi_set_bit(&slots->jdel, slot);
}

static void release(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    const uint8_t *record;
    if (qi_segment_record(queue, segment, slot, &record) != 0) {
        queue->store->messages.miscounted = true; /* which file has one less is not known */
        return;
    }
    struct qi_msg_id id = qi_get_msg_id(record + QI_PUB_MSG_ID);
    qi_segment_use(segment->hot, id.file, -1, -(int64_t)qi_stored_bytes(id));
    if (segment->counted)
        qi_messages_count(&queue->store->messages, id.file, -1, -(int64_t)qi_stored_bytes(id));
}

void qi_segment_ack(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_hot *hot = segment->hot;
    struct qi_slots *slots = qi_slots_of(hot, slot);
    if (qi_bit(slots->stored, slot))
        release(queue, segment, slot);
    if (__builtin_expect(qi_bit(slots->held, slot), 0))
        qi_time_drop(queue, segment, slot);
    qi_bytes_go(queue, segment, slot);
    qi_set_bit(&slots->ack, slot);
    qi_set_bit(&slots->jack, slot);
    hot->dirty++;
    if (qi_bit(slots->out, slot)) {
        qi_clear_bit(&slots->out, slot);
        hot->out_count--;
        queue->out--;
    }
    if (qi_bit(slots->transient, slot))
        segment->transient--;
    segment->unacked--;
    qi_count_depth(queue, -1);
    queue->dirty_count++;
}

/* The bits of [slot, end) that are in the piece of `slot`. */
static uint64_t range_mask(uint32_t slot, uint32_t end) {
    uint64_t mask = ~UINT64_C(0) << (slot & 63);
    return end > (slot | 63) ? mask : mask & ~(~UINT64_C(0) << (end & 63));
}

static void count_changes(struct qi_queue *queue, struct qi_segment *segment, uint32_t count) {
    segment->hot->dirty += count;
    queue->dirty_count += count;
}

void qi_segment_publish_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count, uint32_t loc, uint32_t stride) {
    uint32_t end = slot + count;
    for (uint32_t at = slot; at < end; at = (at | 63) + 1) {
        struct qi_slots *slots = qi_slots_of(segment->hot, at);
        uint64_t mask = range_mask(at, end);
        slots->pub |= mask;
        slots->jpub |= mask;
        uint32_t in_piece = end > (at | 63) ? 64 - (at & 63) : end - at;
        for (uint32_t i = 0; i < in_piece; i++)
            slots->loc[(at & 63) + i] = loc + (at - slot + i) * stride;
    }
    segment->unacked += count;
    qi_count_depth(queue, count);
    count_changes(queue, segment, count);
}

bool qi_segment_is_plain_range(const struct qi_segment *segment, uint32_t slot, uint32_t count) {
    for (uint32_t at = slot; at < slot + count; at = (at | 63) + 1) {
        const struct qi_slots *slots = qi_slots_of(segment->hot, at);
        uint64_t mask = range_mask(at, slot + count);
        if ((slots->pub & ~slots->ack & ~slots->stored & ~slots->transient & ~slots->out &
             ~slots->held & mask) != mask)
            return false;
    }
    return true;
}

void qi_segment_deliver_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count) {
    uint32_t again_count = 0;
    for (uint32_t at = slot; at < slot + count; at = (at | 63) + 1) {
        struct qi_slots *slots = qi_slots_of(segment->hot, at);
        uint64_t mask = range_mask(at, slot + count);
        for (uint64_t again = slots->del & mask; again; again &= again - 1, again_count++)
            qi_segment_deliver(queue, segment, (at & ~63u) + (uint32_t)__builtin_ctzll(again));
        slots->jdel |= mask & ~slots->del;
        slots->del |= mask;
    }
    count_changes(queue, segment, count - again_count);
}

void qi_segment_ack_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                          uint32_t count) {
    for (uint32_t at = slot; at < slot + count; at = (at | 63) + 1) {
        struct qi_slots *slots = qi_slots_of(segment->hot, at);
        uint64_t mask = range_mask(at, slot + count);
        slots->ack |= mask;
        slots->jack |= mask;
    }
    segment->unacked -= count;
    qi_count_depth(queue, -(int64_t)count);
    count_changes(queue, segment, count);
}

int qi_segment_use(struct qi_hot *hot, uint32_t file, int32_t count, int64_t bytes) {
    uint32_t at = hot->uses_count;
    while (at > 0 && hot->uses[at - 1].file != file)
        at--; /* few files, the newest last */
    struct qi_file_use *use;
    if (at > 0) {
        use = hot->uses + at - 1;
    } else {
        if (hot->uses_count == hot->uses_room) {
            uint32_t room = hot->uses_room ? hot->uses_room * 2 : 4;
            struct qi_file_use *uses = realloc(hot->uses, room * sizeof *uses);
            if (!uses)
                return qi_fail(QI_E_MEMORY, "no memory for a segment's list of message files");
            hot->uses = uses;
            hot->uses_room = room;
        }
        use = hot->uses + hot->uses_count++;
        *use = (struct qi_file_use){.file = file};
    }
    use->count += (uint32_t)count;
    use->bytes += (uint64_t)bytes;
    if (use->count == 0)
        *use = hot->uses[--hot->uses_count];
    return 0;
}

void qi_segment_name(uint64_t number, bool alt, char name[32]) {
    snprintf(name, 32, "%llu.%s", (unsigned long long)number, alt ? "alt" : "idx");
}
