/* messages_write.c - how the bytes of frames get into the newest file.
 *
 * Two ways. A short frame that comes alone is stored into the tape's mapping: that costs no call,
 * and a page fault only where a page begins. Everything else is gathered and goes to the file by
 * one call: the frames of a batch, up to so many bytes, and a long frame. (New pages cost a fault
 * three times as much as a call that writes many of them, and a call for each short frame costs
 * more than both. Long calls also get their pages in bigger pieces, which are read and freed
 * sooner.)
 *
 * Promises: what the caller gave is read once, or cannot change (`steady`): the checksum is over
 * the bytes that the file gets. When a batch fails, the file ends where it ended before the part
 * that was not written; what stands behind that end belongs to nobody and is written over.
 *
 * Nothing that is gathered outlives the batch: an id is given to a queue only when its frame is in
 * the file, as far as the kernel is concerned, so that kill -9 cannot take the body alone.
 */
#include "bodies/bodies_private.h"

#include <assert.h>
#include <errno.h>

#define COPY_MAX     (UINT32_C(68) << 10) /* more would leave the processor's cache meanwhile */
#define STRAIGHT_MIN (UINT32_C(16) << 10) /* a piece of its own costs less than a copy */
#define WRITE_MAX    (UINT32_C(1) << 20)  /* of one call: longer ones cost as much for each byte */
#define PARTS        4u                   /* pieces of a frame, at most */

/* Frames that follow the bytes of the file and are not in it yet. */
struct qi_gathered {
    bool is_batch; /* or each frame is written at once */
    uint32_t count;
    uint32_t copied; /* bytes of the copy that are used */
    uint64_t bytes;  /* of all pieces */
    struct qi_piece pieces[QI_PIECES_MAX];
    uint8_t copy[COPY_MAX];
};

static int has_memory(struct qi_messages *messages) {
    if (!messages->gathered) {
        messages->gathered = qi_malloc(sizeof *messages->gathered);
        if (messages->gathered) /* the copy is nobody's to clear */
            memset(messages->gathered, 0, offsetof(struct qi_gathered, pieces));
    }
    return messages->gathered ? 0 : -ENOMEM;
}

static void forget(struct qi_gathered *gathered) {
    gathered->count = gathered->copied = 0;
    gathered->bytes = 0;
}

/* As if they had not been appended. */
static void take_back(struct qi_messages *messages) {
    messages->tail -= messages->gathered->bytes;
    messages->written -= messages->gathered->bytes;
    forget(messages->gathered);
}

/* Neighbours in memory are one piece. */
static void add_piece(struct qi_gathered *gathered, const void *bytes, size_t length) {
    struct qi_piece *last = gathered->count ? &gathered->pieces[gathered->count - 1] : NULL;
    if (length == 0)
        return;
    if (last && (const uint8_t *)last->bytes + last->length == bytes)
        last->length += length;
    else
        gathered->pieces[gathered->count++] = (struct qi_piece){(void *)(uintptr_t)bytes, length};
    gathered->bytes += length;
}

static void add_copy(struct qi_gathered *gathered, const void *bytes, size_t length) {
    uint8_t *copy = gathered->copy + gathered->copied;
    memcpy(copy, bytes, length);
    gathered->copied += (uint32_t)length;
    add_piece(gathered, copy, length);
}

/* A few short frames are as one. */
static void store(struct qi_messages *messages) {
    const struct qi_gathered *gathered = messages->gathered;
    uint8_t *to = messages->tape.memory + (messages->tail - gathered->bytes);
    for (uint32_t i = 0; i < gathered->count; to += gathered->pieces[i++].length)
        memcpy(to, gathered->pieces[i].bytes, gathered->pieces[i].length);
}

int qi_messages_write_out(struct qi_messages *messages) {
    struct qi_gathered *gathered = messages->gathered;
    struct qi_tape *tape = &messages->tape;
    int error = 0;
    if (!gathered || gathered->bytes == 0)
        return 0;
    if (!tape->told && gathered->bytes < tape->disk->call_min)
        store(messages);
    else
        error = tape->disk->ops->write_pieces(tape->disk, tape->file, gathered->pieces,
                                              gathered->count, messages->tail - gathered->bytes);
    if (error)
        take_back(messages);
    else
        forget(gathered);
    return error;
}

void qi_messages_gather(struct qi_messages *messages) {
    if (has_memory(messages) == 0) /* without it, each frame is written at once */
        messages->gathered->is_batch = true;
}

int qi_messages_end_batch(struct qi_messages *messages, bool keep) {
    if (!messages->gathered)
        return 0;
    messages->gathered->is_batch = false;
    if (!keep)
        take_back(messages);
    return QI_BUG(batch_not_written) ? 0 : qi_messages_write_out(messages);
}

/* Copies the payload and continues the checksum over the copy. */
static uint32_t copy_payload(uint8_t *to, const struct qi_payload *payload, uint32_t crc) {
    crc = qi_crc32c_copy(crc, to, payload->headers, payload->headers_size);
    return qi_crc32c_copy(crc, to + payload->headers_size, payload->body, payload->body_size);
}

