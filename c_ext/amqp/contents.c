/* contents.c - publishes whose frames come in several reads, or in between those of other channels.
 *
 * The body grows with what has come, not with what its header promises, up to twice that: a client
 * that only promises costs nothing. It is one bytearray from its beginning, and a large one becomes
 * the message's body as it is: it is in memory once.
 */
#include "amqp/amqp.h"

#include <stdlib.h>
#include <string.h>

#define BODY_ROOM_MIN 4096

struct qi_begun {
    struct qi_begun *next;
    PyObject *method, *properties; /* bytes; NULL: it has not come */
    PyObject *body;                /* a bytearray; NULL: nothing of it has come */
    uint64_t size, got, room;      /* of the body */
    uint16_t channel;
};

PyObject *qi_bytes(struct qi_piece piece) {
    return PyBytes_FromStringAndSize((const char *)piece.at, (Py_ssize_t)piece.size);
}

PyObject *qi_make_frame(PyObject *make_frame, const struct qi_frame *frame) {
    return PyObject_CallFunction(make_frame, "iiy#", frame->kind, frame->channel,
                                 (const char *)frame->payload.at, (Py_ssize_t)frame->payload.size);
}

bool qi_is_publish(struct qi_piece payload) {
    const uint8_t *at = payload.at;
    if (payload.size < 9 || qi_big32(at) != QI_BASIC_PUBLISH)
        return false;
    size_t key = 6 + 1 + (size_t)at[6]; /* behind the class, the method, a reserved number */
    return key < payload.size && key + 1 + at[key] + 1 == payload.size;
}

struct qi_begun **qi_begun_find(struct qi_begun **first, uint16_t channel) {
    while (*first && (*first)->channel != channel)
        first = &(*first)->next;
    return *first ? first : NULL;
}

uint64_t qi_begun_size(const struct qi_begun *begun) {
    return begun->size;
}

static void end(struct qi_begun **begun) {
    struct qi_begun *gone = *begun;
    *begun = gone->next;
    Py_XDECREF(gone->method);
    Py_XDECREF(gone->properties);
    Py_XDECREF(gone->body);
    free(gone);
}

void qi_begun_free(struct qi_begun **first) {
    while (*first)
        end(first);
}

static enum qi_took begin(struct qi_begun **first, const struct qi_frame *frame) {
    struct qi_begun *begun = calloc(1, sizeof *begun);
    if (!begun || !(begun->method = qi_bytes(frame->payload))) {
        free(begun);
        PyErr_NoMemory();
        return QI_TOOK_FAILED;
    }
    begun->channel = frame->channel;
    begun->next = *first;
    *first = begun;
    return QI_TOOK;
}

static enum qi_took take_header(struct qi_begun *begun, struct qi_piece payload,
                                uint64_t body_max) {
    if (begun->properties || payload.size < QI_HEADER_BEGIN ||
        qi_big32(payload.at) != QI_CLASS_BASIC << 16 || qi_big64(payload.at + 4) > body_max)
        return QI_TOOK_BAD;
    struct qi_piece properties = {payload.at + QI_HEADER_BEGIN, payload.size - QI_HEADER_BEGIN};
    begun->size = qi_big64(payload.at + 4);
    if (!(begun->properties = qi_bytes(properties)))
        return QI_TOOK_FAILED;
    return begun->size ? QI_TOOK : QI_TOOK_ALL;
}

/* Room for so many bytes more. 0, or -1 with an exception. */
static int make_room(struct qi_begun *begun, uint64_t more) {
    uint64_t wanted = begun->got + more;
    if (wanted <= begun->room)
        return 0;
    wanted = wanted * 2 > BODY_ROOM_MIN ? wanted * 2 : BODY_ROOM_MIN;
    wanted = wanted < begun->size ? wanted : begun->size;
    if (!begun->body && !(begun->body = PyByteArray_FromStringAndSize(NULL, 0)))
        return -1;
    if (PyByteArray_Resize(begun->body, (Py_ssize_t)wanted) != 0)
        return -1;
    begun->room = wanted;
    return 0;
}

