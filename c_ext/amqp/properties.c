/* properties.c - is there anything in a message's properties that the broker has to look at?
 *
 * Most messages have none: then nothing of them is decoded. What is not plain, or damaged, goes to
 * Python, which knows (qindex/serve/publishing.py).
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

struct qi_wishes qi_wishes_of(struct qi_piece properties) {
    struct qi_wishes wishes = {0};
    const uint8_t *at = properties.at + 2, *end = properties.at + properties.size;
    if (properties.size < 2)
        return wishes;
    uint32_t flags = qi_big16(properties.at);
    if (flags & (HEADERS | EXPIRATION | USER_ID | UNKNOWN))
        return wishes;
    for (uint32_t flag = CONTENT_TYPE; flag >= CLUSTER_ID; flag >>= 1) {
        if (!(flags & flag))
            continue;
        if (at == end)
            return wishes;
        size_t size = flag == TIMESTAMP                   ? 8
                      : flag & (DELIVERY_MODE | PRIORITY) ? 1
                                                          : 1 + (size_t)*at;
        if (size > (size_t)(end - at))
            return wishes;
        if (flag == DELIVERY_MODE)
            wishes.persistent = *at == 2;
        else if (flag == PRIORITY)
            wishes.priority = *at;
        else if (flag == REPLY_TO && *at == sizeof reply_to_here - 1 &&
                 memcmp(at + 1, reply_to_here, *at) == 0)
            return wishes;
        at += size;
    }
    wishes.plain = at == end;
    return wishes;
}
