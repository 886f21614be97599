/* Events that a program can listen for: a part of qindex.h, which includes this. */
#ifndef QI_EVENTS_H
#define QI_EVENTS_H

/* cffi: begin */

/* What the engine does by itself is noted for listeners. Without a listener nothing is noted. */
enum {
    QI_EVENT_LEASE_ENDED = 1, /* a delivery ended with its lease */
    QI_EVENT_EXPIRED = 2,     /* a message expired and was dropped */
    QI_EVENT_DIED = 3,        /* a message became a dead letter; `why` is QI_DEAD_EXPIRED ... */
    QI_EVENT_DROPPED = 4, /* a message was dropped; `why` is QI_DEAD_DELIVERIES or QI_DEAD_FULL */
    QI_EVENT_READY = 5,   /* the time of a delayed message has come */
    QI_EVENT_ABOVE = 6,   /* the queue has reached the high mark; `count`: how many wait */
    QI_EVENT_BELOW = 7,   /* after QI_EVENT_ABOVE: the queue has fallen below the low mark */
};
typedef struct {
    uint64_t us; /* of the event, by the wall clock */
    uint64_t req_id, count;
    const char *name; /* of the queue; valid until the store is freed */
    uint32_t name_size, kind, why;
} qi_event;
typedef struct qi_listener qi_listener;
/* Makes a listener for the kinds in `kinds` (bits 1 << QI_EVENT_...). It keeps the newest `room`
 * events. From now on the worker wakes up when a message becomes due. */
int qi_listener_new(qi_store *store, uint32_t room, uint32_t kinds, qi_listener **listener);
/* Notes QI_EVENT_ABOVE when `high` or more messages wait in the queue, and afterwards
 * QI_EVENT_BELOW when fewer than `low` do. Dead letters do not count. */
int qi_listener_mark(qi_listener *listener, qi_queue *queue, uint64_t high, uint64_t low);
/* The listener gets no more events. Calls that wait for its events, now or later, return
 * QI_E_CLOSED. */
void qi_listener_close(qi_listener *listener);
void qi_listener_free(
    qi_listener *listener); /* may come after qi_store_free; no thread may use the listener */
/* Takes the oldest events, up to `room`, and returns how many. *missed: how many earlier events
 * were not kept. 0: until_us has passed. QI_PAUSE as qi_get_wait, or an error. */
int64_t qi_listener_wait(qi_listener *listener, qi_event *events, uint32_t room, uint64_t *missed,
                         uint64_t until_us, uint64_t pause_us);
/* For an event loop. 1: there are events. 0: the store's descriptor will become readable when there
 * are (qi_events_came), or when the store is closed. Or an error. May wait for the lock. */
int qi_listener_arm(qi_listener *listener);
/* Events have come since the last call: true once. Never waits. */
bool qi_events_came(qi_store *store);

/* cffi: end */

#endif
