/* calls.h - what the files of the module qindex._calls share; their rules are in calls.c. */
#ifndef QI_CALLS_H
#define QI_CALLS_H

#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#include <stdint.h>

#include "queue/queue.h"

/* A message: MessageFields (fields.c). */
typedef struct {
    PyObject_HEAD PyObject *req_id, *body, *details;
    PyObject *owner;           /* a weak reference to the Calls that took it; NULL: nobody did */
    unsigned long long due_us; /* until which it is, or was, delayed; 0: it was not */
    unsigned long long published_us; /* 0: that is not known */
    unsigned long long delivery;     /* which of the message's deliveries: see qi_ack */
    bool known;                      /* somebody has read its body or ReqId */
} Fields;

/* What a message has besides: MessageDetails (details.c). `queue`: a str, or the details that have
 * it. */
typedef struct {
    PyObject_HEAD PyObject *queue, *headers, *expires_at, *dead, *deaths;
    int delivery_count, priority;
    char redelivered, persistent;
} Details;

/* The verbs of a queue (calls.c). */
typedef struct {
    PyObject_HEAD struct qi_queue *queue;
    PyObject *message_type; /* derives from MessageFields */
    PyObject *plain;        /* the details of a message with nothing special */
    PyObject *weak_list;    /* of CPython */
    PyObject *weak;         /* a weak reference to this, for the messages */
    int confirm_all;        /* every publish and ack waits for a sync */
    int may_wait;           /* else what cannot be done at once goes to the Python method */
} Calls;

extern PyTypeObject *qi_fields_type, *qi_details_type;
extern PyType_Spec qi_fields_spec, qi_details_spec;

/* The details of a message: a new reference. `plain` is what one of its queue has that is nothing
 * special. Takes over `headers`, which is NULL if there are none; also if this fails. How the
 * message died is asked of the queue, without the GIL. */
PyObject *qi_details_of(struct qi_queue *queue, PyObject *plain, const qi_message *message,
                        PyObject *headers);

/* The Python method of that name, with the same arguments. */
PyObject *qi_call_python(PyObject *self, const char *name, PyObject *const *arguments,
                         Py_ssize_t count, PyObject *keywords);
/* The exception of an error that the engine has told this thread about. */
PyObject *qi_raise_error(PyObject *self, int64_t code);

/* Nobody has looked at the message: it is ready again, and where there is a place to say so (format
 * 2) that delivery does not count. */
void qi_put_back(qi_queue *queue, uint64_t req_id, uint64_t delivery);

/* Methods of Calls in gets.c. */
PyObject *qi_calls_get(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                       PyObject *keywords);
PyObject *qi_calls_message(PyObject *object, PyObject *arguments);
PyObject *qi_calls_messages(PyObject *object, PyObject *arguments);
PyObject *qi_calls_give_back(PyObject *object, PyObject *arguments);
PyObject *qi_calls_get_many(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                            PyObject *keywords);
PyObject *qi_calls_get_rest(PyObject *object, PyObject *arguments);
PyObject *qi_calls_give_back_many(PyObject *object, PyObject *arguments);

/* Methods of Calls in settles.c. */
PyObject *qi_calls_ack(PyObject *object, PyObject *message);
PyObject *qi_calls_nack(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                        PyObject *keywords);
PyObject *qi_calls_touch(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                         PyObject *keywords);

/* to_deliveries(messages): of messages or ReqIds, the ReqIds and the deliveries, each as the bytes
 * of an array of uint64_t. */
PyObject *qi_to_deliveries(PyObject *module, PyObject *messages);

/* fan_out(calls, skip, body, **options): as Store.publish() to the queues of these Calls, a tuple
 * of them; None if that would take a wait, or something is unusual. */
PyObject *qi_fan_out(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                     PyObject *keywords);

#define QI_TABLE_ROOM 1024

/* What the caller of publish() says besides the body. */
struct qi_publish_options {
    struct qi_given given;
    int confirm;
    int waits;      /* for a place, if the queue is full */
    uint8_t *table; /* of QI_TABLE_ROOM bytes: the headers, if they fit */
};

/* Reads the options of a publish, and those of a get, as they may be given: the values at `values`
 * belong to `keywords`, a tuple or NULL. 0, without an exception: one of them is unusual, or wrong;
 * the Python method knows. */
int qi_read_publish_options(const qi_queue *queue, PyObject *const *values, PyObject *keywords,
                            struct qi_publish_options *options);
int qi_read_get_options(PyObject *const *values, PyObject *keywords, int *waits,
                        uint64_t *lease_us);
/* The same for a nack. */
struct qi_nack_options {
    PyObject *requeue; /* NULL: it is not given without its name */
    uint64_t due_us;
    int how; /* QI_SETTLE_... */
};
int qi_read_nack_options(const qi_queue *queue, PyObject *const *values, PyObject *keywords,
                         struct qi_nack_options *options);
int qi_read_lease(PyObject *given, uint64_t *lease_us);
int qi_make_option_names(void); /* -1: an exception */

/* The table of these headers; `*size` is 0 for {}. 0, without an exception: they are
 * unusual, or need more room. */
int qi_encode_headers(PyObject *headers, uint8_t *table, size_t room, uint32_t *size);

/* join_headers(headers, encode): of a sequence of dicts, or None, the tables as one bytes object
 * and their sizes as the bytes of an array of uint32_t. encode(dict) gives the bytes of an unusual
 * one, or raises what is wrong with it. Cost: some 0.5 us each, a tenth of what Python needs. */
PyObject *qi_join_headers(PyObject *module, PyObject *arguments);

/* decode_headers(table): the dict, or None if there is anything unusual in it. */
PyObject *qi_decode_headers(PyObject *module, PyObject *table);

/* new_message_type(): one for each interpreter, as message.py puts functions on it. */
PyObject *qi_new_message_type(PyObject *module, PyObject *none);

/* place_bodies(bodies): of bytes objects a tuple of them, which keeps them where they are, their
 * addresses and sizes as the bytes of arrays of uintptr_t and uint32_t, and the sum of the sizes.
 * TypeError for any that is none, ValueError for one of 4 GiB or more. Cost: no copy of a body. */
PyObject *qi_place_bodies(PyObject *module, PyObject *bodies);

#endif
