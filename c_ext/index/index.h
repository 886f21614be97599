/* index.h - a queue's segments: their maps in memory, their files, and the times of their
 * messages. */
#ifndef QI_INDEX_H
#define QI_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

struct qi_file_use;
struct qi_published;
struct qi_timer;

/* ---- lane ---- */

/* Makes lane 0. False: no memory. */
bool qi_lanes_begin(struct qi_lanes *lanes);
/* Removes all lanes but lane 0, which becomes empty. */
void qi_lanes_reset(struct qi_lanes *lanes);

/* NULL if no publish in this lane is known. */
struct qi_lane *qi_lane_search(const struct qi_lanes *lanes, uint32_t number);
static inline struct qi_lane *qi_lane_find(const struct qi_lanes *lanes, uint32_t number) {
    return __builtin_expect(number == 0, 1) ? lanes->items : qi_lane_search(lanes, number);
}
/* Finds the lane or makes it; NULL: no memory. A new lane begins at the queue's floor, because
 * ReqIds below it may have been given out before an unclean end. Making a lane invalidates all
 * pointers to lanes. */
struct qi_lane *qi_lane_make(struct qi_queue *queue, uint32_t number);

/* The ReqId of the lane's next message. The lane need not exist yet. */
uint64_t qi_lane_next(const struct qi_queue *queue, uint32_t number);

/* Raises the next ReqId of its lane to at least `next`. 0 or QI_E_MEMORY. */
int qi_lane_raise(struct qi_queue *queue, uint64_t next);
/* Raises the next ReqId of every lane to at least `count`. */
void qi_lanes_raise(struct qi_queue *queue, uint64_t count);

/* True if a lane is being read or written in this segment: then its maps stay in memory. */
bool qi_lane_uses(const struct qi_queue *queue, const struct qi_segment *segment);

/* ---- ids ---- */

static inline uint64_t qi_count_of(uint64_t req_id) {
    return req_id & QI_COUNT_MASK;
}
static inline uint32_t qi_lane_number(uint64_t req_id) {
    return (uint32_t)(req_id >> QI_COUNT_BITS);
}
static inline uint64_t qi_lane_start(uint32_t number) {
    return (uint64_t)number << QI_COUNT_BITS;
}

static inline uint64_t qi_req_id(const struct qi_queue *queue, const struct qi_segment *segment,
                                 uint32_t slot) {
    return segment->number * queue->store->options.segment_entries + slot;
}
/* The inverse of qi_req_id. The number of slots in a segment is a power of two. */
static inline uint64_t qi_segment_number(const struct qi_queue *queue, uint64_t req_id) {
    return req_id >> __builtin_ctz(queue->store->options.segment_entries);
}
static inline uint32_t qi_slot_of(const struct qi_queue *queue, uint64_t req_id) {
    return (uint32_t)req_id & (queue->store->options.segment_entries - 1);
}

static inline uint32_t qi_segment_lane(const struct qi_queue *queue,
                                       const struct qi_segment *segment) {
    return qi_lane_number(qi_req_id(queue, segment, 0));
}

/* ---- slots ---- */

extern const struct qi_slots qi_no_slots;

/* True if the heap of due messages (timers.c) has messages of this segment: its maps must stay in
 * memory. */
static inline bool qi_has_due(const struct qi_segment *segment) {
    return segment->hot->held_count > segment->delayed + segment->dead;
}

/* The piece that holds the slot. Where qi_segment_room has made none, this is qi_no_slots, which
 * must not be written. Every published slot has a piece of its own. */
static inline struct qi_slots *qi_slots_of(const struct qi_hot *hot, uint32_t slot) {
    return hot->blocks[slot / (64 * QI_BLOCK_PIECES)]->pieces[slot / 64 % QI_BLOCK_PIECES];
}

