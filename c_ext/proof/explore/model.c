/* model.c - messages, the log, and the search for the prefix that explains what was seen. */
#include "proof/explore/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qindex.h"

static void *grown(void *array, uint32_t count, uint32_t *room, size_t size) {
    if (count < *room)
        return array;
    *room = *room ? *room * 2 : 64;
    array = realloc(array, *room * size);
    if (!array)
        abort();
    return array;
}

static uint64_t word_of(uint32_t serial, uint32_t at) {
    uint64_t mixed = ((uint64_t)serial << 32 | at) * UINT64_C(0x9E3779B97F4A7C15);
    return (mixed ^ mixed >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
}

void payload_fill(uint32_t serial, uint8_t *bytes, uint32_t size) {
    for (uint32_t at = 0; at < size; at += 8) {
        uint64_t word = word_of(serial, at);
        memcpy(bytes + at, &word, size - at < 8 ? size - at : 8);
    }
}

bool payload_is(uint32_t serial, const uint8_t *bytes, uint32_t size) {
    for (uint32_t at = 0; at < size; at += 8) {
        uint64_t word = word_of(serial, at);
        if (memcmp(bytes + at, &word, size - at < 8 ? size - at : 8) != 0)
            return false;
    }
    return true;
}

bool model_moment_is(const struct message *message, uint64_t published_us) {
    const uint64_t exactly_us = 1000; /* a MOMENT holds for so long */
    return message->published_us - published_us < exactly_us;
}

struct message *model_find(struct model_queue *queue, uint64_t id) {
    uint32_t low = 0, high = queue->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (queue->messages[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < queue->count && queue->messages[low].id == id ? &queue->messages[low] : NULL;
}

uint32_t model_lane(uint64_t id) {
    return (uint32_t)(id >> 52);
}

uint64_t model_dead(uint32_t why) {
    return (UINT64_C(1) << 56) - 256 + why;
}

bool model_is_delay_lane(uint64_t id) {
    return model_lane(id) >= 256;
}

static void apply(const struct message *message, struct state *state, const struct event *event) {
    switch (event->kind) {
    case EVENT_PUBLISH:
        state->published = true;
        break;
    case EVENT_DELIVER:
        state->deliveries++;
        if (!model_is_delay_lane(message->id))
            state->time = 0;
        else if (state->time == MODEL_REDRIVEN)
            state->time++; /* it is as any other again */
        break;
    case EVENT_ACK:
        state->acked = true;
        break;
    default:
        state->time = event->time;
    }
}

static void log_event(struct model_queue *queue, struct message *message, struct event event) {
    queue->log = grown(queue->log, queue->log_count, &queue->log_room, sizeof *queue->log);
    event.message = (uint32_t)(message - queue->messages);
    event.transaction = queue->transaction;
    queue->log[queue->log_count++] = event;
    apply(message, &message->now, &event);
    if (event.kind == EVENT_ACK)
        message->out = false;
}

void model_event(struct model_queue *queue, enum event_kind kind, struct message *message,
                 bool ends_frame) {
    log_event(queue, message, (struct event){.kind = kind, .ends_frame = ends_frame});
}

void model_time(struct model_queue *queue, struct message *message, uint64_t time,
                bool ends_frame) {
    log_event(queue, message,
              (struct event){.kind = EVENT_TIME, .ends_frame = ends_frame, .time = time});
}

struct message *model_publish(struct model *model, struct model_queue *queue, uint64_t id,
                              bool ends_frame) {
    queue->messages = grown(queue->messages, queue->count, &queue->room, sizeof *queue->messages);
    uint32_t at = queue->count++;
    while (at > 0 && queue->messages[at - 1].id > id)
        at--;
    struct message *message = &queue->messages[at];
    memmove(message + 1, message, (queue->count - 1 - at) * sizeof *message);
    for (uint32_t i = 0; i < queue->log_count; i++)
        queue->log[i].message += queue->log[i].message >= at;
    *message = (struct message){.id = id, .serial = model->serial};
    model_event(queue, EVENT_PUBLISH, message, ends_frame);
    return message;
}

uint32_t model_deliver_fewer(struct model_queue *queue, uint32_t count, uint32_t left) {
    for (; count > left; count--) {
        const struct event *event = &queue->log[--queue->log_count];
        queue->messages[event->message].now.deliveries--;
    }
    queue->log[queue->log_count - 1].ends_frame = true;
    return left;
}

uint64_t model_next_min(const struct model_queue *queue, uint32_t lane) {
    for (uint32_t i = 0; i < queue->given_count; i++)
        if (queue->given[i].lane == lane)
            return queue->given[i].next;
    return 0;
}

bool model_had(const struct model_queue *queue, uint64_t id, const uint8_t *payload,
               uint32_t size) {
    for (uint32_t i = 0; i < queue->past_count; i++) {
        const struct message *past = &queue->past[i];
        if (past->id == id && past->headers_size + past->body_size == size &&
            payload_is(past->serial, payload, size))
            return true;
    }
    return false;
}

static void note_given(struct model_queue *queue, uint64_t id) {
    uint32_t i = 0, lane = model_lane(id);
    while (i < queue->given_count && queue->given[i].lane != lane)
        i++;
    if (i == queue->given_count) {
        queue->given = grown(queue->given, i, &queue->given_room, sizeof *queue->given);
        queue->given[queue->given_count++] = (struct given){.lane = lane};
    }
    if (id >= queue->given[i].next)
        queue->given[i].next = id + 1;
}

void model_returned(struct model_queue *queue) {
    for (; queue->returned < queue->log_count; queue->returned++) {
        const struct event *event = &queue->log[queue->returned];
        if (event->kind == EVENT_PUBLISH)
            note_given(queue, queue->messages[event->message].id);
    }
}

/* Messages that are over leave the row; the log is empty, so nothing points at them. */
void model_synced(struct model_queue *queue) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < queue->log_count; i++)
        if (queue->log[i].transaction)
            queue->confirmed = queue->log[i].transaction;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct message *message = &queue->messages[i];
        message->durable = message->now;
        if (message->now.published && !message->now.acked)
            queue->messages[kept++] = *message;
    }
    queue->count = kept;
    queue->log_count = queue->returned = 0;
}

