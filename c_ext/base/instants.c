/* instants.c - when messages were published, in memory.
 *
 * Messages that were published at the same time mostly stand side by side, so that 64 slots have
 * one word for all of them. A slow queue has a word for each message. The times come from MOMENT
 * frames of journals, from MOMENTS frames of segments, and from side records of messages that were
 * moved.
 */
#include <string.h>

#include "base/base.h"

/* Is a message behind `slot` and before `end`? */
static bool has_between(uint64_t pub, uint32_t slot, uint32_t end) {
    uint64_t behind = slot == 63 ? 0 : pub >> (slot + 1);
    return (behind & ((UINT64_C(1) << (end - slot - 1)) - 1)) != 0;
}

static uint64_t word_of(uint32_t slot, uint64_t us) {
    return (uint64_t)slot << QI_INSTANT_BITS | us;
}

static uint32_t slot_of(uint64_t word) {
    return (uint32_t)(word >> QI_INSTANT_BITS);
}

/* How many words there are, and the first of them. */
static uint32_t words_of(const struct qi_instants *instants, const uint64_t **words) {
    *words = instants->more ? instants->more->items : &instants->last;
    return instants->more ? instants->more->count : instants->last != 0;
}

uint64_t qi_instant_among(const struct qi_instants *instants, uint32_t slot) {
    const uint64_t *words;
    uint32_t at = words_of(instants, &words);
    while (at > 0 && slot_of(words[at - 1]) > (slot & 63))
        at--;
    return at ? words[at - 1] & QI_INSTANT_MASK : 0;
}

/* No other message is there, so that no time of one has to be kept. */
static bool is_alone(const struct qi_instants *instants, uint64_t pub, uint32_t slot) {
    return !instants->more && (pub & ~(UINT64_C(1) << (slot & 63))) == 0;
}

static int grow(struct qi_instants *instants, uint32_t room) {
    const uint64_t *words;
    uint32_t count = words_of(instants, &words);
    struct qi_instant_words *more =
        qi_realloc(instants->more, sizeof *more + (size_t)room * sizeof *more->items);
    if (!more)
        return qi_fail(QI_E_MEMORY, "no memory for when messages were published");
    if (!instants->more && count)
        more->items[0] = instants->last;
    more->count = count;
    more->room = room;
    instants->more = more;
    return 0;
}

int qi_instant_room_slowly(struct qi_instants *instants, uint64_t pub, uint32_t slot, uint64_t us) {
    const struct qi_instant_words *more = instants->more;
    if (is_alone(instants, pub, slot) || qi_instant_of(instants, slot) == us ||
        (more && more->count + 2 <= more->room))
        return 0;
    return grow(instants, more && more->count > 2 ? 2 * more->count : 6);
}

int qi_instant_room_for_all(struct qi_instants *instants) {
    return instants->more && instants->more->room >= 64 ? 0 : grow(instants, 64);
}

static void insert(struct qi_instant_words *words, uint32_t at, uint64_t word) {
    memmove(words->items + at + 1, words->items + at, (words->count - at) * sizeof *words->items);
    words->items[at] = word;
    words->count++;
}

void qi_instant_put(struct qi_instants *instants, uint64_t pub, uint32_t slot, uint64_t us) {
    slot &= 63;
    if (is_alone(instants, pub, slot)) {
        instants->last = word_of(slot, us);
        return;
    }
    uint64_t before = qi_instant_of(instants, slot);
    struct qi_instant_words *words = instants->more;
    if (before == us || !words)
        return; /* where it is another, there is room (qi_instant_room) */
    uint32_t at = words->count;
    while (at > 0 && slot_of(words->items[at - 1]) > slot)
        at--;
    uint32_t end = at < words->count ? slot_of(words->items[at]) : 64;
    if (has_between(pub, slot, end)) /* they keep theirs */
        insert(words, at, word_of(slot + 1, before));
    if (at > 0 && slot_of(words->items[at - 1]) == slot)
        words->items[at - 1] = word_of(slot, us);
    else
        insert(words, at, word_of(slot, us));
    instants->last = words->items[words->count - 1];
}

size_t qi_instants_size(const struct qi_instants *instants) {
    const struct qi_instant_words *more = instants->more;
    return more ? sizeof *more + (size_t)more->count * sizeof *more->items : 0;
}

uint8_t *qi_instants_copy(const struct qi_instants *from, struct qi_instants *to, uint8_t *at) {
    size_t size = qi_instants_size(from);
    to->last = from->last;
    to->more = size ? memcpy(at, from->more, size) : NULL;
    return at + size;
}
