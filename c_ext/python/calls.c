/* calls.c - publish and ack for CPython, and the module qindex._calls. (gets.c: get.)
 *
 * These three are called once per message. Through cffi such a call costs more than the engine's
 * work: arguments are converted one by one, the GIL is given up and taken again. Here the engine is
 * asked first to do it without waiting (qi_publish_now and its like), with the GIL held. If it
 * would have to wait, it is asked again without the GIL, unless the caller may not wait (an event
 * loop). What is out of the ordinary, the Python method of the same name with `_` in front does;
 * it goes through cffi like all other verbs.
 *
 * Only the stable ABI of CPython 3.11 is used. The module lives in the same shared library as
 * qindex._core (PEP 489, "multiple modules in one library"), so there is one engine;
 * qindex/calls.py loads it.
 *
 * There are Pythons without a GIL, where any of this runs in several threads at once, also on the
 * same objects; they have no stable ABI of 3.11. So: what a call changes is the engine's (its
 * lock), on the stack, or an object that nobody else has seen. A Calls is not changed any more once
 * it was attached. Nobody else's list or dict is looked into.
 */
#include "python/calls.h"

#include <structmember.h>

#include "queue/queue.h"

static PyMemberDef calls_members[] = {
    {"_weak", T_OBJECT, offsetof(Calls, weak), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Calls, weak_list), READONLY, NULL},
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
    if (self->weak_list)
        PyObject_ClearWeakRefs(object);
    Py_XDECREF(self->message_type);
    Py_XDECREF(self->plain);
    Py_XDECREF(self->weak);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* _attach(address, message_type, plain, confirm_all, may_wait), once, before anybody else has the
 * object: the queue's handle stays valid as long as the object lives. */
static PyObject *attach(PyObject *object, PyObject *arguments) {
    Calls *self = (Calls *)object;
    unsigned long long address;
    PyObject *type, *plain;
    int confirm_all, may_wait;
    if (!PyArg_ParseTuple(arguments, "KOOpp", &address, &type, &plain, &confirm_all, &may_wait))
        return NULL;
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, qi_fields_type) ||
        !PyObject_TypeCheck(plain, qi_details_type))
        return PyErr_Format(PyExc_TypeError, "a message type derives from MessageFields, what is "
                                             "plain is of MessageDetails");
    if (self->weak)
        return PyErr_Format(PyExc_RuntimeError, "these calls have a queue already");
    if (!(self->weak = PyWeakref_NewRef(object, NULL)))
        return NULL;
    self->queue = (struct qi_queue *)(uintptr_t)address;
    self->message_type = Py_NewRef(type);
    self->plain = Py_NewRef(plain);
    self->confirm_all = confirm_all;
    self->may_wait = may_wait;
    Py_RETURN_NONE;
}

/* The Python method of that name, with the same arguments. */
PyObject *qi_call_python(PyObject *self, const char *name, PyObject *const *arguments,
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

/* The exception of an error that the engine has told this thread about. */
PyObject *qi_raise_error(PyObject *self, int64_t code) {
    return PyObject_CallMethod(self, "_raise", "L", (long long)code);
}

static PyObject *publish(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                         PyObject *keywords) {
    Calls *self = (Calls *)object;
    uint8_t table[QI_TABLE_ROOM]; /* beside the options: nobody has to clear it */
    struct qi_publish_options options = {.confirm = self->confirm_all, .table = table};
    if (count != 1 || !PyBytes_CheckExact(arguments[0]) || !self->queue ||
        !qi_read_publish_options(self->queue, arguments + 1, keywords, &options) ||
        (options.confirm && !self->may_wait))
        return qi_call_python(object, "_publish", arguments, count, keywords);
    options.given.body = PyBytes_AsString(arguments[0]);
    options.given.body_size = (size_t)PyBytes_Size(arguments[0]);
    int64_t result = qi_publish_now(self->queue, &options.given);
    if (result == QI_BUSY && !self->may_wait)
        return qi_call_python(object, "_publish", arguments, count, keywords);
    if (result == QI_BUSY) {
        Py_BEGIN_ALLOW_THREADS result = qi_publish_given(self->queue, &options.given);
        Py_END_ALLOW_THREADS
    }
    if (options.waits && (result == QI_E_QUEUE_FULL || result == QI_E_STORE_FULL))
        return qi_call_python(object, "_publish", arguments, count, keywords);
    if (result < 0)
        return qi_raise_error(object, result);
    if (options.confirm) {
        PyObject *confirmed = PyObject_CallMethod(object, "_confirm", NULL);
        if (!confirmed)
            return NULL;
        Py_DECREF(confirmed);
    }
    return PyLong_FromLongLong(result);
}

/* The ReqId of a message, or a ReqId; and which delivery (0: not told). -1: an exception. */
static int read_delivery(PyObject *item, uint64_t *req_id, uint64_t *delivery) {
    int is_message = PyObject_TypeCheck(item, qi_fields_type);
    PyObject *number = is_message ? ((Fields *)item)->req_id : item;
    *delivery = is_message ? ((Fields *)item)->delivery : 0;
    if (!PyLong_Check(number) || PyBool_Check(number)) {
        PyErr_Format(PyExc_TypeError, "a Message, its ReqId or its token is needed, not %R", item);
        return -1;
    }
    *req_id = PyLong_AsUnsignedLongLong(number);
    if (!PyErr_Occurred())
        return 0;
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "a ReqId must be a whole number from 0 to 18446744073709551615, not %R", item);
    }
    return -1;
}

