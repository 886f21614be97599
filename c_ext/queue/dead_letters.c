/* dead_letters.c - dead letters that move to another queue, as their queue says (`dead_to`).
 *
 * A message dies in its queue first (qi_bury: one record), and moves then, as a transaction of a
 * publish there and an ack here. So after any crash it is in one of the two queues, and what cannot
 * move is a dead letter like any other: nothing is lost if the other queue is missing or full, and
 * a death never waits. The verb that made the dead letter moves it before it returns; what it could
 * not move, and what an open finds, the background thread moves.
 *
 * A message that died in a queue by itself (expired, or the queue was full) and would come back
 * there without a consumer having had a say goes round for ever: it stays.
 */
#include "queue/queue_private.h"

#include <stdio.h>

#define AT_ONCE   256u             /* in one transaction */
#define ALL       (UINT64_MAX - 1) /* the last ReqId that is looked at */
#define LOOKED_AT 4096u            /* in one call, the lock being held */
#define SEGMENTS  8u               /* the same, since each may have to be read */
#define AGAIN_US                                                                                   \
    UINT64_C(1000000)             /* the other queue is full, or missing: twice as long each time */
#define LONG_US   (16 * AGAIN_US) /* but no longer */
#define RARELY_US (64 * AGAIN_US) /* what is left has reasons of its own, which may pass */
#define NEVER     UINT64_MAX

static bool may_move(const struct qi_queue *queue) {
    return queue->dead_to && !queue->dead_moving && !queue->deleted &&
           !queue->store->options.read_only && !queue->store->closing;
}

/* When there is something to do, by the steady clock. A pause is the target's; what was left for a
 * reason of its own has its own time, and delays nothing that comes. */
static uint64_t due_us(const struct qi_queue *queue) {
    if (!may_move(queue) || (!queue->dying && !queue->dead_left))
        return NEVER;
    uint64_t due = queue->dying ? 0 : queue->dead_left_us;
    return due > queue->dead_again_us ? due : queue->dead_again_us;
}

/* While somebody moves them, nothing is due: who ends a pass says when the next one is. */
static bool lower(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    uint64_t due = due_us(queue);
    if (due >= store->dead_due_us)
        return false;
    store->dead_due_us = due;
    return true;
}

static void add_range(struct qi_queue *queue, uint64_t from, uint64_t until) {
    if (!queue->dying || from < queue->dead_from)
        queue->dead_from = from;
    if (!queue->dying || until > queue->dead_until)
        queue->dead_until = until;
    queue->dying = true;
}

void qi_dead_came(struct qi_queue *queue, uint64_t req_id) {
    if (!queue->dead_to)
        return;
    add_range(queue, req_id, req_id);
    lower(queue);
    qi_store_dirty(queue->store);
}

/* The handle is looked up each time: the queue may be deleted, and made anew. One that nobody has
 * opened has limits that nobody knows. */
static struct qi_queue *find_target(const struct qi_queue *queue) {
    struct qi_queue *target = queue->store->find_queue(queue->store, queue->dead_to_directory);
    if (target == queue || (target && !target->rules_known))
        target = NULL;
    if (!target)
        qi_fail(QI_E_MISSING, "there is no queue %s, or nobody has opened it", queue->dead_to);
    return target;
}

/* It was in the other queue, and no consumer has had a say since. */
static bool goes_round(const struct qi_queue *queue, const struct qi_slots *slots, uint32_t slot) {
    struct qi_death deaths[QI_DEATHS_MAX];
    uint32_t count = qi_deaths_of_slot(queue, slots, slot, deaths);
    for (uint32_t i = 0; i < count; i++) {
        if (deaths[i].why == QI_DEAD_REJECTED || deaths[i].why == QI_DEAD_DELIVERIES)
            return false;
        if (deaths[i].name_size == queue->dead_to_size &&
            memcmp(deaths[i].name, queue->dead_to, queue->dead_to_size) == 0)
            return true;
    }
    return false;
}

/* Findings stay: the same line a second time would tell nothing. */
static bool was_reported(const struct qi_store *store, const char *line) {
    for (uint32_t i = 0; i < store->findings_count; i++)
        if (strcmp(store->findings[i].text, line) == 0)
            return true;
    return false;
}

