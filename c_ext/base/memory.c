/* memory.c - what the engine takes from malloc, counted for the whole process.
 *
 * A bound on memory (max_memory) needs to know how much there is, at any moment and without walking
 * through queues. The maps of an index are asked for in pieces of 64 messages and more, so that one
 * addition for each costs nothing. What malloc really gives is counted, not what was asked for.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/base.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_ullong used;

static void *count(void *memory) {
    if (memory)
        atomic_fetch_add_explicit(&used, malloc_usable_size(memory), memory_order_relaxed);
    return memory;
}

static void forget(void *memory) {
    if (memory)
        atomic_fetch_sub_explicit(&used, malloc_usable_size(memory), memory_order_relaxed);
}

void *qi_malloc(size_t size) {
    return count(malloc(size));
}

void *qi_calloc(size_t items, size_t size) {
    return count(calloc(items, size));
}

void *qi_realloc(void *memory, size_t size) {
    size_t before = memory ? malloc_usable_size(memory) : 0;
    void *grown = realloc(memory, size);
    if (grown) {
        atomic_fetch_sub_explicit(&used, before, memory_order_relaxed);
        count(grown);
    }
    return grown;
}

char *qi_strdup(const char *text) {
    return count(strdup(text));
}

void qi_free(void *memory) {
    forget(memory);
    free(memory);
}

uint64_t qi_memory_used(void) {
    return atomic_load_explicit(&used, memory_order_relaxed);
}
