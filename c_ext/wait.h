/* wait.h - who waits for a message in which queue.
 *
 * A queue has a list of its waiters, first come, first woken; it is empty as long as nobody waits, and that is all that
 * a publish looks at. A waiter is taken out of the list when it is woken. There are two kinds: a thread that sleeps in
 * qi_wait, and the queue's bell, for an event loop that must not sleep: it makes the store's file descriptor readable.
 * All of it is protected by the store's lock.
 */
#ifndef QI_WAIT_H
#define QI_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct qi_queue;
struct qi_store;
struct qi_sleeper;

struct qi_waiter {
    struct qi_waiter *next, *previous;
    struct qi_sleeper *sleeper; /* NULL: the queue's bell */
    bool listed;
};

/* Wakes as many waiters as messages became ready; qi_announce (queue.h) is its quick part. With the lock. */
void qi_wake_waiters(struct qi_queue *queue, uint64_t messages);

/* For the worker: so long until a queue with an armed bell has something by time alone, at most `us`; and: it rings. */
uint64_t qi_bells_timer(struct qi_store *store, uint64_t us);
int qi_bells_run(struct qi_store *store);

/* Something that concerns all: the store is closing, or failed. With the lock. */
void qi_wake_all(struct qi_store *store);

/* A verb that takes something from a queue: what it got, QI_EMPTY, or an error. Called with the lock. */
typedef int64_t (*qi_take)(struct qi_queue *queue, void *context);

/* Takes from the first of the queues that has something; waits for it until the store's clock says until_us. Gives the
 * lock up, which it takes itself. QI_EMPTY: the time is over; QI_PAUSE: so is pause_us, and it may be called again.
 * Returns an error at once when the store or a queue is closed or fails. */
int64_t qi_wait(struct qi_queue **queues, uint32_t count, uint64_t until_us, uint64_t pause_us,
                qi_take take, void *context);

#endif
