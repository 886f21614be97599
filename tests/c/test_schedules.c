/* test_schedules.c - threads that publish, get, ack, move, sync and purge at once, beside the
 * engine's own worker, which sends queues to sleep, flushes, compacts and drops what has expired:
 * on a simulated disk, in many schedules, each decided by a seed (stage.h). Usage: test_schedules
 * <directory>; QINDEX_SCHEDULES: how many; QINDEX_SEED: the first one's seed, and with
 * QINDEX_SCHEDULES=1 each verb is told.
 *
 * What each verb was told is kept in a ledger. At some turn the process is killed, or the power
 * goes: what a copy of the disk shows then must agree with the ledger, and so must the memory at
 * the end, a copy after a sync, and the disk after a clean end. Nobody gets what another has;
 * nobody waits for ever.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>

#include "now.h"
#include "players.h"
#include "queue/queue.h"

static struct player players[PLAYERS];
static bool purge_begun[QUEUES];
static uint32_t purges[QUEUES];
static uint64_t cut_at, seed_now;
static bool is_told, has_times;
/* A call for the disk fails; a player closes the store; one deletes queue b. */
static enum { NO_ENDING, FAULT, CLOSE, DELETE } ending;
static __thread jmp_buf the_end;
static uint32_t visits_now; /* calls that never wait, and had not to */

#define TELL(...)                                                                                  \
    (is_told ? (void)(fprintf(stderr, "%d: ", me), fprintf(stderr, __VA_ARGS__)) : (void)0)

static qi_options options(void) {
    qi_options options = usual();
    options.worker = true;
    options.idle_us = 1500;
    options.sync_interval_us = seed_now % 3 ? 500 : 0;
    options.format = seed_now / 12 % 2 ? 2 : 1;
    options.few_queues = 1;
    options.commit_log_bytes = seed_now / 24 % 2 ? 9000 : 20000;
    return options;
}

/* ---- what happens at a turn ---- */

/* What a failed sync was for may be gone, although the process lives: of that only what was synced
 * before is sure. */
static void look_at_copies(int mode) {
    const uint64_t all[QUEUES] = {ledger.ticks, ledger.ticks};
    stage.is_open = false; /* nobody else is there */
    look_at_copy(qi_sim_kill(ledger.corner.sim), options(), ending == FAULT ? ledger.durable : all);
    look_at_copy(qi_sim_crash(ledger.corner.sim, seed_now, mode), options(), ledger.durable);
    stage.is_open = true;
}

/* Time passes at some turns, and the wall clock steps forward; at one of them the process is
 * killed, in one world, and in another the power goes. */
static void at_turn(void) {
    if (roll(8) == 0)
        qi_sim_advance(ledger.corner.sim, roll(400));
    if (has_times && roll(50) == 0) /* somebody sets the wall clock */
        qi_sim_set_wall(ledger.corner.sim, now() + roll(2000));
    if (stage.turns == cut_at)
        look_at_copies(QI_SIM_MIXED);
}

/* ---- verbs, and what the ledger learns from them ---- */

/* What a verb says; in a play with an ending, that is where a player leaves, and its verb stays in
 * doubt. */
static int64_t said(int64_t result) {
    bool is_failed = result == QI_E_IO || result == QI_E_FAILED || result == QI_E_OUTCOME;
    bool is_end = ending == FAULT ? is_failed : ending != NO_ENDING && result == QI_E_CLOSED;
    if (is_end)
        longjmp(the_end, 1);
    return result;
}

/* Published, and a purge came meanwhile: it took it, if it is neither there nor acked by somebody
 * who got it. */
static void settle_purge(int q, struct message *message) {
    qi_message found;
    uint8_t payload[1];
    uint32_t purges_before = purges[q];
    if (purge_begun[q]) /* that one will look */
        return;
    int64_t size = said(qi_browse(queue_at(q), message->key - 1, false, &found, payload, 0));
    bool is_there = (size >= 0 || size == QI_E_ROOM) && found.req_id == message->key - 1;
    if (purges[q] != purges_before || message->acking || message->deleting)
        return; /* nor is it known who took it before those verbs have returned */
    message->purging = false;
    if (is_there || message->settled)
        return;
    assert(!message->out || message->leased_until);
    message->settled = ledger.ticks;
}

