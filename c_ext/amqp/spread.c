/* spread.c - publishes whose ways are known: each group goes straight to its queue.
 *
 * Clients publish to the same exchanges with the same keys again and again. Python remembers where
 * such a group goes, as a Way; here its messages go there. What Python does for each of a thousand
 * queues would cost more than what the store does.
 *
 * The core is another extension: its function comes as an address, so that nothing is linked.
 */
#include "amqp/amqp_private.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_BEGIN = 2, KEY_MAX = KEY_BEGIN + 9 + 2 * 255 };

/* qi_publish_bodies() of the core. */
typedef int64_t (*publish_bodies)(void *queue, uint32_t count, const uintptr_t *bodies,
                                  const uint32_t *body_sizes, const void *headers,
                                  const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                                  uint64_t due_us, const uint8_t *per_flags,
                                  const uint64_t *per_expiry_us);

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
    key[0] = group->wishes.persistent;
    key[1] = group->wishes.priority;
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

/* 1: `known` has a way for the group, which takes it; 0: it has none; -1: an exception. */
static int find_way(struct group *group, PyObject *known) {
    PyObject *key = group->way ? NULL : key_of(group);
    PyObject *found = key ? PyDict_GetItemWithError(known, key) : NULL;
    Py_XDECREF(key);
    if (found && PyObject_TypeCheck(found, qi_way_type))
        group->way = (struct qi_way *)Py_NewRef(found);
    return group->way ? 1 : PyErr_Occurred() ? -1 : 0;
}

/* Of two groups for one queue, the messages have to keep their order. */
static bool are_apart(Publishes *self) {
    uint32_t met = 0;
    while (met < self->group_count && !self->groups[met].way->tally->is_met)
        self->groups[met++].way->tally->is_met = true;
    for (uint32_t i = 0; i < met; i++)
        self->groups[i].way->tally->is_met = false;
    return met == self->group_count;
}

PyObject *qi_publishes_find(PyObject *object, PyObject *known) {
    Publishes *self = (Publishes *)object;
    if (!PyDict_Check(known))
        return PyErr_Format(PyExc_TypeError, "find() takes a dict");
    int found = 1;
    for (uint32_t i = 0; found > 0 && i < self->group_count; i++)
        found = find_way(&self->groups[i], known);
    return found < 0 ? NULL : PyBool_FromLong(found && are_apart(self));
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

static size_t header_size(struct qi_piece prefix, const struct message *message) {
    return 4 + prefix.size + 4 + message->properties.size;
}

static uint8_t *put_header(uint8_t *at, struct qi_piece prefix, const struct message *message) {
    qi_put_big32(at, (uint32_t)(header_size(prefix, message) - 4));
    memcpy(at + 4, prefix.at, prefix.size);
    at += 4 + prefix.size;
    qi_put_big32(at, (uint32_t)message->properties.size);
    memcpy(at + 4, message->properties.at, message->properties.size);
    return at + 4 + message->properties.size;
}

/* One group to its queue: 0, or the core's error. `*no_memory` is set if there is none for it. */
static int64_t publish_group(const Publishes *self, const struct group *group,
                             publish_bodies publish, uint32_t flags, struct scratch *into,
                             bool *no_memory) {
    const struct qi_way *way = group->way;
    struct qi_piece prefix = way->prefix;
    size_t bytes = 0;
    for (uint32_t left = group->count, i = group->first; left--; i = self->messages[i].next)
        bytes += header_size(prefix, &self->messages[i]);
    if (!grow(into, group->count, bytes)) {
        *no_memory = true;
        return 0;
    }
    uint8_t *headers = into->headers;
    for (uint32_t at = 0, i = group->first; at < group->count; i = self->messages[i].next, at++) {
        const struct message *message = &self->messages[i];
        into->bodies[at] = (uintptr_t)message->body.at;
        into->body_sizes[at] = (uint32_t)message->body.size;
        into->headers_sizes[at] = (uint32_t)header_size(prefix, message);
        headers = put_header(headers, prefix, message);
    }
    int64_t first = publish(way->store, group->count, into->bodies, into->body_sizes, into->headers,
                            into->headers_sizes, way->flags | flags, 0, 0, NULL, NULL);
    return first < 0 ? first : 0;
}

/* Counts what came to the queues of these groups: those of them that are watched, as a list. */
static PyObject *tell(const Publishes *self, uint32_t from, uint32_t to) {
    PyObject *watched = PyList_New(0);
    for (uint32_t i = from; i < to; i++) {
        const struct group *group = &self->groups[i];
        group->way->tally->ready += group->count;
        group->way->tally->straight += group->count;
        if (watched && group->way->tally->is_watched &&
            PyList_Append(watched, group->way->queue) != 0)
            Py_CLEAR(watched);
    }
    return watched;
}

PyObject *qi_publishes_each(PyObject *object, PyObject *arguments) {
    const Publishes *self = (const Publishes *)object;
    unsigned long long address;
    unsigned int start, stop, flags;
    if (!PyArg_ParseTuple(arguments, "KIII", &address, &start, &stop, &flags))
        return NULL;
    stop = stop < self->group_count ? stop : self->group_count;
    uint32_t at = start;
    while (at < stop && self->groups[at].way)
        at++;
    if (at < stop)
        return PyErr_Format(PyExc_ValueError, "find() has found no way for group %u", at);
    publish_bodies publish = (publish_bodies)(uintptr_t)address;
    struct scratch scratch = {0};
    bool no_memory = false;
    int64_t code = 0;
    PyThreadState *thread = PyEval_SaveThread();
    for (at = start; at < stop; at++) {
        code = publish_group(self, &self->groups[at], publish, flags, &scratch, &no_memory);
        if (code || no_memory)
            break;
    }
    PyEval_RestoreThread(thread);
    scratch_free(&scratch);
    PyObject *watched = tell(self, start, at);
    if (no_memory) {
        Py_XDECREF(watched);
        return PyErr_NoMemory();
    }
    return watched ? Py_BuildValue("ILN", at, (long long)code, watched) : NULL;
}
