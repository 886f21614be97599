/* sides.c - what belongs to a message beside its body and headers: its side records, in memory.
 *
 * Few messages have any, so they stand in one list for each piece of 64 slots, one behind the
 * other: slot 1, what the journal says of it 1, kind 2, size 4, the bytes. Of each kind of a slot
 * there is one, the last.
 */
#include "index/index_private.h"

#define HEAD 8u

static uint32_t size_at(const struct qi_sides *sides, uint32_t at) {
    uint32_t size;
    memcpy(&size, sides->bytes + at + 4, sizeof size);
    return HEAD + size;
}

static uint32_t kind_at(const struct qi_sides *sides, uint32_t at) {
    uint16_t kind;
    memcpy(&kind, sides->bytes + at + 2, sizeof kind);
    return kind;
}

static void remove_at(struct qi_sides *sides, uint32_t at) {
    uint32_t size = size_at(sides, at);
    memmove(sides->bytes + at, sides->bytes + at + size, sides->used - at - size);
    sides->used -= size;
}

/* Acked messages have none any more. */
static void forget_acked(struct qi_slots *slots) {
    struct qi_sides *sides = slots->sides;
    for (uint32_t at = 0; at < sides->used;) {
        uint32_t slot = sides->bytes[at];
        if (qi_bit(slots->ack, slot)) {
            qi_clear_bit(&slots->side, slot);
            remove_at(sides, at);
        } else {
            at += size_at(sides, at);
        }
    }
}

int qi_side_room(struct qi_slots *slots, uint32_t kind, uint32_t size) {
    if (kind == QI_SIDE_PUBLISHED) /* they stand elsewhere */
        return qi_instant_room_for_all(&slots->published);
    struct qi_sides *sides = slots->sides;
    uint64_t more_bytes = (sides ? sides->promised : 0) + (uint64_t)HEAD + size;
    uint64_t need = (sides ? sides->used : 0) + more_bytes;
    if (sides && need > sides->room) {
        forget_acked(slots);
        need = sides->used + more_bytes;
    }
    if (sides && need <= sides->room) {
        sides->promised = (uint32_t)more_bytes;
        return 0;
    }
    uint64_t room = need < 32 ? 64 : 2 * need;
    struct qi_sides *more =
        room <= UINT32_MAX ? qi_realloc(sides, sizeof *sides + (size_t)room) : NULL;
    if (!more)
        return qi_fail(QI_E_MEMORY, "no memory for what belongs to messages");
    if (!sides)
        more->used = 0;
    more->room = (uint32_t)room;
    more->promised = (uint32_t)more_bytes;
    slots->sides = more;
    return 0;
}

void qi_side_room_unused(struct qi_slots *slots) {
    if (slots->sides)
        slots->sides->promised = 0;
}

bool qi_side_next(const struct qi_sides *sides, uint32_t slot, uint32_t *at, struct qi_side *side) {
    while (sides && *at < sides->used) {
        uint32_t here = *at;
        *at += size_at(sides, here);
        if (sides->bytes[here] == (slot & 63)) {
            *side = (struct qi_side){kind_at(sides, here), size_at(sides, here) - HEAD,
                                     sides->bytes + here + HEAD};
            return true;
        }
    }
    return false;
}

/* The one of that kind; UINT32_MAX: there is none. */
static uint32_t find(const struct qi_slots *slots, uint32_t slot, uint32_t kind) {
    const struct qi_sides *sides = slots->sides;
    for (uint32_t at = 0; sides && at < sides->used; at += size_at(sides, at))
        if (sides->bytes[at] == (slot & 63) && kind_at(sides, at) == kind)
            return at;
    return UINT32_MAX;
}

void qi_side_put(struct qi_slots *slots, uint32_t slot, const struct qi_side *side, bool is_news) {
    if (side->kind == QI_SIDE_PUBLISHED) {
        if (side->size == 8)
            qi_instant_set(&slots->published, slots->pub, slot,
                           qi_get64(side->bytes) & QI_INSTANT_MASK);
        return;
    }
    uint32_t promised = slots->sides->promised, kept = HEAD + side->size;
    slots->sides->promised = promised < kept ? 0 : promised - kept;
    uint32_t old = find(slots, slot, side->kind);
    if (old != UINT32_MAX && !is_news && slots->sides->bytes[old + 1])
        return; /* a journal that was replayed knows better than the file */
    if (old != UINT32_MAX)
        remove_at(slots->sides, old);
    struct qi_sides *sides = slots->sides;
    uint8_t *at = sides->bytes + sides->used;
    uint16_t kind = (uint16_t)side->kind;
    at[0] = (uint8_t)(slot & 63);
    at[1] = is_news;
    memcpy(at + 2, &kind, sizeof kind);
    memcpy(at + 4, &side->size, sizeof side->size);
    memcpy(at + HEAD, side->bytes, side->size);
    sides->used += HEAD + side->size;
    qi_set_bit(&slots->side, slot);
    if (is_news)
        qi_set_bit(&slots->jside, slot);
}

void qi_sides_unload(struct qi_slots *slots) {
    struct qi_sides *sides = slots->sides;
    slots->side = 0;
    for (uint32_t at = 0; sides && at < sides->used;) {
        if (!sides->bytes[at + 1]) {
            remove_at(sides, at);
            continue;
        }
        qi_set_bit(&slots->side, sides->bytes[at]);
        at += size_at(sides, at);
    }
}

struct qi_uncounted qi_uncounted_of(const struct qi_slots *slots, uint32_t slot) {
    uint32_t at = find(slots, slot, QI_SIDE_UNCOUNTED);
    if (at == UINT32_MAX || size_at(slots->sides, at) != HEAD + QI_UNCOUNTED_SIZE)
        return (struct qi_uncounted){0, 0};
    const uint8_t *bytes = slots->sides->bytes + at + HEAD;
    return (struct qi_uncounted){qi_get32(bytes), qi_get32(bytes + 4)};
}

uint64_t qi_own_lease_us(const struct qi_slots *slots, uint32_t slot) {
    uint32_t at = find(slots, slot, QI_SIDE_LEASE);
    return at == UINT32_MAX ? 0 : qi_get64(slots->sides->bytes + at + HEAD);
}

uint32_t qi_delivery_count(const struct qi_slots *slots, uint32_t slot) {
    uint32_t all = qi_handed_out(slots, slot);
    if (__builtin_expect(!qi_bit(slots->side, slot), 1))
        return all;
    uint32_t less = qi_uncounted_of(slots, slot).count;
    return less < all ? all - less : 0;
}

bool qi_is_tried_out(const struct qi_slots *slots, uint32_t slot, uint32_t most) {
    uint32_t count = most ? qi_delivery_count(slots, slot) : 0;
    return count > 0 && count % most == 0 &&
           !(qi_bit(slots->side, slot) &&
             qi_uncounted_of(slots, slot).last == qi_handed_out(slots, slot));
}
