/* join.c - the bodies of a batch, one behind the other, as the core takes them. */
#include "python/calls.h"

#include <string.h>

/* Their sizes, a bytes object of uint32_t, and their sum; NULL with an exception. */
static PyObject *sizes_of(PyObject *list, Py_ssize_t *total) {
    Py_ssize_t count = PyList_Size(list);
    PyObject *sizes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    uint32_t *size = sizes ? (uint32_t *)(void *)PyBytes_AsString(sizes) : NULL;
    for (Py_ssize_t i = 0; sizes && i < count; i++) {
        PyObject *body = PyList_GetItem(list, i);
        Py_ssize_t length = PyBytes_CheckExact(body) ? PyBytes_Size(body) : -1;
        if (length >= 0 && length <= UINT32_MAX) {
            size[i] = (uint32_t)length;
            *total += length;
            continue;
        }
        if (length < 0)
            PyErr_SetString(PyExc_TypeError, "join_bodies() takes bytes objects only");
        else
            PyErr_SetString(PyExc_ValueError,
                            "a batch has at most 256 MiB of records; publish it in parts");
        Py_CLEAR(sizes);
    }
    return sizes;
}

PyObject *qi_join_bodies(PyObject *module, PyObject *bodies) {
    (void)module;
    Py_ssize_t total = 0;
    PyObject *list = PySequence_List(bodies), *sizes = list ? sizes_of(list, &total) : NULL;
    PyObject *joined = sizes ? PyBytes_FromStringAndSize(NULL, total) : NULL, *result = NULL;
    if (joined) {
        char *at = PyBytes_AsString(joined);
        for (Py_ssize_t i = 0, count = PyList_Size(list); i < count; i++) {
            PyObject *body = PyList_GetItem(list, i);
            Py_ssize_t size = PyBytes_Size(body);
            memcpy(at, PyBytes_AsString(body), (size_t)size);
            at += size;
        }
        result = PyTuple_Pack(2, joined, sizes);
    }
    Py_XDECREF(joined);
    Py_XDECREF(sizes);
    Py_XDECREF(list);
    return result;
}
