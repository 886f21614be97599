/* ledger.h - what threads were told about messages, and whether a memory or a disk agrees with it.
 * One thread at a time. */
#ifndef LEDGER_H
#define LEDGER_H

#include "corner.h"

#define QUEUES 2
#define PLACES 2048u

struct message {
    uint64_t key;                /* ReqId + 1; 0: free */
    uint64_t published, settled; /* when the verb returned, in ticks; 0: not yet */
    int acking, deleting;        /* verbs that have begun and may settle it */
    bool purging;                /* a purge has begun that may take it */
    uint32_t out, newest;        /* the delivery count of who has it, 0: nobody; of the last one */
    uint64_t leased_until;       /* not earlier; 0: without a lease */
    uint64_t due_us, expiry_us;  /* 0: at once, never; also while its publish has not returned */
    bool expiry_unknown;         /* it moved before its publish had returned */
};

static struct {
    struct corner corner;
    struct message messages[QUEUES][PLACES];
    uint64_t ticks;           /* verbs that returned */
    uint64_t durable[QUEUES]; /* those that returned by then survive a power cut */
    int publishing[QUEUES];   /* verbs that have begun and not returned */
    bool keeps_all;           /* what has expired is a dead letter */
    bool has_no_b;            /* it was deleted, or is on its way */
} ledger;

static qi_queue *queue_at(int q) {
    return q ? ledger.corner.b : ledger.corner.a;
}

static struct message *message_of(int q, uint64_t req_id) {
    uint32_t at = (uint32_t)((req_id * UINT64_C(0x9E3779B97F4A7C15)) >> 40);
    for (uint32_t tries = 0; tries < PLACES; tries++) {
        struct message *message = &ledger.messages[q][(at + tries) % PLACES];
        if (message->key == 0)
            message->key = req_id + 1;
        if (message->key == req_id + 1)
            return message;
    }
    assert(!"too many messages for the ledger");
    return NULL;
}

/* The clocks of the disk, by which stores on it go: times of messages by the wall clock, leases by
 * the steady one. */
static uint64_t now(void) {
    return ledger.corner.sim->wall_us;
}
static uint64_t steady(void) {
    return ledger.corner.sim->monotonic_us;
}

static bool has_expired(const struct message *message) {
    return !ledger.keeps_all &&
           (message->expiry_unknown || (message->expiry_us && message->expiry_us <= now()));
}

/* A ReqId that was given out; UINT64_MAX: none yet. */
static inline uint64_t some_message(int q, uint32_t at) {
    for (uint32_t tries = 0; tries < PLACES; tries++) {
        const struct message *message = &ledger.messages[q][(at + tries) % PLACES];
        if (message->published)
            return message->key - 1;
    }
    return UINT64_MAX;
}

/* ---- what is there ---- */

struct list {
    bool holds[PLACES]; /* as the ledger's places */
    uint32_t count;
};

/* All bytes of a body are its size: then it is known what must be read. */
static void check_body(const uint8_t *payload, const qi_message *message) {
    for (uint32_t i = 0; i < message->body_size; i++)
        assert(payload[i] == (uint8_t)message->body_size);
}

static struct list list_of(int q, qi_queue *queue) {
    struct list list = {.count = 0};
    uint8_t payload[300];
    qi_message message;
    uint64_t from = 0;
    int64_t size;
    while ((size = qi_browse(queue, from, false, &message, payload, sizeof payload)) >= 0) {
        check_body(payload, &message);
        list.holds[message_of(q, message.req_id) - ledger.messages[q]] = true;
        list.count++;
        from = message.req_id + 1;
    }
    assert(size == QI_EMPTY);
    return list;
}

static void assert_no_damage(qi_store *store) {
    int count = qi_store_check(store);
    assert(count >= 0);
    for (int i = 0; i < count; i++) {
        bool damage;
        const char *where, *text;
        uint64_t offset;
        assert(qi_store_finding(store, (uint32_t)i, &damage, &where, &offset, &text) == 0);
        if (damage)
            fprintf(stderr, "%s: %s\n", where, text);
        assert(!damage);
    }
}

/* What a disk shows when the process is gone; `upto`: what returned by then is there for sure. */
static void compare(const struct list *list, int q, uint64_t upto) {
    for (uint32_t i = 0; i < PLACES; i++) {
        const struct message *message = &ledger.messages[q][i];
        bool is_sure = message->published && message->published <= upto;
        bool may_go = message->acking || message->deleting || message->purging || message->settled;
        if (list->holds[i]) {
            assert(message->published || ledger.publishing[q] > 0);
            assert(!message->settled || message->settled > upto);
        } else {
            assert(!is_sure || may_go || has_expired(message));
        }
    }
}

static void look_at_copy(qi_sim *sim, qi_options options, const uint64_t upto[QUEUES]) {
    struct corner copy = {.sim = sim};
    options.worker = false;
    assert(sim);
    open_with(&copy, options);
    assert_no_damage(copy.store);
    for (int q = 0; q < (ledger.has_no_b ? 1 : QUEUES); q++) {
        qi_queue *queue = q ? copy.b : copy.a;
        struct list list = list_of(q, queue);
        assert(depth_of(queue) == list.count);
        compare(&list, q, upto[q]);
    }
    corner_end(&copy);
}

/* Nothing is under way any more: what is there is exactly what the ledger says. */
static void look_at_the_end(void) {
    assert_no_damage(ledger.corner.store);
    for (int q = 0; q < QUEUES; q++) {
        struct list list = list_of(q, queue_at(q));
        for (uint32_t i = 0; i < PLACES; i++) {
            const struct message *message = &ledger.messages[q][i];
            bool is_alive = message->published && !message->settled;
            if (has_expired(message) && !list.holds[i])
                continue;
            if (list.holds[i] != is_alive)
                fprintf(stderr, "%c: %llu should%s be there\n", 'a' + q,
                        (unsigned long long)message->key - 1, is_alive ? "" : " not");
            assert(list.holds[i] == is_alive);
        }
    }
}

#endif
