/* test_journals.c - journals whose checksums are right and whose content seldom is: manifests,
 * frames and pairs that only damage, a stranger or a crash at the worst moment leaves. On a
 * simulated disk. Usage: test_journals <directory>
 */
#include "crafted.h"

#include <errno.h>

#include "store/store.h"

/* ---- manifests ---- */

static void test_a_manifest_with_segments_that_cannot_be_is_refused(void) {
    static const struct {
        uint32_t offset;
        uint64_t value; /* of 8 bytes */
    } edits[] = {
        {QI_MANIFEST_FIXED + QI_MANIFEST_SEGMENT, 0}, /* the second is not above the first */
        {QI_MANIFEST_FIXED + 2 * QI_MANIFEST_SEGMENT,
         UINT64_MAX >> 2}, /* a segment of ReqIds that are none */
        {QI_MANIFEST_FIXED + 8, UINT64_C(0x7fffffff) << 32 | 1}, /* 2 GiB long */
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct crafted crafted = crafted_new();
        let_go(&crafted);
        const char *name = load_journal(&crafted);
        uint64_t at = last_frame(QI_JOURNAL_START, QI_FRAME_MANIFEST);
        assert(length_at(at) == QI_MANIFEST_FIXED + 3 * QI_MANIFEST_SEGMENT);
        qi_put64(bytes + at + QI_FRAME_HEADER + edits[i].offset, edits[i].value);
        reseal(journal_seed(), at);
        with_file(&crafted, name, true);
        assert(try_open(&crafted, false, false) == QI_E_CORRUPT);
        assert(strstr(qi_error_text(), "manifest names segments that cannot be"));
        let_go(&crafted);
        qi_sim_free(crafted.sim);
    }
}

static void test_a_manifest_that_cannot_be_read_is_none(void) {
    static const uint32_t edits[] = {32, 34, 44}; /* lanes, the lane's number, the count */
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct crafted crafted = crafted_new();
        let_go(&crafted);
        const char *name = load_journal(&crafted);
        for (uint64_t at = QI_JOURNAL_START; type_at(at); at += QI_FRAME_HEADER + length_at(at))
            if (type_at(at) == QI_FRAME_MANIFEST) {
                bytes[at + QI_FRAME_HEADER + edits[i] + 1] ^= 8;
                reseal(journal_seed(), at);
            }
        with_file(&crafted, name, true);
        open_it(&crafted);
        assert(was_told(&crafted, "the MANIFEST is damaged") && depth_of(&crafted) == 25);
        let_go(&crafted);
        qi_sim_free(crafted.sim);
    }
}

/* ---- frames of a journal ---- */

/* A CLOSE that promises nothing readable is no clean end: the ids go on at the reserve. */
static void test_a_close_that_cannot_be_read_is_no_clean_end(void) {
    for (int way = 0; way < 3; way++) {
        struct crafted crafted = crafted_new();
        close_it(&crafted);
        const char *name = load_journal(&crafted);
        uint64_t at = last_frame(QI_JOURNAL_START, QI_FRAME_CLOSE);
        uint8_t payload[44] = {0};
        assert(at && length_at(at) == 28);
        memcpy(payload, bytes + at + QI_FRAME_HEADER, 28);
        payload[17] ^= way == 0 ? 2 : 0; /* two lanes more */
        add_frame(at, QI_FRAME_CLOSE, payload, way == 1 ? 44 : 28);
        if (way == 2) { /* 36 bytes before the end another frame's payload */
            memset(bytes + at, 0, 100);
            add_frame(at, QI_FRAME_CLOSE, payload, 16);
        }
        with_file(&crafted, name, true);
        open_it(&crafted);
        qi_queue_stats stats;
        assert(qi_queue_stats_of(crafted.queue, &stats) == 0);
        assert(stats.depth == 25 && stats.next_req_id > 25);
        let_go(&crafted);
        qi_sim_free(crafted.sim);
    }
}

