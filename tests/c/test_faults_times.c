/* test_faults_times.c - stories of what has a time, a priority or a bound, in which each call of
 * the disk and each allocation fails. Usage: test_faults_times <directory> [part of a story's
 * name] */
#include "faults.h"
#include "store/store.h"

#define SECOND UINT64_C(1000000)
#define MINUTE (60 * SECOND)

static void wait_for(struct run *run, uint64_t us) {
    qi_sim_advance(run->sim, us);
}

/* ---- expiry ---- */

/* Messages that expire leave with an ack, before others that are delivered a second time. */
static void let_expire(struct run *run) {
    open_all(run);
    publish_batch(run, 0, 10, 20, true);
    publish_batch(run, 0, 10, 20, false);
    consume(run, 1, 8, 0);
    qi_sim_advance(run->sim, 2000000);
    browse(run, 0, true);
    get_and_ack(run, 0);
    consume(run, 0, 6, 0);
    consume(run, 0, 6, 0x3);
    flush(run, 0);
    publish_batch(run, 2, 10, 20, true);
    publish_batch(run, 2, 4, 20, false);
    flush(run, 2);
    qi_sim_advance(run->sim, 2000000);
    consume(run, 2, 8, 0x1);
    purge(run, 0);
    publish_batch(run, 1, 3, 20, false);
    publish_batch(run, 1, 3, 20, true);
    flush(run, 1);
    tick(run, true);
    tick(run, true);
    qi_sim_advance(run->sim, 2000000);
    get_newest_and_ack(run, 1);
    get_and_ack(run, 1);
    close_store(run);
}

/* Much of it stands in files that nobody has read since. */
static void leave_mortals(struct run *run) {
    open_all(run);
    for (uint32_t i = 0; i < QUEUES; i++) {
        publish_batch(run, i, 4, 20, false);
        publish_batch(run, i, 20, 20, true);
        publish(run, i, 700, QI_TRANSIENT);
        publish_batch(run, i, 6, 20, true);
        flush(run, i);
    }
    sync_queue(run, 2);
    if (run->store)
        qi_store_tick(run->store);
    close_store(run);
}

/* In one queue they are dropped, in another they are dead letters, in the third the worker does
 * it. */
static void expire_by_themselves(struct run *run) {
    open_all(run);
    wait_for(run, 2 * SECOND);
    borrow(run, 0, 2, false, 0);
    expire(run, 0);
    set_rules(run, 0, 0, true);
    expire(run, 1);
    redrive(run, 1);
    expire(run, 1);
    expire_due(run);
    expire(run, 0);
    browse(run, 2, false);
    expire_due(run);
    tick(run, true);
    tick(run, true);
    publish_batch(run, 2, 3, 20, true);
    wait_for(run, 2 * SECOND);
    expire_due(run);
    close_store(run);
}

/* ---- delays, priorities, bounds ---- */

/* Several priorities, messages of several minutes, some of them flushed, leases that end. */
static void delay(struct run *run) {
    open_all(run);
    set_rules(run, 0, 0, true);
    for (uint32_t i = 0; i < 12; i++) {
        publish_later(run, 0, 20 + 9 * i, i % 3, i % 2 ? SECOND : 0);
        publish_later(run, 1, 20, i % 3, (1 + i / 3) * MINUTE);
    }
    sync_queue(run, 0);
    wait_for(run, SECOND);
    borrow(run, 0, 5, false, 2 * SECOND);
    borrow(run, 0, 4, true, 0);
    consume(run, 0, 3, 0x1);
    flush(run, 1);
    wait_for(run, 3 * SECOND);
    look_around(run);
    change(run, 1, 4, false, 5 * SECOND);
    change(run, 1, 2, false, 0);
    change(run, 0, 2, true, 0);
    redrive(run, 0);
    get_and_ack(run, 0);
    borrow(run, 0, 3, true, 0);
    flush(run, 0);
    tick(run, true);
    tick(run, true);
    wait_for(run, 2 * MINUTE);
    consume(run, 1, 6, 0x15);
    browse(run, 1, true);
    compact(run);
    check(run);
    close_store(run);
}

