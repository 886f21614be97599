/* way.c - where publishes go that are like earlier ones: the classes Way and Tally.
 *
 * Python finds out where a group of publishes leads, and makes a Way of that once
 * (qindex/serve/ways.py). From then on its messages go there without Python, and the queue's Tally
 * counts them: of a thousand queues, only those that somebody watches cost Python a call each.
 */
#include "amqp/amqp_private.h"

#include <stddef.h>
#include <structmember.h>

PyTypeObject *qi_way_type, *qi_tally_type;

/* ---- Tally ---- */

static PyMemberDef tally_members[] = {
    {"ready", T_LONGLONG, offsetof(struct qi_tally, ready), 0, "Messages that are ready."},
    {"straight", T_LONGLONG, offsetof(struct qi_tally, straight), READONLY,
     "Messages that have come by a Way."},
    {"is_watched", T_BOOL, offsetof(struct qi_tally, is_watched), 0,
     "Somebody wants to hear of each that comes."},
    {NULL, 0, 0, 0, NULL},
};

static void tally_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyType_Slot tally_slots[] = {
    {Py_tp_dealloc, tally_dealloc},
    {Py_tp_members, tally_members},
    {Py_tp_doc, "Tally()\n--\n\nHow many messages a queue has, kept by all who bring some."},
    {0, NULL},
};

PyType_Spec qi_tally_spec = {"qindex._wire.Tally", sizeof(struct qi_tally), 0, Py_TPFLAGS_DEFAULT,
                             tally_slots};

/* ---- Way ---- */

static PyMemberDef way_members[] = {
    {"queue", T_OBJECT_EX, offsetof(struct qi_way, queue), READONLY, "As it was given."},
    {"waits", T_BOOL, offsetof(struct qi_way, waits), READONLY,
     "A confirm has to wait for a sync."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *way_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    PyObject *queue, *begin, *tally;
    unsigned long long address;
    unsigned int flags;
    int waits;
    (void)names;
    if (!PyArg_ParseTuple(arguments, "OKSIO!p", &queue, &address, &begin, &flags, qi_tally_type,
                          &tally, &waits))
        return NULL;
    struct qi_way *self = (struct qi_way *)PyType_GenericAlloc(type, 0);
    if (self) {
        self->queue = Py_NewRef(queue);
        self->begin = Py_NewRef(begin);
        self->prefix = (struct qi_piece){(const uint8_t *)PyBytes_AsString(begin),
                                         (size_t)PyBytes_Size(begin)};
        self->tally = (struct qi_tally *)Py_NewRef(tally);
        self->store = (void *)(uintptr_t)address;
        self->flags = flags;
        self->waits = waits != 0;
    }
    return (PyObject *)self;
}

static int way_traverse(PyObject *object, visitproc visit, void *arg) {
    struct qi_way *self = (struct qi_way *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->queue);
    return 0;
}

static int way_clear(PyObject *object) {
    Py_CLEAR(((struct qi_way *)object)->queue);
    return 0;
}

static void way_dealloc(PyObject *object) {
    struct qi_way *self = (struct qi_way *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->queue);
    Py_XDECREF(self->begin);
    Py_XDECREF((PyObject *)self->tally);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyType_Slot way_slots[] = {
    {Py_tp_new, way_new},
    {Py_tp_dealloc, way_dealloc},
    {Py_tp_traverse, way_traverse},
    {Py_tp_clear, way_clear},
    {Py_tp_members, way_members},
    {Py_tp_doc,
     "Way(queue, store, begin, flags, tally, waits)\n--\n\n"
     "Where a group of publishes goes: into one queue of a store.\n\n"
     "`store` is the address of that queue, which `queue` keeps there. A message's headers begin\n"
     "with `begin`; `flags` are the engine's. `tally` counts the messages."},
    {0, NULL},
};

PyType_Spec qi_way_spec = {"qindex._wire.Way", sizeof(struct qi_way), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, way_slots};
