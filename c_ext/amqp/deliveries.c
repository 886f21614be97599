/* deliveries.c - a basic.deliver with its content, as the frames of it. */
#include "amqp/amqp.h"

#include <string.h>

#define BASIC_DELIVER 0x003C003Cu

/* A text as a short string. 0: it is too long, or not what UTF-8 can hold: Python says so. */
static bool short_string(PyObject *text, struct qi_piece *piece) {
    Py_ssize_t size;
    const char *at = PyUnicode_AsUTF8AndSize(text, &size);
    if (!at)
        PyErr_Clear();
    *piece = (struct qi_piece){(const uint8_t *)at, (size_t)size};
    return at && size <= UINT8_MAX;
}

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

struct delivery {
    struct qi_piece consumer, exchange, key, properties, body;
    unsigned long long tag;
    int redelivered;
    unsigned short channel;
};

static size_t method_size(const struct delivery *delivery) {
    return 4 + 1 + delivery->consumer.size + 8 + 1 + 1 + delivery->exchange.size + 1 +
           delivery->key.size;
}

static void put_frames(const struct delivery *delivery, uint8_t *at) {
    at = begin_frame(at, QI_METHOD, delivery->channel, method_size(delivery));
    qi_put_big32(at, BASIC_DELIVER);
    at = put_short(at + 4, delivery->consumer);
    at = put_big64(at, delivery->tag);
    *at++ = delivery->redelivered != 0;
    at = put_short(at, delivery->exchange);
    at = end_frame(put_short(at, delivery->key));
    at = begin_frame(at, QI_HEADER, delivery->channel, QI_HEADER_BEGIN + delivery->properties.size);
    qi_put_big32(at, QI_CLASS_BASIC << 16);
    at = put_big64(at + 4, delivery->body.size);
    at = end_frame(put(at, delivery->properties));
    if (!delivery->body.size)
        return;
    at = begin_frame(at, QI_BODY, delivery->channel, delivery->body.size);
    end_frame(put(at, delivery->body));
}

PyObject *qi_deliver(PyObject *module, PyObject *arguments) {
    PyObject *consumer, *exchange, *key, *frames;
    const char *properties, *body;
    Py_ssize_t properties_size, body_size;
    struct delivery delivery;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "HUKpUUy#y#", &delivery.channel, &consumer, &delivery.tag,
                          &delivery.redelivered, &exchange, &key, &properties, &properties_size,
                          &body, &body_size))
        return NULL;
    if (!short_string(consumer, &delivery.consumer) ||
        !short_string(exchange, &delivery.exchange) || !short_string(key, &delivery.key))
        Py_RETURN_NONE;
    delivery.properties = (struct qi_piece){(const uint8_t *)properties, (size_t)properties_size};
    delivery.body = (struct qi_piece){(const uint8_t *)body, (size_t)body_size};
    size_t size = QI_FRAME_EXTRA + method_size(&delivery) + QI_FRAME_EXTRA + QI_HEADER_BEGIN +
                  delivery.properties.size;
    if (body_size)
        size += QI_FRAME_EXTRA + delivery.body.size;
    if (!(frames = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size)))
        return NULL;
    put_frames(&delivery, (uint8_t *)PyBytes_AsString(frames));
    return frames;
}
