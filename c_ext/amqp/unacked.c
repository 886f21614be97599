/* unacked.c - what a channel was given and has not settled: the class Unacked.
 *
 * Deliveries that came together are a run: tags that follow each other, one owner, and for each
 * message its number in the queue and which delivery of it this is (16 bytes). Runs stand in the
 * order of their tags, so a tag is found by halving. A run that is settled stays until as many are
 * settled as are not; those at the front leave at once.
 */
#include "amqp/amqp.h"

#include <stdlib.h>
#include <string.h>

#define ACK_SIZE 9 /* bytes of a tag, and of a byte whose lowest bit says "multiple" */

struct place {
    uint64_t number, delivery;
    bool is_settled;
};

struct run {
    uint64_t first; /* tag */
    PyObject *owner;
    struct place *places;
    uint32_t count, left, begin; /* all before `begin` are settled */
};

typedef struct {
    PyObject_HEAD struct run *runs;
    size_t begin, end, room; /* of runs */
    size_t settled;          /* runs with nothing left */
    size_t left;             /* deliveries of all runs */
} Unacked;

static void end_run(Unacked *self, struct run *run) {
    Py_CLEAR(run->owner);
    free(run->places);
    run->places = NULL;
    self->settled++;
}

static void unacked_dealloc(PyObject *object) {
    Unacked *self = (Unacked *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (size_t i = self->begin; i < self->end; i++)
        end_run(self, &self->runs[i]);
    free(self->runs);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* Settled runs leave: those at the front, and all of them if they are the most. */
static void tidy(Unacked *self) {
    while (self->begin < self->end && !self->runs[self->begin].left) {
        self->begin++;
        self->settled--;
    }
    if (self->settled <= (self->end - self->begin) / 2)
        return;
    size_t to = 0;
    for (size_t i = self->begin; i < self->end; i++)
        if (self->runs[i].left)
            self->runs[to++] = self->runs[i];
    self->begin = 0;
    self->end = to;
    self->settled = 0;
}

static int make_room(Unacked *self) {
    if (self->end < self->room)
        return 0;
    size_t count = self->end - self->begin;
    if (self->begin > self->room / 2) {
        memmove(self->runs, self->runs + self->begin, count * sizeof *self->runs);
    } else {
        size_t room = self->room ? self->room * 2 : 8;
        struct run *grown = malloc(room * sizeof *grown);
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        if (count)
            memcpy(grown, self->runs + self->begin, count * sizeof *grown);
        free(self->runs);
        self->runs = grown;
        self->room = room;
    }
    self->begin = 0;
    self->end = count;
    return 0;
}

static PyObject *add(PyObject *object, PyObject *arguments) {
    Unacked *self = (Unacked *)object;
    unsigned long long first;
    PyObject *owner;
    const char *numbers, *deliveries;
    Py_ssize_t size, other_size;
    if (!PyArg_ParseTuple(arguments, "KOy#y#", &first, &owner, &numbers, &size, &deliveries,
                          &other_size))
        return NULL;
    size_t count = (size_t)size / sizeof(uint64_t);
    uint64_t next = self->begin < self->end
                        ? self->runs[self->end - 1].first + self->runs[self->end - 1].count
                        : 0;
    if (size != other_size || first < next || !first)
        return PyErr_Format(PyExc_ValueError, "these tags are not behind the last ones");
    if (!count)
        Py_RETURN_NONE;
    struct place *places = malloc(count * sizeof *places);
    if (!places || make_room(self) != 0) {
        free(places);
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(&places[i].number, numbers + i * sizeof(uint64_t), sizeof(uint64_t));
        memcpy(&places[i].delivery, deliveries + i * sizeof(uint64_t), sizeof(uint64_t));
        places[i].is_settled = false;
    }
    self->runs[self->end++] = (struct run){.first = first,
                                           .owner = Py_NewRef(owner),
                                           .places = places,
                                           .count = (uint32_t)count,
                                           .left = (uint32_t)count};
    self->left += count;
    Py_RETURN_NONE;
}

/* ---- settle ---- */

/* What is settled of one owner. */
struct part {
    PyObject *owner;
    uint64_t *numbers, *deliveries;
    size_t count, room;
};

struct parts {
    struct part *items;
    size_t count, room, last;
};

static void free_parts(struct parts *parts) {
    for (size_t i = 0; i < parts->count; i++) {
        Py_DECREF(parts->items[i].owner);
        free(parts->items[i].numbers);
        free(parts->items[i].deliveries);
    }
    free(parts->items);
}

/* The part of this owner, mostly the last one that was asked for; NULL: no memory. */
static struct part *part_of(struct parts *parts, PyObject *owner) {
    if (parts->count && parts->items[parts->last].owner == owner)
        return &parts->items[parts->last];
    for (parts->last = 0; parts->last < parts->count; parts->last++)
        if (parts->items[parts->last].owner == owner)
            return &parts->items[parts->last];
    if (parts->count == parts->room) {
        size_t room = parts->room ? parts->room * 2 : 4;
        struct part *grown = realloc(parts->items, room * sizeof *grown);
        if (!grown)
            return NULL;
        parts->items = grown;
        parts->room = room;
    }
    parts->items[parts->count] = (struct part){.owner = Py_NewRef(owner)};
    return &parts->items[parts->count++];
}

static bool room_for_one(struct part *part) {
    if (part->count < part->room)
        return true;
    size_t room = part->room ? part->room * 2 : 128;
    uint64_t *numbers = realloc(part->numbers, room * sizeof *numbers);
    if (numbers)
        part->numbers = numbers;
    uint64_t *deliveries = numbers ? realloc(part->deliveries, room * sizeof *deliveries) : NULL;
    if (!deliveries)
        return false;
    part->deliveries = deliveries;
    part->room = room;
    return true;
}

/* One delivery leaves its run. 0, or -1 with an exception: then it is still there. */
static int settle_one(Unacked *self, struct run *run, uint32_t at, struct parts *parts) {
    struct place *place = &run->places[at];
    struct part *part = part_of(parts, run->owner);
    if (!part || !room_for_one(part)) {
        PyErr_NoMemory();
        return -1;
    }
    part->numbers[part->count] = place->number;
    part->deliveries[part->count++] = place->delivery;
    place->is_settled = true;
    run->left--;
    self->left--;
    while (run->begin < run->count && run->places[run->begin].is_settled)
        run->begin++;
    if (!run->left)
        end_run(self, run);
    return 0;
}

/* The run that has this delivery, and its place there; NULL: it is settled, or never was. */
static struct run *find(const Unacked *self, uint64_t tag, uint32_t *at) {
    size_t low = self->begin, high = self->end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->runs[middle].first <= tag)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == self->begin)
        return NULL;
    struct run *run = &self->runs[low - 1];
    uint64_t behind = tag - run->first;
    if (!run->left || behind >= run->count || run->places[behind].is_settled)
        return NULL;
    *at = (uint32_t)behind;
    return run;
}

