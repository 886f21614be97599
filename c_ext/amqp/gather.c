/* gather.c - a batch of the messages of some groups, as the engine takes it end to end. */
#include "amqp/amqp_private.h"

#include <stdlib.h>
#include <string.h>

/* What a queue takes of a group: what its messages' headers begin with, and their flags. */
struct share {
    struct qi_piece prefix;
    uint8_t flags;
    bool is_wanted;
};

/* The bytes of what is gathered, as bytes objects. */
struct gathered {
    PyObject *bodies, *body_sizes, *headers, *headers_sizes, *flags;
};

/* What is gathered: the shares, by group; or, of one group alone, its share and its number. */
struct wanted {
    struct share *shares, one;
    uint32_t only;
};

static struct share *share_of(struct wanted *wanted, uint32_t group) {
    return wanted->shares ? &wanted->shares[group] : &wanted->one;
}

static int read_wanted(const Publishes *self, PyObject *list, struct wanted *wanted) {
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "gather() takes a list with an item for each group");
        return -1;
    }
    Py_ssize_t count = PyList_Size(list);
    if (count != 1 && !(wanted->shares = calloc(self->group_count, sizeof *wanted->shares))) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned int number;
        const char *prefix;
        Py_ssize_t size;
        uint8_t flags;
        PyObject *item = PyList_GetItem(list, i);
        if (!PyTuple_Check(item)) {
            PyErr_SetString(PyExc_TypeError, "an item of gather() is a tuple");
            return -1;
        }
        if (!PyArg_ParseTuple(item, "Iy#b", &number, &prefix, &size, &flags))
            return -1;
        if (number >= self->group_count) {
            PyErr_SetString(PyExc_IndexError, "there is no such group");
            return -1;
        }
        *share_of(wanted, number) = (struct share){
            .prefix = {(const uint8_t *)prefix, (size_t)size}, .flags = flags, .is_wanted = true};
        wanted->only = number;
    }
    return 0;
}

/* The next message from `at` on that is wanted, or the number of all. Those of one group alone are
 * found without a look at the others: many queues would cost as many looks at each message. */
static size_t next_wanted(const Publishes *self, const struct wanted *wanted, size_t at) {
    if (!wanted->shares) {
        const struct group *group = &self->groups[wanted->only];
        if (at == 0)
            return group->first;
        size_t next = self->messages[at - 1].next;
        return next == at - 1 ? self->count : next;
    }
    while (at < self->count && !wanted->shares[self->messages[at].group].is_wanted)
        at++;
    return at;
}

static size_t headers_size(const struct share *share, const struct message *message) {
    return 4 + share->prefix.size + 4 + message->properties.size;
}

static int make_room(const Publishes *self, struct wanted *wanted, struct gathered *into) {
    size_t count = 0, bodies = 0, headers = 0;
    for (size_t i = 0; (i = next_wanted(self, wanted, i)) < self->count; i++) {
        const struct message *message = &self->messages[i];
        const struct share *share = share_of(wanted, message->group);
        count++;
        bodies += message->body.size;
        headers += headers_size(share, message);
    }
    Py_ssize_t sizes = (Py_ssize_t)(count * sizeof(uint32_t));
    into->bodies = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bodies);
    into->headers = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)headers);
    into->body_sizes = PyBytes_FromStringAndSize(NULL, sizes);
    into->headers_sizes = PyBytes_FromStringAndSize(NULL, sizes);
    into->flags = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count);
    return into->bodies && into->headers && into->body_sizes && into->headers_sizes && into->flags
               ? 0
               : -1;
}

static uint8_t *put(uint8_t *at, struct qi_piece piece) {
    if (piece.size)
        memcpy(at, piece.at, piece.size);
    return at + piece.size;
}

static void fill(const Publishes *self, struct wanted *wanted, struct gathered *into) {
    uint8_t *body = (uint8_t *)PyBytes_AsString(into->bodies);
    uint8_t *headers = (uint8_t *)PyBytes_AsString(into->headers);
    uint32_t *body_sizes = (uint32_t *)(void *)PyBytes_AsString(into->body_sizes);
    uint32_t *headers_sizes = (uint32_t *)(void *)PyBytes_AsString(into->headers_sizes);
    uint8_t *flags = (uint8_t *)PyBytes_AsString(into->flags);
    for (size_t i = 0; (i = next_wanted(self, wanted, i)) < self->count; i++) {
        const struct message *message = &self->messages[i];
        const struct share *share = share_of(wanted, message->group);
        size_t size = headers_size(share, message);
        qi_put_big32(headers, (uint32_t)(size - 4));
        headers = put(headers + 4, share->prefix);
        qi_put_big32(headers, (uint32_t)message->properties.size);
        headers = put(headers + 4, message->properties);
        body = put(body, message->body);
        *headers_sizes++ = (uint32_t)size;
        *body_sizes++ = (uint32_t)message->body.size;
        *flags++ = share->flags;
    }
}

PyObject *qi_publishes_gather(PyObject *object, PyObject *list) {
    const Publishes *self = (const Publishes *)object;
    struct wanted wanted = {0};
    struct gathered into = {0};
    PyObject *result = NULL;
    if (read_wanted(self, list, &wanted) != 0) {
        free(wanted.shares);
        return NULL;
    }
    if (make_room(self, &wanted, &into) == 0) {
        fill(self, &wanted, &into);
        result = PyTuple_Pack(5, into.bodies, into.body_sizes, into.headers, into.headers_sizes,
                              into.flags);
    }
    free(wanted.shares);
    Py_XDECREF(into.bodies);
    Py_XDECREF(into.body_sizes);
    Py_XDECREF(into.headers);
    Py_XDECREF(into.headers_sizes);
    Py_XDECREF(into.flags);
    return result;
}
