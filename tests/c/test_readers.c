/* test_readers.c - a reader beside a writer that never rests, and directories that change between
 * two looks. Both have one simulated disk; a call of it is where the other side gets its turn.
 * Usage: test_readers <directory>
 */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bodies/bodies_private.h"
#include "durable/durable.h"
#include "index/index.h"
#include "proof/sim/disk_sim.h"
#include "usual.h"

/* ---- the other side's turn ---- */

static struct qi_disk_ops real, ours;
static void (*turn)(const char *name);  /* before a file is opened; NULL: nothing */
static void (*read_turn)(uint64_t end); /* when bytes up to there were read */
static bool in_journals;                /* the file that was opened last is one */
static const char *gone;                /* a name that is not there now, */
static int gone_times, gone_error;      /* so often, and what is said instead */
static uint64_t more_bytes;             /* that a file is said to have */
static uint64_t changed = UINT64_MAX;   /* when folders are said to have changed; not known */

static uint64_t changed_when(struct qi_disk *disk, int dir) {
    (void)disk;
    (void)dir;
    return changed;
}

static int open_with_turn(struct qi_disk *disk, int dir, const char *name, enum qi_open_mode mode) {
    void (*now)(const char *) = turn;
    turn = NULL; /* who has the turn has no turns in it */
    if (now)
        now(name);
    turn = now;
    in_journals = strncmp(name, "journal.", 8) == 0;
    if (gone && strcmp(name, gone) == 0 && gone_times-- > 0)
        return gone_error;
    return real.open(disk, dir, name, mode);
}

static int64_t read_with_turn(struct qi_disk *disk, int file, void *bytes, uint64_t size,
                              uint64_t offset) {
    int64_t got = real.read(disk, file, bytes, size, offset);
    void (*now)(uint64_t) = read_turn;
    read_turn = NULL;
    if (now)
        now(offset + size);
    read_turn = now;
    return got;
}

static int size_with_more(struct qi_disk *disk, int file, uint64_t *size) {
    int error = real.size(disk, file, size);
    *size += more_bytes;
    return error;
}

struct side {
    qi_store *store;
    qi_queue *queue;
};

static qi_sim *sim;
static struct side writer, reader;

static int try_open_side(struct side *side, bool read_only) {
    qi_options options = usual();
    options.max_journal_entries = 1 << 16; /* nothing is flushed before a test says so */
    options.max_journal_bytes = 8 << 20;
    options.read_only = read_only;
    options.create = !read_only;
    int error = qi_store_open_sim(sim, &options, &side->store);
    return error ? error : qi_queue_open(side->store, "a", 1, A, !read_only, &side->queue);
}

static void open_side(struct side *side, bool read_only) {
    int error = try_open_side(side, read_only);
    if (error)
        fprintf(stderr, "open: %s\n", qi_error_text());
    assert(error == 0);
}

static void begin(void) {
    sim = qi_sim_new(1, NULL);
    real = *sim->disk.ops;
    ours = real;
    ours.open = open_with_turn;
    ours.read = read_with_turn;
    ours.size = size_with_more;
    ours.changed_us = changed_when;
    sim->disk.ops = &ours;
    open_side(&writer, false);
}

static void end(void) {
    turn = NULL;
    read_turn = NULL;
    gone = NULL;
    if (reader.store)
        qi_store_free(reader.store);
    qi_store_free(writer.store);
    reader = writer = (struct side){0};
    qi_sim_free(sim);
}

static void publish_many(uint32_t count, uint32_t size) {
    static uint8_t body[4000];
    for (uint32_t i = 0; i < count; i++) {
        memset(body, (int)i, size);
        assert(qi_publish(writer.queue, body, size) >= 0);
    }
}

/* The bodies may be lost: then a get sets the message aside, and an ack gives it up. */
static void get_and_ack(uint64_t req_id) {
    static uint8_t payload[4000];
    qi_reader taker = {.queue = writer.queue, .payload = payload, .room = sizeof payload};
    uint64_t got;
    do
        got = qi_get(&taker) < 0 ? (uint64_t)qi_error_req_id() : taker.message.req_id;
    while (got < req_id);
    assert(got == req_id && qi_ack(writer.queue, req_id, 0) == 0);
}

