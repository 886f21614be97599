/* calls.h - what the files of the module qindex._calls share; their rules are in calls.c. */
#ifndef QI_CALLS_H
#define QI_CALLS_H

#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

/* join_bodies(bodies): bytes objects as one, and their sizes as the bytes of an array of uint32_t. TypeError for any that is
 * none, ValueError for one of 4 GiB or more. Cost: one copy; b"".join() and an array of sizes cost three times as much. */
PyObject *qi_join_bodies(PyObject *module, PyObject *bodies);

#endif
