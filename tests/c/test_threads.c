/* test_threads.c - who waits for whom, decided and not left to chance. Usage: test_threads
 * <directory>
 *
 * The linker puts the functions below in front of the system's (--wrap): a sync stops until it is
 * told to go on, and it is counted who waits on a condition. So one thread stands in the middle of
 * its I/O, without the store's lock, while another calls what has to wait for it, or must
 * not. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "durable/durable.h"
#include "queue/queue.h"
#include "store/store.h"
#include "usual.h"

/* ---- the stage ---- */

static pthread_mutex_t stage = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static int stop_at; /* the n-th sync from now stops; 0: none */
static bool stopped, go_on;
static int sync_error;
static int waiting; /* threads that wait on a condition of the engine */

int __real_fdatasync(int file);
int __wrap_fdatasync(int file);
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);

int __wrap_fdatasync(int file) {
    pthread_mutex_lock(&stage);
    int error = 0;
    if (stop_at > 0 && --stop_at == 0) {
        stopped = true;
        pthread_cond_broadcast(&moved);
        while (!go_on)
            __real_pthread_cond_wait(&moved, &stage);
        stopped = go_on = false;
        error = sync_error;
        sync_error = 0;
    }
    pthread_mutex_unlock(&stage);
    errno = error;
    return error ? -1 : __real_fdatasync(file);
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    pthread_mutex_lock(&stage);
    waiting++;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&stage);
    int result = __real_pthread_cond_wait(condition, mutex);
    pthread_mutex_lock(&stage);
    waiting--;
    pthread_mutex_unlock(&stage);
    return result;
}

static void until_stopped(void) {
    pthread_mutex_lock(&stage);
    while (!stopped)
        __real_pthread_cond_wait(&moved, &stage);
    pthread_mutex_unlock(&stage);
}

static void until_waiting(int count) {
    pthread_mutex_lock(&stage);
    while (waiting < count)
        __real_pthread_cond_wait(&moved, &stage);
    pthread_mutex_unlock(&stage);
}

static void let_go_on(int error) {
    pthread_mutex_lock(&stage);
    sync_error = error;
    go_on = true;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&stage);
}

/* ---- the actors ---- */

struct scene {
    qi_store *store;
    qi_queue *a, *b;
};

struct actor {
    pthread_t thread;
    int64_t (*call)(struct scene *);
    struct scene *scene;
    int64_t result;
};

static void *act(void *argument) {
    struct actor *actor = argument;
    actor->result = actor->call(actor->scene);
    return NULL;
}

static struct actor *enter(struct scene *scene, int64_t (*call)(struct scene *)) {
    struct actor *actor = calloc(1, sizeof *actor);
    *actor = (struct actor){.call = call, .scene = scene};
    int error = pthread_create(&actor->thread, NULL, act, actor);
    assert(error == 0);
    return actor;
}

static int64_t leave(struct actor *actor) {
    pthread_join(actor->thread, NULL);
    int64_t result = actor->result;
    free(actor);
    return result;
}

/* The first stops in its n-th sync. */
static struct actor *enter_and_stop(struct scene *scene, int64_t (*call)(struct scene *), int n) {
    stop_at = n;
    struct actor *actor = enter(scene, call);
    until_stopped();
    return actor;
}

