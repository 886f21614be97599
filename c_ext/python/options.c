/* options.c - the options of publish(), get() and nack(), as nearly everybody gives them.
 *
 * What is wrong with an option, arguments.py says: here it is only told apart from what is right.
 */
#include "python/calls.h"

#include <math.h>

#include "engine/engine.h"

/* Seconds, as in arguments.py. */
#define DELAY_MAX   1e9
#define DUE_MAX     ((double)(UINT64_C(1) << 35))
#define EXPIRES_MAX ((double)(UINT64_C(1) << 43))

/* The names of options. CPython keeps one str of each name that stands in a program: the same
 * address is the same name, and the texts are compared only if there is none with it. */
enum option {
    HEADERS,
    PRIORITY,
    TTL,
    LEASE,
    TIMEOUT,
    DELAY,
    DUE,
    EXPIRES_AT,
    CONFIRM,
    PERSISTENT,
    REDELIVERED,
    REQUEUE,
    COUNT,
    OPTIONS
};
static const char *const texts[OPTIONS] = {
    "headers",    "priority", "ttl",        "lease",       "timeout", "delay", "due",
    "expires_at", "confirm",  "persistent", "redelivered", "requeue", "count"};
static PyObject *names[OPTIONS];

int qi_make_option_names(void) {
    for (int i = 0; i < OPTIONS; i++)
        if (!names[i] && !(names[i] = PyUnicode_InternFromString(texts[i])))
            return -1;
    return 0;
}

/* OPTIONS: there is no option of that name. */
static enum option option_of(PyObject *keyword) {
    int i = 0;
    while (i < OPTIONS && keyword != names[i])
        i++;
    for (int k = 0; i == OPTIONS && k < OPTIONS; k++)
        if (PyUnicode_CompareWithASCIIString(keyword, texts[k]) == 0)
            return (enum option)k;
    return (enum option)i;
}

/* A number of seconds, 0 or more and below `most`. */
static int read_seconds(PyObject *given, double most, double *seconds) {
    if (!PyFloat_CheckExact(given) && !PyLong_CheckExact(given))
        return 0;
    *seconds = PyFloat_AsDouble(given);
    if (PyErr_Occurred())
        PyErr_Clear();
    return *seconds >= 0 && *seconds < most;
}

/* The same in microseconds, more than 0. (What 0 means, the Python method knows.) */
static int read_us(PyObject *given, double most, uint64_t *us) {
    double seconds;
    if (!read_seconds(given, most, &seconds))
        return 0;
    *us = (uint64_t)(seconds * 1e6);
    return *us > 0;
}

static int read_priority(PyObject *given, uint32_t *flags) {
    long priority = PyLong_CheckExact(given) ? PyLong_AsLong(given) : -1;
    if (PyErr_Occurred())
        PyErr_Clear();
    if (priority < 0 || priority >= (long)QI_PRIORITIES)
        return 0;
    *flags |= (uint32_t)priority << QI_PRIORITY_SHIFT;
    return 1;
}

/* The flag, if the value is not the usual one of the two. */
static int read_flag(PyObject *given, PyObject *usual, uint32_t flag, uint32_t *flags) {
    if (given != usual)
        *flags |= flag;
    return PyBool_Check(given);
}

static int read_ttl(const qi_queue *queue, PyObject *given, uint64_t *expiry_us) {
    double ttl;
    if (*expiry_us || !read_seconds(given, EXPIRES_MAX / 2, &ttl))
        return 0;
    *expiry_us = (uint64_t)(((double)qi_wall_us(queue->store) / 1e6 + ttl) * 1e6);
    return 1;
}

static int read_delay(const qi_queue *queue, PyObject *given, uint64_t *due_us) {
    if (*due_us || !read_us(given, DELAY_MAX, due_us))
        return 0;
    *due_us += qi_wall_us(queue->store);
    return 1;
}

