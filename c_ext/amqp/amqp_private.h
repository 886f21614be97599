/* amqp_private.h - the groups of publishes, which publishes.c makes and spread.c gives to queues,
 * and the ways that way.c makes for that. */
#ifndef QI_AMQP_PRIVATE_H
#define QI_AMQP_PRIVATE_H

#include "amqp/amqp.h"

enum { GROUPS_MAX = 4096 };

/* What a queue has. Read and written with the interpreter's lock. */
struct qi_tally {
    PyObject_HEAD long long ready, straight;
    char is_watched;
    bool is_met; /* while find() looks for a queue that two groups have */
};

struct qi_way {
    PyObject_HEAD PyObject *queue;
    PyObject *begin;        /* bytes: what the headers of a message begin with ... */
    struct qi_piece prefix; /* ... and where they are */
    struct qi_tally *tally;
    void *store; /* the queue in it, for the core */
    uint32_t flags;
    char waits;
};

struct group {
    struct qi_piece method, properties; /* properties of one that is not plain */
    struct qi_way *way;                 /* NULL: find() has not found one */
    struct qi_wishes wishes;
    uint32_t hash, count;
    uint32_t first, last; /* of its messages */
    uint16_t channel;
};

struct message {
    struct qi_piece properties, body;
    PyObject *whole; /* among what is kept: the body */
    uint32_t group;
    uint32_t next; /* of its group; of the last one itself */
};

struct qi_publishes {
    PyObject_HEAD PyObject *data, *kept; /* what the pieces point into */
    struct message *messages;
    size_t count, room;
    uint64_t body_bytes;
    struct group *groups;
    uint16_t *places; /* a hash table of twice the room: number of the group + 1; 0: free */
    uint32_t group_count, group_room;
};

/* ---- way.c ---- */

extern PyTypeObject *qi_way_type, *qi_tally_type;
extern PyType_Spec qi_way_spec, qi_tally_spec;

/* ---- gather.c: a method of Publishes ---- */

PyObject *qi_publishes_gather(PyObject *object, PyObject *list);

/* ---- spread.c: methods of Publishes ---- */

PyObject *qi_publishes_find(PyObject *object, PyObject *known);
PyObject *qi_publishes_keys(PyObject *object, PyObject *unused);
PyObject *qi_publishes_each(PyObject *object, PyObject *arguments);

#endif
