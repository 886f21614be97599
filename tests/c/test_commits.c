/* test_commits.c - the commit log: what one sync covers, what readers see after a power cut, which
 * logs stay, and what is said of a damaged one. On a simulated disk. Usage: test_commits
 * <directory>
 */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commits/commits.h"
#include "durable/durable_private.h"
#include "usual.h"
#include "watched.h"

#define QUEUES 6

static qi_store *store;
static qi_queue *queues[QUEUES];

static qi_options options(void) {
    qi_options options = usual();
    options.format = 2;
    options.max_journal_entries = 1 << 16; /* nothing is flushed before a test says so */
    options.max_journal_bytes = 8 << 20;
    return options;
}

static int try_open(qi_options options) {
    int error = qi_store_open_sim(sim, &options, &store);
    for (int i = 0; i < QUEUES && !error; i++) {
        char name = (char)('a' + i), directory[33];
        snprintf(directory, sizeof directory, "%032x", 10 + i);
        error = qi_queue_open(store, &name, 1, directory, options.create, &queues[i]);
    }
    return error;
}

static void open_with(qi_options options) {
    int error = try_open(options);
    if (error)
        fprintf(stderr, "open: %s\n", qi_error_text());
    assert(error == 0);
}

static void begin(qi_options options) {
    sim = qi_sim_new(1, NULL);
    watch_calls();
    open_with(options);
}

static void end(void) {
    qi_store_free(store);
    qi_sim_free(sim);
}

/* The power goes, and what no sync covered is lost; or only the process is killed. */
static void lose(int mode) {
    qi_sim *left = mode < 0 ? qi_sim_kill(sim) : qi_sim_crash(sim, 7, mode);
    end();
    sim = left;
    watch_calls();
}

static void publish_to_all(uint32_t count, uint32_t size) {
    uint8_t body[4000];
    for (uint32_t i = 0; i < count; i++)
        for (int q = 0; q < QUEUES; q++) {
            memset(body, q + (int)i, size);
            assert(qi_publish(queues[q], body, size) >= 0);
        }
}

static uint64_t depth(int queue) {
    qi_queue_stats stats;
    assert(qi_queue_stats_of(queues[queue], &stats) == 0);
    return stats.depth;
}

static void all_have(uint64_t messages) {
    for (int q = 0; q < QUEUES; q++)
        assert(depth(q) == messages);
}

static bool is_there(const char *file) {
    char path[200];
    const void *bytes;
    uint64_t size;
    for (uint32_t i = 0; qi_sim_file(sim, i, path, sizeof path, &bytes, &size) == 0; i++)
        if (strstr(path, file))
            return true;
    return false;
}

static uint32_t count_logs(void) {
    uint32_t logs = 0;
    for (const struct qi_commit_log *log = store->commits->oldest; log; log = log->newer)
        logs++;
    return logs;
}

/* Findings with these words; *damages: how many of all are damage. */
static int told(const char *words, int *damages) {
    bool damage;
    const char *where, *text;
    uint64_t offset;
    int count = 0;
    *damages = 0;
    for (uint32_t i = 0; qi_store_finding(store, i, &damage, &where, &offset, &text) == 0; i++) {
        count += strstr(text, words) || strstr(where, words);
        *damages += damage;
    }
    return count;
}

/* Opens a new store. The first messages go through the files' own syncs, so that the rest may go
 * into the log. */
static void begin_synced(qi_options with) {
    begin(with);
    publish_to_all(1, 20);
    assert(qi_store_sync(store) == 0);
}

/* One message to each queue, and a sync; `syncs` says how many of those it took. */
static void publish_and_sync(void) {
    publish_to_all(1, 30);
    syncs = 0;
    assert(qi_store_sync(store) == 0);
}

static void one_sync_covers_all(void) {
    begin_synced(options());
    for (uint32_t i = 0; i < 5; i++) {
        publish_and_sync();
        assert(syncs == 1);
    }
    lose(QI_SIM_NOTHING);
    open_with(options());
    all_have(6);
    lose(QI_SIM_NOTHING); /* again, now that the journals were written from the log */
    open_with(options());
    all_have(6);
    end();
}

static void few_queues_have_no_log(void) {
    begin(options());
    for (int q = 0; q < 2; q++)
        assert(qi_publish(queues[q], "x", 1) >= 0);
    assert(qi_store_sync(store) == 0);
    assert(!is_there("1.log"));
    for (int q = 0; q < 3; q++)
        assert(qi_publish(queues[q], "x", 1) >= 0);
    assert(qi_store_sync(store) == 0);
    assert(is_there("1.log"));
    end();
}

