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

/* False: no memory. */
bool qi_lanes_begin(struct qi_lanes *lanes);
/* Only lane 0 is left, and nothing was published in it. */
void qi_lanes_reset(struct qi_lanes *lanes);

/* NULL: nothing was ever published in it, as far as is known. */
struct qi_lane *qi_lane_search(const struct qi_lanes *lanes, uint32_t number);
static inline struct qi_lane *qi_lane_find(const struct qi_lanes *lanes, uint32_t number) {
    return __builtin_expect(number == 0, 1) ? lanes->items : qi_lane_search(lanes, number);
}
/* Found or made; NULL: no memory. A new one begins at the queue's floor: all that may have been
 * given out before an unclean end is below. Pointers to lanes are valid until then. */
struct qi_lane *qi_lane_make(struct qi_queue *queue, uint32_t number);

/* The ReqId that its next message gets, also if it is not made yet. */
uint64_t qi_lane_next(const struct qi_queue *queue, uint32_t number);

/* Its next ReqId is not below this one. 0 or QI_E_MEMORY. */
int qi_lane_raise(struct qi_queue *queue, uint64_t next);
/* That of every lane. */
void qi_lanes_raise(struct qi_queue *queue, uint64_t count);

/* A lane is read or written here: its maps stay in memory. */
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
/* The way back; a segment has a power of two of them. */
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

/* Messages in it wait in the heap of those that are due (timers.c): its maps have to stay. */
static inline bool qi_has_due(const struct qi_segment *segment) {
    return segment->hot->held_count > segment->delayed + segment->dead;
}

/* The piece with that slot. It is qi_no_slots, which must not be written, unless qi_segment_room
 * made it; for a slot that was published it was made. */
static inline struct qi_slots *qi_slots_of(const struct qi_hot *hot, uint32_t slot) {
    return hot->blocks[slot / (64 * QI_BLOCK_PIECES)]->pieces[slot / 64 % QI_BLOCK_PIECES];
}

/* A slot's bit in a word of its piece. */
static inline bool qi_bit(uint64_t word, uint32_t slot) {
    return word >> (slot & 63) & 1;
}
static inline void qi_set_bit(uint64_t *word, uint32_t slot) {
    *word |= UINT64_C(1) << (slot & 63);
}
static inline void qi_clear_bit(uint64_t *word, uint32_t slot) {
    *word &= ~(UINT64_C(1) << (slot & 63));
}

/* What stands in the journal only. */
static inline uint64_t qi_news(const struct qi_slots *slots) {
    return slots->jpub | slots->jdel | slots->jack | slots->jcount | slots->jtime | slots->jside;
}

/* index < count. */
static inline struct qi_segment *qi_segment_nth(const struct qi_segments *segments,
                                                uint32_t index) {
    return segments->items + segments->start + index;
}
/* NULL if there is none with that number. */
struct qi_segment *qi_segment_find(struct qi_segments *segments, uint64_t number);
/* The same for one message after the other: mostly in the segment of the one before (NULL: there
 * was none). */
static inline struct qi_segment *qi_segment_find_near(struct qi_segments *segments,
                                                      struct qi_segment *before, uint64_t number) {
    return before && before->number == number ? before : qi_segment_find(segments, number);
}
/* The first with that number or a higher one; NULL: none. */
struct qi_segment *qi_segment_from(struct qi_segments *segments, uint64_t number);
/* Found or made; NULL: no memory. Pointers into the table are valid until the next make or
 * remove. */
struct qi_segment *qi_segment_make(struct qi_segments *segments, uint64_t number);
void qi_segment_remove(struct qi_segments *segments, uint64_t number);
void qi_segments_clear(struct qi_segments *segments);

/* Gives the segment maps (empty ones: of a file only qi_segment_load fills them in). 0 or
 * QI_E_MEMORY. */
int qi_segment_heat(struct qi_segment *segment);
/* Memory for what is to happen in `count` slots from `slot` on of a hot segment: asked for before a
 * record is appended (H20). 0 or QI_E_MEMORY. */
