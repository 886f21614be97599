/* places.c - the bodies of a batch, as the core takes them: where each one lies.
 *
 * A body is a bytes object, or another buffer that lies in one piece. Of such a one a view is kept
 * instead, so that its memory stays where it is as long as the caller has what it got here; its
 * bytes may change meanwhile, which the flags of the batch say.
 */
#include "python/calls.h"

#include <string.h>

/* A new reference to what keeps the body where it lies. */
static PyObject *hold(PyObject *body, const void **place, Py_ssize_t *length) {
    if (PyBytes_CheckExact(body)) {
        *place = PyBytes_AsString(body);
        *length = PyBytes_Size(body);
        return Py_NewRef(body);
    }
    Py_buffer buffer;
    PyObject *view = PyMemoryView_FromObject(body);
    if (!view || PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE) != 0) {
        Py_XDECREF(view);
        return NULL;
    }
    *place = buffer.buf;
    *length = buffer.len;
    PyBuffer_Release(&buffer); /* nobody else has the view: it is not released before its end */
    return view;
}

PyObject *qi_place_bodies(PyObject *module, PyObject *bodies) {
    (void)module;
    PyObject *list = PySequence_Tuple(bodies), *result = NULL;
    Py_ssize_t count = list ? PyTuple_Size(list) : 0;
    PyObject *held = PyTuple_New(count);
    PyObject *places = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uintptr_t));
    PyObject *sizes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    uintptr_t *place = places ? (uintptr_t *)(void *)PyBytes_AsString(places) : NULL;
    uint32_t *size = sizes ? (uint32_t *)(void *)PyBytes_AsString(sizes) : NULL;
    unsigned long long total = 0;
    unsigned int flags = QI_STEADY;
    int error = !list || !held || !place || !size;
    for (Py_ssize_t i = 0; !error && i < count; i++) {
        const void *body = NULL;
        Py_ssize_t length = 0;
        PyObject *holder = hold(PyTuple_GetItem(list, i), &body, &length);
        if (holder)
            PyTuple_SetItem(held, i, holder); /* takes it */
        if (holder && length > UINT32_MAX)
            PyErr_SetString(PyExc_ValueError,
                            "a batch has at most 256 MiB of records; publish it in parts");
        error = !holder || length > UINT32_MAX;
        flags &= holder && PyBytes_CheckExact(holder) ? QI_STEADY : 0;
        place[i] = (uintptr_t)body;
        size[i] = error ? 0 : (uint32_t)length;
        total += (unsigned long long)length;
    }
    if (!error)
        result = Py_BuildValue("OOOKI", held, places, sizes, total, flags);
    Py_XDECREF(places);
    Py_XDECREF(sizes);
    Py_XDECREF(held);
    Py_XDECREF(list);
    return result;
}