void model_forget(struct model_queue *queue) {
    queue->count = queue->log_count = queue->returned = queue->given_count = 0;
    queue->past_count = 0;
    queue->transaction = queue->confirmed = 0;
}

void model_free(struct model *model) {
    for (int i = 0; i < QUEUES; i++) {
        free(model->queues[i].messages);
        free(model->queues[i].log);
        free(model->queues[i].given);
        free(model->queues[i].past);
    }
    free(model->keys.log);
}

/* ---- what a crash may leave ---- */

static bool is_alive(const struct message *message, const struct state *state, enum ended ended) {
    return state->published && !state->acked && !(message->transient && ended == UNCLEAN);
}

/* Its last delivery ended with the session: the first look makes it a dead letter. */
static bool explains_time(const struct model_queue *queue, const struct state *state,
                          uint64_t due_us) {
    uint32_t most = queue->max_deliveries;
    bool spent =
        most && state->deliveries && state->deliveries % most == 0 && state->time != MODEL_REDRIVEN;
    return due_us == state->time || (spent && due_us == model_dead(QI_DEAD_DELIVERIES));
}

/* Does the state explain what was seen of the message (NULL: nothing)? */
static bool explains(const struct model_queue *queue, const struct message *message,
                     const struct state *state, const struct seen *seen, enum ended ended) {
    if (!is_alive(message, state, ended))
        return seen == NULL;
    if (!seen || seen->deliveries != state->deliveries ||
        !explains_time(queue, state, seen->due_us))
        return false;
    bool redelivered = ended == UNCLEAN || message->old || state->deliveries > 0;
    return redelivered == ((seen->flags & QI_REDELIVERED) != 0);
}

/* The message that no prefix explains, for people. */
static void accuse(const struct model_queue *queue, const struct seen *const *of, enum ended ended,
                   bool killed, struct verdict *verdict) {
    for (uint32_t i = 0; i < queue->count; i++) {
        const struct message *message = &queue->messages[i];
        bool durable = message->durable.published || killed;
        bool acked = message->durable.acked || (killed && message->now.acked);
        const char *what = NULL;
        if (of[i] && acked)
            what = "a confirmed ack came back";
        else if (of[i] && message->transient && ended == UNCLEAN)
            what = "a transient message lived through an unclean end";
        else if (of[i] && ended == UNCLEAN && !(of[i]->flags & QI_REDELIVERED))
            what = "a message from before an unclean end does not say redelivered";
        else if (!of[i] && durable && !message->now.acked &&
                 is_alive(message, &message->now, ended))
            what = "a confirmed publish is lost";
        if (!what)
            continue;
        snprintf(verdict->text, sizeof verdict->text,
                 "%s: id %llu (%u bytes, delivered %u, seen %d times, due %llu, seen %llu)", what,
                 (unsigned long long)message->id, message->body_size, message->now.deliveries,
                 of[i] ? (int)of[i]->deliveries : -1, (unsigned long long)message->now.time,
                 of[i] ? (unsigned long long)of[i]->due_us : 0);
        return;
    }
    snprintf(verdict->text, sizeof verdict->text,
             "no prefix of the %u unconfirmed frames explains what is there: torn batch, hole, "
             "wrong count or wrong time",
             queue->log_count);
}

