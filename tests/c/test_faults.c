/* test_faults.c - stories in which each call of the disk and each allocation fails. Usage:
 * test_faults <directory> [part of a story's name] */
#include "faults.h"

/* ---- a queue's days ---- */

static void live(struct run *run) {
    open_all(run);
    publish(run, 0, 20, 0);
    publish(run, 0, 300, QI_TRANSIENT);
    publish(run, 0, 9000, 0); /* a message file of its own */
    publish_batch(run, 1, 20, 40, false);
    publish_batch(run, 0, 3, 10, true);
    fan_out(run, 500);
    sync_queue(run, 0);
    consume(run, 1, 8, 0x0f);
    consume(run, 1, 8, 0xaa);
    qi_sim_advance(run->sim, 2000000);
    get_and_ack(run, 0);
    browse(run, 0, true);
    flush(run, 1);
    tick(run, false);
    look_around(run);
    purge(run, 2);
    tick(run, true);
    tick(run, true); /* all are idle now */
    publish(run, 0, 50, 0);
    consume(run, 0, 4, 0x5);
    browse(run, 1, false);
    delete_queue(run, 1);
    compact(run);
    check(run);
    close_store(run);
}

static void live_again(struct run *run) {
    open_all(run);
    publish_batch(run, 0, 10, 30, false);
    consume(run, 0, 16, 0xfff);
    fan_out(run, 2000);
    compact(run);
    close_store(run);
}

/* Old segments are not in memory when a recovery meets what the journal says about them: two
 * deliveries of one message, a purge that leaves out what was with a consumer, and a transient
 * before the last message. */
static void die_with_news_of_old_segments(struct run *run) {
    open_all(run);
    publish_batch(run, 0, 20, 20, false);
    publish_batch(run, 1, 12, 20, false);
    publish_batch(run, 2, 3, 20, false);
    publish(run, 2, 20, QI_TRANSIENT);
    for (uint32_t i = 0; i < QUEUES; i++)
        flush(run, i);
    consume(run, 0, 3, 0);
    consume(run, 0, 3, 0);
    take_around(run, 1);
    purge(run, 1);
    publish(run, 2, 20, 0);
    for (uint32_t i = 0; i < QUEUES; i++)
        sync_queue(run, i);
}

/* A kill between a rotation and its flush: both journals are needed, for segments that are not in
 * memory yet. */
static void die_before_a_flush(struct run *run) {
    open_all(run);
    publish_batch(run, 0, 20, 20, false);
    publish(run, 0, 700, 0);
    publish(run, 0, 20, QI_TRANSIENT);
    flush(run, 0);
    tick(run, true);
    tick(run, true);
    let_go(run);
    open_store(run);
    open_queue(run, 0, false);
    consume(run, 0, 10, 0x3ff);
    publish_batch(run, 0, 20, 20, false); /* a flush is due; nobody runs it */
    publish(run, 0, 20, QI_TRANSIENT);
    publish(run, 0, 800, 0);
    consume(run, 0, 3, 0x5);
    sync_queue(run, 0);
}

/* The same, the bodies of the newer journal not confirmed. */
static void die_before_a_flush_and_a_sync(struct run *run) {
    open_store(run);
    open_queue(run, 0, true);
    publish_batch(run, 0, 10, 20, false);
    sync_queue(run, 0);
    for (int i = 0; i < 16; i++) /* a flush is due; nobody runs it */
        publish(run, 0, 300, 0);
}

/* A segment for each of many priorities, and all of it in the journal. */
static void die_with_many_lanes(struct run *run) {
    open_store(run);
    open_queue(run, 0, true);
    for (uint32_t i = 0; i < 20; i++)
        publish_later(run, 0, 20, i, 0);
    sync_queue(run, 0);
}

static void go_on_with_all(struct run *run) {
    open_store(run);
    for (uint32_t i = 0; i < QUEUES; i++) {
        open_queue(run, i, false);
        browse(run, i, false);
    }
    close_store(run);
}

static void go_on(struct run *run) {
    open_store(run);
    open_queue(run, 0, false);
    browse(run, 0, false);
    consume(run, 0, 5, 0x1b);
    check(run);
    compact(run);
    close_store(run);
}

/* Segments that live and die: what two flushes have finished with is more than the bound. */
static void keep_history(struct run *run) {
    open_store(run);
    open_queue(run, 0, true);
    for (int i = 0; i < 3; i++) {
        publish_batch(run, 0, 12, 30, false);
        consume(run, 0, 10, 0x3ff);
        flush(run, 0);
    }
    close_store(run);
}