/* The bit of a slot in a word of its piece. */
static inline bool qi_bit(uint64_t word, uint32_t slot) {
    return word >> (slot & 63) & 1;
}
static inline void qi_set_bit(uint64_t *word, uint32_t slot) {
    *word |= UINT64_C(1) << (slot & 63);
}
static inline void qi_clear_bit(uint64_t *word, uint32_t slot) {
    *word &= ~(UINT64_C(1) << (slot & 63));
}

/* The slots whose latest change is in the journal only. */
static inline uint64_t qi_news(const struct qi_slots *slots) {
    return slots->jpub | slots->jdel | slots->jack | slots->jcount | slots->jtime | slots->jside;
}

/* Requires index < segments->count. */
static inline struct qi_segment *qi_segment_nth(const struct qi_segments *segments,
                                                uint32_t index) {
    return segments->items + segments->start + index;
}
/* NULL if no segment has that number. */
struct qi_segment *qi_segment_find(struct qi_segments *segments, uint64_t number);
/* The same for a caller that looks up many messages in a row: most are in the segment of the one
 * before. `before` is NULL for the first. */
static inline struct qi_segment *qi_segment_find_near(struct qi_segments *segments,
                                                      struct qi_segment *before, uint64_t number) {
    return before && before->number == number ? before : qi_segment_find(segments, number);
}
/* The first segment with that number or a higher one; NULL if there is none. */
struct qi_segment *qi_segment_from(struct qi_segments *segments, uint64_t number);
/* Finds the segment or makes it; NULL: no memory. A make or a remove invalidates all pointers into
 * the table. */
struct qi_segment *qi_segment_make(struct qi_segments *segments, uint64_t number);
void qi_segment_remove(struct qi_segments *segments, uint64_t number);
void qi_segments_clear(struct qi_segments *segments);

/* Gives the segment empty maps; qi_segment_load fills them from the file. 0 or QI_E_MEMORY. */
int qi_segment_heat(struct qi_segment *segment);
/* Allocates what changes of `count` slots from `slot` on will need, in a segment that has maps.
 * Called before the record is appended (H20). 0 or QI_E_MEMORY. */
int qi_segment_room(struct qi_segment *segment, uint32_t slot, uint32_t count);
void qi_segment_cool(struct qi_segment *segment);

/* qi_side_room allocates memory for one more side record of that size (H20): 0 or QI_E_MEMORY. It
 * counts with those that it was asked for before, until they are put or qi_side_room_unused says
 * that none of these comes.
 * qi_side_put then stores the record; it replaces the last one of its kind. `is_news`: the record
 * comes from a journal, so it is newer than one from the segment's file. */
int qi_side_room(struct qi_slots *slots, uint32_t kind, uint32_t size);
void qi_side_room_unused(struct qi_slots *slots);
void qi_side_put(struct qi_slots *slots, uint32_t slot, const struct qi_side *side, bool is_news);
/* Steps through the side records of a slot. Begin with *at = 0; false when there are no more. */
bool qi_side_next(const struct qi_sides *sides, uint32_t slot, uint32_t *at, struct qi_side *side);
/* `count` deliveries do not count: their consumers never looked at the message. The last of these
 * was the one with number `last`. Zeros: all count. */
struct qi_uncounted {
    uint32_t count, last;
};
#define QI_UNCOUNTED_SIZE 8u
struct qi_uncounted qi_uncounted_of(const struct qi_slots *slots, uint32_t slot);
/* How often the message was delivered. */
static inline uint32_t qi_handed_out(const struct qi_slots *slots, uint32_t slot) {
    if (!qi_bit(slots->del, slot))
        return 0;
    return slots->count && slots->count[slot & 63] ? slots->count[slot & 63] : 1;
}
/* How often the message was delivered, without the deliveries that do not count. */
uint32_t qi_delivery_count(const struct qi_slots *slots, uint32_t slot);
/* Nobody may have it again: so it is after each `most` deliveries, if the last one counts. */
bool qi_is_tried_out(const struct qi_slots *slots, uint32_t slot, uint32_t most);
/* The lease that the message was published with; 0: none. */
uint64_t qi_own_lease_us(const struct qi_slots *slots, uint32_t slot);