/* to_deliveries(messages): of messages or ReqIds, the ReqIds and the deliveries, each as the bytes
 * of an array of uint64_t. */
static PyObject *to_deliveries(PyObject *module, PyObject *messages) {
    (void)module;
    PyObject *list = PySequence_List(messages), *result = NULL;
    Py_ssize_t count = list ? PyList_Size(list) : 0, size = count * (Py_ssize_t)sizeof(uint64_t);
    PyObject *req_ids = list ? PyBytes_FromStringAndSize(NULL, size) : NULL;
    PyObject *deliveries = req_ids ? PyBytes_FromStringAndSize(NULL, size) : NULL;
    int error = !deliveries;
    for (Py_ssize_t i = 0; !error && i < count; i++) {
        uint64_t values[2] = {0, 0};
        error = read_delivery(PyList_GetItem(list, i), &values[0], &values[1]);
        memcpy(PyBytes_AsString(req_ids) + i * (Py_ssize_t)sizeof *values, &values[0],
               sizeof *values);
        memcpy(PyBytes_AsString(deliveries) + i * (Py_ssize_t)sizeof *values, &values[1],
               sizeof *values);
    }
    if (!error)
        result = PyTuple_Pack(2, req_ids, deliveries);
    Py_XDECREF(req_ids);
    Py_XDECREF(deliveries);
    Py_XDECREF(list);
    return result;
}

static PyObject *ack(PyObject *object, PyObject *message) {
    Calls *self = (Calls *)object;
    int is_message = PyObject_TypeCheck(message, qi_fields_type);
    PyObject *number = is_message ? ((Fields *)message)->req_id : message;
    if (PyLong_CheckExact(number) && self->queue && !self->confirm_all) {
        unsigned long long req_id = PyLong_AsUnsignedLongLong(number);
        if (req_id == (unsigned long long)-1 && PyErr_Occurred())
            PyErr_Clear(); /* negative or too big: the usual way says so */
        else if (qi_ack_now(self->queue, req_id, is_message ? ((Fields *)message)->delivery : 0) ==
                 0)
            Py_RETURN_NONE;
    }
    return qi_call_python(object, "_ack", &message, 1, NULL);
}

