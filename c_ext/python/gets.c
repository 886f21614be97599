/* gets.c - get for CPython: from the engine into the objects that the caller gets.
 *
 * A body is read into the bytes object that the message has for it, and headers into theirs: they
 * are made when the engine knows their sizes, with its lock and the GIL held. To make a bytes
 * object waits for nobody and runs no code of anybody's. The rules are in calls.c.
 */
#include "python/calls.h"

#include <stdatomic.h>

#define BATCH_ROOM         (UINT64_C(4) << 20) /* as buffers.py has them */
#define BATCH_MESSAGES_MAX 65536
#define LONG_BODY          UINT32_C(4096) /* many of these are more than the allocator holds */
#define PAYLOAD_ROOM       4096 /* on the stack; a longer payload gets a bytes object of its size */

/* The message that the engine has filled in. It takes over `body` and `headers`, which is NULL if
 * there are none; also if this fails. */
static inline PyObject *message_of(Calls *self, const qi_message *message, PyObject *body,
                                   PyObject *headers, int is_taken) {
    Fields *fields = (Fields *)PyType_GenericAlloc((PyTypeObject *)self->message_type, 0);
    if (!fields) {
        Py_XDECREF(body);
        Py_XDECREF(headers);
        return NULL;
    }
    fields->body = body;
    fields->details = qi_details_of(self->queue, self->plain, message, headers);
    fields->req_id = PyLong_FromUnsignedLongLong(message->req_id);
    fields->owner = is_taken ? Py_NewRef(self->weak) : NULL;
    fields->due_us = message->due_us;
    fields->delivery = message->delivery;
    fields->published_us = message->published_us;
    if (!fields->req_id || !fields->body || !fields->details) {
        Py_DECREF(fields);
        return NULL;
    }
    return (PyObject *)fields;
}

/* The same with a payload in memory. `whole`, if there is one, is a bytes object that `payload`
 * points into; it becomes the body if that is all of it. */
static PyObject *message_from(Calls *self, const qi_message *message, const char *payload,
                              PyObject *whole, int is_taken) {
    uint32_t headers_size = message->payload_size - message->body_size;
    PyObject *headers =
        headers_size ? PyBytes_FromStringAndSize(payload, (Py_ssize_t)headers_size) : NULL;
    if (headers_size && !headers)
        return NULL;
    PyObject *body =
        whole && !headers && PyBytes_Size(whole) == (Py_ssize_t)message->body_size
            ? Py_NewRef(whole)
            : PyBytes_FromStringAndSize(payload + headers_size, (Py_ssize_t)message->body_size);
    return message_of(self, message, body, headers, is_taken);
}

/* ---- get ---- */

/* The objects of a message that is being taken. */
struct objects {
    PyObject *body, *headers;
};

/* The memory of a batch of long bodies is freed when the batch goes. glibc's allocator gives the
 * kernel back what is free at the heap's end, if it is more than 128 KiB or twice the longest block
 * of its own pages that it has ever freed. So the next batch would fault each of its pages in anew,
 * which costs three times as much as the read. One block of a batch's size, made and freed, tells
 * the allocator what goes around here, and it keeps so much. Not a byte of it is touched. Who has
 * set the bounds of the allocator keeps those; to other allocators this says nothing. */
static void show_allocator_a_batch(void) {
    static atomic_bool shown;
    if (!atomic_load_explicit(&shown, memory_order_relaxed) &&
        !atomic_exchange_explicit(&shown, true, memory_order_relaxed))
        PyMem_Free(PyMem_Malloc(BATCH_ROOM));
}

static char *make_bytes(PyObject **object, uint32_t size) {
    if (size >= LONG_BODY)
        show_allocator_a_batch();
    *object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    return *object ? PyBytes_AsString(*object) : NULL;
}

/* Without memory there is an exception. */
static int make_objects(void *context, const qi_message *message, struct qi_into *into) {
    struct objects *objects = context;
    uint32_t headers_size = message->payload_size - message->body_size;
    *into = (struct qi_into){.headers_size = headers_size, .body_size = message->body_size};
    into->body = make_bytes(&objects->body, message->body_size);
    if (headers_size && into->body)
        into->headers = make_bytes(&objects->headers, headers_size);
    return into->body && (into->headers || !headers_size) ? 0 : QI_E_MEMORY;
}

