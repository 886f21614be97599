/* test_disk_sim.c - the simulated disk keeps what it promises, and loses what it may. Usage:
 * test_disk_sim <directory>
 *
 * Each test looks at many crash images: what was synced is in all of them, and what was not is
 * missing in some and there in others (a disk that loses nothing would prove nothing).
 */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk/disk.h"
#include "proof/sim/disk_sim.h"

#define IMAGES 200

static const struct qi_disk_ops *ops;

static qi_sim *new_disk(int *root) {
    qi_sim *sim = qi_sim_new(7, NULL);
    ops = sim->disk.ops;
    *root = ops->open_root(&sim->disk, "/", true);
    return sim;
}

static int new_file(qi_sim *sim, int dir, const char *name, const char *text) {
    int file = ops->open(&sim->disk, dir, name, QI_OPEN_FRESH);
    assert(file >= 0 && ops->write(&sim->disk, file, text, strlen(text), 0) == 0);
    return file;
}

/* The bytes of a name in the root; "-" if it is not there. */
static const char *text_of(qi_sim *sim, const char *name) {
    static char text[20000];
    int root = ops->open_root(&sim->disk, "/", false);
    int file = ops->open(&sim->disk, root, name, QI_OPEN_READ);
    if (file < 0)
        return "-";
    int64_t got = ops->read(&sim->disk, file, text, sizeof text - 1, 0);
    assert(got >= 0);
    text[got] = 0;
    return text;
}

/* How many of many power cuts leave the file with exactly this text. */
static int count_images(qi_sim *sim, int mode, const char *name, const char *text) {
    int count = 0;
    for (uint64_t seed = 0; seed < IMAGES; seed++) {
        qi_sim *image = qi_sim_crash(sim, seed, mode);
        count += strcmp(text_of(image, name), text) == 0;
        qi_sim_free(image);
    }
    return count;
}

static void test_a_synced_write_under_a_synced_name_is_in_every_image(void) {
    int root;
    qi_sim *sim = new_disk(&root);
    int file = new_file(sim, root, "a", "kept");
    assert(ops->sync(&sim->disk, file) == 0 && ops->sync_dir(&sim->disk, root) == 0);
    assert(count_images(sim, QI_SIM_MIXED, "a", "kept") == IMAGES);
    qi_sim_free(sim);
}

static void test_a_write_that_was_not_synced_may_vanish_tear_or_stay(void) {
    int root;
    qi_sim *sim = new_disk(&root);
    int file = new_file(sim, root, "a", "old.");
    assert(ops->sync(&sim->disk, file) == 0 && ops->sync_dir(&sim->disk, root) == 0);
    assert(ops->write(&sim->disk, file, "new!", 4, 0) == 0);
    assert(count_images(sim, QI_SIM_NOTHING, "a", "old.") == IMAGES);
    assert(count_images(sim, QI_SIM_ALL, "a", "new!") == IMAGES);
    int torn = 0; /* at a byte */
    static const char *const some[] = {"nld.", "ned.", "new."};
    for (int i = 0; i < 3; i++)
        torn += count_images(sim, QI_SIM_PREFIX, "a", some[i]);
    assert(torn > 0);
    int old = count_images(sim, QI_SIM_SECTORS512, "a", "old."),
        new = count_images(sim, QI_SIM_SECTORS512, "a", "new!");
    assert(old > 0 && new > 0 && old + new == IMAGES); /* one sector: all of it or nothing */
    qi_sim_free(sim);
}

static void test_a_name_waits_for_the_sync_of_its_directory(void) {
    int root;
    qi_sim *sim = new_disk(&root);
    int file = new_file(sim, root, "a", "text");
    assert(ops->sync(&sim->disk, file) == 0);
    int there = count_images(sim, QI_SIM_MIXED, "a", "text");
    assert(there > 0 && there < IMAGES);
    assert(there + count_images(sim, QI_SIM_MIXED, "a", "-") == IMAGES);
    assert(ops->sync_dir(&sim->disk, root) == 0);
    assert(count_images(sim, QI_SIM_MIXED, "a", "text") == IMAGES);
    qi_sim_free(sim);
}

