/* faults.h - plays a story while one call of the disk or one allocation fails, and says what must
 * hold then.
 *
 * A story calls the engine and writes down what it was told. It is played once to count its calls,
 * then once for each of them and for each way to fail, once and for ever. In each run:
 *   - an error fits what failed: a full disk is not called damage;
 *   - what returned is there after a kill, what was synced after a power cut, bytes as they were;
 * nothing else is there, and no damage is reported;
 *   - of a disk that was there before (`only_looks`), damaged or not, the same is found, once
 * nothing fails any more, as without faults;
 *   - no file stays open, nothing stays allocated.
 * The crash explorer does the same with programs made by chance; here are the verbs and disks that
 * it does not have.
 */
#ifndef FAULTS_H
#define FAULTS_H

#undef NDEBUG
#define ALLOCATIONS_REAL
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proof/explore/allocations.h"
#include "proof/sim/disk_sim.h"
#include "usual.h"

#define ITEMS_MAX    1000u
#define QUEUES       3u
#define PAYLOAD_MAX  20000u
#define ALLOCATION   100 /* a kind of fault, beside QI_SIM_... */
#define FIRST_SECOND UINT64_C(1790000000)

enum stage { NOT, TRIED, RETURNED, SYNCED };

/* A message, as the story was told of it. Its bytes begin with `serial`, and the rest follows from
 * that. */
struct item {
    uint32_t serial, size, queue;
    bool fleeting; /* transient or expiring: it may be gone */
    enum stage published, acked;
};

struct run;
struct story {
    const char *name;
    void (*prepare)(struct run *run); /* on a fresh disk, without faults; NULL: nothing */
    void (*play)(struct run *run);
    bool only_looks, damaged, index_only;
    uint32_t keep_history;
};

struct run {
    const struct story *story;
    qi_sim *sim;
    qi_store *store;
    qi_queue *queues[QUEUES];
    struct item items[ITEMS_MAX];
    uint32_t count, serial;
    bool gone[QUEUES]; /* to be deleted */
    bool dead_letters; /* what is rejected is kept */
    int kind;          /* how a call fails; 0: none does */
    uint64_t at;       /* which one */
    bool sticky;
};

/* ---- what is said when something is wrong ---- */

static void complain(const struct run *run, const char *what, int64_t code) {
    fprintf(stderr, "%s, fault %d at %llu%s (%s): %s (%lld: %s)\n", run->story->name, run->kind,
            (unsigned long long)run->at, run->sticky ? " for ever" : "",
            run->sim->fault_first ? run->sim->fault_first : "an allocation", what, (long long)code,
            qi_error_text());
    abort();
}

static bool has_failed(const struct run *run) {
    return run->sim->fault_hits + allocations.failed > 0;
}

/* "Full" says that nothing was changed. A fan-out that some queues have says otherwise, a publish
 * that others made place for, too, and so does a disk that writes a part of everything: what it
 * wrote cannot be wiped either. */
static bool is_more_than_full(const struct run *run) {
    const char *text = qi_error_text();
    return strncmp(text, "only the first", 14) == 0 ||
           strncmp(text, "nothing was published, but", 26) == 0 ||
           (run->kind == QI_SIM_SHORT && run->sticky);
}

static bool fits(const struct run *run, int64_t code) {
    if (code == QI_E_FAILED || code == QI_E_OUTCOME || code == QI_E_CLOSED)
        return true;
    if (run->kind == QI_SIM_ENOSPC || run->kind == QI_SIM_SHORT)
        return code == QI_E_FULL || (code == QI_E_IO && is_more_than_full(run));
    /* A sync of bodies that failed is a failed disk: "no memory" would say that nothing was
     * changed. */
    if (run->kind == QI_SIM_ENOMEM && strncmp(run->sim->fault_first, "sync", 4) == 0)
        return code == QI_E_MEMORY || code == QI_E_IO;
    if (run->kind == QI_SIM_ENOMEM || run->kind == ALLOCATION)
        return code == QI_E_MEMORY;
    return code == QI_E_IO;
}

/* True if it went well. */
static bool went(const struct run *run, const char *what, int64_t code) {
    if (code >= 0 || code == QI_EMPTY)
        return true;
    if (run->story->damaged && (code == QI_E_CORRUPT || code == QI_E_FORMAT))
        return false;
    if (!has_failed(run) || !fits(run, code))
        complain(run, what, code);
    return false;
}

#include "faults_verbs.h"

#include "faults_times.h"

/* ---- what must hold ---- */

static void no_damage(struct run *run) {
    bool damage;
    const char *where, *text;
    uint64_t offset;
    for (uint32_t i = 0; qi_store_finding(run->store, i, &damage, &where, &offset, &text) == 0; i++)
        if (damage) {
            fprintf(stderr, "%s at %llu: %s\n", where, (unsigned long long)offset, text);
            complain(run, "damage is reported where there is none", 0);
        }
}

