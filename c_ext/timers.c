/* timers.c - heaps of times, and what happens when one has come. See timers.h.
 *
 * Memory for entries comes before the record that they follow (H20).
 */
#include "timers.h"

#include <assert.h>
#include <stdlib.h>

#include "bug.h"
#include "bytes.h"
#include "expire.h"

#define SEGMENT_ENTRY (UINT64_C(1) << 63) /* in an id: any ReqId of a segment that is cold */
#define TIDY_MIN      4096u
#define DUE_MAX       16384u

void qi_timers_clear(struct qi_timers *timers) {
    free(timers->delayed.items);
    free(timers->due.items);
    free(timers->leases.items);
    *timers = (struct qi_timers){0};
}

/* ---- delayed messages ---- */

/* An entry of `delayed` becomes one of `due`, and again one of `delayed` when the message comes back from a consumer:
 * there is always room for all of them in `delayed`. */
static int time_room(struct qi_queue *queue, uint64_t count) {
    return qi_heap_room(&queue->timers.delayed, count + queue->timers.due.count + queue->out);
}

int qi_time_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint32_t count,
                 uint32_t in_all) {
    int error = time_room(queue, in_all);
    for (uint32_t at = slot; at < slot + count && !error; at = (at | 63) + 1)
        error = qi_slots_time_room(qi_slots_of(segment->hot, at));
    return error;
}

static void count_delayed(struct qi_queue *queue, struct qi_segment *segment, int32_t by) {
    segment->delayed += (uint32_t)by;
    queue->delayed += (uint64_t)(int64_t)by;
}

static void count_dead(struct qi_queue *queue, struct qi_segment *segment, int32_t by) {
    segment->dead += (uint32_t)by;
    qi_count_dead(queue, by);
}

void qi_held_at_most(struct qi_queue *queue, struct qi_segment *segment, uint32_t count) {
    if (segment->delayed > count)
        count_delayed(queue, segment, (int32_t)count - (int32_t)segment->delayed);
    if (segment->dead > count - segment->delayed)
        count_dead(queue, segment, (int32_t)(count - segment->delayed) - (int32_t)segment->dead);
}

void qi_time_drop(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    if (qi_time_is_dead(slots->time[slot & 63])) {
        count_dead(queue, segment, -1);
        qi_bytes_return(queue, segment, slot);
    } else if (!qi_bit(slots->due, slot)) {
        count_delayed(queue, segment, -1);
    }
    qi_clear_bit(&slots->held, slot);
    qi_clear_bit(&slots->due, slot);
    segment->hot->held_count--;
}

/* The key of its entry: of what was redriven the same before and after it is delivered. */
static uint64_t key_of(const struct qi_slots *slots, uint32_t slot) {
    uint64_t due_us = qi_time_us(slots->time[slot & 63]);
    return due_us == QI_REDRIVEN_US ? QI_REDRIVEN_US + 1 : due_us;
}

/* Held, with an entry among the delayed: also if its time is over, then it comes up at once. */
static void hold(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    uint64_t due_us = qi_time_us(slots->time[slot & 63]);
    qi_set_bit(&slots->held, slot);
    segment->hot->held_count++;
    if (qi_time_is_dead(due_us)) {
        count_dead(queue, segment, 1);
        if (!QI_BUG(dead_bytes_counted))
            qi_bytes_go(queue, segment, slot);
        return;
    }
    count_delayed(queue, segment, 1);
    qi_heap_push(&queue->timers.delayed, key_of(slots, slot), qi_req_id(queue, segment, slot));
    if (segment->due_us == 0 || due_us < segment->due_us)
        segment->due_us = due_us;
}

/* Ready by itself only in a lane of priorities: get never looks into the others. */
static bool is_in_priority_lane(const struct qi_queue *queue, const struct qi_segment *segment) {
    return qi_segment_lane(queue, segment) < QI_PRIORITIES;
}

