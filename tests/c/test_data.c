/* test_data.c - the durable mappings: what of them a kill and a power cut leave, the catalog, which
 * logs stay for them, and what is said of damage. On a simulated disk. Usage: test_data <directory>
 */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commits/commits.h"
#include "usual.h"
#include "watched.h"

static qi_store *store;
static qi_queue *queue;

static qi_options options(void) {
    qi_options options = usual();
    options.format = 2;
    options.commit_log_bytes = 9000; /* some changes, and the next log begins */
    return options;
}

static int try_open(qi_options options) {
    int error = qi_store_open_sim(sim, &options, &store);
    if (!error)
        error = qi_queue_open(store, "q", 1, "0000000000000000000000000000000a", options.create,
                              &queue);
    return error;
}

static void open_with(qi_options options) {
    int error = try_open(options);
    if (error)
        fprintf(stderr, "open: %s\n", qi_error_text());
    assert(error == 0);
}

static void begin(void) {
    sim = qi_sim_new(1, NULL);
    watch_calls();
    open_with(options());
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

static size_t entry(const char *key, const char *value, uint8_t *at) {
    uint32_t key_size = (uint32_t)strlen(key), size = value ? (uint32_t)strlen(value) : 0;
    qi_put16(at, (uint16_t)key_size);
    memcpy(at + 2, key, key_size);
    qi_put32(at + 2 + key_size, value ? size : QI_DATA_REMOVED);
    if (size)
        memcpy(at + 6 + key_size, value, size);
    return 6 + key_size + size;
}

static int change(qi_queue *of, const char *key, const char *value, bool confirm) {
    uint8_t entries[300];
    return qi_data_change(store, of, entries, entry(key, value, entries), confirm);
}

static void put(const char *key, const char *value, bool confirm) {
    assert(change(NULL, key, value, confirm) == 0);
}

static bool has(qi_queue *of, const char *key, const char *value) {
    char found[200];
    int64_t size = qi_data_get(store, of, key, strlen(key), found, sizeof found);
    return value ? size == (int64_t)strlen(value) && memcmp(found, value, strlen(value)) == 0
                 : size == QI_E_UNKNOWN;
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

/* How many findings are damage; those with these words, if any are named. */
static int damages(const char *words) {
    bool damage;
    const char *where, *text;
    uint64_t offset;
    int count = 0;
    for (uint32_t i = 0; qi_store_finding(store, i, &damage, &where, &offset, &text) == 0; i++)
        count += damage && (!words || strstr(text, words) || strstr(where, words));
    return count;
}

static void a_change_that_was_confirmed_stays(void) {
    begin();
    put("a", "1", true);
    syncs = 0;
    put("a", "2", true);
    assert(syncs == 1);
    put("b", "3", false);
    lose(-1);
    open_with(options());
    assert(has(NULL, "a", "2") && has(NULL, "b", "3")); /* shown, so it is durable */
    put("c", "4", false);
    lose(QI_SIM_NOTHING);
    open_with(options());
    assert(has(NULL, "a", "2") && has(NULL, "b", "3") && has(NULL, "c", NULL));
    end();
}

static void a_sync_of_the_store_and_a_close_are_for_mappings_too(void) {
    begin();
    put("a", "1", false);
    assert(qi_store_sync(store) == 0);
    syncs = 0;
    assert(qi_store_sync(store) == 0 && syncs == 0); /* nothing was changed since */
    lose(QI_SIM_NOTHING);
    open_with(options());
    assert(has(NULL, "a", "1"));
    put("b", "2", false);
    assert(qi_store_close(store) == 0);
    lose(QI_SIM_NOTHING);
    open_with(options());
    assert(has(NULL, "b", "2") && damages(NULL) == 0);
    end();
}

static void keys_stay_in_their_order(void) {
    uint8_t entries[100];
    begin();
    put("x", "1", false);
    put("y", "2", false);
    put("\1z", "3", false);
    put("x", "44", false); /* in its old place */
    put("y", NULL, false);
    put("y", "5", false); /* at the end */
    for (int again = 0; again < 2; again++) {
        assert(qi_data_count(store, NULL) == 3 && qi_data_count(store, queue) == 0);
        assert(qi_data_all(store, NULL, entries, 5) == 26); /* no room: nothing is written */
        assert(qi_data_all(store, NULL, entries, sizeof entries) == 26);
        assert(entries[2] == 'x' && entries[11] == 1 && entries[20] == 'y');
        assert(qi_store_close(store) == 0);
        qi_store_free(store);
        open_with(options());
    }
    end();
}

static void the_engines_own_keys_are_not_shown(void) {
    uint8_t entries[20] = {0, 2, 0, 'x', 0, 0, 0, 1, 'v'};
    begin();
    assert(qi_data_change(store, queue, entries, 9, false) == 0);
    assert(qi_data_count(store, queue) == 0 && qi_data_all(store, queue, entries, 20) == 0);
    assert(qi_data_get(store, queue, "\0x", 2, entries, 20) == 1);
    end();
}

static void what_is_no_change_is_refused(void) {
    uint8_t entries[] = {0, 1, 'a', 0, 0, 0, 2, 'v'}; /* the value ends too early */
    begin();
    assert(qi_data_change(store, NULL, entries, sizeof entries, false) == QI_E_ARGUMENT);
    assert(qi_data_change(store, NULL, entries, QI_DATA_MAX + 1, false) == QI_E_ARGUMENT);
    entries[1] = 0;
    assert(qi_data_change(store, NULL, entries, sizeof entries, false) == QI_E_ARGUMENT);
    assert(qi_data_count(store, NULL) == 0 && !is_there(".log"));
    end();
}

static void format_1_has_no_place_for_it(void) {
    qi_options old = options();
    old.format = 1;
    sim = qi_sim_new(1, NULL);
    watch_calls();
    open_with(old);
    assert(change(NULL, "a", "1", true) == QI_E_FORMAT);
    assert(qi_data_count(store, NULL) == QI_E_FORMAT);
    end();
}

/* 60 bytes each: a log has place for a dozen. */
static void fill(int from, int to, bool tick) {
    char key[8], value[60];
    memset(value, 'v', sizeof value);
    for (int i = from; i < to; i++) {
        snprintf(key, sizeof key, "k%d", i % 50);
        snprintf(value, sizeof value, "%050d", i);
        put(key, value, false);
        if (tick)
            assert(qi_store_tick(store) == 0);
    }
}

static bool is_full_of(int to) {
    char key[8], value[60];
    for (int i = to - 50; i < to; i++) {
        snprintf(key, sizeof key, "k%d", i % 50);
        snprintf(value, sizeof value, "%050d", i);
        if (!has(NULL, key, value))
            return false;
    }
    return qi_data_count(store, NULL) == 50;
}

static void the_catalog_replaces_old_logs(void) {
    begin();
    fill(0, 200, true);
    assert(qi_store_sync(store) == 0); /* the newest log is durable: the others may go */
    assert(is_there("catalog") && !is_there("/1.log") && !is_there("catalog.new"));
    assert(store->commits->oldest == store->commits->newest && store->commits->number > 8);
    for (int mode = -1; mode <= QI_SIM_NOTHING; mode++) {
        assert(qi_store_sync(store) == 0);
        lose(mode);
        open_with(options());
        assert(is_full_of(200) && damages(NULL) == 0);
    }
    end();
}

static void without_room_for_a_catalog_the_logs_stay(void) {
    begin();
    full = "catalog.new";
    fill(0, 200, true);
    assert(!is_there("catalog") && is_there("/1.log"));
    lose(-1);
    open_with(options());
    assert(is_full_of(200));
    full = NULL;
    fill(200, 250, true);
    assert(is_there("catalog") && !is_there("/1.log"));
    lose(-1);
    open_with(options());
    assert(is_full_of(250) && damages(NULL) == 0);
    end();
}

/* As the open finds it, with logs that only a catalog can replace. */
static void an_open_makes_the_catalog_that_is_missing(void) {
    begin();
    fill(0, 60, false); /* nobody ticks: no catalog is written */
    assert(!is_there("catalog") && store->commits->oldest != store->commits->newest);
    lose(-1);
    open_with(options());
    assert(qi_store_tick(store) == 0);
    assert(is_there("catalog") && store->commits->oldest == store->commits->newest);
    assert(is_full_of(60));
    end();
}

static void a_failed_sync_of_the_catalog_fails_the_store(void) {
    begin();
    fill(0, 60, false);
    assert(qi_store_sync(store) == 0);
    fill(60, 75, false);
    bool failed = false;
    for (int i = 0; i < 40 && !failed; i++) {
        sim->fail_sync = 2; /* that of the log goes well */
        failed = qi_store_tick(store) < 0;
        if (!failed && change(NULL, "k0", "v", false) != 0)
            failed = true;
    }
    assert(failed && change(NULL, "a", "1", false) == QI_E_FAILED);
    sim->fail_sync = 0;
    lose(-1);
    open_with(options());
    assert(qi_data_count(store, NULL) == 50 && damages(NULL) == 0);
    end();
}

static void flip(const char *file, uint64_t offset) {
    char path[200];
    const void *bytes;
    uint64_t size;
    for (uint32_t i = 0; qi_sim_file(sim, i, path, sizeof path, &bytes, &size) == 0; i++)
        if (strstr(path, file))
            ((uint8_t *)(uintptr_t)bytes)[offset] ^= 1;
}

static void a_damaged_catalog(uint64_t offset, const char *words, int left) {
    begin();
    fill(0, 200, true);
    assert(qi_store_close(store) == 0);
    lose(-1);
    flip("catalog", offset);
    open_with(options());
    assert(damages(words) == 1 && damages(NULL) == 1);
    assert(qi_data_count(store, NULL) >= left);
    end();
}

static void a_catalog_without_a_header_is_refused(void) {
    begin();
    fill(0, 200, true);
    assert(qi_store_close(store) == 0);
    lose(-1);
    flip("catalog", 8);
    flip("catalog", QI_JOURNAL_HEADER_COPY + 8);
    assert(try_open(options()) == QI_E_CORRUPT);
    qi_sim_free(sim);
}

static void a_catalog_that_is_missing_is_told(void) {
    begin();
    fill(0, 200, true);
    assert(qi_store_close(store) == 0);
    lose(-1);
    int root = sim->disk.ops->open_root(&sim->disk, "/", false);
    assert(sim->disk.ops->unlink(&sim->disk, root, "catalog") == 0);
    open_with(options());
    assert(damages("it is missing") == 1);
    end();
}

/* A power cut can take the name of the newest log and leave the catalog. */
static void what_comes_behind_a_catalog_without_its_log_is_read(void) {
    char found[200];
    begin();
    fill(0, 200, true);
    assert(qi_store_sync(store) == 0 && qi_store_close(store) == 0);
    lose(-1);
    while (qi_sim_damage(sim, QI_SIM_MISSING_FILE, 1, "commits/", found, sizeof found) == 0) {
    }
    assert(is_there("catalog") && !is_there(".log"));
    open_with(options());
    put("late", "1", true);
    assert(store->commits->number >= store->commits->catalog);
    lose(-1);
    open_with(options());
    assert(has(NULL, "late", "1"));
    end();
}

static void a_reader_sees_it(void) {
    qi_options reading = options();
    reading.read_only = true;
    reading.create = false;
    begin();
    fill(0, 200, true);
    assert(change(queue, "mine", "1", false) == 0 && qi_store_close(store) == 0);
    qi_store_free(store);
    open_with(reading);
    assert(is_full_of(200) && has(queue, "mine", "1") && damages(NULL) == 0);
    assert(change(NULL, "a", "1", false) == QI_E_READ_ONLY);
    end();
}

static void a_deleted_queue_takes_its_keys_along(void) {
    begin();
    assert(change(queue, "mine", "1", true) == 0);
    put("ours", "2", false);
    assert(qi_queue_delete(queue) == 0);
    assert(qi_data_count(store, queue) == QI_E_CLOSED);
    assert(store->commits->data.entries_count == 1);
    lose(-1);
    open_with(options());
    assert(qi_data_count(store, queue) == 0 && has(NULL, "ours", "2"));
    assert(store->commits->data.entries_count == 1);
    end();
}

int main(void) {
    a_change_that_was_confirmed_stays();
    a_sync_of_the_store_and_a_close_are_for_mappings_too();
    keys_stay_in_their_order();
    the_engines_own_keys_are_not_shown();
    what_is_no_change_is_refused();
    format_1_has_no_place_for_it();
    the_catalog_replaces_old_logs();
    without_room_for_a_catalog_the_logs_stay();
    an_open_makes_the_catalog_that_is_missing();
    a_failed_sync_of_the_catalog_fails_the_store();
    a_damaged_catalog(QI_JOURNAL_START + 80, "data and settings", 0);
    a_damaged_catalog(8, "a copy of its header", 50);
    a_catalog_without_a_header_is_refused();
    a_catalog_that_is_missing_is_told();
    what_comes_behind_a_catalog_without_its_log_is_read();
    a_reader_sees_it();
    a_deleted_queue_takes_its_keys_along();
    printf("data: all passed\n");
    return 0;
}