static void format_1_has_no_log(void) {
    qi_options old = options();
    old.format = 1;
    begin_synced(old);
    publish_and_sync();
    assert(syncs == QUEUES && !is_there("commits"));
    end();
}

static void a_reader_sees_what_the_log_has(void) {
    begin_synced(options());
    publish_to_all(300, 40); /* more than the journals' files had when they were synced last */
    assert(qi_store_sync(store) == 0);
    lose(QI_SIM_NOTHING);
    qi_options reading = options();
    reading.read_only = true;
    reading.create = false;
    int damages;
    open_with(reading);
    all_have(301);
    assert(told("", &damages) >= 0 && damages == 0);
    qi_store_free(store);
    open_with(options()); /* a writer sees the same */
    all_have(301);
    end();
}

static void a_log_goes_when_its_queues_are_synced(void) {
    qi_options small = options();
    small.commit_log_bytes = 12000;
    small.worker = true;
    begin_synced(small);
    for (uint32_t i = 0; i < 40; i++) {
        publish_to_all(1, 40);
        assert(qi_store_sync(store) == 0);
        assert(qi_store_tick(store) == 0);
    }
    assert(!is_there("/1.log") && !is_there("/2.log") && store->commits->number > 3);
    assert(count_logs() <= 2);
    lose(QI_SIM_NOTHING);
    open_with(small);
    all_have(41);
    end();
}

/* Nobody syncs the journals meanwhile: a tick does that. */
static void with_four_full_logs_journals_are_synced_one_by_one(void) {
    qi_options small = options();
    small.commit_log_bytes = 8800;
    small.worker = true;
    begin_synced(small);
    uint32_t singly = 0;
    for (uint32_t i = 0; i < 30; i++) {
        uint64_t number = store->commits->number;
        publish_to_all(1, 40);
        syncs = 0;
        assert(qi_store_sync(store) == 0);
        uint32_t once = store->commits->number > number ? 2 : 1; /* store.meta names the new log */
        assert(syncs == QUEUES || syncs == once);
        singly += syncs == QUEUES;
        assert(count_logs() <= QI_COMMIT_LOGS_MAX);
    }
    assert(singly > 0 && singly < 30);
    lose(QI_SIM_NOTHING);
    open_with(small);
    all_have(31);
    end();
}

static void without_a_worker_the_commit_makes_room(void) {
    qi_options small = options();
    small.commit_log_bytes = 8800;
    begin_synced(small);
    for (uint32_t i = 0; i < 30; i++) {
        publish_to_all(1, 40);
        assert(qi_store_sync(store) == 0);
    }
    assert(store->commits->number > QI_COMMIT_LOGS_MAX);
    lose(QI_SIM_NOTHING);
    open_with(small);
    all_have(31);
    end();
}

static void a_full_disk_has_no_log(void) {
    full = ".log";
    begin_synced(options());
    publish_and_sync();
    assert(syncs == QUEUES && !is_there(".log"));
    full = NULL;
    publish_and_sync();
    assert(syncs == 2); /* store.meta names the new log */
    publish_and_sync();
    assert(syncs == 1);
    end();
}

static void parked_queues_are_in_the_log(void) {
    qi_options few = options();
    few.max_open_files = 12;
    begin_synced(few);
    for (uint32_t i = 0; i < 10; i++) {
        publish_to_all(2, 30);
        assert(qi_store_sync(store) == 0);
    }
    assert(is_there("1.log"));
    lose(QI_SIM_NOTHING);
    open_with(few);
    all_have(21);
    end();
}

static void a_clean_end_is_in_the_log(void) {
    begin_synced(options());
    publish_to_all(3, 30);
    syncs = 0;
    assert(qi_store_close(store) == 0);
    assert(syncs <= 4); /* the log twice, store.meta, message files */
    lose(QI_SIM_NOTHING);
    open_with(options());
    all_have(4);
    for (int q = 0; q < QUEUES; q++) { /* so the next ReqId is exact */
        uint64_t next = (uint64_t)qi_publish(queues[q], "x", 1);
        assert(next == 4);
    }
    end();
}

/* A script opens the store, publishes and closes it, a thousand times. */
static void many_sessions_have_one_log(void) {
    begin(options());
    for (uint32_t i = 0; i < 30; i++) {
        publish_to_all(2, 30);
        assert(qi_store_close(store) == 0);
        qi_store_free(store);
        open_with(options());
    }
    assert(store->commits->oldest == store->commits->newest && store->commits->number == 1);
    end();
}

