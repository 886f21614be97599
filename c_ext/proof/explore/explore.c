/* explore.c - all crash points of a program, and shorter programs with the same finding. */
#include "proof/explore/explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 3

/* Does each queue have appends behind its last confirmed sync? With them a MARK was written, and
 * damage below it can be told from a torn tail. */
static bool all_marked(const struct player *player) {
    bool marked = !player_lossy(player) && player->model.ended == UNCLEAN;
    for (int i = 0; i < QUEUES && marked; i++) {
        const struct model_queue *queue = &player->model.queues[i];
        marked = queue->exists == ABSENT || (queue->exists == PRESENT && queue->returned > 0);
    }
    return marked;
}

static void look_at_point(struct player *player, const char *call) {
    struct explorer *explorer = player->context;
    bool between = strcmp(call, "between") == 0;
    if (between && !player->program->settings.mapping && (player->op & 7))
        return; /* without mappings nothing happened since the last call */
    qi_sim_observe(
        player->session.sim); /* whether this point is looked at or not: --point replays the same */
    if (explorer->counts.points >= explorer->points_max)
        return;
    explorer->point++;
    if (explorer->only_point && explorer->point != explorer->only_point)
        return;
    uint64_t dice = explorer->seed + explorer->point * UINT64_C(0xD1342543DE82EF95);
    if (explorer->every > 1 && !explorer->only_point && qi_sim_random(&dice) % explorer->every)
        return;
    explorer->counts.points++;
    uint64_t random = explorer->seed ^ explorer->point * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = 0; i < explorer->images && !player->verdict.text[0]; i++) {
        struct qi_sim *image =
            qi_sim_crash(player->session.sim, qi_sim_random(&random), QI_SIM_MIXED);
        explorer->image = i;
        image_is_allowed(explorer, image, &player->model, &player->program->settings, false, DEPTH,
                         qi_sim_random(&random), &player->verdict);
    }
    bool kill = between || qi_sim_below(&random, 8) == 0;
    if (kill && explorer->kills && !player->verdict.text[0]) {
        explorer->image = explorer->images;
        image_is_allowed(explorer, qi_sim_kill(player->session.sim), &player->model,
                         &player->program->settings, !player_lossy(player), DEPTH,
                         qi_sim_random(&random), &player->verdict);
    }
    if (all_marked(player) && !player->verdict.text[0])
        damage_is_told(explorer, qi_sim_crash(player->session.sim, random, QI_SIM_ALL),
                       &player->model, &player->program->settings, qi_sim_random(&random),
                       &player->verdict);
    if (player->verdict.text[0])
        snprintf(explorer->call, sizeof explorer->call, "%s", call);
}

bool explore_program(struct explorer *explorer, const struct program *program,
                     struct verdict *verdict) {
    struct player player = {.point = look_at_point, .context = explorer};
    explorer->point = 0;
    explorer->counts.programs++;
    snprintf(explorer->call, sizeof explorer->call, "the run itself");
    player_begin(&player, program);
    player_run(&player);
    *verdict = player.verdict;
    if (verdict->text[0]) {
        char where[60];
        const char *name =
            player.op < program->count ? op_name(program->ops[player.op].kind) : "end";
        snprintf(where, sizeof where, "operation %u, %s: ", player.op, name);
        verdict_inside(verdict, where);
        explorer->kind = verdict->kind;
        explorer->counts.findings++;
    }
    player_end(&player);
    sight_free(&explorer->first);
    sight_free(&explorer->second);
    return verdict->text[0] == 0;
}

/* Leaves out ever smaller pieces for as long as a finding stays. */
struct program explore_shrink(struct explorer *explorer, const struct program *program,
                              uint32_t tries) {
    struct program best = program_copy(program);
    struct verdict verdict;
    const char *kind = explorer->kind;
    uint64_t only = explorer->only_point, most = explorer->points_max;
    explorer->only_point = 0;
    explorer->points_max = UINT64_MAX;
    for (uint32_t piece = best.count / 2; piece > 0 && tries > 0;) {
        bool shorter = false;
        for (uint32_t at = 0; at + piece <= best.count && tries > 0;) {
            struct program candidate = program_copy(&best);
            memmove(candidate.ops + at, candidate.ops + at + piece,
                    (candidate.count - at - piece) * sizeof *candidate.ops);
            candidate.count -= piece;
            tries--;
            if (explore_program(explorer, &candidate, &verdict) || verdict.kind != kind) {
                program_free(&candidate);
                at += piece;
            } else {
                program_free(&best);
                best = candidate;
                shorter = true;
            }
        }
        if (!shorter || piece > best.count)
            piece /= 2;
    }
    explorer->only_point = only;
    explorer->points_max = most + explorer->counts.points;
    return best;
}
