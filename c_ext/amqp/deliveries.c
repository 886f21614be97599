/* deliveries.c - a basic.deliver with its content, as the frames of it. */
#include "amqp/amqp.h"

#include <string.h>

#define BASIC_DELIVER 0x003C003Cu

static uint8_t *put(uint8_t *at, struct qi_piece piece) {
    if (piece.size)
        memcpy(at, piece.at, piece.size);
    return at + piece.size;
}

static uint8_t *put_short(uint8_t *at, struct qi_piece piece) {
    *at = (uint8_t)piece.size;
    return put(at + 1, piece);
}

static uint8_t *begin_frame(uint8_t *at, int kind, uint16_t channel, size_t size) {
    at[0] = (uint8_t)kind;
    at[1] = (uint8_t)(channel >> 8);
    at[2] = (uint8_t)channel;
    qi_put_big32(at + 3, (uint32_t)size);
    return at + QI_FRAME_BEGIN;
}

static uint8_t *end_frame(uint8_t *at) {
    *at = QI_FRAME_END;
    return at + 1;
}

static uint8_t *put_big64(uint8_t *at, uint64_t value) {
    qi_put_big32(at, (uint32_t)(value >> 32));
    qi_put_big32(at + 4, (uint32_t)value);
    return at + 8;
}

static size_t method_size(const struct qi_delivery *delivery) {
    return 4 + 1 + delivery->consumer.size + 8 + 1 + 1 + delivery->exchange.size + 1 +
           delivery->key.size;
}

size_t qi_delivery_size(const struct qi_delivery *delivery) {
    size_t body = delivery->body.size, most = delivery->frame_max - QI_FRAME_EXTRA;
    return QI_FRAME_EXTRA + method_size(delivery) + QI_FRAME_EXTRA + QI_HEADER_BEGIN +
           delivery->properties.size + body + (body + most - 1) / most * QI_FRAME_EXTRA;
}

uint8_t *qi_put_delivery(const struct qi_delivery *delivery, uint8_t *at) {
    size_t most = delivery->frame_max - QI_FRAME_EXTRA;
    struct qi_piece rest = delivery->body;
    at = begin_frame(at, QI_METHOD, delivery->channel, method_size(delivery));
    qi_put_big32(at, BASIC_DELIVER);
    at = put_short(at + 4, delivery->consumer);
    at = put_big64(at, delivery->tag);
    *at++ = delivery->redelivered;
    at = put_short(at, delivery->exchange);
    at = end_frame(put_short(at, delivery->key));
    at = begin_frame(at, QI_HEADER, delivery->channel, QI_HEADER_BEGIN + delivery->properties.size);
    qi_put_big32(at, QI_CLASS_BASIC << 16);
    at = put_big64(at + 4, delivery->body.size);
    at = end_frame(put(at, delivery->properties));
    while (rest.size) {
        struct qi_piece part = {rest.at, rest.size < most ? rest.size : most};
        at = begin_frame(at, QI_BODY, delivery->channel, part.size);
        at = end_frame(put(at, part));
        rest.at += part.size;
        rest.size -= part.size;
    }
    return at;
}
