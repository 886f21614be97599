/* properties.c - is there anything in a message's properties that the broker has to look at?
 *
 * Most messages have none: then nothing of them is decoded. Headers are looked through for CC and
 * BCC, and for damage. What is not plain, or damaged, goes to Python, which knows
 * (qindex/serve/publishing.py).
 */
#include "amqp/amqp.h"

#include <string.h>

/* Flags, in the order of the values. */
enum {
    CONTENT_TYPE = 1 << 15,
    CONTENT_ENCODING = 1 << 14,
    HEADERS = 1 << 13,
    DELIVERY_MODE = 1 << 12,
    PRIORITY = 1 << 11,
    CORRELATION_ID = 1 << 10,
    REPLY_TO = 1 << 9,
    EXPIRATION = 1 << 8,
    MESSAGE_ID = 1 << 7,
    TIMESTAMP = 1 << 6,
    TYPE = 1 << 5,
    USER_ID = 1 << 4,
    APP_ID = 1 << 3,
    CLUSTER_ID = 1 << 2,
    UNKNOWN = 3,
};

static const char reply_to_here[] = "amq.rabbitmq.reply-to";

enum {
    TABLES_MAX = 16, /* one in the other; what is deeper is left to Python */
    EXPIRATION_DIGITS_MAX = 12,
};

/* Bytes of a value of this kind behind its letter; -1: they stand in front of it; -2: none such. */
static int value_size(uint8_t kind) {
    switch (kind) {
    case 'V':
        return 0;
    case 't':
    case 'b':
    case 'B':
        return 1;
    case 's':
    case 'u':
        return 2;
    case 'I':
    case 'i':
    case 'f':
        return 4;
    case 'D':
        return 5;
    case 'l':
    case 'L':
    case 'd':
    case 'T':
        return 8;
    case 'S':
    case 'x':
    case 'A':
    case 'F':
        return -1;
    default:
        return -2;
    }
}

static bool is_name(const uint8_t *at, const char *name, size_t size) {
    return *at == size && memcmp(at + 1, name, size) == 0;
}

/* The bytes of the table that begins there with its size; 0: it is damaged, unusual, or has CC or
 * BCC. */
static size_t table_size(const uint8_t *begin, size_t room) {
    if (room < 4 || qi_big32(begin) > room - 4)
        return 0;
    struct {
        const uint8_t *end;
        bool is_array;
    } open[TABLES_MAX] = {{begin + 4 + qi_big32(begin), false}};
    const uint8_t *at = begin + 4;
    int depth = 0;
    for (;;) {
        const uint8_t *end = open[depth].end;
        if (at == end) {
            if (depth-- == 0)
                return (size_t)(end - begin);
            continue;
        }
        if (!open[depth].is_array) {
            if ((size_t)(end - at) <= (size_t)*at + 1 ||
                (depth == 0 && (is_name(at, "CC", 2) || is_name(at, "BCC", 3))))
                return 0;
            at += 1 + *at;
        }
        uint8_t kind = *at++;
        int fixed = value_size(kind);
        size_t left = (size_t)(end - at), size = fixed < 0 ? 4 : (size_t)fixed;
        if (fixed == -2 || left < size)
            return 0;
        if (fixed == -1) {
            if (qi_big32(at) > left - 4)
                return 0;
            size += qi_big32(at);
        }
        if (kind != 'A' && kind != 'F') {
            at += size;
            continue;
        }
        if (++depth == TABLES_MAX)
            return 0;
        open[depth].end = at + size;
        open[depth].is_array = kind == 'A';
        at += 4;
    }
}

/* A number of milliseconds that is not 0; 0: it is none, or Python has to look at it. */
static uint64_t read_expiration(const uint8_t *text, size_t size) {
    uint64_t ms = 0;
    if (size > EXPIRATION_DIGITS_MAX)
        return 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        ms = ms * 10 + (text[i] - '0');
    }
    return ms;
}

/* What a value says that the broker asks for. False: Python has to look at it. */
static bool read_value(uint32_t flag, const uint8_t *at, struct qi_wishes *wishes) {
    if (flag == DELIVERY_MODE)
        wishes->persistent = *at == 2;
    else if (flag == PRIORITY)
        wishes->priority = *at;
    else if (flag == EXPIRATION)
        return (wishes->expiration_ms = read_expiration(at + 1, *at)) != 0;
    else if (flag == REPLY_TO)
        return !is_name(at, reply_to_here, sizeof reply_to_here - 1);
    return true;
}

struct qi_wishes qi_wishes_of(struct qi_piece properties) {
    struct qi_wishes wishes = {0};
    const uint8_t *at = properties.at + 2, *end = properties.at + properties.size;
    if (properties.size < 2)
        return wishes;
    uint32_t flags = qi_big16(properties.at);
    if (flags & (USER_ID | UNKNOWN))
        return wishes;
    for (uint32_t flag = CONTENT_TYPE; flag >= CLUSTER_ID; flag >>= 1) {
        if (!(flags & flag))
            continue;
        if (at == end)
            return wishes;
        size_t left = (size_t)(end - at);
        size_t size = flag == HEADERS                     ? table_size(at, left)
                      : flag == TIMESTAMP                 ? 8
                      : flag & (DELIVERY_MODE | PRIORITY) ? 1
                                                          : 1 + (size_t)*at;
        if (!size || size > left || !read_value(flag, at, &wishes))
            return wishes;
        at += size;
    }
    wishes.plain = at == end;
    return wishes;
}
