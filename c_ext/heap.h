/* heap.h - times, the least first: a heap in an array. */
#ifndef QI_HEAP_H
#define QI_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct qi_timer {
    uint64_t key, id;
};

/* The least key first. */
struct qi_heap {
    struct qi_timer *items;
    uint32_t count, room;
};

/* Room for so many more: 0 or QI_E_MEMORY. */
int qi_heap_room(struct qi_heap *heap, uint64_t count);
/* There is room. O(log n), O(1) for a time that is later than all. */
void qi_heap_push(struct qi_heap *heap, uint64_t key, uint64_t id);
/* The first, which is there. O(log n). */
struct qi_timer qi_heap_pop(struct qi_heap *heap);
/* Makes items in any order a heap. O(n). */
void qi_heap_order(struct qi_heap *heap);
/* Of the same time in the order of their ReqIds. */
bool qi_timer_is_before(const struct qi_timer *one, const struct qi_timer *other);

#endif