static int settle_up_to(Unacked *self, uint64_t tag, struct parts *parts) {
    for (size_t i = self->begin; i < self->end && self->runs[i].first <= tag; i++) {
        struct run *run = &self->runs[i];
        while (run->left && run->first + run->begin <= tag)
            if (settle_one(self, run, run->begin, parts) != 0)
                return -1;
    }
    return 0;
}

/* 1: it is settled; 0: there is no such delivery; -1: an exception. */
static int settle_ack(Unacked *self, const uint8_t *ack, struct parts *parts) {
    uint64_t tag = qi_big64(ack);
    bool multiple = ack[8] & 1;
    uint32_t at;
    struct run *run = multiple && !tag ? NULL : find(self, tag, &at);
    if (!run && !(multiple && !tag))
        return 0;
    int error = multiple ? settle_up_to(self, tag ? tag : UINT64_MAX, parts)
                         : settle_one(self, run, at, parts);
    if (!error)
        tidy(self);
    return error ? -1 : 1;
}

static PyObject *list_of(const struct parts *parts) {
    PyObject *list = PyList_New((Py_ssize_t)parts->count);
    for (size_t i = 0; list && i < parts->count; i++) {
        const struct part *part = &parts->items[i];
        Py_ssize_t size = (Py_ssize_t)(part->count * sizeof(uint64_t));
        PyObject *made = Py_BuildValue("Oy#y#", part->owner, (const char *)part->numbers, size,
                                       (const char *)part->deliveries, size);
        if (made)
            PyList_SetItem(list, (Py_ssize_t)i, made);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *settle(PyObject *object, PyObject *arguments) {
    Unacked *self = (Unacked *)object;
    const char *acks;
    Py_ssize_t size, at = 0;
    struct parts parts = {0};
    int settled = 1;
    if (!PyArg_ParseTuple(arguments, "y#", &acks, &size))
        return NULL;
    for (; size - at >= ACK_SIZE && settled > 0; at += ACK_SIZE)
        settled = settle_ack(self, (const uint8_t *)acks + at, &parts);
    PyObject *list = settled >= 0 ? list_of(&parts) : NULL, *result = NULL;
    if (list && settled)
        result = Py_BuildValue("OO", list, Py_None);
    else if (list)
        result = Py_BuildValue("OK", list,
                               (unsigned long long)qi_big64((const uint8_t *)acks + at - ACK_SIZE));
    Py_XDECREF(list);
    free_parts(&parts);
    return result;
}

static Py_ssize_t unacked_length(PyObject *object) {
    return (Py_ssize_t)((Unacked *)object)->left;
}

static PyObject *oldest(PyObject *object, PyObject *unused) {
    Unacked *self = (Unacked *)object;
    (void)unused;
    for (size_t i = self->begin; i < self->end; i++) {
        struct run *run = &self->runs[i];
        for (uint32_t at = run->begin; run->left && at < run->count; at++)
            if (!run->places[at].is_settled)
                return PyLong_FromUnsignedLongLong(run->first + at);
    }
    Py_RETURN_NONE;
}

static PyMethodDef unacked_methods[] = {
    {"add", add, METH_VARARGS,
     "add($self, first_tag, owner, numbers, deliveries, /)\n--\n\n"
     "Deliveries with the tags from `first_tag` on; what settles them is given as Taken.places()\n"
     "gives it."},
    {"settle", settle, METH_VARARGS,
     "settle($self, acks, /)\n--\n\n"
     "Take out what these settle: each is a tag (8 bytes) and a byte whose lowest bit says\n"
     "\"all up to it\"; of a tag of 0: all that there are.\n\n"
     "Returns a list of (owner, numbers, deliveries), one for each owner, and the first tag that\n"
     "is unknown, where it stops, or None. O(log runs) for each tag, O(1) for each delivery."},
    {"oldest", oldest, METH_NOARGS,
     "oldest($self, /)\n--\n\nThe least tag that is not settled, or None. O(its run)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot unacked_slots[] = {
    {Py_tp_dealloc, unacked_dealloc},
    {Py_tp_methods, unacked_methods},
    {Py_sq_length, unacked_length},
    {Py_tp_doc, "Unacked()\n--\n\nWhat a channel was given and has not settled."},
    {0, NULL},
};

PyType_Spec qi_unacked_spec = {"qindex._wire.Unacked", sizeof(Unacked), 0, Py_TPFLAGS_DEFAULT,
                               unacked_slots};