/* Why some stay: once, until one has moved again. */
static void tell(struct qi_queue *queue, const char *text) {
    if (queue->dead_told || !queue->dead_to || queue->store->closing)
        return;
    queue->dead_told = true;
    char line[480];
    snprintf(line, sizeof line, "dead letters stay in queue %s and do not move to %s: %s",
             queue->name, queue->dead_to, text);
    if (!was_reported(queue->store, line))
        qi_report(queue->store, false, queue->directory, "", 0, "%s", line);
}

/* A pass over a queue's dead letters. */
struct pass {
    struct qi_queue *queue, *target;
    qi_change *changes; /* `room` */
    uint32_t room;
    uint32_t count;       /* of these */
    uint64_t from, until; /* the next ReqId to look at, and the last one */
    uint32_t looked;
    uint64_t segments[SEGMENTS]; /* that were looked at; their numbers */
    uint32_t segments_count;
    bool over; /* the queue names another target now */
};

/* False: this pass has looked at enough of them. */
static bool note_segment(struct pass *pass, uint64_t number) {
    if (pass->segments_count > 0 && pass->segments[pass->segments_count - 1] == number)
        return true;
    if (pass->segments_count == SEGMENTS)
        return false;
    pass->segments[pass->segments_count++] = number;
    return true;
}

/* A pass over many leaves no trail of maps in memory. */
static void cool_segments(const struct pass *pass) {
    for (uint32_t i = 0; i < pass->segments_count; i++) {
        struct qi_segment *segment = qi_segment_find(&pass->queue->segments, pass->segments[i]);
        if (segment)
            qi_cool_if_unused(pass->queue, segment);
    }
    qi_timers_tidy(pass->queue);
}

/* One that has a reason of its own, which may pass. */
static void leave(struct qi_queue *queue) {
    tell(queue, qi_error_text());
    if (!queue->dead_left)
        queue->dead_left_us = qi_steady_us(queue->store) + RARELY_US;
    queue->dead_left = true;
}

/* The next of them that may move, as changes: 0, QI_EMPTY if there is none, or the error. */
static int collect(struct pass *pass) {
    struct qi_queue *queue = pass->queue;
    struct qi_segment *segment;
    uint32_t slot;
    pass->count = 0;
    int error = qi_queue_ready(queue, false); /* what only looks writes nothing */
    for (; !error && pass->count < pass->room && pass->looked < LOOKED_AT; pass->looked++) {
        error = qi_find_dead(queue, &pass->from, pass->until + 1, &segment, &slot);
        if (error)
            break;
        if (!note_segment(pass, segment->number)) {
            pass->looked = LOOKED_AT;
            break;
        }
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        uint64_t req_id = pass->from++;
        if (qi_bit(slots->side, slot) && goes_round(queue, slots, slot)) {
            tell(queue, "a message died in each of them by itself, and would go round for ever");
            continue;
        }
        pass->changes[pass->count++] = (qi_change){.kind = QI_CHANGE_MOVE,
                                                   .queue = queue,
                                                   .to = pass->target,
                                                   .flags = QI_MOVE_FOR_EVER | QI_MOVE_DEAD,
                                                   .req_id = req_id};
    }
    return pass->count ? 0 : error;
}

static bool is_gone(int error) {
    return error == QI_E_ACKED || error == QI_E_UNKNOWN || error == QI_E_DELIVERED;
}

static bool is_full(int error) {
    return error == QI_E_QUEUE_FULL || error == QI_E_STORE_FULL;
}

/* It refused a message for its size: it has a place for a small one. */
static bool has_place_for_small(struct qi_queue *target) {
    if (qi_queue_has_place(target, 1, 1) != 0)
        return false;
    int error = qi_store_has_place(target->store, 1, 1, &target->heads);
    target->heads.count = 0;
    target->heads.bytes = 0;
    return error == 0;
}

/* Those that were collected, as many at a time as there is a place for. One that has an error of
 * its own stays, and the others go on. A transaction may give the lock up, so what is true before
 * one is asked again before the next. */
