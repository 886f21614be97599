/* calls.c - publish for CPython, and the module qindex._calls. (gets.c: get; settles.c: ack, nack,
 * touch.)
 *
 * These are called once per message. Through cffi such a call costs more than the engine's
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

static PyTypeObject *calls_type;

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

static PyObject *publish_body(PyObject *object, PyObject *const *arguments, PyObject *keywords,
                              const Py_buffer *body) {
    Calls *self = (Calls *)object;
    uint8_t table[QI_TABLE_ROOM]; /* beside the options: nobody has to clear it */
    const Py_ssize_t count = 1;
    struct qi_publish_options options = {.confirm = self->confirm_all, .table = table};
    if (!self->queue || !qi_read_publish_options(self->queue, arguments + 1, keywords, &options))
        return qi_call_python(object, "_publish", arguments, count, keywords);
    options.given.body = body->buf;
    options.given.body_size = (size_t)body->len;
    options.given.flags |= options.confirm ? QI_AWAITED : 0;
    options.given.flags |= body->obj ? 0 : QI_STEADY;
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
    if (options.confirm && self->may_wait) { /* else the caller waits for the sync by itself */
        PyObject *confirmed = PyObject_CallMethod(object, "_confirm", NULL);
        if (!confirmed)
            return NULL;
        Py_DECREF(confirmed);
    }
    return PyLong_FromLongLong(result);
}

/* The bytes of a bytes object do not change (QI_STEADY). Those of another buffer may, meanwhile:
 * the engine reads each once, and what it has read is the message. */
static PyObject *publish(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                         PyObject *keywords) {
    Py_buffer view;
    view.obj = NULL;
    if (count == 1 && PyBytes_CheckExact(arguments[0])) {
        view.buf = PyBytes_AsString(arguments[0]);
        view.len = PyBytes_Size(arguments[0]);
    } else if (count != 1 || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) != 0) {
        PyErr_Clear(); /* no buffer, or one that does not lie in one piece */
        return qi_call_python(object, "_publish", arguments, count, keywords);
    }
    PyObject *result = publish_body(object, arguments, keywords, &view);
    PyBuffer_Release(&view);
    return result;
}