/* What was delayed is read from the files when it is due; the rest of its lane goes on. */
static void wait_on(struct run *run) {
    open_all(run);
    set_rules(run, 0, 2, true);
    browse(run, 0, true);
    look_around(run);
    publish_later(run, 1, 30, 7, 2 * MINUTE);
    publish_later(run, 2, 30, 255, 0);
    wait_for(run, MINUTE);
    change(run, 1, 1, true, 0);
    consume(run, 1, 8, 0x5);
    consume(run, 1, 8, 0);
    consume(run, 1, 8, 0); /* twice is too often: dead letters */
    redrive(run, 1);
    redrive(run, 0);
    purge(run, 0);
    publish_later(run, 0, 40, 2, 0);
    flush(run, 1);
    check(run);
    close_store(run);
}

/* A full queue lets go of its oldest; in a batch, alone, and in a fan-out. */
static void overflow(struct run *run) {
    open_all(run);
    set_rules(run, 6, 2, false);
    for (uint32_t i = 0; i < 8; i++) {
        drop_the_oldest(run, 0);
        publish_later(run, 0, 20, i % 3, i == 1 ? SECOND : 0);
    }
    wait_for(run, SECOND);
    drop_the_oldest(run, 0);
    publish_batch(run, 0, 4, 20, false);
    for (uint32_t i = 0; i < QUEUES; i++)
        drop_the_oldest(run, i);
    fan_out(run, 100);
    consume(run, 0, 2, 0);
    consume(run, 0, 2, 0);
    drop_the_oldest(run, 0); /* and what was delivered too often */
    consume(run, 0, 2, 0x1);
    borrow(run, 0, 3, true, 0);
    close_store(run);
}

/* What is due has to be read before it is known what may go. */
static void fill_and_delay(struct run *run) {
    open_all(run);
    for (uint32_t i = 0; i < 12; i++)
        publish_later(run, 0, 20, i % 2, (1 + i % 3) * MINUTE);
    flush(run, 0);
    close_store(run);
}

static void overflow_when_due(struct run *run) {
    open_all(run);
    set_rules(run, 5, 0, false);
    wait_for(run, 5 * MINUTE);
    for (uint32_t i = 0; i < 4; i++) {
        drop_the_oldest(run, 0);
        publish_later(run, 0, 30, 1, i == 2 ? MINUTE : 0);
    }
    drop_the_oldest(run, 0);
    publish_batch(run, 0, 4, 20, false);
    get_newest_and_ack(run, 0);
    close_store(run);
}

/* Transients died with the process, delayed messages beside them did not: how many there are only
 * the file knows. */
static void die_with_transients_and_delays(struct run *run) {
    open_all(run);
    publish_batch(run, 0, 3, 20, false);
    publish(run, 0, 20, QI_TRANSIENT);
    borrow(run, 0, 3, false, MINUTE);
    flush(run, 0);
    sync_queue(run, 0);
}

static void go_on_with_delays(struct run *run) {
    open_all(run);
    browse(run, 0, false);
    wait_for(run, 2 * MINUTE);
    consume(run, 0, 4, 0x3);
    close_store(run);
}

static const struct story stories[] = {
    {.name = "expiry", .play = let_expire},
    {.name = "expiry by itself", .prepare = leave_mortals, .play = expire_by_themselves},
    {.name = "delays", .play = delay},
    {.name = "delays again", .prepare = delay, .play = wait_on},
    {.name = "delays and transients",
     .prepare = die_with_transients_and_delays,
     .play = go_on_with_delays},
    {.name = "a bound", .play = overflow},
    {.name = "a bound, and delays", .prepare = fill_and_delay, .play = overflow_when_due},
};

int main(int count, char **arguments) {
    play_stories(stories, sizeof stories / sizeof *stories, count < 3 ? "" : arguments[2]);
    printf("faults_times: all passed\n");
    return 0;
}