void qi_time_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint64_t time) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    if (qi_bit(slots->held, slot))
        qi_time_drop(queue, segment, slot);
    slots->time[slot & 63] = time;
    qi_set_bit(&slots->jtime, slot);
    segment->hot->dirty++;
    queue->dirty_count++;
    if (qi_time_us(time) != 0 || !is_in_priority_lane(queue, segment)) {
        hold(queue, segment, slot);
    } else {
        struct qi_lane *lane = qi_lane_find(&queue->lanes, qi_segment_lane(queue, segment));
        if (lane && qi_req_id(queue, segment, slot) < lane->cursor)
            lane->cursor = qi_req_id(queue, segment, slot);
    }
}

void qi_time_delivered(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    uint64_t *time = &slots->time[slot & 63];
    if (QI_BUG(time_kept_by_delivery)) {
        return;
    } else if (is_in_priority_lane(queue, segment)) {
        qi_time_drop(queue, segment, slot);
        *time = 0;
    } else if (qi_time_us(*time) == QI_REDRIVEN_US) {
        ++*time; /* once more is over */
    } else {
        return;
    }
    qi_set_bit(&slots->jtime, slot);
}

/* Of 64 slots those whose messages are held: in a lane that get does not look into, all. */
static uint64_t held_of(const struct qi_slots *slots, bool in_order) {
    uint64_t here = slots->pub & ~slots->ack & ~slots->out;
    return in_order ? slots->held & here : here;
}

int qi_time_load_room(struct qi_queue *queue, struct qi_segment *segment) {
    bool in_order = is_in_priority_lane(queue, segment);
    uint32_t found = 0;
    for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
        struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        uint64_t held = held_of(slots, in_order);
        if (held && qi_slots_time_room(slots) != 0)
            return QI_E_MEMORY;
        found += (uint32_t)__builtin_popcountll(held);
    }
    return found ? time_room(queue, found) : 0;
}

void qi_time_load(struct qi_queue *queue, struct qi_segment *segment) {
    bool in_order = is_in_priority_lane(queue, segment);
    count_delayed(queue, segment, -(int32_t)segment->delayed);
    count_dead(queue, segment, -(int32_t)segment->dead);
    segment->hot->held_count = 0;
    segment->due_us = 0;
    for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
        struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        uint64_t held = held_of(slots, in_order);
        if (!held && !slots->held)
            continue;
        slots->held = slots->due = 0;
        for (; held; held &= held - 1)
            hold(queue, segment, slot + (uint32_t)__builtin_ctzll(held));
    }
}

uint64_t qi_segment_due_us(const struct qi_queue *queue, const struct qi_segment *segment) {
    bool in_order = is_in_priority_lane(queue, segment);
    uint64_t earliest = UINT64_MAX;
    for (uint32_t slot = 0; slot < queue->store->options.segment_entries; slot += 64) {
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        uint64_t out = in_order ? 0 : slots->out; /* without who has them they are held */
        for (uint64_t held = slots->held | out; held; held &= held - 1) {
            uint64_t due_us = qi_time_us(slots->time[__builtin_ctzll(held)]);
            if (!qi_time_is_dead(due_us) && due_us < earliest)
                earliest = due_us;
        }
    }
    return earliest;
}

static void push_segment(struct qi_queue *queue, const struct qi_segment *segment) {
    qi_heap_push(&queue->timers.delayed, segment->due_us,
                 qi_req_id(queue, segment, 0) | SEGMENT_ENTRY);
}

int qi_timers_begin(struct qi_queue *queue) {
    int error = 0;
    for (uint32_t i = 0; i < queue->segments.count && !error; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        /* Transients died at an earlier open: how many of the held are left only the file knows. */
        if (segment->delayed + segment->dead > 0 && segment->flushed_transient > segment->transient)
            error = qi_segment_load(queue, segment);
        if (error)
            return error;
        if (segment->hot && segment->hot->loaded) {
            /* In a lane of delayed ones every message is held, even one whose time no record tells. */
            bool all_held = !is_in_priority_lane(queue, segment);
            error = all_held ? qi_time_load_room(queue, segment) : 0;
            if (!error && all_held)
                qi_time_load(queue, segment);
        } else if (segment->delayed) {
            error = time_room(queue, 1);
            if (!error)
                push_segment(queue, segment);
        }
    }
    return error;
}