/* The ReqIds, None for a queue that was left out. */
static PyObject *req_ids_of(const uint64_t *req_ids, Py_ssize_t count) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *number =
            req_ids[i] == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(req_ids[i]);
        if (!number || PyList_SetItem(list, i, number) != 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *qi_fan_out(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                     PyObject *keywords) {
    uint8_t table[QI_TABLE_ROOM];
    struct qi_publish_options options = {.table = table};
    qi_queue *queues[QI_NOW_QUEUES];
    uint64_t req_ids[QI_NOW_QUEUES];
    (void)module;
    Py_ssize_t targets =
        count == 3 && PyTuple_CheckExact(arguments[0]) ? PyTuple_Size(arguments[0]) : 0;
    if (targets == 0 || targets > (Py_ssize_t)QI_NOW_QUEUES || !PyBytes_CheckExact(arguments[2]))
        Py_RETURN_NONE;
    for (Py_ssize_t i = 0; i < targets; i++) {
        PyObject *calls = PyTuple_GetItem(arguments[0], i);
        if (!PyObject_TypeCheck(calls, calls_type))
            return PyErr_Format(PyExc_TypeError, "QueueCalls are needed, not %R", calls);
        queues[i] = ((Calls *)calls)->queue;
    }
    if (!qi_read_publish_options(queues[0], arguments + 3, keywords, &options) || options.confirm)
        Py_RETURN_NONE;
    options.given.body = PyBytes_AsString(arguments[2]);
    options.given.body_size = (size_t)PyBytes_Size(arguments[2]);
    options.given.flags |= QI_STEADY;
    int result = qi_store_publish_now(queues[0]->store, queues, (uint32_t)targets, &options.given,
                                      arguments[1] == Py_True, req_ids);
    if (result == QI_BUSY)
        Py_RETURN_NONE;
    if (result < 0)
        return qi_raise_error(PyTuple_GetItem(arguments[0], 0), result);
    return req_ids_of(req_ids, targets);
}

static PyMethodDef calls_methods[] = {
    {"_attach", attach, METH_VARARGS, NULL},
    {"_give_back", qi_calls_give_back, METH_VARARGS, NULL},
    {"_give_back_many", qi_calls_give_back_many, METH_VARARGS, NULL},
    {"_get_rest", qi_calls_get_rest, METH_VARARGS, NULL},
    {"_message", qi_calls_message, METH_VARARGS, NULL},
    {"_messages", qi_calls_messages, METH_VARARGS, NULL},
    {"publish", (PyCFunction)(void (*)(void))publish, METH_FASTCALL | METH_KEYWORDS,
     "publish($self, body, *, headers=None, persistent=True, ttl=None, expires_at=None,\n"
     "        redelivered=False, priority=0, delay=None, due=None, lease=None,\n"
     "        confirm=False, timeout=0)\n--\n\n"
     "Append a message; return its ReqId. The message survives kill -9 when this returns.\n\n"
     "- `body`: bytes, or another buffer (bytearray, memoryview, mmap, an array of numpy). If\n"
     "  it is changed meanwhile, the message is what was read of it.\n"
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
     "Cost: one copy of the body, and no system call below 4 KiB; with `confirm`, a sync that is\n"
     "shared with all who wait for one."},
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
    {"ack", qi_calls_ack, METH_O,
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
    {"nack", (PyCFunction)(void (*)(void))qi_calls_nack, METH_FASTCALL | METH_KEYWORDS,
     "nack($self, message, requeue=True, *, delay=None, due=None, count=True)\n--\n\n"
     "Give a delivered message back to its own place in the order, or drop it.\n\n"
     "- `requeue`: False to drop it. It becomes a dead letter if the queue keeps those.\n"
     "- `delay` (seconds from now) or `due` (seconds since 1970): it is ready again at that\n"
     "  time. `delay=0` is no delay.\n"
     "- `count`: False if nobody has looked at the message, for one that was only prefetched:\n"
     "  then this delivery is left out of `delivery_count`, and of `max_deliveries`. The message\n"
     "  still says `redelivered`. In stores of format 2.\n\n"
     "Errors as ack(), and ValueError if it is to be dropped and delayed, or if `count=False`\n"
     "stands beside a delay, a due time or `requeue=False`. Cost: O(1) and no record for a plain\n"
     "nack; a record of 24 bytes if it is delayed, becomes a dead letter, or does not count."},
    {"touch", (PyCFunction)(void (*)(void))qi_calls_touch, METH_FASTCALL | METH_KEYWORDS,
     "touch($self, message, lease)\n--\n\n"
     "Extend the lease of a delivered message: it ends `lease` seconds from now.\n\n"
     "If the message was taken without a lease, one begins. Raises LeaseExpired if the lease has\n"
     "ended: then the message is ready, or another consumer has it. Other errors as ack().\n\n"
     "Cost: O(log of the leases); nothing is written."},
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
    {"to_deliveries", qi_to_deliveries, METH_O, NULL},
    {"fan_out", (PyCFunction)(void (*)(void))qi_fan_out, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"place_bodies", qi_place_bodies, METH_O, NULL},
    {"decode_headers", qi_decode_headers, METH_O, NULL},
    {"join_headers", qi_join_headers, METH_VARARGS, NULL},
    {"new_message_type", qi_new_message_type, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, .m_name = "qindex._calls",
                                        .m_doc = "The verbs of each message for CPython.",
                                        .m_size = -1, .m_methods = module_methods};

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
        Py_CLEAR(calls);
        Py_CLEAR(fields);
        Py_CLEAR(details);
    }
    calls_type = (PyTypeObject *)calls; /* that the module has, too */
    qi_fields_type = (PyTypeObject *)fields;
    qi_details_type = (PyTypeObject *)details;
#ifdef Py_GIL_DISABLED
    if (module) /* else the import would turn it on */
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
