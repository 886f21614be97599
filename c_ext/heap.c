/* heap.c - times, the least first. Memory is asked for before anything is pushed (H20). */
#include "heap.h"

#include <assert.h>
#include <stdlib.h>

#include "error.h"
#include "qindex.h"

int qi_heap_room(struct qi_heap *heap, uint64_t count) {
    if (heap->room >= heap->count + count)
        return 0;
    uint64_t room = heap->count + count + heap->room / 2 + 16;
    struct qi_timer *items = room < UINT32_MAX ? realloc(heap->items, room * sizeof *items) : NULL;
    if (!items)
        return qi_fail(QI_E_MEMORY, "no memory for timers");
    heap->items = items;
    heap->room = (uint32_t)room;
    return 0;
}

bool qi_timer_is_before(const struct qi_timer *one, const struct qi_timer *other) {
    return one->key != other->key ? one->key < other->key : one->id < other->id;
}

static void sift_up(struct qi_heap *heap, uint32_t at) {
    struct qi_timer timer = heap->items[at];
    while (at > 0 && qi_timer_is_before(&timer, &heap->items[(at - 1) / 2])) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = timer;
}

void qi_heap_push(struct qi_heap *heap, uint64_t key, uint64_t id) {
    assert(heap->count < heap->room);
    heap->items[heap->count++] = (struct qi_timer){key, id};
    sift_up(heap, heap->count - 1);
}

struct qi_timer qi_heap_pop(struct qi_heap *heap) {
    struct qi_timer first = heap->items[0], last = heap->items[--heap->count];
    uint32_t at = 0, child;
    while ((child = 2 * at + 1) < heap->count) {
        if (child + 1 < heap->count &&
            qi_timer_is_before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!qi_timer_is_before(&heap->items[child], &last))
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
    return first;
}
