/* test_strange.c - journals, segments and folders as no crash of ours leaves them, all checksums
 * right: what is in them counts as far as it can be, nothing falls over it, and what fails on the
 * way is tried again. On a simulated disk. Usage: test_strange <directory>
 */
#define ALLOCATIONS_REAL
#include "crafted.h"
#include "index/index.h"
#include "proof/explore/allocations.h"

#define SECOND UINT64_C(1000000)
#define HOUR   (3600 * SECOND)

static uint8_t payload[100];

/* The newest journal's frames go on with this one. */
static void append_frame(struct crafted *crafted, uint32_t type, const void *content,
                         uint32_t length) {
    const char *name = load_journal(crafted);
    add_frame(end_of_frames(QI_JOURNAL_START), type, content, length);
    with_file(crafted, name, true);
}

/* A record of a publish of five bytes. */
static uint32_t put_publish(uint8_t *at, uint64_t req_id) {
    memset(at, 0, QI_RECORD_ID + QI_PUB_FIELDS);
    qi_put_record_id(at, QI_PUB_PERSISTENT, req_id);
    qi_put32(at + QI_RECORD_ID + QI_PUB_SIZE, 5);
    qi_put32(at + QI_RECORD_ID + QI_PUB_EMBEDDED, 5);
    memcpy(at + QI_RECORD_ID + QI_PUB_FIELDS, "given", 5);
    return QI_RECORD_ID + QI_PUB_FIELDS + 5;
}

static int64_t browse(struct crafted *crafted, uint64_t from, qi_message *message) {
    return qi_browse(crafted->queue, from, false, message, payload, sizeof payload);
}

static void end(struct crafted *crafted) {
    let_go(crafted);
    qi_sim_free(crafted->sim);
}

static void remove_file(struct crafted *crafted, const char *name) {
    struct qi_disk *disk = &crafted->sim->disk;
    int dir = open_folder(crafted);
    assert(disk->ops->unlink(disk, dir, name) == 0);
    disk->ops->close(disk, dir);
}

/* ---- journals ---- */

static void test_a_time_that_does_not_fit_into_its_frame_is_told(void) {
    struct crafted crafted = crafted_new();
    uint8_t record[QI_TIME_RECORD];
    let_go(&crafted);
    qi_put_time(record, 3, 1);
    append_frame(&crafted, QI_FRAME_RECORDS, record, QI_TIME_RECORD - 8);
    open_it(&crafted);
    assert(was_told(&crafted, "does not fit into its frame") && depth_of(&crafted) == 25);
    end(&crafted);
}

/* Our purges end at a whole queue. */
static void test_a_purge_may_end_inside_a_segment(void) {
    struct crafted crafted = crafted_new();
    uint8_t below[8];
    qi_message message;
    let_go(&crafted);
    qi_put64(below, 4);
    append_frame(&crafted, QI_FRAME_PURGE, below, sizeof below);
    open_it(&crafted);
    assert(depth_of(&crafted) == 21);
    assert(browse(&crafted, 0, &message) == 10 && message.req_id == 4);
    assert(qi_store_check(crafted.store) == 0);
    end(&crafted);
}

/* The last ReqId of a lane in which nothing was published before, and a time that says that it is
 * ready. */
static void test_a_message_without_a_lane_is_seen_and_left_alone(void) {
    struct crafted crafted = crafted_new();
    uint8_t record[100];
    const uint64_t last = qi_lane_start(3) - 1;
    qi_message message;
    let_go(&crafted);
    uint32_t length = put_publish(record, last);
    qi_put_time(record + length, last, 0);
    append_frame(&crafted, QI_FRAME_RECORDS, record, length + QI_TIME_RECORD);
    open_it(&crafted);
    assert(!qi_lane_find(&crafted.queue->lanes, 2));
    assert(browse(&crafted, last, &message) == 5 && message.priority == 2);
    assert(qi_reschedule(crafted.queue, last, 0) == QI_E_UNKNOWN && depth_of(&crafted) == 26);
    assert(qi_flush(crafted.queue) == 0 && qi_store_check(crafted.store) == 0);
    end(&crafted);
}

/* In a lane of delayed messages one of which no record tells the time, or that it has none: it is
 * ready at once. Every allocation fails on the way. */
