/* fields.c - what a message is: MessageFields, and the type Message that message.py makes of it.
 *
 * A message that was handed out must not get lost on the way to who asked for it. CPython runs
 * signal handlers between a call into C and whatever its caller does with the answer; if a handler
 * raises there, the interpreter drops the message while it unwinds. So a message that goes away
 * while an exception is on its way gives its delivery back: nobody has it. If it was settled, or is
 * delivered to somebody else by then, the engine sees that by the delivery, and nothing happens.
 * Whoever has read its body or ReqId may have passed it on, so that message stays unacked.
 *
 * A message knows its queue by a weak reference: it keeps no store open.
 */
#include "python/calls.h"

#include <structmember.h>

#include "queue/queue.h"

/* MessageFields. Kept for the life of the process, as cffi's own types are. */
PyTypeObject *qi_fields_type;

/* A new reference to the Calls that a message came from; NULL: there is none any more. No exception
 * is set. */
static PyObject *owner_of(const Fields *self) {
    PyObject *owner = NULL;
    if (!self->owner)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyWeakref_GetRef(self->owner, &owner);
#else
    owner = PyWeakref_GetObject(self->owner);
    owner = owner == Py_None ? NULL : Py_XNewRef(owner);
#endif
    return owner;
}

/* Nobody has the message: it is ready again. What cannot be done about it is nobody's error. */
static void give_back(const Fields *self) {
    PyObject *owner = owner_of(self);
    struct qi_queue *queue = owner ? ((Calls *)owner)->queue : NULL;
    uint64_t req_id = PyLong_AsUnsignedLongLong(self->req_id), delivery = self->delivery;
    if (queue && delivery && queue->store->fork_generation == qi_fork_generation())
        qi_put_back(queue, req_id, delivery);
    Py_XDECREF(owner);
}

static PyObject *fields_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"req_id", "body", "details", "due_us", "delivery", "owner", NULL};
    PyObject *req_id, *body, *details, *owner = NULL;
    unsigned long long due_us = 0, delivery = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!OO|KKO", keywords, &PyLong_Type, &req_id,
                                     &body, &details, &due_us, &delivery, &owner))
        return NULL;
    Fields *self = (Fields *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->req_id = Py_NewRef(req_id);
    self->body = Py_NewRef(body);
    self->details = Py_NewRef(details);
    self->owner = owner && PyWeakref_Check(owner) ? Py_NewRef(owner) : NULL;
    self->due_us = due_us;
    self->delivery = delivery;
    return (PyObject *)self;
}

static void fields_dealloc(PyObject *object) {
    Fields *self = (Fields *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->owner && !self->known && PyErr_Occurred()) {
        PyObject *kind, *value, *trace;
        PyErr_Fetch(&kind, &value, &trace);
        give_back(self);
        PyErr_Restore(kind, value, trace);
    }
    Py_XDECREF(self->req_id);
    Py_XDECREF(self->body);
    Py_XDECREF(self->details);
    Py_XDECREF(self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* _acked: acks it. An attribute and no method: after a call the interpreter runs signal handlers,
 * after this it does not, so that what is returned next is returned. */
static PyObject *acked(PyObject *object, void *closure) {
    (void)closure;
    const Fields *self = (const Fields *)object;
    uint64_t req_id = PyLong_AsUnsignedLongLong(self->req_id), delivery = self->delivery;
    PyObject *owner = owner_of(self);
    if (!owner)
        return PyErr_Format(PyExc_RuntimeError, "the message's queue is gone");
    struct qi_queue *queue = ((Calls *)owner)->queue;
    int64_t code = qi_ack_now(queue, req_id, delivery), synced = 0;
    Py_BEGIN_ALLOW_THREADS if (code != 0) code = qi_ack(queue, req_id, delivery);
    if (code == 0 && ((Calls *)owner)->confirm_all)
        synced = qi_queue_sync(queue);
    Py_END_ALLOW_THREADS PyObject *result =
        code < 0     ? PyObject_CallMethod(owner, "_ack", "O", object)
        : synced < 0 ? PyObject_CallMethod(owner, "_confirm", NULL)
                     : Py_NewRef(Py_None);
    Py_DECREF(owner);
    return result;
}

/* _taken_from: the Calls that it was taken through; None: it was only looked at, or these are
 * gone. */
static PyObject *taken_from(PyObject *object, void *closure) {
    (void)closure;
    PyObject *owner = owner_of((const Fields *)object);
    if (owner)
        return owner;
    Py_RETURN_NONE;
}

/* _returned: it goes back to its place, if nobody has settled it; for who could not hand it on. */
static PyObject *returned(PyObject *object, void *closure) {
    (void)closure;
    give_back((const Fields *)object);
    Py_RETURN_NONE;
}

static PyObject *get_req_id(PyObject *object, void *closure) {
    (void)closure;
    ((Fields *)object)->known = true;
    return Py_NewRef(((const Fields *)object)->req_id);
}

static PyObject *get_body(PyObject *object, void *closure) {
    (void)closure;
    ((Fields *)object)->known = true;
    return Py_NewRef(((const Fields *)object)->body);
}

static PyMemberDef fields_members[] = {
    {"_details", T_OBJECT_EX, offsetof(Fields, details), READONLY, NULL},
    {"_due_us", T_ULONGLONG, offsetof(Fields, due_us), READONLY, NULL},
    {"_published_us", T_ULONGLONG, offsetof(Fields, published_us), READONLY, NULL},
    {"_delivery", T_ULONGLONG, offsetof(Fields, delivery), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef fields_verbs[] = {
    {"req_id", get_req_id, NULL,
     "The ReqId: the message's number in its queue. It is never used again.", NULL},
    {"body", get_body, NULL,
     "The body, as bytes: exactly what was published. Reading it copies nothing.", NULL},
    {"_acked", acked, NULL, NULL, NULL},
    {"_returned", returned, NULL, NULL, NULL},
    {"_taken_from", taken_from, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot fields_slots[] = {
    {Py_tp_new, fields_new},
    {Py_tp_dealloc, fields_dealloc},
    {Py_tp_members, fields_members},
    {Py_tp_getset, fields_verbs},
    {Py_tp_doc, "The fields of a message that the core fills in."},
    {0, NULL},
};

PyType_Spec qi_fields_spec = {"qindex._calls.MessageFields", sizeof(Fields), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, fields_slots};

static PyType_Slot message_slots[] = {{Py_tp_dealloc, fields_dealloc}, {0, NULL}};

static PyType_Spec message_spec = {"qindex.message.Message", sizeof(Fields), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, message_slots};

PyObject *qi_new_message_type(PyObject *module, PyObject *none) {
    (void)module;
    (void)none;
    return PyType_FromSpecWithBases(&message_spec, (PyObject *)qi_fields_type);
}
