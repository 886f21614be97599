/* stage.h - threads whose every turn is decided by a seed: the same seed plays the same schedule.
 *
 * Actors are real threads, the engine's worker among them, but only one runs at a time. At each
 * lock, unlock, wait and call for the disk it may hand its turn to another that could go on; the
 * dice say to whom. Locks and conditions are told apart by their addresses and kept here: the
 * linker puts the functions below in front of the system's (--wrap). A wait with a time may end at
 * any turn. If nobody can go on, that is a deadlock, and the play fails.
 */
#ifndef STAGE_H
#define STAGE_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ACTORS 6
#define LOCKS  16

int __real_pthread_mutex_lock(pthread_mutex_t *);
int __real_pthread_mutex_trylock(pthread_mutex_t *);
int __real_pthread_mutex_unlock(pthread_mutex_t *);
int __real_pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int __real_pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
int __real_pthread_cond_signal(pthread_cond_t *);
int __real_pthread_cond_broadcast(pthread_cond_t *);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __real_pthread_join(pthread_t, void **);

struct actor {
    pthread_t thread;
    void *(*play)(void *);
    void *argument;
    bool is_on;             /* from its creation until it has ended */
    const void *needs_lock; /* it cannot go on before that is free */
    const void *sleeps_on;  /* a condition, */
    bool has_time, woken;   /* whose wait ends by itself */
    int needs_end_of;       /* an actor; -1: of nobody */
};

static struct {
    struct actor actors[ACTORS];
    int count, running;
    struct {
        const void *lock;
        int owner;
    } owned[LOCKS];
    pthread_mutex_t baton;
    pthread_cond_t turns_to[ACTORS];
    uint64_t dice;
    uint32_t stays;            /* of 256 turns that could go to another, so many do not */
    uint64_t turns, turns_max; /* after so many, nobody gets anywhere */
    bool is_open;              /* else the functions below are the system's */
    void (*at_turn)(void);
} stage;

static __thread int me = -1;

static uint32_t roll(uint32_t sides) {
    stage.dice ^= stage.dice << 13;
    stage.dice ^= stage.dice >> 7;
    stage.dice ^= stage.dice << 17;
    return (uint32_t)((stage.dice >> 11) % sides);
}

/* ---- whose turn it is ---- */

static int owner_of(const void *lock) {
    for (int i = 0; i < LOCKS; i++)
        if (stage.owned[i].lock == lock)
            return stage.owned[i].owner;
    return -1;
}

static void own(const void *lock, int owner) {
    for (int i = 0; i < LOCKS; i++) {
        if (stage.owned[i].lock != (owner < 0 ? lock : NULL))
            continue;
        stage.owned[i].lock = owner < 0 ? NULL : lock;
        stage.owned[i].owner = owner;
        return;
    }
    assert(!"an unlock of what nobody has, or too many locks");
}

static bool can_go_on(int i) {
    const struct actor *actor = &stage.actors[i];
    if (!actor->is_on || (actor->needs_lock && owner_of(actor->needs_lock) >= 0) ||
        (actor->needs_end_of >= 0 && stage.actors[actor->needs_end_of].is_on))
        return false;
    return !actor->sleeps_on || actor->woken || actor->has_time;
}

static void fail_play(const char *why) {
    for (int i = 0; i < stage.count; i++)
        fprintf(stderr, "actor %d:%s%s%s\n", i, stage.actors[i].is_on ? "" : " has ended",
                stage.actors[i].needs_lock ? " waits for a lock" : "",
                !stage.actors[i].sleeps_on ? ""
                : stage.actors[i].has_time ? " waits for a time"
                                           : " waits to be woken");
    fprintf(stderr, "%s\n", why);
    abort();
}

static int next_one(void) {
    if (me >= 0 && can_go_on(me) && roll(256) < stage.stays)
        return me;
    int able[ACTORS], count = 0;
    for (int i = 0; i < stage.count; i++)
        if (can_go_on(i))
            able[count++] = i;
    if (count == 0)
        fail_play("nobody can go on");
    return able[roll((uint32_t)count)];
}

static void wait_for_turn(void) {
    while (stage.running != me)
        __real_pthread_cond_wait(&stage.turns_to[me], &stage.baton);
}

/* A place where another thread could come in. */
static void give_turn(void) {
    if (++stage.turns > stage.turns_max)
        fail_play("so many turns, and it does not end");
    if (stage.at_turn)
        stage.at_turn();
    int next = next_one();
    if (next == me)
        return;
    __real_pthread_mutex_lock(&stage.baton);
    stage.running = next;
    __real_pthread_cond_signal(&stage.turns_to[next]);
    wait_for_turn();
    __real_pthread_mutex_unlock(&stage.baton);
}

