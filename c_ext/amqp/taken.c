/* taken.c - messages that were taken out of a queue and go to its consumers: the class Taken.
 *
 * Those of a store stay where the engine has put them (qi_get_many) until frames() writes the
 * frames that carry them; those in memory are bytes that the broker has. No object is made for a
 * message. What is unusual about one (it has expired, its headers are another program's) usual()
 * says, and the broker looks at that one alone.
 */
#include "amqp/amqp.h"

#include <stdlib.h>
#include <structmember.h>

#include "qindex.h"

struct message {
    const qi_message *from; /* NULL: it was made of a list */
    const uint8_t *payload;
    struct qi_stored stored;
    struct qi_piece body;
    uint64_t number, delivery;
    uint32_t deliveries; /* this one included */
    bool redelivered, is_known;
};

typedef struct {
    PyObject_HEAD PyObject *source; /* what the pieces point into */
    struct message *messages;
    size_t count;
    unsigned long long body_bytes;
} Taken;

PyTypeObject *qi_taken_type;

static Taken *taken_new(PyObject *source, size_t count) {
    Taken *self = (Taken *)PyType_GenericAlloc(qi_taken_type, 0);
    if (!self)
        return NULL;
    self->messages = calloc(count ? count : 1, sizeof *self->messages);
    if (!self->messages) {
        Py_DECREF(self);
        return (Taken *)PyErr_NoMemory();
    }
    self->source = Py_NewRef(source);
    self->count = count;
    return self;
}

static void taken_dealloc(PyObject *object) {
    Taken *self = (Taken *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->source);
    free(self->messages);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

PyObject *qi_taken_of_store(PyObject *module, PyObject *arguments) {
    unsigned long long messages, payloads;
    Py_ssize_t count;
    PyObject *source;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "KKnO", &messages, &payloads, &count, &source))
        return NULL;
    const qi_message *from = (const qi_message *)(uintptr_t)messages;
    const uint8_t *payload = (const uint8_t *)(uintptr_t)payloads;
    Taken *self = taken_new(source, (size_t)count);
    for (size_t i = 0; self && i < self->count; i++, from++) {
        struct message *message = &self->messages[i];
        struct qi_piece table = {payload, from->payload_size - from->body_size};
        message->body = (struct qi_piece){payload + table.size, from->body_size};
        message->from = from;
        message->payload = payload;
        message->number = from->req_id;
        message->delivery = from->delivery;
        message->deliveries = from->delivery_count;
        message->redelivered = from->flags & QI_REDELIVERED;
        message->is_known = qi_read_stored(table, &message->stored);
        self->body_bytes += from->body_size;
        payload += from->payload_size;
    }
    return (PyObject *)self;
}

/* The bytes of a bytes object, or of a bytearray that nobody changes. */
static int read_bytes(PyObject *object, struct qi_piece *piece) {
    if (PyBytes_Check(object))
        *piece = (struct qi_piece){(const uint8_t *)PyBytes_AsString(object),
                                   (size_t)PyBytes_Size(object)};
    else if (PyByteArray_Check(object))
        *piece = (struct qi_piece){(const uint8_t *)PyByteArray_AsString(object),
                                   (size_t)PyByteArray_Size(object)};
    else
        PyErr_SetString(PyExc_TypeError, "a message is made of bytes");
    return PyErr_Occurred() ? -1 : 0;
}

static int read_message(PyObject *item, struct message *message) {
    PyObject *exchange, *key, *properties, *body;
    unsigned long long number, delivery, expires_us;
    int redelivered;
    struct qi_stored *stored = &message->stored;
    if (!PyArg_ParseTuple(item, "KKpKOOOO", &number, &delivery, &redelivered, &expires_us,
                          &exchange, &key, &properties, &body) ||
        read_bytes(exchange, &stored->exchange) != 0 || read_bytes(key, &stored->key) != 0 ||
        read_bytes(properties, &stored->properties) != 0 || read_bytes(body, &message->body) != 0)
        return -1;
    message->number = number;
    message->delivery = delivery;
    message->redelivered = redelivered;
    stored->expires_us = expires_us;
    if (stored->exchange.size <= UINT8_MAX && stored->key.size <= UINT8_MAX) {
        message->is_known = true;
        return 0;
    }
    PyErr_SetString(PyExc_ValueError, "a name has more than 255 bytes");
    return -1;
}

