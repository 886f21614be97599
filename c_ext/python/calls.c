/* calls.c - publish, get and ack for CPython, and what they hand out: the module qindex._calls.
 *
 * These three are called once per message. Through cffi such a call costs more than the engine's work: arguments are
 * converted one by one, the GIL is given up and taken again. Here the engine is asked first to do it without waiting
 * (qi_publish_now and its like), with the GIL held; if it would have to wait, or something is out of the ordinary, the
 * Python method of the same name with `_` in front does it, which goes through cffi like all other verbs.
 *
 * Only the stable ABI of CPython 3.11 is used. The module lives in the same shared library as qindex._core (PEP 489,
 * "multiple modules in one library"), so there is one engine; qindex/native.py loads it.
 *
 * There are Pythons without a GIL, where any of this runs in several threads at once, also on the same objects; they have
 * no stable ABI of 3.11. So: what a call changes is the engine's (its lock), on the stack, an object that nobody else
 * has seen, or one of the two things of a Calls that are not set for good when it is made. Nobody else's list or dict is
 * looked into; of the own one a new reference is taken.
 */
#include "calls.h"

#include <stdatomic.h>
#include <structmember.h>

#include "store.h"

#define PAYLOAD_ROOM 4096 /* on the stack; a longer payload goes the usual way */

/* Seconds, as in arguments.py. */
#define DELAY_MAX 1e9
#define DUE_MAX   ((double)(UINT64_C(1) << 35))

/* MessageFields. Kept for the life of the process, as cffi's own types are. */
static PyTypeObject *fields_type;

typedef struct {
    PyObject_HEAD PyObject *req_id, *body, *details;
    unsigned long long due_us; /* until which it is, or was, delayed; 0: it was not */
    unsigned int deliveries;   /* 0: the details say it */
} Fields;

static PyObject *fields_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"req_id", "body", "details", "due_us", NULL};
    PyObject *req_id, *body, *details;
    unsigned long long due_us = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!OO|K", keywords, &PyLong_Type, &req_id,
                                     &body, &details, &due_us))
        return NULL;
    Fields *self = (Fields *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->req_id = Py_NewRef(req_id);
    self->body = Py_NewRef(body);
    self->details = Py_NewRef(details);
    self->due_us = due_us;
    return (PyObject *)self;
}

