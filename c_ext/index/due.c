/* due.c - runs the heaps of times: what is due becomes ready, and get takes from it. May read
 * segments. */
#include "index/index_private.h"

#define DUE_MAX 16384u

/* The heap that it is in when it is due. */
static struct qi_heap *due_heap_of(struct qi_queue *queue, const struct qi_slots *slots,
                                   uint32_t slot) {
    return qi_is_redriven(slots, slot) ? &queue->timers.redriven : &queue->timers.due;
}

static uint64_t due_key(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot) {
    return (uint64_t)(QI_PRIORITIES - 1 - qi_priority_of(queue, segment, slot)) << QI_TIME_US_BITS |
           qi_key_of(qi_slots_of(segment->hot, slot), slot);
}

/* There is room in its heap. */
static void push_due(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot) {
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_heap_push(due_heap_of(queue, slots, slot), due_key(queue, segment, slot),
                 qi_req_id(queue, segment, slot));
    if (!qi_is_redriven(slots, slot))
        qi_due_heads_add(queue, segment, slot);
}

/* One entry whose time has come. 1: a message became ready; 0: not; or an error, and the entry is
 * still there. What a segment that is loaded for it has comes up in its turn. */
static int run_delayed(struct qi_queue *queue) {
    int room = qi_heap_room(&queue->timers.due, 1);
    if (!room)
        room = qi_heap_room(&queue->timers.redriven, 1);
    if (room)
        return room;
    struct qi_timer timer = qi_heap_pop(&queue->timers.delayed);
    struct qi_segment *segment = qi_segment_of_timer(queue, timer.id);
    int error = segment && segment->unacked > 0 ? qi_segment_load(queue, segment) : 0;
    if (error) {
        qi_heap_push(&queue->timers.delayed, timer.key, timer.id);
        return error;
    }
    uint32_t slot = qi_slot_of(queue, timer.id);
    if (timer.id & QI_SEGMENT_ENTRY || !segment || !segment->hot ||
        !qi_is_delayed(segment, slot, timer.key))
        return 0;
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_set_bit(&slots->due, slot);
    qi_count_delayed(queue, segment, -1);
    push_due(queue, segment, slot);
    if (timer.key > queue->timers.last_due_us)
        queue->timers.last_due_us = timer.key;
    if (!qi_is_redriven(slots, slot) && !qi_bit(slots->told, slot))
        qi_tell(queue, QI_EVENT_READY, timer.id, 0);
    qi_set_bit(&slots->told, slot); /* if it is given back, that is no news */
    return 1;
}

/* After a long time at rest millions may be due: they are read as they are taken. */
static bool needs_load(struct qi_queue *queue) {
    const struct qi_segment *segment =
        qi_segment_of_timer(queue, queue->timers.delayed.items[0].id);
    return segment && !(segment->hot && segment->hot->loaded);
}

/* The claim of an entry of `due`. */
static bool is_due(struct qi_queue *queue, const struct qi_timer *timer) {
    const struct qi_segment *segment = qi_segment_of_timer(queue, timer->id);
    uint32_t slot = qi_slot_of(queue, timer->id);
    if (!segment || !segment->hot)
        return false;
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return qi_bit(slots->held & slots->due, slot) && due_key(queue, segment, slot) == timer->key;
}

/* The wall clock was set back. O(messages that were due), once for each time that it is. */
static void delay_again(struct qi_queue *queue, uint64_t now) {
    struct qi_heap *due = &queue->timers.due;
    uint32_t kept = 0;
    queue->timers.last_due_us = 0;
    for (uint32_t i = 0; i < due->count; i++) {
        const struct qi_timer timer = due->items[i];
        if (!is_due(queue, &timer))
            continue;
        struct qi_segment *segment = qi_segment_of_timer(queue, timer.id);
        uint32_t slot = qi_slot_of(queue, timer.id);
        uint64_t due_us = qi_key_of(qi_slots_of(segment->hot, slot), slot);
        if (due_us <= now) {
            due->items[kept++] = timer;
            queue->timers.last_due_us =
                due_us > queue->timers.last_due_us ? due_us : queue->timers.last_due_us;
            continue;
        }
        qi_clear_bit(&qi_slots_of(segment->hot, slot)->due, slot);
        qi_clear_bit(&qi_slots_of(segment->hot, slot)->told, slot);
        qi_count_delayed(queue, segment, 1);
        qi_heap_push(&queue->timers.delayed, due_us, timer.id); /* see time_room */
    }
    due->count = kept;
    qi_heap_order(due);
}

