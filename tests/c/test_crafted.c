/* test_crafted.c - files whose checksums are right and whose content cannot be: nobody's crash
 * leaves them, but a bug or a stranger may. On a simulated disk. Usage: test_crafted
 * <directory> */
#include "crafted.h"
#include "index/index.h"

/* ---- store.meta, on a disk without room for a new one ---- */

static struct qi_sim *full_sim;
static bool being_written[2]; /* the copies: not durable yet */
static uint32_t overwrites;

/* The power goes: the sectors that were being written hold anything. */
static void cut_while_written(void) {
    struct crafted after = {.sim = qi_sim_crash(full_sim, 1, QI_SIM_NOTHING)};
    struct qi_disk *disk = &after.sim->disk;
    const uint8_t junk[512] = {0x55};
    int root = disk->ops->open_root(disk, "/", false);
    int file = disk->ops->open(disk, root, "store.meta", QI_OPEN_WRITE);
    after.sim->knobs.capacity = UINT64_C(1) << 30;
    for (uint64_t copy = 0; copy < 2; copy++)
        if (being_written[copy])
            assert(disk->ops->write(disk, file, junk, sizeof junk, copy * 4096) == 0);
    assert(disk->ops->sync(disk, file) == 0);
    disk->ops->close(disk, file);
    disk->ops->close(disk, root);
    open_it(&after);
    assert(depth_of(&after) == 25);
    let_go(&after);
    qi_sim_free(after.sim);
}

static int write_and_cut(struct qi_disk *disk, int file, const void *data, size_t length,
                         uint64_t offset) {
    int error = plain_ops->write(disk, file, data, length, offset);
    if (!error && length == 4096 && memcmp(data, "QISTOR", 6) == 0) {
        being_written[offset / 4096] = true;
        overwrites++;
        cut_while_written();
    }
    return error;
}

static int sync_copies(struct qi_disk *disk, int file) {
    being_written[0] = being_written[1] = false;
    return plain_ops->sync(disk, file);
}

/* Each copy in turn, and durable before the other one is written over. */
static void test_one_copy_is_whole_while_the_other_is_written_over(void) {
    struct crafted crafted = crafted_new();
    close_it(&crafted);
    full_sim = crafted.sim;
    plain_ops = full_sim->disk.ops;
    struct qi_disk_ops ops = *plain_ops;
    ops.write = write_and_cut;
    ops.sync = sync_copies;
    full_sim->disk.ops = &ops;
    full_sim->knobs.capacity = 1;
    qi_options options = usual();
    assert(qi_store_open_sim(full_sim, &options, &crafted.store) == 0);
    assert(overwrites == 2 && !being_written[0] && !being_written[1]);
    let_go(&crafted);
    full_sim->disk.ops = plain_ops;
    qi_sim_free(full_sim);
}

/* ---- segments ---- */

/* A summary that is wrong is not believed: the entries are counted. */
static void test_a_summary_that_cannot_be_is_not_believed(void) {
    for (int way = 0; way < 3; way++) {
        struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
        open_it(&crafted);
        uint8_t body[500] = {0};
        for (int i = 0; i < 24; i++)
            assert(qi_publish(crafted.queue, body, sizeof body) == i);
        assert(qi_flush(crafted.queue) == 0);
        close_it(&crafted);
        with_file(&crafted, "1.idx", false);
        uint64_t at = last_frame(QI_SEGMENT_START, QI_FRAME_SUMMARY);
        assert(at > 0);
        if (way == 0)
            qi_put32(bytes + at + QI_FRAME_HEADER + QI_SUMMARY_FILES, 1000);
        else if (way == 1) /* a frame of another kind */
            bytes[at] = (uint8_t)(QI_FRAME_ENTRIES << 4 | (bytes[at] & 15));
        else
            qi_put32(bytes + size - 4, 16); /* too short for a summary */
        reseal(segment_seed(), at);
        with_file(&crafted, "1.idx", true);
        open_it(&crafted);
        assert(qi_store_compact(crafted.store, 50) >= 0); /* counts every reference */
        qi_store_stats stats;
        assert(qi_store_stats_of(crafted.store, &stats) == 0);
        assert(stats.live_references == 24);
        let_go(&crafted);
        qi_sim_free(crafted.sim);
    }
}

