/* test_schedules.c - threads that publish, get, ack, sync and purge at once, beside the engine's own worker, which sends
 * queues to sleep, flushes and compacts: on a simulated disk, in many schedules, each decided by a seed (stage.h). Usage:
 * test_schedules <directory>; QINDEX_SCHEDULES: how many; QINDEX_SEED: the first one's seed, and with QINDEX_SCHEDULES=1
 * each verb is told.
 *
 * What each verb was told is kept in a ledger. At some turn the process is killed, or the power goes: what a copy of the
 * disk shows then must agree with the ledger, and so must the memory at the end, a copy after a sync, and the disk after a
 * clean end. Nobody gets what another has; nobody waits for ever.
 */
#define _GNU_SOURCE
#include <signal.h>

#include "corner.h"
#include "stage.h"

#define QUEUES  2
#define IDS     1024u
#define OUT_MAX 256u
#define PLAYERS 3

struct message {
    uint64_t published, settled; /* when the verb returned; 0: not yet */
    bool acking, purging;        /* such a verb has begun that may take it */
    int out_to;                  /* a player + 1; 0: nobody */
};

struct player {
    int number;
    uint64_t out[QUEUES][OUT_MAX];
    uint32_t out_count[QUEUES];
};

static struct corner corner;
static struct message ledger[QUEUES][IDS];
static struct player players[PLAYERS];
static uint64_t ticks;           /* verbs that returned */
static uint64_t durable[QUEUES]; /* verbs that returned by then survive a power cut */
static int publishing[QUEUES];   /* verbs that have begun and not returned */
static bool purge_begun[QUEUES];
static uint32_t purges[QUEUES];
static uint64_t cut_at, seed_now;
static bool is_told;
static uint32_t visits_now; /* calls that never wait, and had not to */

static qi_queue *queue_at(int q) {
    return q ? corner.b : corner.a;
}

#define TELL(...)                                                                                  \
    (is_told ? (void)(fprintf(stderr, "%d: ", me), fprintf(stderr, __VA_ARGS__)) : (void)0)

static qi_options options(void) {
    qi_options options = usual();
    options.worker = true;
    options.idle_us = 1500;
    options.sync_interval_us = seed_now % 3 ? 500 : 0;
    return options;
}

/* ---- what is there ---- */

struct list {
    bool holds[IDS];
    uint32_t count;
};

static void check_body(const uint8_t *payload, const qi_message *message) {
    for (uint32_t i = 0; i < message->body_size; i++)
        assert(payload[i] == (uint8_t)message->body_size);
}

static struct list list_of(qi_queue *queue) {
    struct list list = {.count = 0};
    uint8_t payload[300];
    qi_message message;
    uint64_t from = 0;
    int64_t size;
    while ((size = qi_browse(queue, from, false, &message, payload, sizeof payload)) >= 0) {
        assert(message.req_id < IDS);
        check_body(payload, &message);
        list.holds[message.req_id] = true;
        list.count++;
        from = message.req_id + 1;
    }
    assert(size == QI_EMPTY);
    return list;
}

/* What a disk shows after the process is gone; `upto`: what returned by then is there for sure. */
static void compare(const struct list *list, int q, uint64_t upto) {
    for (uint32_t id = 0; id < IDS; id++) {
        const struct message *message = &ledger[q][id];
        bool sure = message->published && message->published <= upto;
        if (list->holds[id]) {
            assert(message->published || publishing[q] > 0);
            assert(!message->settled || message->settled > upto);
        } else {
            assert(!sure || message->acking || message->purging || message->settled);
        }
    }
}

static void assert_no_damage(qi_store *store) {
    int count = qi_store_check(store);
    assert(count >= 0);
    for (int i = 0; i < count; i++) {
        bool damage;
        const char *where, *text;
        uint64_t offset;
        assert(qi_store_finding(store, (uint32_t)i, &damage, &where, &offset, &text) == 0);
        if (damage)
            fprintf(stderr, "%s: %s\n", where, text);
        assert(!damage);
    }
}

static void look_at_copy(qi_sim *sim, const uint64_t upto[QUEUES]) {
    struct corner copy = {.sim = sim};
    qi_options with = options();
    with.worker = false;
    assert(sim);
    open_with(&copy, with);
    assert_no_damage(copy.store);
    for (int q = 0; q < QUEUES; q++) {
        struct list list = list_of(q ? copy.b : copy.a);
        compare(&list, q, upto[q]);
    }
    corner_end(&copy);
}