static void test_a_renamed_file_has_one_name_or_the_other_never_both_or_none(void) {
    int root;
    qi_sim *sim = new_disk(&root);
    int file = new_file(sim, root, "draft", "new"), old = new_file(sim, root, "meta", "old");
    assert(ops->sync(&sim->disk, file) == 0 && ops->sync(&sim->disk, old) == 0);
    assert(ops->sync_dir(&sim->disk, root) == 0);
    assert(ops->rename(&sim->disk, root, "draft", root, "meta") == 0);
    int before = 0, after = 0;
    for (uint64_t seed = 0; seed < IMAGES; seed++) {
        qi_sim *image = qi_sim_crash(sim, seed, QI_SIM_MIXED);
        bool is_new = strcmp(text_of(image, "meta"), "new") == 0;
        assert(is_new || strcmp(text_of(image, "meta"), "old") == 0);
        assert(strcmp(text_of(image, "draft"), is_new ? "-" : "new") == 0);
        before += !is_new;
        after += is_new;
        qi_sim_free(image);
    }
    assert(before > 0 && after > 0);
    qi_sim_free(sim);
}

static void test_an_unlink_and_a_truncate_may_be_undone(void) {
    int root;
    qi_sim *sim = new_disk(&root);
    int file = new_file(sim, root, "a", "long text"), gone = new_file(sim, root, "b", "gone");
    assert(ops->sync(&sim->disk, file) == 0 && ops->sync(&sim->disk, gone) == 0);
    assert(ops->sync_dir(&sim->disk, root) == 0);
    assert(ops->truncate(&sim->disk, file, 4) == 0 && ops->unlink(&sim->disk, root, "b") == 0);
    int cut = count_images(sim, QI_SIM_MIXED, "a", "long"),
        whole = count_images(sim, QI_SIM_MIXED, "a", "long text");
    assert(cut > 0 && whole > 0 && cut + whole == IMAGES);
    int still = count_images(sim, QI_SIM_MIXED, "b", "gone");
    assert(still > 0 && still < IMAGES);
    qi_sim_free(sim);
}

static void test_zeros_may_come_or_not(void) {
    int root;
    qi_sim *sim = qi_sim_new(1, &(qi_sim_knobs){.no_zeros = true});
    ops = sim->disk.ops;
    root = ops->open_root(&sim->disk, "/", true);
    int file = new_file(sim, root, "a", "long text");
    assert(ops->zero(&sim->disk, file, 4, 9) == -EOPNOTSUPP);
    qi_sim_free(sim);
    sim = new_disk(&root);
    file = new_file(sim, root, "a", "long text");
    assert(ops->sync(&sim->disk, file) == 0 && ops->sync_dir(&sim->disk, root) == 0);
    assert(ops->zero(&sim->disk, file, 4, 9) == 0);
    uint64_t bytes;
    assert(ops->size(&sim->disk, file, &bytes) == 0 && bytes == 9);
    int zeros = count_images(sim, QI_SIM_SECTORS512, "a", "long"),
        text = count_images(sim, QI_SIM_SECTORS512, "a", "long text");
    assert(zeros > 0 && text > 0 && zeros + text == IMAGES);
    qi_sim_fault(sim, 1, QI_SIM_EIO, false);
    assert(ops->zero(&sim->disk, file, 0, 9) == -EIO && strcmp(text_of(sim, "a"), "long") == 0);
    qi_sim_fault(sim, 1, QI_SIM_ENOSPC, false);
    assert(ops->zero(&sim->disk, file, 0, 9) == -ENOSPC);
    qi_sim_free(sim);
}

static void test_a_kill_keeps_everything_and_a_power_cut_after_it_does_not(void) {
    int root;
    qi_sim *sim = new_disk(&root);
    new_file(sim, root, "a", "cached");
    qi_sim *killed = qi_sim_kill(sim);
    assert(strcmp(text_of(killed, "a"), "cached") == 0);
    assert(count_images(killed, QI_SIM_NOTHING, "a", "-") == IMAGES);
    qi_sim_free(killed);
    qi_sim_free(sim);
}

static void test_stores_into_a_mapping_are_writes_that_nobody_synced(void) {
    int root;
    uint8_t *memory;
    qi_sim *sim = new_disk(&root);
    int file = new_file(sim, root, "a", "....");
    assert(ops->sync(&sim->disk, file) == 0 && ops->sync_dir(&sim->disk, root) == 0);
    assert(ops->map(&sim->disk, file, 8192, &memory) == 0);
    memcpy(memory, "mine", 4);
    assert(count_images(sim, QI_SIM_NOTHING, "a", "....") == IMAGES);
    assert(count_images(sim, QI_SIM_ALL, "a", "mine") == IMAGES);
    assert(ops->sync(&sim->disk, file) == 0);
    assert(count_images(sim, QI_SIM_NOTHING, "a", "mine") == IMAGES);
    ops->unmap(&sim->disk, memory, 8192);
    qi_sim_free(sim);
}