/* The whole frame, at memory that has room for it. `header` has its length and its MsgId. */
static void put_frame(const struct qi_messages *messages, uint8_t *frame, uint8_t *header,
                      const struct qi_payload *payload) {
    uint32_t crc = qi_message_crc(messages->tape_seed, messages->tail, header);
    uint8_t *end = frame + QI_MESSAGE_HEADER + payload->headers_size + payload->body_size;
    qi_put32(header + 4, copy_payload(frame + QI_MESSAGE_HEADER, payload, crc));
    memcpy(frame, header, QI_MESSAGE_HEADER);
    *end = QI_MESSAGE_END;
}

/* The body stays where it is until it is written. */
static void gather_straight(struct qi_messages *messages, uint8_t *header,
                            const struct qi_payload *payload) {
    static const uint8_t end = QI_MESSAGE_END;
    uint32_t crc = qi_message_crc(messages->tape_seed, messages->tail, header);
    crc = qi_crc32c(crc, payload->headers, payload->headers_size);
    qi_put32(header + 4, qi_crc32c(crc, payload->body, payload->body_size));
    add_copy(messages->gathered, header, QI_MESSAGE_HEADER);
    add_piece(messages->gathered, payload->headers, payload->headers_size);
    add_piece(messages->gathered, payload->body, payload->body_size);
    add_copy(messages->gathered, &end, sizeof end);
}

/* A frame that does not fit into the copy, of bytes that may change: its payload goes part by part,
 * then its end, then its header, which has the checksum. */
static int write_parts(struct qi_messages *messages, uint8_t *header,
                       const struct qi_payload *payload) {
    struct qi_tape *tape = &messages->tape;
    const struct qi_disk_ops *ops = tape->disk->ops;
    uint8_t *copy = messages->gathered->copy;
    uint32_t crc = qi_message_crc(messages->tape_seed, messages->tail, header);
    uint64_t offset = messages->tail + QI_MESSAGE_HEADER;
    const struct qi_piece parts[] = {{(void *)(uintptr_t)payload->headers, payload->headers_size},
                                     {(void *)(uintptr_t)payload->body, payload->body_size}};
    for (int part = 0; part < 2; part++)
        for (size_t done = 0, size; done < parts[part].length; done += size, offset += size) {
            size = parts[part].length - done;
            size = size < COPY_MAX ? size : COPY_MAX;
            crc = qi_crc32c_copy(crc, copy, (uint8_t *)parts[part].bytes + done, size);
            int error = ops->write(tape->disk, tape->file, copy, size, offset);
            if (error)
                return error;
        }
    static const uint8_t end = QI_MESSAGE_END;
    qi_put32(header + 4, crc);
    int error = ops->write(tape->disk, tape->file, &end, 1, offset);
    return error ? error
                 : ops->write(tape->disk, tape->file, header, QI_MESSAGE_HEADER, messages->tail);
}

static bool has_room(const struct qi_gathered *gathered, uint64_t copied, uint64_t size) {
    return gathered->count + PARTS <= QI_PIECES_MAX && gathered->copied + copied <= COPY_MAX &&
           (gathered->bytes == 0 || gathered->bytes + size <= WRITE_MAX);
}

static int write_long(struct qi_messages *messages, uint8_t *header,
                      const struct qi_payload *payload, uint32_t length) {
    uint64_t size = (uint64_t)length + QI_MESSAGE_OVERHEAD;
    bool straight = payload->steady && payload->body_size >= STRAIGHT_MIN;
    uint64_t copied = straight ? QI_MESSAGE_OVERHEAD : size;
    int error = has_memory(messages);
    if (!error && !has_room(messages->gathered, copied, size))
        error = qi_messages_write_out(messages);
    if (error)
        return error;
    if (copied > COPY_MAX)
        return write_parts(messages, header, payload);
    if (straight) {
        gather_straight(messages, header, payload);
        return 0;
    }
    struct qi_gathered *gathered = messages->gathered;
    bool in_memory = messages->tape.told && !qi_message_is_long(messages, length);
    uint8_t *frame =
        in_memory ? messages->tape.memory + messages->tail : gathered->copy + gathered->copied;
    put_frame(messages, frame, header, payload);
    gathered->copied += in_memory ? 0 : (uint32_t)size;
    add_piece(gathered, frame, size);
    return 0;
}

int qi_messages_write(struct qi_messages *messages, uint8_t *header,
                      const struct qi_payload *payload) {
    struct qi_tape *tape = &messages->tape;
    uint32_t length = payload->headers_size + payload->body_size;
    uint64_t size = (uint64_t)length + QI_MESSAGE_OVERHEAD;
    bool is_batch = messages->gathered && messages->gathered->is_batch;
    int error = 0;
    if (is_batch || qi_message_is_long(messages, length)) {
        error = write_long(messages, header, payload, length);
    } else {
        put_frame(messages, tape->memory + messages->tail, header, payload);
        error = qi_tape_wrote(tape, messages->tail, size);
    }
    if (error)
        return error;
    messages->tail += size;
    messages->written += size;
    return is_batch ? 0 : qi_messages_write_out(messages);
}
