/* look.h - what is on the disk, as columns. build.py gives the text between the two marks to cffi.
 */
#ifndef QI_LOOK_H
#define QI_LOOK_H

#include "qindex.h"

/* cffi: begin */
/* columns.c: many rows in one call, each column an array of the caller's with room for `room` rows;
 * NULL: not wanted. Bits are one per row, the lowest of a byte first. Begin with zeros in what is
 * not a column; each call fills the columns from their first row on, those of records and messages
 * from row `first` on, and goes on where the one before has ended. */
typedef struct {
    uint32_t room;
    uint32_t first;      /* rows before it are there already, of other files or queues */
    uint64_t at, inside; /* where the next call begins */
    uint64_t effort;     /* what the search behind damage may still cost */
    uint64_t damaged;    /* bytes so far that were no frame, with a frame behind them */
    uint32_t newer;  /* 0; then the kind of a side record that only a newer version understands */
    uint64_t moment; /* of a journal: the last MOMENT; of a segment: where the batch has MOMENTS */
    uint32_t raw;    /* of records: 1: rows also of what holds none, and slots as ReqIds */
    uint8_t *kind;   /* QI_ROW_PUBLISH ...; of a message its flags, QI_REDELIVERED ... */
    int64_t *req_id, *offset, *size, *expiry_us;
    int64_t *due_us; /* of a time, of a message that is or was delayed; of a raw moment its time */
    int64_t *published_us; /* of a message, of a publish */
    int32_t *priority;
    int64_t *embedded; /* bytes that stand in the index */
    int64_t *file;     /* of a message with a MsgId: its birthplace; `offset` is the place in it */
    int32_t *
        count; /* deliveries; of a stored body: to how many queues it was published, 256: or more */
    uint8_t *msg_id;   /* 16 bytes each */
    uint8_t *has_size; /* bits: the row is a publish */
    uint8_t *has_expiry, *has_count, *has_msg_id, *has_due, *has_priority,
        *has_published; /* bits */
    /* Of messages: their payloads, apart, end to end, and where each begins; the last end is behind
     * the last row. */
    uint8_t *bodies, *headers;
    int32_t *body_starts, *header_starts;
    uint64_t bodies_room, headers_room;
} qi_columns;
enum {
    QI_ROW_PUBLISH = 0, /* persistent */
    QI_ROW_TRANSIENT = 1,
    QI_ROW_DELIVER = 2,
    QI_ROW_ACK = 3,
    QI_ROW_TIME = 4,
    QI_ROW_EVENT = 5, /* of a segment: deliver, then ack */
    QI_ROW_COUNT = 6,
    QI_ROW_PURGE = 7,
    QI_ROW_SOUND = 8,   /* a stored body */
    QI_ROW_DAMAGED = 9, /* one whose checksum is wrong */
    /* Raw rows: `size` bytes at `offset` that hold no record. A purge has a size, too. */
    QI_ROW_BAD = 10,      /* no frame, with a frame behind them */
    QI_ROW_TAIL = 11,     /* no frame, up to the end: a torn tail, stale bytes or damage */
    QI_ROW_HEADLESS = 12, /* a damaged header; what it said is known from the frames, but for a
                             segment's number */
    QI_ROW_NEWER =
        13, /* a frame or side record of this count as its kind, which must not be skipped */
    QI_ROW_SIDE =
        14, /* a side record, the count is its kind; of a lease its time is how long it is */
    QI_ROW_MOMENT = 15, /* when messages were published: in journals a time, in segments many */
    QI_ROW_FRAME =
        16, /* and the frame's type, FORMAT.rst, section 4: `size` is that of its payload */
};
/* The number of rows, with those before `first`; no more than these at the end. From raw bytes: of
 * a journal or a segment (QI_E_FORMAT: neither; raw rows need no header), and of the message file
 * of this number in the store of this identity. */
int64_t qi_columns_records(const void *bytes, size_t size, qi_columns *columns);
int64_t qi_columns_bodies(const void *identity, uint64_t number, const void *bytes, size_t size,
                          qi_columns *columns);
/* The messages of a queue that are not acked, from ReqId `at` up to below `stop`: the number of
 * rows, with those before `first`. QI_NO_BODY in kind: what its record names cannot be read.
 * QI_E_ROOM: the next payload has more bytes than there is room for. Another error is about a
 * message whose record cannot be read, qi_error_req_id() says which, or about the whole queue. */
int64_t qi_columns_messages(qi_queue *queue, uint64_t stop, qi_columns *columns);
/* cffi: end */

#endif