static int64_t sync_a(struct scene *scene) {
    return qi_queue_sync(scene->a);
}
static int64_t flush_a(struct scene *scene) {
    return qi_flush(scene->a);
}
static int64_t delete_a(struct scene *scene) {
    return qi_queue_delete(scene->a);
}
static int64_t sync_all(struct scene *scene) {
    return qi_store_sync(scene->store);
}
static int64_t close_store(struct scene *scene) {
    return qi_store_close(scene->store);
}
static int64_t compact(struct scene *scene) {
    return qi_store_compact(scene->store, 20);
}
static int64_t sync_bodies(struct scene *scene) {
    qi_lock(scene->store);
    int error = qi_sync_messages(scene->store);
    qi_unlock(scene->store);
    return error;
}
static int64_t open_a(struct scene *scene) {
    return qi_queue_open(scene->store, "a", 1, A, true, &scene->a);
}
static int64_t open_a_again(struct scene *scene) {
    qi_queue *queue;
    int error = qi_queue_open(scene->store, "a", 1, A, true, &queue);
    return error ? error : qi_publish(queue, "late", 4);
}
static int64_t publish_batch(struct scene *scene) {
    static uint32_t sizes[64];
    static uint8_t bodies[64];
    for (int i = 0; i < 64; i++)
        sizes[i] = 1;
    return qi_publish_many(scene->a, 64, bodies, sizes, NULL, NULL, 0, 0, 0, NULL, NULL);
}

static const char *root;
static uint32_t new_format; /* 0: as usual */

static void open_store(struct scene *scene, const char *name) {
    char path[300];
    qi_options options = usual();
    options.io = 2;
    options.new_format = new_format ? new_format : options.new_format;
    snprintf(path, sizeof path, "%s/%s", root, name);
    *scene = (struct scene){0};
    assert(qi_store_open(path, &options, &scene->store) == 0);
}

static void begin(struct scene *scene, const char *name) {
    uint8_t body[500] = {0};
    open_store(scene, name);
    assert(open_a(scene) == 0);
    assert(qi_queue_open(scene->store, "b", 1, B, true, &scene->b) == 0);
    for (int i = 0; i < 10; i++)
        assert(qi_publish(scene->a, body, i % 2 ? 500 : 20) == i);
}

static void end(struct scene *scene) {
    qi_store_free(scene->store);
    assert(waiting == 0 && !stopped);
}

/* ---- the scenes ---- */

/* close() waits for whatever is under way, then closes cleanly. */
static void test_close_waits_for_who_is_in_the_middle(void) {
    static int64_t (*const calls[])(struct scene *) = {sync_a, flush_a, sync_bodies, compact};
    static const char *const names[] = {"close-sync", "close-flush", "close-bodies",
                                        "close-compact"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct scene scene;
        begin(&scene, names[i]);
        struct actor *first = enter_and_stop(&scene, calls[i], 1);
        struct actor *second = enter(&scene, close_store);
        until_waiting(1);
        assert(qi_publish(scene.a, "x", 1) == QI_E_CLOSED); /* no new calls meanwhile */
        let_go_on(0);
        int64_t result = leave(first);
        assert(result >= 0 || result == QI_E_CLOSED);
        assert(leave(second) == 0);
        end(&scene);
        open_store(&scene, names[i]);
        assert(open_a(&scene) == 0);
        qi_queue_stats stats;
        qi_store_stats all;
        assert(qi_queue_stats_of(scene.a, &stats) == 0 && stats.depth == 10);
        assert(qi_store_stats_of(scene.store, &all) == 0 && all.unclean_session == 0);
        end(&scene);
    }
}

/* Only one of them ends the worker, which is in the middle of a commit. */
static void test_two_may_close_a_store_with_a_worker(void) {
    struct scene scene = {0};
    char path[300];
    qi_options options = usual();
    options.worker = true;
    options.sync_interval_us = 1000;
    options.idle_us = UINT64_C(3600) * 1000000;
    snprintf(path, sizeof path, "%s/two-close", root);
    assert(qi_store_open(path, &options, &scene.store) == 0 && open_a(&scene) == 0);
    pthread_mutex_lock(&stage);
    stop_at = 1;
    pthread_mutex_unlock(&stage);
    assert(qi_publish(scene.a, "x", 1) == 0);
    until_stopped();
    struct actor *first = enter(&scene, close_store), *second = enter(&scene, close_store);
    until_waiting(1);
    let_go_on(0);
    assert(leave(first) == 0 && leave(second) == 0);
    assert(qi_publish(scene.a, "x", 1) == QI_E_CLOSED);
    end(&scene);
}

