/* publishes.c - publishes that came one behind the other, in groups: the class Publishes.
 *
 * Publishes of one channel to one exchange with one key are a group, if nothing in their properties
 * has to be looked at, or all their properties are the same bytes. So Python asks once per group
 * what is to be done, and gather() makes one batch for each queue of what the groups of that queue
 * have, in the order in which it came.
 *
 * Messages are not copied before that: they stay in the bytes that the socket has read.
 */
#include "amqp/amqp_private.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

PyTypeObject *qi_publishes_type;

Publishes *qi_publishes_new(PyObject *data) {
    Publishes *self = (Publishes *)PyType_GenericAlloc(qi_publishes_type, 0);
    if (self)
        self->data = Py_NewRef(data);
    return self;
}

static void publishes_dealloc(PyObject *object) {
    Publishes *self = (Publishes *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->data);
    Py_XDECREF(self->kept);
    for (uint32_t i = 0; i < self->group_count; i++)
        Py_XDECREF((PyObject *)self->groups[i].way);
    free(self->messages);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

int qi_publishes_keep(Publishes *self, PyObject *object) {
    if (!self->kept)
        self->kept = PyList_New(0);
    int error = self->kept ? PyList_Append(self->kept, object) : -1;
    Py_DECREF(object);
    return error;
}

bool qi_publishes_is_full(const Publishes *self) {
    return self->group_count == GROUPS_MAX;
}

static bool is_same(struct qi_piece one, struct qi_piece other) {
    return one.size == other.size && (!one.size || memcmp(one.at, other.at, one.size) == 0);
}

static bool is_in(const struct group *group, const struct qi_content *content,
                  struct qi_wishes wishes) {
    if (group->channel != content->channel || !is_same(group->method, content->method) ||
        group->wishes.plain != wishes.plain)
        return false;
    return wishes.plain ? group->wishes.persistent == wishes.persistent &&
                              group->wishes.priority == wishes.priority &&
                              group->wishes.expiration_ms == wishes.expiration_ms
                        : is_same(group->properties, content->properties);
}

static uint32_t hash_of(const struct qi_content *content, struct qi_wishes wishes) {
    uint32_t hash = 2166136261u ^ content->channel ^ (uint32_t)wishes.priority << 16;
    hash = (hash ^ (uint32_t)wishes.expiration_ms) * 16777619u;
    for (size_t i = 0; i < content->method.size; i++)
        hash = (hash ^ content->method.at[i]) * 16777619u;
    for (size_t i = 0; !wishes.plain && i < content->properties.size; i++)
        hash = (hash ^ content->properties.at[i]) * 16777619u;
    return hash;
}

/* The number of the content's group, which there is from now on. */
static uint32_t group_of(Publishes *self, const struct qi_content *content) {
    struct qi_wishes wishes = qi_wishes_of(content->properties);
    if (self->count) { /* mostly that of the message before */
        uint32_t last = self->messages[self->count - 1].group;
        if (is_in(&self->groups[last], content, wishes))
            return last;
    }
    uint32_t place = hash_of(content, wishes) % PLACES;
    while (self->places[place]) {
        uint32_t number = self->places[place] - 1u;
        if (is_in(&self->groups[number], content, wishes))
            return number;
        place = (place + 1) % PLACES;
    }
    self->groups[self->group_count] = (struct group){.method = content->method,
                                                     .properties = content->properties,
                                                     .wishes = wishes,
                                                     .channel = content->channel};
    self->places[place] = (uint16_t)(self->group_count + 1);
    return self->group_count++;
}

int qi_publishes_add(Publishes *self, const struct qi_content *content) {
    if (self->count == self->room) {
        size_t room = self->room ? self->room * 2 : 64;
        struct message *grown = realloc(self->messages, room * sizeof *grown);
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        self->messages = grown;
        self->room = room;
    }
    uint32_t at = (uint32_t)self->count, number = group_of(self, content);
    struct group *group = &self->groups[number];
    if (group->count++)
        self->messages[group->last].next = at;
    else
        group->first = at;
    group->last = at;
    self->messages[self->count++] =
        (struct message){content->properties, content->body, content->whole, number, at};
    return 0;
}

/* ---- what Python sees ---- */

static Py_ssize_t publishes_length(PyObject *object) {
    return (Py_ssize_t)((Publishes *)object)->count;
}

static PyObject *get_groups(PyObject *object, void *unused) {
    Publishes *self = (Publishes *)object;
    (void)unused;
    PyObject *list = PyList_New(self->group_count);
    for (uint32_t i = 0; list && i < self->group_count; i++) {
        const struct group *group = &self->groups[i];
        PyObject *properties =
            group->wishes.plain ? Py_NewRef(Py_None) : qi_bytes(group->properties);
        PyObject *made = properties ? Py_BuildValue("Hy#OiKOI", group->channel, group->method.at,
                                                    (Py_ssize_t)group->method.size,
                                                    group->wishes.persistent ? Py_True : Py_False,
                                                    (int)group->wishes.priority,
                                                    (unsigned long long)group->wishes.expiration_ms,
                                                    properties, (unsigned)group->count)
                                    : NULL;
        Py_XDECREF(properties);
        if (made)
            PyList_SetItem(list, i, made);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *get_order(PyObject *object, void *unused) {
    Publishes *self = (Publishes *)object;
    (void)unused;
    PyObject *order = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)self->count);
    char *at = order ? PyBytes_AsString(order) : NULL;
    for (size_t i = 0; order && i < self->count; i++)
        at[i] = (char)self->messages[i].group;
    return order;
}

static PyObject *body_of(const struct message *message) {
    return message->whole && message->body.size >= QI_LARGE ? Py_NewRef(message->whole)
                                                            : qi_bytes(message->body);
}

/* The number of the group, the properties and the body of each message. */
static PyObject *contents(PyObject *object, PyObject *unused) {
    Publishes *self = (Publishes *)object;
    (void)unused;
    PyObject *list = PyList_New((Py_ssize_t)self->count);
    for (size_t i = 0; list && i < self->count; i++) {
        const struct message *message = &self->messages[i];
        PyObject *properties = qi_bytes(message->properties), *made = NULL;
        PyObject *body = properties ? body_of(message) : NULL;
        if (body)
            made = Py_BuildValue("IOO", message->group, properties, body);
        Py_XDECREF(properties);
        Py_XDECREF(body);
        if (made)
            PyList_SetItem(list, (Py_ssize_t)i, made);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* ---- gather ---- */

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

/* What is gathered: the shares, by group, and the only group that has one, or -1. */
struct wanted {
    struct share shares[GROUPS_MAX];
    int64_t only;
};

static int read_wanted(const Publishes *self, PyObject *list, struct wanted *wanted) {
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "gather() takes a list with an item for each group");
        return -1;
    }
    Py_ssize_t count = PyList_Size(list);
    wanted->only = -1;
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
        wanted->shares[number] = (struct share){
            .prefix = {(const uint8_t *)prefix, (size_t)size}, .flags = flags, .is_wanted = true};
        wanted->only = count == 1 ? (int64_t)number : -1;
    }
    return 0;
}