/* A record that says it is longer than its file is damage, and the rest is served. */
static void test_an_entry_with_an_impossible_length_is_damage(void) {
    struct crafted crafted = crafted_new();
    qi_message message;
    uint8_t payload[100];
    let_go(&crafted);
    open_it(&crafted);
    assert(qi_browse(crafted.queue, 3, false, &message, payload, sizeof payload) == 10);
    uint8_t *record = (uint8_t *)(uintptr_t)crafted.queue->window;
    assert(record && crafted.queue->window_number == 0);
    struct qi_segment *segment = qi_segment_find(&crafted.queue->segments, 0);
    uint64_t at = (qi_slots_of(segment->hot, 3)->loc[3] & QI_LOC_OFFSET_MAX) + QI_ENTRY_ID +
                  QI_PUB_EMBEDDED - crafted.queue->window_offset;
    qi_put32(record + at, 1 << 24); /* as if the medium had given other bytes this time */
    assert(qi_browse(crafted.queue, 3, false, &message, payload, sizeof payload) == QI_E_CORRUPT);
    assert(strstr(qi_error_text(), "holds other bytes") && qi_error_req_id() == 3);
    qi_put32(record + at, 200); /* longer than what is left of the file */
    assert(qi_browse(crafted.queue, 7, false, &message, payload, sizeof payload) == 10);
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* A file that shrinks while it is in use: each record that is gone is damage, nothing else. */
static void test_a_segment_that_shrinks_in_use_costs_its_records(void) {
    struct crafted crafted = crafted_new();
    qi_message message;
    uint8_t payload[100];
    let_go(&crafted);
    open_it(&crafted);
    assert(qi_browse(crafted.queue, 3, false, &message, payload, sizeof payload) == 10);
    with_file(&crafted, "0.idx", false);
    struct qi_segment *segment = qi_segment_find(&crafted.queue->segments, 0);
    uint64_t offset = qi_slots_of(segment->hot, 3)->loc[3] & QI_LOC_OFFSET_MAX;
    for (uint64_t left = offset - 20; left <= offset + 40; left += 20) {
        size = left;
        with_file(&crafted, "0.idx", true);
        crafted.queue->window_length = 0;
        assert(qi_browse(crafted.queue, 3, false, &message, payload, sizeof payload) ==
               QI_E_CORRUPT);
        assert(strstr(qi_error_text(), "ends too early"));
    }
    assert(qi_browse(crafted.queue, 8, false, &message, payload, sizeof payload) == 10);
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* ---- counts ---- */

/* 65535 deliveries are as many as can be told: in a journal, in a segment, and of both together. */
static void test_a_delivery_count_stays_at_its_highest_over_recoveries(void) {
    struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
    qi_message message;
    const uint64_t id[1] = {0};
    assert(try_open(&crafted, false, true) == 0);
    assert(qi_index_publish(crafted.queue, 4, NULL, NULL, 0) == 0);
    assert(qi_flush(crafted.queue) == 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 66000; i++)
            assert(qi_index_deliver(crafted.queue, id, 1, 0) == 0);
        assert(qi_queue_sync(crafted.queue) == 0);
        let_go(&crafted); /* a kill: replayed on a segment that is not read yet */
        assert(try_open(&crafted, false, true) == 0);
        assert(qi_index_read(crafted.queue, 0, 1, &message, 1) == 1);
        assert(message.delivery_count == UINT16_MAX);
        assert(qi_flush(crafted.queue) == 0);
    }
    assert(qi_index_read(crafted.queue, 0, 3, &message, 1) == 1 && message.req_id == 0);
    qi_message several[4];
    assert(qi_index_read(crafted.queue, 2, 3, several, 4) == 1); /* up to, not with, the last */
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* ---- names ---- */

static void put_name(struct crafted *crafted, const char *folder, const char *name) {
    struct qi_disk *disk = &crafted->sim->disk;
    int root = disk->ops->open_root(disk, "/", false);
    disk->ops->make_dir(disk, root, "queues");
    disk->ops->make_dir(disk, root, "messages");
    int queues = disk->ops->open_dir(disk, root, "queues"), dir = queues;
    if (strcmp(folder, "messages") == 0) {
        dir = disk->ops->open_dir(disk, root, "messages");
    } else if (strcmp(folder, "queues") != 0) {
        disk->ops->make_dir(disk, queues, folder);
        dir = disk->ops->open_dir(disk, queues, folder);
    }
    int file = disk->ops->open(disk, dir, name, QI_OPEN_FRESH);
    assert(file >= 0);
    disk->ops->close(disk, file);
    if (dir != queues)
        disk->ops->close(disk, dir);
    disk->ops->close(disk, queues);
    disk->ops->close(disk, root);
}

/* Of a deletion that a crash cut off only what is ours is removed (H18). */
static void test_what_is_left_of_a_deletion_goes_but_not_what_is_foreign(void) {
    struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
    static const char *const ours[] = {"queue.meta", "queue.meta.new", "journal.jif", "journal.alt",
                                       "0.idx",      "12.alt",         "3.bad"};
    static const char *const foreign[] = {"notes.txt", "5", "5.idx.bak", ".idx", "7.txt"};
    char path[120];
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        put_name(&crafted, A ".del", ours[i]);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        put_name(&crafted, A ".del", foreign[i]);
    put_name(&crafted, A ".old", "queue.meta"); /* not a deletion of ours */
    put_name(&crafted, "0000000000000000000000000000000G.del", "queue.meta");
    qi_store *store;
    qi_options options = {.create = true, .embed_below = 64, .message_file_size = 4096};
    /* Queues without a store.meta: that was lost. */
    assert(qi_store_open_sim(crafted.sim, &options, &store) == QI_E_CORRUPT);
    qi_sim_free(crafted.sim);

    crafted = crafted_new();
    close_it(&crafted);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        put_name(&crafted, A ".del", ours[i]);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        put_name(&crafted, A ".del", foreign[i]);
    put_name(&crafted, A ".old", "queue.meta");
    put_name(&crafted, "0000000000000000000000000000000G.del", "queue.meta");
    open_it(&crafted);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        snprintf(path, sizeof path, "queues/%s.del/%s", A, ours[i]);
        assert(!is_there(&crafted, path));
    }
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        snprintf(path, sizeof path, "queues/%s.del/%s", A, foreign[i]);
        assert(is_there(&crafted, path));
    }
    assert(is_there(&crafted, "queues/" A ".old/queue.meta"));
    assert(is_there(&crafted, "queues/0000000000000000000000000000000G.del/queue.meta"));
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* Whether a folder without a store.meta was a store: message files and queues say so, other names
 * do not. */
static void test_only_names_of_ours_make_a_folder_a_lost_store(void) {
    static const struct {
        const char *folder, *name;
        int code;
    } cases[] = {{"messages", "0.qms", QI_E_CORRUPT},
                 {"queues", A, QI_E_CORRUPT},
                 {"messages", "README", 0},
                 {"messages", "notes.txt", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qi_store *store = NULL;
        struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
        put_name(&crafted, cases[i].folder, cases[i].name);
        put_name(&crafted, "messages", "a"); /* before and behind it in the list */
        put_name(&crafted, "messages", "z");
        qi_options options = {.create = true, .embed_below = 64, .message_file_size = 4096};
        assert(qi_store_open_sim(crafted.sim, &options, &store) == cases[i].code);
        if (store)
            qi_store_free(store);
        qi_sim_free(crafted.sim);
    }
}

/* ---- segments ---- */

/* Of two publishes in one slot the first counts, and the other slot's message is missed. */
static void test_a_slot_that_is_published_twice_holds_the_first(void) {
    struct crafted crafted = crafted_new();
    close_it(&crafted);
    with_file(&crafted, "0.idx", false);
    uint64_t at = QI_SEGMENT_START;
    assert(type_at(at) == QI_FRAME_ENTRIES);
    uint8_t *second = bytes + at + QI_FRAME_HEADER + QI_ENTRY_ID + QI_PUB_FIELDS + 10;
    assert((qi_get16(second) & 0x3FFF) == 1);
    qi_put16(second, qi_get16(second) & ~1);
    reseal(segment_seed(), at);
    with_file(&crafted, "0.idx", true);
    open_it(&crafted);
    qi_message message;
    uint8_t payload[100];
    assert(qi_browse(crafted.queue, 0, false, &message, payload, sizeof payload) == 10);
    assert(message.req_id == 0);
    assert(qi_browse(crafted.queue, 1, false, &message, payload, sizeof payload) == 10);
    assert(message.req_id == 2 && depth_of(&crafted) == 24);
    assert(was_told(&crafted, "8 messages should be here, 7 were found"));
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* All segment files count, and there may be more of them than a list begins with. */
static void test_many_segments_are_found_without_a_manifest(void) {
    struct crafted crafted = crafted_new();
    for (int i = 0; i < 3; i++)
        publish_many(&crafted, 64);
    assert(qi_flush(crafted.queue) == 0);
    publish_many(&crafted, 3);
    assert(qi_queue_sync(crafted.queue) == 0);
    let_go(&crafted);
    const char *name = load_journal(&crafted);
    for (uint64_t at = QI_JOURNAL_START; type_at(at); at += QI_FRAME_HEADER + length_at(at))
        if (type_at(at) == QI_FRAME_MANIFEST)
            bytes[at + QI_FRAME_HEADER] ^= 8;
    with_file(&crafted, name, true);
    open_it(&crafted);
    assert(was_told(&crafted, "the MANIFEST is damaged") && depth_of(&crafted) == 20 + 5 + 192 + 3);
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

int main(void) {
    test_a_slot_that_is_published_twice_holds_the_first();
    test_many_segments_are_found_without_a_manifest();
    test_a_summary_that_cannot_be_is_not_believed();
    test_an_entry_with_an_impossible_length_is_damage();
    test_a_segment_that_shrinks_in_use_costs_its_records();
    test_a_delivery_count_stays_at_its_highest_over_recoveries();
    test_what_is_left_of_a_deletion_goes_but_not_what_is_foreign();
    test_only_names_of_ours_make_a_folder_a_lost_store();
    test_one_copy_is_whole_while_the_other_is_written_over();
    printf("crafted: all passed\n");
    return 0;
}
