/* rabbitmq_steps.c - what the entries of a quorum queue's log say that publish or settle messages.
 *
 * Rules of this file: no I/O, no allocation, no recursion; a length is compared with what is left
 * before it is used. It takes the shapes that nearly all entries have; the rest is for Python,
 * value by value.
 */
#include "foreign/foreign.h"

#include "foreign/cursor.h"

enum { CLASS_BASIC = 60 };

enum { PRIORITY_USUAL = 4 };

static bool integer(struct cursor *at, uint64_t *number) {
    size_t size = 0;
    if (byte_is(at, 'a')) {
        size = 1;
    } else if (byte_is(at, 'b')) {
        if (left(at) < 4 || at->data[at->pos] & 0x80)
            return false;
        *number = qi_get32(at->data + at->pos);
        at->pos += 4;
        return true;
    } else if (byte_is(at, 'n') && left(at) >= 2) {
        size = at->data[at->pos];
        if (at->data[at->pos + 1])
            return false;
        at->pos += 2;
    }
    if (!size || size > 7 || left(at) < size)
        return false;
    *number = 0;
    for (size_t i = size; i > 0; i--)
        *number = *number << 8 | at->data[at->pos + i - 1];
    at->pos += size;
    return true;
}

static bool signed_integer(struct cursor *at, int64_t *number) {
    uint64_t told;
    if (!integer(at, &told))
        return false;
    *number = (int64_t)told;
    return true;
}

/* A list of binaries: how many bytes they have in all. */
static bool bytes_of(struct cursor *at, uint64_t *total) {
    struct cursor start = *at;
    uint32_t first, size, count;
    if (!binaries(at, &first, &size, &count))
        return false;
    *total = count ? at->pos - start.pos - 6 - 5 * (uint64_t)count : 0;
    return true;
}

/* {content, 60, none, Raw, Protocol, Fragments} */
static bool sizes(struct cursor *at, qi_rabbit_step *step) {
    uint32_t start, meta;
    if (!tuple(at, 6) || !atom(at, "content") || !byte_is(at, 'a') || !byte_is(at, CLASS_BASIC) ||
        !atom(at, "none") || !binary(at, &start, &meta) ||
        !(atom(at, "rabbit_framing_amqp_0_9_1") || atom(at, "none")))
        return false;
    step->meta_size = meta;
    return bytes_of(at, &step->body_size);
}

static bool notes(struct cursor *at, qi_rabbit_step *step) {
    uint64_t priority = PRIORITY_USUAL;
    if (!byte_is(at, 't') || left(at) < 4)
        return false;
    uint32_t pairs = qi_get32(at->data + at->pos);
    at->pos += 4;
    for (uint32_t i = 0; i < pairs; i++) {
        bool fits = atom(at, "ttl")              ? signed_integer(at, &step->ttl_ms)
                    : atom(at, "p")              ? integer(at, &priority)
                    : atom(at, "delivery_count") ? signed_integer(at, &step->deliveries)
                                                 : value(at) && value(at);
        if (!fits || priority > UINT32_MAX)
            return false;
    }
    step->priority = (uint32_t)priority;
    return true;
}

static bool published(struct cursor *at, qi_rabbit_step *step) {
    struct cursor start = *at;
    if (tuple(at, 6) && atom(at, "basic_message"))
        return value(at) && value(at) && sizes(at, step) && value(at) && value(at);
    *at = start;
    step->is_container = tuple(at, 4) && atom(at, "mc") && atom(at, "mc_amqpl");
    return step->is_container && sizes(at, step) && notes(at, step);
}

/* Passes any value and says where it was. */
static bool whole(struct cursor *at, uint32_t *start, uint32_t *size) {
    *start = (uint32_t)at->pos;
    if (!value(at))
        return false;
    *size = (uint32_t)at->pos - *start;
    return true;
}

/* {settle, Key, [Number]}: one number, or some that follow each other. */
static bool settled(struct cursor *at, qi_rabbit_step *step) {
    if (!tuple(at, 3) || !atom(at, "settle") || !whole(at, &step->who, &step->who_size))
        return false;
    uint64_t number;
    if (byte_is(at, 'k')) {
        if (left(at) < 2 || left(at) - 2 < qi_get16(at->data + at->pos))
            return false;
        step->count = qi_get16(at->data + at->pos);
        at->pos += 2;
        for (uint32_t i = 0; i < step->count; i++, at->pos++) {
            if (i == 0)
                step->number = at->data[at->pos];
            if (at->data[at->pos] != step->number + i)
                return false;
        }
        return step->count > 0;
    }
    if (!byte_is(at, 'l') || left(at) < 4)
        return false;
    step->count = qi_get32(at->data + at->pos);
    at->pos += 4;
    for (uint32_t i = 0; i < step->count; i++) {
        if (!integer(at, &number) || (i > 0 && number != step->number + i))
            return false;
        if (i == 0)
            step->number = number;
    }
    return step->count > 0 && byte_is(at, 'j');
}