/* Segments are read as long as fewer than `load_below` messages are due. */
static int run_delayed_until_now(struct qi_queue *queue, uint32_t load_below) {
    struct qi_timers *timers = &queue->timers;
    uint64_t now = qi_wall_us(queue->store), ready = 0;
    int result = 0;
    if (timers->due.count && timers->last_due_us > now && !QI_BUG(due_for_ever))
        delay_again(queue, now);
    while (result >= 0 && timers->delayed.count && timers->delayed.items[0].key <= now &&
           (timers->due.count + timers->redriven.count < load_below || !needs_load(queue))) {
        result = run_delayed(queue);
        ready += result > 0;
    }
    if (ready)
        qi_announce(queue, ready);
    return result < 0 ? result : 0;
}

static uint32_t due_count(const struct qi_queue *queue) {
    return queue->timers.due.count + queue->timers.redriven.count;
}

/* What is in the heap may be gone: enough of that keeps what is due from being read. */
static bool has_due(struct qi_queue *queue) {
    struct qi_segment *segment;
    uint32_t slot, priority;
    return qi_due_first(queue, &segment, &slot, &priority);
}

int qi_delayed_run(struct qi_queue *queue) {
    if (__builtin_expect((queue->timers.delayed.count | queue->timers.due.count) == 0, 1))
        return 0;
    int error;
    do
        error = run_delayed_until_now(queue, DUE_MAX);
    while (!error && due_count(queue) >= DUE_MAX && !has_due(queue));
    return error;
}

bool qi_delayed_waits(const struct qi_queue *queue) {
    const struct qi_heap *delayed = &queue->timers.delayed;
    return delayed->count > 0 && delayed->items[0].key <= qi_wall_us(queue->store);
}

bool qi_delayed_run_now(struct qi_queue *queue) {
    if ((queue->timers.delayed.count | queue->timers.due.count) == 0)
        return true;
    run_delayed_until_now(queue, 0);
    return !qi_delayed_waits(queue) || (due_count(queue) >= DUE_MAX && has_due(queue));
}

/* The first entry of a heap that counts; NULL: there is none. Those before it are dropped. */
static const struct qi_timer *first_due(struct qi_queue *queue, struct qi_heap *heap) {
    while (heap->count && !is_due(queue, &heap->items[0]))
        qi_heap_pop(heap);
    return heap->count ? &heap->items[0] : NULL;
}

static bool place_of(struct qi_queue *queue, const struct qi_timer *timer,
                     struct qi_segment **segment, uint32_t *slot, uint32_t *priority) {
    if (!timer)
        return false;
    *segment = qi_segment_of_timer(queue, timer->id);
    *slot = qi_slot_of(queue, timer->id);
    *priority = qi_priority_of(queue, *segment, *slot);
    return true;
}

bool qi_due_first(struct qi_queue *queue, struct qi_segment **segment, uint32_t *slot,
                  uint32_t *priority) {
    const struct qi_timer *due = first_due(queue, &queue->timers.due);
    if (__builtin_expect(queue->timers.redriven.count != 0, 0)) {
        const struct qi_timer *again = first_due(queue, &queue->timers.redriven);
        if (again && (!due || qi_timer_is_before(again, due)))
            due = again;
    }
    return place_of(queue, due, segment, slot, priority);
}

/* The next one's record is anywhere in memory: it comes into the cache while its predecessor is
 * delivered. */
static void fetch_next(struct qi_queue *queue) {
    const struct qi_heap *due = &queue->timers.due;
    const struct qi_segment *segment =
        due->count ? qi_segment_of_timer(queue, due->items[0].id) : NULL;
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
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_heap_pop(due_heap_of(queue, slots, slot));
    fetch_next(queue);
    qi_clear_bit(&slots->due, slot);
    qi_count_delayed(queue, segment, 1);
}

void qi_due_put_back(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_set_bit(&slots->due, slot);
    qi_count_delayed(queue, segment, -1);
    push_due(queue, segment, slot);
}

void qi_due_put_off(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    qi_due_take(queue, segment, slot);
    qi_heap_push(&queue->timers.delayed, qi_key_of(slots, slot), qi_req_id(queue, segment, slot));
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
            /* In a lane of delayed ones every message is held, even one whose time no record
             * tells. */
            bool all_held = !qi_is_in_priority_lane(queue, segment);
            error = all_held ? qi_time_load_room(queue, segment) : 0;
            if (!error && all_held)
                qi_time_load(queue, segment);
        } else if (segment->delayed) {
            error = qi_delayed_room(queue, 1);
            if (!error)
                qi_push_cold(queue, segment);
        }
    }
    return error;
}
