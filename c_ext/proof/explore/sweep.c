/* sweep.c - the runs of a sweep, and what must hold in each. */
#include "proof/explore/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALLOCATIONS_REAL
#include "proof/explore/allocations.h"

#define FINDINGS_MAX 10u /* of one program */

static const char *const KIND_NAMES[FAULT_KINDS] = {"eio", "enospc", "memory", "lost"};

static const int KINDS[FAULT_KINDS] = {QI_SIM_EIO, QI_SIM_ENOSPC, 0, QI_SIM_EVICTED};

/* ---- one fault ---- */

void fault_arm(const struct fault *fault, struct qi_sim *sim) {
    allocations = (struct allocations){.sticky = fault->sticky};
    if (fault->kind == FAULT_MEMORY)
        allocations.fail_at = fault->at;
    else if (fault->at > 0)
        qi_sim_fault(sim, fault->at, KINDS[fault->kind], fault->sticky);
}

void fault_end(struct qi_sim *sim) {
    qi_sim_fault(sim, 0, 0, false);
    allocations.fail_at = 0;
}

void fault_hand_over(const struct qi_sim *from, struct qi_sim *to) {
    to->calls = from->calls;
    to->fault_at = from->fault_at;
    to->fault_kind = from->fault_kind;
    to->fault_sticky = from->fault_sticky;
    to->fault_hits = from->fault_hits;
    to->fault_first = from->fault_first;
    to->fault_lost = from->fault_lost;
}

uint64_t fault_hits(const struct qi_sim *sim) {
    return sim->fault_hits + allocations.failed;
}

bool fault_explains(const struct fault *fault, const struct qi_sim *sim, int64_t code) {
    static const int64_t codes[FAULT_KINDS] = {QI_E_IO, QI_E_FULL, QI_E_MEMORY, QI_E_IO};
    if (fault_hits(sim) == 0)
        return false;
    if (code == QI_E_CLOSED) /* by a close that failed */
        return true;
    /* No space, met when something was changed: not QI_E_FULL, which says that nothing was. */
    if (codes[fault->kind] == QI_E_FULL && code == QI_E_IO)
        return strstr(qi_error_text(), "queues have ") || strstr(qi_error_text(), "make place");
    return code == codes[fault->kind] || code == QI_E_FAILED || code == QI_E_OUTCOME;
}

bool fault_read(const char *text, struct fault *fault) {
    char kind[8], times[8];
    unsigned long long at;
    if (sscanf(text, "%7[a-z]:%llu:%7[a-z]", kind, &at, times) != 3)
        return false;
    *fault = (struct fault){.at = at, .sticky = strcmp(times, "ever") == 0};
    while (fault->kind < FAULT_KINDS && strcmp(kind, KIND_NAMES[fault->kind]) != 0)
        fault->kind++;
    return fault->kind < FAULT_KINDS && (fault->sticky || strcmp(times, "once") == 0);
}

void fault_write(const struct fault *fault, char *text, size_t room) {
    snprintf(text, room, "%s:%llu:%s", KIND_NAMES[fault->kind], (unsigned long long)fault->at,
             fault->sticky ? "ever" : "once");
}

/* ---- one run ---- */

static void no_point(struct player *player, const char *call) {
    (void)player;
    (void)call;
}

/* What a kill and a power cut leave here is recovered on disks without faults. `confirmed`: nothing
 * that returned may be missing. */
static bool images_are_allowed(struct sweep *sweep, struct player *player, bool confirmed,
                               const char *where) {
    struct explorer *explorer = sweep->explorer;
    struct allocations faulty = allocations;
    uint64_t random = explorer->seed ^ sweep->fault.at * UINT64_C(0x9E3779B97F4A7C15);
    struct qi_sim *sim = player->session.sim;
    const struct settings *settings = &player->program->settings;
    allocations = (struct allocations){0};
    bool allowed = image_is_allowed(explorer, qi_sim_kill(sim), &player->model, settings,
                                    confirmed || !player_lossy(player), 0, qi_sim_random(&random),
                                    &player->verdict);
    if (allowed) {
        struct qi_sim *image = qi_sim_crash(sim, qi_sim_random(&random), QI_SIM_MIXED);
        allowed = image_is_allowed(explorer, image, &player->model, settings, confirmed, 0,
                                   qi_sim_random(&random), &player->verdict);
    }
    if (!allowed)
        verdict_inside(&player->verdict, where);
    faulty.alive += allocations.alive;
    allocations = faulty;
    return allowed;
}

static bool fits(struct player *player, const char *what, int64_t code) {
    if (code >= 0 || code == QI_EMPTY || player->verdict.text[0] ||
        fault_explains(player->fault, player->session.sim, code))
        return true;
    return player_complain(player, "%s, after the fault: %s (%lld)", what, qi_error_text(),
                           (long long)code);
}

/* Everything that changes no message, then a sync of all. True: it said that all is durable. */
static bool call_everything(struct player *player) {
    struct session *session = &player->session;
    uint8_t payload[PAYLOAD_MAX];
    qi_message message;
    qi_queue_stats stats;
    for (int i = 0; i < QUEUES; i++) {
        qi_queue *queue = session->queues[i];
        if (!queue || player->model.queues[i].exists != PRESENT)
            continue;
        fits(player, "stats", qi_queue_stats_of(queue, &stats));
        fits(player, "browse", qi_browse(queue, 0, false, &message, payload, sizeof payload));
        fits(player, "flush", qi_flush(queue));
        fits(player, "sync", qi_queue_sync(queue));
    }
    fits(player, "tick", qi_store_tick(session->store));
    qi_sim_advance(session->sim, 2 * IDLE_US);
    fits(player, "idle tick", qi_store_tick(session->store));
    fits(player, "compact", qi_store_compact(session->store, 20));
    int error = qi_store_sync(session->store);
    fits(player, "sync of all", error);
    return error == 0;
}