/* qi_slots_count_room allocates the delivery counts of 64 slots. qi_slots_count_again counts one
 * more delivery of a slot that was delivered before. Both: 0 or QI_E_MEMORY. */
int qi_slots_count_room(struct qi_slots *slots);
int qi_slots_count_again(struct qi_slots *slots, uint32_t slot);
/* Allocates what the next delivery will note, for a slot that was delivered before. */
int qi_slots_deliver_room(struct qi_slots *slots, uint32_t slot);

/* Allocates the delivery count if qi_segment_deliver will need one. Called before the record is
 * appended (H20). */
static inline int qi_segment_count_room(const struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return __builtin_expect(!qi_bit(slots->del, slot), 1) ? 0 : qi_slots_deliver_room(slots, slot);
}

/* Counts references of the segment to a message file. */
int qi_segment_use(struct qi_hot *hot, uint32_t file, int32_t count, int64_t bytes);
void qi_segment_name(uint64_t number, bool alt, char name[32]);

static inline struct qi_segment *qi_segment_with(struct qi_queue *queue, uint64_t req_id) {
    return qi_segment_find(&queue->segments, qi_segment_number(queue, req_id));
}

/* Nothing else changes these counts: messages in the queue, and how many of them are dead letters.
 */
static inline void qi_count_depth(struct qi_queue *queue, int64_t by) {
    queue->depth += (uint64_t)by;
    queue->store->depth += (uint64_t)by;
    if (__builtin_expect(queue->store->places_wanted != 0, 0))
        qi_waiting_changed(queue, by < 0);
}
static inline void qi_count_dead(struct qi_queue *queue, int64_t by) {
    queue->dead += (uint64_t)by;
    queue->store->dead += (uint64_t)by;
    if (__builtin_expect(queue->store->places_wanted != 0, 0))
        qi_waiting_changed(queue, by > 0);
}
static inline void qi_count_nothing(struct qi_queue *queue) {
    qi_count_depth(queue, -(int64_t)queue->depth);
    qi_count_dead(queue, -(int64_t)queue->dead);
    queue->store->bytes -= queue->bytes;
    queue->bytes = queue->delayed = 0;
    queue->measured = false;
}

/* ---- view ---- */

/* For readers without the lock. qi_pair_is_steady: do the two journals that were read belong to one
 * moment? qi_view_is_old: has the queue changed since it was read? Each reads a few bytes of both
 * journals. */
bool qi_pair_is_steady(struct qi_queue *queue);
bool qi_view_is_old(struct qi_queue *queue);

/* ---- timers ---- */

/* A time in a record: 8 bits of priority, then 56 bits of microseconds since 1970. 0: not delayed.
 */
#define QI_TIME_US_BITS QI_INSTANT_BITS
#define QI_TIME_US_MASK QI_INSTANT_MASK

/* From QI_DEAD on a time never comes: the message is a dead letter, and the low 8 bits say why.
 * QI_REDRIVEN_US is always in the past: the message was a dead letter, was taken back, and is
 * delivered once more, whatever made it a dead letter. */
#define QI_DEAD        (QI_TIME_US_MASK - 0xFF)
#define QI_REDRIVEN_US 1u
/* The lowest time that a caller can give: 1 marks a redriven message, 2 one that was delivered
 * since. */
#define QI_FIRST_US    3u

static inline bool qi_time_is_dead(uint64_t time) {
    return (time & QI_TIME_US_MASK) >= QI_DEAD;
}

/* The lanes of delayed messages: 256 for the half hours in which messages are due, and 256 for the
 * minutes of the next hour. */
#define QI_DELAY_LANES 256u
#define QI_FAR_LANE    256u
#define QI_NEAR_LANE   512u
#define QI_MINUTE_US   (UINT64_C(60) * 1000000)

