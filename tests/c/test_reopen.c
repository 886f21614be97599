/* test_reopen.c - what an open believes of a journal whose cache and medium differ, and what a close leaves behind a thread that
 * was late. On a simulated disk. Usage: test_reopen <directory>
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "crafted.h"

static const struct qi_disk_ops *plain_ops;

static struct qi_sim_node *journal_of(qi_sim *sim) {
    for (int i = 0; i < sim->nodes_count; i++) {
        struct qi_sim_node *node = &sim->nodes[i];
        if (!node->dir && qi_sim_size(node->cache) > QI_JOURNAL_START &&
            memcmp(node->cache->at, QI_JOURNAL_MAGIC, 8) == 0)
            return node;
    }
    assert(!"there is a journal");
    return NULL;
}

static int drop_all_behind_the_header(struct qi_disk *disk, int file, uint64_t from, uint64_t to) {
    bool header = to == QI_JOURNAL_START;
    return plain_ops->drop_cache(disk, file, header ? from : 0, header ? to : UINT64_MAX);
}

/* The cache drops whole pieces, more than it was asked for, and what comes from the medium then may be damaged below the last
 * MARK: it is checked, too. */
static void test_what_the_cache_dropped_beside_is_checked(void) {
    struct crafted crafted = crafted_new();
    for (int i = 0; i < 40; i++)
        publish_many(&crafted, 64);
    assert(qi_queue_sync(crafted.queue) == 0);
    publish_many(&crafted, 1);
    assert(qi_queue_sync(crafted.queue) == 0);
    uint64_t before = depth_of(&crafted);
    let_go(&crafted);
    struct qi_sim_node *journal = journal_of(crafted.sim);
    uint8_t damaged = journal->durable->at[QI_JOURNAL_START + 9000] ^ 1;
    assert(qi_sim_put(&journal->durable, &damaged, 1, QI_JOURNAL_START + 9000));
    plain_ops = crafted.sim->disk.ops;
    struct qi_disk_ops ops = *plain_ops;
    ops.drop_cache = drop_all_behind_the_header;
    crafted.sim->disk.ops = &ops;
    open_it(&crafted);
    crafted.sim->disk.ops = plain_ops;
    assert(depth_of(&crafted) == before - 64 && was_told(&crafted, "1 damaged places"));
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* Publishes until the journal ends there in its page. */
static void publish_up_to(struct crafted *crafted, uint64_t offset) {
    const struct qi_journal *journal = qi_current(crafted->queue);
    const uint8_t body[60] = {5};
    for (uint64_t left; (left = (offset - journal->tail) % 4096) != 0;) {
        uint64_t size = left < 48 ? 60 : left <= 108 ? left - 48 : left - 108;
        assert(qi_publish(crafted->queue, body, (uint32_t)(size < 60 ? size : 60)) >= 0);
    }
}

/* The next page begins within the eight zeros behind the end: it is not given back by the cut. If its write-back failed once, what
 * is appended must not go there. */
static void test_the_page_in_which_the_end_is_told_is_read_again(void) {
    for (uint64_t offset = 4080; offset <= 4096; offset++) {
        struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
        open_it(&crafted);
        publish_up_to(&crafted, offset);
        uint64_t page = (qi_current(crafted.queue)->tail + 8) / 4096 * 4096;
        assert(qi_queue_sync(crafted.queue) == 0);
        let_go(&crafted);
        struct qi_sim_node *journal = journal_of(crafted.sim);
        assert(qi_sim_resize(&journal->durable, page) && qi_sim_resize(&journal->cache, page));
        struct qi_disk *disk = &crafted.sim->disk;
        int dir = open_folder(&crafted);
        int file = disk->ops->open(disk, dir, "journal.jif", QI_OPEN_WRITE);
        uint8_t junk[4096 - 10];
        memset(junk, 0x55, sizeof junk);
        assert(file >= 0 && disk->ops->write(disk, file, junk, sizeof junk, page + 10) == 0);
        qi_sim_fault(crafted.sim, 1, QI_SIM_EIO, false);
        assert(disk->ops->sync(disk, file) != 0);
        qi_sim_fault(crafted.sim, 0, 0, false);
        disk->ops->close(disk, file);
        disk->ops->close(disk, dir);
        open_it(&crafted);
        publish_many(&crafted, 1);
        assert(qi_queue_sync(crafted.queue) == 0);
        uint64_t confirmed = depth_of(&crafted);
        struct crafted after = {.sim = qi_sim_crash(crafted.sim, 1, QI_SIM_NOTHING)};
        let_go(&crafted);
        open_it(&after);
        assert(depth_of(&after) == confirmed);
        let_go(&after);
        qi_sim_free(after.sim);
        qi_sim_free(crafted.sim);
    }
}

/* ---- threads ---- */

enum role { OTHER, TICKS, CLOSES, SYNCS };

static _Thread_local enum role role;
static atomic_int tick_waits, syncs_of_close;
static atomic_bool may_sync, may_tick, has_ticked;
static pthread_mutex_t disk_lock = PTHREAD_MUTEX_INITIALIZER;

static void until(atomic_bool *happened) {
    while (!atomic_load(happened))
        sched_yield();
}

int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    if (role != TICKS || atomic_fetch_add(&tick_waits, 1) > 0)
        return __real_pthread_cond_wait(condition, mutex);
    pthread_mutex_unlock(mutex); /* a slow thread: it hears of it late */
    until(&may_tick);
    return pthread_mutex_lock(mutex);
}