static void keep_more_history(struct run *run) {
    open_store(run);
    open_queue(run, 0, false);
    flush(run, 0);
}

/* What was not confirmed, a disk that fails may take: nothing is said to be durable here. */
static void look_at_one(struct run *run) {
    open_store(run);
    open_queue(run, 0, false);
    browse(run, 0, false);
}

/* ---- an index alone ---- */

static void keep_index(struct run *run) {
    qi_message messages[40];
    open_store(run);
    open_queue(run, 0, true);
    int64_t first = index_publish(run, 0, 20, 0);
    index_ack(run, 0, 0, first, 10, false);
    flush(run, 0);
    int64_t second = index_publish(run, 0, 10, QI_TRANSIENT);
    index_ack(run, 0, 20, second, 3, false);
    index_ack(run, 0, 12, first < 0 ? first : first + 12, 2, true);
    sync_queue(run, 0);
    tick(run, true);
    tick(run, true);
    if (run->queues[0])
        went(run, "read", qi_index_read(run->queues[0], 0, 100, messages, 40));
    check(run);
    index_ack(run, 0, 14, first < 0 ? first : first + 14, 4, false);
    close_store(run);
}

static void keep_index_again(struct run *run) {
    open_store(run);
    open_queue(run, 0, false);
    index_ack(run, 0, 18, 18, 2, true);
    int64_t first = index_publish(run, 0, 30, 0);
    index_ack(run, 0, run->count - 30, first, 30, false);
    close_store(run);
}

/* ---- readers ---- */

static void fill_up(struct run *run) {
    open_all(run);
    for (int i = 0; i < 4; i++) {
        publish_batch(run, 0, 12, 30, false);
        publish(run, 0, 1500, 0);
        fan_out(run, 700);
        consume(run, 0, 9, 0x1ef);
        flush(run, 0);
    }
    publish_batch(run, 1, 5, 10, false);
    compact(run);
    sync_queue(run, 0);
}

static void read_all(struct run *run) {
    open_reader(run);
    look_around(run);
    for (uint32_t i = 0; i < QUEUES; i++) {
        open_queue(run, i, false);
        browse(run, i, true);
        browse(run, i, false);
    }
    check(run);
    close_store(run);
}

/* A reader beside a writer that takes away what it has seen. */
static void read_beside(struct run *run) {
    struct run reader = {.story = run->story, .kind = run->kind, .at = run->at};
    open_all(run);
    reader.sim = run->sim;
    open_reader(&reader);
    for (uint32_t i = 0; i < QUEUES; i++)
        open_queue(&reader, i, false);
    look_around(&reader);
    consume(run, 0, 20, 0xfffff);
    consume(run, 2, 20, 0xfffff);
    flush(run, 0);
    flush(run, 2);
    tick(run, false);
    compact(run);
    for (uint32_t i = 0; i < QUEUES; i++)
        browse(&reader, i, false);
    purge(run, 1);
    flush(run, 1);
    check(&reader);
    look_around(&reader);
    let_go(&reader);
    close_store(run);
}

/* ---- damaged disks ---- */

/* Opens what is there, for write; whatever fails, the same is there afterwards. */
static void look_again(struct run *run) {
    open_store(run);
    look_around(run);
    for (uint32_t i = 0; i < QUEUES; i++) {
        open_queue(run, i, false);
        browse(run, i, false);
    }
    compact(run);
    check(run);
    close_store(run);
}

static void fill_up_durably(struct run *run) {
    fill_up(run);
    for (uint32_t i = 0; i < QUEUES; i++)
        sync_queue(run, i);
}

/* Each MANIFEST in a journal of the first queue. */
static void spoil_manifests(struct run *run, const char *name) {
    static uint8_t bytes[1 << 20];
    struct place place = place_of(run, directory_of(0));
    int file = place.ops->open(place.disk, place.dir, name, QI_OPEN_READ);
    int64_t size = place.ops->read(place.disk, file, bytes, sizeof bytes, 0);
    place.ops->close(place.disk, file);
    leave(&place);
    for (int64_t at = QI_JOURNAL_START; at + QI_FRAME_HEADER <= size && qi_get32(bytes + at);
         at += QI_FRAME_HEADER + (qi_get32(bytes + at) & QI_FRAME_LENGTH_MAX))
        if (qi_get32(bytes + at) >> 28 == QI_FRAME_MANIFEST)
            spoil(run, directory_of(0), name, at + QI_FRAME_HEADER, 8);
}