static void was_published(int q, int64_t first, uint32_t count, uint64_t due_us,
                          uint64_t expiry_us) {
    assert(first >= 0 || (ledger.keeps_all && first == QI_E_QUEUE_FULL)); /* all of it is out */
    if (first < 0)
        return;
    ledger.ticks++;
    for (uint32_t i = 0; i < count; i++) {
        struct message *message = message_of(q, (uint64_t)first + i);
        assert(!message->published); /* its ReqId is new */
        message->published = ledger.ticks;
        bool may_have_changed = message->out || message->settled || ledger.keeps_all;
        message->due_us = may_have_changed ? 0 : due_us;
        message->expiry_us = expiry_us;
        if (message->purging)
            settle_purge(q, message);
    }
    TELL("publish %c %d: %lld\n", 'a' + q, count, (long long)first);
}

static void publish(int q) {
    uint8_t body[200];
    uint32_t size = new_body(body);
    ledger.publishing[q]++;
    int64_t req_id =
        roll(2) ? qi_publish_now(queue_at(q), &(struct qi_given){.body = body, .body_size = size})
                : QI_BUSY;
    visits_now += req_id >= 0;
    if (req_id == QI_BUSY)
        req_id = qi_publish(queue_at(q), body, size);
    was_published(q, said(req_id), 1, 0, 0);
    ledger.publishing[q]--;
}

/* With a priority, a delay, an end. */
static void publish_with(int q) {
    uint8_t body[200];
    uint32_t size = new_body(body), flags = roll(3) * 100 << QI_PRIORITY_SHIFT;
    uint64_t due_us = roll(2) ? now() + roll(3000) : 0,
             expiry_us = roll(3) ? 0 : now() + 1 + roll(5000);
    ledger.publishing[q]++;
    int64_t req_id = qi_publish_with(queue_at(q), NULL, 0, body, size, flags, expiry_us, due_us);
    was_published(q, said(req_id), 1, due_us, expiry_us);
    ledger.publishing[q]--;
}

static void publish_batch(int q) {
    uint8_t bodies[5 * 200], *next = bodies;
    uint32_t sizes[5], count = 1 + roll(5);
    for (uint32_t i = 0; i < count; i++) {
        sizes[i] = new_body(next);
        next += sizes[i];
    }
    ledger.publishing[q]++;
    int64_t first =
        qi_publish_many(queue_at(q), count, bodies, sizes, NULL, NULL, 0, 0, 0, NULL, NULL);
    was_published(q, said(first), count, 0, 0);
    ledger.publishing[q]--;
}

static void fan_out(void) {
    qi_queue *queues[QUEUES] = {ledger.corner.a, ledger.corner.b};
    uint8_t body[200];
    uint64_t ids[QUEUES];
    uint32_t size = new_body(body);
    ledger.publishing[0]++, ledger.publishing[1]++;
    int error = qi_store_publish(ledger.corner.store, queues, QUEUES, NULL, 0, body, size, 0, 0, 0,
                                 0, false, ids);
    said(error);
    for (int q = 0; q < QUEUES; q++)
        was_published(q, error ? error : (int64_t)ids[q], 1, 0, 0);
    ledger.publishing[0]--, ledger.publishing[1]--;
}

/* `begun`, `leased`: both clocks before the call. */
static void took(struct player *player, int q, const qi_message *taken, uint64_t begun,
                 uint64_t leased, uint64_t lease_us) {
    struct message *message = message_of(q, taken->req_id);
    TELL("get %c: %llu, delivery %u, lease %llu\n", 'a' + q, (unsigned long long)taken->req_id,
         taken->delivery_count, (unsigned long long)lease_us);
    uint64_t leased_until = lease_us ? leased + lease_us : 0;
    player->out[q][player->out_count[q]++] =
        (struct item){taken->req_id, leased_until, taken->delivery, taken->delivery_count};
    ledger.ticks++;
    assert(message->published || ledger.publishing[q] > 0);
    assert(!message->expiry_us || message->expiry_us > begun || ledger.keeps_all); /* redriven */
    bool is_late =
        leased_until && leased_until <= steady(); /* the call took longer than its lease */
    if (is_late && (message->settled || taken->delivery_count < message->newest))
        return;
    assert(taken->delivery_count > message->newest);
    assert(!message->settled && message->due_us <= now());
    assert(!message->out || (message->leased_until && message->leased_until <= steady()));
    message->out = message->newest = taken->delivery_count;
    message->leased_until = leased_until;
}