void qi_put_back(qi_queue *queue, uint64_t req_id, uint64_t delivery) {
    if (qi_settle_all(queue, QI_SETTLE_RETURN, &req_id, &delivery, 1, 0) != 0)
        qi_nack_many(queue, &req_id, &delivery, 1, 0);
}

/* A message that was taken. Without memory for it nobody has it: it is ready again. */
static PyObject *taken(Calls *self, const qi_message *message, PyObject *result) {
    if (!result)
        qi_put_back(self->queue, message->req_id, message->delivery);
    return result;
}

static PyObject *get_now(Calls *self, uint64_t lease_us, int64_t *said) {
    struct objects objects = {NULL, NULL};
    const struct qi_places places = {make_objects, &objects};
    qi_message message;
    *said = qi_get_now(self->queue, &message, &places, lease_us);
    if (*said >= 0)
        return taken(self, &message, message_of(self, &message, objects.body, objects.headers, 1));
    Py_XDECREF(objects.body);
    Py_XDECREF(objects.headers);
    return NULL;
}

/* qi_get without the GIL, with as much room as the message needs. `*said` is what it said. */
static PyObject *get_slowly(Calls *self, uint64_t lease_us, int64_t *said) {
    char few[PAYLOAD_ROOM];
    PyObject *whole = NULL;
    qi_reader reader = {
        .queue = self->queue, .payload = few, .room = sizeof few, .lease_us = lease_us};
    do {
        Py_BEGIN_ALLOW_THREADS *said = qi_get(&reader);
        Py_END_ALLOW_THREADS if (*said != QI_E_ROOM) break;
        Py_XDECREF(whole);
        reader.room = reader.message.payload_size;
        reader.payload = make_bytes(&whole, (uint32_t)reader.room);
    } while (whole);
    PyObject *result = NULL;
    if (*said >= 0)
        result = taken(self, &reader.message,
                       message_from(self, &reader.message, reader.payload, whole, 1));
    Py_XDECREF(whole);
    return result;
}

PyObject *qi_calls_get(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                       PyObject *keywords) {
    Calls *self = (Calls *)object;
    int waits = 0;
    int64_t said;
    uint64_t lease_us = 0;
    if (count)
        return PyErr_Format(PyExc_TypeError,
                            "Queue.get() takes no %R: get(timeout=5) waits 5 seconds, get_many(5) "
                            "takes 5 messages, store.get([name, ...]) takes from several queues",
                            arguments[0]);
    if (!self->queue || !qi_read_get_options(arguments, keywords, &waits, &lease_us))
        return qi_call_python(object, "_get", arguments, count, keywords);
    PyObject *result = get_now(self, lease_us, &said);
    if (result || PyErr_Occurred())
        return result;
    if (said == QI_BUSY && self->may_wait && !waits) {
        result = get_slowly(self, lease_us, &said);
        if (result || PyErr_Occurred())
            return result;
    }
    if (said == QI_EMPTY && !waits)
        Py_RETURN_NONE;
    if (said != QI_EMPTY && said != QI_BUSY)
        return qi_raise_error(object, said);
    /* A wait leaves an idle queue asleep, where a get would wake it. */
    return qi_call_python(object, "_get", arguments, count, keywords);
}

/* ---- get_many ---- */

/* What one step takes with the GIL held. */
struct step {
    uint32_t made;
    struct objects objects[QI_NOW_MESSAGES];
    qi_message messages[QI_NOW_MESSAGES];
};

static int make_step_objects(void *context, const qi_message *message, struct qi_into *into) {
    struct step *step = context;
    struct objects *objects = &step->objects[step->made++];
    *objects = (struct objects){NULL, NULL};
    return make_objects(objects, message, into);
}

/* Appends what a step took; -1: no memory. Then those that are not in the list are ready again. */
static int append_step(Calls *self, struct step *step, uint32_t taken_count, PyObject *list) {
    int error = 0;
    for (uint32_t i = 0; i < step->made; i++) {
        struct objects *objects = &step->objects[i];
        if (i >= taken_count || error) {
            Py_XDECREF(objects->body);
            Py_XDECREF(objects->headers);
            if (i < taken_count)
                qi_put_back(self->queue, step->messages[i].req_id, step->messages[i].delivery);
            continue;
        }
        PyObject *made = message_of(self, &step->messages[i], objects->body, objects->headers, 1);
        error = !made || PyList_Append(list, made) != 0;
        Py_XDECREF(made);
        if (error)
            qi_put_back(self->queue, step->messages[i].req_id, step->messages[i].delivery);
    }
    return error ? -1 : 0;
}