static void test_a_delayed_message_without_a_time_is_ready(void) {
    const uint64_t id = qi_lane_start(QI_NEAR_LANE) + 8;
    uint8_t record[100];
    for (int told = 0; told < 2; told++) {
        bool failed = true;
        for (uint64_t call = 1; failed; call++) {
            struct crafted crafted = crafted_new();
            let_go(&crafted);
            uint32_t length = put_publish(record, id);
            if (told)
                qi_put_time(record + length, id, 0);
            append_frame(&crafted, QI_FRAME_RECORDS, record, length + (told ? QI_TIME_RECORD : 0));
            allocations.calls = allocations.failed = 0;
            allocations.fail_at = call;
            qi_options options = usual();
            crafted.queue = NULL;
            int error = qi_store_open_sim(crafted.sim, &options, &crafted.store);
            bool opened = error == 0;
            if (opened)
                error = qi_queue_open(crafted.store, "a", 1, A, true, &crafted.queue);
            failed = allocations.failed > 0;
            allocations.fail_at = 0;
            assert(error == 0 || (failed && error == QI_E_MEMORY));
            if (opened)
                let_go(&crafted);
            open_it(&crafted);
            qi_reader reader = {.queue = crafted.queue, .payload = payload, .room = sizeof payload};
            assert(depth_of(&crafted) == 26 && qi_get(&reader) == 5);
            assert(reader.message.req_id == id && reader.message.priority == 0);
            end(&crafted);
        }
    }
}

/* A whole journal whose last frame ends with the file: nothing was cut off. */
static void test_a_journal_may_be_full_to_its_last_byte(void) {
    struct crafted crafted = crafted_new();
    let_go(&crafted);
    const char *name = load_journal(&crafted);
    uint64_t at = end_of_frames(QI_JOURNAL_START), full = (at + 4096 + 4095) / 4096 * 4096;
    static uint8_t acks[8192];
    uint32_t length = (uint32_t)(full - at - QI_FRAME_HEADER);
    uint32_t count = length / QI_RECORD_ID;
    for (uint32_t i = 0; i < count; i++)
        qi_put_record_id(acks + (size_t)i * QI_RECORD_ID, QI_ACK, 24);
    add_frame(at, QI_FRAME_RECORDS, acks, length);
    size = full;
    with_file(&crafted, name, true);
    open_it(&crafted);
    assert(depth_of(&crafted) == 24 && !was_told(&crafted, "torn end"));
    assert(qi_publish(crafted.queue, "on", 2) >= 25); /* it grows */
    end(&crafted);
}

/* Before anything was confirmed a power cut may tear a header: no damage. */
static void test_a_torn_header_is_no_damage_before_the_first_mark(void) {
    struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
    open_it(&crafted);
    const char *name = qi_journal_name(crafted.queue->epoch);
    let_go(&crafted);
    with_file(&crafted, name, false);
    bytes[QI_JH_EPOCH] ^= 1;
    with_file(&crafted, name, true);
    open_it(&crafted);
    assert(!was_told(&crafted, "") && depth_of(&crafted) == 0);
    publish_many(&crafted, 3);
    assert(depth_of(&crafted) == 3);
    end(&crafted);
}

/* The old journal is not flushed yet, and the MANIFEST of the new one is damaged. */
static void test_without_a_manifest_the_old_journal_counts(void) {
    struct crafted crafted = crafted_pair();
    const char *name = load_journal(&crafted);
    assert(type_at(QI_JOURNAL_START) == QI_FRAME_MANIFEST);
    bytes[QI_JOURNAL_START + QI_FRAME_HEADER] ^= 8;
    with_file(&crafted, name, true);
    open_it(&crafted);
    assert(was_told(&crafted, "the MANIFEST is damaged") && depth_of(&crafted) == 29);
    assert(qi_flush(crafted.queue) == 0 && depth_of(&crafted) == 29);
    end(&crafted);
}

/* ---- segments ---- */

/* Of a segment's two files one is empty: the other counts. */
static void test_an_empty_twin_takes_nothing_away(void) {
    struct crafted crafted = crafted_new();
    let_go(&crafted);
    const char *name = load_journal(&crafted);
    for (uint64_t at = QI_JOURNAL_START; type_at(at); at += QI_FRAME_HEADER + length_at(at))
        if (type_at(at) == QI_FRAME_MANIFEST)
            bytes[at + QI_FRAME_HEADER] ^= 8;
    with_file(&crafted, name, true);
    size = 0;
    with_file(&crafted, "1.alt", true);
    open_it(&crafted);
    assert(was_told(&crafted, "the MANIFEST is damaged") && depth_of(&crafted) == 25);
    assert(!was_told(&crafted, "nothing in it can be read"));
    end(&crafted);
}

/* A file that no MANIFEST names goes, with and without history, also if the disk did not give its
 * header. */