static void get(struct player *player, int q) {
    uint8_t payload[300];
    qi_queue *queues[QUEUES] = {ledger.corner.a, ledger.corner.b};
    qi_reader reader = {.queue = queue_at(q), .payload = payload, .room = sizeof payload};
    reader.lease_us = has_times && roll(2) ? 1 + roll(2000) : 0;
    uint64_t begun = now(), leased = steady();
    int64_t size = QI_BUSY;
    uint32_t how = roll(4);
    if (how == 0) {
        size = get_now(reader.queue, &reader.message, payload, sizeof payload, reader.lease_us);
        visits_now += size >= 0;
    }
    if (size == QI_BUSY && how == 1)
        size = qi_get_wait(&reader, queues, QUEUES,
                           qi_store_clock_us(ledger.corner.store) + roll(800), UINT64_MAX);
    else if (size == QI_BUSY)
        size = qi_get(&reader);
    assert(said(size) >= 0 || size == QI_EMPTY);
    if (size < 0)
        return;
    check_body(payload, &reader.message);
    took(player, reader.queue == ledger.corner.b, &reader.message, begun, leased, reader.lease_us);
}

static void get_batch(struct player *player, int q) {
    qi_message messages[4];
    uint8_t payloads[4 * 200];
    uint64_t ids[4], begun = now();
    int64_t got =
        qi_get_many(queue_at(q), 1 + roll(4), messages, payloads, sizeof payloads, ids, 0);
    assert(said(got) > 0 || got == QI_EMPTY);
    for (int64_t i = 0; i < got; i++)
        took(player, q, &messages[i], begun, 0, 0);
}

/* A verb was refused. If the message is gone: by another verb, that has perhaps not returned, by a
 * purge, or its time. */
static void was_refused(int q, struct message *message, int64_t error) {
    if (message->purging)
        settle_purge(q, message);
    if (error == QI_E_ACKED && !message->acking && !message->deleting && !message->settled)
        message->settled = ledger.ticks;
}

/* A verb on one message with a lease was refused: it had ended, and perhaps somebody else had it
 * since. */
static void was_late(int q, const struct item *item, int64_t error) {
    struct message *message = message_of(q, item->req_id);
    assert(error == QI_E_LEASE || error == QI_E_ACKED || error == QI_E_UNKNOWN);
    assert(item->leased_until && item->leased_until <= steady());
    if (message->out == item->deliveries)
        message->out = 0;
    was_refused(q, message, error);
}

static int64_t ack_items(int q, const struct item *items, uint32_t count) {
    uint64_t ids[4], deliveries[4];
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = items[i].req_id;
        deliveries[i] = items[i].delivery;
    }
    int64_t error = QI_BUSY;
    if (count == 1 && roll(2))
        error = qi_ack_now(queue_at(q), ids[0], items->delivery);
    visits_now += error == 0;
    if (error != QI_BUSY)
        return error;
    return count == 1 ? qi_ack(queue_at(q), ids[0], items->delivery)
                      : qi_ack_many(queue_at(q), ids, deliveries, count);
}