static void test_close_waits_for_a_recovery(void) {
    struct scene scene;
    begin(&scene, "close-recovery");
    end(&scene);
    open_store(&scene, "close-recovery");
    struct actor *first = enter_and_stop(&scene, open_a, 3);
    struct actor *second = enter(&scene, close_store);
    until_waiting(1);
    let_go_on(0);
    leave(first);
    assert(leave(second) == 0);
    end(&scene);
}

/* Two threads want one queue that is being recovered: the second waits, and it is recovered
 * once. */
static void test_a_queue_is_recovered_once(void) {
    struct scene scene;
    begin(&scene, "recovery");
    end(&scene);
    open_store(&scene, "recovery");
    struct actor *first = enter_and_stop(&scene, open_a, 3);
    struct actor *second = enter(&scene, open_a_again);
    until_waiting(1);
    let_go_on(0);
    assert(leave(first) == 0);
    assert(leave(second) >= 10);
    qi_queue_stats stats;
    assert(qi_queue_stats_of(scene.a, &stats) == 0 && stats.depth == 11);
    end(&scene);
}

static void test_a_deletion_waits_for_a_sync_and_a_flush(void) {
    static int64_t (*const calls[])(struct scene *) = {sync_a, flush_a};
    static const char *const names[] = {"delete-sync", "delete-flush"};
    for (size_t i = 0; i < 2; i++) {
        struct scene scene;
        begin(&scene, names[i]);
        struct actor *first = enter_and_stop(&scene, calls[i], 1);
        struct actor *second = enter(&scene, delete_a);
        until_waiting(1);
        let_go_on(0);
        int64_t result = leave(first);
        assert(result == 0 || result == QI_E_CLOSED);
        assert(leave(second) == 0);
        assert(qi_publish(scene.a, "x", 1) == QI_E_CLOSED);
        assert(qi_publish(scene.b, "x", 1) == 0); /* the store goes on */
        end(&scene);
    }
}

/* One syncs for all that wait; if that fails, nobody is told that it went well, and nobody tries
 * again (H13). */
static void test_who_waits_for_a_sync_shares_its_outcome(void) {
    for (int error = 0; error <= EIO; error += EIO) {
        struct scene scene;
        begin(&scene, error ? "share-error" : "share");
        struct actor *first = enter_and_stop(&scene, sync_a, 1);
        struct actor *second = enter(&scene, sync_a), *third = enter(&scene, sync_bodies);
        until_waiting(2);
        let_go_on(error);
        int64_t results[] = {leave(first), leave(second), leave(third)};
        for (int i = 0; i < 3; i++)
            assert(error ? results[i] < 0 : results[i] == 0);
        assert(qi_queue_sync(scene.a) == (error ? QI_E_FAILED : 0));
        end(&scene);
    }
}

/* A publish that needs more room than there is waits for the flush that makes it. */
static void test_a_publish_waits_for_the_flush_that_makes_room(void) {
    struct scene scene;
    begin(&scene, "room");
    struct actor *first = enter_and_stop(&scene, flush_a, 1);
    struct actor *second = enter(&scene, publish_batch);
    until_waiting(1);
    let_go_on(0);
    assert(leave(first) == 0);
    assert(leave(second) == 10);
    end(&scene);
}

/* A file without living messages is not removed while its bodies are being synced. */
static void test_a_file_that_is_synced_is_freed_later(void) {
    struct scene scene;
    uint8_t body[500] = {0}, payload[500];
    begin(&scene, "freed");
    scene.store->options.max_journal_entries = 1000; /* no flush comes between */
    scene.store->options.max_journal_bytes = 1 << 20;
    assert(compact(&scene) >= 0); /* now its references are known */
    qi_reader reader = {.queue = scene.a, .payload = payload, .room = sizeof payload};
    for (int i = 10; i < 30; i++)
        assert(qi_publish(scene.a, body, 500) == i);
    struct actor *first = enter_and_stop(&scene, sync_bodies, 1);
    for (int i = 0; i < 29; i++)
        assert(qi_get(&reader) >= 0 && qi_ack(scene.a, reader.message.req_id, 0) == 0);
    struct actor *second = enter(&scene, compact);
    until_waiting(1);
    uint32_t files = scene.store->messages.files_count; /* nobody has the lock */
    let_go_on(0);
    assert(leave(first) == 0 && leave(second) >= 0);
    assert(files > 0 && scene.store->messages.files_count == 0); /* but for the newest */
    assert(qi_get(&reader) == 500);
    end(&scene);
}

