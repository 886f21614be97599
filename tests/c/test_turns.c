/* test_turns.c - what others do while somebody's sync runs without the store's lock: they get their
 * turn just before it. On a simulated disk, in one thread. Usage: test_turns <directory>
 */
#include "corner.h"
#include "now.h"
#include "queue/queue.h"
#include "store/store.h"

#include <unistd.h>

static struct qi_disk_ops real, ours;
static void (*turn)(struct corner *); /* before the next sync, once; NULL: nothing */
static struct corner *stage;

static int sync_with_turn(struct qi_disk *disk, int file) {
    void (*now)(struct corner *) = turn;
    turn = NULL;
    if (now)
        now(stage);
    return real.sync(disk, file);
}

static struct corner begin_with(qi_options options) {
    struct corner corner = corner_with(options);
    real = *corner.sim->disk.ops;
    ours = real;
    ours.sync = sync_with_turn;
    corner.sim->disk.ops = &ours;
    return corner;
}

static struct corner begin(void) {
    return begin_with(usual());
}

/* ---- a fan-out waits for room in one queue, and meanwhile the other loses its own ---- */

static void send_to_sleep(struct corner *corner) {
    qi_lock(corner->store);
    assert(qi_queue_unload(corner->a) == 0 && corner->a->dir < 0);
    qi_unlock(corner->store);
}

/* As if others had published: all ReqIds that are promised are given out; or the next ones are not
 * promised durably. */
static void use_up(struct corner *corner) {
    corner->a->reserved = corner->a->reserved_durable = corner->a->highest;
}
static void use_up_what_is_durable(struct corner *corner) {
    corner->a->reserved_durable = corner->a->highest;
}

static void test_a_fan_out_looks_again_at_the_queues_that_had_room(void) {
    static void (*const turns[])(struct corner *) = {send_to_sleep, use_up, use_up_what_is_durable};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        struct corner corner = begin();
        stage = &corner;
        qi_queue *queues[2] = {corner.a, corner.b};
        uint64_t ids[2];
        if (i > 0)
            publish_many(corner.a, 1);
        publish_many(corner.b, 1);
        corner.b->reserved_durable = corner.b->highest; /* it has to promise more first */
        turn = turns[i];
        assert(qi_store_publish(corner.store, queues, 2, NULL, 0, "both", 4, 0, 0, 0, 0, false,
                                ids) == 0);
        assert(!turn); /* it was taken */
        assert(depth_of(corner.a) == (i > 0) + 1u && depth_of(corner.b) == 2);
        qi_message message;
        char payload[10];
        for (int k = 0; k < 2; k++)
            assert(qi_browse(queues[k], ids[k], false, &message, payload, sizeof payload) == 4 &&
                   message.req_id == ids[k] && memcmp(payload, "both", 4) == 0);
        corner_end(&corner);
    }
}

static void delete_b(struct corner *corner) {
    assert(qi_queue_delete(corner->b) == 0);
}

/* Both have it; the flush of the first, which is due by that, waits for its sync. */
static void test_a_fan_out_goes_on_though_a_queue_that_has_it_is_deleted(void) {
    qi_options options = usual();
    options.max_journal_bytes = 1 << 20;
    struct corner corner = begin_with(options);
    stage = &corner;
    qi_queue *queues[2] = {corner.a, corner.b};
    uint64_t ids[2];
    publish_many(corner.a, 24);
    publish_many(corner.b, 24);
    turn = delete_b;
    assert(qi_store_publish(corner.store, queues, 2, NULL, 0, "both", 4, 0, 0, 0, 0, false, ids) ==
           0);
    assert(!turn && ids[0] == 24 && ids[1] == 24 && depth_of(corner.a) == 25);
    assert(qi_publish(corner.b, "x", 1) == QI_E_CLOSED && qi_publish(corner.a, "x", 1) == 25);
    corner_end(&corner);
}

/* ---- a queue goes to sleep, or has woken up, and a call that never waits comes meanwhile ---- */

static int64_t said; /* what the call was told */

static void publish_now(struct corner *corner) {
    said = qi_publish_now(corner->a, &(struct qi_given){.body = "now", .body_size = 3});
}

static void take_now(struct corner *corner) {
    qi_message message;
    char payload[64];
    said = get_now(corner->a, &message, payload, sizeof payload, 0);
}

/* Nobody may append in front of or behind the CLOSE: it would be forgotten. Behind the SESSION
 * everybody may, while that is synced. */
static void test_nobody_comes_in_while_a_queue_goes_to_sleep(void) {
    static void (*const turns[])(struct corner *) = {publish_now, take_now};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        struct corner corner = begin();
        stage = &corner;
        publish_many(corner.a, 3);
        assert(qi_flush(corner.a) == 0);
        qi_lock(corner.store); /* the turn is when its sync gives it up */
        said = 0;
        turn = turns[i];
        assert(qi_queue_unload(corner.a) == 0 && corner.a->dir < 0);
        qi_unlock(corner.store);
        assert(!turn && said == QI_BUSY);
        said = 0;
        turn = publish_now;
        assert(qi_queue_sync(corner.a) == 0 && corner.a->dir >= 0);
        assert(!turn && said == 3);
        publish_now(&corner);
        assert(said == 4 && depth_of(corner.a) == 5);
        corner_end(&corner);
    }
}

/* ---- the names of queues are read without the lock ---- */

static int list_with_turn(struct qi_disk *disk, int dir, qi_list_fn each, void *context) {
    int error = real.list(disk, dir, each, context);
    void (*now)(struct corner *) = turn;
    turn = NULL;
    if (now)
        now(stage);
    return error;
}

static int looked_up;

static int open_dir_unlocked(struct qi_disk *disk, int parent, const char *name) {
    if (stage && qi_is_queue_directory(name)) {
        looked_up++;
        qi_lock(stage->store); /* else this waits for ever */
        qi_unlock(stage->store);
    }
    return real.open_dir(disk, parent, name);
}

static struct qi_queue *listed(const struct corner *corner, const char *directory) {
    return qi_find_queue(corner->store, directory);
}

static void test_queues_are_listed_without_the_lock(void) {
    struct corner corner = begin();
    ours.list = list_with_turn;
    assert(qi_store_close(corner.store) == 0);
    qi_store_free(corner.store);
    qi_options options = usual();
    assert(qi_store_open_sim(corner.sim, &options, &corner.store) == 0);
    ours.open_dir = open_dir_unlocked;
    stage = &corner;
    assert(qi_store_queues(corner.store) == 2 && looked_up == 2);
    assert(memcmp(listed(&corner, A)->name, "a", 2) == 0);
    stage = NULL;
    corner.b = queue_of(corner.store, 'b', B);
    stage = &corner;
    turn = delete_b; /* it is on the list */
    ours.open_dir = real.open_dir;
    assert(qi_store_queues(corner.store) == 2 && !turn && !listed(&corner, B));
    stage = NULL;
    assert(qi_store_close(corner.store) == 0);
    corner_end(&corner);
}

int main(void) {
    alarm(60); /* not for ever */
    test_queues_are_listed_without_the_lock();
    test_a_fan_out_looks_again_at_the_queues_that_had_room();
    test_a_fan_out_goes_on_though_a_queue_that_has_it_is_deleted();
    test_nobody_comes_in_while_a_queue_goes_to_sleep();
    printf("turns: all passed\n");
    return 0;
}
