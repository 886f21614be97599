/* flips.c - damaged copies of an image, opened and compared with the model. */
#include "proof/explore/flips.h"

#include <stdio.h>
#include <string.h>

/* What is seen of one damaged image. */
struct loss {
    bool told, wrong;
    bool as_damage;      /* told, and not as a torn tail alone */
    uint32_t persistent; /* of the lost: a torn tail may take one, what came after the last MARK */
    bool of_data;        /* settings or data are lost, which every later session has to tell */
    bool of_records;     /* records of a journal are, which every later session has to tell, too */
    bool forgotten;      /* and one does not */
    bool data_changed;   /* mappings are not what they were when the session ended */
    bool store_refused;
    uint32_t queues_refused;
    uint32_t lost,
        changed; /* messages that are not there; that are back, or delivered more or less often */
    uint32_t queues, segments; /* that the lost are of */
};

/* ---- looking ---- */

static bool is_expected(const struct model *model, const struct message *message) {
    return message->now.published && !message->now.acked &&
           (!message->transient || model->ended == CLEAN);
}

static void take_message(struct loss *loss, struct model_queue *queue, const struct model *model,
                         const qi_message *seen, const uint8_t *payload, bool *there) {
    struct message *known = model_find(queue, seen->req_id);
    if (!known) { /* an ack that was damaged; or nothing that ever was */
        bool was_given = seen->req_id < model_next_min(queue, model_lane(seen->req_id)) ||
                         model_had(queue, seen->req_id, payload, seen->payload_size);
        loss->changed += was_given;
        loss->wrong = loss->wrong || !was_given;
        return;
    }
    uint32_t size = known->headers_size + known->body_size;
    if (seen->payload_size != size || seen->body_size != known->body_size ||
        !payload_is(known->serial, payload, size))
        loss->wrong = true;
    if (seen->published_us && !model_moment_is(known, seen->published_us))
        loss->wrong = true; /* not known is no wrong answer */
    there[known - queue->messages] = true;
    loss->changed += !is_expected(model, known) || seen->delivery_count != known->now.deliveries ||
                     (seen->dead ? model_dead(seen->dead) : seen->due_us) != known->now.time ||
                     seen->priority != known->priority;
}

static void look_at(struct loss *loss, qi_queue *handle, struct model_queue *queue,
                    const struct model *model, const struct settings *settings) {
    bool there[4096] = {false};
    uint8_t payload[PAYLOAD_MAX];
    qi_message message;
    uint64_t from = 0;
    uint32_t refused = 0;
    for (;;) {
        int64_t got = qi_browse(handle, from, false, &message, payload, sizeof payload);
        if (got == QI_EMPTY || refused > 1000)
            break;
        refused += got < 0;
        if (got >= 0)
            take_message(loss, queue, model, &message, payload, there);
        else
            loss->told = loss->as_damage = true;
        int64_t bad = got < 0 ? qi_error_req_id() : (int64_t)message.req_id;
        from = bad >= 0 ? (uint64_t)bad + 1 : from + 1;
    }
    uint64_t last = UINT64_MAX;
    uint32_t before = loss->lost;
    for (uint32_t i = 0; i < queue->count && i < 4096; i++) {
        uint64_t segment = queue->messages[i].id / settings->segment_entries;
        if (there[i] || !is_expected(model, &queue->messages[i]))
            continue;
        loss->lost++;
        loss->persistent += !queue->messages[i].transient;
        loss->segments += segment != last;
        last = segment;
    }
    loss->queues += loss->lost > before;
}

/* That settings or data are lost. */
static bool tells_of_data(qi_store *store) {
    bool damage, tells = false;
    const char *where, *text;
    uint64_t offset;
    for (uint32_t i = 0; !tells && qi_store_finding(store, i, &damage, &where, &offset, &text) == 0;
         i++)
        tells = damage && strstr(text, " lost") &&
                (strncmp(where, "commits", 7) == 0 || strcmp(where, "catalog") == 0);
    return tells;
}