static void test_frames_too_short_for_their_kind_change_nothing(void) {
    static const uint32_t types[] = {QI_FRAME_PURGE, QI_FRAME_MARK, QI_FRAME_SESSION,
                                     QI_FRAME_MANIFEST, QI_FRAME_CLOSE};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct crafted crafted = crafted_new();
        let_go(&crafted);
        const char *name = load_journal(&crafted);
        static const uint8_t payload[4] = {1, 1, 1, 1};
        add_frame(end_of_frames(QI_JOURNAL_START), types[i], payload, 4);
        with_file(&crafted, name, true);
        open_it(&crafted);
        assert(depth_of(&crafted) == 25);
        close_it(&crafted);
        open_it(&crafted);
        assert(depth_of(&crafted) == 25);
        let_go(&crafted);
        qi_sim_free(crafted.sim);
    }
}

/* Lanes that no writer of ours has are passed over, the ones behind them are not. */
static void test_lanes_that_cannot_be_are_left_out(void) {
    struct crafted crafted = crafted_new();
    let_go(&crafted);
    const char *name = load_journal(&crafted);
    uint8_t payload[3 * QI_LANES_ROW];
    static const struct {
        uint16_t lane;
        uint64_t count;
    } rows[] = {{QI_LANES, 7}, {0, QI_COUNT_MASK + 1}, {0, 1 << 30}};
    for (uint32_t i = 0; i < 3; i++) {
        qi_put16(payload + i * QI_LANES_ROW, rows[i].lane);
        qi_put64(payload + i * QI_LANES_ROW + 2, rows[i].count);
    }
    add_frame(end_of_frames(QI_JOURNAL_START), QI_FRAME_LANES, payload, sizeof payload);
    with_file(&crafted, name, true);
    open_it(&crafted);
    qi_queue_stats stats;
    assert(qi_queue_stats_of(crafted.queue, &stats) == 0);
    assert(stats.depth == 25 && stats.next_req_id >> 30 == 1);
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* More transients than messages: all of them are, and nothing is counted below zero. */
static void test_a_manifest_with_more_transients_than_messages_counts_none_below_zero(void) {
    struct crafted crafted = crafted_new();
    let_go(&crafted);
    const char *name = load_journal(&crafted);
    uint64_t at = last_frame(QI_JOURNAL_START, QI_FRAME_MANIFEST);
    qi_put16(bytes + at + QI_FRAME_HEADER + QI_MANIFEST_FIXED + 14, 9); /* of 8 */
    reseal(journal_seed(), at);
    with_file(&crafted, name, true);
    open_it(&crafted); /* they died with the process that held them */
    assert(depth_of(&crafted) == 17);
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* A rotation that a power cut took leaves frames of the epoch that comes next. They are emptied
 * before it begins; the sync of that failed once, was tried again, and said yes: a delivery of the
 * lost life came back. */
static void test_a_stale_journal_that_could_not_be_emptied_stops_the_store(void) {
    uint32_t tried = 0;
    for (uint64_t seed = 1; tried < 3; seed++) {
        assert(seed < 1000);
        struct crafted crafted = crafted_new();
        qi_lock(crafted.store);
        assert(qi_flush_begin(crafted.queue, 0, 0) == 0);
        qi_unlock(crafted.store);
        publish_many(&crafted, 1);
        struct crafted after = {.sim = qi_sim_crash(crafted.sim, seed, QI_SIM_MIXED)};
        let_go(&crafted);
        qi_sim_free(crafted.sim);
        open_it(&after);
        if (after.queue->next_is_stale && qi_previous(after.queue)->tape.file >= 0) {
            tried++;
            after.sim->fail_sync = 1;
            assert(qi_flush(after.queue) == QI_E_IO);
            assert(qi_flush(after.queue) == QI_E_FAILED);
            assert(qi_publish(after.queue, "x", 1) == QI_E_FAILED);
        }
        let_go(&after);
        qi_sim_free(after.sim);
    }
}

/* A sync, then a rotation: no MARK followed the sync in its own journal, and a bit that was flipped
 * there was taken for a torn tail, without a word. */
static void test_what_was_durable_before_a_rotation_is_known_behind_it(void) {
    struct crafted crafted = crafted_new(); /* five messages are synced, and nothing came behind */
    qi_lock(crafted.store);
    assert(qi_flush_begin(crafted.queue, 0, 0) == 0);
    qi_unlock(crafted.store);
    publish_many(&crafted, 1);
    let_go(&crafted);
    const char *name =
        strcmp(load_journal(&crafted), "journal.jif") ? "journal.jif" : "journal.alt";
    with_file(&crafted, name, false);
    uint64_t at = last_frame(QI_JOURNAL_START, QI_FRAME_RECORDS);
    assert(at > 0 && last_frame(QI_JOURNAL_START, QI_FRAME_MARK) > at);
    bytes[at + QI_FRAME_HEADER + 20] ^= 1;
    with_file(&crafted, name, true);
    open_it(&crafted);
    assert(was_told(&crafted, "among durable records") && depth_of(&crafted) == 21);
    assert(was_told(&crafted, "at most 5 messages are lost"));
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* A flush did not end. What the old journal has lost, in its middle or at its end, the new one
 * tells by its first publish. */
static void test_the_new_journal_tells_what_the_old_one_lost(void) {
    for (int gone = 0; gone < 2; gone++) {
        struct crafted crafted = {.sim = qi_sim_new(1, NULL)};
        open_it(&crafted);
        publish_many(&crafted, 5);
        publish_many(&crafted, 3);
        assert(gone || qi_queue_sync(crafted.queue) == 0);
        qi_lock(crafted.store);
        assert(qi_flush_begin(crafted.queue, 0, 0) == 0);
        qi_unlock(crafted.store);
        publish_many(&crafted, 2);
        assert(qi_queue_sync(crafted.queue) == 0);
        publish_many(&crafted, 2); /* with a MARK */
        assert(qi_queue_sync(crafted.queue) == 0);
        let_go(&crafted);
        const char *name =
            strcmp(load_journal(&crafted), "journal.jif") ? "journal.jif" : "journal.alt";
        with_file(&crafted, name, false);
        uint64_t at = last_frame(QI_JOURNAL_START, QI_FRAME_RECORDS);
        if (gone)
            memset(bytes + at, 0, end_of_frames(at) - at);
        else
            bytes[at + QI_FRAME_HEADER + 20] ^= 1;
        with_file(&crafted, name, true);
        open_it(&crafted);
        assert(depth_of(&crafted) == 9);
        assert(was_told(&crafted, gone ? "are gone: messages 5 to 7 (3) are lost"
                                       : "records: messages 5 to 7 (3) are lost; the rest"));
        let_go(&crafted);
        qi_sim_free(crafted.sim);
    }
}

/* A copy of the header is rotten, and the sync of the mended one fails: then the cache must not say
 * that it is whole. */
static void test_a_header_that_could_not_be_mended_is_seen_again(void) {
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        struct crafted crafted = crafted_new();
        publish_many(&crafted, 1); /* with a MARK */
        assert(qi_queue_sync(crafted.queue) == 0);
        let_go(&crafted);
        const char *name = load_journal(&crafted);
        bytes[QI_JOURNAL_HEADER_COPY + QI_JH_EPOCH] ^= 1;
        with_file(&crafted, name, true);
        qi_options options = usual();
        assert(qi_store_open_sim(crafted.sim, &options, &crafted.store) == 0);
        crafted.sim->fail_sync = n;
        failed = qi_queue_open(crafted.store, "a", 1, A, true, &crafted.queue) != 0;
        crafted.sim->fail_sync = 0;
        let_go(&crafted);
        if (failed)
            open_it(&crafted);
        if (failed)
            let_go(&crafted);
        struct crafted after = {.sim = qi_sim_crash(crafted.sim, 1, QI_SIM_NOTHING)};
        with_file(&after, name, false);
        assert(memcmp(bytes, bytes + QI_JOURNAL_HEADER_COPY, QI_JH_SIZE) == 0);
        qi_sim_free(after.sim);
        qi_sim_free(crafted.sim);
        assert(failed || n > 2);
    }
}

static uint64_t dropped[8][2];
static uint32_t drops;

static int note_drop(struct qi_disk *disk, int file, uint64_t from, uint64_t to) {
    assert(drops < sizeof dropped / sizeof *dropped);
    dropped[drops][0] = from;
    dropped[drops++][1] = to;
    return plain_ops->drop_cache(disk, file, from, to);
}

static void open_and_note_drops(struct crafted *crafted) {
    drops = 0;
    open_with_drops_by(crafted, note_drop);
}

/* What opening reads again behind an unclean end: the headers, and whole pages from the last MARK
 * on; all, if there is none. Zeros behind the end are read again, too; other bytes need not be, but
 * for the rest of their last page: they become zeros. */
static void test_only_what_a_mark_vouches_for_is_not_read_again(void) {
    enum { AS_IT_IS, CLOSED, LIES, RECYCLED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        struct crafted crafted = crafted_new();
        for (int i = 0; i < 8; i++)
            publish_many(&crafted, 64);
        assert(qi_queue_sync(crafted.queue) == 0);
        publish_many(&crafted, 1);
        if (way == CLOSED)
            close_it(&crafted);
        else
            let_go(&crafted);
        const char *name = load_journal(&crafted);
        uint64_t mark =
                     last_frame(QI_JOURNAL_START, way == CLOSED ? QI_FRAME_CLOSE : QI_FRAME_MARK),
                 end = end_of_frames(QI_JOURNAL_START), says = qi_get64(bytes + mark + 8);
        uint64_t cut = qi_journal_size_cut_at(end);
        uint64_t closed = size;
        assert(mark && says > QI_JOURNAL_START + 4096 && says % 4096 != 0);
        if (way == LIES) {
            qi_put64(bytes + mark + QI_FRAME_HEADER, UINT64_MAX);
            reseal(journal_seed(), mark);
        } else if (way == RECYCLED) {
            assert(size > cut);
            memset(bytes + end + QI_FRAME_HEADER, 7, size - end - QI_FRAME_HEADER);
        }
        with_file(&crafted, name, true);
        open_and_note_drops(&crafted);
        if (way == CLOSED) { /* the session ended cleanly: everything was synced before it ended */
            assert(drops == 0);
            let_go(&crafted);
            load_journal(&crafted);
            assert(size == closed);
            qi_sim_free(crafted.sim);
            continue;
        }
        const uint64_t expected[] = {way == LIES ? 0 : says / 4096 * 4096,
                                     way == RECYCLED ? cut : UINT64_MAX};
        uint32_t journals = 1; /* or both are there */
        while (dropped[journals][0] == 0 && dropped[journals][1] == QI_JOURNAL_START)
            journals++;
        assert(dropped[0][0] == 0 && dropped[0][1] == QI_JOURNAL_START);
        assert(journals <= 2 && drops == journals + 1);
        assert(memcmp(dropped[journals], expected, sizeof expected) == 0);
        let_go(&crafted);
        load_journal(&crafted);
        assert(size != cut);
        qi_sim_free(crafted.sim);
    }
}

/* What the group commit made durable a MARK vouches for at once, though nobody appends any more:
 * damage to it is told. It is no reason for another sync, and nothing comes behind a CLOSE. */
static void test_a_group_commit_ends_with_a_mark(void) {
    for (int marked = 0; marked < 2; marked++) {
        struct crafted crafted = crafted_new();
        publish_many(&crafted, 1);
        qi_queue_stats stats;
        for (int again = 0; marked && again < 2; again++) {
            crafted.store->dirty = true;
            assert(qi_store_tick(crafted.store) == 0);
            assert(qi_queue_stats_of(crafted.queue, &stats) == 0 && stats.unsynced_bytes == 0);
        }
        if (!marked)
            assert(qi_queue_sync(crafted.queue) == 0);
        let_go(&crafted);
        const char *name = load_journal(&crafted);
        uint64_t mark = last_frame(QI_JOURNAL_START, QI_FRAME_MARK),
                 publish = last_frame(QI_JOURNAL_START, QI_FRAME_RECORDS);
        assert(mark && publish && (mark > publish) == marked);
        if (marked) {
            assert(qi_get64(bytes + mark + QI_FRAME_HEADER) == mark);
            assert(mark + QI_MARK_SIZE == end_of_frames(QI_JOURNAL_START));
        }
        bytes[publish + QI_FRAME_HEADER + 20] ^= 1;
        with_file(&crafted, name, true);
        open_it(&crafted);
        assert(depth_of(&crafted) == 25 && was_told(&crafted, "damaged place") == marked);
        assert(qi_store_tick(crafted.store) == 0);
        close_it(&crafted);
        load_journal(&crafted);
        uint64_t close = last_frame(QI_JOURNAL_START, QI_FRAME_CLOSE);
        assert(close + QI_FRAME_HEADER + length_at(close) == end_of_frames(QI_JOURNAL_START));
        qi_sim_free(crafted.sim);
    }
}

/* ---- records ---- */

static void add_records(uint64_t offset, const enum qi_record_kind *kinds, const uint64_t *req_ids,
                        uint32_t count) {
    uint8_t payload[16 * QI_RECORD_ID];
    assert(count <= 16);
    for (uint32_t i = 0; i < count; i++)
        qi_put_record_id(payload + i * QI_RECORD_ID, kinds[i], req_ids[i]);
    add_frame(offset, QI_FRAME_RECORDS, payload, count * QI_RECORD_ID);
}

/* Every combination is legal (H3), for segments that are not read yet too: the second ack changes
 * nothing, nor does a delivery behind the last ack. */
static void test_acks_that_come_twice_count_once(void) {
    struct crafted crafted = crafted_new();
    let_go(&crafted);
    const char *name = load_journal(&crafted);
    static const enum qi_record_kind kinds[] = {QI_ACK, QI_ACK, QI_ACK, QI_ACK, QI_ACK,
                                                QI_ACK, QI_ACK, QI_ACK, QI_ACK, QI_DELIVER};
    static const uint64_t req_ids[] = {0, 0, 1, 2, 3, 4, 5, 6, 7, 3};
    add_records(end_of_frames(QI_JOURNAL_START), kinds, req_ids, 10);
    with_file(&crafted, name, true);
    open_it(&crafted);
    assert(depth_of(&crafted) == 17 && was_told(&crafted, "1 delivery or ack without"));
    assert(qi_flush(crafted.queue) == 0 && depth_of(&crafted) == 17);
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* A publish that the segment has already: it is one message, and the segment's bytes are those that
 * count. */
static void test_a_message_in_journal_and_segment_is_one(void) {
    struct crafted crafted = crafted_new();
    let_go(&crafted);
    const char *name = load_journal(&crafted);
    uint8_t record[QI_RECORD_ID + QI_PUB_FIELDS] = {0};
    qi_put_record_id(record, QI_PUB_PERSISTENT, 3);
    add_frame(end_of_frames(QI_JOURNAL_START), QI_FRAME_RECORDS, record, sizeof record);
    with_file(&crafted, name, true);
    open_it(&crafted);
    qi_message message;
    uint8_t payload[100];
    assert(qi_browse(crafted.queue, 3, false, &message, payload, sizeof payload) == 10);
    uint64_t from = 0, seen = 0;
    while (qi_browse(crafted.queue, from, false, &message, payload, sizeof payload) >= 0) {
        from = message.req_id + 1;
        seen++;
    }
    assert(seen == 25 && depth_of(&crafted) == 25);
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* Behind damage frames are searched for, and a search that has no effort left ends the walk. */
static void test_a_walk_over_damage_ends_with_its_effort(void) {
    struct crafted crafted = crafted_new();
    struct qi_journal *journal = qi_current(crafted.queue);
    struct qi_scan scan;
    struct qi_frame frame;
    uint64_t offset = QI_JOURNAL_START;
    qi_journal_scan(journal, UINT64_MAX, &scan);
    assert(qi_journal_next(journal, &scan, &offset, &frame) && frame.type == QI_FRAME_MANIFEST);
    uint64_t first = offset;
    for (int effort = 1; effort >= 0; effort--) {
        journal->tape.memory[first + 4] ^= 1; /* the second frame's checksum */
        scan.damaged = 1;
        scan.effort = effort ? QI_FRAME_EFFORT(journal->tape.allocated) : 0;
        offset = first;
        assert(qi_journal_next(journal, &scan, &offset, &frame) == effort);
        journal->tape.memory[first + 4] ^= 1;
    }
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* Whoever asked before the failure, and comes with a frame behind it, is refused: the journal is as
 * it was, in the file, too. */
static void test_a_failed_store_gets_no_frame(void) {
    struct crafted crafted = crafted_new();
    struct qi_journal *journal = qi_current(crafted.queue);
    uint8_t *at;
    const uint8_t nothing[24] = {0};
    assert(qi_journal_room(journal, 16, false, &at) == 0);
    uint64_t tail = journal->tail;
    memset(at, 7, 16);
    qi_store_fail(crafted.store, qi_fail(QI_E_IO, "on purpose"));
    assert(qi_journal_append(journal, QI_FRAME_RECORDS, 16) == -QI_STORE_HAS_FAILED);
    assert(journal->tail == tail && memcmp(at - 8, nothing, sizeof nothing) == 0);
    assert(qi_append_failed(crafted.queue, -QI_STORE_HAS_FAILED) == QI_E_FAILED);
    assert(qi_fail_disk(-ECANCELED, "cannot read", "a file") ==
           QI_E_IO); /* the file system's own */
    assert(strcmp(crafted.store->why_failed, "on purpose") == 0);
    assert(qi_append_session(crafted.queue) == -QI_STORE_HAS_FAILED && journal->tail == tail);
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* ---- two journals ---- */

static const char *other_of(const char *name) {
    return strcmp(name, "journal.jif") == 0 ? "journal.alt" : "journal.jif";
}

static void set_epoch(uint64_t epoch) {
    for (uint64_t copy = 0; copy < 2; copy++) {
        uint8_t *header = bytes + copy * QI_JOURNAL_HEADER_COPY;
        qi_put64(header + QI_JH_EPOCH, epoch);
        qi_put32(header + QI_JH_CRC, qi_crc32c(0, header, QI_JH_CRC));
    }
}

static void test_a_damaged_header_of_the_journal_before_is_told_if_it_is_needed(void) {
    struct crafted crafted = crafted_pair();
    const char *name = other_of(load_journal(&crafted));
    with_file(&crafted, name, false);
    bytes[QI_JH_EPOCH] ^= 1;
    with_file(&crafted, name, true);
    open_it(&crafted);
    assert(was_told(&crafted, "one of two header copies") && depth_of(&crafted) == 29);
    let_go(&crafted);
    qi_sim_free(crafted.sim);
}

/* The current journal has no MANIFEST, and no MARK that would call that damage. The one before may
 * be the truth only if it is the one before, and has one. Else the segments are all that is
 * left. */
static void test_a_journal_without_a_manifest_goes_back_only_to_the_one_before(void) {
    for (int way = 0; way < 3; way++) {
        struct crafted crafted = crafted_pair();
        const char *name = load_journal(&crafted);
        memset(bytes + QI_JOURNAL_START, 0, size - QI_JOURNAL_START);
        if (way == 1)
            set_epoch(qi_get64(bytes + QI_JH_EPOCH) + 2);
        with_file(&crafted, name, true);
        with_file(&crafted, other_of(name), false);
        if (way == 2)
            memset(bytes + QI_JOURNAL_START, 0, size - QI_JOURNAL_START);
        with_file(&crafted, other_of(name), true);
        open_it(&crafted);
        assert(was_told(&crafted, "MANIFEST is damaged") == (way > 0));
        assert(depth_of(&crafted) == (way ? 20 : 25));
        let_go(&crafted);
        qi_sim_free(crafted.sim);
    }
}

/* The end of the journal before is gone and nobody ever confirmed it: what came later is cut, too,
 * and a new MANIFEST says where it ends now, so that the next open finds nothing missing. Any call
 * may fail on the way. */
static void test_a_journal_before_that_lost_its_end_is_cut_for_good(void) {
    bool failed = true;
    for (uint64_t call = 0; call == 0 || failed; call++) {
        struct crafted crafted = crafted_new();
        publish_many(&crafted, 1);
        uint64_t end = qi_current(crafted.queue)->tail;
        publish_many(&crafted, 1);
        qi_lock(crafted.store);
        assert(qi_flush_begin(crafted.queue, 0, 0) == 0);
        qi_unlock(crafted.store);
        publish_many(&crafted, 3);
        let_go(&crafted);
        const char *name = other_of(load_journal(&crafted));
        with_file(&crafted, name, false);
        bytes[end] ^= 1;
        with_file(&crafted, name, true);
        qi_sim_fault(crafted.sim, call, call ? QI_SIM_EIO : 0, false);
        crafted.queue = NULL;
        qi_options options = usual();
        options.max_journal_entries = 1 << 20;
        int error = qi_store_open_sim(crafted.sim, &options, &crafted.store);
        if (!error) {
            error = qi_queue_open(crafted.store, "a", 1, A, true, &crafted.queue);
            let_go(&crafted);
        }
        failed = error != 0;
        qi_sim_fault(crafted.sim, 0, 0, false);
        for (int again = 0; again < 2; again++) {
            open_it(&crafted);
            assert(depth_of(&crafted) == 26);
            assert(!was_told(&crafted, "durable bytes at its end are gone"));
            let_go(&crafted);
        }
        qi_sim_free(crafted.sim);
    }
}

int main(void) {
    test_the_new_journal_tells_what_the_old_one_lost();
    test_what_was_durable_before_a_rotation_is_known_behind_it();
    test_a_header_that_could_not_be_mended_is_seen_again();
    test_only_what_a_mark_vouches_for_is_not_read_again();
    test_a_group_commit_ends_with_a_mark();
    test_lanes_that_cannot_be_are_left_out();
    test_a_stale_journal_that_could_not_be_emptied_stops_the_store();
    test_a_manifest_with_segments_that_cannot_be_is_refused();
    test_a_manifest_that_cannot_be_read_is_none();
    test_a_close_that_cannot_be_read_is_no_clean_end();
    test_frames_too_short_for_their_kind_change_nothing();
    test_a_manifest_with_more_transients_than_messages_counts_none_below_zero();
    test_acks_that_come_twice_count_once();
    test_a_message_in_journal_and_segment_is_one();
    test_a_walk_over_damage_ends_with_its_effort();
    test_a_failed_store_gets_no_frame();
    test_a_damaged_header_of_the_journal_before_is_told_if_it_is_needed();
    test_a_journal_without_a_manifest_goes_back_only_to_the_one_before();
    test_a_journal_before_that_lost_its_end_is_cut_for_good();
    printf("journals: all passed\n");
    return 0;
}