static void ack(struct player *player, int q) {
    struct item items[4];
    uint32_t count = pick(player, q, items, 1 + roll(4));
    if (count == 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        message_of(q, items[i].req_id)->acking++;
    int64_t error = said(ack_items(q, items, count));
    ledger.ticks++;
    for (uint32_t i = 0; i < count; i++) {
        struct message *message = message_of(q, items[i].req_id);
        message->acking--;
        if (error) {
            was_late(q, &items[i], error);
            continue;
        }
        assert(message->out == items[i].deliveries && !message->settled);
        message->settled = ledger.ticks;
        TELL("ack %c: %llu\n", 'a' + q, (unsigned long long)items[i].req_id);
    }
}

/* Who looks may find it ready, or due, before the verb has returned. */
static void give_back(struct player *player, int q) {
    struct item items[4];
    uint64_t ids[4], due_us = has_times && roll(2) ? now() + roll(3000) : 0;
    uint64_t deliveries[4];
    uint32_t count = pick(player, q, items, 1 + roll(4));
    for (uint32_t i = 0; i < count; i++) {
        struct message *message = message_of(q, items[i].req_id);
        ids[i] = items[i].req_id;
        deliveries[i] = items[i].delivery;
        if (items[i].leased_until && message->out == items[i].deliveries) {
            message->leased_until = 1; /* unless it is refused, somebody may have it soon */
        } else if (!items[i].leased_until) {
            message->out = 0;
            message->due_us = ledger.keeps_all ? 0 : due_us;
        }
    }
    bool rejects = ledger.keeps_all && roll(3) == 0;
    int64_t error = QI_BUSY;
    if (roll(2))
        error = qi_settle_now(queue_at(q), rejects ? QI_SETTLE_REJECT : QI_SETTLE_NACK, ids,
                              deliveries, count, rejects ? 0 : due_us);
    visits_now += error == 0;
    if (error == QI_BUSY)
        error = rejects ? qi_settle_all(queue_at(q), QI_SETTLE_REJECT, ids, deliveries, count, 0)
                        : qi_nack_many(queue_at(q), ids, deliveries, count, due_us);
    TELL("nack %c: %u\n", 'a' + q, count);
    if (said(error))
        was_late(q, items, error);
    else if (count && message_of(q, *ids)->out == items->deliveries)
        message_of(q, *ids)->out = 0;
}

/* Of messages that nobody has; which, the dice say. */
static void change_one(int q) {
    uint64_t req_id = some_message(q, roll(PLACES));
    if (req_id == UINT64_MAX)
        return;
    struct message *message = message_of(q, req_id);
    bool is_deleted = roll(2);
    message->deleting += is_deleted;
    message->due_us = 0; /* what it is from now on is not known */
    int64_t error = is_deleted ? qi_delete(queue_at(q), req_id)
                               : qi_reschedule(queue_at(q), req_id, now() + roll(2000));
    TELL("%s %c: %llu: %lld\n", is_deleted ? "delete" : "reschedule", 'a' + q,
         (unsigned long long)req_id, (long long)error);
    assert(!said(error) || error == QI_E_DELIVERED || error == QI_E_ACKED ||
           (error == QI_E_DEAD && ledger.keeps_all && !is_deleted));
    ledger.ticks++;
    message->deleting -= is_deleted;
    message->due_us = 0;
    if (!error && is_deleted)
        message->settled = ledger.ticks;
    else
        was_refused(q, message, error);
}

static void sync_some(int q) {
    uint64_t begun = ledger.ticks;
    bool all = roll(2);
    assert(said(all ? qi_store_sync(ledger.corner.store) : qi_queue_sync(queue_at(q))) == 0);
    TELL("sync %s\n", all ? "all" : q ? "b" : "a");
    for (int i = 0; i < QUEUES; i++)
        if ((all || i == q) && ledger.durable[i] < begun)
            ledger.durable[i] = begun;
}

/* ---- as an event loop syncs ---- */

#define ALL QUEUES
static bool asking[QUEUES + 1];
static uint64_t asked_at[QUEUES + 1];

/* Any player hears of all that have ended. */
static void hear(int64_t (*says)(int64_t)) {
    qi_queue *queue;
    int error;
    while (qi_sync_came(ledger.corner.store, &queue, &error)) {
        int which = queue == NULL ? ALL : queue == ledger.corner.b;
        assert(asking[which]);
        asking[which] = false;
        TELL("synced %s: %d\n", which == ALL ? "all" : which ? "b" : "a", error);
        if (says(error) != 0)
            continue;
        for (int i = 0; i < QUEUES; i++)
            if ((which == ALL || which == i) && ledger.durable[i] < asked_at[which])
                ledger.durable[i] = asked_at[which];
    }
}

static int64_t is_done(int64_t error) {
    assert(error == 0 || ending != NO_ENDING);
    return said(error);
}

static int64_t at_the_end(int64_t error) {
    assert(error == 0 || ending != NO_ENDING);
    return error;
}

static void ask_for_sync(void) {
    int which = (int)roll(QUEUES + 1);
    if (!asking[which]) {
        asking[which] = true;
        asked_at[which] = ledger.ticks;
        int error = qi_sync_ask(ledger.corner.store, which == ALL ? NULL : queue_at(which));
        if (error)
            asking[which] = false;
        assert(said(error) == 0);
    }
    for (uint32_t i = roll(60); i > 0 && asking[which]; i--) {
        give_turn();
        hear(is_done);
    }
}

/* It takes what is ready when it comes to it; which that is tells who looks afterwards. */
static void purge(int q) {
    if (purge_begun[q])
        return;
    purge_begun[q] = true;
    purges[q]++;
    for (uint32_t i = 0; i < PLACES; i++)
        ledger.messages[q][i].purging = !ledger.messages[q][i].settled;
    assert(said(qi_purge(queue_at(q), QI_PURGE_ALL)) >= 0);
    purge_begun[q] = false;
    TELL("purge %c\n", 'a' + q);
    ledger.ticks++;
    for (uint32_t i = 0; i < PLACES; i++)
        if (ledger.messages[q][i].purging && ledger.messages[q][i].published)
            settle_purge(q, &ledger.messages[q][i]);
}

/* To the other queue, all of it or nothing: there it is another message. */
static void move(struct player *player, int q) {
    struct item item;
    int to = 1 - q;
    if (options().format < 2 || pick(player, q, &item, 1) == 0)
        return;
    struct message *message = message_of(q, item.req_id);
    qi_change change = {.kind = QI_CHANGE_MOVE,
                        .queue = queue_at(q),
                        .to = queue_at(to),
                        .req_id = item.req_id,
                        .delivery = item.delivery};
    uint32_t failed;
    message->acking++;
    ledger.publishing[to]++;
    int64_t error = said(qi_transaction(ledger.corner.store, &change, 1, false, &failed));
    ledger.ticks++;
    message->acking--;
    if (error == QI_E_QUEUE_FULL) {
        player->out[q][player->out_count[q]++] = item;
    } else if (error) {
        was_late(q, &item, error);
    } else {
        assert(message->out == item.deliveries && !message->settled);
        message->settled = ledger.ticks;
        message_of(to, change.req_id)->expiry_unknown =
            message->expiry_unknown || !message->published;
        was_published(to, (int64_t)change.req_id, 1, 0, message->expiry_us);
        TELL("move %c: %llu\n", 'a' + q, (unsigned long long)item.req_id);
    }
    ledger.publishing[to]--;
}

static void delete_queue(void) {
    ledger.has_no_b = true;
    assert(said(qi_queue_delete(ledger.corner.b)) == 0);
    TELL("delete b\n");
}

static void pass_time(void) {
    qi_sim_advance(ledger.corner.sim, 500 + roll(2000));
    for (uint32_t i = roll(20); i > 0; i--)
        give_turn();
}

static void play_verb(struct player *player, int q) {
    uint32_t verb = roll(has_times ? 50 : 40);
    if (verb < 6)
        publish(q);
    else if (verb < 8)
        publish_batch(q);
    else if (verb < 11)
        fan_out();
    else if (verb < 18)
        get(player, q);
    else if (verb < 20)
        get_batch(player, q);
    else if (verb < 26)
        ack(player, q);
    else if (verb < 28)
        give_back(player, q);
    else if (verb < 31 && roll(3))
        sync_some(q);
    else if (verb < 31)
        ask_for_sync();
    else if (verb < 32)
        assert(said(qi_flush(queue_at(q))) == 0);
    else if (verb < 33)
        assert(said(qi_store_compact(ledger.corner.store, roll(60))) >= 0);
    else if (verb < 34)
        purge(q);
    else if (verb < 35 && ending == CLOSE)
        assert(qi_store_close(ledger.corner.store) == 0);
    else if (verb < 35 && ending == DELETE)
        delete_queue();
    else if (verb < 37)
        move(player, q);
    else if (verb < 40)
        pass_time();
    else if (verb < 46)
        publish_with(q);
    else if (verb < 48)
        assert(said(qi_redrive(queue_at(q), 1 + roll(9))) >= 0);
    else
        change_one(q);
}

static void *play_verbs(void *player) {
    if (setjmp(the_end) == 0)
        for (int i = 0; i < 20; i++)
            play_verb(player, (int)roll(QUEUES));
    return NULL;
}

/* ---- one schedule ---- */

static void begin(uint64_t seed) {
    qi_sim_knobs knobs = {.mapping = seed % 2};
    static const uint32_t stays[] = {128, 224, 250};
    seed_now = seed;
    ending = NO_ENDING;
    has_times = seed / 6 % 2;
    memset(&ledger, 0, sizeof ledger);
    memset(players, 0, sizeof players);
    memset(purge_begun, 0, sizeof purge_begun);
    memset(asking, 0, sizeof asking);
    ledger.corner.sim = qi_sim_new(seed, &knobs);
    ledger.corner.sim->disk.single_threaded = false; /* the worker plays, too */
    stage_disk(ledger.corner.sim, &ledger.corner.store);
    stage_open(seed, stays[seed / 2 % 3], 1000000, at_turn);
    cut_at = 200 + roll(4000);
    open_with(&ledger.corner, options());
    ledger.keeps_all = seed / 12 % 3 == 0;
    const qi_rules rules = {
        .max_messages = 12, .overflow = QI_BURY_HEAD, .max_deliveries = 3, .dead_letters = true};
    for (int q = 0; q < QUEUES; q++) /* from now on what has expired leaves */
        assert(qi_queue_set_rules(queue_at(q), ledger.keeps_all ? &rules : &(qi_rules){0}) == 0);
    ending = seed / 36 % 2 ? FAULT + seed / 72 % 3 : NO_ENDING;
    if (ending == FAULT)
        qi_sim_fault(ledger.corner.sim, 1 + roll(300), QI_SIM_EIO, roll(2));
}

static void play(uint64_t seed) {
    begin(seed);
    pthread_t threads[PLAYERS];
    for (int i = 0; i < PLAYERS; i++)
        assert(__wrap_pthread_create(&threads[i], NULL, play_verbs, &players[i]) == 0);
    for (int i = 0; i < PLAYERS; i++)
        assert(__wrap_pthread_join(threads[i], NULL) == 0);
    qi_sim_fault(ledger.corner.sim, 0, 0, false);
    while (asking[0] || asking[1] || asking[ALL]) {
        give_turn();
        hear(at_the_end);
    }
    if (ending == NO_ENDING) {
        look_at_the_end();
        assert(qi_store_sync(ledger.corner.store) == 0);
        ledger.durable[0] = ledger.durable[1] = ledger.ticks;
        look_at_copies(QI_SIM_NOTHING);
    }
    int error = qi_store_close(ledger.corner.store);
    assert(error == 0 || ending == FAULT);
    if (!error) /* all that was said is durable */
        ledger.durable[0] = ledger.durable[1] = ledger.ticks;
    qi_store_free(ledger.corner.store);
    ledger.corner.store = NULL;
    stage_close();
    look_at_copy(ledger.corner.sim, options(), ledger.durable);
}

static uint64_t wanted(const char *name, uint64_t usual) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : usual;
}

#ifdef QI_BUGS
const char *qi_bug = "";
#endif

static void tell_seed(int signal) {
    (void)signal;
    fprintf(stderr, "in the schedule of QINDEX_SEED=%llu\n", (unsigned long long)seed_now);
}

int main(void) {
    uint64_t seed = wanted("QINDEX_SEED", 1), count = wanted("QINDEX_SCHEDULES", 500);
    uint64_t turns = 0;
    is_told = count == 1;
#ifdef QI_BUGS
    qi_bug = getenv("QINDEX_BUG");
#endif
    signal(SIGABRT, tell_seed);
    stage_build();
    for (uint64_t i = 0; i < count; i++) {
        play(seed + i);
        turns += stage.turns;
    }
    fprintf(stderr, "%llu schedules, %llu turns, %u calls that did not have to wait\n",
            (unsigned long long)count, (unsigned long long)turns, visits_now);
    printf("schedules: all passed\n");
    return 0;
}