static int64_t unload_b(struct scene *scene) {
    qi_lock(scene->store);
    int error = qi_queue_unload(scene->b);
    qi_unlock(scene->store);
    return error;
}

/* From the worker: nothing is synced before. */
static int64_t compact_at_once(struct scene *scene) {
    int64_t freed;
    qi_lock(scene->store);
    int error = qi_compact(scene->store, 20, &freed);
    qi_unlock(scene->store);
    return error ? error : freed;
}

/* While a compaction that has looked at a waits for b, a body moves from c to a: it is not lost. */
static void test_what_moves_during_a_compaction_is_not_left_behind(void) {
    struct scene scene;
    uint8_t body[500] = {0}, payload[500];
    new_format = 2;
    begin(&scene, "moves");
    new_format = 0;
    qi_queue *c;
    assert(qi_queue_open(scene.store, "c", 1, C, true, &c) == 0);
    assert(compact(&scene) >= 0); /* now all references are known */
    for (int i = 0; i < 20; i++)
        assert(qi_publish(c, body, 500) == i);
    qi_reader reader = {.queue = c, .payload = payload, .room = sizeof payload};
    for (int i = 0; i < 20; i++) /* 10 and 11 stay: of one file, which is not the newest */
        assert(qi_get(&reader) >= 0 &&
               (i == 10 || i == 11 || qi_ack(c, reader.message.req_id, 0) == 0));
    assert(qi_publish(scene.b, "x", 1) == 0 && qi_flush(scene.b) == 0 && sync_all(&scene) == 0);
    struct actor *first = enter_and_stop(&scene, unload_b, 1);
    struct actor *second = enter(&scene, compact_at_once);
    until_waiting(1);
    qi_change move = {.kind = QI_CHANGE_MOVE, .queue = c, .to = scene.a, .req_id = 10};
    uint32_t failed;
    assert(qi_nack_many(c, &move.req_id, NULL, 1, 0) == 0);
    assert(qi_transaction(scene.store, &move, 1, false, &failed) == 0);
    let_go_on(0);
    assert(leave(first) == 0 && leave(second) > 0);
    reader.queue = scene.a;
    for (int i = 0; i < 11; i++)
        assert(qi_get(&reader) >= 0);
    assert(reader.message.req_id == move.req_id);
    end(&scene);
}

static void test_two_compactions_follow_each_other(void) {
    struct scene scene;
    begin(&scene, "compactions");
    struct actor *first = enter_and_stop(&scene, compact, 1);
    struct actor *second = enter(&scene, sync_all);
    until_waiting(1);
    let_go_on(0);
    assert(leave(first) >= 0);
    assert(leave(second) == 0);
    end(&scene);
}

/* The store fails while others wait for a sync of bodies that is still under way: they need not
 * wait for its end. */
static void test_who_waits_for_bodies_hears_that_the_store_failed(void) {
    struct scene scene;
    begin(&scene, "bodies-failed");
    struct actor *first = enter_and_stop(&scene, sync_bodies, 1);
    struct actor *second = enter(&scene, sync_bodies);
    until_waiting(1);
    qi_lock(scene.store);
    qi_store_fail(scene.store, QI_E_IO);
    qi_unlock(scene.store);
    assert(leave(second) == QI_E_OUTCOME);
    let_go_on(0);
    leave(first);
    end(&scene);
}

/* ---- waiting for messages ---- */