static inline uint64_t qi_time_us(uint64_t time) {
    return time & QI_TIME_US_MASK;
}
/* A time that a caller gives; 0: none. A value that has a meaning of its own becomes the nearest
 * value that has none. */
static inline uint64_t qi_time_given(uint64_t us) {
    if (us < QI_FIRST_US)
        return us ? QI_FIRST_US : 0;
    return us < QI_DEAD ? us : QI_DEAD - 1;
}
static inline uint32_t qi_time_priority(uint64_t time) {
    return (uint32_t)(time >> QI_TIME_US_BITS);
}
static inline uint32_t qi_delay_lane(uint64_t due_us, uint64_t now_us) {
    return due_us < now_us + 60 * QI_MINUTE_US
               ? QI_NEAR_LANE + (uint32_t)(due_us / QI_MINUTE_US % QI_DELAY_LANES)
               : QI_FAR_LANE + (uint32_t)(due_us / (30 * QI_MINUTE_US) % QI_DELAY_LANES);
}

void qi_timers_clear(struct qi_timers *timers);

/* The priority of a message: its lane, or in a lane of delayed messages a part of its time. The
 * segment must have maps. */
uint32_t qi_priority_of(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot);

/* Allocates `count` times of messages from `slot` on; the frame has `in_all` of them. Called before
 * the record is appended (H20). 0 or QI_E_MEMORY. */
int qi_time_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint32_t count,
                 uint32_t in_all);
/* Delays a message that is alive and not delivered, or makes it ready (time 0). The record is in
 * the journal already. */
