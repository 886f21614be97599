/* allocations.h - the engine's allocations, counted, and failing on demand.
 *
 * tools/explore.py puts this file in front of each of the engine's (cc -include), and of nothing
 * else: the simulated disk and the model keep the real ones, and no normal build knows of it.
 */
#ifndef ALLOCATIONS_H
#define ALLOCATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allocations {
    uint64_t calls;   /* malloc, calloc, realloc and strdup, ever */
    uint64_t fail_at; /* the call with this number gives NULL; 0: none */
    bool sticky;      /* and all that follow */
    uint64_t failed;
    int64_t alive; /* allocated and not freed */
};
extern struct allocations allocations;

void *counted_malloc(size_t size);
void *counted_calloc(size_t count, size_t size);
void *counted_realloc(void *memory, size_t size);
char *counted_strdup(const char *text);
void counted_free(void *memory);

#ifndef ALLOCATIONS_REAL
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>
#define malloc(size)          counted_malloc(size)
#define calloc(count, size)   counted_calloc(count, size)
#define realloc(memory, size) counted_realloc(memory, size)
#define strdup(text)          counted_strdup(text)
#define free(memory)          counted_free(memory)
#endif

#endif