static int64_t browse(const struct side *side, uint64_t req_id) {
    static uint8_t payload[4000];
    qi_message message;
    return qi_browse(side->queue, req_id, false, &message, payload, sizeof payload);
}

/* How often the findings say these words. */
static int told(const struct side *side, const char *words) {
    bool damage;
    const char *where, *text;
    uint64_t offset;
    int count = 0;
    for (uint32_t i = 0; qi_store_finding(side->store, i, &damage, &where, &offset, &text) == 0;
         i++)
        count += strstr(text, words) != NULL;
    return count;
}

/* A file of the queue's folder, or of messages, behind the engine's back: cut to a size, or a byte
 * changed. */
static void harm(bool of_queue, const char *name, uint64_t at, bool cut) {
    struct qi_disk *disk = &sim->disk;
    int root = real.open_root(disk, "/", false), parent = -1;
    int dir = real.open_dir(disk, root, of_queue ? "queues" : "messages");
    if (of_queue) {
        parent = dir;
        dir = real.open_dir(disk, parent, A);
    }
    int file = real.open(disk, dir, name, QI_OPEN_WRITE);
    uint8_t byte;
    assert(file >= 0);
    if (cut) {
        assert(real.truncate(disk, file, at) == 0);
    } else {
        assert(real.read(disk, file, &byte, 1, at) == 1);
        byte ^= 1;
        assert(real.write(disk, file, &byte, 1, at) == 0);
    }
    real.close(disk, file);
    real.close(disk, dir);
    if (parent >= 0)
        real.close(disk, parent);
    real.close(disk, root);
}

/* ---- what is old ---- */

static void test_a_journal_that_came_since_makes_a_view_old(void) {
    begin();
    publish_many(3, 10);
    open_side(&reader, true);
    assert(!qi_view_is_old(reader.queue));
    qi_lock(writer.store);
    assert(qi_flush_begin(writer.queue, 0, 0) == 0); /* the other file comes, this one stays */
    qi_unlock(writer.store);
    assert(qi_view_is_old(reader.queue));
    end();
}

/* What a reading found is told once, however often the queue is read again; what is new is told
 * too. */
static void test_damage_is_told_once_over_many_readings(void) {
    begin();
    publish_many(30, 10);
    assert(qi_flush(writer.queue) == 0);
    harm(true, "0.idx", 100, true);
    harm(true, "1.idx", 100, true);
    harm(true, "3.idx", 120, true);
    open_side(&reader, true);
    assert(told(&reader, "durable bytes are there") == 3);
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            harm(true, "2.idx", 100, true);
        publish_many(1, 10);
        qi_lock(reader.store);
        assert(qi_reread(reader.queue) == 0);
        qi_unlock(reader.store);
        assert(told(&reader, "durable bytes are there") == (round ? 4 : 3));
        assert(told(&reader, "durable bytes at its end are gone") == (round ? 4 : 3));
    }
    end();
}

static const char *turn_at; /* the file that is about to be opened */
static int turns_left;

static void publish_and_rotate(const char *name) {
    if (strcmp(name, turn_at) != 0 || turns_left == 0)
        return;
    turns_left--;
    publish_many(1, 10);
    qi_lock(writer.store);
    assert(qi_flush_begin(writer.queue, 0, 0) == 0);
    qi_unlock(writer.store);
}

/* One journal was read when the writer appends to it and begins the other one. */
static void test_the_two_journals_are_of_one_moment(void) {
    for (int flushes = 0; flushes < 4; flushes++) {
        begin();
        for (int i = 0; i < flushes / 2; i++) { /* which of the two is the newer one */
            publish_many(1, 10);
            assert(qi_flush(writer.queue) == 0);
        }
        publish_many(3, 10);
        turn_at = flushes % 2 ? "journal.jif" : "journal.alt";
        turns_left = 1;
        turn = publish_and_rotate;
        open_side(&reader, true);
        assert(turns_left == 0 && browse(&reader, (uint64_t)(flushes / 2 + 3)) == 10);
        end();
    }
}

