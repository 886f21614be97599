/* player.c - sessions, looking at what is there, and running a program. */
#include "proof/explore/player.h"
#include "base/base.h"

#include "base/base.h"
#include "proof/explore/operations.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool player_complain(struct player *player, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(player->verdict.text, sizeof player->verdict.text, format, arguments);
    player->verdict.kind = format;
    va_end(arguments);
    return false;
}

bool verdict_complain(struct verdict *verdict, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->text, sizeof verdict->text, format, arguments);
    verdict->kind = format;
    verdict->code = 0;
    va_end(arguments);
    return false;
}

/* The same about an error of the engine. */
static bool refused(struct verdict *verdict, int64_t code) {
    verdict->code = code;
    return false;
}

void verdict_inside(struct verdict *verdict, const char *where) {
    size_t length = strlen(where), room = sizeof verdict->text;
    memmove(verdict->text + length, verdict->text, room - length);
    memcpy(verdict->text, where, length);
    verdict->text[room - 1] = 0;
}

/* ---- sessions ---- */

qi_options options_of(const struct settings *settings) {
    return (qi_options){.new_format = settings->format,
                        .few_queues = settings->few,
                        .commit_log_bytes = settings->log,
                        .segment_entries = settings->segment_entries,
                        .max_journal_entries = settings->max_journal_entries,
                        .max_journal_bytes = settings->max_journal_bytes,
                        .embed_below = settings->embed_below,
                        .message_file_size = settings->message_file_size,
                        .keep_history = settings->keep_history,
                        .max_open_files = settings->files,
                        .sync_interval_us = settings->never ? 0 : 5000,
                        .idle_us = IDLE_US,
                        .create = true,
                        .worker = true};
}

const char *queue_directory(int queue) {
    static const char *const directories[QUEUES] = {
        "0000000000000000000000000000000a", "0000000000000000000000000000000b",
        "0000000000000000000000000000000c", "0000000000000000000000000000000d"};
    return directories[queue];
}

static bool open_with(struct session *session, struct qi_sim *sim, const qi_options *options,
                      struct verdict *verdict) {
    *session = (struct session){.sim = sim};
    int error = qi_store_open_sim(sim, options, &session->store);
    if (error) {
        session->store = NULL;
        verdict_complain(verdict, "open failed: %s (%d)", qi_error_text(), error);
        return refused(verdict, error);
    }
    return true;
}

bool session_open(struct session *session, struct qi_sim *sim, const struct settings *settings,
                  struct verdict *verdict) {
    qi_options options = options_of(settings);
    bool opened = open_with(session, sim, &options, verdict);
    session->tells_deaths = settings->format == 2;
    return opened;
}

bool session_queues(struct session *session, struct model *model, struct verdict *verdict) {
    int failed = settle_renaming(session, model);
    if (failed) {
        verdict_complain(verdict,
                         "a queue that was renamed does not say whether it is there: %s (%d)",
                         qi_error_text(), failed);
        return refused(verdict, failed);
    }
    for (int i = 0; i < QUEUES; i++) {
        char name = (char)('a' + i);
        enum presence exists = model->queues[i].exists;
        int error =
            qi_queue_open(session->store, &name, 1, queue_directory(i), false, &session->queues[i]);
        if (error && !(error == QI_E_MISSING && exists != PRESENT)) {
            verdict_complain(verdict, "queue %c does not open: %s (%d)", name, qi_error_text(),
                             error);
            session->queues[i] = NULL;
            return refused(verdict, error);
        }
        if (!error && exists == ABSENT)
            return verdict_complain(verdict,
                                    "queue %c is there, but it was deleted or never created", name);
        if (!error && (error = session_rules(session, i)) != 0) {
            verdict_complain(verdict, "queue %c has no rules: %s (%d)", name, qi_error_text(),
                             error);
            return refused(verdict, error);
        }
        if (error)
            session->queues[i] = NULL;
    }
    return true;
}

