/* details.c - MessageDetails: what a message has besides ReqId, body and times.
 *
 * Most messages of a queue have nothing special, and share one of these. It is never changed after
 * it was made, but for the name of its queue.
 */
#include "python/calls.h"

#include <structmember.h>

#include "queue/queue.h"

/* MessageDetails. Kept for the life of the process, as cffi's own types are. */
PyTypeObject *qi_details_type;

/* In the order of QI_DEAD_EXPIRED ...; message.DeadReason says the same. */
static const char *const reasons[] = {NULL, "expired", "rejected", "deliveries", "full"};

static void details_dealloc(PyObject *object) {
    Details *self = (Details *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->queue);
    Py_XDECREF(self->headers);
    Py_XDECREF(self->expires_at);
    Py_XDECREF(self->dead);
    Py_XDECREF(self->deaths);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *details_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"queue",      "redelivered", "delivery_count", "persistent",
                               "expires_at", "headers",     "priority",       "dead",
                               "deaths",     NULL};
    PyObject *queue, *expires_at = Py_None, *headers = NULL, *dead = Py_None, *deaths = NULL;
    int redelivered = 0, delivery_count = 1, persistent = 1, priority = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O|pipOSiOS", keywords, &queue, &redelivered,
                                     &delivery_count, &persistent, &expires_at, &headers, &priority,
                                     &dead, &deaths))
        return NULL;
    Details *self = (Details *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->queue = Py_NewRef(queue);
    self->headers = headers ? Py_NewRef(headers) : PyBytes_FromStringAndSize(NULL, 0);
    self->expires_at = Py_NewRef(expires_at);
    self->dead = Py_NewRef(dead);
    self->deaths = deaths ? Py_NewRef(deaths) : PyBytes_FromStringAndSize(NULL, 0);
    self->redelivered = (char)redelivered;
    self->delivery_count = delivery_count;
    self->persistent = (char)persistent;
    self->priority = priority;
    if (!self->headers || !self->deaths) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* Without any if it is gone meanwhile. */
static PyObject *deaths_of(struct qi_queue *queue, const qi_message *message) {
    char few[1024];
    int64_t size = 0;
    if (message->flags & QI_DIED) {
        Py_BEGIN_ALLOW_THREADS size = qi_deaths_of(queue, message->req_id, few, sizeof few);
        Py_END_ALLOW_THREADS
    }
    if (size <= (int64_t)sizeof few)
        return PyBytes_FromStringAndSize(few, size > 0 ? (Py_ssize_t)size : 0);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!bytes)
        return NULL;
    int64_t again;
    Py_BEGIN_ALLOW_THREADS again =
        qi_deaths_of(queue, message->req_id, PyBytes_AsString(bytes), (size_t)size);
    Py_END_ALLOW_THREADS if (again == size) return bytes;
    Py_DECREF(bytes);
    return PyBytes_FromStringAndSize(NULL, 0);
}

PyObject *qi_details_of(struct qi_queue *queue, PyObject *plain, const qi_message *message,
                        PyObject *headers) {
    if (!headers && !message->priority && !message->expiry_us && !message->dead &&
        message->delivery_count == 1 &&
        !(message->flags & (QI_REDELIVERED | QI_TRANSIENT | QI_DIED)))
        return Py_NewRef(plain);
    Details *self = (Details *)PyType_GenericAlloc(qi_details_type, 0);
    if (!self) {
        Py_XDECREF(headers);
        return NULL;
    }
    int is_told = message->dead && message->dead < sizeof reasons / sizeof *reasons;
    self->queue = Py_NewRef(plain); /* so that they show one name */
    self->headers = headers ? headers : PyBytes_FromStringAndSize(NULL, 0);
    self->expires_at = message->expiry_us ? PyFloat_FromDouble((double)message->expiry_us / 1e6)
                                          : Py_NewRef(Py_None);
    self->dead = is_told ? PyUnicode_InternFromString(reasons[message->dead]) : Py_NewRef(Py_None);
    self->deaths = deaths_of(queue, message);
    self->redelivered = (message->flags & QI_REDELIVERED) != 0;
    self->persistent = !(message->flags & QI_TRANSIENT);
    self->delivery_count = (int)message->delivery_count;
    self->priority = (int)message->priority;
    if (!self->headers || !self->expires_at || !self->dead || !self->deaths) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* _rename(name): the queue has this name now. Another thread may be reading the old one, which
 * therefore stays in memory. */
static PyObject *details_rename(PyObject *object, PyObject *name) {
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "a queue's name is a str");
    __atomic_store_n(&((Details *)object)->queue, Py_NewRef(name), __ATOMIC_RELEASE);
    Py_RETURN_NONE;
}

static PyMethodDef details_methods[] = {
    {"_rename", details_rename, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *details_queue(PyObject *object, void *unused) {
    (void)unused;
    PyObject *queue = __atomic_load_n(&((Details *)object)->queue, __ATOMIC_ACQUIRE);
    return PyObject_TypeCheck(queue, qi_details_type) ? details_queue(queue, NULL)
                                                      : Py_NewRef(queue);
}

static PyGetSetDef details_computed[] = {
    {"queue", details_queue, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef details_members[] = {
    {"redelivered", T_BOOL, offsetof(Details, redelivered), READONLY, NULL},
    {"delivery_count", T_INT, offsetof(Details, delivery_count), READONLY, NULL},
    {"persistent", T_BOOL, offsetof(Details, persistent), READONLY, NULL},
    {"expires_at", T_OBJECT_EX, offsetof(Details, expires_at), READONLY, NULL},
    {"headers", T_OBJECT_EX, offsetof(Details, headers), READONLY, NULL},
    {"priority", T_INT, offsetof(Details, priority), READONLY, NULL},
    {"dead", T_OBJECT_EX, offsetof(Details, dead), READONLY, NULL},
    {"deaths", T_OBJECT_EX, offsetof(Details, deaths), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot details_slots[] = {
    {Py_tp_new, details_new},
    {Py_tp_dealloc, details_dealloc},
    {Py_tp_members, details_members},
    {Py_tp_getset, details_computed},
    {Py_tp_methods, details_methods},
    {Py_tp_doc, "What a message has besides its ReqId, body and times."},
    {0, NULL},
};

PyType_Spec qi_details_spec = {"qindex._calls.MessageDetails", sizeof(Details), 0,
                               Py_TPFLAGS_DEFAULT, details_slots};
