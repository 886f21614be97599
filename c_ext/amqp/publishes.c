/* publishes.c - publishes that came one behind the other, in groups: the class Publishes.
 *
 * Publishes of one channel to one exchange with one key are a group, if nothing in their properties
 * has to be looked at, or all their properties are the same bytes. So Python asks once per group
 * what is to be done, and gather() makes one batch for each queue of what the groups of that queue
 * have, in the order in which it came.
 *
 * Messages are not copied before that: they stay in the bytes that the socket has read. Who reads
 * into those again calls Scanner.keep() before.
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
    free(self->groups);
    free(self->places);
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

/* Bytes that were moved to another place. */
struct moved {
    uintptr_t from, to;
    size_t size;
};

static void move(struct qi_piece *piece, const struct moved *moved) {
    uintptr_t at = (uintptr_t)piece->at;
    if (at >= moved->from && at - moved->from < moved->size)
        piece->at = (const uint8_t *)(moved->to + (at - moved->from));
}

void qi_publishes_move(Publishes *self, struct qi_piece from, PyObject *to) {
    struct moved moved = {(uintptr_t)from.at, (uintptr_t)PyBytes_AsString(to), from.size};
    for (uint32_t i = 0; i < self->group_count; i++) {
        move(&self->groups[i].method, &moved);
        move(&self->groups[i].properties, &moved);
    }
    for (size_t i = 0; i < self->count; i++) {
        move(&self->messages[i].properties, &moved);
        move(&self->messages[i].body, &moved);
    }
    PyObject *before = self->data;
    self->data = Py_NewRef(to);
    Py_DECREF(before);
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

/* Room for one group more, and for all in the hash table. 0, or -1 with an exception. */
static int make_group_room(Publishes *self) {
    if (self->group_count < self->group_room)
        return 0;
    uint32_t room = self->group_room ? self->group_room * 4 : 16, places = 2 * room;
    struct group *grown = realloc(self->groups, room * sizeof *grown);
    if (grown)
        self->groups = grown;
    uint16_t *table = grown ? calloc(places, sizeof *table) : NULL;
    if (!table) {
        PyErr_NoMemory();
        return -1;
    }
    free(self->places);
    self->places = table;
    self->group_room = room;
    for (uint32_t i = 0; i < self->group_count; i++) {
        uint32_t place = self->groups[i].hash % places;
        while (table[place])
            place = (place + 1) % places;
        table[place] = (uint16_t)(i + 1);
    }
    return 0;
}

/* The content's group, which there is from now on; NULL with an exception. */
static struct group *group_of(Publishes *self, const struct qi_content *content) {
    struct qi_wishes wishes = qi_wishes_of(content->properties);
    if (self->count) { /* mostly that of the message before */
        struct group *last = &self->groups[self->messages[self->count - 1].group];
        if (is_in(last, content, wishes))
            return last;
    }
    if (make_group_room(self) != 0)
        return NULL;
    uint32_t hash = hash_of(content, wishes), places = 2 * self->group_room, place = hash % places;
    for (; self->places[place]; place = (place + 1) % places) {
        struct group *group = &self->groups[self->places[place] - 1u];
        if (group->hash == hash && is_in(group, content, wishes))
            return group;
    }
    struct group *group = &self->groups[self->group_count];
    *group = (struct group){.method = content->method,
                            .properties = content->properties,
                            .wishes = wishes,
                            .hash = hash,
                            .channel = content->channel};
    self->places[place] = (uint16_t)++self->group_count;
    return group;
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
    uint32_t at = (uint32_t)self->count;
    struct group *group = group_of(self, content);
    if (!group)
        return -1;
    if (group->count++)
        self->messages[group->last].next = at;
    else
        group->first = at;
    group->last = at;
    self->body_bytes += content->body.size;
    self->messages[self->count++] = (struct message){
        content->properties, content->body, content->whole, (uint32_t)(group - self->groups), at};
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
    PyObject *order = PyList_New((Py_ssize_t)self->count);
    for (size_t i = 0; order && i < self->count; i++) {
        PyObject *number = PyLong_FromUnsignedLong(self->messages[i].group);
        if (number)
            PyList_SetItem(order, (Py_ssize_t)i, number);
        else
            Py_CLEAR(order);
    }
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

static PyMethodDef publishes_methods[] = {
    {"contents", contents, METH_NOARGS,
     "contents($self)\n--\n\n"
     "Each message: the number of its group, its properties and its body. A large body may be a\n"
     "bytearray, so that it is in memory once."},
    {"gather", qi_publishes_gather, METH_O,
     "gather($self, wanted, /)\n--\n\n"
     "A batch of the messages of some groups, in order, as the engine takes it.\n\n"
     "`wanted` has, for each of these groups, its number, what its messages' headers begin with,\n"
     "and their flags. The rest of a message's headers are its properties, as a long string.\n"
     "Returns the bodies end to end, their sizes, the headers end to end, their sizes (both as\n"
     "the bytes of an array of uint32_t), and the flags, a byte each. Cost: one copy; of several\n"
     "groups also a look at every message."},
    {"keys", qi_publishes_keys, METH_NOARGS,
     "keys($self)\n--\n\n"
     "The key of each group, as bytes: persistent, priority, payload of the method.\n"
     "None: its properties are not plain, or it has an expiration."},
    {"find", qi_publishes_find, METH_O,
     "find($self, known, /)\n--\n\n"
     "True: `known`, a dict, has a Way for the key of each group, and each leads to a queue of\n"
     "its own; `found` has them from now on. A dictionary look-up for each group."},
    {"publish_each", qi_publishes_each, METH_VARARGS,
     "publish_each($self, publish, start, stop, flags, /)\n--\n\n"
     "Give the messages of the groups with numbers from `start` to below `stop` to the queues\n"
     "that find() has found, through the core's qi_publish_bodies(), whose address is "
     "`publish`;\nwith `flags` besides those of their ways.\n\n"
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
    {"body_bytes", T_ULONGLONG, offsetof(struct qi_publishes, body_bytes), READONLY,
     "The bytes of all bodies."},
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
    {"order", get_order, NULL, "The number of each message's group.", NULL},
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
