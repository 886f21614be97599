/* scanner.c - bytes of a client in, frames and publishes out: the class Scanner.
 *
 * qindex._wire is what qindex/amqp/wire.py does in Python, for what comes by the million. It
 * knows frames and publishes: no sockets, no channels' states, no storage. The bytes may be cut
 * anywhere. Whatever is not a plain basic.publish with its content comes out as frames, and Python
 * says what is wrong with it. So these two give the same events, which a test holds:
 *
 *     wire.Scanner      bytes -> frames
 *     _wire.Scanner     bytes -> frames, and Publishes in the place of the frames of publishes;
 *                       basic.acks of an open channel that stand one behind the other are one
 *                       frame of the kind ACKS: for each its tag (8 bytes) and its bits (1)
 *
 * A Publishes ends where anything else comes, so that what the client asked for is carried out in
 * its order. What comes out is asked for one by one: between two of them the owner may change what
 * the scanner goes by (frame_max, body_max, which channels are open).
 *
 * One thread uses a Scanner at a time, as a connection has one.
 */
#include "amqp/amqp.h"

#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#define CHANNELS 2048 /* of those from here on, publishes and acks come as frames */
#define ACKS_MAX 1024
#define ACK_SIZE 9

enum { QI_ACKS = 0x100 }; /* a frame's kind is a byte: this is none, but several acks */

typedef struct {
    PyObject_HEAD PyObject *make_frame, *on_bad;
    unsigned int frame_max;
    unsigned long long body_max;
    uint8_t open[CHANNELS / 8]; /* a bit for each channel whose publishes are taken */
    PyObject *data;             /* NULL: all of it is used up */
    Py_buffer view;             /* of it */
    const uint8_t *at, *end;    /* what is left of it */
    const uint8_t *from;        /* what `last` is made of begins there */
    Publishes *last;            /* that came out last, if nothing came out since; or NULL */
    uint8_t *rest;              /* the beginning of a frame whose end has not come */
    size_t rest_size, rest_room;
    struct qi_begun *begun; /* contents of which a part has come */
    PyObject *ready;        /* frames that were taken and are given back, in order; or NULL */
    Py_ssize_t given;       /* of them */
} Scanner;

static PyMemberDef scanner_members[] = {
    {"frame_max", T_UINT, offsetof(Scanner, frame_max), 0, "Bytes of a whole frame, at most."},
    {"body_max", T_ULONGLONG, offsetof(Scanner, body_max), 0,
     "Bytes of a body; publishes of larger ones come as frames."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *scanner_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    PyObject *make_frame, *on_bad;
    unsigned int frame_max;
    (void)names;
    if (!PyArg_ParseTuple(arguments, "IOO", &frame_max, &make_frame, &on_bad))
        return NULL;
    Scanner *self = (Scanner *)PyType_GenericAlloc(type, 0);
    if (self) {
        self->frame_max = frame_max;
        self->make_frame = Py_NewRef(make_frame);
        self->on_bad = Py_NewRef(on_bad);
    }
    return (PyObject *)self;
}

static void use_up(Scanner *self) {
    if (!self->data)
        return;
    PyBuffer_Release(&self->view);
    Py_CLEAR(self->data);
    self->at = self->end = NULL;
}

/* These bytes are next, instead of what there was. 0, or -1 with an exception. */
static int use(Scanner *self, PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0)
        return -1;
    use_up(self);
    self->data = Py_NewRef(data);
    self->view = view;
    self->at = view.buf;
    self->end = self->at + view.len;
    return 0;
}