static void fields_dealloc(PyObject *object) {
    Fields *self = (Fields *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->req_id);
    Py_XDECREF(self->body);
    Py_XDECREF(self->details);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMemberDef fields_members[] = {
    {"req_id", T_OBJECT_EX, offsetof(Fields, req_id), READONLY, "Its place in the queue's order."},
    {"body", T_OBJECT_EX, offsetof(Fields, body), READONLY, "The body, bytes."},
    {"_details", T_OBJECT_EX, offsetof(Fields, details), READONLY, NULL},
    {"_due_us", T_ULONGLONG, offsetof(Fields, due_us), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot fields_slots[] = {
    {Py_tp_new, fields_new},
    {Py_tp_dealloc, fields_dealloc},
    {Py_tp_members, fields_members},
    {0, NULL},
};

static PyType_Spec fields_spec = {"qindex._calls.MessageFields", sizeof(Fields), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, fields_slots};

static PyType_Slot message_slots[] = {{Py_tp_dealloc, fields_dealloc}, {0, NULL}};

static PyType_Spec message_spec = {"qindex.message.Message", sizeof(Fields), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, message_slots};

/* new_message_type(): one for each interpreter, as message.py puts functions on it. */
static PyObject *new_message_type(PyObject *module, PyObject *none) {
    (void)module;
    (void)none;
    return PyType_FromSpecWithBases(&message_spec, (PyObject *)fields_type);
}

typedef struct {
    PyObject_HEAD struct qi_queue *queue;
    PyObject *message_type; /* derives from MessageFields */
    PyObject *plain;        /* the details of a message with nothing special */
    PyObject *by_priority;  /* and of one with a priority: priority -> details; it fills */
    int confirm_all;        /* every publish and ack waits for a sync */
    atomic_char leased;     /* somebody took a message with a lease; it stays so */
} Calls;

static PyMemberDef calls_members[] = {
    {"_leased", T_BOOL, offsetof(Calls, leased), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *calls_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    (void)arguments;
    (void)names;
    return PyType_GenericAlloc(type, 0);
}

static void calls_dealloc(PyObject *object) {
    Calls *self = (Calls *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->message_type);
    Py_XDECREF(self->plain);
    Py_XDECREF(self->by_priority);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* _attach(address, message_type, plain, confirm_all), once, before anybody else has the object: the queue's handle stays
 * valid as long as the object lives. */
static PyObject *attach(PyObject *object, PyObject *arguments) {
    Calls *self = (Calls *)object;
    unsigned long long address;
    PyObject *type, *plain;
    int confirm_all;
    if (!PyArg_ParseTuple(arguments, "KOOp", &address, &type, &plain, &confirm_all))
        return NULL;
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, fields_type))
        return PyErr_Format(PyExc_TypeError, "a message type derives from MessageFields");
    if (self->by_priority)
        return PyErr_Format(PyExc_RuntimeError, "these calls have a queue already");
    if (!(self->by_priority = PyDict_New()))
        return NULL;
    self->queue = (struct qi_queue *)(uintptr_t)address;
    self->message_type = Py_NewRef(type);
    self->plain = Py_NewRef(plain);
    self->confirm_all = confirm_all;
    Py_RETURN_NONE;
}

/* The Python method of that name, with the same arguments. */
static PyObject *call_python(PyObject *self, const char *name, PyObject *const *arguments,
                             Py_ssize_t count, PyObject *keywords) {
    PyObject *method = PyObject_GetAttrString(self, name), *table = NULL, *result = NULL;
    PyObject *positional = PyTuple_New(count);
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    int error = !method || !positional;
    for (Py_ssize_t i = 0; !error && i < count; i++)
        PyTuple_SetItem(positional, i, Py_NewRef(arguments[i])); /* a new tuple takes it */
    if (!error && named)
        error = !(table = PyDict_New());
    for (Py_ssize_t i = 0; !error && i < named; i++)
        error = PyDict_SetItem(table, PyTuple_GetItem(keywords, i), arguments[count + i]);
    if (!error)
        result = PyObject_Call(method, positional, table);
    Py_XDECREF(method);
    Py_XDECREF(positional);
    Py_XDECREF(table);
    return result;
}

/* Seconds, more than 0 and below `most`, in microseconds. Else the Python method says what is wrong, or what 0 means. */
static int to_us(PyObject *seconds, double most, uint64_t *us) {
    if (!PyFloat_CheckExact(seconds) && !PyLong_CheckExact(seconds))
        return 0;
    double value = PyFloat_AsDouble(seconds);
    if (PyErr_Occurred())
        PyErr_Clear();
    if (!(value >= 0 && value < most))
        return 0;
    *us = (uint64_t)(value * 1e6);
    return *us > 0;
}

static int is_named(PyObject *keyword, const char *name) {
    return PyUnicode_CompareWithASCIIString(keyword, name) == 0;
}

/* Are the options of a publish just `priority=` and one of `delay=` and `due=`, as they may be given? */
static int read_options(const Calls *self, PyObject *const *values, PyObject *keywords,
                        uint32_t *flags, uint64_t *due_us) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(keywords); i++) {
        PyObject *keyword = PyTuple_GetItem(keywords, i);
        if (is_named(keyword, "priority")) {
            long priority = PyLong_CheckExact(values[i]) ? PyLong_AsLong(values[i]) : -1;
            if (PyErr_Occurred())
                PyErr_Clear();
            if (priority < 0 || priority >= (long)QI_PRIORITIES)
                return 0;
            *flags = (uint32_t)priority << QI_PRIORITY_SHIFT;
        } else if (*due_us == 0 && is_named(keyword, "delay")) {
            if (!to_us(values[i], DELAY_MAX, due_us))
                return 0;
            *due_us += qi_now_us(self->queue->store);
        } else if (*due_us == 0 && is_named(keyword, "due")) {
            if (!to_us(values[i], DUE_MAX, due_us))
                return 0;
        } else {
            return 0;
        }
    }
    return 1;
}

static PyObject *publish(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                         PyObject *keywords) {
    Calls *self = (Calls *)object;
    uint32_t flags = 0;
    uint64_t due_us = 0;
    if (count == 1 && PyBytes_CheckExact(arguments[0]) && self->queue && !self->confirm_all &&
        (!keywords || read_options(self, arguments + 1, keywords, &flags, &due_us))) {
        int64_t result = qi_publish_now(self->queue, PyBytes_AsString(arguments[0]),
                                        (size_t)PyBytes_Size(arguments[0]), flags, due_us);
        if (result >= 0)
            return PyLong_FromLongLong(result);
    }
    /* An error comes up again there and is raised: nothing was changed by it here. */
    return call_python(object, "_publish", arguments, count, keywords);
}

/* A new reference, as another thread may put something in its place; NULL without an error: it has none. */
static PyObject *look_up(PyObject *dict, PyObject *key) {
#ifdef Py_GIL_DISABLED
    PyObject *found;
    PyDict_GetItemRef(dict, key, &found);
    return found;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

/* Made once for each priority: the class of `plain`, with the same queue. (Two threads may both make the first: they are
 * equal.) A new reference. */
static PyObject *details_of(Calls *self, uint32_t priority) {
    PyObject *key = PyLong_FromUnsignedLong(priority), *queue = NULL, *made = NULL;
    PyObject *known = key ? look_up(self->by_priority, key) : NULL;
    if (known || !key || PyErr_Occurred()) {
        Py_XDECREF(key);
        return known;
    }
    PyObject *arguments = NULL, *named = NULL;
    queue = PyObject_GetAttrString(self->plain, "queue");
    if (queue && (arguments = PyTuple_Pack(1, queue)) && (named = PyDict_New()) &&
        PyDict_SetItemString(named, "priority", key) == 0)
        made = PyObject_Call((PyObject *)Py_TYPE(self->plain), arguments, named);
    if (made && PyDict_SetItem(self->by_priority, key, made) != 0)
        Py_CLEAR(made);
    Py_XDECREF(queue);
    Py_XDECREF(arguments);
    Py_XDECREF(named);
    Py_DECREF(key);
    return made;
}

static PyObject *plain_message(Calls *self, const qi_message *message, const char *body,
                               uint64_t size) {
    Fields *fields = (Fields *)PyType_GenericAlloc((PyTypeObject *)self->message_type, 0);
    if (!fields)
        return NULL;
    fields->req_id = PyLong_FromUnsignedLongLong(message->req_id);
    fields->body = PyBytes_FromStringAndSize(body, (Py_ssize_t)size);
    fields->details =
        message->priority ? details_of(self, message->priority) : Py_NewRef(self->plain);
    fields->due_us = message->due_us;
    fields->deliveries = 1;
    if (!fields->req_id || !fields->body || !fields->details) {
        Py_DECREF(fields);
        return NULL;
    }
    return (PyObject *)fields;
}

/* Are the options of a get just `timeout=` and `lease=`, as they may be given? Else `_get` says what is wrong. */
static int read_get_options(PyObject *const *values, Py_ssize_t count, PyObject *keywords,
                            int *waits, uint64_t *lease_us) {
    if (count)
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(keywords); i++) {
        PyObject *keyword = PyTuple_GetItem(keywords, i);
        if (is_named(keyword, "lease")) {
            if (!to_us(values[i], DELAY_MAX, lease_us))
                return 0;
        } else if (is_named(keyword, "timeout")) {
            double seconds = values[i] == Py_None ? 0 : PyFloat_AsDouble(values[i]);
            if (PyErr_Occurred())
                PyErr_Clear();
            if (!(seconds >= 0))
                return 0;
            *waits = 1;
        } else {
            return 0;
        }
    }
    return 1;
}

static PyObject *get(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                     PyObject *keywords) {
    Calls *self = (Calls *)object;
    char payload[PAYLOAD_ROOM];
    qi_message message;
    int waits = 0;
    uint64_t lease_us = 0;
    int64_t size = QI_BUSY;
    if (self->queue &&
        (keywords ? read_get_options(arguments, count, keywords, &waits, &lease_us) : count == 0))
        size = qi_get_now(self->queue, &message, payload, sizeof payload, lease_us);
    if (size == QI_EMPTY && !waits)
        Py_RETURN_NONE;
    if (size < 0)
        return call_python(object, "_get", arguments, count, keywords);
    if (lease_us)
        atomic_store_explicit(&self->leased, 1, memory_order_relaxed);
    PyObject *result = plain_message(self, &message, payload, (uint64_t)size);
    if (!result) /* nobody has it: it is ready again */
        qi_nack_many(self->queue, &message.req_id, NULL, 1, 0);
    return result;
}

/* _plain_messages(count, req_ids, sizes, payload): what qi_get_many filled in, as a list; the last three are addresses. */
static PyObject *plain_messages(PyObject *object, PyObject *arguments) {
    Calls *self = (Calls *)object;
    Py_ssize_t count;
    unsigned long long req_ids, sizes, payload;
    if (!PyArg_ParseTuple(arguments, "nKKK", &count, &req_ids, &sizes, &payload))
        return NULL;
    const uint64_t *ids = (const uint64_t *)(uintptr_t)req_ids;
    const char *body = (const char *)(uintptr_t)payload;
    PyObject *list = PyList_New(count), *message = list;
    for (Py_ssize_t i = 0; message && i < count; i++) {
        uint32_t size = ((const uint32_t *)(uintptr_t)sizes)[i];
        message = plain_message(self, &(qi_message){.req_id = ids[i]}, body, size);
        if (message)
            PyList_SetItem(list, i, message);
        body += size;
    }
    if (message)
        return list;
    qi_nack_many(self->queue, ids, NULL, (uint32_t)count,
                 0); /* nobody has them: they are ready again */
    Py_XDECREF(list);
    return NULL;
}

/* to_req_ids(messages): the ReqIds of messages or of ReqIds, as the bytes of an array of uint64_t. */
static PyObject *to_req_ids(PyObject *module, PyObject *messages) {
    (void)module;
    PyObject *list = PySequence_List(messages), *bytes = NULL;
    Py_ssize_t count = list ? PyList_Size(list) : 0;
    if (list)
        bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint64_t));
    for (Py_ssize_t i = 0; bytes && i < count; i++) {
        PyObject *item = PyList_GetItem(list, i), *number = NULL;
        if (PyObject_TypeCheck(item, fields_type))
            number = Py_NewRef(((Fields *)item)->req_id);
        else
            number =
                PyLong_CheckExact(item) ? Py_NewRef(item) : PyObject_GetAttrString(item, "req_id");
        uint64_t req_id = number ? PyLong_AsUnsignedLongLong(number) : 0;
        Py_XDECREF(number);
        if (PyErr_Occurred()) {
            Py_DECREF(bytes);
            bytes = NULL;
        } else {
            memcpy(PyBytes_AsString(bytes) + i * (Py_ssize_t)sizeof req_id, &req_id, sizeof req_id);
        }
    }
    Py_XDECREF(list);
    return bytes;
}