static int move(struct pass *pass) {
    struct qi_queue *queue = pass->queue;
    uint32_t count = pass->count, failed;
    for (uint32_t at = 0; at < pass->count;) {
        uint32_t left = pass->count - at;
        count = count < left ? count : left;
        if (!queue->dead_to || find_target(queue) != pass->target) {
            pass->over = true;
            pass->from = pass->changes[at].req_id;
            return 0;
        }
        if (QI_BUG(dead_acked_before_its_move))
            qi_append_event(queue, QI_ACK, pass->changes[at].req_id);
        int error = qi_transaction_locked(queue->store, pass->changes + at, count, false, &failed);
        if (!error) {
            queue->dead_told = queue->dead_told && queue->dead_left;
            queue->dead_pause_us = 0;
            at += count;
            count *= 2;
        } else if (failed > 0 && failed < count) {
            count = failed;
        } else if (failed == 0) {
            if (!is_gone(error))
                leave(queue);
            at++;
        } else if (count > 1 && is_full(error)) {
            count /= 2;
        } else if (is_full(error) && has_place_for_small(pass->target)) {
            leave(queue);
            at++;
        } else {
            pass->from = pass->changes[at].req_id; /* from here on another time */
            return error;
        }
    }
    return 0;
}

/* When the rest is looked at again. */
static void put_off(struct qi_queue *queue, const struct pass *pass, int error) {
    if (error != QI_EMPTY) /* not at the end yet */
        add_range(queue, pass->from, pass->until);
    if (error && error != QI_EMPTY) {
        uint64_t pause = queue->dead_pause_us ? 2 * queue->dead_pause_us : AGAIN_US;
        queue->dead_pause_us = pause < LONG_US ? pause : LONG_US;
        queue->dead_again_us = qi_steady_us(queue->store) + queue->dead_pause_us;
        tell(queue, qi_error_text());
    }
    if (lower(queue))
        qi_wake_worker(queue->store); /* it keeps the time */
}

void qi_dead_move(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    uint64_t now = qi_steady_us(store);
    if (due_us(queue) > now)
        return;
    if (queue->dead_left && queue->dead_left_us <= now) {
        add_range(queue, 0, ALL);
        queue->dead_left = false;
    }
    struct pass pass = {.queue = queue, .from = queue->dead_from, .until = queue->dead_until};
    pass.room = queue->dead < AT_ONCE ? (uint32_t)queue->dead + 1 : AT_ONCE;
    pass.changes = qi_calloc(pass.room, sizeof *pass.changes);
    pass.target = find_target(queue);
    int error = pass.changes ? 0 : QI_E_MEMORY;
    if (!error && !pass.target)
        error = QI_E_MISSING;
    queue->dead_moving = true;
    queue->dying = false;
    queue->dead_again_us = 0;
    while (!error && !pass.over && pass.looked < LOOKED_AT) {
        error = collect(&pass);
        if (!error)
            error = move(&pass);
    }
    qi_free(pass.changes);
    queue->dead_moving = false;
    if (!store->failed && !queue->deleted && qi_is_open(queue))
        cool_segments(&pass);
    if (!store->failed && !queue->deleted && queue->dead_to)
        put_off(queue, &pass, error);
}

void qi_dead_run(struct qi_store *store) {
    uint64_t now = qi_steady_us(store);
    if (store->dead_due_us > now)
        return;
    store->dead_due_us = NEVER;
    for (uint32_t i = 0; i < store->queues_count && !store->failed; i++) {
        if (due_us(store->queues[i]) <= now)
            qi_dead_move(store->queues[i]);
        lower(store->queues[i]);
    }
}

int qi_queue_set_dead_letters(struct qi_queue *queue, const char *name, size_t name_size,
                              const char *directory) {
    struct qi_store *store = queue->store;
    char *copy = name_size ? qi_malloc(name_size + 1) : NULL;
    qi_lock(store);
    int error = qi_store_usable(store, false);
    if (!error && name_size && !copy)
        error = qi_fail(QI_E_MEMORY, "no memory for the settings of a queue");
    if (!error && name_size && !store->commits)
        error = qi_fail(QI_E_FORMAT, "dead letters that move need a store of format 2");
    if (!error && name_size) {
        memcpy(copy, name, name_size);
        copy[name_size] = 0;
        memcpy(queue->dead_to_directory, directory, 32);
    }
    if (!error) {
        qi_free(queue->dead_to);
        queue->dead_to = copy;
        queue->dead_to_size = (uint32_t)name_size;
        queue->dying = queue->dead_left = queue->dead_told = false;
        queue->dead_again_us = queue->dead_pause_us = 0;
        copy = NULL;
    }
    if (!error && name_size && queue->dead > 0) {
        add_range(queue, 0, ALL);
        if (lower(queue))
            qi_wake_worker(store);
    }
    qi_unlock(store);
    qi_free(copy);
    return error;
}