void qi_time_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint64_t time);
/* A held message was acked or delivered: it is not held any more. */
void qi_time_drop(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
/* An unread segment keeps at most `count` held messages. */
void qi_held_at_most(struct qi_queue *queue, struct qi_segment *segment, uint32_t count);
/* A message that was delivered as often as its queue allows is noted: qi_spent_leave drops it. */
void qi_spent_note(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot);
/* The background thread looks for such messages then, at most ten times a second. */
void qi_spent_wake(struct qi_store *store, uint64_t at_us);
/* A delivered message becomes ready again, in its own place. */
void qi_release(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

/* Set in the id of a heap entry that stands for a whole segment whose maps are not in memory. */
#define QI_SEGMENT_ENTRY (UINT64_C(1) << 63)
/* Is this entry still the valid one of its message? */
bool qi_is_claimed(struct qi_queue *queue, const struct qi_timer *timer);

/* ---- due ---- */

/* Makes the heap entries for the unread segments of a queue that was recovered. */
int qi_timers_begin(struct qi_queue *queue);
/* Makes messages due whose time has come. Messages that are no longer due, because the wall clock
 * was set back, are delayed again. May read segments. 0 or an error. */
int qi_delayed_run(struct qi_queue *queue);
/* True if qi_delayed_run stopped early, because it had found enough: more messages are due. */
bool qi_delayed_waits(const struct qi_queue *queue);
/* qi_delayed_run for a caller that must not wait: false if it would have to read a segment. */
bool qi_delayed_run_now(struct qi_queue *queue);
/* The first due message. False: there is none. */
bool qi_due_first(struct qi_queue *queue, struct qi_segment **segment, uint32_t *slot,
                  uint32_t *priority);
/* qi_due_take takes the first due message out of its heap, to be delivered. qi_due_put_back puts it
 * back if it was not. */
void qi_due_take(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
void qi_due_put_back(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
/* Leaves the first due message out for the rest of this look: it has expired, and the caller may
 * not change anything. */
void qi_due_put_off(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

/* ---- timers_heads ---- */

/* Sorts the due messages into the order in which a full queue drops them. 0 or QI_E_MEMORY. */
int qi_due_heads_make(struct qi_queue *queue);
/* Adds a message that became due, or that was taken and not dropped. Without memory the order is
 * sorted anew when it is needed. */
void qi_due_heads_add(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot);
/* Takes the first message of a priority below `below`. *head is the one taken before it. False:
 * there is none. */
bool qi_due_heads_take(struct qi_queue *queue, uint32_t below, struct qi_timer *head);

/* ---- leases ---- */

/* qi_lease_room allocates one of `count` leases that begin together. qi_lease_set sets when the
 * lease of a delivered message ends. */
int qi_lease_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint32_t count);
void qi_lease_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint64_t until_us);

/* Ends the leases that are over. Every verb calls this first, so that no consumer settles a message
 * after its lease has ended. */
void qi_leases_run_due(struct qi_queue *queue);
static inline void qi_leases_run(struct qi_queue *queue, const struct qi_timers *timers) {
    if (__builtin_expect(timers->leases.count != 0, 0))
        qi_leases_run_due(queue);
}

/* ---- timers_cold ---- */

/* Frees the maps of a segment. One heap entry then stands for all its delayed messages. */
void qi_cool(struct qi_queue *queue, struct qi_segment *segment);

/* The earliest time of the messages that are held, or will be held after the next open; UINT64_MAX:
 * there are none. The segment must have maps. */
uint64_t qi_segment_due_us(const struct qi_queue *queue, const struct qi_segment *segment);
/* Rebuilds a heap once it has half as many outdated entries as valid ones. Cost: O(size of the
 * heap). */
void qi_timers_tidy(struct qi_queue *queue);

/* True if one heap entry stands for all delayed messages of the segment, because its maps are not
 * in memory. */
static inline bool qi_waits_as_whole(const struct qi_segment *segment) {
    return segment->delayed > 0 && !(segment->hot && segment->hot->loaded);
}

/* ---- expiry ---- */

/* Notes that a message of the segment expires at this time (not 0). */
void qi_segment_expires(struct qi_queue *queue, struct qi_segment *segment, uint64_t expiry_us);

/* Notes that a message of the queue expires at this time: lowers the earliest expiry of the queue
 * and of its store. */
void qi_queue_expires(struct qi_queue *queue, uint64_t expiry_us);

static inline void qi_lower(uint64_t *bound, uint64_t expiry_us) {
    if (*bound == 0 || expiry_us < *bound)
        *bound = expiry_us;
}

/* The settings of the queue have become known. */
void qi_expire_rules(struct qi_queue *queue);

/* ---- warm ---- */

/* True if the maps of a segment without dirty or delivered messages will be needed soon. */
bool qi_is_wanted_soon(struct qi_queue *queue, const struct qi_segment *segment, uint64_t now);

#define QI_SOON_US (UINT64_C(60) * 1000000) /* messages that are due by then stay in memory */

/* Frees the maps of the segment if they are not in use. */
bool qi_cool_if_unused(struct qi_queue *queue, struct qi_segment *segment);

/* ---- segment ---- */

/* The three changes of state. Each comes after its record is in the journal (H20). */
void qi_segment_publish(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                        uint32_t loc, uint32_t sum, bool transient);
void qi_segment_deliver(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
void qi_segment_ack(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

/* The same for `count` adjacent plain slots, a word at a time. Plain to publish: never published
 * before. Plain to deliver or ack: published, not acked, no body in the message store, not
 * transient, not delivered. */
void qi_segment_publish_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count, uint32_t loc, const uint8_t *records,
                              uint32_t stride);
bool qi_segment_is_plain_range(const struct qi_segment *segment, uint32_t slot, uint32_t count);
void qi_segment_deliver_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count);
void qi_segment_ack_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                          uint32_t count);

/* ---- segment_file ---- */

/* The publish record of a slot, valid until the next call for this queue. QI_E_CORRUPT: the bytes
 * are no longer those of the record that was checked before. */
int qi_segment_record(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                      const struct qi_published **record);

/* True if qi_segment_record needs no file for this record. */
bool qi_segment_at_hand(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot);

/* Forgets what was read of the segment's file, because the file has changed. */
void qi_segment_forget_file(struct qi_queue *queue, struct qi_segment *segment);
/* Opens the file for reading and checks its header. Returns a handle (>= 0), with the seed of the
 * file's frames, or an error. */
int qi_segment_open(struct qi_queue *queue, const struct qi_segment *segment, uint32_t *seed);

/* ---- segment_load ---- */

/* Reads the file's entries into the maps, once. A damaged frame is left out and reported in the
 * store's findings; the counters follow what was found. Cost: reads the whole file once. */
int qi_segment_load(struct qi_queue *queue, struct qi_segment *segment);

/* Sets the number of living messages of the segment to what was found. */
void qi_segment_found(struct qi_queue *queue, struct qi_segment *segment, uint32_t unacked,
                      uint32_t transient);

/* ---- segment_uses ---- */

/* The exact references of any segment. Afterwards its earliest expiry is known, too. The caller
 * frees `uses`. */
int qi_segment_uses(struct qi_queue *queue, struct qi_segment *segment, struct qi_file_use **uses,
                    uint32_t *count);
/* The same without the references: only the bytes and the earliest expiry of the segment. */
int qi_segment_read_summary(struct qi_queue *queue, struct qi_segment *segment);

/* ---- bytes ---- */

/* How many bytes of headers and bodies are waiting. Only measured queues (bytes.c) know it; for the
 * others this costs nothing. */

/* The size of headers and body of a published message, embedded or in the message store. */
static inline uint32_t qi_payload_of(const struct qi_fields *fields) {
    return qi_msg_id_is_set(fields->msg_id) ? qi_payload_length(qi_get_msg_id(fields->msg_id))
                                            : fields->embedded;
}

/* The size of a message. Its segment must have maps. */
static inline uint32_t qi_size_of(const struct qi_segment *segment, uint32_t slot) {
    return qi_slots_of(segment->hot, slot)->size[slot & 63];
}

static inline void qi_count_bytes(struct qi_queue *queue, struct qi_segment *segment, int64_t by) {
    segment->bytes += (uint64_t)by;
    queue->bytes += (uint64_t)by;
    queue->store->bytes += (uint64_t)by;
}

/* Sets the bytes that wait in the segment to what was found. */
static inline void qi_bytes_found(struct qi_queue *queue, struct qi_segment *segment,
                                  uint64_t bytes) {
    if (queue->measured)
        qi_count_bytes(queue, segment, (int64_t)(bytes - segment->bytes));
}

/* A message comes. Its segment has maps. */
static inline void qi_bytes_come(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                                 uint32_t bytes) {
    if (__builtin_expect(!queue->measured, 1))
        return;
    qi_slots_of(segment->hot, slot)->size[slot & 63] = bytes;
    qi_count_bytes(queue, segment, bytes);
}

/* The same, counted from the record of each message. 0, or an error if a record cannot be read. */
int qi_bytes_recount(struct qi_queue *queue, struct qi_segment *segment, uint64_t *bytes);

/* ---- measure ---- */

/* Begins to measure the queue. On an error the queue stays unmeasured. Cost: reads the last summary
 * of each segment, and the records of segments that are in memory or whose summary has no sizes. */
int qi_bytes_begin(struct qi_queue *queue);

/* ---- moments ---- */

/* An upper bound of when the oldest waiting message was published, by the steady clock; UINT64_MAX:
 * no message waits. */
uint64_t qi_age_oldest(struct qi_queue *queue, uint64_t now);

/* Notes the time: everything that is in the queue now was published earlier. Called with each sync,
 * and when the journals change places. */
void qi_age_note(struct qi_queue *queue);
/* The journals are about to change places: keeps what they say of the age of the first messages. */
void qi_age_keep(struct qi_queue *queue);

#endif