static int slow_sync(struct qi_disk *disk, int file) {
    if (role == SYNCS)
        until(&may_sync);
    if (role == CLOSES && atomic_fetch_add(&syncs_of_close, 1) == 1) {
        atomic_store(&may_tick, true); /* the first queue has its CLOSE, this is the second's */
        while (!atomic_load(&has_ticked) && atomic_load(&tick_waits) < 2)
            sched_yield();
    }
    pthread_mutex_lock(&disk_lock);
    int error = plain_ops->sync(disk, file);
    pthread_mutex_unlock(&disk_lock);
    return error;
}

static struct crafted shared;

static void *tick(void *unused) {
    role = TICKS;
    qi_store_tick(shared.store);
    atomic_store(&has_ticked, true);
    return unused;
}

static void *close_store(void *unused) {
    role = CLOSES;
    assert(qi_store_close(shared.store) == 0);
    return unused;
}

static void *sync_queue(void *unused) {
    role = SYNCS;
    assert(qi_queue_sync(shared.queue) == 0);
    return unused;
}

static void until_locked(bool (*happened)(void)) {
    for (bool is_so = false; !is_so;) {
        sched_yield();
        qi_lock(shared.store);
        is_so = happened();
        qi_unlock(shared.store);
    }
}

static bool is_syncing(void) {
    return shared.queue->syncing;
}

static bool is_closing(void) {
    return shared.store->closing;
}

/* A tick that waited for somebody's sync goes on when that queue has its CLOSE, and the store is being closed. */
static void test_a_late_tick_puts_nothing_behind_a_close(void) {
    shared = (struct crafted){.sim = qi_sim_new(1, NULL)};
    open_it(&shared);
    qi_queue *second;
    assert(qi_queue_open(shared.store, "b", 1, B, true, &second) == 0);
    publish_many(&shared, 1);
    assert(qi_queue_sync(shared.queue) == 0 && qi_queue_sync(second) == 0);
    publish_many(&shared, 1);
    plain_ops = shared.sim->disk.ops;
    struct qi_disk_ops ops = *plain_ops;
    ops.sync = slow_sync;
    shared.sim->disk.ops = &ops;
    pthread_t syncing, ticking, closing;
    assert(pthread_create(&syncing, NULL, sync_queue, NULL) == 0);
    until_locked(is_syncing);
    assert(pthread_create(&ticking, NULL, tick, NULL) == 0);
    while (atomic_load(&tick_waits) == 0)
        sched_yield();
    assert(pthread_create(&closing, NULL, close_store, NULL) == 0);
    until_locked(is_closing);
    atomic_store(&may_sync, true);
    pthread_join(syncing, NULL);
    pthread_join(closing, NULL);
    pthread_join(ticking, NULL);
    shared.sim->disk.ops = plain_ops;
    let_go(&shared);
    with_file(&shared, "journal.jif", false);
    uint64_t close = last_frame(QI_JOURNAL_START, QI_FRAME_CLOSE);
    assert(close && close + QI_FRAME_HEADER + length_at(close) == end_of_frames(QI_JOURNAL_START));
    qi_sim_free(shared.sim);
}

int main(void) {
    test_what_the_cache_dropped_beside_is_checked();
    test_the_page_in_which_the_end_is_told_is_read_again();
    test_a_late_tick_puts_nothing_behind_a_close();
    printf("reopen: all passed\n");
    return 0;
}