static void look_at_copies(int mode) {
    const uint64_t all[QUEUES] = {ticks, ticks};
    stage.is_open = false; /* nobody else is there */
    look_at_copy(qi_sim_kill(corner.sim), all);
    look_at_copy(qi_sim_crash(corner.sim, seed_now, mode), durable);
    stage.is_open = true;
}

/* Time passes at some turns; at one of them the process is killed, in one world, and in another the power goes. */
static void at_turn(void) {
    if (roll(8) == 0)
        qi_sim_advance(corner.sim, roll(400));
    if (stage.turns == cut_at)
        look_at_copies(QI_SIM_MIXED);
}

/* ---- the disk: at each call, another may come in ---- */

static struct qi_disk_ops real, ours;

static void between(void) {
    if (is_played() && corner.store && owner_of(&corner.store->lock) != me)
        give_turn();
}

#define BETWEEN(result, name, parameters, arguments)                                               \
    static result do_##name parameters {                                                           \
        between();                                                                                 \
        return real.name arguments;                                                                \
    }

BETWEEN(int, open, (struct qi_disk * d, int dir, const char *name, enum qi_open_mode mode),
        (d, dir, name, mode))
BETWEEN(int, rename, (struct qi_disk * d, int dir, const char *from, int to_dir, const char *to),
        (d, dir, from, to_dir, to))
BETWEEN(int, unlink, (struct qi_disk * d, int dir, const char *name), (d, dir, name))
BETWEEN(int64_t, read, (struct qi_disk * d, int file, void *bytes, size_t length, uint64_t offset),
        (d, file, bytes, length, offset))
BETWEEN(int, write,
        (struct qi_disk * d, int file, const void *bytes, size_t length, uint64_t offset),
        (d, file, bytes, length, offset))
BETWEEN(int, truncate, (struct qi_disk * d, int file, uint64_t size), (d, file, size))
BETWEEN(int, sync, (struct qi_disk * d, int file), (d, file))
BETWEEN(int, sync_dir, (struct qi_disk * d, int dir), (d, dir))

static void put_ours(qi_sim *sim) {
    real = *sim->disk.ops;
    ours = real;
    ours.open = do_open;
    ours.rename = do_rename;
    ours.unlink = do_unlink;
    ours.read = do_read;
    ours.write = do_write;
    ours.truncate = do_truncate;
    ours.sync = do_sync;
    ours.sync_dir = do_sync_dir;
    sim->disk.ops = &ours;
}

/* ---- verbs, and what the ledger learns from them ---- */

/* All bytes of a body are its size: then it is known what must be read. */
static uint32_t new_body(uint8_t body[200]) {
    uint32_t size = roll(4) ? roll(60) : 200;
    memset(body, (int)size, size);
    return size;
}

/* Published, and a purge came meanwhile: it took it, if it is neither there nor acked by somebody who got it. */
static void settle_purge(int q, uint64_t req_id) {
    struct message *message = &ledger[q][req_id];
    qi_message found;
    uint32_t purges_before = purges[q];
    if (purge_begun[q]) /* that one will look */
        return;
    uint8_t payload[1];
    int64_t size = qi_browse(queue_at(q), req_id, false, &found, payload, 0);
    bool is_there = (size >= 0 || size == QI_E_ROOM) && found.req_id == req_id;
    if (purges[q] != purges_before)
        return;
    message->purging = false;
    if (is_there || message->acking)
        return;
    assert(!message->out_to);
    message->settled = ticks;
}

static void was_published(int q, int64_t first, uint32_t count) {
    assert(first >= 0 && first + count <= IDS);
    ticks++;
    for (uint32_t i = 0; i < count; i++) {
        struct message *message = &ledger[q][first + i];
        assert(!message->published); /* its ReqId is new */
        message->published = ticks;
        if (message->purging)
            settle_purge(q, (uint64_t)first + i);
    }
    TELL("publish %c %d: %lld\n", 'a' + q, count, (long long)first);
}

static void publish(int q) {
    uint8_t body[200];
    uint32_t size = new_body(body);
    publishing[q]++;
    int64_t req_id = roll(2) ? qi_publish_now(queue_at(q), body, size, 0, 0) : QI_BUSY;
    visits_now += req_id >= 0;
    if (req_id == QI_BUSY)
        req_id = qi_publish(queue_at(q), body, size);
    was_published(q, req_id, 1);
    publishing[q]--;
}

