/* deaths.c - how a message became a dead letter, and how often: what m.deaths tells.
 *
 * Where it is, each reason has a side record of its own, DIED: it has a fixed size, so that the
 * record of a death has one, too. A move makes entries of DEATHS of them, with the name of the
 * queue, in front of those that the message has from queues before (transaction_steps.c).
 */
#include "queue/queue_private.h"

static bool is_same(const struct qi_death *one, const struct qi_death *other) {
    return one->why == other->why && one->name_size == other->name_size &&
           memcmp(one->name, other->name, one->name_size) == 0;
}

/* In its place by time. One of the same queue and reason, which came before it, takes it in: the
 * message has been there twice, and what it says now is later. */
static uint32_t insert(struct qi_death *deaths, uint32_t count, struct qi_death death) {
    for (uint32_t i = 0; i < count; i++)
        if (is_same(&deaths[i], &death)) {
            deaths[i].times += death.times;
            if (death.first_us < deaths[i].first_us)
                deaths[i].first_us = death.first_us;
            return count;
        }
    uint32_t at = count;
    while (at > 0 && deaths[at - 1].last_us < death.last_us)
        at--;
    if (at == QI_DEATHS_MAX)
        return count;
    count -= count == QI_DEATHS_MAX;
    memmove(deaths + at + 1, deaths + at, (count - at) * sizeof *deaths);
    deaths[at] = death;
    return count + 1;
}

static void read_numbers(const uint8_t *at, struct qi_death *death) {
    death->times = qi_get64(at);
    death->first_us = qi_get64(at + 8);
    death->last_us = qi_get64(at + 16);
}

/* What is in another form nobody can tell; it was not written by this version. */
static uint32_t insert_all(struct qi_death *deaths, uint32_t count, const struct qi_side *side) {
    for (uint32_t at = 0; side->size - at >= QI_DEATH_FIXED;) {
        const uint8_t *entry = side->bytes + at;
        uint32_t size = qi_get16(entry);
        if (side->size - at - QI_DEATH_FIXED < size)
            break;
        struct qi_death death = {
            .name = (const char *)entry + 2, .name_size = size, .why = entry[2 + size]};
        read_numbers(entry + 3 + size, &death);
        count = insert(deaths, count, death);
        at += QI_DEATH_FIXED + size;
    }
    return count;
}

static bool is_died(const struct qi_side *side) {
    return side->kind > QI_SIDE_DIED && side->kind <= QI_SIDE_DIED + QI_DEAD_FULL &&
           side->size == QI_DIED_SIZE;
}

bool qi_is_death(const struct qi_side *side) {
    return side->kind == QI_SIDE_DEATHS || is_died(side);
}

bool qi_has_died(const struct qi_slots *slots, uint32_t slot) {
    struct qi_side side;
    if (!qi_bit(slots->side, slot))
        return false;
    for (uint32_t at = 0; qi_side_next(slots->sides, slot, &at, &side);)
        if (qi_is_death(&side))
            return true;
    return false;
}

uint32_t qi_deaths_of_slot(const struct qi_queue *queue, const struct qi_slots *slots,
                           uint32_t slot, struct qi_death deaths[QI_DEATHS_MAX]) {
    struct qi_side side;
    uint32_t count = 0;
    for (uint32_t at = 0; qi_side_next(slots->sides, slot, &at, &side);)
        if (is_died(&side)) {
            struct qi_death death = {.name = queue->name,
                                     .name_size = queue->name_size,
                                     .why = side.kind - QI_SIDE_DIED};
            read_numbers(side.bytes, &death);
            count = insert(deaths, count, death);
        }
    /* Of the same time what was before comes behind. */
    for (uint32_t at = 0; qi_side_next(slots->sides, slot, &at, &side);)
        if (side.kind == QI_SIDE_DEATHS)
            count = insert_all(deaths, count, &side);
    return count;
}

uint32_t qi_deaths_size(const struct qi_death *deaths, uint32_t count) {
    uint32_t size = 0;
    for (uint32_t i = 0; i < count; i++)
        size += QI_DEATH_FIXED + deaths[i].name_size;
    return size;
}

void qi_deaths_put(uint8_t *at, const struct qi_death *deaths, uint32_t count) {
    for (const struct qi_death *death = deaths; death < deaths + count; death++) {
        qi_put16(at, (uint16_t)death->name_size);
        memcpy(at + 2, death->name, death->name_size);
        at += 2 + death->name_size;
        *at++ = (uint8_t)death->why;
        qi_put64(at, death->times);
        qi_put64(at + 8, death->first_us);
        qi_put64(at + 16, death->last_us);
        at += QI_DIED_SIZE;
    }
}

void qi_died_put(uint8_t *at, uint64_t req_id, const struct qi_slots *slots, uint32_t slot,
                 uint32_t why, uint64_t now_us) {
    uint8_t bytes[QI_DIED_SIZE];
    struct qi_side side;
    struct qi_death death = {.first_us = now_us};
    for (uint32_t next = 0; qi_side_next(slots->sides, slot, &next, &side);)
        if (side.kind == QI_SIDE_DIED + why && is_died(&side))
            read_numbers(side.bytes, &death);
    qi_put64(bytes, death.times + 1);
    qi_put64(bytes + 8, death.first_us);
    qi_put64(bytes + 16, now_us);
    side = (struct qi_side){QI_SIDE_DIED + why, QI_DIED_SIZE, bytes};
    qi_put_side(at, req_id, &side);
}

int64_t qi_deaths_of(struct qi_queue *queue, uint64_t req_id, void *bytes, size_t room) {
    struct qi_death deaths[QI_DEATHS_MAX];
    struct qi_segment *segment;
    uint32_t slot;
    qi_lock(queue->store);
    int64_t result = qi_queue_ready(queue, false);
    if (result == 0)
        result = qi_find_live(queue, req_id, &segment, &slot);
    if (result == 0) {
        const struct qi_slots *slots = qi_slots_of(segment->hot, slot);
        uint32_t count =
            qi_bit(slots->side, slot) ? qi_deaths_of_slot(queue, slots, slot, deaths) : 0;
        result = qi_deaths_size(deaths, count);
        if ((uint64_t)result <= room)
            qi_deaths_put(bytes, deaths, count);
    }
    qi_unlock(queue->store);
    return result;
}
