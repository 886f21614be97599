/* amqp_private.h - the groups of publishes, which publishes.c makes and spread.c gives to queues.
 */
#ifndef QI_AMQP_PRIVATE_H
#define QI_AMQP_PRIVATE_H

#include "amqp/amqp.h"

enum { GROUPS_MAX = 256, PLACES = 1024 };

struct group {
    struct qi_piece method, properties; /* properties of one that is not plain */
    struct qi_wishes wishes;
    uint32_t count;
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
    uint32_t group_count;
    uint16_t places[PLACES]; /* a hash table: number of the group + 1; 0: free */
    struct group groups[GROUPS_MAX];
};

/* ---- spread.c: methods of Publishes ---- */

PyObject *qi_publishes_ways(PyObject *object, PyObject *known);
PyObject *qi_publishes_keys(PyObject *object, PyObject *unused);
PyObject *qi_publishes_each(PyObject *object, PyObject *arguments);

#endif
