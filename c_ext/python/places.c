/* places.c - the bodies of a batch, as the core takes them: where each one lies. */
#include "python/calls.h"

#include <string.h>

PyObject *qi_place_bodies(PyObject *module, PyObject *bodies) {
    (void)module;
    PyObject *list = PySequence_Tuple(bodies), *result = NULL;
    Py_ssize_t count = list ? PyTuple_Size(list) : 0;
    PyObject *places = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uintptr_t));
    PyObject *sizes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    uintptr_t *place = places ? (uintptr_t *)(void *)PyBytes_AsString(places) : NULL;
    uint32_t *size = sizes ? (uint32_t *)(void *)PyBytes_AsString(sizes) : NULL;
    unsigned long long total = 0;
    int error = !list || !place || !size;
    for (Py_ssize_t i = 0; !error && i < count; i++) {
        PyObject *body = PyTuple_GetItem(list, i);
        Py_ssize_t length = PyBytes_CheckExact(body) ? PyBytes_Size(body) : -1;
        if (length < 0)
            PyErr_SetString(PyExc_TypeError, "place_bodies() takes bytes objects only");
        else if (length > UINT32_MAX)
            PyErr_SetString(PyExc_ValueError,
                            "a batch has at most 256 MiB of records; publish it in parts");
        error = length < 0 || length > UINT32_MAX;
        place[i] = error ? 0 : (uintptr_t)PyBytes_AsString(body);
        size[i] = error ? 0 : (uint32_t)length;
        total += error ? 0 : (unsigned long long)length;
    }
    if (!error)
        result = Py_BuildValue("OOOK", list, places, sizes, total);
    Py_XDECREF(places);
    Py_XDECREF(sizes);
    Py_XDECREF(list);
    return result;
}
