/* slots.c - the table of a queue's segments, and the maps of one: memory for the pieces of 64
 * slots. */
#include "index/index_private.h"

#include <assert.h>
#include <stdio.h>

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
    struct qi_segment *items = qi_realloc(segments->items, room * sizeof *items);
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
    qi_free(segments->items);
    *segments = (struct qi_segments){0};
}

int qi_segment_heat(struct qi_segment *segment) {
    if (segment->hot)
        return 0;
    struct qi_hot *hot = qi_calloc(1, sizeof *hot);
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
        slots->size = qi_calloc(64, sizeof *slots->size);
    return slots->size != NULL;
}

static bool make_slots(struct qi_hot *hot, uint32_t slot) {
    struct qi_block **block = &hot->blocks[slot / (64 * QI_BLOCK_PIECES)];
    if (*block == &no_block) {
        struct qi_block *made = qi_malloc(sizeof *made);
        if (!made)
            return false;
        *made = no_block;
        *block = made;
    }
    struct qi_slots *slots = qi_calloc(1, sizeof *slots);
    if (slots && hot->sized && !make_sizes(slots)) {
        qi_free(slots);
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
        qi_free(block->pieces[i]->count);
        qi_free(block->pieces[i]->again);
        qi_free(block->pieces[i]->time);
        qi_free(block->pieces[i]->lease);
        qi_free(block->pieces[i]->size);
        qi_free(block->pieces[i]->sides);
        qi_free(block->pieces[i]->published.more);
        qi_free(block->pieces[i]);
    }
    qi_free(block);
}

void qi_segment_cool(struct qi_segment *segment) {
    if (!segment->hot)
        return;
    for (uint32_t i = 0; i < QI_HOT_BLOCKS; i++)
        free_block(segment->hot->blocks[i]);
    qi_free(segment->hot->old);
    qi_free(segment->hot->kept);
    qi_free(segment->hot->uses);
    qi_free(segment->hot);
    segment->hot = NULL;
}

int qi_slots_time_room(struct qi_slots *slots) {
    if (!slots->time)
        slots->time = qi_calloc(64, sizeof *slots->time);
    return slots->time ? 0 : qi_fail(QI_E_MEMORY, "no memory for times");
}

int qi_slots_lease_room(struct qi_slots *slots) {
    if (!slots->lease)
        slots->lease = qi_calloc(64, sizeof *slots->lease);
    return slots->lease ? 0 : qi_fail(QI_E_MEMORY, "no memory for leases");
}

int qi_slots_count_room(struct qi_slots *slots) {
    if (!slots->count)
        slots->count = qi_calloc(64, sizeof *slots->count);
    return slots->count ? 0 : qi_fail(QI_E_MEMORY, "no memory for delivery counts");
}

int qi_slots_deliver_room(struct qi_slots *slots, uint32_t slot) {
    if (qi_slots_count_room(slots) != 0)
        return QI_E_MEMORY;
    if (slots->again || slots->count[slot & 63] < UINT16_MAX - 1)
        return 0;
    slots->again = qi_calloc(64, sizeof *slots->again);
    return slots->again ? 0 : qi_fail(QI_E_MEMORY, "no memory for delivery counts");
}

int qi_slots_count_again(struct qi_slots *slots, uint32_t slot) {
    if (qi_slots_count_room(slots) != 0)
        return QI_E_MEMORY;
    uint16_t *count = &slots->count[slot & 63];
    uint16_t before = *count ? *count : 1;
    *count = before < UINT16_MAX ? before + 1 : before;
    return 0;
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
            struct qi_file_use *uses = qi_realloc(hot->uses, room * sizeof *uses);
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
