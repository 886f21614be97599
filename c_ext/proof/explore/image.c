/* image.c - is what a power cut left what the model allows? Every invariant is checked here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "proof/explore/explore.h"

#define CHECK_EVERY 4u   /* images: every counter recounted */
#define NEST_EVERY  150u /* images: power cuts inside the recovery */
#define AFTER_EVERY 4u   /* images: a little life after the recovery */

/* ---- power cuts inside a recovery ---- */

struct nest {
    struct explorer *explorer;
    struct model *model;
    const struct settings *settings;
    int depth;
    uint64_t random;
    struct verdict *verdict;
};

static void nested_cut(void *context, struct qi_sim *sim, const char *call, bool after) {
    struct nest *nest = context;
    (void)call;
    (void)after;
    if (nest->verdict->text[0])
        return;
    uint64_t random = qi_sim_random(&nest->random);
    struct qi_sim *image = qi_sim_crash(sim, random, QI_SIM_MIXED);
    nest->explorer->counts.nested++;
    struct sight first = nest->explorer->first;
    nest->explorer->first = (struct sight){0}; /* the one outside is not done with its own */
    enum ended ended = nest->model->ended;
    if (ended == CLEAN) /* the recovery has begun a session, or not yet */
        nest->model->ended = UNCLEAN_OR_CLEAN;
    bool allowed = image_is_allowed(nest->explorer, image, nest->model, nest->settings, false,
                                    nest->depth - 1, random ^ 1, nest->verdict);
    nest->model->ended = ended;
    sight_free(&nest->explorer->first);
    nest->explorer->first = first;
    if (!allowed)
        verdict_inside(nest->verdict, "[cut inside recovery] ");
}

/* ---- the disk after a recovery ---- */

static bool ends_with(const char *text, const char *suffix) {
    size_t length = strlen(text), size = strlen(suffix);
    return length >= size && strcmp(text + length - size, suffix) == 0;
}

/* Files are of known kinds, and drafts are gone. */
static bool files_are_known(struct qi_sim *sim, int dir, struct verdict *verdict) {
    static const char *const kinds[] = {
        "store.meta",     "LOCK",    "queue.meta", "journal.jif", "journal.alt",
        ".idx",           ".alt",    ".qms",       ".log",        "store.meta.new",
        "queue.meta.new", "catalog", "catalog.new"};
    const struct qi_sim_names *names = &sim->nodes[dir].names;
    for (uint32_t i = 0; i < names->count; i++) {
        const char *name = names->items[i].name;
        int node = names->items[i].node;
        bool known = sim->nodes[node].dir && !strchr(name, '.');
        for (size_t k = 0; !sim->nodes[node].dir && k < sizeof kinds / sizeof *kinds; k++)
            known = known || ends_with(name, kinds[k]);
        known = known || (strncmp(name, "past.", 5) == 0 && ends_with(name, ".jif"));
        if (!known) {
            snprintf(verdict->text, sizeof verdict->text, "%s is left behind after recovery", name);
            verdict->kind = "left behind";
            return false;
        }
        if (sim->nodes[node].dir && !files_are_known(sim, node, verdict))
            return false;
    }
    return true;
}

/* Reads everything and recounts every counter. */
static bool check_passes(struct session *session, struct verdict *verdict) {
    int count = qi_store_check(session->store);
    bool damage = count < 0;
    const char *where = "", *text = qi_error_text();
    uint64_t offset;
    for (uint32_t i = 0; !damage && (int)i < count; i++)
        qi_store_finding(session->store, i, &damage, &where, &offset, &text);
    if (damage)
        snprintf(verdict->text, sizeof verdict->text, "check() says: %s: %s", where, text);
    return !damage;
}

/* What is counted as exact adds up: all that came is there, or went. */
static bool counts_add_up(const struct session *session, struct verdict *verdict) {
    for (int i = 0; i < QUEUES; i++) {
        qi_queue_stats stats;
        qi_counts since, all;
        if (!session->queues[i] ||
            qi_queue_counts_of(session->queues[i], &since, &all) != QI_COUNTS_EXACT ||
            qi_queue_stats_of(session->queues[i], &stats) != 0)
            continue;
        qi_counts_add(&all, &since);
        uint64_t gone = all.acked + all.dropped + all.purged + all.moved;
        if (all.published != stats.depth + gone)
            return verdict_complain(verdict,
                                    "%c: %llu messages came and %llu went, but %llu are there",
                                    'a' + i, (unsigned long long)all.published,
                                    (unsigned long long)gone, (unsigned long long)stats.depth);
    }
    return true;
}

/* ---- one image ---- */

static bool recover(struct explorer *explorer, struct session *session, struct qi_sim *image,
                    struct model *model, const struct settings *settings, struct sight *sight,
                    struct verdict *verdict) {
    explorer->counts.recoveries++;
    if (!session_open(session, image, settings, verdict))
        return false;
    session->measures = true;
    return session_queues(session, model, verdict) && sight_take(sight, session, model, verdict) &&
           counts_add_up(session, verdict);
}

/* H12: what was shown stays, whatever a power cut takes. */
static bool barrier_holds(struct explorer *explorer, struct qi_sim *image, struct model *model,
                          const struct settings *settings, uint64_t random,
                          struct verdict *verdict) {
    explorer->counts.barriers++;
    int mode = random & 1 ? QI_SIM_NOTHING : QI_SIM_MIXED;
    struct session session = {.sim = qi_sim_crash(image, random, mode)};
    bool holds =
        recover(explorer, &session, session.sim, model, settings, &explorer->second, verdict) &&
        sight_is_same(&explorer->first, &explorer->second, verdict);
    session_end(&session);
    qi_sim_free(session.sim);
    if (!holds)
        verdict_inside(verdict, "[cut right after open] ");
    return holds;
}