static void hold_queue(struct run *run, uint32_t queue, bool killed) {
    static uint8_t payload[PAYLOAD_MAX];
    uint8_t bytes[PAYLOAD_MAX];
    bool seen[ITEMS_MAX] = {0};
    qi_message message;
    uint64_t from = 0, depth = 0;
    int64_t got = QI_EMPTY;
    bool there = open_queue(run, queue, false);
    while (there && (got = qi_browse(run->queues[queue], from, false, &message, payload,
                                     sizeof payload)) >= 0) {
        const uint8_t *mine = run->story->index_only ? message.msg_id : payload;
        struct item *item = find_item(run, queue, mine);
        from = message.req_id + 1;
        depth++;
        if (!item)
            complain(run, "a message that was never published", (int64_t)message.req_id);
        fill(item->serial, bytes, item->size);
        if (!run->story->index_only &&
            ((uint64_t)got != item->size || memcmp(payload, bytes, item->size) != 0))
            complain(run, "a message with other bytes", (int64_t)message.req_id);
        if (item->acked == SYNCED || (killed && item->acked == RETURNED))
            complain(run, "an ack came back", (int64_t)message.req_id);
        seen[item - run->items] = true;
    }
    if (got != QI_EMPTY)
        complain(run, "browse", got);
    for (uint32_t i = 0; i < run->count && !run->gone[queue]; i++) {
        const struct item *item = &run->items[i];
        bool sure = item->published == SYNCED || (killed && item->published == RETURNED);
        if (item->queue == queue && sure && item->acked == NOT && !item->fleeting && !seen[i])
            complain(run, "a message is lost", item->serial);
    }
    qi_queue_stats stats;
    if (there && (qi_queue_stats_of(run->queues[queue], &stats) != 0 || stats.depth != depth))
        complain(run, "the depth is wrong", (int64_t)depth);
}

/* Takes the disk. `killed`: what returned must be there; else only what was synced. */
static void hold_image(struct run *run, qi_sim *image, bool killed) {
    qi_sim *before = run->sim;
    assert(image);
    run->sim = image;
    open_store(run);
    for (uint32_t i = 0; i < QUEUES; i++)
        hold_queue(run, i, killed);
    check(run);
    no_damage(run);
    let_go(run);
    qi_sim_free(image);
    run->sim = before;
}

/* What all queues show: of a disk with damage too. */
static uint32_t sight(struct run *run) {
    uint32_t seen = 1;
    open_store(run);
    if (!run->store)
        return seen;
    for (uint32_t i = 0; i < QUEUES; i++) {
        char name = (char)('a' + i);
        int error = qi_queue_open(run->store, &name, 1, directory_of(i), false, &run->queues[i]);
        uint32_t words[2] = {(uint32_t)error, error ? 0 : browse(run, i, false)};
        seen = qi_crc32c(seen, words, sizeof words);
    }
    let_go(run);
    return seen;
}

/* ---- a story, again and again ---- */

struct calls {
    uint64_t disk, memory;
    uint32_t seen;
};

static void play_once(const struct story *story, const qi_sim *prepared, const struct run *before,
                      struct run *run, struct calls *calls) {
    int kind = run->kind;
    struct run with = *run;
    *run = *before; /* what the preparation was told */
    run->kind = kind, run->at = with.at, run->sticky = with.sticky;
    run->story = story;
    run->sim = qi_sim_kill((qi_sim *)prepared);
    run->sim->calls = 0;
    allocations = (struct allocations){.sticky = run->sticky};
    if (kind == ALLOCATION)
        allocations.fail_at = run->at;
    else if (kind)
        qi_sim_fault(run->sim, run->at, kind, run->sticky);
    story->play(run);
    calls->disk = run->sim->calls;
    calls->memory = allocations.calls;
    bool lost = run->sim->fault_lost;
    qi_sim_fault(run->sim, 0, 0, false);
    allocations.fail_at = 0;
    let_go(run);
    for (int i = 0; i < run->sim->handles_count; i++)
        if (run->sim->handles[i] >= 0)
            complain(run, "a file stays open", i);
    if (allocations.alive)
        complain(run, "memory is left", allocations.alive);
    if (kind && run->sim->fault_hits + allocations.failed == 0) {
        calls->seen = 0; /* a call that does not fail in this way */
    } else if (story->only_looks) {
        calls->seen = sight(run);
    } else {
        hold_image(run, qi_sim_kill(run->sim), !lost);
        hold_image(run,
                   qi_sim_crash(run->sim, run->at, run->at % 2 ? QI_SIM_NOTHING : QI_SIM_MIXED),
                   false);
    }
    qi_sim_free(run->sim);
}

/* Plays the story with every fault there is. `kinds` ends with 0. */
static void play_all(const struct story *story, bool mapping) {
    /* Writes that fail are many where files are not mapped. */
    static const int kinds_of[2][4] = {{QI_SIM_EIO, QI_SIM_ENOSPC, QI_SIM_SHORT, ALLOCATION},
                                       {QI_SIM_EIO, QI_SIM_ENOMEM, ALLOCATION, 0}};
    const int *kinds = kinds_of[mapping];
    size_t kinds_count = mapping ? 3 : 4;
    static struct run before, run;
    qi_sim_knobs knobs = {.mapping = mapping};
    before = (struct run){.story = story, .sim = qi_sim_new(1, &knobs)};
    if (story->prepare)
        story->prepare(&before);
    let_go(&before);
    struct calls counted, calls;
    run = (struct run){0};
    play_once(story, before.sim, &before, &run, &counted);
    assert(counted.disk > 0 && counted.memory > 0);
    for (size_t kind = 0; kind < kinds_count; kind++)
        for (uint64_t at = 1; at <= (kinds[kind] == ALLOCATION ? counted.memory : counted.disk);
             at++)
            for (int sticky = 0; sticky < 2; sticky++) {
                run = (struct run){.kind = kinds[kind], .at = at, .sticky = sticky};
                play_once(story, before.sim, &before, &run, &calls);
                if (story->only_looks && calls.seen && calls.seen != counted.seen)
                    complain(&run, "something else is found than without the fault", 0);
            }
    qi_sim_free(before.sim);
}

/* Those with these words in their names. How files are read does not depend on how they are
 * written: damaged disks are played once. */
static void play_stories(const struct story *stories, size_t count, const char *words) {
    for (size_t i = 0; i < count; i++)
        for (int mapping = 0; mapping < 2; mapping++)
            if (strstr(stories[i].name, words) && !(mapping && stories[i].damaged))
                play_all(&stories[i], mapping);
}

#endif