static enum qi_took take_body(struct qi_begun *begun, struct qi_piece payload) {
    if (!begun->properties || payload.size > begun->size - begun->got)
        return QI_TOOK_BAD;
    if (!payload.size) /* it may be the first one: there is no body to copy it to */
        return QI_TOOK;
    if (make_room(begun, payload.size) != 0)
        return QI_TOOK_FAILED;
    memcpy(PyByteArray_AsString(begun->body) + begun->got, payload.at, payload.size);
    begun->got += payload.size;
    return begun->got == begun->size ? QI_TOOK_ALL : QI_TOOK;
}

enum qi_took qi_begun_take(struct qi_begun **first, const struct qi_frame *frame,
                           uint64_t body_max) {
    struct qi_begun **found = qi_begun_find(first, frame->channel);
    if (!found) {
        bool begins = frame->kind == QI_METHOD && qi_is_publish(frame->payload);
        return begins ? begin(first, frame) : QI_TOOK_NOT;
    }
    if (frame->kind == QI_HEADER)
        return take_header(*found, frame->payload, body_max);
    return frame->kind == QI_BODY ? take_body(*found, frame->payload) : QI_TOOK_BAD;
}

static struct qi_piece piece_of(PyObject *bytes) {
    return (struct qi_piece){(const uint8_t *)PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes)};
}

static struct qi_piece body_of(const struct qi_begun *begun) {
    const char *at = begun->body ? PyByteArray_AsString(begun->body) : NULL;
    return (struct qi_piece){(const uint8_t *)at, begun->got};
}

int qi_begun_publish(struct qi_begun **begun, Publishes *publishes) {
    struct qi_begun *whole = *begun;
    struct qi_content content = {.method = piece_of(whole->method),
                                 .properties = piece_of(whole->properties),
                                 .body = body_of(whole),
                                 .whole = whole->body,
                                 .channel = whole->channel};
    int error = qi_publishes_keep(publishes, Py_NewRef(whole->method));
    if (!error)
        error = qi_publishes_keep(publishes, Py_NewRef(whole->properties));
    if (!error && whole->body)
        error = qi_publishes_keep(publishes, Py_NewRef(whole->body));
    if (!error)
        error = qi_publishes_add(publishes, &content);
    end(begun);
    return error;
}

static int give_back(PyObject *make_frame, PyObject *list, int kind, uint16_t channel,
                     struct qi_piece payload) {
    struct qi_frame frame = {payload, channel, (uint8_t)kind};
    PyObject *made = qi_make_frame(make_frame, &frame);
    int error = made ? PyList_Append(list, made) : -1;
    Py_XDECREF(made);
    return error;
}

int qi_begun_give_back(struct qi_begun **begun, PyObject *make_frame, PyObject *list) {
    struct qi_begun *part = *begun;
    uint16_t channel = part->channel;
    int error = give_back(make_frame, list, QI_METHOD, channel, piece_of(part->method));
    if (!error && part->properties) {
        struct qi_piece properties = piece_of(part->properties);
        uint8_t *header = calloc(1, QI_HEADER_BEGIN + properties.size);
        if (!header) {
            PyErr_NoMemory();
            return -1;
        }
        header[1] = QI_CLASS_BASIC;
        qi_put_big32(header + 4, (uint32_t)(part->size >> 32));
        qi_put_big32(header + 8, (uint32_t)part->size);
        memcpy(header + QI_HEADER_BEGIN, properties.at, properties.size);
        struct qi_piece payload = {header, QI_HEADER_BEGIN + properties.size};
        error = give_back(make_frame, list, QI_HEADER, channel, payload);
        free(header);
    }
    if (!error && part->got) {
        error = give_back(make_frame, list, QI_BODY, channel, body_of(part));
    }
    end(begun);
    return error;
}