/* All that can be had without a wait, up to `count`; what the last step said. */
static int64_t get_steps(Calls *self, Py_ssize_t count, uint64_t lease_us, PyObject *list,
                         uint64_t *room) {
    struct step step;
    const struct qi_places places = {make_step_objects, &step};
    int64_t said = 1;
    for (Py_ssize_t left = count; left > 0; left -= (Py_ssize_t)said) {
        uint32_t most = left < (Py_ssize_t)QI_NOW_MESSAGES ? (uint32_t)left : QI_NOW_MESSAGES;
        step.made = 0;
        said = qi_get_many_now(self->queue, most, step.messages, &places,
                               *room < QI_NOW_MAX ? *room : QI_NOW_MAX, lease_us);
        if (append_step(self, &step, said > 0 ? (uint32_t)said : 0, list) != 0 || PyErr_Occurred())
            return QI_E_MEMORY;
        if (said <= 0)
            return said;
        for (int64_t i = 0; i < said; i++)
            *room -= step.messages[i].payload_size;
        if (left > said) { /* other threads waited long enough */
            Py_BEGIN_ALLOW_THREADS Py_END_ALLOW_THREADS
        }
    }
    return said;
}

/* The next message, if it is too long for a caller that has the GIL, straight into its bytes: into
 * `*room`, unless it is the first one. 1: it is in the list; 0: it is another one, there is none,
 * or something is wrong. (An empty one needs no room, so it comes, too.) */
static int get_long(Calls *self, uint64_t lease_us, PyObject *list, uint64_t *room) {
    uint64_t most = PyList_Size(list) ? *room : UINT64_MAX;
    qi_message message = {.payload_size = 0};
    uint64_t req_id;
    uint32_t size = 0;
    int64_t got;
    PyObject *whole = NULL;
    char *payload = make_bytes(&whole, size);
    while (payload) {
        Py_BEGIN_ALLOW_THREADS got =
            qi_get_more(self->queue, 1, &message, payload, size, &req_id, lease_us);
        Py_END_ALLOW_THREADS if (got > 0 || message.payload_size <= QI_NOW_MAX ||
                                 message.payload_size > most || message.payload_size == size) break;
        Py_CLEAR(whole);
        size = message.payload_size;
        payload = make_bytes(&whole, size);
    }
    PyObject *result = payload && got > 0 ? message_from(self, &message, payload, whole, 1) : NULL;
    int error = !result || PyList_Append(list, result) != 0;
    if (payload && got > 0 && error)
        qi_put_back(self->queue, message.req_id, message.delivery);
    if (!error)
        *room -= message.payload_size < *room ? message.payload_size : *room;
    Py_XDECREF(result);
    Py_XDECREF(whole);
    return !error;
}

/* All that can be had without a wait for a message, and without Python. */
static int64_t get_all(Calls *self, Py_ssize_t count, uint64_t lease_us, PyObject *list,
                       uint64_t *room) {
    for (;;) {
        Py_ssize_t got = PyList_Size(list);
        int64_t said = got < count ? get_steps(self, count - got, lease_us, list, room) : 1;
        if (said != QI_BUSY)
            return said;
        if (!get_long(self, lease_us, list, room))
            return PyErr_Occurred() ? QI_E_MEMORY : QI_BUSY;
    }
}

/* Nobody gets these: they are ready again. */
static void give_back_list(Calls *self, PyObject *list) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        const Fields *fields = (const Fields *)PyList_GetItem(list, i);
        qi_put_back(self->queue, PyLong_AsUnsignedLongLong(fields->req_id), fields->delivery);
    }
    PyErr_Restore(type, value, trace);
}

