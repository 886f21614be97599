/* module.c - the module qindex._wire: its classes and functions. */
#include "amqp/amqp_private.h"

static PyMethodDef module_methods[] = {
    {"taken_of_store", qi_taken_of_store, METH_VARARGS,
     "taken_of_store(messages, payloads, count, source, /)\n--\n\n"
     "Taken of what qi_get_many() has put at these addresses. `source` keeps it there."},
    {"taken_of_list", qi_taken_of_list, METH_VARARGS,
     "taken_of_list(messages, source, /)\n--\n\n"
     "Taken of a list of (number, delivery, redelivered, expires_us, exchange, key, properties,\n"
     "body); the last four are bytes. ValueError: a name has more than 255 bytes."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, .m_name = "qindex._wire",
                                        .m_doc = "AMQP 0-9-1 in C: what comes by the million.",
                                        .m_size = -1, .m_methods = module_methods};

PyMODINIT_FUNC PyInit__wire(void);

/* 0, or -1 with an exception. `kept`: where the type is kept for the life of the process. */
static int add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **kept) {
    PyObject *type = PyType_FromSpec(spec);
    int error = type ? PyModule_AddObjectRef(module, name, type) : -1;
    if (kept)
        *kept = (PyTypeObject *)type;
    else
        Py_XDECREF(type);
    return error;
}

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__wire(void) {
    PyObject *module = PyModule_Create(&module_def);
    if (module && (add_type(module, "Scanner", &qi_scanner_spec, NULL) != 0 ||
                   add_type(module, "Publishes", &qi_publishes_spec, &qi_publishes_type) != 0 ||
                   add_type(module, "Tally", &qi_tally_spec, &qi_tally_type) != 0 ||
                   add_type(module, "Way", &qi_way_spec, &qi_way_type) != 0 ||
                   add_type(module, "Taken", &qi_taken_spec, &qi_taken_type) != 0 ||
                   add_type(module, "Unacked", &qi_unacked_spec, NULL) != 0))
        Py_CLEAR(module);
#ifdef Py_GIL_DISABLED
    if (module)
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