/* ---- leases ---- */

int qi_lease_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint32_t count) {
    int error = qi_heap_room(&queue->timers.leases, count);
    return error ? error : qi_slots_lease_room(qi_slots_of(segment->hot, slot));
}

void qi_lease_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint64_t until_us) {
    queue->leased = true;
    qi_slots_of(segment->hot, slot)->lease[slot & 63] = until_us;
    qi_heap_push(&queue->timers.leases, until_us, qi_req_id(queue, segment, slot));
}

void qi_release(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    uint64_t req_id = qi_req_id(queue, segment, slot);
    qi_clear_bit(&slots->out, slot);
    segment->hot->out_count--;
    queue->out--;
    if (segment->expired_out)
        qi_expire_came_back(queue, segment);
    if (qi_bit(slots->held, slot))
        return; /* it was delayed meanwhile */
    struct qi_lane *lane = qi_lane_find(&queue->lanes, qi_lane_number(req_id));
    if (!is_in_priority_lane(queue, segment))
        hold(queue, segment, slot);
    else if (req_id < lane->cursor)
        lane->cursor = req_id;
}

/* ---- what an entry claims ---- */

static struct qi_segment *segment_of(struct qi_queue *queue, uint64_t id) {
    return qi_segment_with(queue, id & ~SEGMENT_ENTRY);
}

/* The claim of an entry: a message that is held, and its time. */
static bool is_delayed(const struct qi_segment *segment, uint32_t slot, uint64_t due_us) {
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return qi_bit(slots->held & ~slots->due, slot) && key_of(slots, slot) == due_us;
}

static bool is_leased(const struct qi_segment *segment, uint32_t slot, uint64_t until_us) {
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return qi_bit(slots->out, slot) && slots->lease && slots->lease[slot & 63] == until_us;
}

uint32_t qi_priority_of(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot) {
    uint32_t lane = qi_segment_lane(queue, segment);
    const uint64_t *time = qi_slots_of(segment->hot, slot)->time;
    return lane < QI_PRIORITIES ? lane : time ? qi_time_priority(time[slot & 63]) : 0;
}

static uint64_t due_key(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot) {
    return (uint64_t)(QI_PRIORITIES - 1 - qi_priority_of(queue, segment, slot)) << QI_TIME_US_BITS |
           key_of(qi_slots_of(segment->hot, slot), slot);
}

/* ---- what is out of date ---- */

/* Which entries of messages still count, by themselves. */
static bool is_claimed(struct qi_queue *queue, const struct qi_timer *timer, bool lease) {
    const struct qi_segment *segment = segment_of(queue, timer->id);
    uint32_t slot = qi_slot_of(queue, timer->id);
    if (!segment || !segment->hot)
        return false;
    if (lease)
        return is_leased(segment, slot, timer->key);
    return segment->hot->loaded && !(timer->id & SEGMENT_ENTRY) &&
           is_delayed(segment, slot, timer->key);
}

/* A segment that is not in memory has one entry for all its messages. */
static bool waits_as_whole(const struct qi_segment *segment) {
    return segment->delayed > 0 && !(segment->hot && segment->hot->loaded);
}

static bool still_counts(struct qi_queue *queue, const struct qi_timer *timer) {
    const struct qi_segment *segment = segment_of(queue, timer->id);
    return segment && (waits_as_whole(segment) || is_claimed(queue, timer, false));
}

static void drop_unclaimed(struct qi_queue *queue, struct qi_heap *heap, bool lease) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < heap->count; i++)
        if (is_claimed(queue, &heap->items[i], lease))
            heap->items[kept++] = heap->items[i];
    heap->count = kept;
    qi_heap_order(heap);
}

/* ---- running ---- */