/* None: for ever. */
static int read_timeout(PyObject *given, int *waits) {
    double seconds = 0;
    if (given != Py_None && !read_seconds(given, HUGE_VAL, &seconds))
        return 0;
    *waits = given == Py_None || seconds > 0;
    return 1;
}

static int read_publish_option(const qi_queue *queue, PyObject *keyword, PyObject *value,
                               struct qi_publish_options *options) {
    struct qi_given *given = &options->given;
    enum option option = option_of(keyword);
    if (value == Py_None && option < CONFIRM && option != PRIORITY && option != TIMEOUT)
        return 1; /* as if it were not given */
    switch (option) {
    case HEADERS:
        given->headers = options->table;
        return qi_encode_headers(value, options->table, QI_TABLE_ROOM, &given->headers_size);
    case PRIORITY:
        return read_priority(value, &given->flags);
    case TTL:
        return read_ttl(queue, value, &given->expiry_us);
    case EXPIRES_AT:
        return !given->expiry_us && read_us(value, EXPIRES_MAX, &given->expiry_us);
    case DELAY:
        return read_delay(queue, value, &given->due_us);
    case DUE:
        return !given->due_us && read_us(value, DUE_MAX, &given->due_us);
    case LEASE:
        return read_us(value, DELAY_MAX, &given->lease_us);
    case TIMEOUT:
        return read_timeout(value, &options->waits);
    case CONFIRM:
        options->confirm |= value == Py_True;
        return PyBool_Check(value);
    case PERSISTENT:
        return read_flag(value, Py_True, QI_TRANSIENT, &given->flags);
    case REDELIVERED:
        return read_flag(value, Py_False, QI_REDELIVERED, &given->flags);
    default:
        return 0;
    }
}

int qi_read_publish_options(const qi_queue *queue, PyObject *const *values, PyObject *keywords,
                            struct qi_publish_options *options) {
    Py_ssize_t count = keywords ? PyTuple_Size(keywords) : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!read_publish_option(queue, PyTuple_GetItem(keywords, i), values[i], options))
            return 0;
    return 1;
}

int qi_read_get_options(PyObject *const *values, PyObject *keywords, int *waits,
                        uint64_t *lease_us) {
    Py_ssize_t count = keywords ? PyTuple_Size(keywords) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = values[i];
        enum option option = option_of(PyTuple_GetItem(keywords, i));
        if (option == TIMEOUT) {
            if (!read_timeout(value, waits))
                return 0;
        } else if (option != LEASE || (value != Py_None && !read_us(value, DELAY_MAX, lease_us))) {
            return 0;
        }
    }
    return 1;
}

int qi_read_nack_options(const qi_queue *queue, PyObject *const *values, PyObject *keywords,
                         struct qi_nack_options *options) {
    Py_ssize_t count = keywords ? PyTuple_Size(keywords) : 0;
    uint32_t drops = 0, uncounted = 0;
    int known = !options->requeue || read_flag(options->requeue, Py_True, 1, &drops);
    for (Py_ssize_t i = 0; i < count && known; i++) {
        PyObject *value = values[i];
        enum option option = option_of(PyTuple_GetItem(keywords, i));
        if (option == DELAY)
            known = value == Py_None || read_delay(queue, value, &options->due_us);
        else if (option == DUE)
            known =
                value == Py_None || (!options->due_us && read_us(value, DUE_MAX, &options->due_us));
        else if (option == REQUEUE)
            known = !options->requeue && read_flag(value, Py_True, 1, &drops);
        else
            known = option == COUNT && read_flag(value, Py_True, 1, &uncounted);
    }
    if (drops + uncounted + (options->due_us != 0) > 1) /* they do not go together */
        return 0;
    options->how = drops ? QI_SETTLE_REJECT : uncounted ? QI_SETTLE_RETURN : QI_SETTLE_NACK;
    return known;
}

int qi_read_lease(PyObject *given, uint64_t *lease_us) {
    return read_us(given, DELAY_MAX, lease_us);
}