static PyObject *ack(PyObject *object, PyObject *message) {
    Calls *self = (Calls *)object;
    int is_message = PyObject_TypeCheck(message, fields_type);
    PyObject *number = is_message ? ((Fields *)message)->req_id : message;
    if (PyLong_CheckExact(number) && self->queue && !self->confirm_all) {
        unsigned long long req_id = PyLong_AsUnsignedLongLong(number);
        if (req_id == (unsigned long long)-1 && PyErr_Occurred())
            PyErr_Clear(); /* negative or too big: the usual way says so */
        else if (qi_ack_now(self->queue, req_id,
                            is_message ? ((Fields *)message)->deliveries : 0) == 0)
            Py_RETURN_NONE;
    }
    return call_python(object, "_ack", &message, 1, NULL);
}

static PyMethodDef calls_methods[] = {
    {"_attach", attach, METH_VARARGS, NULL},
    {"_plain_messages", plain_messages, METH_VARARGS, NULL},
    {"publish", (PyCFunction)(void (*)(void))publish, METH_FASTCALL | METH_KEYWORDS,
     "publish($self, body, *, headers=None, persistent=True, ttl=None, expires_at=None,\n"
     "        redelivered=False, priority=0, delay=None, due=None, confirm=False)\n--\n\n"
     "Append a message; return its ReqId. It survives kill -9 when this returns.\n\n"
     "`ttl` and `delay` are in seconds from now, `expires_at` and `due` in seconds since 1970: it "
     "is\n"
     "not delivered after the one and not before the other. `priority` is 0 to 255, the highest "
     "is\n"
     "delivered first. With `confirm`, waits until it survives a power cut too. Raises DiskFull "
     "(nothing was published), OutcomeUnknown\n"
     "(with confirm: published, durability unknown), StoreFailed, StoreClosed, ReadOnly.\n"
     "Cost: one copy of the body, no system call."},
    {"get", (PyCFunction)(void (*)(void))get, METH_FASTCALL | METH_KEYWORDS,
     "get($self, *, timeout=0, lease=None)\n--\n\n"
     "Take the next ready message; None if there is none. It stays until it is acked: the highest\n"
     "priority first; of the same, those that were delayed, by their times; then in the order of\n"
     "publishing.\n\n"
     "With `lease` (seconds) it is ready again when the time is over without an ack; see touch().\n"
     "`timeout` is how many seconds to wait for one; 0 (the default) does not wait, None waits "
     "for\n"
     "ever. A wait ends with StoreClosed when the store is closed or the queue is deleted; a "
     "signal\n"
     "handler, Ctrl-C too, runs within 50 ms. Waiting costs nothing but a sleeping thread.\n"
     "Raises StoreCorrupt for a message whose bytes are damaged: it is set aside (unacked, told "
     "in\n"
     "store.findings), the next get() goes on behind it. Cost: O(1), one copy of the body."},
    {"ack", ack, METH_O,
     "ack($self, message, /)\n--\n\n"
     "Settle a delivered message (or its ReqId): it is done and will not come back.\n\n"
     "Raises UnknownMessage if it was never published or is not delivered, AlreadyAcked if it is\n"
     "gone, LeaseExpired if its lease has ended; then nothing changed. Cost: O(1), no system call; "
     "durable like a publish."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot calls_slots[] = {
    {Py_tp_new, calls_new},
    {Py_tp_dealloc, calls_dealloc},
    {Py_tp_methods, calls_methods},
    {Py_tp_members, calls_members},
    {Py_tp_doc, "The verbs of a queue that are called once per message."},
    {0, NULL},
};

static PyType_Spec calls_spec = {"qindex._calls.QueueCalls", sizeof(Calls), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, calls_slots};

static PyMethodDef module_methods[] = {
    {"to_req_ids", to_req_ids, METH_O, NULL},
    {"join_bodies", qi_join_bodies, METH_O, NULL},
    {"new_message_type", new_message_type, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, .m_name = "qindex._calls",
                                        .m_doc = "publish, get and ack for CPython.", .m_size = -1,
                                        .m_methods = module_methods};

PyMODINIT_FUNC PyInit__calls(void);

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__calls(void) {
    PyObject *module = PyModule_Create(&module_def);
    PyObject *calls = module ? PyType_FromSpec(&calls_spec) : NULL;
    PyObject *fields = calls ? PyType_FromSpec(&fields_spec) : NULL;
    if (!fields || PyModule_AddObjectRef(module, "QueueCalls", calls) != 0 ||
        PyModule_AddObjectRef(module, "MessageFields", fields) != 0) {
        Py_XDECREF(module);
        module = NULL;
        Py_CLEAR(fields);
    }
    fields_type = (PyTypeObject *)fields;
    Py_XDECREF(calls);
#ifdef Py_GIL_DISABLED
    if (module) /* else the import would turn it on */
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