static void scanner_dealloc(PyObject *object) {
    Scanner *self = (Scanner *)object;
    PyTypeObject *type = Py_TYPE(object);
    qi_begun_free(&self->begun);
    use_up(self);
    Py_XDECREF((PyObject *)self->last);
    Py_XDECREF(self->make_frame);
    Py_XDECREF(self->on_bad);
    Py_XDECREF(self->ready);
    free(self->rest);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static bool is_open(const Scanner *self, uint16_t channel) {
    return channel < CHANNELS && (self->open[channel / 8] & 1u << channel % 8);
}

static void set_open(Scanner *self, uint16_t channel, bool is_open) {
    uint8_t bit = (uint8_t)(1u << channel % 8);
    if (channel < CHANNELS && is_open)
        self->open[channel / 8] |= bit;
    else if (channel < CHANNELS)
        self->open[channel / 8] &= (uint8_t)~bit;
}

/* ---- the next frame ---- */

static int keep_rest(Scanner *self, size_t more) {
    if (more > self->rest_room - self->rest_size) {
        uint8_t *grown = realloc(self->rest, self->rest_size + more);
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        self->rest = grown;
        self->rest_room = self->rest_size + more;
    }
    memcpy(self->rest + self->rest_size, self->at, more);
    self->rest_size += more;
    self->at += more;
    return 0;
}

enum { BAD = -2 }; /* the bytes are no frame */

/* Bytes of the whole frame that begins there; 0: that is not known yet; BAD. */
static int64_t frame_size(const Scanner *self, const uint8_t *frame, size_t size) {
    if (size < QI_FRAME_BEGIN)
        return 0;
    uint64_t payload = qi_big32(frame + 3);
    if (payload + QI_FRAME_EXTRA > self->frame_max)
        return BAD;
    if (size < payload + QI_FRAME_EXTRA)
        return 0;
    return frame[QI_FRAME_BEGIN + payload] == QI_FRAME_END ? (int64_t)(payload + QI_FRAME_EXTRA)
                                                           : BAD;
}

/* on_bad() says what is wrong with the frame that is next, as an exception. Nothing of these bytes
 * is used any more. */
static void raise_bad(Scanner *self) {
    size_t left = (size_t)(self->end - self->at), rest = self->rest_size, shown = 0;
    const uint8_t *frame = rest ? self->rest : self->at;
    uint64_t payload = qi_big32(frame + 3), there = (rest ? rest : left) - QI_FRAME_BEGIN;
    bool is_large = payload + QI_FRAME_EXTRA > self->frame_max;
    uint8_t begin[16];
    for (; shown < there && shown < sizeof begin && (is_large || shown < payload); shown++)
        begin[shown] = frame[QI_FRAME_BEGIN + shown];
    for (size_t i = 0; rest && is_large && i < left && shown < sizeof begin; i++)
        begin[shown++] = self->at[i];
    PyObject *said = PyObject_CallFunction(
        self->on_bad, "iy#iII", frame[0], (const char *)begin, (Py_ssize_t)shown,
        is_large ? -1 : frame[QI_FRAME_BEGIN + payload], (unsigned)payload, self->frame_max);
    if (said)
        PyErr_SetString(PyExc_RuntimeError, "a bad frame was taken for a good one");
    Py_XDECREF(said);
    self->rest_size = 0;
    use_up(self);
}

/* What the rest lacks of a whole frame, as far as its bytes say. */
static size_t lacking(const Scanner *self) {
    size_t wanted = QI_FRAME_BEGIN;
    if (self->rest_size >= QI_FRAME_BEGIN)
        wanted = qi_big32(self->rest + 3) + QI_FRAME_EXTRA;
    return wanted - self->rest_size;
}

/* The next whole frame, which stays where it is, and its bytes. 1; 0: there is none; BAD; -1: an
 * exception. */
static int next_frame(Scanner *self, struct qi_frame *frame, size_t *size) {
    const uint8_t *begin = self->at;
    int64_t found = 0;
    while (self->rest_size && !found) {
        found = frame_size(self, begin = self->rest, self->rest_size);
        size_t more = lacking(self), left = (size_t)(self->end - self->at);
        if (!found && left == 0)
            return 0;
        if (!found && keep_rest(self, more < left ? more : left) != 0)
            return -1;
    }
    if (!self->rest_size)
        found = frame_size(self, begin, (size_t)(self->end - begin));
    if (found == 0) {
        size_t left = (size_t)(self->end - self->at);
        return left && keep_rest(self, left) != 0 ? -1 : 0;
    }
    if (found < 0)
        return BAD;
    *size = (size_t)found;
    *frame = (struct qi_frame){.kind = begin[0], .channel = qi_big16(begin + 1)};
    frame->payload = (struct qi_piece){begin + QI_FRAME_BEGIN, *size - QI_FRAME_EXTRA};
    return 1;
}

static void step(Scanner *self, size_t size) {
    if (self->rest_size)
        self->rest_size = 0;
    else
        self->at += size;
}

/* ---- publishes ---- */

/* A frame of this kind and channel that is whole and lies at `*at`, which goes behind it. */
static bool take_frame(const Scanner *self, const uint8_t **at, uint8_t kind, uint16_t channel,
                       struct qi_piece *payload) {
    size_t left = (size_t)(self->end - *at);
    if (left < QI_FRAME_EXTRA || (*at)[0] != kind || qi_big16(*at + 1) != channel)
        return false;
    uint64_t size = qi_big32(*at + 3);
    if (size + QI_FRAME_EXTRA > left || size + QI_FRAME_EXTRA > self->frame_max ||
        (*at)[QI_FRAME_BEGIN + size] != QI_FRAME_END)
        return false;
    *payload = (struct qi_piece){*at + QI_FRAME_BEGIN, size};
    *at += size + QI_FRAME_EXTRA;
    return true;
}

/* The usual case: a publish, its header and its body stand there whole, and it is not large. */
static bool take_whole(Scanner *self, struct qi_content *content) {
    const uint8_t *at = self->at;
    if (self->end - at < QI_FRAME_EXTRA)
        return false;
    uint16_t channel = qi_big16(at + 1);
    struct qi_piece header;
    *content = (struct qi_content){.channel = channel};
    if (!is_open(self, channel) || !take_frame(self, &at, QI_METHOD, channel, &content->method) ||
        !qi_is_publish(content->method) || !take_frame(self, &at, QI_HEADER, channel, &header) ||
        header.size < QI_HEADER_BEGIN || qi_big32(header.at) != QI_CLASS_BASIC << 16)
        return false;
    uint64_t size = qi_big64(header.at + 4);
    if (size > self->body_max || size >= QI_LARGE ||
        (size &&
         (!take_frame(self, &at, QI_BODY, channel, &content->body) || content->body.size != size)))
        return false;
    content->properties =
        (struct qi_piece){header.at + QI_HEADER_BEGIN, header.size - QI_HEADER_BEGIN};
    self->at = at;
    return true;
}

/* Publishes that stand there whole, as many as there are. 0, or -1 with an exception. */
static int take_all(Scanner *self, Publishes **into) {
    struct qi_content content;
    while ((!*into || !qi_publishes_is_full(*into)) && take_whole(self, &content)) {
        if (!*into && !(*into = qi_publishes_new(self->data)))
            return -1;
        if (qi_publishes_add(*into, &content) != 0)
            return -1;
    }
    return 0;
}

/* The last part of a content has come. */
static int finish(Scanner *self, uint16_t channel, Publishes **into) {
    if (!*into && !(*into = qi_publishes_new(self->data)))
        return -1;
    return qi_begun_publish(qi_begun_find(&self->begun, channel), *into);
}

/* ---- the next of what comes out ---- */

/* A frame that was taken and is given back; NULL without an exception: there is none. */
static PyObject *given_back(Scanner *self) {
    if (!self->ready)
        return NULL;
    if (self->given == PyList_Size(self->ready)) {
        Py_CLEAR(self->ready);
        self->given = 0;
        return NULL;
    }
    return Py_NewRef(PyList_GetItem(self->ready, self->given++));
}

/* The content of this channel is broken off by the frame behind it: Python sees all of its frames,
 * and all that follow. It closes the channel, or the connection. */
static PyObject *break_off(Scanner *self, uint16_t channel) {
    struct qi_begun **begun = qi_begun_find(&self->begun, channel);
    set_open(self, channel, false);
    if (!(self->ready = PyList_New(0)) ||
        qi_begun_give_back(begun, self->make_frame, self->ready) != 0)
        return NULL;
    return given_back(self);
}

/* A basic.ack: what is behind its class and method, a tag and a byte. */
static bool is_ack(struct qi_piece payload) {
    return payload.size == 4 + ACK_SIZE && qi_big32(payload.at) == QI_BASIC_ACK;
}

/* This ack, whose frame has `size` bytes, and those of its channel that stand behind it. */
static PyObject *take_acks(Scanner *self, const struct qi_frame *first, size_t size) {
    uint8_t acks[ACKS_MAX * ACK_SIZE];
    size_t count = 0;
    struct qi_piece payload = first->payload;
    uint16_t channel = first->channel;
    memcpy(acks, payload.at + 4, ACK_SIZE);
    step(self, size);
    const uint8_t *at = self->at;
    for (count = 1; count < ACKS_MAX; count++) {
        if (!take_frame(self, &at, QI_METHOD, channel, &payload) || !is_ack(payload))
            break;
        memcpy(acks + count * ACK_SIZE, payload.at + 4, ACK_SIZE);
        self->at = at;
    }
    return PyObject_CallFunction(self->make_frame, "iiy#", QI_ACKS, channel, (const char *)acks,
                                 (Py_ssize_t)(count * ACK_SIZE));
}

/* One frame: it goes into `*into`, or is `*other`. 1: more may follow; 0: what there is comes out
 * first; -1: an exception. */
static int take_one(Scanner *self, Publishes **into, PyObject **other) {
    struct qi_frame frame;
    size_t size;
    int found = next_frame(self, &frame, &size);
    if (found == BAD && !*into)
        raise_bad(self);
    if (found <= 0)
        return found != BAD ? found : *into ? 0 : -1;
    struct qi_begun **begun = qi_begun_find(&self->begun, frame.channel);
    bool is_large = begun && qi_begun_size(*begun) >= QI_LARGE;
    if (*into && (is_large || qi_publishes_is_full(*into)))
        return 0;
    enum qi_took took = QI_TOOK_NOT;
    if (frame.kind == QI_HEARTBEAT && *into) /* it says nothing, and does not part publishes */
        took = QI_TOOK;
    else if (begun || is_open(self, frame.channel))
        took = qi_begun_take(&self->begun, &frame, self->body_max);
    if (took == QI_TOOK_FAILED)
        return -1;
    if ((took == QI_TOOK_NOT || took == QI_TOOK_BAD) && *into)
        return 0;
    if (took == QI_TOOK_BAD) /* the frame itself is the next one */
        return (*other = break_off(self, frame.channel)) ? 0 : -1;
    if (took == QI_TOOK_NOT && frame.kind == QI_METHOD && is_open(self, frame.channel) &&
        is_ack(frame.payload))
        return (*other = take_acks(self, &frame, size)) ? 0 : -1;
    if (took == QI_TOOK_NOT) {
        *other = qi_make_frame(self->make_frame, &frame);
        step(self, size);
        return *other ? 0 : -1;
    }
    step(self, size);
    if (took == QI_TOOK)
        return 1;
    return finish(self, frame.channel, into) != 0 ? -1 : !is_large;
}

static PyObject *scanner_next(PyObject *object) {
    Scanner *self = (Scanner *)object;
    PyObject *other = given_back(self);
    Publishes *into = NULL;
    int more = 1;
    Py_CLEAR(self->last);
    if (other)
        return other;
    self->from = self->at;
    while (more > 0 && self->data) {
        if (!self->rest_size && !self->begun)
            more = take_all(self, &into) == 0 ? 1 : -1;
        if (more > 0)
            more = take_one(self, &into, &other);
    }
    if (more < 0) {
        Py_XDECREF(other);
        Py_XDECREF((PyObject *)into);
        return NULL;
    }
    if (!other && !into)
        use_up(self);
    self->last = other ? NULL : (Publishes *)Py_XNewRef((PyObject *)into);
    return other ? other : (PyObject *)into;
}

/* frames(data): these bytes are next, behind what the iterator has left of others. */
static PyObject *frames(PyObject *object, PyObject *data) {
    Scanner *self = (Scanner *)object;
    PyObject *left = NULL, *both = NULL;
    if (self->at < self->end) {
        left = qi_bytes((struct qi_piece){self->at, (size_t)(self->end - self->at)});
        data = both = left ? PySequence_Concat(left, data) : NULL;
    }
    int error = data ? use(self, data) : -1;
    Py_XDECREF(left);
    Py_XDECREF(both);
    return error ? NULL : Py_NewRef(object);
}

/* keep(): what is still asked for moves into bytes of its own. */
static PyObject *keep(PyObject *object, PyObject *unused) {
    Scanner *self = (Scanner *)object;
    (void)unused;
    if (!self->data || PyBytes_Check(self->data))
        Py_RETURN_NONE;
    const uint8_t *from = self->last ? self->from : self->at;
    struct qi_piece left = {from, (size_t)(self->end - from)};
    size_t used = (size_t)(self->at - from);
    PyObject *copy = qi_bytes(left);
    if (copy && self->last)
        qi_publishes_move(self->last, left, copy);
    int error = copy ? use(self, copy) : -1;
    Py_XDECREF(copy);
    if (error)
        return NULL;
    self->from = self->at;
    self->at += used;
    Py_RETURN_NONE;
}

/* open(channel, is_open): its publishes are taken from now on, or come as frames. */
static PyObject *open_channel(PyObject *object, PyObject *arguments) {
    unsigned short channel;
    int is_open;
    if (!PyArg_ParseTuple(arguments, "Hp", &channel, &is_open))
        return NULL;
    set_open((Scanner *)object, channel, is_open);
    Py_RETURN_NONE;
}

static PyMethodDef scanner_methods[] = {
    {"open", open_channel, METH_VARARGS,
     "open($self, channel, is_open, /)\n--\n\n"
     "The channel is open: its publishes come as Publishes; or it is not: as frames."},
    {"frames", frames, METH_O,
     "frames($self, data, /)\n--\n\n"
     "What these bytes complete: frames, and Publishes. The iterator has to be used up, or keep()\n"
     "be called, before the bytes change."},
    {"keep", keep, METH_NOARGS,
     "keep($self, /)\n--\n\n"
     "The bytes may change from now on: what is left of them is copied, and what the Publishes\n"
     "that came out last has of them. Earlier ones must not be used any more."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scanner_slots[] = {
    {Py_tp_new, scanner_new},
    {Py_tp_dealloc, scanner_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, scanner_next},
    {Py_tp_methods, scanner_methods},
    {Py_tp_members, scanner_members},
    {Py_tp_doc,
     "Scanner(frame_max, make_frame, on_bad)\n--\n\n"
     "Bytes in, frames and Publishes out.\n\n"
     "`make_frame(kind, channel, payload)` makes a frame. `on_bad(kind, begin, end,\n"
     "size, frame_max)` raises the error of one that is too large (`end` is -1) or that\n"
     "does not end as a frame does; `begin` is up to 16 bytes of its payload."},
    {0, NULL},
};

PyType_Spec qi_scanner_spec = {"qindex._wire.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT,
                               scanner_slots};
