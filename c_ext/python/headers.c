/* headers.c - the usual headers as an AMQP 0-9-1 field table, and back.
 *
 * qindex/field_table.py knows all of these tables, and is the only one that says what is wrong with
 * one. Here are those of str keys whose values are None, bool, int, float, str or bytes, or a list
 * of these. Anything else is "unusual", and goes there.
 */
#include "python/calls.h"

#include <string.h>

#include "base/base.h"

#define SHORT_STRING_MAX 255
#define TABLE_START      4    /* the table's length */
#define TABLE_ROOM       4096 /* of a batch, a longer one is unusual */

/* Bytes that are written one behind the other, as far as there is room. */
struct writer {
    uint8_t *at, *end;
};

static int has_room(const struct writer *out, Py_ssize_t size) {
    return out->end - out->at >= size;
}

static int put_string(struct writer *out, const char *text, Py_ssize_t size) {
    if (size > UINT32_MAX || !has_room(out, size + 4))
        return 0;
    qi_put32(out->at, (uint32_t)size);
    memcpy(out->at + 4, text, (size_t)size);
    out->at += 4 + size;
    return 1;
}

static int put_whole(struct writer *out, PyObject *value) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || !has_room(out, 9))
        return 0;
    if (number >= INT32_MIN && number <= INT32_MAX) {
        *out->at = 'I';
        qi_put32(out->at + 1, (uint32_t)number);
        out->at += 5;
        return 1;
    }
    *out->at = 'l';
    qi_put64(out->at + 1, (uint64_t)number);
    out->at += 9;
    return 1;
}

static int put_double(struct writer *out, double value) {
    uint64_t bits;
    if (!has_room(out, 9))
        return 0;
    memcpy(&bits, &value, sizeof bits);
    *out->at = 'd';
    qi_put64(out->at + 1, bits);
    out->at += 9;
    return 1;
}

/* UTF-8 of a str that has some; NULL, without an exception, of one with surrogates. */
static const char *utf8_of(PyObject *text, Py_ssize_t *size) {
    const char *bytes = PyUnicode_AsUTF8AndSize(text, size);
    if (!bytes)
        PyErr_Clear(); /* memory that is not there is missed again by field_table.py */
    return bytes;
}

static int put_list(struct writer *out, PyObject *list);

static int put_value(struct writer *out, PyObject *value, int nested) {
    Py_ssize_t size;
    if (!has_room(out, 2))
        return 0;
    if (PyUnicode_CheckExact(value)) {
        const char *text = utf8_of(value, &size);
        *out->at++ = 'S';
        return text && put_string(out, text, size);
    }
    if (PyBool_Check(value)) {
        *out->at++ = 't';
        *out->at++ = value == Py_True;
        return 1;
    }
    if (PyLong_CheckExact(value))
        return put_whole(out, value);
    if (PyFloat_CheckExact(value))
        return put_double(out, PyFloat_AsDouble(value));
    if (PyBytes_CheckExact(value)) {
        *out->at++ = 'x';
        return put_string(out, PyBytes_AsString(value), PyBytes_Size(value));
    }
    if (PyList_CheckExact(value))
        return !nested && put_list(out, value);
    *out->at++ = 'V';
    return value == Py_None;
}

/* Of a copy: another thread may change the list meanwhile. */
static int put_list(struct writer *out, PyObject *list) {
    PyObject *values = has_room(out, 5) ? PyList_AsTuple(list) : NULL;
    if (!values) {
        PyErr_Clear();
        return 0;
    }
    *out->at = 'A';
    uint8_t *length = out->at + 1;
    out->at += 5;
    int usual = 1;
    for (Py_ssize_t i = 0, count = PyTuple_Size(values); usual && i < count; i++)
        usual = put_value(out, PyTuple_GetItem(values, i), 1);
    qi_put32(length, (uint32_t)(out->at - length - 4));
    Py_DECREF(values);
    return usual;
}

