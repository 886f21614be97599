/* allocations.c - the real allocator behind a counter. */
#define _POSIX_C_SOURCE 200809L
#define ALLOCATIONS_REAL
#include "proof/explore/allocations.h"

#include <stdlib.h>
#include <string.h>

struct allocations allocations;

static bool fails(void) {
    uint64_t call = ++allocations.calls, at = allocations.fail_at;
    bool now = at && (call == at || (call > at && allocations.sticky));
    allocations.failed += now;
    return now;
}

static void *alive(void *memory) {
    allocations.alive += memory != NULL;
    return memory;
}

void *counted_malloc(size_t size) {
    return fails() ? NULL : alive(malloc(size));
}

void *counted_calloc(size_t count, size_t size) {
    return fails() ? NULL : alive(calloc(count, size));
}

void *counted_realloc(void *memory, size_t size) {
    if (fails())
        return NULL;
    void *grown = realloc(memory, size);
    return memory ? grown : alive(grown);
}

char *counted_strdup(const char *text) {
    return fails() ? NULL : alive(strdup(text));
}

void counted_free(void *memory) {
    allocations.alive -= memory != NULL;
    free(memory);
}