static void close_and_look(struct sweep *sweep, struct player *player) {
    bool confirmed = call_everything(player);
    if (!player->verdict.text[0])
        images_are_allowed(sweep, player, confirmed, "[after everything was called] ");
    if (player->verdict.text[0])
        return;
    int error = qi_store_close(player->session.store);
    fits(player, "close", error);
    player->model.ended = error ? UNCLEAN_OR_CLEAN : CLEAN;
    if (!player->verdict.text[0])
        images_are_allowed(sweep, player, confirmed || !error, "[after close] ");
}

static bool nothing_is_left(struct player *player) {
    int open = 0;
    for (int i = 0; i < player->session.sim->handles_count; i++)
        open += player->session.sim->handles[i] >= 0;
    if (open)
        return player_complain(player, "%d files are still open after the store was freed", open);
    if (allocations.alive)
        return player_complain(player, "%lld allocations are left after the store was freed",
                               (long long)allocations.alive);
    return true;
}

static void count_calls(struct sweep *sweep, struct player *player) {
    uint64_t calls = player->session.sim->calls;
    sweep->calls_of[OP_KINDS] += calls; /* the first open */
    while (player->op < player->program->count && !player->verdict.text[0]) {
        const struct op *op = &player->program->ops[player->op++];
        operation_play(player, op);
        sweep->calls_of[op->kind] += player->session.sim->calls - calls;
        calls = player->session.sim->calls;
    }
}

/* One run with sweep->fault. True: nothing was found. */
static bool run(struct sweep *sweep, const struct program *program, struct verdict *verdict,
                uint64_t *calls, uint64_t *hits) {
    struct player player = {.point = no_point, .fault = &sweep->fault};
    if (sweep->begin)
        sweep->begin();
    player_begin(&player, program);
    bool refused = false;
    if (sweep->fault.at == 0)
        count_calls(sweep, &player);
    bool closed = false;
    while (!player.verdict.text[0] && player.op < program->count) {
        player_run(&player);
        if (player.verdict.text[0] || !player.broken)
            break;
        refused = true;
        uint8_t kind = program->ops[player.op].kind;
        closed = (kind == OP_REOPEN || kind == OP_UPGRADE) && sweep->fault.sticky;
        if (!images_are_allowed(sweep, &player, false, "[where it failed] ") || sweep->fault.sticky)
            break;
        if (!player_reopen(&player, player.session.sim, true))
            break;
        player.op++;
    }
    uint64_t before = player.session.sim->calls;
    if (!player.verdict.text[0] && !closed)
        close_and_look(sweep, &player);
    if (sweep->fault.at == 0)
        sweep->calls_of[OP_KINDS + 1] += player.session.sim->calls - before;
    calls[0] = player.session.sim->calls;
    calls[1] = allocations.calls;
    *hits = fault_hits(player.session.sim);
    fault_end(player.session.sim);
    session_end(&player.session);
    if (!player.verdict.text[0])
        nothing_is_left(&player);
    sweep->refused += refused;
    *verdict = player.verdict;
    if (verdict->text[0]) {
        char where[100];
        const char *name =
            player.op < program->count ? op_name(program->ops[player.op].kind) : "end";
        snprintf(where, sizeof where, "%s failed; operation %u, %s: ",
                 player.session.sim->fault_first ? player.session.sim->fault_first : "allocation",
                 player.op, name);
        verdict_inside(verdict, where);
    }
    player_end(&player);
    return verdict->text[0] == 0;
}

/* ---- a program ---- */

static bool is_same(const struct fault *one, const struct fault *two) {
    return one->kind == two->kind && one->sticky == two->sticky && one->at == two->at;
}

uint32_t sweep_program(struct sweep *sweep, const struct program *program) {
    struct verdict verdict;
    uint64_t calls[2], counted[2], hits;
    uint32_t findings = 0;
    sweep->explorer->counts.programs++;
    sweep->fault = (struct fault){0};
    if (!run(sweep, program, &verdict, counted, &hits)) {
        sweep->found(sweep, program, &verdict);
        return 1;
    }
    for (int way = 0; way < FAULT_KINDS * 2; way++) {
        struct fault fault = {.kind = (enum fault_kind)(way / 2), .sticky = way & 1};
        uint64_t count = counted[fault.kind == FAULT_MEMORY];
        for (fault.at = 1; fault.at <= count && findings < FINDINGS_MAX; fault.at++) {
            if (sweep->only && !is_same(sweep->only, &fault))
                continue;
            sweep->fault = fault;
            sweep->calls[fault.kind][fault.sticky]++;
            if (!run(sweep, program, &verdict, calls, &hits)) {
                sweep->found(sweep, program, &verdict);
                findings++;
            }
            sweep->failed[fault.kind][fault.sticky] += hits > 0;
        }
    }
    sight_free(&sweep->explorer->first);
    sight_free(&sweep->explorer->second);
    return findings;
}