/* The first to read more than headers is a reader with its newer journal. */
static void rotate_behind_a_journal(uint64_t end) {
    if (!in_journals || end <= QI_JOURNAL_START || turns_left == 0)
        return;
    turns_left--;
    for (uint64_t id = 0; id < 4; id++)
        get_and_ack(id);
    qi_lock(writer.store);
    assert(qi_flush_wait(writer.queue) == 0 && qi_flush_begin(writer.queue, 0, 0) == 0);
    qi_unlock(writer.store);
}

/* The newer one was read without its last records when it becomes the older one, in whose place
 * comes one that is newer still. */
static void test_a_journal_that_came_in_the_place_of_one_is_no_older_one(void) {
    for (int flushes = 1; flushes < 3; flushes++) { /* in both files */
        begin();
        for (int i = 0; i < flushes; i++) {
            publish_many(3, 10);
            assert(qi_flush(writer.queue) == 0);
        }
        publish_many(6, 10);
        qi_lock(writer.store);
        assert(qi_flush_begin(writer.queue, 0, 0) == 0); /* so that the older one has a header */
        qi_unlock(writer.store);
        turns_left = 1;
        read_turn = rotate_behind_a_journal;
        open_side(&reader, true);
        assert(turns_left == 0);
        assert(told(&reader, "") == 0);
        assert(browse(&reader, 0) == 10 && browse(&reader, 3) == 10);
        qi_message message;
        assert(qi_browse(reader.queue, 0, false, &message, NULL, 0) == QI_E_ROOM &&
               message.req_id == 4);
        end();
    }
}

static void compact_meanwhile(const char *name) {
    if (strcmp(name, turn_at) != 0 || turns_left == 0)
        return;
    turns_left--;
    for (uint64_t id = 0; id < 6; id++)
        get_and_ack(id);
    assert(qi_flush(writer.queue) == 0);
    int64_t freed = qi_store_compact(writer.store, 10);
    assert(freed > 0);
}

/* A body moves from a file whose name was listed to one whose name was not. */
static void test_a_body_that_moves_while_files_are_listed_is_found(void) {
    begin();
    publish_many(14, 500); /* seven in each file */
    assert(qi_queue_sync(writer.queue) == 0);
    changed = 1000; /* nothing tells that the list is old */
    turn_at = "0.qms";
    turns_left = 1;
    turn = compact_meanwhile;
    open_side(&reader, true);
    assert(turns_left == 0 && browse(&reader, 6) == 500);
    changed = UINT64_MAX;
    end();
}

/* ---- a writer that never rests ---- */

static int turns, ack_at;
static uint64_t acked_id;

static void publish_in_between(const char *name) {
    if (strncmp(name, "journal.", 8) != 0)
        return;
    if (++turns == ack_at)
        get_and_ack(acked_id);
    publish_many(1, 10);
}

static void lose_bodies(uint32_t count) {
    publish_many(count, 500);
    assert(qi_flush(writer.queue) == 0);
    char name[16];
    for (uint32_t i = 0; i < count; i++) { /* seven in each file of 4096 bytes */
        snprintf(name, sizeof name, "%u.qms", i / 7);
        harm(false, name, 64 + i % 7 * (500 + 25) + 30, false);
    }
    open_side(&reader, true);
}

/* In its turn `at` the writer acks one message (at < 0: never). */
static void begin_beside_a_writer(uint32_t lost_bodies, int at, uint64_t id) {
    begin();
    lose_bodies(lost_bodies);
    turn = publish_in_between;
    turns = 0;
    ack_at = at;
    acked_id = id;
}

/* A reader that misses a body looks again as long as the journals move, but not for ever. */
static void test_a_lost_body_is_told_also_if_the_writer_never_rests(void) {
    begin_beside_a_writer(10, -1, 0);
    assert(browse(&reader, 3) == QI_E_CORRUPT && qi_error_req_id() == 3);
    assert(browse(&reader, 4) == QI_E_CORRUPT && qi_error_req_id() == 4);
    turn = NULL;
    end();
}