/* Behind an end with close nothing of them may be lost without a word, wherever the damage is. */
static bool data_is_other(const struct session *session, const struct model *model) {
    struct keys seen;
    bool exists[QUEUES];
    for (int i = 0; i < QUEUES; i++)
        exists[i] = session->queues[i] != NULL;
    return model->ended == CLEAN && keys_look(session, &seen) == 0 &&
           !keys_are_same(&seen, &model->keys.durable, exists);
}

/* That records of a journal are lost, or were in an earlier session. */
static bool tells_of_records(qi_store *store) {
    bool damage, tells = false;
    const char *where, *text;
    uint64_t offset;
    for (uint32_t i = 0; !tells && qi_store_finding(store, i, &damage, &where, &offset, &text) == 0;
         i++)
        tells = damage && (strcmp(where, "queues") == 0 ||
                           (strstr(where, "journal.") && strstr(text, "damaged place")));
    return tells;
}

/* Every trace of the damage in the files goes. */
static void replace_all(const struct session *session) {
    for (int i = 0; i < QUEUES; i++)
        for (int turn = 0; session->queues[i] && turn < 2; turn++)
            if (qi_publish(session->queues[i], "", 0) >= 0)
                qi_flush(session->queues[i]);
    qi_store_close(session->store);
}

static struct loss look(struct qi_sim *image, struct model *model,
                        const struct settings *settings) {
    struct loss loss = {0};
    struct session session;
    struct verdict verdict;
    if (!session_open(&session, image, settings, &verdict)) {
        loss.store_refused = loss.told = loss.as_damage = true;
        return loss;
    }
    for (int i = 0; i < QUEUES; i++) {
        char name = (char)('a' + i);
        if (model->queues[i].exists != PRESENT)
            continue;
        int error =
            qi_queue_open(session.store, &name, 1, queue_directory(i), false, &session.queues[i]);
        if (!error)
            look_at(&loss, session.queues[i], &model->queues[i], model, settings);
        loss.queues_refused += error != 0;
    }
    bool damage;
    const char *where, *text;
    uint64_t offset;
    loss.as_damage = loss.as_damage || loss.queues_refused || qi_store_check(session.store) < 0;
    for (uint32_t i = 0; qi_store_finding(session.store, i, &damage, &where, &offset, &text) == 0;
         i++) {
        loss.told = true;
        loss.as_damage = loss.as_damage || damage;
    }
    loss.told = loss.told || loss.as_damage;
    loss.of_data = tells_of_data(session.store);
    loss.data_changed = data_is_other(&session, model);
    loss.of_records = tells_of_records(session.store);
    bool is_kept = loss.of_data || loss.of_records;
    if (is_kept)
        replace_all(&session);
    session_end(&session);
    if (is_kept && session_open(&session, image, settings, &verdict))
        loss.forgotten = (loss.of_data && !tells_of_data(session.store)) ||
                         (loss.of_records && !tells_of_records(session.store));
    session_end(&session);
    return loss;
}

/* ---- one damaged place ---- */

/* A fan-out message may be missed by several queues at once. A frame: of a journal a batch, of a
 * segment all of it (the sizes of programs are so small), so the lost are of one segment, or of the
 * two that a batch spans. */
static enum reach reach_of(const struct loss *loss, const char *what) {
    if (loss->store_refused)
        return REACH_STORE;
    if (loss->queues_refused)
        return REACH_QUEUE;
    if (loss->lost == 0)
        return REACH_NOTHING;
    if (loss->lost == 1 || (loss->lost == loss->queues && strstr(what, ".qms")))
        return REACH_MESSAGE;
    return loss->queues == 1 && loss->segments <= 2 ? REACH_FRAME : REACH_MORE;
}

static bool must_be_told(int kind, const char *what) {
    return kind == QI_SIM_BIT_FLIP || kind == QI_SIM_MISSING_FILE ||
           (kind == QI_SIM_ZERO_SECTOR && !strstr(what, "journal."));
}

/* Nothing but store.meta and the logs themselves tell that one of these files was there. */
static const char *choose_missing(uint64_t *random) {
    return qi_sim_below(random, 3) ? "commits/" : "catalog";
}