static void publish_batch(int q) {
    uint8_t bodies[5 * 200], *next = bodies;
    uint32_t sizes[5], count = 1 + roll(5);
    for (uint32_t i = 0; i < count; i++) {
        sizes[i] = new_body(next);
        next += sizes[i];
    }
    publishing[q]++;
    was_published(
        q, qi_publish_many(queue_at(q), count, bodies, sizes, NULL, NULL, 0, 0, 0, NULL, NULL),
        count);
    publishing[q]--;
}

static void fan_out(void) {
    qi_queue *queues[QUEUES] = {corner.a, corner.b};
    uint8_t body[200];
    uint64_t ids[QUEUES];
    uint32_t size = new_body(body);
    publishing[0]++, publishing[1]++;
    int error = qi_store_publish(corner.store, queues, QUEUES, NULL, 0, body, size, 0, 0, 0, ids);
    assert(error == 0);
    for (int q = 0; q < QUEUES; q++)
        was_published(q, (int64_t)ids[q], 1);
    publishing[0]--, publishing[1]--;
}

static void took(struct player *player, int q, uint64_t req_id) {
    struct message *message = &ledger[q][req_id];
    TELL("get %c: %llu\n", 'a' + q, (unsigned long long)req_id);
    assert(message->published || publishing[q] > 0);
    assert(!message->settled && !message->acking && !message->out_to);
    message->out_to = player->number + 1;
    player->out[q][player->out_count[q]++] = req_id;
    ticks++;
}

static void get(struct player *player, int q) {
    uint8_t payload[300];
    qi_queue *queues[QUEUES] = {corner.a, corner.b};
    qi_reader reader = {.queue = queue_at(q), .payload = payload, .room = sizeof payload};
    int64_t size = QI_BUSY;
    uint32_t how = roll(4);
    if (how == 0) {
        size = qi_get_now(reader.queue, &reader.message, payload, sizeof payload, 0);
        visits_now += size >= 0;
    }
    if (size == QI_BUSY && how == 1)
        size = qi_get_wait(&reader, queues, QUEUES,
                           real.monotonic_us(&corner.sim->disk) + roll(800), UINT64_MAX);
    else if (size == QI_BUSY)
        size = qi_get(&reader);
    assert(size >= 0 || size == QI_EMPTY);
    if (size < 0)
        return;
    check_body(payload, &reader.message);
    took(player, reader.queue == corner.b, reader.message.req_id);
}

static void get_batch(struct player *player, int q) {
    qi_message messages[4];
    uint8_t payloads[4 * 200];
    uint64_t ids[4];
    uint32_t sizes[4];
    int64_t got =
        qi_get_many(queue_at(q), 1 + roll(4), messages, payloads, sizeof payloads, ids, sizes, 0);
    assert(got > 0 || got == QI_EMPTY);
    for (int64_t i = 0; i < got / 2; i++)
        took(player, q, ids[i]);
}

/* Some of what the player has leaves its hands. */
static uint32_t pick(struct player *player, int q, uint64_t *ids, uint32_t most) {
    uint32_t count = 0;
    while (count < most && player->out_count[q] > 0) {
        uint32_t at = roll(player->out_count[q]);
        ids[count++] = player->out[q][at];
        player->out[q][at] = player->out[q][--player->out_count[q]];
    }
    return count;
}