PyObject *qi_calls_get_many(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                            PyObject *keywords) {
    Calls *self = (Calls *)object;
    int waits = 0;
    uint64_t lease_us = 0, room = BATCH_ROOM;
    Py_ssize_t wanted =
        count == 1 && PyLong_CheckExact(arguments[0]) ? PyLong_AsSsize_t(arguments[0]) : -1;
    if (PyErr_Occurred())
        PyErr_Clear();
    if (wanted <= 0 || !self->queue || !self->may_wait ||
        !qi_read_get_options(arguments + 1, keywords, &waits, &lease_us) || waits)
        return qi_call_python(object, "_get_many", arguments, count, keywords);
    if (wanted > BATCH_MESSAGES_MAX)
        wanted = BATCH_MESSAGES_MAX;
    PyObject *list = PyList_New(0);
    int64_t said = list ? get_all(self, wanted, lease_us, list, &room) : QI_E_MEMORY;
    Py_ssize_t got = list ? PyList_Size(list) : 0;
    if (said > 0 || said == QI_EMPTY)
        return list;
    PyObject *rest = NULL; /* with the exception that is set, or says what is wrong */
    if (!PyErr_Occurred() && got == 0)
        rest = qi_call_python(object, "_get_many", arguments, count, keywords);
    else if (!PyErr_Occurred())
        rest = PyObject_CallMethod(object, "_get_more", "OnKK", list, wanted - got,
                                   (unsigned long long)room, (unsigned long long)lease_us);
    if (!rest && list)
        give_back_list(self, list);
    Py_XDECREF(list);
    return rest;
}

/* ---- what cffi has filled in ---- */

static int has_queue(const Calls *self) {
    if (!self->queue)
        PyErr_SetString(PyExc_RuntimeError, "these calls have no queue");
    return self->queue != NULL;
}

/* _get_rest(list, count, room, lease_us): adds to what the caller has, up to `count` in all and
 * `room` bytes more, as get_many() would. What is wrong then is said by the next call. */
PyObject *qi_calls_get_rest(PyObject *object, PyObject *arguments) {
    Calls *self = (Calls *)object;
    PyObject *list;
    Py_ssize_t count;
    unsigned long long left, lease_us;
    if (!has_queue(self) ||
        !PyArg_ParseTuple(arguments, "O!nKK", &PyList_Type, &list, &count, &left, &lease_us))
        return NULL;
    uint64_t room = left;
    int64_t said = get_all(self, count, lease_us, list, &room);
    if (said > 0 || said == QI_EMPTY)
        return Py_NewRef(list);
    if (PyErr_Occurred())
        return NULL;
    return PyObject_CallMethod(object, "_get_more", "OnKK", list, count - PyList_Size(list),
                               (unsigned long long)room, lease_us);
}

/* _message(message, payload, is_taken): what the engine has filled in at these addresses. */
PyObject *qi_calls_message(PyObject *object, PyObject *arguments) {
    unsigned long long message, payload;
    int is_taken;
    if (!has_queue((Calls *)object) ||
        !PyArg_ParseTuple(arguments, "KKp", &message, &payload, &is_taken))
        return NULL;
    return message_from((Calls *)object, (const qi_message *)(uintptr_t)message,
                        (const char *)(uintptr_t)payload, NULL, is_taken);
}

/* _messages(count, messages, payloads): what qi_get_many filled in at these addresses, as a list.
 * If there is no memory for all of them, the caller gives them back. */
PyObject *qi_calls_messages(PyObject *object, PyObject *arguments) {
    Py_ssize_t count;
    unsigned long long messages, payloads;
    if (!has_queue((Calls *)object) ||
        !PyArg_ParseTuple(arguments, "nKK", &count, &messages, &payloads))
        return NULL;
    const qi_message *message = (const qi_message *)(uintptr_t)messages;
    const char *payload = (const char *)(uintptr_t)payloads;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; payload += message[i++].payload_size) {
        PyObject *made = message_from((Calls *)object, &message[i], payload, NULL, 1);
        if (made)
            PyList_SetItem(list, i, made);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* _give_back(reader), _give_back_many(messages, count): addresses of what a get was to fill in.
 * Something kept its caller from handing on what it took: that is ready again. A delivery of 0 says
 * that nothing was taken. */
PyObject *qi_calls_give_back(PyObject *object, PyObject *arguments) {
    unsigned long long address;
    (void)object;
    if (!PyArg_ParseTuple(arguments, "K", &address))
        return NULL;
    const qi_reader *reader = (const qi_reader *)(uintptr_t)address;
    if (reader->message.delivery)
        qi_put_back(reader->queue, reader->message.req_id, reader->message.delivery);
    Py_RETURN_NONE;
}

PyObject *qi_calls_give_back_many(PyObject *object, PyObject *arguments) {
    unsigned long long address;
    unsigned int count;
    if (!PyArg_ParseTuple(arguments, "KI", &address, &count))
        return NULL;
    const qi_message *messages = (const qi_message *)(uintptr_t)address;
    for (unsigned int i = 0; i < count && messages[i].delivery; i++)
        qi_put_back(((Calls *)object)->queue, messages[i].req_id, messages[i].delivery);
    Py_RETURN_NONE;
}
