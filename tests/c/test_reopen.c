/* test_reopen.c - what an open believes of a journal whose cache and medium differ, and what a
 * close leaves behind a thread that was late. On a simulated disk. Usage: test_reopen
 * <directory> */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crafted.h"
#include "store/store.h"

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

/* The cache drops whole pieces, more than it was asked for, and what comes from the medium then may
 * be damaged below the last MARK: it is checked, too. */
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
    open_with_drops_by(&crafted, drop_all_behind_the_header);
    assert(depth_of(&crafted) == before - 64 && was_told(&crafted, "1 damaged place "));
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

static uint32_t drops;

static int count_drops(struct qi_disk *disk, int file, uint64_t from, uint64_t to) {
    drops++;
    return plain_ops->drop_cache(disk, file, from, to);
}

/* Bodies that a MARK covers were durable before it was written: an open does not make them so once
 * more, however many they are. */
static void test_files_of_marked_bodies_are_left_alone(void) {
    static const uint8_t body[1000] = {1};
    for (int marked = 0; marked < 2; marked++) {
        struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
        open_it(&crafted);
        for (int i = 0; i < 40; i++)
            assert(qi_publish(crafted.queue, body, sizeof body) >= 0);
        if (marked)
            assert(qi_queue_sync(crafted.queue) == 0);
        for (int i = 0; i < 3; i++) /* the MARK stands in front of the first of them */
            assert(qi_publish(crafted.queue, body, sizeof body) >= 0);
        uint32_t files = crafted.store->messages.files_count;
        assert(files >= 10);
        let_go(&crafted);
        drops = 0;
        open_with_drops_by(&crafted, count_drops);
        assert(marked ? drops < 6 : drops > files);
        assert(depth_of(&crafted) == 43);
        let_go(&crafted);
        qi_sim_free(crafted.sim);
    }
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

/* The next page begins within the eight zeros behind the end: it is not given back by the cut. If
 * its write-back failed once, what is appended must not go there. */
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

static uint64_t whole_drops;

static int count_whole_drops(struct qi_disk *disk, int file, uint64_t from, uint64_t to) {
    whole_drops += from == 0 && to == UINT64_MAX;
    return plain_ops->drop_cache(disk, file, from, to);
}

enum behind { OLDER_EPOCH, FRAMES_BEHIND_A_HOLE, FRAMES_BEHIND_A_TORN_ONE };

/* A queue with a MARK and a message behind it in its journal, in all four messages; and behind that
 * `more` bytes, or so. */
static struct crafted with_more_behind(const qi_sim_knobs *knobs, enum behind behind, uint64_t more,
                                       uint64_t *end) {
    struct crafted crafted = {.sim = qi_sim_new(1, knobs)};
    open_it(&crafted);
    publish_many(&crafted, 3);
    assert(qi_queue_sync(crafted.queue) == 0);
    publish_many(&crafted, 1);
    *end = qi_current(crafted.queue)->tail;
    while (behind != OLDER_EPOCH && qi_current(crafted.queue)->tail < *end + more)
        publish_many(&crafted,
                     1); /* of this epoch, and each as long as that which comes in its place */
    let_go(&crafted);
    with_file(&crafted, "journal.jif", false);
    if (behind == OLDER_EPOCH) {
        memset(bytes + *end + QI_FRAME_HEADER, 0x55, more);
        size = (*end + more) / 4096 * 4096;
    } else {
        memset(bytes + *end, behind == FRAMES_BEHIND_A_HOLE ? 0 : 0x55, QI_FRAME_HEADER);
    }
    with_file(&crafted, "journal.jif", true);
    return crafted;
}

static void open_counting_whole_drops(struct crafted *crafted) {
    whole_drops = 0;
    open_with_drops_by(crafted, count_whole_drops);
}

/* Once more, and after a power cut: nothing of what was behind the end comes back, and what was
 * appended there stays. */
static void append_and_look_again(struct crafted *crafted, uint64_t before) {
    for (int i = 0; i < 40; i++)
        publish_many(crafted, 1);
    assert(qi_queue_sync(crafted->queue) == 0);
    struct crafted after = {.sim = qi_sim_crash(crafted->sim, 7, QI_SIM_NOTHING)};
    let_go(crafted);
    open_it(&after);
    assert(depth_of(&after) == before + 40);
    let_go(&after);
    qi_sim_free(after.sim);
    qi_sim_free(crafted->sim);
}

static const qi_sim_knobs all_knobs[] = {{.mapping = false, .no_zeros = false},
                                         {.mapping = false, .no_zeros = true},
                                         {.mapping = true, .no_zeros = false},
                                         {.mapping = true, .no_zeros = true}};

/* Where the disk can make zeros of them the file keeps its blocks; elsewhere it gives back those
 * behind the end. Of a torn tail somebody is told how long it was. */
static void test_what_is_behind_the_end_becomes_zeros_or_is_cut_off(void) {
    for (int i = 0; i < 4; i++)
        for (enum behind behind = OLDER_EPOCH; behind <= FRAMES_BEHIND_A_TORN_ONE; behind++) {
            uint64_t end;
            char words[60];
            struct crafted crafted = with_more_behind(&all_knobs[i], behind, 30000, &end);
            uint64_t before = size, last = size;
            bool torn = behind == FRAMES_BEHIND_A_TORN_ONE;
            while (bytes[last - 1] == 0)
                last--;
            snprintf(words, sizeof words, "a torn tail of %d bytes", (int)(last - end));
            open_counting_whole_drops(&crafted);
            assert(depth_of(&crafted) == 4 && whole_drops == torn);
            assert(has_finding(&crafted, false, words) == torn);
            uint64_t tail = qi_current(crafted.queue)->tail;
            with_file(&crafted, "journal.jif", false);
            assert(size == (all_knobs[i].no_zeros ? qi_journal_size_cut_at(end) : before));
            for (uint64_t at = tail; at < size; at++)
                assert(bytes[at] == 0);
            append_and_look_again(&crafted, 4);
        }
}

/* Each recovery has to look at the zeros; so the second one gives back megabytes of them. */
static void test_many_zeros_are_cut_off_next_time(void) {
    uint64_t end;
    struct crafted crafted = with_more_behind(&all_knobs[2], OLDER_EPOCH, 3 << 20, &end);
    for (int turn = 0; turn < 3; turn++) {
        open_it(&crafted);
        uint64_t allocated = qi_current(crafted.queue)->tape.allocated;
        assert(turn == 0 ? allocated == size : allocated < end + 3 * 4096);
        let_go(&crafted);
    }
    open_it(&crafted);
    append_and_look_again(&crafted, 4);
}

/* The medium lacks the last message: a write-back failed and nobody was told. Then nothing that the
 * cache has is believed. */
static void test_a_medium_that_ends_earlier_is_looked_at_as_a_whole(void) {
    for (int i = 0; i < 4; i++) {
        uint64_t end;
        struct crafted crafted = with_more_behind(&all_knobs[i], OLDER_EPOCH, 30000, &end);
        uint64_t last = last_frame(QI_JOURNAL_START, QI_FRAME_RECORDS);
        static const uint8_t zeros[QI_FRAME_HEADER];
        assert(qi_sim_put(&journal_of(crafted.sim)->durable, zeros, sizeof zeros, last));
        open_counting_whole_drops(&crafted);
        assert(depth_of(&crafted) == 3 && whole_drops == 1);
        append_and_look_again(&crafted, 3);
    }
}

/* In the cache there is something behind the end, which would be cut off with all that follows; the
 * medium has zeros, which are not. So what follows has to leave the cache as well. */
static void test_zeros_where_the_cache_had_none_make_it_give_up_the_rest(void) {
    uint64_t end;
    struct crafted crafted = with_more_behind(NULL, OLDER_EPOCH, 30000, &end);
    memset(bytes + end, 0, size - end);
    with_file(&crafted, "journal.jif", true);
    assert(qi_sim_put(&journal_of(crafted.sim)->cache, "x", 1, end + QI_FRAME_HEADER));
    open_counting_whole_drops(&crafted);
    assert(depth_of(&crafted) == 4 && whole_drops == 1);
    append_and_look_again(&crafted, 4);
}

/* ---- pages ---- */

static uint8_t *mapped[8];
static uint64_t mapped_bytes[8];

static int map_and_note(struct qi_disk *disk, int file, uint64_t length, uint8_t **memory) {
    int error = qi_disk_posix.ops->map(disk, file, length, memory);
    for (int i = 0; error == 0 && file >= 0; i++) {
        assert(i < 8);
        if (!mapped[i] || mapped[i] == *memory) {
            mapped[i] = *memory;
            mapped_bytes[i] = length;
            break;
        }
    }
    return error;
}

/* What is given up cannot be touched, */
static void settle_and_forbid(struct qi_disk *disk, uint8_t *memory, uint64_t length) {
    qi_disk_posix.ops->settle(disk, memory, length);
    for (int i = 0; i < 8; i++)
        if (mapped[i] == memory && mapped_bytes[i] == length)
            assert(mprotect(memory, length, PROT_NONE) == 0);
}

/* until it is loaded: an unreadable page would kill the process. */
static int allow_and_populate(struct qi_disk *disk, uint8_t *memory, uint64_t length,
                              bool to_write) {
    assert(mprotect(memory, (length + 4095) / 4096 * 4096, PROT_READ | PROT_WRITE) == 0);
    return qi_disk_posix.ops->populate(disk, memory, length, to_write);
}

static void test_nobody_looks_at_a_page_that_was_not_loaded(const char *directory) {
    struct qi_disk_ops ops = *qi_disk_posix.ops;
    ops.map = map_and_note;
    ops.settle = settle_and_forbid;
    ops.populate = allow_and_populate;
    struct qi_disk disk = {.ops = &ops, .growth_min = 4096, .single_threaded = true};
    qi_options options = usual();
    options.create = true;
    options.max_journal_entries = 1 << 20;
    options.max_journal_bytes = 8 << 20;
    options.io = 1;
    uint8_t junk[200000];
    memset(junk, 0x55, sizeof junk);
    for (uint64_t offset = 4040; offset <= 4100; offset += 3) {
        struct crafted crafted = {0};
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%d", directory, (int)offset);
        assert(qi_store_open_on(&disk, path, &options, &crafted.store) == 0);
        assert(qi_queue_open(crafted.store, "a", 1, A, true, &crafted.queue) == 0);
        publish_many(&crafted, 1);
        assert(qi_queue_sync(crafted.queue) == 0);
        publish_up_to(&crafted, offset);
        uint64_t before = depth_of(&crafted), end = qi_current(crafted.queue)->tail;
        int file = qi_current(crafted.queue)->tape.file;
        assert(pwrite(file, junk, sizeof junk, (off_t)qi_journal_size_cut_at(end)) == sizeof junk);
        let_go(&crafted);
        assert(qi_store_open_on(&disk, path, &options, &crafted.store) == 0);
        assert(qi_queue_open(crafted.store, "a", 1, A, true, &crafted.queue) == 0);
        publish_many(&crafted, 1);
        assert(depth_of(&crafted) == before + 1);
        let_go(&crafted);
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

/* A tick that waited for somebody's sync goes on when that queue has its CLOSE, and the store is
 * being closed. */
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
    shared.sim->disk.many = UINT32_MAX; /* each queue has a sync of its own */
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

int main(int count, char **arguments) {
    assert(count == 2);
    test_what_the_cache_dropped_beside_is_checked();
    test_files_of_marked_bodies_are_left_alone();
    test_the_page_in_which_the_end_is_told_is_read_again();
    test_what_is_behind_the_end_becomes_zeros_or_is_cut_off();
    test_many_zeros_are_cut_off_next_time();
    test_a_medium_that_ends_earlier_is_looked_at_as_a_whole();
    test_zeros_where_the_cache_had_none_make_it_give_up_the_rest();
    test_nobody_looks_at_a_page_that_was_not_loaded(arguments[1]);
    test_a_late_tick_puts_nothing_behind_a_close();
    printf("reopen: all passed\n");
    return 0;
}