static int put_key(struct writer *out, PyObject *key) {
    Py_ssize_t size;
    const char *text = PyUnicode_CheckExact(key) ? utf8_of(key, &size) : NULL;
    if (!text || size > SHORT_STRING_MAX || !has_room(out, size + 1))
        return 0;
    *out->at++ = (uint8_t)size;
    memcpy(out->at, text, (size_t)size);
    out->at += size;
    return 1;
}

int qi_encode_headers(PyObject *headers, uint8_t *table, size_t room, uint32_t *size) {
    *size = 0;
    if (!PyDict_CheckExact(headers))
        return 0;
    if (PyDict_Size(headers) == 0)
        return 1;
#ifdef Py_GIL_DISABLED /* another thread may change it meanwhile: a copy is nobody else's */
    PyObject *own = PyDict_Copy(headers);
    if (!own) {
        PyErr_Clear();
        return 0;
    }
#else
    PyObject *own = Py_NewRef(headers);
#endif
    struct writer out = {table + TABLE_START, table + room};
    PyObject *key, *value;
    Py_ssize_t place = 0;
    int usual = 1;
    while (usual && PyDict_Next(own, &place, &key, &value))
        usual = put_key(&out, key) && put_value(&out, value, 0);
    Py_DECREF(own);
    *size = (uint32_t)(out.at - table);
    qi_put32(table, *size - TABLE_START);
    return usual;
}

/* Tables that stand one behind the other. */
struct tables {
    uint8_t *bytes;
    size_t size, room;
};

/* 0, with an exception: no memory. */
static int append_table(struct tables *all, const void *table, size_t size) {
    if (size == 0)
        return 1; /* empty headers before all others: there is no memory yet */
    if (all->room - all->size < size) {
        size_t room = 2 * (all->size + size) + TABLE_ROOM;
        uint8_t *grown = PyMem_Realloc(all->bytes, room);
        if (!grown) {
            PyErr_NoMemory();
            return 0;
        }
        all->bytes = grown;
        all->room = room;
    }
    memcpy(all->bytes + all->size, table, size);
    all->size += size;
    return 1;
}

/* 0, with an exception: `encode` says what is wrong with them, or no memory. */
static int append_headers(struct tables *all, PyObject *headers, PyObject *encode, uint32_t *size) {
    uint8_t table[TABLE_ROOM];
    *size = 0;
    if (headers == Py_None)
        return 1;
    if (qi_encode_headers(headers, table, sizeof table, size))
        return append_table(all, table, *size);
    PyObject *bytes = PyObject_CallFunctionObjArgs(encode, headers, NULL);
    if (bytes && !PyBytes_Check(bytes))
        PyErr_SetString(PyExc_TypeError, "a table is bytes");
    int done = bytes && PyBytes_Check(bytes);
    if (done) {
        *size = (uint32_t)PyBytes_Size(bytes);
        done = append_table(all, PyBytes_AsString(bytes), *size);
    }
    Py_XDECREF(bytes);
    return done;
}

PyObject *qi_join_headers(PyObject *module, PyObject *arguments) {
    PyObject *headers, *encode, *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO", &headers, &encode))
        return NULL;
    struct tables all = {0};
    PyObject *list = PySequence_List(headers);
    Py_ssize_t count = list ? PyList_Size(list) : 0;
    PyObject *sizes =
        list ? PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t)) : NULL;
    uint32_t *size = sizes ? (uint32_t *)(void *)PyBytes_AsString(sizes) : NULL;
    int done = sizes != NULL;
    for (Py_ssize_t i = 0; done && i < count; i++)
        done = append_headers(&all, PyList_GetItem(list, i), encode, &size[i]);
    PyObject *joined =
        done ? PyBytes_FromStringAndSize((const char *)all.bytes, (Py_ssize_t)all.size) : NULL;
    if (joined)
        result = PyTuple_Pack(2, joined, sizes);
    PyMem_Free(all.bytes);
    Py_XDECREF(joined);
    Py_XDECREF(sizes);
    Py_XDECREF(list);
    return result;
}