PyObject *qi_taken_of_list(PyObject *module, PyObject *arguments) {
    PyObject *list, *source;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O", &PyList_Type, &list, &source))
        return NULL;
    PyObject *both = PyTuple_Pack(2, source, list); /* the bytes are in the list */
    Taken *self = both ? taken_new(both, (size_t)PyList_Size(list)) : NULL;
    Py_XDECREF(both);
    for (size_t i = 0; self && i < self->count; i++) {
        if (read_message(PyList_GetItem(list, (Py_ssize_t)i), &self->messages[i]) == 0)
            self->body_bytes += self->messages[i].body.size;
        else
            Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* ---- what Python sees ---- */

static Py_ssize_t taken_length(PyObject *object) {
    return (Py_ssize_t)((Taken *)object)->count;
}

static PyObject *get_source(PyObject *object, void *unused) {
    PyObject *source = ((Taken *)object)->source;
    (void)unused;
    return Py_NewRef(PyTuple_Check(source) ? PyTuple_GetItem(source, 0) : source);
}

static PyObject *usual(PyObject *object, PyObject *arguments) {
    const Taken *self = (const Taken *)object;
    Py_ssize_t from;
    unsigned long long now_us;
    int counts;
    if (!PyArg_ParseTuple(arguments, "nKp", &from, &now_us, &counts))
        return NULL;
    size_t at = from < 0 ? self->count : (size_t)from;
    for (; at < self->count; at++) {
        const struct message *message = &self->messages[at];
        uint64_t expires_us = message->stored.expires_us;
        if (!message->is_known || (expires_us && expires_us < now_us) ||
            (counts && message->deliveries > 1))
            break;
    }
    return PyLong_FromSize_t(at);
}

/* Some of the messages: from `start` on each `step`th below `stop`. */
struct share {
    Py_ssize_t start, stop, step;
};

static int check_share(const Taken *self, const struct share *share) {
    if (share->start >= 0 && share->stop <= (Py_ssize_t)self->count && share->step > 0)
        return 0;
    PyErr_SetString(PyExc_IndexError, "there are no such messages");
    return -1;
}

static PyObject *frames(PyObject *object, PyObject *arguments) {
    const Taken *self = (const Taken *)object;
    struct share share;
    struct qi_delivery delivery = {0};
    const char *consumer;
    Py_ssize_t consumer_size;
    unsigned long long first;
    if (!PyArg_ParseTuple(arguments, "Hy#KInnn", &delivery.channel, &consumer, &consumer_size,
                          &first, &delivery.frame_max, &share.start, &share.stop, &share.step) ||
        check_share(self, &share) != 0)
        return NULL;
    if (consumer_size > UINT8_MAX || delivery.frame_max <= QI_FRAME_EXTRA)
        return PyErr_Format(PyExc_ValueError, "the consumer's tag has more than 255 bytes, or "
                                              "nothing fits into a frame");
    delivery.consumer = (struct qi_piece){(const uint8_t *)consumer, (size_t)consumer_size};
    uint8_t *at = NULL;
    PyObject *made = NULL;
    /* Once to measure, once to write. */
    for (int writes = 0; writes <= 1; writes++) {
        size_t size = 0;
        delivery.tag = first;
        for (Py_ssize_t i = share.start; i < share.stop; i += share.step, delivery.tag++) {
            const struct message *message = &self->messages[i];
            delivery.exchange = message->stored.exchange;
            delivery.key = message->stored.key;
            delivery.properties = message->stored.properties;
            delivery.body = message->body;
            delivery.redelivered = message->redelivered;
            if (writes)
                at = qi_put_delivery(&delivery, at);
            else
                size += qi_delivery_size(&delivery);
        }
        if (!writes && !(made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size)))
            return NULL;
        at = (uint8_t *)PyBytes_AsString(made);
    }
    return made;
}

static PyObject *places(PyObject *object, PyObject *arguments) {
    const Taken *self = (const Taken *)object;
    struct share share;
    if (!PyArg_ParseTuple(arguments, "nnn", &share.start, &share.stop, &share.step) ||
        check_share(self, &share) != 0)
        return NULL;
    Py_ssize_t count =
        share.start < share.stop ? (share.stop - share.start + share.step - 1) / share.step : 0;
    Py_ssize_t size = count * (Py_ssize_t)sizeof(uint64_t);
    PyObject *numbers = PyBytes_FromStringAndSize(NULL, size);
    PyObject *deliveries = PyBytes_FromStringAndSize(NULL, size);
    PyObject *both = NULL;
    if (numbers && deliveries) {
        uint64_t *number = (uint64_t *)(void *)PyBytes_AsString(numbers);
        uint64_t *delivery = (uint64_t *)(void *)PyBytes_AsString(deliveries);
        for (Py_ssize_t i = share.start; i < share.stop; i += share.step) {
            *number++ = self->messages[i].number;
            *delivery++ = self->messages[i].delivery;
        }
        both = PyTuple_Pack(2, numbers, deliveries);
    }
    Py_XDECREF(numbers);
    Py_XDECREF(deliveries);
    return both;
}

static PyObject *addresses(PyObject *object, PyObject *number) {
    const Taken *self = (const Taken *)object;
    size_t at = PyLong_AsSize_t(number);
    if (PyErr_Occurred())
        return NULL;
    if (at >= self->count || !self->messages[at].from)
        return PyErr_Format(PyExc_IndexError, "there is no such message of a store");
    return Py_BuildValue("KK", (unsigned long long)(uintptr_t)self->messages[at].from,
                         (unsigned long long)(uintptr_t)self->messages[at].payload);
}

static PyMethodDef taken_methods[] = {
    {"addresses", addresses, METH_O,
     "addresses($self, at, /)\n--\n\n"
     "Where a message of a store, and its payload, have been put."},
    {"usual", usual, METH_VARARGS,
     "usual($self, start, now_us, counts, /)\n--\n\n"
     "The end of the messages from `start` on that can go out as they are: they have not expired,\n"
     "their headers are the broker's, and with `counts` nobody has had them before."},
    {"frames", frames, METH_VARARGS,
     "frames($self, channel, consumer_tag, first_tag, frame_max, start, stop, step, /)\n--\n\n"
     "The frames that deliver some of them, as bytes; their tags follow each other. They have to\n"
     "be usual. Cost: one copy."},
    {"places", places, METH_VARARGS,
     "places($self, start, stop, step, /)\n--\n\n"
     "What settles some of them: their numbers, and their deliveries, each as the bytes of an\n"
     "array of uint64_t."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef taken_getset[] = {
    {"source", get_source, NULL, "What it was made of.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef taken_members[] = {
    {"body_bytes", T_ULONGLONG, offsetof(Taken, body_bytes), READONLY, "Bytes of all bodies."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot taken_slots[] = {
    {Py_tp_dealloc, taken_dealloc},
    {Py_tp_methods, taken_methods},
    {Py_tp_getset, taken_getset},
    {Py_tp_members, taken_members},
    {Py_sq_length, taken_length},
    {Py_tp_doc, "Messages that were taken out of a queue; taken_of_store() and taken_of_list()\n"
                "make it."},
    {0, NULL},
};

PyType_Spec qi_taken_spec = {"qindex._wire.Taken", sizeof(Taken), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, taken_slots};