int qi_segment_room(struct qi_segment *segment, uint32_t slot, uint32_t count);
void qi_segment_cool(struct qi_segment *segment);
/* Sizes for all pieces that a hot segment has and will have. 0 or QI_E_MEMORY. */
int qi_segment_size_room(struct qi_segment *segment);

/* Memory for one more side record of that size (H20): 0 or QI_E_MEMORY. Then the record, in the
 * place of the last one of its kind; `is_news`: from a journal, else from the segment's file, which
 * knows less. */
int qi_side_room(struct qi_slots *slots, uint32_t size);
void qi_side_put(struct qi_slots *slots, uint32_t slot, const struct qi_side *side, bool is_news);
/* Those of a slot, one after the other, from *at = 0 on: false behind the last one. */
bool qi_side_next(const struct qi_sides *sides, uint32_t slot, uint32_t *at, struct qi_side *side);
void qi_sides_unload(struct qi_slots *slots); /* those of the segment's file are not known */
/* How long a consumer may keep the message, as it says itself; 0: it does not. */
uint64_t qi_own_lease_us(const struct qi_slots *slots, uint32_t slot);

/* Memory for the times, and for the leases, of 64 slots. 0 or QI_E_MEMORY. */
int qi_slots_time_room(struct qi_slots *slots);
int qi_slots_lease_room(struct qi_slots *slots);
/* Memory for the delivery counts of 64 slots; and: one more delivery of a slot that had one before.
 * 0 or QI_E_MEMORY. */
int qi_slots_count_room(struct qi_slots *slots);
int qi_slots_count_again(struct qi_slots *slots, uint32_t slot);
/* Memory for what the next delivery of a slot that had one before is going to note. */
int qi_slots_deliver_room(struct qi_slots *slots, uint32_t slot);

/* Memory for the delivery count that qi_segment_deliver is going to need, if it is: asked for
 * before a record is appended (H20). */
static inline int qi_segment_count_room(const struct qi_segment *segment, uint32_t slot) {
    struct qi_slots *slots = qi_slots_of(segment->hot, slot);
    return __builtin_expect(!qi_bit(slots->del, slot), 1) ? 0 : qi_slots_deliver_room(slots, slot);
}

/* References to message files. */
int qi_segment_use(struct qi_hot *hot, uint32_t file, int32_t count, int64_t bytes);
void qi_segment_name(uint64_t number, bool alt, char name[32]);

static inline struct qi_segment *qi_segment_with(struct qi_queue *queue, uint64_t req_id) {
    return qi_segment_find(&queue->segments, qi_segment_number(queue, req_id));
}

/* The only ways in which a queue's counts change: what it has, and what of that are dead
 * letters. */
static inline void qi_count_depth(struct qi_queue *queue, int64_t by) {
    queue->depth += (uint64_t)by;
    queue->store->depth += (uint64_t)by;
}
static inline void qi_count_dead(struct qi_queue *queue, int64_t by) {
    queue->dead += (uint64_t)by;
    queue->store->dead += (uint64_t)by;
}
static inline void qi_count_nothing(struct qi_queue *queue) {
    qi_count_depth(queue, -(int64_t)queue->depth);
    qi_count_dead(queue, -(int64_t)queue->dead);
    queue->store->bytes -= queue->bytes;
    queue->bytes = queue->delayed = 0;
    queue->measured = false;
}

/* ---- view ---- */

/* A reader's: are the journals that were read a pair of one moment? Has the queue changed since it
 * was read? Both read a few bytes of both journals. */
bool qi_pair_is_steady(struct qi_queue *queue);
bool qi_view_is_old(struct qi_queue *queue);

/* ---- timers ---- */

/* 8 bits of priority, 56 of microseconds since 1970: how a time stands in a record. 0: not
 * delayed. */
#define QI_TIME_US_BITS 56
#define QI_TIME_US_MASK ((UINT64_C(1) << QI_TIME_US_BITS) - 1)

/* Times that never come: the message is a dead letter, for this reason. And one that always has: it
 * was taken back from there, and is delivered once more whatever made it a dead letter. */
#define QI_DEAD        (QI_TIME_US_MASK - 0xFF)
#define QI_REDRIVEN_US 1u
/* Times below are not those of a message: 1, and 2 when it was delivered. */
#define QI_FIRST_US    3u