/* The first was acked while it was looked for: then the next one is, as often. */
static void test_a_reader_looks_for_the_next_if_the_first_is_gone(void) {
    begin_beside_a_writer(10, 1, 3);
    assert(browse(&reader, 3) == QI_E_CORRUPT && qi_error_req_id() == 4 && turns > ack_at);
    turn = NULL;
    end();
}

/* A check too; and what was acked meanwhile is not missed. More are missed than a first piece of
 * memory holds. */
static void test_a_check_beside_a_writer_misses_what_is_alive(void) {
    begin_beside_a_writer(70, 5, 4);
    assert(qi_store_check(reader.store) >= 0);
    turn = NULL;
    assert(turns > ack_at && told(&reader, "message 3:") == 1);
    assert(told(&reader, "message 69:") == 1 && told(&reader, "message 4:") == 0);
    end();
}

/* ---- between two looks ---- */

static bool is_caught_up; /* the file goes only when the queue was read to its end, */
static bool was_read;     /* for which every second open is */

/* The reader is about to open a segment: all in it is acked, and its file goes. */
static void its_messages_go(const char *name) {
    static uint8_t payload[100];
    qi_reader taker = {.queue = writer.queue, .payload = payload, .room = sizeof payload};
    if (!strstr(name, ".idx") || turns_left == 0)
        return;
    was_read = !was_read;
    if (is_caught_up && !was_read)
        return;
    turns_left--;
    publish_many(8, 10);
    for (int i = 0; i < 8; i++)
        assert(qi_get(&taker) == 10 && qi_ack(writer.queue, taker.message.req_id, 0) == 0);
    assert(qi_flush(writer.queue) == 0);
}

static void begin_to_run_away(int turns, bool caught_up) {
    begin();
    is_caught_up = caught_up;
    was_read = false;
    publish_many(8, 10);
    assert(qi_flush(writer.queue) == 0);
    open_side(&reader, true);
    turns_left = turns;
    turn = its_messages_go;
}

static void test_a_reader_looks_again_until_it_has_caught_up_with_the_writer(void) {
    for (int caught_up = 0; caught_up < 2; caught_up++) {
        begin_to_run_away(10, caught_up);
        assert(browse(&reader, 0) == 10 && turns_left == 0);
        end();
        begin_to_run_away(100000, caught_up);
        assert(browse(&reader, 0) == QI_E_CORRUPT && strstr(qi_error_text(), "changes faster"));
        assert(qi_error_req_id() == -1 && told(&reader, "") == 0 && turns_left > 0);
        end();
    }
}

static void test_a_check_that_the_writer_outruns_says_so(void) {
    static const char *const words[] = {"changes faster than it can be read",
                                        "changes faster than it can be checked"};
    for (int caught_up = 0; caught_up < 2; caught_up++) {
        begin_to_run_away(10, caught_up);
        assert(qi_store_check(reader.store) == 0 && turns_left == 0);
        end();
        begin_to_run_away(100000, caught_up);
        assert(qi_store_check(reader.store) == 1 && turns_left > 0);
        assert(told(&reader, words[caught_up]) == 1);
        end();
    }
}

static void test_a_file_that_goes_between_list_and_open_is_no_error(void) {
    begin();
    publish_many(10, 500);
    assert(qi_queue_sync(writer.queue) == 0);
    gone = "0.qms";
    gone_error = -ENOENT;
    gone_times = 1;
    open_side(&reader, true);
    assert(told(&reader, "") == 0);
    end();
}

/* A file that was moved, with a link in its place, is not lost: the store is refused until it is
 * back. */
static void test_a_link_in_the_place_of_a_file_is_refused(void) {
    begin();
    publish_many(10, 500);
    assert(qi_queue_sync(writer.queue) == 0);
    gone = "0.qms";
    gone_error = -ELOOP;
    gone_times = 1000;
    assert(try_open_side(&reader, true) < 0);
    assert(strstr(qi_error_text(), "0.qms"));
    reader.store = NULL;
    end();
}

