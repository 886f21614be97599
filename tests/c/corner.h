/* corner.h - a store with two queues on a simulated disk, and the verbs of a test that knows what
 * is inside. */
#ifndef CORNER_H
#define CORNER_H

#undef NDEBUG
#define ALLOCATIONS_REAL
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "proof/explore/allocations.h"
#include "proof/sim/disk_sim.h"
#include "usual.h"

struct corner {
    qi_sim *sim;
    qi_store *store;
    qi_queue *a, *b;
};

static qi_queue *queue_of(qi_store *store, char name, const char *directory) {
    qi_queue *queue = NULL;
    int error = qi_queue_open(store, &name, 1, directory, true, &queue);
    if (error)
        fprintf(stderr, "queue %c: %s\n", name, qi_error_text());
    assert(error == 0);
    return queue;
}

static void open_with(struct corner *corner, qi_options options) {
    int error = qi_store_open_sim(corner->sim, &options, &corner->store);
    if (error)
        fprintf(stderr, "open: %s\n", qi_error_text());
    assert(error == 0);
    corner->a = queue_of(corner->store, 'a', A);
    corner->b = queue_of(corner->store, 'b', B);
}

static struct corner corner_with(qi_options options) {
    struct corner corner = {.sim = qi_sim_new(1, NULL)};
    open_with(&corner, options);
    return corner;
}

static inline struct corner corner_new(void) {
    return corner_with(usual());
}

static void corner_end(struct corner *corner) {
    qi_store_free(corner->store);
    qi_sim_free(corner->sim);
}

static inline void publish_many(qi_queue *queue, uint32_t count) {
    uint32_t sizes[512];
    uint8_t bodies[512 * 10] = {0};
    assert(count <= 512);
    for (uint32_t i = 0; i < count; i++)
        sizes[i] = 10;
    assert(qi_publish_many(queue, count, bodies, sizes, NULL, NULL, 0, 0, 0, NULL, NULL) >= 0);
}

static inline uint32_t get_many(qi_queue *queue, uint32_t count, uint64_t *ids) {
    static qi_message messages[512];
    static uint8_t payloads[512 * 100];
    int64_t got = qi_get_many(queue, count, messages, payloads, sizeof payloads, ids, 0);
    assert(got > 0);
    return (uint32_t)got;
}

static inline uint64_t now_of(const struct corner *corner) {
    return qi_store_now_us(corner->store);
}

static inline qi_queue_stats stats_of(qi_queue *queue) {
    qi_queue_stats stats;
    assert(qi_queue_stats_of(queue, &stats) == 0);
    return stats;
}

static inline uint64_t depth_of(qi_queue *queue) {
    return stats_of(queue).depth;
}

/* A new check tells of damage with these words. */
static inline bool check_says(struct corner *corner, const char *words) {
    bool damage, said = false;
    const char *where, *text;
    uint64_t offset;
    qi_lock(corner->store);
    qi_forget_findings(corner->store, 0);
    qi_unlock(corner->store);
    int count = qi_store_check(corner->store);
    for (int i = 0; i < count; i++) {
        assert(qi_store_finding(corner->store, (uint32_t)i, &damage, &where, &offset, &text) == 0);
        said = said || (damage && strstr(text, words));
    }
    return said;
}

#endif