static int64_t publish_to_a(struct scene *scene) {
    return qi_publish(scene->a, "a", 1);
}

static int64_t get_from_both(struct scene *scene) {
    uint8_t payload[1000];
    qi_reader reader = {.payload = payload, .room = sizeof payload};
    qi_queue *queues[2] = {scene->a, scene->b};
    uint64_t until_us = qi_store_clock_us(scene->store) + 60 * UINT64_C(1000000);
    int64_t got = qi_get_wait(&reader, queues, 2, until_us, UINT64_MAX);
    return got < 0 ? got : payload[0];
}

static void empty_a(struct scene *scene) {
    uint8_t payload[1000];
    qi_reader reader = {.queue = scene->a, .payload = payload, .room = sizeof payload};
    while (qi_get(&reader) >= 0)
        assert(qi_ack(scene->a, reader.message.req_id, 0) == 0);
}

/* It looked at the first queue, then at the second, where the last message had expired and a flush
 * was due. A message for the first came meanwhile. */
static void test_what_comes_while_a_wait_looks_elsewhere_is_not_missed(void) {
    struct scene scene;
    begin(&scene, "looks");
    empty_a(&scene);
    assert(qi_flush(scene.a) == 0);
    uint8_t payload[10];
    qi_reader reader = {.queue = scene.b, .payload = payload, .room = sizeof payload};
    for (int i = 0; i < 7; i++) {
        assert(qi_publish(scene.b, "b", 1) == i && qi_get(&reader) == 1);
        assert(qi_ack(scene.b, reader.message.req_id, 0) == 0);
    }
    for (int i = 0; i < 3; i++) /* the 24th change; expired long ago */
        assert(qi_publish_with(scene.b, NULL, 0, "b", 1, 0, 1, 0) >= 0);
    struct actor *first = enter_and_stop(&scene, get_from_both, 1);
    assert(publish_to_a(&scene) >= 0);
    let_go_on(0);
    assert(leave(first) == 'a');
    end(&scene);
}

/* ---- the worker's rounds ---- */

static int64_t tick(struct scene *scene) {
    return qi_store_tick(scene->store);
}

/* An idle queue is flushed before it is closed. Who uses it meanwhile keeps it open; so does a disk
 * that fails. */
static void test_a_queue_that_is_used_while_it_goes_to_sleep_stays_open(void) {
    for (int error = 0; error <= EIO; error += EIO) {
        struct scene scene;
        begin(&scene, error ? "sleep-error" : "sleep");
        scene.store->options.idle_us = 0;
        assert(qi_store_tick(scene.store) == 0); /* now they count as not used */
        assert(qi_publish(scene.a, "x", 1) == 10);
        scene.a->used = false;
        struct actor *first = enter_and_stop(&scene, tick, 1);
        if (!error)
            assert(qi_publish(scene.a, "y", 1) == 11);
        let_go_on(error);
        leave(first);
        assert(scene.a->dir >= 0 && (scene.b->dir < 0) == !error);
        assert(qi_publish(scene.a, "z", 1) == (error ? QI_E_FAILED : 12));
        end(&scene);
    }
}

/* ---- a child, and no thread ---- */

static bool is_child; /* it leaves what belongs to its parent: the leak sanitizer does not ask it */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) {
    return is_child;
}

/* What a fork inherits is the parent's (H16): each call says so, though somebody had the lock at
 * the fork who is not there to give it up; and a close leaves the parent's store alone. */