static void a_deleted_queue_keeps_no_log(void) {
    qi_options small = options();
    small.commit_log_bytes = 8800;
    small.worker = true;
    begin_synced(small);
    publish_and_sync();
    for (int q = 0; q < 5; q++)
        assert(qi_queue_delete(queues[q]) == 0);
    assert(store->commits->oldest->needed == 1);
    end();
}

/* The queue is deleted; a power cut leaves its COPYs. The census gives them up. */
static void copies_of_nobody_are_forgotten(void) {
    qi_options usual_options = options();
    usual_options.worker = true;
    begin_synced(usual_options);
    publish_and_sync();
    assert(qi_queue_delete(queues[5]) == 0);
    lose(-1);
    assert(qi_store_open_sim(sim, &usual_options, &store) == 0);
    assert(store->commits->oldest->needed == QUEUES);
    int64_t freed = qi_store_compact(store, 50); /* with the census */
    assert(freed >= 0 && store->commits->oldest->needed == 0);
    int damages;
    told("", &damages);
    assert(damages == 0);
    end();
}

static uint8_t *file_bytes(const char *name, uint64_t *size) {
    for (int i = 0; i < sim->nodes_count; i++) {
        struct qi_sim_node *node = &sim->nodes[i];
        const uint8_t *bytes = node->cache ? node->cache->at : NULL;
        if (!node->used || node->dir || !bytes || node->cache->size < QI_JOURNAL_START ||
            memcmp(bytes, name, 8) != 0)
            continue;
        *size = node->cache->size;
        return node->cache->at;
    }
    return NULL;
}

static void harm_log(uint64_t from, uint64_t length) {
    uint64_t size;
    uint8_t *bytes = file_bytes(QI_COMMITS_MAGIC, &size);
    assert(bytes && from + length <= size);
    for (uint64_t i = 0; i < length; i++)
        bytes[from + i] ^= 0x55;
}

/* `from`: what is changed in the log; the process was killed, so the journals have everything. */
static void a_damaged_log(uint64_t from, uint64_t length, const char *words) {
    int damages;
    begin_synced(options());
    for (uint32_t i = 0; i < 3; i++) {
        publish_and_sync();
    }
    lose(QI_SIM_ALL);
    harm_log(from, length);
    open_with(options());
    assert(told(words, &damages) == 1 && damages == 1);
    all_have(4);
    publish_and_sync(); /* another log is begun */
    assert(is_there("2.log") || from < QI_JOURNAL_START);
    lose(QI_SIM_NOTHING);
    open_with(options());
    all_have(5);
    end();
}

/* A COPY is lost, and the journal never had its bytes. */
static void what_a_damaged_log_loses_is_told(void) {
    int damages;
    begin_synced(options());
    for (uint32_t i = 0; i < 3; i++) {
        publish_and_sync();
    }
    lose(QI_SIM_NOTHING);
    harm_log(QI_JOURNAL_START + 60, 1); /* the first COPY of queue a */
    open_with(options());
    assert(told("commits/1.log", &damages) == 1 && damages == 2);
    assert(told("journal.jif", &damages) == 1);
    assert(depth(0) == 3);
    for (int q = 1; q < QUEUES; q++)
        assert(depth(q) == 4);
    end();
}

/* A power cut in the middle of a commit tore the first COPY and kept the others. Those must not
 * count again when somebody appends up to where they begin. */
static void nothing_is_left_behind_a_torn_copy(void) {
    begin_synced(options());
    publish_and_sync();
    uint64_t torn = store->commits->newest->journal.tail, size;
    publish_and_sync();
    uint64_t mark = store->commits->newest->journal.tail - QI_MARK_SIZE;
    lose(QI_SIM_ALL);
    harm_log(torn + 20, 1);
    uint8_t *bytes = file_bytes(QI_COMMITS_MAGIC, &size);
    memset(bytes + mark, 0, QI_MARK_SIZE); /* the sync never came to its end */
    assert(qi_get64(bytes + mark - 8) != 0);
    open_with(options());
    assert(store->commits->newest->journal.tail == torn && store->commits->goes_on);
    bytes = file_bytes(QI_COMMITS_MAGIC, &size);
    for (uint64_t at = torn; at < size; at++)
        assert(bytes[at] == 0);
    end();
}