void session_end(struct session *session) {
    if (session->store)
        qi_store_free(session->store);
    *session = (struct session){.sim = session->sim};
}

/* ---- sights ---- */

void sight_free(struct sight *sight) {
    for (int i = 0; i < QUEUES; i++)
        free(sight->seen[i]);
    *sight = (struct sight){0};
}

static struct seen *add_seen(struct sight *sight, int queue) {
    if (sight->count[queue] == sight->room[queue]) {
        sight->room[queue] = sight->room[queue] ? sight->room[queue] * 2 : 64;
        sight->seen[queue] =
            realloc(sight->seen[queue], sight->room[queue] * sizeof *sight->seen[queue]);
        if (!sight->seen[queue])
            abort();
    }
    return &sight->seen[queue][sight->count[queue]++];
}

/* Is there a death for that reason? `deaths`: as side record DEATHS has them. */
static bool has_died_of(const uint8_t *deaths, int64_t size, uint32_t why) {
    for (const uint8_t *at = deaths; at < deaths + size; at += QI_DEATH_FIXED + qi_get16(at))
        if (at[2 + qi_get16(at)] == why && qi_get64(at + 3 + qi_get16(at)) > 0)
            return true;
    return false;
}

/* Where a message is a dead letter, or was one when it moved, its history says why. */
static bool check_deaths(const struct session *session, int queue, const struct message *known,
                         const qi_message *message, struct verdict *verdict) {
    uint8_t deaths[512];
    if (!session->tells_deaths || (!message->dead && !known->died))
        return true;
    int64_t size = qi_deaths_of(session->queues[queue], message->req_id, deaths, sizeof deaths);
    if (size >= 0 && size <= (int64_t)sizeof deaths &&
        (!message->dead || has_died_of(deaths, size, message->dead)) &&
        (!known->died || has_died_of(deaths, size, known->died)))
        return true;
    return verdict_complain(verdict, "%c: message %llu does not tell how it became a dead letter",
                            'a' + queue, (unsigned long long)message->req_id);
}

static bool check_message(const struct session *session, int queue, struct model_queue *model,
                          const qi_message *message, const uint8_t *payload,
                          struct verdict *verdict) {
    char name = (char)('a' + queue);
    unsigned long long id = message->req_id;
    const struct message *known = model_find(model, message->req_id);
    if (!known)
        return verdict_complain(verdict,
                                id < model_next_min(model, model_lane(id)) ||
                                        model_had(model, id, payload, message->payload_size)
                                    ? "%c: message %llu is back after an ack"
                                    : "%c: message %llu was never published",
                                name, id);
    uint32_t size = known->headers_size + known->body_size;
    if (message->payload_size != size || message->body_size != known->body_size ||
        message->expiry_us != known->expiry_us ||
        known->transient != ((message->flags & QI_TRANSIENT) != 0) ||
        known->priority != message->priority)
        return verdict_complain(
            verdict, "%c: message %llu has other sizes, flags, priority or expiry", name, id);
    if (!payload_is(known->serial, payload, size))
        return verdict_complain(verdict, "%c: message %llu has wrong bytes", name, id);
    if (!model_moment_is(known, message->published_us))
        return verdict_complain(verdict, "%c: message %llu was published at %llu, it says %llu",
                                name, id, (unsigned long long)known->published_us,
                                (unsigned long long)message->published_us);
    int64_t own_us = qi_lease_of(session->queues[queue], message->req_id);
    if (own_us != (int64_t)known->own_us)
        return verdict_complain(verdict, "%c: message %llu has a lease of %lld", name, id,
                                (long long)own_us);
    return check_deaths(session, queue, known, message, verdict);
}

/* What a queue says of itself: before and after browsing, which reads its segments, the same. */
struct glance {
    int64_t got; /* the size of the message that get would take, or QI_EMPTY */
    uint64_t first, next_due_us, bytes;
};