static void ack(struct player *player, int q) {
    uint64_t ids[4];
    uint32_t count = pick(player, q, ids, 1 + roll(4));
    if (count == 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        ledger[q][ids[i]].acking = true;
    int64_t error = count == 1 && roll(2) ? qi_ack_now(queue_at(q), ids[0], 0) : QI_BUSY;
    visits_now += error == 0;
    if (error == QI_BUSY)
        error = count == 1 ? qi_ack(queue_at(q), ids[0], 0)
                           : qi_ack_many(queue_at(q), ids, NULL, count);
    assert(error == 0);
    ticks++;
    for (uint32_t i = 0; i < count; i++) {
        ledger[q][ids[i]].settled = ticks;
        TELL("ack %c: %llu\n", 'a' + q, (unsigned long long)ids[i]);
    }
}

/* Who looks may find it ready before the verb has returned. */
static void give_back(struct player *player, int q) {
    uint64_t ids[4];
    uint32_t count = pick(player, q, ids, 1 + roll(4));
    for (uint32_t i = 0; i < count; i++)
        ledger[q][ids[i]].out_to = 0;
    TELL("nack %c: %u\n", 'a' + q, count);
    assert(qi_nack_many(queue_at(q), ids, NULL, count, 0) == 0);
}

static void sync_some(int q) {
    uint64_t begun = ticks;
    bool all = roll(2);
    assert(all ? qi_store_sync(corner.store) == 0 : qi_queue_sync(queue_at(q)) == 0);
    TELL("sync %s\n", all ? "all" : q ? "b" : "a");
    for (int i = 0; i < QUEUES; i++)
        if ((all || i == q) && durable[i] < begun)
            durable[i] = begun;
}

/* It takes what is ready when it comes to it; which that is tells who looks afterwards. */
static void purge(int q) {
    if (purge_begun[q])
        return;
    purge_begun[q] = true;
    purges[q]++;
    for (uint32_t id = 0; id < IDS; id++)
        ledger[q][id].purging = !ledger[q][id].settled;
    assert(qi_purge(queue_at(q)) >= 0);
    purge_begun[q] = false;
    TELL("purge %c\n", 'a' + q);
    ticks++;
    for (uint32_t id = 0; id < IDS; id++)
        if (ledger[q][id].purging && ledger[q][id].published)
            settle_purge(q, id);
}

static void pass_time(void) {
    qi_sim_advance(corner.sim, 500 + roll(2000));
    for (uint32_t i = roll(20); i > 0; i--)
        give_turn();
}

static void *play_verbs(void *player_) {
    struct player *player = player_;
    for (int i = 0; i < 20; i++) {
        int q = (int)roll(QUEUES);
        uint32_t verb = roll(40);
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
        else if (verb < 31)
            sync_some(q);
        else if (verb < 32)
            assert(qi_flush(queue_at(q)) == 0);
        else if (verb < 33)
            assert(qi_store_compact(corner.store, roll(60)) >= 0);
        else if (verb < 34)
            purge(q);
        else
            pass_time();
    }
    return NULL;
}

/* ---- one schedule ---- */

static void begin(uint64_t seed) {
    qi_sim_knobs knobs = {.mapping = seed % 2};
    seed_now = seed;
    corner = (struct corner){.sim = qi_sim_new(seed, &knobs)};
    corner.sim->disk.single_threaded = false; /* the worker plays, too */
    memset(ledger, 0, sizeof ledger);
    memset(players, 0, sizeof players);
    memset(durable, 0, sizeof durable);
    ticks = 0;
    put_ours(corner.sim);
    static const uint32_t stays[] = {128, 224, 250};
    stage_open(seed, stays[seed / 2 % 3], 1000000, at_turn);
    cut_at = 200 + roll(4000);
    open_with(&corner, options());
}

/* Nothing is under way any more: what is there is exactly what the ledger says. */
static void look_at_the_end(void) {
    assert_no_damage(corner.store);
    for (int q = 0; q < QUEUES; q++) {
        struct list list = list_of(queue_at(q));
        for (uint32_t id = 0; id < IDS; id++) {
            bool is_alive = ledger[q][id].published && !ledger[q][id].settled;
            if (list.holds[id] != is_alive)
                fprintf(stderr, "%c: %u should%s be there\n", 'a' + q, id, is_alive ? "" : " not");
            assert(list.holds[id] == is_alive);
        }
        assert(depth_of(queue_at(q)) == list.count);
    }
}

static void play(uint64_t seed) {
    begin(seed);
    pthread_t threads[PLAYERS];
    for (int i = 0; i < PLAYERS; i++) {
        players[i].number = i;
        assert(__wrap_pthread_create(&threads[i], NULL, play_verbs, &players[i]) == 0);
    }
    for (int i = 0; i < PLAYERS; i++)
        assert(__wrap_pthread_join(threads[i], NULL) == 0);
    look_at_the_end();
    sync_some(0), sync_some(1);
    durable[0] = durable[1] = ticks; /* by the one that syncs all, or by both */
    assert(qi_store_sync(corner.store) == 0);
    look_at_copies(QI_SIM_NOTHING);
    assert(qi_store_close(corner.store) == 0);
    qi_store_free(corner.store);
    corner.store = NULL;
    stage_close();
    look_at_copy(corner.sim, durable);
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
    uint64_t seed = wanted("QINDEX_SEED", 1), count = wanted("QINDEX_SCHEDULES", 1000);
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
    printf("schedules: %llu played, %llu turns, %u calls that did not have to wait\n",
           (unsigned long long)count, (unsigned long long)turns, visits_now);
    return 0;
}