static bool damage_one(struct flips *flips, qi_sim *base, struct model *model,
                       const struct settings *settings, uint64_t random, struct verdict *verdict) {
    static const int kinds[8] = {QI_SIM_BIT_FLIP,    QI_SIM_BIT_FLIP,    QI_SIM_BIT_FLIP,
                                 QI_SIM_BIT_FLIP,    QI_SIM_BIT_FLIP,    QI_SIM_BIT_FLIP,
                                 QI_SIM_ZERO_SECTOR, QI_SIM_STALE_SECTOR};
    bool removes = qi_sim_below(&random, 16) == 0;
    int kind = removes ? QI_SIM_MISSING_FILE : kinds[qi_sim_below(&random, 8)];
    int row = removes ? FLIPS_GONE : kind;
    const char *where = removes ? choose_missing(&random) : "";
    qi_sim *image = qi_sim_kill(base);
    if (qi_sim_damage(image, kind, random, where, flips->what, sizeof flips->what) == 0) {
        flips->tried[row]++;
        struct loss loss = look(image, model, settings);
        enum reach reach = reach_of(&loss, flips->what);
        bool silent = ((loss.lost || loss.changed) && !loss.told) ||
                      (loss.persistent > 1 && !loss.as_damage) ||
                      (loss.data_changed && !loss.of_data);
        flips->reach[row][reach]++;
        flips->silent[row] += silent;
        flips->wrong[row] += loss.wrong;
        if (reach < REACH_QUEUE && loss.lost > flips->most_lost[row])
            flips->most_lost[row] = loss.lost;
        if (loss.forgotten) {
            snprintf(verdict->text, sizeof verdict->text,
                     "[%s] something is lost, and the next session does not tell", flips->what);
            verdict->kind = "silent";
        }
        if (loss.wrong || (silent && must_be_told(kind, flips->what))) {
            snprintf(verdict->text, sizeof verdict->text, "[%s] %s: %u messages lost, %u changed%s",
                     flips->what, loss.wrong ? "wrong bytes are served" : "nobody tells", loss.lost,
                     loss.changed, loss.data_changed ? ", mappings changed" : "");
            verdict->kind = loss.wrong ? "wrong" : "silent";
        }
    }
    qi_sim_free(image);
    return verdict->text[0] == 0;
}

/* ---- a program ---- */

static void no_point(struct player *player, const char *call) {
    (void)player;
    (void)call;
}

/* Everything durable, with a MARK behind it: by a close, or by a sync, one more message and another
 * sync. */
static bool settle(struct player *player, bool closed) {
    static const struct op sync = {.kind = OP_SYNC_ALL, .count = 1};
    bool fine = operation_play(player, &sync);
    if (closed) {
        fine = fine && qi_store_close(player->session.store) == 0;
        player->model.ended = CLEAN;
        return fine;
    }
    for (int round = 0; round < 2 && fine; round++) {
        for (uint8_t i = 0; i < QUEUES && fine; i++) {
            struct op publish = {.kind = OP_PUBLISH, .queue = i, .count = 1, .size = 20};
            fine = player->model.queues[i].exists != PRESENT || operation_play(player, &publish);
        }
        fine = fine && operation_play(player, &sync);
    }
    return fine && !player->broken;
}

bool flips_program(struct flips *flips, const struct program *program, struct verdict *verdict) {
    struct player player = {.point = no_point};
    uint64_t random = flips->explorer->seed * UINT64_C(0xD1342543DE82EF95);
    flips->explorer->counts.programs++;
    player_begin(&player, program);
    player.session.sim->watch = NULL;
    player_run(&player);
    bool usable = !player.verdict.text[0] && !player.broken && !player.armed &&
                  settle(&player, qi_sim_random(&random) & 1);
    *verdict = player.verdict;
    if (usable) {
        qi_sim *base = qi_sim_kill(player.session.sim);
        for (uint64_t i = 0; i < flips->each && !verdict->text[0]; i++)
            damage_one(flips, base, &player.model, &program->settings, qi_sim_random(&random),
                       verdict);
        qi_sim_free(base);
    }
    player_end(&player);
    return verdict->text[0] == 0;
}