static void test_a_failed_sync_leaves_in_the_cache_what_the_medium_never_gets(void) {
    int root;
    qi_sim *sim = new_disk(&root);
    int file = new_file(sim, root, "a", "old");
    assert(ops->sync(&sim->disk, file) == 0 && ops->sync_dir(&sim->disk, root) == 0);
    assert(ops->write(&sim->disk, file, "new", 3, 0) == 0);
    qi_sim_fault(sim, 1, QI_SIM_EIO, false);
    assert(ops->sync(&sim->disk, file) == -EIO);
    assert(ops->sync(&sim->disk, file) == 0); /* as on Linux: the second says that all is well */
    assert(strcmp(text_of(sim, "a"), "new") == 0);
    assert(count_images(sim, QI_SIM_ALL, "a", "old") == IMAGES);
    assert(ops->drop_cache(&sim->disk, file, 2, UINT64_MAX) == 0 &&
           strcmp(text_of(sim, "a"), "ned") == 0);
    assert(ops->drop_cache(&sim->disk, file, 0, 1) == 0 && strcmp(text_of(sim, "a"), "oed") == 0);
    assert(ops->drop_cache(&sim->disk, file, 0, UINT64_MAX) == 0 &&
           strcmp(text_of(sim, "a"), "old") == 0);
    qi_sim_free(sim);
}

static void test_a_full_disk_a_short_write_and_a_fault_that_stays(void) {
    int root;
    qi_sim_knobs knobs = {.capacity = 10000};
    qi_sim *sim = qi_sim_new(1, &knobs);
    root = ops->open_root(&sim->disk, "/", true);
    int file = new_file(sim, root, "a", "12345678");
    assert(ops->allocate(&sim->disk, file, 0, 20000) == -ENOSPC);
    qi_sim_fault(sim, 1, QI_SIM_SHORT, false);
    assert(ops->write(&sim->disk, file, "abcdefgh", 8, 0) == -ENOSPC);
    assert(strcmp(text_of(sim, "a"), "abcd5678") == 0);
    qi_sim_fault(sim, 2, QI_SIM_EIO, true);
    assert(ops->write(&sim->disk, file, "x", 1, 0) == 0);
    assert(ops->write(&sim->disk, file, "x", 1, 0) == -EIO && ops->sync(&sim->disk, file) == -EIO);
    qi_sim_fault(sim, 0, 0, false);
    assert(ops->write(&sim->disk, file, "x", 1, 0) == 0);
    qi_sim_free(sim);
}

static void test_the_same_seed_gives_the_same_image(void) {
    int root;
    qi_sim *sim = new_disk(&root);
    int file = new_file(sim, root, "a", "0123456789");
    assert(ops->sync_dir(&sim->disk, root) == 0);
    ops->write(&sim->disk, file, "abcdefghij", 10, 3);
    char texts[2][64], last[64] = "";
    int different = 0;
    for (uint64_t seed = 0; seed < IMAGES; seed++) {
        for (int i = 0; i < 2; i++) {
            qi_sim *image = qi_sim_crash(sim, seed, QI_SIM_MIXED);
            snprintf(texts[i], sizeof texts[i], "%s", text_of(image, "a"));
            qi_sim_free(image);
        }
        assert(strcmp(texts[0], texts[1]) == 0);
        different += strcmp(texts[0], last) != 0;
        memcpy(last, texts[0], sizeof last);
    }
    assert(different > IMAGES / 4);
    qi_sim_free(sim);
}

int main(void) {
    test_a_synced_write_under_a_synced_name_is_in_every_image();
    test_a_write_that_was_not_synced_may_vanish_tear_or_stay();
    test_a_name_waits_for_the_sync_of_its_directory();
    test_a_renamed_file_has_one_name_or_the_other_never_both_or_none();
    test_an_unlink_and_a_truncate_may_be_undone();
    test_zeros_may_come_or_not();
    test_a_kill_keeps_everything_and_a_power_cut_after_it_does_not();
    test_stores_into_a_mapping_are_writes_that_nobody_synced();
    test_a_failed_sync_leaves_in_the_cache_what_the_medium_never_gets();
    test_a_full_disk_a_short_write_and_a_fault_that_stays();
    test_the_same_seed_gives_the_same_image();
    printf("disk_sim: all passed\n");
    return 0;
}