static inline bool qi_time_is_dead(uint64_t time) {
    return (time & QI_TIME_US_MASK) >= QI_DEAD;
}

/* Lanes of delayed messages: 256 by the half hour in which they are due, and 256 by the minute for
 * those that are due within an hour. */
#define QI_DELAY_LANES 256u
#define QI_FAR_LANE    256u
#define QI_NEAR_LANE   512u
#define QI_MINUTE_US   (UINT64_C(60) * 1000000)

static inline uint64_t qi_time_us(uint64_t time) {
    return time & QI_TIME_US_MASK;
}
/* A time that a caller gives, 0 being none: what would mean something else becomes the next that is
 * a time. */
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

/* Of a message with its segment's maps: by its lane, or in a lane of delayed ones by its time. */
uint32_t qi_priority_of(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot);

/* Memory for `count` times of messages from `slot` on, of `in_all` that one frame has: asked for
 * before a record is appended (H20). 0 or QI_E_MEMORY. */
int qi_time_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint32_t count,
                 uint32_t in_all);
/* A message that is alive and not out is delayed until then, or ready (0), by a record that is in
 * the journal. */
void qi_time_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot, uint64_t time);
/* A message that is held is delivered: in a lane of priorities nothing holds it afterwards,
 * whatever becomes of it. In a lane of delayed messages it goes back to its time, and one that was
 * redriven is as any other then. */