static void test_a_stray_goes_though_the_disk_fails(void) {
    for (int history = 0; history < 2; history++) {
        bool failed = true;
        for (uint64_t call = 1; failed; call++) {
            struct crafted crafted = crafted_new();
            qi_options options = usual();
            options.keep_history = history ? 1 << 20 : 0;
            close_it(&crafted);
            with_file(&crafted, "0.idx", false);
            with_file(&crafted, "0.alt", true);
            qi_sim_fault(crafted.sim, call, QI_SIM_EIO, false);
            for (int again = 0; again < 2; again++) {
                crafted.store = NULL;
                int error = qi_store_open_sim(crafted.sim, &options, &crafted.store);
                if (!error)
                    error = qi_queue_open(crafted.store, "a", 1, A, true, &crafted.queue);
                failed = crafted.sim->fault_hits > 0;
                qi_sim_fault(crafted.sim, 0, 0, false);
                assert(error == 0 || (failed && !again));
                if (!again && crafted.store)
                    let_go(&crafted);
            }
            assert(depth_of(&crafted) == 25 && !is_there(&crafted, "queues/" A "/0.alt"));
            assert(is_there(&crafted, "queues/" A "/0.idx"));
            end(&crafted);
        }
    }
}

/* The same message stands in the segment and in the journal, with another time: the journal is
 * newer. */
static void test_the_journals_time_counts_against_the_segments(void) {
    struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
    uint8_t record[100];
    qi_message message;
    const uint64_t id = 0;
    qi_reader reader = {.payload = payload, .room = sizeof payload};
    open_it(&crafted);
    uint64_t now = qi_store_now_us(crafted.store);
    reader.queue = crafted.queue;
    publish_many(&crafted, 8);
    assert(qi_get(&reader) == 10 && qi_nack_many(crafted.queue, &id, NULL, 1, now + HOUR) == 0);
    assert(qi_flush(crafted.queue) == 0 && qi_queue_sync(crafted.queue) == 0);
    let_go(&crafted);
    uint32_t length = put_publish(record, id);
    qi_put_time(record + length, id, now + 2 * HOUR);
    append_frame(&crafted, QI_FRAME_RECORDS, record, length + QI_TIME_RECORD);
    open_it(&crafted);
    assert(browse(&crafted, 1, &message) == 10 && browse(&crafted, id, &message) >= 0);
    assert(message.req_id == id && message.due_us == now + 2 * HOUR && depth_of(&crafted) == 8);
    end(&crafted);
}

/* It went behind the engine's back. Each allocation fails once; the next try says what is lost. */
static void test_a_segment_that_is_gone_is_told_also_at_the_second_try(void) {
    bool failed = true;
    for (uint64_t call = 1; failed; call++) {
        struct crafted crafted = crafted_new();
        qi_message message;
        let_go(&crafted);
        open_it(&crafted);
        remove_file(&crafted, "0.idx");
        allocations.calls = allocations.failed = 0;
        allocations.fail_at = call;
        int64_t got = browse(&crafted, 0, &message);
        failed = allocations.failed > 0;
        allocations.fail_at = 0;
        assert((got == 10 && message.req_id == 8) || (failed && got == QI_E_MEMORY));
        assert(browse(&crafted, 0, &message) == 10 && message.req_id == 8);
        assert(failed || was_told(&crafted, "8 messages should be here, 0 were found"));
        assert(depth_of(&crafted) == 17);
        end(&crafted);
    }
}

/* The same of a segment whose other messages stand in the journal, with times. */
static void test_delayed_messages_of_a_segment_that_is_gone_are_kept_in_the_journal(void) {
    bool failed = true;
    for (uint64_t call = 1; failed; call++) {
        struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
        qi_message message;
        char name[32];
        int64_t ids[4];
        open_it(&crafted);
        uint64_t due = qi_store_now_us(crafted.store) + 2 * HOUR;
        for (int i = 0; i < 4; i++) {
            ids[i] = qi_publish_with(crafted.queue, NULL, 0, "later", 5, 0, 0, due);
            assert(ids[i] > 0 && (i != 1 || qi_flush(crafted.queue) == 0));
        }
        assert(qi_queue_sync(crafted.queue) == 0);
        let_go(&crafted);
        open_it(&crafted);
        qi_segment_name((uint64_t)ids[0] / 8, false, name);
        remove_file(&crafted, name);
        allocations.calls = allocations.failed = 0;
        allocations.fail_at = call;
        int64_t got = browse(&crafted, 0, &message);
        failed = allocations.failed > 0;
        allocations.fail_at = 0;
        assert(got == 5 || (failed && got == QI_E_MEMORY));
        assert(browse(&crafted, 0, &message) == 5 && message.req_id == (uint64_t)ids[2]);
        assert(message.due_us == due && depth_of(&crafted) == 2);
        assert(qi_flush(crafted.queue) == 0 && qi_queue_sync(crafted.queue) == 0);
        let_go(&crafted);
        open_it(&crafted);
        assert(depth_of(&crafted) == 2 && browse(&crafted, (uint64_t)ids[3], &message) == 5);
        end(&crafted);
    }
}