static bool glance_at(qi_queue *queue, char name, struct glance *glance, struct verdict *verdict) {
    uint8_t payload[PAYLOAD_MAX];
    qi_message message = {0};
    qi_queue_stats stats;
    glance->got = qi_browse(queue, 0, true, &message, payload, sizeof payload);
    glance->first = glance->got >= 0 ? message.req_id : 0;
    int64_t error = glance->got < 0 && glance->got != QI_EMPTY ? glance->got : 0;
    if (!error)
        error = qi_queue_stats_of(queue, &stats);
    glance->next_due_us = error ? 0 : stats.next_due_us;
    glance->bytes = error ? 0 : stats.bytes;
    if (!error)
        return true;
    verdict_complain(verdict, "%c: peeking failed: %s (%lld)", name, qi_error_text(),
                     (long long)error);
    return refused(verdict, error);
}

static bool look_at_queue(struct sight *sight, int queue, const struct session *session,
                          struct model *model, struct verdict *verdict) {
    uint8_t payload[PAYLOAD_MAX];
    qi_message message;
    uint64_t from = 0, delayed = 0, dead = 0, due_us = UINT64_MAX, bytes = 0;
    int64_t got;
    char name = (char)('a' + queue);
    struct glance before, after;
    if (!glance_at(session->queues[queue], name, &before, verdict))
        return false;
    while ((got = qi_browse(session->queues[queue], from, false, &message, payload,
                            sizeof payload)) >= 0) {
        if (!check_message(session, queue, &model->queues[queue], &message, payload, verdict))
            return false;
        *add_seen(sight, queue) =
            (struct seen){message.req_id, message.delivery_count, message.flags,
                          message.dead ? model_dead(message.dead) : message.due_us};
        dead += message.dead != 0;
        bytes += message.dead ? 0 : message.payload_size;
        delayed += (message.flags & QI_DELAYED) != 0;
        if (message.flags & QI_DELAYED && message.due_us < due_us)
            due_us = message.due_us;
        from = message.req_id + 1;
    }
    if (got != QI_EMPTY) {
        verdict_complain(verdict, "%c: browsing from %llu failed: %s (%lld)", 'a' + queue,
                         (unsigned long long)from, qi_error_text(), (long long)got);
        return refused(verdict, got);
    }
    qi_queue_stats stats;
    int error = qi_queue_stats_of(session->queues[queue], &stats);
    if (error) {
        verdict_complain(verdict, "%c: no stats: %s (%d)", 'a' + queue, qi_error_text(), error);
        return refused(verdict, error);
    }
    if (stats.depth != sight->count[queue])
        return verdict_complain(verdict, "%c: %llu messages are counted, %u are there", 'a' + queue,
                                (unsigned long long)stats.depth, sight->count[queue]);
    if (stats.delayed != delayed || stats.dead != dead ||
        stats.ready + delayed + dead != stats.depth)
        return verdict_complain(
            verdict, "%c: %llu are counted as delayed and %llu as dead, %llu and %llu are",
            'a' + queue, (unsigned long long)stats.delayed, (unsigned long long)stats.dead,
            (unsigned long long)delayed, (unsigned long long)dead);
    sight->next[queue] = stats.next_req_id;
    if (before.next_due_us != (delayed ? due_us : 0))
        return verdict_complain(verdict,
                                "%c: the next is said to be due at %llu, and is due at %llu", name,
                                (unsigned long long)before.next_due_us, (unsigned long long)due_us);
    if (!glance_at(session->queues[queue], name, &after, verdict))
        return false;
    if (before.got != after.got || before.first != after.first)
        return verdict_complain(verdict,
                                "%c: the next one was %llu (%lld), after a look it is %llu (%lld)",
                                name, (unsigned long long)before.first, (long long)before.got,
                                (unsigned long long)after.first, (long long)after.got);
    bool is_counted = session->measures || is_bounded(queue);
    if (is_counted && (before.bytes != bytes || after.bytes != bytes))
        return verdict_complain(verdict, "%c: %llu bytes are counted, %llu are there, then %llu",
                                name, (unsigned long long)before.bytes, (unsigned long long)bytes,
                                (unsigned long long)after.bytes);
    return true;
}

