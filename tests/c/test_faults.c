/* test_faults.c - stories in which each call of the disk and each allocation fails. Usage: test_faults <directory> */
#include "faults.h"

/* ---- a queue's days ---- */

static void open_all(struct run *run) {
    open_store(run);
    for (uint32_t i = 0; i < QUEUES; i++)
        open_queue(run, i, true);
}

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

static const struct story stories[] = {
    {.name = "a queue's days", .play = live},
    {.name = "more days", .prepare = live, .play = live_again},
};

int main(int count, char **arguments) {
    (void)count;
    (void)arguments;
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        for (int mapping = 0; mapping < 2; mapping++)
            play_all(&stories[i], mapping);
    printf("faults: all passed\n");
    return 0;
}