void qi_time_delivered(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
/* A message that is held leaves, or goes out: nothing holds it any more. */
void qi_time_drop(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
/* Of a segment that nobody read, no more than so many are held after all. */
void qi_held_at_most(struct qi_queue *queue, struct qi_segment *segment, uint32_t count);
/* Out no more and ready again, in its own place. */
void qi_release(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

/* In the id of an entry: any ReqId of a segment whose maps are not in memory. */
#define QI_SEGMENT_ENTRY (UINT64_C(1) << 63)
/* Does an entry of a message still count, by itself? */
bool qi_is_claimed(struct qi_queue *queue, const struct qi_timer *timer);

/* ---- due ---- */

/* Entries for the cold segments of a queue that was recovered. */
int qi_timers_begin(struct qi_queue *queue);
/* The delayed messages whose time has come are due; those that are due no more, because the wall
 * clock was set back, are delayed again. May read segments. 0 or an error. */
int qi_delayed_run(struct qi_queue *queue);
/* Something is due of which that did not come to know: there was enough. */
bool qi_delayed_waits(const struct qi_queue *queue);
/* The same for who may not wait: false if a segment has to be read for the next of them. */
bool qi_delayed_run_now(struct qi_queue *queue);
/* The first that is due: true and where. */
bool qi_due_first(struct qi_queue *queue, struct qi_segment **segment, uint32_t *slot,
                  uint32_t *priority);
/* The first is taken out of its heap, to be delivered; and: put back, if nothing came of it. */
void qi_due_take(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
void qi_due_put_back(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
/* The first that is due is put off for the rest of this look: it has expired, and nothing may be
 * changed. */
void qi_due_put_off(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

/* ---- timers_heads ---- */

/* Those that are due in the order in which they leave a full queue. Makes that order: 0 or
 * QI_E_MEMORY. */
int qi_due_heads_make(struct qi_queue *queue);
/* A message became due, or did not leave after all. If there is no memory, the order is made anew
 * when it is needed. */
void qi_due_heads_add(struct qi_queue *queue, const struct qi_segment *segment, uint32_t slot);
/* Takes the first of the priorities below that one; *head is the one that was taken before. False:
 * there is none. */
bool qi_due_heads_take(struct qi_queue *queue, uint32_t below, struct qi_timer *head);

/* ---- leases ---- */

/* Memory for one of `count` leases that begin together; then, the message being out, until when it
 * is. */
int qi_lease_room(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint32_t count);
void qi_lease_set(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                  uint64_t until_us);

/* Ends the leases that are over; every verb does, so that nobody settles what is not his any
 * more. */
void qi_leases_run_due(struct qi_queue *queue);
static inline void qi_leases_run(struct qi_queue *queue, const struct qi_timers *timers) {
    if (__builtin_expect(timers->leases.count != 0, 0))
        qi_leases_run_due(queue);
}

/* ---- timers_cold ---- */

/* The maps of a segment leave the memory; one entry stands for its delayed messages. */
void qi_cool(struct qi_queue *queue, struct qi_segment *segment);

/* The earliest time of what is held, or will be at the next open; UINT64_MAX: nothing is. Of a
 * segment with its maps. */
uint64_t qi_segment_due_us(const struct qi_queue *queue, const struct qi_segment *segment);
/* Heaps that are mostly out of date are made anew. O(their size), when half as much is out of date
 * as counts. */
void qi_timers_tidy(struct qi_queue *queue);

/* A segment that is not in memory has one entry for all its messages. */
static inline bool qi_waits_as_whole(const struct qi_segment *segment) {
    return segment->delayed > 0 && !(segment->hot && segment->hot->loaded);
}

/* ---- expiry ---- */

/* A message in it expires then (not 0). */
void qi_segment_expires(struct qi_queue *queue, struct qi_segment *segment, uint64_t expiry_us);

/* A message of the queue expires then: the bounds of the queue and of its store are not above
 * that. */
void qi_queue_expires(struct qi_queue *queue, uint64_t expiry_us);

static inline void qi_lower(uint64_t *bound, uint64_t expiry_us) {
    if (*bound == 0 || expiry_us < *bound)
        *bound = expiry_us;
}

/* The rules of the queue are known from now on. */
void qi_expire_rules(struct qi_queue *queue);

/* A message came back to a segment with `expired_out`: it is looked at again. */
void qi_expire_came_back(struct qi_queue *queue, struct qi_segment *segment);

/* ---- warm ---- */

/* A segment in which nothing is dirty or out: its maps are wanted soon all the same. */
bool qi_is_wanted_soon(struct qi_queue *queue, const struct qi_segment *segment, uint64_t now);

#define QI_SOON_US (UINT64_C(60) * 1000000) /* messages that are due by then stay in memory */

/* Its maps leave the memory, if nobody uses them. */
bool qi_cool_if_unused(struct qi_queue *queue, struct qi_segment *segment);

/* ---- segment ---- */

/* The three changes of state, after the journal has the record (H20). */
void qi_segment_publish(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                        uint32_t loc, uint32_t sum, bool transient);
void qi_segment_deliver(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);
void qi_segment_ack(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot);

/* The same for `count` slots that follow each other and have nothing special, word by word:
 * published for the first time; or published and not acked before, with no body in the message
 * store, not transient, not out. */
void qi_segment_publish_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count, uint32_t loc, const uint8_t *records,
                              uint32_t stride);
bool qi_segment_is_plain_range(const struct qi_segment *segment, uint32_t slot, uint32_t count);
void qi_segment_deliver_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                              uint32_t count);
void qi_segment_ack_range(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                          uint32_t count);

/* ---- segment_file ---- */

/* The publish record of a slot, valid until the next call for this queue. QI_E_CORRUPT: what stands
 * there is not the record that was valid before. */
int qi_segment_record(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                      const struct qi_published **record);

/* Whether qi_segment_record would find that record in memory, without reading a file. */
bool qi_segment_at_hand(const struct qi_queue *queue, const struct qi_segment *segment,
                        uint32_t slot);

/* What was read of its file is not the file any more. */
void qi_segment_forget_file(struct qi_queue *queue, struct qi_segment *segment);
/* Opens the file for reading and checks its header: a handle (>= 0) and the seed of its frames, or
 * an error. */
int qi_segment_open(struct qi_queue *queue, const struct qi_segment *segment, uint32_t *seed);

/* ---- segment_load ---- */

/* Reads the file's entries into the maps, once. Damage is isolated frame by frame, reported in the
 * store's findings and the counters follow what was found. Cost: reads the file once, O(its
 * size). */
int qi_segment_load(struct qi_queue *queue, struct qi_segment *segment);

/* So many living messages are in it, whatever was said before. */
void qi_segment_found(struct qi_queue *queue, struct qi_segment *segment, uint32_t unacked,
                      uint32_t transient);

/* ---- segment_uses ---- */

/* The references of a cold segment, its bytes and its bound of expiry, from its last summary; reads
 * one frame. 0 or an error; `uses` is malloc'd. */
int qi_segment_summary(struct qi_queue *queue, struct qi_segment *segment,
                       struct qi_file_use **uses, uint32_t *count, uint32_t *transient);

/* The references of any segment, hot or cold; exact. Its bound of expiry is known then. `uses` is
 * malloc'd. */
int qi_segment_uses(struct qi_queue *queue, struct qi_segment *segment, struct qi_file_use **uses,
                    uint32_t *count);
/* The same for who wants only what the summary says of the segment itself: its bytes, its bound of
 * expiry. */
int qi_segment_read_summary(struct qi_queue *queue, struct qi_segment *segment);

/* ---- bytes ---- */

/* How many bytes of headers and bodies wait: for queues that are measured (bytes.c), and at no cost
 * for others. */

/* Headers and body of a publish record, wherever they stand. */
static inline uint32_t qi_payload_of(const struct qi_fields *fields) {
    return qi_msg_id_is_set(fields->msg_id) ? qi_payload_length(qi_get_msg_id(fields->msg_id))
                                            : fields->embedded;
}

/* The size of a message, as long as its segment has maps. */
static inline uint32_t qi_size_of(const struct qi_segment *segment, uint32_t slot) {
    return qi_slots_of(segment->hot, slot)->size[slot & 63];
}

static inline void qi_count_bytes(struct qi_queue *queue, struct qi_segment *segment, int64_t by) {
    segment->bytes += (uint64_t)by;
    queue->bytes += (uint64_t)by;
    queue->store->bytes += (uint64_t)by;
}

/* So many wait in the segment, whatever was said before. */
static inline void qi_bytes_found(struct qi_queue *queue, struct qi_segment *segment,
                                  uint64_t bytes) {
    if (queue->measured)
        qi_count_bytes(queue, segment, (int64_t)(bytes - segment->bytes));
}

/* A message comes, its maps being there; it leaves; it becomes a dead letter; it is none any
 * more. */
static inline void qi_bytes_come(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot,
                                 uint32_t bytes) {
    if (__builtin_expect(!queue->measured, 1))
        return;
    qi_slots_of(segment->hot, slot)->size[slot & 63] = bytes;
    qi_count_bytes(queue, segment, bytes);
}
static inline void qi_bytes_go(struct qi_queue *queue, struct qi_segment *segment, uint32_t slot) {
    if (__builtin_expect(queue->measured, 0))
        qi_count_bytes(queue, segment, -(int64_t)qi_size_of(segment, slot));
}
static inline void qi_bytes_return(struct qi_queue *queue, struct qi_segment *segment,
                                   uint32_t slot) {
    if (__builtin_expect(queue->measured, 0))
        qi_count_bytes(queue, segment, qi_size_of(segment, slot));
}

/* What waits in a segment with its maps, of a queue that is measured. */
uint64_t qi_bytes_in_maps(struct qi_queue *queue, const struct qi_segment *segment);
/* The same, each message asked anew. 0 or an error: a record cannot be read. */
int qi_bytes_recount(struct qi_queue *queue, struct qi_segment *segment, uint64_t *bytes);

/* ---- measure ---- */

/* From now on the queue is measured. 0 or an error, and then it is not. Cost: the last summary of
 * each segment; those that are in memory, and those of which the summary does not know it, are
 * read. */
int qi_bytes_begin(struct qi_queue *queue);

/* ---- moments ---- */

/* When the oldest message that waits was published, at the latest, by the steady clock; UINT64_MAX:
 * no message waits. */
uint64_t qi_age_oldest(struct qi_queue *queue, uint64_t now);

/* What is published in the queue was published before now: noted with each sync, and when the
 * journals change places. */
void qi_age_note(struct qi_queue *queue);
/* The journals are about to change places: what they tell of the heads is noted. */
void qi_age_keep(struct qi_queue *queue);

#endif