static bool no_damage(const struct session *session, struct verdict *verdict) {
    bool damage;
    const char *where, *text;
    uint64_t offset;
    for (uint32_t i = 0; qi_store_finding(session->store, i, &damage, &where, &offset, &text) == 0;
         i++)
        if (damage)
            return verdict_complain(verdict,
                                    "damage is reported where there is none: %s at %llu: %s", where,
                                    (unsigned long long)offset, text);
    return true;
}

bool sight_take(struct sight *sight, const struct session *session, struct model *model,
                struct verdict *verdict) {
    for (int i = 0; i < QUEUES; i++) {
        sight->count[i] = 0;
        sight->next[i] = 0;
        sight->exists[i] = session->queues[i] != NULL;
        if (sight->exists[i] && !(look_at_queue(sight, i, session, model, verdict) &&
                                  next_is_known(session, i, sight, &model->queues[i], verdict)))
            return false;
    }
    int64_t error = keys_look(session, &sight->keys);
    if (error) {
        verdict_complain(verdict, "the mappings cannot be read: %s (%lld)", qi_error_text(),
                         (long long)error);
        return refused(verdict, error);
    }
    return no_damage(session, verdict);
}

/* ---- a run ---- */

void player_point(struct player *player, const char *call) {
    if (!player->verdict.text[0])
        player->point(player, call);
}

bool player_lossy(const struct player *player) {
    const struct qi_sim *sim = player->session.sim;
    return player->after_cut || (player->armed && sim->fail_sync == 0) || sim->fault_lost;
}

static void watch(void *context, struct qi_sim *sim, const char *call, bool after) {
    struct player *player = context;
    (void)sim;
    (void)after;
    player_point(player, call);
}

static bool is_upgrading(const struct player *player) {
    return player->op < player->program->count &&
           player->program->ops[player->op].kind == OP_UPGRADE;
}

static bool open_and_look(struct player *player, bool look) {
    struct session *session = &player->session;
    qi_options options = options_of(&player->program->settings);
    options.upgrade = is_upgrading(player);
    return open_with(session, session->sim, &options, &player->verdict) &&
           (!look || (session_queues(session, &player->model, &player->verdict) &&
                      sight_take(&player->sight, session, &player->model, &player->verdict)));
}

/* Opens, three times at most if calls fail on purpose: with the fault, once more with it if it is
 * for ever, and when it is over. Then it has to go well. */
static bool open_at_last(struct player *player, bool look) {
    struct qi_sim *sim = player->session.sim;
    if (!player->fault)
        return open_and_look(player, look);
    for (int attempt = 0;; attempt++) {
        uint64_t hits = fault_hits(sim);
        bool unseen = sim->failed_unseen;
        if (open_and_look(player, look)) {
            player->evicted =
                player->fault->kind == FAULT_EVICTED && sim->fault_lost && fault_hits(sim) > hits;
            return true;
        }
        /* A write-back that failed before may be told now, by the one sync of everything. */
        bool told = unseen && !sim->failed_unseen;
        if ((fault_hits(sim) == hits && !told) ||
            !fault_explains(player->fault, sim, player->verdict.code))
            return false;
        if (player->model.ended == CLEAN)
            player->model.ended = UNCLEAN_OR_CLEAN;
        session_end(&player->session);
        player->verdict = (struct verdict){.text = ""};
        if (attempt == 1)
            fault_end(sim);
    }
}

