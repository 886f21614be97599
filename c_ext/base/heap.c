/* heap.c - times, the least first. Memory is asked for before anything is pushed (H20). */
#include "base/base.h"

#include <assert.h>

int qi_heap_room(struct qi_heap *heap, uint64_t count) {
    if (heap->room >= heap->count + count)
        return 0;
    uint64_t room = heap->count + count + heap->room / 2 + 16;
    struct qi_timer *items =
        room < UINT32_MAX ? qi_realloc(heap->items, room * sizeof *items) : NULL;
    if (!items)
        return qi_fail(QI_E_MEMORY, "no memory for timers");
    heap->items = items;
    heap->room = (uint32_t)room;
    return 0;
}

bool qi_timer_is_before(const struct qi_timer *one, const struct qi_timer *other) {
    /* No branches: which is less is as good as random. */
    return (one->key < other->key) | ((one->key == other->key) & (one->id < other->id));
}

/* Four children: half as many levels as with two, and those of one lie in one or two lines of the
 * cache. */
#define CHILDREN 4u

static void sift_up(struct qi_heap *heap, uint32_t at) {
    struct qi_timer timer = heap->items[at];
    while (at > 0 && qi_timer_is_before(&timer, &heap->items[(at - 1) / CHILDREN])) {
        heap->items[at] = heap->items[(at - 1) / CHILDREN];
        at = (at - 1) / CHILDREN;
    }
    heap->items[at] = timer;
}

void qi_heap_push(struct qi_heap *heap, uint64_t key, uint64_t id) {
    assert(heap->count < heap->room);
    heap->items[heap->count++] = (struct qi_timer){key, id};
    sift_up(heap, heap->count - 1);
}

static uint32_t less_of(const struct qi_timer *items, uint32_t one, uint32_t other) {
    return qi_timer_is_before(&items[other], &items[one]) ? other : one;
}

static uint32_t least_child(const struct qi_timer *items, uint32_t first, uint32_t count) {
    if (__builtin_expect(first + CHILDREN <= count, 1))
        return less_of(items, less_of(items, first, first + 1),
                       less_of(items, first + 2, first + 3));
    uint32_t least = first;
    for (uint32_t i = first + 1; i < count; i++)
        least = less_of(items, least, i);
    return least;
}

static void sift_down(struct qi_heap *heap, uint32_t at) {
    struct qi_timer *items = heap->items, timer = items[at];
    uint32_t child;
    while ((child = CHILDREN * at + 1) < heap->count) {
        child = least_child(items, child, heap->count);
        if (!qi_timer_is_before(&items[child], &timer))
            break;
        items[at] = items[child];
        at = child;
    }
    items[at] = timer;
}

struct qi_timer qi_heap_pop(struct qi_heap *heap) {
    struct qi_timer first = heap->items[0];
    heap->items[0] = heap->items[--heap->count];
    if (heap->count)
        sift_down(heap, 0);
    return first;
}

void qi_heap_order(struct qi_heap *heap) {
    for (uint32_t at = heap->count / CHILDREN + 1; at-- > 0;)
        if (at < heap->count)
            sift_down(heap, at);
}
