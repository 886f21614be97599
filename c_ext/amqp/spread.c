/* spread.c - publishes whose ways are known: each group goes straight to its queue.
 *
 * Clients publish to the same exchanges with the same keys again and again. Python remembers where
 * such a group goes (qindex/serve/ways.py); here its messages go there. What Python does for each
 * of a thousand queues would cost more than what the store does.
 *
 * The core is another extension: its function comes as an address, so that nothing is linked.
 */
#include "amqp/amqp_private.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_BEGIN = 4, KEY_MAX = KEY_BEGIN + 9 + 2 * 255 };

/* qi_publish_bodies() of the core. */
typedef int64_t (*publish_bodies)(void *queue, uint32_t count, const uintptr_t *bodies,
                                  const uint32_t *body_sizes, const void *headers,
                                  const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                                  uint64_t due_us, const uint8_t *per_flags,
                                  const uint64_t *per_expiry_us);

/* Where a group goes. */
struct way {
    void *queue;
    struct qi_piece prefix;
    uint32_t flags;
};

/* What is reused from group to group; `headers` has all headers of one, end to end. */
struct scratch {
    uintptr_t *bodies;
    uint32_t *body_sizes, *headers_sizes;
    uint8_t *headers;
    size_t messages, bytes;
};

/* NULL without an exception: the group has no key. */
static PyObject *key_of(const struct group *group) {
    uint8_t key[KEY_MAX];
    size_t size = group->method.size;
    if (!group->wishes.plain || group->wishes.expiration_ms || size > sizeof key - KEY_BEGIN)
        return NULL;
    key[0] = (uint8_t)(group->channel >> 8);
    key[1] = (uint8_t)group->channel;
    key[2] = group->wishes.persistent;
    key[3] = group->wishes.priority;
    memcpy(key + KEY_BEGIN, group->method.at, size);
    return qi_bytes((struct qi_piece){key, KEY_BEGIN + size});
}

PyObject *qi_publishes_keys(PyObject *object, PyObject *unused) {
    const Publishes *self = (const Publishes *)object;
    (void)unused;
    PyObject *list = PyList_New(self->group_count);
    for (uint32_t i = 0; list && i < self->group_count; i++) {
        PyObject *key = key_of(&self->groups[i]);
        if (!key && PyErr_Occurred())
            Py_CLEAR(list);
        else
            PyList_SetItem(list, i, key ? key : Py_NewRef(Py_None));
    }
    return list;
}

PyObject *qi_publishes_ways(PyObject *object, PyObject *known) {
    const Publishes *self = (const Publishes *)object;
    if (!PyDict_Check(known)) {
        PyErr_SetString(PyExc_TypeError, "ways() takes a dict");
        return NULL;
    }
    PyObject *list = PyList_New(self->group_count);
    for (uint32_t i = 0; list && i < self->group_count; i++) {
        PyObject *key = key_of(&self->groups[i]);
        PyObject *found = key ? PyDict_GetItemWithError(known, key) : NULL;
        Py_XDECREF(key);
        if (found && found != Py_None)
            PyList_SetItem(list, i, Py_NewRef(found));
        else
            Py_CLEAR(list);
    }
    return list || PyErr_Occurred() ? list : Py_NewRef(Py_None);
}

static struct way *read_ways(const Publishes *self, PyObject *list) {
    if (!PyList_Check(list) || PyList_Size(list) != (Py_ssize_t)self->group_count) {
        PyErr_SetString(PyExc_TypeError, "publish_each() takes a list with a way for each group");
        return NULL;
    }
    struct way *ways = calloc(self->group_count, sizeof *ways);
    if (!ways)
        PyErr_NoMemory();
    for (uint32_t i = 0; ways && i < self->group_count; i++) {
        unsigned long long queue;
        const char *prefix;
        Py_ssize_t size;
        unsigned int flags;
        PyObject *item = PyList_GetItem(list, i);
        if (!PyTuple_Check(item) ||
            !PyArg_ParseTuple(item, "Ky#I", &queue, &prefix, &size, &flags)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "a way is a tuple");
            free(ways);
            return NULL;
        }
        ways[i] = (struct way){.queue = (void *)(uintptr_t)queue,
                               .prefix = {(const uint8_t *)prefix, (size_t)size},
                               .flags = flags};
    }
    return ways;
}