/* A name of ours that is a folder or a device is left alone; the messages that should be in it are
 * lost. */
static void test_what_is_no_file_is_not_read(void) {
    static const int errors[] = {-EINVAL, -EISDIR, -ENXIO};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        begin();
        publish_many(10, 500);
        assert(qi_queue_sync(writer.queue) == 0);
        gone = "0.qms";
        gone_error = errors[i];
        gone_times = 1000;
        open_side(&reader, true);
        assert(browse(&reader, 0) < 0 && browse(&reader, 9) == 500);
        end();
    }
}

/* A writer made the store between two looks of a reader. */
static void test_a_store_that_comes_between_two_looks_is_opened(void) {
    begin();
    publish_many(3, 10);
    gone = "store.meta";
    gone_error = -ENOENT;
    gone_times = 1;
    open_side(&reader, true);
    assert(browse(&reader, 2) == 10);
    qi_store_free(reader.store);
    gone_times = 2;
    assert(try_open_side(&reader, true) == QI_E_CORRUPT);
    reader.store = NULL;
    end();
}

/* The names are listed again if the folder changed since, and not else. */
static void test_a_folder_is_listed_again_when_it_changed(void) {
    begin();
    publish_many(7, 500);
    changed = 1000;
    open_side(&reader, true);
    struct qi_messages *seen = &reader.store->messages;
    uint32_t count = seen->files_count;
    publish_many(8, 500);
    assert(qi_messages_rescan(seen) == QI_E_CORRUPT && seen->files_count == count);
    changed = 2000;
    assert(qi_messages_rescan(seen) == 0 && seen->files_count > count);
    changed = UINT64_MAX;
    end();
}

/* ---- windows ---- */

/* Whether it is read in order, or kept for what is delayed. */
static void test_a_segment_shorter_than_it_says_is_damage(void) {
    for (int delayed = 0; delayed < 2; delayed++) {
        begin();
        uint64_t due_us = delayed ? qi_store_now_us(writer.store) + 60 * UINT64_C(1000000) : 0,
                 first = 0;
        char name[32];
        for (uint64_t i = 0; i < 8; i++) {
            int64_t id = qi_publish_with(writer.queue, NULL, 0, "0123456789", 10, 0, 0, due_us);
            first = i ? first : (uint64_t)id;
            assert(id == (int64_t)(first + i));
        }
        assert(qi_flush(writer.queue) == 0);
        open_side(&reader, true);
        assert(browse(&reader, first + 7) == 10);
        struct qi_segment *segment = qi_segment_find(&reader.queue->segments, first / 8);
        qi_segment_name(segment->number, false, name);
        harm(true, name, 90, true); /* since, and the file still says that it is long */
        qi_segment_forget_file(reader.queue, segment);
        more_bytes = 4096;
        assert(browse(&reader, first + 7) == QI_E_CORRUPT);
        more_bytes = 0;
        end();
    }
}

int main(void) {
    test_a_journal_that_came_since_makes_a_view_old();
    test_damage_is_told_once_over_many_readings();
    test_the_two_journals_are_of_one_moment();
    test_a_journal_that_came_in_the_place_of_one_is_no_older_one();
    test_a_body_that_moves_while_files_are_listed_is_found();
    test_a_lost_body_is_told_also_if_the_writer_never_rests();
    test_a_reader_looks_for_the_next_if_the_first_is_gone();
    test_a_check_beside_a_writer_misses_what_is_alive();
    test_a_reader_looks_again_until_it_has_caught_up_with_the_writer();
    test_a_check_that_the_writer_outruns_says_so();
    test_a_file_that_goes_between_list_and_open_is_no_error();
    test_a_link_in_the_place_of_a_file_is_refused();
    test_what_is_no_file_is_not_read();
    test_a_store_that_comes_between_two_looks_is_opened();
    test_a_folder_is_listed_again_when_it_changed();
    test_a_segment_shorter_than_it_says_is_damage();
    printf("readers: all passed\n");
    return 0;
}