/* The next message from `at` on that is wanted, or the number of all. Those of one group alone are
 * found without a look at the others: many queues would cost as many looks at each message. */
static size_t next_wanted(const Publishes *self, const struct wanted *wanted, size_t at) {
    if (wanted->only >= 0) {
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

static int make_room(const Publishes *self, const struct wanted *wanted, struct gathered *into) {
    size_t count = 0, bodies = 0, headers = 0;
    for (size_t i = 0; (i = next_wanted(self, wanted, i)) < self->count; i++) {
        const struct message *message = &self->messages[i];
        const struct share *share = &wanted->shares[message->group];
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

static void fill(const Publishes *self, const struct wanted *wanted, struct gathered *into) {
    uint8_t *body = (uint8_t *)PyBytes_AsString(into->bodies);
    uint8_t *headers = (uint8_t *)PyBytes_AsString(into->headers);
    uint32_t *body_sizes = (uint32_t *)(void *)PyBytes_AsString(into->body_sizes);
    uint32_t *headers_sizes = (uint32_t *)(void *)PyBytes_AsString(into->headers_sizes);
    uint8_t *flags = (uint8_t *)PyBytes_AsString(into->flags);
    for (size_t i = 0; (i = next_wanted(self, wanted, i)) < self->count; i++) {
        const struct message *message = &self->messages[i];
        const struct share *share = &wanted->shares[message->group];
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

static PyObject *gather(PyObject *object, PyObject *list) {
    const Publishes *self = (const Publishes *)object;
    struct wanted wanted = {0};
    struct gathered into = {0};
    PyObject *result = NULL;
    if (read_wanted(self, list, &wanted) != 0)
        return NULL;
    if (make_room(self, &wanted, &into) == 0) {
        fill(self, &wanted, &into);
        result = PyTuple_Pack(5, into.bodies, into.body_sizes, into.headers, into.headers_sizes,
                              into.flags);
    }
    Py_XDECREF(into.bodies);
    Py_XDECREF(into.body_sizes);
    Py_XDECREF(into.headers);
    Py_XDECREF(into.headers_sizes);
    Py_XDECREF(into.flags);
    return result;
}

static PyMethodDef publishes_methods[] = {
    {"contents", contents, METH_NOARGS,
     "contents($self)\n--\n\n"
     "Each message: the number of its group, its properties and its body. A large body may be a\n"
     "bytearray, so that it is in memory once."},
    {"gather", gather, METH_O,
     "gather($self, wanted, /)\n--\n\n"
     "A batch of the messages of some groups, in order, as the engine takes it.\n\n"
     "`wanted` has, for each of these groups, its number, what its messages' headers begin with,\n"
     "and their flags. The rest of a message's headers are its properties, as a long string.\n"
     "Returns the bodies end to end, their sizes, the headers end to end, their sizes (both as\n"
     "the bytes of an array of uint32_t), and the flags, a byte each. Cost: one copy; of several\n"
     "groups also a look at every message."},
    {"keys", qi_publishes_keys, METH_NOARGS,
     "keys($self)\n--\n\n"
     "The key of each group, as bytes: its channel, persistent, priority, payload of the method.\n"
     "None: its properties are not plain, or it has an expiration."},
    {"find", qi_publishes_find, METH_O,
     "find($self, known, /)\n--\n\n"
     "True: `known`, a dict, has a Way for the key of each group, and each leads to a queue of\n"
     "its own; `found` has them from now on. A dictionary look-up for each group."},
    {"publish_each", qi_publishes_each, METH_VARARGS,
     "publish_each($self, publish, start, stop, /)\n--\n\n"
     "Give the messages of the groups with numbers from `start` to below `stop` to the queues\n"
     "that find() has found, through the core's qi_publish_bodies(), whose address is "
     "`publish`.\n\n"
     "Returns the number of the group that it ended at; the code of the error that ended it, or\n"
     "0; and the queues that got some and are watched. Bodies are not copied. The interpreter's\n"
     "lock is released meanwhile."},
    {NULL, NULL, 0, NULL},
};

static PyObject *get_channel(PyObject *object, void *unused) {
    const Publishes *self = (const Publishes *)object;
    (void)unused;
    for (uint32_t i = 1; i < self->group_count; i++)
        if (self->groups[i].channel != self->groups[0].channel)
            return Py_NewRef(Py_None);
    return PyLong_FromLong(self->groups[0].channel);
}

static PyObject *get_found(PyObject *object, void *unused) {
    const Publishes *self = (const Publishes *)object;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < self->group_count && self->groups[i].way; i++)
        if (PyList_Append(list, (PyObject *)self->groups[i].way) != 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *get_counts(PyObject *object, void *unused) {
    const Publishes *self = (const Publishes *)object;
    (void)unused;
    PyObject *list = PyList_New(self->group_count);
    for (uint32_t i = 0; list && i < self->group_count; i++) {
        PyObject *made = PyLong_FromUnsignedLong(self->groups[i].count);
        if (made)
            PyList_SetItem(list, i, made);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *get_waits(PyObject *object, void *unused) {
    const Publishes *self = (const Publishes *)object;
    (void)unused;
    for (uint32_t i = 0; i < self->group_count; i++) {
        const struct qi_way *way = self->groups[i].way;
        if (!way || way->waits != self->groups[0].way->waits)
            Py_RETURN_NONE;
    }
    return PyBool_FromLong(self->groups[0].way->waits);
}

static PyMemberDef publishes_members[] = {
    {"group_count", T_UINT, offsetof(struct qi_publishes, group_count), READONLY,
     "How many groups there are."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef publishes_getset[] = {
    {"channel", get_channel, NULL, "The channel of all of them; None: they have several.", NULL},
    {"counts", get_counts, NULL, "How many messages each group has.", NULL},
    {"groups", get_groups, NULL,
     "For each group: channel, payload of the method, persistent, priority, expiration in\n"
     "milliseconds (0: none), properties (None: they differ, and nothing else in them has to be\n"
     "looked at), number of messages.",
     NULL},
    {"order", get_order, NULL, "The number of each message's group, as a byte.", NULL},
    {"waits", get_waits, NULL, "What all ways say of their confirms; None: they differ.", NULL},
    {"found", get_found, NULL, "The Way of each group, behind find().", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot publishes_slots[] = {
    {Py_tp_dealloc, publishes_dealloc},
    {Py_tp_methods, publishes_methods},
    {Py_tp_getset, publishes_getset},
    {Py_tp_members, publishes_members},
    {Py_sq_length, publishes_length},
    {Py_tp_doc, "Publishes that came one behind the other, in groups; made by a Scanner."},
    {0, NULL},
};

PyType_Spec qi_publishes_spec = {"qindex._wire.Publishes", sizeof(Publishes), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 publishes_slots};