/* One entry whose time has come. 1: a message became ready; 0: not; or an error, and the entry is still there. What a
 * segment that is loaded for it has comes up in its turn. */
static int run_delayed(struct qi_queue *queue) {
    int room = qi_heap_room(&queue->timers.due, 1);
    if (room)
        return room;
    struct qi_timer timer = qi_heap_pop(&queue->timers.delayed);
    struct qi_segment *segment = segment_of(queue, timer.id);
    int error = segment && segment->unacked > 0 ? qi_segment_load(queue, segment) : 0;
    if (error) {
        qi_heap_push(&queue->timers.delayed, timer.key, timer.id);
        return error;
    }
    uint32_t slot = qi_slot_of(queue, timer.id);
    if (timer.id & SEGMENT_ENTRY || !segment || !segment->hot ||
        !is_delayed(segment, slot, timer.key))
        return 0;
    qi_set_bit(&qi_slots_of(segment->hot, slot)->due, slot);
    count_delayed(queue, segment, -1);
    qi_heap_push(&queue->timers.due, due_key(queue, segment, slot), timer.id);
    return 1;
}

static uint32_t run_lease(struct qi_queue *queue) {
    struct qi_timer timer = qi_heap_pop(&queue->timers.leases);
    struct qi_segment *segment = segment_of(queue, timer.id);
    uint32_t slot = qi_slot_of(queue, timer.id);
    if (!segment || !segment->hot || !is_leased(segment, slot, timer.key))
        return 0;
    qi_release(queue, segment, slot);
    return 1;
}

void qi_leases_run_due(struct qi_queue *queue) {
    struct qi_heap *leases = &queue->timers.leases;
    uint64_t now = qi_now_us(queue->store), ready = 0;
    while (leases->count && leases->items[0].key <= now)
        ready += run_lease(queue);
    if (leases->count > TIDY_MIN && leases->count > 2 * queue->out)
        drop_unclaimed(queue, leases, true);
    if (ready)
        qi_announce(queue, ready);
}

/* After a long time at rest millions may be due: they are read as they are taken. */
static bool needs_load(struct qi_queue *queue) {
    const struct qi_segment *segment = segment_of(queue, queue->timers.delayed.items[0].id);
    return segment && !(segment->hot && segment->hot->loaded);
}

/* Segments are read as long as fewer than `load_below` messages are due. */
static int run_delayed_until_now(struct qi_queue *queue, uint32_t load_below) {
    struct qi_timers *timers = &queue->timers;
    uint64_t now = qi_now_us(queue->store), ready = 0;
    int result = 0;
    while (result >= 0 && timers->delayed.count && timers->delayed.items[0].key <= now &&
           (timers->due.count < load_below || !needs_load(queue))) {
        result = run_delayed(queue);
        ready += result > 0;
    }
    if (ready)
        qi_announce(queue, ready);
    return result < 0 ? result : 0;
}

/* What is in the heap may be gone: enough of that keeps what is due from being read. */
static bool has_due(struct qi_queue *queue) {
    struct qi_segment *segment;
    uint32_t slot, priority;
    return qi_due_first(queue, &segment, &slot, &priority);
}

int qi_delayed_run(struct qi_queue *queue) {
    if (__builtin_expect(queue->timers.delayed.count == 0, 1))
        return 0;
    int error;
    do
        error = run_delayed_until_now(queue, DUE_MAX);
    while (!error && queue->timers.due.count >= DUE_MAX && !has_due(queue));
    return error;
}

bool qi_delayed_waits(const struct qi_queue *queue) {
    const struct qi_heap *delayed = &queue->timers.delayed;
    return delayed->count > 0 && delayed->items[0].key <= qi_now_us(queue->store);
}

bool qi_delayed_run_now(struct qi_queue *queue) {
    const struct qi_heap *delayed = &queue->timers.delayed;
    if (delayed->count == 0)
        return true;
    run_delayed_until_now(queue, 0);
    return !qi_delayed_waits(queue) || (queue->timers.due.count >= DUE_MAX && has_due(queue));
}