static void test_a_child_may_not_use_what_it_inherited(void) {
    struct scene scene;
    begin(&scene, "fork");
    assert(qi_queue_sync(scene.a) == 0);
    fflush(stdout);
    qi_lock(scene.store);
    pthread_mutex_lock(&scene.store->asks.lock);
    pid_t child = fork();
    if (child == 0) {
        is_child = true;
        alarm(20); /* not for ever */
        bool right = qi_publish(scene.a, "x", 1) == QI_E_FORKED &&
                     qi_queue_sync(scene.a) == QI_E_FORKED &&
                     qi_store_sync(scene.store) == QI_E_FORKED &&
                     qi_sync_ask(scene.store, scene.a) == QI_E_FORKED &&
                     qi_store_bell(scene.store) == QI_E_FORKED;
        qi_store_bell_close(scene.store);
        right = right && qi_store_close(scene.store) == 0;
        qi_store_free(scene.store);
        exit(right ? 0 : 1);
    }
    pthread_mutex_unlock(&scene.store->asks.lock);
    qi_unlock(scene.store);
    int status = -1;
    assert(waitpid(child, &status, 0) == child && status == 0);
    assert(qi_publish(scene.a, "x", 1) == 10 && qi_store_close(scene.store) == 0);
    end(&scene);
}

static bool no_thread;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *argument) {
    return no_thread ? EAGAIN : __real_pthread_create(thread, how, run, argument);
}

static void test_a_store_whose_worker_cannot_start_is_not_open(void) {
    char path[300];
    qi_store *store;
    qi_options options = {
        .embed_below = 64, .message_file_size = 4096, .create = true, .worker = true};
    snprintf(path, sizeof path, "%s/worker", root);
    no_thread = true;
    assert(qi_store_open(path, &options, &store) == QI_E_MEMORY);
    no_thread = false;
    assert(qi_store_open(path, &options, &store) == 0); /* the lock was given back */
    assert(qi_store_close(store) == 0);
    qi_store_free(store);
}

/* ---- queues that are created ---- */

struct creation {
    qi_store *store;
    int number;
    qi_queue *queue;
};

static void *create_one(void *argument) {
    struct creation *creation = argument;
    char directory[33], name = (char)('A' + creation->number);
    snprintf(directory, sizeof directory, "%032x", creation->number);
    assert(qi_queue_open(creation->store, &name, 1, directory, true, &creation->queue) == 0);
    return NULL;
}

static void create_at_once(pthread_t *thread, struct creation *creation) {
    int error = pthread_create(thread, NULL, create_one, creation);
    assert(error == 0);
}

static void test_others_go_on_while_a_queue_is_created(void) {
    struct scene scene;
    begin(&scene, "creation");
    struct creation one = {scene.store, 7, NULL}, same = one, other = {scene.store, 8, NULL};
    pthread_t threads[3];
    stop_at = 1;
    create_at_once(&threads[0], &one);
    until_stopped();
    assert(qi_publish(scene.a, "x", 1) >= 0 && qi_queue_sync(scene.a) == 0);
    create_at_once(&threads[1], &other);
    pthread_join(threads[1], NULL);
    create_at_once(&threads[2], &same);
    until_waiting(1);
    let_go_on(0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[2], NULL);
    assert(one.queue == same.queue && one.queue != other.queue);
    assert(qi_publish(one.queue, "x", 1) == 0 && qi_publish(other.queue, "x", 1) == 0);
    end(&scene);
}

#define CREATIONS 8

static struct qi_disk_ops watched_ops;
static qi_store *watched;
static int names_synced;

/* The first sync of the names stops until all queues have theirs. */
static int sync_names_late(struct qi_disk *disk, int dir) {
    bool is_first = watched && dir == watched->queues_dir && names_synced++ == 0;
    for (bool waits = is_first; waits;) {
        qi_lock(watched);
        waits = watched->named < CREATIONS;
        qi_unlock(watched);
        sched_yield();
    }
    return qi_disk_posix.ops->sync_dir(disk, dir);
}