/* Bytes that are read one behind the other. */
struct reader {
    const uint8_t *at, *end;
};

/* The next `size` bytes; NULL: there are fewer. */
static const uint8_t *take(struct reader *in, size_t size) {
    if ((size_t)(in->end - in->at) < size)
        return NULL;
    in->at += size;
    return in->at - size;
}

/* A str, or bytes where `text` is false or it is no UTF-8. */
static PyObject *read_string(struct reader *in, int text) {
    const uint8_t *length = take(in, 4);
    const char *bytes = length ? (const char *)take(in, qi_get32(length)) : NULL;
    if (!bytes)
        return NULL;
    Py_ssize_t size = (Py_ssize_t)qi_get32(length);
    PyObject *read = text ? PyUnicode_DecodeUTF8(bytes, size, NULL) : NULL;
    if (read || (text && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)))
        return read;
    PyErr_Clear();
    return PyBytes_FromStringAndSize(bytes, size);
}

static PyObject *read_list(struct reader *in);

/* A new reference; NULL, with or without an exception: unusual, cut, or no memory. */
static PyObject *read_value(struct reader *in, int nested) {
    const uint8_t *tag = take(in, 1), *bytes;
    double number;
    if (!tag)
        return NULL;
    switch (*tag) {
    case 'S':
        return read_string(in, 1);
    case 'x':
        return read_string(in, 0);
    case 'V':
        return Py_NewRef(Py_None);
    case 't':
        return (bytes = take(in, 1)) ? PyBool_FromLong(*bytes != 0) : NULL;
    case 'I':
        return (bytes = take(in, 4)) ? PyLong_FromLong((int32_t)qi_get32(bytes)) : NULL;
    case 'l':
        return (bytes = take(in, 8)) ? PyLong_FromLongLong((int64_t)qi_get64(bytes)) : NULL;
    case 'd':
        if (!(bytes = take(in, 8)))
            return NULL;
        memcpy(&number, (uint64_t[]){qi_get64(bytes)}, sizeof number);
        return PyFloat_FromDouble(number);
    case 'A':
        return nested ? NULL : read_list(in);
    default:
        return NULL;
    }
}

static PyObject *read_list(struct reader *in) {
    const uint8_t *length = take(in, 4), *bytes = length ? take(in, qi_get32(length)) : NULL;
    struct reader inner = {bytes, in->at};
    PyObject *list = bytes ? PyList_New(0) : NULL;
    while (list && inner.at < inner.end) {
        PyObject *value = read_value(&inner, 1);
        if (!value || PyList_Append(list, value) != 0)
            Py_CLEAR(list);
        Py_XDECREF(value);
    }
    return list;
}

/* The key, its value, into the dict. 0: unusual, cut, or no memory. */
static int read_entry(struct reader *in, PyObject *dict) {
    const uint8_t *length = take(in, 1);
    const char *text = length ? (const char *)take(in, *length) : NULL;
    PyObject *key = text ? PyUnicode_DecodeUTF8(text, *length, NULL) : NULL;
    PyObject *value = key ? read_value(in, 0) : NULL;
    int done = value && PyDict_SetItem(dict, key, value) == 0;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return done;
}

PyObject *qi_decode_headers(PyObject *module, PyObject *table) {
    (void)module;
    if (!PyBytes_Check(table))
        return PyErr_Format(PyExc_TypeError, "decode_headers() takes bytes");
    struct reader in = {(const uint8_t *)PyBytes_AsString(table), NULL};
    in.end = in.at + PyBytes_Size(table);
    const uint8_t *length = take(&in, TABLE_START);
    PyObject *dict = PyDict_New();
    if (!dict)
        return NULL;
    int usual = length && qi_get32(length) == (size_t)(in.end - in.at);
    while (usual && in.at < in.end)
        usual = read_entry(&in, dict);
    if (usual)
        return dict;
    Py_DECREF(dict);
    PyErr_Clear(); /* field_table.py says what is wrong, or reads it */
    Py_RETURN_NONE;
}