/* The queue has priorities, too: their lanes are found in the segments. */
static void lose_manifests(struct run *run) {
    fill_up_durably(run);
    publish_later(run, 0, 20, 3, 0);
    publish_later(run, 0, 20, 9, 0);
    flush(run, 0);
    publish(run, 0, 20, 0);
    sync_queue(run, 0);
    publish(run, 0, 20, 0);
    sync_queue(run, 0); /* behind a MARK: they were confirmed */
    let_go(run);
    spoil_manifests(run, "journal.jif");
    spoil_manifests(run, "journal.alt");
}

static void lose_headers(struct run *run) {
    fill_up_durably(run);
    let_go(run);
    spoil(run, directory_of(0), "journal.jif", 0, 64);
    spoil(run, directory_of(0), "journal.alt", 4096, 64);
    spoil(run, directory_of(2), "queue.meta", 20, 1);
}

static void for_each_segment(struct run *run, void (*harm)(struct run *, const char *, int)) {
    for (int i = 0; i < 20; i++)
        for (int alt = 0; alt < 2; alt++) {
            char name[16];
            snprintf(name, sizeof name, "%d.%s", i, alt ? "alt" : "idx");
            harm(run, name, i);
        }
}

static void harm_segment(struct run *run, const char *name, int number) {
    switch (number % 5) {
    case 0:
        cut(run, directory_of(0), name, UINT64_MAX);
        break;
    case 1:
        cut(run, directory_of(0), name, 100);
        break;
    case 2:
        spoil(run, directory_of(0), name, 10, 1);
        break;
    case 3:
        spoil(run, directory_of(0), name, -20, 2); /* the summary */
        break;
    default:
        spoil(run, directory_of(0), name, 90, 1);
    }
}

static void harm_segments(struct run *run) {
    fill_up_durably(run);
    consume(run, 0, 20, 0x24924); /* so a recovery has news of them */
    sync_queue(run, 0);
    let_go(run);
    for_each_segment(run, harm_segment);
}

static void harm_messages(struct run *run) {
    fill_up_durably(run);
    let_go(run);
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d.qms", i);
        if (i % 4 == 0)
            spoil(run, "messages", name, 100, 1);
        else if (i % 4 == 1)
            spoil(run, "messages", name, -2, 1); /* of a compacted one: its births */
        else if (i % 4 == 2)
            spoil(run, "messages", name, 20, 1);
    }
}

static void take_what_is_there(struct run *run) {
    open_store(run);
    for (uint32_t i = 0; i < QUEUES; i++) {
        open_queue(run, i, false);
        take_around(run, i);
    }
    close_store(run);
}

static const struct story stories[] = {
    {.name = "a queue's days", .play = live},
    {.name = "more days", .prepare = live, .play = live_again},
    {.name = "two journals", .prepare = die_before_a_flush, .play = go_on},
    {.name = "news of old segments",
     .prepare = die_with_news_of_old_segments,
     .play = go_on_with_all},
    {.name = "two journals, no sync",
     .prepare = die_before_a_flush_and_a_sync,
     .play = look_at_one},
    {.name = "many lanes", .prepare = die_with_many_lanes, .play = go_on},
    {.name = "an index", .play = keep_index, .index_only = true},
    {.name = "an index again", .prepare = keep_index, .play = keep_index_again, .index_only = true},
    {.name = "a reader", .prepare = fill_up, .play = read_all, .only_looks = true},
    {.name = "a disk again", .prepare = fill_up_durably, .play = look_again, .only_looks = true},
    {.name = "history", .play = keep_history, .keep_history = 30000},
    {.name = "history again", .prepare = die_before_a_flush, .play = go_on, .keep_history = 50000},
    {.name = "no manifests",
     .prepare = lose_manifests,
     .play = look_again,
     .only_looks = true,
     .damaged = true},
    {.name = "no headers",
     .prepare = lose_headers,
     .play = look_again,
     .only_looks = true,
     .damaged = true},
    {.name = "harmed segments",
     .prepare = harm_segments,
     .play = look_again,
     .only_looks = true,
     .damaged = true},
    {.name = "harmed segments, a reader",
     .prepare = harm_segments,
     .play = read_all,
     .only_looks = true,
     .damaged = true},
    {.name = "harmed messages",
     .prepare = harm_messages,
     .play = look_again,
     .only_looks = true,
     .damaged = true},
    {.name = "harmed messages, taken",
     .prepare = harm_messages,
     .play = take_what_is_there,
     .only_looks = true,
     .damaged = true},
    {.name = "a reader beside a writer", .prepare = fill_up, .play = read_beside},
};

int main(int count, char **arguments) {
    play_stories(stories, sizeof stories / sizeof *stories, count < 3 ? "" : arguments[2]);
    printf("faults: all passed\n");
    return 0;
}