static bool grow(struct scratch *into, size_t messages, size_t bytes) {
    if (messages > into->messages) {
        free(into->bodies);
        free(into->body_sizes);
        free(into->headers_sizes);
        into->bodies = malloc(messages * sizeof *into->bodies);
        into->body_sizes = malloc(messages * sizeof *into->body_sizes);
        into->headers_sizes = malloc(messages * sizeof *into->headers_sizes);
        into->messages = into->bodies && into->body_sizes && into->headers_sizes ? messages : 0;
    }
    if (bytes > into->bytes) {
        free(into->headers);
        into->headers = malloc(bytes);
        into->bytes = into->headers ? bytes : 0;
    }
    return messages <= into->messages && bytes <= into->bytes;
}

static void scratch_free(struct scratch *gone) {
    free(gone->bodies);
    free(gone->body_sizes);
    free(gone->headers_sizes);
    free(gone->headers);
}

static size_t header_size(const struct way *way, const struct message *message) {
    return 4 + way->prefix.size + 4 + message->properties.size;
}

static uint8_t *put_header(uint8_t *at, const struct way *way, const struct message *message) {
    qi_put_big32(at, (uint32_t)(header_size(way, message) - 4));
    memcpy(at + 4, way->prefix.at, way->prefix.size);
    at += 4 + way->prefix.size;
    qi_put_big32(at, (uint32_t)message->properties.size);
    memcpy(at + 4, message->properties.at, message->properties.size);
    return at + 4 + message->properties.size;
}

/* One group to one queue: 0, or the core's error. `*no_memory` is set if there is none for it. */
static int64_t publish_group(const Publishes *self, const struct group *group,
                             const struct way *way, publish_bodies publish, struct scratch *into,
                             bool *no_memory) {
    size_t bytes = 0;
    for (uint32_t left = group->count, i = group->first; left--; i = self->messages[i].next)
        bytes += header_size(way, &self->messages[i]);
    if (!grow(into, group->count, bytes)) {
        *no_memory = true;
        return 0;
    }
    uint8_t *headers = into->headers;
    for (uint32_t at = 0, i = group->first; at < group->count; i = self->messages[i].next, at++) {
        const struct message *message = &self->messages[i];
        into->bodies[at] = (uintptr_t)message->body.at;
        into->body_sizes[at] = (uint32_t)message->body.size;
        into->headers_sizes[at] = (uint32_t)header_size(way, message);
        headers = put_header(headers, way, message);
    }
    int64_t first = publish(way->queue, group->count, into->bodies, into->body_sizes, into->headers,
                            into->headers_sizes, way->flags, 0, 0, NULL, NULL);
    return first < 0 ? first : 0;
}

PyObject *qi_publishes_each(PyObject *object, PyObject *arguments) {
    const Publishes *self = (const Publishes *)object;
    unsigned long long address;
    unsigned int at, stop;
    PyObject *list;
    if (!PyArg_ParseTuple(arguments, "KOII", &address, &list, &at, &stop))
        return NULL;
    stop = stop < self->group_count ? stop : self->group_count;
    struct way *ways = read_ways(self, list);
    if (!ways)
        return NULL;
    publish_bodies publish = (publish_bodies)(uintptr_t)address;
    struct scratch scratch = {0};
    bool no_memory = false;
    int64_t code = 0;
    PyThreadState *thread = PyEval_SaveThread();
    for (; at < stop; at++) {
        code = publish_group(self, &self->groups[at], &ways[at], publish, &scratch, &no_memory);
        if (code || no_memory)
            break;
    }
    PyEval_RestoreThread(thread);
    scratch_free(&scratch);
    free(ways);
    if (no_memory)
        return PyErr_NoMemory();
    return Py_BuildValue("IL", at, (long long)code);
}
