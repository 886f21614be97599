/* segment.c - the table of segments, their maps and the changes of state.
 *
 * The counters (unacked, transient, depth) change with the bits and never otherwise; check.c recounts them.
 */
#include "segment.h"

#include <stdio.h>
#include <stdlib.h>

#include "store.h"

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
    return at < segments->count ? segments->items + segments->start + at : NULL;
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
    memmove(place + 1, place, (segments->count - at) * sizeof *place);
    segments->count++;
    *place = (struct qi_segment){.number = number};
    return place;
}

void qi_segment_remove(struct qi_segments *segments, uint64_t number) {
    struct qi_segment *segment = qi_segment_find(segments, number);
    if (!segment)
        return;
    qi_segment_cool(segment);
    uint32_t at = (uint32_t)(segment - (segments->items + segments->start));
    if (at == 0)
        segments->start++;
    else
        memmove(segment, segment + 1, (segments->count - at - 1) * sizeof *segment);
    segments->count--;
}

void qi_segments_clear(struct qi_segments *segments) {
    for (uint32_t i = 0; i < segments->count; i++)
        qi_segment_cool(segments->items + segments->start + i);
    free(segments->items);
    *segments = (struct qi_segments){0};
}

int qi_segment_heat(struct qi_queue *queue, struct qi_segment *segment) {
    if (segment->hot)
        return 0;
    const uint32_t words = queue->store->segment_words, maps = 10;
    size_t bytes =
        sizeof(struct qi_hot) + (size_t)words * 8 * maps + (size_t)words * 64 * sizeof(uint32_t);
    struct qi_hot *hot = calloc(1, bytes);
    if (!hot)
        return qi_fail(QI_E_MEMORY, "no memory for the maps of a segment");
    uint64_t **map[] = {&hot->pub,  &hot->del,  &hot->ack,    &hot->out,    &hot->jpub,
                        &hot->jdel, &hot->jack, &hot->jcount, &hot->stored, &hot->transient};
    uint64_t *next = (uint64_t *)(hot + 1);
    for (uint32_t i = 0; i < maps; i++, next += words)
        *map[i] = next;
    hot->loc = (uint32_t *)next;
    hot->loaded = segment->length == 0;
    segment->hot = hot;
    return 0;
}

void qi_segment_cool(struct qi_segment *segment) {
    if (!segment->hot)
        return;
    free(segment->hot->old);
    free(segment->hot->count);
    free(segment->hot->uses);
    free(segment->hot);
    segment->hot = NULL;
}

void qi_segment_publish(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                        uint32_t loc, bool transient) {
    struct qi_hot *hot = segment->hot;
    qi_set_bit(hot->pub, slot);
    qi_set_bit(hot->jpub, slot);
    hot->loc[slot] = loc;
    hot->dirty++;
    segment->unacked++;
    if (transient) {
        qi_set_bit(hot->transient, slot);
        segment->transient++;
    }
    queue->depth++;
    queue->dirty_count++;
}

int qi_segment_count_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_hot *hot = segment->hot;
    if (hot->count || !qi_bit(hot->del, slot))
        return 0;
    hot->count = calloc(queue->store->segment_words * 64, sizeof *hot->count);
    return hot->count ? 0 : qi_fail(QI_E_MEMORY, "no memory for delivery counts");
}

void qi_segment_deliver(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_hot *hot = segment->hot;
    queue->dirty_count++;
    if (qi_bit(hot->del, slot)) {
        if (!hot->count)
            hot->count = calloc(queue->store->segment_words * 64, sizeof *hot->count);
        if (hot->count) { /* without memory a count is lost, not a message */
            uint16_t before = hot->count[slot] ? hot->count[slot] : 1;
            hot->count[slot] = before < UINT16_MAX ? before + 1 : before;
        }
        qi_set_bit(hot->jcount, slot);
        hot->dirty++;
        return;
    }
    qi_set_bit(hot->del, slot);
    qi_set_bit(hot->jdel, slot);
    hot->dirty++;
}

static void release(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    const uint8_t *record;
    if (!qi_bit(segment->hot->stored, slot))
        return;
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
    release(queue, segment, slot);
    qi_set_bit(hot->ack, slot);
    qi_set_bit(hot->jack, slot);
    hot->dirty++;
    if (qi_bit(hot->out, slot)) {
        qi_clear_bit(hot->out, slot);
        hot->out_count--;
        queue->out--;
    }
    if (qi_bit(hot->transient, slot))
        segment->transient--;
    segment->unacked--;
    queue->depth--;
    queue->dirty_count++;
}

/* The bits of one word that lie in [slot, end). */
static uint64_t range_mask(uint32_t word, uint32_t slot, uint32_t end) {
    uint64_t mask = ~UINT64_C(0);
    if (word == slot / 64)
        mask <<= slot & 63;
    if (word == (end - 1) / 64)
        mask &= ~UINT64_C(0) >> (63 - ((end - 1) & 63));
    return mask;
}

static void count_changes(struct qi_queue *queue, struct qi_segment *segment, uint32_t count) {
    segment->hot->dirty += count;
    queue->dirty_count += count;
}

void qi_segment_publish_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count, uint32_t loc, uint32_t stride) {
    struct qi_hot *hot = segment->hot;
    for (uint32_t word = slot / 64; word <= (slot + count - 1) / 64; word++) {
        uint64_t mask = range_mask(word, slot, slot + count);
        hot->pub[word] |= mask;
        hot->jpub[word] |= mask;
    }
    for (uint32_t i = 0; i < count; i++)
        hot->loc[slot + i] = loc + i * stride;
    segment->unacked += count;
    queue->depth += count;
    count_changes(queue, segment, count);
}

bool qi_segment_is_plain_range(const struct qi_segment *segment, uint32_t slot, uint32_t count) {
    const struct qi_hot *hot = segment->hot;
    for (uint32_t word = slot / 64; word <= (slot + count - 1) / 64; word++) {
        uint64_t mask = range_mask(word, slot, slot + count);
        if ((hot->pub[word] & ~hot->ack[word] & ~hot->stored[word] & ~hot->transient[word] &
             ~hot->out[word] & mask) != mask)
            return false;
    }
    return true;
}

void qi_segment_deliver_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count) {
    struct qi_hot *hot = segment->hot;
    uint32_t again_count = 0;
    for (uint32_t word = slot / 64; word <= (slot + count - 1) / 64; word++) {
        uint64_t mask = range_mask(word, slot, slot + count);
        for (uint64_t again = hot->del[word] & mask; again; again &= again - 1, again_count++)
            qi_segment_deliver(queue, segment, word * 64 + (uint32_t)__builtin_ctzll(again));
        hot->jdel[word] |= mask & ~hot->del[word];
        hot->del[word] |= mask;
    }
    count_changes(queue, segment, count - again_count);
}

void qi_segment_ack_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                          uint32_t count) {
    struct qi_hot *hot = segment->hot;
    for (uint32_t word = slot / 64; word <= (slot + count - 1) / 64; word++) {
        uint64_t mask = range_mask(word, slot, slot + count);
        hot->ack[word] |= mask;
        hot->jack[word] |= mask;
    }
    segment->unacked -= count;
    queue->depth -= count;
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

uint32_t qi_count_bits(const uint64_t *map, uint32_t words) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < words; i++)
        count += (uint32_t)__builtin_popcountll(map[i]);
    return count;
}