/* What the counters say is not there: the newest is looked for before it. */
static void test_the_newest_is_found_before_a_damaged_segment(void) {
    struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
    open_it(&crafted);
    publish_many(&crafted, 24);
    assert(qi_flush(crafted.queue) == 0);
    close_it(&crafted);
    with_file(&crafted, "2.idx", false);
    bytes[QI_SEGMENT_START + QI_FRAME_HEADER + 30] ^= 1;
    with_file(&crafted, "2.idx", true);
    open_it(&crafted);
    qi_reader reader = {.queue = crafted.queue, .payload = payload, .room = sizeof payload};
    assert(depth_of(&crafted) == 24);
    assert(qi_get_newest(&reader) == 10 && reader.message.req_id == 15);
    assert(depth_of(&crafted) == 16 && was_told(&crafted, "8 messages should be here"));
    end(&crafted);
}

/* A record that is gone is set aside and told; one that the disk does not give now is not. */
static void test_a_get_tells_what_is_gone_from_what_is_not_given(void) {
    for (int gone = 0; gone < 2; gone++) {
        struct crafted crafted = crafted_new();
        qi_message message;
        let_go(&crafted);
        open_it(&crafted);
        qi_reader reader = {.queue = crafted.queue, .payload = payload, .room = sizeof payload};
        assert(browse(&crafted, 0, &message) == 10);
        crafted.queue->window_length = 0;
        if (gone) {
            with_file(&crafted, "0.idx", false);
            size = 70;
            with_file(&crafted, "0.idx", true);
        } else {
            qi_sim_fault(crafted.sim, 1, QI_SIM_EIO, true);
        }
        assert(qi_get(&reader) == (gone ? QI_E_CORRUPT : QI_E_IO));
        qi_sim_fault(crafted.sim, 0, 0, false);
        qi_queue_stats stats;
        assert(qi_queue_stats_of(crafted.queue, &stats) == 0 && stats.unacked == (unsigned)gone);
        assert(gone ? qi_ack(crafted.queue, 0, 0) == 0 : qi_get(&reader) == 10);
        end(&crafted);
    }
}

/* ---- stores ---- */

/* A store with a bound reads all queues when it is opened. One of another version holds nothing up,
 * a disk that fails does. */
static void test_a_bounded_store_opens_beside_a_queue_of_another_version(void) {
    bool failed = true;
    for (uint64_t call = 0; failed || call == 1; call++) {
        struct crafted crafted = crafted_new();
        qi_queue *other;
        qi_options options = usual();
        options.worker = true;
        options.max_bytes = 1 << 20;
        assert(qi_queue_open(crafted.store, "b", 1, B, true, &other) == 0);
        assert(qi_publish(other, "x", 1) == 0);
        close_it(&crafted);
        with_file(&crafted, "queue.meta", false);
        for (uint64_t copy = 0; copy < size; copy += size / 2) {
            qi_put32(bytes + copy + 8, QI_FORMAT_VERSION + 2);
            uint32_t sealed = 32 + qi_get32(bytes + copy + 12); /* behind the name */
            qi_put32(bytes + copy + sealed, qi_crc32c(0, bytes + copy, sealed));
        }
        with_file(&crafted, "queue.meta", true);
        qi_sim_fault(crafted.sim, call, call ? QI_SIM_EIO : 0, false);
        int error = qi_store_open_sim(crafted.sim, &options, &crafted.store);
        failed = crafted.sim->fault_hits > 0;
        qi_sim_fault(crafted.sim, 0, 0, false);
        assert(error == 0 || failed);
        if (error)
            assert(qi_store_open_sim(crafted.sim, &options, &crafted.store) == 0);
        assert(qi_queue_open(crafted.store, "a", 1, A, true, &crafted.queue) == QI_E_FORMAT);
        qi_store_stats stats;
        assert(qi_store_stats_of(crafted.store, &stats) == 0);
        assert(failed || (stats.messages == 1 && stats.bytes == 1));
        end(&crafted);
    }
}

int main(void) {
    test_a_time_that_does_not_fit_into_its_frame_is_told();
    test_a_purge_may_end_inside_a_segment();
    test_a_message_without_a_lane_is_seen_and_left_alone();
    test_a_delayed_message_without_a_time_is_ready();
    test_a_journal_may_be_full_to_its_last_byte();
    test_a_torn_header_is_no_damage_before_the_first_mark();
    test_without_a_manifest_the_old_journal_counts();
    test_an_empty_twin_takes_nothing_away();
    test_a_stray_goes_though_the_disk_fails();
    test_the_journals_time_counts_against_the_segments();
    test_a_segment_that_is_gone_is_told_also_at_the_second_try();
    test_delayed_messages_of_a_segment_that_is_gone_are_kept_in_the_journal();
    test_the_newest_is_found_before_a_damaged_segment();
    test_a_get_tells_what_is_gone_from_what_is_not_given();
    test_a_bounded_store_opens_beside_a_queue_of_another_version();
    printf("strange: all passed\n");
    return 0;
}