/* A queue that was recovered goes on: what is published and confirmed now must be there after the
 * next power cut (H4), under an id that was never given (H10). */
static bool life_goes_on(struct explorer *explorer, struct session *session, struct model *model,
                         const struct settings *settings, uint64_t random,
                         struct verdict *verdict) {
    int queue = 0;
    while (queue < QUEUES && !session->queues[queue])
        queue++;
    if (queue == QUEUES)
        return true;
    uint8_t body[300] = {1, 2, 3};
    int64_t id = -1;
    for (int i = 0; i < 3; i++) {
        id = qi_publish(session->queues[queue], body, i * 100u);
        if (id < 0 || (uint64_t)id < model_next_min(&model->queues[queue], 0)) {
            snprintf(verdict->text, sizeof verdict->text,
                     "a publish after recovery gave id %lld: %s", (long long)id,
                     id < 0 ? qi_error_text() : "given before");
            return false;
        }
    }
    if (qi_queue_sync(session->queues[queue]) != 0) {
        snprintf(verdict->text, sizeof verdict->text, "sync after recovery: %s", qi_error_text());
        return false;
    }
    struct session next = {.sim = qi_sim_crash(session->sim, random, QI_SIM_MIXED)};
    explorer->counts.recoveries++;
    qi_message message;
    bool there =
        session_open(&next, next.sim, settings, verdict) && session_queues(&next, model, verdict);
    if (there &&
        qi_browse(next.queues[queue], (uint64_t)id, false, &message, body, sizeof body) != 200) {
        snprintf(verdict->text, sizeof verdict->text,
                 "message %lld, published after recovery and confirmed, is lost: %s", (long long)id,
                 qi_error_text());
        there = false;
    }
    session_end(&next);
    qi_sim_free(next.sim);
    return there;
}

bool image_is_allowed(struct explorer *explorer, struct qi_sim *image, struct model *model,
                      const struct settings *settings, bool killed, int depth, uint64_t random,
                      struct verdict *verdict) {
    struct session session = {.sim = image};
    struct nest nest = {explorer, model, settings, depth, random, verdict};
    enum ended ended;
    if (depth > 0 && qi_sim_below(&random, NEST_EVERY) == 0) {
        image->watch = nested_cut;
        image->watch_context = &nest;
    }
    bool allowed = recover(explorer, &session, image, model, settings, &explorer->first, verdict);
    image->watch = NULL;
    allowed = allowed && !verdict->text[0] &&
              sight_allowed(&explorer->first, model, killed, &ended, verdict);
    allowed = allowed && files_are_known(image, 0, verdict);
    allowed =
        allowed && barrier_holds(explorer, image, model, settings, qi_sim_random(&random), verdict);
    if (allowed && qi_sim_below(&random, CHECK_EVERY) == 0)
        allowed = check_passes(&session, verdict);
    if (allowed && qi_sim_below(&random, AFTER_EVERY) == 0)
        allowed =
            life_goes_on(explorer, &session, model, settings, qi_sim_random(&random), verdict);
    session_end(&session);
    qi_sim_free(image);
    return allowed;
}

/* ---- damage ---- */

/* Whatever was found, or could not be read, is told; what is shown has the right bytes in any
 * case. */
static bool is_told(struct session *session, const struct verdict *opened) {
    bool damage = opened->text[0] != 0 || qi_store_check(session->store) < 0;
    const char *where, *text;
    uint64_t offset;
    for (uint32_t i = 0;
         !damage && qi_store_finding(session->store, i, &damage, &where, &offset, &text) == 0; i++)
        damage = damage || strstr(text, "or it was confirmed"); /* recover_bodies.c */
    return damage;
}

/* Older bytes that are whole in themselves may pass for the truth. A journal whose last sector is
 * gone looks like one with a torn tail, and without its newer journal a queue is as if a power cut
 * had come right after the rotation. */
static bool is_tellable(int kind, const char *what) {
    if (kind == QI_SIM_STALE_SECTOR || kind == QI_SIM_LOST_WRITE)
        return false;
    return kind == QI_SIM_BIT_FLIP || !strstr(what, "journal.");
}

bool damage_is_told(struct explorer *explorer, struct qi_sim *image, struct model *model,
                    const struct settings *settings, uint64_t random, struct verdict *verdict) {
    int kind =
        random & 1 ? QI_SIM_BIT_FLIP : (int)(1 + qi_sim_below(&random, QI_SIM_SWAPPED_FILES));
    static const char *const where[4] = {"journal.", "journal.", ".idx", "messages"};
    char what[200];
    if (qi_sim_damage(image, kind, random, where[random >> 1 & 3], what, sizeof what) != 0) {
        qi_sim_free(image);
        return true;
    }
    explorer->counts.damages++;
    struct session session = {.sim = image};
    struct verdict opened = {.text = ""}, unlike = {.text = ""};
    enum ended ended;
    bool fine = recover(explorer, &session, image, model, settings, &explorer->first, &opened) &&
                sight_allowed(&explorer->first, model, false, &ended, &unlike);
    bool lies = opened.kind &&
                (strstr(opened.kind, "wrong bytes") || strstr(opened.kind, "never published"));
    bool silent =
        !fine && !opened.text[0] && is_tellable(kind, what) && !is_told(&session, &opened);
    if (lies || silent) {
        *verdict = lies ? opened : unlike;
        char words[260];
        snprintf(words, sizeof words, "[%s] nobody tells: ", what);
        verdict_inside(verdict, words);
    }
    session_end(&session);
    qi_sim_free(image);
    return verdict->text[0] == 0;
}
