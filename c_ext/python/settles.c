/* settles.c - what ends a delivery or extends it, for CPython: ack, nack, touch. The rules are in
 * calls.c: what is out of the ordinary, or wrong, the Python method says. */
#include "python/calls.h"

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

PyObject *qi_to_deliveries(PyObject *module, PyObject *messages) {
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

/* A message or a ReqId as nearly everybody gives it. 0, without an exception: the Python method
 * knows. */
static int read_usual(PyObject *item, uint64_t *req_id, uint64_t *delivery) {
    int is_message = PyObject_TypeCheck(item, qi_fields_type);
    PyObject *number = is_message ? ((Fields *)item)->req_id : item;
    if (!PyLong_CheckExact(number))
        return 0;
    *delivery = is_message ? ((Fields *)item)->delivery : 0;
    *req_id = PyLong_AsUnsignedLongLong(number);
    if (*req_id != (uint64_t)-1 || !PyErr_Occurred())
        return 1;
    PyErr_Clear(); /* negative or too big */
    return 0;
}

PyObject *qi_calls_ack(PyObject *object, PyObject *message) {
    Calls *self = (Calls *)object;
    uint64_t req_id, delivery;
    if (self->queue && !self->confirm_all && read_usual(message, &req_id, &delivery) &&
        qi_ack_now(self->queue, req_id, delivery) == 0)
        Py_RETURN_NONE;
    return qi_call_python(object, "_ack", &message, 1, NULL);
}

PyObject *qi_calls_nack(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                        PyObject *keywords) {
    Calls *self = (Calls *)object;
    struct qi_nack_options options = {.requeue = count == 2 ? arguments[1] : NULL};
    uint64_t req_id, delivery;
    if (self->queue && (count == 1 || count == 2) && read_usual(arguments[0], &req_id, &delivery) &&
        qi_read_nack_options(self->queue, arguments + count, keywords, &options)) {
        bool is_recorded = options.how != QI_SETTLE_NACK || options.due_us;
        if (!(self->confirm_all && is_recorded) &&
            qi_settle_now(self->queue, options.how, &req_id, &delivery, 1, options.due_us) == 0)
            Py_RETURN_NONE;
    }
    return qi_call_python(object, "_nack", arguments, count, keywords);
}

PyObject *qi_calls_touch(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                         PyObject *keywords) {
    Calls *self = (Calls *)object;
    uint64_t req_id, delivery, lease_us;
    if (self->queue && count == 2 && !keywords && read_usual(arguments[0], &req_id, &delivery) &&
        qi_read_lease(arguments[1], &lease_us) &&
        qi_touch_now(self->queue, req_id, delivery, lease_us) == 0)
        Py_RETURN_NONE;
    return qi_call_python(object, "_touch", arguments, count, keywords);
}
