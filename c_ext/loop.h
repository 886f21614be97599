/* What an event loop needs, which may not wait: a part of qindex.h, which includes this. */
#ifndef QI_LOOP_H
#define QI_LOOP_H

/* cffi: begin */

/* The store's descriptor becomes readable when something has come that the loop has asked for. The
 * loop reads it empty, then asks for all that may have come: queues (qi_bell_next), syncs
 * (qi_sync_came), places (qi_places_came), events (qi_events_came). The descriptor is closed with
 * the store. */
int qi_store_bell(qi_store *store);
/* For a loop that does not wait for the descriptor any more. */
void qi_store_bell_close(qi_store *store);

/* An armed queue comes when it gets a message, is deleted, or its store is closed; the loop asks
 * for queues until there is none, and arms them again if it needs more. arm: 0, or 1 if there is
 * something already. disarm: others who wait are woken for what the loop leaves. Unless they may
 * wait for the store's lock, both may say QI_BUSY. */
int qi_bell_arm(qi_queue *queue, bool may_wait);
int qi_bell_disarm(qi_queue *queue, bool may_wait);
qi_queue *qi_bell_next(qi_store *store);

/* Asks for a sync that covers all that was appended before, to the queue or (NULL) to all queues; a
 * thread of the store makes it. Waits neither for the disk nor for the store's lock. 0, QI_BUSY:
 * the loop has not heard of the end of the one before, or an error. */
int qi_sync_ask(qi_store *store, qi_queue *queue);
/* True: a sync has ended. Then the queue that it was asked for, and what qi_queue_sync or
 * qi_store_sync has returned; the text of that error is told to the thread that calls this. */
bool qi_sync_came(qi_store *store, qi_queue **queue, int *error);

/* cffi: end */

#endif
