/* amqp.h - what the files of the module qindex._wire share; scanner.c says what it is for. */
#ifndef QI_AMQP_H
#define QI_AMQP_H

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* A frame: kind (1 byte), channel (2), size (4), payload, QI_FRAME_END. */
enum {
    QI_METHOD = 1,
    QI_HEADER = 2,
    QI_BODY = 3,
    QI_HEARTBEAT = 8,
    QI_FRAME_BEGIN = 7, /* bytes before the payload */
    QI_FRAME_EXTRA = 8, /* bytes around it */
    QI_FRAME_END = 0xCE,
    QI_CLASS_BASIC = 60,
    QI_HEADER_BEGIN = 12, /* bytes of a content header before the properties */
    QI_LARGE = 32 * 1024, /* bytes of a body from which on a message comes alone */
};

#define QI_BASIC_PUBLISH 0x003C0028u
#define QI_BASIC_ACK     0x003C0050u

static inline uint16_t qi_big16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t qi_big32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t qi_big64(const uint8_t *at) {
    return (uint64_t)qi_big32(at) << 32 | qi_big32(at + 4);
}

static inline void qi_put_big32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

/* Bytes that somebody else holds. */
struct qi_piece {
    const uint8_t *at;
    size_t size;
};

/* ---- properties.c ---- */

/* What of a message's properties the broker asks for. */
struct qi_wishes {
    bool plain; /* nothing else of them has to be looked at */
    bool persistent;
    uint8_t priority;
    uint64_t expiration_ms; /* 0: it says none */
};

struct qi_wishes qi_wishes_of(struct qi_piece properties);

/* ---- publishes.c ---- */

/* A message with its basic.publish. `whole`: a bytearray whose bytes are the body, or NULL. */
struct qi_content {
    struct qi_piece method, properties, body;
    PyObject *whole;
    uint16_t channel;
};

typedef struct qi_publishes Publishes;

extern PyTypeObject *qi_publishes_type;
extern PyType_Spec qi_publishes_spec;

/* Without messages; the pieces of those that are added point into `data`, or into what is kept. */
Publishes *qi_publishes_new(PyObject *data);
/* 0, or -1 with an exception. */
int qi_publishes_add(Publishes *publishes, const struct qi_content *content);
/* It holds the object from now on, which is taken over. 0, or -1 with an exception. */
int qi_publishes_keep(Publishes *publishes, PyObject *object);
/* These bytes, which its pieces point into, are in the bytes object `to` from now on. */
void qi_publishes_move(Publishes *publishes, struct qi_piece from, PyObject *to);
/* It has as many groups as it may: the next message needs another one. */
bool qi_publishes_is_full(const Publishes *publishes);

/* ---- contents.c ---- */

/* The content that a channel is in the middle of. */
struct qi_begun;

enum qi_took {
    QI_TOOK_FAILED = -1, /* an exception */
    QI_TOOK_NOT,         /* the frame is none of a publish's content */
    QI_TOOK,             /* it is part of one */
    QI_TOOK_ALL,         /* the last part */
    QI_TOOK_BAD,         /* it breaks off the content of its channel, which stays as it is */
};

struct qi_frame {
    struct qi_piece payload;
    uint16_t channel;
    uint8_t kind;
};

/* The content under way in this channel, or NULL. */
struct qi_begun **qi_begun_find(struct qi_begun **first, uint16_t channel);
/* `body_max`: of bodies that are larger nothing is taken. */
enum qi_took qi_begun_take(struct qi_begun **first, const struct qi_frame *frame,
                           uint64_t body_max);
/* Ends it. The message goes into `publishes`: 0, or -1 with an exception. */
int qi_begun_publish(struct qi_begun **begun, Publishes *publishes);
/* Ends it. What came of it goes into the list, as frames that `make_frame` makes: 0 or -1. */
int qi_begun_give_back(struct qi_begun **begun, PyObject *make_frame, PyObject *list);
uint64_t qi_begun_size(const struct qi_begun *begun); /* of the body */
void qi_begun_free(struct qi_begun **first);

/* The payload of a method frame is a whole basic.publish. */
bool qi_is_publish(struct qi_piece payload);

PyObject *qi_bytes(struct qi_piece piece);
PyObject *qi_make_frame(PyObject *make_frame, const struct qi_frame *frame);

/* ---- deliveries.c ---- */

struct qi_delivery {
    struct qi_piece consumer, exchange, key, properties, body; /* names of up to 255 bytes */
    unsigned long long tag;
    unsigned int frame_max;
    unsigned short channel;
    bool redelivered;
};

/* Bytes of its frames. */
size_t qi_delivery_size(const struct qi_delivery *delivery);
/* Writes them, and returns their end. */
uint8_t *qi_put_delivery(const struct qi_delivery *delivery, uint8_t *at);

/* ---- stored.c ---- */

/* What a store has kept as a message's headers. */
struct qi_stored {
    struct qi_piece exchange, key, properties; /* `key`: the first one */
    uint64_t expires_us;                       /* 0: never */
};

/* False: the broker has not written this table. */
bool qi_read_stored(struct qi_piece table, struct qi_stored *stored);

/* ---- taken.c ---- */

extern PyTypeObject *qi_taken_type;
extern PyType_Spec qi_taken_spec;

/* taken_of_store(messages, payloads, count, source): what qi_get_many has put at these addresses,
 * which `source` keeps. */
PyObject *qi_taken_of_store(PyObject *module, PyObject *arguments);
/* taken_of_list([(number, delivery, redelivered, expires_us, exchange, key, properties, body)],
 * source) */
PyObject *qi_taken_of_list(PyObject *module, PyObject *arguments);

/* ---- unacked.c ---- */

extern PyType_Spec qi_unacked_spec;

/* ---- scanner.c ---- */

extern PyType_Spec qi_scanner_spec;

#endif