/* ---- in front of the system's ---- */

static bool is_played(void) {
    return stage.is_open && me >= 0;
}

static void take(pthread_mutex_t *mutex) {
    stage.actors[me].needs_lock = mutex;
    while (owner_of(mutex) >= 0)
        give_turn();
    stage.actors[me].needs_lock = NULL;
    own(mutex, me);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (!is_played())
        return __real_pthread_mutex_lock(mutex);
    give_turn();
    take(mutex);
    return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex) {
    if (!is_played())
        return __real_pthread_mutex_trylock(mutex);
    give_turn();
    if (owner_of(mutex) >= 0)
        return EBUSY;
    own(mutex, me);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (!is_played())
        return __real_pthread_mutex_unlock(mutex);
    assert(owner_of(mutex) == me);
    own(mutex, -1);
    give_turn();
    return 0;
}

static int sleep_on(pthread_cond_t *condition, pthread_mutex_t *mutex, bool has_time) {
    struct actor *actor = &stage.actors[me];
    assert(owner_of(mutex) == me);
    own(mutex, -1);
    actor->sleeps_on = condition;
    actor->has_time = has_time;
    actor->woken = false;
    give_turn();
    actor->sleeps_on = NULL;
    bool woken = actor->woken;
    take(mutex);
    return woken ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    return is_played() ? sleep_on(condition, mutex, false)
                       : __real_pthread_cond_wait(condition, mutex);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until) {
    return is_played() ? sleep_on(condition, mutex, true)
                       : __real_pthread_cond_timedwait(condition, mutex, until);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition) {
    if (!is_played())
        return __real_pthread_cond_broadcast(condition);
    for (int i = 0; i < stage.count; i++)
        if (stage.actors[i].sleeps_on == condition)
            stage.actors[i].woken = true;
    return 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *condition) {
    if (!is_played())
        return __real_pthread_cond_signal(condition);
    int first = (int)roll(ACTORS);
    for (int i = 0; i < stage.count; i++) {
        struct actor *actor = &stage.actors[(first + i) % stage.count];
        if (actor->sleeps_on == condition && !actor->woken) {
            actor->woken = true;
            break;
        }
    }
    return 0;
}

static void *come_on(void *actor_) {
    struct actor *actor = actor_;
    me = (int)(actor - stage.actors);
    __real_pthread_mutex_lock(&stage.baton);
    wait_for_turn();
    __real_pthread_mutex_unlock(&stage.baton);
    void *result = actor->play(actor->argument);
    __real_pthread_mutex_lock(&stage.baton);
    actor->is_on = false;
    stage.running = next_one();
    __real_pthread_cond_signal(&stage.turns_to[stage.running]);
    __real_pthread_mutex_unlock(&stage.baton);
    return result;
}

static int cast(void *(*play)(void *), void *argument) {
    int i = stage.count++;
    assert(i < ACTORS);
    stage.actors[i] =
        (struct actor){.play = play, .argument = argument, .is_on = true, .needs_end_of = -1};
    return i;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*play)(void *), void *argument) {
    if (!is_played())
        return __real_pthread_create(thread, attributes, play, argument);
    struct actor *actor = &stage.actors[cast(play, argument)];
    int error = __real_pthread_create(thread, attributes, come_on, actor);
    assert(error == 0);
    actor->thread = *thread;
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result) {
    for (int i = 0; is_played() && i < stage.count; i++)
        if (i != me && pthread_equal(stage.actors[i].thread, thread)) {
            stage.actors[me].needs_end_of = i;
            give_turn();
            stage.actors[me].needs_end_of = -1;
        }
    return __real_pthread_join(thread, result);
}

/* ---- a play ---- */

/* The thread that calls this is the first actor. */
static void stage_open(uint64_t seed, uint32_t stays, uint64_t turns_max, void (*at_turn)(void)) {
    stage.count = 0;
    stage.running = me = cast(NULL, NULL);
    for (int i = 0; i < LOCKS; i++)
        stage.owned[i].lock = NULL;
    stage.dice = seed * UINT64_C(0x9E3779B97F4A7C15) + 0x2545F4914F6CDD1D;
    stage.stays = stays;
    stage.turns = 0;
    stage.turns_max = turns_max;
    stage.at_turn = at_turn;
    stage.is_open = true;
}

static void stage_close(void) {
    for (int i = 1; i < stage.count; i++)
        assert(!stage.actors[i].is_on);
    stage.is_open = false;
    me = -1;
}

/* Once, before the first play. One processor: the turns go from thread to thread faster. */
static void stage_build(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_mutex_init(&stage.baton, NULL);
    for (int i = 0; i < ACTORS; i++)
        pthread_cond_init(&stage.turns_to[i], NULL);
}

#endif