static PyMethodDef calls_methods[] = {
    {"_attach", attach, METH_VARARGS, NULL},
    {"_give_back", qi_calls_give_back, METH_VARARGS, NULL},
    {"_give_back_many", qi_calls_give_back_many, METH_VARARGS, NULL},
    {"_message", qi_calls_message, METH_VARARGS, NULL},
    {"_messages", qi_calls_messages, METH_VARARGS, NULL},
    {"publish", (PyCFunction)(void (*)(void))publish, METH_FASTCALL | METH_KEYWORDS,
     "publish($self, body, *, headers=None, persistent=True, ttl=None, expires_at=None,\n"
     "        redelivered=False, priority=0, delay=None, due=None, lease=None,\n"
     "        confirm=False, timeout=0)\n--\n\n"
     "Append a message; return its ReqId. The message survives kill -9 when this returns.\n\n"
     "- `body`: bytes, or another buffer.\n"
     "- `headers`: names and values, as AMQP 0-9-1 tables can hold them.\n"
     "- `persistent`: False for a message that need not survive a crash.\n"
     "- `ttl` (seconds from now) or `expires_at` (seconds since 1970): not delivered after\n"
     "  that moment.\n"
     "- `delay` (seconds from now) or `due` (seconds since 1970): not delivered before that\n"
     "  moment. `delay` is below 1,000,000,000 (0: there is none), `due` before the year 3058.\n"
     "- `priority`: 0 to 255; the highest is delivered first.\n"
     "- `redelivered`: True for a message that a consumer may have had before. It counts as one\n"
     "  delivery.\n"
     "- `lease`: who gets the message without a lease has it for so many seconds. Only stores\n"
     "  of format 2 can keep it: FormatError in others.\n"
     "- `confirm`: True to wait until the message survives a power cut, too.\n"
     "- `timeout`: seconds to wait for a place if the queue or the store is full, None for ever.\n"
     "  What could never have one is refused at once. A time that is given counts from the "
     "call.\n\n"
     "Raises QueueFull, StoreFull or DiskFull if there is no room: then nothing was published.\n"
     "Raises OutcomeUnknown if the sync for `confirm` failed: then the message is published,\n"
     "and nobody knows whether it is durable. Also StoreFailed, StoreClosed and ReadOnly;\n"
     "TypeError and ValueError for bad arguments.\n\n"
     "Cost: one copy of the body and no system call; with `confirm`, a sync that is shared\n"
     "with all who wait for one."},
    {"get", (PyCFunction)(void (*)(void))qi_calls_get, METH_FASTCALL | METH_KEYWORDS,
     "get($self, *, timeout=0, lease=None)\n--\n\n"
     "Take the next ready message; return None if there is none.\n\n"
     "The highest priority comes first. Of one priority, messages that were delayed come\n"
     "first, by their times; then the others, in the order of publishing. The message stays in\n"
     "the queue as unacked until it is settled; see ack() and nack().\n\n"
     "- `timeout`: seconds to wait for a message; 0 does not wait, None waits for ever. A\n"
     "  waiting thread sleeps. Closing the store or deleting the queue ends the wait with\n"
     "  StoreClosed. A signal handler, also that of Ctrl-C, runs within 50 ms.\n"
     "- `lease`: seconds after which the message is ready again if it is not settled; see\n"
     "  touch(). None: no such end.\n\n"
     "Raises StoreCorrupt if the bytes of the message are damaged. That message is set aside:\n"
     "it stays unacked, `Store.findings` names it, and the next get() goes on behind it. Also\n"
     "StoreFailed, StoreClosed and ReadOnly.\n\n"
     "Cost: O(1) and one copy of the body."},
    {"get_many", (PyCFunction)(void (*)(void))qi_calls_get_many, METH_FASTCALL | METH_KEYWORDS,
     "get_many($self, count, *, timeout=0, lease=None)\n--\n\n"
     "Take up to `count` ready messages, in order; return those that there are.\n\n"
     "One call returns at most 65,536 messages, and stops after 4 MiB. `timeout` is for the first\n"
     "of them, as in get(); `lease` is for each. Errors as get().\n\n"
     "Cost: one copy of each body. Stored bodies that were written one behind the other are read\n"
     "by one system call for up to 64 of them."},
    {"ack", ack, METH_O,
     "ack($self, message, /)\n--\n\n"
     "Settle a delivered message: it is done and will not come back.\n\n"
     "A Message, or its token, settles the delivery that gave it, and no other. A ReqId (an\n"
     "int) settles whichever delivery is current.\n\n"
     "Raises UnknownMessage if the message was never published or is not delivered,\n"
     "AlreadyAcked if it is gone, DeliveryEnded (LeaseExpired in a queue with leases) if\n"
     "another consumer has it now. Then nothing is changed. Also StoreFailed, StoreClosed and\n"
     "ReadOnly.\n\n"
     "Cost: O(1), no system call. An ack survives kill -9 when this returns, and a power cut\n"
     "once it is synced, as a publish does."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot calls_slots[] = {
    {Py_tp_new, calls_new},
    {Py_tp_dealloc, calls_dealloc},
    {Py_tp_methods, calls_methods},
    {Py_tp_members, calls_members},
    {Py_tp_doc, "The verbs of a queue that are called once for each message."},
    {0, NULL},
};

static PyType_Spec calls_spec = {"qindex._calls.QueueCalls", sizeof(Calls), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, calls_slots};

static PyMethodDef module_methods[] = {
    {"to_deliveries", to_deliveries, METH_O, NULL},
    {"place_bodies", qi_place_bodies, METH_O, NULL},
    {"decode_headers", qi_decode_headers, METH_O, NULL},
    {"join_headers", qi_join_headers, METH_VARARGS, NULL},
    {"new_message_type", qi_new_message_type, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, .m_name = "qindex._calls",
                                        .m_doc = "publish, get and ack for CPython.", .m_size = -1,
                                        .m_methods = module_methods};

PyMODINIT_FUNC PyInit__calls(void);

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__calls(void) {
    PyObject *module = PyModule_Create(&module_def);
    PyObject *calls = module ? PyType_FromSpec(&calls_spec) : NULL;
    PyObject *fields = calls ? PyType_FromSpec(&qi_fields_spec) : NULL;
    PyObject *details = fields ? PyType_FromSpec(&qi_details_spec) : NULL;
    if (!details || qi_make_option_names() != 0 ||
        PyModule_AddObjectRef(module, "QueueCalls", calls) != 0 ||
        PyModule_AddObjectRef(module, "MessageFields", fields) != 0 ||
        PyModule_AddObjectRef(module, "MessageDetails", details) != 0) {
        Py_XDECREF(module);
        module = NULL;
        Py_CLEAR(fields);
        Py_CLEAR(details);
    }
    qi_fields_type = (PyTypeObject *)fields;
    qi_details_type = (PyTypeObject *)details;
    Py_XDECREF(calls);
#ifdef Py_GIL_DISABLED
    if (module) /* else the import would turn it on */
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