uint64_t qi_timers_next_us(const struct qi_queue *queue) {
    const struct qi_timers *timers = &queue->timers;
    uint64_t next = timers->delayed.count ? timers->delayed.items[0].key : UINT64_MAX;
    if (timers->leases.count && timers->leases.items[0].key < next)
        next = timers->leases.items[0].key;
    return next;
}

uint64_t qi_next_due_us(struct qi_queue *queue) {
    struct qi_heap *delayed = &queue->timers.delayed;
    while (delayed->count && !still_counts(queue, &delayed->items[0]))
        qi_heap_pop(delayed);
    return delayed->count ? delayed->items[0].key : 0;
}

bool qi_due_first(struct qi_queue *queue, struct qi_segment **segment, uint32_t *slot,
                  uint32_t *priority) {
    struct qi_heap *due = &queue->timers.due;
    while (due->count) {
        uint64_t id = due->items[0].id;
        *segment = segment_of(queue, id);
        *slot = qi_slot_of(queue, id);
        if (*segment && (*segment)->hot) {
            const struct qi_slots *slots = qi_slots_of((*segment)->hot, *slot);
            if (qi_bit(slots->held & slots->due, *slot) &&
                due_key(queue, *segment, *slot) == due->items[0].key) {
                *priority = qi_priority_of(queue, *segment, *slot);
                return true;
            }
        }
        qi_heap_pop(due);
    }
    return false;
}

/* The next one's record is anywhere in memory: it comes into the cache while its predecessor is delivered. */
static void fetch_next(struct qi_queue *queue) {
    const struct qi_heap *due = &queue->timers.due;
    const struct qi_segment *segment = due->count ? segment_of(queue, due->items[0].id) : NULL;
    if (!segment || !segment->hot)
        return;
    uint32_t slot = qi_slot_of(queue, due->items[0].id);
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    uint32_t loc = slots->loc[slot & 63], offset = loc & QI_LOC_OFFSET_MAX;
    if (slots->time)
        __builtin_prefetch(&slots->time[slot & 63]);
    if ((loc & QI_LOC_FILE) == QI_LOC_SEGMENT && offset < segment->hot->kept_length) {
        __builtin_prefetch(segment->hot->kept + offset);
        __builtin_prefetch(segment->hot->kept + offset + 64);
        __builtin_prefetch(segment->hot->kept + offset + 128);
    }
}

/* Without its bit the message is not found again, whatever else the heap says of it. */
void qi_due_take(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    qi_heap_pop(&queue->timers.due);
    fetch_next(queue);
    qi_clear_bit(&qi_slots_of(segment->hot, slot)->due, slot);
    count_delayed(queue, segment, 1);
}

void qi_due_put_back(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    qi_set_bit(&qi_slots_of(segment->hot, slot)->due, slot);
    count_delayed(queue, segment, -1);
    qi_heap_push(&queue->timers.due, due_key(queue, segment, slot),
                 qi_req_id(queue, segment, slot));
}

void qi_due_put_off(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_due_take(queue, segment, slot);
    qi_heap_push(&queue->timers.delayed, key_of(slots, slot), qi_req_id(queue, segment, slot));
}

void qi_timers_tidy(struct qi_queue *queue) {
    struct qi_heap *delayed = &queue->timers.delayed;
    uint64_t live = 0;
    if (delayed->count <= TIDY_MIN)
        return;
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        const struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        live += waits_as_whole(segment) ? 1 : segment->delayed;
    }
    if (live < queue->timers.tidied) /* of some messages there are two */
        live = queue->timers.tidied;
    if (delayed->count <= live + live / 2)
        return;
    drop_unclaimed(queue, delayed, false);
    for (uint32_t i = 0; i < queue->segments.count; i++) {
        struct qi_segment *segment = qi_segment_nth(&queue->segments, i);
        if (waits_as_whole(segment))
            push_segment(queue, segment); /* it had an entry before: there is room */
    }
    queue->timers.tidied = delayed->count;
}