static void put_frame(uint32_t kind) {
    struct qi_journal *journal = &store->commits->newest->journal;
    uint8_t *at;
    assert(qi_journal_room(journal, 40, true, &at) == 0);
    memset(at, 1, 40);
    qi_put16(at, kind);
    assert(qi_journal_append(journal, QI_FRAME_EXTENDED, 40) == 0);
}

static void unknown_kinds(void) {
    begin_synced(options());
    publish_and_sync();
    put_frame(0x8077);
    lose(-1);
    open_with(options());
    all_have(2);
    put_frame(0x77);
    lose(-1);
    assert(try_open(options()) == QI_E_NEWER && strstr(qi_error_text(), "kind 119"));
    store = NULL;
    qi_sim_free(sim);
}

/* Both headers of the current journal are gone, and the one before it is there: to begin that epoch
 * again would lay old COPYs over new frames. */
static void a_lost_epoch_is_not_begun_again(void) {
    begin_synced(options());
    assert(qi_rotate(queues[0], 0, 0) == 0); /* epoch 3; 2 is not flushed */
    publish_and_sync();                      /* by its own sync */
    publish_and_sync();                      /* by the log */
    lose(QI_SIM_ALL);
    bool found = false;
    for (int i = 0; i < sim->nodes_count; i++) {
        struct qi_sim_node *node = &sim->nodes[i];
        uint8_t *bytes = node->used && !node->dir && node->cache ? node->cache->at : NULL;
        if (!bytes || node->cache->size < QI_JOURNAL_START || memcmp(bytes, QI_JOURNAL_MAGIC, 8) ||
            qi_get64(bytes + QI_JH_EPOCH) != 3)
            continue;
        bytes[9] ^= 1;
        bytes[QI_JOURNAL_HEADER_COPY + 9] ^= 1;
        found = true;
    }
    assert(found);
    qi_options options_now = options();
    assert(qi_store_open_sim(sim, &options_now, &store) == 0);
    char directory[33];
    snprintf(directory, sizeof directory, "%032x", 10);
    assert(qi_queue_open(store, "a", 1, directory, false, &queues[0]) == QI_E_CORRUPT);
    assert(strstr(qi_error_text(), "epoch 3"));
    end();
}

static void a_failed_sync_of_the_log(void) {
    begin_synced(options());
    publish_and_sync();
    publish_to_all(1, 30);
    sim->fail_sync = 1;
    assert(qi_store_sync(store) < 0);
    assert(qi_publish(queues[0], "x", 1) == QI_E_FAILED);
    lose(-1);
    open_with(options()); /* the cache has all, and the medium not: what is shown is durable */
    uint64_t seen[QUEUES];
    for (int q = 0; q < QUEUES; q++) {
        seen[q] = depth(q);
        assert(seen[q] >= 2);
    }
    publish_and_sync();
    lose(QI_SIM_NOTHING);
    open_with(options());
    for (int q = 0; q < QUEUES; q++)
        assert(depth(q) == seen[q] + 1);
    int damages;
    told("", &damages);
    assert(damages == 0);
    end();
}

static void big_queues_are_synced_where_they_are(void) {
    qi_options embedding = options();
    embedding.embed_below = 100000;
    begin_synced(embedding);
    publish_to_all(20, 4000); /* 80 KB each */
    syncs = 0;
    assert(qi_store_sync(store) == 0);
    assert(syncs == QUEUES);
    end();
}

int main(void) {
    one_sync_covers_all();
    few_queues_have_no_log();
    format_1_has_no_log();
    a_reader_sees_what_the_log_has();
    a_log_goes_when_its_queues_are_synced();
    with_four_full_logs_journals_are_synced_one_by_one();
    without_a_worker_the_commit_makes_room();
    a_full_disk_has_no_log();
    parked_queues_are_in_the_log();
    a_clean_end_is_in_the_log();
    many_sessions_have_one_log();
    a_deleted_queue_keeps_no_log();
    copies_of_nobody_are_forgotten();
    a_damaged_log(QI_JOURNAL_START + 60, 1, "commits/1.log");
    a_damaged_log(8, 4, "a copy of its header");
    what_a_damaged_log_loses_is_told();
    nothing_is_left_behind_a_torn_copy();
    unknown_kinds();
    a_lost_epoch_is_not_begun_again();
    a_failed_sync_of_the_log();
    big_queues_are_synced_where_they_are();
    printf("commits: all passed\n");
    return 0;
}