bool player_reopen(struct player *player, struct qi_sim *sim, bool killed) {
    struct session *session = &player->session;
    struct model *model = &player->model;
    enum ended ended = model->ended;
    session_end(session);
    sim->fail_sync = 0;
    player->armed = player->broken = player->evicted = false;
    if (session->sim != sim)
        qi_sim_free(session->sim);
    session->sim = sim;
    sim->watch = player->fault ? NULL : watch;
    sim->watch_context = player;
    if (ended == CLEAN)
        model->ended = UNCLEAN_OR_CLEAN; /* while it opens */
    player->after_cut = !killed;
    uint64_t hits = fault_hits(sim);
    bool done = open_at_last(player, true);
    if (fault_hits(sim) == hits) /* else an open that failed may have begun a session */
        model->ended = ended;
    killed = killed && !sim->fault_lost;
    sim->fault_lost = player->evicted; /* what this session has written already */
    player->after_cut = false;
    if (!done || player->verdict.text[0] ||
        !sight_allowed(&player->sight, model, killed, &ended, &player->verdict))
        return false;
    for (int i = 0; i < QUEUES; i++) {
        model->queues[i].exists = player->sight.exists[i] ? PRESENT : ABSENT;
        if (!player->sight.exists[i])
            model_forget(&model->queues[i]); /* the next one of that name begins at 0 */
        model_rebase(&model->queues[i], player->sight.seen[i], player->sight.count[i], ended);
    }
    model->renaming.is_open = false;
    model->transactions = model->sure = 0;
    keys_rebase(&model->keys, &player->sight.keys);
    model->ended = UNCLEAN;
    return true;
}

void player_begin(struct player *player, const struct program *program) {
    player->program = program;
    player->verdict.text[0] = 0;
    player->op = 0;
    player->broken = player->armed = player->after_cut = player->evicted = false;
    player->model = (struct model){.ended = UNCLEAN_OR_CLEAN};
    for (int i = 0; i < QUEUES; i++)
        player->model.queues[i].max_deliveries = keeps_dead_letters(i) ? MAX_DELIVERIES : 0;
    qi_sim_knobs knobs = {.mapping = program->settings.mapping,
                          .no_zeros = program->settings.seed % 2 == 0,
                          .no_sync_all = program->settings.alone,
                          .crowd = program->settings.crowd};
    struct qi_sim *sim = qi_sim_new(program->settings.seed, &knobs);
    if (!sim)
        abort();
    sim->watch = player->fault ? NULL : watch;
    sim->watch_context = player;
    if (player->fault)
        fault_arm(player->fault, sim);
    player->session.sim = sim;
    open_at_last(player, false);
    player->model.ended = UNCLEAN;
}

/* What a queue that is bounded in bytes counts, after each operation. */
static bool bytes_fit(struct player *player) {
    qi_queue_stats stats;
    if (player->broken)
        return true;
    end_leases(player); /* the operation may have taken time */
    for (int i = 0; i < QUEUES; i++) {
        const struct model_queue *queue = &player->model.queues[i];
        uint64_t bytes = 0;
        if (!is_bounded(i) || queue->exists != PRESENT || player->armed || player->fault ||
            qi_queue_stats_of(player->session.queues[i], &stats) != 0)
            continue;
        for (uint32_t k = 0; k < queue->count; k++) {
            const struct message *message = &queue->messages[k];
            if (message->now.published && !message->now.acked && message->now.time < model_dead(0))
                bytes += message->headers_size + message->body_size;
        }
        if (stats.bytes != bytes)
            return player_complain(player, "%c: %llu bytes are counted, %llu wait", 'a' + i,
                                   (unsigned long long)stats.bytes, (unsigned long long)bytes);
    }
    return true;
}

void player_run(struct player *player) {
    for (; player->op < player->program->count && !player->verdict.text[0] && !player->broken;
         player->op++) {
        if (!operation_play(player, &player->program->ops[player->op]) || !bytes_fit(player))
            return;
        if (player->broken && player->fault)
            return;                            /* the sweep decides what comes next */
        if (player->broken && player->armed && /* what the process had is lost with it */
            !player_reopen(player, player->session.sim, false))
            return;
        player_point(player, "between");
    }
}

void player_end(struct player *player) {
    if (player->session.sim)
        player->session.sim->watch = NULL;
    session_end(&player->session);
    qi_sim_free(player->session.sim);
    player->session.sim = NULL;
    model_free(&player->model);
    sight_free(&player->sight);
}