static bool command(struct cursor *at, qi_rabbit_step *step) {
    struct cursor start = *at;
    if (tuple(at, 4)) {
        if (atom(at, "enqueue"))
            return whole(at, &step->who, &step->who_size) && integer(at, &step->number) &&
                   published(at, step) && value(at);
        uint32_t ignored, also_ignored;
        return atom(at, "e") && integer(at, &step->number) && published(at, step) && tuple(at, 2) &&
               integer(at, &step->meta_size) && integer(at, &step->body_size) && tuple(at, 3) &&
               atom(at, "notify") && whole(at, &ignored, &also_ignored) &&
               whole(at, &step->who, &step->who_size);
    }
    *at = start;
    return settled(at, step) && value(at);
}

bool qi_rabbit_read_step(const void *data, size_t size, qi_rabbit_step *step) {
    struct cursor at = {data, size, 0};
    *step = (qi_rabbit_step){.ttl_ms = -1, .deliveries = -1, .priority = PRIORITY_USUAL};
    if (size > QI_TERM_BYTES_MAX || !byte_is(&at, 131) || !tuple(&at, 4) || !atom(&at, "$usr") ||
        !byte_is(&at, 't') || left(&at) < 4)
        return false;
    uint32_t pairs = qi_get32(at.data + at.pos);
    at.pos += 4;
    for (uint32_t i = 0; i < pairs; i++)
        if (!(atom(&at, "ts") ? integer(&at, &step->now_ms) : value(&at) && value(&at)))
            return false;
    return command(&at, step) && !left(&at);
}

/* --- many at once --- */

static uint64_t hash_of(const uint8_t *bytes, uint32_t size) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (uint32_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

/* The number of these bytes, a new one if they are; false if there is no room for them. */
static bool number_of(qi_rabbit_names *names, const uint8_t *bytes, uint32_t size,
                      uint32_t *number) {
    enum { SLOTS = 2 * QI_RABBIT_NAMES_MAX };
    uint64_t at = hash_of(bytes, size) % SLOTS;
    for (; names->slots[at]; at = (at + 1) % SLOTS) {
        uint32_t known = names->slots[at] - 1u;
        uint32_t start = known ? names->ends[known - 1] : 0;
        if (names->ends[known] - start == size && memcmp(names->bytes + start, bytes, size) == 0) {
            *number = known;
            return true;
        }
    }
    if (names->count == QI_RABBIT_NAMES_MAX || QI_RABBIT_NAME_BYTES - names->used < size)
        return false;
    memcpy(names->bytes + names->used, bytes, size);
    names->used += size;
    *number = names->count;
    names->ends[names->count] = names->used;
    names->slots[at] = (uint16_t)++names->count;
    return true;
}

static uint64_t expiry_of(const qi_rabbit_step *step, const qi_rabbit_measure *measure) {
    int64_t ttl = step->ttl_ms;
    if (measure->ttl_ms >= 0 && (ttl < 0 || measure->ttl_ms < ttl))
        ttl = measure->ttl_ms;
    return ttl < 0 ? 0 : step->now_ms + (ttl ? (uint64_t)ttl : 1);
}

static void read_one(const uint8_t *entry, const qi_rabbit_measure *measure, qi_rabbit_names *names,
                     qi_rabbit_steps *steps, size_t at) {
    qi_rabbit_step step;
    if (!qi_rabbit_read_step(entry, steps->sizes[at], &step))
        return;
    bool is_strange = step.deliveries >= 0 || (measure->only_containers && !step.is_container);
    if (!step.count && is_strange)
        return;
    if (!number_of(names, entry + step.who, step.who_size, &steps->names[at]))
        return;
    steps->numbers[at] = step.number;
    steps->counts[at] = step.count;
    steps->bytes[at] = step.body_size + (measure->counts_headers ? step.meta_size : 0);
    steps->expiries_ms[at] = expiry_of(&step, measure);
    steps->times_ms[at] = step.now_ms;
    steps->priorities[at] = step.priority;
}

void qi_rabbit_read_steps(const void *block, size_t size, size_t count,
                          const qi_rabbit_measure *measure, qi_rabbit_names *names,
                          qi_rabbit_steps *steps) {
    for (size_t at = 0; at < count && at < QI_RABBIT_STEPS_MAX; at++) {
        uint64_t offset = steps->offsets[at] - steps->base; /* a great number if it is before it */
        steps->counts[at] = QI_RABBIT_OTHER;
        if (offset <= size && steps->sizes[at] <= size - offset)
            read_one((const uint8_t *)block + offset, measure, names, steps, at);
    }
}