static void test_queues_that_are_created_at_once_share_the_sync_of_their_names(void) {
    struct qi_disk disk = qi_disk_posix;
    qi_options options = usual();
    char path[300];
    qi_store *store;
    snprintf(path, sizeof path, "%s/names", root);
    watched_ops = *disk.ops;
    watched_ops.sync_dir = sync_names_late;
    disk.ops = &watched_ops;
    assert(qi_store_open_on(&disk, path, &options, &store) == 0);
    watched = store;
    struct creation creations[CREATIONS];
    pthread_t threads[CREATIONS];
    for (int i = 0; i < CREATIONS; i++) {
        creations[i] = (struct creation){store, i, NULL};
        create_at_once(&threads[i], &creations[i]);
    }
    for (int i = 0; i < CREATIONS; i++) {
        pthread_join(threads[i], NULL);
        assert(qi_publish(creations[i].queue, "x", 1) == 0);
    }
    assert(names_synced <= 2);
    watched = NULL;
    assert(qi_store_close(store) == 0);
    qi_store_free(store);
}

static int syncing_names;
static bool overlapped;

/* The first one stops until another thread waits for it, or does not. */
static int sync_names_alone(struct qi_disk *disk, int dir) {
    if (!watched || dir != watched->queues_dir)
        return qi_disk_posix.ops->sync_dir(disk, dir);
    pthread_mutex_lock(&stage);
    bool is_first = names_synced++ == 0;
    overlapped = overlapped || ++syncing_names > 1;
    pthread_cond_broadcast(&moved);
    while (is_first && !overlapped && waiting == 0)
        __real_pthread_cond_wait(&moved, &stage);
    syncing_names--;
    pthread_mutex_unlock(&stage);
    return qi_disk_posix.ops->sync_dir(disk, dir);
}

static void test_a_rename_does_not_sync_the_names_beside_another_thread(void) {
    struct qi_disk disk = qi_disk_posix;
    qi_options options = usual();
    char path[300];
    snprintf(path, sizeof path, "%s/rename", root);
    options.format = 2;
    watched_ops = *disk.ops;
    watched_ops.sync_dir = sync_names_alone;
    disk.ops = &watched_ops;
    qi_store *store;
    qi_queue *queue;
    assert(qi_store_open_on(&disk, path, &options, &store) == 0);
    assert(qi_queue_open(store, "a", 1, A, true, &queue) == 0);
    names_synced = 0;
    watched = store;
    struct creation creation = {store, 7, NULL};
    pthread_t thread;
    create_at_once(&thread, &creation);
    for (bool is_there = false; !is_there; sched_yield()) {
        pthread_mutex_lock(&stage);
        is_there = names_synced == 1;
        pthread_mutex_unlock(&stage);
    }
    int error = qi_queue_rename(queue, "b", 1, B);
    assert(error == 0 && !overlapped);
    pthread_join(thread, NULL);
    watched = NULL;
    assert(qi_publish(queue, "x", 1) == 0 && qi_publish(creation.queue, "x", 1) == 0);
    assert(qi_store_close(store) == 0);
    qi_store_free(store);
}

int main(int count, char **arguments) {
    assert(count == 2);
    root = arguments[1];
    test_close_waits_for_who_is_in_the_middle();
    test_two_may_close_a_store_with_a_worker();
    test_close_waits_for_a_recovery();
    test_a_queue_is_recovered_once();
    test_a_deletion_waits_for_a_sync_and_a_flush();
    test_who_waits_for_a_sync_shares_its_outcome();
    test_a_publish_waits_for_the_flush_that_makes_room();
    test_a_file_that_is_synced_is_freed_later();
    test_two_compactions_follow_each_other();
    test_what_moves_during_a_compaction_is_not_left_behind();
    test_who_waits_for_bodies_hears_that_the_store_failed();
    test_what_comes_while_a_wait_looks_elsewhere_is_not_missed();
    test_a_queue_that_is_used_while_it_goes_to_sleep_stays_open();
    test_a_child_may_not_use_what_it_inherited();
    test_a_store_whose_worker_cannot_start_is_not_open();
    test_others_go_on_while_a_queue_is_created();
    test_queues_that_are_created_at_once_share_the_sync_of_their_names();
    test_a_rename_does_not_sync_the_names_beside_another_thread();
    printf("threads: all passed\n");
    return 0;
}
