/* timers.h - what time makes ready: delayed messages, and those whose lease ends.
 *
 * A message that is delayed is *held*: the cursor steps over it. When its time has come it moves to the heap of those that
 * are due, from which get takes before it looks at the lanes. A lease is a time beside a message that is out; when it
 * ends the message is ready again.
 *
 *     publish(delay)                          time passes                get
 *        held ------------> delayed ----------------------> due ---------------> out
 *                           (heap by time, or its segment   (heap by priority,
 *                            is cold: one entry for all)     then by time)
 *
 * Only segments in which something is due soon have their maps in memory, and only their messages are in the heaps; a
 * cold one is there with the earliest of its times. Messages that are delayed are published into lanes by the minute in
 * which they are due, those that wait long by the half hour: so a segment has messages of about the same time, and a
 * flush of messages of any times writes few files.
 *
 * A dead letter is a message that is held for ever. It stays in its place, so that to bury it and to take it back is one
 * record each.
 *
 * An entry of a heap is a claim: it counts if the slot still says the same. Nothing is ever taken out of the middle;
 * what is out of date is dropped when it comes up, or all at once when there is too much of it.
 */
#ifndef QI_TIMERS_H
#define QI_TIMERS_H

#include "heap.h"
#include "lane.h"

/* 8 bits of priority, 56 of microseconds since 1970: how a time stands in a record. 0: not delayed. */
#define QI_TIME_US_BITS 56
#define QI_TIME_US_MASK ((UINT64_C(1) << QI_TIME_US_BITS) - 1)

/* Times that never come: the message is a dead letter, for this reason. And one that always has: it was taken back from
 * there, and is delivered once more whatever made it a dead letter. */
#define QI_DEAD        (QI_TIME_US_MASK - 0xFF)
#define QI_REDRIVEN_US 1u

static inline bool qi_time_is_dead(uint64_t time) {
    return (time & QI_TIME_US_MASK) >= QI_DEAD;
}

/* Lanes of delayed messages: 256 by the half hour in which they are due, and 256 by the minute for those that are due within
 * an hour. */
#define QI_DELAY_LANES 256u
#define QI_FAR_LANE    256u
#define QI_NEAR_LANE   512u
#define QI_MINUTE_US   (UINT64_C(60) * 1000000)

static inline uint64_t qi_time_us(uint64_t time) {
    return time & QI_TIME_US_MASK;
}
static inline uint32_t qi_time_priority(uint64_t time) {
    return (uint32_t)(time >> QI_TIME_US_BITS);
}
static inline uint32_t qi_delay_lane(uint64_t due_us, uint64_t now_us) {
    return due_us < now_us + 60 * QI_MINUTE_US
               ? QI_NEAR_LANE + (uint32_t)(due_us / QI_MINUTE_US % QI_DELAY_LANES)
               : QI_FAR_LANE + (uint32_t)(due_us / (30 * QI_MINUTE_US) % QI_DELAY_LANES);
}

struct qi_queue;
struct qi_segment;

struct qi_timers {
    struct qi_heap delayed; /* key: when; id: a message, or a segment that is cold */
    uint32_t tidied;        /* entries of it that were left when it was made anew */
    struct qi_heap due;     /* key: 255 - priority and the time */
    struct qi_heap leases;  /* key: when it ends */
};

void qi_timers_clear(struct qi_timers *timers);

/* Of a message with its segment's maps: by its lane, or in a lane of delayed ones by its time. */
uint32_t qi_priority_of(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot);

/* Memory for `count` times of messages from `slot` on, of `in_all` that one frame has: asked for before a record is
 * appended (H20). 0 or QI_E_MEMORY. */
int qi_time_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint32_t count,
                 uint32_t in_all);
/* A message that is alive and not out is delayed until then, or ready (0), by a record that is in the journal. */
void qi_time_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint64_t time);
/* The same for what a segment's file says: all its messages that are held, when it has been read. Memory for it first. */
int qi_time_load_room(struct qi_queue *queue, struct qi_segment *segment);
void qi_time_load(struct qi_queue *queue, struct qi_segment *segment);
/* A message that is held is delivered: in a lane of priorities nothing holds it afterwards, whatever becomes of it. In a
 * lane of delayed messages it goes back to its time, and one that was redriven is as any other then. */
void qi_time_delivered(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
/* A message that is held leaves, or goes out: nothing holds it any more. */
void qi_time_drop(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
/* Of a segment that nobody read, no more than so many are held after all. */
void qi_held_at_most(struct qi_queue *queue, struct qi_segment *segment, uint32_t count);
/* Entries for the cold segments of a queue that was recovered. */
int qi_timers_begin(struct qi_queue *queue);

/* Memory for one of `count` leases that begin together; then, the message being out, until when it is. */
int qi_lease_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint32_t count);
void qi_lease_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint64_t until_us);
/* Out no more and ready again, in its own place. */
void qi_release(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

/* Ends the leases that are over; every verb does, so that nobody settles what is not his any more. */
void qi_leases_run_due(struct qi_queue *queue);
static inline void qi_leases_run(struct qi_queue *queue, const struct qi_timers *timers) {
    if (__builtin_expect(timers->leases.count != 0, 0))
        qi_leases_run_due(queue);
}
/* The delayed messages whose time has come are due. May read segments. 0 or an error. */
int qi_delayed_run(struct qi_queue *queue);
/* Something is due of which that did not come to know: there was enough. */
bool qi_delayed_waits(const struct qi_queue *queue);
/* The same for who may not wait: false if a segment has to be read for the next of them. */
bool qi_delayed_run_now(struct qi_queue *queue);
/* A time was set: who waits for one looks again. */
void qi_timers_armed(struct qi_queue *queue);
/* When there is something to run next; UINT64_MAX: never, as things are. */
uint64_t qi_timers_next_us(const struct qi_queue *queue);
/* When the first of the delayed messages is due, as far as is known without reading a segment; 0: none is delayed. */
uint64_t qi_next_due_us(struct qi_queue *queue);
/* The first that is due: true and where. */
bool qi_due_first(struct qi_queue *queue, struct qi_segment **segment, uint32_t *slot,
                  uint32_t *priority);
/* The first is taken out of the heap, to be delivered; and: put back, if nothing came of it. */
void qi_due_take(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
void qi_due_put_back(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
/* The first that is due is put off for the rest of this look: it has expired, and nothing may be changed. */
void qi_due_put_off(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

/* The earliest time of what is held, or will be at the next open; UINT64_MAX: nothing is. Of a segment with its maps. */
uint64_t qi_segment_due_us(const struct qi_queue *queue, const struct qi_segment *segment);
/* Heaps that are mostly out of date are made anew. O(their size), when half as much is out of date as counts. */
void qi_timers_tidy(struct qi_queue *queue);

#endif