bool cuts_note(struct cuts *cuts, uint32_t confirmed, const struct log_shape *log,
               uint32_t applied) {
    uint32_t least = confirmed, next = 0;
    for (uint32_t i = 0; i < log->count && !next; i++) {
        uint32_t transaction;
        memcpy(&transaction, (const char *)log->entries + i * log->size + log->transaction,
               sizeof transaction);
        if (i < applied && transaction)
            least = transaction;
        else if (transaction)
            next = transaction;
    }
    for (uint32_t i = least; i < (next ? next : TRANSACTIONS + 1); i++)
        cuts->may_be[i] = true;
    return next != 0;
}

/* The first `applied` events of the queue explain it. True if others may be possible, too. */
static bool note_cuts(const struct model_queue *queue, uint32_t applied, struct cuts *cuts) {
    const struct log_shape log = {queue->log, sizeof *queue->log,
                                  offsetof(struct event, transaction), queue->log_count};
    return cuts_note(cuts, queue->confirmed, &log, applied);
}

bool model_allows(const struct model_queue *queue, const struct seen *seen, uint32_t count,
                  enum ended ended, bool killed, struct cuts *cuts, struct verdict *verdict) {
    const struct seen *stack_of[256];
    struct state stack_states[256];
    bool small = queue->count <= 256;
    const struct seen **of = small ? stack_of : malloc(queue->count * sizeof *of);
    struct state *states = small ? stack_states : malloc(queue->count * sizeof *states);
    if (!of || !states)
        abort();
    verdict->text[0] = 0;
    uint32_t wrong = 0, found = 0;
    for (uint32_t i = 0; i < queue->count; i++) {
        const struct message *message = &queue->messages[i];
        while (found < count && seen[found].id < message->id)
            found++; /* unknown ids are found by who saw them */
        of[i] = found < count && seen[found].id == message->id ? &seen[found] : NULL;
        states[i] = message->durable;
        wrong += !explains(queue, message, &states[i], of[i], ended);
    }
    bool allowed = wrong == 0 && (!killed || queue->returned == 0);
    *cuts = (struct cuts){0};
    bool go_on = !allowed || note_cuts(queue, 0, cuts);
    for (uint32_t i = 0; i < queue->log_count && go_on; i++) {
        const struct event *event = &queue->log[i];
        const struct message *message = &queue->messages[event->message];
        struct state *state = &states[event->message];
        wrong -= !explains(queue, message, state, of[event->message], ended);
        apply(message, state, event);
        wrong += !explains(queue, message, state, of[event->message], ended);
        if (wrong == 0 && event->ends_frame && (!killed || i + 1 >= queue->returned)) {
            allowed = true;
            go_on = note_cuts(queue, i + 1, cuts);
        }
    }
    if (!allowed)
        accuse(queue, of, ended, killed, verdict);
    if (!small) {
        free(of);
        free(states);
    }
    return allowed;
}

void model_rebase(struct model_queue *queue, const struct seen *seen, uint32_t count,
                  enum ended ended) {
    uint32_t kept = 0, found = 0;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct message message = queue->messages[i];
        while (found < count && seen[found].id < message.id)
            found++;
        if (found == count || seen[found].id != message.id) {
            queue->past =
                grown(queue->past, queue->past_count, &queue->past_room, sizeof *queue->past);
            queue->past[queue->past_count++] = message;
            continue;
        }
        message.now = (struct state){.published = true,
                                     .deliveries = (uint16_t)seen[found].deliveries,
                                     .time = seen[found].due_us};
        message.durable = message.now;
        message.out = false;
        message.lease_us = 0;
        message.old = message.old || ended == UNCLEAN;
        queue->messages[kept++] = message;
    }
    queue->count = kept;
    queue->log_count = queue->returned = queue->transaction = queue->confirmed = 0;
}
